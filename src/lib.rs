//! batchlab: study large-batch training from one TOML file.

pub mod backend;
pub mod collective;
pub mod config;
pub mod data;
pub mod model;
pub mod objective;
pub mod optim;
pub mod rng;
pub mod schedule;
pub mod store;
pub mod train;
