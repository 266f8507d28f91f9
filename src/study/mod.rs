//! A study as a whole: plan, execute, resume, status.
//!
//! A study is a list of trials. This room decides which of them run, in what order, on how many
//! threads, and keeps their folders; how one is trained is behind [`TrialRunner`]. It prints
//! nothing: what happens goes to an [`Observer`].
//!
//! # Folder
//! ```text
//! results/<name>/
//!   config.toml   the study file as given        study.json    the plan: trials in order
//!   summary.csv   one row a trial                timings.csv   the one table with times
//!   report.html, figures/                        study.lock    while someone writes the above
//!   trials/<id>.lock                             while a process runs this trial
//!   trials/<id>/  config.toml, manifest.json, the runner's files, result.json (last)
//! ```
//! A trial is done if and only if its `result.json` is whole, and so are the files named in it. Results hold no times, so a study
//! that was killed and started again ends with the same bytes, `manifest.json` and `timings.csv`
//! apart.
//!
//! # Sharing
//! A process takes a trial by its lock, which the system frees when the process dies. Any number
//! of processes (`--shard`, `--index`, or the same command twice) may work in one folder, on one
//! machine or over a network file system with locks. Whoever finds every trial of the plan done
//! writes the summary and the report, from what is on disk and in plan order, under the study's
//! lock; if two do, they write the same bytes.

mod critical;
mod error;
mod estimate;
mod execute;
mod folder;
mod open;
mod plan;
mod ranks;
mod reading;
mod record;
mod runner;
mod search;
mod status;
mod tables;
mod trainer;

pub use critical::{
    NOISE_PIECES, Round, check_critical, critical_trials, execute_critical, rate_limits, role,
};
pub use error::{BoxError, StudyError};
pub use estimate::{Basis, Estimate, estimate};
pub use execute::{
    Counts, Event, Execution, Observer, Options, Session, WORKER_THREAD, execute, host_name,
};
pub use folder::{StudyFolder, TrialState};
pub use open::{FinishedTrial, OpenError, finished_trials};
pub use plan::{Plan, Selection, label};
pub use ranks::{Abort, Identity, Leader, check_same, follow};
pub use reading::Reading;
pub use record::{AxisRecord, StudyRecord, TrialFile, TrialRecord, TrialResult};
pub use runner::{TrialControl, TrialError, TrialProgress, TrialRunner};
pub use status::{StudyStatus, TrialStatus, status};
pub use tables::seconds_by_trial;
pub use trainer::Trainer;
