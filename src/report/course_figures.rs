//! Figures of how the learning rate and the global batch go over a run.

use crate::analysis::numbers::plural;
use crate::analysis::{Course, GapAnalysis, PointCourses, extent, varies};

use super::axis::Axis;
use super::figure::{Figure, Mark, Panel, Sample, Series};
use super::gap_figures::slug;
use super::palette::{self, Style};

/// Rules that get a figure.
const MOST: usize = 12;

/// One figure for each rule under which the batch or the rate changes, with the index of the rule.
pub(crate) fn figures(analysis: &GapAnalysis) -> Vec<(usize, Figure)> {
    let rules = analysis.courses.iter().map(|c| c.rule);
    let mut rules: Vec<usize> = rules.collect();
    rules.dedup();
    let all = rules.len();
    if all > MOST {
        // Those whose batch moves come first.
        let moves = |rule: usize| courses_of(analysis, rule).any(PointCourses::moves_batch);
        rules.sort_by_key(|&rule| (!moves(rule), rule));
        rules.truncate(MOST);
        rules.sort_unstable();
    }
    let mut figures: Vec<(usize, Figure)> = rules
        .iter()
        .enumerate()
        .map(|(i, &rule)| (rule, of_rule(analysis, rule, i)))
        .collect();
    if all > MOST
        && let Some((_, last)) = figures.last_mut()
    {
        last.caption
            .push_str(" Rate and batch of the other rules are in steps.csv.");
    }
    figures
}

/// Whether a file of this name is a figure of this kind.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with("schedule-")
}

fn courses_of(analysis: &GapAnalysis, rule: usize) -> impl Iterator<Item = &PointCourses> {
    analysis.courses.iter().filter(move |c| c.rule == rule)
}

fn of_rule(analysis: &GapAnalysis, rule: usize, number: usize) -> Figure {
    let points: Vec<&PointCourses> = courses_of(analysis, rule).collect();
    let several = points.len() > 1;
    let style = |point: &PointCourses| {
        let all = &analysis.batches;
        let i = all.iter().position(|&b| b == point.batch).unwrap_or(0);
        if several {
            palette::ordered(i, all.len())
        } else {
            Style {
                dash: None,
                ..palette::series(rule)
            }
        }
    };
    let mut lines = Vec::new();
    for faint in [true, false] {
        for point in &points {
            let courses = if faint {
                &point.courses[1..]
            } else {
                &point.courses[..1]
            };
            let style = Style {
                faint,
                ..style(point)
            };
            lines.extend(courses.iter().map(|course| (course, style)));
        }
    }
    let others = lines.iter().any(|(_, style)| style.faint);
    let mut legend: Vec<(Sample, String)> = points
        .iter()
        .filter(|_| several || others)
        .map(|point| {
            let label = if several {
                point.batch.to_string()
            } else {
                format!("seed {}", point.seed)
            };
            (Sample::Line(style(point)), label)
        })
        .collect();
    if others && let Some(point) = points.first() {
        let faint = Style {
            faint: true,
            ..style(point)
        };
        legend.push((Sample::Line(faint), "other seeds".to_owned()));
    }
    let label = &analysis.rules[rule].label;
    let seeds = points.iter().map(|p| p.seeds).max().unwrap_or(1);
    let (subtitle, caption) = if seeds == 1 {
        ("one seed".to_owned(), "")
    } else if others {
        (
            plural(seeds, "seed", "seeds"),
            " The first seed is drawn strong, the others faint.",
        )
    } else {
        (plural(seeds, "seed", "seeds"), " All seeds coincide.")
    };
    let panels = panels(&lines);
    Figure {
        name: format!("schedule-{}-{}", number + 1, slug(label)),
        title: format!("{}: {label}", what(&panels)),
        subtitle: format!("{}: {subtitle}", analysis.study.name),
        caption: format!(
            "{} of every update under the rule \u{201C}{label}\u{201D}, against epochs.{caption}",
            what(&panels)
        ),
        columns: panels.len(),
        legend_title: if several {
            "Global batch at the start".to_owned()
        } else {
            String::new()
        },
        legend,
        panels,
    }
}

/// "Learning rate and global batch", with the momentum where there is a panel of it.
fn what(panels: &[Panel]) -> &'static str {
    if panels.len() > 2 {
        "Learning rate, global batch and momentum"
    } else {
        "Learning rate and global batch"
    }
}

/// The figure of planned runs, each with its name: rate, batch, momentum where it moves, noise
/// scale.
pub(crate) fn of_plans(study: &str, key: &str, plans: &[(String, Course)]) -> Figure {
    let lines: Vec<(&Course, Style)> = plans
        .iter()
        .enumerate()
        .map(|(i, (_, course))| (course, palette::line(i)))
        .collect();
    let panels = panels(&lines);
    let legend = lines.iter().zip(plans);
    let several = plans.len() > 1;
    Figure {
        name: "schedule".to_owned(),
        title: format!("Schedule of {study}"),
        subtitle: match plans {
            [(label, _)] => label.clone(),
            _ => plural(plans.len(), "run, as planned", "runs, as planned"),
        },
        caption: String::new(),
        columns: 2,
        legend_title: key.to_owned(),
        legend: legend
            .filter(|_| several)
            .map(|((_, style), (label, _))| (Sample::Line(*style), label.clone()))
            .collect(),
        panels,
    }
}

fn panels(lines: &[(&Course, Style)]) -> Vec<Panel> {
    let mut panels = vec![
        panel("learning rate", lines, |c| &c.rate),
        panel(BATCH, lines, |c| &c.batch),
    ];
    if lines.iter().any(|(c, _)| varies(&c.momentum)) {
        panels.push(panel(MOMENTUM, lines, |c| &c.momentum));
    }
    if lines.iter().any(|(c, _)| !c.noise.is_empty()) {
        panels.push(panel("noise scale", lines, |c| &c.noise));
    }
    panels
}

const MOMENTUM: &str = "momentum";
const BATCH: &str = "global batch (examples an update, log scale)";

fn panel(
    name: &str,
    lines: &[(&Course, Style)],
    quantity: impl Fn(&Course) -> &Vec<(f64, f64)>,
) -> Panel {
    let series: Vec<Series> = lines
        .iter()
        .map(|(course, style)| Series {
            style: *style,
            marks: quantity(course)
                .iter()
                .map(|&(x, y)| Mark {
                    x,
                    y,
                    span: None,
                    hollow: false,
                })
                .collect(),
            joined: true,
            pointed: false,
            banded: false,
            dodge: 0.0,
        })
        .collect();
    let marks = || series.iter().flat_map(|s| &s.marks);
    let epochs: Vec<f64> = marks().map(|m| m.x).collect();
    let values: Vec<f64> = marks().map(|m| m.y).collect();
    let lines: Vec<&[(f64, f64)]> = lines
        .iter()
        .map(|(course, _)| quantity(course).as_slice())
        .collect();
    let extent = extent(&lines);
    let (heading, y) = match extent {
        _ if name == BATCH => {
            let batches: Vec<u64> = values.iter().map(|&v| v as u64).collect();
            (name.to_owned(), Axis::batches(&batches))
        }
        Some(extent) if extent.log => {
            let heading = format!("{name} (log scale)");
            let axis = Axis::log10(&heading, &[extent.low, extent.high]);
            (heading, axis)
        }
        _ => {
            let mut values = values;
            if name != MOMENTUM {
                values.push(0.0);
            }
            let axis = Axis::linear(name, &values, (0.0, f64::INFINITY));
            (name.to_owned(), axis)
        }
    };
    Panel {
        heading,
        x: Axis::linear("epochs", &epochs, (0.0, f64::INFINITY)),
        y,
        height: 180.0,
        series,
        references: Vec::new(),
        lane: Vec::new(),
        lane_name: "",
        sideways: false,
    }
}
