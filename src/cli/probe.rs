//! `batchlab probe`: curvature, sharpness, gradient noise and loss surfaces of weights that a run
//! left, or that come from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Out;
use crate::analysis;
use crate::config::{
    self, AdversarialProbe, BlockKind, DensityProbe, HessianProbe, NoiseProbe, ProbeStatistics,
    ProbesConfig, Products, SharpnessProbe, Split, TraceMethod, TrialConfig, env,
};
use crate::data::Data;
use crate::model::{AnyObjective, Registry, weights};
use crate::objective::{
    LayerStatistics, Objective, Point, Scores, population_statistics_at, scores_at,
};
use crate::probe::{
    self, HEADER, Place, ProbeError, Probed, Row, Subject, SubjectOptions, sharpness, surface,
};
use crate::report;
use crate::rng;
use crate::store;
use crate::store::clock::Stopwatch;
use crate::study::{BoxError, FinishedTrial, OpenError, Trainer, finished_trials};
use crate::train::{Pool, statistics_group};

/// Measure the loss around the weights that a run left: curvature, sharpness, gradient noise.
///
/// RUN is the folder of a study (every finished trial is probed), the folder of a trial, or, with
/// --weights, a study file of one trial. The results go to RUN/probes/ as CSV and figures, and a
/// summary to standard output. The run itself is not touched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  batchlab probe results/quickstart hessian
  batchlab probe results/quickstart/trials/0123456789ab sharpness --adversarial 0.1,0.2
  batchlab probe results/quickstart surface --trial 0123 --to 4567
  batchlab probe study.toml hessian --weights model.safetensors     (PyTorch's names and layouts)")]
pub(super) struct ProbeArgs {
    /// Folder of a study or of a trial, or a study file with --weights.
    run: PathBuf,
    #[command(subcommand)]
    kind: Kind,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Weights in place of those of the run: safetensors with PyTorch's names and layouts.
    #[arg(long, value_name = "FILE", global = true)]
    weights: Option<PathBuf>,
    /// Only trials whose id starts so. May be given several times.
    #[arg(long, value_name = "ID", global = true)]
    trial: Vec<String>,
    /// Set a key of the study file (with --weights). May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE", global = true)]
    overrides: Vec<String>,
    /// Training examples, fixed and seeded [default: 2048].
    #[arg(long, value_name = "N", global = true)]
    examples: Option<usize>,
    /// Batch statistics under the probe.
    #[arg(long, value_enum, default_value = "frozen", global = true)]
    statistics: Statistics,
    /// How products with the Hessian are made.
    #[arg(long, value_enum, default_value = "auto", global = true)]
    products: ProductKind,
    /// Add the optimizer's L2 term to the loss.
    #[arg(long, global = true)]
    weight_decay: bool,
    /// Threads [default: the cores]. Never changes results.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), global = true)]
    threads: Option<u16>,
    /// Where the results go [default: RUN/probes; with --weights, none].
    #[arg(long, value_name = "DIR", global = true)]
    out: Option<PathBuf>,
    /// Print one JSON object a trial in place of tables.
    #[arg(long, global = true)]
    json: bool,
    /// Show no progress.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Eigenvalues, trace and spectral density of the Hessian
    Hessian(HessianArgs),
    /// Keskar's sharpness, worst loss in a ball, loss under noise, relative flatness, attacks
    Sharpness(SharpnessArgs),
    /// Noise of the gradient from single examples, and weighted by the Hessian
    Noise(NoiseArgs),
    /// The loss along the line to other weights, or on a plane around these
    Surface(SurfaceArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Statistics {
    /// The inference statistics, held fixed
    Frozen,
    /// Those of groups as large as in training
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProductKind {
    /// Exact where the model has them
    Auto,
    Exact,
    Differences,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Blocks {
    None,
    Layer,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Trace {
    /// Exact where the model allows it, else krylov
    Auto,
    /// From the gradients of single examples as every class, without products
    Exact,
    /// Mean of z'Hz over random vectors
    Hutchinson,
    /// Exact on a random subspace, Hutchinson's mean of the rest
    HutchPlusPlus,
    /// Exact on a Krylov space, Hutchinson's mean of the rest
    Krylov,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProductPrecision {
    F32,
    F64,
}

#[derive(Debug, Args)]
struct HessianArgs {
    /// Largest eigenvalues.
    #[arg(long, value_name = "K", default_value_t = 20)]
    largest: usize,
    /// Smallest (most negative) eigenvalues.
    #[arg(long, value_name = "K", default_value_t = 20)]
    smallest: usize,
    /// Relative residual at which an eigenvalue has converged.
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    tolerance: f64,
    /// Most products for the eigenvalues.
    #[arg(long, value_name = "N", default_value_t = 400)]
    max_products: usize,
    /// Most products for an estimate of the trace; 0: no trace.
    #[arg(long, value_name = "N", default_value_t = 300)]
    trace_products: usize,
    /// Relative standard error at which the trace is known well enough.
    #[arg(long, value_name = "X", default_value_t = 0.02)]
    trace_tolerance: f64,
    /// How the trace is found.
    #[arg(long, value_enum, default_value = "auto")]
    trace: Trace,
    /// Type in which products are made. Sums and vectors are f64 in any case, and so are the products behind
    /// residuals that are held against less than 5e-4 of the largest eigenvalue.
    #[arg(long, value_enum, default_value = "f64")]
    precision: ProductPrecision,
    /// Trace and largest eigenvalue of the diagonal blocks too.
    #[arg(long, value_enum, default_value = "none")]
    blocks: Blocks,
    /// The same of the Gauss-Newton matrix too.
    #[arg(long)]
    gauss_newton: bool,
    /// The spectral density too.
    #[arg(long)]
    density: bool,
    /// Lanczos steps of the density.
    #[arg(long, value_name = "N", default_value_t = 80)]
    lanczos_steps: usize,
    /// Random starts of the density.
    #[arg(long, value_name = "N", default_value_t = 4)]
    density_probes: usize,
}

#[derive(Debug, Args)]
struct SharpnessArgs {
    /// Half-widths of Keskar's box.
    #[arg(
        long,
        value_name = "X,...",
        value_delimiter = ',',
        default_value = "0.001,0.0005"
    )]
    epsilons: Vec<f64>,
    /// Dimension of the random subspace; 0: the full space only.
    #[arg(long, value_name = "P", default_value_t = 100)]
    subspace: usize,
    /// Iterations of bounded L-BFGS.
    #[arg(long, value_name = "N", default_value_t = 10)]
    iterations: usize,
    /// Radii of the L2 ball for the worst loss.
    #[arg(
        long,
        value_name = "X,...",
        value_delimiter = ',',
        default_value = "0.05"
    )]
    l2_radii: Vec<f64>,
    /// Standard deviations of Gaussian noise on the parameters.
    #[arg(
        long,
        value_name = "X,...",
        value_delimiter = ',',
        default_value = "0.01"
    )]
    sigmas: Vec<f64>,
    /// Accuracy under FGSM and PGD at these radii, in units of the prepared features.
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    adversarial: Option<Vec<f64>>,
    /// Steps of PGD.
    #[arg(long, value_name = "N", default_value_t = 10)]
    attack_steps: usize,
}

#[derive(Debug, Args)]
struct NoiseArgs {
    /// Pieces of the examples for the Hessian-weighted noise; 0: none.
    #[arg(long, value_name = "N", default_value_t = 32)]
    hessian_pieces: usize,
}

#[derive(Debug, Args)]
struct SurfaceArgs {
    /// The other end of a line: weights (safetensors), the folder of a trial, or the start of a
    /// trial's id in RUN. Without it, a plane around the weights.
    #[arg(long, value_name = "RUN")]
    to: Option<String>,
    /// Points of the line, or along a side of the plane [default: 25; 21].
    #[arg(long, value_name = "N")]
    points: Option<usize>,
    /// The line reaches from -X to 1 + X, the plane from -X to X times the filters' norms
    /// [default: 0.5; 1].
    #[arg(long, value_name = "X")]
    extent: Option<f64>,
    /// Seed of the plane's directions.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Stopped by SIGINT or SIGTERM.
#[derive(Debug, thiserror::Error)]
#[error("stopped; results so far are in place, the same command starts over")]
struct Stopped;

/// Runs the command.
pub(super) fn run(args: &ProbeArgs, registry: &Registry) -> Result<ExitCode, BoxError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order the first signal sets the flag and the second, finding it set, exits.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("cannot listen to signals: {error}"))?;
    }
    match probe_all(args, registry, &stop) {
        Err(error) if error.is::<Stopped>() => {
            let _ = writeln!(io::stderr(), "{error}");
            Ok(ExitCode::from(130))
        }
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn probe_all(args: &ProbeArgs, registry: &Registry, stop: &AtomicBool) -> Result<(), BoxError> {
    let common = &args.common;
    let trials = targets(&args.run, common)?;
    if let (Kind::Surface(_), 2..) = (&args.kind, trials.len()) {
        let (path, found) = (args.run.clone(), trials.len());
        return Err(OpenError::Several { path, found }.into());
    }
    check_options(args)?;
    let is_study = store::exists(&args.run.join("study.json"));
    let out = match &common.out {
        Some(out) => Some(out.clone()),
        // Weights from elsewhere are no result of the run.
        None if common.weights.is_some() || args.run.is_file() => None,
        // The surface of a trial is the trial's.
        None => Some(match (&args.kind, trials.first()) {
            (Kind::Surface(_), Some(trial)) if is_study => trial_folder(trial).join("probes"),
            _ => args.run.join("probes"),
        }),
    };
    if let Some(out) = &out {
        store::create_folder(out)?;
    }
    let data_dir = env::data_dir().unwrap_or_else(|| PathBuf::from("data"));
    let trainer = Trainer::new(registry, data_dir);
    let name = format!("{}.csv", args.kind.name());
    let mut table = format!("trial,{HEADER}");
    for trial in &trials {
        let mut config = trial.config.clone();
        config.probes = probes(args);
        // Second derivatives are taken in f64, which not every device has.
        "flex".clone_into(&mut config.train.device);
        config.validate()?;
        let data = trainer.data(&config)?;
        if data.fresh.is_none() {
            config.validate_against_data(data.train.len())?;
        }
        let model = registry.build(&config, &data)?;
        let opened = Opened {
            trial,
            config: &config,
            data: &data,
            model: &*model,
            weights: store::read(&trial.weights)?,
        };
        if let Kind::Surface(surface) = &args.kind {
            return opened.surface(surface, args, out.as_deref(), stop);
        }
        let found = opened.probe(args, stop)?;
        let rows = found.rows.iter().map(|row| row.csv(&found.place));
        let mut own = HEADER.to_owned();
        for row in rows {
            let _ = write!(table, "{},{row}", trial.id);
            own.push_str(&row);
        }
        // After each trial: a long probe of many trials is of use before its end.
        match (&out, &common.out) {
            (Some(out), None) if !is_study => {
                store::write_atomic(&out.join(&name), own.as_bytes())?;
            }
            (Some(out), given) => {
                store::write_atomic(&out.join(&name), table.as_bytes())?;
                if given.is_none() {
                    let folder = trial_folder(trial).join("probes");
                    store::create_folder(&folder)?;
                    store::write_atomic(&folder.join(&name), own.as_bytes())?;
                }
            }
            (None, _) => {}
        }
        if common.json {
            writeln!(Out, "{}", found.json(trial))?;
        } else {
            found.print(trial)?;
        }
    }
    let Some(out) = out else { return Ok(()) };
    let mut files = vec![out.join(&name)];
    if common.out.is_none() {
        files.extend(draw(&args.run)?);
    }
    list(&files, common)
}

/// Refuses options that go with nothing, or make no sense.
fn check_options(args: &ProbeArgs) -> Result<(), BoxError> {
    if !args.common.overrides.is_empty() && args.run.is_dir() {
        return Err("--set changes a study file; a run has its config\n\
             hint: leave it out, or give a study file with --weights"
            .into());
    }
    let Kind::Surface(own) = &args.kind else {
        return Ok(());
    };
    if let Some(points) = own.points
        && !(2..=MOST_POINTS).contains(&points)
    {
        return Err(
            format!("--points: expected a number from 2 to {MOST_POINTS}, found {points}").into(),
        );
    }
    if let Some(extent) = own.extent
        && !((0.0..=LARGEST_EXTENT).contains(&extent) && (extent > 0.0 || own.to.is_some()))
    {
        return Err(format!(
            "--extent: expected a positive number of at most {LARGEST_EXTENT:e}, found {extent:e}"
        )
        .into());
    }
    Ok(())
}

/// The folder of a trial, which its weights lie in.
fn trial_folder(trial: &FinishedTrial) -> &Path {
    trial.weights.parent().unwrap_or(Path::new(""))
}

/// Draws what the probes of a run have found so far, into its folder `probes`.
fn draw(run: &Path) -> Result<Vec<PathBuf>, BoxError> {
    let found = if store::exists(&run.join("study.json")) {
        analysis::generalization_gap(run)?.probes
    } else {
        analysis::probes_of_run(run)?
    };
    match found {
        None => Ok(Vec::new()),
        Some(found) => Ok(report::write_probe_figures(&run.join("probes"), &found)?),
    }
}

/// Says which files were written.
fn list(files: &[PathBuf], common: &Common) -> Result<(), BoxError> {
    let shown = |file: &&PathBuf| file.extension().is_none_or(|ending| ending != "png");
    if !common.json {
        for file in files.iter().filter(shown) {
            writeln!(Out, "{}", file.display())?;
        }
    }
    Ok(())
}

/// The trials to probe, with the weights to probe them at.
fn targets(run: &Path, common: &Common) -> Result<Vec<FinishedTrial>, BoxError> {
    let mut trials = if run.is_file() {
        let study = config::load(run, &common.overrides)?;
        let chosen = |id: &str| {
            common.trial.is_empty() || common.trial.iter().any(|start| id.starts_with(start))
        };
        let specs: Vec<_> = study.trials.iter().filter(|t| chosen(&t.id)).collect();
        let (Some(weights), [spec]) = (&common.weights, specs.as_slice()) else {
            return Err(if common.weights.is_none() {
                let path = run.to_owned();
                OpenError::NoRun { path }.into()
            } else {
                let (path, found) = (run.to_owned(), specs.len());
                OpenError::Several { path, found }.into()
            });
        };
        return Ok(vec![FinishedTrial {
            id: spec.id.clone(),
            label: weights.display().to_string(),
            config: spec.config.clone(),
            weights: weights.clone(),
            result: None,
        }]);
    } else {
        finished_trials(run, &common.trial)?
    };
    if let Some(weights) = &common.weights {
        if trials.len() > 1 {
            let (path, found) = (run.to_owned(), trials.len());
            return Err(OpenError::Several { path, found }.into());
        }
        for trial in &mut trials {
            trial.weights.clone_from(weights);
            trial.label = weights.display().to_string();
            trial.result = None;
        }
    }
    Ok(trials)
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Hessian(_) => "hessian",
            Self::Sharpness(_) => "sharpness",
            Self::Noise(_) => "noise",
            Self::Surface(_) => "surface",
        }
    }

    fn has_single_products(&self) -> bool {
        matches!(self, Self::Hessian(own) if own.precision == ProductPrecision::F32)
    }
}

/// `[probes]` as the command line gives it.
fn probes(args: &ProbeArgs) -> ProbesConfig {
    let common = &args.common;
    let mut probes = ProbesConfig {
        examples: common.examples,
        statistics: match common.statistics {
            Statistics::Frozen => ProbeStatistics::Frozen,
            Statistics::Batch => ProbeStatistics::Batch,
        },
        products: match common.products {
            ProductKind::Auto => Products::Auto,
            ProductKind::Exact => Products::Exact,
            ProductKind::Differences => Products::Differences,
        },
        weight_decay: common.weight_decay,
        ..ProbesConfig::default()
    };
    match &args.kind {
        Kind::Hessian(own) => {
            let probe = HessianProbe {
                largest: own.largest,
                smallest: own.smallest,
                tolerance: own.tolerance,
                max_products: own.max_products,
                trace_products: own.trace_products,
                trace_tolerance: own.trace_tolerance,
                trace: match own.trace {
                    Trace::Auto => TraceMethod::Auto,
                    Trace::Exact => TraceMethod::Exact,
                    Trace::Hutchinson => TraceMethod::Hutchinson,
                    Trace::HutchPlusPlus => TraceMethod::HutchPlusPlus,
                    Trace::Krylov => TraceMethod::Krylov,
                },
                blocks: match own.blocks {
                    Blocks::None => BlockKind::None,
                    Blocks::Layer => BlockKind::Layer,
                    Blocks::Block => BlockKind::Block,
                },
            };
            probes.gauss_newton = own.gauss_newton.then(|| probe.clone());
            probes.hessian = Some(probe);
            probes.density = own.density.then(|| DensityProbe {
                lanczos_steps: own.lanczos_steps,
                probes: own.density_probes,
                ..DensityProbe::default()
            });
        }
        Kind::Sharpness(own) => {
            probes.sharpness = Some(SharpnessProbe {
                epsilons: own.epsilons.clone(),
                subspace: own.subspace,
                iterations: own.iterations,
                l2_radii: own.l2_radii.clone(),
                sigmas: own.sigmas.clone(),
                ..SharpnessProbe::default()
            });
            probes.adversarial = own.adversarial.as_ref().map(|radii| AdversarialProbe {
                radii: radii.clone(),
                steps: own.attack_steps,
                examples: None,
            });
        }
        Kind::Noise(own) => {
            probes.noise = Some(NoiseProbe {
                every_steps: 0,
                exact: true,
                hessian_pieces: own.hessian_pieces,
                ..NoiseProbe::default()
            });
        }
        Kind::Surface(_) => {}
    }
    probes
}

/// A trial with its data, model and weights.
struct Opened<'a> {
    trial: &'a FinishedTrial,
    config: &'a TrialConfig,
    data: &'a Data,
    model: &'a dyn AnyObjective,
    weights: Vec<u8>,
}

/// What a probe found, and the seconds of its stages.
struct Found {
    rows: Vec<Row>,
    place: Place,
    seconds: Vec<(&'static str, f64)>,
    exact: bool,
    /// Of the products.
    precision: &'static str,
    ids: Vec<u64>,
    loss: f64,
}

impl Opened<'_> {
    /// Weights in f64, and the inference statistics that go with them: those of the file, or of the
    /// training set.
    fn weights<'env>(
        &'env self,
        path: &Path,
        bytes: &[u8],
        pool: &Pool<'env>,
    ) -> Result<(Vec<f64>, Vec<LayerStatistics>), BoxError> {
        let (parameters, mut statistics) = weights::from_bytes::<f64>(self.model, bytes)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if statistics.is_empty() {
            statistics = self.population(pool, &parameters)?;
        }
        Ok((parameters, statistics))
    }

    /// Exact inference statistics; none without batch normalization.
    fn population<'env>(
        &'env self,
        pool: &Pool<'env>,
        parameters: &[f64],
    ) -> Result<Vec<LayerStatistics>, BoxError> {
        let group = statistics_group(self.config, self.config.global_batch());
        let seed = self.config.data.split_seed;
        let model: &dyn Objective<f64> = self.model;
        let found =
            population_statistics_at(model, self.data, (pool, None), parameters, group, seed);
        Ok(found?)
    }

    fn subject<'pool, 'env>(
        &'env self,
        statistics: Vec<LayerStatistics>,
        pool: &'pool Pool<'env>,
        stop: &'pool AtomicBool,
    ) -> Result<Subject<'pool, 'env>, BoxError> {
        let model: &dyn Objective<f64> = self.model;
        let group = statistics_group(self.config, self.config.global_batch());
        let layout = model.layout();
        let options = SubjectOptions::new(self.config, self.data, layout, statistics, group);
        Ok(Subject::new(model, self.data, pool, options)?.with_stop(stop))
    }

    /// Makes the probes.
    fn probe(&self, args: &ProbeArgs, stop: &AtomicBool) -> Result<Found, BoxError> {
        Pool::with(threads(&args.common), |pool| {
            let (parameters, statistics) =
                self.weights(&self.trial.weights, &self.weights, pool)?;
            let mut subject = self.subject(statistics, pool, stop)?;
            if args.kind.has_single_products() {
                subject = subject.with_single_products(self.model)?;
            }
            let probed = Probed {
                parameters: &parameters,
                metric: None,
            };
            let progress = Progress::new(&args.common, &self.trial.label, &subject);
            let mut seconds: Vec<(&'static str, f64)> = Vec::new();
            let mut watch = Stopwatch::start();
            let rows = probe::run(&mut subject, &self.config.probes, &probed, &mut |stage| {
                if let Some((_, last)) = seconds.last_mut() {
                    *last = watch.seconds();
                }
                watch = Stopwatch::start();
                seconds.push((stage, 0.0));
                progress.stage(stage);
            });
            progress.finish();
            if let Some((_, last)) = seconds.last_mut() {
                *last = watch.seconds();
            }
            let rows = rows.map_err(stopped)?;
            let losses = subject.losses(&parameters).map_err(stopped)?;
            let outcome = self.trial.result.as_ref().map(|result| &result.outcome);
            let train = outcome.and_then(|outcome| outcome.evaluation.get(&Split::Train));
            Ok(Found {
                rows,
                place: Place {
                    step: outcome.map_or(0, |outcome| outcome.steps),
                    epoch: outcome.map_or(0.0, |outcome| outcome.epochs),
                    when: "after",
                    train_loss: train.map(|train| train.loss),
                },
                seconds,
                exact: subject.has_exact_products(),
                precision: if args.kind.has_single_products() {
                    "f32"
                } else {
                    "f64"
                },
                ids: subject.ids().to_vec(),
                loss: losses.iter().sum::<f64>() / losses.len() as f64,
            })
        })
    }

    /// Loss and accuracy over examples of some splits, with batch statistics of these parameters.
    fn scores<'env>(
        &'env self,
        pool: &Pool<'env>,
        parameters: &[f64],
        splits: &[Split],
        count: usize,
    ) -> Result<Vec<(Split, Scores)>, BoxError> {
        let statistics = self.population(pool, parameters)?;
        let model: &dyn Objective<f64> = self.model;
        let point: Arc<dyn Point<f64> + 'env> = Arc::from(model.at(parameters)?);
        let mut found = Vec::new();
        for &split in splits {
            let examples = match split {
                Split::Train => Some(&self.data.train),
                Split::Validation => self.data.validation.as_ref(),
                Split::Test => self.data.test.as_ref(),
            };
            let Some(examples) = examples.filter(|examples| !examples.is_empty()) else {
                continue;
            };
            let seed = self.config.data.split_seed;
            let order = rng::permutation(examples.len(), seed, "curvature", 0);
            let ids = order.iter().take(count).map(|&i| u64::from(i)).collect();
            let point = Arc::clone(&point);
            let scores = scores_at(point, self.data, (pool, None), examples, ids, &statistics)?;
            found.push((split, scores));
        }
        Ok(found)
    }

    /// The loss along a line or on a plane.
    fn surface(
        &self,
        own: &SurfaceArgs,
        args: &ProbeArgs,
        out: Option<&Path>,
        stop: &AtomicBool,
    ) -> Result<(), BoxError> {
        if self.data.fresh.is_some() {
            return Err("the noisy quadratic has no examples to take a surface over".into());
        }
        let to = own.to.as_deref();
        let other = to.map(|to| other_end(&args.run, to)).transpose()?;
        let table = Pool::with(threads(&args.common), |pool| match &other {
            Some(other) => self.line(own, &args.common, other, pool, stop),
            None => self.plane(own, &args.common, pool, stop),
        })?;
        let name = if other.is_some() { "line" } else { "plane" };
        let Some(out) = out else {
            write!(Out, "{table}")?;
            return Ok(());
        };
        let path = out.join(format!("{name}.csv"));
        store::write_atomic(&path, table.as_bytes())?;
        let mut files = vec![path];
        if args.common.out.is_none() {
            files.extend(draw(trial_folder(self.trial))?);
        }
        list(&files, &args.common)
    }

    /// line.csv: loss and accuracy along the line to other weights.
    fn line<'env>(
        &'env self,
        own: &SurfaceArgs,
        common: &Common,
        (label, path): &(String, PathBuf),
        pool: &Pool<'env>,
        stop: &AtomicBool,
    ) -> Result<String, BoxError> {
        let (from, _) = self.weights(&self.trial.weights, &self.weights, pool)?;
        let (to, _) = self.weights(path, &store::read(path)?, pool)?;
        let reach = own.extent.unwrap_or(0.5);
        let points = own.points.unwrap_or(surface::LINE_POINTS);
        let alphas = surface::positions(-reach, 1.0 + reach, points);
        let bar = bar(common, alphas.len() as u64, "points of the line");
        let count = common.examples.unwrap_or(SURFACE_EXAMPLES);
        let found = surface::line(&from, &to, &alphas, |at| {
            go_on(stop)?;
            bar.inc(1);
            self.scores(pool, at, &[Split::Train, Split::Test], count)
        })
        .map_err(of_surface)?;
        bar.finish_and_clear();
        let mut text = String::from("alpha,split,loss,accuracy,label\n");
        let line = format!("{} to {label}", self.trial.label).replace('"', "\"\"");
        for (alpha, scores) in alphas.iter().zip(&found) {
            for (split, Scores { loss, accuracy }) in scores {
                let accuracy = accuracy.map_or_else(String::new, |a| a.to_string());
                let _ = writeln!(
                    text,
                    "{alpha},{},{loss},{accuracy},\"{line}\"",
                    split.name()
                );
            }
        }
        Ok(text)
    }

    /// plane.csv: training loss on a plane around the weights.
    fn plane<'env>(
        &'env self,
        own: &SurfaceArgs,
        common: &Common,
        pool: &Pool<'env>,
        stop: &AtomicBool,
    ) -> Result<String, BoxError> {
        let (from, _) = self.weights(&self.trial.weights, &self.weights, pool)?;
        let model: &dyn Objective<f64> = self.model;
        let direction = |index, other: Option<&[f64]>| {
            surface::filter_normalized::<BoxError>(model.layout(), &from, own.seed, index, other)
                .map_err(of_surface)
        };
        let first = direction(0, None)?;
        let second = direction(1, Some(&first))?;
        let points = own.points.unwrap_or(PLANE_POINTS);
        let extent = own.extent.unwrap_or(1.0);
        let bar = bar(common, (points * points) as u64, "points of the plane");
        let count = common.examples.unwrap_or(SURFACE_EXAMPLES);
        let found = surface::plane(&from, &first, &second, extent, points, |at| {
            go_on(stop)?;
            bar.inc(1);
            let scores = self.scores(pool, at, &[Split::Train], count)?;
            Ok::<_, BoxError>(scores.first().map_or(f64::NAN, |(_, scores)| scores.loss))
        })
        .map_err(of_surface)?;
        bar.finish_and_clear();
        let mut text = String::from("alpha,beta,loss\n");
        for (row, beta) in found.values.chunks(points).zip(&found.positions) {
            for (loss, alpha) in row.iter().zip(&found.positions) {
                let _ = writeln!(text, "{alpha},{beta},{loss}");
            }
        }
        Ok(text)
    }
}

/// Stops where the user asked to.
fn go_on(stop: &AtomicBool) -> Result<(), BoxError> {
    if stop.load(Ordering::Relaxed) {
        return Err(Stopped.into());
    }
    Ok(())
}

/// Examples of each split under a surface where nothing is said.
const SURFACE_EXAMPLES: usize = 2048;

/// Fewer examples than these come with a note: the top eigenvalue over batches of 128 is known to vary
/// tenfold.
const FEW_EXAMPLES: usize = 512;

/// Largest reach of a line or a plane.
const LARGEST_EXTENT: f64 = 1e6;

/// Most points of a line, or along a side of a plane.
const MOST_POINTS: usize = 10_000;

/// Points along a side of a plane where nothing is said.
const PLANE_POINTS: usize = 21;

fn threads(common: &Common) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    common.threads.map_or_else(cores, usize::from)
}

/// An interruption is no failure.
fn stopped(error: ProbeError) -> BoxError {
    match error {
        ProbeError::Interrupted => Stopped.into(),
        error => error.into(),
    }
}

/// What the evaluation of a point says, or what is wrong with the surface.
fn of_surface(error: surface::SurfaceError<BoxError>) -> BoxError {
    match error {
        surface::SurfaceError::Evaluation(error) => error,
        error => error.to_string().into(),
    }
}

/// The label and the weights of the other end of a line.
fn other_end(run: &Path, to: &str) -> Result<(String, PathBuf), BoxError> {
    let path = Path::new(to);
    if path.is_file() {
        return Ok((to.to_owned(), path.to_owned()));
    }
    let mut found = if path.is_dir() {
        finished_trials(path, &[])?
    } else {
        // A trial of the same study: RUN is the study, or one of its trials.
        let study = if store::exists(&run.join("study.json")) {
            run
        } else {
            run.parent().and_then(Path::parent).unwrap_or(run)
        };
        finished_trials(study, &[to.to_owned()])?
    };
    if found.len() != 1 {
        let (path, found) = (path.to_owned(), found.len());
        return Err(OpenError::Several { path, found }.into());
    }
    let trial = found.remove(0);
    Ok((trial.label, trial.weights))
}

fn bar(common: &Common, total: u64, what: &'static str) -> ProgressBar {
    if common.quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}");
    let bar = ProgressBar::new(total).with_message(what);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// What a probe is at, and how many losses, gradients and products it has made.
struct Progress {
    bar: ProgressBar,
    label: String,
    watching: Option<(Arc<AtomicBool>, std::thread::JoinHandle<()>)>,
}

impl Progress {
    fn new(common: &Common, label: &str, subject: &Subject<'_, '_>) -> Self {
        let label = label.to_owned();
        if common.quiet || !io::stderr().is_terminal() {
            let bar = ProgressBar::hidden();
            return Self {
                bar,
                label,
                watching: None,
            };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {pos} passes, {elapsed}")
        {
            bar.set_style(style);
        }
        let (done, counted) = (Arc::new(AtomicBool::new(false)), subject.evaluations());
        let (flag, shown) = (Arc::clone(&done), bar.clone());
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                shown.set_position(counted.load(Ordering::Relaxed) as u64);
                shown.tick();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self {
            bar,
            label,
            watching: Some((done, thread)),
        }
    }

    fn stage(&self, stage: &str) {
        self.bar.set_message(format!("{}, {stage}", self.label));
    }

    fn finish(self) {
        if let Some((done, thread)) = self.watching {
            done.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

impl Found {
    fn json(&self, trial: &FinishedTrial) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "probe": row.probe,
                    "quantity": row.quantity,
                    "scope": row.scope,
                    "at": row.at,
                    "value": row.value,
                    "standard_error": row.standard_error,
                    "residual": row.residual,
                    "converged": row.converged,
                    "products": row.products,
                })
            })
            .collect();
        let seconds: Map<String, Value> = self
            .seconds
            .iter()
            .map(|(stage, seconds)| ((*stage).to_owned(), json!(seconds)))
            .collect();
        json!({
            "trial": trial.id,
            "examples": self.ids.len(),
            "ids": self.ids,
            "loss": self.loss,
            "exact_products": self.exact,
            "precision": self.precision,
            "seconds": seconds,
            "rows": rows,
        })
    }

    /// The summary for the terminal.
    fn print(&self, trial: &FinishedTrial) -> io::Result<()> {
        let products = match (self.exact, self.precision) {
            (true, "f32") => "exact, in f32",
            (true, _) => "exact",
            (false, _) => "by differences",
        };
        writeln!(
            Out,
            "{}: loss {} on {} training examples, products {products}",
            trial.label,
            short(self.loss),
            self.ids.len()
        )?;
        if self.ids.len() < FEW_EXAMPLES {
            writeln!(
                Out,
                "  note: curvature and noise of so few examples differ much from draw to draw"
            )?;
        }
        let mut by_quantity: BTreeMap<(usize, &str, &str), Vec<&Row>> = BTreeMap::new();
        let mut order: Vec<(&str, &str)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.probe != "density") {
            let key = (row.probe, row.quantity);
            let position = order
                .iter()
                .position(|known| *known == key)
                .unwrap_or_else(|| {
                    order.push(key);
                    order.len() - 1
                });
            let rows = by_quantity.entry((position, row.probe, row.quantity));
            rows.or_default().push(row);
        }
        for ((_, probe, quantity), rows) in by_quantity {
            if quantity.ends_with("eigenvalue") && !quantity.starts_with("block") {
                print_eigenvalues(probe, quantity, &rows)?;
                continue;
            }
            for row in rows {
                let value = row.value.map_or("undetermined".to_owned(), short);
                let error = match row.standard_error {
                    None => String::new(),
                    // Products by differences have errors of their own.
                    Some(0.0) if self.exact => " (exact)".to_owned(),
                    Some(error) => format!(" +- {}", short(error)),
                };
                let scope = if row.scope.is_empty() {
                    String::new()
                } else {
                    format!(" {}", row.scope)
                };
                let at = row.at.map_or(String::new(), |at| format!(" at {at}"));
                let open = match row.converged {
                    Some(false) if row.value.is_some() => " (not converged)",
                    _ => "",
                };
                writeln!(Out, "  {probe} {quantity}{scope}{at}: {value}{error}{open}")?;
            }
        }
        if self.rows.iter().any(|row| row.probe == "sharpness") {
            writeln!(Out, "  {}", sharpness::CAVEAT)?;
        }
        Ok(())
    }
}

fn print_eigenvalues(probe: &str, quantity: &str, rows: &[&Row]) -> io::Result<()> {
    let values: Vec<String> = rows
        .iter()
        .map(|row| {
            let mark = if row.converged == Some(true) { "" } else { "?" };
            row.value
                .map_or("undetermined".to_owned(), |v| format!("{}{mark}", short(v)))
        })
        .collect();
    let open = rows
        .iter()
        .filter(|row| row.converged != Some(true))
        .count();
    let worst = rows
        .iter()
        .filter_map(|row| row.residual)
        .fold(0.0, f64::max);
    let products = rows.first().and_then(|row| row.products).unwrap_or(0);
    let note = if open > 0 {
        format!("; ? {open} not converged")
    } else {
        String::new()
    };
    writeln!(
        Out,
        "  {probe} {quantity}s: {}\n    largest residual {}, {products} products{note}",
        values.join(" "),
        short(worst)
    )
}

/// A number with four digits.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-3..1e5).contains(&magnitude) {
        let digits = 3 - magnitude.max(1e-3).log10().floor() as i32;
        format!("{value:.*}", digits.clamp(0, 7) as usize)
    } else {
        format!("{value:.3e}")
    }
}
