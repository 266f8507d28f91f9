//! Reductions over workers on plain slices, the threads that share their work, and the collectives of the
//! field as schedules of messages: executed over any [`Transport`], and simulated. No framework may
//! enter here.

mod algorithms;
mod execute;
mod plan;
mod pool;
mod simulate;
mod tree;

pub use execute::{ExecuteError, RunError, Transport, execute, run_on_threads};
pub use plan::{
    Action, Algorithm, Blocks, Incoming, Operation, Outgoing, Schedule, Step, schedule,
};
pub use pool::Pool;
pub use simulate::{
    Deadlock, Disturbance, Load, Simulated, SlowLink, Transfer, simulate_hockney, simulate_loggp,
};
pub use tree::{OrderedTree, Root};
