//! A study of the critical batch size, read from its folder.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::answer::{Costs, batch_point, case, geometric_mean};
use super::types::{
    Branch, BranchMoment, Case, Cost, CriticalBatch, Noise, NoisePoint, NoiseSummary, SeedPoint,
    Tried, TriedEnd,
};
use crate::analysis::labels::value_label;
use crate::analysis::noise_course::{NoiseTables, noise_course, noise_of_rows};
use crate::analysis::probe_tables::read_probes;
use crate::analysis::probes::{Probe, ProbeRow, When, quotient_of};
use crate::analysis::tables::{AnalysisError, read_steps};
use crate::config::{
    self, ConfigError, CriticalBatchConfig, CriticalStudy, Crossing, Metric, StudyConfig,
    TargetConfig,
};
use crate::math::noise_scale::Ratio;
use crate::math::statistics::Interval;
use crate::study::{
    NOISE_PIECES, Reading, StudyFolder, StudyRecord, TrialRecord, TrialState, rate_limits, role,
    seconds_by_trial,
};
use crate::train::Status;

/// What a moment of the noise probe takes in gradients of its examples: norms, inner products and the
/// gradients of pieces one each, a product with the Hessian two.
const GRADIENTS_OF_A_MOMENT: u64 = 3 + 2 * (NOISE_PIECES as u64 + 1);

/// Why a study could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StudyReadError {
    /// A table or the plan could not be read.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// The study file in the folder could not be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The folder is that of another kind of study.
    #[error(
        "{folder}: the study has no [critical_batch]\nhint: `batchlab report` makes the report of other studies"
    )]
    NotCritical {
        /// The folder.
        folder: String,
    },
}

/// A trial of the plan that has a result.
struct Done<'a> {
    record: &'a TrialRecord,
    reading: Reading,
}

impl Done<'_> {
    fn integer(&self, key: &str) -> Option<u64> {
        self.record.point.get(key).and_then(Value::as_u64)
    }

    fn rate(&self) -> Option<f64> {
        self.record
            .point
            .get("learning_rate.base_lr")
            .and_then(Value::as_f64)
    }

    fn is(&self, role: &str) -> bool {
        self.record.point.get("role").and_then(Value::as_str) == Some(role)
    }
}

/// Whether the folder holds a study of the critical batch size.
pub fn is_critical(folder: &Path) -> bool {
    let Ok(record) = StudyRecord::read(folder) else {
        return false;
    };
    record.axes.iter().any(|axis| axis.keys == ["role"])
}

/// Reads the folder of a study that `batchlab critical-batch` ran.
///
/// # Errors
/// If the folder holds no such study, or a file of it cannot be read.
pub fn critical_batch(folder: &Path) -> Result<CriticalBatch, StudyReadError> {
    let record = StudyRecord::read(folder).map_err(AnalysisError::from)?;
    let study = config::load(&folder.join("config.toml"), &record.overrides)?;
    let Some(critical) = &study.critical_batch else {
        return Err(StudyReadError::NotCritical {
            folder: folder.display().to_string(),
        });
    };
    let place = StudyFolder::at(folder);
    // Times serve the column of seconds alone: a damaged table is as good as none.
    let seconds = seconds_by_trial(&place).unwrap_or_default();
    let mut cases = Vec::new();
    let mut finished = 0;
    let mut targets: Vec<TargetConfig> = Vec::new();
    for start in study.trials.chunks(study.seeds.len().max(1)) {
        let Some(start) = start.first() else { continue };
        let Some(target) = start.config.train.target else {
            continue;
        };
        if !targets.contains(&target) {
            targets.push(target);
        }
        let point = CriticalBatchConfig::case(&start.point);
        let own = |trial: &&TrialRecord| {
            let same = |(key, value): &(String, Value)| trial.point.get(key) == Some(value);
            point.iter().all(same)
        };
        let mut done = Vec::new();
        for trial in record.trials.iter().filter(own) {
            let files = ["steps.csv", "evaluations.csv"];
            if let TrialState::Done(result) = place.state(&trial.id, &files) {
                let folder = place.trial(&trial.id);
                let reading = Reading::of(&folder, &result, &target, critical.config.crossing)
                    .map_err(AnalysisError::from)?;
                finished += 1;
                done.push(Done {
                    record: trial,
                    reading,
                });
            }
        }
        let words: Vec<String> = point
            .iter()
            .map(|(key, value)| value_label(key, value))
            .collect();
        let source = source_name(&start.config.data.source);
        let context = Context {
            place: &place,
            critical,
            study: &study,
            base_rate: start.config.learning_rate.base_lr,
            seconds: &seconds,
            done: &done,
        };
        cases.push(context.case(words.join(", "), source.as_deref())?);
    }
    let left = record.trials.len() - finished;
    let unfinished = (record.complete != Some(true)).then(|| {
        let known = record.trials.len();
        format!(
            "The study is not done: {left} of the {known} trials known so far have no result, and more may follow \
             from theirs. These numbers will change."
        )
    });
    Ok(CriticalBatch {
        unfinished,
        name: study.name.clone(),
        description: study.description.clone(),
        target: targets_in_words(&targets),
        crossing: Some(
            match critical.config.crossing {
                Crossing::Interpolated => {
                    "where the straight line through the metric at the two evaluations around it meets the target"
                }
                Crossing::Evaluation => "at the first evaluation that reaches the target",
            }
            .to_owned(),
        ),
        cases,
    })
}

/// The target; where cases have their own, what those have in common.
fn targets_in_words(targets: &[TargetConfig]) -> Option<String> {
    let first = targets.first()?;
    let alike = |other: &TargetConfig| (other.split, other.metric) == (first.split, first.metric);
    Some(match targets {
        [only] => target_words(only),
        _ if targets.iter().all(alike) => {
            let words = target_words(first);
            let words = words
                .rsplit_once(' ')
                .map_or(words.as_str(), |(words, _)| words);
            format!("{words} what each case says")
        }
        _ => "what each case says".to_owned(),
    })
}

fn target_words(target: &TargetConfig) -> String {
    let split = match target.split {
        config::Split::Train => "training",
        config::Split::Validation => "validation",
        config::Split::Test => "test",
    };
    match target.metric {
        Metric::Accuracy => format!("{split} accuracy of at least {}", target.value),
        Metric::Loss => format!("{split} loss of at most {}", target.value),
    }
}

fn source_name(source: &config::DataSource) -> Option<String> {
    match serde_json::to_value(source).ok()? {
        Value::String(name) => Some(name),
        Value::Object(kind) => kind.keys().next().cloned(),
        _ => None,
    }
}

/// What the numbers of one case are read from.
struct Context<'a> {
    place: &'a StudyFolder,
    critical: &'a CriticalStudy,
    study: &'a StudyConfig,
    /// The first rate of the case.
    base_rate: f64,
    seconds: &'a BTreeMap<String, f64>,
    done: &'a [Done<'a>],
}

impl Context<'_> {
    fn case(&self, label: String, source: Option<&str>) -> Result<Case, StudyReadError> {
        let batches = &self.critical.config.batches;
        let points = batches
            .iter()
            .map(|&batch| {
                let batch = batch as u64;
                let seeds = self.study.seeds.iter();
                batch_point(
                    batch,
                    seeds.filter_map(|&seed| self.seed(batch, seed)).collect(),
                )
            })
            .filter(|point| !point.seeds.is_empty())
            .collect();
        let noise = self.noise()?;
        let branched = self.branched()?;
        let costs = self.costs()?;
        Ok(case(label, points, noise, branched, &costs, source))
    }

    /// What each way took. The noise scale and the branches take a good rate at their batch, so the
    /// search there counts as theirs too; the noise scale at the start takes neither rate nor run.
    fn costs(&self) -> Result<Costs, StudyReadError> {
        let of = |wanted: &dyn Fn(&Done<'_>) -> bool| {
            let own: Vec<&Done<'_>> = self.done.iter().filter(|trial| wanted(trial)).collect();
            self.cost(&own)
        };
        let config = &self.critical.config;
        let searched = |trial: &Done<'_>, batch: usize| {
            trial.is(role::SEARCH) && trial.integer("train.global_batch") == Some(batch as u64)
        };
        let mut costs = Costs {
            sweep: of(&|trial| trial.is(role::SEARCH)),
            ..Costs::default()
        };
        if let Some(branched) = &config.branched {
            let base = branched.base(&config.batches);
            let branches = of(&|t| t.is(role::TRUNK) || t.is(role::BRANCH));
            costs.branched = sum(branches, of(&|trial| searched(trial, base)));
        }
        if let Some(noise) = &config.noise {
            let batch = noise.batch.unwrap_or(config.middle());
            let (mut measured, mut started) = (0, 0);
            for run in self.done.iter().filter(|trial| trial.is(role::NOISE)) {
                let folder = self.place.trial(&run.record.id);
                let rows = read_probes(&folder, run.record.seed)?.unwrap_or_default();
                let mut moments: Vec<(Option<u64>, u64)> = rows
                    .iter()
                    .map(|row| (row.step, row.examples.unwrap_or_default()))
                    .collect();
                moments.dedup();
                measured += moments
                    .iter()
                    .map(|m| m.1 * GRADIENTS_OF_A_MOMENT)
                    .sum::<u64>();
                started += moments.first().map_or(0, |m| m.1 * GRADIENTS_OF_A_MOMENT);
            }
            let run = of(&|trial| trial.is(role::NOISE)).map(|cost| Cost {
                examples: cost.examples + measured,
                ..cost
            });
            costs.noise_start = run.map(|cost| Cost {
                examples: started,
                // Those of the start alone are not known.
                seconds: None,
                trials: cost.trials,
            });
            costs.noise = sum(run, of(&|trial| searched(trial, batch)));
        }
        Ok(costs)
    }

    /// Examples, seconds and number of trials. A trial that went on from another's checkpoint took
    /// only what came after it.
    fn cost(&self, trials: &[&Done<'_>]) -> Option<Cost> {
        if trials.is_empty() {
            return None;
        }
        let own = |trial: &Done<'_>| {
            let shared = if trial.is(role::BRANCH) {
                trial.integer("moment")
            } else if trial.is(role::TRUNK) {
                self.moment_before(trial)
            } else {
                None
            };
            let batch = trial.integer("train.global_batch").unwrap_or_default();
            let examples = trial.reading.examples;
            examples.saturating_sub(shared.unwrap_or_default() * batch)
        };
        let seconds: Option<f64> = trials
            .iter()
            .map(|trial| self.seconds.get(&trial.record.id))
            .sum();
        Some(Cost {
            examples: trials.iter().map(|trial| own(trial)).sum(),
            seconds,
            trials: trials.len(),
        })
    }

    /// The moment of the part of the trunk before this one.
    fn moment_before(&self, trunk: &Done<'_>) -> Option<u64> {
        let own = trunk.integer("moment")?;
        let same =
            |other: &&Done<'_>| other.is(role::TRUNK) && other.record.seed == trunk.record.seed;
        let moments = self
            .done
            .iter()
            .filter(same)
            .filter_map(|t| t.integer("moment"));
        moments.filter(|&moment| moment < own).max()
    }

    /// The search at one batch with one seed; `None` before its first result.
    fn seed(&self, batch: u64, seed: u64) -> Option<SeedPoint> {
        let here = |trial: &&Done<'_>| {
            trial.is(role::SEARCH)
                && trial.record.seed == seed
                && trial.integer("train.global_batch") == Some(batch)
        };
        let mut tried: Vec<Tried> = self
            .done
            .iter()
            .filter(here)
            .filter_map(|trial| {
                let reading = &trial.reading;
                let end = match reading.status {
                    Status::Diverged => TriedEnd::Diverged,
                    Status::Failed => TriedEnd::Failed,
                    _ if reading.steps.is_some() => TriedEnd::Reached,
                    _ if reading.stopped => TriedEnd::Overtaken,
                    _ => TriedEnd::Censored,
                };
                Some(Tried {
                    rate: trial.rate()?,
                    others: self.others(trial),
                    steps: reading.steps,
                    end,
                    made: reading.made,
                    best: reading.best,
                })
            })
            .collect();
        if tried.is_empty() {
            return None;
        }
        tried.sort_by(|a, b| a.others.cmp(&b.others).then(a.rate.total_cmp(&b.rate)));
        let steps = |tried: &Tried| tried.steps.unwrap_or(f64::INFINITY);
        let fewest = tried.iter().map(steps).fold(f64::INFINITY, f64::min);
        let alike: Vec<&Tried> = tried.iter().filter(|t| t.steps == Some(fewest)).collect();
        // Of rates that took as many updates, the middle one.
        let best = alike.get((alike.len().max(1) - 1) / 2).copied();
        let (low, high) = rate_limits(&self.critical.config, self.base_rate);
        let at_a_limit = |rate: f64| rate <= low * (1.0 + 1e-9) || rate >= high * (1.0 - 1e-9);
        let edge = match best {
            Some(best) => at_a_limit(best.rate),
            None => false,
        };
        let ran = tried.iter().filter(|tried| tried.end != TriedEnd::Failed);
        let longest = ran.map(|tried| tried.made).max()?;
        Some(SeedPoint {
            seed,
            steps: best.and_then(|best| best.steps),
            bound: longest.max(1) as f64,
            rate: best.map(|best| best.rate),
            others: best.map(|best| best.others.clone()).unwrap_or_default(),
            edge,
            tried,
        })
    }

    /// Values of the other keys searched over.
    fn others(&self, trial: &Done<'_>) -> String {
        let keys = self.critical.search.iter().flat_map(|axis| &axis.keys);
        let word = |key: &String| {
            let value = trial.record.point.get(key)?;
            let last = key.rsplit('.').next().unwrap_or(key);
            Some(format!("{last}={}", config::value_text(value)))
        };
        keys.filter_map(word).collect::<Vec<_>>().join(" ")
    }

    fn noise(&self) -> Result<Option<Noise>, StudyReadError> {
        let runs: Vec<&Done<'_>> = self
            .done
            .iter()
            .filter(|trial| trial.is(role::NOISE) && trial.reading.status != Status::Failed)
            .collect();
        let (mut tables, mut probes) = (Vec::new(), Vec::new());
        let (mut steps, mut epochs) = (0.0, 0.0);
        for run in &runs {
            let folder = self.place.trial(&run.record.id);
            tables.extend(NoiseTables::read(&folder)?);
            probes.push(read_probes(&folder, run.record.seed)?.unwrap_or_default());
            if let Some(last) = read_steps(&folder)?.and_then(|rows| rows.last().copied()) {
                steps += last.step as f64;
                epochs += last.epoch;
            }
        }
        let (Some(first), Some(batch)) = (
            runs.first(),
            runs.first()
                .and_then(|run| run.integer("train.global_batch")),
        ) else {
            return Ok(None);
        };
        let windows = noise_course(0, batch, &tables).map(|course| course.windows);
        let course = windows
            .unwrap_or_default()
            .iter()
            .map(|window| NoisePoint {
                step: window.epoch * steps / epochs,
                b_simple: window.parts.b_simple.value.ok(),
                interval: interval(&window.parts.b_simple),
            })
            .collect();
        let mut summary = Vec::new();
        for (when, moment) in [("start", When::Start), ("target", When::End)] {
            summary.push(at_moment(when, moment, &probes));
            if when == "start" {
                let average = noise_of_rows(&tables);
                summary.push(NoiseSummary {
                    when: "average",
                    b_simple: average.as_ref().and_then(|parts| parts.b_simple.value.ok()),
                    b_simple_interval: average.as_ref().and_then(|p| interval(&p.b_simple)),
                    ..average_of_moments(&probes)
                });
            }
        }
        Ok(Some(Noise {
            batch,
            rate: first.rate().unwrap_or(f64::NAN),
            course,
            summary,
        }))
    }

    fn branched(&self) -> Result<Vec<BranchMoment>, StudyReadError> {
        let Some(branched) = &self.critical.config.branched else {
            return Ok(Vec::new());
        };
        let batches = &self.critical.config.batches;
        let smoothing = branched.smoothing(batches);
        let base = branched.base(batches) as u64;
        let factors = branched.factors(batches);
        let largest = (factors.last().copied().unwrap_or(1) as u64 * base) as f64;
        // The moments of a seed are shares of its own updates to the target, so they are matched by
        // their place.
        let mut moments: Vec<Vec<(u64, Vec<&Done<'_>>)>> = Vec::new();
        for &seed in &self.study.seeds {
            let mut own: BTreeMap<u64, Vec<&Done<'_>>> = BTreeMap::new();
            for trial in self
                .done
                .iter()
                .filter(|t| t.is(role::BRANCH) && t.record.seed == seed)
            {
                own.entry(trial.integer("moment").unwrap_or_default())
                    .or_default()
                    .push(trial);
            }
            for (i, moment) in own.into_iter().enumerate() {
                if moments.len() <= i {
                    moments.push(Vec::new());
                }
                moments[i].push(moment);
            }
        }
        let mut found = Vec::new();
        for seeds in &moments {
            let mut branches: BTreeMap<u64, Branch> = BTreeMap::new();
            let (mut critical, mut at_least) = (Vec::new(), false);
            for (moment, trials) in seeds {
                let mut losses: Vec<(u64, Option<f64>)> = Vec::new();
                for trial in trials {
                    if trial.reading.status == Status::Failed {
                        continue;
                    }
                    let batch = trial.integer("branch_batch").unwrap_or(base);
                    let loss = match trial.reading.status {
                        Status::Completed | Status::Censored => smoothed(
                            &self.place.trial(&trial.record.id),
                            *moment,
                            smoothing,
                            largest,
                        )?,
                        _ => None,
                    };
                    losses.push((batch, loss));
                    let branch = branches.entry(batch).or_insert(Branch {
                        batch,
                        losses: Vec::new(),
                        diverged: 0,
                    });
                    match loss {
                        Some(loss) => branch.losses.push(loss),
                        None => branch.diverged += 1,
                    }
                }
                losses.sort_by_key(|loss| loss.0);
                if let Some((value, beyond)) = largest_within(&losses, branched.tolerance) {
                    critical.push(value);
                    at_least |= !beyond;
                }
            }
            let passed: f64 = seeds.iter().map(|(moment, _)| (moment * base) as f64).sum();
            found.push(BranchMoment {
                examples: passed / seeds.len().max(1) as f64,
                base_batch: base,
                branches: branches.into_values().collect(),
                tolerance: branched.tolerance,
                critical: geometric_mean(&critical),
                at_least,
            });
        }
        Ok(found)
    }
}

fn sum(one: Option<Cost>, other: Option<Cost>) -> Option<Cost> {
    let one = one?;
    let Some(other) = other else {
        return Some(one);
    };
    Some(Cost {
        examples: one.examples + other.examples,
        seconds: one.seconds.zip(other.seconds).map(|(a, b)| a + b),
        trials: one.trials + other.trials,
    })
}

/// The training loss near the end of a branch, averaged over its updates with weights n exp(-(L - e)/tau):
/// n examples of the update, e those processed before it, where its loss was measured. L is where the last
/// update of the largest branch begins; later ones of other branches do not count, so that all are
/// averaged over the same part.
fn smoothed(
    folder: &Path,
    moment: u64,
    tau: f64,
    largest: f64,
) -> Result<Option<f64>, StudyReadError> {
    let rows = read_steps(folder)?.unwrap_or_default();
    let own = rows.iter().filter(|row| row.step > moment);
    Ok(smoothed_loss(
        own.map(|row| (row.global_batch.unwrap_or(1) as f64, row.loss)),
        tau,
        largest,
    ))
}

fn smoothed_loss(updates: impl Iterator<Item = (f64, f64)>, tau: f64, largest: f64) -> Option<f64> {
    let updates: Vec<(f64, f64)> = updates.collect();
    let all: f64 = updates.iter().map(|update| update.0).sum();
    // Branches of one length may end a part of an update apart.
    let last = (all / largest).floor() * largest - largest;
    let (mut sum, mut weights, mut before) = (0.0, 0.0, 0.0);
    for (examples, loss) in updates {
        if before <= last {
            let weight = examples * f64::exp(-(last - before) / tau);
            sum += weight * loss;
            weights += weight;
        }
        before += examples;
    }
    let loss = sum / weights;
    loss.is_finite().then_some(loss)
}

/// The largest batch up to which no branch ends more than `tolerance` above the first, ascending in
/// batch, and whether one beyond it does. Between the last that does not and the first that does it is
/// interpolated in the logarithm of the batch; a branch without a loss is beyond, without a place to
/// interpolate to. `None` without the first, which is the base.
fn largest_within(losses: &[(u64, Option<f64>)], tolerance: f64) -> Option<(f64, bool)> {
    let (first, base) = *losses.first()?;
    let base = base?;
    let mut last = (first as f64, 0.0);
    for &(batch, loss) in &losses[1..] {
        let Some(loss) = loss else {
            return Some((last.0, true));
        };
        let above = loss - base;
        if above > tolerance {
            let share = (tolerance - last.1) / (above - last.1);
            let log = last.0.ln() + share * ((batch as f64).ln() - last.0.ln());
            return Some((log.exp(), true));
        }
        last = (batch as f64, above);
    }
    Some((last.0, false))
}

fn interval(ratio: &Ratio) -> Option<Interval> {
    ratio.interval.map(|interval| Interval {
        // A lower end below 0 says that the numerator cannot be told from 0.
        low: interval.low().max(0.0),
        high: interval.high().unwrap_or(f64::INFINITY),
    })
}

/// The noise scales at one moment of the runs of all seeds.
fn at_moment(when: &'static str, moment: When, runs: &[Vec<ProbeRow>]) -> NoiseSummary {
    let at = |quantity: &str, rows: &[ProbeRow]| {
        rows.iter()
            .find(|row| row.when == moment && row.key.is(Probe::Noise, quantity))
            .and_then(|row| row.value.value)
    };
    summary(when, runs, at)
}

/// The same from the averages over all moments of a run, between start and end.
fn average_of_moments(runs: &[Vec<ProbeRow>]) -> NoiseSummary {
    let at = |quantity: &str, rows: &[ProbeRow]| {
        let values: Vec<f64> = rows
            .iter()
            .filter(|row| row.key.is(Probe::Noise, quantity))
            .filter_map(|row| row.value.value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    summary("average", runs, at)
}

fn summary(
    when: &'static str,
    runs: &[Vec<ProbeRow>],
    at: impl Fn(&str, &[ProbeRow]) -> Option<f64>,
) -> NoiseSummary {
    let quotient = |above: &str, below: &str| {
        let pairs: Vec<(f64, f64)> = runs
            .iter()
            .filter_map(|rows| at(above, rows).zip(at(below, rows)))
            .collect();
        (!pairs.is_empty()).then(|| quotient_of(&pairs))
    };
    let simple = quotient("tr_sigma", "squared_gradient");
    let noise = quotient("tr_h_sigma", "ghg");
    let value = |ratio: &Option<Ratio>| ratio.as_ref().and_then(|ratio| ratio.value.ok());
    let span = |ratio: &Option<Ratio>| ratio.as_ref().and_then(interval);
    NoiseSummary {
        when,
        b_simple: value(&simple),
        b_simple_interval: span(&simple),
        b_noise: value(&noise),
        b_noise_interval: span(&noise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_averaged_over_the_same_part_whatever_their_batch() {
        // A loss that falls in a straight line, seen by branches of 8 and of 64 over 1024 examples.
        let seen = |batch: usize| {
            let updates = (0..1024 / batch).map(|i| {
                let before = (i * batch) as f64;
                // The mean over the part until the next update, as a fine branch sees it.
                (batch as f64, 10.0 - before * 1e-3)
            });
            smoothed_loss(updates, 128.0, 64.0).unwrap()
        };
        assert!(
            (seen(8) - seen(64)).abs() < 0.04,
            "{} {}",
            seen(8),
            seen(64)
        );
        // The last part of the small branch alone does not count.
        let mut late = (0..128).map(|i| (8.0, if i < 121 { 1.0 } else { 100.0 }));
        assert_eq!(smoothed_loss(&mut late, 128.0, 64.0), Some(1.0));
        assert_eq!(smoothed_loss(std::iter::empty(), 128.0, 64.0), None);
    }

    #[test]
    fn the_critical_batch_of_branches_lies_where_the_loss_leaves_the_tolerance() {
        let at = |losses: &[(u64, Option<f64>)]| largest_within(losses, 0.01);
        let some = |pairs: &[(u64, f64)]| -> Vec<(u64, Option<f64>)> {
            pairs.iter().map(|&(b, l)| (b, Some(l))).collect()
        };
        // 0.005 above at 16, 0.015 at 64: half-way in the logarithm.
        let (value, beyond) = at(&some(&[(8, 1.0), (16, 1.005), (64, 1.015)])).unwrap();
        assert!((value - 32.0).abs() < 1e-9 && beyond);
        let all = at(&some(&[(8, 1.0), (16, 0.9), (64, 1.009)]));
        assert_eq!(all, Some((64.0, false)));
        let mut losses = some(&[(8, 1.0), (16, 1.0), (32, 1.0)]);
        losses[2].1 = None;
        assert_eq!(at(&losses), Some((16.0, true)));
        losses[0].1 = None;
        assert_eq!(at(&losses), None);
        assert_eq!(at(&[]), None);
    }
}
