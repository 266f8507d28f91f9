//! The headline numbers, for a terminal.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::answer::{Verdict, of_rule};
use super::generalization_gap::{GapAnalysis, HeadlineMetric, Measure, Outcomes, Point};
use super::numbers::{decimals, fixed, list, plural, span, with_interval};
use super::rules_at_batch::{RuleRow, RulesAtBatch};
use crate::config::Metric;
use crate::math::statistics::Estimate;

/// The headline numbers for a terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// The answer in a sentence or two.
    pub answer: String,
    /// What the cells hold, if anything was measured.
    pub metric: Option<HeadlineMetric>,
    /// Labels of the rules, the columns.
    pub rules: Vec<String>,
    /// Global batch and one cell a rule.
    pub rows: Vec<(u64, Vec<Option<HeadlineCell>>)>,
    /// The rules worth a place in a terminal, best first at the largest batch they finished.
    pub ranked: Vec<usize>,
    /// The rules at one batch, where not every rule is compared across batches.
    pub at_one_batch: Option<RulesAtBatch>,
    /// Values that more than half of the rules have, which the labels leave out.
    pub usual: Vec<String>,
    /// The best point in words.
    pub best: Option<String>,
}

/// One cell of the headline table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadlineCell {
    /// Mean of the headline metric; `None` if no trial finished.
    pub estimate: Option<Estimate>,
    /// Mean gap to the training split, in the unit of the metric.
    pub gap: Option<Estimate>,
    /// How the trials ended.
    pub outcomes: Outcomes,
}

impl GapAnalysis {
    /// Rules with a finished trial, those first that finished the largest batch, and among these
    /// the best mean first.
    pub fn ranked_rules(&self) -> Vec<usize> {
        let Some(metric) = self.metric else {
            return Vec::new();
        };
        let mut ranked: Vec<(u64, f64, usize)> = (0..self.rules.len())
            .filter_map(|rule| {
                let of = |p: &Point| Some((p.batch, p.estimate(metric.measure())?.mean));
                let (batch, mean) = self.points_of(rule).filter_map(of).last()?;
                Some((batch, mean, rule))
            })
            .collect();
        ranked.sort_by(|a, b| {
            let better = if metric.larger_is_better() {
                b.1.total_cmp(&a.1)
            } else {
                a.1.total_cmp(&b.1)
            };
            b.0.cmp(&a.0).then(better)
        });
        ranked.into_iter().map(|r| r.2).collect()
    }

    /// The headline numbers, to be printed in a terminal (it implements `Display`).
    pub fn headline(&self) -> Headline {
        let gap = match self.metric {
            Some(m) if m.metric == Metric::Loss => Measure::LossGap,
            _ => Measure::AccuracyGap,
        };
        let cell = |p: &Point| HeadlineCell {
            estimate: self.metric.and_then(|m| p.estimate(m.measure()).copied()),
            gap: p.estimate(gap).copied(),
            outcomes: p.outcomes,
        };
        Headline {
            answer: self.answer.short.clone(),
            metric: self.metric,
            rules: self.rules.iter().map(|r| r.label.clone()).collect(),
            rows: self
                .batches
                .iter()
                .map(|&batch| {
                    (
                        batch,
                        (0..self.rules.len())
                            .map(|r| self.point(r, batch).map(cell))
                            .collect(),
                    )
                })
                .collect(),
            ranked: self.ranked_rules(),
            at_one_batch: self.answer.at_one_batch.clone(),
            usual: self.usual.clone(),
            best: self.answer.best.zip(self.metric).map(|(best, metric)| {
                format!(
                    "best mean {}: {} (n = {}) at batch {}{}",
                    metric.name(),
                    metric.value(&best.estimate),
                    best.estimate.n,
                    best.batch,
                    of_rule(self, best.rule, ", \u{201C}", "\u{201D}")
                )
            }),
        }
    }
}

/// Rules that the headline shows in a terminal.
const MOST_RULES: usize = 6;

/// Rules that the list of rules at one batch shows in a terminal.
const MOST_LISTED: usize = 24;

/// Characters of a label that the headline shows above a column.
const MOST_LABEL: usize = 30;

/// Width of a terminal that the headline is wrapped for.
const WIDTH: usize = 96;

impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in wrapped(&self.answer, WIDTH) {
            writeln!(f, "{line}")?;
        }
        let Some(metric) = self.metric.filter(|_| !self.ranked.is_empty()) else {
            return Ok(());
        };
        let unit = if metric.metric == Metric::Accuracy {
            " in %"
        } else {
            ""
        };
        let gap = if self
            .rows
            .iter()
            .flat_map(|r| &r.1)
            .flatten()
            .any(|c| c.gap.is_some())
        {
            "; gap to training"
        } else {
            ""
        };
        let mut shown = self.ranked.clone();
        let mut left_out = 0;
        if let Some(rules) = &self.at_one_batch {
            writeln!(f)?;
            left_out = self.list(f, metric, rules)?;
            // The rest of a rule that is not at this batch alone.
            shown.retain(|&r| self.rows.iter().filter(|(_, c)| c[r].is_some()).count() > 1);
        }
        shown.truncate(MOST_RULES);
        shown.sort_unstable();
        if !shown.is_empty() {
            writeln!(f)?;
            writeln!(
                f,
                "{}{unit}, mean ± 95 % half width (n){gap}",
                metric.name()
            )?;
            self.table(f, metric, &shown)?;
        }
        let others = match &self.at_one_batch {
            Some(_) => left_out,
            None => self.rules.len() - shown.len(),
        };
        if others > 0 {
            writeln!(f, "{} more in the report", plural(others, "rule", "rules"))?;
        }
        if !self.usual.is_empty() {
            let usual = format!("unless named, rules have {}", list(&self.usual));
            for line in wrapped(&usual, WIDTH) {
                writeln!(f, "{line}")?;
            }
        }
        if let Some(best) = &self.best {
            writeln!(f, "{best}")?;
        }
        Ok(())
    }
}

impl Headline {
    /// The batches against the rules `shown`, in blocks of columns.
    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        metric: HeadlineMetric,
        shown: &[usize],
    ) -> fmt::Result {
        let texts: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|(_, cells)| {
                cells
                    .iter()
                    .map(|c| cell_text(metric, c.as_ref()))
                    .collect()
            })
            .collect();
        let labels: Vec<&str> = shown.iter().map(|&r| self.rules[r].as_str()).collect();
        let names: BTreeMap<usize, String> = shown
            .iter()
            .copied()
            .zip(cut(&labels, MOST_LABEL))
            .collect();
        let column = |r: usize| {
            let cells = texts
                .iter()
                .map(|row| row[r].chars().count())
                .max()
                .unwrap_or(0);
            cells.max(names[&r].chars().count())
        };
        let mut rest = shown;
        while !rest.is_empty() {
            let mut width = 7;
            let fits = |&&r: &&usize| {
                width += column(r) + 2;
                width <= WIDTH
            };
            // A column that is too wide by itself still has to go somewhere.
            let (block, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            let mut line = format!("{:>7}", "batch");
            for &r in block {
                let _ = write!(line, "  {:<w$}", names[&r], w = column(r));
            }
            writeln!(f, "{}", line.trim_end())?;
            for ((batch, _), row) in self.rows.iter().zip(&texts) {
                let mut line = format!("{batch:>7}");
                for &r in block {
                    let _ = write!(line, "  {:<w$}", row[r], w = column(r));
                }
                writeln!(f, "{}", line.trim_end())?;
            }
            rest = later;
            if !rest.is_empty() {
                writeln!(f)?;
            }
        }
        Ok(())
    }

    /// The rules at one batch, a line each, then those that have another; returns how many were
    /// left out.
    fn list(
        &self,
        f: &mut fmt::Formatter<'_>,
        metric: HeadlineMetric,
        rules: &RulesAtBatch,
    ) -> Result<usize, fmt::Error> {
        let (unit, points) = match metric.metric {
            Metric::Accuracy => (" in %", " in points"),
            Metric::Loss => ("", ""),
        };
        let heading = format!(
            "{}{unit} at batch {}, mean ± 95 % half width (n); difference{points} (better, worse: more \
             than seeds alone would make); updates",
            metric.name(),
            rules.batch,
        );
        for line in wrapped(&heading, WIDTH) {
            writeln!(f, "{line}")?;
        }
        let all: Vec<&RuleRow> = rules.rows.iter().chain(&rules.elsewhere).collect();
        // Of many rules the best are listed, and the one they are compared with.
        let mut listed: Vec<usize> = self.ranked.clone();
        listed.retain(|r| *r != rules.baseline && all.iter().any(|row| row.rule == *r));
        listed.truncate(MOST_LISTED - 1);
        let row_of = |row: &&&RuleRow| {
            all.len() <= MOST_LISTED || row.rule == rules.baseline || listed.contains(&row.rule)
        };
        let lines: Vec<[String; 4]> = all
            .iter()
            .filter(row_of)
            .map(|row| {
                [
                    self.rules[row.rule].clone(),
                    value_text(metric, row),
                    if row.batch == rules.batch {
                        difference_text(metric, row)
                    } else {
                        format!("at batch {}", row.batch)
                    },
                    row.steps.map_or_else(|| "-".to_owned(), span),
                ]
            })
            .collect();
        let width = |column: usize| {
            let widths = lines.iter().map(|l| l[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let (value, difference) = (width(1), width(2));
        let room = WIDTH.saturating_sub(value + difference + width(3) + 8);
        let label = lines
            .iter()
            .map(|l| l[0].chars().count())
            .filter(|w| *w <= room)
            .max()
            .unwrap_or(0);
        for [name, mean, change, updates] in &lines {
            // A label that leaves no room for the numbers has lines of its own.
            let own = name.chars().count() > label;
            if own {
                for line in wrapped(name, WIDTH - 2) {
                    writeln!(f, "  {line}")?;
                }
            }
            let name = if own { "" } else { name };
            let line =
                format!("  {name:<label$}  {mean:<value$}  {change:<difference$}  {updates}");
            writeln!(f, "{}", line.trim_end())?;
        }
        for sentence in std::iter::once(&rules.preface).chain(&rules.budgets) {
            for line in wrapped(sentence, WIDTH) {
                writeln!(f, "{line}")?;
            }
        }
        Ok(all.len() - lines.len())
    }
}

/// The mean of a rule in the list, and trials that did not finish.
fn value_text(metric: HeadlineMetric, row: &RuleRow) -> String {
    let cell = HeadlineCell {
        estimate: row.estimate,
        gap: None,
        outcomes: row.outcomes,
    };
    cell_text(metric, Some(&cell))
}

/// The difference of a rule in the list to the baseline.
fn difference_text(metric: HeadlineMetric, row: &RuleRow) -> String {
    let Some(comparison) = row.comparison else {
        return String::new();
    };
    let mut text = row.difference(metric);
    match comparison.verdict {
        Verdict::Better => text.push_str(" better"),
        Verdict::Worse => text.push_str(" worse"),
        Verdict::Indistinguishable | Verdict::Diverged | Verdict::Unresolved => {}
    }
    text
}

fn cell_text(metric: HeadlineMetric, cell: Option<&HeadlineCell>) -> String {
    let Some(cell) = cell else {
        return "-".to_owned();
    };
    let (factor, places) = match (metric.metric, &cell.estimate) {
        (Metric::Loss, Some(e)) => (1.0, decimals(e)),
        _ => (100.0, 2),
    };
    let mut text = cell.estimate.map_or_else(String::new, |e| {
        format!("{} ({})", with_interval(&e, factor, places), e.n)
    });
    if let Some(gap) = cell.gap {
        let _ = write!(text, "; {}", fixed(gap.mean * factor, places));
    }
    for (n, word) in [
        (cell.outcomes.diverged, "diverged"),
        (cell.outcomes.failed, "failed"),
        (cell.outcomes.pending(), "not run"),
    ] {
        if n > 0 {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{n} {word}");
        }
    }
    text
}

/// At most `width` characters, the last an ellipsis where text was cut.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width - 1).collect();
    format!("{}\u{2026}", kept.trim_end())
}

/// Labels of at most `width` characters. Where starts alone would be the same, starts and ends are
/// kept; where these are the same too, ends; and where nothing tells them apart, all of them.
fn cut(labels: &[&str], width: usize) -> Vec<String> {
    let without_middle = |label: &str, head: usize| {
        let length = label.chars().count();
        if length <= width {
            return label.to_owned();
        }
        let start: String = label.chars().take(head).collect();
        let end: String = label.chars().skip(length + 1 + head - width).collect();
        format!("{}\u{2026}{}", start.trim_end(), end.trim_start())
    };
    let each = |of: &dyn Fn(&str) -> String| labels.iter().map(|l| of(l)).collect::<Vec<_>>();
    let ways = [
        each(&|l| shortened(l, width)),
        each(&|l| without_middle(l, (width - 1) / 2)),
        each(&|l| without_middle(l, 0)),
    ];
    (0..labels.len())
        .map(|i| {
            let once = |texts: &&Vec<String>| texts.iter().filter(|t| **t == texts[i]).count() == 1;
            ways.iter()
                .find(once)
                .map_or_else(|| labels[i].to_owned(), |texts| texts[i].clone())
        })
        .collect()
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].chars().count() + 1 + word.chars().count() <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_are_wrapped_between_words() {
        assert_eq!(wrapped("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(shortened("abcdef", 4), "abc\u{2026}");
    }

    #[test]
    fn cut_labels_stay_distinguishable() {
        let labels = ["abcdef 1", "abcdef 2", "abc", "xyzxyz"];
        let expected = ["a\u{2026}1", "a\u{2026}2", "abc", "xyz\u{2026}"];
        assert_eq!(cut(&labels, 4), expected);
        let ends = ["abcde 1 abc", "abcde 2 abc"];
        assert_eq!(cut(&ends, 8), ["abcde 1\u{2026}", "abcde 2\u{2026}"]);
        assert_eq!(cut(&ends, 4), ends);
    }
}
