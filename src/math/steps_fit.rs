//! Steps to a target against the batch, S(B) = S_min (1 + B_crit/B), fitted, with intervals.
//!
//! S_min is the number of updates that no batch gets below, E_min = S_min B_crit the number of
//! examples that none gets below, B_crit the batch at which both are twice their least. McCandlish et
//! al. 2018 (arXiv 1812.06162), section 2.3 and appendix A. The law is fitted in the logarithm, where
//! the scatter of training runs is of one size at all batches: log S = log S_min + log(1 + B_crit/B)
//! plus normal residuals of one standard deviation.
//!
//! A run that did not reach the target is not left out, for it was slow: its steps are known to
//! exceed those that it made, and it enters the likelihood by that probability (Tobin 1958). For a
//! given B_crit the rest of the likelihood is concave in (log S_min)/sd and 1/sd (Olsen 1978), so
//! there is one maximum, found by Newton's method; over log B_crit the maximum is searched for on a
//! grid from a thousandth of the smallest batch to a thousand times the largest, and refined to a root
//! of the slope. Without such runs this is least squares.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, FisherSnedecor};
use statrs::function::erf::erfc;
use thiserror::Error;

use super::statistics::{Interval, student_t_quantile};

/// B_crit is searched for from the smallest batch over this to the largest times this.
pub const SEARCHED: f64 = 1e3;

/// Steps of the grid over log B_crit; the law has no feature narrower than 1.
const GRID_STEP: f64 = 0.25;

/// Least standard deviation of the residuals with censored samples: the likelihood has no maximum
/// where the others can be met exactly.
const LEAST_SD: f64 = 1e-4;

/// Steps to target at one batch with one seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepsSample {
    /// Global batch, in examples.
    pub batch: f64,
    /// Updates to the target; where it was not reached, what they exceed.
    pub steps: f64,
    /// Whether the target was reached.
    pub reached: bool,
    /// The seed.
    pub seed: u64,
}

/// An edge of the range in which B_crit is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// No batch gains on a smaller one: B_crit is below all that were searched.
    Below,
    /// Steps fall like 1/B to the last batch: B_crit is above all that were searched.
    Above,
}

/// The law fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepsFit {
    /// Updates that no batch gets below.
    pub s_min: f64,
    /// The critical batch size, in examples.
    pub b_crit: f64,
    /// Standard deviation of the residuals of log S where the likelihood is largest: without censored
    /// samples the root of their mean square, with them no less than 1e-4.
    pub log_sd: f64,
    /// Number of samples, with the censored ones.
    pub n: usize,
    /// Samples that did not reach the target.
    pub censored: usize,
    /// The edge of the search that b_crit lies at; then it is a bound and no estimate, and so is
    /// s_min (`Above`) or e_min (`Below`).
    pub bound: Option<Bound>,
}

impl StepsFit {
    /// E_min = S_min B_crit, the examples that no batch gets below.
    pub fn e_min(&self) -> f64 {
        self.s_min * self.b_crit
    }

    /// S(B) = S_min (1 + B_crit/B), in updates.
    pub fn steps(&self, batch: f64) -> f64 {
        self.s_min * (1.0 + self.b_crit / batch)
    }

    /// E(B) = B S(B), in examples.
    pub fn examples(&self, batch: f64) -> f64 {
        self.s_min * (batch + self.b_crit)
    }
}

/// Why samples give no fit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FitError {
    /// Two numbers cannot come from one batch.
    #[error(
        "the critical batch size needs at least 2 batches that reached the target, found {found}"
    )]
    TooFewBatches {
        /// Batches that reached it.
        found: usize,
    },
    /// No sample reached the target.
    #[error("none of {samples} runs reached the target")]
    NothingReached {
        /// Samples there are.
        samples: usize,
    },
    /// A number that cannot be.
    #[error("sample {sample}: expected {column} to be a finite number above 0, found {found}")]
    NotPositive {
        /// The sample, from 1.
        sample: usize,
        /// `batch` or `steps`.
        column: &'static str,
        /// What is there.
        found: f64,
    },
}

/// log(1 + e^x).
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// 1/(1 + e^-x).
fn logistic(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x >= 0.0 {
        1.0 / (1.0 + e)
    } else {
        e / (1.0 + e)
    }
}

/// Log of the upper tail of the standard normal distribution, and the density over the tail.
fn upper_tail(z: f64) -> (f64, f64) {
    let log_density = -0.5 * z * z - 0.5 * std::f64::consts::TAU.ln();
    if z < 5.0 {
        let log_tail = (0.5 * erfc(z * std::f64::consts::FRAC_1_SQRT_2)).ln();
        return (log_tail, (log_density - log_tail).exp());
    }
    // Laplace's continued fraction of the density over the tail, z + 1/(z + 2/(z + ...)).
    let mut hazard = z;
    for k in (1..=60).rev() {
        hazard = z + f64::from(k) / hazard;
    }
    (log_density - hazard.ln(), hazard)
}

/// A root of a function that is positive at `low` and not at `high`, by Chandrupatla's method (1997),
/// to the last digits of its place.
pub(super) fn root(mut f: impl FnMut(f64) -> f64, low: (f64, f64), high: (f64, f64)) -> f64 {
    let (mut a, mut b) = (high, low);
    let mut t = 0.5;
    for _ in 0..200 {
        let x = a.0 + t * (b.0 - a.0);
        let new = (x, f(x));
        // The root lies between a, the newest point, and b; c is the one before.
        let c = if (new.1 > 0.0) == (a.1 > 0.0) {
            a
        } else {
            std::mem::replace(&mut b, a)
        };
        a = new;
        let best = if a.1.abs() < b.1.abs() { a } else { b };
        let tolerance = 4.0 * f64::EPSILON * best.0.abs() + 1e-15;
        let limit = tolerance / (b.0 - a.0).abs();
        if limit > 0.5 || best.1 == 0.0 {
            return best.0;
        }
        let xi = (a.0 - b.0) / (c.0 - b.0);
        let phi = (a.1 - b.1) / (c.1 - b.1);
        t = if phi * phi < xi && (1.0 - phi).powi(2) < 1.0 - xi {
            a.1 / (b.1 - a.1) * c.1 / (b.1 - c.1)
                + (c.0 - a.0) / (b.0 - a.0) * a.1 / (c.1 - a.1) * b.1 / (c.1 - b.1)
        } else {
            0.5
        };
        t = if t.is_finite() {
            t.clamp(limit, 1.0 - limit)
        } else {
            0.5
        };
    }
    a.0
}

/// log(1 + B_crit/B) at all batches for one B_crit, and its derivative by log B_crit.
#[derive(Debug, Clone, Default)]
pub(super) struct Law {
    pub(super) value: Vec<f64>,
    pub(super) slope: Vec<f64>,
}

impl Law {
    pub(super) fn set(&mut self, theta: f64, log_batches: &[f64]) {
        self.value.clear();
        self.slope.clear();
        for log_batch in log_batches {
            self.value.push(softplus(theta - log_batch));
            self.slope.push(logistic(theta - log_batch));
        }
    }
}

/// Samples of one seed at one batch that reached the target.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub(super) count: f64,
    pub(super) mean: f64,
    pub(super) squares: f64,
}

impl Cell {
    /// One sample.
    fn of(value: f64) -> Self {
        Self {
            count: 1.0,
            mean: value,
            squares: 0.0,
        }
    }

    /// Takes in the samples of another cell, `weight` times.
    fn add(&mut self, other: &Self, weight: f64) {
        let count = weight * other.count;
        if count > 0.0 {
            let total = self.count + count;
            let delta = other.mean - self.mean;
            self.squares += weight * other.squares + delta * delta * self.count * count / total;
            self.mean += delta * count / total;
            self.count = total;
        }
    }
}

/// A censored sample.
#[derive(Debug, Clone, Copy)]
struct Censored {
    batch: usize,
    log_steps: f64,
    weight: f64,
}

/// Samples in logarithms, by seed and batch.
pub(super) struct Table {
    /// Ascending.
    pub(super) log_batches: Vec<f64>,
    /// By seed, then by batch.
    cells: Vec<Vec<Cell>>,
    /// By seed.
    censored: Vec<Vec<Censored>>,
    /// The values of log B_crit searched, and the law there.
    pub(super) grid: Vec<(f64, Law)>,
}

/// The sums over samples that the likelihood takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    pub(super) cells: Vec<Cell>,
    censored: Vec<Censored>,
}

/// The best fit for a given B_crit.
#[derive(Debug, Clone, Copy)]
struct Profile {
    log_s_min: f64,
    sd: f64,
    /// What is to be largest: a log likelihood, or a negative sum of squares.
    value: f64,
    /// Derivative of `value` by log B_crit.
    slope: f64,
}

/// The best fit.
#[derive(Debug, Clone, Copy)]
struct Optimum {
    theta: f64,
    profile: Profile,
    bound: Option<Bound>,
}

/// Whether all numbers can be, and enough of them are there.
fn check(samples: &[StepsSample]) -> Result<(), FitError> {
    for (index, sample) in samples.iter().enumerate() {
        for (column, found) in [("batch", sample.batch), ("steps", sample.steps)] {
            if !(found.is_finite() && found > 0.0) {
                return Err(FitError::NotPositive {
                    sample: index + 1,
                    column,
                    found,
                });
            }
        }
    }
    if !samples.is_empty() && samples.iter().all(|s| !s.reached) {
        return Err(FitError::NothingReached {
            samples: samples.len(),
        });
    }
    let found = by_batch(samples).len();
    if found < 2 {
        return Err(FitError::TooFewBatches { found });
    }
    Ok(())
}

/// Log of steps of the samples that reached the target, by batch.
fn by_batch(samples: &[StepsSample]) -> BTreeMap<u64, Cell> {
    let mut cells = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.reached) {
        // Positive numbers are in the order of their bits.
        let cell: &mut Cell = cells.entry(sample.batch.to_bits()).or_default();
        cell.add(&Cell::of(sample.steps.ln()), 1.0);
    }
    cells
}

impl Table {
    /// Samples that passed the check, at least one.
    pub(super) fn of(samples: &[StepsSample]) -> Self {
        let mut batches: Vec<f64> = samples.iter().map(|s| s.batch).collect();
        batches.sort_by(f64::total_cmp);
        batches.dedup();
        let mut seeds: Vec<u64> = samples.iter().map(|s| s.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let mut cells = vec![vec![Cell::default(); batches.len()]; seeds.len()];
        let mut censored = vec![Vec::new(); seeds.len()];
        for sample in samples {
            let seed = seeds.partition_point(|s| *s < sample.seed);
            let batch = batches.partition_point(|b| *b < sample.batch);
            let log_steps = sample.steps.ln();
            if sample.reached {
                cells[seed][batch].add(&Cell::of(log_steps), 1.0);
            } else {
                censored[seed].push(Censored {
                    batch,
                    log_steps,
                    weight: 1.0,
                });
            }
        }
        let log_batches: Vec<f64> = batches.iter().map(|b| b.ln()).collect();
        let low = log_batches[0] - SEARCHED.ln();
        let high = log_batches[log_batches.len() - 1] + SEARCHED.ln();
        let steps = ((high - low) / GRID_STEP).ceil();
        let grid = (0..=steps as usize)
            .map(|i| {
                let theta = low + (high - low) * (i as f64 / steps);
                let mut law = Law::default();
                law.set(theta, &log_batches);
                (theta, law)
            })
            .collect();
        Self {
            log_batches,
            cells,
            censored,
            grid,
        }
    }

    /// Number of seeds.
    pub(super) fn seeds(&self) -> usize {
        self.cells.len()
    }

    /// The sums over all seeds, each counted once.
    pub(super) fn total(&self) -> Sums {
        let mut sums = Sums::default();
        self.sum(&vec![1.0; self.seeds()], &mut sums);
        sums
    }

    /// The sums over all seeds, each counted so many times. Returns the number of batches left that
    /// reached the target.
    pub(super) fn sum(&self, weights: &[f64], sums: &mut Sums) -> usize {
        sums.cells.clear();
        sums.cells.resize(self.log_batches.len(), Cell::default());
        sums.censored.clear();
        for ((weight, cells), censored) in weights.iter().zip(&self.cells).zip(&self.censored) {
            if *weight > 0.0 {
                for (total, cell) in sums.cells.iter_mut().zip(cells) {
                    total.add(cell, *weight);
                }
                for new in censored {
                    let known = sums
                        .censored
                        .iter_mut()
                        .find(|c| c.batch == new.batch && c.log_steps == new.log_steps);
                    match known {
                        Some(known) => known.weight += new.weight * weight,
                        None => sums.censored.push(Censored {
                            weight: new.weight * weight,
                            ..*new
                        }),
                    }
                }
            }
        }
        sums.cells.iter().filter(|cell| cell.count > 0.0).count()
    }

    /// The best fit over all B_crit that are searched.
    fn optimum(&self, sums: &Sums) -> Optimum {
        let mut start = None;
        let profiles: Vec<Profile> = self
            .grid
            .iter()
            .map(|(_, law)| sums.profile(law, &mut start))
            .collect();
        let mut law = Law::default();
        let last = self.grid.len() - 1;
        let mut best: Option<Optimum> = None;
        let mut offer = |theta, profile: Profile, bound| {
            if best.is_none_or(|b| profile.value > b.profile.value) {
                best = Some(Optimum {
                    theta,
                    profile,
                    bound,
                });
            }
        };
        if profiles[0].slope <= 0.0 {
            offer(self.grid[0].0, profiles[0], Some(Bound::Below));
        }
        if profiles[last].slope > 0.0 {
            offer(self.grid[last].0, profiles[last], Some(Bound::Above));
        }
        for i in 0..last {
            let (low, high) = (profiles[i].slope, profiles[i + 1].slope);
            if low > 0.0 && high <= 0.0 {
                let mut at = |theta| {
                    law.set(theta, &self.log_batches);
                    sums.profile(&law, &mut start)
                };
                let theta = root(
                    |theta| at(theta).slope,
                    (self.grid[i].0, low),
                    (self.grid[i + 1].0, high),
                );
                offer(theta, at(theta), None);
            }
        }
        // A slope is at most 0 at the first point, above 0 at the last, or changes between.
        best.unwrap_or(Optimum {
            theta: self.grid[0].0,
            profile: profiles[0],
            bound: Some(Bound::Below),
        })
    }
}

impl Sums {
    /// The best S_min and standard deviation for a given B_crit. `start` is where the search for them
    /// begins and ended.
    fn profile(&self, law: &Law, start: &mut Option<(f64, f64)>) -> Profile {
        let (mut count, mut mean) = (0.0, 0.0);
        for (cell, value) in self.cells.iter().zip(&law.value) {
            count += cell.count;
            mean += cell.count * (cell.mean - value);
        }
        mean /= count;
        let (mut squares, mut slope) = (0.0, 0.0);
        for ((cell, value), derivative) in self.cells.iter().zip(&law.value).zip(&law.slope) {
            let residual = cell.mean - value - mean;
            squares += cell.squares + cell.count * residual * residual;
            slope += cell.count * residual * derivative;
        }
        if self.censored.is_empty() {
            return Profile {
                log_s_min: mean,
                sd: (squares / count).sqrt(),
                value: -squares,
                slope: 2.0 * slope,
            };
        }
        let tobit = Tobit {
            count,
            squares,
            censored: &self.censored,
            law,
            mean,
        };
        let (shift, precision) = tobit.maximum(*start);
        *start = Some((shift, precision));
        // d/d log B_crit of both parts at fixed shift and precision.
        let mut by_theta = precision * precision * slope;
        for (cell, derivative) in self.cells.iter().zip(&law.slope) {
            by_theta -= precision * shift * cell.count * derivative;
        }
        for censored in &self.censored {
            let z = precision * tobit.residual(censored) - shift;
            by_theta += precision * censored.weight * upper_tail(z).1 * law.slope[censored.batch];
        }
        Profile {
            log_s_min: mean + shift / precision,
            sd: 1.0 / precision,
            value: tobit.value(shift, precision),
            slope: by_theta,
        }
    }
}

/// The likelihood for a given B_crit, as a function of (a - mean)/sd and 1/sd.
struct Tobit<'a> {
    /// Samples that reached the target.
    count: f64,
    /// Sum of squares of their residuals about their mean.
    squares: f64,
    /// That mean, of log S less the law.
    mean: f64,
    censored: &'a [Censored],
    law: &'a Law,
}

/// Value, gradient and Hessian (11, 12, 22) of a function of two variables.
struct Quadratic {
    value: f64,
    gradient: (f64, f64),
    hessian: (f64, f64, f64),
}

impl Tobit<'_> {
    fn residual(&self, censored: &Censored) -> f64 {
        censored.log_steps - self.law.value[censored.batch] - self.mean
    }

    fn value(&self, shift: f64, precision: f64) -> f64 {
        let mut value = self.count * precision.ln()
            - 0.5 * (precision * precision * self.squares + self.count * shift * shift);
        for censored in self.censored {
            let z = precision * self.residual(censored) - shift;
            value += censored.weight * upper_tail(z).0;
        }
        value
    }

    fn at(&self, shift: f64, precision: f64) -> Quadratic {
        let mut q = Quadratic {
            value: self.count * precision.ln()
                - 0.5 * (precision * precision * self.squares + self.count * shift * shift),
            gradient: (
                -self.count * shift,
                self.count / precision - precision * self.squares,
            ),
            hessian: (
                -self.count,
                0.0,
                -self.count / (precision * precision) - self.squares,
            ),
        };
        for censored in self.censored {
            let residual = self.residual(censored);
            let z = precision * residual - shift;
            let (log_tail, hazard) = upper_tail(z);
            let curvature = censored.weight * hazard * (hazard - z).max(0.0);
            q.value += censored.weight * log_tail;
            q.gradient.0 += censored.weight * hazard;
            q.gradient.1 -= censored.weight * hazard * residual;
            q.hessian.0 -= curvature;
            q.hessian.1 += curvature * residual;
            q.hessian.2 -= curvature * residual * residual;
        }
        q
    }

    /// Where the likelihood is largest, with the standard deviation at least [`LEAST_SD`].
    fn maximum(&self, start: Option<(f64, f64)>) -> (f64, f64) {
        let most = 1.0 / LEAST_SD;
        let all = self.count + self.censored.iter().map(|c| c.weight).sum::<f64>();
        // At the maximum sd^2 is at least squares/all: hazard |z| < 1 for z < 0.
        if self.squares <= all * LEAST_SD * LEAST_SD {
            let shift = self.climb((0.0, most), true).0;
            if self.at(shift, most).gradient.1 >= 0.0 {
                return (shift, most);
            }
        }
        let free = (self.count / self.squares).sqrt().min(most);
        self.climb(start.unwrap_or((0.0, free)), false)
    }

    /// Newton's method with halved steps; the precision may be held.
    fn climb(&self, start: (f64, f64), held: bool) -> (f64, f64) {
        let (mut shift, mut precision) = start;
        let mut here = self.at(shift, precision);
        for _ in 0..100 {
            let (g, h) = (here.gradient, here.hessian);
            let (mut d_shift, mut d_precision) = if held {
                (-g.0 / h.0, 0.0)
            } else {
                let determinant = h.0 * h.2 - h.1 * h.1;
                (
                    (h.1 * g.1 - h.2 * g.0) / determinant,
                    (h.1 * g.0 - h.0 * g.1) / determinant,
                )
            };
            let gain = if held {
                g.0 * d_shift
            } else {
                g.0 * d_shift + g.1 * d_precision
            };
            // Half of it is what the step is to gain; its rounding is that of the value.
            if gain.is_nan() || gain <= 1e-26 * here.value.abs().max(1.0) {
                break;
            }
            let mut moved = None;
            for _ in 0..60 {
                let to = (shift + d_shift, precision + d_precision);
                if to.1 > 0.0 {
                    let there = self.at(to.0, to.1);
                    if there.value >= here.value - 1e-13 * here.value.abs().max(1.0) {
                        moved = Some((to, there));
                        break;
                    }
                }
                d_shift *= 0.5;
                d_precision *= 0.5;
            }
            let Some((to, there)) = moved else { break };
            (shift, precision) = to;
            here = there;
        }
        (shift, precision)
    }
}

/// Fits S = S_min (1 + B_crit/B).
///
/// Each sample counts once, whatever its seed. Two batches with one sample each are met exactly, if
/// the larger takes fewer steps and more examples.
///
/// # Errors
/// A batch or a number of steps that is not a finite number above 0, and samples that reached the
/// target at fewer than two batches.
///
/// ```
/// # use batchlab::math::steps_fit::{StepsSample, fit_steps};
/// // 100 (1 + 400/B).
/// let samples = [(100.0, 500.0), (400.0, 200.0), (1600.0, 125.0)]
///     .map(|(batch, steps)| StepsSample { batch, steps, reached: true, seed: 0 });
/// let fit = fit_steps(&samples).unwrap();
/// assert!((fit.b_crit - 400.0).abs() < 1e-9 && (fit.s_min - 100.0).abs() < 1e-9);
/// ```
pub fn fit_steps(samples: &[StepsSample]) -> Result<StepsFit, FitError> {
    check(samples)?;
    let table = Table::of(samples);
    let best = table.optimum(&table.total());
    Ok(StepsFit {
        s_min: best.profile.log_s_min.exp(),
        b_crit: best.theta.exp(),
        log_sd: best.profile.sd,
        n: samples.len(),
        censored: samples.iter().filter(|s| !s.reached).count(),
        bound: best.bound,
    })
}

/// How well the law fits the samples that reached the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goodness {
    /// Share of the variance of log S that the law explains, 1 - sum r^2 / sum (log S - mean)^2.
    /// `None` with two batches, which any law of two parameters meets, and where all steps are equal.
    pub r_squared: Option<f64>,
    /// Root of the mean square of the residuals of log S: 0.1 is about 10 %.
    pub rms_log: f64,
    /// The F test; `None` without replicates or with two batches.
    pub lack_of_fit: Option<LackOfFit>,
}

/// Whether the means of batches lie further from the law than their replicates explain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LackOfFit {
    /// Mean square of the distances of the batches' means from the law over that of the samples from
    /// the means.
    pub f: f64,
    /// Degrees of freedom of both: batches less 2, samples less batches.
    pub freedom: (usize, usize),
    /// Probability of so large an F if the law holds.
    pub p: f64,
}

/// How well a fit fits, over the samples that reached the target.
///
/// The F test (Draper and Smith 1998, section 2.1) takes samples of one batch as independent
/// replicates. A seed that is slow at all batches adds to their scatter and not to the distance of
/// means from the law, so the test then finds a lack of fit too rarely. It leaves out batches with
/// censored samples, of which only the fast ones are seen.
pub fn goodness(samples: &[StepsSample], fit: &StepsFit) -> Goodness {
    let cells = by_batch(samples);
    let residual = |batch: u64, log_steps: f64| {
        let batch = f64::from_bits(batch);
        log_steps - fit.s_min.ln() - softplus(fit.b_crit.ln() - batch.ln())
    };
    let squares = |cell: &Cell, distance: f64| cell.squares + cell.count * distance * distance;
    let mut all = Cell::default();
    let mut about_law = 0.0;
    for (batch, cell) in &cells {
        all.add(cell, 1.0);
        about_law += squares(cell, residual(*batch, cell.mean));
    }
    let whole: Vec<(&u64, &Cell)> = cells
        .iter()
        .filter(|(batch, _)| {
            let censored = |s: &StepsSample| !s.reached && s.batch.to_bits() == **batch;
            !samples.iter().any(censored)
        })
        .collect();
    let count = whole.iter().map(|(_, cell)| cell.count).sum::<f64>() as usize;
    let pure: f64 = whole.iter().map(|(_, cell)| cell.squares).sum();
    let lack: f64 = whole
        .iter()
        .map(|(batch, cell)| cell.count * residual(**batch, cell.mean).powi(2))
        .sum();
    let lack_of_fit = (whole.len() > 2 && count > whole.len() && pure > 0.0)
        .then(|| {
            let freedom = (whole.len() - 2, count - whole.len());
            let f = (lack / freedom.0 as f64) / (pure / freedom.1 as f64);
            let law = FisherSnedecor::new(freedom.0 as f64, freedom.1 as f64).ok()?;
            Some(LackOfFit {
                f,
                freedom,
                p: law.sf(f),
            })
        })
        .flatten();
    Goodness {
        r_squared: (cells.len() > 2 && all.squares > 0.0).then(|| 1.0 - about_law / all.squares),
        rms_log: (about_law / all.count).sqrt(),
        lack_of_fit,
    }
}

/// What the samples leave open, by a bootstrap over seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepsIntervals {
    /// Of S_min. Its lower end is 0 where B_crit is open above.
    pub s_min: Interval,
    /// Of E_min. Its lower end is 0 where B_crit is open below.
    pub e_min: Interval,
    /// Of B_crit: its upper end is infinite, or its lower end 0, where samples leave it open.
    pub b_crit: Interval,
    /// Of S(B) at the batches asked for.
    pub curve: Vec<(f64, Interval)>,
    /// Number of seeds.
    pub seeds: usize,
    /// Resamples that were fitted.
    pub resamples: usize,
}

/// Resamples of seeds with replacement: how often each is drawn, and the weight of the resample.
///
/// Where there are no more distinct ones than asked for, all of them with their probabilities: the
/// bootstrap without its own noise. Else as many random ones.
pub(super) fn resampled(
    seeds: usize,
    resamples: usize,
    mut below: impl FnMut(u64) -> u64,
) -> Vec<(Vec<f64>, f64)> {
    // Ways to share out n draws among n seeds: the binomial (2n - 1 over n).
    let mut distinct = 1.0;
    for k in 1..=seeds {
        distinct *= (seeds + k - 1) as f64 / k as f64;
    }
    if distinct.round() > resamples as f64 {
        return (0..resamples)
            .map(|_| {
                let mut counts = vec![0.0; seeds];
                for _ in 0..seeds {
                    counts[below(seeds as u64) as usize] += 1.0;
                }
                (counts, 1.0)
            })
            .collect();
    }
    let mut found = Vec::new();
    share_out(seeds, 1.0, &mut vec![0.0; seeds], &mut found);
    found
}

/// All ways to share out `left` draws among the seeds from the last one down, weighted by
/// 1/(product of the factorials of the counts).
fn share_out(left: usize, weight: f64, counts: &mut Vec<f64>, found: &mut Vec<(Vec<f64>, f64)>) {
    fn from(
        seed: usize,
        left: usize,
        weight: f64,
        counts: &mut Vec<f64>,
        found: &mut Vec<(Vec<f64>, f64)>,
    ) {
        let mut weight = weight;
        for count in 0..=left {
            weight /= count.max(1) as f64;
            counts[seed] = count as f64;
            if seed > 0 {
                from(seed - 1, left - count, weight, counts, found);
            } else if count == left {
                found.push((counts.clone(), weight));
            }
        }
    }
    let last = counts.len() - 1;
    from(last, left, weight, counts, found);
}

/// Values over resamples, with the weights of the resamples.
pub(super) struct Spread<'a> {
    pub(super) weights: &'a [f64],
    pub(super) seeds: usize,
    /// Quantile of Student's t.
    pub(super) t: f64,
    /// The probability in each tail.
    pub(super) tail: f64,
}

impl<'a> Spread<'a> {
    /// `None` of one seed, of fewer than two resamples, or if `confidence` is outside (0, 1).
    pub(super) fn new(weights: &'a [f64], seeds: usize, confidence: f64) -> Option<Self> {
        if seeds < 2 || weights.len() < 2 || !(confidence > 0.0 && confidence < 1.0) {
            return None;
        }
        Some(Self {
            weights,
            seeds,
            t: student_t_quantile(0.5 + confidence / 2.0, seeds - 1)?,
            tail: (1.0 - confidence) / 2.0,
        })
    }

    /// t times the standard error: that of the resamples times the root of n/(n - 1), for a bootstrap
    /// divides by n where a variance has n - 1.
    pub(super) fn half_width(&self, values: impl Iterator<Item = f64> + Clone) -> f64 {
        let total: f64 = self.weights.iter().sum();
        let mean = |values: &mut dyn Iterator<Item = f64>| {
            let sum: f64 = values.zip(self.weights).map(|(x, w)| w * x).sum();
            sum / total
        };
        let center = mean(&mut values.clone());
        let variance = mean(&mut values.map(|x| (x - center).powi(2)));
        let n = self.seeds as f64;
        self.t * (variance * n / (n - 1.0)).sqrt()
    }

    /// Whether so large a share of resamples has this that it reaches beyond the tail.
    pub(super) fn is_common(&self, has: impl Iterator<Item = bool>) -> bool {
        let total: f64 = self.weights.iter().sum();
        let share: f64 = has
            .zip(self.weights)
            .map(|(has, w)| if has { *w } else { 0.0 })
            .sum();
        share > self.tail * total
    }
}

/// Ends of the interval of a scale in the logarithm, `theta`, that was found on a grid and may be open.
///
/// Closed on both sides: theta ± the half width. Where one is open, resamples at the edge of the
/// search make the standard error a matter of where that edge lies, and the other end is that of the
/// likelihood: where `below_best`, log of the largest likelihood less that at theta, reaches `allowed`.
pub(super) fn scale_interval(
    grid: &[f64],
    theta: f64,
    half_width: f64,
    open: (bool, bool),
    allowed: f64,
    mut below_best: impl FnMut(f64) -> f64,
) -> Interval {
    if open == (false, false) {
        return Interval {
            low: (theta - half_width).exp(),
            high: (theta + half_width).exp(),
        };
    }
    let mut slack = |theta| allowed - below_best(theta);
    let inside: Vec<f64> = grid.iter().map(|theta| slack(*theta)).collect();
    let mut end = |outer: Option<usize>, inner: Option<usize>| match (outer, inner) {
        (Some(outer), Some(inner)) => root(
            &mut slack,
            (grid[inner], inside[inner]),
            (grid[outer], inside[outer]),
        )
        .exp(),
        // No point of the grid is inside: the set is narrower than the grid.
        _ => theta.exp(),
    };
    let first = inside.iter().position(|s| *s > 0.0);
    let last = inside.iter().rposition(|s| *s > 0.0);
    Interval {
        low: if open.0 || first == Some(0) {
            0.0
        } else {
            end(first.map(|i| i - 1), first)
        },
        high: if open.1 || last == Some(grid.len() - 1) {
            f64::INFINITY
        } else {
            end(last.map(|i| i + 1), last)
        },
    }
}

/// What twice the log likelihood may fall by within an interval, halved: with normal residuals the
/// square of Student's t is (n - 2)(SS/SS_best - 1), so it is n/2 log(1 + t^2/(n - 2)). Infinite of
/// two samples.
pub(super) fn allowed(n: f64, t: f64) -> f64 {
    0.5 * n * (t * t / (n - 2.0).max(0.0)).ln_1p()
}

/// Intervals of a fit, at `confidence` in (0, 1), by a bootstrap over whole seeds.
///
/// `at` are the batches for the curve; `below(n)` draws from 0..n uniformly. With up to six seeds and
/// 1000 resamples nothing is drawn: there are only 10 distinct resamples of 3 seeds, 126 of 5, 462 of
/// 6, and all are fitted. `None` of one seed, of samples without a fit, if `confidence` is out of
/// range, or if more than half of the resamples reached the target at fewer than two batches; a
/// smaller share of such is left out.
///
/// An interval is the estimate times and over exp(t se): se the standard error of the logarithm over
/// the resamples, times the root of n/(n - 1), and t Student's with n - 1 degrees of freedom for n
/// seeds. All samples of a seed stay together, so that it may have an effect of its own on all
/// batches, lack some, and scatter more at one batch than at another.
///
/// Chosen by simulation, 1000 studies for each of 22 designs (3, 5 and 10 seeds, 6 and 11 batches, 5
/// to 30 % of noise, seeds with a common effect of 10 %, steps rounded up to evaluations 5 % apart):
/// where 95 % are asked for, this form covers B_crit in 94 to 96 %, while percentiles of the resamples,
/// the plain form, cover 74 to 79 % with 3 seeds, 82 to 86 % with 5 and 86 to 91 % with 10. The test
/// of this module prints counts of both for other designs, among them censored ones. Steps that are
/// rounded up are too many at all batches alike: that moves S_min and E_min by half a spacing, which
/// no interval knows of, and B_crit hardly. With 10 seeds and that spacing theirs cover 87 to 93 %.
///
/// Where the fit puts B_crit at an edge of the search, or more resamples do than belong in a tail,
/// that end is open: infinity or 0. The other is then that of the profile likelihood at the same t,
/// which takes samples as independent, and S_min (or E_min) is at most what it is there, and as much
/// more as S at the largest batch (the smallest) may be. As S_min < S(B) and E_min < B S(B) for every
/// B, their upper ends never exceed those of S at the largest and of B S at the smallest batch. At
/// B_crit 4 and 25 times the largest batch or an eighth of the smallest all three cover 92 to 97 %.
pub fn intervals(
    samples: &[StepsSample],
    fit: &StepsFit,
    at: &[f64],
    confidence: f64,
    resamples: usize,
    below: impl FnMut(u64) -> u64,
) -> Option<StepsIntervals> {
    check(samples).ok()?;
    let table = Table::of(samples);
    let seeds = table.seeds();
    if seeds < 2 {
        return None;
    }
    let mut sums = Sums::default();
    let (mut fits, mut weights, mut lost) = (Vec::new(), Vec::new(), 0.0);
    for (counts, weight) in resampled(seeds, resamples, below) {
        if table.sum(&counts, &mut sums) < 2 {
            lost += weight;
        } else {
            fits.push(table.optimum(&sums));
            weights.push(weight);
        }
    }
    if lost > weights.iter().sum() {
        return None;
    }
    let spread = Spread::new(&weights, seeds, confidence)?;
    let open = |bound| {
        fit.bound == Some(bound) || spread.is_common(fits.iter().map(|f| f.bound == Some(bound)))
    };
    let open = (open(Bound::Below), open(Bound::Above));
    let log_interval = |value: f64, of: &dyn Fn(&Optimum) -> f64| {
        let factor = spread.half_width(fits.iter().map(of)).exp();
        Interval {
            low: value / factor,
            high: value * factor,
        }
    };
    let steps = |batch: f64| {
        log_interval(fit.steps(batch), &|f| {
            f.profile.log_s_min + softplus(f.theta - batch.ln())
        })
    };
    let sums = table.total();
    let best = table.optimum(&sums).profile;
    let (mut law, mut start) = (Law::default(), None);
    let grid: Vec<f64> = table.grid.iter().map(|(theta, _)| *theta).collect();
    let b_crit = scale_interval(
        &grid,
        fit.b_crit.ln(),
        spread.half_width(fits.iter().map(|f| f.theta)),
        open,
        allowed(samples.len() as f64, spread.t),
        |theta| {
            law.set(theta, &table.log_batches);
            let here = sums.profile(&law, &mut start);
            if sums.censored.is_empty() {
                let count: f64 = sums.cells.iter().map(|cell| cell.count).sum();
                0.5 * count * (here.value / best.value).ln()
            } else {
                best.value - here.value
            }
        },
    );
    // Profiles at the closed end of an open interval: as far as the other scale can be from its edge.
    let mut at_end = |b_crit: f64| {
        law.set(b_crit.ln(), &table.log_batches);
        sums.profile(&law, &mut None).log_s_min
    };
    let smallest = table.log_batches[0].exp();
    let largest = table.log_batches[table.log_batches.len() - 1].exp();
    let half_width = |batch: f64| {
        let interval = steps(batch);
        (interval.high / fit.steps(batch)).ln()
    };
    let mut s_min = log_interval(fit.s_min, &|f| f.profile.log_s_min);
    let mut e_min = log_interval(fit.e_min(), &|f| f.profile.log_s_min + f.theta);
    if open.1 {
        s_min = Interval {
            low: 0.0,
            high: if b_crit.low > 0.0 {
                (at_end(b_crit.low) + half_width(largest)).exp()
            } else {
                f64::INFINITY
            },
        };
    }
    if open.0 {
        e_min = Interval {
            low: 0.0,
            high: if b_crit.high.is_finite() {
                (at_end(b_crit.high) + b_crit.high.ln() + half_width(smallest)).exp()
            } else {
                f64::INFINITY
            },
        };
    }
    s_min.high = s_min.high.min(steps(largest).high);
    e_min.high = e_min.high.min(smallest * steps(smallest).high);
    Some(StepsIntervals {
        s_min,
        e_min,
        b_crit,
        curve: at.iter().map(|batch| (*batch, steps(*batch))).collect(),
        seeds,
        resamples: fits.len(),
    })
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

    fn interval(ours: Interval, theirs: &serde_json::Value) {
        close(ours.low, &theirs[0], 1e-7);
        close(ours.high, &theirs[1], 1e-7);
    }

    fn rows(case: &serde_json::Value) -> Vec<StepsSample> {
        let rows = case["rows"].as_array().unwrap();
        rows.iter()
            .map(|row| StepsSample {
                batch: row[0].as_f64().unwrap(),
                steps: row[1].as_f64().unwrap(),
                seed: row[2].as_u64().unwrap(),
                reached: row[3].as_bool().unwrap_or(true),
            })
            .collect()
    }

    fn samples(points: &[(f64, f64)]) -> Vec<StepsSample> {
        points
            .iter()
            .map(|&(batch, steps)| StepsSample {
                batch,
                steps,
                reached: true,
                seed: 0,
            })
            .collect()
    }

    fn censored(batch: f64, steps: f64, seed: u64) -> StepsSample {
        StepsSample {
            batch,
            steps,
            reached: false,
            seed,
        }
    }

    #[test]
    fn least_squares_and_goodness_agree_with_scipy() {
        for case in reference()["uncensored"].as_array().unwrap() {
            let samples = rows(case);
            let fit = fit_steps(&samples).unwrap();
            close(fit.s_min, &case["s_min"], 1e-8);
            close(fit.b_crit, &case["b_crit"], 1e-8);
            close(fit.log_sd, &case["log_sd"], 1e-9);
            assert_eq!((fit.censored, fit.bound), (0, None));
            let found = goodness(&samples, &fit);
            let expected = &case["goodness"];
            if expected.is_null() {
                assert_eq!(found.lack_of_fit, None);
                continue;
            }
            close(found.r_squared.unwrap(), &expected["r_squared"], 1e-9);
            close(found.rms_log, &expected["rms_log"], 1e-9);
            let test = found.lack_of_fit.unwrap();
            close(test.f, &expected["f"], 1e-8);
            close(test.p, &expected["p"], 1e-8);
            assert_eq!(test.freedom.0 as u64, expected["freedom"][0]);
            assert_eq!(test.freedom.1 as u64, expected["freedom"][1]);
        }
    }

    #[test]
    fn with_censored_samples_the_likelihood_is_the_largest_that_scipy_finds() {
        for case in reference()["censored"].as_array().unwrap() {
            let samples = rows(case);
            let fit = fit_steps(&samples).unwrap();
            close(fit.s_min, &case["s_min"], 1e-7);
            close(fit.b_crit, &case["b_crit"], 1e-7);
            close(fit.log_sd, &case["log_sd"], 1e-7);
            assert!(fit.censored > 0 && fit.bound.is_none());
            let table = Table::of(&samples);
            let best = table.optimum(&table.total()).profile.value;
            let reached = (fit.n - fit.censored) as f64;
            let constant = 0.5 * reached * std::f64::consts::TAU.ln();
            close(best - constant, &case["log_likelihood"], 1e-9);
        }
    }

    /// Zhang et al. 2024 (arXiv 2410.21676): steps to a loss on C4 for five sizes of model, from the
    /// notebook that the authors published. B_crit and S_min beside them are of an earlier fit.
    #[test]
    fn the_published_points_of_zhang_give_the_known_critical_batch_sizes() {
        let table = include_str!("../../tests/reference/zhang2024.csv");
        let mut models: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for line in table.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let point = (cells[1].parse().unwrap(), cells[2].parse().unwrap());
            models.entry(cells[0]).or_default().push(point);
        }
        assert_eq!(models.values().map(Vec::len).sum::<usize>(), 45);
        let reference = reference();
        for (model, points) in &models {
            let points = samples(points);
            let fit = fit_steps(&points).unwrap();
            close(fit.b_crit, &reference["zhang"][model]["b_crit"], 1e-8);
            close(fit.s_min, &reference["zhang"][model]["s_min"], 1e-8);
            assert!(goodness(&points, &fit).r_squared.unwrap() > 0.99);
        }
        for (model, b_crit, s_min) in [
            ("85M", 2241.0, 1265.0),
            ("151M", 3304.0, 1710.0),
            ("604M", 7913.0, 2458.0),
        ] {
            let fit = fit_steps(&samples(&models[model])).unwrap();
            assert!((fit.b_crit / b_crit - 1.0).abs() < 0.01, "{model} {fit:?}");
            assert!((fit.s_min / s_min - 1.0).abs() < 0.01, "{model} {fit:?}");
        }
    }

    #[test]
    fn points_on_the_law_give_it_back_and_two_have_no_goodness() {
        let on_law = |b: f64| (b, 100.0 * (1.0 + 400.0 / b));
        let fit = fit_steps(&samples(&[8.0, 64.0, 512.0, 4096.0].map(on_law))).unwrap();
        assert!((fit.b_crit - 400.0).abs() < 1e-9 && (fit.s_min - 100.0).abs() < 1e-10);
        assert!(fit.log_sd < 1e-12);
        assert!((fit.e_min() - 40_000.0).abs() < 1e-6);
        assert!((fit.steps(50.0) - 900.0).abs() < 1e-9);
        assert!((fit.examples(50.0) - 45_000.0).abs() < 1e-7);
        let two = samples(&[64.0, 4096.0].map(on_law));
        let fit = fit_steps(&two).unwrap();
        assert!((fit.b_crit - 400.0).abs() < 1e-9 && (fit.s_min - 100.0).abs() < 1e-10);
        let found = goodness(&two, &fit);
        assert_eq!((found.r_squared, found.lack_of_fit), (None, None));
    }

    #[test]
    fn censored_samples_that_the_law_exceeds_anyway_leave_an_exact_fit_alone() {
        let mut points = samples(&[(100.0, 500.0), (400.0, 200.0)]);
        points.push(censored(10.0, 2000.0, 0));
        let fit = fit_steps(&points).unwrap();
        assert!((fit.b_crit - 400.0).abs() < 1e-6 && (fit.s_min - 100.0).abs() < 1e-6);
        assert_eq!((fit.n, fit.censored, fit.log_sd), (3, 1, LEAST_SD));
        // One that says more than the law: the fit gives way.
        points[2].steps = 8000.0;
        let fit = fit_steps(&points).unwrap();
        assert!(fit.steps(10.0) > 4100.0 && fit.log_sd > 0.01);
    }

    #[test]
    fn steps_that_do_not_flatten_or_do_not_fall_put_b_crit_at_an_edge() {
        let perfect = samples(&[8.0, 64.0, 512.0].map(|b| (b, 1e5 / b)));
        let fit = fit_steps(&perfect).unwrap();
        assert_eq!(fit.bound, Some(Bound::Above));
        assert!((fit.b_crit / 512e3 - 1.0).abs() < 1e-12);
        let constant = samples(&[8.0, 64.0, 512.0].map(|b| (b, 700.0)));
        let fit = fit_steps(&constant).unwrap();
        assert_eq!(fit.bound, Some(Bound::Below));
        assert!((fit.b_crit / 8e-3 - 1.0).abs() < 1e-12);
        assert_eq!(goodness(&constant, &fit).r_squared, None);
        let growing = samples(&[8.0, 64.0, 512.0].map(|b| (b, b)));
        assert_eq!(fit_steps(&growing).unwrap().bound, Some(Bound::Below));
        // With censoring as well.
        let mut stuck = constant.clone();
        stuck.push(censored(4096.0, 900.0, 0));
        assert_eq!(fit_steps(&stuck).unwrap().bound, Some(Bound::Below));
    }

    #[test]
    fn what_cannot_be_fitted_says_why() {
        let bad = |batch, steps| fit_steps(&samples(&[(8.0, 10.0), (batch, steps)]));
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let column = |found: Result<StepsFit, FitError>| match found {
                Err(FitError::NotPositive { sample, column, .. }) => (sample, column),
                other => panic!("{other:?}"),
            };
            assert_eq!(column(bad(value, 5.0)), (2, "batch"));
            assert_eq!(column(bad(16.0, value)), (2, "steps"));
        }
        assert_eq!(
            bad(8.0, 0.0).unwrap_err().to_string(),
            "sample 2: expected steps to be a finite number above 0, found 0"
        );
        let few = Err(FitError::TooFewBatches { found: 1 });
        assert_eq!(bad(8.0, 12.0), few);
        assert_eq!(fit_steps(&[]), Err(FitError::TooFewBatches { found: 0 }));
        let one = [samples(&[(8.0, 9.0)])[0], censored(16.0, 9.0, 0)];
        assert_eq!(fit_steps(&one), few);
        let nothing = [censored(8.0, 9.0, 0), censored(16.0, 9.0, 0)];
        let error = Err(FitError::NothingReached { samples: 2 });
        assert_eq!(fit_steps(&nothing), error);
    }

    #[test]
    fn extreme_numbers_neither_panic_nor_hang() {
        for (low, high) in [
            (f64::MIN_POSITIVE, f64::MAX),
            (5e-324, 1.0),
            (1.0, f64::MAX),
        ] {
            let mut points = samples(&[(low, high), (high, low), (1.0, 1.0)]);
            let fit = fit_steps(&points).unwrap();
            goodness(&points, &fit);
            points.push(censored(high, high, 1));
            let fit = fit_steps(&points).unwrap();
            let mut stream = Stream::new(0, "extreme", 0);
            intervals(&points, &fit, &[low, high], 0.95, 50, |n| stream.below(n));
        }
    }

    #[test]
    fn intervals_agree_with_all_ordered_resamples_fitted_by_scipy() {
        for case in reference()["intervals"].as_array().unwrap() {
            let samples = rows(case);
            let fit = fit_steps(&samples).unwrap();
            let at: Vec<f64> = case["at"]
                .as_array()
                .unwrap()
                .iter()
                .map(|b| b.as_f64().unwrap())
                .collect();
            let confidence = case["confidence"].as_f64().unwrap();
            let draw = |_| unreachable!("all resamples are listed");
            let found = intervals(&samples, &fit, &at, confidence, 1000, draw).unwrap();
            interval(found.b_crit, &case["b_crit"]);
            interval(found.s_min, &case["s_min"]);
            interval(found.e_min, &case["e_min"]);
            for (index, (batch, ours)) in found.curve.iter().enumerate() {
                assert_eq!(*batch, at[index]);
                interval(*ours, &case["curve"][index]);
            }
            assert_eq!(found.resamples, [0, 1, 3, 10, 35][found.seeds]);
        }
    }

    #[test]
    fn all_resamples_weigh_as_their_probabilities_and_random_ones_agree() {
        let listed = resampled(3, 10, |_| 0);
        assert_eq!(listed.len(), 10);
        let total: f64 = listed.iter().map(|(_, weight)| weight).sum();
        for (counts, weight) in &listed {
            assert_eq!(counts.iter().sum::<f64>(), 3.0);
            let distinct = counts.iter().filter(|c| **c > 0.0).count();
            // Of 27 ordered draws.
            let ways = [0.0, 1.0, 3.0, 6.0][distinct];
            assert!((weight / total - ways / 27.0).abs() < 1e-15);
        }
        assert_eq!(resampled(7, 1716, |_| 0).len(), 1716);
        assert_eq!(resampled(7, 1715, |_| 0)[1714].0[0], 7.0);
        let design = &DESIGNS[1];
        let samples = design.draw(&mut Stream::new(3, "steps-fit", 0));
        let fit = fit_steps(&samples).unwrap();
        let mut stream = Stream::new(4, "steps-fit", 0);
        let mut find = |count| intervals(&samples, &fit, &[], 0.95, count, |n| stream.below(n));
        let (all, some) = (find(126).unwrap(), find(125).unwrap());
        let width = |found: &StepsIntervals| (found.b_crit.high / found.b_crit.low).ln();
        assert!((width(&some) / width(&all) - 1.0).abs() < 0.3);
    }

    #[test]
    fn one_seed_or_an_impossible_confidence_has_no_interval() {
        let mut points = samples(&[(8.0, 100.0), (64.0, 20.0), (512.0, 15.0)]);
        let fit = fit_steps(&points).unwrap();
        let find = |points: &[StepsSample], confidence| {
            intervals(points, &fit, &[], confidence, 100, |_| 0)
        };
        assert_eq!(find(&points, 0.95), None);
        points.extend(points.clone().iter().map(|s| StepsSample { seed: 9, ..*s }));
        assert!(find(&points, 0.95).is_some());
        for confidence in [0.0, 1.0, f64::NAN] {
            assert_eq!(find(&points, confidence), None);
        }
        assert_eq!(intervals(&points, &fit, &[], 0.95, 0, |_| 0), None);
        assert_eq!(find(&[], 0.95), None);
    }

    #[test]
    fn an_end_that_samples_leave_open_is_infinite_or_0_and_the_other_holds() {
        let of = |steps: fn(f64) -> f64| {
            let mut points = Vec::new();
            for (seed, wobble) in [(0, 1.05), (1, 0.97), (2, 0.99)] {
                for (batch, factor) in [(8.0, wobble), (64.0, 1.0), (512.0, 2.0 - wobble)] {
                    points.push(StepsSample {
                        batch,
                        steps: steps(batch) * factor,
                        reached: true,
                        seed,
                    });
                }
            }
            let fit = fit_steps(&points).unwrap();
            (
                fit,
                intervals(&points, &fit, &[8.0], 0.95, 100, |_| 0).unwrap(),
            )
        };
        let (_, perfect) = of(|b| 1e5 / b);
        assert_eq!(perfect.b_crit.high, f64::INFINITY);
        assert!(perfect.b_crit.low > 512.0, "{perfect:?}");
        assert_eq!(perfect.s_min.low, 0.0);
        assert!(perfect.s_min.high < 300.0 && perfect.e_min.contains(1e5));
        assert!(perfect.curve[0].1.contains(12_500.0));
        let (_, constant) = of(|_| 700.0);
        assert_eq!(constant.b_crit.low, 0.0);
        assert!(constant.b_crit.high < 8.0, "{constant:?}");
        assert_eq!(constant.e_min.low, 0.0);
        assert!(constant.e_min.high < 8.0 * 900.0 && constant.s_min.contains(700.0));
    }

    /// A simulated study.
    struct Design {
        name: &'static str,
        seeds: u64,
        batches: u32,
        /// Standard deviation of log steps at the smallest and at the largest batch.
        noise: (f64, f64),
        b_crit: f64,
        /// Share of samples that are missing.
        missing: f64,
        most_steps: f64,
        most_examples: f64,
    }

    const PLAIN: Design = Design {
        name: "3 seeds, 6 batches, 10 %",
        seeds: 3,
        batches: 6,
        noise: (0.1, 0.1),
        b_crit: 300.0,
        missing: 0.0,
        most_steps: f64::INFINITY,
        most_examples: f64::INFINITY,
    };

    const DESIGNS: [Design; 10] = [
        PLAIN,
        Design {
            name: "5 seeds, 11 batches, 5 %",
            seeds: 5,
            batches: 11,
            noise: (0.05, 0.05),
            ..PLAIN
        },
        Design {
            name: "3 seeds, 11 batches, 20 %",
            batches: 11,
            noise: (0.2, 0.2),
            ..PLAIN
        },
        Design {
            name: "5 seeds, 6 batches, 5 to 20 %",
            seeds: 5,
            noise: (0.05, 0.2),
            ..PLAIN
        },
        Design {
            name: "3 seeds, 11 batches, 20 to 5 %, a fifth missing",
            batches: 11,
            noise: (0.2, 0.05),
            missing: 0.2,
            ..PLAIN
        },
        Design {
            name: "10 seeds, 6 batches, 20 %",
            seeds: 10,
            noise: (0.2, 0.2),
            ..PLAIN
        },
        Design {
            name: "3 seeds, 6 batches, 20 %, B_crit 20",
            noise: (0.2, 0.2),
            b_crit: 20.0,
            ..PLAIN
        },
        Design {
            name: "3 seeds, 6 batches, 20 %, B_crit 8000",
            noise: (0.2, 0.2),
            b_crit: 8000.0,
            ..PLAIN
        },
        Design {
            name: "3 seeds, 11 batches, 10 %, small batches censored",
            batches: 11,
            most_steps: 3000.0,
            ..PLAIN
        },
        Design {
            name: "5 seeds, 6 batches, 10 %, large batches censored",
            seeds: 5,
            most_examples: 8192.0 * 200.0,
            ..PLAIN
        },
    ];

    impl Design {
        /// Samples of 200 (1 + B_crit/B) with a common effect of 10 % of each seed, rounded up to the
        /// next evaluation, whose spacing grows by 5 %.
        fn draw(&self, stream: &mut Stream) -> Vec<StepsSample> {
            let mut samples = Vec::new();
            for seed in 0..self.seeds {
                let effect = 0.1 * stream.normal();
                for i in 0..self.batches {
                    let place = f64::from(i) / f64::from(self.batches - 1);
                    let batch = (8.0 * 1024_f64.powf(place)).round();
                    let noise = self.noise.0 + place * (self.noise.1 - self.noise.0);
                    let log_steps = (200.0 * (1.0 + self.b_crit / batch)).ln();
                    let drawn = log_steps + effect + noise * stream.normal();
                    let spacing = 1.05_f64.ln();
                    let steps = ((drawn / spacing).ceil() * spacing).exp().round();
                    let limit = self.most_steps.min(self.most_examples / batch);
                    if stream.uniform() >= self.missing {
                        samples.push(StepsSample {
                            batch,
                            steps: steps.min(limit),
                            reached: steps <= limit,
                            seed,
                        });
                    }
                }
            }
            samples
        }
    }

    /// Whether the central 95 % of the resamples hold log B_crit.
    fn percentiles_cover(samples: &[StepsSample], b_crit: f64, stream: &mut Stream) -> bool {
        let table = Table::of(samples);
        let mut sums = Sums::default();
        let (mut less, mut total) = (0.0, 0.0);
        for (counts, weight) in resampled(table.seeds(), 200, |n| stream.below(n)) {
            table.sum(&counts, &mut sums);
            total += weight;
            if table.optimum(&sums).theta < b_crit.ln() {
                less += weight;
            }
        }
        (0.025 * total..=0.975 * total).contains(&less)
    }

    /// 190 are expected of 200 with a standard deviation of 3.
    #[test]
    #[allow(clippy::print_stdout)]
    fn intervals_of_95_percent_cover_the_known_b_crit_in_at_least_180_of_200_studies() {
        let mut short = Vec::new();
        for (index, design) in DESIGNS.iter().enumerate() {
            let mut stream = Stream::new(1, "steps-fit-coverage", index as u64);
            let mut plain_stream = Stream::new(2, "steps-fit-coverage", index as u64);
            let mut plain = 0;
            let (mut covered, mut s_covered, mut e_covered, mut open) = (0, 0, 0, 0);
            let mut widths = Vec::new();
            for _ in 0..200 {
                let samples = design.draw(&mut stream);
                let fit = fit_steps(&samples).unwrap();
                let found = intervals(&samples, &fit, &[], 0.95, 200, |n| stream.below(n)).unwrap();
                covered += u32::from(found.b_crit.contains(design.b_crit));
                plain += u32::from(percentiles_cover(
                    &samples,
                    design.b_crit,
                    &mut plain_stream,
                ));
                s_covered += u32::from(found.s_min.contains(200.0));
                e_covered += u32::from(found.e_min.contains(200.0 * design.b_crit));
                let width = found.b_crit.high / found.b_crit.low;
                open += u32::from(!width.is_finite());
                widths.push(width);
            }
            println!(
                "{}: B_crit {covered} (percentiles {plain}), S_min {s_covered}, E_min {e_covered} of \
                 200; high/low {:.2} in the middle, {open} open",
                design.name,
                crate::math::statistics::quantile(&widths, 0.5).unwrap()
            );
            if covered < 180 {
                short.push((design.name, covered));
            }
        }
        assert!(short.is_empty(), "{short:?}");
    }
}
