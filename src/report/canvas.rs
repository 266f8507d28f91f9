//! Lines, shapes and text in display units, on plotters' SVG or bitmap backend.

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle, register_font,
};

use super::ReportError;
use super::palette::{Dash, Marker, PAPER};
use super::png;

/// The embedded font under the name that an SVG asks for, so that a viewer without it falls back
/// to a font of similar widths.
const FAMILY: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

static FONT: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans-subset.ttf");

/// plotters' SVG backend takes whole units only; drawing at this scale keeps quarters of a pixel.
const SVG_SCALE: f64 = 4.0;

/// PNG files have two pixels a display unit, averaged from four.
const BITMAP_SCALE: f64 = 4.0;

/// plotters' font sizes: the SVG backend divides by 1.24, the rasterizer by the font's line height.
const SVG_EM: f64 = 1.24;
const BITMAP_EM: f64 = 1.164;

/// A drawing surface.
pub(crate) struct Canvas<B: DrawingBackend> {
    backend: B,
    scale: f64,
    em: f64,
    /// How far below its place the backend centres a text, as a share of the font size.
    drop: f64,
}

/// What a backend reports.
#[derive(Debug)]
pub(crate) struct DrawError(String);

impl DrawError {
    fn from(error: impl Display) -> Self {
        Self(error.to_string())
    }

    pub(crate) fn of(self, figure: &str) -> ReportError {
        ReportError::Draw {
            figure: figure.to_owned(),
            message: self.0,
        }
    }
}

/// Where text stands relative to its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Centre,
    Right,
}

fn font_is_there() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, FONT).is_ok())
}

/// Width of a text, in the unit of `size`.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    font_is_there();
    let font = FontDesc::new(
        FontFamily::Name(FAMILY),
        100.0 * BITMAP_EM,
        FontStyle::Normal,
    );
    font.box_size(text)
        .map_or(0.0, |(width, _)| f64::from(width))
        * size
        / 100.0
}

/// Draws on an SVG of the size, in display units; `title` is its accessible name.
pub(crate) fn svg<F>(width: f64, height: f64, title: &str, draw: F) -> Result<String, DrawError>
where
    F: FnOnce(&mut Canvas<SVGBackend<'_>>) -> Result<(), DrawError>,
{
    font_is_there();
    let mut text = String::new();
    let size = (
        (width * SVG_SCALE).round() as u32,
        (height * SVG_SCALE).round() as u32,
    );
    {
        let backend = SVGBackend::with_string(&mut text, size);
        let mut canvas = Canvas {
            backend,
            scale: SVG_SCALE,
            em: SVG_EM,
            drop: 0.08,
        };
        canvas.fill(PAPER, width, height)?;
        draw(&mut canvas)?;
        canvas.backend.present().map_err(DrawError::from)?;
    }
    // The backend writes its own size as the display size.
    let body = text.split_once(">\n").map_or("", |(_, body)| body);
    let mut out = String::with_capacity(text.len() + 200);
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {} {}" role="img">"#,
        size.0, size.1
    );
    let _ = writeln!(out, "<title>{}</title>", escaped(title));
    out.push_str(body);
    Ok(out)
}

/// Draws a PNG with two pixels a display unit.
pub(crate) fn bitmap<F>(width: f64, height: f64, draw: F) -> Result<Vec<u8>, DrawError>
where
    F: FnOnce(&mut Canvas<BitMapBackend<'_>>) -> Result<(), DrawError>,
{
    font_is_there();
    let even = |x: f64| (x * BITMAP_SCALE / 2.0).ceil() as u32 * 2;
    let size = (even(width), even(height));
    let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
    {
        let backend = BitMapBackend::with_buffer(&mut pixels, size);
        let mut canvas = Canvas {
            backend,
            scale: BITMAP_SCALE,
            em: BITMAP_EM,
            drop: 0.16,
        };
        canvas.fill(PAPER, width + 1.0, height + 1.0)?;
        draw(&mut canvas)?;
        canvas.backend.present().map_err(DrawError::from)?;
    }
    let half = png::halved(&pixels, size.0 as usize, size.1 as usize);
    png::encode(&half, size.0 / 2, size.1 / 2).map_err(DrawError::from)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl<B: DrawingBackend> Canvas<B> {
    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        (
            (x * self.scale).round() as i32,
            (y * self.scale).round() as i32,
        )
    }

    fn stroke(&self, colour: RGBColor, width: f64) -> ShapeStyle {
        ShapeStyle {
            color: colour.to_rgba(),
            filled: false,
            stroke_width: (width * self.scale).round().max(1.0) as u32,
        }
    }

    fn fill(&mut self, colour: RGBColor, width: f64, height: f64) -> Result<(), DrawError> {
        let corner = self.at((width, height));
        self.backend
            .draw_rect((0, 0), corner, &colour, true)
            .map_err(DrawError::from)
    }

    /// A line through the points.
    pub(crate) fn line(
        &mut self,
        points: &[(f64, f64)],
        colour: RGBColor,
        width: f64,
        dash: Dash,
    ) -> Result<(), DrawError> {
        let style = self.stroke(colour, width);
        let pieces = match dash {
            None => vec![points.to_vec()],
            Some(lengths) => dashed(points, lengths),
        };
        for piece in pieces.iter().filter(|p| p.len() > 1) {
            let path: Vec<(i32, i32)> = piece.iter().map(|&p| self.at(p)).collect();
            self.backend
                .draw_path(path, &style)
                .map_err(DrawError::from)?;
        }
        Ok(())
    }

    /// A filled polygon.
    pub(crate) fn polygon(
        &mut self,
        points: &[(f64, f64)],
        colour: RGBColor,
        opacity: f64,
    ) -> Result<(), DrawError> {
        let path: Vec<(i32, i32)> = points.iter().map(|&p| self.at(p)).collect();
        self.backend
            .fill_polygon(path, &colour.mix(opacity))
            .map_err(DrawError::from)
    }

    /// A point; hollow where it needs a second look.
    pub(crate) fn marker(
        &mut self,
        marker: Marker,
        (x, y): (f64, f64),
        size: f64,
        colour: RGBColor,
        hollow: bool,
    ) -> Result<(), DrawError> {
        // Equal areas look equally large.
        let (r, s, t) = (size, size * 0.886, size * 1.2);
        let outline: Vec<(f64, f64)> = match marker {
            Marker::Circle => {
                let centre = self.at((x, y));
                let radius = (r * self.scale).round() as u32;
                self.backend
                    .draw_circle(centre, radius, &colour, true)
                    .map_err(DrawError::from)?;
                if hollow {
                    let inner = (f64::from(radius) - 1.5 * self.scale).max(0.0) as u32;
                    self.backend
                        .draw_circle(centre, inner, &PAPER, true)
                        .map_err(DrawError::from)?;
                }
                return Ok(());
            }
            Marker::Square => vec![(-s, -s), (s, -s), (s, s), (-s, s)],
            Marker::Triangle => vec![(0.0, -t), (t, t * 0.8), (-t, t * 0.8)],
            Marker::Diamond => vec![(0.0, -t), (t, 0.0), (0.0, t), (-t, 0.0)],
            Marker::InvertedTriangle => vec![(0.0, t), (t, -t * 0.8), (-t, -t * 0.8)],
        };
        let scaled = |k: f64| -> Vec<(f64, f64)> {
            outline
                .iter()
                .map(|(dx, dy)| (x + dx * k, y + dy * k))
                .collect()
        };
        self.polygon(&scaled(1.0), colour, 1.0)?;
        if hollow {
            self.polygon(&scaled(0.5), PAPER, 1.0)?;
        }
        Ok(())
    }

    /// A cross, for what did not end well.
    pub(crate) fn cross(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        colour: RGBColor,
    ) -> Result<(), DrawError> {
        self.line(
            &[(x - size, y - size), (x + size, y + size)],
            colour,
            1.75,
            None,
        )?;
        self.line(
            &[(x - size, y + size), (x + size, y - size)],
            colour,
            1.75,
            None,
        )
    }

    /// Text whose middle is at the height `y`.
    pub(crate) fn text(
        &mut self,
        text: &str,
        (x, y): (f64, f64),
        size: f64,
        colour: RGBColor,
        align: Align,
    ) -> Result<(), DrawError> {
        let horizontal = match align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        let font = FontDesc::new(
            FontFamily::Name(FAMILY),
            size * self.scale * self.em,
            FontStyle::Normal,
        );
        let style: TextStyle<'_> = TextStyle::from(font)
            .color(&colour)
            .pos(Pos::new(horizontal, VPos::Center));
        let position = self.at((x, y + size * self.drop));
        self.backend
            .draw_text(text, &style, position)
            .map_err(DrawError::from)
    }
}

/// Cuts a line into dashes of the given length and gap.
fn dashed(points: &[(f64, f64)], (dash, gap): (f64, f64)) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let (mut drawing, mut left) = (true, dash);
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let length = (x1 - x0).hypot(y1 - y0);
        let at = |d: f64| (x0 + (x1 - x0) * d / length, y0 + (y1 - y0) * d / length);
        let mut done = 0.0;
        if drawing && piece.is_empty() {
            piece.push((x0, y0));
        }
        while length - done > left {
            done += left;
            if drawing {
                piece.push(at(done));
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece.push(at(done));
            }
            drawing = !drawing;
            left = if drawing { dash } else { gap };
        }
        left -= length - done;
        if drawing {
            piece.push((x1, y1));
        }
    }
    pieces.push(piece);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_font_is_used_and_measured() {
        assert!(font_is_there());
        // DejaVu Sans: a digit is 1303 of 2048 units wide.
        assert!((text_width("00000", 20.0) - 5.0 * 20.0 * 1303.0 / 2048.0).abs() < 0.5);
        assert!(text_width("μ ± − × ≤ …", 10.0) > 40.0);
    }

    #[test]
    fn dashes_go_around_corners() {
        let pieces = dashed(&[(0.0, 0.0), (3.0, 0.0), (3.0, 10.0)], (5.0, 2.0));
        assert_eq!(pieces[0], [(0.0, 0.0), (3.0, 0.0), (3.0, 2.0)]);
        assert_eq!(pieces[1], [(3.0, 4.0), (3.0, 9.0)]);
        assert_eq!(pieces.len(), 3);
    }
}
