//! Noise of the gradient, estimated from the pieces of one batch.
//!
//! A batch of B examples is cut into L pieces of n_i examples with mean gradients g_i; the gradient
//! of the batch is g = sum n_i g_i / B. With G the expected gradient and Sigma the covariance of the
//! gradient of one example, examples drawn independently:
//!
//! - tr(Sigma) is estimated by (sum n_i |g_i|^2 - B |g|^2)/(L - 1), without bias: the expectation
//!   of the two terms is B |G|^2 + L tr(Sigma) and B |G|^2 + tr(Sigma), whatever the sizes;
//! - |G|^2 by |g|^2 - tr(Sigma)/B, without bias. It may come out zero or negative, which says that
//!   the batch does not resolve the gradient; it is never clipped, for clipping biases averages.
//!
//! A batch drawn without replacement from N examples, as those of an epoch are, lies closer to their
//! mean gradient G: tr(Sigma) (with N - 1 under the sum) is estimated as before, and |G|^2 by
//! |g|^2 - tr(Sigma)(1/B - 1/N) (McCandlish et al. 2018, section 2.2; Cochran 1977, chapter 2).
//!
//! With two pieces of one size this is the two-batch estimate of McCandlish et al. (2018, appendix
//! A.1); with pieces of one example it is the sample variance of Byrd et al. (2012).
//!
//! A ratio of estimates is biased, and may have no expectation at all: average each of them first
//! ([`Average`]), divide after.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What is needed of the gradients of the pieces of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct PieceNorms {
    /// Examples of each piece, n_i.
    pub sizes: Vec<usize>,
    /// Squared Euclidean norm of the mean gradient of each piece, |g_i|^2.
    pub squared_norms: Vec<f64>,
    /// Squared Euclidean norm of the mean gradient of the batch, |g|^2.
    pub squared_mean: f64,
    /// Inner product of each piece's gradient with that of the batch, g_i'g.
    pub inner: Option<Vec<f64>>,
    /// The number N of examples that the batch was drawn from without replacement; `None` where they
    /// never repeat.
    pub population: Option<usize>,
}

/// Estimates from one batch, in units of the gradient squared (the variance of the inner product:
/// to the fourth). `NaN` or infinite where a gradient was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseEstimate {
    /// Examples of the batch, B.
    pub batch: usize,
    /// tr(Sigma), the trace of the covariance of the gradient of one example.
    pub tr_sigma: f64,
    /// |G|^2, the squared norm of the expected gradient; may be zero or negative.
    pub squared_gradient: f64,
    /// Where inner products are known: how the noise lies to the gradient.
    pub direction: Option<Direction>,
}

/// Variances of the gradient of one example along the gradient of the batch and across it
/// (Bollapragada et al. 2018, sections 2 and 3).
///
/// The gradient g of the batch stands where G should, as in the paper, which is not free of bias:
/// for normal noise the expectation of `inner_variance` is G'Sigma G + tr(Sigma^2)/B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Direction {
    /// Var(g_i'G) of one example: sum n_i (g_i'g - |g|^2)^2/(L - 1).
    pub inner_variance: f64,
    /// Trace of the covariance orthogonal to G: tr(Sigma) - Var(g_i'G)/|g|^2.
    pub orthogonal_variance: f64,
}

/// Why nothing can be estimated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoiseError {
    /// One piece has no variance.
    #[error(
        "the noise of the gradient needs a batch in at least 2 pieces, found {found}\n\
         hint: use 2 or more workers, or a `train.micro_batch` smaller than the shard of a worker"
    )]
    TooFewPieces {
        /// Number of pieces.
        found: usize,
    },
    /// A piece without examples has no gradient.
    #[error("piece {piece} of the batch has no examples")]
    EmptyPiece {
        /// The piece, from 0.
        piece: usize,
    },
    /// Not one value a piece.
    #[error("{what}: expected one for each of {expected} pieces, found {found}")]
    Length {
        /// What was given.
        what: &'static str,
        /// Number of pieces.
        expected: usize,
        /// Number of values.
        found: usize,
    },
}

/// Checks the sizes of pieces and returns B.
///
/// # Errors
/// With fewer than two pieces, or an empty one.
pub fn pieces(sizes: &[usize]) -> Result<usize, NoiseError> {
    if sizes.len() < 2 {
        return Err(NoiseError::TooFewPieces { found: sizes.len() });
    }
    match sizes.iter().position(|&n| n == 0) {
        Some(piece) => Err(NoiseError::EmptyPiece { piece }),
        None => Ok(sizes.iter().sum()),
    }
}

/// Checks that there is one value a piece.
///
/// # Errors
/// If there is not.
pub fn one_a_piece(what: &'static str, expected: usize, found: usize) -> Result<(), NoiseError> {
    if expected == found {
        Ok(())
    } else {
        Err(NoiseError::Length {
            what,
            expected,
            found,
        })
    }
}

impl PieceNorms {
    /// The estimates of this batch.
    ///
    /// # Errors
    /// With fewer than two pieces, an empty piece, or lengths that do not fit.
    pub fn noise(&self) -> Result<NoiseEstimate, NoiseError> {
        let batch = pieces(&self.sizes)?;
        let count = self.sizes.len();
        one_a_piece(
            "squared norms of gradients",
            count,
            self.squared_norms.len(),
        )?;
        let examples = batch as f64;
        let freedom = (count - 1) as f64;
        // One difference a piece, so that a large |g|^2 cancels before anything is added.
        let spread: f64 = self
            .sizes
            .iter()
            .zip(&self.squared_norms)
            .map(|(&n, squared)| n as f64 * (squared - self.squared_mean))
            .sum();
        let tr_sigma = spread / freedom;
        let direction = match &self.inner {
            None => None,
            Some(inner) => {
                one_a_piece("inner products of gradients", count, inner.len())?;
                let inner_variance = self
                    .sizes
                    .iter()
                    .zip(inner)
                    .map(|(&n, product)| n as f64 * (product - self.squared_mean).powi(2))
                    .sum::<f64>()
                    / freedom;
                // A gradient of zero has no direction, and no noise along it.
                let along = if self.squared_mean == 0.0 {
                    0.0
                } else {
                    inner_variance / self.squared_mean
                };
                Some(Direction {
                    inner_variance,
                    orthogonal_variance: tr_sigma - along,
                })
            }
        };
        Ok(NoiseEstimate {
            batch,
            tr_sigma,
            squared_gradient: self.squared_mean
                - tr_sigma * share_of_mean(examples, self.population),
            direction,
        })
    }
}

/// The variance of the mean of `batch` examples over that of one: 1/B - 1/N, and 0 from N on; 1/B
/// where examples never repeat.
pub fn share_of_mean(batch: f64, population: Option<usize>) -> f64 {
    let unseen = population.map_or(0.0, |n| 1.0 / n as f64);
    (1.0 / batch - unseen).max(0.0)
}

/// A running average, corrected for its start: after n values with smoothing s,
/// sum s^(n - k) x_k / sum s^(n - k). With s = 0 it is the last value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Average {
    smoothing: f64,
    sum: f64,
    weight: f64,
}

impl Average {
    /// The average of nothing yet. `smoothing` is the weight of the past, in [0, 1).
    pub fn new(smoothing: f64) -> Self {
        Self {
            smoothing,
            sum: 0.0,
            weight: 0.0,
        }
    }

    /// Takes in one value: a <- s a + (1 - s) x. A value that is not finite is left out, for it
    /// would stay in the average for good; the answer is whether it was taken.
    pub fn push(&mut self, value: f64) -> bool {
        if !value.is_finite() {
            return false;
        }
        let s = self.smoothing;
        self.sum = s * self.sum + (1.0 - s) * value;
        self.weight = s * self.weight + (1.0 - s);
        true
    }

    /// The average; `None` of no values.
    pub fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    #[track_caller]
    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "{found} instead of {expected}"
        );
    }

    /// The norms of pieces given as vectors.
    fn norms(sizes: &[usize], gradients: &[Vec<f64>]) -> PieceNorms {
        let batch: usize = sizes.iter().sum();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let mean: Vec<f64> = (0..gradients[0].len())
            .map(|j| {
                let sum: f64 = sizes
                    .iter()
                    .zip(gradients)
                    .map(|(&n, g)| n as f64 * g[j])
                    .sum();
                sum / batch as f64
            })
            .collect();
        PieceNorms {
            sizes: sizes.to_vec(),
            squared_norms: gradients.iter().map(|g| dot(g, g)).collect(),
            squared_mean: dot(&mean, &mean),
            inner: Some(gradients.iter().map(|g| dot(g, &mean)).collect()),
            population: None,
        }
    }

    #[test]
    fn pieces_of_one_example_give_the_sample_covariance() {
        // Gradients (1, 0), (3, 0), (2, 3): mean (2, 1), deviations (-1, -1), (1, -1), (0, 2);
        // covariance diag(1, 3), cross terms (1 - 1 + 0)/2 = 0.
        let gradients = [vec![1.0, 0.0], vec![3.0, 0.0], vec![2.0, 3.0]];
        let noise = norms(&[1, 1, 1], &gradients).noise().unwrap();
        close(noise.tr_sigma, 4.0, 1e-14);
        close(noise.squared_gradient, 5.0 - 4.0 / 3.0, 1e-14);
        let direction = noise.direction.unwrap();
        // g'Sigma g = 4 x 1 + 1 x 3.
        close(direction.inner_variance, 7.0, 1e-13);
        close(direction.orthogonal_variance, 4.0 - 7.0 / 5.0, 1e-14);
    }

    #[test]
    fn two_pieces_of_one_size_give_the_two_batch_estimate() {
        // McCandlish et al., equations A.2 and A.3: |G|^2 = (B_b |G_b|^2 - B_s |G_s|^2)/(B_b - B_s),
        // tr(Sigma) = (|G_s|^2 - |G_b|^2)/(1/B_s - 1/B_b), |G_s|^2 the mean over both halves.
        let gradients = [vec![0.3, -1.2, 2.0], vec![0.7, 0.1, 1.5]];
        let norms = norms(&[16, 16], &gradients);
        let noise = norms.noise().unwrap();
        let small = f64::midpoint(norms.squared_norms[0], norms.squared_norms[1]);
        let big = norms.squared_mean;
        close(
            noise.tr_sigma,
            (small - big) / (1.0 / 16.0 - 1.0 / 32.0),
            1e-12,
        );
        close(
            noise.squared_gradient,
            (32.0 * big - 16.0 * small) / 16.0,
            1e-12,
        );
    }

    /// Means of the estimates over many batches with known G and Sigma = diag(1, 4, 0.25), and the
    /// standard errors of these means.
    fn estimated(sizes: &[usize], index: u64) -> [(f64, f64); 4] {
        let mean = [0.5, -1.0, 0.2];
        let deviations = [1.0, 2.0, 0.5];
        let rounds = 40_000;
        let mut stream = Stream::new(11, "noise-test", index);
        let mut sums = [(0.0, 0.0); 4];
        for _ in 0..rounds {
            let gradients: Vec<Vec<f64>> = sizes
                .iter()
                .map(|&n| {
                    let share = (n as f64).sqrt();
                    (0..3)
                        .map(|j| mean[j] + deviations[j] * stream.normal() / share)
                        .collect()
                })
                .collect();
            let noise = norms(sizes, &gradients).noise().unwrap();
            let direction = noise.direction.unwrap();
            for (sum, value) in sums.iter_mut().zip([
                noise.tr_sigma,
                noise.squared_gradient,
                direction.inner_variance,
                direction.orthogonal_variance,
            ]) {
                sum.0 += value;
                sum.1 += value * value;
            }
        }
        let n = f64::from(rounds);
        sums.map(|(sum, squares)| {
            let mean = sum / n;
            (mean, ((squares / n - mean * mean) / n).sqrt())
        })
    }

    #[test]
    fn the_estimates_are_unbiased_whatever_the_sizes() {
        let (trace, squared) = (5.25, 0.25 + 1.0 + 0.04);
        // G'Sigma G = 0.25 + 4 + 0.01; tr(Sigma^2) = 1 + 16 + 1/16.
        let (along, trace_of_square) = (4.26, 17.0625);
        for (index, sizes) in [
            vec![1, 1],
            vec![8, 8, 8, 8],
            vec![1, 2, 3, 10],
            vec![30, 1],
            vec![5, 5, 5, 4],
        ]
        .into_iter()
        .enumerate()
        {
            let batch = sizes.iter().sum::<usize>() as f64;
            let [tr_sigma, squared_gradient, inner, _] = estimated(&sizes, index as u64);
            // Four standard errors each.
            close(tr_sigma.0, trace, 4.0 * tr_sigma.1);
            close(squared_gradient.0, squared, 4.0 * squared_gradient.1);
            // With g in place of G, the bias for normal noise.
            close(inner.0, along + trace_of_square / batch, 4.0 * inner.1);
        }
    }

    #[test]
    fn the_noise_across_a_well_resolved_gradient_is_that_across_the_expected_one() {
        let [_, _, inner, orthogonal] = estimated(&[2000, 3000, 1000], 9);
        close(inner.0, 4.26, 4.0 * inner.1 + 17.0625 / 6000.0);
        // tr(Sigma) - G'Sigma G/|G|^2, up to terms of order 1/B.
        close(
            orthogonal.0,
            5.25 - 4.26 / 1.29,
            4.0 * orthogonal.1 + 10.0 / 6000.0,
        );
    }

    #[test]
    fn a_gradient_that_is_all_noise_may_have_a_negative_squared_norm() {
        let noise = norms(&[1, 1], &[vec![1.0], vec![-1.0]]).noise().unwrap();
        assert_eq!(noise.tr_sigma, 2.0);
        assert_eq!(noise.squared_gradient, -1.0);
        let direction = noise.direction.unwrap();
        assert_eq!(direction.inner_variance, 0.0);
        assert_eq!(direction.orthogonal_variance, 2.0);
    }

    #[test]
    fn what_cannot_be_estimated_is_refused() {
        let one = PieceNorms {
            sizes: vec![8],
            squared_norms: vec![1.0],
            squared_mean: 1.0,
            inner: None,
            population: None,
        };
        assert_eq!(one.noise(), Err(NoiseError::TooFewPieces { found: 1 }));
        let empty = PieceNorms {
            sizes: vec![8, 0],
            squared_norms: vec![1.0, 0.0],
            ..one.clone()
        };
        assert_eq!(empty.noise(), Err(NoiseError::EmptyPiece { piece: 1 }));
        let short = PieceNorms {
            sizes: vec![8, 8],
            ..one
        };
        assert!(short.noise().unwrap_err().to_string().contains("2 pieces"));
    }

    #[test]
    fn an_average_is_corrected_for_its_start() {
        let mut average = Average::new(0.9);
        assert_eq!(average.value(), None);
        assert!(average.push(3.0));
        close(average.value().unwrap(), 3.0, 1e-15);
        assert!(!average.push(f64::NAN));
        assert!(average.push(5.0));
        close(
            average.value().unwrap(),
            (0.9 * 3.0 + 5.0) / (0.9 + 1.0),
            1e-14,
        );
        let mut last = Average::new(0.0);
        last.push(1.0);
        last.push(7.0);
        assert_eq!(last.value(), Some(7.0));
    }

    #[test]
    fn an_average_goes_through_json_bit_by_bit() {
        let mut average = Average::new(0.9);
        for k in 0..10 {
            average.push(f64::from(k).sin() * 1e-7);
        }
        let text = serde_json::to_string(&average).unwrap();
        assert_eq!(serde_json::from_str::<Average>(&text).unwrap(), average);
    }

    #[test]
    fn a_batch_without_replacement_says_how_far_the_mean_of_all_examples_is() {
        // 40 examples with fixed gradients in 3 dimensions; batches of 24 in 6 pieces.
        let (n, b) = (40, 24);
        let mut stream = Stream::new(5, "finite", 0);
        let all: Vec<Vec<f64>> = (0..n)
            .map(|_| (0..3).map(|_| 0.5 + stream.normal()).collect())
            .collect();
        let mean_of = |of: &[&Vec<f64>]| -> Vec<f64> {
            (0..3)
                .map(|j| of.iter().map(|g| g[j]).sum::<f64>() / of.len() as f64)
                .collect()
        };
        let square = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
        let whole = mean_of(&all.iter().collect::<Vec<_>>());
        let spread: f64 = all
            .iter()
            .map(|g| {
                g.iter()
                    .zip(&whole)
                    .map(|(x, m)| (x - m).powi(2))
                    .sum::<f64>()
            })
            .sum::<f64>()
            / (n - 1) as f64;
        let draws = 4000;
        let (mut traces, mut squares) = (Vec::new(), Vec::new());
        for draw in 0..draws {
            let order = crate::rng::permutation(n, 7, "finite", draw);
            let batch: Vec<&Vec<f64>> = order[..b].iter().map(|&i| &all[i as usize]).collect();
            let pieces: Vec<Vec<f64>> = batch.chunks(4).map(mean_of).collect();
            let estimate = PieceNorms {
                sizes: vec![4; 6],
                squared_norms: pieces.iter().map(|p| square(p)).collect(),
                squared_mean: square(&mean_of(&batch)),
                inner: None,
                population: Some(n),
            }
            .noise()
            .unwrap();
            traces.push(estimate.tr_sigma);
            squares.push(estimate.squared_gradient);
        }
        for (values, expected) in [(traces, spread), (squares, square(&whole))] {
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let error = (variance / count).sqrt();
            // Four standard errors of the mean of the draws.
            close(mean, expected, 4.0 * error);
        }
    }
}
