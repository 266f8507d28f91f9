//! `batchlab config check|show|schema`: a study file looked at, without running it.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;

use super::schedule;
use crate::config::{self, StudyConfig, TrialSpec, value_text};

/// Check a study file, or show what it stands for.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a study file and say what it would run.
    Check {
        /// The study file.
        file: PathBuf,
        /// Change a key: `train.epochs=10`. May be given several times.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Print every trial as the TOML file it stands for, each with its batch and its rate.
    Show {
        /// The study file.
        file: PathBuf,
        /// Only this trial, by its number from 0 or its id. The output is a study file of its own.
        #[arg(long, value_name = "N")]
        trial: Option<String>,
        /// Change a key: `train.epochs=10`. May be given several times.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Instead, print batch, rate, momentum and noise scale over the run, without training.
        #[arg(long)]
        schedule: bool,
        /// With --schedule: the number of training examples; the data are then not read.
        #[arg(long, value_name = "N", requires = "schedule", value_parser = clap::value_parser!(u32).range(1..))]
        examples: Option<u32>,
        /// With --schedule: draw it too, as an SVG or a PNG.
        #[arg(long, value_name = "FILE", requires = "schedule")]
        plot: Option<PathBuf>,
    },
    /// Print the JSON schema of study files, for editors.
    Schema,
}

/// `--trial` names no trial.
#[derive(Debug, thiserror::Error)]
#[error("{file}: there is no trial `{asked}`\nhint: trials are numbered 0 to {last}")]
struct NoSuchTrial {
    file: String,
    asked: String,
    last: usize,
}

impl ConfigCommand {
    /// Runs the command; what it has to say goes to `out`.
    ///
    /// # Errors
    /// Errors of the study file, or of writing.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self {
            ConfigCommand::Check { file, set } => {
                let study = config::load(file, set)?;
                check(&study, out)?;
            }
            ConfigCommand::Show {
                file,
                trial,
                set,
                schedule,
                examples,
                plot,
            } => {
                let study = config::load(file, set)?;
                let trials = chosen(&study, trial.as_deref())?;
                if *schedule {
                    let options = schedule::Options {
                        examples: examples.map(|n| n as usize),
                        plot: plot.as_deref(),
                    };
                    schedule::show(&study, &trials, &options, out)?;
                } else {
                    show(&study, &trials, out)?;
                }
            }
            ConfigCommand::Schema => out.write_all(config::schema_json().as_bytes())?,
        }
        out.flush()?;
        Ok(())
    }
}

fn check(study: &StudyConfig, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{}: ok (the data were not looked at; `batchlab run --dry-run` does)",
        study.file
    )?;
    for axis in &study.axes {
        let points: Vec<String> = axis
            .values
            .iter()
            .map(|point| point.iter().map(value_text).collect::<Vec<_>>().join("/"))
            .collect();
        writeln!(out, "  {}: {}", axis.keys.join("/"), points.join(", "))?;
    }
    let seeds: Vec<String> = study.seeds.iter().map(u64::to_string).collect();
    writeln!(out, "  seeds: {}", seeds.join(", "))?;
    let sizes: Vec<String> = study
        .axes
        .iter()
        .map(|axis| axis.values.len())
        .chain([study.seeds.len()])
        .map(|n| n.to_string())
        .collect();
    let trials = study.trials.len();
    writeln!(out, "  {trials} trials = {}", sizes.join(" x "))
}

/// All trials, or the one asked for.
fn chosen<'a>(
    study: &'a StudyConfig,
    asked: Option<&str>,
) -> Result<Vec<&'a TrialSpec>, NoSuchTrial> {
    let is = |trial: &&TrialSpec| {
        asked.is_none_or(|asked| asked == trial.id || asked.parse() == Ok(trial.index))
    };
    let trials: Vec<&TrialSpec> = study.trials.iter().filter(is).collect();
    match (trials.is_empty(), asked) {
        (true, Some(asked)) => Err(NoSuchTrial {
            file: study.file.clone(),
            asked: asked.to_owned(),
            last: study.trials.len().saturating_sub(1),
        }),
        _ => Ok(trials),
    }
}

fn show(study: &StudyConfig, trials: &[&TrialSpec], out: &mut dyn Write) -> std::io::Result<()> {
    for trial in trials {
        let config = &trial.config;
        let mut point: Vec<String> = trial
            .point
            .iter()
            .map(|(key, value)| format!("{key} = {}", value_text(value)))
            .collect();
        point.push(format!("seed = {}", trial.seed));
        writeln!(
            out,
            "# trial {} of {}, id {}",
            trial.index,
            study.trials.len(),
            trial.id
        )?;
        writeln!(out, "# point: {}", point.join(", ").replace('\n', "\\n"))?;
        writeln!(out, "# global batch: {}", config.explain_batch())?;
        writeln!(out, "# learning rate: {}", config.explain_rate())?;
        writeln!(out, "# warm-up: {}", config.explain_warmup())?;
        writeln!(out, "{}", config.to_toml())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: &str = "seeds = 2\nmodel = \"mlp\"\ndata.source = \"digits\"\n\
        [train]\nworkers = 4\nepochs = 1\n\
        [learning_rate]\nbase_lr = 0.1\nbase_batch = 32\nscaling = \"linear\"\n\
        [sweep]\n\"train.global_batch\" = { log2 = [32, 64] }\n";

    fn shown(asked: Option<&str>) -> Result<String, Box<dyn Error + Send + Sync>> {
        let study = config::parse(STUDY, "two.toml", &[])?;
        let mut out = Vec::new();
        show(&study, &chosen(&study, asked)?, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn a_shown_trial_says_its_rate_and_is_a_study_of_its_own() {
        let text = shown(Some("3")).expect("trial 3 is there");
        assert!(
            text.contains("# global batch: 64 = 4 workers x 16\n"),
            "{text}"
        );
        assert!(
            text.contains("# learning rate: 0.2 = 0.1 x 64/32 (linear)\n"),
            "{text}"
        );
        let alone = config::parse(&text, "alone.toml", &[]).expect("a study file");
        let study = config::parse(STUDY, "two.toml", &[]).expect("a study file");
        assert_eq!(alone.trials[0].id, study.trials[3].id);
        assert_eq!(shown(Some(&alone.trials[0].id)).expect("by id"), text);
    }

    #[test]
    fn a_trial_that_is_not_there_is_an_error_with_the_numbers_that_are() {
        let error = shown(Some("4"))
            .expect_err("there are four trials")
            .to_string();
        assert_eq!(
            error,
            "two.toml: there is no trial `4`\nhint: trials are numbered 0 to 3"
        );
    }

    #[test]
    fn check_says_how_the_trials_come_about() {
        let study = config::parse(STUDY, "two.toml", &[]).expect("a study file");
        let mut out = Vec::new();
        check(&study, &mut out).expect("memory takes it");
        assert_eq!(
            String::from_utf8(out).expect("UTF-8"),
            "two.toml: ok (the data were not looked at; `batchlab run --dry-run` does)\n  train.global_batch: 32, 64\n  seeds: 0, 1\n  4 trials = 2 x 2\n"
        );
    }
}
