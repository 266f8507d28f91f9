//! Batch controllers, the estimates they decide by, and the curvature probe, against cockpit,
//! PyTorch, published sequences and closed forms.
//!
//! `tests/reference/controllers.py` made `controllers.json`.

use std::convert::Infallible;

use batchlab::config::{BatchConfig, BatchController, BatchGrowth, Coupling};
use batchlab::math::lanczos::{TopSearch, top_eigenvalue};
use batchlab::math::noise::{Direction, NoiseEstimate, PieceNorms};
use batchlab::math::operator::Operator;
use batchlab::objective::{Batch, NoisyQuadratic, Objective, StatisticsMode};
use batchlab::probe::noise::piece_noise;
use batchlab::rng::Stream;
use batchlab::schedule::{
    BatchControl, BatchError, Change, ControlState, Measured, Moment, Need, Start,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    features: usize,
    classes: usize,
    rate: f64,
    inputs: Vec<f64>,
    labels: Vec<usize>,
    parameters: Vec<f64>,
    loss: f64,
    cockpit: Cockpit,
    pieces: Pieces,
    ghg: f64,
    hessian: Vec<f64>,
    eigenvalues: Vec<f64>,
}

#[derive(Deserialize)]
struct Cockpit {
    cabs: f64,
    norm_test: f64,
    inner_test: f64,
    ortho_test: f64,
}

#[derive(Deserialize)]
struct Pieces {
    sizes: Vec<usize>,
    tr_sigma: f64,
    inner_variance: f64,
    tr_h_sigma: f64,
}

impl Reference {
    fn read() -> Self {
        serde_json::from_str(include_str!("reference/controllers.json")).unwrap()
    }

    /// Mean loss and gradient of softmax regression on these examples, written by hand.
    fn gradient(&self, at: &[f64], examples: std::ops::Range<usize>, out: &mut [f64]) -> f64 {
        let (features, classes) = (self.features, self.classes);
        let share = 1.0 / examples.len() as f64;
        let mut loss = 0.0;
        out.fill(0.0);
        for example in examples {
            let x = &self.inputs[example * features..(example + 1) * features];
            let logits: Vec<f64> = (0..classes)
                .map(|k| dot(&at[k * features..(k + 1) * features], x) + at[classes * features + k])
                .collect();
            let total: f64 = logits.iter().map(|z| z.exp()).sum();
            for k in 0..classes {
                let target = if k == self.labels[example] { 1.0 } else { 0.0 };
                let error = share * (logits[k].exp() / total - target);
                for (slot, x) in out[k * features..].iter_mut().zip(x) {
                    *slot += error * x;
                }
                out[classes * features + k] += error;
            }
            loss += share * (total.ln() - logits[self.labels[example]]);
        }
        loss
    }

    /// Gradients of consecutive pieces.
    fn gradients(&self, sizes: &[usize]) -> Vec<Vec<f64>> {
        let mut first = 0;
        sizes
            .iter()
            .map(|&n| {
                let mut out = vec![0.0; self.parameters.len()];
                self.gradient(&self.parameters, first..first + n, &mut out);
                first += n;
                out
            })
            .collect()
    }

    fn noise(&self, sizes: &[usize]) -> NoiseEstimate {
        norms(sizes, &self.gradients(sizes)).noise().unwrap()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn norms(sizes: &[usize], gradients: &[Vec<f64>]) -> PieceNorms {
    let batch: usize = sizes.iter().sum();
    let mut mean = vec![0.0; gradients[0].len()];
    for (&n, gradient) in sizes.iter().zip(gradients) {
        for (mean, g) in mean.iter_mut().zip(gradient) {
            *mean += n as f64 / batch as f64 * g;
        }
    }
    PieceNorms {
        sizes: sizes.to_vec(),
        squared_norms: gradients.iter().map(|g| dot(g, g)).collect(),
        squared_mean: dot(&mean, &mean),
        inner: Some(gradients.iter().map(|g| dot(g, &mean)).collect()),
        population: None,
    }
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance * expected.abs().max(1e-9),
        "{found} instead of {expected}"
    );
}

fn config(controller: BatchController) -> BatchConfig {
    BatchConfig {
        controller,
        ..BatchConfig::default()
    }
}

fn start(global_batch: usize, workers: usize) -> Start {
    Start {
        global_batch,
        workers,
        momentum: Some(0.9),
    }
}

fn noise(tr_sigma: f64, squared_gradient: f64, loss: f64) -> Measured {
    Measured::Noise {
        estimate: NoiseEstimate {
            batch: 64,
            tr_sigma,
            squared_gradient,
            direction: None,
        },
        loss,
    }
}

fn eigenvalue(value: f64) -> Measured {
    Measured::Eigenvalue {
        value,
        converged: true,
        residual: 0.0,
        products: 10,
    }
}

fn at(step: u64, epoch: f64) -> Moment {
    Moment { step, epoch }
}

/// What a controller says to one measurement, at the first decision.
fn first_change(config: &BatchConfig, start: Start, measured: &Measured, lr: f64) -> Change {
    let control = BatchControl::new(config, start, 100_000).unwrap();
    let mut state = control.initial_state();
    let moment = at(10, 1.0);
    assert_ne!(control.need(&state, moment), Need::Nothing);
    control
        .decide(&mut state, moment, measured, lr)
        .expect("a change")
}

fn smith(epochs: &[f64], factor: f64) -> BatchController {
    BatchController::Smith {
        epochs: epochs.to_vec(),
        factor,
        initial_factor: 1.0,
        momentum: None,
    }
}

fn absa(increase: Option<f64>) -> BatchController {
    BatchController::Absa {
        factor: 2.0,
        decrease: 0.5,
        increase,
        patience_epochs: 10.0,
        adversarial_share: 0.2,
        adversarial_epsilon: 0.005,
        adversarial_until: 0.5,
        curvature_examples: 512,
        power_iterations: 10,
        tolerance: 0.01,
    }
}

// Estimates.

#[test]
fn variances_from_single_examples_are_cockpits() {
    let reference = Reference::read();
    let batch = reference.labels.len();
    let sizes = vec![1; batch];
    let noise = reference.noise(&sizes);
    let g2 = norms(&sizes, &reference.gradients(&sizes)).squared_mean;
    let direction = noise.direction.unwrap();
    let b = batch as f64;
    let cockpit = &reference.cockpit;
    close((noise.tr_sigma / (b * g2)).sqrt(), cockpit.norm_test, 1e-12);
    close(
        (direction.inner_variance / (b * g2 * g2)).sqrt(),
        cockpit.inner_test,
        1e-12,
    );
    close(
        (direction.orthogonal_variance / (b * g2)).sqrt(),
        cockpit.ortho_test,
        1e-12,
    );
}

#[test]
fn variances_from_unequal_pieces_are_pytorchs() {
    let reference = Reference::read();
    let noise = reference.noise(&reference.pieces.sizes);
    close(noise.tr_sigma, reference.pieces.tr_sigma, 1e-12);
    let inner = noise.direction.unwrap().inner_variance;
    close(inner, reference.pieces.inner_variance, 1e-11);
}

#[test]
fn curvature_is_pytorchs() {
    let reference = Reference::read();
    let (at, examples) = (&reference.parameters, reference.labels.len());
    let dimension = at.len();
    // Central differences of the gradient; the model is smooth.
    let mut product = |v: &[f64], out: &mut [f64]| {
        let length = v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let shift = 6e-6 / length.max(f64::MIN_POSITIVE);
        let moved = |sign: f64| -> Vec<f64> {
            let moved: Vec<f64> = at
                .iter()
                .zip(v)
                .map(|(t, v)| t + sign * shift * v)
                .collect();
            let mut gradient = vec![0.0; at.len()];
            reference.gradient(&moved, 0..examples, &mut gradient);
            gradient
        };
        let (ahead, behind) = (moved(1.0), moved(-1.0));
        for (out, (a, b)) in out.iter_mut().zip(ahead.iter().zip(&behind)) {
            *out = (a - b) / (2.0 * shift);
        }
        Ok::<(), Infallible>(())
    };

    for i in 0..dimension {
        let (mut v, mut column) = (vec![0.0; dimension], vec![0.0; dimension]);
        v[i] = 1.0;
        product(&v, &mut column).unwrap();
        for (j, found) in column.iter().enumerate() {
            let expected = reference.hessian[j * dimension + i];
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        }
    }

    let search = TopSearch {
        tolerance: 1e-7,
        max_products: 500,
        ..TopSearch::default()
    };
    let mut stream = Stream::new(0, "start", 0);
    let mut draw = |v: &mut [f64]| v.fill_with(|| stream.normal());
    let mut hessian = Operator::new(dimension, &mut product);
    let top = top_eigenvalue(&mut hessian, &search, &mut draw).unwrap();
    assert!(top.converged);
    let largest = reference.eigenvalues[dimension - 1];
    // The error of a Rayleigh quotient is at most residual^2 over the gap of 0.088.
    close(top.value, largest, 1e-7);
    assert!((top.value - largest).abs() <= top.residual + 1e-9);

    let sizes = &reference.pieces.sizes;
    let noise = piece_noise(sizes, &reference.gradients(sizes), None, &mut hessian).unwrap();
    close(noise.tr_h_sigma.value, reference.pieces.tr_h_sigma, 1e-8);
    let expected = reference.ghg - reference.pieces.tr_h_sigma / examples as f64;
    close(noise.ghg.value, expected, 1e-8);
}

/// The noisy quadratic of Zhang et al. 2019 with 10^4 dimensions, h_i = 1/i, at theta_i^2 = 1:
/// tr(Sigma) = sum h, |G|^2 = tr(H Sigma) = sum h^2, G'HG = sum h^3, and so (FIELD.md, 3.9)
/// B_simple = 5.950513 and B_noise = 1.368350.
#[test]
fn the_noise_scales_of_the_noisy_quadratic_are_their_closed_forms() {
    let dimension = 10_000;
    let power = |k: i32| (1..=dimension).map(|i| f64::from(i).powi(-k)).sum::<f64>();
    let (trace, g2, trace_h, ghg) = (power(1), power(2), power(2), power(3));

    let simple = config(BatchController::SimpleNoiseScale {});
    let change = first_change(&simple, start(1, 1), &noise(trace, g2, 1.0), 0.1);
    assert!((change.value.unwrap() - 5.950_513).abs() < 5e-7);
    assert_eq!(change.to, 6);

    let driven = config(BatchController::NoiseScale {
        exchange_rate: 1000.0,
        curvature_examples: 512,
    });
    let measured = Measured::HessianNoise {
        tr_h_sigma: trace_h,
        ghg,
    };
    let change = first_change(&driven, start(1, 1), &measured, 0.1);
    assert!((change.value.unwrap() - 1.368_350).abs() < 5e-7);
    assert_eq!(change.to, 37); // (1000 x 1.36835)^(1/2) = 36.991

    // The same from pieces of batches of the objective itself: 32 examples in 5 unequal pieces.
    let model = NoisyQuadratic::new(dimension as usize, 1);
    let mut signs = Stream::new(2, "signs", 0);
    let theta: Vec<f64> = (0..dimension)
        .map(|_| if signs.uniform() < 0.5 { 1.0 } else { -1.0 })
        .collect();
    let point = model.at(&theta).unwrap();
    let sizes = [4, 8, 8, 2, 10];
    let mut curvature = Operator::new(theta.len(), |v: &[f64], out: &mut [f64]| {
        for (i, (out, v)) in out.iter_mut().zip(v).enumerate() {
            *out = v / (i + 1) as f64;
        }
        Ok::<(), Infallible>(())
    });
    let rounds = 40;
    let mut values = vec![Vec::new(); 4];
    let mut next = 0u64;
    for _ in 0..rounds {
        let gradients: Vec<Vec<f64>> = sizes
            .iter()
            .map(|&n| {
                let ids: Vec<u64> = (next..next + n as u64).collect();
                next += n as u64;
                let mut out = vec![0.0; theta.len()];
                let batch = Batch {
                    features: Vec::new(),
                    labels: Vec::new(),
                    groups: vec![ids.len()],
                    ids,
                };
                point
                    .gradient(batch, StatisticsMode::Batch, 1.0, &mut out)
                    .unwrap();
                out
            })
            .collect();
        let plain = norms(&sizes, &gradients).noise().unwrap();
        let weighted = piece_noise(&sizes, &gradients, None, &mut curvature).unwrap();
        values[0].push(plain.tr_sigma);
        values[1].push(plain.squared_gradient);
        values[2].push(weighted.tr_h_sigma.value);
        values[3].push(weighted.ghg.value);
    }
    for (values, expected) in values.iter().zip([trace, g2, trace_h, ghg]) {
        let n = f64::from(rounds);
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let error = (variance / n).sqrt();
        assert!(
            (mean - expected).abs() < 4.0 * error,
            "{mean} +- {error} instead of {expected}"
        );
    }
}

// Rules.

#[test]
fn cabs_asks_for_the_batch_of_cockpit() {
    let reference = Reference::read();
    let batch = reference.labels.len();
    let sizes = vec![1; batch];
    let mut out = vec![0.0; reference.parameters.len()];
    let loss = reference.gradient(&reference.parameters, 0..batch, &mut out);
    close(loss, reference.loss, 1e-13);
    let measured = Measured::Noise {
        estimate: reference.noise(&sizes),
        loss,
    };
    // At a thousand times the rate the batch is within the bounds.
    let lr = 1000.0 * reference.rate;
    let cabs = config(BatchController::Cabs {});
    let change = first_change(&cabs, start(1, 1), &measured, lr);
    // Cockpit, as the paper, divides by B; the unbiased variance by B - 1.
    let bessel = batch as f64 / (batch - 1) as f64;
    let wanted = 1000.0 * reference.cockpit.cabs * bessel;
    close(change.value.unwrap(), wanted, 1e-12);
    assert_eq!(change.to, wanted.round() as usize);
    assert_eq!(change.rate_factor_to, 1.0);
    assert!(
        change.reason.contains("lr tr(Sigma)/loss = 300 x "),
        "{}",
        change.reason
    );
}

#[test]
fn the_norm_test_takes_the_smallest_batch_that_passes() {
    let with = |theta| config(BatchController::NormTest { theta });
    // tr(Sigma)/B <= theta^2 |G|^2 with tr(Sigma) = 100, |G|^2 = 2.
    for (theta, expected) in [(0.5, 200), (0.7, 103), (1.0, 50)] {
        let change = first_change(&with(theta), start(1, 1), &noise(100.0, 2.0, 1.0), 0.1);
        assert_eq!(change.to, expected, "theta {theta}");
        let passes = |batch: usize| 100.0 / batch as f64 <= theta * theta * 2.0 + 1e-12;
        assert!(passes(change.to) && !passes(change.to - 1));
    }
    // In multiples of 8: the next one up.
    let change = first_change(&with(0.7), start(8, 8), &noise(100.0, 2.0, 1.0), 0.1);
    assert_eq!(change.to, 104);
}

#[test]
fn the_inner_product_test_takes_the_larger_of_its_two_parts() {
    let with = |orthogonality| {
        config(BatchController::InnerProductTest {
            theta: 0.9,
            orthogonality,
        })
    };
    let measured = Measured::Noise {
        estimate: NoiseEstimate {
            batch: 64,
            tr_sigma: 400.0,
            squared_gradient: 2.0,
            direction: Some(Direction {
                inner_variance: 81.0,
                orthogonal_variance: 359.5,
            }),
        },
        loss: 1.0,
    };
    // 81/(0.81 x 4) = 25; 359.5/(5.84^2 x 2) = 5.27; 359.5/(1 x 2) = 179.75.
    for (orthogonality, expected) in [(None, 25), (Some(5.84), 25), (Some(1.0), 180)] {
        let change = first_change(&with(orthogonality), start(1, 1), &measured, 0.1);
        assert_eq!(change.to, expected, "nu {orthogonality:?}");
    }
}

#[test]
fn averages_come_before_the_ratio() {
    let config = BatchConfig {
        smoothing: 0.5,
        every_steps: Some(1),
        ..config(BatchController::SimpleNoiseScale {})
    };
    let control = BatchControl::new(&config, start(1, 1), 10_000).unwrap();
    let mut state = control.initial_state();
    // The mean of the ratios, (2/3)(300/-1) + (1/3)(100/4), would be negative.
    control.decide(&mut state, at(1, 0.1), &noise(100.0, 4.0, 1.0), 0.1);
    assert_eq!(state.global_batch, 25);
    control.decide(&mut state, at(2, 0.2), &noise(300.0, -1.0, 1.0), 0.1);
    // (100/3 + 200)/(4/3 - 2/3) = 350.
    assert_eq!(state.global_batch, 350);
}

#[test]
fn an_undetermined_batch_stays_and_says_so_once() {
    let quadratic = |tr_h_sigma, ghg| Measured::HessianNoise { tr_h_sigma, ghg };
    let driven = BatchController::NoiseScale {
        exchange_rate: 10.0,
        curvature_examples: 512,
    };
    for (controller, measured, named) in [
        (
            BatchController::SimpleNoiseScale {},
            noise(10.0, -0.5, 1.0),
            "|G|^2 is -0.5",
        ),
        (
            BatchController::NormTest { theta: 0.5 },
            noise(10.0, 0.0, 1.0),
            "|G|^2 is 0",
        ),
        (BatchController::Cabs {}, noise(10.0, 1.0, 0.0), "loss is 0"),
        (driven.clone(), quadratic(1.0, -2.0), "G'HG is -2"),
        (driven, quadratic(-1.0, -2.0), "tr(H Sigma) is -1"),
    ] {
        let control = BatchControl::new(&config(controller), start(64, 1), 10_000).unwrap();
        let mut state = control.initial_state();
        let said = control
            .decide(&mut state, at(10, 0.1), &measured, 0.1)
            .unwrap();
        assert!(!said.moved() && said.value.is_none());
        assert!(said.reason.contains(named), "{}", said.reason);
        assert_eq!(
            control.decide(&mut state, at(20, 0.2), &measured, 0.1),
            None
        );
        assert_eq!(state.global_batch, 64);
    }
}

#[test]
fn measurements_that_are_not_finite_leave_no_trace() {
    let control =
        BatchControl::new(&config(BatchController::Cabs {}), start(64, 1), 10_000).unwrap();
    let mut state = control.initial_state();
    let broken = noise(f64::NAN, 1.0, 1.0);
    assert_eq!(control.decide(&mut state, at(10, 0.1), &broken, 0.1), None);
    let infinite = noise(1.0, 1.0, f64::INFINITY);
    assert_eq!(
        control.decide(&mut state, at(20, 0.2), &infinite, 0.1),
        None
    );
    let good = control.decide(&mut state, at(30, 0.3), &noise(8000.0, 1.0, 4.0), 0.1);
    assert_eq!(good.unwrap().to, 200);
}

#[test]
fn a_bound_that_holds_the_batch_is_named_once() {
    let config = BatchConfig {
        max_batch: Some(1000),
        ..config(BatchController::Cabs {})
    };
    let control = BatchControl::new(&config, start(64, 16), 10_000).unwrap();
    assert_eq!(control.bounds(), (64, 992));
    let mut state = control.initial_state();
    let mut decide = |step: u64, batch: f64| {
        let measured = noise(batch, 1.0, 1.0);
        let change = control.decide(&mut state, at(step, step as f64 / 100.0), &measured, 1.0);
        (state.global_batch, change.map(|c| c.reason))
    };
    let (batch, reason) = decide(10, 10.0);
    assert_eq!(batch, 64);
    assert!(reason.unwrap().ends_with("held at the smallest, 64"));
    assert_eq!(decide(20, 10.0), (64, None));
    let (batch, reason) = decide(30, 90_000.0);
    assert_eq!(batch, 992);
    assert!(reason.unwrap().ends_with("held at the largest, 992"));
    assert_eq!(decide(40, 90_000.0), (992, None));
}

#[test]
fn smiths_published_schedule() {
    // CIFAR-10: batch 128, factor 5 at epochs 60, 120 and 160, cap 5120.
    let capped = BatchConfig {
        max_batch: Some(5120),
        ..config(smith(&[60.0, 120.0, 160.0], 5.0))
    };
    let control = BatchControl::new(&capped, start(128, 8), 50_000).unwrap();
    assert_eq!(control.coupling(), Coupling::None);
    let mut state = control.initial_state();
    let mut lines = Vec::new();
    let (mut examples, mut step) = (0u64, 0u64);
    while examples < 200 * 50_000 {
        let moment = at(step, examples as f64 / 50_000.0);
        assert_eq!(control.need(&state, moment), Need::Nothing);
        let change = control.decide(&mut state, moment, &Measured::Nothing, 0.1);
        if let Some(change) = change {
            lines.push((moment.epoch, change));
        }
        assert_eq!(control.rate_batch(&state), 128);
        examples += state.global_batch as u64;
        step += 1;
    }
    let seen: Vec<_> = lines
        .iter()
        .map(|(_, c)| (c.from, c.to, c.rate_factor_from, c.rate_factor_to))
        .collect();
    assert_eq!(
        seen,
        [
            (128, 640, 1.0, 1.0),
            (640, 3200, 1.0, 1.0),
            (3200, 5120, 1.0, 1.6 / 5.0)
        ]
    );
    for ((epoch, _), expected) in lines.iter().zip([60.0, 120.0, 160.0]) {
        // The first update that starts there, at most one update late.
        assert!(
            (expected..expected + 3200.0 / 50_000.0).contains(epoch),
            "{epoch}"
        );
    }
    assert!(
        lines[2]
            .1
            .reason
            .contains("the rate takes the rest, 1/3.125")
    );
    // The rate over the batch falls by 5 each time, whoever takes it.
    let ratio =
        |c: &Change| (c.rate_factor_from / c.from as f64) / (c.rate_factor_to / c.to as f64);
    for (_, change) in &lines {
        close(ratio(change), 5.0, 1e-15);
    }
}

#[test]
fn smiths_cap_that_is_no_multiple_is_rounded_down_and_the_rate_knows() {
    let capped = BatchConfig {
        max_batch: Some(1000),
        ..config(smith(&[1.0, 2.0, 3.0], 5.0))
    };
    let control = BatchControl::new(&capped, start(128, 16), 50_000).unwrap();
    let plan = control.planned().unwrap();
    let batches: Vec<usize> = plan.iter().map(|stage| stage.global_batch).collect();
    assert_eq!(batches, [128, 640, 992, 992]);
    for pair in plan.windows(2) {
        let ratio = |i: usize| pair[i].rate_factor / pair[i].global_batch as f64;
        close(ratio(0) / ratio(1), 5.0, 1e-14);
    }
}

#[test]
fn smiths_larger_starts() {
    // "Increased initial learning rate": rate and batch times 5; "increased momentum": 0.98 for
    // 0.9, and the batch times another 5 (table 1 of the paper: batches 640 and 3200).
    let with = |initial_factor, momentum| {
        config(BatchController::Smith {
            epochs: vec![60.0],
            factor: 5.0,
            initial_factor,
            momentum,
        })
    };
    for (config, batch, rate, momentum) in [
        (with(5.0, None), 640, 5.0, None),
        (with(5.0, Some(0.98)), 3200, 5.0, Some(0.98)),
        (with(1.0, Some(0.98)), 640, 1.0, Some(0.98)),
    ] {
        let control = BatchControl::new(&config, start(128, 1), 50_000).unwrap();
        let state = control.initial_state();
        assert_eq!((state.global_batch, state.rate_factor), (batch, rate));
        assert_eq!(control.momentum(), momentum);
    }
}

#[test]
fn a_list_is_followed() {
    let listed = config(BatchController::Schedule {
        stages: vec![[1.0, 256.0], [2.5, 64.0], [4.0, 64.0], [6.0, 512.0]],
    });
    let control = BatchControl::new(&listed, start(128, 4), 1000).unwrap();
    assert_eq!(control.coupling(), Coupling::Rule);
    let mut state = control.initial_state();
    let mut batch_at = |epoch| {
        let change = control.decide(&mut state, at(0, epoch), &Measured::Nothing, 0.1);
        assert_eq!(control.rate_batch(&state), state.global_batch);
        (state.global_batch, change.is_some())
    };
    assert_eq!(batch_at(0.0), (128, false));
    assert_eq!(batch_at(0.999), (128, false));
    // 0.1 ten times over is an epoch.
    assert_eq!(batch_at((0..10).map(|_| 0.1).sum()), (256, true));
    assert_eq!(batch_at(2.5), (64, true));
    // A stage that changes nothing is no news.
    assert_eq!(batch_at(4.1), (64, false));
    assert_eq!(batch_at(6.2), (512, true));
    // A list may say what the run starts with.
    let listed = config(BatchController::Schedule {
        stages: vec![[0.0, 32.0], [1.0, 64.0]],
    });
    let control = BatchControl::new(&listed, start(128, 4), 1000).unwrap();
    assert_eq!(control.initial_state().global_batch, 32);
    assert_eq!(control.planned().unwrap().len(), 2);
}

#[test]
fn absa_by_hand() {
    let capped = BatchConfig {
        max_batch: Some(1024),
        ..config(absa(None))
    };
    let control = BatchControl::new(&capped, start(128, 1), 50_000).unwrap();
    let mut state = control.initial_state();
    let share = |control: &BatchControl, state: &ControlState, progress| {
        control.adversarial(state, progress).map(|a| a.share)
    };
    assert_eq!(share(&control, &state, 0.0), Some(0.2));
    assert_eq!(control.need(&state, at(0, 0.0)), Need::Nothing);
    assert_eq!(control.need(&state, at(100, 0.99)), Need::Nothing);
    // Epoch, eigenvalue, batch after, adversarial share after.
    let script = [
        (1.0, 10.0, 128, 0.2),  // the first is the reference
        (2.0, 40.0, 128, 0.2),  // rising is no reason
        (3.0, 5.1, 128, 0.2),   // more than half of 10
        (4.0, 5.0, 256, 0.1),   // half of 10: grows, 5 is the reference
        (5.0, 2.6, 256, 0.1),   // more than half of 5
        (6.0, -30.0, 256, 0.1), // a saddle decides nothing
        (13.0, 4.0, 256, 0.1),  // 9 epochs without a change
        (14.0, 4.0, 512, 0.05), // 10 epochs: grows, 4 is the reference
        (15.0, 2.1, 512, 0.05), // more than half of 4
        (16.0, 1.9, 1024, 0.0), // half: grows to the cap, no adversarial examples any more
    ];
    for (epoch, value, batch, adversarial) in script {
        let moment = at((epoch * 100.0) as u64, epoch);
        assert_eq!(control.need(&state, moment), Need::TopEigenvalue);
        let before = state.global_batch;
        let change = control.decide(&mut state, moment, &eigenvalue(value), 0.1);
        assert_eq!(state.global_batch, batch, "epoch {epoch}");
        assert_eq!(state.adversarial_share, adversarial, "epoch {epoch}");
        assert_eq!(change.as_ref().is_some_and(Change::moved), batch != before);
        if let Some(change) = change {
            assert_eq!(change.value, Some(value));
            assert_eq!(change.rate_factor_to, 1.0);
        }
        // Once an epoch.
        assert_eq!(control.need(&state, moment), Need::Nothing);
    }
    // It only grows, and has.
    assert_eq!(control.need(&state, at(9999, 90.0)), Need::Nothing);
    assert_eq!(share(&control, &state, 0.0), None);
}

#[test]
fn absa_without_adversarial_examples_past_half_of_the_budget() {
    let control = BatchControl::new(&config(absa(None)), start(128, 1), 50_000).unwrap();
    let state = control.initial_state();
    assert_eq!(control.adversarial(&state, 0.499).unwrap().epsilon, 0.005);
    assert_eq!(control.adversarial(&state, 0.5), None);
    let other = BatchControl::new(&config(BatchController::Cabs {}), start(8, 1), 64).unwrap();
    assert_eq!(other.adversarial(&other.initial_state(), 0.0), None);
}

#[test]
fn absa_may_shrink_but_not_below_its_bound() {
    let config = BatchConfig {
        max_batch: Some(256),
        ..config(absa(Some(3.0)))
    };
    let control = BatchControl::new(&config, start(128, 1), 50_000).unwrap();
    let mut state = control.initial_state();
    let mut decide = |epoch: f64, value: f64| {
        let change = control.decide(&mut state, at(0, epoch), &eigenvalue(value), 0.1);
        (state.global_batch, change.map(|c| c.reason))
    };
    assert_eq!(decide(1.0, 2.0), (128, None));
    let (batch, reason) = decide(2.0, 7.0);
    assert_eq!(batch, 128);
    assert!(reason.unwrap().contains("the smallest allowed"));
    assert_eq!(decide(3.0, 7.0), (128, None));
    assert_eq!(decide(4.0, 1.0).0, 256); // the reference is 1
    assert_eq!(decide(5.0, 2.9), (256, None));
    let (batch, reason) = decide(6.0, 3.0); // the reference is 3
    assert_eq!(batch, 128);
    assert!(reason.unwrap().contains("3 of its reference"));
    // A sharp spot at the smallest batch does not stop the patience.
    assert_eq!(decide(15.0, 20.0), (128, None));
    assert_eq!(decide(16.0, 20.0).0, 256);
}

#[test]
fn an_eigenvalue_that_has_not_converged_says_so_in_the_log() {
    let control = BatchControl::new(&config(absa(None)), start(128, 1), 50_000).unwrap();
    let mut state = control.initial_state();
    control.decide(&mut state, at(1, 1.0), &eigenvalue(8.0), 0.1);
    let measured = Measured::Eigenvalue {
        value: 3.0,
        converged: false,
        residual: 0.7,
        products: 10,
    };
    let change = control
        .decide(&mut state, at(2, 2.0), &measured, 0.1)
        .unwrap();
    assert_eq!(
        change.reason,
        "the top eigenvalue is 3 (not converged after 10 products, residual 0.7), 0.375 of its \
         reference"
    );
}

// How a batch is made, and when.

#[test]
fn batches_are_multiples_of_what_grows() {
    // 24 = 3 workers x 8.
    for (growth, unit, expected) in [
        (BatchGrowth::Shards, 3, 99),
        (BatchGrowth::Workers, 8, 104),
        (BatchGrowth::Accumulation, 24, 96),
    ] {
        let config = BatchConfig {
            growth,
            ..config(BatchController::SimpleNoiseScale {})
        };
        let control = BatchControl::new(&config, start(24, 3), 1000).unwrap();
        assert_eq!(control.unit(), unit);
        let change = first_change(&config, start(24, 3), &noise(100.0, 1.0, 1.0), 0.1);
        assert_eq!(change.to, expected, "{growth:?}");
    }
}

#[test]
fn each_controller_looks_at_its_own_cadence() {
    let looks = |config: &BatchConfig| -> Vec<u64> {
        let control = BatchControl::new(config, start(50, 1), 1000).unwrap();
        let mut state = control.initial_state();
        let mut steps = Vec::new();
        for step in 0..60 {
            let moment = at(step, step as f64 / 20.0);
            let measured = match control.need(&state, moment) {
                Need::Nothing => continue,
                Need::TopEigenvalue => eigenvalue(1.0),
                Need::HessianNoise => Measured::HessianNoise {
                    tr_h_sigma: 1.0,
                    ghg: 1.0,
                },
                Need::Norms | Need::InnerProducts => noise(1.0, 1.0, 1.0),
            };
            steps.push(step);
            // Another answer than the one asked for decides nothing, and the question stands.
            control.decide(&mut state, moment, &Measured::Nothing, 0.1);
            assert_ne!(control.need(&state, moment), Need::Nothing);
            control.decide(&mut state, moment, &measured, 0.1);
            assert_eq!(control.need(&state, moment), Need::Nothing);
        }
        steps
    };
    assert_eq!(looks(&config(absa(None))), [20, 40]);
    assert_eq!(
        looks(&config(BatchController::Cabs {})),
        [10, 20, 30, 40, 50]
    );
    let slower = BatchConfig {
        every_epochs: Some(1.5),
        ..config(BatchController::SimpleNoiseScale {})
    };
    assert_eq!(looks(&slower), [30]);
    let often = BatchConfig {
        every_steps: Some(25),
        ..config(absa(None))
    };
    assert_eq!(looks(&often), [25, 50]);
    assert_eq!(looks(&config(BatchController::Constant {})), [0; 0]);
    // Nothing to decide between bounds that meet.
    let tied = BatchConfig {
        max_batch: Some(50),
        ..config(BatchController::Cabs {})
    };
    assert_eq!(looks(&tied), [0; 0]);
}

#[test]
fn a_resumed_controller_decides_as_an_undisturbed_one() {
    let inner = BatchController::InnerProductTest {
        theta: 0.9,
        orthogonality: Some(5.84),
    };
    let scale = BatchController::NoiseScale {
        exchange_rate: 700.0,
        curvature_examples: 64,
    };
    let list = BatchController::Schedule {
        stages: vec![[0.3, 128.0], [1.2, 256.0]],
    };
    for controller in [
        list,
        smith(&[0.5, 1.0, 1.5], 3.0),
        absa(Some(2.0)),
        BatchController::Cabs {},
        BatchController::NormTest { theta: 0.5 },
        inner,
        scale,
        BatchController::SimpleNoiseScale {},
    ] {
        let measures = !matches!(
            controller,
            BatchController::Schedule { .. } | BatchController::Smith { .. }
        );
        let config = BatchConfig {
            every_steps: measures.then_some(3),
            ..config(controller)
        };
        let control = BatchControl::new(&config, start(64, 1), 2000).unwrap();
        let mut stream = Stream::new(7, "resume", 0);
        let mut state = control.initial_state();
        let mut resumed = state.clone();
        let mut changes = 0;
        for step in 0..200 {
            let moment = at(step, step as f64 / 100.0);
            let mut draw = || 0.01 + stream.uniform();
            let measured = match control.need(&state, moment) {
                Need::Nothing => Measured::Nothing,
                Need::TopEigenvalue => eigenvalue(draw()),
                Need::HessianNoise => Measured::HessianNoise {
                    tr_h_sigma: 100.0 * draw(),
                    ghg: draw() - 0.2,
                },
                Need::Norms | Need::InnerProducts => Measured::Noise {
                    estimate: NoiseEstimate {
                        batch: state.global_batch,
                        tr_sigma: 300.0 * draw(),
                        squared_gradient: draw() - 0.2,
                        direction: Some(Direction {
                            inner_variance: 30.0 * draw(),
                            orthogonal_variance: 300.0 * draw(),
                        }),
                    },
                    loss: draw(),
                },
            };
            let lr = 0.1 + draw();
            // Killed and resumed before every update.
            let text = serde_json::to_string(&resumed).unwrap();
            resumed = serde_json::from_str(&text).unwrap();
            assert_eq!(control.need(&resumed, moment), control.need(&state, moment));
            let change = control.decide(&mut state, moment, &measured, lr);
            assert_eq!(control.decide(&mut resumed, moment, &measured, lr), change);
            assert_eq!(resumed, state);
            changes += usize::from(change.is_some());
        }
        assert!(changes > 0, "{}", control.describe());
    }
}

#[test]
fn a_controller_describes_itself_in_one_line() {
    let line = |config: &BatchConfig| {
        BatchControl::new(config, start(128, 4), 5000)
            .unwrap()
            .describe()
    };
    assert_eq!(line(&config(BatchController::Constant {})), "constant: 128");
    assert_eq!(
        line(&config(smith(&[30.0, 60.0], 5.0))),
        "smith: 128 from epoch 0, 640 from epoch 30, 3200 from epoch 60, by larger shards; the \
         scaling rule does not move the rate"
    );
    let grown = BatchConfig {
        growth: BatchGrowth::Workers,
        ..config(absa(None))
    };
    assert_eq!(
        line(&grown),
        "absa: 128 to 4992 in multiples of 32, by more workers; decides every epoch; the rate \
         follows by its scaling rule"
    );
}

#[test]
fn what_cannot_be_followed_is_refused_with_a_way_out() {
    let refused = |config: &BatchConfig, words: &[&str]| {
        let error: BatchError = BatchControl::new(config, start(128, 8), 5000).unwrap_err();
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{text}");
        }
    };
    let list = |stages: &[[f64; 2]]| {
        config(BatchController::Schedule {
            stages: stages.to_vec(),
        })
    };
    let key = "batch.controller.schedule.stages";
    refused(
        &list(&[[1.0, 100.0]]),
        &[key, "100", "8 (the workers)", "96 and 104"],
    );
    refused(&list(&[[1.0, 3.0]]), &[key, "nearest that fit are 8"]);
    refused(&list(&[[1.0, f64::NAN]]), &[key]);
    refused(&list(&[[1.0, f64::INFINITY]]), &[key]);
    refused(&list(&[[1.0, 1e300]]), &[key, "above 5000"]);
    refused(
        &list(&[[1.0, 5008.0]]),
        &[key, "above 5000", "batch.max_batch"],
    );
    refused(
        &list(&[[2.0, 256.0], [1.0, 512.0]]),
        &[key, "rising", "found 1"],
    );
    refused(&list(&[]), &[key, "at least one"]);
    let low = BatchConfig {
        min_batch: Some(64),
        ..list(&[[1.0, 32.0]])
    };
    refused(&low, &[key, "below 64", "batch.min_batch"]);

    let key = "batch.controller.smith.factor";
    refused(&config(smith(&[1.0], 1.3)), &[key, "166.4", "160 and 168"]);
    refused(&config(smith(&[1.0], 1.0)), &[key, "above 1"]);
    let accumulated = BatchConfig {
        growth: BatchGrowth::Accumulation,
        ..config(smith(&[1.0], 1.5))
    };
    refused(&accumulated, &["accumulation", "128 and 256"]);
    refused(
        &config(smith(&[0.0], 2.0)),
        &["batch.controller.smith.epochs"],
    );
    let coupled = BatchConfig {
        coupling: Some(Coupling::Rule),
        ..config(smith(&[1.0], 5.0))
    };
    refused(&coupled, &["batch.coupling", "none"]);
    let larger = |initial_factor, momentum| {
        config(BatchController::Smith {
            epochs: vec![1.0],
            factor: 5.0,
            initial_factor,
            momentum,
        })
    };
    let key = "batch.controller.smith.initial_factor";
    refused(&larger(1.3, None), &[key, "166.4"]);
    let key = "batch.controller.smith.momentum";
    refused(&larger(1.0, Some(0.97)), &[key, "426.667", "424 and 432"]);
    refused(
        &larger(1.0, Some(0.5)),
        &[key, "at least the optimizer's, 0.9"],
    );
    refused(&larger(1.0, Some(1.0)), &[key]);

    let bounded = |min_batch, max_batch| BatchConfig {
        min_batch,
        max_batch,
        ..config(BatchController::Cabs {})
    };
    refused(
        &bounded(None, Some(64)),
        &["batch.max_batch", "at least the start, 128", "64"],
    );
    refused(
        &bounded(Some(256), None),
        &["batch.min_batch", "at most the start, 128", "256"],
    );
    let cadence = |controller, every_steps, every_epochs| BatchConfig {
        every_steps,
        every_epochs,
        ..config(controller)
    };
    let both = cadence(BatchController::Cabs {}, Some(5), Some(1.0));
    refused(&both, &["batch.every_steps", "every_epochs"]);
    refused(
        &cadence(BatchController::Cabs {}, Some(0), None),
        &["every_steps", "at least 1"],
    );
    refused(
        &cadence(BatchController::Cabs {}, None, Some(0.0)),
        &["every_epochs"],
    );
    let theta = config(BatchController::NormTest { theta: 0.0 });
    refused(&theta, &["batch.controller.norm-test.theta", "positive"]);
    let smoothing = BatchConfig {
        smoothing: 1.0,
        ..config(BatchController::Cabs {})
    };
    refused(&smoothing, &["batch.smoothing", "[0, 1)"]);

    let without = Start {
        momentum: None,
        ..start(128, 8)
    };
    let error = BatchControl::new(&larger(1.0, Some(0.95)), without, 5000).unwrap_err();
    assert_eq!(error, BatchError::Momentum);
    let uneven = BatchControl::new(&config(BatchController::Cabs {}), start(100, 8), 5000);
    assert!(uneven.unwrap_err().to_string().contains("train.workers"));
    // A batch that stays may have shards of unequal sizes.
    let stays = BatchControl::new(&config(BatchController::Constant {}), start(100, 8), 5000);
    assert!(stays.is_ok());
}
