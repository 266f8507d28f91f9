//! Figures (SVG and PNG) and the self-contained HTML page.
//!
//! Draws what [`analysis`](crate::analysis) computed and computes nothing itself. The same tables
//! give the same bytes: no clock, no system font, no unordered map enters here.

mod axis;
mod canvas;
mod course_figures;
mod figure;
mod gap_figures;
mod page;
mod palette;
mod png;

use std::path::{Path, PathBuf};

use crate::analysis::{Course, GapAnalysis};
use crate::store::{self, StoreError};
use figure::{Drawn, Figure};

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
    /// The page could not be rendered.
    #[error("the page: {0}")]
    Page(#[from] minijinja::Error),
}

/// Runs in one figure of [`write_schedule`]: as many as have different lines.
const MOST_PLANS: usize = 28;

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
    let mut draw = |figure: Figure| -> Result<Drawn, ReportError> {
        let svg = figure.svg()?;
        for (ending, bytes) in [("svg", svg.as_bytes()), ("png", figure.png()?.as_slice())] {
            let path = folder.join(format!("{}.{ending}", figure.name));
            store::write_if_changed(&path, bytes)?;
            files.push(path);
        }
        Ok(Drawn { figure, svg })
    };
    let figures = gap_figures::figures(analysis)
        .into_iter()
        .map(&mut draw)
        .collect::<Result<Vec<_>, _>>()?;
    let courses = course_figures::figures(analysis)
        .into_iter()
        .map(|(rule, figure)| Ok((rule, draw(figure)?)))
        .collect::<Result<Vec<_>, ReportError>>()?;
    remove_stale(&folder, &files)?;
    let html = dir.join("report.html");
    let page = page::render(analysis, &figures, &courses)?;
    store::write_if_changed(&html, page.as_bytes())?;
    Ok(ReportFiles {
        html,
        figures: files,
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
fn remove_stale(folder: &Path, files: &[PathBuf]) -> Result<(), ReportError> {
    for path in store::entries(folder)? {
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        let ours = (gap_figures::is_name(name) || course_figures::is_name(name))
            && path.extension().is_some_and(|e| e == "svg" || e == "png");
        if ours && !files.contains(&path) {
            store::remove_file(&path)?;
        }
    }
    Ok(())
}
