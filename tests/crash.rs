//! A study killed with SIGKILL at any moment and started again ends with the bytes of an
//! undisturbed one; so does one that two processes share, killed in turn.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use batchlab::rng::Stream;

const KILLS: usize = 24;

const STUDY: &str = r#"
name = "crash"
seeds = 2

[data]
source = "digits"
validation_fraction = 0.1

[model.mlp]
widths = [24]

[train]
workers = 2
epochs = 8
checkpoint_seconds = 0.02

[optimizer.adamw]

[learning_rate]
base_lr = 0.003
base_batch = 64
scaling = "sqrt"
decay = "cosine"
warmup = { epochs = 1 }

# The batch moves often, and stays so small that a trial takes long enough to be struck.
[batch]
every_steps = 5
min_batch = 4
max_batch = 64

[sweep]
"train.global_batch" = [8, 64]
"batch.controller" = ["constant", { norm-test = { theta = 3 } }]
"#;

fn spawn(config: &Path, results: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args(["run", "--quiet", "--results"])
        .args([results, config])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) {
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {message}", output.status);
}

/// Every file below a folder by relative path, without those that hold times.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if !path.ends_with("manifest.json") && !path.ends_with("timings.csv") {
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

/// Trials that have a checkpoint and no result: a kill in the middle of training.
fn half_done(study: &Path) -> usize {
    let Ok(trials) = std::fs::read_dir(study.join("trials")) else {
        return 0;
    };
    trials
        .filter_map(Result::ok)
        .map(|trial| trial.path())
        .filter(|t| t.join("checkpoint.safetensors").exists() && !t.join("result.json").exists())
        .count()
}

fn killed_and_resumed(processes: usize, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("study.toml");
    std::fs::write(&config, STUDY).unwrap();
    let undisturbed = folder.path().join("undisturbed");
    finish(spawn(&config, &undisturbed));
    let expected = files(&undisturbed.join("crash"));

    let results = folder.path().join("killed");
    let mut stream = Stream::new(seed, "kill", 0);
    let (mut kills, mut resumed) = (0, 0);
    while kills < KILLS {
        let mut children: Vec<Child> = (0..processes).map(|_| spawn(&config, &results)).collect();
        std::thread::sleep(Duration::from_secs_f64(0.005 + 0.4 * stream.uniform()));
        let victim = stream.below(processes as u64) as usize;
        let mut victim = children.swap_remove(victim);
        if victim.try_wait().unwrap().is_none() {
            victim.kill().unwrap();
            kills += 1;
        }
        victim.wait().unwrap();
        for child in children {
            finish(child);
        }
        resumed += half_done(&results.join("crash"));
        // A study that got done is compared, and the next kills strike a new one.
        if results.join("crash/report.html").exists() {
            finish(spawn(&config, &results));
            assert_same(&results.join("crash"), &expected);
            std::fs::remove_dir_all(&results).unwrap();
        }
    }
    finish(spawn(&config, &results));
    assert_same(&results.join("crash"), &expected);
    if processes == 1 {
        assert!(
            resumed >= 3,
            "only {resumed} kills struck a trial after its first checkpoint"
        );
    }
}

#[test]
fn a_killed_study_resumes_byte_equal() {
    killed_and_resumed(1, 1);
}

#[test]
fn a_study_shared_by_two_processes_one_killed_ends_byte_equal() {
    killed_and_resumed(2, 2);
}
