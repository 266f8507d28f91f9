//! `batchlab bench-step`: times training steps, for `scripts/compare_pytorch.py`.

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::config::{Split, TrialConfig};
use crate::data::{Data, Examples};
use crate::model::Registry;
use crate::objective::Objective;
use crate::rng::Stream;
use crate::store::clock::Stopwatch;
use crate::study::BoxError;
use crate::train::{Pool, Session};

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
    let config: TrialConfig = serde_json::from_value(json!({
        "data": {"source": {"mnist": {}}},
        "model": model,
        "train": {
            "workers": args.workers,
            "global_batch": args.batch,
            "micro_batch": args.micro_batch,
            "steps": 1_000_000_000u64,
        },
        "learning_rate": {"base_lr": 0.01},
    }))?;
    let data = noise(8192.max(args.batch));
    let objective = Registry::new().build(&config, &data)?;
    let objective: &dyn Objective<f32> = &*objective;
    let times = Pool::with(
        args.threads,
        |pool| -> Result<Vec<f64>, crate::train::TrainError> {
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
        },
    )?;
    let mut sorted = times.clone();
    sorted.sort_by(f64::total_cmp);
    let report = json!({
        "microseconds_per_step": sorted[sorted.len() / 2],
        "mean_microseconds_per_step": times.iter().sum::<f64>() / times.len() as f64,
        "steps": times.len(),
        "threads": args.threads,
        "batch": args.batch,
    });
    super::print(&report.to_string());
    Ok(())
}

/// Images of MNIST's shape with random pixels and labels: the time of a step does not depend on
/// what they show.
fn noise(examples: usize) -> Data {
    let mut stream = Stream::new(0, "bench", 0);
    Data {
        name: "noise".to_owned(),
        shape: vec![1, 28, 28],
        classes: 10,
        train: Examples {
            features: (0..examples * 784)
                .map(|_| stream.uniform() as f32)
                .collect(),
            labels: (0..examples).map(|_| stream.below(10) as u32).collect(),
        },
        validation: None,
        test: None,
        fresh: None,
        files: Vec::new(),
        notes: Vec::new(),
    }
}
