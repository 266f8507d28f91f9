//! What figures and page of the critical batch size say alike: numbers, names, legends.

use crate::analysis::critical_batch::{BatchPoint, Case, CriticalBatch, Fit, Mean, Published};
use crate::analysis::numbers::{count, significant};
use crate::math::steps_fit::{Bound, FitError};

use super::critical_chart::{PUBLISHED, measured, single};
use super::figure::Sample;

pub(super) const GEOMETRIC: &str = "geometric mean over seeds";

/// A number of examples or updates: whole from 100 on, with three digits from 10,000 on, and with at
/// most three below.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "unbounded".to_owned();
    }
    if !(100.0..1e15).contains(&value) {
        return trimmed(&significant(value, 3));
    }
    let unit = if value < 10_000.0 {
        1.0
    } else {
        10f64.powi(value.log10().floor() as i32 - 2)
    };
    count(((value / unit).round() * unit) as u64)
}

/// A learning rate with at most three digits.
pub(super) fn rate(value: f64) -> String {
    trimmed(&significant(value, 3))
}

/// A number without the zeros at its end.
pub(super) fn trimmed(text: &str) -> String {
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

/// The fit of a case, if it has one.
pub(super) fn fit_of(case: &Case) -> Option<&Fit> {
    case.fit.as_ref().ok()
}

/// The seeds of the batch with most of them.
pub(super) fn seeds(critical: &CriticalBatch) -> usize {
    let batches = critical.cases.iter().flat_map(|c| &c.batches);
    batches.map(|b| b.seeds.len()).max().unwrap_or(0)
}

pub(super) fn all_batches(cases: &[&Case]) -> Vec<u64> {
    let mut batches: Vec<u64> = cases
        .iter()
        .flat_map(|c| &c.batches)
        .map(|b| b.batch)
        .collect();
    batches.sort_unstable();
    batches.dedup();
    batches
}

pub(super) fn most_moments(critical: &CriticalBatch) -> usize {
    let moments = critical.cases.iter().map(|c| c.branched.len());
    moments.max().unwrap_or(0)
}

pub(super) fn subtitle(critical: &CriticalBatch, how: &str) -> String {
    match &critical.target {
        Some(target) => format!("{}: {target}; {how}", critical.name),
        None => format!("{}: {how}", critical.name),
    }
}

/// What points and bars are.
pub(super) fn over_seeds(critical: &CriticalBatch) -> String {
    match seeds(critical) {
        0 | 1 => "one seed, so no interval".to_owned(),
        n => format!("geometric mean and 95 % interval over {n} seeds"),
    }
}

pub(super) fn to_target(critical: &CriticalBatch) -> String {
    match &critical.target {
        Some(target) => format!(" to the target ({target})"),
        None => " to the target".to_owned(),
    }
}

/// What the points of a figure of measured batches are.
pub(super) fn points_words(critical: &CriticalBatch) -> String {
    match seeds(critical) {
        0 | 1 => "Points are of one seed, so they have no interval.".to_owned(),
        n => format!(
            "Points are geometric means over {n} seeds with 95 % intervals (Student's t in the logarithm); pale points are \
             single seeds."
        ),
    }
}

pub(super) fn seeds_legend(critical: &CriticalBatch, legend: &mut Vec<(Sample, String)>) {
    if seeds(critical) > 1 {
        legend.push((
            Sample::Point(measured()),
            format!("{GEOMETRIC}, 95 % interval"),
        ));
        legend.push((Sample::Point(single()), "one seed".to_owned()));
    } else {
        legend.push((Sample::Point(measured()), "measured, one seed".to_owned()));
    }
}

/// The published critical batch size of a case.
pub(super) fn published(case: &Case, quantity: &str) -> Option<Published> {
    let mut rows = case.estimates.iter();
    rows.find_map(|r| r.published.filter(|_| r.quantity == quantity))
}

pub(super) fn published_legend(
    cases: &[&Case],
    quantity: &str,
    name: &str,
) -> Option<(Sample, String)> {
    let found: Vec<Published> = cases
        .iter()
        .filter_map(|c| published(c, quantity))
        .collect();
    let first = found.first()?;
    let label = if found.iter().all(|p| p.source == first.source) {
        format!("published {name}: {}", first.source)
    } else {
        format!("published {name}")
    };
    Some((Sample::Reference(PUBLISHED), label))
}

/// The means of a case against the batch.
pub(super) fn means(case: &Case) -> Vec<(f64, &Mean)> {
    let of = |b: &'_ BatchPoint| b.batch as f64;
    case.batches
        .iter()
        .filter_map(|b| Some((of(b), b.steps.as_ref()?)))
        .collect()
}

/// A word on a fit that does not bracket B_crit, or on one that is not there.
pub(super) fn fit_trouble(case: &Case) -> Option<&'static str> {
    match &case.fit {
        Ok(fit) => match fit.fit.bound? {
            Bound::Above => Some("B_crit: above these batches"),
            Bound::Below => Some("B_crit: below these batches"),
        },
        Err(FitError::TooFewBatches { .. }) => Some("no fit: too few batches"),
        Err(_) => Some("no fit"),
    }
}

/// The fit, where it tells B_crit.
pub(super) fn bracketed(case: &Case) -> Option<&Fit> {
    fit_of(case).filter(|f| f.fit.bound.is_none())
}

pub(super) fn b_crit_name(fit: &Fit) -> String {
    format!("B_crit {}", number(fit.fit.b_crit))
}

/// Where seeds did not reach the target.
pub(super) fn missed(case: &Case) -> Vec<(f64, usize, usize)> {
    let of = |b: &BatchPoint| {
        let missed = b.seeds.iter().filter(|s| s.steps.is_none()).count();
        (b.batch as f64, missed, b.seeds.len())
    };
    case.batches.iter().map(of).collect()
}

/// A quantity as it is written.
pub(super) fn quantity_name(quantity: &str) -> &str {
    match quantity {
        "b_crit" => "B_crit",
        "b_simple" => "B_simple",
        "b_noise" => "B_noise",
        "efficient_batch" => "0.2 B_crit",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        assert_eq!(number(0.876_54), "0.877");
        assert_eq!(number(64.0), "64");
        assert_eq!(number(212.4), "212");
        assert_eq!(number(1234.4), "1234");
        assert_eq!(number(39_049.0), "39,000");
        assert_eq!(number(1_234_567.0), "1,230,000");
        assert_eq!(number(f64::INFINITY), "unbounded");
        assert_eq!(rate(0.05), "0.05");
        assert_eq!(rate(0.012_345), "0.0123");
    }
}
