//! The gradient of a batch: from its pieces, over threads and over ranks.

use std::sync::Arc;

use super::TrainError;
use super::measure::move_along_the_gradient;
use super::session::{Leaf, Session};
use super::watch::{Measures, Norms, squared_norm};
use crate::collective::wire::{Reader, Writer};
use crate::collective::{
    OrderedTree, Ranks, Root, all_gather_bytes, complete, complete_native, leaves_of_rank,
};
use crate::config::Reduction;
use crate::objective::{
    Batch, GroupMoments, ObjectiveError, Point, Scalar, StatisticsMode, read_moments, write_moments,
};

/// What to take from the pieces of a batch besides their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is wanted for itself, in any combination"
)]
pub(super) struct Wanted {
    /// Pieces of the whole batch, whatever the workers.
    pub(super) cut: bool,
    /// Their squared norms.
    pub(super) norms: bool,
    /// The gradients themselves.
    pub(super) gradients: bool,
    /// Their batch statistics.
    pub(super) moments: bool,
}

/// What one forward and backward pass over a piece gives.
pub(super) struct Piece<F> {
    pub(super) loss: f64,
    /// Of its mean gradient.
    pub(super) squared_norm: f64,
    /// Other norms of its gradient times its share of the batch.
    pub(super) norms: Norms,
    /// Its gradient, times its share of the batch.
    pub(super) gradient: Option<Vec<F>>,
    pub(super) moments: Vec<GroupMoments>,
}

/// The gradient of a batch, and its pieces.
pub(super) struct Reduced<F> {
    pub(super) pieces: Vec<Piece<F>>,
    pub(super) root: Root<F>,
    /// Where the vectors of the root are to go back to.
    pub(super) tree: Arc<OrderedTree<F>>,
    /// Whether a rank was told to stop before this update.
    pub(super) stop: bool,
}

/// A batch to take the gradient of.
#[derive(Clone)]
pub(super) struct Task<F> {
    pub(super) ids: Arc<Vec<u64>>,
    pub(super) leaves: Arc<Vec<Leaf>>,
    pub(super) wanted: Wanted,
    pub(super) measures: Measures<F>,
}

/// The pieces that this rank has computed, and the nodes of the tree that they made.
pub(super) struct Local<F> {
    task: Task<F>,
    tree: Arc<OrderedTree<F>>,
    pieces: Vec<Result<Piece<F>, ObjectiveError>>,
    root: Option<Root<F>>,
}

impl<F: Scalar> Local<F> {
    /// The batch as a whole, together with the other ranks, which hear whether this one was told to
    /// stop.
    pub(super) fn complete(
        self,
        ranks: Option<&dyn Ranks>,
        reduction: Reduction,
        stop: bool,
    ) -> Result<Reduced<F>, TrainError> {
        let Self {
            task,
            tree,
            pieces,
            root,
        } = self;
        let lost = || ObjectiveError::Panicked {
            message: "a piece of the batch was lost".to_owned(),
        };
        let Some(ranks) = ranks.filter(|ranks| ranks.size() > 1) else {
            let pieces = pieces.into_iter().collect::<Result<_, _>>()?;
            return Ok(Reduced {
                pieces,
                root: root.ok_or_else(lost)?,
                tree,
                stop,
            });
        };
        let own = write(stop, &pieces);
        let (mut all, mut stop) = (Vec::with_capacity(task.leaves.len()), false);
        for message in all_gather_bytes(ranks, &own)? {
            let (stops, pieces) = read::<F>(&message).ok_or_else(lost)?;
            stop |= stops;
            all.extend(pieces);
        }
        // All ranks have the same pieces, so all of them end with the same error.
        let pieces = all
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(|message| TrainError::Piece { message })?;
        let root = match reduction {
            Reduction::Ordered => complete(&tree, ranks, root)?,
            Reduction::Native => complete_native(&tree, ranks, root)?,
        };
        Ok(Reduced {
            pieces,
            root,
            tree,
            stop,
        })
    }
}

/// Pieces as a message.
fn write<F: Scalar>(stop: bool, pieces: &[Result<Piece<F>, ObjectiveError>]) -> Vec<u8> {
    let mut message = Writer::new();
    message.flag(stop);
    message.count(pieces.len());
    for piece in pieces {
        message.flag(piece.is_ok());
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                message.bytes(error.to_string().as_bytes());
                continue;
            }
        };
        message.number(piece.loss);
        message.number(piece.squared_norm);
        message.numbers(&piece.norms.layers);
        message.flag(piece.norms.metric.is_some());
        message.number(piece.norms.metric.unwrap_or_default());
        message.flag(piece.gradient.is_some());
        message.bytes(&F::le_bytes(piece.gradient.as_deref().unwrap_or_default()));
        write_moments(&piece.moments, &mut message);
    }
    message.finish()
}

type Pieces<F> = Vec<Result<Piece<F>, String>>;

fn read<F: Scalar>(message: &[u8]) -> Option<(bool, Pieces<F>)> {
    let mut message = Reader::new(message);
    let stop = message.flag()?;
    let mut pieces = Vec::new();
    for _ in 0..message.count()? {
        if !message.flag()? {
            pieces.push(Err(message.text()?));
            continue;
        }
        let (loss, squared_norm) = (message.number()?, message.number()?);
        let layers = message.numbers()?;
        let has_metric = message.flag()?;
        let metric = message.number()?;
        let has_gradient = message.flag()?;
        let gradient = message.bytes()?;
        let gradient = gradient.chunks_exact(F::BYTES).map(F::from_le_slice);
        let gradient = has_gradient.then(|| gradient.collect());
        let moments = read_moments(&mut message)?;
        pieces.push(Ok(Piece {
            loss,
            squared_norm,
            norms: Norms {
                layers,
                metric: has_metric.then_some(metric),
            },
            gradient,
            moments,
        }));
    }
    Some((stop, pieces))
}

impl<'env, F: Scalar> Session<'_, 'env, F> {
    /// A tree for this many leaves.
    fn tree(&mut self, leaves: usize) -> Arc<OrderedTree<F>> {
        // A piece of a failed step may still hold one.
        let spare = self.trees.pop().and_then(Arc::into_inner);
        let mut tree = spare.unwrap_or_else(|| OrderedTree::new(self.parameters.len()));
        tree.start(leaves);
        Arc::new(tree)
    }

    /// The pieces of this rank: all of them, or its share.
    fn local(
        &self,
        task: Task<F>,
        tree: Arc<OrderedTree<F>>,
        point: Arc<dyn Point<F> + 'env>,
    ) -> Local<F> {
        let count = task.leaves.len();
        let own = match self.several_ranks() {
            Some(ranks) => leaves_of_rank(count, ranks.size(), ranks.rank()),
            None => 0..count,
        };
        let data = self.data;
        let (adversarial, epsilon) = self.adversarial(task.ids.len());
        let total = task.ids.len() as f64;
        let first = own.start;
        let work = {
            let (task, tree) = (task.clone(), Arc::clone(&tree));
            move |index: usize| -> Result<(Piece<F>, Option<Root<F>>), ObjectiveError> {
                let index = first + index;
                let leaf = &task.leaves[index];
                let weight = leaf.range.len() as f64 / total;
                let ids = &task.ids[leaf.range.clone()];
                let mut batch = Batch::gather(data, &data.train, ids, &leaf.groups);
                let moved = adversarial
                    .saturating_sub(leaf.range.start)
                    .min(leaf.range.len());
                if moved > 0 {
                    move_along_the_gradient(&*point, &mut batch, moved, epsilon)?;
                }
                let mut gradient = tree.take_buffer();
                let share = F::from_f64(weight);
                let mode = StatisticsMode::Batch;
                let (loss, moments) = if task.wanted.moments {
                    point.gradient_and_moments(batch, mode, share, &mut gradient)?
                } else {
                    (
                        point.gradient(batch, mode, share, &mut gradient)?,
                        Vec::new(),
                    )
                };
                let squared_norm = if task.wanted.norms {
                    squared_norm(&gradient, None) / (weight * weight)
                } else {
                    0.0
                };
                let kept = task.wanted.gradients.then(|| gradient.clone());
                let piece = Piece {
                    loss,
                    squared_norm,
                    norms: task.measures.of(&gradient, None),
                    gradient: kept,
                    moments,
                };
                Ok((piece, tree.deposit(index, gradient)))
            }
        };
        let (mut pieces, mut root) = (Vec::with_capacity(own.len()), None);
        for result in self.pool.map(own.len(), work) {
            pieces.push(result.map(|(piece, own)| {
                root = root.take().or(own);
                piece
            }));
        }
        Local {
            task,
            tree,
            pieces,
            root,
        }
    }

    /// The gradient of the next update.
    pub(super) fn reduce(&mut self, task: Task<F>) -> Result<Reduced<F>, TrainError> {
        let tree = self.tree(task.leaves.len());
        let at = self.late.point(self.counters.step, &self.parameters);
        let point: Arc<dyn Point<F> + 'env> = Arc::from(self.objective.at(at)?);
        let local = self.local(task, tree, point);
        local.complete(self.ranks, self.config.train.reduction, self.stop)
    }

    /// The same, where gradients are late by a fixed delay and spread over ranks: while this one is
    /// summed, the pieces of the one that is to come `delay` updates later are computed.
    pub(super) fn reduce_while_computing(
        &mut self,
        delay: u64,
        ranks: &dyn Ranks,
    ) -> Result<Reduced<F>, TrainError> {
        while (self.pending.len() as u64) < delay {
            let ahead = self.pending.len();
            let Some(local) = self.local_ahead(ahead)? else {
                break;
            };
            self.pending.push_back(local);
        }
        let Some(first) = self.pending.pop_front() else {
            return Err(TrainError::Objective(ObjectiveError::Panicked {
                message: "no batch is left".to_owned(),
            }));
        };
        let (reduction, stop) = (self.config.train.reduction, self.stop);
        let (sum, next) = std::thread::scope(|scope| {
            let sum = scope.spawn(|| first.complete(Some(ranks), reduction, stop));
            let next = self.local_ahead(delay as usize);
            let lost = || {
                TrainError::Objective(ObjectiveError::Panicked {
                    message: "the sum over ranks was lost".to_owned(),
                })
            };
            (sum.join().map_err(|_| lost()).flatten(), next)
        });
        let sum = sum?;
        if let Some(next) = next? {
            self.pending.push_back(next);
        }
        Ok(sum)
    }

    /// The pieces of this rank of the update `ahead` updates after the next one, if there is one.
    fn local_ahead(&mut self, ahead: usize) -> Result<Option<Local<F>>, TrainError> {
        let mut reached = self.reached();
        for _ in 0..ahead {
            reached.position = self.setup.order.after(reached.position, reached.batch);
            reached.step += 1;
        }
        if self.setup.is_over(&reached) {
            return Ok(None);
        }
        let Some(at) = self.late.ahead(&self.parameters, ahead) else {
            return Ok(None);
        };
        let point: Arc<dyn Point<F> + 'env> = Arc::from(self.objective.at(at)?);
        let ids = self.setup.order.batch(reached.position, reached.batch);
        let task = self.plain_task(ids);
        let tree = self.tree(task.leaves.len());
        Ok(Some(self.local(task, tree, point)))
    }
}
