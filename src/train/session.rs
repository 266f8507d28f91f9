//! The state of training and its single step.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use serde::{Deserialize, Serialize};

use super::TrainError;
use super::gradient::{Local, Reduced, Task, Wanted};
use super::late::{self, Late};
use super::measure::{self, Gains};
use super::outcome::{Evaluation, StalenessOutcome, StatisticsExchange};
use super::setup::{
    Reached, Setup, check_groups, groups_of, shards_of, statistics_group, workers_of,
};
use super::watch::{Measures, UpdateNoise};
use crate::collective::{OrderedTree, Pool, Ranks, Root};
use crate::config::{
    BatchStatistics, HessianProbe, ProbeStatistics, Scaling, Split, StatisticsGroup, TraceMethod,
    TrialConfig,
};
use crate::data::Data;
use crate::data::order::{Position, pieces};
use crate::math::noise::NoiseError;
use crate::objective::{
    Batch, LayerStatistics, Objective, ObjectiveError, Point, Scalar, population_statistics_at,
    scores_at,
};
use crate::optim::{Average, Gradient, Optimizer, Rates};
use crate::rng;
use crate::schedule::{Change, ControlState, Measured, Need};

/// Pieces that a batch is cut into where the noise of its gradient is measured: at least this many,
/// if it has as many examples. The relative error of an estimate is about (2/(pieces - 1))^(1/2).
const MEASURED_PIECES: usize = 8;

/// From this many parameters on, the update is split between threads. Starting them costs about
/// 50 us; a million parameters take about 1 ms.
const PARAMETERS_WORTH_SPLITTING: usize = 500_000;

/// What one update did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Mean loss of the batch, before the update.
    pub loss: f64,
    /// Learning rate of the update.
    pub lr: f64,
    /// Momentum of the update, for an optimizer with momentum.
    pub momentum: Option<f64>,
    /// Examples of the batch.
    pub examples: usize,
    /// Workers that the batch was spread over.
    pub workers: usize,
    /// Updates made since the parameters were read that the gradient is taken at; in a pipeline, by
    /// the latest stage.
    pub staleness: u64,
    /// Of an asynchronous run: the replica, from 0, and the simulated seconds passed.
    pub replica: Option<(usize, f64)>,
}

/// A change of the batch, for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchChange {
    /// Updates made before it.
    pub step: u64,
    /// Epochs passed before it.
    pub epoch: f64,
    /// Examples processed before it.
    pub examples: u64,
    /// What the controller did and why.
    pub change: Change,
}

/// A part of the batch that one forward and backward pass takes: its position in the batch, and
/// the sizes of its groups.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) range: std::ops::Range<usize>,
    pub(super) groups: Vec<usize>,
}

/// All that a session is besides its vectors; with them, it resumes exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counters {
    /// Updates made.
    pub(super) step: u64,
    pub(super) position: Position,
    /// The batch controller's state; it holds the batch.
    pub(super) control: ControlState,
    /// AdaScale's gains so far, and its averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gains: Option<Gains>,
    /// Rate of the last update.
    pub(super) last_lr: Option<f64>,
    /// Global batch of the last update, or of the first to come.
    pub(super) last_batch: usize,
    /// Parameters that count in the average so far.
    pub(super) averaged: u64,
    /// Running batch statistics.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        with = "measure::exact"
    )]
    pub(super) running: Vec<LayerStatistics>,
}

/// Training in progress: flat parameters and optimizer state, and how many updates were made.
pub struct Session<'pool, 'env, F: Scalar> {
    pub(super) config: &'env TrialConfig,
    pub(super) data: &'env Data,
    pub(super) objective: &'env dyn Objective<F>,
    /// The same objective in f64, for Hessian-vector products.
    pub(super) curvature: Option<&'env dyn Objective<f64>>,
    pub(super) pool: &'pool Pool<'env>,
    pub(super) setup: Setup,
    optimizer: Optimizer,
    pub(super) parameters: Vec<F>,
    state: Vec<Vec<F>>,
    average: Option<(Average, Vec<F>)>,
    /// The gradient of the update before, where its cosine with the next one is asked for.
    pub(super) previous: Option<Vec<F>>,
    /// Trees that no gradient is in.
    pub(super) trees: Vec<Arc<OrderedTree<F>>>,
    pub(super) late: Late<F>,
    /// Where the work is spread over processes.
    pub(super) ranks: Option<&'env dyn Ranks>,
    /// Batches whose pieces are computed and not summed yet.
    pub(super) pending: VecDeque<Local<F>>,
    /// Whether this rank was told to stop, and whether any was.
    pub(super) stop: bool,
    any_stop: bool,
    pub(super) counters: Counters,
    pub(super) changes: Vec<BatchChange>,
    noises: Vec<UpdateNoise>,
}

/// The name of the averaged parameters among a session's vectors.
const AVERAGE: &str = "average";

/// The name of the gradient of the update before.
const PREVIOUS: &str = "previous_gradient";

/// The pieces of a batch: shards, cut where they are larger than the micro-batch; a group of
/// batch statistics is never cut. Where the noise of the gradient is measured, parts of the whole
/// batch whatever the workers, at least [`MEASURED_PIECES`] of them if there are as many groups.
fn leaves_of<F: Scalar>(
    config: &TrialConfig,
    objective: &dyn Objective<F>,
    examples: usize,
    batch: usize,
    wanted: Wanted,
) -> Vec<Leaf> {
    let micro_batch = |shard: usize| {
        let own = config.train.micro_batch;
        // Gradients that are kept cost memory, so there are few of them.
        let default = if wanted.gradients {
            shard
        } else {
            objective.default_micro_batch(shard)
        };
        own.unwrap_or(default)
    };
    let measured = (examples / MEASURED_PIECES).max(1);
    let shards = shards_of(config, examples, batch);
    if !objective.has_batch_statistics() {
        let cut: Vec<std::ops::Range<usize>> = if wanted.cut {
            pieces(&(0..examples), micro_batch(examples).min(measured))
        } else {
            let size = micro_batch(shards.first().map_or(1, ExactSizeIterator::len));
            shards
                .iter()
                .flat_map(|shard| pieces(shard, size))
                .collect()
        };
        return cut
            .into_iter()
            .map(|range| Leaf {
                groups: vec![range.len()],
                range,
            })
            .collect();
    }
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut start = 0;
    for groups in groups_of(config.train.statistics_group, &shards) {
        let limit = if wanted.cut {
            micro_batch(examples).min(measured)
        } else {
            micro_batch(groups.iter().sum())
        };
        let mut joins = wanted.cut;
        for size in groups {
            match leaves.last_mut() {
                Some(leaf) if joins && leaf.range.len() + size <= limit => {
                    leaf.range.end += size;
                    leaf.groups.push(size);
                }
                _ => leaves.push(Leaf {
                    range: start..start + size,
                    groups: vec![size],
                }),
            }
            start += size;
            joins = true;
        }
    }
    leaves
}

/// Refuses probes that a trial cannot make: of the noise of its updates, where an update has one piece;
/// of the gradients of single examples, where a model has batch statistics; of the exact trace of the
/// Hessian, where a model of the user's own has none.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check_probes<F: Scalar>(
    config: &TrialConfig,
    setup: &Setup,
    objective: &dyn Objective<F>,
) -> Result<(), TrainError> {
    let exact_trace =
        |probe: &HessianProbe| probe.trace == TraceMethod::Exact && probe.trace_products > 0;
    if config.probes.hessian.as_ref().is_some_and(exact_trace)
        && !objective.is_linear_in_each_parameter()
    {
        return Err(ObjectiveError::NotLinear.into());
    }
    let Some(noise) = &config.probes.noise else {
        return Ok(());
    };
    if noise.exact
        && config.probes.statistics == ProbeStatistics::Batch
        && objective.has_batch_statistics()
    {
        return Err(ObjectiveError::BatchStatistics.into());
    }
    if noise.every_steps == 0 || config.measures_gradients() {
        return Ok(());
    }
    let batch = setup.global_batch;
    let found = leaves_of(config, objective, batch, batch, Wanted::default()).len();
    if found < 2 {
        return Err(NoiseError::TooFewPieces { found }.into());
    }
    Ok(())
}

/// Why batch statistics over all workers and several ranks do not go together.
pub fn one_piece_of_work(ranks: usize) -> String {
    format!(
        "batch statistics over all workers make the whole batch one piece of work, which {ranks} \
         processes cannot share\n\
         hint: use \"local\" or ghost groups, run without mpirun, or spread whole trials with \
         `--distribute trials`"
    )
}

impl<'pool, 'env, F: Scalar> Session<'pool, 'env, F> {
    /// Starts at the initial weights of the config's seed.
    ///
    /// # Errors
    /// If the config does not go with the data.
    pub fn new(
        config: &'env TrialConfig,
        data: &'env Data,
        objective: &'env dyn Objective<F>,
        pool: &'pool Pool<'env>,
    ) -> Result<Self, TrainError> {
        let setup = Setup::new(config, data)?;
        let optimizer = Optimizer::new(&config.optimizer, objective.layout())?;
        check_groups(config, &setup, objective.has_batch_statistics())?;
        check_probes(config, &setup, objective)?;
        let mut parameters = objective.initial(config.seed);
        if objective.needs_data_initialization() {
            let ids = setup.order.batch(Position::default(), setup.global_batch);
            let batch = Batch::gather(data, &data.train, &ids, &[ids.len()]);
            objective.initialize_from(&mut parameters, batch)?;
        }
        let averaging = Average::new(&config.train.averaging)?;
        let start = averaging.as_ref().map(|a| a.initial(&parameters));
        let averaged = start.as_ref().map_or(0, |(_, count)| *count);
        let average = averaging.zip(start.map(|(values, _)| values));
        let cosine = config.probes.noise_of_updates().is_some_and(|n| n.cosine);
        let previous = cosine.then(|| vec![F::ZERO; parameters.len()]);
        let adascale = matches!(config.learning_rate.scaling, Scaling::Adascale {});
        let counters = Counters {
            step: 0,
            position: Position::default(),
            control: setup.control.initial_state(),
            gains: adascale.then(|| Gains::new(config, setup.global_batch)),
            last_lr: None,
            last_batch: setup.global_batch,
            averaged,
            running: Vec::new(),
        };
        let mut session = Self {
            config,
            data,
            objective,
            curvature: None,
            pool,
            state: optimizer.initial_state(),
            trees: Vec::new(),
            late: Late::new(config, objective.layout(), &parameters)?,
            ranks: None,
            pending: VecDeque::new(),
            stop: false,
            any_stop: false,
            setup,
            optimizer,
            parameters,
            average,
            previous,
            counters,
            changes: Vec::new(),
            noises: Vec::new(),
        };
        session.start_statistics()?;
        Ok(session)
    }

    /// With the same objective in f64, which batch controllers that follow the curvature need.
    pub fn with_curvature(mut self, objective: &'env dyn Objective<f64>) -> Self {
        self.curvature = Some(objective);
        self
    }

    /// With the work of each update spread over ranks, each of which has a session of the same config.
    ///
    /// # Errors
    /// If the config asks for batch statistics over all workers, which is one piece of work.
    pub fn with_ranks(mut self, ranks: &'env dyn Ranks) -> Result<Self, TrainError> {
        let global = self.config.train.statistics_group == StatisticsGroup::Global;
        if ranks.size() > 1 && global && self.objective.has_batch_statistics() {
            return Err(TrainError::Statistics {
                key: "train.statistics_group",
                message: one_piece_of_work(ranks.size()),
            });
        }
        self.ranks = Some(ranks);
        Ok(self)
    }

    /// The ranks, where there are several.
    pub(super) fn several_ranks(&self) -> Option<&'env dyn Ranks> {
        self.ranks.filter(|ranks| ranks.size() > 1)
    }

    /// Tells the session whether this process was asked to stop; the others hear of it with the next
    /// update. Returns whether any had been before the last one.
    pub(super) fn asked_to_stop(&mut self, stop: bool) -> bool {
        self.stop = stop;
        if self.several_ranks().is_some() {
            self.any_stop
        } else {
            stop
        }
    }

    /// What was derived from config and data.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Updates made.
    pub fn step_count(&self) -> u64 {
        self.counters.step
    }

    /// Examples processed.
    pub fn examples(&self) -> u64 {
        self.counters.position.examples
    }

    /// Epochs passed.
    pub fn epochs(&self) -> f64 {
        self.setup.epochs(&self.reached())
    }

    /// Global batch of the last update, or of the next where a measurement has changed it.
    pub fn global_batch(&self) -> usize {
        self.counters.control.global_batch
    }

    /// Whether the budget is used up: it has no room for the next update, at the batch which that
    /// has.
    pub fn is_over(&self) -> bool {
        self.late.is_over() || self.budget_is_used_up()
    }

    /// Whether the budget has no room for the next update.
    pub(super) fn budget_is_used_up(&self) -> bool {
        let (mut state, mut reached) = (self.counters.control.clone(), self.reached());
        !self.setup.begin(&mut state, &mut reached)
    }

    pub(super) fn reached(&self) -> Reached {
        Reached {
            step: self.counters.step,
            position: self.counters.position,
            batch: self.counters.control.global_batch,
            gains: self.counters.gains.as_ref().map_or(0.0, |gains| gains.sum),
        }
    }

    /// The parameters.
    pub fn parameters(&self) -> &[F] {
        &self.parameters
    }

    /// The parameters that evaluations use: their average, where the config asks for one.
    pub fn evaluated_parameters(&self) -> &[F] {
        match &self.average {
            Some((_, average)) => average,
            None => &self.parameters,
        }
    }

    /// The vectors of a session besides the parameters, with their names: the optimizer's state,
    /// the average of the parameters, the gradient of the update before, and earlier parameters that
    /// late gradients are taken at, where there are any.
    pub fn vectors(&self) -> impl Iterator<Item = (Cow<'static, str>, &[F])> {
        let average = self.average.iter().map(|(_, a)| (AVERAGE, a.as_slice()));
        let previous = self.previous.iter().map(|p| (PREVIOUS, p.as_slice()));
        self.optimizer
            .slots()
            .iter()
            .copied()
            .zip(self.state.iter().map(Vec::as_slice))
            .chain(average)
            .chain(previous)
            .map(|(name, values)| (name.into(), values))
            .chain(self.late.vectors())
    }

    /// The names of these vectors.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.vectors().map(|(name, _)| name.into_owned());
        names.collect()
    }

    /// Whether all replicas of an asynchronous run are dead, or wait for one that is.
    pub(super) fn nobody_is_left(&self) -> bool {
        self.late.is_over()
    }

    /// How late the gradients of an asynchronous run were so far.
    pub fn staleness(&self) -> Option<StalenessOutcome> {
        self.late.outcome()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Changes of the batch since the last call.
    pub fn take_changes(&mut self) -> Vec<BatchChange> {
        std::mem::take(&mut self.changes)
    }

    /// What the updates since the last call say about the noise of their gradients.
    pub fn take_noises(&mut self) -> Vec<UpdateNoise> {
        std::mem::take(&mut self.noises)
    }

    /// Puts the session where another one was.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub(super) fn restore(
        &mut self,
        counters: Counters,
        parameters: Vec<F>,
        mut vectors: Vec<Vec<F>>,
    ) {
        assert_eq!(
            parameters.len(),
            self.parameters.len(),
            "parameters of another model"
        );
        let own = vectors.len().saturating_sub(self.late.copies());
        self.late.restore(counters.step, vectors.split_off(own));
        if let Some(previous) = &mut self.previous {
            *previous = vectors.pop().expect("a gradient among the vectors");
        }
        if let Some((_, average)) = &mut self.average {
            *average = vectors.pop().expect("an average among the vectors");
        }
        assert_eq!(
            vectors.len(),
            self.state.len(),
            "state of another optimizer"
        );
        self.counters = counters;
        self.parameters = parameters;
        self.state = vectors;
    }

    /// Replaces the parameters, as by weights from elsewhere.
    ///
    /// # Panics
    /// If the length does not fit.
    pub fn set_parameters(&mut self, parameters: Vec<F>) {
        assert_eq!(
            parameters.len(),
            self.parameters.len(),
            "parameters of another model"
        );
        if let Some((_, average)) = &mut self.average {
            average.clone_from(&parameters);
        }
        self.late.start_at(&parameters);
        self.pending.clear();
        self.parameters = parameters;
    }

    fn leaves(&self, examples: usize, wanted: Wanted) -> Vec<Leaf> {
        let batch = self.counters.control.global_batch;
        leaves_of(self.config, self.objective, examples, batch, wanted)
    }

    /// Makes the next update and reports the loss before it. A loss that is not finite is
    /// reported and not applied.
    ///
    /// # Errors
    /// If the model fails.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        self.follow_plan();
        let batch = self.counters.control.global_batch;
        let ids = self.setup.order.batch(self.counters.position, batch);
        let watched = self.config.probes.noise_of_updates().is_some();
        let overlaps = self.late.fixed_delay().filter(|_| !watched);
        let overlap = self.several_ranks().zip(overlaps);
        self.update_on(ids, overlap)
    }

    /// As [`Session::step`], on these training examples instead of those of the order.
    ///
    /// # Errors
    /// If the model fails.
    pub fn step_on(&mut self, ids: Vec<u64>) -> Result<StepReport, TrainError> {
        self.follow_plan();
        self.pending.clear();
        self.update_on(ids, None)
    }

    /// What is taken from the pieces of an update where nothing is measured.
    fn plainly_wanted(&self) -> Wanted {
        let follows = matches!(
            self.config.train.batch_statistics,
            BatchStatistics::Ema { .. }
        );
        Wanted {
            moments: follows && self.objective.has_batch_statistics(),
            ..Wanted::default()
        }
    }

    /// The task of an update on these examples where nothing is measured.
    pub(super) fn plain_task(&self, ids: Vec<u64>) -> Task<F> {
        let wanted = self.plainly_wanted();
        Task {
            leaves: Arc::new(self.leaves(ids.len(), wanted)),
            ids: Arc::new(ids),
            wanted,
            measures: Measures::default(),
        }
    }

    fn update_on(
        &mut self,
        ids: Vec<u64>,
        overlap: Option<(&'env dyn Ranks, u64)>,
    ) -> Result<StepReport, TrainError> {
        let reached = self.reached();
        let moment = self.setup.moment(&reached);
        let need = self.setup.control.need(&self.counters.control, moment);
        let measured = matches!(need, Need::Norms | Need::InnerProducts | Need::HessianNoise);
        let cut = measured || self.counters.gains.is_some();
        let watched = self.watches(reached.step);
        let measures = if watched {
            self.measures(reached.step)
        } else {
            Measures::default()
        };
        let wanted = Wanted {
            cut,
            norms: cut || watched,
            gradients: matches!(need, Need::InnerProducts | Need::HessianNoise),
            ..self.plainly_wanted()
        };
        let total = ids.len();
        let leaves = Arc::new(self.leaves(total, wanted));
        let late = self.late.lateness(reached.step);
        let reduced = match overlap {
            Some((ranks, delay)) => self.reduce_while_computing(delay, ranks)?,
            None => self.reduce(Task {
                ids: Arc::new(ids),
                leaves: Arc::clone(&leaves),
                wanted,
                measures: measures.clone(),
            })?,
        };
        let Reduced {
            pieces,
            root,
            tree,
            stop,
        } = reduced;
        self.any_stop |= stop;
        let loss: f64 = pieces
            .iter()
            .zip(leaves.iter())
            .map(|(piece, leaf)| piece.loss * (leaf.range.len() as f64 / total as f64))
            .sum();
        let applies = loss.is_finite() && loss <= self.config.train.divergence_loss;
        let mut noise = None;
        if applies && cut {
            noise = self.noise(&leaves, &pieces, &root, need)?;
        }
        let gain = match (&mut self.counters.gains, &noise) {
            (Some(gains), Some(noise)) => gains.next(self.config, noise),
            _ => 1.0,
        };
        let state = &self.counters.control;
        let (rate, momentum) = self.setup.rates(self.config, &reached, state);
        let (lr, momentum) = late::rates(&self.config.train.update, late, rate * gain, momentum);
        let mut update_noise = None;
        if applies && watched {
            update_noise = self.noise_of(&leaves, &pieces, &root, &measures)?;
        }
        let mut control = Measured::Nothing;
        if applies {
            if let (Some(noise), true) = (noise, measured) {
                control = self.measured(need, noise, &leaves, &pieces, loss)?;
            }
            let rates = Rates {
                step: reached.step + 1,
                lr,
                previous_lr: self.counters.last_lr.unwrap_or(lr),
                momentum,
            };
            self.late.before_update(&self.parameters);
            self.apply(&rates, &root);
            self.counters.last_lr = Some(lr);
        }
        self.late.after_update();
        tree.give_back(root.left);
        if let Some(right) = root.right {
            tree.give_back(right);
        }
        self.trees.push(tree);
        let epoch_before = moment.epoch;
        let position = self.counters.position;
        let batch = reached.batch;
        self.counters.position = self.setup.order.after(position, batch);
        self.counters.step += 1;
        self.counters.last_batch = batch;
        if let Some(gains) = &mut self.counters.gains {
            gains.sum += gain;
        }
        if let Some(noise) = update_noise
            && noise.g2_small.is_finite()
            && noise.g2_big.is_finite()
        {
            self.noises.push(UpdateNoise {
                step: self.counters.step,
                epoch: self.epochs(),
                examples: self.examples(),
                lr,
                ..noise
            });
        }
        if applies {
            let epoch_after = self.epochs();
            if let Some((average, values)) = &mut self.average {
                let count = &mut self.counters.averaged;
                average.update(values, count, &self.parameters, epoch_before, epoch_after);
            }
            if wanted.moments {
                self.follow_statistics(&pieces);
            }
            if measured {
                self.decide(&control, lr);
            }
            self.follow_curvature(lr)?;
        }
        Ok(StepReport {
            loss,
            lr,
            momentum,
            examples: total,
            workers: workers_of(self.config, batch),
            staleness: late.staleness,
            replica: late.replica,
        })
    }

    /// Applies the optimizer. Parts are disjoint and each element's arithmetic is its own, so the
    /// bits do not depend on the number of parts.
    fn apply(&mut self, rates: &Rates, root: &Root<F>) {
        let gradient = |range: std::ops::Range<usize>| match &root.right {
            Some(right) => Gradient::Sum(&root.left[range.clone()], &right[range]),
            None => Gradient::One(&root.left[range]),
        };
        let length = self.parameters.len();
        let threads = self.pool.threads();
        let clip = self.config.train.clip_norm;
        let all = gradient(0..length);
        let prepared = self
            .optimizer
            .prepare(rates, clip, &self.parameters, all, &self.state);
        if threads == 1 || length < PARAMETERS_WORTH_SPLITTING {
            let (parameters, state) = (&mut self.parameters, &mut self.state);
            self.optimizer
                .update(rates, &prepared, 0, parameters, all, state);
            return;
        }
        let share = length.div_ceil(threads);
        let (optimizer, prepared) = (&self.optimizer, &prepared);
        let mut slots: Vec<_> = self.state.iter_mut().map(|s| s.chunks_mut(share)).collect();
        thread::scope(|scope| {
            for (i, part) in self.parameters.chunks_mut(share).enumerate() {
                let offset = i * share;
                let gradient = gradient(offset..offset + part.len());
                let mut state: Vec<&mut [F]> =
                    slots.iter_mut().filter_map(Iterator::next).collect();
                let mut update =
                    move || optimizer.update(rates, prepared, offset, part, gradient, &mut state);
                if i + 1 == threads {
                    update();
                } else {
                    scope.spawn(update);
                }
            }
        });
    }

    /// Inference statistics of the evaluated parameters: the running averages where the config asks
    /// for them, else an exact pass over the training set, in a fixed mixed order, in groups about
    /// as large as those of training (a worker's shard, a ghost group or the global batch) of b
    /// examples, and never smaller: n examples make max(1, floor(n/b)) groups, the first ones
    /// larger by one where n does not divide.
    ///
    /// # Errors
    /// If the model fails.
    pub fn statistics(&self) -> Result<Vec<LayerStatistics>, TrainError> {
        self.statistics_at(self.evaluated_parameters())
    }

    /// As [`Session::statistics`], of these parameters.
    pub(super) fn statistics_at(
        &self,
        parameters: &[F],
    ) -> Result<Vec<LayerStatistics>, TrainError> {
        if !self.objective.has_batch_statistics() {
            return Ok(Vec::new());
        }
        if !self.counters.running.is_empty() {
            return Ok(self.counters.running.clone());
        }
        Ok(population_statistics_at(
            self.objective,
            self.data,
            (self.pool, self.ranks),
            parameters,
            self.statistics_group(),
            self.config.data.split_seed,
        )?)
    }

    /// Examples of a group of batch statistics in training.
    pub(super) fn statistics_group(&self) -> usize {
        statistics_group(self.config, self.counters.last_batch)
    }

    /// What workers on different machines would exchange for the batch statistics of one update, for
    /// `statistics_group = "global"`.
    pub fn statistics_exchange(&self, layers: &[LayerStatistics]) -> Option<StatisticsExchange> {
        let global = self.config.train.statistics_group == StatisticsGroup::Global;
        (global && !layers.is_empty()).then(|| StatisticsExchange {
            all_reduces_per_update: 2 * layers.len(),
            values_per_update: 4 * layers.iter().map(|layer| layer.mean.len()).sum::<usize>(),
        })
    }

    /// Loss and accuracy of a split at the present parameters; `None` if the data has no such
    /// split.
    ///
    /// # Errors
    /// If the model fails.
    pub fn evaluate(
        &self,
        split: Split,
        statistics: &[LayerStatistics],
    ) -> Result<Option<Evaluation>, TrainError> {
        let point: Arc<dyn Point<F> + 'env> =
            Arc::from(self.objective.at(self.evaluated_parameters())?);
        if let Some(fresh) = &self.data.fresh {
            let expected = (split == Split::Train)
                .then(|| point.expected_loss())
                .flatten();
            return Ok(expected.map(|loss| Evaluation {
                loss,
                accuracy: None,
                n: fresh.epoch_examples,
            }));
        }
        let data = self.data;
        let examples = match split {
            Split::Train => Some(&data.train),
            Split::Validation => data.validation.as_ref(),
            Split::Test => data.test.as_ref(),
        };
        let Some(examples) = examples.filter(|e| !e.is_empty()) else {
            return Ok(None);
        };
        let ids = self.evaluated(split, examples.len());
        let n = ids.len();
        let scores = scores_at(
            point,
            self.data,
            (self.pool, self.ranks),
            examples,
            ids,
            statistics,
        )?;
        Ok(Some(Evaluation {
            loss: scores.loss,
            accuracy: scores.accuracy,
            n,
        }))
    }

    /// The examples of a split that are evaluated: all, or the configured number of training
    /// examples, the same ones throughout a study.
    fn evaluated(&self, split: Split, available: usize) -> Vec<u64> {
        let limit = self
            .config
            .train
            .evaluate
            .train_examples
            .unwrap_or(available);
        if split != Split::Train || limit >= available {
            return (0..available as u64).collect();
        }
        let seed = self.config.data.split_seed;
        let order = rng::permutation(available, seed, "train-evaluation", 0);
        order[..limit].iter().map(|&i| u64::from(i)).collect()
    }
}
