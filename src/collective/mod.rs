//! Reductions over workers on plain slices, and the threads that share their work. No framework may
//! enter here.

mod pool;
mod tree;

pub use pool::Pool;
pub use tree::{OrderedTree, Root};
