//! Costs from times: alpha, beta and gamma of Hockney's model, fitted to measured times, with intervals.
//!
//! The time of a case is p = c1 x1 + c2 x2 + c3 x3: x the three costs, none negative, c how often each
//! counts. Where the time is the later of several, c depends on x as well, but by steps, so p stays
//! x1 dp/dx1 + x2 dp/dx2 + x3 dp/dx3; the caller gives c at costs that are asked for.
//!
//! Least are the squares of ln(y/p), y the measured times: relative errors that count half and twice
//! alike. ((p - y)/y would call ten times too short a smaller error than twice too long, and so fit too
//! low wherever the model misses something.) From the costs that make the squares of (p - y)/y least,
//! Gauss-Newton steps are taken: with p = c x each is a linear problem with non-negative unknowns
//! (Lawson and Hanson 1974, chapter 23), rows c/p, right-hand side 1 + ln(y/p), and is shortened
//! until it helps.

use thiserror::Error;

use super::statistics::{Interval, quantile};

/// Costs that are fitted: of a message, of a byte sent, of a byte added.
pub const COSTS: usize = 3;

/// One number for each cost.
pub type Costs = [f64; COSTS];

/// Steps of Gauss and Newton, and how often one is halved at most.
const STEPS: usize = 100;
const HALVINGS: i32 = 30;

/// A step that changes no time by more than this share is the last; of a resample, which has the fit to
/// all cases to begin with and needs no more digits than its interval.
const SETTLED: f64 = 1e-12;
const SETTLED_RESAMPLE: f64 = 1e-5;

/// What is left of a column when its part along others is taken off, relative to it, at which it
/// counts as made of them.
const DEPENDENT: f64 = 1e-7;

/// Why no costs could be fitted.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum CostFitError {
    /// Nothing to fit to.
    #[error("no costs can be fitted without a measured time")]
    Nothing,
    /// A time that is none.
    #[error("case {case}: expected a time above 0, found {found}")]
    Time {
        /// Which case, from 1.
        case: usize,
        /// The time.
        found: f64,
    },
    /// Counts that are none.
    #[error("case {case}: expected counts of at least 0, one of them above 0, found {found:?}")]
    Counts {
        /// Which case, from 1.
        case: usize,
        /// The counts.
        found: Costs,
    },
}

/// Costs fitted to times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostFit {
    /// The costs, at least 0.
    pub costs: Costs,
    /// Which of them the times tell apart from the others. One that is not has a value all the same,
    /// of no meaning alone.
    pub determined: [bool; COSTS],
    /// Root of the mean square of ln(y/p).
    pub log_error: f64,
    /// Number of cases.
    pub n: usize,
}

/// Fits costs to the times of cases; `counts(i, costs)` is how often each cost counts in the time of
/// case i near these costs.
///
/// ```
/// use batchlab::math::hockney_fit::fit_costs;
///
/// // Messages, bytes and bytes added of three operations.
/// let counts = [[2.0, 8.0, 8.0], [2.0, 8e6, 8e6], [6.0, 9e6, 0.0]];
/// let times = counts.map(|[m, b, a]| 5e-6 * m + 1e-9 * b + 2e-10 * a);
/// let fit = fit_costs(&times, |case, _| counts[case])?;
/// assert!((fit.costs[0] / 5e-6 - 1.0).abs() < 1e-6);
/// assert!((fit.costs[2] / 2e-10 - 1.0).abs() < 1e-6);
/// # Ok::<(), batchlab::math::hockney_fit::CostFitError>(())
/// ```
///
/// # Errors
/// No times, one that is not above 0, or counts of which one is negative or all are 0.
pub fn fit_costs(
    times: &[f64],
    counts: impl Fn(usize, &Costs) -> Costs,
) -> Result<CostFit, CostFitError> {
    if times.is_empty() {
        return Err(CostFitError::Nothing);
    }
    for (i, &time) in times.iter().enumerate() {
        if !(time.is_finite() && time > 0.0) {
            return Err(CostFitError::Time {
                case: i + 1,
                found: time,
            });
        }
        let found = counts(i, &[1.0; COSTS]);
        let valid = found.iter().all(|c| c.is_finite() && *c >= 0.0);
        if !(valid && found.iter().any(|c| *c > 0.0)) {
            return Err(CostFitError::Counts { case: i + 1, found });
        }
    }
    let (costs, linear) = search(start(times, &counts), SETTLED, times, &counts);
    Ok(CostFit {
        costs,
        determined: independent(&linear.rows),
        log_error: (linear.squares / times.len() as f64).sqrt(),
        n: times.len(),
    })
}

/// The central `confidence` part of each cost over `resamples` samples, where it is determined.
///
/// Each draws as many cases as there are, with replacement, and of each as many of its repetitions, with
/// replacement; the time of a case is the median over them. So the intervals hold how repetitions
/// scatter, and how well the model speaks for cases of this kind. The median of few, very uneven
/// repetitions is longer in resamples than in the sample; an interval beside the costs that fit the
/// sample is widened to hold them. `below(n)` draws from 0..n uniformly. `None` for a cost that is
/// determined in half of the samples or fewer, and for all where there is nothing to fit, with less
/// than two cases, or if `confidence` is outside (0, 1).
pub fn cost_intervals(
    repetitions: &[Vec<f64>],
    counts: impl Fn(usize, &Costs) -> Costs,
    resamples: usize,
    confidence: f64,
    mut below: impl FnMut(u64) -> u64,
) -> [Option<Interval>; COSTS] {
    let none = [None; COSTS];
    let medians: Option<Vec<f64>> = repetitions.iter().map(|all| quantile(all, 0.5)).collect();
    let Some(fit) = medians.and_then(|times| fit_costs(&times, &counts).ok()) else {
        return none;
    };
    if repetitions.len() < 2 || !(confidence > 0.0 && confidence < 1.0) {
        return none;
    }
    let mut found: [Vec<f64>; COSTS] = Default::default();
    let (mut cases, mut times, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..resamples {
        cases.clear();
        times.clear();
        for _ in repetitions {
            let case = below(repetitions.len() as u64) as usize;
            let all = &repetitions[case];
            drawn.clear();
            drawn.extend(all.iter().map(|_| all[below(all.len() as u64) as usize]));
            cases.push(case);
            times.extend(quantile(&drawn, 0.5));
        }
        let counts = |slot: usize, costs: &Costs| counts(cases[slot], costs);
        let (costs, linear) = search(fit.costs, SETTLED_RESAMPLE, &times, &counts);
        for (cost, determined) in independent(&linear.rows).into_iter().enumerate() {
            if determined {
                found[cost].push(costs[cost]);
            }
        }
    }
    let tail = (1.0 - confidence) / 2.0;
    std::array::from_fn(|cost| {
        let values = &found[cost];
        if values.len() * 2 <= resamples {
            return None;
        }
        Some(Interval {
            low: quantile(values, tail)?.min(fit.costs[cost]),
            high: quantile(values, 1.0 - tail)?.max(fit.costs[cost]),
        })
    })
}

fn dot(a: &Costs, b: &Costs) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The linear problem at some costs, and how far off they are.
struct Linear {
    /// c/p of each case.
    rows: Vec<Costs>,
    /// 1 + ln(y/p) of each case.
    values: Vec<f64>,
    /// Sum of the squares of ln(y/p), infinite where a time is none.
    squares: f64,
}

impl Linear {
    fn at(costs: &Costs, times: &[f64], counts: &impl Fn(usize, &Costs) -> Costs) -> Self {
        let mut linear = Self {
            rows: Vec::with_capacity(times.len()),
            values: Vec::with_capacity(times.len()),
            squares: 0.0,
        };
        for (i, time) in times.iter().enumerate() {
            let own = counts(i, costs);
            let predicted = dot(&own, costs);
            let log = (time / predicted).ln();
            linear.rows.push(own.map(|c| c / predicted));
            linear.values.push(1.0 + log);
            linear.squares += log * log;
        }
        if !linear.squares.is_finite() {
            linear.squares = f64::INFINITY;
        }
        linear
    }
}

/// Costs to begin with: those that make the squares of (p - y)/y least, or where these are worse, each
/// as if it alone made a third of a typical time.
fn start(times: &[f64], counts: &impl Fn(usize, &Costs) -> Costs) -> Costs {
    let mut costs = [0.0; COSTS];
    for (j, cost) in costs.iter_mut().enumerate() {
        let alone: Vec<f64> = times
            .iter()
            .enumerate()
            .map(|(i, time)| time / (3.0 * counts(i, &[1.0; COSTS])[j]))
            .filter(|x| x.is_finite())
            .collect();
        *cost = quantile(&alone, 0.5).unwrap_or(0.0);
    }
    let row = |(i, time): (usize, &f64)| counts(i, &costs).map(|c| c / time);
    let rows: Vec<Costs> = times.iter().enumerate().map(row).collect();
    let squares = |costs: &Costs| Linear::at(costs, times, counts).squares;
    non_negative(&rows, &vec![1.0; times.len()])
        .filter(|found| squares(found) < squares(&costs))
        .unwrap_or(costs)
}

/// The best costs, and the linear problem there.
fn search(
    mut costs: Costs,
    settled: f64,
    times: &[f64],
    counts: &impl Fn(usize, &Costs) -> Costs,
) -> (Costs, Linear) {
    let mut here = Linear::at(&costs, times, counts);
    for _ in 0..STEPS {
        let Some(target) = non_negative(&here.rows, &here.values) else {
            break;
        };
        let shorter = (0..=HALVINGS).map(|halvings| {
            let share = 0.5_f64.powi(halvings);
            let tried: Costs = std::array::from_fn(|j| costs[j] + share * (target[j] - costs[j]));
            (Linear::at(&tried, times, counts), tried)
        });
        let better = shorter
            .into_iter()
            .find(|(linear, _)| linear.squares < here.squares);
        let Some((linear, next)) = better else {
            break;
        };
        let moved = here
            .rows
            .iter()
            .map(|row| (dot(row, &next) - 1.0).abs())
            .fold(0.0, f64::max);
        (costs, here) = (next, linear);
        if moved < settled {
            break;
        }
    }
    (costs, here)
}

/// Columns of the matrix, each with its length divided out; none for one of zeros.
fn columns(rows: &[Costs]) -> [Option<(Vec<f64>, f64)>; COSTS] {
    std::array::from_fn(|j| {
        let column: Vec<f64> = rows.iter().map(|row| row[j]).collect();
        let length = column.iter().map(|x| x * x).sum::<f64>().sqrt();
        (length > 0.0).then(|| (column.iter().map(|x| x / length).collect(), length))
    })
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// A vector without its parts along orthonormal ones, taken off twice.
fn without(mut vector: Vec<f64>, basis: &[Vec<f64>]) -> Vec<f64> {
    for unit in basis.iter().chain(basis) {
        let part = inner(&vector, unit);
        for (x, u) in vector.iter_mut().zip(unit) {
            *x -= part * u;
        }
    }
    vector
}

/// An orthonormal basis of unit vectors; `None` if they are linearly dependent.
fn orthonormal<'a>(vectors: impl Iterator<Item = &'a Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for vector in vectors {
        let rest = without(vector.clone(), &basis);
        let length = inner(&rest, &rest).sqrt();
        if length < DEPENDENT {
            return None;
        }
        basis.push(rest.iter().map(|x| x / length).collect());
    }
    Some(basis)
}

/// Which columns are no linear combination of the others.
fn independent(rows: &[Costs]) -> [bool; COSTS] {
    let columns = columns(rows);
    std::array::from_fn(|j| {
        let Some((own, _)) = &columns[j] else {
            return false;
        };
        let mut basis: Vec<Vec<f64>> = Vec::new();
        for (_, (other, _)) in columns
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != j)
            .filter_map(|(i, c)| Some((i, c.as_ref()?)))
        {
            let rest = without(other.clone(), &basis);
            let length = inner(&rest, &rest).sqrt();
            if length >= DEPENDENT {
                basis.push(rest.iter().map(|x| x / length).collect());
            }
        }
        let rest = without(own.clone(), &basis);
        inner(&rest, &rest).sqrt() >= DEPENDENT
    })
}

/// The x >= 0 that makes |A x - b| least, by trying which of its entries are 0: the best of all
/// least-squares solutions on some columns that are not negative. A column that depends on others
/// is not needed with all of them. `None` if all columns are zero.
fn non_negative(rows: &[Costs], values: &[f64]) -> Option<Costs> {
    let columns = columns(rows);
    let mut best: Option<(f64, Costs)> = None;
    for subset in 1_usize..1 << COSTS {
        let chosen: Vec<usize> = (0..COSTS).filter(|j| subset >> j & 1 == 1).collect();
        let Some(vectors) = chosen
            .iter()
            .map(|&j| columns[j].as_ref())
            .collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        let Some(basis) = orthonormal(vectors.iter().map(|c| &c.0)) else {
            continue;
        };
        // R x = Q'b, R upper triangular.
        let mut x = [0.0; COSTS];
        for (k, &j) in chosen.iter().enumerate().rev() {
            let mut rest = inner(&basis[k], values);
            for (&later, column) in chosen.iter().zip(&vectors).skip(k + 1) {
                rest -= inner(&basis[k], &column.0) * x[later] * column.1;
            }
            x[j] = rest / inner(&basis[k], &vectors[k].0) / vectors[k].1;
        }
        if x.iter().any(|v| !(v.is_finite() && *v >= 0.0)) {
            continue;
        }
        let left = without(values.to_vec(), &basis);
        let squares = inner(&left, &left);
        if best.is_none_or(|(least, _)| squares < least) {
            best = Some((squares, x));
        }
    }
    best.map(|(_, x)| x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn reference() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/reference/hockney_fit.json")).unwrap()
    }

    fn floats(value: &serde_json::Value) -> Vec<f64> {
        let all = value.as_array().unwrap().iter();
        all.map(|v| v.as_f64().unwrap()).collect()
    }

    fn rows(value: &serde_json::Value) -> Vec<Costs> {
        let all = value.as_array().unwrap().iter();
        all.map(|row| floats(row).try_into().unwrap()).collect()
    }

    #[test]
    fn non_negative_least_squares_agree_with_scipy() {
        let mut zeros = 0;
        for case in reference()["nnls"].as_array().unwrap() {
            let ours = non_negative(&rows(&case["rows"]), &floats(&case["values"])).unwrap();
            for (ours, theirs) in ours.iter().zip(floats(&case["x"])) {
                assert!((ours - theirs).abs() <= 1e-9 * theirs.abs().max(1e-3));
                zeros += usize::from(theirs == 0.0);
            }
        }
        assert!(zeros > 5, "the bounds must matter: {zeros}");
    }

    #[test]
    fn fits_of_log_times_agree_with_scipy() {
        for case in reference()["fits"].as_array().unwrap() {
            let counts = rows(&case["counts"]);
            let fit = fit_costs(&floats(&case["times"]), |i, _| counts[i]).unwrap();
            let theirs = floats(&case["costs"]);
            for (ours, theirs) in fit.costs.iter().zip(&theirs) {
                // scipy's own tolerance; a cost at its bound is there within a millionth of an alpha.
                let scale = theirs.abs().max(1e-18);
                assert!((ours - theirs).abs() <= 1e-5 * scale, "{ours} {theirs}");
            }
            let error = case["log_error"].as_f64().unwrap();
            assert!((fit.log_error / error - 1.0).abs() < 1e-8);
            assert!(fit.log_error <= error * (1.0 + 1e-12));
        }
    }

    /// Cases like those of all-reduces and broadcasts on four ranks.
    fn cases() -> Vec<Costs> {
        let mut cases = Vec::new();
        for power in [3, 6, 9, 12, 15, 18, 21] {
            let n = f64::from(1 << power);
            cases.push([6.0, 1.5 * n, 0.75 * n]);
            cases.push([2.0, 2.0 * n, 2.0 * n]);
            cases.push([4.0, 1.5 * n, 0.75 * n]);
            cases.push([6.0, 6.0 * n, 3.0 * n]);
            cases.push([2.0, 2.0 * n, 0.0]);
            cases.push([3.0, 3.0 * n, 0.0]);
        }
        cases
    }

    const TRUE: Costs = [3e-6, 2e-10, 1.5e-10];

    /// Repetitions of each case: the model, what the model misses of the case, and noise.
    fn repetitions(cases: &[Costs], missed: f64, noise: f64, stream: &mut Stream) -> Vec<Vec<f64>> {
        let case = |counts: &Costs| {
            let time = dot(counts, &TRUE) * (missed * stream.normal()).exp();
            (0..15)
                .map(|_| time * (noise * stream.normal()).exp())
                .collect()
        };
        cases.iter().map(case).collect()
    }

    fn medians(repetitions: &[Vec<f64>]) -> Vec<f64> {
        let median = |all: &Vec<f64>| quantile(all, 0.5).unwrap();
        repetitions.iter().map(median).collect()
    }

    #[test]
    fn costs_that_made_the_times_are_found() {
        let cases = cases();
        let times: Vec<f64> = cases.iter().map(|c| dot(c, &TRUE)).collect();
        let fit = fit_costs(&times, |i, _| cases[i]).unwrap();
        for (found, real) in fit.costs.iter().zip(TRUE) {
            assert!((found / real - 1.0).abs() < 1e-9, "{found} {real}");
        }
        assert!(fit.determined.iter().all(|d| *d) && fit.log_error < 1e-9);
        let mut stream = Stream::new(0, "hockney-fit-test", 0);
        let noisy = medians(&repetitions(&cases, 0.0, 0.1, &mut stream));
        let fit = fit_costs(&noisy, |i, _| cases[i]).unwrap();
        for (found, real) in fit.costs.iter().zip(TRUE) {
            assert!((found / real - 1.0).abs() < 0.1, "{found} {real}");
        }
    }

    #[test]
    fn the_later_of_two_ways_is_counted_as_the_costs_have_it() {
        // max(5 alpha + n beta, 2 alpha + 3 n beta): they cross where n beta is 1.5 alpha.
        let sizes: Vec<f64> = (0..12)
            .map(|i| 8.0 * 10f64.powf(f64::from(i) / 2.0))
            .collect();
        let counts = |i: usize, x: &Costs| {
            let ways = [[5.0, sizes[i], 0.0], [2.0, 3.0 * sizes[i], 0.0]];
            if dot(&ways[0], x) >= dot(&ways[1], x) {
                ways[0]
            } else {
                ways[1]
            }
        };
        let times: Vec<f64> = (0..12).map(|i| dot(&counts(i, &TRUE), &TRUE)).collect();
        let fit = fit_costs(&times, counts).unwrap();
        assert!((fit.costs[0] / TRUE[0] - 1.0).abs() < 1e-9);
        assert!((fit.costs[1] / TRUE[1] - 1.0).abs() < 1e-9);
        assert_eq!(fit.determined, [true, true, false]);
    }

    #[test]
    fn intervals_hold_the_true_costs_as_often_as_they_say() {
        let cases = cases();
        let (trials, mut covered) = (200, [0_u32; COSTS]);
        for trial in 0..trials {
            let mut stream = Stream::new(1, "hockney-fit-test", trial);
            let measured = repetitions(&cases, 0.08, 0.15, &mut stream);
            let counts = |i: usize, _: &Costs| cases[i];
            let found = cost_intervals(&measured, counts, 200, 0.95, |n| stream.below(n));
            for cost in 0..COSTS {
                covered[cost] += u32::from(found[cost].unwrap().contains(TRUE[cost]));
            }
        }
        // 95 % intervals; the percentile interval of 200 resamples runs a little short.
        assert!(covered.iter().all(|c| *c >= 180), "{covered:?} of {trials}");
    }

    #[test]
    fn costs_that_no_case_tells_apart_are_named() {
        // All of one length: a message cannot be told from its bytes.
        let one_length = [[6.0, 1536.0, 0.0], [2.0, 512.0, 0.0]];
        let times = one_length.map(|c| dot(&c, &TRUE));
        let fit = fit_costs(&times, |i, _| one_length[i]).unwrap();
        assert_eq!(fit.determined, [false; COSTS]);
        assert!(fit.log_error < 1e-12);
        let found = cost_intervals(
            &times.map(|t| vec![t]),
            |i, _| one_length[i],
            20,
            0.95,
            |n| n - 1,
        );
        assert_eq!(found, [None; COSTS]);
    }

    #[test]
    fn a_few_times_that_are_far_off_move_the_fit_little() {
        let cases = cases();
        let mut times: Vec<f64> = cases.iter().map(|c| dot(c, &TRUE)).collect();
        times[7] *= 20.0;
        let fit = fit_costs(&times, |i, _| cases[i]).unwrap();
        for (found, real) in fit.costs.iter().zip(TRUE) {
            assert!(found / real > 0.5 && found / real < 2.0, "{found} {real}");
        }
    }

    #[test]
    fn times_and_counts_that_are_none_are_refused() {
        let of = |times: &[f64], counts: Costs| fit_costs(times, |_, _| counts).unwrap_err();
        assert_eq!(of(&[], [1.0; 3]), CostFitError::Nothing);
        assert_eq!(
            of(&[1.0, 0.0], [1.0; 3]).to_string(),
            "case 2: expected a time above 0, found 0"
        );
        assert!(matches!(
            of(&[1.0], [0.0; 3]),
            CostFitError::Counts { case: 1, .. }
        ));
        assert!(matches!(
            of(&[f64::NAN], [1.0; 3]),
            CostFitError::Time { case: 1, .. }
        ));
    }
}
