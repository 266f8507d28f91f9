//! Collectives with a clock: what schedules take on ranks that are there.
//!
//! Cases take turns: a round carries out each of them once, in an order shuffled anew for each round, so
//! that what drifts (heat, another program) meets all alike. Before each, the vector is filled
//! again and all ranks meet at a barrier. The time of a repetition is that of the rank for which it
//! was the longest; what ranks leave the barrier apart is part of it. Vectors are read and written
//! just before they are sent: they are in the processor's caches where these hold them.

use std::collections::BTreeSet;

use thiserror::Error;

use super::execute::{ExecuteError, execute};
use super::plan::{Operation, Schedule, schedule};
use super::ranks::{PointToPoint, Ranks, RanksError, all_gather_bytes, broadcast_bytes};
use super::wire::{Reader, Writer};
use crate::rng::permutation;
use crate::store;
use crate::store::clock::Stopwatch;
use crate::theory::collectives::Case;

/// Bytes of an element of what is measured: `f64`.
pub const ELEMENT_BYTES: usize = 8;

/// Where Linux says what a machine is called, and on which processors a process may run.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
const OWN_STATUS: &str = "/proc/self/status";
const ALLOWED: &str = "Cpus_allowed_list:";

/// What is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurable {
    /// A schedule, on the first `ranks` of all ranks, while the others wait.
    Scheduled(Case),
    /// The sum that the ranks have of their own (`MPI_Allreduce`), over all of them.
    NativeSum {
        /// Elements of the vector.
        elements: usize,
    },
}

/// How often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasureOptions {
    /// Rounds without a clock.
    pub warm_up: usize,
    /// Rounds with one.
    pub repetitions: usize,
    /// No further round begins after so many seconds, but two are done. Infinite for no limit.
    pub most_seconds: f64,
    /// Seed of the order in rounds.
    pub seed: u64,
}

/// What a case took.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The case.
    pub what: Measurable,
    /// Seconds of each repetition.
    pub seconds: Vec<f64>,
}

/// Ranks that share a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// How many.
    pub ranks: usize,
    /// Cores that they may use.
    pub cores: usize,
}

/// Why nothing was measured.
#[derive(Debug, Clone, Error)]
pub enum MeasureError {
    /// Ranks that cannot speak with each other, or do not come.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A case that these ranks cannot carry out.
    #[error("{case}: expected {expected}, found {found}")]
    Case {
        /// The case, in words.
        case: String,
        /// What would be right.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A case whose result is not what it should be.
    #[error("{case}: rank {rank} has {found} as element {element}, and should have {expected}")]
    Wrong {
        /// The case, in words.
        case: String,
        /// Where it is wrong.
        rank: usize,
        /// Which element, from 0.
        element: usize,
        /// What is right.
        expected: f64,
        /// What is there.
        found: f64,
    },
}

/// A case, ready.
struct Ready {
    schedule: Option<Schedule>,
    elements: usize,
    words: String,
}

impl Ready {
    fn new(what: &Measurable, size: usize) -> Result<Self, MeasureError> {
        match *what {
            Measurable::NativeSum { elements } => Ok(Self {
                schedule: None,
                elements,
                words: format!("native sum, {size} ranks, {elements} elements"),
            }),
            Measurable::Scheduled(case) => {
                let Case {
                    operation,
                    algorithm,
                    ranks,
                    elements,
                    element_bytes,
                } = case;
                let words = format!("{operation}, {algorithm}, {ranks} ranks, {elements} elements");
                let wrong = |expected, found: String| MeasureError::Case {
                    case: words.clone(),
                    expected,
                    found,
                };
                if element_bytes != ELEMENT_BYTES {
                    return Err(wrong("elements of 8 bytes", element_bytes.to_string()));
                }
                if ranks > size {
                    return Err(wrong("no more ranks than there are", size.to_string()));
                }
                let schedule =
                    schedule(operation, algorithm, ranks, elements).ok_or_else(|| {
                        wrong(
                            "an algorithm that can do the operation",
                            algorithm.to_string(),
                        )
                    })?;
                Ok(Self {
                    schedule: Some(schedule),
                    elements,
                    words,
                })
            }
        }
    }

    fn takes_part(&self, rank: usize) -> bool {
        self.schedule.as_ref().is_none_or(|s| rank < s.ranks())
    }

    /// Carries the case out for this rank.
    fn run(&self, ranks: &dyn Ranks, vector: &mut [f64]) -> Result<(), MeasureError> {
        match &self.schedule {
            None => Ok(ranks.sum_native_f64(vector)?),
            Some(schedule) => execute(schedule, ranks.rank(), vector, &mut PointToPoint(ranks))
                .map_err(|error| match error {
                    ExecuteError::Transport(error) => MeasureError::Ranks(error),
                    other => MeasureError::Case {
                        case: self.words.clone(),
                        expected: "a schedule for these ranks",
                        found: other.to_string(),
                    },
                }),
        }
    }

    /// The first element of this rank that is wrong, what it is, and what it should be.
    fn fault(&self, rank: usize, size: usize, vector: &[f64]) -> Option<(usize, f64, f64)> {
        let sum = |ranks: usize, i| (0..ranks).map(|rank| operand(rank, i)).sum();
        let wrong = |i: usize, right: f64| (vector[i] != right).then_some((i, vector[i], right));
        let Some(schedule) = &self.schedule else {
            return (0..self.elements).find_map(|i| wrong(i, sum(size, i)));
        };
        let owner = |i: usize| {
            (0..schedule.ranks())
                .find(|rank| schedule.operand(*rank).contains(&i))
                .unwrap_or(0)
        };
        schedule
            .result(rank)
            .find_map(|i| match schedule.operation() {
                Operation::Reduce | Operation::AllReduce => wrong(i, sum(schedule.ranks(), i)),
                _ => wrong(i, operand(owner(i), i)),
            })
    }
}

/// What a rank begins with: small integers, which all orders of adding give the same sum of.
fn operand(rank: usize, i: usize) -> f64 {
    ((i * 7 + rank * 13) % 101) as f64
}

/// Carries out all cases, `repetitions` times each, and returns what they took, the same on every
/// rank. In the first round, before the clock, every result is checked.
///
/// # Errors
/// A case that these ranks cannot carry out, a result that is wrong, or ranks that fail: the same
/// error on all ranks for the first two.
pub fn measure(
    ranks: &dyn Ranks,
    cases: &[Measurable],
    options: &MeasureOptions,
) -> Result<Vec<Measured>, MeasureError> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let ready = cases
        .iter()
        .map(|what| Ready::new(what, size))
        .collect::<Result<Vec<_>, _>>()?;
    let longest = ready.iter().map(|case| case.elements).max().unwrap_or(0);
    let template: Vec<f64> = (0..longest).map(|i| operand(rank, i)).collect();
    let mut vector = template.clone();
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    let mut fault = None;
    for (i, case) in ready.iter().enumerate() {
        once(ranks, case, &template, &mut vector)?;
        if case.takes_part(rank) && fault.is_none() {
            let found = case.fault(rank, size, &vector[..case.elements]);
            fault = found.map(|(element, is, right)| (i, element, is, right));
        }
    }
    agree(ranks, &ready, fault)?;
    for _ in 1..options.warm_up {
        for case in &ready {
            once(ranks, case, &template, &mut vector)?;
        }
    }
    let clock = Stopwatch::start();
    for round in 0..options.repetitions {
        let order = permutation(
            cases.len(),
            options.seed,
            "collectives-measured",
            round as u64,
        );
        for case in order {
            let case = case as usize;
            seconds[case].push(once(ranks, &ready[case], &template, &mut vector)?);
        }
        if options.most_seconds.is_finite() {
            // One rank says for all whether there is time for another.
            let over = round > 0 && clock.seconds() >= options.most_seconds;
            let said = broadcast_bytes(ranks, (rank == 0).then_some(&[u8::from(over)][..]))?;
            if said.first() != Some(&0) {
                break;
            }
        }
    }
    let mut own = Writer::new();
    own.numbers(&seconds.concat());
    for other in all_gather_bytes(ranks, &own.finish())? {
        let theirs = Reader::new(&other).numbers().unwrap_or_default();
        for (time, theirs) in seconds.iter_mut().flatten().zip(theirs) {
            *time = time.max(theirs);
        }
    }
    Ok(cases
        .iter()
        .zip(seconds)
        .map(|(&what, seconds)| Measured { what, seconds })
        .collect())
}

/// One repetition. The seconds of this rank, 0 if it takes no part.
fn once(
    ranks: &dyn Ranks,
    case: &Ready,
    template: &[f64],
    vector: &mut [f64],
) -> Result<f64, MeasureError> {
    let vector = &mut vector[..case.elements];
    vector.copy_from_slice(&template[..case.elements]);
    ranks.barrier()?;
    if !case.takes_part(ranks.rank()) {
        return Ok(0.0);
    }
    let clock = Stopwatch::start();
    case.run(ranks, vector)?;
    Ok(clock.seconds())
}

/// Tells all ranks of the first fault of any: the case, the element, what it is, and what is right.
fn agree(
    ranks: &dyn Ranks,
    cases: &[Ready],
    fault: Option<(usize, usize, f64, f64)>,
) -> Result<(), MeasureError> {
    let mut own = Writer::new();
    if let Some((case, element, found, right)) = fault {
        own.count(case);
        own.count(element);
        own.numbers(&[found, right]);
    }
    for (rank, told) in all_gather_bytes(ranks, &own.finish())?.iter().enumerate() {
        let mut told = Reader::new(told);
        if let (Some(case), Some(element)) = (told.count(), told.count())
            && let Some([found, expected]) = told.numbers().as_deref()
        {
            return Err(MeasureError::Wrong {
                case: cases
                    .get(case)
                    .map_or_else(String::new, |case| case.words.clone()),
                rank,
                element,
                expected: *expected,
                found: *found,
            });
        }
    }
    Ok(())
}

/// What a rank says of its machine.
struct Seat {
    host: Vec<u8>,
    cores: usize,
    allowed: Option<BTreeSet<usize>>,
}

/// The machines that the ranks are on, in the order of their first ranks. Machines are told apart by
/// their names; where they do not say them, all ranks count as of one. Launchers often bind each rank
/// to cores of its own: those of all ranks of a machine count together.
///
/// # Errors
/// Ranks that fail.
pub fn nodes(ranks: &dyn Ranks) -> Result<Vec<Node>, RanksError> {
    let mut own = Writer::new();
    own.count(std::thread::available_parallelism().map_or(1, usize::from));
    own.bytes(&store::read(HOST_NAME.as_ref()).unwrap_or_default());
    own.bytes(&store::read(OWN_STATUS.as_ref()).unwrap_or_default());
    let mut seats: Vec<Seat> = Vec::new();
    for told in all_gather_bytes(ranks, &own.finish())? {
        let mut told = Reader::new(&told);
        if let (Some(cores), Some(host), Some(status)) = (told.count(), told.bytes(), told.text()) {
            seats.push(Seat {
                host: host.to_vec(),
                cores,
                allowed: allowed(&status),
            });
        }
    }
    let mut hosts: Vec<&[u8]> = Vec::new();
    for seat in &seats {
        if !hosts.contains(&seat.host.as_slice()) {
            hosts.push(&seat.host);
        }
    }
    let of = |host: &[u8]| seats_of(&seats.iter().filter(|s| s.host == host).collect::<Vec<_>>());
    Ok(hosts.into_iter().map(of).collect())
}

/// Ranks and cores of one machine. Ranks that may all run on the same processors have as many cores as
/// the system grants one of them, which can be fewer than processors.
fn seats_of(seats: &[&Seat]) -> Node {
    let most = seats.iter().map(|seat| seat.cores).max().unwrap_or(1);
    let sets: Option<Vec<&BTreeSet<usize>>> = seats.iter().map(|s| s.allowed.as_ref()).collect();
    let cores = match sets.as_deref() {
        Some([first, others @ ..]) if others.iter().any(|set| set != first) => {
            let all: BTreeSet<usize> = sets
                .iter()
                .flatten()
                .flat_map(|set| set.iter())
                .copied()
                .collect();
            all.len()
        }
        _ => most,
    };
    Node {
        ranks: seats.len(),
        cores,
    }
}

/// The processors in the status of a process: `Cpus_allowed_list: 0-3,8`.
fn allowed(status: &str) -> Option<BTreeSet<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix(ALLOWED))?;
    let mut found = BTreeSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        found.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Algorithm;
    use super::super::ranks::on_threads;
    use super::*;

    const FEW: MeasureOptions = MeasureOptions {
        warm_up: 1,
        repetitions: 4,
        most_seconds: f64::INFINITY,
        seed: 3,
    };

    fn case(operation: Operation, algorithm: Algorithm, ranks: usize, elements: usize) -> Case {
        Case {
            operation,
            algorithm,
            ranks,
            elements,
            element_bytes: ELEMENT_BYTES,
        }
    }

    fn cases(size: usize) -> Vec<Measurable> {
        let mut cases = Vec::new();
        for operation in Operation::ALL {
            for algorithm in [
                Algorithm::Flat,
                Algorithm::KaryTree { k: 2 },
                Algorithm::Binomial,
                Algorithm::Chain { segments: 3 },
                Algorithm::Ring,
                Algorithm::Direct,
                Algorithm::RecursiveDoubling,
                Algorithm::Rabenseifner,
            ] {
                if algorithm.can(operation) {
                    for (ranks, elements) in [(size, 1), (size, 100), (2, 7)] {
                        let case = case(operation, algorithm, ranks, elements);
                        cases.push(Measurable::Scheduled(case));
                    }
                }
            }
        }
        cases.push(Measurable::NativeSum { elements: 33 });
        cases
    }

    #[test]
    fn every_case_has_its_times_and_all_ranks_the_same() {
        for size in [2, 3, 4] {
            let cases = cases(size);
            let found = on_threads(size, |ranks| measure(ranks, &cases, &FEW).unwrap()).unwrap();
            for measured in &found {
                assert_eq!(measured, &found[0]);
            }
            assert_eq!(found[0].len(), cases.len());
            for (measured, case) in found[0].iter().zip(&cases) {
                assert_eq!(measured.what, *case);
                assert_eq!(measured.seconds.len(), FEW.repetitions);
                assert!(measured.seconds.iter().all(|s| *s > 0.0 && s.is_finite()));
            }
        }
    }

    #[test]
    fn no_round_begins_when_the_time_is_over() {
        let options = MeasureOptions {
            repetitions: 1000,
            most_seconds: 0.0,
            ..FEW
        };
        let cases = [Measurable::NativeSum { elements: 3 }];
        let found = on_threads(2, |ranks| measure(ranks, &cases, &options).unwrap()).unwrap();
        assert_eq!(found[0][0].seconds.len(), 2);
    }

    #[test]
    fn ranks_that_cannot_do_a_case_say_so() {
        let refused = |case: Case| {
            let cases = [Measurable::Scheduled(case)];
            let all = on_threads(2, |ranks| measure(ranks, &cases, &FEW).unwrap_err()).unwrap();
            all[1].to_string()
        };
        assert_eq!(
            refused(case(Operation::AllReduce, Algorithm::Ring, 3, 4)),
            "all-reduce, ring, 3 ranks, 4 elements: expected no more ranks than there are, found 2"
        );
        assert_eq!(
            refused(case(Operation::Scatter, Algorithm::Ring, 2, 4)),
            "scatter, ring, 2 ranks, 4 elements: expected an algorithm that can do the operation, found ring"
        );
        assert_eq!(
            refused(Case {
                element_bytes: 4,
                ..case(Operation::AllReduce, Algorithm::Ring, 2, 4)
            }),
            "all-reduce, ring, 2 ranks, 4 elements: expected elements of 8 bytes, found 4"
        );
    }

    #[test]
    fn a_wrong_result_is_told_to_all_ranks() {
        let found = on_threads(3, |ranks| {
            let ready = Ready::new(&Measurable::NativeSum { elements: 5 }, 3).unwrap();
            let sums: Vec<f64> = (0..5)
                .map(|i| (0..3).map(|rank| operand(rank, i)).sum())
                .collect();
            assert_eq!(ready.fault(ranks.rank(), 3, &sums), None);
            let mut wrong = sums;
            if ranks.rank() == 1 {
                wrong[4] += 1.0;
            }
            let fault = ready.fault(ranks.rank(), 3, &wrong);
            let fault = fault.map(|(element, is, right)| (0, element, is, right));
            agree(ranks, &[ready], fault).unwrap_err().to_string()
        })
        .unwrap();
        for error in found {
            assert_eq!(
                error,
                "native sum, 3 ranks, 5 elements: rank 1 has 124 as element 4, and should have 123"
            );
        }
    }

    #[test]
    fn threads_are_on_one_machine() {
        let found = on_threads(3, |ranks| nodes(ranks).unwrap()).unwrap();
        assert_eq!(found[2].len(), 1);
        assert_eq!(found[2][0].ranks, 3);
        assert!(found[2][0].cores > 0);
    }

    #[test]
    fn cores_of_bound_ranks_count_together() {
        let seat = |cores, list: &str| Seat {
            host: b"a".to_vec(),
            cores,
            allowed: allowed(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n")),
        };
        let cores = |seats: &[Seat]| seats_of(&seats.iter().collect::<Vec<_>>()).cores;
        assert_eq!(cores(&[seat(1, "0"), seat(1, "3")]), 2);
        assert_eq!(cores(&[seat(2, "0-1"), seat(2, "2-3"), seat(2, "0-1")]), 4);
        // Not bound, but granted two of four.
        assert_eq!(cores(&[seat(2, "0-2,7"), seat(2, "0-2,7")]), 2);
        assert_eq!(cores(&[seat(3, "none"), seat(2, "0-1")]), 3);
        assert_eq!(allowed("Name: x"), None);
    }
}
