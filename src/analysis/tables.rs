//! The tables of a study as typed rows. An error names the file, the place and the column.
//!
//! Swept values are not read here: `study.json` has them with their types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Split;
use crate::store::{self, StoreError, Table};
use crate::study::StudyError;
use crate::train::Status;

/// Why tables could not be analysed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// A file could not be read, or is not a table; or a cell does not parse.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder holds no study, or its plan is damaged.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The study has a plan, and no summary yet.
    #[error(
        "{}: no such file\nhint: `batchlab run` writes it when every trial is done; run the study again to go on",
        path.display()
    )]
    NoSummary {
        /// The file.
        path: PathBuf,
    },
    /// A cell does not hold one of the words of its column.
    #[error("{}, row {row}, column `{column}`: expected {expected}, found {found:?}", path.display())]
    Word {
        /// The table.
        path: PathBuf,
        /// Row, counted from 1 after the column names.
        row: usize,
        /// The column.
        column: &'static str,
        /// What the column holds.
        expected: &'static str,
        /// The cell as it stands.
        found: String,
    },
}

/// One row of `summary.csv`. Empty cells are `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SummaryRow {
    /// Run id.
    pub trial: String,
    /// How it ended; `None` if it has not.
    pub status: Option<Status>,
    /// Seed.
    pub seed: Option<u64>,
    /// Workers P.
    pub workers: Option<u64>,
    /// Examples of one update on one worker.
    pub local_batch: Option<u64>,
    /// Examples of one update.
    pub global_batch: Option<u64>,
    /// Scaling rule.
    pub scaling: Option<String>,
    /// Warm-up in words.
    pub warmup: Option<String>,
    /// Peak learning rate.
    pub lr: Option<f64>,
    /// How the rate came about.
    pub lr_explained: Option<String>,
    /// Updates made.
    pub steps: Option<u64>,
    /// Examples processed.
    pub examples: Option<u64>,
    /// Passes over the training set.
    pub epochs: Option<f64>,
    /// Last evaluation of each split: mean loss and accuracy.
    pub evaluation: BTreeMap<Split, (Option<f64>, Option<f64>)>,
    /// Whether the target was reached; `None` without a target.
    pub target_reached: Option<bool>,
    /// Updates to the target.
    pub steps_to_target: Option<u64>,
    /// Examples to the target.
    pub examples_to_target: Option<u64>,
    /// Why the trial ended as it did.
    pub message: Option<String>,
}

/// One row of `evaluations.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvaluationRow {
    /// Updates made so far.
    pub step: u64,
    /// Passes over the training set so far.
    pub epoch: f64,
    /// The part of the data.
    pub split: Split,
    /// Mean loss per example; may be NaN or infinite.
    pub loss: f64,
    /// Share of examples classified correctly.
    pub accuracy: Option<f64>,
    /// Examples evaluated.
    pub n: Option<u64>,
}

/// One row of `steps.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRow {
    /// Update count, from 1.
    pub step: u64,
    /// Passes over the training set so far.
    pub epoch: f64,
    /// Examples of the update; `None` in tables without this column.
    pub global_batch: Option<u64>,
    /// Learning rate of the update.
    pub lr: f64,
    /// Momentum of the update, where it has one and the table tells.
    pub momentum: Option<f64>,
    /// Mean loss of the update's batch, before the update.
    pub loss: f64,
}

/// One row of `batch.csv`: what the batch controller did, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeRow {
    /// Updates made before.
    pub step: u64,
    /// Passes over the training set before.
    pub epoch: f64,
    /// Global batch before.
    pub from: u64,
    /// Global batch after.
    pub to: u64,
    /// What the controller multiplied the rate by, before.
    pub factor_from: f64,
    /// The same, after.
    pub factor_to: f64,
    /// What decided.
    pub quantity: String,
    /// Its value; `None` where it was undetermined.
    pub value: Option<f64>,
    /// Why, in words.
    pub reason: String,
}

/// Reads `summary.csv` of the results folder `dir`.
///
/// # Errors
/// If the file is missing, unreadable, lacks a column, or a cell does not parse.
pub fn read_summary(dir: &Path) -> Result<Vec<SummaryRow>, AnalysisError> {
    let path = dir.join("summary.csv");
    if !store::exists(&path) {
        return Err(AnalysisError::NoSummary { path });
    }
    let table = Table::read(&path)?;
    let mut rows = vec![SummaryRow::default(); table.len()];
    let owned = |text: Option<&str>| text.map(str::to_owned);

    for (row, cell) in rows.iter_mut().zip(table.texts("trial")?) {
        cell.unwrap_or_default().clone_into(&mut row.trial);
    }
    let all = [
        Status::Completed,
        Status::Diverged,
        Status::Censored,
        Status::Failed,
    ];
    for (i, (row, cell)) in rows.iter_mut().zip(table.texts("status")?).enumerate() {
        let status = all.into_iter().find(|s| Some(s.name()) == cell);
        row.status = Some(status.ok_or_else(|| AnalysisError::Word {
            path: path.clone(),
            row: i + 1,
            column: "status",
            expected: "completed, diverged, censored or failed",
            found: cell.unwrap_or_default().to_owned(),
        })?);
    }
    for (i, (row, cell)) in rows
        .iter_mut()
        .zip(table.texts("target_reached")?)
        .enumerate()
    {
        row.target_reached = match cell {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(other) => {
                return Err(AnalysisError::Word {
                    path: path.clone(),
                    row: i + 1,
                    column: "target_reached",
                    expected: "true or false",
                    found: other.to_owned(),
                });
            }
        };
    }
    for split in [Split::Train, Split::Validation, Split::Test] {
        let loss = table.numbers(&format!("{}_loss", split.name()))?;
        let accuracy = table.numbers(&format!("{}_accuracy", split.name()))?;
        for (row, cells) in rows.iter_mut().zip(loss.into_iter().zip(accuracy)) {
            if cells.0.is_some() || cells.1.is_some() {
                row.evaluation.insert(split, cells);
            }
        }
    }
    macro_rules! columns {
        ($read:ident: $($name:ident)*) => { $(
            for (row, cell) in rows.iter_mut().zip(table.$read(stringify!($name))?) {
                row.$name = cell;
            }
        )* };
    }
    columns!(integers: seed workers local_batch global_batch steps examples steps_to_target examples_to_target);
    columns!(numbers: lr epochs);
    for (row, cell) in rows.iter_mut().zip(table.texts("scaling")?) {
        row.scaling = owned(cell);
    }
    for (row, cell) in rows.iter_mut().zip(table.texts("warmup")?) {
        row.warmup = owned(cell);
    }
    for (row, cell) in rows.iter_mut().zip(table.texts("lr_explained")?) {
        row.lr_explained = owned(cell);
    }
    for (row, cell) in rows.iter_mut().zip(table.texts("message")?) {
        row.message = owned(cell);
    }
    Ok(rows)
}

/// Reads `evaluations.csv` of a trial's folder; `None` if there is none.
///
/// # Errors
/// If the file is unreadable, lacks a column, or a cell does not parse.
pub fn read_evaluations(trial_dir: &Path) -> Result<Option<Vec<EvaluationRow>>, AnalysisError> {
    let path = trial_dir.join("evaluations.csv");
    if !store::exists(&path) {
        return Ok(None);
    }
    let table = Table::read(&path)?;
    let (steps, epochs) = (table.integers("step")?, table.numbers("epoch")?);
    let (splits, losses) = (table.texts("split")?, table.numbers("loss")?);
    let (accuracies, sizes) = (table.numbers("accuracy")?, table.integers("n")?);
    let all = [Split::Train, Split::Validation, Split::Test];
    let rows = (0..table.len()).map(|i| {
        let split = all.into_iter().find(|s| Some(s.name()) == splits[i]);
        Ok(EvaluationRow {
            step: steps[i].unwrap_or_default(),
            epoch: epochs[i].unwrap_or(f64::NAN),
            split: split.ok_or_else(|| AnalysisError::Word {
                path: path.clone(),
                row: i + 1,
                column: "split",
                expected: "train, validation or test",
                found: splits[i].unwrap_or_default().to_owned(),
            })?,
            loss: losses[i].unwrap_or(f64::NAN),
            accuracy: accuracies[i],
            n: sizes[i],
        })
    });
    rows.collect::<Result<_, _>>().map(Some)
}

/// Reads `steps.csv` of a trial's folder; `None` if there is none.
///
/// # Errors
/// If the file is unreadable, lacks a column, or a cell does not parse.
pub fn read_steps(trial_dir: &Path) -> Result<Option<Vec<StepRow>>, AnalysisError> {
    let path = trial_dir.join("steps.csv");
    if !store::exists(&path) {
        return Ok(None);
    }
    let table = Table::read(&path)?;
    let (steps, epochs) = (table.integers("step")?, table.numbers("epoch")?);
    let (rates, losses) = (table.numbers("lr")?, table.numbers("loss")?);
    let batches = if table.has("global_batch") {
        table.integers("global_batch")?
    } else {
        vec![None; table.len()]
    };
    let momenta = if table.has("momentum") {
        table.numbers("momentum")?
    } else {
        vec![None; table.len()]
    };
    let rows = (0..table.len()).map(|i| StepRow {
        step: steps[i].unwrap_or_default(),
        epoch: epochs[i].unwrap_or(f64::NAN),
        global_batch: batches[i],
        lr: rates[i].unwrap_or(f64::NAN),
        momentum: momenta[i],
        loss: losses[i].unwrap_or(f64::NAN),
    });
    Ok(Some(rows.collect()))
}

/// Reads `batch.csv` of a trial's folder; `None` if there is none.
///
/// # Errors
/// If the file is unreadable, lacks a column, or a cell does not parse.
pub fn read_changes(trial_dir: &Path) -> Result<Option<Vec<ChangeRow>>, AnalysisError> {
    let path = trial_dir.join("batch.csv");
    if !store::exists(&path) {
        return Ok(None);
    }
    let table = Table::read(&path)?;
    let (steps, epochs) = (table.integers("step")?, table.numbers("epoch")?);
    let (from, to) = (table.integers("from_batch")?, table.integers("to_batch")?);
    let factors = [
        table.numbers("from_rate_factor")?,
        table.numbers("to_rate_factor")?,
    ];
    let (quantities, values) = (table.texts("quantity")?, table.numbers("value")?);
    let reasons = table.texts("reason")?;
    let rows = (0..table.len()).map(|i| ChangeRow {
        step: steps[i].unwrap_or_default(),
        epoch: epochs[i].unwrap_or(f64::NAN),
        from: from[i].unwrap_or_default(),
        to: to[i].unwrap_or_default(),
        factor_from: factors[0][i].unwrap_or(f64::NAN),
        factor_to: factors[1][i].unwrap_or(f64::NAN),
        quantity: quantities[i].unwrap_or_default().to_owned(),
        value: values[i],
        reason: reasons[i].unwrap_or_default().to_owned(),
    });
    Ok(Some(rows.collect()))
}

/// Reads a text file; `None` if there is none.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, AnalysisError> {
    Ok(if store::exists(path) {
        Some(store::read_to_string(path)?)
    } else {
        None
    })
}
