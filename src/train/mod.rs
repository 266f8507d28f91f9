//! The step, the loop, evaluation, checkpoint and exact resume.
//!
//! A [`Session`] holds the state of training as flat vectors and makes one update at a time on
//! persistent threads; [`run_trial`] runs a whole trial in a folder. No framework may enter here:
//! a model is an [`Objective`](crate::objective::Objective).

mod checkpoint;
mod outcome;
mod pool;
mod session;
mod trial;

pub use checkpoint::CheckpointError;
pub use outcome::{Evaluation, Status, TargetOutcome, TrialOutcome};
pub use pool::Pool;
pub use session::{Session, Setup, StepReport};
pub use trial::{Control, Places, run_trial};

use crate::objective::ObjectiveError;
use crate::optim::OptimError;
use crate::schedule::ScheduleError;
use crate::store::StoreError;

/// Why a trial ended without a result of its own.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The config does not go with the data.
    #[error("{key}: expected {expected}, found {found}\nhint: {hint}")]
    Config {
        /// The key.
        key: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
        /// What would be right.
        hint: String,
    },
    /// The learning-rate schedule is impossible.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
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
