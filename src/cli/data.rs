//! `batchlab data`: which sets there are, downloading them, importing files one already has.
//!
//! The result (a table, a folder) goes to standard output, progress and notes to standard error.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Out;
use crate::config::env;
use crate::data::DataError;
use crate::data::fetch::{Event, FetchOptions, fetch};
use crate::data::import::import;
use crate::data::sets::{self, SETS, State};

/// `batchlab data ...`
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DataCommand {
    /// List the data sets and what there is of each on this machine
    List {
        #[command(flatten)]
        folder: Folder,
    },
    /// Download a data set from its public mirrors; resumes, and checks sha256
    Fetch {
        /// mnist, fashion-mnist or cifar10
        name: String,
        #[command(flatten)]
        folder: Folder,
        /// Give up on a server that sends nothing for this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
        timeout: u64,
        /// Failures in a row after which a mirror is given up
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
        attempts: u32,
        /// Base URL asked instead of the public mirrors; holds <set>/<file> [default: $BATCHLAB_MIRROR]
        #[arg(long, value_name = "URL", hide_short_help = true)]
        mirror: Option<String>,
    },
    /// Take the files of a data set from a folder; checks sha256
    Import {
        /// mnist, fashion-mnist or cifar10
        name: String,
        /// Folder that holds the files, raw or .gz
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        #[command(flatten)]
        folder: Folder,
    },
}

/// The data folder.
#[derive(Debug, Clone, Args)]
pub(crate) struct Folder {
    /// Data folder [default: $BATCHLAB_DATA, else data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Folder {
    fn path(&self) -> PathBuf {
        self.dir
            .clone()
            .or_else(env::data_dir)
            .unwrap_or_else(|| PathBuf::from("data"))
    }
}

/// Why a command of `batchlab data` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataCommandError {
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The terminal or pipe.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Carries out one command.
///
/// # Errors
/// If the set is unknown, cannot be had or stored, or standard output cannot be written.
pub(crate) fn run(command: &DataCommand) -> Result<(), DataCommandError> {
    match command {
        DataCommand::List { folder } => list(&folder.path()),
        DataCommand::Fetch {
            name,
            folder,
            timeout,
            attempts,
            mirror,
        } => {
            let options = FetchOptions {
                mirror: mirror.clone().or_else(env::mirror),
                stall: Duration::from_secs(*timeout),
                attempts: *attempts,
                ..FetchOptions::default()
            };
            if is_embedded(name) {
                return Ok(());
            }
            let mut progress = Progress::new();
            let stored = fetch(name, &folder.path(), &options, &mut |event| {
                progress.show(event);
            });
            progress.bar.finish_and_clear();
            show(&stored?)
        }
        DataCommand::Import { name, from, folder } => {
            if is_embedded(name) {
                return Ok(());
            }
            show(&import(name, from, &folder.path())?)
        }
    }
}

fn is_embedded(name: &str) -> bool {
    let embedded = name == "digits";
    if embedded {
        note("`digits` is embedded in the program; there is nothing to bring");
    }
    embedded
}

fn show(folder: &Path) -> Result<(), DataCommandError> {
    Ok(writeln!(Out, "{}", folder.display())?)
}

fn note(text: &str) {
    // Standard error may be closed; notes are not worth an error of their own.
    let _ = writeln!(io::stderr(), "{text}");
}

fn list(dir: &Path) -> Result<(), DataCommandError> {
    writeln!(Out, "{:<14} {:<12} about", "name", "state")?;
    writeln!(
        Out,
        "{:<14} {:<12} handwritten digits, 1,797 of 8x8 (UCI; Alpaydin, Kaynak 1998; CC BY 4.0)",
        "digits", "embedded"
    )?;
    let mut notes = Vec::new();
    for set in &SETS {
        let state = match sets::state(set, dir) {
            State::Present => "present",
            State::Absent => "absent",
            State::Incomplete { missing } => {
                notes.push(format!("{}: missing {}", set.name, missing.join(", ")));
                "incomplete"
            }
            State::Damaged { files } => {
                let files: Vec<String> = files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                notes.push(format!(
                    "{}: not the published content: {}",
                    set.name,
                    files.join(", ")
                ));
                "damaged"
            }
        };
        writeln!(Out, "{:<14} {state:<12} {}", set.name, set.about)?;
    }
    for text in notes {
        note(&text);
    }
    note(&format!("data folder: {}", dir.display()));
    Ok(())
}

/// A bar on a terminal; lines, and only for what matters, elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new() -> Self {
        Self {
            bar: ProgressBar::hidden(),
        }
    }

    fn start(&mut self, file: &str, have: u64, total: Option<u64>) {
        self.bar.finish_and_clear();
        self.bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr())
            .with_message(file.to_owned())
            .with_position(have);
        // The templates are constants; a faulty one would leave the default style.
        let template = match total {
            Some(_) => "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{msg} {bytes}, {bytes_per_sec}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Present { file } => self.line(&format!("{file}: already there")),
            Event::Replacing { file } => {
                self.line(&format!(
                    "{file}: not the published content, will be replaced"
                ));
            }
            Event::Started {
                file,
                url,
                have,
                total,
            } => {
                let from = if have > 0 {
                    format!(" (resuming at byte {have})")
                } else {
                    String::new()
                };
                self.line(&format!("{file}: from {url}{from}"));
                self.start(file, have, total);
            }
            Event::Progress { have } => self.bar.set_position(have),
            Event::Retrying { url, why } => self.line(&format!("{url}: {why}; trying again")),
            Event::GaveUp { url, why } => self.line(&format!("{url}: {why}; given up")),
            Event::Stored { file } => self.line(&format!("{file}: stored, checksum right")),
        }
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }
}
