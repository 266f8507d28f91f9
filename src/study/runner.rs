use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};

use super::BoxError;
use crate::config::{StudyConfig, TrialSpec};
use crate::store::StoreError;
use crate::train::TrialOutcome;

/// What every trial has that ran to its end.
pub(super) const FILES: &[&str] = &["steps.csv", "evaluations.csv"];

/// Runs single trials. Called from several threads at once.
pub trait TrialRunner: Sync {
    /// Updates in the trial's whole budget, which depend on its data. Called for every trial of a
    /// study before the first one runs, so that an impossible one is refused at once.
    ///
    /// # Errors
    /// Whatever makes the trial impossible: a warm-up longer than the run, data that are not
    /// there. A [`ConfigError`](crate::config::ConfigError) is shown as it is.
    fn updates(&self, study: &StudyConfig, spec: &TrialSpec) -> Result<u64, BoxError>;

    /// Runs the trial in `folder`, from a checkpoint there if there is one. The folder exists,
    /// nobody else uses it, and it holds `config.toml` and `manifest.json`, which the study
    /// writes, as it writes `result.json` from what this returns.
    ///
    /// # Errors
    /// [`TrialError`] says which of them ends the trial, and which the study.
    fn run(
        &self,
        spec: &TrialSpec,
        folder: &Path,
        control: &TrialControl<'_>,
    ) -> Result<TrialOutcome, TrialError>;

    /// Training examples of the trial's data: what an epoch is; 0 where epochs have no meaning.
    ///
    /// # Errors
    /// If the data are not there.
    fn train_examples(&self, spec: &TrialSpec) -> Result<usize, BoxError> {
        let _ = spec;
        Ok(0)
    }

    /// Puts a checkpoint of the trial into its `folder`, if it has none, from the last one of another
    /// trial, `from`, in `from_folder`: one that made the same updates up to there. Without it the
    /// trial makes them itself, and comes to the same.
    ///
    /// # Errors
    /// [`TrialError`], as [`run`](Self::run).
    fn branch(
        &self,
        spec: &TrialSpec,
        from: &str,
        from_folder: &Path,
        folder: &Path,
    ) -> Result<(), TrialError> {
        let _ = (spec, from, from_folder, folder);
        Ok(())
    }

    /// Seconds the whole trial would take on one thread, by a short measurement; `None` if
    /// there is no telling.
    fn estimate_seconds(&self, spec: &TrialSpec) -> Option<f64> {
        let _ = spec;
        None
    }

    /// What the manifest should say besides what the study knows: versions, device, data files.
    fn manifest(&self, spec: &TrialSpec) -> Map<String, Value> {
        let _ = spec;
        Map::new()
    }

    /// Files without which a trial that ran to its end is not whole.
    fn files(&self, _spec: &TrialSpec) -> Vec<&'static str> {
        FILES.to_vec()
    }
}

/// What a running trial may use, and whom it tells.
#[derive(Clone, Copy)]
pub struct TrialControl<'a> {
    /// Threads for this trial; never changes its results.
    pub threads: usize,
    /// Set when the trial should write a checkpoint and return [`TrialError::Interrupted`].
    pub stop: &'a AtomicBool,
    /// Told how far the trial is; may be called at every update.
    pub progress: &'a (dyn Fn(TrialProgress) + Sync),
}

impl TrialControl<'_> {
    /// Whether the trial should stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// How far a trial is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialProgress {
    /// Updates made.
    pub step: u64,
    /// Updates in the whole budget.
    pub total_steps: u64,
    /// Loss of the last batch.
    pub loss: f64,
}

/// Why a trial did not come to its end. Any error becomes [`TrialError::Failed`] with `?`.
#[derive(Debug)]
pub enum TrialError {
    /// It was asked to stop, and left a checkpoint. It stays pending.
    Interrupted,
    /// What lies in its folder cannot be continued from. The study empties the folder and runs
    /// the trial once from its start.
    Damaged(BoxError),
    /// The machine failed, not the trial. The study stops; the trial stays pending. A
    /// [`StoreError`] or an I/O error anywhere among the sources of [`TrialError::Failed`] counts
    /// as this if it speaks of a full disk, a missing permission or a read-only file system.
    Environment(BoxError),
    /// The trial failed: a result as any other.
    Failed(BoxError),
}

impl<E: Error + Send + Sync + 'static> From<E> for TrialError {
    fn from(error: E) -> Self {
        let error: BoxError = Box::new(error);
        if is_of_the_machine(error.as_ref()) {
            Self::Environment(error)
        } else {
            Self::Failed(error)
        }
    }
}

/// Whether the error, or one it came from, is the machine's.
pub(super) fn is_of_the_machine(error: &(dyn Error + 'static)) -> bool {
    let kind = match error.downcast_ref::<StoreError>() {
        Some(error) => error.io_kind(),
        None => error
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind),
    };
    let here = matches!(
        kind,
        Some(
            ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
        )
    );
    here || error.source().is_some_and(is_of_the_machine)
}

/// An error with its sources, each once.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error(transparent)]
        Through(StoreError),
        #[error("while writing")]
        Around(#[source] StoreError),
    }

    fn store_error(kind: ErrorKind) -> StoreError {
        StoreError::Io {
            action: "write",
            path: "a".into(),
            error: kind.into(),
        }
    }

    #[test]
    fn a_full_disk_is_the_machines_fault_however_it_is_wrapped() {
        for wrap in [Outer::Through, Outer::Around] {
            let full = wrap(store_error(ErrorKind::StorageFull));
            assert!(matches!(TrialError::from(full), TrialError::Environment(_)));
            let missing = wrap(store_error(ErrorKind::NotFound));
            assert!(matches!(TrialError::from(missing), TrialError::Failed(_)));
        }
    }

    #[test]
    fn a_chain_says_each_source_once() {
        let error = Outer::Around(store_error(ErrorKind::AlreadyExists));
        assert_eq!(
            chain(&error),
            "while writing: cannot write a: entity already exists"
        );
    }
}
