//! The pages of collectives: what they cost in a model, and what was measured.

use std::path::Path;

use serde::Serialize;

use crate::analysis::collectives::{COST_TABLES, Collectives, scientific};
use crate::analysis::collectives_measured::{FittedCollectives, MEASURED_TABLES};
use crate::analysis::collectives_text::{bytes, measured_headline, measured_name, thinned};
use crate::analysis::numbers::{count, list, significant};
use crate::store::{self, StoreError};

use super::collective_figures::{self, CollectiveFigure};
use super::figure::Drawn;
use super::page::{self, FigureView, Table};
use super::{ReportError, ReportFiles};

/// Lengths and numbers of ranks in the table of times.
const SHOWN: usize = 10;

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    paragraphs: Vec<String>,
    style: String,
    figures: Vec<FigureView<'a>>,
    tables: Vec<Titled>,
    version: &'static str,
}

/// A table with its heading.
#[derive(Serialize)]
struct Titled {
    title: String,
    table: Table,
    note: String,
}

/// Writes `report.html`, `figures/`, `collectives.csv`, `crossovers.csv` and `parameters.csv` into `dir`,
/// and removes the tables and figures of a measurement.
///
/// # Errors
/// As those of [`super::write()`].
pub fn write_collectives(dir: &Path, found: &Collectives) -> Result<ReportFiles, ReportError> {
    found.write_tables(dir)?;
    remove_tables(dir, &MEASURED_TABLES)?;
    let question = &found.question;
    let parameters: Vec<String> = question
        .network
        .parameters()
        .iter()
        .map(|(name, value, unit)| format!("{name} = {} {unit}", scientific(*value)))
        .collect();
    let mut paragraphs = vec![
        format!("Model {}: {}.", question.network.name(), list(&parameters)),
        format!("Parameters: {}.", question.source),
    ];
    let simulated: Vec<_> = found.rows.iter().filter_map(|row| row.simulated).collect();
    if !simulated.is_empty() {
        let equal = simulated.iter().filter(|s| s.difference() == 0.0).count();
        paragraphs.push(format!(
            "The event simulation was run for {} of {} cases and equals the closed form, exactly, in {}.",
            count(simulated.len() as u64),
            count(found.rows.len() as u64),
            count(equal as u64)
        ));
    }
    let mut tables = times(found);
    tables.extend(crossovers(found));
    let figures = collective_figures::figures(found);
    write(dir, "What collectives cost", figures, paragraphs, tables)
}

/// Writes `report.html`, `figures/`, `measured.csv` and `fit.csv` into `dir`, and removes the tables and
/// figures of costs in a model.
///
/// # Errors
/// As those of [`super::write()`].
pub fn write_measured(dir: &Path, found: &FittedCollectives) -> Result<ReportFiles, ReportError> {
    found.write_tables(dir)?;
    remove_tables(dir, &COST_TABLES)?;
    let figures = collective_figures::measured_figures(found);
    let paragraphs = measured_headline(found);
    let tables = vec![measured(found)];
    write(dir, "Collectives, measured", figures, paragraphs, tables)
}

fn remove_tables(dir: &Path, names: &[&str]) -> Result<(), StoreError> {
    names
        .iter()
        .try_for_each(|name| store::remove_file(&dir.join(name)))
}

fn write(
    dir: &Path,
    title: &str,
    figures: Vec<CollectiveFigure>,
    paragraphs: Vec<String>,
    tables: Vec<Titled>,
) -> Result<ReportFiles, ReportError> {
    let folder = dir.join("figures");
    store::create_folder(&folder)?;
    let mut files = Vec::new();
    let drawn = figures
        .into_iter()
        .map(|figure| match figure {
            CollectiveFigure::Lines(figure) => super::draw(&folder, figure, &mut files),
            CollectiveFigure::Regions(figure) => super::draw(&folder, figure, &mut files),
        })
        .collect::<Result<Vec<Drawn>, _>>()?;
    super::remove_stale(&folder, &files, collective_figures::is_name)?;
    let page = Page {
        title,
        paragraphs,
        style: page::style(&page::dark_rules(
            "figure",
            &collective_figures::colours(),
            false,
        )),
        figures: drawn.iter().map(FigureView::of).collect(),
        tables,
        version: env!("CARGO_PKG_VERSION"),
    };
    let text = page::rendered(
        concat!(
            include_str!("page_parts.html"),
            include_str!("collective_page.html")
        ),
        page,
    )?;
    let html = dir.join("report.html");
    store::write_if_changed(&html, text.as_bytes())?;
    Ok(ReportFiles {
        html,
        figures: files,
    })
}

fn microseconds(seconds: f64) -> String {
    significant(seconds * 1e6, 4)
}

fn dash() -> String {
    "–".to_owned()
}

/// Times by ranks and length, for each operation.
fn times(found: &Collectives) -> Vec<Titled> {
    let question = &found.question;
    let (ranks, lengths) = (
        thinned(&question.ranks, SHOWN),
        thinned(&question.bytes, SHOWN),
    );
    let of = |operation| {
        let choices = question.choices(operation);
        let mut head = vec!["ranks".to_owned(), "length".to_owned()];
        head.extend(choices.iter().map(|choice| format!("{choice} (µs)")));
        head.push("fastest".to_owned());
        let mut rows = Vec::new();
        for &ranks in &ranks {
            for &length in &lengths {
                let here: Vec<_> = found
                    .rows
                    .iter()
                    .filter(|row| {
                        row.case.operation == operation
                            && row.case.ranks as u64 == ranks
                            && row.bytes() == length
                    })
                    .collect();
                let mut row = vec![count(ranks), bytes(length)];
                row.extend(choices.iter().map(|choice| {
                    let found = here.iter().find(|row| row.choice == *choice);
                    found.map_or_else(dash, |row| microseconds(row.time))
                }));
                let fastest = here.iter().find(|row| row.fastest);
                row.push(fastest.map_or_else(dash, |row| row.case.algorithm.to_string()));
                rows.push(row);
            }
        }
        Titled {
            title: format!("{operation}: time in the model"),
            table: Table {
                head,
                rows,
                numbers_from: 0,
            },
            note: "Of several that are equally fast, the first. collectives.csv has every case, with messages, bytes, \
                   memory, energy, lower bounds and the simulation."
                .to_owned(),
        }
    };
    question.operations.iter().copied().map(of).collect()
}

fn crossovers(found: &Collectives) -> Option<Titled> {
    let rows: Vec<Vec<String>> = found
        .crossovers
        .iter()
        .filter(|crossover| crossover.of_fastest)
        .map(|crossover| {
            vec![
                crossover.operation.to_string(),
                crossover.below.to_string(),
                crossover.above.to_string(),
                count(crossover.ranks as u64),
                count(crossover.bytes),
                crossover
                    .even_bytes
                    .map_or_else(dash, |b| significant(b, 4)),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Titled {
        title: "Where the fastest changes".to_owned(),
        table: Table {
            head: [
                "operation",
                "fastest below",
                "fastest above",
                "ranks",
                "length (B)",
                "closed form, all cut evenly (B)",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows,
            numbers_from: 3,
        },
        note: "Found between the shortest and the longest vector of the table; crossovers.csv has those of all pairs."
            .to_owned(),
    })
}

fn measured(found: &FittedCollectives) -> Titled {
    let percent = |share: f64| significant(100.0 * share, 2);
    let rows = found
        .rows
        .iter()
        .map(|row| {
            vec![
                measured_name(found, row),
                count(row.ranks as u64),
                bytes(row.bytes),
                microseconds(row.median),
                microseconds(row.quartiles.0),
                microseconds(row.quartiles.1),
                row.predicted.map_or_else(dash, microseconds),
                row.error().map_or_else(dash, percent),
                row.left_out_error().map_or_else(dash, percent),
            ]
        })
        .collect();
    Titled {
        title: "Every case".to_owned(),
        table: Table {
            head: [
                "operation, algorithm",
                "ranks",
                "length",
                "measured, median (µs)",
                "lower quartile (µs)",
                "upper quartile (µs)",
                "model (µs)",
                "error of the model (%)",
                "error without this algorithm (%)",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows,
            numbers_from: 1,
        },
        note: "Error: model over measured, less 1. Without this algorithm: of the model fitted to all the others."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::collective_figures::tests::asked;
    use super::*;
    use crate::analysis::collectives_measured::fitted;
    use crate::analysis::collectives_measured::tests::made;

    #[test]
    fn a_report_of_costs_holds_its_numbers_and_figures() {
        let folder = tempfile::tempdir().unwrap();
        let found = asked("2..32", "8..1MiB", true);
        let files = write_collectives(folder.path(), &found).unwrap();
        assert_eq!(files.figures.len(), 8);
        let page = store::read_to_string(&files.html).unwrap();
        for part in [
            "<h1>What collectives cost</h1>",
            "alpha = 1.5e-6 s",
            "equals the closed form, exactly",
            "all-reduce: time in the model",
            "Where the fastest changes",
            "collectives-fastest.svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for name in ["collectives.csv", "crossovers.csv", "parameters.csv"] {
            assert!(store::exists(&folder.path().join(name)), "{name}");
        }
        // A report with fewer figures leaves none of the old ones.
        let less = asked("2..32", "1MiB", false);
        let files = write_collectives(folder.path(), &less).unwrap();
        let left = store::entries(&folder.path().join("figures")).unwrap();
        assert_eq!((files.figures.len(), left.len()), (2, 2));
    }

    #[test]
    fn a_report_of_a_measurement_says_what_was_fitted() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_measured(folder.path(), &fitted(made(0.1)).unwrap()).unwrap();
        let page = store::read_to_string(&files.html).unwrap();
        for part in [
            "95 % interval",
            "more ranks than cores",
            "all-reduce, ring",
            "collectives-model.svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_folder_holds_one_kind_of_report() {
        let folder = tempfile::tempdir().unwrap();
        let costs = asked("2..8", "1MiB", false);
        let measurement = fitted(made(0.1)).unwrap();
        let names = |dir: &Path| -> Vec<String> {
            let all = store::entries(dir).unwrap().into_iter();
            all.map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
                .collect()
        };
        for _ in 0..2 {
            write_collectives(folder.path(), &costs).unwrap();
            assert_eq!(
                names(folder.path()),
                [
                    "collectives.csv",
                    "crossovers.csv",
                    "figures",
                    "parameters.csv",
                    "report.html"
                ]
            );
            let figures = names(&folder.path().join("figures"));
            assert_eq!(figures, ["collectives-ranks.png", "collectives-ranks.svg"]);
            write_measured(folder.path(), &measurement).unwrap();
            assert_eq!(
                names(folder.path()),
                ["figures", "fit.csv", "measured.csv", "report.html"]
            );
            let figures = names(&folder.path().join("figures"));
            assert!(!figures.contains(&"collectives-ranks.svg".to_owned()));
        }
    }
}
