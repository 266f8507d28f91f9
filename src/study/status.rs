use std::path::Path;

use serde_json::Value;

use super::folder::StudyFolder;
use super::{StudyError, StudyRecord, TrialRecord, TrialState};
use crate::store;

/// A study as its folder shows it at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyStatus {
    /// The plan.
    pub record: StudyRecord,
    /// One for each trial, in plan order.
    pub trials: Vec<TrialStatus>,
}

/// A trial as its folder shows it at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialStatus {
    /// The trial.
    pub record: TrialRecord,
    /// What its folder says.
    pub state: TrialState,
    /// Where it runs and since when, if a process holds its lock: `node3, process 4711, since
    /// 2026-03-01T12:00:00Z`.
    pub running: Option<String>,
    /// Whether it was begun.
    pub begun: bool,
}

/// Looks at the study in `folder`. Writes nothing, and may be called while others run it.
///
/// # Errors
/// [`StudyError::NoStudy`] or [`StudyError::Record`], where `study.json` is missing or damaged.
pub fn status(folder: &Path) -> Result<StudyStatus, StudyError> {
    let record = StudyRecord::read(folder)?;
    let folder = StudyFolder::at(folder);
    let look = |record: &TrialRecord| {
        let state = folder.state(&record.id, super::runner::FILES);
        let undone = !matches!(state, TrialState::Done(_));
        let running = (undone && folder.is_running(&record.id))
            .then(|| whereabouts(&folder.trial(&record.id).join("manifest.json")));
        let begun = store::exists(&folder.trial(&record.id));
        TrialStatus {
            record: record.clone(),
            state,
            running,
            begun,
        }
    };
    let trials = record.trials.iter().map(look).collect();
    Ok(StudyStatus { record, trials })
}

/// From a manifest, which may be that of an earlier attempt or not yet be there.
fn whereabouts(manifest: &Path) -> String {
    let bytes = store::read(manifest).unwrap_or_default();
    let manifest: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match (
        &manifest["host"],
        &manifest["process"],
        &manifest["started"],
    ) {
        (Value::String(host), Value::Number(process), Value::String(started)) => {
            format!("{host}, process {process}, since {started}")
        }
        _ => "starting".to_owned(),
    }
}
