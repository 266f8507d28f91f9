//! batchlab: study large-batch training from one TOML file.
//!
//! How far can the batch grow before more workers stop paying, what should the learning rate and
//! the warm-up be there, and what does it cost in generalization? The program `batchlab` answers
//! with a report (see the README); this library is all of it, for programs with models of their
//! own ([`cli::main_with`], `examples/custom_model.rs`) and for those that train by hand.
//!
//! # A study file, trained by hand
//!
//! ```
//! use batchlab::config::{self, Split};
//! use batchlab::data;
//! use batchlab::model::Registry;
//! use batchlab::objective::Objective;
//! use batchlab::train::{Pool, Session, TrainError};
//!
//! // What to do: one trial, as a study file would say it.
//! let study = config::parse(
//!     r#"
//!     model = "softmax-regression"
//!     [data]
//!     source = "digits"
//!     [train]
//!     workers = 4
//!     global_batch = 64
//!     steps = 60
//!     [learning_rate]
//!     base_lr = 0.05
//!     base_batch = 32
//!     scaling = "linear"
//!     "#,
//!     "by-hand.toml",
//!     &[],
//! )?;
//! let config = &study.trials[0].config;
//! assert_eq!(config.explain_batch(), "64 = 4 workers x 16");
//! assert_eq!(config.explain_rate(), "0.1 = 0.05 x 64/32 (linear)");
//!
//! // What to do it on, and what with. The folder is for data sets that are files.
//! let data = data::load(&config.data, "data".as_ref())?;
//! let model = Registry::new().build(config, &data)?;
//! let objective: &dyn Objective<f32> = &*model;
//!
//! // Two threads; any other number gives the same bits.
//! Pool::with(2, |pool| -> Result<(), TrainError> {
//!     let mut session = Session::new(config, &data, objective, pool)?;
//!     for _ in 0..session.setup().total_steps {
//!         let report = session.step()?;
//!         if session.step_count() % 20 == 0 {
//!             println!("update {}: loss {:.3}", session.step_count(), report.loss);
//!         }
//!     }
//!     let statistics = session.statistics()?;
//!     if let Some(test) = session.evaluate(Split::Test, &statistics)? {
//!         println!("test accuracy {:?} on {} examples", test.accuracy, test.n);
//!         assert!(test.accuracy > Some(0.9));
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Crate map
//!
//! A room imports from rooms above it in this table only, and burn is named in the two rooms
//! marked so; a test reads the sources and holds both.
//!
//! | room | what is in it |
//! |---|---|
//! | [`math`] | statistics, estimates of gradient noise: f64 in, f64 out |
//! | [`theory`] | the field's laws as functions with their source |
//! | [`rng`] | random streams keyed by (seed, purpose, index) |
//! | [`config`] | the study file: schema, sweep, checks, run ids, errors with their place |
//! | [`store`] | files on disk: atomic writes, tables, locks, the clock |
//! | [`collective`] | the ordered tree that adds gradients |
//! | [`schedule`] | learning rate and momentum over a run; batch-size schedules and controllers |
//! | [`data`] | examples as host arrays: readers, fetching, splits, order |
//! | [`objective`] | loss and gradient of a flat parameter vector: the trait, the layout, closed forms |
//! | [`optim`] | optimizers, clipping and averaging over flat slices with a layout |
//! | [`backend`] | device names to burn devices (burn) |
//! | [`model`] | models, the door from a burn module to an objective, weights (burn) |
//! | [`probe`] | Hessian-vector products, the top eigenvalue, curvature-weighted noise |
//! | [`train`] | the step, the loop, evaluation, checkpoints |
//! | [`study`] | plan, execute, resume, status |
//! | [`analysis`] | tables in, typed results out |
//! | [`report`] | figures and the page |
//! | [`cli`] | commands; the only place that prints |
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `mimalloc` | yes | the mimalloc allocator for every program that links this library |
//! | `ndarray` | | the device `"ndarray"`: a second CPU backend |
//! | `wgpu` | | the device `"wgpu"`: Vulkan, Metal or DirectX |
//! | `cuda` | | the device `"cuda"` |
//! | `mpi` | | trials over the ranks of mpirun; needs an MPI library |
//!
//! The device `"flex"` (CPU) is always there. Each set of devices rebuilds burn.

pub mod analysis;
pub mod backend;
pub mod cli;
pub mod collective;
pub mod config;
pub mod data;
pub mod math;
pub mod model;
pub mod objective;
pub mod optim;
pub mod probe;
pub mod report;
pub mod rng;
pub mod schedule;
pub mod store;
pub mod study;
pub mod theory;
pub mod train;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
