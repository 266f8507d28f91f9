//! `batchlab critical-batch`: its arguments, and what is printed.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ranks::{self, Part, RanksArgs};
use super::study::{
    INTERRUPTED, MakeReport, Progress, RunError, count, duration, err, hide_panics_of_trials,
    trials,
};
use super::{Out, report_folder};
use crate::analysis::critical_batch::{self, CriticalBatch};
use crate::config::{self, StudyConfig};
use crate::report;
use crate::store::clock::Stopwatch;
use crate::study::{
    self, BoxError, Event, Observer, Options, Plan, Selection, Session, StudyFolder, Trainer,
    TrialRunner,
};

/// Trials of the next round that `--dry-run` names.
const SHOWN: usize = 20;

/// Measure the critical batch size: how large the batch can be before more workers stop paying.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
The study file says under [critical_batch] which batches, and under [train.target] what is to be
reached. At each batch, for each seed, the learning rate is searched for that takes the fewest
updates; the law S = S_min(1 + B_crit/B) is fitted to them. Each point of [sweep] is a case of its own.

Run again, the study does what is missing and no more. Ctrl-C stops it. The same command may run
several times at once, on one machine or on many with a common folder: each trial is run once, and
all of them end when the study is done. With --shard i/n each begins with another part of a round.

A table of one's own needs the columns batch and steps; seed, rate, reached and case are optional:
  batchlab critical-batch --from-csv steps.csv --out report

Exit status: 0 all is well (also where no trial reaches the target: that is an answer), 1 an error or
a failed trial, 2 wrong usage, 130 stopped by a signal.")]
pub(super) struct CriticalArgs {
    /// The study file.
    #[arg(required_unless_present = "from_csv", conflicts_with = "from_csv")]
    config: Option<PathBuf>,
    /// Use these measurements in place of a study: a table with columns batch and steps.
    #[arg(long, value_name = "FILE")]
    from_csv: Option<PathBuf>,
    /// With --from-csv, write report.html and figures/ into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    out: Option<PathBuf>,
    /// Set a key of the study file, such as critical_batch.rate_factor=1.5. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "from_csv")]
    overrides: Vec<String>,
    /// Show what would be run first; run nothing, write nothing.
    #[arg(long, conflicts_with = "from_csv")]
    dry_run: bool,
    /// Trials at a time [default: the cores, or the trials left if those are fewer].
    #[arg(long, value_name = "N", value_parser = count(), conflicts_with = "from_csv")]
    jobs: Option<u16>,
    /// Threads of one trial [default: train.threads, else the cores shared out]. Never changes
    /// results.
    #[arg(long, value_name = "N", value_parser = count(), conflicts_with = "from_csv")]
    threads: Option<u16>,
    /// Begin with the i-th of n parts of each round (i from 1 to n), then help with the others.
    #[arg(long, value_name = "i/n", conflicts_with = "from_csv")]
    shard: Option<Selection>,
    /// Run failed trials again, from their start.
    #[arg(long, conflicts_with = "from_csv")]
    retry_failed: bool,
    /// The folder in which the study gets its own.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "results",
        conflicts_with = "from_csv"
    )]
    results: PathBuf,
    /// Show no progress: only the answer, failed trials, and errors.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    ranks: RanksArgs,
}

/// `batchlab critical-batch`
///
/// # Errors
/// [`RunError`], to be printed as `error: {error}`, with its exit status.
pub(super) fn run(
    args: &CriticalArgs,
    trainer: Trainer<'_>,
    make_report: MakeReport<'_>,
) -> Result<ExitCode, RunError> {
    if let Some(path) = &args.from_csv {
        return from_csv(path, args.out.as_deref());
    }
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let body =
        |runner: &dyn TrialRunner, part: Part| run_study(args, path, runner, &part, make_report);
    ranks::run(
        &args.ranks,
        (path, &args.overrides, &args.results),
        args.threads,
        trainer,
        &body,
    )
}

/// Runs the study, as `part` of the ranks of mpirun.
fn run_study(
    args: &CriticalArgs,
    path: &Path,
    runner: &dyn TrialRunner,
    part: &Part,
    make_report: MakeReport<'_>,
) -> Result<ExitCode, RunError> {
    let study = config::load(path, &args.overrides)?;
    if study.critical_batch.is_none() {
        return Err(RunError::Runner(
            format!(
                "{}: the file has no [critical_batch]\nhint: add it, with `batches = {{ log2 = [8, 8192] }}`; \
                 `batchlab run` runs other studies",
                path.display()
            )
            .into(),
        ));
    }
    let folder = StudyFolder::new(&args.results, &study.name)?;
    let options = Options {
        jobs: part.jobs.or(args.jobs.map(usize::from)),
        threads: args.threads.map(usize::from),
        selection: args.shard.unwrap_or_default(),
        retry_failed: args.retry_failed && part.retries,
        processes: part.processes,
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        ..Options::default()
    };
    if args.dry_run {
        return if part.silent {
            Ok(ExitCode::SUCCESS)
        } else {
            dry_run(&study, &folder, runner)
        };
    }
    let quiet = args.quiet || part.silent;
    let stop = &*part.stop;
    hide_panics_of_trials();
    let watch = Stopwatch::start();
    let observer = Rounds {
        round: Mutex::default(),
        quiet,
        stop,
    };
    let rounds = RefCell::new(0_usize);
    let announce = |round: study::Round<'_>| {
        *rounds.borrow_mut() += 1;
        if !quiet {
            let known = round.plan.trials().len();
            err(format!(
                "{}: round {}: {} to run, of {known} so far",
                round.plan.study().name,
                rounds.borrow(),
                trials(round.pending.len()),
            ));
        }
        observer.begin(round.plan);
    };
    let session = Session {
        observer: &observer,
        stop,
        report: make_report,
    };
    let execution = study::execute_critical(&study, &folder, runner, &options, &session, &announce);
    observer.end();
    let execution = execution?;
    if part.silent {
        return Ok(ExitCode::SUCCESS);
    }
    if execution.interrupted {
        err("stopped; the same command goes on from here");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if !args.quiet {
        err(format!(
            "ran {} in {}; {} in all",
            trials(execution.ran),
            duration(watch.seconds()),
            trials(execution.plan.done()),
        ));
    }
    for line in execution.report.iter().flatten() {
        writeln!(Out, "{line}")?;
    }
    if execution.plan.failed > 0 {
        let failed = trials(execution.plan.failed);
        err(format!(
            "{failed} failed\nhint: `batchlab status {}` says why; --retry-failed runs them again",
            folder.root().display()
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the report of a study of the critical batch size in its folder, and returns its headline.
pub(super) fn write_report(folder: &Path) -> Result<Vec<String>, BoxError> {
    let found = critical_batch::critical_batch(folder)?;
    let files = report::write_critical(folder, &found)?;
    let mut lines = critical_batch::headline(&found);
    lines.push(format!("report: {}", files.html.display()));
    Ok(lines)
}

fn from_csv(path: &Path, out: Option<&Path>) -> Result<ExitCode, RunError> {
    let read = critical_batch::from_csv(path).map_err(|error| RunError::Runner(error.into()))?;
    if !read.ignored.is_empty() {
        err(format!(
            "note: {}: columns that are not used: {}",
            path.display(),
            read.ignored.join(", ")
        ));
    }
    if let Some(out) = out {
        report_folder(out).map_err(RunError::Runner)?;
    }
    print_answer(&read.critical_batch)?;
    if let Some(out) = out {
        let files = report::write_critical(out, &read.critical_batch)
            .map_err(|error| RunError::Runner(error.into()))?;
        writeln!(Out, "report: {}", files.html.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_answer(found: &CriticalBatch) -> io::Result<()> {
    for line in critical_batch::headline(found) {
        writeln!(Out, "{line}")?;
    }
    Ok(())
}

/// The first round, and the most that a trial of each batch may take.
fn dry_run(
    study: &StudyConfig,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
) -> Result<ExitCode, RunError> {
    study::check_critical(study, runner)?;
    let (known, pending) = study::critical_trials(study, folder, runner)?;
    let plan = Plan::new(study.with_trials(known), runner)?;
    let mut budgets: Vec<(usize, u64)> = Vec::new();
    if let (Some(critical), Some(start)) = (&study.critical_batch, study.trials.first()) {
        let examples = runner.train_examples(start).map_err(RunError::Runner)?;
        for &batch in &critical.config.batches {
            budgets.push((batch, critical.config.budget(batch, examples)));
        }
    }
    let cases = study.trials.len() / study.seeds.len().max(1);
    writeln!(
        Out,
        "{}: {} x {} batches x {}, in {}",
        study.name,
        plural(cases, "case"),
        budgets.len(),
        plural(study.seeds.len(), "seed"),
        folder.root().display(),
    )?;
    writeln!(Out, "global batch  updates at most")?;
    for (batch, budget) in budgets {
        writeln!(Out, "{batch:12}  {budget}")?;
    }
    let done = plan.trials().len() - pending.len();
    writeln!(
        Out,
        "known so far: {}, {done} done, {} to run in the next round; what follows depends on their results",
        trials(plan.trials().len()),
        pending.len(),
    )?;
    let next = plan
        .trials()
        .iter()
        .filter(|spec| pending.contains(&spec.id));
    for spec in next.take(SHOWN) {
        writeln!(Out, "  {}  {}", spec.id, study::label(spec))?;
    }
    if pending.len() > SHOWN {
        writeln!(Out, "  and {} more", pending.len() - SHOWN)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plural(n: usize, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {one}s")
    }
}

/// Shows the progress of one round after the other.
struct Rounds<'a> {
    round: Mutex<Option<Progress<'a>>>,
    quiet: bool,
    stop: &'a AtomicBool,
}

impl<'a> Rounds<'a> {
    fn begin(&self, plan: &Plan) {
        self.end();
        let round = Progress::new(plan.clone(), self.quiet, self.stop).brief();
        *self.round() = Some(round);
    }

    fn end(&self) {
        if let Some(round) = self.round().take() {
            round.clear();
        }
    }

    fn round(&self) -> MutexGuard<'_, Option<Progress<'a>>> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Rounds<'_> {
    fn observe(&self, event: &Event<'_>) {
        if let Some(round) = &*self.round() {
            round.observe(event);
        }
    }
}
