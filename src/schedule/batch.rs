//! Batch-size controllers: how the global batch of the next update follows from what has happened.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{BatchConfig, BatchController, BatchGrowth, Coupling, short};
use crate::math::noise::{Average, NoiseEstimate};

/// Epochs are sums of batches over examples; this much of an epoch is rounding.
const EPOCH_ROUNDING: f64 = 1e-9;

/// Sizes that differ by less than this share of themselves differ by rounding:
/// (1 - 0.9)/(1 - 0.98) is 4.999999999999995 in floating point.
const SIZE_ROUNDING: f64 = 1e-9;

/// A batch controller: a validated `[batch]` and the run it is for. It keeps nothing; what it
/// remembers is the [`ControlState`] of its caller, so a resumed run decides as an undisturbed one.
///
/// At every update the caller asks what to measure ([`BatchControl::need`]) and hands the answer to
/// [`BatchControl::decide`]: before the update for [`Need::Nothing`] and [`Need::TopEigenvalue`],
/// so that the change holds for this update already; once the gradient is known for the others, so
/// that it holds from the next update on.
///
/// | controller | the batch | coupling | looks |
/// |---|---|---|---|
/// | `constant` | stays | rule | never |
/// | `schedule` | as listed | rule | at the listed epochs |
/// | `smith` | B factor at each epoch, up to `max_batch` | none | at the listed epochs |
/// | `absa` | B factor when the top eigenvalue fell | rule | every epoch |
/// | `cabs` | lr tr(Sigma)/loss | none | every 10 updates |
/// | `norm-test` | tr(Sigma)/(theta^2 \|G\|^2), rounded up | rule | every 10 updates |
/// | `inner-product-test` | Var(g_i'G)/(theta^2 \|G\|^4), rounded up | rule | every 10 updates |
/// | `noise-scale` | (r tr(H Sigma)/(G'HG))^(1/2) | rule | every 10 updates |
/// | `simple-noise-scale` | tr(Sigma)/\|G\|^2 | rule | every 10 updates |
///
/// Every quantity under a ratio is a running average of unbiased estimates (`batch.smoothing`). A
/// wanted batch is rounded to the nearest that fits ([`BatchControl::unit`]) and kept within the
/// bounds. Where an average that divides is not positive, the batch is undetermined and stays. That
/// a bound or an undetermined estimate holds the batch is said once in a run.
///
/// ```
/// use batchlab::config::{BatchConfig, BatchController};
/// use batchlab::schedule::{BatchControl, Measured, Moment, Start};
///
/// let config = BatchConfig {
///     controller: BatchController::Smith {
///         epochs: vec![60.0, 120.0, 160.0],
///         factor: 5.0,
///         initial_factor: 1.0,
///         momentum: None,
///     },
///     max_batch: Some(5120),
///     ..BatchConfig::default()
/// };
/// let start = Start { global_batch: 128, workers: 8, momentum: Some(0.9) };
/// let control = BatchControl::new(&config, start, 50_000)?;
/// let mut state = control.initial_state();
/// let moment = Moment { step: 56_250, epoch: 144.0 };
/// control.decide(&mut state, moment, &Measured::Nothing, 0.1);
/// assert_eq!((state.global_batch, state.rate_factor), (3200, 1.0));
/// // 16,000 is above the cap: the batch grows by 1.6, and the rate takes the rest of the factor.
/// let last = control.planned().unwrap().last().unwrap();
/// assert_eq!((last.global_batch, last.rate_factor), (5120, 1.6 / 5.0));
/// # Ok::<(), batchlab::schedule::BatchError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct BatchControl {
    controller: BatchController,
    growth: BatchGrowth,
    coupling: Coupling,
    written: usize,
    unit: usize,
    min: usize,
    max: usize,
    smoothing: f64,
    course: Course,
}

/// What decides when.
#[derive(Debug, Clone, PartialEq)]
enum Course {
    /// Known without training, stage after stage.
    Planned(Vec<Stage>),
    /// Decided at a cadence from what is measured.
    Measured { first: usize, cadence: Cadence },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cadence {
    Steps(u64),
    Epochs(f64),
}

impl Cadence {
    /// Whole periods passed.
    fn periods(self, moment: Moment) -> u64 {
        match self {
            Cadence::Steps(steps) => moment.step / steps,
            Cadence::Epochs(epochs) => ((moment.epoch + EPOCH_ROUNDING) / epochs).floor() as u64,
        }
    }
}

/// What a run starts from, as `[train]` and `[optimizer]` have it: before Smith's initial factor
/// and momentum, which the controller brings in itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Start {
    /// Global batch of `[train]`.
    pub global_batch: usize,
    /// Workers of `[train]`.
    pub workers: usize,
    /// Momentum m of the optimizer, where it has one.
    pub momentum: Option<f64>,
}

/// When an update happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Updates made before it.
    pub step: u64,
    /// Epochs passed before it: examples processed over training examples.
    pub epoch: f64,
}

/// A part of a run whose batch is known beforehand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// The epoch it starts at: with the first update that starts there or later.
    pub epoch: f64,
    /// Global batch.
    pub global_batch: usize,
    /// What the controller multiplies the rate by.
    pub rate_factor: f64,
}

/// What has to be measured at an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Norms of the gradients of the pieces of this batch, and its loss.
    Norms,
    /// The same, with the inner products of the pieces' gradients with that of the batch.
    InnerProducts,
    /// The eigenvalue of largest magnitude of the Hessian, before this update.
    TopEigenvalue,
    /// tr(H Sigma) and G'HG of this batch.
    HessianNoise,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measured {
    /// Nothing.
    Nothing,
    /// For [`Need::Norms`] and [`Need::InnerProducts`].
    Noise {
        /// Estimates from the pieces of this batch.
        estimate: NoiseEstimate,
        /// Mean loss of this batch, before the update.
        loss: f64,
    },
    /// For [`Need::TopEigenvalue`].
    Eigenvalue {
        /// The eigenvalue of largest magnitude, with its sign.
        value: f64,
        /// Whether the search converged.
        converged: bool,
        /// |Hv - value v| at its end.
        residual: f64,
        /// Hessian-vector products made.
        products: usize,
    },
    /// For [`Need::HessianNoise`].
    HessianNoise {
        /// tr(H Sigma).
        tr_h_sigma: f64,
        /// G'HG.
        ghg: f64,
    },
}

/// A line of the log: the batch moved, or was held for the first time (`from` and `to` are then
/// equal).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Global batch before.
    pub from: usize,
    /// Global batch after.
    pub to: usize,
    /// Factor of the rate before.
    pub rate_factor_from: f64,
    /// Factor of the rate after.
    pub rate_factor_to: f64,
    /// What decided: `epoch`, `lambda_max`, `b_cabs`, `b_norm_test`, `b_inner_product_test`,
    /// `b_noise`, `b_simple`.
    pub quantity: String,
    /// Its value; none where it is undetermined.
    pub value: Option<f64>,
    /// Why, in words.
    pub reason: String,
}

impl Change {
    /// Whether batch or rate moved.
    pub fn moved(&self) -> bool {
        self.from != self.to || self.rate_factor_from != self.rate_factor_to
    }
}

/// Adversarial examples of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adversarial {
    /// Share of the batch that is adversarial, in (0, 1].
    pub share: f64,
    /// Largest change of a feature.
    pub epsilon: f64,
}

/// What a controller remembers of a run. Written and read back as JSON it is the same, bit by bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlState {
    /// The global batch now.
    pub global_batch: usize,
    /// The product of all that the controller multiplied the rate by, Smith's initial factor
    /// included. The scaling rule is not in it.
    pub rate_factor: f64,
    /// Share of each batch that is adversarial, before the end that `adversarial_until` sets.
    pub adversarial_share: f64,
    /// The eigenvalue that others are compared with.
    reference: Option<f64>,
    /// Epoch of the last change.
    changed_at: f64,
    /// The stage of a plan.
    stage: usize,
    /// Periods of the cadence passed at the last decision.
    periods: u64,
    averages: Averages,
    said: Said,
}

impl ControlState {
    /// A line of the log after a decision that left the rate alone.
    fn entry(&self, from: usize, quantity: &str, value: Option<f64>, reason: String) -> Change {
        Change {
            from,
            to: self.global_batch,
            rate_factor_from: self.rate_factor,
            rate_factor_to: self.rate_factor,
            quantity: quantity.to_owned(),
            value,
            reason,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Averages {
    tr_sigma: Average,
    squared_gradient: Average,
    inner_variance: Average,
    orthogonal_variance: Average,
    loss: Average,
    tr_h_sigma: Average,
    ghg: Average,
}

impl Averages {
    fn new(smoothing: f64) -> Self {
        let none = Average::new(smoothing);
        Self {
            tr_sigma: none,
            squared_gradient: none,
            inner_variance: none,
            orthogonal_variance: none,
            loss: none,
            tr_h_sigma: none,
            ghg: none,
        }
    }

    /// Takes in what was measured, all of it or, where a number is not finite, none.
    fn push(&mut self, measured: &Measured) {
        match *measured {
            Measured::Noise { estimate, loss } => {
                let direction = estimate.direction;
                let inner = direction.map(|d| d.inner_variance);
                let orthogonal = direction.map(|d| d.orthogonal_variance);
                let values = [
                    (&mut self.tr_sigma, Some(estimate.tr_sigma)),
                    (&mut self.squared_gradient, Some(estimate.squared_gradient)),
                    (&mut self.inner_variance, inner),
                    (&mut self.orthogonal_variance, orthogonal),
                    (&mut self.loss, Some(loss)),
                ];
                push_all(values);
            }
            Measured::HessianNoise { tr_h_sigma, ghg } => push_all([
                (&mut self.tr_h_sigma, Some(tr_h_sigma)),
                (&mut self.ghg, Some(ghg)),
            ]),
            Measured::Nothing | Measured::Eigenvalue { .. } => {}
        }
    }
}

fn push_all<const N: usize>(values: [(&mut Average, Option<f64>); N]) {
    if values
        .iter()
        .all(|(_, value)| value.is_none_or(f64::is_finite))
    {
        for (average, value) in values {
            if let Some(value) = value {
                average.push(value);
            }
        }
    }
}

/// What the log has said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    at_max: bool,
    at_min: bool,
    undetermined: bool,
}

/// How a wanted batch becomes one that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Nearest,
    /// For tests that ask for at least so many examples.
    Up,
}

/// What a decision comes to before bounds and rounding.
struct Wanted {
    quantity: &'static str,
    /// The batch; `None` where it is undetermined.
    batch: Option<f64>,
    /// The value for the log.
    value: Option<f64>,
    rounding: Rounding,
    why: String,
}

impl Wanted {
    /// A batch that is a ratio: undetermined unless what divides, `sign`, is positive.
    fn ratio(
        quantity: &'static str,
        rounding: Rounding,
        batch: f64,
        sign: (&str, f64),
        formula: &str,
    ) -> Self {
        let (name, divisor) = sign;
        let batch = (divisor > 0.0 && !batch.is_nan()).then_some(batch);
        Self {
            quantity,
            batch,
            value: batch,
            rounding,
            why: match batch {
                Some(batch) => format!("{formula} = {}", short(batch)),
                None => format!("the average of {name} is {}", short(divisor)),
            },
        }
    }
}

/// A `[batch]` that cannot be followed. Each message names the key, what was found and what would
/// be right.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BatchError {
    /// A number outside its range.
    #[error("`{key}` must be {expected}, found {found}")]
    OutOfRange {
        /// Dotted TOML key.
        key: String,
        /// The accepted range, in words.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A batch that cannot be made of what there is.
    #[error(
        "`{key}`: a batch of {found} cannot be made: with `batch.growth` = \"{growth}\" it is a \
         multiple of {unit}\n\
         hint: the nearest that fit are {nearest}"
    )]
    Unit {
        /// Dotted TOML key of what asks for it.
        key: &'static str,
        /// The batch asked for.
        found: String,
        /// `batch.growth` as written in TOML.
        growth: &'static str,
        /// What a batch is a multiple of, and why.
        unit: String,
        /// The nearest batches that fit.
        nearest: String,
    },
    /// A batch beyond a bound.
    #[error("`{key}`: a batch of {found} is {side} {bound}, {name}\nhint: {hint}")]
    Bound {
        /// Dotted TOML key of what asks for it.
        key: &'static str,
        /// The batch asked for.
        found: usize,
        /// `above` or `below`.
        side: &'static str,
        /// The bound.
        bound: usize,
        /// What the bound is.
        name: &'static str,
        /// What would be right.
        hint: String,
    },
    /// Two cadences at once.
    #[error("`batch.{key}`: {problem}\nhint: leave it out")]
    Cadence {
        /// `every_steps` or `every_epochs`.
        key: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Smith's controller moves the rate itself.
    #[error(
        "`batch.coupling` = \"rule\" does not go with `smith`, which changes the batch in place of \
         the rate: the rule would undo it\n\
         hint: leave it out, or write `coupling = \"none\"`"
    )]
    Coupling,
    /// A larger momentum in place of none.
    #[error(
        "`batch.controller.smith.momentum` takes the place of the optimizer's momentum, and the \
         optimizer has none\n\
         hint: use `momentum`, `nesterov` or `lars`, or leave it out"
    )]
    Momentum,
}

impl BatchError {
    /// The dotted TOML key that is wrong.
    pub fn key(&self) -> String {
        match self {
            Self::OutOfRange { key, .. } => key.clone(),
            Self::Unit { key, .. } | Self::Bound { key, .. } => (*key).to_owned(),
            Self::Cadence { key, .. } => format!("batch.{key}"),
            Self::Coupling => "batch.coupling".to_owned(),
            Self::Momentum => "batch.controller.smith.momentum".to_owned(),
        }
    }
}

impl BatchControl {
    /// The controller of a run on `examples` training examples.
    ///
    /// # Errors
    /// A number outside its range; bounds that exclude the start; a cadence for a controller that
    /// has none; a listed batch that does not fit.
    pub fn new(config: &BatchConfig, start: Start, examples: usize) -> Result<Self, BatchError> {
        check_numbers(config)?;
        let written = start.global_batch;
        let workers = start.workers;
        let constant = matches!(config.controller, BatchController::Constant {});
        let whole = workers >= 1 && written >= 1 && written.is_multiple_of(workers);
        range(
            "train.global_batch",
            "a multiple of `train.workers`",
            whole || constant,
            written,
        )?;
        let unit = match config.growth {
            // A batch that stays may have shards of unequal sizes.
            _ if constant => 1,
            BatchGrowth::Shards => workers,
            BatchGrowth::Workers => written / workers,
            BatchGrowth::Accumulation => written,
        };
        let coupling = config.coupling.unwrap_or(match config.controller {
            BatchController::Smith { .. } | BatchController::Cabs {} => Coupling::None,
            _ => Coupling::Rule,
        });
        let mut control = Self {
            controller: config.controller.clone(),
            growth: config.growth,
            coupling,
            written,
            unit,
            min: 0,
            max: 0,
            smoothing: config.smoothing,
            course: Course::Planned(Vec::new()),
        };
        let first = control.first_batch(start)?;
        // A list says how small it goes.
        let smallest = match &config.controller {
            BatchController::Schedule { stages } => stages
                .iter()
                .map(|stage| stage[1] as usize)
                .fold(first, usize::min),
            _ => first,
        };
        let min = config.min_batch.unwrap_or(smallest);
        let max = config.max_batch.unwrap_or(examples.max(first));
        range(
            "batch.min_batch",
            &format!("at most the start, {first}"),
            min <= first,
            min,
        )?;
        range(
            "batch.max_batch",
            &format!("at least the start, {first}"),
            max >= first,
            max,
        )?;
        control.min = min.div_ceil(unit).max(1) * unit;
        control.max = max / unit * unit;
        control.course = control.course(config, first)?;
        Ok(control)
    }

    /// The first batch, with Smith's initial factor and momentum in it.
    fn first_batch(&self, start: Start) -> Result<usize, BatchError> {
        let BatchController::Smith {
            initial_factor,
            momentum,
            ..
        } = &self.controller
        else {
            return Ok(self.written);
        };
        let mut wanted = self.written as f64 * initial_factor;
        let mut key = "batch.controller.smith.initial_factor";
        if let Some(larger) = *momentum {
            let own = start.momentum.ok_or(BatchError::Momentum)?;
            key = "batch.controller.smith.momentum";
            range(
                key,
                &format!("at least the optimizer's, {own}, and below 1"),
                larger >= own && larger < 1.0,
                larger,
            )?;
            wanted *= (1.0 - own) / (1.0 - larger);
        }
        self.exact(key, wanted)
    }

    fn course(&self, config: &BatchConfig, first: usize) -> Result<Course, BatchError> {
        let cadence = match (config.every_steps, config.every_epochs) {
            (Some(_), Some(_)) => {
                return Err(BatchError::Cadence {
                    key: "every_steps",
                    problem: "`every_epochs` is given too".to_owned(),
                });
            }
            (Some(steps), None) => Some(Cadence::Steps(steps)),
            (None, Some(epochs)) => Some(Cadence::Epochs(epochs)),
            (None, None) => None,
        };
        let mut plan = vec![Stage {
            epoch: 0.0,
            global_batch: first,
            rate_factor: 1.0,
        }];
        match &self.controller {
            BatchController::Constant {} => {}
            BatchController::Schedule { stages } => self.list(stages, &mut plan)?,
            BatchController::Smith {
                epochs,
                factor,
                initial_factor,
                ..
            } => {
                if self.coupling == Coupling::Rule {
                    return Err(BatchError::Coupling);
                }
                plan[0].rate_factor = *initial_factor;
                self.smith(epochs, *factor, &mut plan)?;
            }
            BatchController::Absa { .. } => {
                let cadence = cadence.unwrap_or(Cadence::Epochs(1.0));
                return Ok(Course::Measured { first, cadence });
            }
            _ => {
                let cadence = cadence.unwrap_or(Cadence::Steps(10));
                return Ok(Course::Measured { first, cadence });
            }
        }
        // One that measures nothing has no cadence; a sweep may give it that of the others.
        Ok(Course::Planned(plan))
    }

    fn list(&self, stages: &[[f64; 2]], plan: &mut Vec<Stage>) -> Result<(), BatchError> {
        const KEY: &str = "batch.controller.schedule.stages";
        range(KEY, "at least one pair", !stages.is_empty(), "none")?;
        rising(KEY, stages.iter().map(|stage| stage[0]))?;
        for &[epoch, batch] in stages {
            let global_batch = self.exact(KEY, batch)?;
            let (side, bound, name, hint) = if global_batch > self.max {
                let hint = "use a smaller batch, or raise `batch.max_batch`";
                ("above", self.max, "the largest allowed", hint)
            } else if global_batch < self.min {
                let hint = "use a larger batch, or lower `batch.min_batch`";
                ("below", self.min, "the smallest allowed", hint)
            } else {
                if epoch == 0.0 {
                    plan.clear();
                }
                plan.push(Stage {
                    epoch,
                    global_batch,
                    rate_factor: 1.0,
                });
                continue;
            };
            return Err(BatchError::Bound {
                key: KEY,
                found: global_batch,
                side,
                bound,
                name,
                hint: hint.to_owned(),
            });
        }
        Ok(())
    }

    /// B' = min(B factor, the largest allowed), and the rate times (B'/B)/factor, so that rate over
    /// batch falls by the factor each time.
    fn smith(&self, epochs: &[f64], factor: f64, plan: &mut Vec<Stage>) -> Result<(), BatchError> {
        const KEY: &str = "batch.controller.smith.epochs";
        rising(KEY, epochs.iter().copied())?;
        let positive = epochs.iter().all(|&epoch| epoch > 0.0);
        range(KEY, "after the start of the run", positive, "0")?;
        for &epoch in epochs {
            let before = plan[plan.len() - 1];
            let wanted = before.global_batch as f64 * factor;
            let global_batch = if wanted >= self.max as f64 {
                self.max
            } else {
                self.exact("batch.controller.smith.factor", wanted)?
            };
            let grown = global_batch as f64 / before.global_batch as f64;
            plan.push(Stage {
                epoch,
                global_batch,
                rate_factor: before.rate_factor * (grown / factor),
            });
        }
        Ok(())
    }

    /// A listed batch: a multiple of the unit, or an error.
    fn exact(&self, key: &'static str, wanted: f64) -> Result<usize, BatchError> {
        let unit = self.unit as f64;
        let multiple = (wanted / unit).round();
        if multiple >= 1.0 && (multiple * unit - wanted).abs() <= SIZE_ROUNDING * wanted {
            return Ok((multiple as usize).saturating_mul(self.unit));
        }
        let below = ((wanted / unit).floor() as usize).saturating_mul(self.unit);
        let above = below.saturating_add(self.unit);
        let (growth, of) = match self.growth {
            BatchGrowth::Shards => ("shards", "the workers"),
            BatchGrowth::Workers => ("workers", "the local batch"),
            BatchGrowth::Accumulation => ("accumulation", "the global batch of `[train]`"),
        };
        Err(BatchError::Unit {
            key,
            found: short(wanted),
            growth,
            unit: format!("{} ({of})", self.unit),
            nearest: if below == 0 {
                above.to_string()
            } else {
                format!("{below} and {above}")
            },
        })
    }

    /// What a run starts with.
    pub fn initial_state(&self) -> ControlState {
        let (global_batch, rate_factor) = match &self.course {
            Course::Planned(plan) => (plan[0].global_batch, plan[0].rate_factor),
            Course::Measured { first, .. } => (*first, 1.0),
        };
        ControlState {
            global_batch,
            rate_factor,
            adversarial_share: match self.controller {
                BatchController::Absa {
                    adversarial_share, ..
                } => adversarial_share,
                _ => 0.0,
            },
            reference: None,
            changed_at: 0.0,
            stage: 0,
            periods: 0,
            averages: Averages::new(self.smoothing),
            said: Said::default(),
        }
    }

    /// The batches of the whole run, where they are known without training: for `constant`,
    /// `schedule` and `smith`. The first stage starts at epoch 0; each holds until the next.
    pub fn planned(&self) -> Option<&[Stage]> {
        match &self.course {
            Course::Planned(plan) => Some(plan),
            Course::Measured { .. } => None,
        }
    }

    /// Whether a change of the batch moves the learning rate.
    pub fn coupling(&self) -> Coupling {
        self.coupling
    }

    /// The batch whose scaled rate holds now: the present one where the scaling rule follows the
    /// batch, else that of `[train]`. The rate is this scaled rate, times
    /// [`ControlState::rate_factor`], times warm-up and decay.
    pub fn rate_batch(&self, state: &ControlState) -> usize {
        match self.coupling {
            Coupling::Rule => state.global_batch,
            Coupling::None => self.written,
        }
    }

    /// The momentum that takes the place of the optimizer's, where Smith's controller has one.
    pub fn momentum(&self) -> Option<f64> {
        match self.controller {
            BatchController::Smith { momentum, .. } => momentum,
            _ => None,
        }
    }

    /// What every batch is a multiple of: the workers where shards grow, the local batch where
    /// workers are added, the global batch of `[train]` where passes are accumulated.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// The smallest and the largest batch allowed, both multiples of the unit.
    pub fn bounds(&self) -> (usize, usize) {
        (self.min, self.max)
    }

    /// The adversarial examples of an update: ABSA's, until `adversarial_until` of the budget.
    /// `progress` is the share of the budget that has passed, in [0, 1].
    pub fn adversarial(&self, state: &ControlState, progress: f64) -> Option<Adversarial> {
        let BatchController::Absa {
            adversarial_epsilon,
            adversarial_until,
            ..
        } = self.controller
        else {
            return None;
        };
        (state.adversarial_share > 0.0 && progress < adversarial_until).then_some(Adversarial {
            share: state.adversarial_share,
            epsilon: adversarial_epsilon,
        })
    }

    /// What has to be measured at this update.
    pub fn need(&self, state: &ControlState, moment: Moment) -> Need {
        if self.due(state, moment).is_none() {
            return Need::Nothing;
        }
        match self.controller {
            BatchController::Absa { .. } => Need::TopEigenvalue,
            BatchController::InnerProductTest { .. } => Need::InnerProducts,
            BatchController::NoiseScale { .. } => Need::HessianNoise,
            _ => Need::Norms,
        }
    }

    /// The period that ends at this update, if a decision is due.
    fn due(&self, state: &ControlState, moment: Moment) -> Option<u64> {
        let Course::Measured { cadence, .. } = self.course else {
            return None;
        };
        let done = match self.controller {
            // It only grows, and has.
            BatchController::Absa { increase: None, .. } => state.global_batch >= self.max,
            _ => self.min == self.max,
        };
        let periods = cadence.periods(moment);
        (periods > state.periods && !done).then_some(periods)
    }

    /// Decides about the batch, and says what changed and why. `lr` is the rate of this update.
    ///
    /// Without the measurement that [`BatchControl::need`] asked for, nothing is decided and the
    /// need remains.
    pub fn decide(
        &self,
        state: &mut ControlState,
        moment: Moment,
        measured: &Measured,
        lr: f64,
    ) -> Option<Change> {
        if let Course::Planned(plan) = &self.course {
            return self.follow(plan, state, moment);
        }
        let periods = self.due(state, moment)?;
        match (self.need(state, moment), measured) {
            (Need::TopEigenvalue, Measured::Eigenvalue { .. }) => {
                state.periods = periods;
                self.absa(state, moment, measured)
            }
            (Need::Norms | Need::InnerProducts, Measured::Noise { .. })
            | (Need::HessianNoise, Measured::HessianNoise { .. }) => {
                state.periods = periods;
                state.averages.push(measured);
                let wanted = self.wanted(&state.averages, lr)?;
                self.settle(state, moment, wanted)
            }
            _ => None,
        }
    }

    fn follow(&self, plan: &[Stage], state: &mut ControlState, moment: Moment) -> Option<Change> {
        let begun = plan.partition_point(|stage| stage.epoch <= moment.epoch + EPOCH_ROUNDING);
        let index = begun.saturating_sub(1);
        if index <= state.stage {
            return None;
        }
        state.stage = index;
        let stage = plan[index];
        let change = Change {
            from: state.global_batch,
            to: stage.global_batch,
            rate_factor_from: state.rate_factor,
            rate_factor_to: stage.rate_factor,
            quantity: "epoch".to_owned(),
            value: Some(moment.epoch),
            reason: match self.controller {
                BatchController::Smith { factor, .. } => {
                    let rest = state.rate_factor / stage.rate_factor;
                    let capped = if rest > 1.0 + SIZE_ROUNDING {
                        let rest = short(rest);
                        format!("; the batch is at its cap and the rate takes the rest, 1/{rest}")
                    } else {
                        String::new()
                    };
                    format!(
                        "epoch {} in place of dividing the rate by {}{capped}",
                        short(stage.epoch),
                        short(factor)
                    )
                }
                _ => format!("epoch {} of the list", short(stage.epoch)),
            },
        };
        state.global_batch = stage.global_batch;
        state.rate_factor = stage.rate_factor;
        state.changed_at = moment.epoch;
        change.moved().then_some(change)
    }

    /// The batch that the averages ask for; `None` where nothing has been averaged.
    fn wanted(&self, averages: &Averages, lr: f64) -> Option<Wanted> {
        let trace = averages.tr_sigma.value();
        let g2 = averages.squared_gradient.value();
        Some(match self.controller {
            BatchController::Cabs {} => {
                let (trace, loss) = (trace?, averages.loss.value()?);
                let formula = format!(
                    "lr tr(Sigma)/loss = {} x {}/{}",
                    short(lr),
                    short(trace),
                    short(loss)
                );
                let batch = lr * trace / loss;
                Wanted::ratio("b_cabs", Rounding::Nearest, batch, ("loss", loss), &formula)
            }
            BatchController::NormTest { theta } => {
                let (trace, g2, theta2) = (trace?, g2?, theta * theta);
                let formula = format!(
                    "tr(Sigma)/(theta^2 |G|^2) = {}/({} x {})",
                    short(trace),
                    short(theta2),
                    short(g2)
                );
                let batch = trace / (theta2 * g2);
                Wanted::ratio("b_norm_test", Rounding::Up, batch, ("|G|^2", g2), &formula)
            }
            BatchController::InnerProductTest {
                theta,
                orthogonality,
            } => {
                let (along, g2) = (averages.inner_variance.value()?, g2?);
                let (theta2, g4) = (theta * theta, g2 * g2);
                let mut batch = along / (theta2 * g4);
                let mut formula = format!(
                    "Var(g_i'G)/(theta^2 |G|^4) = {}/({} x {})",
                    short(along),
                    short(theta2),
                    short(g4)
                );
                if let Some(nu) = orthogonality {
                    let across = averages.orthogonal_variance.value()?;
                    let other = across / (nu * nu * g2);
                    if other > batch {
                        batch = other;
                        formula = format!(
                            "orthogonal variance/(nu^2 |G|^2) = {}/({} x {})",
                            short(across),
                            short(nu * nu),
                            short(g2)
                        );
                    }
                }
                let quantity = "b_inner_product_test";
                Wanted::ratio(quantity, Rounding::Up, batch, ("|G|^2", g2), &formula)
            }
            BatchController::SimpleNoiseScale {} => {
                let (trace, g2) = (trace?, g2?);
                let formula = format!("tr(Sigma)/|G|^2 = {}/{}", short(trace), short(g2));
                let batch = trace / g2;
                Wanted::ratio(
                    "b_simple",
                    Rounding::Nearest,
                    batch,
                    ("|G|^2", g2),
                    &formula,
                )
            }
            BatchController::NoiseScale { exchange_rate, .. } => {
                let (trace, ghg) = (averages.tr_h_sigma.value()?, averages.ghg.value()?);
                let scale = trace / ghg;
                let formula = format!(
                    "B_noise = tr(H Sigma)/(G'HG) = {}/{} = {}; ({} B_noise)^(1/2)",
                    short(trace),
                    short(ghg),
                    short(scale),
                    short(exchange_rate)
                );
                // Whichever of the two is not positive is named.
                let sign = if trace > 0.0 {
                    ("G'HG", ghg)
                } else {
                    ("tr(H Sigma)", trace)
                };
                let batch = (exchange_rate * scale).sqrt();
                let mut wanted = Wanted::ratio("b_noise", Rounding::Nearest, batch, sign, &formula);
                wanted.value = wanted.batch.map(|_| scale);
                wanted
            }
            BatchController::Constant {}
            | BatchController::Schedule { .. }
            | BatchController::Smith { .. }
            | BatchController::Absa { .. } => return None,
        })
    }

    /// Brings a wanted batch within bounds and units, and says so if it is news.
    fn settle(&self, state: &mut ControlState, moment: Moment, wanted: Wanted) -> Option<Change> {
        let Wanted {
            quantity,
            value,
            rounding,
            why,
            ..
        } = wanted;
        let from = state.global_batch;
        let Some(batch) = wanted.batch else {
            let news = !std::mem::replace(&mut state.said.undetermined, true);
            let reason = format!("{why}: the batch is undetermined and stays");
            return news.then(|| state.entry(from, quantity, value, reason));
        };
        let to = self.fit(batch, rounding);
        let (limit, news) = if batch > self.max as f64 {
            let said = &mut state.said.at_max;
            (
                format!(", held at the largest, {}", self.max),
                !std::mem::replace(said, true),
            )
        } else if batch < self.min as f64 {
            let said = &mut state.said.at_min;
            (
                format!(", held at the smallest, {}", self.min),
                !std::mem::replace(said, true),
            )
        } else {
            (String::new(), false)
        };
        if to == from && !news {
            return None;
        }
        if to != from {
            state.changed_at = moment.epoch;
            state.global_batch = to;
        }
        Some(state.entry(from, quantity, value, format!("{why}{limit}")))
    }

    /// The nearest multiple of the unit (or the next one up) within the bounds.
    fn fit(&self, batch: f64, rounding: Rounding) -> usize {
        let batch = batch.clamp(self.min as f64, self.max as f64);
        let multiple = batch / self.unit as f64;
        let multiple = match rounding {
            Rounding::Nearest => multiple.round(),
            Rounding::Up => (multiple * (1.0 - SIZE_ROUNDING)).ceil(),
        };
        (multiple as usize * self.unit).clamp(self.min, self.max)
    }

    /// ABSA, as its authors run it, but for these: the reference follows every change, also one
    /// after `patience_epochs` (theirs moves only when the eigenvalue decides); an eigenvalue that
    /// is not positive decides nothing, for half of it means nothing (waiting goes on); the rate is
    /// no business of this rule but of the coupling; `increase`. A growth is at least one unit.
    fn absa(
        &self,
        state: &mut ControlState,
        moment: Moment,
        measured: &Measured,
    ) -> Option<Change> {
        let (
            BatchController::Absa {
                factor,
                decrease,
                increase,
                patience_epochs,
                ..
            },
            &Measured::Eigenvalue {
                value,
                converged,
                residual,
                products,
            },
        ) = (&self.controller, measured)
        else {
            return None;
        };
        let curved = value.is_finite() && value > 0.0;
        let reference = state.reference;
        if curved && reference.is_none() {
            state.reference = Some(value);
        }
        let against = |holds: &dyn Fn(f64) -> bool| curved && reference.is_some_and(holds);
        let fell = against(&|r| value <= decrease * r);
        let rose = increase.is_some_and(|increase| against(&|r| value >= increase * r));
        // Between the marks of the cadence, which an update passes by a part of its own batch.
        let now = self.mark(moment);
        let waited = now - state.changed_at >= patience_epochs - EPOCH_ROUNDING;

        let from = state.global_batch;
        let search = if converged {
            String::new()
        } else {
            let residual = short(residual);
            format!(" (not converged after {products} products, residual {residual})")
        };
        let ground = if fell || rose {
            let share = short(value / reference.unwrap_or(value));
            format!(", {share} of its reference")
        } else if waited {
            format!(", no change for {} epochs", short(*patience_epochs))
        } else {
            String::new()
        };
        let why = format!("the top eigenvalue is {}{search}{ground}", short(value));
        let to = if fell || (waited && (!rose || from == self.min)) {
            let wanted = self.fit(from as f64 * factor, Rounding::Nearest);
            wanted.max(from.saturating_add(self.unit)).min(self.max)
        } else if rose {
            let wanted = self.fit(from as f64 / factor, Rounding::Nearest);
            wanted.min(from.saturating_sub(self.unit)).max(self.min)
        } else {
            from
        };

        let value = value.is_finite().then_some(value);
        if to == from {
            let (said, bound) = if fell || (waited && from == self.max) {
                (&mut state.said.at_max, "; the batch is the largest allowed")
            } else if rose {
                (
                    &mut state.said.at_min,
                    "; the batch is the smallest allowed",
                )
            } else if curved {
                return None;
            } else {
                (
                    &mut state.said.undetermined,
                    ": not positive, it decides nothing",
                )
            };
            let news = !std::mem::replace(said, true);
            return news.then(|| state.entry(from, "lambda_max", value, why + bound));
        }
        if to == self.max {
            state.adversarial_share = 0.0;
        } else if to > from {
            state.adversarial_share /= factor;
        }
        if curved {
            state.reference = value;
        }
        state.changed_at = now;
        state.global_batch = to;
        Some(state.entry(from, "lambda_max", value, why))
    }

    /// The last mark of the cadence, in epochs.
    fn mark(&self, moment: Moment) -> f64 {
        match self.course {
            Course::Measured {
                cadence: Cadence::Epochs(epochs),
                ..
            } => Cadence::Epochs(epochs).periods(moment) as f64 * epochs,
            _ => moment.epoch,
        }
    }

    /// The controller in one line: what decides, within what bounds, when, and whether the rate
    /// follows.
    pub fn describe(&self) -> String {
        let (name, unit) = (self.controller.name(), self.unit);
        let made = match self.growth {
            BatchGrowth::Shards => "larger shards",
            BatchGrowth::Workers => "more workers",
            BatchGrowth::Accumulation => "accumulation",
        };
        let rate = match self.coupling {
            Coupling::Rule => "the rate follows by its scaling rule",
            Coupling::None => "the scaling rule does not move the rate",
        };
        let when = match &self.course {
            Course::Planned(plan) if plan.len() == 1 => {
                return format!("{name}: {}", plan[0].global_batch);
            }
            Course::Planned(plan) => {
                let stages: Vec<String> = plan
                    .iter()
                    .map(|stage| {
                        format!("{} from epoch {}", stage.global_batch, short(stage.epoch))
                    })
                    .collect();
                return format!("{name}: {}, by {made}; {rate}", stages.join(", "));
            }
            Course::Measured { cadence, .. } => match *cadence {
                Cadence::Steps(1) => "update".to_owned(),
                Cadence::Steps(steps) => format!("{steps} updates"),
                Cadence::Epochs(1.0) => "epoch".to_owned(),
                Cadence::Epochs(epochs) => format!("{} epochs", short(epochs)),
            },
        };
        let (min, max) = self.bounds();
        format!(
            "{name}: {min} to {max} in multiples of {unit}, by {made}; decides every {when}; {rate}"
        )
    }
}

/// Ranges of the numbers of `[batch]`.
fn check_numbers(config: &BatchConfig) -> Result<(), BatchError> {
    let name = config.controller.name();
    let positive = |key: &str, value: f64| {
        let key = format!("batch.controller.{name}.{key}");
        range(
            &key,
            "positive and finite",
            value.is_finite() && value > 0.0,
            value,
        )
    };
    let share = |key: &str, value: f64| {
        let key = format!("batch.controller.{name}.{key}");
        range(&key, "in [0, 1]", (0.0..=1.0).contains(&value), value)
    };
    let above_one = |key: &str, value: f64| {
        let key = format!("batch.controller.{name}.{key}");
        range(
            &key,
            "above 1 and finite",
            value.is_finite() && value > 1.0,
            value,
        )
    };
    range(
        "batch.smoothing",
        "in [0, 1)",
        (0.0..1.0).contains(&config.smoothing),
        config.smoothing,
    )?;
    let steps = config.every_steps.unwrap_or(1);
    range("batch.every_steps", "at least 1", steps >= 1, steps)?;
    let epochs = config.every_epochs.unwrap_or(1.0);
    let right = epochs.is_finite() && epochs > 0.0;
    range("batch.every_epochs", "positive and finite", right, epochs)?;
    match &config.controller {
        BatchController::Smith {
            factor,
            initial_factor,
            ..
        } => {
            above_one("factor", *factor)?;
            positive("initial_factor", *initial_factor)
        }
        BatchController::Absa {
            factor,
            decrease,
            increase,
            patience_epochs,
            adversarial_share,
            adversarial_epsilon,
            adversarial_until,
            ..
        } => {
            above_one("factor", *factor)?;
            let key = "batch.controller.absa.decrease";
            range(
                key,
                "in (0, 1)",
                *decrease > 0.0 && *decrease < 1.0,
                decrease,
            )?;
            increase.map_or(Ok(()), |increase| above_one("increase", increase))?;
            positive("patience_epochs", *patience_epochs)?;
            share("adversarial_share", *adversarial_share)?;
            share("adversarial_until", *adversarial_until)?;
            let epsilon = *adversarial_epsilon;
            let right = epsilon.is_finite() && epsilon >= 0.0;
            let key = "batch.controller.absa.adversarial_epsilon";
            range(key, "finite and not negative", right, epsilon)
        }
        BatchController::NormTest { theta } => positive("theta", *theta),
        BatchController::InnerProductTest {
            theta,
            orthogonality,
        } => {
            positive("theta", *theta)?;
            orthogonality.map_or(Ok(()), |nu| positive("orthogonality", nu))
        }
        BatchController::NoiseScale { exchange_rate, .. } => {
            positive("exchange_rate", *exchange_rate)
        }
        BatchController::Constant {}
        | BatchController::Schedule { .. }
        | BatchController::Cabs {}
        | BatchController::SimpleNoiseScale {} => Ok(()),
    }
}

/// Epochs that are finite, not negative and rising.
fn rising(key: &str, epochs: impl Iterator<Item = f64>) -> Result<(), BatchError> {
    let mut last = None;
    for epoch in epochs {
        let expected = "a list with finite, rising epochs of at least 0";
        let right = epoch.is_finite() && epoch >= 0.0 && last.is_none_or(|last| epoch > last);
        range(key, expected, right, epoch)?;
        last = Some(epoch);
    }
    Ok(())
}

fn range(
    key: &str,
    expected: &str,
    holds: bool,
    found: impl std::fmt::Display,
) -> Result<(), BatchError> {
    if holds {
        Ok(())
    } else {
        Err(BatchError::OutOfRange {
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: found.to_string(),
        })
    }
}
