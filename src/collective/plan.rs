//! Collectives as data: who sends what to whom, in which order.

use std::ops::Range;

use super::algorithms;
pub use crate::theory::collectives::{Algorithm, Blocks, Operation};

/// What becomes of what is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It takes the place of what is there.
    Copy,
    /// It is added to what is there.
    Add,
}

/// Elements to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The rank that receives them.
    pub to: usize,
    /// Their place in the vector.
    pub range: Range<usize>,
}

/// Elements to receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The rank that sends them.
    pub from: usize,
    /// Their place in the vector.
    pub range: Range<usize>,
    /// What to do with them.
    pub action: Action,
}

/// What a rank does at once: sends, in order, what its vector holds when the step starts, and
/// meanwhile receives, in order. The step ends when all of it is done. No element is both sent and
/// overwritten, or overwritten twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// To other ranks, one after the other.
    pub sends: Vec<Outgoing>,
    /// From other ranks, one after the other.
    pub receives: Vec<Incoming>,
}

/// One collective operation on vectors of one length: for each rank, its steps.
///
/// Between two ranks messages arrive in the order in which they were sent. No message is empty, and
/// no rank sends to itself. A schedule ends where sends are buffered, and also where a send waits
/// for its receive (rendezvous), as long as the sends and receives of one step do not wait for each
/// other (`MPI_Sendrecv`, or `MPI_Isend` and `MPI_Irecv`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    operation: Operation,
    elements: usize,
    steps: Vec<Vec<Step>>,
}

impl Schedule {
    pub(super) fn new(operation: Operation, elements: usize, steps: Vec<Vec<Step>>) -> Self {
        Self {
            operation,
            elements,
            steps,
        }
    }

    /// What the schedule does.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Ranks that take part.
    pub fn ranks(&self) -> usize {
        self.steps.len()
    }

    /// Length of the vector of each rank.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The steps of a rank in their order; none for ranks that do not take part.
    pub fn steps(&self, rank: usize) -> &[Step] {
        self.steps.get(rank).map_or(&[], Vec::as_slice)
    }

    /// The elements that count at the start: the others of this rank may hold anything.
    pub fn operand(&self, rank: usize) -> Range<usize> {
        match self.operation {
            Operation::Reduce | Operation::AllReduce => 0..self.elements,
            Operation::Broadcast | Operation::Scatter => self.of_root(rank),
            Operation::AllGather | Operation::Gather => self.block(rank),
        }
    }

    /// The elements that count at the end: the others of this rank may hold anything.
    pub fn result(&self, rank: usize) -> Range<usize> {
        match self.operation {
            Operation::Broadcast | Operation::AllReduce | Operation::AllGather => 0..self.elements,
            Operation::Reduce | Operation::Gather => self.of_root(rank),
            Operation::Scatter => self.block(rank),
        }
    }

    fn of_root(&self, rank: usize) -> Range<usize> {
        if rank == 0 { 0..self.elements } else { 0..0 }
    }

    fn block(&self, rank: usize) -> Range<usize> {
        Blocks::new(self.elements, self.ranks()).range(rank)
    }
}

/// The schedule of an operation by an algorithm, for any number of ranks from 1 on and vectors of any
/// length, also shorter than the ranks. The root is rank 0. `None` without ranks and where the
/// algorithm cannot do the operation:
///
/// | | broadcast | reduce | all-reduce | all-gather | scatter | gather |
/// |---|---|---|---|---|---|---|
/// | flat, k-ary tree (k > 0), binomial tree | yes | yes | reduce, broadcast | gather, broadcast | yes | yes |
/// | chain (segments > 0) | yes | yes | reduce, broadcast | | | |
/// | ring, direct, recursive doubling | | | yes | yes | | |
/// | Rabenseifner | | | yes | | | |
///
/// A chain cuts one vector, so it has nothing to say about blocks that belong to ranks; the others
/// have no root, so they do nothing for one alone.
///
/// All ranks end with the same bits wherever the result is on more than one: each sum is made
/// once and copied, or made on each rank from the same two halves (recursive doubling) or in the
/// order of the ranks (direct).
///
/// ```
/// use batchlab::collective::{Algorithm, Operation, run_on_threads, schedule};
///
/// let sum = schedule(Operation::AllReduce, Algorithm::Ring, 3, 2).expect("rings can sum");
/// let vectors = vec![vec![1.0, 10.0], vec![2.0, 20.0], vec![3.0, 30.0]];
/// assert_eq!(run_on_threads(&sum, vectors)?, vec![vec![6.0, 60.0]; 3]);
/// # Ok::<(), batchlab::collective::RunError>(())
/// ```
pub fn schedule(
    operation: Operation,
    algorithm: Algorithm,
    ranks: usize,
    elements: usize,
) -> Option<Schedule> {
    (ranks > 0 && algorithm.can(operation)).then(|| {
        let steps = algorithms::steps(operation, algorithm, ranks, elements);
        Schedule::new(operation, elements, steps)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_without_a_meaning_have_no_schedule() {
        let can = |algorithm| {
            Operation::ALL.map(|operation| schedule(operation, algorithm, 4, 8).is_some())
        };
        let tree = [true; 6];
        let ring = [false, false, true, true, false, false];
        assert_eq!(can(Algorithm::Flat), tree);
        assert_eq!(can(Algorithm::KaryTree { k: 2 }), tree);
        assert_eq!(can(Algorithm::KaryTree { k: 0 }), [false; 6]);
        assert_eq!(can(Algorithm::Binomial), tree);
        let chain = [true, true, true, false, false, false];
        assert_eq!(can(Algorithm::Chain { segments: 2 }), chain);
        assert_eq!(can(Algorithm::Chain { segments: 0 }), [false; 6]);
        assert_eq!(can(Algorithm::Ring), ring);
        assert_eq!(can(Algorithm::Direct), ring);
        assert_eq!(can(Algorithm::RecursiveDoubling), ring);
        let only_sums = [false, false, true, false, false, false];
        assert_eq!(can(Algorithm::Rabenseifner), only_sums);
        assert_eq!(schedule(Operation::Reduce, Algorithm::Flat, 0, 8), None);
    }

    #[test]
    fn one_rank_or_no_elements_need_no_message() {
        for (ranks, elements) in [(1, 5), (4, 0), (1, 0)] {
            for algorithm in [Algorithm::Flat, Algorithm::Ring, Algorithm::Rabenseifner] {
                let schedule = schedule(Operation::AllReduce, algorithm, ranks, elements).unwrap();
                assert!((0..ranks).all(|rank| schedule.steps(rank).is_empty()));
            }
        }
    }

    #[test]
    fn no_step_sends_what_it_overwrites_and_no_message_is_empty() {
        let algorithms = [
            Algorithm::Flat,
            Algorithm::KaryTree { k: 3 },
            Algorithm::Binomial,
            Algorithm::Chain { segments: 4 },
            Algorithm::Ring,
            Algorithm::Direct,
            Algorithm::RecursiveDoubling,
            Algorithm::Rabenseifner,
        ];
        let apart = |a: &Range<usize>, b: &Range<usize>| a.end <= b.start || b.end <= a.start;
        for (ranks, elements) in [(7, 3), (8, 20), (13, 13), (13, 40)] {
            for operation in Operation::ALL {
                for algorithm in algorithms {
                    let Some(schedule) = schedule(operation, algorithm, ranks, elements) else {
                        continue;
                    };
                    for step in (0..ranks).flat_map(|rank| schedule.steps(rank)) {
                        let copies: Vec<_> = step
                            .receives
                            .iter()
                            .filter(|r| r.action == Action::Copy)
                            .map(|r| &r.range)
                            .collect();
                        for (i, a) in copies.iter().enumerate() {
                            assert!(copies[i + 1..].iter().all(|b| apart(a, b)));
                            assert!(step.sends.iter().all(|s| apart(a, &s.range)));
                        }
                        assert!(step.sends.iter().all(|s| !s.range.is_empty()));
                        assert!(step.receives.iter().all(|r| !r.range.is_empty()));
                    }
                }
            }
        }
    }
}
