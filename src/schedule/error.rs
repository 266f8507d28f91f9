//! What can be wrong with a schedule.

use thiserror::Error;

use crate::config::short;

/// A schedule of the learning rate or of momentum that cannot be followed. Each message names the
/// key, what was found and, where that is not plain, on its own line what would be right.
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

    /// A rule that follows the batch without the batch that the base rate suits.
    #[error(
        "`{key}` = \"{rule}\" needs `learning_rate.base_batch`\n\
         hint: give the global batch at which `learning_rate.base_lr` is right, e.g. `base_batch = 128`"
    )]
    MissingBaseBatch {
        /// Dotted TOML key of the rule.
        key: &'static str,
        /// The rule as written in TOML.
        rule: &'static str,
    },

    /// None or several of the three ways to give the length of the warm-up.
    #[error(
        "`learning_rate.warmup` needs exactly one of `epochs`, `steps` and `examples`, found {found}\n\
         hint: keep one of them, e.g. `epochs = 5`"
    )]
    WarmupLength {
        /// The keys that are there, in words.
        found: String,
    },

    /// The run would end before the warm-up does.
    #[error(
        "the warm-up is longer than the run: {} updates of warm-up ({} epochs), {} updates in all \
         ({} epochs) at global batch {global_batch}\n\
         hint: shorten `learning_rate.warmup` to at most {}, or train for at least {} epochs",
        short(*.warmup_steps),
        short(.warmup_steps / .steps_per_epoch),
        updates(*.total_steps),
        short(.total_steps / .steps_per_epoch),
        longest(.total_steps / .steps_per_epoch, *.stretch),
        short(.warmup_steps / .steps_per_epoch),
    )]
    WarmupTooLong {
        /// Updates of warm-up.
        warmup_steps: f64,
        /// Updates of the whole run.
        total_steps: f64,
        /// Updates of one epoch.
        steps_per_epoch: f64,
        /// The global batch, which decides how many updates an epoch has.
        global_batch: usize,
        /// By how much LEGW multiplies the epochs given; 1 for other warm-ups.
        stretch: f64,
    },

    /// Inverse-square-root decay with nothing to take its time scale from.
    #[error(
        "`learning_rate.decay.inverse-sqrt` needs `timescale_epochs` where there is no warm-up, \
         found neither\n\
         hint: write `timescale_epochs = 5`, or add a `[learning_rate.warmup]`, whose length is \
         the default"
    )]
    MissingTimescale,

    /// Epochs of changes that do not rise.
    #[error("`{key}` must rise, found {after} after {before}\nhint: put the epochs in order")]
    NotRising {
        /// Dotted TOML key.
        key: &'static str,
        /// An epoch.
        before: f64,
        /// The epoch listed after it, which is not later.
        after: f64,
    },

    /// Epochs and values of a stepped momentum that do not go together.
    #[error(
        "`momentum_schedule.step` needs as many `values` as `epochs`, found {values} values and \
         {epochs} epochs\n\
         hint: give one value for each epoch; before the first the optimizer's own momentum holds"
    )]
    MomentumValues {
        /// Number of epochs.
        epochs: usize,
        /// Number of values.
        values: usize,
    },
}

/// A number of updates, with all its digits where it is whole.
fn updates(steps: f64) -> String {
    if steps.fract() == 0.0 {
        steps.to_string()
    } else {
        short(steps)
    }
}

/// The longest warm-up of a run of `epochs`, as the configuration would give it.
fn longest(epochs: f64, stretch: f64) -> String {
    let total = short(epochs);
    if stretch == 1.0 {
        format!("{total} epochs")
    } else {
        let given = short(epochs / stretch);
        format!("{given} epochs (LEGW makes them {total})")
    }
}
