//! Optimizers against PyTorch's, and the cuts that threads and reduction trees make.
//!
//! `tests/reference/optimizers.py` made `optimizers.json`.

use std::collections::BTreeMap;

use batchlab::config::{OptimizerConfig, Role};
use batchlab::objective::{Layout, Scalar};
use batchlab::optim::{Gradient, OptimError, Optimizer};
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
    after: BTreeMap<usize, Vec<f64>>,
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

/// Runs all steps of a case and compares, relative to the largest parameter.
fn equals_pytorch<F: Scalar>(tolerance: f64) {
    let reference = Reference::read();
    let layout = reference.layout();
    assert_eq!(reference.cases.len(), 10);
    for case in &reference.cases {
        let optimizer = Optimizer::new(&case.optimizer, &layout).unwrap();
        let mut parameters: Vec<F> = cast(&reference.initial);
        let mut state = optimizer.initial_state::<F>();
        let mut compared = 0;
        for (step, &rate) in case.rates.iter().enumerate() {
            let gradient = reference.gradient(step);
            let gradient = Gradient::One(&gradient);
            let count = step as u64 + 1;
            optimizer.update(count, rate, 0, &mut parameters, gradient, &mut state);
            let Some(expected) = case.after.get(&(step + 1)) else {
                continue;
            };
            compared += 1;
            let scale = expected.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            for (index, (found, expected)) in parameters.iter().zip(expected).enumerate() {
                let found = found.to_f64();
                assert!(
                    (found - expected).abs() <= tolerance * scale,
                    "{}, step {}, element {index}: {found} instead of {expected}",
                    case.name,
                    step + 1,
                );
            }
        }
        assert_eq!(compared, 3);
    }
}

#[test]
fn twenty_steps_equal_pytorch_in_f64() {
    equals_pytorch::<f64>(1e-13);
}

#[test]
fn twenty_steps_equal_pytorch_in_f32() {
    equals_pytorch::<f32>(1e-6);
}

/// Bits of parameters and state after all steps, each update cut at `cuts` and made back to front.
fn bits_after<F: Scalar>(case: &Case, reference: &Reference, cuts: &[usize]) -> Vec<u64> {
    let optimizer = Optimizer::new(&case.optimizer, &reference.layout()).unwrap();
    let mut parameters: Vec<F> = cast(&reference.initial);
    let mut state = optimizer.initial_state::<F>();
    let mut ends: Vec<usize> = cuts.to_vec();
    ends.push(parameters.len());
    for (step, &rate) in case.rates.iter().enumerate() {
        let gradient: Vec<F> = reference.gradient(step);
        for part in (0..ends.len()).rev() {
            let range = if part == 0 { 0 } else { ends[part - 1] }..ends[part];
            let mut slots: Vec<&mut [F]> = state
                .iter_mut()
                .map(|slot| &mut slot[range.clone()])
                .collect();
            optimizer.update(
                step as u64 + 1,
                rate,
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
        for (step, &rate) in case.rates.iter().enumerate() {
            let count = step as u64 + 1;
            let left: Vec<f32> = reference.gradient(step);
            let right: Vec<f32> = reference.gradient((step + 7) % case.rates.len());
            let sum: Vec<f32> = left.iter().zip(&right).map(|(l, r)| l + r).collect();
            let one = Gradient::One(&sum);
            optimizer.update(count, rate, 0, &mut added, one, &mut state_added);
            let two = Gradient::Sum(&left, &right);
            optimizer.update(count, rate, 0, &mut fused, two, &mut state_fused);
        }
        assert_eq!(added, fused, "{}", case.name);
        assert_eq!(state_added, state_fused, "{}", case.name);
    }
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
    optimizer.update(1, 1.0, 0, &mut parameters, Gradient::One(&zeros), no_state);
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
fn a_parameter_without_gradient_stays_finite_under_adamw() {
    let mut layout = Layout::default();
    layout.push("unused", &[3], Role::Dense);
    let config: OptimizerConfig =
        serde_json::from_str(r#"{"adamw": {"weight_decay": 0.0}}"#).unwrap();
    let optimizer = Optimizer::new(&config, &layout).unwrap();
    let mut parameters = [1.0f32, -2.0, 0.0];
    let mut state = optimizer.initial_state();
    for step in 1..=5 {
        optimizer.update(
            step,
            0.1,
            0,
            &mut parameters,
            Gradient::One(&[0.0; 3]),
            &mut state,
        );
    }
    assert_eq!(parameters, [1.0, -2.0, 0.0]);
}

#[test]
fn state_has_pytorchs_names() {
    let layout = Reference::read().layout();
    for (config, slots) in [
        (r#"{"sgd": {}}"#, vec![]),
        (r#"{"momentum": {}}"#, vec!["momentum_buffer"]),
        (r#"{"nesterov": {}}"#, vec!["momentum_buffer"]),
        (r#"{"adamw": {}}"#, vec!["exp_avg", "exp_avg_sq"]),
    ] {
        let config: OptimizerConfig = serde_json::from_str(config).unwrap();
        let optimizer = Optimizer::new(&config, &layout).unwrap();
        assert_eq!(optimizer.slots(), slots);
        assert_eq!(optimizer.initial_state::<f32>().len(), slots.len());
    }
}

#[test]
fn coefficients_out_of_range_are_refused_by_name() {
    let layout = Reference::read().layout();
    for (config, key) in [
        (
            r#"{"sgd": {"weight_decay": -1.0}}"#,
            "optimizer.sgd.weight_decay",
        ),
        (
            r#"{"momentum": {"momentum": 1.0}}"#,
            "optimizer.momentum.momentum",
        ),
        (
            r#"{"nesterov": {"momentum": 0.0}}"#,
            "optimizer.nesterov.momentum",
        ),
        (r#"{"adamw": {"beta1": 1.0}}"#, "optimizer.adamw.beta1"),
        (r#"{"adamw": {"beta2": -0.1}}"#, "optimizer.adamw.beta2"),
        (r#"{"adamw": {"epsilon": 0.0}}"#, "optimizer.adamw.epsilon"),
    ] {
        let parsed: OptimizerConfig = serde_json::from_str(config).unwrap();
        let error = Optimizer::new(&parsed, &layout).unwrap_err();
        let OptimError::OutOfRange { key: found, .. } = &error;
        assert_eq!(*found, key);
        assert!(error.to_string().starts_with(&format!("`{key}` must be ")));
    }
}
