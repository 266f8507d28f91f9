//! How late the gradients of asynchronous runs were, and what they reached on the simulated clock.
//!
//! The staleness of a gradient is the number of updates made between the reading of its parameters and
//! its own. P replicas that live always have P - 1 gradients under way while another is applied, so
//! the staleness of all T gradients applied and the age of those still under way at the end add up to
//! (P - 1) T, unless a bound lets replicas wait: the mean is P - 1, less the age under way over T.
//! Exponential times make it geometric, P(k) = (1 - 1/P)^k/P (Mitliagkas et al. 2016, arXiv 1605.09774).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::generalization_gap::{GapAnalysis, Series, Trial, over_seeds};
use super::numbers::{count, plural, significant};
use super::tables::{AnalysisError, read_evaluations, read_optional};
use crate::config::{GradientTimes, Metric, Update};
use crate::math::statistics::Estimate;
use crate::store::{self, Table};
use crate::study::StudyError;
use crate::train::StalenessOutcome;

/// Replicas that the words of a clock name one by one.
const NAMED: usize = 3;

/// What the asynchronous runs of a study say about late gradients.
#[derive(Debug, Clone, PartialEq)]
pub struct StalenessAnalysis {
    /// Finished trials with asynchronous updates.
    pub trials: usize,
    /// Staleness by clock, in plan order.
    pub clocks: Vec<ClockStaleness>,
    /// Staleness by rule and batch, in the order of the points.
    pub points: Vec<PointStaleness>,
    /// The headline metric over simulated seconds, in the order of the points.
    pub curves: Vec<TimeCurve>,
    /// Mean staleness by number of replicas, of trials in which all live and nobody waits.
    pub means: Vec<MeansOfReplicas>,
    /// Trials with a death or a bound, whose mean is another.
    pub disturbed: usize,
    /// Whether times of evaluations stand between two rows of `staleness.csv`.
    pub interpolated: bool,
    /// Things a reader should know about the files.
    pub notes: Vec<String>,
}

/// What decides, with the seed, who reads which version and whose gradient comes next.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// Replicas P.
    pub replicas: u64,
    /// `train.update` less what changes rate and momentum; `None` where the trial's config is not there.
    settings: Option<Update>,
}

impl Clock {
    fn new(update: Option<&Update>, replicas: u64) -> Self {
        let mut settings = update.cloned();
        if let Some(Update::Asynchronous {
            divide_rate,
            correct_momentum,
            ..
        }) = &mut settings
        {
            (*divide_rate, *correct_momentum) = (false, false);
        }
        Self { replicas, settings }
    }

    /// Whether the geometric law holds: exponential times of equal replicas, which neither wait nor die.
    pub fn is_geometric(&self) -> bool {
        match &self.settings {
            Some(Update::Asynchronous {
                times: GradientTimes::Exponential,
                stragglers,
                transfer,
                service,
                ..
            }) => {
                stragglers.is_empty()
                    && *transfer == 0.0
                    && *service == 0.0
                    && self.is_undisturbed()
            }
            _ => false,
        }
    }

    /// Whether all replicas live and none waits for another, so that the mean staleness is P - 1.
    pub fn is_undisturbed(&self) -> bool {
        matches!(&self.settings, Some(Update::Asynchronous { bound: None, deaths, .. }) if deaths.is_empty())
    }

    /// "8 replicas", and what is unlike equal replicas with exponential times of mean 1 s.
    pub fn words(&self) -> String {
        let mut words = plural(self.replicas as usize, "replica", "replicas");
        let Some(Update::Asynchronous {
            times,
            seconds,
            bound,
            stragglers,
            deaths,
            transfer,
            service,
            detection,
            ..
        }) = &self.settings
        else {
            return words;
        };
        let number = |x: f64| short(x);
        let mut add = |text: String| {
            let _ = write!(words, ", {text}");
        };
        match times {
            GradientTimes::Exponential => {}
            GradientTimes::Constant => add("constant times".to_owned()),
            GradientTimes::Lognormal { cv } => add(format!("lognormal times (cv {})", number(*cv))),
            GradientTimes::ShiftedExponential { cv } => {
                add(format!("shifted exponential times (cv {})", number(*cv)));
            }
        }
        if *seconds != 1.0 {
            add(format!("{} s a gradient", number(*seconds)));
        }
        let named = |pairs: &[[f64; 2]], word: fn(f64, &str) -> String| {
            let mut all: Vec<String> = pairs
                .iter()
                .take(NAMED)
                .map(|[replica, value]| word(*replica, &number(*value)))
                .collect();
            if pairs.len() > NAMED {
                all.push(format!("{} more", pairs.len() - NAMED));
            }
            all
        };
        for text in named(stragglers, |r, x| format!("replica {r} slower \u{D7} {x}")) {
            add(text);
        }
        for text in named(deaths, |r, x| format!("replica {r} dies at {x} s")) {
            add(text);
        }
        if let Some(bound) = bound {
            add(format!("bound {bound}"));
        }
        for (value, name) in [
            (transfer, "transfer"),
            (service, "service"),
            (detection, "detection"),
        ] {
            if *value != 0.0 {
                add(format!("{name} {} s", number(*value)));
            }
        }
        words
    }
}

/// A number as it was written, where that is short.
fn short(x: f64) -> String {
    let text = x.to_string();
    if text.len() <= 6 {
        text
    } else {
        significant(x, 3)
    }
}

/// The staleness of all gradients that were made on one clock.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockStaleness {
    /// The clock.
    pub clock: Clock,
    /// Trials.
    pub trials: usize,
    /// Rules.
    pub rules: usize,
    /// Gradients of all trials by staleness, from 0 on; the last is not 0.
    pub histogram: Vec<u64>,
}

impl ClockStaleness {
    /// Gradients.
    pub fn gradients(&self) -> u64 {
        self.histogram
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Share of the gradients with each staleness, from 0 on.
    pub fn shares(&self) -> Vec<f64> {
        let all = self.gradients() as f64;
        self.histogram.iter().map(|&n| n as f64 / all).collect()
    }

    /// Share of the gradients that are at least so stale, from 0 on.
    pub fn at_least(&self) -> Vec<f64> {
        let all = self.gradients() as f64;
        let mut later = 0_u64;
        let mut shares: Vec<f64> = self
            .histogram
            .iter()
            .rev()
            .map(|&n| {
                later = later.saturating_add(n);
                later as f64 / all
            })
            .collect();
        shares.reverse();
        shares
    }
}

/// The geometric law of P equal replicas with exponential times: the share of gradients of staleness k,
/// (1 - 1/P)^k/P, and of those at least so stale, (1 - 1/P)^k.
pub fn geometric(replicas: u64, staleness: usize) -> (f64, f64) {
    let p = replicas.max(1) as f64;
    let at_least = (1.0 - 1.0 / p).powf(staleness as f64);
    (at_least / p, at_least)
}

/// The staleness of the trials of a rule at a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct PointStaleness {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// Index of the clock.
    pub clock: usize,
    /// Mean staleness, over seeds.
    pub mean: Estimate,
    /// Largest staleness of all seeds.
    pub largest: u64,
    /// Simulated seconds of the run, over seeds.
    pub seconds: Estimate,
    /// Gradients of the replica with the most of them, and of the one with the fewest: means over seeds.
    pub by_replica: Option<(f64, f64)>,
}

/// The headline metric of a rule at a batch over simulated time.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeCurve {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// `train.update` of its trials; `None` where their config is not there.
    pub update: Option<Update>,
    /// Points in order of updates; only those that every seed has.
    pub points: Vec<TimePoint>,
    /// Number of seeds.
    pub n: usize,
}

/// One evaluation of a [`TimeCurve`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimePoint {
    /// Updates made; the mean over seeds where they differ.
    pub step: u64,
    /// Simulated seconds, mean over seeds.
    pub seconds: f64,
    /// Mean of the metric over seeds.
    pub mean: f64,
    /// Lowest seed.
    pub low: f64,
    /// Highest seed.
    pub high: f64,
}

/// Mean staleness of the trials with equally many replicas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeansOfReplicas {
    /// Replicas P.
    pub replicas: u64,
    /// Trials.
    pub trials: usize,
    /// Lowest mean of a trial.
    pub low: f64,
    /// Highest mean of a trial.
    pub high: f64,
}

/// What `result.json` says of staleness; the rest of it is not looked at.
#[derive(Deserialize)]
struct Late {
    staleness: Option<StalenessOutcome>,
}

/// One finished asynchronous trial.
struct LateTrial {
    outcome: StalenessOutcome,
    update: Option<Update>,
    clock: usize,
}

fn damaged(path: &Path, problem: String) -> AnalysisError {
    AnalysisError::Study(StudyError::Record {
        path: path.to_owned(),
        problem,
    })
}

/// The staleness that a trial's result reports; `None` without a result, or of another kind of updates.
fn read_outcome(folder: &Path) -> Result<Option<StalenessOutcome>, AnalysisError> {
    let path = folder.join("result.json");
    let Some(text) = read_optional(&path)? else {
        return Ok(None);
    };
    let late: Late = serde_json::from_str(&text)
        .map_err(|e| damaged(&path, format!("not the result of a trial: {e}")))?;
    let made = |outcome: &StalenessOutcome| outcome.histogram.iter().any(|n| *n > 0);
    Ok(late.staleness.filter(made))
}

/// `train.update` of a trial; `None` where its config is not there.
fn read_update(folder: &Path) -> Result<Option<Update>, AnalysisError> {
    let path = folder.join("config.toml");
    let Some(text) = read_optional(&path)? else {
        return Ok(None);
    };
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| damaged(&path, e.to_string()))?;
    let update = table.get("train").and_then(|train| train.get("update"));
    update
        .map(|value| value.clone().try_into())
        .transpose()
        .map_err(|e: toml::de::Error| damaged(&path, format!("train.update: {}", e.message())))
}

/// Updates and their simulated seconds; `None` where there is no table.
fn read_seconds(folder: &Path) -> Result<Option<Vec<(u64, f64)>>, AnalysisError> {
    let path = folder.join("staleness.csv");
    if !store::exists(&path) {
        return Ok(None);
    }
    let table = Table::read(&path)?;
    let rows = table
        .integers("step")?
        .into_iter()
        .zip(table.numbers("seconds")?);
    let rows = rows.filter_map(|(step, seconds)| Some((step?, seconds.filter(|s| s.is_finite())?)));
    Ok(Some(rows.collect()))
}

/// The simulated time at which so many updates were made, and whether there is a row of it: between two
/// rows, by a straight line; before the first, from 0. `None` after the last.
fn seconds_at(step: u64, rows: &[(u64, f64)]) -> Option<(f64, bool)> {
    if step == 0 {
        return Some((0.0, true));
    }
    let after = rows.partition_point(|row| row.0 < step);
    let (next, then) = *rows.get(after)?;
    if next == step {
        return Some((then, true));
    }
    let (last, before) = after.checked_sub(1).map_or((0, 0.0), |i| rows[i]);
    let share = step.saturating_sub(last) as f64 / next.saturating_sub(last).max(1) as f64;
    Some((before + share * (then - before), false))
}

/// What the finished trials of a study say of late gradients; `None` where none had any.
///
/// # Errors
/// If a result, a config or a table of such a trial is unreadable or malformed.
pub(super) fn of_study(
    dir: &Path,
    analysis: &GapAnalysis,
) -> Result<Option<StalenessAnalysis>, AnalysisError> {
    let mut found = StalenessAnalysis {
        trials: 0,
        clocks: Vec::new(),
        points: Vec::new(),
        curves: Vec::new(),
        means: Vec::new(),
        disturbed: 0,
        interpolated: false,
        notes: Vec::new(),
    };
    let mut rules_of_clocks: Vec<Vec<usize>> = Vec::new();
    let mut means: BTreeMap<u64, MeansOfReplicas> = BTreeMap::new();
    for point in &analysis.points {
        let mut late: Vec<LateTrial> = Vec::new();
        let mut lines: Vec<Series> = Vec::new();
        let trials = point.trials.iter().map(|&i| &analysis.trials[i]);
        for trial in trials.filter(|t| t.finished()) {
            let folder = dir.join("trials").join(&trial.row.trial);
            let Some(outcome) = read_outcome(&folder)? else {
                continue;
            };
            let update = read_update(&folder)?;
            if update.is_none() {
                found.notes.push(format!(
                    "trials/{}/config.toml is not there, or names no updates; what its replicas were is not known",
                    trial.row.trial
                ));
            }
            let clock = Clock::new(update.as_ref(), outcome.by_replica.len() as u64);
            match &clock.settings {
                Some(_) if clock.is_undisturbed() => {
                    let of = means.entry(clock.replicas).or_insert(MeansOfReplicas {
                        replicas: clock.replicas,
                        trials: 0,
                        low: f64::INFINITY,
                        high: f64::NEG_INFINITY,
                    });
                    of.trials += 1;
                    of.low = of.low.min(outcome.mean);
                    of.high = of.high.max(outcome.mean);
                }
                Some(_) => found.disturbed += 1,
                None => {}
            }
            let clock = pool(&mut found.clocks, clock, &outcome.histogram);
            rules_of_clocks.resize(found.clocks.len(), Vec::new());
            if !rules_of_clocks[clock].contains(&point.rule) {
                rules_of_clocks[clock].push(point.rule);
            }
            lines.extend(line(&folder, trial, outcome.seconds, analysis, &mut found)?);
            late.push(LateTrial {
                outcome,
                update,
                clock,
            });
        }
        let Some(first) = late.first() else {
            continue;
        };
        found.trials += late.len();
        let points: Vec<TimePoint> = over_seeds(&lines)
            .into_iter()
            .map(|p| TimePoint {
                step: p.step,
                seconds: p.epoch,
                mean: p.mean,
                low: p.low,
                high: p.high,
            })
            .collect();
        if points.len() > 1 {
            found.curves.push(TimeCurve {
                rule: point.rule,
                batch: point.batch,
                update: first.update.clone(),
                points,
                n: lines.len(),
            });
        }
        found
            .points
            .extend(point_staleness(point.rule, point.batch, &late));
    }
    for (clock, rules) in found.clocks.iter_mut().zip(rules_of_clocks) {
        clock.rules = rules.len();
    }
    found.means = means.into_values().collect();
    Ok((found.trials > 0).then_some(found))
}

/// Puts gradients to those of the same clock, and returns its index.
fn pool(clocks: &mut Vec<ClockStaleness>, clock: Clock, histogram: &[u64]) -> usize {
    let i = clocks
        .iter()
        .position(|c| c.clock == clock)
        .unwrap_or_else(|| {
            clocks.push(ClockStaleness {
                clock,
                trials: 0,
                rules: 0,
                histogram: Vec::new(),
            });
            clocks.len() - 1
        });
    let pooled = &mut clocks[i];
    pooled.trials += 1;
    let used = histogram
        .iter()
        .rposition(|n| *n > 0)
        .map_or(0, |last| last + 1);
    if pooled.histogram.len() < used {
        pooled.histogram.resize(used, 0);
    }
    for (sum, n) in pooled.histogram.iter_mut().zip(histogram) {
        *sum = sum.saturating_add(*n);
    }
    i
}

/// Updates, simulated seconds and the headline metric of one trial, whose last update was at `end`
/// seconds; `None` where a table is missing.
fn line(
    folder: &Path,
    trial: &Trial,
    end: f64,
    analysis: &GapAnalysis,
    found: &mut StalenessAnalysis,
) -> Result<Option<Series>, AnalysisError> {
    let Some(metric) = analysis.metric else {
        return Ok(None);
    };
    let Some(mut seconds) = read_seconds(folder)? else {
        found.notes.push(format!(
            "trials/{}/staleness.csv is not there; the curves over simulated time leave this trial out",
            trial.row.trial
        ));
        return Ok(None);
    };
    // The last update has no row where a run ended early.
    if let Some(steps) = trial.row.steps
        && seconds.last().is_none_or(|row| row.0 < steps)
    {
        seconds.push((steps, end));
    }
    // That evaluations are missing is said beside the training curves.
    let Some(rows) = read_evaluations(folder)? else {
        return Ok(None);
    };
    let mut line = Series::new();
    for row in rows.iter().filter(|r| r.split == metric.split) {
        let value = match metric.metric {
            Metric::Accuracy => row.accuracy,
            Metric::Loss => Some(row.loss),
        };
        let value = value.filter(|v| v.is_finite());
        if let (Some(value), Some((at, exact))) = (value, seconds_at(row.step, &seconds)) {
            found.interpolated |= !exact;
            line.push((row.step, at, value));
        }
    }
    Ok(Some(line))
}

fn point_staleness(rule: usize, batch: u64, late: &[LateTrial]) -> Option<PointStaleness> {
    let over = |of: fn(&LateTrial) -> f64| Estimate::of(&late.iter().map(of).collect::<Vec<_>>());
    let largest = |t: &LateTrial| t.outcome.histogram.iter().rposition(|n| *n > 0);
    let most = |t: &LateTrial| t.outcome.by_replica.iter().max().copied();
    let fewest = |t: &LateTrial| t.outcome.by_replica.iter().min().copied();
    let mean = |of: &dyn Fn(&LateTrial) -> Option<u64>| {
        let values: Vec<f64> = late.iter().filter_map(of).map(|n| n as f64).collect();
        Some(Estimate::of(&values)?.mean)
    };
    Some(PointStaleness {
        rule,
        batch,
        clock: late.first()?.clock,
        mean: over(|t| t.outcome.mean)?,
        largest: late.iter().filter_map(largest).max().unwrap_or(0) as u64,
        seconds: over(|t| t.outcome.seconds)?,
        by_replica: mean(&most).zip(mean(&fewest)),
    })
}

impl StalenessAnalysis {
    /// What there is to say in sentences, of so many finished trials.
    pub fn sentences(&self, finished: usize) -> Vec<String> {
        let mut sentences = vec![format!(
            "{} of {} made asynchronous updates: replicas send gradients and do not wait for each other, on a simulated \
             clock. The staleness of a gradient is the number of updates made between the reading of its parameters and \
             its own.",
            count(self.trials as u64),
            plural(finished, "finished trial", "finished trials"),
        )];
        sentences.extend(self.means_sentence());
        if self.disturbed > 0 {
            sentences.push(format!(
                "In {} replicas die or a bound lets them wait; there the mean is not P \u{2212} 1 but what the table says.",
                plural(self.disturbed, "trial", "trials")
            ));
        }
        sentences
    }

    /// How the means compare with P - 1.
    fn means_sentence(&self) -> Option<String> {
        let number = |x: f64| super::numbers::fixed(x, 2);
        let found: Vec<String> = self
            .means
            .iter()
            .map(|m| {
                let (low, high) = (number(m.low), number(m.high));
                if low == high {
                    format!("{low} for P = {}", m.replicas)
                } else {
                    format!("{low} to {high} for P = {}", m.replicas)
                }
            })
            .collect();
        let away = |m: &MeansOfReplicas| {
            let expected = m.replicas as f64 - 1.0;
            (m.low - expected).abs().max((m.high - expected).abs())
        };
        let most = self.means.iter().map(away).reduce(f64::max)?;
        let verdict = if most < 0.005 {
            "so it is P \u{2212} 1 to two decimals".to_owned()
        } else {
            format!("at most {} away from P \u{2212} 1", significant(most, 2))
        };
        Some(format!(
            "Of P replicas that live and do not wait, the mean staleness is P \u{2212} 1 whatever their times are, less the age \
             of the gradients still under way at the end, spread over all updates. Found in single trials: {}; {verdict}.",
            super::numbers::list(&found)
        ))
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]
pub(crate) mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::analysis::generalization_gap;

    const HEAD: &str = "trial,status,seed,workers,local_batch,global_batch,scaling,warmup,lr,lr_explained,steps,examples,\
        epochs,train_loss,train_accuracy,validation_loss,validation_accuracy,test_loss,test_accuracy,target_reached,\
        steps_to_target,examples_to_target,message\n";

    /// A study of two rules with two seeds each: synchronous, and two replicas.
    pub(crate) fn study(dir: &Path) -> [PathBuf; 4] {
        let updates = [
            json!("synchronous"),
            json!({"asynchronous": {"replicas": 2}}),
        ];
        let mut trials = Vec::new();
        let mut summary = HEAD.to_owned();
        let folders = [0, 1, 2, 3].map(|i| dir.join("trials").join(format!("t{i}")));
        for (i, folder) in folders.iter().enumerate() {
            let seed = i % 2;
            trials.push(json!({"id": format!("t{i}"), "point": {"train.update": updates[i / 2]}, "seed": seed}));
            let _ = writeln!(
                summary,
                "t{i},completed,{seed},1,8,8,none,none,0.1,0.1,10,80,1,1,0.5,,,1,0.5,,,,"
            );
            fs::create_dir_all(folder).expect("a folder");
            let accuracy = if seed == 0 { 0.5 } else { 0.7 };
            let evaluations = format!(
                "step,epoch,examples,split,loss,accuracy,n\n0,0,0,test,2,0.1,10\n6,0.6,48,test,1,{accuracy},10\n\
                 10,1,80,test,1,{accuracy},10\n"
            );
            fs::write(folder.join("evaluations.csv"), evaluations).expect("a table");
            let mut result = json!({"trial": format!("t{i}"), "status": "completed"});
            let mut config = "[train]\nworkers = 1\n".to_owned();
            if i >= 2 {
                result["staleness"] = json!({
                    "seconds": 5.0, "mean": 0.9, "histogram": [3 + seed, 6 - seed, 0, 1, 0], "by_replica": [6 + seed, 4 - seed],
                });
                config.push_str("update = { asynchronous = { replicas = 2, times = \"exponential\", seconds = 1.0 } }\n");
                let table = "step,seconds,replica,staleness\n4,2,0,1\n8,4,1,1\n10,5,0,0\n";
                fs::write(folder.join("staleness.csv"), table).expect("a table");
            }
            fs::write(folder.join("result.json"), result.to_string()).expect("a result");
            fs::write(folder.join("config.toml"), config).expect("a config");
        }
        let values: Vec<Value> = updates.iter().map(|u| json!([u])).collect();
        let record = json!({
            "batchlab": "0", "name": "late", "description": null, "seeds": [0, 1],
            "axes": [{"keys": ["train.update"], "values": values}], "trials": trials,
        });
        fs::write(dir.join("study.json"), record.to_string()).expect("a plan");
        fs::write(dir.join("summary.csv"), summary).expect("a summary");
        folders
    }

    fn late(dir: &Path) -> StalenessAnalysis {
        let analysis = generalization_gap(dir).expect("a sound study");
        analysis.staleness.expect("late gradients")
    }

    #[test]
    fn seeds_are_pooled_and_only_asynchronous_trials_count() {
        let dir = tempfile::tempdir().expect("a folder");
        study(dir.path());
        let late = late(dir.path());
        assert_eq!((late.trials, late.disturbed), (2, 0));
        let [clock] = late.clocks.as_slice() else {
            panic!("{:?}", late.clocks);
        };
        assert_eq!(clock.clock.words(), "2 replicas");
        assert_eq!((clock.trials, clock.rules), (2, 1));
        // The last zero of the histograms is left out.
        assert_eq!(clock.histogram, [7, 11, 0, 2]);
        assert_eq!(clock.shares(), [0.35, 0.55, 0.0, 0.1]);
        assert_eq!(clock.at_least(), [1.0, 0.65, 0.1, 0.1]);
        let [point] = late.points.as_slice() else {
            panic!("{:?}", late.points);
        };
        assert_eq!((point.rule, point.batch, point.largest), (1, 8, 3));
        assert_eq!(
            (point.mean.mean, point.mean.n, point.seconds.mean),
            (0.9, 2, 5.0)
        );
        assert_eq!(point.by_replica, Some((6.5, 3.5)));
        let said = late.sentences(4).join(" ");
        assert!(
            said.contains("2 of 4 finished trials") && said.contains("0.90 for P = 2"),
            "{said}"
        );
        assert!(said.contains("at most 0.10 away"), "{said}");
    }

    #[test]
    fn evaluations_between_two_rows_stand_on_the_line_between_them() {
        let dir = tempfile::tempdir().expect("a folder");
        study(dir.path());
        let late = late(dir.path());
        assert!(late.interpolated);
        let [curve] = late.curves.as_slice() else {
            panic!("{:?}", late.curves);
        };
        let found: Vec<_> = curve
            .points
            .iter()
            .map(|p| (p.step, p.seconds, p.low, p.high))
            .collect();
        let expected = [(0, 0.0, 0.1, 0.1), (6, 3.0, 0.5, 0.7), (10, 5.0, 0.5, 0.7)];
        assert_eq!(found, expected);
        assert_eq!((curve.rule, curve.n), (1, 2));
    }

    #[test]
    fn a_study_without_asynchronous_trials_says_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let folders = study(dir.path());
        for folder in &folders[2..] {
            fs::remove_file(folder.join("result.json")).expect("was there");
        }
        let analysis = generalization_gap(dir.path()).expect("a sound study");
        assert_eq!(analysis.staleness, None);
    }

    #[test]
    fn files_that_are_not_there_are_named_and_damaged_ones_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let folders = study(dir.path());
        fs::remove_file(folders[2].join("staleness.csv")).expect("was there");
        fs::remove_file(folders[2].join("config.toml")).expect("was there");
        let found = late(dir.path());
        let notes = found.notes.join("; ");
        assert!(notes.contains("trials/t2/staleness.csv"), "{notes}");
        assert!(notes.contains("trials/t2/config.toml"), "{notes}");
        assert_eq!((found.clocks.len(), found.curves[0].n), (2, 1));
        assert!(!found.clocks[0].clock.is_geometric() && found.clocks[1].clock.is_geometric());

        for (name, text, problem) in [
            (
                "result.json",
                "{\"staleness\": {\"seconds\": 1}}",
                "missing field",
            ),
            ("result.json", "{", "not the result of a trial"),
            (
                "config.toml",
                "[train]\nupdate = { asynchronous = { replicas = \"two\" } }",
                "train.update",
            ),
            ("config.toml", "[train", "config.toml"),
            ("staleness.csv", "step,replica\n1,0\n", "seconds"),
        ] {
            let dir = tempfile::tempdir().expect("a folder");
            let folders = study(dir.path());
            fs::write(folders[3].join(name), text).expect("a file");
            let error = generalization_gap(dir.path()).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn clocks_say_what_is_unlike_equal_exponential_replicas() {
        let clock = |text: &str| {
            let table: toml::Table = text.parse().expect("TOML");
            let update: Update = table["update"].clone().try_into().expect("an update");
            Clock::new(Some(&update), 4)
        };
        let plain = clock("update = { asynchronous = { replicas = 4, divide_rate = true } }");
        assert_eq!(plain.words(), "4 replicas");
        assert_eq!(plain, clock("update = { asynchronous = { replicas = 4 } }"));
        assert!(plain.is_geometric());
        let other = clock(
            "[update.asynchronous]\nreplicas = 4\ntimes = { lognormal = { cv = 0.3 } }\nseconds = 2.0\nbound = 3\n\
             stragglers = [[0, 8.0], [1, 2.5], [2, 2.0], [3, 2.0]]\ndeaths = [[0, 100.0]]\ntransfer = 0.05",
        );
        assert_eq!(
            other.words(),
            "4 replicas, lognormal times (cv 0.3), 2 s a gradient, replica 0 slower \u{D7} 8, replica 1 slower \u{D7} 2.5, \
             replica 2 slower \u{D7} 2, 1 more, replica 0 dies at 100 s, bound 3, transfer 0.05 s"
        );
        assert!(!other.is_geometric() && !other.is_undisturbed());
        let straggler =
            clock("update = { asynchronous = { replicas = 4, stragglers = [[0, 8.0]] } }");
        assert!(!straggler.is_geometric() && straggler.is_undisturbed());
    }

    #[test]
    fn the_geometric_law_sums_to_one_and_has_the_mean_p_minus_one() {
        for replicas in [1, 2, 8, 64] {
            let law = |k| geometric(replicas, k).0;
            let all: f64 = (0..5000).map(law).sum();
            let mean: f64 = (0..5000).map(|k| k as f64 * law(k)).sum();
            assert!((all - 1.0).abs() < 1e-12, "{replicas}: {all}");
            assert!(
                (mean - (replicas as f64 - 1.0)).abs() < 1e-9,
                "{replicas}: {mean}"
            );
            let later: f64 = (7..5000).map(law).sum();
            assert!((later - geometric(replicas, 7).1).abs() < 1e-12);
        }
    }

    #[test]
    fn times_are_known_up_to_the_last_row() {
        let rows = [(4, 2.0), (8, 6.0)];
        assert_eq!(seconds_at(0, &rows), Some((0.0, true)));
        assert_eq!(seconds_at(2, &rows), Some((1.0, false)));
        assert_eq!(seconds_at(4, &rows), Some((2.0, true)));
        assert_eq!(seconds_at(7, &rows), Some((5.0, false)));
        assert_eq!(seconds_at(9, &rows), None);
        assert_eq!(seconds_at(1, &[]), None);
    }
}
