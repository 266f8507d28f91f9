//! Means, variances and intervals of small samples.
//!
//! Samples here are results over seeds, often three to five, so intervals come from Student's t
//! and a single value has no interval at all (`None`, never a width of 0).

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean and variance in one pass, by the recurrence of Welford (1962): no cancellation, unlike
/// `E[x^2] - E[x]^2`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    n: usize,
    mean: f64,
    sum_of_squares: f64,
}

impl Moments {
    /// The moments of all values of an iterator.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        for value in values {
            moments.push(value);
        }
        moments
    }

    /// Takes in one value.
    pub fn push(&mut self, value: f64) {
        self.n += 1;
        let delta = value - self.mean;
        self.mean += delta / self.n as f64;
        self.sum_of_squares += delta * (value - self.mean);
    }

    /// Number of values.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Arithmetic mean; `None` of no values.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then_some(self.mean)
    }

    /// Unbiased variance, sum (x - mean)^2 / (n - 1); `None` of fewer than two values.
    pub fn variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.sum_of_squares / (self.n - 1) as f64)
    }

    /// Square root of the unbiased variance; `None` of fewer than two values.
    pub fn standard_deviation(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }
}

/// An interval that holds the quantity with the stated confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the value lies in the closed interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// A mean over a sample, with its confidence interval where the sample allows one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Unbiased standard deviation of the values; `None` if n = 1.
    pub standard_deviation: Option<f64>,
    /// Half the width of Student's t interval, t(n - 1) s / sqrt(n); `None` if n = 1.
    pub half_width: Option<f64>,
    /// Number of values.
    pub n: usize,
}

impl Estimate {
    /// The estimate at 95 % confidence; `None` of no values, or if a value is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        Self::with_confidence(values, 0.95)
    }

    /// The two-sided Student t estimate at `confidence`, which lies in (0, 1).
    ///
    /// `None` of no values, if a value is not finite, or if `confidence` is out of range.
    pub fn with_confidence(values: &[f64], confidence: f64) -> Option<Self> {
        if values.iter().any(|v| !v.is_finite()) || !(confidence > 0.0 && confidence < 1.0) {
            return None;
        }
        let moments = Moments::of(values.iter().copied());
        let standard_deviation = moments.standard_deviation();
        let half_width = standard_deviation.and_then(|s| {
            let t = student_t_quantile(0.5 + confidence / 2.0, moments.n() - 1)?;
            Some(t * s / (moments.n() as f64).sqrt())
        });
        Some(Self {
            mean: moments.mean()?,
            standard_deviation,
            half_width,
            n: moments.n(),
        })
    }

    /// The interval mean ± half width; `None` if n = 1.
    pub fn interval(&self) -> Option<Interval> {
        self.half_width.map(|h| Interval {
            low: self.mean - h,
            high: self.mean + h,
        })
    }
}

/// Quantile of Student's t distribution with `freedom` degrees of freedom, at `probability` in
/// (0, 1). `None` outside of that, or for 0 degrees of freedom.
pub fn student_t_quantile(probability: f64, freedom: usize) -> Option<f64> {
    if freedom == 0 || !(probability > 0.0 && probability < 1.0) {
        return None;
    }
    let distribution = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(distribution.inverse_cdf(probability))
}

/// Differences a - b of values that share a key (a seed), in the order of `a`.
///
/// A key that only one side has is left out: it has no partner.
pub fn paired_differences<K: PartialEq>(a: &[(K, f64)], b: &[(K, f64)]) -> Vec<f64> {
    a.iter()
        .filter_map(|(key, x)| b.iter().find(|(other, _)| other == key).map(|(_, y)| x - y))
        .collect()
}

/// Quantile of a sample by linear interpolation between order statistics (type 7 of Hyndman and
/// Fan 1996, numpy's default). `None` of no values, or if `probability` is outside [0, 1].
pub fn quantile(values: &[f64], probability: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&probability) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = probability * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    let share = position - below as f64;
    Some(sorted[below] + share * (sorted[above] - sorted[below]))
}

/// Percentile bootstrap interval (Efron 1979) of a statistic of a sample.
///
/// Draws `resamples` samples of the same size with replacement, where `below(n)` draws from 0..n
/// uniformly (`|n| stream.below(n)` of a [`Stream`](crate::rng::Stream)), and returns the central
/// `confidence` part of the statistic's values. Resamples on which the statistic is undefined are
/// left out. `None` of fewer than two items, if `confidence` is outside (0, 1), or if the statistic
/// is undefined on more than half of the resamples.
pub fn bootstrap_interval<T: Clone>(
    items: &[T],
    statistic: impl Fn(&[T]) -> Option<f64>,
    resamples: usize,
    confidence: f64,
    mut below: impl FnMut(u64) -> u64,
) -> Option<Interval> {
    if items.len() < 2 || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let mut resample = items.to_vec();
    let mut values = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        for slot in &mut resample {
            slot.clone_from(&items[below(items.len() as u64) as usize]);
        }
        values.extend(statistic(&resample).filter(|v| v.is_finite()));
    }
    if values.len() * 2 <= resamples {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    Some(Interval {
        low: quantile(&values, tail)?,
        high: quantile(&values, 1.0 - tail)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn reference() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/reference/intervals.json")).unwrap()
    }

    fn floats(value: &serde_json::Value) -> Vec<f64> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_f64().unwrap())
            .collect()
    }

    fn close(ours: f64, theirs: f64, tolerance: f64) {
        assert!(
            (ours - theirs).abs() <= tolerance * theirs.abs().max(1e-300),
            "ours {ours:e}, theirs {theirs:e}"
        );
    }

    #[test]
    fn t_quantiles_agree_with_scipy() {
        for case in reference()["t_quantiles"].as_array().unwrap() {
            let freedom = case["freedom"].as_u64().unwrap() as usize;
            let ours = student_t_quantile(case["probability"].as_f64().unwrap(), freedom).unwrap();
            close(ours, case["value"].as_f64().unwrap(), 1e-9);
        }
    }

    #[test]
    fn intervals_of_means_agree_with_scipy() {
        for case in reference()["intervals"].as_array().unwrap() {
            let values = floats(&case["values"]);
            let confidence = case["confidence"].as_f64().unwrap();
            let estimate = Estimate::with_confidence(&values, confidence).unwrap();
            close(estimate.mean, case["mean"].as_f64().unwrap(), 1e-12);
            close(
                estimate.standard_deviation.unwrap(),
                case["sd"].as_f64().unwrap(),
                1e-7,
            );
            close(
                estimate.half_width.unwrap(),
                case["half_width"].as_f64().unwrap(),
                1e-7,
            );
            assert_eq!(estimate.n, values.len());
        }
    }

    #[test]
    fn quantiles_agree_with_numpy() {
        for case in reference()["quantiles"].as_array().unwrap() {
            let ours = quantile(
                &floats(&case["values"]),
                case["probability"].as_f64().unwrap(),
            );
            close(ours.unwrap(), case["value"].as_f64().unwrap(), 1e-12);
        }
    }

    #[test]
    fn one_value_has_a_mean_and_no_interval() {
        let estimate = Estimate::of(&[0.5]).unwrap();
        assert_eq!(estimate.mean, 0.5);
        assert_eq!(estimate.n, 1);
        assert_eq!(
            (estimate.standard_deviation, estimate.half_width),
            (None, None)
        );
        assert_eq!(estimate.interval(), None);
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn the_variance_survives_a_large_mean() {
        // E[x^2] - E[x]^2 gives 0 or less here.
        let moments = Moments::of([1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
        assert_eq!(moments.variance(), Some(30.0));
    }

    #[test]
    fn a_seed_without_a_partner_makes_no_difference() {
        let a = [(0, 3.0), (1, 5.0), (2, 9.0)];
        let b = [(2, 1.0), (0, 1.0), (4, 7.0)];
        assert_eq!(paired_differences(&a, &b), [2.0, 8.0]);
    }

    #[test]
    fn the_bootstrap_interval_covers_the_mean_about_as_often_as_it_says() {
        let mut draws = Stream::new(1, "bootstrap-test", 0);
        let trials = 400;
        let mut covered = 0;
        for trial in 0..trials {
            let sample: Vec<f64> = (0..50).map(|_| draws.normal()).collect();
            let mut stream = Stream::new(2, "bootstrap-test", trial);
            let mean = |s: &[f64]| Moments::of(s.iter().copied()).mean();
            let interval =
                bootstrap_interval(&sample, mean, 400, 0.9, |n| stream.below(n)).unwrap();
            covered += u32::from(interval.contains(0.0));
        }
        // Binomial: 360 expected, standard deviation 6; the percentile interval runs a little short.
        assert!((336..=378).contains(&covered), "{covered} of {trials}");
    }

    #[test]
    fn the_bootstrap_is_a_function_of_its_stream() {
        let sample = [1.0, 2.0, 4.0, 8.0];
        let run = |seed| {
            let mut stream = Stream::new(seed, "bootstrap-test", 0);
            let median = |s: &[f64]| quantile(s, 0.5);
            bootstrap_interval(&sample, median, 99, 0.95, |n| stream.below(n))
        };
        assert_eq!(run(3), run(3));
        assert_eq!(
            bootstrap_interval(&[1.0], |_| Some(1.0), 9, 0.95, |_| 0),
            None
        );
    }
}
