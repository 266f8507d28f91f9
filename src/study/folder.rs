use std::path::{Path, PathBuf};

use super::{StudyError, TrialResult};
use crate::store::{self, FileLock, StoreError};
use crate::train::Status;

/// The last file of a trial that is written, and the last that is removed.
pub(super) const RESULT: &str = "result.json";

/// Where a study's files lie.
#[derive(Debug, Clone)]
pub struct StudyFolder {
    root: PathBuf,
}

/// What a trial's folder says, apart from whether a process is at work in it.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialState {
    /// It has a result.
    Done(TrialResult),
    /// It has none yet. It may have been begun.
    Pending,
    /// It has one that is not whole, so it has to run again.
    Damaged(String),
}

impl StudyFolder {
    /// The folder of the study `name` in `results`. Touches nothing.
    ///
    /// # Errors
    /// [`StudyError::Name`] if the name is not one a folder can have.
    pub fn new(results: &Path, name: &str) -> Result<Self, StudyError> {
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        if plain {
            Ok(Self {
                root: results.join(name),
            })
        } else {
            Err(StudyError::Name {
                name: name.to_owned(),
            })
        }
    }

    /// The folder `root` itself, for one that exists.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `trials/<id>/`
    pub fn trial(&self, id: &str) -> PathBuf {
        self.trials().join(id)
    }

    /// `trials/`
    pub(super) fn trials(&self) -> PathBuf {
        self.root.join("trials")
    }

    /// A file of the study.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// `trials/<id>.lock`
    pub(super) fn trial_lock(&self, id: &str) -> PathBuf {
        self.trials().join(format!("{id}.lock"))
    }

    /// Takes the study's lock, which everyone holds for a moment who writes a file of the study
    /// outside `trials/`.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the lock file cannot be made.
    pub fn lock(&self) -> Result<FileLock, StoreError> {
        FileLock::exclusive(&self.file("study.lock"))
    }

    /// Whether a process is at work in this trial's folder.
    pub fn is_running(&self, id: &str) -> bool {
        FileLock::is_held(&self.trial_lock(id))
    }

    /// What the trial's folder says. `files` are those that a trial has which ran to its end.
    pub fn state(&self, id: &str, files: &[&str]) -> TrialState {
        let folder = self.trial(id);
        let path = folder.join(RESULT);
        let bytes = match store::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.io_kind() == Some(std::io::ErrorKind::NotFound) => {
                return TrialState::Pending;
            }
            Err(error) => return TrialState::Damaged(error.to_string()),
        };
        let result: TrialResult = match serde_json::from_slice(&bytes) {
            Ok(result) => result,
            Err(error) => {
                return TrialState::Damaged(format!("{}: not a result: {error}", path.display()));
            }
        };
        if result.trial != id {
            let found = &result.trial;
            let shown = path.display();
            return TrialState::Damaged(format!("{shown}: the result of another trial, {found:?}"));
        }
        // A trial that failed may have done so before it had any.
        if result.outcome.status != Status::Failed
            && let Some(missing) = files.iter().find(|file| !store::exists(&folder.join(file)))
        {
            let shown = folder.display();
            return TrialState::Damaged(format!("{shown}: has a result, but no {missing}"));
        }
        TrialState::Done(result)
    }

    /// Removes lock files that killed processes left.
    pub(super) fn remove_stale_locks(&self) -> Result<(), StoreError> {
        for path in store::entries(&self.trials())? {
            if path.extension().is_some_and(|ending| ending == "lock") {
                // Taking a free lock and letting it go removes its file.
                drop(FileLock::try_exclusive(&path)?);
            }
        }
        Ok(())
    }
}
