//! Figures of the other estimates of the critical batch size, noise scale and branches, and of all
//! beside each other.

use crate::analysis::critical_batch::{
    Branch, BranchMoment, Case, CriticalBatch, EstimateRow, Noise, NoisePoint,
};
use crate::analysis::numbers::{count, plural};
use crate::math::statistics::{Estimate, Interval};

use super::axis::{Axis, range};
use super::canvas::Align;
use super::critical_chart::{
    Chart, DOTS, Note, PUBLISHED, any_hollow, at_least, batch_axis, has_label, lanes, layout, line,
    mean_mark, measured, points, shade, span, within,
};
use super::critical_words::{
    b_crit_name, bracketed, most_moments, published, published_legend, quantity_name, rate, seeds,
    subtitle,
};
use super::figure::{Figure, Lane, Mark, Panel, Sample, Series};
use super::palette::{self, INK, MUTED, Marker, Style};
use super::probe_figures::{FREE, REFERENCE, panel, plain, series, value_axis};

/// The noise scale over training, with the critical batch size of the sweep.
pub(super) fn noise(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let cases: Vec<(&Case, &Noise)> = critical
        .cases
        .iter()
        .filter_map(|c| Some((c, c.noise.as_ref()?)))
        .filter(|(_, n)| !n.course.is_empty())
        .collect();
    if cases.is_empty() {
        return None;
    }
    let (columns, height) = layout(cases.len());
    let weighted = palette::series(2);
    let chart = |(case, noise): &(&Case, &Noise)| -> Chart {
        let mark = |p: &NoisePoint| {
            Some(Mark {
                span: span(p.interval),
                ..plain(p.step, p.b_simple?)
            })
        };
        let mut lines: Vec<Series> = noise
            .course
            .split(|p| p.b_simple.is_none())
            .filter(|piece| !piece.is_empty())
            .map(|piece| {
                let marks: Vec<Mark> = piece.iter().filter_map(mark).collect();
                Series {
                    banded: marks.len() > 1,
                    ..series(measured(), marks)
                }
            })
            .collect();
        let steps: Vec<f64> = noise.course.iter().map(|p| p.step).collect();
        let x = Axis::linear("updates", &steps, (0.0, f64::INFINITY));
        let (first, last) = range(&steps).unwrap_or((0.0, 1.0));
        for summary in &noise.summary {
            let Some(value) = summary.b_noise else {
                continue;
            };
            let at = |x| Mark {
                span: span(summary.b_noise_interval),
                ..plain(x, value)
            };
            lines.push(match summary.when {
                "start" => points(weighted, vec![at(first)]),
                "target" => points(weighted, vec![at(last)]),
                _ => {
                    let style = Style {
                        dash: Some((2.5, 2.5)),
                        ..weighted
                    };
                    line(style, [x.low, x.high].map(|x| plain(x, value)).to_vec())
                }
            });
        }
        let mut marks: Vec<Mark> = lines.iter().flat_map(|s| s.marks.clone()).collect();
        let crit = bracketed(case);
        let known = published(case, "b_simple");
        marks.extend(crit.map(|f| plain(first, f.fit.b_crit)));
        marks.extend(known.map(|p| plain(first, p.value)));
        let y = if marks.is_empty() {
            Axis::log10("noise scale (examples, log scale)", &[])
        } else {
            value_axis("noise scale (examples)", &marks, true, FREE)
        };
        let none: Vec<(f64, String)> = noise
            .course
            .iter()
            .filter(|p| p.b_simple.is_none())
            .map(|p| (p.step, String::new()))
            .collect();
        let lane = Lane {
            colour: MUTED,
            marks: none,
        };
        let heading = format!(
            "noise scale (examples, log), batch {}, rate {}",
            noise.batch,
            rate(noise.rate)
        );
        let mut chart = Chart::of(
            &case.label,
            Panel {
                lane: Some(lane)
                    .into_iter()
                    .filter(|l| !l.marks.is_empty())
                    .collect(),
                lane_name: "undetermined",
                ..panel(x, y, heading, height, lines)
            },
        );
        if let Some(fit) = crit {
            let interval = fit.intervals.as_ref().map(|i| i.b_crit);
            chart.level(REFERENCE, fit.fit.b_crit, &b_crit_name(fit), interval);
        }
        if let Some(known) = known {
            chart.level(PUBLISHED, known.value, "", None);
        }
        chart
    };
    let panels: Vec<Chart> = cases.iter().map(chart).collect();
    let shown: Vec<&Case> = cases.iter().map(|c| c.0).collect();
    let mut legend = vec![(
        Sample::Series(measured()),
        "B_simple, its 95 % interval as a band".to_owned(),
    )];
    let summaries = || cases.iter().flat_map(|c| &c.1.summary);
    let has = |average: bool| {
        summaries().any(|s| s.b_noise.is_some() && (s.when == "average") == average)
    };
    if has(false) {
        legend.push((
            Sample::Point(weighted),
            "B_noise at the start and near the target".to_owned(),
        ));
    }
    if has(true) {
        let style = Style {
            dash: Some((2.5, 2.5)),
            ..weighted
        };
        legend.push((Sample::Line(style), "B_noise, average".to_owned()));
    }
    if has_label(&panels, REFERENCE) {
        legend.push((
            Sample::Reference(REFERENCE),
            "B_crit of the sweep, shaded its 95 % interval".to_owned(),
        ));
    }
    legend.extend(published_legend(&shown, "b_simple", "B_simple"));
    if panels.iter().any(|p| !p.panel.lane.is_empty()) {
        legend.push((Sample::Cross, "undetermined".to_owned()));
    }
    let caption = "The noise scale of the gradient over one run a seed: B_simple = tr Σ/|G|² of windows of updates of all seeds, with its \
         95 % interval, beside the critical batch size of the sweep."
        .to_owned();
    Some(Figure {
        name: "critical-noise".to_owned(),
        title: "Noise scale over training and the critical batch size".to_owned(),
        subtitle: subtitle(critical, &plural(seeds(critical), "seed", "seeds")),
        caption,
        columns,
        panels,
        legend_title: String::new(),
        legend,
    })
}

/// Losses of branches against their batch, and the critical batch by branches over training.
pub(super) fn branched(critical: &CriticalBatch) -> Vec<Figure<Chart>> {
    let cases: Vec<&Case> = critical
        .cases
        .iter()
        .filter(|c| c.branched.iter().any(|m| !m.branches.is_empty()))
        .collect();
    if cases.is_empty() {
        return Vec::new();
    }
    let moments = most_moments(critical);
    let (columns, height) = layout(cases.len().max(2));
    let losses: Vec<Chart> = cases
        .iter()
        .map(|c| branch_losses(c, moments, cases.len().max(2), height))
        .collect();
    let batches: Vec<Chart> = cases
        .iter()
        .filter_map(|c| branch_batches(c, cases.len().max(2), height))
        .collect();
    let mut legend: Vec<(Sample, String)> = (0..moments)
        .map(|i| {
            let style = palette::ordered(i, moments);
            (Sample::Series(style), moment_words(&cases, i))
        })
        .collect();
    legend.push((Sample::Reference(REFERENCE), "the tolerance".to_owned()));
    if any_hollow(&losses) {
        legend.push((
            Sample::Hollow,
            "not every seed's branch ended: no interval".to_owned(),
        ));
    }
    let crosses = losses.iter().any(|c| !c.panel.lane.is_empty());
    if crosses {
        legend.push((Sample::Cross, "branches that diverged (of all)".to_owned()));
    }
    let mut of_batches: Vec<(Sample, String)> = Vec::new();
    if cases.iter().flat_map(|c| &c.branched).any(|m| m.at_least) {
        of_batches.push((
            Sample::Point(at_least()),
            "at least: the largest branch was within the tolerance".to_owned(),
        ));
    }
    if has_label(&batches, DOTS) {
        of_batches.push((
            Sample::Reference(DOTS),
            "B_crit of the sweep, shaded its 95 % interval".to_owned(),
        ));
    }
    let how = match seeds(critical) {
        0 | 1 => "one seed, so no interval".to_owned(),
        n => format!("means and 95 % intervals over {n} seeds"),
    };
    let of_losses = "Branches from one trunk at larger batches, each with the same examples: their smoothed loss at the end above that of \
         the branch that keeps the batch, paired by seed; the plot ends at 30 times the tolerance.";
    let of_critical = "The largest batch whose loss stays within the tolerance, against the examples that the trunk had processed.";
    let figure = |name: &str, title: &str, caption: String, columns, panels, legend| Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        subtitle: subtitle(critical, &how),
        caption,
        columns,
        panels,
        legend_title: String::new(),
        legend,
    };
    let title = "Loss of branches at larger batches";
    if cases.len() == 1 {
        let both: Vec<Chart> = losses.into_iter().chain(batches).collect();
        let columns = both.len();
        let caption = if columns > 1 {
            format!("Left: {of_losses} Right: {of_critical}")
        } else {
            of_losses.to_owned()
        };
        legend.extend(of_batches);
        return vec![figure(
            "critical-branched",
            title,
            caption,
            columns,
            both,
            legend,
        )];
    }
    let mut figures = vec![figure(
        "critical-branched",
        title,
        of_losses.to_owned(),
        columns,
        losses,
        legend,
    )];
    if !batches.is_empty() {
        of_batches.insert(
            0,
            (
                Sample::Series(measured()),
                "critical batch by branches".to_owned(),
            ),
        );
        figures.push(figure(
            "critical-branched-batches",
            "Critical batch by branches over training",
            of_critical.to_owned(),
            columns,
            batches,
            of_batches,
        ));
    }
    figures
}

/// Moment `i` in words: the examples before it, where all cases branch at the same.
pub(super) fn moment_words(cases: &[&Case], i: usize) -> String {
    let examples: Vec<u64> = cases
        .iter()
        .filter_map(|c| c.branched.get(i))
        .map(|m| m.examples.round() as u64)
        .collect();
    match examples.first() {
        Some(first) if examples.iter().all(|e| e == first) => {
            format!("after {} examples", count(*first))
        }
        _ => format!("moment {}", i + 1),
    }
}

/// Loss of each branch above that of the base, by seed where every seed has both.
pub(super) fn above_base(moment: &BranchMoment) -> Vec<Mark> {
    let Some(base) = moment.branches.first() else {
        return Vec::new();
    };
    let base_mean = Estimate::of(&base.losses).map(|e| e.mean);
    moment
        .branches
        .iter()
        .filter_map(|branch| {
            let x = branch.batch as f64;
            let paired = branch.losses.len() == base.losses.len();
            if !paired {
                let mean = Estimate::of(&branch.losses)?.mean - base_mean?;
                return Some(Mark {
                    hollow: true,
                    ..plain(x, mean)
                });
            }
            let pairs = branch.losses.iter().zip(&base.losses);
            let differences: Vec<f64> = pairs.map(|(a, b)| a - b).collect();
            let estimate = Estimate::of(&differences)?;
            let interval = estimate
                .interval()
                .filter(|_| branch.batch != moment.base_batch);
            Some(Mark {
                span: span(interval),
                ..plain(x, estimate.mean)
            })
        })
        .collect()
}

/// Loss above the base at which the plot of branches ends, over the tolerance.
const HIGHEST: f64 = 30.0;

pub(super) fn branch_losses(case: &Case, moments: usize, panels: usize, height: f64) -> Chart {
    let mut batches: Vec<u64> = case
        .branched
        .iter()
        .flat_map(|m| &m.branches)
        .map(|b| b.batch)
        .collect();
    batches.sort_unstable();
    batches.dedup();
    let x = batch_axis(&batches, panels);
    let shift =
        |i: usize| (i as f64 - (moments as f64 - 1.0) / 2.0) * (10.0 / moments as f64).min(4.0);
    let lines: Vec<Series> = case
        .branched
        .iter()
        .enumerate()
        .map(|(i, moment)| Series {
            dodge: shift(i),
            ..series(palette::ordered(i, moments), above_base(moment))
        })
        .collect();
    let mut tolerances: Vec<f64> = case.branched.iter().map(|m| m.tolerance).collect();
    tolerances.sort_by(f64::total_cmp);
    tolerances.dedup();
    // A branch that came near divergence would leave nothing of the others to be seen.
    let most = HIGHEST * tolerances.iter().copied().fold(0.0, f64::max);
    let within = |value: f64| value.clamp(-most, most);
    let mut marks: Vec<Mark> = lines
        .iter()
        .flat_map(|s| s.marks.clone())
        .map(|mark| Mark {
            y: within(mark.y),
            span: mark.span.map(|(low, high)| (within(low), within(high))),
            ..mark
        })
        .collect();
    marks.extend(tolerances.iter().map(|t| plain(1.0, *t)));
    let y = value_axis("loss above the base", &marks, false, FREE);
    let diverged = case.branched.iter().enumerate().map(|(i, moment)| {
        let of = |b: &Branch| (b.batch as f64, b.diverged, b.losses.len() + b.diverged);
        (
            palette::ordered(i, moments).colour,
            moment.branches.iter().map(of).collect(),
        )
    });
    let heading = "loss above that of the base (per example)".to_owned();
    let mut chart = Chart::of(
        &case.label,
        Panel {
            lane: lanes(diverged.collect()),
            lane_name: "diverged",
            ..panel(x, y, heading, height, lines)
        },
    );
    for tolerance in tolerances {
        chart.level(REFERENCE, tolerance, "", None);
    }
    chart
}

pub(super) fn branch_batches(case: &Case, panels: usize, height: f64) -> Option<Chart> {
    let of = |m: &BranchMoment| Some(mean_mark(m.examples, m.critical.as_ref()?));
    let marks: Vec<Mark> = case.branched.iter().filter_map(of).collect();
    let bounds = case.branched.iter().filter(|m| m.at_least).filter_map(of);
    let numbers = case.branched.iter().filter(|m| !m.at_least).filter_map(of);
    if marks.is_empty() {
        return None;
    }
    let examples: Vec<f64> = marks.iter().map(|m| m.x).collect();
    let (low, high) = range(&examples)?;
    let wide = low > 0.0 && high > 20.0 * low;
    let name = if panels > 4 {
        "examples processed"
    } else {
        "examples processed before the branches"
    };
    let x = if wide {
        Axis::log10(&format!("{name} (log scale)"), &examples)
    } else {
        Axis::linear(name, &examples, (0.0, f64::INFINITY))
    };
    let crit = bracketed(case);
    let mut all = marks.clone();
    all.extend(crit.map(|f| plain(low, f.fit.b_crit)));
    let y = value_axis("critical batch (examples)", &all, true, FREE);
    let heading = y.label.clone();
    let lines = vec![
        line(measured(), marks.iter().map(|m| plain(m.x, m.y)).collect()),
        points(measured(), numbers.collect()),
        points(at_least(), bounds.collect()),
    ];
    let mut chart = Chart::of(&case.label, panel(x, y, heading, height, lines));
    if let Some(fit) = crit {
        let interval = fit.intervals.as_ref().map(|i| i.b_crit);
        chart.level(DOTS, fit.fit.b_crit, &b_crit_name(fit), interval);
    }
    Some(chart)
}

pub(super) fn quantity_style(quantity: &str) -> Style {
    palette::series(match quantity {
        "b_crit" => 0,
        "b_simple" => 1,
        "b_noise" => 2,
        _ => 3,
    })
}

/// All estimates, a row a method.
pub(super) fn estimates(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let drawn = |r: &&EstimateRow| r.value.is_some() || r.published.is_some();
    // A batch with little overhead estimates something else.
    let rows_of = |case: &'_ Case| -> Vec<EstimateRow> {
        let mut rows = case.estimates.clone();
        rows.retain(|r| r.quantity != "efficient_batch");
        rows
    };
    let cases: Vec<(&Case, Vec<EstimateRow>)> = critical
        .cases
        .iter()
        .map(|c| (c, rows_of(c)))
        .filter(|(_, rows)| rows.iter().any(|r| drawn(&r)))
        .collect();
    if cases.is_empty() {
        return None;
    }
    let columns = if cases.len() > 1 { 2 } else { 1 };
    let other = Style {
        colour: INK,
        marker: Marker::InvertedTriangle,
        ..palette::series(0)
    };
    // All panels share their axis.
    let mut marks: Vec<Mark> = Vec::new();
    for row in cases.iter().flat_map(|c| &c.1) {
        let span = span(row.interval);
        marks.extend(row.value.map(|v| Mark {
            span,
            ..plain(0.0, v)
        }));
        marks.extend(row.published.map(|p| plain(0.0, p.value)));
    }
    let x = value_axis("critical batch size (examples)", &marks, true, FREE);
    let mut quantities: Vec<&str> = Vec::new();
    let chart = |(case, rows): &(&Case, Vec<EstimateRow>)| -> Chart {
        let names: Vec<String> = rows
            .iter()
            .map(|r| match r.quantity {
                "b_simple" | "b_noise" if !r.method.contains(quantity_name(r.quantity)) => {
                    format!("{}, {}", r.method, quantity_name(r.quantity))
                }
                _ => r.method.clone(),
            })
            .collect();
        let mut lines = Vec::new();
        let mut notes = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let y = i as f64;
            if let Some(value) = row.value {
                let mut bounds = case.branched.iter().filter(|m| m.at_least);
                let mark = Mark {
                    span: row.interval.map(|i| within(i, &x)),
                    hollow: row.quantity == "branched"
                        && bounds.any(|m| m.critical.is_some_and(|c| c.value == value)),
                    ..plain(value, y)
                };
                lines.push(points(quantity_style(row.quantity), vec![mark]));
            } else {
                notes.push(Note {
                    // "at least 8192", "none", "undetermined".
                    text: match row.note.split(':').next() {
                        Some("") | None => "undetermined".to_owned(),
                        Some(word) => word.to_owned(),
                    },
                    at: (x.low, y),
                    shift: (6.0, 0.0),
                    align: Align::Left,
                });
            }
            if let Some(published) = row.published {
                lines.push(points(other, vec![plain(published.value, y)]));
            }
        }
        let height = names.len() as f64 * 24.0 + 12.0;
        let mut chart = Chart::of(
            "",
            Panel {
                sideways: true,
                ..panel(
                    x.clone(),
                    Axis::rows(&names),
                    case.label.clone(),
                    height,
                    lines,
                )
            },
        );
        chart.notes = notes;
        let sweep = rows.iter().find(|r| r.quantity == "b_crit");
        if let Some(value) = sweep.and_then(|r| r.value) {
            let twice = Interval {
                low: value / 2.0,
                high: value * 2.0,
            };
            let ends = (chart.panel.y.high, chart.panel.y.low);
            chart
                .panel
                .references
                .push((REFERENCE, vec![(value, ends.0), (value, ends.1)]));
            let edge = |x| Mark {
                span: Some(ends),
                ..plain(x, 0.0)
            };
            let (low, high) = within(twice, &x);
            chart.panel.series.push(shade(vec![edge(low), edge(high)]));
        }
        chart
    };
    let panels: Vec<Chart> = cases.iter().map(chart).collect();
    for row in cases.iter().flat_map(|c| &c.1) {
        if row.value.is_some() && !quantities.contains(&row.quantity) {
            quantities.push(row.quantity);
        }
    }
    let mut legend: Vec<(Sample, String)> = quantities
        .iter()
        .map(|q| {
            let label = match *q {
                "b_crit" => "B_crit of the fit to steps",
                "b_simple" => "B_simple",
                "b_noise" => "B_noise",
                _ => "by branches",
            };
            (Sample::Point(quantity_style(q)), label.to_owned())
        })
        .collect();
    let rows = || cases.iter().flat_map(|c| &c.1);
    if rows().any(|r| r.published.is_some()) {
        legend.push((
            Sample::Point(other),
            "published for the same data".to_owned(),
        ));
    }
    if any_hollow(&panels) {
        legend.push((Sample::Hollow, "at least".to_owned()));
    }
    let sweep = has_label(&panels, REFERENCE);
    if sweep {
        legend.push((
            Sample::Reference(REFERENCE),
            "the sweep, shaded within a factor of 2".to_owned(),
        ));
    }
    let mut caption = "Every estimate of the critical batch size with its 95 % interval; a bar without a cap goes on beyond the plot."
        .to_owned();
    if rows().any(|r| r.value.is_some() && r.interval.is_none()) {
        caption.push_str(" A point without a bar has no interval; the table says why.");
    }
    Some(Figure {
        name: "critical-estimates".to_owned(),
        title: "The critical batch size by every method".to_owned(),
        subtitle: subtitle(critical, &plural(seeds(critical), "seed", "seeds")),
        caption,
        columns,
        panels,
        legend_title: String::new(),
        legend,
    })
}
