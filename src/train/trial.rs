//! One trial in its folder, from the first update or from where it was killed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::TrainError;
use super::checkpoint::{self, Progress};
use super::outcome::{Evaluation, Status, TargetOutcome, TrialOutcome};
use super::pool::Pool;
use super::session::Session;
use crate::config::{Metric, Split, TargetConfig, TrialConfig};
use crate::data::Data;
use crate::model::{AnyObjective, weights};
use crate::objective::{LayerStatistics, Objective, Scalar};
use crate::store;
use crate::store::clock::Stopwatch;

const STEPS_HEADER: &str = "step,epoch,examples,global_batch,lr,loss\n";
const EVALUATIONS_HEADER: &str = "step,epoch,examples,split,loss,accuracy,n\n";

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
}

/// Runs a trial in its folder: resumes from its checkpoint if there is one, and writes steps.csv,
/// evaluations.csv, model.safetensors and checkpoint.safetensors.
///
/// # Errors
/// If config and data do not go together, the model fails, a file cannot be written, the
/// checkpoint belongs to another config, or the user asks to stop.
pub fn run_trial<F: Scalar>(
    config: &TrialConfig,
    data: &Data,
    model: &dyn AnyObjective,
    objective: &dyn Objective<F>,
    places: Places<'_>,
    control: Control<'_>,
) -> Result<TrialOutcome, TrainError> {
    Pool::with(control.threads, |pool| {
        let session = Session::new(config, data, objective, pool)?;
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
    steps_csv: String,
    evaluations_csv: String,
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
        let path = places.folder.join("checkpoint.safetensors");
        let length = session.parameters().len();
        let found = checkpoint::read::<F>(&path, places.run_id, length, session.slots())?;
        let (progress, steps_csv, evaluations_csv) = if let Some(found) = found {
            let state = found.state.into_iter().map(|(_, values)| values).collect();
            session.restore(found.progress.step, found.parameters, state);
            (found.progress, found.steps_csv, found.evaluations_csv)
        } else {
            let target = config.train.target.as_ref().map(|t| TargetOutcome {
                metric: t.metric,
                split: t.split,
                value: t.value,
                reached: false,
                steps_to_target: None,
                examples_to_target: None,
            });
            let progress = Progress {
                run_id: places.run_id.to_owned(),
                precision: F::NAME.to_owned(),
                step: 0,
                evaluated_step: None,
                evaluation: BTreeMap::new(),
                target,
                finished: None,
            };
            (
                progress,
                STEPS_HEADER.to_owned(),
                EVALUATIONS_HEADER.to_owned(),
            )
        };
        Ok(Self {
            config,
            session,
            places,
            control,
            progress,
            steps_csv,
            evaluations_csv,
            statistics: None,
        })
    }

    fn run(&mut self) -> Result<(), TrainError> {
        let total = self.session.setup().total_steps;
        let mut since_checkpoint = Stopwatch::start();
        while self.progress.finished.is_none() {
            let step = self.session.step_count();
            if self.is_due(step) && self.progress.evaluated_step != Some(step) {
                self.evaluate()?;
                continue;
            }
            if step >= total {
                let censored = self.progress.target.is_some_and(|t| !t.reached);
                let status = if censored {
                    Status::Censored
                } else {
                    Status::Completed
                };
                self.progress.finished = Some((status, None));
                break;
            }
            if self.control.stop.load(Ordering::Relaxed) {
                self.checkpoint()?;
                return Err(TrainError::Interrupted { step });
            }
            let report = self.session.step()?;
            let step = step + 1;
            let bound = self.config.train.divergence_loss;
            let diverged = !(report.loss.is_finite() && report.loss <= bound);
            let log_every = self.config.train.log_every.max(1);
            if step.is_multiple_of(log_every) || step == total || diverged {
                let order = &self.session.setup().order;
                let _ = writeln!(
                    self.steps_csv,
                    "{step},{},{},{},{},{}",
                    order.epochs_after(step),
                    order.examples_after(step),
                    report.examples,
                    report.lr,
                    report.loss
                );
            }
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
        Ok(())
    }

    /// Whether the state after `step` updates is to be evaluated.
    fn is_due(&self, step: u64) -> bool {
        let setup = self.session.setup();
        if step == 0 || step >= setup.total_steps {
            return true;
        }
        let evaluate = &self.config.train.evaluate;
        match (evaluate.every_steps, evaluate.every_epochs) {
            (Some(every), _) => step.is_multiple_of(every),
            (None, every) => {
                let every = every.unwrap_or(1.0);
                let passed = |s: u64| (setup.order.epochs_after(s) / every + 1e-9).floor();
                passed(step) > passed(step - 1)
            }
        }
    }

    fn evaluate(&mut self) -> Result<(), TrainError> {
        let step = self.session.step_count();
        let order = &self.session.setup().order;
        let (epoch, examples) = (order.epochs_after(step), order.examples_after(step));
        let statistics = self.session.statistics()?;
        for split in [Split::Train, Split::Validation, Split::Test] {
            let Some(evaluation) = self.session.evaluate(split, &statistics)? else {
                continue;
            };
            let accuracy = evaluation
                .accuracy
                .map_or_else(String::new, |a| a.to_string());
            let _ = writeln!(
                self.evaluations_csv,
                "{step},{epoch},{examples},{},{},{accuracy},{}",
                split.name(),
                evaluation.loss,
                evaluation.n
            );
            self.progress.evaluation.insert(split, evaluation);
        }
        self.statistics = Some((step, statistics));
        self.progress.evaluated_step = Some(step);
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
        let folder = self.places.folder;
        self.progress.step = self.session.step_count();
        store::write_atomic(&folder.join("steps.csv"), self.steps_csv.as_bytes())?;
        store::write_atomic(
            &folder.join("evaluations.csv"),
            self.evaluations_csv.as_bytes(),
        )?;
        checkpoint::write(
            &folder.join("checkpoint.safetensors"),
            &self.progress,
            self.session.parameters(),
            self.session.state(),
            [&self.steps_csv, &self.evaluations_csv],
        )?;
        Ok(())
    }

    fn finish(mut self, model: &dyn AnyObjective) -> Result<TrialOutcome, TrainError> {
        // Those of the last evaluation, unless updates followed it or another process made it.
        let statistics = match self.statistics.take() {
            Some((step, statistics)) if step == self.session.step_count() => statistics,
            _ => self.session.statistics()?,
        };
        let bytes = weights::to_bytes(model, self.session.parameters(), &statistics)?;
        store::write_atomic(&self.places.folder.join("model.safetensors"), &bytes)?;
        self.checkpoint()?;
        let step = self.session.step_count();
        let order = &self.session.setup().order;
        let (status, message) = self.progress.finished.unwrap_or((Status::Completed, None));
        Ok(TrialOutcome {
            status,
            message,
            steps: step,
            examples: order.examples_after(step),
            epochs: order.epochs_after(step),
            evaluation: self.progress.evaluation,
            target: self.progress.target,
        })
    }
}

fn reaches(target: &TargetConfig, evaluation: Option<&Evaluation>) -> bool {
    evaluation.is_some_and(|e| match target.metric {
        Metric::Accuracy => e.accuracy.is_some_and(|a| a >= target.value),
        Metric::Loss => e.loss <= target.value,
    })
}
