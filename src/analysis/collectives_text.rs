//! The cost of collectives, and measurements beside their model, as lines for a terminal.

use super::collectives::{Choice, Collectives, Crossover, Row, scientific};
use super::collectives_measured::{COST_NAMES, FittedCollectives, MeasuredRow};
use super::numbers::{count, list, plural, significant};
use crate::theory::collectives::{Algorithm, Operation, Power};

/// Cases up to which each has a line of its own.
const FEW: usize = 60;

/// Most numbers of ranks, and lengths, in one table; of more, as many at equal distances.
const SHOWN: usize = 10;

/// Bytes as people write them: `64 B`, `1 MiB`.
pub fn bytes(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", count(bytes / unit));
        }
    }
    format!("{} B", count(bytes))
}

fn microseconds(seconds: f64) -> String {
    significant(seconds * 1e6, 4)
}

fn whole(n: u128) -> String {
    u64::try_from(n).map_or_else(|_| n.to_string(), count)
}

fn percent(share: f64) -> String {
    let text = significant(100.0 * share, 2);
    if share > 0.0 {
        format!("+{text}")
    } else {
        text
    }
}

/// Rows as lines with aligned columns: the first flush left, the others flush right.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::from(" ");
            for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let room = width - cell.chars().count();
                let (before, after) = if i == 0 { (0, room) } else { (room, 0) };
                line.push(' ');
                if i > 0 {
                    line.push(' ');
                }
                line.extend(std::iter::repeat_n(' ', before));
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', after));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

fn cells(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// As many of the values as are shown, both ends among them.
pub fn thinned(values: &[u64], most: usize) -> Vec<u64> {
    let n = values.len();
    if n <= most || most < 2 {
        return values.to_vec();
    }
    let at = |i: usize| values[(i * (n - 1) + (most - 1) / 2) / (most - 1)];
    (0..most).map(at).collect()
}

/// All of a table of costs.
pub fn lines(found: &Collectives) -> Vec<String> {
    let question = &found.question;
    let parameters = question.network.parameters();
    let parameters: Vec<String> = parameters
        .iter()
        .map(|(name, value, unit)| format!("{name} = {} {unit}", scientific(*value)))
        .collect();
    let mut lines = vec![
        format!(
            "model {}: {}",
            question.network.name(),
            parameters.join(", ")
        ),
        question.source.clone(),
    ];
    let power = question.power;
    lines.push(if power == Power::default() {
        format!("elements of {} B", question.element_bytes)
    } else {
        format!(
            "elements of {} B; energy: {} W a rank, {} J a message, {} J a byte",
            question.element_bytes,
            significant(power.static_watts, 3),
            significant(power.message_joules, 3),
            significant(power.byte_joules, 3)
        )
    });
    lines.extend(simulation(found));
    for &operation in &question.operations {
        let of = |row: &&Row| row.case.operation == operation;
        let rows: Vec<&Row> = found.rows.iter().filter(of).collect();
        lines.push(String::new());
        if rows.len() <= FEW {
            lines.push(format!("{operation}: every case; * is the fastest"));
            lines.extend(details(&rows, true));
        } else {
            lines.extend(matrices(found, operation, &rows));
        }
        lines.extend(crossovers(found, operation));
    }
    lines
}

/// What was simulated, and how it compares.
fn simulation(found: &Collectives) -> Vec<String> {
    let question = &found.question;
    let exact: Vec<_> = found.rows.iter().filter_map(|row| row.simulated).collect();
    if exact.is_empty() {
        return vec!["event simulation: of no case".to_owned()];
    }
    let apart = exact
        .iter()
        .filter(|e| e.simulated != e.closed_form)
        .count();
    let differ = if apart == 0 {
        "each equal to its closed form, difference 0 s exactly".to_owned()
    } else {
        format!("{apart} of them differ from their closed form")
    };
    let mut lines = vec![format!(
        "event simulation: {} of {}, those with at most {} ranks and {} messages; {differ}",
        count(exact.len() as u64),
        plural(found.rows.len(), "case", "cases"),
        question.simulated.ranks,
        whole(question.simulated.messages),
    )];
    if let Some(disturbed) = question.disturbed {
        let mut what = Vec::new();
        if disturbed.jitter > 0.0 {
            what.push(format!(
                "each message exponentially distributed seconds longer, mean {:e} s, over {}",
                disturbed.jitter,
                plural(disturbed.seeds as usize, "seed", "seeds")
            ));
        }
        if let Some(link) = disturbed.slow_link {
            what.push(format!(
                "the link between ranks {} and {} {} times slower",
                link.ranks.0, link.ranks.1, link.factor
            ));
        }
        lines.push(format!("disturbed: {}", list(&what)));
    }
    lines
}

/// A line a row.
fn details(rows: &[&Row], places: bool) -> Vec<String> {
    let disturbed = rows.iter().any(|row| row.disturbed.is_some());
    let bounded = rows.iter().any(|row| row.bounds.is_some());
    let energy = rows.iter().any(|row| row.energy > 0.0);
    let mut head = cells(&["algorithm"]);
    if places {
        head.extend(cells(&["ranks", "length"]));
    }
    head.extend(cells(&[
        "time (µs)",
        "messages",
        "bytes sent (B)",
        "memory (B)",
    ]));
    if energy {
        head.push("energy (J)".to_owned());
    }
    if bounded {
        head.push("bound (µs)".to_owned());
    }
    head.push("simulated - closed (s)".to_owned());
    if disturbed {
        head.extend(cells(&["disturbed (µs)", "95 % interval (µs)"]));
    }
    let mut table = vec![head];
    for row in rows {
        let star = if row.fastest { " *" } else { "" };
        let mut line = vec![row.case.algorithm.to_string()];
        if places {
            line.extend([count(row.case.ranks as u64), bytes(row.bytes())]);
        }
        line.extend([
            format!("{}{star}", microseconds(row.time)),
            whole(row.traffic.messages),
            whole(row.traffic.bytes),
            whole(row.extra_memory),
        ]);
        if energy {
            line.push(significant(row.energy, 4));
        }
        if bounded {
            line.push(row.bound().map_or_else(dash, microseconds));
        }
        line.push(
            row.simulated
                .map_or_else(dash, |s| s.difference().to_string()),
        );
        if disturbed {
            line.push(row.disturbed.map_or_else(dash, |d| microseconds(d.mean)));
            let interval = row.disturbed.and_then(|d| d.interval());
            line.push(interval.map_or_else(dash, |i| {
                format!("{} to {}", microseconds(i.low), microseconds(i.high))
            }));
        }
        table.push(line);
    }
    let mut lines = aligned(&table);
    if places && rows.iter().any(|row| row.bounds.is_some()) {
        lines.push("  bound: what no algorithm can beat, the largest of those of latency, bandwidth and adding".to_owned());
    }
    lines
}

fn dash() -> String {
    "-".to_owned()
}

/// A table of times for each number of ranks, and the details at the longest.
fn matrices(found: &Collectives, operation: Operation, rows: &[&Row]) -> Vec<String> {
    let question = &found.question;
    let choices = question.choices(operation);
    let shown_bytes = thinned(&question.bytes, SHOWN);
    let mut lines = Vec::new();
    for ranks in thinned(&question.ranks, SHOWN) {
        let here: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.case.ranks as u64 == ranks)
            .collect();
        lines.push(format!(
            "{operation}, {}: time (µs); * is the fastest, in brackets children of a node or segments",
            plural(ranks as usize, "rank", "ranks")
        ));
        let mut head = cells(&["length"]);
        head.extend(choices.iter().map(Choice::to_string));
        if here.iter().any(|row| row.bounds.is_some()) {
            head.push("bound".to_owned());
        }
        let mut table = vec![head];
        for &length in &shown_bytes {
            let of = |choice: &Choice| {
                let mut all = here.iter();
                all.find(|row| row.choice == *choice && row.bytes() == length)
            };
            let cell = |choice: &Choice| {
                let Some(row) = of(choice) else {
                    return dash();
                };
                let parts = row.parts().map_or(String::new(), |n| format!(" ({n})"));
                let star = if row.fastest { " *" } else { "" };
                format!("{}{parts}{star}", microseconds(row.time))
            };
            let mut line = vec![bytes(length)];
            line.extend(choices.iter().map(cell));
            let bound = choices.iter().find_map(|c| of(c)?.bound());
            line.extend(bound.map(microseconds));
            table.push(line);
        }
        lines.extend(aligned(&table));
        if let Some(&longest) = question.bytes.iter().max() {
            let last: Vec<&Row> = here
                .into_iter()
                .filter(|row| row.bytes() == longest)
                .collect();
            lines.push(format!("  of {}:", bytes(longest)));
            lines.extend(details(&last, false));
        }
        lines.push(String::new());
    }
    let left = question.ranks.len() > SHOWN || question.bytes.len() > SHOWN;
    if left {
        lines.push("not all ranks and lengths are shown; --out DIR writes every case".to_owned());
    }
    lines
}

/// Where the fastest changes, a line for each number of ranks.
fn crossovers(found: &Collectives, operation: Operation) -> Vec<String> {
    let question = &found.question;
    if question.choices(operation).len() < 2 {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{operation}: where the fastest algorithm changes with the length of the vector"
    )];
    for &ranks in question.ranks.iter().filter(|ranks| **ranks > 1) {
        let here =
            |c: &&Crossover| c.operation == operation && c.ranks as u64 == ranks && c.of_fastest;
        // Several that are equally fast change at the same length.
        let mut changes: Vec<(u64, Vec<Choice>, Vec<Choice>)> = Vec::new();
        for c in found.crossovers.iter().filter(here) {
            match changes.last_mut().filter(|last| last.0 == c.bytes) {
                Some((_, below, above)) => {
                    below.push(c.below);
                    above.push(c.above);
                }
                None => changes.push((c.bytes, vec![c.below], vec![c.above])),
            }
        }
        let changes: Vec<String> = changes
            .into_iter()
            .map(|(length, below, above)| {
                format!(
                    "{} to {} at {} B",
                    names(below),
                    names(above),
                    count(length)
                )
            })
            .collect();
        let text = if changes.is_empty() {
            "one algorithm is as fast as any at all lengths".to_owned()
        } else {
            changes.join("; ")
        };
        lines.push(format!(
            "  {}: {text}",
            plural(ranks as usize, "rank", "ranks")
        ));
    }
    lines
}

/// "direct or ring".
fn names(mut choices: Vec<Choice>) -> String {
    choices.sort_unstable();
    choices.dedup();
    let names: Vec<String> = choices.iter().map(Choice::to_string).collect();
    names.join(" or ")
}

/// All of a measurement.
pub fn measured_lines(found: &FittedCollectives) -> Vec<String> {
    let mut lines = measured_headline(found);
    lines.push(String::new());
    let mut table = vec![cells(&[
        "operation, algorithm",
        "ranks",
        "length",
        "measured (µs)",
        "quartiles (µs)",
        "model (µs)",
        "error (%)",
        "error from others (%)",
    ])];
    for row in &found.rows {
        let [low, high] = [row.quartiles.0, row.quartiles.1].map(microseconds);
        table.push(vec![
            measured_name(found, row),
            row.ranks.to_string(),
            bytes(row.bytes),
            microseconds(row.median),
            format!("{low} to {high}"),
            row.predicted.map_or_else(dash, microseconds),
            row.error().map_or_else(dash, percent),
            row.left_out_error().map_or_else(dash, percent),
        ]);
    }
    lines.extend(aligned(&table));
    lines.push(
        "  measured: median over the repetitions; error from others: of the model fitted to the other algorithms alone"
            .to_owned(),
    );
    lines
}

/// "all-reduce, ring".
pub fn measured_name(found: &FittedCollectives, row: &MeasuredRow) -> String {
    let algorithm = row.case.map_or_else(
        || found.measurement.native.clone(),
        |c| c.algorithm.to_string(),
    );
    format!("{}, {algorithm}", row.operation())
}

/// On what was measured, what was fitted, and how well it fits.
pub fn measured_headline(found: &FittedCollectives) -> Vec<String> {
    let measurement = &found.measurement;
    let nodes: Vec<String> = measurement
        .nodes
        .iter()
        .map(|node| {
            format!(
                "{} on {}",
                plural(node.ranks, "rank", "ranks"),
                plural(node.cores, "core", "cores")
            )
        })
        .collect();
    let repetitions = found.rows.iter().map(|row| row.n).min().unwrap_or(0);
    let mut lines = vec![format!(
        "measured: {}, {}; {} after {} of warm-up, of each the slowest rank",
        measurement.ranks_are,
        nodes.join(", "),
        plural(repetitions, "repetition", "repetitions"),
        plural(measurement.warm_up, "round", "rounds"),
    )];
    if found.oversubscribed() {
        lines.push(
            "note: more ranks than cores: they take turns on a core, so alpha has the switches between them in it, and the \
             times scatter; these are not the costs of ranks with a core each"
                .to_owned(),
        );
    }
    for (i, (name, unit)) in COST_NAMES.iter().enumerate() {
        lines.push(match (found.fit.determined[i], found.intervals[i]) {
            (false, _) => format!("{name}: not told by these cases"),
            (true, Some(interval)) => format!(
                "{name} = {} {unit}, 95 % interval {} to {}",
                rounded(found.fit.costs[i], 3),
                rounded(interval.low, 3),
                rounded(interval.high, 3)
            ),
            (true, None) => format!("{name} = {} {unit}", rounded(found.fit.costs[i], 3)),
        });
    }
    let typical = |error: Option<f64>| error.map_or_else(dash, |e| significant(100.0 * e, 2));
    lines.push(format!(
        "model against measurement: half of {} within {} % (within {} % where the algorithm itself was left out of the fit)",
        plural(found.fit.n, "case", "cases"),
        typical(found.median_error(MeasuredRow::error)),
        typical(found.median_error(MeasuredRow::left_out_error)),
    ));
    let (right, all) = found.fastest_agree();
    if all > 0 {
        lines.push(format!(
            "the fastest in the model is the fastest measured at {right} of {}",
            plural(all, "length", "lengths")
        ));
    }
    lines
}

/// A number with a power of ten and so many decimals, and zero as `0`.
pub fn rounded(value: f64, decimals: usize) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        format!("{value:.decimals$e}")
    }
}

/// A short name of an algorithm, for a legend.
pub fn short_name(algorithm: Algorithm) -> &'static str {
    [
        "flat",
        "k-ary tree",
        "binomial tree",
        "chain",
        "ring",
        "direct",
        "recursive doubling",
        "Rabenseifner",
    ][super::collectives_measured::kind_of(algorithm)]
}

#[cfg(test)]
mod tests {
    use super::super::collectives::{
        Bounds, Disturbed, Network, PRESETS, Question, collectives, parse_bytes, parse_ranks,
    };
    use super::super::collectives_measured::fitted;
    use super::super::collectives_measured::tests::made;
    use super::*;
    use crate::theory::collectives::Hockney;

    fn question() -> Question {
        Question {
            operations: vec![Operation::AllReduce],
            choices: Vec::new(),
            ranks: parse_ranks("2..1024").unwrap(),
            bytes: parse_bytes("8..1GiB").unwrap(),
            element_bytes: 4,
            network: Network::Hockney(PRESETS[0].hockney),
            source: "a test".to_owned(),
            power: Power::default(),
            simulated: Bounds {
                ranks: 8,
                messages: 2000,
            },
            disturbed: None,
        }
    }

    #[test]
    fn bytes_are_in_whole_units() {
        assert_eq!(bytes(8), "8 B");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(1536), "1536 B");
        assert_eq!(bytes(3 << 30), "3 GiB");
    }

    #[test]
    fn thinning_keeps_both_ends() {
        let all: Vec<u64> = (0..28).collect();
        assert_eq!(thinned(&all, 10), [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);
        assert_eq!(thinned(&all[..4], 10), [0, 1, 2, 3]);
    }

    #[test]
    fn many_cases_are_a_table_for_each_number_of_ranks() {
        let found = collectives(question()).unwrap();
        let text = lines(&found).join("\n");
        assert!(text.starts_with("model hockney: alpha = 1.5e-6 s, beta = 8e-11 s/B"));
        assert!(text.contains("all-reduce, 1024 ranks: time (µs)"));
        assert!(text.contains("difference 0 s exactly"));
        assert!(text.contains("of 1 GiB:"));
        assert!(text.contains("\n  8 ranks: recursive-doubling to"));
        assert!(text.contains("chain of"));
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 160, "{widest}");
    }

    #[test]
    fn few_cases_have_all_their_numbers() {
        let found = collectives(Question {
            ranks: vec![4],
            bytes: vec![1024],
            network: Network::Hockney(Hockney {
                gamma: 0.0,
                ..PRESETS[0].hockney
            }),
            power: Power {
                static_watts: 50.0,
                ..Power::default()
            },
            disturbed: Some(Disturbed {
                jitter: 1e-6,
                slow_link: None,
                seeds: 5,
            }),
            ..question()
        })
        .unwrap();
        let text = lines(&found).join("\n");
        for part in [
            "energy (J)",
            "messages",
            "simulated - closed (s)",
            "95 % interval (µs)",
            "mean 1e-6 s, over 5 seeds",
            "bound (µs)",
            "2-ary tree",
            "gamma = 0 s/B",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_measurement_says_on_what_and_how_well() {
        let found = fitted(made(0.1)).unwrap();
        let text = measured_lines(&found).join("\n");
        let alpha = format!("alpha = {:.3e} s, 95 % interval", found.fit.costs[0]);
        for part in [
            "4 ranks on 2 cores",
            "more ranks than cores",
            &alpha,
            "gamma = ",
            "all-reduce, ring",
            "broadcast, binomial tree",
            "all-reduce, sum of the threads",
            "of 14 lengths",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
