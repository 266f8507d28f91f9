//! What the probes of a study or of one run measured: curvature, sharpness, noise of the gradient,
//! loss along lines and on planes.
//!
//! Runs are compared at two moments that must not be mixed up: at the *end of the run*, which is at
//! equal epochs where all budgets are alike, and at *equal training loss*, at the first evaluation whose training loss
//! is at most `probes.at_train_loss`. What a trial could not determine, and what did not converge,
//! stays in the results and is counted; nothing is clipped.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::generalization_gap::{GapAnalysis, rule_title};
use super::noise_course::{NoiseCourse, NoiseTables, noise_course};
use super::probe_tables::{read_probes, surfaces};
use super::tables::{AnalysisError, EvaluationRow, read_evaluations, read_optional, read_steps};
use crate::config::Split;
use crate::math::noise_scale::{LeftOut, Ratio};
use crate::math::statistics::{Estimate, Moments};
use crate::train::Status;

/// Half the width of a 95 % interval in standard errors of a normal estimate.
const NORMAL_95: f64 = 1.959_963_984_540_054;

/// What measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// The Hessian of the loss.
    Hessian,
    /// The Gauss-Newton matrix.
    GaussNewton,
    /// The density of the Hessian's spectrum.
    Density,
    /// Loss in a neighbourhood of the parameters.
    Sharpness,
    /// Accuracy on inputs moved against the model.
    Adversarial,
    /// Noise of the gradient.
    Noise,
}

impl Probe {
    pub(super) const ALL: [Probe; 6] = [
        Probe::Hessian,
        Probe::GaussNewton,
        Probe::Density,
        Probe::Sharpness,
        Probe::Adversarial,
        Probe::Noise,
    ];

    /// Its word in `probes.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Probe::Hessian => "hessian",
            Probe::GaussNewton => "gauss_newton",
            Probe::Density => "density",
            Probe::Sharpness => "sharpness",
            Probe::Adversarial => "adversarial",
            Probe::Noise => "noise",
        }
    }
}

/// When a probe measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before the first update.
    Start,
    /// On its schedule.
    Schedule,
    /// At the first evaluation whose training loss was at most `probes.at_train_loss`.
    TrainLoss,
    /// After the last update.
    End,
    /// By `batchlab probe`, when the run was over.
    After,
}

impl When {
    pub(super) const ALL: [When; 5] = [
        When::Start,
        When::Schedule,
        When::TrainLoss,
        When::End,
        When::After,
    ];

    /// Its word in `probes.csv`.
    pub fn name(self) -> &'static str {
        match self {
            When::Start => "start",
            When::Schedule => "schedule",
            When::TrainLoss => "train_loss",
            When::End => "end",
            When::After => "after",
        }
    }
}

/// One row of `probes.csv`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRow {
    /// Updates made; `None` for weights from elsewhere.
    pub step: Option<u64>,
    /// Passes over the training set.
    pub epoch: Option<f64>,
    /// When.
    pub when: When,
    /// Loss of the training split there.
    pub train_loss: Option<f64>,
    /// What.
    pub key: ProbeKey,
    /// The measurement.
    pub value: ProbeValue,
    /// Examples it was made on.
    pub examples: Option<u64>,
    /// Which batch statistics normalization used, in words of the table.
    pub statistics: Option<String>,
}

/// A quantity: its probe, its name, the part of the parameters, and a rank, radius or abscissa.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeKey {
    /// The probe.
    pub probe: Probe,
    /// Its name, as in `probes.csv`.
    pub quantity: String,
    /// Layer, block or parameter; empty: all parameters.
    pub scope: String,
    /// Rank of an eigenvalue, radius of a neighbourhood, abscissa of a density.
    pub at: Option<f64>,
}

impl ProbeKey {
    fn order(&self, other: &Self) -> Ordering {
        let at = |key: &Self| key.at.unwrap_or(f64::NEG_INFINITY);
        (self.probe, &self.scope, &self.quantity)
            .cmp(&(other.probe, &other.scope, &other.quantity))
            .then(at(self).total_cmp(&at(other)))
    }

    /// Whether it is this quantity of all parameters.
    pub fn is(&self, probe: Probe, quantity: &str) -> bool {
        self.probe == probe && self.quantity == quantity && self.scope.is_empty()
    }
}

/// A measurement of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProbeValue {
    /// Seed of the trial.
    pub seed: u64,
    /// The value; `None` where it was undetermined or not finite.
    pub value: Option<f64>,
    /// Its own standard error, where the estimator has one.
    pub standard_error: Option<f64>,
    /// |H v - lambda v| of an eigenpair.
    pub residual: Option<f64>,
    /// Whether an iteration came to its tolerance.
    pub converged: Option<bool>,
    /// Products with the matrix, or gradients, it took.
    pub products: Option<u64>,
}

impl ProbeValue {
    /// The standard error, where the value is not exact.
    fn error(&self) -> Option<f64> {
        self.standard_error.filter(|&error| error != 0.0)
    }
}

/// A quantity over the seeds of a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What.
    pub key: ProbeKey,
    /// One value a trial that measured it, in plan order.
    pub values: Vec<ProbeValue>,
}

impl Measured {
    /// Mean and 95 % interval over the values that were determined, converged or not.
    pub fn estimate(&self) -> Option<Estimate> {
        let values: Vec<f64> = self.values.iter().filter_map(|v| v.value).collect();
        Estimate::of(&values)
    }

    /// Values of iterations that did not come to their tolerance.
    pub fn not_converged(&self) -> usize {
        let not = |v: &&ProbeValue| v.converged == Some(false);
        self.values.iter().filter(not).count()
    }

    /// Trials that measured, and got no finite value.
    pub fn undetermined(&self) -> usize {
        self.values.iter().filter(|v| v.value.is_none()).count()
    }

    /// The largest residual.
    pub fn residual(&self) -> Option<f64> {
        let residuals = self.values.iter().filter_map(|v| v.residual);
        residuals.max_by(f64::total_cmp)
    }
}

/// The moments at which runs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// After the last update: equal epochs where all budgets are alike.
    End,
    /// At the first evaluation with at most a given training loss.
    TrainLoss,
}

impl Moment {
    /// Both.
    pub const BOTH: [Moment; 2] = [Moment::End, Moment::TrainLoss];
}

/// One rule at one batch, at one of the two moments.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbedPoint {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch at the start.
    pub batch: u64,
    /// The moment.
    pub moment: Moment,
    /// Trials planned.
    pub planned: usize,
    /// Trials that measured at this moment.
    pub probed: usize,
    /// Trials with a table of probes that never came to this moment: whose training loss stayed
    /// above the one asked for, or that did not finish.
    pub never: usize,
    /// Training loss there, each with its seed.
    pub train_losses: Vec<(u64, f64)>,
    /// Epochs there, each with its seed.
    pub epochs: Vec<(u64, f64)>,
    /// Training accuracy minus held-out accuracy there, in [-1, 1].
    pub accuracy_gaps: Vec<(u64, f64)>,
    /// Held-out loss minus training loss there.
    pub loss_gaps: Vec<(u64, f64)>,
    /// Quantities, sorted by probe, scope, name and `at`; without densities.
    pub measured: Vec<Measured>,
}

impl ProbedPoint {
    /// A quantity here.
    pub fn get(&self, key: &ProbeKey) -> Option<&Measured> {
        self.measured.iter().find(|m| m.key == *key)
    }

    /// B_simple or B_noise here, as [`ProbeAnalysis::noise_quotients`], and the number of seeds that it
    /// is of; `None` for other quantities, and of fewer than two seeds.
    pub fn noise_quotient(&self, measured: &Measured) -> Option<(Ratio, usize)> {
        let [above, below] = quotient_parts(&measured.key.quantity)?;
        let part = |quantity: &str| {
            self.get(&ProbeKey {
                quantity: quantity.to_owned(),
                ..measured.key.clone()
            })
        };
        let found = quotient(part(above)?, part(below)?);
        (found.1 > 1).then_some(found)
    }

    /// The 95 % interval that is drawn around a mean: over seeds; of one seed that of the estimator,
    /// from its own ends or its standard error.
    pub fn span(&self, measured: &Measured) -> Option<(f64, f64)> {
        let estimate = measured.estimate()?;
        if let Some(interval) = estimate.interval() {
            return Some((interval.low, interval.high));
        }
        let end = |ending: &str| {
            let key = ProbeKey {
                quantity: format!("{}_{ending}", measured.key.quantity),
                ..measured.key.clone()
            };
            Some(self.get(&key)?.estimate()?.mean)
        };
        if let (Some(low), Some(high)) = (end("low"), end("high")) {
            return Some((low, high));
        }
        let half = NORMAL_95 * measured.values.iter().find_map(ProbeValue::error)?;
        half.is_finite()
            .then_some((estimate.mean - half, estimate.mean + half))
    }
}

/// The density of a spectrum at a moment of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Density {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// Seed.
    pub seed: u64,
    /// The moment.
    pub moment: Moment,
    /// (eigenvalue, density), by ascending eigenvalue.
    pub points: Vec<(f64, f64)>,
}

/// A quantity of all parameters over training.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeCourse {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// What.
    pub key: ProbeKey,
    /// In the order of training.
    pub points: Vec<ProbeCoursePoint>,
}

/// A noise scale at one moment of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quotient {
    /// Epoch; the mean over seeds.
    pub epoch: f64,
    /// The value; `None` where it is undetermined.
    pub value: Option<f64>,
    /// Its 95 % interval, where it has two ends.
    pub span: Option<(f64, f64)>,
}

/// Numerator and denominator of a noise scale.
fn quotient_parts(quantity: &str) -> Option<[&'static str; 2]> {
    match quantity {
        "b_simple" => Some(["tr_sigma", "squared_gradient"]),
        "b_noise" => Some(["tr_h_sigma", "ghg"]),
        _ => None,
    }
}

/// The quotient of two quantities, each averaged over the seeds that have both; the jackknife is over
/// seeds. And their number.
fn quotient(above: &Measured, below: &Measured) -> (Ratio, usize) {
    let pairs: Vec<(f64, f64)> = above
        .values
        .iter()
        .filter_map(|a| {
            let b = below.values.iter().find(|b| b.seed == a.seed)?;
            Some((a.value?, b.value?))
        })
        .collect();
    (quotient_of(&pairs), pairs.len())
}

/// The quotient of the means of pairs, with the jackknife over them.
pub(super) fn quotient_of(pairs: &[(f64, f64)]) -> Ratio {
    let n = pairs.len() as f64;
    let sums = pairs
        .iter()
        .fold((0.0, 0.0), |sums, p| (sums.0 + p.0, sums.1 + p.1));
    let left_out: Vec<(f64, f64)> = pairs
        .iter()
        .map(|p| ((sums.0 - p.0) / (n - 1.0), (sums.1 - p.1) / (n - 1.0)))
        .collect();
    let left_out = LeftOut {
        pairs: if pairs.len() < 2 { &[] } else { &left_out },
        finite: 1.0,
    };
    left_out.ratio(sums.0 / n, sums.1 / n)
}

/// One measurement over training.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeCoursePoint {
    /// Epoch; the mean over seeds.
    pub epoch: f64,
    /// The values of the seeds.
    pub measured: Measured,
    /// Where a single seed's estimator gives its own interval.
    pub own_span: Option<(f64, f64)>,
}

/// The loss along a line in parameter space.
#[derive(Debug, Clone, PartialEq)]
pub struct LossLine {
    /// Where it was measured: the study, or a trial in words.
    pub source: String,
    /// One curve a label and split, in the order of the table.
    pub curves: Vec<LineCurve>,
}

/// One curve of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct LineCurve {
    /// Label, where the table has one.
    pub label: Option<String>,
    /// The split.
    pub split: Split,
    /// (alpha, loss, accuracy), by ascending alpha; a loss may be NaN or infinite.
    pub points: Vec<(f64, f64, Option<f64>)>,
}

/// The loss on a plane in parameter space.
#[derive(Debug, Clone, PartialEq)]
pub struct LossPlane {
    /// Where it was measured: the study, or a trial in words.
    pub source: String,
    /// Distances along the first direction, ascending.
    pub alphas: Vec<f64>,
    /// Along the second.
    pub betas: Vec<f64>,
    /// Losses, row by row: `losses[b * alphas.len() + a]`; `None` where there is none or it is not finite.
    pub losses: Vec<Option<f64>>,
}

/// What a probe worked on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeData {
    /// The probe.
    pub probe: Probe,
    /// Examples, where the table tells.
    pub examples: Option<u64>,
    /// Batch statistics, in the table's words.
    pub statistics: Option<String>,
}

/// All that probes measured in a study or a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeAnalysis {
    /// Name of the study or the run.
    pub name: String,
    /// Whether several runs are compared; else this is one run.
    pub compared: bool,
    /// Labels of the rules.
    pub rules: Vec<String>,
    /// What the rules are values of.
    pub rule_title: String,
    /// Global batches, ascending.
    pub batches: Vec<u64>,
    /// The training loss of [`Moment::TrainLoss`], where the settings tell.
    pub at_train_loss: Option<f64>,
    /// The split that gaps are measured on.
    pub held_out: Option<Split>,
    /// What was measured at the two moments, by moment, rule and batch.
    pub points: Vec<ProbedPoint>,
    /// Densities, by moment, rule, batch and seed.
    pub densities: Vec<Density>,
    /// Quantities over training.
    pub courses: Vec<ProbeCourse>,
    /// The noise scale over training.
    pub noise: Vec<NoiseCourse>,
    /// Losses along lines.
    pub lines: Vec<LossLine>,
    /// Losses on planes.
    pub planes: Vec<LossPlane>,
    /// What each probe worked on.
    pub data: Vec<ProbeData>,
    /// Things a reader should know about the tables.
    pub notes: Vec<String>,
}

impl ProbeAnalysis {
    /// The points of a moment.
    pub fn at(&self, moment: Moment) -> impl Iterator<Item = &ProbedPoint> {
        self.points.iter().filter(move |p| p.moment == moment)
    }

    /// The point of a rule at a batch and a moment.
    pub fn point(&self, moment: Moment, rule: usize, batch: u64) -> Option<&ProbedPoint> {
        self.at(moment).find(|p| p.rule == rule && p.batch == batch)
    }

    /// B_simple or B_noise over training, from probes: epochs with the quotient of numerator and
    /// denominator, each averaged over the seeds first. A quotient of means says what a mean of
    /// quotients cannot, where some seed's denominator is not positive. The interval is the jackknife's
    /// over seeds; of one seed that of its estimator. Empty for other quantities.
    pub fn noise_quotients(&self, rule: usize, batch: u64, quantity: &str) -> Vec<Quotient> {
        let Some(parts) = quotient_parts(quantity) else {
            return Vec::new();
        };
        let course = |quantity: &str| {
            let mut all = self.courses.iter();
            all.find(|c| (c.rule, c.batch) == (rule, batch) && c.key.is(Probe::Noise, quantity))
        };
        let [Some(above), Some(below)] = parts.map(course) else {
            return Vec::new();
        };
        let own = course(quantity);
        let mut found = Vec::new();
        for (i, point) in above.points.iter().enumerate() {
            let Some(other) = below.points.iter().find(|p| p.epoch == point.epoch) else {
                continue;
            };
            let (ratio, n) = quotient(&point.measured, &other.measured);
            let one = n < 2;
            let interval = ratio.interval.map(|i| (i.low(), i.high()));
            let own = own.and_then(|c| c.points.get(i)).and_then(|p| p.own_span);
            found.push(Quotient {
                epoch: point.epoch,
                value: ratio.value.ok(),
                span: if one {
                    own
                } else {
                    interval.and_then(|(low, high)| Some((low, high?)))
                },
            });
        }
        found
    }

    /// Least and greatest number of epochs at a moment.
    pub fn epochs(&self, moment: Moment) -> Option<(f64, f64)> {
        range(self.at(moment).flat_map(|p| &p.epochs).map(|e| e.1))
    }

    /// Least and greatest training loss at a moment.
    pub fn train_losses(&self, moment: Moment) -> Option<(f64, f64)> {
        range(self.at(moment).flat_map(|p| &p.train_losses).map(|l| l.1))
    }

    /// All keys measured at the two moments, in order.
    pub fn keys(&self) -> Vec<&ProbeKey> {
        let mut keys: Vec<&ProbeKey> = Vec::new();
        for key in self.points.iter().flat_map(|p| &p.measured).map(|m| &m.key) {
            if let Err(at) = keys.binary_search_by(|k| k.order(key)) {
                keys.insert(at, key);
            }
        }
        keys
    }
}

/// Least and greatest finite value.
pub(super) fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|v| v.is_finite())
        .fold(None, |range, v| match range {
            None => Some((v, v)),
            Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
        })
}

/// A trial's folder, and where it belongs.
struct Source {
    folder: PathBuf,
    /// Its name in notes and captions.
    name: String,
    rule: usize,
    batch: u64,
    seed: u64,
    /// Whether its end is a result.
    finished: bool,
    /// Updates of the whole run, where known.
    steps: Option<u64>,
}

/// What the probes of a study measured; `None` where no trial has a table of them.
///
/// Reads `probes.csv`, `noise.csv`, `noise-layers.csv`, `probes/line.csv` and `probes/plane.csv` of each
/// trial, those of them that are there, and the latter two in the folder of the study as well.
///
/// # Errors
/// If a table is unreadable or malformed; the error names file, row and column.
pub(super) fn of_study(
    dir: &Path,
    analysis: &GapAnalysis,
) -> Result<Option<ProbeAnalysis>, AnalysisError> {
    let sources: Vec<Source> = analysis
        .points
        .iter()
        .flat_map(|point| &point.trials)
        .filter_map(|&i| {
            let trial = &analysis.trials[i];
            let (batch, seed) = (trial.batch?, trial.row.seed.unwrap_or_default());
            let rule = match analysis.rules.len() {
                1 => String::new(),
                _ => format!(", {}", analysis.rules[trial.rule].label),
            };
            Some(Source {
                folder: dir.join("trials").join(&trial.row.trial),
                name: format!("batch {batch}{rule}, seed {seed}"),
                rule: trial.rule,
                batch,
                seed,
                finished: matches!(trial.row.status, Some(Status::Completed | Status::Censored)),
                steps: trial.row.steps,
            })
        })
        .collect();
    let at_train_loss = analysis
        .settings
        .iter()
        .find(|s| s.key == "probes.at_train_loss");
    let empty = ProbeAnalysis {
        name: analysis.study.name.clone(),
        compared: true,
        rules: analysis.rules.iter().map(|r| r.label.clone()).collect(),
        rule_title: rule_title(analysis),
        batches: analysis.batches.clone(),
        at_train_loss: at_train_loss.and_then(|s| s.value.parse().ok()),
        held_out: analysis.held_out,
        points: Vec::new(),
        densities: Vec::new(),
        courses: Vec::new(),
        noise: Vec::new(),
        lines: Vec::new(),
        planes: Vec::new(),
        data: Vec::new(),
        notes: Vec::new(),
    };
    gather(empty, &sources, Some(dir))
}

/// What the probes of one run measured, from its folder alone; `None` where there is no table of them.
///
/// Reads the tables that are read of a trial of a study. What `batchlab probe` measured on any weights
/// stands at [`Moment::End`].
///
/// # Errors
/// As those of a study: if a table is unreadable or malformed.
pub fn probes_of_run(dir: &Path) -> Result<Option<ProbeAnalysis>, AnalysisError> {
    let evaluations = read_evaluations(dir)?.unwrap_or_default();
    let settings: Option<toml::Table> =
        read_optional(&dir.join("config.toml"))?.and_then(|text| text.parse().ok());
    let setting = |section: &str, key: &str| {
        let value = settings.as_ref()?.get(section)?.get(key)?;
        value
            .as_float()
            .or_else(|| value.as_integer().map(|v| v as f64))
    };
    let logged = || -> Result<Option<u64>, AnalysisError> {
        let rows = read_steps(dir)?.unwrap_or_default();
        Ok(rows.first().and_then(|row| row.global_batch))
    };
    let workers = || setting("train", "workers").unwrap_or(1.0);
    let planned = setting("train", "global_batch")
        .or_else(|| Some(setting("train", "local_batch")? * workers()))
        .map(|batch| batch as u64);
    let batch = match planned {
        Some(batch) => batch,
        None => logged()?.unwrap_or_default(),
    };
    let name = dir.file_name().map_or_else(
        || dir.display().to_string(),
        |n| n.to_string_lossy().into_owned(),
    );
    let source = Source {
        folder: dir.to_owned(),
        name: name.clone(),
        rule: 0,
        batch,
        seed: settings
            .as_ref()
            .and_then(|s| s.get("seed")?.as_integer())
            .and_then(|seed| u64::try_from(seed).ok())
            .unwrap_or_default(),
        finished: true,
        steps: None,
    };
    let held_out = [Split::Test, Split::Validation]
        .into_iter()
        .find(|&split| evaluations.iter().any(|row| row.split == split));
    let empty = ProbeAnalysis {
        name,
        compared: false,
        rules: vec!["this run".to_owned()],
        rule_title: String::new(),
        batches: vec![batch],
        at_train_loss: setting("probes", "at_train_loss"),
        held_out,
        points: Vec::new(),
        densities: Vec::new(),
        courses: Vec::new(),
        noise: Vec::new(),
        lines: Vec::new(),
        planes: Vec::new(),
        data: Vec::new(),
        notes: Vec::new(),
    };
    gather(empty, &[source], None)
}

/// Fills in an analysis from the folders of its trials, and of the study.
fn gather(
    mut analysis: ProbeAnalysis,
    sources: &[Source],
    study: Option<&Path>,
) -> Result<Option<ProbeAnalysis>, AnalysisError> {
    let mut data = BTreeSet::new();
    let mut any = false;
    if let Some(dir) = study {
        let name = analysis.name.clone();
        any |= surfaces(&mut analysis, dir, &name)?;
    }
    let mut points = Vec::new();
    for source in sources {
        let place = (source.rule, source.batch);
        if !points.contains(&place) {
            points.push(place);
        }
    }
    for (rule, batch) in points {
        let of_point = sources
            .iter()
            .filter(|s| (s.rule, s.batch) == (rule, batch));
        let mut probed: Vec<Probed> = Vec::new();
        let mut noisy: Vec<NoiseTables> = Vec::new();
        let mut planned = 0;
        for source in of_point {
            planned += 1;
            if let Some(rows) = read_probes(&source.folder, source.seed)? {
                any = true;
                data.extend(rows.iter().map(|row| ProbeData {
                    probe: row.key.probe,
                    examples: row.examples,
                    statistics: row.statistics.clone(),
                }));
                let evaluations = read_evaluations(&source.folder)?.unwrap_or_default();
                probed.push(Probed::of(source, rows, &evaluations, &mut analysis));
            }
            if let Some(tables) = NoiseTables::read(&source.folder)? {
                any = true;
                if tables.missing > 0 {
                    analysis.notes.push(format!(
                        "{}: {} rows of noise.csv have no finite estimate, and no window holds them",
                        source.name, tables.missing
                    ));
                }
                noisy.push(tables);
            }
            any |= surfaces(&mut analysis, &source.folder, &source.name)?;
        }
        for moment in Moment::BOTH {
            let point = point(rule, batch, moment, planned, &probed);
            if point.probed > 0 || point.never > 0 {
                analysis.points.push(point);
            }
        }
        analysis.courses.extend(courses(rule, batch, &probed));
        analysis.noise.extend(noise_course(rule, batch, &noisy));
    }
    // A loss that nobody asked for is missed by nobody.
    let asked =
        analysis.at_train_loss.is_some() || analysis.at(Moment::TrainLoss).any(|p| p.probed > 0);
    analysis.points.retain(|p| p.moment == Moment::End || asked);
    analysis.points.sort_by_key(|p| (p.moment, p.rule, p.batch));
    analysis
        .densities
        .sort_by_key(|d| (d.moment, d.rule, d.batch, d.seed));
    analysis.data = data.into_iter().collect();
    Ok(any.then_some(analysis))
}

/// The measurements of one trial, sorted out.
struct Probed {
    seed: u64,
    /// By moment; `None` where it never came to it.
    moments: [Option<AtMoment>; 2],
    /// Start, schedule and end: step, epoch and values.
    course: Vec<(u64, f64, Values)>,
}

/// Values by key, in its order.
type Values = Vec<(ProbeKey, ProbeValue)>;

#[derive(Default)]
struct AtMoment {
    train_loss: Option<f64>,
    epoch: Option<f64>,
    accuracy_gap: Option<f64>,
    loss_gap: Option<f64>,
    values: Values,
}

impl Probed {
    fn of(
        source: &Source,
        rows: Vec<ProbeRow>,
        evaluations: &[EvaluationRow],
        analysis: &mut ProbeAnalysis,
    ) -> Self {
        let last = source
            .steps
            .or_else(|| evaluations.iter().map(|row| row.step).max())
            .or_else(|| rows.iter().filter_map(|row| row.step).max());
        let mut probed = Self {
            seed: source.seed,
            moments: [None, None],
            course: Vec::new(),
        };
        let mut densities: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
        let (mut again, mut elsewhere) = (0, 0);
        // What was measured at the end comes before what was measured there once more.
        let (after, during): (Vec<ProbeRow>, Vec<ProbeRow>) =
            rows.into_iter().partition(|row| row.when == When::After);
        let measured_at_end: Vec<ProbeKey> = during
            .iter()
            .filter(|row| row.when == When::End)
            .map(|row| row.key.clone())
            .collect();
        let has_density = |keys: &[ProbeKey]| keys.iter().any(|k| k.probe == Probe::Density);
        for row in during.into_iter().chain(after) {
            let moment = match row.when {
                When::TrainLoss => Some(Moment::TrainLoss),
                When::End if source.finished => Some(Moment::End),
                When::After => {
                    let same = !analysis.compared || (row.step.is_some() && row.step == last);
                    elsewhere += usize::from(!same);
                    let known = measured_at_end.contains(&row.key)
                        || row.key.probe == Probe::Density && has_density(&measured_at_end);
                    again += usize::from(same && known);
                    (same && !known && source.finished).then_some(Moment::End)
                }
                _ => None,
            };
            if row.key.probe == Probe::Density {
                if let (Some(moment), "density", Some(x), Some(y)) = (
                    moment,
                    row.key.quantity.as_str(),
                    row.key.at,
                    row.value.value,
                ) {
                    densities[moment as usize].push((x, y));
                }
                if let Some(moment) = moment {
                    let there = probed.moments[moment as usize].get_or_insert_default();
                    there.note(&row, evaluations, analysis.held_out);
                }
                continue;
            }
            if let (When::Start | When::Schedule | When::End, Some(step)) = (row.when, row.step) {
                let found = probed.course.iter().position(|c| c.0 == step);
                let at = found.unwrap_or(probed.course.len());
                if found.is_none() {
                    let epoch = row.epoch.unwrap_or(f64::NAN);
                    probed.course.push((step, epoch, Vec::new()));
                }
                put(&mut probed.course[at].2, &row.key, row.value);
            }
            if let Some(moment) = moment {
                let there = probed.moments[moment as usize].get_or_insert_default();
                there.note(&row, evaluations, analysis.held_out);
                again += usize::from(put(&mut there.values, &row.key, row.value));
            }
        }
        probed.course.sort_by_key(|c| c.0);
        for (moment, mut points) in Moment::BOTH.into_iter().zip(densities) {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if points.len() > 1 {
                analysis.densities.push(Density {
                    rule: source.rule,
                    batch: source.batch,
                    seed: source.seed,
                    moment,
                    points,
                });
            }
        }
        for (n, why) in [
            (
                again,
                "were measured twice at one moment: of those in training the last counts, and none measured after the run",
            ),
            (
                elsewhere,
                "were measured after the run at other weights than its last, and are not compared",
            ),
        ] {
            if n > 0 {
                analysis
                    .notes
                    .push(format!("{}: {n} values in probes.csv {why}", source.name));
            }
        }
        probed
    }
}

/// Adds a value, or replaces an earlier one and says so.
fn put(values: &mut Values, key: &ProbeKey, value: ProbeValue) -> bool {
    match values.binary_search_by(|(k, _)| k.order(key)) {
        Ok(at) => {
            values[at].1 = value;
            true
        }
        Err(at) => {
            values.insert(at, (key.clone(), value));
            false
        }
    }
}

impl AtMoment {
    /// Takes in where a row was measured, and the gap between the splits there.
    fn note(&mut self, row: &ProbeRow, evaluations: &[EvaluationRow], held_out: Option<Split>) {
        self.train_loss = self.train_loss.or(row.train_loss);
        self.epoch = self.epoch.or(row.epoch);
        if self.loss_gap.is_some() || self.accuracy_gap.is_some() {
            return;
        }
        let (Some(step), Some(held_out)) = (row.step, held_out) else {
            return;
        };
        let of = |split: Split| {
            evaluations
                .iter()
                .find(|e| e.step == step && e.split == split)
        };
        let Some(held) = of(held_out) else {
            return;
        };
        let train = of(Split::Train);
        let train_loss = train.map(|e| e.loss).or(row.train_loss);
        let finite = |v: &f64| v.is_finite();
        self.loss_gap = train_loss.map(|loss| held.loss - loss).filter(finite);
        self.accuracy_gap = train
            .and_then(|e| Some(e.accuracy? - held.accuracy?))
            .filter(finite);
    }
}

fn point(
    rule: usize,
    batch: u64,
    moment: Moment,
    planned: usize,
    probed: &[Probed],
) -> ProbedPoint {
    let mut measured: Vec<Measured> = Vec::new();
    let there = || {
        probed
            .iter()
            .filter_map(|p| Some((p.seed, p.moments[moment as usize].as_ref()?)))
    };
    for (_, at) in there() {
        for (key, value) in &at.values {
            match measured.binary_search_by(|m| m.key.order(key)) {
                Ok(i) => measured[i].values.push(*value),
                Err(i) => measured.insert(
                    i,
                    Measured {
                        key: key.clone(),
                        values: vec![*value],
                    },
                ),
            }
        }
    }
    let of = |pick: fn(&AtMoment) -> Option<f64>| -> Vec<(u64, f64)> {
        there()
            .filter_map(|(seed, at)| Some((seed, pick(at)?)))
            .collect()
    };
    let reached = there().count();
    ProbedPoint {
        rule,
        batch,
        moment,
        planned,
        probed: reached,
        never: probed.len() - reached,
        train_losses: of(|at| at.train_loss),
        epochs: of(|at| at.epoch),
        accuracy_gaps: of(|at| at.accuracy_gap),
        loss_gaps: of(|at| at.loss_gap),
        measured,
    }
}

/// Quantities of all parameters over training. Seeds are put together measurement by measurement:
/// after equal numbers of updates, or where those differ the first of each, the second and so on.
fn courses(rule: usize, batch: u64, probed: &[Probed]) -> Vec<ProbeCourse> {
    let steps = |p: &Probed| -> Vec<u64> { p.course.iter().map(|c| c.0).collect() };
    let alike = probed
        .windows(2)
        .all(|pair| steps(&pair[0]).len() == steps(&pair[1]).len());
    let mut moments: BTreeMap<u64, Vec<(f64, &Values)>> = BTreeMap::new();
    for one in probed {
        for (i, (step, epoch, values)) in one.course.iter().enumerate() {
            let place = if alike { i as u64 } else { *step };
            moments.entry(place).or_default().push((*epoch, values));
        }
    }
    let mut courses: Vec<ProbeCourse> = Vec::new();
    for seeds in moments.values() {
        let epoch = Moments::of(seeds.iter().map(|s| s.0)).mean();
        let mut here: Vec<Measured> = Vec::new();
        for (key, value) in seeds.iter().flat_map(|s| s.1) {
            match here.iter_mut().find(|m| m.key == *key) {
                Some(measured) => measured.values.push(*value),
                None => here.push(Measured {
                    key: key.clone(),
                    values: vec![*value],
                }),
            }
        }
        let mean_of = |key: &ProbeKey, ending: &str| {
            let quantity = format!("{}_{ending}", key.quantity);
            let of = |m: &&Measured| {
                m.key.quantity == quantity && m.key.probe == key.probe && m.key.at == key.at
            };
            Some(
                here.iter()
                    .filter(|m| m.key.scope.is_empty())
                    .find(of)?
                    .estimate()?
                    .mean,
            )
        };
        for measured in here.iter().filter(|m| m.key.scope.is_empty()) {
            let own_span = mean_of(&measured.key, "low").zip(mean_of(&measured.key, "high"));
            let point = ProbeCoursePoint {
                epoch: epoch.unwrap_or(f64::NAN),
                measured: measured.clone(),
                own_span,
            };
            match courses.iter_mut().find(|c| c.key == measured.key) {
                Some(course) => course.points.push(point),
                None => courses.push(ProbeCourse {
                    rule,
                    batch,
                    key: measured.key.clone(),
                    points: vec![point],
                }),
            }
        }
    }
    courses
}

impl ProbeCoursePoint {
    /// The 95 % interval that is drawn: over seeds; of one seed that of its estimator.
    pub fn span(&self) -> Option<(f64, f64)> {
        let estimate = self.measured.estimate()?;
        if let Some(interval) = estimate.interval() {
            return Some((interval.low, interval.high));
        }
        self.own_span.or_else(|| {
            let half = NORMAL_95 * self.measured.values.first()?.error()?;
            Some((estimate.mean - half, estimate.mean + half))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_rank_and_not_by_text() {
        let key = |at: f64| ProbeKey {
            probe: Probe::Hessian,
            quantity: "eigenvalue".to_owned(),
            scope: String::new(),
            at: Some(at),
        };
        let mut values = Vec::new();
        for rank in [10.0, 2.0, 1.0] {
            assert!(!put(&mut values, &key(rank), ProbeValue::default()));
        }
        assert!(put(&mut values, &key(2.0), ProbeValue::default()));
        let ranks: Vec<f64> = values.iter().filter_map(|v| v.0.at).collect();
        assert_eq!(ranks, [1.0, 2.0, 10.0]);
    }
}
