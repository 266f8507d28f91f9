//! Figures of the loss along lines and on planes in parameter space.

use std::fmt::Write as _;

use crate::analysis::{LineCurve, LossLine, LossPlane, Moment, ProbeAnalysis, split_name};
use crate::config::Split;

use super::axis::{Axis, range};
use super::figure::{Figure, Mark, Panel, Sample, Series};
use super::map::Map;
use super::palette::{self, Dash, Style};
use super::probe_figures::{Chart, FREE, REFERENCE, panel, plain, scaled, series, value_axis};
use super::probe_words::{moment_name, subtitle};

/// Panels of surfaces in one figure, and figures of lines.
const MOST_SURFACES: usize = 4;
const DASHED: Dash = Some((6.0, 3.0));

/// The loss along lines, and the accuracy beside it.
pub(super) fn lines(analysis: &ProbeAnalysis) -> Vec<Figure<Chart>> {
    let all = analysis.lines.len();
    let mut figures: Vec<Figure<Chart>> = analysis
        .lines
        .iter()
        .take(MOST_SURFACES)
        .enumerate()
        .map(|(i, line)| of_line(analysis, line, i))
        .collect();
    if all > MOST_SURFACES
        && let Some(last) = figures.last_mut()
    {
        last.caption
            .push_str(" The other lines are in probes/line.csv of their trials.");
    }
    figures
}

/// Place, loss and accuracy.
type LinePoint = (f64, f64, Option<f64>);

fn of_line(analysis: &ProbeAnalysis, line: &LossLine, number: usize) -> Figure<Chart> {
    let mut labels: Vec<Option<&str>> = Vec::new();
    for curve in &line.curves {
        if !labels.contains(&curve.label.as_deref()) {
            labels.push(curve.label.as_deref());
        }
    }
    let style = |curve: &LineCurve| {
        let label = curve.label.as_deref();
        let i = labels.iter().position(|l| *l == label).unwrap_or(0);
        Style {
            dash: (curve.split != Split::Train).then_some(DASHED).flatten(),
            ..palette::series(i)
        }
    };
    let mut broken = 0;
    let mut draw = |pick: fn(&LinePoint) -> Option<f64>, factor: f64| {
        let mut lines = Vec::new();
        for curve in &line.curves {
            let points: Vec<(f64, Option<f64>)> = curve
                .points
                .iter()
                .map(|p| (p.0, pick(p).filter(|v| v.is_finite())))
                .collect();
            if points.iter().all(|p| p.1.is_none()) {
                continue;
            }
            broken += points.iter().filter(|p| p.1.is_none()).count();
            for piece in points.split(|p| p.1.is_none()) {
                let marks: Vec<Mark> = piece
                    .iter()
                    .filter_map(|&(x, y)| Some(plain(x, y? * factor)))
                    .collect();
                if !marks.is_empty() {
                    lines.push(Series {
                        pointed: curve.points.len() <= 12 || marks.len() == 1,
                        ..series(style(curve), marks)
                    });
                }
            }
        }
        lines
    };
    let losses = draw(|p| Some(p.1), 1.0);
    let accuracies = draw(|p| p.2, 100.0);
    let mut panels = Vec::new();
    for (label, lines, limits) in [
        ("loss (mean per example)", losses, FREE),
        ("accuracy (%)", accuracies, (0.0, 100.0)),
    ] {
        let marks: Vec<Mark> = lines.iter().flat_map(|s| s.marks.iter().copied()).collect();
        let values: Vec<f64> = marks.iter().map(|m| m.y).collect();
        let Some((low, high)) = range(&values) else {
            continue;
        };
        let log = limits == FREE && low > 0.0 && high > 8.0 * low;
        let y = value_axis(label, &marks, log, limits);
        let xs: Vec<f64> = marks.iter().map(|m| m.x).collect();
        let x = Axis::linear("α, place along the line", &xs, FREE);
        let ends = [0.0, 1.0]
            .into_iter()
            .filter(|e| (x.low..=x.high).contains(e));
        let references = ends
            .map(|end| (REFERENCE, vec![(end, y.low), (end, y.high)]))
            .collect();
        panels.push(Chart::Panel(Panel {
            references,
            ..panel(x, y.clone(), y.label.clone(), 260.0, lines)
        }));
    }
    let legend = line.curves.iter().map(|curve| {
        let split = split_name(curve.split);
        let label = match &curve.label {
            Some(label) => format!("{label}, {split}"),
            None => split.to_owned(),
        };
        (Sample::Line(style(curve)), label)
    });
    let mut legend: Vec<(Sample, String)> = legend.collect();
    legend.push((Sample::Reference(REFERENCE), "α = 0 and α = 1".to_owned()));
    let mut caption = format!(
        "{}: loss{} along the straight line between two sets of weights, which are at α = 0 and α = 1, and beyond \
         them. The weights are those at {}.",
        line.source,
        if panels.len() > 1 {
            " and accuracy"
        } else {
            ""
        },
        moment_name(analysis, Moment::End)
    );
    if broken > 0 {
        caption.push_str(" Where a line is interrupted the loss is not finite.");
    }
    Figure {
        name: if number == 0 {
            "probe-loss-line".to_owned()
        } else {
            format!("probe-loss-line-{}", number + 1)
        },
        title: format!("Loss along the line between two runs: {}", line.source),
        subtitle: subtitle(analysis, "α = 0 is the first, α = 1 the second"),
        caption,
        columns: panels.len().max(1),
        panels,
        legend_title: String::new(),
        legend,
    }
}

/// Losses on planes, all with the same colours.
pub(super) fn planes(analysis: &ProbeAnalysis) -> Option<Figure<Chart>> {
    let shown = &analysis.planes[..analysis.planes.len().min(MOST_SURFACES)];
    let losses: Vec<f64> = shown
        .iter()
        .flat_map(|p| p.losses.iter().copied().flatten())
        .collect();
    let (low, high) = range(&losses)?;
    let log = low > 0.0 && high > 8.0 * low;
    let label = scaled("loss (mean per example)", log);
    let colours = if log {
        Axis::log10_fine(&label, &losses)
    } else {
        Axis::linear(&label, &losses, (low.min(0.0), f64::INFINITY))
    };
    let single = shown.len() == 1;
    let chart = |plane: &LossPlane| {
        let inside = |places: &[f64]| {
            let zero = |w: &[f64]| w[0] <= 0.0 && w[1] >= 0.0;
            places.windows(2).any(zero)
        };
        let centre = inside(&plane.alphas) && inside(&plane.betas);
        Chart::Map(Map {
            heading: if single {
                "β, along the second direction".to_owned()
            } else {
                plane.source.clone()
            },
            x_label: if single {
                "α, along the first direction".to_owned()
            } else {
                "α (horizontal), β (vertical)".to_owned()
            },
            colours: colours.clone(),
            xs: plane.alphas.clone(),
            ys: plane.betas.clone(),
            values: plane.losses.clone(),
            marks: centre.then_some((0.0, 0.0)).into_iter().collect(),
            height: if single { 460.0 } else { 300.0 },
        })
    };
    let panels: Vec<Chart> = shown.iter().map(chart).collect();
    let missing: usize = shown
        .iter()
        .map(|p| p.losses.iter().filter(|l| l.is_none()).count())
        .sum();
    let sources: Vec<&str> = shown.iter().map(|p| p.source.as_str()).collect();
    let mut caption = format!(
        "Loss on a plane through the weights of {}, along two directions normalized filter by filter (Li et al. \
         2018); the white dot is at those weights. A cell of colour is one measured loss; lines are interpolated, at the values \
         of the colour bar. The weights are those at {}.",
        sources.join("; "),
        moment_name(analysis, Moment::End)
    );
    if missing > 0 {
        let _ = write!(
            caption,
            " Grey with a cross: {missing} places without a finite loss."
        );
    }
    if analysis.planes.len() > shown.len() {
        caption.push_str(" The other planes are in probes/plane.csv of their trials.");
    }
    Some(Figure {
        name: "probe-loss-surface".to_owned(),
        title: if single {
            format!("Loss surface: {}", sources[0])
        } else {
            "Loss surfaces".to_owned()
        },
        subtitle: subtitle(analysis, "filter-normalized directions"),
        caption,
        columns: panels.len().min(2),
        panels,
        legend_title: String::new(),
        legend: Vec::new(),
    })
}
