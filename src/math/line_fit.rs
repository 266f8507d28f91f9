//! A straight line through positive values whose errors are in proportion to them: times of updates
//! against the batch, for instance.
//!
//! y = a + c x by least squares on relative errors, sum ((y - a - c x)/y)^2, with a at least 0.
//! Intervals are a ± t s, s the standard error by the scatter about the line and t the quantile of
//! Student with n - 2 degrees of freedom (n - 1 where a is held at 0). So what bends counts as scatter.

use super::statistics::{Interval, student_t_quantile};

/// A line with its intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineFit {
    /// a, at least 0.
    pub intercept: f64,
    /// c.
    pub slope: f64,
    /// Interval of a, its ends at least 0; `None` with two points.
    pub intercept_interval: Option<Interval>,
    /// Interval of c.
    pub slope_interval: Option<Interval>,
    /// Root of the mean square of the relative residuals.
    pub relative_rms: f64,
    /// Points.
    pub n: usize,
}

/// Fits a line to points (x, y), y above 0, with intervals of this confidence.
///
/// `None` of fewer than two different x, for values that are not finite, or y that are not above 0.
///
/// ```
/// # use batchlab::math::line_fit::fit_line;
/// let fit = fit_line(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)], 0.95).unwrap();
/// assert!((fit.intercept - 1.0).abs() < 1e-12 && (fit.slope - 2.0).abs() < 1e-12);
/// ```
pub fn fit_line(points: &[(f64, f64)], confidence: f64) -> Option<LineFit> {
    let sound = |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && y > 0.0;
    if !points.iter().all(sound) {
        return None;
    }
    let n = points.len();
    // Sums of w, w x, w x^2, w y, w x y with w = 1/y^2, about the mean of x.
    let weight = |y: f64| 1.0 / (y * y);
    let total: f64 = points.iter().map(|p| weight(p.1)).sum();
    let centre = points.iter().map(|&(x, y)| weight(y) * x).sum::<f64>() / total;
    let level = points.iter().map(|p| 1.0 / p.1).sum::<f64>() / total;
    let spread: f64 = points
        .iter()
        .map(|&(x, y)| weight(y) * (x - centre) * (x - centre))
        .sum();
    let distinct = points
        .iter()
        .any(|p| p.0 != points.first().map_or(0.0, |q| q.0));
    if !distinct || spread.is_nan() || spread <= 0.0 {
        return None;
    }
    let slope = points.iter().map(|&(x, y)| (x - centre) / y).sum::<f64>() / spread;
    let intercept = level - slope * centre;
    let variance_of = |intercept: f64, slope: f64, freedom: usize| {
        let squares = points.iter().map(|&(x, y)| {
            let r = (y - intercept - slope * x) / y;
            r * r
        });
        let sum: f64 = squares.sum();
        (sum / n as f64, sum / freedom.max(1) as f64)
    };
    let around = |value: f64, error: f64, freedom: usize| {
        let t = student_t_quantile(0.5 + confidence / 2.0, freedom)?;
        Some(Interval {
            low: value - t * error,
            high: value + t * error,
        })
    };
    let freedom = n.saturating_sub(2);
    let (mean_square, variance) = variance_of(intercept, slope, freedom);
    let error = (variance * (1.0 / total + centre * centre / spread)).sqrt();
    let free = around(intercept, error, freedom).map(|i| Interval {
        low: i.low.max(0.0),
        high: i.high.max(0.0),
    });
    if intercept >= 0.0 {
        return Some(LineFit {
            intercept,
            slope,
            intercept_interval: free,
            slope_interval: around(slope, (variance / spread).sqrt(), freedom),
            relative_rms: mean_square.sqrt(),
            n,
        });
    }
    // Through the origin.
    let square: f64 = points.iter().map(|&(x, y)| (x / y) * (x / y)).sum();
    let slope = points.iter().map(|&(x, y)| x / y).sum::<f64>() / square;
    let freedom = n - 1;
    let (mean_square, variance) = variance_of(0.0, slope, freedom);
    Some(LineFit {
        intercept: 0.0,
        slope,
        intercept_interval: free,
        slope_interval: around(slope, (variance / square).sqrt(), freedom),
        relative_rms: mean_square.sqrt(),
        n,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> serde_json::Value {
        serde_json::from_str(include_str!("../../tests/reference/line_fit.json")).unwrap()
    }

    #[test]
    fn lines_and_intervals_are_numpys() {
        let reference = reference();
        for case in reference["cases"].as_array().unwrap() {
            let number = |value: &serde_json::Value| value.as_f64().unwrap();
            let points: Vec<(f64, f64)> = case["points"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| (number(&p[0]), number(&p[1])))
                .collect();
            let fit = fit_line(&points, 0.95).unwrap();
            let close = |found: f64, name: &str| {
                let expected = number(&case[name]);
                let error = (found - expected).abs();
                assert!(
                    error <= 1e-9 * expected.abs().max(1e-6),
                    "{name}: {found} {expected}"
                );
            };
            close(fit.intercept, "intercept");
            close(fit.slope, "slope");
            close(fit.intercept_interval.unwrap().low, "intercept_low");
            close(fit.intercept_interval.unwrap().high, "intercept_high");
            close(fit.slope_interval.unwrap().low, "slope_low");
            close(fit.slope_interval.unwrap().high, "slope_high");
            close(fit.relative_rms, "relative_rms");
        }
    }

    #[test]
    fn two_points_have_a_line_and_no_interval() {
        let fit = fit_line(&[(1.0, 3.0), (3.0, 7.0)], 0.95).unwrap();
        assert!((fit.slope - 2.0).abs() < 1e-12 && (fit.intercept - 1.0).abs() < 1e-12);
        assert_eq!((fit.intercept_interval, fit.slope_interval), (None, None));
    }

    #[test]
    fn an_intercept_below_0_is_0() {
        let fit = fit_line(&[(1.0, 0.5), (2.0, 2.1), (4.0, 6.0)], 0.95).unwrap();
        assert_eq!(fit.intercept, 0.0);
        assert!(fit.intercept_interval.unwrap().low == 0.0 && fit.slope > 0.0);
    }

    #[test]
    fn what_is_no_line_is_none() {
        for points in [
            &[][..],
            &[(1.0, 2.0)],
            &[(1.0, 2.0), (1.0, 3.0)],
            &[(1.0, 2.0), (2.0, 0.0)],
            &[(1.0, 2.0), (2.0, f64::NAN)],
        ] {
            assert_eq!(fit_line(points, 0.95), None);
        }
    }
}
