//! Whole training steps against PyTorch, and the contracts of data-parallel training.
//!
//! The expected values come from `tests/reference/training.py`.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

mod reference_data;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use batchlab::config::{
    Activation, BatchConfig, DataConfig, DataSource, EpochEnd, LearningRateConfig, Metric,
    ModelConfig, MomentumSchedule, Normalization, OptimizerConfig, Precision, ProbesConfig, Split,
    TargetConfig, TrainConfig, TrialConfig,
};
use batchlab::data::Data;
use batchlab::model::{AnyObjective, Registry, weights};
use batchlab::objective::{Objective, Scalar};
use batchlab::train::{Control, Places, Pool, Session, Status, TrialOutcome, run_trial};
use reference_data::{examples, reference};
use safetensors::SafeTensors;
use serde_json::Value;

const BATCH: usize = 16;
const STEPS: usize = 20;

fn config(model: ModelConfig, optimizer: OptimizerConfig, lr: f64) -> TrialConfig {
    TrialConfig {
        seed: 0,
        data: serde_json::from_value::<DataConfig>(serde_json::json!({"source": {"digits": {}}}))
            .unwrap(),
        model,
        train: serde_json::from_value::<TrainConfig>(
            serde_json::json!({"workers": 1, "global_batch": BATCH, "steps": STEPS}),
        )
        .unwrap(),
        learning_rate: serde_json::from_value::<LearningRateConfig>(
            serde_json::json!({"base_lr": lr}),
        )
        .unwrap(),
        batch: BatchConfig::default(),
        optimizer,
        momentum_schedule: MomentumSchedule::default(),
        probes: ProbesConfig::default(),
    }
}

fn model_of(run: &str) -> ModelConfig {
    match run {
        "mlp relu" => ModelConfig::Mlp {
            widths: vec![32, 16],
            activation: Activation::Relu,
            normalization: Normalization::None,
        },
        "mlp tanh" => ModelConfig::Mlp {
            widths: vec![32, 16],
            activation: Activation::Tanh,
            normalization: Normalization::None,
        },
        "cnn" => ModelConfig::SimpleCnn {
            channels: [4, 8],
            dense: 32,
            normalization: Normalization::None,
        },
        _ => ModelConfig::Resnet {
            depth: 8,
            width: 4,
            normalization: Normalization::Batch,
            zero_gamma: false,
        },
    }
}

struct Run {
    losses: Vec<f64>,
    final_loss: f64,
    parameters: Vec<f64>,
}

/// `STEPS` updates on consecutive batches from the given weights.
fn train<F: Scalar>(
    config: &TrialConfig,
    data: &Data,
    model: &dyn AnyObjective,
    objective: &dyn Objective<F>,
    weights_file: Option<&str>,
    threads: usize,
) -> Run {
    Pool::with(threads, |pool| {
        let mut session = Session::new(config, data, objective, pool).unwrap();
        if let Some(file) = weights_file {
            let (parameters, _) = weights::from_bytes::<F>(model, &reference(file)).unwrap();
            session.set_parameters(parameters);
        }
        let batch = config.train.global_batch.unwrap() as u64;
        let losses = (0..STEPS as u64)
            .map(|step| {
                let ids = (step * batch..(step + 1) * batch)
                    .map(|i| i % 320)
                    .collect();
                session.step_on(ids).unwrap().loss
            })
            .collect();
        let statistics = session.statistics().unwrap();
        let evaluation = session
            .evaluate(Split::Train, &statistics)
            .unwrap()
            .unwrap();
        let parameters = session.parameters().iter().map(|p| p.to_f64()).collect();
        Run {
            losses,
            final_loss: evaluation.loss,
            parameters,
        }
    })
}

fn run(config: &TrialConfig, data: &Data, weights_file: Option<&str>, threads: usize) -> Run {
    let model = Registry::new().build(config, data).unwrap();
    match config.train.precision {
        Precision::F32 => train::<f32>(config, data, &*model, &*model, weights_file, threads),
        Precision::F64 => train::<f64>(config, data, &*model, &*model, weights_file, threads),
    }
}

fn assert_close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let error = (found - expected).abs() / expected.abs();
    assert!(
        error <= tolerance,
        "{what}: {found} against {expected}, relative error {error:e}"
    );
}

/// Relative Euclidean distance.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let square: f64 = a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum();
    (square / b.iter().map(|y| y * y).sum::<f64>()).sqrt()
}

#[test]
fn twenty_steps_equal_pytorch() {
    let reference: Value = serde_json::from_slice(&reference("training.json")).unwrap();
    let runs = reference["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 17);
    for expected in runs {
        let model = expected["model"].as_str().unwrap();
        let data = examples(expected["examples"].as_str().unwrap());
        let optimizer = serde_json::from_value(expected["optimizer"].clone()).unwrap();
        let lr = expected["learning_rate"].as_f64().unwrap();
        let mut config = config(model_of(model), optimizer, lr);
        config.train.workers = expected["workers"].as_u64().unwrap() as usize;
        let file = expected["weights"].as_str().unwrap();
        // PyTorch's own f32 losses are within 3.4e-7 of its f64 losses, which are the truth for both.
        for (precision, tolerance) in [(Precision::F64, 1e-10), (Precision::F32, 1e-5)] {
            config.train.precision = precision;
            let found = run(&config, &data, Some(file), 1);
            let case = format!("{model}, {}, {precision:?}", expected["case"]);
            let truth = &expected["f64"];
            for (step, loss) in truth["losses"].as_array().unwrap().iter().enumerate() {
                let what = format!("{case}: loss of step {}", step + 1);
                assert_close(&what, found.losses[step], loss.as_f64().unwrap(), tolerance);
            }
            let norm = found.parameters.iter().map(|p| p * p).sum::<f64>().sqrt();
            let expected_norm = truth["final_norm"].as_f64().unwrap();
            assert_close(
                &format!("{case}: final norm"),
                norm,
                expected_norm,
                tolerance,
            );
            if let Some(loss) = truth["final_loss"].as_f64() {
                assert_close(
                    &format!("{case}: final loss"),
                    found.final_loss,
                    loss,
                    tolerance,
                );
            }
        }
    }
}

#[test]
fn p_workers_of_b_equal_one_worker_of_p_b() {
    let data = examples("digits");
    for model in ["mlp relu", "cnn"] {
        for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-6)] {
            let mut config = config(model_of(model), OptimizerConfig::default(), 0.05);
            config.train.precision = precision;
            let one = run(&config, &data, None, 1);
            for workers in [2, 3, 5, 16] {
                // 16 is not a multiple of 3 and 5: unequal shards, and still the mean over all.
                config.train.workers = workers;
                let many = run(&config, &data, None, 1);
                assert_close(model, many.losses[0], one.losses[0], tolerance);
                let error = distance(&many.parameters, &one.parameters);
                assert!(error <= tolerance, "{model}, {workers} workers: {error:e}");
            }
        }
    }
}

#[test]
fn micro_batches_equal_whole_shards() {
    let data = examples("digits");
    let mut config = config(model_of("mlp relu"), OptimizerConfig::default(), 0.05);
    config.train.precision = Precision::F64;
    let whole = run(&config, &data, None, 1);
    for micro in [1, 3, 5, 16] {
        config.train.micro_batch = Some(micro);
        let cut = run(&config, &data, None, 1);
        assert!(distance(&cut.parameters, &whole.parameters) <= 1e-12);
    }
}

#[test]
fn threads_never_change_a_bit() {
    for (model, which) in [
        ("mlp relu", "digits"),
        ("cnn", "digits"),
        ("resnet", "images"),
    ] {
        let data = examples(which);
        let mut config = config(model_of(model), OptimizerConfig::default(), 0.05);
        config.train.global_batch = Some(64);
        config.train.workers = 5;
        config.train.micro_batch = (model != "resnet").then_some(4);
        let one = run(&config, &data, None, 1);
        for threads in [2, 3, 4] {
            let many = run(&config, &data, None, threads);
            assert_eq!(many.losses, one.losses, "{model}, {threads} threads");
            assert_eq!(
                many.parameters, one.parameters,
                "{model}, {threads} threads"
            );
            assert_eq!(
                many.final_loss, one.final_loss,
                "{model}, {threads} threads"
            );
        }
    }
}

#[test]
fn splitting_a_large_update_between_threads_never_changes_a_bit() {
    let data = examples("digits");
    // 64 x 8000 + 8000 + 80010 parameters: more than the update needs to be split.
    let model = ModelConfig::Mlp {
        widths: vec![8000],
        activation: Activation::Relu,
        normalization: Normalization::None,
    };
    for optimizer in [OptimizerConfig::default(), adamw()] {
        let config = config(model.clone(), optimizer, 0.01);
        let one = run(&config, &data, None, 1);
        let two = run(&config, &data, None, 2);
        assert_eq!(one.parameters, two.parameters);
    }
}

fn adamw() -> OptimizerConfig {
    serde_json::from_value(serde_json::json!({"adamw": {}})).unwrap()
}

#[test]
fn ghost_groups_of_one_are_refused() {
    let data = examples("images");
    let mut config = config(model_of("resnet"), OptimizerConfig::default(), 0.05);
    config.train.workers = 16;
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f32> = &*model;
    let error = Pool::with(1, |pool| {
        Session::new(&config, &data, objective, pool).err()
    });
    let message = error.unwrap().to_string();
    assert!(
        message.contains("group of 1") && message.contains("hint:"),
        "{message}"
    );
}

#[test]
fn weights_survive_the_way_to_pytorch_and_back() {
    for (model, which) in [
        ("mlp relu", "digits"),
        ("cnn", "digits"),
        ("resnet", "images"),
    ] {
        let data = examples(which);
        let config = config(model_of(model), OptimizerConfig::default(), 0.05);
        let objective = Registry::new().build(&config, &data).unwrap();
        let file = format!("{}.safetensors", model.split(' ').next().unwrap());
        let (parameters, _) = weights::from_bytes::<f32>(&*objective, &reference(&file)).unwrap();
        let bytes = weights::to_bytes(&*objective, &parameters, &[]).unwrap();
        let ours = SafeTensors::deserialize(&bytes).unwrap();
        let theirs = reference(&file);
        let theirs = SafeTensors::deserialize(&theirs).unwrap();
        assert_eq!(ours.len(), theirs.len());
        for (name, tensor) in theirs.tensors() {
            let own = ours.tensor(&name).unwrap();
            assert_eq!(
                (own.shape(), own.data()),
                (tensor.shape(), tensor.data()),
                "{name}"
            );
        }
    }
}

#[test]
fn weights_of_another_model_are_refused_by_name_and_shape() {
    let data = examples("digits");
    let config = config(model_of("cnn"), OptimizerConfig::default(), 0.05);
    let objective = Registry::new().build(&config, &data).unwrap();
    let error = weights::from_bytes::<f32>(&*objective, &reference("mlp.safetensors"));
    assert!(error.unwrap_err().to_string().contains("conv1.weight"));
    let narrow = ModelConfig::SimpleCnn {
        channels: [4, 8],
        dense: 16,
        normalization: Normalization::None,
    };
    let config = self::config(narrow, OptimizerConfig::default(), 0.05);
    let objective = Registry::new().build(&config, &data).unwrap();
    let error = weights::from_bytes::<f32>(&*objective, &reference("cnn.safetensors"));
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("dense1.weight") && message.contains("[16, 32]"),
        "{message}"
    );
    let error = weights::from_bytes::<f32>(&*objective, b"not safetensors");
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("not a valid safetensors file")
    );
}

#[test]
fn the_noisy_quadratic_goes_through_the_same_loop() {
    let mut config = config(
        ModelConfig::NoisyQuadratic {
            preconditioner_power: 0.0,
        },
        OptimizerConfig::default(),
        0.1,
    );
    config.data.source = DataSource::NoisyQuadratic {
        dimension: 20,
        examples: 1024,
    };
    config.train.precision = Precision::F64;
    config.train.workers = 4;
    let data = batchlab::data::load(&config.data, std::path::Path::new("data")).unwrap();
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f64> = &*model;
    let (first, last) = Pool::with(2, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        let first = session.evaluate(Split::Train, &[]).unwrap().unwrap();
        for _ in 0..STEPS {
            session.step().unwrap();
        }
        (first, session.evaluate(Split::Train, &[]).unwrap().unwrap())
    });
    assert!(last.loss < first.loss, "{} after {}", last.loss, first.loss);
    assert_eq!(last.accuracy, None);
}

#[test]
fn population_statistics_of_the_first_layer_do_not_depend_on_the_groups() {
    // One batch-normalized layer right behind the input: its exact statistics are those of all
    // examples, however they are grouped.
    let data = examples("images");
    let mut config = config(model_of("resnet"), OptimizerConfig::default(), 0.05);
    config.train.precision = Precision::F64;
    let first_layer = |workers: usize, batch: usize| {
        let mut config = config.clone();
        config.train.workers = workers;
        config.train.global_batch = Some(batch);
        let model = Registry::new().build(&config, &data).unwrap();
        let objective: &dyn Objective<f64> = &*model;
        Pool::with(2, |pool| {
            Session::new(&config, &data, objective, pool)
                .unwrap()
                .statistics()
                .unwrap()[0]
                .clone()
        })
    };
    let whole = first_layer(1, 320);
    assert_eq!(whole.name, "bn1");
    // 320 = 11 x 29 + 1: the one that is left over belongs to the statistics too.
    for (workers, batch) in [(8, 16), (1, 29)] {
        let parts = first_layer(workers, batch);
        assert!(distance(&whole.mean, &parts.mean) < 1e-12);
        assert!(distance(&whole.variance, &parts.variance) < 1e-12);
    }
}

#[test]
fn a_partial_batch_that_makes_a_group_of_one_is_refused_before_training() {
    let data = examples("images");
    let mut config = config(model_of("resnet"), OptimizerConfig::default(), 0.05);
    // 320 = 11 x 29 + 1: an epoch ends with a batch of 1.
    config.train.global_batch = Some(29);
    config.train.epoch_end = EpochEnd::Partial;
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f32> = &*model;
    let refused = |config: &TrialConfig| {
        Pool::with(1, |pool| {
            Session::new(config, &data, objective, pool)
                .err()
                .is_some_and(|e| e.to_string().contains("group of 1"))
        })
    };
    assert!(refused(&config));
    config.train.steps = Some(11);
    assert!(
        !refused(&config),
        "the run ends before the batch of 1 comes"
    );
}

/// A whole trial in `folder`, from its checkpoint if it has one.
fn trial_in(folder: &Path, config: &TrialConfig, data: &Data) -> TrialOutcome {
    let model = Registry::new().build(config, data).unwrap();
    let model: &dyn AnyObjective = &*model;
    let places = Places {
        folder,
        run_id: "trial",
    };
    let control = Control {
        threads: 1,
        stop: &AtomicBool::new(false),
        checkpoint_seconds: 1e9,
        progress: &|_, _, _| {},
        ranks: None,
    };
    run_trial::<f32>(config, data, model, model, model, places, control).unwrap()
}

/// Digits with a test part, and 2 epochs of softmax regression on 300 of them.
fn short_trial() -> (TrialConfig, Data) {
    let mut config = config(
        ModelConfig::SoftmaxRegression {},
        OptimizerConfig::default(),
        0.05,
    );
    config.data.subset = Some(300);
    config.train.global_batch = Some(64);
    config.train.steps = None;
    config.train.epochs = Some(2.0);
    config.train.evaluate.every_epochs = Some(0.5);
    let data = batchlab::data::load(&config.data, Path::new("data")).unwrap();
    (config, data)
}

/// Rows of evaluations.csv of one split: update, examples, accuracy.
fn evaluated(folder: &Path, split: &str) -> Vec<(u64, u64, f64)> {
    let text = std::fs::read_to_string(folder.join("evaluations.csv")).unwrap();
    let rows = text.lines().skip(1).map(|l| l.split(',').collect());
    rows.filter(|cells: &Vec<&str>| cells[3] == split)
        .map(|cells| {
            let number = |i: usize| cells[i].parse().unwrap();
            (number(0), number(2), cells[5].parse().unwrap())
        })
        .collect()
}

#[test]
fn evaluations_come_at_the_start_each_time_the_epochs_have_passed_and_at_the_end() {
    let (mut config, data) = short_trial();
    // 300/64 = 4.6875 updates an epoch: half epochs have passed after 3, 5, 8 of 9 updates (carry),
    // of 4 an epoch after 2, 4, 6, 8 (drop), and of 5 (4 x 64 + 44) after 3, 5, 8, 10 (partial).
    for (epoch_end, expected) in [
        (
            EpochEnd::Carry,
            &[(0, 0), (3, 192), (5, 320), (8, 512), (9, 576)][..],
        ),
        (
            EpochEnd::Drop,
            &[(0, 0), (2, 128), (4, 256), (6, 384), (8, 512)],
        ),
        (
            EpochEnd::Partial,
            &[(0, 0), (3, 192), (5, 300), (8, 492), (10, 600)],
        ),
    ] {
        config.train.epoch_end = epoch_end;
        let folder = tempfile::tempdir().unwrap();
        let outcome = trial_in(folder.path(), &config, &data);
        let rows = evaluated(folder.path(), "test");
        let places: Vec<(u64, u64)> = rows.iter().map(|r| (r.0, r.1)).collect();
        assert_eq!(places, expected, "{epoch_end:?}");
        assert_eq!(Some(&(outcome.steps, outcome.examples)), places.last());
        assert_eq!(outcome.status, Status::Completed);
    }
    config.train.epoch_end = EpochEnd::Carry;
    config.train.evaluate.every_epochs = None;
    config.train.evaluate.every_steps = Some(4);
    let folder = tempfile::tempdir().unwrap();
    trial_in(folder.path(), &config, &data);
    let steps: Vec<u64> = evaluated(folder.path(), "test")
        .iter()
        .map(|r| r.0)
        .collect();
    assert_eq!(steps, [0, 4, 8, 9]);
}

#[test]
fn a_target_ends_the_trial_at_the_first_evaluation_that_reaches_it() {
    let (mut config, data) = short_trial();
    let folder = tempfile::tempdir().unwrap();
    trial_in(folder.path(), &config, &data);
    let rows = evaluated(folder.path(), "test");
    let value = rows[2].2;
    let &(step, examples, _) = rows.iter().find(|r| r.2 >= value).unwrap();
    assert!(step > 0);

    let mut target = TargetConfig {
        metric: Metric::Accuracy,
        split: Split::Test,
        value,
    };
    config.train.target = Some(target);
    let folder = tempfile::tempdir().unwrap();
    let outcome = trial_in(folder.path(), &config, &data);
    let reached = outcome.target.unwrap();
    assert_eq!((outcome.status, reached.reached), (Status::Completed, true));
    assert_eq!((outcome.steps, outcome.examples), (step, examples));
    assert_eq!(reached.steps_to_target, Some(step));
    assert_eq!(reached.examples_to_target, Some(examples));

    target.value = 1.0;
    config.train.target = Some(target);
    let folder = tempfile::tempdir().unwrap();
    let outcome = trial_in(folder.path(), &config, &data);
    let missed = outcome.target.unwrap();
    assert_eq!((outcome.status, missed.reached), (Status::Censored, false));
    assert_eq!(
        (missed.steps_to_target, missed.examples_to_target),
        (None, None)
    );
    assert_eq!(outcome.steps, 9);
}

#[test]
fn a_loss_that_is_not_finite_or_above_the_bound_ends_the_trial_as_diverged() {
    let (plain, data) = short_trial();
    let end = |config: &TrialConfig| {
        let folder = tempfile::tempdir().unwrap();
        let outcome = trial_in(folder.path(), config, &data);
        let rows = std::fs::read_to_string(folder.path().join("steps.csv")).unwrap();
        (outcome, rows.lines().count() as u64 - 1)
    };
    // The first update throws the weights out of range: the second batch shows it.
    let mut config = plain.clone();
    config.learning_rate.base_lr = 1e38;
    let (outcome, rows) = end(&config);
    assert_eq!(outcome.status, Status::Diverged);
    assert_eq!((outcome.steps, rows), (2, 2));
    assert!(outcome.message.unwrap().ends_with("at update 2"));
    // A bound: at a batch, and at the evaluation after the last update.
    let mut config = plain.clone();
    config.learning_rate.base_lr = 1e4;
    config.train.divergence_loss = 1e3;
    let (outcome, _) = end(&config);
    let message = outcome.message.unwrap();
    assert_eq!(outcome.status, Status::Diverged);
    assert!(
        message.ends_with("above the bound 1000 at update 2"),
        "{message}"
    );
    config.train.epochs = None;
    config.train.steps = Some(1);
    let (outcome, _) = end(&config);
    let message = outcome.message.unwrap();
    assert_eq!((outcome.status, outcome.steps), (Status::Diverged, 1));
    assert!(
        message.ends_with("above the bound 1000 on the training split after update 1"),
        "{message}"
    );
}

#[test]
fn a_trial_killed_while_it_writes_its_last_files_ends_with_the_same_bytes() {
    let (plain, data) = short_trial();
    let mut reached = plain.clone();
    reached.train.target = Some(TargetConfig {
        metric: Metric::Accuracy,
        split: Split::Test,
        value: 0.3,
    });
    let mut diverged = plain.clone();
    diverged.learning_rate.base_lr = 1e38;
    for (config, status) in [
        (plain, Status::Completed),
        (reached, Status::Completed),
        (diverged, Status::Diverged),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let files = || -> BTreeMap<_, _> {
            std::fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap())
                .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
                .collect()
        };
        let json = |outcome| serde_json::to_string(&outcome).unwrap();
        let outcome = trial_in(folder.path(), &config, &data);
        assert_eq!(outcome.status, status);
        let before = files();
        std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        let again = trial_in(folder.path(), &config, &data);
        assert_eq!(json(again), json(outcome));
        assert!(files() == before, "other bytes after {status:?}");
    }
}
