//! What can be wrong with data: the files, the options, the download.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// Why examples could not be loaded, downloaded or imported. Each message says where, what was
/// expected and what was found; a hint, where there is one, is on its own line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },

    /// A folder, pipe or device where a file of examples should be.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },

    /// A named set of which a file is not in its folder.
    #[error(
        "`{name}` is not in {}: there is no {file}\n\
         hint: `batchlab data fetch {name}` downloads it; `batchlab data import {name} --from DIR` takes files you have",
        dir.display()
    )]
    MissingSet {
        /// The set.
        name: String,
        /// Where it should be.
        dir: PathBuf,
        /// The first file that is missing.
        file: String,
    },

    /// A file to import that is not in the folder.
    #[error("no {file} (nor {file}.gz) in {}{hint}", dir.display())]
    MissingFile {
        /// The folder.
        dir: PathBuf,
        /// The file.
        file: String,
        /// Empty, or a line with a hint.
        hint: String,
    },

    /// A name that is no data set.
    #[error("there is no data set `{name}` to fetch or import\nhint: known sets are {known}")]
    UnknownSet {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },

    /// The content is not what its format requires.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the format requires.
        expected: String,
        /// What is there.
        found: String,
    },

    /// The content ends too early.
    #[error("{} is truncated: expected {expected} bytes of {what}, found {found}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What was being read.
        what: &'static str,
        /// Bytes needed.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },

    /// The header speaks of more than a file of this length can hold.
    #[error(
        "{}: the header declares {declared} bytes of {what}, but a file of {stored} bytes cannot hold more than {most}",
        path.display()
    )]
    LyingHeader {
        /// The file.
        path: PathBuf,
        /// What the header describes.
        what: &'static str,
        /// Bytes by the header.
        declared: u128,
        /// Length of the file as stored.
        stored: u64,
        /// The most that a file of this length can hold.
        most: u64,
    },

    /// A row of a CSV file.
    #[error("{}, line {line}{}: expected {expected}, found {found}", path.display(), column_text(column.as_ref()))]
    Row {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Name or number of the column, where it is about one.
        column: Option<String>,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },

    /// The files of one source do not fit together.
    #[error("{} does not fit {}: expected {expected}, found {found}", second.display(), first.display())]
    Mismatch {
        /// The file that sets the expectation.
        first: PathBuf,
        /// The file that breaks it.
        second: PathBuf,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },

    /// Not the published content.
    #[error(
        "{} has the wrong checksum: expected sha256 {expected}, found {found}{hint}",
        path.display()
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Published sha256 of the uncompressed content.
        expected: String,
        /// What the content has.
        found: String,
        /// Empty, or a line with a hint.
        hint: String,
    },

    /// An option that makes no sense for this data.
    #[error("`{key}` must be {expected}, found {found}")]
    Option {
        /// Dotted TOML key.
        key: &'static str,
        /// What would be right.
        expected: String,
        /// What was given.
        found: String,
    },

    /// One file could not be had from any mirror.
    #[error("could not download {file}:{}{hint}", list(attempts))]
    Download {
        /// The file.
        file: String,
        /// Each address with why it failed.
        attempts: Vec<(String, String)>,
        /// Empty, or a line with a hint.
        hint: String,
    },

    /// Another process is at it.
    #[error("another process is downloading into {}", dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
    },

    /// The file could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn column_text(column: Option<&String>) -> String {
    column
        .map(|name| format!(", column {name}"))
        .unwrap_or_default()
}

fn list(attempts: &[(String, String)]) -> String {
    let lines: Vec<String> = attempts
        .iter()
        .map(|(url, why)| format!("\n  {url}: {why}"))
        .collect();
    lines.concat()
}

impl DataError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn format(
        path: &Path,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Format {
            path: path.to_owned(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn option(
        key: &'static str,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Self {
        Self::Option {
            key,
            expected: expected.into(),
            found: format!("{found}"),
        }
    }
}
