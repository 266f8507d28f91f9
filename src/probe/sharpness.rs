//! How far the loss rises near the parameters: the largest rise in a box (Keskar et al. 2017) and in
//! a ball (Foret et al. 2021), the expected rise under Gaussian noise, and relative flatness (Petzka
//! et al. 2021).
//!
//! f is the loss of the training split. None of these measures is a property of the function that a
//! network computes: see [`CAVEAT`].

use std::ops::Range;

use thiserror::Error;

use super::Landscape;
use super::landscape::difference_step;
use crate::math::lbfgs_b::{self, MinimizeError, Outcome, Settings};
use crate::math::operator::{add_scaled, dot, norm};
use crate::math::statistics::Moments;
use crate::objective::Layout;
use crate::rng::Stream;

/// What every output that shows one of these measures says beside it.
pub const CAVEAT: &str = "Rescaling the layers of a ReLU network changes sharpness (Keskar's measure, \
     worst loss in a ball, expected loss under noise) but not the function that the network computes \
     (Dinh et al. 2017), so compare it only between runs of one model trained in one way; relative \
     flatness does not change.";

/// The ratio of the measured slope of the loss along its gradient to the one the gradient says must
/// lie between 1/2 and 2.
const GRADIENT_FACTOR: f64 = 2.0;

/// A difference of two losses tells where it is this many times the rounding of one.
const RESOLVED: f64 = 1e3;

/// Where the second start lies: uniform within this share of the box, or this share of the radius
/// away. Small, so that it keeps the signs of those components of the gradient at x that mean
/// something, and large beside rounding.
const INTERIOR: f64 = 0.01;

/// Why a measure was not taken.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SharpnessError<E> {
    /// The loss could not be evaluated.
    #[error("the loss could not be evaluated: {0}")]
    Landscape(E),
    /// A vector that does not fit.
    #[error("{what}: expected {expected}, found {found}")]
    Length {
        /// What was given.
        what: &'static str,
        /// The length that fits.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A setting that makes no sense.
    #[error("{name} is {found}; it must be {right}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: f64,
        /// What would be right.
        right: &'static str,
    },
    /// There is nothing to measure a rise from.
    #[error("the loss at the parameters is {loss}; it must be {right}")]
    Loss {
        /// f(x).
        loss: f64,
        /// What would be right.
        right: &'static str,
    },
    /// The gradient is not that of the loss, so a search that follows it finds no maximum.
    #[error(
        "along its gradient of length {length:e} the loss changes at the rate {slope:e}: they should \
         be equal; the gradient has the wrong sign or scale"
    )]
    GradientSign {
        /// (f(y + e g/|g|) - f(y - e g/|g|))/(2e).
        slope: f64,
        /// |g|.
        length: f64,
    },
    /// The columns of A are not independent in double precision.
    #[error("the {columns} random directions are linearly dependent; use fewer")]
    Dependent {
        /// Number of columns.
        columns: usize,
    },
}

/// What to maximize over in Keskar's measure, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keskar {
    /// Half the side of the box, e; 1e-3 and 5e-4 in the paper.
    pub epsilon: f64,
    /// p, the columns of a random A (100 in the paper); `None`: A is the identity.
    pub subspace: Option<usize>,
    /// Iterations of the maximization, at least 1; 10 in the paper.
    pub iterations: usize,
    /// Pairs that L-BFGS-B remembers, at least 1.
    pub memory: usize,
    /// Seed of A and of the second start.
    pub seed: u64,
}

impl Keskar {
    /// As in the paper: 10 iterations.
    pub fn new(epsilon: f64, subspace: Option<usize>, seed: u64) -> Self {
        Self {
            epsilon,
            subspace,
            iterations: 10,
            memory: 10,
            seed,
        }
    }
}

/// Which search found the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// L-BFGS-B.
    Lbfgs,
    /// Projected sign-gradient ascent, or a corner that the sign of a gradient points to.
    Ascent,
}

/// Keskar's sharpness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeskarSharpness {
    /// phi = 100 (maximum - loss)/(1 + loss), in per cent; never negative.
    pub value: f64,
    /// f(x).
    pub loss: f64,
    /// The largest f found in the box.
    pub maximum: f64,
    /// Half the side of the box, e.
    pub epsilon: f64,
    /// p, or `None` in the full space.
    pub subspace: Option<usize>,
    /// Which search found the maximum.
    pub from: FoundBy,
    /// The largest f that L-BFGS-B found.
    pub lbfgs_maximum: f64,
    /// How the better of its two runs ended.
    pub outcome: Outcome,
    /// What was checked.
    pub self_check: SelfCheck,
    /// Evaluations of the loss, with or without its gradient.
    pub evaluations: usize,
}

/// What a measure of sharpness is checked against. The maximum is at least each of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfCheck {
    /// The slope of the loss along its gradient, from two losses, divided by the length of the
    /// gradient: 1 up to the error of the difference. `None` where the gradient is so small that the
    /// two losses do not tell.
    pub gradient_ratio: Option<f64>,
    /// The largest f that projected sign-gradient ascent found.
    pub ascent_maximum: f64,
    /// The larger f at the two corners that the signs of the gradients at the starts point to.
    pub corner_maximum: f64,
}

/// Keskar's sharpness (Keskar et al. 2017, metric 2.1):
///
/// phi = 100 (max f(x + A z) - f(x))/(1 + f(x)) over |z_i| <= e (|(A+ x)_i| + 1).
///
/// A is the identity, or n x p with independent standard normal entries (streams
/// `sharpness-subspace` of the seed, one a column), not scaled. Whether the paper scales its columns
/// is not known to us; its two measures of one network differ by factors of 1.1 to 37. To first
/// order they are in the ratio e |g|_1 to e |A'g|_1, which is about sqrt(n)/p with these columns, 10
/// for a million parameters and p = 100; columns of length 1 would make it n/p, 10 000. A+ x =
/// (A'A)^-1 A'x, by the factor of Cholesky. The entries of A are rounded to f32; A is stored where
/// that takes at most 512 MiB, and drawn again at each product elsewhere, with the same bits.
///
/// The maximum is looked for by L-BFGS-B on -f with the gradient -A'g, `iterations` long, in the
/// variables z_i/(half the box), with the loss measured from f(x) and divided by the mean magnitude
/// of the components of the gradient at the start, so that the first step is of the size of the box.
/// It starts twice: at x, where the gradient of a trained network may be nothing but rounding, and at
/// a random point in a hundredth of the box (stream `sharpness-start`).
///
/// Two checks: the gradient at the random point must agree with a difference of losses in its
/// direction within a factor 2 ([`SharpnessError::GradientSign`]); and as many steps of projected
/// sign-gradient ascent (from the random point, each 2.5/iterations of half the box), as well as the
/// corners that the signs of the gradients at both starts point to, are tried too. The largest value
/// counts, and the result says which search found it.
///
/// # Errors
/// With settings that make no sense, a loss at most -1 or not finite, a gradient that is not that of
/// the loss; if the loss fails.
pub fn keskar<L: Landscape>(
    landscape: &mut L,
    at: &[f64],
    settings: &Keskar,
) -> Result<KeskarSharpness, SharpnessError<L::Error>> {
    check_length(landscape, at)?;
    check_positive("epsilon", settings.epsilon)?;
    check_count("iterations", settings.iterations)?;
    if at.iter().any(|x| !x.is_finite()) {
        // Weights that have diverged: they have no coordinates in a subspace, and no loss.
        check_finite(f64::NAN)?;
    }
    let subspace = match settings.subspace {
        Some(columns) if columns == 0 || columns > at.len() => {
            return Err(SharpnessError::Setting {
                name: "subspace",
                found: columns as f64,
                right: "from 1 to the number of parameters",
            });
        }
        Some(columns) => Some(Subspace::new(settings.seed, at.len(), columns)),
        None => None,
    };
    let coordinates = match &subspace {
        Some(subspace) => subspace.coordinates(at).ok_or(SharpnessError::Dependent {
            columns: subspace.columns,
        })?,
        None => at.to_vec(),
    };
    let mut widths = coordinates;
    for width in &mut widths {
        *width = settings.epsilon * (width.abs() + 1.0);
    }
    let p = widths.len();
    let mut search = Search {
        point: at.to_vec(),
        gradient: vec![0.0; at.len()],
        landscape,
        at,
        subspace,
        widths,
        evaluations: 0,
    };

    let here = search.start(vec![0.0; p])?;
    let loss = here.value;
    if !(loss.is_finite() && loss > -1.0) {
        return Err(SharpnessError::Loss {
            loss,
            right: "finite and above -1, for Keskar's measure divides by 1 + loss",
        });
    }
    let mut stream = Stream::new(settings.seed, "sharpness-start", 0);
    let nearby = search.start(
        (0..p)
            .map(|_| INTERIOR * (2.0 * stream.uniform() - 1.0))
            .collect(),
    )?;
    let gradient_ratio = search.check_gradient(nearby.value)?;

    let mut corner_maximum = f64::NEG_INFINITY;
    for start in [&here, &nearby] {
        let corner: Vec<f64> = start.gradient.iter().map(|&g| sign(g)).collect();
        corner_maximum = larger(corner_maximum, search.loss(&corner)?);
    }
    let ascent_maximum = search.ascend(&nearby, settings.iterations)?;
    let (mut lbfgs_maximum, mut outcome) = search.climb(here, loss, settings)?;
    let (second, ended) = search.climb(nearby, loss, settings)?;
    if second > lbfgs_maximum {
        (lbfgs_maximum, outcome) = (second, ended);
    }
    let others = larger(ascent_maximum, corner_maximum);
    let maximum = larger(lbfgs_maximum, others);
    Ok(KeskarSharpness {
        value: 100.0 * (maximum - loss) / (1.0 + loss),
        loss,
        maximum,
        epsilon: settings.epsilon,
        subspace: settings.subspace,
        from: if others > lbfgs_maximum {
            FoundBy::Ascent
        } else {
            FoundBy::Lbfgs
        },
        lbfgs_maximum,
        outcome,
        self_check: SelfCheck {
            gradient_ratio,
            ascent_maximum,
            corner_maximum,
        },
        evaluations: search.evaluations,
    })
}

/// The larger finite one; the first where the second is not finite.
fn larger(a: f64, b: f64) -> f64 {
    if b.is_finite() && b > a { b } else { a }
}

/// 1, -1, or 0 of zero and of what is not a number.
fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// A point of the box with f and its gradient, all in the variables u = z/widths in [-1, 1].
struct Start {
    at: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// f over the box.
struct Search<'a, L> {
    landscape: &'a mut L,
    at: &'a [f64],
    subspace: Option<Subspace>,
    /// Half the sides of the box.
    widths: Vec<f64>,
    /// x + A z of the last point.
    point: Vec<f64>,
    /// The gradient there.
    gradient: Vec<f64>,
    evaluations: usize,
}

impl<L: Landscape> Search<'_, L> {
    /// Sets the point to x + A z, z = u times the widths.
    fn place(&mut self, u: &[f64]) {
        self.point.copy_from_slice(self.at);
        match &self.subspace {
            None => {
                let moves = u.iter().zip(&self.widths);
                for (point, (u, width)) in self.point.iter_mut().zip(moves) {
                    *point += u * width;
                }
            }
            Some(subspace) => {
                let z: Vec<f64> = u.iter().zip(&self.widths).map(|(u, w)| u * w).collect();
                subspace.add_product(&z, &mut self.point);
            }
        }
    }

    fn loss(&mut self, u: &[f64]) -> Result<f64, SharpnessError<L::Error>> {
        self.place(u);
        self.evaluations += 1;
        self.landscape
            .loss(&self.point)
            .map_err(SharpnessError::Landscape)
    }

    /// f; overwrites `gradient` with its gradient with respect to u.
    fn ask(&mut self, u: &[f64], gradient: &mut [f64]) -> Result<f64, L::Error> {
        self.place(u);
        self.evaluations += 1;
        let value = self.landscape.gradient(&self.point, &mut self.gradient)?;
        match &self.subspace {
            None => gradient.copy_from_slice(&self.gradient),
            Some(subspace) => subspace.transposed_product(&self.gradient, gradient),
        }
        for (g, width) in gradient.iter_mut().zip(&self.widths) {
            *g *= width;
        }
        Ok(value)
    }

    fn start(&mut self, at: Vec<f64>) -> Result<Start, SharpnessError<L::Error>> {
        let mut gradient = vec![0.0; at.len()];
        let value = self
            .ask(&at, &mut gradient)
            .map_err(SharpnessError::Landscape)?;
        Ok(Start {
            at,
            value,
            gradient,
        })
    }

    /// Compares the gradient at the last point, where f is `value`, with a difference of f.
    fn check_gradient(&mut self, value: f64) -> Result<Option<f64>, SharpnessError<L::Error>> {
        let length = norm(&self.gradient);
        let step = difference_step(&self.point);
        let resolution = RESOLVED * f64::EPSILON * value.abs();
        if !(length.is_finite() && 2.0 * step * length > resolution) {
            return Ok(None);
        }
        let mut losses = [0.0; 2];
        let shift = step / length;
        add_scaled(&mut self.point, shift, &self.gradient);
        for loss in &mut losses {
            self.evaluations += 1;
            *loss = self
                .landscape
                .loss(&self.point)
                .map_err(SharpnessError::Landscape)?;
            add_scaled(&mut self.point, -2.0 * shift, &self.gradient);
        }
        let slope = (losses[0] - losses[1]) / (2.0 * step);
        let ratio = slope / length;
        if !slope.is_finite() {
            // A loss that overflows says nothing about the gradient's sign.
            return Ok(None);
        }
        if (1.0 / GRADIENT_FACTOR..=GRADIENT_FACTOR).contains(&ratio) {
            Ok(Some(ratio))
        } else {
            Err(SharpnessError::GradientSign { slope, length })
        }
    }

    /// The largest f on the way of projected sign-gradient ascent.
    fn ascend(&mut self, start: &Start, steps: usize) -> Result<f64, SharpnessError<L::Error>> {
        let step = 2.5 / steps as f64;
        let mut at = start.at.clone();
        let mut gradient = start.gradient.clone();
        let mut maximum = start.value;
        for last in (0..steps).rev() {
            for (u, &g) in at.iter_mut().zip(&gradient) {
                *u = (*u + step * sign(g)).clamp(-1.0, 1.0);
            }
            let value = if last == 0 {
                self.loss(&at)?
            } else {
                self.ask(&at, &mut gradient)
                    .map_err(SharpnessError::Landscape)?
            };
            maximum = larger(maximum, value);
        }
        Ok(maximum)
    }

    /// The largest f on the way of L-BFGS-B, and how that ended.
    fn climb(
        &mut self,
        start: Start,
        loss: f64,
        settings: &Keskar,
    ) -> Result<(f64, Outcome), SharpnessError<L::Error>> {
        let p = start.at.len();
        let mean = start.gradient.iter().map(|g| g.abs()).sum::<f64>() / p.max(1) as f64;
        let scale = if mean.is_finite() && mean > 0.0 {
            mean
        } else {
            1.0
        };
        let mut maximum = start.value;
        let Start {
            at,
            value,
            gradient,
        } = start;
        let mut known = Some((value, gradient));
        let evaluate = |u: &[f64], g: &mut [f64]| {
            let value = match known.take() {
                Some((value, gradient)) => {
                    g.copy_from_slice(&gradient);
                    value
                }
                None => self.ask(u, g)?,
            };
            maximum = larger(maximum, value);
            for g in g.iter_mut() {
                *g = -*g / scale;
            }
            Ok((loss - value) / scale)
        };
        let limits = Settings {
            iterations: settings.iterations,
            memory: settings.memory,
            gradient_tolerance: 0.0,
            function_tolerance: 1e-12,
            // One evaluation an iteration is usual.
            max_evaluations: 4 * settings.iterations + 20,
        };
        let found = lbfgs_b::minimize(evaluate, &at, &vec![-1.0; p], &vec![1.0; p], &limits);
        match found {
            Ok(found) => Ok((maximum, found.outcome)),
            Err(MinimizeError::Function(error)) => Err(SharpnessError::Landscape(error)),
            Err(MinimizeError::Bounds { .. } | MinimizeError::Length { .. }) => {
                unreachable!("the bounds are -1 and 1, one pair a variable")
            }
        }
    }
}

/// A random n x p matrix A of standard normal numbers, held or drawn again at each use.
struct Subspace {
    seed: u64,
    rows: usize,
    columns: usize,
    /// Blocks of rows one after the other, each column by column.
    stored: Option<Vec<f32>>,
}

impl Subspace {
    /// Rows of a block.
    const BLOCK: usize = 1024;

    /// Most numbers that are held: 512 MiB.
    const STORED: usize = 1 << 27;

    fn new(seed: u64, rows: usize, columns: usize) -> Self {
        let mut subspace = Self {
            seed,
            rows,
            columns,
            stored: None,
        };
        if rows.saturating_mul(columns) <= Self::STORED {
            let mut all = Vec::with_capacity(rows * columns);
            subspace.each_block(|_, block| all.extend(block.iter().map(|&a| a as f32)));
            subspace.stored = Some(all);
        }
        subspace
    }

    /// Visits the blocks in order, each with the range of its rows.
    fn each_block(&self, mut visit: impl FnMut(Range<usize>, &[f64])) {
        let ranges = (0..self.rows)
            .step_by(Self::BLOCK)
            .map(|first| first..self.rows.min(first + Self::BLOCK));
        let mut block = vec![0.0; self.columns * Self::BLOCK.min(self.rows)];
        if let Some(stored) = &self.stored {
            for rows in ranges {
                let held = &stored[rows.start * self.columns..rows.end * self.columns];
                let block = &mut block[..held.len()];
                for (a, &held) in block.iter_mut().zip(held) {
                    *a = f64::from(held);
                }
                visit(rows, block);
            }
            return;
        }
        let stream = |column| Stream::new(self.seed, "sharpness-subspace", column as u64);
        let mut streams: Vec<Stream> = (0..self.columns).map(stream).collect();
        for rows in ranges {
            let block = &mut block[..rows.len() * self.columns];
            for (column, stream) in block.chunks_exact_mut(rows.len()).zip(&mut streams) {
                column.fill_with(|| f64::from(stream.normal() as f32));
            }
            visit(rows, block);
        }
    }

    /// v <- v + A z.
    fn add_product(&self, z: &[f64], v: &mut [f64]) {
        self.each_block(|rows, block| {
            for (column, &z) in block.chunks_exact(rows.len()).zip(z) {
                add_scaled(&mut v[rows.clone()], z, column);
            }
        });
    }

    /// product <- A'v.
    fn transposed_product(&self, v: &[f64], product: &mut [f64]) {
        product.fill(0.0);
        self.each_block(|rows, block| {
            let part = &v[rows.clone()];
            for (column, product) in block.chunks_exact(rows.len()).zip(&mut *product) {
                *product += dot(column, part);
            }
        });
    }

    /// A+ x = (A'A)^-1 A'x; `None` where A'A is singular in double precision.
    fn coordinates(&self, x: &[f64]) -> Option<Vec<f64>> {
        let p = self.columns;
        let mut gram = vec![0.0; p * p];
        let mut right = vec![0.0; p];
        self.each_block(|rows, block| {
            let n = rows.len();
            let part = &x[rows];
            for (i, a) in block.chunks_exact(n).enumerate() {
                right[i] += dot(a, part);
                for (j, b) in block.chunks_exact(n).take(i + 1).enumerate() {
                    gram[i * p + j] += dot(a, b);
                }
            }
        });
        solve_by_cholesky(&mut gram, &mut right).then_some(right)
    }
}

/// Solves A x = b in place of b for a symmetric positive definite A given by rows, of which the part
/// on and below the diagonal is read and overwritten; false where A is not so.
fn solve_by_cholesky(a: &mut [f64], b: &mut [f64]) -> bool {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let (upper, lower) = a.split_at_mut(i * n);
            let row = &mut lower[..n];
            if j < i {
                let other = &upper[j * n..j * n + n];
                row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
            } else {
                let full = row[i];
                let rest = full - dot(&row[..i], &row[..i]);
                let positive = rest > full * f64::EPSILON * n as f64;
                if !positive {
                    return false;
                }
                row[i] = rest.sqrt();
            }
        }
    }
    for i in 0..n {
        b[i] = (b[i] - dot(&a[i * n..i * n + i], &b[..i])) / a[i * n + i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[k * n + i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * n + i];
    }
    b.iter().all(|x| x.is_finite())
}

/// The largest rise of the loss in a ball.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorstLoss {
    /// Radius of the ball.
    pub rho: f64,
    /// f(x).
    pub loss: f64,
    /// The rise to x + rho g/|g|, the step of SAM; 0 where g is 0. May be negative.
    pub one_step: f64,
    /// The largest rise on the way of projected gradient ascent. May be negative.
    pub ascent: f64,
    /// The largest rise found, at least 0.
    pub value: f64,
    /// Evaluations of the loss, with or without its gradient.
    pub evaluations: usize,
}

/// max f(x + d) - f(x) over |d| <= rho (Foret et al. 2021, the quantity that SAM minimizes).
///
/// SAM's own estimate is one step of length rho along the gradient g, right to first order. At a
/// minimum g says nothing, so the maximum is also looked for by `steps` steps of projected gradient
/// ascent, from a random point at rho/100 (stream `worst-loss` of the seed): d <- P(d + a g/|g|), P
/// the projection onto the ball. a is 4 rho at first, which on a quadratic is nearly power iteration
/// on the Hessian; a step that lowers the loss is taken back and a halved.
///
/// # Errors
/// With a radius that is not positive, without steps, where the loss at x is not finite; if the loss
/// fails.
pub fn worst_loss_l2<L: Landscape>(
    landscape: &mut L,
    at: &[f64],
    rho: f64,
    steps: usize,
    seed: u64,
) -> Result<WorstLoss, SharpnessError<L::Error>> {
    check_length(landscape, at)?;
    check_positive("rho", rho)?;
    check_count("steps", steps)?;
    let failed = SharpnessError::Landscape;
    let n = at.len();
    let mut gradient = vec![0.0; n];
    let loss = landscape.gradient(at, &mut gradient).map_err(failed)?;
    check_finite(loss)?;
    let mut evaluations = 1;
    let mut point = at.to_vec();
    let length = norm(&gradient);
    let mut one_step = 0.0;
    if length > 0.0 {
        add_scaled(&mut point, rho / length, &gradient);
        one_step = landscape.loss(&point).map_err(failed)? - loss;
        evaluations += 1;
    }

    let mut stream = Stream::new(seed, "worst-loss", 0);
    let mut best: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
    let shrink = INTERIOR * rho / norm(&best).max(f64::MIN_POSITIVE);
    for d in &mut best {
        *d *= shrink;
    }
    let mut trial = best.clone();
    let mut trial_gradient = vec![0.0; n];
    let mut ascent = f64::NEG_INFINITY;
    let mut step = 4.0 * rho;
    for taken in 0..=steps {
        if taken > 0 {
            let length = norm(&gradient);
            if !(length.is_finite() && length > 0.0) {
                break;
            }
            trial.copy_from_slice(&best);
            add_scaled(&mut trial, step / length, &gradient);
            let outside = norm(&trial) / rho;
            if outside > 1.0 {
                for d in &mut trial {
                    *d /= outside;
                }
            }
        }
        for (point, (x, d)) in point.iter_mut().zip(at.iter().zip(&trial)) {
            *point = x + d;
        }
        let rise = landscape
            .gradient(&point, &mut trial_gradient)
            .map_err(failed)?
            - loss;
        evaluations += 1;
        if taken == 0 || rise > ascent {
            ascent = rise;
            std::mem::swap(&mut best, &mut trial);
            std::mem::swap(&mut gradient, &mut trial_gradient);
        } else {
            step /= 2.0;
        }
    }
    Ok(WorstLoss {
        rho,
        loss,
        one_step,
        ascent,
        value: larger(larger(0.0, one_step), ascent),
        evaluations,
    })
}

/// The expected rise of the loss under Gaussian noise on the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaussianLoss {
    /// Standard deviation of the noise on each parameter.
    pub sigma: f64,
    /// f(x).
    pub loss: f64,
    /// E f(x + sigma xi) - f(x), estimated without bias. Not finite where a loss was.
    pub value: f64,
    /// Its standard error; `None` of one pair.
    pub standard_error: Option<f64>,
    /// Pairs of draws.
    pub draws: usize,
    /// Evaluations of the loss.
    pub evaluations: usize,
}

/// E f(x + sigma xi) - f(x), xi standard normal, from `draws` antithetic pairs, each the mean of
/// f(x + sigma xi) and f(x - sigma xi), in which the slope of f at x cancels (streams
/// `gaussian-loss` of the seed, one a pair). To second order it is sigma^2 tr(H)/2.
///
/// # Errors
/// With a sigma that is not positive, without draws, where the loss at x is not finite; if the loss
/// fails.
pub fn gaussian_loss<L: Landscape>(
    landscape: &mut L,
    at: &[f64],
    sigma: f64,
    draws: usize,
    seed: u64,
) -> Result<GaussianLoss, SharpnessError<L::Error>> {
    check_length(landscape, at)?;
    check_positive("sigma", sigma)?;
    check_count("draws", draws)?;
    let failed = SharpnessError::Landscape;
    let loss = landscape.loss(at).map_err(failed)?;
    check_finite(loss)?;
    let mut noise = vec![0.0; at.len()];
    let mut point = at.to_vec();
    let mut rises = Moments::default();
    for draw in 0..draws {
        let mut stream = Stream::new(seed, "gaussian-loss", draw as u64);
        noise.fill_with(|| stream.normal());
        let mut sum = 0.0;
        for factor in [sigma, -sigma] {
            point.copy_from_slice(at);
            add_scaled(&mut point, factor, &noise);
            sum += landscape.loss(&point).map_err(failed)?;
        }
        rises.push(sum / 2.0 - loss);
    }
    Ok(GaussianLoss {
        sigma,
        loss,
        value: rises.mean().unwrap_or(f64::NAN),
        standard_error: rises
            .standard_deviation()
            .map(|deviation| deviation / (draws as f64).sqrt()),
        draws,
        evaluations: 1 + 2 * draws,
    })
}

/// Relative flatness.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeFlatness {
    /// |w|^2 tr(H_ww) of each parameter tensor w, in the order of the layout.
    pub parameters: Vec<f64>,
    /// Their sum.
    pub value: f64,
}

/// sum |w|^2 tr(H_ww) over the parameter tensors w, from the trace of each one's block of the
/// Hessian (Petzka et al. 2021, whose measure also has the products between neurons of one layer). It
/// does not change where a layer is multiplied by a and the next one divided by a.
///
/// # Errors
/// If the lengths do not fit the layout.
pub fn relative_flatness<E>(
    layout: &Layout,
    at: &[f64],
    traces: &[f64],
) -> Result<RelativeFlatness, SharpnessError<E>> {
    let count = layout.parameters.len();
    for (what, expected, found) in [
        ("parameters", layout.len(), at.len()),
        ("traces of blocks", count, traces.len()),
    ] {
        if expected != found {
            return Err(SharpnessError::Length {
                what,
                expected,
                found,
            });
        }
    }
    let blocks = layout.parameters.iter().zip(traces);
    let parameters: Vec<f64> = blocks
        .map(|(parameter, trace)| {
            let weights = &at[parameter.range.clone()];
            dot(weights, weights) * trace
        })
        .collect();
    Ok(RelativeFlatness {
        value: parameters.iter().sum(),
        parameters,
    })
}

fn check_length<L: Landscape>(landscape: &L, at: &[f64]) -> Result<(), SharpnessError<L::Error>> {
    if landscape.dimension() == at.len() {
        Ok(())
    } else {
        Err(SharpnessError::Length {
            what: "parameters",
            expected: landscape.dimension(),
            found: at.len(),
        })
    }
}

fn check_finite<E>(loss: f64) -> Result<(), SharpnessError<E>> {
    if loss.is_finite() {
        Ok(())
    } else {
        Err(SharpnessError::Loss {
            loss,
            right: "finite",
        })
    }
}

fn check_positive<E>(name: &'static str, found: f64) -> Result<(), SharpnessError<E>> {
    if found > 0.0 && found.is_finite() {
        Ok(())
    } else {
        Err(SharpnessError::Setting {
            name,
            found,
            right: "positive and finite",
        })
    }
}

fn check_count<E>(name: &'static str, found: usize) -> Result<(), SharpnessError<E>> {
    if found > 0 {
        Ok(())
    } else {
        Err(SharpnessError::Setting {
            name,
            found: 0.0,
            right: "at least 1",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::objective::Role;

    /// A closure that returns the loss and overwrites the gradient.
    struct Closure<F> {
        dimension: usize,
        function: F,
    }

    impl<F: FnMut(&[f64], &mut [f64]) -> f64> Landscape for Closure<F> {
        type Error = Infallible;

        fn dimension(&self) -> usize {
            self.dimension
        }

        fn loss(&mut self, at: &[f64]) -> Result<f64, Infallible> {
            let mut gradient = vec![0.0; at.len()];
            Ok((self.function)(at, &mut gradient))
        }

        fn gradient(&mut self, at: &[f64], gradient: &mut [f64]) -> Result<f64, Infallible> {
            Ok((self.function)(at, gradient))
        }
    }

    fn landscape<F>(dimension: usize, function: F) -> Closure<F>
    where
        F: FnMut(&[f64], &mut [f64]) -> f64,
    {
        Closure {
            dimension,
            function,
        }
    }

    #[track_caller]
    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "{found} instead of {expected}"
        );
    }

    /// Checks what holds of every result.
    #[track_caller]
    fn consistent(found: &KeskarSharpness) {
        let checks = found.self_check;
        assert!(found.maximum >= found.loss);
        assert!(found.maximum >= checks.ascent_maximum);
        assert!(found.maximum >= checks.corner_maximum);
        assert!(found.maximum >= found.lbfgs_maximum);
        close(
            found.value,
            100.0 * (found.maximum - found.loss) / (1.0 + found.loss),
            1e-12 * found.value,
        );
        let by = match found.from {
            FoundBy::Lbfgs => found.lbfgs_maximum,
            FoundBy::Ascent => checks.ascent_maximum.max(checks.corner_maximum),
        };
        assert_eq!(found.maximum, by);
    }

    const CURVATURES: [f64; 5] = [0.5, 3.0, 0.0, 10.0, 1.0];
    const CENTER: [f64; 5] = [0.3, -0.2, 0.0, 0.1, 2.0];

    /// 0.1 + sum h_i (x_i - c_i)^2/2.
    fn bowl(x: &[f64], g: &mut [f64]) -> f64 {
        let mut value = 0.1;
        for i in 0..x.len() {
            g[i] = CURVATURES[i] * (x[i] - CENTER[i]);
            value += g[i] * (x[i] - CENTER[i]) / 2.0;
        }
        value
    }

    #[test]
    fn the_maximum_of_a_quadratic_is_at_its_corner() {
        for epsilon in [1e-3, 5e-4, 0.5] {
            for at in [[0.31, -0.2, 4.0, -1.0, 0.0], CENTER] {
                let mut bowl = landscape(5, bowl);
                let found = keskar(&mut bowl, &at, &Keskar::new(epsilon, None, 7)).unwrap();
                consistent(&found);
                // Each term is largest at the side of its interval that is further from the center.
                let maximum = 0.1
                    + (0..5)
                        .map(|i| {
                            let width = epsilon * (at[i].abs() + 1.0);
                            CURVATURES[i] * ((at[i] - CENTER[i]).abs() + width).powi(2) / 2.0
                        })
                        .sum::<f64>();
                close(found.maximum, maximum, 1e-12 * maximum);
                let ratio = found.self_check.gradient_ratio.unwrap();
                close(ratio, 1.0, 1e-4);
                assert!(found.evaluations < 120, "{}", found.evaluations);
            }
        }
    }

    #[test]
    fn the_maximum_of_a_linear_loss_is_its_slope_times_the_box() {
        let slopes = [1.0, -2.0, 0.5, 1e-4];
        let at = [0.5, 0.25, -3.0, 0.0];
        let mut linear = landscape(4, |x: &[f64], g: &mut [f64]| {
            g.copy_from_slice(&slopes);
            2.0 + dot(&slopes, x)
        });
        let found = keskar(&mut linear, &at, &Keskar::new(1e-3, None, 0)).unwrap();
        consistent(&found);
        let loss = 2.0 + dot(&slopes, &at);
        let rise: f64 = slopes
            .iter()
            .zip(&at)
            .map(|(c, x)| c.abs() * 1e-3 * (x.abs() + 1.0))
            .sum();
        close(found.loss, loss, 1e-15);
        close(found.value, 100.0 * rise / (1.0 + loss), 1e-9);
    }

    /// Mean logistic loss of 8 examples with n features each, and its gradient.
    fn logistic(n: usize, seed: u64) -> impl Fn(&[f64], &mut [f64]) -> f64 {
        let mut stream = Stream::new(seed, "logistic-test", 0);
        let inputs: Vec<Vec<f64>> = (0..8)
            .map(|_| (0..n).map(|_| stream.normal()).collect())
            .collect();
        move |t, g| {
            g.fill(0.0);
            let mut value = 0.0;
            for (i, x) in inputs.iter().enumerate() {
                let y = if i % 3 == 0 { -1.0 } else { 1.0 };
                let margin = y * dot(x, t);
                value += (-margin).exp().ln_1p() / 8.0;
                add_scaled(g, -y / (1.0 + margin.exp()) / 8.0, x);
            }
            value
        }
    }

    #[test]
    fn the_maximum_of_a_convex_loss_is_the_best_of_all_corners() {
        let n = 6;
        let at = [0.4_f64, -1.0, 0.2, 0.0, 2.0, -0.6];
        for (seed, epsilon) in [(1, 1e-3), (2, 0.05), (3, 0.5)] {
            let function = logistic(n, seed);
            let mut best = f64::NEG_INFINITY;
            for corner in 0..1_u32 << n {
                let point: Vec<f64> = (0..n)
                    .map(|i| {
                        let side = if corner >> i & 1 == 1 { 1.0 } else { -1.0 };
                        at[i] + side * epsilon * (at[i].abs() + 1.0)
                    })
                    .collect();
                best = best.max(function(&point, &mut vec![0.0; n]));
            }
            let settings = Keskar::new(epsilon, None, 0);
            let found = keskar(&mut landscape(n, &function), &at, &settings).unwrap();
            consistent(&found);
            close(found.maximum, best, 1e-12);
        }
    }

    #[test]
    fn a_maximum_inside_the_box_is_found_by_lbfgs_only() {
        // 3 - the bowl: its maximum, 2.9, is inside the box.
        let mut hill = landscape(5, |x: &[f64], g: &mut [f64]| {
            let value = bowl(x, g);
            for g in g {
                *g = -*g;
            }
            3.0 - value
        });
        let at = [0.31, -0.22, 0.0, 0.09, 2.01];
        let settings = Keskar {
            iterations: 20,
            ..Keskar::new(0.1, None, 0)
        };
        let found = keskar(&mut hill, &at, &settings).unwrap();
        consistent(&found);
        close(found.maximum, 2.9, 1e-9);
        assert_eq!(found.from, FoundBy::Lbfgs);
        assert!(found.self_check.ascent_maximum < found.maximum);
    }

    #[test]
    fn a_random_subspace_has_its_own_box() {
        let (n, p) = (3000, 7);
        let at: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin() * 90.0).collect();
        let slopes: Vec<f64> = (0..n).map(|i| (i as f64 * 0.11).cos() / 100.0).collect();
        let mut linear = landscape(n, |x: &[f64], g: &mut [f64]| {
            g.copy_from_slice(&slopes);
            500.0 + dot(&slopes, x)
        });
        let settings = Keskar::new(1e-3, Some(p), 11);
        let found = keskar(&mut linear, &at, &settings).unwrap();
        consistent(&found);

        // The columns as the documentation says, and A+ x by its defining property.
        let columns: Vec<Vec<f64>> = (0..p as u64)
            .map(|i| {
                let mut stream = Stream::new(11, "sharpness-subspace", i);
                (0..n).map(|_| f64::from(stream.normal() as f32)).collect()
            })
            .collect();
        let coordinates = Subspace::new(11, n, p).coordinates(&at).unwrap();
        let mut rest = at.clone();
        for (column, z) in columns.iter().zip(&coordinates) {
            add_scaled(&mut rest, -z, column);
        }
        let mut rise = 0.0;
        for (column, z) in columns.iter().zip(&coordinates) {
            assert!(dot(column, &rest).abs() < 1e-10 * norm(column) * norm(&at));
            rise += dot(column, &slopes).abs() * 1e-3 * (z.abs() + 1.0);
        }
        close(found.maximum - found.loss, rise, 1e-9 * rise);
        // The box of the full space is another one.
        let full = keskar(&mut linear, &at, &Keskar::new(1e-3, None, 11)).unwrap();
        assert!(full.value > 1.5 * found.value);
    }

    #[test]
    fn columns_that_are_drawn_again_are_those_that_are_stored() {
        let (n, p) = (2500, 4);
        let stored = Subspace::new(5, n, p);
        let drawn = Subspace {
            seed: 5,
            rows: n,
            columns: p,
            stored: None,
        };
        let x: Vec<f64> = (0..n).map(|i| (i as f64).sqrt()).collect();
        assert_eq!(stored.coordinates(&x), drawn.coordinates(&x));
        let (mut a, mut b) = ([0.0; 4], [1.0; 4]);
        stored.transposed_product(&x, &mut a);
        drawn.transposed_product(&x, &mut b);
        assert_eq!(a, b);
        let (mut y, mut z) = (x.clone(), x);
        stored.add_product(&a, &mut y);
        drawn.add_product(&a, &mut z);
        assert_eq!(y, z);
    }

    #[test]
    fn a_gradient_of_the_wrong_sign_or_scale_is_an_error() {
        let at = [0.31, -0.2, 4.0, -1.0, 0.0];
        for (factor, subspace) in [(-1.0, None), (-1.0, Some(2)), (50.0, None), (0.02, None)] {
            let mut wrong = landscape(5, |x: &[f64], g: &mut [f64]| {
                let value = bowl(x, g);
                for g in g {
                    *g *= factor;
                }
                value
            });
            let error = keskar(&mut wrong, &at, &Keskar::new(1e-3, subspace, 0)).unwrap_err();
            let SharpnessError::GradientSign { slope, length } = error else {
                panic!("{error}");
            };
            close(slope * factor / length, 1.0, 1e-6);
            assert!(error.to_string().contains("wrong sign or scale"));
        }
    }

    #[test]
    fn a_flat_loss_has_no_sharpness() {
        let mut flat = landscape(3, |_: &[f64], g: &mut [f64]| {
            g.fill(0.0);
            0.7
        });
        let found = keskar(&mut flat, &[1.0; 3], &Keskar::new(1e-3, None, 0)).unwrap();
        consistent(&found);
        assert_eq!((found.value, found.maximum), (0.0, 0.7));
        assert_eq!(found.self_check.gradient_ratio, None);
        let ball = worst_loss_l2(&mut flat, &[1.0; 3], 0.1, 5, 0).unwrap();
        assert_eq!((ball.value, ball.one_step), (0.0, 0.0));
    }

    /// x'Hx/2 with H = [[4, 1, 0], [1, 3, 1], [0, 1, 2]], whose eigenvalues are 3 and 3 +- sqrt(3).
    fn coupled(x: &[f64], g: &mut [f64]) -> f64 {
        g[0] = 4.0 * x[0] + x[1];
        g[1] = x[0] + 3.0 * x[1] + x[2];
        g[2] = x[1] + 2.0 * x[2];
        dot(g, x) / 2.0
    }

    #[test]
    fn the_worst_loss_at_a_minimum_is_half_the_top_eigenvalue() {
        let top = 3.0 + 3.0_f64.sqrt();
        for rho in [1e-3, 0.05, 2.0] {
            let found = worst_loss_l2(&mut landscape(3, coupled), &[0.0; 3], rho, 60, 1).unwrap();
            close(found.value, rho * rho * top / 2.0, 1e-9 * rho * rho);
            assert_eq!(found.one_step, 0.0);
            assert_eq!(found.evaluations, 62);
        }
    }

    #[test]
    fn the_worst_loss_of_a_slope_is_one_step() {
        let slopes = [3.0, 0.0, -4.0];
        let mut linear = landscape(3, |x: &[f64], g: &mut [f64]| {
            g.copy_from_slice(&slopes);
            dot(&slopes, x)
        });
        let found = worst_loss_l2(&mut linear, &[1.0, 2.0, 3.0], 0.2, 10, 0).unwrap();
        close(found.one_step, 1.0, 1e-12);
        close(found.ascent, 1.0, 1e-12);
        // A bowl away from its center: SAM's step is f at x + rho g/|g|, and not the largest.
        let at = [0.5, 0.1, -0.3];
        let mut gradient = [0.0; 3];
        let loss = coupled(&at, &mut gradient);
        let mut ahead = at;
        add_scaled(&mut ahead, 0.4 / norm(&gradient), &gradient);
        let found = worst_loss_l2(&mut landscape(3, coupled), &at, 0.4, 30, 0).unwrap();
        close(found.one_step, coupled(&ahead, &mut [0.0; 3]) - loss, 1e-14);
        assert!(found.value > found.one_step + 1e-5);
    }

    #[test]
    fn no_worse_loss_is_found_than_the_best_of_a_grid() {
        // On a circle the maximum over directions is found by trying them all.
        let function = |x: &[f64], g: &mut [f64]| {
            g[0] = (3.0 * x[0]).cos() * 3.0 + 0.2 * x[1];
            g[1] = 4.0 * x[1] + 0.2 * x[0];
            (3.0 * x[0]).sin() + 2.0 * x[1] * x[1] + 0.2 * x[0] * x[1]
        };
        let (at, rho) = ([0.2, 0.1], 0.3);
        let loss = function(&at, &mut [0.0; 2]);
        let best = (0..100_000)
            .map(|i| {
                let (sin, cos) = (std::f64::consts::TAU * f64::from(i) / 1e5).sin_cos();
                function(&[at[0] + rho * cos, at[1] + rho * sin], &mut [0.0; 2]) - loss
            })
            .fold(0.0, f64::max);
        let found = worst_loss_l2(&mut landscape(2, function), &at, rho, 60, 3).unwrap();
        close(found.value, best, 1e-8);
    }

    #[test]
    fn the_expected_rise_of_a_quadratic_is_half_its_trace() {
        let at = [3.0, -2.0, 1.0];
        let (sigma, draws) = (0.1, 4000);
        let found = gaussian_loss(&mut landscape(3, coupled), &at, sigma, draws, 2).unwrap();
        // tr(H) = 9; a pair has variance sigma^4 tr(H^2)/2, tr(H^2) = 33, wherever x is.
        let error = sigma * sigma * (33.0_f64 / 2.0 / draws as f64).sqrt();
        close(found.value, sigma * sigma * 9.0 / 2.0, 4.0 * error);
        // The variance of the draws is itself known to about 1/sqrt(4000) times a few.
        close(found.standard_error.unwrap() / error, 1.0, 0.15);
        assert_eq!(found.evaluations, 8001);
        let one = gaussian_loss(&mut landscape(3, coupled), &at, sigma, 1, 2).unwrap();
        assert_eq!(one.standard_error, None);
    }

    /// Mean of (w2' max(0, W1'x) - y)^2/2 over six examples: W1 is 2 x 4 \[in, out\], w2 has 4.
    fn relu_network(w: &[f64], g: &mut [f64]) -> f64 {
        let inputs = [
            [1.0, 0.5],
            [-0.7, 1.2],
            [0.3, -1.0],
            [-1.1, -0.4],
            [0.9, 1.4],
            [0.2, 0.8],
        ];
        let targets = [1.0, -0.5, 0.8, 0.1, 1.5, -1.0];
        g.fill(0.0);
        let mut value = 0.0;
        for (x, y) in inputs.iter().zip(targets) {
            let before: Vec<f64> = (0..4).map(|j| x[0] * w[j] + x[1] * w[4 + j]).collect();
            let hidden: Vec<f64> = before.iter().map(|z| z.max(0.0)).collect();
            let error = dot(&hidden, &w[8..]) - y;
            value += error * error / 12.0;
            for j in 0..4 {
                g[8 + j] += error * hidden[j] / 6.0;
                if before[j] > 0.0 {
                    g[j] += error * w[8 + j] * x[0] / 6.0;
                    g[4 + j] += error * w[8 + j] * x[1] / 6.0;
                }
            }
        }
        value
    }

    /// Traces of the blocks of W1 and w2, by differences of gradients. The loss is quadratic in each
    /// of them while no unit changes its sign.
    fn traces(w: &[f64]) -> [f64; 2] {
        let mut traces = [0.0; 2];
        let (mut ahead, mut behind) = ([0.0; 12], [0.0; 12]);
        for i in 0..12 {
            let mut moved = w.to_vec();
            let step = 1e-4 * w[i].abs();
            moved[i] += step;
            relu_network(&moved, &mut ahead);
            moved[i] -= 2.0 * step;
            relu_network(&moved, &mut behind);
            traces[usize::from(i >= 8)] += (ahead[i] - behind[i]) / (2.0 * step);
        }
        traces
    }

    #[test]
    fn rescaling_relu_layers_changes_sharpness_and_leaves_loss_and_relative_flatness() {
        let w = [
            0.6, -0.4, 0.9, 0.3, 0.2, 0.7, -0.5, 0.7, 0.5, -0.9, 0.4, 1.1,
        ];
        let mut layout = Layout::default();
        layout.push("layers.0.weight", &[2, 4], Role::Dense);
        layout.push("layers.1.weight", &[4, 1], Role::Dense);
        let flatness = |w: &[f64]| relative_flatness::<Infallible>(&layout, w, &traces(w)).unwrap();
        let sharpness = |w: &[f64], subspace| {
            let settings = Keskar::new(1e-2, subspace, 0);
            let found = keskar(&mut landscape(12, relu_network), w, &settings).unwrap();
            consistent(&found);
            found.value
        };
        let loss = relu_network(&w, &mut [0.0; 12]);
        let (flat, full, part) = (flatness(&w), sharpness(&w, None), sharpness(&w, Some(5)));
        assert!(flat.value > 0.0 && full > 0.0, "{flat:?} {full}");
        for a in [4.0, 0.25] {
            let scaled: Vec<f64> = (0..12)
                .map(|i| if i < 8 { w[i] * a } else { w[i] / a })
                .collect();
            close(relu_network(&scaled, &mut [0.0; 12]), loss, 1e-15);
            let again = flatness(&scaled);
            close(again.value, flat.value, 1e-8 * flat.value);
            for (x, y) in again.parameters.iter().zip(&flat.parameters) {
                close(*x, *y, 1e-8 * y.abs());
            }
            assert!((sharpness(&scaled, None) / full - 1.0).abs() > 0.2);
            assert!((sharpness(&scaled, Some(5)) / part - 1.0).abs() > 0.2);
        }
        assert!(CAVEAT.contains("Dinh"));
    }

    #[test]
    fn relative_flatness_is_the_sum_of_squared_norms_times_traces() {
        let mut layout = Layout::default();
        layout.push("a", &[2], Role::Other);
        layout.push("b", &[1], Role::Bias);
        let found =
            relative_flatness::<Infallible>(&layout, &[3.0, 4.0, 2.0], &[0.5, -1.0]).unwrap();
        assert_eq!(found.parameters, [12.5, -4.0]);
        assert_eq!(found.value, 8.5);
        let short = relative_flatness::<Infallible>(&layout, &[3.0, 4.0, 2.0], &[0.5]);
        assert!(matches!(
            short,
            Err(SharpnessError::Length {
                expected: 2,
                found: 1,
                ..
            })
        ));
    }

    #[test]
    fn results_are_functions_of_the_seed() {
        let at = [0.4, -1.0, 0.2, 0.0, 2.0, -0.6];
        let function = logistic(6, 4);
        let ask = |seed| {
            let settings = Keskar::new(1e-2, Some(3), seed);
            keskar(&mut landscape(6, &function), &at, &settings).unwrap()
        };
        assert_eq!(ask(1), ask(1));
        assert_ne!(ask(1).value, ask(2).value);
    }

    #[test]
    fn settings_that_make_no_sense_are_errors() {
        let at = [0.1; 5];
        let ask = |settings: Keskar| keskar(&mut landscape(5, bowl), &at, &settings);
        let good = Keskar::new(1e-3, None, 0);
        for bad in [
            Keskar::new(0.0, None, 0),
            Keskar::new(f64::NAN, None, 0),
            Keskar::new(1e-3, Some(0), 0),
            Keskar::new(1e-3, Some(6), 0),
            Keskar {
                iterations: 0,
                ..good
            },
        ] {
            assert!(
                matches!(ask(bad), Err(SharpnessError::Setting { .. })),
                "{bad:?}"
            );
        }
        assert!(ask(Keskar::new(1e-3, Some(5), 0)).is_ok());
        let short = keskar(&mut landscape(5, bowl), &at[..4], &good);
        assert!(matches!(
            short,
            Err(SharpnessError::Length {
                expected: 5,
                found: 4,
                ..
            })
        ));
        let mut lost = landscape(5, |_: &[f64], g: &mut [f64]| {
            g.fill(1.0);
            f64::NAN
        });
        let lost_loss = keskar(&mut lost, &at, &good);
        assert!(matches!(lost_loss, Err(SharpnessError::Loss { .. })));
        let ball = worst_loss_l2(&mut lost, &at, 0.1, 3, 0);
        assert!(matches!(ball, Err(SharpnessError::Loss { .. })));
        let noise = gaussian_loss(&mut lost, &at, 0.1, 3, 0);
        assert!(matches!(noise, Err(SharpnessError::Loss { .. })));
        let none = worst_loss_l2(&mut landscape(5, bowl), &at, -0.1, 3, 0);
        assert!(matches!(none, Err(SharpnessError::Setting { .. })));
        let none = gaussian_loss(&mut landscape(5, bowl), &at, 0.1, 0, 0);
        assert!(matches!(none, Err(SharpnessError::Setting { .. })));
    }

    #[test]
    fn a_linear_system_is_solved_by_cholesky_or_said_to_be_singular() {
        let mut matrix = [4.0, 0.0, 0.0, 2.0, 5.0, 0.0, 1.0, 3.0, 6.0];
        let mut right = [7.0, 10.0, 10.0];
        assert!(solve_by_cholesky(&mut matrix, &mut right));
        for x in right {
            close(x, 1.0, 1e-14);
        }
        let mut singular = [1.0, 0.0, 1.0, 1.0];
        assert!(!solve_by_cholesky(&mut singular, &mut [1.0, 1.0]));
    }
}
