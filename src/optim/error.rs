//! What can be wrong with an optimizer's configuration.

use thiserror::Error;

/// An optimizer or an average that cannot be built.
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

/// A share of what stays: in [0, 1).
pub(super) fn share(key: &'static str, found: f64) -> Result<(), OptimError> {
    check(key, "in [0, 1)", found, (0.0..1.0).contains(&found))
}

/// At least 0 and finite.
pub(super) fn not_negative(key: &'static str, found: f64) -> Result<(), OptimError> {
    let holds = found.is_finite() && found >= 0.0;
    check(key, "finite and not negative", found, holds)
}

/// Above 0 and finite.
pub(super) fn positive(key: &'static str, found: f64) -> Result<(), OptimError> {
    let holds = found.is_finite() && found > 0.0;
    check(key, "positive and finite", found, holds)
}

/// `holds`, or an error that names the key.
pub(super) fn check(
    key: &'static str,
    expected: &'static str,
    found: f64,
    holds: bool,
) -> Result<(), OptimError> {
    if holds {
        Ok(())
    } else {
        Err(OptimError::OutOfRange {
            key,
            expected,
            found,
        })
    }
}
