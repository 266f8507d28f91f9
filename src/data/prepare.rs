//! From examples as read to the parts of a trial: test split, validation split, subset, label
//! noise, standardization, in this order. Everything is a function of `split_seed` alone, and what
//! is fitted is fitted on the training part.

use super::{Data, DataError, Examples, FileRecord};
use crate::config::{DataConfig, Standardize};
use crate::rng::{self, Stream};

/// Examples as read.
pub(super) struct Loaded {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) classes: usize,
    pub(super) train: Examples,
    pub(super) test: Option<Examples>,
    /// Whether `test_fraction` is split off where `test` is none.
    pub(super) split_test: bool,
    pub(super) files: Vec<FileRecord>,
    pub(super) notes: Vec<String>,
}

/// Checks of options that need no data.
pub(super) fn check(config: &DataConfig) -> Result<(), DataError> {
    let within = |key, expected: &str, value: f64, good: bool| {
        if good {
            Ok(())
        } else {
            Err(DataError::option(key, expected, value))
        }
    };
    let (validation, test) = (config.validation_fraction, config.test_fraction);
    within(
        "data.validation_fraction",
        "in [0, 1)",
        validation,
        (0.0..1.0).contains(&validation),
    )?;
    within(
        "data.test_fraction",
        "in (0, 1)",
        test,
        test > 0.0 && test < 1.0,
    )?;
    let noise = config.label_noise;
    within(
        "data.label_noise",
        "in [0, 1]",
        noise,
        (0.0..=1.0).contains(&noise),
    )?;
    if config.subset == Some(0) {
        return Err(DataError::option("data.subset", "at least 1", 0));
    }
    Ok(())
}

pub(super) fn prepare(loaded: Loaded, config: &DataConfig) -> Result<Data, DataError> {
    let Loaded {
        name,
        shape,
        classes,
        mut train,
        mut test,
        split_test,
        files,
        mut notes,
    } = loaded;
    let width: usize = shape.iter().product();
    let seed = config.split_seed;
    if train.len() > u32::MAX as usize {
        return Err(DataError::option(
            "data.source",
            "below 2^32 examples",
            train.len(),
        ));
    }
    // Original row of each training example: label noise is tied to it.
    let mut rows: Vec<u32> = (0..train.len() as u32).collect();

    if split_test && test.is_none() {
        let key = "data.test_fraction";
        test = Some(split_off(
            key,
            config.test_fraction,
            seed,
            &mut train,
            &mut rows,
            width,
        )?);
    }
    let mut validation = None;
    if config.validation_fraction > 0.0 {
        let key = "data.validation_fraction";
        let fraction = config.validation_fraction;
        validation = Some(split_off(
            key, fraction, seed, &mut train, &mut rows, width,
        )?);
    }
    if let Some(subset) = config.subset {
        if subset > train.len() {
            return Err(DataError::option(
                "data.subset",
                format!(
                    "at most {}, the training examples there are after the splits",
                    train.len()
                ),
                subset,
            ));
        }
        let order = rng::permutation(train.len(), seed, "subset", 0);
        keep(&sorted(&order[..subset]), &mut train, &mut rows, width);
    }
    if config.label_noise > 0.0 {
        let replaced = add_label_noise(&mut train.labels, &rows, classes, config.label_noise, seed);
        notes.push(format!(
            "label noise: {replaced} of {} training labels replaced by another class",
            train.len()
        ));
    }
    let groups = match config.standardize {
        Standardize::None => None,
        Standardize::Channel if shape.len() == 3 => Some(shape[0]),
        Standardize::Channel => Some(1),
        Standardize::Feature => Some(width),
    };
    if let Some(groups) = groups {
        let scales = Scales::fit(&train.features, width, groups);
        let others = [&mut validation, &mut test]
            .into_iter()
            .filter_map(Option::as_mut);
        for part in others.chain([&mut train]) {
            scales.apply(&mut part.features, width);
        }
    }
    Ok(Data {
        name,
        shape,
        classes,
        train,
        validation,
        test,
        fresh: None,
        files,
        notes,
    })
}

fn sorted(rows: &[u32]) -> Vec<u32> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows
}

/// Moves a random share, at least one example, out of the training part.
fn split_off(
    key: &'static str,
    fraction: f64,
    seed: u64,
    train: &mut Examples,
    rows: &mut Vec<u32>,
    width: usize,
) -> Result<Examples, DataError> {
    let n = train.len();
    let taken = (fraction * n as f64).round() as usize;
    if taken == 0 || taken >= n {
        let what = if taken == 0 {
            "leave at least one example in the part split off"
        } else {
            "leave a training example"
        };
        return Err(DataError::option(
            key,
            format!("a share of the {n} examples that would {what}"),
            fraction,
        ));
    }
    let order = rng::permutation(n, seed, key, 0);
    let part = train.select(&sorted(&order[..taken]), width);
    keep(&sorted(&order[taken..]), train, rows, width);
    Ok(part)
}

fn keep(kept: &[u32], train: &mut Examples, rows: &mut Vec<u32>, width: usize) {
    *train = train.select(kept, width);
    *rows = kept.iter().map(|&row| rows[row as usize]).collect();
}

/// Replaces round(share n) labels by a uniformly drawn other class. Which, and by what, hangs on the
/// original row alone: more noise keeps the labels that less noise has replaced.
fn add_label_noise(
    labels: &mut [u32],
    rows: &[u32],
    classes: usize,
    share: f64,
    seed: u64,
) -> usize {
    let replaced = (share * labels.len() as f64).round() as usize;
    let mut ranks: Vec<(u64, u32, u32)> = rows
        .iter()
        .zip(labels.iter())
        .map(|(&row, &label)| {
            let mut stream = Stream::new(seed, "label-noise", u64::from(row));
            let rank = stream.next_u64();
            let other = stream.below(classes as u64 - 1) as u32;
            (rank, row, if other >= label { other + 1 } else { other })
        })
        .collect();
    let mut order: Vec<u32> = (0..labels.len() as u32).collect();
    order.sort_unstable_by_key(|&i| (ranks[i as usize].0, ranks[i as usize].1));
    for &i in &order[..replaced] {
        labels[i as usize] = std::mem::take(&mut ranks[i as usize]).2;
    }
    replaced
}

/// Mean and standard deviation of each group of features, over the training part.
struct Scales {
    /// (mean, 1 / standard deviation), 0 for the second where all values are the same.
    groups: Vec<(f64, f64)>,
}

impl Scales {
    /// Two passes in f64: sum, then squared deviations from the mean; divided by n.
    fn fit(features: &[f32], width: usize, groups: usize) -> Self {
        let size = width / groups;
        let count = (features.len() / width * size) as f64;
        let rows = || {
            features
                .chunks_exact(width)
                .map(|row| row.chunks_exact(size).enumerate())
        };
        let first: Vec<f32> = features
            .iter()
            .step_by(size)
            .take(groups)
            .copied()
            .collect();
        let (mut sums, mut constant) = (vec![0.0; groups], vec![true; groups]);
        for (group, values) in rows().flatten() {
            sums[group] += values.iter().map(|&value| f64::from(value)).sum::<f64>();
            constant[group] = constant[group] && values.iter().all(|&value| value == first[group]);
        }
        let means: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
        let mut squares = vec![0.0; groups];
        for (group, values) in rows().flatten() {
            let mean = means[group];
            squares[group] += values
                .iter()
                .map(|&value| (f64::from(value) - mean).powi(2))
                .sum::<f64>();
        }
        let groups = (0..groups)
            .map(|group| {
                let deviation = (squares[group] / count).sqrt();
                let flat = constant[group] || deviation == 0.0;
                (means[group], if flat { 0.0 } else { 1.0 / deviation })
            })
            .collect();
        Self { groups }
    }

    fn apply(&self, features: &mut [f32], width: usize) {
        let size = width / self.groups.len();
        for row in features.chunks_exact_mut(width) {
            for (values, (mean, factor)) in row.chunks_exact_mut(size).zip(&self.groups) {
                for value in values {
                    *value = ((f64::from(*value) - mean) * factor) as f32;
                }
            }
        }
    }
}
