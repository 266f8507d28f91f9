//! What can be wrong with a study file, and where.

use std::fmt;
use std::io;

use serde_json::Value;

use super::canonical::value_text;

/// An error of a study file. Printed as `file:line: what is wrong`, then, on its own line,
/// `hint: what would be right`. For a key given on the command line it names `--set` instead of a
/// line, and for an error in one trial of a sweep it names the point.
#[derive(Debug)]
pub struct ConfigError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    file: Option<String>,
    origin: Option<Origin>,
    column: Option<usize>,
    problem: Problem,
    hint: Option<String>,
    point: Vec<(String, Value)>,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot read the study file: {0}")]
    Read(#[source] io::Error),
    /// The text is not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A key that the schema does not have.
    #[error("unknown key `{0}`")]
    UnknownKey(String),
    /// A key that must be there and is not.
    #[error("missing key `{key}`: {about}")]
    MissingKey {
        /// The dotted key.
        key: String,
        /// What it says.
        about: String,
    },
    /// A value of another type, or not one of the allowed words.
    #[error("`{key}`: expected {expected}, found {found}")]
    Mismatch {
        /// The dotted key.
        key: String,
        /// What may stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A value of the right type that makes no sense, alone or with others.
    #[error("`{key}`: {message}")]
    Invalid {
        /// The dotted key.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// A `--set` argument that is not `key=value`.
    #[error("{0}")]
    Override(String),
}

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Line of the file, from 1.
    Line(usize),
    /// The text of a `--set` argument.
    Set(String),
}

impl ConfigError {
    pub(crate) fn new(file: &str, origin: Option<Origin>, problem: Problem) -> Self {
        ConfigError(Box::new(Parts {
            file: Some(file.to_owned()),
            origin,
            column: None,
            problem,
            hint: None,
            point: Vec::new(),
        }))
    }

    pub(crate) fn from_fault(file: &str, origin: Origin, fault: Fault) -> Self {
        let mut error = ConfigError::from(fault);
        error.0.file = Some(file.to_owned());
        error.0.origin = Some(origin);
        error
    }

    pub(crate) fn at_column(mut self, column: usize) -> Self {
        self.0.column = Some(column);
        self
    }

    pub(crate) fn at_point(mut self, point: &[(String, Value)]) -> Self {
        self.0.point = point.to_vec();
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The study file; `None` for a trial that was built in code.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The line of the key in the file, from 1; `None` where the key was given by `--set`.
    pub fn line(&self) -> Option<usize> {
        match self.0.origin {
            Some(Origin::Line(line)) => Some(line),
            _ => None,
        }
    }

    /// The `--set` argument that gave the key.
    pub fn set(&self) -> Option<&str> {
        match &self.0.origin {
            Some(Origin::Set(text)) => Some(text),
            _ => None,
        }
    }

    /// The dotted key, where the error is about one.
    pub fn key(&self) -> Option<&str> {
        match &self.0.problem {
            Problem::UnknownKey(key)
            | Problem::MissingKey { key, .. }
            | Problem::Mismatch { key, .. }
            | Problem::Invalid { key, .. } => Some(key),
            Problem::Read(_) | Problem::Syntax(_) | Problem::Override(_) => None,
        }
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// What would be right.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The point of the sweep at which it is wrong: the value of each axis. Empty where the error
    /// does not depend on the point.
    pub fn point(&self) -> &[(String, Value)] {
        &self.0.point
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &self.0;
        if let Some(file) = &parts.file {
            write!(f, "{file}")?;
            if let Some(Origin::Line(line)) = parts.origin {
                write!(f, ":{line}")?;
                if let Some(column) = parts.column {
                    write!(f, ":{column}")?;
                }
            }
            f.write_str(": ")?;
        }
        if let Some(Origin::Set(text)) = &parts.origin {
            write!(f, "--set {text}: ")?;
        }
        write!(f, "{}", parts.problem)?;
        if !parts.point.is_empty() {
            let point: Vec<String> = parts
                .point
                .iter()
                .map(|(key, value)| format!("{key} = {}", value_text(value)))
                .collect();
            write!(f, ", at {}", point.join(", "))?;
        }
        if let Some(hint) = &parts.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message already says what the inner error says.
        None
    }
}

/// A problem at a key, before it is known which file and line the key came from.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Segments of the key; an element of a list is the segment `[i]`.
    pub(crate) path: Vec<String>,
    pub(crate) problem: Problem,
    pub(crate) hint: Option<String>,
}

pub(crate) type Checked<T = ()> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(path: &[String], problem: Problem) -> Fault {
        Fault {
            path: path.to_vec(),
            problem,
            hint: None,
        }
    }

    /// A value that makes no sense at a dotted key of the schema.
    pub(crate) fn invalid(key: &str, message: impl Into<String>) -> Fault {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        Fault::new(
            &path,
            Problem::Invalid {
                key: key.to_owned(),
                message: message.into(),
            },
        )
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Fault> for ConfigError {
    /// An error without a file: of a trial that was built in code.
    fn from(fault: Fault) -> Self {
        ConfigError(Box::new(Parts {
            file: None,
            origin: None,
            column: None,
            problem: fault.problem,
            hint: fault.hint,
            point: Vec::new(),
        }))
    }
}

/// `["train", "widths", "[1]"]` as `train.widths[1]`, with segments quoted where TOML needs it.
pub(crate) fn dotted(path: &[String]) -> String {
    let mut text = String::new();
    for segment in path {
        if segment.starts_with('[') && segment.ends_with(']') {
            text.push_str(segment);
            continue;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(&super::canonical::toml_key(segment));
    }
    text
}
