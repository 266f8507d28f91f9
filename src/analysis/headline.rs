//! The headline numbers, for a terminal.

use std::fmt::{self, Write as _};

use super::answer::of_rule;
use super::generalization_gap::{GapAnalysis, HeadlineMetric, Measure, Outcomes, Point};
use super::numbers::{decimals, fixed, plural, with_interval};
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
        writeln!(f)?;
        writeln!(
            f,
            "{}{unit}, mean ± 95 % half width (n){gap}",
            metric.name()
        )?;
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
        let column = |r: usize| {
            let cells = texts
                .iter()
                .map(|row| row[r].chars().count())
                .max()
                .unwrap_or(0);
            cells.max(self.rules[r].chars().count().min(30))
        };
        let mut shown = self.ranked.clone();
        shown.truncate(MOST_RULES);
        shown.sort_unstable();
        let mut rest = shown.as_slice();
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
                let _ = write!(
                    line,
                    "  {:<w$}",
                    shortened(&self.rules[r], 30),
                    w = column(r)
                );
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
        if shown.len() < self.rules.len() {
            let others = self.rules.len() - shown.len();
            writeln!(f, "{} more in the report", plural(others, "rule", "rules"))?;
        }
        if let Some(best) = &self.best {
            writeln!(f, "{best}")?;
        }
        Ok(())
    }
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
}
