//! Figures of the noise scale of the gradient over training.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::analysis::numbers::plural;
use crate::analysis::{NoiseCourse, NoiseWindow, Probe, ProbeAnalysis, ProbeCourse, Quotient};
use crate::math::noise_scale::NoiseParts;

use super::axis::{Axis, range};
use super::figure::{Figure, Lane, Mark, Panel, Sample, Series};
use super::palette::Style;
use super::probe_figures::{
    Chart, FREE, Group, Member, group_legend, groups, left_out, panel, series, value_axis,
};
use super::probe_words::subtitle;

/// Noise scales over training.
pub(super) fn noise(analysis: &ProbeAnalysis) -> Vec<Figure<Chart>> {
    let has = |c: &ProbeCourse| {
        let quantity = c.key.quantity.as_str();
        c.key.probe == Probe::Noise && ["b_simple", "b_noise", "b_simple_adamw"].contains(&quantity)
    };
    let mut points: BTreeSet<(usize, u64)> =
        analysis.noise.iter().map(|c| (c.rule, c.batch)).collect();
    points.extend(
        analysis
            .courses
            .iter()
            .filter(|c| has(c))
            .map(|c| (c.rule, c.batch)),
    );
    let groups = groups(analysis, &points);
    let mut figures: Vec<Figure<Chart>> = groups
        .into_iter()
        .filter_map(|group| noise_figure(analysis, group))
        .collect();
    if let Some(last) = figures.last_mut() {
        last.caption
            .push_str(&left_out(analysis, &points, "noise.csv"));
    }
    figures
}

/// A value over training, or that it has none.
struct Place {
    epoch: f64,
    value: Option<f64>,
    span: Option<(f64, f64)>,
}

fn windows(course: &NoiseCourse, adamw: bool) -> Vec<Place> {
    let of = |window: &NoiseWindow| {
        let parts: NoiseParts = if adamw { window.adamw? } else { window.parts };
        let value = parts.b_simple.value.ok().filter(|v| *v > 0.0);
        let interval = parts.b_simple.interval;
        Some(Place {
            epoch: window.epoch,
            value,
            span: interval.and_then(|i| Some((i.low(), i.high()?))),
        })
    };
    course.windows.iter().filter_map(of).collect()
}

fn probed(analysis: &ProbeAnalysis, member: &Member, quantity: &str) -> Vec<Place> {
    let quotients = analysis.noise_quotients(member.rule, member.batch, quantity);
    if !quotients.is_empty() {
        let place = |q: &Quotient| Place {
            epoch: q.epoch,
            value: q.value.filter(|v| *v > 0.0),
            span: q.span,
        };
        return quotients.iter().map(place).collect();
    }
    let is = |c: &&ProbeCourse| {
        (c.rule, c.batch) == (member.rule, member.batch) && c.key.is(Probe::Noise, quantity)
    };
    let course = analysis.courses.iter().find(is);
    let points = course.into_iter().flat_map(|c| &c.points);
    points
        .map(|point| {
            let mean = point.measured.estimate().map(|e| e.mean);
            Place {
                epoch: point.epoch,
                value: mean.filter(|v| *v > 0.0),
                span: point.span(),
            }
        })
        .collect()
}

/// Lines through the places that have a value, interrupted where one has none.
fn interrupted(places: &[Place], style: Style, banded: bool) -> Vec<Series> {
    let piece = |piece: &[Place]| {
        let marks = piece.iter().filter_map(|p| {
            Some(Mark {
                x: p.epoch,
                y: p.value?,
                span: p.span,
                hollow: false,
            })
        });
        let marks: Vec<Mark> = marks.collect();
        // A band needs two places.
        Series {
            banded: banded && marks.len() > 1,
            ..series(style, marks)
        }
    };
    places
        .split(|p| p.value.is_none())
        .filter(|p| !p.is_empty())
        .map(piece)
        .collect()
}

/// A row of crosses for each member with places that have no value.
fn undetermined(members: &[Member], places: &[Vec<Place>]) -> Vec<Lane> {
    let lanes = members.iter().zip(places).map(|(member, places)| Lane {
        colour: member.style.colour,
        marks: places
            .iter()
            .filter(|p| p.value.is_none())
            .map(|p| (p.epoch, String::new()))
            .collect(),
    });
    lanes.filter(|lane| !lane.marks.is_empty()).collect()
}

fn noise_figure(analysis: &ProbeAnalysis, group: Group) -> Option<Figure<Chart>> {
    let course = |member: &Member| {
        let mut all = analysis.noise.iter();
        all.find(|c| (c.rule, c.batch) == (member.rule, member.batch))
    };
    let members = &group.members;
    let of_windows = |adamw: bool| -> Vec<Vec<Place>> {
        let of = |m: &Member| course(m).map_or_else(Vec::new, |c| windows(c, adamw));
        members.iter().map(of).collect()
    };
    let of_probe = |quantity: &str| -> Vec<Vec<Place>> {
        members
            .iter()
            .map(|m| probed(analysis, m, quantity))
            .collect()
    };
    let filled = |places: &[Vec<Place>]| places.iter().any(|p| !p.is_empty());
    let kinds = [
        (
            "B_simple from two batch sizes a step",
            of_windows(false),
            true,
        ),
        (
            "B_simple from the gradients of examples",
            of_probe("b_simple"),
            false,
        ),
        (
            "B_noise, weighted by the Hessian",
            of_probe("b_noise"),
            false,
        ),
        (
            "B_simple in AdamW's metric, two batch sizes",
            of_windows(true),
            true,
        ),
        (
            "B_simple in AdamW's metric, examples",
            of_probe("b_simple_adamw"),
            false,
        ),
    ];
    let mut panels: Vec<Panel> = Vec::new();
    for (title, places, banded) in &kinds {
        if !filled(places) {
            continue;
        }
        let lines: Vec<Series> = members
            .iter()
            .zip(places)
            .flat_map(|(member, places)| interrupted(places, member.style, *banded))
            .collect();
        let lane = undetermined(members, places);
        let x = Axis::linear("epochs", &[], FREE);
        let heading = format!("{title} (examples, log scale)");
        panels.push(Panel {
            lane,
            lane_name: "undetermined",
            ..panel(x.clone(), x, heading, 230.0, lines)
        });
    }
    // All panels share both axes.
    let marks: Vec<Mark> = panels
        .iter()
        .flat_map(|p| &p.series)
        .flat_map(|s| s.marks.iter().copied())
        .collect();
    let all = || kinds.iter().flat_map(|k| &k.1).flatten();
    let epochs: Vec<f64> = all().map(|p| p.epoch).collect();
    range(&epochs)?;
    let y = if marks.is_empty() {
        Axis::log10("noise scale (examples, log scale)", &[])
    } else {
        value_axis("noise scale (examples)", &marks, true, FREE)
    };
    for panel in &mut panels {
        panel.x = Axis::linear("epochs", &epochs, (0.0, f64::INFINITY));
        panel.y = y.clone();
    }
    let missing = all().any(|p| p.value.is_none());
    let mut legend = group_legend(analysis, &group, Sample::Series);
    if missing {
        legend.push((Sample::Cross, "undetermined".to_owned()));
    }
    let seeds = members.iter().filter_map(course).map(|c| c.seeds).max();
    let mut caption = String::from(
        "The noise scale of the gradient over training, at equal epochs along the horizontal axis. ",
    );
    if let Some(seeds) = seeds {
        let _ = write!(
            caption,
            "Bands: each window averages tr Σ and |G|² over its steps{} before the quotient is taken, with Fieller's 95 % \
             interval from a jackknife over blocks of steps. ",
            if seeds > 1 { " and seeds" } else { "" }
        );
    }
    if kinds[1..3].iter().any(|k| filled(&k.1)) {
        caption.push_str(
            "Bars: 95 % intervals over seeds, or of the estimator where there is one seed. ",
        );
    }
    if missing {
        caption.push_str(
            "A cross below the plot: |G|² cannot be told from zero there, or tr Σ is not positive, so that the noise scale \
             has no value; the line is interrupted. ",
        );
    }
    let panels: Vec<Chart> = panels.into_iter().map(Chart::Panel).collect();
    Some(Figure {
        name: format!("probe-noise-scale{}", group.ending),
        title: format!("Noise scale of the gradient over training{}", group.title),
        subtitle: subtitle(
            analysis,
            &seeds.map_or_else(
                || "means over seeds".to_owned(),
                |n| plural(n, "seed", "seeds"),
            ),
        ),
        caption: caption.trim_end().to_owned(),
        columns: panels.len().clamp(1, 2),
        panels,
        legend_title: group.legend_title,
        legend,
    })
}

#[cfg(test)]
mod tests {
    use super::super::palette;
    use super::*;

    #[test]
    fn a_line_is_interrupted_where_it_has_no_value() {
        let place = |epoch, value| Place {
            epoch,
            value,
            span: None,
        };
        let places = [
            place(0.0, Some(1.0)),
            place(1.0, Some(2.0)),
            place(2.0, None),
            place(3.0, Some(4.0)),
        ];
        let lines = interrupted(&places, palette::series(0), true);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].marks.len(), lines[1].marks.len()), (2, 1));
    }
}
