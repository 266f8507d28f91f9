use std::error::Error;
use std::path::PathBuf;

use crate::config::ConfigError;
use crate::store::StoreError;

/// Any error, on its way between threads.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What ends a study, or keeps it from starting. An error inside one trial does neither: it is
/// that trial's result.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file of the study could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The study's name cannot be a folder's.
    #[error(
        "the study's name is {name:?}\nhint: choose a name that can be a folder's, without / and \\"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// `--shard` is not of the form i/n.
    #[error("expected a shard i/n with 1 <= i <= n, such as 2/4, found {found:?}")]
    Shard {
        /// What was given.
        found: String,
    },
    /// `--index` is beyond the plan.
    #[error("no trial with index {index}: the plan has {trials}, with indices 0 to {}", trials.saturating_sub(1))]
    Index {
        /// What was given.
        index: usize,
        /// Trials in the plan.
        trials: usize,
    },
    /// The study file asks for a trial that cannot run.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A trial cannot run.
    #[error("trial {label}: {error}")]
    Trial {
        /// The trial's point and seed.
        label: String,
        /// Why not.
        error: BoxError,
    },
    /// A file that says what a study or a trial is does not hold that.
    #[error("{}: {problem}{}", path.display(), if path.ends_with("study.json") { "\nhint: run the study again; its finished trials are kept" } else { "" })]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The folder of a new study has a report that no study made.
    #[error(
        "{}: the folder of a plan, or of another report, which this would replace\n\
         hint: choose another folder with --results, or another `name`",
        path.display()
    )]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A folder is not a study's.
    #[error("no study in {}: it has no study.json{}", path.display(), name_some(studies))]
    NoStudy {
        /// The folder.
        path: PathBuf,
        /// Studies in the folder, which may have been meant.
        studies: Vec<String>,
    },
    /// The machine, not the trial, failed: the study stops rather than call every trial failed.
    #[error("the study stops at trial {label}: {error}")]
    Environment {
        /// The trial's point and seed.
        label: String,
        /// What happened.
        error: BoxError,
    },
    /// The trials are done, but the report could not be made.
    #[error("all trials are done, but the report failed: {0}")]
    Report(BoxError),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}\nhint: ask for fewer with --jobs")]
    Thread(std::io::Error),
}

fn name_some(studies: &[String]) -> String {
    if studies.is_empty() {
        return "\nhint: name the folder of a study, such as results/quickstart".to_owned();
    }
    let shown: Vec<&str> = studies.iter().take(8).map(String::as_str).collect();
    let more = if studies.len() > shown.len() {
        ", ..."
    } else {
        ""
    };
    format!("\nhint: studies in it: {}{more}", shown.join(", "))
}
