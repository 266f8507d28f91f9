//! What a schedule would take, message by message, under the models of
//! [`theory::collectives`](crate::theory::collectives). Times are exact if their type is.
//!
//! A message starts as soon as the order of the two programs and the ports let it; what is
//! computed is the one time table in which each does. The ways of the two models:
//!
//! - Hockney: the sends of a step follow one another, and so do its receives, both from the start
//!   of the step on. A message starts when it is next on both sides (rendezvous), holds both ports for
//!   alpha + m beta, and the receiver for m gamma more if it adds.
//! - LogGP: a rank first gives all sends of a step to its network interface, then takes the
//!   receives. Sends never wait for receives.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use super::plan::{Action, Schedule, Step};
use crate::theory::collectives::{Hockney, LogGp, Quantity};

/// A message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transfer {
    /// Who sends.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// How many messages went from the one to the other before.
    pub index: u64,
    /// Its length.
    pub bytes: u128,
}

/// A link that is slower than the others, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowLink {
    /// The two ranks it joins.
    pub ranks: (usize, usize),
    /// How many times longer its latency and its bytes take.
    pub factor: u128,
}

/// What is not as the model has it. The default is nothing.
#[derive(Default)]
pub struct Disturbance<'a, T> {
    /// What a message takes longer on the wire, asked once for each message. For the same times
    /// again, let it depend on the transfer and a seed alone.
    pub jitter: Option<Box<dyn FnMut(Transfer) -> T + 'a>>,
    /// A slow link.
    pub slow_link: Option<SlowLink>,
}

impl<T: Quantity> Disturbance<'_, T> {
    fn apply(&mut self, transfer: Transfer, wire: T) -> T {
        let slow = self.slow_link.filter(|link| {
            link.ranks == (transfer.from, transfer.to) || link.ranks == (transfer.to, transfer.from)
        });
        let wire = slow.map_or(wire, |link| wire.times(link.factor));
        match &mut self.jitter {
            Some(jitter) => wire + jitter(transfer),
            None => wire,
        }
    }
}

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated<T> {
    /// When each rank was done.
    pub finished: Vec<T>,
    /// Messages sent by each rank.
    pub sent: Vec<Load>,
    /// Messages received by each rank.
    pub received: Vec<Load>,
}

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// How many.
    pub messages: u128,
    /// How many bytes in all.
    pub bytes: u128,
}

impl Load {
    fn count(&mut self, bytes: u128) {
        self.messages += 1;
        self.bytes += bytes;
    }
}

impl<T: Quantity> Simulated<T> {
    fn new(ranks: usize) -> Self {
        Self {
            finished: vec![T::default(); ranks],
            sent: vec![Load::default(); ranks],
            received: vec![Load::default(); ranks],
        }
    }

    /// When the last rank was done.
    pub fn time(&self) -> T {
        self.finished
            .iter()
            .fold(T::default(), |time, t| time.or_later(*t))
    }
}

/// Ranks that wait for one another.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a deadlock: the ranks {ranks:?} wait for messages that nobody sends")]
pub struct Deadlock {
    /// Those that did not come to their end.
    pub ranks: Vec<usize>,
}

/// How far a rank is in its steps.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    step: usize,
    sends: usize,
    receives: usize,
}

impl Place {
    fn step<'a>(&self, schedule: &'a Schedule, rank: usize) -> Option<&'a Step> {
        schedule.steps(rank).get(self.step)
    }
}

fn all_done<T>(
    schedule: &Schedule,
    places: &[Place],
    done: Simulated<T>,
) -> Result<Simulated<T>, Deadlock> {
    let ranks: Vec<usize> = (0..schedule.ranks())
        .filter(|rank| places[*rank].step(schedule, *rank).is_some())
        .collect();
    if ranks.is_empty() {
        Ok(done)
    } else {
        Err(Deadlock { ranks })
    }
}

fn number(transfers: &mut BTreeMap<(usize, usize), u64>, from: usize, to: usize) -> u64 {
    let next = transfers.entry((from, to)).or_default();
    *next += 1;
    *next - 1
}

/// Simulates a schedule in Hockney's model.
///
/// ```
/// use batchlab::collective::{Algorithm, Disturbance, Operation, schedule, simulate_hockney};
/// use batchlab::theory::collectives::Hockney;
///
/// let ring = schedule(Operation::AllReduce, Algorithm::Ring, 4, 10).expect("rings can sum");
/// let model = Hockney { alpha: 100i128, beta: 2, gamma: 1 };
/// let done = simulate_hockney(&ring, 8, &model, &mut Disturbance::default())?;
/// // Three rounds that add and three that do not, of ceil(10/4) elements of 8 bytes.
/// assert_eq!(done.time(), 3 * (100 + 24 * 3) + 3 * (100 + 24 * 2));
/// # Ok::<(), batchlab::collective::Deadlock>(())
/// ```
///
/// # Errors
/// A deadlock, which no schedule of [`schedule`](super::schedule) has.
pub fn simulate_hockney<T: Quantity>(
    schedule: &Schedule,
    element_bytes: usize,
    model: &Hockney<T>,
    disturbance: &mut Disturbance<'_, T>,
) -> Result<Simulated<T>, Deadlock> {
    let ranks = schedule.ranks();
    let mut done = Simulated::new(ranks);
    let mut places = vec![Place::default(); ranks];
    // When the sending and the receiving port of a rank are next free.
    let mut free = vec![(T::default(), T::default()); ranks];
    let mut numbers = BTreeMap::new();
    let mut to_see: VecDeque<usize> = (0..ranks).collect();
    while let Some(from) = to_see.pop_front() {
        let Some(step) = places[from].step(schedule, from) else {
            continue;
        };
        let Some(send) = step.sends.get(places[from].sends) else {
            continue;
        };
        let to = send.to;
        let expected = places[to]
            .step(schedule, to)
            .and_then(|step| step.receives.get(places[to].receives));
        let Some(receive) = expected.filter(|receive| receive.from == from) else {
            continue;
        };
        let bytes = send.range.len() as u128 * element_bytes as u128;
        let transfer = Transfer {
            from,
            to,
            index: number(&mut numbers, from, to),
            bytes,
        };
        let wire = disturbance.apply(transfer, model.alpha + model.beta.times(bytes));
        let end = free[from].0.or_later(free[to].1) + wire;
        free[from].0 = end;
        free[to].1 = match receive.action {
            Action::Add => end + model.gamma.times(bytes),
            Action::Copy => end,
        };
        done.sent[from].count(bytes);
        done.received[to].count(bytes);
        places[from].sends += 1;
        places[to].receives += 1;
        for rank in [from, to] {
            let place = places[rank];
            let ends = place.step(schedule, rank).is_some_and(|step| {
                place.sends == step.sends.len() && place.receives == step.receives.len()
            });
            if ends {
                let end = free[rank].0.or_later(free[rank].1);
                free[rank] = (end, end);
                done.finished[rank] = end;
                places[rank] = Place {
                    step: place.step + 1,
                    ..Place::default()
                };
            }
            // What this rank may do next: send, or receive from whoever waits for it.
            to_see.push_back(rank);
            let awaited = places[rank]
                .step(schedule, rank)
                .and_then(|step| step.receives.get(places[rank].receives));
            if let Some(receive) = awaited {
                to_see.push_back(receive.from);
            }
        }
    }
    all_done(schedule, &places, done)
}

/// What a rank is doing in the LogGP model.
#[derive(Debug, Clone, Copy, Default)]
struct Processor<T> {
    clock: T,
    /// From when on the network interface takes the next send.
    port: T,
    /// When it took in the last message.
    taken: Option<T>,
}

/// Simulates a schedule in the LogGP model.
///
/// # Errors
/// A deadlock, which no schedule of [`schedule`](super::schedule) has.
pub fn simulate_loggp<T: Quantity>(
    schedule: &Schedule,
    element_bytes: usize,
    model: &LogGp<T>,
    disturbance: &mut Disturbance<'_, T>,
) -> Result<Simulated<T>, Deadlock> {
    let ranks = schedule.ranks();
    let mut done = Simulated::new(ranks);
    let mut places = vec![Place::default(); ranks];
    let mut processors = vec![Processor::<T>::default(); ranks];
    let mut numbers = BTreeMap::new();
    let mut arrivals: BTreeMap<(usize, usize), VecDeque<T>> = BTreeMap::new();
    let gap = model.gap.or_later(model.overhead);
    let mut to_see: VecDeque<usize> = (0..ranks).collect();
    while let Some(rank) = to_see.pop_front() {
        while let Some(step) = places[rank].step(schedule, rank) {
            let me = &mut processors[rank];
            for send in &step.sends[places[rank].sends..] {
                let bytes = send.range.len() as u128 * element_bytes as u128;
                let transfer = Transfer {
                    from: rank,
                    to: send.to,
                    index: number(&mut numbers, rank, send.to),
                    bytes,
                };
                let stream = model.byte_gap.times(bytes.saturating_sub(1));
                let wire = disturbance.apply(transfer, stream + model.latency);
                let start = me.clock.or_later(me.port);
                me.clock = start + model.overhead;
                me.port = start + gap + stream;
                arrivals
                    .entry((rank, send.to))
                    .or_default()
                    .push_back(me.clock + wire);
                done.sent[rank].count(bytes);
                to_see.push_back(send.to);
            }
            places[rank].sends = step.sends.len();
            let mut waits = false;
            for receive in &step.receives[places[rank].receives..] {
                let mail = arrivals.get_mut(&(receive.from, rank));
                let Some(arrival) = mail.and_then(VecDeque::pop_front) else {
                    waits = true;
                    break;
                };
                let bytes = receive.range.len() as u128 * element_bytes as u128;
                let stream = model.byte_gap.times(bytes.saturating_sub(1));
                let taken = me
                    .taken
                    .map_or(arrival, |last| arrival.or_later(last + gap + stream));
                me.taken = Some(taken);
                me.clock = me.clock.or_later(taken) + model.overhead;
                if receive.action == Action::Add {
                    me.clock = me.clock + model.gamma.times(bytes);
                }
                done.received[rank].count(bytes);
                places[rank].receives += 1;
            }
            if waits {
                break;
            }
            done.finished[rank] = me.clock;
            places[rank] = Place {
                step: places[rank].step + 1,
                ..Place::default()
            };
        }
    }
    all_done(schedule, &places, done)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Algorithm, Incoming, Operation, Outgoing, schedule};
    use super::*;
    use crate::theory::collectives::{Case, Model, Traffic};

    const ALGORITHMS: [Algorithm; 17] = [
        Algorithm::Flat,
        Algorithm::KaryTree { k: 1 },
        Algorithm::KaryTree { k: 2 },
        Algorithm::KaryTree { k: 3 },
        Algorithm::KaryTree { k: 4 },
        Algorithm::KaryTree { k: 7 },
        Algorithm::KaryTree { k: 40 },
        Algorithm::Binomial,
        Algorithm::Chain { segments: 1 },
        Algorithm::Chain { segments: 2 },
        Algorithm::Chain { segments: 3 },
        Algorithm::Chain { segments: 7 },
        Algorithm::Chain { segments: 16 },
        Algorithm::Ring,
        Algorithm::Direct,
        Algorithm::RecursiveDoubling,
        Algorithm::Rabenseifner,
    ];
    const LENGTHS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 9, 16, 17, 23, 32, 33, 1000];

    /// Latency-bound, byte-bound, adding-bound, mixed.
    const HOCKNEY: [Hockney<i128>; 4] = [
        hockney(1000, 3, 2),
        hockney(1, 1000, 7),
        hockney(2, 3, 1000),
        hockney(0, 1, 1),
    ];

    /// With g <= L + 2o: latency, overhead, gap, byte gap and adding, each large in one.
    const LOGGP: [LogGp<i128>; 8] = [
        loggp(1000, 10, 20, 3, 2),
        loggp(5, 1000, 20, 3, 2),
        loggp(900, 7, 850, 3, 2),
        loggp(10, 5, 20, 1000, 2),
        loggp(10, 5, 20, 3, 1000),
        loggp(0, 50, 100, 9, 10),
        loggp(11, 90, 13, 7, 5),
        loggp(3, 40, 17, 9, 8),
    ];

    const fn hockney(alpha: i128, beta: i128, gamma: i128) -> Hockney<i128> {
        Hockney { alpha, beta, gamma }
    }

    const fn loggp(
        latency: i128,
        overhead: i128,
        gap: i128,
        byte_gap: i128,
        gamma: i128,
    ) -> LogGp<i128> {
        LogGp {
            latency,
            overhead,
            gap,
            byte_gap,
            gamma,
        }
    }

    fn ranks() -> impl Iterator<Item = usize> {
        (1..=17).chain([24, 31, 32, 33])
    }

    fn cases(element_bytes: usize) -> impl Iterator<Item = (Case, Schedule)> {
        ranks().flat_map(move |ranks| {
            LENGTHS.into_iter().flat_map(move |elements| {
                Operation::ALL.into_iter().flat_map(move |operation| {
                    ALGORITHMS.into_iter().filter_map(move |algorithm| {
                        let case = Case {
                            operation,
                            algorithm,
                            ranks,
                            elements,
                            element_bytes,
                        };
                        let schedule = schedule(operation, algorithm, ranks, elements);
                        assert_eq!(schedule.is_some(), case.time(&HOCKNEY[0]).is_some());
                        Some((case, schedule?))
                    })
                })
            })
        })
    }

    #[test]
    fn the_simulation_equals_the_closed_form_of_hockney() {
        for (case, schedule) in cases(1) {
            for model in &HOCKNEY {
                let run = simulate_hockney(&schedule, 1, model, &mut Disturbance::default());
                let time = run.unwrap().time();
                assert_eq!(Some(time), case.time(model), "{case:?} {model:?}");
            }
        }
    }

    #[test]
    fn the_simulation_equals_the_closed_form_of_loggp() {
        for (case, schedule) in cases(4) {
            for model in &LOGGP {
                let run = simulate_loggp(&schedule, 4, model, &mut Disturbance::default());
                let time = run.unwrap().time();
                assert_eq!(Some(time), case.time(model), "{case:?} {model:?}");
            }
        }
    }

    #[test]
    fn the_simulation_equals_the_closed_forms_for_drawn_numbers() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..20_000 {
            let algorithm = match below(8) {
                0 => Algorithm::Flat,
                1 => Algorithm::KaryTree {
                    k: 1 + below(9) as usize,
                },
                2 => Algorithm::Binomial,
                3 => Algorithm::Chain {
                    segments: 1 + below(20) as usize,
                },
                4 => Algorithm::Ring,
                5 => Algorithm::Direct,
                6 => Algorithm::RecursiveDoubling,
                _ => Algorithm::Rabenseifner,
            };
            let case = Case {
                operation: Operation::ALL[below(6) as usize],
                algorithm,
                ranks: 1 + below(40) as usize,
                elements: below(100) as usize,
                element_bytes: 1 + below(9) as usize,
            };
            let scales = [1, 10, 100, 1000];
            let mut draw = || i128::from(below(10) * scales[below(4) as usize]);
            let hockney = hockney(draw(), draw(), draw());
            let mut loggp = loggp(draw(), draw(), draw(), draw(), draw());
            loggp.gap = loggp.gap.min(loggp.latency + 2 * loggp.overhead);
            let schedule = schedule(case.operation, algorithm, case.ranks, case.elements);
            let Some(schedule) = schedule else {
                continue;
            };
            let (bytes, mut calm) = (case.element_bytes, Disturbance::default());
            let run = simulate_hockney(&schedule, bytes, &hockney, &mut calm).unwrap();
            assert_eq!(
                Some(run.time()),
                case.time(&hockney),
                "{case:?} {hockney:?}"
            );
            let run = simulate_loggp(&schedule, bytes, &loggp, &mut calm).unwrap();
            assert_eq!(Some(run.time()), case.time(&loggp), "{case:?} {loggp:?}");
        }
    }

    #[test]
    fn messages_and_bytes_are_counted_as_the_formulas_say() {
        for (case, schedule) in cases(8) {
            let run = simulate_hockney(&schedule, 8, &HOCKNEY[0], &mut Disturbance::default());
            let run = run.unwrap();
            let sum = |f: fn(&Load) -> u128| run.sent.iter().map(f).sum::<u128>();
            let most = |f: fn(&Load) -> u128| run.sent.iter().chain(&run.received).map(f).max();
            let counted = Traffic {
                messages: sum(|load| load.messages),
                bytes: sum(|load| load.bytes),
                busiest_messages: most(|load| load.messages).unwrap(),
                busiest_bytes: most(|load| load.bytes).unwrap(),
            };
            assert_eq!(case.traffic(), Some(counted), "{case:?}");
        }
    }

    #[test]
    fn extra_memory_is_what_the_steps_need_beyond_operand_and_result() {
        for (case, schedule) in cases(8) {
            let need = (0..case.ranks).map(|rank| {
                let mut touched = vec![false; case.elements];
                let mut waiting = 0;
                for step in schedule.steps(rank) {
                    let added = step.receives.iter().filter(|r| r.action == Action::Add);
                    waiting = waiting.max(added.map(|r| r.range.len()).sum::<usize>());
                    for receive in &step.receives {
                        touched[receive.range.clone()].fill(true);
                    }
                }
                touched[schedule.operand(rank)].fill(false);
                touched[schedule.result(rank)].fill(false);
                waiting + touched.iter().filter(|t| **t).count()
            });
            let most = need.max().unwrap() as u128 * 8;
            assert_eq!(case.extra_memory(), Some(most), "{case:?}");
        }
    }

    #[test]
    fn no_simulated_time_is_below_the_lower_bounds() {
        let model = hockney(1000, 3, 2);
        let seconds = Hockney {
            alpha: 1000.0,
            beta: 3.0,
            gamma: 2.0,
        };
        for (case, schedule) in cases(1) {
            let run = simulate_hockney(&schedule, 1, &model, &mut Disturbance::default());
            let time = run.unwrap().time() as f64;
            let bounds = case.lower_bounds(&seconds);
            for bound in [bounds.latency, bounds.bandwidth, bounds.computation] {
                assert!(bound <= time, "{case:?}: {time} below {bounds:?}");
            }
        }
    }

    fn timed(schedule: &Schedule, disturbance: &mut Disturbance<'_, i128>) -> (i128, i128) {
        let hockney = simulate_hockney(schedule, 8, &HOCKNEY[0], disturbance).unwrap();
        let loggp = simulate_loggp(schedule, 8, &LOGGP[0], disturbance).unwrap();
        (hockney.time(), loggp.time())
    }

    /// A number below 100 that depends on the message and the seed.
    fn jitter(seed: u64) -> Disturbance<'static, i128> {
        Disturbance {
            jitter: Some(Box::new(move |transfer| {
                let key =
                    (transfer.from as u64) << 40 | (transfer.to as u64) << 20 | transfer.index;
                let mixed = (key ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                i128::from((mixed >> 32) % 100)
            })),
            slow_link: None,
        }
    }

    #[test]
    fn jitter_delays_within_its_bounds_and_is_the_same_for_the_same_seed() {
        for algorithm in ALGORITHMS {
            let schedule = schedule(Operation::AllReduce, algorithm, 11, 40).unwrap();
            let calm = timed(&schedule, &mut Disturbance::default());
            let jittered = timed(&schedule, &mut jitter(1));
            assert_eq!(jittered, timed(&schedule, &mut jitter(1)));
            assert_ne!(jittered, timed(&schedule, &mut jitter(2)), "{algorithm}");
            let mut most = Disturbance {
                jitter: Some(Box::new(|_| 99)),
                slow_link: None,
            };
            let bound = timed(&schedule, &mut most);
            assert!(calm.0 < jittered.0 && jittered.0 < bound.0, "{algorithm}");
            // What waits for the processor may have time to spare.
            assert!(calm.1 <= jittered.1 && jittered.1 <= bound.1, "{algorithm}");
        }
    }

    #[test]
    fn jitter_of_one_length_is_a_longer_latency() {
        let slower = Hockney {
            alpha: HOCKNEY[0].alpha + 99,
            ..HOCKNEY[0]
        };
        let later = LogGp {
            latency: LOGGP[0].latency + 99,
            ..LOGGP[0]
        };
        for (case, schedule) in cases(8) {
            if case.ranks % 5 != 3 {
                continue;
            }
            let mut jitter = Disturbance {
                jitter: Some(Box::new(|_| 99)),
                slow_link: None,
            };
            let found = timed(&schedule, &mut jitter);
            assert_eq!(Some(found.0), case.time(&slower), "{case:?}");
            assert_eq!(Some(found.1), case.time(&later), "{case:?}");
        }
    }

    #[test]
    fn a_slow_link_holds_up_a_chain_as_its_bottleneck_and_a_tree_once() {
        let (model, factor) = (&HOCKNEY[0], 7);
        let slow = |ranks| Disturbance {
            jitter: None,
            slow_link: Some(SlowLink { ranks, factor }),
        };
        let time = |algorithm, link| {
            let schedule = schedule(Operation::Broadcast, algorithm, 8, 24).unwrap();
            let run = simulate_hockney(&schedule, 1, model, &mut slow(link));
            run.unwrap().time()
        };
        // Each of 6 segments takes 7 times as long over one link of 7.
        let segment = model.first(4, false);
        let chain = Algorithm::Chain { segments: 6 };
        assert_eq!(time(chain, (5, 4)), 6 * segment + 6 * 7 * segment);
        let whole = model.first(24, false);
        assert_eq!(time(Algorithm::Flat, (0, 3)), 6 * whole + 7 * whole);
        assert_eq!(time(Algorithm::Binomial, (6, 7)), 2 * whole + 7 * whole);
        // No message goes this way.
        assert_eq!(time(Algorithm::Flat, (2, 3)), 7 * whole);
    }

    #[test]
    fn ranks_that_wait_for_each_other_are_reported() {
        let step = |peer| Step {
            sends: Vec::new(),
            receives: vec![Incoming {
                from: peer,
                range: 0..1,
                action: Action::Copy,
            }],
        };
        let stuck = Schedule::new(Operation::AllReduce, 1, vec![vec![step(1)], vec![step(0)]]);
        let mut calm = Disturbance::default();
        let ranks = vec![0, 1];
        let found = simulate_hockney(&stuck, 8, &HOCKNEY[0], &mut calm);
        assert_eq!(
            found,
            Err(Deadlock {
                ranks: ranks.clone()
            })
        );
        let found = simulate_loggp(&stuck, 8, &LOGGP[0], &mut calm);
        assert_eq!(
            found,
            Err(Deadlock {
                ranks: ranks.clone()
            })
        );
        // Sends first and receives after, in steps of their own: buffers make the difference.
        let first = |peer| Step {
            sends: vec![Outgoing {
                to: peer,
                range: 0..1,
            }],
            receives: Vec::new(),
        };
        let steps = vec![vec![first(1), step(1)], vec![first(0), step(0)]];
        let unsafe_without_buffers = Schedule::new(Operation::AllReduce, 1, steps);
        let found = simulate_hockney(&unsafe_without_buffers, 8, &HOCKNEY[0], &mut calm);
        assert_eq!(found, Err(Deadlock { ranks }));
        assert!(simulate_loggp(&unsafe_without_buffers, 8, &LOGGP[0], &mut calm).is_ok());
    }
}
