//! The program as a user runs it: what a study leaves, what is run again, what is said when
//! something is wrong. Each test runs the real binary in a folder of its own.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const STUDY: &str = r#"
name = "small"
seeds = 2

[data]
source = "digits"

[model.mlp]
widths = [8]

[train]
epochs = 1

[learning_rate]
base_lr = 0.05

[sweep]
"train.global_batch" = [64, 256]
"#;

/// A study file in a folder of its own, with `results/` beside it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(study: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        place.write(study);
        place
    }

    fn write(&self, study: &str) {
        fs::write(self.path("study.toml"), study).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn study(&self) -> PathBuf {
        self.path("results/small")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_batchlab"));
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    /// `batchlab` with these arguments.
    fn call(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// `batchlab run study.toml` with these arguments, which must end well.
    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.call(&[&["run", "study.toml"], arguments].concat());
        assert_eq!(code(&output), 0, "{}", said(&output));
        output
    }

    /// What `batchlab run study.toml` says against it.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.call(&[&["run", "study.toml"], arguments].concat());
        assert_ne!(code(&output), 0);
        let said = said(&output);
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// The folders of the trials in `results/small`.
    fn trials(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.study().join("trials")).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.is_dir());
        paths.sort();
        paths
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file below a folder by relative path, without those that hold times.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if !path.ends_with("manifest.json") && !path.ends_with("timings.csv") {
                let name = path.strip_prefix(folder).unwrap().to_path_buf();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn assert_same(found: &BTreeMap<PathBuf, Vec<u8>>, expected: &BTreeMap<PathBuf, Vec<u8>>) {
    let names: Vec<_> = found.keys().collect();
    assert_eq!(names, expected.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{} differs", name.display());
    }
}

/// Waits until something holds, for at most ten seconds.
fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_study_run_again_does_nothing() {
    let place = Place::new(STUDY);
    place.run(&[]);
    let stamps = |name: &str| fs::metadata(place.study().join(name)).unwrap().modified();
    let before = (files(&place.study()), stamps("report.html").unwrap());
    let again = place.run(&[]);
    assert!(said(&again).contains("ran 0 trials"), "{}", said(&again));
    assert!(shown(&again).contains("report: results/small/report.html"));
    assert_same(&files(&place.study()), &before.0);
    assert_eq!(
        stamps("report.html").unwrap(),
        before.1,
        "it was written again"
    );
}

#[test]
fn a_deleted_trial_is_run_again_to_the_same_bytes() {
    let place = Place::new(STUDY);
    place.run(&[]);
    let expected = files(&place.study());
    fs::remove_dir_all(&place.trials()[1]).unwrap();
    let status = place.call(&["status", "results/small"]);
    assert!(
        shown(&status).contains("3 completed, 1 pending"),
        "{}",
        shown(&status)
    );
    let again = place.run(&[]);
    assert!(said(&again).contains("ran 1 trial "), "{}", said(&again));
    assert_same(&files(&place.study()), &expected);
}

#[test]
fn whatever_a_trial_left_a_damaged_file_of_it_is_found_and_made_again() {
    let place = Place::new(STUDY);
    place.run(&[]);
    let expected = files(&place.study());
    let trial = place.trials().remove(0);
    let names = [
        "result.json",
        "steps.csv",
        "evaluations.csv",
        "model.safetensors",
        "checkpoint.safetensors",
    ];
    for name in names {
        let path = trial.join(name);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        for damaged in [&whole[..whole.len() / 2], &flipped] {
            fs::write(&path, damaged).unwrap();
            let again = place.run(&[]);
            assert!(
                said(&again).contains("ran 1 trial "),
                "{name}: {}",
                said(&again)
            );
            assert_same(&files(&place.study()), &expected);
        }
    }
}

#[test]
fn a_value_added_to_an_axis_runs_its_trials_only() {
    let place = Place::new(STUDY);
    place.run(&[]);
    place.write(&STUDY.replace("[64, 256]", "[64, 128, 256]"));
    let more = place.run(&[]);
    assert!(said(&more).contains("ran 2 trials "), "{}", said(&more));
    assert_eq!(place.trials().len(), 6);

    let whole = Place::new(&STUDY.replace("[64, 256]", "[64, 128, 256]"));
    whole.run(&[]);
    assert_same(&files(&place.study()), &files(&whole.study()));
}

#[test]
fn failed_trials_are_kept_and_run_again_on_request() {
    let place = Place::new(STUDY);
    place.run(&[]);
    let expected = files(&place.study());
    let result = place.trials()[0].join("result.json");
    let trial = place.trials()[0]
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let failed = format!(
        r#"{{"trial": "{trial}", "status": "failed", "message": "the roof leaks",
            "steps": 0, "examples": 0, "epochs": 0.0, "evaluation": {{}}, "target": null}}"#
    );
    fs::write(result, failed).unwrap();

    let kept = place.call(&["run", "study.toml", "--quiet"]);
    assert_eq!(code(&kept), 1);
    assert!(
        said(&kept).contains("failed, the roof leaks"),
        "{}",
        said(&kept)
    );
    assert!(said(&kept).contains("--retry-failed"));

    place.run(&["--retry-failed"]);
    assert_same(&files(&place.study()), &expected);
}

#[test]
fn shards_make_what_one_run_makes() {
    let whole = Place::new(STUDY);
    whole.run(&[]);
    let parts = Place::new(STUDY);
    let first = parts.run(&["--shard", "1/2", "--quiet"]);
    assert_eq!(shown(&first), "", "half a study has no report");
    assert!(!parts.study().join("report.html").exists());
    parts.run(&["--shard", "2/2"]);
    assert_same(&files(&parts.study()), &files(&whole.study()));
}

#[test]
fn an_index_takes_one_trial() {
    let place = Place::new(STUDY);
    place.run(&["--index", "3"]);
    assert_eq!(place.trials().len(), 1);
    let beyond = place.call(&["run", "study.toml", "--index", "4"]);
    assert_eq!(code(&beyond), 2);
    assert!(
        said(&beyond).contains("with indices 0 to 3"),
        "{}",
        said(&beyond)
    );
    for shard in ["0/2", "3/2", "2", "a/b"] {
        assert_eq!(
            code(&place.call(&["run", "study.toml", "--shard", shard])),
            2
        );
    }
}

/// A plan, say, has its report there.
#[test]
fn a_folder_with_the_report_of_something_else_is_not_taken() {
    let place = Place::new(STUDY);
    fs::create_dir_all(place.study()).unwrap();
    fs::write(place.study().join("report.html"), "a plan").unwrap();
    let told = place.refused(&[]);
    assert!(told.starts_with("error: results/small: "), "{told}");
    assert!(told.contains("hint: choose another folder"), "{told}");
    let files = fs::read_dir(place.study()).unwrap().count();
    assert_eq!(files, 1);
    assert_eq!(
        fs::read(place.study().join("report.html")).unwrap(),
        b"a plan"
    );
}

#[test]
fn a_dry_run_shows_the_trials_and_writes_nothing() {
    let place = Place::new(STUDY);
    let dry = place.run(&["--dry-run"]);
    let text = shown(&dry);
    for part in [
        "256 = 1 worker x 256",
        "0.05 (no scaling)",
        "4 trials, 0 done, 4 to run",
        "estimated time: about",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!place.path("results").exists());
}

#[test]
fn set_changes_a_key_of_the_file() {
    let place = Place::new(STUDY);
    let set = ["--set", "train.global_batch=32", "--set", "seeds=[7]"];
    place.run(&set);
    assert_eq!(place.trials().len(), 1);
    let config = fs::read_to_string(place.trials()[0].join("config.toml")).unwrap();
    assert!(
        config.contains("global_batch = 32") && config.contains("seeds = [7]"),
        "{config}"
    );
    let wrong = place.refused(&["--set", "train.epoch=2"]);
    assert!(
        wrong.contains("--set train.epoch=2: unknown key"),
        "{wrong}"
    );
    assert!(wrong.contains("hint: did you mean `epochs`?"), "{wrong}");
}

#[test]
fn the_report_is_made_again_from_the_tables_alone() {
    let place = Place::new(STUDY);
    place.run(&[]);
    let expected = files(&place.study());
    fs::remove_file(place.study().join("report.html")).unwrap();
    fs::remove_dir_all(place.study().join("figures")).unwrap();
    let mut kept = BTreeMap::new();
    for trial in place.trials() {
        for entry in fs::read_dir(trial).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().unwrap_or_default();
            if ending != "csv" && ending != "toml" {
                kept.insert(path.clone(), fs::read(&path).unwrap());
                fs::remove_file(path).unwrap();
            }
        }
    }
    let report = place.call(&["report", "results/small"]);
    assert_eq!(code(&report), 0, "{}", said(&report));
    assert!(shown(&report).ends_with("report: results/small/report.html\n"));
    for (path, bytes) in kept {
        fs::write(path, bytes).unwrap();
    }
    assert_same(&files(&place.study()), &expected);
}

#[test]
fn quiet_says_nothing_but_the_headline() {
    let place = Place::new(STUDY);
    let quiet = place.run(&["--quiet"]);
    assert_eq!(said(&quiet), "");
    assert!(shown(&quiet).contains("best mean test accuracy"));
}

/// A study that runs until it is stopped.
fn endless() -> Place {
    let long = STUDY.replace(
        "epochs = 1",
        "steps = 1_000_000_000\ncheckpoint_seconds = 0.05",
    );
    Place::new(&long.replace("[64, 256]", "[64]"))
}

fn begun(place: &Place) -> Child {
    let mut command = place.command(&["run", "study.toml"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for("checkpoint", || {
        place.study().join("trials").exists()
            && place
                .trials()
                .iter()
                .any(|t| t.join("checkpoint.safetensors").exists())
    });
    child
}

#[cfg(unix)]
#[test]
fn a_terminated_study_leaves_checkpoints_and_says_how_to_go_on() {
    let place = endless();
    let child = begun(&place);
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130);
    let told = said(&output);
    assert!(told.contains("stopped with 0 of 2 trials done"), "{told}");
    assert!(
        told.contains("the same command goes on from here"),
        "{told}"
    );
    let status = shown(&place.call(&["status", "results/small"]));
    assert!(
        status.contains("2 pending") && status.contains("pending, begun"),
        "{status}"
    );
    // With less to do it is another trial: what is left of these stays where it is.
    place.run(&["--set", "train.steps=3"]);
    assert_eq!(place.trials().len(), 4);
}

#[test]
fn a_trial_folder_removed_while_it_runs_is_an_error_and_no_result() {
    let place = endless();
    let child = begun(&place);
    fs::rename(place.study(), place.path("results/gone")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1);
    let told = said(&output);
    assert!(
        told.contains("error: ") && told.contains("cannot"),
        "{told}"
    );
    assert!(!told.contains("panicked"), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let place = Place::new(STUDY);
    place.run(&[]);
    let report = ["report", "results/small"];
    let full: [&[&str]; 5] = [
        &["run", "study.toml"],
        &["run", "study.toml", "--dry-run"],
        &["status", "results/small"],
        &report,
        &["config", "schema"],
    ];
    for arguments in full {
        let sink = File::options().write(true).open("/dev/full").unwrap();
        let output = place.command(arguments).stdout(sink).output().unwrap();
        assert_eq!(code(&output), 1, "{arguments:?}");
        let told = said(&output);
        assert!(
            told.contains("error: cannot write to standard output: "),
            "{told}"
        );
    }
    for arguments in full {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(arguments).stdout(writer).output().unwrap();
        assert_eq!(code(&output), 0, "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn what_only_the_data_or_the_model_can_refuse_is_said_with_its_line() {
    let place = Place::new(STUDY);
    let cases = [
        (
            "source = \"digits\"",
            "source = \"digits\"\nsubset = 99999",
            "study.toml:7: `data.subset`: ",
        ),
        (
            "epochs = 1",
            "epochs = 1\ndevice = \"cuba\"",
            "study.toml:13: `train.device`: ",
        ),
        (
            "[model.mlp]\nwidths = [8]",
            "[model.custom]\nname = \"x\"",
            "study.toml:9: `model.custom.name`: ",
        ),
        (
            "source = \"digits\"",
            "source.csv = { path = \"no.csv\", label = \"y\" }",
            "study.toml:6: `data.source`: cannot read no.csv",
        ),
        (
            "base_lr = 0.05",
            "base_lr = 0.05\nwarmup = { epochs = 0.5, shape = \"constant\", start_lr = 0 }",
            "study.toml:16: `learning_rate.warmup.start_lr`: ",
        ),
        (
            "[8]",
            "[1000000, 1000000]",
            "study.toml:8: `model`: the model has 1000076000010 parameters",
        ),
    ];
    for (from, to, message) in cases {
        place.write(&STUDY.replace(from, to));
        let told = place.refused(&[]);
        assert!(
            told.contains(message),
            "expected {message:?}, found {told:?}"
        );
    }
    assert!(!place.path("results").exists());
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let place = Place::new(STUDY);
    for option in ["--threads", "--jobs"] {
        for number in ["0", "100000", "-1", "x"] {
            let output = place.call(&["run", "study.toml", &format!("{option}={number}")]);
            assert_eq!(code(&output), 2, "{}", said(&output));
        }
    }
    let told = place.refused(&["--set", "train.threads=100000"]);
    assert!(told.contains("100000 threads are more than 1024"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_a_data_file_is_refused_without_waiting() {
    let place = Place::new(&STUDY.replace(
        "source = \"digits\"",
        "source.csv = { path = \"pipe\", label = \"y\" }",
    ));
    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    assert!(made.unwrap().success());
    let told = place.refused(&[]);
    assert!(told.contains("pipe is not a regular file"), "{told}");
}

#[test]
fn a_warm_up_as_long_as_the_run_is_accepted() {
    // 1,438 examples are 22.5 updates of 64: an epoch of warm-up ends within the 23rd.
    let place = Place::new(STUDY);
    place.run(&["--dry-run", "--set", "learning_rate.warmup.epochs=1"]);
    let told = place.refused(&["--set", "learning_rate.warmup.epochs=2"]);
    assert!(
        told.contains("the warm-up is longer than the run"),
        "{told}"
    );
}

#[test]
fn a_study_of_which_every_trial_diverged_says_so() {
    let place = Place::new(&STUDY.replace("0.05", "1e30"));
    let output = place.run(&[]);
    let headline = shown(&output);
    assert!(
        headline.starts_with("No trial came to its end"),
        "{headline}"
    );
    assert!(headline.contains("4 diverged"), "{headline}");
    assert_eq!(
        headline.lines().count(),
        2,
        "no table of nothing: {headline}"
    );
}

#[test]
fn keys_that_change_no_result_are_no_axes() {
    let text = STUDY
        .replace("epochs = 1", "epochs = 1\nglobal_batch = 64")
        .replace(
            "\"train.global_batch\" = [64, 256]",
            "\"train.threads\" = [1, 2]",
        );
    let place = Place::new(&text);
    let told = place.refused(&[]);
    assert!(
        told.contains("hint: `train.threads` never changes a result"),
        "{told}"
    );
    place.write(&text.replace(
        "train.threads\" = [1, 2]",
        "train.checkpoint_seconds\" = [-1]",
    ));
    let told = place.refused(&[]);
    assert!(
        told.contains("`train.checkpoint_seconds`: -1 is negative or not finite"),
        "{told}"
    );
}

/// Permissions hold for everyone but root, and tests may run as root: a folder stands for the
/// file that cannot be read or written.
#[test]
fn a_folder_in_place_of_a_file_is_named_with_what_to_do() {
    let place = Place::new(STUDY);
    place.run(&[]);
    for name in ["summary.csv", "study.json", "report.html", "config.toml"] {
        let path = place.study().join(name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let told = place.refused(&[]);
        assert!(told.contains(&format!("{name}: Is a directory")), "{told}");
        assert!(
            told.contains("hint: a folder stands where a file is needed"),
            "{told}"
        );
        fs::remove_dir(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn status_and_report_of_a_folder_that_is_no_study_say_so() {
    let place = Place::new(STUDY);
    place.run(&["--index", "0"]);
    for command in ["status", "report"] {
        let output = place.call(&[command, "results"]);
        assert_eq!(code(&output), 1);
        let told = said(&output);
        assert!(
            told.contains("hint: studies in it: results/small"),
            "{told}"
        );
        let output = place.call(&[command, "study.toml"]);
        assert_eq!(code(&output), 1);
        assert!(
            said(&output).contains("no study in study.toml"),
            "{}",
            said(&output)
        );
    }
}

/// Three controllers whose batches are known beforehand, with everything else that moves a rate.
/// The list's last batch does not fit into what is left of the run.
const PLANNED: &str = r#"
name = "small"
seeds = 1

[data]
source = "digits"
subset = 400

[model.mlp]
widths = [8]

[train]
workers = 2
global_batch = 16
epochs = 5

[learning_rate]
base_lr = 0.02
base_batch = 16
scaling = "linear"
warmup = { epochs = 1, start_lr = 0.001 }
decay = "cosine"

[momentum_schedule.linear]
start = 0.5
epochs = 1

[sweep]
"batch.controller" = [
  "constant",
  { schedule = { stages = [[1.5, 32], [4.8, 256]] } },
  { smith = { epochs = [2, 3, 4], factor = 4 } },
]
"train.epoch_end" = ["carry", "drop", "partial"]
"#;

/// The trials of `study.toml`, each with the lines of its steps.csv as cells.
fn steps_of(place: &Place) -> Vec<(batchlab::config::TrialSpec, Vec<Vec<String>>)> {
    let study = batchlab::config::load(&place.path("study.toml"), &[]).unwrap();
    let cells = |line: &str| line.split(',').map(str::to_owned).collect();
    let trials = study.trials.into_iter().map(|trial| {
        let path = place.study().join("trials").join(&trial.id);
        let text = fs::read_to_string(path.join("steps.csv")).unwrap();
        let rows = text.lines().skip(1).map(cells).collect();
        (trial, rows)
    });
    trials.collect()
}

#[test]
fn a_planned_run_makes_the_updates_of_its_plan() {
    let digits = |trial: &batchlab::config::TrialSpec| {
        batchlab::data::load(&trial.config.data, Path::new("data")).unwrap()
    };
    for (from, to) in [
        ("epochs = 5", "epochs = 5"),
        ("epochs = 5", "examples = 1999"),
        ("epochs = 5", "steps = 70"),
        (
            "[sweep]",
            "[batch]\ngrowth = \"workers\"\nmax_batch = 256\n[sweep]",
        ),
    ] {
        let place = Place::new(&PLANNED.replace(from, to));
        place.run(&["--quiet"]);
        for (trial, rows) in steps_of(&place) {
            let setup = batchlab::train::Setup::new(&trial.config, &digits(&trial)).unwrap();
            let planned: Vec<Vec<String>> = setup
                .planned(&trial.config)
                .map(|update| {
                    let momentum = update.momentum.map(|m| m.to_string());
                    vec![
                        update.step.to_string(),
                        update.epoch.to_string(),
                        update.examples.to_string(),
                        update.global_batch.to_string(),
                        update.lr.to_string(),
                        update.workers.to_string(),
                        momentum.unwrap_or_default(),
                    ]
                })
                .collect();
            let ran: Vec<Vec<String>> = rows
                .iter()
                // All but the loss.
                .map(|row| [&row[..5], &row[6..]].concat())
                .collect();
            assert_eq!(planned, ran, "{to}: {:?}", trial.point);
            assert_eq!(
                planned.len() as u64,
                setup.total_steps,
                "{to}: {:?}",
                trial.point
            );
        }
    }
}

#[test]
fn the_schedule_shown_is_that_of_the_run() {
    let place = Place::new(PLANNED);
    place.run(&["--quiet"]);
    for (trial, rows) in steps_of(&place) {
        let number = trial.index.to_string();
        let arguments = [
            "config",
            "show",
            "study.toml",
            "--schedule",
            "--trial",
            &number,
        ];
        let output = place.call(&arguments);
        assert_eq!(code(&output), 0, "{}", said(&output));
        let text = shown(&output);
        let table: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.starts_with("update"))
            .skip(1)
            .take_while(|line| !line.is_empty())
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!((8..=25).contains(&table.len()), "{text}");
        for cells in &table {
            let numbers: Vec<f64> = cells[..8].iter().map(|c| c.parse().unwrap()).collect();
            let row = &rows[numbers[0] as usize - 1];
            let ran = |column: usize| row[column].parse::<f64>().unwrap();
            let (batch, momentum) = (ran(3), ran(7));
            let noise = ran(4) * (400.0 / batch - 1.0) / (1.0 - momentum);
            let expected = [
                ran(0),
                ran(1),
                ran(2),
                batch,
                ran(6),
                ran(4),
                momentum,
                noise,
            ];
            // What is shown has six digits.
            let digits = |x: f64| format!("{x:.5e}").parse::<f64>().unwrap();
            assert_eq!(numbers, expected.map(digits), "{cells:?}");
        }
        let first: Vec<&str> = table.iter().map(|cells| cells[0]).collect();
        assert_eq!(first[0], "1");
        assert_eq!(first[first.len() - 1], rows.len().to_string());
        // Each move of the batch is there.
        let path = place
            .study()
            .join("trials")
            .join(&trial.id)
            .join("batch.csv");
        for line in fs::read_to_string(path).unwrap().lines().skip(1) {
            let made: u64 = line.split(',').next().unwrap().parse().unwrap();
            assert!(
                first.contains(&(made + 1).to_string().as_str()),
                "{line}: {text}"
            );
        }
    }
}

#[test]
fn a_schedule_needs_no_data_where_their_number_is_given() {
    let place =
        Place::new(&STUDY.replace("source = \"digits\"", "source = \"mnist\"\ndir = \"none\""));
    let schedule = ["config", "show", "study.toml", "--schedule"];
    let told = place.call(&schedule);
    assert_eq!(code(&told), 1);
    let told = said(&told);
    assert!(
        told.starts_with("error: study.toml:6: `data.source`: "),
        "{told}"
    );
    assert!(
        told.contains("hint: --examples N shows the schedule"),
        "{told}"
    );

    let with =
        |more: &[&str]| place.call(&[&schedule[..], &["--examples", "60000"], more].concat());
    let output = with(&["--plot", "plan.svg"]);
    assert_eq!(code(&output), 0, "{}", said(&output));
    let text = shown(&output);
    assert!(text.contains("N = 60,000 training examples"), "{text}");
    assert!(
        text.contains("trials 0 to 1, global_batch 64, seeds 0 to 1\n"),
        "{text}"
    );
    assert!(text.contains("figure: plan.svg"), "{text}");
    let figure = fs::read_to_string(place.path("plan.svg")).unwrap();
    for part in [
        "learning rate",
        "global batch",
        "noise scale",
        "global_batch 256",
    ] {
        assert!(figure.contains(part), "no {part:?}");
    }
    assert_eq!(code(&with(&["--plot", "plan.png", "--trial", "0"])), 0);
    assert!(
        fs::read(place.path("plan.png"))
            .unwrap()
            .starts_with(b"\x89PNG")
    );

    let wrong = with(&["--plot", "plan.pdf"]);
    assert_eq!(code(&wrong), 1);
    let told = said(&wrong);
    assert!(
        told.contains("plan.pdf: expected a name that ends in .svg or .png"),
        "{told}"
    );
    let wrong = with(&["--set", "train.global_batch=100000"]);
    assert_eq!(code(&wrong), 1);
    assert!(
        said(&wrong).contains("larger than the data"),
        "{}",
        said(&wrong)
    );
    for alone in [["--examples", "60000"], ["--plot", "plan.svg"]] {
        let wrong = place.call(&[&schedule[..3], &alone].concat());
        assert_eq!(code(&wrong), 2, "{}", said(&wrong));
    }
    assert!(!place.path("results").exists());
}

/// The scripts of `batchlab slurm` are sound shell, and say what was asked.
#[test]
fn batch_scripts_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("it's a study.toml");
    fs::write(&study, STUDY).unwrap();
    for (more, parts) in [
        (
            &[
                "--nodes",
                "4",
                "--ranks-per-node",
                "8",
                "--cores-per-rank",
                "2",
            ][..],
            &[
                "#SBATCH --nodes=4",
                "--ntasks-per-node=8",
                "mpirun -n 32",
                "--threads 2",
            ][..],
        ),
        (
            &[
                "--distribute",
                "trials",
                "--launcher",
                "srun",
                "--nodes",
                "2",
            ],
            &["srun --ntasks=2", "--distribute trials"],
        ),
        (
            &[
                "--distribute",
                "array",
                "--nodes",
                "2",
                "--time",
                "2-12:00:00",
            ],
            &[
                "--array=0-3%2",
                "--index \"$SLURM_ARRAY_TASK_ID\"",
                "--time=2-12:00:00",
            ],
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_batchlab"))
            .arg("slurm")
            .arg(&study)
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for part in parts {
            assert!(script.contains(part), "{part}\n{script}");
        }
        assert!(script.contains(r"it'\''s a study.toml'"), "{script}");
        let file = folder.path().join("script.sh");
        fs::write(&file, script).unwrap();
        let checked = Command::new("bash").arg("-n").arg(&file).status();
        assert!(checked.unwrap().success());
    }
    let refused = Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .arg("slurm")
        .arg(&study)
        .args(["--distribute", "array", "--launcher", "srun"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("error: --launcher: "), "{said}");
}
