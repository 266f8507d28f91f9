//! A map: values on a grid as colours, with lines of equal value and a colour bar.

use std::collections::BTreeMap;

use plotters::backend::DrawingBackend;
use plotters::style::RGBColor;

use super::axis::Axis;
use super::canvas::{Align, Canvas, DrawError};
use super::figure::{Frame, HEADING, Plot, TEXT, TICK, fitted};
use super::palette::{self, GRID, INK, MUTED, Marker, PAPER};

/// Colours of a bar.
const LEVELS: usize = 64;
/// Width of the colour bar.
const BAR: f64 = 14.0;
/// Room right of the plot: the bar, its labels, and what lies between.
const SIDE: f64 = 86.0;
/// How far a cell reaches under its neighbours, so that no seam shows between them.
const OVERLAP: f64 = 0.5;

/// Values on a grid. Each cell of colour is one value of the table; lines of equal value are
/// interpolated between them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    /// Name of the vertical axis; stands above the plot.
    pub(crate) heading: String,
    /// Name of the horizontal axis.
    pub(crate) x_label: String,
    /// What the colours are, with the unit, their scale and the levels of the lines: its ticks.
    pub(crate) colours: Axis,
    /// Places, ascending, two at least.
    pub(crate) xs: Vec<f64>,
    /// Places, ascending, two at least.
    pub(crate) ys: Vec<f64>,
    /// `values[y * xs.len() + x]`; grey with a cross where there is none.
    pub(crate) values: Vec<Option<f64>>,
    /// Places to mark.
    pub(crate) marks: Vec<(f64, f64)>,
    /// Height of the plot.
    pub(crate) height: f64,
}

impl Plot for Map {
    fn height(&self) -> f64 {
        self.height
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        cell: Frame,
    ) -> Result<(), DrawError> {
        let plot = Frame {
            left: cell.left + 44.0,
            top: cell.top + HEADING,
            width: cell.width - 44.0 - SIDE,
            height: self.height,
        };
        let half = cell.width * 0.5 - 6.0;
        let heading = fitted(&self.heading, TEXT, half);
        let at = (cell.left, cell.top + 14.0);
        canvas.text(&heading, at, TEXT, INK, Align::Left)?;
        let name = fitted(&self.colours.label, TEXT, half);
        let at = (cell.right() - 6.0, cell.top + 14.0);
        canvas.text(&name, at, TEXT, INK, Align::Right)?;
        self.draw_cells(canvas, plot)?;
        self.draw_lines(canvas, plot)?;
        for &(x, y) in &self.marks {
            let (x, y) = (place(&self.xs, x), place(&self.ys, y));
            let at = (plot.left + x * plot.width, plot.bottom() - y * plot.height);
            canvas.marker(Marker::Circle, at, 5.0, INK, false)?;
            canvas.marker(Marker::Circle, at, 3.5, PAPER, false)?;
        }
        self.draw_axes(canvas, plot)?;
        self.draw_bar(canvas, plot)
    }
}

/// Edges of the cells around the places of a grid: midway between neighbours.
fn edges(places: &[f64]) -> Vec<f64> {
    let n = places.len();
    let mut edges = Vec::with_capacity(n + 1);
    edges.push(places[0] - (places[1] - places[0]) / 2.0);
    edges.extend(places.windows(2).map(|w| f64::midpoint(w[0], w[1])));
    edges.push(places[n - 1] + (places[n - 1] - places[n - 2]) / 2.0);
    edges
}

/// Position in [0, 1] of a value along an axis over all cells.
fn place(places: &[f64], value: f64) -> f64 {
    let edges = edges(places);
    let (low, high) = (edges[0], edges[edges.len() - 1]);
    (value - low) / (high - low)
}

/// The colour of a position in [0, 1].
fn colour(position: f64) -> RGBColor {
    let level = (position * LEVELS as f64).clamp(0.0, LEVELS as f64 - 1.0) as usize;
    palette::ordered(level, LEVELS).colour
}

impl Map {
    fn value(&self, x: usize, y: usize) -> Option<f64> {
        self.values.get(y * self.xs.len() + x).copied().flatten()
    }

    fn draw_cells<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
    ) -> Result<(), DrawError> {
        let lefts: Vec<f64> = edges(&self.xs)
            .into_iter()
            .map(|x| plot.left + place(&self.xs, x) * plot.width)
            .collect();
        let tops: Vec<f64> = edges(&self.ys)
            .into_iter()
            .map(|y| plot.bottom() - place(&self.ys, y) * plot.height)
            .collect();
        let mut blanks = Vec::new();
        // From the top left to the bottom right: each cell covers what its neighbour reached over.
        for y in (0..self.ys.len()).rev() {
            let (top, bottom) = (tops[y + 1], tops[y]);
            let bottom = (bottom + OVERLAP).min(plot.bottom());
            let of = |x: usize| {
                let value = self.value(x, y);
                value.map_or(GRID, |v| colour(self.colours.position(v)))
            };
            let mut x = 0;
            while x < self.xs.len() {
                let start = x;
                while x < self.xs.len() && of(x) == of(start) {
                    if self.value(x, y).is_none() {
                        let middle = f64::midpoint(lefts[x], lefts[x + 1]);
                        blanks.push((middle, f64::midpoint(tops[y], tops[y + 1])));
                    }
                    x += 1;
                }
                let right = (lefts[x] + OVERLAP).min(plot.right());
                let left = lefts[start];
                let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
                canvas.polygon(&corners, of(start), 1.0)?;
            }
        }
        for blank in blanks {
            canvas.cross(blank, 2.5, MUTED)?;
        }
        Ok(())
    }

    /// Lines at the ticks of the colour bar.
    fn draw_lines<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
    ) -> Result<(), DrawError> {
        let at = |(x, y): (f64, f64)| {
            (
                plot.left + place(&self.xs, x) * plot.width,
                plot.bottom() - place(&self.ys, y) * plot.height,
            )
        };
        for (level, _) in &self.colours.ticks {
            let position = self.colours.position(*level);
            let ink = if position < 0.55 { PAPER } else { INK };
            for line in joined(&self.segments(position)) {
                let line: Vec<(f64, f64)> = line.into_iter().map(at).collect();
                canvas.line(&line, ink, 0.75, None)?;
            }
        }
        Ok(())
    }

    /// Where values pass a position of the colour bar: between two sides of a square of four
    /// neighbours, linear along the sides. A saddle is cut by the mean of its corners.
    fn segments(&self, level: f64) -> Vec<[Crossing; 2]> {
        let mut segments = Vec::new();
        let height = |x, y| Some(self.colours.position(self.value(x, y)?) - level);
        for y in 0..self.ys.len() - 1 {
            for x in 0..self.xs.len() - 1 {
                // Counter-clockwise from the lower left.
                let corners = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)];
                let heights = corners.map(|(x, y)| height(x, y));
                let [Some(a), Some(b), Some(c), Some(d)] = heights else {
                    continue;
                };
                let heights = [a, b, c, d];
                let crossing = |side: usize| {
                    // From the lower corner to the higher, so that both squares at a side agree.
                    let (from, to) = match side {
                        0 => (0, 1),
                        1 => (1, 2),
                        2 => (3, 2),
                        _ => (0, 3),
                    };
                    let share = heights[from] / (heights[from] - heights[to]);
                    let along = |places: &[f64], i: usize, j: usize| {
                        places[i] + share * (places[j] - places[i])
                    };
                    let (from, to) = (corners[from], corners[to]);
                    Crossing {
                        side: (from, to),
                        at: (along(&self.xs, from.0, to.0), along(&self.ys, from.1, to.1)),
                    }
                };
                let sides: Vec<usize> = (0..4)
                    .filter(|&i| (heights[i] >= 0.0) != (heights[(i + 1) % 4] >= 0.0))
                    .collect();
                match sides.as_slice() {
                    [one, other] => segments.push([crossing(*one), crossing(*other)]),
                    [_, _, _, _] => {
                        let inside = a + b + c + d >= 0.0;
                        let pairs = if (a >= 0.0) == inside {
                            [(0, 1), (2, 3)]
                        } else {
                            [(3, 0), (1, 2)]
                        };
                        segments.extend(pairs.map(|(i, j)| [crossing(i), crossing(j)]));
                    }
                    _ => {}
                }
            }
        }
        segments
    }

    fn draw_axes<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
    ) -> Result<(), DrawError> {
        // Ticks of an axis without room at its ends.
        let ticks = |places: &[f64]| {
            let (low, high) = (places[0], places[places.len() - 1]);
            let mut axis = Axis::linear("", places, (low, high));
            let edges = edges(places);
            (axis.low, axis.high) = (edges[0], edges[edges.len() - 1]);
            axis
        };
        let (mut x_axis, y_axis) = (ticks(&self.xs), ticks(&self.ys));
        for (value, label) in &y_axis.ticks {
            let y = plot.bottom() - y_axis.position(*value) * plot.height;
            canvas.line(&[(plot.left - 4.0, y), (plot.left, y)], INK, 1.0, None)?;
            canvas.text(label, (plot.left - 7.0, y), TICK, INK, Align::Right)?;
        }
        x_axis.thin_labels(plot.width, TICK);
        let base = plot.bottom();
        for (value, label) in &x_axis.ticks {
            let x = plot.left + x_axis.position(*value) * plot.width;
            canvas.line(&[(x, base), (x, base + 4.0)], INK, 1.0, None)?;
            canvas.text(label, (x, base + 14.0), TICK, INK, Align::Centre)?;
        }
        let name = fitted(&self.x_label, TEXT, plot.width + SIDE);
        let middle = (plot.left + plot.width / 2.0, base + 34.0);
        canvas.text(&name, middle, TEXT, INK, Align::Centre)?;
        outline(canvas, plot)
    }

    fn draw_bar<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<B>,
        plot: Frame,
    ) -> Result<(), DrawError> {
        let bar = Frame {
            left: plot.right() + 14.0,
            width: BAR,
            ..plot
        };
        let step = bar.height / LEVELS as f64;
        for level in 0..LEVELS {
            let bottom = bar.bottom() - level as f64 * step;
            let top = (bottom - step - OVERLAP).max(bar.top);
            let (left, right) = (bar.left, bar.right());
            let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
            let colour = palette::ordered(level, LEVELS).colour;
            canvas.polygon(&corners, colour, 1.0)?;
        }
        for (value, label) in &self.colours.ticks {
            let y = bar.bottom() - self.colours.position(*value) * bar.height;
            let x = bar.right();
            canvas.line(&[(x, y), (x + 4.0, y)], INK, 1.0, None)?;
            let label = fitted(label, TICK, SIDE - 14.0 - BAR - 8.0);
            canvas.text(&label, (x + 7.0, y), TICK, INK, Align::Left)?;
        }
        outline(canvas, bar)
    }
}

fn outline<B: DrawingBackend>(canvas: &mut Canvas<B>, frame: Frame) -> Result<(), DrawError> {
    let (left, right) = (frame.left, frame.right());
    let (top, bottom) = (frame.top, frame.bottom());
    let around = [
        (left, top),
        (right, top),
        (right, bottom),
        (left, bottom),
        (left, top),
    ];
    canvas.line(&around, INK, 1.0, None)
}

/// Where a line of equal value crosses a side between two places of the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Crossing {
    /// Both ends of the side.
    side: ((usize, usize), (usize, usize)),
    at: (f64, f64),
}

/// Lines made of segments that share a side; a side has two segments at most.
fn joined(segments: &[[Crossing; 2]]) -> Vec<Vec<(f64, f64)>> {
    let mut at_side: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (i, segment) in segments.iter().enumerate() {
        for end in segment {
            at_side.entry(end.side).or_default().push(i);
        }
    }
    let mut used = vec![false; segments.len()];
    let mut lines = Vec::new();
    for start in 0..segments.len() {
        if used[start] {
            continue;
        }
        used[start] = true;
        let mut line = segments[start].to_vec();
        // First onwards from its end, then, turned, from its start.
        for _ in 0..2 {
            while let Some(end) = line.last().copied()
                && let Some(&next) = at_side
                    .get(&end.side)
                    .and_then(|all| all.iter().find(|i| !used[**i]))
            {
                used[next] = true;
                let [a, b] = segments[next];
                line.push(if a.side == end.side { b } else { a });
            }
            line.reverse();
        }
        lines.push(line.into_iter().map(|crossing| crossing.at).collect());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(of: impl Fn(f64, f64) -> f64) -> Map {
        let places: Vec<f64> = (-10..=10).map(|i| f64::from(i) / 10.0).collect();
        let values: Vec<Option<f64>> = places
            .iter()
            .flat_map(|&y| places.iter().map(move |&x| (x, y)))
            .map(|(x, y)| Some(of(x, y)))
            .collect();
        let flat: Vec<f64> = values.iter().copied().flatten().collect();
        Map {
            heading: String::new(),
            x_label: String::new(),
            colours: Axis::linear("", &flat, (0.0, f64::INFINITY)),
            xs: places.clone(),
            ys: places,
            values,
            marks: Vec::new(),
            height: 100.0,
        }
    }

    #[test]
    fn a_bowl_has_one_closed_line_at_each_level() {
        let map = map(|x, y| x * x + y * y);
        let level = map.colours.position(0.5);
        let lines = joined(&map.segments(level));
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        assert_eq!(line.first(), line.last());
        // Between grid points the chord lies above the bowl by a quarter of the squared step at most.
        for &(x, y) in line {
            assert!(
                (x * x + y * y - 0.5).abs() <= 0.1 * 0.1 / 4.0 + 1e-12,
                "{x} {y}"
            );
        }
    }

    #[test]
    fn a_value_that_is_not_there_breaks_the_lines_around_it() {
        let mut map = map(|x, _| x);
        let whole = map.segments(map.colours.position(0.05)).len();
        assert_eq!(whole, 20);
        map.values[10 * 21 + 10] = None;
        assert_eq!(map.segments(map.colours.position(0.05)).len(), 18);
    }

    #[test]
    fn a_saddle_is_cut_into_two_lines() {
        let map = map(|x, y| 1.0 + x * y);
        let lines = joined(&map.segments(map.colours.position(1.02)));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn cells_end_midway_between_places() {
        assert_eq!(edges(&[0.0, 1.0, 3.0]), [-0.5, 0.5, 2.0, 4.0]);
        assert_eq!(place(&[0.0, 1.0], 0.5), 0.5);
    }
}
