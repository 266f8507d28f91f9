//! From what was measured at each batch to the critical batch size, and every other estimate of it
//! beside it, with what each cost.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::types::{
    BatchPoint, BranchMoment, Case, Cost, EstimateRow, Fit, Mean, Noise, NoiseSummary, Published,
    RateLaw, SeedPoint,
};
use crate::analysis::numbers::{count, plural, significant};
use crate::math::rate_fit::{RateSample, fit_rate, rate_intervals};
use crate::math::statistics::{Estimate, Interval};
use crate::math::steps_fit::{Bound, FitError, StepsSample, fit_steps, goodness, intervals};
use crate::rng::Stream;
use crate::theory::steps;

/// Overhead that counts as scaling perfectly (in examples) or as saturated (in updates): 20 %, as in
/// Zhang et al. 2024 (arXiv 2410.21676).
pub const EFFICIENCY_OVERHEAD: f64 = 0.2;

/// Confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2000;

/// Batches at which the curve gets a band.
const BAND_POINTS: usize = 61;

/// The band goes beyond the measured batches by this factor.
const BAND_MARGIN: f64 = 4.0;

/// Beginning of the note of a row whose value is a lower bound.
pub(super) const AT_LEAST: &str = "at least";

/// What the measurements took, in examples of which gradients were taken; `None` where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Costs {
    /// All trials of the search over rates, at all batches.
    pub sweep: Option<Cost>,
    /// The runs with the noise scale, from the start to the target.
    pub noise: Option<Cost>,
    /// Their part that gives the noise scale at the start; `None`: as `noise`.
    pub noise_start: Option<Cost>,
    /// Trunks and branches.
    pub branched: Option<Cost>,
}

/// One batch from what its seeds say, in the order of the seeds.
pub fn batch_point(batch: u64, mut seeds: Vec<SeedPoint>) -> BatchPoint {
    seeds.sort_by_key(|seed| seed.seed);
    let steps: Option<Vec<f64>> = seeds.iter().map(|seed| seed.steps).collect();
    let reached = seeds.iter().filter(|seed| seed.steps.is_some());
    let rates: Vec<f64> = reached.filter_map(|seed| seed.rate).collect();
    BatchPoint {
        batch,
        steps: steps.and_then(|steps| geometric_mean(&steps)),
        rate: geometric_mean(&rates),
        seeds,
    }
}

/// The geometric mean with its interval, Student's t in the logarithm; `None` of no values, or if one
/// is not above 0.
pub(super) fn geometric_mean(values: &[f64]) -> Option<Mean> {
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let estimate = Estimate::of(&logs)?;
    let interval = estimate.interval().map(|i| Interval {
        low: i.low.exp(),
        high: i.high.exp(),
    });
    Some(Mean {
        value: estimate.mean.exp(),
        interval,
    })
}

/// The answer for one task, model and optimizer.
///
/// `source` is the data source by its name in a study file; published values are known for some. The
/// intervals are a fixed function of the numbers.
pub fn case(
    label: String,
    mut batches: Vec<BatchPoint>,
    noise: Option<Noise>,
    branched: Vec<BranchMoment>,
    costs: &Costs,
    source: Option<&str>,
) -> Case {
    batches.sort_by_key(|point| point.batch);
    let fit = fit(&batches);
    let rate_law = rate_law(&batches);
    let estimates = Estimates {
        fit: &fit,
        batches: &batches,
        costs,
        published: source.and_then(steps::published),
    }
    .rows(noise.as_ref(), &branched);
    Case {
        label,
        batches,
        fit,
        rate_law,
        noise,
        branched,
        estimates,
    }
}

/// What the law is fitted to. A trial that did not reach the target and made no update says nothing.
fn samples(batches: &[BatchPoint]) -> Vec<StepsSample> {
    let of_point = |point: &BatchPoint| {
        let batch = point.batch as f64;
        let sample = move |seed: &SeedPoint| StepsSample {
            batch,
            steps: seed.steps.unwrap_or(seed.bound),
            reached: seed.steps.is_some(),
            seed: seed.seed,
        };
        point.seeds.iter().map(sample).collect::<Vec<_>>()
    };
    let all = batches.iter().flat_map(of_point);
    all.filter(|s| s.reached || s.steps > 0.0).collect()
}

fn fit(batches: &[BatchPoint]) -> Result<Fit, FitError> {
    let samples = samples(batches);
    let fit = fit_steps(&samples)?;
    let at = band(batches);
    let mut stream = Stream::new(0, "critical-batch", 0);
    let draw = |n| stream.below(n);
    let found = intervals(&samples, &fit, &at, CONFIDENCE, RESAMPLES, draw);
    Ok(Fit {
        goodness: goodness(&samples, &fit),
        intervals: found,
        efficient_batch: steps::efficient_batch(fit.b_crit, EFFICIENCY_OVERHEAD),
        measured_efficient_batch: measured_efficient_batch(batches),
        saturated_batch: steps::saturated_batch(fit.b_crit, EFFICIENCY_OVERHEAD),
        fit,
    })
}

/// Batches at equal distances in the logarithm, around those measured.
fn band(batches: &[BatchPoint]) -> Vec<f64> {
    let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
        return Vec::new();
    };
    let low = first.batch as f64 / BAND_MARGIN;
    let high = last.batch as f64 * BAND_MARGIN;
    let share = |i: usize| i as f64 / (BAND_POINTS - 1) as f64;
    let at = (0..BAND_POINTS).map(|i| low * (high / low).powf(share(i)));
    at.collect()
}

/// Where examples to target come to be 20 % more than at the smallest batch whose seeds all reached
/// the target; between two batches by interpolation in the logarithms.
fn measured_efficient_batch(batches: &[BatchPoint]) -> Option<f64> {
    let mut points = batches.iter().filter_map(|point| {
        let batch = point.batch as f64;
        Some((batch.ln(), (batch * point.steps?.value).ln()))
    });
    let limit = (1.0 + EFFICIENCY_OVERHEAD).ln();
    let mut before = points.next()?;
    let least = before.1 + limit;
    for point in points {
        if point.1 > least {
            let share = (least - before.1) / (point.1 - before.1);
            return Some((before.0 + share * (point.0 - before.0)).exp());
        }
        before = point;
    }
    None
}

fn rate_law(batches: &[BatchPoint]) -> Option<RateLaw> {
    let reached = || {
        batches
            .iter()
            .flat_map(|point| &point.seeds)
            .filter(|s| s.steps.is_some())
    };
    let first = reached().next()?;
    // Rates that go with different values of another key, such as the momentum, follow no one law.
    if reached().any(|seed| seed.others != first.others) {
        return None;
    }
    let mut samples = Vec::new();
    for point in batches {
        let reached = point.seeds.iter().filter(|seed| seed.steps.is_some());
        samples.extend(reached.filter_map(|seed| {
            Some(RateSample {
                batch: point.batch as f64,
                rate: seed.rate?,
                seed: seed.seed,
            })
        }));
    }
    let fit = fit_rate(&samples, None)?;
    let mut stream = Stream::new(0, "critical-batch", 1);
    let draw = |n| stream.below(n);
    let found = rate_intervals(&samples, &fit, CONFIDENCE, RESAMPLES, draw);
    // Where all seeds have the same best rates, the grid of the search hides how they differ.
    let found = found.filter(|(alpha, b_star)| {
        alpha.high - alpha.low > 1e-9 || b_star.high > b_star.low * (1.0 + 1e-9)
    });
    let mut means = batches
        .iter()
        .filter_map(|point| Some((point.batch as f64, point.rate?.value)));
    let initial_exponent = means.next().zip(means.next());
    Some(RateLaw {
        fit,
        alpha: found.map(|(alpha, _)| alpha),
        b_star: found.map(|(_, b_star)| b_star),
        initial_exponent: initial_exponent
            .map(|((b0, r0), (b1, r1))| (r1 / r0).ln() / (b1 / b0).ln()),
    })
}

/// What B_crit is where steps do not show it: on which side of the batches measured, and the batch
/// that it is at least (`Above`) or at most (`Below`); that is `None` where seeds leave it open on
/// both sides.
pub(super) fn bound(fit: &Fit, batches: &[BatchPoint]) -> Option<(Bound, Option<f64>)> {
    let side = fit.fit.bound?;
    let reached = |point: &&BatchPoint| point.seeds.iter().any(|seed| seed.steps.is_some());
    let mut measured = batches.iter().filter(reached).map(|p| p.batch as f64);
    let ends = fit.intervals.as_ref().map(|i| i.b_crit);
    let at = match side {
        Bound::Above => measured
            .next_back()
            .map(|largest| ends.map_or(largest, |i| largest.min(i.low)))
            .filter(|&least| least > 0.0),
        Bound::Below => measured
            .next()
            .map(|smallest| ends.map_or(smallest, |i| smallest.max(i.high)))
            .filter(|most| most.is_finite()),
    };
    Some((side, at))
}

/// Seeds that were measured at any batch.
pub(super) fn seed_count(batches: &[BatchPoint]) -> usize {
    let seeds = batches.iter().flat_map(|point| &point.seeds);
    let distinct: BTreeSet<u64> = seeds.map(|seed| seed.seed).collect();
    distinct.len()
}

/// Why there is no fit, in few words.
pub(super) fn no_fit(error: &FitError) -> &'static str {
    match error {
        FitError::NothingReached { .. } | FitError::TooFewBatches { found: 0 } => {
            "no trial reached the target"
        }
        FitError::TooFewBatches { .. } => "the target was reached at one batch only",
        FitError::NotPositive { .. } => "the target was met before the first update",
    }
}

/// What the rows of the table of estimates are made from.
struct Estimates<'a> {
    fit: &'a Result<Fit, FitError>,
    batches: &'a [BatchPoint],
    costs: &'a Costs,
    published: Option<steps::PublishedBatches>,
}

impl Estimates<'_> {
    fn rows(&self, noise: Option<&Noise>, branched: &[BranchMoment]) -> Vec<EstimateRow> {
        let mut rows = vec![self.sweep(), self.efficient()];
        if let Some(noise) = noise {
            for summary in &noise.summary {
                rows.extend(self.noise(summary));
            }
        }
        rows.extend(branched.iter().rev().map(|moment| self.branched(moment)));
        rows
    }

    /// B_crit of the sweep, where it is an estimate.
    fn b_crit(&self) -> Option<f64> {
        let fit = self.fit.as_ref().ok()?.fit;
        fit.bound.is_none().then_some(fit.b_crit)
    }

    fn row(&self, method: &str, quantity: &'static str, cost: Option<Cost>) -> EstimateRow {
        let share = cost.zip(self.costs.sweep).and_then(|(cost, sweep)| {
            (sweep.examples > 0).then(|| cost.examples as f64 / sweep.examples as f64)
        });
        EstimateRow {
            method: method.to_owned(),
            quantity,
            value: None,
            interval: None,
            note: String::new(),
            cost,
            ratio: None,
            share,
            published: None,
        }
    }

    /// What a row is without a B_crit: why, or what bounds it.
    fn without(&self) -> String {
        match self.fit {
            Err(error) => format!("none: {}", no_fit(error)),
            Ok(fit) => match bound(fit, self.batches) {
                None => String::new(),
                Some((_, None)) => "none: seeds leave it open on both sides".to_owned(),
                Some((Bound::Above, Some(least))) => {
                    format!("{AT_LEAST} {}: no batch flattens", size(least))
                }
                Some((Bound::Below, Some(most))) => {
                    format!("at most {}: no batch gains on a smaller one", size(most))
                }
            },
        }
    }

    fn sweep(&self) -> EstimateRow {
        let mut row = self.row("sweep", "b_crit", self.costs.sweep);
        row.published = self.published.map(|published| Published {
            value: published.b_crit,
            source: published.source,
        });
        row.value = self.b_crit();
        row.ratio = row.value.map(|_| 1.0);
        row.note = self.without();
        if let (Ok(fit), Some(_)) = (self.fit, row.value) {
            row.interval = fit.intervals.as_ref().map(|i| i.b_crit);
            row.note = match &fit.intervals {
                Some(found) => format!("over {}", plural(found.seeds, "seed", "seeds")),
                None if seed_count(self.batches) > 1 => {
                    "too few seeds reached the target at two batches: no interval".to_owned()
                }
                None => "one seed: no interval".to_owned(),
            };
        }
        row
    }

    fn efficient(&self) -> EstimateRow {
        let mut row = self.row("sweep, 20 % overhead", "efficient_batch", self.costs.sweep);
        row.note = self.without();
        if let (Ok(fit), Some(_)) = (self.fit, self.b_crit()) {
            row.value = Some(fit.efficient_batch);
            row.interval = fit.intervals.as_ref().map(|found| Interval {
                low: steps::efficient_batch(found.b_crit.low, EFFICIENCY_OVERHEAD),
                high: steps::efficient_batch(found.b_crit.high, EFFICIENCY_OVERHEAD),
            });
            "at most 20 % more examples than perfect scaling takes (Zhang et al. 2024)"
                .clone_into(&mut row.note);
            if let Some(measured) = fit.measured_efficient_batch {
                let _ = write!(row.note, "; {} by the points alone", size(measured));
            }
        }
        row
    }

    fn noise(&self, summary: &NoiseSummary) -> Vec<EstimateRow> {
        let start = self.costs.noise_start.or(self.costs.noise);
        let (method, cost) = match summary.when {
            "start" => ("noise scale at the start".to_owned(), start),
            "average" => ("noise scale on average".to_owned(), self.costs.noise),
            "target" => ("noise scale near the target".to_owned(), self.costs.noise),
            other => (format!("noise scale, {other}"), self.costs.noise),
        };
        let filled = |quantity, value: Option<f64>, interval: Option<Interval>| {
            let mut row = self.row(&method, quantity, cost);
            row.value = value;
            row.interval = interval;
            row.ratio = value
                .zip(self.b_crit())
                .map(|(value, b_crit)| value / b_crit);
            let open = interval.is_some_and(|i| i.high.is_infinite());
            let note = match (value, interval) {
                (None, Some(_)) if open => "undetermined: its gradient cannot be told from 0",
                (None, _) => "undetermined",
                (Some(_), None) => "no interval",
                (Some(_), Some(_)) if open => "no upper end",
                (Some(_), Some(_)) => "",
            };
            note.clone_into(&mut row.note);
            row
        };
        let mut simple = filled("b_simple", summary.b_simple, summary.b_simple_interval);
        let average = summary.when == "average";
        simple.published = self
            .published
            .filter(|_| average)
            .map(|published| Published {
                value: published.b_simple,
                source: published.source,
            });
        let mut rows = vec![simple];
        if summary.b_noise.is_some() || summary.b_noise_interval.is_some() {
            rows.push(filled("b_noise", summary.b_noise, summary.b_noise_interval));
        }
        rows
    }

    fn branched(&self, moment: &BranchMoment) -> EstimateRow {
        let method = format!(
            "branches after {} examples",
            count(moment.examples.round() as u64)
        );
        let mut row = self.row(&method, "branched", self.costs.branched);
        let Some(critical) = moment.critical else {
            "none: no seed has a branch within the tolerance".clone_into(&mut row.note);
            return row;
        };
        row.value = Some(critical.value);
        row.interval = critical.interval;
        row.note = match (moment.at_least, critical.interval) {
            (true, _) => format!("{AT_LEAST}: the largest branch stayed within the tolerance"),
            (false, None) => "one seed: no interval".to_owned(),
            (false, Some(_)) => String::new(),
        };
        // A lower bound is not close to anything.
        row.ratio = self
            .b_crit()
            .filter(|_| !moment.at_least)
            .map(|b_crit| critical.value / b_crit);
        row
    }
}

/// A batch in text: whole from 100 on, else at most three digits.
pub(super) fn size(batch: f64) -> String {
    if (100.0..1e9).contains(&batch) {
        return count(batch.round() as u64);
    }
    let text = significant(batch, 3);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(seed: u64, steps: f64) -> SeedPoint {
        SeedPoint {
            seed,
            steps: Some(steps),
            bound: 0.0,
            rate: None,
            others: String::new(),
            edge: false,
            tried: Vec::new(),
        }
    }

    fn unreached(number: u64, bound: f64) -> SeedPoint {
        SeedPoint {
            steps: None,
            bound,
            ..seed(number, 0.0)
        }
    }

    /// Batches with these steps, each multiplied by the factors of the seeds.
    fn measured(steps: impl Fn(f64) -> f64, batches: &[u64], factors: &[f64]) -> Vec<BatchPoint> {
        let point = |&batch: &u64| {
            let steps = steps(batch as f64);
            let seeds = factors.iter().zip(0..).map(|(f, s)| seed(s, f * steps));
            batch_point(batch, seeds.collect())
        };
        batches.iter().map(point).collect()
    }

    fn alone(batches: Vec<BatchPoint>) -> Case {
        case(
            String::new(),
            batches,
            None,
            Vec::new(),
            &Costs::default(),
            None,
        )
    }

    const BATCHES: [u64; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];

    fn close(ours: f64, expected: f64, tolerance: f64) {
        assert!(
            (ours - expected).abs() <= tolerance * expected.abs(),
            "{ours} is not {expected}"
        );
    }

    #[test]
    fn the_mean_over_seeds_is_geometric_with_an_interval_in_the_logarithm() {
        let point = batch_point(8, vec![seed(2, 400.0), seed(0, 100.0), seed(1, 200.0)]);
        let order: Vec<u64> = point.seeds.iter().map(|s| s.seed).collect();
        assert_eq!(order, [0, 1, 2]);
        let mean = point.steps.expect("all reached");
        let interval = mean.interval.expect("three seeds");
        // exp(ln 200 ± 4.302652730 ln 2/sqrt 3), Student's t with two degrees of freedom.
        close(mean.value, 200.0, 1e-12);
        close(interval.low, 35.746_212_356_632_7, 1e-7);
        close(interval.high, 1_118.999_674_732_755_7, 1e-7);
        assert_eq!(
            batch_point(8, vec![seed(0, 100.0)])
                .steps
                .map(|m| m.interval),
            Some(None)
        );
        assert_eq!(batch_point(8, Vec::new()).steps, None);
    }

    #[test]
    fn a_batch_with_a_seed_that_did_not_reach_has_no_mean_and_keeps_the_rates_of_the_others() {
        let with_rate = |number, rate| SeedPoint {
            rate: Some(rate),
            ..seed(number, 10.0)
        };
        let lost = SeedPoint {
            rate: Some(100.0),
            ..unreached(2, 50.0)
        };
        let point = batch_point(8, vec![with_rate(0, 0.1), with_rate(1, 0.4), lost]);
        assert_eq!(point.steps, None);
        close(point.rate.expect("two rates").value, 0.2, 1e-12);
    }

    #[test]
    fn exact_steps_give_the_law_back_with_its_regimes() {
        let law = |b: f64| 100.0 * (1.0 + 64.0 / b);
        let case = alone(measured(law, &BATCHES, &[0.98, 1.0, 1.0 / 0.98]));
        let fit = case.fit.as_ref().expect("a fit");
        close(fit.fit.b_crit, 64.0, 1e-6);
        close(fit.fit.s_min, 100.0, 1e-6);
        close(fit.efficient_batch, 12.8, 1e-6);
        close(fit.saturated_batch, 320.0, 1e-6);
        // Examples at 16 are 10/9 of those at 8, at 32 they are 4/3: 1.2 at 16 * 2^(ln 1.08/ln 1.2).
        let measured = fit.measured_efficient_batch.expect("crossed");
        close(measured, 21.438_277_197_010_304, 1e-12);
        let intervals = fit.intervals.as_ref().expect("three seeds");
        assert!(intervals.b_crit.contains(fit.fit.b_crit), "{intervals:?}");
        assert_eq!(intervals.curve.len(), BAND_POINTS);
        close(intervals.curve[0].0, 2.0, 1e-12);
        close(intervals.curve[BAND_POINTS - 1].0, 4096.0, 1e-12);
        let [sweep, efficient] = case.estimates.as_slice() else {
            panic!("two rows: {:?}", case.estimates)
        };
        assert_eq!((sweep.quantity, sweep.ratio), ("b_crit", Some(1.0)));
        assert_eq!(sweep.note, "over 3 seeds");
        close(efficient.value.expect("a value"), 12.8, 1e-6);
        assert!(
            efficient.note.ends_with("; 21.4 by the points alone"),
            "{}",
            efficient.note
        );
    }

    #[test]
    fn an_answer_is_a_function_of_its_numbers() {
        let law = |b: f64| 100.0 * (1.0 + 64.0 / b);
        let make = || alone(measured(law, &BATCHES, &[0.9, 1.0, 1.2]));
        assert_eq!(make(), make());
    }

    #[test]
    fn perfect_scaling_to_the_end_gives_a_bound_and_no_number() {
        let case = alone(measured(|b| 1e5 / b, &BATCHES, &[1.0]));
        let fit = case.fit.as_ref().expect("a fit");
        assert_eq!(
            bound(fit, &case.batches),
            Some((Bound::Above, Some(1024.0)))
        );
        assert_eq!(fit.measured_efficient_batch, None);
        let row = &case.estimates[0];
        assert_eq!((row.value, row.ratio, row.interval), (None, None, None));
        assert_eq!(row.note, "at least 1024: no batch flattens");
    }

    #[test]
    fn no_gain_at_all_gives_a_bound_from_above() {
        let case = alone(measured(|_| 500.0, &BATCHES, &[1.0]));
        let fit = case.fit.as_ref().expect("a fit");
        assert_eq!(bound(fit, &case.batches), Some((Bound::Below, Some(8.0))));
        assert_eq!(case.estimates[0].value, None);
        assert_eq!(
            case.estimates[0].note,
            "at most 8: no batch gains on a smaller one"
        );
    }

    #[test]
    fn without_a_fit_the_rows_say_why() {
        let of = |batches| alone(batches).estimates[0].note.clone();
        assert_eq!(of(Vec::new()), "none: no trial reached the target");
        assert_eq!(
            of(vec![batch_point(8, vec![unreached(0, 90.0)])]),
            "none: no trial reached the target"
        );
        assert_eq!(
            of(vec![batch_point(8, vec![seed(0, 90.0)])]),
            "none: the target was reached at one batch only"
        );
        assert_eq!(
            of(measured(|_| 0.0, &[8, 16], &[1.0])),
            "none: the target was met before the first update"
        );
    }

    #[test]
    fn a_trial_that_made_no_update_and_did_not_reach_says_nothing() {
        let mut batches = measured(|b| 100.0 * (1.0 + 64.0 / b), &BATCHES, &[1.0]);
        batches.push(batch_point(2048, vec![unreached(0, 0.0)]));
        let case = alone(batches);
        assert_eq!(case.fit.expect("a fit").fit.censored, 0);
    }

    #[test]
    fn the_best_rate_has_its_exponent_from_the_two_smallest_batches() {
        let mut batches = measured(|b| 100.0 * (1.0 + 64.0 / b), &BATCHES, &[1.0, 1.1]);
        for point in &mut batches {
            for seed in &mut point.seeds {
                seed.rate = Some(0.8 / (1.0 + 40.0 / point.batch as f64));
            }
        }
        let batches: Vec<BatchPoint> = (batches.into_iter())
            .map(|point| batch_point(point.batch, point.seeds))
            .collect();
        let law = rate_law(&batches).expect("eight batches");
        // The rates are 0.8/6 at 8 and 0.8/3.5 at 16.
        let exponent = law.initial_exponent.expect("two batches");
        close(exponent, (6.0f64 / 3.5).log2(), 1e-12);
        assert_eq!(rate_law(&batches[..2]), None);
    }

    #[test]
    fn best_rates_that_all_seeds_share_have_no_interval() {
        let with = |factor: f64| {
            let rate = |b: u64, s: u64| {
                0.8 / (1.0 + 40.0 / b as f64) * factor.powf(s as f64 * 8.0 / b as f64)
            };
            let point = |&batch: &u64| {
                let one = |number| SeedPoint {
                    rate: Some(rate(batch, number)),
                    ..seed(number, 100.0)
                };
                batch_point(batch, (0..3).map(one).collect())
            };
            rate_law(&BATCHES.iter().map(point).collect::<Vec<_>>()).expect("eight batches")
        };
        assert!(with(1.0).alpha.is_none() && with(1.0).b_star.is_none());
        assert!(with(1.1).alpha.is_some() && with(1.1).b_star.is_some());
    }

    #[test]
    fn other_estimates_stand_beside_the_sweep_with_their_share_of_its_cost() {
        let cost = |examples| {
            Some(Cost {
                examples,
                seconds: Some(1.0),
                trials: 2,
            })
        };
        let costs = Costs {
            sweep: cost(1000),
            noise: cost(40),
            noise_start: cost(10),
            branched: cost(200),
        };
        let summary = |when, b_simple: Option<f64>, b_noise: Option<f64>| NoiseSummary {
            when,
            b_simple,
            b_simple_interval: b_simple.map(|b| Interval {
                low: b / 2.0,
                high: f64::INFINITY,
            }),
            b_noise,
            b_noise_interval: None,
        };
        let noise = Noise {
            batch: 64,
            rate: 0.1,
            course: Vec::new(),
            summary: vec![
                summary("start", Some(16.0), None),
                summary("average", Some(128.0), Some(32.0)),
                summary("target", None, None),
            ],
        };
        let moment = |examples, value: Option<f64>, at_least| BranchMoment {
            examples,
            base_batch: 8,
            branches: Vec::new(),
            tolerance: 0.01,
            critical: value.map(|value| Mean {
                value,
                interval: None,
            }),
            at_least,
        };
        let branched = vec![
            moment(0.0, None, false),
            moment(1000.0, Some(48.0), false),
            moment(20_000.0, Some(256.0), true),
        ];
        let batches = measured(|b| 100.0 * (1.0 + 64.0 / b), &BATCHES, &[1.0]);
        let label = "optimizer=sgd".to_owned();
        let case = case(label, batches, Some(noise), branched, &costs, Some("mnist"));
        let told: Vec<(&str, &str, Option<u64>)> = (case.estimates.iter())
            .map(|r| {
                (
                    r.method.as_str(),
                    r.quantity,
                    r.value.map(|v| v.round() as u64),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("sweep", "b_crit", Some(64)),
                ("sweep, 20 % overhead", "efficient_batch", Some(13)),
                ("noise scale at the start", "b_simple", Some(16)),
                ("noise scale on average", "b_simple", Some(128)),
                ("noise scale on average", "b_noise", Some(32)),
                ("noise scale near the target", "b_simple", None),
                ("branches after 20,000 examples", "branched", Some(256)),
                ("branches after 1000 examples", "branched", Some(48)),
                ("branches after 0 examples", "branched", None),
            ]
        );
        let ratios: Vec<Option<f64>> = case.estimates.iter().map(|row| row.ratio).collect();
        let hundredths = ratios.iter().map(|r| r.map(|r| (100.0 * r).round() as u64));
        let expected = [100, 0, 25, 200, 50, 0, 0, 75, 0].map(|r: u64| (r > 0).then_some(r));
        assert_eq!(hundredths.collect::<Vec<_>>(), expected);
        let shares: Vec<Option<f64>> = case.estimates.iter().map(|row| row.share).collect();
        let expected = [1.0, 1.0, 0.01, 0.04, 0.04, 0.04, 0.2, 0.2, 0.2].map(Some);
        assert_eq!(shares, expected);
        let published: Vec<Option<f64>> = (case.estimates.iter())
            .map(|row| row.published.map(|p| p.value))
            .collect();
        let none = None;
        assert_eq!(
            published,
            [
                Some(200.0),
                none,
                none,
                Some(900.0),
                none,
                none,
                none,
                none,
                none
            ]
        );
        let notes: Vec<&str> = case.estimates[2..]
            .iter()
            .map(|r| r.note.as_str())
            .collect();
        assert_eq!(
            notes,
            [
                "no upper end",
                "no upper end",
                "no interval",
                "undetermined",
                "at least: the largest branch stayed within the tolerance",
                "one seed: no interval",
                "none: no seed has a branch within the tolerance",
            ]
        );
    }
}
