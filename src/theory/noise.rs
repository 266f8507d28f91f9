//! How noisy an update is.

/// The noise scale of SGD: g = lr (N/B - 1) / (1 - m), in units of the learning rate.
///
/// N = `examples` in the training set, B = `batch` in examples, m = `momentum` in [0, 1). The noise
/// of a trajectory depends on rate, batch and momentum through g alone, so a rate divided by k and
/// a batch multiplied by k anneal it alike while B is small against N (up to about N/10 in the
/// paper), where g is nearly lr N/(B (1 - m)). 0 where the batch is the whole set: no noise is
/// left. Smith et al. 2017 (arXiv 1711.00489), whose form with momentum drops the -1 for B far
/// below N.
///
/// ```
/// # use batchlab::theory::noise::sgd_noise_scale;
/// assert!((sgd_noise_scale(0.1, 50_000.0, 125.0, 0.9) - 399.0).abs() < 1e-9);
/// ```
pub fn sgd_noise_scale(lr: f64, examples: f64, batch: f64, momentum: f64) -> f64 {
    lr * (examples / batch - 1.0) / (1.0 - momentum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_set_as_one_batch_has_no_noise() {
        assert_eq!(sgd_noise_scale(0.1, 512.0, 512.0, 0.9), 0.0);
    }

    #[test]
    fn one_example_without_momentum_has_the_noise_of_all_the_others() {
        assert_eq!(sgd_noise_scale(0.5, 101.0, 1.0, 0.0), 50.0);
    }

    /// Wide residual networks on CIFAR-10: rate, batch and momentum at the start of each variant.
    #[test]
    fn the_starts_of_the_published_variants_have_one_noise_scale() {
        let variants = [(0.1, 128.0, 0.9), (0.5, 640.0, 0.9), (0.5, 3200.0, 0.98)];
        let ratio = |examples: f64, (lr, batch, momentum): (f64, f64, f64)| {
            sgd_noise_scale(lr, examples, batch, momentum)
                / sgd_noise_scale(0.1, examples, 128.0, 0.9)
        };
        for variant in variants {
            // In the limit of many examples exactly, and on CIFAR-10's 50,000 within B/N.
            assert!((ratio(1e15, variant) - 1.0).abs() < 1e-10);
            assert!((ratio(50_000.0, variant) - 1.0).abs() < variant.1 / 50_000.0);
        }
    }

    /// The mean of B of N values drawn without replacement has the variance
    /// sigma^2 (N/B - 1)/(N - 1), sigma^2 that of the values: lr times it is g sigma^2/(N - 1) at
    /// m = 0. All subsets of six values are listed here.
    #[test]
    fn it_is_the_variance_of_a_batch_drawn_without_replacement() {
        let gradients = [1.0, -2.0, 0.5, 4.0, 3.5, -1.0];
        let n = gradients.len() as f64;
        let mean: f64 = gradients.iter().sum::<f64>() / n;
        let variance: f64 = gradients.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
        for batch in 1..=6u32 {
            let (mut count, mut sum) = (0.0, 0.0);
            for subset in 0u32..64 {
                if subset.count_ones() == batch {
                    let of_batch: f64 = (0..6)
                        .filter(|i| subset >> i & 1 == 1)
                        .map(|i| gradients[i])
                        .sum();
                    sum += (of_batch / f64::from(batch) - mean).powi(2);
                    count += 1.0;
                }
            }
            let expected = 0.1 * (sum / count);
            let found = sgd_noise_scale(0.1, n, f64::from(batch), 0.0) * variance / (n - 1.0);
            assert!((found - expected).abs() < 1e-12, "{found}, {expected}");
        }
    }
}
