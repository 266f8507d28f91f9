//! The commands. The only room that prints: data go to standard output, all else to standard
//! error.
//!
//! A program with models of its own calls [`main_with`] with a [`Registry`] that knows them, and
//! has every command of `batchlab` for them.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod collectives;
mod config;
mod critical;
mod data;
mod noise;
mod plan;
mod probe;
mod ranks;
mod schedule;
mod slurm;
mod study;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::env;
use crate::model::Registry;
use crate::study::{BoxError, Trainer};
use crate::{analysis, report, store};

/// Study large-batch training from one TOML file: how far can the batch grow, and what learning
/// rate, warm-up and normalization does it need there?
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(study::RunArgs),
    Status(study::StatusArgs),
    Report(ReportArgs),
    CriticalBatch(critical::CriticalArgs),
    /// Check a study file, show what it stands for, or print the schema
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List, download or import data sets
    #[command(subcommand)]
    Data(data::DataCommand),
    Probe(probe::ProbeArgs),
    Noise(noise::NoiseArgs),
    Slurm(slurm::SlurmArgs),
    Plan(plan::PlanArgs),
    Collectives(Box<collectives::CollectivesArgs>),
    #[command(hide = true)]
    BenchStep(bench::BenchArgs),
}

impl Command {
    /// Whether each rank of an mpirun has a part in it. All else the first one does.
    fn needs_ranks(&self) -> bool {
        match self {
            Self::Run(_) | Self::CriticalBatch(_) | Self::BenchStep(_) => true,
            Self::Collectives(args) => args.needs_ranks(),
            _ => false,
        }
    }
}

/// Make the report of a study again, from its tables alone.
#[derive(Debug, Args)]
struct ReportArgs {
    /// The study's folder, such as results/quickstart.
    folder: PathBuf,
}

/// The program `batchlab`: parses the command line and runs it. Exit status: 0 all is well, 1 an
/// error, 2 wrong usage, 130 interrupted.
pub fn main() -> ExitCode {
    main_with(&Registry::new())
}

/// As [`main`], for a program with models of its own.
///
/// ```no_run
/// use batchlab::model::{Registry, SoftmaxRegression};
///
/// fn main() -> std::process::ExitCode {
///     batchlab::cli::main_with(&Registry::new().register("mine", |context| {
///         Ok(SoftmaxRegression::new(context.features(), context.classes, &context.device))
///     }))
/// }
/// ```
pub fn main_with(registry: &Registry) -> ExitCode {
    let done = |result: Result<(), BoxError>| match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, ExitCode::FAILURE),
    };
    let command = Cli::parse().command;
    if !command.needs_ranks() && env::launched_rank().is_some_and(|rank| rank > 0) {
        return ExitCode::SUCCESS;
    }
    match command {
        Command::Run(args) => {
            let dir = env::data_dir().unwrap_or_else(|| PathBuf::from("data"));
            study::run_on_ranks(&args, Trainer::new(registry, dir), &write_report)
                .unwrap_or_else(|error| fail(&error, error.exit_code()))
        }
        Command::CriticalBatch(args) => {
            let dir = env::data_dir().unwrap_or_else(|| PathBuf::from("data"));
            critical::run(&args, Trainer::new(registry, dir), &critical::write_report)
                .unwrap_or_else(|error| fail(&error, error.exit_code()))
        }
        Command::Status(args) => {
            study::status(&args).unwrap_or_else(|error| fail(&error, error.exit_code()))
        }
        Command::Report(args) => done(write_report(&args.folder).and_then(|lines| {
            let print = |line| writeln!(Out, "{line}").map_err(Into::into);
            lines.iter().try_for_each(print)
        })),
        Command::Config(command) => done(command.run(&mut Out)),
        Command::Data(command) => done(data::run(&command).map_err(Into::into)),
        Command::Probe(args) => {
            probe::run(&args, registry).unwrap_or_else(|error| fail(&error, ExitCode::FAILURE))
        }
        Command::Noise(args) => done(noise::run(&args, &mut Out)),
        Command::Collectives(args) => {
            collectives::run(&args).unwrap_or_else(|error| fail(&error, ExitCode::FAILURE))
        }
        Command::Plan(args) => {
            plan::run(&args, registry).unwrap_or_else(|error| fail(&error, ExitCode::FAILURE))
        }
        Command::Slurm(args) => done(slurm::run(&args, &mut Out)),
        Command::BenchStep(args) => done(bench::run(&args)),
    }
}

/// Analyzes a study's tables, writes its report, and returns the headline for the terminal.
fn write_report(folder: &Path) -> Result<Vec<String>, BoxError> {
    if analysis::critical_batch::is_critical(folder) {
        return critical::write_report(folder);
    }
    let analysis = analysis::generalization_gap(folder)?;
    let files = report::write(folder, &analysis)?;
    let mut lines: Vec<String> = analysis
        .headline()
        .to_string()
        .lines()
        .map(str::to_owned)
        .collect();
    lines.push(format!("report: {}", files.html.display()));
    Ok(lines)
}

/// Makes the folder of a report, before the work that it is about.
fn report_folder(out: &Path) -> Result<(), BoxError> {
    if store::exists(&out.join("study.json")) {
        return Err(format!(
            "{}: the folder of a study, whose report this would replace\nhint: choose another folder with --out",
            out.display()
        )
        .into());
    }
    store::create_folder(out)?;
    store::create_folder(&out.join("figures"))?;
    Ok(())
}

fn fail(error: &impl Display, code: ExitCode) -> ExitCode {
    // Nobody is left to tell where standard error is closed.
    let _ = writeln!(io::stderr(), "error: {error}");
    code
}

/// Standard output. Who closes it early (`| head`) has seen enough; anything else that keeps it
/// from being written, such as a full disk, is an error.
struct Out;

impl io::Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        told(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        told(io::stdout().flush(), ())
    }
}

fn told<T>(written: io::Result<T>, all: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(all),
        Err(error) => {
            let text = format!("cannot write to standard output: {error}");
            Err(io::Error::new(error.kind(), text))
        }
        written => written,
    }
}
