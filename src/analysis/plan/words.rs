//! What a plan says, in words and as a table.

use std::fmt::Write as _;

use super::answer::{Checked, PlanAnswer, Row};
use crate::analysis::numbers::{count, fixed, list, signed, significant};
use crate::math::statistics::Interval;
use crate::theory::plan::{Point, StepTime, Strategy, Way};

/// Seconds in the unit that suits them.
pub fn duration(seconds: f64) -> String {
    const UNITS: [(f64, &str); 6] = [
        (365.25 * 86_400.0, "years"),
        (86_400.0, "days"),
        (3600.0, "h"),
        (60.0, "min"),
        (1.0, "s"),
        (1e-3, "ms"),
    ];
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    let unit = UNITS.into_iter().find(|(size, _)| seconds >= 2.0 * size);
    let (size, name) = unit.unwrap_or((1e-6, "\u{b5}s"));
    format!("{} {name}", amount(seconds / size))
}

/// A number with three digits, whole from 1000 on.
pub fn amount(value: f64) -> String {
    if (1000.0..1e9).contains(&value) {
        count(value.round() as u64)
    } else {
        significant(value, 3)
    }
}

/// A decimal number without the zeros that it ends in.
pub(super) fn trimmed(number: &str) -> String {
    let (digits, exponent) = number.split_at(number.find('e').unwrap_or(number.len()));
    if !digits.contains('.') {
        return number.to_owned();
    }
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{exponent}")
}

/// A cost with its unit.
fn cost(answer: &PlanAnswer, value: f64) -> String {
    format!("{} {}", amount(value), answer.unit)
}

fn percent(share: f64) -> String {
    format!("{} %", trimmed(&significant(100.0 * share, 2)))
}

/// "1 worker", "64 workers".
pub(super) fn workers(n: u64) -> String {
    let noun = if n == 1 { "worker" } else { "workers" };
    format!("{} {noun}", count(n))
}

fn range(interval: Option<Interval>) -> String {
    interval.map_or(String::new(), |i| {
        format!(" ({} to {})", duration(i.low), duration(i.high))
    })
}

fn span((low, high): (u64, u64)) -> String {
    if low == high {
        count(low)
    } else {
        format!("{} to {}", count(low), count(high))
    }
}

/// The answer in a few paragraphs.
pub fn words(answer: &PlanAnswer) -> Vec<String> {
    let mut paragraphs = vec![best_number(answer), limits(answer), sureness(answer)];
    paragraphs.extend(ways(answer));
    paragraphs.extend(check(answer));
    paragraphs.extend(answer.notes.iter().cloned());
    paragraphs
}

fn best_number(answer: &PlanAnswer) -> String {
    let (fastest, fewest, worth) = (&answer.plan.fastest, answer.fewest(), &answer.worth_it);
    let mut text = format!(
        "The target is reached soonest on {}: in {}{}, for {}.",
        workers(fastest.workers),
        duration(fastest.time),
        range(answer.interval(fastest)),
        cost(answer, fastest.cost),
    );
    if fastest.workers == answer.up_to && fastest.workers > fewest.workers {
        text.push_str(" More were not asked about, and the time still falls there.");
    }
    if fastest.workers == fewest.workers {
        if answer.up_to > fastest.workers {
            text.push_str(" More take longer.");
        }
        return text;
    }
    let takes = if fewest.workers == 1 {
        "One worker takes".to_owned()
    } else {
        format!(
            "The model does not fit on fewer than {}, which take",
            workers(fewest.workers)
        )
    };
    let used = percent(answer.efficiency);
    let _ = write!(
        text,
        " {takes} {}, for {}.",
        duration(fewest.time),
        cost(answer, fewest.cost)
    );
    if worth.workers == fastest.workers {
        let _ = write!(
            text,
            " All of them are worth it: {} of what they cost is used, at least {used} was asked for.",
            percent(answer.efficiency_of(worth))
        );
        return text;
    }
    if worth.workers == fewest.workers {
        let _ = write!(
            text,
            " Already on {}, less than {used} of what they cost would be used.",
            workers(fewest.workers + 1)
        );
        return text;
    }
    let _ = write!(
        text,
        " Up to {} at least {used} of what they cost is used: these take {}{}, {} times as fast for {} times the cost.",
        workers(worth.workers),
        duration(worth.time),
        range(answer.interval(worth)),
        significant(fewest.time / worth.time, 3),
        significant(worth.cost / fewest.cost, 3)
    );
    if let Some(patient) = answer.plan.cheapest_within(2.0 * fastest.time)
        && patient.workers != worth.workers
        && patient.cost < fastest.cost
    {
        let _ = write!(
            text,
            " Who can wait {}, twice the shortest time, pays {} on {}.",
            duration(2.0 * fastest.time),
            cost(answer, patient.cost),
            workers(patient.workers)
        );
    }
    text
}

/// What takes from the efficiency of a point, the largest first: what, and the factor that is left.
pub(super) fn losses(answer: &PlanAnswer, point: &Point) -> Vec<(&'static str, f64)> {
    let (statistical, machine) = answer.efficiency_parts(point);
    let kept = 1.0 - point.step.communication();
    let busy = 1.0 - point.step.bubble / (point.step.total() * kept).max(f64::MIN_POSITIVE);
    let rest = machine / (kept * busy);
    let mut losses = vec![
        (
            "the statistics: larger batches need more examples",
            statistical,
        ),
        ("communication", kept),
        ("pipelines that fill and empty", busy),
        (
            "what an update takes besides its examples: fixed times, shared cores, stragglers",
            rest,
        ),
    ];
    losses.retain(|(_, left)| *left < 0.99);
    losses.sort_by(|a, b| a.1.total_cmp(&b.1));
    losses
}

fn limits(answer: &PlanAnswer) -> String {
    let plan = &answer.plan;
    let (law, fastest) = (&answer.task.law, &plan.fastest);
    let mut text = match &plan.communication_half {
        Some(point) => format!(
            "Communication first takes half of an update or more on {}.",
            workers(point.workers)
        ),
        None => format!(
            "Communication takes less than half of an update on any number of workers up to {}.",
            count(answer.up_to)
        ),
    };
    let worth = answer.worth;
    // B_crit/(B + B_crit) = worth.
    let end = law.b_crit * (1.0 - worth) / worth;
    let at = if worth == 0.5 {
        format!("B_crit, {} examples", amount(law.b_crit))
    } else {
        format!("{} examples", amount(end))
    };
    let saves = format!(
        "1 % more batch saves {} % of the updates",
        trimmed(&significant(worth, 2))
    );
    let _ = match &plan.statistics_end {
        Some(point) => write!(
            text,
            " The best batch first comes to {at}, or more, on {}: {saves} or less there.",
            workers(point.workers)
        ),
        None => write!(text, " The best batch stays below {at}, where {saves}."),
    };
    if fastest.workers == answer.fewest().workers {
        return text;
    }
    let losses = losses(answer, fastest);
    let _ = write!(
        text,
        " Of what {} cost, {} is used.",
        workers(fastest.workers),
        percent(answer.efficiency_of(fastest))
    );
    if let [(most, left), others @ ..] = losses.as_slice() {
        let _ = write!(
            text,
            " What limits them most is {most} (leaves {})",
            percent(*left)
        );
        let others: Vec<String> = others
            .iter()
            .map(|(what, left)| format!("{what} ({})", percent(*left)))
            .collect();
        if others.is_empty() {
            text.push('.');
        } else {
            let _ = write!(text, "; then {}.", list(&others));
        }
    }
    text
}

fn sureness(answer: &PlanAnswer) -> String {
    let Some(spread) = &answer.spread else {
        return "How sure this is cannot be told: no intervals of the law or of the device are known."
            .to_owned();
    };
    let varied: Vec<String> = spread.varied.iter().map(|&v| v.to_owned()).collect();
    let intervals = if answer.interval(&answer.plan.fastest).is_some() {
        "Times in brackets have the steps and the device's times at the ends of their intervals, where they have one. "
    } else {
        ""
    };
    format!(
        "{intervals}With {} at the ends of the intervals, the fastest number of workers is {}, and the most that are worth it {}.",
        list(&varied),
        span(spread.fastest),
        span(spread.worth_it),
    )
}

/// "data", or "feature-groups, 16 groups of 8".
pub fn layout(point: &Point) -> String {
    let name = point.strategy.name();
    match point.strategy {
        Strategy::FeatureGroups(_) | Strategy::PipelineGroups(_) => {
            format!("{name}, {} of {}", count(point.groups), count(point.group))
        }
        _ => name.to_owned(),
    }
}

fn ways(answer: &PlanAnswer) -> Option<String> {
    let plan = &answer.plan;
    let fastest = &plan.fastest;
    let mut text = String::new();
    let mut strategies: Vec<&'static str> = plan.series.iter().map(|s| s.strategy.name()).collect();
    strategies.sort_unstable();
    strategies.dedup();
    if strategies.len() > 1 {
        text = format!("The fastest uses {}.", layout(fastest));
        let data = |p: &&Point| p.strategy == Strategy::Data;
        let until = plan.best.iter().take_while(data).last();
        if let Some(until) = until.filter(|p| p.workers < fastest.workers) {
            let _ = write!(
                text,
                " Data alone is best up to {}.",
                workers(until.workers)
            );
        }
    }
    if answer.networks.len() > 1 {
        let _ = write!(
            text,
            " Of the algorithms compared, {} is fastest there.",
            answer.networks[fastest.network]
        );
    }
    if let Some(way) = answer.sums_by(fastest)
        && answer.networks[fastest.network] == "best"
    {
        let _ = write!(text, " Gradients are summed by {} there.", way.name());
    }
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn check(answer: &PlanAnswer) -> Option<String> {
    let errors: Vec<f64> = answer.checked.iter().filter_map(Checked::error).collect();
    let low = errors.iter().copied().reduce(f64::min)?;
    let high = errors.iter().copied().reduce(f64::max)?;
    let mut numbers: Vec<u64> = answer.checked.iter().map(|c| c.measured.workers).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let numbers: Vec<String> = numbers.into_iter().map(count).collect();
    let off = |x: f64| format!("{} %", signed(100.0 * x, 1));
    Some(format!(
        "Updates measured on {} workers: the prediction is off by {} to {}.",
        list(&numbers),
        off(low),
        off(high)
    ))
}

/// A table: names of columns, and rows.
pub type TextTable = (Vec<String>, Vec<Vec<String>>);

/// Selected numbers of workers.
pub fn table(answer: &PlanAnswer) -> TextTable {
    let several = answer.plan.series.len() > 1;
    let sums = answer.networks.iter().any(|n| n == "best");
    let sure = answer.interval(answer.fewest()).is_some();
    let mut head = vec!["workers".to_owned(), "time to target".to_owned()];
    if sure {
        head.push("interval".to_owned());
    }
    head.push(format!("cost ({})", answer.unit));
    let rest = [
        "best batch",
        "updates",
        "an update",
        "communication",
        "efficiency",
    ];
    head.extend(rest.map(str::to_owned));
    if several {
        head.push("how".to_owned());
    }
    if sums {
        head.push("sums by".to_owned());
    }
    head.push("mark".to_owned());
    let row = |row: &Row| {
        let point = &row.point;
        let interval = answer.interval(point);
        let mut cells = vec![count(point.workers), duration(point.time)];
        if sure {
            let ends = |i: Interval| format!("{} to {}", duration(i.low), duration(i.high));
            cells.push(interval.map_or_else(dash, ends));
        }
        cells.extend([
            amount(point.cost),
            amount(point.batch),
            amount(point.steps),
            duration(point.step.total()),
            format!("{} %", fixed(100.0 * point.step.communication(), 1)),
            format!("{} %", fixed(100.0 * answer.efficiency_of(point), 1)),
        ]);
        if several {
            let mut how = layout(point);
            if answer.networks.len() > 1 {
                how = format!("{how}; {}", answer.networks[point.network]);
            }
            cells.push(how);
        }
        if sums {
            cells.push(answer.sums_by(point).map_or_else(dash, Way::name));
        }
        cells.push(row.marks.join(", "));
        cells
    };
    (head, answer.rows.iter().map(row).collect())
}

fn dash() -> String {
    "\u{2013}".to_owned()
}

/// Measured beside predicted; no rows without measurements.
pub fn check_table(answer: &PlanAnswer) -> TextTable {
    let head = [
        "workers",
        "batch",
        "measured",
        "interval",
        "predicted",
        "computing",
        "communication",
        "error",
    ];
    let row = |checked: &Checked| {
        let measured = &checked.measured;
        let predicted = |of: fn(&StepTime) -> f64| {
            checked
                .predicted
                .map_or_else(dash, |step| duration(of(&step)))
        };
        vec![
            count(measured.workers),
            count(measured.batch),
            duration(measured.seconds),
            measured.interval.map_or_else(dash, |i| {
                format!("{} to {}", duration(i.low), duration(i.high))
            }),
            predicted(StepTime::total),
            predicted(|s| s.compute + s.bubble),
            predicted(|s| s.exchange + s.exposed),
            checked
                .error()
                .map_or_else(dash, |e| format!("{} %", signed(100.0 * e, 1))),
        ]
    };
    let rows = answer.checked.iter().map(row).collect();
    (head.map(str::to_owned).to_vec(), rows)
}

/// What is printed: the answer in words, and its tables.
pub fn printed(answer: &PlanAnswer) -> Vec<String> {
    let mut lines = vec![format!("{}: how many workers are worth it?", answer.name)];
    for paragraph in words(answer) {
        lines.push(String::new());
        lines.push(paragraph);
    }
    for table in [table(answer), check_table(answer)] {
        if !table.1.is_empty() {
            lines.push(String::new());
            lines.extend(aligned(&table));
        }
    }
    lines
}

/// Columns side by side, two spaces between them: numbers, which come first, to the right.
fn aligned((head, rows): &TextTable) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.fold(head[column].chars().count(), usize::max)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let words = ["how", "sums by", "mark"];
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if words.contains(&head[column].as_str()) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(head).chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_suits_them() {
        for (seconds, expected) in [
            (3e-5, "30.0 \u{b5}s"),
            (0.0, "0 s"),
            (0.0123, "12.3 ms"),
            (90.0, "90.0 s"),
            (600.0, "10.0 min"),
            (90_000.0, "25.0 h"),
            (864_000.0, "10.0 days"),
            (1e11, "3,169 years"),
        ] {
            let found = duration(seconds);
            assert!(
                found == expected || found == expected.replace(',', ""),
                "{found}"
            );
        }
    }

    #[test]
    fn zeros_at_the_end_say_nothing() {
        for (number, expected) in [
            ("2.500", "2.5"),
            ("50.0", "50"),
            ("1.50e9", "1.5e9"),
            ("100", "100"),
        ] {
            assert_eq!(trimmed(number), expected);
        }
    }

    #[test]
    fn columns_line_up() {
        let head = vec!["workers".to_owned(), "mark".to_owned()];
        let rows = vec![
            vec!["1".to_owned(), String::new()],
            vec!["1024".to_owned(), "fastest".to_owned()],
        ];
        let lines = aligned(&(head, rows));
        assert_eq!(lines, ["workers  mark", "      1", "   1024  fastest"]);
    }
}
