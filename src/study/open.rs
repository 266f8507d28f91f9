//! Runs that are over, opened again: their configs and the weights they left.

use std::path::{Path, PathBuf};

use super::{StudyError, StudyRecord, TrialResult};
use crate::config::{self, ConfigError, TrialConfig};
use crate::store::{self, StoreError};

/// The weights of a trial.
const WEIGHTS: &str = "model.safetensors";

/// The config of a trial.
const CONFIG: &str = "config.toml";

/// A trial that left weights.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedTrial {
    /// Its id.
    pub id: String,
    /// The trial in few words.
    pub label: String,
    /// Its resolved config.
    pub config: TrialConfig,
    /// Where its weights are.
    pub weights: PathBuf,
    /// How it ended; `None` where there is no result beside the weights.
    pub result: Option<TrialResult>,
}

/// Why a run cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither the folder of a study nor that of a trial.
    #[error(
        "{}: expected the folder of a study (with study.json) or of a trial (with {CONFIG} and \
         {WEIGHTS}), or a study file with --weights",
        path.display()
    )]
    NoRun {
        /// What was given.
        path: PathBuf,
    },
    /// No trial of the study is the one asked for.
    #[error("{}: no trial whose id starts with `{id}`\nhint: `batchlab status` lists the ids", path.display())]
    NoTrial {
        /// The study.
        path: PathBuf,
        /// The id asked for.
        id: String,
    },
    /// No trial has weights yet.
    #[error("{}: no trial has left weights yet\nhint: `batchlab run` the study first", path.display())]
    NoWeights {
        /// The study.
        path: PathBuf,
    },
    /// A study of several trials where one is needed.
    #[error(
        "{}: expected one trial, found {found}\nhint: choose one with --trial; in a study file --set with the swept keys does too",
        path.display()
    )]
    Several {
        /// The study.
        path: PathBuf,
        /// Its trials.
        found: usize,
    },
    /// The plan of the study cannot be read.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// A config cannot be read.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A result is damaged.
    #[error("{}: not a result: {problem}", path.display())]
    Result {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// The finished trials of `path`: of a study's folder, those whose id starts with one of `chosen`
/// (all if there is none), in plan order; or the one of a trial's folder.
///
/// # Errors
/// If `path` is neither, no trial has weights, or a file is damaged.
pub fn finished_trials(path: &Path, chosen: &[String]) -> Result<Vec<FinishedTrial>, OpenError> {
    if store::exists(&path.join("study.json")) {
        let record = StudyRecord::read(path)?;
        let matches = |id: &str| chosen.is_empty() || chosen.iter().any(|c| id.starts_with(c));
        if let Some(id) = chosen
            .iter()
            .find(|c| !record.trials.iter().any(|t| t.id.starts_with(c.as_str())))
        {
            let (path, id) = (path.to_owned(), id.clone());
            return Err(OpenError::NoTrial { path, id });
        }
        let mut found = Vec::new();
        for trial in record.trials.iter().filter(|trial| matches(&trial.id)) {
            let folder = path.join("trials").join(&trial.id);
            if let Some(mut opened) = finished_trial(&folder)? {
                opened.id.clone_from(&trial.id);
                opened.label = trial.label();
                found.push(opened);
            }
        }
        if found.is_empty() {
            return Err(OpenError::NoWeights {
                path: path.to_owned(),
            });
        }
        return Ok(found);
    }
    match finished_trial(path)? {
        Some(trial) => match chosen.iter().find(|c| !trial.id.starts_with(c.as_str())) {
            None => Ok(vec![trial]),
            Some(id) => Err(OpenError::NoTrial {
                path: path.to_owned(),
                id: id.clone(),
            }),
        },
        None => Err(OpenError::NoRun {
            path: path.to_owned(),
        }),
    }
}

/// The trial of a folder, if it has a config, weights and no result that says it failed.
fn finished_trial(folder: &Path) -> Result<Option<FinishedTrial>, OpenError> {
    let (config, weights) = (folder.join(CONFIG), folder.join(WEIGHTS));
    if !store::exists(&config) || !store::exists(&weights) {
        return Ok(None);
    }
    let mut study = config::load(&config, &[])?;
    if study.trials.len() != 1 {
        let (path, found) = (config, study.trials.len());
        return Err(OpenError::Several { path, found });
    }
    let spec = study.trials.remove(0);
    let path = folder.join("result.json");
    let result = if store::exists(&path) {
        let bytes = store::read(&path)?;
        Some(
            serde_json::from_slice(&bytes).map_err(|error| OpenError::Result {
                path,
                problem: error.to_string(),
            })?,
        )
    } else {
        None
    };
    Ok(Some(FinishedTrial {
        label: spec.id.clone(),
        id: spec.id,
        config: spec.config,
        weights,
        result,
    }))
}
