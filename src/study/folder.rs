use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{StudyError, TrialFile, TrialResult};
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
    /// The system would not say: it may have a result, so it must not run again.
    Unreadable(String),
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
            Err(error) => {
                return match error.io_kind() {
                    Some(ErrorKind::NotFound) => TrialState::Pending,
                    Some(ErrorKind::IsADirectory) => TrialState::Damaged(error.to_string()),
                    _ => TrialState::Unreadable(error.to_string()),
                };
            }
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
        // A trial that failed may have done so before it had any, and one of an older version has no
        // file that came later.
        let left = |file: &str| result.files.is_empty() || result.files.contains_key(file);
        if result.outcome.status != Status::Failed
            && let Some(missing) = files
                .iter()
                .find(|file| left(file) && !store::exists(&folder.join(file)))
        {
            let shown = folder.display();
            return TrialState::Damaged(format!("{shown}: has a result, but no {missing}"));
        }
        for (name, file) in &result.files {
            let path = folder.join(name);
            let found = store::length(&path);
            if found != Some(file.bytes) {
                let (shown, expected) = (path.display(), file.bytes);
                let found = found.map_or("no such file".to_owned(), |n| n.to_string());
                return TrialState::Damaged(format!(
                    "{shown}: expected the {expected} bytes that the trial left, found {found}"
                ));
            }
        }
        TrialState::Done(result)
    }

    /// As [`state`](Self::state), and reads the files of a trial that is done: their checksums
    /// must be those that the trial left.
    pub fn state_by_content(&self, id: &str, files: &[&str]) -> TrialState {
        let state = self.state(id, files);
        let TrialState::Done(result) = &state else {
            return state;
        };
        for (name, file) in &result.files {
            let path = self.trial(id).join(name);
            match store::sha256(&path) {
                Ok(found) if found == file.sha256 => {}
                Ok(_) => {
                    return TrialState::Damaged(format!(
                        "{}: the content is not what the trial left",
                        path.display()
                    ));
                }
                Err(error) => return TrialState::Unreadable(error.to_string()),
            }
        }
        state
    }

    /// What [`TrialResult::files`] is to hold.
    pub(super) fn files(
        &self,
        id: &str,
        names: &[&str],
    ) -> Result<BTreeMap<String, TrialFile>, StoreError> {
        let folder = self.trial(id);
        let file = |name: &&str| {
            let path = folder.join(name);
            let sha256 = store::sha256(&path)?;
            let bytes = store::length(&path).unwrap_or_default();
            Ok(((*name).to_owned(), TrialFile { bytes, sha256 }))
        };
        names.iter().map(file).collect()
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
