//! Reductions over workers on plain slices. No framework may enter here.

mod tree;

pub use tree::{OrderedTree, Root};
