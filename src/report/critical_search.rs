//! Figures of the search over learning rates.

use crate::analysis::critical_batch::{BatchPoint, Case, CriticalBatch, SeedPoint, TriedEnd};
use crate::analysis::numbers::{plural, significant};

use super::axis::Axis;
use super::canvas::Align;
use super::critical_chart::{
    Chart, DOTS, Note, batch_axis, fitted_style, grid, has_label, lanes, layout, line, mean_mark,
    measured, points, single,
};
use super::critical_words::{
    all_batches, number, over_seeds, points_words, seeds, seeds_legend, subtitle, to_target,
};
use super::figure::{Figure, Mark, Panel, Sample};
use super::palette::{self, Marker, Style};
use super::probe_figures::{FREE, panel, plain, value_axis};

/// The best rate against the batch.
pub(super) fn best_rates(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let known = |b: &BatchPoint| b.seeds.iter().any(|s| s.rate.is_some());
    let cases: Vec<&Case> = critical
        .cases
        .iter()
        .filter(|c| c.batches.iter().any(known))
        .collect();
    if cases.is_empty() {
        return None;
    }
    let several = seeds(critical) > 1;
    let x = batch_axis(&all_batches(&cases), cases.len());
    let (columns, height) = layout(cases.len());
    let chart = |case: &&Case| -> Chart {
        let mark = |b: &BatchPoint, s: &SeedPoint| {
            Some(Mark {
                hollow: s.edge,
                ..plain(b.batch as f64, s.rate?)
            })
        };
        let singles: Vec<Mark> = case
            .batches
            .iter()
            .flat_map(|b| b.seeds.iter().filter_map(move |s| mark(b, s)))
            .collect();
        let means: Vec<Mark> = case
            .batches
            .iter()
            .filter_map(|b| {
                Some(Mark {
                    hollow: b.seeds.iter().any(|s| s.edge),
                    ..mean_mark(b.batch as f64, b.rate.as_ref()?)
                })
            })
            .collect();
        let mut marks: Vec<Mark> = singles.iter().chain(&means).copied().collect();
        if let (Some(law), Some(last)) = (&case.rate_law, marks.last().map(|m| m.x)) {
            marks.push(plain(last, law.fit.rate(last)));
        }
        let y = value_axis("best learning rate", &marks, true, FREE);
        let mut lines = Vec::new();
        if let Some(law) = &case.rate_law {
            let of = |b: f64| plain(b, law.fit.rate(b));
            lines.push(line(fitted_style(), grid(x.low, x.high).map(of).collect()));
        }
        if several {
            lines.push(points(single(), singles));
        }
        lines.push(points(measured(), means));
        let heading = y.label.clone();
        let mut chart = Chart::of(&case.label, panel(x.clone(), y, heading, height, lines));
        if let Some(law) = &case.rate_law {
            let b_star = law.fit.b_star;
            if b_star.is_finite() && (0.02..0.98).contains(&x.position(b_star)) {
                chart.upright(DOTS, b_star, "", None);
            }
            chart.notes.push(Note {
                text: format!("α {}, B* {}", significant(law.fit.alpha, 2), number(b_star)),
                at: (chart.panel.x.high, chart.panel.y.low),
                shift: (-6.0, -10.0),
                align: Align::Right,
            });
        }
        chart
    };
    let panels: Vec<Chart> = cases.iter().map(chart).collect();
    let mut legend = Vec::new();
    seeds_legend(critical, &mut legend);
    let law = cases.iter().any(|c| c.rate_law.is_some());
    if law {
        legend.push((
            Sample::Line(fitted_style()),
            "fit: ε_max/(1 + B*/B)^α".to_owned(),
        ));
    }
    if has_label(&panels, DOTS) {
        legend.push((Sample::Reference(DOTS), "B*".to_owned()));
    }
    let edges = cases
        .iter()
        .flat_map(|c| &c.batches)
        .flat_map(|b| &b.seeds)
        .any(|s| s.edge);
    if edges {
        legend.push((
            Sample::Hollow,
            "at the edge of the rates allowed: a better one may lie beyond".to_owned(),
        ));
    }
    let mut caption = format!(
        "The learning rate with the fewest updates{} against the global batch. {}",
        to_target(critical),
        points_words(critical)
    );
    if law {
        caption.push_str(
            " The fit is to all seeds: rates grow as the batch to the power α while the batch is far below B*, and not at all far above.",
        );
    }
    Some(Figure {
        name: "critical-rate".to_owned(),
        title: "Best learning rate against global batch".to_owned(),
        subtitle: subtitle(critical, &over_seeds(critical)),
        caption,
        columns,
        panels,
        legend_title: String::new(),
        legend,
    })
}

/// Updates to the target against the rate, for each batch.
pub(super) fn rates_searched(critical: &CriticalBatch) -> Option<Figure<Chart>> {
    let cases: Vec<&Case> = critical
        .cases
        .iter()
        .filter(|c| {
            let seeds = c.batches.iter().flat_map(|b| &b.seeds);
            seeds.map(|s| s.tried.len()).sum::<usize>() > 1
        })
        .collect();
    if cases.is_empty() {
        return None;
    }
    let batches = all_batches(&cases);
    let (columns, height) = layout(cases.len());
    let height = height + 45.0;
    let chart = |case: &&Case| -> Chart {
        let (mut lines, mut best, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
        let mut diverged = Vec::new();
        for point in &case.batches {
            let i = batches.iter().position(|&b| b == point.batch).unwrap_or(0);
            let style = palette::ordered(i, batches.len());
            let mut crosses: Vec<(f64, usize, usize)> = Vec::new();
            for seed in &point.seeds {
                // Of other keys searched over only the values that go with the best.
                let same = seed.steps.is_some();
                let mut tried: Vec<_> = seed
                    .tried
                    .iter()
                    .filter(|t| !same || t.others == seed.others)
                    .collect();
                tried.sort_by(|a, b| a.rate.total_cmp(&b.rate));
                let reached = tried.iter().filter_map(|t| Some(plain(t.rate, t.steps?)));
                lines.push(line(style, reached.collect()));
                if let (Some(rate), Some(steps)) = (seed.rate, seed.steps) {
                    let mark = Mark {
                        hollow: seed.edge,
                        ..plain(rate, steps)
                    };
                    best.push(points(style, vec![mark]));
                }
                for trial in tried {
                    match trial.end {
                        TriedEnd::Censored | TriedEnd::Overtaken if trial.made > 0 => {
                            let style = Style {
                                marker: Marker::Triangle,
                                ..style
                            };
                            let mark = Mark {
                                hollow: true,
                                ..plain(trial.rate, trial.made as f64)
                            };
                            beyond.push(points(style, vec![mark]));
                        }
                        TriedEnd::Diverged => {
                            match crosses.iter_mut().find(|c| c.0 == trial.rate) {
                                Some(cross) => cross.1 += 1,
                                None => crosses.push((trial.rate, 1, point.seeds.len())),
                            }
                        }
                        _ => {}
                    }
                }
            }
            diverged.push((style.colour, crosses));
        }
        let rates: Vec<f64> = case
            .batches
            .iter()
            .flat_map(|b| &b.seeds)
            .flat_map(|s| &s.tried)
            .map(|t| t.rate)
            .collect();
        lines.extend(beyond);
        lines.extend(best);
        let values: Vec<f64> = lines.iter().flat_map(|s| &s.marks).map(|m| m.y).collect();
        let x = Axis::log10_fine("learning rate (log scale)", &rates);
        let y = Axis::log10("updates to the target (log scale)", &values);
        let heading = y.label.clone();
        Chart::of(
            &case.label,
            Panel {
                lane: lanes(diverged),
                lane_name: "diverged",
                ..panel(x, y, heading, height, lines)
            },
        )
    };
    let panels: Vec<Chart> = cases.iter().map(chart).collect();
    let mut legend: Vec<(Sample, String)> = batches
        .iter()
        .enumerate()
        .map(|(i, batch)| {
            let style = palette::ordered(i, batches.len());
            (Sample::Series(style), batch.to_string())
        })
        .collect();
    let trials = || {
        let batches = cases.iter().flat_map(|c| &c.batches);
        batches.flat_map(|b| &b.seeds).flat_map(|s| &s.tried)
    };
    let mut caption = "Updates to the target against the learning rate, a line for each batch and seed, with a point at its best. \
         The search is done where a point has worse rates on both sides."
        .to_owned();
    let beyond = trials().any(|t| matches!(t.end, TriedEnd::Censored | TriedEnd::Overtaken));
    if beyond {
        caption.push_str(
            " A hollow triangle is a trial that had not reached the target when it ended, by its budget or because another rate \
             had won: it needs more updates than that.",
        );
    }
    let best = cases.iter().flat_map(|c| &c.batches).flat_map(|b| &b.seeds);
    if best.clone().any(|s| s.edge) {
        legend.push((
            Sample::Hollow,
            "best at the edge of the rates allowed".to_owned(),
        ));
        caption.push_str(" A hollow point is a best rate at the edge of those allowed.");
    }
    if best.clone().any(|s| !s.others.is_empty()) {
        caption.push_str(
            " Of the other keys searched over, the values that go with the best are shown.",
        );
    }
    if panels.iter().any(|p| !p.panel.lane.is_empty()) {
        legend.push((Sample::Cross, "trials diverged (of all seeds)".to_owned()));
    }
    let how = plural(seeds(critical), "seed", "seeds");
    let how = if beyond {
        format!("{how}; hollow triangles: trials that ended before the target")
    } else {
        how
    };
    Some(Figure {
        name: "critical-rates-searched".to_owned(),
        title: "Updates to the target against the learning rates tried".to_owned(),
        subtitle: subtitle(critical, &how),
        caption,
        columns,
        panels,
        legend_title: "Global batch".to_owned(),
        legend,
    })
}
