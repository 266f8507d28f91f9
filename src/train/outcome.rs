//! How a trial ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::{Metric, Split};

/// How a trial ended. A failed run is a result: none of these is ever dropped from a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The budget was used up, or the target reached.
    Completed,
    /// The loss of a batch, or of the training split at an evaluation, was not finite or above
    /// `train.divergence_loss`.
    Diverged,
    /// The budget was used up before the target was reached, or no replica of an asynchronous run was
    /// left before the budget was used up.
    Censored,
    /// An error ended the trial; the message says which.
    Failed,
}

impl Status {
    /// The name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::Completed => "completed",
            Status::Diverged => "diverged",
            Status::Censored => "censored",
            Status::Failed => "failed",
        }
    }
}

/// Mean loss and accuracy of one split at one update.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean loss per example, in nats for a classifier; `null` in JSON if not finite.
    #[serde(deserialize_with = "number_or_nan")]
    pub loss: f64,
    /// Share of examples classified correctly, in [0, 1]; `None` without classes.
    pub accuracy: Option<f64>,
    /// Examples evaluated.
    pub n: usize,
}

fn number_or_nan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Whether and when the target was reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetOutcome {
    /// The metric of the target.
    pub metric: Metric,
    /// The split of the target.
    pub split: Split,
    /// The value of the target.
    pub value: f64,
    /// Whether an evaluation reached it.
    pub reached: bool,
    /// Update count of the first evaluation that reached it.
    pub steps_to_target: Option<u64>,
    /// Examples processed up to that evaluation.
    pub examples_to_target: Option<u64>,
}

/// Everything a finished trial reports besides its tables. Holds no times, so that it is the same
/// bytes whenever and wherever the trial runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialOutcome {
    /// How it ended.
    pub status: Status,
    /// Why, where the status alone does not say.
    pub message: Option<String>,
    /// Updates made; where the loss of a batch ended the trial, counting that batch, whose update
    /// was not applied.
    pub steps: u64,
    /// Examples processed.
    pub examples: u64,
    /// Passes over the training set.
    pub epochs: f64,
    /// The last evaluation of each split. Empty if the trial ended before one.
    pub evaluation: BTreeMap<Split, Evaluation>,
    /// The target, where the config sets one.
    pub target: Option<TargetOutcome>,
    /// What workers on different machines would exchange for batch statistics over all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics_exchange: Option<StatisticsExchange>,
    /// How late the gradients of an asynchronous run were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Box<StalenessOutcome>>,
}

/// How late the gradients of an asynchronous run were: updates made between the reading of their
/// parameters and their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StalenessOutcome {
    /// Simulated seconds that the run took.
    pub seconds: f64,
    /// Mean staleness.
    pub mean: f64,
    /// Gradients by staleness, from 0 on.
    pub histogram: Vec<u64>,
    /// Gradients by replica.
    pub by_replica: Vec<u64>,
}

/// The communication that batch statistics over all workers need, besides that of gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticsExchange {
    /// All-reduces of one update: one a layer in the forward pass, one in the backward pass.
    pub all_reduces_per_update: usize,
    /// Numbers that each worker hands over in one update: two a channel forward (sums of the values
    /// and of their squares), two backward (sums of the gradient, and of it times the normalized
    /// value).
    pub values_per_update: usize,
}

impl TrialOutcome {
    /// A trial that an error ended before its first update.
    pub fn failed(message: String) -> Self {
        Self {
            status: Status::Failed,
            message: Some(message),
            steps: 0,
            examples: 0,
            epochs: 0.0,
            evaluation: BTreeMap::new(),
            target: None,
            statistics_exchange: None,
            staleness: None,
        }
    }
}
