//! The ranks that `mpirun` (or `srun`) started: what they share, and how they end together.

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest as _, Sha256};

use super::study::{RunError, listen};
#[cfg(feature = "mpi")]
use crate::collective::{Mpi, StartError};
use crate::collective::{Ranks, all_gather_bytes};
use crate::config::{self, env};
use crate::store;
#[cfg(not(feature = "mpi"))]
use crate::study::BoxError;
use crate::study::{self, Abort, Identity, Leader, Trainer, TrialControl, TrialRunner};

/// What the ranks of an mpirun share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum Distribute {
    /// The shards of each update: all ranks train one trial at a time.
    #[default]
    Shards,
    /// The trials: each rank trains trials of its own.
    Trials,
}

/// Options of the commands that mpirun can start.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RanksArgs {
    /// Under mpirun, what the ranks share: the shards of each update of one trial at a time, or whole
    /// trials.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub distribute: Distribute,
    /// Under mpirun, end all ranks if one waits longer than this many seconds for another. Ranks that
    /// share trials wait for each other at the end only, without a limit.
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = limit)]
    pub rank_timeout: f64,
}

/// A number of seconds above 0.
pub(super) fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(seconds),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}

/// This process among those of the launcher.
pub(super) struct Started {
    #[cfg(feature = "mpi")]
    mpi: Option<Mpi>,
}

#[cfg(feature = "mpi")]
impl Started {
    /// Starts MPI where a launcher started this process. Without one there is one rank, and MPI is left
    /// alone.
    pub(super) fn new(seconds: f64) -> Result<Self, StartError> {
        let mpi = if env::is_launched() {
            Mpi::start(seconds, |error| err(format!("error: {error}")))?
        } else {
            None
        };
        Ok(Self { mpi })
    }

    /// The ranks, where there are several.
    pub(super) fn several(&self) -> Option<&dyn Ranks> {
        let mpi = self.mpi.as_ref().filter(|mpi| mpi.size() > 1)?;
        Some(mpi)
    }

    fn abort(&self, message: &str) {
        if let Some(mpi) = &self.mpi {
            err(format!("error: rank {}: {message}", mpi.rank()));
            mpi.abort(1);
        }
    }
}

#[cfg(not(feature = "mpi"))]
impl Started {
    /// Without the feature `mpi` processes know nothing of each other.
    #[expect(clippy::unnecessary_wraps, reason = "as with the feature `mpi`")]
    pub(super) fn new(_: f64) -> Result<Self, BoxError> {
        if let Some(count) = env::launched().filter(|count| *count > 1)
            && env::launched_rank().is_none_or(|rank| rank == 0)
        {
            err(format!(
                "note: started as {count} processes, but built without MPI: they share trials, not the \
                 work of one\nhint: build with `--features mpi`"
            ));
        }
        Ok(Self {})
    }

    /// None.
    #[expect(clippy::unused_self, reason = "as with the feature `mpi`")]
    pub(super) fn several(&self) -> Option<&dyn Ranks> {
        None
    }

    #[expect(clippy::unused_self, reason = "as with the feature `mpi`")]
    fn abort(&self, message: &str) {
        err(format!("error: {message}"));
    }
}

#[cfg(feature = "mpi")]
fn runner_error(error: StartError) -> RunError {
    RunError::Runner(error.into())
}

#[cfg(not(feature = "mpi"))]
fn runner_error(error: BoxError) -> RunError {
    RunError::Runner(error)
}

/// At once, for other ranks may speak too.
fn err(text: impl Display) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// What a command does on one rank.
pub(super) struct Part {
    /// Set by the first signal that asks to stop; the second one ends the process.
    pub stop: Arc<AtomicBool>,
    /// Whether failed trials may be run again, where the user asks for it.
    pub retries: bool,
    /// Say nothing at all: another rank does.
    pub silent: bool,
    /// Trials at a time, where the ranks decide it.
    pub jobs: Option<usize>,
    /// Ranks on this machine, which share its cores.
    pub processes: usize,
}

/// Runs a command that trains the trials of the study file `config` into `results`, on one process or on
/// the ranks of a launcher.
///
/// # Errors
/// What `body` says. Where ranks cannot go on together they end here, with a message and exit status 1.
pub(super) fn run(
    args: &RanksArgs,
    (config, overrides, results): (&Path, &[String], &Path),
    threads: Option<u16>,
    trainer: Trainer<'_>,
    body: &dyn Fn(&dyn TrialRunner, Part) -> Result<ExitCode, RunError>,
) -> Result<ExitCode, RunError> {
    let trials = args.distribute == Distribute::Trials;
    let seconds = if trials {
        f64::INFINITY
    } else {
        args.rank_timeout
    };
    let started = Started::new(seconds).map_err(runner_error)?;
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop)?;
    let alone = Part {
        stop: Arc::clone(&stop),
        retries: true,
        silent: false,
        jobs: None,
        processes: 1,
    };
    let Some(ranks) = started.several() else {
        return body(&trainer, alone);
    };
    let abort = |message: &str| started.abort(message);
    let abort: Abort<'_> = &abort;
    let mut identity = identity(config, overrides);
    let shared = if trials { "trials" } else { "shards" };
    identity.parts.push(("--distribute", shared.to_owned()));
    if trials {
        let folder = results.display().to_string();
        identity.parts.push(("--results", folder));
    }
    let processes = match study::check_same(ranks, &identity) {
        Ok(processes) => processes,
        Err(error) => {
            if ranks.rank() == 0 {
                abort(&error.to_string());
            }
            // Rank 0 ends all of them; this one waits for it.
            let _ = ranks.barrier();
            return Ok(ExitCode::FAILURE);
        }
    };
    let first = ranks.rank() == 0;
    let part = |stop: &Arc<AtomicBool>, silent| Part {
        stop: Arc::clone(stop),
        retries: true,
        silent,
        jobs: Some(1),
        processes,
    };
    let lost = |error: crate::collective::RanksError| RunError::Runner(error.into());
    if trials {
        let own = body(&trainer, part(&stop, true));
        if let Err(error) = &own {
            abort(&error.to_string());
        }
        let stopped = all_gather_bytes(ranks, &[u8::from(stop.load(Ordering::Relaxed))]);
        if stopped.map_err(lost)?.iter().any(|rank| rank == &[1]) {
            stop.store(true, Ordering::Relaxed);
        }
        if !first {
            return Ok(ExitCode::SUCCESS);
        }
        // The last one to end may have been another; and one that was asked to stop has left trials.
        let conclusion = Part {
            retries: false,
            ..part(&stop, false)
        };
        return body(&trainer, conclusion);
    }
    if first {
        let leader = Leader::new(trainer, ranks, abort);
        let result = body(&leader, part(&stop, false));
        leader.finish().map_err(lost)?;
        return result;
    }
    // Of a study file that does not load the first rank speaks.
    let control = TrialControl {
        threads: threads.map_or(0, usize::from),
        stop: &stop,
        progress: &|_| {},
    };
    study::follow(&trainer, ranks, &control, processes, abort).map_err(lost)?;
    Ok(ExitCode::SUCCESS)
}

/// What all ranks must have in common.
fn identity(config: &Path, overrides: &[String]) -> Identity {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| store::read(&path).ok())
        .map_or_else(|| "unreadable".to_owned(), |bytes| digest(&[&bytes]));
    let study = match config::load(config, overrides) {
        Ok(study) => {
            let ids: Vec<&[u8]> = study.trials.iter().map(|t| t.id.as_bytes()).collect();
            digest(&[study.source.as_bytes(), &ids.concat()])
        }
        Err(error) => format!("unreadable ({})", error.to_string().replace('\n', "; ")),
    };
    Identity {
        host: study::host_name(),
        parts: vec![("the program", program), ("the study", study)],
    }
}

/// The first digits of a checksum.
fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let digits = hash.finalize();
    let mut text = String::new();
    for byte in digits.iter().take(6) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
