//! The noisy quadratic: what descent does to its expected loss, exactly, for any number of steps.
//!
//! L = sum h_i theta_i^2/2, and the gradient of a batch of B examples is h_i theta_i plus noise of
//! variance v_i/B, independent of everything before; v_i = h_i unless said otherwise. Descent at rate
//! a with the preconditioner H^(-p) moves direction i at the rate a_i = a h_i^(-p): with
//! x_i = a_i h_i and s_i = E theta_i^2 a step takes s_i to (1 - x_i)^2 s_i + a_i^2 v_i/B, hence
//!
//! s_i(t) = f_i + (1 - x_i)^(2t) (s_i(0) - f_i),  f_i = a_i^2 (v_i/B)/(x_i (2 - x_i)).
//!
//! Heavy ball with momentum m (w <- m w + g; theta <- theta - a_i w, w = 0 at first) is linear too;
//! its second moments after t steps are found by doubling, in the logarithm of t operations.
//!
//! Zhang et al. 2019 (arXiv 1907.04164), section 3, with h_i = 1/i, i up to 10^4, s_i(0) = 1 and the
//! target 0.01. Steps are updates, batches examples, rates parameters over gradients; B may be
//! infinite, which means no noise.
//!
//! # First crossings
//!
//! The loss need not fall monotonically: directions that start below f_i rise while others fall, and
//! momentum oscillates. But it is at least D(t) + R(t), D a sum of terms that only fall and R of terms
//! that only rise. After a step t without crossing none follows before D has come down to
//! target - R(t); the search jumps there, and again. It passes over no crossing, and it ends: either
//! at one, or where D never comes down so far.
//!
//! # The published figures
//!
//! The table that goes with the paper (its authors' notebook) differs from the model in two ways, and
//! [`published_steps`] computes it with both: 1e-8 is added to 1 - (1 - x_i)^2 in f_i, and what is
//! given is the last step before the loss is below the target. The first makes 0.04 % at B = 4 and
//! nothing at large batches; the second is one step. It also rounds eigenvalues down to one of 100
//! values ([`NoisyQuadratic::binned`]). The rest of this module has no such peculiarity.

use thiserror::Error;

/// Searches end here: the largest step whose number is exact in f64.
const LONGEST: u64 = 1 << 53;

/// The learning rates tried for each published number: 100 from 10^-5 to 10^0.5.
const PUBLISHED_RATES: (f64, f64, usize) = (-5.0, 0.5, 100);

/// What the published computation adds to 1 - (1 - x)^2.
const PUBLISHED_GUARD: f64 = 1e-8;

/// Target of the published table.
pub const PUBLISHED_TARGET: f64 = 0.01;

/// Rates per decade that the search for the best rate starts from.
const RATES_PER_DECADE: f64 = 20.0;

/// (5^(1/2) - 1)/2.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Directions of parameter space that share one curvature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Direction {
    /// Eigenvalue h of the Hessian, above 0.
    pub eigenvalue: f64,
    /// How many directions have it; need not be whole.
    pub count: f64,
    /// E theta^2 at the start.
    pub second_moment: f64,
    /// (E theta)^2 at the start: equal to `second_moment` where the start is known, 0 where it is
    /// drawn around the minimum. Only deviations depend on it.
    pub squared_mean: f64,
    /// Variance v of the gradient of one example in this direction.
    pub noise: f64,
}

/// A direction that no noisy quadratic has.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("direction {direction} of the quadratic: {field} should be {expected}, found {found}")]
pub struct DirectionError {
    /// Its index.
    pub direction: usize,
    /// The field that is wrong.
    pub field: &'static str,
    /// What it should be.
    pub expected: &'static str,
    /// What it is.
    pub found: f64,
}

/// How the gradient is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Descent {
    /// p: the preconditioner is H^(-p). 0 is plain descent, 1 Newton's method.
    pub power: f64,
    /// m of heavy ball, in [0, 1).
    pub momentum: f64,
}

impl Descent {
    /// Plain descent.
    pub const PLAIN: Self = Self {
        power: 0.0,
        momentum: 0.0,
    };

    /// Descent preconditioned with H^(-p).
    pub fn preconditioned(power: f64) -> Self {
        Self {
            power,
            ..Self::PLAIN
        }
    }

    /// The same with momentum.
    pub fn with_momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }
}

/// The rate that reaches a target in the fewest steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fastest {
    /// The rate.
    pub rate: f64,
    /// The first step with a loss of at most the target.
    pub steps: u64,
    /// Where between that step and the one before the target was met, by interpolation of log loss.
    pub time: f64,
}

/// The model; see the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct NoisyQuadratic {
    directions: Vec<Direction>,
    guard: f64,
}

impl NoisyQuadratic {
    /// The quadratic with these directions.
    ///
    /// # Errors
    /// If an eigenvalue or a count is not above 0, or a moment or the noise is negative, or
    /// `squared_mean` is above `second_moment`, or one is not finite.
    pub fn new(directions: Vec<Direction>) -> Result<Self, DirectionError> {
        for (i, d) in directions.iter().enumerate() {
            let fields = [
                ("eigenvalue", d.eigenvalue, f64::MIN_POSITIVE, f64::MAX),
                ("count", d.count, f64::MIN_POSITIVE, f64::MAX),
                ("second_moment", d.second_moment, 0.0, f64::MAX),
                ("squared_mean", d.squared_mean, 0.0, d.second_moment),
                ("noise", d.noise, 0.0, f64::MAX),
            ];
            for (field, found, low, high) in fields {
                if !(low..=high).contains(&found) {
                    return Err(DirectionError {
                        direction: i,
                        field,
                        expected: match field {
                            "eigenvalue" | "count" => "above 0 and finite",
                            "squared_mean" => "between 0 and second_moment",
                            _ => "at least 0 and finite",
                        },
                        found,
                    });
                }
            }
        }
        Ok(Self {
            directions,
            guard: 0.0,
        })
    }

    /// h_i = 1/i for i up to `dimension`, v_i = h_i, theta_i(0) drawn with mean 0 and variance 1.
    ///
    /// This is the expectation, over starts and noise, of what the training loop runs with
    /// `model = "noisy-quadratic"` (eigenvalues, noise, start and evaluated loss are the same).
    ///
    /// ```
    /// # use batchlab::theory::noisy_quadratic::{Descent, NoisyQuadratic};
    /// let model = NoisyQuadratic::harmonic(100);
    /// // Half the harmonic number of 100.
    /// assert!((model.initial_loss() - 2.593_688_758_8).abs() < 1e-9);
    /// let steps = model.steps_to(0.5, Descent::PLAIN, 0.5, 64.0);
    /// assert_eq!(steps, Some(27));
    /// ```
    pub fn harmonic(dimension: usize) -> Self {
        Self::drawn((1..=dimension).map(|i| (1.0 / i as f64, 1.0)))
    }

    /// [`harmonic`](Self::harmonic) from a known start: what the training loop runs, in expectation
    /// over its noise alone, from the parameters that one seed begins with.
    pub fn of_training(start: &[f64]) -> Self {
        let mut model = Self::harmonic(start.len());
        for (direction, theta) in model.directions.iter_mut().zip(start) {
            direction.second_moment = theta * theta;
            direction.squared_mean = theta * theta;
        }
        model
    }

    /// [`harmonic`](Self::harmonic) with few distinct eigenvalues: each 1/i is rounded down to one of
    /// `bins` values (at least 1) that fall from 1 to 1/dimension in equal ratios. Values that none
    /// is rounded to are left out.
    ///
    /// So the authors of the model have it, with 10^4 directions in 100 bins.
    pub fn binned(dimension: usize, bins: usize) -> Self {
        let last = bins.max(1) - 1;
        let value = |bin: usize| {
            if bin == last {
                1.0 / dimension as f64
            } else {
                (dimension as f64).powf(-(bin as f64) / last as f64)
            }
        };
        let mut found: Vec<(f64, f64)> = Vec::new();
        let mut bin = 0;
        for i in 1..=dimension {
            // A value that is 1/i but for rounding takes it.
            while bin < last && 1.0 / (i as f64) < value(bin) * (1.0 - 1e-12) {
                bin += 1;
            }
            match found.last_mut() {
                Some((eigenvalue, count)) if *eigenvalue == value(bin) => *count += 1.0,
                _ => found.push((value(bin), 1.0)),
            }
        }
        Self::drawn(found.into_iter())
    }

    /// Eigenvalues and counts, from a start of variance 1, with noise of their own size.
    fn drawn(spectrum: impl Iterator<Item = (f64, f64)>) -> Self {
        Self {
            directions: spectrum
                .map(|(eigenvalue, count)| Direction {
                    eigenvalue,
                    count,
                    second_moment: 1.0,
                    squared_mean: 0.0,
                    noise: eigenvalue,
                })
                .collect(),
            guard: 0.0,
        }
    }

    /// The directions.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// Expected loss before the first step.
    pub fn initial_loss(&self) -> f64 {
        let terms = self.directions.iter();
        terms
            .map(|d| 0.5 * d.count * d.eigenvalue * d.second_moment)
            .sum()
    }

    /// Expected loss after so many steps; infinite where it is too large for a number.
    pub fn loss_after(&self, descent: Descent, rate: f64, batch: f64, steps: u64) -> f64 {
        let mut curve = self.curve(descent, rate, batch);
        curve.go_to(steps);
        curve.parts().loss
    }

    /// Standard deviation, over starts and noise, of the loss after so many steps, for a start and
    /// noise that are normal: Var L = sum h^2 (s^2 - u^2)/2 with s = E theta^2 and u = (E theta)^2.
    ///
    /// A run from a known start fluctuates by this much about the expectation, and so tends to pass a
    /// target for the first time before the expectation does.
    pub fn deviation_after(&self, descent: Descent, rate: f64, batch: f64, steps: u64) -> f64 {
        let mut curve = self.curve(descent, rate, batch);
        curve.go_to(steps);
        let mut variance = 0.0;
        for (i, d) in self.directions.iter().enumerate() {
            let (shrunk, added) = curve.moments(i);
            let (moment, mean) = (d.second_moment * shrunk + added, d.squared_mean * shrunk);
            let square = (moment - mean) * (moment + mean);
            variance += 0.5 * d.count * d.eigenvalue * d.eigenvalue * square;
        }
        variance.sqrt()
    }

    /// The expected loss that training settles at, `None` where it does not settle: where
    /// x = a h^(1 - p) is not in (0, 2(1 + m)) for all directions. Each has the variance
    /// a_i^2 (v_i/B) (1 + m)/((1 - m) x (2(1 + m) - x)).
    pub fn floor(&self, descent: Descent, rate: f64, batch: f64) -> Option<f64> {
        let (m, mut sum) = (descent.momentum, 0.0);
        for d in &self.directions {
            let (x, noise) = d.scales(descent, rate, batch);
            let stable = x > 0.0 && x < 2.0 * (1.0 + m) && (0.0..1.0).contains(&m);
            if !stable {
                return None;
            }
            let variance = noise * (1.0 + m) / ((1.0 - m) * x * (2.0 * (1.0 + m) - x));
            sum += 0.5 * d.count * d.eigenvalue * variance;
        }
        Some(sum)
    }

    /// The first step after which the expected loss is at most `target`, 0 for the start. `None`:
    /// never (or after more than 2^53 steps), because the floor lies above it or the rate is too large;
    /// also where momentum is outside [0, 1).
    pub fn steps_to(&self, target: f64, descent: Descent, rate: f64, batch: f64) -> Option<u64> {
        let crossing = self.crossing(target, descent, rate, batch, LONGEST)?;
        Some(crossing.steps)
    }

    /// [`steps_to`](Self::steps_to), placed between the last two steps by interpolation of log loss.
    pub fn time_to(&self, target: f64, descent: Descent, rate: f64, batch: f64) -> Option<f64> {
        let crossing = self.crossing(target, descent, rate, batch, LONGEST)?;
        Some(crossing.time)
    }

    /// The rate among `rates` that reaches the target in the fewest whole steps, the first of those
    /// that tie. `None` if none reaches it.
    pub fn best_steps(
        &self,
        target: f64,
        descent: Descent,
        batch: f64,
        rates: &[f64],
    ) -> Option<Fastest> {
        let mut best: Option<Fastest> = None;
        for &rate in rates {
            let limit = match best {
                Some(Fastest { steps: 0, .. }) => break,
                Some(found) => found.steps - 1,
                None => LONGEST,
            };
            best = self.crossing(target, descent, rate, batch, limit).or(best);
        }
        best
    }

    /// The best rate of all: a log grid from a thousandth of the rate whose floor is the target to
    /// four times the largest stable rate, and golden section between the neighbours of the best of
    /// it, by [`Fastest::time`]. `None` if no rate of the grid reaches the target.
    pub fn optimum(&self, target: f64, descent: Descent, batch: f64) -> Option<Fastest> {
        let m = descent.momentum;
        let (mut steepest, mut noise) = (0.0_f64, 0.0);
        for d in &self.directions {
            let (x, variance) = d.scales(descent, 1.0, batch);
            steepest = steepest.max(x);
            noise += d.count * d.eigenvalue * variance / x;
        }
        let largest = 2.0 * (1.0 + m) / steepest;
        // Far below the largest rate the floor is a noise/(4 (1 - m)).
        let settles = (4.0 * (1.0 - m) * target / noise).min(largest);
        let (low, high) = ((1e-3 * settles).log10(), (4.0 * largest).log10());
        if !(low.is_finite() && high.is_finite()) {
            return None;
        }
        let intervals = ((high - low) * RATES_PER_DECADE).ceil() as usize;
        let rates = log_rates(low, high, intervals + 1);
        let mut best: Option<(usize, Fastest)> = None;
        for (i, &rate) in rates.iter().enumerate() {
            let limit = best.map_or(LONGEST, |(_, found)| found.steps);
            let Some(found) = self.crossing(target, descent, rate, batch, limit) else {
                continue;
            };
            if best.is_none_or(|(_, b)| found.time < b.time) {
                best = Some((i, found));
            }
        }
        let (i, mut best) = best?;
        let mut low = rates[i.saturating_sub(1)].ln();
        let mut high = rates[(i + 1).min(intervals)].ln();
        // A rate that never gets there is too large.
        let mut probe = |log_rate: f64| {
            let found = self.crossing(target, descent, log_rate.exp(), batch, LONGEST);
            if let Some(found) = found.filter(|found| found.time < best.time) {
                best = found;
            }
            found.map_or(f64::INFINITY, |found| found.time)
        };
        let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (mut at_left, mut at_right) = (probe(left), probe(right));
        while high - low > 1e-9 {
            if at_left <= at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - GOLDEN * (high - low);
                at_left = probe(left);
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + GOLDEN * (high - low);
                at_right = probe(right);
            }
        }
        Some(best)
    }

    /// Examples that any method needs, whatever its steps and batches, until its expected loss is at
    /// most `target`, for a start and noise that are normal.
    ///
    /// A gradient of an example is a measurement of theta with the variance v/h^2 in each direction,
    /// wherever it is taken. After n of them no estimate of theta has less variance than that of the
    /// posterior, 1/(1/s + n h^2/v): the n for which sum h/(2/s + 2 n h^2/v) is the target. Infinite
    /// for a target of 0 with noise everywhere.
    pub fn fewest_examples(&self, target: f64) -> f64 {
        if self.initial_loss() <= target {
            return 0.0;
        }
        let loss = |n: f64| -> f64 {
            let remaining = self.directions.iter().map(|d| {
                let information = n * d.eigenvalue * d.eigenvalue / d.noise;
                0.5 * d.count * d.eigenvalue / (1.0 / d.second_moment + information)
            });
            remaining.sum()
        };
        let (mut low, mut high) = (0.0, 1.0);
        while loss(high) > target && high < f64::MAX / 2.0 {
            (low, high) = (high, 2.0 * high);
        }
        if loss(high) > target {
            return f64::INFINITY;
        }
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if loss(middle) > target {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// [`fewest_examples`](Self::fewest_examples) where the start says nothing (s infinite):
    /// sum (v/h)/(2 C) for the target C. With v = h in N directions N/(2C), and N/(2CB) steps: the
    /// lower bound that the paper's figures draw. A start that is known to be near the minimum allows
    /// a little less (1 % with the published numbers).
    pub fn fewest_examples_from_anywhere(&self, target: f64) -> f64 {
        let terms = self.directions.iter();
        terms
            .map(|d| d.count * (d.noise / d.eigenvalue))
            .sum::<f64>()
            / (2.0 * target)
    }

    fn curve(&self, descent: Descent, rate: f64, batch: f64) -> Box<dyn Curve> {
        if descent.momentum == 0.0 {
            let modes = self.directions.iter();
            let modes = modes.map(|d| PlainMode::new(d, descent, rate, batch, self.guard));
            Box::new(Plain {
                at: 0.0,
                modes: modes.collect(),
            })
        } else {
            let modes = self.directions.iter();
            let modes = modes.map(|d| HeavyMode::new(d, descent, rate, batch));
            Box::new(Heavy {
                at: 0,
                modes: modes.collect(),
            })
        }
    }

    /// The first crossing that is not after `limit`.
    fn crossing(
        &self,
        target: f64,
        descent: Descent,
        rate: f64,
        batch: f64,
        limit: u64,
    ) -> Option<Fastest> {
        if !(0.0..1.0).contains(&descent.momentum) {
            return None;
        }
        let mut curve = self.curve(descent, rate, batch);
        let steps = first_crossing(&mut *curve, target, limit)?;
        let time = if steps == 0 {
            0.0
        } else {
            curve.go_to(steps - 1);
            let before = curve.parts().loss;
            curve.go_to(steps);
            let fraction = (before / target).ln() / (before / curve.parts().loss).ln();
            let fraction = if fraction.is_nan() { 1.0 } else { fraction };
            (steps - 1) as f64 + fraction.clamp(0.0, 1.0)
        };
        Some(Fastest { rate, steps, time })
    }
}

/// `n` rates from 10^`low` to 10^`high` in equal ratios, ascending where low < high.
pub fn log_rates(low: f64, high: f64, n: usize) -> Vec<f64> {
    let last = n.saturating_sub(1).max(1) as f64;
    (0..n)
        .map(|i| 10_f64.powf(low + (high - low) * (i as f64 / last)))
        .collect()
}

/// Steps to [`PUBLISHED_TARGET`] as the authors of the model compute them, with the preconditioner
/// H^(-p): 10^4 eigenvalues in 100 bins, the best of 100 rates, and the peculiarities that the
/// [module](self) names.
///
/// ```
/// # use batchlab::theory::noisy_quadratic::published_steps;
/// assert_eq!(published_steps(0.0, 1024.0), Some(10_609));
/// ```
pub fn published_steps(power: f64, batch: f64) -> Option<u64> {
    let model = NoisyQuadratic {
        guard: PUBLISHED_GUARD,
        ..NoisyQuadratic::binned(10_000, 100)
    };
    let (low, high, n) = PUBLISHED_RATES;
    let descent = Descent::preconditioned(power);
    let best = model.best_steps(PUBLISHED_TARGET, descent, batch, &log_rates(low, high, n))?;
    Some(best.steps.saturating_sub(1).max(1))
}

impl Direction {
    /// x = a h^(1 - p), and the variance a^2 h^(-2p) v/B that the noise of one step adds.
    fn scales(&self, descent: Descent, rate: f64, batch: f64) -> (f64, f64) {
        let rate = rate * self.eigenvalue.powf(-descent.power);
        (rate * self.eigenvalue, rate * rate * (self.noise / batch))
    }

    /// What a unit of theta^2 adds to the loss.
    fn weight(&self) -> f64 {
        0.5 * self.count * self.eigenvalue
    }
}

/// The expected loss, and what it does not fall below again.
struct Parts {
    /// Terms that only rise.
    rising: f64,
    /// At least `rising` and the terms that only fall.
    loss: f64,
}

/// An expected loss over steps, at a step.
trait Curve {
    fn go_to(&mut self, step: u64);
    fn parts(&self) -> Parts;
    /// The sum of the terms that only fall, at any step.
    fn falling_at(&self, step: u64) -> f64;
    /// Of direction i: what E theta^2 and (E theta)^2 are multiplied by, and what noise has added to
    /// the former.
    fn moments(&self, direction: usize) -> (f64, f64);
}

/// The first step with a loss of at most the target and not after `limit`; see the [module](self).
fn first_crossing(curve: &mut dyn Curve, target: f64, limit: u64) -> Option<u64> {
    let mut at = 0;
    curve.go_to(at);
    loop {
        let parts = curve.parts();
        if parts.loss <= target {
            return Some(at);
        }
        let room = target - parts.rising;
        // Not a number where the loss is beyond all numbers.
        let within = |step: u64| curve.falling_at(step) <= room;
        if at >= limit || !within(limit) {
            return None;
        }
        let (mut low, mut high) = (at, at + 1);
        while !within(high) {
            (low, high) = (high, limit.min(high + 2 * (high - at)));
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if within(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        at = high;
        curve.go_to(at);
    }
}

/// Descent without momentum.
struct Plain {
    at: f64,
    modes: Vec<PlainMode>,
}

struct PlainMode {
    weight: f64,
    start: f64,
    /// ln (1 - x)^2.
    log_factor: f64,
    /// f, negative where x is outside (0, 2); `None` where (1 - x)^2 is 1.
    floor: Option<f64>,
    /// Variance that a step adds.
    noise: f64,
    falls: bool,
}

impl PlainMode {
    fn new(d: &Direction, descent: Descent, rate: f64, batch: f64, guard: f64) -> Self {
        let (x, noise) = d.scales(descent, rate, batch);
        // ln |1 - x| without cancellation at either end of (0, 2).
        let log_factor = 2.0
            * if x < 1.0 {
                (-x).ln_1p()
            } else {
                (x - 2.0).ln_1p()
            };
        let lost = x * (2.0 - x) + guard;
        let floor = (log_factor != 0.0).then_some(noise / lost);
        Self {
            weight: d.weight(),
            start: d.second_moment,
            log_factor,
            floor,
            noise,
            falls: log_factor < 0.0 && floor.is_some_and(|floor| floor < d.second_moment),
        }
    }

    /// (1 - x)^(2t), and the variance that the noise of t steps leaves.
    fn moments(&self, steps: f64) -> (f64, f64) {
        if steps == 0.0 {
            return (1.0, 0.0);
        }
        let exponent = steps * self.log_factor;
        let added = match self.floor {
            Some(floor) => -floor * exponent.exp_m1(),
            None => self.noise * steps,
        };
        (exponent.exp(), added)
    }

    fn loss(&self, steps: f64) -> f64 {
        if let (true, Some(floor)) = (self.falls, self.floor) {
            // No rounding makes this rise, and it costs one exponential.
            let above = (self.start - floor) * (steps * self.log_factor).exp();
            // x = 1: all is forgotten by the first step, and nothing before it.
            let above = if steps == 0.0 {
                self.start - floor
            } else {
                above
            };
            return self.weight * (floor + above);
        }
        let (shrunk, added) = self.moments(steps);
        self.weight * (self.start * shrunk + added)
    }
}

impl Curve for Plain {
    fn go_to(&mut self, step: u64) {
        self.at = step as f64;
    }

    fn parts(&self) -> Parts {
        let (mut falling, mut rising) = (0.0, 0.0);
        for mode in &self.modes {
            *(if mode.falls {
                &mut falling
            } else {
                &mut rising
            }) += mode.loss(self.at);
        }
        Parts {
            rising,
            loss: falling + rising,
        }
    }

    fn falling_at(&self, step: u64) -> f64 {
        let falling = self.modes.iter().filter(|mode| mode.falls);
        falling.map(|mode| mode.loss(step as f64)).sum()
    }

    fn moments(&self, direction: usize) -> (f64, f64) {
        self.modes[direction].moments(self.at)
    }
}

/// Descent with momentum. The state of a direction is z = (theta, u), u the last change of theta:
/// z' = A z + a noise (1, 1), A = [[1 - x, m], [-x, m]].
struct Heavy {
    at: u64,
    modes: Vec<HeavyMode>,
}

#[derive(Clone, Copy, PartialEq)]
enum Course {
    /// |theta| falls from the start on.
    Falls,
    /// It oscillates.
    Between,
    /// It rises from the start on.
    Rises,
}

struct HeavyMode {
    weight: f64,
    start: f64,
    noise: f64,
    matrix: Matrix,
    course: Course,
    /// z of the expectation, from (1, 0).
    mean: [f64; 2],
    /// A^t (1, 1): what the noise of the first step has become.
    impulse: [f64; 2],
    /// The sum of the squares of the first entry of the latter over the steps before.
    sum: f64,
}

type Matrix = [[f64; 2]; 2];

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let entry = |i: usize, j: usize| a[i][0] * b[0][j] + a[i][1] * b[1][j];
    [[entry(0, 0), entry(0, 1)], [entry(1, 0), entry(1, 1)]]
}

fn image(a: &Matrix, z: [f64; 2]) -> [f64; 2] {
    [
        a[0][0] * z[0] + a[0][1] * z[1],
        a[1][0] * z[0] + a[1][1] * z[1],
    ]
}

/// A^steps.
fn power(a: &Matrix, steps: u64) -> Matrix {
    let mut result = [[1.0, 0.0], [0.0, 1.0]];
    for bit in (0..u64::BITS - steps.leading_zeros()).rev() {
        result = product(&result, &result);
        if steps >> bit & 1 == 1 {
            result = product(&result, a);
        }
    }
    result
}

impl HeavyMode {
    fn new(d: &Direction, descent: Descent, rate: f64, batch: f64) -> Self {
        let (x, noise) = d.scales(descent, rate, batch);
        let m = descent.momentum;
        // From rest, theta' = -theta moves on with |theta| rising where x is 2(1 + m) or more: if
        // 0 <= u/theta <= 2, theta turns to -(x - 1 - m u/theta) theta, which is no shorter, and
        // u/theta to 1 + 1/(x - 1 - m u/theta), at most 2. Up to (1 - m^(1/2))^2 both eigenvalues are
        // real and positive, and theta falls to 0 without passing it.
        let course = if x <= 0.0 || x >= 2.0 * (1.0 + m) {
            Course::Rises
        } else if x <= (1.0 - m.sqrt()).powi(2) {
            Course::Falls
        } else {
            Course::Between
        };
        Self {
            weight: d.weight(),
            start: d.second_moment,
            noise,
            matrix: [[1.0 - x, m], [-x, m]],
            course,
            mean: [1.0, 0.0],
            impulse: [1.0, 1.0],
            sum: 0.0,
        }
    }

    fn advance(&mut self) {
        self.sum += self.impulse[0] * self.impulse[0];
        self.impulse = image(&self.matrix, self.impulse);
        self.mean = image(&self.matrix, self.mean);
    }

    /// By doubling: the covariance after 2t steps is Q + A^t Q A^t', after t + 1 it is
    /// (1, 1)(1, 1)' + A Q A'.
    fn jump(&mut self, steps: u64) {
        let transposed = |a: &Matrix| [[a[0][0], a[1][0]], [a[0][1], a[1][1]]];
        let around = |a: &Matrix, q: &Matrix| product(&product(a, q), &transposed(a));
        let mut a = [[1.0, 0.0], [0.0, 1.0]];
        let mut q = [[0.0; 2]; 2];
        for bit in (0..u64::BITS - steps.leading_zeros()).rev() {
            let added = around(&a, &q);
            for (row, more) in q.iter_mut().zip(added) {
                row[0] += more[0];
                row[1] += more[1];
            }
            a = product(&a, &a);
            if steps >> bit & 1 == 1 {
                q = around(&self.matrix, &q).map(|row| row.map(|entry| entry + 1.0));
                a = product(&a, &self.matrix);
            }
        }
        self.sum = q[0][0];
        self.impulse = image(&a, [1.0, 1.0]);
        self.mean = image(&a, [1.0, 0.0]);
    }

    fn moments(&self) -> (f64, f64) {
        (self.mean[0] * self.mean[0], self.noise * self.sum)
    }
}

impl Curve for Heavy {
    fn go_to(&mut self, step: u64) {
        for mode in &mut self.modes {
            if step == self.at + 1 {
                mode.advance();
            } else {
                mode.jump(step);
            }
        }
        self.at = step;
    }

    fn parts(&self) -> Parts {
        let (mut falling, mut rising, mut between) = (0.0, 0.0, 0.0);
        for mode in &self.modes {
            let (shrunk, added) = mode.moments();
            rising += mode.weight * added;
            let started = mode.weight * mode.start * shrunk;
            match mode.course {
                Course::Falls => falling += started,
                Course::Between => between += started,
                Course::Rises => rising += started,
            }
        }
        let loss: f64 = falling + rising + between;
        Parts {
            rising,
            loss: if loss.is_nan() { f64::INFINITY } else { loss },
        }
    }

    fn falling_at(&self, step: u64) -> f64 {
        let falling = self.modes.iter().filter(|m| m.course == Course::Falls);
        let terms = falling.map(|mode| {
            let mean = if step == self.at + 1 {
                image(&mode.matrix, mode.mean)
            } else {
                image(&power(&mode.matrix, step), [1.0, 0.0])
            };
            mode.weight * mode.start * mean[0] * mean[0]
        });
        terms.sum()
    }

    fn moments(&self, direction: usize) -> (f64, f64) {
        self.modes[direction].moments()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const BATCHES: [f64; 5] = [4.0, 64.0, 1024.0, 16384.0, 262_144.0];

    fn reference() -> Value {
        serde_json::from_str(include_str!("../../tests/reference/noisy_quadratic.json")).unwrap()
    }

    fn numbers(value: &Value) -> Vec<f64> {
        let entries = value.as_array().unwrap().iter();
        entries.map(|entry| entry.as_f64().unwrap()).collect()
    }

    fn model(reference: &Value, name: &Value) -> NoisyQuadratic {
        let listed = &reference["models"][name.as_str().unwrap()];
        let column = |name: &str| numbers(&listed[name]);
        let (h, count, start) = (column("h"), column("count"), column("start"));
        let noise = column("noise");
        let directions = (0..h.len()).map(|i| Direction {
            eigenvalue: h[i],
            count: count[i],
            second_moment: start[i],
            squared_mean: 0.0,
            noise: noise[i],
        });
        NoisyQuadratic::new(directions.collect()).unwrap()
    }

    fn descent(case: &Value) -> Descent {
        Descent::preconditioned(case["power"].as_f64().unwrap_or(0.0))
            .with_momentum(case["momentum"].as_f64().unwrap())
    }

    #[track_caller]
    fn close(found: f64, expected: f64, relative: f64) {
        assert!(
            (found - expected).abs() <= relative * expected.abs(),
            "{found} instead of {expected}"
        );
    }

    /// S = S_min(1 + B_crit/B) through the smallest and the largest batch.
    fn critical_batch(model: &NoisyQuadratic, descent: Descent) -> f64 {
        let time = |batch| {
            model
                .optimum(PUBLISHED_TARGET, descent, batch)
                .unwrap()
                .time
        };
        let (small, large) = (time(1.0), time(1e9));
        small / large - 1.0
    }

    #[test]
    fn the_published_table_comes_out_to_the_step() {
        let table = |power| BATCHES.map(|batch| published_steps(power, batch).unwrap());
        assert_eq!(table(0.0), [1_507_367, 95_759, 10_609, 7447, 7276]);
        assert_eq!(table(0.5), [345_591, 21_587, 1366, 106, 85]);
        close(
            NoisyQuadratic::binned(10_000, 100).initial_loss(),
            4.702_496,
            1e-7,
        );
    }

    #[test]
    fn without_its_peculiarities_the_published_table_is_that_of_the_recursion() {
        let model = NoisyQuadratic::binned(10_000, 100);
        let reference = reference();
        let rates = log_rates(-5.0, 0.5, 100);
        let table = reference["table"].as_array().unwrap();
        assert_eq!(table.len(), 10);
        for row in table {
            let (power, batch) = (
                row["power"].as_f64().unwrap(),
                row["batch"].as_f64().unwrap(),
            );
            let best = model
                .best_steps(
                    PUBLISHED_TARGET,
                    Descent::preconditioned(power),
                    batch,
                    &rates,
                )
                .unwrap();
            assert_eq!(Some(best.steps), row["steps"].as_u64());
            close(best.rate, row["rate"].as_f64().unwrap(), 1e-14);
            if let Some(guarded) = row["guarded"].as_u64() {
                assert_eq!(published_steps(power, batch), Some(guarded - 1));
            }
        }
    }

    #[test]
    fn eigenvalues_are_binned_as_published() {
        let reference = reference();
        let expected = &reference["binned"];
        let (h, count) = (numbers(&expected["h"]), numbers(&expected["count"]));
        let model = NoisyQuadratic::binned(10_000, 100);
        assert_eq!(model.directions().len(), h.len());
        for (direction, (h, count)) in model.directions().iter().zip(h.iter().zip(count)) {
            close(direction.eigenvalue, *h, 1e-14);
            assert_eq!(direction.count, count);
        }
        // Powers of two fall on the edges: each has its own bin, and takes what lies above it.
        let found = NoisyQuadratic::binned(8, 4);
        let found = found.directions().iter().map(|d| (d.eigenvalue, d.count));
        let expected = [(1.0, 1.0), (0.5, 1.0), (0.25, 2.0), (0.125, 4.0)];
        for ((h, count), expected) in found.zip(expected) {
            close(h, expected.0, 1e-15);
            assert_eq!(count, expected.1);
        }
        for bins in [0, 1] {
            let one = NoisyQuadratic::binned(5, bins);
            assert_eq!(one.directions().len(), 1);
            assert_eq!(one.directions()[0].eigenvalue, 0.2);
        }
        assert_eq!(NoisyQuadratic::binned(0, 3).initial_loss(), 0.0);
    }

    #[test]
    fn losses_floors_and_first_crossings_are_those_of_the_recursion() {
        let reference = reference();
        let steps = numbers(&reference["steps"]);
        let targets = numbers(&reference["targets"]);
        let limit = reference["limit"].as_u64().unwrap();
        let (mut crossed, mut never) = (0, 0);
        for case in reference["curves"].as_array().unwrap() {
            let model = model(&reference, &case["model"]);
            let (rate, batch) = (
                case["rate"].as_f64().unwrap(),
                case["batch"].as_f64().unwrap(),
            );
            let descent = descent(case);
            for (&step, expected) in steps.iter().zip(numbers(&case["losses"])) {
                let found = model.loss_after(descent, rate, batch, step as u64);
                close(found, expected, 1e-9);
            }
            match case["floor"].as_f64() {
                Some(expected) => close(model.floor(descent, rate, batch).unwrap(), expected, 1e-9),
                None => assert_eq!(model.floor(descent, rate, batch), None),
            }
            for (&target, expected) in targets.iter().zip(case["first"].as_array().unwrap()) {
                let found = model.steps_to(target, descent, rate, batch);
                let found = found.filter(|&steps| steps <= limit);
                assert_eq!(found, expected.as_u64(), "target {target} of {case}");
                if let Some(steps) = found {
                    crossed += 1;
                    let time = model.time_to(target, descent, rate, batch).unwrap();
                    assert!(time <= steps as f64 && time >= steps as f64 - 1.0);
                } else {
                    never += 1;
                }
            }
        }
        assert!(crossed > 60 && never > 30, "{crossed}, {never}");
    }

    /// The curve is not monotone here: a search that assumed so would find a later step, or none.
    #[test]
    fn the_first_of_several_crossings_is_found() {
        let direction = |eigenvalue, second_moment, noise| Direction {
            eigenvalue,
            count: 1.0,
            second_moment,
            squared_mean: 0.0,
            noise,
        };
        let rising = direction(0.02, 0.0, 40.0);
        let falling = direction(1.0, 2.0, 0.0);
        let model = NoisyQuadratic::new(vec![rising, falling]).unwrap();
        let loss = |steps| model.loss_after(Descent::PLAIN, 0.3, 4.0, steps);
        let floor = model.floor(Descent::PLAIN, 0.3, 4.0).unwrap();
        let lowest = (0..500).map(loss).fold(f64::INFINITY, f64::min);
        assert!(lowest < 0.2 * floor);
        for target in [1.001 * lowest, 0.5 * (lowest + floor), 0.999 * floor] {
            let expected = (0..500).find(|&t| loss(t) <= target);
            assert!(expected.is_some());
            assert_eq!(model.steps_to(target, Descent::PLAIN, 0.3, 4.0), expected);
        }
        let found = model.steps_to(0.999 * lowest, Descent::PLAIN, 0.3, 4.0);
        assert_eq!(found, None);
    }

    /// An oscillation passes targets before it settles.
    #[test]
    fn momentum_crosses_where_the_oscillation_first_does() {
        let model = NoisyQuadratic::harmonic(3);
        let descent = Descent::PLAIN.with_momentum(0.95);
        let loss = |steps| model.loss_after(descent, 0.05, 1e3, steps);
        let rises = (0..300).filter(|&t| loss(t + 1) > loss(t)).count();
        assert!(rises > 50);
        for i in 1..300 {
            let target = 0.9 * 0.97_f64.powi(i);
            let expected = (0..2000).find(|&t| loss(t) <= target);
            let found = model.steps_to(target, descent, 0.05, 1e3);
            assert_eq!(found, expected, "target {target}");
        }
    }

    #[test]
    fn means_and_deviations_are_those_of_simulated_runs() {
        let reference = reference();
        for case in reference["simulated"].as_array().unwrap() {
            let drawn = model(&reference, &case["model"]);
            let model = if case["known"].as_bool().unwrap() {
                NoisyQuadratic::of_training(&vec![1.0; drawn.directions().len()])
            } else {
                drawn
            };
            let number = |name: &str| case[name].as_f64().unwrap();
            let (rate, batch) = (number("rate"), number("batch"));
            let steps = case["steps"].as_u64().unwrap();
            let mean = model.loss_after(descent(case), rate, batch, steps);
            let sd = model.deviation_after(descent(case), rate, batch, steps);
            for (found, name) in [(mean, "mean"), (sd, "sd")] {
                let error = number(&format!("{name}_error"));
                let expected = number(name);
                assert!(
                    (found - expected).abs() < 4.0 * error,
                    "{name} {found} instead of {expected}, of {case}"
                );
                // Tight enough to tell a known start from one that is drawn.
                assert!(error < 0.02 * expected);
            }
        }
    }

    #[test]
    fn no_rate_of_a_fine_grid_is_faster_than_the_optimum() {
        let reference = reference();
        let model = NoisyQuadratic::harmonic(20);
        for case in reference["optima"].as_array().unwrap() {
            let number = |name: &str| case[name].as_f64().unwrap();
            let best = model
                .optimum(number("target"), descent(case), number("batch"))
                .unwrap();
            let grid = number("time");
            assert!(best.time <= grid * (1.0 + 1e-12), "{best:?} for {case}");
            close(best.time, grid, 2e-3);
            // Two intervals of that grid.
            close(best.rate, number("rate"), 0.02);
            assert_eq!(best.steps, best.time.ceil() as u64);
        }
    }

    /// Predictions of Zhang et al. 2019: the best rate is proportional to the batch as long as steps
    /// are inversely so, and levels off at the largest stable one.
    #[test]
    fn the_best_rate_grows_with_small_batches_and_not_with_large_ones() {
        let model = NoisyQuadratic::binned(10_000, 100);
        let best = |batch| {
            model
                .optimum(PUBLISHED_TARGET, Descent::PLAIN, batch)
                .unwrap()
        };
        let (quarter, one, four) = (best(0.25), best(1.0), best(4.0));
        close(one.rate / quarter.rate, 4.0, 2e-3);
        close(four.rate / one.rate, 4.0, 2e-3);
        close(one.time / four.time, 4.0, 2e-3);
        let (large, larger) = (best(1e6), best(1e8));
        close(larger.rate, large.rate, 0.01);
        close(larger.time, large.time, 0.01);
        assert!(larger.rate < 2.0);
    }

    #[test]
    fn preconditioning_raises_the_critical_batch_and_so_does_momentum() {
        let model = NoisyQuadratic::binned(10_000, 100);
        let powers = [0.0, 0.25, 0.5, 0.75];
        let found = powers.map(|power| critical_batch(&model, Descent::preconditioned(power)));
        for pair in found.windows(2) {
            assert!(pair[1] > 2.0 * pair[0], "{found:?}");
        }
        // Momentum helps where batches are large, and only there.
        let heavy = Descent::PLAIN.with_momentum(0.9);
        let time = |descent, batch| model.optimum(0.1, descent, batch).unwrap().time;
        close(time(heavy, 4.0), time(Descent::PLAIN, 4.0), 0.02);
        assert!(time(heavy, 1e6) < 0.2 * time(Descent::PLAIN, 1e6));
    }

    #[test]
    fn no_method_takes_fewer_examples_than_there_is_information_in() {
        let reference = reference();
        for case in reference["fewest"].as_array().unwrap() {
            let model = model(&reference, &case["model"]);
            let target = case["target"].as_f64().unwrap();
            let fewest = model.fewest_examples(target);
            assert_eq!(Some(fewest.ceil() as u64), case["examples"].as_u64());
            close(
                model.fewest_examples_from_anywhere(target),
                20.0 / (2.0 * target),
                1e-14,
            );
            assert!(fewest < model.fewest_examples_from_anywhere(target));
            for power in [0.0, 0.5, 1.0] {
                for batch in [0.5, 8.0, 100.0] {
                    let best = model.optimum(target, Descent::preconditioned(power), batch);
                    assert!(best.unwrap().time * batch > fewest);
                }
            }
        }
        assert_eq!(NoisyQuadratic::harmonic(3).fewest_examples(1.0), 0.0);
        assert_eq!(
            NoisyQuadratic::harmonic(3).fewest_examples(0.0),
            f64::INFINITY
        );
        // 1 % below the line in the paper's figures.
        let published = NoisyQuadratic::binned(10_000, 100);
        close(published.fewest_examples_from_anywhere(0.01), 5e5, 1e-14);
        let share = published.fewest_examples(0.01) / 5e5;
        assert!(share > 0.989 && share < 0.99, "{share}");
    }

    /// All directions count, not 100 values of them.
    #[test]
    fn the_whole_spectrum_is_used_as_the_bins_are() {
        let whole = NoisyQuadratic::harmonic(10_000);
        let rate = 1.895_735_652_406_375_3;
        let steps = whole.steps_to(PUBLISHED_TARGET, Descent::PLAIN, rate, 16384.0);
        let steps = steps.unwrap();
        let loss = |steps| whole.loss_after(Descent::PLAIN, rate, 16384.0, steps);
        assert!(loss(steps) <= PUBLISHED_TARGET && loss(steps - 1) > PUBLISHED_TARGET);
        // Rounding eigenvalues down to bins of 10 % costs about half of that.
        let binned = NoisyQuadratic::binned(10_000, 100);
        let binned = binned.steps_to(PUBLISHED_TARGET, Descent::PLAIN, rate, 16384.0);
        close(steps as f64, binned.unwrap() as f64, 0.05);
    }

    #[test]
    fn without_noise_the_loss_is_a_power() {
        let one = NoisyQuadratic::harmonic(1);
        for momentum in [0.0, 1e-300] {
            let descent = Descent::PLAIN.with_momentum(momentum);
            let found = one.loss_after(descent, 0.25, f64::INFINITY, 50);
            close(found, 0.5 * 0.75_f64.powi(100), 1e-12);
            assert_eq!(one.steps_to(1e-3, descent, 0.25, f64::INFINITY), Some(11));
            // One step to the minimum, and never beyond 0.
            assert_eq!(one.steps_to(1e-9, descent, 1.0, f64::INFINITY), Some(1));
            assert_eq!(one.time_to(0.5, descent, 1.0, 1.0), Some(0.0));
        }
        assert_eq!(one.loss_after(Descent::PLAIN, 1.0, 8.0, 0), 0.5);
        assert_eq!(one.loss_after(Descent::PLAIN, 1.0, 8.0, 1), 1.0 / 16.0);
    }

    #[test]
    fn what_never_gets_there_says_so() {
        let model = NoisyQuadratic::harmonic(10);
        for momentum in [0.0, 0.9] {
            let descent = Descent::PLAIN.with_momentum(momentum);
            let largest = 2.0 * (1.0 + momentum);
            for (rate, batch) in [
                (1.01 * largest, 8.0),
                (largest, 8.0),
                (1.01 * largest, f64::INFINITY),
                (1e300, 1.0),
                (-0.1, 8.0),
                (-0.1, f64::INFINITY),
                (0.0, 8.0),
                (0.5, 1.0),
                (f64::NAN, 8.0),
                (f64::INFINITY, 8.0),
                (0.1, 0.0),
                (0.1, f64::NAN),
            ] {
                let found = model.steps_to(0.01, descent, rate, batch);
                assert_eq!(found, None, "rate {rate}, batch {batch}");
                assert_eq!(model.best_steps(0.01, descent, batch, &[rate]), None);
            }
            assert_eq!(model.steps_to(f64::NAN, descent, 0.1, 8.0), None);
            assert_eq!(model.steps_to(0.0, descent, 0.1, 8.0), None);
            assert_eq!(model.steps_to(-1.0, descent, 0.1, 8.0), None);
            assert_eq!(model.steps_to(9.0, descent, 0.1, 8.0), Some(0));
            assert_eq!(model.optimum(f64::NAN, descent, 8.0), None);
            assert_eq!(model.optimum(0.0, descent, 8.0), None);
            assert_eq!(model.optimum(9.0, descent, 8.0).unwrap().steps, 0);
            let without_noise = model.optimum(0.01, descent, f64::INFINITY).unwrap();
            assert!(without_noise.steps < 60, "{without_noise:?}");
            // Too large for a number, but not for an answer.
            assert_eq!(model.loss_after(descent, 9.0, 8.0, 1 << 40), f64::INFINITY);
        }
        for momentum in [-0.1, 1.0, f64::NAN] {
            let descent = Descent::PLAIN.with_momentum(momentum);
            assert_eq!(model.steps_to(0.1, descent, 0.1, 8.0), None);
            assert_eq!(model.floor(descent, 0.1, 8.0), None);
            assert_eq!(model.optimum(0.1, descent, 8.0), None);
        }
        assert_eq!(model.best_steps(0.01, Descent::PLAIN, 8.0, &[]), None);
        // 1/(2e-12) steps and more: found, though no one could walk there.
        let slow = model.steps_to(0.1, Descent::PLAIN, 1e-12, 8.0).unwrap();
        assert!(slow > 1_000_000_000_000);
    }

    #[test]
    fn directions_that_no_quadratic_has_are_refused() {
        let good = Direction {
            eigenvalue: 1.0,
            count: 1.0,
            second_moment: 2.0,
            squared_mean: 1.0,
            noise: 0.0,
        };
        assert!(NoisyQuadratic::new(vec![good]).is_ok());
        let infinite = f64::INFINITY;
        let wrong = [
            (
                "eigenvalue",
                0.0,
                Direction {
                    eigenvalue: 0.0,
                    ..good
                },
            ),
            (
                "count",
                -1.0,
                Direction {
                    count: -1.0,
                    ..good
                },
            ),
            (
                "second_moment",
                infinite,
                Direction {
                    second_moment: infinite,
                    ..good
                },
            ),
            (
                "squared_mean",
                3.0,
                Direction {
                    squared_mean: 3.0,
                    ..good
                },
            ),
            (
                "noise",
                -2.0,
                Direction {
                    noise: -2.0,
                    ..good
                },
            ),
        ];
        for (field, value, bad) in wrong {
            let error = NoisyQuadratic::new(vec![good, bad]).unwrap_err();
            assert_eq!(
                (error.direction, error.field, error.found),
                (1, field, value)
            );
        }
        let mut bad = good;
        bad.noise = f64::NAN;
        assert_eq!(
            NoisyQuadratic::new(vec![bad]).unwrap_err().to_string(),
            "direction 0 of the quadratic: noise should be at least 0 and finite, found NaN"
        );
    }

    #[test]
    fn rates_of_a_log_grid_include_both_ends() {
        let rates = log_rates(-2.0, 1.0, 4);
        for (found, expected) in rates.iter().zip([0.01, 0.1, 1.0, 10.0]) {
            close(*found, expected, 1e-14);
        }
        assert_eq!(log_rates(0.0, 3.0, 1), [1.0]);
        assert!(log_rates(0.0, 3.0, 0).is_empty());
    }
}
