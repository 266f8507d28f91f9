//! Which examples each update sees: a pure function of (seed, epoch) and of the position in the
//! stream of shuffled epochs.
//!
//! The number of workers does not enter: a batch is a list of examples, and a worker's shard is a
//! contiguous part of it. So changing the workers at a fixed global batch leaves the examples of
//! every update the same, and a batch that changes inside a run reads on where the last one ended.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::config::EpochEnd;
use crate::rng::{self, Stream};

/// The order of examples over a run.
#[derive(Debug)]
pub struct Order {
    seed: u64,
    examples: usize,
    epoch_end: EpochEnd,
    fresh: bool,
    recent: Mutex<Vec<(u64, Arc<Vec<u32>>)>>,
}

/// A position in the stream of shuffled epochs, and how many examples have been processed to get
/// there: fewer where the end of an epoch was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Positions passed, N of them an epoch of N examples.
    pub stream: u64,
    /// Examples processed.
    pub examples: u64,
}

impl Order {
    /// The order over `examples` stored examples, shuffled anew each epoch with the stream
    /// (`seed`, `"order"`, epoch).
    pub fn new(seed: u64, examples: usize, epoch_end: EpochEnd) -> Self {
        Self {
            seed,
            examples,
            epoch_end,
            fresh: false,
            recent: Mutex::default(),
        }
    }

    /// The order over examples that never repeat: example k of the stream is the k-th seen, its id
    /// a first one plus k. The first id is drawn from all 2^64 with the seed, so that two trials
    /// see different examples.
    pub fn fresh(seed: u64, examples_per_epoch: usize) -> Self {
        Self {
            fresh: true,
            ..Self::new(seed, examples_per_epoch, EpochEnd::Carry)
        }
    }

    /// Updates of `global_batch` examples per epoch: n/B for `carry` (a fraction), rounded down for
    /// `drop` and up for `partial`.
    pub fn steps_per_epoch(&self, global_batch: usize) -> f64 {
        let (n, b) = (self.examples, global_batch);
        match self.epoch_end {
            EpochEnd::Carry => n as f64 / b as f64,
            EpochEnd::Drop => (n / b) as f64,
            EpochEnd::Partial => n.div_ceil(b) as f64,
        }
    }

    /// The most updates of `global_batch` examples that process no more than `budget` examples.
    pub fn steps_within(&self, budget: u64, global_batch: usize) -> u64 {
        let (n, b) = (self.examples as u64, global_batch as u64);
        match self.epoch_end {
            EpochEnd::Carry | EpochEnd::Drop => budget / b,
            EpochEnd::Partial => (budget / n) * n.div_ceil(b) + (budget % n) / b,
        }
    }

    /// Examples of the smallest of the first `steps` batches of `global_batch`.
    pub fn smallest_batch(&self, steps: u64, global_batch: usize) -> usize {
        let (n, b) = (self.examples, global_batch);
        let reaches_the_rest = steps >= n.div_ceil(b) as u64;
        match self.epoch_end {
            EpochEnd::Partial if reaches_the_rest && !n.is_multiple_of(b) => n % b,
            _ => b,
        }
    }

    /// Epochs passed at `position`, where batches have `global_batch` examples: positions over n,
    /// or the share of the epoch's updates where the end of each epoch is dropped.
    pub fn epochs(&self, position: Position, global_batch: usize) -> f64 {
        let n = self.examples as u64;
        match self.epoch_end {
            EpochEnd::Carry | EpochEnd::Partial => position.stream as f64 / n as f64,
            EpochEnd::Drop => {
                let b = global_batch as u64;
                let (used, per_epoch) = (position.stream % n, (n / b).max(1));
                let share = used as f64 / (per_epoch * b) as f64;
                (position.stream / n) as f64 + share.min(1.0)
            }
        }
    }

    /// Epochs passed at `position`, whatever the batches: positions over n. Where the end of each epoch
    /// is dropped, the epoch ends before its last positions, and the count jumps to the next whole.
    pub fn epochs_of_stream(&self, position: Position) -> f64 {
        position.stream as f64 / self.examples as f64
    }

    /// Where the batch of at most `global_batch` examples at `position` lies in the stream.
    fn place(&self, position: Position, global_batch: usize) -> Range<u64> {
        let (n, b) = (self.examples as u64, global_batch as u64);
        let at = position.stream;
        let rest = n - at % n;
        match self.epoch_end {
            EpochEnd::Drop if rest < b && b <= n => at + rest..at + rest + b,
            EpochEnd::Partial if rest < b => at..at + rest,
            _ => at..at + b,
        }
    }

    /// The position after the batch at `position`. Where the epoch's end is dropped and no batch of
    /// this size is left in the epoch, that is the start of the next.
    pub fn after(&self, position: Position, global_batch: usize) -> Position {
        let (n, b) = (self.examples as u64, global_batch as u64);
        let place = self.place(position, global_batch);
        let rest = n - place.end % n;
        let skipped = if self.epoch_end == EpochEnd::Drop && rest < b {
            rest
        } else {
            0
        };
        Position {
            stream: place.end + skipped,
            examples: position.examples + (place.end - place.start),
        }
    }

    /// The examples of the batch of `global_batch` at `position`, in order.
    pub fn batch(&self, position: Position, global_batch: usize) -> Vec<u64> {
        self.stream(self.place(position, global_batch))
    }

    /// Positions of the endless stream of shuffled epochs, as example numbers.
    fn stream(&self, positions: Range<u64>) -> Vec<u64> {
        if self.fresh {
            let first = Stream::new(self.seed, "fresh-examples", 0).next_u64();
            return positions.map(|p| first.wrapping_add(p)).collect();
        }
        let n = self.examples as u64;
        let mut batch = Vec::with_capacity((positions.end - positions.start) as usize);
        let mut at = positions.start;
        while at < positions.end {
            let order = self.epoch(at / n);
            let stop = positions.end.min((at / n + 1) * n);
            let part = (at % n) as usize..(at % n + stop - at) as usize;
            batch.extend(order[part].iter().map(|&i| u64::from(i)));
            at = stop;
        }
        batch
    }

    fn epoch(&self, epoch: u64) -> Arc<Vec<u32>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = recent.iter().find(|(e, _)| *e == epoch) {
            return Arc::clone(order);
        }
        let order = Arc::new(rng::permutation(self.examples, self.seed, "order", epoch));
        recent.retain(|(e, _)| e + 1 == epoch);
        recent.push((epoch, Arc::clone(&order)));
        order
    }
}

/// Cuts a batch of `examples` into the shards of `workers`, contiguous and in order, the first
/// ones longer by one where it does not divide. Workers beyond the number of examples get none.
pub fn shards(examples: usize, workers: usize) -> Vec<Range<usize>> {
    let (share, longer) = (examples / workers, examples % workers);
    let mut start = 0;
    (0..workers)
        .map(|w| {
            let end = start + share + usize::from(w < longer);
            let shard = start..end;
            start = end;
            shard
        })
        .filter(|shard| !shard.is_empty())
        .collect()
}

/// Cuts a range into pieces of at most `size`, as equal as possible, in order.
pub fn pieces(range: &Range<usize>, size: usize) -> Vec<Range<usize>> {
    let count = range.len().div_ceil(size.max(1));
    shards(range.len(), count.max(1))
        .into_iter()
        .map(|piece| range.start + piece.start..range.start + piece.end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut examples: Vec<u64>) -> Vec<u64> {
        examples.sort_unstable();
        examples
    }

    /// The first `steps` batches of `global_batch`, and where each ended.
    fn walk(order: &Order, global_batch: usize, steps: usize) -> Vec<(Vec<u64>, Position)> {
        let mut position = Position::default();
        (0..steps)
            .map(|_| {
                let batch = order.batch(position, global_batch);
                position = order.after(position, global_batch);
                (batch, position)
            })
            .collect()
    }

    #[test]
    fn carried_batches_are_full_and_each_epoch_holds_each_example_once() {
        let order = Order::new(1, 10, EpochEnd::Carry);
        let steps = walk(&order, 4, 5);
        let stream: Vec<u64> = steps.iter().flat_map(|(batch, _)| batch.clone()).collect();
        assert_eq!(stream.len(), 20);
        assert_eq!(sorted(stream[..10].to_vec()), (0..10).collect::<Vec<_>>());
        assert_eq!(sorted(stream[10..].to_vec()), (0..10).collect::<Vec<_>>());
        assert_ne!(stream[..10], stream[10..]);
        assert_eq!(order.steps_per_epoch(4), 2.5);
        assert_eq!(order.epochs(steps[4].1, 4), 2.0);
    }

    #[test]
    fn dropped_epochs_have_only_full_batches() {
        let order = Order::new(1, 10, EpochEnd::Drop);
        assert_eq!(order.steps_per_epoch(4), 2.0);
        let steps = walk(&order, 4, 4);
        let carried = walk(&Order::new(1, 10, EpochEnd::Carry), 4, 2);
        assert_eq!(steps[0].0, carried[0].0);
        assert_eq!(steps[1].0, carried[1].0);
        assert_eq!(steps[3].1.examples, 16);
        let epochs: Vec<f64> = steps.iter().map(|(_, p)| order.epochs(*p, 4)).collect();
        assert_eq!(epochs, [0.5, 1.0, 1.5, 2.0]);
    }

    #[test]
    fn partial_epochs_end_with_the_rest() {
        let order = Order::new(1, 10, EpochEnd::Partial);
        let steps = walk(&order, 4, 6);
        let sizes: Vec<usize> = steps.iter().map(|(batch, _)| batch.len()).collect();
        assert_eq!(sizes, [4, 4, 2, 4, 4, 2]);
        assert_eq!(steps[3].1.examples, 14);
        let second: Vec<u64> = steps[3..].iter().flat_map(|(b, _)| b.clone()).collect();
        assert_eq!(sorted(second), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_batch_that_changes_reads_on_where_the_last_one_ended() {
        for epoch_end in [EpochEnd::Carry, EpochEnd::Partial] {
            let order = Order::new(3, 12, epoch_end);
            let small: Vec<u64> = walk(&order, 2, 12)
                .into_iter()
                .flat_map(|(b, _)| b)
                .collect();
            let mut position = Position::default();
            let mut changing = Vec::new();
            for global_batch in [2, 2, 4, 4, 6, 6] {
                changing.extend(order.batch(position, global_batch));
                position = order.after(position, global_batch);
            }
            assert_eq!(changing, small, "{epoch_end:?}");
            assert_eq!(position.examples, 24);
            assert_eq!(order.epochs(position, 6), 2.0);
        }
    }

    #[test]
    fn a_larger_batch_that_no_longer_fits_a_dropped_epoch_starts_the_next() {
        let order = Order::new(3, 10, EpochEnd::Drop);
        let mut position = Position::default();
        for _ in 0..2 {
            position = order.after(position, 3);
        }
        assert_eq!((position.stream, position.examples), (6, 6));
        let next = order.after(position, 5);
        assert_eq!((next.stream, next.examples), (15, 11));
        assert_eq!(
            order.batch(position, 5),
            walk(&order, 5, 3)[2].0,
            "the first batch of the second epoch"
        );
    }

    #[test]
    fn fresh_examples_never_repeat_and_differ_between_any_two_seeds() {
        let of = |seed| Order::fresh(seed, 10).stream(0..40);
        // Seeds that agree in their low bits, too.
        let mut all: Vec<u64> = [0, 1, 1 << 24, 1 << 63].into_iter().flat_map(of).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 160);
    }

    #[test]
    fn a_budget_of_examples_is_never_exceeded_nor_short_by_an_update() {
        for epoch_end in [EpochEnd::Carry, EpochEnd::Drop, EpochEnd::Partial] {
            let order = Order::new(1, 10, epoch_end);
            let ends: Vec<u64> = walk(&order, 4, 20)
                .iter()
                .map(|(_, p)| p.examples)
                .collect();
            let after = |steps: u64| {
                if steps == 0 {
                    0
                } else {
                    ends[steps as usize - 1]
                }
            };
            for budget in 0..60 {
                let steps = order.steps_within(budget, 4);
                assert!(after(steps) <= budget, "{epoch_end:?}");
                assert!(after(steps + 1) > budget, "{epoch_end:?}");
            }
        }
    }

    #[test]
    fn the_smallest_batch_is_the_rest_of_an_epoch_that_is_reached() {
        let smallest = |epoch_end, steps| Order::new(1, 10, epoch_end).smallest_batch(steps, 4);
        assert_eq!(smallest(EpochEnd::Carry, 9), 4);
        assert_eq!(smallest(EpochEnd::Drop, 9), 4);
        assert_eq!(smallest(EpochEnd::Partial, 2), 4);
        assert_eq!(smallest(EpochEnd::Partial, 3), 2);
        assert_eq!(Order::new(1, 8, EpochEnd::Partial).smallest_batch(9, 4), 4);
    }

    #[test]
    fn a_batch_does_not_depend_on_what_was_asked_before() {
        let order = Order::new(5, 100, EpochEnd::Carry);
        let late = Position {
            stream: 350,
            examples: 350,
        };
        let batch = order.batch(late, 7);
        let _ = order.batch(Position::default(), 7);
        assert_eq!(order.batch(late, 7), batch);
        assert_eq!(Order::new(5, 100, EpochEnd::Carry).batch(late, 7), batch);
    }

    #[test]
    fn shards_cover_the_batch_in_order() {
        assert_eq!(shards(10, 4), [0..3, 3..6, 6..8, 8..10]);
        assert_eq!(shards(2, 4), [0..1, 1..2]);
        assert_eq!(pieces(&(10..20), 4), [10..14, 14..17, 17..20]);
        assert_eq!(pieces(&(10..20), 10), vec![10..20; 1]);
    }
}
