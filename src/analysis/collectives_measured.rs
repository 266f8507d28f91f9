//! Measured collectives beside their model: alpha, beta and gamma fitted to what was measured, and what
//! the model says of each case.

use std::cmp::Ordering;
use std::ops::Add;
use std::path::{Path, PathBuf};

use crate::collective::measure::{Measurable, Measured, Node};
use crate::math::hockney_fit::{CostFit, CostFitError, Costs, cost_intervals, fit_costs};
use crate::math::statistics::{Interval, quantile};
use crate::rng::Stream;
use crate::store::{self, StoreError, Table};
use crate::theory::collectives::{Algorithm, Case, Hockney, Operation, Quantity};

/// Resamples of the bootstrap, and how much of them an interval holds.
pub const RESAMPLES: usize = 1000;
const CONFIDENCE: f64 = 0.95;

/// Names and units of the costs.
pub const COST_NAMES: [(&str, &str); 3] = [("alpha", "s"), ("beta", "s/B"), ("gamma", "s/B")];

/// The tables of a measurement.
pub const MEASURED_TABLES: [&str; 2] = ["measured.csv", "fit.csv"];

/// What was measured, and on what.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// What the ranks are: processes under MPI, or threads.
    pub ranks_are: String,
    /// What their own sum is called.
    pub native: String,
    /// The machines.
    pub nodes: Vec<Node>,
    /// Rounds before the clock.
    pub warm_up: usize,
    /// The cases.
    pub measured: Vec<Measured>,
}

/// A case with what it took and what the fitted model says.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRow {
    /// The case; `None` for the ranks' own sum.
    pub case: Option<Case>,
    /// Ranks.
    pub ranks: usize,
    /// Bytes of the vector.
    pub bytes: u64,
    /// Median over the repetitions, in seconds.
    pub median: f64,
    /// Quartiles of the repetitions, in seconds.
    pub quartiles: (f64, f64),
    /// The shortest repetition.
    pub shortest: f64,
    /// Repetitions.
    pub n: usize,
    /// Seconds in the fitted model.
    pub predicted: Option<f64>,
    /// Seconds in the model fitted without this algorithm.
    pub left_out: Option<f64>,
}

impl MeasuredRow {
    /// Relative error of the model, predicted/measured - 1.
    pub fn error(&self) -> Option<f64> {
        self.predicted.map(|p| p / self.median - 1.0)
    }

    /// Relative error of the model fitted to the other algorithms.
    pub fn left_out_error(&self) -> Option<f64> {
        self.left_out.map(|p| p / self.median - 1.0)
    }

    /// The operation; the ranks' own sum is an all-reduce.
    pub fn operation(&self) -> Operation {
        self.case
            .map_or(Operation::AllReduce, |case| case.operation)
    }
}

/// A measurement with its model.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedCollectives {
    /// What was measured.
    pub measurement: Measurement,
    /// alpha, beta, gamma.
    pub fit: CostFit,
    /// Their 95 % intervals, where the cases tell them.
    pub intervals: [Option<Interval>; 3],
    /// The cases, in the order measured.
    pub rows: Vec<MeasuredRow>,
}

/// A time, and how often each cost counts in it.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    time: f64,
    counts: Costs,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.time == other.time
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.time.partial_cmp(&other.time)
    }
}

impl Add for Counted {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            counts: std::array::from_fn(|i| self.counts[i] + other.counts[i]),
        }
    }
}

impl Quantity for Counted {
    fn times(self, count: u128) -> Self {
        Self {
            time: self.time.times(count),
            counts: self.counts.map(|c| c.times(count)),
        }
    }
}

/// How often each cost of Hockney's model counts in the closed form of a case, at these costs: where it
/// is the later of several ways, those of the later one. All 0 where there is no such case.
///
/// ```
/// use batchlab::analysis::collectives_measured::counts;
/// use batchlab::theory::collectives::{Algorithm, Case, Operation};
///
/// let ring = Case {
///     operation: Operation::AllReduce,
///     algorithm: Algorithm::Ring,
///     ranks: 4,
///     elements: 1000,
///     element_bytes: 8,
/// };
/// // 2(p-1) messages, 2((p-1)/p) n bytes, of which one half is added.
/// assert_eq!(counts(&ring, &[1e-6, 1e-9, 1e-9]), [6.0, 12_000.0, 6000.0]);
/// ```
pub fn counts(case: &Case, costs: &Costs) -> Costs {
    let of = |i: usize| {
        let mut counts = [0.0; 3];
        counts[i] = 1.0;
        Counted {
            time: costs[i],
            counts,
        }
    };
    let model = Hockney {
        alpha: of(0),
        beta: of(1),
        gamma: of(2),
    };
    case.time(&model).unwrap_or_default().counts
}

/// Seconds of a case at these costs.
fn predicted(case: &Case, costs: &Costs) -> f64 {
    let [alpha, beta, gamma] = *costs;
    let model = Hockney { alpha, beta, gamma };
    case.time(&model).unwrap_or_default()
}

/// Fits the model to the median times of all scheduled cases, with intervals from a bootstrap over cases
/// and repetitions, and lays it beside each.
///
/// # Errors
/// Nothing measured, or a clock too coarse to see a case.
pub fn fitted(measurement: Measurement) -> Result<FittedCollectives, CostFitError> {
    let mut cases: Vec<Case> = Vec::new();
    let mut repetitions: Vec<Vec<f64>> = Vec::new();
    for measured in &measurement.measured {
        if let Measurable::Scheduled(case) = measured.what {
            cases.push(case);
            repetitions.push(measured.seconds.clone());
        }
    }
    let median = |seconds: &Vec<f64>| quantile(seconds, 0.5).unwrap_or(f64::NAN);
    let medians: Vec<f64> = repetitions.iter().map(median).collect();
    let fit = fit_costs(&medians, |i, costs| counts(&cases[i], costs))?;
    let mut stream = Stream::new(0, "collectives-bootstrap", 0);
    let intervals = cost_intervals(
        &repetitions,
        |i, costs| counts(&cases[i], costs),
        RESAMPLES,
        CONFIDENCE,
        |n| stream.below(n),
    );
    let without = |kind: usize| {
        let (mut kept, mut times) = (Vec::new(), Vec::new());
        for (case, &time) in cases.iter().zip(&medians) {
            if kind_of(case.algorithm) != kind {
                kept.push(*case);
                times.push(time);
            }
        }
        let fit = fit_costs(&times, |i, costs| counts(&kept[i], costs)).ok()?;
        // What the others do not tell cannot be predicted from them.
        fit.determined.iter().all(|d| *d).then_some(fit.costs)
    };
    let others: Vec<Option<Costs>> = (0..KINDS).map(without).collect();
    let rows = measurement
        .measured
        .iter()
        .map(|measured| {
            let at = |p| quantile(&measured.seconds, p).unwrap_or(f64::NAN);
            let (case, ranks, bytes) = match measured.what {
                Measurable::Scheduled(case) => {
                    (Some(case), case.ranks, case.elements * case.element_bytes)
                }
                Measurable::NativeSum { elements } => (
                    None,
                    measurement.nodes.iter().map(|node| node.ranks).sum(),
                    elements * crate::collective::measure::ELEMENT_BYTES,
                ),
            };
            MeasuredRow {
                case,
                ranks,
                bytes: bytes as u64,
                median: at(0.5),
                quartiles: (at(0.25), at(0.75)),
                shortest: at(0.0),
                n: measured.seconds.len(),
                predicted: case.map(|case| predicted(&case, &fit.costs)),
                left_out: case
                    .and_then(|case| Some(predicted(&case, &others[kind_of(case.algorithm)]?))),
            }
        })
        .collect();
    Ok(FittedCollectives {
        measurement,
        fit,
        intervals,
        rows,
    })
}

const KINDS: usize = 8;

/// The place of an algorithm's kind among all, as in
/// [`Choice::kind`](super::collectives::Choice::kind).
pub fn kind_of(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Flat => 0,
        Algorithm::KaryTree { .. } => 1,
        Algorithm::Binomial => 2,
        Algorithm::Chain { .. } => 3,
        Algorithm::Ring => 4,
        Algorithm::Direct => 5,
        Algorithm::RecursiveDoubling => 6,
        Algorithm::Rabenseifner => 7,
    }
}

impl FittedCollectives {
    /// The median over the cases of the size of a relative error.
    pub fn median_error(&self, error: impl Fn(&MeasuredRow) -> Option<f64>) -> Option<f64> {
        let errors: Vec<f64> = self.rows.iter().filter_map(error).map(f64::abs).collect();
        quantile(&errors, 0.5)
    }

    /// Whether a machine has fewer cores than ranks.
    pub fn oversubscribed(&self) -> bool {
        let nodes = &self.measurement.nodes;
        nodes.iter().any(|node| node.cores < node.ranks)
    }

    /// Of each number of ranks and bytes with several algorithms, whether the fastest in the model is the
    /// fastest that was measured: how often, and of how many. Algorithms that take equally long in the
    /// model count as one.
    pub fn fastest_agree(&self) -> (usize, usize) {
        let mut groups: Vec<(Operation, usize, u64)> = self
            .rows
            .iter()
            .filter(|row| row.case.is_some())
            .map(|row| (row.operation(), row.ranks, row.bytes))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        let (mut right, mut all) = (0, 0);
        for group in groups {
            let of = |row: &&MeasuredRow| {
                row.case.is_some() && (row.operation(), row.ranks, row.bytes) == group
            };
            let rows: Vec<&MeasuredRow> = self.rows.iter().filter(of).collect();
            let best = rows.iter().min_by(|a, b| a.median.total_cmp(&b.median));
            let least = rows
                .iter()
                .filter_map(|row| row.predicted)
                .fold(f64::INFINITY, f64::min);
            if let Some(predicted) = best.and_then(|row| row.predicted)
                && rows.len() > 1
            {
                all += 1;
                right += usize::from(predicted <= least * (1.0 + 1e-9));
            }
        }
        (right, all)
    }

    /// Writes `measured.csv` and `fit.csv` into a folder, which is made.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write_tables(&self, folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
        store::create_folder(folder)?;
        let [measured, costs] = MEASURED_TABLES.map(|name| folder.join(name));
        let mut table = Table::new(
            &measured,
            [
                "operation",
                "algorithm",
                "ranks",
                "bytes",
                "measured_s",
                "lower_quartile_s",
                "upper_quartile_s",
                "shortest_s",
                "repetitions",
                "predicted_s",
                "relative_error",
                "predicted_from_others_s",
                "relative_error_from_others",
            ],
        )?;
        for row in &self.rows {
            let algorithm = match row.case {
                Some(case) => case.algorithm.to_string(),
                None => self.measurement.native.clone(),
            };
            table.push(&[
                &row.operation().to_string(),
                &algorithm,
                &row.ranks,
                &row.bytes,
                &row.median,
                &row.quartiles.0,
                &row.quartiles.1,
                &row.shortest,
                &row.n,
                &row.predicted,
                &row.error(),
                &row.left_out,
                &row.left_out_error(),
            ])?;
        }
        table.write()?;
        let mut table = Table::new(&costs, ["parameter", "value", "low", "high", "unit"])?;
        for (i, (name, unit)) in COST_NAMES.iter().enumerate() {
            let value = self.fit.determined[i].then_some(self.fit.costs[i]);
            let interval = self.intervals[i].filter(|_| self.fit.determined[i]);
            table.push(&[
                name,
                &value,
                &interval.map(|i| i.low),
                &interval.map(|i| i.high),
                unit,
            ])?;
        }
        table.write()?;
        Ok(vec![measured, costs])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::collectives::Choice;

    const MODEL: Costs = [4e-6, 3e-10, 2e-10];

    /// Times that the model made, with noise, of two operations.
    pub(crate) fn made(noise: f64) -> Measurement {
        let mut stream = Stream::new(5, "collectives-measured-test", 0);
        let mut measured = Vec::new();
        for operation in [Operation::AllReduce, Operation::Broadcast] {
            for algorithm in [
                Algorithm::Flat,
                Algorithm::KaryTree { k: 2 },
                Algorithm::Binomial,
                Algorithm::Chain { segments: 4 },
                Algorithm::Ring,
                Algorithm::Direct,
                Algorithm::RecursiveDoubling,
                Algorithm::Rabenseifner,
            ] {
                if !algorithm.can(operation) {
                    continue;
                }
                for power in (0..20).step_by(3) {
                    let case = Case {
                        operation,
                        algorithm,
                        ranks: 4,
                        elements: 1 << power,
                        element_bytes: 8,
                    };
                    let time = predicted(&case, &MODEL);
                    measured.push(Measured {
                        what: Measurable::Scheduled(case),
                        seconds: (0..11)
                            .map(|_| time * (noise * stream.normal()).exp())
                            .collect(),
                    });
                }
            }
        }
        measured.push(Measured {
            what: Measurable::NativeSum { elements: 64 },
            seconds: vec![1e-5, 2e-5, 3e-5],
        });
        Measurement {
            ranks_are: "threads".to_owned(),
            native: "sum of the threads".to_owned(),
            nodes: vec![Node { ranks: 4, cores: 2 }],
            warm_up: 1,
            measured,
        }
    }

    #[test]
    fn the_costs_behind_measured_times_are_found() {
        let found = fitted(made(0.2)).unwrap();
        for (i, real) in MODEL.iter().enumerate() {
            assert!((found.fit.costs[i] / real - 1.0).abs() < 0.15);
            assert!(found.intervals[i].unwrap().contains(*real));
        }
        assert!(found.oversubscribed());
        assert!(found.median_error(MeasuredRow::error).unwrap() < 0.12);
        let others = found.median_error(MeasuredRow::left_out_error);
        assert!(others.unwrap() < 0.15);
        let exact = fitted(made(0.0)).unwrap();
        assert!(exact.median_error(MeasuredRow::error).unwrap() < 1e-9);
        let (right, all) = exact.fastest_agree();
        assert_eq!((right, all), (14, 14));
    }

    #[test]
    fn counts_are_the_derivatives_of_the_time() {
        let network = crate::analysis::collectives::Network::Hockney(Hockney {
            alpha: MODEL[0],
            beta: MODEL[1],
            gamma: MODEL[2],
        });
        for operation in Operation::ALL {
            for choice in Choice::ALL {
                for (ranks, elements) in [(2, 1), (5, 3), (8, 4096), (13, 100_003)] {
                    let Some(case) = choice.case(operation, ranks, elements, 8, &network) else {
                        continue;
                    };
                    let counts = counts(&case, &MODEL);
                    let sum: f64 = counts.iter().zip(MODEL).map(|(c, x)| c * x).sum();
                    let time = predicted(&case, &MODEL);
                    assert!((sum - time).abs() <= 1e-12 * time, "{case:?}");
                    for i in 0..3 {
                        let mut more = MODEL;
                        more[i] *= 1.0 + 1e-6;
                        let slope = (predicted(&case, &more) - time) / (more[i] - MODEL[i]);
                        let room = 1e-8 * time / (more[i] - MODEL[i]);
                        assert!(
                            (slope - counts[i]).abs() <= room,
                            "{case:?} {slope} {counts:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_sum_of_the_ranks_has_no_model() {
        let found = fitted(made(0.1)).unwrap();
        let native = found.rows.last().unwrap();
        assert_eq!((native.ranks, native.bytes, native.median), (4, 512, 2e-5));
        assert_eq!((native.predicted, native.error()), (None, None));
        assert!(found.rows[0].predicted.is_some() && found.rows[0].left_out.is_some());
    }

    #[test]
    fn tables_hold_what_was_measured_and_fitted() {
        let folder = tempfile::tempdir().unwrap();
        let found = fitted(made(0.1)).unwrap();
        let files = found.write_tables(folder.path()).unwrap();
        let measured = Table::read(&files[0]).unwrap();
        assert_eq!(measured.len(), found.rows.len());
        let last = measured.len() - 1;
        assert_eq!(
            measured.texts("algorithm").unwrap()[last],
            Some("sum of the threads")
        );
        assert_eq!(measured.numbers("predicted_s").unwrap()[last], None);
        let fit = Table::read(&files[1]).unwrap();
        assert_eq!(fit.numbers("value").unwrap()[0], Some(found.fit.costs[0]));
    }

    #[test]
    fn one_length_tells_no_cost_and_says_so() {
        let mut one = made(0.0);
        one.measured
            .retain(|m| matches!(m.what, Measurable::Scheduled(c) if c.elements == 8 && c.algorithm == Algorithm::Flat));
        let found = fitted(one).unwrap();
        assert!(found.fit.determined[2]);
        assert!(!found.fit.determined[0] && !found.fit.determined[1]);
        let folder = tempfile::tempdir().unwrap();
        let files = found.write_tables(folder.path()).unwrap();
        let fit = Table::read(&files[1]).unwrap();
        assert_eq!(fit.numbers("value").unwrap()[0], None);
    }
}
