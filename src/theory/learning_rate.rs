//! How the learning rate follows the batch, and what a changed rate asks of momentum.
//!
//! A rule is written for a base: `base_lr` is the rate that suits batches of `base_batch` examples,
//! and the rule says what suits batches of `batch`. Batches are in examples, at least 1.

/// The linear rule: base_lr (B / base_batch).
///
/// Goyal et al. 2017 (arXiv 1706.02677), section 2.1: k updates of rate eta on small batches and
/// one of rate k eta on their union move the parameters alike while the gradient changes little.
///
/// ```
/// # use batchlab::theory::learning_rate::scaled_rate_linear;
/// assert_eq!(scaled_rate_linear(0.1, 256.0, 8192.0), 3.2);
/// ```
pub fn scaled_rate_linear(base_lr: f64, base_batch: f64, batch: f64) -> f64 {
    base_lr * (batch / base_batch)
}

/// The square-root rule: base_lr (B / base_batch)^(1/2).
///
/// It keeps the covariance of the update, lr^2 Sigma/B (Sigma that of the gradient of one example),
/// the same at every batch: Krizhevsky 2014 (arXiv 1404.5997), Hoffer et al. 2017 (arXiv
/// 1705.08741).
pub fn scaled_rate_sqrt(base_lr: f64, base_batch: f64, batch: f64) -> f64 {
    base_lr * (batch / base_batch).sqrt()
}

/// The power rule: base_lr (B / base_batch)^exponent, for any finite exponent: 0 leaves the rate,
/// 1/2 is the square-root rule, 1 the linear one.
///
/// McCandlish et al. 2018 (arXiv 1812.06162) report exponents between 1/2 and 1 for Adam where the
/// batch is small against the noise scale.
pub fn scaled_rate_power(base_lr: f64, base_batch: f64, batch: f64, exponent: f64) -> f64 {
    base_lr * (batch / base_batch).powf(exponent)
}

/// The saturating law eps(B) = eps_max / (1 + B_noise/B), with eps_max such that eps(base_batch) =
/// base_lr: base_lr (1 + B_noise/base_batch) / (1 + B_noise/B).
///
/// `noise_scale` is B_noise = tr(H Sigma)/(G'HG) in examples, positive: G the gradient, H the
/// Hessian, Sigma the covariance of the gradient of one example. The law is the step that lowers a
/// quadratic most in expectation: linear in B far below B_noise, constant far above it, half of its
/// limit at B_noise. McCandlish et al. 2018 (arXiv 1812.06162), section 2.2.
///
/// ```
/// # use batchlab::theory::learning_rate::scaled_rate_saturating;
/// // Four times the batch at a noise scale of three times the base: 0.1 (1 + 3)/(1 + 3/4).
/// let rate = scaled_rate_saturating(0.1, 100.0, 400.0, 300.0);
/// assert!((rate - 0.4 / 1.75).abs() < 1e-15);
/// ```
pub fn scaled_rate_saturating(base_lr: f64, base_batch: f64, batch: f64, noise_scale: f64) -> f64 {
    base_lr * (1.0 + noise_scale / base_batch) / (1.0 + noise_scale / batch)
}

/// AdaScale's gain: r = (v/b + |G|^2) / (v/B + |G|^2), held in [1, S], S = B/b.
///
/// v = `variance_per_example` is tr(Sigma), the summed variance of the gradient of one example;
/// |G|^2 = `squared_mean` the squared Euclidean norm of the mean gradient, in the same units; b and
/// B are `base_batch` and `batch`. The two sums are the expected squared norms of the gradient of a
/// batch of b and of B, so one update on B at r times the rate is worth r updates on b: r = S where
/// noise is all, 1 where there is none. Johnson et al. 2020 (arXiv 2007.05105); there,
/// S counts batches of b and the variance is that of one such batch, v/b.
///
/// Both arguments are estimates, and unbiased ones may fall to 0 or below. Then the gain is the
/// limit: S for |G|^2 <= 0 (no mean is seen through the noise), else 1 for v <= 0. For a batch
/// below the base, S < 1, the range is [S, 1]. NaN where an estimate is NaN.
///
/// ```
/// # use batchlab::theory::learning_rate::adascale_gain;
/// // tr(Sigma)/32 = 3, tr(Sigma)/128 = 0.75.
/// assert_eq!(adascale_gain(96.0, 1.0, 32.0, 128.0), 4.0 / 1.75);
/// assert_eq!(adascale_gain(96.0, -0.1, 32.0, 128.0), 4.0);
/// ```
pub fn adascale_gain(
    variance_per_example: f64,
    squared_mean: f64,
    base_batch: f64,
    batch: f64,
) -> f64 {
    let scale = batch / base_batch;
    if squared_mean <= 0.0 {
        return scale;
    }
    if variance_per_example <= 0.0 {
        return 1.0;
    }
    let gain = (variance_per_example / base_batch + squared_mean)
        / (variance_per_example / batch + squared_mean);
    // Rounding alone can leave the range. Neither bound is ever NaN: `min` and `max` ignore it.
    gain.clamp(scale.min(1.0), scale.max(1.0))
}

/// Weight of the past in AdaScale's moving averages of v and |G|^2: max(1 - S/1000, 0), S = B/b.
///
/// The averages then span about 1000 batches of the base batch, at any scale. Johnson et al. 2020
/// (arXiv 2007.05105).
pub fn adascale_smoothing(base_batch: f64, batch: f64) -> f64 {
    (1.0 - batch / base_batch / 1000.0).max(0.0)
}

/// The factor of momentum correction: lr / previous_lr, the rate of this update over that of the
/// one before.
///
/// Momentum has two forms that agree while the rate is constant (Goyal et al. 2017, arXiv
/// 1706.02677, section 3, equations 9 and 10):
///
/// - the rate outside the buffer (PyTorch): u <- m u + g; p <- p - lr u. A new rate holds for all
///   of u at once; this form needs no correction.
/// - the rate inside it (Caffe): v <- m v + lr g; p <- p - v. The buffer holds past gradients at
///   past rates, v = lr u while the rate is constant. When it grows, old gradients keep their small
///   rates and v lags behind; when it drops, v is too large and the first updates too. Their
///   remark 2: v <- m (lr/previous_lr) v + lr g, which makes it the first form again at any
///   schedule.
///
/// Where `previous_lr` is 0, as after the first update of a warm-up from rest, the factor is 1:
/// v = 0 there, and no factor brings back the gradients that it met at rate 0. This alone keeps
/// the corrected form from equality with the first.
///
/// ```
/// # use batchlab::theory::learning_rate::momentum_correction;
/// assert_eq!(momentum_correction(0.2, 0.1), 2.0);
/// ```
pub fn momentum_correction(lr: f64, previous_lr: f64) -> f64 {
    if previous_lr == 0.0 {
        1.0
    } else {
        lr / previous_lr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 1e-12 * expected.abs(),
            "{found} instead of {expected}"
        );
    }

    #[test]
    fn every_rule_gives_the_base_rate_at_the_base_batch() {
        assert_eq!(scaled_rate_linear(0.3, 96.0, 96.0), 0.3);
        assert_eq!(scaled_rate_sqrt(0.3, 96.0, 96.0), 0.3);
        assert_eq!(scaled_rate_power(0.3, 96.0, 96.0, -1.7), 0.3);
        close(scaled_rate_saturating(0.3, 96.0, 96.0, 517.0), 0.3);
    }

    #[test]
    fn the_power_rule_holds_the_other_two() {
        for batch in [1.0, 32.0, 100.0, 8192.0] {
            close(scaled_rate_power(0.1, 32.0, batch, 0.0), 0.1);
            close(
                scaled_rate_power(0.1, 32.0, batch, 0.5),
                scaled_rate_sqrt(0.1, 32.0, batch),
            );
            close(
                scaled_rate_power(0.1, 32.0, batch, 1.0),
                scaled_rate_linear(0.1, 32.0, batch),
            );
        }
        // 64 = 2^6: two thirds of it are 2^4.
        close(scaled_rate_power(0.1, 32.0, 2048.0, 2.0 / 3.0), 1.6);
    }

    #[test]
    fn the_square_root_rule_keeps_the_variance_of_the_update() {
        let variance = |batch| scaled_rate_sqrt(0.1, 32.0, batch).powi(2) / batch;
        for batch in [1.0, 77.0, 4096.0] {
            close(variance(batch), variance(32.0));
        }
    }

    #[test]
    fn the_saturating_law_is_linear_below_the_noise_scale_and_flat_above() {
        let eps_max = 0.1 * (1.0 + 500.0 / 32.0);
        close(
            scaled_rate_saturating(0.1, 32.0, 500.0, 500.0),
            eps_max / 2.0,
        );
        let far_above = scaled_rate_saturating(0.1, 32.0, 1e15, 500.0);
        assert!((far_above - eps_max).abs() < 1e-11);
        for batch in [1.0, 32.0, 8192.0] {
            let noisy = scaled_rate_saturating(0.1, 32.0, batch, 1e18);
            close(noisy, scaled_rate_linear(0.1, 32.0, batch));
            close(scaled_rate_saturating(0.1, 32.0, batch, 1e-18), 0.1);
        }
    }

    /// The step eps along the mean gradient of B examples changes a quadratic in expectation by
    /// -eps |G|^2 + eps^2 (G'HG + tr(H Sigma)/B)/2; its minimum is searched here, not solved for.
    #[test]
    fn the_saturating_law_is_the_step_that_lowers_a_quadratic_most() {
        let (h, g, sigma) = ([2.0, 0.5, 0.1], [0.3, -1.0, 2.0], [4.0, 1.0, 9.0]);
        let sum = |f: &dyn Fn(usize) -> f64| (0..3).map(f).sum::<f64>();
        let squared = sum(&|i| g[i] * g[i]);
        let curvature = sum(&|i| h[i] * g[i] * g[i]);
        let noise = sum(&|i| h[i] * sigma[i]);
        let best = |batch: f64| {
            let change = |eps: f64| -eps * squared + 0.5 * eps * eps * (curvature + noise / batch);
            let (mut low, mut high) = (0.0, 100.0);
            for _ in 0..200 {
                let third = (high - low) / 3.0;
                if change(low + third) < change(high - third) {
                    high -= third;
                } else {
                    low += third;
                }
            }
            0.5 * (low + high)
        };
        let base_lr = best(4.0);
        for batch in [1.0, 16.0, 1024.0] {
            let law = scaled_rate_saturating(base_lr, 4.0, batch, noise / curvature);
            // A minimum is flat: its place is found to the root of the rounding of its height.
            assert!((law / best(batch) - 1.0).abs() < 1e-6);
        }
    }

    /// Gradients of one example drawn from three values: all batches are listed, their squared
    /// norms averaged.
    #[test]
    fn the_gain_is_the_ratio_of_expected_squared_norms() {
        let gradients = [0.5, 2.0, -1.0];
        let squared_norm = |batch: u32| {
            let batches = 3usize.pow(batch);
            let total: f64 = (0..batches)
                .map(|number| {
                    let mut rest = number;
                    let mut sum = 0.0;
                    for _ in 0..batch {
                        sum += gradients[rest % 3];
                        rest /= 3;
                    }
                    (sum / f64::from(batch)).powi(2)
                })
                .sum();
            total / batches as f64
        };
        let mean = 0.5;
        let variance = (0.25 + 4.0 + 1.0) / 3.0 - mean * mean;
        for (base, batch) in [(1, 2), (1, 6), (2, 6), (3, 4)] {
            close(
                adascale_gain(variance, mean * mean, f64::from(base), f64::from(batch)),
                squared_norm(base) / squared_norm(batch),
            );
        }
    }

    #[test]
    fn the_gain_stays_between_no_gain_and_the_scale() {
        assert_eq!(adascale_gain(0.0, 1.0, 32.0, 256.0), 1.0);
        assert_eq!(adascale_gain(-3.0, 1.0, 32.0, 256.0), 1.0);
        // So negative that the formula's quotient of two negative numbers would be above 1.
        assert_eq!(adascale_gain(-1e6, 1.0, 32.0, 256.0), 1.0);
        for squared_mean in [0.0, -1e-30, -5.0] {
            assert_eq!(adascale_gain(1.0, squared_mean, 32.0, 256.0), 8.0);
        }
        close(adascale_gain(1.0, 1e-30, 32.0, 256.0), 8.0);
        assert_eq!(adascale_gain(1.0, 1.0, 32.0, 32.0), 1.0);
        let small = adascale_gain(96.0, 1.0, 128.0, 32.0);
        close(small, 1.75 / 4.0);
        assert!(adascale_gain(f64::NAN, 1.0, 32.0, 64.0).is_nan());
        assert!(adascale_gain(1.0, f64::NAN, 32.0, 64.0).is_nan());
        // Outside the stated range: no number, and no panic.
        assert!(adascale_gain(1.0, 1.0, 0.0, 0.0).is_nan());
    }

    #[test]
    fn the_averages_span_a_thousand_base_batches() {
        assert_eq!(adascale_smoothing(32.0, 32.0), 0.999);
        assert_eq!(adascale_smoothing(32.0, 3200.0), 0.9);
        assert_eq!(adascale_smoothing(1.0, 1000.0), 0.0);
        assert_eq!(adascale_smoothing(1.0, 5000.0), 0.0);
    }

    /// Both forms over a warm-up and a drop, on given gradients.
    #[test]
    fn corrected_momentum_inside_equals_momentum_outside() {
        let rates = [0.1, 0.2, 0.3, 0.4, 0.4, 0.04, 0.04, 0.004];
        let gradients = [1.0, -0.5, 2.0, 0.3, -1.0, 0.7, 0.1, -2.0];
        let run = |inside: bool, corrected: bool| {
            let (mut p, mut buffer, mut previous) = (0.0, 0.0, rates[0]);
            for (&lr, &g) in rates.iter().zip(&gradients) {
                if inside {
                    let factor = if corrected {
                        momentum_correction(lr, previous)
                    } else {
                        1.0
                    };
                    buffer = 0.9 * factor * buffer + lr * g;
                    p -= buffer;
                } else {
                    buffer = 0.9 * buffer + g;
                    p -= lr * buffer;
                }
                previous = lr;
            }
            p
        };
        let outside = run(false, false);
        close(run(true, true), outside);
        assert!((run(true, false) - outside).abs() > 0.1);
    }

    #[test]
    fn nothing_is_corrected_after_a_rate_of_zero() {
        assert_eq!(momentum_correction(0.1, 0.0), 1.0);
        assert_eq!(momentum_correction(0.0, 0.0), 1.0);
        assert_eq!(momentum_correction(0.0, 0.1), 0.0);
    }
}
