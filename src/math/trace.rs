//! The trace of a symmetric matrix, from products with random vectors.
//!
//! Hutchinson (1990): E[z'Az] = tr(A) for a random vector z of independent components with mean 0
//! and variance 1. With z_i = +1 or -1 the variance is 2 (|A|_F^2 - sum a_ii^2), with normal z_i it
//! is 2 |A|_F^2: take +-1. With components z_b of a block alone, z_b'(Az)_b is such an estimate of
//! the trace of the diagonal block, so that one product serves all blocks.
//!
//! Standard errors are those of the mean over the probes, sd/sqrt(probes). A search stops by its
//! standard error, never by the change of its mean, which is small between any two probes after
//! many, and by luck between the first two.

use std::mem;
use std::ops::Range;

use crate::math::lanczos::{Space, fresh, is_rounding, orthogonalize, project_out};
use crate::math::operator::{Draw, SymmetricOperator, dot, norm};
use crate::math::statistics::Moments;

/// Probes that are drawn at once, so that the vectors that they are made orthogonal to are read once for
/// all of them.
const AT_ONCE: usize = 4;

/// How long to look for a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceSearch {
    /// Converged when the standard error is at most this share of the magnitude of the estimate.
    pub tolerance: f64,
    /// Fewest probes that a standard error is trusted from, at least 2. A search that stops as soon
    /// as its standard error is small stops early where this is underestimated; from 30 probes the
    /// error of the standard error is 13 %.
    pub min_probes: usize,
    /// Most products.
    pub max_products: usize,
}

impl Default for TraceSearch {
    /// To 1 %, from 30 to 1000 products.
    fn default() -> Self {
        Self {
            tolerance: 0.01,
            min_probes: 30,
            max_products: 1000,
        }
    }
}

/// The estimate of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceEstimate {
    /// The estimate; `NaN` if a product was not finite, or without any product.
    pub value: f64,
    /// Its standard error: 0 where the trace is exact, `None` of fewer than two probes or if a
    /// product was not finite.
    pub standard_error: Option<f64>,
    /// Products made.
    pub products: usize,
    /// Whether the standard error is within the tolerance, from enough probes.
    pub converged: bool,
}

impl TraceEstimate {
    /// A trace that is known up to rounding.
    pub fn exact(value: f64, products: usize) -> Self {
        let finite = value.is_finite();
        Self {
            value: if finite { value } else { f64::NAN },
            standard_error: finite.then_some(0.0),
            products,
            converged: finite,
        }
    }

    /// From a known part of the trace and probes of the rest.
    fn of(known: f64, rest: &Moments, products: usize, search: &TraceSearch) -> Self {
        let value = known + rest.mean().unwrap_or(f64::NAN);
        let standard_error = rest
            .standard_deviation()
            .map(|deviation| deviation / (rest.n() as f64).sqrt())
            .filter(|error| error.is_finite() && value.is_finite());
        let within = standard_error.is_some_and(|e| e <= search.tolerance * value.abs());
        Self {
            value: if value.is_finite() { value } else { f64::NAN },
            standard_error,
            products,
            converged: within && rest.n() >= search.min_probes,
        }
    }
}

/// The trace by Hutchinson's estimator. `draw` fills probes with +1 and -1 (or standard normal
/// numbers).
///
/// # Errors
/// Those of the products.
pub fn hutchinson<O: SymmetricOperator>(
    matrix: &mut O,
    search: &TraceSearch,
    draw: &mut Draw,
) -> Result<TraceEstimate, O::Error> {
    let whole = 0..matrix.dimension();
    Ok(block_traces(matrix, &[whole], search, draw)?[0])
}

/// The traces of the diagonal blocks of these rows, all from the same probes, until all have
/// converged. Blocks may overlap and need not cover the matrix; one without rows has the trace 0,
/// exactly. The estimates of two blocks are correlated.
///
/// # Errors
/// Those of the products.
///
/// # Panics
/// If a block reaches beyond the matrix.
pub fn block_traces<O: SymmetricOperator>(
    matrix: &mut O,
    blocks: &[Range<usize>],
    search: &TraceSearch,
    draw: &mut Draw,
) -> Result<Vec<TraceEstimate>, O::Error> {
    let n = matrix.dimension();
    let mut probe = vec![0.0; n];
    let mut image = vec![0.0; n];
    let mut moments = vec![Moments::default(); blocks.len()];
    let mut products = 0;
    loop {
        let estimates: Vec<TraceEstimate> = blocks
            .iter()
            .zip(&moments)
            .map(|(block, moments)| {
                if block.is_empty() {
                    TraceEstimate::exact(0.0, products)
                } else {
                    TraceEstimate::of(0.0, moments, products, search)
                }
            })
            .collect();
        let broken = products > 0 && estimates.iter().any(|estimate| estimate.value.is_nan());
        if broken || products == search.max_products || estimates.iter().all(|e| e.converged) {
            return Ok(estimates);
        }
        draw(&mut probe);
        matrix.apply(&probe, &mut image)?;
        products += 1;
        for (moments, block) in moments.iter_mut().zip(blocks) {
            moments.push(dot(&probe[block.clone()], &image[block.clone()]));
        }
    }
}

/// The trace by Hutch++ (Meyer, Musco, Musco and Woodruff 2021), where few eigenvalues make up much
/// of it.
///
/// A third of the products, k = `max_products`/3, finds an orthonormal basis Q of A S for a random
/// n x k matrix S, a third gives tr(Q'AQ) exactly, and a third estimates the rest,
/// tr((1 - QQ')A(1 - QQ')), by Hutchinson. The estimate has no bias; its standard error is that of
/// the rest, given Q. The error falls like 1/products rather than 1/sqrt(products) for a
/// semidefinite A. Stops before the last third is spent where the tolerance is met.
///
/// Where n <= `max_products`, n products with the unit vectors give the exact trace, with a standard
/// error of 0. `min_probes` applies to the last third: with fewer products than three times as many the estimate
/// has not converged, whatever its standard error.
///
/// # Errors
/// Those of the products.
pub fn hutch_plus_plus<O: SymmetricOperator>(
    matrix: &mut O,
    search: &TraceSearch,
    draw: &mut Draw,
) -> Result<TraceEstimate, O::Error> {
    let n = matrix.dimension();
    let mut probe = vec![0.0; n];
    let mut image = vec![0.0; n];
    let mut products = 0;
    if n <= search.max_products {
        let mut trace = 0.0;
        for i in 0..n {
            probe.fill(0.0);
            probe[i] = 1.0;
            matrix.apply(&probe, &mut image)?;
            trace += image[i];
        }
        return Ok(TraceEstimate::exact(trace, n));
    }
    let third = search.max_products / 3;
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(third);
    for _ in 0..third {
        draw(&mut probe);
        matrix.apply(&probe, &mut image)?;
        products += 1;
        let length = norm(&image);
        if !length.is_finite() {
            return Ok(TraceEstimate::exact(f64::NAN, products));
        }
        orthogonalize(&basis, &mut image);
        let rest = norm(&image);
        // The range of A is spanned: what is left is rounding.
        if is_rounding(rest, length) {
            break;
        }
        basis.push(image.iter().map(|x| x / rest).collect());
    }
    let mut known = 0.0;
    for vector in &basis {
        matrix.apply(vector, &mut image)?;
        products += 1;
        known += dot(vector, &image);
        if !known.is_finite() {
            return Ok(TraceEstimate::exact(known, products));
        }
    }
    deflated(matrix, &basis, known, products, search, draw)
}

/// tr(A) = sum u'Au over the orthonormal vectors u of `known`, plus Hutchinson's mean over the rest:
/// E[z'Pz] with P = (I - UU')A(I - UU'). Where `known` holds the eigenvectors of the large
/// eigenvalues, the variance is that of the small ones.
///
/// `known_trace` is sum u'Au, and `spent` the products that it took; they count in `max_products`.
/// For any orthonormal vectors that do not depend on the probes there is no bias.
///
/// # Errors
/// Those of the products.
pub fn deflated<O: SymmetricOperator>(
    matrix: &mut O,
    known: &[Vec<f64>],
    known_trace: f64,
    spent: usize,
    search: &TraceSearch,
    draw: &mut Draw,
) -> Result<TraceEstimate, O::Error> {
    let n = matrix.dimension();
    if known.len() >= n {
        return Ok(TraceEstimate::exact(known_trace, spent));
    }
    let (mut probes, mut image) = (vec![vec![0.0; n]; AT_ONCE], vec![0.0; n]);
    let (mut rest, mut products) = (Moments::default(), spent);
    loop {
        let estimate = TraceEstimate::of(known_trace, &rest, products, search);
        let broken = rest.n() > 0 && estimate.value.is_nan();
        if broken || products >= search.max_products || estimate.converged {
            return Ok(estimate);
        }
        let next = rest.n() % AT_ONCE;
        if next == 0 {
            for probe in &mut probes {
                draw(probe);
            }
            project_out(known, &mut probes);
        }
        matrix.apply(&probes[next], &mut image)?;
        products += 1;
        rest.push(dot(&probes[next], &image));
    }
}

/// [`deflated`] by the Krylov space of a random start, of `steps` products, at most a third of all:
/// Lanczos's method finds the large eigenvalues there and their trace on the way, so that a sketch
/// costs half as much as that of [`hutch_plus_plus`] (Chen and Hallman 2023). Best where few
/// eigenvalues are much larger than the others and the trace is wanted to a few per cent.
///
/// # Errors
/// Those of the products.
pub fn krylov_deflated<O: SymmetricOperator>(
    matrix: &mut O,
    steps: usize,
    search: &TraceSearch,
    draw: &mut Draw,
) -> Result<TraceEstimate, O::Error> {
    let space = Space {
        next: fresh(&[], matrix.dimension(), draw),
        ..Space::default()
    };
    space_deflated(matrix, space, steps, search, draw)
}

/// [`deflated`] by a Krylov space that a search for eigenvalues has left, which costs nothing. The space
/// grows by up to `steps` products first, at most a third of all, while the last one took more than one
/// probe's worth out of the variance.
///
/// With R = |(I - VV')A(I - VV')|_F^2, which the variance 2R of a probe is up to the diagonal's part, a
/// vector v that joins V takes 2 b^2 + a^2 from R: a = v'Av, and b is the norm of what is left of A v
/// orthogonal to V and v. So many probes fewer reach the tolerance as 2 (2 b^2 + a^2) has squared
/// tolerances in it.
///
/// # Errors
/// Those of the products.
pub fn space_deflated<O: SymmetricOperator>(
    matrix: &mut O,
    space: Space,
    steps: usize,
    search: &TraceSearch,
    draw: &mut Draw,
) -> Result<TraceEstimate, O::Error> {
    let n = matrix.dimension();
    let Space {
        vectors: mut basis,
        trace: mut known,
        mut next,
    } = space;
    let (mut products, mut scale) = (0, 0.0_f64);
    let steps = steps.min(search.max_products / 3);
    while products < steps && !next.is_empty() {
        let mut image = vec![0.0; n];
        matrix.apply(&next, &mut image)?;
        products += 1;
        let length = norm(&image);
        if !length.is_finite() {
            return Ok(TraceEstimate::exact(f64::NAN, products));
        }
        scale = scale.max(length);
        let own = dot(&next, &image);
        known += own;
        basis.push(mem::take(&mut next));
        orthogonalize(&basis, &mut image);
        let rest = norm(&image);
        if is_rounding(rest, scale) {
            // The Krylov space has ended: what it has not reached is left to the probes.
            break;
        }
        let error = search.tolerance * known;
        if search.tolerance > 0.0 && 2.0 * (2.0 * rest * rest + own * own) < error * error {
            break;
        }
        for x in &mut image {
            *x /= rest;
        }
        next = image;
    }
    deflated(matrix, &basis, known, products, search, draw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::lanczos::examples::{Full, Known, Random, reference};
    use crate::math::lanczos::{EigenSearch, eigenpairs};
    use crate::math::operator::Operator;

    /// `products` in all, whatever the standard error.
    fn exactly(products: usize) -> TraceSearch {
        TraceSearch {
            tolerance: -1.0,
            min_probes: 2,
            max_products: products,
        }
    }

    /// lambda_i = i^-power.
    fn decaying(n: usize, power: i32) -> Known {
        let values: Vec<f64> = (1..=n).map(|i| (i as f64).powi(-power)).collect();
        Known::new(&values, 5)
    }

    /// Mean of the errors, its standard error, their root mean square, and how often the truth lies
    /// within two standard errors.
    fn errors(
        truth: f64,
        seeds: u64,
        mut estimate: impl FnMut(&mut Random) -> TraceEstimate,
    ) -> (f64, f64, f64, f64) {
        let mut moments = Moments::default();
        let (mut squares, mut covered) = (0.0, 0.0);
        for seed in 0..seeds {
            let found = estimate(&mut Random::new(seed));
            let error = found.value - truth;
            moments.push(error);
            squares += error * error;
            covered += f64::from(u8::from(error.abs() <= 2.0 * found.standard_error.unwrap()));
        }
        let n = seeds as f64;
        let standard_error = moments.standard_deviation().unwrap() / n.sqrt();
        (
            moments.mean().unwrap(),
            standard_error,
            (squares / n).sqrt(),
            covered / n,
        )
    }

    #[test]
    fn estimates_have_no_bias_and_honest_standard_errors() {
        // Student's t with 29 degrees of freedom lies within 2 in 94.5 % of all cases; of 600, the
        // standard deviation of the share is 0.9 %.
        let mut matrix = Known::new(&(0..60).map(|i| f64::from(i).sin()).collect::<Vec<_>>(), 2);
        let truth = matrix.trace();
        for normal in [false, true] {
            let (bias, error, _, covered) = errors(truth, 600, |random| {
                let mut draw = |v: &mut [f64]| {
                    if normal {
                        random.normal(v);
                    } else {
                        random.signs(v);
                    }
                };
                hutchinson(&mut matrix, &exactly(30), &mut draw).unwrap()
            });
            assert!(bias.abs() < 4.0 * error, "{bias} {error}");
            assert!((0.92..=0.97).contains(&covered), "{covered}");
        }
        let (bias, error, _, covered) = errors(truth, 600, |random| {
            hutch_plus_plus(&mut matrix, &exactly(45), &mut |v| random.signs(v)).unwrap()
        });
        // 14 degrees of freedom: 93.5 %.
        assert!(bias.abs() < 4.0 * error, "{bias} {error}");
        assert!((0.91..=0.96).contains(&covered), "{covered}");
    }

    #[test]
    fn the_variance_is_that_of_the_closed_form() {
        let Full(rows) = Full::random(30);
        let off: f64 = (0..30)
            .flat_map(|i| (0..30).map(move |j| (i, j)))
            .filter(|(i, j)| i != j)
            .map(|(i, j)| rows[i][j].powi(2))
            .sum();
        let mut matrix = Full(rows);
        let mut random = Random::new(1);
        let found = hutchinson(&mut matrix, &exactly(20_000), &mut |v| random.signs(v)).unwrap();
        let variance = found.standard_error.unwrap().powi(2) * 20_000.0;
        assert!((variance / (2.0 * off) - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_search_that_stops_by_its_standard_error_is_as_exact_as_it_says() {
        let mut matrix = decaying(200, 1);
        let truth = matrix.trace();
        let search = TraceSearch {
            tolerance: 0.03,
            ..TraceSearch::default()
        };
        let mut products = 0;
        let (bias, _, spread, covered) = errors(truth, 400, |random| {
            let found = hutchinson(&mut matrix, &search, &mut |v| random.signs(v)).unwrap();
            assert!(found.converged && found.products >= 30);
            assert!(found.standard_error.unwrap() <= 0.03 * found.value);
            products += found.products;
            found
        });
        assert_eq!(products, matrix.products);
        // Stopping moves the mean by less than a third of the tolerance.
        assert!(
            bias.abs() < 0.01 * truth && spread < 0.035 * truth,
            "{bias} {spread}"
        );
        assert!(covered > 0.9, "{covered}");
    }

    #[test]
    fn deflation_beats_probes_where_eigenvalues_decay_fast() {
        let mut matrix = decaying(500, 2);
        let truth = matrix.trace();
        let (_, _, plain, _) = errors(truth, 100, |random| {
            hutchinson(&mut matrix, &exactly(60), &mut |v| random.signs(v)).unwrap()
        });
        let (bias, error, deflated, _) = errors(truth, 100, |random| {
            let found = hutch_plus_plus(&mut matrix, &exactly(60), &mut |v| random.signs(v));
            let found = found.unwrap();
            assert_eq!(found.products, 60);
            found
        });
        assert!(bias.abs() < 4.0 * error);
        assert!(deflated < 0.05 * plain, "{deflated:e} {plain:e}");
    }

    #[test]
    fn the_trace_is_exact_where_products_suffice() {
        let mut matrix = Known::new(&[3.0, -1.0, 0.5, 9.0], 1);
        let search = TraceSearch {
            max_products: 4,
            ..TraceSearch::default()
        };
        let mut random = Random::new(1);
        let found = hutch_plus_plus(&mut matrix, &search, &mut |v| random.signs(v)).unwrap();
        assert!((found.value - 11.5).abs() < 1e-14);
        assert_eq!((found.standard_error, found.products), (Some(0.0), 4));
        assert!(found.converged);
        // The range of a matrix of low rank is spanned, and what is left is zero.
        let mut values = vec![0.0; 300];
        values[..4].copy_from_slice(&[3.0, -1.0, 0.5, 9.0]);
        let mut matrix = Known::new(&values, 1);
        let search = TraceSearch {
            max_products: 60,
            ..search
        };
        let found = hutch_plus_plus(&mut matrix, &search, &mut |v| random.signs(v)).unwrap();
        assert!((found.value - 11.5).abs() < 1e-12 && found.standard_error.unwrap() < 1e-12);
        assert!(found.converged);
        assert_eq!(found.products, matrix.products);
        // 5 products see that the rank is 4, 4 give the trace, 30 the rest.
        assert_eq!(found.products, 39);
        // Signs have no variance on a diagonal matrix.
        let mut diagonal = Operator::new(50, |v: &[f64], product: &mut [f64]| {
            for (i, (x, v)) in product.iter_mut().zip(v).enumerate() {
                *x = i as f64 * v;
            }
            Ok::<(), ()>(())
        });
        let search = TraceSearch::default();
        let found = hutchinson(&mut diagonal, &search, &mut |v| random.signs(v)).unwrap();
        assert_eq!((found.value, found.standard_error), (1225.0, Some(0.0)));
        assert_eq!(found.products, 30);
    }

    #[test]
    fn blocks_of_a_random_matrix_agree_with_numpy() {
        let reference = &reference()["random"];
        let n = reference["n"].as_u64().unwrap() as usize;
        let cases = reference["block_traces"].as_array().unwrap();
        let place = |case: &serde_json::Value, key: &str| case[key].as_u64().unwrap() as usize;
        let mut blocks: Vec<Range<usize>> = cases
            .iter()
            .map(|case| place(case, "from")..place(case, "to"))
            .collect();
        let mut expected: Vec<f64> = cases
            .iter()
            .map(|case| case["value"].as_f64().unwrap())
            .collect();
        blocks.push(0..n);
        expected.push(expected.iter().sum());
        let moment = reference["moments"][1].as_f64().unwrap();
        assert!((expected[3] - n as f64 * moment).abs() < 1e-10);
        let mut matrix = Full::random(n);
        let mut sums = vec![0.0; blocks.len()];
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let draw: &mut Draw = &mut |v| random.signs(v);
            let found = block_traces(&mut matrix, &blocks, &exactly(50), draw).unwrap();
            let parts: f64 = found[..3].iter().map(|estimate| estimate.value).sum();
            assert!((parts - found[3].value).abs() < 1e-10);
            for ((sum, estimate), truth) in sums.iter_mut().zip(&found).zip(&expected) {
                assert_eq!(estimate.products, 50);
                *sum += (estimate.value - truth) / estimate.standard_error.unwrap();
            }
        }
        // Means of 100 errors in units of their standard errors.
        assert!(sums.iter().all(|sum| (sum / 100.0).abs() < 0.4), "{sums:?}");
        let mut random = Random::new(0);
        let exact = hutch_plus_plus(&mut matrix, &exactly(n), &mut |v| random.signs(v)).unwrap();
        assert!((exact.value - expected[3]).abs() < 1e-12);
    }

    #[test]
    fn zero_matrices_and_empty_blocks_have_no_trace() {
        let mut random = Random::new(0);
        let draw: &mut Draw = &mut |v| random.signs(v);
        let search = TraceSearch {
            max_products: 100,
            ..TraceSearch::default()
        };
        let mut zero = Known::new(&[0.0; 200], 1);
        for found in [
            hutchinson(&mut zero, &search, draw).unwrap(),
            hutch_plus_plus(&mut zero, &search, draw).unwrap(),
        ] {
            assert_eq!((found.value, found.standard_error), (0.0, Some(0.0)));
            assert!(found.converged);
        }
        let found = block_traces(&mut zero, &[5..5, 0..0], &search, draw).unwrap();
        assert_eq!(found, [TraceEstimate::exact(0.0, 0); 2]);
        assert_eq!(block_traces(&mut zero, &[], &search, draw).unwrap(), []);
        let mut nothing = Known::new(&[], 1);
        for found in [
            hutchinson(&mut nothing, &search, draw).unwrap(),
            hutch_plus_plus(&mut nothing, &search, draw).unwrap(),
        ] {
            assert_eq!(found, TraceEstimate::exact(0.0, 0));
        }
    }

    #[test]
    fn few_products_give_no_standard_error() {
        let mut random = Random::new(0);
        let draw: &mut Draw = &mut |v| random.signs(v);
        for max_products in 0..8 {
            let search = TraceSearch {
                max_products,
                tolerance: 10.0,
                ..TraceSearch::default()
            };
            let mut matrix = decaying(90, 1);
            let found = hutchinson(&mut matrix, &search, draw).unwrap();
            assert_eq!(found.products, max_products);
            assert_eq!(found.value.is_nan(), max_products == 0);
            assert_eq!(found.standard_error.is_some(), max_products > 1);
            assert!(!found.converged);
            let found = hutch_plus_plus(&mut matrix, &search, draw).unwrap();
            assert!(found.products <= max_products && !found.converged);
            assert_eq!(matrix.products, max_products + found.products);
            // A space leaves products to the probes.
            let found = krylov_deflated(&mut matrix, 15, &search, draw).unwrap();
            assert_eq!(found.products, max_products);
            assert_eq!(found.value.is_nan(), max_products == 0);
        }
    }

    #[test]
    fn a_product_that_is_not_finite_ends_the_search() {
        for good in 0..30 {
            let mut random = Random::new(0);
            let mut left = good;
            let mut matrix = Operator::new(100, |v: &[f64], product: &mut [f64]| {
                product.copy_from_slice(v);
                product[0] = v[1];
                product[1] = v[0];
                if left == 0 {
                    product[1] = f64::NAN;
                }
                left -= 1;
                Ok::<(), ()>(())
            });
            let draw: &mut Draw = &mut |v| random.signs(v);
            let found = if good % 2 == 0 {
                hutchinson(&mut matrix, &exactly(40), draw).unwrap()
            } else {
                hutch_plus_plus(&mut matrix, &exactly(40), draw).unwrap()
            };
            assert!(found.value.is_nan() && !found.converged);
            assert_eq!((found.standard_error, found.products), (None, good + 1));
        }
    }

    #[test]
    fn errors_of_the_products_come_through() {
        let mut matrix = Operator::new(10, |_: &[f64], _: &mut [f64]| Err("no"));
        let draw: &mut Draw = &mut |v| v.fill(1.0);
        let search = TraceSearch::default();
        assert_eq!(hutchinson(&mut matrix, &search, draw), Err("no"));
        assert_eq!(hutch_plus_plus(&mut matrix, &search, draw), Err("no"));
        assert_eq!(hutch_plus_plus(&mut matrix, &exactly(6), draw), Err("no"));
    }

    #[test]
    fn a_deflated_trace_is_unbiased_and_its_standard_error_honest() {
        let n = 200;
        let mut matrix = decaying(n, 1);
        let truth: f64 = (1..=n).map(|i| 1.0 / i as f64).sum();
        let seeds = 400;
        let (mean, error, deflated, covered) = errors(truth, seeds, |random| {
            krylov_deflated(&mut matrix, 15, &exactly(45), &mut |v| random.signs(v)).unwrap()
        });
        assert!(mean.abs() <= 4.0 * error, "{mean} {error}");
        // Student's t of 29 degrees of freedom has 94.5 % within two.
        assert!(covered > 0.9, "{covered}");
        let (_, _, plain, _) = errors(truth, seeds, |random| {
            hutchinson(&mut matrix, &exactly(45), &mut |v| random.signs(v)).unwrap()
        });
        assert!(deflated < 0.6 * plain, "{deflated} against {plain}");
    }

    #[test]
    fn the_space_of_a_search_for_eigenvalues_deflates_a_trace_without_bias() {
        let mut matrix = decaying(200, 1);
        let truth: f64 = (1..=200).map(|i| 1.0 / f64::from(i)).sum();
        let search = EigenSearch {
            largest: 2,
            smallest: 0,
            max_basis: 12,
            recheck: false,
            keep: true,
            ..EigenSearch::default()
        };
        let (mean, error, deflated, covered) = errors(truth, 400, |random| {
            let found = eigenpairs(&mut matrix, &search, &mut |v| random.normal(v)).unwrap();
            let space = found.space.unwrap();
            let mut image = vec![0.0; 200];
            let mut trace = 0.0;
            for (i, u) in space.vectors.iter().enumerate() {
                for (j, v) in space.vectors[..=i].iter().enumerate() {
                    assert!((dot(u, v) - f64::from(u8::from(i == j))).abs() < 1e-13);
                }
                matrix.apply(u, &mut image).unwrap();
                trace += dot(u, &image);
                assert!(dot(u, &space.next).abs() < 1e-13);
            }
            assert!((trace - space.trace).abs() < 1e-12);
            let found = space_deflated(&mut matrix, space, 4, &exactly(34), &mut |v| {
                random.signs(v);
            });
            let found = found.unwrap();
            assert_eq!(found.products, 34);
            found
        });
        assert!(mean.abs() <= 4.0 * error, "{mean} {error}");
        assert!(covered > 0.9, "{covered}");
        let (_, _, plain, _) = errors(truth, 400, |random| {
            hutchinson(&mut matrix, &exactly(34), &mut |v| random.signs(v)).unwrap()
        });
        assert!(deflated < 0.6 * plain, "{deflated} against {plain}");
    }

    #[test]
    fn a_space_stops_growing_where_a_step_saves_less_than_a_probe() {
        let mut values = vec![0.0; 300];
        values[..3].copy_from_slice(&[9.0, 3.0, 2.0]);
        for (i, value) in values.iter_mut().enumerate().skip(3) {
            *value = 1e-4 * (i as f64).sin();
        }
        let mut matrix = Known::new(&values, 1);
        let search = TraceSearch {
            tolerance: 0.02,
            min_probes: 2,
            max_products: 100,
        };
        let mut random = Random::new(3);
        let found = krylov_deflated(&mut matrix, 30, &search, &mut |v| random.normal(v)).unwrap();
        // Three steps find the large eigenvalues, one or two that there are no others, two probes the rest.
        assert!(found.converged && found.products <= 8, "{found:?}");
        assert!((found.value - 14.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_matrix_that_the_krylov_space_spans_has_an_exact_trace() {
        let mut matrix = Known::new(&[3.0, 2.0, -1.0], 4);
        let mut random = Random::new(1);
        let found =
            krylov_deflated(&mut matrix, 10, &exactly(30), &mut |v| random.normal(v)).unwrap();
        assert!((found.value - 4.0).abs() < 1e-12, "{found:?}");
        assert_eq!((found.standard_error, found.products), (Some(0.0), 3));
    }

    #[test]
    fn a_deflated_trace_of_nothing_is_nothing_and_of_no_number_none() {
        let search = exactly(30);
        let mut random = Random::new(1);
        let mut draw = |v: &mut [f64]| random.normal(v);
        let mut zero = Known::new(&[0.0; 50], 4);
        let found = krylov_deflated(&mut zero, 10, &search, &mut draw).unwrap();
        assert!(found.value.abs() < 1e-15, "{found:?}");
        let mut empty = Known::new(&[], 4);
        let found = krylov_deflated(&mut empty, 10, &search, &mut draw).unwrap();
        assert_eq!((found.value, found.products), (0.0, 0));
        let mut broken = Operator::new(50, |_: &[f64], out: &mut [f64]| {
            out.fill(f64::NAN);
            Ok::<(), std::convert::Infallible>(())
        });
        let found = krylov_deflated(&mut broken, 10, &search, &mut draw).unwrap();
        assert!(found.value.is_nan() && !found.converged);
    }
}
