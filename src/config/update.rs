//! `train.update` and `train.reduction`: how the gradients of workers become updates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{Checked, Fault};
use super::types::{BatchController, Scaling, TrialConfig};
use crate::theory::delay::PipelineSchedule;
use crate::theory::staleness::{Server, Times, Worker};

/// Most delays, stages and replicas: each keeps a copy of the parameters.
const MOST: u64 = 1024;

/// How gradients become updates. In all of these `global_batch` examples make a gradient, and
/// every gradient an update.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Update {
    /// Each gradient is taken at the parameters that it changes.
    #[default]
    Synchronous,
    /// Each gradient is taken at the parameters of `delay` updates before, at first at those of the
    /// start: p_(t+1) = p_t - lr g(p_(t-delay)). Under MPI the gradients under way are summed while
    /// the next ones are computed.
    Stale {
        /// Updates between a gradient's parameters and its own update; 0 is `"synchronous"`.
        delay: u64,
        /// Divide the rate by max(1, delay) (Zhang et al. 2016).
        #[serde(default)]
        divide_rate: bool,
        /// Lower the momentum m so that gradients act as late, on average, as with m and none.
        #[serde(default)]
        correct_momentum: bool,
    },
    /// Replicas, each of `workers` workers, that send gradients to a parameter server and do not wait
    /// for each other, on a simulated clock: who reads which parameters and whose gradient comes next
    /// follow from the seed.
    Asynchronous {
        /// Replicas.
        replicas: u64,
        /// How the time of a gradient is distributed.
        #[serde(default)]
        times: GradientTimes,
        /// Mean time of a gradient, in simulated seconds.
        #[serde(default = "one")]
        seconds: f64,
        /// No replica begins a gradient while it is more than this many ahead of the slowest (stale synchronous
        /// parallel, Ho et al. 2013). Default: nobody waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound: Option<u64>,
        /// Pairs [replica, factor]: a replica, from 0, whose times are so many times longer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stragglers: Vec<[f64; 2]>,
        /// Pairs [replica, seconds]: a replica, from 0, that dies then; its gradient under way is lost.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        deaths: Vec<[f64; 2]>,
        /// Seconds to send parameters to a replica and a gradient back.
        #[serde(default)]
        transfer: f64,
        /// Seconds of the server for one gradient; gradients queue.
        #[serde(default)]
        service: f64,
        /// Seconds from a death until nobody waits for the dead any more (`bound`).
        #[serde(default)]
        detection: f64,
        /// Divide the rate of a gradient by max(1, its staleness) (Zhang et al. 2016).
        #[serde(default)]
        divide_rate: bool,
        /// Lower the momentum m by the mean staleness, `replicas` - 1, so that gradients act as late,
        /// on average, as with m and none (after Mitliagkas et al. 2016).
        #[serde(default)]
        correct_momentum: bool,
    },
    /// The layers in stages, which work on several batches at once: the gradient of each stage is taken
    /// at the parameters of as many updates before as the schedule makes it late.
    Pipeline {
        /// Stages: runs of layers, as equal in number as can be, the longer ones first.
        stages: u64,
        /// Who works on what when.
        #[serde(default)]
        schedule: Pipelining,
    },
}

/// How the time of a gradient is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GradientTimes {
    /// Always the mean.
    Constant,
    /// Exponential: without memory.
    #[default]
    Exponential,
    /// The logarithm is normal.
    Lognormal {
        /// Standard deviation over mean.
        cv: f64,
    },
    /// A least time, and an exponential time after it.
    ShiftedExponential {
        /// Standard deviation over mean, at most 1.
        cv: f64,
    },
}

/// Who works on what when in a pipeline of layers. The delays are those of S stages, s = 0 next to the
/// input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pipelining {
    /// The pipeline is emptied before each update: no delay (GPipe).
    Flush,
    /// One forward and one backward in turn: S - 1 - s (PipeDream with weight stashing).
    #[default]
    OneForwardOneBackward,
    /// A forward and a backward in each slot: 2 (S - 1 - s) (pipelined backpropagation).
    BothEachSlot,
}

/// How gradients are summed over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// In the order of the workers, whatever the processes: the same bits on any number of them.
    #[default]
    Ordered,
    /// In the order of the MPI library (`MPI_Allreduce`): other bits for other numbers of processes.
    Native,
}

impl Reduction {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn is_ordered(&self) -> bool {
        *self == Self::Ordered
    }
}

impl Pipelining {
    /// As theory has it.
    pub fn schedule(self) -> PipelineSchedule {
        match self {
            Self::Flush => PipelineSchedule::Flush,
            Self::OneForwardOneBackward => PipelineSchedule::OneForwardOneBackward,
            Self::BothEachSlot => PipelineSchedule::BothEachSlot,
        }
    }
}

impl GradientTimes {
    /// As theory has it, with this mean in seconds.
    pub fn times(self, mean: f64) -> Times {
        match self {
            Self::Constant => Times::Constant { mean },
            Self::Exponential => Times::Exponential { mean },
            Self::Lognormal { cv } => Times::LogNormal { mean, cv },
            Self::ShiftedExponential { cv } => Times::ShiftedExponential { mean, cv },
        }
    }
}

impl Update {
    pub(super) fn is_synchronous(&self) -> bool {
        *self == Self::Synchronous
    }

    /// The name in TOML and in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Synchronous => "synchronous",
            Self::Stale { .. } => "stale",
            Self::Asynchronous { .. } => "asynchronous",
            Self::Pipeline { .. } => "pipeline",
        }
    }

    /// Replicas and server of an asynchronous run.
    pub fn cluster(&self) -> Option<(Vec<Worker>, Server)> {
        let Self::Asynchronous {
            replicas,
            times,
            seconds,
            stragglers,
            deaths,
            transfer,
            service,
            detection,
            ..
        } = self
        else {
            return None;
        };
        let mut workers = vec![Worker::new(times.times(*seconds)); *replicas as usize];
        for [replica, factor] in stragglers {
            if let Some(worker) = workers.get_mut(*replica as usize) {
                worker.slowdown = *factor;
            }
        }
        for [replica, at] in deaths {
            if let Some(worker) = workers.get_mut(*replica as usize) {
                worker.dies_at = *at;
            }
        }
        let server = Server {
            transfer: *transfer,
            service: *service,
            detection: *detection,
        };
        Some((workers, server))
    }
}

fn one() -> f64 {
    1.0
}

fn count(key: &str, found: u64, least: u64) -> Checked {
    if (least..=MOST).contains(&found) {
        return Ok(());
    }
    let message = format!("{found} is not from {least} to {MOST}");
    Err(Fault::invalid(key, message).hint("each keeps a copy of the parameters"))
}

/// Longest times on a simulated clock, in seconds, and largest factors: no sum of them overflows.
const LONGEST: f64 = 1e9;

/// Largest standard deviation over mean of a time.
const SCATTER: f64 = 100.0;

fn seconds(key: &str, found: f64, above_zero: bool) -> Checked {
    let right = found <= LONGEST && (found > 0.0 || found == 0.0 && !above_zero);
    if right {
        return Ok(());
    }
    let expected = if above_zero { "above" } else { "at least" };
    Err(Fault::invalid(
        key,
        format!("expected a number {expected} 0 and at most {LONGEST:e}, found {found}"),
    ))
}

/// Pairs of a replica and a number.
fn pairs(key: &str, pairs: &[[f64; 2]], replicas: u64, what: &str) -> Checked {
    for (i, [replica, value]) in pairs.iter().enumerate() {
        let whole = *replica >= 0.0 && replica.fract() == 0.0 && *replica < replicas as f64;
        if !whole {
            return Err(Fault::invalid(
                key,
                format!(
                    "pair {}: expected a replica from 0 to {}, found {replica}",
                    i + 1,
                    replicas - 1
                ),
            ));
        }
        if !(*value > 0.0 && *value <= LONGEST) {
            return Err(Fault::invalid(
                key,
                format!(
                    "pair {}: expected {what} above 0 and at most {LONGEST:e}, found {value}",
                    i + 1
                ),
            ));
        }
        if pairs[..i].iter().any(|[other, _]| other == replica) {
            return Err(Fault::invalid(
                key,
                format!("replica {replica} is given twice"),
            ));
        }
    }
    Ok(())
}

/// Everything about `train.update` that can be said without the model.
pub(super) fn check(config: &TrialConfig) -> Checked {
    let update = &config.train.update;
    match update {
        Update::Synchronous => return Ok(()),
        Update::Stale { delay, .. } => count("train.update.stale.delay", *delay, 0)?,
        Update::Pipeline { stages, .. } => count("train.update.pipeline.stages", *stages, 1)?,
        Update::Asynchronous {
            replicas,
            times,
            seconds: mean,
            bound: _,
            stragglers,
            deaths,
            transfer,
            service,
            detection,
            ..
        } => {
            let key = |name: &str| format!("train.update.asynchronous.{name}");
            count(&key("replicas"), *replicas, 1)?;
            seconds(&key("seconds"), *mean, true)?;
            seconds(&key("transfer"), *transfer, false)?;
            seconds(&key("service"), *service, false)?;
            seconds(&key("detection"), *detection, false)?;
            pairs(&key("stragglers"), stragglers, *replicas, "a factor")?;
            pairs(&key("deaths"), deaths, *replicas, "a time")?;
            let (name, largest) = match times {
                GradientTimes::Lognormal { .. } => ("lognormal", SCATTER),
                GradientTimes::ShiftedExponential { .. } => ("shifted-exponential", 1.0),
                GradientTimes::Constant | GradientTimes::Exponential => ("", SCATTER),
            };
            let cv = times.times(*mean).cv();
            if !(0.0..=largest).contains(&cv) {
                return Err(Fault::invalid(
                    &key(&format!("times.{name}.cv")),
                    format!("expected a number from 0 to {largest}, found {cv}"),
                ));
            }
        }
    }
    let name = update.name();
    if !matches!(config.batch.controller, BatchController::Constant {}) {
        return Err(Fault::invalid(
            "batch.controller",
            format!("the batch cannot change in a run with `{name}` updates"),
        )
        .hint("use a constant batch, or `update = \"synchronous\"`"));
    }
    if matches!(config.learning_rate.scaling, Scaling::Adascale {}) {
        return Err(Fault::invalid(
            "learning_rate.scaling",
            format!("AdaScale's gain is not defined for `{name}` updates"),
        )
        .hint("use another rule, or `update = \"synchronous\"`"));
    }
    Ok(())
}
