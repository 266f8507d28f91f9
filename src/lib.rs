//! batchlab: study large-batch training from one TOML file.

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
pub mod report;
pub mod rng;
pub mod schedule;
pub mod store;
pub mod study;
pub mod train;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
