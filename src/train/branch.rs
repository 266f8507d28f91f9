//! A run that goes on from the checkpoint of another.

use std::collections::BTreeMap;

use super::TrainError;
use super::checkpoint::{self, Checkpoint, CheckpointError, Progress};
use super::outcome::Evaluation;
use super::session::Session;
use super::trial::{CHECKPOINT, EVALUATIONS, Places, tables, unreached};
use crate::collective::Pool;
use crate::config::{Split, TrialConfig};
use crate::data::Data;
use crate::objective::{Objective, Scalar};
use crate::store;

/// Puts a checkpoint of the run `to` of this config into its folder, made from the last one of the run
/// `from`; does nothing where `to` has one, or `from` has none.
///
/// `from` must have made the updates that a run of this config makes up to there, with evaluations
/// that neither of them makes after its start and before its end. Then the run `to` ends in the same
/// bits as one that makes all updates itself.
///
/// # Errors
/// If config and data do not go together, or a checkpoint cannot be read or written.
pub fn branch<F: Scalar>(
    config: &TrialConfig,
    data: &Data,
    objective: &dyn Objective<F>,
    from: Places<'_>,
    to: Places<'_>,
) -> Result<(), TrainError> {
    let path = to.folder.join(CHECKPOINT);
    if store::exists(&path) {
        return Ok(());
    }
    Pool::with(1, |pool| {
        let session = Session::new(config, data, objective, pool)?;
        let names = session.names();
        let own = tables(config);
        let files: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        let length = session.parameters().len();
        let last = from.folder.join(CHECKPOINT);
        let Some(found) = checkpoint::read::<F>(&last, from.run_id, length, &names, &files, None)?
        else {
            return Ok(());
        };
        let Checkpoint {
            progress,
            mut counters,
            parameters,
            vectors,
            mut tables,
        } = found;
        // What the controller decides, it decides by this config; nothing was decided before.
        counters.control = session.setup().control.initial_state();
        let (mut evaluation, mut evaluated) = (BTreeMap::new(), None);
        if let Some(table) = tables.get_mut(EVALUATIONS) {
            let start = rows_of_start(table);
            evaluation = read_rows(&start).ok_or_else(|| CheckpointError::Broken {
                path: last.clone(),
                message: format!("the rows of {EVALUATIONS} do not read"),
            })?;
            evaluated = (!evaluation.is_empty()).then_some(0);
            *table = start;
        }
        let progress = Progress {
            run_id: to.run_id.to_owned(),
            evaluated_step: evaluated,
            evaluated_epoch: evaluated.map(|_| 0.0),
            evaluation,
            target: unreached(config),
            finished: None,
            ..progress
        };
        let named = names
            .iter()
            .map(|name| name.clone().into())
            .zip(vectors.iter().map(Vec::as_slice));
        checkpoint::write(&path, &progress, &counters, &parameters, named, &tables)?;
        Ok(())
    })
}

/// The header of evaluations.csv, and its rows of update 0.
fn rows_of_start(table: &str) -> String {
    let mut lines = table.split_inclusive('\n');
    let header = lines.next().unwrap_or_default();
    let rows = lines.filter(|line| line.starts_with("0,"));
    std::iter::once(header).chain(rows).collect()
}

/// The evaluations in rows of evaluations.csv: step,epoch,examples,split,loss,accuracy,n.
fn read_rows(table: &str) -> Option<BTreeMap<Split, Evaluation>> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_end().split(',').collect();
        let [_, _, _, split, loss, accuracy, n] = cells.as_slice() else {
            return None;
        };
        let all = [Split::Train, Split::Validation, Split::Test];
        let split = all.into_iter().find(|s| s.name() == *split)?;
        let accuracy = match *accuracy {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        let evaluation = Evaluation {
            loss: loss.parse().ok()?,
            accuracy,
            n: n.parse().ok()?,
        };
        Some((split, evaluation))
    };
    table.lines().skip(1).map(row).collect()
}
