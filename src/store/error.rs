use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What went wrong with a file: which file, what was tried, and what would help.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {action} {}: {error}{}", path.display(), Hint(hint_for(action, error)))]
    Io {
        /// What was tried, as a verb: `write`, `read`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
    /// A text file holds bytes that are not UTF-8.
    #[error("{}: expected UTF-8 text, found an invalid byte at offset {offset}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// Offset of the first invalid byte.
        offset: usize,
    },
    /// A table's text is not a table.
    #[error("{}, line {line}: expected {expected}, found {found}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What a sound file has there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A cell does not hold what its column is for.
    #[error("{}, line {line}, column `{column}`: expected {expected}, found {found:?}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column name.
        column: String,
        /// What the column holds.
        expected: &'static str,
        /// What the cell holds.
        found: String,
    },
    /// A table lacks a column.
    #[error("{}: no column `{column}`; the columns are {}", path.display(), columns.join(", "))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column asked for.
        column: String,
        /// The columns there are.
        columns: Vec<String>,
    },
    /// A row was pushed that does not fit its table (a mistake in the program, not in a file).
    #[error("a table of {expected} columns was given a row of {found} cells")]
    RowWidth {
        /// Columns of the table.
        expected: usize,
        /// Cells of the row.
        found: usize,
    },
    /// A table was made with two columns of one name.
    #[error("{}: two columns are named `{column}`", path.display())]
    DuplicateColumn {
        /// The file.
        path: PathBuf,
        /// The name.
        column: String,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            error,
        }
    }

    /// The kind of the system's answer, where the system refused.
    pub fn io_kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Io { error, .. } => Some(error.kind()),
            _ => None,
        }
    }
}

struct Hint(Option<&'static str>);

impl fmt::Display for Hint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |hint| {
            out.write_char('\n')?;
            write!(out, "hint: {hint}")
        })
    }
}

fn hint_for(action: &str, error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound if action == "write" => {
            Some("its folder is not there: if it was removed meanwhile, run the same command again")
        }
        ErrorKind::IsADirectory => Some("a folder stands where a file is needed: move it away"),
        ErrorKind::StorageFull => {
            Some("the disk is full: free some space and run the same command again")
        }
        ErrorKind::QuotaExceeded => {
            Some("the disk quota is used up: free some space and run the same command again")
        }
        ErrorKind::PermissionDenied => Some("check the owner and the permissions of the folder"),
        ErrorKind::ReadOnlyFilesystem => {
            Some("the file system is mounted read-only: choose a folder on another one")
        }
        ErrorKind::NotADirectory => Some("a file stands where a folder is needed: move it away"),
        ErrorKind::Unsupported => {
            Some("this file system lacks the operation: choose a folder on another one")
        }
        _ => None,
    }
}
