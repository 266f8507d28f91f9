//! The real MNIST, Fashion-MNIST and CIFAR-10, where `BATCHLAB_DATA` names a folder that has them
//! (`scripts/real_data.sh` brings them). With `BATCHLAB_REQUIRE_REAL_DATA=1`, as in CI, MNIST and
//! Fashion-MNIST must be there.

use std::io::Write;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use batchlab::config::{DataConfig, DataSource, Standardize};
use batchlab::data::sets::{self, State};
use batchlab::data::{self, Data};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

/// The data folder, if the set is there.
fn folder(name: &str, required: bool) -> Option<PathBuf> {
    let dir = batchlab::config::env::data_dir();
    if let Some(dir) = &dir
        && sets::state(sets::find(name).unwrap(), dir) == State::Present
    {
        return Some(dir.clone());
    }
    #[expect(clippy::disallowed_methods, reason = "a switch of this test alone")]
    let must = std::env::var("BATCHLAB_REQUIRE_REAL_DATA").is_ok_and(|value| value == "1");
    assert!(
        !(must && required),
        "BATCHLAB_REQUIRE_REAL_DATA=1, but {name} is not in BATCHLAB_DATA ({dir:?}); run scripts/real_data.sh"
    );
    let mut stderr = std::io::stderr();
    writeln!(
        stderr,
        "the real {name} is absent: nothing tested (see scripts/real_data.sh)"
    )
    .unwrap();
    None
}

fn load(source: DataSource, dir: &Path, standardize: Standardize) -> Data {
    let config = DataConfig {
        source,
        dir: None,
        validation_fraction: 0.0,
        test_fraction: 0.2,
        split_seed: 0,
        subset: None,
        label_noise: 0.0,
        standardize,
    };
    data::load(&config, dir).unwrap()
}

/// Mean and standard deviation of the training pixels of one channel.
fn moments(data: &Data, channel: usize) -> (f64, f64) {
    let (channels, area) = (data.shape[0], data.shape[1] * data.shape[2]);
    let planes = data
        .train
        .features
        .chunks_exact(area)
        .skip(channel)
        .step_by(channels);
    let n = (data.train.len() * area) as f64;
    let mean = planes.clone().flatten().map(|&x| f64::from(x)).sum::<f64>() / n;
    let squares = planes
        .flatten()
        .map(|&x| (f64::from(x) - mean).powi(2))
        .sum::<f64>();
    (mean, (squares / n).sqrt())
}

fn check_moments(data: &Data, channel: usize, mean: f64, deviation: f64) {
    let found = moments(data, channel);
    assert!(
        (found.0 - mean).abs() < 5.1e-5 && (found.1 - deviation).abs() < 5.1e-5,
        "{found:?}"
    );
}

fn counts(labels: &[u32]) -> Vec<usize> {
    let mut counts = vec![0; 10];
    for &label in labels {
        counts[label as usize] += 1;
    }
    counts
}

#[test]
fn mnist_is_the_published_one() {
    let Some(dir) = folder("mnist", true) else {
        return;
    };
    let data = load(DataSource::Mnist {}, &dir, Standardize::None);
    let test = data.test.as_ref().unwrap();
    assert_eq!(
        (data.shape.as_slice(), data.classes),
        ([1, 28, 28].as_slice(), 10)
    );
    assert_eq!((data.train.len(), test.len()), (60_000, 10_000));
    assert_eq!(data.train.labels[..10], [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]);
    assert_eq!(test.labels[..10], [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]);
    assert_eq!(
        counts(&data.train.labels),
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    );
    // The constants of every tutorial: 0.1307 and 0.3081.
    check_moments(&data, 0, 0.1307, 0.3081);
    assert_eq!(data.files.len(), 4);
    assert_eq!(
        data.files[0].sha256,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    );
}

#[test]
fn fashion_mnist_is_the_published_one() {
    let Some(dir) = folder("fashion-mnist", true) else {
        return;
    };
    let data = load(DataSource::FashionMnist {}, &dir, Standardize::None);
    let test = data.test.as_ref().unwrap();
    assert_eq!(
        (data.train.len(), test.len(), data.classes),
        (60_000, 10_000, 10)
    );
    assert_eq!(data.train.labels[..10], [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]);
    assert_eq!(test.labels[..5], [9, 2, 1, 1, 6]);
    assert_eq!(counts(&data.train.labels), [6000; 10]);
    check_moments(&data, 0, 0.2860, 0.3530);
    assert_eq!(
        data.files[3].sha256,
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    );
}

#[test]
fn cifar10_is_the_published_one() {
    let Some(dir) = folder("cifar10", false) else {
        return;
    };
    let data = load(DataSource::Cifar10 {}, &dir, Standardize::None);
    let test = data.test.as_ref().unwrap();
    assert_eq!(
        (data.shape.as_slice(), data.classes),
        ([3, 32, 32].as_slice(), 10)
    );
    assert_eq!((data.train.len(), test.len()), (50_000, 10_000));
    assert_eq!(data.train.labels[..10], [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]);
    assert_eq!(test.labels[..10], [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]);
    assert_eq!(counts(&data.train.labels), [5000; 10]);
    for (channel, (mean, deviation)) in [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)]
        .iter()
        .enumerate()
    {
        check_moments(&data, channel, *mean, *deviation);
    }
}

#[test]
fn each_channel_of_cifar10_is_standardized_by_itself() {
    let Some(dir) = folder("cifar10", false) else {
        return;
    };
    let data = load(DataSource::Cifar10 {}, &dir, Standardize::Channel);
    for channel in 0..3 {
        let (mean, deviation) = moments(&data, channel);
        assert!(
            mean.abs() < 1e-6 && (deviation - 1.0).abs() < 1e-6,
            "{mean} {deviation}"
        );
    }
}

#[test]
fn packed_mnist_files_are_imported_by_the_command() {
    let Some(dir) = folder("mnist", true) else {
        return;
    };
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for file in sets::find("mnist").unwrap().files {
        let raw = std::fs::read(dir.join("mnist").join(file.name)).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&raw).unwrap();
        let name = format!("{}.gz", file.name.replace("-idx", ".idx"));
        batchlab::store::write_atomic(&from.path().join(name), &encoder.finish().unwrap()).unwrap();
    }
    let output = Command::cargo_bin("batchlab")
        .unwrap()
        .args(["data", "import", "mnist", "--from"])
        .arg(from.path())
        .arg("--dir")
        .arg(to.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        to.path().join("mnist").display().to_string()
    );
    let imported = load(DataSource::Mnist {}, to.path(), Standardize::Channel);
    assert_eq!(
        imported,
        load(DataSource::Mnist {}, &dir, Standardize::Channel)
    );
}
