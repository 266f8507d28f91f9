//! Persistent threads that share the pieces of one step.
//!
//! Threads made anew each step would gain nothing: their memory arrives page by page. These live
//! as long as a trial and keep what their allocator has.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// How often a waiting thread looks before it sleeps. A step's serial part (update, next point)
/// takes about this long, and waking a sleeping thread takes longer than many a small piece.
const LOOKS_BEFORE_SLEEP: u32 = 20_000;

struct Job<'env> {
    tasks: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    work: Box<dyn Fn(usize) + Send + Sync + 'env>,
    caller: Thread,
}

impl Job<'_> {
    /// Takes tasks until none is left.
    fn help(&self) {
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= self.tasks {
                return;
            }
            (self.work)(task);
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
                self.caller.unpark();
            }
        }
    }
}

/// A pool of threads; the calling thread works too.
pub struct Pool<'env> {
    helpers: Vec<Sender<Arc<Job<'env>>>>,
}

impl<'env> Pool<'env> {
    /// Runs `body` with a pool of `threads` threads, the calling one included.
    pub fn with<R>(threads: usize, body: impl FnOnce(&Pool<'env>) -> R) -> R {
        thread::scope(|scope| {
            let helpers = (1..threads)
                .filter_map(|i| {
                    let (sender, receiver) = channel::<Arc<Job<'env>>>();
                    // A thread that the system refuses is one helper less, not an error.
                    thread::Builder::new()
                        .name(format!("trial worker, helper {i}"))
                        .spawn_scoped(scope, move || {
                            while let Some(job) = next_job(&receiver) {
                                job.help();
                            }
                        })
                        .ok()
                        .map(|_| sender)
                })
                .collect();
            body(&Pool { helpers })
        })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// The results of `work(0)`, ..., `work(tasks - 1)`, in order. Tasks are started in order.
    /// `work` must not panic.
    pub fn map<T: Send + 'env>(
        &self,
        tasks: usize,
        work: impl Fn(usize) -> T + Send + Sync + 'env,
    ) -> Vec<T> {
        if tasks <= 1 || self.helpers.is_empty() {
            return (0..tasks).map(work).collect();
        }
        let results: Arc<Vec<Mutex<Option<T>>>> =
            Arc::new((0..tasks).map(|_| Mutex::new(None)).collect());
        let slots = Arc::clone(&results);
        let job = Arc::new(Job {
            tasks,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            work: Box::new(move |task| {
                let result = work(task);
                *slots[task].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }),
            caller: thread::current(),
        });
        for helper in self.helpers.iter().take(tasks - 1) {
            // A helper only ends when the pool does.
            let _ = helper.send(Arc::clone(&job));
        }
        job.help();
        let mut looks = 0;
        while job.done.load(Ordering::Acquire) < tasks {
            looks += 1;
            if looks < LOOKS_BEFORE_SLEEP {
                std::hint::spin_loop();
            } else {
                thread::park();
            }
        }
        results
            .iter()
            .filter_map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take())
            .collect()
    }
}

fn next_job<T>(receiver: &Receiver<T>) -> Option<T> {
    for _ in 0..LOOKS_BEFORE_SLEEP {
        match receiver.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    receiver.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        for threads in 1..=4 {
            Pool::with(threads, |pool| {
                for tasks in [0, 1, 2, 3, 17, 1000] {
                    let squares = pool.map(tasks, |i| i * i);
                    assert_eq!(squares, (0..tasks).map(|i| i * i).collect::<Vec<_>>());
                }
            });
        }
    }
}
