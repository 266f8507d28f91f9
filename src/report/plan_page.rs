//! The report of a plan: its tables for programs, and the page.

use std::path::Path;

use serde::Serialize;

use crate::analysis::plan::{self, PlanAnswer};
use crate::store::{self, StoreError, Table as CsvTable, ToCell};
use crate::theory::plan::Point;

use super::figure::Drawn;
use super::page::{self, FigureView, Table};
use super::palette;
use super::plan_figures;
use super::{ReportError, ReportFiles, draw, remove_stale};

/// Every way at every number of workers that was looked at.
const PLAN: &str = "plan.csv";

/// The points of it that no other beats in both time and cost.
const FRONT: &str = "front.csv";

/// Measurements beside predictions.
const CHECK: &str = "check.csv";

/// Words stand beside numbers in these tables, and wrap there.
const RULES: &str = "main { max-width: 1180px; }
.number ~ td.text { white-space: normal; }
td.long { min-width: 14em; }
.number + .text, .number + .long, th.number + th:not(.number) { padding-left: 18px; }
";

/// Writes `report.html`, `figures/`, `plan.csv`, `front.csv` and, with measurements, `check.csv` into
/// `dir`. The report comes last, and an earlier one goes first: where one is, all else belongs to it.
///
/// # Errors
/// As those of [`write()`](super::write()).
pub fn write_plan(dir: &Path, answer: &PlanAnswer) -> Result<ReportFiles, ReportError> {
    let folder = dir.join("figures");
    store::create_folder(&folder)?;
    let html = dir.join("report.html");
    store::remove_file(&html)?;
    write_tables(dir, answer)?;
    let mut files = Vec::new();
    let figures = plan_figures::figures(answer)
        .into_iter()
        .map(|figure| draw(&folder, figure, &mut files))
        .collect::<Result<Vec<_>, _>>()?;
    remove_stale(&folder, &files, plan_figures::is_name)?;
    let page = render(answer, &figures)?;
    store::write_atomic(&html, page.as_bytes())?;
    Ok(ReportFiles {
        html,
        figures: files,
    })
}

fn write_tables(dir: &Path, answer: &PlanAnswer) -> Result<(), StoreError> {
    let all: Vec<Point> = answer
        .plan
        .series
        .iter()
        .flat_map(|s| s.points.iter().copied())
        .collect();
    for (name, points) in [(PLAN, &all), (FRONT, &answer.plan.front)] {
        let path = dir.join(name);
        let table = points_table(&path, answer, points)?;
        store::write_if_changed(&path, &table.to_csv())?;
    }
    let path = dir.join(CHECK);
    if answer.checked.is_empty() {
        return store::remove_file(&path);
    }
    let columns = [
        "workers",
        "batch",
        "measured",
        "low",
        "high",
        "predicted",
        "compute",
        "communication",
        "error",
    ];
    let mut table = CsvTable::new(&path, columns)?;
    for checked in &answer.checked {
        let (measured, predicted) = (&checked.measured, checked.predicted);
        table.push(&[
            &measured.workers,
            &measured.batch,
            &measured.seconds,
            &measured.interval.map(|i| i.low),
            &measured.interval.map(|i| i.high),
            &predicted.map(|p| p.total()),
            &predicted.map(|p| p.compute + p.bubble),
            &predicted.map(|p| p.exchange + p.exposed),
            &checked.error(),
        ])?;
    }
    store::write_if_changed(&path, &table.to_csv()).map(|_| ())
}

fn points_table(
    path: &Path,
    answer: &PlanAnswer,
    points: &[Point],
) -> Result<CsvTable, StoreError> {
    let columns = [
        "strategy",
        "algorithm",
        "workers",
        "groups",
        "group",
        "batch",
        "local_batch",
        "micro_batches",
        "steps",
        "seconds_per_update",
        "compute",
        "bubble",
        "exchange",
        "reduction",
        "exposed",
        "time",
        "time_low",
        "time_high",
        "cost",
        "cost_unit",
        "efficiency",
        "efficiency_statistics",
        "efficiency_machine",
    ];
    let mut table = CsvTable::new(path, columns)?;
    for point in points {
        let interval = answer.interval(point);
        let (statistics, machine) = answer.efficiency_parts(point);
        let step = &point.step;
        let cells: [&dyn ToCell; 23] = [
            &point.strategy.name().to_owned(),
            &answer.networks[point.network],
            &point.workers,
            &point.groups,
            &point.group,
            &point.batch,
            &point.local_batch,
            &point.micro_batches,
            &point.steps,
            &step.total(),
            &step.compute,
            &step.bubble,
            &step.exchange,
            &step.reduction,
            &step.exposed,
            &point.time,
            &interval.map(|i| i.low),
            &interval.map(|i| i.high),
            &point.cost,
            &answer.unit,
            &(statistics * machine),
            &statistics,
            &machine,
        ];
        table.push(&cells)?;
    }
    Ok(table)
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    description: Option<&'a str>,
    style: String,
    paragraphs: Vec<String>,
    tables: Vec<Titled>,
    figures: Vec<FigureView<'a>>,
    version: &'static str,
}

/// A table with its heading.
#[derive(Serialize)]
struct Titled {
    title: &'static str,
    table: Table,
    /// The first column after those of numbers.
    words_from: usize,
    note: &'static str,
}

fn render(answer: &PlanAnswer, figures: &[Drawn]) -> Result<String, minijinja::Error> {
    let page = Page {
        name: &answer.name,
        description: answer.description.as_deref(),
        style: page::style(&format!(
            "{RULES}{}",
            page::dark_rules("figure", &palette::SERIES, true)
        )),
        paragraphs: plan::words(answer),
        tables: tables(answer),
        figures: figures.iter().map(FigureView::of).collect(),
        version: env!("CARGO_PKG_VERSION"),
    };
    page::rendered(
        concat!(
            include_str!("page_parts.html"),
            include_str!("plan_page.html")
        ),
        page,
    )
}

fn titled(title: &'static str, (head, rows): plan::TextTable, note: &'static str) -> Titled {
    let words = ["how", "sums by", "mark"];
    let words_from = head.iter().position(|name| words.contains(&name.as_str()));
    Titled {
        title,
        words_from: words_from.unwrap_or(head.len()),
        table: Table {
            head,
            rows,
            numbers_from: 0,
        },
        note,
    }
}

fn tables(answer: &PlanAnswer) -> Vec<Titled> {
    let mut tables = vec![titled(
        "Selected numbers of workers",
        plan::table(answer),
        "Each at the way and the batch that reach the target soonest. Efficiency: the share of the cost that the fewest workers \
         would have needed. Marks: worth it, the most workers whose efficiency is at least what was asked for; communication, the \
         fewest that spend half of an update or more in it; statistics, the fewest whose best batch saves hardly more.",
    )];
    let check = plan::check_table(answer);
    if !check.1.is_empty() {
        tables.push(titled(
            "Predicted and measured updates",
            check,
            "Predictions are of data parallelism at the batch that was measured. Error: prediction over measurement, less 1.",
        ));
    }
    let facts = answer.facts.iter();
    let rows = facts.map(|f| vec![f.what.clone(), f.value.clone(), f.source.clone()]);
    tables.push(Titled {
        title: "The numbers that went in",
        table: Table {
            head: ["what", "how much", "where from"]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.collect(),
            numbers_from: 3,
        },
        words_from: 3,
        note: "In brackets: intervals.",
    });
    tables
}
