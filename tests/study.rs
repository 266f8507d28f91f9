//! The study room: what runs, what is kept, and what a crash cannot break. Trials are a made-up
//! recurrence here, so that only the room itself is tested.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use batchlab::config::{self, Split, StudyConfig, TrialSpec};
use batchlab::rng::Stream;
use batchlab::store::{self, FileLock, Table};
use batchlab::study::{
    self, Basis, BoxError, Event, Execution, Observer, Options, Plan, Selection, Session,
    StudyError, StudyFolder, TrialControl, TrialError, TrialProgress, TrialRunner, TrialState,
};
use batchlab::train::{Evaluation, Status, TrialOutcome};
use serde::{Deserialize, Serialize};

const BATCHES: &str = "[16, 32, 64]";

fn study_of(batches: &str) -> StudyConfig {
    let text = format!(
        r#"
        name = "study"
        seeds = 2
        model = "softmax-regression"
        [data]
        source = "gaussian-mixture"
        [train]
        steps = 12
        [learning_rate]
        base_lr = 0.1
        base_batch = 16
        scaling = "linear"
        [sweep]
        "train.global_batch" = {batches}
        "#
    );
    config::parse(&text, "study.toml", &[]).expect("a sound study")
}

/// "Trains" by iterating x <- x - lr (x - seed) / 2, with a pause at each update.
struct Fake {
    pause: Duration,
    /// What happens at an update, besides.
    at: Box<At>,
    ran: Mutex<Vec<String>>,
}

type At = dyn Fn(&TrialSpec, u64) -> Happens + Sync;

#[derive(Clone, Copy, PartialEq)]
enum Happens {
    Nothing,
    Failure,
    Panic,
    Divergence,
    FullDisk,
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    step: u64,
    x: f64,
    rows: Vec<(u64, f64)>,
}

impl Fake {
    fn new() -> Self {
        Self::at(|_, _| Happens::Nothing)
    }

    fn at(at: impl Fn(&TrialSpec, u64) -> Happens + Sync + 'static) -> Self {
        Self {
            pause: Duration::ZERO,
            at: Box::new(at),
            ran: Mutex::default(),
        }
    }

    fn slow(milliseconds: u64) -> Self {
        Self {
            pause: Duration::from_millis(milliseconds),
            ..Self::new()
        }
    }

    /// The trials that ran since the last call, sorted.
    fn ran(&self) -> Vec<String> {
        let mut ran = std::mem::take(&mut *self.ran.lock().expect("whole"));
        ran.sort();
        ran
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the model is too sad")]
struct Sad;

impl TrialRunner for Fake {
    fn updates(&self, _: &StudyConfig, spec: &TrialSpec) -> Result<u64, BoxError> {
        Ok(spec.config.train.steps.unwrap_or(0))
    }

    fn run(
        &self,
        spec: &TrialSpec,
        folder: &Path,
        control: &TrialControl<'_>,
    ) -> Result<TrialOutcome, TrialError> {
        assert!(store::exists(&folder.join("config.toml")));
        assert!(store::exists(&folder.join("manifest.json")));
        self.ran.lock().expect("whole").push(study::label(spec));
        let path = folder.join("checkpoint.json");
        let mut state = Checkpoint {
            step: 0,
            x: 10.0,
            rows: Vec::new(),
        };
        if store::exists(&path) {
            state = serde_json::from_slice(&store::read(&path)?)
                .map_err(|error| TrialError::Damaged(error.into()))?;
        }
        let total_steps = spec.config.train.steps.unwrap_or(0);
        let lr = spec.config.scaled_rate();
        let mut status = Status::Completed;
        while state.step < total_steps {
            if control.stopped() {
                store::write_atomic(&path, &serde_json::to_vec(&state)?)?;
                return Err(TrialError::Interrupted);
            }
            std::thread::sleep(self.pause);
            state.step += 1;
            match (self.at)(spec, state.step) {
                Happens::Nothing => {}
                Happens::Failure => return Err(Sad.into()),
                Happens::Panic => panic!("no update {}", state.step),
                Happens::FullDisk => {
                    return Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
                }
                Happens::Divergence => {
                    state.x = f64::NAN;
                    status = Status::Diverged;
                    break;
                }
            }
            state.x -= lr * (state.x - spec.seed as f64) / 2.0;
            state.rows.push((state.step, state.x));
            if state.step.is_multiple_of(3) {
                store::write_atomic(&path, &serde_json::to_vec(&state)?)?;
            }
            let loss = state.x;
            (control.progress)(TrialProgress {
                step: state.step,
                total_steps,
                loss,
            });
        }
        let mut steps = Table::new(folder.join("steps.csv"), ["step", "loss"])?;
        for (step, loss) in &state.rows {
            steps.push(&[step, loss])?;
        }
        steps.write()?;
        let mut evaluations = Table::new(folder.join("evaluations.csv"), ["step", "loss"])?;
        evaluations.push(&[&state.step, &state.x])?;
        evaluations.write()?;
        let of = |loss| Evaluation {
            loss,
            accuracy: Some(0.5),
            n: 10,
        };
        Ok(TrialOutcome {
            status,
            message: (status == Status::Diverged).then(|| "loss NaN".to_owned()),
            steps: state.step,
            examples: state.step * spec.config.global_batch() as u64,
            epochs: 0.25,
            evaluation: [
                (Split::Train, of(state.x)),
                (Split::Test, of(2.0 * state.x)),
            ]
            .into(),
            target: None,
            statistics_exchange: None,
            staleness: None,
        })
    }

    fn estimate_seconds(&self, spec: &TrialSpec) -> Option<f64> {
        Some(spec.config.global_batch() as f64)
    }
}

#[derive(Default)]
struct Recorder {
    notes: Mutex<Vec<String>>,
    queue: Mutex<Vec<usize>>,
    updates: AtomicUsize,
    stop_after: Option<usize>,
    stop: AtomicBool,
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Note(text) => self.notes.lock().expect("whole").push((*text).to_owned()),
            Event::Begun { queue, .. } => self.queue.lock().expect("whole").extend(*queue),
            Event::Progress { .. } => {
                let updates = self.updates.fetch_add(1, Ordering::Relaxed) + 1;
                if self.stop_after.is_some_and(|limit| updates >= limit) {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }
}

/// A report that, like the real one, is made from the tables alone.
fn report(folder: &Path) -> Result<Vec<String>, BoxError> {
    let table = Table::read(&folder.join("summary.csv"))?;
    store::write_atomic(
        &folder.join("report.html"),
        table.len().to_string().as_bytes(),
    )?;
    Ok(vec![format!("{} rows", table.len())])
}

fn run_with(
    results: &Path,
    batches: &str,
    fake: &Fake,
    options: &Options,
    recorder: &Recorder,
) -> Result<Execution, StudyError> {
    let plan = Plan::new(study_of(batches), fake)?;
    let folder = StudyFolder::new(results, "study")?;
    let session = Session {
        observer: recorder,
        stop: &recorder.stop,
        report: &report,
    };
    study::execute(&plan, &folder, fake, options, &session)
}

fn run(results: &Path, batches: &str, fake: &Fake) -> Execution {
    let recorder = Recorder::default();
    run_with(results, batches, fake, &Options::default(), &recorder).expect("it runs")
}

fn labels(batches: &[usize]) -> Vec<String> {
    let of = |&batch: &usize| (0..2).map(move |seed| format!("global_batch={batch} seed={seed}"));
    batches.iter().flat_map(of).collect()
}

/// All files below the folder but those that hold times.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in store::entries(&next).expect("listed") {
            let timed = path.ends_with("manifest.json") || path.ends_with("timings.csv");
            if path.is_dir() {
                folders.push(path);
            } else if !timed {
                let name = path.strip_prefix(folder).expect("below").to_owned();
                files.insert(name, store::read(&path).expect("read"));
            }
        }
    }
    files
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_study_leaves_whole_folders_and_no_lock_or_temporary_file() {
    let results = temporary();
    let execution = run(results.path(), "[16]", &Fake::new());
    assert_eq!(execution.ran, 2);
    assert_eq!((execution.plan.completed, execution.plan.done()), (2, 2));
    assert_eq!(execution.report, Some(vec!["2 rows".to_owned()]));
    let root = results.path().join("study");
    let ids: Vec<String> = study_of("[16]")
        .trials
        .into_iter()
        .map(|trial| trial.id)
        .collect();
    let mut expected: BTreeSet<PathBuf> =
        ["config.toml", "study.json", "summary.csv", "report.html"]
            .map(PathBuf::from)
            .into();
    for id in ids {
        for file in [
            "config.toml",
            "checkpoint.json",
            "steps.csv",
            "evaluations.csv",
            "result.json",
        ] {
            expected.insert(Path::new("trials").join(&id).join(file));
        }
    }
    assert_eq!(
        contents(&root).into_keys().collect::<BTreeSet<_>>(),
        expected
    );
    let timings = Table::read(&root.join("timings.csv")).expect("a table");
    assert_eq!(
        timings.columns(),
        ["trial", "started", "seconds", "threads", "host"]
    );
    assert_eq!(timings.len(), 2);
}

#[test]
fn the_summary_has_the_promised_columns_and_leaves_what_is_missing_empty() {
    let results = temporary();
    run(results.path(), "[32]", &Fake::new());
    let text = store::read_to_string(&results.path().join("study/summary.csv")).expect("read");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "trial,status,train.global_batch,seed,workers,local_batch,global_batch,scaling,warmup,lr,\
         lr_explained,steps,examples,epochs,train_loss,train_accuracy,validation_loss,\
         validation_accuracy,test_loss,test_accuracy,generalization_gap,loss_gap,target_reached,\
         steps_to_target,examples_to_target,message"
    );
    // x_12 = 10 (1 - 0.2/2)^12 from seed 0.
    let x: f64 = (0..12).fold(10.0, |x, _| x - 0.2 * x / 2.0);
    let id = &study_of("[32]").trials[0].id;
    let expected = format!(
        "{id},completed,32,0,1,32,32,linear,none,0.2,0.2 = 0.1 x 32/16 (linear),12,384,0.25,\
         {x},0.5,,,{},0.5,0,{x},,,,",
        2.0 * x
    );
    assert_eq!(lines[1], expected);
}

#[test]
fn results_are_the_same_bytes_for_any_number_of_jobs_and_shards() {
    let (one, four, shards) = (temporary(), temporary(), temporary());
    let recorder = Recorder::default();
    let of = |results: &Path, jobs, selection| {
        let options = Options {
            jobs: Some(jobs),
            selection,
            ..Options::default()
        };
        run_with(results, BATCHES, &Fake::new(), &options, &recorder).expect("it runs")
    };
    of(one.path(), 1, Selection::All);
    of(four.path(), 4, Selection::All);
    let first = of(shards.path(), 1, Selection::Shard { number: 2, of: 2 });
    assert_eq!(
        (first.selection.done(), first.plan.done(), first.report),
        (3, 3, None)
    );
    let second = of(shards.path(), 1, Selection::Index(4));
    assert_eq!(
        (second.ran, second.plan.done(), second.report),
        (1, 4, None)
    );
    let last = of(shards.path(), 1, Selection::Shard { number: 1, of: 2 });
    assert_eq!(
        (last.ran, last.plan.done(), last.report.is_some()),
        (2, 6, true)
    );
    assert_eq!(contents(four.path()), contents(one.path()));
    assert_eq!(contents(shards.path()), contents(one.path()));
}

#[test]
fn an_index_beyond_the_plan_is_refused() {
    let results = temporary();
    let options = Options {
        selection: Selection::Index(6),
        ..Options::default()
    };
    let error = run_with(
        results.path(),
        BATCHES,
        &Fake::new(),
        &options,
        &Recorder::default(),
    )
    .expect_err("there is none");
    assert_eq!(
        error.to_string(),
        "no trial with index 6: the plan has 6, with indices 0 to 5"
    );
    assert!(
        contents(results.path()).is_empty(),
        "nothing is written before that"
    );
}

#[test]
fn a_study_run_again_does_what_is_missing_and_no_more() {
    let results = temporary();
    let fake = Fake::new();
    run(results.path(), "[16, 32]", &fake);
    assert_eq!(fake.ran(), labels(&[16, 32]));
    let before = contents(results.path());

    assert_eq!(run(results.path(), "[16, 32]", &fake).ran, 0);
    assert!(fake.ran().is_empty());

    let id = &study_of("[16, 32]").trials[3].id;
    fs::remove_dir_all(results.path().join("study/trials").join(id)).expect("removed");
    run(results.path(), "[16, 32]", &fake);
    assert_eq!(fake.ran(), ["global_batch=32 seed=1"]);
    assert_eq!(contents(results.path()), before);

    run(results.path(), "[16, 32, 64]", &fake);
    assert_eq!(fake.ran(), labels(&[64]));
    run(results.path(), "[16, 32]", &fake);
    let again = contents(&results.path().join("study"));
    let summary = Path::new("summary.csv");
    assert_eq!(again[summary], before[&Path::new("study").join(summary)]);
}

#[test]
fn another_plan_of_the_same_name_is_said() {
    let results = temporary();
    run(results.path(), "[16, 32]", &Fake::new());
    let recorder = Recorder::default();
    let options = Options::default();
    run_with(
        results.path(),
        "[32, 64]",
        &Fake::new(),
        &options,
        &recorder,
    )
    .expect("it runs");
    let notes = recorder.notes.into_inner().expect("whole");
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("held another plan, of 4 trials; 2 of them are"),
        "{}",
        notes[0]
    );
}

#[test]
fn a_trial_of_an_older_version_is_done_without_the_files_that_came_later() {
    let results = temporary();
    run(results.path(), "[16]", &Fake::new());
    let folder = StudyFolder::at(&results.path().join("study"));
    let id = &study_of("[16]").trials[0].id;
    let state = |files: &[&str]| folder.state(id, files);
    assert!(matches!(
        state(&["steps.csv", "later.csv"]),
        TrialState::Done(_)
    ));
    let own = results
        .path()
        .join("study/trials")
        .join(id)
        .join("steps.csv");
    fs::remove_file(own).expect("removed");
    assert!(matches!(
        state(&["steps.csv", "later.csv"]),
        TrialState::Damaged(_)
    ));
}

#[test]
fn damaged_results_are_said_and_run_again() {
    let results = temporary();
    let fake = Fake::new();
    run(results.path(), BATCHES, &fake);
    let before = contents(results.path());
    let trials = study_of(BATCHES).trials;
    let of = |index: usize, file: &str| {
        results
            .path()
            .join("study/trials")
            .join(&trials[index].id)
            .join(file)
    };
    // Cut off, of another trial, not there, a folder, and files missing beside it.
    let whole = store::read(&of(0, "result.json")).expect("read");
    store::write_atomic(&of(0, "result.json"), &whole[..whole.len() / 2]).expect("written");
    store::write_atomic(&of(1, "result.json"), &whole).expect("written");
    fs::remove_file(of(2, "result.json")).expect("removed");
    fs::remove_file(of(3, "result.json")).expect("removed");
    fs::create_dir(of(3, "result.json")).expect("made");
    fs::remove_file(of(4, "steps.csv")).expect("removed");
    // And a checkpoint that cannot be continued from.
    fs::remove_file(of(5, "result.json")).expect("removed");
    store::write_atomic(&of(5, "checkpoint.json"), b"{").expect("written");
    fake.ran();
    let recorder = Recorder::default();
    let options = Options::default();
    let execution = run_with(results.path(), BATCHES, &fake, &options, &recorder).expect("it runs");
    assert_eq!((execution.ran, execution.plan.completed), (6, 6));
    assert_eq!(contents(results.path()), before);
    let mut notes = recorder.notes.into_inner().expect("whole");
    notes.sort();
    assert_eq!(notes.len(), 5, "{notes:#?}");
    for words in [
        "not a result",
        "another trial",
        "no steps.csv",
        "starts over",
        "cannot read",
    ] {
        assert!(
            notes.iter().any(|note| note.contains(words)),
            "{words} in {notes:#?}"
        );
    }
}

#[test]
fn failures_panics_and_divergence_are_results_and_do_not_stop_the_others() {
    let results = temporary();
    let fake = Fake::at(|spec, step| match (spec.index, step) {
        (0, 5) => Happens::Failure,
        (1, 6) => Happens::Panic,
        (2, 7) => Happens::Divergence,
        _ => Happens::Nothing,
    });
    let execution = run(results.path(), BATCHES, &fake);
    let counts = execution.plan;
    assert_eq!(
        (counts.completed, counts.diverged, counts.failed),
        (3, 1, 2)
    );
    assert!(execution.report.is_some());
    let summary = Table::read(&results.path().join("study/summary.csv")).expect("a table");
    let messages = summary.texts("message").expect("a column");
    assert_eq!(
        messages[..3],
        [
            Some("the model is too sad"),
            Some("panicked: no update 6"),
            Some("loss NaN")
        ]
    );
    let losses = summary.numbers("train_loss").expect("numbers");
    assert_eq!(losses[0], None);
    assert!(losses[2].is_some_and(f64::is_nan));

    // Run again, they stay; on request the failed ones run, and once each.
    let well = Fake::new();
    assert_eq!(run(results.path(), BATCHES, &well).ran, 0);
    let options = Options {
        retry_failed: true,
        ..Options::default()
    };
    let execution = run_with(
        results.path(),
        BATCHES,
        &well,
        &options,
        &Recorder::default(),
    )
    .expect("it runs");
    assert_eq!(well.ran(), labels(&[16]));
    assert_eq!((execution.plan.failed, execution.plan.completed), (0, 5));
}

#[test]
fn a_retry_that_fails_again_is_not_tried_for_ever() {
    let results = temporary();
    let fake = Fake::at(|_, _| Happens::Failure);
    run(results.path(), "[16]", &fake);
    fake.ran();
    let options = Options {
        retry_failed: true,
        ..Options::default()
    };
    let execution = run_with(
        results.path(),
        "[16]",
        &fake,
        &options,
        &Recorder::default(),
    )
    .expect("it runs");
    assert_eq!((execution.ran, execution.plan.failed), (2, 2));
    assert_eq!(fake.ran(), labels(&[16]));
}

#[test]
fn a_full_disk_stops_the_study_and_calls_no_trial_failed() {
    let results = temporary();
    let fake = Fake::at(|spec, step| match (spec.index, step) {
        (2, 5) => Happens::FullDisk,
        _ => Happens::Nothing,
    });
    let options = Options {
        jobs: Some(1),
        ..Options::default()
    };
    let error = run_with(
        results.path(),
        BATCHES,
        &fake,
        &options,
        &Recorder::default(),
    )
    .expect_err("the disk is full");
    let text = error.to_string();
    assert!(
        text.starts_with("the study stops at trial global_batch=32 seed=0: "),
        "{text}"
    );
    let trials = &study_of(BATCHES).trials;
    let folder = StudyFolder::at(&results.path().join("study"));
    assert_eq!(folder.state(&trials[2].id, &[]), TrialState::Pending);
    // With room again, the study ends as if nothing had been.
    let undisturbed = temporary();
    run(undisturbed.path(), BATCHES, &Fake::new());
    run(results.path(), BATCHES, &Fake::new());
    assert_eq!(contents(results.path()), contents(undisturbed.path()));
}

#[test]
fn a_file_in_the_way_of_the_folder_is_named_before_any_trial() {
    let results = temporary();
    store::write_atomic(&results.path().join("study"), b"").expect("written");
    let fake = Fake::new();
    let error = run_with(
        results.path(),
        BATCHES,
        &fake,
        &Options::default(),
        &Recorder::default(),
    )
    .expect_err("a file is in the way");
    let text = error.to_string();
    assert!(
        text.contains("study/trials") && text.contains("\nhint: a file stands"),
        "{text}"
    );
    assert!(fake.ran().is_empty());
}

#[test]
fn a_study_asked_to_stop_goes_on_from_its_checkpoints() {
    let (results, undisturbed) = (temporary(), temporary());
    run(undisturbed.path(), BATCHES, &Fake::new());
    for limit in [1, 7, 20] {
        let recorder = Recorder {
            stop_after: Some(limit),
            ..Recorder::default()
        };
        let options = Options::default();
        let execution =
            run_with(results.path(), BATCHES, &Fake::slow(1), &options, &recorder).expect("stops");
        assert!(execution.interrupted);
        assert_eq!(execution.report, None);
    }
    let execution = run(results.path(), BATCHES, &Fake::new());
    assert!(!execution.interrupted);
    assert_eq!(contents(results.path()), contents(undisturbed.path()));
}

#[test]
fn a_trial_that_another_process_runs_is_left_to_it() {
    let results = temporary();
    let trials = study_of("[16]").trials;
    let folder = StudyFolder::new(results.path(), "study").expect("a name");
    store::create_folder(&folder.root().join("trials")).expect("made");
    let path = folder
        .root()
        .join("trials")
        .join(format!("{}.lock", trials[0].id));
    let held = FileLock::try_exclusive(&path)
        .expect("no error")
        .expect("free");
    let fake = Fake::new();
    let execution = run(results.path(), "[16]", &fake);
    assert_eq!(fake.ran(), ["global_batch=16 seed=1"]);
    assert_eq!(
        (
            execution.plan.running,
            execution.plan.completed,
            execution.ran
        ),
        (1, 1, 1)
    );
    assert_eq!(execution.report, None, "the last to finish writes it");
    let status = study::status(folder.root()).expect("a study");
    assert_eq!(status.trials[0].running.as_deref(), Some("starting"));
    assert!(matches!(status.trials[1].state, TrialState::Done(_)));
    drop(held);
    let execution = run(results.path(), "[16]", &fake);
    assert!(execution.report.is_some());
}

#[test]
fn the_trials_with_most_work_start_first() {
    let results = temporary();
    let recorder = Recorder::default();
    run_with(
        results.path(),
        BATCHES,
        &Fake::new(),
        &Options::default(),
        &recorder,
    )
    .expect("runs");
    assert_eq!(*recorder.queue.lock().expect("whole"), [4, 5, 2, 3, 0, 1]);
}

#[test]
fn time_is_estimated_from_finished_trials_and_else_measured() {
    let results = temporary();
    let fake = Fake::slow(2);
    let folder = StudyFolder::new(results.path(), "study").expect("a name");
    let plan = Plan::new(study_of("[16, 32]"), &fake).expect("a plan");
    let all: Vec<usize> = (0..4).collect();
    let measured = study::estimate(&plan, &folder, &fake, &all, 2).expect("an estimate");
    assert_eq!(measured.basis, Basis::Calibration);
    assert_eq!(
        (measured.trials, measured.seconds),
        (vec![16.0, 16.0, 32.0, 32.0], 48.0)
    );

    run(results.path(), "[16]", &fake);
    let timed = study::estimate(&plan, &folder, &fake, &all, 1).expect("an estimate");
    assert_eq!(timed.basis, Basis::Timings(2));
    // At least 12 updates of 2 ms; a batch of 32 costs (32 + 16) / (16 + 16) as much as one of 16.
    assert!(timed.trials[0] >= 0.024, "{timed:?}");
    assert!(
        (timed.trials[2] / timed.trials[0] - 1.5).abs() < 1e-9,
        "{timed:?}"
    );
}

#[test]
fn a_folder_that_is_no_study_is_refused_with_those_that_are() {
    let results = temporary();
    run(results.path(), "[16]", &Fake::new());
    let text = study::status(results.path())
        .expect_err("not a study")
        .to_string();
    assert!(
        text.contains("it has no study.json\nhint: studies in it: "),
        "{text}"
    );
    let path = results.path().join("study/study.json");
    store::write_atomic(&path, b"{}").expect("written");
    let text = study::status(&results.path().join("study"))
        .expect_err("damaged")
        .to_string();
    assert!(
        text.contains("study.json: not a plan: missing field"),
        "{text}"
    );
    // Running it again mends it.
    run(results.path(), "[16]", &Fake::new());
    assert_eq!(
        study::status(&results.path().join("study"))
            .expect("a study")
            .trials
            .len(),
        2
    );
}

/// What the tests below start, and kill, as processes of their own.
#[test]
#[ignore = "not a test: the child process of others"]
fn child() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a child is told its folder by its parent"
    )]
    let results = std::env::var_os("BATCHLAB_TEST_RESULTS").expect("set by the parent");
    run(Path::new(&results), BATCHES, &Fake::slow(3));
}

fn start_child(results: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "child", "--ignored"])
        .env("BATCHLAB_TEST_RESULTS", results)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started")
}

#[test]
fn a_killed_study_ends_byte_equal_to_an_undisturbed_one() {
    let undisturbed = temporary();
    run(undisturbed.path(), BATCHES, &Fake::new());
    let expected = contents(undisturbed.path());
    let mut moments = Stream::new(0, "kill-test", 0);
    let mut kills = 0;
    while kills < 30 {
        let results = temporary();
        loop {
            // On some rounds two processes share the work, and one or both are killed.
            let mut victim = start_child(results.path());
            let other = (moments.below(3) == 0).then(|| start_child(results.path()));
            std::thread::sleep(Duration::from_millis(5 + moments.below(150)));
            let done = victim.try_wait().expect("asked").is_some();
            victim.kill().expect("SIGKILL");
            victim.wait().expect("ended");
            if let Some(mut other) = other {
                if moments.below(2) == 0 {
                    other.kill().expect("SIGKILL");
                }
                other.wait().expect("ended");
            }
            if done {
                break;
            }
            kills += 1;
        }
        run(results.path(), BATCHES, &Fake::new());
        assert_eq!(contents(results.path()), expected);
    }
}

#[test]
fn two_processes_share_the_trials_and_one_writes_the_report() {
    let (results, undisturbed) = (temporary(), temporary());
    run(undisturbed.path(), BATCHES, &Fake::new());
    let mut children = [start_child(results.path()), start_child(results.path())];
    for child in &mut children {
        assert!(child.wait().expect("ended").success());
    }
    assert_eq!(contents(results.path()), contents(undisturbed.path()));
    let root = results.path().join("study");
    let timings = Table::read(&root.join("timings.csv")).expect("a table");
    let trials: BTreeSet<_> = timings
        .texts("trial")
        .expect("a column")
        .into_iter()
        .collect();
    assert_eq!((timings.len(), trials.len()), (6, 6), "each trial ran once");
}
