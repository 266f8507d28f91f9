//! One update of training: gather, forward, backward, reduce, step, on one worker, at one and at two
//! threads.
//!
//!     cargo bench --bench training_step
//!
//! The models and batches are those that scripts/compare_pytorch.py times against PyTorch.

use std::path::Path;

use batchlab::config::parse;
use batchlab::data;
use batchlab::model::Registry;
use batchlab::objective::Objective;
use batchlab::train::{Pool, Session};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Examples of the size of MNIST's; a step takes as long whatever they show.
fn study(model: &str, batch: usize) -> String {
    format!(
        r#"
name = "bench"
model.{model}
[data.source.gaussian-mixture]
classes = 10
dimension = 784
examples = 8192
[train]
global_batch = {batch}
steps = 1000000000
[learning_rate]
base_lr = 0.01
[optimizer.momentum]
momentum = 0.9
"#
    )
}

fn training_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("training_step");
    group.sample_size(20);
    for (name, model, batch) in [
        ("mlp", "mlp.widths = [256, 256]", 32),
        ("mlp", "mlp.widths = [256, 256]", 256),
        ("mlp", "mlp.widths = [256, 256]", 2048),
        ("simple-cnn", "simple-cnn = {}", 64),
    ] {
        let study = parse(&study(model, batch), "bench.toml", &[]).expect("a valid study");
        let config = &study.trials[0].config;
        let mut data = data::load(&config.data, Path::new("")).expect("made-up examples");
        data.shape = vec![1, 28, 28];
        let objective = Registry::new().build(config, &data).expect("a model");
        let objective: &dyn Objective<f32> = &*objective;
        group.throughput(Throughput::Elements(batch as u64));
        for threads in [1, 2] {
            let id = BenchmarkId::new(format!("{name}/{threads} threads"), batch);
            Pool::with(threads, |pool| {
                let mut session = Session::new(config, &data, objective, pool).expect("a session");
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
