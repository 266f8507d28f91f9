//! A figure: panels side by side, one legend below them, drawn alike as SVG and PNG.

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use super::ReportError;
use super::axis::Axis;
use super::canvas::{self, Align, Canvas, DrawError, text_width};
use super::palette::{Dash, GRID, INK, MUTED, Marker, Style};

/// Width of every figure, in display units.
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;
const TITLE: f64 = 17.0;
pub(crate) const TEXT: f64 = 12.0;
pub(crate) const TICK: f64 = 11.0;
const NOTE: f64 = 10.0;
/// Space above a panel's plot, for the name of its vertical axis.
pub(crate) const HEADING: f64 = 30.0;
/// Space below a panel's plot, for tick labels and the name of its horizontal axis.
const FOOTING: f64 = 50.0;
const LANE_ROW: f64 = 15.0;
const LEGEND_ROW: f64 = 19.0;
const MARKER: f64 = 3.9;

/// A figure of plots of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure<P = Panel> {
    /// File name without its ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// What the page says below it.
    pub(crate) caption: String,
    /// Panels in a row.
    pub(crate) columns: usize,
    pub(crate) panels: Vec<P>,
    pub(crate) legend_title: String,
    pub(crate) legend: Vec<(Sample, String)>,
}

/// A figure as SVG text, with what the page says of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) name: String,
    pub(crate) caption: String,
    pub(crate) svg: String,
}

/// What a figure is made of.
pub(crate) trait Plot {
    /// Height of the plot, with what stands between it and its horizontal axis.
    fn height(&self) -> f64;

    /// Draws heading, plot and axes into a cell of the figure.
    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<B>, cell: Frame)
    -> Result<(), DrawError>;
}

/// A horizontal interval through a mark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Across {
    pub(crate) colour: RGBColor,
    /// The place of the mark.
    pub(crate) at: (f64, f64),
    /// Ends of the interval.
    pub(crate) span: (f64, f64),
}

/// What stands beside a label in the legend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sample {
    /// A line with its marker.
    Series(Style),
    /// A line without markers.
    Line(Style),
    /// A marker without a line.
    Point(Style),
    /// A reference line.
    Reference(Dash),
    /// A hollow marker.
    Hollow,
    /// A cross.
    Cross,
}

/// One plot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    /// Name of the vertical axis, with its unit; stands above the plot.
    pub(crate) heading: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Height of the plot.
    pub(crate) height: f64,
    pub(crate) series: Vec<Series>,
    /// Reference lines, drawn below everything.
    pub(crate) references: Vec<(Dash, Vec<(f64, f64)>)>,
    /// Rows of crosses below the plot: what did not end well, where.
    pub(crate) lane: Vec<Lane>,
    /// What the crosses stand for.
    pub(crate) lane_name: &'static str,
    /// Whether the spans of marks are horizontal.
    pub(crate) sideways: bool,
}

/// A row of crosses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lane {
    pub(crate) colour: RGBColor,
    /// Where, and what to say of it.
    pub(crate) marks: Vec<(f64, String)>,
}

/// One line of a plot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) style: Style,
    pub(crate) marks: Vec<Mark>,
    /// Whether the marks are joined by a line.
    pub(crate) joined: bool,
    /// Whether points are drawn.
    pub(crate) pointed: bool,
    /// Whether spans are drawn as one band instead of one bar a mark.
    pub(crate) banded: bool,
    /// Shift to the right, in display units, so that series do not hide each other.
    pub(crate) dodge: f64,
}

/// One value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Interval or range around the value.
    pub(crate) span: Option<(f64, f64)>,
    /// Whether it needs a second look: a mean over fewer seeds than planned.
    pub(crate) hollow: bool,
}

/// A rectangle of the figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Frame {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        x >= self.left - 0.5
            && x <= self.right() + 0.5
            && y >= self.top - 0.5
            && y <= self.bottom() + 0.5
    }

    /// The part of a segment inside (Liang and Barsky 1984).
    fn clip(&self, a: (f64, f64), b: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let (mut enter, mut leave) = (0.0f64, 1.0f64);
        for (p, q) in [
            (-dx, a.0 - self.left),
            (dx, self.right() - a.0),
            (-dy, a.1 - self.top),
            (dy, self.bottom() - a.1),
        ] {
            if p == 0.0 {
                if q < 0.0 {
                    return None;
                }
            } else if p < 0.0 {
                enter = enter.max(q / p);
            } else {
                leave = leave.min(q / p);
            }
        }
        let at = |t: f64| (a.0 + t * dx, a.1 + t * dy);
        (enter <= leave).then(|| (at(enter), at(leave)))
    }

    /// The part of a polygon inside (Sutherland and Hodgman 1974).
    fn clip_polygon(&self, outline: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
        // A point is inside of a side where `a x + b y <= c`.
        let sides = [
            (-1.0, 0.0, -self.left),
            (1.0, 0.0, self.right()),
            (0.0, -1.0, -self.top),
            (0.0, 1.0, self.bottom()),
        ];
        let mut outline = outline;
        for (a, b, c) in sides {
            let beyond = |p: (f64, f64)| a * p.0 + b * p.1 - c;
            let mut kept = Vec::with_capacity(outline.len() + 4);
            for (i, &end) in outline.iter().enumerate() {
                let start = outline[(i + outline.len() - 1) % outline.len()];
                let (from, to) = (beyond(start), beyond(end));
                if (from > 0.0) != (to > 0.0) {
                    let t = from / (from - to);
                    kept.push((
                        start.0 + t * (end.0 - start.0),
                        start.1 + t * (end.1 - start.1),
                    ));
                }
                if to <= 0.0 {
                    kept.push(end);
                }
            }
            outline = kept;
        }
        outline
    }

    /// The part of an interval inside: a line with a cap where the interval ends, and none where the
    /// frame cuts it.
    fn draw_interval<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        ends: [(f64, f64); 2],
        colour: RGBColor,
        sideways: bool,
    ) -> Result<(), DrawError> {
        let Some((a, b)) = self.clip(ends[0], ends[1]) else {
            return Ok(());
        };
        canvas.line(&[a, b], colour, 1.25, None)?;
        for (drawn, end) in [(a, ends[0]), (b, ends[1])] {
            if drawn == end {
                let (dx, dy) = if sideways { (0.0, 3.0) } else { (3.0, 0.0) };
                let cap = [(end.0 - dx, end.1 - dy), (end.0 + dx, end.1 + dy)];
                canvas.line(&cap, colour, 1.25, None)?;
            }
        }
        Ok(())
    }

    /// The parts of a line inside.
    fn clip_line(&self, points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
        for pair in points.windows(2) {
            let Some((a, b)) = self.clip(pair[0], pair[1]) else {
                continue;
            };
            match pieces.last_mut() {
                Some(piece) if piece.last() == Some(&a) => piece.push(b),
                _ => pieces.push(vec![a, b]),
            }
        }
        pieces
    }
}

impl<P: Plot> Figure<P> {
    /// The figure as SVG text.
    pub(crate) fn svg(&self) -> Result<String, ReportError> {
        canvas::svg(WIDTH, self.height(), &self.title, |c| self.draw(c))
            .map_err(|e| e.of(&self.name))
    }

    /// The figure as a PNG file.
    pub(crate) fn png(&self) -> Result<Vec<u8>, ReportError> {
        canvas::bitmap(WIDTH, self.height(), |c| self.draw(c)).map_err(|e| e.of(&self.name))
    }

    fn top(&self) -> f64 {
        if self.subtitle.is_empty() { 44.0 } else { 62.0 }
    }

    fn row_heights(&self) -> Vec<f64> {
        let row = |panels: &[P]| {
            let tallest = panels.iter().map(Plot::height).fold(0.0, f64::max);
            HEADING + tallest + FOOTING
        };
        self.panels.chunks(self.columns).map(row).collect()
    }

    fn legend_columns(&self) -> (usize, f64) {
        let widest = self
            .legend
            .iter()
            .map(|(_, l)| text_width(l, TEXT))
            .fold(0.0, f64::max);
        let room = WIDTH - 2.0 * MARGIN;
        let column = (widest + 54.0).min(room);
        (((room / column) as usize).max(1), column)
    }

    fn legend_height(&self) -> f64 {
        if self.legend.is_empty() {
            return 8.0;
        }
        let title = if self.legend_title.is_empty() {
            0.0
        } else {
            LEGEND_ROW
        };
        let rows = self.legend.len().div_ceil(self.legend_columns().0);
        title + rows as f64 * LEGEND_ROW + 10.0
    }

    fn height(&self) -> f64 {
        (self.top() + self.row_heights().iter().sum::<f64>() + self.legend_height()).ceil()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<B>) -> Result<(), DrawError> {
        let room = WIDTH - 2.0 * MARGIN;
        canvas.text(
            &fitted(&self.title, TITLE, room),
            (MARGIN, 24.0),
            TITLE,
            INK,
            Align::Left,
        )?;
        let subtitle = fitted(&self.subtitle, TEXT, room);
        canvas.text(&subtitle, (MARGIN, 45.0), TEXT, MUTED, Align::Left)?;
        let width = room / self.columns as f64;
        let mut top = self.top();
        for (panels, height) in self.panels.chunks(self.columns).zip(self.row_heights()) {
            for (i, panel) in panels.iter().enumerate() {
                let gap = if i > 0 { 14.0 } else { 0.0 };
                let cell = Frame {
                    left: MARGIN + i as f64 * width + gap,
                    top,
                    width: width - gap,
                    height,
                };
                panel.draw(canvas, cell)?;
            }
            top += height;
        }
        self.draw_legend(canvas, top)
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        top: f64,
    ) -> Result<(), DrawError> {
        let mut y = top + 8.0;
        if !self.legend.is_empty() && !self.legend_title.is_empty() {
            let title = fitted(&self.legend_title, TEXT, WIDTH - 2.0 * MARGIN);
            canvas.text(&title, (MARGIN, y), TEXT, MUTED, Align::Left)?;
            y += LEGEND_ROW;
        }
        let (columns, width) = self.legend_columns();
        for (i, (sample, label)) in self.legend.iter().enumerate() {
            let x = MARGIN + (i % columns) as f64 * width;
            let at = y + (i / columns) as f64 * LEGEND_ROW;
            let (ends, middle) = ([(x, at), (x + 26.0, at)], (x + 13.0, at));
            match *sample {
                Sample::Series(style) => {
                    canvas.line(&ends, style.colour, 1.75, style.dash)?;
                    canvas.marker(style.marker, middle, MARKER, style.colour, false)?;
                }
                Sample::Line(style) => {
                    let (colour, width) = style.stroke();
                    canvas.line(&ends, colour, width, style.dash)?;
                }
                Sample::Point(style) => {
                    canvas.marker(style.marker, middle, MARKER, style.colour, false)?;
                }
                Sample::Reference(dash) => canvas.line(&ends, MUTED, 1.25, dash)?,
                Sample::Hollow => canvas.marker(Marker::Circle, middle, MARKER, MUTED, true)?,
                Sample::Cross => canvas.cross(middle, 3.5, MUTED)?,
            }
            let label = fitted(label, TEXT, width.min(WIDTH - 2.0 * MARGIN) - 34.0);
            canvas.text(&label, (x + 33.0, at), TEXT, INK, Align::Left)?;
        }
        Ok(())
    }
}

impl Plot for Panel {
    fn height(&self) -> f64 {
        self.height + self.lane.len() as f64 * LANE_ROW
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        cell: Frame,
    ) -> Result<(), DrawError> {
        self.draw_with(canvas, cell, &[])
    }
}

impl Panel {
    /// Draws the panel, with horizontal intervals below its marks.
    pub(crate) fn draw_with<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        cell: Frame,
        across: &[Across],
    ) -> Result<(), DrawError> {
        let labels = self
            .y
            .ticks
            .iter()
            .map(|t| text_width(&t.1, TICK))
            .fold(0.0, f64::max);
        let lane_label = if self.lane.is_empty() {
            0.0
        } else {
            text_width(self.lane_name, NOTE)
        };
        let left = (labels.max(lane_label) + 12.0).clamp(40.0, cell.width * 0.5);
        let plot = Frame {
            left: cell.left + left,
            top: cell.top + HEADING,
            width: cell.width - left - 10.0,
            height: self.height,
        };
        canvas.text(
            &fitted(&self.heading, TEXT, cell.width - 4.0),
            (cell.left, cell.top + 14.0),
            TEXT,
            INK,
            Align::Left,
        )?;
        self.draw_axes(canvas, plot, left - 12.0)?;
        self.draw_lane(canvas, plot)?;
        let place = |x: f64, y: f64| {
            (
                plot.left + self.x.position(x) * plot.width,
                plot.bottom() - self.y.position(y) * plot.height,
            )
        };
        for (dash, points) in &self.references {
            let line: Vec<(f64, f64)> = points.iter().map(|&(x, y)| place(x, y)).collect();
            for piece in plot.clip_line(&line) {
                canvas.line(&piece, MUTED, 1.25, *dash)?;
            }
        }
        for series in self.series.iter().filter(|s| s.banded) {
            series.draw_band(canvas, plot, place)?;
        }
        for series in &self.series {
            series.draw_spans(canvas, plot, place, self.sideways)?;
        }
        for interval in across {
            let (x, y) = interval.at;
            if plot.holds(place(x, y)) {
                let ends = [interval.span.0, interval.span.1].map(|x| place(x, y));
                plot.draw_interval(canvas, ends, interval.colour, true)?;
            }
        }
        for series in &self.series {
            series.draw_line(canvas, plot, place)?;
        }
        for series in self.series.iter().filter(|s| s.pointed) {
            for mark in &series.marks {
                let (x, y) = place(mark.x, mark.y);
                let at = (x + series.dodge, y);
                if plot.holds(at) {
                    let style = series.style;
                    canvas.marker(style.marker, at, MARKER, style.colour, mark.hollow)?;
                }
            }
        }
        Ok(())
    }

    fn draw_axes<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
        label_room: f64,
    ) -> Result<(), DrawError> {
        for (value, label) in &self.y.ticks {
            let y = plot.bottom() - self.y.position(*value) * plot.height;
            canvas.line(&[(plot.left, y), (plot.right(), y)], GRID, 1.0, None)?;
            if !self.lane.is_empty() && y > plot.bottom() - 5.0 {
                // The name of the lane stands there.
                continue;
            }
            let label = fitted(label, TICK, label_room.max(30.0));
            canvas.text(&label, (plot.left - 7.0, y), TICK, INK, Align::Right)?;
        }
        let base = plot.bottom() + self.lane.len() as f64 * LANE_ROW;
        let mut x_axis = self.x.clone();
        x_axis.thin_labels(plot.width, TICK);
        for (value, label) in &x_axis.ticks {
            let x = plot.left + x_axis.position(*value) * plot.width;
            canvas.line(&[(x, plot.top), (x, plot.bottom())], GRID, 1.0, None)?;
            canvas.line(&[(x, base), (x, base + 4.0)], INK, 1.0, None)?;
            canvas.text(label, (x, base + 14.0), TICK, INK, Align::Centre)?;
        }
        canvas.line(&[(plot.left, base), (plot.right(), base)], INK, 1.0, None)?;
        canvas.line(&[(plot.left, plot.top), (plot.left, base)], INK, 1.0, None)?;
        let middle = (plot.left + plot.width / 2.0, base + 34.0);
        canvas.text(&x_axis.label, middle, TEXT, INK, Align::Centre)
    }

    fn draw_lane<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
    ) -> Result<(), DrawError> {
        if self.lane.is_empty() {
            return Ok(());
        }
        let edge = plot.bottom();
        canvas.line(
            &[(plot.left, edge), (plot.right(), edge)],
            MUTED,
            0.75,
            Some((2.0, 2.0)),
        )?;
        let middle = edge + self.lane.len() as f64 * LANE_ROW / 2.0;
        canvas.text(
            self.lane_name,
            (plot.left - 5.0, middle),
            NOTE,
            MUTED,
            Align::Right,
        )?;
        let mut places: Vec<f64> = self
            .lane
            .iter()
            .flat_map(|l| &l.marks)
            .map(|m| self.x.position(m.0))
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let nearest = places
            .windows(2)
            .map(|w| (w[1] - w[0]) * plot.width)
            .fold(f64::INFINITY, f64::min);
        for (i, lane) in self.lane.iter().enumerate() {
            let y = edge + (i as f64 + 0.5) * LANE_ROW;
            for (x, text) in &lane.marks {
                let x = plot.left + self.x.position(*x) * plot.width;
                let width = text_width(text, NOTE) + 12.0;
                if !text.is_empty() && nearest > width + 4.0 {
                    let start = x - width / 2.0 + 4.0;
                    canvas.cross((start, y), 3.0, lane.colour)?;
                    canvas.text(text, (start + 6.0, y), NOTE, INK, Align::Left)?;
                } else {
                    canvas.cross((x, y), 3.0, lane.colour)?;
                }
            }
        }
        Ok(())
    }
}

impl Series {
    fn draw_band<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
        place: impl Fn(f64, f64) -> (f64, f64),
    ) -> Result<(), DrawError> {
        let spans: Vec<(f64, (f64, f64))> = self
            .marks
            .iter()
            .filter_map(|m| Some((m.x, m.span?)))
            .collect();
        if spans.len() < 2 {
            return Ok(());
        }
        let upper = spans.iter().map(|&(x, (_, high))| place(x, high));
        let lower = spans.iter().rev().map(|&(x, (low, _))| place(x, low));
        let outline = plot.clip_polygon(upper.chain(lower).collect());
        if outline.len() < 3 {
            return Ok(());
        }
        canvas.polygon(&outline, self.style.colour, 0.16)
    }

    fn draw_spans<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
        place: impl Fn(f64, f64) -> (f64, f64),
        sideways: bool,
    ) -> Result<(), DrawError> {
        if self.banded {
            return Ok(());
        }
        for mark in &self.marks {
            let Some((low, high)) = mark.span else {
                continue;
            };
            let ends = if sideways {
                [place(low, mark.y), place(high, mark.y)]
            } else {
                [place(mark.x, low), place(mark.x, high)]
            };
            let ends = ends.map(|(x, y)| (x + self.dodge, y));
            // In a close-up, the interval of a point that is not there would mislead.
            if !plot.holds(place(mark.x, mark.y)) {
                continue;
            }
            plot.draw_interval(canvas, ends, self.style.colour, sideways)?;
        }
        Ok(())
    }

    fn draw_line<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
        place: impl Fn(f64, f64) -> (f64, f64),
    ) -> Result<(), DrawError> {
        if !self.joined {
            return Ok(());
        }
        let line: Vec<(f64, f64)> = self
            .marks
            .iter()
            .map(|m| place(m.x, m.y))
            .map(|(x, y)| (x + self.dodge, y))
            .collect();
        let (colour, width) = self.style.stroke();
        for piece in plot.clip_line(&line) {
            canvas.line(&piece, colour, width, self.style.dash)?;
        }
        Ok(())
    }
}

/// A text, cut with an ellipsis where it is wider than the room.
pub(crate) fn fitted(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    while kept.pop().is_some() {
        let shorter: String = kept.iter().collect::<String>().trim_end().to_owned() + "\u{2026}";
        if text_width(&shorter, size) <= room {
            return shorter;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_the_frame() {
        let frame = Frame {
            left: 0.0,
            top: 0.0,
            width: 10.0,
            height: 10.0,
        };
        let pieces = frame.clip_line(&[(-5.0, 5.0), (5.0, 5.0), (5.0, 20.0), (8.0, 20.0)]);
        assert_eq!(pieces, [vec![(0.0, 5.0), (5.0, 5.0), (5.0, 10.0)]]);
    }

    #[test]
    fn polygons_are_cut_at_the_frame() {
        let frame = Frame {
            left: 0.0,
            top: 0.0,
            width: 10.0,
            height: 10.0,
        };
        let cut = frame.clip_polygon(vec![(5.0, 5.0), (15.0, 5.0), (15.0, 8.0), (5.0, 8.0)]);
        let expected = [(5.0, 8.0), (5.0, 5.0), (10.0, 5.0), (10.0, 8.0)];
        assert_eq!(cut.len(), 4);
        assert!(expected.iter().all(|p| cut.contains(p)), "{cut:?}");
        let away = vec![(20.0, 5.0), (30.0, 5.0), (30.0, 8.0)];
        assert!(frame.clip_polygon(away).is_empty());
    }

    #[test]
    fn long_labels_end_in_an_ellipsis() {
        let short = fitted("a label that is far too long for its column", 12.0, 100.0);
        assert!(short.ends_with('\u{2026}') && text_width(&short, 12.0) <= 100.0);
        assert_eq!(fitted("short", 12.0, 100.0), "short");
    }
}
