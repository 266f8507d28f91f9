//! Figures of collectives: time against length and against ranks, which algorithm is the fastest where,
//! and measurements beside their model.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use crate::analysis::collectives::{Choice, Collectives, Row, scientific};
use crate::analysis::collectives_measured::{FittedCollectives, MeasuredRow, kind_of};
use crate::analysis::collectives_text::{bytes, rounded, short_name, thinned};
use crate::analysis::numbers::{count, plural};
use crate::theory::collectives::Operation;

use super::axis::{Axis, Scale};
use super::canvas::{Align, Canvas, DrawError};
use super::critical_chart::{Chart, DOTS, line, points};
use super::figure::{
    Figure, Frame, HEADING, Mark, Panel, Plot, Sample, Series, TEXT, TICK, fitted,
};
use super::palette::{self, INK, Marker, Style};
use super::probe_figures::{panel, plain, series};

/// Panels of a figure of time.
const PANELS: usize = 4;
/// Ticks of an axis of powers of two, at most.
const TICKS: i32 = 10;
/// Most algorithms, and their colours beyond the palette.
const KINDS: usize = 8;
const GREY: RGBColor = RGBColor(0x8C, 0x92, 0x99);
const BROWN: RGBColor = RGBColor(0x8A, 0x5A, 0x2B);

/// A figure of this room.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CollectiveFigure {
    Lines(Figure<Chart>),
    Regions(Figure<Regions>),
}

/// Whether a file of this name is a figure of this kind.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with("collectives-")
}

/// Every colour of these figures that a dark page has to turn.
pub(super) fn colours() -> Vec<RGBColor> {
    let ordered = (2..=PANELS).flat_map(|n| (0..n).map(move |i| palette::ordered(i, n).colour));
    (0..KINDS).map(|i| style(i).colour).chain(ordered).collect()
}

/// How an algorithm is drawn, everywhere. Black is left out: it would fill whole regions.
fn style(kind: usize) -> Style {
    let colour = match kind {
        0 => GREY,
        6 => palette::SERIES[0],
        _ => *palette::SERIES.get(kind).unwrap_or(&BROWN),
    };
    Style {
        colour,
        dash: if kind % 2 == 1 {
            Some((7.0, 3.0))
        } else {
            None
        },
        ..palette::series(kind)
    }
}

/// An axis of powers of two around the values.
fn doubling_axis(label: &str, values: &[u64], name: impl Fn(u64) -> String) -> Axis {
    let least = values.iter().min().copied().unwrap_or(1).max(1) as f64;
    let most = values.iter().max().copied().unwrap_or(2).max(2) as f64;
    let (low, high) = (least / 1.5, most * 1.5);
    let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
    let every = ((last - first) / TICKS + 1).max(1);
    let ticks = (first.max(0)..=last)
        .filter(|k| (k - first) % every == 0)
        .map(|k| (2f64.powi(k), name(1 << k)))
        .collect();
    Axis {
        label: label.to_owned(),
        scale: Scale::Log2,
        low,
        high,
        ticks,
    }
}

fn bytes_axis(values: &[u64]) -> Axis {
    doubling_axis("length of the vector (log scale)", values, bytes)
}

fn ranks_axis(values: &[u64]) -> Axis {
    doubling_axis("ranks (log scale)", values, count)
}

fn seconds_axis(values: &[f64]) -> Axis {
    Axis::log10("time (s, log scale)", values)
}

/// Panels beside each other, and their height.
fn layout(panels: usize) -> (usize, f64) {
    match panels {
        0 | 1 => (1, 340.0),
        2..=4 => (2, 240.0),
        _ => (3, 190.0),
    }
}

/// All figures of a table of costs.
pub(super) fn figures(found: &Collectives) -> Vec<CollectiveFigure> {
    let question = &found.question;
    let several = question.operations.len() > 1;
    let mut figures = Vec::new();
    for &operation in &question.operations {
        let name = |what: &str| {
            if several {
                format!("collectives-{what}-{operation}")
            } else {
                format!("collectives-{what}")
            }
        };
        let of = |row: &&Row| row.case.operation == operation && row.time > 0.0;
        let rows: Vec<&Row> = found.rows.iter().filter(of).collect();
        let choices = question.choices(operation);
        if rows.is_empty() {
            continue;
        }
        let mut lines = Vec::new();
        if distinct(&rows, Row::bytes).len() > 1 {
            lines.push(against_bytes(
                found,
                operation,
                &rows,
                &choices,
                name("bytes"),
            ));
        }
        if distinct(&rows, |row| row.case.ranks as u64).len() > 1 {
            lines.push(against_ranks(
                found,
                operation,
                &rows,
                &choices,
                name("ranks"),
            ));
        }
        figures.extend(lines.into_iter().map(CollectiveFigure::Lines));
        let map = fastest(found, operation, &rows, &choices, name("fastest"));
        figures.extend(map.map(CollectiveFigure::Regions));
        let slowed = disturbed(found, operation, &rows, &choices, name("disturbed"));
        figures.extend(slowed.map(CollectiveFigure::Lines));
    }
    figures
}

/// The values of all rows, each once, ascending.
fn distinct(rows: &[&Row], of: impl Fn(&Row) -> u64) -> Vec<u64> {
    let mut values: Vec<u64> = rows.iter().map(|row| of(row)).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The model with its parameters.
fn model(found: &Collectives) -> String {
    let network = &found.question.network;
    let parameters: Vec<String> = network
        .parameters()
        .iter()
        .map(|(name, value, unit)| format!("{name} {} {unit}", scientific(*value)))
        .collect();
    format!("model {}: {}", network.name(), parameters.join(", "))
}

fn legend(choices: &[Choice], bound: bool) -> Vec<(Sample, String)> {
    let mut legend: Vec<(Sample, String)> = choices
        .iter()
        .map(|choice| (Sample::Series(style(choice.kind())), choice.to_string()))
        .collect();
    if bound {
        legend.push((Sample::Reference(DOTS), "lower bound".to_owned()));
    }
    legend
}

const CHOSEN: &str = "Trees and chains have the number of children or segments that is best at each point, where none is given.";

fn against_bytes(
    found: &Collectives,
    operation: Operation,
    rows: &[&Row],
    choices: &[Choice],
    name: String,
) -> Figure<Chart> {
    let ranks = thinned(&distinct(rows, |row| row.case.ranks as u64), PANELS);
    let x = bytes_axis(&distinct(rows, Row::bytes));
    let shown = |row: &&Row| ranks.contains(&(row.case.ranks as u64));
    let kept: Vec<&Row> = rows.iter().copied().filter(shown).collect();
    let y = seconds_axis(&heights(&kept));
    let panels = ranks.len();
    let charts = ranks.iter().map(|&ranks| {
        let here: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.case.ranks as u64 == ranks)
            .collect();
        let title = plural(ranks as usize, "rank", "ranks");
        chart(&title, (&x, &y), layout(panels).1, &here, choices, |row| {
            row.bytes() as f64
        })
    });
    let charts: Vec<Chart> = charts.collect();
    Figure {
        name,
        title: format!("Time of {operation} against the length of the vector"),
        subtitle: model(found),
        caption: format!(
            "What the model says of each algorithm at fixed numbers of ranks; {} in all are in collectives.csv. {CHOSEN}",
            plural(
                distinct(rows, |row| row.case.ranks as u64).len(),
                "number of ranks",
                "numbers of ranks"
            )
        ),
        columns: layout(charts.len()).0,
        panels: charts,
        legend_title: String::new(),
        legend: legend(choices, rows.iter().any(|row| row.bounds.is_some())),
    }
}

fn against_ranks(
    found: &Collectives,
    operation: Operation,
    rows: &[&Row],
    choices: &[Choice],
    name: String,
) -> Figure<Chart> {
    let lengths = thinned(&distinct(rows, Row::bytes), PANELS);
    let x = ranks_axis(&distinct(rows, |row| row.case.ranks as u64));
    let kept: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| lengths.contains(&row.bytes()))
        .collect();
    let charts: Vec<Chart> = lengths
        .iter()
        .map(|&length| {
            let here: Vec<&Row> = kept
                .iter()
                .copied()
                .filter(|row| row.bytes() == length)
                .collect();
            // Lengths are orders of magnitude apart: each has an axis of its own.
            let y = seconds_axis(&heights(&here));
            let height = layout(lengths.len()).1;
            chart(&bytes(length), (&x, &y), height, &here, choices, |row| {
                row.case.ranks as f64
            })
        })
        .collect();
    Figure {
        name,
        title: format!("Time of {operation} against the number of ranks"),
        subtitle: model(found),
        caption: format!(
            "What the model says of each algorithm at fixed lengths of the vector; each panel has its own scale of time. {CHOSEN}"
        ),
        columns: layout(charts.len()).0,
        panels: charts,
        legend_title: String::new(),
        legend: legend(choices, rows.iter().any(|row| row.bounds.is_some())),
    }
}

fn heights(rows: &[&Row]) -> Vec<f64> {
    let bounds = rows.iter().filter_map(|row| row.bound());
    rows.iter().map(|row| row.time).chain(bounds).collect()
}

/// One line an algorithm, and the lower bound.
fn chart(
    title: &str,
    axes: (&Axis, &Axis),
    height: f64,
    rows: &[&Row],
    choices: &[Choice],
    at: impl Fn(&Row) -> f64,
) -> Chart {
    let of = |choice: &Choice| -> Series {
        let marks: Vec<Mark> = rows
            .iter()
            .filter(|row| row.choice == *choice)
            .map(|row| plain(at(row), row.time))
            .collect();
        let style = style(choice.kind());
        // Markers on every point of a dense line would hide it.
        if marks.len() > 14 {
            line(style, marks)
        } else {
            series(style, marks)
        }
    };
    let drawn = choices.iter().map(of).collect();
    let heading = axes.1.label.clone();
    let mut bound: Vec<(f64, f64)> = rows
        .iter()
        .filter_map(|row| Some((at(row), row.bound().filter(|b| *b > 0.0)?)))
        .collect();
    bound.dedup();
    let mut panel = panel(axes.0.clone(), axes.1.clone(), heading, height, drawn);
    if bound.len() > 1 {
        panel.references.push((DOTS, bound));
    }
    Chart::of(title, panel)
}

/// How many times longer the disturbed simulation takes, at the numbers of ranks that were simulated.
fn disturbed(
    found: &Collectives,
    operation: Operation,
    rows: &[&Row],
    choices: &[Choice],
    name: String,
) -> Option<Figure<Chart>> {
    let of = |row: &&Row| row.disturbed.is_some();
    let rows: Vec<&Row> = rows.iter().copied().filter(of).collect();
    let lengths = distinct(&rows, Row::bytes);
    let disturbed = found.question.disturbed?;
    if lengths.len() < 2 {
        return None;
    }
    let mark = |row: &Row| {
        let estimate = row.disturbed?;
        let interval = estimate.interval();
        Some(Mark {
            span: interval.map(|i| (i.low / row.time, i.high / row.time)),
            ..plain(row.bytes() as f64, estimate.mean / row.time)
        })
    };
    let ranks = thinned(&distinct(&rows, |row| row.case.ranks as u64), PANELS);
    let x = bytes_axis(&lengths);
    let ratios: Vec<f64> = rows
        .iter()
        .filter_map(|row| mark(row))
        .flat_map(|mark| {
            let (low, high) = mark.span.unwrap_or((mark.y, mark.y));
            [mark.y, low, high]
        })
        .chain([1.0])
        .collect();
    let y = Axis::log10_fine("disturbed over undisturbed time (log scale)", &ratios);
    let (columns, height) = layout(ranks.len());
    let chart = |&ranks: &u64| {
        let of = |choice: &Choice| -> Series {
            let marks = rows
                .iter()
                .filter(|row| row.choice == *choice && row.case.ranks as u64 == ranks)
                .filter_map(|row| mark(row));
            series(style(choice.kind()), marks.collect())
        };
        let drawn = choices.iter().map(of).collect();
        let heading = y.label.clone();
        let mut panel = panel(x.clone(), y.clone(), heading, height, drawn);
        panel
            .references
            .push((None, vec![(x.low, 1.0), (x.high, 1.0)]));
        Chart::of(&plural(ranks as usize, "rank", "ranks"), panel)
    };
    let panels: Vec<Chart> = ranks.iter().map(chart).collect();
    let mut what = Vec::new();
    if disturbed.jitter > 0.0 {
        what.push(format!(
            "each message takes exponentially distributed seconds longer, {:e} s in the mean",
            disturbed.jitter
        ));
    }
    if let Some(link) = disturbed.slow_link {
        what.push(format!(
            "the link between ranks {} and {} is {} times slower",
            link.ranks.0, link.ranks.1, link.factor
        ));
    }
    Some(Figure {
        name,
        title: format!("How much longer {operation} takes when disturbed"),
        subtitle: what.join("; "),
        caption: "Event simulation with the disturbance over the time without: means over seeds with 95 % intervals of \
                  the mean. Only cases that are simulated are shown."
            .to_owned(),
        columns,
        panels,
        legend_title: String::new(),
        legend: legend(choices, false),
    })
}

/// Which algorithm is the fastest, by length and ranks.
fn fastest(
    found: &Collectives,
    operation: Operation,
    rows: &[&Row],
    choices: &[Choice],
    name: String,
) -> Option<Figure<Regions>> {
    let (xs, ys) = (
        distinct(rows, Row::bytes),
        distinct(rows, |row| row.case.ranks as u64),
    );
    if xs.len() < 2 || ys.len() < 2 || choices.len() < 2 {
        return None;
    }
    let mut winners = Vec::with_capacity(xs.len() * ys.len());
    for &y in &ys {
        for &x in &xs {
            let here = |row: &&&Row| row.fastest && row.bytes() == x && row.case.ranks as u64 == y;
            winners.push(rows.iter().find(here).map(|row| row.choice.kind()));
        }
    }
    let legend = choices
        .iter()
        .filter(|choice| winners.contains(&Some(choice.kind())))
        .map(|choice| (Sample::Point(swatch(choice.kind())), choice.to_string()))
        .collect();
    Some(Figure {
        name,
        title: format!("The fastest algorithm for {operation}"),
        subtitle: model(found),
        caption: "The algorithm that takes least in the model, of those compared; of several that take equally long, the \
                  first in the legend. crossovers.csv has the lengths at which it changes."
            .to_owned(),
        columns: 1,
        panels: vec![Regions {
            xs,
            ys,
            winners,
            height: 330.0,
        }],
        legend_title: String::new(),
        legend,
    })
}

fn swatch(kind: usize) -> Style {
    Style {
        marker: Marker::Square,
        ..style(kind)
    }
}

/// A grid of lengths and ranks, each cell in the colour of an algorithm.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Regions {
    /// Lengths in bytes, ascending, two at least.
    xs: Vec<u64>,
    /// Ranks, ascending, two at least.
    ys: Vec<u64>,
    /// The kind of algorithm at `[y * xs.len() + x]`.
    winners: Vec<Option<usize>>,
    height: f64,
}

/// Shares of an axis at which the cells of values begin and end, midway in the logarithm.
fn edges(values: &[u64]) -> Vec<f64> {
    let places: Vec<f64> = values.iter().map(|v| (*v as f64).log2()).collect();
    let n = places.len();
    let mut edges = vec![places[0] - (places[1] - places[0]) / 2.0];
    edges.extend(places.windows(2).map(|w| f64::midpoint(w[0], w[1])));
    edges.push(places[n - 1] + (places[n - 1] - places[n - 2]) / 2.0);
    let (low, high) = (edges[0], edges[n]);
    edges.iter().map(|e| (e - low) / (high - low)).collect()
}

impl Plot for Regions {
    fn height(&self) -> f64 {
        self.height
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        cell: Frame,
    ) -> Result<(), DrawError> {
        let plot = Frame {
            left: cell.left + 56.0,
            top: cell.top + HEADING,
            width: cell.width - 66.0,
            height: self.height,
        };
        let at = (cell.left, cell.top + 14.0);
        canvas.text("ranks (log scale)", at, TEXT, INK, Align::Left)?;
        let (columns, rows) = (edges(&self.xs), edges(&self.ys));
        let x_of = |share: f64| plot.left + share * plot.width;
        let y_of = |share: f64| plot.bottom() - share * plot.height;
        for (y, row) in self.winners.chunks(self.xs.len()).enumerate() {
            let mut x = 0;
            while x < row.len() {
                let start = x;
                while x < row.len() && row[x] == row[start] {
                    x += 1;
                }
                let Some(kind) = row[start] else {
                    continue;
                };
                let (left, right) = (x_of(columns[start]), x_of(columns[x]));
                let (bottom, top) = (y_of(rows[y]), y_of(rows[y + 1]));
                let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
                canvas.polygon(&corners, style(kind).colour, 1.0)?;
            }
        }
        let mut x_axis = bytes_axis(&self.xs);
        let middle = |edges: &[f64], i: usize| f64::midpoint(edges[i], edges[i + 1]);
        // Ticks at the values themselves.
        x_axis.ticks = self.xs.iter().map(|v| (*v as f64, bytes(*v))).collect();
        x_axis.thin_labels(plot.width, TICK);
        let base = plot.bottom();
        for (i, (_, label)) in x_axis.ticks.iter().enumerate() {
            let x = x_of(middle(&columns, i));
            canvas.line(&[(x, base), (x, base + 4.0)], INK, 1.0, None)?;
            canvas.text(label, (x, base + 14.0), TICK, INK, Align::Centre)?;
        }
        let mut last = f64::INFINITY;
        for (i, ranks) in self.ys.iter().enumerate() {
            let y = y_of(middle(&rows, i));
            canvas.line(&[(plot.left - 4.0, y), (plot.left, y)], INK, 1.0, None)?;
            if last - y >= 13.0 {
                let label = fitted(&count(*ranks), TICK, 48.0);
                canvas.text(&label, (plot.left - 7.0, y), TICK, INK, Align::Right)?;
                last = y;
            }
        }
        let frame = [
            (plot.left, plot.top),
            (plot.right(), plot.top),
            (plot.right(), base),
            (plot.left, base),
            (plot.left, plot.top),
        ];
        canvas.line(&frame, INK, 1.0, None)?;
        let at = (plot.left + plot.width / 2.0, base + 34.0);
        canvas.text(&x_axis.label, at, TEXT, INK, Align::Centre)
    }
}

/// All figures of a measurement.
pub(super) fn measured_figures(found: &FittedCollectives) -> Vec<CollectiveFigure> {
    let mut operations: Vec<Operation> = found.rows.iter().map(MeasuredRow::operation).collect();
    operations.sort_unstable();
    operations.dedup();
    let mut figures: Vec<CollectiveFigure> = operations
        .into_iter()
        .filter_map(|operation| measured(found, operation))
        .map(CollectiveFigure::Lines)
        .collect();
    figures.extend(against_model(found).map(CollectiveFigure::Lines));
    figures
}

fn costs(found: &FittedCollectives) -> String {
    let names = ["alpha", "beta", "gamma"];
    let told: Vec<String> = (0..3)
        .filter(|i| found.fit.determined[*i])
        .map(|i| {
            let unit = if i == 0 { "s" } else { "s/B" };
            format!("{} {} {unit}", names[i], rounded(found.fit.costs[i], 2))
        })
        .collect();
    let crowded = if found.oversubscribed() {
        "; more ranks than cores"
    } else {
        ""
    };
    format!("fitted: {}{crowded}", told.join(", "))
}

/// A panel for each algorithm: measured points, and the model as a line.
fn measured(found: &FittedCollectives, operation: Operation) -> Option<Figure<Chart>> {
    let rows: Vec<&MeasuredRow> = found
        .rows
        .iter()
        .filter(|row| row.operation() == operation)
        .collect();
    let lengths: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
    let mut ranks: Vec<usize> = rows.iter().map(|row| row.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut kinds: Vec<(usize, String)> = Vec::new();
    for row in &rows {
        let kind = row.case.map_or(KINDS, |case| kind_of(case.algorithm));
        let name = row.case.map_or_else(
            || found.measurement.native.clone(),
            |case| short_name(case.algorithm).to_owned(),
        );
        if !kinds.iter().any(|known| known.0 == kind) {
            kinds.push((kind, name));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let x = bytes_axis(&lengths);
    let values = rows.iter().flat_map(|row| {
        let (low, high) = row.quartiles;
        [low, high, row.median, row.predicted.unwrap_or(row.median)]
    });
    let y = seconds_axis(&values.collect::<Vec<f64>>());
    let (columns, height) = layout(kinds.len());
    let of_ranks = |i: usize| {
        if ranks.len() == 1 {
            palette::series(0)
        } else {
            palette::ordered(i, ranks.len())
        }
    };
    let chart = |(kind, name): &(usize, String)| {
        let mut drawn = Vec::new();
        for (i, &ranks) in ranks.iter().enumerate() {
            let here = rows.iter().filter(|row| {
                row.ranks == ranks
                    && row.case.map_or(KINDS, |case| kind_of(case.algorithm)) == *kind
            });
            let style = of_ranks(i);
            let (mut model, mut marks) = (Vec::new(), Vec::new());
            for row in here {
                let at = row.bytes as f64;
                model.extend(row.predicted.map(|p| plain(at, p)));
                marks.push(Mark {
                    span: Some(row.quartiles),
                    ..plain(at, row.median)
                });
            }
            drawn.push(line(style, model));
            drawn.push(points(style, marks));
        }
        let heading = y.label.clone();
        Chart::of(name, panel(x.clone(), y.clone(), heading, height, drawn))
    };
    let panels: Vec<Chart> = kinds.iter().map(chart).collect();
    let mut legend = Vec::new();
    for (i, ranks) in ranks.iter().enumerate() {
        let name = plural(*ranks, "rank", "ranks");
        legend.push((Sample::Point(of_ranks(i)), format!("{name}, measured")));
        legend.push((Sample::Line(of_ranks(i)), format!("{name}, model")));
    }
    Some(Figure {
        name: format!("collectives-measured-{operation}"),
        title: format!("{operation}: model and measurement"),
        subtitle: costs(found),
        caption: "Points are medians over the repetitions with their quartiles; lines are the closed forms with the fitted \
                  costs, the same for all algorithms."
            .to_owned(),
        columns,
        panels,
        legend_title: String::new(),
        legend,
    })
}

/// Every case: what the model says against what was measured.
fn against_model(found: &FittedCollectives) -> Option<Figure<Chart>> {
    let rows: Vec<(usize, &MeasuredRow, f64)> = found
        .rows
        .iter()
        .filter_map(|row| Some((kind_of(row.case?.algorithm), row, row.predicted?)))
        .collect();
    let all: Vec<f64> = rows
        .iter()
        .flat_map(|(_, row, p)| [row.median, *p])
        .collect();
    let mut x = Axis::log10("measured (s, log scale)", &all);
    let y = Axis::log10("model (s, log scale)", &all);
    x.thin_labels(700.0, TICK);
    let (mut drawn, mut legend) = (Vec::new(), Vec::new());
    for kind in 0..KINDS {
        let marks: Vec<Mark> = rows
            .iter()
            .filter(|(k, _, _)| *k == kind)
            .map(|(_, row, p)| plain(row.median, *p))
            .collect();
        let name = rows
            .iter()
            .find(|(k, _, _)| *k == kind)
            .and_then(|(_, row, _)| Some(short_name(row.case?.algorithm)));
        if let Some(name) = name {
            legend.push((Sample::Point(style(kind)), name.to_owned()));
            drawn.push(points(style(kind), marks));
        }
    }
    if drawn.is_empty() {
        return None;
    }
    let heading = y.label.clone();
    let ends = (x.low, x.high);
    let mut panel: Panel = panel(x, y, heading, 380.0, drawn);
    let diagonal = |factor: f64| vec![(ends.0, ends.0 * factor), (ends.1, ends.1 * factor)];
    panel.references.push((None, diagonal(1.0)));
    panel.references.push((DOTS, diagonal(2.0)));
    panel.references.push((DOTS, diagonal(0.5)));
    legend.push((Sample::Reference(None), "equal".to_owned()));
    legend.push((Sample::Reference(DOTS), "twice or half".to_owned()));
    Some(Figure {
        name: "collectives-model".to_owned(),
        title: "Model against measurement, every case".to_owned(),
        subtitle: costs(found),
        caption:
            "Medians over the repetitions. Above the line the model says more than was measured."
                .to_owned(),
        columns: 1,
        panels: vec![Chart::of("", panel)],
        legend_title: String::new(),
        legend,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::collectives::{
        Bounds, Disturbed, Network, PRESETS, Question, collectives, parse_bytes, parse_ranks,
    };
    use crate::analysis::collectives_measured::fitted;
    use crate::analysis::collectives_measured::tests::made;
    use crate::theory::collectives::Power;

    pub(crate) fn asked(ranks: &str, lengths: &str, jitter: bool) -> Collectives {
        collectives(Question {
            operations: vec![Operation::AllReduce],
            choices: Vec::new(),
            ranks: parse_ranks(ranks).unwrap(),
            bytes: parse_bytes(lengths).unwrap(),
            element_bytes: 4,
            network: Network::Hockney(PRESETS[0].hockney),
            source: "a test".to_owned(),
            power: Power::default(),
            simulated: Bounds {
                ranks: 16,
                messages: 5000,
            },
            disturbed: jitter.then_some(Disturbed {
                jitter: 1e-6,
                slow_link: None,
                seeds: 5,
            }),
        })
        .unwrap()
    }

    fn name(figure: &CollectiveFigure) -> &str {
        match figure {
            CollectiveFigure::Lines(figure) => &figure.name,
            CollectiveFigure::Regions(figure) => &figure.name,
        }
    }

    fn names(figures: &[CollectiveFigure]) -> Vec<&str> {
        figures.iter().map(name).collect()
    }

    #[test]
    fn there_is_a_figure_for_each_way_to_look_at_a_table() {
        let all = figures(&asked("2..64", "8..1MiB", true));
        assert_eq!(
            names(&all),
            [
                "collectives-bytes",
                "collectives-ranks",
                "collectives-fastest",
                "collectives-disturbed"
            ]
        );
        assert!(names(&all).into_iter().all(is_name));
        assert_eq!(
            names(&figures(&asked("8", "8..1MiB", false))),
            ["collectives-bytes"]
        );
        assert_eq!(
            names(&figures(&asked("2..8", "1MiB", false))),
            ["collectives-ranks"]
        );
        assert!(figures(&asked("1", "8..1MiB", false)).is_empty());
    }

    #[test]
    fn every_figure_can_be_drawn() {
        let mut all = figures(&asked("2..64", "8..1MiB", true));
        all.extend(measured_figures(&fitted(made(0.2)).unwrap()));
        assert_eq!(all.len(), 7);
        for figure in all {
            let svg = match figure {
                CollectiveFigure::Lines(figure) => figure.svg(),
                CollectiveFigure::Regions(figure) => figure.svg(),
            };
            let svg = svg.unwrap();
            assert!(svg.contains("log scale") && !svg.contains("NaN"));
        }
    }

    #[test]
    fn algorithms_have_colours_of_their_own() {
        let colours: Vec<RGBColor> = (0..KINDS).map(|i| style(i).colour).collect();
        for (i, a) in colours.iter().enumerate() {
            assert!(!colours[..i].contains(a) && *a != palette::MUTED);
        }
    }

    #[test]
    fn cells_meet_midway_in_the_logarithm() {
        let shares = edges(&[2, 4, 8]);
        for (share, right) in shares.iter().zip([0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0]) {
            assert!((share - right).abs() < 1e-12);
        }
    }
}
