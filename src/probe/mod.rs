//! Probes: what an objective looks like around the parameters it is at.
//!
//! A [`Subject`] is the loss that a probe looks at: a mean over fixed examples in double precision,
//! spread over threads, the same bits on any number of them. [`run`] makes the probes that a config
//! asks for; the parts are there to be used on their own. A probe changes nothing and says how good
//! its answer is. What may enter: flat vectors, the objective's door, random streams. What may not:
//! the state of training.

pub mod adversarial;
mod error;
mod landscape;
pub mod noise;
mod row;
mod run;
pub mod sharpness;
mod subject;
pub mod surface;

pub use error::ProbeError;
pub use landscape::Landscape;
pub use row::{HEADER, Place, Row};
pub use run::{Probed, run};
pub use subject::{Curvature, Subject, SubjectAt, SubjectOptions, SubjectStatistics};
