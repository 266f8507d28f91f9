//! Figures (SVG and PNG) and the self-contained HTML page.
//!
//! Draws what [`analysis`](crate::analysis) computed and computes nothing itself. The same tables
//! give the same bytes: no clock, no system font, no unordered map enters here.

mod axis;
mod canvas;
mod collective_figures;
mod collective_page;
mod course_figures;
mod critical_chart;
mod critical_estimates;
mod critical_figures;
mod critical_page;
mod critical_search;
mod critical_tables;
mod critical_words;
mod figure;
mod gap_figures;
mod map;
mod page;
mod palette;
mod plan_figures;
mod plan_page;
mod png;
mod probe_figures;
mod probe_noise;
mod probe_surfaces;
mod probe_tables;
mod probe_words;
mod staleness_figures;

use std::path::{Path, PathBuf};

use crate::analysis::critical_batch::CriticalBatch;
use crate::analysis::{Course, GapAnalysis, ProbeAnalysis};
use crate::store::{self, StoreError};
pub use collective_page::{write_collectives, write_measured};
use figure::{Drawn, Figure, Plot};
pub use plan_page::write_plan;
use probe_figures::Topic;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be written, or a figure of an earlier report not removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A figure could not be drawn.
    #[error("figure `{figure}`: {message}")]
    Draw {
        /// Name of the figure.
        figure: String,
        /// What the drawing library says.
        message: String,
    },
    /// A figure was to be written under a name that says no format.
    #[error("{}: expected a name that ends in .svg or .png", path.display())]
    Ending {
        /// The file.
        path: PathBuf,
    },
    /// Too many runs for one figure.
    #[error("{found} runs are too many for one figure, which takes at most {MOST_PLANS}")]
    TooMany {
        /// The runs.
        found: usize,
    },
    /// Too many cases for one report.
    #[error(
        "{found} cases are too many for one report, which takes at most {MOST_CASES}\nhint: split the table or the sweep"
    )]
    TooManyCases {
        /// The cases.
        found: usize,
    },
    /// The page could not be rendered.
    #[error("the page: {0}")]
    Page(#[from] minijinja::Error),
}

/// Runs in one figure of [`write_schedule`]: as many as have different lines.
const MOST_PLANS: usize = 28;

/// Cases in one report of critical batch sizes.
const MOST_CASES: usize = 200;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFiles {
    /// The page.
    pub html: PathBuf,
    /// Figures, SVG and PNG, in the order of the page.
    pub figures: Vec<PathBuf>,
}

/// Writes `report.html` and `figures/` into the results folder `dir`.
///
/// # Errors
/// If the folder is not writable; the drawing and page errors would be faults of this program.
pub fn write(dir: &Path, analysis: &GapAnalysis) -> Result<ReportFiles, ReportError> {
    let folder = dir.join("figures");
    store::create_folder(&folder)?;
    let mut files = Vec::new();
    let figures = gap_figures::figures(analysis)
        .into_iter()
        .map(|figure| draw(&folder, figure, &mut files))
        .collect::<Result<Vec<_>, _>>()?;
    let courses = course_figures::figures(analysis)
        .into_iter()
        .map(|(rule, figure)| Ok((rule, draw(&folder, figure, &mut files)?)))
        .collect::<Result<Vec<_>, ReportError>>()?;
    let late = staleness_figures::figures(analysis)
        .into_iter()
        .map(|figure| draw(&folder, figure, &mut files))
        .collect::<Result<Vec<_>, _>>()?;
    let probes = match &analysis.probes {
        Some(probes) => draw_probes(&folder, probes, &mut files)?,
        None => Vec::new(),
    };
    remove_stale(&folder, &files, |name| {
        gap_figures::is_name(name)
            || course_figures::is_name(name)
            || staleness_figures::is_name(name)
            || probe_figures::is_name(name)
    })?;
    let html = dir.join("report.html");
    let page = page::render(analysis, &figures, &courses, &late, &probes)?;
    store::write_if_changed(&html, page.as_bytes())?;
    Ok(ReportFiles {
        html,
        figures: files,
    })
}

/// Writes `report.html`, `figures/`, `steps_to_target.csv` and `critical_batch.csv` of critical batch sizes
/// into `dir`.
///
/// # Errors
/// As those of [`write()`].
pub fn write_critical(dir: &Path, found: &CriticalBatch) -> Result<ReportFiles, ReportError> {
    if found.cases.len() > MOST_CASES {
        return Err(ReportError::TooManyCases {
            found: found.cases.len(),
        });
    }
    let folder = dir.join("figures");
    store::create_folder(&folder)?;
    let mut files = Vec::new();
    let figures = critical_figures::figures(found)
        .into_iter()
        .map(|figure| draw(&folder, figure, &mut files))
        .collect::<Result<Vec<_>, _>>()?;
    remove_stale(&folder, &files, critical_figures::is_name)?;
    let html = dir.join("report.html");
    critical_tables::write(dir, found)?;
    let page = critical_page::render(found, &figures)?;
    store::write_if_changed(&html, page.as_bytes())?;
    Ok(ReportFiles {
        html,
        figures: files,
    })
}

/// Writes the figures of what probes measured into `folder`, SVG and PNG, without a page, and removes
/// figures of probes there that are not of this analysis. Returns the files in the order of the
/// page.
///
/// # Errors
/// As those of [`write()`].
pub fn write_probe_figures(
    folder: &Path,
    analysis: &ProbeAnalysis,
) -> Result<Vec<PathBuf>, ReportError> {
    store::create_folder(folder)?;
    let mut files = Vec::new();
    draw_probes(folder, analysis, &mut files)?;
    remove_stale(folder, &files, probe_figures::is_name)?;
    Ok(files)
}

/// A figure of the probes, the section it belongs to, and whether its colours are numbers.
struct DrawnProbe {
    topic: Topic,
    map: bool,
    drawn: Drawn,
}

fn draw_probes(
    folder: &Path,
    analysis: &ProbeAnalysis,
    files: &mut Vec<PathBuf>,
) -> Result<Vec<DrawnProbe>, ReportError> {
    let figures = probe_figures::figures(analysis).into_iter();
    figures
        .map(|(topic, figure)| {
            Ok(DrawnProbe {
                topic,
                map: probe_figures::is_map(&figure),
                drawn: draw(folder, figure, files)?,
            })
        })
        .collect()
}

/// Writes a figure as SVG and as PNG.
fn draw<P: Plot>(
    folder: &Path,
    figure: Figure<P>,
    files: &mut Vec<PathBuf>,
) -> Result<Drawn, ReportError> {
    let svg = figure.svg()?;
    for (ending, bytes) in [("svg", svg.as_bytes()), ("png", figure.png()?.as_slice())] {
        let path = folder.join(format!("{}.{ending}", figure.name));
        store::write_if_changed(&path, bytes)?;
        files.push(path);
    }
    Ok(Drawn {
        name: figure.name,
        caption: figure.caption,
        svg,
    })
}

/// Draws the schedules of planned runs into one figure, an SVG or a PNG by the ending of `path`:
/// each run with its name, and `key`, what the names are values of.
///
/// # Errors
/// If the ending is another, the runs are too many to tell apart, or the file cannot be written.
pub fn write_schedule(
    path: &Path,
    study: &str,
    key: &str,
    plans: &[(String, Course)],
) -> Result<(), ReportError> {
    if plans.len() > MOST_PLANS {
        return Err(ReportError::TooMany { found: plans.len() });
    }
    let ending = path.extension().and_then(|e| e.to_str());
    let figure = course_figures::of_plans(study, key, plans);
    let bytes = match ending.map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => figure.svg()?.into_bytes(),
        Some("png") => figure.png()?,
        _ => {
            return Err(ReportError::Ending {
                path: path.to_owned(),
            });
        }
    };
    store::write_atomic(path, &bytes)?;
    Ok(())
}

/// Removes figures of an earlier report that this one does not have, and nothing else.
fn remove_stale(
    folder: &Path,
    files: &[PathBuf],
    is_name: impl Fn(&str) -> bool,
) -> Result<(), ReportError> {
    for path in store::entries(folder)? {
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        let ours = is_name(name) && path.extension().is_some_and(|e| e == "svg" || e == "png");
        if ours && !files.contains(&path) {
            store::remove_file(&path)?;
        }
    }
    Ok(())
}
