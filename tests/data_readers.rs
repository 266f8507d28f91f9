//! Reading, splitting and preparing examples.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::io::Write;
use std::path::{Path, PathBuf};

use batchlab::config::{DataConfig, DataSource, Standardize};
use batchlab::data::content::Content;
use batchlab::data::{self, Data, DataError, archive, cifar, delimited, idx};
use batchlab::rng::Stream;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

fn config(source: DataSource) -> DataConfig {
    DataConfig {
        source,
        dir: None,
        validation_fraction: 0.0,
        test_fraction: 0.2,
        split_seed: 0,
        subset: None,
        label_noise: 0.0,
        standardize: Standardize::None,
    }
}

fn digits() -> DataConfig {
    config(DataSource::Digits {})
}

fn load(config: &DataConfig) -> Result<Data, DataError> {
    data::load(config, Path::new("no-such-folder"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn idx_bytes(sizes: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    bytes.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend(values);
    bytes
}

fn images(n: u32) -> Vec<u8> {
    let values: Vec<u8> = (0..n * 12).map(|i| (i * 37 % 256) as u8).collect();
    idx_bytes(&[n, 3, 4], &values)
}

fn labels(n: u32) -> Vec<u8> {
    idx_bytes(&[n], &(0..n).map(|i| (i % 3) as u8).collect::<Vec<u8>>())
}

fn write(dir: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(bytes.as_ref())
        .unwrap();
    path
}

fn parse_idx(bytes: Vec<u8>) -> Result<idx::Idx, DataError> {
    idx::parse(Content::from_bytes("test.idx", bytes))
}

fn parse_csv(text: &str, label: &str, header: bool) -> Result<delimited::Delimited, DataError> {
    delimited::parse(
        Content::from_bytes("test.csv", text.as_bytes().to_vec()),
        label,
        header,
    )
}

fn message<T: std::fmt::Debug>(result: Result<T, DataError>) -> String {
    result.unwrap_err().to_string()
}

// IDX

#[test]
fn raw_and_gzip_idx_files_are_the_same_examples() {
    let raw = parse_idx(images(6)).unwrap();
    assert_eq!(raw.sizes, [6, 3, 4]);
    assert_eq!(raw.values[..3], [0, 37, 74]);
    assert_eq!(parse_idx(gzip(&images(6))).unwrap(), raw);
}

#[test]
fn a_truncated_idx_file_is_refused() {
    let whole = images(6);
    for length in 0..whole.len() {
        let error = parse_idx(whole[..length].to_vec()).unwrap_err();
        assert!(
            matches!(
                error,
                DataError::Truncated { .. } | DataError::LyingHeader { .. }
            ),
            "{error}"
        );
    }
    let packed = gzip(&whole);
    for length in 0..packed.len() {
        assert!(
            parse_idx(packed[..length].to_vec()).is_err(),
            "cut at {length}"
        );
    }
}

#[test]
fn bytes_after_the_declared_values_are_refused() {
    let mut bytes = images(6);
    bytes.push(0);
    assert!(message(parse_idx(bytes.clone())).contains("found more"));
    assert!(message(parse_idx(gzip(&bytes))).contains("found more"));
}

#[test]
fn a_header_that_lies_about_its_size_is_refused_before_anything_is_allocated() {
    // 2^95 bytes, 2^64 bytes (which would wrap around to 0), and 16 TiB.
    for sizes in [
        vec![u32::MAX, u32::MAX, u32::MAX],
        vec![1 << 31, 1 << 31, 4],
        vec![1 << 31, 1 << 13],
    ] {
        for bytes in [
            idx_bytes(&sizes, &[0; 100]),
            gzip(&idx_bytes(&sizes, &[0; 100])),
        ] {
            let error = parse_idx(bytes).unwrap_err();
            assert!(matches!(error, DataError::LyingHeader { .. }), "{error}");
        }
    }
}

#[test]
fn a_bomb_is_read_no_further_than_its_header_declares() {
    let error = parse_idx(gzip(&idx_bytes(&[4, 5], &vec![0; 50_000_000]))).unwrap_err();
    assert!(error.to_string().contains("after 32 bytes"), "{error}");
}

#[test]
fn a_damaged_gzip_file_is_refused() {
    let mut packed = gzip(&images(6));
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    assert!(message(parse_idx(packed)).contains("undamaged gzip"));
}

#[test]
fn other_element_types_and_other_files_are_refused() {
    let mut floats = images(6);
    floats[2] = 0x0d;
    assert!(message(parse_idx(floats)).contains("type 0x0d"));
    assert!(message(parse_idx(b"<!DOCTYPE html>".to_vec())).contains("expected an IDX file"));
    let dir = TempDir::new().unwrap();
    assert!(matches!(
        idx::read(dir.path()),
        Err(DataError::NotAFile { .. })
    ));
    assert!(matches!(
        idx::read(Path::new("/dev/zero")),
        Err(DataError::NotAFile { .. })
    ));
    assert!(message(idx::read(&dir.path().join("none"))).contains("none"));
}

fn idx_source(dir: &TempDir, n_images: u32, n_labels: u32) -> DataSource {
    DataSource::Idx {
        train_images: write(dir, "images", gzip(&images(n_images))),
        train_labels: write(dir, "labels", labels(n_labels)),
        test_images: None,
        test_labels: None,
    }
}

#[test]
fn an_idx_pair_becomes_images_scaled_to_one() {
    let dir = TempDir::new().unwrap();
    let mut config = config(idx_source(&dir, 10, 10));
    let data = load(&config).unwrap();
    assert_eq!(
        (data.shape.as_slice(), data.classes),
        ([1, 3, 4].as_slice(), 3)
    );
    assert_eq!(
        (data.train.len(), data.test.as_ref().unwrap().len()),
        (8, 2)
    );
    assert!(
        data.train
            .features
            .iter()
            .all(|value| (0.0..=1.0).contains(value))
    );
    assert_eq!(data.files[0].bytes, images(10).len() as u64);

    // With a test set of its own nothing is split off.
    let DataSource::Idx {
        test_images,
        test_labels,
        ..
    } = &mut config.source
    else {
        unreachable!()
    };
    *test_images = Some(write(&dir, "test-images", images(4)));
    *test_labels = Some(write(&dir, "test-labels", labels(4)));
    let data = load(&config).unwrap();
    assert_eq!((data.train.len(), data.test.unwrap().len()), (10, 4));
    assert_eq!(data.train.features[1], 37.0 / 255.0);
}

#[test]
fn images_without_labels_are_refused() {
    let dir = TempDir::new().unwrap();
    let text = message(load(&config(idx_source(&dir, 10, 9))));
    assert!(
        text.contains("expected 10 labels, one an image, found 9"),
        "{text}"
    );

    let mut source = idx_source(&dir, 10, 10);
    let DataSource::Idx { test_images, .. } = &mut source else {
        unreachable!()
    };
    *test_images = Some(write(&dir, "test-images", images(4)));
    let text = message(load(&config(source)));
    assert!(
        text.contains("`data.source.idx.test_labels` must be given with"),
        "{text}"
    );

    let mut source = idx_source(&dir, 10, 10);
    let DataSource::Idx { train_labels, .. } = &mut source else {
        unreachable!()
    };
    *train_labels = dir.path().join("none");
    assert!(message(load(&config(source))).contains("cannot read"));
}

#[test]
fn test_images_of_another_shape_are_refused() {
    let dir = TempDir::new().unwrap();
    let mut source = idx_source(&dir, 10, 10);
    let DataSource::Idx {
        test_images,
        test_labels,
        ..
    } = &mut source
    else {
        unreachable!()
    };
    *test_images = Some(write(&dir, "test-images", idx_bytes(&[4, 2, 2], &[0; 16])));
    *test_labels = Some(write(&dir, "test-labels", labels(4)));
    let text = message(load(&config(source)));
    assert!(
        text.contains("expected images of shape [1, 3, 4], found [1, 2, 2]"),
        "{text}"
    );
}

// CIFAR

fn cifar_bytes(records: usize) -> Vec<u8> {
    (0..records)
        .flat_map(|record| {
            std::iter::once((record % 10) as u8)
                .chain((0..3072).map(move |i| ((i + record) % 256) as u8))
        })
        .collect()
}

fn parse_cifar(bytes: Vec<u8>) -> Result<cifar::Batch, DataError> {
    cifar::parse(Content::from_bytes("data_batch_1.bin", bytes))
}

#[test]
fn a_cifar_folder_is_read_in_the_order_of_its_batches() {
    let dir = TempDir::new().unwrap();
    let two = cifar_bytes(2);
    write(&dir, "data_batch_10.bin", &two[3073..]);
    write(&dir, "data_batch_2.bin", gzip(&two[..3073]));
    write(&dir, "test_batch.bin", cifar_bytes(3));
    write(&dir, "readme.html", "not data");
    let source = DataSource::CifarBinary {
        dir: dir.path().to_owned(),
    };
    let data = load(&config(source.clone())).unwrap();
    assert_eq!(
        (data.shape.as_slice(), data.classes),
        ([3, 32, 32].as_slice(), 10)
    );
    assert_eq!(
        (data.train.labels.as_slice(), data.test.unwrap().len()),
        ([0, 1].as_slice(), 3)
    );
    assert_eq!(data.train.features[3072], 1.0 / 255.0);

    std::fs::remove_file(dir.path().join("test_batch.bin")).unwrap();
    assert!(message(load(&config(source))).contains("no test_batch.bin"));
}

#[test]
fn a_cifar_batch_that_is_cut_or_has_other_labels_is_refused() {
    let mut bytes = cifar_bytes(2);
    assert!(message(parse_cifar(bytes[..4000].to_vec())).contains("found 1 records and 927 bytes"));
    assert!(message(parse_cifar(Vec::new())).contains("empty"));
    bytes[3073] = 10;
    assert!(message(parse_cifar(bytes)).contains("label 10 in record 1"));
}

// CSV

#[test]
fn string_labels_are_classes_in_sorted_order() {
    let dir = TempDir::new().unwrap();
    let path = write(
        &dir,
        "pets.csv",
        "weight, kind ,age\n1,dog,2\n3,cat,4\n\n5,\"dog\",6\n7,ant,8.5e0\n",
    );
    let test_path = write(&dir, "test.csv", gzip(b"weight,kind,age\n9,cat,1\n"));
    let source = |test_path| DataSource::Csv {
        path: path.clone(),
        test_path: Some(test_path),
        label: "kind".to_owned(),
        header: true,
        shape: None,
    };
    let data = load(&config(source(test_path))).unwrap();
    assert_eq!(data.train.features, [1., 2., 3., 4., 5., 6., 7., 8.5]);
    assert_eq!(data.train.labels, [2, 1, 2, 0]);
    assert_eq!(data.test.unwrap().labels, [1]);
    assert_eq!(data.notes, ["classes in order: ant, cat, dog"]);

    let unknown = write(&dir, "unknown.csv", "weight,kind,age\n9,cat,1\n9,cow,1\n");
    let text = message(load(&config(source(unknown))));
    assert!(
        text.contains("unknown.csv, line 3") && text.contains("found `cow`"),
        "{text}"
    );
    let other = write(&dir, "other.csv", "height,kind,age\n9,cat,1\n");
    assert!(
        message(load(&config(source(other)))).contains("expected column `weight`, found `height`")
    );
}

#[test]
fn integer_labels_are_classes_by_value() {
    let dir = TempDir::new().unwrap();
    let rows: Vec<String> = (0..12).rev().map(|label| format!("{label},0.5")).collect();
    let source = DataSource::Csv {
        path: write(&dir, "rows.csv", rows.join("\n")),
        test_path: None,
        label: "0".to_owned(),
        header: false,
        shape: Some([1, 1, 1]),
    };
    let data = load(&config(source)).unwrap();
    assert_eq!(
        (data.classes, data.shape.as_slice()),
        (12, [1, 1, 1].as_slice())
    );
    assert!(data.train.labels.is_sorted_by(|a, b| a > b) && data.notes.is_empty());
}

#[test]
fn a_faulty_csv_cell_is_named_by_line_and_column() {
    let cases = [
        ("a,b,y\n1,2,x\n3,x\n", "line 3: expected 3 columns, found 2"),
        (
            "a,b,y\n1,2,x\n3,4,x,5\n",
            "line 3: expected 3 columns, found 4",
        ),
        (
            "a,b,y\n1,two,x\n",
            "line 2, column `b`: expected a finite number, found `two`",
        ),
        (
            "a,b,y\n1,2,x\n,2,x\n",
            "line 3, column `a`: expected a number, found nothing",
        ),
        (
            "a,b,y\n1,nan,x\n",
            "line 2, column `b`: expected a finite number, found `nan`",
        ),
        (
            "a,b,y\n1e60,2,x\n",
            "line 2, column `a`: expected a finite number, found `1e60`",
        ),
        ("a,b,y\n\n1,2,x\n\n\n\n3,q,x\n", "line 7, column `b`"),
        ("a,b,y\r\n\r\n1,2,x\r\n3,q,x", "line 4, column `b`"),
        ("a,b,y\r1,2,x\r\r3,q,x", "line 4, column `b`"),
        ("a,b,y\n1,2,\"x\n\nx\"\n3,q,x", "line 5, column `b`"),
        (
            "a,b,y\n1,2,\n",
            "line 2, column `y`: expected a label, found nothing",
        ),
        ("a,b,y\n", "found a header alone"),
        ("", "found an empty file"),
        ("a,y,y\n1,2,x\n", "expected one column named `y`"),
        ("a,b,z\n1,2,x\n", "expected a column named `y`"),
        ("y\nx\n", "expected a label and at least one feature"),
    ];
    for (text, expected) in cases {
        let found = message(parse_csv(text, "y", true));
        assert!(found.contains(expected), "{found:?} for {text:?}");
    }
    let found =
        message(parse_csv("1,2\n3,x\n", "1", false).and(parse_csv("1,2\nx,3\n", "1", false)));
    assert!(
        found.contains("line 2, column 0: expected a finite number, found `x`"),
        "{found}"
    );
    assert!(message(parse_csv("1,2\n", "y", false)).contains("a column's number from 0 to 1"));
    let latin = Content::from_bytes("latin.csv", b"a,y\n\n1,caf\xe9\n".to_vec());
    assert!(message(delimited::parse(latin, "y", true)).contains("line 3: expected UTF-8"));
}

#[test]
fn a_csv_shape_must_fit_the_columns() {
    let dir = TempDir::new().unwrap();
    let path = write(&dir, "rows.csv", "a,b,y\n1,2,0\n1,2,1\n");
    for shape in [[1, 1, 3], [usize::MAX, 2, 2]] {
        let label = "y".to_owned();
        let source = DataSource::Csv {
            path: path.clone(),
            test_path: None,
            label,
            header: true,
            shape: Some(shape),
        };
        assert!(message(load(&config(source))).contains("product is 2"));
    }
}

#[test]
fn a_column_of_numbers_is_not_taken_for_classes() {
    let dir = TempDir::new().unwrap();
    let rows: Vec<String> = (0..300)
        .map(|i| format!("{i},{}", f64::from(i) * 0.37))
        .collect();
    let path = write(&dir, "rows.csv", rows.join("\n"));
    let label = "1".to_owned();
    let source = DataSource::Csv {
        path,
        test_path: None,
        label,
        header: false,
        shape: None,
    };
    assert!(message(load(&config(source))).contains("300 different values in 300 rows"));
}

#[test]
fn a_gzip_csv_may_not_expand_without_bound() {
    let bomb = gzip("1,2,3\n".repeat(5_000_000).as_bytes());
    let text = message(delimited::parse(
        Content::from_bytes("bomb.csv.gz", bomb),
        "0",
        false,
    ));
    assert!(text.contains("expands to more than 256 times"), "{text}");
}

// Splits and preparation

#[test]
fn digits_are_the_published_ones() {
    let mut config = digits();
    config.test_fraction = 0.1;
    let data = load(&config).unwrap();
    let test = data.test.unwrap();
    assert_eq!(
        (data.shape.as_slice(), data.classes),
        ([1, 8, 8].as_slice(), 10)
    );
    assert_eq!((data.train.len(), test.len()), (1617, 180));
    // scikit-learn 1.9.1: load_digits().data.sum() is 561718, and the counts of targets.
    let all = data.train.features.iter().chain(&test.features);
    assert_eq!(
        all.map(|&value| f64::from(value) * 16.0).sum::<f64>(),
        561_718.0
    );
    let mut counts = [0; 10];
    for &label in data.train.labels.iter().chain(&test.labels) {
        counts[label as usize] += 1;
    }
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    assert_eq!(
        data.files[0].sha256,
        "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
    );
    assert!(data.notes[0].contains("CC BY 4.0"));
}

fn rows(part: &data::Examples, width: usize) -> Vec<Vec<u32>> {
    part.features
        .chunks_exact(width)
        .map(|row| row.iter().map(|x| x.to_bits()).collect())
        .collect()
}

#[test]
fn the_splits_are_disjoint_and_together_everything() {
    let mut config = digits();
    config.validation_fraction = 0.25;
    let data = load(&config).unwrap();
    let (validation, test) = (data.validation.unwrap(), data.test.unwrap());
    assert_eq!(
        (test.len(), validation.len(), data.train.len()),
        (359, 360, 1078)
    );
    let mut parts: Vec<_> = [&data.train, &validation, &test]
        .iter()
        .flat_map(|part| rows(part, 64))
        .collect();
    let mut whole = digits();
    whole.split_seed = 9;
    let whole = load(&whole).unwrap();
    let mut all = rows(&whole.train, 64);
    all.extend(rows(&whole.test.unwrap(), 64));
    parts.sort();
    all.sort();
    assert_eq!(parts, all);
}

#[test]
fn the_splits_hang_on_the_split_seed_alone() {
    let mut config = digits();
    config.validation_fraction = 0.1;
    let first = load(&config).unwrap();
    assert_eq!(load(&config).unwrap(), first);
    config.split_seed = 1;
    assert_ne!(load(&config).unwrap().train, first.train);
}

#[test]
fn a_subset_is_drawn_from_the_training_part_and_holds_the_smaller_ones() {
    let mut config = digits();
    let whole = load(&config).unwrap();
    config.subset = Some(100);
    let hundred = load(&config).unwrap();
    config.subset = Some(50);
    let fifty = load(&config).unwrap();
    assert_eq!((fifty.train.len(), hundred.train.len()), (50, 100));
    assert_eq!(hundred.test, whole.test);
    let (all, more) = (rows(&whole.train, 64), rows(&hundred.train, 64));
    assert!(more.iter().all(|row| all.contains(row)));
    assert!(rows(&fifty.train, 64).iter().all(|row| more.contains(row)));
}

#[test]
fn label_noise_replaces_the_stated_share_of_training_labels_alone() {
    let mut config = digits();
    config.validation_fraction = 0.2;
    let clean = load(&config).unwrap();
    let mut before: Vec<(u32, u32)> = Vec::new();
    for noise in [0.1, 0.5, 1.0] {
        config.label_noise = noise;
        let noisy = load(&config).unwrap();
        assert_eq!(load(&config).unwrap(), noisy);
        assert_eq!(
            (&noisy.validation, &noisy.test),
            (&clean.validation, &clean.test)
        );
        assert_eq!(noisy.train.features, clean.train.features);
        let n = clean.train.len();
        let replaced: Vec<(u32, u32)> = (0..n)
            .filter(|&i| noisy.train.labels[i] != clean.train.labels[i])
            .map(|i| (i as u32, noisy.train.labels[i]))
            .collect();
        assert_eq!(replaced.len(), (noise * n as f64).round() as usize);
        assert!(noisy.train.labels.iter().all(|&label| label < 10));
        assert!(
            before.iter().all(|one| replaced.contains(one)),
            "more noise keeps the old noise"
        );
        assert!(noisy.notes.contains(&format!(
            "label noise: {} of {n} training labels replaced by another class",
            replaced.len()
        )));
        before = replaced;
    }
}

#[test]
fn standardization_is_fitted_on_the_training_part_alone() {
    let moments = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (
            mean,
            values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64,
        )
    };
    let mut config = digits();
    config.subset = Some(300);
    let raw = load(&config).unwrap();
    config.standardize = Standardize::Channel;
    let data = load(&config).unwrap();
    let train: Vec<f64> = data.train.features.iter().map(|&x| f64::from(x)).collect();
    let (mean, variance) = moments(&train);
    assert!(
        mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-6,
        "{mean} {variance}"
    );
    // The test part goes through the same line as the training part.
    let unscaled: Vec<f64> = raw.train.features.iter().map(|&x| f64::from(x)).collect();
    let (mean, variance) = moments(&unscaled);
    for (x, z) in raw
        .test
        .unwrap()
        .features
        .iter()
        .zip(&data.test.unwrap().features)
    {
        assert!((f64::from(*z) - (f64::from(*x) - mean) / variance.sqrt()).abs() < 1e-6);
    }

    config.standardize = Standardize::Feature;
    let data = load(&config).unwrap();
    for feature in 0..64 {
        let column = |part: &data::Examples| -> Vec<f64> {
            part.features
                .iter()
                .skip(feature)
                .step_by(64)
                .map(|&x| f64::from(x))
                .collect()
        };
        let (mean, variance) = moments(&column(&data.train));
        assert!(mean.abs() < 1e-6);
        // Some pixels of the edge are always 0.
        assert!((variance - 1.0).abs() < 1e-5 || column(&data.train).iter().all(|&x| x == 0.0));
    }
    assert!(
        data.train
            .features
            .iter()
            .chain(&data.test.unwrap().features)
            .all(|x| x.is_finite())
    );
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let change = |change: &dyn Fn(&mut DataConfig)| {
        let mut config = digits();
        change(&mut config);
        message(load(&config))
    };
    let cases: [(String, &str); 10] = [
        (
            change(&|c| c.validation_fraction = 1.0),
            "`data.validation_fraction` must be in [0, 1), found 1",
        ),
        (
            change(&|c| c.validation_fraction = 0.9999),
            "would leave a training example",
        ),
        (
            change(&|c| c.validation_fraction = 1e-6),
            "at least one example in the part split off",
        ),
        (
            change(&|c| c.validation_fraction = f64::NAN),
            "`data.validation_fraction` must be in [0, 1)",
        ),
        (
            change(&|c| c.test_fraction = 0.0),
            "`data.test_fraction` must be in (0, 1), found 0",
        ),
        (
            change(&|c| c.test_fraction = 1.5),
            "`data.test_fraction` must be in (0, 1), found 1.5",
        ),
        (
            change(&|c| c.subset = Some(0)),
            "`data.subset` must be at least 1, found 0",
        ),
        (
            change(&|c| c.subset = Some(1439)),
            "`data.subset` must be at most 1438",
        ),
        (
            change(&|c| c.label_noise = -0.1),
            "`data.label_noise` must be in [0, 1], found -0.1",
        ),
        (
            change(&|c| c.source = DataSource::Mnist {}),
            "hint: `batchlab data fetch mnist`",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found}");
    }
}

// Synthetic

fn mixture(examples: usize, separation: f64) -> DataSource {
    DataSource::GaussianMixture {
        classes: 4,
        dimension: 6,
        examples,
        test_examples: 100,
        separation,
    }
}

#[test]
fn gaussian_clusters_lie_at_the_stated_distance() {
    let data = load(&config(mixture(40_000, 5.0))).unwrap();
    assert_eq!(
        (
            data.classes,
            data.shape.as_slice(),
            data.test.unwrap().len()
        ),
        (4, [6].as_slice(), 100)
    );
    for class in 0..4u32 {
        let members: Vec<&[f32]> = (data.train.features.chunks_exact(6).zip(&data.train.labels))
            .filter(|(_, label)| **label == class)
            .map(|(row, _)| row)
            .collect();
        assert_eq!(members.len(), 10_000);
        let mean: Vec<f64> = (0..6)
            .map(|i| members.iter().map(|row| f64::from(row[i])).sum::<f64>() / 1e4)
            .collect();
        let distance = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        // The mean of 10,000 has a standard error of 0.01 in each direction.
        assert!((distance - 5.0).abs() < 0.04, "{distance}");
        let variance = members
            .iter()
            .flat_map(|row| {
                row.iter()
                    .zip(&mean)
                    .map(|(&x, mean)| (f64::from(x) - mean).powi(2))
            })
            .sum::<f64>()
            / 6e4;
        // Standard error sqrt(2 / 60,000) = 0.006.
        assert!((variance - 1.0).abs() < 0.025, "{variance}");
    }
}

#[test]
fn the_first_examples_of_a_larger_synthetic_set_are_the_smaller_set() {
    let teacher = |examples| DataSource::Teacher {
        classes: 3,
        dimension: 5,
        width: 7,
        examples,
        test_examples: 0,
    };
    for (small, large) in [
        (mixture(50, 2.0), mixture(80, 2.0)),
        (teacher(50), teacher(80)),
    ] {
        let (small, large) = (load(&config(small)).unwrap(), load(&config(large)).unwrap());
        assert_eq!(
            small.train.features,
            large.train.features[..small.train.features.len()]
        );
        assert_eq!(small.train.labels, large.train.labels[..50]);
        assert!(
            small
                .train
                .labels
                .iter()
                .any(|&label| label != small.train.labels[0])
        );
    }
}

#[test]
fn the_noisy_quadratic_stores_no_examples() {
    let source = DataSource::NoisyQuadratic {
        dimension: 10,
        examples: 64,
    };
    let data = load(&config(source.clone())).unwrap();
    let fresh = data.fresh.unwrap();
    assert_eq!(
        (
            fresh.dimension,
            fresh.epoch_examples,
            data.classes,
            data.train.len()
        ),
        (10, 64, 0, 0)
    );
    let mut noisy = config(source);
    noisy.label_noise = 0.1;
    assert!(message(load(&noisy)).contains("has no labels"));
}

#[test]
fn synthetic_sizes_that_cannot_be_meant_are_refused() {
    let bad = [
        (mixture(0, 1.0), "examples` must be at least 1"),
        (mixture(usize::MAX, 1.0), "small enough for memory"),
        (mixture(10, f64::NAN), "separation` must be a finite number"),
        (
            DataSource::NoisyQuadratic {
                dimension: 0,
                examples: 1,
            },
            "dimension` must be at least 1",
        ),
    ];
    for (source, expected) in bad {
        let text = message(load(&config(source)));
        assert!(text.contains(expected), "{text}");
    }
}

// Damage

/// One to four random changes: a bit, a byte, a 32-bit number, a cut, an insertion, a copied piece.
fn mutated(original: &[u8], stream: &mut Stream) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=stream.below(4) {
        let at = stream.below(bytes.len() as u64 + 1) as usize;
        match stream.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << stream.below(8),
            1 if at < bytes.len() => bytes[at] = stream.next_u64() as u8,
            2 if at + 4 <= bytes.len() => {
                let numbers = [
                    0,
                    1,
                    0x7fff_ffff,
                    0xffff_ffff,
                    0x8000_0000,
                    stream.next_u64() as u32,
                ];
                let number = numbers[stream.below(6) as usize];
                bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            3 => bytes.truncate(at),
            4 => bytes.insert(at, b"\0,\n\"9-e."[stream.below(8) as usize]),
            _ => {
                let end = (at + stream.below(64) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = stream.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// Reads 10,000 mutated inputs; a panic fails the test, and so does a reader that refuses or
/// accepts everything.
fn survives<T>(purpose: &str, original: &[u8], read: impl Fn(Vec<u8>) -> Option<T>) {
    assert!(
        read(original.to_vec()).is_some(),
        "the undamaged input is read"
    );
    let accepted = (0..10_000)
        .filter(|&index| {
            let mut stream = Stream::new(0, purpose, index);
            read(mutated(original, &mut stream)).is_some()
        })
        .count();
    assert!(
        (1..10_000).contains(&accepted),
        "{accepted} of 10,000 accepted"
    );
}

#[test]
fn mutated_idx_files_never_panic() {
    survives("mutated-idx", &images(6), |bytes| parse_idx(bytes).ok());
}

#[test]
fn mutated_gzip_files_never_panic() {
    survives("mutated-gzip", &gzip(&images(6)), |bytes| {
        parse_idx(bytes).ok()
    });
}

#[test]
fn mutated_cifar_batches_never_panic() {
    survives("mutated-cifar", &cifar_bytes(2), |bytes| {
        parse_cifar(bytes).ok()
    });
}

#[test]
fn mutated_csv_files_never_panic() {
    let text = "a,b,y\n1,2.5,cat\n-3e2,4,\"dog\"\n5,6,cat\r\n\n7,8,cow\n";
    survives("mutated-csv", text.as_bytes(), |bytes| {
        delimited::parse(Content::from_bytes("mutated.csv", bytes), "y", true).ok()
    });
    survives("mutated-csv-gz", &gzip(text.as_bytes()), |bytes| {
        delimited::parse(Content::from_bytes("mutated.csv.gz", bytes), "y", true).ok()
    });
}

/// A ustar archive.
fn tar(members: &[(&str, u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, content) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = *kind;
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

#[test]
fn wanted_files_are_read_out_of_a_tar_archive() {
    let archive = tar(&[
        ("folder/", b'5', b""),
        ("folder/a.bin", b'0', b"first"),
        ("folder/readme", b'0', &[b'x'; 700]),
        ("b.bin", 0, b"second"),
    ]);
    let read = |wanted: &[(&str, u64)]| archive::read_members(archive.as_slice(), wanted);
    let members = read(&[("a.bin", 5), ("b.bin", 6)]).unwrap();
    assert_eq!(
        (members["a.bin"].as_slice(), members["b.bin"].as_slice()),
        (&b"first"[..], &b"second"[..])
    );
    let text = read(&[("a.bin", 6)]).unwrap_err().to_string();
    assert_eq!(
        text,
        "a.bin in the archive: expected 6 bytes, its header says 5"
    );
    let text = read(&[("c.bin", 5)]).unwrap_err().to_string();
    assert_eq!(text, "c.bin is in the archive 0 times, expected once");
    let twice = tar(&[("a.bin", b'0', b"first"), ("x/a.bin", b'0', b"first")]);
    assert!(archive::read_members(twice.as_slice(), &[("a.bin", 5)]).is_err());
}

#[test]
fn an_archive_of_something_else_is_not_read_to_its_end() {
    let endless = tar(&[("huge", b'0', &vec![0; 3 << 20])]);
    let error = archive::read_members(endless.as_slice(), &[("a.bin", 5)]).unwrap_err();
    assert!(
        matches!(error, archive::ArchiveError::TooLarge { .. }),
        "{error}"
    );
}

#[test]
fn mutated_tar_archives_never_panic() {
    let original = tar(&[
        ("x/a.bin", b'0', b"first"),
        ("x/readme", b'0', &[b'x'; 700]),
        ("b.bin", 0, b"second"),
    ]);
    survives("mutated-tar", &original, |bytes| {
        archive::read_members(bytes.as_slice(), &[("a.bin", 5), ("b.bin", 6)]).ok()
    });
    survives("mutated-tar-gz", &gzip(&original), |bytes| {
        let content = Content::from_bytes("mutated.tar.gz", bytes);
        archive::read_members(content, &[("a.bin", 5), ("b.bin", 6)]).ok()
    });
}
