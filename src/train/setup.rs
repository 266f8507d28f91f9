//! What a trial derives from its config and data before the first update.

use std::collections::BTreeSet;

use super::TrainError;
use crate::config::{
    Averaging, BatchController, BatchGrowth, BatchStatistics, EpochEnd, GhostRemainder,
    LearningRateConfig, Scaling, StatisticsGroup, TrialConfig, WarmupShape,
};
use crate::data::Data;
use crate::data::order::{Order, Position, shards};
use crate::objective::ObjectiveError;
use crate::schedule::{
    BatchControl, ControlState, LearningRate, Measured, Moment, Momentum, Start,
};

/// What a trial derives from its config and data before the first update.
#[derive(Debug)]
pub struct Setup {
    /// The order of examples.
    pub order: Order,
    /// The learning-rate schedule, at the first batch.
    pub rate: LearningRate,
    /// The momentum schedule, for an optimizer with momentum.
    pub momentum: Option<Momentum>,
    /// What decides about the batch.
    pub control: BatchControl,
    /// Updates that the budget allows. Where the batch follows measurements, those at the first
    /// batch; with AdaScale, the most there can be.
    pub total_steps: u64,
    /// Updates per epoch at the first batch (with AdaScale, at its base batch), not necessarily
    /// whole.
    pub steps_per_epoch: f64,
    /// Global batch of the first update.
    pub global_batch: usize,
    budget: Budget,
    clock: Clock,
    shapes: BTreeSet<Shape>,
    /// What the controller multiplies the rate of the start by; `rate` has it already.
    first_factor: f64,
    /// Whether every update has the batch of `[train]`.
    constant: bool,
}

/// Most updates of a plan that is walked beforehand: a second or two.
pub(super) const MOST_PLANNED_UPDATES: u64 = 50_000_000;

/// The examples of an update, and the batch it was to have; fewer at the end of a partial epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    examples: usize,
    batch: usize,
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Budget {
    Steps(u64),
    Epochs(f64),
    Examples(u64),
    /// The sum of AdaScale's gains.
    Gains(f64),
}

/// What schedules count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Updates,
    /// Epochs, in updates at the first batch.
    Epochs,
    Gains,
}

/// How far a run is, as its schedules see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reached {
    pub(super) step: u64,
    pub(super) position: Position,
    pub(super) batch: usize,
    pub(super) gains: f64,
}

/// An update as it is planned, in the terms of steps.csv.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedUpdate {
    /// Number of the update, 1 for the first.
    pub step: u64,
    /// Epochs passed before it.
    pub begins: f64,
    /// Epochs passed after it.
    pub epoch: f64,
    /// Examples processed after it.
    pub examples: u64,
    /// Its examples: fewer than `batch` at the end of a partial epoch.
    pub global_batch: usize,
    /// The global batch that holds.
    pub batch: usize,
    /// Workers that it is spread over.
    pub workers: usize,
    /// Learning rate.
    pub lr: f64,
    /// Momentum, for an optimizer with momentum.
    pub momentum: Option<f64>,
    /// Whether it belongs to the warm-up.
    pub warms_up: bool,
}

/// The updates of a run, one after the other, without training: see [`Setup::planned`].
#[derive(Debug, Clone)]
pub struct PlannedUpdates<'a> {
    setup: &'a Setup,
    config: &'a TrialConfig,
    state: ControlState,
    reached: Reached,
}

impl Iterator for PlannedUpdates<'_> {
    type Item = PlannedUpdate;

    fn next(&mut self) -> Option<PlannedUpdate> {
        let (setup, config) = (self.setup, self.config);
        if !setup.begin(&mut self.state, &mut self.reached) {
            return None;
        }
        let begins = setup.epochs(&self.reached);
        let warms_up = setup.rate.warms_up(setup.clock(&self.reached));
        let (lr, momentum) = setup.rates(config, &self.reached, &self.state);
        let global_batch = setup.advance(&mut self.reached);
        Some(PlannedUpdate {
            step: self.reached.step,
            begins,
            epoch: setup.epochs(&self.reached),
            examples: self.reached.position.examples,
            global_batch,
            batch: self.reached.batch,
            workers: workers_of(config, self.reached.batch),
            lr,
            momentum,
            warms_up,
        })
    }
}

impl Setup {
    /// Works out the budget and the schedules, and checks them against the data.
    ///
    /// # Errors
    /// If the batch is larger than the data, the budget has no update, a schedule is impossible, or
    /// the warm-up is longer than the run.
    pub fn new(config: &TrialConfig, data: &Data) -> Result<Self, TrainError> {
        let fresh = data.fresh.as_ref();
        let examples = fresh.map_or(data.train.len(), |f| f.epoch_examples);
        Self::of_examples(config, examples, fresh.is_some())
    }

    /// As [`Setup::new`], for `examples` training examples; `fresh` where they never repeat.
    ///
    /// # Errors
    /// As [`Setup::new`].
    pub fn of_examples(
        config: &TrialConfig,
        examples: usize,
        fresh: bool,
    ) -> Result<Self, TrainError> {
        let global_batch = config.global_batch();
        config.validate_against_data(examples)?;
        let order = if fresh {
            Order::fresh(config.seed, examples)
        } else {
            Order::new(config.seed, examples, config.train.epoch_end)
        };
        let adascale = matches!(config.learning_rate.scaling, Scaling::Adascale {});
        // AdaScale's schedules and budget are those of a run at its base batch.
        let schedule_batch = match config.learning_rate.base_batch {
            Some(base) if adascale => base,
            _ => global_batch,
        };
        let steps_per_epoch = order.steps_per_epoch(schedule_batch);
        let train = &config.train;
        // The small constant keeps 3 epochs of n/B updates from rounding down to one less.
        let steps = match (train.epochs, train.steps, train.examples) {
            (Some(epochs), ..) => (epochs * steps_per_epoch + 1e-9).floor() as u64,
            (_, Some(steps), _) => steps,
            (.., Some(budget)) => order.steps_within(budget, schedule_batch),
            _ => 0,
        };
        let start = Start {
            global_batch: config.written_batch(),
            workers: train.workers,
            momentum: config.optimizer.momentum(),
        };
        let control = BatchControl::new(&config.batch, start, examples)?;
        let constant = matches!(config.batch.controller, BatchController::Constant {});
        let (budget, clock) = match (train.epochs, train.examples) {
            _ if adascale => (Budget::Gains(steps as f64), Clock::Gains),
            _ if constant => (Budget::Steps(steps), Clock::Updates),
            (Some(epochs), _) => (Budget::Epochs(epochs), Clock::Epochs),
            (_, Some(examples)) => (Budget::Examples(examples), Clock::Epochs),
            _ if control.planned().is_some() => (Budget::Steps(steps), Clock::Epochs),
            // The examples that these updates take are only known in the end.
            _ => (Budget::Steps(steps), Clock::Updates),
        };
        let mut setup = Self {
            rate: LearningRate::new(
                &at_the_start(config),
                schedule_batch,
                steps as f64,
                steps_per_epoch,
            )?,
            momentum: config
                .momentum()
                .map(|m| Momentum::new(&config.momentum_schedule, m, steps_per_epoch))
                .transpose()?,
            total_steps: steps,
            shapes: [global_batch, order.smallest_batch(steps, global_batch)]
                .map(|examples| Shape {
                    examples,
                    batch: global_batch,
                })
                .into(),
            first_factor: control.initial_state().rate_factor,
            order,
            control,
            steps_per_epoch,
            global_batch,
            budget,
            clock,
            constant,
        };
        match setup.control.planned() {
            _ if constant => {}
            // The gains decide when a run with AdaScale ends.
            Some(stages) if adascale => {
                let whole = stages.iter().map(|stage| Shape {
                    examples: stage.global_batch,
                    batch: stage.global_batch,
                });
                setup.shapes.extend(whole.collect::<Vec<_>>());
            }
            Some(_) if steps > MOST_PLANNED_UPDATES => {
                let key = match (train.epochs, train.examples) {
                    (Some(_), _) => "train.epochs",
                    (_, Some(_)) => "train.examples",
                    _ => "train.steps",
                };
                return Err(TrainError::TooManyUpdates {
                    key,
                    updates: steps,
                });
            }
            Some(_) => {
                let length = setup.walk();
                let rate = at_the_start(config);
                setup.rate = LearningRate::new(&rate, schedule_batch, length, steps_per_epoch)?;
            }
            None => {
                let (smallest, largest) = setup.control.bounds();
                let whole = [smallest, largest].map(|batch| Shape {
                    examples: batch,
                    batch,
                });
                setup.shapes.extend(whole);
            }
        }
        Ok(setup)
    }

    /// Walks over a run whose batches are known: counts its updates, notes their sizes, and returns
    /// the run's length on the clock of the schedules.
    fn walk(&mut self) -> f64 {
        let mut state = self.control.initial_state();
        let mut reached = self.start();
        self.shapes.clear();
        while self.begin(&mut state, &mut reached) {
            let examples = self.advance(&mut reached);
            self.shapes.insert(Shape {
                examples,
                batch: reached.batch,
            });
        }
        self.total_steps = reached.step;
        self.clock(&reached)
    }

    /// The updates of the run without training it: those that a run of this `config` makes, where
    /// its batches are known beforehand ([`BatchControl::planned`]). Where they follow measurements,
    /// the updates at the starting batch; with AdaScale those at a gain of 1.
    pub fn planned<'a>(&'a self, config: &'a TrialConfig) -> PlannedUpdates<'a> {
        PlannedUpdates {
            setup: self,
            config,
            state: self.control.initial_state(),
            reached: self.start(),
        }
    }

    /// Lets a plan decide about the next update; whether the budget has room for it.
    pub(super) fn begin(&self, state: &mut ControlState, reached: &mut Reached) -> bool {
        let moment = self.moment(reached);
        self.control.decide(state, moment, &Measured::Nothing, 0.0);
        reached.batch = state.global_batch;
        !self.is_over(reached)
    }

    /// Passes an update, at a gain of 1, and returns its examples.
    fn advance(&self, reached: &mut Reached) -> usize {
        let next = self.order.after(reached.position, reached.batch);
        let examples = next.examples - reached.position.examples;
        reached.position = next;
        reached.step += 1;
        reached.gains += 1.0;
        examples as usize
    }

    /// The learning rate of the next update, before AdaScale's gain, and its momentum.
    pub(super) fn rates(
        &self,
        config: &TrialConfig,
        reached: &Reached,
        state: &ControlState,
    ) -> (f64, Option<f64>) {
        let clock = self.clock(reached);
        let factor = self.coupling(config, state) * (state.rate_factor / self.first_factor);
        let lr = self.rate.at_scaled(clock, factor);
        let momentum = self.momentum.as_ref().map(|m| m.at(reached.step, clock));
        (lr, momentum)
    }

    /// Before the first update.
    pub(super) fn start(&self) -> Reached {
        Reached {
            step: 0,
            position: Position::default(),
            batch: self.global_batch,
            gains: 0.0,
        }
    }

    /// Epochs passed.
    pub(super) fn epochs(&self, reached: &Reached) -> f64 {
        self.epochs_at(reached.position)
    }

    fn epochs_at(&self, position: Position) -> f64 {
        if self.constant {
            self.order.epochs(position, self.global_batch)
        } else {
            // A count that a change of the batch cannot move.
            self.order.epochs_of_stream(position)
        }
    }

    /// As controllers see it.
    pub(super) fn moment(&self, reached: &Reached) -> Moment {
        Moment {
            step: reached.step,
            epoch: self.epochs(reached),
        }
    }

    /// The time of the schedules, in updates.
    pub(super) fn clock(&self, reached: &Reached) -> f64 {
        match self.clock {
            Clock::Updates => reached.step as f64,
            Clock::Epochs => self.epochs(reached) * self.steps_per_epoch,
            Clock::Gains => reached.gains,
        }
    }

    /// Whether the budget has no room for the next update.
    pub(super) fn is_over(&self, reached: &Reached) -> bool {
        let next = || self.order.after(reached.position, reached.batch);
        match self.budget {
            Budget::Steps(steps) => reached.step >= steps,
            Budget::Examples(examples) => next().examples > examples,
            Budget::Epochs(epochs) => self.epochs_at(next()) > epochs + 1e-9,
            Budget::Gains(gains) => reached.gains >= gains,
        }
    }

    /// The factor by which a batch other than that of `[train]` moves the rate.
    fn coupling(&self, config: &TrialConfig, state: &ControlState) -> f64 {
        let (batch, written) = (self.control.rate_batch(state), config.written_batch());
        if batch == written {
            return 1.0;
        }
        let rate = &config.learning_rate;
        rate.scaled(batch) / rate.scaled(written)
    }

    /// Share of the budget that has passed, in [0, 1].
    pub(super) fn progress(&self, reached: &Reached) -> f64 {
        let share = match self.budget {
            Budget::Steps(steps) => reached.step as f64 / steps as f64,
            Budget::Examples(examples) => reached.position.examples as f64 / examples as f64,
            Budget::Epochs(epochs) => self.epochs(reached) / epochs,
            Budget::Gains(gains) => reached.gains / gains,
        };
        share.clamp(0.0, 1.0)
    }
}

/// Workers that a batch is spread over.
pub(super) fn workers_of(config: &TrialConfig, global_batch: usize) -> usize {
    match config.batch.growth {
        BatchGrowth::Workers => global_batch.div_ceil(config.local_batch().max(1)),
        BatchGrowth::Shards | BatchGrowth::Accumulation => config.train.workers,
    }
}

/// The learning rate of the first batch. Smith's controller multiplies rate and batch of the start by
/// factors of its own; a warm-up still starts from the rate that is given or that of `[train]`.
fn at_the_start(config: &TrialConfig) -> LearningRateConfig {
    let mut rate = config.learning_rate.clone();
    let written = rate.scaled(config.written_batch());
    if config.global_batch() != config.written_batch() || config.scaled_rate() != written {
        if let Some(warmup) = &mut rate.warmup
            && warmup.shape != WarmupShape::Legw
        {
            warmup.start_lr = Some(warmup.start_lr.unwrap_or(rate.base_lr.min(written)));
        }
        rate.base_lr = config.scaled_rate();
        rate.scaling = Scaling::None;
    }
    rate
}

/// The shards of a batch of `examples`, where batches of `global_batch` are made as `config` says.
pub(super) fn shards_of(
    config: &TrialConfig,
    examples: usize,
    global_batch: usize,
) -> Vec<std::ops::Range<usize>> {
    let parts = match config.batch.growth {
        BatchGrowth::Shards => config.train.workers,
        BatchGrowth::Workers | BatchGrowth::Accumulation => {
            global_batch / config.local_batch().max(1)
        }
    };
    shards(examples, parts.max(1))
}

/// The groups of a batch that share batch statistics, by shard.
pub(super) fn groups_of(
    group: StatisticsGroup,
    shards: &[std::ops::Range<usize>],
) -> Vec<Vec<usize>> {
    match group {
        StatisticsGroup::Local => shards.iter().map(|s| vec![s.len()]).collect(),
        StatisticsGroup::Global => {
            vec![vec![shards.iter().map(ExactSizeIterator::len).sum()]]
        }
        StatisticsGroup::Ghost { ghost_size, .. } => shards
            .iter()
            .map(|shard| {
                let whole = (shard.len() / ghost_size).max(1);
                let mut groups = vec![ghost_size; whole];
                // The rest joins the last group.
                groups[whole - 1] = shard.len() - ghost_size * (whole - 1);
                groups
            })
            .collect(),
    }
}

/// Examples of a group of batch statistics in training with this global batch: a worker's shard, a
/// ghost group, or the batch.
pub fn statistics_group(config: &TrialConfig, batch: usize) -> usize {
    match config.train.statistics_group {
        StatisticsGroup::Local => shards_of(config, batch, batch)[0].len(),
        StatisticsGroup::Ghost { ghost_size, .. } => ghost_size,
        StatisticsGroup::Global => batch,
    }
}

/// Checks that the examples of every update make groups of batch statistics, where the model has
/// any.
///
/// # Errors
/// If a group of any update has one example, a micro-batch would cut one, or the config asks for
/// statistics that cannot be had.
pub fn check_groups(
    config: &TrialConfig,
    setup: &Setup,
    has_batch_statistics: bool,
) -> Result<(), TrainError> {
    if !has_batch_statistics {
        return Ok(());
    }
    let train = &config.train;
    let refused = |key, message: &str| {
        Err(TrainError::Statistics {
            key,
            message: message.to_owned(),
        })
    };
    if matches!(train.batch_statistics, BatchStatistics::Ema { .. })
        && train.averaging != Averaging::None
    {
        return refused(
            "train.batch_statistics",
            "running averages belong to the weights of the updates, not to their average\n\
             hint: use `batch_statistics = \"population\"` with `averaging`",
        );
    }
    let measured = setup.control.planned().is_none();
    if measured && train.epoch_end == EpochEnd::Partial {
        return refused(
            "train.epoch_end",
            "with a batch that follows measurements the rest of an epoch may be a group of one\n\
             hint: use \"carry\" or \"drop\" with a batch-normalized model",
        );
    }
    if let StatisticsGroup::Ghost {
        remainder: GhostRemainder::Refuse,
        ghost_size,
    } = train.statistics_group
    {
        let moves = setup.control.planned().is_none() && config.batch.growth == BatchGrowth::Shards;
        let fits = setup.shapes.iter().all(|shape| {
            shards_of(config, shape.examples, shape.batch)
                .iter()
                .all(|shard| shard.len().is_multiple_of(ghost_size))
        });
        if moves || !fits {
            return refused(
                "train.statistics_group.ghost.remainder",
                "some shards will not divide into groups of this size\n\
                 hint: write `remainder = \"merge\"`, or make every batch a multiple of it",
            );
        }
    }
    for shape in &setup.shapes {
        let shards = shards_of(config, shape.examples, shape.batch);
        let groups = groups_of(train.statistics_group, &shards);
        let largest = groups.iter().flatten().copied().max().unwrap_or(0);
        if let Some(micro_batch) = train.micro_batch
            && micro_batch < largest
        {
            return Err(TrainError::MicroBatch {
                group: largest,
                micro_batch,
            });
        }
        if groups.iter().flatten().any(|&size| size < 2) {
            if shape.batch == setup.global_batch {
                return Err(ObjectiveError::GroupOfOne.into());
            }
            return Err(TrainError::Statistics {
                key: "batch.min_batch",
                message: format!(
                    "a batch of {} leaves a group of batch statistics with one example\n\
                     hint: keep the batch at {} or more",
                    shape.batch,
                    2 * shards.len()
                ),
            });
        }
        if let StatisticsGroup::Ghost { ghost_size, .. } = train.statistics_group
            && shape.examples == shape.batch
            && let Some(shard) = shards.iter().find(|shard| shard.len() < ghost_size)
        {
            return Err(TrainError::Statistics {
                key: "train.statistics_group.ghost.ghost_size",
                message: format!(
                    "groups of {ghost_size} do not fit into shards of {} examples, which a batch of \
                     {} has\nhint: use at most {}, or keep the batch larger",
                    shard.len(),
                    shape.batch,
                    shard.len()
                ),
            });
        }
        if config.measures_gradients() && groups.iter().flatten().count() < 2 {
            return refused(
                "train.statistics_group",
                "the gradient's noise is measured between the pieces of a batch, and a \
                 batch-normalized model has one piece a worker, or one a ghost group\n\
                 hint: use at least two workers, or ghost groups",
            );
        }
    }
    Ok(())
}
