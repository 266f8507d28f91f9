//! What the noise of the gradient says about batch and rate, on a quadratic.
//!
//! G is the expected gradient, H the Hessian, Sigma the covariance of the gradient of one example.
//! A step of rate eps along the mean gradient of B examples lowers a quadratic in expectation by
//! eps |G|^2 - eps^2 (G'HG + tr(H Sigma)/B)/2; all laws here follow from that. McCandlish et al. 2018
//! (arXiv 1812.06162), section 2.2. Noise scales are in examples, and rates in units of the
//! parameters over the gradient. On a loss that is not quadratic they hold as far as its second
//! derivative does: a real step is often best well below `largest_rate`.

/// B_simple = tr(Sigma)/|G|^2, the noise scale where H is a multiple of the identity.
pub fn simple_noise_scale(tr_sigma: f64, squared_gradient: f64) -> f64 {
    tr_sigma / squared_gradient
}

/// B_noise = tr(H Sigma)/(G'HG). Negative or infinite where G'HG is not positive: the quadratic then
/// has no lowest point along G, and the laws say nothing.
pub fn hessian_noise_scale(tr_h_sigma: f64, ghg: f64) -> f64 {
    tr_h_sigma / ghg
}

/// eps_max = |G|^2/(G'HG), the best rate without noise: the lowest point along G.
pub fn largest_rate(squared_gradient: f64, ghg: f64) -> f64 {
    squared_gradient / ghg
}

/// eps_opt(B) = eps_max/(1 + B_noise/B), the best rate with batches of B examples.
///
/// [`scaled_rate_saturating`](super::learning_rate::scaled_rate_saturating) is the same law with
/// eps_max known through a rate that suits a base batch.
///
/// ```
/// # use batchlab::theory::critical::best_rate;
/// assert_eq!(best_rate(2.0, 100.0, 100.0), 1.0);
/// ```
pub fn best_rate(largest_rate: f64, noise_scale: f64, batch: f64) -> f64 {
    largest_rate / (1.0 + noise_scale / batch)
}

/// dL_max = |G|^4/(2 G'HG), the decrease of the loss at the best rate without noise.
pub fn largest_decrease(squared_gradient: f64, ghg: f64) -> f64 {
    0.5 * squared_gradient * (squared_gradient / ghg)
}

/// dL_opt(B) = dL_max/(1 + B_noise/B), the expected decrease at the best rate for B: half of the
/// largest at B = B_noise.
pub fn best_decrease(largest_decrease: f64, noise_scale: f64, batch: f64) -> f64 {
    largest_decrease / (1.0 + noise_scale / batch)
}

/// The four numbers that the laws take, at one point of a loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientStatistics {
    /// |G|^2.
    pub squared_gradient: f64,
    /// G'HG.
    pub ghg: f64,
    /// tr(Sigma).
    pub tr_sigma: f64,
    /// tr(H Sigma).
    pub tr_h_sigma: f64,
}

impl GradientStatistics {
    /// The noisy quadratic L = sum h_i theta_i^2/2 with Sigma = diag(h): |G|^2 = sum h_i^2 theta_i^2,
    /// G'HG = sum h_i^3 theta_i^2, tr(Sigma) = sum h_i, tr(H Sigma) = sum h_i^2. Zhang et al. 2019
    /// (arXiv 1907.04164), section 3. The longer of the two slices counts as far as the shorter goes.
    ///
    /// ```
    /// # use batchlab::theory::critical::GradientStatistics;
    /// let h: Vec<f64> = (1..=10_000).map(|i| 1.0 / f64::from(i)).collect();
    /// let start = GradientStatistics::noisy_quadratic(&h, &vec![1.0; h.len()]);
    /// assert!((start.tr_sigma / start.squared_gradient - 5.950_513).abs() < 1e-6);
    /// ```
    pub fn noisy_quadratic(eigenvalues: &[f64], theta: &[f64]) -> Self {
        let mut sums = Self {
            squared_gradient: 0.0,
            ghg: 0.0,
            tr_sigma: 0.0,
            tr_h_sigma: 0.0,
        };
        for (h, t) in eigenvalues.iter().zip(theta) {
            sums.squared_gradient += (h * t).powi(2);
            sums.ghg += h * (h * t).powi(2);
            sums.tr_sigma += h;
            sums.tr_h_sigma += h * h;
        }
        sums
    }

    /// Expected decrease of the loss by one step of this rate with batches of this size, exact on a
    /// quadratic: eps |G|^2 - eps^2 (G'HG + tr(H Sigma)/B)/2. Negative where the step raises the
    /// loss, from twice the best rate on.
    pub fn decrease(&self, rate: f64, batch: f64) -> f64 {
        let curvature = self.ghg + self.tr_h_sigma / batch;
        rate * self.squared_gradient - 0.5 * rate * rate * curvature
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::learning_rate::scaled_rate_saturating;

    #[track_caller]
    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "{found} instead of {expected}"
        );
    }

    fn start() -> GradientStatistics {
        let h: Vec<f64> = (1..=10_000).map(|i| 1.0 / f64::from(i)).collect();
        GradientStatistics::noisy_quadratic(&h, &vec![1.0; h.len()])
    }

    /// pi^2/6, zeta(3) and the harmonic number of 10^4, less what a sum of 10^4 terms lacks.
    #[test]
    fn the_start_of_the_noisy_quadratic_is_its_closed_form() {
        let q = start();
        let basel = std::f64::consts::PI.powi(2) / 6.0 - 1e-4 + 0.5e-8;
        close(q.squared_gradient, basel, 1e-11);
        close(q.tr_h_sigma, basel, 1e-11);
        close(q.ghg, 1.202_056_903_159_594 - 0.5e-8, 1e-11);
        let euler = 0.577_215_664_901_532_9;
        close(q.tr_sigma, 1e4_f64.ln() + euler + 0.5e-4, 1e-8);
        // As published, to the digits given.
        close(q.squared_gradient, 1.644_834, 1e-6);
        close(q.ghg, 1.202_057, 1e-6);
        close(q.tr_sigma, 9.787_606, 1e-6);
        let simple = simple_noise_scale(q.tr_sigma, q.squared_gradient);
        close(simple, 5.950_513, 1e-6);
        close(hessian_noise_scale(q.tr_h_sigma, q.ghg), 1.368_350, 1e-6);
        close(largest_rate(q.squared_gradient, q.ghg), 1.368_350, 1e-6);
    }

    /// The best step is searched for here, not solved for.
    #[test]
    fn the_best_rate_is_the_one_that_lowers_the_quadratic_most() {
        let q = start();
        let noise = hessian_noise_scale(q.tr_h_sigma, q.ghg);
        let largest = largest_rate(q.squared_gradient, q.ghg);
        for batch in [1.0, 4.0, 1000.0] {
            let (mut low, mut high) = (0.0, 4.0);
            for _ in 0..200 {
                let third = (high - low) / 3.0;
                if q.decrease(low + third, batch) > q.decrease(high - third, batch) {
                    high -= third;
                } else {
                    low += third;
                }
            }
            // A maximum is flat: its place is found to the root of the rounding of its height.
            let best = best_rate(largest, noise, batch);
            close(best / low, 1.0, 1e-7);
            let decrease = best_decrease(largest_decrease(q.squared_gradient, q.ghg), noise, batch);
            close(decrease, q.decrease(low, batch), 1e-13);
            close(q.decrease(2.0 * best, batch), 0.0, 1e-13);
            // The same law through a base batch.
            let base = best_rate(largest, noise, 32.0);
            close(
                scaled_rate_saturating(base, 32.0, batch, noise),
                best,
                1e-14,
            );
        }
    }

    #[test]
    fn at_the_noise_scale_rate_and_decrease_are_half_of_their_limits() {
        close(best_rate(3.0, 70.0, 70.0), 1.5, 1e-15);
        close(best_decrease(3.0, 70.0, 70.0), 1.5, 1e-15);
        close(best_rate(3.0, 0.0, 1.0), 3.0, 0.0);
        assert!(hessian_noise_scale(1.0, -0.5) < 0.0);
    }

    /// The decrease of the quadratic by real steps, its gradient's noise drawn.
    #[test]
    fn real_steps_on_the_noisy_quadratic_lower_it_by_the_expected_decrease() {
        let h = [1.0, 0.5, 0.25, 0.1];
        let theta = [1.0, -2.0, 0.5, 3.0];
        let (rate, batch) = (0.4, 3.0);
        let expected = GradientStatistics::noisy_quadratic(&h, &theta).decrease(rate, batch);
        let loss = |t: &[f64]| -> f64 { h.iter().zip(t).map(|(h, t)| 0.5 * h * t * t).sum() };
        let mut stream = crate::rng::Stream::new(1, "decrease", 0);
        let mut moments = crate::math::statistics::Moments::default();
        for _ in 0..40_000 {
            let moved: Vec<f64> = h
                .iter()
                .zip(&theta)
                .map(|(h, t)| t - rate * (h * t + (h / batch).sqrt() * stream.normal()))
                .collect();
            moments.push(loss(&theta) - loss(&moved));
        }
        let error = moments.standard_deviation().unwrap() / 200.0;
        close(moments.mean().unwrap(), expected, 4.0 * error);
    }
}
