//! Reductions over workers on plain slices, the threads that share their work, and the collectives of the
//! field as schedules of messages: executed over any [`Transport`], and simulated. No framework may
//! enter here.

mod algorithms;
mod distributed;
mod execute;
pub mod measure;
#[cfg(feature = "mpi")]
#[expect(
    clippy::disallowed_methods,
    reason = "how long a rank has waited is in no result"
)]
mod mpi;
mod plan;
mod pool;
mod ranks;
mod simulate;
mod split;
mod split_convolution;
mod split_dense;
mod tree;
pub mod wire;

pub use distributed::{complete, complete_native, leaves_of_rank};
pub use execute::{ExecuteError, RunError, Transport, execute, run_on_threads};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, Say, StartError};
pub use plan::{
    Action, Algorithm, Blocks, Incoming, Operation, Outgoing, Schedule, Step, schedule,
};
pub use pool::Pool;
pub use ranks::{
    Element, PointToPoint, Ranks, RanksError, ThreadsError, all_gather_bytes, broadcast_bytes,
    on_threads,
};
pub use simulate::{
    Deadlock, Disturbance, Load, Simulated, SlowLink, Transfer, simulate_hockney, simulate_loggp,
};
pub use split::{LayoutError, Pass, SplitError};
pub use split_convolution::{
    ConvolutionError, ConvolutionGradients, ConvolutionOutput, ConvolutionShape, SplitConvolution,
};
pub use split_dense::{DenseAlgorithms, DenseGradients, DenseShape, DenseSplit, Held, SplitDense};
pub use tree::{OrderedTree, Root};
