//! The answer in words, every number of it from the case.

use super::answer::{AT_LEAST, bound, no_fit, seed_count, size};
use super::types::{BatchPoint, Case, Cost, CriticalBatch, EstimateRow, Fit, TriedEnd};
use crate::analysis::numbers::{count, fixed, list, plural, significant};
use crate::math::statistics::Interval;
use crate::math::steps_fit::{Bound, FitError};

/// An estimate is close if it is within this factor of the sweep.
const CLOSE: f64 = 2.0;

/// An estimate is cheap if it takes no more than this share of the examples of the sweep.
const CHEAP: f64 = 0.05;

/// Where the ends of an interval differ by more than this factor, it is called wide.
const WIDE: f64 = 4.0;

/// Below this probability the law is said not to fit.
const LEVEL: f64 = 0.05;

/// Said where the interval of B_crit is open on both sides.
const OPEN: &str =
    "Seeds differ so much that B_crit is open on both sides: more seeds must be measured.";

/// The answer in paragraphs: how large the batch can be, how sure that is, the best rate, and what
/// the other estimates say.
pub fn words(case: &Case) -> Vec<String> {
    let mut paragraphs = match &case.fit {
        Ok(fit) => vec![how_far(case, fit), how_sure(case, fit)],
        Err(error) => vec![unanswered(case, error)],
    };
    paragraphs.push(rates(case));
    paragraphs.push(estimates(case));
    let joined = paragraphs.into_iter().map(|sentences| sentences.join(" "));
    joined.filter(|text| !text.is_empty()).collect()
}

/// What a terminal shows: the target, a row for each case, and what to know first about each.
pub fn headline(study: &CriticalBatch) -> Vec<String> {
    let mut lines: Vec<String> = study.unfinished.iter().cloned().collect();
    lines.extend(
        study
            .target
            .iter()
            .map(|target| format!("Target: {target}")),
    );
    let titles = [
        "case",
        "B_crit",
        "95 % interval",
        "S_min",
        "E_min",
        "20 % overhead",
        "seeds",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(study.cases.iter().map(headline_row));
    // Without labels the first column says nothing.
    let first = usize::from(study.cases.iter().all(|case| case.label.is_empty()));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..titles.len()).map(|c| width(c).unwrap_or(0)).collect();
    for row in &rows {
        let cells: Vec<String> = (first..titles.len())
            .map(|column| {
                let (cell, width) = (&row[column], widths[column]);
                if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        lines.push(cells.join("  "));
    }
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for case in &study.cases {
        let caveat = match &case.fit {
            Ok(fit) => caveats(case, fit).into_iter().next(),
            Err(error) => Some(unanswered(case, error).join(" ")),
        };
        let Some(caveat) = caveat else { continue };
        match told.iter_mut().find(|(text, _)| *text == caveat) {
            Some((_, labels)) => labels.push(case.label.clone()),
            None => told.push((caveat, vec![case.label.clone()])),
        }
    }
    lines.extend(told.into_iter().map(|(caveat, labels)| {
        if labels.len() == study.cases.len() {
            caveat
        } else {
            format!("{}: {caveat}", list(&labels))
        }
    }));
    lines
}

fn headline_row(case: &Case) -> [String; 7] {
    let none = || "-".to_owned();
    let [
        mut b_crit,
        mut interval,
        mut s_min,
        mut e_min,
        mut efficient,
    ] = [none(), none(), none(), none(), none()];
    match &case.fit {
        Err(_) => "none".clone_into(&mut b_crit),
        Ok(fit) => {
            let side = bound(fit, &case.batches);
            b_crit = match side {
                None => size(fit.fit.b_crit),
                Some((_, None)) => "open".to_owned(),
                Some((Bound::Above, Some(least))) => format!("\u{2265} {}", size(least)),
                Some((Bound::Below, Some(most))) => format!("\u{2264} {}", size(most)),
            };
            let side = side.map(|(side, _)| side);
            if side != Some(Bound::Above) {
                s_min = size(fit.fit.s_min);
            }
            if side != Some(Bound::Below) {
                e_min = about(fit.fit.e_min());
            }
            if side.is_none() {
                efficient = size(fit.efficient_batch);
                interval = fit
                    .intervals
                    .as_ref()
                    .map_or_else(none, |i| between(i.b_crit));
            }
        }
    }
    let label = case.label.clone();
    [
        label,
        b_crit,
        interval,
        s_min,
        e_min,
        efficient,
        seeds(&case.batches),
    ]
}

/// The interval in a few words.
fn between(interval: Interval) -> String {
    match (interval.low > 0.0, interval.high.is_finite()) {
        (true, true) => format!("{} to {}", size(interval.low), size(interval.high)),
        (true, false) => format!("from {} on", size(interval.low)),
        (false, true) => format!("up to {}", size(interval.high)),
        (false, false) => "open".to_owned(),
    }
}

/// A large count with three digits.
fn about(value: f64) -> String {
    if !(1000.0..1e15).contains(&value) {
        return size(value);
    }
    let unit = 10f64.powi(value.log10().floor() as i32 - 2);
    count(((value / unit).round() * unit).round() as u64)
}

/// "3", "2 to 3".
fn seeds(batches: &[BatchPoint]) -> String {
    let counts = || batches.iter().map(|point| point.seeds.len());
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    }
}

/// "batch 8", "batches 8 and 16".
fn named(batches: &[u64]) -> String {
    let names: Vec<String> = batches.iter().map(|&batch| count(batch)).collect();
    let word = if names.len() == 1 { "batch" } else { "batches" };
    format!("{word} {}", list(&names))
}

/// Batches at which a seed reached the target, ascending.
fn reached(batches: &[BatchPoint]) -> Vec<u64> {
    let any = |point: &&BatchPoint| point.seeds.iter().any(|seed| seed.steps.is_some());
    batches
        .iter()
        .filter(any)
        .map(|point| point.batch)
        .collect()
}

fn how_far(case: &Case, fit: &Fit) -> Vec<String> {
    let law = &fit.fit;
    let mut out = match bound(fit, &case.batches) {
        None => {
            let interval = match fit.intervals.as_ref().map(|i| i.b_crit) {
                None => String::new(),
                Some(i) if i.low > 0.0 && i.high.is_finite() => {
                    format!(" (95 % interval {})", between(i))
                }
                Some(i) => format!(" (95 % interval: {})", between(i)),
            };
            let efficient = size(fit.efficient_batch);
            let saturated = size(fit.saturated_batch);
            vec![
                format!(
                    "The critical batch size B_crit is {} examples{interval}.",
                    size(law.b_crit)
                ),
                format!(
                    "At that batch a run takes {} updates, twice the fewest that any batch can do \
                     with, and {} examples, twice the fewest.",
                    size(2.0 * law.s_min),
                    about(2.0 * law.e_min())
                ),
                format!(
                    "Up to a batch of {efficient} (0.2 B_crit) scaling is perfect within 20 %: \
                     more workers save updates at nearly no cost in examples."
                ),
                format!(
                    "From there to {saturated} (5 B_crit) each doubling saves less and costs more; \
                     beyond, updates are within 20 % of the fewest, and no number of workers saves \
                     more than a sixth of them."
                ),
            ]
        }
        Some((Bound::Above, least)) => vec![
            format!(
                "Steps to the target fall in proportion to the batch up to the largest that reached \
                 it, {}: no batch flattens.",
                reached(&case.batches)
                    .last()
                    .map_or_else(String::new, |&b| count(b))
            ),
            match least {
                Some(least) => format!(
                    "B_crit is at least {}; larger batches must be measured to see where the gain ends.",
                    size(least)
                ),
                None => OPEN.to_owned(),
            },
            format!(
                "A run takes about {} examples at any of these.",
                about(law.e_min())
            ),
        ],
        Some((Bound::Below, most)) => vec![
            format!(
                "Steps to the target do not fall from the smallest batch that reached it, {}, on: no \
                 larger batch gains.",
                reached(&case.batches)
                    .first()
                    .map_or_else(String::new, |&b| count(b))
            ),
            match most {
                Some(most) => format!(
                    "B_crit is at most {}; smaller batches must be measured to see where the gain ends, \
                     and rates at the larger ones must be the best there.",
                    size(most)
                ),
                None => OPEN.to_owned(),
            },
            format!(
                "A run takes about {} updates at any of these.",
                size(law.s_min)
            ),
        ],
    };
    if law.bound.is_none() {
        out.extend(measured_efficiency(case, fit));
    }
    let sweep = case.estimates.iter().find(|row| row.quantity == "b_crit");
    if let Some(published) = sweep.and_then(|row| row.published) {
        out.push(format!(
            "Published for the same data, with another model and target: {} ({}).",
            size(published.value),
            published.source
        ));
    }
    if let Some(cost) = sweep.and_then(|row| row.cost) {
        out.push(format!("To learn this took {}.", cost_words(&cost)));
    }
    out
}

fn measured_efficiency(case: &Case, fit: &Fit) -> Option<String> {
    let complete = || case.batches.iter().filter(|point| point.steps.is_some());
    let (first, last) = (complete().next()?, complete().next_back()?);
    if first.batch == last.batch {
        return None;
    }
    Some(match fit.measured_efficient_batch {
        Some(batch) => format!(
            "By the measured points alone, examples are 20 % more than at batch {} from batch {} on.",
            count(first.batch),
            size(batch)
        ),
        None => format!(
            "By the measured points alone, no batch up to {} takes 20 % more examples than batch {}.",
            count(last.batch),
            count(first.batch)
        ),
    })
}

fn cost_words(cost: &Cost) -> String {
    let seconds = cost.seconds.map_or_else(String::new, |seconds| {
        format!(" and {} s of work", about(seconds))
    });
    format!(
        "{}, {} examples{seconds}",
        plural(cost.trials, "trial", "trials"),
        about(cost.examples as f64)
    )
}

fn how_sure(case: &Case, fit: &Fit) -> Vec<String> {
    let mut out = Vec::new();
    if let (Some(first), Some(last)) = (case.batches.first(), case.batches.last()) {
        let seeds = seeds(&case.batches);
        out.push(format!(
            "These numbers rest on {seeds} {} at each of {} batches, {} to {}.",
            if seeds == "1" { "seed" } else { "seeds" },
            case.batches.len(),
            count(first.batch),
            count(last.batch)
        ));
    }
    if fit.intervals.is_some() {
        out.push(
            "Intervals come from a bootstrap over whole seeds: they cover other initial weights and \
             data orders, not another model, data set or target."
                .to_owned(),
        );
    }
    let goodness = &fit.goodness;
    if let Some(r_squared) = goodness.r_squared {
        out.push(format!(
            "The curve explains {} % of the variation in log steps, and the points scatter about it by {} %.",
            fixed(100.0 * r_squared, 1),
            significant(100.0 * goodness.rms_log.exp_m1(), 2)
        ));
    }
    out.extend(caveats(case, fit));
    out
}

/// What makes the answer less sure, the most important first.
fn caveats(case: &Case, fit: &Fit) -> Vec<String> {
    let mut out = Vec::new();
    let batches = reached(&case.batches);
    match bound(fit, &case.batches) {
        None => {}
        Some((Bound::Above, _)) => out.push(
            "S_min and B_crit lie beyond what was measured, and only bounds of them are known."
                .to_owned(),
        ),
        Some((Bound::Below, _)) => out.push(
            "E_min and B_crit lie below what was measured, and only bounds of them are known."
                .to_owned(),
        ),
    }
    if fit.intervals.is_none() {
        out.push(
            if seed_count(&case.batches) > 1 {
                "Too few seeds reached the target at two batches or more, so no interval can be given: \
                 other seeds may move these numbers. Add some."
            } else {
                "There is one seed, so no interval can be given: another seed may move these numbers. \
                 Add two or more."
            }
            .to_owned(),
        );
    }
    if batches.len() == 2 {
        out.push(
            "Two numbers are fitted to two batches, so nothing says how well the curve fits: measure \
             more batches."
                .to_owned(),
        );
    }
    let edges: Vec<u64> = (case.batches.iter())
        .filter(|point| point.seeds.iter().any(|seed| seed.edge))
        .map(|point| point.batch)
        .collect();
    if !edges.is_empty() {
        out.push(format!(
            "At {} the best rate is the smallest or the largest that was tried: a better one may lie \
             beyond, and take fewer updates.",
            named(&edges)
        ));
    }
    out.extend(unreached(case));
    if fit.fit.bound.is_none() {
        out.extend(outside(case, fit));
        out.extend(wide(fit));
    }
    out.extend(goodness_lack(fit));
    let failed = ends(case, TriedEnd::Failed);
    if failed > 0 {
        out.push(format!(
            "{} failed by an error and tell nothing.",
            plural(failed, "trial", "trials")
        ));
    }
    out
}

fn unreached(case: &Case) -> Option<String> {
    let part = |point: &BatchPoint| {
        let n = point
            .seeds
            .iter()
            .filter(|seed| seed.steps.is_none())
            .count();
        (n > 0).then(|| {
            let all = point.seeds.len();
            format!(
                "{n} of {} at batch {}",
                plural(all, "seed", "seeds"),
                count(point.batch)
            )
        })
    };
    let parts: Vec<String> = case.batches.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "The target was not reached by {}: what enters the fit is that they need more updates \
             than they made.",
            list(&parts)
        )
    })
}

fn goodness_lack(fit: &Fit) -> Option<String> {
    let lack = fit.goodness.lack_of_fit.filter(|lack| lack.p < LEVEL)?;
    Some(format!(
        "The batches lie further from the curve than their seeds scatter (F({}, {}) = {}, p = {}): \
         the law is not exact here, and B_crit depends on which batches are measured.",
        lack.freedom.0,
        lack.freedom.1,
        significant(lack.f, 2),
        significant(lack.p, 1)
    ))
}

/// B_crit outside of the measured batches.
fn outside(case: &Case, fit: &Fit) -> Option<String> {
    let batches = reached(&case.batches);
    let (first, last) = (*batches.first()?, *batches.last()?);
    let b_crit = fit.fit.b_crit;
    if b_crit > last as f64 {
        Some(format!(
            "B_crit lies beyond the largest batch that reached the target, {}: S_min is extrapolated.",
            count(last)
        ))
    } else if b_crit < first as f64 {
        Some(format!(
            "B_crit lies below the smallest batch that reached the target, {}: E_min is extrapolated.",
            count(first)
        ))
    } else {
        None
    }
}

fn wide(fit: &Fit) -> Option<String> {
    let interval = fit.intervals.as_ref()?.b_crit;
    if interval.high.is_infinite() {
        return Some(
            "The interval of B_crit has no upper end: in some resamples no batch flattens. Larger \
             batches would close it."
                .to_owned(),
        );
    }
    if interval.low <= 0.0 {
        return Some(
            "The interval of B_crit has no lower end: in some resamples no batch gains. Smaller \
             batches would close it."
                .to_owned(),
        );
    }
    let factor = interval.high / interval.low;
    (factor > WIDE).then(|| {
        format!(
            "The ends of the interval differ by a factor of {}: more seeds, and batches on both sides \
             of B_crit, would narrow it.",
            significant(factor, 2)
        )
    })
}

/// Trials of the search that ended so.
fn ends(case: &Case, end: TriedEnd) -> usize {
    let seeds = case.batches.iter().flat_map(|point| &point.seeds);
    seeds
        .flat_map(|seed| &seed.tried)
        .filter(|tried| tried.end == end)
        .count()
}

fn unanswered(case: &Case, error: &FitError) -> Vec<String> {
    match error {
        FitError::NothingReached { .. } | FitError::TooFewBatches { found: 0 } => {
            nothing_reached(case)
        }
        FitError::TooFewBatches { .. } => one_batch(case),
        FitError::NotPositive { .. } => met_at_once(case, error),
    }
}

fn nothing_reached(case: &Case) -> Vec<String> {
    if case.batches.is_empty() {
        return vec!["There is no critical batch size to give: no batch was measured.".to_owned()];
    }
    let mut out = vec![
        "There is no critical batch size to give: no trial reached the target, at any batch."
            .to_owned(),
    ];
    let seeds = || case.batches.iter().flat_map(|point| &point.seeds);
    let made = seeds().map(|seed| seed.bound).fold(0.0, f64::max);
    if made > 0.0 {
        out.push(format!("The longest trial made {} updates.", size(made)));
    }
    let best = || {
        seeds()
            .flat_map(|s| &s.tried)
            .filter_map(|t| t.best)
            .filter(|b| b.is_finite())
    };
    let low = best().min_by(f64::total_cmp);
    let high = best().max_by(f64::total_cmp);
    if let Some((low, high)) = low.zip(high) {
        let [low, high] = [low, high].map(|value| significant(value, 4));
        out.push(if low == high {
            format!("The best value of the target's metric that was reached is {low}.")
        } else {
            format!(
                "The best values of the target's metric that trials reached lie between {low} and {high}."
            )
        });
    }
    for (end, verb) in [
        (TriedEnd::Diverged, "diverged"),
        (TriedEnd::Failed, "failed by an error"),
    ] {
        let n = ends(case, end);
        if n > 0 {
            out.push(format!("{} {verb}.", plural(n, "trial", "trials")));
        }
    }
    out.push("Choose a target within reach, or give trials more updates.".to_owned());
    out
}

fn one_batch(case: &Case) -> Vec<String> {
    let reached = reached(&case.batches);
    let mut out = vec![format!(
        "There is no critical batch size to give: only {} reached the target, and S_min and B_crit are \
         two numbers, which take two batches or more.",
        named(&reached)
    )];
    let others = case
        .batches
        .iter()
        .filter(|point| !reached.contains(&point.batch));
    let parts: Vec<String> = others
        .map(|point| {
            let made = point
                .seeds
                .iter()
                .map(|seed| seed.bound)
                .fold(0.0, f64::max);
            format!("{} updates at batch {}", size(made), count(point.batch))
        })
        .collect();
    out.push(if parts.is_empty() {
        "No other batch was measured.".to_owned()
    } else {
        format!(
            "Without it went {}. Choose a target within reach, or give trials more updates.",
            list(&parts)
        )
    });
    out
}

fn met_at_once(case: &Case, error: &FitError) -> Vec<String> {
    let at_once = |point: &&BatchPoint| point.seeds.iter().any(|seed| seed.steps == Some(0.0));
    let batches: Vec<u64> = (case.batches.iter().filter(at_once))
        .map(|point| point.batch)
        .collect();
    if batches.is_empty() {
        return vec![format!("There is no critical batch size to give: {error}.")];
    }
    vec![
        format!(
            "There is no critical batch size to give: at {} the target was met before the first update, \
             and 0 updates have no logarithm.",
            named(&batches)
        ),
        "Such a target says nothing about training: choose a harder one.".to_owned(),
    ]
}

fn rates(case: &Case) -> Vec<String> {
    let points: Vec<(u64, f64)> = (case.batches.iter())
        .filter_map(|point| Some((point.batch, point.rate?.value)))
        .collect();
    let (Some(&(first, low)), Some(&(last, high))) = (points.first(), points.last()) else {
        return Vec::new();
    };
    if first == last {
        return vec![format!(
            "The best learning rate at batch {} is {}.",
            count(first),
            significant(low, 2)
        )];
    }
    let mut out = vec![format!(
        "The best learning rate goes from {} at batch {} to {} at batch {}: {} times for {} times the \
         batch.",
        significant(low, 2),
        count(first),
        significant(high, 2),
        count(last),
        significant(high / low, 2),
        size(last as f64 / first as f64)
    )];
    let Some(law) = &case.rate_law else {
        out.push("Fewer than three batches have a best rate: too few for its law.".to_owned());
        return out;
    };
    if let Some(exponent) = law.initial_exponent {
        out.push(format!(
            "Between the two smallest batches it grows as B to the power {} (1 is the linear rule, 0.5 \
             the square-root rule, 0 a constant rate).",
            fixed(exponent, 2)
        ));
    }
    let ends = |interval: Option<Interval>, decimals: Option<usize>| {
        interval.map_or_else(String::new, |i| match decimals {
            Some(decimals) => format!(
                " ({} to {})",
                fixed(i.low, decimals),
                fixed(i.high, decimals)
            ),
            None => format!(" ({})", between(i)),
        })
    };
    let alpha = format!("{}{}", fixed(law.fit.alpha, 2), ends(law.alpha, Some(2)));
    let b_star = law.fit.b_star;
    out.push(if law.fit.is_constant() {
        "Over all batches, the law eps_max/(1 + B*/B)^alpha finds no growth.".to_owned()
    } else if law.fit.is_unsaturated() {
        format!(
            "Over all batches it grows as B to the power {alpha}, without an end: it does not saturate \
             up to the largest."
        )
    } else {
        let side = if b_star > last as f64 {
            "beyond the batches measured: the growth has not ended"
        } else if b_star < first as f64 {
            "below the batches measured: the rate has all but stopped growing"
        } else {
            "about which the growth ends"
        };
        format!(
            "The law eps_max/(1 + B*/B)^alpha fits with eps_max {}, alpha {alpha} and B* {}{}, {side}.",
            significant(law.fit.rate_max, 2),
            size(b_star),
            ends(law.b_star, None)
        )
    });
    out
}

fn estimates(case: &Case) -> Vec<String> {
    let others: Vec<&EstimateRow> = (case.estimates.iter())
        .filter(|row| !matches!(row.quantity, "b_crit" | "efficient_batch"))
        .collect();
    if others.is_empty() {
        return Vec::new();
    }
    let parts: Vec<String> = [
        ("b_simple", "B_simple is"),
        ("b_noise", "B_noise is"),
        ("branched", "branches hold the loss up to"),
    ]
    .into_iter()
    .filter_map(|(quantity, words)| {
        let of = others.iter().filter(|row| row.quantity == quantity);
        let items: Vec<String> = of.map(|row| item(row)).collect();
        (!items.is_empty()).then(|| format!("{words} {}", list(&items)))
    })
    .collect();
    let sweep = case.estimates.iter().find(|row| row.quantity == "b_crit");
    let mut out = vec![match sweep.and_then(|row| row.value) {
        Some(b_crit) => format!(
            "Beside the {} of the sweep, {}.",
            size(b_crit),
            parts.join("; ")
        ),
        None => format!(
            "The sweep gives no number to compare with ({}); {}.",
            match &case.fit {
                Err(error) => no_fit(error),
                Ok(_) => "only a bound",
            },
            parts.join("; ")
        ),
    }];
    out.extend(reasons(&others));
    if sweep.is_some_and(|row| row.value.is_some()) {
        out.extend(closeness(&others));
    }
    out
}

/// "380 on average (1.8 times)".
fn item(row: &EstimateRow) -> String {
    let when = row
        .method
        .strip_prefix("noise scale ")
        .or(row.method.strip_prefix("branches "));
    let when = when.unwrap_or(&row.method);
    let Some(value) = row.value else {
        return if row.quantity == "branched" {
            format!("no batch {when}")
        } else {
            format!("undetermined {when}")
        };
    };
    if row.note.starts_with(AT_LEAST) {
        return format!("{AT_LEAST} {} {when}", size(value));
    }
    let ratio = row.ratio.map_or_else(String::new, |ratio| {
        format!(" ({} times)", significant(ratio, 2))
    });
    format!("{} {when}{ratio}", size(value))
}

/// Why estimates differ, as far as these do.
fn reasons(others: &[&EstimateRow]) -> Vec<String> {
    let value = |quantity: &str, when: &str| {
        let method = format!("noise scale {when}");
        let of = |row: &&&EstimateRow| row.quantity == quantity && row.method == method;
        others.iter().find(of).and_then(|row| row.value)
    };
    let mut out = Vec::new();
    if others.iter().any(|row| row.quantity == "b_simple") {
        let times = ["on average", "near the target", "at the start"];
        let both = times
            .into_iter()
            .find_map(|when| Some((when, value("b_noise", when)? / value("b_simple", when)?)));
        out.push(match both {
            None => "B_simple leaves the curvature out: it is the noise scale of a loss that is equally \
                     curved in all directions."
                .to_owned(),
            Some((when, ratio)) => format!(
                "B_simple leaves the curvature out and B_noise counts it, which makes B_noise {} times \
                 as large {when}.",
                significant(ratio, 2)
            ),
        });
    }
    let moved = ["b_simple", "b_noise"].into_iter().find_map(|quantity| {
        let ratio = value(quantity, "near the target")? / value(quantity, "at the start")?;
        Some((
            if quantity == "b_simple" {
                "B_simple"
            } else {
                "B_noise"
            },
            ratio,
        ))
    });
    if let Some((name, ratio)) = moved {
        let direction = if ratio >= 1.0 { "grows" } else { "falls" };
        out.push(format!(
            "The noise scale is of one moment, and over this training {name} {direction} by a factor of \
             {}, so when it is taken matters.",
            significant(ratio.max(1.0 / ratio), 2)
        ));
    }
    if others.iter().any(|row| row.quantity == "branched") {
        out.push(
            "Branches are of one moment too: they ask which batch keeps the loss there, where the sweep \
             averages over the whole run to the target."
                .to_owned(),
        );
    }
    out
}

/// Which estimates come close to the sweep, and at what share of its cost.
fn closeness(others: &[&EstimateRow]) -> Vec<String> {
    let rated: Vec<(&EstimateRow, f64)> = (others.iter())
        .filter_map(|row| Some((*row, row.ratio?)))
        .collect();
    let distance = |ratio: f64| ratio.max(1.0 / ratio);
    let Some(&(nearest, ratio)) =
        (rated.iter()).min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)))
    else {
        return vec!["None of these gives a number to hold against the sweep.".to_owned()];
    };
    let close: Vec<&EstimateRow> = (rated.iter())
        .filter(|(_, ratio)| distance(*ratio) <= CLOSE)
        .map(|(row, _)| *row)
        .collect();
    let cheap = |row: &EstimateRow| row.share.is_some_and(|share| share <= CHEAP);
    let (met, unmet): (Vec<&EstimateRow>, Vec<&EstimateRow>) =
        close.into_iter().partition(|row| cheap(row));
    let mut out = Vec::new();
    let told =
        |rows: &[&EstimateRow]| list(&rows.iter().map(|row| priced(row)).collect::<Vec<_>>());
    if !met.is_empty() {
        out.push(format!(
            "Within a factor of 2 of the sweep, at no more than 5 % of its examples: {}.",
            told(&met)
        ));
    }
    if !unmet.is_empty() {
        let cost = if met.is_empty() {
            "but none at 5 % of its examples or less"
        } else {
            "at more than 5 % or an unknown share"
        };
        out.push(format!(
            "Within a factor of 2 of the sweep, {cost}: {}.",
            told(&unmet)
        ));
    }
    if met.is_empty() && unmet.is_empty() {
        out.push(format!(
            "None is within a factor of 2 of the sweep; the nearest is {}, {} times it.",
            priced(nearest),
            significant(ratio, 2)
        ));
    } else {
        out.push("Which of them comes close is known only beside the sweep.".to_owned());
    }
    out
}

/// "B_simple on average, at 3.1 % of the examples".
fn priced(row: &EstimateRow) -> String {
    let name = match row.quantity {
        "b_simple" => row.method.replace("noise scale", "B_simple"),
        "b_noise" => row.method.replace("noise scale", "B_noise"),
        _ => row.method.clone(),
    };
    match row.share {
        Some(share) => format!("{name} (at {} %)", significant(100.0 * share, 2)),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{Mean, Published, RateLaw, SeedPoint, Tried};
    use super::*;
    use crate::math::rate_fit::RateFit;
    use crate::math::steps_fit::{Goodness, LackOfFit, StepsFit, StepsIntervals};

    fn seed(seed: u64, steps: Option<f64>) -> SeedPoint {
        SeedPoint {
            seed,
            steps,
            bound: if steps.is_some() { 0.0 } else { 700.0 },
            rate: None,
            others: String::new(),
            edge: false,
            tried: Vec::new(),
        }
    }

    fn point(batch: u64, steps: &[Option<f64>]) -> BatchPoint {
        let seeds: Vec<SeedPoint> = steps.iter().zip(0..).map(|(s, n)| seed(n, *s)).collect();
        BatchPoint {
            batch,
            steps: steps[0]
                .filter(|_| steps.iter().all(Option::is_some))
                .map(mean),
            rate: None,
            seeds,
        }
    }

    fn mean(value: f64) -> Mean {
        Mean {
            value,
            interval: None,
        }
    }

    fn interval(low: f64, high: f64) -> Interval {
        Interval { low, high }
    }

    fn row(method: &str, quantity: &'static str, value: Option<f64>) -> EstimateRow {
        EstimateRow {
            method: method.to_owned(),
            quantity,
            value,
            interval: None,
            note: String::new(),
            cost: None,
            ratio: value.map(|value| value / 200.0),
            share: None,
            published: None,
        }
    }

    /// S_min = 50 and B_crit = 200 at five batches of three seeds, without any caveat.
    fn sound() -> Case {
        let batches = [25, 50, 100, 200, 400];
        let steps = |batch: u64| Some(50.0 * (1.0 + 200.0 / batch as f64));
        let fit = Fit {
            fit: StepsFit {
                s_min: 50.0,
                b_crit: 200.0,
                log_sd: 0.03,
                n: 15,
                censored: 0,
                bound: None,
            },
            goodness: Goodness {
                r_squared: Some(0.9964),
                rms_log: 0.03,
                lack_of_fit: Some(LackOfFit {
                    f: 1.2,
                    freedom: (3, 10),
                    p: 0.36,
                }),
            },
            intervals: Some(StepsIntervals {
                s_min: interval(45.0, 55.0),
                e_min: interval(9500.0, 10_500.0),
                b_crit: interval(170.0, 240.0),
                curve: Vec::new(),
                seeds: 3,
                resamples: 2000,
            }),
            efficient_batch: 40.0,
            measured_efficient_batch: Some(66.0),
            saturated_batch: 1000.0,
        };
        Case {
            label: String::new(),
            batches: batches
                .map(|b| point(b, &[steps(b), steps(b), steps(b)]))
                .to_vec(),
            fit: Ok(fit),
            rate_law: None,
            noise: None,
            branched: Vec::new(),
            estimates: vec![row("sweep", "b_crit", Some(200.0))],
        }
    }

    fn changed(change: impl FnOnce(&mut Fit)) -> Case {
        let mut case = sound();
        change(case.fit.as_mut().expect("a fit"));
        case
    }

    fn first_caveat(case: &Case) -> String {
        caveats(case, case.fit.as_ref().expect("a fit"))
            .into_iter()
            .next()
            .unwrap_or_default()
    }

    #[track_caller]
    fn says(text: &str, part: &str) {
        assert!(text.contains(part), "not said: {part}\nin: {text}");
    }

    #[test]
    fn the_answer_says_how_far_to_scale_and_how_sure_that_is() {
        let paragraphs = words(&sound());
        assert_eq!(
            paragraphs,
            [
                "The critical batch size B_crit is 200 examples (95 % interval 170 to 240). At that \
                 batch a run takes 100 updates, twice the fewest that any batch can do with, and 20,000 \
                 examples, twice the fewest. Up to a batch of 40 (0.2 B_crit) scaling is perfect \
                 within 20 %: more workers save updates at nearly no cost in examples. From there to \
                 1000 (5 B_crit) each doubling saves less and costs more; beyond, updates are within \
                 20 % of the fewest, and no number of workers saves more than a sixth of them. By the \
                 measured points alone, examples are 20 % more than at batch 25 from batch 66 on.",
                "These numbers rest on 3 seeds at each of 5 batches, 25 to 400. Intervals come from \
                 a bootstrap over whole seeds: they cover other initial weights and data orders, not \
                 another model, data set or target. The curve explains 99.6 % of the variation in log \
                 steps, and the points scatter about it by 3.0 %.",
            ]
        );
        assert_eq!(first_caveat(&sound()), "");
    }

    #[test]
    fn the_headline_is_a_row_for_each_case_and_its_first_caveat() {
        let mut study = CriticalBatch {
            unfinished: None,
            name: "steps".to_owned(),
            description: None,
            target: Some("validation accuracy of at least 0.97".to_owned()),
            crossing: None,
            cases: vec![sound()],
        };
        assert_eq!(
            headline(&study),
            [
                "Target: validation accuracy of at least 0.97",
                "B_crit  95 % interval  S_min   E_min  20 % overhead  seeds",
                "   200     170 to 240     50  10,000             40      3",
            ]
        );
        let mut one = changed(|fit| fit.intervals = None);
        for point in &mut one.batches {
            point.seeds.truncate(1);
        }
        one.label = "optimizer=adamw".to_owned();
        let mut none = sound();
        none.label = "lost".to_owned();
        none.fit = Err(FitError::NothingReached { samples: 3 });
        for point in &mut none.batches {
            point.seeds = vec![seed(0, None)];
        }
        study.cases = vec![one, none];
        study.target = None;
        assert_eq!(
            headline(&study),
            [
                "case             B_crit  95 % interval  S_min   E_min  20 % overhead  seeds",
                "optimizer=adamw     200              -     50  10,000             40      1",
                "lost               none              -      -       -              -      1",
                "optimizer=adamw: There is one seed, so no interval can be given: another seed may move \
                 these numbers. Add two or more.",
                "lost: There is no critical batch size to give: no trial reached the target, at any \
                 batch. The longest trial made 700 updates. Choose a target within reach, or give trials \
                 more updates.",
            ]
        );
    }

    #[test]
    fn a_curve_that_never_flattens_gives_at_least() {
        let case = changed(|fit| {
            fit.fit.bound = Some(Bound::Above);
            fit.fit.b_crit = 400_000.0;
            fit.fit.s_min = 0.025;
            fit.intervals = None;
        });
        let text = words(&case).join(" ");
        says(
            &text,
            "in proportion to the batch up to the largest that reached it, 400: no batch flattens",
        );
        says(
            &text,
            "B_crit is at least 400; larger batches must be measured",
        );
        says(&text, "A run takes about 10,000 examples at any of these.");
        assert!(!text.contains("twice the fewest"), "{text}");
        let row = headline_row(&case);
        assert_eq!(row[1..6], ["\u{2265} 400", "-", "-", "10,000", "-"]);
        says(&first_caveat(&case), "only bounds of them are known");
    }

    #[test]
    fn the_lower_end_of_the_interval_bounds_what_at_least_may_say() {
        let case = changed(|fit| {
            fit.fit.bound = Some(Bound::Above);
            if let Some(found) = &mut fit.intervals {
                found.b_crit = interval(300.0, f64::INFINITY);
            }
        });
        says(&words(&case).join(" "), "B_crit is at least 300;");
    }

    #[test]
    fn a_bound_that_seeds_leave_open_is_no_number() {
        for (side, open) in [
            (Bound::Above, interval(0.0, f64::INFINITY)),
            (Bound::Below, interval(0.0, f64::INFINITY)),
        ] {
            let case = changed(|fit| {
                fit.fit.bound = Some(side);
                if let Some(found) = &mut fit.intervals {
                    found.b_crit = open;
                }
            });
            says(&words(&case)[0], "B_crit is open on both sides");
            assert_eq!(headline_row(&case)[1], "open");
        }
    }

    #[test]
    fn several_seeds_that_give_no_interval_are_not_called_one() {
        let case = changed(|fit| fit.intervals = None);
        says(
            &first_caveat(&case),
            "Too few seeds reached the target at two batches",
        );
    }

    #[test]
    fn a_curve_that_never_falls_gives_at_most() {
        let case = changed(|fit| {
            fit.fit.bound = Some(Bound::Below);
            fit.fit.b_crit = 0.025;
            fit.intervals = None;
        });
        let text = words(&case).join(" ");
        says(
            &text,
            "do not fall from the smallest batch that reached it, 25, on",
        );
        says(
            &text,
            "B_crit is at most 25; smaller batches must be measured",
        );
        says(&text, "about 50 updates at any of these");
        assert_eq!(
            headline_row(&case)[1..6],
            ["\u{2264} 25", "-", "50", "-", "-"]
        );
    }

    #[test]
    fn one_seed_has_no_interval_and_two_batches_no_goodness() {
        let mut case = changed(|fit| {
            fit.intervals = None;
            fit.goodness.r_squared = None;
        });
        case.batches.truncate(2);
        for point in &mut case.batches {
            point.seeds.truncate(1);
        }
        let text = words(&case).join(" ");
        says(&text, "B_crit is 200 examples. At");
        says(&text, "rest on 1 seed at each of 2 batches, 25 to 50.");
        says(&text, "There is one seed, so no interval can be given");
        says(
            &text,
            "fitted to two batches, so nothing says how well the curve fits",
        );
        assert!(!text.contains("explains"), "{text}");
    }

    #[test]
    fn edges_seeds_that_did_not_reach_and_failures_are_named() {
        let mut case = sound();
        case.batches[0].seeds[1].edge = true;
        case.batches[4].seeds[0].edge = true;
        case.batches[4].seeds[2] = seed(2, None);
        case.batches[3].seeds[0].tried = vec![Tried {
            rate: 0.1,
            others: String::new(),
            steps: None,
            end: TriedEnd::Failed,
            made: 0,
            best: None,
        }];
        let text = words(&case).join(" ");
        says(
            &text,
            "At batches 25 and 400 the best rate is the smallest or the largest that was tried",
        );
        says(
            &text,
            "The target was not reached by 1 of 3 seeds at batch 400:",
        );
        says(&text, "1 trial failed by an error");
        case.batches[1].seeds.pop();
        says(
            &words(&case).join(" "),
            "These numbers rest on 2 to 3 seeds at each",
        );
    }

    #[test]
    fn a_law_that_does_not_fit_is_said_with_its_test() {
        let case = changed(|fit| {
            fit.goodness.lack_of_fit = Some(LackOfFit {
                f: 7.34,
                freedom: (3, 10),
                p: 0.0069,
            });
        });
        says(
            &first_caveat(&case),
            "(F(3, 10) = 7.3, p = 0.007): the law is not exact here",
        );
    }

    #[test]
    fn wide_and_open_intervals_and_extrapolation_are_said() {
        let with = |low, high| {
            changed(|fit| {
                if let Some(found) = &mut fit.intervals {
                    found.b_crit = interval(low, high);
                }
            })
        };
        says(
            &first_caveat(&with(100.0, 500.0)),
            "differ by a factor of 5.0",
        );
        let open = with(150.0, f64::INFINITY);
        says(
            &first_caveat(&open),
            "no upper end: in some resamples no batch flattens",
        );
        says(&words(&open)[0], "(95 % interval: from 150 on)");
        says(&first_caveat(&with(0.0, 500.0)), "no lower end");
        says(&words(&with(0.0, 500.0))[0], "(95 % interval: up to 500)");
        let beyond = changed(|fit| fit.fit.b_crit = 900.0);
        says(
            &first_caveat(&beyond),
            "beyond the largest batch that reached the target, 400: S_min",
        );
        let below = changed(|fit| fit.fit.b_crit = 9.0);
        says(
            &first_caveat(&below),
            "below the smallest batch that reached the target, 25: E_min",
        );
    }

    #[test]
    fn points_that_stay_efficient_are_said_to() {
        let case = changed(|fit| fit.measured_efficient_batch = None);
        says(
            &words(&case)[0],
            "no batch up to 400 takes 20 % more examples than batch 25",
        );
    }

    fn lost(error: FitError, change: impl FnOnce(&mut Vec<BatchPoint>)) -> String {
        let mut case = sound();
        case.fit = Err(error);
        case.estimates[0].value = None;
        change(&mut case.batches);
        words(&case).join(" ")
    }

    #[test]
    fn a_target_that_no_trial_reached_comes_with_what_was_reached() {
        let tried = |best, end| Tried {
            rate: 0.1,
            others: String::new(),
            steps: None,
            end,
            made: 700,
            best,
        };
        let text = lost(FitError::NothingReached { samples: 2 }, |batches| {
            *batches = vec![point(25, &[None]), point(50, &[None])];
            batches[0].seeds[0].tried = vec![
                tried(Some(0.9134), TriedEnd::Censored),
                tried(Some(f64::NAN), TriedEnd::Diverged),
            ];
            batches[1].seeds[0].tried = vec![tried(Some(0.951), TriedEnd::Censored)];
        });
        assert_eq!(
            text,
            "There is no critical batch size to give: no trial reached the target, at any batch. The \
             longest trial made 700 updates. The best values of the target's metric that trials reached \
             lie between 0.9134 and 0.9510. 1 trial diverged. Choose a target within reach, or give \
             trials more updates."
        );
        let text = lost(FitError::NothingReached { samples: 1 }, |batches| {
            *batches = vec![point(25, &[None])];
            batches[0].seeds[0].tried = vec![tried(Some(0.5), TriedEnd::Censored)];
        });
        says(
            &text,
            "The best value of the target's metric that was reached is 0.5000.",
        );
        let text = lost(FitError::TooFewBatches { found: 0 }, Vec::clear);
        assert_eq!(
            text,
            "There is no critical batch size to give: no batch was measured."
        );
    }

    #[test]
    fn one_batch_that_reached_the_target_is_too_few() {
        let text = lost(FitError::TooFewBatches { found: 1 }, |batches| {
            *batches = vec![point(25, &[Some(9.0)]), point(50, &[None])];
        });
        says(&text, "only batch 25 reached the target");
        says(&text, "Without it went 700 updates at batch 50.");
        let text = lost(FitError::TooFewBatches { found: 1 }, |batches| {
            batches.truncate(1);
        });
        says(&text, "No other batch was measured.");
    }

    #[test]
    fn a_target_met_at_once_has_no_logarithm() {
        let error = FitError::NotPositive {
            sample: 1,
            column: "steps",
            found: 0.0,
        };
        let text = lost(error.clone(), |batches| {
            batches[0].seeds[0].steps = Some(0.0);
            batches[1].seeds[2].steps = Some(0.0);
        });
        assert_eq!(
            text,
            "There is no critical batch size to give: at batches 25 and 50 the target was met before the \
             first update, and 0 updates have no logarithm. Such a target says nothing \
             about training: choose a harder one."
        );
        says(
            &lost(error, |_| {}),
            "There is no critical batch size to give: sample 1",
        );
    }

    #[test]
    fn the_best_rate_is_told_with_its_law_as_far_as_it_is_known() {
        let mut case = sound();
        case.batches[0].rate = Some(mean(0.02));
        assert_eq!(
            rates(&case),
            ["The best learning rate at batch 25 is 0.020."]
        );
        case.batches[4].rate = Some(mean(0.2));
        let text = rates(&case).join(" ");
        says(
            &text,
            "goes from 0.020 at batch 25 to 0.20 at batch 400: 10 times for 16 times the batch.",
        );
        says(&text, "Fewer than three batches have a best rate");
        let mut law = RateLaw {
            fit: RateFit {
                rate_max: 0.3,
                b_star: 180.0,
                alpha: 0.9,
                log_sd: 0.1,
                n: 15,
                alpha_given: false,
                batches: (25.0, 400.0),
            },
            alpha: Some(interval(0.7, 1.1)),
            b_star: Some(interval(120.0, 260.0)),
            initial_exponent: Some(0.83),
        };
        case.rate_law = Some(law.clone());
        let text = rates(&case).join(" ");
        says(&text, "it grows as B to the power 0.83");
        says(
            &text,
            "eps_max 0.30, alpha 0.90 (0.70 to 1.10) and B* 180 (120 to 260), about which the growth ends.",
        );
        law.fit.b_star = 4000.0;
        (law.alpha, law.b_star) = (None, None);
        case.rate_law = Some(law.clone());
        says(
            &rates(&case).join(" "),
            "alpha 0.90 and B* 4000, beyond the batches measured: the growth has not ended.",
        );
        law.fit.b_star = 2.0;
        case.rate_law = Some(law.clone());
        says(&rates(&case).join(" "), "B* 2, below the batches measured");
        law.fit.b_star = 400_000.0;
        case.rate_law = Some(law.clone());
        says(
            &rates(&case).join(" "),
            "it grows as B to the power 0.90, without an end",
        );
        law.fit.alpha = 0.0;
        case.rate_law = Some(law);
        says(&rates(&case).join(" "), "finds no growth");
    }

    fn with_estimates() -> Case {
        let mut case = sound();
        case.estimates[0].published = Some(Published {
            value: 300.0,
            source: "a table",
        });
        case.estimates[0].cost = Some(Cost {
            examples: 1_234_567,
            seconds: Some(40.0),
            trials: 90,
        });
        let mut rows = vec![
            row("noise scale at the start", "b_simple", Some(40.0)),
            row("noise scale on average", "b_simple", Some(360.0)),
            row("noise scale on average", "b_noise", Some(90.0)),
            row("noise scale near the target", "b_simple", Some(1200.0)),
            row("branches after 9000 examples", "branched", Some(400.0)),
            row("branches after 1000 examples", "branched", None),
        ];
        rows[4].note = format!("{AT_LEAST}: the largest branch stayed within the tolerance");
        rows[4].ratio = None;
        for (row, share) in rows
            .iter_mut()
            .zip([0.002, 0.031, 0.031, 0.031, 0.12, 0.12])
        {
            row.share = Some(share);
        }
        case.estimates.extend(rows);
        case
    }

    #[test]
    fn the_estimates_are_told_apart_and_held_against_the_aim() {
        let paragraphs = words(&with_estimates());
        says(
            &paragraphs[0],
            "Published for the same data, with another model and target: 300 (a table).",
        );
        says(
            &paragraphs[0],
            "To learn this took 90 trials, 1,230,000 examples and 40 s of work.",
        );
        assert_eq!(
            paragraphs[2],
            "Beside the 200 of the sweep, B_simple is 40 at the start (0.20 times), 360 on average \
             (1.8 times) and 1200 near the target (6.0 times); B_noise is 90 on average (0.45 times); \
             branches hold the loss up to at least 400 after 9000 examples and no batch after 1000 \
             examples. B_simple leaves the curvature out and B_noise counts it, which makes B_noise \
             0.25 times as large on average. The noise scale is of one moment, and over this training \
             B_simple grows by a factor of 30, so when it is taken matters. Branches are of one moment \
             too: they ask which batch keeps the loss there, where the sweep averages over the whole run \
             to the target. Within a factor of 2 of the sweep, at no more than 5 % of its examples: \
             B_simple on average (at 3.1 %). Which of them comes close is known only beside the sweep."
        );
    }

    #[test]
    fn what_is_close_and_dear_or_not_close_at_all_is_said() {
        let mut case = with_estimates();
        for row in &mut case.estimates {
            row.share = Some(0.3);
        }
        says(
            &words(&case)[2],
            "Within a factor of 2 of the sweep, but none at 5 % of its examples or less: B_simple on \
             average (at 30 %).",
        );
        case.estimates.retain(|row| row.value != Some(360.0));
        says(
            &words(&case)[2],
            "None is within a factor of 2 of the sweep; the nearest is B_noise on average (at 30 %), \
             0.45 times it.",
        );
        case.estimates
            .retain(|row| row.quantity != "b_noise" && row.quantity != "b_simple");
        let text = &words(&case)[2];
        says(
            text,
            "None of these gives a number to hold against the sweep.",
        );
        let mut both = with_estimates();
        both.estimates[5].ratio = Some(1.1);
        both.estimates[5].share = None;
        let text = &words(&both)[2];
        says(
            text,
            "at no more than 5 % of its examples: B_simple on average (at 3.1 %).",
        );
        says(
            text,
            "at more than 5 % or an unknown share: branches after 9000 examples.",
        );
    }

    #[test]
    fn estimates_without_a_sweep_are_told_alone() {
        let mut case = with_estimates();
        case.fit = Err(FitError::TooFewBatches { found: 1 });
        case.estimates[0].value = None;
        for row in &mut case.estimates {
            row.ratio = None;
        }
        case.estimates[4].value = None;
        let text = words(&case).join(" ");
        says(
            &text,
            "The sweep gives no number to compare with (the target was reached at one batch only); \
             B_simple is 40 at the start, 360 on average and undetermined near the target;",
        );
        assert!(!text.contains("factor of 2"), "{text}");
        assert!(!text.contains("falls by"), "{text}");
    }

    #[test]
    fn large_numbers_are_rounded_to_three_digits() {
        assert_eq!(about(2_834_865.0), "2,830,000");
        assert_eq!(about(999_960.0), "1,000,000");
        assert_eq!(about(12.34), "12.3");
        assert_eq!(about(f64::INFINITY), "inf");
        assert_eq!(between(interval(0.0, f64::INFINITY)), "open");
    }
}
