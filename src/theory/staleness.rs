//! Workers that send gradients to a parameter server, on a simulated clock: who reads which version of
//! the parameters and when its gradient is applied.
//!
//! A worker reads the parameters, computes a gradient for a random time, and sends it; the server applies
//! gradients one after another, each of which makes a new version, and the worker reads again. The
//! staleness of a gradient is the number of versions made between its reading and its application,
//! its own not counted. No gradient is computed here: the events say what a training loop is to do, in
//! which order.
//!
//! Without barriers P workers that live always have P - 1 gradients under way while another is applied,
//! and each application makes all of those one version older. So the staleness of all gradients applied,
//! and the age of those still under way, add up to (P - 1) times the number applied: the mean staleness
//! is P - 1 whatever the times are. Only the shape of its histogram depends on them: one bar for equal
//! constant times, geometric with P(k) = (1 - 1/P)^k/P for exponential ones.
//!
//! Times come from uniform numbers that the caller draws (one stream per worker), so a simulation is a
//! function of the seed: `rng::Stream` in this crate.
//!
//! Sources: Ho et al. 2013 (stale synchronous parallel), Mitliagkas et al. 2016 (arXiv 1605.09774: the
//! geometric law, and asynchrony as momentum 1 - 1/P), Zhang et al. 2016 (arXiv 1511.05950: rates
//! divided by the staleness).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use statrs::distribution::{ContinuousCDF, Normal};
use thiserror::Error;

/// How the time of one gradient is distributed. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Times {
    /// Always the mean.
    Constant {
        /// Mean, above 0.
        mean: f64,
    },
    /// Exponential: without memory, with a standard deviation equal to the mean.
    Exponential {
        /// Mean, above 0.
        mean: f64,
    },
    /// The logarithm is normal.
    LogNormal {
        /// Mean, above 0.
        mean: f64,
        /// Standard deviation over mean, at least 0.
        cv: f64,
    },
    /// A least time, mean (1 - cv), and an exponential time of mean cv x mean after it.
    ShiftedExponential {
        /// Mean, above 0.
        mean: f64,
        /// Standard deviation over mean, in [0, 1].
        cv: f64,
    },
}

/// H_n = 1 + 1/2 + ... + 1/n.
///
/// ```
/// # use batchlab::theory::staleness::harmonic_number;
/// assert!((harmonic_number(4) - 25.0 / 12.0).abs() < 1e-15);
/// ```
pub fn harmonic_number(n: u64) -> f64 {
    if n <= 64 {
        return (1..=n).rev().map(|k| 1.0 / k as f64).sum();
    }
    // The next term of the expansion is 1/(252 n^6).
    let square = (n as f64).powi(-2);
    let euler = 0.577_215_664_901_532_9;
    (n as f64).ln() + euler + 0.5 / n as f64 - square / 12.0 + square * square / 120.0
}

impl Times {
    /// `constant`, `exponential`, `lognormal` or `shifted-exponential`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant { .. } => "constant",
            Self::Exponential { .. } => "exponential",
            Self::LogNormal { .. } => "lognormal",
            Self::ShiftedExponential { .. } => "shifted-exponential",
        }
    }

    /// Mean, in seconds.
    pub fn mean(self) -> f64 {
        match self {
            Self::Constant { mean }
            | Self::Exponential { mean }
            | Self::LogNormal { mean, .. }
            | Self::ShiftedExponential { mean, .. } => mean,
        }
    }

    /// Standard deviation over mean.
    pub fn cv(self) -> f64 {
        match self {
            Self::Constant { .. } => 0.0,
            Self::Exponential { .. } => 1.0,
            Self::LogNormal { cv, .. } | Self::ShiftedExponential { cv, .. } => cv,
        }
    }

    /// The time that is not exceeded with probability `u` in [0, 1): a draw, if `u` is uniform.
    ///
    /// ```
    /// # use batchlab::theory::staleness::Times;
    /// assert!((Times::Exponential { mean: 2.0 }.quantile(0.5) - 2.0 * 2_f64.ln()).abs() < 1e-15);
    /// ```
    pub fn quantile(self, u: f64) -> f64 {
        match self {
            Self::Constant { mean } => mean,
            Self::Exponential { mean } => -mean * (-u).ln_1p(),
            Self::LogNormal { mean, cv } => {
                let variance = (cv * cv).ln_1p();
                let deviation = variance.sqrt() * Normal::standard().inverse_cdf(u);
                mean * (deviation - 0.5 * variance).exp()
            }
            Self::ShiftedExponential { mean, cv } => mean * (1.0 - cv - cv * (-u).ln_1p()),
        }
    }

    /// Expected longest of the times of this many workers: what an update takes that waits for all of
    /// them. H_P x mean for exponential times; by quadrature for lognormal ones.
    ///
    /// ```
    /// # use batchlab::theory::staleness::Times;
    /// assert_eq!(Times::Exponential { mean: 4.0 }.expected_longest(2), 6.0);
    /// assert_eq!(Times::Constant { mean: 4.0 }.expected_longest(1000), 4.0);
    /// ```
    pub fn expected_longest(self, workers: u64) -> f64 {
        match self {
            Self::Constant { mean } => mean,
            Self::Exponential { mean } => mean * harmonic_number(workers),
            Self::ShiftedExponential { mean, cv } => {
                mean * (1.0 - cv + cv * harmonic_number(workers))
            }
            Self::LogNormal { mean, cv } => mean * longest_of_lognormal(cv, workers as f64),
        }
    }

    /// A number that cannot be: its name, what it should be, and what it is.
    pub(super) fn wrong(self) -> Option<(&'static str, &'static str, f64)> {
        let (mean, cv) = (self.mean(), self.cv());
        let largest = match self {
            Self::ShiftedExponential { .. } => 1.0,
            _ => f64::MAX,
        };
        if !(mean > 0.0 && mean.is_finite()) {
            Some(("mean", "above 0 and finite", mean))
        } else if !(0.0..=largest).contains(&cv) {
            let expected = if largest == 1.0 {
                "between 0 and 1"
            } else {
                "at least 0 and finite"
            };
            Some(("cv", expected, cv))
        } else {
            None
        }
    }
}

/// Expected largest of p lognormal times of mean 1: the integral of e^(sz - s^2/2) over the density of the
/// largest of p standard normal numbers, p phi(z) Phi(z)^(p-1), by the trapezoidal rule, which converges
/// exponentially for so smooth a function.
fn longest_of_lognormal(cv: f64, p: f64) -> f64 {
    const STEP: f64 = 1.0 / 16.0;
    let normal = Normal::standard();
    let variance = (cv * cv).ln_1p();
    let s = variance.sqrt();
    // The largest of p lies mostly below (2 ln p)^(1/2), and the weight moves all by s.
    let high = (2.0 * p.ln()).sqrt() + s + 10.0;
    let points = ((high + 10.0) / STEP).ceil() as u32;
    let total: f64 = (0..=points)
        .map(|i| {
            let z = high - STEP * f64::from(i);
            // Phi(z) may be 0, and its logarithm times 0 is not.
            let below = if p > 1.0 {
                (p - 1.0) * (-normal.sf(z)).ln_1p()
            } else {
                0.0
            };
            (below + s * z - 0.5 * (variance + z * z)).exp()
        })
        .sum();
    total * STEP * p / std::f64::consts::TAU.sqrt()
}

/// A worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worker {
    /// How long it takes for a gradient.
    pub times: Times,
    /// What its times are multiplied by, above 0: 1 for most, more for a straggler.
    pub slowdown: f64,
    /// When it dies, in seconds; infinite for never. A gradient not finished by then is lost.
    pub dies_at: f64,
}

impl Worker {
    /// A worker that lives, at its own speed.
    pub fn new(times: Times) -> Self {
        Self {
            times,
            slowdown: 1.0,
            dies_at: f64::INFINITY,
        }
    }
}

/// Who waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// All wait for all; the mean of their gradients makes one version. Staleness is 0.
    Synchronous,
    /// A worker that has sent c gradients begins the next only while no other has sent fewer than c - s
    /// (stale synchronous parallel). Each gradient makes a version. With s = 0 all of a round read the
    /// same version, at the same times as `Synchronous`, and their gradients are applied one by one: at
    /// the rate a/P, the synchronous update. No staleness is above (2 s + 1)(P - 1).
    Bounded(u64),
    /// Nobody waits.
    Asynchronous,
}

/// The server and what lies between it and the workers. All times are in seconds, at least 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server {
    /// To send parameters to a worker and a gradient back, together: added to each gradient's time.
    pub transfer: f64,
    /// To apply one gradient; gradients queue in the order of their arrival.
    pub service: f64,
    /// From the death of a worker until nobody waits for it any more; infinite for never.
    pub detection: f64,
}

impl Server {
    /// A server that costs no time and sees deaths at once.
    pub const IDEAL: Self = Self {
        transfer: 0.0,
        service: 0.0,
        detection: 0.0,
    };
}

/// A gradient that was applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// When, in seconds.
    pub time: f64,
    /// Whose, from 0.
    pub worker: usize,
    /// How many gradients this worker had sent before it.
    pub clock: u64,
    /// By how many gradients the worker was ahead of the slowest that others still wait for, when it read.
    pub lead: u64,
    /// When the parameters were read.
    pub started: f64,
    /// How long the worker had waited for others before it read.
    pub waited: f64,
    /// The version read; the parameters at the start are version 0.
    pub read: u64,
    /// The version made. Under `Synchronous` all gradients of an update make the same one, their mean.
    pub applied: u64,
}

impl Event {
    /// Versions made since the reading, without this one.
    pub fn staleness(&self) -> u64 {
        self.applied - self.read - 1
    }
}

/// Why no event follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    /// All workers are dead.
    NobodyLeft,
    /// All that live wait, since `at` seconds, for one that is dead and that nobody strikes off.
    Stalled {
        /// Seconds.
        at: f64,
    },
}

/// Settings that no cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum SettingError {
    /// A simulation of nobody.
    #[error("a cluster needs at least 1 worker, found 0")]
    NoWorkers,
    /// A number of a worker.
    #[error("worker {worker}: {field} should be {expected}, found {found}")]
    Worker {
        /// From 0.
        worker: usize,
        /// Its name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// A number of the server.
    #[error("server: {field} should be a number of seconds, at least 0, found {found}")]
    Server {
        /// Its name.
        field: &'static str,
        /// What it is.
        found: f64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// A gradient reaches the server.
    Arrival,
    /// Others stop to wait for a dead worker.
    Removal,
}

/// What happens next, ordered by time; ties in the order of kinds, then of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Due {
    time: f64,
    kind: Kind,
    worker: usize,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |due: &Self| (due.kind == Kind::Removal, due.worker);
        self.time
            .total_cmp(&other.time)
            .then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone, Copy)]
struct State {
    worker: Worker,
    /// Gradients sent.
    clock: u64,
    /// Waiting for others since.
    waiting: Option<f64>,
    /// What it read when it began the gradient under way: `time` and `applied` are not known yet.
    under_way: Event,
}

/// The events, one after another, for as long as they are asked for; see the [module](self).
///
/// ```
/// # use batchlab::theory::staleness::{Discipline, Server, Simulation, Times, Worker};
/// let workers = vec![Worker::new(Times::Constant { mean: 1.0 }); 4];
/// let draw = |_worker| 0.5;
/// let events: Vec<_> = Simulation::new(&workers, Discipline::Asynchronous, Server::IDEAL, draw)?
///     .take(8)
///     .collect();
/// let staleness: Vec<u64> = events.iter().map(|event| event.staleness()).collect();
/// assert_eq!(staleness, [0, 1, 2, 3, 3, 3, 3, 3]);
/// # Ok::<(), batchlab::theory::staleness::SettingError>(())
/// ```
#[derive(Debug)]
pub struct Simulation<D> {
    discipline: Discipline,
    server: Server,
    draw: D,
    workers: Vec<State>,
    queue: BinaryHeap<Reverse<Due>>,
    /// How many of those waited for have sent how many gradients.
    clocks: BTreeMap<u64, usize>,
    /// Gradients of an update that is not complete.
    round: Vec<Event>,
    /// Events not yet given out.
    ready: VecDeque<Event>,
    version: u64,
    /// When the server is done with what it has.
    free: f64,
    end: Option<End>,
}

impl<D: FnMut(usize) -> f64> Simulation<D> {
    /// All workers read version 0 at time 0.
    ///
    /// `draw(w)` is the next uniform number in [0, 1) of worker w, one for each gradient it begins. With
    /// a stream for each worker, times of one do not depend on the others, nor on the discipline.
    ///
    /// # Errors
    /// If there is no worker or a number is out of the range that its field states.
    pub fn new(
        workers: &[Worker],
        discipline: Discipline,
        server: Server,
        draw: D,
    ) -> Result<Self, SettingError> {
        check(workers, server)?;
        let idle = Event {
            time: 0.0,
            worker: 0,
            clock: 0,
            lead: 0,
            started: 0.0,
            waited: 0.0,
            read: 0,
            applied: 0,
        };
        let mut simulation = Self {
            discipline,
            server,
            draw,
            workers: workers
                .iter()
                .map(|&worker| State {
                    worker,
                    clock: 0,
                    waiting: None,
                    under_way: idle,
                })
                .collect(),
            queue: BinaryHeap::new(),
            clocks: BTreeMap::from([(0, workers.len())]),
            round: Vec::new(),
            ready: VecDeque::new(),
            version: 0,
            free: 0.0,
            end: None,
        };
        for worker in 0..workers.len() {
            simulation.begin(worker, 0.0, 0.0);
        }
        Ok(simulation)
    }

    /// Why the events ended; `None` while there may be more.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Whether the worker has read this version and its gradient has not been given out as an event:
    /// whoever carries the events out must keep that version for it. Asked between two events, of
    /// versions up to that of the last one.
    pub fn has_read(&self, worker: usize, version: u64) -> bool {
        let waits = self.ready.iter().chain(&self.round);
        let reads = |event: &Event| event.worker == worker && event.read == version;
        let under_way = self
            .workers
            .get(worker)
            .is_some_and(|state| state.waiting.is_none() && state.under_way.read == version);
        under_way || waits.into_iter().any(reads)
    }

    /// Gradients sent by the slowest that others wait for.
    fn slowest(&self) -> u64 {
        self.clocks.first_key_value().map_or(0, |(&clock, _)| clock)
    }

    /// The worker reads and computes, or is found dead.
    fn begin(&mut self, worker: usize, now: f64, waited: f64) {
        let slowest = self.slowest();
        let state = &mut self.workers[worker];
        state.waiting = None;
        state.under_way = Event {
            time: now,
            worker,
            clock: state.clock,
            lead: state.clock.saturating_sub(slowest),
            started: now,
            waited,
            read: self.version,
            applied: self.version,
        };
        let time = state.worker.times.quantile((self.draw)(worker)) * state.worker.slowdown;
        let arrival = now + time + self.server.transfer;
        let dies_at = state.worker.dies_at;
        if arrival <= dies_at {
            self.queue.push(Reverse(Due {
                time: arrival,
                kind: Kind::Arrival,
                worker,
            }));
        } else if self.server.detection.is_finite() {
            self.queue.push(Reverse(Due {
                time: (dies_at + self.server.detection).max(now),
                kind: Kind::Removal,
                worker,
            }));
        }
    }

    fn happens(&mut self, due: Due) {
        let clock = self.workers[due.worker].clock;
        if let Some(count) = self.clocks.get_mut(&clock) {
            *count -= 1;
            if *count == 0 {
                self.clocks.remove(&clock);
            }
        }
        let mut now = due.time;
        if due.kind == Kind::Arrival {
            *self.clocks.entry(clock + 1).or_default() += 1;
            self.free = self.free.max(due.time) + self.server.service;
            now = self.free;
            let state = &mut self.workers[due.worker];
            state.clock += 1;
            state.waiting = Some(now);
            let event = Event {
                time: now,
                ..state.under_way
            };
            if self.discipline == Discipline::Synchronous {
                self.round.push(event);
            } else {
                self.version += 1;
                self.ready.push_back(Event {
                    applied: self.version,
                    ..event
                });
            }
        }
        // Nobody has to wait for a worker that was only found dead, nor for one that is not the slowest.
        let allowed = match self.discipline {
            Discipline::Asynchronous => u64::MAX,
            Discipline::Bounded(s) => s,
            Discipline::Synchronous => 0,
        };
        let slowest = self.slowest();
        let free = |state: &State| {
            let lead = state.clock.saturating_sub(slowest);
            state.waiting.filter(|_| lead <= allowed)
        };
        if self.clocks.contains_key(&clock) || self.discipline == Discipline::Asynchronous {
            // The slowest are as slow as before: this one alone may go on.
            if let Some(since) = free(&self.workers[due.worker]) {
                self.begin(due.worker, now, now - since);
            }
            return;
        }
        if self.discipline == Discipline::Synchronous && !self.round.is_empty() {
            now = now.max(self.free);
            self.version += 1;
            let (time, applied) = (now, self.version);
            let round = self.round.drain(..);
            self.ready.extend(round.map(|event| Event {
                time,
                applied,
                ..event
            }));
        }
        let released: Vec<(usize, f64)> = (0..)
            .zip(&self.workers)
            .filter_map(|(worker, state)| Some((worker, free(state)?)))
            .collect();
        for (worker, since) in released {
            self.begin(worker, now, now - since);
        }
    }
}

impl<D: FnMut(usize) -> f64> Iterator for Simulation<D> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if let Some(Reverse(due)) = self.queue.pop() {
                self.happens(due);
                continue;
            }
            let waiting = self.workers.iter().filter_map(|state| state.waiting);
            self.end = Some(
                waiting
                    .reduce(f64::max)
                    .map_or(End::NobodyLeft, |at| End::Stalled { at }),
            );
            return None;
        }
    }
}

fn check(workers: &[Worker], server: Server) -> Result<(), SettingError> {
    if workers.is_empty() {
        return Err(SettingError::NoWorkers);
    }
    for (index, worker) in workers.iter().enumerate() {
        let wrong = if !(worker.slowdown > 0.0 && worker.slowdown.is_finite()) {
            Some(("slowdown", "above 0 and finite", worker.slowdown))
        } else if worker.dies_at.is_nan() {
            Some(("dies_at", "a number of seconds", worker.dies_at))
        } else {
            worker.times.wrong()
        };
        if let Some((field, expected, found)) = wrong {
            return Err(SettingError::Worker {
                worker: index,
                field,
                expected,
                found,
            });
        }
    }
    for (field, found, largest) in [
        ("transfer", server.transfer, f64::MAX),
        ("service", server.service, f64::MAX),
        ("detection", server.detection, f64::INFINITY),
    ] {
        if !(0.0..=largest).contains(&found) {
            return Err(SettingError::Server { field, found });
        }
    }
    Ok(())
}

/// What events come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Gradients applied.
    pub gradients: u64,
    /// Versions made.
    pub updates: u64,
    /// Time of the last, in seconds.
    pub seconds: f64,
    /// How many gradients had which staleness, from 0 on.
    pub histogram: Vec<u64>,
    /// Gradients applied, by worker.
    pub by_worker: Vec<u64>,
    /// Seconds that workers waited for others, in total.
    pub waited: f64,
}

impl Summary {
    /// Counts events.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut summary = Self {
            gradients: 0,
            updates: 0,
            seconds: 0.0,
            histogram: Vec::new(),
            by_worker: Vec::new(),
            waited: 0.0,
        };
        let mut last = None;
        let count = |counts: &mut Vec<u64>, at: usize| {
            if counts.len() <= at {
                counts.resize(at + 1, 0);
            }
            counts[at] += 1;
        };
        for event in events {
            summary.gradients += 1;
            if last.replace(event.applied) != Some(event.applied) {
                summary.updates += 1;
            }
            summary.seconds = event.time;
            count(&mut summary.histogram, event.staleness() as usize);
            count(&mut summary.by_worker, event.worker);
            summary.waited += event.waited;
        }
        summary
    }

    /// Mean staleness; `None` of no gradients.
    pub fn mean_staleness(&self) -> Option<f64> {
        let total: u64 = (0..).zip(&self.histogram).map(|(k, n)| k * n).sum();
        (self.gradients > 0).then(|| total as f64 / self.gradients as f64)
    }

    /// Largest staleness; `None` of no gradients.
    pub fn largest_staleness(&self) -> Option<u64> {
        (self.histogram.len() as u64).checked_sub(1)
    }

    /// Gradients applied per second; `None` where no time has passed.
    pub fn throughput(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.gradients as f64 / self.seconds)
    }
}

/// Gradients per second of asynchronous workers that an ideal server keeps busy: the sum of 1/mean.
pub fn asynchronous_throughput(workers: &[Worker]) -> f64 {
    let rates = workers.iter().map(|w| 1.0 / (w.times.mean() * w.slowdown));
    rates.sum()
}

/// The rate for a gradient of this staleness: a/max(1, staleness). Zhang et al. 2016 (arXiv 1511.05950).
///
/// ```
/// # use batchlab::theory::staleness::stale_rate;
/// assert_eq!([0, 1, 4].map(|staleness| stale_rate(0.4, staleness)), [0.4, 0.4, 0.1]);
/// ```
pub fn stale_rate(rate: f64, staleness: u64) -> f64 {
    rate / staleness.max(1) as f64
}

/// 1 - 1/P, the momentum that P asynchronous workers of exponential times amount to in expectation:
/// geometric staleness averages gradients as heavy ball does. Mitliagkas et al. 2016 (arXiv 1605.09774).
pub fn implicit_momentum(workers: u64) -> f64 {
    1.0 - 1.0 / workers as f64
}

/// The momentum to use with stale gradients so that gradients act as late, on average, as with momentum m
/// and fresh ones: heavy ball spreads a gradient over later updates with mean age m/(1 - m), and ages of
/// spreading and of staleness add. 0 where the staleness alone is more than that.
///
/// Momentum 1 - 1/P has just the mean age P - 1 of the staleness of P workers, which is why they amount to
/// it ([`implicit_momentum`]).
///
/// ```
/// # use batchlab::theory::staleness::corrected_momentum;
/// assert!((corrected_momentum(0.9, 8.0) - 0.5).abs() < 1e-14);
/// assert_eq!(corrected_momentum(0.9, 15.0), 0.0);
/// ```
pub fn corrected_momentum(momentum: f64, mean_staleness: f64) -> f64 {
    let age = momentum / (1.0 - momentum) - mean_staleness;
    if age > 0.0 { age / (1.0 + age) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::statistics::Moments;
    use crate::rng::Stream;

    #[track_caller]
    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "{found} instead of {expected}"
        );
    }

    fn uniform(seed: u64, workers: usize) -> impl FnMut(usize) -> f64 {
        let mut streams: Vec<Stream> = (0..workers as u64)
            .map(|worker| Stream::new(seed, "worker-times", worker))
            .collect();
        move |worker| streams[worker].uniform()
    }

    fn simulate(
        workers: &[Worker],
        discipline: Discipline,
        seed: u64,
    ) -> Simulation<impl FnMut(usize) -> f64> {
        let draw = uniform(seed, workers.len());
        Simulation::new(workers, discipline, Server::IDEAL, draw).unwrap()
    }

    const ALL: [Times; 4] = [
        Times::Constant { mean: 2.0 },
        Times::Exponential { mean: 2.0 },
        Times::LogNormal { mean: 2.0, cv: 0.6 },
        Times::ShiftedExponential { mean: 2.0, cv: 0.3 },
    ];

    #[test]
    fn workers_of_one_constant_speed_are_all_but_one_stale_after_the_start() {
        for p in [1, 2, 5, 16] {
            let workers = vec![Worker::new(Times::Constant { mean: 0.5 }); p];
            let events: Vec<Event> = simulate(&workers, Discipline::Asynchronous, 0)
                .take(10 * p)
                .collect();
            for (i, event) in events.iter().enumerate() {
                assert_eq!(event.staleness(), i.min(p - 1) as u64);
                assert_eq!(event.worker, i % p);
                close(event.time, 0.5 * (i / p + 1) as f64, 1e-12);
                assert_eq!(event.applied, i as u64 + 1);
            }
        }
    }

    #[test]
    fn staleness_and_the_age_of_what_is_under_way_add_up_exactly() {
        for times in ALL {
            let mut workers = vec![Worker::new(times); 7];
            workers[3].slowdown = 5.0;
            let events: Vec<Event> = simulate(&workers, Discipline::Asynchronous, 9)
                .take(5000)
                .collect();
            let applied: u64 = events.iter().map(Event::staleness).sum();
            // Each worker has read last where its last gradient was applied.
            let under_way: u64 = (0..7)
                .map(|w| {
                    let last = events.iter().rfind(|e| e.worker == w);
                    5000 - last.map_or(0, |e| e.applied)
                })
                .sum();
            assert_eq!(applied + under_way, 6 * 5000);
            let mean = Summary::of(&events).mean_staleness().unwrap();
            close(mean, 6.0, under_way as f64 / 5000.0 + 1e-12);
        }
    }

    #[test]
    fn exponential_workers_have_geometric_staleness() {
        let workers = vec![Worker::new(Times::Exponential { mean: 1.0 }); 5];
        let n = 200_000;
        let events: Vec<Event> = simulate(&workers, Discipline::Asynchronous, 1)
            .take(n)
            .collect();
        let summary = Summary::of(&events);
        close(summary.mean_staleness().unwrap(), 4.0, 1e-3);
        // Chi-squared of 0 .. 19 and the rest: 45.3 is p = 0.001 with 20 degrees of freedom.
        let mut rest = (n as f64, n as f64);
        let mut chi = 0.0;
        for k in 0..20 {
            let expected = n as f64 * 0.2 * 0.8_f64.powi(i32::try_from(k).unwrap());
            let found = summary.histogram[k] as f64;
            chi += (found - expected).powi(2) / expected;
            rest = (rest.0 - expected, rest.1 - found);
        }
        chi += (rest.1 - rest.0).powi(2) / rest.0;
        assert!(chi < 45.3, "chi-squared {chi}");
        // A Poisson process of 5 gradients per second.
        close(
            summary.throughput().unwrap(),
            5.0,
            4.0 * 5.0 / (n as f64).sqrt(),
        );
        assert_eq!(asynchronous_throughput(&workers), 5.0);
    }

    #[test]
    fn a_barrier_lasts_as_long_as_the_slowest_is_expected_to_take() {
        for times in ALL {
            for p in [1, 2, 8, 30] {
                let workers = vec![Worker::new(times); p];
                let rounds = 20_000;
                let mut last = 0.0;
                let mut lengths = Moments::default();
                let events = simulate(&workers, Discipline::Synchronous, 4).take(rounds * p);
                for event in events {
                    assert_eq!(event.staleness(), 0);
                    if event.time > last {
                        lengths.push(event.time - last);
                        last = event.time;
                    }
                }
                assert_eq!(lengths.n(), rounds);
                let error = lengths.standard_deviation().unwrap() / (rounds as f64).sqrt();
                let expected = times.expected_longest(p as u64);
                close(lengths.mean().unwrap(), expected, 4.0 * error + 1e-9);
            }
        }
        let exponential = Times::Exponential { mean: 3.0 };
        let harmonic: f64 = (1..=1000).map(|k| 1.0 / f64::from(k)).sum();
        close(exponential.expected_longest(1000), 3.0 * harmonic, 1e-12);
    }

    #[test]
    fn bounded_workers_never_lead_by_more_than_the_bound() {
        for s in [0, 1, 3, 10] {
            for times in ALL {
                let mut workers = vec![Worker::new(times); 6];
                workers[5].slowdown = 4.0;
                let discipline = Discipline::Bounded(s);
                let events: Vec<Event> = simulate(&workers, discipline, 2).take(6000).collect();
                let mut sent = [0_u64; 6];
                let mut largest = 0;
                for event in &events {
                    assert!(event.lead <= s);
                    assert!(event.staleness() <= (2 * s + 1) * 5);
                    assert_eq!(event.clock, sent[event.worker]);
                    sent[event.worker] += 1;
                    largest = largest.max(event.lead);
                    let spread = sent.iter().max().unwrap() - sent.iter().min().unwrap();
                    assert!(spread <= s + 1);
                }
                // The straggler is waited for, so the bound is reached.
                assert_eq!(largest, s);
                let summary = Summary::of(&events);
                let straggler = summary.by_worker[5] as f64 / summary.gradients as f64;
                close(straggler, 1.0 / 6.0, 0.01);
                assert!(summary.waited > 0.0);
            }
        }
    }

    #[test]
    fn a_bound_of_zero_is_synchronous() {
        let workers = vec![Worker::new(Times::LogNormal { mean: 1.0, cv: 0.5 }); 5];
        let bounded = simulate(&workers, Discipline::Bounded(0), 6).take(500);
        let synchronous = simulate(&workers, Discipline::Synchronous, 6).take(500);
        let mut close_time = 0.0;
        for (i, (b, s)) in bounded.zip(synchronous).enumerate() {
            let round = i as u64 / 5;
            // All read what the whole round before has made.
            assert_eq!((b.worker, b.clock, b.read), (s.worker, s.clock, 5 * round));
            assert_eq!((s.read, s.applied), (round, round + 1));
            assert_eq!((b.started, b.waited), (s.started, s.waited));
            assert!(b.time <= s.time && b.started >= close_time);
            if i % 5 == 4 {
                assert_eq!(b.time, s.time);
                close_time = s.time;
            }
        }
    }

    #[test]
    fn a_bound_too_wide_to_reach_is_asynchronous() {
        let workers = vec![Worker::new(Times::Exponential { mean: 1.0 }); 4];
        let bounded = simulate(&workers, Discipline::Bounded(1000), 8);
        let free = simulate(&workers, Discipline::Asynchronous, 8);
        assert!(bounded.take(1000).eq(free.take(1000)));
    }

    #[test]
    fn a_dead_worker_sends_no_more_and_the_others_go_on_once_it_is_struck_off() {
        let mut workers = vec![Worker::new(Times::Constant { mean: 1.0 }); 3];
        workers[1].dies_at = 5.5;
        let server = Server {
            detection: 2.25,
            ..Server::IDEAL
        };
        for discipline in [Discipline::Synchronous, Discipline::Bounded(0)] {
            let draw = |_| 0.0;
            let simulation = Simulation::new(&workers, discipline, server, draw).unwrap();
            let events: Vec<Event> = simulation.take(30).collect();
            let summary = Summary::of(&events);
            assert_eq!(summary.by_worker[1], 5);
            let of_first = events.iter().filter(|e| e.worker == 0);
            let started: Vec<f64> = of_first.map(|e| e.started).take(8).collect();
            // The round that began at 5 is complete when the death at 5.5 is known.
            assert_eq!(started, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.75, 8.75]);
        }
        let asynchronous = Simulation::new(&workers, Discipline::Asynchronous, server, |_| 0.0);
        let events: Vec<Event> = asynchronous.unwrap().take(100).collect();
        assert_eq!(Summary::of(&events).by_worker[1], 5);
        let late = events.iter().filter(|e| e.time > 8.0);
        assert!(late.clone().count() > 50);
        assert!(late.map(Event::staleness).all(|staleness| staleness == 1));
    }

    #[test]
    fn a_death_that_nobody_notices_stalls_those_that_wait() {
        let mut workers = vec![Worker::new(Times::Constant { mean: 1.0 }); 3];
        workers[2].dies_at = 3.5;
        let server = Server {
            detection: f64::INFINITY,
            ..Server::IDEAL
        };
        let mut bounded =
            Simulation::new(&workers, Discipline::Bounded(2), server, |_| 0.0).unwrap();
        // 3 of each until the death, and as many more of the others as the bound allows, plus one.
        assert_eq!(bounded.by_ref().count(), 9 + 2 * 3);
        assert_eq!(bounded.end(), Some(End::Stalled { at: 6.0 }));
        let mut all_die = workers.clone();
        for worker in &mut all_die {
            worker.dies_at = 3.5;
        }
        let mut free =
            Simulation::new(&all_die, Discipline::Asynchronous, server, |_| 0.0).unwrap();
        assert_eq!(free.by_ref().count(), 9);
        assert_eq!(free.end(), Some(End::NobodyLeft));
        let mut barrier =
            Simulation::new(&all_die, Discipline::Synchronous, Server::IDEAL, |_| 0.0).unwrap();
        assert_eq!(barrier.by_ref().count(), 9);
        assert_eq!(barrier.end(), Some(End::NobodyLeft));
    }

    #[test]
    fn a_slow_server_limits_what_all_send() {
        let workers = vec![Worker::new(Times::Exponential { mean: 1.0 }); 40];
        let server = Server {
            service: 0.1,
            transfer: 0.5,
            ..Server::IDEAL
        };
        let run = |workers: &[Worker]| {
            let draw = uniform(3, workers.len());
            let simulation = Simulation::new(workers, Discipline::Asynchronous, server, draw);
            let events: Vec<Event> = simulation.unwrap().take(20_000).collect();
            Summary::of(&events)
        };
        // 40 workers could send 26.7 gradients a second, the server takes 10.
        close(run(&workers).throughput().unwrap(), 10.0, 0.05);
        close(run(&workers).mean_staleness().unwrap(), 39.0, 0.1);
        // One worker: 1 + 0.5 + 0.1 seconds for each.
        close(run(&workers[..1]).throughput().unwrap(), 1.0 / 1.6, 0.02);
        // A barrier of constant times: the server takes the gradients one after another.
        let constant = vec![Worker::new(Times::Constant { mean: 1.0 }); 4];
        let barrier = Simulation::new(&constant, Discipline::Synchronous, server, |_| 0.0);
        let last = barrier.unwrap().take(40).last().unwrap();
        close(last.time, 10.0 * 1.9, 1e-9);
    }

    #[test]
    fn a_simulation_is_a_function_of_its_seed() {
        let workers = vec![Worker::new(Times::LogNormal { mean: 1.0, cv: 1.0 }); 5];
        let run = |seed| -> Vec<Event> {
            simulate(&workers, Discipline::Bounded(2), seed)
                .take(300)
                .collect()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn draws_have_the_mean_and_the_variation_stated() {
        for times in ALL {
            let mut stream = Stream::new(5, "draws", 0);
            let n = 200_000;
            let draws = (0..n).map(|_| times.quantile(stream.uniform()));
            let moments = Moments::of(draws);
            let error = times.mean() * times.cv() / f64::from(n).sqrt();
            close(moments.mean().unwrap(), times.mean(), 4.0 * error + 1e-12);
            let cv = moments.standard_deviation().unwrap() / times.mean();
            close(cv, times.cv(), 0.01);
            close(times.expected_longest(1), times.mean(), 1e-10);
        }
        // The larger of two lognormal times of mean 1: 2 Phi(s/2^(1/2)).
        let two = Times::LogNormal { mean: 1.0, cv: 0.8 }.expected_longest(2);
        let s = 0.64_f64.ln_1p().sqrt();
        close(two, 2.0 * Normal::standard().cdf(s / 2_f64.sqrt()), 1e-10);
    }

    #[test]
    fn settings_that_no_cluster_has_are_refused_with_their_place() {
        let good = Worker::new(Times::Constant { mean: 1.0 });
        let refused = |workers: &[Worker], server| {
            let made = Simulation::new(workers, Discipline::Asynchronous, server, |_| 0.0);
            made.err().map(|error| error.to_string())
        };
        assert_eq!(refused(&[good], Server::IDEAL), None);
        let none = refused(&[], Server::IDEAL).unwrap();
        assert_eq!(none, "a cluster needs at least 1 worker, found 0");
        let bad = Worker::new(Times::ShiftedExponential { mean: 1.0, cv: 1.5 });
        let message = refused(&[good, bad], Server::IDEAL).unwrap();
        assert_eq!(message, "worker 1: cv should be between 0 and 1, found 1.5");
        let slow = Worker {
            slowdown: 0.0,
            ..good
        };
        let message = refused(&[slow], Server::IDEAL).unwrap();
        assert_eq!(
            message,
            "worker 0: slowdown should be above 0 and finite, found 0"
        );
        let server = Server {
            service: -1.0,
            ..Server::IDEAL
        };
        let message = refused(&[good], server).unwrap();
        let expected = "server: service should be a number of seconds, at least 0, found -1";
        assert_eq!(message, expected);
    }

    #[test]
    fn harmonic_numbers_meet_where_the_expansion_begins() {
        let sum = |n: u32| -> f64 { (1..=n).rev().map(|k| 1.0 / f64::from(k)).sum() };
        for n in [1, 64, 65, 100, 100_000] {
            close(harmonic_number(u64::from(n)), sum(n), 1e-12);
        }
        close(implicit_momentum(4), 0.75, 0.0);
        let age = implicit_momentum(4) / (1.0 - implicit_momentum(4));
        close(age, 3.0, 1e-12);
        assert_eq!(corrected_momentum(implicit_momentum(4), 3.0), 0.0);
    }
}
