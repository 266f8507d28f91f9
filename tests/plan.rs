//! `batchlab plan`: its answer, files and errors, through the program.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use batchlab::store::Table;
use tempfile::TempDir;

const PLAN: &str = r#"
description = "A test."
[steps]
s_min = 500
b_crit = 200
s_min_interval = [450, 550]
e_min_interval = [90000, 120000]
[model]
parameters = 1e6
layers = 12
activation_bytes = 4096
[device]
seconds_per_example = 1e-3
seconds_per_update = 2e-3
[cluster]
workers_per_node = 4
[cluster.inside]
latency = 2e-6
bandwidth = 1e11
[cluster.between]
latency = 3e-5
bandwidth = 1e9
seconds_per_byte_added = 1e-10
[plan]
up_to = 256
"#;

fn plan(folder: &Path, arguments: &[&str]) -> Output {
    fs::write(folder.join("plan.toml"), PLAN).unwrap();
    Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args(["plan", "plan.toml"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// What is printed, of a plan that succeeds.
fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = plan(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = plan(folder, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn table(path: &Path) -> Table {
    Table::read(path).unwrap_or_else(|error| panic!("{error}"))
}

fn numbers(table: &Table, column: &str) -> Vec<f64> {
    let numbers = table.numbers(column).unwrap();
    numbers.into_iter().map(|n| n.unwrap()).collect()
}

#[test]
fn a_plan_answers_in_words_and_writes_its_files() {
    let folder = folder();
    let text = printed(folder.path(), &[]);
    for part in [
        "plan: how many workers are worth it?",
        "The target is reached soonest on ",
        "takes half of an update or more on ",
        "the fastest number of workers is ",
        "time to target",
        "report: results/plan/report.html",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let out = folder.path().join("results/plan");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("How many workers are worth it?") && !page.contains("NaN"));
    for figure in ["time", "cost", "efficiency", "shares", "batch", "front"] {
        for ending in ["svg", "png"] {
            assert!(out.join(format!("figures/plan-{figure}.{ending}")).exists());
        }
    }
    assert!(!out.join("check.csv").exists());
}

#[test]
fn every_row_that_is_printed_is_in_the_table_and_none_contradicts_the_words() {
    let folder = folder();
    let text = printed(folder.path(), &[]);
    let head = text
        .lines()
        .position(|line| line.contains("time to target"));
    let rows = text.lines().skip(head.unwrap() + 1);
    let rows = rows.take_while(|line| !line.is_empty());
    let shown: Vec<f64> = rows
        .map(|row| {
            let number = row.split_whitespace().next().unwrap();
            number.replace(',', "").parse().unwrap()
        })
        .collect();
    assert!(shown.len() > 9, "{text}");
    let out = folder.path().join("results/plan");
    let all = table(&out.join("plan.csv"));
    let (workers, times) = (numbers(&all, "workers"), numbers(&all, "time"));
    let costs = numbers(&all, "cost");
    assert!(shown.iter().all(|p| workers.contains(p)), "{text}");
    // One way only: its rows are the best.
    let limit = 2.0 * times.iter().copied().fold(f64::INFINITY, f64::min);
    let of = |p: f64| workers.iter().position(|&other| other == p).unwrap();
    let patient = text.split("twice the shortest time, pays ").nth(1).unwrap();
    let patient = patient.split(" on ").nth(1).unwrap();
    let patient: f64 = patient.split_whitespace().next().unwrap().parse().unwrap();
    for &p in &shown {
        assert!(times[of(p)] > limit || costs[of(p)] >= costs[of(patient)]);
    }
}

/// T = S(B) (t0 + t1 B/p) where communication is free, at the best batch.
#[test]
fn without_communication_times_are_the_closed_form() {
    let folder = folder();
    let free = [
        "--set",
        "cluster.between.latency=0",
        "--set",
        "cluster.between.bandwidth=1e30",
        "--set",
        "cluster.between.seconds_per_byte_added=0",
        "--set",
        "cluster.workers_per_node=1",
        "--out",
        "free",
    ];
    printed(folder.path(), &free);
    let rows = table(&folder.path().join("free/plan.csv"));
    let (workers, times) = (numbers(&rows, "workers"), numbers(&rows, "time"));
    assert_eq!((workers[0], workers.last()), (1.0, Some(&256.0)));
    let (s, e, t0, t1) = (500.0_f64, 500.0 * 200.0, 2e-3, 1e-3);
    for (p, time) in workers.iter().zip(&times) {
        let best = ((s * t0).sqrt() + (e * t1 / p).sqrt()).powi(2);
        // Below one example a worker there is nothing to choose.
        let b = (200.0 * t0 / (p * t1)).sqrt();
        assert!(*time >= best * (1.0 - 1e-12), "{p}");
        assert!(
            b < 2.0 || *time <= best * 1.02,
            "{p}: {time} against {best}"
        );
    }
}

#[test]
fn the_front_holds_what_nothing_beats_and_intervals_hold_the_time() {
    let folder = folder();
    printed(
        folder.path(),
        &[
            "--set",
            "plan.strategies=[\"data\", \"pipeline-groups\"]",
            "--set",
            "collectives.algorithms=[\"ring\", \"rabenseifner\"]",
        ],
    );
    let out = folder.path().join("results/plan");
    let (all, front) = (table(&out.join("plan.csv")), table(&out.join("front.csv")));
    assert_eq!(all.columns(), front.columns());
    let (times, costs) = (numbers(&front, "time"), numbers(&front, "cost"));
    assert!(times.is_sorted_by(|a, b| a < b) && costs.is_sorted_by(|a, b| a > b));
    for (time, cost) in numbers(&all, "time").iter().zip(numbers(&all, "cost")) {
        let beaten = times
            .iter()
            .zip(&costs)
            .any(|(t, c)| t <= time && *c <= cost);
        assert!(beaten);
    }
    let (low, high) = (numbers(&all, "time_low"), numbers(&all, "time_high"));
    for ((time, low), high) in numbers(&all, "time").iter().zip(low).zip(high) {
        assert!(low < *time && *time < high);
    }
    let mut ways: Vec<String> = (0..all.len())
        .map(|row| {
            let cell = |column| all.texts(column).unwrap()[row].unwrap().to_owned();
            format!("{} {}", cell("strategy"), cell("algorithm"))
        })
        .collect();
    ways.dedup();
    let expected = [
        "data ring",
        "pipeline-groups ring",
        "data rabenseifner",
        "pipeline-groups rabenseifner",
    ];
    assert_eq!(ways, expected);
    let of = numbers(&all, "efficiency");
    let parts = numbers(&all, "efficiency_statistics");
    for ((all, a), b) in of
        .iter()
        .zip(parts)
        .zip(numbers(&all, "efficiency_machine"))
    {
        assert!((all - a * b).abs() < 1e-12);
    }
}

#[test]
fn the_same_plan_writes_the_same_bytes() {
    let folder = folder();
    for out in ["a", "b"] {
        printed(folder.path(), &["--out", out]);
    }
    for file in [
        "report.html",
        "plan.csv",
        "front.csv",
        "figures/plan-time.png",
    ] {
        let read = |out: &str| fs::read(folder.path().join(out).join(file)).unwrap();
        assert_eq!(read("a"), read("b"), "{file}");
    }
}

#[test]
fn the_law_comes_from_a_study_or_a_table() {
    let folder = folder();
    let law = |batch: f64| 300.0 * (1.0 + 400.0 / batch);
    let mut rows = String::from("batch,steps\n");
    for k in 3..12 {
        let batch = f64::from(1 << k);
        rows += &[batch, law(batch)].map(|n| n.to_string()).join(",");
        rows.push('\n');
    }
    fs::write(folder.path().join("steps.csv"), rows).unwrap();
    let fitted = printed(
        folder.path(),
        &["--set", "steps.csv=steps.csv", "--out", "csv"],
    );
    let given = ["--set", "steps.s_min=300", "--set", "steps.b_crit=400"];
    let without = [
        "steps.s_min_interval=[0, 1e9]",
        "steps.e_min_interval=[0, 1e9]",
    ];
    let given = [
        &given[..],
        &["--set", without[0], "--set", without[1], "--out", "given"],
    ]
    .concat();
    printed(folder.path(), &given);
    let times = |out: &str| numbers(&table(&folder.path().join(out).join("plan.csv")), "time");
    for (a, b) in times("csv").iter().zip(times("given")) {
        assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
    }
    assert!(
        fitted.contains("How sure this is cannot be told"),
        "{fitted}"
    );
    let made = Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args([
            "critical-batch",
            "--from-csv",
            "steps.csv",
            "--out",
            "study",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success());
    printed(
        folder.path(),
        &["--set", "steps.study=study", "--out", "again"],
    );
    assert_eq!(times("csv"), times("again"));
}

#[test]
fn measured_updates_stand_beside_their_prediction() {
    let folder = folder();
    let measured = "check.measured=[{workers = 1, batch = 64, seconds = 0.066}, {workers = 2, batch = 64, seconds = 0.04, interval = [0.03, 0.05]}]";
    let text = printed(folder.path(), &["--set", measured]);
    assert!(text.contains("the prediction is off by "), "{text}");
    let check = table(&folder.path().join("results/plan/check.csv"));
    // t0 + 64 t1 = 66 ms on one.
    assert!(numbers(&check, "error")[0].abs() < 1e-12);
    let (predicted, computing) = (numbers(&check, "predicted"), numbers(&check, "compute"));
    assert!((computing[1] - 0.034).abs() < 1e-12 && predicted[1] > computing[1]);
    assert!(
        folder
            .path()
            .join("results/plan/figures/plan-check.svg")
            .exists()
    );
    // Without measurements the files of an earlier check go.
    printed(folder.path(), &[]);
    assert!(!folder.path().join("results/plan/check.csv").exists());
    assert!(
        !folder
            .path()
            .join("results/plan/figures/plan-check.svg")
            .exists()
    );
}

#[test]
fn a_hundred_thousand_workers_with_every_strategy_have_an_answer() {
    let folder = folder();
    let all = "plan.strategies=[\"data\", \"features\", \"pipeline\", \"feature-groups\", \"pipeline-groups\"]";
    let text = printed(
        folder.path(),
        &[
            "--set",
            all,
            "--set",
            "plan.up_to=100000",
            "--set",
            "device.jitter.lognormal.cv=0.1",
        ],
    );
    assert!(text.contains("The fastest uses "), "{text}");
}

#[test]
fn the_model_of_a_study_is_counted_and_timed() {
    let folder = folder();
    let study = r#"
model = { mlp = { widths = [16] } }
[data]
source = "digits"
[train]
workers = 1
global_batch = 32
epochs = 1
[learning_rate]
base_lr = 0.1
"#;
    fs::write(folder.path().join("study.toml"), study).unwrap();
    let sets = [
        "model.study=study.toml",
        "device.measure=true",
        "device.measure_batches=[1, 16, 256]",
        "device.measure_seconds=0.05",
        "plan.up_to=8",
    ];
    let arguments: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    // What the file says of the model wins over what is counted.
    printed(folder.path(), &arguments);
    let page = fs::read_to_string(folder.path().join("results/plan/report.html")).unwrap();
    assert!(page.contains("measured on this machine: line through 3 batches"));
    let own = PLAN.replace(
        "parameters = 1e6\nlayers = 12\nactivation_bytes = 4096\n",
        "study = \"study.toml\"\n",
    );
    fs::write(folder.path().join("own.toml"), own).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args([
            "plan",
            "own.toml",
            "--out",
            "own",
            "--set",
            "plan.strategies=features",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let page = fs::read_to_string(folder.path().join("own/report.html")).unwrap();
    // 64 x 16 + 16 + 16 x 10 + 10; outputs of 16 and 10 numbers of 4 bytes.
    assert!(page.contains("1210") && page.contains("52"), "{page}");
    assert!(page.contains("counted in the model of study.toml"));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = folder();
    let study = r#"
model = { mlp = { widths = [4] } }
[data]
source = "mnist"
dir = "nowhere"
[train]
workers = 1
global_batch = 32
epochs = 1
[learning_rate]
base_lr = 0.1
"#;
    let columns = "workers,batch,seconds,low,high";
    let wide = format!("{columns}\n1,64,0.1,0.1,0.2\n2,64,0.1,0.5,0.01\n");
    let half = format!("{columns}\n1,64,0.1,0.05,\n");
    for (name, text) in [
        ("data.toml", study),
        ("wide.csv", wide.as_str()),
        ("half.csv", half.as_str()),
        ("steps.csv", "batch,steps\n8,1000\n64,300\n512,150\n"),
        ("taken", ""),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    for (set, expected) in [
        (
            "steps.study=nowhere",
            "`steps.study`: there is no nowhere/steps_to_target.csv",
        ),
        (
            "plan.up_to=0",
            "--set plan.up_to=0: `plan.up_to`: expected 1 to 100000 workers",
        ),
        (
            "plan.strategy=data",
            "unknown key `plan.strategy`\nhint: did you mean `strategies`?",
        ),
        (
            "device.memory_bytes=1",
            "--set device.memory_bytes=1: `device.memory_bytes`: expected at least 16000000, found 1: `plan.strategies` split",
        ),
        (
            "check.csv=nofile",
            "--set check.csv=nofile: `check.csv`: cannot read nofile",
        ),
        (
            "steps.csv=nofile.csv",
            "--set steps.csv=nofile.csv: `steps.csv`: cannot read nofile.csv",
        ),
        (
            "cluster.between.preset=infiniband",
            "did you mean `infiniband-100g`?",
        ),
        (
            "model.study=none.toml",
            "--set model.study=none.toml: `model.study`: none.toml: cannot read the study file",
        ),
        (
            "model.study=data.toml",
            "--set model.study=data.toml: `model.study`: data.toml: `mnist` is not in nowhere",
        ),
        (
            "check.csv=wide.csv",
            "`check.csv`: wide.csv, line 3: expected `low` to `high` around `seconds`, 0.1, found 0.5 to 0.01",
        ),
        (
            "check.csv=half.csv",
            "`check.csv`: half.csv, line 2: expected `low` to `high` around `seconds`, 0.1, found 0.05 to nothing",
        ),
    ] {
        let error = refused(folder.path(), &["--set", set]);
        assert!(error.contains(expected), "{error}\nlacks {expected}");
    }
    fs::create_dir(folder.path().join("study")).unwrap();
    fs::write(folder.path().join("study/study.json"), "{}").unwrap();
    let error = refused(folder.path(), &["--out", "study"]);
    assert!(error.contains("the folder of a study"), "{error}");
    for out in ["taken", "taken/inner"] {
        let error = refused(folder.path(), &["--out", out]);
        assert!(
            error.contains(&format!("cannot create the folder {out}: ")),
            "{error}"
        );
    }
    let case = ["--set", "steps.csv=steps.csv", "--set", "steps.case=foo"];
    let error = refused(folder.path(), &case);
    let expected = "--set steps.case=foo: `steps.case`: no case \"foo\": the table of `steps.csv` has no cases\nhint: leave it out";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_report_is_there_only_with_all_that_belongs_to_it() {
    let folder = folder();
    let out = folder.path().join("results/plan");
    printed(folder.path(), &[]);
    let before = fs::read(out.join("plan.csv")).unwrap();
    let figure = out.join("figures/plan-time.svg");
    fs::remove_file(&figure).unwrap();
    fs::create_dir(&figure).unwrap();
    let output = plan(folder.path(), &["--set", "steps.s_min=510"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("plan-time.svg"), "{error}");
    assert_ne!(fs::read(out.join("plan.csv")).unwrap(), before);
    assert!(!out.join("report.html").exists());
}
