//! Examples as host arrays: where they come from, how they are split and prepared.
//!
//! What may enter: a `[data]` configuration, files, random streams. What may not: models, devices,
//! the trial's own seed (a study's seeds all train on the same examples).

pub mod archive;
pub mod cifar;
pub mod content;
pub mod delimited;
mod error;
pub mod fetch;
pub mod idx;
pub mod import;
pub mod order;
mod prepare;
pub mod sets;
mod synthetic;

use std::path::Path;

pub use error::DataError;

use crate::config::{DataConfig, DataSource};
use content::Content;
use prepare::Loaded;

/// The digits, as scikit-learn carries them; see assets/README.md for credit.
static DIGITS: &[u8] = include_bytes!("../../assets/digits.csv.gz");

/// Examples, row by row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Examples {
    /// Features, row-major: as many rows as labels.
    pub features: Vec<f32>,
    /// Class of each example, from 0.
    pub labels: Vec<u32>,
}

impl Examples {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The examples of these rows, each of `width` features.
    fn select(&self, rows: &[u32], width: usize) -> Self {
        let mut features = Vec::with_capacity(rows.len() * width);
        for &row in rows {
            let start = row as usize * width;
            features.extend_from_slice(&self.features[start..start + width]);
        }
        Self {
            features,
            labels: rows.iter().map(|&row| self.labels[row as usize]).collect(),
        }
    }
}

/// Examples that are drawn anew each time and never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshExamples {
    /// Numbers in an example.
    pub dimension: usize,
    /// Examples that count as one epoch.
    pub epoch_examples: usize,
}

/// A file that examples were read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileRecord {
    /// Name of the file.
    pub name: String,
    /// sha256 of the uncompressed content.
    pub sha256: String,
    /// Length of the uncompressed content.
    pub bytes: u64,
}

/// The examples of a trial, split and prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Name of the source.
    pub name: String,
    /// Sizes of one example: `[features]` or `[channels, height, width]`.
    pub shape: Vec<usize>,
    /// Number of classes; 0 where there are none.
    pub classes: usize,
    /// Training examples.
    pub train: Examples,
    /// Examples held out of the training part.
    pub validation: Option<Examples>,
    /// Test examples.
    pub test: Option<Examples>,
    /// Set where examples are not stored; `train` is empty then.
    pub fresh: Option<FreshExamples>,
    /// The files read.
    pub files: Vec<FileRecord>,
    /// What a reader of results should know: credit, label noise, names of classes.
    pub notes: Vec<String>,
}

/// Loads, splits and prepares examples. `default_dir` is the data folder where the configuration
/// names none.
///
/// Images are scaled to [0, 1], then split (test, then validation, then subset), then label noise is
/// added to the training part, then everything is standardized by what was fitted on the training
/// part. All of it is a pure function of the files and `config`.
///
/// # Errors
/// If an option makes no sense for this source, or a file is missing, damaged or does not fit.
pub fn load(config: &DataConfig, default_dir: &Path) -> Result<Data, DataError> {
    prepare::check(config)?;
    let dir = config.dir.as_deref().unwrap_or(default_dir);
    let loaded = match &config.source {
        DataSource::Digits {} => digits()?,
        DataSource::Mnist {} => named("mnist", dir)?,
        DataSource::FashionMnist {} => named("fashion-mnist", dir)?,
        DataSource::Cifar10 {} => named("cifar10", dir)?,
        DataSource::Idx {
            train_images,
            train_labels,
            test_images,
            test_labels,
        } => {
            let test = match (test_images, test_labels) {
                (Some(images), Some(labels)) => Some((images.as_path(), labels.as_path())),
                (None, None) => None,
                (Some(_), None) => {
                    let key = "data.source.idx.test_labels";
                    return Err(DataError::option(
                        key,
                        "given with `test_images`",
                        "nothing",
                    ));
                }
                (None, Some(_)) => {
                    let key = "data.source.idx.test_images";
                    return Err(DataError::option(
                        key,
                        "given with `test_labels`",
                        "nothing",
                    ));
                }
            };
            let train = idx::read_pair(train_images, train_labels)?;
            let test = test
                .map(|(images, labels)| idx::read_pair(images, labels))
                .transpose()?;
            from_idx("idx", &train, test.as_ref(), train_images)?
        }
        DataSource::CifarBinary { dir } => {
            let (train, test) = cifar::files(dir)?;
            let read = |path: &std::path::PathBuf| cifar::read(path);
            let train = train.iter().map(read).collect::<Result<_, _>>()?;
            from_cifar("cifar-binary", train, cifar::read(&test)?)
        }
        DataSource::Csv {
            path,
            test_path,
            label,
            header,
            shape,
        } => csv(path, test_path.as_deref(), label, *header, *shape)?,
        DataSource::GaussianMixture {
            classes,
            dimension,
            examples,
            test_examples,
            separation,
        } => {
            let seed = config.split_seed;
            let (train, test) = synthetic::gaussian_mixture(
                *classes,
                *dimension,
                *examples,
                *test_examples,
                *separation,
                seed,
            )?;
            drawn("gaussian-mixture", *dimension, *classes, train, test)
        }
        DataSource::Teacher {
            classes,
            dimension,
            width,
            examples,
            test_examples,
        } => {
            let seed = config.split_seed;
            let (train, test) = synthetic::teacher(
                *classes,
                *dimension,
                *width,
                *examples,
                *test_examples,
                seed,
            )?;
            drawn("teacher", *dimension, *classes, train, test)
        }
        DataSource::NoisyQuadratic {
            dimension,
            examples,
        } => {
            return noisy_quadratic(config, *dimension, *examples);
        }
    };
    prepare::prepare(loaded, config)
}

fn drawn(
    name: &str,
    dimension: usize,
    classes: usize,
    train: Examples,
    test: Option<Examples>,
) -> Loaded {
    Loaded {
        name: name.to_owned(),
        shape: vec![dimension],
        classes,
        train,
        test,
        split_test: false,
        files: Vec::new(),
        notes: Vec::new(),
    }
}

fn noisy_quadratic(
    config: &DataConfig,
    dimension: usize,
    examples: usize,
) -> Result<Data, DataError> {
    synthetic::check_quadratic(dimension, examples)?;
    let none = "left out: the noisy quadratic draws fresh examples and has no labels";
    if config.validation_fraction > 0.0 {
        return Err(DataError::option(
            "data.validation_fraction",
            none,
            config.validation_fraction,
        ));
    }
    if let Some(subset) = config.subset {
        return Err(DataError::option("data.subset", none, subset));
    }
    if config.label_noise > 0.0 {
        return Err(DataError::option(
            "data.label_noise",
            none,
            config.label_noise,
        ));
    }
    Ok(Data {
        name: "noisy-quadratic".to_owned(),
        shape: vec![dimension],
        classes: 0,
        train: Examples::default(),
        validation: None,
        test: None,
        fresh: Some(FreshExamples {
            dimension,
            epoch_examples: examples,
        }),
        files: Vec::new(),
        notes: Vec::new(),
    })
}

fn digits() -> Result<Loaded, DataError> {
    // 64 pixels and the label, without a header.
    let table = delimited::parse(Content::from_bytes("digits.csv.gz", DIGITS), "64", false)?;
    let labels = relabel(
        &table,
        &delimited::classes(&table.names),
        Path::new("digits.csv.gz"),
    )?;
    Ok(Loaded {
        name: "digits".to_owned(),
        shape: vec![1, 8, 8],
        classes: 10,
        train: Examples {
            features: table.features.iter().map(|value| value / 16.0).collect(),
            labels,
        },
        test: None,
        split_test: true,
        files: vec![table.record],
        notes: vec![
            "digits: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI \
             Machine Learning Repository (1998), CC BY 4.0"
                .to_owned(),
        ],
    })
}

fn named(name: &str, dir: &Path) -> Result<Loaded, DataError> {
    let set = sets::find(name)?;
    let dir = dir.join(set.name);
    let folders = sets::folders(set, &dir);
    let mut paths = Vec::new();
    for file in set.files {
        paths.push(
            sets::locate(&folders, file.name).ok_or_else(|| DataError::MissingSet {
                name: name.to_owned(),
                dir: dir.clone(),
                file: file.name.to_owned(),
            })?,
        );
    }
    let check = |at: usize, record: &FileRecord| sets::check(&paths[at], &set.files[at], record);
    let mut loaded = match set.layout {
        sets::Layout::Idx => {
            let train = idx::read_pair(&paths[0], &paths[1])?;
            let test = idx::read_pair(&paths[2], &paths[3])?;
            for (at, record) in train.files.iter().chain(&test.files).enumerate() {
                check(at, record)?;
            }
            from_idx(name, &train, Some(&test), &paths[0])?
        }
        sets::Layout::CifarBinary => {
            let mut batches = Vec::new();
            for (at, path) in paths.iter().enumerate() {
                let batch = cifar::read(path)?;
                check(at, &batch.record)?;
                batches.push(batch);
            }
            match batches.pop() {
                Some(test) => from_cifar(name, batches, test),
                None => return Err(DataError::option("data.source", "a set with files", name)),
            }
        }
    };
    loaded.notes.push(format!("{name}: {}", set.about));
    Ok(loaded)
}

fn scaled(pixels: &[u8]) -> Vec<f32> {
    pixels
        .iter()
        .map(|&pixel| f32::from(pixel) / 255.0)
        .collect()
}

fn from_idx(
    name: &str,
    train: &idx::Pair,
    test: Option<&idx::Pair>,
    train_images: &Path,
) -> Result<Loaded, DataError> {
    let labels = train
        .labels
        .iter()
        .chain(test.iter().flat_map(|test| &test.labels));
    let classes = labels
        .copied()
        .max()
        .map_or(0, |label| usize::from(label) + 1);
    if classes < 2 {
        return Err(DataError::option(
            "data.source.idx.train_labels",
            "at least two classes",
            classes,
        ));
    }
    let mut files = train.files.to_vec();
    if let Some(test) = test {
        if test.shape != train.shape {
            return Err(DataError::Mismatch {
                first: train_images.to_owned(),
                second: test.files[0].name.clone().into(),
                expected: format!("images of shape {:?}", train.shape),
                found: format!("{:?}", test.shape),
            });
        }
        files.extend(test.files.iter().cloned());
    }
    let examples = |pair: &idx::Pair| Examples {
        features: scaled(&pair.pixels),
        labels: pair.labels.iter().map(|&label| u32::from(label)).collect(),
    };
    Ok(Loaded {
        name: name.to_owned(),
        classes,
        train: examples(train),
        test: test.map(examples),
        shape: train.shape.clone(),
        split_test: true,
        files,
        notes: Vec::new(),
    })
}

fn from_cifar(name: &str, train: Vec<cifar::Batch>, test: cifar::Batch) -> Loaded {
    let mut files = Vec::new();
    let mut merge = |batches: Vec<cifar::Batch>| {
        let mut examples = Examples::default();
        examples
            .features
            .reserve_exact(batches.iter().map(|batch| batch.pixels.len()).sum());
        for batch in batches {
            examples.features.extend(scaled(&batch.pixels));
            examples
                .labels
                .extend(batch.labels.iter().map(|&label| u32::from(label)));
            files.push(batch.record);
        }
        examples
    };
    let (train, test) = (merge(train), merge(vec![test]));
    Loaded {
        name: name.to_owned(),
        shape: cifar::SHAPE.to_vec(),
        classes: cifar::CLASSES,
        train,
        test: Some(test),
        split_test: false,
        files,
        notes: Vec::new(),
    }
}

fn csv(
    path: &Path,
    test_path: Option<&Path>,
    label: &str,
    header: bool,
    shape: Option<[usize; 3]>,
) -> Result<Loaded, DataError> {
    let train = delimited::read(path, label, header)?;
    let width = train.columns.len();
    let shape = match shape {
        None => vec![width],
        Some(shape) => {
            let product = shape
                .iter()
                .try_fold(1usize, |product, &size| product.checked_mul(size));
            if product != Some(width) {
                return Err(DataError::option(
                    "data.source.csv.shape",
                    format!("sizes whose product is {width}, the number of feature columns"),
                    format!("{shape:?}"),
                ));
            }
            shape.to_vec()
        }
    };
    let names = delimited::classes(&train.names);
    if names.len() < 2 {
        return Err(DataError::format(
            path,
            "at least two classes in the label column",
            format!("only `{}`", names[0]),
        ));
    }
    if names.len() > 100 && names.len() > train.labels.len() / 2 {
        return Err(DataError::format(
            path,
            format!("classes in column `{label}`"),
            format!(
                "{} different values in {} rows, more like a number to predict",
                names.len(),
                train.labels.len()
            ),
        ));
    }
    let test = test_path
        .map(|path| delimited::read(path, label, header))
        .transpose()?;
    let mut files = vec![train.record.clone()];
    let mut test_examples = None;
    if let (Some(test), Some(test_path)) = (test, test_path) {
        if test.columns != train.columns {
            let differing = train
                .columns
                .iter()
                .zip(&test.columns)
                .find(|(a, b)| a != b);
            let (expected, found) = match differing {
                Some((a, b)) => (format!("column `{a}`"), format!("`{b}`")),
                None => (
                    format!("{width} feature columns"),
                    test.columns.len().to_string(),
                ),
            };
            return Err(DataError::Mismatch {
                first: path.to_owned(),
                second: test_path.to_owned(),
                expected,
                found,
            });
        }
        let labels = relabel(&test, &names, test_path)?;
        files.push(test.record);
        test_examples = Some(Examples {
            features: test.features,
            labels,
        });
    }
    let labels = relabel(&train, &names, path)?;
    let identity = names
        .iter()
        .enumerate()
        .all(|(class, name)| *name == class.to_string());
    let mut notes = Vec::new();
    if !identity && names.len() <= 100 {
        notes.push(format!("classes in order: {}", names.join(", ")));
    }
    let classes = names.len();
    Ok(Loaded {
        name: "csv".to_owned(),
        shape,
        classes,
        train: Examples {
            features: train.features,
            labels,
        },
        test: test_examples,
        split_test: true,
        files,
        notes,
    })
}

/// Labels as classes: the position of each in `classes`.
fn relabel(
    table: &delimited::Delimited,
    classes: &[&str],
    path: &Path,
) -> Result<Vec<u32>, DataError> {
    let mut class_of = Vec::with_capacity(table.names.len());
    for (name, line) in &table.names {
        let class = classes
            .iter()
            .position(|class| class == name)
            .ok_or_else(|| DataError::Row {
                path: path.to_owned(),
                line: *line,
                column: None,
                expected: "a label that occurs in the training file".to_owned(),
                found: format!("`{name}`"),
            })?;
        class_of.push(class as u32);
    }
    Ok(table
        .labels
        .iter()
        .map(|&id| class_of[id as usize])
        .collect())
}
