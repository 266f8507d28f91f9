//! The spectral density of a symmetric matrix by stochastic Lanczos quadrature.
//!
//! For a random unit vector u, Lanczos's method gives a tridiagonal matrix T whose eigenvalues are
//! the nodes, and the squared first components of whose eigenvectors are the weights, of a Gauss
//! quadrature: sum_i w_i f(node_i) = u'f(A)u, exactly for polynomials f up to degree 2 steps - 1
//! (Golub and Meurant 2010, chapter 6). With u = z/|z|, z of independent components +-1 or standard
//! normal, E[u'f(A)u] = tr(f(A))/n, so the mean over probes estimates the spectral density: its
//! moments, and a picture of it by Gaussian kernels (Lin, Saad and Yang 2016; Ghorbani, Krishnan and
//! Xiao 2019).
//!
//! Every basis vector is orthogonalized against all before it, twice. Where the Krylov space of a
//! probe ends, the quadrature is exact for all f, and the probe ends with fewer nodes.

use std::mem;

use crate::math::lanczos::{fresh, is_rounding, orthogonalize};
use crate::math::operator::{Draw, SymmetricOperator, norm};
use crate::math::statistics::Moments;
use crate::math::tridiagonal::{Rows, tridiagonal};

/// How much work a spectral density is worth: at most `probes` times `steps` products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DensitySearch {
    /// Random vectors. The standard error of all results falls with the square root of this.
    pub probes: usize,
    /// Lanczos steps for each, the most nodes; as many vectors are held. Details of the spectrum
    /// finer than its range divided by this are not seen, outside of its ends.
    pub steps: usize,
}

impl Default for DensitySearch {
    /// 10 probes of 100 steps.
    fn default() -> Self {
        Self {
            probes: 10,
            steps: 100,
        }
    }
}

/// The quadrature that one probe gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Quadrature {
    /// Nodes, ascending: estimates of eigenvalues.
    pub nodes: Vec<f64>,
    /// Weights, not negative, of sum 1.
    pub weights: Vec<f64>,
}

/// A mean over probes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeMean {
    /// The mean; `NaN` without probes.
    pub value: f64,
    /// Standard error of the mean; `None` of fewer than two probes.
    pub standard_error: Option<f64>,
}

impl ProbeMean {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let moments = Moments::of(values);
        Self {
            value: moments.mean().unwrap_or(f64::NAN),
            standard_error: moments
                .standard_deviation()
                .map(|deviation| deviation / (moments.n() as f64).sqrt()),
        }
    }
}

/// The spectral density of a matrix: n^-1 times the sum of a unit mass at each eigenvalue.
#[derive(Debug, Clone, PartialEq)]
pub struct SpectralDensity {
    /// One for each probe.
    pub probes: Vec<Quadrature>,
    /// Products made.
    pub products: usize,
    /// Whether all probes asked for are here. A product that is not finite ends the work, without
    /// its probe.
    pub finished: bool,
}

/// A density on a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct SmoothDensity {
    /// Standard deviation of the Gaussian kernels, in units of the eigenvalues.
    pub width: f64,
    /// Evenly spaced abscissae, from five widths below the first node to five above the last.
    pub at: Vec<f64>,
    /// The density at each, per unit of the eigenvalues; its integral over the grid is 1.
    pub density: Vec<ProbeMean>,
}

/// The spectral density of a matrix. `draw` fills vectors with +-1 or standard normal numbers; their
/// length does not matter.
///
/// # Errors
/// Those of the products.
pub fn spectral_density<O: SymmetricOperator>(
    matrix: &mut O,
    search: &DensitySearch,
    draw: &mut Draw,
) -> Result<SpectralDensity, O::Error> {
    let n = matrix.dimension();
    let mut density = SpectralDensity {
        probes: Vec::new(),
        products: 0,
        finished: true,
    };
    if n == 0 || search.steps == 0 {
        density.finished = search.probes == 0;
        return Ok(density);
    }
    for _ in 0..search.probes {
        let quadrature = probe(matrix, search.steps, &mut density.products, draw)?;
        let Some(quadrature) = quadrature else {
            density.finished = false;
            break;
        };
        density.probes.push(quadrature);
    }
    Ok(density)
}

fn probe<O: SymmetricOperator>(
    matrix: &mut O,
    steps: usize,
    products: &mut usize,
    draw: &mut Draw,
) -> Result<Option<Quadrature>, O::Error> {
    let n = matrix.dimension();
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let mut next = fresh(&[], n, draw);
    let (mut diagonal, mut beside) = (Vec::new(), Vec::new());
    let mut scale = 0.0_f64;
    loop {
        let mut image = vec![0.0; n];
        matrix.apply(&next, &mut image)?;
        *products += 1;
        let length = norm(&image);
        if !length.is_finite() {
            return Ok(None);
        }
        scale = scale.max(length);
        basis.push(mem::take(&mut next));
        let projection = orthogonalize(&basis, &mut image);
        diagonal.extend(projection.last());
        let rest = norm(&image);
        if basis.len() == steps.min(n) || is_rounding(rest, scale) {
            break;
        }
        beside.push(rest);
        for x in &mut image {
            *x /= rest;
        }
        next = image;
    }
    let eigen = tridiagonal(&diagonal, &beside, Rows::First);
    Ok(eigen.map(|eigen| Quadrature {
        nodes: eigen.values,
        weights: eigen
            .vectors
            .iter()
            .map(|first| first[0] * first[0])
            .collect(),
    }))
}

impl SpectralDensity {
    /// tr(A^power)/n.
    pub fn moment(&self, power: i32) -> ProbeMean {
        self.mean(|node| node.powi(power))
    }

    /// tr(f(A))/n.
    pub fn mean(&self, f: impl Fn(f64) -> f64) -> ProbeMean {
        ProbeMean::of(self.probes.iter().map(|probe| probe.integral(&f)))
    }

    /// All nodes with their weights divided by the number of probes, ascending: weights of sum 1.
    pub fn nodes(&self) -> Vec<(f64, f64)> {
        let share = 1.0 / self.probes.len() as f64;
        let mut nodes: Vec<(f64, f64)> = self
            .probes
            .iter()
            .flat_map(|probe| probe.nodes.iter().zip(&probe.weights))
            .map(|(&node, &weight)| (node, share * weight))
            .collect();
        nodes.sort_by(|a, b| a.0.total_cmp(&b.0));
        nodes
    }

    /// The smallest and the largest node; `None` without probes.
    pub fn range(&self) -> Option<(f64, f64)> {
        let ends = self.probes.iter().filter_map(|probe| {
            let (first, last) = (probe.nodes.first()?, probe.nodes.last()?);
            Some((*first, *last))
        });
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The distance that nodes have on average in the probe with most of them, (range)/(nodes - 1):
    /// narrower kernels show single nodes, which move from probe to probe. Where all nodes
    /// coincide, a hundredth of their magnitude, or 0.01 if they are 0. `None` without probes.
    pub fn default_width(&self) -> Option<f64> {
        let (low, high) = self.range()?;
        let most = self.probes.iter().map(|probe| probe.nodes.len()).max()?;
        let spacing = (high - low) / most.saturating_sub(1).max(1) as f64;
        let magnitude = low.abs().max(high.abs());
        // Nodes of one eigenvalue differ by rounding from probe to probe.
        Some(if spacing > 1e-12 * magnitude {
            spacing
        } else if magnitude > 0.0 {
            0.01 * magnitude
        } else {
            0.01
        })
    }

    /// The density smoothed by Gaussian kernels of this width (standard deviation), on `points`
    /// abscissae, at least 32. Widths below the distance of the abscissae are raised to it, so that
    /// no kernel falls between them; `width` of the result is the one that was used. `None` without
    /// probes, or if the width is not positive.
    pub fn smooth(&self, width: f64, points: usize) -> Option<SmoothDensity> {
        if !(width > 0.0 && width.is_finite()) {
            return None;
        }
        let (low, high) = self.range()?;
        let intervals = points.max(32) - 1;
        // (high - low + 10 width)/intervals <= width
        let width = width.max((high - low) / (intervals - 10) as f64);
        let start = low - 5.0 * width;
        let spacing = (high - low + 10.0 * width) / intervals as f64;
        let at: Vec<f64> = (0..=intervals)
            .map(|i| start + spacing * i as f64)
            .collect();
        let height = 1.0 / (width * (2.0 * std::f64::consts::PI).sqrt());
        let density = at.iter().map(|&x| {
            self.mean(|node| {
                let distance = (x - node) / width;
                height * (-0.5 * distance * distance).exp()
            })
        });
        Some(SmoothDensity {
            width,
            density: density.collect(),
            at,
        })
    }
}

impl Quadrature {
    fn integral(&self, f: impl Fn(f64) -> f64) -> f64 {
        let terms = self.nodes.iter().zip(&self.weights);
        terms.map(|(&node, weight)| weight * f(node)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::lanczos::examples::{Full, Known, Random, floats, reference};
    use crate::math::operator::Operator;

    fn measure<O: SymmetricOperator>(
        matrix: &mut O,
        probes: usize,
        steps: usize,
        seed: u64,
    ) -> SpectralDensity
    where
        O::Error: std::fmt::Debug,
    {
        let mut random = Random::new(seed);
        let search = DensitySearch { probes, steps };
        let found = spectral_density(matrix, &search, &mut |v| random.signs(v)).unwrap();
        assert!(found.finished);
        assert_eq!(found.probes.len(), probes);
        for probe in &found.probes {
            let sum: f64 = probe.weights.iter().sum();
            assert!((sum - 1.0).abs() < 1e-13, "{sum}");
            assert!(probe.weights.iter().all(|weight| *weight >= 0.0));
            assert!(probe.nodes.is_sorted());
            assert!(probe.nodes.len() <= steps);
        }
        let nodes = found.nodes();
        assert!((nodes.iter().map(|node| node.1).sum::<f64>() - 1.0).abs() < 1e-13);
        found
    }

    #[test]
    fn moments_over_a_whole_basis_are_exact() {
        let reference = &reference()["random"];
        let n = reference["n"].as_u64().unwrap() as usize;
        let mut matrix = Full::random(n);
        let expected = floats(&reference["moments"]);
        for (steps, beyond) in [(1, 2), (2, 4), (3, 6), (4, 8)] {
            let mut at = 0;
            let mut unit = |v: &mut [f64]| {
                v.fill(0.0);
                v[at] = 1.0;
                at += 1;
            };
            let search = DensitySearch { probes: n, steps };
            let found = spectral_density(&mut matrix, &search, &mut unit).unwrap();
            assert_eq!(found.products, n * steps);
            // Exact up to the power 2 steps - 1, and not beyond.
            for (power, expected) in (0..beyond).zip(&expected) {
                let moment = found.moment(power);
                let scale = expected.abs().max(1.0);
                assert!(
                    (moment.value - expected).abs() < 1e-12 * scale,
                    "{steps} {power}"
                );
            }
            if let Some(expected) = expected.get(2 * steps) {
                let moment = found.moment(beyond);
                assert!((moment.value - expected).abs() > 1e-3 * expected.abs());
            }
        }
    }

    #[test]
    fn moments_of_random_starts_lie_within_their_standard_errors() {
        let reference = &reference()["random"];
        let expected = floats(&reference["moments"]);
        let mut matrix = Full::random(200);
        let mut random = Random::new(3);
        let trials = 100;
        let mut covered = [0; 7];
        for trial in 0..trials {
            let found = if trial % 2 == 0 {
                measure(&mut matrix, 30, 5, trial)
            } else {
                let search = DensitySearch {
                    probes: 30,
                    steps: 5,
                };
                spectral_density(&mut matrix, &search, &mut |v| random.normal(v)).unwrap()
            };
            for ((power, count), expected) in (0..).zip(&mut covered).zip(&expected) {
                let moment = found.moment(power);
                let error = (moment.value - expected).abs();
                let bound = 2.0 * moment.standard_error.unwrap() + 1e-12;
                *count += i32::from(error <= bound);
            }
        }
        assert_eq!(covered[0], 100);
        // 94.5 expected of 100 trials, standard deviation 2.3.
        assert!(covered.iter().all(|count| *count >= 87), "{covered:?}");
    }

    #[test]
    fn an_ended_krylov_space_leaves_exact_nodes() {
        for (values, most) in [
            (vec![2.0; 50], 1),
            (vec![0.0; 50], 1),
            ((0..60).map(|i| f64::from(i % 3)).collect(), 3),
            (vec![-4.0], 1),
            ((0..5).map(f64::from).collect(), 5),
        ] {
            let mut matrix = Known::new(&values, 2);
            let found = measure(&mut matrix, 4, 30, 1);
            assert_eq!(found.products, matrix.products);
            for probe in &found.probes {
                assert!(probe.nodes.len() <= most);
                for node in &probe.nodes {
                    assert!(values.iter().any(|value| (value - node).abs() < 1e-13));
                }
            }
        }
        // Rank one: the weight of the eigenvalue is its share of all of them, on average.
        let mut values = vec![0.0; 40];
        values[0] = 5.0;
        let found = measure(&mut Known::new(&values, 1), 400, 10, 1);
        let mean = found.mean(|node| f64::from(u8::from(node > 2.5)));
        assert!((mean.value - 1.0 / 40.0).abs() < 4.0 * mean.standard_error.unwrap());
    }

    #[test]
    fn first_components_alone_make_the_weights() {
        // From the start e_1 of a matrix that couples it to two eigenvalues only, the weights are
        // the squares of its components there, whatever the rest of the eigenvectors holds.
        let mut matrix = Full(vec![
            vec![2.0, 1.0, 0.0],
            vec![1.0, 2.0, 0.0],
            vec![0.0, 0.0, 7.0],
        ]);
        let search = DensitySearch {
            probes: 1,
            steps: 3,
        };
        let mut start = |v: &mut [f64]| v.copy_from_slice(&[1.0, 0.0, 0.0]);
        let found = spectral_density(&mut matrix, &search, &mut start).unwrap();
        let probe = &found.probes[0];
        for (node, expected) in probe.nodes.iter().zip([1.0, 3.0]) {
            assert!((node - expected).abs() < 1e-14);
        }
        assert!(
            probe
                .weights
                .iter()
                .all(|weight| (weight - 0.5).abs() < 1e-14)
        );
        assert_eq!((probe.nodes.len(), found.products), (2, 2));
        assert_eq!(found.moment(1).standard_error, None);
    }

    #[test]
    fn the_whole_spectrum_comes_out_with_as_many_steps_as_rows() {
        let expected = floats(&reference()["random"]["eigenvalues"]);
        let found = measure(&mut Full::random(200), 1, 300, 4);
        for (node, value) in found.probes[0].nodes.iter().zip(&expected) {
            assert!((node - value).abs() < 1e-11);
        }
        assert_eq!((found.probes[0].nodes.len(), found.products), (200, 200));
    }

    #[test]
    fn the_smooth_density_is_that_of_the_eigenvalues() {
        let mut random = Random::new(9);
        let values: Vec<f64> = (0..2000).map(|_| 3.0 * random.uniform() - 1.0).collect();
        let found = measure(&mut Known::new(&values, 1), 10, 60, 2);
        let width = 0.2;
        let smooth = found.smooth(width, 400).unwrap();
        assert_eq!(smooth.width, width);
        let kernel = |x: f64| {
            (-0.5 * (x / width).powi(2)).exp() / (width * (2.0 * std::f64::consts::PI).sqrt())
        };
        for (x, density) in smooth.at.iter().zip(&smooth.density) {
            let truth = values.iter().map(|value| kernel(x - value)).sum::<f64>() / 2000.0;
            // Four standard errors, about 0.01; the density is 1/3 in the middle.
            let bound = 4.0 * density.standard_error.unwrap() + 1e-3;
            assert!(
                (density.value - truth).abs() < bound.min(0.05),
                "{x} {density:?} {truth}"
            );
        }
    }

    #[test]
    fn smooth_densities_have_the_integral_1() {
        for values in [
            vec![3.0; 20],
            vec![0.0; 5],
            (0..99).map(f64::from).collect(),
        ] {
            let found = measure(&mut Known::new(&values, 1), 3, 40, 2);
            let default = found.default_width().unwrap();
            assert!(default > 0.0);
            for width in [default, 1e-9, 10.0] {
                for points in [0, 100, 1000] {
                    let smooth = found.smooth(width, points).unwrap();
                    assert_eq!(smooth.at.len(), points.max(32));
                    assert!(smooth.width >= width);
                    let sum: f64 = smooth.density.iter().map(|density| density.value).sum();
                    let ends = smooth.at[smooth.at.len() - 1] - smooth.at[0];
                    let integral = sum * ends / (smooth.at.len() - 1) as f64;
                    assert!((integral - 1.0).abs() < 1e-5, "{width} {points} {integral}");
                }
            }
            assert_eq!(found.smooth(0.0, 100), None);
            assert_eq!(found.smooth(f64::NAN, 100), None);
        }
    }

    #[test]
    fn nothing_to_measure_is_an_empty_density() {
        for (n, probes, steps) in [(0, 3, 3), (3, 0, 3), (3, 3, 0)] {
            let mut random = Random::new(0);
            let search = DensitySearch { probes, steps };
            let mut matrix = Known::new(&vec![1.0; n], 1);
            let found = spectral_density(&mut matrix, &search, &mut |v| random.signs(v)).unwrap();
            assert_eq!((found.products, found.finished), (0, probes == 0));
            assert_eq!((found.range(), found.smooth(1.0, 50)), (None, None));
            assert!(found.nodes().is_empty() && found.moment(1).value.is_nan());
        }
    }

    #[test]
    fn a_product_that_is_not_finite_ends_the_work() {
        let mut random = Random::new(0);
        let mut count = 0;
        let mut matrix = Operator::new(30, |v: &[f64], product: &mut [f64]| {
            for (i, (x, v)) in product.iter_mut().zip(v).enumerate() {
                *x = i as f64 * v;
            }
            count += 1;
            if count == 15 {
                product[3] = f64::INFINITY;
            }
            if count == 16 { Err("no more") } else { Ok(()) }
        });
        let search = DensitySearch {
            probes: 4,
            steps: 10,
        };
        let found = spectral_density(&mut matrix, &search, &mut |v| random.signs(v)).unwrap();
        assert_eq!((found.products, found.finished), (15, false));
        assert_eq!(found.probes.len(), 1);
        let found = spectral_density(&mut matrix, &search, &mut |v| random.signs(v));
        assert_eq!(found, Err("no more"));
    }
}
