//! CSV files: one example a row, numbers in every column but the label's. Every error names line
//! and column.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::content::Content;
use super::{DataError, FileRecord};

/// A gzip CSV may expand this much: tables of numbers stay below 100, and there is no header that
/// says how much there will be.
const MOST_EXPANSION: u64 = 256;

/// The content of one CSV file.
#[derive(Debug, Clone, PartialEq)]
pub struct Delimited {
    /// Names of the feature columns; numbers from 0 where there is no header.
    pub columns: Vec<String>,
    /// Features, row-major.
    pub features: Vec<f32>,
    /// For each row the index of its label in `names`.
    pub labels: Vec<u32>,
    /// Distinct labels in order of appearance, each with the line where it first stands.
    pub names: Vec<(String, u64)>,
    /// Name, checksum and length of the file.
    pub record: FileRecord,
}

/// Reads a CSV file, raw or gzip. `label` is the name of the label column, or its number from 0
/// where there is no header.
///
/// # Errors
/// If the file is unreadable, has no rows, no such label column, rows of different lengths, or a
/// feature that is missing or not a finite number.
pub fn read(path: &Path, label: &str, header: bool) -> Result<Delimited, DataError> {
    parse(Content::open(path)?, label, header)
}

/// As [`read`], from content already opened.
///
/// # Errors
/// As [`read`].
pub fn parse(content: Content, label: &str, header: bool) -> Result<Delimited, DataError> {
    let path = content.path().to_owned();
    // Rows of the wrong length are refused below, with both counts.
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(Source::new(content));
    let mut row = StringRecord::new();
    if !next(&mut reader, &mut row, &path)? {
        return Err(DataError::format(
            &path,
            "rows of examples",
            "an empty file",
        ));
    }
    let names: Vec<String> = if header {
        row.iter().map(str::to_owned).collect()
    } else {
        (0..row.len()).map(|column| column.to_string()).collect()
    };
    let label_column = find_label(&path, &names, label, header)?;
    if names.len() < 2 {
        return Err(DataError::format(
            &path,
            "a label and at least one feature",
            "one column",
        ));
    }

    let mut table = Delimited {
        columns: Vec::new(),
        features: Vec::new(),
        labels: Vec::new(),
        names: Vec::new(),
        record: FileRecord::default(),
    };
    let mut known: HashMap<String, u32> = HashMap::new();
    let mut more = !header || next(&mut reader, &mut row, &path)?;
    while more {
        let line = reader.get_mut().line(row.position());
        let fail = |column: Option<usize>, expected: &str, found: String| DataError::Row {
            path: path.clone(),
            line,
            column: column.map(|column| {
                if header {
                    format!("`{}`", names[column])
                } else {
                    names[column].clone()
                }
            }),
            expected: expected.to_owned(),
            found,
        };
        if row.len() != names.len() {
            return Err(fail(
                None,
                &format!("{} columns", names.len()),
                row.len().to_string(),
            ));
        }
        for (column, cell) in row.iter().enumerate() {
            if column == label_column {
                if cell.is_empty() {
                    return Err(fail(Some(column), "a label", "nothing".to_owned()));
                }
                let id = if let Some(&id) = known.get(cell) {
                    id
                } else {
                    let id = table.names.len() as u32;
                    known.insert(cell.to_owned(), id);
                    table.names.push((cell.to_owned(), line));
                    id
                };
                table.labels.push(id);
                continue;
            }
            match cell.parse::<f32>() {
                Ok(value) if value.is_finite() => table.features.push(value),
                _ if cell.is_empty() => {
                    return Err(fail(Some(column), "a number", "nothing".to_owned()));
                }
                _ => {
                    return Err(fail(
                        Some(column),
                        "a finite number",
                        format!("`{}`", shortened(cell)),
                    ));
                }
            }
        }
        more = next(&mut reader, &mut row, &path)?;
    }
    if table.labels.is_empty() {
        return Err(DataError::format(
            &path,
            "rows of examples",
            "a header alone",
        ));
    }
    table.columns = names;
    table.columns.remove(label_column);
    table.record = reader.into_inner().content.finish()?;
    Ok(table)
}

fn find_label(
    path: &Path,
    names: &[String],
    label: &str,
    header: bool,
) -> Result<usize, DataError> {
    let mut matching = (0..names.len()).filter(|&column| names[column] == label);
    match (matching.next(), matching.next()) {
        (Some(column), None) => Ok(column),
        (Some(_), Some(_)) => Err(DataError::format(
            path,
            format!("one column named `{label}`"),
            "several in the header",
        )),
        (None, _) => {
            let shown: Vec<&str> = names.iter().take(12).map(String::as_str).collect();
            let more = if names.len() > shown.len() {
                ", ..."
            } else {
                ""
            };
            let columns = format!("{}{more}", shown.join(", "));
            Err(if header {
                DataError::format(
                    path,
                    format!("a column named `{label}` (`data.source.csv.label`)"),
                    format!(
                        "columns {}\nhint: if the first row is no header, set `header = false` and give the label column's number from 0",
                        shortened(&columns)
                    ),
                )
            } else {
                DataError::format(
                    path,
                    format!(
                        "`data.source.csv.label` to be a column's number from 0 to {}, as there is no header",
                        names.len() - 1
                    ),
                    format!("`{label}`"),
                )
            })
        }
    }
}

/// Reads one row; `false` at the end.
fn next(
    reader: &mut csv::Reader<Source>,
    row: &mut StringRecord,
    path: &Path,
) -> Result<bool, DataError> {
    reader.read_record(row).map_err(|error| {
        let line = reader.get_mut().line(error.position());
        let text = error.to_string();
        match error.into_kind() {
            csv::ErrorKind::Io(source) => reader.get_ref().content.failure(source),
            csv::ErrorKind::Utf8 { err, .. } => DataError::Row {
                path: path.to_owned(),
                line,
                column: None,
                expected: "UTF-8 text".to_owned(),
                found: format!("other bytes in field {}", err.field()),
            },
            _ => DataError::format(path, "a CSV file", text),
        }
    })
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The bytes for the CSV parser: ends in an error where a compressed file expands beyond reason,
/// and counts lines, as the parser takes a record to start at the blank lines before it.
struct Source {
    content: Content,
    left: u64,
    read: u64,
    line: u64,
    /// Where the current line starts, if nothing but its start was seen yet.
    blank_since: Option<u64>,
    after_return: bool,
    /// Start and number of each line that is not blank, as far as read ahead.
    lines: VecDeque<(u64, u64)>,
}

impl Source {
    fn new(content: Content) -> Self {
        Self {
            left: content.stored().saturating_mul(MOST_EXPANSION),
            content,
            read: 0,
            line: 1,
            blank_since: Some(0),
            after_return: false,
            lines: VecDeque::new(),
        }
    }

    /// Number of the first line at or after this position that is not blank. Positions must not
    /// decrease from call to call.
    fn line(&mut self, position: Option<&csv::Position>) -> u64 {
        let byte = position.map_or(0, csv::Position::byte);
        while self.lines.front().is_some_and(|&(start, _)| start < byte) {
            self.lines.pop_front();
        }
        self.lines.front().map_or(self.line, |&(_, line)| line)
    }

    fn count(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.read += 1;
            match byte {
                b'\n' if self.after_return => self.blank_since = Some(self.read),
                b'\n' | b'\r' => {
                    self.line += 1;
                    self.blank_since = Some(self.read);
                }
                _ => {
                    if let Some(start) = self.blank_since.take() {
                        self.lines.push_back((start, self.line));
                    }
                }
            }
            self.after_return = byte == b'\r';
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(buffer)?;
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it expands to more than {MOST_EXPANSION} times its size; unpack it first"),
            )
        })?;
        self.count(&buffer[..n]);
        Ok(n)
    }
}

/// Class of each distinct label: the labels in sorted order, by value if all are integers.
pub(crate) fn classes(names: &[(String, u64)]) -> Vec<&str> {
    let mut sorted: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    let numbers: Option<Vec<i64>> = sorted.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some() {
        sorted.sort_by_key(|name| (name.parse::<i64>().unwrap_or(0), *name));
    } else {
        sorted.sort_unstable();
    }
    sorted
}
