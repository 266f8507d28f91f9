//! A trial's state on disk, for exact resume.
//!
//! One safetensors file, written atomically: the flat vectors, and the tables up to the same
//! update, so that all of it belongs together whenever the process dies.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::outcome::{Evaluation, Status, TargetOutcome};
use super::session::Counters;
use crate::collective::{Ranks, broadcast_bytes};
use crate::config::Split;
use crate::objective::Scalar;
use crate::store::{self, StoreError};

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file is broken.
    #[error("{}: not a batchlab checkpoint: {message}\nhint: delete the trial's folder to start it again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// It belongs to another config.
    #[error(
        "{}: checkpoint of trial {found}, expected {expected}: the config has changed\n\
         hint: delete the trial's folder to start it again", path.display()
    )]
    OtherConfig {
        /// The file.
        path: PathBuf,
        /// The id of this trial.
        expected: String,
        /// The id in the file.
        found: String,
    },
}

impl CheckpointError {
    /// Whether the file is broken, rather than another trial's.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }
}

/// The part of a checkpoint that is not vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Progress {
    pub(super) run_id: String,
    pub(super) precision: String,
    /// The last update whose evaluation is in the tables.
    pub(super) evaluated_step: Option<u64>,
    /// The epochs passed there.
    pub(super) evaluated_epoch: Option<f64>,
    pub(super) evaluation: BTreeMap<Split, Evaluation>,
    pub(super) target: Option<TargetOutcome>,
    /// Which probes were made.
    #[serde(default, skip_serializing_if = "Probed::is_none")]
    pub(super) probed: Probed,
    /// Set when there is nothing left to do.
    pub(super) finished: Option<(Status, Option<String>)>,
}

/// Which probes of a trial were made.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Probed {
    /// The last update after which the schedule asked for one.
    pub(super) step: Option<u64>,
    /// The epochs passed there.
    pub(super) epoch: Option<f64>,
    /// The training loss has been reached at which to probe.
    pub(super) at_train_loss: bool,
    /// That of the end.
    pub(super) end: bool,
}

impl Probed {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The tables of a trial, up to the same update: file names and texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Tables(Vec<(&'static str, String)>);

impl Tables {
    pub(super) fn new(tables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(tables.into_iter().collect())
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, text)| (*name, text.as_str()))
    }

    /// The table of this name; a trial has those of its config.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut String> {
        let own = self.0.iter_mut().find(|(own, _)| *own == name);
        own.map(|(_, text)| text)
    }
}

/// A checkpoint in memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Checkpoint<F> {
    pub(super) progress: Progress,
    pub(super) counters: Counters,
    pub(super) parameters: Vec<F>,
    pub(super) vectors: Vec<Vec<F>>,
    pub(super) tables: Tables,
}

/// The one entry of a checkpoint's metadata.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata<P, C> {
    progress: P,
    counters: C,
    /// SHA-256 of the two as JSON, and of all tensors: a checkpoint with other bits is not used.
    sha256: String,
}

/// The checksum of a checkpoint.
fn checksum<'a>(
    progress: &Progress,
    counters: &Counters,
    tensors: impl Iterator<Item = &'a [u8]>,
) -> String {
    let mut hash = Sha256::new();
    for part in [
        serde_json::to_vec(progress).unwrap_or_default(),
        serde_json::to_vec(counters).unwrap_or_default(),
    ] {
        hash.update(part);
    }
    for tensor in tensors {
        hash.update(tensor);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

const KEY: &str = "batchlab";

/// Writes a checkpoint from borrowed parts.
pub(super) fn write<'a, F: Scalar>(
    path: &Path,
    progress: &Progress,
    counters: &Counters,
    parameters: &[F],
    vectors: impl Iterator<Item = (Cow<'static, str>, &'a [F])>,
    tables: &Tables,
) -> Result<(), StoreError> {
    let dtype = if F::BYTES == 4 {
        Dtype::F32
    } else {
        Dtype::F64
    };
    let mut tensors = vec![(
        "parameters".to_owned(),
        dtype,
        parameters.len(),
        F::le_bytes(parameters),
    )];
    for (name, values) in vectors {
        tensors.push((
            format!("state.{name}"),
            dtype,
            values.len(),
            F::le_bytes(values),
        ));
    }
    for (name, table) in tables.named() {
        tensors.push((
            name.to_owned(),
            Dtype::U8,
            table.len(),
            table.as_bytes().to_vec(),
        ));
    }
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .iter()
        .filter_map(|(name, dtype, length, data)| {
            Some((
                name.as_str(),
                TensorView::new(*dtype, vec![*length], data).ok()?,
            ))
        })
        .collect();
    // One entry only: more would be written in the order of a hash map.
    let data = tensors.iter().map(|(.., data)| data.as_slice());
    let metadata = serde_json::to_string(&Metadata {
        progress,
        counters,
        sha256: checksum(progress, counters, data),
    })
    .unwrap_or_default();
    let metadata = HashMap::from([(KEY.to_owned(), metadata)]);
    let file = safetensors::serialize(views, Some(metadata)).unwrap_or_default();
    store::write_atomic(path, &file)
}

/// Reads a checkpoint and checks that it belongs to `run_id`; `None` if there is no file. Of ranks, the
/// first reads it for all.
pub(super) fn read<F: Scalar>(
    path: &Path,
    run_id: &str,
    length: usize,
    names: &[String],
    tables: &[&'static str],
    ranks: Option<&dyn Ranks>,
) -> Result<Option<Checkpoint<F>>, super::TrainError> {
    let alone = ranks.is_none_or(|ranks| ranks.rank() == 0);
    let mut bytes = if alone && store::exists(path) {
        Some(store::read(path)?)
    } else {
        None
    };
    if let Some(ranks) = ranks {
        // Who writes has it; an empty message stands for no file.
        let own = alone.then(|| bytes.as_deref().unwrap_or_default());
        bytes = Some(broadcast_bytes(ranks, own)?).filter(|bytes| !bytes.is_empty());
    }
    let Some(bytes) = bytes else {
        return Ok(None);
    };
    let broken = |message: String| CheckpointError::Broken {
        path: path.to_owned(),
        message,
    };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| broken(e.to_string()))?;
    let metadata = header
        .metadata()
        .as_ref()
        .and_then(|m| m.get(KEY))
        .ok_or_else(|| broken("no batchlab metadata".to_owned()))?;
    let Metadata {
        progress,
        counters,
        sha256,
    }: Metadata<Progress, Counters> =
        serde_json::from_str(metadata).map_err(|e| broken(e.to_string()))?;
    if progress.run_id != run_id {
        return Err(CheckpointError::OtherConfig {
            path: path.to_owned(),
            expected: run_id.to_owned(),
            found: progress.run_id,
        }
        .into());
    }
    let file = SafeTensors::deserialize(&bytes).map_err(|e| broken(e.to_string()))?;
    let data = |name: &str, size: Option<usize>| -> Result<Vec<u8>, CheckpointError> {
        let tensor = file.tensor(name).map_err(|e| broken(e.to_string()))?;
        let found = tensor.data().len();
        match size {
            Some(expected) if expected != found => Err(broken(format!(
                "`{name}` has {found} bytes, expected {expected}"
            ))),
            _ => Ok(tensor.data().to_vec()),
        }
    };
    let vector = |name: &str| -> Result<Vec<F>, CheckpointError> {
        let bytes = data(name, Some(length * F::BYTES))?;
        Ok(bytes.chunks_exact(F::BYTES).map(F::from_le_slice).collect())
    };
    let table = |name: &str| -> Result<String, CheckpointError> {
        String::from_utf8(data(name, None)?).map_err(|e| broken(e.to_string()))
    };
    let state = names.iter().map(|name| format!("state.{name}"));
    let mut parts = Vec::new();
    for name in std::iter::once("parameters".to_owned())
        .chain(state)
        .chain(tables.iter().map(|name| (*name).to_owned()))
    {
        parts.push(data(&name, None)?);
    }
    if checksum(&progress, &counters, parts.iter().map(Vec::as_slice)) != sha256 {
        return Err(broken("its checksum is that of other bytes".to_owned()).into());
    }
    let vectors = names
        .iter()
        .map(|name| vector(&format!("state.{name}")))
        .collect::<Result<_, CheckpointError>>()?;
    let tables = tables
        .iter()
        .map(|&name| Ok((name, table(name)?)))
        .collect::<Result<Vec<_>, CheckpointError>>()?;
    Ok(Some(Checkpoint {
        parameters: vector("parameters")?,
        vectors,
        tables: Tables::new(tables),
        counters,
        progress,
    }))
}
