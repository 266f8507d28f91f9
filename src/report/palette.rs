//! Colours, markers and line styles, all readable by the colour-blind and in print.

use plotters::style::RGBColor;

/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
/// Secondary text.
pub(crate) const MUTED: RGBColor = RGBColor(0x59, 0x63, 0x6E);
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xE4, 0xE7, 0xEB);
/// Background.
pub(crate) const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);

/// Background of a dark page, as in page.css.
const DARK_PAPER: RGBColor = RGBColor(0x15, 0x18, 0x1C);

/// The palette of Okabe and Ito (2008) without its yellow, which is too faint on white.
pub(crate) const SERIES: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x00, 0x00, 0x00),
];

/// Anchors of viridis (van der Walt and Smith 2015) at equal distances, without its palest part.
const SEQUENCE: [RGBColor; 8] = [
    RGBColor(0x44, 0x01, 0x54),
    RGBColor(0x46, 0x32, 0x7E),
    RGBColor(0x36, 0x5C, 0x8D),
    RGBColor(0x27, 0x7F, 0x8E),
    RGBColor(0x1F, 0xA1, 0x87),
    RGBColor(0x4A, 0xC1, 0x6D),
    RGBColor(0x8F, 0xC9, 0x3A),
    RGBColor(0xC8, 0xC0, 0x20),
];

/// Shape of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    InvertedTriangle,
}

const MARKERS: [Marker; 5] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::InvertedTriangle,
];

/// Lengths of dash and gap; none for a solid line.
pub(crate) type Dash = Option<(f64, f64)>;

const DASHES: [Dash; 4] = [None, Some((7.0, 3.0)), Some((2.5, 2.5)), Some((12.0, 4.0))];

/// How one series is drawn, everywhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Style {
    pub(crate) colour: RGBColor,
    pub(crate) marker: Marker,
    pub(crate) dash: Dash,
    /// Whether the line stays in the background.
    pub(crate) faint: bool,
}

impl Style {
    /// Colour and width of a line.
    pub(crate) fn stroke(self) -> (RGBColor, f64) {
        if self.faint {
            (faint(self.colour), 1.0)
        } else {
            (self.colour, 1.75)
        }
    }
}

/// The style of series `i`: colours repeat after 7, colour and marker together after 35, and
/// every further round of colours has another line style.
pub(crate) fn series(i: usize) -> Style {
    Style {
        colour: SERIES[i % SERIES.len()],
        marker: MARKERS[i % MARKERS.len()],
        dash: DASHES[i / SERIES.len() % DASHES.len()],
        faint: false,
    }
}

/// The style of line `i` where lines lie on each other: dashes differ from the first on, and colour
/// and dash together repeat after 28.
pub(crate) fn line(i: usize) -> Style {
    Style {
        dash: DASHES[i % DASHES.len()],
        ..series(i)
    }
}

/// The style of item `i` of `n` in an order, dark to light.
pub(crate) fn ordered(i: usize, n: usize) -> Style {
    let last = SEQUENCE.len() - 1;
    let position = if n > 1 {
        i as f64 / (n - 1) as f64 * last as f64
    } else {
        0.0
    };
    let below = (position.floor() as usize).min(last - 1);
    let share = position - below as f64;
    let (a, b) = (SEQUENCE[below], SEQUENCE[below + 1]);
    Style {
        colour: towards(a, b, share),
        marker: MARKERS[i % MARKERS.len()],
        dash: None,
        faint: false,
    }
}

/// A lighter form of a colour for dark pages; `None` if it is light enough.
pub(crate) fn on_dark(colour: RGBColor) -> Option<RGBColor> {
    let RGBColor(r, g, b) = colour;
    let luma = 0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b);
    let share = ((150.0 - luma) / 255.0).clamp(0.0, 0.6);
    (share > 0.05).then(|| towards(colour, PAPER, share))
}

/// The colour of a line in the background.
pub(crate) fn faint(colour: RGBColor) -> RGBColor {
    towards(colour, PAPER, 0.6)
}

/// [`faint`] on a dark page.
pub(crate) fn faint_on_dark(colour: RGBColor) -> RGBColor {
    towards(on_dark(colour).unwrap_or(colour), DARK_PAPER, 0.45)
}

fn towards(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    RGBColor(
        mix(from.0, to.0, share),
        mix(from.1, to.1, share),
        mix(from.2, to.2, share),
    )
}

/// `#RRGGBB`, as the SVG backend writes it.
pub(crate) fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

fn mix(a: u8, b: u8, share: f64) -> u8 {
    (f64::from(a) + share * (f64::from(b) - f64::from(a))).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_series_look_different() {
        let styles: Vec<Style> = (0..40).map(series).collect();
        for (i, a) in styles.iter().enumerate() {
            assert!(!styles[..i].contains(a), "series {i} repeats");
        }
    }

    #[test]
    fn lines_differ_without_markers() {
        let styles: Vec<_> = (0..28).map(line).map(|s| (s.colour, s.dash)).collect();
        for (i, a) in styles.iter().enumerate() {
            assert!(!styles[..i].contains(a), "line {i} repeats");
        }
    }

    #[test]
    fn ordered_colours_run_from_dark_to_light_and_differ() {
        let luma = |c: RGBColor| u32::from(c.0) * 2 + u32::from(c.1) * 7 + u32::from(c.2);
        for n in [2, 5, 9, 14] {
            let colours: Vec<RGBColor> = (0..n).map(|i| ordered(i, n).colour).collect();
            assert!(colours.windows(2).all(|w| luma(w[0]) < luma(w[1])), "{n}");
        }
    }
}
