//! What can be wrong with a learning-rate configuration.

use thiserror::Error;

/// A learning-rate configuration that cannot be followed. Each message names the key, what was
/// found and, on its own line, what would be right.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ScheduleError {
    /// A number outside its range.
    #[error("`{key}` must be {expected}, found {found}")]
    OutOfRange {
        /// Dotted TOML key.
        key: &'static str,
        /// The accepted range, in words.
        expected: &'static str,
        /// The value given.
        found: f64,
    },

    /// A scaling rule without the batch that the base rate suits.
    #[error(
        "`learning_rate.scaling` = \"{scaling}\" needs `learning_rate.base_batch`\n\
         hint: give the global batch at which `learning_rate.base_lr` is right, e.g. `base_batch = 128`"
    )]
    MissingBaseBatch {
        /// The scaling rule as written in TOML.
        scaling: &'static str,
    },

    /// Neither or both of the two ways to give the length of the warm-up.
    #[error(
        "`learning_rate.warmup` needs exactly one of `epochs` and `steps`, found {found}\n\
         hint: keep one of them, e.g. `epochs = 5`"
    )]
    WarmupLength {
        /// `both` or `neither`.
        found: &'static str,
    },

    /// The run would end before the warm-up does.
    #[error(
        "the warm-up is longer than the run: {warmup_steps} updates of warm-up ({warmup_epochs} \
         epochs), {total_steps} updates in all ({total_epochs} epochs) at global batch {global_batch}\n\
         hint: shorten `learning_rate.warmup` to at most {total_epochs} epochs, or train for at \
         least {warmup_epochs} epochs"
    )]
    WarmupTooLong {
        /// Updates of warm-up.
        warmup_steps: String,
        /// The same in epochs.
        warmup_epochs: String,
        /// Updates of the whole run.
        total_steps: u64,
        /// The same in epochs.
        total_epochs: String,
        /// The global batch, which decides how many updates an epoch has.
        global_batch: usize,
    },
}
