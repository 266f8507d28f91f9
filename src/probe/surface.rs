//! Values along the line between two sets of parameters and on a plane through one: loss surfaces
//! (Goodfellow et al. 2015; Li et al. 2018).
//!
//! What is measured at a point is the caller's: a closure that gets the parameters. A network with
//! batch normalization needs its statistics computed again at each point; those of an end, or a mean
//! of both, belong to another network.

use std::ops::Range;

use thiserror::Error;

use crate::math::operator::{add_scaled, dot, norm};
use crate::objective::{Layout, Parameter, Role};
use crate::rng::Stream;

/// Points along a line, as in Keskar et al. (2017).
pub const LINE_POINTS: usize = 25;

/// Why there is no surface.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SurfaceError<E> {
    /// Vectors that do not fit together.
    #[error("{what}: expected {expected} parameters, found {found}")]
    Length {
        /// What was given.
        what: &'static str,
        /// The length that fits.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A plane without an extent.
    #[error("the plane reaches {found} to each side; it must be positive and finite")]
    Extent {
        /// What was given.
        found: f64,
    },
    /// An even number of points leaves out the middle.
    #[error("a side of the plane has {found} points; it must be an odd number of at least 3")]
    Points {
        /// What was given.
        found: usize,
    },
    /// The closure failed.
    #[error("a point of the surface could not be evaluated: {0}")]
    Evaluation(E),
}

fn check<E>(what: &'static str, expected: usize, found: usize) -> Result<(), SurfaceError<E>> {
    if expected == found {
        Ok(())
    } else {
        Err(SurfaceError::Length {
            what,
            expected,
            found,
        })
    }
}

/// Evenly spaced positions from `low` to `high`, both included; `low` alone for one point.
pub fn positions(low: f64, high: f64, points: usize) -> Vec<f64> {
    let last = points.saturating_sub(1).max(1) as f64;
    (0..points)
        .map(|i| low + (high - low) * (i as f64 / last))
        .collect()
}

/// What `evaluate` finds at (1 - a) from + a to, for each a: 0 is `from`, 1 is `to`, and beyond them
/// lies what is behind (Keskar et al. take 25 a in [-1, 2]).
///
/// # Errors
/// If the ends differ in length, or `evaluate` fails.
pub fn line<T, E>(
    from: &[f64],
    to: &[f64],
    alphas: &[f64],
    mut evaluate: impl FnMut(&[f64]) -> Result<T, E>,
) -> Result<Vec<T>, SurfaceError<E>> {
    check("the end of the line", from.len(), to.len())?;
    let mut point = vec![0.0; from.len()];
    let mut values = Vec::with_capacity(alphas.len());
    for alpha in alphas {
        for (point, (x, y)) in point.iter_mut().zip(from.iter().zip(to)) {
            *point = (1.0 - alpha) * x + alpha * y;
        }
        values.push(evaluate(&point).map_err(SurfaceError::Evaluation)?);
    }
    Ok(values)
}

/// Values on a square around the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Plane<T> {
    /// Positions along both directions, from -extent to extent; the middle one is 0.
    pub positions: Vec<f64>,
    /// Values by rows: entry i * points + j is at positions\[i\] along the second direction and
    /// positions\[j\] along the first.
    pub values: Vec<T>,
}

/// What `evaluate` finds at x + a d1 + b d2, a and b in [-extent, extent], `points` values each.
///
/// # Errors
/// If lengths differ, the extent is not positive, the number of points is even or below 3, or
/// `evaluate` fails.
pub fn plane<T, E>(
    at: &[f64],
    first: &[f64],
    second: &[f64],
    extent: f64,
    points: usize,
    mut evaluate: impl FnMut(&[f64]) -> Result<T, E>,
) -> Result<Plane<T>, SurfaceError<E>> {
    check("the first direction", at.len(), first.len())?;
    check("the second direction", at.len(), second.len())?;
    if !(extent > 0.0 && extent.is_finite()) {
        return Err(SurfaceError::Extent { found: extent });
    }
    if points < 3 || points.is_multiple_of(2) {
        return Err(SurfaceError::Points { found: points });
    }
    let positions = positions(-extent, extent, points);
    let mut point = at.to_vec();
    let mut values = Vec::with_capacity(points * points);
    for b in &positions {
        for a in &positions {
            point.copy_from_slice(at);
            add_scaled(&mut point, *a, first);
            add_scaled(&mut point, *b, second);
            values.push(evaluate(&point).map_err(SurfaceError::Evaluation)?);
        }
    }
    Ok(Plane { positions, values })
}

/// A random direction whose filters are as long as those of the parameters (Li et al. 2018, section
/// 4): standard normal numbers (stream `surface-direction` of the seed, by `index`), each filter d
/// replaced by d |w|/|d|.
///
/// A filter is what makes one output: a column of a dense layer's weights \[in, out\], an output
/// channel of a convolution's kernel \[out, ...\], the row of an embedding table, and all of a
/// tensor of role `other` with two dimensions or more. Biases, parameters of normalization layers
/// and other vectors get 0, as in the authors' program: they are no filters, and the loss often
/// hardly depends on their scale.
///
/// With `orthogonal_to`, another such direction, each filter is made orthogonal to its counterpart
/// there before it is scaled, so that the whole is orthogonal and still normalized by filters. A
/// filter of one weight has no orthogonal direction and becomes 0.
///
/// # Errors
/// If lengths do not fit the layout.
pub fn filter_normalized<E>(
    layout: &Layout,
    at: &[f64],
    seed: u64,
    index: u64,
    orthogonal_to: Option<&[f64]>,
) -> Result<Vec<f64>, SurfaceError<E>> {
    check("the parameters", layout.len(), at.len())?;
    if let Some(other) = orthogonal_to {
        check("the other direction", layout.len(), other.len())?;
    }
    let mut stream = Stream::new(seed, "surface-direction", index);
    let mut direction: Vec<f64> = at.iter().map(|_| stream.normal()).collect();
    for parameter in &layout.parameters {
        let range = parameter.range.clone();
        let Some(filters) = Filters::of(parameter) else {
            direction[range].fill(0.0);
            continue;
        };
        for filter in 0..filters.count {
            let weights = filters.gather(filter, &at[range.clone()]);
            let mut moves = filters.gather(filter, &direction[range.clone()]);
            if let Some(other) = orthogonal_to {
                let other = filters.gather(filter, &other[range.clone()]);
                project_out(&mut moves, &other);
            }
            let length = norm(&moves);
            let scale = if length > 0.0 {
                norm(&weights) / length
            } else {
                0.0
            };
            for d in &mut moves {
                *d *= scale;
            }
            filters.scatter(filter, &moves, &mut direction[range.clone()]);
        }
    }
    Ok(direction)
}

/// Takes the part along `other` out of `moves`, twice against rounding.
fn project_out(moves: &mut [f64], other: &[f64]) {
    let square = dot(other, other);
    if square == 0.0 {
        return;
    }
    if moves.len() == 1 {
        moves[0] = 0.0;
        return;
    }
    for _ in 0..2 {
        let share = dot(moves, other) / square;
        add_scaled(moves, -share, other);
    }
}

/// How the filters of a tensor lie in it.
struct Filters {
    count: usize,
    size: usize,
    /// Whether a filter's weights are `count` apart, rather than next to each other.
    columns: bool,
}

impl Filters {
    /// `None` where all weights of the parameter are left alone.
    fn of(parameter: &Parameter) -> Option<Self> {
        let shape = &parameter.shape;
        let len = parameter.range.len();
        let (count, columns) = match parameter.role {
            Role::Dense => (*shape.last()?, true),
            Role::Convolution | Role::Embedding => (*shape.first()?, false),
            Role::Other if shape.len() > 1 => (1, false),
            Role::Bias | Role::NormalizationScale | Role::NormalizationShift | Role::Other => {
                return None;
            }
        };
        Some(Self {
            count,
            size: len.checked_div(count)?,
            columns,
        })
    }

    fn range(&self, filter: usize) -> Range<usize> {
        filter * self.size..(filter + 1) * self.size
    }

    fn gather(&self, filter: usize, tensor: &[f64]) -> Vec<f64> {
        if self.columns {
            let column = tensor.iter().skip(filter).step_by(self.count);
            column.copied().collect()
        } else {
            tensor[self.range(filter)].to_vec()
        }
    }

    fn scatter(&self, filter: usize, values: &[f64], tensor: &mut [f64]) {
        if self.columns {
            let column = tensor.iter_mut().skip(filter).step_by(self.count);
            for (weight, value) in column.zip(values) {
                *weight = *value;
            }
        } else {
            tensor[self.range(filter)].copy_from_slice(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.push("conv.weight", &[3, 2, 2, 2], Role::Convolution);
        layout.push("norm.gamma", &[3], Role::NormalizationScale);
        layout.push("norm.beta", &[3], Role::NormalizationShift);
        layout.push("fc.weight", &[4, 5], Role::Dense);
        layout.push("fc.bias", &[5], Role::Bias);
        layout.push("table", &[6, 2], Role::Embedding);
        layout.push("other", &[2, 3], Role::Other);
        layout.push("scalars", &[2], Role::Other);
        layout
    }

    fn weights(n: usize) -> Vec<f64> {
        (0..n).map(|i| (i as f64 * 1.7).sin() + 0.1).collect()
    }

    /// Positions of the weights of each filter in the flat vector, written out.
    fn filters() -> Vec<Vec<usize>> {
        let mut filters: Vec<Vec<usize>> = (0..3).map(|c| (8 * c..8 * c + 8).collect()).collect();
        filters.extend((0..5).map(|j| (0..4).map(|i| 30 + 5 * i + j).collect()));
        filters.extend((0..6).map(|row| vec![55 + 2 * row, 56 + 2 * row]));
        filters.push((67..73).collect());
        filters
    }

    fn pick(v: &[f64], filter: &[usize]) -> Vec<f64> {
        filter.iter().map(|&i| v[i]).collect()
    }

    fn direction(at: &[f64], index: u64, other: Option<&[f64]>) -> Vec<f64> {
        filter_normalized::<Infallible>(&layout(), at, 3, index, other).unwrap()
    }

    #[test]
    fn a_filter_of_the_direction_is_as_long_as_that_of_the_weights() {
        let at = weights(layout().len());
        let found = direction(&at, 0, None);
        let mut inside = vec![false; at.len()];
        for filter in filters() {
            let (d, w) = (norm(&pick(&found, &filter)), norm(&pick(&at, &filter)));
            assert!((d - w).abs() < 1e-14, "{d} instead of {w}");
            for i in filter {
                inside[i] = true;
            }
        }
        for (d, inside) in found.iter().zip(inside) {
            assert_eq!(*d != 0.0, inside);
        }
        assert_eq!(found, direction(&at, 0, None));
        assert_ne!(found, direction(&at, 1, None));
    }

    #[test]
    fn an_orthogonal_direction_is_so_filter_by_filter() {
        let at = weights(layout().len());
        let first = direction(&at, 0, None);
        let second = direction(&at, 1, Some(&first));
        for filter in filters() {
            let (a, b) = (pick(&first, &filter), pick(&second, &filter));
            let w = norm(&pick(&at, &filter));
            assert!(dot(&a, &b).abs() < 1e-14 * w * w);
            assert!((norm(&b) - w).abs() < 1e-14);
        }
    }

    #[test]
    fn a_filter_of_zeros_or_of_one_weight_does_not_break_the_direction() {
        let mut layout = Layout::default();
        layout.push("a", &[1, 2], Role::Dense);
        layout.push("b", &[2, 2], Role::Dense);
        let at = [3.0, -2.0, 0.0, 1.0, 0.0, 1.0];
        let make =
            |index, other| filter_normalized::<Infallible>(&layout, &at, 0, index, other).unwrap();
        let first: Vec<f64> = make(0, None);
        assert_eq!([first[0].abs(), first[1].abs()], [3.0, 2.0]);
        assert_eq!([first[2], first[4]], [0.0, 0.0]);
        let second = make(1, Some(&first));
        assert_eq!(second[..2], [0.0, 0.0]);
        assert!(dot(&first, &second).abs() < 1e-14);
    }

    #[test]
    fn a_line_passes_through_both_ends() {
        let (from, to) = ([1.0, -2.0], [4.0, 0.5]);
        for (low, high) in [(-1.0, 2.0), (-0.5, 1.5)] {
            let alphas = positions(low, high, LINE_POINTS);
            assert_eq!((alphas[0], alphas[24]), (low, high));
            let points = line(&from, &to, &alphas, |x| Ok::<_, Infallible>(x.to_vec())).unwrap();
            let at = |a: f64| &points[alphas.iter().position(|&x| x == a).unwrap()];
            assert_eq!(at(0.0), &from);
            assert_eq!(at(1.0), &to);
            assert_eq!(at(0.5), &[2.5, -0.75]);
        }
        assert_eq!(positions(2.0, 3.0, 1), [2.0]);
        assert_eq!(positions(2.0, 3.0, 0), [0.0; 0]);
    }

    #[test]
    fn a_plane_has_its_point_in_the_middle() {
        let ask = |x: &[f64]| Ok::<_, Infallible>(x.to_vec());
        let found = plane(&[1.0, 2.0], &[10.0, 0.0], &[0.0, 100.0], 1.0, 5, ask).unwrap();
        assert_eq!(found.positions, [-1.0, -0.5, 0.0, 0.5, 1.0]);
        assert_eq!(found.values.len(), 25);
        assert_eq!(found.values[12], [1.0, 2.0]);
        assert_eq!(found.values[3], [6.0, -98.0]);
        assert_eq!(found.values[5], [-9.0, -48.0]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let ask = |_: &[f64]| Ok::<_, Infallible>(());
        let fail = |_: &[f64]| Err::<(), _>("no");
        let square = |extent, points| plane(&[1.0], &[1.0], &[2.0], extent, points, ask);
        assert!(matches!(
            square(1.0, 4),
            Err(SurfaceError::Points { found: 4 })
        ));
        assert!(matches!(
            square(1.0, 1),
            Err(SurfaceError::Points { found: 1 })
        ));
        assert!(matches!(square(0.0, 5), Err(SurfaceError::Extent { .. })));
        let short = plane(&[1.0, 2.0], &[1.0, 0.0], &[2.0], 1.0, 5, ask);
        assert!(matches!(short, Err(SurfaceError::Length { found: 1, .. })));
        let short = line(&[1.0, 2.0], &[1.0], &[0.0], ask);
        assert!(matches!(short, Err(SurfaceError::Length { found: 1, .. })));
        let failed = line(&[1.0], &[2.0], &[0.0], fail);
        assert_eq!(failed, Err(SurfaceError::Evaluation("no")));
        let short = filter_normalized::<Infallible>(&layout(), &[1.0], 0, 0, None);
        assert!(matches!(short, Err(SurfaceError::Length { found: 1, .. })));
    }
}
