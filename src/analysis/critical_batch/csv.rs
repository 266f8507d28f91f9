//! A table of steps to target from any framework, as a study of the critical batch size.
//!
//! One row is one trial: `batch`, the examples of an update, and `steps`, the updates to the target
//! (not necessarily whole) or, where `reached` is false, the updates made without it. Optional
//! columns are `case` (each its own critical batch size), `seed`, `rate` and `reached`; the order of
//! columns and rows is free, and other columns are left out and named in [`FromCsv::ignored`].
//!
//! Rows of one case, batch and seed that differ in `rate` are a search over rates. Its best trial is
//! the one with the fewest steps among those that reached the target; of several with as few, the
//! middle rate, which a flat optimum has most room around. Where none reached it, steps to target
//! exceed the most that were made. Without a `rate` column each case, batch and seed has one row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::answer::{Costs, batch_point, case};
use super::types::{Cost, CriticalBatch, SeedPoint, Tried, TriedEnd};
use crate::analysis::numbers::list;
use crate::config::nearest;
use crate::store::{self, StoreError, Table};

/// The columns that are read, the required ones first.
const COLUMNS: [&str; 6] = ["batch", "steps", "case", "seed", "rate", "reached"];

/// The largest integer up to which every integer is a floating-point number.
const LARGEST_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A table of steps to target, read.
#[derive(Debug, Clone, PartialEq)]
pub struct FromCsv {
    /// What it says.
    pub critical_batch: CriticalBatch,
    /// Columns that were not used.
    pub ignored: Vec<String>,
}

/// Why a table of steps to target could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The file could not be read or is not a table, or a cell does not hold what its column is for.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Cells are not separated by commas.
    #[error(
        "{}, line 1: expected column names with commas between them, found {found:?}\n\
         hint: the cells seem to be separated by {separator}; save the table with commas and decimal points",
        path.display()
    )]
    Separator {
        /// The file.
        path: PathBuf,
        /// The line of column names.
        found: String,
        /// What separates them, in words.
        separator: &'static str,
    },
    /// A required column is not there.
    #[error("{}, line 1: expected a column `{column}`, found {}{}", path.display(), columns.join(", "), hint(near.as_deref(), column))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The columns there are.
        columns: Vec<String>,
        /// The one of them that may be meant.
        near: Option<String>,
    },
    /// There are column names alone.
    #[error("{}: expected one row or more below the column names, found none", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
    },
    /// Two rows are of the same trial.
    #[error(
        "{}, lines {first} and {second}: expected one row for each {key}, found two for {values}\nhint: {hint}",
        path.display()
    )]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// Line of the first row.
        first: u64,
        /// Line of the second row.
        second: u64,
        /// What tells rows apart: `batch and seed`.
        key: String,
        /// Its values in these rows.
        values: String,
        /// What may help.
        hint: String,
    },
}

fn hint(near: Option<&str>, column: &str) -> String {
    near.map_or_else(String::new, |near| {
        format!("\nhint: if `{near}` is meant, rename it to `{column}`")
    })
}

/// One row of the table.
#[derive(Debug)]
struct Row {
    line: u64,
    case: String,
    batch: u64,
    seed: u64,
    steps: f64,
    reached: bool,
    rate: Option<f64>,
}

/// Reads steps to target from a CSV file and finds the critical batch size of each of its cases.
///
/// # Errors
/// [`CsvError`]: a file that cannot be read or is not a table; a required column that is missing; no
/// rows; a batch that is no integer from 1; steps or a rate that are no finite number above 0; rows
/// that cannot be told apart. Too few batches for a fit are no error: [`Case::fit`] says so.
///
/// [`Case::fit`]: super::Case::fit
pub fn from_csv(path: &Path) -> Result<FromCsv, CsvError> {
    parse(path, store::read(path)?)
}

fn parse(path: &Path, mut bytes: Vec<u8>) -> Result<FromCsv, CsvError> {
    // Editors and other programs leave the end of the last line out.
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    separated_by_commas(path, &bytes)?;
    let table = Table::from_csv(path, &bytes)?;
    let columns = Columns::of(path, &table)?;
    let rows = columns.rows(path, &table)?;
    if rows.is_empty() {
        let path = path.to_owned();
        return Err(CsvError::NoRows { path });
    }
    no_duplicates(path, &columns, &rows)?;
    let name = path.file_stem().unwrap_or(path.as_os_str());
    Ok(FromCsv {
        critical_batch: CriticalBatch {
            unfinished: None,
            name: name.to_string_lossy().into_owned(),
            description: None,
            target: None,
            crossing: None,
            cases: cases(rows),
        },
        ignored: columns.ignored,
    })
}

/// Refuses a first line that another separator than the comma explains.
fn separated_by_commas(path: &Path, bytes: &[u8]) -> Result<(), CsvError> {
    let text = String::from_utf8_lossy(bytes);
    let first = text.lines().find(|line| !line.trim().is_empty());
    let Some(first) = first.filter(|line| !line.contains(',')) else {
        return Ok(());
    };
    let separators = [(';', "semicolons"), ('\t', "tabs"), ('|', "bars")];
    match separators.into_iter().find(|(c, _)| first.contains(*c)) {
        None => Ok(()),
        Some((_, separator)) => Err(CsvError::Separator {
            path: path.to_owned(),
            found: first.trim_start_matches('\u{feff}').to_owned(),
            separator,
        }),
    }
}

/// Where the columns are.
struct Columns {
    batch: usize,
    steps: usize,
    case: Option<usize>,
    seed: Option<usize>,
    rate: Option<usize>,
    reached: Option<usize>,
    ignored: Vec<String>,
}

impl Columns {
    fn of(path: &Path, table: &Table) -> Result<Self, CsvError> {
        let names: Vec<&str> = table.columns().iter().map(|name| name.trim()).collect();
        let find = |column: &str| names.iter().position(|name| *name == column);
        let required = |column: &'static str| {
            find(column).ok_or_else(|| {
                let free = || names.iter().copied().filter(|n| !COLUMNS.contains(n));
                let holds = |name: &&str| name.to_lowercase().contains(column);
                let near = nearest(column, free()).or_else(|| free().find(holds));
                CsvError::NoColumn {
                    path: path.to_owned(),
                    column,
                    columns: names.iter().map(|name| format!("`{name}`")).collect(),
                    near: near.map(str::to_owned),
                }
            })
        };
        let used = COLUMNS.map(find);
        let ignored = (0..names.len()).filter(|i| !used.contains(&Some(*i)));
        Ok(Self {
            batch: required("batch")?,
            steps: required("steps")?,
            case: find("case"),
            seed: find("seed"),
            // What knows no rates writes the column empty.
            rate: find("rate").filter(|&index| {
                let filled = |cells: &Vec<Option<String>>| cells[index].is_some();
                table.rows().iter().any(filled)
            }),
            reached: find("reached"),
            ignored: ignored.map(|i| names[i].to_owned()).collect(),
        })
    }

    fn rows(&self, path: &Path, table: &Table) -> Result<Vec<Row>, CsvError> {
        let lines = table.rows().iter().zip(table.lines());
        lines
            .map(|(cells, &line)| {
                let text = |index: usize| cells[index].as_deref().unwrap_or_default().trim();
                let wrong = |index: usize, expected: &'static str| StoreError::Cell {
                    path: path.to_owned(),
                    line,
                    column: table.columns()[index].trim().to_owned(),
                    expected,
                    found: text(index).to_owned(),
                };
                let cell = |index: Option<usize>| index.map(|index| (index, text(index)));
                let case = match cell(self.case) {
                    None => String::new(),
                    Some((index, "")) => return Err(wrong(index, "the name of a case").into()),
                    Some((_, name)) => name.to_owned(),
                };
                let seed = cell(self.seed).map(|(index, text)| {
                    integer(text, 0.0).ok_or_else(|| wrong(index, "an integer from 0"))
                });
                let reached = cell(self.reached).map(|(index, text)| {
                    truth(text).ok_or_else(|| wrong(index, "true or false, 1 or 0, yes or no"))
                });
                let reached = reached.transpose()?.unwrap_or(true);
                // A search that no rate ended has no best one.
                let none = |text: &str| text.is_empty() && !reached;
                let rate = cell(self.rate).filter(|(_, text)| !none(text));
                let rate = rate.map(|(index, text)| {
                    positive(text).ok_or_else(|| wrong(index, "a finite number above 0"))
                });
                Ok(Row {
                    line,
                    case,
                    batch: integer(text(self.batch), 1.0)
                        .ok_or_else(|| wrong(self.batch, "an integer from 1"))?,
                    seed: seed.transpose()?.unwrap_or(0),
                    steps: positive(text(self.steps))
                        .ok_or_else(|| wrong(self.steps, "a finite number above 0"))?,
                    reached,
                    rate: rate.transpose()?,
                })
            })
            .collect()
    }
}

/// An integer from `least`, which other programs may have written as `64.0` or `1e3`.
fn integer(text: &str, least: f64) -> Option<u64> {
    if let Ok(value) = text.parse::<u64>() {
        return (value as f64 >= least).then_some(value);
    }
    let value: f64 = text.parse().ok()?;
    let sound = value >= least && value <= LARGEST_INTEGER && value.fract() == 0.0;
    sound.then_some(value as u64)
}

fn positive(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    (value > 0.0 && value.is_finite()).then_some(value)
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "1.0" => Some(true),
        "false" | "0" | "no" | "0.0" => Some(false),
        _ => None,
    }
}

fn no_duplicates(path: &Path, columns: &Columns, rows: &[Row]) -> Result<(), CsvError> {
    let mut seen = BTreeMap::new();
    for row in rows {
        let rate = row.rate.map_or(0, f64::to_bits);
        let key = (row.case.as_str(), row.batch, row.seed, rate);
        let Some(first) = seen.insert(key, row.line) else {
            continue;
        };
        let parts = [
            columns.case.map(|_| ("case", row.case.clone())),
            Some(("batch", row.batch.to_string())),
            columns.seed.map(|_| ("seed", row.seed.to_string())),
            row.rate.map(|rate| ("rate", rate.to_string())),
        ];
        let named = |name: &dyn Fn(&(&str, String)) -> String| {
            list(&parts.iter().flatten().map(name).collect::<Vec<_>>())
        };
        let mut missing = Vec::new();
        if columns.seed.is_none() {
            missing.push("repeats need a column `seed`");
        }
        if columns.rate.is_none() {
            missing.push("a search over learning rates needs a column `rate`");
        }
        let mut hint = if missing.is_empty() {
            "leave one of them out".to_owned()
        } else {
            missing.join("; ")
        };
        if !missing.is_empty() && !columns.ignored.is_empty() {
            hint = format!("{hint} (columns not used: {})", columns.ignored.join(", "));
        }
        return Err(CsvError::Duplicate {
            path: path.to_owned(),
            first,
            second: row.line,
            key: named(&|(name, _)| (*name).to_owned()),
            values: named(&|(name, value)| format!("{name} {value}")),
            hint,
        });
    }
    Ok(())
}

/// Groups rows into cases, in the order in which these appear, and asks each for its answer.
fn cases(rows: Vec<Row>) -> Vec<super::Case> {
    type Batches = BTreeMap<u64, BTreeMap<u64, Vec<Row>>>;
    let mut found: Vec<(String, Batches)> = Vec::new();
    for row in rows {
        let index = found.iter().position(|(label, _)| *label == row.case);
        let index = index.unwrap_or_else(|| {
            found.push((row.case.clone(), BTreeMap::new()));
            found.len() - 1
        });
        let seeds = found[index].1.entry(row.batch).or_default();
        seeds.entry(row.seed).or_default().push(row);
    }
    let points = |batches: Batches| {
        let point = |(batch, seeds): (u64, BTreeMap<u64, Vec<Row>>)| {
            let seeds = seeds.into_iter().map(|(seed, rows)| search(seed, rows));
            batch_point(batch, seeds.collect())
        };
        batches.into_iter().map(point).collect()
    };
    found
        .into_iter()
        .map(|(label, batches)| {
            let costs = Costs {
                sweep: Some(cost(batches.values().flat_map(BTreeMap::values).flatten())),
                ..Costs::default()
            };
            case(label, points(batches), None, Vec::new(), &costs, None)
        })
        .collect()
}

/// What the trials took; a table does not know the time.
fn cost<'a>(rows: impl Iterator<Item = &'a Row>) -> Cost {
    let (mut examples, mut trials) = (0.0, 0);
    for row in rows {
        examples += row.steps * row.batch as f64;
        trials += 1;
    }
    Cost {
        examples: examples.round() as u64,
        seconds: None,
        trials,
    }
}

/// The best of the rows of one case, batch and seed.
fn search(seed: u64, mut rows: Vec<Row>) -> SeedPoint {
    let rate_of = |row: &Row| row.rate.unwrap_or(0.0);
    rows.sort_by(|a, b| rate_of(a).total_cmp(&rate_of(b)));
    let reached = || rows.iter().filter(|row| row.reached).map(|row| row.steps);
    let steps = reached().min_by(f64::total_cmp);
    let ties: Vec<usize> = (0..rows.len())
        .filter(|&i| rows[i].reached && Some(rows[i].steps) == steps)
        .collect();
    let best = (!ties.is_empty()).then(|| ties[(ties.len() - 1) / 2]);
    let unreached = rows.iter().filter(|row| !row.reached);
    let bound = unreached.map(|row| row.steps).fold(0.0, f64::max);
    SeedPoint {
        seed,
        steps,
        bound,
        rate: best.and_then(|i| rows[i].rate),
        others: String::new(),
        edge: rows.len() > 1 && best.is_some_and(|i| i == 0 || i + 1 == rows.len()),
        tried: rows.iter().filter_map(tried).collect(),
    }
}

fn tried(row: &Row) -> Option<Tried> {
    Some(Tried {
        rate: row.rate?,
        others: String::new(),
        steps: row.reached.then_some(row.steps),
        end: if row.reached {
            TriedEnd::Reached
        } else {
            TriedEnd::Censored
        },
        made: row.steps.ceil() as u64,
        best: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::steps_fit::FitError;

    fn read(text: &str) -> Result<FromCsv, CsvError> {
        parse(Path::new("steps.csv"), text.as_bytes().to_vec())
    }

    fn sound(text: &str) -> CriticalBatch {
        read(text).expect("a sound table").critical_batch
    }

    fn refused(text: &str) -> String {
        read(text).expect_err("a bad table").to_string()
    }

    #[test]
    fn rows_in_any_order_and_columns_in_any_order_are_one_case() {
        let study = sound("steps,batch\n150,128\n200,64\n");
        assert_eq!(study.name, "steps");
        let [case] = study.cases.as_slice() else {
            panic!("one case")
        };
        assert_eq!(case.label, "");
        let batches: Vec<u64> = case.batches.iter().map(|point| point.batch).collect();
        assert_eq!(batches, [64, 128]);
        let fit = case.fit.as_ref().expect("two batches are enough");
        // 200 = S (1 + B/64) and 150 = S (1 + B/128) have S = 100 and B = 64.
        assert!((fit.fit.s_min - 100.0).abs() < 1e-6, "{}", fit.fit.s_min);
        assert!((fit.fit.b_crit - 64.0).abs() < 1e-5, "{}", fit.fit.b_crit);
        assert!(fit.intervals.is_none() && fit.goodness.r_squared.is_none());
    }

    #[test]
    fn the_published_points_have_the_published_critical_batches() {
        // Zhang et al. 2024 (arXiv 2410.21676); the fits are least squares in the logarithm by scipy.
        let table = include_str!("../../../tests/reference/zhang2024.csv");
        let study = sound(&table.replacen("model,", "case,", 1));
        assert_eq!(study.cases.len(), 5);
        for (label, b_crit, s_min) in [
            ("85M", 2241.0, 1265.0),
            ("151M", 3304.0, 1710.0),
            ("604M", 7913.0, 2458.0),
        ] {
            let case = study.cases.iter().find(|case| case.label == label);
            let case = case.expect("a case for each model");
            let fit = case.fit.as_ref().expect("nine batches").fit;
            assert!((fit.b_crit / b_crit - 1.0).abs() < 0.01, "{label}: {fit:?}");
            assert!((fit.s_min / s_min - 1.0).abs() < 0.01, "{label}: {fit:?}");
        }
    }

    #[test]
    fn the_best_rate_is_the_one_with_the_fewest_steps_that_reached() {
        let study = sound(
            "batch,rate,steps,reached,seed\n\
             64,0.4,90,no,1\n64,0.1,200,yes,1\n64,0.2,100.5,True,1\n64,0.8,120,1.0,1\n",
        );
        let seed = &study.cases[0].batches[0].seeds[0];
        assert_eq!(
            (seed.seed, seed.steps, seed.rate),
            (1, Some(100.5), Some(0.2))
        );
        assert!(!seed.edge);
        let tried: Vec<_> = seed
            .tried
            .iter()
            .map(|t| (t.rate, t.steps, t.end, t.made))
            .collect();
        assert_eq!(
            tried,
            [
                (0.1, Some(200.0), TriedEnd::Reached, 200),
                (0.2, Some(100.5), TriedEnd::Reached, 101),
                (0.4, None, TriedEnd::Censored, 90),
                (0.8, Some(120.0), TriedEnd::Reached, 120),
            ]
        );
        // 64 (90 + 200 + 100.5 + 120).
        let cost = study.cases[0].estimates[0].cost.expect("a cost");
        assert_eq!(
            (cost.examples, cost.trials, cost.seconds),
            (32_672, 4, None)
        );
    }

    #[test]
    fn a_best_rate_at_the_end_of_those_tried_is_flagged_and_a_lone_rate_is_not() {
        let edge = |text: &str| sound(text).cases[0].batches[0].seeds[0].edge;
        assert!(edge("batch,rate,steps\n64,0.1,9\n64,0.2,8\n"));
        assert!(edge("batch,rate,steps\n64,0.1,7\n64,0.2,8\n64,0.4,9\n"));
        assert!(!edge("batch,rate,steps\n64,0.1,7\n"));
        // Of rates that are equally good the middle one is the best.
        assert!(!edge(
            "batch,rate,steps\n64,0.1,7\n64,0.2,7\n64,0.4,7\n64,0.8,9\n"
        ));
    }

    #[test]
    fn a_search_that_never_reached_the_target_is_censored_at_its_longest_trial() {
        let study = sound(
            "batch,rate,steps,reached\n64,0.1,50,false\n64,0.2,80,0\n128,0.1,40,1\n256,0.1,30,1\n",
        );
        let case = &study.cases[0];
        let seed = &case.batches[0].seeds[0];
        assert_eq!(
            (seed.steps, seed.bound, seed.rate, seed.edge),
            (None, 80.0, None, false)
        );
        assert_eq!(case.batches[0].steps, None);
        assert_eq!(
            case.fit
                .as_ref()
                .expect("two batches reached it")
                .fit
                .censored,
            1
        );
    }

    #[test]
    fn a_table_where_nothing_reached_says_so() {
        let study = sound("batch,steps,reached\n64,50,false\n128,80,false\n");
        let case = &study.cases[0];
        assert!(matches!(case.fit, Err(FitError::NothingReached { .. })));
        let words = super::super::words(case).join(" ");
        assert!(
            words.contains("The longest trial made 80 updates."),
            "{words}"
        );
    }

    #[test]
    fn cases_keep_the_order_of_the_table() {
        let study = sound("case,batch,steps\nwide,64,50\nnarrow,64,20\nwide,128,30\n");
        let labels: Vec<&str> = study.cases.iter().map(|case| case.label.as_str()).collect();
        assert_eq!(labels, ["wide", "narrow"]);
        assert_eq!(study.cases[0].batches.len(), 2);
        assert_eq!(
            study.cases[1].fit,
            Err(FitError::TooFewBatches { found: 1 })
        );
    }

    #[test]
    fn other_columns_are_left_out_and_named() {
        let found = read("batch, steps ,lr,note\n64, 50 ,0.1,\"a, b\"\n 128,40.5,0.2,\n")
            .expect("spaces do no harm");
        assert_eq!(found.ignored, ["lr", "note"]);
        let batches = &found.critical_batch.cases[0].batches;
        assert_eq!(batches[1].seeds[0].steps, Some(40.5));
        assert_eq!(batches[1].rate, None);
    }

    #[test]
    fn a_table_of_another_program_reads_alike() {
        // A byte-order mark, lines that end as on Windows, numbers with a point, no end of line.
        let study =
            sound("\u{feff}batch,steps,seed,reached\r\n64.0,5e2,0.0,True\r\n1e3,40,0,False");
        let batches = &study.cases[0].batches;
        assert_eq!((batches[0].batch, batches[1].batch), (64, 1000));
        assert_eq!(batches[0].seeds[0].steps, Some(500.0));
        assert_eq!(batches[1].seeds[0].steps, None);
    }

    #[test]
    fn a_missing_column_is_named_with_those_there_are_and_the_nearest() {
        assert_eq!(
            refused("batch,step\n64,50\n"),
            "steps.csv, line 1: expected a column `steps`, found `batch`, `step`\n\
             hint: if `step` is meant, rename it to `steps`"
        );
        assert!(
            refused("batch_size,steps\n64,50\n")
                .ends_with("if `batch_size` is meant, rename it to `batch`")
        );
        assert!(
            refused("Batch,Steps\n64,50\n").ends_with("if `Batch` is meant, rename it to `batch`")
        );
        assert_eq!(
            refused("a,b\n1,2\n"),
            "steps.csv, line 1: expected a column `batch`, found `a`, `b`"
        );
    }

    #[test]
    fn semicolons_and_tabs_are_recognized() {
        let error = refused("batch;steps\n64;50,5\n");
        assert!(
            error.starts_with("steps.csv, line 1: expected column names with commas"),
            "{error}"
        );
        assert!(error.contains("separated by semicolons"), "{error}");
        assert!(refused("batch\tsteps\n64\t50\n").contains("separated by tabs"));
    }

    #[test]
    fn a_cell_that_cannot_be_is_named_by_line_and_column() {
        for (cell, column, expected) in [
            ("0,50", "batch", "an integer from 1"),
            ("-8,50", "batch", "an integer from 1"),
            ("8.5,50", "batch", "an integer from 1"),
            ("inf,50", "batch", "an integer from 1"),
            ("many,50", "batch", "an integer from 1"),
            ("64,0", "steps", "a finite number above 0"),
            ("64,-3", "steps", "a finite number above 0"),
            ("64,nan", "steps", "a finite number above 0"),
            ("64,inf", "steps", "a finite number above 0"),
            ("64,x", "steps", "a finite number above 0"),
            ("64,", "steps", "a finite number above 0"),
        ] {
            let error = refused(&format!("batch,steps\n32,70\n\n{cell}\n"));
            let (batch, steps) = cell.split_once(',').expect("two cells");
            let found = if column == "batch" { batch } else { steps };
            assert_eq!(
                error,
                format!(
                    "steps.csv, line 4, column `{column}`: expected {expected}, found \"{found}\""
                )
            );
        }
        let optional =
            |column: &str, cell: &str| refused(&format!("batch,steps,{column}\n64,50,{cell}\n"));
        assert!(
            optional("seed", "-1")
                .contains("column `seed`: expected an integer from 0, found \"-1\"")
        );
        assert!(optional("seed", "").contains("found \"\""));
        assert!(
            optional("rate", "0")
                .contains("column `rate`: expected a finite number above 0, found \"0\"")
        );
        assert!(
            optional("reached", "maybe")
                .contains("column `reached`: expected true or false, 1 or 0, yes or no")
        );
        assert!(optional("case", " ").contains("column `case`: expected the name of a case"));
    }

    #[test]
    fn a_table_without_rows_is_refused() {
        assert_eq!(
            refused(""),
            "steps.csv, line 1: expected column names, found an empty file"
        );
        let none = "steps.csv: expected one row or more below the column names, found none";
        assert_eq!(refused("batch,steps\n"), none);
        assert_eq!(refused("batch,steps"), none);
    }

    #[test]
    fn two_rows_of_one_trial_are_refused_with_both_lines() {
        assert_eq!(
            refused("batch,steps,seed,rate,case\n64,50,1,0.1,a\n64,60,1,0.2,a\n64,70,1,0.10,a\n"),
            "steps.csv, lines 2 and 4: expected one row for each case, batch, seed and rate, found two \
             for case a, batch 64, seed 1 and rate 0.1\nhint: leave one of them out"
        );
        assert_eq!(
            refused("batch,steps,seed\n64,50,0\n64,60,0\n"),
            "steps.csv, lines 2 and 3: expected one row for each batch and seed, found two for batch 64 \
             and seed 0\nhint: a search over learning rates needs a column `rate`"
        );
        assert_eq!(
            refused("batch,steps,lr\n64,50,0.1\n128,40,0.1\n64,60,0.2\n"),
            "steps.csv, lines 2 and 4: expected one row for each batch, found two for batch 64\n\
             hint: repeats need a column `seed`; a search over learning rates needs a column `rate` \
             (columns not used: lr)"
        );
        assert!(
            refused("batch,steps,rate\n64,50,0.1\n64,60,0.1\n")
                .ends_with("hint: repeats need a column `seed`")
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("absent.csv");
        let error = from_csv(&path).expect_err("no file").to_string();
        assert!(error.contains("absent.csv"), "{error}");
    }
}
