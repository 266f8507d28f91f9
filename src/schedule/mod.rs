//! Schedules: how the learning rate follows the global batch, how it warms up, how it decays; how
//! momentum changes; how the batch does.
//!
//! A schedule is a pure function of the number of updates already made, or of the examples already
//! processed where the batch varies. Nothing in it keeps state, so a resumed run has the rates of
//! an undisturbed one, and gradient accumulation cannot advance a schedule early. What may enter:
//! the resolved configuration and sizes of the run. What may not: models, files.

mod batch;
mod decay;
mod error;
mod learning_rate;
mod momentum;
mod time;

pub use batch::{
    Adversarial, BatchControl, BatchError, Change, ControlState, Measured, Moment, Need, Stage,
    Start,
};
pub use error::ScheduleError;
pub use learning_rate::LearningRate;
pub use momentum::Momentum;
