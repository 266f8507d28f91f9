use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::StudyError;
use super::plan::label_of;
use crate::config::StudyConfig;
use crate::store::{self, StoreError};
use crate::train::TrialOutcome;

/// `study.json`: the plan. Says which trials there are and in which order; holds no times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRecord {
    /// Version of batchlab that made the plan.
    pub batchlab: String,
    /// Name of the study.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// What `--set` changed in the study file, in order.
    #[serde(default)]
    pub overrides: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Axes of the sweep, the first one slowest.
    pub axes: Vec<AxisRecord>,
    /// For a study whose trials follow from results, whether none follow any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Trials in plan order.
    pub trials: Vec<TrialRecord>,
}

/// An axis of the sweep: keys that move together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AxisRecord {
    /// Dotted keys.
    pub keys: Vec<String>,
    /// For each position on the axis, one value for each key.
    pub values: Vec<Vec<Value>>,
}

/// One trial of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Run id: a hash of the resolved config.
    pub id: String,
    /// Axis keys and their values here.
    pub point: Map<String, Value>,
    /// Seed.
    pub seed: u64,
}

impl StudyRecord {
    pub(super) fn new(study: &StudyConfig) -> Self {
        Self {
            batchlab: env!("CARGO_PKG_VERSION").to_owned(),
            name: study.name.clone(),
            description: study.description.clone(),
            overrides: study.overrides.clone(),
            seeds: study.seeds.clone(),
            axes: study
                .axes
                .iter()
                .map(|axis| AxisRecord {
                    keys: axis.keys.clone(),
                    values: axis.values.clone(),
                })
                .collect(),
            complete: None,
            trials: study
                .trials
                .iter()
                .map(|trial| TrialRecord {
                    id: trial.id.clone(),
                    point: trial.point.iter().cloned().collect(),
                    seed: trial.seed,
                })
                .collect(),
        }
    }

    /// Reads `study.json` in a study's folder.
    ///
    /// # Errors
    /// [`StudyError::NoStudy`] where there is none; [`StudyError::Record`] where it is damaged.
    pub fn read(folder: &Path) -> Result<Self, StudyError> {
        let path = folder.join("study.json");
        let read = store::read(&path);
        let absent = |error: &StoreError| {
            let kind = error.io_kind();
            matches!(kind, Some(ErrorKind::NotFound | ErrorKind::NotADirectory))
        };
        if read.as_ref().is_err_and(absent) {
            let inside = store::entries(folder).unwrap_or_default();
            let studies = inside
                .iter()
                .filter(|path| store::exists(&path.join("study.json")));
            let studies = studies.map(|path| path.display().to_string()).collect();
            return Err(StudyError::NoStudy {
                path: folder.to_owned(),
                studies,
            });
        }
        let bytes = read?;
        let record: Self = serde_json::from_slice(&bytes).map_err(|error| StudyError::Record {
            path: path.clone(),
            problem: format!("not a plan: {error}"),
        })?;
        match record.trials.iter().find(|trial| !is_id(&trial.id)) {
            None => Ok(record),
            Some(trial) => {
                let problem = format!("expected a trial's id, found {:?}", trial.id);
                Err(StudyError::Record { path, problem })
            }
        }
    }
}

impl TrialRecord {
    /// The trial in few words, as [`super::label`].
    pub fn label(&self) -> String {
        label_of(
            self.point.iter().map(|(key, value)| (key.as_str(), value)),
            self.seed,
        )
    }
}

/// An id becomes a folder's name, so it may hold nothing that leads elsewhere.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// `result.json`: how a trial ended. Written last; holds no times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Run id.
    pub trial: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: TrialOutcome,
    /// The files it left, by name: should one be another later, the trial is not done.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, TrialFile>,
}

/// A file that a trial left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFile {
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its content, in hex.
    pub sha256: String,
}

/// JSON as these files hold it: indented, with a last line that ends.
pub(super) fn json(value: &impl Serialize, path: &Path) -> Result<Vec<u8>, StudyError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| StudyError::Record {
        path: path.to_owned(),
        problem: format!("cannot be written as JSON: {error}"),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
