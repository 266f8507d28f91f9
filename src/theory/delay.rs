//! Descent with gradients that are late: stability, the best rate and the noise floor, exactly.
//!
//! On a quadratic of curvature h, gradients of parameters that are tau updates old, at rate a and with
//! heavy ball of momentum m, give x_(t+1) = x_t + m (x_t - x_(t-1)) - a h x_(t-tau). Everything depends
//! on the product y = a h, which has no unit, on tau and on m. Powers z^t solve the recursion where
//!
//! z^(tau-1) (z - 1)(z - m) = -y,
//!
//! and the spectral radius, the largest |z|, is the factor that an error is multiplied by at each update
//! in the long run. All of it is known in closed form but for one root of one monotone function:
//!
//! - On a circle |z| = r the left side G grows in modulus with the angle from the real axis, and roots
//!   cross the circle where the phase of G is an odd multiple of pi, outwards as y grows where the phase
//!   rises with the angle. So the first root to be found is the one of the smallest angle.
//! - While y is at most y* = r*^(tau-1) (1 - r*)(r* - m) that is a real root in [r*, 1), where r* is the
//!   larger root of (tau+1) r^2 - tau (1+m) r + (tau-1) m = 0: it falls from 1 to r* as y grows to y*,
//!   which is the best: no other y has so small a radius (critical damping). Without momentum
//!   r* = tau/(tau+1) and y* = tau^tau/(tau+1)^(tau+1).
//! - Beyond, it is a pair r e^(+-i theta), 0 < theta < pi/(tau+1), with
//!   2 r sin((tau+1) theta) = (1+m) s + ((1-m)^2 s^2 + 4 m sin^2 theta)^(1/2), s = sin(tau theta);
//!   y grows with theta, and r with it.
//! - The pair reaches the unit circle at the limit of stability; without momentum at
//!   theta = pi/(2 tau + 1) and y = 2 sin(pi/(2(2 tau + 1))): 2, 1, 0.618 for tau = 0, 1, 2.
//!
//! With noise of variance v in the gradient the parameters wander about the minimum with the variance
//! a^2 v V(y). Without momentum their autocovariances c_0 .. c_(tau+1) are a cosine of the lag, because
//! c_k - c_(k-1) = -y c_(tau+1-k), which gives, with b = asin(y/2),
//!
//! V = (1 + sin((2 tau + 1) b))/(2 y cos b cos((2 tau + 1) b)),
//!
//! 1/(y (2 - y)) for tau = 0 and (1 + y)/(y (1 - y)(2 + y)) for tau = 1. With momentum V comes from the
//! partial correlations k_j of the recursion, V = prod 1/(1 - k_j^2).
//!
//! The limit without momentum is classical (Levin and May 1976, Theoretical Population Biology 9); the
//! rest is derived here and checked against numpy.

use std::f64::consts::{FRAC_PI_2, PI};

/// Descent with a fixed delay; see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delayed {
    /// tau: by how many updates the parameters of a gradient are behind those that it is added to.
    pub delay: u32,
    /// m of heavy ball, in [0, 1).
    pub momentum: f64,
}

/// A rate, and how fast descent is at it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Convergence {
    /// The rate; times the curvature where no curvature was given.
    pub rate: f64,
    /// What the error is multiplied by at each update in the long run.
    pub radius: f64,
}

/// The place in [low, high] from which on `beyond` holds, to the last digit.
fn threshold(mut low: f64, mut high: f64, beyond: impl Fn(f64) -> bool) -> f64 {
    loop {
        let middle = low + 0.5 * (high - low);
        if middle <= low || middle >= high {
            return middle;
        }
        if beyond(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
}

impl Delayed {
    /// Plain descent with this delay, in updates.
    pub fn plain(delay: u32) -> Self {
        Self {
            delay,
            momentum: 0.0,
        }
    }

    /// The same with momentum.
    pub fn with_momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    fn tau(self) -> f64 {
        f64::from(self.delay)
    }

    /// The largest y = rate x curvature below which an error shrinks; it shrinks for all y in
    /// (0, limit). Without momentum 2 sin(pi/(2(2 tau + 1))); without delay 2 (1 + m).
    ///
    /// ```
    /// # use batchlab::theory::delay::Delayed;
    /// assert_eq!(Delayed::plain(0).limit(), 2.0);
    /// assert!((Delayed::plain(1).limit() - 1.0).abs() < 1e-15);
    /// // Momentum widens the limit of fresh gradients and narrows that of late ones.
    /// assert_eq!(Delayed::plain(0).with_momentum(0.5).limit(), 3.0);
    /// assert!((Delayed::plain(1).with_momentum(0.5).limit() - 0.5).abs() < 1e-15);
    /// ```
    pub fn limit(self) -> f64 {
        let (tau, m) = (self.tau(), self.momentum);
        if self.delay == 0 {
            return 2.0 * (1.0 + m);
        }
        if m == 0.0 {
            return 2.0 * (FRAC_PI_2 / (2.0 * tau + 1.0)).sin();
        }
        // The phase of G on the unit circle rises with the angle; here it comes to pi.
        let angle = threshold(0.0, PI, |angle| {
            (tau - 0.5) * angle + angle.sin().atan2(angle.cos() - m) > FRAC_PI_2
        });
        let half = (0.5 * angle).sin();
        2.0 * half * ((1.0 - m).powi(2) + 4.0 * m * half * half).sqrt()
    }

    /// The y = rate x curvature with the smallest spectral radius, and that radius.
    ///
    /// ```
    /// # use batchlab::theory::delay::Delayed;
    /// let best = Delayed::plain(1).best();
    /// assert_eq!((best.rate, best.radius), (0.25, 0.5));
    /// ```
    pub fn best(self) -> Convergence {
        let (tau, m) = (self.tau(), self.momentum);
        let root = (tau * (1.0 - m)).mul_add(tau * (1.0 - m), 4.0 * m).sqrt();
        let radius = (tau * (1.0 + m) + root) / (2.0 * (tau + 1.0));
        let rate = if m == 0.0 {
            (tau * radius.ln()).exp().max(f64::from(self.delay == 0)) * (1.0 - radius)
        } else {
            ((tau - 1.0) * radius.ln()).exp() * (1.0 - radius) * (radius - m)
        };
        Convergence { rate, radius }
    }

    /// The spectral radius at y = rate x curvature: below 1 for y in (0, [`limit`](Self::limit)), 1 at
    /// 0, above 1 for negative y.
    ///
    /// ```
    /// # use batchlab::theory::delay::Delayed;
    /// assert!((Delayed::plain(0).spectral_radius(0.3) - 0.7).abs() < 1e-15);
    /// assert!((Delayed::plain(1).spectral_radius(1.21) - 1.1).abs() < 1e-15);
    /// ```
    pub fn spectral_radius(self, y: f64) -> f64 {
        let (tau, m) = (self.tau(), self.momentum);
        if y.is_nan() || m.is_nan() {
            return f64::NAN;
        }
        if y.is_infinite() {
            return f64::INFINITY;
        }
        if y == 0.0 {
            return 1.0;
        }
        let log = y.abs().ln();
        if y < 0.0 {
            // A real root 1 + u.
            let log_g = |u: f64| (tau - 1.0) * u.ln_1p() + u.ln() + (u + (1.0 - m)).ln();
            return 1.0 + threshold(0.0, -y / (1.0 - m), |u| log_g(u) > log);
        }
        if self.delay == 0 {
            let sum = 1.0 + m - y;
            let discriminant = sum * sum - 4.0 * m;
            return if discriminant < 0.0 {
                m.sqrt()
            } else {
                0.5 * (sum.abs() + discriminant.sqrt())
            };
        }
        let best = self.best();
        if y <= best.rate {
            // A real root 1 - u.
            let log_g = |u: f64| (tau - 1.0) * (-u).ln_1p() + u.ln() + (1.0 - m - u).ln();
            return 1.0 - threshold(0.0, 1.0 - best.radius, |u| log_g(u) > log);
        }
        let pair = |angle: f64| {
            let (along, across) = ((tau * angle).sin(), angle.sin());
            let root = ((1.0 - m) * along).hypot(2.0 * m.sqrt() * across);
            let radius = ((1.0 + m) * along + root) / (2.0 * ((tau + 1.0) * angle).sin());
            let distance = |to: f64| (radius * across).hypot(radius * angle.cos() - to);
            let log_g = (tau - 1.0) * radius.ln() + distance(1.0).ln() + distance(m).ln();
            (radius, log_g)
        };
        pair(threshold(0.0, PI / (tau + 1.0), |angle| {
            pair(angle).1 > log
        }))
        .0
    }

    /// The rate with the smallest spectral radius over all curvatures in [least, largest], both above 0.
    ///
    /// The radius falls and then rises with the rate, so the worst curvature is one of the two ends; the
    /// rate makes them equal.
    ///
    /// ```
    /// # use batchlab::theory::delay::Delayed;
    /// // 2/(h + H) without delay.
    /// let best = Delayed::plain(0).best_rate(1.0, 9.0);
    /// assert!((best.rate - 0.2).abs() < 1e-15 && (best.radius - 0.8).abs() < 1e-15);
    /// ```
    pub fn best_rate(self, least: f64, largest: f64) -> Convergence {
        let radius = |rate: f64| {
            let ends = [least, largest].map(|h| self.spectral_radius(rate * h));
            (ends[0], ends[1])
        };
        let low = self.best().rate / largest;
        let rate = if least < largest {
            threshold(low, self.limit() / largest, |rate| {
                let (of_least, of_largest) = radius(rate);
                of_largest > of_least
            })
        } else {
            low
        };
        let (of_least, of_largest) = radius(rate);
        Convergence {
            rate,
            radius: of_least.max(of_largest),
        }
    }

    /// V of the [module](self): the variance of the parameters about the minimum, in units of the
    /// squared rate times the variance of a gradient (that of one example over the batch). Infinite
    /// outside of (0, limit). The expected loss in excess is h/2 times the variance.
    ///
    /// ```
    /// # use batchlab::theory::delay::Delayed;
    /// assert!((Delayed::plain(0).stationary_variance(0.5) - 1.0 / (0.5 * 1.5)).abs() < 1e-15);
    /// ```
    pub fn stationary_variance(self, y: f64) -> f64 {
        let (tau, m) = (self.tau(), self.momentum);
        if y.is_nan() || m.is_nan() {
            return f64::NAN;
        }
        if !(y > 0.0 && y < self.limit()) {
            return f64::INFINITY;
        }
        if m == 0.0 {
            let half = (0.5 * y).asin();
            let wide = (2.0 * tau + 1.0) * half;
            return (1.0 + wide.sin()) / (2.0 * y * half.cos() * wide.cos());
        }
        if self.delay == 0 {
            return (1.0 + m) / (y * (1.0 - m) * (2.0 * (1.0 + m) - y));
        }
        let mut coefficients = vec![0.0; (self.delay as usize + 1).max(2)];
        coefficients[0] = 1.0 + m;
        coefficients[1] = -m;
        coefficients[self.delay as usize] -= y;
        variance_of_recursion(coefficients)
    }
}

/// Variance of x_t = sum_i c_i x_(t-i) + noise of variance 1, c from lag 1 on: the recursion of Levinson
/// backwards, from all coefficients to the partial correlations.
fn variance_of_recursion(mut coefficients: Vec<f64>) -> f64 {
    let mut variance = 1.0;
    while let Some(partial) = coefficients.pop() {
        let left = 1.0 - partial * partial;
        if left <= 0.0 {
            return f64::INFINITY;
        }
        variance /= left;
        let reversed: Vec<f64> = coefficients.iter().rev().copied().collect();
        for (c, r) in coefficients.iter_mut().zip(reversed) {
            *c = (*c + partial * r) / left;
        }
    }
    variance
}

/// In which order the stages of a layer pipeline do their work. A stage holds a share of the layers; a
/// micro-batch goes forward through all stages and backward through all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineSchedule {
    /// All M micro-batches of an update go forward, then backward, then the pipeline is empty and all
    /// stages update: no delay, and a bubble. GPipe (Huang et al. 2019, arXiv 1811.06965).
    Flush,
    /// One forward and one backward in turn, a slot each, backward first where both can be done, at most
    /// S - s micro-batches under way from stage s on; each stage updates after each backward, which uses
    /// the parameters that its forward used. PipeDream (Narayanan et al. 2019) with weight stashing.
    OneForwardOneBackward,
    /// In each slot every stage does the forward of one micro-batch and then the backward of another, and
    /// updates. Pipelined backpropagation (Petrowski et al. 1993; Kosson et al. 2021, arXiv 2003.11666).
    BothEachSlot,
}

impl PipelineSchedule {
    /// By how many updates the gradient of each stage is late once the pipeline is full, from the stage
    /// next to the input to the one next to the loss: with S stages 0, S - 1 - s or 2 (S - 1 - s) for
    /// s = 0 .. S - 1.
    ///
    /// ```
    /// # use batchlab::theory::delay::PipelineSchedule;
    /// assert_eq!(PipelineSchedule::OneForwardOneBackward.delays(4), [3, 2, 1, 0]);
    /// assert_eq!(PipelineSchedule::BothEachSlot.delays(3), [4, 2, 0]);
    /// ```
    pub fn delays(self, stages: u32) -> Vec<u32> {
        let slots = match self {
            Self::Flush => 0,
            Self::OneForwardOneBackward => 1,
            Self::BothEachSlot => 2,
        };
        (0..stages).rev().map(|later| slots * later).collect()
    }

    /// The share of each stage's time in which it has nothing to do, with equal stages: (S - 1)/(M + S - 1)
    /// for M micro-batches between two flushes, and without flushes 0 once the pipeline is full.
    ///
    /// ```
    /// # use batchlab::theory::delay::PipelineSchedule;
    /// assert_eq!(PipelineSchedule::Flush.bubble(4, 9), 0.25);
    /// assert_eq!(PipelineSchedule::OneForwardOneBackward.bubble(4, 9), 0.0);
    /// ```
    pub fn bubble(self, stages: u32, micro_batches: u64) -> f64 {
        match self {
            Self::Flush => {
                let idle = f64::from(stages) - 1.0;
                idle / (micro_batches as f64 + idle)
            }
            Self::OneForwardOneBackward | Self::BothEachSlot => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[track_caller]
    fn close(found: f64, expected: f64, relative: f64) {
        assert!(
            (found - expected).abs() <= relative * expected.abs(),
            "{found} instead of {expected}"
        );
    }

    fn reference() -> Value {
        serde_json::from_str(include_str!("../../tests/reference/delay.json")).unwrap()
    }

    fn rows<'a>(reference: &'a Value, name: &str) -> impl Iterator<Item = (Delayed, f64, f64)> {
        let rows: &'a Vec<Value> = reference[name].as_array().unwrap();
        rows.iter().map(|row| {
            let delayed = Delayed {
                delay: u32::try_from(row["delay"].as_u64().unwrap()).unwrap(),
                momentum: row["momentum"].as_f64().unwrap(),
            };
            let y = row["y"].as_f64().unwrap_or(f64::NAN);
            (delayed, y, row["value"].as_f64().unwrap())
        })
    }

    /// Whether the recursion itself, from x = 1 for all times up to 0, grows a thousandfold before it
    /// shrinks to a thousandth.
    fn grows(delayed: Delayed, y: f64) -> bool {
        let delay = delayed.delay as usize;
        let mut x = std::collections::VecDeque::from(vec![1.0; delay.max(1) + 1]);
        for _ in 0..10_000_000 {
            let last = x.len() - 1;
            let step = delayed.momentum * (x[last] - x[last - 1]) - y * x[last - delay];
            x.push_back(x[last] + step);
            x.pop_front();
            let size = x.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
            if !(1e-3..1e3).contains(&size) {
                return size > 1.0;
            }
        }
        panic!("neither grows nor shrinks");
    }

    #[test]
    fn the_recursion_converges_just_below_the_limit_and_diverges_just_above() {
        for delay in 0..=20 {
            for momentum in [0.0, 0.3, 0.9] {
                let delayed = Delayed::plain(delay).with_momentum(momentum);
                let limit = delayed.limit();
                assert!(!grows(delayed, 0.999 * limit), "{delayed:?}");
                assert!(grows(delayed, 1.001 * limit), "{delayed:?}");
            }
        }
    }

    #[test]
    fn the_first_limits_are_two_one_and_the_golden_section() {
        let limits = [2.0, 1.0, (5.0_f64.sqrt() - 1.0) / 2.0];
        for (delay, limit) in (0..).zip(limits) {
            close(Delayed::plain(delay).limit(), limit, 1e-15);
        }
        // z^2 - (1 + m) z + m + y: the product of the roots is m + y.
        for momentum in [0.1, 0.5, 0.99] {
            let delayed = Delayed::plain(1).with_momentum(momentum);
            close(delayed.limit(), 1.0 - momentum, 1e-13);
        }
        // Momentum that vanishes leaves the plain limit.
        let nearly = Delayed::plain(7).with_momentum(1e-14);
        close(nearly.limit(), Delayed::plain(7).limit(), 1e-13);
    }

    #[test]
    fn limits_are_those_of_the_roots_that_numpy_finds() {
        for (delayed, _, limit) in rows(&reference(), "limit") {
            // numpy's are found by bisection on its roots.
            close(delayed.limit(), limit, 1e-9);
        }
    }

    #[test]
    fn spectral_radii_are_those_of_the_roots_that_numpy_finds() {
        let reference = reference();
        assert!(rows(&reference, "radius").count() > 1000);
        for (delayed, y, radius) in rows(&reference, "radius") {
            close(delayed.spectral_radius(y), radius, 1e-11);
        }
        // Where two roots meet numpy has half of the digits.
        for (delayed, y, radius) in rows(&reference, "double") {
            let best = delayed.best();
            close(best.rate, y, 1e-12);
            close(best.radius, radius, 1e-12);
            close(delayed.spectral_radius(best.rate), radius, 1e-7);
        }
    }

    #[test]
    fn at_the_limit_the_radius_is_one() {
        for delay in [0, 1, 2, 10, 1000, 1_000_000] {
            for momentum in [0.0, 0.5, 0.99] {
                let delayed = Delayed::plain(delay).with_momentum(momentum);
                close(delayed.spectral_radius(delayed.limit()), 1.0, 1e-12);
                close(delayed.spectral_radius(0.0), 1.0, 0.0);
                assert!(delayed.spectral_radius(-1e-3) > 1.0);
            }
        }
        assert!(Delayed::plain(3).spectral_radius(f64::NAN).is_nan());
        assert_eq!(
            Delayed::plain(3).spectral_radius(f64::INFINITY),
            f64::INFINITY
        );
    }

    #[test]
    fn the_best_rate_is_critical_damping_and_no_other_is_faster() {
        for delay in 0..=20 {
            let tau = f64::from(delay);
            let best = Delayed::plain(delay).best();
            close(
                best.rate,
                tau.powf(tau) / (tau + 1.0).powf(tau + 1.0),
                1e-13,
            );
            close(best.radius, tau / (tau + 1.0), 1e-15);
            for momentum in [0.0, 0.2, 0.9] {
                let delayed = Delayed::plain(delay).with_momentum(momentum);
                let best = delayed.best();
                for factor in [0.2, 0.9, 0.999, 1.001, 1.1, 3.0] {
                    let radius = delayed.spectral_radius(factor * best.rate);
                    assert!(
                        radius >= best.radius * (1.0 - 1e-15),
                        "{delayed:?} {factor}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_radius_falls_to_the_best_rate_and_rises_from_there() {
        for delayed in [Delayed::plain(4), Delayed::plain(4).with_momentum(0.8)] {
            let best = delayed.best().rate;
            let radius: Vec<f64> = (0..400)
                .map(|i| delayed.spectral_radius(best * f64::from(i) / 100.0))
                .collect();
            assert!(radius[..=100].is_sorted_by(|a, b| a > b));
            assert!(radius[100..].is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn the_best_rate_for_a_range_of_curvatures_is_better_than_its_neighbours() {
        for delayed in [
            Delayed::plain(1),
            Delayed::plain(5),
            Delayed::plain(5).with_momentum(0.5),
        ] {
            let worst = |rate: f64| {
                (0..=100)
                    .map(|i| delayed.spectral_radius(rate * (0.1 + 0.019 * f64::from(i))))
                    .fold(0.0, f64::max)
            };
            let best = delayed.best_rate(0.1, 2.0);
            close(worst(best.rate), best.radius, 1e-12);
            assert!(worst(0.99 * best.rate) > best.radius);
            assert!(worst(1.01 * best.rate) > best.radius);
            let one = delayed.best_rate(2.0, 2.0);
            close(one.rate, delayed.best().rate / 2.0, 1e-15);
        }
    }

    #[test]
    fn stationary_variances_are_those_of_the_autocovariances_that_numpy_solves_for() {
        let reference = reference();
        assert!(rows(&reference, "variance").count() > 100);
        for (delayed, y, variance) in rows(&reference, "variance") {
            close(delayed.stationary_variance(y), variance, 1e-9);
        }
    }

    #[test]
    fn closed_forms_of_the_variance_are_those_of_the_partial_correlations() {
        for delay in 0..=30 {
            let delayed = Delayed::plain(delay);
            for share in [0.01, 0.3, 0.7, 0.99] {
                let y = share * delayed.limit();
                let mut coefficients = vec![0.0; delay as usize + 1];
                coefficients[0] = 1.0;
                coefficients[delay as usize] -= y;
                let variance = variance_of_recursion(coefficients);
                close(delayed.stationary_variance(y), variance, 1e-9);
            }
            let limit = delayed.limit();
            assert_eq!(delayed.stationary_variance(limit), f64::INFINITY);
            assert_eq!(delayed.stationary_variance(-0.1), f64::INFINITY);
        }
        let y = 0.4;
        let one = (1.0 + y) / (y * (1.0 - y) * (2.0 + y));
        close(Delayed::plain(1).stationary_variance(y), one, 1e-14);
    }

    #[test]
    fn simulated_noise_has_the_stationary_variance() {
        let delayed = Delayed::plain(3).with_momentum(0.4);
        let y = 0.5 * delayed.limit();
        let mut stream = crate::rng::Stream::new(3, "late-noise", 0);
        let mut x = vec![0.0; 4];
        let mut squares = crate::math::statistics::Moments::default();
        for _ in 0..400_000 {
            let last = x.len() - 1;
            let step = 0.4 * (x[last] - x[last - 1]) - y * x[last - 3] + stream.normal();
            x.push(x[last] + step);
        }
        // Means of long stretches are nearly independent.
        for stretch in x[1000..].chunks_exact(1000) {
            squares.push(stretch.iter().map(|x| x * x).sum::<f64>() / 1000.0);
        }
        let error = squares.standard_deviation().unwrap() / (squares.n() as f64).sqrt();
        let expected = delayed.stationary_variance(y);
        assert!((squares.mean().unwrap() - expected).abs() < 4.0 * error);
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Pass {
        Forward,
        Backward,
    }

    /// Slot, stage, pass, micro-batch.
    type Event = (u32, u32, Pass, usize);

    fn slot(events: &[Event], stage: u32, pass: Pass, batch: usize) -> Option<u32> {
        let found = events
            .iter()
            .find(|e| (e.1, e.2, e.3) == (stage, pass, batch));
        found.map(|e| e.0)
    }

    /// One pass per slot and stage, each as soon as what it needs was done in an earlier slot, by the
    /// rule of PipeDream.
    fn one_forward_one_backward(stages: u32, slots: u32) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let mut done = vec![(0, 0); stages as usize];
        for now in 0..slots {
            let before = events.clone();
            for stage in 0..stages {
                let (forward, backward) = done[stage as usize];
                let ready = |at: Option<u32>| at.is_some_and(|at| at < now);
                let last = stage + 1 == stages;
                let can_backward = if last {
                    ready(slot(&before, stage, Pass::Forward, backward))
                } else {
                    ready(slot(&before, stage + 1, Pass::Backward, backward))
                };
                let under_way = forward - backward < (stages - stage) as usize;
                let can_forward = under_way
                    && (stage == 0 || ready(slot(&before, stage - 1, Pass::Forward, forward)));
                if can_backward {
                    events.push((now, stage, Pass::Backward, backward));
                    done[stage as usize].1 += 1;
                } else if can_forward {
                    events.push((now, stage, Pass::Forward, forward));
                    done[stage as usize].0 += 1;
                }
            }
        }
        events
    }

    /// Backward passes at a stage between the forward and the backward pass of one micro-batch there:
    /// the updates that its gradient is late.
    fn late(events: &[Event], stage: u32, batch: usize) -> u32 {
        let place = |pass| {
            let found = events
                .iter()
                .position(|e| (e.1, e.2, e.3) == (stage, pass, batch));
            found.unwrap()
        };
        let between = &events[place(Pass::Forward)..place(Pass::Backward)];
        let updates = between
            .iter()
            .filter(|e| (e.1, e.2) == (stage, Pass::Backward));
        updates.count() as u32
    }

    #[test]
    fn the_delays_of_one_forward_one_backward_follow_from_its_events() {
        for stages in 1..=6 {
            let events = one_forward_one_backward(stages, 80);
            let delays = PipelineSchedule::OneForwardOneBackward.delays(stages);
            for stage in 0..stages {
                for batch in 10..15 {
                    let late = late(&events, stage, batch);
                    assert_eq!(late, delays[stage as usize], "stage {stage} of {stages}");
                }
                // A full pipeline has no bubble.
                let busy = events
                    .iter()
                    .filter(|e| e.1 == stage && (20..60).contains(&e.0));
                assert_eq!(busy.count(), 40);
            }
        }
    }

    #[test]
    fn the_delays_of_both_passes_each_slot_follow_from_its_events() {
        for stages in 1..=6 {
            let mut events: Vec<Event> = Vec::new();
            for batch in 0..40_usize {
                for stage in 0..stages {
                    let there = batch as u32 + stage;
                    events.push((there, stage, Pass::Forward, batch));
                    let back = there + 2 * (stages - 1 - stage);
                    events.push((back, stage, Pass::Backward, batch));
                }
            }
            // In a slot the forward pass comes first.
            events.sort_by_key(|e| (e.0, e.2 == Pass::Backward));
            for stage in 0..stages {
                // What a stage needs was done a slot earlier.
                if stage > 0 {
                    let [here, before] =
                        [stage, stage - 1].map(|s| slot(&events, s, Pass::Forward, 20).unwrap());
                    assert_eq!(here, before + 1);
                    let [here, before] =
                        [stage - 1, stage].map(|s| slot(&events, s, Pass::Backward, 20).unwrap());
                    assert_eq!(here, before + 1);
                }
                let delays = PipelineSchedule::BothEachSlot.delays(stages);
                assert_eq!(late(&events, stage, 20), delays[stage as usize]);
            }
        }
    }

    #[test]
    fn the_bubble_of_a_flush_follows_from_its_events() {
        for (stages, batches) in [(1, 4), (3, 1), (4, 9), (8, 32)] {
            // Forward in slots 0 .. M + S - 1, backward in as many after them.
            let end = batches + stages - 1;
            let mut busy = 0;
            for slot in 0..2 * end {
                let back = slot >= end;
                for stage in 0..stages {
                    let from = if back {
                        end + stages - 1 - stage
                    } else {
                        stage
                    };
                    busy += u32::from((from..from + batches).contains(&slot));
                }
            }
            let idle = 1.0 - f64::from(busy) / f64::from(2 * end * stages);
            let bubble = PipelineSchedule::Flush.bubble(stages, u64::from(batches));
            assert!((bubble - idle).abs() < 1e-15);
            assert_eq!(
                PipelineSchedule::Flush.delays(stages),
                vec![0; stages as usize]
            );
        }
    }
}
