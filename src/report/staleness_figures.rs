//! What the page shows of late gradients: their histogram, a metric over simulated time, and a table.

use std::fmt::Write as _;

use crate::analysis::numbers::{count, decimals, plural, with_interval};
use crate::analysis::{
    ClockStaleness, GapAnalysis, HeadlineMetric, StalenessAnalysis, TimeCurve, TimePoint,
    geometric, rule_title,
};
use crate::config::Metric;

use super::axis::{Axis, range};
use super::figure::{Figure, Mark, Panel, Sample, Series};
use super::page::Table;
use super::palette::{self, Dash, Style};
use super::probe_tables::{Section, Titled};

/// Series of a figure.
const MOST: usize = 12;
/// Rows of a table that is not folded.
const OPEN_ROWS: usize = 16;
/// Markers are drawn where no line of a figure has more.
const MARKED: usize = 16;
/// The left plot ends where less than this share of the gradients of every clock is later still.
const TAIL: f64 = 0.01;
/// Dash of the geometric law.
const LAW: Dash = Some((5.0, 4.0));

/// A share by the geometric law, of so many replicas and this staleness.
type Law = fn(u64, usize) -> f64;

/// Whether a file of this name is a figure of this kind.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with("late-gradients-")
}

/// The figures, in the order of the page; none where no gradient was late.
pub(crate) fn figures(analysis: &GapAnalysis) -> Vec<Figure> {
    let Some(late) = &analysis.staleness else {
        return Vec::new();
    };
    let mut figures = vec![histogram(analysis, late)];
    figures.extend(over_time(analysis, late));
    figures
}

fn line(style: Style, marks: Vec<Mark>, pointed: bool) -> Series {
    Series {
        style,
        joined: true,
        pointed,
        marks,
        banded: false,
        dodge: 0.0,
    }
}

fn panel(heading: String, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
    Panel {
        heading,
        x,
        y,
        height: 250.0,
        series,
        references: Vec::new(),
        lane: Vec::new(),
        lane_name: "",
        sideways: false,
    }
}

fn samples(panels: &[Panel], styles: &[Style], labels: Vec<String>) -> Vec<(Sample, String)> {
    let pointed = panels.iter().flat_map(|p| &p.series).any(|s| s.pointed);
    let sample = |style: &Style| {
        if pointed {
            Sample::Series(*style)
        } else {
            Sample::Line(*style)
        }
    };
    styles.iter().map(sample).zip(labels).collect()
}

fn points(values: &[f64]) -> Vec<Mark> {
    let mark = |(k, &share): (usize, &f64)| Mark {
        x: k as f64,
        y: share * 100.0,
        span: None,
        hollow: false,
    };
    values.iter().enumerate().map(mark).collect()
}

/// Shares of gradients by staleness, and of those at least so late.
fn histogram(analysis: &GapAnalysis, late: &StalenessAnalysis) -> Figure {
    let clocks: Vec<&ClockStaleness> = late.clocks.iter().take(MOST).collect();
    let styles: Vec<Style> = (0..clocks.len()).map(palette::series).collect();
    let shares: Vec<Vec<f64>> = clocks.iter().map(|c| c.shares()).collect();
    let at_least: Vec<Vec<f64>> = clocks.iter().map(|c| c.at_least()).collect();
    let longest = at_least.iter().map(Vec::len).max().unwrap_or(1);
    let bulk = |shares: &Vec<f64>| shares.iter().take_while(|s| **s >= TAIL).count();
    let shown = at_least.iter().map(bulk).max().unwrap_or(1).max(1);
    let mut replicas: Vec<u64> = clocks
        .iter()
        .filter(|c| c.clock.is_geometric() && c.clock.replicas > 1)
        .map(|c| c.clock.replicas)
        .collect();
    replicas.sort_unstable();
    replicas.dedup();
    let law = |of: Law, last: usize| -> Vec<(Dash, Vec<(f64, f64)>)> {
        let of_replicas = |&p| (0..last).map(|k| (k as f64, of(p, k) * 100.0)).collect();
        replicas.iter().map(|p| (LAW, of_replicas(p))).collect()
    };
    let series = |values: &[Vec<f64>], last: usize| -> Vec<Series> {
        let marks = |values: &Vec<f64>| points(&values[..values.len().min(last)]);
        values
            .iter()
            .zip(&styles)
            .map(|(values, style)| line(*style, marks(values), longest <= MARKED))
            .collect()
    };
    let heights = |series: &[Series]| -> Vec<f64> {
        let marks = series.iter().flat_map(|s| &s.marks);
        marks.map(|m| m.y).collect()
    };
    let x = |name: &str, last: usize| {
        let ends = [0.0, last.max(2) as f64 - 1.0];
        Axis::linear(name, &ends, (0.0, f64::INFINITY))
    };

    let left = series(&shares, shown);
    let references = law(|p, k| geometric(p, k).0, shown);
    let mut shown_heights = heights(&left);
    shown_heights.extend(references.iter().flat_map(|r| &r.1).map(|p| p.1));
    shown_heights.push(0.0);
    let name = "share of gradients (%)";
    let y = Axis::linear(name, &shown_heights, (0.0, 100.0));
    let left = Panel {
        references,
        ..panel(name.to_owned(), x("staleness (updates)", shown), y, left)
    };
    let right = series(&at_least, longest);
    let name = "share of gradients at least so late (%, log scale)";
    let y = Axis::log10(name, &heights(&right));
    let right = Panel {
        references: law(|p, k| geometric(p, k).1, longest),
        ..panel(
            name.to_owned(),
            x("staleness of at least (updates)", longest),
            y,
            right,
        )
    };

    let panels = vec![left, right];
    let labels: Vec<String> = clocks.iter().map(|c| c.clock.words()).collect();
    let made_of: Vec<String> = clocks
        .iter()
        .zip(&labels)
        .map(|(clock, label)| {
            let trials = plural(clock.trials, "trial", "trials");
            format!(
                "{label}: {trials} of {}",
                plural(clock.rules, "rule", "rules")
            )
        })
        .collect();
    let mut caption = format!(
        "How late gradients were: on the left the share of each staleness, on the right, on a logarithmic scale, the share \
         of gradients at least so late. Replicas are equal and their times exponential, with a mean of 1 s, unless named. Who is \
         late follows from replicas, times and seed alone, so the rules that have these in common make one series, over all \
         seeds ({}).",
        made_of.join("; ")
    );
    if shown < longest {
        caption.push_str(
            " The left plot leaves out the latest gradients, less than 1 % of each series.",
        );
    }
    let mut legend = samples(&panels, &styles, labels);
    if !replicas.is_empty() {
        legend.push((
            Sample::Reference(LAW),
            "geometric law, exponential times".to_owned(),
        ));
        caption.push_str(
            " Dashed: the geometric law (1 \u{2212} 1/P)\u{1D4F}/P of P equal replicas with exponential times, on the right \
             (1 \u{2212} 1/P)\u{1D4F}.",
        );
    }
    left_out(&mut caption, late.clocks.len(), clocks.len(), "result.json");
    let seeds = late.points.iter().map(|p| p.mean.n).max().unwrap_or(1);
    let subtitle = if seeds > 1 {
        format!("{} together", plural(seeds, "seed", "seeds"))
    } else {
        "one seed".to_owned()
    };
    Figure {
        name: "late-gradients-staleness".to_owned(),
        title: "Staleness of gradients".to_owned(),
        subtitle: format!("{}: {subtitle}", analysis.study.name),
        caption,
        columns: 2,
        legend_title: String::new(),
        legend,
        panels,
    }
}

fn left_out(caption: &mut String, all: usize, shown: usize, file: &str) {
    if shown < all {
        let _ = write!(
            caption,
            " {} more are left out; their values are in {file}.",
            all - shown
        );
    }
}

/// The curves that are drawn: all, or the one of the best rule for each kind of updates and batch, and of
/// these the best.
fn chosen<'a>(analysis: &GapAnalysis, curves: &'a [TimeCurve]) -> Vec<&'a TimeCurve> {
    if curves.len() <= MOST {
        return curves.iter().collect();
    }
    let mut found: Vec<&TimeCurve> = Vec::new();
    for rule in analysis.ranked_rules() {
        for curve in curves.iter().filter(|c| c.rule == rule) {
            let is = |c: &&TimeCurve| (&c.update, c.batch) == (&curve.update, curve.batch);
            if !found.iter().any(is) {
                found.push(curve);
            }
        }
    }
    found.truncate(MOST);
    found.sort_by_key(|c| (c.rule, c.batch));
    found
}

/// The headline metric against simulated time, and against updates.
fn over_time(analysis: &GapAnalysis, late: &StalenessAnalysis) -> Option<Figure> {
    let metric = analysis.metric?;
    let drawn = chosen(analysis, &late.curves);
    if drawn.is_empty() {
        return None;
    }
    let batches: Vec<u64> = drawn.iter().map(|c| c.batch).collect();
    let several = batches.iter().any(|b| *b != batches[0]);
    let rules = drawn.iter().map(|c| c.rule);
    // Colours of rules stay those of the other figures where they tell all lines apart.
    let own = several || rules.clone().any(|r| r >= palette::SERIES.len());
    // Rules that come to the same lie on each other.
    let styles: Vec<Style> = if own {
        (0..drawn.len()).map(palette::line).collect()
    } else {
        rules.map(palette::line).collect()
    };
    let pointed = drawn.iter().all(|c| c.points.len() <= MARKED);
    let y = value_axis(metric, &drawn);
    let seconds = |p: &TimePoint| p.seconds;
    let updates = |p: &TimePoint| p.step as f64;
    let end = |of: fn(&TimePoint) -> f64| -> Vec<f64> {
        drawn
            .iter()
            .filter_map(|c| c.points.last())
            .map(of)
            .collect()
    };
    let log = [end(seconds), end(updates)]
        .iter()
        .filter_map(|ends| range(ends))
        .any(|(low, high)| low > 0.0 && high > 4.0 * low);
    let panels: Vec<Panel> = [
        (seconds as fn(&TimePoint) -> f64, "simulated seconds"),
        (updates, "updates"),
    ]
    .into_iter()
    .map(|(of, name)| {
        let mut series: Vec<Series> = drawn
            .iter()
            .zip(&styles)
            .map(|(curve, style)| {
                let marks = curve_marks(curve, metric, of, log);
                Series {
                    banded: true,
                    ..line(*style, marks, pointed)
                }
            })
            .collect();
        // Where two coincide, the dashed one shows on the solid one.
        series.sort_by_key(|s| s.style.dash.is_some());
        let xs: Vec<f64> = series.iter().flat_map(|s| &s.marks).map(|m| m.x).collect();
        let x = if log {
            Axis::log10(&format!("{name} (log scale)"), &xs)
        } else {
            Axis::linear(name, &xs, (0.0, f64::INFINITY))
        };
        panel(y.label.clone(), x, y.clone(), series)
    })
    .collect();
    let labels = drawn
        .iter()
        .map(|c| {
            let label = &analysis.rules[c.rule].label;
            if several {
                format!("{label}, batch {}", c.batch)
            } else {
                label.clone()
            }
        })
        .collect();
    let seeds = drawn.iter().map(|c| c.n).max().unwrap_or(1);
    let title = rule_title(analysis);
    Some(Figure {
        name: "late-gradients-over-time".to_owned(),
        title: format!("Asynchronous runs: {} over simulated time", metric.name()),
        subtitle: if seeds > 1 {
            format!(
                "{}: mean and range over {}",
                analysis.study.name,
                plural(seeds, "seed", "seeds")
            )
        } else {
            format!("{}: one seed", analysis.study.name)
        },
        caption: time_caption(late, drawn.len(), seeds),
        columns: 2,
        legend_title: if title.is_empty() {
            String::new()
        } else {
            format!("Rule: {title}")
        },
        legend: samples(&panels, &styles, labels),
        panels,
    })
}

fn time_caption(late: &StalenessAnalysis, drawn: usize, seeds: usize) -> String {
    let mut caption = "The asynchronous runs against the seconds of the simulated clock, in which a gradient takes as long as \
        the config says whatever the batch, and against updates."
        .to_owned();
    if seeds > 1 {
        caption.push_str(" Means over seeds, of the metric and of the seconds; the band runs from the lowest seed to the highest.");
    }
    if late.interpolated {
        caption.push_str(
            " staleness.csv has not every update: the time of an evaluation between two rows is on the straight line between \
             them.",
        );
    }
    if drawn < late.curves.len() {
        caption.push_str(
            " Of the rules with the same updates and batch the best is shown; the others are in evaluations.csv and staleness.csv.",
        );
    }
    caption
}

fn factor(metric: HeadlineMetric) -> f64 {
    if metric.metric == Metric::Accuracy {
        100.0
    } else {
        1.0
    }
}

fn value_axis(metric: HeadlineMetric, drawn: &[&TimeCurve]) -> Axis {
    // The first rise of the accuracy would squeeze together what comes after.
    let skipped = |c: &TimeCurve| match metric.metric {
        Metric::Accuracy => c.points.len() / 5,
        Metric::Loss => 0,
    };
    let factor = factor(metric);
    let values: Vec<f64> = drawn
        .iter()
        .flat_map(|c| &c.points[skipped(c)..])
        .flat_map(|p| [p.low * factor, p.high * factor])
        .collect();
    let log = range(&values).is_some_and(|(low, high)| low > 0.0 && high > 8.0 * low);
    match metric.metric {
        Metric::Accuracy => Axis::linear(&format!("{} (%)", metric.name()), &values, (0.0, 100.0)),
        Metric::Loss if log => Axis::log10(
            &format!("{} (mean per example, log scale)", metric.name()),
            &values,
        ),
        Metric::Loss => Axis::linear(
            &format!("{} (mean per example)", metric.name()),
            &values,
            (f64::NEG_INFINITY, f64::INFINITY),
        ),
    }
}

fn curve_marks(
    curve: &TimeCurve,
    metric: HeadlineMetric,
    of: fn(&TimePoint) -> f64,
    log: bool,
) -> Vec<Mark> {
    let factor = factor(metric);
    let marks = curve.points.iter().map(|p| Mark {
        x: of(p),
        y: p.mean * factor,
        span: (curve.n > 1).then_some((p.low * factor, p.high * factor)),
        hollow: false,
    });
    // A logarithmic axis has no place for the start.
    marks.filter(|m| !log || m.x > 0.0).collect()
}

/// The section of the page; `None` where no gradient was late.
pub(super) fn section(analysis: &GapAnalysis) -> Option<Section> {
    let late = analysis.staleness.as_ref()?;
    let table = table(analysis, late);
    Some(Section {
        title: "Late gradients",
        sentences: late.sentences(analysis.outcomes().finished()),
        tables: vec![Titled {
            title: "Staleness, time and replicas of every asynchronous point: mean ± half of the 95 % interval over seeds".to_owned(),
            folded: table.rows.len() > OPEN_ROWS,
            table,
            note: "Gradients of a replica are means over seeds, of the replica that made most and of the one that made fewest. \
                Seconds are those of the simulated clock."
                .to_owned(),
        }],
        notes: late.notes.clone(),
    })
}

fn table(analysis: &GapAnalysis, late: &StalenessAnalysis) -> Table {
    let head = [
        "rule",
        "global batch",
        "replicas",
        "mean staleness (updates)",
        "largest",
        "simulated seconds",
        "gradients of the fastest replica",
        "of the slowest",
        "n",
    ];
    let rows = late.points.iter().map(|point| {
        let gradients =
            |n: Option<f64>| n.map_or_else(|| "\u{2013}".to_owned(), |n| count(n.round() as u64));
        vec![
            analysis.rules[point.rule].label.clone(),
            point.batch.to_string(),
            late.clocks[point.clock].clock.replicas.to_string(),
            with_interval(&point.mean, 1.0, decimals(&point.mean).min(3)),
            count(point.largest),
            with_interval(&point.seconds, 1.0, decimals(&point.seconds).min(2)),
            gradients(point.by_replica.map(|b| b.0)),
            gradients(point.by_replica.map(|b| b.1)),
            point.mean.n.to_string(),
        ]
    });
    Table {
        rows: rows.collect(),
        head: head.map(str::to_owned).into(),
        numbers_from: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{generalization_gap, late_study};

    fn sample() -> (tempfile::TempDir, GapAnalysis) {
        let dir = tempfile::tempdir().expect("a folder");
        late_study(dir.path());
        let analysis = generalization_gap(dir.path()).expect("a sound study");
        (dir, analysis)
    }

    #[test]
    fn a_study_with_asynchronous_trials_has_a_section_with_two_figures() {
        let (dir, analysis) = sample();
        let files = super::super::write(dir.path(), &analysis).expect("a report");
        let page = std::fs::read_to_string(files.html).expect("a page");
        for text in [
            "<h2>Late gradients</h2>",
            "0.90 for P = 2",
            "late-gradients-staleness.svg",
            "late-gradients-over-time.png",
            "geometric law",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let names = files.figures.iter().filter_map(|f| f.file_stem()?.to_str());
        assert_eq!(names.filter(|n| is_name(n)).count(), 4);
    }

    #[test]
    fn a_study_without_them_has_no_section_and_loses_figures_of_before() {
        let (dir, mut analysis) = sample();
        super::super::write(dir.path(), &analysis).expect("a report");
        analysis.staleness = None;
        let files = super::super::write(dir.path(), &analysis).expect("a report");
        let page = std::fs::read_to_string(files.html).expect("a page");
        assert!(!page.contains("Late gradients"));
        let left = std::fs::read_dir(dir.path().join("figures")).expect("a folder");
        let names = left.filter_map(|f| f.ok()?.file_name().into_string().ok());
        assert_eq!(names.filter(|n| is_name(n)).count(), 0);
    }

    #[test]
    fn more_series_than_can_be_told_apart_are_left_out_and_counted() {
        let (_dir, mut analysis) = sample();
        let late = analysis.staleness.as_mut().expect("late gradients");
        let (clock, curve) = (late.clocks[0].clone(), late.curves[0].clone());
        late.clocks = vec![clock; MOST + 3];
        // Of the same updates and batch the best rule is shown, here the only one.
        late.curves = vec![curve; MOST + 1];
        let figures = figures(&analysis);
        let [histogram, over_time] = figures.as_slice() else {
            panic!("{} figures", figures.len());
        };
        assert!(histogram.panels.iter().all(|p| p.series.len() == MOST));
        assert!(
            histogram.caption.contains("3 more are left out"),
            "{}",
            histogram.caption
        );
        assert!(over_time.panels.iter().all(|p| p.series.len() == 1));
        assert!(
            over_time.caption.contains("the best is shown"),
            "{}",
            over_time.caption
        );
    }
}
