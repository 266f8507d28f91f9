//! One table: every optimizer with every rule on a small task. A new optimizer or rule joins with
//! one line. `cargo test --release --test convergence -- --nocapture` prints the table.

use std::path::Path;
use std::sync::Mutex;

use batchlab::config::{self, Split, TrialConfig};
use batchlab::data::{self, Data};
use batchlab::model::Registry;
use batchlab::objective::Objective;
use batchlab::train::{Pool, Session};

/// Name, `[optimizer]` and a base rate that suits a global batch of 8. The rates of LARS also move its
/// biases, which have no ratio, so they are those of momentum, and the trust coefficient is larger.
const OPTIMIZERS: [(&str, &str, f64); 9] = [
    ("sgd", "\"sgd\"", 0.1),
    ("momentum", "\"momentum\"", 0.02),
    (
        "momentum, rate inside",
        "{momentum={form=\"inside\"}}",
        0.02,
    ),
    ("nesterov", "\"nesterov\"", 0.02),
    ("adamw", "\"adamw\"", 0.003),
    ("lars", "{lars={trust_coefficient=0.1}}", 0.02),
    (
        "lars, LARC",
        "{lars={trust_coefficient=0.02, clip=true}}",
        0.02,
    ),
    ("lamb", "\"lamb\"", 0.01),
    ("lion", "\"lion\"", 0.001),
];

/// Name, and what it sets. Rules of momentum are left out for optimizers that have none,
/// and CABS where steps are not the rate times the gradient.
const RULES: [(&str, &[&str]); 32] = [
    ("plain", &[]),
    ("scaling sqrt", &["learning_rate.scaling=\"sqrt\""]),
    ("scaling linear", &["learning_rate.scaling=\"linear\""]),
    (
        "scaling power",
        &["learning_rate.scaling={power={exponent=0.75}}"],
    ),
    (
        "scaling saturating",
        &["learning_rate.scaling={saturating={noise_scale=20}}"],
    ),
    (
        "scaling adascale",
        &["learning_rate.scaling=\"adascale\"", "train.steps=1200"],
    ),
    (
        "warm-up gradual",
        &["learning_rate.warmup={epochs=2}", LINEAR],
    ),
    (
        "warm-up constant",
        &[
            "learning_rate.warmup={shape=\"constant\", steps=30}",
            LINEAR,
        ],
    ),
    (
        "warm-up exponential",
        &[
            "learning_rate.warmup={shape=\"exponential\", examples=900}",
            LINEAR,
        ],
    ),
    (
        "warm-up legw",
        &[
            "learning_rate.warmup={shape=\"legw\", epochs=1}",
            "learning_rate.scaling=\"sqrt\"",
        ],
    ),
    (
        "decay step",
        &["learning_rate.decay={step={epochs=[10, 13]}}"],
    ),
    ("decay cosine", &["learning_rate.decay=\"cosine\""]),
    ("decay linear", &["learning_rate.decay=\"linear\""]),
    ("decay polynomial", &["learning_rate.decay=\"polynomial\""]),
    (
        "decay exponential",
        &["learning_rate.decay={exponential={factor=0.9}}"],
    ),
    (
        "decay inverse square root",
        &["learning_rate.decay={inverse-sqrt={timescale_epochs=5}}"],
    ),
    (
        "warm-up, stable, decay",
        &[
            "learning_rate.decay=\"warmup-stable-decay\"",
            "learning_rate.warmup={epochs=1}",
        ],
    ),
    (
        "cyclic",
        &["learning_rate.decay={cyclic={period_epochs=5}}"],
    ),
    (
        "momentum step",
        &["momentum_schedule={step={epochs=[5], values=[0.8]}}"],
    ),
    (
        "momentum linear",
        &["momentum_schedule={linear={start=0.5, epochs=5}}"],
    ),
    ("momentum sutskever", &["momentum_schedule=\"sutskever\""]),
    (
        "batch schedule",
        &["batch.controller={schedule={stages=[[5, 64], [10, 128]]}}"],
    ),
    (
        "smith",
        &["batch.controller={smith={epochs=[9, 12], factor=2}}"],
    ),
    (
        "absa",
        &["batch.controller={absa={patience_epochs=6, curvature_examples=128}}"],
    ),
    ("cabs", &["batch.controller=\"cabs\"", "batch.min_batch=8"]),
    (
        "norm test",
        &[
            "batch.controller={norm-test={theta=1}}",
            "batch.max_batch=128",
        ],
    ),
    (
        "inner-product test",
        &[
            "batch.controller=\"inner-product-test\"",
            "batch.max_batch=128",
        ],
    ),
    (
        "noise scale",
        &[
            "batch.controller={noise-scale={exchange_rate=50, curvature_examples=64}}",
            "batch.max_batch=128",
        ],
    ),
    (
        "simple noise scale",
        &[
            "batch.controller=\"simple-noise-scale\"",
            "batch.max_batch=128",
        ],
    ),
    ("clipping", &["train.clip_norm=1"]),
    ("ema of weights", &["train.averaging={ema={decay=0.95}}"]),
    ("swa", &["train.averaging={swa={start_epoch=10}}"]),
];

const LINEAR: &str = "learning_rate.scaling=\"linear\"";

/// Training accuracy that every combination reaches. Guessing gives 0.1, and an update that points the
/// wrong way or hardly moves stays near it; most reach 0.98, and the least are those whose batch
/// grows and leaves few updates in 15 epochs.
const ENOUGH: f64 = 0.8;

const TASK: &str = r#"
    [data]
    source = "digits"
    subset = 600
    [model.mlp]
    widths = [24]
    [train]
    workers = 2
    global_batch = 16
    epochs = 15
    [learning_rate]
    base_batch = 8
"#;

fn accuracy(config: &TrialConfig, data: &Data) -> f64 {
    let model = Registry::new().build(config, data).unwrap();
    let (objective, curvature): (&dyn Objective<f32>, &dyn Objective<f64>) = (&*model, &*model);
    Pool::with(1, |pool| {
        let session = Session::new(config, data, objective, pool).unwrap();
        let mut session = session.with_curvature(curvature);
        while !session.is_over() {
            session.step().unwrap();
        }
        let statistics = session.statistics().unwrap();
        let evaluation = session.evaluate(Split::Train, &statistics).unwrap();
        evaluation.unwrap().accuracy.unwrap()
    })
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "the table is for who runs it with --nocapture"
)]
fn every_optimizer_learns_under_every_rule() {
    let mut runs = Vec::new();
    for (column, (_, optimizer, base_lr)) in OPTIMIZERS.iter().enumerate() {
        for (row, (rule, lines)) in RULES.iter().enumerate() {
            let mut set = vec![
                format!("optimizer={optimizer}"),
                format!("learning_rate.base_lr={base_lr}"),
            ];
            set.extend(lines.iter().map(|&line| line.to_owned()));
            let study = config::parse(TASK, "convergence.toml", &set);
            match study {
                Ok(study) => runs.push((row, column, study.trials[0].config.clone())),
                Err(error) if rule.starts_with("momentum") => {
                    assert!(error.to_string().contains("has no momentum"), "{error}");
                }
                Err(error) if *rule == "cabs" => {
                    assert!(
                        error.to_string().contains("is derived for steps"),
                        "{error}"
                    );
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    let data = data::load(&runs[0].2.data, Path::new("data")).unwrap();
    let table = Mutex::new(vec![vec![None; OPTIMIZERS.len()]; RULES.len()]);
    let next = Mutex::new(runs.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((row, column, config)) = next.lock().unwrap().next() else {
                        break;
                    };
                    let reached = accuracy(config, &data);
                    table.lock().unwrap()[*row][*column] = Some(reached);
                }
            });
        }
    });
    let table = table.into_inner().unwrap();
    println!("training accuracy in %\n{:28}", "");
    for (column, (name, ..)) in OPTIMIZERS.iter().enumerate() {
        println!("{:28}{}: {name}", "", column + 1);
    }
    let mut short = Vec::new();
    for ((rule, _), cells) in RULES.iter().zip(&table) {
        let texts = cells.iter().map(|cell| match cell {
            Some(accuracy) => format!("{:7.1}", 100.0 * accuracy),
            None => format!("{:>7}", "-"),
        });
        println!("{rule:28}{}", texts.collect::<String>());
        for (cell, (optimizer, ..)) in cells.iter().zip(&OPTIMIZERS) {
            if cell.is_some_and(|accuracy| accuracy < ENOUGH) {
                short.push(format!(
                    "{optimizer} with {rule}: {:.3}",
                    cell.unwrap_or(0.0)
                ));
            }
        }
    }
    assert!(short.is_empty(), "below {ENOUGH}:\n{}", short.join("\n"));
}
