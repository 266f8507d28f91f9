//! What can be wrong with an optimizer's configuration.

use thiserror::Error;

/// An optimizer that cannot be built.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum OptimError {
    /// A coefficient outside its range.
    #[error("`{key}` must be {expected}, found {found}")]
    OutOfRange {
        /// Dotted TOML key.
        key: &'static str,
        /// The accepted range, in words.
        expected: &'static str,
        /// The value given.
        found: f64,
    },
}
