//! The noise scale of the gradient, B_simple = tr(Sigma)/|G|^2, from logged norms, with intervals.
//!
//! G is the expected gradient, Sigma the covariance of the gradient of one example, and B_simple a
//! number of examples (McCandlish et al. 2018, arXiv 1812.06162, section 2.2 and appendix A.1). One
//! row is one step of training; it holds the squared norms of gradients over batches of two sizes:
//!
//! - `g2_big`: |g|^2 of the *mean* gradient of `b_big` examples;
//! - `g2_small`: the mean of |g_i|^2 over mean gradients of `b_small` examples, at the same
//!   parameters: the *mean of squares*, not the square of a mean norm, which is smaller. The small
//!   batches may be parts of the big one. Pieces of unequal sizes n_i enter as b_small = B/L and
//!   g2_small = sum n_i |g_i|^2/B.
//!
//! Gradients of a loss summed over examples are b times as long and give no noise scale; see
//! [`NoiseScale::looks_summed`].
//!
//! Of each row, without bias:
//!
//! - tr(Sigma) = (g2_small - g2_big)/(1/b_small - 1/b_big);
//! - |G|^2 = g2_big - tr(Sigma)(1/b_big - 1/N) for batches drawn without replacement from N
//!   examples. Where they never repeat 1/N is 0, and this is
//!   (b_big g2_big - b_small g2_small)/(b_big - b_small).
//!
//! Either may be negative. Rows are averaged first, and the quotient comes last: that of one row has
//! no expectation. Averages are never clipped: where that of |G|^2 is not above 0, or its interval
//! reaches 0, or where that of tr(Sigma) is not above 0, the noise scale is [`Undetermined`].
//!
//! # Intervals
//!
//! Rows of one run are correlated, so an interval from single rows would be too short. Rows are cut
//! into k blocks of consecutive steps, each is left out once, and the covariance of the two averages
//! is (k - 1)/k sum (x_j - mean x)(y_j - mean y) over the averages x_j, y_j without block j (the
//! jackknife: Tukey 1958; over blocks: Künsch 1989). Blocks must be long against the correlation of
//! rows: k is the integer root of the number of rows and at most 10, so that from 100 rows on blocks
//! grow with the run.
//!
//! The 95 % interval of the quotient is Fieller's (1954): all r for which the average of
//! tr(Sigma) - r |G|^2 lies within t standard errors of 0, t Student's with k - 1 degrees of freedom.
//! It was chosen by simulation (`tests/reference/noise_scale.py`) against the jackknife of
//! log B_simple and of 1/B_simple. Where the gradient is resolved, all three cover alike. Where it is
//! not, the logarithm falls to 80 % and less, and does not exist where an average is negative; the
//! inverse covers, but needs tr(Sigma) resolved. Fieller's needs neither, and is open upward exactly
//! where |G|^2 cannot be told from 0. Where the correlation of gradients falls by e in 10 rows it
//! covers 92 to 96 % with 400 rows and more, but 84 % with 100, where no block is long enough.
//!
//! Over a run the noise scale grows, often tenfold. Then the quotient over all rows is one of
//! averages over the run, and [`course`] says how it moves.

use thiserror::Error;

use super::noise::share_of_mean;
use super::statistics::{Interval, Moments, student_t_quantile};

/// Confidence of the intervals here.
pub const CONFIDENCE: f64 = 0.95;

/// Most blocks that are made where none are asked for.
const MOST_BLOCKS: usize = 10;

/// Norms of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormRow {
    /// The step.
    pub step: u64,
    /// Examples of a small batch; not an integer where pieces differ.
    pub b_small: f64,
    /// Mean squared norm of the mean gradients of small batches.
    pub g2_small: f64,
    /// Examples of the big batch.
    pub b_big: f64,
    /// Squared norm of the mean gradient of the big batch.
    pub g2_big: f64,
}

/// How to estimate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Blocks of the jackknife; `None`: the integer root of the number of rows, at most 10.
    pub blocks: Option<usize>,
    /// The number N of examples that batches are drawn from without replacement; `None` where they
    /// never repeat.
    pub population: Option<usize>,
}

/// Why rows give no estimate.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NoiseScaleError {
    /// Nothing to average.
    #[error("the noise scale needs at least 1 row of norms, found none")]
    NoRows,
    /// A number that cannot be.
    #[error("row {row} (step {step}), column `{column}`: expected {expected}, found {found}")]
    Value {
        /// The row, from 1.
        row: usize,
        /// Its step.
        step: u64,
        /// The column.
        column: &'static str,
        /// What it holds.
        expected: String,
        /// What is there.
        found: f64,
    },
    /// The small batch is the big one.
    #[error(
        "row {row} (step {step}), column `b_small`: expected less than b_big = {size}, found {size}\n\
         hint: one piece has no variance; log norms of 2 or more workers or micro-batches a step"
    )]
    OnePiece {
        /// The row, from 1.
        row: usize,
        /// Its step.
        step: u64,
        /// Examples of both.
        size: f64,
    },
    /// Steps that do not increase.
    #[error(
        "row {row}, column `step`: expected more than {previous}, the step before, found {step}\n\
         hint: a run that was started again logs steps again; keep one row of each, in order"
    )]
    Step {
        /// The row, from 1.
        row: usize,
        /// Its step.
        step: u64,
        /// The step of the row before.
        previous: u64,
    },
    /// Blocks that cannot be made.
    #[error("expected at least 1 block and no more than there are rows ({rows}), found {blocks}")]
    Blocks {
        /// Blocks asked for.
        blocks: usize,
        /// Rows there are.
        rows: usize,
    },
    /// Windows without rows.
    #[error("a window holds at least 1 row, found 0")]
    EmptyWindow,
    /// The numbers are too large.
    #[error("the averages of these norms are larger than a floating-point number can be")]
    Overflow,
}

/// Why a quotient has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Undetermined {
    /// The estimate of the denominator is zero or negative.
    #[error("its denominator is not positive")]
    NotPositive,
    /// The denominator is positive, and 0 lies in its interval.
    #[error("its denominator cannot be told from 0")]
    NotDistinguishable,
    /// The denominator is positive, and the estimate of the numerator zero or negative.
    #[error("its numerator is not positive")]
    NumeratorNotPositive,
    /// Numerator, denominator or quotient is infinite or NaN.
    #[error("it is not a finite number")]
    NotFinite,
}

/// Where a quotient lies with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RatioInterval {
    /// Between two ends.
    Bounded(Interval),
    /// The denominator cannot be told from 0: anything from here on. A negative quotient, which
    /// Fieller's set then holds as well, is left out.
    AtLeast(f64),
}

impl RatioInterval {
    /// The lower end.
    pub fn low(&self) -> f64 {
        match self {
            Self::Bounded(interval) => interval.low,
            Self::AtLeast(low) => *low,
        }
    }

    /// The upper end; `None` where there is none.
    pub fn high(&self) -> Option<f64> {
        match self {
            Self::Bounded(interval) => Some(interval.high),
            Self::AtLeast(_) => None,
        }
    }

    /// Whether the value lies in the closed interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low() <= value && self.high().is_none_or(|high| value <= high)
    }
}

/// A quotient of two estimates, both of which should be positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Numerator over denominator, above 0, or why it says nothing.
    pub value: Result<f64, Undetermined>,
    /// The 95 % interval. `None` of fewer than two blocks; where the numerator or the denominator is
    /// negative beyond doubt; and where neither can be told from 0. Its lower end is negative where
    /// the numerator cannot be told from 0. Without a value for
    /// [`Undetermined::NumeratorNotPositive`], only its upper end says something, and is above 0.
    pub interval: Option<RatioInterval>,
}

/// An estimate with the standard error of its jackknife.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The estimate.
    pub value: f64,
    /// Its standard error; `None` of fewer than two blocks.
    pub standard_error: Option<f64>,
}

/// Estimates without each of the blocks in turn, and the share of their variance that counts.
#[derive(Debug, Clone, Copy)]
pub struct LeftOut<'a> {
    /// Estimates of two quantities without block j. Fewer than two tell nothing.
    pub pairs: &'a [(f64, f64)],
    /// Factor of the variances: 1, or 1 - B/N for B examples drawn without replacement from the N
    /// that are asked about.
    pub finite: f64,
}

/// Two independent errors of the same two estimates: that of the sample, and that of a random cut of
/// the sample into pieces, which stays where the sample is all there is. Their covariances add up.
#[derive(Debug, Clone, Copy)]
pub struct TwoErrors<'a> {
    /// Of the sample. Its blocks are the degrees of freedom.
    pub sample: LeftOut<'a>,
    /// Of the cut: what the two estimates owe to it without block j, up to a constant. Fewer than two
    /// pairs: none.
    pub cut: LeftOut<'a>,
}

impl<'a> From<LeftOut<'a>> for TwoErrors<'a> {
    fn from(sample: LeftOut<'a>) -> Self {
        let cut = LeftOut {
            pairs: &[],
            finite: 0.0,
        };
        Self { sample, cut }
    }
}

/// Covariance of two estimates.
#[derive(Debug, Clone, Copy)]
struct Covariance {
    first: f64,
    second: f64,
    both: f64,
}

impl LeftOut<'_> {
    /// The jackknife's covariance of estimates divided by these units; `None` of fewer than two
    /// blocks.
    fn covariance(&self, units: (f64, f64)) -> Option<Covariance> {
        let count = self.pairs.len();
        if count < 2 {
            return None;
        }
        let scaled = || self.pairs.iter().map(|&(x, y)| (x / units.0, y / units.1));
        let mean_of = |values: &mut dyn Iterator<Item = f64>| Moments::of(values).mean();
        let first = mean_of(&mut scaled().map(|pair| pair.0))?;
        let second = mean_of(&mut scaled().map(|pair| pair.1))?;
        let mut sums = Covariance {
            first: 0.0,
            second: 0.0,
            both: 0.0,
        };
        for (x, y) in scaled() {
            sums.first += (x - first).powi(2);
            sums.second += (y - second).powi(2);
            sums.both += (x - first) * (y - second);
        }
        let factor = self.finite * (count - 1) as f64 / count as f64;
        Some(Covariance {
            first: factor * sums.first,
            second: factor * sums.second,
            both: factor * sums.both,
        })
    }

    /// first/second with Fieller's interval.
    pub fn ratio(&self, first: f64, second: f64) -> Ratio {
        TwoErrors::from(*self).ratio(first, second)
    }
}

impl TwoErrors<'_> {
    /// The sum of both covariances, of estimates divided by these units; `None` of fewer than two
    /// blocks.
    fn covariance(&self, units: (f64, f64)) -> Option<Covariance> {
        let sample = self.sample.covariance(units)?;
        Some(match self.cut.covariance(units) {
            None => sample,
            Some(cut) => Covariance {
                first: sample.first + cut.first,
                second: sample.second + cut.second,
                both: sample.both + cut.both,
            },
        })
    }

    /// Both quantities with their standard errors.
    pub fn quantities(&self, first: f64, second: f64) -> (Quantity, Quantity) {
        let units = (self.unit(first, |p| p.0), self.unit(second, |p| p.1));
        let covariance = self.covariance(units);
        let quantity = |value, unit: f64, variance: Option<f64>| Quantity {
            value,
            standard_error: variance.map(|v| unit * v.sqrt()),
        };
        (
            quantity(first, units.0, covariance.map(|c| c.first)),
            quantity(second, units.1, covariance.map(|c| c.second)),
        )
    }

    /// first/second with Fieller's interval.
    pub fn ratio(&self, first: f64, second: f64) -> Ratio {
        let quotient = first / second;
        let value = if !(first.is_finite() && second.is_finite()) {
            Err(Undetermined::NotFinite)
        } else if second <= 0.0 {
            Err(Undetermined::NotPositive)
        } else if first <= 0.0 {
            Err(Undetermined::NumeratorNotPositive)
        } else if quotient.is_finite() {
            Ok(quotient)
        } else {
            Err(Undetermined::NotFinite)
        };
        let units = (self.unit(first, |p| p.0), self.unit(second, |p| p.1));
        let unit = units.0 / units.1;
        let set = self.covariance(units).and_then(|covariance| {
            let t = student_t_quantile(0.5 + CONFIDENCE / 2.0, self.sample.pairs.len() - 1)?;
            let means = (first / units.0, second / units.1);
            fieller(means, covariance, t)
        });
        match set {
            None => Ratio {
                value,
                interval: None,
            },
            Some(Fieller::Between(low, high)) => {
                let interval = Interval {
                    low: unit * low,
                    high: unit * high,
                };
                let says = match value {
                    Ok(_) => true,
                    Err(reason) => {
                        reason == Undetermined::NumeratorNotPositive && interval.high > 0.0
                    }
                };
                let sound = says && interval.low.is_finite() && interval.high.is_finite();
                Ratio {
                    value,
                    interval: sound.then_some(RatioInterval::Bounded(interval)),
                }
            }
            Some(Fieller::From(low)) => Ratio {
                value: value.and(Err(Undetermined::NotDistinguishable)),
                interval: low
                    .map(|low| unit * low)
                    .filter(|low| low.is_finite())
                    .map(RatioInterval::AtLeast),
            },
        }
    }

    /// The largest magnitude of a quantity, so that squares neither overflow nor vanish.
    fn unit(&self, value: f64, pick: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let largest = self
            .sample
            .pairs
            .iter()
            .chain(self.cut.pairs)
            .map(pick)
            .fold(value.abs(), |most, x| most.max(x.abs()));
        if largest > 0.0 { largest } else { 1.0 }
    }
}

/// Fieller's set, as far as it is positive where it is not an interval.
enum Fieller {
    Between(f64, f64),
    /// The denominator cannot be told from 0; `None`: nor can the numerator, or it is negative.
    From(Option<f64>),
}

/// All r with (x - r y)^2 <= t^2 Var(x - r y): a r^2 - 2 b r + c <= 0 with a = y^2 - t^2 Var(y),
/// b = x y - t^2 Cov(x, y), c = x^2 - t^2 Var(x). `None` where a number is not finite.
fn fieller((x, y): (f64, f64), covariance: Covariance, t: f64) -> Option<Fieller> {
    let square = t * t;
    let a = y * y - square * covariance.second;
    let b = x * y - square * covariance.both;
    let c = x * x - square * covariance.first;
    // b^2 - a c with what cancels left out.
    let spread = x * x * covariance.second - 2.0 * x * y * covariance.both
        + y * y * covariance.first
        - square * (covariance.first * covariance.second - covariance.both.powi(2));
    let root = t * spread.max(0.0).sqrt();
    if ![a, b, c, root].into_iter().all(f64::is_finite) {
        return None;
    }
    if a > 0.0 {
        // The root that adds up first; the other by the product of both, c/a.
        let far = if b >= 0.0 { b + root } else { b - root };
        let (one, other) = if far == 0.0 {
            (0.0, 0.0)
        } else {
            (far / a, c / far)
        };
        return Some(Fieller::Between(one.min(other), one.max(other)));
    }
    // One root is negative, the set is all beyond the two.
    let resolved = c > 0.0 && x > 0.0;
    let low = if b >= 0.0 {
        c / (b + root)
    } else {
        (b - root) / a
    };
    Some(Fieller::From(resolved.then_some(low)))
}

/// tr(Sigma), |G|^2 and their quotient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseParts {
    /// tr(Sigma).
    pub tr_sigma: Quantity,
    /// |G|^2; may be zero or negative.
    pub squared_gradient: Quantity,
    /// B_simple in examples.
    pub b_simple: Ratio,
}

impl NoiseParts {
    /// From tr(Sigma) and |G|^2 of all blocks, and from the same without each.
    pub fn of<'a>(
        tr_sigma: f64,
        squared_gradient: f64,
        left_out: impl Into<TwoErrors<'a>>,
    ) -> Self {
        let left_out = left_out.into();
        let (trace, squared) = left_out.quantities(tr_sigma, squared_gradient);
        Self {
            tr_sigma: trace,
            squared_gradient: squared,
            b_simple: left_out.ratio(tr_sigma, squared_gradient),
        }
    }
}

/// The noise scale over some rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseScale {
    /// Rows averaged.
    pub rows: usize,
    /// Blocks of consecutive rows, each as long as the others or one row longer. One block: no
    /// interval.
    pub blocks: usize,
    /// Step of the first row.
    pub first_step: u64,
    /// Step of the last row.
    pub last_step: u64,
    /// Averages and their quotient.
    pub parts: NoiseParts,
    /// Mean of |g| over rows, g the gradient of the big batch with its noise.
    pub gradient_norm: f64,
    /// Signal to noise of the big batch: mean(|G|^2)/mean(tr(Sigma)/b_big). `None` where no noise is
    /// seen (tr(Sigma) <= 0).
    pub snr: Option<f64>,
    /// Cosine between two small batches on average: the mean inner product of two over the mean
    /// squared norm of one, mean((b_big g2_big - b_small g2_small)/(b_big - b_small))/mean(g2_small).
    /// It takes the small batches for equal parts of the big one, and their norms for equal. `None`
    /// where all gradients are zero.
    pub cosine: Option<f64>,
}

impl NoiseScale {
    /// Whether tr(Sigma) is negative beyond doubt (95 %, one block after another), which no mean
    /// gradient gives: the norms are likely of gradients summed over examples.
    pub fn looks_summed(&self) -> bool {
        let trace = self.parts.tr_sigma;
        let t = student_t_quantile(0.5 + CONFIDENCE / 2.0, self.blocks.saturating_sub(1));
        match (trace.standard_error, t) {
            (Some(error), Some(t)) => trace.value + t * error < 0.0,
            _ => false,
        }
    }
}

/// What one row says.
struct RowEstimate {
    tr_sigma: f64,
    squared_gradient: f64,
    /// tr(Sigma)/b_big.
    noise: f64,
    /// Mean inner product of two small batches.
    inner: f64,
}

impl NormRow {
    /// Checks the row's own numbers; `row` counts from 1.
    fn check(&self, row: usize, population: Option<usize>) -> Result<(), NoiseScaleError> {
        let wrong = |column, expected: String, found| NoiseScaleError::Value {
            row,
            step: self.step,
            column,
            expected,
            found,
        };
        for (column, size) in [("b_small", self.b_small), ("b_big", self.b_big)] {
            if !(size.is_finite() && size > 0.0) {
                let expected = "a finite number of examples above 0".to_owned();
                return Err(wrong(column, expected, size));
            }
        }
        for (column, norm) in [("g2_small", self.g2_small), ("g2_big", self.g2_big)] {
            if !(norm.is_finite() && norm >= 0.0) {
                let expected = "a finite squared norm of at least 0".to_owned();
                return Err(wrong(column, expected, norm));
            }
        }
        if self.b_small == self.b_big {
            return Err(NoiseScaleError::OnePiece {
                row,
                step: self.step,
                size: self.b_big,
            });
        }
        if self.b_small > self.b_big {
            let expected = format!("less than b_big = {}", self.b_big);
            return Err(wrong("b_small", expected, self.b_small));
        }
        match population {
            Some(n) if self.b_big > n as f64 => {
                let expected = format!("at most the population, {n}");
                Err(wrong("b_big", expected, self.b_big))
            }
            _ => Ok(()),
        }
    }

    fn estimate(&self, population: Option<usize>) -> RowEstimate {
        let more = self.b_big / (self.b_big - self.b_small);
        let noise = (self.g2_small - self.g2_big) * (self.b_small / (self.b_big - self.b_small));
        let tr_sigma = (self.g2_small - self.g2_big) * self.b_small * more;
        RowEstimate {
            tr_sigma,
            squared_gradient: self.g2_big - tr_sigma * share_of_mean(self.b_big, population),
            noise,
            inner: self.g2_big - noise,
        }
    }
}

/// Checks rows, without estimating anything.
///
/// # Errors
/// With no row; with a size that is not positive, a negative norm, a number that is not finite, a
/// small batch that is not smaller, a big one above the population, or steps that do not increase.
pub fn check(rows: &[NormRow], population: Option<usize>) -> Result<(), NoiseScaleError> {
    if rows.is_empty() {
        return Err(NoiseScaleError::NoRows);
    }
    for (index, row) in rows.iter().enumerate() {
        row.check(index + 1, population)?;
    }
    for (index, pair) in rows.windows(2).enumerate() {
        if pair[1].step <= pair[0].step {
            return Err(NoiseScaleError::Step {
                row: index + 2,
                step: pair[1].step,
                previous: pair[0].step,
            });
        }
    }
    Ok(())
}

/// The noise scale over all rows, which are in the order of their steps. Sizes may change from row
/// to row; each row counts the same.
///
/// # Errors
/// Those of [`check`]; with no block or more blocks than rows; where averages overflow.
pub fn noise_scale(rows: &[NormRow], options: Options) -> Result<NoiseScale, NoiseScaleError> {
    check(rows, options.population)?;
    estimate(rows, options)
}

/// The noise scale over training: the rows cut into windows of `window` rows. What is left at the end
/// is a window of its own, or joins the last one where it is shorter than half a window or than the
/// blocks asked for; one window where there are fewer rows.
///
/// # Errors
/// Those of [`noise_scale`]; with windows of no row.
pub fn course(
    rows: &[NormRow],
    options: Options,
    window: usize,
) -> Result<Vec<NoiseScale>, NoiseScaleError> {
    check(rows, options.population)?;
    if window == 0 {
        return Err(NoiseScaleError::EmptyWindow);
    }
    let (full, rest) = (rows.len() / window, rows.len() % window);
    let own = rest >= window.div_ceil(2) && rest >= options.blocks.unwrap_or(1);
    let windows = (full + usize::from(own)).max(1);
    (0..windows)
        .map(|index| {
            let end = if index + 1 == windows {
                rows.len()
            } else {
                (index + 1) * window
            };
            estimate(&rows[index * window..end], options)
        })
        .collect()
}

/// 0..n cut into `count` parts, none longer than another by more than one.
fn parts(n: usize, count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let (length, longer) = (n / count, n % count);
    (0..count).map(move |part| {
        let start = part * length + part.min(longer);
        start..start + length + usize::from(part < longer)
    })
}

fn estimate(rows: &[NormRow], options: Options) -> Result<NoiseScale, NoiseScaleError> {
    let count = rows.len();
    let blocks = options
        .blocks
        .unwrap_or_else(|| count.isqrt().clamp(1, MOST_BLOCKS));
    if blocks == 0 || blocks > count {
        return Err(NoiseScaleError::Blocks {
            blocks,
            rows: count,
        });
    }
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(NoiseScaleError::NoRows);
    };
    let estimates: Vec<RowEstimate> = rows
        .iter()
        .map(|row| row.estimate(options.population))
        .collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let mean = Moments::of(values).mean().unwrap_or(f64::NAN);
        if mean.is_finite() {
            Ok(mean)
        } else {
            Err(NoiseScaleError::Overflow)
        }
    };
    let trace_of = |part: &[RowEstimate]| mean(&mut part.iter().map(|row| row.tr_sigma));
    let squared_of = |part: &[RowEstimate]| mean(&mut part.iter().map(|row| row.squared_gradient));
    let (tr_sigma, squared_gradient) = (trace_of(&estimates)?, squared_of(&estimates)?);
    let mut left_out = Vec::with_capacity(blocks);
    if blocks > 1 {
        for range in parts(count, blocks) {
            let part = &estimates[range];
            // Rows in the block over rows outside.
            let odds = part.len() as f64 / (count - part.len()) as f64;
            left_out.push((
                tr_sigma + odds * (tr_sigma - trace_of(part)?),
                squared_gradient + odds * (squared_gradient - squared_of(part)?),
            ));
        }
    }
    let noise = mean(&mut estimates.iter().map(|row| row.noise))?;
    let inner = mean(&mut estimates.iter().map(|row| row.inner))?;
    let small = mean(&mut rows.iter().map(|row| row.g2_small))?;
    let left_out = LeftOut {
        pairs: &left_out,
        finite: 1.0,
    };
    Ok(NoiseScale {
        rows: count,
        blocks,
        first_step: first.step,
        last_step: last.step,
        parts: NoiseParts::of(tr_sigma, squared_gradient, left_out),
        gradient_norm: mean(&mut rows.iter().map(|row| row.g2_big.sqrt()))?,
        snr: (noise > 0.0).then(|| squared_gradient / noise),
        cosine: (small > 0.0).then(|| inner / small),
    })
}

/// Cosine between the gradients of two pieces of one batch on average, from norms alone: with
/// pieces of n_i examples, their mean gradients g_i, and g the mean over all B,
///
/// sum_{i != j} n_i n_j g_i'g_j / sum_{i != j} n_i n_j |g_i||g_j|
/// = (B^2 |g|^2 - sum n_i^2 |g_i|^2)/((sum n_i |g_i|)^2 - sum n_i^2 |g_i|^2),
///
/// the mean of the cosines weighted by n_i n_j |g_i||g_j|. `None` with fewer than two pieces that
/// have a gradient, lengths that differ, or a number that is not finite.
pub fn mean_cosine(sizes: &[usize], squared_norms: &[f64], squared_mean: f64) -> Option<f64> {
    if sizes.len() != squared_norms.len() {
        return None;
    }
    let (mut batch, mut own, mut lengths) = (0.0, 0.0, 0.0);
    let mut present = 0;
    for (&n, squared) in sizes.iter().zip(squared_norms) {
        let n = n as f64;
        batch += n;
        own += n * n * squared;
        lengths += n * squared.sqrt();
        present += usize::from(n > 0.0 && *squared > 0.0);
    }
    let cosine = (batch * batch * squared_mean - own) / (lengths * lengths - own);
    // Rounding alone can leave the range.
    (present > 1 && cosine.is_finite()).then(|| cosine.clamp(-1.0, 1.0))
}
