//! A study of the critical batch size: a search for the best rate at every batch, then, where they are
//! asked for, runs that measure the noise scale, and branches.
//!
//! Which trials there are follows from the study file and from the results so far, and from nothing
//! else: a process that starts later, or in place of one that was killed, comes to the same trials.
//! Each search is a chain of rounds ([`RateSearch`]); those of all batches, seeds and cases of one
//! level run side by side.
//!
//! The point of a trial says what it is for: `role` is `search`, `noise`, `trunk` or `branch`; of the
//! last two `moment` is the update of the trunk, and `branch_batch` the batch that a branch goes on
//! with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::search::{Next, Outcome, RateSearch, levels};
use super::{
    BoxError, Execution, Options, Plan, Reading, Selection, Session, StudyError, StudyFolder,
    TrialControl, TrialError, TrialRunner, TrialState, execute,
};
use crate::config::{
    BranchScaling, CriticalBatchConfig, CriticalStudy, OptimizerConfig, StudyConfig, TargetConfig,
    TrialSpec,
};
use crate::math::rate_fit::{RateSample, fit_rate};
use crate::train::{Status, TrialOutcome};

/// Steps of the grid of rates on either side of the first rate, where no limit is given.
const WIDEST: i32 = 10;

/// Pieces of the examples for tr(H Sigma) and G'HG.
pub const NOISE_PIECES: usize = 16;

/// Pieces of the batch of a run that measures its noise.
const PIECES: usize = 8;

/// More updates than a run has: it is evaluated at its start and end alone.
const NEVER: u64 = 1 << 40;

/// Milliseconds between two looks at the trials that other processes run.
const LOOK_MILLISECONDS: u64 = 200;

/// What a trial of the study is for, as the `role` of its point.
pub mod role {
    /// A trial of the search.
    pub const SEARCH: &str = "search";
    /// The best trial of a search again, its noise measured.
    pub const NOISE: &str = "noise";
    /// A part of the run that branches leave.
    pub const TRUNK: &str = "trunk";
    /// A branch.
    pub const BRANCH: &str = "branch";
}

/// A trial of the study, and from which other it starts.
#[derive(Debug, Clone)]
struct Wanted {
    spec: TrialSpec,
    /// The trial whose last checkpoint it goes on from.
    from: Option<String>,
}

/// The best of one search.
#[derive(Debug, Clone)]
struct Best {
    spec: TrialSpec,
    rate: f64,
    steps: f64,
}

/// Key of one search: batch, seed.
type Unit = (usize, u64);

/// The trials that the study comes to, given the results so far.
struct Unfolding<'a, 'b> {
    study: &'a StudyConfig,
    critical: &'a CriticalStudy,
    readings: &'a mut Readings<'b>,
    wanted: Vec<Wanted>,
    /// Trials without a result.
    pending: Vec<String>,
}

/// What was read of finished trials.
struct Readings<'a> {
    folder: &'a StudyFolder,
    runner: &'a dyn TrialRunner,
    known: BTreeMap<String, Reading>,
    /// Failed trials are to run again, once.
    retry: bool,
    retried: BTreeSet<String>,
}

impl<'a> Readings<'a> {
    fn new(folder: &'a StudyFolder, runner: &'a dyn TrialRunner, retry: bool) -> Self {
        Self {
            folder,
            runner,
            known: BTreeMap::new(),
            retry,
            retried: BTreeSet::new(),
        }
    }

    /// What the trial says, if it is done.
    fn of(
        &mut self,
        spec: &TrialSpec,
        target: &TargetConfig,
        critical: &CriticalBatchConfig,
    ) -> Result<Option<Reading>, StudyError> {
        if let Some(reading) = self.known.get(&spec.id) {
            return Ok(Some(*reading));
        }
        let files = self.runner.files(spec);
        let TrialState::Done(result) = self.folder.state(&spec.id, &files) else {
            return Ok(None);
        };
        let failed = result.outcome.status == Status::Failed;
        if failed && self.retry && self.retried.insert(spec.id.clone()) {
            return Ok(None);
        }
        let folder = self.folder.trial(&spec.id);
        let reading = Reading::of(&folder, &result, target, critical.crossing)?;
        self.known.insert(spec.id.clone(), reading);
        Ok(Some(reading))
    }
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// The exponent of the law of the best rate where too few batches are known to fit one: 1 for SGD,
/// 1/2 for rules that divide by the root of the squared gradient (McCandlish et al. 2018).
fn exponent(optimizer: &OptimizerConfig) -> f64 {
    match optimizer {
        OptimizerConfig::Adamw { .. }
        | OptimizerConfig::Lamb { .. }
        | OptimizerConfig::Lion { .. } => 0.5,
        _ => 1.0,
    }
}

impl Unfolding<'_, '_> {
    /// Asks for a trial, and returns what it says if it is done.
    fn ask(
        &mut self,
        spec: TrialSpec,
        from: Option<String>,
        target: &TargetConfig,
    ) -> Result<Option<Reading>, StudyError> {
        let reading = self.readings.of(&spec, target, &self.critical.config)?;
        if reading.is_none() {
            self.pending.push(spec.id.clone());
        }
        self.wanted.push(Wanted { spec, from });
        Ok(reading)
    }

    /// All trials of one case, as far as the results so far say.
    fn case(&mut self, start: &TrialSpec, seeds: &[u64]) -> Result<(), StudyError> {
        let config = &self.critical.config;
        let Some(target) = start.config.train.target else {
            return Ok(());
        };
        let base = start.config.learning_rate.base_lr;
        let examples = self
            .readings
            .runner
            .train_examples(start)
            .map_err(|error| StudyError::Trial {
                label: super::label(start),
                error,
            })?;
        let exponent = exponent(&start.config.optimizer);
        let mut best: BTreeMap<Unit, Best> = BTreeMap::new();
        for level in levels(&config.batches) {
            let law = Self::law(&best, exponent);
            let before = self.pending.len();
            for &batch in &level {
                let centre = law.as_ref().map_or(base, |law| law(batch as f64));
                let search = grid(config, base, centre);
                for &seed in seeds {
                    let unit = self.unit(start, &target, search, batch, seed, examples)?;
                    best.extend(unit.map(|found| ((batch, seed), found)));
                }
            }
            if self.pending.len() > before {
                return Ok(());
            }
        }
        self.noise(&target, &best, seeds, examples)?;
        self.branches(start, &target, &best, seeds, examples)
    }

    /// The rate to begin with at a batch, by the best rates found so far.
    fn law(best: &BTreeMap<Unit, Best>, exponent: f64) -> Option<Box<dyn Fn(f64) -> f64>> {
        let sample = |(&(batch, seed), best): (&Unit, &Best)| RateSample {
            batch: batch as f64,
            rate: best.rate,
            seed,
        };
        let samples: Vec<RateSample> = best.iter().map(sample).collect();
        let batches: BTreeSet<usize> = best.keys().map(|unit| unit.0).collect();
        match batches.len() {
            0 => None,
            // No batch to fit a law to but one: as if the rate had half saturated there.
            1 => {
                let mean = samples.iter().map(|s| s.rate.ln()).sum::<f64>() / samples.len() as f64;
                let b_star = samples[0].batch;
                Some(Box::new(move |batch| {
                    mean.exp() * (2.0 / (1.0 + b_star / batch)).powf(exponent)
                }))
            }
            known => {
                let law = fit_rate(&samples, (known < 3).then_some(exponent))?;
                Some(Box::new(move |batch| law.rate(batch)))
            }
        }
    }

    /// The searches of one batch and seed: one for each combination of the other keys.
    fn unit(
        &mut self,
        start: &TrialSpec,
        target: &TargetConfig,
        search: RateSearch,
        batch: usize,
        seed: u64,
        examples: usize,
    ) -> Result<Option<Best>, StudyError> {
        let config = &self.critical.config;
        let (base, factor) = (start.config.learning_rate.base_lr, config.rate_factor);
        let budget = config.budget(batch, examples);
        let mut winner: Option<Best> = None;
        for others in combinations(self.critical) {
            let mut tried: BTreeMap<i32, Outcome> = BTreeMap::new();
            let mut specs: BTreeMap<i32, TrialSpec> = BTreeMap::new();
            loop {
                let (rates, stop) = match search.next(&tried) {
                    Next::Try { rates, stop } => (rates, stop),
                    Next::Done { best } => {
                        let best = best.and_then(|rate| {
                            Some(Best {
                                spec: specs.get(&rate)?.clone(),
                                rate: rate_at(base, factor, rate),
                                steps: tried.get(&rate)?.steps?,
                            })
                        });
                        if let Some(best) = best
                            && winner.as_ref().is_none_or(|w| best.steps < w.steps)
                        {
                            winner = Some(best);
                        }
                        break;
                    }
                };
                let stop = stop.filter(|&stop| config.early_stopping && stop > 0 && stop < budget);
                let mut missing = false;
                for rate in rates {
                    let mut point = CriticalBatchConfig::case(&start.point);
                    point.push(("role".to_owned(), text(role::SEARCH)));
                    point.push(("train.global_batch".to_owned(), batch.into()));
                    point.extend(others.iter().cloned());
                    let value = rate_at(base, factor, rate);
                    point.push(("learning_rate.base_lr".to_owned(), value.into()));
                    let mut hidden = vec![("train.steps".to_owned(), budget.into())];
                    hidden.extend(defaults(start, target));
                    if let Some(stop) = stop {
                        hidden.push(("train.stop_steps".to_owned(), stop.into()));
                    }
                    let spec = self.study.trial(point, &hidden, &[], seed)?;
                    match self.ask(spec.clone(), None, target)? {
                        Some(reading) => {
                            tried.insert(rate, Outcome::of(&reading, target));
                            specs.insert(rate, spec);
                        }
                        None => missing = true,
                    }
                }
                if missing {
                    break;
                }
            }
        }
        Ok(winner)
    }

    /// One run for each seed that measures the noise of its gradient.
    fn noise(
        &mut self,
        target: &TargetConfig,
        best: &BTreeMap<Unit, Best>,
        seeds: &[u64],
        examples: usize,
    ) -> Result<(), StudyError> {
        let critical = &self.critical.config;
        let Some(noise) = &critical.noise else {
            return Ok(());
        };
        let batch = noise.batch.unwrap_or(critical.middle());
        for &seed in seeds {
            let Some(best) = best.get(&(batch, seed)) else {
                continue;
            };
            let train = &best.spec.config.train;
            let every = (best.steps / (noise.moments + 1) as f64).ceil().max(1.0) as u64;
            let set = |key: &str, value: Value| (format!("probes.{key}"), value);
            let mut hidden = vec![
                ("train.steps".to_owned(), train.steps.into()),
                set("start", true.into()),
                set("every_steps", every.into()),
                set("examples", noise.examples.min(examples.max(2)).into()),
                set("noise.every_steps", noise.every_steps.into()),
                set("noise.exact", true.into()),
                set("noise.hessian_pieces", NOISE_PIECES.into()),
            ];
            hidden.extend(defaults(&best.spec, target));
            if train.workers == 1 && train.micro_batch.is_none() && batch > 1 {
                let pieces = (batch / PIECES).max(1);
                hidden.push(("train.micro_batch".to_owned(), pieces.into()));
            }
            let point = with_role(&best.spec.point, role::NOISE);
            let spec = self.study.trial(point, &hidden, &["probes"], seed)?;
            self.ask(spec, None, target)?;
        }
        Ok(())
    }

    /// The trunk of each seed, in parts, and the branches from where each part ends.
    fn branches(
        &mut self,
        start: &TrialSpec,
        target: &TargetConfig,
        best: &BTreeMap<Unit, Best>,
        seeds: &[u64],
        examples: usize,
    ) -> Result<(), StudyError> {
        let critical = &self.critical.config;
        let Some(branched) = &critical.branched else {
            return Ok(());
        };
        let base = branched.base(&critical.batches);
        let length = branched.branch_examples(&critical.batches);
        let scaling = branched.scaling.unwrap_or_else(|| {
            if exponent(&start.config.optimizer) < 1.0 {
                BranchScaling::Sqrt
            } else {
                BranchScaling::Linear
            }
        });
        let splits = start.config.train.evaluate.splits.clone();
        let common = [
            ("train.log_every".to_owned(), json!(1)),
            ("train.evaluate.every_steps".to_owned(), json!(NEVER)),
            (
                "train.evaluate.splits".to_owned(),
                json!(splits.unwrap_or_else(|| vec![target.split])),
            ),
        ];
        let without = ["train.target", "train.evaluate", "probes"];
        for &seed in seeds {
            let Some(best) = best.get(&(base, seed)) else {
                continue;
            };
            let mut before: Option<String> = None;
            let mut last = 0;
            for share in &branched.moments {
                let moment = ((share * best.steps).round() as u64).max(1);
                if moment == last {
                    continue;
                }
                last = moment;
                let mut point = with_role(&best.spec.point, role::TRUNK);
                point.push(("moment".to_owned(), moment.into()));
                let mut hidden = vec![("train.steps".to_owned(), moment.into())];
                hidden.extend(common.iter().cloned());
                let trunk = self.study.trial(point.clone(), &hidden, &without, seed)?;
                let id = trunk.id.clone();
                let done = self.ask(trunk, before.replace(id.clone()), target)?;
                let Some(reading) = done else { break };
                if reading.status != Status::Completed {
                    break;
                }
                for factor in branched.factors(&critical.batches) {
                    let batch = factor * base;
                    let mut point = with_role(&point, role::BRANCH);
                    point.push(("branch_batch".to_owned(), batch.into()));
                    let passed = moment * base as u64;
                    let mut hidden = vec![
                        ("train.examples".to_owned(), (passed + length).into()),
                        ("learning_rate.scaling".to_owned(), text(scaling.name())),
                        ("learning_rate.base_batch".to_owned(), base.into()),
                    ];
                    hidden.extend(common.iter().cloned());
                    if factor > 1 {
                        // Between the update before the moment and the one after it.
                        let epoch = (passed as f64 - 0.5 * base as f64) / examples.max(1) as f64;
                        let stages = json!([[epoch, batch]]);
                        hidden.push(("batch.controller.schedule.stages".to_owned(), stages));
                    }
                    let spec = self.study.trial(point, &hidden, &without, seed)?;
                    self.ask(spec, Some(id.clone()), target)?;
                }
            }
        }
        Ok(())
    }
}

/// Evaluations that are few and close where the file says nothing: of the target's split, each
/// time the updates have grown by 5 %.
fn defaults(start: &TrialSpec, target: &TargetConfig) -> Vec<(String, Value)> {
    let evaluate = &start.config.train.evaluate;
    let mut set = Vec::new();
    let unset = |every: bool| !every && evaluate.growth.is_none();
    if unset(evaluate.every_steps.is_some() || evaluate.every_epochs.is_some()) {
        set.push(("train.evaluate.growth".to_owned(), json!(1.05)));
    }
    if evaluate.splits.is_none() {
        set.push(("train.evaluate.splits".to_owned(), json!([target.split])));
    }
    set
}

/// The point with another role.
fn with_role(point: &[(String, Value)], role: &str) -> Vec<(String, Value)> {
    let mut point = point.to_vec();
    for (key, value) in &mut point {
        if key == "role" {
            *value = text(role);
        }
    }
    point
}

/// The rate base factor^i, to six significant digits: rates read well, and hash the same on machines
/// whose `pow` differs in the last bit.
fn rate_at(base: f64, factor: f64, i: i32) -> f64 {
    if i == 0 {
        return base;
    }
    let rate = base * factor.powi(i);
    format!("{rate:.5e}").parse().unwrap_or(rate)
}

/// The grid around `base`, from the step nearest to `centre`.
fn grid(critical: &CriticalBatchConfig, base: f64, centre: f64) -> RateSearch {
    let factor = critical.rate_factor.ln();
    // A limit that lies on the grid belongs to it.
    let steps = |rate: f64| (rate / base).ln() / factor;
    let low = critical
        .smallest_rate
        .map_or(-WIDEST, |rate| (steps(rate) - 1e-6).ceil() as i32);
    let high = critical
        .largest_rate
        .map_or(WIDEST, |rate| (steps(rate) + 1e-6).floor() as i32);
    // A place half-way between two steps is the same on machines whose `ln` differs in the last bit.
    let centre = ((steps(centre) * 1e6).round() / 1e6).round();
    let centre = if centre.is_finite() { centre as i32 } else { 0 };
    RateSearch {
        low,
        high,
        centre: centre.clamp(low.min(high), high.max(low)),
    }
}

/// The smallest and the largest rate that a search from `base` may try.
pub fn rate_limits(critical: &CriticalBatchConfig, base: f64) -> (f64, f64) {
    let grid = grid(critical, base, base);
    let at = |i| rate_at(base, critical.rate_factor, i);
    (at(grid.low), at(grid.high))
}

/// Every combination of the other keys that are searched over; one without any where there are none.
fn combinations(critical: &CriticalStudy) -> Vec<Vec<(String, Value)>> {
    let mut all = vec![Vec::new()];
    for axis in &critical.search {
        all = all
            .into_iter()
            .flat_map(|before: Vec<(String, Value)>| {
                axis.values.iter().map(move |values| {
                    let own = axis.keys.iter().cloned().zip(values.iter().cloned());
                    before.iter().cloned().chain(own).collect()
                })
            })
            .collect();
    }
    all
}

/// Lets trials start from the checkpoints of others.
struct Branching<'a> {
    inner: &'a dyn TrialRunner,
    folder: &'a StudyFolder,
    from: &'a BTreeMap<String, String>,
}

impl TrialRunner for Branching<'_> {
    fn updates(&self, study: &StudyConfig, spec: &TrialSpec) -> Result<u64, BoxError> {
        self.inner.updates(study, spec)
    }

    fn run(
        &self,
        spec: &TrialSpec,
        folder: &Path,
        control: &TrialControl<'_>,
    ) -> Result<TrialOutcome, TrialError> {
        if let Some(from) = self.from.get(&spec.id) {
            self.inner
                .branch(spec, from, &self.folder.trial(from), folder)?;
        }
        self.inner.run(spec, folder, control)
    }

    fn estimate_seconds(&self, spec: &TrialSpec) -> Option<f64> {
        self.inner.estimate_seconds(spec)
    }

    fn manifest(&self, spec: &TrialSpec) -> Map<String, Value> {
        self.inner.manifest(spec)
    }

    fn files(&self, spec: &TrialSpec) -> Vec<&'static str> {
        self.inner.files(spec)
    }
}

/// What a round of the study is about to do.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// The plan so far.
    pub plan: &'a Plan,
    /// The indices of those that this process takes on.
    pub pending: &'a [usize],
}

/// The trials that the study comes to by the results so far, and the ids of those that have none.
///
/// # Errors
/// If a trial is impossible, or a result cannot be read.
pub fn critical_trials(
    study: &StudyConfig,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
) -> Result<(Vec<TrialSpec>, Vec<String>), StudyError> {
    let mut readings = Readings::new(folder, runner, false);
    let (wanted, pending) = unfold(study, &mut readings)?;
    Ok((wanted.into_iter().map(|w| w.spec).collect(), pending))
}

/// All trials of the study by the results so far, and the ids of those without one.
fn unfold(
    study: &StudyConfig,
    readings: &mut Readings<'_>,
) -> Result<(Vec<Wanted>, Vec<String>), StudyError> {
    let Some(critical) = &study.critical_batch else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mut unfolding = Unfolding {
        study,
        critical,
        readings,
        wanted: Vec::new(),
        pending: Vec::new(),
    };
    let seeds = &study.seeds;
    for case in study.trials.chunks(seeds.len().max(1)) {
        unfolding.case(&case[0], seeds)?;
    }
    let mut seen = BTreeSet::new();
    unfolding.wanted.retain(|w| seen.insert(w.spec.id.clone()));
    Ok((unfolding.wanted, unfolding.pending))
}

/// Asks the runner about a trial at every batch of every case, and about what the other measurements
/// need, before the first one runs.
///
/// # Errors
/// For the first trial that is impossible.
pub fn check_critical(study: &StudyConfig, runner: &dyn TrialRunner) -> Result<(), StudyError> {
    let Some(critical) = &study.critical_batch else {
        return Ok(());
    };
    let config = &critical.config;
    let mut trials = Vec::new();
    for start in study
        .trials
        .chunks(study.seeds.len().max(1))
        .map(|case| &case[0])
    {
        let mut batches = config.batches.clone();
        if let Some(branched) = &config.branched {
            let factors = branched.factors(&config.batches);
            let largest = factors.last().copied().unwrap_or(1);
            batches.push(largest * branched.base(&config.batches));
        }
        for batch in batches {
            let mut point = CriticalBatchConfig::case(&start.point);
            point.push(("train.global_batch".to_owned(), batch.into()));
            let set = [("train.steps".to_owned(), config.budget_steps.into())];
            trials.push(study.trial(point, &set, &[], start.seed)?);
        }
    }
    Plan::new(study.with_trials(trials), runner).map(drop)
}

/// Runs a study of the critical batch size to its end: round after round, the trials that follow from
/// the results of those before. The report is made once no more follow. Several processes may do so in
/// one folder: each trial is run once, and who has nothing to do waits for the others' results. A
/// shard begins with its share of each round and then helps with the rest.
///
/// # Errors
/// As [`execute`](fn@execute); and if a trial of the search is impossible.
pub fn execute_critical(
    study: &StudyConfig,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
    options: &Options,
    session: &Session<'_>,
    announce: &dyn Fn(Round<'_>),
) -> Result<Execution, StudyError> {
    check_critical(study, runner)?;
    let mut readings = Readings::new(folder, runner, options.retry_failed);
    let mut updates = BTreeMap::new();
    let mut ran = 0;
    let quiet = Session {
        report: &|_| Ok(Vec::new()),
        ..*session
    };
    loop {
        let (wanted, pending) = unfold(study, &mut readings)?;
        let starts = |w: &Wanted| Some((w.spec.id.clone(), w.from.clone()?));
        let from: BTreeMap<String, String> = wanted.iter().filter_map(starts).collect();
        let runner = Branching {
            inner: runner,
            folder,
            from: &from,
        };
        let trials = wanted.into_iter().map(|w| w.spec).collect();
        let plan = Plan::growing(study.with_trials(trials), &runner, &mut updates)?;
        let only = |indices: Vec<usize>, growing| Options {
            selection: Selection::All,
            only: Some(indices),
            growing,
            ..options.clone()
        };
        if pending.is_empty() {
            let execution = execute(&plan, folder, &runner, &only(Vec::new(), false), session)?;
            return Ok(Execution { ran, ..execution });
        }
        let is_pending: BTreeSet<&String> = pending.iter().collect();
        let free: Vec<usize> = (0..plan.trials().len())
            .filter(|&index| {
                let id = &plan.trials()[index].id;
                is_pending.contains(id) && !folder.is_running(id)
            })
            .collect();
        let own: Vec<usize> = match options.selection {
            Selection::Shard { number, of } => {
                free.iter().skip(number - 1).step_by(of).copied().collect()
            }
            _ => free.clone(),
        };
        let own = if own.is_empty() { free } else { own };
        if own.is_empty() {
            // Other processes have all that is left of this round.
            std::thread::sleep(Duration::from_millis(LOOK_MILLISECONDS));
        } else {
            announce(Round {
                plan: &plan,
                pending: &own,
            });
            let execution = execute(&plan, folder, &runner, &only(own, true), &quiet)?;
            ran += execution.ran;
            if session.stop.load(Ordering::Relaxed) {
                return Ok(Execution {
                    ran,
                    interrupted: true,
                    report: None,
                    ..execution
                });
            }
        }
        if session.stop.load(Ordering::Relaxed) {
            let execution = execute(&plan, folder, &runner, &only(Vec::new(), true), &quiet)?;
            return Ok(Execution {
                ran,
                interrupted: true,
                report: None,
                ..execution
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_holds_the_first_rate_and_its_limits() {
        let critical = |low, high| CriticalBatchConfig {
            batches: vec![8, 16],
            budget_epochs: 1.0,
            budget_steps: 1,
            rate_factor: 2.0,
            smallest_rate: low,
            largest_rate: high,
            crossing: crate::config::Crossing::Interpolated,
            early_stopping: true,
            noise: None,
            branched: None,
        };
        let found = grid(&critical(Some(0.025), Some(0.9)), 0.1, 0.35);
        assert_eq!((found.low, found.centre, found.high), (-2, 2, 3));
        let found = grid(&critical(None, Some(0.1)), 0.1, 40.0);
        assert_eq!((found.low, found.centre, found.high), (-WIDEST, 0, 0));
        assert_eq!(rate_at(0.1, 2.0, 3), 0.8);
        assert_eq!(rate_at(0.1, 2.0, 0), 0.1);
    }

    #[test]
    fn every_combination_of_other_keys_is_searched() {
        let axis = |key: &str, values: &[f64]| crate::config::Axis {
            keys: vec![key.to_owned()],
            values: values.iter().map(|&v| vec![json!(v)]).collect(),
        };
        let critical = |search| CriticalStudy {
            config: CriticalBatchConfig {
                batches: vec![8, 16],
                budget_epochs: 1.0,
                budget_steps: 1,
                rate_factor: 2.0,
                smallest_rate: None,
                largest_rate: None,
                crossing: crate::config::Crossing::Interpolated,
                early_stopping: true,
                noise: None,
                branched: None,
            },
            search,
        };
        assert_eq!(combinations(&critical(vec![])), [vec![]]);
        let all = combinations(&critical(vec![axis("a", &[1.0, 2.0]), axis("b", &[3.0])]));
        let expected: Vec<Vec<(String, Value)>> = [1.0, 2.0]
            .iter()
            .map(|a| vec![("a".to_owned(), json!(a)), ("b".to_owned(), json!(3.0))])
            .collect();
        assert_eq!(all, expected);
    }
}
