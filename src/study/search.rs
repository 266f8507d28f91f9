//! The search for the rate that takes the fewest updates to a target.

use std::collections::BTreeMap;

use super::Reading;
use crate::config::{Metric, TargetConfig};
use crate::train::Status;

/// A grid of rates base factor^i, for i from `low` to `high`, and where to begin.
///
/// The search tries the centre, then the neighbours of the best rate so far, until that one lies
/// between two that are no better, or at a limit. A rate that reached the target in fewer updates is
/// better; of those that did not reach it, the one that came closer; of two that are alike, the one
/// nearer to the centre. One that diverged is the worst, and has only smaller rates tried. While none has
/// reached the target, the search goes on beyond the closest, to the limits.
///
/// A trial may be stopped once the best of the search so far reached the target at the same evaluation
/// or before: its own crossing can then only be later. What is tried next depends on the best and on
/// which rates were tried alone, so the search goes the same way with and without stopping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RateSearch {
    pub(super) low: i32,
    pub(super) high: i32,
    pub(super) centre: i32,
}

/// What a trial of the search came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Outcome {
    /// Updates to the target.
    pub(super) steps: Option<f64>,
    /// The update of the evaluation that showed it.
    pub(super) evaluated_at: Option<u64>,
    /// How far it came otherwise; larger is closer, minus infinity where it diverged.
    pub(super) progress: f64,
}

impl Outcome {
    pub(super) fn of(reading: &Reading, target: &TargetConfig) -> Self {
        let ran = matches!(reading.status, Status::Completed | Status::Censored);
        let sign = match target.metric {
            Metric::Accuracy => 1.0,
            Metric::Loss => -1.0,
        };
        let progress = reading.best.filter(|_| ran).map(|best| sign * best);
        Self {
            steps: reading.steps,
            evaluated_at: reading.evaluated_at,
            progress: progress.unwrap_or(f64::NEG_INFINITY),
        }
    }

    fn diverged(&self) -> bool {
        self.steps.is_none() && self.progress == f64::NEG_INFINITY
    }

    fn is_better_than(&self, other: &Self) -> bool {
        match (self.steps, other.steps) {
            (Some(a), Some(b)) => a < b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.progress > other.progress,
        }
    }
}

/// What the search wants next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// These rates, ascending. A trial may stop after the evaluation at `stop`.
    Try { rates: Vec<i32>, stop: Option<u64> },
    /// Nothing more. The best rate, if one reached the target.
    Done { best: Option<i32> },
}

impl RateSearch {
    /// The rates next to the range that was tried, within the limits, and none above one that diverged.
    fn beyond(&self, tried: &BTreeMap<i32, Outcome>) -> Vec<i32> {
        let below = tried.first_key_value().map(|(&rate, _)| rate - 1);
        let above = tried.last_key_value().filter(|(_, last)| !last.diverged());
        let above = above.map(|(&rate, _)| rate + 1);
        let ends = [below, above].into_iter().flatten();
        ends.filter(|rate| (self.low..=self.high).contains(rate))
            .collect()
    }

    /// What to try, given the outcomes by rate.
    pub(super) fn next(&self, tried: &BTreeMap<i32, Outcome>) -> Next {
        let mut best: Option<(i32, Outcome)> = None;
        let distance = |rate: i32| (rate - self.centre).abs();
        for (&rate, outcome) in tried {
            let wins = best.is_none_or(|(other, best)| {
                let alike = !best.is_better_than(outcome) && !outcome.diverged();
                outcome.is_better_than(&best) || alike && distance(rate) < distance(other)
            });
            if wins {
                best = Some((rate, *outcome));
            }
        }
        let Some((rate, outcome)) = best else {
            return Next::Try {
                rates: vec![self.centre],
                stop: None,
            };
        };
        let above = (!outcome.diverged()).then_some(rate + 1);
        let rates: Vec<i32> = [Some(rate - 1), above]
            .into_iter()
            .flatten()
            .filter(|rate| (self.low..=self.high).contains(rate) && !tried.contains_key(rate))
            .collect();
        // The closest of several that all missed the target says little where none moved: the search
        // then widens to its limits.
        let rates = if rates.is_empty() && outcome.steps.is_none() {
            self.beyond(tried)
        } else {
            rates
        };
        if rates.is_empty() {
            let best = outcome.steps.map(|_| rate);
            return Next::Done { best };
        }
        Next::Try {
            rates,
            stop: outcome.evaluated_at,
        }
    }
}

/// Batches in the order in which they are searched: the middle one, the ends, the others. Each group
/// begins where the law fitted to those before it says.
pub(super) fn levels(batches: &[usize]) -> Vec<Vec<usize>> {
    let n = batches.len();
    if n < 3 {
        return batches.iter().map(|&batch| vec![batch]).collect();
    }
    let middle = (n - 1) / 2;
    let rest: Vec<usize> = (1..n - 1)
        .filter(|&i| i != middle)
        .map(|i| batches[i])
        .collect();
    let mut levels = vec![vec![batches[middle]], vec![batches[0], batches[n - 1]]];
    if !rest.is_empty() {
        levels.push(rest);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search to its end on a function of the rate: crossings in updates, and evaluations every
    /// ten updates. Returns the best rate and all that was tried.
    fn run(
        search: RateSearch,
        stopping: bool,
        budget: u64,
        steps: impl Fn(i32) -> Option<f64>,
        progress: impl Fn(i32) -> f64,
    ) -> (Option<i32>, Vec<i32>, u64) {
        let (mut tried, mut order, mut work) = (BTreeMap::new(), Vec::new(), 0);
        loop {
            match search.next(&tried) {
                Next::Done { best } => return (best, order, work),
                Next::Try { rates, stop } => {
                    let end = stop.filter(|_| stopping).unwrap_or(budget).min(budget);
                    for rate in rates {
                        let at = steps(rate).map(|s| (s / 10.0).ceil() as u64 * 10);
                        let reached = at.is_some_and(|at| at <= end);
                        work += at.filter(|_| reached).unwrap_or(end);
                        let outcome = Outcome {
                            steps: steps(rate).filter(|_| reached),
                            evaluated_at: at.filter(|_| reached),
                            progress: progress(rate),
                        };
                        assert!(tried.insert(rate, outcome).is_none(), "tried twice");
                        order.push(rate);
                    }
                }
            }
        }
    }

    const SEARCH: RateSearch = RateSearch {
        low: -10,
        high: 10,
        centre: 0,
    };

    #[test]
    fn the_grid_widens_until_the_best_rate_lies_inside() {
        let steps = |rate: i32| Some(100.0 + 7.0 * f64::from((rate - 5).pow(2)));
        let (best, order, _) = run(SEARCH, true, 10_000, steps, f64::from);
        assert_eq!(best, Some(5));
        assert_eq!(order, [0, -1, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn stopping_what_can_only_lose_changes_no_winner_and_saves_updates() {
        let mut stream = crate::rng::Stream::new(7, "rate-search", 0);
        let mut saved = 0;
        for _ in 0..2000 {
            let values: Vec<f64> = (-10..=10)
                .map(|rate: i32| {
                    let bowl = 30.0 * f64::from(rate - 3).powi(2);
                    200.0 + bowl + 200.0 * stream.uniform()
                })
                .collect();
            let unreachable = stream.below(21) as i32 - 10;
            let steps = |rate: i32| (rate != unreachable).then(|| values[(rate + 10) as usize]);
            let budget = 1500;
            let progress = |rate: i32| -f64::from((rate - 3).abs());
            let full = run(SEARCH, false, budget, steps, progress);
            let stopped = run(SEARCH, true, budget, steps, progress);
            assert_eq!((full.0, &full.1), (stopped.0, &stopped.1));
            saved += full.2 - stopped.2;
        }
        assert!(saved > 0);
    }

    #[test]
    fn rates_that_diverge_send_the_search_down_only() {
        let steps = |rate: i32| (rate < -3).then_some(100.0);
        let progress = |rate: i32| {
            if rate < -3 { 0.0 } else { f64::NEG_INFINITY }
        };
        let (best, order, _) = run(SEARCH, true, 1000, steps, progress);
        assert_eq!(best, Some(-4));
        assert_eq!(order, [0, -1, -2, -3, -4, -5]);
    }

    #[test]
    fn where_no_rate_reaches_the_target_all_are_tried() {
        let progress = |rate: i32| -f64::from((rate + 2).pow(2));
        let narrow = RateSearch {
            low: -4,
            high: 3,
            centre: 0,
        };
        let (best, order, _) = run(narrow, true, 1000, |_| None, progress);
        assert_eq!(best, None);
        assert_eq!(order, [0, -1, 1, -2, -3, -4, 2, 3]);
    }

    #[test]
    fn a_plateau_of_rates_that_get_nowhere_is_left_behind() {
        // Far too small or too large: all alike until the rates that learn.
        for learns in [-9, 9] {
            let steps = |rate: i32| (rate == learns).then_some(50.0);
            let (best, ..) = run(SEARCH, true, 1000, steps, |_| 0.1);
            assert_eq!(best, Some(learns));
        }
    }

    #[test]
    fn a_limit_ends_the_search() {
        let steps = |rate: i32| Some(1000.0 - f64::from(rate));
        let narrow = RateSearch {
            low: -1,
            high: 2,
            centre: 0,
        };
        assert_eq!(run(narrow, true, 5000, steps, f64::from).0, Some(2));
    }

    #[test]
    fn the_middle_batch_comes_first_and_the_ends_next() {
        assert_eq!(levels(&[8, 32]), [vec![8], vec![32]]);
        assert_eq!(levels(&[8, 16, 32]), [vec![16], vec![8, 32]]);
        assert_eq!(
            levels(&[8, 16, 32, 64, 128]),
            [vec![32], vec![8, 128], vec![16, 64]]
        );
    }
}
