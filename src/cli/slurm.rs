//! `batchlab slurm`: a batch script for a study.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};

use crate::config;
use crate::study::BoxError;

/// Print a Slurm batch script that runs a study.
///
/// The script goes to standard output: look at it, then
/// `batchlab slurm study.toml --nodes 4 > study.sbatch` and `sbatch study.sbatch`. Submitted again, it
/// goes on where a job was ended by its time limit.
#[derive(Debug, Args)]
pub(super) struct SlurmArgs {
    /// The study file.
    config: PathBuf,
    /// What the tasks share: the shards of each update of one trial at a time (MPI), the trials (MPI), or
    /// the trials as an array of jobs, which needs no MPI.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    distribute: Shared,
    /// Nodes. Of an array: jobs at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = above_zero())]
    nodes: u64,
    /// Ranks on a node. Default: 1. Not of an array.
    #[arg(long, value_name = "N", value_parser = above_zero())]
    ranks_per_node: Option<u64>,
    /// Cores, and so threads, of a rank.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = above_zero())]
    cores_per_rank: u64,
    /// Time limit of the job, as Slurm takes it.
    #[arg(long, value_name = "TIME", default_value = "01:00:00", value_parser = slurm_time)]
    time: String,
    /// Partition.
    #[arg(long, value_name = "NAME", value_parser = word)]
    partition: Option<String>,
    /// Account.
    #[arg(long, value_name = "NAME", value_parser = word)]
    account: Option<String>,
    /// What starts the ranks. Default: mpirun. Not of an array.
    #[arg(long, value_enum)]
    launcher: Option<Launcher>,
    /// The program.
    #[arg(long, value_name = "PATH", default_value = "batchlab")]
    program: String,
    /// The folder in which the study gets its own; all nodes must see it.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
}

/// What the tasks of a job share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Shared {
    #[default]
    Shards,
    Trials,
    Array,
}

/// What starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Launcher {
    /// Open MPI's, or another's.
    Mpirun,
    /// Slurm's own, where the MPI library was built for it.
    Srun,
}

fn above_zero() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1_000_000)
}

/// MINUTES, HH:MM:SS, DAYS-HH and the like.
fn slurm_time(text: &str) -> Result<String, String> {
    let right = !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || c == ':' || c == '-');
    if right {
        Ok(text.to_owned())
    } else {
        Err("expected a time such as 90, 01:30:00 or 2-12:00:00".to_owned())
    }
}

fn word(text: &str) -> Result<String, String> {
    let right = |c: char| c.is_ascii_alphanumeric() || "._-,".contains(c);
    if !text.is_empty() && text.chars().all(right) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits, dots, commas, dashes and underscores".to_owned())
    }
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+=:,@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// `batchlab slurm`
///
/// # Errors
/// A study file that does not load, or output that cannot be written.
pub(super) fn run(args: &SlurmArgs, out: &mut impl Write) -> Result<(), BoxError> {
    let study = config::load(&args.config, &[])?;
    let critical = study.critical_batch.is_some();
    let path = args
        .config
        .to_str()
        .ok_or("the path of the study file is not UTF-8")?;
    let results = args
        .results
        .to_str()
        .ok_or("--results: the path is not UTF-8")?;
    if args.program.is_empty() {
        return Err("--program: expected a path, found an empty one".into());
    }
    let array = args.distribute == Shared::Array;
    for (flag, given) in [
        ("--ranks-per-node", args.ranks_per_node.is_some()),
        ("--launcher", args.launcher.is_some()),
    ] {
        if array && given {
            return Err(format!(
                "{flag}: the jobs of an array are single processes\n\
                 hint: leave it out, or use --distribute shards or trials"
            )
            .into());
        }
    }
    let ranks_per_node = args.ranks_per_node.unwrap_or(1);
    // Not an option, however it begins.
    let path = if path.starts_with('-') {
        format!("./{path}")
    } else {
        path.to_owned()
    };
    let command = if critical { "critical-batch" } else { "run" };
    let mut call = format!("{} {command} {}", quoted(&args.program), quoted(&path));
    if results != "results" {
        call += " --results ";
        call += &quoted(results);
    }
    let threads = args.cores_per_rank.to_string();
    for word in [" --threads ", &threads, " --quiet"] {
        call += word;
    }

    let mut lines = vec!["#!/bin/bash".to_owned()];
    let mut ask = |option: &str, value: &str| lines.push(format!("#SBATCH --{option}={value}"));
    ask("job-name", &study.name);
    ask("time", &args.time);
    if let Some(partition) = &args.partition {
        ask("partition", partition);
    }
    if let Some(account) = &args.account {
        ask("account", account);
    }
    if array {
        // Who knows all trials beforehand gives each its job; others share them out as they come.
        let jobs = if critical {
            args.nodes
        } else {
            study.trials.len() as u64
        };
        let last = jobs.saturating_sub(1);
        ask("array", &format!("0-{last}%{}", args.nodes));
        ask("ntasks", "1");
    } else {
        ask("nodes", &args.nodes.to_string());
        ask("ntasks-per-node", &ranks_per_node.to_string());
    }
    ask("cpus-per-task", &args.cores_per_rank.to_string());
    ask("output", &format!("{}-%j.log", study.name));
    lines.push("set -euo pipefail".to_owned());
    match args.distribute {
        Shared::Array if critical => {}
        Shared::Array => call += " --index \"$SLURM_ARRAY_TASK_ID\"",
        Shared::Shards => {}
        Shared::Trials => call += " --distribute trials",
    }
    if array {
        lines.push(format!("exec {call}"));
    } else {
        let ranks = args.nodes * ranks_per_node;
        let launcher = match args.launcher.unwrap_or(Launcher::Mpirun) {
            Launcher::Mpirun => format!(
                "mpirun -n {ranks} --map-by ppr:{ranks_per_node}:node:PE={} --bind-to core",
                args.cores_per_rank
            ),
            Launcher::Srun => format!("srun --ntasks={ranks} --kill-on-bad-exit=1"),
        };
        lines.push(format!("{launcher} {call}"));
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a/b-c.toml"), "a/b-c.toml");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("$(rm)"), "'$(rm)'");
    }

    #[test]
    fn times_that_slurm_does_not_take_are_refused() {
        for right in ["90", "01:30:00", "2-12", "2-12:00:00"] {
            assert!(slurm_time(right).is_ok());
        }
        for wrong in ["", "1h", "-5", "1 2"] {
            assert!(slurm_time(wrong).is_err());
        }
    }
}
