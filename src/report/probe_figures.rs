//! Figures of what probes measured: curvature, sharpness, noise of the gradient, loss surfaces.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use plotters::backend::DrawingBackend;

use crate::analysis::numbers::plural;
use crate::analysis::{
    Density, Measured, Moment, Probe, ProbeAnalysis, ProbeCourse, ProbeKey, ProbedPoint, split_name,
};
use crate::math::statistics::Estimate;

use super::axis::{Axis, Scale, range};
use super::canvas::{Canvas, DrawError};
use super::figure::{Across, Figure, Frame, Mark, Panel, Plot, Sample, Series};
use super::gap_figures::slug;
use super::map::Map;
use super::palette::{self, Dash, INK, Style};
use super::probe_noise::noise;
use super::probe_surfaces::{lines, planes};
use super::probe_words::{interval_words, moment_name, name, probe_name, shown_at, subtitle};

/// Rules that get a figure of their own where each needs one.
const MOST_RULES: usize = 6;
/// How far below the top of a density its axis reaches: one eigenvalue in ten million.
const DENSITY_DEPTH: f64 = 1e-7;
/// How far beyond the means the ends of intervals may stretch a logarithmic axis.
const STRETCH: f64 = 4.0;
/// Dash of reference lines.
pub(super) const REFERENCE: Dash = Some((5.0, 4.0));
/// No limits.
pub(super) const FREE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

/// The section of the page that a figure belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    Curvature,
    Noise,
}

/// One plot of a figure here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Chart {
    Panel(Panel),
    /// Points with intervals both ways.
    Scatter(Panel, Vec<Across>),
    Map(Map),
}

impl Plot for Chart {
    fn height(&self) -> f64 {
        match self {
            Chart::Panel(panel) | Chart::Scatter(panel, _) => Plot::height(panel),
            Chart::Map(map) => map.height(),
        }
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        cell: Frame,
    ) -> Result<(), DrawError> {
        match self {
            Chart::Panel(panel) => panel.draw(canvas, cell),
            Chart::Scatter(panel, across) => panel.draw_with(canvas, cell, across),
            Chart::Map(map) => map.draw(canvas, cell),
        }
    }
}

/// All figures that the tables allow, in the order of the page.
pub(crate) fn figures(analysis: &ProbeAnalysis) -> Vec<(Topic, Figure<Chart>)> {
    let mut curvature = eigenvalues(analysis);
    curvature.extend(densities(analysis));
    curvature.extend(by_batch(analysis));
    curvature.extend(
        Moment::BOTH
            .into_iter()
            .filter_map(|moment| against_gap(analysis, moment)),
    );
    curvature.extend(over_training(analysis));
    curvature.extend(lines(analysis));
    curvature.extend(planes(analysis));
    let curvature = curvature.into_iter().map(|f| (Topic::Curvature, f));
    let noise = noise(analysis).into_iter().map(|f| (Topic::Noise, f));
    curvature.chain(noise).collect()
}

/// Whether a file of this name is a figure of this kind.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with("probe-")
}

/// Whether a figure has colours that stand for numbers and must stay as they are on a dark page.
pub(crate) fn is_map(figure: &Figure<Chart>) -> bool {
    figure.panels.iter().any(|c| matches!(c, Chart::Map(_)))
}

/// Number of ranks that lines of eigenvalues are drawn for.
pub(crate) fn ranks(analysis: &ProbeAnalysis) -> usize {
    let keys = analysis.keys();
    let of = |probe| keys.iter().filter(|k| k.is(probe, "eigenvalue")).count();
    of(Probe::Hessian).max(of(Probe::GaussNewton))
}

/// The mark of a quantity at a place; `None` where no value was determined.
fn mark(point: &ProbedPoint, measured: &Measured, x: f64, factor: f64) -> Option<Mark> {
    let estimate = measured.estimate()?;
    Some(Mark {
        x,
        y: estimate.mean * factor,
        span: point
            .span(measured)
            .map(|(low, high)| (low * factor, high * factor)),
        hollow: doubtful(point, measured),
    })
}

/// Whether a mean needs a second look.
fn doubtful(point: &ProbedPoint, measured: &Measured) -> bool {
    measured.values.len() < point.planned
        || measured.not_converged() > 0
        || measured.undetermined() > 0
}

const DOUBTFUL: &str = "seeds missing or not converged";

fn hollow_legend(panels: &[Chart], legend: &mut Vec<(Sample, String)>) {
    let hollow = panels.iter().any(|chart| match chart {
        Chart::Panel(panel) | Chart::Scatter(panel, _) => {
            panel.series.iter().flat_map(|s| &s.marks).any(|m| m.hollow)
        }
        Chart::Map(_) => false,
    });
    if hollow {
        legend.push((Sample::Hollow, DOUBTFUL.to_owned()));
    }
}

/// An axis of values with their intervals, logarithmic where all values are positive and `log` is
/// asked for; its name says which.
pub(super) fn value_axis(label: &str, marks: &[Mark], log: bool, limits: (f64, f64)) -> Axis {
    let means: Vec<f64> = marks.iter().map(|m| m.y).collect();
    let Some((low, high)) = range(&means) else {
        return Axis::linear(label, &means, limits);
    };
    let log = log && low > 0.0;
    let (least, most) = if log {
        (low / STRETCH, high * STRETCH)
    } else {
        let widths: Vec<f64> = marks
            .iter()
            .filter_map(|m| m.span.map(|s| s.1 - s.0))
            .collect();
        let widest = range(&widths).map_or(0.0, |w| w.1);
        let room = (high - low).max(widest * 0.55);
        (low - room, high + room)
    };
    let mut values = means;
    for (a, b) in marks.iter().filter_map(|m| m.span) {
        values.extend([a.max(least).min(low), b.min(most).max(high)]);
    }
    if log {
        Axis::log10(&scaled(label, true), &values)
    } else {
        Axis::linear(label, &values, limits)
    }
}

/// A name with its scale: "trace (loss per squared weight, log scale)".
pub(super) fn scaled(label: &str, log: bool) -> String {
    if !log {
        return label.to_owned();
    }
    match label.strip_suffix(')') {
        Some(rest) => format!("{rest}, log scale)"),
        None => format!("{label} (log scale)"),
    }
}

pub(super) fn panel(x: Axis, y: Axis, heading: String, height: f64, series: Vec<Series>) -> Panel {
    Panel {
        heading,
        x,
        y,
        height,
        series,
        references: Vec::new(),
        lane: Vec::new(),
        lane_name: "",
        sideways: false,
    }
}

pub(super) fn series(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        style,
        marks,
        joined: true,
        pointed: true,
        banded: false,
        dodge: 0.0,
    }
}

/// Points that share a figure: those of one rule, a line a batch, or all of one batch, a line a
/// rule.
pub(super) struct Group {
    /// Ending of the title; empty where there is one group.
    pub(super) title: String,
    /// Ending of the file's name.
    pub(super) ending: String,
    pub(super) legend_title: String,
    pub(super) members: Vec<Member>,
}

/// A line of a figure.
pub(super) struct Member {
    pub(super) rule: usize,
    pub(super) batch: u64,
    pub(super) style: Style,
    pub(super) label: String,
}

pub(super) fn groups(analysis: &ProbeAnalysis, points: &BTreeSet<(usize, u64)>) -> Vec<Group> {
    let rules: BTreeSet<usize> = points.iter().map(|p| p.0).collect();
    let batches: BTreeSet<u64> = points.iter().map(|p| p.1).collect();
    let by_rule = |rule: usize| -> Vec<Member> {
        let all = &analysis.batches;
        let of_rule = points.iter().filter(|p| p.0 == rule);
        of_rule
            .map(|&(rule, batch)| {
                let i = all.iter().position(|&b| b == batch).unwrap_or(0);
                Member {
                    rule,
                    batch,
                    style: palette::ordered(i, all.len()),
                    label: batch.to_string(),
                }
            })
            .collect()
    };
    if batches.len() == 1 && rules.len() > 1 {
        let members = points.iter().map(|&(rule, batch)| Member {
            rule,
            batch,
            style: palette::series(rule),
            label: analysis.rules[rule].clone(),
        });
        return vec![Group {
            title: String::new(),
            ending: String::new(),
            legend_title: rule_legend_title(analysis),
            members: members.collect(),
        }];
    }
    let several = rules.len() > 1;
    let taken = rules.iter().take(MOST_RULES).enumerate();
    taken
        .map(|(i, &rule)| {
            let label = &analysis.rules[rule];
            Group {
                title: if several {
                    format!(": {label}")
                } else {
                    String::new()
                },
                ending: if several {
                    format!("-{}-{}", i + 1, slug(label))
                } else {
                    String::new()
                },
                legend_title: if analysis.compared {
                    "Global batch".to_owned()
                } else {
                    String::new()
                },
                members: by_rule(rule),
            }
        })
        .collect()
}

fn rule_legend_title(analysis: &ProbeAnalysis) -> String {
    match analysis.rule_title.as_str() {
        "" => String::new(),
        title => format!("Rule: {title}"),
    }
}

/// The legend of a group: nothing where there is one run.
pub(super) fn group_legend(
    analysis: &ProbeAnalysis,
    group: &Group,
    sample: fn(Style) -> Sample,
) -> Vec<(Sample, String)> {
    if !analysis.compared {
        return Vec::new();
    }
    let members = group.members.iter();
    members
        .map(|m| (sample(m.style), m.label.clone()))
        .collect()
}

pub(super) fn left_out(
    analysis: &ProbeAnalysis,
    points: &BTreeSet<(usize, u64)>,
    table: &str,
) -> String {
    let rules = points.iter().map(|p| p.0).collect::<BTreeSet<_>>().len();
    if rules > MOST_RULES && analysis.batches.len() > 1 {
        format!(" The other rules are in {table}.")
    } else {
        String::new()
    }
}

/// The matrix whose eigenvalues are drawn.
fn spectrum(analysis: &ProbeAnalysis) -> Option<Probe> {
    let keys = analysis.keys();
    [Probe::Hessian, Probe::GaussNewton]
        .into_iter()
        .find(|&probe| keys.iter().any(|k| k.is(probe, "eigenvalue")))
}

/// Moments at which something was measured.
fn moments(analysis: &ProbeAnalysis) -> Vec<Moment> {
    let has = |m: &Moment| analysis.at(*m).any(|p| p.probed > 0);
    Moment::BOTH.into_iter().filter(has).collect()
}

/// The largest eigenvalues against the batch, a line a rank; at one batch against the rank.
fn eigenvalues(analysis: &ProbeAnalysis) -> Vec<Figure<Chart>> {
    let Some(probe) = spectrum(analysis) else {
        return Vec::new();
    };
    let points: BTreeSet<(usize, u64)> = analysis
        .points
        .iter()
        .filter(|p| p.measured.iter().any(|m| m.key.is(probe, "eigenvalue")))
        .map(|p| (p.rule, p.batch))
        .collect();
    let matrix = probe_name(probe);
    let batches: BTreeSet<u64> = points.iter().map(|p| p.1).collect();
    if batches.len() < 2 {
        return eigenvalues_by_rank(analysis, probe, &points);
    }
    let all = ranks(analysis);
    let groups = groups(analysis, &points);
    let figure = |group: Group| {
        let rule = group.members.first()?.rule;
        let (mut top, mut bottom) = (Vec::new(), Vec::new());
        let mut dropped = 0;
        for moment in moments(analysis) {
            let points = || analysis.at(moment).filter(|p| p.rule == rule);
            let line = |quantity: &str, rank: usize| -> Vec<Mark> {
                let key = ProbeKey {
                    probe,
                    quantity: quantity.to_owned(),
                    scope: String::new(),
                    at: Some(rank as f64),
                };
                let of = |p: &ProbedPoint| mark(p, p.get(&key)?, p.batch as f64, 1.0);
                points().filter_map(of).collect()
            };
            let mut lines = Vec::new();
            for rank in 1..=all {
                let mut marks = line("eigenvalue", rank);
                let before = marks.len();
                marks.retain(|m| m.y > 0.0);
                dropped += before - marks.len();
                // Of neighbouring ranks the bars would lie on each other.
                if rank > 1 {
                    for mark in &mut marks {
                        mark.span = None;
                    }
                }
                let style = palette::ordered(rank - 1, all);
                let pointed = rank == 1 || marks.len() == 1;
                if !pointed {
                    let doubtful = marks.iter().filter(|m| m.hollow).copied();
                    lines.push(Series {
                        joined: false,
                        ..series(style, doubtful.collect())
                    });
                }
                lines.push(Series {
                    pointed,
                    ..series(style, marks)
                });
            }
            let smallest = line("smallest_eigenvalue", 1);
            let at = moment_name(analysis, moment);
            top.push((format!("at {at}"), lines));
            bottom.push((
                format!("smallest at {at} (loss per squared weight)"),
                smallest,
            ));
        }
        let marks = |panels: &[(String, Vec<Series>)]| -> Vec<Mark> {
            let lines = panels.iter().flat_map(|p| &p.1);
            lines.flat_map(|s| s.marks.iter().copied()).collect()
        };
        let label = format!("eigenvalues of the {matrix}");
        let y = value_axis(&label, &marks(&top), true, FREE);
        let columns = top.len();
        let mut panels: Vec<Chart> = Vec::new();
        for (heading, lines) in top {
            let x = Axis::batches(&analysis.batches);
            let heading = scaled(
                &format!("{all} largest {heading} (loss per squared weight)"),
                y.scale == Scale::Log10,
            );
            panels.push(Chart::Panel(panel(x, y.clone(), heading, 300.0, lines)));
        }
        if bottom.iter().any(|(_, marks)| !marks.is_empty()) {
            let marks: Vec<Mark> = bottom.iter().flat_map(|b| b.1.clone()).collect();
            let y = value_axis("smallest eigenvalue", &marks, false, FREE);
            for (heading, marks) in bottom {
                let x = Axis::batches(&analysis.batches);
                let style = Style {
                    colour: INK,
                    ..palette::series(0)
                };
                let mut plot = panel(x, y.clone(), heading, 110.0, vec![series(style, marks)]);
                let ends = [plot.x.low, plot.x.high].map(|x| (x, 0.0));
                plot.references.push((REFERENCE, ends.to_vec()));
                panels.push(Chart::Panel(plot));
            }
        }
        let named = (1..=all).filter(|r| all < 8 || *r == 1 || r % 5 == 0 || *r == all);
        let mut legend: Vec<(Sample, String)> = named
            .map(|rank| {
                let style = palette::ordered(rank - 1, all);
                (Sample::Line(style), format!("rank {rank}"))
            })
            .collect();
        hollow_legend(&panels, &mut legend);
        let mut caption = format!(
            "The {all} largest eigenvalues of the {matrix} of the training loss, a line a rank, and below \
             them the smallest one. Bars are 95 % intervals of λ₁ and of the smallest; those of the other ranks are in \
             the table."
        );
        if dropped > 0 {
            let _ = write!(
                caption,
                " {} not positive and not on the logarithmic axis; they are in the table.",
                plural(dropped, "mean is", "means are")
            );
        }
        caption.push(' ');
        caption.push_str(&shown_at(analysis, &moments(analysis)));
        Some(Figure {
            name: format!("probe-eigenvalues-by-batch{}", group.ending),
            title: format!(
                "Largest eigenvalues of the {matrix} against global batch{}",
                group.title
            ),
            subtitle: subtitle(analysis, interval_words(analysis)),
            caption,
            columns,
            panels,
            legend_title: "Rank from the top, dark to light".to_owned(),
            legend,
        })
    };
    let mut figures: Vec<Figure<Chart>> = groups.into_iter().filter_map(figure).collect();
    if let Some(last) = figures.last_mut() {
        last.caption
            .push_str(&left_out(analysis, &points, "probes.csv"));
    }
    figures
}

fn eigenvalues_by_rank(
    analysis: &ProbeAnalysis,
    probe: Probe,
    points: &BTreeSet<(usize, u64)>,
) -> Vec<Figure<Chart>> {
    let matrix = probe_name(probe);
    let groups = groups(analysis, points);
    let figure = |group: Group| {
        let mut lines: Vec<(Moment, Vec<Series>)> = Vec::new();
        let mut dropped = 0;
        for moment in moments(analysis) {
            let of = |member: &Member| {
                let point = analysis.point(moment, member.rule, member.batch);
                let measured = point.into_iter().flat_map(|point| {
                    let of = point
                        .measured
                        .iter()
                        .filter(|m| m.key.is(probe, "eigenvalue"));
                    of.filter_map(|m| mark(point, m, m.key.at?, 1.0))
                });
                series(member.style, measured.collect())
            };
            let mut of_moment: Vec<Series> = group.members.iter().map(of).collect();
            for line in &mut of_moment {
                let before = line.marks.len();
                line.marks.retain(|m| m.y > 0.0);
                dropped += before - line.marks.len();
            }
            lines.push((moment, of_moment));
        }
        let marks: Vec<Mark> = lines
            .iter()
            .flat_map(|l| &l.1)
            .flat_map(|s| s.marks.iter().copied())
            .collect();
        let xs: Vec<f64> = marks.iter().map(|m| m.x).collect();
        let y = value_axis("eigenvalue", &marks, true, FREE);
        let panels: Vec<Chart> = lines
            .into_iter()
            .map(|(moment, lines)| {
                let heading = format!(
                    "eigenvalue at {} (log scale)",
                    moment_name(analysis, moment)
                );
                let x = Axis::linear("rank from the top", &xs, (0.0, f64::INFINITY));
                Chart::Panel(panel(x, y.clone(), heading, 280.0, lines))
            })
            .collect();
        let mut legend = group_legend(analysis, &group, Sample::Series);
        hollow_legend(&panels, &mut legend);
        let mut caption = format!(
            "The largest eigenvalues of the {matrix} of the training loss against their rank."
        );
        if dropped > 0 {
            let _ = write!(
                caption,
                " {} not positive and not on the logarithmic axis.",
                plural(dropped, "mean is", "means are")
            );
        }
        caption.push(' ');
        caption.push_str(&shown_at(analysis, &moments(analysis)));
        Figure {
            name: format!("probe-eigenvalues-by-rank{}", group.ending),
            title: format!("Largest eigenvalues of the {matrix}{}", group.title),
            subtitle: subtitle(analysis, interval_words(analysis)),
            caption,
            columns: panels.len().max(1),
            panels,
            legend_title: group.legend_title,
            legend,
        }
    };
    groups.into_iter().map(figure).collect()
}

/// Spectral densities, a line a batch; of several seeds the first strong.
fn densities(analysis: &ProbeAnalysis) -> Vec<Figure<Chart>> {
    let points: BTreeSet<(usize, u64)> = analysis
        .densities
        .iter()
        .map(|d| (d.rule, d.batch))
        .collect();
    let groups = groups(analysis, &points);
    let figure = |group: Group| {
        let of = |member: &Member, moment: Moment| -> Vec<&Density> {
            let all = analysis.densities.iter();
            all.filter(|d| (d.rule, d.batch) == (member.rule, member.batch))
                .filter(|d| d.moment == moment)
                .collect()
        };
        let mut panels: Vec<(Moment, Vec<Series>)> = Vec::new();
        let mut seeds = 0;
        for moment in Moment::BOTH {
            let mut lines = Vec::new();
            for faint in [true, false] {
                for member in &group.members {
                    let all = of(member, moment);
                    seeds = seeds.max(all.len());
                    for (i, density) in all.into_iter().enumerate() {
                        if (i > 0) != faint {
                            continue;
                        }
                        let style = Style {
                            faint,
                            ..member.style
                        };
                        lines.extend(density_lines(density, style));
                    }
                }
            }
            if !lines.is_empty() {
                panels.push((moment, lines));
            }
        }
        let marks = || panels.iter().flat_map(|p| &p.1).flat_map(|s| &s.marks);
        let top = marks().map(|m| m.y).fold(0.0, f64::max);
        let heights: Vec<f64> = marks().map(|m| m.y.max(top * DENSITY_DEPTH)).collect();
        let label = "density (per unit of eigenvalue, log scale)";
        let y = Axis::log10(label, &heights);
        let panels: Vec<Chart> = panels
            .into_iter()
            .map(|(moment, lines)| {
                let xs: Vec<f64> = lines
                    .iter()
                    .flat_map(|s| &s.marks)
                    .filter(|m| m.y >= y.low)
                    .map(|m| m.x)
                    .collect();
                let x = Axis::linear(
                    "eigenvalue of the Hessian (loss per squared weight)",
                    &xs,
                    FREE,
                );
                let heading = format!(
                    "density at {} (share per unit of eigenvalue, log scale)",
                    moment_name(analysis, moment)
                );
                Chart::Panel(panel(x, y.clone(), heading, 260.0, lines))
            })
            .collect();
        let mut caption =
            "Density of the eigenvalues of the Hessian of the training loss, by stochastic \
             Lanczos quadrature; it integrates to 1, so one eigenvalue of n counts 1/n."
                .to_owned();
        if seeds > 1 {
            caption.push_str(" The first seed is drawn strong, the others faint.");
        }
        caption.push(' ');
        caption.push_str(&shown_at(analysis, &moments(analysis)));
        Figure {
            name: format!("probe-density{}", group.ending),
            title: format!("Spectral density of the Hessian{}", group.title),
            subtitle: subtitle(analysis, &plural(seeds, "seed", "seeds")),
            caption,
            columns: panels.len().max(1),
            panels,
            legend: group_legend(analysis, &group, Sample::Line),
            legend_title: group.legend_title,
        }
    };
    groups.into_iter().map(figure).collect()
}

/// A density without the places where it is zero, which a logarithmic axis does not have.
fn density_lines(density: &Density, style: Style) -> Vec<Series> {
    density
        .points
        .split(|p| p.1 <= 0.0)
        .filter(|piece| piece.len() > 1)
        .map(|piece| Series {
            pointed: false,
            ..series(style, piece.iter().map(|&(x, y)| plain(x, y)).collect())
        })
        .collect()
}

pub(super) fn plain(x: f64, y: f64) -> Mark {
    Mark {
        x,
        y,
        span: None,
        hollow: false,
    }
}

/// The quantities that stand for curvature and sharpness in figures: the largest eigenvalue, the
/// trace, and of each sharpness the largest radius.
pub(crate) fn chosen(analysis: &ProbeAnalysis) -> Vec<ProbeKey> {
    let keys = analysis.keys();
    let matrix = spectrum(analysis)
        .or_else(|| {
            [Probe::Hessian, Probe::GaussNewton]
                .into_iter()
                .find(|&p| keys.iter().any(|k| k.is(p, "trace")))
        })
        .unwrap_or(Probe::Hessian);
    let first = |probe, quantity: &str| keys.iter().find(|k| k.is(probe, quantity));
    let last = |quantity: &str| keys.iter().rfind(|k| k.is(Probe::Sharpness, quantity));
    let eigenvalue = first(matrix, "eigenvalue").filter(|k| k.at == Some(1.0));
    [
        eigenvalue,
        first(matrix, "trace"),
        last("sharpness_full"),
        last("sharpness_subspace"),
        last("worst_loss_l2"),
        last("gaussian_loss"),
    ]
    .into_iter()
    .flatten()
    .map(|key| (*key).clone())
    .collect()
}

/// The chosen quantities against the batch: a row a quantity, a column a moment.
fn by_batch(analysis: &ProbeAnalysis) -> Option<Figure<Chart>> {
    if analysis.batches.len() < 2 {
        return None;
    }
    let moments = moments(analysis);
    let rules = analysis.rules.len();
    let step = (14.0 / rules as f64).min(4.0);
    let mut panels = Vec::new();
    for key in chosen(analysis) {
        let name = name(&key);
        let lines = |moment: Moment| -> Vec<Series> {
            let of_rule = |rule: usize| {
                let points = analysis.at(moment).filter(|p| p.rule == rule);
                let marks = points
                    .filter_map(|p| mark(p, p.get(&key)?, p.batch as f64, name.factor))
                    .collect();
                Series {
                    dodge: (rule as f64 - (rules - 1) as f64 / 2.0) * step,
                    ..series(palette::series(rule), marks)
                }
            };
            (0..rules).map(of_rule).collect()
        };
        let rows: Vec<(Moment, Vec<Series>)> = moments.iter().map(|&m| (m, lines(m))).collect();
        let marks: Vec<Mark> = rows
            .iter()
            .flat_map(|r| &r.1)
            .flat_map(|s| s.marks.iter().copied())
            .collect();
        let mut y = value_axis(&name.with_unit(), &marks, true, FREE);
        y.label = y.label.replace(", log scale)", ", log)");
        for (moment, lines) in rows {
            let heading = format!("{} at {}", y.label, moment_name(analysis, moment));
            let x = Axis::batches(&analysis.batches);
            panels.push(Chart::Panel(panel(x, y.clone(), heading, 170.0, lines)));
        }
    }
    if panels.is_empty() {
        return None;
    }
    let mut legend: Vec<(Sample, String)> = analysis
        .rules
        .iter()
        .enumerate()
        .map(|(i, label)| (Sample::Series(palette::series(i)), label.clone()))
        .collect();
    hollow_legend(&panels, &mut legend);
    let columns = if moments.len() > 1 {
        " The two columns of a row share their vertical axis."
    } else {
        ""
    };
    let caption = format!(
        "Curvature and sharpness of the training loss against the global batch.{columns} {}",
        shown_at(analysis, &moments)
    );
    let names: Vec<&str> = moments.iter().map(|&m| moment_name(analysis, m)).collect();
    Some(Figure {
        name: "probe-curvature-by-batch".to_owned(),
        title: format!(
            "Curvature and sharpness against global batch, at {}",
            names.join(" and at ")
        ),
        subtitle: subtitle(analysis, interval_words(analysis)),
        caption,
        columns: moments.len(),
        panels,
        legend_title: rule_legend_title(analysis),
        legend,
    })
}

/// The chosen quantities against the generalization gap at one moment.
fn against_gap(analysis: &ProbeAnalysis, moment: Moment) -> Option<Figure<Chart>> {
    let held = split_name(analysis.held_out?);
    let accuracy = analysis.at(moment).any(|p| !p.accuracy_gaps.is_empty());
    let gap = |point: &ProbedPoint| {
        let (gaps, factor) = if accuracy {
            (&point.accuracy_gaps, 100.0)
        } else {
            (&point.loss_gaps, 1.0)
        };
        let values: Vec<f64> = gaps.iter().map(|g| g.1 * factor).collect();
        Estimate::of(&values)
    };
    let gap_label = if accuracy {
        format!("training − {held} accuracy (points)")
    } else {
        format!("{held} − training loss (mean per example)")
    };
    let at = moment_name(analysis, moment);
    let mut panels = Vec::new();
    for key in chosen(analysis) {
        let name = name(&key);
        let mut lines = Vec::new();
        let (mut across, mut places) = (Vec::new(), Vec::new());
        for point in analysis.at(moment) {
            let measured = point.get(&key).and_then(|m| {
                let mark = mark(point, m, 0.0, name.factor)?;
                Some((mark, gap(point)?))
            });
            let Some((measured, gap)) = measured else {
                continue;
            };
            let style = point_style(analysis, point);
            let at = (measured.y, gap.mean);
            across.extend(measured.span.map(|span| Across {
                colour: style.colour,
                at,
                span,
            }));
            places.push(measured);
            let mark = Mark {
                x: at.0,
                y: at.1,
                span: gap.interval().map(|i| (i.low, i.high)),
                hollow: measured.hollow,
            };
            lines.push(Series {
                joined: false,
                ..series(style, vec![mark])
            });
        }
        if lines.len() < 2 {
            continue;
        }
        let x = value_axis(&name.with_unit(), &places, true, FREE);
        let marks: Vec<Mark> = lines.iter().flat_map(|s| s.marks.clone()).collect();
        let y = value_axis(&gap_label, &marks, false, FREE);
        let heading = gap_label.clone();
        panels.push(Chart::Scatter(panel(x, y, heading, 220.0, lines), across));
    }
    if panels.is_empty() {
        return None;
    }
    let several = analysis.batches.len() > 1;
    let mut legend: Vec<(Sample, String)> = Vec::new();
    if several {
        legend.extend(analysis.batches.iter().enumerate().map(|(i, batch)| {
            let style = Style {
                marker: palette::series(0).marker,
                ..palette::ordered(i, analysis.batches.len())
            };
            (Sample::Point(style), format!("batch {batch}"))
        }));
    }
    if analysis.rules.len() > 1 {
        legend.extend(analysis.rules.iter().enumerate().map(|(i, label)| {
            let style = palette::series(i);
            let colour = if several { INK } else { style.colour };
            (Sample::Point(Style { colour, ..style }), label.clone())
        }));
    }
    hollow_legend(&panels, &mut legend);
    let caption = format!(
        "Each point is a batch under a rule. Bars are 95 % intervals, both ways. {} The gap is that at the same \
         update. A measure that depends on the scale of the weights can be changed without changing the model (Dinh et al. 2017).",
        shown_at(analysis, &[moment])
    );
    Some(Figure {
        name: match moment {
            Moment::End => "probe-gap-at-the-end".to_owned(),
            Moment::TrainLoss => "probe-gap-at-equal-loss".to_owned(),
        },
        title: format!("Generalization gap against sharpness, at {at}"),
        subtitle: subtitle(analysis, interval_words(analysis)),
        caption,
        columns: panels.len().min(2),
        panels,
        legend_title: if analysis.rules.len() > 1 {
            rule_legend_title(analysis)
        } else {
            String::new()
        },
        legend,
    })
}

/// Colour by batch, marker by rule; at one batch both by rule.
fn point_style(analysis: &ProbeAnalysis, point: &ProbedPoint) -> Style {
    let by_rule = palette::series(point.rule);
    if analysis.batches.len() < 2 {
        return by_rule;
    }
    let all = &analysis.batches;
    let i = all.iter().position(|&b| b == point.batch).unwrap_or(0);
    Style {
        marker: by_rule.marker,
        ..palette::ordered(i, all.len())
    }
}

/// The chosen quantities over training.
fn over_training(analysis: &ProbeAnalysis) -> Vec<Figure<Chart>> {
    let keys = chosen_over_training(analysis);
    let drawn = |key: &ProbeKey| {
        let key = key.clone();
        analysis
            .courses
            .iter()
            .filter(move |c| c.key == key && c.points.len() > 1)
    };
    let points: BTreeSet<(usize, u64)> = keys
        .iter()
        .flat_map(drawn)
        .map(|c| (c.rule, c.batch))
        .collect();
    let groups = groups(analysis, &points);
    let figure = |group: Group| {
        let mut panels = Vec::new();
        for key in &keys {
            let name = name(key);
            let mut lines = Vec::new();
            for member in &group.members {
                let is = |c: &&ProbeCourse| (c.rule, c.batch) == (member.rule, member.batch);
                let Some(course) = drawn(key).find(is) else {
                    continue;
                };
                let marks = course.points.iter().filter_map(|point| {
                    let span = point.span();
                    Some(Mark {
                        x: point.epoch,
                        y: point.measured.estimate()?.mean * name.factor,
                        span: span.map(|(a, b)| (a * name.factor, b * name.factor)),
                        hollow: point.measured.not_converged() > 0
                            || point.measured.undetermined() > 0,
                    })
                });
                lines.push(Series {
                    banded: true,
                    ..series(member.style, marks.collect())
                });
            }
            let marks: Vec<Mark> = lines.iter().flat_map(|s| s.marks.iter().copied()).collect();
            if marks.is_empty() {
                continue;
            }
            let y = value_axis(&name.with_unit(), &marks, true, FREE);
            let epochs: Vec<f64> = marks.iter().map(|m| m.x).collect();
            let x = Axis::linear("epochs", &epochs, (0.0, f64::INFINITY));
            let heading = y.label.clone();
            panels.push(Chart::Panel(panel(x, y, heading, 200.0, lines)));
        }
        let mut legend = group_legend(analysis, &group, Sample::Series);
        hollow_legend(&panels, &mut legend);
        Figure {
            name: format!("probe-curvature-over-training{}", group.ending),
            title: format!("Curvature and sharpness over training{}", group.title),
            subtitle: subtitle(analysis, "measured on the probes' schedule"),
            caption: "At equal epochs along the horizontal axis. Bands are 95 % intervals over seeds, or of the \
                 estimator where there is one seed."
                .to_owned(),
            columns: panels.len().clamp(1, 2),
            panels,
            legend_title: group.legend_title,
            legend,
        }
    };
    groups
        .into_iter()
        .map(figure)
        .filter(|f| !f.panels.is_empty())
        .collect()
}

/// As [`chosen`], of what was measured over training, whether or not at one of the two moments.
fn chosen_over_training(analysis: &ProbeAnalysis) -> Vec<ProbeKey> {
    let mut keys = chosen(analysis);
    if keys.is_empty() {
        let wanted = |key: &ProbeKey| {
            key.is(Probe::Hessian, "trace")
                || key.is(Probe::Hessian, "eigenvalue") && key.at == Some(1.0)
        };
        for course in &analysis.courses {
            if wanted(&course.key) && !keys.contains(&course.key) {
                keys.push(course.key.clone());
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_values_that_are_not_all_positive_is_linear() {
        let marks = [plain(0.0, 2.0), plain(0.0, -1.0)];
        let axis = value_axis("trace (loss)", &marks, true, FREE);
        assert_eq!(axis.label, "trace (loss)");
        let axis = value_axis("trace (loss)", &marks[..1], true, FREE);
        assert_eq!(axis.label, "trace (loss, log scale)");
    }
}
