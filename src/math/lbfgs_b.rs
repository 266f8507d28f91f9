//! Minimization within bounds: L-BFGS-B (Byrd, Lu, Nocedal and Zhu 1995).
//!
//! min f(x) with l_i <= x_i <= u_i. The model of f around x is
//!
//! m(y) = f + g'(y - x) + (y - x)'B(y - x)/2, B = theta I - W M W',
//!
//! with W = [Y, theta S] from the last m pairs s = x_new - x, y = g_new - g (n x 2m in all), theta =
//! y'y/s'y of the last pair, and M the inverse of the 2m x 2m matrix [[-D, L'], [L, theta S'S]], D
//! the diagonal and L the part below the diagonal of S'Y (the paper's section 3). An iteration is
//!
//! 1. the generalized Cauchy point: the first local minimum of m along the projection of x - t g
//!    onto the box, t >= 0, which says which variables stay at a bound (section 4);
//! 2. the minimum of m over the other variables by the direct primal method (section 5.1),
//!    projected onto the box, or cut at the box where the projection does not descend (Morales and
//!    Nocedal 2011);
//! 3. a line search between x and that point, and beyond it as far as the box goes, for the strong
//!    conditions of Wolfe: f falls by at least 1e-3 of what the slope promises, and the slope to 0.9
//!    of itself (Nocedal and Wright 2006, algorithms 3.5 and 3.6: bracket, then cubics).
//!
//! Every point at which f is asked lies in the box. Memory: 2m + 10 vectors of length n; time: O(m^2
//! n) an iteration besides f.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use thiserror::Error;

use super::operator::{dot, norm};

/// The share of the promised decrease that a step must bring.
const SUFFICIENT_DECREASE: f64 = 1e-3;

/// The share of its first slope that a step may end with.
const REMAINING_SLOPE: f64 = 0.9;

/// Most evaluations of one line search.
const SEARCH: usize = 20;

/// The longest step of a line search, in units of the way to the minimum of the model.
const LONGEST_STEP: f64 = 1e10;

/// When to stop, and how much to remember.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Most iterations.
    pub iterations: usize,
    /// Pairs of steps and changes of the gradient that are kept, m, at least 1; 3 to 20 are usual.
    pub memory: usize,
    /// Converged when no component of the projected gradient is larger in magnitude.
    pub gradient_tolerance: f64,
    /// Converged when an iteration lowers f by at most this share of max(|f| before, |f| after, 1).
    pub function_tolerance: f64,
    /// Most evaluations of f with its gradient, at least 1.
    pub max_evaluations: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            iterations: 1000,
            memory: 10,
            gradient_tolerance: 1e-8,
            function_tolerance: 1e-14,
            max_evaluations: 10_000,
        }
    }
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The projected gradient or the decrease of f is within its tolerance, or the model promises
    /// less of a decrease than the rounding of f.
    Converged,
    /// The iterations were used up.
    IterationLimit,
    /// The evaluations were used up.
    EvaluationLimit,
    /// f does not fall along the direction in which its gradient says so: the gradient is not that
    /// of f (a wrong sign, say), or f is not smooth.
    LineSearchFailed,
    /// f or its gradient is not finite at the start, or at every point that was tried from the last
    /// one.
    NotFinite,
}

/// Where a search ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimum {
    /// The point, inside the bounds.
    pub at: Vec<f64>,
    /// f there.
    pub value: f64,
    /// Largest magnitude of a component of P(x - g) - x, P the projection onto the box.
    pub projected_gradient: f64,
    /// Iterations made.
    pub iterations: usize,
    /// Evaluations of f with its gradient.
    pub evaluations: usize,
    /// Why the search ended.
    pub outcome: Outcome,
}

/// Why there was no search.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MinimizeError<E> {
    /// An empty interval, or a bound that is not a number.
    #[error("the bounds of variable {index} are {lower} and {upper}; the lower must not be above")]
    Bounds {
        /// The variable, from 0.
        index: usize,
        /// Its lower bound.
        lower: f64,
        /// Its upper bound.
        upper: f64,
    },
    /// Not one bound a variable.
    #[error("{what}: expected one for each of {expected} variables, found {found}")]
    Length {
        /// What was given.
        what: &'static str,
        /// Number of variables.
        expected: usize,
        /// Number of values.
        found: usize,
    },
    /// The function failed.
    #[error("an evaluation of the function to minimize failed: {0}")]
    Function(E),
}

/// Looks for a local minimum of a smooth function inside bounds, from `start` projected onto them.
/// `evaluate` returns f and overwrites its second argument with the gradient. Bounds may be
/// infinite; two equal bounds fix a variable. At a limit the lowest point so far is returned.
///
/// # Errors
/// Where a lower bound is above the upper one or is not a number, lengths do not fit, or `evaluate`
/// fails.
pub fn minimize<E>(
    evaluate: impl FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
    start: &[f64],
    lower: &[f64],
    upper: &[f64],
    settings: &Settings,
) -> Result<Minimum, MinimizeError<E>> {
    let n = start.len();
    for (what, found) in [("lower bounds", lower.len()), ("upper bounds", upper.len())] {
        if found != n {
            return Err(MinimizeError::Length {
                what,
                expected: n,
                found,
            });
        }
    }
    let ordered = |(l, u): (&f64, &f64)| l <= u;
    if let Some(index) = lower.iter().zip(upper).position(|pair| !ordered(pair)) {
        return Err(MinimizeError::Bounds {
            index,
            lower: lower[index],
            upper: upper[index],
        });
    }
    let space = Bounds {
        lower,
        upper,
        closed: lower.iter().chain(upper).all(|bound| bound.is_finite()),
    };
    let mut counted = Counted {
        evaluate,
        evaluations: 0,
        most: settings.max_evaluations.max(1),
    };
    let at = start.iter().enumerate();
    let at: Vec<f64> = at.map(|(i, &x)| space.clamp(i, x)).collect();
    let mut gradient = vec![0.0; n];
    let value = counted
        .ask(&at, &mut gradient)
        .map_err(MinimizeError::Function)?;
    let mut minimum = Minimum {
        projected_gradient: space.projected_gradient(&at, &gradient),
        at,
        value,
        iterations: 0,
        evaluations: 1,
        outcome: Outcome::NotFinite,
    };
    if !(value.is_finite() && gradient.iter().all(|g| g.is_finite())) {
        return Ok(minimum);
    }
    minimum.outcome = descend(&mut counted, &space, settings, &mut minimum, gradient)
        .map_err(MinimizeError::Function)?;
    minimum.evaluations = counted.evaluations;
    Ok(minimum)
}

/// The iterations, from the finite point in `minimum`, which follows them.
fn descend<F, E>(
    counted: &mut Counted<F>,
    space: &Bounds<'_>,
    settings: &Settings,
    minimum: &mut Minimum,
    mut gradient: Vec<f64>,
) -> Result<Outcome, E>
where
    F: FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
{
    let n = gradient.len();
    let mut pairs = Pairs::new(settings.memory.max(1));
    let mut line = Line::new(n);
    let mut scratch = vec![0.0; n];
    loop {
        if minimum.projected_gradient <= settings.gradient_tolerance {
            return Ok(Outcome::Converged);
        }
        if minimum.iterations >= settings.iterations {
            return Ok(Outcome::IterationLimit);
        }
        let image = pairs.cauchy_point(
            space,
            &minimum.at,
            &gradient,
            &mut scratch,
            &mut line.target,
        );
        pairs.minimize_free(
            space,
            &minimum.at,
            &gradient,
            &image,
            &mut scratch,
            &mut line.target,
        );
        let before = minimum.value;
        let ended = line.search(
            counted,
            space,
            minimum,
            &gradient,
            pairs.len() == 0 && !space.closed,
        )?;
        if line.low.step > 0.0 {
            // The pair (s, y) is made in the two vectors that the step leaves behind.
            std::mem::swap(&mut minimum.at, &mut line.point);
            std::mem::swap(&mut gradient, &mut line.gradient);
            minimum.value = line.low.value;
            minimum.projected_gradient = space.projected_gradient(&minimum.at, &gradient);
            minimum.iterations += 1;
            subtract_from(&mut line.point, &minimum.at);
            subtract_from(&mut line.gradient, &gradient);
            if ended != Ended::AtLimit {
                pairs.push(&line.point, &line.gradient);
            }
        }
        match ended {
            Ended::Step => {
                let scale = before.abs().max(minimum.value.abs()).max(1.0);
                if before - minimum.value <= settings.function_tolerance * scale {
                    return Ok(Outcome::Converged);
                }
            }
            Ended::AtLimit => return Ok(Outcome::EvaluationLimit),
            // Asked before the pairs are forgotten: without curvature a promise is none.
            Ended::Failed { promised, .. }
                if promised <= 8.0 * f64::EPSILON * minimum.value.abs().max(1.0) =>
            {
                return Ok(Outcome::Converged);
            }
            Ended::Failed { .. } if pairs.len() > 0 => pairs.clear(),
            Ended::Failed { finite: false, .. } => return Ok(Outcome::NotFinite),
            Ended::Failed { .. } => return Ok(Outcome::LineSearchFailed),
        }
    }
}

/// a <- b - a.
fn subtract_from(a: &mut [f64], b: &[f64]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = b - *a;
    }
}

/// A function with its number of evaluations.
struct Counted<F> {
    evaluate: F,
    evaluations: usize,
    most: usize,
}

impl<F> Counted<F> {
    fn ask<E>(&mut self, at: &[f64], gradient: &mut [f64]) -> Result<f64, E>
    where
        F: FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
    {
        self.evaluations += 1;
        (self.evaluate)(at, gradient)
    }
}

/// The bounds.
struct Bounds<'a> {
    lower: &'a [f64],
    upper: &'a [f64],
    /// Whether all of them are finite.
    closed: bool,
}

impl Bounds<'_> {
    fn clamp(&self, i: usize, x: f64) -> f64 {
        x.clamp(self.lower[i], self.upper[i])
    }

    fn is_inside(&self, i: usize, x: f64) -> bool {
        self.lower[i] < x && x < self.upper[i]
    }

    /// The bound that a move of x_i in this direction runs into.
    fn ahead(&self, i: usize, direction: f64) -> f64 {
        if direction > 0.0 {
            self.upper[i]
        } else {
            self.lower[i]
        }
    }

    /// The largest magnitude of a component of P(x - g) - x.
    fn projected_gradient(&self, at: &[f64], gradient: &[f64]) -> f64 {
        let pairs = at.iter().zip(gradient).enumerate();
        pairs
            .map(|(i, (x, g))| {
                let room = (self.ahead(i, -g) - x).abs();
                g.abs().min(room)
            })
            .fold(0.0, f64::max)
    }
}

/// The last pairs (s, y) with their inner products: the matrix B = theta I - W M W'.
struct Pairs {
    capacity: usize,
    theta: f64,
    /// s, the oldest first.
    steps: Vec<Vec<f64>>,
    /// y, the oldest first.
    changes: Vec<Vec<f64>>,
    /// Row i, column j: s_i's_j.
    steps_steps: Vec<Vec<f64>>,
    /// Row i, column j: s_i'y_j; kept on the diagonal and below.
    steps_changes: Vec<Vec<f64>>,
    /// The inverse of M, 2m x 2m by rows.
    inverse: Vec<f64>,
    /// M.
    middle: Vec<f64>,
}

impl Pairs {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            theta: 1.0,
            steps: Vec::new(),
            changes: Vec::new(),
            steps_steps: Vec::new(),
            steps_changes: Vec::new(),
            inverse: Vec::new(),
            middle: Vec::new(),
        }
    }

    /// Number of pairs.
    fn len(&self) -> usize {
        self.steps.len()
    }

    /// Columns of W.
    fn width(&self) -> usize {
        2 * self.len()
    }

    fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    /// Takes in a pair unless its curvature s'y is not positive, beyond rounding, which would make
    /// B indefinite.
    fn push(&mut self, step: &[f64], change: &[f64]) {
        let (curvature, square) = (dot(step, change), dot(change, change));
        if !(curvature > f64::EPSILON * square && (square / curvature).is_finite()) {
            return;
        }
        if self.len() == self.capacity {
            for products in [&mut self.steps_steps, &mut self.steps_changes] {
                products.remove(0);
                for row in products {
                    row.remove(0);
                }
            }
            // The vectors of the oldest pair hold the newest.
            self.steps.rotate_left(1);
            self.changes.rotate_left(1);
            self.steps[self.capacity - 1].copy_from_slice(step);
            self.changes[self.capacity - 1].copy_from_slice(change);
        } else {
            self.steps.push(step.to_vec());
            self.changes.push(change.to_vec());
        }
        let squares: Vec<f64> = self.steps.iter().map(|s| dot(step, s)).collect();
        for (row, &product) in self.steps_steps.iter_mut().zip(&squares) {
            row.push(product);
        }
        self.steps_steps.push(squares);
        for row in &mut self.steps_changes {
            row.push(0.0);
        }
        let below = self.changes.iter().map(|y| dot(step, y)).collect();
        self.steps_changes.push(below);
        self.theta = square / curvature;
        if !self.invert() {
            self.clear();
        }
    }

    /// Makes M; false where it does not exist in double precision.
    fn invert(&mut self) -> bool {
        let (m, width) = (self.len(), self.width());
        let mut inverse = vec![0.0; width * width];
        for i in 0..m {
            inverse[i * width + i] = -self.steps_changes[i][i];
            for j in 0..m {
                inverse[(m + i) * width + m + j] = self.theta * self.steps_steps[i][j];
                if j < i {
                    inverse[(m + i) * width + j] = self.steps_changes[i][j];
                    inverse[j * width + m + i] = self.steps_changes[i][j];
                }
            }
        }
        let mut middle = vec![0.0; width * width];
        for i in 0..width {
            middle[i * width + i] = 1.0;
        }
        let solved = solve(&inverse, &self.scales_of(&inverse), &mut middle);
        (self.inverse, self.middle) = (inverse, middle);
        solved
    }

    /// Factors that bring the diagonal of the inverse of M to 1 and -1.
    fn scales_of(&self, inverse: &[f64]) -> Vec<f64> {
        let width = self.width();
        (0..width)
            .map(|i| 1.0 / inverse[i * width + i].abs().sqrt())
            .collect()
    }

    /// Row i of W.
    fn row(&self, i: usize, row: &mut [f64]) {
        let (changes, steps) = row.split_at_mut(self.len());
        for (w, y) in changes.iter_mut().zip(&self.changes) {
            *w = y[i];
        }
        for (w, s) in steps.iter_mut().zip(&self.steps) {
            *w = self.theta * s[i];
        }
    }

    /// M v.
    fn middle_times(&self, v: &[f64]) -> Vec<f64> {
        let rows = self.middle.chunks_exact(self.width().max(1));
        rows.map(|row| dot(row, v)).collect()
    }

    /// Writes the generalized Cauchy point into `point` and returns W'(point - x).
    fn cauchy_point(
        &self,
        space: &Bounds<'_>,
        at: &[f64],
        gradient: &[f64],
        direction: &mut [f64],
        point: &mut [f64],
    ) -> Vec<f64> {
        let mut breaks = Vec::new();
        let mut moving = 0;
        for (i, (&x, &g)) in at.iter().zip(gradient).enumerate() {
            point[i] = x;
            direction[i] = 0.0;
            let room = space.ahead(i, -g) - x;
            if g != 0.0 && room != 0.0 {
                direction[i] = -g;
                moving += 1;
                let time = room / -g;
                if time.is_finite() {
                    breaks.push(Break { time, index: i });
                }
            }
        }
        let width = self.width();
        // The names of the paper: along the path, p = W'd and c = W'(point - x).
        let mut c = vec![0.0; width];
        if moving == 0 {
            return c;
        }
        let changes = self.changes.iter().map(|y| dot(y, direction));
        let steps = self.steps.iter().map(|s| self.theta * dot(s, direction));
        let mut p: Vec<f64> = changes.chain(steps).collect();
        let mut slope = -dot(direction, direction);
        let mut curvature = -self.theta * slope - dot(&p, &self.middle_times(&p));
        let least = f64::EPSILON * curvature.abs();
        let mut breaks = BinaryHeap::from(breaks);
        let mut row = vec![0.0; width];
        let mut time = 0.0;
        let mut rest = -slope / curvature.max(least);
        while let Some(next) = breaks.peek() {
            let span = next.time - time;
            if rest < span {
                break;
            }
            let (i, g) = (next.index, gradient[next.index]);
            time = next.time;
            breaks.pop();
            moving -= 1;
            point[i] = space.ahead(i, direction[i]);
            direction[i] = 0.0;
            for (c, p) in c.iter_mut().zip(&p) {
                *c += span * p;
            }
            self.row(i, &mut row);
            let image = self.middle_times(&row);
            let moved = point[i] - at[i];
            slope += span * curvature + g * g + g * (self.theta * moved - dot(&image, &c));
            curvature -= self.theta * g * g + 2.0 * g * dot(&image, &p) + g * g * dot(&image, &row);
            curvature = curvature.max(least);
            for (p, w) in p.iter_mut().zip(&row) {
                *p += g * w;
            }
            rest = if moving == 0 { 0.0 } else { -slope / curvature };
        }
        let rest = rest.max(0.0);
        time += rest;
        for (c, p) in c.iter_mut().zip(&p) {
            *c += rest * p;
        }
        for (i, &d) in direction.iter().enumerate() {
            if d != 0.0 {
                point[i] = space.clamp(i, at[i] + time * d);
            }
        }
        c
    }

    /// Moves the variables of `point` that are at no bound to the minimum of the model over them,
    /// as far as the box lets it. `image` is W'(point - x).
    fn minimize_free(
        &self,
        space: &Bounds<'_>,
        at: &[f64],
        gradient: &[f64],
        image: &[f64],
        step: &mut [f64],
        point: &mut [f64],
    ) {
        let width = self.width();
        if width == 0 {
            return;
        }
        // With r the gradient of the model over the free variables and V the rows of W for them,
        // (theta I - V M V')^-1 = I/theta + V (M^-1 - V'V/theta)^-1 V'/theta^2.
        let middle_image = self.middle_times(image);
        let mut row = vec![0.0; width];
        let mut inner = self.inverse.clone();
        let mut weights = vec![0.0; width];
        for i in 0..at.len() {
            step[i] = 0.0;
            if !space.is_inside(i, point[i]) {
                continue;
            }
            self.row(i, &mut row);
            let slope = gradient[i] + self.theta * (point[i] - at[i]) - dot(&row, &middle_image);
            step[i] = -slope / self.theta;
            for (a, &w) in row.iter().enumerate() {
                weights[a] += w * slope;
                let scaled = w / self.theta;
                for (entry, v) in inner[a * width..=a * width + a].iter_mut().zip(&row) {
                    *entry -= scaled * v;
                }
            }
        }
        for a in 0..width {
            for b in 0..a {
                inner[b * width + a] = inner[a * width + b];
            }
        }
        if !solve(&inner, &self.scales_of(&self.inverse), &mut weights) {
            return;
        }
        let square = self.theta * self.theta;
        let mut descent = 0.0;
        let mut longest: f64 = 1.0;
        for i in 0..at.len() {
            if space.is_inside(i, point[i]) {
                self.row(i, &mut row);
                step[i] -= dot(&row, &weights) / square;
                if step[i] != 0.0 {
                    let room = space.ahead(i, step[i]) - point[i];
                    longest = longest.min(room / step[i]);
                }
            }
            descent += gradient[i] * (space.clamp(i, point[i] + step[i]) - at[i]);
        }
        // Where a step is not finite nothing is moved.
        let share = if descent < 0.0 { 1.0 } else { longest };
        if share.is_finite() && step.iter().all(|s| s.is_finite()) {
            for (i, (x, s)) in point.iter_mut().zip(step.iter()).enumerate() {
                if *s != 0.0 {
                    *x = space.clamp(i, *x + share * s);
                }
            }
        }
    }
}

/// The time at which a variable reaches its bound on the way along the projected gradient.
/// Ordered so that a heap gives the earliest first, ties by index.
#[derive(PartialEq)]
struct Break {
    time: f64,
    index: usize,
}

impl Eq for Break {}

impl Ord for Break {
    fn cmp(&self, other: &Self) -> Ordering {
        let time = other.time.total_cmp(&self.time);
        time.then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Break {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Solves A X = B for a small matrix A (n x n by rows) in place of B (n rows), by elimination with
/// row exchanges on A scaled by the same factors from both sides. False where a pivot vanishes.
fn solve(matrix: &[f64], scales: &[f64], right: &mut [f64]) -> bool {
    let n = scales.len();
    let columns = right.len() / n;
    let mut a: Vec<f64> = (0..n * n)
        .map(|k| matrix[k] * scales[k / n] * scales[k % n])
        .collect();
    for (row, scale) in right.chunks_exact_mut(columns).zip(scales) {
        for b in row {
            *b *= scale;
        }
    }
    for k in 0..n {
        let size = |i: usize, a: &[f64]| a[i * n + k].abs();
        let pivot = (k..n).fold(k, |best, i| {
            if size(i, &a) > size(best, &a) {
                i
            } else {
                best
            }
        });
        if !(size(pivot, &a) > f64::MIN_POSITIVE && size(pivot, &a).is_finite()) {
            return false;
        }
        for j in 0..n {
            a.swap(k * n + j, pivot * n + j);
        }
        for j in 0..columns {
            right.swap(k * columns + j, pivot * columns + j);
        }
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            for j in k..n {
                a[i * n + j] -= factor * a[k * n + j];
            }
            for j in 0..columns {
                right[i * columns + j] -= factor * right[k * columns + j];
            }
        }
    }
    for i in (0..n).rev() {
        for j in 0..columns {
            let known: f64 = (i + 1..n)
                .map(|k| a[i * n + k] * right[k * columns + j])
                .sum();
            right[i * columns + j] = (right[i * columns + j] - known) / a[i * n + i];
        }
    }
    for (row, scale) in right.chunks_exact_mut(columns).zip(scales) {
        for b in row {
            *b *= scale;
        }
    }
    right.iter().all(|b| b.is_finite())
}

/// f along a line at one step.
#[derive(Debug, Clone, Copy)]
struct End {
    step: f64,
    value: f64,
    slope: f64,
}

impl End {
    /// The minimum of the cubic through the values and slopes of two ends; not finite where it has
    /// none.
    fn cubic(self, other: Self) -> f64 {
        let span = other.step - self.step;
        let a = self.slope + other.slope + 3.0 * (self.value - other.value) / span;
        let root = (a * a - self.slope * other.slope).sqrt() * span.signum();
        other.step - span * (other.slope + root - a) / (other.slope - self.slope + 2.0 * root)
    }
}

/// How a line search ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ended {
    /// With a step that lowers f enough.
    Step,
    /// With the last evaluation, at the lowest point so far.
    AtLimit,
    /// Without a step.
    Failed {
        /// Whether f was finite at some point that was tried, or none was tried.
        finite: bool,
        /// By how much the slope promised to lower f.
        promised: f64,
    },
}

/// A line search with its vectors.
struct Line {
    /// Where the step 1 leads.
    target: Vec<f64>,
    /// The direction.
    direction: Vec<f64>,
    /// The point last asked, and after the search the one accepted.
    point: Vec<f64>,
    /// The gradient there.
    gradient: Vec<f64>,
    /// The gradient at `low`.
    low_gradient: Vec<f64>,
    /// The lowest end so far; step 0 where there is none below the start.
    low: End,
}

impl Line {
    fn new(n: usize) -> Self {
        let zeros = vec![0.0; n];
        Self {
            target: zeros.clone(),
            direction: zeros.clone(),
            point: zeros.clone(),
            gradient: zeros.clone(),
            low_gradient: zeros,
            low: End {
                step: 0.0,
                value: 0.0,
                slope: 0.0,
            },
        }
    }

    /// Searches from the point of `from` to the target and beyond, inside the box. Where `low.step`
    /// is positive afterwards, the accepted point and its gradient are in `point` and `gradient`.
    fn search<F, E>(
        &mut self,
        counted: &mut Counted<F>,
        space: &Bounds<'_>,
        from: &Minimum,
        gradient: &[f64],
        cautious: bool,
    ) -> Result<Ended, E>
    where
        F: FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
    {
        let mut longest = LONGEST_STEP;
        for (i, x) in from.at.iter().enumerate() {
            let d = self.target[i] - x;
            self.direction[i] = d;
            if d != 0.0 {
                longest = longest.min((space.ahead(i, d) - x) / d);
            }
        }
        let longest = longest.max(1.0);
        let slope = dot(gradient, &self.direction);
        let start = End {
            step: 0.0,
            value: from.value,
            slope,
        };
        self.low = start;
        let mut finite = true;
        if slope < 0.0 {
            // Before anything is known of the curvature the length of the gradient says nothing.
            let length = norm(&self.direction);
            let first = if cautious {
                (1.0 / length).min(1.0)
            } else {
                1.0
            };
            let step = first.min(longest);
            finite = false;
            let ended = self.bracket(counted, space, from, start, step, longest, &mut finite)?;
            // A decrease within the rounding of f is none.
            let gained = start.value - self.low.value;
            if self.low.step > 0.0 && gained > 4.0 * f64::EPSILON * start.value.abs() {
                self.place(space, from, self.low.step);
                std::mem::swap(&mut self.gradient, &mut self.low_gradient);
                return Ok(ended);
            }
            self.low = start;
            if ended == Ended::AtLimit {
                return Ok(ended);
            }
        }
        Ok(Ended::Failed {
            finite,
            promised: -slope,
        })
    }

    /// The steps of the search; leaves the lowest that lowers f enough in `low`.
    #[expect(clippy::too_many_arguments, reason = "one call, in parts")]
    fn bracket<F, E>(
        &mut self,
        counted: &mut Counted<F>,
        space: &Bounds<'_>,
        from: &Minimum,
        start: End,
        first: f64,
        longest: f64,
        finite: &mut bool,
    ) -> Result<Ended, E>
    where
        F: FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
    {
        let mut high: Option<End> = None;
        let mut step = first;
        for _ in 0..SEARCH {
            if counted.evaluations >= counted.most {
                return Ok(Ended::AtLimit);
            }
            self.place(space, from, step);
            let value = counted.ask(&self.point, &mut self.gradient)?;
            let slope = dot(&self.gradient, &self.direction);
            let usable = value.is_finite() && slope.is_finite();
            *finite |= usable;
            let end = End {
                step,
                value: if usable { value } else { f64::INFINITY },
                slope,
            };
            let enough = start.value + SUFFICIENT_DECREASE * step * start.slope;
            let lower = end.value <= enough && (self.low.step == 0.0 || value < self.low.value);
            if lower {
                let before = self.low;
                self.low = end;
                std::mem::swap(&mut self.gradient, &mut self.low_gradient);
                let flat = slope.abs() <= -REMAINING_SLOPE * start.slope;
                if flat || (high.is_none() && slope < 0.0 && step >= longest) {
                    return Ok(Ended::Step);
                }
                // The minimum lies where f falls to.
                let behind = high.map_or(slope >= 0.0, |high| slope * (high.step - step) >= 0.0);
                if behind {
                    high = Some(before);
                } else if high.is_none() {
                    let reach = step - before.step;
                    let cubic = before.cubic(end);
                    let next = if cubic > step { cubic } else { f64::INFINITY };
                    step = next.clamp(step + reach, step + 4.0 * reach).min(longest);
                    continue;
                }
            } else {
                high = Some(end);
            }
            if let Some(high) = high {
                let span = high.step - self.low.step;
                if (span * start.slope).abs() <= f64::EPSILON * start.value.abs() {
                    break;
                }
                let share = (self.low.cubic(high) - self.low.step) / span;
                let share = if share.is_finite() { share } else { 0.1 };
                step = self.low.step + share.clamp(0.1, 0.9) * span;
            }
        }
        Ok(Ended::Step)
    }

    /// Sets `point` to the one at this step.
    fn place(&mut self, space: &Bounds<'_>, from: &Minimum, step: f64) {
        if step == 1.0 {
            self.point.copy_from_slice(&self.target);
            return;
        }
        let pairs = from.at.iter().zip(&self.direction).enumerate();
        for (point, (i, (x, &d))) in self.point.iter_mut().zip(pairs) {
            let bound = space.ahead(i, d);
            *point = if d != 0.0 && (bound - x) / d <= step {
                bound
            } else {
                space.clamp(i, x + step * d)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    type Function = dyn Fn(&[f64], &mut [f64]) -> f64;

    fn run(
        function: &Function,
        start: &[f64],
        lower: &[f64],
        upper: &[f64],
        settings: &Settings,
    ) -> Minimum {
        let inside = |x: &[f64]| {
            let bounds = lower.iter().zip(upper);
            x.iter().zip(bounds).all(|(x, (l, u))| l <= x && x <= u)
        };
        let evaluate = |x: &[f64], g: &mut [f64]| -> Result<f64, Infallible> {
            assert!(inside(x), "asked outside the box, at {x:?}");
            Ok(function(x, g))
        };
        let minimum = minimize(evaluate, start, lower, upper, settings).unwrap();
        assert!(inside(&minimum.at));
        assert!(minimum.evaluations <= settings.max_evaluations.max(1));
        assert!(minimum.iterations <= settings.iterations);
        minimum
    }

    fn rosenbrock(x: &[f64], g: &mut [f64]) -> f64 {
        g.fill(0.0);
        let mut value = 0.0;
        for i in 0..x.len() - 1 {
            let t = x[i + 1] - x[i] * x[i];
            value += 100.0 * t * t + (1.0 - x[i]).powi(2);
            g[i] -= 400.0 * x[i] * t + 2.0 * (1.0 - x[i]);
            g[i + 1] += 200.0 * t;
        }
        value
    }

    fn exponential(x: &[f64], g: &mut [f64]) -> f64 {
        let sum: f64 = x.iter().sum();
        let mut value = sum * sum / 2.0;
        for (i, (x, g)) in x.iter().zip(g).enumerate() {
            let (a, b) = (1.0 / (i as f64 + 1.0), i as f64 - 1.0);
            value += (a * x).exp() - b * x;
            *g = a * (a * x).exp() - b + sum;
        }
        value
    }

    /// x'Ax/2 - b'x.
    fn quadratic(matrix: Vec<Vec<f64>>, linear: Vec<f64>) -> impl Fn(&[f64], &mut [f64]) -> f64 {
        move |x, g| {
            for (g, (row, b)) in g.iter_mut().zip(matrix.iter().zip(&linear)) {
                *g = dot(row, x) - b;
            }
            (dot(g, x) - dot(&linear, x)) / 2.0
        }
    }

    fn floats(value: &serde_json::Value) -> Vec<f64> {
        // 1e300 stands for infinity.
        let one = |v: &serde_json::Value| v.as_f64().unwrap();
        let wide = |x: f64| if x.abs() < 1e300 { x } else { x * 1e300 };
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|v| wide(one(v)))
            .collect()
    }

    #[test]
    fn minima_inside_bounds_are_those_of_scipy() {
        let reference: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/reference/bounded.json")).unwrap();
        for problem in reference["problems"].as_array().unwrap() {
            let function: Box<Function> = match problem["name"].as_str().unwrap() {
                "rosenbrock" => Box::new(rosenbrock),
                "exponential" => Box::new(exponential),
                _ => {
                    let rows = problem["matrix"].as_array().unwrap();
                    let matrix = rows.iter().map(floats).collect();
                    Box::new(quadratic(matrix, floats(&problem["linear"])))
                }
            };
            let [start, lower, upper, at] =
                ["start", "lower", "upper", "at"].map(|key| floats(&problem[key]));
            let value = problem["value"].as_f64().unwrap();
            let evaluations = problem["evaluations"].as_f64().unwrap();
            for memory in [1, 5, 10] {
                let settings = Settings {
                    memory,
                    ..Settings::default()
                };
                let found = run(&*function, &start, &lower, &upper, &settings);
                let case = format!("{} of {}, m = {memory}", problem["name"], at.len());
                assert_eq!(found.outcome, Outcome::Converged, "{case}: {found:?}");
                assert!(
                    (found.value - value).abs() <= 1e-9 * value.abs().max(1.0),
                    "{case}: {} instead of {value}",
                    found.value
                );
                for (ours, theirs) in found.at.iter().zip(&at) {
                    assert!(
                        (ours - theirs).abs() < 1e-4 * theirs.abs().max(1.0),
                        "{case}: {ours} instead of {theirs}"
                    );
                }
                // The same algorithm with as large a memory needs about as many evaluations.
                if memory == 10 {
                    assert!(
                        (found.evaluations as f64) < 1.5 * evaluations + 10.0,
                        "{case}: {} evaluations instead of {evaluations}",
                        found.evaluations
                    );
                }
            }
        }
    }

    #[test]
    fn a_quadratic_made_from_its_multipliers_is_solved() {
        // A x - b = multipliers: positive at the lower bound, negative at the upper, else 0.
        let matrix = vec![
            vec![4.0, 1.0, 0.0, -1.0],
            vec![1.0, 3.0, 0.5, 0.0],
            vec![0.0, 0.5, 2.0, 0.3],
            vec![-1.0, 0.0, 0.3, 5.0],
        ];
        let solution = [-1.0, 0.25, 2.0, 0.5];
        let multipliers = [1.5, 0.0, -0.5, 0.0];
        let rows = matrix.iter().zip(&multipliers);
        let linear = rows.map(|(row, m)| dot(row, &solution) - m).collect();
        let found = run(
            &quadratic(matrix, linear),
            &[0.0; 4],
            &[-1.0, -9.0, -3.0, f64::NEG_INFINITY],
            &[1.0, 9.0, 2.0, f64::INFINITY],
            &Settings::default(),
        );
        assert_eq!(found.outcome, Outcome::Converged);
        assert!(found.projected_gradient < 1e-7);
        for (x, expected) in found.at.iter().zip(&solution) {
            assert!((x - expected).abs() < 1e-7, "{x} instead of {expected}");
        }
        assert_eq!([found.at[0], found.at[2]], [-1.0, 2.0]);
    }

    #[test]
    fn a_linear_function_ends_in_its_corner() {
        let slopes = [1.0, -2.0, 1e-3, -1e-5, 0.0];
        let linear = move |x: &[f64], g: &mut [f64]| {
            g.copy_from_slice(&slopes);
            dot(&slopes, x)
        };
        let start = [0.1, 0.2, 0.3, 0.4, 0.5];
        let found = run(&linear, &start, &[-1.0; 5], &[2.0; 5], &Settings::default());
        assert_eq!(found.outcome, Outcome::Converged);
        assert_eq!(found.at, [-1.0, 2.0, -1.0, 2.0, 0.5]);
        assert_eq!(found.projected_gradient, 0.0);
        assert!(found.evaluations < 20, "{}", found.evaluations);
    }

    #[test]
    fn many_variables_take_one_pass_a_step() {
        // (x_i - i mod 7)^2 times a curvature between 1 and 2, in the box [1, 4].
        let n: usize = 100_000;
        let center = |i: usize| (i % 7) as f64;
        let function = move |x: &[f64], g: &mut [f64]| {
            let mut value = 0.0;
            for i in 0..x.len() {
                let curvature = 1.0 + i as f64 / x.len() as f64;
                g[i] = curvature * (x[i] - center(i));
                value += g[i] * (x[i] - center(i)) / 2.0;
            }
            value
        };
        let found = run(
            &function,
            &vec![2.5; n],
            &vec![1.0; n],
            &vec![4.0; n],
            &Settings::default(),
        );
        assert_eq!(found.outcome, Outcome::Converged);
        for (i, x) in found.at.iter().enumerate() {
            assert!((x - center(i).clamp(1.0, 4.0)).abs() < 1e-5, "{x} at {i}");
        }
    }

    #[test]
    fn a_gradient_of_the_wrong_sign_fails_the_line_search() {
        let wrong = |x: &[f64], g: &mut [f64]| {
            let value = rosenbrock(x, g);
            for g in g {
                *g = -*g;
            }
            value
        };
        let (lower, upper) = ([-2.0; 10], [2.0; 10]);
        for start in [[0.3; 10], [-1.0; 10], [1.5; 10]] {
            let found = run(&wrong, &start, &lower, &upper, &Settings::default());
            assert_eq!(found.outcome, Outcome::LineSearchFailed);
            assert_eq!(found.at, start);
            assert!(found.evaluations < 60);
        }
    }

    #[test]
    fn limits_are_kept_and_return_the_lowest_point() {
        let (start, lower, upper) = ([-1.2, 1.0], [-2.0; 2], [2.0; 2]);
        let first = rosenbrock(&start, &mut [0.0; 2]);
        for limit in 0..12 {
            let few = Settings {
                iterations: limit,
                ..Settings::default()
            };
            let found = run(&rosenbrock, &start, &lower, &upper, &few);
            assert_eq!(found.outcome, Outcome::IterationLimit);
            assert_eq!(found.iterations, limit);
            let few = Settings {
                max_evaluations: limit,
                ..Settings::default()
            };
            let found = run(&rosenbrock, &start, &lower, &upper, &few);
            assert_eq!(found.outcome, Outcome::EvaluationLimit);
            assert!(found.value <= first);
            assert_eq!(found.value, rosenbrock(&found.at, &mut [0.0; 2]));
        }
    }

    #[test]
    fn equal_bounds_fix_a_variable() {
        let found = run(
            &rosenbrock,
            &[0.0; 3],
            &[-5.0, 0.5, -5.0],
            &[5.0, 0.5, 5.0],
            &Settings::default(),
        );
        assert_eq!(found.outcome, Outcome::Converged);
        assert_eq!(found.at[1], 0.5);
        assert!((found.at[2] - 0.25).abs() < 1e-7);
        let all = run(
            &rosenbrock,
            &[0.0; 3],
            &[0.5; 3],
            &[0.5; 3],
            &Settings::default(),
        );
        assert_eq!((all.outcome, all.evaluations), (Outcome::Converged, 1));
    }

    #[test]
    fn bounds_that_cross_are_an_error_of_their_own() {
        let ask = |lower: &[f64], upper: &[f64]| {
            let evaluate =
                |x: &[f64], g: &mut [f64]| -> Result<f64, Infallible> { Ok(rosenbrock(x, g)) };
            minimize(evaluate, &[0.0; 2], lower, upper, &Settings::default())
        };
        let crossed = ask(&[0.0, 1.0], &[1.0, 0.5]).unwrap_err();
        assert!(matches!(crossed, MinimizeError::Bounds { index: 1, .. }));
        assert!(crossed.to_string().contains("1 are 1 and 0.5"), "{crossed}");
        let nan = ask(&[f64::NAN, 0.0], &[1.0; 2]).unwrap_err();
        assert!(matches!(nan, MinimizeError::Bounds { index: 0, .. }));
        let short = ask(&[0.0; 2], &[1.0]).unwrap_err();
        assert!(matches!(short, MinimizeError::Length { found: 1, .. }));
    }

    #[test]
    fn what_is_not_finite_is_said_or_stepped_back_from() {
        // -log(1 - x) - 3x: infinite from 1 on, least at 2/3.
        let barrier = |x: &[f64], g: &mut [f64]| {
            g[0] = 1.0 / (1.0 - x[0]) - 3.0;
            if x[0] < 1.0 {
                -(1.0 - x[0]).ln() - 3.0 * x[0]
            } else {
                f64::NAN
            }
        };
        let found = run(&barrier, &[0.0], &[-1.0], &[5.0], &Settings::default());
        assert_eq!(found.outcome, Outcome::Converged);
        assert!((found.at[0] - 2.0 / 3.0).abs() < 1e-6);
        let start = run(&barrier, &[2.0], &[-1.0], &[5.0], &Settings::default());
        assert_eq!(start.outcome, Outcome::NotFinite);
        let island = |x: &[f64], g: &mut [f64]| {
            g[0] = -1.0;
            if x[0] == 0.0 { 1.0 } else { f64::INFINITY }
        };
        let found = run(&island, &[0.0], &[-1.0], &[5.0], &Settings::default());
        assert_eq!((found.outcome, found.value), (Outcome::NotFinite, 1.0));
    }

    #[test]
    fn an_error_of_the_function_comes_back() {
        let mut calls = 0;
        let evaluate = |x: &[f64], g: &mut [f64]| {
            calls += 1;
            if calls == 3 {
                Err("third")
            } else {
                Ok(rosenbrock(x, g))
            }
        };
        let bounds = ([-2.0; 2], [2.0; 2]);
        let found = minimize(
            evaluate,
            &[-1.0; 2],
            &bounds.0,
            &bounds.1,
            &Settings::default(),
        );
        assert_eq!(found, Err(MinimizeError::Function("third")));
    }

    #[test]
    fn nothing_to_choose_is_a_minimum() {
        let constant = |_: &[f64], _: &mut [f64]| 3.0;
        let found = run(&constant, &[], &[], &[], &Settings::default());
        assert_eq!((found.outcome, found.value), (Outcome::Converged, 3.0));
    }
}
