//! When a trial reached its target, read off its evaluations.

use std::path::Path;

use super::{StudyError, TrialResult};
use crate::config::{Crossing, Metric, TargetConfig};
use crate::store::Table;
use crate::train::{STOPPED, Status};

/// What a finished trial says about its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// How it ended.
    pub status: Status,
    /// Whether `train.stop_steps` ended it.
    pub stopped: bool,
    /// Updates that it made.
    pub made: u64,
    /// Examples that it processed.
    pub examples: u64,
    /// Updates to the target, not necessarily whole; `None` if it was not reached.
    pub steps: Option<f64>,
    /// The update of the first evaluation that reached it.
    pub evaluated_at: Option<u64>,
    /// Best value of the target's metric at any evaluation; `None` if none was finite.
    pub best: Option<f64>,
}

impl Reading {
    /// Reads the result and the evaluations of a trial in its folder.
    ///
    /// # Errors
    /// If the evaluations cannot be read.
    pub fn of(
        folder: &Path,
        result: &TrialResult,
        target: &TargetConfig,
        crossing: Crossing,
    ) -> Result<Self, StudyError> {
        let outcome = &result.outcome;
        let mut reading = Self {
            status: outcome.status,
            stopped: outcome
                .message
                .as_ref()
                .is_some_and(|message| message.starts_with(STOPPED)),
            made: outcome.steps,
            examples: outcome.examples,
            steps: None,
            evaluated_at: None,
            best: None,
        };
        if outcome.status == Status::Failed {
            return Ok(reading);
        }
        let table = Table::read(&folder.join("evaluations.csv"))?;
        let (steps, splits) = (table.integers("step")?, table.texts("split")?);
        let values = table.numbers(match target.metric {
            Metric::Accuracy => "accuracy",
            Metric::Loss => "loss",
        })?;
        let rows: Vec<(u64, f64)> = (0..table.len())
            .filter(|&i| splits[i] == Some(target.split.name()))
            .map(|i| (steps[i].unwrap_or_default(), values[i].unwrap_or(f64::NAN)))
            .collect();
        let better = |a: f64, b: f64| match target.metric {
            Metric::Accuracy => a.max(b),
            Metric::Loss => a.min(b),
        };
        let finite = rows.iter().map(|row| row.1).filter(|v| v.is_finite());
        reading.best = finite.reduce(better);
        if let Some((step, at)) = crossed(&rows, target, crossing) {
            reading.steps = Some(step);
            reading.evaluated_at = Some(at);
        }
        Ok(reading)
    }
}

/// Where the target is first crossed, in updates, and the update of the evaluation that shows it.
/// Interpolated: (s0, m0) the evaluation before, (s1, m1) that one, s = s0 + (s1 - s0)(T - m0)/(m1 - m0).
fn crossed(rows: &[(u64, f64)], target: &TargetConfig, crossing: Crossing) -> Option<(f64, u64)> {
    let reaches = |value: f64| match target.metric {
        Metric::Accuracy => value >= target.value,
        Metric::Loss => value <= target.value,
    };
    let i = rows.iter().position(|row| reaches(row.1))?;
    let (at, value) = rows[i];
    let step = match (crossing, i.checked_sub(1).map(|before| rows[before])) {
        (Crossing::Interpolated, Some((before, from))) if from.is_finite() => {
            let share = (target.value - from) / (value - from);
            before as f64 + (at - before) as f64 * share
        }
        _ => at as f64,
    };
    Some((step, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Split;

    fn target(metric: Metric, value: f64) -> TargetConfig {
        TargetConfig {
            metric,
            split: Split::Validation,
            value,
        }
    }

    #[test]
    fn a_crossing_lies_on_the_line_between_two_evaluations() {
        let loss = target(Metric::Loss, 0.5);
        let rows = [(0, 2.0), (10, 0.9), (20, 0.1), (30, 0.6)];
        let at = |crossing| crossed(&rows, &loss, crossing);
        assert_eq!(at(Crossing::Interpolated), Some((15.0, 20)));
        assert_eq!(at(Crossing::Evaluation), Some((20.0, 20)));
        let accuracy = target(Metric::Accuracy, 0.75);
        let rows = [(0, 0.1), (4, 0.5), (8, 1.0)];
        assert_eq!(
            crossed(&rows, &accuracy, Crossing::Interpolated),
            Some((6.0, 8))
        );
    }

    #[test]
    fn a_target_that_is_met_at_once_takes_no_update() {
        let loss = target(Metric::Loss, 3.0);
        let rows = [(0, 2.0), (10, 0.9)];
        assert_eq!(
            crossed(&rows, &loss, Crossing::Interpolated),
            Some((0.0, 0))
        );
    }

    #[test]
    fn a_loss_that_was_not_finite_before_is_no_end_of_a_line() {
        let loss = target(Metric::Loss, 1.0);
        let rows = [(5, f64::NAN), (10, 0.9)];
        assert_eq!(
            crossed(&rows, &loss, Crossing::Interpolated),
            Some((10.0, 10))
        );
        assert_eq!(crossed(&rows[..1], &loss, Crossing::Interpolated), None);
    }
}
