//! A study over ranks: the first rank runs it, the others help with each of its trials.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::execute::cores;
use super::runner::chain;
use super::{BoxError, Trainer, TrialControl, TrialError, TrialRunner};
use crate::collective::wire::{Reader, Writer};
use crate::collective::{Ranks, RanksError, all_gather_bytes, broadcast_bytes};
use crate::config::{StudyConfig, TrialConfig, TrialSpec};
use crate::objective::ObjectiveError;
use crate::store::StoreError;
use crate::train::{Places, TrainError, TrialOutcome};

/// What a rank runs, to be compared with what the others run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The machine.
    pub host: String,
    /// What must be equal, each with its name: the checksums of the program and of the study.
    pub parts: Vec<(&'static str, String)>,
}

/// Compares what the ranks run. All of them call it, and all come to the same answer: how many of them
/// are on this one's machine.
///
/// # Errors
/// What differs between which ranks, or what the ranks say.
pub fn check_same(ranks: &dyn Ranks, own: &Identity) -> Result<usize, BoxError> {
    let mut message = Writer::new();
    message.bytes(own.host.as_bytes());
    for (_, part) in &own.parts {
        message.bytes(part.as_bytes());
    }
    let mut found = Vec::new();
    for message in all_gather_bytes(ranks, &message.finish())? {
        let mut message = Reader::new(&message);
        let host = message.text().unwrap_or_default();
        let parts: Vec<String> = own
            .parts
            .iter()
            .map(|_| message.text().unwrap_or_default())
            .collect();
        found.push((host, parts));
    }
    for (i, (name, _)) in own.parts.iter().enumerate() {
        let Some((first_host, first)) = found.first() else {
            continue;
        };
        let other = found.iter().position(|(_, parts)| parts[i] != first[i]);
        if let Some(rank) = other {
            let (host, parts) = &found[rank];
            return Err(format!(
                "the ranks do not run the same: {name} of rank {rank} (on {host}) is {}, that of rank 0 \
                 (on {first_host}) is {}\n\
                 hint: start all of them with one mpirun, from one file and one build",
                parts[i], first[i]
            )
            .into());
        }
    }
    let here = found.iter().filter(|(host, _)| *host == own.host);
    Ok(here.count())
}

/// How one rank ends all of them with a message: it does not return, unless ranks are threads.
pub type Abort<'a> = &'a (dyn Fn(&str) + Sync);

/// Runs trials on the first of several ranks, together with the others, which [`follow`].
pub struct Leader<'a, 'b> {
    trainer: Trainer<'b>,
    ranks: &'a dyn Ranks,
    abort: Abort<'a>,
}

impl<'a, 'b> Leader<'a, 'b> {
    /// The first of `ranks`.
    pub fn new(trainer: Trainer<'b>, ranks: &'a dyn Ranks, abort: Abort<'a>) -> Self {
        Self {
            trainer,
            ranks,
            abort,
        }
    }

    /// Tells the others that no trial follows.
    ///
    /// # Errors
    /// What the ranks say.
    pub fn finish(&self) -> Result<(), RanksError> {
        broadcast_bytes(self.ranks, Some(&[])).map(|_| ())
    }
}

/// Helps with the trials that the first rank runs, until it says that none follows; on the threads that
/// `control` says or, where that is 0, the trial or this rank's share of the cores, as one of
/// `processes` on this machine.
///
/// # Errors
/// What the ranks say.
pub fn follow(
    trainer: &Trainer<'_>,
    ranks: &dyn Ranks,
    control: &TrialControl<'_>,
    processes: usize,
    abort: Abort<'_>,
) -> Result<(), RanksError> {
    loop {
        let message = broadcast_bytes(ranks, None)?;
        if message.is_empty() {
            return Ok(());
        }
        let mut message = Reader::new(&message);
        let (id, config) = (message.text(), message.text());
        let config = config.and_then(|config| serde_json::from_str::<TrialConfig>(&config).ok());
        let Some((id, config)) = id.zip(config) else {
            abort("the trial that rank 0 sent does not read");
            return Err(RanksError::Lost { rank: 0 });
        };
        let places = Places {
            folder: Path::new(""),
            run_id: &id,
        };
        let share = (cores() / processes.max(1)).max(1);
        let set = [control.threads, config.train.threads];
        let control = TrialControl {
            threads: set.into_iter().find(|&t| t > 0).unwrap_or(share),
            ..*control
        };
        // How it ended, the first rank tells.
        let _ = together(trainer, ranks, &config, places, &control, abort);
    }
}

/// Trains one trial on all ranks. What goes wrong for one of them alone ends all.
fn together(
    trainer: &Trainer<'_>,
    ranks: &dyn Ranks,
    config: &TrialConfig,
    places: Places<'_>,
    control: &TrialControl<'_>,
    abort: Abort<'_>,
) -> Result<TrialOutcome, TrialError> {
    let ready = catch_unwind(AssertUnwindSafe(|| trainer.prepare(config)));
    let (problem, data) = match ready {
        Ok(Ok(data)) => (String::new(), data),
        Ok(Err(error)) => (chain(error.as_ref()), String::new()),
        Err(panic) => (said(panic.as_ref()), String::new()),
    };
    let problems = all_gather_bytes(ranks, problem.as_bytes())?;
    if let Some(rank) = problems.iter().position(|problem| !problem.is_empty()) {
        let problem = String::from_utf8_lossy(&problems[rank]);
        let everywhere = problems.iter().all(|other| *other == problems[rank]);
        return Err(TrialError::Failed(if everywhere {
            problem.into()
        } else {
            format!("on rank {rank}: {problem}").into()
        }));
    }
    let all = all_gather_bytes(ranks, data.as_bytes())?;
    if let Some(rank) = all.iter().position(|other| *other != all[0]) {
        let [own, first] = [&all[rank], &all[0]].map(|data| String::from_utf8_lossy(data));
        return Err(TrialError::Failed(
            format!("the data of rank {rank} are others than those of rank 0: {own}, not {first}")
                .into(),
        ));
    }
    let run = || trainer.train(config, places, control, Some(ranks));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Err(TrialError::Environment(error))) => {
            abort(&chain(error.as_ref()));
            Err(TrialError::Environment(error))
        }
        Ok(Err(TrialError::Failed(error))) if is_of_one_rank(error.as_ref()) => {
            abort(&chain(error.as_ref()));
            Err(TrialError::Environment(error))
        }
        Ok(Err(TrialError::Interrupted)) => {
            // Another rank may have been told; this one is to begin no other trial.
            control.stop.store(true, Ordering::Relaxed);
            Err(TrialError::Interrupted)
        }
        Ok(result) => result,
        Err(panic) => {
            let message = said(panic.as_ref());
            abort(&message);
            Err(TrialError::Failed(message.into()))
        }
    }
}

/// Whether an error may be this rank's alone: of its files, or that it has lost the others. All else
/// follows from the trial, which is the same on all.
fn is_of_one_rank(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<StoreError>()
        || error.is::<std::io::Error>()
        || error.is::<RanksError>()
        || matches!(
            error.downcast_ref::<TrainError>(),
            Some(
                TrainError::Store(_)
                    | TrainError::Ranks(_)
                    | TrainError::Weights(_)
                    | TrainError::Objective(ObjectiveError::Ranks(_))
            )
        )
        || error.source().is_some_and(is_of_one_rank)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no message"))
}

impl TrialRunner for Leader<'_, '_> {
    fn updates(&self, study: &StudyConfig, spec: &TrialSpec) -> Result<u64, BoxError> {
        let updates = self.trainer.updates(study, spec)?;
        let key = "train.statistics_group";
        self.trainer
            .check_ranks(&spec.config, self.ranks)
            .map_err(|message| study.error_at_key(spec, key, &message))?;
        Ok(updates)
    }

    fn run(
        &self,
        spec: &TrialSpec,
        folder: &Path,
        control: &TrialControl<'_>,
    ) -> Result<TrialOutcome, TrialError> {
        let config = serde_json::to_string(&spec.config)?;
        let mut message = Writer::new();
        message.bytes(spec.id.as_bytes());
        message.bytes(config.as_bytes());
        broadcast_bytes(self.ranks, Some(&message.finish()))?;
        let places = Places {
            folder,
            run_id: &spec.id,
        };
        together(
            &self.trainer,
            self.ranks,
            &spec.config,
            places,
            control,
            self.abort,
        )
    }

    fn train_examples(&self, spec: &TrialSpec) -> Result<usize, BoxError> {
        self.trainer.train_examples(spec)
    }

    fn branch(
        &self,
        spec: &TrialSpec,
        from: &str,
        from_folder: &Path,
        folder: &Path,
    ) -> Result<(), TrialError> {
        self.trainer.branch(spec, from, from_folder, folder)
    }

    fn estimate_seconds(&self, spec: &TrialSpec) -> Option<f64> {
        self.trainer.estimate_seconds(spec)
    }

    fn manifest(&self, spec: &TrialSpec) -> Map<String, Value> {
        let mut manifest = self.trainer.manifest(spec);
        manifest.insert("ranks".to_owned(), json!(self.ranks.size()));
        manifest
    }

    fn files(&self, spec: &TrialSpec) -> Vec<&'static str> {
        self.trainer.files(spec)
    }
}
