//! Figures of the critical batch size: steps to target, their price in examples, the best rates, the
//! noise scale, branches, and all estimates beside each other.

use std::fmt::Write as _;

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use crate::analysis::critical_batch::{
    BatchPoint, BranchMoment, Case, CriticalBatch, EstimateRow, Fit, Mean, Noise, NoisePoint,
    Published, SeedPoint, TriedEnd,
};
use crate::analysis::numbers::{count, plural, significant};
use crate::math::statistics::{Estimate, Interval};
use crate::math::steps_fit::{Bound, FitError};

use super::axis::{Axis, range};
use super::canvas::{Align, Canvas, DrawError, text_width};
use super::figure::{
    Figure, Frame, HEADING, Lane, Mark, Panel, Plot, Sample, Series, TEXT, TICK, fitted,
};
use super::palette::{self, Dash, INK, MUTED, Marker, PAPER, Style};
use super::probe_figures::{FREE, REFERENCE, panel, plain, series, value_axis};

/// Dash of a value with its name beside it.
const DOTS: Dash = Some((2.0, 3.0));
/// Dash of a published value.
const PUBLISHED: Dash = Some((9.0, 3.0));
/// Height of the name of a case above its plot, and its size.
const CASE_ROW: f64 = 18.0;
const CASE: f64 = 13.0;
/// Size of texts in a plot.
const NOTE: f64 = 10.5;
/// Rows of crosses below a plot; more than that share one row.
const LANES: usize = 4;
/// Points of a smooth line.
const SMOOTH: usize = 81;
/// How far an asymptote may stretch an axis.
const REACH: f64 = 6.0;

const GEOMETRIC: &str = "geometric mean over seeds";

/// One plot of a figure here: a panel with the name of its case above it and texts in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chart {
    /// The case; empty where there is one.
    title: String,
    panel: Panel,
    notes: Vec<Note>,
    /// Names of points, beside them where there is room.
    labels: Vec<(f64, f64, String)>,
}

/// A text in a plot.
#[derive(Debug, Clone, PartialEq)]
struct Note {
    text: String,
    /// Place in the units of the axes; ends of the axes stand for the edges of the plot.
    at: (f64, f64),
    /// Shift from there, in display units.
    shift: (f64, f64),
    align: Align,
}

/// A rectangle: left, top, right, bottom.
#[derive(Debug, Clone, Copy)]
struct Room(f64, f64, f64, f64);

impl Room {
    fn of_text(text: &str, (x, y): (f64, f64), align: Align) -> Self {
        let width = text_width(text, NOTE);
        let left = match align {
            Align::Left => x,
            Align::Centre => x - width / 2.0,
            Align::Right => x - width,
        };
        Self(left - 1.0, y - 6.5, left + width + 1.0, y + 6.5)
    }

    fn around((x, y): (f64, f64)) -> Self {
        Self(x - 4.0, y - 4.0, x + 4.0, y + 4.0)
    }

    fn meets(&self, other: &Self) -> bool {
        self.0 < other.2 && other.0 < self.2 && self.1 < other.3 && other.1 < self.3
    }

    fn within(&self, frame: Frame) -> bool {
        self.0 >= frame.left
            && self.2 <= frame.right()
            && self.1 >= frame.top
            && self.3 <= frame.bottom()
    }
}

impl Chart {
    fn of(title: &str, panel: Panel) -> Self {
        Self {
            title: title.to_owned(),
            panel,
            notes: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Writes at a corner of the plot.
    fn corner(&mut self, text: impl Into<String>) {
        self.notes.push(Note {
            text: text.into(),
            at: (self.panel.x.high, self.panel.y.high),
            shift: (-6.0, 11.0),
            align: Align::Right,
        });
    }

    /// A vertical line with its name at the top, and its interval shaded.
    fn upright(&mut self, dash: Dash, x: f64, name: &str, interval: Option<Interval>) {
        let axis = (self.panel.x.clone(), self.panel.y.clone());
        let ends = (axis.1.low, axis.1.high);
        self.panel
            .references
            .push((dash, vec![(x, ends.0), (x, ends.1)]));
        if let Some(interval) = interval {
            let (low, high) = within(interval, &axis.0);
            let edge = |x| Mark {
                span: Some(ends),
                ..plain(x, ends.0)
            };
            self.panel.series.push(shade(vec![edge(low), edge(high)]));
        }
        let late = axis.0.position(x) > 0.62;
        if !name.is_empty() && (0.0..=1.0).contains(&axis.0.position(x)) {
            self.notes.push(Note {
                text: name.to_owned(),
                at: (x, ends.1),
                shift: (if late { -5.0 } else { 5.0 }, 10.0),
                align: if late { Align::Right } else { Align::Left },
            });
        }
    }

    /// A horizontal line with its name at the right, and its interval shaded.
    fn level(&mut self, dash: Dash, y: f64, name: &str, interval: Option<Interval>) {
        let axis = (self.panel.x.clone(), self.panel.y.clone());
        let ends = (axis.0.low, axis.0.high);
        self.panel
            .references
            .push((dash, vec![(ends.0, y), (ends.1, y)]));
        if let Some(interval) = interval {
            let span = Some(within(interval, &axis.1));
            let edge = |x| Mark {
                span,
                ..plain(x, y)
            };
            self.panel
                .series
                .push(shade(vec![edge(ends.0), edge(ends.1)]));
        }
        if !name.is_empty() {
            let low = axis.1.position(y) < 0.12;
            self.notes.push(Note {
                text: name.to_owned(),
                at: (ends.1, y),
                shift: (-5.0, if low { -8.0 } else { 8.0 }),
                align: Align::Right,
            });
        }
    }
}

/// Where a panel draws its plot in a cell; only for panels whose lane has the shorter name.
fn frame(panel: &Panel, cell: Frame) -> Frame {
    let labels = panel.y.ticks.iter().map(|t| text_width(&t.1, TICK));
    let name = if panel.lane.is_empty() {
        0.0
    } else {
        text_width(panel.lane_name, 10.0)
    };
    let left = (labels.fold(name, f64::max) + 12.0).clamp(40.0, cell.width * 0.5);
    Frame {
        left: cell.left + left,
        top: cell.top + HEADING,
        width: cell.width - left - 10.0,
        height: panel.height,
    }
}

impl Plot for Chart {
    fn height(&self) -> f64 {
        let title = if self.title.is_empty() { 0.0 } else { CASE_ROW };
        Plot::height(&self.panel) + title
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        cell: Frame,
    ) -> Result<(), DrawError> {
        let mut below = cell;
        if !self.title.is_empty() {
            let title = fitted(&self.title, CASE, cell.width - 4.0);
            canvas.text(&title, (cell.left, cell.top + 10.0), CASE, INK, Align::Left)?;
            below.top += CASE_ROW;
            below.height -= CASE_ROW;
        }
        self.panel.draw(canvas, below)?;
        let plot = frame(&self.panel, below);
        let place = |(x, y): (f64, f64)| {
            (
                plot.left + self.panel.x.position(x) * plot.width,
                plot.bottom() - self.panel.y.position(y) * plot.height,
            )
        };
        let mut taken: Vec<Room> = Vec::new();
        for note in &self.notes {
            let (x, y) = place(note.at);
            let at = (x + note.shift.0, y + note.shift.1);
            let room = Room::of_text(&note.text, at, note.align);
            let corners = [
                (room.0, room.1),
                (room.2, room.1),
                (room.2, room.3),
                (room.0, room.3),
            ];
            canvas.polygon(&corners, PAPER, 0.75)?;
            canvas.text(&note.text, at, NOTE, INK, note.align)?;
            taken.push(room);
        }
        taken.extend(self.labels.iter().map(|l| Room::around(place((l.0, l.1)))));
        // The ends first, so that they are never the ones without a name.
        let n = self.labels.len();
        let order = (0..n.min(1)).chain(n.max(2) - 1..n).chain(1..n.max(2) - 1);
        for (x, y, text) in order.map(|i| &self.labels[i]) {
            let (x, y) = place((*x, *y));
            let free = [
                ((x + 6.0, y - 7.0), Align::Left),
                ((x + 8.0, y), Align::Left),
                ((x, y - 11.0), Align::Centre),
            ]
            .into_iter()
            .map(|(at, align)| (at, align, Room::of_text(text, at, align)))
            .find(|(_, _, room)| room.within(plot) && !taken.iter().any(|t| t.meets(room)));
            if let Some((at, align, room)) = free {
                canvas.text(text, at, NOTE, INK, align)?;
                taken.push(room);
            }
        }
        Ok(())
    }
}

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

/// A number of examples or updates: whole from 100 on, with three digits from 10,000 on, and with at
/// most three below.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "unbounded".to_owned();
    }
    if !(100.0..1e15).contains(&value) {
        let text = significant(value, 3);
        return if text.contains('.') && !text.contains('e') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        };
    }
    let unit = if value < 10_000.0 {
        1.0
    } else {
        10f64.powi(value.log10().floor() as i32 - 2)
    };
    count(((value / unit).round() * unit) as u64)
}

/// The fit of a case, if it has one.
pub(super) fn fit_of(case: &Case) -> Option<&Fit> {
    case.fit.as_ref().ok()
}

/// The seeds of the batch with most of them.
pub(super) fn seeds(critical: &CriticalBatch) -> usize {
    let batches = critical.cases.iter().flat_map(|c| &c.batches);
    batches.map(|b| b.seeds.len()).max().unwrap_or(0)
}

fn all_batches(cases: &[&Case]) -> Vec<u64> {
    let mut batches: Vec<u64> = cases
        .iter()
        .flat_map(|c| &c.batches)
        .map(|b| b.batch)
        .collect();
    batches.sort_unstable();
    batches.dedup();
    batches
}

fn most_moments(critical: &CriticalBatch) -> usize {
    let moments = critical.cases.iter().map(|c| c.branched.len());
    moments.max().unwrap_or(0)
}

/// Panels beside each other, and the height of their plots.
fn layout(panels: usize) -> (usize, f64) {
    match panels {
        0 | 1 => (1, 330.0),
        2..=4 => (2, 230.0),
        _ => (3, 185.0),
    }
}

fn batch_axis(batches: &[u64], panels: usize) -> Axis {
    let mut axis = Axis::batches(batches);
    if panels > 1 {
        "global batch (examples, log scale)".clone_into(&mut axis.label);
    }
    axis
}

/// The finite part of an interval that an axis can place.
fn within(interval: Interval, axis: &Axis) -> (f64, f64) {
    (
        interval.low.max(axis.low * 1e-3),
        interval.high.min(axis.high * 1e3),
    )
}

fn span(interval: Option<Interval>) -> Option<(f64, f64)> {
    interval.map(|i| (i.low, i.high.min(f64::MAX)))
}

fn mean_mark(x: f64, mean: &Mean) -> Mark {
    Mark {
        span: span(mean.interval),
        ..plain(x, mean.value)
    }
}

fn points(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        joined: false,
        ..series(style, marks)
    }
}

fn line(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        pointed: false,
        ..series(style, marks)
    }
}

fn band(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        joined: false,
        pointed: false,
        banded: true,
        ..series(style, marks)
    }
}

fn shade(marks: Vec<Mark>) -> Series {
    let style = Style {
        colour: MUTED,
        ..palette::series(0)
    };
    band(style, marks)
}

fn measured() -> Style {
    palette::series(0)
}

/// The style of single seeds.
fn single() -> Style {
    Style {
        colour: palette::faint(measured().colour),
        ..measured()
    }
}

fn fitted_style() -> Style {
    palette::series(1)
}

/// Values at equal distances in the logarithm, both ends included.
fn grid(low: f64, high: f64) -> impl Iterator<Item = f64> {
    (0..SMOOTH).map(move |i| low * (high / low).powf(i as f64 / (SMOOTH - 1) as f64))
}

fn subtitle(critical: &CriticalBatch, how: &str) -> String {
    match &critical.target {
        Some(target) => format!("{}: {target}; {how}", critical.name),
        None => format!("{}: {how}", critical.name),
    }
}

/// What points and bars are.
fn over_seeds(critical: &CriticalBatch) -> String {
    match seeds(critical) {
        0 | 1 => "one seed, so no interval".to_owned(),
        n => format!("geometric mean and 95 % interval over {n} seeds"),
    }
}

fn to_target(critical: &CriticalBatch) -> String {
    match &critical.target {
        Some(target) => format!(" to the target ({target})"),
        None => " to the target".to_owned(),
    }
}

/// What the points of a figure of measured batches are.
fn points_words(critical: &CriticalBatch) -> String {
    match seeds(critical) {
        0 | 1 => "Points are of one seed, so they have no interval.".to_owned(),
        n => format!(
            "Points are geometric means over {n} seeds with 95 % intervals (Student's t in the logarithm); pale points are \
             single seeds."
        ),
    }
}

fn seeds_legend(critical: &CriticalBatch, legend: &mut Vec<(Sample, String)>) {
    if seeds(critical) > 1 {
        legend.push((
            Sample::Point(measured()),
            format!("{GEOMETRIC}, 95 % interval"),
        ));
        legend.push((Sample::Point(single()), "one seed".to_owned()));
    } else {
        legend.push((Sample::Point(measured()), "measured, one seed".to_owned()));
    }
}

/// The published critical batch size of a case.
fn published(case: &Case, quantity: &str) -> Option<Published> {
    let mut rows = case.estimates.iter();
    rows.find_map(|r| r.published.filter(|_| r.quantity == quantity))
}

fn published_legend(cases: &[&Case], quantity: &str, name: &str) -> Option<(Sample, String)> {
    let found: Vec<Published> = cases
        .iter()
        .filter_map(|c| published(c, quantity))
        .collect();
    let first = found.first()?;
    let label = if found.iter().all(|p| p.source == first.source) {
        format!("published {name}: {}", first.source)
    } else {
        format!("published {name}")
    };
    Some((Sample::Reference(PUBLISHED), label))
}

fn has_label(charts: &[Chart], dash: Dash) -> bool {
    let mut references = charts.iter().flat_map(|c| &c.panel.references);
    references.any(|r| r.0 == dash)
}

/// Rows of crosses: of each what colour, where, how many and of how many; all in one row if there
/// are many.
fn lanes(rows: Vec<(RGBColor, Vec<(f64, usize, usize)>)>) -> Vec<Lane> {
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|(colour, marks)| {
            let kept: Vec<_> = marks.into_iter().filter(|m| m.1 > 0).collect();
            (colour, kept)
        })
        .filter(|r| !r.1.is_empty())
        .collect();
    if rows.len() > LANES {
        let mut marks: Vec<(f64, usize, usize)> = rows.into_iter().flat_map(|r| r.1).collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut merged: Vec<(f64, usize, usize)> = Vec::new();
        for (x, n, of) in marks {
            match merged.last_mut().filter(|m| m.0 == x) {
                Some(last) => *last = (x, last.1 + n, last.2 + of),
                None => merged.push((x, n, of)),
            }
        }
        rows = vec![(MUTED, merged)];
    }
    rows.into_iter()
        .map(|(colour, marks)| Lane {
            colour,
            marks: marks
                .into_iter()
                .map(|(x, n, of)| (x, format!("{n}/{of}")))
                .collect(),
        })
        .collect()
}

/// The means of a case against the batch.
fn means(case: &Case) -> Vec<(f64, &Mean)> {
    let of = |b: &'_ BatchPoint| b.batch as f64;
    case.batches
        .iter()
        .filter_map(|b| Some((of(b), b.steps.as_ref()?)))
        .collect()
}

/// A word on a fit that does not bracket B_crit, or on one that is not there.
fn fit_trouble(case: &Case) -> Option<&'static str> {
    match &case.fit {
        Ok(fit) => match fit.fit.bound? {
            Bound::Above => Some("B_crit: above these batches"),
            Bound::Below => Some("B_crit: below these batches"),
        },
        Err(FitError::TooFewBatches { .. }) => Some("no fit: too few batches"),
        Err(_) => Some("no fit"),
    }
}

/// The fit, where it tells B_crit.
fn bracketed(case: &Case) -> Option<&Fit> {
    fit_of(case).filter(|f| f.fit.bound.is_none())
}

fn b_crit_name(fit: &Fit) -> String {
    format!("B_crit {}", number(fit.fit.b_crit))
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

/// Where seeds did not reach the target.
fn missed(case: &Case) -> Vec<(f64, usize, usize)> {
    let of = |b: &BatchPoint| {
        let missed = b.seeds.iter().filter(|s| s.steps.is_none()).count();
        (b.batch as f64, missed, b.seeds.len())
    };
    case.batches.iter().map(of).collect()
}

/// The interval of a batch in steps and examples: a piece of the line along which both are in
/// proportion.
fn along(style: Style, batch: f64, mean: &Mean, units: (f64, f64)) -> Option<Series> {
    let interval = mean.interval?;
    let place = |steps: f64| plain(steps / units.0, steps * batch / units.1);
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
        lines.extend(
            means
                .iter()
                .filter_map(|(b, m)| along(measured(), *b, m, (1.0, 1.0))),
        );
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
    chart.notes.push(Note {
        text: "B = B_crit: twice the least of both".to_owned(),
        at: (2.0, 2.0),
        shift: (9.0, -9.0),
        align: Align::Left,
    });
    let corner = Style {
        colour: INK,
        marker: Marker::Diamond,
        ..palette::series(0)
    };
    let at_crit = Mark {
        hollow: true,
        ..plain(2.0, 2.0)
    };
    chart.panel.series.push(points(corner, vec![at_crit]));
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

/// The best rate against the batch.
fn best_rates(critical: &CriticalBatch) -> Option<Figure<Chart>> {
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
        let marks: Vec<Mark> = singles.iter().chain(&means).copied().collect();
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
fn rates_searched(critical: &CriticalBatch) -> Option<Figure<Chart>> {
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
        let x = Axis::log10("learning rate (log scale)", &rates);
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
    if trials().any(|t| matches!(t.end, TriedEnd::Censored | TriedEnd::Overtaken)) {
        caption.push_str(
            " A hollow triangle is a trial that had not reached the target when it ended, by its budget or because another rate \
             had won: it needs more updates than that.",
        );
    }
    let best = cases.iter().flat_map(|c| &c.batches).flat_map(|b| &b.seeds);
    if best.clone().any(|s| s.edge) {
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
    Some(Figure {
        name: "critical-rates-searched".to_owned(),
        title: "Updates to the target against the learning rates tried".to_owned(),
        subtitle: subtitle(critical, &plural(seeds(critical), "seed", "seeds")),
        caption,
        columns,
        panels,
        legend_title: "Global batch".to_owned(),
        legend,
    })
}

/// The noise scale over training, with the critical batch size of the sweep.
fn noise(critical: &CriticalBatch) -> Option<Figure<Chart>> {
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
        let run = format!("batch {}, rate {}", noise.batch, significant(noise.rate, 3));
        let heading = if cases.len() > 1 {
            y.label.clone()
        } else {
            format!("{}; run of {run}", y.label)
        };
        let title = match case.label.as_str() {
            "" => String::new(),
            label => format!("{label}: {run}"),
        };
        let mut chart = Chart::of(
            &title,
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
fn branched(critical: &CriticalBatch) -> Vec<Figure<Chart>> {
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
    let crosses = losses.iter().any(|c| !c.panel.lane.is_empty());
    if crosses {
        legend.push((Sample::Cross, "branches that diverged (of all)".to_owned()));
    }
    let mut of_batches: Vec<(Sample, String)> = Vec::new();
    if batches
        .iter()
        .flat_map(|c| &c.panel.series)
        .flat_map(|s| &s.marks)
        .any(|m| m.hollow)
    {
        of_batches.push((
            Sample::Hollow,
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
         the branch that keeps the batch, paired by seed.";
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
fn moment_words(cases: &[&Case], i: usize) -> String {
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
fn above_base(moment: &BranchMoment) -> Vec<Mark> {
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

fn branch_losses(case: &Case, moments: usize, panels: usize, height: f64) -> Chart {
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
    let mut marks: Vec<Mark> = lines.iter().flat_map(|s| s.marks.clone()).collect();
    marks.extend(tolerances.iter().map(|t| plain(1.0, *t)));
    let y = value_axis("loss above the base", &marks, false, FREE);
    let diverged = case.branched.iter().enumerate().map(|(i, moment)| {
        let of = |b: &crate::analysis::critical_batch::Branch| {
            (b.batch as f64, b.diverged, b.losses.len() + b.diverged)
        };
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

fn branch_batches(case: &Case, panels: usize, height: f64) -> Option<Chart> {
    let marks: Vec<Mark> = case
        .branched
        .iter()
        .filter_map(|m| {
            Some(Mark {
                hollow: m.at_least,
                ..mean_mark(m.examples, m.critical.as_ref()?)
            })
        })
        .collect();
    if marks.is_empty() {
        return None;
    }
    let examples: Vec<f64> = marks.iter().map(|m| m.x).collect();
    let (low, high) = range(&examples)?;
    let wide = low > 0.0 && high > 20.0 * low;
    let name = if panels > 2 {
        "examples before"
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
    let lines = vec![series(measured(), marks)];
    let mut chart = Chart::of(&case.label, panel(x, y, heading, height, lines));
    if let Some(fit) = crit {
        let interval = fit.intervals.as_ref().map(|i| i.b_crit);
        chart.level(DOTS, fit.fit.b_crit, &b_crit_name(fit), interval);
    }
    Some(chart)
}

/// A quantity as it is written.
pub(super) fn quantity_name(quantity: &str) -> &str {
    match quantity {
        "b_crit" => "B_crit",
        "b_simple" => "B_simple",
        "b_noise" => "B_noise",
        other => other,
    }
}

fn quantity_style(quantity: &str) -> Style {
    palette::series(match quantity {
        "b_crit" => 0,
        "b_simple" => 1,
        "b_noise" => 2,
        _ => 3,
    })
}

/// All estimates, a row a method.
fn estimates(critical: &CriticalBatch) -> Option<Figure<Chart>> {
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
                let mark = Mark {
                    span: row.interval.map(|i| within(i, &x)),
                    ..plain(value, y)
                };
                lines.push(points(quantity_style(row.quantity), vec![mark]));
            } else {
                notes.push(Note {
                    text: "undetermined".to_owned(),
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
            &case.label,
            Panel {
                sideways: true,
                ..panel(x.clone(), Axis::rows(&names), String::new(), height, lines)
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
        legend.push((Sample::Point(other), "published for this task".to_owned()));
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
