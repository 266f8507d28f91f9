//! One update of training: gather, forward, backward, reduce, step, on one worker, at one and at two
//! threads.
//!
//!     cargo bench --bench training_step
//!
//! The models and batches are those that scripts/compare_pytorch.py times against PyTorch.

use std::path::Path;

use batchlab::config::TrialConfig;
use batchlab::data;
use batchlab::model::Registry;
use batchlab::objective::Objective;
use batchlab::train::{Pool, Session};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

/// Examples of the size of MNIST's; a step takes as long whatever they show.
fn trial(model: &Value, batch: usize) -> TrialConfig {
    let source = json!({"classes": 10, "dimension": 784, "examples": 8192});
    serde_json::from_value(json!({
        "data": {"source": {"gaussian-mixture": source}},
        "model": model,
        "train": {"global_batch": batch, "steps": 1_000_000_000},
        "learning_rate": {"base_lr": 0.01},
        "optimizer": {"momentum": {"momentum": 0.9}},
    }))
    .expect("a trial")
}

fn training_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("training_step");
    group.sample_size(20);
    let mlp = json!({"mlp": {"widths": [256, 256]}});
    let cnn = json!({"simple-cnn": {}});
    for (name, model, batch) in [
        ("mlp", &mlp, 32),
        ("mlp", &mlp, 256),
        ("mlp", &mlp, 2048),
        ("cnn", &cnn, 64),
    ] {
        let config = trial(model, batch);
        let mut data = data::load(&config.data, Path::new("")).expect("made-up examples");
        data.shape = vec![1, 28, 28];
        let objective = Registry::new().build(&config, &data).expect("a model");
        let objective: &dyn Objective<f32> = &*objective;
        group.throughput(Throughput::Elements(batch as u64));
        for threads in [1, 2] {
            let id = BenchmarkId::new(format!("{name}, threads {threads}, batch"), batch);
            Pool::with(threads, |pool| {
                let mut session = Session::new(&config, &data, objective, pool).expect("a session");
                group.bench_function(id, |bencher| {
                    bencher.iter(|| session.step().expect("a step"));
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, training_step);
criterion_main!(benches);
