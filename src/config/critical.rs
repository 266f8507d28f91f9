//! `[critical_batch]`: a study of the critical batch size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{Checked, Fault};
use super::probes::ProbesConfig;
use super::types::{BatchController, DecayConfig, EpochEnd, Scaling, TrialConfig, WarmupConfig};

/// `[critical_batch]`: measures the critical batch size of every point of the sweep, with
/// `batchlab critical-batch`. At each batch the learning rate is searched for that takes the fewest
/// updates to `[train.target]`; `learning_rate.base_lr` is the first one tried, at the middle batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CriticalBatchConfig {
    /// Global batches, rising; a list, or powers of two as `{ log2 = [8, 8192] }`.
    pub batches: Vec<usize>,
    /// A trial ends without the target after this many passes over the training set, or
    /// `budget_steps` updates if those are more.
    #[serde(default = "budget_epochs")]
    pub budget_epochs: f64,
    /// Updates that every trial may make, however large its batch.
    #[serde(default = "budget_steps")]
    pub budget_steps: u64,
    /// Neighbouring rates of the grid differ by this factor, more than 1. The grid holds `base_lr`.
    #[serde(default = "rate_factor")]
    pub rate_factor: f64,
    /// No smaller rate is tried. Default: `base_lr` divided by `rate_factor` ten times. A best rate at
    /// a limit is flagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_rate: Option<f64>,
    /// No larger rate is tried. Default: `base_lr` multiplied by `rate_factor` ten times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_rate: Option<f64>,
    /// Where between two evaluations the target is crossed.
    #[serde(default)]
    pub crossing: Crossing,
    /// End a trial once another rate of the same search has reached the target in as many updates.
    /// It can then only lose, so this never changes which trial wins.
    #[serde(default = "yes")]
    pub early_stopping: bool,
    /// Measure the noise scale over a run at one batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<CriticalNoise>,
    /// Measure by branches of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branched: Option<Branched>,
}

/// Where between two evaluations a target is crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Crossing {
    /// Where the straight line through the metric at the two evaluations meets the target.
    #[default]
    Interpolated,
    /// At the first evaluation that reaches it (Shallue et al. 2018).
    Evaluation,
}

/// `[critical_batch.noise]`: the noise scale over one run for each seed, the best of the search at one
/// batch made again with probes. The batch of one worker is then cut into pieces, which rounds
/// differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CriticalNoise {
    /// Batch of the run, one of `batches`. Default: the middle one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// `B_simple` from the pieces of the batch of every this many updates. Default: 10.
    #[serde(default = "ten")]
    pub every_steps: u64,
    /// Moments, besides start and end, at which `B_simple` and `B_noise` are measured on `examples`.
    #[serde(default = "three")]
    pub moments: u64,
    /// Training examples of those measurements.
    #[serde(default = "noise_examples")]
    pub examples: usize,
}

/// `[critical_batch.branched]`: Merrill et al. 2025 (arXiv 2505.23971). From moments of one run (the
/// trunk: the best rate at its batch B) branches go on with k B and the rate scaled. The critical batch
/// there is the largest whose smoothed training loss stays within a tolerance of the branch at B.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Branched {
    /// Batch of the trunk, one of `batches`. Default: the smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Moments, as shares of the updates that the trunk takes to the target, rising, in (0, 1].
    #[serde(default = "moments")]
    pub moments: Vec<f64>,
    /// Batches of the branches over that of the trunk, whole, rising, from 1. Default: powers of two
    /// up to the largest of `batches`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<Vec<usize>>,
    /// Examples of each branch. Default: 16 times the largest batch of a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// How the rate follows the batch. Default: `"sqrt"` for `adamw`, `lamb` and `lion`, else
    /// `"linear"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<BranchScaling>,
    /// Loss above that of the branch at B that counts as none, in nats.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
    /// The training loss is averaged with weights that fall by e over this many examples, the same at
    /// every batch. Default: twice the largest batch of a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smoothing_examples: Option<f64>,
}

/// How the rate of a branch follows its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BranchScaling {
    /// In proportion to the batch.
    Linear,
    /// In proportion to its square root.
    Sqrt,
}

impl BranchScaling {
    /// The name in TOML.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Sqrt => "sqrt",
        }
    }
}

impl Branched {
    /// Batches of the branches over that of the trunk.
    pub fn factors(&self, batches: &[usize]) -> Vec<usize> {
        let base = self.base(batches);
        let largest = batches.last().copied().unwrap_or(base) / base.max(1);
        let powers = || (0..usize::BITS).map(|power| 1 << power);
        let default = || powers().take_while(|&k| k <= largest).collect();
        self.factors.clone().unwrap_or_else(default)
    }

    /// Batch of the trunk.
    pub fn base(&self, batches: &[usize]) -> usize {
        let smallest = batches.first().copied().unwrap_or(1);
        self.batch.unwrap_or(smallest)
    }

    /// Examples of each branch.
    pub fn branch_examples(&self, batches: &[usize]) -> u64 {
        self.examples.unwrap_or(16 * self.largest(batches))
    }

    /// Examples over which the weights of the smoothed loss fall by e.
    pub fn smoothing(&self, batches: &[usize]) -> f64 {
        let default = (2 * self.largest(batches)) as f64;
        self.smoothing_examples.unwrap_or(default)
    }

    fn largest(&self, batches: &[usize]) -> u64 {
        let factor = self.factors(batches).last().copied().unwrap_or(1);
        (factor * self.base(batches)) as u64
    }
}

impl CriticalBatchConfig {
    /// The part of a point of the sweep that tells cases apart: all of it but the first rate.
    pub fn case(point: &[(String, Value)]) -> Vec<(String, Value)> {
        let own = |(key, _): &&(String, Value)| key != RATE;
        point.iter().filter(own).cloned().collect()
    }

    /// The middle of `batches`, where the search begins; the lower one of two.
    pub fn middle(&self) -> usize {
        self.batches
            .get((self.batches.len().max(1) - 1) / 2)
            .copied()
            .unwrap_or(1)
    }

    /// Budget in updates at this batch, of a training set of so many examples.
    pub fn budget(&self, batch: usize, train_examples: usize) -> u64 {
        let epochs = self.budget_epochs * train_examples as f64 / batch.max(1) as f64;
        (epochs.ceil() as u64).max(self.budget_steps)
    }
}

fn budget_epochs() -> f64 {
    20.0
}

fn budget_steps() -> u64 {
    1000
}

fn rate_factor() -> f64 {
    2.0
}

fn yes() -> bool {
    true
}

fn ten() -> u64 {
    10
}

fn three() -> u64 {
    3
}

fn noise_examples() -> usize {
    2048
}

fn moments() -> Vec<f64> {
    vec![0.1, 0.5, 1.0]
}

fn tolerance() -> f64 {
    0.01
}

/// The key that is searched over.
pub(super) const RATE: &str = "learning_rate.base_lr";

/// Keys that the search sets for every trial.
pub(super) const SEARCHED: [&str; 6] = [
    "train.global_batch",
    "train.local_batch",
    "train.epochs",
    "train.steps",
    "train.examples",
    "train.stop_steps",
];

/// What can be said of the table alone.
pub(super) fn table(critical: &CriticalBatchConfig) -> Checked {
    let key = |name: &str| format!("critical_batch.{name}");
    let fault = |name: &str, message: String| Err(Fault::invalid(&key(name), message));
    let batches = &critical.batches;
    if batches.len() < 2 {
        return Err(Fault::invalid(
            &key("batches"),
            format!("expected at least 2 batches, found {}", batches.len()),
        )
        .hint("write `batches = { log2 = [8, 8192] }`; 5 or more tell a good fit from a bad one"));
    }
    if batches[0] == 0 || !batches.is_sorted_by(|a, b| a < b) {
        return fault(
            "batches",
            "expected batches above 0, each larger than the one before".to_owned(),
        );
    }
    let positive = [
        ("budget_epochs", Some(critical.budget_epochs)),
        ("smallest_rate", critical.smallest_rate),
        ("largest_rate", critical.largest_rate),
    ];
    for (name, value) in positive {
        if let Some(value) = value
            && !(value > 0.0 && value.is_finite())
        {
            return fault(name, format!("expected a number above 0, found {value}"));
        }
    }
    if critical.budget_steps == 0 {
        return fault("budget_steps", "expected at least 1, found 0".to_owned());
    }
    if !(critical.rate_factor >= 1.05 && critical.rate_factor <= 100.0) {
        return Err(Fault::invalid(
            &key("rate_factor"),
            format!(
                "expected a factor from 1.05 to 100, found {}",
                critical.rate_factor
            ),
        )
        .hint("2 is usual; 1.4142 places the best rate twice as closely"));
    }
    if let (Some(low), Some(high)) = (critical.smallest_rate, critical.largest_rate)
        && low >= high
    {
        return fault(
            "largest_rate",
            format!("{high} is not above `smallest_rate`, {low}"),
        );
    }
    let one_of = |name: &str, batch: Option<usize>| match batch {
        Some(batch) if !batches.contains(&batch) => fault(
            name,
            format!("{batch} is not one of `critical_batch.batches`"),
        ),
        _ => Ok(()),
    };
    if let Some(noise) = &critical.noise {
        one_of("noise.batch", noise.batch)?;
        if noise.every_steps == 0 {
            return fault(
                "noise.every_steps",
                "expected at least 1, found 0".to_owned(),
            );
        }
        if noise.examples < 2 {
            return fault(
                "noise.examples",
                format!("expected at least 2, found {}", noise.examples),
            );
        }
    }
    if let Some(branched) = &critical.branched {
        one_of("branched.batch", branched.batch)?;
        let moments = &branched.moments;
        let inside = moments.iter().all(|&share| share > 0.0 && share <= 1.0);
        if moments.is_empty() || !inside || !moments.is_sorted_by(|a, b| a < b) {
            return Err(Fault::invalid(
                &key("branched.moments"),
                "expected shares in (0, 1], rising",
            )
            .hint("0.5 stands for half of the updates to the target"));
        }
        let factors = branched.factors(batches);
        if factors.len() < 2 || factors[0] != 1 || !factors.is_sorted_by(|a, b| a < b) {
            return Err(Fault::invalid(
                &key("branched.factors"),
                format!("expected whole factors, rising, the first of them 1; found {factors:?}"),
            )
            .hint("factors = [1, 2, 4, 8]"));
        }
        if !(branched.tolerance > 0.0 && branched.tolerance.is_finite()) {
            let found = branched.tolerance;
            return fault(
                "branched.tolerance",
                format!("expected a number above 0, found {found}"),
            );
        }
        if branched
            .smoothing_examples
            .is_some_and(|n| !(n > 0.0 && n.is_finite()))
        {
            return fault(
                "branched.smoothing_examples",
                "expected a number above 0".to_owned(),
            );
        }
        let (largest, examples) = (branched.largest(batches), branched.branch_examples(batches));
        if examples < largest {
            return Err(Fault::invalid(
                &key("branched.examples"),
                format!(
                    "{examples} examples are less than one update of the largest branch, {largest}"
                ),
            )
            .hint(format!("use at least {}", 8 * largest)));
        }
    }
    Ok(())
}

/// Whether the workers divide every batch.
pub(super) fn divisible(critical: &CriticalBatchConfig, workers: usize) -> Checked {
    let odd = |batch: &&usize| !(**batch).is_multiple_of(workers.max(1));
    match critical.batches.iter().find(odd) {
        None => Ok(()),
        Some(batch) => Err(Fault::invalid(
            "critical_batch.batches",
            format!("{batch} is not divisible by the {workers} workers of `train.workers`"),
        )
        .hint("use multiples of the workers, or fewer workers")),
    }
}

/// What the table asks of a trial of its study.
pub(super) fn trial(critical: &CriticalBatchConfig, trial: &TrialConfig) -> Checked {
    let Some(_) = &trial.train.target else {
        return Err(Fault::invalid(
            "train.target",
            "`[critical_batch]` counts updates to a target, and there is none",
        )
        .hint("add `[train.target]` with `split`, `metric` and `value`"));
    };
    if trial.probes != ProbesConfig::default() {
        return Err(Fault::invalid(
            "probes",
            "every trial of the search would be probed",
        )
        .hint("leave `[probes]` out; `[critical_batch.noise]` measures the noise scale over one run"));
    }
    divisible(critical, trial.train.workers)?;
    let rate = &trial.learning_rate;
    if rate.scaling != Scaling::None {
        return Err(Fault::invalid(
            "learning_rate.scaling",
            "`[critical_batch]` searches the rate at each batch, so no rule may move it",
        )
        .hint("leave `scaling` out"));
    }
    if !matches!(trial.batch.controller, BatchController::Constant {}) {
        return Err(Fault::invalid(
            "batch.controller",
            "`[critical_batch]` compares constant batches",
        )
        .hint("leave `[batch]` out"));
    }
    let outside = |name: &str, limit: f64, side: &str| {
        let base = rate.base_lr;
        Err(Fault::invalid(
            &format!("critical_batch.{name}"),
            format!("`learning_rate.base_lr`, {base}, lies {side} {limit}"),
        )
        .hint("the first rate tried, base_lr, must lie within the limits"))
    };
    match (critical.smallest_rate, critical.largest_rate) {
        (Some(low), _) if rate.base_lr < low => return outside("smallest_rate", low, "below"),
        (_, Some(high)) if rate.base_lr > high => return outside("largest_rate", high, "above"),
        _ => {}
    }
    if critical.branched.is_some() {
        if trial.train.epoch_end == EpochEnd::Partial {
            return Err(Fault::invalid(
                "train.epoch_end",
                "branches leave the trunk after whole batches, and `partial` makes smaller ones",
            )
            .hint("use `carry` or `drop`, or leave `[critical_batch.branched]` out"));
        }
        let warmup = |warmup: &WarmupConfig| warmup.epochs.is_some_and(|epochs| epochs > 0.0);
        if rate.decay != DecayConfig::default() {
            return Err(Fault::invalid(
                "learning_rate.decay",
                "branches share one run whatever its length, which a decay over the budget does not allow",
            )
            .hint("use a constant rate, or leave `[critical_batch.branched]` out"));
        }
        if rate.warmup.as_ref().is_some_and(warmup) {
            return Err(Fault::invalid(
                "learning_rate.warmup.epochs",
                "branches change the batch, so a warm-up is to be counted in updates or examples",
            )
            .hint("use `learning_rate.warmup.steps`"));
        }
    }
    Ok(())
}
