//! Optimizers against torch's, timm's and optax's, averages against torch's, and the cuts that
//! threads and reduction trees make.
//!
//! `tests/reference/optimizers.py` made `optimizers.json`, `tests/reference/averaging.py` made
//! `averaging.json`.

use std::collections::BTreeMap;

use batchlab::config::{Averaging, OptimizerConfig, Role};
use batchlab::objective::{Layout, Scalar};
use batchlab::optim::{Average, Gradient, OptimError, Optimizer, Prepared, Rates};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    parameters: Vec<ReferenceParameter>,
    initial: Vec<f64>,
    gradients: Vec<Vec<f64>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct ReferenceParameter {
    name: String,
    role: Role,
    shape: Vec<usize>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    optimizer: OptimizerConfig,
    rates: Vec<f64>,
    #[serde(default)]
    momenta: Option<Vec<f64>>,
    #[serde(default)]
    clip_norm: Option<f64>,
    after: BTreeMap<usize, Vec<f64>>,
}

impl Case {
    /// The rates of each update.
    fn updates(&self) -> impl Iterator<Item = Rates> {
        (0..self.rates.len()).map(|step| Rates {
            step: step as u64 + 1,
            lr: self.rates[step],
            previous_lr: self.rates[step.saturating_sub(1)],
            momentum: self.momenta.as_ref().map(|momenta| momenta[step]),
        })
    }
}

impl Reference {
    fn read() -> Self {
        serde_json::from_str(include_str!("reference/optimizers.json")).unwrap()
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout::default();
        for parameter in &self.parameters {
            layout.push(&parameter.name, &parameter.shape, parameter.role);
        }
        layout
    }

    fn gradient<F: Scalar>(&self, step: usize) -> Vec<F> {
        cast(&self.gradients[step])
    }
}

fn cast<F: Scalar>(values: &[f64]) -> Vec<F> {
    values.iter().map(|&value| F::from_f64(value)).collect()
}

/// An optimizer of a configuration in JSON.
fn optimizer(config: &str, layout: &Layout) -> Optimizer {
    let config: OptimizerConfig = serde_json::from_str(config).unwrap();
    Optimizer::new(&config, layout).unwrap()
}

/// A layout of dense tensors of these lengths.
fn dense(lengths: &[usize]) -> Layout {
    let mut layout = Layout::default();
    for (index, &length) in lengths.iter().enumerate() {
        layout.push(format!("{index}"), &[length], Role::Dense);
    }
    layout
}

fn assert_close<F: Scalar>(found: &[F], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found = found.to_f64();
        assert!(
            (found - expected).abs() <= tolerance * scale,
            "{what}, element {index}: {found} instead of {expected}",
        );
    }
}

/// Runs all steps of all cases and compares, relative to the largest parameter.
fn equals_peers<F: Scalar>(tolerance: f64) {
    let reference = Reference::read();
    let layout = reference.layout();
    assert_eq!(reference.cases.len(), 39);
    for case in &reference.cases {
        let optimizer = Optimizer::new(&case.optimizer, &layout).unwrap();
        let mut parameters: Vec<F> = cast(&reference.initial);
        let mut state = optimizer.initial_state::<F>();
        let mut compared = 0;
        for (step, rates) in case.updates().enumerate() {
            let gradient = reference.gradient(step);
            let gradient = Gradient::One(&gradient);
            optimizer.step(
                &rates,
                case.clip_norm,
                &mut parameters,
                gradient,
                &mut state,
            );
            let Some(expected) = case.after.get(&(step + 1)) else {
                continue;
            };
            compared += 1;
            let what = format!("{}, step {}", case.name, step + 1);
            assert_close(&parameters, expected, tolerance, &what);
        }
        assert_eq!(compared, 3);
    }
}

#[test]
fn twenty_steps_equal_peers_in_f64() {
    equals_peers::<f64>(1e-13);
}

#[test]
fn twenty_steps_equal_peers_in_f32() {
    equals_peers::<f32>(1e-6);
}

/// Without both kinds of steps in them, the cases with clipping would not show that it starts and
/// stops where it should.
#[test]
fn the_reference_clips_some_gradients_and_ratios_and_leaves_others() {
    let reference = Reference::read();
    let layout = reference.layout();
    for case in &reference.cases {
        let optimizer = Optimizer::new(&case.optimizer, &layout).unwrap();
        let mut parameters = reference.initial.clone();
        let mut state = optimizer.initial_state();
        let mut clipped = 0;
        let mut ratios = Vec::new();
        for (step, rates) in case.updates().enumerate() {
            let gradient: Vec<f64> = reference.gradient(step);
            let one = Gradient::One(&gradient);
            let now = optimizer.step(&rates, case.clip_norm, &mut parameters, one, &mut state);
            assert_eq!(now.gradient_norm().is_some(), case.clip_norm.is_some());
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            let found = now.gradient_norm().unwrap_or(norm);
            assert!((found - norm).abs() <= 1e-14 * norm);
            clipped += usize::from(case.clip_norm.is_some_and(|clip_norm| norm > clip_norm));
            ratios.push(now.ratios().to_vec());
        }
        if case.clip_norm.is_some() {
            assert!((5..=15).contains(&clipped), "{}", case.name);
        }
        if case.name.contains("ratio clipped") {
            let whole = |tensor: usize| ratios.iter().filter(|now| now[tensor] == 1.0).count();
            let mut tensors = 0..layout.parameters.len();
            assert!(
                tensors.any(|tensor| (2..=18).contains(&whole(tensor))),
                "{}",
                case.name
            );
            assert!(
                ratios.iter().flatten().all(|&ratio| ratio <= 1.0),
                "{}",
                case.name
            );
        }
    }
}

/// Bits of parameters and state after all steps, each update cut at `cuts` and made back to front.
fn bits_after<F: Scalar>(case: &Case, reference: &Reference, cuts: &[usize]) -> Vec<u64> {
    let optimizer = Optimizer::new(&case.optimizer, &reference.layout()).unwrap();
    let mut parameters: Vec<F> = cast(&reference.initial);
    let mut state = optimizer.initial_state::<F>();
    let mut ends: Vec<usize> = cuts.to_vec();
    ends.push(parameters.len());
    for (step, rates) in case.updates().enumerate() {
        let gradient: Vec<F> = reference.gradient(step);
        let whole = Gradient::One(&gradient);
        let prepared = optimizer.prepare(&rates, case.clip_norm, &parameters, whole, &state);
        for part in (0..ends.len()).rev() {
            let range = if part == 0 { 0 } else { ends[part - 1] }..ends[part];
            let mut slots: Vec<&mut [F]> = state
                .iter_mut()
                .map(|slot| &mut slot[range.clone()])
                .collect();
            optimizer.update(
                &rates,
                &prepared,
                range.start,
                &mut parameters[range.clone()],
                Gradient::One(&gradient[range.clone()]),
                &mut slots,
            );
        }
    }
    let vectors = std::iter::once(&parameters).chain(&state);
    vectors
        .flatten()
        .map(|value| value.to_f64().to_bits())
        .collect()
}

#[test]
fn an_update_in_parts_has_the_bits_of_one_update() {
    let reference = Reference::read();
    let length = reference.initial.len();
    for case in &reference.cases {
        let whole = bits_after::<f32>(case, &reference, &[]);
        for cuts in [
            vec![1],
            vec![12],
            vec![7, 7, 19],
            vec![5, 18, 33, length - 1],
        ] {
            assert!(
                bits_after::<f32>(case, &reference, &cuts) == whole,
                "{} cut at {cuts:?}",
                case.name
            );
        }
        let single: Vec<usize> = (1..length).collect();
        assert_eq!(
            bits_after::<f64>(case, &reference, &single),
            bits_after::<f64>(case, &reference, &[]),
            "{}",
            case.name
        );
    }
}

#[test]
fn a_sum_of_two_gradients_has_the_bits_of_adding_first() {
    let reference = Reference::read();
    for case in &reference.cases {
        let optimizer = Optimizer::new(&case.optimizer, &reference.layout()).unwrap();
        let mut added: Vec<f32> = cast(&reference.initial);
        let mut fused = added.clone();
        let mut state_added = optimizer.initial_state::<f32>();
        let mut state_fused = optimizer.initial_state::<f32>();
        let clip_norm = case.clip_norm;
        for (step, rates) in case.updates().enumerate() {
            let left: Vec<f32> = reference.gradient(step);
            let right: Vec<f32> = reference.gradient((step + 7) % case.rates.len());
            let sum: Vec<f32> = left.iter().zip(&right).map(|(l, r)| l + r).collect();
            let one = Gradient::One(&sum);
            let two = Gradient::Sum(&left, &right);
            let of_one = optimizer.step(&rates, clip_norm, &mut added, one, &mut state_added);
            let of_two = optimizer.step(&rates, clip_norm, &mut fused, two, &mut state_fused);
            assert_eq!(of_one, of_two, "{}", case.name);
        }
        assert_eq!(added, fused, "{}", case.name);
        assert_eq!(state_added, state_fused, "{}", case.name);
    }
}

#[test]
fn preparing_measures_nothing_that_is_not_needed() {
    let layout = Reference::read().layout();
    let (parameters, rates) = (vec![1.0; layout.len()], Rates::new(1, 0.1));
    for rule in ["sgd", "momentum", "nesterov", "adamw", "lion"] {
        let optimizer = optimizer(&format!(r#"{{"{rule}": {{}}}}"#), &layout);
        let state = optimizer.initial_state();
        let gradient = Gradient::One(&parameters);
        let prepared = optimizer.prepare(&rates, None, &parameters, gradient, &state);
        assert_eq!(prepared, Prepared::default());
    }
}

/// |g| = 5 over two tensors, of which one alone would not be clipped.
#[test]
fn clipping_is_by_the_norm_over_all_parameters() {
    let layout = dense(&[1, 1]);
    let optimizer = optimizer(r#"{"sgd": {}}"#, &layout);
    for (clip_norm, after) in [
        (2.5, [-1.5, -2.0]),
        (5.0, [-3.0, -4.0]),
        (9.0, [-3.0, -4.0]),
    ] {
        let mut parameters = [0.0f64; 2];
        let gradient = Gradient::One(&[3.0, 4.0]);
        let rates = Rates::new(1, 1.0);
        let prepared = optimizer.step(&rates, Some(clip_norm), &mut parameters, gradient, &mut []);
        assert_eq!(parameters, after);
        assert_eq!(prepared.gradient_norm(), Some(5.0));
    }
}

#[test]
fn norms_are_exact_over_many_chunks() {
    // Squares of whole numbers add up without rounding.
    let length = 5 * 1024 + 13;
    let layout = dense(&[length]);
    let gradient: Vec<f32> = (0..length).map(|i| (i % 7) as f32 - 3.0).collect();
    let squares: f32 = gradient.iter().map(|g| g * g).sum();
    let parameters = vec![2.0f32; length];
    let optimizer = optimizer(r#"{"lars": {"trust_coefficient": 1.0}}"#, &layout);
    let state = optimizer.initial_state();
    let rates = Rates::new(1, 1.0);
    let one = Gradient::One(&gradient);
    let prepared = optimizer.prepare(&rates, Some(1e9), &parameters, one, &state);
    let norm = f64::from(squares).sqrt();
    assert_eq!(prepared.gradient_norm(), Some(norm));
    assert_eq!(prepared.ratios(), [(4.0 * length as f64).sqrt() / norm]);
}

/// By hand: |p| = 5, |g| = 10, |g + d p| = |(7.5, 10)| = 12.5.
#[test]
fn trust_ratios_of_lars_have_their_closed_form() {
    let layout = dense(&[2]);
    let parameters = [3.0f64, 4.0];
    let gradient = Gradient::One(&[6.0, 8.0]);
    for (norms, clip, lr, expected) in [
        ("separate", false, 8.0, 0.1 * 5.0 / (10.0 + 2.5 + 0.5)),
        ("joint", false, 8.0, 0.1 * 5.0 / (12.5 + 0.5)),
        ("separate", true, 0.01, 1.0),
        ("separate", true, 8.0, 0.1 * 5.0 / (10.0 + 2.5 + 0.5) / 8.0),
    ] {
        let config = format!(
            r#"{{"lars": {{"trust_coefficient": 0.1, "weight_decay": 0.5, "epsilon": 0.5,
                "norms": "{norms}", "clip": {clip}}}}}"#
        );
        let optimizer = optimizer(&config, &layout);
        let state = optimizer.initial_state();
        let prepared = optimizer.prepare(&Rates::new(1, lr), None, &parameters, gradient, &state);
        assert!((prepared.ratios()[0] - expected).abs() < 1e-16, "{config}");
    }
}

#[test]
fn default_exclusions_are_biases_and_normalization_for_lars_and_none_for_lamb() {
    let layout = Reference::read().layout();
    let parameters = vec![1.0; layout.len()];
    let gradient = Gradient::One(&parameters);
    for (rule, excludes) in [("lars", true), ("lamb", false)] {
        let optimizer = optimizer(&format!(r#"{{"{rule}": {{}}}}"#), &layout);
        let state = optimizer.initial_state();
        let prepared = optimizer.prepare(&Rates::new(1, 0.1), None, &parameters, gradient, &state);
        for (parameter, &ratio) in layout.parameters.iter().zip(prepared.ratios()) {
            let vector = matches!(
                parameter.role,
                Role::Bias | Role::NormalizationScale | Role::NormalizationShift
            );
            assert_eq!(
                ratio == 1.0,
                excludes && vector,
                "{rule}, {}",
                parameter.name
            );
        }
    }
}

/// The property that LARS is made for (You et al. 2017, section 5).
#[test]
fn the_step_of_lars_does_not_depend_on_the_size_of_the_gradient() {
    let layout = dense(&[3, 2]);
    let optimizer = optimizer(r#"{"lars": {}}"#, &layout);
    let run = |size: f64| {
        let mut parameters = [1.0, -2.0, 0.5, 3.0, 4.0];
        let mut state = optimizer.initial_state();
        for step in 1..=5 {
            let gradient = [0.1, 0.2, -0.3, 0.7, 0.1].map(|g| g * size);
            let gradient = Gradient::One(&gradient);
            optimizer.step(
                &Rates::new(step, 0.5),
                None,
                &mut parameters,
                gradient,
                &mut state,
            );
        }
        parameters
    };
    let (small, large) = (run(1e-6), run(1e6));
    assert_close(&large, &small, 1e-14, "1e12 times the gradient");
}

#[test]
fn trust_ratios_that_would_divide_by_zero_or_overflow_are_one() {
    // |p| = 0, |g| = 0, both, and a gradient so small that |p|/|g| is no f32.
    let layout = dense(&[2, 2, 2, 2]);
    let start = [0.0f32, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0];
    let gradient = [1.0f32, 2.0, 0.0, 0.0, 0.0, 0.0, 1e-45, 0.0];
    for (config, momentum) in [
        (
            r#"{"lars": {"trust_coefficient": 1.0, "momentum": 0.5}}"#,
            0.5,
        ),
        (
            r#"{"lars": {"trust_coefficient": 1.0, "norms": "joint", "momentum": 0.5}}"#,
            0.5,
        ),
    ] {
        let optimizer = optimizer(config, &layout);
        let mut parameters = start;
        let mut state = optimizer.initial_state();
        let one = Gradient::One(&gradient);
        let prepared = optimizer.step(&Rates::new(1, 0.5), None, &mut parameters, one, &mut state);
        assert_eq!(prepared.ratios(), [1.0; 4], "{config}");
        assert_eq!(parameters, [-0.5, -1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(optimizer.momentum(), Some(momentum));
    }
    let optimizer = optimizer(r#"{"lamb": {}}"#, &layout);
    let mut parameters = start;
    let mut state = optimizer.initial_state();
    for step in 1..=5 {
        let one = Gradient::One(&gradient);
        let prepared = optimizer.step(
            &Rates::new(step, 0.5),
            None,
            &mut parameters,
            one,
            &mut state,
        );
        assert!(prepared.ratios().iter().all(|ratio| ratio.is_finite()));
        assert!(parameters.iter().all(|p| p.is_finite()));
        assert_eq!(prepared.ratios()[1..3], [1.0, 1.0]);
    }
    assert_eq!(parameters[2..6], [1.0, 1.0, 0.0, 0.0]);
}

/// A tensor without a ratio keeps its rate under LARC, also above 1.
#[test]
fn the_clip_of_lars_leaves_tensors_without_a_ratio_alone() {
    let mut layout = dense(&[1, 1]);
    layout.push("bias", &[1], Role::Bias);
    let optimizer = optimizer(
        r#"{"lars": {"clip": true, "trust_coefficient": 8.0}}"#,
        &layout,
    );
    let mut parameters = [1.0f64, 0.0, 1.0];
    let mut state = optimizer.initial_state();
    let gradient = Gradient::One(&[4.0, 4.0, 4.0]);
    optimizer.step(
        &Rates::new(1, 3.0),
        None,
        &mut parameters,
        gradient,
        &mut state,
    );
    // Rates min(8 / 4, 3), 3 and 3.
    assert_close(&parameters, &[1.0 - 8.0, -12.0, 1.0 - 12.0], 1e-15, "LARC");
}

#[test]
fn correction_of_lars_rescales_the_velocity() {
    let layout = dense(&[1]);
    for (correction, carry) in [(true, 0.5 * 3.0), (false, 0.5)] {
        let config = format!(r#"{{"lars": {{"momentum": 0.5, "correction": {correction}}}}}"#);
        let optimizer = optimizer(&config, &layout);
        let mut parameters = [1.0f64];
        let mut state = vec![vec![0.25]];
        let rates = Rates {
            previous_lr: 0.1,
            ..Rates::new(2, 0.3)
        };
        // A zero gradient leaves the velocity alone.
        let gradient = Gradient::One(&[0.0]);
        optimizer.step(&rates, None, &mut parameters, gradient, &mut state);
        assert_close(&state[0], &[carry * 0.25], 1e-15, &config);
        assert_close(&parameters, &[1.0 - carry * 0.25], 1e-15, &config);
    }
}

#[test]
fn momentum_correction_after_a_rate_of_zero_is_finite() {
    let layout = dense(&[1]);
    let rates = [0.0, 0.1, 0.0, 0.2];
    for rule in ["momentum", "nesterov"] {
        let config = format!(r#"{{"{rule}": {{"form": "inside", "momentum": 0.5}}}}"#);
        let optimizer = optimizer(&config, &layout);
        let mut parameters = [1.0f32];
        let mut state = optimizer.initial_state();
        for (step, &lr) in rates.iter().enumerate() {
            let rates = Rates {
                previous_lr: rates[step.saturating_sub(1)],
                ..Rates::new(step as u64 + 1, lr)
            };
            let gradient = Gradient::One(&[1.0]);
            optimizer.step(&rates, None, &mut parameters, gradient, &mut state);
        }
        // Each rate that is not 0 starts with a velocity of 0.
        let first = if rule == "momentum" { 1.0 } else { 1.5 };
        assert_close(&parameters, &[1.0 - 0.3 * first], 1e-6, rule);
    }
}

#[test]
fn lion_moves_by_the_sign_and_passes_nan_on() {
    let layout = dense(&[4]);
    let optimizer = optimizer(r#"{"lion": {}}"#, &layout);
    let mut parameters = [1.0f32; 4];
    let mut state = optimizer.initial_state();
    let gradient = Gradient::One(&[3.0, -1e-30, 0.0, f32::NAN]);
    optimizer.step(
        &Rates::new(1, 0.5),
        None,
        &mut parameters,
        gradient,
        &mut state,
    );
    assert_eq!(parameters[..3], [0.5, 1.5, 1.0]);
    assert!(parameters[3].is_nan());
}

#[test]
fn roles_that_do_not_decay_see_no_decay() {
    let reference = Reference::read();
    let layout = reference.layout();
    let config = OptimizerConfig::Sgd {
        weight_decay: 0.5,
        weight_decay_roles: Some(vec![Role::Convolution]),
    };
    let optimizer = Optimizer::new(&config, &layout).unwrap();
    let mut parameters = reference.initial.clone();
    let zeros = vec![0.0; layout.len()];
    let no_state: &mut [Vec<f64>] = &mut [];
    let rates = Rates::new(1, 1.0);
    optimizer.step(
        &rates,
        None,
        &mut parameters,
        Gradient::One(&zeros),
        no_state,
    );
    for parameter in &layout.parameters {
        let factor = if parameter.role == Role::Convolution {
            0.5
        } else {
            1.0
        };
        for index in parameter.range.clone() {
            assert_eq!(parameters[index], factor * reference.initial[index]);
        }
    }
}

#[test]
fn a_parameter_without_gradient_does_not_move() {
    let layout = dense(&[3]);
    for config in [
        r#"{"adamw": {"weight_decay": 0.0}}"#,
        r#"{"lamb": {}}"#,
        r#"{"lars": {}}"#,
        r#"{"lion": {}}"#,
    ] {
        let optimizer = optimizer(config, &layout);
        let mut parameters = [1.0f32, -2.0, 0.0];
        let mut state = optimizer.initial_state();
        for step in 1..=5 {
            let gradient = Gradient::One(&[0.0; 3]);
            optimizer.step(
                &Rates::new(step, 0.1),
                Some(1.0),
                &mut parameters,
                gradient,
                &mut state,
            );
        }
        assert_eq!(parameters, [1.0, -2.0, 0.0], "{config}");
    }
}

#[test]
fn state_has_pytorchs_names() {
    let layout = Reference::read().layout();
    for (config, slots, momentum) in [
        (r#"{"sgd": {}}"#, vec![], None),
        (r#"{"momentum": {}}"#, vec!["momentum_buffer"], Some(0.9)),
        (r#"{"nesterov": {}}"#, vec!["momentum_buffer"], Some(0.9)),
        (r#"{"adamw": {}}"#, vec!["exp_avg", "exp_avg_sq"], None),
        (r#"{"lars": {}}"#, vec!["momentum_buffer"], Some(0.9)),
        (r#"{"lamb": {}}"#, vec!["exp_avg", "exp_avg_sq"], None),
        (r#"{"lion": {}}"#, vec!["exp_avg"], None),
    ] {
        let optimizer = optimizer(config, &layout);
        assert_eq!(optimizer.slots(), slots);
        assert_eq!(optimizer.initial_state::<f32>().len(), slots.len());
        assert_eq!(optimizer.momentum(), momentum);
    }
}

#[test]
fn coefficients_out_of_range_are_refused_by_name() {
    let layout = Reference::read().layout();
    for (rule, coefficient, value) in [
        ("sgd", "weight_decay", -1.0),
        ("momentum", "weight_decay", -1.0),
        ("momentum", "momentum", 1.0),
        ("momentum", "momentum", -0.1),
        ("nesterov", "weight_decay", -1.0),
        ("nesterov", "momentum", 0.0),
        ("nesterov", "momentum", 1.0),
        ("adamw", "weight_decay", -1.0),
        ("adamw", "beta1", 1.0),
        ("adamw", "beta2", -0.1),
        ("adamw", "epsilon", 0.0),
        ("lars", "weight_decay", -1.0),
        ("lars", "momentum", 1.0),
        ("lars", "trust_coefficient", 0.0),
        ("lars", "epsilon", -1e-9),
        ("lamb", "weight_decay", -1.0),
        ("lamb", "beta1", -0.1),
        ("lamb", "beta2", 1.0),
        ("lamb", "epsilon", 0.0),
        ("lion", "weight_decay", -1.0),
        ("lion", "beta1", 1.0),
        ("lion", "beta2", 1.0),
    ] {
        let config = format!(r#"{{"{rule}": {{"{coefficient}": {value}}}}}"#);
        let parsed: OptimizerConfig = serde_json::from_str(&config).unwrap();
        let error = Optimizer::new(&parsed, &layout).unwrap_err();
        let OptimError::OutOfRange { key, found, .. } = &error;
        assert_eq!(
            (*key, *found),
            (&*format!("optimizer.{rule}.{coefficient}"), value)
        );
        assert!(error.to_string().starts_with(&format!("`{key}` must be ")));
    }
}

#[derive(Deserialize)]
struct AveragingReference {
    updates_per_epoch: usize,
    /// The initial parameters, then those after each update.
    walk: Vec<Vec<f64>>,
    cases: Vec<AveragingCase>,
}

#[derive(Deserialize)]
struct AveragingCase {
    averaging: Averaging,
    after: Vec<Vec<f64>>,
}

fn averages_equal_pytorch<F: Scalar>(tolerance: f64) {
    let reference: AveragingReference =
        serde_json::from_str(include_str!("reference/averaging.json")).unwrap();
    let epochs = |update: usize| update as f64 / reference.updates_per_epoch as f64;
    assert_eq!(reference.cases.len(), 9);
    for case in &reference.cases {
        let average = Average::new(&case.averaging).unwrap().unwrap();
        let (mut mean, mut count) = average.initial(&cast::<F>(&reference.walk[0]));
        assert_eq!(case.after.len(), 20);
        for (update, expected) in case.after.iter().enumerate() {
            let now: Vec<F> = cast(&reference.walk[update + 1]);
            let (before, after) = (epochs(update), epochs(update + 1));
            average.update(&mut mean, &mut count, &now, before, after);
            let what = format!("{:?} after {} updates", case.averaging, update + 1);
            assert_close(&mean, expected, tolerance, &what);
        }
    }
}

#[test]
fn averages_of_twenty_updates_equal_pytorch_in_f64() {
    averages_equal_pytorch::<f64>(1e-14);
}

#[test]
fn averages_of_twenty_updates_equal_pytorch_in_f32() {
    averages_equal_pytorch::<f32>(1e-6);
}

/// Closed forms: parameters 1, 2, 3, ... after updates 1, 2, 3, ...
#[test]
fn averages_have_their_closed_forms() {
    let run = |config: Averaging, updates: u32, per_epoch: f64| {
        let average = Average::new(&config).unwrap().unwrap();
        let (mut mean, mut count) = average.initial(&[0.0f64]);
        for update in 1..=updates {
            let (before, after) = (
                f64::from(update - 1) / per_epoch,
                f64::from(update) / per_epoch,
            );
            average.update(&mut mean, &mut count, &[f64::from(update)], before, after);
        }
        (mean[0], count)
    };
    // sum over s <= t of (1/2)^(t - s + 1) s, from 0.
    let expected: f64 = (1..=30)
        .map(|s| 0.5f64.powi(30 - s + 1) * f64::from(s))
        .sum();
    let (found, count) = run(Averaging::Ema { decay: 0.5 }, 30, 1.0);
    assert!((found - expected).abs() < 1e-13);
    assert_eq!(count, 31);
    let swa = |start_epoch, every_epochs| Averaging::Swa {
        start_epoch,
        every_epochs,
    };
    // All parameters, the initial ones too.
    assert_eq!(run(swa(0.0, 0.1), 10, 10.0), (5.0, 11));
    // Epochs 0.3, 0.4, ..., 1.0 in tenths, which no f64 holds: 3, 4, ..., 10.
    assert_eq!(run(swa(0.3, 0.1), 10, 10.0), (6.5, 8));
    // Before the start, the parameters themselves.
    assert_eq!(run(swa(2.0, 1.0), 10, 10.0), (10.0, 0));
    // An update that reaches several points counts once.
    assert_eq!(run(swa(0.0, 0.25), 4, 1.0), (2.0, 5));
}

/// What a checkpoint holds is all there is: going on from a copy has the bits of going on.
#[test]
fn an_average_goes_on_from_vector_and_count() {
    for config in [
        Averaging::Ema { decay: 0.9 },
        Averaging::Swa {
            start_epoch: 0.5,
            every_epochs: 0.1,
        },
    ] {
        let average = Average::new(&config).unwrap().unwrap();
        let again = Average::new(&config).unwrap().unwrap();
        let (mut mean, mut count) = average.initial(&[1.0f32, 2.0]);
        let (mut copy, mut copied) = (Vec::new(), 0);
        for update in 0..20u8 {
            if update == 7 {
                (copy, copied) = (mean.clone(), count);
            }
            let parameters = [f32::from(update).sin(), f32::from(update).cos()];
            let (before, after) = (f64::from(update) / 10.0, f64::from(update + 1) / 10.0);
            average.update(&mut mean, &mut count, &parameters, before, after);
            if update >= 7 {
                again.update(&mut copy, &mut copied, &parameters, before, after);
            }
        }
        assert_eq!((mean, count), (copy, copied));
    }
}

#[test]
fn averages_out_of_range_are_refused_by_name() {
    assert_eq!(Average::new(&Averaging::None), Ok(None));
    let swa = |start_epoch, every_epochs| Averaging::Swa {
        start_epoch,
        every_epochs,
    };
    for (config, key) in [
        (Averaging::Ema { decay: 1.0 }, "train.averaging.ema.decay"),
        (
            Averaging::Ema { decay: f64::NAN },
            "train.averaging.ema.decay",
        ),
        (swa(-1.0, 1.0), "train.averaging.swa.start_epoch"),
        (swa(f64::INFINITY, 1.0), "train.averaging.swa.start_epoch"),
        (swa(1.0, 0.0), "train.averaging.swa.every_epochs"),
    ] {
        let OptimError::OutOfRange { key: found, .. } = Average::new(&config).unwrap_err();
        assert_eq!(found, key);
    }
}
