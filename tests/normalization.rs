//! Normalization: against PyTorch, against the papers' formulas, and the contracts between local,
//! ghost and global batch statistics. All in f64.
//!
//! The expected values of PyTorch come from `tests/reference/normalization.py`.

mod reference_data;

use std::collections::HashMap;

use batchlab::config::{Normalization, Role, TrialConfig};
use batchlab::data::Data;
use batchlab::model::{
    AnyObjective, BatchNormalization, BurnObjective, Forward, Mlp, Network, Normalizer, Registry,
    weight_normalized, weights,
};
use batchlab::objective::{
    Batch, GroupMoments, LayerStatistics, Layout, NoisyQuadratic, Objective, ObjectiveError,
    StatisticsMode, population_statistics,
};
use burn::module::{Module, ModuleDisplay};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor};
use reference_data::{examples, reference};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

/// Rounding of sums of some hundred terms of order 1 in f64.
const ROUNDING: f64 = 1e-12;

fn config(model: &Value) -> TrialConfig {
    serde_json::from_value(json!({
        "seed": 0,
        "data": {"source": {"digits": {}}},
        "model": model,
        "train": {"workers": 1, "global_batch": 16, "steps": 1, "precision": "f64"},
        "learning_rate": {"base_lr": 0.1},
    }))
    .unwrap()
}

fn model(name: &str, normalization: &Value) -> Value {
    match name {
        "mlp" => json!({"mlp": {"widths": [12, 8], "normalization": normalization}}),
        "cnn" => json!({"simple-cnn":
            {"channels": [2, 4], "dense": 8, "normalization": normalization}}),
        _ => json!({"resnet": {"depth": 8, "width": 2, "normalization": normalization}}),
    }
}

fn data_of(name: &str) -> Data {
    examples(if name == "resnet" { "images" } else { "digits" })
}

fn build(model: &Value, data: &Data) -> Box<dyn AnyObjective> {
    Registry::new().build(&config(model), data).unwrap()
}

/// The examples of a range in the given groups.
fn batch(data: &Data, range: std::ops::Range<usize>, groups: &[usize]) -> Batch<f64> {
    let width: usize = data.shape.iter().product();
    let features = &data.train.features[range.start * width..range.end * width];
    Batch {
        features: features.iter().map(|&v| f64::from(v)).collect(),
        labels: data.train.labels[range.clone()].to_vec(),
        ids: range.map(|i| i as u64).collect(),
        groups: groups.to_vec(),
    }
}

fn gradient(
    objective: &dyn AnyObjective,
    parameters: &[f64],
    batch: Batch<f64>,
) -> (f64, Vec<f64>) {
    let mut gradient = vec![0.0; parameters.len()];
    let loss = objective
        .at(parameters)
        .unwrap()
        .gradient(batch, StatisticsMode::Batch, 1.0, &mut gradient)
        .unwrap();
    (loss, gradient)
}

fn losses(
    objective: &dyn AnyObjective,
    parameters: &[f64],
    batch: Batch<f64>,
    mode: StatisticsMode<'_>,
) -> Vec<f64> {
    let point = objective.at(parameters).unwrap();
    point.predict(batch, mode).unwrap().losses
}

fn layout(objective: &dyn AnyObjective) -> &Layout {
    Objective::<f64>::layout(objective)
}

fn initial(objective: &dyn AnyObjective, seed: u64) -> Vec<f64> {
    Objective::<f64>::initial(objective, seed)
}

/// Initial parameters, moved so that scales are not 1 and shifts are not 0.
fn moved(objective: &dyn AnyObjective) -> Vec<f64> {
    let mut parameters = initial(objective, 3);
    for (i, value) in parameters.iter_mut().enumerate() {
        *value += 0.2 * (i as f64 * 0.7).sin();
    }
    parameters
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    norm(&a.iter().zip(b).map(|(x, y)| x - y).collect::<Vec<_>>())
}

/// Asserts |a - b| <= tolerance max(1, |b|), Euclidean norms.
fn assert_near(what: &str, a: &[f64], b: &[f64], tolerance: f64) {
    let error = distance(a, b) / norm(b).max(1.0);
    assert!(error <= tolerance, "{what}: off by {error:e}");
}

fn assert_same_moments(what: &str, a: &[GroupMoments], b: &[GroupMoments]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!(
            (&a.layer, a.examples, a.values),
            (&b.layer, b.examples, b.values),
            "{what}"
        );
        assert_near(what, &a.mean, &b.mean, ROUNDING);
        assert_near(what, &a.variance, &b.variance, ROUNDING);
    }
}

/// The tensors of one case, as a file of its own.
fn part(file: &SafeTensors<'_>, prefix: &str) -> Vec<u8> {
    let tensors: Vec<(String, TensorView<'_>)> = file
        .iter()
        .filter_map(|(name, view)| Some((name.strip_prefix(prefix)?.to_owned(), view)))
        .collect();
    assert!(!tensors.is_empty(), "{prefix}");
    safetensors::serialize(tensors, None).unwrap()
}

#[test]
fn losses_and_gradients_equal_pytorch() {
    let bytes = reference("normalization.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let reference: Value = serde_json::from_slice(&reference("normalization.json")).unwrap();
    let cases = reference["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 21);
    for case in cases {
        let name = case["case"].as_str().unwrap();
        let data = examples(case["examples"].as_str().unwrap());
        let which = model(case["model"].as_str().unwrap(), &case["normalization"]);
        let objective = build(&which, &data);
        let read = |what: &str| {
            let bytes = part(&file, &format!("{name}.{what}."));
            weights::from_bytes::<f64>(&*objective, &bytes).unwrap().0
        };
        let (parameters, expected) = (read("weights"), read("gradients"));
        let groups: Vec<usize> = serde_json::from_value(case["groups"].clone()).unwrap();
        let n = groups.iter().sum();
        let (loss, found) = gradient(&*objective, &parameters, batch(&data, 0..n, &groups));
        let expected_loss = case["loss"].as_f64().unwrap();
        let error = (loss - expected_loss).abs() / expected_loss;
        assert!(
            error <= 1e-12,
            "{name} {which}: loss {loss} against {expected_loss}"
        );
        for parameter in &layout(&*objective).parameters {
            let (own, truth) = (
                &found[parameter.range.clone()],
                &expected[parameter.range.clone()],
            );
            // A bias before batch normalization has gradient 0: its rounding is that of the rest.
            let allowed = 1e-10 * norm(truth) + 1e-14 * norm(&expected);
            let error = distance(own, truth);
            assert!(
                error <= allowed,
                "{name} {which}: {} is off by {error:e}, |gradient| is {:e}",
                parameter.name,
                norm(truth)
            );
        }
    }
}

#[test]
fn parameters_have_the_names_shapes_and_roles_of_pytorch() {
    let parameters = |name: &str, normalization: Value| -> Vec<(String, Vec<usize>, Role)> {
        let objective = build(&model(name, &normalization), &data_of(name));
        let parameters = &layout(&*objective).parameters;
        parameters
            .iter()
            .map(|p| (p.name.clone(), p.shape.clone(), p.role))
            .collect()
    };
    let own = |name: &str, shape: &[usize], role| (name.to_owned(), shape.to_vec(), role);
    let plain = [
        own("layers.0.weight", &[64, 12], Role::Dense),
        own("layers.0.bias", &[12], Role::Bias),
        own("layers.1.weight", &[12, 8], Role::Dense),
        own("layers.1.bias", &[8], Role::Bias),
        own("layers.2.weight", &[8, 10], Role::Dense),
        own("layers.2.bias", &[10], Role::Bias),
    ];
    assert_eq!(parameters("mlp", json!("none")), plain);
    let norms = [
        own("norms.0.weight", &[12], Role::NormalizationScale),
        own("norms.0.bias", &[12], Role::NormalizationShift),
        own("norms.1.weight", &[8], Role::NormalizationScale),
        own("norms.1.bias", &[8], Role::NormalizationShift),
    ];
    for kind in [
        json!("batch"),
        json!("layer"),
        json!({"group": {"groups": 2}}),
    ] {
        assert_eq!(
            parameters("mlp", kind),
            [plain.as_slice(), norms.as_slice()].concat()
        );
    }
    let weight = parameters("cnn", json!({"weight": {}}));
    assert_eq!(
        weight[..4],
        [
            own("conv1.weight_v", &[2, 1, 5, 5], Role::Convolution),
            own("conv1.weight_g", &[2, 1, 1, 1], Role::NormalizationScale),
            own("conv1.bias", &[2], Role::Bias),
            own("conv2.weight_v", &[4, 2, 5, 5], Role::Convolution),
        ]
    );
    assert_eq!(
        weight[6..9],
        [
            own("dense1.weight_v", &[16, 8], Role::Dense),
            own("dense1.weight_g", &[1, 8], Role::NormalizationScale),
            own("dense1.bias", &[8], Role::Bias),
        ]
    );
    let names = |normalization: Value| -> Vec<String> {
        let all = parameters("resnet", normalization);
        all.into_iter().map(|(name, ..)| name).take(6).collect()
    };
    for kind in [
        json!("batch"),
        json!("layer"),
        json!({"group": {"groups": 2}}),
    ] {
        assert_eq!(
            names(kind),
            [
                "conv1.weight",
                "bn1.weight",
                "bn1.bias",
                "layer1.0.conv1.weight",
                "layer1.0.bn1.weight",
                "layer1.0.bn1.bias"
            ]
        );
    }
    assert_eq!(
        names(json!("none"))[..3],
        ["conv1.weight", "conv1.bias", "layer1.0.conv1.weight"]
    );
    assert_eq!(
        names(json!({"weight": {}}))[..3],
        ["conv1.weight_v", "conv1.weight_g", "conv1.bias"]
    );
}

#[test]
fn the_weights_of_normalized_models_survive_the_way_to_pytorch_and_back() {
    for name in ["mlp", "cnn", "resnet"] {
        for kind in [
            json!("batch"),
            json!({"group": {"groups": 2}}),
            json!({"weight": {}}),
        ] {
            let objective = build(&model(name, &kind), &data_of(name));
            let parameters = moved(&*objective);
            let bytes = weights::to_bytes(&*objective, &parameters, &[]).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            let (back, _) = weights::from_bytes::<f64>(&*objective, &bytes).unwrap();
            assert_eq!(back, parameters);
            if kind["weight"].is_null() {
                continue;
            }
            // PyTorch's shapes of v and g, and the names of its newer weight normalization.
            let last = if name == "mlp" {
                "layers.2"
            } else if name == "cnn" {
                "dense2"
            } else {
                "linear"
            };
            let v = file.tensor(&format!("{last}.weight_v")).unwrap();
            assert_eq!(v.shape(), [10, 8]);
            let g = file.tensor(&format!("{last}.weight_g")).unwrap();
            assert_eq!(g.shape(), [10, 1]);
            let renamed: HashMap<String, TensorView<'_>> = file
                .iter()
                .map(|(name, view)| {
                    let name = name
                        .replace("weight_g", "parametrizations.weight.original0")
                        .replace("weight_v", "parametrizations.weight.original1");
                    (name, view)
                })
                .collect();
            let bytes = safetensors::serialize(renamed, None).unwrap();
            let (back, _) = weights::from_bytes::<f64>(&*objective, &bytes).unwrap();
            assert_eq!(back, parameters);
        }
    }
}

const BATCH_NORMALIZED: [&str; 3] = ["mlp", "cnn", "resnet"];

/// Loss, gradient, losses of the examples, and moments of a batch in groups.
type Whole = (f64, Vec<f64>, Vec<f64>, Vec<GroupMoments>);

fn whole(objective: &dyn AnyObjective, parameters: &[f64], batch: &Batch<f64>) -> Whole {
    let (loss, gradient) = gradient(objective, parameters, batch.clone());
    let each = losses(objective, parameters, batch.clone(), StatisticsMode::Batch);
    let point = objective.at(parameters).unwrap();
    (loss, gradient, each, point.moments(batch.clone()).unwrap())
}

/// The same from one batch for each group, as workers of their own would have it: means weighted
/// by examples, moments layer by layer.
fn apart(objective: &dyn AnyObjective, parameters: &[f64], data: &Data, groups: &[usize]) -> Whole {
    let total = groups.iter().sum::<usize>() as f64;
    let mut start = 0;
    let (mut loss, mut gradient, mut each) = (0.0, vec![0.0; parameters.len()], Vec::new());
    let mut moments: Vec<Vec<GroupMoments>> = Vec::new();
    for &size in groups {
        let own = batch(data, start..start + size, &[size]);
        start += size;
        let (own_loss, own_gradient, own_each, own_moments) = whole(objective, parameters, &own);
        let share = size as f64 / total;
        loss += share * own_loss;
        for (sum, value) in gradient.iter_mut().zip(own_gradient) {
            *sum += share * value;
        }
        each.extend(own_each);
        moments.push(own_moments);
    }
    let layers = moments[0].len();
    let by_layer = (0..layers)
        .flat_map(|layer| moments.iter().map(move |own| own[layer].clone()))
        .collect();
    (loss, gradient, each, by_layer)
}

#[test]
fn ghost_groups_equal_workers_of_their_own() {
    for name in BATCH_NORMALIZED {
        let data = data_of(name);
        let objective = build(&model(name, &json!("batch")), &data);
        let parameters = moved(&*objective);
        // Four workers of 8 against one of 32 with ghost batches of 8; the remainder merged into
        // the last group; no two alike; larger ones first, as where shards do not divide.
        for groups in [
            vec![8, 8, 8, 8],
            vec![8, 8, 8, 13],
            vec![2, 9, 5],
            vec![7, 7, 6, 6],
            vec![32],
        ] {
            let n = groups.iter().sum();
            let together = whole(&*objective, &parameters, &batch(&data, 0..n, &groups));
            let separate = apart(&*objective, &parameters, &data, &groups);
            let what = format!("{name}, groups {groups:?}");
            assert_near(&what, &[together.0], &[separate.0], ROUNDING);
            assert_near(&what, &together.1, &separate.1, ROUNDING);
            assert_near(&what, &together.2, &separate.2, ROUNDING);
            assert_same_moments(&what, &together.3, &separate.3);
        }
    }
}

#[test]
fn the_statistics_of_one_big_group_are_those_of_all_its_parts() {
    // At the first layer, whose inputs do not depend on the groups, global statistics are what
    // workers would get by exchanging their sums: the parts combined.
    for name in BATCH_NORMALIZED {
        let data = data_of(name);
        let objective = build(&model(name, &json!("batch")), &data);
        let parameters = moved(&*objective);
        let point = objective.at(&parameters).unwrap();
        let first = |groups: &[usize]| -> LayerStatistics {
            let moments = point.moments(batch(&data, 0..30, groups)).unwrap();
            population_statistics(&moments)[0].clone()
        };
        let big = first(&[30]);
        for groups in [&[10, 10, 10][..], &[4, 4, 4, 4, 14], &[2, 28]] {
            let parts = first(groups);
            assert_near(name, &parts.mean, &big.mean, ROUNDING);
            assert_near(name, &parts.variance, &big.variance, ROUNDING);
        }
    }
}

#[test]
fn moments_count_values_so_that_the_unbiased_variance_can_be_formed() {
    for (name, positions) in [("mlp", 1), ("cnn", 64), ("resnet", 64)] {
        let data = data_of(name);
        let objective = build(&model(name, &json!("batch")), &data);
        let parameters = moved(&*objective);
        let point = objective.at(&parameters).unwrap();
        let moments = point.moments(batch(&data, 0..11, &[4, 7])).unwrap();
        assert_eq!((moments[0].examples, moments[1].examples), (4, 7));
        assert_eq!(moments[0].values, 4 * positions);
        assert_eq!(moments[1].values, 7 * positions);
        // The first layer by hand, on the dense layer: unbiased variance of x W + b.
        if name == "mlp" {
            let layout = layout(&*objective);
            let at = |i: usize| &parameters[layout.parameters[i].range.clone()];
            let (w, b, x) = (at(0), at(1), batch(&data, 0..4, &[4]).features);
            for unit in 0..12 {
                let values: Vec<f64> = (0..4)
                    .map(|e| {
                        b[unit]
                            + (0..64)
                                .map(|i| x[e * 64 + i] * w[i * 12 + unit])
                                .sum::<f64>()
                    })
                    .collect();
                let mean = values.iter().sum::<f64>() / 4.0;
                let unbiased = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 3.0;
                let values = moments[0].values as f64;
                let found = moments[0].variance[unit] * values / (values - 1.0);
                assert_near("mean", &[moments[0].mean[unit]], &[mean], ROUNDING);
                assert_near("variance", &[found], &[unbiased], ROUNDING);
            }
        }
    }
}

#[test]
fn a_gradient_with_moments_is_the_gradient_and_the_moments() {
    for (name, normalization) in [("resnet", "batch"), ("mlp", "batch"), ("cnn", "layer")] {
        let data = data_of(name);
        let objective = build(&model(name, &json!(normalization)), &data);
        let parameters = moved(&*objective);
        let batch = batch(&data, 0..20, &[6, 6, 8]);
        let (loss, expected, _, moments) = whole(&*objective, &parameters, &batch);
        let mut found = vec![0.0; parameters.len()];
        let point = objective.at(&parameters).unwrap();
        let (own_loss, own_moments) = point
            .gradient_and_moments(batch, StatisticsMode::Batch, 1.0, &mut found)
            .unwrap();
        assert_eq!(own_loss, loss);
        assert_eq!(found, expected);
        assert_eq!(own_moments, moments);
        assert_eq!(moments.is_empty(), normalization == "layer");
    }
}

#[test]
fn groups_of_one_are_refused_where_there_are_batch_statistics() {
    let data = data_of("mlp");
    for (normalization, refused) in [("batch", true), ("layer", false), ("none", false)] {
        let objective = build(&model("mlp", &json!(normalization)), &data);
        assert_eq!(Objective::<f64>::has_batch_statistics(&*objective), refused);
        let parameters = moved(&*objective);
        let result = objective.at(&parameters).unwrap().gradient(
            batch(&data, 0..5, &[4, 1]),
            StatisticsMode::Batch,
            1.0,
            &mut vec![0.0; parameters.len()],
        );
        assert_eq!(
            matches!(result, Err(ObjectiveError::GroupOfOne)),
            refused,
            "{normalization}: {result:?}"
        );
    }
}

#[test]
fn evaluation_is_the_same_at_any_batch_size() {
    for name in BATCH_NORMALIZED {
        for normalization in [
            json!("batch"),
            json!("layer"),
            json!({"group": {"groups": 2}}),
            json!({"weight": {}}),
        ] {
            let data = data_of(name);
            let objective = build(&model(name, &normalization), &data);
            let parameters = moved(&*objective);
            let point = objective.at(&parameters).unwrap();
            let moments = point.moments(batch(&data, 0..64, &[16; 4])).unwrap();
            let statistics = population_statistics(&moments);
            let by = |size: usize| -> Vec<f64> {
                (0..256)
                    .step_by(size)
                    .flat_map(|start| {
                        let end = (start + size).min(256);
                        losses(
                            &*objective,
                            &parameters,
                            batch(&data, start..end, &[end - start]),
                            StatisticsMode::Inference(&statistics),
                        )
                    })
                    .collect()
            };
            let all = by(256);
            for size in [1, 7] {
                let what = format!("{name}, {normalization}, {size} at a time");
                assert_near(&what, &by(size), &all, ROUNDING);
            }
        }
    }
}

#[test]
fn one_dense_example_can_be_layer_normalized() {
    // Two values in all: nothing may take them for too few.
    let data = data_of("mlp");
    let model = json!({"mlp": {"widths": [2], "normalization": "layer"}});
    let objective = build(&model, &data);
    let parameters = moved(&*objective);
    let batch = batch(&data, 0..1, &[1]);
    assert!(gradient(&*objective, &parameters, batch).0.is_finite());
}

#[test]
fn the_input_gradient_is_that_of_each_example() {
    // Softmax regression in closed form: the gradient of -ln p_y is W (p - e_y).
    let data = data_of("mlp");
    let objective = build(&json!({"softmax-regression": {}}), &data);
    let parameters = moved(&*objective);
    let five = batch(&data, 0..5, &[5]);
    let mut found = vec![1.0; 3];
    let sum = objective
        .at(&parameters)
        .unwrap()
        .input_gradient(five.clone(), StatisticsMode::Batch, &mut found)
        .unwrap();
    let (w, b) = parameters.split_at(640);
    let mut expected = Vec::new();
    let mut expected_sum = 0.0;
    for (x, &label) in five.features.chunks_exact(64).zip(&five.labels) {
        let logits: Vec<f64> = (0..10)
            .map(|c| b[c] + (0..64).map(|i| x[i] * w[i * 10 + c]).sum::<f64>())
            .collect();
        let total: f64 = logits.iter().map(|z| z.exp()).sum();
        expected_sum += total.ln() - logits[label as usize];
        expected.extend((0..64).map(|i| {
            (0..10)
                .map(|c| {
                    let truth = f64::from(u8::from(c == label as usize));
                    w[i * 10 + c] * (logits[c].exp() / total - truth)
                })
                .sum::<f64>()
        }));
    }
    assert_near("sum of losses", &[sum], &[expected_sum], ROUNDING);
    assert_near("input gradient", &found, &expected, ROUNDING);
}

#[test]
fn the_input_gradient_is_the_derivative_of_the_summed_loss() {
    for (name, normalization) in [
        ("mlp", json!("batch")),
        ("cnn", json!({"weight": {}})),
        ("resnet", json!("batch")),
        ("resnet", json!({"group": {"groups": 2}})),
    ] {
        let data = data_of(name);
        let objective = build(&model(name, &normalization), &data);
        let parameters = moved(&*objective);
        let six = batch(&data, 0..6, &[3, 3]);
        let mut found = Vec::new();
        objective
            .at(&parameters)
            .unwrap()
            .input_gradient(six.clone(), StatisticsMode::Batch, &mut found)
            .unwrap();
        assert_eq!(found.len(), six.features.len());
        let sum_at = |features: Vec<f64>| -> f64 {
            let batch = Batch {
                features,
                ..six.clone()
            };
            losses(&*objective, &parameters, batch, StatisticsMode::Batch)
                .iter()
                .sum()
        };
        // Central differences along one direction; h^2 and rounding/h are both near 1e-10. The
        // direction is small enough not to cross a kink of ReLU or pooling at these examples.
        let direction: Vec<f64> = (0..found.len()).map(|i| (i as f64 * 1.3).cos()).collect();
        let h = 1e-6;
        let along = |sign: f64| -> f64 {
            sum_at(
                six.features
                    .iter()
                    .zip(&direction)
                    .map(|(x, d)| x + sign * h * d)
                    .collect(),
            )
        };
        let slope = (along(1.0) - along(-1.0)) / (2.0 * h);
        let expected: f64 = found.iter().zip(&direction).map(|(g, d)| g * d).sum();
        assert!(
            (slope - expected).abs() <= 1e-7 * expected.abs().max(1.0),
            "{name}, {normalization}: {slope} against {expected}"
        );
    }
}

#[test]
fn an_objective_without_features_says_what_input_gradients_need() {
    let model = NoisyQuadratic::new(4, 0);
    let point = Objective::<f64>::at(&model, &[1.0; 4]).unwrap();
    let batch = Batch {
        features: Vec::new(),
        labels: Vec::new(),
        ids: vec![0, 1],
        groups: vec![2],
    };
    let error = point.input_gradient(batch, StatisticsMode::Batch, &mut Vec::new());
    let message = error.unwrap_err().to_string();
    assert!(message.contains("no input gradient") && message.contains("neural network"));
}

/// The g of each v: (index of v, index of g).
fn normalized_weights(layout: &Layout) -> Vec<(usize, usize)> {
    let names: Vec<&str> = layout.parameters.iter().map(|p| p.name.as_str()).collect();
    let pairs: Vec<(usize, usize)> = names
        .iter()
        .enumerate()
        .filter(|(_, name)| name.ends_with("weight_v"))
        .map(|(v, name)| {
            let g = name.replace("weight_v", "weight_g");
            (v, names.iter().position(|n| *n == g).unwrap())
        })
        .collect();
    assert!(!pairs.is_empty());
    pairs
}

/// The positions of the weights of one output unit inside a weight of this shape.
fn unit(shape: &[usize], unit: usize) -> Vec<usize> {
    let size: usize = shape.iter().product();
    if let [_, outputs] = *shape {
        return (unit..size).step_by(outputs).collect();
    }
    let each = size / shape[0];
    (unit * each..(unit + 1) * each).collect()
}

#[test]
fn the_gradients_of_g_and_v_are_those_of_the_paper() {
    // Salimans and Kingma 2016, equation 3, from the plain model's gradient at w = g v/|v|.
    for name in ["mlp", "cnn", "resnet"] {
        let data = data_of(name);
        let normalized = build(
            &model(name, &json!({"weight": {"data_dependent": false}})),
            &data,
        );
        let plain = build(&model(name, &json!("none")), &data);
        let parameters = moved(&*normalized);
        let own = layout(&*normalized);
        let pairs = normalized_weights(own);
        let mut weights = Vec::new();
        for (i, parameter) in own.parameters.iter().enumerate() {
            let values = &parameters[parameter.range.clone()];
            if let Some(&(_, g)) = pairs.iter().find(|(v, _)| *v == i) {
                let scales = &parameters[own.parameters[g].range.clone()];
                let mut w = values.to_vec();
                for (u, scale) in scales.iter().enumerate() {
                    let at = unit(&parameter.shape, u);
                    let length = norm(&at.iter().map(|&k| values[k]).collect::<Vec<_>>());
                    for k in at {
                        w[k] = scale * values[k] / length;
                    }
                }
                weights.extend(w);
            } else if !pairs.iter().any(|(_, g)| *g == i) {
                weights.extend_from_slice(values);
            }
        }
        let batch = batch(&data, 0..12, &[12]);
        let (plain_loss, plain_gradient) = gradient(&*plain, &weights, batch.clone());
        let (loss, found) = gradient(&*normalized, &parameters, batch);
        assert_near("loss", &[loss], &[plain_loss], ROUNDING);
        for plain_parameter in &layout(&*plain).parameters {
            let of_w = &plain_gradient[plain_parameter.range.clone()];
            let find = |name: &str| own.parameters.iter().find(|p| p.name == name);
            if let Some(same) = find(&plain_parameter.name) {
                assert_near(&same.name, &found[same.range.clone()], of_w, ROUNDING);
                continue;
            }
            let v = find(&format!("{}_v", plain_parameter.name)).unwrap();
            let g = find(&format!("{}_g", plain_parameter.name)).unwrap();
            let values = &parameters[v.range.clone()];
            let mut of_v = vec![0.0; of_w.len()];
            let mut of_g = Vec::new();
            for (u, scale) in parameters[g.range.clone()].iter().enumerate() {
                let at = unit(&v.shape, u);
                let length = norm(&at.iter().map(|&k| values[k]).collect::<Vec<_>>());
                let along = at.iter().map(|&k| of_w[k] * values[k]).sum::<f64>() / length;
                of_g.push(along);
                for k in at {
                    of_v[k] =
                        scale / length * of_w[k] - scale * along / (length * length) * values[k];
                }
            }
            assert_near(&g.name, &found[g.range.clone()], &of_g, ROUNDING);
            assert_near(&v.name, &found[v.range.clone()], &of_v, ROUNDING);
        }
    }
}

#[test]
fn without_data_a_weight_normalized_network_starts_as_the_plain_one() {
    for name in ["mlp", "cnn", "resnet"] {
        let data = data_of(name);
        let kind = json!({"weight": {"data_dependent": false}});
        let normalized = build(&model(name, &kind), &data);
        let plain = build(&model(name, &json!("none")), &data);
        assert!(!Objective::<f64>::needs_data_initialization(&*normalized));
        let (own, theirs) = (initial(&*normalized, 5), initial(&*plain, 5));
        let without_scales: Vec<f64> = layout(&*normalized)
            .parameters
            .iter()
            .filter(|p| !p.name.ends_with("weight_g"))
            .flat_map(|p| own[p.range.clone()].to_vec())
            .collect();
        assert_eq!(without_scales, theirs);
        let batch = batch(&data, 0..9, &[9]);
        let each = |objective: &dyn AnyObjective, at: &[f64]| {
            losses(objective, at, batch.clone(), StatisticsMode::Batch)
        };
        assert_near(
            name,
            &each(&*normalized, &own),
            &each(&*plain, &theirs),
            ROUNDING,
        );
    }
}

/// A network whose "loss" of an example is the output that its label names.
#[derive(Module, Debug)]
struct Outputs<M> {
    inner: M,
}

impl<M: Network + ModuleDisplay> Network for Outputs<M> {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        self.inner.forward(input, pass)
    }

    fn losses(&self, outputs: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        outputs.gather(1, labels.unsqueeze_dim(1)).squeeze_dim(1)
    }
}

/// A user's module: two convolutions, of which the outputs of the first or the second are seen,
/// and a dense layer whose outputs are seen otherwise.
#[derive(Module, Debug)]
struct Custom {
    conv1: Conv2d,
    conv2: Conv2d,
    dense: Linear,
    #[module(skip)]
    seen: usize,
}

impl Custom {
    fn new(seen: usize, device: &Device) -> Self {
        let convolution = |from, to| {
            Conv2dConfig::new([from, to], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device)
        };
        weight_normalized(Self {
            conv1: convolution(1, 3),
            conv2: convolution(3, 2),
            dense: LinearConfig::new(128, 7).init(device),
            seen,
        })
    }
}

impl Network for Custom {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        let image = pass.image(input);
        let first = pass.convolution(&self.conv1, image);
        let second = pass.convolution(&self.conv2, relu(first.clone()));
        let third = pass.dense(&self.dense, relu(second.clone()).flatten(1, 3));
        match self.seen {
            1 => first.flatten(1, 3),
            2 => second.flatten(1, 3),
            _ => third,
        }
    }

    fn needs_data_initialization(&self) -> bool {
        true
    }
}

/// Asserts that unit (or channel) by unit the outputs of a batch have mean 0 and variance 1.
fn assert_standardized(
    objective: &dyn Objective<f64>,
    parameters: &[f64],
    batch: &Batch<f64>,
    units: usize,
    positions: usize,
) {
    let point = objective.at(parameters).unwrap();
    for unit in 0..units {
        let values: Vec<f64> = (0..positions)
            .flat_map(|position| {
                let label = (unit * positions + position) as u32;
                let labels = vec![label; batch.len()];
                let batch = Batch {
                    labels,
                    ..batch.clone()
                };
                let predictions = point.predict(batch, StatisticsMode::Batch);
                predictions.unwrap().losses
            })
            .collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        assert_near("mean", &[mean], &[0.0], ROUNDING);
        assert_near("variance", &[variance], &[1.0], ROUNDING);
    }
}

#[test]
fn data_dependent_initialization_standardizes_every_layer_of_an_mlp() {
    let device = Device::flex();
    let data = data_of("mlp");
    let kind = Normalization::Weight {
        data_dependent: true,
    };
    let mlp = |widths: &[usize], outputs: usize| {
        let activation = batchlab::config::Activation::Tanh;
        Mlp::new(64, widths, outputs, activation, kind, &device).unwrap()
    };
    let objective = BurnObjective::new(mlp(&[12, 8], 10), &[64], "flex").unwrap();
    let objective: &dyn Objective<f64> = &objective;
    assert!(objective.needs_data_initialization());
    let mut parameters = objective.initial(2);
    let before = parameters.clone();
    let batch = batch(&data, 0..50, &[25, 25]);
    objective
        .initialize_from(&mut parameters, batch.clone())
        .unwrap();
    for parameter in &objective.layout().parameters {
        let (old, new) = (
            &before[parameter.range.clone()],
            &parameters[parameter.range.clone()],
        );
        if parameter.name.ends_with("weight_v") {
            assert_eq!(old, new, "v stays");
            // Its variance is 0.05^2: the relative error of a deviation from n values is
            // (2n)^-1/2; 4 of them.
            let n = old.len() as f64;
            let deviation = norm(old) / n.sqrt();
            assert!((deviation / 0.05 - 1.0).abs() < 4.0 / (2.0 * n).sqrt());
        } else {
            assert_ne!(old, new, "{}", parameter.name);
        }
    }
    // The first layers of the network, as networks of their own.
    let widths = [12, 8, 10];
    for depth in 0..3 {
        let inner = mlp(&widths[..depth], widths[depth]);
        let shallow = BurnObjective::new(Outputs { inner }, &[64], "flex").unwrap();
        let shallow: &dyn Objective<f64> = &shallow;
        let own = &parameters[..shallow.layout().len()];
        assert_standardized(shallow, own, &batch, widths[depth], 1);
    }
}

#[test]
fn data_dependent_initialization_standardizes_the_convolutions_of_a_users_module() {
    let device = Device::flex();
    let data = data_of("cnn");
    let batch = batch(&data, 0..20, &[20]);
    let mut parameters = None;
    for (seen, units, positions) in [(1, 3, 64), (2, 2, 64), (3, 7, 1)] {
        let inner = Custom::new(seen, &device);
        let seen_only = BurnObjective::new(Outputs { inner }, &[1, 8, 8], "flex").unwrap();
        let seen_only: &dyn Objective<f64> = &seen_only;
        let custom = BurnObjective::new(Custom::new(3, &device), &[1, 8, 8], "flex").unwrap();
        let custom: &dyn Objective<f64> = &custom;
        let parameters = parameters.get_or_insert_with(|| {
            let mut parameters = custom.initial(1);
            custom
                .initialize_from(&mut parameters, batch.clone())
                .unwrap();
            parameters
        });
        assert_standardized(seen_only, parameters, &batch, units, positions);
    }
}

#[test]
fn data_dependent_initialization_of_the_built_in_models_gives_finite_training() {
    for name in ["mlp", "cnn", "resnet"] {
        let data = data_of(name);
        let objective = build(&model(name, &json!({"weight": {}})), &data);
        assert!(Objective::<f64>::needs_data_initialization(&*objective));
        let mut parameters = initial(&*objective, 1);
        let batch = batch(&data, 0..32, &[32]);
        objective
            .initialize_from(&mut parameters, batch.clone())
            .unwrap();
        let again = parameters.clone();
        let (loss, found) = gradient(&*objective, &parameters, batch.clone());
        assert!(loss.is_finite() && loss < 10.0, "{name}: {loss}");
        assert!(found.iter().all(|g| g.is_finite()));
        // It only looks at v, which it does not change: a second time gives the same.
        objective.initialize_from(&mut parameters, batch).unwrap();
        assert_eq!(parameters, again);
    }
}

#[test]
fn data_dependent_initialization_refuses_a_batch_that_does_not_vary() {
    let data = data_of("mlp");
    let objective = build(&model("mlp", &json!({"weight": {}})), &data);
    let before = initial(&*objective, 1);
    let one = batch(&data, 0..1, &[1]);
    let same = Batch {
        features: one.features.repeat(6),
        labels: one.labels.repeat(6),
        ids: (0..6).collect(),
        groups: vec![6],
    };
    for batch in [one, same] {
        let mut parameters = before.clone();
        let error = objective.initialize_from(&mut parameters, batch);
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("layers.0.weight_g") && message.contains("larger batch"),
            "{message}"
        );
        assert_eq!(parameters, before);
    }
}

#[test]
fn with_zero_gamma_every_block_starts_as_its_shortcut() {
    let data = data_of("resnet");
    for normalization in [
        json!("batch"),
        json!("layer"),
        json!({"group": {"groups": 2}}),
    ] {
        let resnet = |depth: usize, zero: bool| {
            build(
                &json!({"resnet": {"depth": depth, "width": 2, "normalization": normalization,
                    "zero_gamma": zero}}),
                &data,
            )
        };
        let (shallow, deep) = (resnet(8, true), resnet(20, true));
        let scales = |objective: &dyn AnyObjective, parameters: &[f64]| {
            let of = |p: &batchlab::objective::Parameter| parameters[p.range.clone()].to_vec();
            let (last, others): (Vec<_>, Vec<_>) = layout(objective)
                .parameters
                .iter()
                .filter(|p| p.role == Role::NormalizationScale)
                .partition(|p| p.name.ends_with("bn2.weight"));
            let flat = |list: Vec<&batchlab::objective::Parameter>| -> Vec<f64> {
                list.into_iter().flat_map(of).collect()
            };
            (flat(last), flat(others))
        };
        let (at_shallow, mut at_deep) = (initial(&*shallow, 1), initial(&*deep, 2));
        let (last, others) = scales(&*deep, &at_deep);
        assert!(last.iter().all(|g| *g == 0.0) && others.iter().all(|g| *g == 1.0));
        // The same stem and output layer: then any number of identities between them is the same.
        for parameter in &layout(&*shallow).parameters {
            if parameter.name.starts_with("layer") {
                continue;
            }
            let target = layout(&*deep)
                .parameters
                .iter()
                .find(|p| p.name == parameter.name)
                .unwrap();
            at_deep[target.range.clone()].copy_from_slice(&at_shallow[parameter.range.clone()]);
        }
        let batch = batch(&data, 0..16, &[16]);
        let each = |objective: &dyn AnyObjective, at: &[f64]| {
            losses(objective, at, batch.clone(), StatisticsMode::Batch)
        };
        assert_eq!(each(&*deep, &at_deep), each(&*shallow, &at_shallow));
        // Without it the blocks count.
        let without = resnet(8, false);
        let at_without = initial(&*without, 1);
        let (last, _) = scales(&*without, &at_without);
        assert!(last.iter().all(|g| *g == 1.0));
        assert_ne!(each(&*without, &at_without), each(&*shallow, &at_shallow));
    }
}

#[test]
fn groups_that_do_not_divide_the_channels_are_refused_with_their_key() {
    for (name, key, channels) in [
        ("mlp", "model.mlp.normalization.group.groups", 8),
        ("cnn", "model.simple-cnn.normalization.group.groups", 2),
        ("resnet", "model.resnet.normalization.group.groups", 2),
    ] {
        for groups in [0, 3] {
            let model = model(name, &json!({"group": {"groups": groups}}));
            let result = Registry::new().build(&config(&model), &data_of(name));
            let message = result.err().unwrap().to_string();
            // 3 divides the first width of the MLP, 12, and 0 none.
            let channels = if groups == 0 && name == "mlp" {
                12
            } else {
                channels
            };
            assert!(
                message.starts_with(&format!("{key}: found {groups}")),
                "{message}"
            );
            assert!(
                message.contains(&format!("{channels} channels")),
                "{message}"
            );
        }
    }
}

/// A user's module with normalization layers of both kinds.
#[derive(Module, Debug)]
struct Normalized {
    first: Linear,
    bn: BatchNormalization,
    second: Linear,
    chosen: Option<Normalizer>,
    output: Linear,
}

impl Network for Normalized {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        let hidden = relu(self.bn.forward(self.first.forward(input), pass));
        let mut hidden = self.second.forward(hidden);
        if let Some(chosen) = &self.chosen {
            hidden = chosen.forward(hidden, pass);
        }
        self.output.forward(relu(hidden))
    }
}

#[test]
fn a_users_module_can_hold_normalization_layers() {
    let data = data_of("mlp");
    let registry = Registry::new().register("normalized", |context| {
        let device = &context.device;
        Ok(Normalized {
            first: LinearConfig::new(context.features(), 6).init(device),
            bn: BatchNormalization::new("bn", 6, device),
            second: LinearConfig::new(6, 4).init(device),
            chosen: Normalizer::new(Normalization::Group { groups: 2 }, "chosen", 4, device)?,
            output: LinearConfig::new(4, context.classes).init(device),
        })
    });
    let custom = json!({"custom": {"name": "normalized"}});
    let objective = registry.build(&config(&custom), &data).unwrap();
    let names: Vec<&str> = layout(&*objective)
        .parameters
        .iter()
        .map(|p| p.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "first.weight",
            "first.bias",
            "bn.weight",
            "bn.bias",
            "second.weight",
            "second.bias",
            "chosen.weight",
            "chosen.bias",
            "output.weight",
            "output.bias"
        ]
    );
    assert!(Objective::<f64>::has_batch_statistics(&*objective));
    let parameters = moved(&*objective);
    let groups = [5, 5, 7];
    let together = whole(&*objective, &parameters, &batch(&data, 0..17, &groups));
    let separate = apart(&*objective, &parameters, &data, &groups);
    assert_near("gradient", &together.1, &separate.1, ROUNDING);
    assert_same_moments("moments", &together.3, &separate.3);
}
