//! The noisy quadratic model in closed form.

use super::{
    Along, Batch, ExampleNorms, Layout, Objective, ObjectiveError, Point, Predictions, Role,
    Scalar, StatisticsMode, example_norms_one_by_one,
};
use crate::rng::Stream;

/// The noisy quadratic model (Zhang et al. 2019, arXiv 1907.04164, section 3): eigenvalues
/// h_i = 1/i, expected loss L(theta) = 1/2 sum_i h_i theta_i^2, and example k with loss
/// L(theta) + sum_i sqrt(h_i) xi_ki theta_i, xi_ki standard normal, so that the gradient of one
/// example has covariance diag(h). The start has theta_i standard normal, E theta_i^2 = 1.
#[derive(Debug, Clone)]
pub struct NoisyQuadratic {
    layout: Layout,
    eigenvalues: Vec<f64>,
    /// Deviations of the start.
    spread: Vec<f64>,
    noise_seed: u64,
}

impl NoisyQuadratic {
    /// The model in `dimension` dimensions; the noise of example k is drawn from the stream
    /// (`noise_seed`, k).
    pub fn new(dimension: usize, noise_seed: u64) -> Self {
        Self::preconditioned(dimension, noise_seed, 0.0)
    }

    /// The model in the parameters phi = H^(p/2) theta, p in [0, 1]. Plain descent on phi at the rate lr is
    /// theta <- theta - lr H^-p g, descent preconditioned by the known Hessian to the power p (Zhang et
    /// al. 2019, section 3.2): eigenvalues and covariances of the noise are h_i^(1-p), and the start has
    /// E phi_i^2 = h_i^p. The loss is that of theta.
    pub fn preconditioned(dimension: usize, noise_seed: u64, power: f64) -> Self {
        let mut layout = Layout::default();
        layout.push("theta", &[dimension], Role::Other);
        let h = (1..=dimension).map(|i| 1.0 / i as f64);
        Self {
            layout,
            eigenvalues: h.clone().map(|h| h.powf(1.0 - power)).collect(),
            spread: h.map(|h| h.powf(power / 2.0)).collect(),
            noise_seed,
        }
    }

    fn check_length<F>(&self, what: &str, vector: &[F]) -> Result<(), ObjectiveError> {
        if vector.len() == self.eigenvalues.len() {
            return Ok(());
        }
        Err(ObjectiveError::Shape {
            what: what.to_owned(),
            expected: self.eigenvalues.len().to_string(),
            found: vector.len().to_string(),
        })
    }
}

impl<F: Scalar> Objective<F> for NoisyQuadratic {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: u64) -> Vec<F> {
        let mut stream = Stream::new(seed, "initial-weights", 0);
        self.spread
            .iter()
            .map(|spread| F::from_f64(spread * stream.normal()))
            .collect()
    }

    fn has_exact_products(&self) -> bool {
        true
    }

    fn at<'a>(&'a self, parameters: &[F]) -> Result<Box<dyn Point<F> + 'a>, ObjectiveError> {
        self.check_length("parameter vector", parameters)?;
        let theta = parameters.iter().map(|p| p.to_f64()).collect();
        Ok(Box::new(QuadraticPoint { model: self, theta }))
    }
}

struct QuadraticPoint<'a> {
    model: &'a NoisyQuadratic,
    theta: Vec<f64>,
}

impl QuadraticPoint<'_> {
    fn expected(&self) -> f64 {
        0.5 * self
            .model
            .eigenvalues
            .iter()
            .zip(&self.theta)
            .map(|(h, t)| h * t * t)
            .sum::<f64>()
    }

    fn noise(&self, id: u64) -> impl Iterator<Item = f64> + '_ {
        let mut stream = Stream::new(self.model.noise_seed, "quadratic-noise", id);
        self.model
            .eigenvalues
            .iter()
            .map(move |h| h.sqrt() * stream.normal())
    }
}

impl<F: Scalar> Point<F> for QuadraticPoint<'_> {
    fn gradient(
        &self,
        batch: Batch<F>,
        _mode: StatisticsMode<'_>,
        weight: F,
        gradient: &mut [F],
    ) -> Result<f64, ObjectiveError> {
        let mut mean_noise = vec![0.0; self.theta.len()];
        for &id in &batch.ids {
            for (sum, noise) in mean_noise.iter_mut().zip(self.noise(id)) {
                *sum += noise / batch.ids.len() as f64;
            }
        }
        let mut loss = self.expected();
        for (i, slot) in gradient.iter_mut().enumerate() {
            loss += mean_noise[i] * self.theta[i];
            let value = self.model.eigenvalues[i] * self.theta[i] + mean_noise[i];
            *slot = weight * F::from_f64(value);
        }
        Ok(loss)
    }

    fn predict(
        &self,
        batch: Batch<F>,
        _mode: StatisticsMode<'_>,
    ) -> Result<Predictions, ObjectiveError> {
        let expected = self.expected();
        let losses = batch
            .ids
            .iter()
            .map(|&id| {
                expected
                    + self
                        .noise(id)
                        .zip(&self.theta)
                        .map(|(n, t)| n * t)
                        .sum::<f64>()
            })
            .collect();
        Ok(Predictions {
            losses,
            classes: Vec::new(),
        })
    }

    fn along<'a>(&'a self, direction: &[F]) -> Result<Box<dyn Along<F> + 'a>, ObjectiveError> {
        self.model.check_length("direction", direction)?;
        let product = self.model.eigenvalues.iter().zip(direction);
        Ok(Box::new(QuadraticAlong {
            product: product.map(|(h, v)| h * v.to_f64()).collect(),
        }))
    }

    fn example_norms(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Result<ExampleNorms, ObjectiveError> {
        example_norms_one_by_one(self, &self.model.layout, &batch, mode)
    }

    fn expected_loss(&self) -> Option<f64> {
        Some(self.expected())
    }
}

/// diag(h) v, whatever the examples.
struct QuadraticAlong {
    product: Vec<f64>,
}

impl<F: Scalar> Along<F> for QuadraticAlong {
    fn hessian_product(
        &self,
        _batch: Batch<F>,
        _mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        for (slot, value) in product.iter_mut().zip(&self.product) {
            *slot = weight * F::from_f64(*value);
        }
        Ok(())
    }

    fn gauss_newton_product(
        &self,
        _batch: Batch<F>,
        _mode: StatisticsMode<'_>,
        _weight: F,
        _product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        Err(ObjectiveError::NoOutputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(ids: std::ops::Range<u64>) -> Batch<f64> {
        let n = (ids.end - ids.start) as usize;
        Batch {
            features: Vec::new(),
            labels: Vec::new(),
            ids: ids.collect(),
            groups: vec![n],
        }
    }

    #[test]
    fn the_gradient_is_the_derivative_of_the_loss() {
        let model = NoisyQuadratic::new(5, 3);
        let theta: Vec<f64> = Objective::<f64>::initial(&model, 1);
        let mut gradient = vec![0.0; 5];
        let loss_at = |t: &[f64]| {
            model
                .at(t)
                .unwrap()
                .gradient(batch(0..7), StatisticsMode::Batch, 1.0, &mut [0.0; 5])
        };
        model
            .at(&theta)
            .unwrap()
            .gradient(batch(0..7), StatisticsMode::Batch, 1.0, &mut gradient)
            .unwrap();
        for i in 0..5 {
            let (mut up, mut down) = (theta.clone(), theta.clone());
            up[i] += 1e-6;
            down[i] -= 1e-6;
            let slope = (loss_at(&up).unwrap() - loss_at(&down).unwrap()) / 2e-6;
            assert!(
                (slope - gradient[i]).abs() < 1e-8,
                "{slope} against {}",
                gradient[i]
            );
        }
    }

    #[test]
    fn the_gradient_noise_of_one_example_has_the_stated_variance() {
        let model = NoisyQuadratic::new(3, 0);
        let point = model.at(&[0.0f64; 3]).unwrap();
        let n = 20_000u64;
        let mut squares = [0.0; 3];
        for id in 0..n {
            let mut gradient = [0.0; 3];
            point
                .gradient(batch(id..id + 1), StatisticsMode::Batch, 1.0, &mut gradient)
                .unwrap();
            for (s, g) in squares.iter_mut().zip(gradient) {
                *s += g * g / n as f64;
            }
        }
        for (i, s) in squares.iter().enumerate() {
            let h = 1.0 / (i + 1) as f64;
            // Standard error of a variance: h sqrt(2/n) = 0.01 h; the bound is 4 of them.
            assert!((s - h).abs() < 0.04 * h, "coordinate {i}: {s} against {h}");
        }
    }
}
