//! Generalization against the global batch: what a study's tables say about it.
//!
//! A study's trials are grouped by global batch and by *rule*: the values of all other swept
//! keys. Each (rule, batch) is a point with one trial a seed. Means are over the trials that
//! finished; how many did not is kept beside every mean.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::answer::Answer;
use super::course::{PointCourses, read_courses};
use super::labels::{key_name, plain, rule_labels};
use super::probes::{self, ProbeAnalysis};
use super::staleness::{self, StalenessAnalysis};
use super::tables::{
    self, AnalysisError, SummaryRow, read_evaluations, read_optional, read_steps, read_summary,
};
use crate::config::{Metric, Split};
use crate::math::statistics::Estimate;
use crate::study::{AxisRecord, StudyRecord};
use crate::train::Status;

/// Keys that set the global batch.
const BATCH_KEYS: [&str; 3] = ["train.global_batch", "train.local_batch", "train.workers"];

/// Rows of `steps.csv` are averaged into at most this many points of a curve.
const CURVE_POINTS: u64 = 150;

/// A quantity of one trial, averaged over seeds at each point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Accuracy on the held-out split (test, else validation), in [0, 1].
    HeldOutAccuracy,
    /// Accuracy on the training split, in [0, 1].
    TrainAccuracy,
    /// Mean loss on the held-out split.
    HeldOutLoss,
    /// Mean loss on the training split.
    TrainLoss,
    /// Training accuracy minus held-out accuracy.
    AccuracyGap,
    /// Held-out loss minus training loss.
    LossGap,
    /// Updates made.
    Steps,
    /// Examples processed.
    Examples,
    /// Updates until the target was reached.
    StepsToTarget,
    /// Examples processed until the target was reached.
    ExamplesToTarget,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 10] = [
        Measure::HeldOutAccuracy,
        Measure::TrainAccuracy,
        Measure::HeldOutLoss,
        Measure::TrainLoss,
        Measure::AccuracyGap,
        Measure::LossGap,
        Measure::Steps,
        Measure::Examples,
        Measure::StepsToTarget,
        Measure::ExamplesToTarget,
    ];
}

/// What the headline compares: a metric on a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadlineMetric {
    /// The split: test where there is one, else validation, else train.
    pub split: Split,
    /// Accuracy where there are classes, else loss.
    pub metric: Metric,
}

impl HeadlineMetric {
    /// "test accuracy", "training loss".
    pub fn name(self) -> String {
        let metric = match self.metric {
            Metric::Accuracy => "accuracy",
            Metric::Loss => "loss",
        };
        format!("{} {metric}", split_name(self.split))
    }

    /// The measure it is averaged as.
    pub fn measure(self) -> Measure {
        match (self.split, self.metric) {
            (Split::Train, Metric::Accuracy) => Measure::TrainAccuracy,
            (Split::Train, Metric::Loss) => Measure::TrainLoss,
            (_, Metric::Accuracy) => Measure::HeldOutAccuracy,
            (_, Metric::Loss) => Measure::HeldOutLoss,
        }
    }

    /// Whether a larger value is better.
    pub fn larger_is_better(self) -> bool {
        self.metric == Metric::Accuracy
    }
}

/// "training", "validation" or "test".
pub(crate) fn split_name(split: Split) -> &'static str {
    match split {
        Split::Train => "training",
        Split::Validation => "validation",
        Split::Test => "test",
    }
}

/// How the trials of one point ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// Trials planned.
    pub planned: usize,
    /// Used up the budget, or reached the target.
    pub completed: usize,
    /// Used up the budget without reaching the target.
    pub censored: usize,
    /// Diverged.
    pub diverged: usize,
    /// Ended by an error.
    pub failed: usize,
}

impl Outcomes {
    /// Trials with a final evaluation: completed and censored ones.
    pub fn finished(&self) -> usize {
        self.completed + self.censored
    }

    /// Trials that have not ended.
    pub fn pending(&self) -> usize {
        self.planned - self.finished() - self.diverged - self.failed
    }

    fn add(&mut self, status: Option<Status>) {
        self.planned += 1;
        match status {
            Some(Status::Completed) => self.completed += 1,
            Some(Status::Censored) => self.censored += 1,
            Some(Status::Diverged) => self.diverged += 1,
            Some(Status::Failed) => self.failed += 1,
            None => {}
        }
    }
}

/// One trial: its row of the summary, and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its row of the summary; of a trial without one, only its id and seed.
    pub row: SummaryRow,
    /// Swept keys and their values here, in the order of the axes.
    pub point: Vec<(String, Value)>,
    /// Index of its rule.
    pub rule: usize,
    /// Its global batch; `None` if the trial failed before it was known.
    pub batch: Option<u64>,
}

impl Trial {
    /// Whether it has a final evaluation that counts.
    pub fn finished(&self) -> bool {
        matches!(self.row.status, Some(Status::Completed | Status::Censored))
    }

    fn value(&self, measure: Measure, held_out: Option<Split>) -> Option<f64> {
        let of = |split: Option<Split>| split.and_then(|s| self.row.evaluation.get(&s));
        let (train, held) = (of(Some(Split::Train)), of(held_out));
        let loss = |e: Option<&(Option<f64>, Option<f64>)>| e.and_then(|e| e.0);
        let accuracy = |e: Option<&(Option<f64>, Option<f64>)>| e.and_then(|e| e.1);
        let value = match measure {
            Measure::HeldOutAccuracy => accuracy(held),
            Measure::TrainAccuracy => accuracy(train),
            Measure::HeldOutLoss => loss(held),
            Measure::TrainLoss => loss(train),
            Measure::AccuracyGap => accuracy(train).and_then(|a| accuracy(held).map(|b| a - b)),
            Measure::LossGap => loss(held).and_then(|a| loss(train).map(|b| a - b)),
            Measure::Steps => self.row.steps.map(|x| x as f64),
            Measure::Examples => self.row.examples.map(|x| x as f64),
            Measure::StepsToTarget => self.row.steps_to_target.map(|x| x as f64),
            Measure::ExamplesToTarget => self.row.examples_to_target.map(|x| x as f64),
        };
        value.filter(|v| v.is_finite())
    }
}

/// A combination of values of all swept keys but the batch and the seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Short label, unique in the study.
    pub label: String,
    /// Keys and values.
    pub values: Vec<(String, Value)>,
}

/// All trials of one rule at one global batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// How its trials ended.
    pub outcomes: Outcomes,
    /// Indices into `trials`, in plan order.
    pub trials: Vec<usize>,
    /// Mean and 95 % interval over the finished trials.
    pub estimates: BTreeMap<Measure, Estimate>,
}

impl Point {
    /// The mean of a measure over finished trials; `None` if no finished trial has it.
    pub fn estimate(&self, measure: Measure) -> Option<&Estimate> {
        self.estimates.get(&measure)
    }

    /// Whether the mean leaves out seeds, because their trials diverged, failed or are not done.
    pub fn incomplete(&self) -> bool {
        self.outcomes.finished() < self.outcomes.planned
    }
}

/// One metric over the course of training: mean over seeds at each evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// The split.
    pub split: Split,
    /// The metric.
    pub metric: Metric,
    /// Points in order of steps; only those where every finished seed has a value. Where the seeds
    /// were evaluated after different numbers of updates, the n-th is that of their n-th evaluations.
    pub points: Vec<CurvePoint>,
    /// Number of seeds.
    pub n: usize,
}

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Updates made; the mean over seeds where they differ.
    pub step: u64,
    /// Passes over the training set; the mean over seeds where they differ.
    pub epoch: f64,
    /// Mean over seeds.
    pub mean: f64,
    /// Lowest seed.
    pub low: f64,
    /// Highest seed.
    pub high: f64,
}

/// A key of the config and its value, for all trials alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Dotted key.
    pub key: String,
    /// Its value as written in TOML, without quotes.
    pub value: String,
}

/// Everything the report of a study says, as values.
#[derive(Debug, Clone, PartialEq)]
pub struct GapAnalysis {
    /// The plan.
    pub study: StudyRecord,
    /// Resolved settings that the swept keys leave alone, sorted by key; empty if no trial has
    /// written its config yet.
    pub settings: Vec<Setting>,
    /// The config file as it was given, where it is there.
    pub config_text: Option<String>,
    /// All planned trials, in plan order.
    pub trials: Vec<Trial>,
    /// Swept keys that make up the rules.
    pub rule_keys: Vec<String>,
    /// Rules, in the order in which the plan first names them.
    pub rules: Vec<Rule>,
    /// What labels leave out: values that more than half of the rules have, in words.
    pub usual: Vec<String>,
    /// Global batches, ascending.
    pub batches: Vec<u64>,
    /// Points, by rule, then by batch.
    pub points: Vec<Point>,
    /// The split that generalization is measured on; `None` if none was evaluated.
    pub held_out: Option<Split>,
    /// What the headline compares; `None` if nothing was evaluated.
    pub metric: Option<HeadlineMetric>,
    /// Examples that each split was evaluated on, from the first trial that was.
    pub split_sizes: BTreeMap<Split, u64>,
    /// Whether trials have a target.
    pub has_target: bool,
    /// Training curves: the headline metric, and the training loss.
    pub curves: Vec<Curve>,
    /// How rate and batch went at the points where one of them changes.
    pub courses: Vec<PointCourses>,
    /// What probes measured; `None` where no trial has a table of them.
    pub probes: Option<ProbeAnalysis>,
    /// How late gradients were; `None` where no finished trial has asynchronous updates.
    pub staleness: Option<StalenessAnalysis>,
    /// Things a reader should know about the tables, such as files that are not there.
    pub notes: Vec<String>,
    /// The answer.
    pub answer: Answer,
}

impl GapAnalysis {
    /// The point of a rule at a batch.
    pub fn point(&self, rule: usize, batch: u64) -> Option<&Point> {
        self.points
            .iter()
            .find(|p| p.rule == rule && p.batch == batch)
    }

    /// The points of a rule, by ascending batch.
    pub fn points_of(&self, rule: usize) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(move |p| p.rule == rule)
    }

    /// Values of a measure of the finished trials of a point, each with its seed.
    pub fn values(&self, point: &Point, measure: Measure) -> Vec<(u64, f64)> {
        point
            .trials
            .iter()
            .map(|&i| &self.trials[i])
            .filter(|t| t.finished())
            .filter_map(|t| Some((t.row.seed?, t.value(measure, self.held_out)?)))
            .collect()
    }

    /// How all trials ended.
    pub fn outcomes(&self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for trial in &self.trials {
            outcomes.add(trial.row.status);
        }
        outcomes
    }
}

/// Analyses the results folder `dir` of a study.
///
/// Reads `study.json`, `summary.csv`, `config.toml`, and of each trial `config.toml`,
/// `evaluations.csv`, `steps.csv`, `batch.csv`, the tables of the probes, `result.json` and
/// `staleness.csv`, those of them that are there. Trains nothing.
///
/// # Errors
/// If `study.json` or `summary.csv` is missing, or if a file is unreadable or malformed; the
/// error names file, line and column.
pub fn generalization_gap(dir: &Path) -> Result<GapAnalysis, AnalysisError> {
    let study = StudyRecord::read(dir)?;
    let planned = planned(&study, read_summary(dir)?);
    let swept: Vec<&[(String, Value)]> = planned.iter().map(|p| p.0.as_slice()).collect();
    let rule_keys = rule_keys(&study.axes, &swept);
    let (rules, usual, trials) = group(&rule_keys, planned);
    let batches: Vec<u64> = trials
        .iter()
        .filter_map(|t| t.batch)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();

    let evaluated = |split: Split| trials.iter().any(|t| t.row.evaluation.contains_key(&split));
    let held_out = [Split::Test, Split::Validation]
        .into_iter()
        .find(|&s| evaluated(s));
    let metric = held_out
        .or(evaluated(Split::Train).then_some(Split::Train))
        .map(|split| {
            let classes = trials
                .iter()
                .any(|t| t.row.evaluation.get(&split).is_some_and(|e| e.1.is_some()));
            HeadlineMetric {
                split,
                metric: if classes {
                    Metric::Accuracy
                } else {
                    Metric::Loss
                },
            }
        });
    let points = points(&rules, &batches, &trials, held_out);

    let mut notes = Vec::new();
    let mut curves = Vec::new();
    if let Some(metric) = metric {
        for point in &points {
            curves.extend(read_curves(dir, point, &trials, metric, &mut notes)?);
        }
    }
    let mut courses = Vec::new();
    for point in &points {
        courses.extend(read_courses(dir, point, &trials)?);
    }
    let mut analysis = GapAnalysis {
        settings: settings(dir, &study)?,
        split_sizes: split_sizes(dir, &trials)?,
        config_text: read_optional(&dir.join("config.toml"))?,
        has_target: trials.iter().any(|t| t.row.target_reached.is_some()),
        study,
        trials,
        rule_keys,
        rules,
        usual,
        batches,
        points,
        held_out,
        metric,
        curves,
        courses,
        probes: None,
        staleness: None,
        notes,
        answer: Answer::default(),
    };
    analysis.probes = probes::of_study(dir, &analysis)?;
    analysis.staleness = staleness::of_study(dir, &analysis)?;
    analysis.answer = Answer::of(&analysis);
    Ok(analysis)
}

/// A planned trial: what the plan says of it, and its row of the summary.
type Planned = (Vec<(String, Value)>, SummaryRow);

/// Trials in plan order, whether or not the summary has them yet.
fn planned(study: &StudyRecord, rows: Vec<SummaryRow>) -> Vec<Planned> {
    let mut by_id: BTreeMap<String, SummaryRow> = rows
        .into_iter()
        .map(|row| (row.trial.clone(), row))
        .collect();
    let planned = study.trials.iter().map(|trial| {
        let mut row = by_id.remove(&trial.id).unwrap_or_default();
        row.trial.clone_from(&trial.id);
        row.seed = Some(trial.seed);
        let point = trial
            .point
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        (point, row)
    });
    planned.collect()
}

/// The global batch of a trial. One that has no result yet is known by its swept batch.
fn batch_of((point, row): &Planned) -> Option<u64> {
    row.global_batch
        .or_else(|| value_of(point, "train.global_batch")?.as_u64())
}

/// Swept keys other than those that set the batch, or that only move along with it.
fn rule_keys(axes: &[AxisRecord], points: &[&[(String, Value)]]) -> Vec<String> {
    let mut swept: Vec<&str> = Vec::new();
    for (key, _) in points.iter().copied().flatten() {
        if key != "seed" && !swept.contains(&key.as_str()) {
            swept.push(key);
        }
    }
    // The first of these that is swept is the batch; the others, if swept as well, are rules
    // (workers at a fixed global batch).
    let batch_key = BATCH_KEYS.iter().find(|key| swept.contains(key));
    let mut along: Vec<&str> = batch_key.into_iter().copied().collect();
    for axis in axes {
        let Some(at) = axis
            .keys
            .iter()
            .position(|k| Some(&k.as_str()) == batch_key)
        else {
            continue;
        };
        // Keys zipped with the batch follow it, unless a batch stands in the axis twice.
        let batches: Vec<&Value> = axis.values.iter().filter_map(|v| v.get(at)).collect();
        if batches
            .iter()
            .enumerate()
            .all(|(i, b)| !batches[..i].contains(b))
        {
            along.extend(axis.keys.iter().map(String::as_str));
        }
    }
    swept.retain(|key| !along.contains(key));
    swept.retain(|key| {
        let mut values = points.iter().map(|point| value_of(point, key));
        let first = values.next().flatten();
        values.any(|v| v != first)
    });
    swept.into_iter().map(str::to_owned).collect()
}

fn value_of<'a>(point: &'a [(String, Value)], key: &str) -> Option<&'a Value> {
    point.iter().find(|(k, _)| k == key).map(|(_, v)| v)
}

/// Rules, what their labels leave out, and trials.
fn group(rule_keys: &[String], planned: Vec<Planned>) -> (Vec<Rule>, Vec<String>, Vec<Trial>) {
    let mut rules: Vec<Rule> = Vec::new();
    let mut trials = Vec::with_capacity(planned.len());
    for one in planned {
        let batch = batch_of(&one);
        let (point, row) = one;
        let values: Vec<(String, Value)> = rule_keys
            .iter()
            .map(|key| {
                (
                    key.clone(),
                    value_of(&point, key).cloned().unwrap_or(Value::Null),
                )
            })
            .collect();
        let rule = rules
            .iter()
            .position(|r| r.values == values)
            .unwrap_or_else(|| {
                rules.push(Rule {
                    label: String::new(),
                    values,
                });
                rules.len() - 1
            });
        trials.push(Trial {
            row,
            point,
            rule,
            batch,
        });
    }
    let values: Vec<&[(String, Value)]> = rules.iter().map(|r| r.values.as_slice()).collect();
    let (labels, usual) = rule_labels(&values);
    for (rule, label) in rules.iter_mut().zip(labels) {
        rule.label = label;
    }
    if let [only] = rules.as_mut_slice() {
        only.label = single_rule_label(&trials);
    }
    // Two rules may share a label ("sgd" of two keys); then the full keys tell them apart.
    let labels: Vec<String> = rules.iter().map(|r| r.label.clone()).collect();
    for rule in &mut rules {
        if labels.iter().filter(|l| **l == rule.label).count() > 1 {
            let full: Vec<String> = rule
                .values
                .iter()
                .map(|(k, v)| format!("{k} {}", plain(v)))
                .collect();
            rule.label = full.join(", ");
        }
    }
    (rules, usual, trials)
}

/// Where only the batch is swept, the one rule is named by how the rate follows the batch.
fn single_rule_label(trials: &[Trial]) -> String {
    let scaling = trials.iter().find_map(|t| t.row.scaling.as_deref());
    match scaling {
        Some("none") => "rate not scaled".to_owned(),
        Some(scaling) => format!("{scaling} scaling"),
        None => "all trials".to_owned(),
    }
}

fn points(
    rules: &[Rule],
    batches: &[u64],
    trials: &[Trial],
    held_out: Option<Split>,
) -> Vec<Point> {
    let mut points = Vec::new();
    for rule in 0..rules.len() {
        for &batch in batches {
            let members: Vec<usize> = (0..trials.len())
                .filter(|&i| trials[i].rule == rule && trials[i].batch == Some(batch))
                .collect();
            if members.is_empty() {
                continue;
            }
            let mut outcomes = Outcomes::default();
            for &i in &members {
                outcomes.add(trials[i].row.status);
            }
            let mut estimates = BTreeMap::new();
            for measure in Measure::ALL {
                let values: Vec<f64> = members
                    .iter()
                    .map(|&i| &trials[i])
                    .filter(|t| t.finished())
                    .filter_map(|t| t.value(measure, held_out))
                    .collect();
                if let Some(estimate) = Estimate::of(&values) {
                    estimates.insert(measure, estimate);
                }
            }
            points.push(Point {
                rule,
                batch,
                outcomes,
                trials: members,
                estimates,
            });
        }
    }
    points
}

fn split_sizes(dir: &Path, trials: &[Trial]) -> Result<BTreeMap<Split, u64>, AnalysisError> {
    for trial in trials.iter().filter(|t| t.finished()) {
        let rows = read_evaluations(&dir.join("trials").join(&trial.row.trial))?;
        if let Some(rows) = rows.filter(|rows| !rows.is_empty()) {
            return Ok(rows.iter().filter_map(|r| Some((r.split, r.n?))).collect());
        }
    }
    Ok(BTreeMap::new())
}

pub(super) type Series = Vec<(u64, f64, f64)>;

/// The curves of one point: the headline metric, and the training loss.
fn read_curves(
    dir: &Path,
    point: &Point,
    trials: &[Trial],
    metric: HeadlineMetric,
    notes: &mut Vec<String>,
) -> Result<Vec<Curve>, AnalysisError> {
    let mut headline: Vec<Series> = Vec::new();
    let mut train_loss: Vec<Series> = Vec::new();
    for trial in point
        .trials
        .iter()
        .map(|&i| &trials[i])
        .filter(|t| t.finished())
    {
        let folder = dir.join("trials").join(&trial.row.trial);
        let Some(rows) = read_evaluations(&folder)? else {
            notes.push(format!(
                "trials/{}/evaluations.csv is not there; the training curves leave this trial out",
                trial.row.trial
            ));
            continue;
        };
        let of = |split: Split, metric: Metric| -> Series {
            rows.iter()
                .filter(|r| r.split == split)
                .filter_map(|r| {
                    let value = match metric {
                        Metric::Accuracy => r.accuracy?,
                        Metric::Loss => r.loss,
                    };
                    value.is_finite().then_some((r.step, r.epoch, value))
                })
                .collect()
        };
        headline.push(of(metric.split, metric.metric));
        let evaluated = of(Split::Train, Metric::Loss);
        if evaluated.is_empty() {
            train_loss.extend(read_steps(&folder)?.map(|rows| thin(&rows)));
        } else {
            train_loss.push(evaluated);
        }
    }
    let curve = |split, metric, series: &[Series]| Curve {
        rule: point.rule,
        batch: point.batch,
        split,
        metric,
        points: over_seeds(series),
        n: series.len(),
    };
    let mut curves = vec![curve(metric.split, metric.metric, &headline)];
    if metric.split != Split::Train || metric.metric != Metric::Loss {
        curves.push(curve(Split::Train, Metric::Loss, &train_loss));
    }
    curves.retain(|c| c.points.len() > 1);
    Ok(curves)
}

/// Mean batch loss over equal stretches of updates.
fn thin(rows: &[tables::StepRow]) -> Series {
    let last = rows.last().map_or(0, |r| r.step);
    let stretch = last.div_ceil(CURVE_POINTS).max(1);
    let mut stretches: BTreeMap<u64, (u64, f64, f64, u32)> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.loss.is_finite()) {
        let entry = stretches
            .entry(row.step.div_ceil(stretch))
            .or_insert((0, 0.0, 0.0, 0));
        *entry = (row.step, row.epoch, entry.2 + row.loss, entry.3 + 1);
    }
    stretches
        .into_values()
        .map(|(step, epoch, sum, n)| (step, epoch, sum / f64::from(n)))
        .collect()
}

/// Means over seeds after the same number of updates. Where the batch of the runs follows
/// measurements, seeds are evaluated after different numbers; then the means are over the first
/// evaluation of each, the second, and so on.
pub(super) fn over_seeds(series: &[Series]) -> Vec<CurvePoint> {
    let mut by_step: BTreeMap<u64, Series> = BTreeMap::new();
    for value in series.iter().flatten() {
        by_step.entry(value.0).or_default().push(*value);
    }
    let mut groups: Vec<Series> = by_step.into_values().collect();
    groups.retain(|values| values.len() == series.len());
    let shortest = series.iter().map(Vec::len).min().unwrap_or(0);
    if groups.len() < shortest {
        groups = (0..shortest)
            .map(|i| series.iter().map(|values| values[i]).collect())
            .collect();
    }
    let mean = |values: &Series, of: fn(&(u64, f64, f64)) -> f64| {
        values.iter().map(of).sum::<f64>() / values.len() as f64
    };
    groups
        .iter()
        .map(|values| CurvePoint {
            step: mean(values, |v| v.0 as f64).round() as u64,
            epoch: mean(values, |v| v.1),
            mean: mean(values, |v| v.2),
            low: values.iter().map(|v| v.2).fold(f64::INFINITY, f64::min),
            high: values.iter().map(|v| v.2).fold(f64::NEG_INFINITY, f64::max),
        })
        .collect()
}

/// Settings of the first trial that wrote its config, less those that the study varies.
fn settings(dir: &Path, study: &StudyRecord) -> Result<Vec<Setting>, AnalysisError> {
    let mut flat = BTreeMap::new();
    for entry in &study.trials {
        let path = dir.join("trials").join(&entry.id).join("config.toml");
        let Some(text) = read_optional(&path)? else {
            continue;
        };
        if let Ok(table) = text.parse::<toml::Table>()
            && let Ok(Value::Object(fields)) = serde_json::to_value(table)
        {
            flatten("", &fields, &mut flat);
            break;
        }
    }
    let swept: Vec<&String> = study.axes.iter().flat_map(|a| &a.keys).collect();
    flat.retain(|key: &String, _| {
        let varies = |s: &&String| *s == key || key.starts_with(&format!("{s}."));
        !["name", "seeds", "seed"].contains(&key.as_str()) && !swept.iter().any(varies)
    });
    Ok(flat
        .into_iter()
        .map(|(key, value)| Setting { key, value })
        .collect())
}

fn flatten(
    prefix: &str,
    fields: &serde_json::Map<String, Value>,
    out: &mut BTreeMap<String, String>,
) {
    for (name, value) in fields {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            Value::Object(inner) if !inner.is_empty() => flatten(&key, inner, out),
            Value::Object(_) => {
                // `[data.source.digits]` without fields reads as data.source = digits.
                out.insert(prefix.to_owned(), name.clone());
            }
            other => {
                out.insert(key, plain(other));
            }
        }
    }
}

/// "learning_rate.scaling and learning_rate.warmup", shortened to their names.
pub(crate) fn rule_title(analysis: &GapAnalysis) -> String {
    let names: Vec<String> = analysis.rule_keys.iter().map(|k| key_name(k)).collect();
    super::numbers::list(&names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Swept = Vec<(String, Value)>;

    fn keys_of(axes: &[AxisRecord], points: &[Swept]) -> Vec<String> {
        rule_keys(axes, &points.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn swept(point: &[(&str, Value)]) -> Swept {
        point
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.clone()))
            .collect()
    }

    #[test]
    fn a_key_zipped_with_the_batch_is_no_rule() {
        let mut points = Vec::new();
        for (batch, rate) in [(32, 0.1), (64, 0.2)] {
            for optimizer in ["sgd", "adamw"] {
                points.push(swept(&[
                    ("train.global_batch", json!(batch)),
                    ("learning_rate.base_lr", json!(rate)),
                    ("optimizer", json!(optimizer)),
                ]));
            }
        }
        let zipped = AxisRecord {
            keys: vec!["train.global_batch".into(), "learning_rate.base_lr".into()],
            values: vec![vec![json!(32), json!(0.1)], vec![json!(64), json!(0.2)]],
        };
        assert_eq!(keys_of(&[zipped], &points), ["optimizer"]);
        // Swept on its own, the rate is a rule.
        assert_eq!(
            keys_of(&[], &points),
            ["learning_rate.base_lr", "optimizer"]
        );
    }

    #[test]
    fn workers_are_the_batch_only_where_nothing_else_is() {
        let alone = [1, 2].map(|p| swept(&[("train.workers", json!(p))]));
        assert!(keys_of(&[], &alone).is_empty());
        let both = [(1, 8), (2, 8)].map(|(p, b)| {
            swept(&[
                ("train.workers", json!(p)),
                ("train.global_batch", json!(b)),
            ])
        });
        assert_eq!(keys_of(&[], &both), ["train.workers"]);
    }

    #[test]
    fn batch_losses_are_averaged_over_stretches() {
        let rows: Vec<tables::StepRow> = (1..=300)
            .map(|step| tables::StepRow {
                step,
                epoch: 0.0,
                global_batch: None,
                lr: 0.1,
                momentum: None,
                loss: step as f64,
            })
            .collect();
        let thinned = thin(&rows);
        assert_eq!(thinned.len(), 150);
        assert_eq!(thinned[0], (2, 0.0, 1.5));
    }

    #[test]
    fn a_curve_ends_where_the_first_seed_ends() {
        let long = vec![(0, 0.0, 1.0), (10, 1.0, 0.5), (20, 2.0, 0.4)];
        let short = vec![(0, 0.0, 3.0), (10, 1.0, 0.7)];
        let points = over_seeds(&[long, short]);
        assert_eq!(points.len(), 2);
        assert_eq!(
            (points[1].mean, points[1].low, points[1].high),
            (0.6, 0.5, 0.7)
        );
    }

    #[test]
    fn seeds_with_batches_of_their_own_are_averaged_evaluation_by_evaluation() {
        let one = vec![(0, 0.0, 1.0), (10, 1.0, 0.5), (14, 2.0, 0.25)];
        let other = vec![(0, 0.0, 2.0), (13, 1.2, 0.75), (20, 2.4, 0.75)];
        let points = over_seeds(&[one, other]);
        let found: Vec<_> = points.iter().map(|p| (p.step, p.epoch, p.mean)).collect();
        assert_eq!(found, [(0, 0.0, 1.5), (12, 1.1, 0.625), (17, 2.2, 0.5)]);
    }
}
