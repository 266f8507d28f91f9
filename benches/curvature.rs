//! What probes cost: products with the Hessian and the Gauss-Newton matrix and exact traces against gradients
//! in f64, and the two-batch noise scale against the updates that it is taken from.
//!
//!     cargo bench --bench curvature
//!
//! Prints ratios of medians; each pair is timed in turns, so that what else the machine does falls on
//! both.

#![allow(clippy::print_stdout)]

use std::path::Path;

use batchlab::config::{NoiseProbe, Products, TrialConfig};
use batchlab::data::{self, Data};
use batchlab::model::Registry;
use batchlab::objective::{Batch, Objective, population_statistics};
use batchlab::probe::{Curvature, Subject, SubjectOptions, SubjectStatistics};
use batchlab::store::clock::Stopwatch;
use batchlab::train::{Pool, Session};
use serde_json::{Value, json};

const ROUNDS: usize = 15;

/// Examples of the size of MNIST's; a step takes as long whatever they show.
fn trial(model: &Value, workers: usize, batch: usize) -> (TrialConfig, Data) {
    let source = json!({"classes": 10, "dimension": 784, "examples": 8192});
    let config: TrialConfig = serde_json::from_value(json!({
        "data": {"source": {"gaussian-mixture": source}},
        "model": model,
        "train": {"workers": workers, "global_batch": batch, "steps": 1_000_000_000},
        "learning_rate": {"base_lr": 0.01},
    }))
    .expect("a trial");
    let mut data = data::load(&config.data, Path::new("")).expect("made-up examples");
    data.shape = vec![1, 28, 28];
    (config, data)
}

fn seconds(work: &mut dyn FnMut()) -> f64 {
    let watch = Stopwatch::start();
    work();
    watch.seconds()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median ratio of two pieces of work that take turns.
fn ratio(first: &mut dyn FnMut(), second: &mut dyn FnMut()) -> f64 {
    first();
    second();
    let ratios = (0..ROUNDS).map(|_| {
        let a = seconds(first);
        a / seconds(second)
    });
    median(ratios.collect())
}

fn products(name: &str, model: &Value, examples: usize) {
    let (config, data) = trial(model, 1, 256);
    let objective = Registry::new().build(&config, &data).expect("a model");
    let objective: &dyn Objective<f64> = &*objective;
    let parameters: Vec<f64> = objective.initial(1);
    let v: Vec<f64> = (0..parameters.len())
        .map(|i| ((i % 7) as f64) - 3.0)
        .collect();
    // Those of a few examples do as well as any.
    let statistics = {
        let point = objective.at(&parameters).expect("a point");
        let few = data.train.features[..64 * 784].iter();
        let batch = Batch {
            features: few.map(|&x| x.into()).collect(),
            labels: vec![0; 64],
            ids: (0..64).collect(),
            groups: vec![64],
        };
        population_statistics(&point.moments(batch).expect("moments"))
    };
    Pool::with(1, |pool| {
        let subject = |products| {
            let options = SubjectOptions {
                examples,
                seed: 0,
                statistics: SubjectStatistics::Frozen(statistics.clone()),
                l2: None,
                products,
            };
            Subject::new(objective, &data, pool, options).expect("a subject")
        };
        let exact = subject(Products::Exact);
        let differences = subject(Products::Differences);
        let mut out = vec![0.0; v.len()];
        let mut image = vec![0.0; v.len()];
        for (what, subject, of) in [
            ("Hessian, exact", &exact, Curvature::Hessian),
            ("Gauss-Newton, exact", &exact, Curvature::GaussNewton),
            ("Hessian, differences", &differences, Curvature::Hessian),
        ] {
            let mut point = subject.at(&parameters).expect("a point");
            let gradient = exact.at(&parameters).expect("a point");
            let found = ratio(
                &mut || point.product(of, &v, &mut image).expect("a product"),
                &mut || {
                    gradient.gradient(&mut out).expect("a gradient");
                },
            );
            println!("{name}, {examples} examples: {what}: {found:.2} gradients");
        }
        let point = exact.at(&parameters).expect("a point");
        let found = ratio(
            &mut || {
                point
                    .layer_traces(Curvature::GaussNewton)
                    .expect("the traces");
            },
            &mut || {
                point.gradient(&mut out).expect("a gradient");
            },
        );
        println!("{name}, {examples} examples: exact trace, 10 classes: {found:.1} gradients");
    });
}

fn noise(name: &str, model: &Value, workers: usize, batch: usize, every_steps: u64) {
    let (plain, data) = trial(model, workers, batch);
    let mut watched = plain.clone();
    watched.probes.noise = Some(NoiseProbe {
        every_steps,
        ..NoiseProbe::default()
    });
    let objective = Registry::new().build(&plain, &data).expect("a model");
    let objective: &dyn Objective<f32> = &*objective;
    Pool::with(1, |pool| {
        let mut without = Session::new(&plain, &data, objective, pool).expect("a session");
        let mut with = Session::new(&watched, &data, objective, pool).expect("a session");
        let found = ratio(
            &mut || {
                for _ in 0..10 {
                    with.step().expect("a step");
                }
                with.take_noises();
            },
            &mut || {
                for _ in 0..10 {
                    without.step().expect("a step");
                }
            },
        );
        println!(
            "{name}, {workers} workers of {}: updates with the two-batch noise scale of every \
             {every_steps}: {found:.3} of those without",
            batch / workers
        );
    });
}

fn main() {
    let mlp = json!({"mlp": {"widths": [256, 256]}});
    let cnn = json!({"simple-cnn": {"channels": [16, 32], "dense": 128}});
    let resnet =
        json!({"resnet": {"depth": 8, "width": 8, "normalization": {"group": {"groups": 4}}}});
    products("MLP 784-256-256-10", &mlp, 512);
    products("CNN 16, 32, 128", &cnn, 64);
    products("ResNet-8 of width 8, group normalization", &resnet, 32);
    let resnet = json!({"resnet": {"depth": 8, "width": 8, "normalization": "batch"}});
    products("ResNet-8 of width 8, batch normalization", &resnet, 32);
    for every_steps in [10, 1] {
        noise("MLP 784-256-256-10", &mlp, 4, 128, every_steps);
        noise("MLP 784-256-256-10", &mlp, 8, 512, every_steps);
        noise("MLP 784-256-256-10", &mlp, 8, 2048, every_steps);
        noise("CNN 16, 32, 128", &cnn, 4, 64, every_steps);
    }
}
