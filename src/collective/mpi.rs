//! The ranks of an MPI program.
//!
//! MPI is started once a process, with `MPI_THREAD_SERIALIZED`: a lock sees to it that one thread at a
//! time is in the library.
//!
//! # No hang
//!
//! Whoever waits longer than the time limit says what for, and ends all ranks with [`Mpi::LIMIT_CODE`]. It cannot return an error instead, as the library still has the memory of the messages
//! under way, and no call takes it back for certain (a send cannot be cancelled). Messages and
//! barriers are polled, the limit counts from the last one that was done, and the end is `MPI_Abort`.
//! `MPI_Allreduce` and `MPI_Finalize` only return when they are done; a thread that watches them ends
//! its process, upon which the launcher ends the others.
//!
//! What the limit does not cover is `MPI_Init`, before which there is no rank: use the launcher's
//! (`mpirun --timeout`, `sbatch --time`). A rank that dies is noticed by the launcher, and by the
//! others' limits where the launcher does not end them. Errors inside MPI end all ranks, with the
//! library's message (`MPI_ERRORS_ARE_FATAL`).

use std::collections::BTreeSet;
use std::io;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::{self, Universe};
use mpi::request::scope;
use mpi::topology::{Rank, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Equivalence, Source};
use thiserror::Error;

use super::ranks::{Ranks, RanksError, check_ranks};

/// Bytes of a message from which on it is cut: MPI counts in `int`.
const PIECE: usize = 1 << 30;

/// The tag of all messages; between two ranks they match in their order.
const TAG: mpi::Tag = 1;

/// A waiting rank first only looks, as messages between cores take microseconds; then it lets others
/// have the core, as there may be more ranks than cores; then it sleeps, longer the longer it waits, so
/// that it does not slow down whom it waits for. A sleep is at most a sixteenth of the wait, and
/// short enough for the fragments of a long message, which need calls to move.
const LOOK: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_millis(2);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// How long [`Mpi::abort`] waits for a thread to come out of the library.
const TURN: Duration = Duration::from_secs(1);

/// Tells the user why all ranks end.
pub type Say = fn(&RanksError);

/// Why MPI could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A time limit that is none.
    #[error("time limit of MPI: expected more than 0 seconds, found {found}")]
    Limit {
        /// What was given.
        found: f64,
    },
    /// The MPI library does not let threads take turns.
    #[error(
        "the MPI library allows threads: expected at least MPI_THREAD_SERIALIZED, found {found}\n\
         hint: use an MPI library that was built with support for threads"
    )]
    Threads {
        /// What it allows.
        found: &'static str,
    },
    /// The system refused a thread.
    #[error("cannot start the thread that watches over the time limit of MPI")]
    Watch(#[source] io::Error),
}

/// The ranks that the launcher started (`MPI_COMM_WORLD`).
///
/// Dropping it is `MPI_Finalize`, which waits for the other ranks to do so too. So a rank that fails
/// calls [`Mpi::abort`] instead; one that drops it in a panic aborts.
pub struct Mpi {
    rank: usize,
    size: usize,
    limit: Duration,
    say: Say,
    universe: Option<Universe>,
    /// The turn in the library, and room for what it sums.
    library: Mutex<Vec<f64>>,
    watch: Watch,
}

impl Mpi {
    /// The exit code of ranks that waited longer than the time limit.
    pub const LIMIT_CODE: i32 = 75;

    /// The exit code of ranks of which one panicked, as without MPI.
    pub const PANIC_CODE: i32 = 101;

    /// Starts MPI. No wait for other ranks is to take more than `limit_seconds`, which may be
    /// infinite; `say` is told of one that does, before the end. Without a launcher there is one
    /// rank. `None` where MPI was started before in this process, which can be done once only. If the
    /// library cannot start at all, it ends the process with its own message.
    ///
    /// # Errors
    /// A limit that is not above 0, a library without threads, a thread that the system refuses.
    pub fn start(limit_seconds: f64, say: Say) -> Result<Option<Self>, StartError> {
        if limit_seconds.is_nan() || limit_seconds <= 0.0 {
            return Err(StartError::Limit {
                found: limit_seconds,
            });
        }
        let limit = Duration::try_from_secs_f64(limit_seconds).unwrap_or(Duration::MAX);
        let Some((universe, threads)) =
            environment::initialize_with_threading(Threading::Serialized)
        else {
            return Ok(None);
        };
        if threads < Threading::Serialized {
            return Err(StartError::Threads {
                found: match threads {
                    Threading::Single => "MPI_THREAD_SINGLE",
                    _ => "MPI_THREAD_FUNNELED",
                },
            });
        }
        let world = universe.world();
        let rank = world.rank() as usize;
        Ok(Some(Self {
            rank,
            size: world.size() as usize,
            limit,
            universe: Some(universe),
            library: Mutex::default(),
            say,
            watch: Watch::start(rank, limit, say).map_err(StartError::Watch)?,
        }))
    }

    /// The name of the machine that this rank is on.
    pub fn processor_name(&self) -> String {
        let _turn = self.turn();
        environment::processor_name()
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    /// The name and version of the MPI library.
    pub fn library_version(&self) -> String {
        let version = environment::library_version()
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        version.trim_end_matches('\0').trim().to_owned()
    }

    /// Ends all ranks, with this exit code. For a rank that fails, after its message: the others would
    /// wait for it up to their time limits. From any thread.
    pub fn abort(&self, code: i32) -> ! {
        let start = Instant::now();
        loop {
            match self.library.try_lock() {
                Err(TryLockError::WouldBlock) if start.elapsed() < TURN => {
                    thread::sleep(LONGEST_SLEEP);
                }
                // Another thread is inside the library and does not come out.
                Err(TryLockError::WouldBlock) => end(code),
                Ok(_) | Err(TryLockError::Poisoned(_)) => SimpleCommunicator::world().abort(code),
            }
        }
    }

    fn turn(&self) -> MutexGuard<'_, Vec<f64>> {
        self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self, doing: String) -> ! {
        (self.say)(&timed_out(self.rank, self.limit, doing));
        self.abort(Self::LIMIT_CODE)
    }

    fn sum<T: Pod + Equivalence>(&self, values: &mut [T]) {
        if self.size == 1 || values.is_empty() {
            return;
        }
        let _watched = self.watch.over("the sum of all ranks (MPI_Allreduce)");
        let mut room = self.turn();
        let world = SimpleCommunicator::world();
        for piece in values.chunks_mut(PIECE / size_of::<T>()) {
            let needed = size_of_val(piece).div_ceil(size_of::<f64>());
            if room.len() < needed {
                room.resize(needed, 0.0);
            }
            let terms = &mut bytemuck::cast_slice_mut::<f64, T>(&mut room)[..piece.len()];
            terms.copy_from_slice(piece);
            world.all_reduce_into(&*terms, piece, SystemOperation::sum());
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort(Self::PANIC_CODE);
        }
        let _watched = self.watch.over("the end of all ranks (MPI_Finalize)");
        self.universe = None;
    }
}

/// One message, or a piece of one.
#[derive(Debug, Clone, Copy)]
struct Part {
    receive: bool,
    other: usize,
    bytes: usize,
}

impl Part {
    fn new(receive: bool, other: usize, piece: &[u8]) -> Self {
        Self {
            receive,
            other,
            bytes: piece.len(),
        }
    }
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// Ends all ranks when the time limit is over.
    fn exchange(
        &self,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
    ) -> Result<(), RanksError> {
        check_ranks(self.size, sends, receives)?;
        let world = SimpleCommunicator::world();
        // Ranks below the size, which came as a `Rank`.
        let id = |rank: usize| Rank::try_from(rank).unwrap_or(Rank::MAX);
        scope(|scope| {
            let mut requests = Vec::with_capacity(sends.len() + receives.len());
            let turn = self.turn();
            for (from, place) in receives {
                for piece in place.chunks_mut(PIECE) {
                    let part = Part::new(true, *from, piece);
                    let source = world.process_at_rank(id(*from));
                    let request = source.immediate_receive_into_with_tag(scope, piece, TAG);
                    requests.push((part, request));
                }
            }
            for (to, data) in sends {
                for piece in data.chunks(PIECE) {
                    let part = Part::new(false, *to, piece);
                    let destination = world.process_at_rank(id(*to));
                    let request = destination.immediate_send_with_tag(scope, piece, TAG);
                    requests.push((part, request));
                }
            }
            drop(turn);
            let mut wrong = None;
            let mut left = Vec::with_capacity(requests.len());
            let mut wait = Wait::start(self.limit);
            loop {
                let before = requests.len();
                let turn = self.turn();
                for (part, request) in requests.drain(..) {
                    match request.test() {
                        Ok(status) if part.receive => {
                            let found = status.count(u8::equivalent_datatype()) as usize;
                            if found != part.bytes && wrong.is_none() {
                                wrong = Some(RanksError::Message {
                                    rank: self.rank,
                                    from: part.other,
                                    expected: part.bytes,
                                    found,
                                });
                            }
                        }
                        Ok(_) => {}
                        Err(request) => left.push((part, request)),
                    }
                }
                drop(turn);
                std::mem::swap(&mut requests, &mut left);
                if requests.is_empty() {
                    return wrong.map_or(Ok(()), Err);
                }
                if requests.len() < before {
                    wait = Wait::start(self.limit);
                }
                if !wait.a_little() {
                    let parts = requests.iter().map(|(part, _)| *part);
                    self.give_up(unfinished(parts));
                }
            }
        })
    }

    fn sum_native_f32(&self, values: &mut [f32]) -> Result<(), RanksError> {
        self.sum(values);
        Ok(())
    }

    fn sum_native_f64(&self, values: &mut [f64]) -> Result<(), RanksError> {
        self.sum(values);
        Ok(())
    }

    /// Ends all ranks when the time limit is over.
    fn barrier(&self) -> Result<(), RanksError> {
        let turn = self.turn();
        let mut request = SimpleCommunicator::world().immediate_barrier();
        drop(turn);
        let wait = Wait::start(self.limit);
        loop {
            let turn = self.turn();
            let tested = request.test();
            drop(turn);
            match tested {
                Ok(_) => return Ok(()),
                Err(still) => request = still,
            }
            if !wait.a_little() {
                self.give_up("all ranks to meet (MPI_Ibarrier)".to_owned());
            }
        }
    }
}

/// What is not done, in words.
fn unfinished(parts: impl Iterator<Item = Part>) -> String {
    let (receives, sends): (Vec<Part>, Vec<Part>) = parts.partition(|part| part.receive);
    let list = |parts: &[Part], what: &str| {
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let others: BTreeSet<usize> = parts.iter().map(|part| part.other).collect();
        let names: Vec<String> = others.iter().take(8).map(ToString::to_string).collect();
        let more = if others.len() > names.len() {
            ", ..."
        } else {
            ""
        };
        format!("{bytes} bytes {what} {}{more}", names.join(", "))
    };
    match (&receives[..], &sends[..]) {
        (receives, []) => list(receives, "from rank"),
        ([], sends) => list(sends, "to rank"),
        (receives, sends) => list(receives, "from rank") + " and for " + &list(sends, "to rank"),
    }
}

/// The last words of a process.
fn timed_out(rank: usize, limit: Duration, doing: String) -> RanksError {
    RanksError::TimedOut {
        rank,
        seconds: limit.as_secs_f64(),
        doing,
    }
}

/// Ends this process while a thread is inside the library; the launcher ends the others.
fn end(code: i32) -> ! {
    // For libraries whose clean-up waits for that thread. Without this thread, too, most end.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(TURN);
        process::abort()
    });
    process::exit(code)
}

/// A wait, more and more patient.
struct Wait {
    start: Instant,
    limit: Duration,
}

impl Wait {
    fn start(limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            limit,
        }
    }

    /// Waits for a little; `false` if the limit is over.
    fn a_little(&self) -> bool {
        let waited = self.start.elapsed();
        if waited < LOOK {
            std::hint::spin_loop();
        } else if waited < YIELD {
            thread::yield_now();
        } else {
            thread::sleep((waited / 16).min(LONGEST_SLEEP));
        }
        waited < self.limit
    }
}

/// A thread that ends the process when a call takes too long.
struct Watch {
    now: Arc<(Mutex<Watched>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Watched {
    /// Since when, and what for, some thread is inside.
    inside: Option<(Instant, &'static str)>,
    ended: bool,
}

impl Watch {
    fn start(rank: usize, limit: Duration, say: Say) -> io::Result<Self> {
        let now: Arc<(Mutex<Watched>, Condvar)> = Arc::default();
        let seen = Arc::clone(&now);
        let interval = (limit / 10).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let thread = thread::Builder::new()
            .name("MPI time limit".to_owned())
            .spawn(move || {
                let (watched, bell) = &*seen;
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                while !watched.ended {
                    if let Some((start, doing)) = watched.inside
                        && start.elapsed() >= limit
                    {
                        say(&timed_out(rank, limit, doing.to_owned()));
                        end(Mpi::LIMIT_CODE);
                    }
                    watched = bell
                        .wait_timeout(watched, interval)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
            })?;
        Ok(Self {
            now,
            thread: Some(thread),
        })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.now.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches until the returned value is dropped.
    fn over(&self, doing: &'static str) -> Inside<'_> {
        self.watched().inside = Some((Instant::now(), doing));
        Inside(self)
    }
}

struct Inside<'a>(&'a Watch);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.watched().inside = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watched().ended = true;
        self.now.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_named_by_rank() {
        let part = |receive, other| Part::new(receive, other, &[0; 10]);
        let receives = [part(true, 2), part(true, 1), part(true, 2)];
        let sends: Vec<Part> = (0..20).map(|other| part(false, other)).collect();
        assert_eq!(unfinished(receives.into_iter()), "30 bytes from rank 1, 2");
        assert_eq!(
            unfinished(sends.iter().copied()),
            "200 bytes to rank 0, 1, 2, 3, 4, 5, 6, 7, ..."
        );
        assert_eq!(
            unfinished(receives.into_iter().chain(sends).take(4)),
            "30 bytes from rank 1, 2 and for 10 bytes to rank 0"
        );
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let wait = Wait::start(Duration::from_millis(5));
        while wait.a_little() {}
        assert!(wait.start.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn limits_that_are_none_are_refused_before_mpi_starts() {
        for limit in [0.0, -1.0, f64::NAN] {
            assert!(matches!(
                Mpi::start(limit, |_| ()),
                Err(StartError::Limit { .. })
            ));
        }
        assert!(!environment::is_initialized());
    }
}
