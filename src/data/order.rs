//! Which examples each update sees: a pure function of (seed, epoch, global batch).
//!
//! The number of workers does not enter: a batch is a list of examples, and a worker's shard is a
//! contiguous part of it. So changing the workers at a fixed global batch leaves the examples of
//! every update the same.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::EpochEnd;
use crate::rng::{self, Stream};

/// The order of examples over a run.
#[derive(Debug)]
pub struct Order {
    seed: u64,
    examples: usize,
    global_batch: usize,
    epoch_end: EpochEnd,
    fresh: bool,
    recent: Mutex<Vec<(u64, Arc<Vec<u32>>)>>,
}

impl Order {
    /// The order over `examples` stored examples, shuffled anew each epoch with the stream
    /// (`seed`, `"order"`, epoch). `global_batch` must be from 1 to `examples`.
    pub fn new(seed: u64, examples: usize, global_batch: usize, epoch_end: EpochEnd) -> Self {
        Self {
            seed,
            examples,
            global_batch,
            epoch_end,
            fresh: false,
            recent: Mutex::default(),
        }
    }

    /// The order over examples that never repeat: example k of the stream is the k-th seen, its id
    /// a first one plus k. The first id is drawn from all 2^64 with the seed, so that two trials
    /// see different examples.
    pub fn fresh(seed: u64, examples_per_epoch: usize, global_batch: usize) -> Self {
        Self {
            fresh: true,
            ..Self::new(seed, examples_per_epoch, global_batch, EpochEnd::Carry)
        }
    }

    /// Updates per epoch: n/B for `carry` (a fraction), rounded down for `drop` and up for
    /// `partial`.
    pub fn steps_per_epoch(&self) -> f64 {
        let (n, b) = (self.examples, self.global_batch);
        match self.epoch_end {
            EpochEnd::Carry => n as f64 / b as f64,
            EpochEnd::Drop => (n / b) as f64,
            EpochEnd::Partial => n.div_ceil(b) as f64,
        }
    }

    /// Examples processed in the first `steps` updates.
    pub fn examples_after(&self, steps: u64) -> u64 {
        let (n, b) = (self.examples as u64, self.global_batch as u64);
        match self.epoch_end {
            EpochEnd::Carry | EpochEnd::Drop => steps * b,
            EpochEnd::Partial => {
                let per_epoch = n.div_ceil(b);
                (steps / per_epoch) * n + (steps % per_epoch) * b
            }
        }
    }

    /// The most updates that process no more than `budget` examples.
    pub fn steps_within(&self, budget: u64) -> u64 {
        let (n, b) = (self.examples as u64, self.global_batch as u64);
        match self.epoch_end {
            EpochEnd::Carry | EpochEnd::Drop => budget / b,
            EpochEnd::Partial => (budget / n) * n.div_ceil(b) + (budget % n) / b,
        }
    }

    /// Examples of the smallest of the first `steps` batches.
    pub fn smallest_batch(&self, steps: u64) -> usize {
        let (n, b) = (self.examples, self.global_batch);
        let reaches_the_rest = steps >= n.div_ceil(b) as u64;
        match self.epoch_end {
            EpochEnd::Partial if reaches_the_rest && !n.is_multiple_of(b) => n % b,
            _ => b,
        }
    }

    /// Epochs passed after `steps` updates: examples over n, or the share of the epoch's updates
    /// where the end of each epoch is dropped.
    pub fn epochs_after(&self, steps: u64) -> f64 {
        match self.epoch_end {
            EpochEnd::Drop => steps as f64 / self.steps_per_epoch(),
            EpochEnd::Carry | EpochEnd::Partial => {
                self.examples_after(steps) as f64 / self.examples as f64
            }
        }
    }

    /// The examples of update `step` (counted from 0), in order.
    pub fn batch(&self, step: u64) -> Vec<u64> {
        let (n, b) = (self.examples as u64, self.global_batch as u64);
        match self.epoch_end {
            EpochEnd::Carry => self.stream(step * b..(step + 1) * b),
            EpochEnd::Drop => {
                let start = (step / (n / b)) * n + (step % (n / b)) * b;
                self.stream(start..start + b)
            }
            EpochEnd::Partial => {
                let start = self.examples_after(step);
                self.stream(start..self.examples_after(step + 1))
            }
        }
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

    #[test]
    fn carried_batches_are_full_and_each_epoch_holds_each_example_once() {
        let order = Order::new(1, 10, 4, EpochEnd::Carry);
        let stream: Vec<u64> = (0..5).flat_map(|step| order.batch(step)).collect();
        assert_eq!(stream.len(), 20);
        assert_eq!(sorted(stream[..10].to_vec()), (0..10).collect::<Vec<_>>());
        assert_eq!(sorted(stream[10..].to_vec()), (0..10).collect::<Vec<_>>());
        assert_ne!(stream[..10], stream[10..]);
        assert_eq!(order.steps_per_epoch(), 2.5);
        assert_eq!(order.epochs_after(5), 2.0);
    }

    #[test]
    fn dropped_epochs_have_only_full_batches() {
        let order = Order::new(1, 10, 4, EpochEnd::Drop);
        assert_eq!(order.steps_per_epoch(), 2.0);
        let first: Vec<u64> = (0..2).flat_map(|step| order.batch(step)).collect();
        let carried = Order::new(1, 10, 4, EpochEnd::Carry);
        assert_eq!(
            first,
            (0..2)
                .flat_map(|step| carried.batch(step))
                .collect::<Vec<_>>()
        );
        assert_eq!(order.examples_after(4), 16);
        assert_eq!(order.epochs_after(4), 2.0);
    }

    #[test]
    fn partial_epochs_end_with_the_rest() {
        let order = Order::new(1, 10, 4, EpochEnd::Partial);
        let sizes: Vec<usize> = (0..6).map(|step| order.batch(step).len()).collect();
        assert_eq!(sizes, [4, 4, 2, 4, 4, 2]);
        assert_eq!(order.examples_after(4), 14);
        let second: Vec<u64> = (3..6).flat_map(|step| order.batch(step)).collect();
        assert_eq!(sorted(second), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn fresh_examples_never_repeat_and_differ_between_any_two_seeds() {
        let of = |seed| Order::fresh(seed, 10, 4).stream(0..40);
        // Seeds that agree in their low bits, too.
        let mut all: Vec<u64> = [0, 1, 1 << 24, 1 << 63].into_iter().flat_map(of).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 160);
    }

    #[test]
    fn a_budget_of_examples_is_never_exceeded_nor_short_by_an_update() {
        for epoch_end in [EpochEnd::Carry, EpochEnd::Drop, EpochEnd::Partial] {
            let order = Order::new(1, 10, 4, epoch_end);
            for budget in 0..60 {
                let steps = order.steps_within(budget);
                assert!(order.examples_after(steps) <= budget, "{epoch_end:?}");
                assert!(order.examples_after(steps + 1) > budget, "{epoch_end:?}");
            }
        }
    }

    #[test]
    fn the_smallest_batch_is_the_rest_of_an_epoch_that_is_reached() {
        let smallest = |epoch_end, steps| Order::new(1, 10, 4, epoch_end).smallest_batch(steps);
        assert_eq!(smallest(EpochEnd::Carry, 9), 4);
        assert_eq!(smallest(EpochEnd::Drop, 9), 4);
        assert_eq!(smallest(EpochEnd::Partial, 2), 4);
        assert_eq!(smallest(EpochEnd::Partial, 3), 2);
        assert_eq!(Order::new(1, 8, 4, EpochEnd::Partial).smallest_batch(9), 4);
    }

    #[test]
    fn a_batch_does_not_depend_on_what_was_asked_before() {
        let order = Order::new(5, 100, 7, EpochEnd::Carry);
        let late = order.batch(50);
        let _ = order.batch(3);
        assert_eq!(order.batch(50), late);
        assert_eq!(Order::new(5, 100, 7, EpochEnd::Carry).batch(50), late);
    }

    #[test]
    fn shards_cover_the_batch_in_order() {
        assert_eq!(shards(10, 4), [0..3, 3..6, 6..8, 8..10]);
        assert_eq!(shards(2, 4), [0..1, 1..2]);
        assert_eq!(pieces(&(10..20), 4), [10..14, 14..17, 17..20]);
        assert_eq!(pieces(&(10..20), 10), vec![10..20; 1]);
    }
}
