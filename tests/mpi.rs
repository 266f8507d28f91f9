//! Under a real `mpirun`, on 2, 3 and 4 ranks: messages, sums, collectives, split layers; trials that
//! ranks share; what happens when ranks fail. Built with the feature `mpi` only.
//!
//! The tests named `inner` are what each rank runs; the others start them.

#![cfg(feature = "mpi")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use batchlab::collective::{
    Algorithm, Blocks, ConvolutionShape, DenseAlgorithms, DenseShape, DenseSplit, Element, Held,
    Mpi, Operation, OrderedTree, PointToPoint, Ranks, Root, SplitConvolution, SplitDense,
    all_gather_bytes, broadcast_bytes, complete, complete_native, execute, leaves_of_rank,
    run_on_threads, schedule,
};
use batchlab::rng::Stream;

/// `mpirun -n ranks`, with more ranks than cores allowed. A hang ends after five minutes.
fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env_remove("BATCHLAB_DATA")
        .args(["--oversubscribe", "--timeout", "300"])
        .args(["-n", &ranks.to_string()]);
    command
}

/// One test of this file on so many ranks.
fn on_ranks(ranks: usize, test: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    mpirun(ranks)
        .arg(program)
        .args([
            "--ignored",
            "--exact",
            test,
            "--nocapture",
            "--test-threads=1",
        ])
        .output()
        .expect("mpirun is installed")
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn values(leaf: usize, length: usize) -> Vec<f64> {
    let mut stream = Stream::new(0, "mpi-test", leaf as u64);
    let scale = 10_f64.powf((leaf % 7) as f64 - 3.0);
    (0..length).map(|_| stream.normal() * scale).collect()
}

fn total<F: Element>(root: Root<F>) -> Vec<F> {
    let mut sum = root.left;
    for (l, r) in sum.iter_mut().zip(root.right.unwrap_or_default()) {
        *l += r;
    }
    sum
}

fn deposit<F: Element>(
    tree: &mut OrderedTree<F>,
    leaves: usize,
    own: std::ops::Range<usize>,
    from: fn(f64) -> F,
) -> Option<Root<F>> {
    tree.start(leaves);
    let mut root = None;
    for leaf in own {
        let mut buffer = tree.take_buffer();
        for (slot, value) in buffer.iter_mut().zip(values(leaf, tree.length())) {
            *slot = from(value);
        }
        root = tree.deposit(leaf, buffer);
    }
    root
}

fn sums<F: Element>(ranks: &dyn Ranks, from: fn(f64) -> F) {
    let (rank, size) = (ranks.rank(), ranks.size());
    for length in [0, 1, 17, 70_000] {
        let mut whole = OrderedTree::new(length);
        let mut tree = OrderedTree::new(length);
        let counts: Vec<usize> = if length < 100 {
            (1..=17).collect()
        } else {
            vec![1, 5, 8]
        };
        for leaves in counts {
            let expected = total(deposit(&mut whole, leaves, 0..leaves, from).unwrap());
            let own = leaves_of_rank(leaves, size, rank);
            let root = deposit(&mut tree, leaves, own.clone(), from);
            let found = total(complete(&tree, ranks, root).unwrap());
            let bits = |values: &[F]| bytemuck::cast_slice::<F, u8>(values).to_vec();
            assert!(
                bits(&found) == bits(&expected),
                "{leaves} leaves of {length}"
            );
            let root = deposit(&mut tree, leaves, own, from);
            let native = bits(&total(complete_native(&tree, ranks, root).unwrap()));
            for other in all_gather_bytes(ranks, &native).unwrap() {
                assert!(other == native, "native sums differ between ranks");
            }
        }
    }
}

fn start() -> Mpi {
    Mpi::start(60.0, |_| ())
        .unwrap()
        .expect("one test a process")
}

#[test]
#[ignore = "started by mpirun"]
fn inner_messages_and_sums() {
    let mpi = start();
    let (rank, size) = (mpi.rank(), mpi.size());
    for length in [0, 1, 100_000] {
        let sent: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let got = broadcast_bytes(&mpi, (rank == 0).then_some(&sent[..])).unwrap();
        assert_eq!(got, sent);
    }
    let content = |r: usize| vec![r as u8; (r * 70_001) % 150_000];
    let got = all_gather_bytes(&mpi, &content(rank)).unwrap();
    assert_eq!(got, (0..size).map(content).collect::<Vec<_>>());
    sums::<f32>(&mpi, |v| v as f32);
    sums::<f64>(&mpi, |v| v);
    // A sum from another thread, as while the next gradients are computed.
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut values = [1.0, rank as f64];
            mpi.sum_native_f64(&mut values).unwrap();
            assert_eq!(values, [size as f64, (size * (size - 1) / 2) as f64]);
        });
    });
}

#[test]
#[ignore = "started by mpirun"]
fn inner_collectives() {
    let mpi = start();
    let (rank, size) = (mpi.rank(), mpi.size());
    for operation in Operation::ALL {
        for algorithm in [
            Algorithm::Flat,
            Algorithm::KaryTree { k: 1 },
            Algorithm::KaryTree { k: 2 },
            Algorithm::KaryTree { k: 3 },
            Algorithm::Binomial,
            Algorithm::Chain { segments: 1 },
            Algorithm::Chain { segments: 4 },
            Algorithm::Ring,
            Algorithm::Direct,
            Algorithm::RecursiveDoubling,
            Algorithm::Rabenseifner,
        ] {
            for elements in [0, 1, 2, 3, 19, 1000, 40_000] {
                let Some(plan) = schedule(operation, algorithm, size, elements) else {
                    continue;
                };
                let vectors: Vec<Vec<f64>> = (0..size).map(|r| values(r, elements)).collect();
                let mut vector = vectors[rank].clone();
                execute(&plan, rank, &mut vector, &mut PointToPoint(&mpi)).unwrap();
                // The bits of the same on threads, and the meaning of the operation.
                let threads = run_on_threads(&plan, vectors.clone()).unwrap();
                let result = plan.result(rank);
                assert_eq!(vector[result.clone()], threads[rank][result.clone()]);
                for i in result {
                    let owns = |r: &usize| Blocks::new(elements, size).range(*r).contains(&i);
                    let owner = (0..size).find(owns).unwrap_or(0);
                    let expected = match operation {
                        Operation::Broadcast | Operation::Scatter => vectors[0][i],
                        Operation::AllGather | Operation::Gather => vectors[owner][i],
                        Operation::Reduce | Operation::AllReduce => {
                            vectors.iter().map(|v| v[i]).sum()
                        }
                    };
                    let error = (vector[i] - expected).abs();
                    assert!(
                        error <= 1e-12 * (1.0 + expected.abs()),
                        "{operation} by {algorithm} of {elements}"
                    );
                }
            }
        }
    }
}

/// Equal within 1e-12 of the largest expected number.
#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-12 * largest, "{a} {b}");
    }
}

#[test]
#[ignore = "started by mpirun"]
fn inner_split_layers() {
    let mpi = start();
    let (rank, size) = (mpi.rank(), mpi.size());
    let shape = DenseShape {
        batch: 5,
        inputs: 7,
        outputs: 9,
    };
    let (x, w, b, g) = (values(1, 35), values(1, 63), values(1, 9), values(1, 45));
    let (y, expected) = (
        shape.forward(&x, &w, &b).unwrap(),
        shape.backward(&x, &w, &g).unwrap(),
    );
    let algorithms = DenseAlgorithms {
        gather: Algorithm::Ring,
        sum: Algorithm::Rabenseifner,
    };
    let layer = SplitDense::new(shape, size, DenseSplit::Outputs, Held::Whole, algorithms).unwrap();
    let own = layer.weight_part(rank, &w).unwrap();
    let bias = layer.bias_part(rank, &b).unwrap();
    let mut transport = PointToPoint(&mpi);
    close(
        &layer
            .forward(rank, &x, &own, &bias, &mut transport)
            .unwrap(),
        &y,
    );
    let found = layer.backward(rank, &x, &own, &g, &mut transport).unwrap();
    close(&found.input, &expected.input);
    close(
        &found.weight,
        &layer.weight_part(rank, &expected.weight).unwrap(),
    );

    let shape = ConvolutionShape {
        batch: 2,
        channels: 3,
        height: 11,
        width: 6,
        filters: 4,
        kernel: [5, 3],
        stride: [2, 1],
        padding: [2, 1],
    };
    let [rows, columns] = shape.output();
    let (x, w, b) = (values(2, 2 * 3 * 66), values(2, 4 * 3 * 15), values(2, 4));
    let g = values(3, 2 * 4 * rows * columns);
    let (y, expected) = (
        shape.forward(&x, &w, &b).unwrap(),
        shape.backward(&x, &w, &g).unwrap(),
    );
    let layer = SplitConvolution::new(shape, size, Algorithm::RecursiveDoubling).unwrap();
    let own = layer.input_part(rank, &x).unwrap();
    let found = layer.forward(rank, &own, &w, &b, &mut transport).unwrap();
    close(&found.output, &layer.output_part(rank, &y).unwrap());
    let own = layer.output_part(rank, &g).unwrap();
    let found = layer
        .backward(rank, &found.read, &w, &own, &mut transport)
        .unwrap();
    close(&found.weight, &expected.weight);
    close(
        &found.input,
        &layer.input_part(rank, &expected.input).unwrap(),
    );
}

#[test]
fn messages_sums_every_collective_and_split_layers_are_right() {
    for ranks in [2, 3, 4] {
        succeeds(&on_ranks(ranks, "inner_split_layers"));
        succeeds(&on_ranks(ranks, "inner_messages_and_sums"));
        succeeds(&on_ranks(ranks, "inner_collectives"));
    }
}

/// A study of every kind of update, and a batch-normalized model.
const STUDY: &str = r#"
seeds = 1
[model.mlp]
widths = [16, 12]
normalization = "batch"
[data]
source = "digits"
subset = 400
[train]
workers = 5
global_batch = 40
epochs = 3
checkpoint_seconds = 0
threads = 1
[train.evaluate]
every_epochs = 1
[learning_rate]
base_lr = 0.05
[probes]
every_epochs = 2
examples = 64
[probes.hessian]
largest = 1
smallest = 0
trace_products = 2
[sweep]
"train.update" = ["synchronous", { stale = { delay = 2 } }, { pipeline = { stages = 3 } }, { asynchronous = { replicas = 3 } }]
"#;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.toml"), STUDY).unwrap();
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program's arguments for the study, its results in `results`.
    fn arguments(&self, results: &str, more: &[&str]) -> Vec<String> {
        let results = self.path().join(results);
        let own = [
            "run",
            "s.toml",
            "--quiet",
            "--results",
            results.to_str().unwrap(),
        ];
        own.iter().chain(more).map(|&s| s.to_owned()).collect()
    }

    fn alone(&self, more: &[&str]) -> Vec<(PathBuf, Vec<u8>)> {
        let status = Command::new(program())
            .current_dir(self.path())
            .args(self.arguments("alone", more))
            .output()
            .unwrap();
        succeeds(&status);
        files(&self.path().join("alone/s"))
    }

    fn ranks(&self, ranks: usize, results: &str, more: &[&str]) -> Command {
        let mut command = mpirun(ranks);
        command
            .current_dir(self.path())
            .arg(program())
            .args(self.arguments(results, more));
        command
    }
}

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("batchlab").to_owned()
}

/// All files of a study but those that hold times.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let times = ["timings.csv", "manifest.json", "report.html"];
            let ending = path.extension().and_then(|e| e.to_str());
            if times.contains(&name.as_str()) || matches!(ending, Some("lock" | "png")) {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            all.push((path.strip_prefix(root).unwrap().to_owned(), bytes));
        }
    }
    all.sort();
    all
}

#[track_caller]
fn same(found: &[(PathBuf, Vec<u8>)], expected: &[(PathBuf, Vec<u8>)]) {
    let names =
        |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for ((name, a), (_, b)) in found.iter().zip(expected) {
        assert!(a == b, "{} differs", name.display());
    }
}

#[test]
fn ranks_that_share_shards_or_trials_leave_the_bytes_of_one_process() {
    let place = Place::new();
    let expected = place.alone(&[]);
    assert!(expected.len() > 20);
    for (ranks, more) in [
        (2, vec![]),
        (3, vec![]),
        (4, vec![]),
        (3, vec!["--distribute", "trials"]),
    ] {
        let results = format!("r{ranks}{}", more.len());
        let output = place.ranks(ranks, &results, &more).output().unwrap();
        succeeds(&output);
        same(&files(&place.path().join(results).join("s")), &expected);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(printed.matches("report:").count(), 1, "{printed}");
    }
}

#[test]
fn one_rank_alone_needs_no_others() {
    let place = Place::new();
    let expected = place.alone(&[]);
    succeeds(&place.ranks(1, "one", &[]).output().unwrap());
    same(&files(&place.path().join("one/s")), &expected);
}

#[test]
fn native_sums_and_statistics_over_all_workers_under_mpirun() {
    let place = Place::new();
    let native = ["--set", "train.reduction=\"native\""];
    succeeds(&place.ranks(3, "native", &native).output().unwrap());
    let global = ["--set", "train.statistics_group=\"global\""];
    let output = place.ranks(2, "global", &global).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("train.statistics_group"), "{said}");
    // Before anything is written.
    assert!(!place.path().join("global/s").exists());
}

/// `mpirun -n 2` of a shell that lets each rank say its own arguments.
fn each_its_own(place: &Place, script: &str) -> Output {
    mpirun(2)
        .current_dir(place.path())
        .env("PROGRAM", program())
        .args(["sh", "-c", script])
        .output()
        .unwrap()
}

#[test]
fn ranks_with_different_studies_or_programs_are_found_at_the_start() {
    let place = Place::new();
    let run = "exec \"$PROGRAM\" run s.toml --quiet --results out";
    let output = each_its_own(
        &place,
        &format!("{run} --set train.global_batch=$((40 + 5 * OMPI_COMM_WORLD_RANK))"),
    );
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the study of rank 1"), "{said}");
    assert!(!place.path().join("out/s/trials").exists());

    let output = each_its_own(
        &place,
        "[ $OMPI_COMM_WORLD_RANK = 1 ] && more='--distribute trials'; \
         exec \"$PROGRAM\" run s.toml --quiet --results out $more",
    );
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--distribute of rank 1"), "{said}");
    assert!(!place.path().join("out/s/trials").exists());

    std::fs::copy(program(), place.path().join("other")).unwrap();
    let mut other = std::fs::read(place.path().join("other")).unwrap();
    other.push(0);
    std::fs::write(place.path().join("other"), other).unwrap();
    let output = each_its_own(
        &place,
        "[ $OMPI_COMM_WORLD_RANK = 1 ] && PROGRAM=./other; \
         exec \"$PROGRAM\" run s.toml --quiet --results out",
    );
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the program of rank 1"), "{said}");
}

#[test]
fn data_that_one_rank_alone_lacks_are_an_error_of_all() {
    let place = Place::new();
    let rows = (0..60).map(|i| format!("{},{},{}", i % 7, i % 5, i % 2));
    let csv = rows.collect::<Vec<String>>().join("\n");
    std::fs::create_dir(place.path().join("here")).unwrap();
    std::fs::create_dir(place.path().join("there")).unwrap();
    let study = "model = \"softmax-regression\"\n[data]\ntest_fraction = 0.2\n[data.source.csv]\npath = \"d.csv\"\nlabel = \"label\"\nheader = true\n\
        [train]\nworkers = 2\nglobal_batch = 10\nepochs = 2\n[learning_rate]\nbase_lr = 0.1\n";
    for folder in ["here", "there"] {
        std::fs::write(place.path().join(folder).join("c.toml"), study).unwrap();
    }
    std::fs::write(place.path().join("here/d.csv"), format!("a,b,label\n{csv}")).unwrap();
    let output = each_its_own(
        &place,
        "cd here; [ $OMPI_COMM_WORLD_RANK = 1 ] && cd ../there; \
         exec \"$PROGRAM\" run c.toml --quiet --results ../out",
    );
    assert_eq!(output.status.code(), Some(1));
    let status = Command::new(program())
        .args(["status", "out/c"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        said.contains("on rank 1") && said.contains("d.csv"),
        "{said}"
    );
}

/// Process ids of the ranks of a run with this folder in their command line.
fn ranks_of(folder: &Path) -> Vec<u32> {
    let folder = folder.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(&folder) && !line.starts_with("mpirun") {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}

/// Waits until a trial of the study has a checkpoint.
fn wait_for_a_checkpoint(study: &Path) {
    wait_for_checkpoints(study, 1);
}

/// Waits until so many trials of the study have one.
fn wait_for_checkpoints(study: &Path, count: usize) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        let trials = std::fs::read_dir(study.join("trials"))
            .into_iter()
            .flatten();
        let begun = |path: PathBuf| path.join("checkpoint.safetensors").exists();
        if trials.flatten().filter(|trial| begun(trial.path())).count() >= count {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("fewer than {count} trials with a checkpoint in a minute");
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill")
        .args([format!("-{name}"), process.to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_killed_rank_ends_all_and_the_study_goes_on_to_the_same_bytes() {
    let place = Place::new();
    let more = ["--set", "train.epochs=12"];
    let expected = place.alone(&more);
    for (ranks, victim) in [(3, 2), (2, 0)] {
        let results = format!("killed{victim}");
        let mut command = place.ranks(ranks, &results, &more);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let study = place.path().join(&results).join("s");
        wait_for_a_checkpoint(&study);
        let found = ranks_of(&place.path().join(&results));
        assert_eq!(found.len(), ranks);
        signal("KILL", found[victim]);
        let status = child.wait().unwrap();
        assert!(!status.success());
        assert_eq!(ranks_of(&place.path().join(&results)), Vec::<u32>::new());
        succeeds(&place.ranks(ranks, &results, &more).output().unwrap());
        same(&files(&study), &expected);
    }
}

#[test]
fn ranks_do_not_wait_for_ever_for_one_that_hangs() {
    let place = Place::new();
    let more = ["--set", "train.epochs=40", "--rank-timeout", "2"];
    let mut command = place.ranks(2, "hangs", &more);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_a_checkpoint(&place.path().join("hangs/s"));
    let found = ranks_of(&place.path().join("hangs"));
    signal("STOP", found[1]);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("waited 2 s"), "{said}");
}

#[test]
fn ranks_that_share_trials_stop_when_asked_and_go_on_after_a_kill() {
    let place = Place::new();
    let more = ["--set", "train.epochs=30"];
    let expected = place.alone(&more);
    let trials = [&more[..], &["--distribute", "trials"]].concat();
    let mut command = place.ranks(2, "shared", &trials);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_a_checkpoint(&place.path().join("shared/s"));
    for rank in ranks_of(&place.path().join("shared")) {
        signal("TERM", rank);
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!place.path().join("shared/s/report.html").exists());
    let mut child = place
        .ranks(2, "shared", &trials)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let found = loop {
        let found = ranks_of(&place.path().join("shared"));
        if found.len() == 2 {
            break found;
        }
        thread::sleep(Duration::from_millis(5));
    };
    signal("KILL", found[1]);
    assert!(!child.wait().unwrap().success());
    succeeds(&place.ranks(3, "shared", &trials).output().unwrap());
    same(&files(&place.path().join("shared/s")), &expected);
}

#[test]
fn a_folder_that_rank_0_loses_ends_all_with_its_message() {
    let place = Place::new();
    let more = ["--set", "train.epochs=60"];
    let mut command = place.ranks(2, "lost", &more);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_a_checkpoint(&place.path().join("lost/s"));
    std::fs::rename(place.path().join("lost"), place.path().join("gone")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("error: rank 0: "), "{said}");
}

#[test]
fn a_rank_that_is_slow_takes_fewer_trials() {
    let place = Place::new();
    let more = ["--set", "train.epochs=60"];
    let expected = place.alone(&more);
    let trials = [&more[..], &["--distribute", "trials"]].concat();
    let mut child = place
        .ranks(2, "slow", &trials)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let study = place.path().join("slow/s");
    wait_for_checkpoints(&study, 2);
    // One of them stands still while the other takes what is left.
    let slow = ranks_of(&place.path().join("slow"))[1];
    signal("STOP", slow);
    let done = || {
        let trials = std::fs::read_dir(study.join("trials")).unwrap();
        let results = trials
            .flatten()
            .filter(|t| t.path().join("result.json").exists());
        results.count()
    };
    while done() < 3 {
        thread::sleep(Duration::from_millis(5));
    }
    signal("CONT", slow);
    assert!(child.wait().unwrap().success());
    same(&files(&study), &expected);
    let own = format!("\"process\": {slow}");
    let by_slow = std::fs::read_dir(study.join("trials"))
        .unwrap()
        .flatten()
        .filter_map(|trial| std::fs::read_to_string(trial.path().join("manifest.json")).ok())
        .filter(|manifest| manifest.contains(&own))
        .count();
    assert!(by_slow <= 1, "{by_slow} of 4 trials");
}

#[test]
fn the_critical_batch_size_is_the_same_on_ranks() {
    let place = Place::new();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/critical-batch.toml");
    let small = ["seeds=1", "critical_batch.batches=[8, 32]"];
    let arguments = |results: &str, more: &[&str]| -> Vec<String> {
        let mut all = vec![
            "critical-batch".to_owned(),
            config.to_str().unwrap().to_owned(),
        ];
        for set in small {
            all.extend(["--set".to_owned(), set.to_owned()]);
        }
        all.extend(["--quiet", "--results", results].map(str::to_owned));
        all.extend(more.iter().map(|&word| word.to_owned()));
        all
    };
    let alone = Command::new(program())
        .current_dir(place.path())
        .args(arguments("alone", &[]))
        .output()
        .unwrap();
    succeeds(&alone);
    let expected = files(&place.path().join("alone/critical-batch"));
    for (results, more) in [("shards", &[][..]), ("trials", &["--distribute", "trials"])] {
        let output = mpirun(2)
            .current_dir(place.path())
            .arg(program())
            .args(arguments(results, more))
            .output()
            .unwrap();
        succeeds(&output);
        same(
            &files(&place.path().join(results).join("critical-batch")),
            &expected,
        );
    }
}

#[test]
#[ignore = "started by mpirun"]
fn inner_panic() {
    let mpi = start();
    assert!(mpi.rank() == 0, "this rank panics");
    mpi.barrier().unwrap();
}

#[test]
fn a_panic_of_one_rank_ends_all_with_its_message() {
    let output = on_ranks(3, "inner_panic");
    assert_eq!(output.status.code(), Some(101));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("this rank panics"), "{said}");
}

#[test]
fn collectives_are_measured_on_ranks() {
    let place = Place::new();
    let output = mpirun(3)
        .current_dir(place.path())
        .arg(program())
        .args([
            "collectives",
            "--measure",
            "--bytes",
            "8,64KiB",
            "--out",
            "costs",
        ])
        .output()
        .unwrap();
    succeeds(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.matches("alpha = ").count(), 1, "{said}");
    assert!(place.path().join("costs/measured.csv").exists());
}

/// The script says how far the planner is off on this machine; how far that is, is no matter of tests.
#[test]
fn the_planner_is_held_against_runs_on_1_2_and_4_ranks() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        .current_dir(place.path())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .arg(root.join("scripts/check_plan.py"))
        .arg("here")
        .arg(program())
        .args(["--out", "check", "--rounds", "1"])
        .args(["--seconds", "0.05", "--link-seconds", "0.5"])
        .output()
        .expect("python3 is installed");
    succeeds(&output);
    let mut table = csv::Reader::from_path(place.path().join("check/here.csv")).unwrap();
    let header = table.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|c| c == name).unwrap();
    let places = ["ranks", "planner_s", "measured_s", "error_planner"].map(column);
    let mut compared = [0; 5];
    for row in table.records() {
        let row = row.unwrap();
        let [ranks, predicted, measured, error] = places.map(|i| row[i].parse::<f64>().unwrap());
        assert!(predicted > 0.0 && measured > 0.0, "{row:?}");
        let expected = predicted / measured - 1.0;
        // Six digits are written.
        assert!(
            (error - expected).abs() < 1e-4 * (1.0 + expected.abs()),
            "{row:?}"
        );
        compared[ranks as usize] += 1;
    }
    assert!(
        compared[1] > 0 && compared[2] > 0 && compared[4] > 0,
        "{compared:?}"
    );
}

/// What needs no ranks, one of them does.
#[test]
fn other_commands_run_on_one_rank_alone() {
    let place = Place::new();
    let output = mpirun(3)
        .current_dir(place.path())
        .arg(program())
        .args(["slurm", "s.toml"])
        .output()
        .unwrap();
    succeeds(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.matches("#!/bin/bash").count(), 1, "{said}");
}

#[test]
fn a_rank_that_is_told_to_stop_stops_all_with_a_checkpoint() {
    let place = Place::new();
    let more = ["--set", "train.epochs=12"];
    let expected = place.alone(&more);
    let mut command = place.ranks(3, "stopped", &more);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_a_checkpoint(&place.path().join("stopped/s"));
    let found = ranks_of(&place.path().join("stopped"));
    signal("TERM", found[1]);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    succeeds(&place.ranks(2, "stopped", &more).output().unwrap());
    same(&files(&place.path().join("stopped/s")), &expected);
}
