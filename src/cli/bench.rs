//! `batchlab bench-step`: times training steps, for `scripts/compare_pytorch.py`.

use std::io::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::config::{Split, TrialConfig};
use crate::data;
use crate::model::Registry;
use crate::objective::Objective;
use crate::store::clock::Stopwatch;
use crate::study::BoxError;
use crate::train::{Pool, Session, TrainError};

/// Arguments of `batchlab bench-step`.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// The model.
    #[arg(long, value_enum, default_value = "mlp")]
    model: BenchModel,
    /// Hidden widths of the MLP.
    #[arg(long, value_delimiter = ',', default_value = "256,256")]
    widths: Vec<usize>,
    /// Examples of one update, on one worker.
    #[arg(long, default_value_t = 256)]
    batch: usize,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Logical workers.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Largest piece of a shard; default: the model's own.
    #[arg(long)]
    micro_batch: Option<usize>,
    /// Seconds to measure.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BenchModel {
    /// 784-256-256-10, or other hidden widths.
    Mlp,
    /// The simple CNN of Shallue et al. 2018.
    SimpleCnn,
}

/// Prints median microseconds a step as JSON.
pub(super) fn run(args: &BenchArgs) -> Result<(), BoxError> {
    let model = match args.model {
        BenchModel::Mlp => json!({"mlp": {"widths": args.widths}}),
        BenchModel::SimpleCnn => json!({"simple-cnn": {}}),
    };
    // A step takes as long whatever the examples show.
    let examples = 8192.max(args.batch);
    let source = json!({"classes": 10, "dimension": 784, "examples": examples});
    let config: TrialConfig = serde_json::from_value(json!({
        "data": {"source": {"gaussian-mixture": source}},
        "model": model,
        "train": {
            "workers": args.workers,
            "global_batch": args.batch,
            "micro_batch": args.micro_batch,
            "steps": 1_000_000_000u64,
        },
        "learning_rate": {"base_lr": 0.01},
    }))?;
    let mut data = data::load(&config.data, Path::new(""))?;
    data.shape = vec![1, 28, 28];
    let objective = Registry::new().build(&config, &data)?;
    let objective: &dyn Objective<f32> = &*objective;
    let times = Pool::with(args.threads, |pool| -> Result<Vec<f64>, TrainError> {
        let mut session = Session::new(&config, &data, objective, pool)?;
        for _ in 0..5 {
            session.step()?;
        }
        let total = Stopwatch::start();
        let mut times = Vec::new();
        while total.seconds() < args.seconds || times.len() < 5 {
            let step = Stopwatch::start();
            session.step()?;
            times.push(step.seconds() * 1e6);
        }
        session.evaluate(Split::Train, &[])?;
        Ok(times)
    })?;
    let mut sorted = times.clone();
    sorted.sort_by(f64::total_cmp);
    let report = json!({
        "microseconds_per_step": sorted[sorted.len() / 2],
        "mean_microseconds_per_step": times.iter().sum::<f64>() / times.len() as f64,
        "steps": times.len(),
        "threads": args.threads,
        "batch": args.batch,
    });
    writeln!(super::Out, "{report}")?;
    Ok(())
}
