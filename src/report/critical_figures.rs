//! Figures of the critical batch size: updates to a target, their price in examples, and the others
//! of [`critical_search`](super::critical_search) and [`critical_estimates`](super::critical_estimates).

use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::analysis::critical_batch::{BatchPoint, Case, CriticalBatch, Fit, Mean};
use crate::analysis::numbers::{count, list};
use crate::math::steps_fit::Bound;

use super::axis::{Axis, range};
use super::canvas::Align;
use super::critical_chart::{
    Chart, DOTS, Note, PUBLISHED, band, batch_axis, fitted_style, grid, has_label, lanes, layout,
    line, mean_mark, measured, points, single, span,
};
use super::critical_estimates::{branched, estimates, noise};
use super::critical_search::{best_rates, rates_searched};
use super::critical_words::{
    GEOMETRIC, all_batches, b_crit_name, bracketed, fit_of, fit_trouble, means, missed,
    most_moments, number, over_seeds, points_words, published, published_legend, seeds,
    seeds_legend, subtitle, to_target,
};
use super::figure::{Figure, Mark, Panel, Sample, Series};
use super::palette::{self, INK, MUTED, Marker, Style};
use super::probe_figures::{FREE, REFERENCE, panel, plain, value_axis};

/// How far an asymptote may stretch an axis.
const REACH: f64 = 6.0;

/// All figures that the study allows, in the order of the page.
pub(crate) fn figures(critical: &CriticalBatch) -> Vec<Figure<Chart>> {
    let mut figures = Vec::new();
    figures.extend(steps(critical));
    figures.extend(pareto(critical));
    figures.extend(time_and_compute(critical));
    figures.extend(best_rates(critical));
    figures.extend(rates_searched(critical));
    figures.extend(noise(critical));
    figures.extend(branched(critical));
    figures.extend(estimates(critical));
    figures
}

/// Whether a file of this name is a figure of this kind.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with("critical-")
}

/// Every colour of these figures that a dark page has to turn.
pub(super) fn colours(critical: &CriticalBatch) -> Vec<RGBColor> {
    let batches = all_batches(&critical.cases.iter().collect::<Vec<_>>()).len();
    let moments = most_moments(critical);
    let ordered = |n: usize| (0..n).map(move |i| palette::ordered(i, n).colour);
    palette::SERIES
        .into_iter()
        .chain(ordered(batches))
        .chain(ordered(moments))
        .collect()
}

/// Updates to the target against the batch.
fn steps(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let reached = |b: &BatchPoint| b.seeds.iter().any(|s| s.steps.is_some());
    let cases: Vec<&Case> = critical
        .cases
        .iter()
        .filter(|c| c.batches.iter().any(reached))
        .collect();
    if cases.is_empty() {
        return None;
    }
    let x = batch_axis(&all_batches(&cases), cases.len());
    let singles = |case: &Case| -> Vec<Mark> {
        let of = |b: &BatchPoint| -> Vec<Mark> {
            let steps = b.seeds.iter().filter_map(|s| s.steps);
            steps.map(|s| plain(b.batch as f64, s)).collect()
        };
        case.batches.iter().flat_map(of).collect()
    };
    let of_means =
        |case: &Case| -> Vec<Mark> { means(case).iter().map(|m| mean_mark(m.0, m.1)).collect() };
    // All panels share both axes.
    let marks: Vec<Mark> = cases
        .iter()
        .flat_map(|c| singles(c).into_iter().chain(of_means(c)))
        .collect();
    let y = value_axis("updates to the target", &marks, true, FREE);
    let several = seeds(critical) > 1;
    let (columns, height) = layout(cases.len());
    let chart = |case: &&Case| -> Chart {
        let mut lines = Vec::new();
        let fit = fit_of(case);
        if let Some(fit) = fit {
            if let Some(intervals) = &fit.intervals {
                let marks = intervals.curve.iter().map(|(b, i)| Mark {
                    span: span(Some(*i)),
                    ..plain(*b, fit.fit.steps(*b))
                });
                lines.push(band(fitted_style(), marks.collect()));
            }
            let of = |b: f64| plain(b, fit.fit.steps(b));
            lines.push(line(fitted_style(), grid(x.low, x.high).map(of).collect()));
        }
        if several {
            lines.push(points(single(), singles(case)));
        }
        lines.push(points(measured(), of_means(case)));
        let heading = y.label.clone();
        let mut chart = Chart::of(
            &case.label,
            Panel {
                lane: lanes(vec![(MUTED, missed(case))]),
                lane_name: "not reached",
                ..panel(x.clone(), y.clone(), heading, height, lines)
            },
        );
        // Perfect scaling: through E_min, or through the smallest batch where that is not known.
        let first = singles(case).into_iter().next();
        let examples = fit
            .filter(|f| f.fit.bound != Some(Bound::Below))
            .map(|f| f.fit.e_min())
            .or(first.map(|m| m.x * m.y));
        if let Some(e) = examples {
            let ends = [x.low, x.high].map(|b| (b, e / b));
            chart.panel.references.push((REFERENCE, ends.to_vec()));
        }
        if let Some(fit) = bracketed(case) {
            let interval = fit.intervals.as_ref().map(|i| i.b_crit);
            chart.upright(DOTS, fit.fit.b_crit, &b_crit_name(fit), interval);
        }
        if let Some(trouble) = fit_trouble(case) {
            chart.corner(trouble);
        }
        if let Some(published) = published(case, "b_crit") {
            chart.upright(PUBLISHED, published.value, "", None);
        }
        chart
    };
    let panels: Vec<Chart> = cases.iter().map(chart).collect();
    let any_fit = cases.iter().any(|c| c.fit.is_ok());
    let mut legend = Vec::new();
    seeds_legend(critical, &mut legend);
    if any_fit {
        legend.push((
            Sample::Line(fitted_style()),
            "fit: S = S_min (1 + B_crit/B)".to_owned(),
        ));
    }
    legend.push((
        Sample::Reference(REFERENCE),
        "perfect scaling: twice the batch, half the updates".to_owned(),
    ));
    let shaded = cases
        .iter()
        .filter_map(|c| bracketed(c))
        .any(|f| f.intervals.is_some());
    if has_label(&panels, DOTS) {
        let label = if shaded {
            "B_crit, shaded its 95 % interval"
        } else {
            "B_crit"
        };
        legend.push((Sample::Reference(DOTS), label.to_owned()));
    }
    legend.extend(published_legend(&cases, "b_crit", "B_crit"));
    if panels.iter().any(|p| !p.panel.lane.is_empty()) {
        legend.push((
            Sample::Cross,
            "seeds that did not reach the target (of all)".to_owned(),
        ));
    }
    let mut caption = format!(
        "Updates{} against the global batch, each batch at its best rate. {}",
        to_target(critical),
        points_words(critical)
    );
    if any_fit {
        caption.push_str(" The fit takes every seed, those that did not reach the target too.");
        if shaded {
            caption.push_str(" Its band and the interval of B_crit are 95 % intervals from a bootstrap over seeds.");
        }
    }
    let left: Vec<String> = critical
        .cases
        .iter()
        .filter(|c| !c.batches.iter().any(reached))
        .map(|c| c.label.clone())
        .collect();
    if !left.is_empty() {
        let _ = write!(
            caption,
            " No trial reached the target with {}.",
            list(&left)
        );
    }
    Some(Figure {
        name: "critical-steps".to_owned(),
        title: "Updates to the target against global batch".to_owned(),
        subtitle: subtitle(critical, &over_seeds(critical)),
        caption,
        columns,
        panels,
        legend_title: String::new(),
        legend,
    })
}

/// The interval of a batch in steps and examples: a piece of the line along which both are in
/// proportion.
fn along(style: Style, batch: f64, mean: &Mean) -> Option<Series> {
    let interval = mean.interval?;
    let place = |steps: f64| plain(steps, steps * batch);
    Some(line(style, vec![place(interval.low), place(interval.high)]))
}

/// Examples against updates: what fewer updates cost.
fn pareto(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let cases: Vec<&Case> = critical
        .cases
        .iter()
        .filter(|c| means(c).len() > 1)
        .collect();
    if cases.is_empty() {
        return None;
    }
    let (columns, height) = layout(cases.len());
    let chart = |case: &&Case| -> Chart {
        let means = means(case);
        let marks: Vec<Mark> = means
            .iter()
            .map(|(b, m)| plain(m.value, m.value * b))
            .collect();
        let (mut xs, mut ys): (Vec<f64>, Vec<f64>) = marks.iter().map(|m| (m.x, m.y)).unzip();
        let near = bracketed(case);
        if let Some(fit) = near {
            let close = |least: f64, values: &mut Vec<f64>| {
                let (low, high) = range(values).unwrap_or((least, least));
                // Room below the line for its name.
                let room = (high / low).max(2.0).powf(0.1);
                if least > low / REACH {
                    values.push(least.min(low) / room);
                }
            };
            close(fit.fit.s_min, &mut xs);
            close(fit.fit.e_min(), &mut ys);
        }
        let x = Axis::log10("updates to the target (log scale)", &xs);
        let y = Axis::log10("examples to the target (log scale)", &ys);
        let mut lines: Vec<Series> = Vec::new();
        if let (Some(fit), Some((low, high))) = (fit_of(case), ends(&means)) {
            let of = |b: f64| plain(fit.fit.steps(b), fit.fit.examples(b));
            let curve = grid(low / 4.0, high * 4.0).map(of).collect();
            lines.push(line(fitted_style(), curve));
        }
        lines.extend(means.iter().filter_map(|(b, m)| along(measured(), *b, m)));
        lines.push(points(measured(), marks.clone()));
        let heading = y.label.clone();
        let mut chart = Chart::of(&case.label, panel(x.clone(), y, heading, height, lines));
        let labels = means.iter().zip(&marks);
        chart.labels = labels
            .map(|((b, _), m)| (m.x, m.y, count(*b as u64)))
            .collect();
        if let Some(fit) = near {
            let (s, e) = (fit.fit.s_min, fit.fit.e_min());
            chart.upright(DOTS, s, "", None);
            chart.level(DOTS, e, "", None);
            let bottom = chart.panel.y.low;
            if chart.panel.x.position(s) > 0.0 {
                chart.notes.push(Note {
                    text: format!("S_min {}", number(s)),
                    at: (s, bottom),
                    shift: (5.0, -9.0),
                    align: Align::Left,
                });
            }
            if chart.panel.y.position(e) > 0.0 {
                chart.notes.push(Note {
                    text: format!("E_min {}", number(e)),
                    at: (chart.panel.x.high, bottom),
                    shift: (-5.0, -9.0),
                    align: Align::Right,
                });
            }
        }
        if let Some(trouble) = fit_trouble(case) {
            chart.corner(trouble);
        }
        chart
    };
    let panels: Vec<Chart> = cases.iter().map(chart).collect();
    let several = seeds(critical) > 1;
    let mut legend = vec![(
        Sample::Point(measured()),
        if several {
            format!("{GEOMETRIC}, its batch beside it")
        } else {
            "measured, its batch beside it".to_owned()
        },
    )];
    if cases.iter().any(|c| c.fit.is_ok()) {
        legend.push((
            Sample::Line(fitted_style()),
            "fit: (S/S_min − 1)(E/E_min − 1) = 1".to_owned(),
        ));
    }
    if has_label(&panels, DOTS) {
        legend.push((
            Sample::Reference(DOTS),
            "fewest updates S_min, fewest examples E_min".to_owned(),
        ));
    }
    let mut caption = format!(
        "What fewer updates{} cost in examples: every batch is a point of the front. To the left large batches, which take \
         few updates and many examples; to the right small ones.",
        to_target(critical)
    );
    if several {
        let _ = write!(
            caption,
            " Geometric means over {} seeds. A 95 % interval (Student's t in the logarithm) is a piece of a slanted line, for a batch takes examples in \
             proportion to its updates.",
            seeds(critical)
        );
    }
    Some(Figure {
        name: "critical-pareto".to_owned(),
        title: "Examples against updates to the target".to_owned(),
        subtitle: subtitle(critical, &over_seeds(critical)),
        caption,
        columns,
        panels,
        legend_title: String::new(),
        legend,
    })
}

/// The smallest and the largest batch.
fn ends(means: &[(f64, &Mean)]) -> Option<(f64, f64)> {
    Some((means.first()?.0, means.last()?.0))
}

/// Time over the shortest against compute over the least, all cases on one curve.
fn time_and_compute(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let known: Vec<(&Case, &Fit)> = critical
        .cases
        .iter()
        .filter_map(|c| Some((c, bracketed(c)?)))
        .collect();
    if known.is_empty() {
        return None;
    }
    let mut lines: Vec<Series> = Vec::new();
    let (mut xs, mut ys) = (vec![1.0, 2.0], vec![1.0, 2.0]);
    let mut legend = Vec::new();
    for (i, (case, fit)) in known.iter().enumerate() {
        let style = palette::series(i);
        let (s, e) = (fit.fit.s_min, fit.fit.e_min());
        let mut marks = Vec::new();
        for (batch, mean) in means(case) {
            let mark = plain(mean.value * batch / e, mean.value / s);
            xs.push(mark.x);
            ys.push(mark.y);
            marks.push(mark);
            lines.extend(mean.interval.map(|i| {
                let place = |steps: f64| plain(steps * batch / e, steps / s);
                let style = Style {
                    dash: None,
                    faint: true,
                    ..style
                };
                line(style, vec![place(i.low), place(i.high)])
            }));
        }
        lines.push(points(style, marks));
        if !case.label.is_empty() {
            legend.push((Sample::Point(style), case.label.clone()));
        }
    }
    // The measured points of a good fit end on the curve, so a little room below both ends.
    let x = Axis::log10(
        "compute: examples over the fewest, E/E_min (log scale)",
        &xs,
    );
    let y = Axis::log10("time: updates over the fewest, S/S_min (log scale)", &ys);
    let heading = y.label.clone();
    let mut chart = Chart::of("", panel(x.clone(), y, heading, 400.0, lines));
    let of = |e: f64| (e, 1.0 + 1.0 / (e - 1.0));
    let curve = grid(1e-4, (x.high - 1.0).max(1.0))
        .map(|e| of(1.0 + e))
        .collect();
    chart.panel.references.push((REFERENCE, curve));
    chart.upright(DOTS, 1.0, "", None);
    chart.level(DOTS, 1.0, "", None);
    let corner = Style {
        colour: INK,
        marker: Marker::Diamond,
        ..palette::series(0)
    };
    chart
        .panel
        .series
        .push(points(corner, vec![plain(2.0, 2.0)]));
    legend.push((
        Sample::Point(corner),
        "B = B_crit: twice the least of both".to_owned(),
    ));
    legend.push((
        Sample::Reference(REFERENCE),
        "(S/S_min − 1)(E/E_min − 1) = 1".to_owned(),
    ));
    legend.push((Sample::Reference(DOTS), "the least of each".to_owned()));
    let left = critical.cases.len() - known.len();
    let mut caption = "Time against compute. An update takes equally long at every batch where each worker has the same number of \
         examples, so time is counted in updates and compute in examples; each over the least that any batch could take by the \
         fit of its case."
        .to_owned();
    if seeds(critical) > 1 {
        let _ = write!(
            caption,
            " Slanted bars are 95 % intervals over {} seeds of the updates alone, not of the fit.",
            seeds(critical)
        );
    }
    if left > 0 {
        let _ = write!(
            caption,
            " {} no B_crit between the batches measured and {} left out.",
            if left == 1 {
                "One case has".to_owned()
            } else {
                format!("{left} cases have")
            },
            if left == 1 { "is" } else { "are" }
        );
    }
    Some(Figure {
        name: "critical-time-compute".to_owned(),
        title: "Time against compute, each over its least".to_owned(),
        subtitle: subtitle(critical, &over_seeds(critical)),
        caption,
        columns: 1,
        panels: vec![chart],
        legend_title: String::new(),
        legend,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::analysis::critical_batch::{
        Branch, BranchMoment, Cost, Costs, Noise, NoisePoint, NoiseSummary, SeedPoint, Tried,
        TriedEnd, batch_point, case,
    };
    use crate::math::statistics::Interval;

    /// What a case is made of.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Made {
        pub(in super::super) s_min: f64,
        pub(in super::super) b_crit: f64,
        pub(in super::super) batches: u32,
        pub(in super::super) seeds: u64,
        /// How much seeds and batches differ beside the law.
        pub(in super::super) wobble: f64,
        /// Trials make no more updates than these.
        pub(in super::super) budget: f64,
        pub(in super::super) searched: bool,
        pub(in super::super) others: bool,
    }

    pub(in super::super) const FULL: Made = Made {
        s_min: 100.0,
        b_crit: 64.0,
        batches: 8,
        seeds: 3,
        wobble: 0.02,
        budget: 5000.0,
        searched: true,
        others: true,
    };

    fn seed(made: &Made, batch: f64, seed: u64) -> SeedPoint {
        let wobble = 1.0 + made.wobble * ((seed * 7 + batch.log2() as u64 * 3) % 5) as f64;
        let least = made.s_min * (1.0 + made.b_crit / batch) * wobble;
        let best = (batch / (batch + 50.0)).log2().round() as i32;
        let trial = |k: i32| {
            let steps = least * (1.0 + 0.3 * f64::from((k - best).pow(2)));
            let (end, steps, made) = if k > best + 1 {
                (TriedEnd::Diverged, None, 12)
            } else if steps > made.budget {
                (TriedEnd::Censored, None, made.budget as u64)
            } else {
                (TriedEnd::Reached, Some(steps), steps.ceil() as u64)
            };
            Tried {
                rate: 2f64.powi(k),
                others: String::new(),
                steps,
                end,
                made,
                best: Some(0.9),
            }
        };
        let tried: Vec<Tried> = if made.searched {
            (best - 1..=best + 2).map(trial).collect()
        } else {
            Vec::new()
        };
        let reached = least <= made.budget;
        SeedPoint {
            seed,
            steps: reached.then_some(least),
            bound: made.budget,
            rate: (reached && made.searched).then(|| 2f64.powi(best)),
            others: String::new(),
            edge: seed == 0 && batch == 8.0,
            tried,
        }
    }

    fn noise_of(made: &Made) -> Noise {
        let interval = |v: f64, open: bool| Interval {
            low: v / 2.0,
            high: if open { f64::INFINITY } else { v * 2.0 },
        };
        let point = |i: u32| {
            let value = 5.0 * 1.5f64.powi(i.cast_signed());
            NoisePoint {
                step: f64::from(i) * 20.0 + 10.0,
                b_simple: (i != 4).then_some(value),
                interval: (i != 4).then(|| interval(value, i > 6)),
            }
        };
        let summary = |when, value: f64| NoiseSummary {
            when,
            b_simple: (when != "target").then_some(value),
            b_simple_interval: Some(interval(value, when == "target")),
            b_noise: Some(value / 2.0),
            b_noise_interval: Some(interval(value / 2.0, false)),
        };
        Noise {
            batch: 32,
            rate: 0.25,
            course: (0..9).map(point).collect(),
            summary: vec![
                summary("start", 6.0),
                summary("average", made.b_crit),
                summary("target", 150.0),
            ],
        }
    }

    fn branches_of(made: &Made) -> Vec<BranchMoment> {
        let moment = |(i, examples): (usize, f64)| {
            let critical = made.b_crit * [0.4, 1.5][i];
            let branch = |k: i32| {
                let batch = 16 << k;
                let above = 0.02 * (batch as f64 - 16.0) / (critical - 16.0);
                let lost = usize::from(k == 4 && i == 0);
                let losses = (lost..made.seeds as usize).map(|s| 0.5 + 0.1 * s as f64 + above);
                Branch {
                    batch,
                    losses: losses.collect(),
                    diverged: lost,
                }
            };
            BranchMoment {
                examples,
                base_batch: 16,
                branches: (0..5).map(branch).collect(),
                tolerance: 0.02,
                critical: Some(Mean {
                    value: critical,
                    interval: None,
                }),
                at_least: i == 1,
            }
        };
        [1000.0, 40_000.0]
            .into_iter()
            .enumerate()
            .map(moment)
            .collect()
    }

    pub(in super::super) fn made(label: &str, made: &Made) -> Case {
        let point = |k: u32| {
            let batch = 8u64 << k;
            let seeds = (0..made.seeds).map(|s| seed(made, batch as f64, s));
            batch_point(batch, seeds.collect())
        };
        let cost = |examples| {
            Some(Cost {
                examples,
                seconds: Some(12.5),
                trials: 9,
            })
        };
        let costs = Costs {
            sweep: cost(4_000_000),
            noise: cost(100_000),
            noise_start: cost(2000),
            branched: cost(300_000),
        };
        case(
            label.to_owned(),
            (0..made.batches).map(point).collect(),
            made.others.then(|| noise_of(made)),
            if made.others {
                branches_of(made)
            } else {
                Vec::new()
            },
            &costs,
            made.others.then_some("mnist"),
        )
    }

    pub(in super::super) fn study(cases: Vec<Case>) -> CriticalBatch {
        CriticalBatch {
            unfinished: None,
            name: "a study".to_owned(),
            description: Some("is 3 < 4 & 5?".to_owned()),
            target: Some("test accuracy of at least 0.9".to_owned()),
            crossing: Some("by interpolation".to_owned()),
            cases,
        }
    }

    fn names(critical: &CriticalBatch) -> Vec<String> {
        figures(critical).into_iter().map(|f| f.name).collect()
    }

    #[test]
    fn a_full_study_has_every_figure() {
        let all = [
            "critical-steps",
            "critical-pareto",
            "critical-time-compute",
            "critical-rate",
            "critical-rates-searched",
            "critical-noise",
            "critical-branched",
            "critical-estimates",
        ];
        let one = study(vec![made("", &FULL)]);
        assert_eq!(names(&one), all);
        let two = study(vec![made("model=a", &FULL), made("model=b", &FULL)]);
        let mut more = all.to_vec();
        more.insert(7, "critical-branched-batches");
        assert_eq!(names(&two), more);
        assert!(names(&two).iter().all(|n| is_name(n)));
        for figure in figures(&two) {
            let plots = if figure.name == "critical-time-compute" {
                1
            } else {
                2
            };
            assert_eq!(figure.panels.len(), plots, "{}", figure.name);
        }
    }

    #[test]
    fn a_table_of_steps_has_no_figures_of_rates_noise_or_branches() {
        let table = Made {
            searched: false,
            others: false,
            ..FULL
        };
        assert_eq!(
            names(&study(vec![made("", &table)])),
            [
                "critical-steps",
                "critical-pareto",
                "critical-time-compute",
                "critical-estimates"
            ]
        );
    }

    #[test]
    fn where_nothing_reached_the_target_the_search_alone_is_drawn() {
        let lost = Made {
            budget: 50.0,
            others: false,
            ..FULL
        };
        let critical = study(vec![made("", &lost)]);
        assert_eq!(names(&critical), ["critical-rates-searched"]);
        let none = Made { batches: 0, ..lost };
        assert_eq!(names(&study(vec![made("", &none)])), [""; 0]);
        assert_eq!(names(&study(Vec::new())), [""; 0]);
        // Beside a case that has a figure it is named in the caption.
        let both = study(vec![made("model=a", &FULL), made("model=b", &lost)]);
        let steps = &figures(&both)[0];
        assert_eq!(steps.panels.len(), 1);
        assert!(
            steps
                .caption
                .ends_with("No trial reached the target with model=b.")
        );
    }

    #[test]
    fn batches_that_do_not_bracket_it_get_no_line_of_it() {
        let steep = Made {
            b_crit: 1e12,
            s_min: 1e-9,
            others: false,
            ..FULL
        };
        let critical = study(vec![made("", &steep)]);
        let svg = figures(&critical)[0].svg().unwrap();
        assert!(svg.contains("B_crit: above these batches"));
        assert!(!names(&critical).contains(&"critical-time-compute".to_owned()));
        let flat = Made {
            b_crit: 1e-9,
            wobble: 0.0,
            others: false,
            ..FULL
        };
        let critical = study(vec![made("", &flat)]);
        let svg = figures(&critical)[0].svg().unwrap();
        assert!(svg.contains("B_crit: below these batches"));
    }

    #[test]
    fn one_seed_has_no_interval_and_the_captions_say_so() {
        let one = Made { seeds: 1, ..FULL };
        for figure in figures(&study(vec![made("", &one)])) {
            let spans = figure.panels.iter().all(|p| {
                let series = p.panel.series.iter().filter(|s| !s.banded);
                series.flat_map(|s| &s.marks).all(|m| m.span.is_none())
            });
            let of_seeds = ["steps", "pareto", "rate", "branched"];
            if of_seeds.iter().any(|n| figure.name.ends_with(n)) {
                assert!(spans, "{}", figure.name);
                assert!(figure.subtitle.ends_with("one seed, so no interval"));
            }
        }
    }

    #[test]
    fn the_same_study_gives_the_same_bytes_and_no_broken_number() {
        let cases = || {
            vec![
                made("model=a", &FULL),
                made("model=b", &Made { seeds: 1, ..FULL }),
                made(
                    "model=c",
                    &Made {
                        budget: 400.0,
                        ..FULL
                    },
                ),
            ]
        };
        let (first, second) = (figures(&study(cases())), figures(&study(cases())));
        for (a, b) in first.iter().zip(&second) {
            let svg = a.svg().unwrap();
            assert_eq!(svg, b.svg().unwrap());
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", a.name);
        }
        assert_eq!(first[0].png().unwrap(), second[0].png().unwrap());
    }

    #[test]
    fn a_batch_that_was_not_reached_is_a_cross() {
        let short = Made {
            budget: 600.0,
            ..FULL
        };
        let critical = study(vec![made("", &short)]);
        let steps = &figures(&critical)[0];
        // 100 (1 + 64/8) = 900 updates and more at batch 8, 500 at 16.
        let lane = &steps.panels[0].panel.lane;
        assert_eq!(lane.len(), 1);
        assert_eq!(lane[0].marks, [(8.0, "3/3".to_owned())]);
    }
}
