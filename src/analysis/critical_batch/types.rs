//! What a study of the critical batch size, or a table of steps to target, says.

use crate::math::rate_fit::RateFit;
use crate::math::statistics::Interval;
use crate::math::steps_fit::{FitError, Goodness, StepsFit, StepsIntervals};

/// The critical batch sizes of a study: one for each case.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticalBatch {
    /// Name of the study, or of the file.
    pub name: String,
    /// What is asked.
    pub description: Option<String>,
    /// The target in words: `validation accuracy of at least 0.97`. `None` for a table.
    pub target: Option<String>,
    /// How crossings between two evaluations are placed, in words; `None` for a table.
    pub crossing: Option<String>,
    /// What is missing of a study that is not done; `None` where nothing is.
    pub unfinished: Option<String>,
    /// The cases: the points of the sweep; a single one without a label where nothing is swept.
    pub cases: Vec<Case>,
}

/// One task, model and optimizer: what its critical batch size is.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The point of the sweep in few words, `optimizer=adamw`; empty where nothing is swept.
    pub label: String,
    /// What was measured at each batch, ascending.
    pub batches: Vec<BatchPoint>,
    /// S = S_min(1 + B_crit/B), or why there is none.
    pub fit: Result<Fit, FitError>,
    /// The law of the best rate; `None` where fewer than three batches have one.
    pub rate_law: Option<RateLaw>,
    /// The noise scale over one run a seed; empty where none was measured.
    pub noise: Option<Noise>,
    /// Critical batch sizes by branches, by moment; empty where none were run.
    pub branched: Vec<BranchMoment>,
    /// All estimates of the critical batch size, that of the sweep first.
    pub estimates: Vec<EstimateRow>,
}

/// One batch: the best of the search for each seed.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPoint {
    /// Global batch, in examples.
    pub batch: u64,
    /// One for each seed, in order.
    pub seeds: Vec<SeedPoint>,
    /// Geometric mean of the steps of the seeds, with its interval (Student's t in the logarithm);
    /// `None` unless all seeds reached the target.
    pub steps: Option<Mean>,
    /// Geometric mean of the best rates of the seeds that reached the target, if rates are known.
    pub rate: Option<Mean>,
}

/// A geometric mean with its 95 % interval, which one seed does not have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its interval.
    pub interval: Option<Interval>,
}

/// The search at one batch with one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedPoint {
    /// The seed.
    pub seed: u64,
    /// Fewest updates to the target over all rates, not necessarily whole; `None` if no trial
    /// reached it.
    pub steps: Option<f64>,
    /// Updates that the longest trial made without reaching the target, where none did: steps to
    /// target are more than these.
    pub bound: f64,
    /// The best rate.
    pub rate: Option<f64>,
    /// Values of the other keys searched over that go with it, `momentum=0.9`; empty without.
    pub others: String,
    /// The best rate is the largest or the smallest that was allowed: a better one may lie beyond.
    pub edge: bool,
    /// The trials, by rate.
    pub tried: Vec<Tried>,
}

/// One trial of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// Learning rate.
    pub rate: f64,
    /// Values of the other keys searched over.
    pub others: String,
    /// Updates to the target, if it was reached.
    pub steps: Option<f64>,
    /// How it ended otherwise.
    pub end: TriedEnd,
    /// Updates that it made.
    pub made: u64,
    /// The best value of the target's metric that it came to, if it was evaluated.
    pub best: Option<f64>,
}

/// How a trial of a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriedEnd {
    /// At the target.
    Reached,
    /// At the end of its budget.
    Censored,
    /// As soon as it could no longer win: another rate had reached the target in as many updates.
    Overtaken,
    /// By divergence.
    Diverged,
    /// By an error.
    Failed,
}

/// The fit of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// S_min and B_crit.
    pub fit: StepsFit,
    /// How well it fits.
    pub goodness: Goodness,
    /// 95 % intervals from a bootstrap over seeds; `None` for one seed.
    pub intervals: Option<StepsIntervals>,
    /// The largest batch with at most 20 % more examples than perfect scaling would take: 0.2 B_crit.
    pub efficient_batch: f64,
    /// The same read off the measured points alone, against the smallest batch, by interpolation in
    /// the logarithms; `None` where even the largest batch measured stays within 20 %.
    pub measured_efficient_batch: Option<f64>,
    /// Above this batch steps are within 20 % of S_min: 5 B_crit.
    pub saturated_batch: f64,
}

/// The law of the best rate, eps(B) = eps_max/(1 + B*/B)^alpha.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLaw {
    /// The fit to the best rates of all seeds.
    pub fit: RateFit,
    /// 95 % intervals of alpha and B* from a bootstrap over seeds; `None` for one seed.
    pub alpha: Option<Interval>,
    /// That of B*.
    pub b_star: Option<Interval>,
    /// Exponent of the growth between the two smallest batches with a best rate: the slope of log
    /// rate against log batch.
    pub initial_exponent: Option<f64>,
}

/// The noise scale over the run of one rate at one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    /// Batch of the run.
    pub batch: u64,
    /// Rate of the run.
    pub rate: f64,
    /// B_simple over training, windows of updates of all seeds.
    pub course: Vec<NoisePoint>,
    /// At the start, on average, and near the target.
    pub summary: Vec<NoiseSummary>,
}

/// B_simple in a window of updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoisePoint {
    /// Middle of the window, in updates.
    pub step: f64,
    /// B_simple; `None` where it is undetermined.
    pub b_simple: Option<f64>,
    /// Its 95 % interval, which may be unbounded above.
    pub interval: Option<Interval>,
}

/// A noise scale at one part of training.
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseSummary {
    /// `start`, `average` or `target`.
    pub when: &'static str,
    /// B_simple; `None` where it is undetermined.
    pub b_simple: Option<f64>,
    /// Its interval.
    pub b_simple_interval: Option<Interval>,
    /// B_noise; `None` where it was not measured or is undetermined.
    pub b_noise: Option<f64>,
    /// Its interval.
    pub b_noise_interval: Option<Interval>,
}

/// The branches from one moment of the trunk.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchMoment {
    /// Examples that the trunk had processed, mean over seeds.
    pub examples: f64,
    /// Batch of the trunk.
    pub base_batch: u64,
    /// The branches by their batch, ascending, the base itself first.
    pub branches: Vec<Branch>,
    /// Loss above that of the base which counts as none.
    pub tolerance: f64,
    /// The largest batch whose loss stays within the tolerance, geometric mean over seeds (between
    /// two branches, by interpolation of the loss in log batch); `None` where no seed has one.
    pub critical: Option<Mean>,
    /// Whether the largest branch stayed within the tolerance for some seed: the value is then a
    /// lower bound.
    pub at_least: bool,
}

/// The branches at one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// Batch, k times the base.
    pub batch: u64,
    /// Smoothed loss at the end, one for each seed that has it; a branch that diverged has none.
    pub losses: Vec<f64>,
    /// Branches that diverged.
    pub diverged: usize,
}

/// One way to the critical batch size, what it says and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimateRow {
    /// How: `sweep`, `noise scale at the start`, ...
    pub method: String,
    /// Which quantity: `b_crit`, `b_simple`, `b_noise`, `branched`.
    pub quantity: &'static str,
    /// The batch, in examples; `None` where it is undetermined.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<Interval>,
    /// Why there is no value or no interval, or what else to know.
    pub note: String,
    /// What it took.
    pub cost: Option<Cost>,
    /// Its value over that of the sweep.
    pub ratio: Option<f64>,
    /// Its examples over those of the sweep.
    pub share: Option<f64>,
    /// Published for the same task, and where.
    pub published: Option<Published>,
}

/// What an estimate cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Examples of which gradients were taken, over all trials and seeds; a product with the Hessian
    /// counts as two.
    pub examples: u64,
    /// Seconds of work of all trials, where the times are known. They differ from run to run.
    pub seconds: Option<f64>,
    /// Trials.
    pub trials: usize,
}

/// A published value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// The value.
    pub value: f64,
    /// Where.
    pub source: &'static str,
}
