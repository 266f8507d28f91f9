//! Axes: ranges, scales and ticks.

use crate::analysis::numbers::{count, fixed, significant};

use super::canvas::text_width;

/// How values are laid out along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// Logarithmic; ticks at powers of two.
    Log2,
    /// Logarithmic; ticks at powers of ten, and between them where there are few.
    Log10,
}

/// An axis: its name with the unit, its range and its ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis over the values, with some room, within `limits`.
    pub(crate) fn linear(label: &str, values: &[f64], limits: (f64, f64)) -> Self {
        let (low, high) = range(values).unwrap_or((0.0, 1.0));
        let room = if high > low {
            0.06 * (high - low)
        } else {
            0.1 * low.abs().max(1e-3)
        };
        let low = (low - room).max(limits.0.min(low));
        let high = (high + room).min(limits.1.max(high));
        let ticks = linear_ticks(low, high);
        Self {
            label: label.to_owned(),
            scale: Scale::Linear,
            low,
            high,
            ticks,
        }
    }

    /// A logarithmic axis over positive values.
    pub(crate) fn log10(label: &str, values: &[f64]) -> Self {
        Self::logarithmic(label, values, 2.6)
    }

    /// As [`Axis::log10`], with ticks between the powers of ten over up to four decades.
    pub(crate) fn log10_fine(label: &str, values: &[f64]) -> Self {
        Self::logarithmic(label, values, 4.0)
    }

    fn logarithmic(label: &str, values: &[f64], fine: f64) -> Self {
        let positive: Vec<f64> = values.iter().copied().filter(|v| *v > 0.0).collect();
        let (low, high) = range(&positive).unwrap_or((1.0, 10.0));
        let room = if high > low * 1.5 {
            (high / low).powf(0.05)
        } else {
            1.5
        };
        let (low, high) = (low / room, high * room);
        let ticks = log10_ticks(low, high, fine);
        Self {
            label: label.to_owned(),
            scale: Scale::Log10,
            low,
            high,
            ticks,
        }
    }

    /// An axis of batches, with ticks at powers of two.
    pub(crate) fn batches(batches: &[u64]) -> Self {
        let values: Vec<f64> = batches.iter().map(|&b| b as f64).collect();
        let (low, high) = range(&values).unwrap_or((1.0, 2.0));
        let (low, high) = (low / 1.5, high * 1.5);
        let first = low.log2().ceil() as i32;
        let last = high.log2().floor() as i32;
        let ticks = (first..=last)
            .map(|k| {
                (
                    2f64.powi(k),
                    if k >= 0 {
                        (1u64 << k).to_string()
                    } else {
                        String::new()
                    },
                )
            })
            .collect();
        Self {
            label: "global batch (examples an update, log scale)".to_owned(),
            scale: Scale::Log2,
            low,
            high,
            ticks,
        }
    }

    /// An axis of named rows, from 0 downwards.
    pub(crate) fn rows(names: &[String]) -> Self {
        Self {
            label: String::new(),
            scale: Scale::Linear,
            low: names.len() as f64 - 0.5,
            high: -0.5,
            ticks: names
                .iter()
                .enumerate()
                .map(|(i, n)| (i as f64, n.clone()))
                .collect(),
        }
    }

    /// Position in [0, 1] of a value in the range.
    pub(crate) fn position(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log2 | Scale::Log10 => {
                let value = value.max(self.low * 1e-6);
                (value / self.low).ln() / (self.high / self.low).ln()
            }
        }
    }

    /// Leaves out tick labels (not ticks) until none touches its neighbour on `length` units.
    pub(crate) fn thin_labels(&mut self, length: f64, size: f64) {
        let places: Vec<(f64, f64)> = self
            .ticks
            .iter()
            .map(|(v, label)| (self.position(*v) * length, text_width(label, size)))
            .collect();
        let fits = |every: usize| {
            let shown: Vec<&(f64, f64)> = places.iter().step_by(every).collect();
            shown
                .windows(2)
                .all(|w| w[1].0 - w[0].0 > f64::midpoint(w[0].1, w[1].1) + 6.0)
        };
        let every = (1..=places.len().max(1))
            .find(|&every| fits(every))
            .unwrap_or(1);
        for (i, (_, label)) in self.ticks.iter_mut().enumerate() {
            if i % every != 0 {
                label.clear();
            }
        }
    }
}

/// Least and greatest finite value.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let mut finite = values.iter().copied().filter(|v| v.is_finite());
    let first = finite.next()?;
    Some(finite.fold((first, first), |(low, high), v| (low.min(v), high.max(v))))
}

/// Four to nine ticks at 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let raw = (high - low) / 4.0;
    if !(raw.is_finite() && raw > 0.0) {
        return vec![(low, significant(low, 3))];
    }
    let power = 10f64.powi(raw.log10().floor() as i32);
    let step = [5.0, 2.0]
        .into_iter()
        .find(|m| m * power <= raw)
        .unwrap_or(1.0)
        * power;
    let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last)
        .map(|k| {
            let value = k as f64 * step;
            let label = if step >= 1.0 && value >= 10_000.0 {
                count(value.round() as u64)
            } else {
                fixed(value, decimals)
            };
            (value, label)
        })
        .collect()
}

/// Powers of ten; with 2 and 5 times as well over fewer than `fine` decades.
fn log10_ticks(low: f64, high: f64, fine: f64) -> Vec<(f64, String)> {
    let decades = (high / low).log10();
    if decades < 0.7 {
        return linear_ticks(low, high);
    }
    let multiples: &[f64] = if decades < fine {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let every = (decades / 7.0).ceil() as i32;
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    (first..=last)
        .filter(|k| k % every == 0)
        .flat_map(|k| multiples.iter().map(move |m| m * 10f64.powi(k)))
        .filter(|v| (low..=high).contains(v))
        .map(|v| {
            let label = if (1.0..1e9).contains(&v) {
                count(v.round() as u64)
            } else {
                significant(v, 1)
            };
            (v, label)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn batches_have_ticks_at_powers_of_two() {
        assert_eq!(
            labels(&Axis::batches(&[32, 64, 256])),
            ["32", "64", "128", "256"]
        );
        assert_eq!(labels(&Axis::batches(&[100])), ["128"]);
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        let axis = Axis::linear("x", &[94.1, 98.2], (0.0, 100.0));
        assert_eq!(labels(&axis), ["94", "95", "96", "97", "98"]);
        let flat = Axis::linear("x", &[0.5, 0.5], (0.0, 1.0));
        assert!(flat.low < 0.5 && flat.high > 0.5 && !flat.ticks.is_empty());
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten() {
        assert_eq!(
            labels(&Axis::log10("x", &[40.0, 20_000.0])),
            ["100", "1000", "10,000"]
        );
        assert_eq!(
            labels(&Axis::log10("x", &[0.05, 0.9])),
            ["0.05", "0.1", "0.2", "0.5", "1"]
        );
    }

    #[test]
    fn labels_that_touch_are_thinned() {
        let mut axis = Axis::batches(&[1, 65_536]);
        axis.thin_labels(200.0, 11.0);
        let shown = labels(&axis).iter().filter(|l| !l.is_empty()).count();
        assert!((2..7).contains(&shown), "{shown}");
    }
}
