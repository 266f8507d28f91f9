//! Ranks: processes, or threads, that work together, each with memory of its own.
//!
//! [`Ranks`] is what the crate needs of them: messages whose lengths both sides know, a sum in an
//! order that the library chooses, and a barrier. `Mpi` (feature `mpi`) has it of MPI;
//! [`on_threads`] has it of threads, for tests and for runs without MPI. Everything else is made of
//! messages here, so it is the same on both.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::AddAssign;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytemuck::Pod;
use thiserror::Error;

use super::execute::Transport;
use super::plan::Blocks;

/// Processes (or threads) that work together, each with its own memory.
///
/// Used from one thread at a time, not always the same one. All ranks call the same functions in the
/// same order.
pub trait Ranks: Send + Sync {
    /// Which one this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are, at least 1.
    fn size(&self) -> usize;

    /// Sends these messages and receives those, all at once, in any order of arrival; returns when
    /// all are done. Between two ranks messages match in the order of their lists. Both sides know
    /// the lengths; an empty message is not sent. A rank may send to itself.
    ///
    /// # Errors
    /// A rank that does not exist, a message of another length than expected, a rank that is gone.
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
    ) -> Result<(), RanksError>;

    /// The sum over all ranks in place, in an order of the library's choice (`MPI_Allreduce`). All
    /// ranks give vectors of one length.
    ///
    /// # Errors
    /// As [`Ranks::exchange`].
    fn sum_native_f32(&self, values: &mut [f32]) -> Result<(), RanksError>;

    /// [`Ranks::sum_native_f32`] of f64.
    ///
    /// # Errors
    /// As [`Ranks::exchange`].
    fn sum_native_f64(&self, values: &mut [f64]) -> Result<(), RanksError>;

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// A rank that is gone.
    fn barrier(&self) -> Result<(), RanksError>;
}

/// Why ranks could not work together.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RanksError {
    /// Another rank is slower than the time limit, hangs, or is gone.
    #[error(
        "rank {rank} waited {seconds} s for {doing}, then gave up\n\
         hint: see what the other ranks say; if they are only slow, allow more seconds"
    )]
    TimedOut {
        /// The rank that waited.
        rank: usize,
        /// How long.
        seconds: f64,
        /// What for.
        doing: String,
    },
    /// A rank ended before its part was done.
    #[error("rank {rank} ended before its part was done")]
    Lost {
        /// The rank that is gone.
        rank: usize,
    },
    /// A message of another length than both sides should know.
    #[error("rank {rank} expected a message of {expected} bytes from rank {from}, found {found}")]
    Message {
        /// The rank that received it.
        rank: usize,
        /// The rank that sent it.
        from: usize,
        /// Its length, in bytes.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A rank that does not exist.
    #[error("expected a rank below {size}, found {rank}")]
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// How many there are.
        size: usize,
    },
    /// All ranks wait for messages, so none can come.
    #[error("rank {rank} waits for a message of rank {from}, but every rank waits for one")]
    AllWait {
        /// The rank that noticed.
        rank: usize,
        /// Whose message it waits for.
        from: usize,
    },
    /// A sum over ranks was asked for before the rank's own leaves were in the tree.
    #[error(
        "rank {rank} has {found} partial sums in its tree; with all of its own leaves it has {expected}"
    )]
    Unfinished {
        /// The rank.
        rank: usize,
        /// Nodes that the leaves of the rank leave waiting.
        expected: usize,
        /// Nodes found, of which some may be others than expected.
        found: usize,
    },
}

/// A number that ranks can sum.
pub trait Element: Pod + Default + AddAssign + Send + Sync {
    /// [`Ranks::sum_native_f32`] or [`Ranks::sum_native_f64`].
    ///
    /// # Errors
    /// As [`Ranks::exchange`].
    fn sum_native(ranks: &dyn Ranks, values: &mut [Self]) -> Result<(), RanksError>;
}

impl Element for f32 {
    fn sum_native(ranks: &dyn Ranks, values: &mut [Self]) -> Result<(), RanksError> {
        ranks.sum_native_f32(values)
    }
}

impl Element for f64 {
    fn sum_native(ranks: &dyn Ranks, values: &mut [Self]) -> Result<(), RanksError> {
        ranks.sum_native_f64(values)
    }
}

/// Ranks as the [`Transport`] of a schedule.
///
/// ```
/// use batchlab::collective::{Algorithm, Operation, PointToPoint, execute, on_threads, schedule};
///
/// let sum = schedule(Operation::AllReduce, Algorithm::Ring, 3, 2).expect("rings can sum");
/// let sums = on_threads(3, |ranks| {
///     let mut vector = [1.0, ranks.rank() as f64];
///     execute(&sum, ranks.rank(), &mut vector, &mut PointToPoint(ranks)).map(|()| vector)
/// })?;
/// assert_eq!(sums, [Ok([3.0, 3.0]), Ok([3.0, 3.0]), Ok([3.0, 3.0])]);
/// # Ok::<(), batchlab::collective::ThreadsError>(())
/// ```
#[derive(Clone, Copy)]
pub struct PointToPoint<'a>(pub &'a dyn Ranks);

impl Transport for PointToPoint<'_> {
    type Error = RanksError;

    fn send(&mut self, to: usize, data: &[f64]) -> Result<(), RanksError> {
        self.together(&[(to, data)], &mut [])
    }

    fn receive(&mut self, from: usize, data: &mut [f64]) -> Result<(), RanksError> {
        self.together(&[], &mut [(from, data)])
    }

    fn together(
        &mut self,
        sends: &[(usize, &[f64])],
        receives: &mut [(usize, &mut [f64])],
    ) -> Result<(), RanksError> {
        let sends: Vec<(usize, &[u8])> = sends
            .iter()
            .map(|(to, data)| (*to, bytemuck::cast_slice(data)))
            .collect();
        let mut receives: Vec<(usize, &mut [u8])> = receives
            .iter_mut()
            .map(|(from, data)| (*from, bytemuck::cast_slice_mut(data)))
            .collect();
        self.0.exchange(&sends, &mut receives)
    }
}

/// The ranks to send to, in order: the next one, the one after it and so on, so that not all send to
/// the same rank first.
pub(super) fn after(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (1..size).map(move |i| (rank + i) % size)
}

/// The ranks to receive from, in the order in which they get to this one.
pub(super) fn before(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (1..size).map(move |i| (rank + size - i) % size)
}

const LENGTH_BYTES: usize = size_of::<u64>();

/// What rank 0 gives, on all ranks; what others give does not matter, and nothing from rank 0 is an
/// empty message.
///
/// Along a binomial tree: log2 p messages of this length (and as many of 8 bytes) one after the
/// other; rank 0 sends one to each of its log2 p children.
///
/// # Errors
/// As [`Ranks::exchange`].
pub fn broadcast_bytes(ranks: &dyn Ranks, bytes: Option<&[u8]>) -> Result<Vec<u8>, RanksError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let content = if rank == 0 {
        bytes.unwrap_or_default().to_vec()
    } else {
        let parent = rank & (rank - 1);
        let mut length = [0; LENGTH_BYTES];
        ranks.exchange(&[], &mut [(parent, &mut length)])?;
        let mut content = vec![0; u64::from_le_bytes(length) as usize];
        ranks.exchange(&[], &mut [(parent, &mut content)])?;
        content
    };
    let length = (content.len() as u64).to_le_bytes();
    let reach = if rank == 0 {
        size.next_power_of_two().trailing_zeros()
    } else {
        rank.trailing_zeros()
    };
    let sends: Vec<(usize, &[u8])> = (0..reach)
        .rev()
        .map(|bit| rank + (1 << bit))
        .filter(|child| *child < size)
        .flat_map(|child| [(child, &length[..]), (child, &content[..])])
        .collect();
    ranks.exchange(&sends, &mut [])?;
    Ok(content)
}

/// What each rank gives, of any length, on all ranks, in the order of the ranks.
///
/// Each rank sends its own to each other: p - 1 messages of this length and p - 1 of 8 bytes.
///
/// # Errors
/// As [`Ranks::exchange`].
pub fn all_gather_bytes(ranks: &dyn Ranks, bytes: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut lengths = vec![0u64; size];
    lengths[rank] = bytes.len() as u64;
    all_gather_blocks(ranks, &mut lengths)?;
    let mut gathered: Vec<Vec<u8>> = lengths.iter().map(|l| vec![0; *l as usize]).collect();
    gathered[rank].copy_from_slice(bytes);
    let sends: Vec<(usize, &[u8])> = after(rank, size).map(|to| (to, bytes)).collect();
    let mut receives: Vec<(usize, &mut [u8])> = gathered
        .iter_mut()
        .enumerate()
        .filter(|(from, _)| *from != rank)
        .map(|(from, place)| (from, &mut place[..]))
        .collect();
    ranks.exchange(&sends, &mut receives)?;
    drop(receives);
    Ok(gathered)
}

/// Gathers a vector of which each rank has its part of [`Blocks`]: each sends its part to each other.
///
/// # Errors
/// As [`Ranks::exchange`].
pub(super) fn all_gather_blocks<F: Pod>(
    ranks: &dyn Ranks,
    vector: &mut [F],
) -> Result<(), RanksError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let blocks = Blocks::new(vector.len(), size);
    let mut own: &[F] = &[];
    let mut receives: Vec<(usize, &mut [u8])> = Vec::with_capacity(size);
    let mut rest = vector;
    for part in 0..size {
        let (place, behind) = rest.split_at_mut(blocks.size(part));
        rest = behind;
        if part == rank {
            own = place;
        } else if !place.is_empty() {
            receives.push((part, bytemuck::cast_slice_mut(place)));
        }
    }
    let own: &[u8] = bytemuck::cast_slice(own);
    let sends: Vec<(usize, &[u8])> = after(rank, size)
        .filter(|_| !own.is_empty())
        .map(|to| (to, own))
        .collect();
    ranks.exchange(&sends, &mut receives)
}

/// The sum over ranks in place, in the order of the ranks: each sums its part of [`Blocks`], then
/// they are gathered.
fn sum_in_order<F: Element>(ranks: &dyn Ranks, values: &mut [F]) -> Result<(), RanksError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let blocks = Blocks::new(values.len(), size);
    let part = blocks.range(rank);
    let mut arrived = vec![vec![F::default(); part.len()]; size];
    let sends: Vec<(usize, &[u8])> = (0..size)
        .map(|to| (to, bytemuck::cast_slice(&values[blocks.range(to)])))
        .collect();
    let mut receives: Vec<(usize, &mut [u8])> = arrived
        .iter_mut()
        .enumerate()
        .map(|(from, place)| (from, bytemuck::cast_slice_mut(place)))
        .collect();
    ranks.exchange(&sends, &mut receives)?;
    let sum = &mut values[part];
    for (from, terms) in arrived.iter().enumerate() {
        if from == 0 {
            sum.copy_from_slice(terms);
        } else {
            for (s, t) in sum.iter_mut().zip(terms) {
                *s += *t;
            }
        }
    }
    all_gather_blocks(ranks, values)
}

/// Why ranks could not be run on threads.
#[derive(Debug, Error)]
pub enum ThreadsError {
    /// The system refused a thread.
    #[error("cannot start a thread for rank {rank}")]
    Thread {
        /// The rank without a thread.
        rank: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A thread panicked.
    #[error("the thread of rank {rank} panicked")]
    Panicked {
        /// The rank.
        rank: usize,
    },
}

/// What the threads share. Sends never wait.
#[derive(Default)]
struct Mail {
    /// Messages not yet received, by (from, to).
    letters: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// Whose message a rank sleeps for; whoever wakes it takes this away.
    sleeps: Vec<Option<usize>>,
    ended: Vec<bool>,
}

impl Mail {
    fn all_sleep_or_ended(&self) -> bool {
        let mut each = self.sleeps.iter().zip(&self.ended);
        each.all(|(sleeps, ended)| sleeps.is_some() || *ended)
    }
}

struct Post {
    mail: Mutex<Mail>,
    bells: Vec<Condvar>,
}

impl Post {
    fn new(size: usize) -> Self {
        Self {
            mail: Mutex::new(Mail {
                letters: BTreeMap::new(),
                sleeps: vec![None; size],
                ended: vec![false; size],
            }),
            bells: (0..size).map(|_| Condvar::new()).collect(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that these ranks are gone; all who wait look again.
    fn end(&self, ranks: impl IntoIterator<Item = usize>) {
        let mut mail = self.open();
        for rank in ranks {
            mail.ended[rank] = true;
        }
        mail.sleeps.fill(None);
        for bell in &self.bells {
            bell.notify_all();
        }
    }
}

struct ThreadRank<'a> {
    rank: usize,
    post: &'a Post,
}

impl Drop for ThreadRank<'_> {
    fn drop(&mut self) {
        self.post.end([self.rank]);
    }
}

impl ThreadRank<'_> {
    fn next_letter(&self, from: usize) -> Result<Vec<u8>, RanksError> {
        let rank = self.rank;
        let mut mail = self.post.open();
        loop {
            let letters = mail.letters.get_mut(&(from, rank));
            if let Some(letter) = letters.and_then(VecDeque::pop_front) {
                return Ok(letter);
            }
            if mail.ended[from] {
                return Err(RanksError::Lost { rank: from });
            }
            mail.sleeps[rank] = Some(from);
            if mail.all_sleep_or_ended() {
                mail.sleeps[rank] = None;
                return Err(RanksError::AllWait { rank, from });
            }
            mail = self.post.bells[rank]
                .wait_while(mail, |mail| mail.sleeps[rank].is_some())
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Ranks for ThreadRank<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.post.bells.len()
    }

    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
    ) -> Result<(), RanksError> {
        check_ranks(self.size(), sends, receives)?;
        let mut mail = self.post.open();
        for (to, data) in sends {
            if !data.is_empty() {
                let letters = mail.letters.entry((self.rank, *to)).or_default();
                letters.push_back(data.to_vec());
                if mail.sleeps[*to] == Some(self.rank) {
                    mail.sleeps[*to] = None;
                    self.post.bells[*to].notify_all();
                }
            }
        }
        drop(mail);
        for (from, place) in receives {
            if !place.is_empty() {
                let letter = self.next_letter(*from)?;
                if letter.len() != place.len() {
                    return Err(RanksError::Message {
                        rank: self.rank,
                        from: *from,
                        expected: place.len(),
                        found: letter.len(),
                    });
                }
                place.copy_from_slice(&letter);
            }
        }
        Ok(())
    }

    fn sum_native_f32(&self, values: &mut [f32]) -> Result<(), RanksError> {
        sum_in_order(self, values)
    }

    fn sum_native_f64(&self, values: &mut [f64]) -> Result<(), RanksError> {
        sum_in_order(self, values)
    }

    fn barrier(&self) -> Result<(), RanksError> {
        all_gather_blocks(self, &mut vec![0u8; self.size()])
    }
}

/// An error if a message goes to, or comes from, a rank that does not exist.
pub(super) fn check_ranks(
    size: usize,
    sends: &[(usize, &[u8])],
    receives: &[(usize, &mut [u8])],
) -> Result<(), RanksError> {
    let to = sends.iter().map(|(rank, _)| *rank);
    let from = receives.iter().map(|(rank, _)| *rank);
    match to.chain(from).find(|rank| *rank >= size) {
        Some(rank) => Err(RanksError::NoSuchRank { rank, size }),
        None => Ok(()),
    }
}

/// Runs `body` on ranks that are threads, and returns what it returns, in the order of the ranks.
///
/// Whoever waits for a message of a rank whose body has ended gets [`RanksError::Lost`], and where all
/// wait one gets [`RanksError::AllWait`], so nothing here hangs. Native sums are made in the order
/// of the ranks. Messages are copied twice.
///
/// # Errors
/// A thread that the system refuses, or a body that panics.
pub fn on_threads<R: Send>(
    size: usize,
    body: impl Fn(&dyn Ranks) -> R + Sync,
) -> Result<Vec<R>, ThreadsError> {
    let (body, post) = (&body, &Post::new(size));
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(size);
        for rank in 0..size {
            let own = ThreadRank { rank, post };
            let thread = thread::Builder::new()
                .name(format!("rank {rank}"))
                .spawn_scoped(scope, move || body(&own));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    post.end(rank..size);
                    return Err(ThreadsError::Thread { rank, source });
                }
            }
        }
        let mut results = Vec::with_capacity(size);
        let mut panicked = None;
        for (rank, thread) in threads.into_iter().enumerate() {
            match thread.join() {
                Ok(result) => results.push(result),
                Err(_) => panicked = panicked.or(Some(rank)),
            }
        }
        match panicked {
            Some(rank) => Err(ThreadsError::Panicked { rank }),
            None => Ok(results),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Algorithm, Operation, execute, run_on_threads, schedule};

    fn content(rank: usize) -> Vec<u8> {
        (0..(rank * 7) % 5).map(|i| (rank * 10 + i) as u8).collect()
    }

    #[test]
    fn every_rank_gets_what_rank_0_has() {
        for size in 1..=9 {
            for length in [0, 1, 1000] {
                let sent: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
                let got = on_threads(size, |ranks| {
                    broadcast_bytes(ranks, (ranks.rank() == 0).then_some(&sent[..]))
                })
                .unwrap();
                assert_eq!(got, vec![Ok(sent); size], "{size} ranks");
            }
        }
    }

    #[test]
    fn contents_of_unequal_lengths_are_gathered_in_the_order_of_the_ranks() {
        for size in 1..=9 {
            let got = on_threads(size, |ranks| {
                all_gather_bytes(ranks, &content(ranks.rank()))
            })
            .unwrap();
            let expected: Vec<Vec<u8>> = (0..size).map(content).collect();
            assert_eq!(got, vec![Ok(expected); size], "{size} ranks");
        }
    }

    #[test]
    fn native_sums_have_the_same_bits_on_all_ranks() {
        for size in 1..=7 {
            for length in [0, 1, 3, 17] {
                let sums = on_threads(size, |ranks| {
                    let mut values: Vec<f32> = (0..length)
                        .map(|i| (i * 10 + ranks.rank()) as f32)
                        .collect();
                    ranks.sum_native_f32(&mut values).unwrap();
                    let mut one = [0.1f64.powf(ranks.rank() as f64)];
                    f64::sum_native(ranks, &mut one).unwrap();
                    (values, one)
                })
                .unwrap();
                let ranks = (size * (size - 1) / 2) as f32;
                let expected: Vec<f32> = (0..length)
                    .map(|i| (size * i * 10) as f32 + ranks)
                    .collect();
                let one: f64 = (0..size).map(|r| 0.1f64.powf(r as f64)).sum();
                assert_eq!(sums, vec![(expected, [one]); size]);
            }
        }
    }

    #[test]
    fn schedules_over_ranks_give_the_bits_of_schedules_on_threads() {
        for size in 1..=5 {
            let sum =
                schedule(Operation::AllReduce, Algorithm::Rabenseifner, size, 11).expect("can sum");
            let vectors: Vec<Vec<f64>> = (0..size)
                .map(|rank| (0..11).map(|i| ((rank * 11 + i) as f64).sin()).collect())
                .collect();
            let found = on_threads(size, |ranks| {
                let mut vector = vectors[ranks.rank()].clone();
                execute(&sum, ranks.rank(), &mut vector, &mut PointToPoint(ranks)).unwrap();
                vector
            })
            .unwrap();
            assert_eq!(found, run_on_threads(&sum, vectors).unwrap());
        }
    }

    #[test]
    fn a_barrier_lets_nobody_through_before_all_are_there() {
        let arrived = std::sync::atomic::AtomicUsize::new(0);
        let seen = on_threads(5, |ranks| {
            arrived.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            ranks.barrier().unwrap();
            arrived.load(std::sync::atomic::Ordering::SeqCst)
        })
        .unwrap();
        assert_eq!(seen, [5; 5]);
    }

    #[test]
    fn between_two_ranks_messages_match_in_order_also_with_oneself() {
        let got = on_threads(2, |ranks| {
            let other = 1 - ranks.rank();
            let (mut a, mut b, mut own) = ([0; 1], [0; 2], [0; 1]);
            ranks
                .exchange(
                    &[
                        (ranks.rank(), &[9]),
                        (other, &[1]),
                        (other, &[]),
                        (other, &[2, 3]),
                    ],
                    &mut [
                        (other, &mut a),
                        (other, &mut b),
                        (ranks.rank(), &mut own),
                        (other, &mut []),
                    ],
                )
                .unwrap();
            (a, b, own)
        })
        .unwrap();
        assert_eq!(got, [([1], [2, 3], [9]); 2]);
    }

    #[test]
    fn a_rank_that_ended_is_named_to_those_who_wait_for_it() {
        let got = on_threads(3, |ranks| match ranks.rank() {
            2 => Ok(()),
            other => ranks.exchange(&[], &mut [(other + 1, &mut [0])]),
        })
        .unwrap();
        assert_eq!(got[1], Err(RanksError::Lost { rank: 2 }));
        // Rank 1 ended after it.
        assert_eq!(got[0], Err(RanksError::Lost { rank: 1 }));
    }

    #[test]
    fn ranks_that_all_wait_are_told_so_instead_of_hanging() {
        let got = on_threads(4, |ranks| {
            let from = (ranks.rank() + 1) % 4;
            ranks.exchange(&[], &mut [(from, &mut [0])])
        })
        .unwrap();
        let told = |r: &&Result<(), RanksError>| matches!(r, Err(RanksError::AllWait { .. }));
        let lost = |r: &&Result<(), RanksError>| matches!(r, Err(RanksError::Lost { .. }));
        assert!(got.iter().any(|r| told(&r)));
        assert!(got.iter().all(|r| told(&r) || lost(&r)));
        let alone = on_threads(1, |ranks| ranks.exchange(&[], &mut [(0, &mut [0])])).unwrap();
        assert_eq!(alone, [Err(RanksError::AllWait { rank: 0, from: 0 })]);
    }

    #[test]
    fn messages_that_do_not_fit_are_errors_that_say_what_was_found() {
        let got = on_threads(2, |ranks| {
            let to = ranks.exchange(&[(2, &[1])], &mut []).unwrap_err();
            let from = ranks.exchange(&[], &mut [(7, &mut [1])]).unwrap_err();
            let other = 1 - ranks.rank();
            let length = ranks
                .exchange(&[(other, &[1, 2])], &mut [(other, &mut [0; 3])])
                .unwrap_err();
            [to, from, length].map(|e| e.to_string())
        })
        .unwrap();
        assert_eq!(
            got[0],
            [
                "expected a rank below 2, found 2",
                "expected a rank below 2, found 7",
                "rank 0 expected a message of 3 bytes from rank 1, found 2"
            ]
        );
    }

    #[test]
    fn a_panic_ends_the_others_and_is_an_error() {
        let error = on_threads(3, |ranks| {
            assert!(ranks.rank() != 1, "rank 1 panics here, as it should");
            ranks.barrier()
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "the thread of rank 1 panicked");
    }
}
