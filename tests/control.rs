//! Runs whose batch, rate, momentum, statistics or weights follow a rule: what the rule says is what
//! the run does, and threads, workers and kills change none of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use batchlab::config::{self, Precision, Split, TrialConfig};
use batchlab::data::{self, Data};
use batchlab::model::{AnyObjective, Registry};
use batchlab::objective::{Batch, Objective, Scalar, StatisticsMode};
use batchlab::theory::learning_rate::adascale_gain;
use batchlab::train::{Control, Places, Pool, Session, TrainError, TrialOutcome, run_trial};

/// An MLP on 300 digits; `lines` join or replace what is here, as `--set` does.
fn trial(lines: &[&str]) -> (TrialConfig, Data) {
    let base = r#"
        [data]
        source = "digits"
        subset = 300
        [model.mlp]
        widths = [16]
        [train]
        workers = 2
        global_batch = 16
        epochs = 4
        [learning_rate]
        base_lr = 0.05
        base_batch = 16
    "#;
    let set: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let study = config::parse(base, "control.toml", &set).unwrap_or_else(|e| panic!("{e}"));
    let config = study.trials[0].config.clone();
    let data = data::load(&config.data, Path::new("data")).unwrap();
    (config, data)
}

/// A small batch-normalized network on the digits.
const RESNET: [&str; 3] = [
    "model={resnet={depth=8, width=2}}",
    "data.subset=96",
    "train.epochs=2",
];

/// Runs a trial in a folder; `stop_at(update)` says where to interrupt it.
fn run_in(
    folder: &Path,
    config: &TrialConfig,
    data: &Data,
    threads: usize,
    stop_at: &(dyn Fn(u64) -> bool + Sync),
) -> Result<TrialOutcome, TrainError> {
    let model = Registry::new().build(config, data).unwrap();
    let model: &dyn AnyObjective = &*model;
    let stop = AtomicBool::new(false);
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

fn files(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// The files of an undisturbed run, and its outcome as JSON.
fn undisturbed(
    config: &TrialConfig,
    data: &Data,
    threads: usize,
) -> (BTreeMap<OsString, Vec<u8>>, String) {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run_in(folder.path(), config, data, threads, &|_| false).unwrap();
    (
        files(folder.path()),
        serde_json::to_string(&outcome).unwrap(),
    )
}

/// Columns of a table of a run, as numbers.
fn column(files: &BTreeMap<OsString, Vec<u8>>, table: &str, name: &str) -> Vec<f64> {
    let text = String::from_utf8(files[&OsString::from(table)].clone()).unwrap();
    let mut lines = text.lines();
    let place = lines
        .next()
        .unwrap()
        .split(',')
        .position(|c| c == name)
        .unwrap();
    lines
        .map(|line| line.split(',').nth(place).unwrap().parse().unwrap())
        .collect()
}

/// Every rule that keeps something between updates, by name.
fn rules() -> Vec<(&'static str, Vec<&'static str>)> {
    let warm = "learning_rate.warmup={epochs=1.5}";
    let mut all = vec![
        (
            "warm-up and cosine",
            vec![warm, "learning_rate.decay=\"cosine\""],
        ),
        (
            "exponential warm-up, cyclic",
            vec![
                "learning_rate.warmup={shape=\"exponential\", examples=200, start_lr=0.001}",
                "learning_rate.decay={cyclic={period_epochs=1}}",
            ],
        ),
        (
            "schedule, linear rule, warm-up",
            vec![
                "batch.controller={schedule={stages=[[1, 32], [2.5, 60], [3, 16]]}}",
                "learning_rate.scaling=\"linear\"",
                warm,
            ],
        ),
        (
            "smith",
            vec![
                "batch.controller={smith={epochs=[1, 2, 3], factor=3, initial_factor=2, momentum=0.95}}",
                "batch.max_batch=200",
                "batch.growth=\"workers\"",
            ],
        ),
        (
            "absa",
            vec![
                "batch.controller={absa={patience_epochs=1, adversarial_share=0.5, curvature_examples=64}}",
                "learning_rate.scaling=\"sqrt\"",
            ],
        ),
        (
            "cabs",
            vec![
                "batch.controller=\"cabs\"",
                "batch.min_batch=2",
                "batch.every_steps=3",
            ],
        ),
        (
            "norm test",
            vec!["batch.controller=\"norm-test\"", "batch.every_steps=2"],
        ),
        (
            "inner-product test",
            vec![
                "batch.controller={inner-product-test={orthogonality=5}}",
                "batch.every_epochs=0.3",
                "batch.growth=\"accumulation\"",
            ],
        ),
        (
            "noise scale",
            vec![
                "batch.controller={noise-scale={exchange_rate=100, curvature_examples=32}}",
                "batch.every_steps=5",
            ],
        ),
        (
            "simple noise scale",
            vec![
                "batch.controller=\"simple-noise-scale\"",
                "batch.every_steps=4",
            ],
        ),
        (
            "adascale",
            vec![
                "learning_rate.scaling=\"adascale\"",
                "learning_rate.base_batch=4",
                "train.epochs=1",
            ],
        ),
        (
            "schedule, dropped ends of epochs",
            vec![
                "batch.controller={schedule={stages=[[1, 32], [2.5, 60], [3, 16]]}}",
                "train.epoch_end=\"drop\"",
                "train.averaging={swa={start_epoch=1, every_epochs=0.5}}",
            ],
        ),
        (
            "noise scale, partial epochs",
            vec![
                "batch.controller=\"simple-noise-scale\"",
                "batch.every_steps=4",
                "train.epoch_end=\"partial\"",
            ],
        ),
        (
            "adascale and a schedule",
            vec![
                "learning_rate.scaling=\"adascale\"",
                "learning_rate.base_batch=4",
                "train.epochs=1",
                "batch.controller={schedule={stages=[[0.5, 32]]}}",
            ],
        ),
        (
            "momentum inside, corrected, stepped momentum",
            vec![
                "optimizer={momentum={form=\"inside\"}}",
                "momentum_schedule={step={epochs=[1, 2], values=[0.5, 0.8]}}",
                "learning_rate.decay={step={epochs=[1.5], factor=0.1}}",
            ],
        ),
        (
            "lars, clipped",
            vec!["optimizer={lars={weight_decay=0.001}}", "train.clip_norm=1"],
        ),
        (
            "lamb",
            vec![
                "optimizer={lamb={weight_decay=0.01}}",
                "learning_rate.base_lr=0.01",
            ],
        ),
        (
            "lion",
            vec!["optimizer=\"lion\"", "learning_rate.base_lr=0.001"],
        ),
        ("ema of weights", vec!["train.averaging={ema={decay=0.9}}"]),
        (
            "swa",
            vec!["train.averaging={swa={start_epoch=1.5, every_epochs=0.5}}"],
        ),
        (
            "weight normalization",
            vec!["model={mlp={widths=[16], normalization={weight={}}}}"],
        ),
    ];
    for (name, more) in [
        (
            "running statistics",
            vec!["train.batch_statistics={ema={}}"],
        ),
        (
            "ghost groups and a schedule",
            vec![
                "train.statistics_group={ghost={ghost_size=3}}",
                "batch.controller={schedule={stages=[[1, 32]]}}",
            ],
        ),
        ("global groups", vec!["train.statistics_group=\"global\""]),
        (
            "noise between ghost groups",
            vec![
                "train.statistics_group={ghost={ghost_size=2}}",
                "batch.controller=\"simple-noise-scale\"",
                "batch.every_steps=2",
            ],
        ),
    ] {
        all.push((name, RESNET.iter().copied().chain(more).collect()));
    }
    all
}

#[test]
fn a_run_interrupted_anywhere_resumes_to_the_same_bytes() {
    for (name, lines) in rules() {
        let (config, data) = trial(&lines);
        let (whole, outcome) = undisturbed(&config, &data, 1);
        let steps = column(&whole, "steps.csv", "step").len() as u64;
        // After every update of a run of its own: inside a warm-up, before, at and after each change.
        let folder = tempfile::tempdir().unwrap();
        let mut interruptions = 0;
        let last = loop {
            match run_in(folder.path(), &config, &data, 1, &|_| true) {
                Ok(outcome) => break outcome,
                Err(TrainError::Interrupted { .. }) => interruptions += 1,
                Err(error) => panic!("{name}: {error}"),
            }
        };
        assert!(
            interruptions + 1 >= steps,
            "{name}: {interruptions} of {steps}"
        );
        assert_eq!(serde_json::to_string(&last).unwrap(), outcome, "{name}");
        let resumed = files(folder.path());
        assert_eq!(
            resumed.keys().collect::<Vec<_>>(),
            whole.keys().collect::<Vec<_>>()
        );
        for (file, bytes) in &whole {
            assert!(
                resumed[file] == *bytes,
                "{name}: {} differs",
                file.display()
            );
        }
    }
}

#[test]
fn threads_change_no_bit_of_any_rule() {
    for (name, lines) in rules() {
        let (config, data) = trial(&lines);
        let (one, outcome) = undisturbed(&config, &data, 1);
        for threads in [2, 3] {
            let (many, other) = undisturbed(&config, &data, threads);
            assert_eq!(other, outcome, "{name}");
            assert!(many == one, "{name}: other bytes on {threads} threads");
        }
    }
}

#[test]
fn a_run_is_what_it_was_without_a_controller_that_never_moves() {
    // A schedule whose only stage is the batch there is.
    let (plain, data) = trial(&[]);
    let (still, _) = trial(&["batch.controller={schedule={stages=[[1, 16]]}}"]);
    let (plain, still) = (
        undisturbed(&plain, &data, 1).0,
        undisturbed(&still, &data, 1).0,
    );
    for file in ["steps.csv", "evaluations.csv", "model.safetensors"] {
        let file = OsString::from(file);
        assert!(plain[&file] == still[&file], "{} differs", file.display());
    }
}

#[test]
fn a_larger_batch_is_the_same_however_it_is_made() {
    let stages = "batch.controller={schedule={stages=[[1, 32], [2, 64]]}}";
    let of = |growth: &str, more: &[&str]| {
        let growth = format!("batch.growth=\"{growth}\"");
        let lines: Vec<&str> = [stages, growth.as_str(), "train.precision=\"f64\""]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        let (config, data) = trial(&lines);
        undisturbed(&config, &data, 1).0
    };
    // Shards of a batch of 32: two of 16, or four of 8, here four workers or two passes of two.
    let (shards, workers, passes) = (
        of("shards", &[]),
        of("workers", &[]),
        of("accumulation", &[]),
    );
    let model = OsString::from("model.safetensors");
    assert!(
        workers[&model] == passes[&model],
        "workers and accumulation are one partition"
    );
    let losses = |run| column(run, "steps.csv", "loss");
    for (a, b) in losses(&shards).iter().zip(losses(&workers)) {
        assert!((a - b).abs() <= 1e-12 * b, "{a} against {b}");
    }
    assert_eq!(column(&workers, "steps.csv", "workers").last(), Some(&8.0));
    assert_eq!(column(&passes, "steps.csv", "workers").last(), Some(&2.0));
    // With batch statistics of each shard the groups differ, and workers and passes still agree.
    let (shards, workers, passes) = (
        of("shards", &RESNET),
        of("workers", &RESNET),
        of("accumulation", &RESNET),
    );
    assert!(workers[&model] == passes[&model]);
    assert_ne!(losses(&shards).last(), losses(&workers).last());
}

#[test]
fn a_change_of_the_batch_moves_the_rate_as_the_rule_says_and_nothing_else() {
    let stages = "batch.controller={schedule={stages=[[1, 32], [2, 64]]}}";
    for (rule, expected) in [
        ("\"none\"", [1.0, 1.0, 1.0]),
        ("\"linear\"", [1.0, 2.0, 4.0]),
        ("\"sqrt\"", [1.0, 2f64.sqrt(), 2.0]),
        (
            "{power={exponent=0.75}}",
            [1.0, 2f64.powf(0.75), 4f64.powf(0.75)],
        ),
        (
            "{saturating={noise_scale=48}}",
            [1.0, 4.0 / 2.5, 4.0 / 1.75],
        ),
    ] {
        let scaling = format!("learning_rate.scaling={rule}");
        let (config, data) = trial(&[stages, &scaling]);
        let run = undisturbed(&config, &data, 1).0;
        let rates = column(&run, "steps.csv", "lr");
        let batches = column(&run, "steps.csv", "global_batch");
        for (lr, batch) in rates.iter().zip(&batches) {
            let stage = (batch / 16.0).log2() as usize;
            let factor = expected[stage];
            assert!(
                (lr / (0.05 * factor) - 1.0).abs() < 1e-14,
                "{rule} at {batch}: {lr}"
            );
        }
        // 300 examples an epoch: 19 updates of 16 end epoch 1, then 10 of 32, then 64.
        assert_eq!(batches[18..20], [16.0, 32.0]);
        let examples = column(&run, "steps.csv", "examples");
        let sum: f64 = batches.iter().sum();
        assert_eq!(examples.last(), Some(&sum));
        assert!(sum <= 1200.0 && sum > 1200.0 - 64.0, "{sum}");
    }
    let (config, data) = trial(&[
        stages,
        "learning_rate.scaling=\"linear\"",
        "batch.coupling=\"none\"",
    ]);
    let run = undisturbed(&config, &data, 1).0;
    assert!(column(&run, "steps.csv", "lr").iter().all(|&lr| lr == 0.05));
}

#[test]
fn a_warm_up_starts_from_the_rate_that_it_is_given_whatever_moves_the_batch() {
    let of = |more: &[&str]| {
        let warm = "learning_rate.warmup={steps=20, start_lr=0.01}";
        let lines: Vec<&str> = std::iter::once(warm).chain(more.iter().copied()).collect();
        let (config, data) = trial(&lines);
        column(&undisturbed(&config, &data, 1).0, "steps.csv", "lr")
    };
    // Smith's start: four times the rate and the batch, and still 20 updates from 0.01.
    let smith = of(&[
        "batch.controller={smith={epochs=[5], initial_factor=4}}",
        "train.epochs=6",
    ]);
    assert_eq!((smith[0], smith[20]), (0.01, 0.2));
    assert!((smith[10] - 0.105).abs() < 1e-15, "{}", smith[10]);
    // The batch doubles half way: the warm-up goes on, towards twice the rate.
    let grown = of(&[
        "batch.controller={schedule={stages=[[0.5, 32]]}}",
        "learning_rate.scaling=\"linear\"",
    ]);
    assert_eq!(grown[0], 0.01);
    assert!(
        (grown[9] - (0.01 + 0.04 * 9.0 / 20.0)).abs() < 1e-15,
        "{}",
        grown[9]
    );
    assert_eq!(*grown.last().unwrap(), 0.1);
    let steepest = grown
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    assert!(steepest < 0.03, "a jump of {steepest}");
}

#[test]
fn epochs_never_run_backwards_and_no_move_is_logged_that_trains_nothing() {
    for (name, lines) in rules() {
        let (config, data) = trial(&lines);
        let run = undisturbed(&config, &data, 1).0;
        let epochs = column(&run, "steps.csv", "epoch");
        assert!(epochs.is_sorted(), "{name}: {epochs:?}");
        let last = column(&run, "steps.csv", "step").last().copied().unwrap();
        let moves = batch_moves(&run);
        assert!(
            moves.iter().all(|step| *step < last),
            "{name}: {moves:?} of {last}"
        );
    }
}

/// The updates after which the batch moved.
fn batch_moves(run: &BTreeMap<OsString, Vec<u8>>) -> Vec<f64> {
    let text = String::from_utf8(run[&OsString::from("batch.csv")].clone()).unwrap();
    let rows = text.lines().skip(1);
    rows.map(|row| row.split(',').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn smith_trades_the_rate_for_the_batch_update_by_update() {
    let decay = trial(&["learning_rate.decay={step={epochs=[1, 2, 3], factor=0.25}}"]);
    let grow = trial(&[
        "batch.controller={smith={epochs=[1, 2, 3], factor=4}}",
        "batch.max_batch=128",
    ]);
    let decayed = undisturbed(&decay.0, &decay.1, 1).0;
    let grown = undisturbed(&grow.0, &grow.1, 1).0;
    let noise = |run: &BTreeMap<_, _>| -> Vec<(f64, f64)> {
        let epochs = column(run, "steps.csv", "epoch");
        let rates = column(run, "steps.csv", "lr");
        let batches = column(run, "steps.csv", "global_batch");
        let starts = epochs
            .iter()
            .zip(&batches)
            .map(|(epoch, batch)| epoch - batch / 300.0);
        starts
            .zip(rates.iter().zip(&batches).map(|(lr, b)| lr / b))
            .collect()
    };
    // lr/B at any time of the one is that of the other: 16, 64, 128 and a half of the rate, 128 and
    // an eighth. The larger batch notices an epoch's end later, by at most its own size.
    let decayed = noise(&decayed);
    for (epoch, ratio) in noise(&grown) {
        let (_, expected) = decayed
            .iter()
            .rfind(|(start, _)| *start <= epoch + 1e-9)
            .unwrap();
        assert!(
            (ratio / expected - 1.0).abs() < 1e-12,
            "at {epoch}: {ratio} against {expected}"
        );
    }
}

/// Trains for some updates and returns the losses, the parameters and the population statistics.
fn trained<F: Scalar>(
    config: &TrialConfig,
    data: &Data,
    objective: &dyn Objective<F>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    Pool::with(1, |pool| {
        let mut session = Session::new(config, data, objective, pool).unwrap();
        let losses = (0..6).map(|_| session.step().unwrap().loss).collect();
        let statistics = session.statistics().unwrap();
        let parameters = session.parameters().iter().map(|p| p.to_f64()).collect();
        let moments = statistics
            .iter()
            .flat_map(|layer| layer.mean.iter().chain(&layer.variance).copied())
            .collect();
        (losses, parameters, moments)
    })
}

/// Training examples as one group.
fn batch_of(data: &Data, ids: &[u64]) -> Batch<f64> {
    let width: usize = data.shape.iter().product();
    let rows = ids.iter().flat_map(|&id| {
        let at = id as usize * width;
        data.train.features[at..at + width]
            .iter()
            .map(|&v| f64::from(v))
    });
    Batch {
        features: rows.collect(),
        labels: ids
            .iter()
            .map(|&id| data.train.labels[id as usize])
            .collect(),
        ids: ids.to_vec(),
        groups: vec![ids.len()],
    }
}

#[test]
fn local_ghost_and_global_groups_are_one_implementation() {
    let run = |more: &[&str]| {
        let lines: Vec<&str> = RESNET
            .iter()
            .copied()
            .chain(["train.precision=\"f64\"", "train.global_batch=24"])
            .chain(more.iter().copied())
            .collect();
        let (config, data) = trial(&lines);
        let model = Registry::new().build(&config, &data).unwrap();
        trained::<f64>(&config, &data, &*model)
    };
    let close = |a: &(Vec<f64>, Vec<f64>, Vec<f64>), b: &(Vec<f64>, Vec<f64>, Vec<f64>)| {
        for (a, b) in [(&a.0, &b.0), (&a.1, &b.1), (&a.2, &b.2)] {
            let scale = b.iter().fold(0f64, |s, x| s.max(x.abs()));
            for (x, y) in a.iter().zip(b) {
                assert!((x - y).abs() <= 1e-12 * scale, "{x} against {y}");
            }
        }
    };
    let local = run(&["train.workers=4"]);
    let ghost = run(&[
        "train.workers=1",
        "train.statistics_group={ghost={ghost_size=6}}",
    ]);
    close(&ghost, &local);
    let whole = run(&["train.workers=1"]);
    let global = run(&["train.workers=4", "train.statistics_group=\"global\""]);
    close(&global, &whole);
    assert_ne!(local.0, whole.0, "the groups matter");
    // Against one pass of our own over the first batch, whatever pieces the session makes of it.
    let lines: Vec<&str> = RESNET
        .iter()
        .copied()
        .chain([
            "train.precision=\"f64\"",
            "train.global_batch=24",
            "train.workers=4",
            "train.statistics_group=\"global\"",
            "optimizer=\"sgd\"",
        ])
        .collect();
    let (config, data) = trial(&lines);
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f64> = &*model;
    let start = objective.initial(config.seed);
    let ids: Vec<u64> = (3..27).collect();
    let mut gradient = vec![0.0; start.len()];
    let loss = objective
        .at(&start)
        .unwrap()
        .gradient(
            batch_of(&data, &ids),
            StatisticsMode::Batch,
            1.0,
            &mut gradient,
        )
        .unwrap();
    Pool::with(2, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        let report = session.step_on(ids.clone()).unwrap();
        assert!((report.loss - loss).abs() <= 1e-12 * loss);
        for ((found, p), g) in session.parameters().iter().zip(&start).zip(&gradient) {
            let expected = p - report.lr * g;
            assert!(
                (found - expected).abs() <= 1e-12,
                "{found} against {expected}"
            );
        }
    });
    // A rest joins the last group: 24 = 10 + 14.
    let merged = run(&[
        "train.workers=1",
        "train.statistics_group={ghost={ghost_size=10}}",
    ]);
    assert_ne!(merged.0, whole.0);
}

/// Means and variances by channel.
type Moments = (Vec<f64>, Vec<f64>);

#[test]
fn running_statistics_follow_the_groups_of_each_update() {
    let lines: Vec<&str> = RESNET
        .iter()
        .copied()
        .chain([
            "train.precision=\"f64\"",
            "train.workers=2",
            "train.batch_statistics={ema={rate=0.3}}",
        ])
        .collect();
    let (config, data) = trial(&lines);
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f64> = &*model;
    Pool::with(1, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        let start = session.statistics().unwrap();
        assert!(start.iter().all(|l| l.mean.iter().all(|&m| m == 0.0)));
        assert!(start.iter().all(|l| l.variance.iter().all(|&v| v == 1.0)));
        let mut expected: Vec<Moments> = start
            .iter()
            .map(|l| (l.mean.clone(), l.variance.clone()))
            .collect();
        for step in 0..3u64 {
            let ids: Vec<u64> = (step * 16..(step + 1) * 16).collect();
            // The moments of the two shards of 8, from a pass of our own.
            let point = objective.at(session.parameters()).unwrap();
            let mut by_layer: BTreeMap<String, Vec<Moments>> = BTreeMap::new();
            for shard in ids.chunks(8) {
                let batch = batch_of(&data, shard);
                for moments in point.moments(batch).unwrap() {
                    let n = moments.values as f64;
                    let unbiased = moments.variance.iter().map(|v| v * n / (n - 1.0)).collect();
                    by_layer
                        .entry(moments.layer)
                        .or_default()
                        .push((moments.mean, unbiased));
                }
            }
            for (layer, expected) in start.iter().zip(&mut expected) {
                let [a, b] = by_layer[&layer.name].as_slice() else {
                    panic!("two groups");
                };
                for c in 0..expected.0.len() {
                    expected.0[c] = 0.7 * expected.0[c] + 0.3 * f64::midpoint(a.0[c], b.0[c]);
                    expected.1[c] = 0.7 * expected.1[c] + 0.3 * f64::midpoint(a.1[c], b.1[c]);
                }
            }
            session.step_on(ids).unwrap();
        }
        for (layer, expected) in session.statistics().unwrap().iter().zip(&expected) {
            for (found, expected) in [(&layer.mean, &expected.0), (&layer.variance, &expected.1)] {
                for (x, y) in found.iter().zip(expected) {
                    assert!((x - y).abs() <= 1e-12 * y.abs().max(1.0), "{x} against {y}");
                }
            }
        }
        let statistics = session.statistics().unwrap();
        assert!(
            session
                .evaluate(Split::Test, &statistics)
                .unwrap()
                .is_some()
        );
    });
}

#[test]
fn the_noise_that_a_controller_sees_is_that_of_the_examples_gradients() {
    // Pieces of one example, no smoothing, and rate 0 would be refused: one tiny update.
    let (config, data) = trial(&[
        "batch.controller=\"simple-noise-scale\"",
        "batch.every_steps=1",
        "batch.smoothing=0",
        "batch.min_batch=2",
        "train.micro_batch=1",
        "train.precision=\"f64\"",
        "learning_rate.base_lr=1e-9",
        "train.workers=1",
    ]);
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f64> = &*model;
    let mut session_batch = Vec::new();
    let (found, parameters) = Pool::with(1, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        session.step().unwrap();
        let parameters = session.parameters().to_vec();
        session_batch.extend(16..32u64);
        session.step_on(session_batch.clone()).unwrap();
        let change = session.take_changes().pop().expect("the batch moved");
        (change.change.value.unwrap(), parameters)
    });
    let point = objective.at(&parameters).unwrap();
    let gradients: Vec<Vec<f64>> = session_batch
        .iter()
        .map(|&id| {
            let batch = batch_of(&data, &[id]);
            let mut gradient = vec![0.0; parameters.len()];
            point
                .gradient(batch, StatisticsMode::Batch, 1.0, &mut gradient)
                .unwrap();
            gradient
        })
        .collect();
    let n = gradients.len() as f64;
    let mean: Vec<f64> = (0..parameters.len())
        .map(|i| gradients.iter().map(|g| g[i]).sum::<f64>() / n)
        .collect();
    let trace: f64 = gradients
        .iter()
        .flat_map(|g| g.iter().zip(&mean).map(|(g, m)| (g - m).powi(2)))
        .sum::<f64>()
        / (n - 1.0);
    // Drawn without replacement from the 300 there are.
    let squared = mean.iter().map(|m| m * m).sum::<f64>() - trace * (1.0 / n - 1.0 / 300.0);
    let expected = trace / squared;
    assert!(
        (found / expected - 1.0).abs() < 1e-9,
        "{found} against {expected}"
    );
}

#[test]
fn adascale_gains_what_the_noisy_quadratic_says() {
    let base = r#"
        model = "noisy-quadratic"
        [data.source.noisy-quadratic]
        dimension = 50
        examples = 4096
        [train]
        workers = 16
        global_batch = 64
        steps = 1600
        precision = "f64"
        optimizer.sgd = {}
        [learning_rate]
        base_lr = 1e-7
        base_batch = 4
        scaling = "adascale"
    "#
    .replace("optimizer.sgd = {}", "");
    let study = config::parse(&base, "quadratic.toml", &["optimizer=\"sgd\"".to_owned()]).unwrap();
    let config = study.trials[0].config.clone();
    let data = data::load(&config.data, Path::new("data")).unwrap();
    let model = Registry::new().build(&config, &data).unwrap();
    let theta: Vec<f64> = Objective::<f64>::initial(&*model, config.seed);
    let h = |i: usize| 1.0 / (i + 1) as f64;
    // The gradient of one example has covariance diag(h); its mean is h theta.
    let variance: f64 = (0..50).map(h).sum();
    let squared: f64 = theta
        .iter()
        .enumerate()
        .map(|(i, t)| (h(i) * t).powi(2))
        .sum();
    let expected = adascale_gain(variance, squared, 4.0, 64.0);
    assert!(
        expected > 2.0 && expected < 15.0,
        "{expected} would show little"
    );
    let run = undisturbed(&config, &data, 1).0;
    let rates = column(&run, "steps.csv", "lr");
    let gains: Vec<f64> = rates.iter().map(|lr| lr / 1e-7).collect();
    // The averages hold 1000/S = 62 updates: after that many, the gain is known within a few %.
    let late = &gains[gains.len() / 2..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!(
        (mean / expected - 1.0).abs() < 0.05,
        "{mean} against {expected}"
    );
    // The run ends when the gains add up to the updates of a run at the base batch.
    let total: f64 = gains.iter().sum();
    assert!((1600.0..1600.0 + 16.0).contains(&total), "{total}");
    // The workers change nothing: the noise is measured between parts of the whole batch.
    let set = ["optimizer=\"sgd\"", "train.workers=1"].map(str::to_owned);
    let study = config::parse(&base, "quadratic.toml", &set).unwrap();
    let one = undisturbed(&study.trials[0].config, &data, 1).0;
    assert_eq!(column(&one, "steps.csv", "lr"), rates);
}

#[test]
fn adversarial_examples_do_not_depend_on_the_workers() {
    let of = |workers: &str| {
        let (config, data) = trial(&[
            "batch.controller={absa={adversarial_share=0.4, curvature_examples=32}}",
            "train.precision=\"f64\"",
            workers,
        ]);
        column(&undisturbed(&config, &data, 1).0, "steps.csv", "loss")
    };
    let (one, four) = (of("train.workers=1"), of("train.workers=4"));
    let plain = {
        let (config, data) = trial(&["train.precision=\"f64\"", "train.workers=1"]);
        column(&undisturbed(&config, &data, 1).0, "steps.csv", "loss")
    };
    for (a, b) in one.iter().zip(&four) {
        assert!((a - b).abs() <= 1e-11 * b, "{a} against {b}");
    }
    assert!(
        one[0] > plain[0],
        "moved along the gradient, examples cost more"
    );
}

#[test]
fn statistics_that_cannot_be_had_are_refused_at_the_start() {
    let refused = |more: &[&str]| {
        let lines: Vec<&str> = RESNET.iter().copied().chain(more.iter().copied()).collect();
        let (config, data) = trial(&lines);
        let folder = tempfile::tempdir().unwrap();
        run_in(folder.path(), &config, &data, 1, &|_| false)
            .expect_err("refused")
            .to_string()
    };
    let error = refused(&["train.workers=1", "batch.controller=\"cabs\""]);
    assert!(
        error.contains("use at least two workers, or ghost groups"),
        "{error}"
    );
    let error = refused(&["batch.controller=\"cabs\"", "train.epoch_end=\"partial\""]);
    assert!(error.starts_with("train.epoch_end: "), "{error}");
    let error = refused(&[
        "train.batch_statistics={ema={}}",
        "train.averaging={ema={}}",
    ]);
    assert!(error.starts_with("train.batch_statistics: "), "{error}");
    let error = refused(&["train.workers=16"]);
    assert!(error.contains("a group of 1"), "{error}");
    let error = refused(&[
        "train.statistics_group={ghost={ghost_size=8}}",
        "batch.controller={schedule={stages=[[1, 8]]}}",
    ]);
    assert!(
        error.contains("groups of 8 do not fit into shards of 4"),
        "{error}"
    );
    let error = refused(&[
        "train.micro_batch=8",
        "batch.controller={schedule={stages=[[1, 32]]}}",
    ]);
    assert!(
        error.contains("at least 16") && error.contains("found 8"),
        "{error}"
    );
    let error = refused(&["batch.controller=\"cabs\"", "batch.min_batch=2"]);
    assert!(error.starts_with("batch.min_batch: "), "{error}");
    let error = refused(&["train.micro_batch=4"]);
    assert!(error.starts_with("train.micro_batch: "), "{error}");
    let error = refused(&[
        "train.statistics_group={ghost={ghost_size=4, remainder=\"refuse\"}}",
        "batch.controller={schedule={stages=[[1, 20]]}}",
    ]);
    assert!(
        error.starts_with("train.statistics_group.ghost.remainder: "),
        "{error}"
    );
}

#[test]
fn the_exchange_of_global_statistics_is_counted() {
    let lines: Vec<&str> = RESNET
        .iter()
        .copied()
        .chain(["train.statistics_group=\"global\""])
        .collect();
    let (config, data) = trial(&lines);
    let folder = tempfile::tempdir().unwrap();
    let outcome = run_in(folder.path(), &config, &data, 1, &|_| false).unwrap();
    let exchange = outcome.statistics_exchange.unwrap();
    // ResNet-8: a first layer and two in each of three blocks, of 2, 2, 4 and 8 channels.
    assert_eq!(exchange.all_reduces_per_update, 14);
    assert_eq!(exchange.values_per_update, 4 * (2 + 4 + 8 + 16));
}
