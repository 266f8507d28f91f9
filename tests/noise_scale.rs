//! The noise scale of the gradient: estimates and intervals on gradients drawn with known G and Sigma,
//! values of an independent program, and `batchlab noise` as a user runs it.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests lay out folders of their own, and tell how often intervals cover"
)]

use std::fs;
use std::process::{Command, Output};

use batchlab::math::noise_scale::{
    LeftOut, NoiseParts, NoiseScaleError, NormRow, Options, Quantity, Ratio, RatioInterval,
    Undetermined, course, mean_cosine, noise_scale,
};
use batchlab::math::operator::Operator;
use batchlab::math::statistics::{Moments, student_t_quantile};
use batchlab::probe::noise::{
    LayerGradients, PieceNoise, adamw_preconditioner, cosine, example_noise, inner_products,
    piece_noise, preconditioned_noise,
};
use batchlab::rng::{Stream, permutation};
use batchlab::theory::critical::GradientStatistics;
use serde_json::Value;

const SEEDS: u64 = 200;

fn reference() -> Value {
    serde_json::from_str(include_str!("reference/noise_scale.json")).unwrap()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The weighted mean of vectors.
fn mean_of(sizes: &[usize], vectors: &[Vec<f64>]) -> Vec<f64> {
    let total: usize = sizes.iter().sum();
    let mut mean = vec![0.0; vectors[0].len()];
    for (&n, vector) in sizes.iter().zip(vectors) {
        for (mean, x) in mean.iter_mut().zip(vector) {
            *mean += n as f64 / total as f64 * x;
        }
    }
    mean
}

/// One row of norms of the pieces' mean gradients.
fn row_of(step: u64, sizes: &[usize], gradients: &[Vec<f64>]) -> NormRow {
    let batch = sizes.iter().sum::<usize>() as f64;
    let mean = mean_of(sizes, gradients);
    let squares = sizes.iter().zip(gradients);
    NormRow {
        step,
        b_small: batch / sizes.len() as f64,
        g2_small: squares.map(|(&n, g)| n as f64 * dot(g, g)).sum::<f64>() / batch,
        b_big: batch,
        g2_big: dot(&mean, &mean),
    }
}

/// Gradients with known G and diagonal Sigma.
#[derive(Clone)]
struct Law {
    gradient: Vec<f64>,
    deviations: Vec<f64>,
}

impl Law {
    fn new(dimension: usize, gradient: f64, deviation: f64) -> Self {
        Self {
            gradient: vec![gradient; dimension],
            // Half to one and a half times as large.
            deviations: (0..dimension)
                .map(|j| deviation * (0.5 + j as f64 / (dimension - 1) as f64))
                .collect(),
        }
    }

    fn tr_sigma(&self) -> f64 {
        dot(&self.deviations, &self.deviations)
    }

    fn squared_gradient(&self) -> f64 {
        dot(&self.gradient, &self.gradient)
    }

    fn pieces(&self, sizes: &[usize], stream: &mut Stream) -> Vec<Vec<f64>> {
        let one = |&n: &usize| {
            let noise = 1.0 / (n as f64).sqrt();
            let parts = self.gradient.iter().zip(&self.deviations);
            parts
                .map(|(g, s)| g + s * noise * stream.normal())
                .collect()
        };
        sizes.iter().map(one).collect()
    }
}

/// How often intervals hold a value.
#[derive(Default)]
struct Coverage {
    held: u32,
    open: u32,
    /// No interval, for the denominator is negative beyond doubt: it holds nothing.
    none: u32,
    undetermined: u32,
}

impl Coverage {
    fn count(&mut self, ratio: &Ratio, truth: f64) {
        self.undetermined += u32::from(ratio.value.is_err());
        match ratio.interval {
            Some(interval) => {
                self.held += u32::from(interval.contains(truth));
                self.open += u32::from(interval.high().is_none());
            }
            None => self.none += 1,
        }
    }

    /// At least 90 % of 200 seeds; 95 % is what the interval says, and 86 % would be four standard
    /// deviations of the count below.
    #[track_caller]
    fn is_enough(&self, what: &str) {
        println!(
            "{what}: {} of {SEEDS} held, {} open upward, {} without",
            self.held, self.open, self.none
        );
        assert!(
            u64::from(self.held) * 10 >= SEEDS * 9,
            "{what}: {}",
            self.held
        );
        assert_eq!(self.open + self.none, self.undetermined, "{what}");
    }
}

/// Rows of independent batches.
fn independent(law: &Law, sizes: &[usize], rows: u64, seed: u64) -> Vec<NormRow> {
    let mut stream = Stream::new(seed, "noise-scale-rows", 0);
    (1..=rows)
        .map(|step| row_of(step, sizes, &law.pieces(sizes, &mut stream)))
        .collect()
}

#[test]
fn averages_over_rows_are_unbiased_and_their_standard_errors_right() {
    for (law, sizes) in [
        (Law::new(6, 0.5, 1.0), vec![8, 8]),
        (Law::new(6, 0.1, 1.0), vec![20, 16, 16, 12]),
        (Law::new(3, 0.0, 2.0), vec![1, 2, 5]),
    ] {
        let mut traces = Moments::default();
        let mut squares = Moments::default();
        let mut errors = [Moments::default(), Moments::default()];
        for seed in 0..600 {
            let rows = independent(&law, &sizes, 40, seed);
            let options = Options {
                blocks: Some(20),
                population: None,
            };
            let parts = noise_scale(&rows, options).unwrap().parts;
            traces.push(parts.tr_sigma.value);
            squares.push(parts.squared_gradient.value);
            errors[0].push(parts.tr_sigma.standard_error.unwrap().powi(2));
            errors[1].push(parts.squared_gradient.standard_error.unwrap().powi(2));
        }
        let pairs = [(traces, law.tr_sigma()), (squares, law.squared_gradient())];
        for ((found, expected), squared_error) in pairs.into_iter().zip(errors) {
            let variance = found.variance().unwrap();
            let error = (variance / 600.0).sqrt();
            let mean = found.mean().unwrap();
            assert!(
                (mean - expected).abs() <= 4.0 * error,
                "{mean}, not {expected}, error {error}"
            );
            // A variance of 600 nearly normal values has a relative error of 5.8 %.
            let ratio = squared_error.mean().unwrap() / variance;
            assert!((ratio - 1.0).abs() < 0.25, "{ratio}");
        }
    }
}

#[test]
fn the_interval_covers_where_the_gradient_is_resolved() {
    let law = Law::new(10, 1.0, 3.0);
    for rows in [30, 200] {
        let mut coverage = Coverage::default();
        for seed in 0..SEEDS {
            let norms = independent(&law, &[20, 16, 16, 12], rows, seed);
            let scale = noise_scale(&norms, Options::default()).unwrap();
            let truth = law.tr_sigma() / law.squared_gradient();
            coverage.count(&scale.parts.b_simple, truth);
        }
        coverage.is_enough(&format!("resolved, {rows} rows"));
        assert_eq!(coverage.undetermined, 0);
    }
}

#[test]
fn the_interval_covers_where_the_noise_scale_is_many_batches() {
    // B_simple is 437 examples, 14 batches; one batch tells next to nothing.
    let law = Law::new(20, 0.05, 1.0);
    let truth = law.tr_sigma() / law.squared_gradient();
    assert!(truth > 13.0 * 32.0);
    for (rows, least_open, most_open) in [(2000, 0, 20), (400, 20, 120), (60, 140, 200)] {
        let mut coverage = Coverage::default();
        for seed in 0..SEEDS {
            let norms = independent(&law, &[18, 14], rows, seed);
            let scale = noise_scale(&norms, Options::default()).unwrap();
            coverage.count(&scale.parts.b_simple, truth);
        }
        coverage.is_enough(&format!("14 batches, {rows} rows"));
        assert!((least_open..=most_open).contains(&coverage.open));
    }
}

/// Rows whose expected gradients move about theirs by an autoregression of the standard deviation
/// `moving` in each parameter.
fn correlated(law: &Law, rows: u64, factor: f64, moving: f64, seed: u64) -> Vec<NormRow> {
    let sizes = [20, 16, 16, 12];
    let mut stream = Stream::new(seed, "noise-scale-correlated", 0);
    let mut shift: Vec<f64> = law
        .gradient
        .iter()
        .map(|_| moving * stream.normal())
        .collect();
    let fresh = moving * (1.0 - factor * factor).sqrt();
    (1..=rows)
        .map(|step| {
            let mut now = law.clone();
            for (g, x) in now.gradient.iter_mut().zip(&mut shift) {
                *g += *x;
                *x = factor * *x + fresh * stream.normal();
            }
            row_of(step, &sizes, &now.pieces(&sizes, &mut stream))
        })
        .collect()
}

#[test]
fn the_interval_covers_where_rows_are_correlated_and_single_rows_would_not() {
    let law = Law::new(10, 0.3, 2.0);
    let truth = law.tr_sigma() / (law.squared_gradient() + 10.0 * 0.09);
    for (factor, rows) in [(0.5, 60), (0.9, 400), (0.9, 1000)] {
        let mut blocks = Coverage::default();
        let mut single = Coverage::default();
        for seed in 0..SEEDS {
            let norms = correlated(&law, rows, factor, 0.3, seed);
            let scale = noise_scale(&norms, Options::default()).unwrap();
            blocks.count(&scale.parts.b_simple, truth);
            let each = Options {
                blocks: Some(norms.len()),
                population: None,
            };
            let scale = noise_scale(&norms, each).unwrap();
            single.count(&scale.parts.b_simple, truth);
        }
        blocks.is_enough(&format!("correlated {factor}, {rows} rows, blocks"));
        println!("  a block a row: {} of {SEEDS}", single.held);
        if factor > 0.8 {
            assert!(u64::from(single.held) * 10 < SEEDS * 8, "{}", single.held);
        }
    }
}

#[test]
fn a_course_follows_a_noise_scale_that_grows() {
    let mut stream = Stream::new(3, "noise-scale-course", 0);
    let sizes = [16, 16, 16, 16];
    let mut rows = Vec::new();
    let mut laws = Vec::new();
    for part in 0..4u32 {
        let law = Law::new(10, 1.0 / f64::from(1 << part), 3.0);
        for _ in 0..100 {
            let step = 5 * (rows.len() as u64 + 1);
            rows.push(row_of(step, &sizes, &law.pieces(&sizes, &mut stream)));
        }
        laws.push(law);
    }
    let windows = course(&rows, Options::default(), 100).unwrap();
    assert_eq!(windows.len(), 4);
    for (window, law) in windows.iter().zip(&laws) {
        assert_eq!((window.rows, window.blocks), (100, 10));
        let truth = law.tr_sigma() / law.squared_gradient();
        let interval = window.parts.b_simple.interval.unwrap();
        assert!(interval.contains(truth), "{interval:?}, {truth}");
    }
    assert_eq!((windows[1].first_step, windows[1].last_step), (505, 1000));
    // Windows are as long as was asked for; a rest of less than half joins the last one, and fewer
    // rows than a window make one.
    let lengths = |rows: &[NormRow], options, window| -> Vec<usize> {
        let windows = course(rows, options, window).unwrap();
        windows.iter().map(|window| window.rows).collect()
    };
    let default = Options::default();
    assert_eq!(lengths(&rows, default, 130), [130, 130, 140]);
    assert_eq!(lengths(&rows[..71], default, 20), [20, 20, 20, 11]);
    assert_eq!(lengths(&rows[..70], default, 20), [20, 20, 20, 10]);
    assert_eq!(lengths(&rows[..69], default, 20), [20, 20, 29]);
    assert_eq!(lengths(&rows[..13], default, 5), [5, 5, 3]);
    assert_eq!(lengths(&rows[..12], default, 5), [5, 7]);
    assert_eq!(lengths(&rows[..7], default, 50), [7]);
    assert_eq!(lengths(&rows[..3], default, 1), [1, 1, 1]);
    let many = Options {
        blocks: Some(12),
        population: None,
    };
    assert_eq!(lengths(&rows[..71], many, 20), [20, 20, 31]);
    let error = course(&rows, Options::default(), 0).unwrap_err();
    assert_eq!(error, NoiseScaleError::EmptyWindow);
}

// ---- an independent program's values

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance * expected.abs().max(1e-12),
        "{found:e} instead of {expected:e}"
    );
}

#[track_caller]
fn same(found: Option<f64>, expected: &Value, what: &str) {
    match (found, expected.as_f64()) {
        (Some(found), Some(expected)) => close(found, expected, 1e-8),
        (None, None) => {}
        (found, expected) => panic!("{what}: {found:?} instead of {expected:?}"),
    }
}

#[track_caller]
fn same_ratio(found: &Ratio, expected: &Value, name: &str) {
    same(found.value.ok(), &expected[name], name);
    let low = found.interval.map(|interval| interval.low());
    same(low, &expected[format!("{name}_low")], "low end");
    let high = found.interval.and_then(|interval| interval.high());
    same(high, &expected[format!("{name}_high")], "high end");
}

#[track_caller]
fn same_quantity(found: Quantity, expected: &Value, name: &str) {
    same(Some(found.value), &expected[name], name);
    let error = &expected[format!("{name}_error")];
    same(found.standard_error, error, "standard error");
}

#[track_caller]
fn same_parts(found: &NoiseParts, expected: &Value) {
    same_quantity(found.tr_sigma, expected, "tr_sigma");
    same_quantity(found.squared_gradient, expected, "squared_gradient");
    same_ratio(&found.b_simple, expected, "b_simple");
}

#[test]
fn the_program_agrees_with_numpy_on_every_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("norms.csv");
    for case in reference()["tables"].as_array().unwrap() {
        fs::write(&file, case["csv"].as_str().unwrap()).unwrap();
        let mut arguments = vec!["--json".to_owned()];
        for option in ["blocks", "population"] {
            if let Some(value) = case[option].as_u64() {
                arguments.extend([format!("--{option}"), value.to_string()]);
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = noise(&file, &arguments);
        assert!(output.status.success(), "{}", said(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        for (key, expected) in case["expected"].as_object().unwrap() {
            let what = format!("{}: {key}", case["name"]);
            same(found[key].as_f64(), expected, &what);
        }
        let undetermined = case["expected"]["b_simple"].is_null();
        assert_eq!(found["undetermined"].is_string(), undetermined);
    }
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    let rows = value.as_array().unwrap();
    rows.iter().map(numbers).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().unwrap();
    values.iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn the_noise_of_single_examples_agrees_with_numpy_in_total_and_by_layer() {
    let reference = &reference()["examples"];
    let gradients = matrix(&reference["gradients"]);
    let split = reference["split"].as_u64().unwrap() as usize;
    let mean = mean_of(&vec![1; gradients.len()], &gradients);
    let part = |range: std::ops::Range<usize>| {
        let own = |g: &Vec<f64>| dot(&g[range.clone()], &g[range.clone()]);
        let cross = |g: &Vec<f64>| dot(&g[range.clone()], &mean[range.clone()]);
        let norms: Vec<f64> = gradients.iter().map(own).collect();
        let inner: Vec<f64> = gradients.iter().map(cross).collect();
        (
            norms,
            dot(&mean[range.clone()], &mean[range.clone()]),
            inner,
        )
    };
    let parts = [part(0..split), part(split..mean.len())];
    let all = part(0..mean.len());
    let layers: Vec<LayerGradients<'_>> = parts
        .iter()
        .zip(["one", "two"])
        .map(|((norms, squared_mean, inner), layer)| LayerGradients {
            layer,
            squared_norms: norms,
            squared_mean: *squared_mean,
            inner: Some(inner),
        })
        .collect();
    let without: Vec<LayerGradients<'_>> = layers
        .iter()
        .map(|layer| LayerGradients {
            inner: None,
            ..*layer
        })
        .collect();
    for case in reference["cases"].as_array().unwrap() {
        let population = case["population"].as_u64().map(|n| n as usize);
        let noise = example_noise(&layers, None, population).unwrap();
        same_parts(&noise.total, &case["total"]);
        for ((_, layer), expected) in noise.layers.iter().zip(case["layers"].as_array().unwrap()) {
            same_parts(layer, expected);
        }
        let sum = noise.layers.iter().map(|(_, parts)| parts.tr_sigma.value);
        close(sum.sum(), noise.total.tr_sigma.value, 1e-14);
        // Inner products of the whole gradient do for the total, not for the layers.
        let noise = example_noise(&without, Some(&all.2), population).unwrap();
        same_parts(&noise.total, &case["total"]);
        assert_eq!(noise.layers[0].1.b_simple.interval, None);
        assert!(noise.layers[0].1.b_simple.value.is_ok());
    }
    // All of the data set: nothing is uncertain, and |G|^2 is that of the mean gradient.
    let noise = example_noise(&layers, None, Some(gradients.len())).unwrap();
    close(noise.total.squared_gradient.value, all.1, 1e-14);
    assert_eq!(noise.total.squared_gradient.standard_error, Some(0.0));
    let value = noise.total.b_simple.value.unwrap();
    let interval = noise.total.b_simple.interval.unwrap();
    close(interval.low(), value, 1e-14);
    close(interval.high().unwrap(), value, 1e-14);
    // What is refused.
    let few = example_noise(&layers, None, Some(5)).unwrap_err();
    assert!(few.to_string().contains("at most 5 examples"), "{few}");
    let none = example_noise(&[], None, None).unwrap_err();
    assert!(none.to_string().contains("at least 2 examples, found 0"));
    let short = [LayerGradients {
        inner: Some(&all.2[1..]),
        ..layers[0]
    }];
    let error = example_noise(&short, None, None).unwrap_err().to_string();
    assert!(error.contains("layer `one`, inner products: expected one for each of 14"));
}

#[test]
fn the_noise_of_pieces_agrees_with_numpy_plain_weighted_and_preconditioned() {
    let reference = &reference()["pieces"];
    let gradients = matrix(&reference["gradients"]);
    let hessian = matrix(&reference["hessian"]);
    let sizes: Vec<usize> = numbers(&reference["sizes"])
        .iter()
        .map(|&n| n as usize)
        .collect();
    let epsilon = reference["epsilon"].as_f64().unwrap();
    let metric = adamw_preconditioner(&numbers(&reference["second_moments"]), epsilon);
    for case in reference["cases"].as_array().unwrap() {
        let population = case["population"].as_u64().map(|n| n as usize);
        let noise = weighted(&sizes, &gradients, population, &hessian);
        assert_eq!(noise.products, 7);
        let expected = &case["expected"];
        same_parts(&noise.plain, expected);
        same_quantity(noise.tr_h_sigma, expected, "tr_h_sigma");
        same_quantity(noise.ghg, expected, "ghg");
        same_ratio(&noise.b_noise, expected, "b_noise");
        same_ratio(&noise.eps_max, expected, "eps_max");
        let found = preconditioned_noise(&sizes, &gradients, population, &metric).unwrap();
        same_parts(&found, &case["preconditioned"]);
    }
    // Two pieces have no jackknife; one has no noise.
    let noise = weighted(&sizes[..2], &gradients[..2], None, &hessian);
    assert_eq!(noise.b_noise.interval, None);
    assert_eq!(noise.plain.tr_sigma.standard_error, None);
    let error = preconditioned_noise(&sizes[..1], &gradients[..1], None, &metric).unwrap_err();
    assert!(error.to_string().contains("at least 2 pieces"), "{error}");
    let mut failing = Operator::new(4, |_: &[f64], _: &mut [f64]| Err("no device"));
    let error = piece_noise(&sizes, &gradients, None, &mut failing).unwrap_err();
    assert!(error.to_string().contains("no device"), "{error}");
    let error = preconditioned_noise(&sizes, &gradients, None, &metric[1..]).unwrap_err();
    assert!(error.to_string().contains("components of a gradient"));
}

fn weighted(
    sizes: &[usize],
    gradients: &[Vec<f64>],
    population: Option<usize>,
    hessian: &[Vec<f64>],
) -> PieceNoise {
    let mut product = Operator::new(hessian.len(), |v: &[f64], out: &mut [f64]| {
        for (out, row) in out.iter_mut().zip(hessian) {
            *out = dot(row, v);
        }
        Ok::<(), std::convert::Infallible>(())
    });
    piece_noise(sizes, gradients, population, &mut product).unwrap()
}

// ---- probes on drawn gradients

/// h_i = 1/i and Sigma = diag(h) at theta_i = 1.
#[test]
fn pieces_of_the_noisy_quadratic_give_its_closed_form_and_their_intervals_cover() {
    let h: Vec<f64> = (1..=50).map(|i| 1.0 / f64::from(i)).collect();
    let truth = GradientStatistics::noisy_quadratic(&h, &vec![1.0; h.len()]);
    let law = Law {
        gradient: h.clone(),
        deviations: h.iter().map(|h| h.sqrt()).collect(),
    };
    for (sizes, name) in [
        (vec![8; 16], "16 pieces"),
        (vec![9, 8, 8, 8, 8, 8, 8, 7], "8 pieces, unequal"),
    ] {
        let mut coverage: [Coverage; 3] = std::array::from_fn(|_| Coverage::default());
        let mut means = [Moments::default(); 4];
        for seed in 0..SEEDS {
            let mut stream = Stream::new(seed, "noise-quadratic", 0);
            let gradients = law.pieces(&sizes, &mut stream);
            let mut product = Operator::new(h.len(), |v: &[f64], out: &mut [f64]| {
                for ((out, v), h) in out.iter_mut().zip(v).zip(&h) {
                    *out = h * v;
                }
                Ok::<(), std::convert::Infallible>(())
            });
            let noise = piece_noise(&sizes, &gradients, None, &mut product).unwrap();
            for (mean, value) in means.iter_mut().zip([
                noise.plain.tr_sigma,
                noise.plain.squared_gradient,
                noise.tr_h_sigma,
                noise.ghg,
            ]) {
                mean.push(value.value);
            }
            let eps_max = truth.squared_gradient / truth.ghg;
            coverage[0].count(
                &noise.plain.b_simple,
                truth.tr_sigma / truth.squared_gradient,
            );
            coverage[1].count(&noise.b_noise, truth.tr_h_sigma / truth.ghg);
            coverage[2].count(&noise.eps_max, eps_max);
        }
        for (mean, expected) in means.iter().zip([
            truth.tr_sigma,
            truth.squared_gradient,
            truth.tr_h_sigma,
            truth.ghg,
        ]) {
            let error = mean.standard_deviation().unwrap() / (SEEDS as f64).sqrt();
            let found = mean.mean().unwrap();
            assert!(
                (found - expected).abs() <= 4.0 * error,
                "{found}, {expected}"
            );
        }
        for (coverage, what) in coverage.iter().zip(["B_simple", "B_noise", "eps_max"]) {
            coverage.is_enough(&format!("{name}, {what}"));
        }
    }
}

/// What single examples give.
fn of_examples(gradients: &[Vec<f64>], population: Option<usize>) -> NoiseParts {
    let mean = mean_of(&vec![1; gradients.len()], gradients);
    let norms: Vec<f64> = gradients.iter().map(|g| dot(g, g)).collect();
    let inner: Vec<f64> = gradients.iter().map(|g| dot(g, &mean)).collect();
    let layer = LayerGradients {
        layer: "all",
        squared_norms: &norms,
        squared_mean: dot(&mean, &mean),
        inner: Some(&inner),
    };
    example_noise(&[layer], None, population).unwrap().total
}

#[test]
fn intervals_from_single_examples_cover() {
    let law = Law::new(12, 0.4, 1.0);
    let truth = law.tr_sigma() / law.squared_gradient();
    for count in [20, 100] {
        let mut coverage = Coverage::default();
        for seed in 0..SEEDS {
            let mut stream = Stream::new(seed, "noise-examples", 0);
            let gradients = law.pieces(&vec![1; count], &mut stream);
            coverage.count(&of_examples(&gradients, None).b_simple, truth);
        }
        coverage.is_enough(&format!("{count} examples"));
    }
}

/// A data set of 80 examples whose gradients have tails heavier than normal.
fn data_set() -> (Vec<Vec<f64>>, NoiseParts) {
    let mut stream = Stream::new(9, "noise-data-set", 0);
    let gradients: Vec<Vec<f64>> = (0..80)
        .map(|_| {
            let length = 0.5 + stream.uniform().powi(2) * 2.0;
            (0..5).map(|_| length * (0.4 + stream.normal())).collect()
        })
        .collect();
    let exact = of_examples(&gradients, Some(80));
    (gradients, exact)
}

#[test]
fn a_part_of_the_data_set_without_replacement_tells_of_the_whole() {
    let (gradients, exact) = data_set();
    let mean = mean_of(&[1; 80], &gradients);
    close(exact.squared_gradient.value, dot(&mean, &mean), 1e-14);
    let truth = exact.b_simple.value.unwrap();
    let mut means = [Moments::default(); 2];
    let mut coverage = Coverage::default();
    let draws = 20 * SEEDS;
    for draw in 0..draws {
        let order = permutation(80, 4, "noise-part", draw);
        let part: Vec<Vec<f64>> = order[..48]
            .iter()
            .map(|&i| gradients[i as usize].clone())
            .collect();
        let found = of_examples(&part, Some(80));
        means[0].push(found.tr_sigma.value);
        means[1].push(found.squared_gradient.value);
        if draw < SEEDS {
            coverage.count(&found.b_simple, truth);
        }
    }
    for (mean, expected) in means.iter().zip([exact.tr_sigma, exact.squared_gradient]) {
        let error = mean.standard_deviation().unwrap() / (draws as f64).sqrt();
        let found = mean.mean().unwrap();
        let expected = expected.value;
        assert!(
            (found - expected).abs() <= 4.0 * error,
            "{found}, {expected}"
        );
    }
    coverage.is_enough("48 of 80 examples");
}

/// Gradients of 512 examples, tails heavier than normal, and the diagonal of a Hessian.
fn population() -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut stream = Stream::new(12, "noise-population", 0);
    let law = Law::new(24, 0.15, 1.0);
    let gradients = (0..512)
        .map(|_| {
            let length = 0.7 + 0.6 * stream.uniform();
            law.pieces(&[1], &mut stream)[0]
                .iter()
                .map(|x| length * x)
                .collect()
        })
        .collect();
    (
        gradients,
        (1..=24).map(|i| 2.0 / f64::from(i).sqrt()).collect(),
    )
}

/// The noise from the first examples of a random order, cut into pieces, about the population.
fn cut(gradients: &[Vec<f64>], sizes: &[usize], h: &[f64], draw: u64) -> PieceNoise {
    let count = gradients.len();
    let order = permutation(count, 7, "noise-cut", draw);
    let mut start = 0;
    let pieces: Vec<Vec<f64>> = sizes
        .iter()
        .map(|&n| {
            let own: Vec<Vec<f64>> = order[start..start + n]
                .iter()
                .map(|&i| gradients[i as usize].clone())
                .collect();
            start += n;
            mean_of(&vec![1; n], &own)
        })
        .collect();
    diagonal(sizes, &pieces, count, h)
}

fn diagonal(sizes: &[usize], gradients: &[Vec<f64>], count: usize, h: &[f64]) -> PieceNoise {
    let mut product = Operator::new(h.len(), |v: &[f64], out: &mut [f64]| {
        for ((out, v), h) in out.iter_mut().zip(v).zip(h) {
            *out = h * v;
        }
        Ok::<(), std::convert::Infallible>(())
    });
    piece_noise(sizes, gradients, Some(count), &mut product).unwrap()
}

/// Many estimates of a quantity beside the variances that they tell.
#[derive(Default)]
struct Spread {
    values: Moments,
    variances: Moments,
}

impl Spread {
    fn push(&mut self, quantity: Quantity) {
        self.values.push(quantity.value);
        self.variances
            .push(quantity.standard_error.unwrap().powi(2));
    }

    /// The variance that is told over that which is seen.
    fn ratio(&self) -> f64 {
        self.variances.mean().unwrap() / self.values.variance().unwrap()
    }

    #[track_caller]
    fn is_about(&self, exact: f64) {
        let count = self.values.n() as f64;
        let error = self.values.standard_deviation().unwrap() / count.sqrt();
        let mean = self.values.mean().unwrap();
        assert!((mean - exact).abs() <= 4.0 * error, "{mean}, not {exact}");
    }
}

const CUTS: u64 = 3000;

/// The variance that the jackknife tells of a sum of L squared normal deviations, over the true one.
fn of_squares(pieces: usize) -> f64 {
    pieces as f64 / (pieces - 2) as f64
}

/// A variance of 3000 nearly normal values has a relative error of 2.6 %.
#[track_caller]
fn agrees(found: f64, expected: f64) {
    println!("  variance told over seen: {found:.3}, expected {expected:.3}");
    assert!((found / expected - 1.0).abs() < 4.0 * 0.026, "{found}");
}

/// B = N: which examples lie in which piece is all that is random.
#[test]
fn with_all_examples_the_intervals_are_those_of_the_cut_into_pieces() {
    let (gradients, curved) = population();
    let count = gradients.len();
    for h in [curved, vec![1.0; 24]] {
        // Single examples as pieces: exact, as `example_noise` has it.
        let exact = diagonal(&vec![1; count], &gradients, count, &h);
        assert_eq!(exact.tr_h_sigma.standard_error, Some(0.0));
        assert_eq!(exact.ghg.standard_error, Some(0.0));
        let truth = exact.b_noise.value.unwrap();
        let width = exact.b_noise.interval.unwrap();
        assert!(width.high().unwrap() - width.low() < 1e-12 * truth);
        for pieces in [16, 32] {
            let sizes = vec![count / pieces; pieces];
            let mut traces = Spread::default();
            let mut scales = Spread::default();
            let mut plain = Spread::default();
            let mut coverage: [Coverage; 3] = std::array::from_fn(|_| Coverage::default());
            for draw in 0..CUTS {
                let noise = cut(&gradients, &sizes, &h, draw);
                close(noise.ghg.value, exact.ghg.value, 1e-11);
                close(
                    noise.plain.squared_gradient.value,
                    exact.plain.squared_gradient.value,
                    1e-11,
                );
                assert_eq!(noise.ghg.standard_error, Some(0.0));
                let rate = noise.eps_max.interval.unwrap();
                close(rate.low(), exact.eps_max.value.unwrap(), 1e-11);
                close(rate.high().unwrap(), exact.eps_max.value.unwrap(), 1e-11);
                traces.push(noise.tr_h_sigma);
                plain.push(noise.plain.tr_sigma);
                let interval = noise.b_noise.interval.unwrap();
                let half = (interval.high().unwrap() - interval.low()) / 2.0;
                scales.push(Quantity {
                    value: noise.b_noise.value.unwrap(),
                    standard_error: Some(half / student(pieces - 1)),
                });
                if draw < SEEDS {
                    coverage[0].count(&noise.b_noise, truth);
                    let simple = exact.plain.b_simple.value.unwrap();
                    coverage[1].count(&noise.plain.b_simple, simple);
                    let value = noise.tr_h_sigma;
                    let error = student(pieces - 1) * value.standard_error.unwrap();
                    coverage[2].held +=
                        u32::from((value.value - exact.tr_h_sigma.value).abs() <= error);
                }
            }
            traces.is_about(exact.tr_h_sigma.value);
            scales.is_about(truth);
            agrees(traces.ratio(), of_squares(pieces));
            agrees(scales.ratio(), of_squares(pieces));
            agrees(plain.ratio(), of_squares(pieces));
            for (coverage, what) in coverage.iter().zip(["B_noise", "B_simple", "tr(H Sigma)"]) {
                coverage.is_enough(&format!("all examples, {pieces} pieces, {what}"));
            }
        }
    }
}

fn student(freedom: usize) -> f64 {
    student_t_quantile(0.975, freedom).unwrap()
}

/// B < N: the sample and the cut are both random.
#[test]
fn with_a_part_of_the_examples_errors_of_pieces_are_of_the_sample_and_of_the_cut() {
    let (gradients, h) = population();
    let count = gradients.len();
    let exact = diagonal(&vec![1; count], &gradients, count, &h);
    for (each, pieces) in [(12, 32), (6, 64), (1, 384)] {
        let sizes = vec![each; pieces];
        let mut spreads: [Spread; 4] = std::array::from_fn(|_| Spread::default());
        let mut coverage: [Coverage; 3] = std::array::from_fn(|_| Coverage::default());
        for draw in 0..CUTS {
            let noise = cut(&gradients, &sizes, &h, draw);
            let parts = [
                noise.tr_h_sigma,
                noise.ghg,
                noise.plain.tr_sigma,
                noise.plain.squared_gradient,
            ];
            for (spread, part) in spreads.iter_mut().zip(parts) {
                spread.push(part);
            }
            if draw < SEEDS {
                coverage[0].count(&noise.b_noise, exact.b_noise.value.unwrap());
                coverage[1].count(&noise.plain.b_simple, exact.plain.b_simple.value.unwrap());
                coverage[2].count(&noise.eps_max, exact.eps_max.value.unwrap());
            }
        }
        let truths = [
            exact.tr_h_sigma,
            exact.ghg,
            exact.plain.tr_sigma,
            exact.plain.squared_gradient,
        ];
        let wide = [of_squares(pieces), 1.0, of_squares(pieces), 1.0];
        for ((spread, truth), wide) in spreads.iter().zip(truths).zip(wide) {
            spread.is_about(truth.value);
            agrees(spread.ratio(), wide);
        }
        for (coverage, what) in coverage.iter().zip(["B_noise", "B_simple", "eps_max"]) {
            coverage.is_enough(&format!("384 of 512 examples, {pieces} pieces, {what}"));
        }
    }
    // Pieces of one example are single examples.
    let part = &gradients[..400];
    let pieces = diagonal(&[1; 400], part, count, &[1.0; 24]);
    let single = of_examples(part, Some(count));
    for (a, b) in [
        (pieces.plain.tr_sigma, single.tr_sigma),
        (pieces.plain.squared_gradient, single.squared_gradient),
    ] {
        close(a.value, b.value, 1e-11);
        close(a.standard_error.unwrap(), b.standard_error.unwrap(), 1e-9);
    }
    let ends = |ratio: &Ratio| {
        let interval = ratio.interval.unwrap();
        (interval.low(), interval.high().unwrap())
    };
    let (a, b) = (ends(&pieces.plain.b_simple), ends(&single.b_simple));
    close(a.0, b.0, 1e-9);
    close(a.1, b.1, 1e-9);
}

#[test]
fn rows_of_batches_without_replacement_need_the_population() {
    let (gradients, exact) = data_set();
    let truth = exact.b_simple.value.unwrap();
    let sizes = [16, 12, 12, 20];
    let row = |step: u64, seed: u64| {
        let order = permutation(80, seed, "noise-epoch", step);
        let mut start = 0;
        let pieces: Vec<Vec<f64>> = sizes
            .iter()
            .map(|&n| {
                let own: Vec<Vec<f64>> = order[start..start + n]
                    .iter()
                    .map(|&i| gradients[i as usize].clone())
                    .collect();
                start += n;
                mean_of(&vec![1; n], &own)
            })
            .collect();
        row_of(step, &sizes, &pieces)
    };
    let known = Options {
        population: Some(80),
        ..Options::default()
    };
    let mut coverage = Coverage::default();
    let (mut with, mut without) = (Moments::default(), Moments::default());
    for seed in 0..SEEDS {
        let rows: Vec<NormRow> = (1..=50).map(|step| row(step, seed)).collect();
        let scale = noise_scale(&rows, known).unwrap();
        coverage.count(&scale.parts.b_simple, truth);
        with.push(scale.parts.squared_gradient.value);
        let scale = noise_scale(&rows, Options::default()).unwrap();
        without.push(scale.parts.squared_gradient.value);
    }
    coverage.is_enough("batches of 60 out of 80");
    let expected = exact.squared_gradient.value;
    let error = with.standard_deviation().unwrap() / (SEEDS as f64).sqrt();
    assert!((with.mean().unwrap() - expected).abs() <= 4.0 * error);
    // Too small by tr(Sigma)/N without.
    let bias = exact.tr_sigma.value / 80.0;
    assert!((without.mean().unwrap() - expected + bias).abs() <= 4.0 * error);
    assert!(bias > 4.0 * error);
}

#[test]
fn inner_products_come_from_losses_along_a_direction() {
    // l_i = log(1 + exp(-x_i't)) has the gradient -x_i/(1 + exp(x_i't)).
    let inputs = [[1.0, 0.3], [-0.7, 2.0], [1.5, 1.5]];
    let at = [0.4, -0.2];
    let losses = |t: &[f64]| -> Result<Vec<f64>, &'static str> {
        let of = |x: &[f64; 2]| (1.0 + (-dot(x, t)).exp()).ln();
        Ok(inputs.iter().map(of).collect())
    };
    for length in [1e-6, 1.0, 1e6] {
        let direction = [0.8 * length, -length];
        let found = inner_products(&at, &direction, losses).unwrap();
        for (found, x) in found.iter().zip(&inputs) {
            let expected = -dot(x, &direction) / (1.0 + dot(x, &at).exp());
            assert!(
                (found - expected).abs() <= 1e-9 * length,
                "{found}, {expected}"
            );
        }
    }
    let still = inner_products(&at, &[0.0, 0.0], losses).unwrap();
    assert_eq!(still, [0.0; 3]);
    let error = inner_products(&at, &[1.0, 0.0], |_| Err::<Vec<f64>, _>("no device"));
    assert_eq!(error, Err("no device"));
}

#[test]
fn cosines_from_norms_are_those_of_the_vectors() {
    let mut stream = Stream::new(5, "noise-cosine", 0);
    let sizes = [3, 5, 4];
    let gradients = Law::new(4, 0.3, 1.0).pieces(&sizes, &mut stream);
    let mean = mean_of(&sizes, &gradients);
    let norms: Vec<f64> = gradients.iter().map(|g| dot(g, g)).collect();
    let (mut sum, mut weights) = (0.0, 0.0);
    for i in 0..3 {
        for j in (0..3).filter(|&j| j != i) {
            let lengths = (norms[i] * norms[j]).sqrt() * (sizes[i] * sizes[j]) as f64;
            sum += lengths * cosine(&gradients[i], &gradients[j]).unwrap();
            weights += lengths;
        }
    }
    let found = mean_cosine(&sizes, &norms, dot(&mean, &mean)).unwrap();
    close(found, sum / weights, 1e-12);
    // Pieces of one length: the row's own.
    let turned = [vec![3.0, 4.0], vec![5.0, 0.0]];
    let row = row_of(1, &[8, 8], &turned);
    let scale = noise_scale(&[row], Options::default()).unwrap();
    close(scale.cosine.unwrap(), 0.6, 1e-14);
    close(cosine(&turned[0], &turned[1]).unwrap(), 0.6, 1e-14);
    assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), None);
    assert_eq!(cosine(&[1.0], &[1.0, 0.0]), None);
    assert_eq!(cosine(&[f64::NAN], &[1.0]), None);
    assert_eq!(mean_cosine(&[4], &[1.0], 1.0), None);
    assert_eq!(mean_cosine(&[4, 4], &[1.0, 0.0], 0.25), None);
    assert_eq!(mean_cosine(&[4, 4], &[1.0], 0.25), None);
}

// ---- what is undetermined, and what is refused

fn row(step: u64, g2_small: f64, g2_big: f64) -> NormRow {
    NormRow {
        step,
        b_small: 8.0,
        g2_small,
        b_big: 32.0,
        g2_big,
    }
}

#[test]
fn a_gradient_that_is_not_seen_leaves_the_noise_scale_undetermined() {
    // tr(Sigma) = (4 - 1) 8/0.75 = 32, |G|^2 = (32 - 32)/24 = 0.
    let nothing = noise_scale(&[row(1, 4.0, 1.0)], Options::default()).unwrap();
    assert_eq!(nothing.parts.b_simple.value, Err(Undetermined::NotPositive));
    assert_eq!(nothing.parts.b_simple.interval, None);
    assert_eq!((nothing.rows, nothing.blocks), (1, 1));
    // One row resolves nothing, but has a value.
    let one = noise_scale(&[row(1, 4.0, 2.0)], Options::default()).unwrap();
    close(
        one.parts.b_simple.value.unwrap(),
        64.0 / 3.0 / (32.0 / 24.0),
        1e-14,
    );
    assert_eq!(one.parts.b_simple.interval, None);
    assert_eq!(one.parts.tr_sigma.standard_error, None);
    // |G|^2 of 1, -0.5, 1, -0.5: positive on average, and not told from 0.
    let rows: Vec<NormRow> = (0..4)
        .map(|k| {
            let squared = if k % 2 == 0 { 1.0 } else { -0.5 };
            row(k, 4.0 + squared, 1.0 + squared)
        })
        .collect();
    let each = Options {
        blocks: Some(4),
        population: None,
    };
    let scale = noise_scale(&rows, each).unwrap();
    let found = scale.parts.b_simple;
    assert!(scale.parts.squared_gradient.value > 0.0);
    assert_eq!(found.value, Err(Undetermined::NotDistinguishable));
    let Some(RatioInterval::AtLeast(low)) = found.interval else {
        panic!("{found:?}");
    };
    assert!(low > 0.0 && low < 32.0 / 0.25);
    // Negative beyond doubt: no noise scale at all.
    let rows: Vec<NormRow> = (0..4).map(|k| row(k, 6.0 + 0.01 * k as f64, 1.0)).collect();
    let found = noise_scale(&rows, each).unwrap().parts.b_simple;
    assert_eq!(found.value, Err(Undetermined::NotPositive));
    assert_eq!(found.interval, None);
    // Nothing at all is known of zeros.
    let zeros: Vec<NormRow> = (0..4).map(|k| row(k, 0.0, 0.0)).collect();
    let scale = noise_scale(&zeros, each).unwrap();
    assert_eq!(scale.parts.b_simple.value, Err(Undetermined::NotPositive));
    assert_eq!(scale.parts.b_simple.interval, None);
    assert_eq!((scale.snr, scale.cosine), (None, None));
}

/// Norms of summed gradients: b^2 times those of means.
#[test]
fn norms_of_summed_gradients_are_noticed() {
    let law = Law::new(10, 0.5, 2.0);
    let rows = independent(&law, &[16, 16, 16, 16], 60, 2);
    let scale = noise_scale(&rows, Options::default()).unwrap();
    assert!(!scale.looks_summed());
    let summed: Vec<NormRow> = rows
        .iter()
        .map(|row| NormRow {
            g2_small: row.g2_small * row.b_small.powi(2),
            g2_big: row.g2_big * row.b_big.powi(2),
            ..*row
        })
        .collect();
    assert!(
        noise_scale(&summed, Options::default())
            .unwrap()
            .looks_summed()
    );
    // A gradient without noise is no such case: tr(Sigma) is 0.
    let still: Vec<NormRow> = (0..20).map(|k| row(k, 2.0, 2.0)).collect();
    let scale = noise_scale(&still, Options::default()).unwrap();
    assert!(!scale.looks_summed());
    let found = scale.parts.b_simple;
    assert_eq!(found.value, Err(Undetermined::NumeratorNotPositive));
    assert_eq!(found.interval, None);
}

#[test]
fn a_numerator_that_is_not_positive_leaves_at_most_an_upper_end() {
    let each = Options {
        blocks: Some(8),
        population: None,
    };
    let scale_of = |traces: [f64; 2]| {
        let rows: Vec<NormRow> = (0..8)
            .map(|k| row(k, 2.0 + traces[k as usize % 2], 2.0))
            .collect();
        noise_scale(&rows, each).unwrap()
    };
    // Below 0 on average, and not told from it.
    let scale = scale_of([0.5, -0.6]);
    let found = scale.parts.b_simple;
    assert!(!scale.looks_summed() && scale.parts.tr_sigma.value < 0.0);
    assert_eq!(found.value, Err(Undetermined::NumeratorNotPositive));
    assert!(found.interval.unwrap().high().unwrap() > 0.0);
    // Above 0 by as much: a value, with the same interval turned about.
    let turned = scale_of([-0.5, 0.6]).parts.b_simple;
    assert!(turned.value.unwrap() > 0.0);
    assert!(turned.interval.unwrap().low() < 0.0);
    // Below 0 beyond doubt.
    let scale = scale_of([-0.5, -0.6]);
    let found = scale.parts.b_simple;
    assert!(scale.looks_summed());
    assert_eq!(found.value, Err(Undetermined::NumeratorNotPositive));
    assert_eq!(found.interval, None);
    // The denominator's reason comes first.
    let left_out = LeftOut {
        pairs: &[],
        finite: 1.0,
    };
    let both = left_out.ratio(-1.0, -1.0);
    assert_eq!(both.value, Err(Undetermined::NotPositive));
}

#[test]
fn numbers_that_cannot_be_are_refused_with_their_row() {
    let good = row(5, 4.0, 2.0);
    let message = |bad: NormRow| {
        let rows = [row(1, 4.0, 2.0), bad];
        noise_scale(&rows, Options::default())
            .unwrap_err()
            .to_string()
    };
    let one = message(NormRow {
        b_small: 32.0,
        ..good
    });
    assert!(one.starts_with("row 2 (step 5), column `b_small`: expected less than b_big = 32"));
    assert!(one.contains("2 or more workers or micro-batches"), "{one}");
    let larger = message(NormRow {
        b_small: 64.0,
        ..good
    });
    assert!(
        larger.contains("less than b_big = 32, found 64"),
        "{larger}"
    );
    for size in [0.0, -8.0, f64::NAN, f64::INFINITY] {
        let found = message(NormRow {
            b_small: size,
            ..good
        });
        assert!(found.contains("column `b_small`"), "{found}");
        let found = message(NormRow {
            b_big: size,
            ..good
        });
        assert!(found.contains("column `b_big`"), "{found}");
    }
    for norm in [-1.0, f64::NAN, f64::INFINITY] {
        let found = message(NormRow {
            g2_small: norm,
            ..good
        });
        assert!(found.contains("column `g2_small`"), "{found}");
        let found = message(NormRow {
            g2_big: norm,
            ..good
        });
        assert!(found.contains("column `g2_big`"), "{found}");
    }
    let again = message(NormRow { step: 1, ..good });
    assert!(again.contains("expected more than 1, the step before, found 1"));
    let no_rows = noise_scale(&[], Options::default());
    assert_eq!(no_rows, Err(NoiseScaleError::NoRows));
    for blocks in [0, 2] {
        let options = Options {
            blocks: Some(blocks),
            population: None,
        };
        let error = noise_scale(&[good], options).unwrap_err();
        assert_eq!(error, NoiseScaleError::Blocks { blocks, rows: 1 });
    }
    let small = Options {
        population: Some(31),
        ..Options::default()
    };
    let error = noise_scale(&[good], small).unwrap_err().to_string();
    assert!(error.contains("`b_big`: expected at most the population, 31, found 32"));
}

#[test]
fn numbers_of_any_size_give_the_same_quotient_or_an_error() {
    let law = Law::new(10, 1.0, 3.0);
    let rows = independent(&law, &[16, 16, 16, 16], 100, 1);
    let expected = noise_scale(&rows, Options::default())
        .unwrap()
        .parts
        .b_simple;
    for scale in [1e-290, 1e-150, 1e150, 1e290] {
        let scaled: Vec<NormRow> = rows
            .iter()
            .map(|row| NormRow {
                g2_small: row.g2_small * scale,
                g2_big: row.g2_big * scale,
                ..*row
            })
            .collect();
        let found = noise_scale(&scaled, Options::default()).unwrap().parts;
        close(
            found.b_simple.value.unwrap(),
            expected.value.unwrap(),
            1e-10,
        );
        let (found, expected) = (found.b_simple.interval.unwrap(), expected.interval.unwrap());
        close(found.low(), expected.low(), 1e-10);
        close(found.high().unwrap(), expected.high().unwrap(), 1e-10);
    }
    let huge = [row(1, f64::MAX, 0.0), row(2, f64::MAX, 0.0)];
    let error = noise_scale(&huge, Options::default()).unwrap_err();
    assert_eq!(error, NoiseScaleError::Overflow);
}

// ---- the program

fn noise(file: &std::path::Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchlab"));
    command.args(["noise", "--from-csv"]).arg(file);
    command.args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program on this text, in a file `norms.csv`.
fn on(text: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("norms.csv");
    fs::write(&file, text).unwrap();
    noise(&file, arguments)
}

/// What the program says against this text.
#[track_caller]
fn refused(text: &str, arguments: &[&str]) -> String {
    let output = on(text, arguments);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(shown(&output).is_empty());
    let said = said(&output);
    assert!(said.contains("norms.csv"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

const HEAD: &str = "step,b_small,g2_small,b_big,g2_big\n";

#[test]
fn the_program_shows_estimate_interval_and_how_it_came_about() {
    let case = &reference()["tables"][0];
    let output = on(case["csv"].as_str().unwrap(), &["--window", "50"]);
    assert!(output.status.success(), "{}", said(&output));
    let shown = shown(&output);
    for part in [
        "norms.csv: 137 rows, steps 10 to 1370",
        "noise scale B_simple: 14.63 examples, 95 % interval 12.84 to 16.52",
        "tr Sigma (numerator): 14.86, standard error 0.77",
        "|G|^2 (denominator): 1.015, standard error 0.032",
        "jackknife over 10 blocks of 13 to 14 rows in a row",
        "first step",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    // Windows of 50, 50 and 37 rows, one line each.
    assert_eq!(
        shown
            .lines()
            .rev()
            .take_while(|line| !line.contains("first step"))
            .count(),
        3
    );
    let later = on(case["csv"].as_str().unwrap(), &["--skip", "500", "--json"]);
    let later: Value = serde_json::from_slice(&later.stdout).unwrap();
    assert_eq!(later["rows"], 88);
    assert_eq!(later["first_step"], 500);
}

#[test]
fn the_program_says_why_a_noise_scale_is_undetermined() {
    let case = &reference()["tables"][3];
    assert_eq!(case["name"], "not told from 0");
    let output = on(case["csv"].as_str().unwrap(), &[]);
    assert!(output.status.success());
    let text = shown(&output);
    let expected = "noise scale B_simple: undetermined, its denominator is not positive; \
                    at least 27.19 examples (95 %)";
    assert!(text.contains(expected), "{text}");
    let one = on(&format!("{HEAD}1,8,4,32,2\n"), &[]);
    assert!(
        shown(&one).contains("no interval: it takes 2 blocks"),
        "{}",
        shown(&one)
    );
    let summed = (1..=9).fold(HEAD.to_owned(), |text, k| {
        text + &format!("{k},8,64,32,{}\n", 900 + k)
    });
    let text = shown(&on(&summed, &[]));
    let first = text.lines().next().unwrap();
    assert!(first.contains("Norms must be of mean gradients"), "{text}");
    let reason = "noise scale B_simple: undetermined, its numerator is not positive\n";
    assert!(text.contains(reason), "{text}");
    let found: Value = serde_json::from_slice(&on(&summed, &["--json"]).stdout).unwrap();
    assert_eq!(found["undetermined"], "its numerator is not positive");
    assert_eq!(found["looks_summed"], true);
    for key in ["b_simple", "b_simple_low", "b_simple_high"] {
        assert!(found[key].is_null(), "{found}");
    }
    // Not told from 0: what is known is how large it is at most.
    let unclear = (1..=9).fold(HEAD.to_owned(), |text, k| {
        text + &format!("{k},8,{},32,2\n", if k % 2 == 0 { 2.5 } else { 1.5 })
    });
    let text = shown(&on(&unclear, &[]));
    let reason = "undetermined, its numerator is not positive; at most ";
    assert!(text.contains(reason), "{text}");
}

#[test]
fn columns_for_adamw_and_layers_are_found() {
    let text = "step,layer,b_small,g2_small,b_big,g2_big,adamw_g2_small,adamw_g2_big\n\
                1,a,8,4,32,2,8,4\n1,b,8,9,32,3,,\n2,a,8,4,32,2,8,4\n2,b,8,9,32,3,,\n";
    let found = refused(text, &[]);
    assert!(
        found.contains("expected one layer, found a and b"),
        "{found}"
    );
    assert!(found.contains("--layer NAME"), "{found}");
    let of = |arguments: &[&str]| -> Value {
        let output = on(text, &[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(of(&["--layer", "a"])["rows"], 2);
    let plain = of(&["--layer", "a"])["tr_sigma"].as_f64().unwrap();
    let adamw = of(&["--layer", "a", "--adamw"])["tr_sigma"]
        .as_f64()
        .unwrap();
    close(adamw, 2.0 * plain, 1e-14);
    let found = refused(text, &["--layer", "b", "--adamw"]);
    assert!(
        found.contains("row 2, column `adamw_g2_small`: expected a number, found an empty cell")
    );
    let found = refused(text, &["--layer", "c"]);
    assert!(
        found.contains("rows of the layer `c`, found a and b"),
        "{found}"
    );
}

#[test]
fn a_bad_table_is_refused_with_file_row_column_expected_and_found() {
    for (text, expected) in [
        ("", "line 1: expected column names, found an empty file"),
        (HEAD, "expected rows of norms, found none"),
        (
            "step,b_small,g2_small,b_big\n",
            "no column `g2_big`; the columns are step, b_small, g2_small, b_big",
        ),
    ] {
        let found = refused(text, &[]);
        assert!(found.contains(expected), "{text:?}: {found}");
    }
    for (rows, expected) in [
        (
            "1,8,x,32,2",
            "line 2, column `g2_small`: expected a number, found \"x\"",
        ),
        (
            "1,8,NaN,32,2",
            "row 1 (step 1), column `g2_small`: expected a finite squared norm of at least 0, found NaN",
        ),
        (
            "1,8,4,32,inf",
            "column `g2_big`: expected a finite squared norm of at least 0, found inf",
        ),
        (
            "1,8,,32,2",
            "row 1, column `g2_small`: expected a number, found an empty cell",
        ),
        (
            "1,8,4,32,2\n2,32,4,32,2",
            "row 2 (step 2), column `b_small`: expected less than b_big = 32, found 32",
        ),
        (
            "1,8,4,32,2\n1,8,4,32,2",
            "row 2, column `step`: expected more than 1, the step before, found 1",
        ),
        (
            "1.5,8,4,32,2",
            "row 1, column `step`: expected an integer from 0, found 1.5",
        ),
        ("-1,8,4,32,2", "expected an integer from 0, found -1"),
        ("NaN,8,4,32,2", "expected an integer from 0, found NaN"),
        ("1e300,8,4,32,2", "expected an integer from 0, found 1"),
        (
            "1,8,1e308,32,0\n2,8,1e308,32,0",
            "larger than a floating-point number",
        ),
        ("1,8,4,32", "line 2: expected 5 cells, found 4"),
    ] {
        let found = refused(&format!("{HEAD}{rows}\n"), &[]);
        assert!(found.contains(expected), "{rows:?}: {found}");
    }
    let two = format!("{HEAD}10,8,4,32,2\n20,8,4,32,2\n");
    for (arguments, expected) in [
        (
            ["--skip", "21"],
            "expected rows of steps from 21 on (--skip), found the last at 20",
        ),
        (
            ["--blocks", "3"],
            "no more than there are rows (2), found 3",
        ),
        (
            ["--population", "16"],
            "row 1 (step 10), column `b_big`: expected at most the population, 16, found 32",
        ),
    ] {
        let found = refused(&two, &arguments);
        assert!(found.contains(expected), "{found}");
    }
    // The row is that of the file, also where rows were skipped.
    let third = refused(&format!("{two}30,32,4,32,2\n"), &["--skip", "15"]);
    assert!(third.contains("row 3 (step 30)"), "{third}");
    let missing = noise(std::path::Path::new("nowhere/norms.csv"), &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("cannot read nowhere/norms.csv"));
    // Steps that pandas wrote as floats are steps.
    let floats = on(&format!("{HEAD}1.0,8.0,4,32.0,2\n"), &[]);
    assert!(floats.status.success(), "{}", said(&floats));
}
