//! A study of the critical batch size through the program: resumed, shared, stopped early, unreachable.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use batchlab::analysis::critical_batch::{CriticalBatch, TriedEnd, critical_batch, from_csv};
use batchlab::rng::Stream;

/// Digits, five batches, both of the cheaper ways.
const STUDY: &str = r#"
name = "critical"
seeds = 2

[data]
source = "digits"
validation_fraction = 0.2

[model.mlp]
widths = [16]

[train]
workers = 2
checkpoint_seconds = 0.02

[train.target]
split = "validation"
metric = "loss"
value = 0.5

[optimizer]
sgd = {}

[learning_rate]
base_lr = 0.2

[critical_batch]
batches = [8, 32, 128, 512]
budget_epochs = 20
budget_steps = 200

[critical_batch.noise]
batch = 32
every_steps = 2
examples = 1024

[critical_batch.branched]
moments = [0.5, 1.0]
factors = [1, 4, 16]
"#;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_batchlab"))
}

fn start(config: &Path, results: &Path, more: &[&str]) -> Child {
    program()
        .args(["critical-batch", "--quiet", "--results"])
        .args([results, config])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {message}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn run(folder: &Path, text: &str, more: &[&str]) -> (PathBuf, String) {
    let config = folder.join("study.toml");
    std::fs::write(&config, text).unwrap();
    let results = folder.join("results");
    let told = finish(start(&config, &results, more));
    (results.join("critical"), told)
}

/// Every file below a folder by relative path, without those that hold times. The report says seconds.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let timed = ["manifest.json", "timings.csv", "report.html"];
            if path.is_dir() {
                left.push(path);
            } else if !timed.iter().any(|name| path.ends_with(name)) {
                let name = path.strip_prefix(folder).unwrap().to_path_buf();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn assert_same(found: &Path, expected: &BTreeMap<PathBuf, Vec<u8>>) {
    let found = files(found);
    let names: Vec<_> = found.keys().collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{} differs", name.display());
    }
}

fn read(folder: &Path) -> CriticalBatch {
    critical_batch(folder).unwrap()
}

#[test]
fn a_killed_study_ends_with_the_bytes_of_an_undisturbed_one_also_where_two_share_it() {
    let folder = tempfile::tempdir().unwrap();
    let (undisturbed, told) = run(folder.path(), STUDY, &["--threads", "1"]);
    assert!(told.contains("report: "), "{told}");
    let expected = files(&undisturbed);
    let config = folder.path().join("study.toml");
    let killed = folder.path().join("killed");
    let mut stream = Stream::new(3, "kill", 0);
    let mut unfinished = 0;
    for _ in 0..12 {
        let mut child = start(&config, &killed, &["--jobs", "2"]);
        std::thread::sleep(Duration::from_millis(30 + stream.below(400)));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = critical_batch(&killed.join("critical"));
        unfinished += usize::from(found.is_ok_and(|found| found.unfinished.is_some()));
    }
    assert!(unfinished > 0);
    finish(start(&config, &killed, &["--jobs", "3"]));
    assert_same(&killed.join("critical"), &expected);

    let shared = folder.path().join("shared");
    let children: Vec<Child> = ["1/2", "2/2"]
        .iter()
        .map(|shard| start(&config, &shared, &["--jobs", "1", "--shard", shard]))
        .collect();
    for child in children {
        finish(child);
    }
    assert_same(&shared.join("critical"), &expected);
}

#[test]
fn stopping_trials_that_can_only_lose_changes_no_winner() {
    let (with, without) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stopped = read(&run(with.path(), STUDY, &[]).0);
    let off = ["--set", "critical_batch.early_stopping=false"];
    let full = read(&run(without.path(), STUDY, &off).0);
    let overtaken = |found: &CriticalBatch| {
        let seeds = found.cases[0].batches.iter().flat_map(|b| &b.seeds);
        let tried = seeds.flat_map(|seed| &seed.tried);
        tried.filter(|t| t.end == TriedEnd::Overtaken).count()
    };
    assert!(overtaken(&stopped) > 0);
    assert_eq!(overtaken(&full), 0);
    for (a, b) in stopped.cases[0].batches.iter().zip(&full.cases[0].batches) {
        for (a, b) in a.seeds.iter().zip(&b.seeds) {
            assert_eq!((a.rate, a.steps, a.edge), (b.rate, b.steps, b.edge));
            let rates = |seed: &batchlab::analysis::critical_batch::SeedPoint| -> Vec<f64> {
                seed.tried.iter().map(|t| t.rate).collect()
            };
            assert_eq!(rates(a), rates(b));
        }
    }
    assert_eq!(stopped.cases[0].fit, full.cases[0].fit);
}

/// A branch starts from the checkpoint of the trunk; made from its own first update it ends alike.
#[test]
fn a_branch_ends_in_the_bits_of_a_run_that_made_all_updates_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (study, _) = run(folder.path(), STUDY, &[]);
    let plan: serde_json::Value =
        serde_json::from_slice(&std::fs::read(study.join("study.json")).unwrap()).unwrap();
    let branches: Vec<&str> = plan["trials"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|trial| trial["point"]["role"] == "branch" && trial["seed"] == 1)
        .map(|trial| trial["id"].as_str().unwrap())
        .collect();
    assert_eq!(branches.len(), 2 * 3);
    for id in branches {
        let branch = study.join("trials").join(id);
        let config = branch.join("config.toml");
        let alone = folder.path().join(format!("alone-{id}"));
        let output = program()
            .args(["run", "--quiet", "--results"])
            .args([&alone, &config])
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        let trials = alone.join(format!("trial-{id}/trials"));
        let own = std::fs::read_dir(trials).unwrap().next().unwrap().unwrap();
        let own = own.path();
        assert_eq!(own.file_name().unwrap().to_str(), Some(id));
        for file in [
            "steps.csv",
            "evaluations.csv",
            "batch.csv",
            "model.safetensors",
        ] {
            let bytes = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
            assert!(bytes(&own) == bytes(&branch), "{id}: {file} differs");
        }
    }
}

#[test]
fn every_way_gives_a_number_with_its_cost() {
    let folder = tempfile::tempdir().unwrap();
    let (study, told) = run(folder.path(), STUDY, &[]);
    let found = read(&study);
    assert_eq!(found.unfinished, None);
    let case = &found.cases[0];
    let fit = case.fit.as_ref().unwrap();
    assert!(fit.intervals.is_some());
    let quantities: Vec<&str> = case.estimates.iter().map(|e| e.quantity).collect();
    for quantity in ["b_crit", "b_simple", "b_noise", "branched"] {
        assert!(quantities.contains(&quantity), "{quantity}: {quantities:?}");
    }
    let sweep = case.estimates[0].cost.unwrap();
    assert!(sweep.examples > 0 && sweep.seconds.is_some_and(|s| s > 0.0));
    let noise = case.noise.as_ref().unwrap();
    assert_eq!(noise.batch, 32);
    assert!(!noise.course.is_empty());
    assert_eq!(noise.summary.len(), 3);
    assert_eq!(case.branched.len(), 2);
    assert!(
        case.branched
            .iter()
            .all(|moment| moment.branches.len() == 3)
    );
    assert!(told.contains("B_crit"), "{told}");
    // The report again, from the tables alone.
    let again = program().arg("report").arg(&study).output().unwrap();
    assert!(again.status.success());
    assert_eq!(String::from_utf8(again.stdout).unwrap(), told);
}

fn without_extras() -> String {
    STUDY
        .split("[critical_batch.noise]")
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn a_target_that_no_trial_reaches_is_an_answer_that_says_what_was_reached() {
    let folder = tempfile::tempdir().unwrap();
    let text = without_extras().replace("value = 0.5", "value = 0.0001");
    let more = [
        "--set",
        "critical_batch.budget_epochs=1",
        "--set",
        "critical_batch.budget_steps=5",
    ];
    let (study, told) = run(folder.path(), &text, &more);
    let found = read(&study);
    assert!(found.cases[0].fit.is_err());
    let best = found.cases[0].batches.iter().flat_map(|b| &b.seeds);
    let best = best.flat_map(|seed| &seed.tried).filter_map(|t| t.best);
    let best = best.fold(f64::INFINITY, f64::min);
    assert!(best > 0.0001 && best.is_finite());
    assert!(told.contains("no trial reached the target"), "{told}");
    assert!(study.join("report.html").exists());
    // The table it left says the same.
    let again = from_csv(&study.join("steps_to_target.csv")).unwrap();
    assert!(again.critical_batch.cases[0].fit.is_err());
}

#[test]
fn a_target_met_before_the_first_update_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let text = without_extras().replace("value = 0.5", "value = 50");
    let (study, told) = run(folder.path(), &text, &[]);
    assert!(read(&study).cases[0].fit.is_err());
    assert!(told.contains("before the first update"), "{told}");
}

fn refused(text: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("study.toml");
    std::fs::write(&config, text).unwrap();
    let Output { status, stderr, .. } = program()
        .args(["critical-batch", "--results"])
        .args([folder.path(), config.as_path()])
        .output()
        .unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{message}");
    for part in expected {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
}

#[test]
fn what_does_not_go_with_a_search_is_refused_with_its_place() {
    let text = without_extras();
    refused(
        &text.replace(
            "[train.target]\nsplit = \"validation\"\nmetric = \"loss\"\nvalue = 0.5",
            "",
        ),
        &["train.target", "hint: add `[train.target]`"],
    );
    refused(
        &text.replace("workers = 2", "workers = 2\nepochs = 3"),
        &["study.toml:", "train.epochs", "sets it for every trial"],
    );
    refused(
        &text.replace(
            "base_lr = 0.2",
            "base_lr = 0.2\nscaling = \"linear\"\nbase_batch = 32",
        ),
        &["learning_rate.scaling", "no rule may move it"],
    );
    refused(
        &text.replace("batches = [8, 32, 128, 512]", "batches = [32, 8]"),
        &["critical_batch.batches", "each larger"],
    );
    refused(
        &text.replace("batches = [8, 32, 128, 512]", "batches = { log2 = [8, 9] }"),
        &["critical_batch.batches", "9 is not a power of two"],
    );
    refused(
        &format!("{text}\n[sweep]\n\"train.global_batch\" = [1, 2]\n"),
        &["`train.global_batch` is searched"],
    );
    refused(
        &format!("{text}\n[critical_batch.noise]\nbatch = 9\n"),
        &["critical_batch.noise.batch", "9 is not one of"],
    );
    refused(
        &text.replace("workers = 2", "workers = 3"),
        &[
            "critical_batch.batches",
            "8 is not divisible by the 3 workers",
        ],
    );
    refused(
        &text.replace("batches = [8, 32, 128, 512]", "batches = [8, 4096]"),
        &["global_batch", "4096"],
    );
    refused(
        &format!("{text}\n[probes.hessian]\n"),
        &["`probes`", "[critical_batch.noise]"],
    );
    refused(
        &format!("{text}\n[critical_batch.search]\n\"train.target.value\" = [0.4, 0.5]\n"),
        &["critical_batch.search", "sets the task"],
    );
    refused(
        &text.replace("[critical_batch]", "[critical_bach]"),
        &["critical_bach", "critical_batch"],
    );
}

#[test]
fn run_and_critical_batch_point_at_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("study.toml");
    std::fs::write(&config, STUDY).unwrap();
    let output = program().arg("run").arg(&config).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("batchlab critical-batch"));
    let text = STUDY.split("[critical_batch]").next().unwrap();
    let plain = text.replace("workers = 2", "workers = 2\nglobal_batch = 8\nepochs = 1");
    refused(&plain, &["no [critical_batch]"]);
}

#[test]
fn a_table_from_elsewhere_gives_the_published_fits() {
    let folder = tempfile::tempdir().unwrap();
    let rows = include_str!("reference/zhang2024.csv").replace("model,batch", "case,batch");
    let table = folder.path().join("steps.csv");
    std::fs::write(&table, rows).unwrap();
    let read = from_csv(&table).unwrap();
    let fit = |label: &str| {
        let cases = &read.critical_batch.cases;
        let case = cases
            .iter()
            .find(|case| case.label.contains(label))
            .unwrap();
        case.fit.as_ref().unwrap().fit
    };
    // Least squares in the logarithm on the published points.
    for (label, b_crit, s_min) in [
        ("85M", 2241.0, 1265.0),
        ("151M", 3304.0, 1710.0),
        ("604M", 7913.0, 2458.0),
    ] {
        let found = fit(label);
        assert!(
            (found.b_crit / b_crit - 1.0).abs() < 0.01,
            "{label}: {found:?}"
        );
        assert!(
            (found.s_min / s_min - 1.0).abs() < 0.01,
            "{label}: {found:?}"
        );
    }
    let out = folder.path().join("report");
    let output = program()
        .arg("critical-batch")
        .arg("--from-csv")
        .arg(&table)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("B_crit"));
    assert!(out.join("report.html").exists());
}

/// The noisy quadratic through the training loop and the search, against an independent simulation of
/// the same search by numpy (tests/reference/noisy_sweep.py) at every batch, and against the closed form
/// of the expected loss, from the same starts, where noise hardly moves the loss.
#[test]
fn the_noisy_quadratic_simulated_agrees_with_its_closed_form() {
    let reference: serde_json::Value =
        serde_json::from_str(include_str!("reference/noisy_sweep.json")).unwrap();
    simulated_quadratic(&reference, &reference, 0.0);
    let preconditioned = &reference["preconditioned"];
    simulated_quadratic(&reference, preconditioned, 0.5);
}

/// One study of it, descent preconditioned by the Hessian to a power. `settings` are those of the
/// reference, `reference` its values.
fn simulated_quadratic(settings: &serde_json::Value, reference: &serde_json::Value, power: f64) {
    use batchlab::math::steps_fit::{StepsSample, fit_steps};
    use batchlab::objective::{NoisyQuadratic as Quadratic, Objective};
    use batchlab::theory::noisy_quadratic::{Descent, NoisyQuadratic};

    const DIMENSION: usize = 400;
    const SEEDS: u64 = 6;
    let target = reference["target"].as_f64().unwrap();
    let text = format!(
        r#"
name = "critical"
seeds = {SEEDS}
[model.noisy-quadratic]
preconditioner_power = {power}
[data.source.noisy-quadratic]
dimension = {DIMENSION}
examples = 1000
[train]
workers = 1
precision = "f64"
[train.target]
split = "train"
metric = "loss"
value = {target}
[train.evaluate]
every_steps = 1
[optimizer]
sgd = {{}}
[learning_rate]
base_lr = 0.5
[critical_batch]
batches = [2, 8, 32, 128, 512]
budget_epochs = 1
budget_steps = 2000
rate_factor = 1.3
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let (study, _) = run(folder.path(), &text, &["--threads", "1"]);
    let found = read(&study);
    let case = &found.cases[0];
    let fit = case.fit.as_ref().unwrap();
    let ends = fit.intervals.as_ref().unwrap();

    let objective = Quadratic::new(DIMENSION, 0);
    let descent = Descent::preconditioned(power);
    let mut samples = Vec::new();
    for seed in 0..SEEDS {
        let start: Vec<f64> = objective.initial(seed);
        let quadratic = NoisyQuadratic::of_training(&start);
        for point in &case.batches {
            let batch = point.batch as f64;
            let best = quadratic.optimum(target, descent, batch).unwrap();
            samples.push(StepsSample {
                batch,
                steps: best.time,
                reached: true,
                seed,
            });
        }
    }
    let exact = fit_steps(&samples).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    assert_eq!(number(&settings["dimension"]), DIMENSION as f64);
    for (i, point) in case.batches.iter().enumerate() {
        assert_eq!(point.batch as f64, number(&settings["batches"][i]));
        let own = samples.iter().filter(|s| s.batch == point.batch as f64);
        let logs: Vec<f64> = own.map(|s| s.steps.ln()).collect();
        let closed = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        let numpy = number(&reference["log_steps"][i]).exp();
        let steps = point.steps.unwrap();
        let ends = steps.interval.unwrap();
        // Ten comparisons: of 95 % intervals one would miss by chance in four runs of ten. A deviation
        // of 3.5 standard errors comes once in 2,000.
        let error = number(&reference["deviations"][i]) / (SEEDS as f64).sqrt();
        let off = (steps.value / numpy).ln() / error;
        assert!(
            off.abs() < 3.5,
            "power {power}, batch {}: {steps:?} {numpy}",
            point.batch
        );
        // Noise lets a single run cross the target before the expectation does; preconditioned, it
        // counts at all of these batches.
        if power == 0.0 && point.batch >= 128 {
            assert!(ends.contains(closed), "batch {}", point.batch);
        } else {
            assert!(
                steps.value < closed * (3.5 * error).exp(),
                "power {power}, batch {}: {steps:?} {closed}",
                point.batch
            );
        }
    }
    assert!(ends.b_crit.contains(number(&reference["b_crit"])));
    assert!(ends.s_min.contains(number(&reference["s_min"])));
    if power == 0.0 {
        assert!(ends.s_min.contains(exact.s_min));
    }
}
