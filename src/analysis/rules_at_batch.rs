//! Rules beside each other at one global batch.
//!
//! A study that sweeps rules at one starting batch asks which of them is best there, not how far
//! the batch can grow. Each rule is compared with the first rule of the plan by the differences of
//! trials that share a seed.

use std::fmt::Write as _;

use super::answer::{Comparison, compare, within_a_percent};
use super::generalization_gap::{GapAnalysis, HeadlineMetric, Measure, Outcomes, Point};
use super::numbers::{count, plural};
use crate::math::statistics::Estimate;

/// One rule at one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuleRow {
    /// Index of the rule.
    pub rule: usize,
    /// The global batch; of runs that change it, the one at the start.
    pub batch: u64,
    /// How its trials ended.
    pub outcomes: Outcomes,
    /// Mean of the headline metric; `None` if no trial finished.
    pub estimate: Option<Estimate>,
    /// It against the baseline; `None` for the baseline itself and at another batch.
    pub comparison: Option<Comparison>,
    /// Fewest and most updates of a finished trial; where these are within 1 %, the mean twice.
    pub steps: Option<(f64, f64)>,
    /// Fewest and most examples of a finished trial; where these are within 1 %, the mean twice.
    pub examples: Option<(f64, f64)>,
}

impl RuleRow {
    /// The difference to the baseline with its interval, without a unit, and its number of pairs
    /// where that is not n; a dash where no seed is shared.
    pub fn difference(&self, metric: HeadlineMetric) -> String {
        let Some(change) = self.comparison.and_then(|c| c.change) else {
            return "\u{2013}".to_owned();
        };
        let mut text = metric.change(&change).replace(" points", "");
        if self.estimate.is_some_and(|e| e.n != change.n) {
            let _ = write!(text, " (n = {})", change.n);
        }
        text
    }
}

/// The rules at the batch where most of them have a finished trial.
#[derive(Debug, Clone, PartialEq)]
pub struct RulesAtBatch {
    /// The global batch; of runs that change it, the one at the start.
    pub batch: u64,
    /// The first rule of the plan that has a finished trial at the batch.
    pub baseline: usize,
    /// Every rule with a trial at the batch, in plan order.
    pub rows: Vec<RuleRow>,
    /// The rules that have only another batch, in plan order.
    pub elsewhere: Vec<RuleRow>,
    /// How to read the differences, and how many there are.
    pub preface: String,
    /// A sentence, where the rules saw different numbers of examples.
    pub budgets: Option<String>,
}

impl RulesAtBatch {
    /// The comparison; `None` where every rule is compared across batches instead, or where no
    /// batch has two rules with a finished trial.
    pub(super) fn of(analysis: &GapAnalysis, metric: HeadlineMetric) -> Option<Self> {
        if !(0..analysis.rules.len()).any(|r| analysis.points_of(r).count() == 1) {
            return None;
        }
        let measured = |p: &&Point| p.estimate(metric.measure()).is_some();
        let at = |batch: u64| analysis.points.iter().filter(move |p| p.batch == batch);
        // Of equals `max_by_key` takes the last, here the smallest batch.
        let batches = analysis.batches.iter().rev().copied();
        let batch = batches.max_by_key(|&b| at(b).filter(measured).count())?;
        let finished: Vec<&Point> = at(batch).filter(measured).collect();
        let [baseline, _, ..] = finished.as_slice() else {
            return None;
        };
        let span = |point: &Point, measure| {
            let values = analysis.values(point, measure);
            let fold = |f: fn(f64, f64) -> f64| values.iter().map(|v| v.1).reduce(f);
            let (low, high) = fold(f64::min).zip(fold(f64::max))?;
            let mean = point.estimate(measure)?.mean;
            Some(if within_a_percent(low, high) {
                (mean, mean)
            } else {
                (low, high)
            })
        };
        let row = |point: &Point| RuleRow {
            rule: point.rule,
            batch: point.batch,
            outcomes: point.outcomes,
            estimate: point.estimate(metric.measure()).copied(),
            comparison: (point.batch == batch && point.rule != baseline.rule)
                .then(|| compare(analysis, point, baseline, metric)),
            steps: span(point, Measure::Steps),
            examples: span(point, Measure::Examples),
        };
        let rows: Vec<RuleRow> = at(batch).map(row).collect();
        let other = |p: &&Point| p.batch != batch && analysis.points_of(p.rule).count() == 1;
        Some(Self {
            batch,
            baseline: baseline.rule,
            elsewhere: analysis.points.iter().filter(other).map(row).collect(),
            preface: preface(analysis, baseline.rule, &rows),
            budgets: budgets(analysis, &finished),
            rows,
        })
    }
}

fn preface(analysis: &GapAnalysis, baseline: usize, rows: &[RuleRow]) -> String {
    let label = &analysis.rules[baseline].label;
    let first = if baseline == 0 {
        format!("the first rule of the plan, \u{201C}{label}\u{201D}")
    } else {
        format!("\u{201C}{label}\u{201D}, the first rule of the plan that finished at this batch")
    };
    let made = rows
        .iter()
        .filter_map(|r| r.comparison?.change?.half_width)
        .count();
    let chance = if made == 0 {
        "No rule shares two finished seeds with it, so there is no interval and no rule can be told \
         from another."
            .to_owned()
    } else {
        format!(
            "± is half of the 95 % interval. {} made; where a rule makes no difference at all, one \
             interval in twenty still leaves out 0 by chance.",
            plural(made, "comparison was", "comparisons were")
        )
    };
    format!("Differences are to {first}, paired by seed. {chance}")
}

/// Says so where the rules did not see equally many examples.
fn budgets(analysis: &GapAnalysis, points: &[&Point]) -> Option<String> {
    let means: Vec<(f64, usize)> = points
        .iter()
        .filter_map(|p| Some((p.estimate(Measure::Examples)?.mean, p.rule)))
        .collect();
    let by_examples = |a: &&(f64, usize), b: &&(f64, usize)| a.0.total_cmp(&b.0);
    // Of equals `min_by` takes the first and `max_by` the last.
    let fewest = means.iter().min_by(by_examples)?;
    let most = means.iter().rev().max_by(by_examples)?;
    if within_a_percent(fewest.0, most.0) {
        return None;
    }
    let of = |(examples, rule): &(f64, usize)| {
        format!(
            "{} with \u{201C}{}\u{201D}",
            count(examples.round() as u64),
            analysis.rules[*rule].label
        )
    };
    Some(format!(
        "The rules did not see equally many examples: from {} to {}. A difference may come from that.",
        of(fewest),
        of(most)
    ))
}
