//! Devices: each one that this build has trains the digits as well as flex, and one that it lacks
//! is an error that lists those there are.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::path::Path;
use std::process::{Command, Output};

fn study(device: &str) -> String {
    format!(
        r#"
name = "{device}"
seeds = 1

[data]
source = "digits"

[model.mlp]
widths = [32]

[train]
workers = 2
global_batch = 64
epochs = 10
device = "{device}"

[train.evaluate]
every_epochs = 10

[learning_rate]
base_lr = 0.1
"#
    )
}

fn run(folder: &Path, device: &str) -> Output {
    let config = folder.join(format!("{device}.toml"));
    std::fs::write(&config, study(device)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args(["run", "--quiet", "--results"])
        .args([folder, &config])
        .output()
        .unwrap()
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "tpu");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("\"tpu\"") && message.contains("flex"),
        "{message}"
    );
    assert!(
        !folder.path().join("tpu").exists(),
        "nothing is written before the check"
    );
}

/// Test accuracy and training loss at the end.
#[cfg(any(feature = "wgpu", feature = "ndarray"))]
fn outcome(folder: &Path, device: &str) -> (f64, f64) {
    let output = run(folder, device);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{device}: {message}");
    let trials = std::fs::read_dir(folder.join(device).join("trials")).unwrap();
    let trial = trials
        .map(|t| t.unwrap().path())
        .find(|t| t.is_dir())
        .unwrap();
    let result = std::fs::read(trial.join("result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    let value = |split: &str, metric: &str| result["evaluation"][split][metric].as_f64().unwrap();
    (value("test", "accuracy"), value("train", "loss"))
}

#[cfg(any(feature = "wgpu", feature = "ndarray"))]
#[test]
fn every_device_trains_the_digits_as_well_as_flex() {
    let folder = tempfile::tempdir().unwrap();
    let (accuracy, loss) = outcome(folder.path(), "flex");
    assert!(accuracy > 0.95, "flex: {accuracy}");
    for device in batchlab::backend::built_in()
        .into_iter()
        .filter(|d| *d != "flex" && *d != "cuda")
    {
        let (other_accuracy, other_loss) = outcome(folder.path(), device);
        // 359 test examples: one example more or less is 0.0028. Rounding differs between
        // devices, so a borderline example may fall either way.
        let difference = (other_accuracy - accuracy).abs();
        assert!(
            difference <= 0.006,
            "{device}: {other_accuracy} against {accuracy}"
        );
        let relative = (other_loss - loss).abs() / loss;
        assert!(
            relative < 0.01,
            "{device}: training loss {other_loss} against {loss}"
        );
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn wgpu_refuses_double_precision() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("double.toml");
    let text = study("wgpu").replace("[train]", "[train]\nprecision = \"f64\"");
    std::fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args(["run", "--quiet", "--results"])
        .args([folder.path(), &config])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && message.contains("f64"),
        "{message}"
    );
}
