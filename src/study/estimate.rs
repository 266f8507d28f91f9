use std::collections::BTreeMap;

use serde_json::Value;

use super::folder::StudyFolder;
use super::plan::update_cost;
use super::tables::seconds_by_trial;
use super::{Plan, TrialRunner, TrialState};
use crate::config::TrialSpec;
use crate::train::Status;

/// How long the trials that are left should take.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Seconds until the last one ends, with as many at a time as `jobs`.
    pub seconds: f64,
    /// Seconds of each trial, in the order asked for.
    pub trials: Vec<f64>,
    /// What it rests on.
    pub basis: Basis,
}

/// What an estimate rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The times of this many finished trials of the same study.
    Timings(usize),
    /// Short measurements, one for each kind of trial.
    Calibration,
}

/// Estimates the time of the trials `pending` (indices into the plan), run `jobs` at a time.
///
/// A finished trial of the same data and model gives seconds per update at its batch; the nearest
/// batch counts, and carries over in the ratio of (batch + 16). Where a trial has none, the runner
/// measures, once for all trials that differ in seed, rate or optimizer only. `None` if neither
/// can tell.
pub fn estimate(
    plan: &Plan,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
    pending: &[usize],
    jobs: usize,
) -> Option<Estimate> {
    let rates = measured_rates(plan, folder, runner);
    let from_timings = |&index: &usize| {
        let spec = &plan.trials()[index];
        let batch = spec.config.global_batch();
        let distance = |rate: &&Rate| (rate.batch as f64 / batch as f64).ln().abs();
        let same = rates.iter().filter(|rate| rate.task == task(spec));
        let nearest = same.min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let carry = update_cost(batch) / update_cost(nearest.batch);
        Some(nearest.seconds_per_update * carry * plan.updates()[index] as f64)
    };
    let timed: Option<Vec<f64>> = pending.iter().map(from_timings).collect();
    let (trials, basis) = if let Some(trials) = timed {
        (
            trials,
            Basis::Timings(rates.iter().map(|rate| rate.trials).sum()),
        )
    } else {
        let mut known: BTreeMap<String, Option<f64>> = BTreeMap::new();
        let mut measure = |&index: &usize| {
            let spec = &plan.trials()[index];
            *known
                .entry(kind(spec))
                .or_insert_with(|| runner.estimate_seconds(spec))
        };
        let measured: Option<Vec<f64>> = pending.iter().map(&mut measure).collect();
        (measured?, Basis::Calibration)
    };
    Some(Estimate {
        seconds: makespan(&trials, jobs),
        trials,
        basis,
    })
}

/// Mean seconds per update of the finished trials of one task and batch.
struct Rate {
    task: String,
    batch: usize,
    seconds_per_update: f64,
    trials: usize,
}

fn measured_rates(plan: &Plan, folder: &StudyFolder, runner: &dyn TrialRunner) -> Vec<Rate> {
    // Times only serve this estimate: a damaged table is as good as none.
    let seconds = seconds_by_trial(folder).unwrap_or_default();
    let mut sums: BTreeMap<(String, usize), (f64, u64, usize)> = BTreeMap::new();
    for spec in plan.trials() {
        let Some(&seconds) = seconds.get(&spec.id) else {
            continue;
        };
        if let TrialState::Done(result) = folder.state(&spec.id, &runner.files(spec))
            && result.outcome.steps > 0
            && result.outcome.status != Status::Failed
        {
            let sum = sums
                .entry((task(spec), spec.config.global_batch()))
                .or_default();
            *sum = (sum.0 + seconds, sum.1 + result.outcome.steps, sum.2 + 1);
        }
    }
    let rate = |((task, batch), (seconds, updates, trials))| Rate {
        task,
        batch,
        seconds_per_update: seconds / updates as f64,
        trials,
    };
    sums.into_iter().map(rate).collect()
}

/// Data and model: what makes updates of one batch comparable.
fn task(spec: &TrialSpec) -> String {
    let part = |part: Result<Value, _>| part.unwrap_or_default().to_string();
    let (data, model) = (&spec.config.data, &spec.config.model);
    part(serde_json::to_value(data)) + &part(serde_json::to_value(model))
}

/// All that the time of a trial depends on.
fn kind(spec: &TrialSpec) -> String {
    let train = serde_json::to_value(&spec.config.train).unwrap_or_default();
    task(spec) + &train.to_string()
}

/// Seconds until the last of the trials ends, when each goes, longest first, to the first of
/// `jobs` that is free.
fn makespan(trials: &[f64], jobs: usize) -> f64 {
    let mut longest_first = trials.to_vec();
    longest_first.sort_by(|a, b| b.total_cmp(a));
    let mut busy_until = vec![0.0_f64; jobs.max(1)];
    for seconds in longest_first {
        if let Some(first) = busy_until.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            *first += seconds;
        }
    }
    busy_until.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_study_is_that_of_its_longest_job() {
        // 5 | 4+3 leaves 7; one job takes all; more jobs than trials take the longest trial.
        assert_eq!(makespan(&[3.0, 5.0, 4.0], 2), 7.0);
        assert_eq!(makespan(&[3.0, 5.0, 4.0], 1), 12.0);
        assert_eq!(makespan(&[3.0, 5.0, 4.0], 8), 5.0);
        assert_eq!(makespan(&[], 2), 0.0);
    }
}
