use std::collections::BTreeMap;

use super::folder::StudyFolder;
use super::{Plan, TrialState};
use crate::config::{Split, value_text};
use crate::store::{StoreError, Table, ToCell};
use crate::train::{Evaluation, TargetOutcome};

/// summary.csv: one row for each trial that has a result, in plan order.
pub(super) fn summary(
    plan: &Plan,
    states: &[TrialState],
    folder: &StudyFolder,
) -> Result<Table, StoreError> {
    let keys = axis_keys(plan);
    let mut columns = vec!["trial", "status"];
    columns.extend(&keys);
    columns.extend(FIXED);
    let mut table = Table::new(folder.file("summary.csv"), columns)?;
    for (spec, state) in plan.trials().iter().zip(states) {
        let TrialState::Done(result) = state else {
            continue;
        };
        let (config, outcome) = (&spec.config, &result.outcome);
        let point: Vec<Option<String>> = keys
            .iter()
            .map(|key| spec.point.iter().find(|(name, _)| name == key))
            .map(|value| value.map(|(_, value)| value_text(value)))
            .collect();
        let scaling = config.learning_rate.scaling.name();
        let of = |split| outcome.evaluation.get(&split).copied();
        let (train, validation, test) = (of(Split::Train), of(Split::Validation), of(Split::Test));
        let loss = |evaluation: Option<Evaluation>| evaluation.map(|e| e.loss);
        let accuracy = |evaluation: Option<Evaluation>| evaluation.and_then(|e| e.accuracy);
        let target = outcome.target;
        let status = outcome.status.name();
        let (lr, lr_explained) = (config.scaled_rate(), config.explain_rate());
        let warmup = config.explain_warmup();
        let (global, local) = (config.global_batch(), config.local_batch());
        let workers = config.workers();
        let mut cells: Vec<&dyn ToCell> = vec![&result.trial, &status];
        cells.extend(point.iter().map(|cell| cell as &dyn ToCell));
        let (train_loss, test_loss) = (loss(train), loss(test));
        let (train_accuracy, test_accuracy) = (accuracy(train), accuracy(test));
        let (validation_loss, validation_accuracy) = (loss(validation), accuracy(validation));
        let gap = train_accuracy
            .zip(test_accuracy)
            .map(|(train, test)| train - test);
        let loss_gap = train_loss.zip(test_loss).map(|(train, test)| test - train);
        let reached = target.map(|target: TargetOutcome| target.reached);
        let steps_to_target = target.and_then(|target| target.steps_to_target);
        let examples_to_target = target.and_then(|target| target.examples_to_target);
        let rest: [&dyn ToCell; FIXED.len()] = [
            &spec.seed,
            &workers,
            &local,
            &global,
            &scaling,
            &warmup,
            &lr,
            &lr_explained,
            &outcome.steps,
            &outcome.examples,
            &outcome.epochs,
            &train_loss,
            &train_accuracy,
            &validation_loss,
            &validation_accuracy,
            &test_loss,
            &test_accuracy,
            &gap,
            &loss_gap,
            &reached,
            &steps_to_target,
            &examples_to_target,
            &outcome.message,
        ];
        cells.extend(rest);
        table.push(&cells)?;
    }
    Ok(table)
}

const FIXED: [&str; 23] = [
    "seed",
    "workers",
    "local_batch",
    "global_batch",
    "scaling",
    "warmup",
    "lr",
    "lr_explained",
    "steps",
    "examples",
    "epochs",
    "train_loss",
    "train_accuracy",
    "validation_loss",
    "validation_accuracy",
    "test_loss",
    "test_accuracy",
    "generalization_gap",
    "loss_gap",
    "target_reached",
    "steps_to_target",
    "examples_to_target",
    "message",
];

/// Dotted keys of all axes, in order. A column of its own for `seed` there is already.
fn axis_keys(plan: &Plan) -> Vec<&str> {
    let keys = plan.study.axes.iter().flat_map(|axis| &axis.keys);
    keys.map(String::as_str)
        .filter(|key| *key != "seed")
        .collect()
}

/// A row of timings.csv: one process's work on one trial.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timing {
    pub(super) trial: String,
    pub(super) started: String,
    pub(super) seconds: f64,
    pub(super) threads: usize,
    pub(super) host: String,
}

/// Appends a row. The caller holds the study's lock. A damaged table is begun anew: it holds
/// nothing that a result depends on. Returns what was wrong with it.
pub(super) fn append_timing(
    folder: &StudyFolder,
    timing: &Timing,
) -> Result<Option<String>, StoreError> {
    let path = folder.file("timings.csv");
    let columns = ["trial", "started", "seconds", "threads", "host"];
    let (mut table, problem) = match Table::read(&path) {
        Ok(table) if table.columns() == columns => (table, None),
        Ok(_) => (
            Table::new(&path, columns)?,
            Some(format!("{}: other columns", path.display())),
        ),
        Err(error) => {
            let new = error.io_kind() == Some(std::io::ErrorKind::NotFound);
            (
                Table::new(&path, columns)?,
                (!new).then(|| error.to_string()),
            )
        }
    };
    // To the millisecond: more digits would claim more than was measured.
    let seconds = (timing.seconds * 1000.0).round() / 1000.0;
    table.push(&[
        &timing.trial,
        &timing.started,
        &seconds,
        &timing.threads,
        &timing.host,
    ])?;
    table.write()?;
    Ok(problem)
}

/// Seconds spent on each trial in timings.csv, summed over its rows.
///
/// # Errors
/// If there is no such table, or it cannot be read.
pub fn seconds_by_trial(folder: &StudyFolder) -> Result<BTreeMap<String, f64>, StoreError> {
    let table = Table::read(&folder.file("timings.csv"))?;
    let mut sums = BTreeMap::new();
    let trials = table.texts("trial")?;
    for (trial, seconds) in trials.into_iter().zip(table.numbers("seconds")?) {
        if let (Some(trial), Some(seconds)) = (trial, seconds) {
            *sums.entry(trial.to_owned()).or_insert(0.0) += seconds;
        }
    }
    Ok(sums)
}
