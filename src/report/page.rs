//! The page: what was asked, the answer, how sure it is, what it cost; then figures, tables, and
//! how to reproduce. One file, no scripts, nothing fetched.

use std::fmt::Write as _;

use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use plotters::style::RGBColor;
use serde::Serialize;

use crate::analysis::numbers::{
    count, decimals, fixed, list, plural, significant, span, with_interval,
};
use crate::analysis::{
    GapAnalysis, HeadlineMetric, Measure, Point, PointCourses, RuleAnswer, RuleRow, Trial, Verdict,
    outcome_words, split_name,
};
use crate::config::{Metric, Split, value_text};
use crate::math::statistics::Estimate;
use crate::train::Status;

use super::DrawnProbe;
use super::figure::Drawn;
use super::palette;
use super::probe_tables::{self, Section};
use super::{Topic, probe_figures, staleness_figures};

/// Lines of a batch controller's log that are shown from its start, and from its end.
const FIRST_MOVES: usize = 8;
const LAST_MOVES: usize = 4;

/// Values of an axis that are written out in full.
const MOST_VALUES: usize = 16;

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    description: Option<&'a str>,
    style: String,
    question: String,
    asked: Vec<(&'static str, String)>,
    short: &'a str,
    sentences: &'a [String],
    sureness: &'a [String],
    at_one_batch: Option<AtOneBatch<'a>>,
    rules: Option<Table>,
    cost: Option<Table>,
    figures: Vec<FigureView<'a>>,
    courses: Vec<CourseView<'a>>,
    parts: Vec<PartView<'a>>,
    points: Option<Table>,
    trials: Table,
    outcome: String,
    troubles: Option<Table>,
    notes: &'a [String],
    version: &'a str,
    seeds: String,
    command: String,
    config_text: Option<&'a str>,
    settings: Vec<(&'a str, &'a str)>,
}

/// The rules at one batch.
#[derive(Serialize)]
struct AtOneBatch<'a> {
    batch: u64,
    preface: &'a str,
    table: Table,
    budgets: Option<&'a str>,
    elsewhere: Option<String>,
}

#[derive(Serialize)]
pub(super) struct FigureView<'a> {
    name: &'a str,
    caption: &'a str,
    svg: &'a str,
    /// Whether its colours are numbers, and stay as they are on a dark page.
    map: bool,
}

/// A section that only some studies have: late gradients, or what the probes say of one subject.
#[derive(Serialize)]
struct PartView<'a> {
    section: Section,
    figures: Vec<FigureView<'a>>,
}

/// A figure of rate and batch over the runs of a rule, and what its controller did.
#[derive(Serialize)]
struct CourseView<'a> {
    figure: FigureView<'a>,
    moves: Option<Moves>,
}

/// The log of a batch controller.
#[derive(Serialize)]
struct Moves {
    summary: String,
    table: Table,
}

impl<'a> FigureView<'a> {
    pub(super) fn of(drawn: &'a Drawn) -> Self {
        Self {
            name: &drawn.name,
            caption: &drawn.caption,
            svg: &drawn.svg,
            map: false,
        }
    }
}

/// A table; columns from `numbers_from` on are set flush right.
#[derive(Serialize)]
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) numbers_from: usize,
}

/// Renders the page; `courses` are figures of the schedules of a rule, given by its index.
pub(super) fn render(
    analysis: &GapAnalysis,
    figures: &[Drawn],
    courses: &[(usize, Drawn)],
    late: &[Drawn],
    probes: &[DrawnProbe],
) -> Result<String, minijinja::Error> {
    let study = &analysis.study;
    let page = Page {
        name: &study.name,
        description: study.description.as_deref(),
        style: style(&dark_figures(analysis)),
        question: question(analysis),
        asked: asked(analysis),
        short: &analysis.answer.short,
        sentences: &analysis.answer.sentences,
        sureness: &analysis.answer.sureness,
        at_one_batch: at_one_batch(analysis),
        rules: rules_table(analysis),
        cost: cost_table(analysis),
        figures: figures.iter().map(FigureView::of).collect(),
        courses: courses
            .iter()
            .map(|(rule, drawn)| CourseView {
                figure: FigureView::of(drawn),
                moves: moves(analysis, *rule),
            })
            .collect(),
        parts: late_view(analysis, late)
            .into_iter()
            .chain(probe_views(analysis, probes))
            .collect(),
        points: points_table(analysis),
        trials: trials_table(analysis),
        outcome: outcome_words(&analysis.outcomes()),
        troubles: troubles_table(analysis),
        notes: &analysis.notes,
        version: &study.batchlab,
        seeds: seed_list(&study.seeds),
        command: study
            .overrides
            .iter()
            .fold("batchlab run config.toml".to_owned(), |mut c, o| {
                let _ = write!(c, " --set '{}'", o.replace('\'', r"'\''"));
                c
            }),
        config_text: analysis.config_text.as_deref(),
        settings: analysis
            .settings
            .iter()
            .map(|s| (s.key.as_str(), s.value.as_str()))
            .collect(),
    };
    rendered(
        concat!(include_str!("page_parts.html"), include_str!("page.html")),
        page,
    )
}

/// Renders a page from its template, which begins with `page_parts.html`.
pub(super) fn rendered(
    template: &'static str,
    page: impl Serialize,
) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.add_template("page.html", template)?;
    environment.get_template("page.html")?.render(Serde(page))
}

/// The section of late gradients; `None` where there were none.
fn late_view<'a>(analysis: &GapAnalysis, drawn: &'a [Drawn]) -> Option<PartView<'a>> {
    Some(PartView {
        section: staleness_figures::section(analysis)?,
        figures: drawn.iter().map(FigureView::of).collect(),
    })
}

/// The sections of the probes, each with its figures; none where nothing was probed.
fn probe_views<'a>(analysis: &GapAnalysis, drawn: &'a [DrawnProbe]) -> Vec<PartView<'a>> {
    let Some(probes) = &analysis.probes else {
        return Vec::new();
    };
    let view = |topic: Topic| {
        let figures: Vec<FigureView<'a>> = drawn
            .iter()
            .filter(|d| d.topic == topic)
            .map(|d| FigureView {
                map: d.map,
                ..FigureView::of(&d.drawn)
            })
            .collect();
        let section = probe_tables::section(probes, topic);
        (!figures.is_empty() || !section.tables.is_empty()).then_some(PartView { section, figures })
    };
    let mut views: Vec<PartView<'a>> = [Topic::Curvature, Topic::Noise]
        .into_iter()
        .filter_map(view)
        .collect();
    if let Some(last) = views.last_mut() {
        last.section.notes.clone_from(&probes.notes);
    }
    views
}

fn seed_list(seeds: &[u64]) -> String {
    if seeds.len() > 12 {
        return format!(
            "{} seeds, {} to {}",
            seeds.len(),
            seeds[0],
            seeds[seeds.len() - 1]
        );
    }
    list(&seeds.iter().map(u64::to_string).collect::<Vec<_>>())
}

fn question(analysis: &GapAnalysis) -> String {
    let what = analysis
        .metric
        .map_or_else(|| "generalization".to_owned(), HeadlineMetric::name);
    let rules = plural(analysis.rules.len(), "rule", "rules");
    match (analysis.batches.as_slice(), analysis.rules.len()) {
        ([], _) => format!("What becomes of {what}?"),
        ([batch], 1) => format!("What is the {what} at a global batch of {batch}?"),
        ([batch], _) => {
            format!("Which of {rules} has the best {what} at a global batch of {batch}?")
        }
        ([first, .., last], 1) => {
            format!("How does {what} change as the global batch grows from {first} to {last}?")
        }
        ([first, .., last], _) => format!(
            "How does {what} change as the global batch grows from {first} to {last}, under each of {rules}?"
        ),
    }
}

/// The main settings in words, and what was swept.
fn asked(analysis: &GapAnalysis) -> Vec<(&'static str, String)> {
    let swept = |prefix: &str| {
        analysis
            .study
            .axes
            .iter()
            .flat_map(|a| &a.keys)
            .filter(|k| *k == prefix || k.starts_with(&format!("{prefix}.")))
            .collect::<Vec<_>>()
    };
    let words = |prefix: &str| {
        let mut parts: Vec<(String, Vec<String>)> = Vec::new();
        for setting in &analysis.settings {
            if setting.key == prefix {
                parts.push((setting.value.clone(), Vec::new()));
            } else if let Some(rest) = setting.key.strip_prefix(&format!("{prefix}.")) {
                match rest.split_once('.') {
                    None => parts.push((format!("{rest} {}", setting.value), Vec::new())),
                    // `momentum.weight_decay` is a detail of `momentum`.
                    Some((name, detail)) => {
                        let detail = format!("{detail} {}", setting.value);
                        match parts.last_mut().filter(|p| p.0 == name) {
                            Some(part) => part.1.push(detail),
                            None => parts.push((name.to_owned(), vec![detail])),
                        }
                    }
                }
            }
        }
        for key in swept(prefix) {
            let name = key.strip_prefix(&format!("{prefix}.")).unwrap_or_default();
            parts.push((format!("{name} swept").trim_start().to_owned(), Vec::new()));
        }
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(name, details)| match details.as_slice() {
                [] => name,
                details => format!("{name} ({})", details.join(", ")),
            })
            .collect();
        parts.join(", ")
    };
    let mut rows = vec![("Data", words("data.source"))];
    if !analysis.split_sizes.is_empty() {
        let sizes: Vec<String> = analysis
            .split_sizes
            .iter()
            .map(|(split, n)| format!("{} {}", count(*n), split_name(*split)))
            .collect();
        rows.push(("Examples evaluated", list(&sizes)));
    }
    rows.push(("Model", words("model")));
    rows.push(("Optimizer", words("optimizer")));
    rows.push(("Learning rate", words("learning_rate")));
    let budget: Vec<String> = ["epochs", "steps", "examples"]
        .into_iter()
        .filter_map(|unit| {
            let value = words(&format!("train.{unit}"));
            (!value.is_empty()).then(|| format!("{value} {unit}"))
        })
        .collect();
    rows.push(("Budget", budget.join(", ")));
    rows.push(("Target", words("train.target")));
    let axes: Vec<String> = analysis
        .study
        .axes
        .iter()
        .map(|axis| {
            let text = |v: &Vec<_>| v.iter().map(value_text).collect::<Vec<_>>().join(" / ");
            let mut values: Vec<String> = axis.values.iter().map(text).collect();
            if values.len() > MOST_VALUES {
                let last = values.split_off(values.len() - 1);
                values.truncate(MOST_VALUES / 2);
                values.push("\u{2026}".to_owned());
                values.extend(last);
                values.push(format!("{} values", axis.values.len()));
            }
            format!("{}: {}", axis.keys.join(" / "), values.join(", "))
        })
        .collect();
    rows.push(("Swept", axes.join("; ")));
    rows.push(("Rules, unless named", list(&analysis.usual)));
    rows.push(("Seeds", seed_list(&analysis.study.seeds)));
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

fn has(analysis: &GapAnalysis, measure: Measure) -> bool {
    analysis
        .points
        .iter()
        .any(|p| p.estimate(measure).is_some())
}

/// The rules at one batch, each against the first.
fn at_one_batch(analysis: &GapAnalysis) -> Option<AtOneBatch<'_>> {
    let (metric, rules) = (analysis.metric?, analysis.answer.at_one_batch.as_ref()?);
    let (unit, points) = match metric.metric {
        Metric::Accuracy => (" (%)", " (points)"),
        Metric::Loss => ("", ""),
    };
    let head = vec![
        "rule".to_owned(),
        format!("{}{unit}", metric.name()),
        "n".to_owned(),
        format!("difference{points}"),
        "beyond seeds".to_owned(),
        "updates".to_owned(),
        "examples".to_owned(),
        "diverged".to_owned(),
    ];
    let dash = || "–".to_owned();
    let rows = rules.rows.iter().map(|row| {
        vec![
            analysis.rules[row.rule].label.clone(),
            row.estimate
                .map_or_else(dash, |e| metric.value(&e).replace(" %", "")),
            row.estimate.map_or_else(dash, |e| e.n.to_string()),
            if row.rule == rules.baseline {
                "baseline".to_owned()
            } else {
                row.difference(metric)
            },
            match row.comparison.map(|c| c.verdict) {
                Some(Verdict::Better) => "yes, better".to_owned(),
                Some(Verdict::Worse) => "yes, worse".to_owned(),
                Some(Verdict::Indistinguishable) => "no".to_owned(),
                Some(Verdict::Diverged) => "seeds diverged".to_owned(),
                Some(Verdict::Unresolved) => "not judged".to_owned(),
                None => dash(),
            },
            row.steps.map_or_else(dash, span),
            row.examples.map_or_else(dash, span),
            diverged(row),
        ]
    });
    Some(AtOneBatch {
        batch: rules.batch,
        preface: &rules.preface,
        table: Table {
            rows: rows.collect(),
            head,
            numbers_from: 1,
        },
        budgets: rules.budgets.as_deref(),
        elsewhere: match rules.elsewhere.len() {
            0 => None,
            1 => Some("One rule has only another batch; it is under Tables.".to_owned()),
            n => Some(format!(
                "{n} rules have only other batches; they are under Tables."
            )),
        },
    })
}

/// "1 of 5", and the other trials that did not finish.
fn diverged(row: &RuleRow) -> String {
    let o = row.outcomes;
    let mut text = format!("{} of {}", o.diverged, o.planned);
    for (n, word) in [(o.failed, "failed"), (o.pending(), "not run")] {
        if n > 0 {
            let _ = write!(text, ", {n} {word}");
        }
    }
    text
}

/// Rule by rule: how far it holds, and what changes from the smallest batch to the largest.
fn rules_table(analysis: &GapAnalysis) -> Option<Table> {
    let metric = analysis.metric?;
    let several = |rule| analysis.points_of(rule).count() > 1;
    let answers: Vec<&RuleAnswer> = analysis
        .answer
        .rules
        .iter()
        .filter(|a| several(a.rule))
        .collect();
    if answers.is_empty() || answers.iter().all(|a| a.comparisons.is_empty()) {
        return None;
    }
    let unit = if metric.metric == Metric::Accuracy {
        " (points)"
    } else {
        ""
    };
    let split = answers.iter().any(|a| a.gap_change.is_some());
    let mut head = vec![
        "rule".to_owned(),
        "holds up to".to_owned(),
        "first worse at".to_owned(),
        "from → to".to_owned(),
        format!("change of {}{unit}", metric.name()),
    ];
    if split {
        let train = HeadlineMetric {
            split: Split::Train,
            metric: metric.metric,
        };
        head.push(format!("of {}{unit}", train.name()));
        head.push(format!("of the gap{unit}"));
    }
    head.push("n".to_owned());
    let shown = |estimate: Option<Estimate>| {
        estimate.map_or_else(
            || "–".to_owned(),
            |e| metric.change(&e).replace(" points", ""),
        )
    };
    let rows = answers.iter().map(|answer| {
        let judged = answer
            .comparisons
            .iter()
            .any(|c| !matches!(c.verdict, Verdict::Unresolved));
        let mut row = vec![
            analysis.rules[answer.rule].label.clone(),
            match answer.holds_to {
                Some(batch) if answer.comparisons.last().is_some_and(|c| c.batch == batch) => {
                    format!("{batch} (all)")
                }
                Some(batch) => batch.to_string(),
                None if judged => format!("{} (none above)", answer.reference),
                None => "not judged".to_owned(),
            },
            match answer.falls_at {
                Some(c) if c.verdict == Verdict::Diverged => format!("{} (diverged)", c.batch),
                Some(c) => c.batch.to_string(),
                None => "–".to_owned(),
            },
            if answer.largest > answer.reference {
                format!("{} → {}", answer.reference, answer.largest)
            } else {
                "–".to_owned()
            },
            shown(answer.change),
        ];
        if split {
            row.push(shown(answer.train_change));
            row.push(shown(answer.gap_change));
        }
        row.push(
            answer
                .change
                .map_or_else(|| "–".to_owned(), |e| e.n.to_string()),
        );
        row
    });
    Some(Table {
        rows: rows.collect(),
        head,
        numbers_from: 1,
    })
}

/// What a trial costs at each batch, over all rules.
fn cost_table(analysis: &GapAnalysis) -> Option<Table> {
    if !has(analysis, Measure::Steps) {
        return None;
    }
    let mut head = vec![
        "global batch".to_owned(),
        "updates".to_owned(),
        "examples".to_owned(),
    ];
    if analysis.has_target {
        head.extend(["updates to target", "examples to target", "reached"].map(str::to_owned));
    }
    let range = |batch: u64, measure: Measure| {
        let values: Vec<f64> = analysis
            .points
            .iter()
            .filter(|p| p.batch == batch)
            .filter_map(|p| Some(p.estimate(measure)?.mean))
            .collect();
        super::axis::range(&values).map_or_else(|| "–".to_owned(), span)
    };
    let rows = analysis.batches.iter().map(|&batch| {
        let mut row = vec![
            batch.to_string(),
            range(batch, Measure::Steps),
            range(batch, Measure::Examples),
        ];
        if analysis.has_target {
            let trials: Vec<&Trial> = analysis
                .trials
                .iter()
                .filter(|t| t.batch == Some(batch))
                .collect();
            let reached = trials
                .iter()
                .filter(|t| t.row.target_reached == Some(true))
                .count();
            row.push(range(batch, Measure::StepsToTarget));
            row.push(range(batch, Measure::ExamplesToTarget));
            row.push(format!("{reached} of {}", trials.len()));
        }
        row
    });
    Some(Table {
        rows: rows.collect(),
        head,
        numbers_from: 0,
    })
}

fn cell(point: &Point, measure: Measure) -> String {
    let Some(estimate) = point.estimate(measure) else {
        return "–".to_owned();
    };
    let text = match measure {
        Measure::HeldOutAccuracy | Measure::TrainAccuracy | Measure::AccuracyGap => {
            with_interval(estimate, 100.0, 2)
        }
        Measure::HeldOutLoss | Measure::TrainLoss | Measure::LossGap => {
            with_interval(estimate, 1.0, decimals(estimate))
        }
        _ if estimate.half_width.is_some_and(|h| h > 0.5) => with_interval(estimate, 1.0, 0),
        _ => count(estimate.mean.round() as u64),
    };
    // A mean over fewer seeds than planned says so in its own cell.
    if estimate.n < point.outcomes.planned {
        format!("{text} (n = {})", estimate.n)
    } else {
        text
    }
}

fn points_table(analysis: &GapAnalysis) -> Option<Table> {
    let held = analysis.held_out.map_or("held-out", split_name);
    let columns: Vec<(Measure, String)> = [
        (Measure::HeldOutAccuracy, format!("{held} accuracy (%)")),
        (Measure::TrainAccuracy, "training accuracy (%)".to_owned()),
        (Measure::AccuracyGap, "gap (points)".to_owned()),
        (Measure::HeldOutLoss, format!("{held} loss")),
        (Measure::TrainLoss, "training loss".to_owned()),
        (Measure::LossGap, "loss gap".to_owned()),
        (Measure::Steps, "updates".to_owned()),
        (Measure::Examples, "examples".to_owned()),
        (Measure::StepsToTarget, "updates to target".to_owned()),
        (Measure::ExamplesToTarget, "examples to target".to_owned()),
    ]
    .into_iter()
    .filter(|(m, _)| has(analysis, *m))
    .collect();
    if analysis.points.is_empty() {
        return None;
    }
    let mut head = vec![
        "rule".to_owned(),
        "global batch = workers × local".to_owned(),
    ];
    head.extend(["peak rate", "seeds finished"].map(str::to_owned));
    head.extend(columns.iter().map(|c| c.1.clone()));
    let rows = analysis.points.iter().map(|point| {
        let rows = || point.trials.iter().map(|&i| &analysis.trials[i].row);
        let made_of = rows().find_map(|r| Some((r.workers?, r.local_batch?)));
        let o = point.outcomes;
        let mut finished = format!("{} of {}", o.finished(), o.planned);
        for (n, word) in [(o.diverged, "diverged"), (o.failed, "failed")] {
            if n > 0 {
                let _ = write!(finished, ", {n} {word}");
            }
        }
        let mut row = vec![
            analysis.rules[point.rule].label.clone(),
            made_of.map_or_else(
                || point.batch.to_string(),
                |(p, b)| format!("{} = {p} × {b}", point.batch),
            ),
            rows()
                .find_map(|r| r.lr)
                .map_or_else(|| "–".to_owned(), |lr| significant(lr, 3)),
            finished,
        ];
        row.extend(columns.iter().map(|(m, _)| cell(point, *m)));
        row
    });
    Some(Table {
        rows: rows.collect(),
        head,
        numbers_from: 1,
    })
}

fn status_word(trial: &Trial) -> &'static str {
    trial.row.status.map_or("not run", Status::name)
}

fn trials_table(analysis: &GapAnalysis) -> Table {
    let mut splits: Vec<(Split, bool)> = Vec::new();
    for split in [Split::Train, Split::Validation, Split::Test] {
        let evaluations = || {
            analysis
                .trials
                .iter()
                .filter_map(|t| t.row.evaluation.get(&split))
        };
        if evaluations().any(|e| e.1.is_some()) {
            splits.push((split, true));
        }
        if evaluations().any(|e| e.0.is_some()) {
            splits.push((split, false));
        }
    }
    let mut head: Vec<String> = [
        "trial",
        "rule",
        "batch",
        "seed",
        "status",
        "learning rate",
        "warm-up",
        "updates",
        "examples",
        "epochs",
    ]
    .map(str::to_owned)
    .into();
    for (split, accuracy) in &splits {
        let metric = if *accuracy { "accuracy (%)" } else { "loss" };
        head.push(format!("{} {metric}", split_name(*split)));
    }
    if analysis.has_target {
        head.push("updates to target".to_owned());
    }
    let dash = || "–".to_owned();
    let rows = analysis.trials.iter().map(|trial| {
        let row = &trial.row;
        let mut cells = vec![
            row.trial.clone(),
            analysis.rules[trial.rule].label.clone(),
            trial.batch.map_or_else(dash, |b| b.to_string()),
            row.seed.map_or_else(dash, |s| s.to_string()),
            status_word(trial).to_owned(),
            row.lr_explained.clone().unwrap_or_else(dash),
            row.warmup.clone().unwrap_or_else(dash),
            row.steps.map_or_else(dash, count),
            row.examples.map_or_else(dash, count),
            row.epochs.map_or_else(dash, |e| significant(e, 4)),
        ];
        for (split, accuracy) in &splits {
            let evaluation = row.evaluation.get(split);
            cells.push(if *accuracy {
                evaluation
                    .and_then(|e| e.1)
                    .map_or_else(dash, |a| fixed(a * 100.0, 2))
            } else {
                evaluation
                    .and_then(|e| e.0)
                    .map_or_else(dash, |l| significant(l, 4))
            });
        }
        if analysis.has_target {
            cells.push(row.steps_to_target.map_or_else(
                || {
                    if row.target_reached == Some(false) {
                        "not reached".to_owned()
                    } else {
                        dash()
                    }
                },
                count,
            ));
        }
        cells
    });
    Table {
        rows: rows.collect(),
        head,
        numbers_from: 7,
    }
}

/// What the batch controller did in the first seed of each point of a rule; of a long log the first
/// and the last lines.
fn moves(analysis: &GapAnalysis, rule: usize) -> Option<Moves> {
    let of_rule = || analysis.courses.iter().filter(|c| c.rule == rule);
    let points: Vec<&PointCourses> = of_rule().filter(|c| !c.changes.is_empty()).collect();
    let several = of_rule().count() > 1;
    let (first, last) = if points.len() > 1 {
        (FIRST_MOVES / 2, LAST_MOVES / 2)
    } else {
        (FIRST_MOVES, LAST_MOVES)
    };
    let changes = || points.iter().flat_map(|p| &p.changes);
    let factors = changes().any(|c| c.factor_from != 1.0 || c.factor_to != 1.0);
    let mut head: Vec<String> = ["step", "epoch", "from", "to"].map(str::to_owned).into();
    if factors {
        head.push("factor of the rate".to_owned());
    }
    head.extend(["quantity", "value", "reason"].map(str::to_owned));
    let mut rows = Vec::new();
    for point in &points {
        let lines = point.changes.len();
        for (i, change) in point.changes.iter().enumerate() {
            let left_out = lines.saturating_sub(first + last);
            if left_out > 1 && i == first {
                let mut row = vec![String::new(); head.len()];
                row[head.len() - 1] = format!("\u{2026} {left_out} more in batch.csv \u{2026}");
                rows.push((point.batch, row));
            }
            if left_out > 1 && (first..first + left_out).contains(&i) {
                continue;
            }
            let mut row = vec![
                count(change.step),
                significant(change.epoch, 3),
                change.from.to_string(),
                change.to.to_string(),
            ];
            if factors {
                row.push(significant(change.factor_to, 3));
            }
            let value = change.value.map(|v| significant(v, 4));
            row.push(change.quantity.clone());
            row.push(value.unwrap_or_else(|| "–".to_owned()));
            row.push(change.reason.clone());
            rows.push((point.batch, row));
        }
    }
    if several {
        head.insert(0, "batch at the start".to_owned());
    }
    let rows = rows.into_iter().map(|(batch, mut row)| {
        if several {
            row.insert(0, batch.to_string());
        }
        row
    });
    let summary = match points.as_slice() {
        [] => return None,
        [point] => format!(
            "What the batch controller did, seed {}: {}",
            point.seed,
            plural(point.changes.len(), "line", "lines")
        ),
        _ => "What the batch controller did, first seed of each batch".to_owned(),
    };
    Some(Moves {
        summary,
        table: Table {
            rows: rows.collect(),
            head,
            numbers_from: usize::MAX,
        },
    })
}

/// Trials that did not complete, with their messages.
fn troubles_table(analysis: &GapAnalysis) -> Option<Table> {
    let rows: Vec<Vec<String>> = analysis
        .trials
        .iter()
        .filter(|t| t.row.status != Some(Status::Completed))
        .map(|t| {
            vec![
                t.row.trial.clone(),
                status_word(t).to_owned(),
                analysis.rules[t.rule].label.clone(),
                t.batch.map_or_else(|| "–".to_owned(), |b| b.to_string()),
                t.row.seed.map_or_else(|| "–".to_owned(), |s| s.to_string()),
                t.row.steps.map_or_else(|| "–".to_owned(), count),
                t.row.message.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let head = [
        "trial",
        "status",
        "rule",
        "batch",
        "seed",
        "updates made",
        "message",
    ];
    let head = head.map(str::to_owned).into();
    (!rows.is_empty()).then_some(Table {
        head,
        rows,
        numbers_from: usize::MAX,
    })
}

/// Rules that turn the figures' colours on a dark page; those of a map are numbers and stay.
fn dark_figures(analysis: &GapAnalysis) -> String {
    let probes = analysis.probes.as_ref();
    let figure = match probes {
        Some(probes) if !probes.planes.is_empty() => "figure:not(.map)",
        _ => "figure",
    };
    let batches = analysis.batches.len();
    let ranks = probes.map_or(0, probe_figures::ranks);
    let mut colours: Vec<_> = palette::SERIES.to_vec();
    colours.extend((0..batches).map(|i| palette::ordered(i, batches).colour));
    colours.extend((0..ranks).map(|i| palette::ordered(i, ranks).colour));
    let faint_lines = analysis.courses.iter().any(|c| c.courses.len() > 1)
        || probes.is_some_and(|p| !p.densities.is_empty());
    dark_rules(figure, &colours, faint_lines)
}

/// The style of a page: what all pages share, and its own rules.
pub(super) fn style(rules: &str) -> String {
    format!("{}{rules}", include_str!("page.css"))
}

/// Rules that turn text, axes and these colours of the figures that `figure` selects on a dark page;
/// with `faint_lines` the paler forms of the colours as well.
pub(super) fn dark_rules(figure: &str, colours: &[RGBColor], faint_lines: bool) -> String {
    let mut rules = String::from("@media (prefers-color-scheme: dark) {\n");
    let mut turn = |from: String, to: &str| {
        let _ = writeln!(rules, "{figure} svg [fill=\"{from}\"] {{ fill: {to}; }}");
        let _ = writeln!(
            rules,
            "{figure} svg [stroke=\"{from}\"] {{ stroke: {to}; }}"
        );
    };
    turn(palette::hex(palette::INK), "var(--ink)");
    turn(palette::hex(palette::MUTED), "var(--muted)");
    turn(palette::hex(palette::GRID), "var(--line)");
    turn(palette::hex(palette::PAPER), "var(--paper)");
    for &colour in colours {
        if let Some(lighter) = palette::on_dark(colour) {
            turn(palette::hex(colour), &palette::hex(lighter));
        }
        if faint_lines {
            let faint = palette::hex(palette::faint(colour));
            turn(faint, &palette::hex(palette::faint_on_dark(colour)));
        }
    }
    rules.push_str("}\n");
    rules
}
