//! The answer of a study in words, every number of it from the tables.
//!
//! Batches are compared by the differences of trials that share a seed. A batch *holds* if the
//! 95 % interval of the mean difference to the smallest batch does not lie wholly on the worse
//! side; a batch at which a seed diverged does not hold.

use std::fmt::Write as _;

use super::course::PointCourses;
use super::generalization_gap::{
    GapAnalysis, HeadlineMetric, Measure, Outcomes, Point, split_name,
};
use super::numbers::{change, count, decimals, fixed, list, plural, significant, with_interval};
use super::rules_at_batch::RulesAtBatch;
use crate::config::{Metric, Split};
use crate::math::statistics::{Estimate, paired_differences};

/// What a comparison of one batch with the smallest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval of the difference lies on the better side of 0.
    Better,
    /// The interval contains 0.
    Indistinguishable,
    /// The interval of the difference lies on the worse side of 0.
    Worse,
    /// At least one seed diverged.
    Diverged,
    /// Fewer than two pairs of seeds: no interval, no verdict.
    Unresolved,
}

/// One point compared with another of the smallest batch, seed by seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Global batch.
    pub batch: u64,
    /// Mean of (value here - value at the smallest batch) over the seeds that both have.
    pub change: Option<Estimate>,
    /// What it says.
    pub verdict: Verdict,
}

/// What one rule did as the batch grew.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleAnswer {
    /// Index of the rule.
    pub rule: usize,
    /// The smallest batch with a finished trial.
    pub reference: u64,
    /// Every larger batch.
    pub comparisons: Vec<Comparison>,
    /// The largest batch such that it and all below hold; `None` if not even the first does.
    pub holds_to: Option<u64>,
    /// The first batch that is worse, or at which a seed diverged.
    pub falls_at: Option<Comparison>,
    /// The largest batch with a finished trial.
    pub largest: u64,
    /// Change of the headline metric from the smallest to the largest batch.
    pub change: Option<Estimate>,
    /// The same for the training split, where the headline is on another.
    pub train_change: Option<Estimate>,
    /// The same for the gap.
    pub gap_change: Option<Estimate>,
}

/// The point with the best mean among those where no seed diverged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BestPoint {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// Mean of the headline metric.
    pub estimate: Estimate,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The answer in a sentence or two.
    pub short: String,
    /// What follows from it: what the change is made of, what it saves, the best point.
    pub sentences: Vec<String>,
    /// How sure this is.
    pub sureness: Vec<String>,
    /// Rule by rule.
    pub rules: Vec<RuleAnswer>,
    /// The rules at one batch, where not every rule is compared across batches.
    pub at_one_batch: Option<RulesAtBatch>,
    /// The best point.
    pub best: Option<BestPoint>,
}

impl HeadlineMetric {
    /// A mean with its interval and unit: "97.83 ± 0.41 %".
    pub fn value(self, estimate: &Estimate) -> String {
        match self.metric {
            Metric::Accuracy => format!("{} %", with_interval(estimate, 100.0, 2)),
            Metric::Loss => with_interval(estimate, 1.0, decimals(estimate)),
        }
    }

    /// A difference with its interval and unit: "-0.12 ± 0.35 points".
    pub fn change(self, estimate: &Estimate) -> String {
        match self.metric {
            Metric::Accuracy => format!("{} points", change(estimate, 100.0, 2)),
            Metric::Loss => change(estimate, 1.0, decimals(estimate)),
        }
    }

    fn worse_side(self, estimate: &Estimate) -> Option<f64> {
        let interval = estimate.interval()?;
        Some(if self.larger_is_better() {
            -interval.low
        } else {
            interval.high
        })
    }

    fn verdict(self, change: Option<&Estimate>) -> Verdict {
        let Some(interval) = change.and_then(Estimate::interval) else {
            return Verdict::Unresolved;
        };
        let (worse, better) = if self.larger_is_better() {
            (interval.high < 0.0, interval.low > 0.0)
        } else {
            (interval.low > 0.0, interval.high < 0.0)
        };
        match (worse, better) {
            (true, _) => Verdict::Worse,
            (_, true) => Verdict::Better,
            _ => Verdict::Indistinguishable,
        }
    }

    fn prefers(self, a: f64, b: f64) -> bool {
        if self.larger_is_better() {
            a > b
        } else {
            a < b
        }
    }
}

impl Answer {
    pub(crate) fn of(analysis: &GapAnalysis) -> Self {
        let Some(metric) = analysis.metric else {
            return nothing_measured(analysis);
        };
        let rules = (0..analysis.rules.len())
            .filter_map(|r| rule_answer(analysis, r, metric))
            .collect();
        let best = best_point(analysis.points.iter(), metric);
        let mut answer = Self {
            rules,
            best,
            at_one_batch: RulesAtBatch::of(analysis, metric),
            ..Self::default()
        };
        let batches: Vec<u64> = analysis
            .batches
            .iter()
            .copied()
            .filter(|&b| at_batch(analysis, b).any(|p| p.estimate(metric.measure()).is_some()))
            .collect();
        match batches.as_slice() {
            [] => return nothing_measured(analysis),
            [only] => one_batch(analysis, metric, *only, &mut answer),
            [smallest, .., largest] => {
                many_batches(analysis, metric, (*smallest, *largest), &mut answer);
            }
        }
        if analysis.has_target {
            answer.sentences.extend(target_words(analysis));
        }
        if let Some(best) = answer.best.filter(|_| batches.len() > 1) {
            answer.sentences.push(format!(
                "The best mean {} is {} (n = {}), at batch {}{}.",
                metric.name(),
                metric.value(&best.estimate),
                best.estimate.n,
                best.batch,
                of_rule(analysis, best.rule, ", with \u{201C}", "\u{201D}"),
            ));
        }
        answer.sureness = sureness(analysis, metric, &answer);
        answer
    }
}

fn at_batch(analysis: &GapAnalysis, batch: u64) -> impl Iterator<Item = &Point> {
    analysis.points.iter().filter(move |p| p.batch == batch)
}

/// The label of the rule between `before` and `after`; nothing where there is only one rule.
pub(super) fn of_rule(analysis: &GapAnalysis, rule: usize, before: &str, after: &str) -> String {
    if analysis.rules.len() < 2 {
        return String::new();
    }
    format!("{before}{}{after}", analysis.rules[rule].label)
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

fn nothing_measured(analysis: &GapAnalysis) -> Answer {
    let outcomes = analysis.outcomes();
    let short = if outcomes.finished() == 0 {
        let yet = if outcomes.pending() > 0 {
            "has finished yet"
        } else {
            "came to its end"
        };
        format!(
            "No trial {yet}, so there is no answer: {}.",
            outcome_words(&outcomes)
        )
    } else {
        "The trials finished, but none was evaluated on any split, so there is no answer."
            .to_owned()
    };
    Answer {
        short,
        ..Answer::default()
    }
}

/// "4 of 9 trials finished, 2 diverged, 1 failed, 2 not run".
pub(crate) fn outcome_words(outcomes: &Outcomes) -> String {
    let mut words = vec![format!(
        "{} of {} finished",
        outcomes.finished(),
        plural(outcomes.planned, "trial", "trials")
    )];
    for (n, word) in [
        (outcomes.censored, "of these censored (target not reached)"),
        (outcomes.diverged, "diverged"),
        (outcomes.failed, "failed"),
        (outcomes.pending(), "not run"),
    ] {
        if n > 0 {
            words.push(format!("{n} {word}"));
        }
    }
    words.join(", ")
}

fn best_point<'a>(
    points: impl Iterator<Item = &'a Point>,
    metric: HeadlineMetric,
) -> Option<BestPoint> {
    let mut best: Option<BestPoint> = None;
    for point in points.filter(|p| p.outcomes.diverged == 0) {
        if let Some(&estimate) = point.estimate(metric.measure())
            && best.is_none_or(|b| metric.prefers(estimate.mean, b.estimate.mean))
        {
            best = Some(BestPoint {
                rule: point.rule,
                batch: point.batch,
                estimate,
            });
        }
    }
    best
}

/// Mean of the differences (point - reference) of a measure over the seeds that both have.
fn paired(
    analysis: &GapAnalysis,
    point: &Point,
    reference: &Point,
    measure: Measure,
) -> Option<Estimate> {
    let values = |p| analysis.values(p, measure);
    Estimate::of(&paired_differences(&values(point), &values(reference)))
}

/// One point against another, seed by seed.
pub(super) fn compare(
    analysis: &GapAnalysis,
    point: &Point,
    reference: &Point,
    metric: HeadlineMetric,
) -> Comparison {
    let change = paired(analysis, point, reference, metric.measure());
    let verdict = if point.outcomes.diverged > 0 {
        Verdict::Diverged
    } else {
        metric.verdict(change.as_ref())
    };
    Comparison {
        batch: point.batch,
        change,
        verdict,
    }
}

/// The largest batch up to which every comparison holds, and the first that falls.
fn extent(comparisons: &[Comparison]) -> (Option<u64>, Option<Comparison>) {
    let holds = comparisons
        .iter()
        .take_while(|c| matches!(c.verdict, Verdict::Better | Verdict::Indistinguishable))
        .last()
        .map(|c| c.batch);
    let falls = comparisons
        .iter()
        .find(|c| matches!(c.verdict, Verdict::Worse | Verdict::Diverged))
        .copied();
    (holds, falls)
}

fn rule_answer(analysis: &GapAnalysis, rule: usize, metric: HeadlineMetric) -> Option<RuleAnswer> {
    let measured: Vec<&Point> = analysis
        .points_of(rule)
        .filter(|p| p.estimate(metric.measure()).is_some())
        .collect();
    let (reference, largest) = (*measured.first()?, *measured.last()?);
    let comparisons: Vec<Comparison> = analysis
        .points_of(rule)
        .filter(|p| p.batch > reference.batch)
        .map(|p| compare(analysis, p, reference, metric))
        .collect();
    let (holds_to, falls_at) = extent(&comparisons);
    let change = |measure| {
        (largest.batch > reference.batch)
            .then(|| paired(analysis, largest, reference, measure))
            .flatten()
    };
    let other_split = metric.split != Split::Train;
    let (train, gap) = match metric.metric {
        Metric::Accuracy => (Measure::TrainAccuracy, Measure::AccuracyGap),
        Metric::Loss => (Measure::TrainLoss, Measure::LossGap),
    };
    Some(RuleAnswer {
        rule,
        reference: reference.batch,
        holds_to,
        falls_at,
        largest: largest.batch,
        change: change(metric.measure()),
        train_change: other_split.then(|| change(train)).flatten(),
        gap_change: other_split.then(|| change(gap)).flatten(),
        comparisons,
    })
}

fn one_batch(analysis: &GapAnalysis, metric: HeadlineMetric, batch: u64, answer: &mut Answer) {
    let planned_more = analysis.batches.len() > 1;
    answer.short = if planned_more {
        format!(
            "Only trials at the global batch {batch} have finished, so nothing can be said about \
             its effect yet."
        )
    } else if analysis.courses.iter().any(PointCourses::moves_batch) {
        format!(
            "All trials start at the global batch {batch}, and some change it: this study compares \
             rules."
        )
    } else if analysis.rules.len() > 1 {
        format!("All trials use the global batch {batch}: this study compares rules.")
    } else {
        format!(
            "All trials use the global batch {batch}, so this study says nothing about its effect."
        )
    };
    if let Some(best) = answer.best {
        let _ = write!(
            answer.short,
            " The {}{} is {} (n = {}).",
            if analysis.rules.len() > 1 {
                "best mean "
            } else {
                "mean "
            },
            metric.name(),
            metric.value(&best.estimate),
            best.estimate.n
        );
        if analysis.rules.len() > 1 {
            let _ = write!(
                answer.short,
                " It belongs to \u{201C}{}\u{201D}.",
                analysis.rules[best.rule].label
            );
            answer
                .sentences
                .extend(runner_up(analysis, metric, batch, best.rule));
        }
    }
}

/// The best rule at a batch against the next best.
fn runner_up(
    analysis: &GapAnalysis,
    metric: HeadlineMetric,
    batch: u64,
    best: usize,
) -> Option<String> {
    let next = best_point(at_batch(analysis, batch).filter(|p| p.rule != best), metric)?;
    let (first, second) = (
        analysis.point(best, batch)?,
        analysis.point(next.rule, batch)?,
    );
    let change = paired(analysis, first, second, metric.measure())?;
    let verdict = match metric.verdict(Some(&change)) {
        Verdict::Better => "more than seeds alone would make",
        Verdict::Unresolved => "without an interval",
        _ => "no more than seeds alone could make",
    };
    Some(format!(
        "Against the next, \u{201C}{}\u{201D}, the difference is {} (paired by seed, n = {}), {verdict}.",
        analysis.rules[next.rule].label,
        metric.change(&change),
        change.n
    ))
}

/// How many trials reached the target, and what it took at the smallest and the largest batch
/// where one did.
fn target_words(analysis: &GapAnalysis) -> Option<String> {
    let trials = || analysis.trials.iter().map(|t| t.row.target_reached);
    let mut text = format!(
        "The target was reached by {} of {}",
        trials().filter(|t| *t == Some(true)).count(),
        plural(trials().flatten().count(), "trial", "trials")
    );
    let fewest = |batch: u64| {
        at_batch(analysis, batch)
            .filter_map(|p| Some((p, p.estimate(Measure::StepsToTarget)?.mean)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let mut batches = analysis.batches.iter().filter_map(|&b| fewest(b));
    let first = batches.next();
    for (point, steps) in first.into_iter().chain(batches.next_back()) {
        let examples = point.estimate(Measure::ExamplesToTarget)?.mean;
        let _ = write!(
            text,
            "; at batch {} after {} updates and {} examples{}",
            point.batch,
            count(steps.round() as u64),
            count(examples.round() as u64),
            of_rule(analysis, point.rule, " (\u{201C}", "\u{201D})")
        );
    }
    text.push('.');
    Some(text)
}

fn many_batches(
    analysis: &GapAnalysis,
    metric: HeadlineMetric,
    (smallest, largest): (u64, u64),
    answer: &mut Answer,
) {
    let name = metric.name();
    // At each batch the best rule stands for it; the reference is the best at the smallest.
    let best_at = |batch| {
        best_point(at_batch(analysis, batch), metric)
            .or_else(|| {
                let mut with_losses = at_batch(analysis, batch)
                    .filter_map(|p| Some((p, *p.estimate(metric.measure())?)));
                let first = with_losses.next()?;
                let best = with_losses.fold(first, |a, b| {
                    if metric.prefers(b.1.mean, a.1.mean) {
                        b
                    } else {
                        a
                    }
                });
                Some(BestPoint {
                    rule: best.0.rule,
                    batch,
                    estimate: best.1,
                })
            })
            .and_then(|b| analysis.point(b.rule, batch))
    };
    let Some(reference) = best_at(smallest) else {
        return;
    };
    // A batch where nothing finished stays in the list, so that no claim reaches beyond it.
    let larger = analysis.batches.iter().copied().filter(|&b| b > smallest);
    let chosen: Vec<&Point> = larger
        .filter_map(|b| best_at(b).or_else(|| at_batch(analysis, b).next()))
        .collect();
    let comparisons: Vec<Comparison> = chosen
        .iter()
        .map(|p| compare(analysis, p, reference, metric))
        .collect();
    let at = |batch: u64| comparisons.iter().position(|c| c.batch == batch);

    if comparisons
        .iter()
        .all(|c| c.change.is_none_or(|e| e.half_width.is_none()))
    {
        let seeds = if analysis.study.seeds.len() == 1 {
            "With one seed"
        } else {
            "With one finished trial a point"
        };
        answer.short = format!(
            "{seeds} there is no interval, so no batch can be told from another. As measured: {name} {} at batch {smallest}",
            reference
                .estimate(metric.measure())
                .map_or_else(String::new, |e| metric.value(e)),
        );
        if let Some(i) = at(largest) {
            let end = chosen[i];
            let _ = write!(
                answer.short,
                "{}, {} at {largest}{}",
                of_rule(analysis, reference.rule, " (", ")"),
                end.estimate(metric.measure())
                    .map_or_else(String::new, |e| metric.value(e)),
                of_rule(analysis, end.rule, " (", ")"),
            );
        }
        answer.short.push('.');
    } else {
        let (holds, _) = extent(&comparisons);
        let next = comparisons
            .iter()
            .find(|c| holds.is_none_or(|h| c.batch > h));
        answer.short = short_answer(analysis, metric, reference, (&chosen, &comparisons), holds);
        if let (Some(held), Some(next)) = (holds, next) {
            let _ = write!(answer.short, " {}", next_words(metric, next, held));
        }
        let named = [holds, next.map(|c| c.batch)].into_iter().flatten();
        let named: Vec<&Point> = std::iter::once(reference)
            .chain(named.filter_map(at).map(|i| chosen[i]))
            .collect();
        if let Some(words) = budget_words(&named) {
            let _ = write!(answer.short, " {words}");
        }
    }
    if let Some(end) = at(largest).map(|i| chosen[i]) {
        answer
            .sentences
            .extend(decomposition(analysis, metric, reference, end));
    }
    let shown = extent(&comparisons)
        .0
        .and_then(at)
        .or_else(|| at(largest))
        .map(|i| chosen[i]);
    answer
        .sentences
        .extend(shown.and_then(|p| saving(reference, p)));
}

/// Whether two counts differ by at most 1 %, as those of trials do by the remainders of epochs.
pub(super) fn within_a_percent(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.01 * a.min(b)
}

/// Says so where points that are compared did not see equally many examples.
fn budget_words(points: &[&Point]) -> Option<String> {
    let examples: Vec<(u64, f64)> = points
        .iter()
        .filter_map(|p| Some((p.batch, p.estimate(Measure::Examples)?.mean)))
        .collect();
    let first = examples.first()?.1;
    if examples.iter().all(|e| within_a_percent(first, e.1)) {
        return None;
    }
    let each: Vec<String> = examples
        .iter()
        .map(|(batch, examples)| format!("{} at {batch}", count(examples.round() as u64)))
        .collect();
    Some(format!(
        "These trials did not see equally many examples: {}.",
        list(&each)
    ))
}

fn short_answer(
    analysis: &GapAnalysis,
    metric: HeadlineMetric,
    reference: &Point,
    (chosen, comparisons): (&[&Point], &[Comparison]),
    holds: Option<u64>,
) -> String {
    let name = metric.name();
    let worse = if metric.larger_is_better() {
        "lower"
    } else {
        "higher"
    };
    let Some(batch) = holds else {
        let first = comparisons[0];
        let rule = of_rule(
            analysis,
            chosen[0].rule,
            " (best rule there: \u{201C}",
            "\u{201D})",
        );
        return match (first.verdict, first.change) {
            (Verdict::Worse, Some(change)) => format!(
                "{} is {worse} already at the first batch above {}: {} at {}{rule} (95 % interval, n = {}).",
                capitalized(&name),
                reference.batch,
                metric.change(&change),
                first.batch,
                change.n
            ),
            (Verdict::Diverged, _) => format!(
                "Training diverged already at the first batch above {}: {} of {} seeds at {}{rule}.",
                reference.batch,
                chosen[0].outcomes.diverged,
                chosen[0].outcomes.planned,
                first.batch
            ),
            _ => format!(
                "Too few trials finished at batch {} to compare it with {}; see the table.",
                first.batch, reference.batch
            ),
        };
    };
    let i = comparisons
        .iter()
        .position(|c| c.batch == batch)
        .unwrap_or(0);
    let rule = holding_rules(analysis, metric, reference, chosen[i]);
    let mut text = if i + 1 == comparisons.len() {
        format!("No loss of {name} is seen up to the largest global batch, {batch}{rule}")
    } else {
        format!(
            "{} holds up to a global batch of {batch}{rule}",
            capitalized(&name)
        )
    };
    if !metric.larger_is_better() && i + 1 == comparisons.len() {
        text = format!(
            "{} does not rise up to the largest global batch, {batch}{rule}",
            capitalized(&name)
        );
    }
    if let Some(change) = comparisons[i].change {
        let verb = if comparisons[i].verdict == Verdict::Better {
            "its mean is better than at"
        } else {
            "its mean cannot be told from that at"
        };
        let _ = write!(
            text,
            ": {verb} {}{} ({}, 95 % interval, n = {})",
            reference.batch,
            if reference.rule == chosen[i].rule {
                String::new()
            } else {
                of_rule(analysis, reference.rule, " with \u{201C}", "\u{201D}")
            },
            metric.change(&change),
            change.n
        );
        if let Some(bound) = metric.worse_side(&change).filter(|b| *b > 0.0) {
            // An interval of few seeds may reach beyond what there is to lose.
            let mean = reference.estimate(metric.measure()).map(|e| e.mean);
            let bound = match (metric.metric, mean) {
                (Metric::Accuracy, Some(mean)) => bound.min(mean),
                _ => bound,
            };
            let bound = match metric.metric {
                Metric::Accuracy => format!("a loss of up to {} points", fixed(bound * 100.0, 2)),
                Metric::Loss => format!("a rise of up to {}", significant(bound, 2)),
            };
            let _ = write!(text, "; {bound} is not excluded");
        }
    }
    text.push('.');
    text
}

/// The rules that hold at the batch of `best`, itself first, in parentheses.
fn holding_rules(
    analysis: &GapAnalysis,
    metric: HeadlineMetric,
    reference: &Point,
    best: &Point,
) -> String {
    let holds = |p: &&Point| {
        let verdict = compare(analysis, p, reference, metric).verdict;
        p.rule != best.rule && matches!(verdict, Verdict::Better | Verdict::Indistinguishable)
    };
    let others: Vec<String> = at_batch(analysis, best.batch)
        .filter(holds)
        .map(|p| format!("\u{201C}{}\u{201D}", analysis.rules[p.rule].label))
        .collect();
    let rest = match others.len() {
        0 => String::new(),
        n if n + 1 == analysis.rules.len() && n > 1 => ", and every other rule".to_owned(),
        1..=2 => format!(", also {}", list(&others)),
        n => format!(", also {n} other rules"),
    };
    of_rule(
        analysis,
        best.rule,
        " (rule \u{201C}",
        &format!("\u{201D}{rest})"),
    )
}

fn next_words(metric: HeadlineMetric, next: &Comparison, held: u64) -> String {
    let worse = if metric.larger_is_better() {
        "lower"
    } else {
        "higher"
    };
    match (next.verdict, next.change) {
        (Verdict::Worse, Some(change)) => {
            format!(
                "At {} it is {worse}: {} (n = {}).",
                next.batch,
                metric.change(&change),
                change.n
            )
        }
        (Verdict::Diverged, _) => {
            format!("At {} seeds diverged under every rule.", next.batch)
        }
        _ => format!("Beyond {held} too few trials finished to tell."),
    }
}

/// What the change from the smallest to the largest batch is made of: held-out = training - gap.
fn decomposition(
    analysis: &GapAnalysis,
    metric: HeadlineMetric,
    reference: &Point,
    end: &Point,
) -> Option<String> {
    let total = paired(analysis, end, reference, metric.measure())?;
    let mut text = format!(
        "From {} to {}, {} changes by {}{}",
        reference.batch,
        end.batch,
        metric.name(),
        metric.change(&total),
        of_rule(
            analysis,
            end.rule,
            " with the best rule there (\u{201C}",
            "\u{201D})"
        ),
    );
    if end.outcomes.diverged > 0 {
        let _ = write!(
            text,
            ", over the {} of {} seeds that did not diverge",
            total.n, end.outcomes.planned
        );
    }
    let (train_measure, gap_measure) = match metric.metric {
        Metric::Accuracy => (Measure::TrainAccuracy, Measure::AccuracyGap),
        Metric::Loss => (Measure::TrainLoss, Measure::LossGap),
    };
    let held_out = analysis.held_out.filter(|_| metric.split != Split::Train);
    let train = paired(analysis, end, reference, train_measure);
    let gap = paired(analysis, end, reference, gap_measure);
    if let (Some(split), Some(train), Some(gap)) = (held_out, train, gap) {
        let _ = write!(
            text,
            ": {} changes by {} and the gap between training and {} by {}",
            HeadlineMetric {
                split: Split::Train,
                metric: metric.metric
            }
            .name(),
            metric.change(&train),
            split_name(split),
            metric.change(&gap),
        );
        if metric.verdict(Some(&total)) == Verdict::Worse {
            let grown = gap.interval().is_some_and(|i| i.low > 0.0);
            let _ = write!(
                text,
                ". {}",
                match (metric.verdict(Some(&train)) == Verdict::Worse, grown) {
                    (true, true) => format!(
                        "{} % of the loss is in fitting the training data within the budget, the rest \
                         in generalization",
                        fixed(100.0 * (train.mean / total.mean).clamp(0.0, 1.0), 0)
                    ),
                    (true, false) =>
                        "The loss is in fitting the training data within the budget; the gap does not \
                         grow by more than seeds alone could make"
                            .to_owned(),
                    (false, true) =>
                        "The training data are fitted about as well; the loss is in generalization"
                            .to_owned(),
                    (false, false) =>
                        "These seeds do not tell whether the loss is in fitting or in generalization"
                            .to_owned(),
                }
            );
        }
    }
    text.push('.');
    Some(text)
}

/// A number with three digits, without zeros at its end.
fn times(ratio: f64) -> String {
    let text = significant(ratio, 3);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// What the larger batch saves in updates and costs in examples.
fn saving(reference: &Point, point: &Point) -> Option<String> {
    let both = |measure| {
        Some((
            reference.estimate(measure)?.mean,
            point.estimate(measure)?.mean,
        ))
    };
    let (steps, steps_there) = both(Measure::Steps)?;
    let (examples, examples_there) = both(Measure::Examples)?;
    if !(steps > 0.0 && steps_there > 0.0 && examples > 0.0) {
        return None;
    }
    let ratio = steps / steps_there;
    let fewer = if ratio >= 1.0 {
        format!("{} times fewer", times(ratio))
    } else {
        format!("{} times more", times(1.0 / ratio))
    };
    let cost = examples_there / examples;
    let examples_words = if within_a_percent(examples, examples_there) {
        "for as many examples".to_owned()
    } else {
        format!("for {} times as many examples", times(cost))
    };
    Some(format!(
        "A trial at {} makes {} updates, one at {} makes {}: {fewer}, {examples_words}.",
        reference.batch,
        count(steps.round() as u64),
        point.batch,
        count(steps_there.round() as u64),
    ))
}

fn sureness(analysis: &GapAnalysis, metric: HeadlineMetric, answer: &Answer) -> Vec<String> {
    let mut out = Vec::new();
    let outcomes = analysis.outcomes();
    let seeds = &analysis.study.seeds;
    if analysis.points.iter().all(|p| p.outcomes.finished() < 2) {
        out.push(
            "No point has more than one finished trial, so no interval can be given: a difference \
             may be chance. Set `seeds = 3` or more."
                .to_owned(),
        );
    } else {
        out.push(format!(
            "Means are over {}. ± is half of Student's 95 % interval over seeds; it covers other \
             initial weights and data orders, not another data set or another split.",
            match seeds.len() {
                0 => "seeds".to_owned(),
                1 => format!("the seed {}", seeds[0]),
                n if n <= 8 => format!(
                    "the {n} seeds {}",
                    list(&seeds.iter().map(u64::to_string).collect::<Vec<_>>())
                ),
                n => format!("{n} seeds"),
            }
        ));
        let made: usize = answer
            .rules
            .iter()
            .flat_map(|r| &r.comparisons)
            .filter(|c| c.change.is_some_and(|e| e.half_width.is_some()))
            .count();
        if made > 0 {
            out.push(format!(
                "Batches are compared by differences between trials of the same seed. {}; where \
                 batch makes no difference at all, one interval in twenty still leaves out 0.",
                capitalized(&plural(
                    made,
                    "comparison was made",
                    "comparisons were made"
                ))
            ));
        }
        if answer.rules.len() > 1 {
            out.push(
                "Where the answer names the best rule at a batch, it was picked by its mean, \
                 which flatters it slightly."
                    .to_owned(),
            );
        }
    }
    if let Some(&n) = analysis.split_sizes.get(&metric.split)
        && metric.metric == Metric::Accuracy
        && n > 0
    {
        out.push(format!(
            "{} is measured on {} examples: one example is {} points.",
            capitalized(&metric.name()),
            count(n),
            times(100.0 / n as f64)
        ));
    }
    let mean = |measure| {
        let values: Vec<f64> = analysis
            .points
            .iter()
            .filter_map(|p| Some(p.estimate(measure)?.mean))
            .collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        (low, high)
    };
    if analysis.batches.len() > 1 && !analysis.has_target {
        let ((few, many), (least, most)) = (mean(Measure::Examples), mean(Measure::Steps));
        if within_a_percent(few, many) {
            out.push(
                "Every trial sees the same number of examples, so a larger batch makes fewer \
                 updates; Hoffer et al. (2017) trace much of the gap to that."
                    .to_owned(),
            );
        } else if most <= least * 1.02 {
            out.push(
                "Every trial makes the same number of updates, so a larger batch sees more \
                 examples."
                    .to_owned(),
            );
        }
    }
    if analysis.batches.len() > 1 && !analysis.rule_keys.iter().any(|k| k.ends_with("base_lr")) {
        out.push(
            "The learning rate follows each rule from one base rate and was not tuned at every \
             batch; a tuned rate may hold further (Shallue et al. 2019)."
                .to_owned(),
        );
    }
    if analysis.has_target {
        out.push(format!(
            "Trials stop at the first evaluation that reaches their target, so the final {} says \
             little by itself; compare the steps and examples to the target.",
            metric.name()
        ));
    }
    if outcomes.finished() < outcomes.planned {
        out.push(format!(
            "{}. A mean over only the seeds that finished is marked with its n; it flatters a \
             point whose other seeds diverged.",
            capitalized(&outcome_words(&outcomes))
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCURACY: HeadlineMetric = HeadlineMetric {
        split: Split::Test,
        metric: Metric::Accuracy,
    };
    const LOSS: HeadlineMetric = HeadlineMetric {
        split: Split::Test,
        metric: Metric::Loss,
    };

    #[test]
    fn a_fall_of_accuracy_and_a_rise_of_loss_are_worse() {
        let fall = Estimate::of(&[-0.10, -0.11, -0.09]);
        let rise = Estimate::of(&[0.10, 0.11, 0.09]);
        let none = Estimate::of(&[-0.01, 0.01, 0.005]);
        assert_eq!(ACCURACY.verdict(fall.as_ref()), Verdict::Worse);
        assert_eq!(ACCURACY.verdict(rise.as_ref()), Verdict::Better);
        assert_eq!(LOSS.verdict(rise.as_ref()), Verdict::Worse);
        assert_eq!(LOSS.verdict(fall.as_ref()), Verdict::Better);
        assert_eq!(ACCURACY.verdict(none.as_ref()), Verdict::Indistinguishable);
        assert_eq!(
            ACCURACY.verdict(Estimate::of(&[-0.5]).as_ref()),
            Verdict::Unresolved
        );
    }

    #[test]
    fn a_batch_beyond_the_first_fall_does_not_hold() {
        let at = |batch, verdict| Comparison {
            batch,
            change: None,
            verdict,
        };
        let comparisons = [
            at(64, Verdict::Indistinguishable),
            at(128, Verdict::Better),
            at(256, Verdict::Worse),
            at(512, Verdict::Indistinguishable),
        ];
        let (holds, falls) = extent(&comparisons);
        assert_eq!((holds, falls.map(|c| c.batch)), (Some(128), Some(256)));
    }
}
