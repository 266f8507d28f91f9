//! The best learning rate against the batch, eps(B) = eps_max/(1 + B*/B)^alpha, fitted, with intervals.
//!
//! The center of the search of McCandlish et al. 2018 (arXiv 1812.06162), appendix A: the rate grows
//! like B^alpha far below B* and is eps_max far above it; alpha = 1 for SGD, with or without momentum,
//! and between 0.5 and 1 for Adam. Least squares in the logarithm. B* is searched for as B_crit is in
//! [`steps_fit`](super::steps_fit): from a thousandth of the smallest batch to a thousand times the
//! largest.

use super::statistics::Interval;
use super::steps_fit::{
    Law, SEARCHED, Spread, StepsSample, Sums, Table, allowed, resampled, root, scale_interval,
};

/// The largest exponent that is fitted.
pub const LARGEST_ALPHA: f64 = 1.5;

/// The best rate at one batch with one seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSample {
    /// Global batch, in examples.
    pub batch: f64,
    /// The best rate.
    pub rate: f64,
    /// The seed.
    pub seed: u64,
}

/// The law fitted.
///
/// Rates that do not saturate have B* at the upper edge of the search (see
/// [`is_unsaturated`](Self::is_unsaturated)), and eps_max is then as far outside of the samples. Rates
/// that do not grow have alpha = 0, or with a given alpha B* at the lower edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateFit {
    /// eps_max, the rate that no batch gets above.
    pub rate_max: f64,
    /// B*, the batch where growth ends, in examples.
    pub b_star: f64,
    /// Exponent of the growth below it.
    pub alpha: f64,
    /// Whether alpha was given.
    pub alpha_given: bool,
    /// Root of the mean square of the residuals of the logarithm.
    pub log_sd: f64,
    /// Number of samples.
    pub n: usize,
    /// The smallest and the largest batch.
    pub batches: (f64, f64),
}

impl RateFit {
    /// eps(B) = eps_max/(1 + B*/B)^alpha.
    pub fn rate(&self, batch: f64) -> f64 {
        self.rate_max * (1.0 + self.b_star / batch).powf(-self.alpha)
    }

    /// Whether the rates still grow at the largest batch: B* is at the upper edge of the search.
    pub fn is_unsaturated(&self) -> bool {
        self.alpha > 0.0 && self.b_star >= 0.999 * SEARCHED * self.batches.1
    }

    /// Whether the rates do not grow with the batch: alpha is 0, or B* at the lower edge.
    pub fn is_constant(&self) -> bool {
        self.alpha <= 0.0 || self.b_star <= 1.001 * self.batches.0 / SEARCHED
    }
}

/// The best eps_max and alpha for a given B*.
#[derive(Debug, Clone, Copy)]
struct Profile {
    log_rate_max: f64,
    alpha: f64,
    squares: f64,
    /// Half of the fall of `squares` with log B*.
    slope: f64,
}

/// The best fit.
#[derive(Debug, Clone, Copy)]
struct Optimum {
    theta: f64,
    profile: Profile,
    /// At the lower and at the upper edge of the search.
    edge: (bool, bool),
}

fn profile(sums: &Sums, law: &Law, given: Option<f64>) -> Profile {
    let (mut count, mut mean, mut mean_law) = (0.0, 0.0, 0.0);
    for (cell, value) in sums.cells.iter().zip(&law.value) {
        count += cell.count;
        mean += cell.count * cell.mean;
        mean_law += cell.count * value;
    }
    mean /= count;
    mean_law /= count;
    let alpha = given.unwrap_or_else(|| {
        let (mut both, mut own) = (0.0, 0.0);
        for (cell, value) in sums.cells.iter().zip(&law.value) {
            let x = value - mean_law;
            both += cell.count * x * (cell.mean - mean);
            own += cell.count * x * x;
        }
        (-both / own).clamp(0.0, LARGEST_ALPHA)
    });
    let (mut squares, mut slope) = (0.0, 0.0);
    for ((cell, value), derivative) in sums.cells.iter().zip(&law.value).zip(&law.slope) {
        let residual = cell.mean - mean + alpha * (value - mean_law);
        squares += cell.squares + cell.count * residual * residual;
        slope -= cell.count * residual * alpha * derivative;
    }
    Profile {
        log_rate_max: mean + alpha * mean_law,
        alpha,
        squares,
        slope,
    }
}

fn optimum(table: &Table, sums: &Sums, given: Option<f64>) -> Optimum {
    let profiles: Vec<Profile> = table
        .grid
        .iter()
        .map(|(_, law)| profile(sums, law, given))
        .collect();
    let last = profiles.len() - 1;
    let mut best = Optimum {
        theta: table.grid[0].0,
        profile: profiles[0],
        edge: (true, false),
    };
    let mut offer = |theta, profile: Profile, edge| {
        if profile.squares < best.profile.squares {
            best = Optimum {
                theta,
                profile,
                edge,
            };
        }
    };
    let mut law = Law::default();
    for i in 0..last {
        let (low, high) = (profiles[i].slope, profiles[i + 1].slope);
        if low > 0.0 && high <= 0.0 {
            let mut at = |theta| {
                law.set(theta, &table.log_batches);
                profile(sums, &law, given)
            };
            let theta = root(
                |theta| at(theta).slope,
                (table.grid[i].0, low),
                (table.grid[i + 1].0, high),
            );
            offer(theta, at(theta), (false, false));
        }
    }
    offer(table.grid[last].0, profiles[last], (false, true));
    best
}

/// The samples, if all numbers are finite and above 0.
fn table(samples: &[RateSample]) -> Option<Table> {
    let sound = |x: f64| x.is_finite() && x > 0.0;
    if samples.is_empty() || !samples.iter().all(|s| sound(s.batch) && sound(s.rate)) {
        return None;
    }
    let as_steps: Vec<StepsSample> = samples
        .iter()
        .map(|s| StepsSample {
            batch: s.batch,
            steps: s.rate,
            reached: true,
            seed: s.seed,
        })
        .collect();
    Some(Table::of(&as_steps))
}

/// Batches that the law needs.
fn needed(given: Option<f64>) -> usize {
    if given.is_some() { 2 } else { 3 }
}

/// Fits eps(B) = eps_max/(1 + B*/B)^alpha, with alpha as given or, if `None`, fitted in [0, 1.5].
///
/// `None` of fewer than two batches (three, if alpha is fitted), and if a number is not finite and
/// above 0, or a given alpha negative.
///
/// ```
/// # use batchlab::math::rate_fit::{RateSample, fit_rate};
/// // 0.8/(1 + 300/B).
/// let samples = [(100.0, 0.2), (300.0, 0.4), (900.0, 0.6)]
///     .map(|(batch, rate)| RateSample { batch, rate, seed: 0 });
/// let fit = fit_rate(&samples, Some(1.0)).unwrap();
/// assert!((fit.b_star - 300.0).abs() < 1e-9 && (fit.rate_max - 0.8).abs() < 1e-9);
/// ```
pub fn fit_rate(samples: &[RateSample], alpha: Option<f64>) -> Option<RateFit> {
    if alpha.is_some_and(|alpha| !(alpha.is_finite() && alpha >= 0.0)) {
        return None;
    }
    let table = table(samples)?;
    if table.log_batches.len() < needed(alpha) {
        return None;
    }
    let best = optimum(&table, &table.total(), alpha);
    Some(RateFit {
        rate_max: best.profile.log_rate_max.exp(),
        b_star: best.theta.exp(),
        alpha: best.profile.alpha,
        alpha_given: alpha.is_some(),
        log_sd: (best.profile.squares / samples.len() as f64).sqrt(),
        n: samples.len(),
        batches: samples.iter().fold((f64::INFINITY, 0.0), |(low, high), s| {
            (low.min(s.batch), high.max(s.batch))
        }),
    })
}

/// Intervals of alpha and B* by a bootstrap over whole seeds, as those of
/// [`steps_fit::intervals`](super::steps_fit::intervals): B* in the logarithm, with open ends.
///
/// Alpha is taken as it is, and held within [0, 1.5]; an end there means that or beyond. A given alpha
/// has no width. `None` of one seed, if `confidence` is outside (0, 1), or if more than half of the
/// resamples have too few batches.
pub fn rate_intervals(
    samples: &[RateSample],
    fit: &RateFit,
    confidence: f64,
    resamples: usize,
    below: impl FnMut(u64) -> u64,
) -> Option<(Interval, Interval)> {
    let given = fit.alpha_given.then_some(fit.alpha);
    let table = table(samples)?;
    let seeds = table.seeds();
    if seeds < 2 || table.log_batches.len() < needed(given) {
        return None;
    }
    let mut sums = Sums::default();
    let (mut fits, mut weights, mut lost) = (Vec::new(), Vec::new(), 0.0);
    for (counts, weight) in resampled(seeds, resamples, below) {
        if table.sum(&counts, &mut sums) < needed(given) {
            lost += weight;
        } else {
            fits.push(optimum(&table, &sums, given));
            weights.push(weight);
        }
    }
    if lost > weights.iter().sum() {
        return None;
    }
    let spread = Spread::new(&weights, seeds, confidence)?;
    let sums = table.total();
    let best = optimum(&table, &sums, given);
    let common = |of: &dyn Fn(&Optimum) -> bool| of(&best) || spread.is_common(fits.iter().map(of));
    let alpha = if fit.alpha_given {
        Interval {
            low: fit.alpha,
            high: fit.alpha,
        }
    } else {
        let half_width = spread.half_width(fits.iter().map(|f| f.profile.alpha));
        let least = common(&|f| f.profile.alpha <= 0.0);
        let most = common(&|f| f.profile.alpha >= LARGEST_ALPHA);
        Interval {
            low: if least {
                0.0
            } else {
                (fit.alpha - half_width).max(0.0)
            },
            high: if most {
                LARGEST_ALPHA
            } else {
                (fit.alpha + half_width).min(LARGEST_ALPHA)
            },
        }
    };
    let grid: Vec<f64> = table.grid.iter().map(|(theta, _)| *theta).collect();
    let mut law = Law::default();
    let n = samples.len() as f64;
    let b_star = scale_interval(
        &grid,
        fit.b_star.ln(),
        spread.half_width(fits.iter().map(|f| f.theta)),
        (common(&|f| f.edge.0), common(&|f| f.edge.1)),
        allowed(n, spread.t),
        |theta| {
            law.set(theta, &table.log_batches);
            0.5 * n * (profile(&sums, &law, given).squares / best.profile.squares).ln()
        },
    );
    Some((alpha, b_star))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn reference() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/reference/steps_fit.json")).unwrap()
    }

    #[track_caller]
    fn close(ours: f64, theirs: &serde_json::Value, tolerance: f64) {
        let theirs = theirs.as_f64().unwrap();
        assert!(
            (ours - theirs).abs() <= tolerance * theirs.abs(),
            "ours {ours:e}, theirs {theirs:e}"
        );
    }

    fn samples(rate: impl Fn(f64) -> f64) -> Vec<RateSample> {
        [8.0, 64.0, 512.0, 4096.0]
            .map(|batch| RateSample {
                batch,
                rate: rate(batch),
                seed: 0,
            })
            .to_vec()
    }

    #[test]
    fn fits_agree_with_scipy() {
        for case in reference()["rates"].as_array().unwrap() {
            let rows = case["rows"].as_array().unwrap();
            let samples: Vec<RateSample> = rows
                .iter()
                .map(|row| RateSample {
                    batch: row[0].as_f64().unwrap(),
                    rate: row[1].as_f64().unwrap(),
                    seed: row[2].as_u64().unwrap(),
                })
                .collect();
            for name in ["fitted", "given"] {
                let expected = &case[name];
                let given = (name == "given").then_some(0.9);
                let fit = fit_rate(&samples, given).unwrap();
                // scipy's derivatives are differences here.
                close(fit.rate_max, &expected["rate_max"], 1e-5);
                close(fit.b_star, &expected["b_star"], 1e-5);
                close(fit.alpha, &expected["alpha"], 1e-5);
                close(fit.log_sd, &expected["log_sd"], 1e-9);
            }
        }
    }

    #[test]
    fn rates_on_the_law_give_it_back() {
        let fit = fit_rate(&samples(|b| 0.5 * (1.0 + 300.0 / b).powf(-0.7)), None).unwrap();
        assert!((fit.alpha - 0.7).abs() < 1e-8 && (fit.b_star - 300.0).abs() < 1e-4);
        assert!((fit.rate_max - 0.5).abs() < 1e-8);
        assert!((fit.rate(100.0) - 0.5 * 4_f64.powf(-0.7)).abs() < 1e-8);
        assert!(!fit.is_constant() && !fit.is_unsaturated());
    }

    #[test]
    fn rates_that_grow_to_the_end_or_not_at_all_lie_at_the_edges() {
        let root = fit_rate(&samples(|b| 0.01 * b.sqrt()), None).unwrap();
        assert!(root.is_unsaturated() && !root.is_constant());
        assert!((root.alpha - 0.5).abs() < 0.01, "{root:?}");
        assert!((root.b_star / 4096e3 - 1.0).abs() < 1e-12);
        assert!((root.rate(64.0) / 0.08 - 1.0).abs() < 0.01);
        for rate in [|_| 0.1, |b: f64| 1.0 / b] {
            let falling = fit_rate(&samples(rate), None).unwrap();
            assert!(falling.is_constant() && falling.alpha == 0.0, "{falling:?}");
            let given = fit_rate(&samples(rate), Some(1.0)).unwrap();
            assert!(given.is_constant() && !given.is_unsaturated(), "{given:?}");
        }
    }

    #[test]
    fn too_few_batches_and_impossible_numbers_have_no_fit() {
        let all = samples(|b| b);
        assert_eq!(fit_rate(&all[..2], None), None);
        assert!(fit_rate(&all[..2], Some(1.0)).is_some());
        assert_eq!(fit_rate(&all[..1], Some(1.0)), None);
        assert_eq!(fit_rate(&[], None), None);
        assert_eq!(fit_rate(&all, Some(-1.0)), None);
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(fit_rate(&samples(|_| value), None), None);
        }
    }

    #[test]
    fn intervals_hold_the_law_and_are_open_where_rates_do_not_saturate() {
        let mut stream = Stream::new(1, "rate-fit", 0);
        let mut draw = |b_star: f64| {
            let mut samples = Vec::new();
            for seed in 0..4 {
                for i in 0..11 {
                    let batch = 8.0 * 2_f64.powi(i);
                    let noise = 0.1 * stream.normal();
                    let rate = 0.5 / (1.0 + b_star / batch) * noise.exp();
                    samples.push(RateSample { batch, rate, seed });
                }
            }
            samples
        };
        let find = |samples: &[RateSample], given| {
            let fit = fit_rate(samples, given).unwrap();
            rate_intervals(samples, &fit, 0.95, 100, |_| 0).unwrap()
        };
        let inside = draw(300.0);
        let (alpha, b_star) = find(&inside, None);
        assert!(
            alpha.contains(1.0) && alpha.high - alpha.low < 0.5,
            "{alpha:?}"
        );
        assert!(b_star.contains(300.0) && b_star.high < 3000.0, "{b_star:?}");
        let (alpha, b_star) = find(&inside, Some(1.0));
        assert_eq!((alpha.low, alpha.high), (1.0, 1.0));
        assert!(b_star.contains(300.0) && b_star.high / b_star.low < 2.0);
        let (_, b_star) = find(&draw(1e7), Some(1.0));
        assert!(b_star.high == f64::INFINITY && b_star.low > 8192.0);
        let one: Vec<RateSample> = inside.into_iter().filter(|s| s.seed == 0).collect();
        let fit = fit_rate(&one, None).unwrap();
        assert_eq!(rate_intervals(&one, &fit, 0.95, 100, |_| 0), None);
    }
}
