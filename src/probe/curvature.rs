//! The Hessian through differences of gradients: products, the top eigenvalue, and the noise of the
//! gradient weighted by it.

use thiserror::Error;

use crate::math::noise::{self, NoiseError};
use crate::rng::Stream;

/// A product with a matrix: reads the first vector, overwrites the second.
pub type Product<'a, E> = dyn FnMut(&[f64], &mut [f64]) -> Result<(), E> + 'a;

/// The Hessian of a function at one point, known through gradients alone:
///
/// H v = |v| (g(t + e u) - g(t - e u))/(2 e), u = v/|v|,
///
/// so that the step does not depend on the length of v. Error: e^2/6 times the third derivative
/// along u, plus the rounding of the two gradients divided by e. The two balance near
/// e = (2^-52)^(1/3) = 6.06e-6 where parameters and gradients are of order 1. e is this times
/// max(1, root mean square of t): the components of t + e u then keep enough digits of u where
/// weights are large, and a network with many small weights is still moved by 6e-6 only, which
/// matters where it is not smooth (a ReLU that changes sign between the two gradients adds its
/// jump divided by 2e). For smooth functions expect 1e-9 of |H| |v|.
pub struct Hessian<'a, E> {
    gradient: &'a mut Product<'a, E>,
    at: &'a [f64],
    step: f64,
    shifted: Vec<f64>,
    behind: Vec<f64>,
    products: usize,
}

impl<'a, E> Hessian<'a, E> {
    /// The Hessian at `at` of the function with this gradient, a mean over fixed examples in
    /// double precision: it must answer the same for the same parameters.
    pub fn new(at: &'a [f64], gradient: &'a mut Product<'a, E>) -> Self {
        let mean_square = dot(at, at) / at.len().max(1) as f64;
        Self {
            gradient,
            at,
            step: f64::EPSILON.cbrt() * mean_square.sqrt().max(1.0),
            shifted: vec![0.0; at.len()],
            behind: vec![0.0; at.len()],
            products: 0,
        }
    }

    /// Writes H v into `product`; two gradients. Zero for v = 0.
    ///
    /// # Errors
    /// Those of the gradient.
    pub fn product(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), E> {
        let length = norm(v);
        if length == 0.0 {
            product.fill(0.0);
            return Ok(());
        }
        self.products += 1;
        // Where the length overflows or is NaN, so does the answer.
        let shift = self.step / length;
        self.shift(shift, v);
        (self.gradient)(&self.shifted, product)?;
        self.shift(-shift, v);
        (self.gradient)(&self.shifted, &mut self.behind)?;
        for (ahead, behind) in product.iter_mut().zip(&self.behind) {
            *ahead = (*ahead - behind) / (2.0 * shift);
        }
        Ok(())
    }

    /// Products made so far.
    pub fn products(&self) -> usize {
        self.products
    }

    fn shift(&mut self, factor: f64, v: &[f64]) {
        for ((shifted, at), v) in self.shifted.iter_mut().zip(self.at).zip(v) {
            *shifted = at + factor * v;
        }
    }
}

/// How to look for the top eigenvalue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerIteration {
    /// Most products, at least 1.
    pub products: usize,
    /// Converged when the Rayleigh quotient changed by at most this share of itself and its
    /// residual is at most the square root of this share.
    pub tolerance: f64,
    /// Seed of the start vector, the same for every search of a run.
    pub seed: u64,
}

/// The eigenvalue of largest magnitude, with what is known of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopEigenvalue {
    /// The Rayleigh quotient v'Hv of the last unit vector v, with its sign: negative where the
    /// eigenvalue of largest magnitude is.
    pub value: f64,
    /// |Hv - value v|. Some eigenvalue lies within this of `value`.
    pub residual: f64,
    /// Products made.
    pub products: usize,
    /// Whether the search came to rest before its last product.
    pub converged: bool,
}

/// The eigenvalue of largest magnitude of a symmetric matrix of this dimension, by power iteration
/// from a fixed random vector (stream `power-iteration` of the seed).
///
/// The relative change alone does not tell that a search has come to rest: with eigenvalues 1 and
/// -1 the Rayleigh quotient never changes and is wrong. So the residual is asked as well; the error
/// of the quotient is of the order of its square. A matrix of zeros has the eigenvalue 0,
/// converged.
///
/// # Errors
/// Those of the product.
pub fn top_eigenvalue<E>(
    product: &mut Product<'_, E>,
    dimension: usize,
    search: &PowerIteration,
) -> Result<TopEigenvalue, E> {
    let mut stream = Stream::new(search.seed, "power-iteration", 0);
    let mut v: Vec<f64> = (0..dimension).map(|_| stream.normal()).collect();
    let mut image = vec![0.0; dimension];
    let mut top = TopEigenvalue {
        value: 0.0,
        residual: 0.0,
        products: 0,
        converged: dimension == 0,
    };
    let mut length = norm(&v);
    while !top.converged && top.products < search.products.max(1) {
        for x in &mut v {
            *x /= length;
        }
        product(&v, &mut image)?;
        let previous = top.value;
        top.value = dot(&v, &image);
        top.residual = v
            .iter()
            .zip(&image)
            .map(|(x, y)| (y - top.value * x).powi(2))
            .sum::<f64>()
            .sqrt();
        top.products += 1;
        let scale = top.value.abs();
        let at_rest = top.products > 1 && (top.value - previous).abs() <= search.tolerance * scale;
        top.converged = top.residual == 0.0
            || (at_rest && top.residual <= search.tolerance.max(0.0).sqrt() * scale);
        length = norm(&image);
        if !(length.is_finite() && length > 0.0) {
            break;
        }
        std::mem::swap(&mut v, &mut image);
    }
    Ok(top)
}

/// The noise of the gradient weighted by the Hessian (McCandlish et al. 2018, equation 2.8:
/// B_noise = tr(H Sigma)/(G'HG)), estimated without bias.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HessianNoise {
    /// tr(H Sigma).
    pub tr_h_sigma: f64,
    /// G'HG; may be zero or negative, and is never clipped.
    pub ghg: f64,
    /// Products made: one more than there are pieces.
    pub products: usize,
}

/// Why there is no [`HessianNoise`].
#[derive(Debug, Error)]
pub enum CurvatureError<E> {
    /// The pieces of the batch do not tell.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// The product failed.
    #[error("a product with the Hessian failed: {0}")]
    Product(E),
}

/// tr(H Sigma) = sum n_i (g_i - g)'H(g_i - g)/(L - 1) and G'HG = g'Hg - tr(H Sigma)(1/B - 1/N) from
/// the mean gradients g_i of L pieces of n_i examples, g their mean over all B, drawn without
/// replacement from N = `population` examples (`None`: 1/N is 0). Sigma is the covariance of the
/// gradient of one example.
///
/// # Errors
/// With fewer than two pieces, an empty piece or lengths that do not fit; if a product fails.
pub fn hessian_noise<E>(
    sizes: &[usize],
    gradients: &[Vec<f64>],
    population: Option<usize>,
    product: &mut Product<'_, E>,
) -> Result<HessianNoise, CurvatureError<E>> {
    let batch = noise::pieces(sizes)?;
    noise::one_a_piece("gradients", sizes.len(), gradients.len())?;
    let dimension = gradients[0].len();
    for gradient in gradients {
        if gradient.len() != dimension {
            return Err(NoiseError::Length {
                what: "components of a gradient",
                expected: dimension,
                found: gradient.len(),
            }
            .into());
        }
    }
    let mut mean = vec![0.0; dimension];
    for (&n, gradient) in sizes.iter().zip(gradients) {
        let weight = n as f64 / batch as f64;
        for (mean, g) in mean.iter_mut().zip(gradient) {
            *mean += weight * g;
        }
    }
    let mut image = vec![0.0; dimension];
    let mut deviation = vec![0.0; dimension];
    let mut spread = 0.0;
    for (&n, gradient) in sizes.iter().zip(gradients) {
        for ((d, g), mean) in deviation.iter_mut().zip(gradient).zip(&mean) {
            *d = g - mean;
        }
        product(&deviation, &mut image).map_err(CurvatureError::Product)?;
        spread += n as f64 * dot(&deviation, &image);
    }
    product(&mean, &mut image).map_err(CurvatureError::Product)?;
    let tr_h_sigma = spread / (sizes.len() - 1) as f64;
    Ok(HessianNoise {
        tr_h_sigma,
        ghg: dot(&mean, &image) - tr_h_sigma * noise::share_of_mean(batch as f64, population),
        products: sizes.len() + 1,
    })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::objective::{Batch, NoisyQuadratic, Objective, StatisticsMode};

    const SEARCH: PowerIteration = PowerIteration {
        products: 1000,
        tolerance: 1e-12,
        seed: 0,
    };

    #[track_caller]
    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "{found} instead of {expected}"
        );
    }

    /// The product with a symmetric matrix given by rows.
    fn matrix(rows: Vec<Vec<f64>>) -> impl FnMut(&[f64], &mut [f64]) -> Result<(), Infallible> {
        move |v, out| {
            for (out, row) in out.iter_mut().zip(&rows) {
                *out = dot(row, v);
            }
            Ok(())
        }
    }

    fn diagonal(values: &[f64]) -> Vec<Vec<f64>> {
        let row = |i: usize| (0..values.len()).map(move |j| if i == j { values[i] } else { 0.0 });
        (0..values.len()).map(|i| row(i).collect()).collect()
    }

    /// Gradient of the mean logistic loss log(1 + exp(-y x't)).
    fn logistic(
        inputs: &[[f64; 3]],
        labels: &[f64],
    ) -> impl FnMut(&[f64], &mut [f64]) -> Result<(), Infallible> {
        move |t, out| {
            out.fill(0.0);
            for (x, y) in inputs.iter().zip(labels) {
                let factor = -y / (1.0 + (y * dot(x, t)).exp()) / inputs.len() as f64;
                for (out, x) in out.iter_mut().zip(x) {
                    *out += factor * x;
                }
            }
            Ok(())
        }
    }

    const INPUTS: [[f64; 3]; 5] = [
        [1.0, 0.3, -2.0],
        [0.2, -1.1, 0.4],
        [-0.7, 2.0, 0.1],
        [1.5, 1.5, -0.3],
        [0.0, 0.9, 1.2],
    ];
    const LABELS: [f64; 5] = [1.0, -1.0, 1.0, 1.0, -1.0];

    /// (1/N) sum s(1 - s) x x', s = 1/(1 + exp(-x't)).
    fn logistic_hessian(t: &[f64]) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0; 3]; 3];
        for x in &INPUTS {
            let s = 1.0 / (1.0 + (-dot(x, t)).exp());
            for i in 0..3 {
                for j in 0..3 {
                    rows[i][j] += s * (1.0 - s) * x[i] * x[j] / INPUTS.len() as f64;
                }
            }
        }
        rows
    }

    #[test]
    fn products_are_those_of_the_closed_form_at_any_length() {
        for scale in [1.0, 100.0] {
            // The same logits at t and at 100 t with inputs a hundredth as long.
            let t = [0.4 * scale, -0.2 * scale, 0.9 * scale];
            let inputs = INPUTS.map(|x| x.map(|x| x / scale));
            let small: Vec<f64> = t.iter().map(|t| t / scale).collect();
            let rows = logistic_hessian(&small);
            let mut gradient = logistic(&inputs, &LABELS);
            let mut hessian = Hessian::new(&t, &mut gradient);
            for length in [1e-8, 1.0, 1e8] {
                let v = [0.5 * length, length, -2.0 * length];
                let mut found = [0.0; 3];
                hessian.product(&v, &mut found).unwrap();
                for (found, row) in found.iter().zip(&rows) {
                    let expected = dot(row, &v) / (scale * scale);
                    close(*found, expected, 1e-9 * length / (scale * scale));
                }
            }
            assert_eq!(hessian.products(), 3);
        }
    }

    #[test]
    fn a_product_with_nothing_is_nothing() {
        let mut gradient = logistic(&INPUTS, &LABELS);
        let mut hessian = Hessian::new(&[0.0; 3], &mut gradient);
        let mut found = [7.0; 3];
        hessian.product(&[0.0; 3], &mut found).unwrap();
        assert_eq!(found, [0.0; 3]);
        assert_eq!(hessian.products(), 0);
    }

    #[test]
    fn the_top_eigenvalue_of_known_matrices_is_found() {
        let top = |rows| {
            let rows: Vec<Vec<f64>> = rows;
            let dimension = rows.len();
            top_eigenvalue(&mut matrix(rows), dimension, &SEARCH).unwrap()
        };
        let positive = top(diagonal(&[1.0, 5.0, -2.0, 4.0]));
        assert!(positive.converged);
        close(positive.value, 5.0, 1e-9);
        assert!(positive.residual <= 1e-6 * 5.0);
        // The largest in magnitude is negative.
        let negative = top(diagonal(&[1.0, -6.0, 2.0]));
        assert!(negative.converged);
        close(negative.value, -6.0, 1e-9);
        // Rank one, a a' with |a|^2 = 14: at rest with the second product.
        let a = [1.0, 2.0, 3.0];
        let one = top(a
            .iter()
            .map(|x| a.iter().map(|y| x * y).collect())
            .collect());
        assert!(one.converged);
        close(one.value, 14.0, 1e-12);
        assert!(one.products <= 3);
    }

    #[test]
    fn the_top_eigenvalue_of_the_logistic_loss_is_that_of_its_closed_form() {
        let t = [0.4, -0.2, 0.9];
        let exact = top_eigenvalue(&mut matrix(logistic_hessian(&t)), 3, &SEARCH).unwrap();
        let mut gradient = logistic(&INPUTS, &LABELS);
        let mut hessian = Hessian::new(&t, &mut gradient);
        let mut product = |v: &[f64], out: &mut [f64]| hessian.product(v, out);
        // Differences of gradients do not come to rest at 1e-12.
        let search = PowerIteration {
            tolerance: 1e-9,
            ..SEARCH
        };
        let found = top_eigenvalue(&mut product, 3, &search).unwrap();
        assert!(exact.converged && found.converged);
        close(found.value, exact.value, 1e-8);
        assert_eq!(found.products, hessian.products());
    }

    #[test]
    fn two_eigenvalues_of_one_magnitude_are_not_taken_for_one() {
        let search = PowerIteration {
            products: 50,
            tolerance: 0.01,
            seed: 3,
        };
        let found = top_eigenvalue(&mut matrix(diagonal(&[1.0, -1.0])), 2, &search).unwrap();
        assert!(!found.converged);
        assert_eq!(found.products, 50);
        assert!(found.residual > 0.1);
    }

    #[test]
    fn a_matrix_of_zeros_has_the_eigenvalue_zero() {
        let mut flat = |_: &[f64], out: &mut [f64]| -> Result<(), Infallible> {
            // The gradient of a linear function.
            out.copy_from_slice(&[1.0, -2.0, 0.5]);
            Ok(())
        };
        let mut hessian = Hessian::new(&[0.3, 0.1, 9.0], &mut flat);
        let mut product = |v: &[f64], out: &mut [f64]| hessian.product(v, out);
        let found = top_eigenvalue(&mut product, 3, &SEARCH).unwrap();
        let expected = TopEigenvalue {
            value: 0.0,
            residual: 0.0,
            products: 1,
            converged: true,
        };
        assert_eq!(found, expected);
        let mut nothing = matrix(Vec::new());
        assert_eq!(
            top_eigenvalue(&mut nothing, 0, &SEARCH).unwrap().products,
            0
        );
    }

    #[test]
    fn what_is_not_finite_does_not_converge() {
        let mut broken = |_: &[f64], out: &mut [f64]| -> Result<(), Infallible> {
            out.fill(f64::NAN);
            Ok(())
        };
        let found = top_eigenvalue(&mut broken, 2, &SEARCH).unwrap();
        assert!(!found.converged && found.value.is_nan());
        assert_eq!(found.products, 1);
    }

    #[test]
    fn errors_of_the_gradient_come_through() {
        let mut failing = |_: &[f64], _: &mut [f64]| Err("no device");
        let mut hessian = Hessian::new(&[1.0], &mut failing);
        assert_eq!(hessian.product(&[1.0], &mut [0.0]), Err("no device"));
        let mut failing = |_: &[f64], _: &mut [f64]| Err("no device");
        let gradients = [vec![1.0], vec![2.0]];
        let error = hessian_noise(&[1, 1], &gradients, None, &mut failing).unwrap_err();
        assert!(error.to_string().contains("no device"), "{error}");
        let error = hessian_noise(&[2], &gradients[..1], None, &mut failing).unwrap_err();
        assert!(error.to_string().contains("at least 2 pieces"), "{error}");
        let ragged = [vec![1.0], vec![2.0, 3.0]];
        assert!(hessian_noise(&[1, 1], &ragged, None, &mut failing).is_err());
    }

    /// h_i = 1/i, Sigma = diag(h): tr(H Sigma) = sum h_i^2 and, at theta_i = 1, G'HG = sum h_i^3.
    /// Batches of 2 + 3 + 5 + 6 examples; the products by differences of the model's gradient.
    #[test]
    fn the_hessian_noise_of_the_noisy_quadratic_is_its_closed_form() {
        let dimension = 20;
        let model = NoisyQuadratic::new(dimension, 5);
        let theta = vec![1.0; dimension];
        let gradient = |t: &[f64], ids: std::ops::Range<u64>, out: &mut [f64]| {
            let batch = Batch {
                features: Vec::<f64>::new(),
                labels: Vec::new(),
                groups: vec![(ids.end - ids.start) as usize],
                ids: ids.collect(),
            };
            let point = model.at(t)?;
            point.gradient(batch, StatisticsMode::Batch, 1.0, out)?;
            Ok::<(), crate::objective::ObjectiveError>(())
        };
        let mut whole = |t: &[f64], out: &mut [f64]| gradient(t, 0..8, out);
        let mut hessian = Hessian::new(&theta, &mut whole);
        let mut product = |v: &[f64], out: &mut [f64]| hessian.product(v, out);
        let (sizes, rounds) = ([2, 3, 5, 6], 600u64);
        let mut values = Vec::new();
        for round in 0..rounds {
            let mut first = 1000 + 16 * round;
            let gradients: Vec<Vec<f64>> = sizes
                .iter()
                .map(|&n| {
                    let mut out = vec![0.0; dimension];
                    gradient(&theta, first..first + n as u64, &mut out).unwrap();
                    first += n as u64;
                    out
                })
                .collect();
            let noise = hessian_noise(&sizes, &gradients, None, &mut product).unwrap();
            assert_eq!(noise.products, 5);
            values.push((noise.tr_h_sigma, noise.ghg));
        }
        let sum = |k: i32| (1..=20).map(|i| f64::from(i).powi(-k)).sum::<f64>();
        for (pick, expected) in [(0, sum(2)), (1, sum(3))] {
            let of = |v: &(f64, f64)| if pick == 0 { v.0 } else { v.1 };
            let moments = crate::math::statistics::Moments::of(values.iter().map(of));
            let error = moments.standard_deviation().unwrap() / (rounds as f64).sqrt();
            close(moments.mean().unwrap(), expected, 4.0 * error);
        }
    }
}
