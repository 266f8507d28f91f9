//! Probes of runs: what they leave in the folder of a trial, that training is the same with them and
//! without, that a killed run has the same tables; and `batchlab probe` and `batchlab noise` as a
//! user calls them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

#[expect(dead_code, reason = "the examples of other tests")]
mod reference_data;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use batchlab::config::{self, Precision, TrialConfig};
use batchlab::data::{self, Data};
use batchlab::math::noise::NoiseError;
use batchlab::model::{AnyObjective, Registry};
use batchlab::objective::Objective;
use batchlab::probe::{Subject, SubjectOptions};
use batchlab::rng;
use batchlab::train::{
    Control, Places, Pool, Session, Status, TrainError, TrialOutcome, UpdateNoise, run_trial,
};
use reference_data::reference;
use safetensors::SafeTensors;
use serde_json::Value;

type Files = BTreeMap<OsString, Vec<u8>>;

// ---------------------------------------------------------------------------------------------
// Trials.

/// Every probe, in little.
const EVERY: &str = "probes={start=true, every_steps=5, examples=40, \
    hessian={largest=2, smallest=1, max_products=12, trace_products=6, blocks=\"layer\"}, \
    gauss_newton={largest=1, smallest=0, max_products=8, trace_products=3, trace=\"hutchinson\"}, \
    density={probes=1, lanczos_steps=3, points=32}, \
    sharpness={epsilons=[0.001], subspace=4, iterations=1, noise_pairs=1, flatness_products=2}, \
    adversarial={radii=[0.0, 0.1], steps=1}, \
    noise={layers=true, cosine=true, exact=true, hessian_pieces=4}}";

/// A batch-normalized MLP with AdamW, and a CNN with momentum.
const MLP: [&str; 4] = [
    "model={mlp={widths=[6], normalization=\"batch\"}}",
    "optimizer=\"adamw\"",
    "learning_rate.base_lr=0.01",
    "train.evaluate={every_steps=3}",
];
const CNN: [&str; 3] = [
    "model={simple-cnn={channels=[2, 3], dense=6}}",
    "optimizer={momentum={weight_decay=0.001}}",
    "train.evaluate={every_steps=3}",
];
/// The noisy quadratic, whose examples never repeat.
const QUADRATIC: [&str; 2] = [
    "data={source={noisy-quadratic={dimension=20, examples=96}}}",
    "model=\"noisy-quadratic\"",
];

fn trial(lines: &[&str]) -> (TrialConfig, Data) {
    let base = r#"
        [data]
        source = "digits"
        subset = 96
        [model.mlp]
        widths = [8]
        [train]
        workers = 2
        global_batch = 16
        epochs = 2
        [learning_rate]
        base_lr = 0.05
        base_batch = 16
    "#;
    let set: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let study = config::parse(base, "probe-runs.toml", &set).unwrap_or_else(|e| panic!("{e}"));
    let config = study.trials[0].config.clone();
    let data = data::load(&config.data, Path::new("data")).unwrap();
    (config, data)
}

/// [`trial`] with the lines of two lists.
fn joined(lines: &[&str], more: &[&str]) -> (TrialConfig, Data) {
    trial(&[lines, more].concat())
}

/// Runs a trial in a folder; `stop_at(update)` says where to interrupt it, 0 before it starts.
fn run_in(
    folder: &Path,
    (config, data): &(TrialConfig, Data),
    threads: usize,
    stop_at: &(dyn Fn(u64) -> bool + Sync),
) -> Result<TrialOutcome, TrainError> {
    let model = Registry::new().build(config, data).unwrap();
    let model: &dyn AnyObjective = &*model;
    let stop = AtomicBool::new(stop_at(0));
    let progress = |step: u64, _, _| {
        if stop_at(step) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = Control {
        threads,
        stop: &stop,
        checkpoint_seconds: 1e9,
        progress: &progress,
        ranks: None,
    };
    let places = Places {
        folder,
        run_id: "0123456789ab",
    };
    match config.train.precision {
        Precision::F32 => run_trial::<f32>(config, data, model, model, model, places, control),
        Precision::F64 => run_trial::<f64>(config, data, model, model, model, places, control),
    }
}

fn files(folder: &Path) -> Files {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect()
}

fn undisturbed(of: &(TrialConfig, Data), threads: usize) -> (Files, TrialOutcome) {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run_in(folder.path(), of, threads, &|_| false).unwrap();
    (files(folder.path()), outcome)
}

/// A table as rows of cells by column.
struct Cells {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Cells {
    fn of(files: &Files, name: &str) -> Self {
        Self::parse(std::str::from_utf8(&files[&OsString::from(name)]).unwrap())
    }

    fn parse(text: &str) -> Self {
        let split = |line: &str| -> Vec<String> { line.split(',').map(str::to_owned).collect() };
        let mut lines = text.lines();
        let names = split(lines.next().unwrap());
        let rows: Vec<Vec<String>> = lines.map(split).collect();
        for row in &rows {
            assert_eq!(row.len(), names.len(), "{row:?}");
        }
        Self { names, rows }
    }

    fn column(&self, name: &str) -> Vec<&str> {
        let place = self.names.iter().position(|n| n == name);
        let place = place.unwrap_or_else(|| panic!("no column {name}"));
        self.rows.iter().map(|row| row[place].as_str()).collect()
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let cells = self.column(name).into_iter();
        cells
            .map(|cell| cell.parse().unwrap_or_else(|_| panic!("{name}: {cell}")))
            .collect()
    }

    /// The rows whose cells are these.
    fn filtered(&self, cells: &[(&str, &str)]) -> Self {
        let mut rows = self.rows.clone();
        for (name, cell) in cells {
            let place = self.names.iter().position(|n| n == name).unwrap();
            rows.retain(|row| row[place] == *cell);
        }
        Self {
            names: self.names.clone(),
            rows,
        }
    }

    fn distinct(&self, name: &str) -> Vec<&str> {
        let mut found = self.column(name);
        found.dedup();
        found
    }
}

fn near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: {found} instead of {expected}"
    );
}

/// Vectors of a checkpoint, without the gradient that the cosine needs.
fn vectors(files: &Files) -> BTreeMap<String, Vec<u8>> {
    let bytes = &files[&OsString::from("checkpoint.safetensors")];
    let file = SafeTensors::deserialize(bytes).unwrap();
    file.tensors()
        .into_iter()
        .filter(|(name, _)| name == "parameters" || name.starts_with("state."))
        .filter(|(name, _)| name != "state.previous_gradient")
        .map(|(name, tensor)| (name, tensor.data().to_vec()))
        .collect()
}

#[test]
fn a_run_with_every_probe_ends_in_the_bits_of_one_without() {
    for lines in [MLP.as_slice(), CNN.as_slice()] {
        for precision in ["train.precision=\"f32\"", "train.precision=\"f64\""] {
            let (plain, outcome) = undisturbed(&joined(lines, &[precision]), 1);
            let every = EVERY.replace("every_steps", "at_train_loss=2.3, every_steps");
            let (probed, other) = undisturbed(&joined(lines, &[precision, &every]), 1);
            let json = |outcome| serde_json::to_string(outcome).unwrap();
            assert_eq!(json(&other), json(&outcome));
            for name in [
                "steps.csv",
                "evaluations.csv",
                "batch.csv",
                "model.safetensors",
            ] {
                let name = OsString::from(name);
                assert!(probed[&name] == plain[&name], "{} differs", name.display());
            }
            let (own, expected) = (vectors(&probed), vectors(&plain));
            assert!(own.len() >= 2 && own.keys().eq(expected.keys()));
            for (name, bytes) in expected {
                assert!(own[&name] == bytes, "{name} differs");
            }
            let more: Vec<&OsString> = probed.keys().filter(|k| !plain.contains_key(*k)).collect();
            assert_eq!(more, ["noise-layers.csv", "noise.csv", "probes.csv"]);
        }
    }
}

#[test]
fn the_table_of_probes_says_when_and_of_what() {
    let (plain, _) = undisturbed(&joined(&MLP, &["train.precision=\"f64\""]), 1);
    let evaluations = Cells::of(&plain, "evaluations.csv").filtered(&[("split", "train")]);
    let losses = evaluations.numbers("loss");
    // Reached at the third evaluation, or before it.
    let bound = losses[2];
    let first = losses.iter().position(|&loss| loss <= bound).unwrap();
    let every = EVERY.replace(
        "every_steps",
        &format!("at_train_loss={bound}, every_steps"),
    );
    let of = joined(&MLP, &["train.precision=\"f64\"", &every]);
    let (run, _) = undisturbed(&of, 2);
    let table = Cells::of(&run, "probes.csv");
    assert_eq!(
        table.names.join(","),
        batchlab::probe::HEADER.trim_end(),
        "the columns"
    );
    let reached = evaluations.column("step")[first];
    let mut expected = vec![
        ("0", "start"),
        ("5", "schedule"),
        ("10", "schedule"),
        ("12", "end"),
        (reached, "train_loss"),
    ];
    expected.sort_by_key(|(step, when)| (step.parse::<u64>().unwrap(), *when == "end"));
    let steps = table.column("step");
    let mut found: Vec<(&str, &str)> = steps.into_iter().zip(table.column("when")).collect();
    found.dedup();
    assert_eq!(found, expected);
    for (when, quantities) in found.iter().map(|(_, when)| {
        let own = table.filtered(&[("when", when)]);
        let quantities: Vec<String> = own
            .column("probe")
            .into_iter()
            .zip(own.column("quantity"))
            .map(|(probe, quantity)| format!("{probe} {quantity}"))
            .collect();
        (*when, quantities)
    }) {
        for wanted in [
            "hessian eigenvalue",
            "hessian smallest_eigenvalue",
            "hessian trace",
            "hessian block_trace",
            "hessian block_eigenvalue",
            "gauss_newton eigenvalue",
            "gauss_newton trace",
            "density node",
            "density density",
            "sharpness sharpness_full",
            "sharpness sharpness_subspace",
            "sharpness worst_loss_l2",
            "sharpness gaussian_loss",
            "sharpness relative_flatness",
            "adversarial fgsm_accuracy",
            "adversarial pgd_accuracy",
            "noise tr_sigma",
            "noise squared_gradient",
            "noise b_simple",
            "noise tr_h_sigma",
            "noise ghg",
            "noise b_noise",
            "noise eps_max",
        ] {
            assert!(
                quantities.iter().any(|own| own == wanted),
                "{when}: no {wanted}"
            );
        }
        // AdamW has no metric before the first update.
        let adamw = quantities.iter().any(|own| own == "noise b_simple_adamw");
        assert_eq!(adamw, when != "start");
    }
    let blocks = table.filtered(&[("when", "end"), ("quantity", "block_trace")]);
    assert_eq!(
        blocks.distinct("scope"),
        ["layers.0", "layers.1", "norms.0"]
    );
    // The loss of the training split there, where it was evaluated.
    for (step, loss) in evaluations.column("step").into_iter().zip(&losses) {
        for own in table.filtered(&[("step", step)]).distinct("train_loss") {
            assert_eq!(own.parse::<f64>().unwrap(), *loss);
        }
    }
    let at_loss = table.filtered(&[("when", "train_loss")]);
    assert!(at_loss.numbers("train_loss").iter().all(|&l| l <= bound));
    let probes = table.filtered(&[("when", "end"), ("probe", "hessian")]);
    assert_eq!(probes.distinct("examples"), ["40"]);
    assert_eq!(probes.distinct("statistics"), ["frozen"]);
    // An attack of radius 0 is none: the accuracy of the last evaluation.
    let own = table.filtered(&[("when", "end"), ("quantity", "fgsm_accuracy"), ("at", "0")]);
    let test = Cells::of(&plain, "evaluations.csv").filtered(&[("split", "test"), ("step", "12")]);
    near(
        "accuracy",
        own.numbers("value")[0],
        test.numbers("accuracy")[0],
        1e-12,
    );
}

#[test]
fn a_run_interrupted_anywhere_has_the_same_tables_of_probes() {
    for lines in [MLP.as_slice(), CNN.as_slice()] {
        let every = EVERY.replace("every_steps", "at_train_loss=2.2, every_steps");
        let of = joined(lines, &[&every]);
        let (whole, outcome) = undisturbed(&of, 1);
        let folder = tempfile::tempdir().unwrap();
        // The first call is told to stop before it starts, and stops in the probe at the start; the
        // others after each update, in the probe that is due there if one is.
        let mut calls = 0;
        let last = loop {
            let first = calls == 0;
            calls += 1;
            match run_in(folder.path(), &of, 1, &|step| step > 0 || first) {
                Ok(outcome) => break outcome,
                Err(TrainError::Interrupted { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(calls < 50);
        };
        assert!(calls >= 13, "{calls}");
        let json = |outcome| serde_json::to_string(outcome).unwrap();
        assert_eq!(json(&last), json(&outcome));
        let resumed = files(folder.path());
        assert!(resumed.keys().eq(whole.keys()));
        for (name, bytes) in &whole {
            assert!(resumed[name] == *bytes, "{} differs", name.display());
        }
    }
}

#[test]
fn threads_change_no_byte_of_the_tables_of_probes() {
    for lines in [MLP.as_slice(), CNN.as_slice()] {
        let of = joined(lines, &[EVERY]);
        let one = undisturbed(&of, 1).0;
        for threads in [2, 3] {
            assert!(undisturbed(&of, threads).0 == one, "{threads} threads");
        }
    }
}

#[test]
fn probes_by_epochs_come_when_the_epochs_have_passed() {
    let probes = "probes={every_epochs=0.5, examples=10, hessian={largest=1, smallest=0, \
                  max_products=3, trace_products=0}}";
    let (run, _) = undisturbed(&trial(&[probes]), 1);
    let table = Cells::of(&run, "probes.csv");
    assert_eq!(table.column("step"), ["3", "6", "9", "12"]);
    assert_eq!(
        table.column("when"),
        ["schedule", "schedule", "schedule", "end"]
    );
}

/// Rows of `noise.csv`: tr(Sigma) and |G|^2 are what the two-batch formulas make of the norms.
#[test]
fn the_noise_of_updates_obeys_the_two_batch_formulas() {
    // 103 examples in batches of 16, and the rest of 7 on its own: in pieces of 4 and 3.
    let rest = ["data.subset=103", "train.epoch_end=\"partial\""];
    let cut = ["train.micro_batch=3"];
    for (lines, more, population) in [
        (MLP.as_slice(), rest.as_slice(), Some(103.0)),
        (CNN.as_slice(), rest.as_slice(), Some(103.0)),
        (CNN.as_slice(), cut.as_slice(), Some(96.0)),
        (QUADRATIC.as_slice(), cut.as_slice(), None),
    ] {
        let watch = [
            "probes={noise={every_steps=1, layers=true, cosine=true}}",
            "train.precision=\"f64\"",
        ];
        let of = joined(lines, &[more, &watch].concat());
        let (run, _) = undisturbed(&of, 1);
        let table = Cells::of(&run, "noise.csv");
        let steps = Cells::of(&run, "steps.csv");
        for (own, other) in [
            ("step", "step"),
            ("epoch", "epoch"),
            ("examples", "examples"),
            ("lr", "lr"),
        ] {
            assert_eq!(table.column(own), steps.column(other));
        }
        assert_eq!(table.numbers("b_big"), steps.numbers("global_batch"));
        let get = |name: &str| table.numbers(name);
        let (b, big) = (get("b_small"), get("b_big"));
        let (small_norm, big_norm) = (get("g2_small"), get("g2_big"));
        let (tr_sigma, squared) = (get("tr_sigma"), get("squared_gradient"));
        let (snr, workers) = (get("snr"), get("cosine_workers"));
        let unseen = population.map_or(0.0, |n| 1.0 / n);
        for i in 0..b.len() {
            let pieces = if more == cut { 6.0 } else { 2.0 };
            assert_eq!(b[i], big[i] / pieces);
            let expected = (small_norm[i] - big_norm[i]) / (1.0 / b[i] - 1.0 / big[i]);
            near(
                "tr_sigma",
                tr_sigma[i],
                expected,
                1e-10 * small_norm[i] * 16.0,
            );
            let expected = big_norm[i] - tr_sigma[i] * (1.0 / big[i] - unseen);
            near("|G|^2", squared[i], expected, 1e-12 * small_norm[i]);
            let expected = squared[i] / (tr_sigma[i] / big[i]);
            near("snr", snr[i], expected, 1e-12 * expected.abs());
            assert!((-1.0..=1.0).contains(&workers[i]), "{}", workers[i]);
        }
        let previous = table.column("cosine_previous");
        assert_eq!(previous[0], "", "there is no update before the first");
        for cosine in &previous[1..] {
            let cosine: f64 = cosine.parse().unwrap();
            assert!(cosine.abs() <= 1.0 + 1e-12);
        }
        let adamw = table.column("adamw_g2_small");
        if lines == MLP.as_slice() {
            assert!(adamw[0].is_empty() && adamw[1..].iter().all(|c| !c.is_empty()));
        } else {
            assert!(adamw.iter().all(|cell| cell.is_empty()));
        }
        // The layers add up.
        let layers = Cells::of(&run, "noise-layers.csv");
        for (i, step) in table.column("step").into_iter().enumerate() {
            let own = layers.filtered(&[("step", step)]);
            assert_eq!(own.rows.len() * table.rows.len(), layers.rows.len());
            let sum = |name: &str| own.numbers(name).iter().sum::<f64>();
            near(
                "small",
                sum("g2_small"),
                small_norm[i],
                1e-12 * small_norm[i],
            );
            near("big", sum("g2_big"), big_norm[i], 1e-12 * small_norm[i]);
        }
    }
}

/// The mean and its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let spread: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (spread / (n - 1.0) / n).sqrt())
}

/// At fixed parameters of a real network: the mean of the two-batch estimates over many batches is
/// what the gradients of all single examples say, in all and by layer.
#[test]
fn two_batch_estimates_are_the_exact_noise_in_expectation() {
    let (config, data) = trial(&[
        "data.subset=200",
        "train.workers=4",
        "train.global_batch=20",
        "train.micro_batch=3",
        "train.epochs=10000",
        "train.precision=\"f64\"",
        "probes={noise={every_steps=1, layers=true}, examples=200}",
    ]);
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f64> = &*model;
    Pool::with(1, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        // Off the start, where gradients differ most from noise.
        for _ in 0..30 {
            session.step().unwrap();
        }
        let at = session.parameters().to_vec();
        session.take_noises();
        let noises: Vec<UpdateNoise> = (0..3000)
            .map(|batch| {
                session.set_parameters(at.clone());
                let order = rng::permutation(200, 7, "probe-runs-test", batch);
                let ids = order[..20].iter().map(|&i| u64::from(i)).collect();
                session.step_on(ids).unwrap();
                session.take_noises().pop().unwrap()
            })
            .collect();
        // Four shards of 5 examples, each in pieces of 3 and 2.
        assert_eq!(noises[0].b_small, 20.0 / 8.0);

        let layout = objective.layout();
        let options = SubjectOptions::new(&config, &data, layout, Vec::new(), 1);
        let subject = Subject::new(objective, &data, pool, options).unwrap();
        assert_eq!(subject.examples(), 200);
        let point = subject.at(&at).unwrap();
        let mut gradient = vec![0.0; at.len()];
        point.gradient(&mut gradient).unwrap();
        let norms = point.example_norms().unwrap();
        let exact = |squares: &[f64], squared_mean: f64| {
            (squares.iter().sum::<f64>() - 200.0 * squared_mean) / 199.0
        };
        let check = |what: &str, values: &[f64], expected: f64| {
            let (mean, error) = mean(values);
            assert!(error < 0.1 * expected, "{what}: {mean} +- {error}");
            near(what, mean, expected, 4.0 * error);
        };
        let squared_mean: f64 = gradient.iter().map(|g| g * g).sum();
        let of =
            |get: &dyn Fn(&UpdateNoise) -> f64| -> Vec<f64> { noises.iter().map(get).collect() };
        let tr_sigma = exact(&norms.squared_norms(), squared_mean);
        check("tr(Sigma)", &of(&|noise| noise.tr_sigma), tr_sigma);
        check("|G|^2", &of(&|noise| noise.squared_gradient), squared_mean);
        // Without the factor for batches without replacement it would not be.
        let (biased, error) = mean(&of(&|n| n.squared_gradient - n.tr_sigma / 200.0));
        assert!((biased - squared_mean).abs() > 4.0 * error);
        for (i, layer) in norms.layers.iter().enumerate() {
            let own = layout.parameters.iter();
            let own = own.filter(|p| p.layer() == layer.layer);
            let squares = own.flat_map(|p| &gradient[p.range.clone()]);
            let squared: f64 = squares.map(|g| g * g).sum();
            let tr_sigma = exact(&layer.squared_norms, squared);
            let estimates = of(&|noise| {
                let own = &noise.layers[i];
                assert_eq!(own.layer, layer.layer);
                (own.g2_small - own.g2_big) / (1.0 / noise.b_small - 1.0 / noise.b_big)
            });
            check(&layer.layer, &estimates, tr_sigma);
        }
    });
}

/// One worker in one pass shows no noise: refused before anything is written, with what helps; and
/// that helps.
#[test]
fn one_worker_without_accumulation_is_refused_before_training() {
    let lines = ["train.workers=1", "probes={noise={every_steps=1}}"];
    let folder = tempfile::tempdir().unwrap();
    let error = run_in(folder.path(), &trial(&lines), 1, &|_| false).unwrap_err();
    assert!(
        matches!(
            error,
            TrainError::Noise(NoiseError::TooFewPieces { found: 1 })
        ),
        "{error}"
    );
    let said = error.to_string();
    assert!(said.contains("2 or more workers") && said.contains("train.micro_batch"));
    assert!(files(folder.path()).is_empty());
    for remedy in ["train.workers=2", "train.micro_batch=8"] {
        let (run, _) = undisturbed(&joined(&lines, &[remedy]), 1);
        let table = Cells::of(&run, "noise.csv");
        assert_eq!(table.rows.len(), 12);
        assert!(table.numbers("b_small").iter().all(|&b| b == 8.0));
    }
    // Nothing is watched where no update is.
    let quiet = [
        "train.workers=1",
        "probes={noise={every_steps=0, exact=true}}",
    ];
    let (run, _) = undisturbed(&trial(&quiet), 1);
    assert!(!run.contains_key(&OsString::from("noise.csv")));
    assert!(run.contains_key(&OsString::from("probes.csv")));
}

#[test]
fn every_so_many_updates_leave_a_row_of_noise() {
    let (run, _) = undisturbed(&trial(&["probes={noise={every_steps=5}}"]), 1);
    assert_eq!(Cells::of(&run, "noise.csv").column("step"), ["5", "10"]);
}

#[test]
fn a_run_that_diverges_under_probes_has_still_diverged() {
    for lines in [MLP.as_slice(), CNN.as_slice()] {
        for rate in ["1e3", "1e12", "1e200"] {
            let rate = format!("learning_rate.base_lr={rate}");
            let more = [&rate, "optimizer=\"sgd\"", "train.precision=\"f64\""];
            let (plain, outcome) = undisturbed(&joined(lines, &more), 1);
            let every = EVERY.replace("every_steps=5", "every_steps=1");
            let folder = tempfile::tempdir().unwrap();
            let of = joined(lines, &[more.as_slice(), &[&every]].concat());
            let probed = run_in(folder.path(), &of, 1, &|_| false);
            let probed = probed.unwrap_or_else(|error| panic!("{lines:?} {rate}: {error}"));
            assert_eq!(probed.status, outcome.status, "{rate}");
            assert_eq!(probed.message, outcome.message);
            let run = files(folder.path());
            let name = OsString::from("model.safetensors");
            assert!(run[&name] == plain[&name]);
            let table = Cells::of(&run, "probes.csv");
            for name in ["value", "standard_error", "residual", "at"] {
                for cell in table.column(name) {
                    let finite = cell.is_empty() || cell.parse::<f64>().unwrap().is_finite();
                    assert!(finite, "{name}: {cell}");
                }
            }
            if rate.ends_with("1e200") {
                assert_eq!(outcome.status, Status::Diverged);
            }
        }
    }
}

/// What cannot be probed is said before the first update, not after the last.
#[test]
fn gradients_of_single_examples_under_batch_statistics_are_refused_before_training() {
    let probes = "probes={statistics=\"batch\", noise={every_steps=0, exact=true}}";
    let updates = std::sync::atomic::AtomicU64::new(0);
    let folder = tempfile::tempdir().unwrap();
    let error = run_in(folder.path(), &joined(&MLP, &[probes]), 1, &|step| {
        updates.fetch_max(step, Ordering::Relaxed);
        false
    })
    .unwrap_err();
    assert!(error.to_string().contains("single examples"), "{error}");
    assert_eq!(updates.into_inner(), 0, "found out after training");
}

// ---------------------------------------------------------------------------------------------
// The program.

const STUDY: &str = r#"
name = "small"
seeds = 1

[data]
source = "digits"
subset = 150

[model.mlp]
widths = [6]

[train]
workers = 2
epochs = 2

[learning_rate]
base_lr = 0.05

[probes.noise]
layers = true
cosine = true

[sweep]
"train.global_batch" = [16, 30]
"#;

/// A folder with the finished study `small` in `results/`, a copy for each test.
struct Place {
    folder: tempfile::TempDir,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Place {
    fn new() -> Self {
        static FINISHED: OnceLock<tempfile::TempDir> = OnceLock::new();
        let finished = FINISHED.get_or_init(|| {
            let place = Self {
                folder: tempfile::tempdir().unwrap(),
            };
            fs::write(place.path("study.toml"), STUDY).unwrap();
            place.well(&["run", "study.toml", "--quiet"]);
            place.folder
        });
        let folder = tempfile::tempdir().unwrap();
        copy(finished.path(), folder.path());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn call(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_batchlab"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap()
    }

    /// What `batchlab` with these arguments prints, which must end well.
    fn well(&self, arguments: &[&str]) -> String {
        let output = self.call(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says against these arguments.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.call(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(
            matches!(code, Some(1 | 2)),
            "{arguments:?}: status {code:?}, {said}"
        );
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// The trials of the study, in plan order, by id.
    fn trials(&self) -> Vec<String> {
        let study: Value =
            serde_json::from_slice(&fs::read(self.path("results/small/study.json")).unwrap())
                .unwrap();
        let trials = study["trials"].as_array().unwrap().iter();
        trials
            .map(|t| t["id"].as_str().unwrap().to_owned())
            .collect()
    }

    fn table(&self, name: &str) -> Cells {
        Cells::parse(&fs::read_to_string(self.path(name)).unwrap())
    }

    /// Names in a folder that begin so.
    fn named(&self, folder: &str, start: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(start)).collect()
    }
}

const SMALL_HESSIAN: [&str; 14] = [
    "--quiet",
    "--examples",
    "60",
    "--largest",
    "3",
    "--smallest",
    "2",
    "--max-products",
    "40",
    "--trace-products",
    "12",
    "--lanczos-steps",
    "6",
    "--density-probes=2",
];

#[test]
fn a_study_and_its_trials_are_probed_into_tables_and_figures() {
    let place = Place::new();
    let trials = place.trials();
    let before: Vec<Files> = trials
        .iter()
        .map(|id| files_only(&place.path(&format!("results/small/trials/{id}"))))
        .collect();
    let arguments = [
        &["probe", "results/small", "hessian", "--blocks", "layer"][..],
        &["--gauss-newton", "--density"],
        &SMALL_HESSIAN,
    ]
    .concat();
    let shown = place.well(&arguments);
    assert!(shown.contains("hessian eigenvalues:"), "{shown}");
    assert!(shown.contains("largest residual"), "{shown}");
    assert!(
        shown.contains("results/small/probes/hessian.csv"),
        "{shown}"
    );
    let all = place.table("results/small/probes/hessian.csv");
    assert_eq!(
        all.names.join(","),
        format!("trial,{}", batchlab::probe::HEADER.trim_end())
    );
    assert_eq!(all.distinct("trial"), trials);
    assert_eq!(all.distinct("when"), ["after"]);
    assert_eq!(all.distinct("examples"), ["60"]);
    for (id, batch) in trials.iter().zip([16, 30]) {
        let own = place.table(&format!("results/small/trials/{id}/probes/hessian.csv"));
        let of_trial = all.filtered(&[("trial", id)]);
        let rest: Vec<&[String]> = of_trial.rows.iter().map(|row| &row[1..]).collect();
        assert_eq!(own.rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), rest);
        let updates = 150 / batch * 2;
        assert_eq!(own.distinct("step"), [updates.to_string()]);
        assert_eq!(own.filtered(&[("quantity", "eigenvalue")]).rows.len(), 6);
        assert_eq!(own.filtered(&[("quantity", "block_trace")]).rows.len(), 4);
        assert!(!own.filtered(&[("quantity", "node")]).rows.is_empty());
    }
    let figures = place.named("results/small/probes", "probe-");
    for ending in ["svg", "png"] {
        let found = figures.iter().map(Path::new);
        let mut found = found.filter(|name| name.extension().is_some_and(|own| own == ending));
        assert!(found.next().is_some(), "no {ending} in {figures:?}");
    }

    // Again: the same bytes. A trial's folder: into the trial's own.
    let first = fs::read(place.path("results/small/probes/hessian.csv")).unwrap();
    place.well(&[&arguments[..], &["--threads", "1"]].concat());
    assert!(fs::read(place.path("results/small/probes/hessian.csv")).unwrap() == first);
    let folder = format!("results/small/trials/{}", trials[1]);
    let own = place.path(&format!("{folder}/probes/hessian.csv"));
    let expected = fs::read(&own).unwrap();
    fs::remove_file(&own).unwrap();
    let shown = place.well(&[&["probe", &folder], &arguments[2..]].concat());
    assert!(shown.contains("probes/hessian.csv"), "{shown}");
    assert!(fs::read(&own).unwrap() == expected);
    assert!(
        !place
            .named(&format!("{folder}/probes"), "probe-")
            .is_empty()
    );

    // The run itself is as it was.
    for (id, before) in trials.iter().zip(before) {
        let now = files_only(&place.path(&format!("results/small/trials/{id}")));
        assert!(now == before, "the folder of {id} has changed");
    }
    // And is still done, and its report still made.
    place.well(&["run", "study.toml", "--quiet"]);
    place.well(&["report", "results/small"]);
}

/// The files of a folder, without those of folders in it.
fn files_only(folder: &Path) -> Files {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect()
}

#[test]
fn sharpness_noise_and_surfaces_have_their_tables_and_figures() {
    let place = Place::new();
    let trials = place.trials();
    let quick = ["--quiet", "--examples", "40"];
    let first = ["--trial", &trials[0][..6]];
    let shown = place.well(
        &[
            &["probe", "results/small", "sharpness", "--iterations", "2"][..],
            &[
                "--subspace",
                "5",
                "--adversarial",
                "0,0.1",
                "--attack-steps",
                "2",
            ],
            &[
                "--l2-radii",
                "0.01,0.05",
                "--sigmas",
                "0.001",
                "--epsilons=1e-3",
            ],
            &quick,
            &first,
        ]
        .concat(),
    );
    assert!(shown.contains("sharpness_subspace at 0.001"), "{shown}");
    let table = place.table("results/small/probes/sharpness.csv");
    assert_eq!(table.distinct("trial"), [trials[0].as_str()]);
    for (quantity, rows) in [
        ("sharpness_full", 1),
        ("sharpness_subspace", 1),
        ("worst_loss_l2", 2),
        ("gaussian_loss", 1),
        ("fgsm_accuracy", 2),
        ("pgd_accuracy", 2),
        ("relative_flatness", 5),
    ] {
        let own = table.filtered(&[("quantity", quantity)]);
        assert_eq!(own.rows.len(), rows, "{quantity}");
    }
    // Without a subspace there is the full space alone.
    place.well(
        &[
            &["probe", "results/small", "sharpness", "--iterations", "2"][..],
            &["--subspace", "0"],
            &quick,
            &first,
        ]
        .concat(),
    );
    let table = place.table("results/small/probes/sharpness.csv");
    let subspace = table.filtered(&[("quantity", "sharpness_subspace")]);
    assert!(subspace.rows.is_empty());

    place.well(
        &[
            &["probe", "results/small", "noise", "--hessian-pieces", "5"][..],
            &quick,
        ]
        .concat(),
    );
    let table = place.table("results/small/probes/noise.csv");
    for quantity in ["tr_sigma", "b_simple", "tr_h_sigma", "b_noise", "eps_max"] {
        let own = table.filtered(&[("quantity", quantity), ("scope", "")]);
        assert_eq!(own.distinct("trial"), trials, "{quantity}");
    }
    let layers = table.filtered(&[("quantity", "tr_sigma"), ("trial", &trials[0])]);
    assert_eq!(layers.column("scope"), ["", "layers.0", "layers.1"]);

    // A line to the other trial and a plane around one.
    place.well(
        &[
            &["probe", "results/small", "surface", "--points", "5"][..],
            &["--to", &trials[1]],
            &quick,
            &first,
        ]
        .concat(),
    );
    let own = format!("results/small/trials/{}/probes", trials[0]);
    let line = fs::read_to_string(place.path(&format!("{own}/line.csv"))).unwrap();
    assert!(
        line.starts_with("alpha,split,loss,accuracy,label\n"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1 + 5 * 2);
    place.well(
        &[
            &["probe", "results/small", "surface", "--points", "3"][..],
            &quick,
            &first,
        ]
        .concat(),
    );
    let plane = place.table(&format!("{own}/plane.csv"));
    assert_eq!(plane.names, ["alpha", "beta", "loss"]);
    assert_eq!(plane.rows.len(), 9);
    // In the middle of the plane, and at the start of the line, is the run itself.
    let middle = plane.filtered(&[("alpha", "0"), ("beta", "0")]);
    let start = line
        .lines()
        .find(|line| line.starts_with("0,train,"))
        .unwrap();
    assert_eq!(middle.column("loss"), [start.split(',').nth(2).unwrap()]);
    let names = place.named(&own, "probe-");
    assert!(names.iter().any(|n| n.contains("surface")), "{names:?}");
    assert!(names.iter().any(|n| n.contains("line")), "{names:?}");
}

#[test]
fn what_few_examples_say_comes_with_a_note() {
    let place = Place::new();
    let probe = ["probe", "results/small", "hessian", "--largest", "1"];
    let rest = [
        "--smallest",
        "0",
        "--trace-products",
        "0",
        "--examples",
        "40",
    ];
    let shown = place.well(&[&probe[..], &rest].concat());
    assert!(shown.contains("so few examples"), "{shown}");
}

/// Batch statistics of neither end belong to the other: they are computed again at each point.
#[test]
fn a_line_between_batch_normalized_networks_has_the_losses_of_both_runs_at_its_ends() {
    let place = Place::new();
    let study = STUDY
        .replace("\"small\"", "\"normalized\"")
        .replace("[train]", "normalization = \"batch\"\n[train]")
        .replace("seeds = 1", "seeds = 2")
        .replace("[sweep]\n\"train.global_batch\" = [16, 30]", "")
        .replace("workers = 2", "workers = 2\nglobal_batch = 30");
    fs::write(place.path("normalized.toml"), study).unwrap();
    place.well(&["run", "normalized.toml", "--quiet"]);
    let study = fs::read(place.path("results/normalized/study.json")).unwrap();
    let study: Value = serde_json::from_slice(&study).unwrap();
    let trials: Vec<String> = study["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["id"].as_str().unwrap().to_owned())
        .collect();
    let result = |id: &str| -> Value {
        let path = place.path(&format!("results/normalized/trials/{id}/result.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    let own = |id: &str| result(id)["evaluation"]["train"].clone();
    let examples = own(&trials[0])["n"].to_string();
    let probe = ["probe", "results/normalized", "surface", "--points", "5"];
    let rest = ["--to", &trials[1], "--trial", &trials[0], "--quiet"];
    place.well(&[&probe[..], &rest, &["--examples", &examples]].concat());
    let folder = format!("results/normalized/trials/{}/probes", trials[0]);
    let line = fs::read_to_string(place.path(&format!("{folder}/line.csv"))).unwrap();
    for (alpha, id) in [("0,train,", &trials[0]), ("1,train,", &trials[1])] {
        let row = line.lines().find(|row| row.starts_with(alpha)).unwrap();
        let found: f64 = row.split(',').nth(2).unwrap().parse().unwrap();
        let expected = own(id)["loss"].as_f64().unwrap();
        // The run evaluates in f32.
        let error = (found - expected).abs();
        assert!(error < 1e-5 * expected, "{row}: {expected} in {id}");
    }
}

/// A trial that has diverged leaves weights that are not numbers, and keeps no other from its probes.
#[test]
fn a_diverged_trial_has_empty_cells_and_the_others_have_theirs() {
    let place = Place::new();
    let study = STUDY
        .replace("\"small\"", "\"rates\"")
        .replace("base_lr = 0.05", "base_batch = 16")
        .replace(
            "\"train.global_batch\" = [16, 30]",
            "\"learning_rate.base_lr\" = [1e200, 0.05]",
        )
        .replace("workers = 2", "workers = 2\nglobal_batch = 16");
    fs::write(place.path("rates.toml"), study).unwrap();
    place.well(&["run", "rates.toml", "--quiet"]);
    for kind in [
        &["hessian", "--largest=2", "--smallest=1", "--density"][..],
        &[
            "sharpness",
            "--subspace=3",
            "--iterations=1",
            "--adversarial=0.1",
        ],
        &["noise", "--hessian-pieces=4"],
    ] {
        let common = ["--quiet", "--examples=30"];
        place.well(&[&["probe", "results/rates"], kind, &common].concat());
        let table = place.table(&format!("results/rates/probes/{}.csv", kind[0]));
        let trials = table.distinct("trial");
        assert_eq!(trials.len(), 2, "{}", kind[0]);
        let values = |trial: &str| {
            let own = table.filtered(&[("trial", trial)]);
            let values = own.column("value").into_iter();
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        // The accuracy of what predicts nothing is a number all the same.
        let lost = values(trials[0]);
        let empty = lost.iter().filter(|value| value.is_empty()).count();
        assert!(empty > 0, "{}: {lost:?}", kind[0]);
        let found = values(trials[1]);
        assert!(found.iter().filter(|value| !value.is_empty()).count() > 3);
        assert!(
            !table
                .column("value")
                .iter()
                .any(|v| v.contains("NaN") || v.contains("inf"))
        );
    }
}

/// Examples of tests/reference as a CSV file, and a study file of one trial on them.
fn peer_study(place: &Place, name: &str, inputs: &str, model: &str) -> String {
    let bytes = reference("curvature-examples.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (features, labels) = (file.tensor(inputs).unwrap(), file.tensor("labels").unwrap());
    let width = features.shape()[1];
    let mut text: String = (0..width).fold(String::new(), |mut text, i| {
        let _ = write!(text, "f{i},");
        text
    });
    text.push_str("label\n");
    for (row, label) in features.data().chunks(8 * width).zip(labels.data()) {
        for x in row.chunks(8) {
            let x = f64::from_le_bytes(x.try_into().unwrap());
            let _ = write!(text, "{x},");
        }
        let _ = writeln!(text, "{label}");
    }
    let csv = place.path(&format!("{name}.csv"));
    fs::write(&csv, text).unwrap();
    let path = csv.display();
    let study = format!(
        "name = \"{name}\"\nmodel = {model}\n[data]\nstandardize = \"none\"\n\
         [data.source.csv]\npath = '{path}'\ntest_path = '{path}'\nlabel = \"label\"\n\
         [train]\nepochs = 1\nworkers = 2\nglobal_batch = 8\n[learning_rate]\nbase_lr = 0.1\n"
    );
    fs::write(place.path(&format!("{name}.toml")), study).unwrap();
    format!(
        "{}/tests/reference/curvature-{name}.safetensors",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// From a file of PyTorch's weights to the printed number: what PyTorch's dense matrices say.
#[test]
fn weights_from_pytorch_have_the_eigenvalues_that_pytorch_gives_them() {
    let place = Place::new();
    let all: Value = serde_json::from_slice(&reference("curvature.json")).unwrap();
    for (name, inputs, model) in [
        ("softmax", "digits", "\"softmax-regression\""),
        (
            "mlp-tanh",
            "rows",
            "{mlp = {widths = [16], activation = \"tanh\"}}",
        ),
        (
            "mlp-batch-norm",
            "rows",
            "{mlp = {widths = [16], activation = \"relu\", normalization = \"batch\"}}",
        ),
    ] {
        let weights = peer_study(&place, name, inputs, model);
        let study = format!("{name}.toml");
        let ask = |kind: &[&str]| -> Value {
            let weights = ["--weights", weights.as_str(), "--json"];
            let shown = place.well(&[&["probe", &study], kind, &weights].concat());
            assert_eq!(shown.lines().count(), 1, "{shown}");
            let found: Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(found["examples"], 97);
            assert_eq!(found["ids"].as_array().unwrap().len(), 97);
            assert_eq!(found["exact_products"], true);
            found
        };
        let found = ask(&[
            "hessian",
            "--largest=5",
            "--smallest=0",
            "--tolerance=1e-7",
            "--trace-products=346",
            "--gauss-newton",
            "--blocks=layer",
        ]);
        let facts = &all["models"][name];
        let rows = found["rows"].as_array().unwrap();
        let of = |rows: &[Value], probe: &str, quantity: &str, scope: &str| -> Vec<Value> {
            let own = rows.iter().filter(|row| {
                row["probe"] == probe && row["quantity"] == quantity && row["scope"] == scope
            });
            own.cloned().collect()
        };
        for kind in ["hessian", "gauss_newton"] {
            let values = of(rows, kind, "eigenvalue", "");
            assert_eq!(values.len(), 5);
            let scale = facts[kind]["top"][0].as_f64().unwrap();
            for (i, row) in values.iter().enumerate() {
                let expected = facts[kind]["top"][i].as_f64().unwrap();
                assert_eq!(row["converged"], true);
                near(name, row["value"].as_f64().unwrap(), expected, 1e-9 * scale);
            }
            let trace = &of(rows, kind, "trace", "")[0];
            let expected = facts[kind]["trace"].as_f64().unwrap();
            let error = trace["standard_error"].as_f64().unwrap();
            let tolerance = 4.0 * error + 1e-9 * expected;
            near(name, trace["value"].as_f64().unwrap(), expected, tolerance);
            for (layer, block) in facts[kind]["blocks"].as_object().unwrap() {
                let own = &of(rows, kind, "block_eigenvalue", layer)[0];
                let expected = block["top"].as_f64().unwrap();
                near(
                    layer,
                    own["value"].as_f64().unwrap(),
                    expected,
                    1e-7 * scale,
                );
            }
        }
        let found = ask(&["noise", "--hessian-pieces=97"]);
        let rows = found["rows"].as_array().unwrap();
        let noise = &facts["noise"];
        for quantity in ["tr_sigma", "squared_gradient", "tr_h_sigma", "ghg"] {
            let own = &of(rows, "noise", quantity, "")[0];
            let expected = noise[quantity].as_f64().unwrap();
            near(
                quantity,
                own["value"].as_f64().unwrap(),
                expected,
                1e-8 * expected,
            );
        }
        // Without --json, into a folder of its own.
        let shown = place.well(&[
            "probe",
            &study,
            "hessian",
            "--weights",
            &weights,
            "--out=own",
            "--largest=1",
            "--smallest=0",
            "--trace-products=0",
        ]);
        assert!(
            shown.contains("on 97 training examples, products exact"),
            "{shown}"
        );
        assert!(place.table("own/hessian.csv").rows.len() == 1);
        // A study file leaves nothing beside itself.
        assert!(!place.path("probes").exists());
    }
}

#[test]
fn what_cannot_be_probed_is_refused_with_what_to_do() {
    let place = Place::new();
    let trials = place.trials();
    let folder = format!("results/small/trials/{}", trials[0]);
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("zero.safetensors"), b"").unwrap();
    let none = safetensors::serialize(
        Vec::<(String, safetensors::tensor::TensorView<'_>)>::new(),
        None,
    );
    fs::write(place.path("none.safetensors"), none.unwrap()).unwrap();
    let whole = fs::read(place.path(&format!("{folder}/model.safetensors"))).unwrap();
    fs::write(place.path("cut.safetensors"), &whole[..whole.len() - 9]).unwrap();
    let other = format!(
        "{}/tests/reference/curvature-softmax.safetensors",
        env!("CARGO_MANIFEST_DIR")
    );
    let peer = peer_study(&place, "mlp-tanh", "rows", "{mlp = {widths = [12]}}");
    let study = "results/small";
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (
            vec!["nowhere", "hessian"],
            vec!["nowhere", "study.json", "--weights"],
        ),
        (
            vec!["empty", "hessian"],
            vec!["empty", "study.json", "--weights"],
        ),
        (
            vec!["study.toml", "hessian"],
            vec!["study.toml", "--weights"],
        ),
        (
            vec![study, "hessian", "--trial", "zzzz"],
            vec!["zzzz", "batchlab status"],
        ),
        (vec![&folder, "hessian", "--trial", "zzzz"], vec!["zzzz"]),
        (
            vec![study, "hessian", "--weights", "zero.safetensors"],
            vec!["--trial"],
        ),
        (
            vec![&folder, "hessian", "--weights", "zero.safetensors"],
            vec!["zero.safetensors"],
        ),
        (
            vec![&folder, "hessian", "--weights", "none.safetensors"],
            vec!["none.safetensors", "layers.0.weight"],
        ),
        (
            vec![&folder, "hessian", "--weights", "cut.safetensors"],
            vec!["cut.safetensors"],
        ),
        (
            vec![&folder, "hessian", "--weights", "nowhere.safetensors"],
            vec!["nowhere.safetensors"],
        ),
        (
            vec![&folder, "hessian", "--weights", &other],
            vec!["curvature-softmax.safetensors", "layers.0.weight"],
        ),
        (
            vec!["mlp-tanh.toml", "hessian", "--weights", &peer],
            vec![
                "curvature-mlp-tanh.safetensors",
                "layers.0",
                "[12, 8]",
                "[16, 8]",
            ],
        ),
        (
            vec!["study.toml", "hessian", "--weights", &peer],
            vec!["study.toml", "one trial", "--set"],
        ),
        (
            vec![&folder, "hessian", "--examples", "151"],
            vec!["probes.examples", "151", "150"],
        ),
        (
            vec![&folder, "hessian", "--examples", "1"],
            vec!["probes.examples", "2"],
        ),
        (
            vec![&folder, "sharpness", "--l2-radii=-1"],
            vec!["l2_radii", "-1", "positive"],
        ),
        (
            vec![&folder, "sharpness", "--epsilons=0.1,-0.1"],
            vec!["epsilons", "-0.1", "positive"],
        ),
        (
            vec![&folder, "sharpness", "--sigmas=nan"],
            vec!["sigmas", "NaN"],
        ),
        (
            vec![&folder, "sharpness", "--adversarial=-0.1"],
            vec!["radi", "from 0 to"],
        ),
        (
            vec![&folder, "sharpness", "--iterations=0"],
            vec!["iterations", "0"],
        ),
        (
            vec![&folder, "hessian", "--max-products=0"],
            vec!["max_products", "0"],
        ),
        (
            vec![&folder, "hessian", "--tolerance=-1"],
            vec!["tolerance", "-1"],
        ),
        (
            vec![&folder, "noise", "--hessian-pieces=1"],
            vec!["hessian_pieces", "at least 2"],
        ),
        (
            vec![&folder, "hessian", "--weight-decay", "--set", "a.b=3"],
            vec!["--set"],
        ),
        (vec![study, "surface"], vec![study, "--trial"]),
        (vec![&folder, "surface", "--points=4"], vec!["4", "odd"]),
        (
            vec![&folder, "surface", "--extent=-1"],
            vec!["-1", "positive"],
        ),
        (
            vec![&folder, "surface", "--to", &trials[1], "--points=0"],
            vec!["points", "0"],
        ),
        (
            vec![&folder, "surface", "--to", &trials[1], "--extent=nan"],
            vec!["extent", "NaN"],
        ),
        (vec![&folder, "surface", "--to", "zzzz"], vec!["zzzz"]),
        (
            vec![&folder, "surface", "--to", &other, "--points=3"],
            vec!["curvature-softmax.safetensors", "layers.0.weight"],
        ),
        (
            vec![&folder, "surface", "--examples=0", "--points=3"],
            vec!["examples", "0"],
        ),
        (
            vec![&folder, "hessian", "--out", "study.toml/results"],
            vec!["study.toml/results"],
        ),
        (vec![&folder, "hessian", "--threads=0"], vec!["--threads"]),
        (vec![&folder, "curvature"], vec!["curvature"]),
        (vec![&folder], vec!["surface"]),
    ];
    let mut faults = Vec::new();
    for (arguments, wanted) in &cases {
        let arguments = [&["probe"], arguments.as_slice()].concat();
        let output = place.call(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        let names = wanted.iter().all(|word| said.contains(word));
        if !matches!(code, Some(1 | 2)) || said.contains("panicked") || !names {
            faults.push(format!(
                "{}\n  status {code:?}, wanted {wanted:?}, said:\n{said}",
                arguments.join(" ")
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    // Nothing was left by what was refused.
    assert!(!place.path(study).join("probes/hessian.csv").exists());
    // A run without weights yet, a config that is damaged, and weights that are.
    for id in &trials {
        fs::remove_file(place.path(&format!("results/small/trials/{id}/model.safetensors")))
            .unwrap();
    }
    let said = place.refused(&["probe", study, "hessian"]);
    assert!(
        said.contains(study) && said.contains("batchlab run"),
        "{said}"
    );
    fs::write(place.path(&format!("{folder}/model.safetensors")), &whole).unwrap();
    fs::write(place.path(&format!("{folder}/result.json")), "{").unwrap();
    let said = place.refused(&["probe", &folder, "hessian"]);
    assert!(said.contains("result.json"), "{said}");
    fs::write(place.path("results/small/study.json"), "{").unwrap();
    let said = place.refused(&["probe", study, "hessian"]);
    assert!(said.contains("study.json"), "{said}");
}

#[test]
fn the_noise_of_a_run_has_a_scale() {
    let place = Place::new();
    let trial = format!("results/small/trials/{}", place.trials()[0]);
    let table = format!("{trial}/noise.csv");
    let shown = place.well(&["noise", "--from-csv", &table, "--population", "150"]);
    assert!(shown.contains("noise scale B_simple"), "{shown}");
    let json = place.well(&["noise", "--from-csv", &table, "--population=150", "--json"]);
    let found: Value = serde_json::from_str(&json).unwrap();
    let cells = place.table(&table);
    assert_eq!(found["rows"], cells.rows.len());
    // Averages over rows, and the quotient last.
    let average = |name: &str| {
        let values = cells.numbers(name);
        values.iter().sum::<f64>() / values.len() as f64
    };
    let (tr_sigma, squared) = (average("tr_sigma"), average("squared_gradient"));
    near(
        "tr",
        found["tr_sigma"].as_f64().unwrap(),
        tr_sigma,
        1e-9 * tr_sigma,
    );
    let own = found["squared_gradient"].as_f64().unwrap();
    near("|G|^2", own, squared, 1e-9 * tr_sigma);
    if let Some(scale) = found["b_simple"].as_f64() {
        near("B", scale, tr_sigma / squared, 1e-9 * scale);
    } else {
        assert!(found["undetermined"].is_string());
    }
    let layers = format!("{trial}/noise-layers.csv");
    let json = place.well(&["noise", "--from-csv", &layers, "--layer=layers.1", "--json"]);
    let found: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["rows"], cells.rows.len());
    let said = place.refused(&["noise", "--from-csv", &layers]);
    assert!(
        said.contains("layers.0") && said.contains("--layer"),
        "{said}"
    );
    let said = place.refused(&["noise", "--from-csv", &table, "--adamw"]);
    assert!(said.contains("adamw_g2_small"), "{said}");
    let said = place.refused(&["noise", "--from-csv", "nowhere.csv"]);
    assert!(said.contains("nowhere.csv"), "{said}");
}

/// A study that asks for a noise that its pieces cannot show ends before it trains, and says what
/// helps.
#[test]
fn a_study_with_one_worker_and_noise_says_what_helps() {
    let place = Place::new();
    let study = STUDY
        .replace("workers = 2", "workers = 1")
        .replace("small", "alone");
    fs::write(place.path("alone.toml"), study).unwrap();
    let said = place.refused(&["run", "alone.toml", "--quiet"]);
    assert!(said.contains("2 or more workers"), "{said}");
    assert!(said.contains("train.micro_batch"), "{said}");
    let steps = place.path("results/alone/trials");
    if let Ok(trials) = fs::read_dir(steps) {
        for trial in trials {
            assert!(!trial.unwrap().path().join("steps.csv").exists());
        }
    }
}
