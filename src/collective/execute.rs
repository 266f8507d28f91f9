//! Schedules, carried out: over any transport, and on threads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use thiserror::Error;

use super::plan::{Action, Incoming, Schedule, Step};

/// Point-to-point messages. Between two ranks they arrive in the order in which they were sent, each
/// as long as it is expected to be.
pub trait Transport {
    /// What can go wrong.
    type Error;

    /// Sends; may return before the other rank receives, but not before `data` may change.
    ///
    /// # Errors
    /// What the transport says.
    fn send(&mut self, to: usize, data: &[f64]) -> Result<(), Self::Error>;

    /// Receives the next message of `from`.
    ///
    /// # Errors
    /// What the transport says.
    fn receive(&mut self, from: usize, data: &mut [f64]) -> Result<(), Self::Error>;

    /// Does all sends and receives of a step. As given, the sends first: right where a send does
    /// not wait for its receive. Other transports must do both at once.
    ///
    /// # Errors
    /// What the transport says.
    fn together(
        &mut self,
        sends: &[(usize, &[f64])],
        receives: &mut [(usize, &mut [f64])],
    ) -> Result<(), Self::Error> {
        for (to, data) in sends {
            self.send(*to, data)?;
        }
        for (from, data) in receives {
            self.receive(*from, data)?;
        }
        Ok(())
    }
}

/// Why a schedule could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExecuteError<E> {
    /// The rank is not one of the schedule.
    #[error("rank {rank} is not one of the {ranks} ranks of the schedule")]
    Rank {
        /// The rank that was to act.
        rank: usize,
        /// Ranks of the schedule.
        ranks: usize,
    },
    /// The vector is not as long as the schedule's.
    #[error("the vector of rank {rank} has {found} elements; the schedule is for {expected}")]
    Length {
        /// The rank that was to act.
        rank: usize,
        /// Elements of the schedule.
        expected: usize,
        /// Elements of the vector.
        found: usize,
    },
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] E),
}

/// Does what the schedule says for one rank, on its vector. Elements outside
/// [`Schedule::operand`] and [`Schedule::result`] serve as room on the way, so what they held is
/// lost. Several vectors that a step adds to the same place are added in the order of their ranks,
/// the rank's own among them.
///
/// # Errors
/// A rank that the schedule does not have, a vector of another length, or the transport's own.
pub fn execute<T: Transport>(
    schedule: &Schedule,
    rank: usize,
    vector: &mut [f64],
    transport: &mut T,
) -> Result<(), ExecuteError<T::Error>> {
    if rank >= schedule.ranks() {
        return Err(ExecuteError::Rank {
            rank,
            ranks: schedule.ranks(),
        });
    }
    if vector.len() != schedule.elements() {
        return Err(ExecuteError::Length {
            rank,
            expected: schedule.elements(),
            found: vector.len(),
        });
    }
    let mut room = Vec::new();
    for step in schedule.steps(rank) {
        exchange(step, vector, &mut room, transport)?;
        add(step, rank, vector, &room);
    }
    Ok(())
}

fn adds(step: &Step) -> impl Iterator<Item = &Incoming> {
    step.receives.iter().filter(|r| r.action == Action::Add)
}

/// All messages of a step: what is copied arrives in its place, what is to be added in `room`, one
/// message after the other.
fn exchange<T: Transport>(
    step: &Step,
    vector: &mut [f64],
    room: &mut Vec<f64>,
    transport: &mut T,
) -> Result<(), T::Error> {
    let needed: usize = adds(step).map(|r| r.range.len()).sum();
    if room.len() < needed {
        room.resize(needed, 0.0);
    }
    // The vector is cut at the places that are overwritten; no send crosses one.
    let mut copies: Vec<(usize, &Range<usize>)> = step
        .receives
        .iter()
        .enumerate()
        .filter(|(_, r)| r.action == Action::Copy)
        .map(|(i, r)| (i, &r.range))
        .collect();
    copies.sort_by_key(|(_, range)| range.start);
    let mut incoming: Vec<(usize, usize, &mut [f64])> = Vec::with_capacity(step.receives.len());
    let mut kept: Vec<(usize, &[f64])> = Vec::with_capacity(copies.len() + 1);
    let (mut rest, mut start) = (vector, 0);
    for (i, range) in copies {
        let (before, after) = rest.split_at_mut(range.start - start);
        let (place, after) = after.split_at_mut(range.len());
        kept.push((start, before));
        incoming.push((i, step.receives[i].from, place));
        (rest, start) = (after, range.end);
    }
    kept.push((start, rest));
    let mut free = room.as_mut_slice();
    for (i, receive) in step.receives.iter().enumerate() {
        if receive.action == Action::Add {
            let (place, after) = free.split_at_mut(receive.range.len());
            incoming.push((i, receive.from, place));
            free = after;
        }
    }
    incoming.sort_by_key(|(i, ..)| *i);
    let mut receives: Vec<(usize, &mut [f64])> = incoming
        .into_iter()
        .map(|(_, from, place)| (from, place))
        .collect();
    let sends: Vec<(usize, &[f64])> = step
        .sends
        .iter()
        .map(|send| {
            let piece = kept.partition_point(|(at, _)| *at <= send.range.start) - 1;
            let (at, data) = kept[piece];
            (send.to, &data[send.range.start - at..send.range.end - at])
        })
        .collect();
    transport.together(&sends, &mut receives)
}

/// Adds what came to `room`.
fn add(step: &Step, rank: usize, vector: &mut [f64], room: &[f64]) {
    let mut arrived: Vec<(usize, &Range<usize>, &[f64])> = Vec::new();
    let mut rest = room;
    for receive in adds(step) {
        let (data, after) = rest.split_at(receive.range.len());
        arrived.push((receive.from, &receive.range, data));
        rest = after;
    }
    arrived.sort_by_key(|(from, ..)| *from);
    let before = arrived.partition_point(|(from, ..)| *from < rank);
    let (lower, higher) = arrived.split_at(before);
    // Own + others and others + own have the same bits.
    match lower {
        [] => {}
        [(_, range, data)] => plus(&mut vector[(*range).clone()], data),
        [(_, range, first), lower @ ..] => {
            let mut sum = first.to_vec();
            for (_, _, data) in lower {
                plus(&mut sum, data);
            }
            plus(&mut vector[(*range).clone()], &sum);
        }
    }
    for (_, range, data) in higher {
        plus(&mut vector[(*range).clone()], data);
    }
}

fn plus(sum: &mut [f64], data: &[f64]) {
    for (s, d) in sum.iter_mut().zip(data) {
        *s += d;
    }
}

/// Why a schedule could not be run on threads.
#[derive(Debug, Error)]
pub enum RunError {
    /// Not one vector for each rank.
    #[error("{found} vectors for {expected} ranks; each rank needs one")]
    Vectors {
        /// Ranks of the schedule.
        expected: usize,
        /// Vectors given.
        found: usize,
    },
    /// A vector of another length than the schedule's.
    #[error("the vector of rank {rank} has {found} elements; the schedule is for {expected}")]
    Length {
        /// Whose vector.
        rank: usize,
        /// Elements of the schedule.
        expected: usize,
        /// Elements of the vector.
        found: usize,
    },
    /// The system refused a thread.
    #[error("cannot start a thread for rank {rank}")]
    Thread {
        /// The rank without a thread.
        rank: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A thread ended before its part was done.
    #[error("the thread of rank {rank} ended before its part was done")]
    Lost {
        /// The rank.
        rank: usize,
    },
}

/// A rank that is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no more messages can come")]
pub(super) struct Gone;

/// Mail between threads. Sends never wait.
pub(super) struct Mail {
    rank: usize,
    others: Vec<Sender<(usize, Vec<f64>)>>,
    inbox: Receiver<(usize, Vec<f64>)>,
    early: BTreeMap<usize, VecDeque<Vec<f64>>>,
}

impl Mail {
    fn next(&mut self, from: usize) -> Result<Vec<f64>, Gone> {
        if let Some(data) = self.early.get_mut(&from).and_then(VecDeque::pop_front) {
            return Ok(data);
        }
        loop {
            let (sender, data) = self.inbox.recv().map_err(|_| Gone)?;
            if sender == from {
                return Ok(data);
            }
            self.early.entry(sender).or_default().push_back(data);
        }
    }
}

impl Transport for Mail {
    type Error = Gone;

    fn send(&mut self, to: usize, data: &[f64]) -> Result<(), Gone> {
        self.others[to]
            .send((self.rank, data.to_vec()))
            .map_err(|_| Gone)
    }

    fn receive(&mut self, from: usize, data: &mut [f64]) -> Result<(), Gone> {
        data.copy_from_slice(&self.next(from)?);
        Ok(())
    }
}

/// Runs a schedule, each rank a thread with its vector, and returns the vectors.
///
/// # Errors
/// Not one vector of the schedule's length for each rank, or no threads.
pub fn run_on_threads(
    schedule: &Schedule,
    vectors: Vec<Vec<f64>>,
) -> Result<Vec<Vec<f64>>, RunError> {
    if vectors.len() != schedule.ranks() {
        return Err(RunError::Vectors {
            expected: schedule.ranks(),
            found: vectors.len(),
        });
    }
    let expected = schedule.elements();
    if let Some((rank, vector)) = vectors
        .iter()
        .enumerate()
        .find(|(_, vector)| vector.len() != expected)
    {
        return Err(RunError::Length {
            rank,
            expected,
            found: vector.len(),
        });
    }
    on_threads(vectors, |rank, mut vector, mail| {
        execute(schedule, rank, &mut vector, mail).ok()?;
        Some(vector)
    })
}

/// One thread for each of `parts`, with mail between them. A thread that returns `None` is lost.
pub(super) fn on_threads<P: Send, R: Send>(
    parts: Vec<P>,
    body: impl Fn(usize, P, &mut Mail) -> Option<R> + Sync,
) -> Result<Vec<R>, RunError> {
    let body = &body;
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(parts.len());
        let mut others = Vec::with_capacity(parts.len());
        let mut waiting = Vec::with_capacity(parts.len());
        // Nobody starts before all threads are there, so that none waits for one that is not.
        for (rank, part) in parts.into_iter().enumerate() {
            let (sender, inbox) = channel();
            let (go, begin) = channel::<Mail>();
            let thread = thread::Builder::new()
                .name(format!("collective, rank {rank}"))
                .spawn_scoped(scope, move || body(rank, part, &mut begin.recv().ok()?))
                .map_err(|source| RunError::Thread { rank, source })?;
            threads.push(thread);
            others.push(sender);
            waiting.push((go, inbox));
        }
        for (rank, (go, inbox)) in waiting.into_iter().enumerate() {
            let mail = Mail {
                rank,
                others: others.clone(),
                inbox,
                early: BTreeMap::new(),
            };
            go.send(mail).map_err(|_| RunError::Lost { rank })?;
        }
        drop(others);
        threads
            .into_iter()
            .enumerate()
            .map(|(rank, thread)| {
                let result = thread.join().ok().flatten();
                result.ok_or(RunError::Lost { rank })
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Algorithm, Operation, schedule};
    use super::*;

    const ALGORITHMS: [Algorithm; 14] = [
        Algorithm::Flat,
        Algorithm::KaryTree { k: 1 },
        Algorithm::KaryTree { k: 2 },
        Algorithm::KaryTree { k: 3 },
        Algorithm::KaryTree { k: 5 },
        Algorithm::Binomial,
        Algorithm::Chain { segments: 1 },
        Algorithm::Chain { segments: 3 },
        Algorithm::Chain { segments: 16 },
        Algorithm::Chain { segments: 2000 },
        Algorithm::Ring,
        Algorithm::Direct,
        Algorithm::RecursiveDoubling,
        Algorithm::Rabenseifner,
    ];

    /// Whole numbers that tell ranks and places apart; NaN where a rank has nothing to say.
    fn vector(schedule: &Schedule, rank: usize) -> Vec<f64> {
        let mut vector = vec![f64::NAN; schedule.elements()];
        for i in schedule.operand(rank) {
            vector[i] = value(rank, i);
        }
        vector
    }

    fn value(rank: usize, i: usize) -> f64 {
        ((rank + 1) * 1_000_003 + i * (2 * rank + 3)) as f64
    }

    fn expected(schedule: &Schedule, i: usize) -> f64 {
        match schedule.operation() {
            Operation::Reduce | Operation::AllReduce => {
                (0..schedule.ranks()).map(|rank| value(rank, i)).sum()
            }
            Operation::Broadcast | Operation::Scatter => value(0, i),
            Operation::AllGather | Operation::Gather => {
                let owner = (0..schedule.ranks()).find(|rank| schedule.operand(*rank).contains(&i));
                value(owner.unwrap(), i)
            }
        }
    }

    /// What is wrong with what a rank has at the end.
    fn fault(schedule: &Schedule, rank: usize, vector: &[f64]) -> Option<String> {
        schedule
            .result(rank)
            .find(|i| vector[*i] != expected(schedule, *i))
            .map(|i| {
                let right = expected(schedule, i);
                format!(
                    "element {i} of rank {rank} is {} instead of {right}",
                    vector[i]
                )
            })
    }

    #[test]
    fn every_rank_gets_what_it_should_for_any_ranks_and_lengths() {
        for ranks in (1..=17).chain([32, 33]) {
            let mut schedules = Vec::new();
            for elements in [0, 1, 2, 3, 5, 16, 17, 1000] {
                for operation in Operation::ALL {
                    for algorithm in ALGORITHMS {
                        let found = schedule(operation, algorithm, ranks, elements);
                        assert_eq!(found.is_some(), algorithm.can(operation));
                        schedules.extend(found.map(|schedule| (algorithm, schedule)));
                    }
                }
            }
            // All one after the other on the same threads: each takes its own messages only.
            let faults = on_threads(vec![(); ranks], |rank, (), mail| {
                let mut faults = Vec::new();
                for (algorithm, schedule) in &schedules {
                    let mut vector = vector(schedule, rank);
                    execute(schedule, rank, &mut vector, mail).ok()?;
                    if let Some(fault) = fault(schedule, rank, &vector) {
                        let (operation, elements) = (schedule.operation(), schedule.elements());
                        faults.push(format!(
                            "{operation}, {algorithm}, {ranks} ranks, {elements} elements: {fault}"
                        ));
                    }
                }
                Some(faults)
            });
            assert_eq!(faults.unwrap().concat(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_schedule_runs_on_threads_of_its_own() {
        for ranks in [1, 2, 5, 8] {
            for operation in Operation::ALL {
                let schedule = schedule(operation, Algorithm::Binomial, ranks, 13).unwrap();
                let vectors = (0..ranks).map(|rank| vector(&schedule, rank)).collect();
                let found = run_on_threads(&schedule, vectors).unwrap();
                for (rank, vector) in found.iter().enumerate() {
                    assert_eq!(fault(&schedule, rank, vector), None);
                }
            }
        }
    }

    #[test]
    fn a_sum_has_the_same_bits_on_all_ranks() {
        for ranks in [2, 3, 5, 7, 8, 13] {
            for algorithm in ALGORITHMS {
                let schedule = schedule(Operation::AllReduce, algorithm, ranks, 19).unwrap();
                let vectors = (0..ranks)
                    .map(|rank| (0..19).map(|i| (value(rank, i)).sin()).collect())
                    .collect();
                let sums = run_on_threads(&schedule, vectors).unwrap();
                for sum in &sums {
                    assert_eq!(*sum, sums[0], "{algorithm}, {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn a_direct_sum_is_made_in_the_order_of_the_ranks() {
        let vectors = vec![vec![1e16], vec![1.0], vec![-1e16], vec![0.5]];
        let schedule = schedule(Operation::AllReduce, Algorithm::Direct, 4, 1).unwrap();
        let expected = ((1e16 + 1.0) - 1e16) + 0.5;
        let found = run_on_threads(&schedule, vectors).unwrap();
        assert_eq!(found, vec![vec![expected]; 4]);
    }

    struct Nowhere;

    impl Transport for Nowhere {
        type Error = Gone;

        fn send(&mut self, _: usize, _: &[f64]) -> Result<(), Gone> {
            Err(Gone)
        }

        fn receive(&mut self, _: usize, _: &mut [f64]) -> Result<(), Gone> {
            Err(Gone)
        }
    }

    #[test]
    fn vectors_that_do_not_fit_the_schedule_are_refused() {
        let sum = schedule(Operation::AllReduce, Algorithm::Ring, 2, 3).unwrap();
        let few = run_on_threads(&sum, vec![vec![0.0; 3]]).unwrap_err();
        assert_eq!(
            few.to_string(),
            "1 vectors for 2 ranks; each rank needs one"
        );
        let short = run_on_threads(&sum, vec![vec![0.0; 3], vec![0.0; 2]]).unwrap_err();
        assert_eq!(
            short.to_string(),
            "the vector of rank 1 has 2 elements; the schedule is for 3"
        );
        assert_eq!(
            execute(&sum, 2, &mut [0.0; 3], &mut Nowhere),
            Err(ExecuteError::Rank { rank: 2, ranks: 2 })
        );
        assert_eq!(
            execute(&sum, 1, &mut [0.0; 2], &mut Nowhere),
            Err(ExecuteError::Length {
                rank: 1,
                expected: 3,
                found: 2
            })
        );
        assert_eq!(
            execute(&sum, 1, &mut [0.0; 3], &mut Nowhere),
            Err(ExecuteError::Transport(Gone))
        );
    }
}
