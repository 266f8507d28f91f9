//! What follows from a trial's configuration: its batches, rate, length, id and TOML text.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::canonical::{canonical_json, toml_table};
use super::error::ConfigError;
use super::schema::trial_node;
use super::types::{
    BatchController, BatchGrowth, EpochEnd, LearningRateConfig, OptimizerConfig, Scaling,
    TrialConfig, WarmupConfig, WarmupShape,
};
use crate::theory::learning_rate::{
    scaled_rate_linear, scaled_rate_power, scaled_rate_saturating, scaled_rate_sqrt,
};

/// Keys that never change a result, and so are no part of a trial's id.
pub(super) const WITHOUT_EFFECT: [&str; 3] =
    ["train.threads", "train.checkpoint_seconds", "data.dir"];

impl LearningRateConfig {
    /// The rate that the scaling rule gives to this global batch, before warm-up and decay; the
    /// formulas stand at [`Scaling`]. For AdaScale `base_lr`, which its measured gain multiplies.
    pub fn scaled(&self, global_batch: usize) -> f64 {
        // Where a rule is given, `base_batch` is too: `validate`.
        let (batch, base) = (global_batch as f64, self.base_batch.unwrap_or(1) as f64);
        match self.scaling {
            Scaling::None | Scaling::Adascale {} => self.base_lr,
            Scaling::Sqrt => scaled_rate_sqrt(self.base_lr, base, batch),
            Scaling::Linear => scaled_rate_linear(self.base_lr, base, batch),
            Scaling::Power { exponent } => scaled_rate_power(self.base_lr, base, batch, exponent),
            Scaling::Saturating { noise_scale } => {
                scaled_rate_saturating(self.base_lr, base, batch, noise_scale)
            }
        }
    }
}

impl OptimizerConfig {
    /// The momentum m of a rule that has one.
    pub fn momentum(&self) -> Option<f64> {
        match self {
            OptimizerConfig::Momentum { momentum, .. }
            | OptimizerConfig::Nesterov { momentum, .. }
            | OptimizerConfig::Lars { momentum, .. } => Some(*momentum),
            OptimizerConfig::Sgd { .. }
            | OptimizerConfig::Adamw { .. }
            | OptimizerConfig::Lamb { .. }
            | OptimizerConfig::Lion { .. } => None,
        }
    }

    /// The name in TOML and in tables.
    pub fn name(&self) -> &'static str {
        match self {
            OptimizerConfig::Sgd { .. } => "sgd",
            OptimizerConfig::Momentum { .. } => "momentum",
            OptimizerConfig::Nesterov { .. } => "nesterov",
            OptimizerConfig::Adamw { .. } => "adamw",
            OptimizerConfig::Lars { .. } => "lars",
            OptimizerConfig::Lamb { .. } => "lamb",
            OptimizerConfig::Lion { .. } => "lion",
        }
    }
}

impl TrialConfig {
    /// Examples of one update over all workers, B = P x b. Where `[batch]` changes it during the
    /// run, that of the first update.
    pub fn global_batch(&self) -> usize {
        let batch = self.written_batch();
        let BatchController::Smith {
            initial_factor,
            momentum,
            ..
        } = &self.batch.controller
        else {
            return batch;
        };
        let noise = momentum.map_or(1.0, |larger| {
            (1.0 - self.optimizer.momentum().unwrap_or(0.0)) / (1.0 - larger)
        });
        let unit = self.batch_unit();
        let wanted = batch as f64 * initial_factor * noise;
        ((wanted / unit as f64).round() as usize)
            .max(1)
            .saturating_mul(unit)
    }

    /// What every batch of a controller is a multiple of: the workers where shards grow, the local
    /// batch where workers are added, the batch of `[train]` where passes are accumulated.
    pub(crate) fn batch_unit(&self) -> usize {
        let unit = match self.batch.growth {
            BatchGrowth::Shards => self.train.workers,
            BatchGrowth::Workers => self.local_batch(),
            BatchGrowth::Accumulation => self.written_batch(),
        };
        unit.max(1)
    }

    /// Whether the noise of the gradient is measured during the run: by AdaScale, or for a batch
    /// controller that follows it.
    pub(crate) fn measures_gradients(&self) -> bool {
        let controller = &self.batch.controller;
        let absa = matches!(controller, BatchController::Absa { .. });
        matches!(self.learning_rate.scaling, Scaling::Adascale {})
            || !(controller.is_planned() || absa)
    }

    /// The global batch of `[train]`.
    pub(crate) fn written_batch(&self) -> usize {
        let train = &self.train;
        match (train.global_batch, train.local_batch) {
            (Some(global), _) => global,
            (None, Some(local)) => train.workers.saturating_mul(local),
            (None, None) => 0,
        }
    }

    /// Workers at the start: those of `[train]`, or more where a larger first batch is made of
    /// more workers (`batch.growth`).
    pub fn workers(&self) -> usize {
        let workers = self.train.workers;
        match self.batch.growth {
            BatchGrowth::Workers if self.global_batch() != self.written_batch() => {
                self.global_batch() / (self.written_batch() / workers.max(1)).max(1)
            }
            _ => workers,
        }
    }

    /// Examples of one worker's shard, b = B / P; where a batch is accumulated, those of one pass.
    pub fn local_batch(&self) -> usize {
        match (self.train.local_batch, self.batch.growth) {
            (Some(local), BatchGrowth::Workers | BatchGrowth::Accumulation) => local,
            (None, BatchGrowth::Workers | BatchGrowth::Accumulation) => {
                self.written_batch() / self.train.workers.max(1)
            }
            (_, BatchGrowth::Shards) => self.global_batch() / self.train.workers.max(1),
        }
    }

    /// [`LearningRateConfig::scaled`] at the global batch of `[train]`, times the initial factor of
    /// Smith's controller where there is one.
    pub fn scaled_rate(&self) -> f64 {
        self.learning_rate.scaled(self.written_batch()) * self.initial_factor()
    }

    /// By what Smith's controller multiplies the first rate.
    fn initial_factor(&self) -> f64 {
        match self.batch.controller {
            BatchController::Smith { initial_factor, .. } => initial_factor,
            _ => 1.0,
        }
    }

    /// The momentum of the optimizer, or that of Smith's controller in its place; `None` for an
    /// optimizer without one.
    pub fn momentum(&self) -> Option<f64> {
        let own = self.optimizer.momentum();
        match self.batch.controller {
            BatchController::Smith {
                momentum: Some(larger),
                ..
            } => own.map(|_| larger),
            _ => own,
        }
    }

    /// How the rate comes about: `0.8 = 0.1 x 2048/256 (linear)`.
    pub fn explain_rate(&self) -> String {
        let rate = &self.learning_rate;
        let (scaled, base) = (short(self.scaled_rate()), short(rate.base_lr));
        let (global, base_batch) = (self.written_batch(), rate.base_batch.unwrap_or(1));
        let initial = match self.initial_factor() {
            1.0 => String::new(),
            factor => format!(" x {} (initial factor)", short(factor)),
        };
        match rate.scaling {
            Scaling::None if initial.is_empty() => format!("{base} (no scaling)"),
            Scaling::None => format!("{scaled} = {base}{initial} (no scaling)"),
            Scaling::Sqrt => {
                format!("{scaled} = {base} x sqrt({global}/{base_batch}){initial} (sqrt)")
            }
            Scaling::Linear => {
                format!("{scaled} = {base} x {global}/{base_batch}{initial} (linear)")
            }
            Scaling::Power { exponent } => {
                let exponent = short(exponent);
                format!("{scaled} = {base} x ({global}/{base_batch})^{exponent}{initial} (power)")
            }
            Scaling::Saturating { noise_scale } => {
                let noise = short(noise_scale);
                format!(
                    "{scaled} = {base} x (1 + {noise}/{base_batch})/(1 + {noise}/{global}){initial} \
                     (saturating)"
                )
            }
            Scaling::Adascale {} => {
                let most = short(global as f64 / base_batch as f64);
                format!("{base}{initial} x measured gain, 1 to {most} (adascale)")
            }
        }
    }

    /// What the global batch is made of: `2048 = 8 workers x 256`.
    pub fn explain_batch(&self) -> String {
        let (global, workers, local) = (self.global_batch(), self.workers(), self.local_batch());
        let noun = if workers == 1 { "worker" } else { "workers" };
        match global / (workers * local).max(1) {
            0 | 1 => format!("{global} = {workers} {noun} x {local}"),
            passes => format!("{global} = {passes} passes x {workers} {noun} x {local}"),
        }
    }

    /// The warm-up in words: `gradual 5 epochs`, `constant 100 steps` or `none`.
    pub fn explain_warmup(&self) -> String {
        let Some(warmup) = &self.learning_rate.warmup else {
            return "none".to_owned();
        };
        let shape = match warmup.shape {
            WarmupShape::Gradual => "gradual",
            WarmupShape::Constant => "constant",
            WarmupShape::Exponential => "exponential",
            WarmupShape::Legw => "legw",
        };
        let (amount, unit) = match (warmup.epochs, warmup.steps, warmup.examples) {
            (Some(epochs), ..) => (short(epochs), "epoch"),
            (None, Some(steps), _) => (steps.to_string(), "step"),
            (None, None, Some(examples)) => (examples.to_string(), "example"),
            (None, None, None) => return "none".to_owned(),
        };
        let plural = if amount == "1" { "" } else { "s" };
        format!("{shape} {amount} {unit}{plural}")
    }

    /// Updates of one epoch of `train_examples` examples: N/B where batches carry over into the
    /// next epoch, rounded down where an incomplete batch is dropped, up where it is used.
    pub fn steps_per_epoch(&self, train_examples: usize) -> f64 {
        let ratio = train_examples as f64 / self.global_batch().max(1) as f64;
        match self.train.epoch_end {
            EpochEnd::Carry => ratio,
            EpochEnd::Drop => ratio.floor(),
            EpochEnd::Partial => ratio.ceil(),
        }
    }

    /// Checks that the parts fit together, as reading a study file does.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key and a hint.
    pub fn validate(&self) -> Result<(), ConfigError> {
        super::check::trial(self).map_err(ConfigError::from)
    }

    /// Checks what depends on the number of training examples: a batch larger than the data, a
    /// warm-up longer than the run, a budget shorter than one update.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key and a hint.
    /// [`StudyConfig::validate_against_data`](super::StudyConfig::validate_against_data) adds file
    /// and line.
    pub fn validate_against_data(&self, train_examples: usize) -> Result<(), ConfigError> {
        super::check::against_data(self, train_examples).map_err(ConfigError::from)
    }

    /// The run id: the first 12 hex digits of the SHA-256 of this trial as canonical JSON, without
    /// `train.threads`, `train.checkpoint_seconds` and `data.dir`, which do not change results, and
    /// with the batch written as the global one.
    pub fn run_id(&self) -> String {
        let mut config = self.resolved();
        if config.train.local_batch.is_some() {
            // 4 workers of 16 are a global batch of 64, however it is written.
            config.train.global_batch = Some(self.written_batch());
            config.train.local_batch = None;
        }
        let mut value = config.to_value();
        for key in WITHOUT_EFFECT {
            let (table, key) = key.split_once('.').unwrap_or_default();
            if let Some(table) = value[table].as_object_mut() {
                table.shift_remove(key);
            }
        }
        let digest = Sha256::digest(canonical_json(&value).as_bytes());
        let mut first = [0; 8];
        first[2..].copy_from_slice(&digest[..6]);
        format!("{:012x}", u64::from_be_bytes(first))
    }

    /// This trial as a study file of its own: `batchlab run` on it runs the same trial, with the
    /// same run id.
    pub fn to_toml(&self) -> String {
        let mut head = format!(
            "name = \"trial-{}\"\nseeds = [{}]\n",
            self.run_id(),
            self.seed
        );
        if let Value::Object(mut map) = self.resolved().to_value() {
            map.shift_remove("seed");
            head.push_str(&toml_table(trial_node(), &map));
        }
        head
    }

    /// With a warm-up of length 0 left out: it is no warm-up, and the run id should say so.
    pub(crate) fn resolved(&self) -> TrialConfig {
        let nothing = |warmup: &WarmupConfig| {
            warmup.epochs.is_none_or(|epochs| epochs == 0.0)
                && warmup.steps.is_none_or(|n| n == 0)
                && warmup.examples.is_none_or(|n| n == 0)
        };
        let mut config = self.clone();
        if config.learning_rate.warmup.as_ref().is_some_and(nothing) {
            config.learning_rate.warmup = None;
        }
        config
    }

    fn to_value(&self) -> Value {
        // Only a path that is not Unicode could fail, and a study file cannot hold one.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// A number to six significant digits, for people.
pub(crate) fn short(x: f64) -> String {
    let rounded: f64 = format!("{x:.5e}").parse().unwrap_or(x);
    if rounded != 0.0 && !(1e-4..1e7).contains(&rounded.abs()) {
        format!("{rounded:e}")
    } else {
        rounded.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.1, "0.1"),
            (0.8, "0.8"),
            (3.2, "3.2"),
            (100.0, "100"),
            (0.1 + 0.2, "0.3"),
            (2048.0, "2048"),
            (0.000_25, "0.00025"),
            (1e-5, "1e-5"),
            (1.5e9, "1.5e9"),
            (0.0, "0"),
            (8f64.sqrt(), "2.82843"),
            (9.999_999_99, "10"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
