//! The study file: one TOML file in, a list of resolved trials out.
//!
//! This room knows the schema ([`types`]), reads TOML with the line of every key, applies
//! `--set key=value`, expands `[sweep]` and `seeds`, checks that every trial makes sense, and
//! names each trial by a hash of what decides its bits. Every error says where (file, line, key),
//! what is wrong, and what would be right. It reads the study file and, in [`env`](mod@env), the
//! environment; it opens no data, prints nothing and writes nothing.
//!
//! ```
//! let text = r#"
//!     name = "batches"
//!     seeds = 3
//!     model = "mlp"
//!     [data]
//!     source = "digits"
//!     [train]
//!     workers = 4
//!     epochs = 10
//!     [learning_rate]
//!     base_lr = 0.1
//!     base_batch = 32
//!     scaling = "linear"
//!     [sweep]
//!     "train.global_batch" = { log2 = [32, 256] }
//! "#;
//! let study = batchlab::config::parse(text, "batches.toml", &[])?;
//! assert_eq!(study.trials.len(), 4 * 3);
//! assert_eq!(study.trials[11].config.explain_rate(), "0.8 = 0.1 x 256/32 (linear)");
//! # Ok::<(), batchlab::config::ConfigError>(())
//! ```
//!
//! # Rules
//! - **Paths** are relative to the current directory, as everywhere on a command line, so a
//!   trial's id does not depend on where the study file lies.
//! - **`--set`** wins over the file. Where keys exclude each other (`train.global_batch` and
//!   `train.local_batch`, `train.epochs`/`steps`/`examples`, the kinds of an optimizer), the one
//!   that is set takes the place of the other. Set on the key of an axis, it fixes the axis to
//!   that value; `--set 'sweep."train.global_batch"=[32, 64]'` replaces the axis.
//! - **Order of trials**: axes in the order of the file, the first one slowest, seeds fastest.
//! - **Run id**: the first 12 hex digits of the SHA-256 of the resolved trial as canonical JSON
//!   (keys sorted, no white space, floats as their shortest decimal that reads back), without
//!   `train.threads` and `data.dir`, which do not change results, and with the batch as the global
//!   one. Every default is written out first, so writing a default into a file does not change the
//!   id. A key that is added to the schema later must not be written out at its default
//!   (`skip_serializing_if`), or every trial on disk would be lost to its study.

mod canonical;
mod check;
mod critical;
pub mod env;
mod error;
mod node;
mod plan;
mod probes;
mod schema;
mod source;
mod study;
pub(crate) mod suggest;
mod sweep;
mod trial;
pub mod types;
mod update;

pub use canonical::value_text;
pub use check::MAX_THREADS;
pub use critical::{BranchScaling, Branched, CriticalBatchConfig, CriticalNoise, Crossing};
pub use error::{ConfigError, Problem};
pub use plan::{
    AlgorithmChoice, CheckConfig, ClusterConfig, CollectivesConfig, CostConfig, DeviceConfig,
    JitterConfig, LinkConfig, LinkPreset, MeasuredConfig, PlanConfig, PlanFile, PlanFileError,
    PlannedModel, SearchConfig, StepsConfig, StrategyChoice, WireModel, load_plan, parse_plan,
};
pub use probes::{
    AdversarialProbe, BlockKind, DensityProbe, HessianProbe, NoiseProbe, ProbeStatistics,
    ProbesConfig, Products, SharpnessProbe, TraceMethod,
};
pub use schema::schema_json;
pub use study::{Axis, CriticalStudy, MAX_TRIALS, StudyConfig, TrialSpec, load, parse};
pub(crate) use suggest::nearest;
pub(crate) use trial::short;
pub use types::*;
pub use update::{GradientTimes, Pipelining, Reduction, Update};
