//! `batchlab collectives`: what collective operations cost in a model, and on ranks that are there.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::ranks::{Started, limit};
use super::{Out, fail, report_folder};
use crate::analysis::collectives::{
    self, Bounds, Choice, CollectivesError, Disturbed, Given, PRESETS, Preset, Question,
    collectives,
};
use crate::analysis::collectives_measured::{Measurement, fitted};
use crate::analysis::collectives_text;
use crate::collective::measure::{
    ELEMENT_BYTES, Measurable, MeasureError, MeasureOptions, Measured, Node, measure, nodes,
};
use crate::collective::{Operation, Ranks, SlowLink, broadcast_bytes, on_threads};
use crate::report;
use crate::study::BoxError;
use crate::theory::collectives::Power;

/// Exit status of wrong usage.
const USAGE: u8 = 2;

/// Messages of a case up to which it is simulated.
const MOST_MESSAGES: u128 = 20_000;

/// Longest vector that is measured.
const MOST_MEASURED: u64 = 1 << 30;

/// Most ranks that are threads.
const MOST_THREADS: i64 = 256;

/// Tabulate and plot what collective operations cost, or measure them and fit the model.
#[derive(Debug, Args)]
#[command(after_help = "\
Lists are separated by commas; `2..1024` doubles from 2 up to 1024. Lengths are bytes of the whole vector
(of gathers and scatters: of all blocks together), with KiB, MiB or GiB if wanted.

  batchlab collectives --preset ethernet-10g --ranks 2..256 --bytes 1KiB..256MiB --out costs
  batchlab collectives --operation broadcast --algorithm binomial,chain,chain=16 --ranks 8 --bytes 1MiB
  batchlab collectives --alpha 2e-6 --beta 1e-10 --gamma 5e-11 --ranks 16 --jitter 1e-6 --slow-link 0-1=10
  mpirun -n 4 batchlab collectives --measure --operation all-reduce,broadcast --out measured
  batchlab collectives --measure --threads 4

Exit status: 0 all is well, 1 an error, 2 wrong usage.")]
pub(super) struct CollectivesArgs {
    /// Operations: broadcast, reduce, all-reduce, all-gather, scatter, gather.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "all-reduce",
        value_parser = collectives::parse_operation
    )]
    operation: Vec<Operation>,
    /// Algorithms: flat, tree, tree=CHILDREN, binomial, chain, chain=SEGMENTS, ring, direct,
    /// recursive-doubling, rabenseifner [default: all that can do the operation]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    algorithm: Vec<Choice>,
    /// Numbers of ranks [default: 2..1024; with --measure those that were started]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = ranks
    )]
    ranks: Vec<Series>,
    /// Lengths of the vector in bytes [default: 8..1GiB; with --measure 8 to 2MiB by factors of 8]
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = bytes
    )]
    bytes: Vec<Series>,
    /// Bytes of one element
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "measure",
          allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    element_bytes: u32,

    /// The model [default: that of the parameters given, else hockney]
    #[arg(long, value_enum, help_heading = "Network")]
    model: Option<Model>,
    /// Parameters to start from: infiniband-100g, ethernet-10g, shared-memory; says where they are from
    /// [default: infiniband-100g]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = collectives::parse_preset,
        help_heading = "Network"
    )]
    preset: Option<Preset>,
    /// hockney: seconds of a message
    #[arg(
        long,
        value_name = "S",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    alpha: Option<f64>,
    /// hockney: seconds of a byte on the wire
    #[arg(
        long,
        value_name = "S/B",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    beta: Option<f64>,
    /// Both models: seconds to add a byte
    #[arg(
        long,
        value_name = "S/B",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    gamma: Option<f64>,
    /// loggp: L, seconds on the wire
    #[arg(
        long,
        value_name = "S",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    latency: Option<f64>,
    /// loggp: o, seconds of the processor for each send and each receive
    #[arg(
        long,
        value_name = "S",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    overhead: Option<f64>,
    /// loggp: g, seconds between messages, at most L + 2o
    #[arg(
        long,
        value_name = "S",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    gap: Option<f64>,
    /// loggp: G, seconds between the bytes of a message
    #[arg(
        long,
        value_name = "S/B",
        allow_hyphen_values = true,
        help_heading = "Network"
    )]
    gap_per_byte: Option<f64>,

    /// Watts of one rank, whatever it does
    #[arg(
        long,
        value_name = "W",
        default_value_t = 0.0,
        conflicts_with = "measure",
        allow_hyphen_values = true,
        help_heading = "Energy"
    )]
    static_power: f64,
    /// Joules of a message
    #[arg(
        long,
        value_name = "J",
        default_value_t = 0.0,
        conflicts_with = "measure",
        allow_hyphen_values = true,
        help_heading = "Energy"
    )]
    energy_per_message: f64,
    /// Joules of a byte on the wire
    #[arg(
        long,
        value_name = "J",
        default_value_t = 0.0,
        conflicts_with = "measure",
        allow_hyphen_values = true,
        help_heading = "Energy"
    )]
    energy_per_byte: f64,

    /// Run the event simulation for cases of up to so many ranks; 0 for none
    #[arg(long, value_name = "RANKS", default_value_t = 16, conflicts_with = "measure",
          help_heading = "Simulation", allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(0..=4096))]
    simulate_up_to: u32,
    /// Simulate again with messages that take longer by exponentially distributed seconds of this mean
    #[arg(
        long,
        value_name = "S",
        conflicts_with = "measure",
        allow_hyphen_values = true,
        help_heading = "Simulation"
    )]
    jitter: Option<f64>,
    /// Seeds of the jitter, over which means and intervals are taken
    #[arg(long, value_name = "N", default_value_t = 20, requires = "jitter",
          help_heading = "Simulation", allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    seeds: u32,
    /// Simulate again with a link that is so many times slower than the others, such as 0-1=10
    #[arg(
        long,
        value_name = "A-B=FACTOR",
        conflicts_with = "measure",
        value_parser = collectives::parse_slow_link,
        help_heading = "Simulation"
    )]
    slow_link: Option<SlowLink>,

    /// Carry the operations out on the ranks of mpirun, with a clock, and fit alpha, beta and gamma
    #[arg(long, help_heading = "Measurement")]
    measure: bool,
    /// Measure so many ranks that are threads of this process, without MPI
    #[arg(long, value_name = "N", requires = "measure", help_heading = "Measurement",
          allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(2..=MOST_THREADS))]
    threads: Option<u16>,
    /// Rounds with the clock; each carries out every case once
    #[arg(long, value_name = "N", default_value_t = 30, requires = "measure",
          help_heading = "Measurement", allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    repetitions: u32,
    /// Rounds before the clock
    #[arg(long, value_name = "N", default_value_t = 3, requires = "measure",
          help_heading = "Measurement", allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    warm_up: u32,
    /// Begin no further round after so many seconds, once two are done
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, requires = "measure",
          allow_hyphen_values = true, value_parser = limit, help_heading = "Measurement")]
    most_seconds: f64,
    /// End all ranks of mpirun if one waits longer than this for another
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, requires = "measure", conflicts_with = "threads",
          allow_hyphen_values = true, value_parser = limit, help_heading = "Measurement")]
    rank_timeout: f64,

    /// Write tables, figures and report.html into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl CollectivesArgs {
    /// Whether each rank of an mpirun has a part in it.
    pub(super) fn needs_ranks(&self) -> bool {
        self.measure && self.threads.is_none()
    }
}

/// The model of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// alpha, beta, gamma.
    Hockney,
    /// LogGP: L, o, g, G, and gamma.
    Loggp,
}

/// An entry of a list of numbers, which may be a range.
#[derive(Debug, Clone)]
struct Series(Vec<u64>);

fn ranks(text: &str) -> Result<Series, String> {
    collectives::parse_ranks(text).map(Series)
}

fn bytes(text: &str) -> Result<Series, String> {
    collectives::parse_bytes(text).map(Series)
}

/// All numbers of a list, ascending, each once.
fn all(list: &[Series]) -> Vec<u64> {
    let mut numbers: Vec<u64> = list.iter().flat_map(|series| &series.0).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Each once, in their order.
fn unique<T: PartialEq + Copy>(list: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for &item in list {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// `batchlab collectives`
///
/// # Errors
/// What could not be measured or written, to be printed as `error: {error}` with exit status 1.
pub(super) fn run(args: &CollectivesArgs) -> Result<ExitCode, BoxError> {
    let question = match question(args) {
        Ok(question) => question,
        Err(error) => return Ok(fail(&error, ExitCode::from(USAGE))),
    };
    if args.measure {
        return measured(args, question);
    }
    prepare(args.out.as_deref())?;
    let found = collectives(question)?;
    for line in collectives_text::lines(&found) {
        writeln!(Out, "{line}")?;
    }
    if let Some(out) = &args.out {
        say_report(&report::write_collectives(out, &found)?.html)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder that is written in the end.
fn prepare(out: Option<&Path>) -> Result<(), BoxError> {
    match out {
        None => Ok(()),
        Some(out) => report_folder(out).map_err(|error| format!("--out: {error}").into()),
    }
}

/// As [`prepare`], by the first rank for all.
fn prepare_on_ranks(out: Option<&Path>, ranks: &dyn Ranks) -> Result<(), BoxError> {
    let failed = match ranks.rank() {
        0 => prepare(out).err().map(|error| error.to_string()),
        _ => None,
    };
    let failed = broadcast_bytes(ranks, failed.as_deref().map(str::as_bytes))?;
    if failed.is_empty() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&failed).into())
    }
}

fn say_report(page: &Path) -> std::io::Result<()> {
    writeln!(Out, "report: {}", page.display())
}

/// What is asked; of a measurement the ranks are not known yet.
fn question(args: &CollectivesArgs) -> Result<Question, BoxError> {
    let given = Given {
        alpha: args.alpha,
        beta: args.beta,
        latency: args.latency,
        overhead: args.overhead,
        gap: args.gap,
        byte_gap: args.gap_per_byte,
        gamma: args.gamma,
    };
    let loggp = args.model.map(|model| model == Model::Loggp);
    let preset = args.preset.unwrap_or(PRESETS[0]);
    let (network, source) = collectives::network(&preset, loggp, &given).map_err(flagged)?;
    if args.measure {
        if network.name() == "loggp" {
            return Err("--measure fits the model hockney, and not loggp".into());
        }
        check_network_used(args)?;
    }
    let lists = [all(&args.ranks), all(&args.bytes)];
    let [mut ranks, mut bytes] = lists;
    let element_bytes = u64::from(args.element_bytes);
    if bytes.is_empty() {
        let step = if args.measure { 3 } else { 1 };
        let last = if args.measure { 21 } else { 30 };
        let first = (3..64).find(|k| args.measure || 1 << k >= element_bytes);
        let powers = (first.unwrap_or(3)..=last).step_by(step);
        bytes = powers
            .map(|k| 1_u64 << k)
            .filter(|n| args.measure || n.is_multiple_of(element_bytes))
            .collect();
        if bytes.is_empty() {
            // Elements that powers of two do not hold.
            bytes = (0..=20).map(|k| element_bytes << k).collect();
        }
    }
    if ranks.is_empty() && !args.measure {
        ranks = (1..=10).map(|k| 1 << k).collect();
    }
    let disturbed =
        (args.jitter.is_some_and(|s| s != 0.0) || args.slow_link.is_some()).then(|| Disturbed {
            jitter: args.jitter.unwrap_or(0.0),
            slow_link: args.slow_link,
            seeds: u64::from(args.seeds),
        });
    let question = Question {
        operations: unique(&args.operation),
        choices: unique(&args.algorithm),
        ranks,
        bytes,
        element_bytes: if args.measure {
            ELEMENT_BYTES
        } else {
            args.element_bytes as usize
        },
        network,
        source,
        power: Power {
            static_watts: args.static_power,
            message_joules: args.energy_per_message,
            byte_joules: args.energy_per_byte,
        },
        simulated: Bounds {
            ranks: args.simulate_up_to as usize,
            messages: MOST_MESSAGES,
        },
        disturbed,
    };
    question.check().map_err(flagged)?;
    Ok(question)
}

/// In a measurement the network chooses what trees and chains leave open, and nothing else.
fn check_network_used(args: &CollectivesArgs) -> Result<(), BoxError> {
    if args.algorithm.is_empty() || args.algorithm.iter().any(|choice| choice.is_open()) {
        return Ok(());
    }
    let flags = [
        ("--preset", args.preset.is_some()),
        ("--alpha", args.alpha.is_some()),
        ("--beta", args.beta.is_some()),
        ("--gamma", args.gamma.is_some()),
    ];
    let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) else {
        return Ok(());
    };
    let found: Vec<String> = args.algorithm.iter().map(Choice::to_string).collect();
    Err(format!(
        "{flag}: with --measure it only chooses the children of `tree` and the segments of `chain`; \
         expected one of these in --algorithm, found {}",
        found.join(", ")
    )
    .into())
}

/// The error, after the flag that it is about.
fn flagged(error: CollectivesError) -> BoxError {
    let flag = match &error {
        CollectivesError::Parameter { name, .. } => match *name {
            "alpha" => "--alpha",
            "beta" => "--beta",
            "gamma" => "--gamma",
            "latency L" => "--latency",
            "overhead o" => "--overhead",
            "gap g" => "--gap",
            "gap per byte G" => "--gap-per-byte",
            "static power" => "--static-power",
            "energy of a message" => "--energy-per-message",
            "energy of a byte" => "--energy-per-byte",
            "jitter" => "--jitter",
            _ => return error.into(),
        },
        CollectivesError::Gap { .. } => "--gap",
        CollectivesError::Cannot { .. } => "--algorithm",
        CollectivesError::Elements { .. } => "--bytes",
        CollectivesError::Jitter { .. } => "--jitter",
        CollectivesError::SlowLink { .. } => "--slow-link",
        CollectivesError::Models | CollectivesError::Deadlock(_) => return error.into(),
    };
    format!("{flag}: {error}").into()
}

/// Measures on the ranks there are.
fn measured(args: &CollectivesArgs, question: Question) -> Result<ExitCode, BoxError> {
    if let Some(threads) = args.threads {
        let threads = usize::from(threads);
        let cases = match cases(question, threads) {
            Ok(cases) => cases,
            Err(error) => return Ok(fail(&error, ExitCode::from(USAGE))),
        };
        prepare(args.out.as_deref())?;
        let all = on_threads(threads, |ranks| carry_out(args, ranks, &cases))?;
        let Some(first) = all.into_iter().next() else {
            return Err("no ranks were started".into());
        };
        let (nodes, measured) = first?;
        return tell(
            args,
            nodes,
            measured,
            "threads of one process",
            "sum of the threads",
        );
    }
    let started = Started::new(args.rank_timeout)?;
    let Some(ranks) = started.several() else {
        let hint = if cfg!(feature = "mpi") {
            "start them: `mpirun -n 4 batchlab collectives --measure`"
        } else {
            "this program was built without MPI: build it with `--features mpi` and start it with mpirun"
        };
        let error = format!(
            "expected at least two ranks to measure, found one\nhint: {hint}; or measure threads: `--threads 4`"
        );
        return Ok(fail(&error, ExitCode::from(USAGE)));
    };
    let leads = ranks.rank() == 0;
    let found = cases(question, ranks.size()).map_err(|error| (error, USAGE));
    let found = found.and_then(|cases| {
        prepare_on_ranks(args.out.as_deref(), ranks).map_err(|error| (error, 1))?;
        carry_out(args, ranks, &cases).map_err(|error| (error.into(), 1))
    });
    match found {
        Ok((nodes, measured)) if leads => tell(
            args,
            nodes,
            measured,
            "processes under MPI",
            "MPI_Allreduce",
        ),
        Ok(_) => Ok(ExitCode::SUCCESS),
        // The same on all ranks: one says it.
        Err((error, code)) if leads => Ok(fail(&error, ExitCode::from(code))),
        Err((_, code)) => Ok(ExitCode::from(code)),
    }
}

/// The cases to measure on so many ranks.
fn cases(mut question: Question, size: usize) -> Result<Vec<Measurable>, BoxError> {
    if question.ranks.is_empty() {
        question.ranks.push(size as u64);
    }
    for &ranks in &question.ranks {
        if ranks < 2 || ranks > size as u64 {
            return Err(format!(
                "--ranks: expected 2 to {size}, the ranks there are, found {ranks}"
            )
            .into());
        }
    }
    if let Some(bytes) = question.bytes.iter().find(|bytes| **bytes > MOST_MEASURED) {
        return Err(
            format!("--bytes: expected at most {MOST_MEASURED} to measure, found {bytes}").into(),
        );
    }
    let mut cases = Vec::new();
    for &operation in &question.operations {
        for &ranks in &question.ranks {
            for &bytes in &question.bytes {
                let elements = bytes as usize / ELEMENT_BYTES;
                let case = |choice: Choice| {
                    choice.case(
                        operation,
                        ranks as usize,
                        elements,
                        ELEMENT_BYTES,
                        &question.network,
                    )
                };
                let scheduled = question.choices(operation).into_iter().filter_map(case);
                cases.extend(scheduled.map(Measurable::Scheduled));
                if operation == Operation::AllReduce && ranks == size as u64 {
                    cases.push(Measurable::NativeSum { elements });
                }
            }
        }
    }
    Ok(cases)
}

fn carry_out(
    args: &CollectivesArgs,
    ranks: &dyn Ranks,
    cases: &[Measurable],
) -> Result<(Vec<Node>, Vec<Measured>), MeasureError> {
    let options = MeasureOptions {
        warm_up: args.warm_up as usize,
        repetitions: args.repetitions as usize,
        most_seconds: args.most_seconds,
        seed: 0,
    };
    Ok((nodes(ranks)?, measure(ranks, cases, &options)?))
}

/// Fits, prints and writes.
fn tell(
    args: &CollectivesArgs,
    nodes: Vec<Node>,
    measured: Vec<Measured>,
    ranks_are: &str,
    native: &str,
) -> Result<ExitCode, BoxError> {
    let found = fitted(Measurement {
        ranks_are: ranks_are.to_owned(),
        native: native.to_owned(),
        nodes,
        warm_up: args.warm_up as usize,
        measured,
    })?;
    for line in collectives_text::measured_lines(&found) {
        writeln!(Out, "{line}")?;
    }
    if let Some(out) = &args.out {
        say_report(&report::write_measured(out, &found)?.html)?;
    }
    Ok(ExitCode::SUCCESS)
}
