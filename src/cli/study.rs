//! `batchlab run` and `batchlab status`: their arguments, the progress display, what is printed.
//!
//! Data go to standard output, all else to standard error.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::builder::RangedI64ValueParser;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Out;
use super::ranks::{self, Part, RanksArgs};
use crate::config::{self, ConfigError, Split, TrialConfig, TrialSpec};
use crate::store;
use crate::store::clock::Stopwatch;
use crate::study::{
    self, Basis, BoxError, Counts, Event, Execution, Observer, Options, Plan, Selection, Session,
    StudyError, StudyFolder, Trainer, TrialProgress, TrialRunner, TrialState, label,
};
use crate::train::{Status, TrialOutcome};

/// Exit status of a run that was stopped by SIGINT or SIGTERM.
pub(super) const INTERRUPTED: u8 = 130;

/// Pending trials that `status` names without `--verbose`.
const PENDING_SHOWN: usize = 10;

/// Run a study, or go on with one that was stopped.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Run again, a study does what is missing and no more. Ctrl-C stops it: the running trials write a
checkpoint, and the same command goes on from there. A second Ctrl-C exits at once.

The same command may run several times at once, on one machine or on many with a common folder:
each trial is run once. In a Slurm array of one task per trial (--array=0-8 for 9 trials):
  batchlab run study.toml --index $SLURM_ARRAY_TASK_ID
in one of four tasks (--array=1-4), and with GNU parallel:
  batchlab run study.toml --shard $SLURM_ARRAY_TASK_ID/4
  parallel batchlab run study.toml --shard {}/4 ::: 1 2 3 4
Whichever process finds all trials done writes the summary and the report.

Exit status: 0 all is well (a diverged or censored trial is a result), 1 an error or a failed
trial, 2 wrong usage, 130 stopped by a signal.")]
pub(super) struct RunArgs {
    /// The study file.
    pub config: PathBuf,
    /// Set a key of the study file, such as train.epochs=5. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Show the trials and an estimate of the time; run nothing, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Trials at a time [default: the cores, or the trials left if those are fewer].
    #[arg(long, value_name = "N", value_parser = count())]
    pub jobs: Option<u16>,
    /// Threads of one trial [default: train.threads, else the cores shared out]. Never changes
    /// results.
    #[arg(long, value_name = "N", value_parser = count())]
    pub threads: Option<u16>,
    /// Take every n-th trial only, from the i-th on (i from 1 to n).
    #[arg(long, value_name = "i/n", conflicts_with = "index")]
    pub shard: Option<Selection>,
    /// Take one trial only, by its index in the plan, from 0 (see --dry-run).
    #[arg(long, value_name = "K")]
    pub index: Option<usize>,
    /// Run failed trials again, from their start.
    #[arg(long)]
    pub retry_failed: bool,
    /// The folder in which the study gets its own.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Show no progress: only the headline of the report, failed trials, and errors.
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub ranks: RanksArgs,
}

/// A number of threads. More than the cores gain nothing; far more would hold up the machine.
pub(super) fn count() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=i64::from(config::MAX_THREADS))
}

/// Show which trials of a study are done, running and left.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StatusArgs {
    /// The study's folder, such as results/quickstart.
    pub folder: PathBuf,
    /// Show every trial.
    #[arg(long, short)]
    pub verbose: bool,
}

/// What ends a command of this module.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The study file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The study could not run.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// There is no way to run its trials.
    #[error("{0}")]
    Runner(BoxError),
    /// Standard output could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The system refused a signal handler.
    #[error("cannot listen to signals: {0}")]
    Signal(io::Error),
}

impl RunError {
    /// Exit status: 2 for what is wrong on the command line, else 1.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Study(StudyError::Index { .. } | StudyError::Shard { .. }) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Makes the report of a finished study in its folder, and returns the lines to show for it.
pub(super) type MakeReport<'a> = &'a (dyn Fn(&Path) -> Result<Vec<String>, BoxError> + Sync);

/// `batchlab run`, on one process or on the ranks of mpirun.
///
/// # Errors
/// [`RunError`], to be printed as `error: {error}`, with its exit status.
pub(super) fn run_on_ranks(
    args: &RunArgs,
    trainer: Trainer<'_>,
    report: MakeReport<'_>,
) -> Result<ExitCode, RunError> {
    let body = |runner: &dyn TrialRunner, part: Part| run(args, runner, &part, report);
    let study = (
        args.config.as_path(),
        args.overrides.as_slice(),
        args.results.as_path(),
    );
    ranks::run(&args.ranks, study, args.threads, trainer, &body)
}

/// `batchlab run`: runs a study, or shows what it would run.
///
/// `part` is what this process is among the ranks of mpirun. `report` is called under the study's lock,
/// once all trials of the plan have a result.
///
/// # Errors
/// [`RunError`], to be printed as `error: {error}`, with its exit status.
pub(super) fn run(
    args: &RunArgs,
    runner: &dyn TrialRunner,
    part: &Part,
    report: MakeReport<'_>,
) -> Result<ExitCode, RunError> {
    let study = config::load(&args.config, &args.overrides)?;
    if study.critical_batch.is_some() {
        let path = args.config.display();
        return Err(RunError::Runner(
            format!(
                "{path}: the file has a [critical_batch], whose trials follow from results\n\
                 hint: run it with `batchlab critical-batch {path}`"
            )
            .into(),
        ));
    }
    let folder = StudyFolder::new(&args.results, &study.name)?;
    let plan = Plan::new(study, runner)?;
    let selection = match (args.shard, args.index) {
        (Some(shard), _) => shard,
        (None, Some(index)) => Selection::Index(index),
        (None, None) => Selection::All,
    };
    let options = Options {
        jobs: part.jobs.or(args.jobs.map(usize::from)),
        threads: args.threads.map(usize::from),
        selection,
        retry_failed: args.retry_failed && part.retries,
        processes: part.processes,
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        ..Options::default()
    };
    if args.dry_run {
        if !part.silent {
            dry_run(&plan, &folder, runner, &options)?;
        }
        return Ok(ExitCode::SUCCESS);
    }

    let stop = &*part.stop;
    hide_panics_of_trials();
    let progress = Progress::new(plan.clone(), args.quiet || part.silent, stop);
    let session = Session {
        observer: &progress,
        stop,
        report,
    };
    let execution = study::execute(&plan, &folder, runner, &options, &session);
    progress.clear();
    let execution = execution?;
    if !part.silent {
        conclude(&plan, &folder, runner, &options, &execution, &progress)?;
    }
    Ok(if execution.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if execution.selection.failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Lets the first SIGINT or SIGTERM set the flag, and the second exit.
pub(super) fn listen(stop: &Arc<AtomicBool>) -> Result<(), RunError> {
    for signal in [SIGINT, SIGTERM] {
        // In this order the first signal sets the flag and the second, finding it set, exits.
        let exit = i32::from(INTERRUPTED);
        signal_hook::flag::register_conditional_shutdown(signal, exit, Arc::clone(stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(stop)))
            .map_err(RunError::Signal)?;
    }
    Ok(())
}

/// `batchlab status`: what is done, what runs, what is left.
///
/// # Errors
/// If the folder is not a study's.
pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, RunError> {
    let status = study::status(&args.folder)?;
    let mut counts = Counts::default();
    for trial in &status.trials {
        counts.add(&trial.state, trial.running.is_some());
    }
    let total = status.trials.len();
    out(format!(
        "{}: {}, {} done",
        status.record.name,
        trials(total),
        counts.done()
    ))?;
    out(format!("  {}", breakdown(&counts)))?;
    if status.record.complete == Some(false) {
        out("  more trials may follow from the results of these")?;
    }
    let mut pending = 0;
    for trial in &status.trials {
        let (id, label) = (&trial.record.id, trial.record.label());
        let line = match (&trial.state, &trial.running) {
            (TrialState::Done(result), _) => {
                let shown = args.verbose || result.outcome.status == Status::Failed;
                shown.then(|| describe(&result.outcome))
            }
            (_, Some(where_and_when)) => Some(format!("running ({where_and_when})")),
            (TrialState::Damaged(problem), None) => Some(format!("to run again: {problem}")),
            (TrialState::Unreadable(problem), None) => Some(problem.clone()),
            (TrialState::Pending, None) => {
                pending += 1;
                let word = if trial.begun {
                    "pending, begun"
                } else {
                    "pending"
                };
                (args.verbose || pending <= PENDING_SHOWN).then(|| word.to_owned())
            }
        };
        if let Some(line) = line {
            out(format!("  {id}  {label}: {line}"))?;
        }
    }
    if !args.verbose && pending > PENDING_SHOWN {
        out(format!(
            "  and {} more pending (--verbose shows them)",
            pending - PENDING_SHOWN
        ))?;
    }
    let report = args.folder.join("report.html");
    if store::exists(&report) {
        out(format!("report: {}", report.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn dry_run(
    plan: &Plan,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
    options: &Options,
) -> Result<(), RunError> {
    let selected = plan.select(options.selection)?;
    let mut pending = Vec::new();
    let header = [
        "index",
        "id",
        "state",
        "updates",
        "global batch",
        "learning rate",
        "trial",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    for &index in &selected {
        let spec = &plan.trials()[index];
        let state = folder.state(&spec.id, &runner.files(spec));
        let wanted = options.wants(&state);
        if wanted {
            pending.push(index);
        }
        let word = match &state {
            _ if wanted && folder.is_running(&spec.id) => "running",
            TrialState::Done(_) if wanted => "again",
            TrialState::Done(result) => result.outcome.status.name(),
            TrialState::Damaged(_) => "damaged",
            TrialState::Unreadable(_) => "unreadable",
            TrialState::Pending => "pending",
        };
        rows.push([
            index.to_string(),
            spec.id.clone(),
            word.to_owned(),
            plan.updates()[index].to_string(),
            spec.config.explain_batch(),
            rate_and_warmup(&spec.config),
            label(spec),
        ]);
    }
    table(&rows)?;
    let jobs = options.jobs_for(pending.len());
    out(format!(
        "{}, {} done, {} to run, {jobs} at a time, in {}",
        trials(selected.len()),
        selected.len() - pending.len(),
        pending.len(),
        folder.root().display(),
    ))?;
    if pending.is_empty() {
        return Ok(());
    }
    match study::estimate(plan, folder, runner, &pending, jobs) {
        Some(estimate) => {
            let basis = match estimate.basis {
                Basis::Timings(n) => format!("from the times of {} here", trials(n)),
                Basis::Calibration => "from a short measurement on this machine".to_owned(),
            };
            out(format!(
                "estimated time: about {}, {basis}",
                duration(estimate.seconds)
            ))?;
        }
        None => out("estimated time: unknown")?,
    }
    Ok(())
}

/// Says how it ended.
fn conclude(
    plan: &Plan,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
    options: &Options,
    execution: &Execution,
    progress: &Progress<'_>,
) -> Result<(), RunError> {
    let (selection, all) = (&execution.selection, &execution.plan);
    let quiet = progress.mode == Mode::Quiet;
    for index in plan.select(options.selection)? {
        let spec = &plan.trials()[index];
        if let TrialState::Done(result) = folder.state(&spec.id, &runner.files(spec))
            && result.outcome.status == Status::Failed
        {
            err(format!("{}: {}", label(spec), describe(&result.outcome)));
        }
    }
    if selection.failed > 0 {
        let failed = trials(selection.failed);
        err(format!(
            "{failed} failed\nhint: --retry-failed runs them again from their start"
        ));
    }
    if execution.interrupted {
        let (done, of) = (all.done(), plan.trials().len());
        err(format!(
            "stopped with {done} of {of} trials done; the same command goes on from here"
        ));
    } else if !quiet {
        let time = duration(progress.watch.seconds());
        let ran = trials(execution.ran);
        err(format!(
            "ran {ran} in {time}; of all {}: {}",
            plan.trials().len(),
            breakdown(all)
        ));
        if all.running > 0 {
            let are = if all.running == 1 { "is" } else { "are" };
            err(format!(
                "{} {are} still run by other processes; the last to finish writes summary and report",
                trials(all.running),
            ));
        }
        if all.pending > 0 {
            err(format!(
                "{} not yet begun or left unfinished by a process that ended: another shard, or \
                 this command again, takes them on",
                trials(all.pending),
            ));
        }
    }
    for line in execution.report.iter().flatten() {
        out(line)?;
    }
    Ok(())
}

/// A trial's panic is caught and becomes its result, with its message: the default hook would
/// print it into the progress display too. Other panics are printed as ever.
pub(super) fn hide_panics_of_trials() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        if !thread
            .name()
            .is_some_and(|name| name.starts_with(study::WORKER_THREAD))
        {
            default(panic);
        }
    }));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Bars on a terminal, and a line for each finished trial.
    Bars,
    /// No terminal: the plan, and what goes wrong.
    Lines,
    Quiet,
}

/// The display of a running study.
pub(super) struct Progress<'a> {
    plan: Plan,
    mode: Mode,
    /// Say nothing at the start.
    brief: bool,
    stop: &'a AtomicBool,
    watch: Stopwatch,
    display: Mutex<Screen>,
}

struct Screen {
    bars: MultiProgress,
    study: ProgressBar,
    running: BTreeMap<usize, Running>,
    /// Work in the units of [`Plan::cost`]: done here, and left at the start of this run.
    work_done: f64,
    work: f64,
    done: usize,
    trials: usize,
    told_to_stop: bool,
}

struct Running {
    bar: ProgressBar,
    since: Option<(Stopwatch, u64)>,
    drawn: Stopwatch,
    /// Share of the trial's work that is done, of what was left when it started here.
    share: f64,
}

impl<'a> Progress<'a> {
    pub(super) fn new(plan: Plan, quiet: bool, stop: &'a AtomicBool) -> Self {
        let mode = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Mode::Quiet,
            (false, true) => Mode::Bars,
            (false, false) => Mode::Lines,
        };
        let display = Mutex::new(Screen {
            bars: MultiProgress::new(),
            study: ProgressBar::hidden(),
            running: BTreeMap::new(),
            work_done: 0.0,
            work: 0.0,
            done: 0,
            trials: 0,
            told_to_stop: false,
        });
        Self {
            plan,
            mode,
            brief: false,
            stop,
            watch: Stopwatch::start(),
            display,
        }
    }

    /// The same, which says nothing at the start.
    pub(super) fn brief(self) -> Self {
        Self {
            brief: true,
            ..self
        }
    }

    fn display(&self) -> MutexGuard<'_, Screen> {
        self.display.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints above the bars.
    fn say(&self, display: &Screen, text: impl Display) {
        match self.mode {
            Mode::Bars => drop(display.bars.println(text.to_string())),
            Mode::Lines => err(text),
            Mode::Quiet => {}
        }
    }

    pub(super) fn clear(&self) {
        let display = self.display();
        display.study.finish_and_clear();
        drop(display.bars.clear());
    }

    /// For each batch and rate that are to come, how they come about.
    fn explain(&self, display: &Screen, queue: &[usize]) {
        let mut in_order = queue.to_vec();
        in_order.sort_unstable();
        let mut lines: Vec<(String, usize)> = Vec::new();
        for index in in_order {
            let config = &self.plan.trials()[index].config;
            let line = batch_and_rate(config);
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, count)) => *count += 1,
                None => lines.push((line, 1)),
            }
        }
        for (line, count) in lines {
            self.say(display, format!("{}: {line}", trials(count)));
        }
    }

    fn begin(&self, queue: &[usize], done: usize, jobs: usize) {
        let mut display = self.display();
        display.done = done;
        display.trials = done + queue.len();
        display.work = queue.iter().map(|&index| self.plan.cost(index)).sum();
        let name = &self.plan.study().name;
        let (all, left) = (trials(display.trials), queue.len());
        let head = format!("{name}: {all}, {done} done, {left} to run, {jobs} at a time");
        if !self.brief {
            self.say(&display, head);
            self.explain(&display, queue);
        }
        if self.mode == Mode::Bars && !queue.is_empty() {
            let bar = ProgressBar::new(display.trials as u64);
            display.study = display.bars.add(bar);
            display
                .study
                .set_style(style("{bar:24} {pos}/{len} trials, {elapsed}{msg}"));
            display.study.set_position(done as u64);
            display
                .study
                .enable_steady_tick(std::time::Duration::from_millis(500));
        }
    }

    fn start(&self, spec: &TrialSpec) {
        let mut display = self.display();
        let mut bar = ProgressBar::hidden();
        if self.mode == Mode::Bars {
            bar = display
                .bars
                .add(ProgressBar::new(self.plan.updates()[spec.index]));
            bar.set_style(style("{bar:12} {wide_msg}"));
            bar.set_message(format!("{}: starting", label(spec)));
        }
        let running = Running {
            bar,
            since: None,
            drawn: Stopwatch::start(),
            share: 0.0,
        };
        display.running.insert(spec.index, running);
    }

    fn advance(&self, spec: &TrialSpec, progress: TrialProgress) {
        let mut guard = self.display();
        let display = &mut *guard;
        let Some(running) = display.running.get_mut(&spec.index) else {
            return;
        };
        let total = progress.total_steps.max(1);
        let (since, first) = *running.since.get_or_insert_with(|| {
            // A resumed trial has less to do than the plan says.
            let first = progress.step.min(total);
            let begun = first.saturating_sub(1) as f64 / total as f64;
            display.work -= begun * self.plan.cost(spec.index);
            (Stopwatch::start(), first)
        });
        let steps = progress.step.saturating_sub(first);
        running.share = steps as f64 / total as f64;
        if self.mode != Mode::Bars || (running.drawn.seconds() < 0.1 && steps > 0) {
            return;
        }
        running.drawn = Stopwatch::start();
        let seconds = since.seconds();
        let rate = if steps > 0 && seconds > 0.0 {
            format!(", {} updates/s", short(steps as f64 / seconds))
        } else {
            String::new()
        };
        running.bar.set_length(total);
        running.bar.set_position(progress.step);
        running.bar.set_message(format!(
            "{}: update {} of {total}, loss {}{rate}",
            label(spec),
            progress.step,
            short(progress.loss),
        ));
        let left = self.left(display);
        display.study.set_message(left);
    }

    /// Time left, by the share of the work that is done: `, about 3 min left`.
    fn left(&self, display: &Screen) -> String {
        let running: f64 = display
            .running
            .iter()
            .map(|(&index, running)| running.share * self.plan.cost(index))
            .sum();
        let done = display.work_done + running;
        let share = done / display.work;
        if share > 0.001 {
            let seconds = self.watch.seconds() * (1.0 / share - 1.0).max(0.0);
            format!(", about {} left", duration(seconds))
        } else {
            String::new()
        }
    }

    fn finish(&self, spec: &TrialSpec, outcome: &TrialOutcome, seconds: f64) {
        let mut display = self.display();
        if let Some(running) = display.running.remove(&spec.index) {
            running.bar.finish_and_clear();
            display.bars.remove(&running.bar);
        }
        display.work_done += self.plan.cost(spec.index);
        display.done += 1;
        display.study.set_position(display.done as u64);
        let result = format!(
            "{}: {}, {}",
            label(spec),
            describe(outcome),
            duration(seconds)
        );
        match self.mode {
            Mode::Bars => {
                let how = batch_and_rate(&spec.config);
                self.say(&display, format!("{result} ({how})"));
            }
            Mode::Lines => {
                if matches!(outcome.status, Status::Diverged | Status::Failed) {
                    self.say(&display, result);
                }
            }
            Mode::Quiet => {}
        }
    }

    /// The trial will not end here: what it would have taken is no longer to come.
    fn leave(&self, spec: &TrialSpec) {
        let mut display = self.display();
        match display.running.remove(&spec.index) {
            Some(running) => {
                running.bar.finish_and_clear();
                display.bars.remove(&running.bar);
            }
            None => display.work -= self.plan.cost(spec.index),
        }
    }

    fn tell_once_that_it_stops(&self) {
        if self.stop.load(Ordering::Relaxed) {
            let mut display = self.display();
            if !display.told_to_stop {
                display.told_to_stop = true;
                let text =
                    "stopping: the running trials write a checkpoint (again to exit at once)";
                self.say(&display, text);
            }
        }
    }
}

impl Observer for Progress<'_> {
    fn observe(&self, event: &Event<'_>) {
        if self.mode != Mode::Quiet {
            self.tell_once_that_it_stops();
        }
        match *event {
            Event::Begun { queue, done, jobs } => self.begin(queue, done, jobs),
            Event::Started { spec, .. } => self.start(spec),
            Event::Progress { spec, progress } => self.advance(spec, progress),
            Event::Finished {
                spec,
                outcome,
                seconds,
            } => self.finish(spec, outcome, seconds),
            Event::Left { spec } => self.leave(spec),
            Event::Note(text) => self.say(&self.display(), format!("note: {text}")),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn batch_and_rate(config: &TrialConfig) -> String {
    format!(
        "global batch {}; rate {}",
        config.explain_batch(),
        rate_and_warmup(config)
    )
}

fn rate_and_warmup(config: &TrialConfig) -> String {
    let (rate, warmup) = (config.explain_rate(), config.explain_warmup());
    if warmup == "none" {
        rate
    } else {
        format!("{rate}, warm-up {warmup}")
    }
}

/// How a trial ended, in few words: `completed, test accuracy 0.934`.
fn describe(outcome: &TrialOutcome) -> String {
    let test = outcome.evaluation.get(&Split::Test);
    let quality = test.map(|test| match test.accuracy {
        Some(accuracy) => format!("test accuracy {}", short(accuracy)),
        None => format!("test loss {}", short(test.loss)),
    });
    let words = [
        Some(outcome.status.name().to_owned()),
        quality,
        outcome.message.clone(),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn breakdown(counts: &Counts) -> String {
    let counts = [
        (counts.completed, "completed"),
        (counts.diverged, "diverged"),
        (counts.censored, "censored"),
        (counts.failed, "failed"),
        (counts.running, "running"),
        (counts.pending, "pending"),
    ];
    let words = counts.iter().filter(|(count, _)| *count > 0);
    words
        .map(|(count, word)| format!("{count} {word}"))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn trials(count: usize) -> String {
    if count == 1 {
        "1 trial".to_owned()
    } else {
        format!("{count} trials")
    }
}

/// Three significant digits.
fn short(number: f64) -> String {
    let size = number.abs();
    if !number.is_finite() || size == 0.0 {
        return number.to_string();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{number:.2e}");
    }
    let digits = (2.0 - size.log10().floor()).max(0.0) as usize;
    format!("{number:.digits$}")
}

/// Seconds for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

/// Prints rows with their columns aligned.
fn table<const N: usize>(rows: &[[String; N]]) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        out(cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// A line of standard output.
fn out(text: impl Display) -> io::Result<()> {
    writeln!(Out, "{text}")
}

/// A line of standard error.
pub(super) fn err(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_in_two_units() {
        let cases = [
            (0.42, "0.4 s"),
            (9.96, "10 s"),
            (59.6, "1 min 0 s"),
            (200.0, "3 min 20 s"),
            (7500.0, "2 h 5 min"),
            (273_600.0, "3 d 4 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn numbers_are_shortened_to_three_digits() {
        let cases = [
            (0.93421, "0.934"),
            (1234.5, "1234"),
            (0.0, "0"),
            (1.5e-7, "1.50e-7"),
            (f64::NAN, "NaN"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }
}
