//! Plots of the critical batch size: a panel with the name of its case above it and texts in it.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use crate::analysis::critical_batch::Mean;
use crate::math::statistics::Interval;

use super::axis::Axis;
use super::canvas::{Align, Canvas, DrawError, text_width};
use super::figure::{Frame, HEADING, Lane, Mark, Panel, Plot, Series, TICK, fitted};
use super::palette::{self, Dash, INK, MUTED, Marker, PAPER, Style};
use super::probe_figures::{plain, series};

/// Dash of a value with its name beside it.
pub(super) const DOTS: Dash = Some((2.0, 3.0));
/// Dash of a published value.
pub(super) const PUBLISHED: Dash = Some((9.0, 3.0));
/// Height of the name of a case above its plot, and its size.
pub(super) const CASE_ROW: f64 = 18.0;
pub(super) const CASE: f64 = 13.0;
/// Size of texts in a plot.
pub(super) const NOTE: f64 = 10.5;
/// Rows of crosses below a plot; more than that share one row.
pub(super) const LANES: usize = 4;
/// Points of a smooth line.
pub(super) const SMOOTH: usize = 81;

/// One plot of a figure here: a panel with the name of its case above it and texts in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chart {
    /// The case; empty where there is one.
    pub(super) title: String,
    pub(super) panel: Panel,
    pub(super) notes: Vec<Note>,
    /// Names of points, beside them where there is room.
    pub(super) labels: Vec<(f64, f64, String)>,
}

/// A text in a plot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Note {
    pub(super) text: String,
    /// Place in the units of the axes; ends of the axes stand for the edges of the plot.
    pub(super) at: (f64, f64),
    /// Shift from there, in display units.
    pub(super) shift: (f64, f64),
    pub(super) align: Align,
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

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        self.0 < x && x < self.2 && self.1 < y && y < self.3
    }

    fn within(&self, frame: Frame) -> bool {
        self.0 >= frame.left
            && self.2 <= frame.right()
            && self.1 >= frame.top
            && self.3 <= frame.bottom()
    }
}

impl Chart {
    pub(super) fn of(title: &str, panel: Panel) -> Self {
        Self {
            title: title.to_owned(),
            panel,
            notes: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Writes at a corner of the plot.
    pub(super) fn corner(&mut self, text: impl Into<String>) {
        self.notes.push(Note {
            text: text.into(),
            at: (self.panel.x.high, self.panel.y.high),
            shift: (-6.0, 11.0),
            align: Align::Right,
        });
    }

    /// A vertical line with its name at the top, and its interval shaded.
    pub(super) fn upright(&mut self, dash: Dash, x: f64, name: &str, interval: Option<Interval>) {
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
        if name.is_empty() {
            return;
        }
        let position = axis.0.position(x);
        if !(0.0..=1.0).contains(&position) {
            self.corner(format!("{name}, beyond the plot"));
            return;
        }
        let late = position > 0.62;
        self.notes.push(Note {
            text: name.to_owned(),
            at: (x, ends.1),
            shift: (if late { -5.0 } else { 5.0 }, 10.0),
            align: if late { Align::Right } else { Align::Left },
        });
    }

    /// A horizontal line with its name at the left, and its interval shaded.
    pub(super) fn level(&mut self, dash: Dash, y: f64, name: &str, interval: Option<Interval>) {
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
            let high = axis.1.position(y) > 0.9;
            self.notes.push(Note {
                text: name.to_owned(),
                at: (ends.0, y),
                shift: (5.0, if high { 8.0 } else { -8.0 }),
                align: Align::Left,
            });
        }
    }

    /// Points along the lines of all series, 3 display units from each other or less.
    fn lines(&self, place: impl Fn((f64, f64)) -> (f64, f64)) -> Vec<(f64, f64)> {
        let mut samples = Vec::new();
        for series in self.panel.series.iter().filter(|s| s.joined) {
            for pair in series.marks.windows(2) {
                let [a, b] = [&pair[0], &pair[1]].map(|m| place((m.x, m.y)));
                let length = (b.0 - a.0).hypot(b.1 - a.1);
                let pieces = (length / 3.0).ceil().clamp(1.0, 1000.0);
                samples.extend((0..=pieces as usize).map(|i| {
                    let t = i as f64 / pieces;
                    (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1))
                }));
            }
        }
        samples
    }
}

/// Where a panel draws its plot in a cell; only for panels whose lane has the shorter name.
pub(super) fn frame(panel: &Panel, cell: Frame) -> Frame {
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
            // A long name is set smaller before it is cut.
            let room = cell.width - 4.0;
            let size = CASE * (room / text_width(&self.title, CASE)).clamp(0.77, 1.0);
            let title = fitted(&self.title, size, room);
            canvas.text(&title, (cell.left, cell.top + 10.0), size, INK, Align::Left)?;
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
        let lines = self.lines(place);
        for (x, y, text) in order.map(|i| &self.labels[i]) {
            let (x, y) = place((*x, *y));
            let free: Vec<_> = [
                ((x + 6.0, y - 8.0), Align::Left),
                ((x - 6.0, y - 8.0), Align::Right),
                ((x, y - 12.0), Align::Centre),
                ((x + 6.0, y + 9.0), Align::Left),
                ((x - 6.0, y + 9.0), Align::Right),
                ((x, y + 13.0), Align::Centre),
            ]
            .into_iter()
            .map(|(at, align)| (at, align, Room::of_text(text, at, align)))
            .filter(|(_, _, room)| room.within(plot) && !taken.iter().any(|t| t.meets(room)))
            .collect();
            // Where no place is free of lines, the first will do.
            let clear = free
                .iter()
                .find(|(_, _, room)| !lines.iter().any(|p| room.holds(*p)));
            if let Some(&(at, align, room)) = clear.or(free.first()) {
                canvas.text(text, at, NOTE, INK, align)?;
                taken.push(room);
            }
        }
        Ok(())
    }
}

/// Panels beside each other, and the height of their plots.
pub(super) fn layout(panels: usize) -> (usize, f64) {
    match panels {
        0 | 1 => (1, 330.0),
        2..=4 => (2, 230.0),
        _ => (3, 185.0),
    }
}

pub(super) fn batch_axis(batches: &[u64], panels: usize) -> Axis {
    let mut axis = Axis::batches(batches);
    if panels > 1 {
        "global batch (examples, log scale)".clone_into(&mut axis.label);
    }
    axis
}

/// The finite part of an interval that an axis can place.
pub(super) fn within(interval: Interval, axis: &Axis) -> (f64, f64) {
    (
        interval.low.max(axis.low * 1e-3),
        interval.high.min(axis.high * 1e3),
    )
}

pub(super) fn span(interval: Option<Interval>) -> Option<(f64, f64)> {
    interval.map(|i| (i.low, i.high.min(f64::MAX)))
}

pub(super) fn mean_mark(x: f64, mean: &Mean) -> Mark {
    Mark {
        span: span(mean.interval),
        ..plain(x, mean.value)
    }
}

pub(super) fn points(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        joined: false,
        ..series(style, marks)
    }
}

pub(super) fn line(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        pointed: false,
        ..series(style, marks)
    }
}

pub(super) fn band(style: Style, marks: Vec<Mark>) -> Series {
    Series {
        joined: false,
        pointed: false,
        banded: true,
        ..series(style, marks)
    }
}

pub(super) fn shade(marks: Vec<Mark>) -> Series {
    let style = Style {
        colour: MUTED,
        ..palette::series(0)
    };
    band(style, marks)
}

pub(super) fn measured() -> Style {
    palette::series(0)
}

/// The style of single seeds.
pub(super) fn single() -> Style {
    Style {
        colour: palette::faint(measured().colour),
        ..measured()
    }
}

pub(super) fn fitted_style() -> Style {
    palette::series(1)
}

/// Values at equal distances in the logarithm, both ends included.
pub(super) fn grid(low: f64, high: f64) -> impl Iterator<Item = f64> {
    (0..SMOOTH).map(move |i| low * (high / low).powf(i as f64 / (SMOOTH - 1) as f64))
}

pub(super) fn has_label(charts: &[Chart], dash: Dash) -> bool {
    let mut references = charts.iter().flat_map(|c| &c.panel.references);
    references.any(|r| r.0 == dash)
}

/// Marks of a row of crosses: where, how many, and of how many.
type Counted = Vec<(f64, usize, usize)>;

/// Rows of crosses: of each what colour, where, how many and of how many; all in one row if there
/// are many.
pub(super) fn lanes(rows: Vec<(RGBColor, Counted)>) -> Vec<Lane> {
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

pub(super) fn any_hollow(charts: &[Chart]) -> bool {
    let series = charts.iter().flat_map(|c| &c.panel.series);
    series.flat_map(|s| &s.marks).any(|m| m.hollow)
}

/// The style of a lower bound.
pub(super) fn at_least() -> Style {
    Style {
        marker: Marker::Triangle,
        ..measured()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::super::probe_figures::panel;
    use super::*;

    fn axes() -> (Axis, Axis) {
        let x = Axis::log10("updates (log scale)", &[10.0, 1000.0]);
        let y = Axis::log10("examples (log scale)", &[2e4, 7e6]);
        (x, y)
    }

    fn figure(chart: Chart) -> Figure<Chart> {
        Figure {
            name: "critical-test".to_owned(),
            title: "A test".to_owned(),
            subtitle: String::new(),
            caption: String::new(),
            columns: 1,
            panels: vec![chart],
            legend_title: String::new(),
            legend: Vec::new(),
        }
    }

    /// Numbers of an attribute in the elements of a name, in quarters of a display unit.
    fn attributes(svg: &str, element: &str, name: &str) -> Vec<f64> {
        svg.split(&format!("<{element} "))
            .skip(1)
            .map(|rest| {
                let value = rest.split(&format!("{name}=\"")).nth(1).unwrap();
                value.split('"').next().unwrap().parse().unwrap()
            })
            .collect()
    }

    /// The plot's place is worked out here a second time: a text without a shift is where the point is.
    #[test]
    fn texts_stand_where_points_do() {
        for lane_name in ["", "a name that is longer than every label"] {
            let (x, y) = axes();
            let lines = vec![points(measured(), vec![plain(100.0, 1e6)])];
            let lane = Lane {
                colour: MUTED,
                marks: vec![(50.0, String::new())],
            };
            let panel = Panel {
                lane: Some(lane)
                    .into_iter()
                    .filter(|_| !lane_name.is_empty())
                    .collect(),
                lane_name,
                ..panel(x, y, String::new(), 200.0, lines)
            };
            let mut chart = Chart::of("a case", panel);
            chart.notes.push(Note {
                text: "beside it".to_owned(),
                at: (100.0, 1e6),
                shift: (0.0, 0.0),
                align: Align::Left,
            });
            let svg = figure(chart).svg().unwrap();
            let circle = attributes(&svg, "circle", "cx")[0];
            let text = svg
                .split("<text ")
                .find(|t| t.contains("beside it"))
                .unwrap();
            let text = attributes(&format!("<text {text}"), "text", "x")[0];
            assert!((circle - text).abs() <= 1.0, "{circle} and {text}");
        }
    }

    #[test]
    fn names_of_points_do_not_meet_each_other() {
        let (x, y) = axes();
        let marks: Vec<Mark> = (0..40)
            .map(|i| plain(100.0 * 1.01f64.powi(i), 1e6))
            .collect();
        let mut chart = Chart::of("", panel(x, y, String::new(), 200.0, Vec::new()));
        chart.labels = marks
            .iter()
            .enumerate()
            .map(|(i, m)| (m.x, m.y, format!("point {i}")))
            .collect();
        let svg = figure(chart).svg().unwrap();
        let shown = svg.matches("point ").count();
        assert!((2..20).contains(&shown), "{shown}");
        // The ends have their names before all others.
        assert!(svg.contains("point 0\n") && svg.contains("point 39\n"));
    }

    #[test]
    fn many_rows_of_crosses_become_one() {
        let row = |x: f64| (MUTED, vec![(x, 1, 3), (8.0, 0, 3)]);
        assert_eq!(lanes(vec![row(1.0), row(2.0)]).len(), 2);
        assert_eq!(lanes(vec![(MUTED, vec![(1.0, 0, 3)])]), []);
        let merged = lanes([1.0, 2.0, 2.0, 4.0, 8.0].map(row).to_vec());
        let expected = [(1.0, "1/3"), (2.0, "2/6"), (4.0, "1/3"), (8.0, "1/3")];
        assert_eq!(merged.len(), 1);
        assert_eq!(
            merged[0].marks,
            expected.map(|(x, text)| (x, text.to_owned()))
        );
    }

    #[test]
    fn a_line_beyond_the_plot_is_named_in_the_corner() {
        let (x, y) = axes();
        let mut chart = Chart::of("", panel(x, y, String::new(), 200.0, Vec::new()));
        let open = Interval {
            low: 0.0,
            high: f64::INFINITY,
        };
        chart.upright(DOTS, 1e6, "B_crit 1,000,000", Some(open));
        chart.level(DOTS, 1e5, "E_min", Some(open));
        assert_eq!(chart.notes[0].text, "B_crit 1,000,000, beyond the plot");
        let svg = figure(chart).svg().unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
