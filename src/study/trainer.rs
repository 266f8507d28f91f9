//! The runner that trains: data and model by config, then `train::run_trial`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::{BoxError, TrialControl, TrialError, TrialProgress, TrialRunner};
use crate::collective::Ranks;
use crate::config::{Precision, Split, StatisticsGroup, StudyConfig, TrialConfig, TrialSpec};
use crate::data::{self, Data, DataError};
use crate::model::{AnyObjective, BuildError, Registry};
use crate::objective::{Objective, Scalar};
use crate::schedule::ScheduleError;
use crate::store::clock::Stopwatch;
use crate::train::{self, Control, Places, Pool, Session, Setup, TrainError, TrialOutcome};

/// The version of burn, which a build fixes exactly.
const BURN: &str = "0.22.1";

/// Data sets kept in memory at a time; a study seldom has more than one.
const CACHED: usize = 2;

/// Seconds of training that an estimate measures.
const CALIBRATION_SECONDS: f64 = 0.3;

/// Trains the trials of a study with the models of a registry.
pub struct Trainer<'a> {
    registry: &'a Registry,
    data_dir: PathBuf,
    cache: Mutex<Vec<(String, Arc<Data>)>>,
    /// Measured seconds by what was measured.
    measured: Mutex<BTreeMap<String, f64>>,
}

impl<'a> Trainer<'a> {
    /// A trainer that looks for named data sets in `data_dir` where a config says nothing else.
    pub fn new(registry: &'a Registry, data_dir: PathBuf) -> Self {
        Self {
            registry,
            data_dir,
            cache: Mutex::default(),
            measured: Mutex::default(),
        }
    }

    /// The data of a trial, read once.
    ///
    /// # Errors
    /// If they cannot be read or prepared.
    pub fn data(&self, config: &TrialConfig) -> Result<Arc<Data>, DataError> {
        let key = json!(config.data).to_string();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, data)) = cache.iter().find(|(k, _)| *k == key) {
            return Ok(Arc::clone(data));
        }
        let data = Arc::new(data::load(&config.data, &self.data_dir)?);
        if cache.len() == CACHED {
            cache.remove(0);
        }
        cache.push((key, Arc::clone(&data)));
        Ok(data)
    }

    /// The model on a device that computes in f64, for second derivatives, where its own does not.
    fn curvature(
        &self,
        config: &TrialConfig,
        data: &Data,
    ) -> Result<Option<Box<dyn AnyObjective>>, BuildError> {
        if matches!(config.train.device.as_str(), "flex" | "ndarray") {
            return Ok(None);
        }
        let mut config = config.clone();
        "flex".clone_into(&mut config.train.device);
        self.registry.build(&config, data).map(Some)
    }

    /// Trains a trial, its work spread over ranks where some are given.
    pub(super) fn train(
        &self,
        config: &TrialConfig,
        places: Places<'_>,
        control: &TrialControl<'_>,
        ranks: Option<&dyn Ranks>,
    ) -> Result<TrialOutcome, TrialError> {
        let data = self.data(config)?;
        let model = self.registry.build(config, &data)?;
        let model: &dyn AnyObjective = &*model;
        let curvature = self.curvature(config, &data)?;
        let curvature = curvature.as_deref().unwrap_or(model);
        let progress = |step, total_steps, loss| {
            (control.progress)(TrialProgress {
                step,
                total_steps,
                loss,
            });
        };
        let control = Control {
            threads: control.threads,
            stop: control.stop,
            checkpoint_seconds: config.train.checkpoint_seconds,
            progress: &progress,
            ranks,
        };
        let outcome = match config.train.precision {
            Precision::F32 => {
                train::run_trial::<f32>(config, &data, model, model, curvature, places, control)
            }
            Precision::F64 => {
                train::run_trial::<f64>(config, &data, model, model, curvature, places, control)
            }
        };
        outcome.map_err(|error| match error {
            TrainError::Interrupted { .. } => TrialError::Interrupted,
            TrainError::Checkpoint(error) if error.is_damage() => {
                TrialError::Damaged(Box::new(error))
            }
            error => error.into(),
        })
    }

    /// Whether data and model of a trial can be had on this machine; which data these are.
    pub(super) fn prepare(&self, config: &TrialConfig) -> Result<String, BoxError> {
        let data = self.data(config)?;
        self.registry.build(config, &data)?;
        let files = data
            .files
            .iter()
            .map(|file| format!("{} {}", file.name, file.sha256));
        let files: Vec<String> = files.collect();
        let sizes = format!("{} with {} training examples", data.name, data.train.len());
        Ok(std::iter::once(sizes)
            .chain(files)
            .collect::<Vec<_>>()
            .join(", "))
    }

    /// Whether a trial can be spread over these ranks; what is wrong, if it cannot.
    pub(super) fn check_ranks(
        &self,
        config: &TrialConfig,
        ranks: &dyn Ranks,
    ) -> Result<(), String> {
        let global = config.train.statistics_group == StatisticsGroup::Global;
        if !global || ranks.size() == 1 {
            return Ok(());
        }
        let data = self.data(config).map_err(|error| error.to_string())?;
        let model = self
            .registry
            .build(config, &data)
            .map_err(|error| error.to_string())?;
        if Objective::<f32>::has_batch_statistics(&*model) {
            return Err(train::one_piece_of_work(ranks.size()));
        }
        Ok(())
    }

    fn measure(
        &self,
        key: String,
        work: impl FnOnce() -> Result<f64, TrainError>,
    ) -> Result<f64, TrainError> {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seconds) = measured.get(&key) {
            return Ok(*seconds);
        }
        let seconds = work()?;
        measured.insert(key, seconds);
        Ok(seconds)
    }

    fn estimate<F: Scalar>(
        &self,
        config: &TrialConfig,
        data: &Data,
        objective: &dyn Objective<F>,
    ) -> Result<f64, TrainError> {
        Pool::with(1, |pool| {
            let mut session = Session::new(config, data, objective, pool)?;
            let total_steps = session.setup().total_steps;
            let model = json!([
                config.model,
                config.train.precision,
                config.train.device,
                data.name
            ]);
            let batch = (
                config.train.workers,
                config.global_batch(),
                config.train.micro_batch,
            );
            let evaluation = self.measure(format!("evaluation {model}"), || {
                let watch = Stopwatch::start();
                let statistics = session.statistics()?;
                for split in [Split::Train, Split::Validation, Split::Test] {
                    session.evaluate(split, &statistics)?;
                }
                Ok(watch.seconds())
            })?;
            let step = self.measure(format!("step {model} {batch:?}"), || {
                session.step()?;
                let watch = Stopwatch::start();
                let mut steps = 0;
                while steps == 0 || watch.seconds() < CALIBRATION_SECONDS {
                    session.step()?;
                    steps += 1;
                }
                Ok(watch.seconds() / f64::from(steps))
            })?;
            let setup = session.setup();
            let evaluate = &config.train.evaluate;
            let due = if let Some(growth) = evaluate.growth {
                (total_steps as f64).ln().max(0.0) / growth.ln() + 1.0
            } else if let Some(every) = evaluate.every_steps {
                (total_steps / every) as f64
            } else {
                let epochs = total_steps as f64 / setup.steps_per_epoch;
                epochs / evaluate.every_epochs.unwrap_or(1.0)
            };
            // The start as well; and at most once an update, however often it is due.
            let evaluations = due.min(total_steps as f64) + 1.0;
            Ok(step * total_steps as f64 + evaluation * evaluations)
        })
    }
}

impl TrialRunner for Trainer<'_> {
    fn updates(&self, study: &StudyConfig, spec: &TrialSpec) -> Result<u64, BoxError> {
        let at = |(key, message): (String, String)| study.error_at_key(spec, &key, &message);
        let data = self
            .data(&spec.config)
            .map_err(|error| at(place_of_data(&error)))?;
        let examples = data
            .fresh
            .as_ref()
            .map_or(data.train.len(), |f| f.epoch_examples);
        study.validate_against_data(spec, examples)?;
        let setup =
            Setup::new(&spec.config, &data).map_err(|error| at(place_of_training(&error)))?;
        let model = self
            .registry
            .build(&spec.config, &data)
            .map_err(|error| at(place_of_model(&error)))?;
        let has_statistics = Objective::<f32>::has_batch_statistics(&*model);
        train::check_groups(&spec.config, &setup, has_statistics)
            .map_err(|error| at(place_of_training(&error)))?;
        train::check_probes::<f32>(&spec.config, &setup, &*model).map_err(|error| {
            let (_, message) = place_of_training(&error);
            at(("probes.noise".to_owned(), message))
        })?;
        train::check_update(&spec.config, Objective::<f32>::layout(&*model))
            .map_err(|error| at(place_of_training(&error)))?;
        Ok(setup.total_steps)
    }

    fn run(
        &self,
        spec: &TrialSpec,
        folder: &Path,
        control: &TrialControl<'_>,
    ) -> Result<TrialOutcome, TrialError> {
        let places = Places {
            folder,
            run_id: &spec.id,
        };
        self.train(&spec.config, places, control, None)
    }

    fn train_examples(&self, spec: &TrialSpec) -> Result<usize, BoxError> {
        let data = self.data(&spec.config)?;
        let fresh = data.fresh.as_ref();
        Ok(fresh.map_or(data.train.len(), |f| f.epoch_examples))
    }

    fn branch(
        &self,
        spec: &TrialSpec,
        from: &str,
        from_folder: &Path,
        folder: &Path,
    ) -> Result<(), TrialError> {
        let data = self.data(&spec.config)?;
        let model = self.registry.build(&spec.config, &data)?;
        let config = &spec.config;
        let from = Places {
            folder: from_folder,
            run_id: from,
        };
        let to = Places {
            folder,
            run_id: &spec.id,
        };
        match config.train.precision {
            Precision::F32 => train::branch::<f32>(config, &data, &*model, from, to),
            Precision::F64 => train::branch::<f64>(config, &data, &*model, from, to),
        }?;
        Ok(())
    }

    fn estimate_seconds(&self, spec: &TrialSpec) -> Option<f64> {
        let data = self.data(&spec.config).ok()?;
        let model = self.registry.build(&spec.config, &data).ok()?;
        let config = &spec.config;
        match config.train.precision {
            Precision::F32 => self.estimate::<f32>(config, &data, &*model).ok(),
            Precision::F64 => self.estimate::<f64>(config, &data, &*model).ok(),
        }
    }

    fn manifest(&self, spec: &TrialSpec) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("burn".to_owned(), json!(BURN));
        map.insert("device".to_owned(), json!(spec.config.train.device));
        if let Ok(data) = self.data(&spec.config) {
            let files: Vec<Value> = data
                .files
                .iter()
                .map(|f| json!({"name": f.name, "sha256": f.sha256, "bytes": f.bytes}))
                .collect();
            let of = |examples: Option<&data::Examples>| examples.map(data::Examples::len);
            map.insert(
                "data".to_owned(),
                json!({
                    "name": data.name,
                    "train": data.train.len(),
                    "validation": of(data.validation.as_ref()),
                    "test": of(data.test.as_ref()),
                    "files": files,
                    "notes": data.notes,
                }),
            );
        }
        map
    }

    fn files(&self, spec: &TrialSpec) -> Vec<&'static str> {
        train::files(&spec.config)
    }
}

/// The key of the study file that an error is about, and what is wrong there.
fn place_of_data(error: &DataError) -> (String, String) {
    match error {
        DataError::Option {
            key,
            expected,
            found,
        } => place(key, format!("expected {expected}, found {found}")),
        _ => place("data.source", error.to_string()),
    }
}

fn place_of_model(error: &BuildError) -> (String, String) {
    let key = match error {
        BuildError::Backend(_) => "train.device",
        BuildError::Unknown { .. } => "model.custom.name",
        BuildError::Option { .. } => "model.custom.options",
        BuildError::Groups { key, .. } => key,
        BuildError::Mismatch { .. } | BuildError::Model(_) | BuildError::Custom { .. } => "model",
    };
    place(key, error.to_string())
}

fn place_of_training(error: &TrainError) -> (String, String) {
    match error {
        TrainError::Schedule(ScheduleError::OutOfRange {
            key,
            expected,
            found,
        }) if ["learning_rate", "momentum_schedule", "batch"]
            .iter()
            .any(|table| key.starts_with(table)) =>
        {
            place(key, format!("expected {expected}, found {found}"))
        }
        TrainError::Schedule(ScheduleError::WarmupTooLong { .. }) => {
            place("learning_rate.warmup", error.to_string())
        }
        TrainError::Schedule(_) => place("learning_rate", error.to_string()),
        TrainError::Batch(error) => place(&error.key(), error.to_string()),
        TrainError::Statistics { key, .. } | TrainError::TooManyUpdates { key, .. } => {
            place(key, error.to_string())
        }
        TrainError::MicroBatch { .. } => place("train.micro_batch", error.to_string()),
        TrainError::Stages { .. } => place("train.update.pipeline.stages", error.to_string()),
        _ => place("train", error.to_string()),
    }
}

fn place(key: &str, message: String) -> (String, String) {
    let bare = [
        format!("{key}: "),
        format!("`{key}`: "),
        format!("`{key}` "),
    ]
    .iter()
    .find_map(|start| message.strip_prefix(start.as_str()).map(str::to_owned));
    (key.to_owned(), bare.unwrap_or(message))
}

#[cfg(test)]
mod tests {
    use super::BURN;

    #[test]
    fn manifests_name_the_burn_that_is_built_in() {
        let package = include_str!("../../Cargo.toml");
        let line = package.lines().find(|line| line.starts_with("burn = "));
        assert!(line.is_some_and(|line| line.contains(&format!("\"={BURN}\""))));
    }
}
