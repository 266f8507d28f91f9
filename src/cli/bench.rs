//! `batchlab bench-step`: times training steps, for `scripts/compare_pytorch.py`.

use std::io::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::ranks::Started;
use crate::collective::{Ranks, broadcast_bytes};
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
    /// `ordered` or `native`, under mpirun.
    #[arg(long, default_value = "ordered")]
    reduction: String,
    /// Late gradients: updates of delay.
    #[arg(long)]
    delay: Option<u64>,
    /// Seconds to measure.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// Steps before those that are measured.
const WARM: u32 = 5;

/// Seconds that a rank may wait for another.
const RANK_TIMEOUT: f64 = 120.0;

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
            "reduction": args.reduction,
            "update": args.delay.map_or_else(|| json!("synchronous"), |delay| json!({"stale": {"delay": delay}})),
            "steps": 1_000_000_000u64,
        },
        "learning_rate": {"base_lr": 0.01},
    }))?;
    let mut data = data::load(&config.data, Path::new(""))?;
    data.shape = vec![1, 28, 28];
    let objective = Registry::new().build(&config, &data)?;
    let objective: &dyn Objective<f32> = &*objective;
    let started = Started::new(RANK_TIMEOUT)?;
    let ranks = started.several();
    let times = Pool::with(args.threads, |pool| -> Result<Vec<f64>, TrainError> {
        let mut session = Session::new(&config, &data, objective, pool)?;
        if let Some(ranks) = ranks {
            session = session.with_ranks(ranks)?;
        }
        let warm = Stopwatch::start();
        for _ in 0..WARM {
            session.step()?;
        }
        // All ranks make as many steps: those that the first has time for.
        let mut steps = (args.seconds * f64::from(WARM) / warm.seconds())
            .ceil()
            .max(5.0) as u64;
        if let Some(ranks) = ranks {
            let own = steps.to_le_bytes();
            let told = broadcast_bytes(ranks, (ranks.rank() == 0).then_some(&own[..]))?;
            steps = told.try_into().map_or(steps, u64::from_le_bytes);
        }
        let mut times = Vec::new();
        for _ in 0..steps {
            let step = Stopwatch::start();
            session.step()?;
            times.push(step.seconds() * 1e6);
        }
        session.evaluate(Split::Train, &[])?;
        Ok(times)
    })?;
    if ranks.is_some_and(|ranks| ranks.rank() > 0) {
        return Ok(());
    }
    let mut sorted = times.clone();
    sorted.sort_by(f64::total_cmp);
    let report = json!({
        "microseconds_per_step": sorted[sorted.len() / 2],
        "mean_microseconds_per_step": times.iter().sum::<f64>() / times.len() as f64,
        "steps": times.len(),
        "threads": args.threads,
        "batch": args.batch,
        "ranks": ranks.map_or(1, Ranks::size),
        "parameters": objective.layout().len(),
    });
    writeln!(super::Out, "{report}")?;
    Ok(())
}
