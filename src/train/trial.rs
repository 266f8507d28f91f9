//! One trial in its folder, from the first update or from where it was killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::TrainError;
use super::checkpoint::{self, Probed, Progress, Tables};
use super::outcome::{Evaluation, Status, TargetOutcome, TrialOutcome};
use super::session::Session;
use crate::collective::{Pool, Ranks};
use crate::config::{Metric, Split, TargetConfig, TrialConfig, Update};
use crate::data::Data;
use crate::model::{AnyObjective, weights};
use crate::objective::{LayerStatistics, Objective, Scalar};
use crate::probe::{self, ProbeError};
use crate::store;
use crate::store::clock::Stopwatch;

const STEPS_HEADER: &str = "step,epoch,examples,global_batch,lr,loss,workers,momentum\n";
const EVALUATIONS_HEADER: &str = "step,epoch,examples,split,loss,accuracy,n\n";
const BATCH_HEADER: &str = "step,epoch,examples,from_batch,to_batch,from_rate_factor,to_rate_factor,quantity,value,reason\n";

const NOISE_HEADER: &str = "step,epoch,examples,lr,b_small,g2_small,b_big,g2_big,tr_sigma,squared_gradient,cosine_previous,cosine_workers,snr,adamw_g2_small,adamw_g2_big\n";
const LAYER_NOISE_HEADER: &str = "step,layer,b_small,g2_small,b_big,g2_big\n";

const STALENESS_HEADER: &str = "step,seconds,replica,staleness\n";

const STEPS: &str = "steps.csv";
const STALENESS: &str = "staleness.csv";
pub(super) const EVALUATIONS: &str = "evaluations.csv";
const BATCH: &str = "batch.csv";
const NOISE: &str = "noise.csv";
const LAYER_NOISE: &str = "noise-layers.csv";
const PROBES: &str = "probes.csv";
pub(super) const CHECKPOINT: &str = "checkpoint.safetensors";

/// How the message of a trial begins that `train.stop_steps` ended.
pub const STOPPED: &str = "stopped after";

/// The tables of a trial of this config, and their first lines.
pub(super) fn tables(config: &TrialConfig) -> Vec<(&'static str, &'static str)> {
    let mut tables = vec![
        (STEPS, STEPS_HEADER),
        (EVALUATIONS, EVALUATIONS_HEADER),
        (BATCH, BATCH_HEADER),
    ];
    if matches!(config.train.update, Update::Asynchronous { .. }) {
        tables.push((STALENESS, STALENESS_HEADER));
    }
    if let Some(noise) = config.probes.noise_of_updates() {
        tables.push((NOISE, NOISE_HEADER));
        if noise.layers {
            tables.push((LAYER_NOISE, LAYER_NOISE_HEADER));
        }
    }
    if config.probes.at_moments() {
        tables.push((PROBES, probe::HEADER));
    }
    tables
}

/// The files that a trial of this config leaves.
pub fn files(config: &TrialConfig) -> Vec<&'static str> {
    let tables = tables(config).into_iter().map(|(name, _)| name);
    tables.chain([CHECKPOINT, "model.safetensors"]).collect()
}

/// Where a trial's files are.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The trial's folder.
    pub folder: &'a Path,
    /// The trial's id.
    pub run_id: &'a str,
}

/// How the outside steers a running trial.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Threads of this trial.
    pub threads: usize,
    /// Set to stop at the next update, with a checkpoint.
    pub stop: &'a AtomicBool,
    /// Seconds between checkpoints. Does not change results.
    pub checkpoint_seconds: f64,
    /// Told after each update: updates made, updates in all, loss of the batch.
    pub progress: &'a (dyn Fn(u64, u64, f64) + Sync),
    /// Processes that the work of each update is spread over: each runs this trial, and the first
    /// writes.
    pub ranks: Option<&'a dyn Ranks>,
}

/// Runs a trial in its folder: resumes from its checkpoint if there is one, and writes steps.csv,
/// evaluations.csv, batch.csv (what the batch controller did, and why), what `[probes]` asks for,
/// model.safetensors and checkpoint.safetensors.
///
/// # Errors
/// If config and data do not go together, the model fails, a file cannot be written, the
/// checkpoint belongs to another config, or the user asks to stop.
pub fn run_trial<F: Scalar>(
    config: &TrialConfig,
    data: &Data,
    model: &dyn AnyObjective,
    objective: &dyn Objective<F>,
    curvature: &dyn Objective<f64>,
    places: Places<'_>,
    control: Control<'_>,
) -> Result<TrialOutcome, TrainError> {
    Pool::with(control.threads, |pool| {
        let mut session = Session::new(config, data, objective, pool)?.with_curvature(curvature);
        if let Some(ranks) = control.ranks {
            session = session.with_ranks(ranks)?;
        }
        let mut trial = Trial::open(config, session, places, control)?;
        trial.run()?;
        trial.finish(model)
    })
}

struct Trial<'a, 'pool, 'env, F: Scalar> {
    config: &'a TrialConfig,
    session: Session<'pool, 'env, F>,
    places: Places<'a>,
    control: Control<'a>,
    progress: Progress,
    tables: Tables,
    /// Inference statistics, and the update after which they were taken.
    statistics: Option<(u64, Vec<LayerStatistics>)>,
}

impl<'a, 'pool, 'env, F: Scalar> Trial<'a, 'pool, 'env, F> {
    fn open(
        config: &'a TrialConfig,
        mut session: Session<'pool, 'env, F>,
        places: Places<'a>,
        control: Control<'a>,
    ) -> Result<Self, TrainError> {
        let path = places.folder.join(CHECKPOINT);
        let length = session.parameters().len();
        let names = session.names();
        let own = tables(config);
        let files: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        let found =
            checkpoint::read::<F>(&path, places.run_id, length, &names, &files, control.ranks)?;
        let (progress, tables) = if let Some(found) = found {
            session.restore(found.counters, found.parameters, found.vectors);
            (found.progress, found.tables)
        } else {
            let progress = Progress {
                run_id: places.run_id.to_owned(),
                precision: F::NAME.to_owned(),
                evaluated_step: None,
                evaluated_epoch: None,
                evaluation: BTreeMap::new(),
                target: unreached(config),
                probed: Probed::default(),
                finished: None,
            };
            let tables = own.iter().map(|&(name, header)| (name, header.to_owned()));
            (progress, Tables::new(tables))
        };
        Ok(Self {
            config,
            session,
            places,
            control,
            progress,
            tables,
            statistics: None,
        })
    }

    fn run(&mut self) -> Result<(), TrainError> {
        let mut since_checkpoint = Stopwatch::start();
        while self.progress.finished.is_none() {
            let step = self.session.step_count();
            let over = self.is_over();
            if self.progress.evaluated_step != Some(step) && self.is_due(over) {
                self.evaluate()?;
                continue;
            }
            if let Some(when) = self.probe_is_due(over) {
                self.probe(when)?;
                continue;
            }
            if over {
                let censored = self.progress.target.is_some_and(|t| !t.reached)
                    || self.session.nobody_is_left() && !self.session.budget_is_used_up();
                let status = if censored {
                    Status::Censored
                } else {
                    Status::Completed
                };
                let stopped = if self.session.nobody_is_left() {
                    Some(format!(
                        "no replica sends gradients any more after update {step}"
                    ))
                } else {
                    (!self.session.is_over())
                        .then(|| format!("{STOPPED} update {step}, by `train.stop_steps`"))
                };
                self.progress.finished = Some((status, stopped));
                break;
            }
            let stop = self.control.stop.load(Ordering::Relaxed);
            if self.session.asked_to_stop(stop) {
                self.checkpoint()?;
                return Err(TrainError::Interrupted { step });
            }
            let report = self.session.step()?;
            let step = step + 1;
            self.note_changes();
            self.note_noises();
            let bound = self.config.train.divergence_loss;
            let diverged = !(report.loss.is_finite() && report.loss <= bound);
            let log_every = self.config.train.log_every.max(1);
            if step.is_multiple_of(log_every) || self.is_over() || diverged {
                let momentum = report.momentum.map_or_else(String::new, |m| m.to_string());
                let row = format!(
                    "{step},{},{},{},{},{},{},{momentum}\n",
                    self.session.epochs(),
                    self.session.examples(),
                    report.examples,
                    report.lr,
                    report.loss,
                    report.workers,
                );
                self.write(STEPS, &row);
                if let Some((replica, seconds)) = report.replica {
                    let row = format!("{step},{seconds},{replica},{}\n", report.staleness);
                    self.write(STALENESS, &row);
                }
            }
            let total = self.session.setup().total_steps.max(step);
            (self.control.progress)(step, total, report.loss);
            if diverged {
                let message = if report.loss.is_finite() {
                    format!(
                        "loss {} above the bound {bound} at update {step}",
                        report.loss
                    )
                } else {
                    format!("loss {} at update {step}", report.loss)
                };
                self.progress.finished = Some((Status::Diverged, Some(message)));
            } else if since_checkpoint.seconds() > self.control.checkpoint_seconds {
                self.checkpoint()?;
                since_checkpoint = Stopwatch::start();
            }
        }
        let diverged = matches!(self.progress.finished, Some((Status::Diverged, _)));
        if self.config.probes.at_moments() && !diverged {
            // An evaluation that reaches the target ends the run, and may be the first with so
            // small a loss.
            if self.loss_is_reached() {
                self.probe(When::TrainLoss)?;
            }
            if !self.progress.probed.end {
                self.probe(When::End)?;
            }
        }
        Ok(())
    }

    /// Whether no update is left: by the budget, or by `train.stop_steps`.
    fn is_over(&self) -> bool {
        let stop = self.config.train.stop_steps;
        stop.is_some_and(|stop| self.session.step_count() >= stop) || self.session.is_over()
    }

    /// Whether this process writes the trial's files.
    fn writes(&self) -> bool {
        self.control.ranks.is_none_or(|ranks| ranks.rank() == 0)
    }

    /// Appends to a table.
    fn write(&mut self, table: &str, rows: &str) {
        if let Some(table) = self.tables.get_mut(table) {
            table.push_str(rows);
        }
    }

    /// Writes what the updates since the last call say about the noise of their gradients.
    fn note_noises(&mut self) {
        for noise in self.session.take_noises() {
            let finite = |value: &f64| value.is_finite();
            let cell = |value: Option<f64>| {
                let value = value.filter(finite);
                value.map_or_else(String::new, |v| v.to_string())
            };
            // tr(Sigma)/B is the noise in the squared norm of the batch's gradient.
            let snr = noise.squared_gradient / (noise.tr_sigma / noise.b_big);
            let row = format!(
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                noise.step,
                noise.epoch,
                noise.examples,
                noise.lr,
                noise.b_small,
                noise.g2_small,
                noise.b_big,
                noise.g2_big,
                noise.tr_sigma,
                noise.squared_gradient,
                cell(noise.cosine_previous),
                cell(Some(noise.cosine_workers)),
                cell(Some(snr)),
                cell(noise.adamw.map(|(small, _)| small)),
                cell(noise.adamw.map(|(_, big)| big)),
            );
            self.write(NOISE, &row);
            for layer in &noise.layers {
                let row = format!(
                    "{},{},{},{},{},{}\n",
                    noise.step,
                    layer.layer,
                    noise.b_small,
                    layer.g2_small,
                    noise.b_big,
                    layer.g2_big
                );
                self.write(LAYER_NOISE, &row);
            }
        }
    }

    /// Why the state now is to be probed, if it is.
    fn probe_is_due(&self, over: bool) -> Option<When> {
        let probes = &self.config.probes;
        let (step, probed) = (self.session.step_count(), &self.progress.probed);
        if !probes.at_moments() {
            return None;
        }
        if step == 0 {
            return (probes.start && probed.step.is_none()).then_some(When::Start);
        }
        if self.loss_is_reached() {
            return Some(When::TrainLoss);
        }
        if over || probed.step == Some(step) {
            return None;
        }
        let due = match (probes.every_steps, probes.every_epochs) {
            (Some(every), _) => step.is_multiple_of(every),
            (None, Some(every)) => {
                let passed = |epochs: f64| (epochs / every + 1e-9).floor();
                passed(self.session.epochs()) > passed(probed.epoch.unwrap_or(0.0))
            }
            (None, None) => false,
        };
        due.then_some(When::Schedule)
    }

    /// Whether the evaluation of the state now is the first with the training loss to probe at.
    fn loss_is_reached(&self) -> bool {
        let step = self.session.step_count();
        let train = self.progress.evaluation.get(&Split::Train);
        let bound = self.config.probes.at_train_loss;
        !self.progress.probed.at_train_loss
            && self.progress.evaluated_step == Some(step)
            && bound.is_some_and(|bound| train.is_some_and(|train| train.loss <= bound))
    }

    fn probe(&mut self, when: When) -> Result<(), TrainError> {
        let (step, epoch) = (self.session.step_count(), self.session.epochs());
        let statistics = match self.statistics.take() {
            Some((at, statistics)) if at == step => statistics,
            _ => self.session.statistics()?,
        };
        let train = match self.progress.evaluation.get(&Split::Train) {
            Some(train) if self.progress.evaluated_step == Some(step) => Some(*train),
            _ => self.session.evaluate(Split::Train, &statistics)?,
        };
        // Ranks make probes each for itself, and stop together, after an update.
        let never = AtomicBool::new(false);
        let stop = if self.session.several_ranks().is_some() {
            &never
        } else {
            self.control.stop
        };
        let rows = match self.session.probe(&statistics, stop) {
            Err(TrainError::Probe(ProbeError::Interrupted)) => {
                self.checkpoint()?;
                return Err(TrainError::Interrupted { step });
            }
            rows => rows?,
        };
        let place = probe::Place {
            step,
            epoch,
            when: when.name(),
            train_loss: train.map(|train| train.loss),
        };
        let rows: String = rows.iter().map(|row| row.csv(&place)).collect();
        self.write(PROBES, &rows);
        self.statistics = Some((step, statistics));
        let probed = &mut self.progress.probed;
        match when {
            When::Start | When::Schedule => {
                (probed.step, probed.epoch) = (Some(step), Some(epoch));
            }
            When::TrainLoss => probed.at_train_loss = true,
            When::End => probed.end = true,
        }
        Ok(())
    }

    /// Writes what the batch controller did since the last call.
    fn note_changes(&mut self) {
        for noted in self.session.take_changes() {
            let change = noted.change;
            let value = change.value.map_or_else(String::new, |v| v.to_string());
            let row = format!(
                "{},{},{},{},{},{},{},{},{value},{}\n",
                noted.step,
                noted.epoch,
                noted.examples,
                change.from,
                change.to,
                change.rate_factor_from,
                change.rate_factor_to,
                quoted(&change.quantity),
                quoted(&change.reason),
            );
            self.write(BATCH, &row);
        }
    }

    /// Whether the state now is to be evaluated.
    fn is_due(&self, over: bool) -> bool {
        let step = self.session.step_count();
        if step == 0 || over {
            return true;
        }
        let evaluate = &self.config.train.evaluate;
        if let Some(growth) = evaluate.growth {
            return is_of_growing_steps(step, growth);
        }
        match (evaluate.every_steps, evaluate.every_epochs) {
            (Some(every), _) => step.is_multiple_of(every),
            (None, every) => {
                let every = every.unwrap_or(1.0);
                let passed = |epochs: f64| (epochs / every + 1e-9).floor();
                let last = self.progress.evaluated_epoch.unwrap_or(0.0);
                passed(self.session.epochs()) > passed(last)
            }
        }
    }

    fn evaluate(&mut self) -> Result<(), TrainError> {
        let step = self.session.step_count();
        let (epoch, examples) = (self.session.epochs(), self.session.examples());
        let statistics = self.session.statistics()?;
        let wanted = self.config.train.evaluate.splits.as_ref();
        for split in [Split::Train, Split::Validation, Split::Test] {
            if wanted.is_some_and(|wanted| !wanted.contains(&split)) {
                continue;
            }
            let Some(evaluation) = self.session.evaluate(split, &statistics)? else {
                continue;
            };
            let accuracy = evaluation
                .accuracy
                .map_or_else(String::new, |a| a.to_string());
            let row = format!(
                "{step},{epoch},{examples},{},{},{accuracy},{}\n",
                split.name(),
                evaluation.loss,
                evaluation.n
            );
            self.write(EVALUATIONS, &row);
            self.progress.evaluation.insert(split, evaluation);
        }
        self.statistics = Some((step, statistics));
        self.progress.evaluated_step = Some(step);
        self.progress.evaluated_epoch = Some(epoch);
        let bound = self.config.train.divergence_loss;
        if let Some(train) = self.progress.evaluation.get(&Split::Train)
            && !(train.loss.is_finite() && train.loss <= bound)
        {
            let above = if train.loss.is_finite() {
                format!(" above the bound {bound}")
            } else {
                String::new()
            };
            let message = format!(
                "loss {}{above} on the training split after update {step}",
                train.loss
            );
            self.progress.finished = Some((Status::Diverged, Some(message)));
        } else if let (Some(config), Some(target)) =
            (&self.config.train.target, &mut self.progress.target)
            && reaches(config, self.progress.evaluation.get(&config.split))
        {
            target.reached = true;
            target.steps_to_target = Some(step);
            target.examples_to_target = Some(examples);
            self.progress.finished = Some((Status::Completed, None));
        }
        Ok(())
    }

    /// The state on disk; the tables beside it are there for the user to watch.
    fn checkpoint(&mut self) -> Result<(), TrainError> {
        if !self.writes() {
            return Ok(());
        }
        let folder = self.places.folder;
        for (name, table) in self.tables.named() {
            store::write_atomic(&folder.join(name), table.as_bytes())?;
        }
        checkpoint::write(
            &folder.join(CHECKPOINT),
            &self.progress,
            self.session.counters(),
            self.session.parameters(),
            self.session.vectors(),
            &self.tables,
        )?;
        Ok(())
    }

    fn finish(mut self, model: &dyn AnyObjective) -> Result<TrialOutcome, TrainError> {
        // Those of the last evaluation, unless updates followed it or another process made it.
        let statistics = match self.statistics.take() {
            Some((step, statistics)) if step == self.session.step_count() => statistics,
            _ => self.session.statistics()?,
        };
        if self.writes() {
            let bytes = weights::to_bytes(model, self.session.evaluated_parameters(), &statistics)?;
            store::write_atomic(&self.places.folder.join("model.safetensors"), &bytes)?;
        }
        self.checkpoint()?;
        let step = self.session.step_count();
        let exchange = self.session.statistics_exchange(&statistics);
        let (status, message) = self.progress.finished.unwrap_or((Status::Completed, None));
        Ok(TrialOutcome {
            status,
            message,
            steps: step,
            examples: self.session.examples(),
            epochs: self.session.epochs(),
            evaluation: self.progress.evaluation,
            target: self.progress.target,
            statistics_exchange: exchange,
            staleness: self.session.staleness().map(Box::new),
        })
    }
}

/// The target of a run that has not reached it.
pub(super) fn unreached(config: &TrialConfig) -> Option<TargetOutcome> {
    let target = config.train.target.as_ref();
    target.map(|target| TargetOutcome {
        metric: target.metric,
        split: target.split,
        value: target.value,
        reached: false,
        steps_to_target: None,
        examples_to_target: None,
    })
}

/// Why a state is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Start,
    Schedule,
    TrainLoss,
    End,
}

impl When {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Schedule => "schedule",
            Self::TrainLoss => "train_loss",
            Self::End => "end",
        }
    }
}

/// Whether `step` is one of 1, ..., s, max(s + 1, ceil(growth s)), ...
fn is_of_growing_steps(step: u64, growth: f64) -> bool {
    let mut next = 1_u64;
    while next < step {
        next = ((next as f64 * growth).ceil() as u64).max(next + 1);
    }
    next == step
}

/// A cell of a CSV table that may hold commas.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn reaches(target: &TargetConfig, evaluation: Option<&Evaluation>) -> bool {
    evaluation.is_some_and(|e| match target.metric {
        Metric::Accuracy => e.accuracy.is_some_and(|a| a >= target.value),
        Metric::Loss => e.loss <= target.value,
    })
}
