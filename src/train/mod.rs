//! The step, the loop, evaluation, checkpoint and exact resume.
//!
//! A [`Session`] holds the state of training as flat vectors and makes one update at a time on
//! persistent threads; [`run_trial`] runs a whole trial in a folder. No framework may enter here:
//! a model is an [`Objective`](crate::objective::Objective).

mod branch;
mod checkpoint;
mod gradient;
mod late;
mod measure;
mod outcome;
mod probing;
mod session;
mod setup;
mod trial;
mod watch;

pub use crate::collective::Pool;
pub use branch::branch;
pub use checkpoint::CheckpointError;
pub use late::check_update;
pub use outcome::{
    Evaluation, StalenessOutcome, StatisticsExchange, Status, TargetOutcome, TrialOutcome,
};
pub use session::{BatchChange, Session, StepReport, check_probes, one_piece_of_work};
pub use setup::{PlannedUpdate, PlannedUpdates, Setup, check_groups, statistics_group};
pub use trial::{Control, Places, STOPPED, files, run_trial};
pub use watch::{LayerNoise, UpdateNoise};

use crate::config::ConfigError;
use crate::math::noise::NoiseError;
use crate::objective::ObjectiveError;
use crate::optim::OptimError;
use crate::probe::ProbeError;
use crate::schedule::{BatchError, ScheduleError};
use crate::store::StoreError;

/// Why a trial ended without a result of its own.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The config does not go with the data.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Batch normalization needs each group whole in one pass.
    #[error(
        "train.micro_batch: expected at least {group}, because batch normalization needs each group \
         of examples that share statistics whole in one pass; found {micro_batch}\n\
         hint: leave train.micro_batch out, or use smaller groups (more workers, ghost groups)"
    )]
    MicroBatch {
        /// Examples of the largest group.
        group: usize,
        /// The configured micro-batch.
        micro_batch: usize,
    },
    /// A plan for the batch over more updates than can be walked.
    #[error(
        "{key}: {updates} updates are too many to plan a batch that changes\n\
         hint: use at most {}",
        setup::MOST_PLANNED_UPDATES
    )]
    TooManyUpdates {
        /// Dotted TOML key of the budget.
        key: &'static str,
        /// Updates of the budget.
        updates: u64,
    },
    /// The config asks for batch statistics that cannot be had.
    #[error("{key}: {message}")]
    Statistics {
        /// Dotted TOML key.
        key: &'static str,
        /// What is wrong, with a hint on its own line.
        message: String,
    },
    /// A batch controller needs the Hessian, and the session has no objective in f64 for it.
    #[error(
        "the batch controller needs Hessian-vector products in f64, and the session has no objective \
         for them\nhint: add one with `Session::with_curvature`"
    )]
    NoCurvature,
    /// A piece of a batch failed, on this rank or on another.
    #[error("{message}")]
    Piece {
        /// What went wrong.
        message: String,
    },
    /// The ranks cannot work together.
    #[error(transparent)]
    Ranks(#[from] crate::collective::RanksError),
    /// A pipeline of more stages than there are layers.
    #[error(
        "train.update.pipeline.stages: {stages} stages are more than the {layers} layers of the \
         model\nhint: use at most {layers}"
    )]
    Stages {
        /// Stages of the config.
        stages: u64,
        /// Layers of the model.
        layers: usize,
    },
    /// Replicas that cannot be.
    #[error("train.update.asynchronous: {0}")]
    Replicas(#[from] crate::theory::staleness::SettingError),
    /// The noise of the gradient could not be measured.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// The learning-rate schedule is impossible.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The batch controller is impossible.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The optimizer is impossible.
    #[error(transparent)]
    Optimizer(#[from] OptimError),
    /// The model failed.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// A file could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A probe has no answer.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The weights could not be written.
    #[error(transparent)]
    Weights(#[from] crate::model::weights::WeightsError),
    /// The user asked to stop; a checkpoint has been written.
    #[error("interrupted after update {step}; run the same command again to go on")]
    Interrupted {
        /// Updates made.
        step: u64,
    },
}
