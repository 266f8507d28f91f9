//! `batchlab plan`: its arguments, what it counts and measures on this machine, and what is printed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{Out, report_folder};
use crate::analysis::plan::{self, DeviceSample, ModelNumbers, PlanInputs};
use crate::config::{
    self, BatchConfig, EvaluateConfig, PlanFile, Precision, ProbesConfig, Role, StudyConfig,
    TrialConfig, env, load_plan,
};
use crate::data;
use crate::model::Registry;
use crate::objective::{Layout, Objective, Scalar};
use crate::report;
use crate::store::clock::Stopwatch;
use crate::study::BoxError;
use crate::train::{Pool, Session, TrainError};

/// Updates before those that are timed.
const WARM: u32 = 3;

/// Updates that are timed at least.
const LEAST: usize = 5;

/// Find out how many workers are worth it: time and cost of training to a target against workers.
#[derive(Debug, Args)]
#[command(after_help = "\
The plan file says how many updates the target takes at a batch (given, or measured by `batchlab
critical-batch`), what an update takes to compute (given, or measured here), and what links the workers
have. The answer: time and cost against workers, the best number, and where communication and where the
batch stop paying.

  batchlab plan configs/plan.toml
  batchlab plan my-plan.toml --set plan.up_to=4096 --set steps.study=results/critical-batch

Exit status: 0 all is well, 1 an error, 2 wrong usage.")]
pub(super) struct PlanArgs {
    /// The plan file.
    config: PathBuf,
    /// Set a key of the plan file, such as plan.up_to=100000. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Write report.html, figures/, plan.csv and front.csv into this folder [default: results/NAME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// `batchlab plan`
///
/// # Errors
/// What is wrong with the file, what cannot be counted or measured, or a folder that cannot be
/// written.
pub(super) fn run(args: &PlanArgs, registry: &Registry) -> Result<ExitCode, BoxError> {
    let file = load_plan(&args.config, &args.overrides)?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => Path::new("results").join(&file.name),
    };
    report_folder(&out)?;
    let inputs = inputs(&file, registry)?;
    let answer = plan::answer(&file, &inputs)?;
    for line in plan::printed(&answer) {
        writeln!(Out, "{line}")?;
    }
    let files = report::write_plan(&out, &answer)?;
    writeln!(Out, "\nreport: {}", files.html.display())?;
    Ok(ExitCode::SUCCESS)
}

/// What the file asks of the model of a study and of this machine.
fn inputs(file: &PlanFile, registry: &Registry) -> Result<PlanInputs, BoxError> {
    let Some(path) = &file.config.model.study else {
        return Ok(PlanInputs::default());
    };
    let at = |key: &str, message: String| file.error_at_key(key, &message, None);
    let study =
        config::load(Path::new(path), &[]).map_err(|error| at("model.study", error.to_string()))?;
    let in_study = |error: BoxError| at("model.study", format!("{path}: {error}"));
    let trial = first_trial(&study).map_err(in_study)?;
    let subject = Subject::new(trial, registry).map_err(in_study)?;
    let device = &file.config.device;
    let samples = if device.measure {
        subject
            .times(&device.measure_batches, device.measure_seconds)
            .map_err(|error| at("device.measure", format!("{path}: {error}")))?
    } else {
        Vec::new()
    };
    Ok(PlanInputs {
        model: Some(count(subject.layout(), trial)),
        device: samples,
    })
}

fn first_trial(study: &StudyConfig) -> Result<&TrialConfig, BoxError> {
    let first = study.trials.first();
    Ok(&first.ok_or("the study has no trials")?.config)
}

/// Parameters, layers with weights, and bytes that leave them for one example. How many positions a
/// convolution has is not known from its kernel, so a model that has one has no count of these.
fn count(layout: &Layout, trial: &TrialConfig) -> ModelNumbers {
    let bytes = match trial.train.precision {
        Precision::F32 => 4.0,
        Precision::F64 => 8.0,
    };
    let weights = |role| matches!(role, Role::Dense | Role::Convolution | Role::Embedding);
    let layers = layout.parameters.iter().filter(|p| weights(p.role));
    let number = layers.clone().count().max(1);
    let dense = layers.clone().all(|p| p.role == Role::Dense);
    // A dense weight has its inputs first.
    let outputs: usize = layers.filter_map(|p| p.shape.last()).sum();
    ModelNumbers {
        parameters: layout.len() as u64,
        layers: number as u64,
        activation_bytes: dense.then(|| bytes * outputs as f64 / number as f64),
    }
}

/// The model and the data of a trial.
struct Subject {
    trial: TrialConfig,
    data: data::Data,
    objective: Box<dyn crate::model::AnyObjective>,
}

impl Subject {
    fn new(trial: &TrialConfig, registry: &Registry) -> Result<Self, BoxError> {
        let dir = env::data_dir().unwrap_or_else(|| PathBuf::from("data"));
        let data = data::load(&trial.data, &dir)?;
        let objective = registry.build(trial, &data)?;
        Ok(Self {
            trial: trial.clone(),
            data,
            objective,
        })
    }

    fn layout(&self) -> &Layout {
        let objective: &dyn Objective<f32> = &*self.objective;
        objective.layout()
    }

    /// Seconds of updates of one worker on one thread, at these batches, for so long each.
    fn times(&self, batches: &[usize], seconds: f64) -> Result<Vec<DeviceSample>, BoxError> {
        let mut samples = Vec::new();
        for &batch in batches {
            let mut config = self.trial.clone();
            config.train.workers = 1;
            config.train.global_batch = Some(batch);
            config.train.local_batch = None;
            config.train.epochs = None;
            config.train.examples = None;
            config.train.steps = Some(1_000_000_000);
            config.train.target = None;
            config.train.evaluate = EvaluateConfig::default();
            config.batch = BatchConfig::default();
            config.probes = ProbesConfig::default();
            let times = match config.train.precision {
                Precision::F32 => self.updates::<f32>(&*self.objective, &config, seconds)?,
                Precision::F64 => self.updates::<f64>(&*self.objective, &config, seconds)?,
            };
            samples.extend(
                times
                    .into_iter()
                    .map(|seconds| DeviceSample { batch, seconds }),
            );
        }
        Ok(samples)
    }

    fn updates<F: Scalar>(
        &self,
        objective: &dyn Objective<F>,
        config: &TrialConfig,
        seconds: f64,
    ) -> Result<Vec<f64>, TrainError> {
        Pool::with(1, |pool| {
            let mut session = Session::new(config, &self.data, objective, pool)?;
            for _ in 0..WARM {
                session.step()?;
            }
            let total = Stopwatch::start();
            let mut times = Vec::new();
            while total.seconds() < seconds || times.len() < LEAST {
                let step = Stopwatch::start();
                session.step()?;
                times.push(step.seconds());
            }
            Ok(times)
        })
    }
}
