use std::path::{Path, PathBuf};

use super::StoreError;

/// A table: named columns, rows of cells, a cell may be missing.
///
/// A missing cell is written as nothing, never as 0, and an empty text is a missing cell.
/// Numbers are written in the fewest digits that read back as the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    lines: Vec<u64>,
}

/// What can stand in a cell.
pub trait ToCell {
    /// The cell's text; `None`: missing.
    fn to_cell(&self) -> Option<String>;
}

impl Table {
    /// An empty table. `path` is where it will be kept, and appears in errors.
    ///
    /// # Errors
    /// [`StoreError::DuplicateColumn`] if two columns share a name.
    pub fn new(
        path: impl Into<PathBuf>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, StoreError> {
        let columns: Vec<String> = columns.into_iter().map(Into::into).collect();
        let path = path.into();
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].contains(column) {
                return Err(StoreError::DuplicateColumn {
                    path,
                    column: column.clone(),
                });
            }
        }
        Ok(Self {
            path,
            columns,
            rows: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// Appends a row, one cell for each column in order.
    ///
    /// # Errors
    /// [`StoreError::RowWidth`] if there are more or fewer cells than columns.
    pub fn push(&mut self, cells: &[&dyn ToCell]) -> Result<(), StoreError> {
        if cells.len() != self.columns.len() {
            return Err(StoreError::RowWidth {
                expected: self.columns.len(),
                found: cells.len(),
            });
        }
        self.rows.push(cells.iter().map(ToCell::to_cell).collect());
        self.lines
            .push(self.lines.last().map_or(2, |line| line + 1));
        Ok(())
    }

    /// Column names, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows in order, each with one cell for each column.
    pub fn rows(&self) -> &[Vec<Option<String>>] {
        &self.rows
    }

    /// The line of the file on which each row begins; that of the column names is 1.
    pub fn lines(&self) -> &[u64] {
        &self.lines
    }

    /// Whether the table has this column.
    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    /// The texts of a column.
    ///
    /// # Errors
    /// [`StoreError::NoColumn`].
    pub fn texts(&self, column: &str) -> Result<Vec<Option<&str>>, StoreError> {
        let index = self.index(column)?;
        Ok(self.rows.iter().map(|row| row[index].as_deref()).collect())
    }

    /// The numbers of a column. `NaN`, `inf` and `-inf` are numbers here.
    ///
    /// # Errors
    /// [`StoreError::NoColumn`]; [`StoreError::Cell`] for a cell that is no number.
    pub fn numbers(&self, column: &str) -> Result<Vec<Option<f64>>, StoreError> {
        self.parse(column, "a number", |text| text.parse().ok())
    }

    /// The counts of a column: integers from 0.
    ///
    /// # Errors
    /// [`StoreError::NoColumn`]; [`StoreError::Cell`] for a cell that is no such integer.
    pub fn integers(&self, column: &str) -> Result<Vec<Option<u64>>, StoreError> {
        self.parse(column, "an integer from 0", |text| text.parse().ok())
    }

    /// The table as CSV (RFC 4180 quoting, lines end with `\n`), its first line the column names.
    pub fn to_csv(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_record(&mut out, self.columns.iter().map(String::as_str));
        for row in &self.rows {
            write_record(
                &mut out,
                row.iter().map(|cell| cell.as_deref().unwrap_or_default()),
            );
        }
        out
    }

    /// Reads a table. Checked: column names that are there and differ, as many cells in each row
    /// as there are columns, UTF-8, closed quotes, a last line that ends (a file cut off inside
    /// its last number would otherwise read as a different number).
    ///
    /// # Errors
    /// [`StoreError::Malformed`], [`StoreError::DuplicateColumn`], [`StoreError::NotText`].
    pub fn from_csv(path: impl Into<PathBuf>, bytes: &[u8]) -> Result<Self, StoreError> {
        let path = path.into();
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                return Err(StoreError::NotText {
                    path,
                    offset: error.valid_up_to(),
                });
            }
        };
        let malformed = |line: u64, expected: &str, found: String| StoreError::Malformed {
            path: path.clone(),
            line,
            expected: expected.to_owned(),
            found,
        };
        let last_line = text.matches('\n').count() as u64 + 1;
        if text.is_empty() {
            return Err(malformed(1, "column names", "an empty file".to_owned()));
        }
        if !text.ends_with('\n') {
            let found = "the end of the file: it was cut off".to_owned();
            return Err(malformed(last_line, "a line that ends", found));
        }
        if text.matches('"').count() % 2 == 1 {
            let found = "the end of the file: a quote is open".to_owned();
            return Err(malformed(last_line - 1, "a closing quote", found));
        }
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(text.as_bytes());
        let mut records = reader.records();
        let mut next = || match records.next() {
            None => Ok(None),
            Some(Ok(record)) => Ok(Some(record)),
            Some(Err(error)) => Err(malformed(1, "a table", error.to_string())),
        };
        let Some(header) = next()? else {
            return Err(malformed(1, "column names", "empty lines".to_owned()));
        };
        if let Some(index) = header.iter().position(str::is_empty) {
            let found = format!("no name for column {}", index + 1);
            return Err(malformed(1, "column names", found));
        }
        let mut table = Self::new(&path, &header)?;
        while let Some(record) = next()? {
            let line = record.position().map_or(0, |start| line_of(text, start));
            if record.len() != table.columns.len() {
                let expected = format!("{} cells", table.columns.len());
                return Err(malformed(line, &expected, record.len().to_string()));
            }
            table
                .rows
                .push(record.iter().map(ToCell::to_cell).collect());
            table.lines.push(line);
        }
        Ok(table)
    }

    /// Reads the table kept at `path`.
    ///
    /// # Errors
    /// [`StoreError::Io`], and those of [`Table::from_csv`].
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        Self::from_csv(path, &super::read(path)?)
    }

    /// Writes the table to its path, atomically.
    ///
    /// # Errors
    /// As [`super::write_atomic`].
    pub fn write(&self) -> Result<(), StoreError> {
        super::write_atomic(&self.path, &self.to_csv())
    }

    fn index(&self, column: &str) -> Result<usize, StoreError> {
        self.columns
            .iter()
            .position(|name| name == column)
            .ok_or_else(|| StoreError::NoColumn {
                path: self.path.clone(),
                column: column.to_owned(),
                columns: self.columns.clone(),
            })
    }

    fn parse<T>(
        &self,
        column: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<Option<T>>, StoreError> {
        let index = self.index(column)?;
        let cells = self.rows.iter().zip(&self.lines);
        cells
            .map(|(row, &line)| match &row[index] {
                None => Ok(None),
                Some(text) => parse(text).map(Some).ok_or_else(|| StoreError::Cell {
                    path: self.path.clone(),
                    line,
                    column: column.to_owned(),
                    expected,
                    found: text.clone(),
                }),
            })
            .collect()
    }
}

/// The line of a record. Its recorded start comes before any empty lines ahead of it.
fn line_of(text: &str, start: &csv::Position) -> u64 {
    let rest = text
        .as_bytes()
        .get(start.byte() as usize..)
        .unwrap_or_default();
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\n' | b'\r'));
    start.line() + empty.filter(|&&byte| byte == b'\n').count() as u64
}

fn write_record<'a>(out: &mut Vec<u8>, cells: impl ExactSizeIterator<Item = &'a str>) {
    let alone = cells.len() == 1;
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // A lone missing cell would be an empty line, which readers skip.
        if cell.contains([',', '"', '\n', '\r']) || alone && cell.is_empty() {
            out.push(b'"');
            out.extend(cell.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        } else {
            out.extend(cell.as_bytes());
        }
    }
    out.push(b'\n');
}

impl ToCell for str {
    fn to_cell(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_owned())
    }
}

impl ToCell for String {
    fn to_cell(&self) -> Option<String> {
        self.as_str().to_cell()
    }
}

impl<T: ToCell> ToCell for Option<T> {
    fn to_cell(&self) -> Option<String> {
        self.as_ref().and_then(ToCell::to_cell)
    }
}

impl<T: ToCell + ?Sized> ToCell for &T {
    fn to_cell(&self) -> Option<String> {
        (**self).to_cell()
    }
}

macro_rules! cell_by_display {
    ($($type:ty),*) => { $(
        impl ToCell for $type {
            fn to_cell(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )* };
}
cell_by_display!(u32, u64, usize, i64, bool);

macro_rules! cell_by_shortest {
    ($($type:ty),*) => { $(
        impl ToCell for $type {
            fn to_cell(&self) -> Option<String> {
                let size = self.abs();
                // Without an exponent 1e300 would take 301 digits.
                let plain = size == 0.0 || !size.is_finite() || (1e-5..1e16).contains(&size);
                Some(if plain { format!("{self}") } else { format!("{self:e}") })
            }
        }
    )* };
}
cell_by_shortest!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_short_and_read_back_equal() {
        let cases = [
            (0.8, "0.8"),
            (1.0, "1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-10, "1e-10"),
            (1e300, "1e300"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in cases {
            assert_eq!(number.to_cell().as_deref(), Some(text));
            let back: f64 = text.parse().expect("a number");
            assert_eq!(back.to_bits(), number.to_bits(), "{text}");
        }
        assert_eq!(f64::NAN.to_cell().as_deref(), Some("NaN"));
        assert_eq!(0.1f32.to_cell().as_deref(), Some("0.1"));
    }

    #[test]
    fn a_missing_cell_is_nothing_and_never_zero() {
        let mut table = Table::new("t.csv", ["a", "b"]).expect("columns");
        table.push(&[&None::<f64>, &0.0]).expect("two cells");
        assert_eq!(table.to_csv(), b"a,b\n,0\n");
        assert_eq!(table.numbers("a").expect("numbers"), [None]);
    }

    #[test]
    fn a_bad_cell_is_named_by_file_line_and_column() {
        let text = b"step,loss\n1,0.5\n\n2,\"half\"\n";
        let table = Table::from_csv("run/steps.csv", text).expect("a table");
        let error = table.numbers("loss").expect_err("half is no number");
        let expected = "run/steps.csv, line 4, column `loss`: expected a number, found \"half\"";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_missing_column_is_named_with_those_there_are() {
        let table = Table::from_csv("t.csv", b"a,b\n").expect("a table");
        let error = table.texts("c").expect_err("no column c");
        assert_eq!(
            error.to_string(),
            "t.csv: no column `c`; the columns are a, b"
        );
    }

    #[test]
    fn a_short_row_a_cut_file_and_an_open_quote_are_refused() {
        let refused = |text: &[u8]| {
            Table::from_csv("t.csv", text)
                .expect_err("refused")
                .to_string()
        };
        assert_eq!(
            refused(b"a,b\n1,2\n3\n"),
            "t.csv, line 3: expected 2 cells, found 1"
        );
        assert!(refused(b"a,b\n1,2.5").starts_with("t.csv, line 2: expected a line that ends"));
        assert!(refused(b"a,b\n1,\"2\n").starts_with("t.csv, line 2: expected a closing quote"));
        assert_eq!(
            refused(b""),
            "t.csv, line 1: expected column names, found an empty file"
        );
        assert_eq!(
            refused(b"a,,c\n"),
            "t.csv, line 1: expected column names, found no name for column 2"
        );
        assert_eq!(refused(b"a,a\n"), "t.csv: two columns are named `a`");
        assert_eq!(
            refused(b"a\n\xff\n"),
            "t.csv: expected UTF-8 text, found an invalid byte at offset 2"
        );
    }

    #[test]
    fn a_row_of_the_wrong_width_is_refused() {
        let mut table = Table::new("t.csv", ["a", "b"]).expect("columns");
        assert!(matches!(
            table.push(&[&1u64]),
            Err(StoreError::RowWidth {
                expected: 2,
                found: 1
            })
        ));
    }
}
