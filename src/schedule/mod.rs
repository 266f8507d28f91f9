//! Learning-rate schedules: how the rate follows the global batch, how it warms up, how it decays.
//!
//! A schedule is a pure function of the number of updates already made. Nothing here keeps state,
//! so a resumed run has the rates of an undisturbed one, and gradient accumulation cannot advance
//! a schedule early. What may enter: the resolved configuration and sizes of the run. What may
//! not: models, gradients, files.

mod decay;
mod error;
mod learning_rate;

pub use error::ScheduleError;
pub use learning_rate::LearningRate;
