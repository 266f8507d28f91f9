use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::folder::{RESULT, StudyFolder};
use super::record::json;
use super::runner::{chain, is_of_the_machine};
use super::tables::{Timing, append_timing, summary};
use super::{
    BoxError, Plan, Selection, StudyError, StudyRecord, TrialControl, TrialError, TrialProgress,
    TrialResult, TrialRunner, TrialState, label,
};
use crate::config::TrialSpec;
use crate::store::clock::{Stopwatch, now_rfc3339};
use crate::store::{self, FileLock};
use crate::train::{Status, TrialOutcome};

/// How the names of the threads begin that run trials.
pub const WORKER_THREAD: &str = "trial worker";

/// How to run a plan.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Trials at a time. Default: as many as there are cores, or trials left if those are fewer.
    pub jobs: Option<usize>,
    /// Threads of one trial. Default: `train.threads` if set, else the cores shared out.
    pub threads: Option<usize>,
    /// Which trials this process takes.
    pub selection: Selection,
    /// Of those, only these, by index.
    pub only: Option<Vec<usize>>,
    /// The plan is one of several, each with the trials of the one before: another process may be
    /// ahead, and its plan is left in place.
    pub growing: bool,
    /// Run trials again that failed, from their start.
    pub retry_failed: bool,
    /// Processes on this machine that share its cores, this one included; 0 counts as 1.
    pub processes: usize,
    /// The command line, for the manifests.
    pub command: Vec<String>,
}

impl Options {
    /// Trials at a time, where this many are left.
    pub fn jobs_for(&self, pending: usize) -> usize {
        let fitting = self.cores() / self.threads.unwrap_or(1).max(1);
        self.jobs.unwrap_or(fitting.min(pending)).max(1)
    }

    /// The cores that this process may use.
    fn cores(&self) -> usize {
        (cores() / self.processes.max(1)).max(1)
    }

    /// Whether a trial in this state is still to run.
    pub fn wants(&self, state: &TrialState) -> bool {
        match state {
            TrialState::Done(result) => {
                self.retry_failed && result.outcome.status == Status::Failed
            }
            TrialState::Pending | TrialState::Damaged(_) | TrialState::Unreadable(_) => true,
        }
    }
}

/// What a study reports to and listens to while it runs.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    /// Told what happens, from several threads.
    pub observer: &'a dyn Observer,
    /// Set to stop: the running trials write a checkpoint and end.
    pub stop: &'a AtomicBool,
    /// Makes the report in the study's folder, called once every trial of the plan has a result.
    /// The study's lock is held meanwhile: it must not be taken again. Returns lines to show.
    pub report: &'a (dyn Fn(&Path) -> Result<Vec<String>, BoxError> + Sync),
}

/// Told what happens.
pub trait Observer: Sync {
    /// Called from several threads; should be quick.
    fn observe(&self, event: &Event<'_>);
}

/// What happens in a study.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// What was found: so many of this process's trials are done, so many are to run.
    Begun {
        /// Indices of the trials to run, in the order they are started.
        queue: &'a [usize],
        /// Trials of the selection that have a result.
        done: usize,
        /// Trials at a time.
        jobs: usize,
    },
    /// A trial starts.
    Started {
        /// The trial.
        spec: &'a TrialSpec,
        /// Its threads.
        threads: usize,
    },
    /// A trial got on.
    Progress {
        /// The trial.
        spec: &'a TrialSpec,
        /// How far it is.
        progress: TrialProgress,
    },
    /// A trial has a result.
    Finished {
        /// The trial.
        spec: &'a TrialSpec,
        /// The result.
        outcome: &'a TrialOutcome,
        /// Seconds this process worked on it.
        seconds: f64,
    },
    /// A trial will not be run here any more: stopped with a checkpoint, or taken by another.
    Left {
        /// The trial.
        spec: &'a TrialSpec,
    },
    /// Something the user should know.
    Note(&'a str),
}

/// How many trials are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Came to their end.
    pub completed: usize,
    /// Diverged.
    pub diverged: usize,
    /// Did not reach their target.
    pub censored: usize,
    /// Failed.
    pub failed: usize,
    /// Another process is at work on them.
    pub running: usize,
    /// None of these.
    pub pending: usize,
}

impl Counts {
    /// Trials that have a result.
    pub fn done(&self) -> usize {
        self.completed + self.diverged + self.censored + self.failed
    }

    /// Counts one more.
    pub fn add(&mut self, state: &TrialState, running: bool) {
        let count = match state {
            TrialState::Done(result) => match result.outcome.status {
                Status::Completed => &mut self.completed,
                Status::Diverged => &mut self.diverged,
                Status::Censored => &mut self.censored,
                Status::Failed => &mut self.failed,
            },
            _ if running => &mut self.running,
            _ => &mut self.pending,
        };
        *count += 1;
    }
}

/// How running a plan ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// Trials that this process brought to a result.
    pub ran: usize,
    /// The trials that were this process's to run.
    pub selection: Counts,
    /// All trials of the plan.
    pub plan: Counts,
    /// Whether it was asked to stop before its trials were done.
    pub interrupted: bool,
    /// What the report said, if this process wrote it.
    pub report: Option<Vec<String>>,
}

/// Runs the trials of the selection that have no result yet, those with the most work first, and
/// writes the summary and, once the whole plan is done, the report. See the [module](super) for
/// how processes share a folder.
///
/// Jobs and threads never change results.
///
/// # Errors
/// [`StudyError`]. An error or a panic inside a trial is that trial's result and none of these.
pub fn execute(
    plan: &Plan,
    folder: &StudyFolder,
    runner: &dyn TrialRunner,
    options: &Options,
    session: &Session<'_>,
) -> Result<Execution, StudyError> {
    let mut selected = plan.select(options.selection)?;
    if let Some(only) = &options.only {
        selected.retain(|index| only.contains(index));
    }
    let note = |text: &str| session.observer.observe(&Event::Note(text));
    let plan_path = folder.file("study.json");
    let mut record = plan.record();
    record.complete = plan
        .study()
        .critical_batch
        .as_ref()
        .map(|_| !options.growing);
    let plan_bytes = json(&record, &plan_path)?;
    begin(plan, folder, &plan_bytes, options.growing, &note)?;

    let mut queue: Vec<usize> = Vec::new();
    let mut failed_at = vec![None; plan.trials().len()];
    for &index in &selected {
        let spec = &plan.trials()[index];
        let id = &spec.id;
        let state = folder.state_by_content(id, &runner.files(spec));
        if options.wants(&state) {
            if matches!(state, TrialState::Done(_)) {
                failed_at[index] = store::modified(&folder.trial(id).join(RESULT));
            }
            queue.push(index);
        }
    }
    // Longest first leaves the short ones to fill the gaps at the end (Graham 1969). Ties stay in
    // plan order.
    queue.sort_by(|&a, &b| plan.cost(b).total_cmp(&plan.cost(a)));
    let jobs = options.jobs_for(queue.len());
    let done = selected.len() - queue.len();
    session.observer.observe(&Event::Begun {
        queue: &queue,
        done,
        jobs,
    });

    let mut work = Work {
        plan,
        folder,
        runner,
        options,
        session,
        plan_bytes,
        failed_at,
        jobs,
        host: host_name(),
        queue: Mutex::default(),
        held: Mutex::default(),
        running: AtomicUsize::new(0),
        ran: AtomicUsize::new(0),
        failure: Mutex::default(),
        summarized: Mutex::new(Stopwatch::start()),
    };
    while !queue.is_empty() {
        work.round(std::mem::take(&mut queue))?;
        if !session.stop.load(Ordering::Relaxed) {
            let held = std::mem::take(&mut *locked(&work.held));
            queue = work.freed(held);
        }
    }
    work.finish(&selected)
}

/// Makes the folder and says in it what the study is.
fn begin(
    plan: &Plan,
    folder: &StudyFolder,
    plan_bytes: &[u8],
    growing: bool,
    note: &dyn Fn(&str),
) -> Result<(), StudyError> {
    let plan_path = folder.file("study.json");
    let is_study = store::exists(&plan_path) || store::exists(&folder.trials());
    if !is_study && store::exists(&folder.file("report.html")) {
        let path = folder.root().to_owned();
        return Err(StudyError::Taken { path });
    }
    store::create_folder(&folder.trials())?;
    let _lock = folder.lock()?;
    store::remove_temporaries(folder.root())?;
    store::remove_temporaries(&folder.file("figures"))?;
    match StudyRecord::read(folder.root()) {
        Ok(before) => {
            let known: BTreeSet<&String> = before.trials.iter().map(|trial| &trial.id).collect();
            let ids = plan.trials().iter().map(|spec| &spec.id);
            let kept = ids.filter(|id| known.contains(id)).count();
            if growing && kept == plan.trials().len() && kept < before.trials.len() {
                return Ok(());
            }
            if kept < before.trials.len() {
                note(&format!(
                    "{} held another plan, of {} trials; {kept} of them are among the {} of this \
                     one, and the results of the others stay in trials/",
                    plan_path.display(),
                    before.trials.len(),
                    plan.trials().len(),
                ));
            }
        }
        Err(StudyError::NoStudy { .. }) => {}
        Err(error) => {
            let problem = error.to_string();
            let problem = problem.lines().next().unwrap_or_default();
            note(&format!("{problem}; it is written again"));
        }
    }
    store::write_if_changed(&plan_path, plan_bytes)?;
    store::write_if_changed(&folder.file("config.toml"), plan.study().source.as_bytes())?;
    Ok(())
}

struct Work<'a> {
    plan: &'a Plan,
    folder: &'a StudyFolder,
    runner: &'a dyn TrialRunner,
    options: &'a Options,
    session: &'a Session<'a>,
    plan_bytes: Vec<u8>,
    /// When the failure was written that is to be tried again. A later one is another process's
    /// retry.
    failed_at: Vec<Option<SystemTime>>,
    jobs: usize,
    host: String,
    queue: Mutex<VecDeque<usize>>,
    held: Mutex<Vec<usize>>,
    running: AtomicUsize,
    ran: AtomicUsize,
    failure: Mutex<Option<StudyError>>,
    summarized: Mutex<Stopwatch>,
}

/// What one run of a trial came to.
enum Ran {
    Outcome(TrialOutcome),
    Interrupted,
    Damaged(BoxError),
}

impl Work<'_> {
    /// Runs the queue to its end, on as many threads as there are jobs.
    fn round(&mut self, queue: Vec<usize>) -> Result<(), StudyError> {
        let workers = self.jobs.min(queue.len());
        *locked(&self.queue) = queue.into();
        let this = &*self;
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let builder = std::thread::Builder::new().name(format!("{WORKER_THREAD} {worker}"));
                // The graph of a deep network is walked recursively.
                let builder = builder.stack_size(16 << 20);
                if let Err(error) = builder.spawn_scoped(scope, || this.take_trials()) {
                    this.fail(StudyError::Thread(error));
                    break;
                }
            }
        });
        locked(&self.failure).take().map_or(Ok(()), Err)
    }

    fn take_trials(&self) {
        while !self.session.stop.load(Ordering::Relaxed) {
            let next = {
                let mut queue = locked(&self.queue);
                let next = queue.pop_front();
                if next.is_some() {
                    self.running.fetch_add(1, Ordering::Relaxed);
                }
                next
            };
            let Some(index) = next else { return };
            if let Err(error) = self.take(index) {
                self.fail(error);
            }
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the study with the first error; the other trials write their checkpoints.
    fn fail(&self, error: StudyError) {
        locked(&self.failure).get_or_insert(error);
        self.session.stop.store(true, Ordering::Relaxed);
    }

    fn note(&self, text: &str) {
        self.session.observer.observe(&Event::Note(text));
    }

    /// Whether the trial is still to run, as its folder stands now.
    fn wanted(&self, index: usize, state: &TrialState) -> bool {
        let folder = self.folder.trial(&self.plan.trials()[index].id);
        let retried = matches!(state, TrialState::Done(_))
            && store::modified(&folder.join(RESULT)) != self.failed_at[index];
        self.options.wants(state) && !retried
    }

    /// Runs a trial, unless another process has it or has done it.
    fn take(&self, index: usize) -> Result<(), StudyError> {
        let spec = &self.plan.trials()[index];
        let left = || self.session.observer.observe(&Event::Left { spec });
        let Some(lock) = FileLock::try_exclusive(&self.folder.trial_lock(&spec.id))? else {
            locked(&self.held).push(index);
            left();
            return Ok(());
        };
        let files = self.runner.files(spec);
        let state = self.folder.state_by_content(&spec.id, &files);
        if !self.wanted(index, &state) {
            left();
            return Ok(());
        }
        if let TrialState::Unreadable(problem) = &state {
            return Err(StudyError::Environment {
                label: label(spec),
                error: problem.clone().into(),
            });
        }
        let folder = self.folder.trial(&spec.id);
        store::create_folder(&folder)?;
        store::remove_temporaries(&folder)?;
        match &state {
            TrialState::Pending | TrialState::Unreadable(_) => {}
            TrialState::Damaged(problem) => {
                self.note(&format!("{problem}; trial {} runs again", label(spec)));
                store::empty_folder(&folder, RESULT)?;
            }
            TrialState::Done(_) => store::empty_folder(&folder, RESULT)?,
        }

        let threads = self.threads(spec);
        let (watch, started) = (Stopwatch::start(), now_rfc3339());
        self.session
            .observer
            .observe(&Event::Started { spec, threads });
        let mut ran = self.attempt(spec, &folder, threads, &started)?;
        if let Ran::Damaged(error) = ran {
            self.note(&format!(
                "{}; trial {} starts over",
                chain(error.as_ref()),
                label(spec)
            ));
            store::empty_folder(&folder, RESULT)?;
            ran = self.attempt(spec, &folder, threads, &started)?;
        }
        let outcome = match ran {
            Ran::Outcome(outcome) => Some(outcome),
            Ran::Damaged(error) => Some(TrialOutcome::failed(chain(error.as_ref()))),
            Ran::Interrupted => None,
        };
        let seconds = watch.seconds();
        let mut result = None;
        if let Some(outcome) = outcome {
            // A trial that failed may have done so before it had any.
            let whole = outcome.status != Status::Failed;
            let files = self
                .folder
                .files(&spec.id, if whole { &files } else { &[] })?;
            let trial = spec.id.clone();
            result = Some(TrialResult {
                trial,
                outcome,
                files,
            });
        }
        if let Some(result) = &result {
            let path = folder.join(RESULT);
            store::write_atomic(&path, &json(result, &path)?)?;
        }
        drop(lock);
        let (trial, host) = (spec.id.clone(), self.host.clone());
        self.record(&Timing {
            trial,
            started,
            seconds,
            threads,
            host,
        })?;
        match &result {
            Some(result) => {
                self.ran.fetch_add(1, Ordering::Relaxed);
                let outcome = &result.outcome;
                self.session.observer.observe(&Event::Finished {
                    spec,
                    outcome,
                    seconds,
                });
            }
            None => left(),
        }
        Ok(())
    }

    /// Threads for a trial that starts now: `--threads`, else `train.threads`, else the cores
    /// shared among the trials that run side by side from now on.
    fn threads(&self, spec: &TrialSpec) -> usize {
        let set = Some(spec.config.train.threads).filter(|&threads| threads > 0);
        self.options.threads.or(set).unwrap_or_else(|| {
            let active = self.running.load(Ordering::Relaxed) + locked(&self.queue).len();
            (self.options.cores() / self.jobs.min(active).max(1)).max(1)
        })
    }

    fn attempt(
        &self,
        spec: &TrialSpec,
        folder: &Path,
        threads: usize,
        started: &str,
    ) -> Result<Ran, StudyError> {
        store::write_if_changed(
            &folder.join("config.toml"),
            spec.config.to_toml().as_bytes(),
        )?;
        let path = folder.join("manifest.json");
        store::write_atomic(&path, &json(&self.manifest(spec, threads, started), &path)?)?;
        let observer = self.session.observer;
        let progress = |progress| observer.observe(&Event::Progress { spec, progress });
        let control = TrialControl {
            threads,
            stop: self.session.stop,
            progress: &progress,
        };
        let run = || self.runner.run(spec, folder, &control);
        Ok(match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(outcome)) => Ran::Outcome(outcome),
            Ok(Err(TrialError::Interrupted)) => Ran::Interrupted,
            Ok(Err(TrialError::Damaged(error))) => Ran::Damaged(error),
            Ok(Err(TrialError::Failed(error))) if !is_of_the_machine(error.as_ref()) => {
                Ran::Outcome(TrialOutcome::failed(chain(error.as_ref())))
            }
            Ok(Err(TrialError::Failed(error) | TrialError::Environment(error))) => {
                return Err(StudyError::Environment {
                    label: label(spec),
                    error,
                });
            }
            Err(panic) => Ran::Outcome(TrialOutcome::failed(panic_message(panic.as_ref()))),
        })
    }

    fn manifest(&self, spec: &TrialSpec, threads: usize, started: &str) -> Map<String, Value> {
        let point: Map<String, Value> = spec.point.iter().cloned().collect();
        let fields = json!({
            "batchlab": env!("CARGO_PKG_VERSION"),
            "trial": spec.id,
            "point": point,
            "seed": spec.seed,
            "command": self.options.command,
            "host": self.host,
            "process": std::process::id(),
            "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            "cores": cores(),
            "threads": threads,
            "started": started,
        });
        let Value::Object(mut manifest) = fields else {
            return Map::new();
        };
        manifest.extend(self.runner.manifest(spec));
        manifest
    }

    /// Writes the time a trial took and, now and then, the summary so far: a crash then loses
    /// little, and who looks meanwhile sees something.
    fn record(&self, timing: &Timing) -> Result<(), StudyError> {
        let _lock = self.folder.lock()?;
        if let Some(problem) = append_timing(self.folder, timing)? {
            self.note(&format!("{problem}; the table of times is begun anew"));
        }
        let mut summarized = locked(&self.summarized);
        if summarized.seconds() > 5.0 && self.is_our_plan() {
            self.write_summary(&self.states())?;
            *summarized = Stopwatch::start();
        }
        Ok(())
    }

    fn states(&self) -> Vec<TrialState> {
        let state = |spec: &TrialSpec| self.folder.state(&spec.id, &self.runner.files(spec));
        self.plan.trials().iter().map(state).collect()
    }

    /// Whether `study.json` is still this process's. Another may have been given a new plan.
    fn is_our_plan(&self) -> bool {
        store::read(&self.folder.file("study.json")).is_ok_and(|found| found == self.plan_bytes)
    }

    fn write_summary(&self, states: &[TrialState]) -> Result<(), StudyError> {
        let table = summary(self.plan, states, self.folder)?;
        store::write_if_changed(&self.folder.file("summary.csv"), &table.to_csv())?;
        Ok(())
    }

    /// Of trials that another process held, those that it let go without a result.
    fn freed(&self, held: Vec<usize>) -> Vec<usize> {
        if held.is_empty() {
            return held;
        }
        // Who only looked whether a lock is held (`batchlab status`) is gone by then.
        std::thread::sleep(Duration::from_millis(20));
        let freed = |&index: &usize| {
            let spec = &self.plan.trials()[index];
            let state = || self.folder.state(&spec.id, &self.runner.files(spec));
            !self.folder.is_running(&spec.id) && self.wanted(index, &state())
        };
        held.into_iter().filter(freed).collect()
    }

    /// Writes the summary, and the report if every trial of the plan has a result.
    fn finish(&self, selected: &[usize]) -> Result<Execution, StudyError> {
        let _lock = self.folder.lock()?;
        let states = self.states();
        let (mut plan, mut selection) = (Counts::default(), Counts::default());
        for (index, (spec, state)) in self.plan.trials().iter().zip(&states).enumerate() {
            let undone = !matches!(state, TrialState::Done(_));
            let running = undone && self.folder.is_running(&spec.id);
            plan.add(state, running);
            if selected.binary_search(&index).is_ok() {
                selection.add(state, running);
            }
        }
        let mut report = None;
        if self.is_our_plan() {
            self.write_summary(&states)?;
            if plan.done() == states.len() {
                report = Some(self.report()?);
            }
        } else if !self.options.growing {
            self.note(
                "another process has given the study a new plan meanwhile: run that one again for \
                 its summary and report",
            );
        }
        self.folder.remove_stale_locks()?;
        let stopped = self.session.stop.load(Ordering::Relaxed);
        Ok(Execution {
            ran: self.ran.load(Ordering::Relaxed),
            interrupted: stopped && selection.done() < selected.len(),
            selection,
            plan,
            report,
        })
    }

    fn report(&self) -> Result<Vec<String>, StudyError> {
        let make = || (self.session.report)(self.folder.root());
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(made) => made.map_err(StudyError::Report),
            Err(panic) => Err(StudyError::Report(panic_message(panic.as_ref()).into())),
        }
    }
}

/// The value in a mutex. A thread that died holding it left it whole: nothing that is done under
/// one of these locks can stop half-way.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no message"))
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The machine's name, for manifests and timings.
pub fn host_name() -> String {
    let known = store::read_to_string(Path::new("/proc/sys/kernel/hostname")).ok();
    let asked = || {
        let output = std::process::Command::new("uname")
            .arg("-n")
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let name = known.or_else(asked).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name.to_owned()
    }
}
