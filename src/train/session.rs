//! The state of training and its single step.

use std::sync::Arc;
use std::thread;

use super::TrainError;
use super::outcome::Evaluation;
use super::pool::Pool;
use crate::collective::{OrderedTree, Root};
use crate::config::{Split, TrialConfig};
use crate::data::order::{Order, pieces, shards};
use crate::data::{Data, Examples};
use crate::objective::{
    Batch, LayerStatistics, Objective, ObjectiveError, Point, Scalar, StatisticsMode,
    population_statistics,
};
use crate::optim::{Gradient, Optimizer};
use crate::rng;
use crate::schedule::LearningRate;

/// Examples in one piece of an evaluation. Fixed, so that sums round the same on any machine.
const EVALUATION_PIECE: usize = 256;

/// From this many parameters on, the update is split between threads. Starting them costs about
/// 50 us; a million parameters take about 1 ms.
const PARAMETERS_WORTH_SPLITTING: usize = 500_000;

/// What a trial derives from its config and data before the first update.
#[derive(Debug)]
pub struct Setup {
    /// The order of examples.
    pub order: Order,
    /// The learning-rate schedule.
    pub rate: LearningRate,
    /// Updates that the budget allows.
    pub total_steps: u64,
    /// Updates per epoch, not necessarily whole.
    pub steps_per_epoch: f64,
    /// Global batch.
    pub global_batch: usize,
}

impl Setup {
    /// Works out the budget and the schedules, and checks them against the data.
    ///
    /// # Errors
    /// If the batch is larger than the data, the budget has no update, or the warm-up is longer
    /// than the run.
    pub fn new(config: &TrialConfig, data: &Data) -> Result<Self, TrainError> {
        let global_batch = config.global_batch();
        let fresh = data.fresh.as_ref();
        let examples = fresh.map_or(data.train.len(), |f| f.epoch_examples);
        config.validate_against_data(examples)?;
        let order = if fresh.is_some() {
            Order::fresh(config.seed, examples, global_batch)
        } else {
            Order::new(config.seed, examples, global_batch, config.train.epoch_end)
        };
        let steps_per_epoch = order.steps_per_epoch();
        let train = &config.train;
        // The small constant keeps 3 epochs of n/B updates from rounding down to one less.
        let total_steps = match (train.epochs, train.steps, train.examples) {
            (Some(epochs), _, _) => (epochs * steps_per_epoch + 1e-9).floor() as u64,
            (_, Some(steps), _) => steps,
            (_, _, Some(budget)) => order.steps_within(budget),
            _ => 0,
        };
        let rate = LearningRate::new(
            &config.learning_rate,
            global_batch,
            total_steps,
            steps_per_epoch,
        )?;
        Ok(Self {
            order,
            rate,
            total_steps,
            steps_per_epoch,
            global_batch,
        })
    }
}

/// Checks that each worker's shard can be one group of batch statistics, where the model has any.
///
/// # Errors
/// If a shard of any update has one example, or a micro-batch would cut it.
pub fn check_groups(
    config: &TrialConfig,
    setup: &Setup,
    has_batch_statistics: bool,
) -> Result<(), TrainError> {
    let (global_batch, workers) = (setup.global_batch, config.train.workers);
    let local_batch = global_batch.div_ceil(workers);
    if !has_batch_statistics {
        return Ok(());
    }
    if let Some(micro_batch) = config.train.micro_batch
        && micro_batch < local_batch
    {
        return Err(TrainError::MicroBatch {
            local_batch,
            micro_batch,
        });
    }
    if setup.order.smallest_batch(setup.total_steps) < 2 * workers {
        return Err(ObjectiveError::GroupOfOne.into());
    }
    Ok(())
}

/// What one update did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Mean loss of the batch, before the update.
    pub loss: f64,
    /// Learning rate of the update.
    pub lr: f64,
    /// Examples of the batch.
    pub examples: usize,
}

/// A part of the batch that one forward and backward pass takes: its position in the batch, and
/// the sizes of its groups.
#[derive(Debug, Clone)]
struct Leaf {
    range: std::ops::Range<usize>,
    groups: Vec<usize>,
}

/// Training in progress: flat parameters and optimizer state, and how many updates were made.
pub struct Session<'pool, 'env, F: Scalar> {
    config: &'env TrialConfig,
    data: &'env Data,
    objective: &'env dyn Objective<F>,
    pool: &'pool Pool<'env>,
    setup: Setup,
    optimizer: Optimizer,
    parameters: Vec<F>,
    state: Vec<Vec<F>>,
    tree: Arc<OrderedTree<F>>,
    micro_batch: usize,
    step: u64,
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
        let parameters = objective.initial(config.seed);
        let state = optimizer.initial_state();
        let shard = setup.global_batch.div_ceil(config.train.workers);
        let micro_batch = config
            .train
            .micro_batch
            .unwrap_or_else(|| objective.default_micro_batch(shard));
        check_groups(config, &setup, objective.has_batch_statistics())?;
        let tree = Arc::new(OrderedTree::new(parameters.len()));
        Ok(Self {
            config,
            data,
            objective,
            pool,
            setup,
            optimizer,
            parameters,
            state,
            tree,
            micro_batch,
            step: 0,
        })
    }

    /// What was derived from config and data.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Updates made.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// The parameters.
    pub fn parameters(&self) -> &[F] {
        &self.parameters
    }

    /// The optimizer's state vectors, with their names.
    pub fn state(&self) -> impl Iterator<Item = (&'static str, &[F])> {
        self.optimizer
            .slots()
            .iter()
            .copied()
            .zip(self.state.iter().map(Vec::as_slice))
    }

    /// Names of the optimizer's state vectors.
    pub fn slots(&self) -> &'static [&'static str] {
        self.optimizer.slots()
    }

    /// Puts the session where another one was.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn restore(&mut self, step: u64, parameters: Vec<F>, state: Vec<Vec<F>>) {
        assert_eq!(
            parameters.len(),
            self.parameters.len(),
            "parameters of another model"
        );
        assert_eq!(state.len(), self.state.len(), "state of another optimizer");
        self.step = step;
        self.parameters = parameters;
        self.state = state;
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
        self.parameters = parameters;
    }

    /// The pieces of a batch: shards, cut where they are larger than the micro-batch. Each shard
    /// is one group of batch statistics, so a batch-normalized model keeps it whole.
    fn leaves(&self, examples: usize) -> Vec<Leaf> {
        let whole = |range: std::ops::Range<usize>| Leaf {
            groups: vec![range.len()],
            range,
        };
        let shards = shards(examples, self.config.train.workers);
        if self.objective.has_batch_statistics() {
            return shards.into_iter().map(whole).collect();
        }
        shards
            .iter()
            .flat_map(|shard| pieces(shard, self.micro_batch))
            .map(whole)
            .collect()
    }

    /// Makes the next update and reports the loss before it. A loss that is not finite is
    /// reported and not applied.
    ///
    /// # Errors
    /// If the model fails.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let ids = self.setup.order.batch(self.step);
        self.step_on(ids)
    }

    /// As [`Session::step`], on these training examples instead of those of the order.
    ///
    /// # Errors
    /// If the model fails.
    pub fn step_on(&mut self, ids: Vec<u64>) -> Result<StepReport, TrainError> {
        let lr = self.setup.rate.at(self.step);
        let total = ids.len();
        let leaves = Arc::new(self.leaves(total));
        let (losses, root) = self.reduce(&Arc::new(ids), &leaves)?;
        let loss: f64 = losses
            .iter()
            .zip(leaves.iter())
            .map(|(loss, leaf)| loss * (leaf.range.len() as f64 / total as f64))
            .sum();
        if loss.is_finite() && loss <= self.config.train.divergence_loss {
            self.apply(self.step + 1, lr, &root);
        }
        self.tree.give_back(root.left);
        if let Some(right) = root.right {
            self.tree.give_back(right);
        }
        self.step += 1;
        Ok(StepReport {
            loss,
            lr,
            examples: total,
        })
    }

    /// Losses of the leaves and the root of their gradients' tree.
    fn reduce(
        &mut self,
        ids: &Arc<Vec<u64>>,
        leaves: &Arc<Vec<Leaf>>,
    ) -> Result<(Vec<f64>, Root<F>), TrainError> {
        let total = ids.len() as f64;
        if let Some(tree) = Arc::get_mut(&mut self.tree) {
            tree.start(leaves.len());
        } else {
            // A piece of a failed step still holds the tree.
            self.tree = Arc::new(OrderedTree::new(self.parameters.len()));
            if let Some(tree) = Arc::get_mut(&mut self.tree) {
                tree.start(leaves.len());
            }
        }
        let point: Arc<dyn Point<F> + 'env> = Arc::from(self.objective.at(&self.parameters)?);
        let data = self.data;
        let work = {
            let (tree, ids, leaves) = (Arc::clone(&self.tree), Arc::clone(ids), Arc::clone(leaves));
            move |index: usize| -> Result<(f64, Option<Root<F>>), ObjectiveError> {
                let leaf = &leaves[index];
                let weight = F::from_f64(leaf.range.len() as f64 / total);
                let batch = gather(data, &data.train, &ids[leaf.range.clone()], &leaf.groups);
                let mut gradient = tree.take_buffer();
                let loss = point.gradient(batch, StatisticsMode::Batch, weight, &mut gradient)?;
                Ok((loss, tree.deposit(index, gradient)))
            }
        };
        let mut losses = Vec::with_capacity(leaves.len());
        let mut root = None;
        for result in self.pool.map(leaves.len(), work) {
            let (loss, completed) = result?;
            losses.push(loss);
            root = root.or(completed);
        }
        root.map(|root| (losses, root)).ok_or_else(|| {
            ObjectiveError::Panicked {
                message: "a piece of the batch was lost".to_owned(),
            }
            .into()
        })
    }

    /// Applies the optimizer. Parts are disjoint and each element's arithmetic is its own, so the
    /// bits do not depend on the number of parts.
    fn apply(&mut self, step: u64, lr: f64, root: &Root<F>) {
        let gradient = |range: std::ops::Range<usize>| match &root.right {
            Some(right) => Gradient::Sum(&root.left[range.clone()], &right[range]),
            None => Gradient::One(&root.left[range]),
        };
        let length = self.parameters.len();
        let threads = self.pool.threads();
        if threads == 1 || length < PARAMETERS_WORTH_SPLITTING {
            let all = gradient(0..length);
            self.optimizer
                .update(step, lr, 0, &mut self.parameters, all, &mut self.state);
            return;
        }
        let share = length.div_ceil(threads);
        let optimizer = &self.optimizer;
        let mut slots: Vec<_> = self.state.iter_mut().map(|s| s.chunks_mut(share)).collect();
        thread::scope(|scope| {
            for (i, part) in self.parameters.chunks_mut(share).enumerate() {
                let offset = i * share;
                let gradient = gradient(offset..offset + part.len());
                let mut state: Vec<&mut [F]> =
                    slots.iter_mut().filter_map(Iterator::next).collect();
                let mut update =
                    move || optimizer.update(step, lr, offset, part, gradient, &mut state);
                if i + 1 == threads {
                    update();
                } else {
                    scope.spawn(update);
                }
            }
        });
    }

    /// Inference statistics of the present parameters: an exact pass over the training set, in a
    /// fixed mixed order, in groups about as large as a worker's shard of b and never smaller: n
    /// examples make max(1, floor(n/b)) groups, the first ones larger by one where n does not
    /// divide.
    ///
    /// # Errors
    /// If the model fails.
    pub fn statistics(&self) -> Result<Vec<LayerStatistics>, TrainError> {
        if !self.objective.has_batch_statistics() {
            return Ok(Vec::new());
        }
        let point: Arc<dyn Point<F> + 'env> = Arc::from(self.objective.at(&self.parameters)?);
        let data = self.data;
        let n = data.train.len();
        // In a mixed order: a file sorted by class would make groups unlike those of training.
        let seed = self.config.data.split_seed;
        let order = rng::permutation(n, seed, "population-statistics", 0);
        let group = self.setup.global_batch.div_ceil(self.config.train.workers);
        let groups = shards(n, (n / group).max(1));
        let per_piece = (EVALUATION_PIECE / group).max(1);
        let pieces: Vec<Vec<std::ops::Range<usize>>> =
            groups.chunks(per_piece).map(<[_]>::to_vec).collect();
        let count = pieces.len();
        let moments = self.pool.map(count, move |i| {
            let ids: Vec<u64> = pieces[i]
                .iter()
                .flat_map(Clone::clone)
                .map(|e| u64::from(order[e]))
                .collect();
            let sizes: Vec<usize> = pieces[i].iter().map(std::ops::Range::len).collect();
            point.moments(gather(data, &data.train, &ids, &sizes))
        });
        let mut all = Vec::new();
        for piece in moments {
            all.extend(piece?);
        }
        Ok(population_statistics(&all))
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
        let point: Arc<dyn Point<F> + 'env> = Arc::from(self.objective.at(&self.parameters)?);
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
        let statistics = statistics.to_vec();
        let pieces = n.div_ceil(EVALUATION_PIECE);
        let results = self.pool.map(pieces, move |i| {
            let part = &ids[i * EVALUATION_PIECE..((i + 1) * EVALUATION_PIECE).min(n)];
            let batch = gather(data, examples, part, &[part.len()]);
            let labels = batch.labels.clone();
            let mode = StatisticsMode::Inference(&statistics);
            let predictions = point.predict(batch, mode)?;
            let correct = predictions
                .classes
                .iter()
                .zip(&labels)
                .filter(|(class, label)| class == label);
            Ok((predictions.losses.iter().sum::<f64>(), correct.count()))
        });
        let (mut loss, mut correct) = (0.0, 0);
        for result in results {
            let (piece_loss, piece_correct): (f64, usize) =
                result.map_err(|e: ObjectiveError| e)?;
            loss += piece_loss;
            correct += piece_correct;
        }
        let accuracy = (data.classes > 0).then(|| correct as f64 / n as f64);
        Ok(Some(Evaluation {
            loss: loss / n as f64,
            accuracy,
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

/// Copies examples into a batch.
fn gather<F: Scalar>(data: &Data, from: &Examples, ids: &[u64], groups: &[usize]) -> Batch<F> {
    let (mut features, mut labels) = (Vec::new(), Vec::new());
    if data.fresh.is_none() {
        let width: usize = data.shape.iter().product();
        features.reserve_exact(ids.len() * width);
        for &id in ids {
            let row = id as usize * width;
            let values = &from.features[row..row + width];
            features.extend(values.iter().map(|&v| F::from_f32(v)));
        }
        labels.extend(ids.iter().map(|&id| from.labels[id as usize]));
    }
    Batch {
        features,
        labels,
        ids: ids.to_vec(),
        groups: groups.to_vec(),
    }
}
