//! A whole small study, from the config file to the report: configs/quickstart.toml with one seed
//! and three epochs, which is 21 trials on the digits.
//!
//!     cargo bench --bench sweep

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use batchlab::model::Registry;
use batchlab::study::{
    self, BoxError, Event, Observer, Options, Plan, Session, StudyFolder, Trainer,
};
use batchlab::{analysis, config, report};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

struct Silent;

impl Observer for Silent {
    fn observe(&self, _: &Event<'_>) {}
}

fn write_report(folder: &Path) -> Result<Vec<String>, BoxError> {
    report::write(folder, &analysis::generalization_gap(folder)?)?;
    Ok(Vec::new())
}

fn run(results: &Path) -> usize {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/quickstart.toml");
    let overrides = ["seeds=1", "train.epochs=3"].map(str::to_owned);
    let study = config::load(&file, &overrides).expect("a valid study");
    let folder = StudyFolder::new(results, &study.name).expect("a folder");
    let registry = Registry::new();
    let trainer = Trainer::new(&registry, PathBuf::new());
    let plan = Plan::new(study, &trainer).expect("a plan");
    let session = Session {
        observer: &Silent,
        stop: &AtomicBool::new(false),
        report: &write_report,
    };
    let execution = study::execute(&plan, &folder, &trainer, &Options::default(), &session)
        .expect("a study that ends");
    assert_eq!(execution.plan.completed, plan.trials().len());
    execution.ran
}

fn sweep(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep");
    group.sample_size(10);
    group.bench_function("quickstart, 21 trials of 3 epochs", |bencher| {
        bencher.iter_batched_ref(
            || tempfile::tempdir().expect("a temporary folder"),
            |results| run(results.path()),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, sweep);
criterion_main!(benches);
