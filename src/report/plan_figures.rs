//! Figures of a plan: time and cost against workers, what an update is made of, batch, efficiency, the
//! front of time and cost, and predictions beside measurements.

use crate::analysis::numbers::{count, fixed};
use crate::analysis::plan::{PlanAnswer, amount};
use crate::theory::plan::{Point, Series as Ways, StepTime, Strategy};

use super::axis::{Axis, range};
use super::canvas::Align;
use super::critical_chart::{Chart, DOTS, Note, band, line, points};
use super::figure::{Figure, Mark, Sample, Series};
use super::palette::{self, MUTED, Style};
use super::probe_figures::{FREE, REFERENCE, panel, plain, value_axis};

/// Height of a plot that stands alone, and of one of two.
const ALONE: f64 = 330.0;
const PAIRED: f64 = 250.0;

/// Most numbers of workers that are named along the front.
const MOST_NAMES: usize = 12;

/// A part of a whole: its name and its value.
type Part<T> = (&'static str, fn(T) -> f64);

/// All figures, in the order of the page.
pub(crate) fn figures(answer: &PlanAnswer) -> Vec<Figure<Chart>> {
    let mut figures = vec![
        time(answer),
        cost(answer),
        efficiency(answer),
        shares(answer),
        batch(answer),
    ];
    figures.extend(front(answer));
    figures.extend(check(answer));
    figures
}

/// Whether a file of this name is a figure of this kind.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with("plan-")
}

/// What times on an axis are counted in: seconds of the unit, and its name.
fn unit(seconds: &[f64]) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 5] = [
        (86_400.0, "days"),
        (3600.0, "hours"),
        (60.0, "minutes"),
        (1.0, "seconds"),
        (1e-3, "milliseconds"),
    ];
    let logs = seconds.iter().filter(|s| **s > 0.0).map(|s| s.ln());
    let n = logs.clone().count().max(1);
    let middle = (logs.sum::<f64>() / n as f64).exp();
    let fits = UNITS.into_iter().find(|(size, _)| middle >= 2.0 * size);
    fits.unwrap_or((1e-6, "microseconds"))
}

/// The workers that were looked at.
fn workers_axis(answer: &PlanAnswer) -> Axis {
    let best = &answer.plan.best;
    let ends: Vec<u64> = best.iter().map(|p| p.workers).collect();
    let mut axis = Axis::batches(&ends);
    "workers (log scale)".clone_into(&mut axis.label);
    for (value, label) in &mut axis.ticks {
        *label = count(*value as u64);
    }
    axis
}

/// Names of strategies and algorithms where there are several.
fn name(answer: &PlanAnswer, ways: &Ways) -> String {
    let several = |n: usize| n > 1;
    let strategies = {
        let mut names: Vec<&str> = answer
            .plan
            .series
            .iter()
            .map(|s| s.strategy.name())
            .collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    let strategy = match ways.strategy {
        Strategy::FeatureGroups(_) => "features in groups, data over groups",
        Strategy::PipelineGroups(_) => "pipelines in groups, data over groups",
        Strategy::Data => "data",
        Strategy::Features => "features",
        Strategy::Pipeline => "pipeline",
    };
    let network = &answer.networks[ways.network];
    match (several(strategies), several(answer.networks.len())) {
        (false, true) => network.clone(),
        (true, true) => format!("{strategy}; {network}"),
        _ => strategy.to_owned(),
    }
}

/// A line for each way, and its sample.
fn ways(
    answer: &PlanAnswer,
    value: impl Fn(&Point) -> f64,
) -> (Vec<Series>, Vec<(Sample, String)>) {
    let (mut lines, mut legend) = (Vec::new(), Vec::new());
    for (i, ways) in answer.plan.series.iter().enumerate() {
        if ways.points.is_empty() {
            continue;
        }
        let style = palette::line(i);
        let marks = ways
            .points
            .iter()
            .map(|p| plain(p.workers as f64, value(p)));
        let marks: Vec<Mark> = marks.collect();
        // A way that only one number of workers can go is a point.
        if let [_] = marks.as_slice() {
            lines.push(points(style, marks));
            legend.push((Sample::Point(style), name(answer, ways)));
        } else {
            lines.push(line(style, marks));
            legend.push((Sample::Line(style), name(answer, ways)));
        }
    }
    (lines, legend)
}

fn values(lines: &[Series]) -> Vec<f64> {
    lines.iter().flat_map(|s| &s.marks).map(|m| m.y).collect()
}

/// Room on a logarithmic axis above lines that rise, for names.
fn with_headroom(mut values: Vec<f64>) -> Vec<f64> {
    if let Some((low, high)) = range(&values).filter(|(low, _)| *low > 0.0) {
        values.push(high * (high / low).max(2.0).powf(0.12));
    }
    values
}

/// The numbers of workers that are answers, as lines with names one below the other.
fn answers(answer: &PlanAnswer, chart: &mut Chart) {
    let mut named = vec![
        (answer.worth_it.workers, "worth it"),
        (answer.plan.fastest.workers, "fastest"),
    ];
    named.dedup_by(|a, b| {
        let same = a.0 == b.0;
        if same {
            b.1 = "worth it and fastest";
        }
        same
    });
    for (row, (workers, name)) in named.into_iter().enumerate() {
        let x = workers as f64;
        chart.upright(DOTS, x, "", None);
        let late = chart.panel.x.position(x) > 0.62;
        chart.notes.push(Note {
            text: format!("{name}: {}", count(workers)),
            at: (x, chart.panel.y.high),
            shift: (if late { -5.0 } else { 5.0 }, 10.0 + 15.0 * row as f64),
            align: if late { Align::Right } else { Align::Left },
        });
    }
}

fn figure(
    answer: &PlanAnswer,
    name: &str,
    title: &str,
    caption: String,
    panels: Vec<Chart>,
    legend: Vec<(Sample, String)>,
) -> Figure<Chart> {
    Figure {
        name: format!("plan-{name}"),
        title: title.to_owned(),
        subtitle: answer.name.clone(),
        caption,
        columns: panels.len().min(2),
        panels,
        legend_title: String::new(),
        legend,
    }
}

/// The style of what holds for the best of all ways.
fn best_style() -> Style {
    Style {
        colour: MUTED,
        ..palette::series(0)
    }
}

fn time(answer: &PlanAnswer) -> Figure<Chart> {
    let plan = &answer.plan;
    let all: Vec<f64> = plan.best.iter().map(|p| p.time).collect();
    let (size, unit) = unit(&all);
    let (mut lines, mut legend) = ways(answer, |p| p.time / size);
    let intervals = plan.best.iter().filter_map(|p| {
        let interval = answer.interval(p)?;
        Some(Mark {
            span: Some((interval.low / size, interval.high / size)),
            ..plain(p.workers as f64, p.time / size)
        })
    });
    let intervals: Vec<Mark> = intervals.collect();
    let banded = intervals.len() > 1;
    let x = workers_axis(answer);
    let label = format!("time to the target ({unit}, log scale)");
    let mut seen = values(&lines);
    let spans = intervals.iter().filter_map(|m| m.span);
    seen.extend(spans.flat_map(|(low, high)| [low, high]));
    let y = Axis::log10_fine(&label, &with_headroom(seen));
    if banded {
        lines.insert(0, band(best_style(), intervals));
    }
    let mut chart = Chart::of("", panel(x.clone(), y, label, ALONE, lines));
    let fewest = answer.fewest();
    let ideal = |p: f64| fewest.time * fewest.workers as f64 / p / size;
    let ends = [fewest.workers as f64, x.high].map(|p| (p, ideal(p)));
    chart.panel.references.push((REFERENCE, ends.to_vec()));
    answers(answer, &mut chart);
    let of = if fewest.workers == 1 {
        "ideal: twice the workers, half the time of one".to_owned()
    } else {
        format!("ideal: from {} workers on", count(fewest.workers))
    };
    legend.push((Sample::Reference(REFERENCE), of));
    let mut caption = "Time to the target against workers, each number at its best batch. Where the line leaves the ideal, workers \
                       are partly wasted; where it turns, more of them take longer. Notches at powers of 2 are those of algorithms that \
                       sum fastest there."
        .to_owned();
    if banded {
        caption.push_str(
            " The band is that of the fastest way, with the steps (and the device's times, where they are known so well) at \
             the ends of their intervals.",
        );
    }
    figure(
        answer,
        "time",
        "Time to the target against workers",
        caption,
        vec![chart],
        legend,
    )
}

fn cost(answer: &PlanAnswer) -> Figure<Chart> {
    let (lines, legend) = ways(answer, |p| p.cost);
    let label = format!("cost ({}, log scale)", answer.unit);
    let y = Axis::log10_fine(&label, &with_headroom(values(&lines)));
    let mut chart = Chart::of("", panel(workers_axis(answer), y, label, ALONE, lines));
    answers(answer, &mut chart);
    let legend = if answer.plan.series.len() > 1 {
        legend
    } else {
        Vec::new()
    };
    figure(
        answer,
        "cost",
        "Cost of the target against workers",
        "Workers times the time to the target times their price, each number of workers at the batch that is fastest."
            .to_owned(),
        vec![chart],
        legend,
    )
}

/// The share of the cost that is used, and its two parts.
fn efficiency(answer: &PlanAnswer) -> Figure<Chart> {
    let parts: [Part<(f64, f64)>; 3] = [
        ("both together: the share of the cost that is used", |p| {
            p.0 * p.1
        }),
        (
            "statistics: examples needed at the batch of the fewest workers",
            |p| p.0,
        ),
        ("machine: examples a second and worker", |p| p.1),
    ];
    let (mut lines, mut legend) = (Vec::new(), Vec::new());
    for (i, (name, of)) in parts.into_iter().enumerate() {
        let style = palette::line(i);
        let mark = |p: &Point| plain(p.workers as f64, 100.0 * of(answer.efficiency_parts(p)));
        lines.push(line(style, answer.plan.best.iter().map(mark).collect()));
        legend.push((Sample::Line(style), name.to_owned()));
    }
    let label = "efficiency (%)";
    let mut seen = values(&lines);
    seen.extend([0.0, 100.0]);
    let y = Axis::linear(label, &seen, (0.0, f64::INFINITY));
    let mut chart = Chart::of(
        "",
        panel(workers_axis(answer), y, label.to_owned(), ALONE, lines),
    );
    let asked = 100.0 * answer.efficiency;
    chart.level(DOTS, asked, &format!("{} %", fixed(asked, 0)), None);
    answers(answer, &mut chart);
    figure(
        answer,
        "efficiency",
        "Efficiency against workers",
        "Efficiency against the fewest workers, and the two of which it is the product: a larger batch needs more examples, and \
         workers that communicate compute less. The lower of the two is what limits."
            .to_owned(),
        vec![chart],
        legend,
    )
}

/// What an update is made of, at the best of all ways.
fn shares(answer: &PlanAnswer) -> Figure<Chart> {
    let parts: [Part<StepTime>; 4] = [
        ("computing", |s| s.compute),
        ("idle: pipelines fill and empty", |s| s.bubble),
        ("communication inside groups", |s| s.exchange),
        ("sum of gradients, not hidden", |s| s.exposed),
    ];
    let best = &answer.plan.best;
    let (mut lines, mut legend) = (Vec::new(), Vec::new());
    let mut below = vec![0.0; best.len()];
    for (i, (name, of)) in parts.into_iter().enumerate() {
        let shares: Vec<f64> = best
            .iter()
            .map(|p| 100.0 * of(p.step) / p.step.total())
            .collect();
        if shares.iter().all(|s| *s < 0.05) {
            continue;
        }
        let style = Style {
            dash: None,
            ..palette::series(i)
        };
        let marks: Vec<Mark> = best
            .iter()
            .zip(&shares)
            .zip(&below)
            .map(|((p, share), below)| {
                // Rounding may add up to a little more than all.
                let above = (below + share).min(100.0);
                Mark {
                    span: Some((*below, above)),
                    ..plain(p.workers as f64, above)
                }
            })
            .collect();
        for (below, mark) in below.iter_mut().zip(&marks) {
            *below = mark.y;
        }
        lines.push(band(style, marks.clone()));
        let edge = marks.into_iter().map(|m| Mark { span: None, ..m });
        lines.push(line(style, edge.collect()));
        legend.push((Sample::Line(style), name.to_owned()));
    }
    let label = "share of an update (%)";
    let mut y = Axis::linear(label, &[0.0, 100.0], (0.0, 100.0));
    (y.low, y.high) = (0.0, 100.0);
    let mut chart = Chart::of(
        "",
        panel(workers_axis(answer), y, label.to_owned(), ALONE, lines),
    );
    answers(answer, &mut chart);
    figure(
        answer,
        "shares",
        "What an update is made of",
        "Shares of the seconds of an update, one on top of the other, at the fastest way to use each number of workers. Communication \
         that is hidden behind computing takes no time and is not here."
            .to_owned(),
        vec![chart],
        legend,
    )
}

fn batch(answer: &PlanAnswer) -> Figure<Chart> {
    let best = &answer.plan.best;
    let law = &answer.task.law;
    let style = palette::line(0);
    let own = palette::line(1);
    let marks = |of: fn(&Point) -> f64| -> Vec<Mark> {
        best.iter()
            .map(|p| plain(p.workers as f64, of(p)))
            .collect()
    };
    let whole = line(style, marks(|p| p.batch));
    let local = line(own, marks(|p| p.batch / p.workers as f64));
    let label = "examples (log scale)";
    let mut seen = values(&[whole.clone(), local.clone()]);
    seen.extend(Some(law.b_crit).filter(|b| *b > 0.0));
    let y = Axis::log10(label, &with_headroom(seen));
    let lines = vec![whole, local];
    let mut chart = Chart::of(
        "",
        panel(workers_axis(answer), y, label.to_owned(), ALONE, lines),
    );
    if law.b_crit > 0.0 {
        let name = format!("B_crit {}", amount(law.b_crit));
        chart.level(DOTS, law.b_crit, &name, answer.b_crit_interval);
    }
    answers(answer, &mut chart);
    let legend = vec![
        (Sample::Line(style), "best batch".to_owned()),
        (Sample::Line(own), "of it, for each worker".to_owned()),
    ];
    figure(
        answer,
        "batch",
        "The best batch against workers",
        "The batch that reaches the target soonest on each number of workers. Above B_crit a larger one hardly saves updates."
            .to_owned(),
        vec![chart],
        legend,
    )
}

/// Cost against time, and the points that none beats in both.
fn front(answer: &PlanAnswer) -> Option<Figure<Chart>> {
    let front = &answer.plan.front;
    if front.len() < 2 {
        return None;
    }
    let best = &answer.plan.best;
    let all: Vec<f64> = best.iter().map(|p| p.time).collect();
    let (size, unit) = unit(&all);
    let mark = |p: &Point| plain(p.time / size, p.cost);
    let style = palette::series(0);
    let faint = Style {
        dash: Some((2.5, 2.5)),
        ..best_style()
    };
    let named = names(front);
    let lines = vec![
        line(faint, best.iter().map(mark).collect()),
        line(style, front.iter().map(mark).collect()),
        points(style, named.iter().map(|p| mark(p)).collect()),
    ];
    let xs: Vec<f64> = best.iter().map(|p| p.time / size).collect();
    let x_label = format!("time to the target ({unit}, log scale)");
    let label = format!("cost ({}, log scale)", answer.unit);
    let x = Axis::log10_fine(&x_label, &xs);
    let y = Axis::log10_fine(&label, &values(&lines));
    let mut chart = Chart::of("", panel(x, y, label, ALONE, lines));
    chart.labels = named
        .iter()
        .map(|p| (p.time / size, p.cost, count(p.workers)))
        .collect();
    Some(figure(
        answer,
        "front",
        "What a shorter time costs",
        "Cost against time. On the front no other plan is both faster and cheaper; beside points stands the number of workers. The \
         dotted line goes on where more workers cost more and take longer."
            .to_owned(),
        vec![chart],
        vec![
            (Sample::Series(style), "the front, some numbers of workers named".to_owned()),
            (Sample::Line(faint), "every number of workers".to_owned()),
        ],
    ))
}

/// Both ends of the front, and powers of 2 between them, not too many.
fn names(front: &[Point]) -> Vec<&Point> {
    let powers: Vec<&Point> = front
        .iter()
        .filter(|p| p.workers.is_power_of_two())
        .collect();
    let every = powers.len().div_ceil(MOST_NAMES).max(1);
    let mut named: Vec<&Point> = powers.into_iter().step_by(every).collect();
    named.extend(front.first());
    named.extend(front.last());
    named.sort_by(|a, b| a.time.total_cmp(&b.time));
    named.dedup_by_key(|p| p.workers);
    named
}

/// Measured seconds of an update beside those predicted, and their ratio.
fn check(answer: &PlanAnswer) -> Option<Figure<Chart>> {
    if answer.checked.is_empty() {
        return None;
    }
    let mut batches: Vec<u64> = answer.checked.iter().map(|c| c.measured.batch).collect();
    batches.dedup();
    let times: Vec<f64> = answer.checked.iter().map(|c| c.measured.seconds).collect();
    let (size, unit) = unit(&times);
    let (mut lines, mut errors, mut legend) = (Vec::new(), Vec::new(), Vec::new());
    for (i, batch) in batches.iter().enumerate() {
        let own = || answer.checked.iter().filter(|c| c.measured.batch == *batch);
        let style = Style {
            dash: None,
            ..palette::series(i)
        };
        let measured = own().map(|c| Mark {
            span: c.measured.interval.map(|i| (i.low / size, i.high / size)),
            ..plain(c.measured.workers as f64, c.measured.seconds / size)
        });
        let predicted = own().filter_map(|c| {
            let seconds = c.predicted?.total() / size;
            Some(plain(c.measured.workers as f64, seconds))
        });
        let error =
            own().filter_map(|c| Some(plain(c.measured.workers as f64, 100.0 * c.error()?)));
        let of = if batches.len() > 1 {
            format!(", batch {}", count(*batch))
        } else {
            String::new()
        };
        lines.push(points(style, measured.collect()));
        let shape = Style {
            dash: REFERENCE,
            ..style
        };
        lines.push(line(shape, predicted.collect()));
        errors.push(points(style, error.collect()));
        legend.push((Sample::Point(style), format!("measured{of}")));
        legend.push((Sample::Line(shape), format!("predicted{of}")));
    }
    let workers: Vec<u64> = answer.checked.iter().map(|c| c.measured.workers).collect();
    let mut x = Axis::batches(&workers);
    "workers (log scale)".clone_into(&mut x.label);
    let marks: Vec<Mark> = lines.iter().flat_map(|s| s.marks.clone()).collect();
    let y = value_axis(
        &format!("seconds of an update ({unit})"),
        &marks,
        true,
        FREE,
    );
    let label = y.label.clone();
    let both = Chart::of("", panel(x.clone(), y, label, PAIRED, lines));
    let label = "prediction over measurement, less 1 (%)";
    let mut seen = values(&errors);
    seen.push(0.0);
    let y = Axis::linear(label, &seen, FREE);
    let mut ratio = Chart::of("", panel(x.clone(), y, label.to_owned(), PAIRED, errors));
    let zero = [x.low, x.high].map(|x| (x, 0.0));
    ratio.panel.references.push((REFERENCE, zero.to_vec()));
    Some(figure(
        answer,
        "check",
        "Predicted and measured updates",
        "Seconds of an update, measured and predicted with data parallelism at the same batch, and by how much the prediction is off."
            .to_owned(),
        vec![both, ratio],
        legend,
    ))
}
