//! The figures of the generalization-gap report.

use crate::analysis::numbers::plural;
use crate::analysis::{Curve, GapAnalysis, Measure, Point, PointCourses, rule_title, split_name};
use crate::config::{Metric, Split};

use super::axis::Axis;
use super::figure::{Figure, Lane, Mark, Panel, Sample, Series};
use super::palette::{self, Dash, INK, MUTED, Marker, Style};

/// Rules whose training curves are drawn.
const CURVE_RULES: usize = 8;
/// Batches a figure of training curves shows at most.
const CURVE_BATCHES: usize = 9;
/// Rows of crosses; more rules than that share one row.
const LANES: usize = 6;
/// Dash of reference lines.
const REFERENCE: Dash = Some((5.0, 4.0));

/// All figures that the tables allow, in the order of the page.
pub(crate) fn figures(analysis: &GapAnalysis) -> Vec<Figure> {
    let mut figures = Vec::new();
    if analysis.batches.len() > 1 {
        figures.extend(headline(analysis));
        figures.extend(gap(analysis));
    } else {
        figures.extend(by_rule(analysis));
    }
    if analysis.batches.len() > 1 {
        let rules = curve_rules(analysis, CURVE_RULES);
        for (i, &rule) in rules.iter().enumerate() {
            figures.extend(curves(analysis, rule, i));
        }
        if rules.len() < analysis.rules.len()
            && let Some(last) = figures.last_mut()
        {
            last.caption
                .push_str(" The curves of the other rules are in evaluations.csv.");
        }
        figures.extend(cost(analysis));
    } else {
        figures.extend(curves_by_rule(analysis));
    }
    figures
}

/// Whether a file of this name is a figure of this report.
pub(crate) fn is_name(name: &str) -> bool {
    name.ends_with("-by-batch") || name.ends_with("-by-rule") || name.starts_with("training-curves")
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// A measure as it is drawn: name with unit, factor, limits.
struct Quantity {
    measure: Measure,
    label: String,
    factor: f64,
    limits: (f64, f64),
    log: bool,
}

const FREE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

fn quantity(analysis: &GapAnalysis, measure: Measure) -> Quantity {
    let held = analysis.held_out.map_or("held-out", split_name);
    let (label, factor, limits, log) = match measure {
        Measure::HeldOutAccuracy => (format!("{held} accuracy (%)"), 100.0, (0.0, 100.0), false),
        Measure::TrainAccuracy => (
            "training accuracy (%)".to_owned(),
            100.0,
            (0.0, 100.0),
            false,
        ),
        Measure::HeldOutLoss => (format!("{held} loss (mean per example)"), 1.0, FREE, false),
        Measure::TrainLoss => (
            "training loss (mean per example)".to_owned(),
            1.0,
            FREE,
            false,
        ),
        Measure::AccuracyGap => (
            format!("training − {held} accuracy (points)"),
            100.0,
            FREE,
            false,
        ),
        Measure::LossGap => (
            format!("{held} − training loss (mean per example)"),
            1.0,
            FREE,
            false,
        ),
        Measure::Steps => ("updates made (log scale)".to_owned(), 1.0, FREE, true),
        Measure::Examples => ("examples processed (log scale)".to_owned(), 1.0, FREE, true),
        Measure::StepsToTarget => (
            "updates to the target (log scale)".to_owned(),
            1.0,
            FREE,
            true,
        ),
        Measure::ExamplesToTarget => (
            "examples to the target (log scale)".to_owned(),
            1.0,
            FREE,
            true,
        ),
    };
    Quantity {
        measure,
        label,
        factor,
        limits,
        log,
    }
}

fn mark(point: &Point, x: f64, quantity: &Quantity) -> Option<Mark> {
    let estimate = point.estimate(quantity.measure)?;
    let span = estimate.interval().map(|i| {
        let clamp = |v: f64| (v * quantity.factor).clamp(quantity.limits.0, quantity.limits.1);
        (clamp(i.low), clamp(i.high))
    });
    Some(Mark {
        x,
        y: estimate.mean * quantity.factor,
        span,
        hollow: estimate.n < point.outcomes.planned,
    })
}

/// Values that set the range of a vertical axis: all means, and of every interval as much as does
/// not squeeze the means into less than half of the axis.
fn extent(series: &[Series]) -> Vec<f64> {
    let marks: Vec<&Mark> = series.iter().flat_map(|s| &s.marks).collect();
    let means: Vec<f64> = marks.iter().map(|m| m.y).collect();
    let Some((low, high)) = super::axis::range(&means) else {
        return means;
    };
    let spread = high - low;
    // Half the intervals show whole, however flat the means are.
    let mut widths: Vec<f64> = marks
        .iter()
        .filter_map(|m| m.span.map(|s| (s.1 - s.0) / 2.0))
        .collect();
    widths.sort_by(f64::total_cmp);
    let typical = widths.get(widths.len() * 3 / 4).copied().unwrap_or(0.0);
    let room = (spread * 0.5).max(typical * 1.05);
    let mut values = means.clone();
    for (a, b) in marks.iter().filter_map(|m| m.span) {
        values.push(a.max(low - room));
        values.push(b.min(high + room));
    }
    values
}

/// One series a rule over the batches.
fn by_batch(analysis: &GapAnalysis, quantity: &Quantity) -> Vec<Series> {
    let rules = analysis.rules.len();
    // All series together take at most 14 units around a batch.
    let step = (14.0 / rules as f64).min(4.0);
    (0..rules)
        .map(|rule| Series {
            style: palette::series(rule),
            marks: analysis
                .points_of(rule)
                .filter_map(|p| mark(p, p.batch as f64, quantity))
                .filter(|m| !quantity.log || m.y > 0.0)
                .collect(),
            joined: true,
            pointed: true,
            banded: false,
            dodge: (rule as f64 - (rules - 1) as f64 / 2.0) * step,
        })
        .collect()
}

fn batch_panel(analysis: &GapAnalysis, quantity: &Quantity, height: f64) -> Panel {
    let series = by_batch(analysis, quantity);
    let values = extent(&series);
    let y = if quantity.log {
        Axis::log10(&quantity.label, &values)
    } else {
        Axis::linear(&quantity.label, &values, quantity.limits)
    };
    Panel {
        heading: quantity.label.clone(),
        x: Axis::batches(&analysis.batches),
        y,
        height,
        series,
        references: Vec::new(),
        lane: lanes(analysis, |p| p.outcomes.diverged),
        lane_name: "diverged",
        sideways: false,
    }
}

/// Rules with trials that `count` counts, a row each, or all in one row if there are many.
fn lanes(analysis: &GapAnalysis, count: impl Fn(&Point) -> usize) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for rule in 0..analysis.rules.len() {
        let marks: Vec<(f64, String)> = analysis
            .points_of(rule)
            .filter(|p| count(p) > 0)
            .map(|p| {
                (
                    p.batch as f64,
                    format!("{}/{}", count(p), p.outcomes.planned),
                )
            })
            .collect();
        if !marks.is_empty() {
            let colour = palette::series(rule).colour;
            lanes.push(Lane { colour, marks });
        }
    }
    if lanes.len() <= LANES {
        return lanes;
    }
    let all = analysis.batches.iter().filter_map(|&batch| {
        let points = || analysis.points.iter().filter(|p| p.batch == batch);
        let counted: usize = points().map(&count).sum();
        let planned: usize = points().map(|p| p.outcomes.planned).sum();
        (counted > 0).then(|| (batch as f64, format!("{counted}/{planned}")))
    });
    vec![Lane {
        colour: MUTED,
        marks: all.collect(),
    }]
}

fn rule_legend(analysis: &GapAnalysis, panels: &[Panel]) -> Vec<(Sample, String)> {
    let mut legend: Vec<(Sample, String)> = analysis
        .rules
        .iter()
        .enumerate()
        .map(|(i, rule)| (Sample::Series(palette::series(i)), rule.label.clone()))
        .collect();
    if panels
        .iter()
        .flat_map(|p| &p.series)
        .flat_map(|s| &s.marks)
        .any(|m| m.hollow)
    {
        legend.push((Sample::Hollow, "not all seeds finished".to_owned()));
    }
    if panels.iter().any(|p| !p.lane.is_empty()) {
        legend.push((Sample::Cross, "seeds diverged (of all)".to_owned()));
    }
    legend
}

fn legend_title(analysis: &GapAnalysis) -> String {
    let title = rule_title(analysis);
    if title.is_empty() {
        String::new()
    } else {
        format!("Rule: {title}")
    }
}

fn subtitle(analysis: &GapAnalysis) -> String {
    let seeds = analysis
        .points
        .iter()
        .map(|p| p.outcomes.planned)
        .max()
        .unwrap_or(0);
    let how = if analysis.points.iter().any(|p| p.outcomes.finished() > 1) {
        format!(
            "mean and 95 % interval over {}",
            plural(seeds, "seed", "seeds")
        )
    } else {
        "one trial a point, so no interval".to_owned()
    };
    format!("{}: {how}", analysis.study.name)
}

fn headline(analysis: &GapAnalysis) -> Option<Figure> {
    let metric = analysis.metric?;
    let quantity = quantity(analysis, metric.measure());
    let whole = batch_panel(analysis, &quantity, 330.0);
    let mut panels = vec![whole];
    let mut caption = format!(
        "{} against the global batch. Bars are 95 % intervals over seeds.",
        capitalized(&metric.name())
    );
    if analysis.rules.len() > 1 {
        caption
            .push_str(" Points of different rules are moved sideways so that none hides another.");
    }
    if let Some(axis) = close_up(&panels[0], &quantity) {
        let mut near = panels[0].clone();
        near.heading = format!("{}, close-up", near.heading);
        near.y = axis;
        panels.push(near);
        caption.push_str(" On the right the same points, the best part enlarged.");
    }
    Some(Figure {
        name: format!("{}-by-batch", metric.name().replace(' ', "-")),
        title: format!("{} against global batch", capitalized(&metric.name())),
        subtitle: subtitle(analysis),
        caption,
        columns: panels.len(),
        legend_title: legend_title(analysis),
        legend: rule_legend(analysis, &panels),
        panels,
    })
}

/// A narrower vertical axis where a few bad points squeeze most of the others together.
fn close_up(panel: &Panel, quantity: &Quantity) -> Option<Axis> {
    let sign = if quantity.factor > 1.0 { 1.0 } else { -1.0 };
    // Larger is better from here on.
    let mut values: Vec<f64> = panel
        .series
        .iter()
        .flat_map(|s| &s.marks)
        .map(|m| m.y * sign)
        .collect();
    values.sort_by(f64::total_cmp);
    let (worst, best) = (*values.first()?, *values.last()?);
    let third = values[values.len() / 3];
    if values.len() < 6 || best - worst < 4.0 * (best - third) || best <= third {
        return None;
    }
    let shown: Vec<Series> = panel
        .series
        .iter()
        .map(|s| {
            let marks = s
                .marks
                .iter()
                .filter(|m| m.y * sign >= third)
                .copied()
                .collect();
            Series { marks, ..s.clone() }
        })
        .collect();
    Some(Axis::linear(
        &quantity.label,
        &extent(&shown),
        quantity.limits,
    ))
}

fn gap(analysis: &GapAnalysis) -> Option<Figure> {
    let held = split_name(analysis.held_out?);
    let measures = [Measure::AccuracyGap, Measure::LossGap];
    let panels: Vec<Panel> = measures
        .into_iter()
        .filter(|&m| analysis.points.iter().any(|p| p.estimate(m).is_some()))
        .map(|m| {
            let quantity = quantity(analysis, m);
            let mut panel = batch_panel(analysis, &quantity, 280.0);
            // No gap is the natural reference, where it costs at most half of the axis.
            let mut values = extent(&panel.series);
            let (low, high) = super::axis::range(&values).unwrap_or_default();
            if low.max(-high) < high - low {
                values.push(0.0);
                panel.y = Axis::linear(&quantity.label, &values, quantity.limits);
                let ends = [panel.x.low, panel.x.high].map(|x| (x, 0.0));
                panel.references.push((REFERENCE, ends.to_vec()));
            }
            panel
        })
        .collect();
    if panels.is_empty() {
        return None;
    }
    let mut legend = rule_legend(analysis, &panels);
    if panels.iter().any(|p| !p.references.is_empty()) {
        legend.push((Sample::Reference(REFERENCE), "no gap".to_owned()));
    }
    Some(Figure {
        name: "generalization-gap-by-batch".to_owned(),
        title: format!("Gap between training and {held} data against global batch"),
        subtitle: subtitle(analysis),
        caption: format!(
            "How much better the model does on its training data than on {held} data, at the end of \
             training. Bars are 95 % intervals over seeds."
        ),
        columns: panels.len(),
        legend_title: legend_title(analysis),
        legend,
        panels,
    })
}

/// Without an axis of batches: one row a rule.
fn by_rule(analysis: &GapAnalysis) -> Option<Figure> {
    let metric = analysis.metric?;
    let names: Vec<String> = (0..analysis.rules.len())
        .map(|rule| {
            let (diverged, planned) = analysis.points_of(rule).fold((0, 0), |(d, p), point| {
                (d + point.outcomes.diverged, p + point.outcomes.planned)
            });
            let label = &analysis.rules[rule].label;
            if diverged > 0 {
                format!("{label} ({diverged}/{planned} diverged)")
            } else {
                label.clone()
            }
        })
        .collect();
    let gap = match metric.metric {
        Metric::Accuracy => Measure::AccuracyGap,
        Metric::Loss => Measure::LossGap,
    };
    let panels: Vec<Panel> = [metric.measure(), gap]
        .into_iter()
        .filter(|&m| analysis.points.iter().any(|p| p.estimate(m).is_some()))
        .map(|measure| {
            let quantity = quantity(analysis, measure);
            let series: Vec<Series> = (0..analysis.rules.len())
                .map(|rule| Series {
                    style: palette::series(rule),
                    marks: analysis
                        .points_of(rule)
                        .filter_map(|p| mark(p, 0.0, &quantity))
                        .collect(),
                    joined: false,
                    pointed: true,
                    banded: false,
                    dodge: 0.0,
                })
                .collect();
            let axis = Axis::linear(&quantity.label, &extent(&series), quantity.limits);
            let turned = series
                .into_iter()
                .enumerate()
                .map(|(rule, mut s)| {
                    for m in &mut s.marks {
                        (m.x, m.y) = (m.y, rule as f64);
                    }
                    s
                })
                .collect();
            Panel {
                heading: String::new(),
                x: axis,
                y: Axis::rows(&names),
                height: (names.len() as f64 * 22.0).max(60.0),
                series: turned,
                references: Vec::new(),
                lane: Vec::new(),
                lane_name: "",
                sideways: true,
            }
        })
        .collect();
    let batch = analysis
        .batches
        .first()
        .map_or_else(String::new, |b| format!(" at batch {b}"));
    let hollow = panels
        .iter()
        .flat_map(|p| &p.series)
        .flat_map(|s| &s.marks)
        .any(|m| m.hollow);
    (!panels.is_empty()).then(|| Figure {
        name: format!("{}-by-rule", metric.name().replace(' ', "-")),
        title: format!("{}{batch}", capitalized(&metric.name())),
        subtitle: subtitle(analysis),
        caption: "One row a rule. Bars are 95 % intervals over seeds.".to_owned(),
        columns: 1,
        legend_title: String::new(),
        legend: if hollow {
            vec![(Sample::Hollow, "not all seeds finished".to_owned())]
        } else {
            Vec::new()
        },
        panels,
    })
}

/// The rules whose curves are drawn: those with the best headline mean at the largest batch they
/// finished, in the order of the plan.
fn curve_rules(analysis: &GapAnalysis, most: usize) -> Vec<usize> {
    let has_curve = |rule: &usize| analysis.curves.iter().any(|c| c.rule == *rule);
    let ranked = analysis.ranked_rules();
    let mut rules: Vec<usize> = ranked.into_iter().filter(has_curve).take(most).collect();
    rules.sort_unstable();
    rules
}

/// At most `most` of the batches, evenly spread, the smallest and the largest among them.
fn spread(batches: &[u64], most: usize) -> Vec<u64> {
    if batches.len() <= most {
        return batches.to_vec();
    }
    (0..most)
        .map(|i| batches[(i * (batches.len() - 1) + (most - 1) / 2) / (most - 1)])
        .collect()
}

/// A point whose curves are drawn, how, and under which name.
struct Drawn {
    rule: usize,
    batch: u64,
    style: Style,
    label: String,
}

/// Training curves of one rule, a line a batch.
fn curves(analysis: &GapAnalysis, rule: usize, number: usize) -> Option<Figure> {
    let mut batches: Vec<u64> = analysis
        .curves
        .iter()
        .filter(|c| c.rule == rule)
        .map(|c| c.batch)
        .collect();
    batches.dedup();
    let shown = spread(&batches, CURVE_BATCHES);
    let drawn: Vec<Drawn> = shown
        .iter()
        .map(|&batch| {
            let i = analysis
                .batches
                .iter()
                .position(|&b| b == batch)
                .unwrap_or(0);
            let style = palette::ordered(i, analysis.batches.len());
            Drawn {
                rule,
                batch,
                style,
                label: batch.to_string(),
            }
        })
        .collect();
    let label = &analysis.rules[rule].label;
    let mut figure = curve_figure(analysis, &drawn)?;
    figure.name = format!("training-curves-{}-{}", number + 1, slug(label));
    figure.title = format!("Training curves: {label}");
    let mut courses = analysis.courses.iter().filter(|c| c.rule == rule);
    let title = if courses.any(PointCourses::moves_batch) {
        "Global batch at the start"
    } else {
        "Global batch"
    };
    title.clone_into(&mut figure.legend_title);
    figure.caption = format!(
        "Training curves of the rule \u{201C}{label}\u{201D}{}",
        figure.caption
    );
    if shown.len() < batches.len() {
        figure
            .caption
            .push_str(" Not all batches are shown; all are in evaluations.csv.");
    }
    Some(figure)
}

/// Training curves at the one batch of a study, a line a rule.
fn curves_by_rule(analysis: &GapAnalysis) -> Option<Figure> {
    let batch = *analysis.batches.first()?;
    let rules = curve_rules(analysis, palette::SERIES.len());
    let drawn: Vec<Drawn> = rules
        .iter()
        .map(|&rule| Drawn {
            rule,
            batch,
            style: palette::series(rule),
            label: analysis.rules[rule].label.clone(),
        })
        .collect();
    let mut figure = curve_figure(analysis, &drawn)?;
    "training-curves".clone_into(&mut figure.name);
    figure.title = format!("Training curves at batch {batch}");
    figure.legend_title = legend_title(analysis);
    figure.caption = format!("Training curves{}", figure.caption);
    if rules.len() < analysis.rules.len() {
        figure
            .caption
            .push_str(" The best rules are shown; all are in evaluations.csv.");
    }
    Some(figure)
}

/// The headline metric and the training loss against epochs and against updates.
fn curve_figure(analysis: &GapAnalysis, drawn: &[Drawn]) -> Option<Figure> {
    let metric = analysis.metric?;
    let mut kinds = vec![(metric.split, metric.metric)];
    if kinds[0] != (Split::Train, Metric::Loss) {
        kinds.push((Split::Train, Metric::Loss));
    }
    let mut panels = Vec::new();
    let mut seeds = 1;
    for (split, what) in kinds {
        let chosen: Vec<(&Curve, Style)> = drawn
            .iter()
            .filter_map(|d| {
                let is = |c: &&Curve| {
                    (c.rule, c.batch) == (d.rule, d.batch) && (c.split, c.metric) == (split, what)
                };
                Some((analysis.curves.iter().find(is)?, d.style))
            })
            .collect();
        seeds = chosen.iter().map(|c| c.0.n).fold(seeds, usize::max);
        let factor = if what == Metric::Accuracy { 100.0 } else { 1.0 };
        // The first rise of the accuracy would squeeze together what comes after.
        let skipped = |c: &Curve| match what {
            Metric::Accuracy => c.points.len() / 5,
            Metric::Loss => 0,
        };
        let values: Vec<f64> = chosen
            .iter()
            .flat_map(|c| &c.0.points[skipped(c.0)..])
            .flat_map(|p| [p.low * factor, p.high * factor])
            .collect();
        let Some((low, high)) = super::axis::range(&values) else {
            continue;
        };
        let (name, limits) = match what {
            Metric::Accuracy => (format!("{} accuracy (%)", split_name(split)), (0.0, 100.0)),
            Metric::Loss => (
                format!("{} loss (mean per example)", split_name(split)),
                FREE,
            ),
        };
        let log = what == Metric::Loss && low > 0.0 && high > 8.0 * low;
        let (heading, y) = if log {
            let heading = name.replace(')', ", log scale)");
            (heading.clone(), Axis::log10(&heading, &values))
        } else {
            (name.clone(), Axis::linear(&name, &values, limits))
        };
        for against_steps in [false, true] {
            let series: Vec<Series> = chosen
                .iter()
                .map(|(curve, style)| curve_series(curve, *style, factor, against_steps))
                .collect();
            let xs: Vec<f64> = series.iter().flat_map(|s| &s.marks).map(|m| m.x).collect();
            let x = if against_steps {
                Axis::log10("updates (log scale)", &xs)
            } else {
                Axis::linear("epochs", &xs, (0.0, f64::INFINITY))
            };
            panels.push(Panel {
                heading: heading.clone(),
                x,
                y: y.clone(),
                height: 210.0,
                series,
                references: Vec::new(),
                lane: Vec::new(),
                lane_name: "",
                sideways: false,
            });
        }
    }
    if panels.is_empty() {
        return None;
    }
    let pointed = panels.iter().flat_map(|p| &p.series).any(|s| s.pointed);
    let (subtitle, caption) = if seeds > 1 {
        let over = plural(seeds, "seed", "seeds");
        (
            format!("{}: mean and range over {over}", analysis.study.name),
            ": the mean over seeds; the band runs from the lowest seed to the highest. A curve ends \
             where the first of its seeds ends.",
        )
    } else {
        (format!("{}: one seed", analysis.study.name), ".")
    };
    Some(Figure {
        name: String::new(),
        title: String::new(),
        subtitle,
        caption: caption.to_owned(),
        columns: 2,
        panels,
        legend_title: String::new(),
        legend: drawn
            .iter()
            .map(|d| {
                let sample = if pointed {
                    Sample::Series(d.style)
                } else {
                    Sample::Line(d.style)
                };
                (sample, d.label.clone())
            })
            .collect(),
    })
}

fn curve_series(curve: &Curve, style: Style, factor: f64, against_steps: bool) -> Series {
    let marks: Vec<Mark> = curve
        .points
        .iter()
        .map(|p| Mark {
            x: if against_steps {
                p.step as f64
            } else {
                p.epoch
            },
            y: p.mean * factor,
            span: (curve.n > 1).then_some((p.low * factor, p.high * factor)),
            hollow: false,
        })
        // A logarithmic axis has no place for the start.
        .filter(|m| !against_steps || m.x > 0.0)
        .collect();
    Series {
        style,
        pointed: marks.len() <= 12,
        marks,
        joined: true,
        banded: true,
        dodge: 0.0,
    }
}

pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars().take(40) {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

fn cost(analysis: &GapAnalysis) -> Option<Figure> {
    let (steps, examples) = if analysis.has_target {
        (Measure::StepsToTarget, Measure::ExamplesToTarget)
    } else {
        (Measure::Steps, Measure::Examples)
    };
    let has = |m| {
        analysis
            .points
            .iter()
            .any(|p: &Point| p.estimate(m).is_some())
    };
    if !has(steps) || !has(examples) {
        return None;
    }
    let mut panels: Vec<Panel> = [steps, examples]
        .into_iter()
        .map(|m| batch_panel(analysis, &quantity(analysis, m), 260.0))
        .collect();
    let mut legend = rule_legend(analysis, &panels);
    let missed = |p: &Point| {
        let reached = |&&i: &&usize| analysis.trials[i].row.target_reached == Some(true);
        p.outcomes.finished() - p.trials.iter().filter(reached).count()
    };
    legend.retain(|(sample, _)| !matches!(sample, Sample::Cross | Sample::Hollow));
    for panel in &mut panels {
        panel.lane.clear();
        if analysis.has_target {
            panel.lane = lanes(analysis, missed);
            panel.lane_name = "not reached";
        }
    }
    if panels.iter().any(|p| !p.lane.is_empty()) {
        legend.push((Sample::Hollow, "not all seeds reached it".to_owned()));
        legend.push((Sample::Cross, "seeds that did not (of all)".to_owned()));
    } else if panels
        .iter()
        .flat_map(|p| &p.series)
        .flat_map(|s| &s.marks)
        .any(|m| m.hollow)
    {
        legend.push((Sample::Hollow, "not all seeds finished".to_owned()));
    }
    if analysis.rules.len() > 1 && panels.iter().all(all_alike) {
        // Where every rule costs the same, one line says so.
        let style = Style {
            colour: INK,
            marker: Marker::Circle,
            dash: None,
            faint: false,
        };
        for panel in &mut panels {
            panel.series = vec![merged(&panel.series, style)];
        }
        legend = vec![(Sample::Series(style), "every rule".to_owned())];
    }
    // Perfect scaling: B times as large a batch needs B times fewer updates.
    let first = panels[0]
        .series
        .iter()
        .flat_map(|s| &s.marks)
        .min_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)))
        .map(|m| (m.x, m.y));
    if let Some((x, y)) = first {
        let end = panels[0].x.high;
        let line = vec![(x, y), (end, y * x / end)];
        panels[0].references.push((REFERENCE, line));
        panels[1]
            .references
            .push((REFERENCE, vec![(x, y * x), (end, y * x)]));
        legend.push((
            Sample::Reference(REFERENCE),
            "perfect scaling (updates fall as 1/batch)".into(),
        ));
    }
    let (title, caption) = if analysis.has_target {
        (
            "Updates and examples to the target against global batch",
            "Means over the seeds that reached the target, with 95 % intervals. Along the dashed \
             line twice the batch needs half the updates and no more examples.",
        )
    } else {
        (
            "Updates and examples against global batch",
            "What each point cost. Along the dashed line twice the batch makes half the updates on \
             the same number of examples.",
        )
    };
    Some(Figure {
        name: "cost-by-batch".to_owned(),
        title: title.to_owned(),
        subtitle: subtitle(analysis),
        caption: caption.to_owned(),
        columns: 2,
        legend_title: legend_title(analysis),
        legend,
        panels,
    })
}

/// Whether all series have the same value wherever they share a place.
fn all_alike(panel: &Panel) -> bool {
    let marks: Vec<&Mark> = panel.series.iter().flat_map(|s| &s.marks).collect();
    marks
        .iter()
        .all(|a| marks.iter().all(|b| a.x != b.x || a.y == b.y))
}

/// One series through the places of all.
fn merged(series: &[Series], style: Style) -> Series {
    let mut marks: Vec<Mark> = series.iter().flat_map(|s| &s.marks).copied().collect();
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    marks.dedup_by(|a, b| a.x == b.x);
    for mark in &mut marks {
        mark.hollow = false;
    }
    Series {
        style,
        marks,
        joined: true,
        pointed: true,
        banded: false,
        dodge: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_of_batches_keeps_both_ends() {
        let batches: Vec<u64> = (5..14).map(|k| 1 << k).collect();
        let chosen = spread(&batches, 6);
        assert_eq!(chosen.len(), 6);
        assert_eq!((chosen[0], chosen[5]), (32, 8192));
        assert!(chosen.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(spread(&[1, 2], 6), [1, 2]);
    }

    #[test]
    fn file_names_hold_no_odd_characters() {
        assert_eq!(slug("linear, warmup 5 epochs"), "linear-warmup-5-epochs");
        assert_eq!(slug("lr/0.1 \u{3b1}"), "lr-0-1");
    }
}
