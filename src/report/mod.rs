//! Figures (SVG and PNG) and the self-contained HTML page.
//!
//! Draws what [`analysis`](crate::analysis) computed and computes nothing itself. The same tables
//! give the same bytes: no clock, no system font, no unordered map enters here.

mod axis;
mod canvas;
mod figure;
mod gap_figures;
mod page;
mod palette;
mod png;

use std::path::{Path, PathBuf};

use crate::analysis::GapAnalysis;
use crate::store::{self, StoreError};

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
    /// The page could not be rendered.
    #[error("the page: {0}")]
    Page(#[from] minijinja::Error),
}

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
    let figures = gap_figures::figures(analysis);
    let mut drawn = Vec::with_capacity(figures.len());
    let mut files = Vec::new();
    for figure in &figures {
        let svg = figure.svg()?;
        for (ending, bytes) in [("svg", svg.as_bytes()), ("png", figure.png()?.as_slice())] {
            let path = folder.join(format!("{}.{ending}", figure.name));
            store::write_if_changed(&path, bytes)?;
            files.push(path);
        }
        drawn.push(svg);
    }
    remove_stale(&folder, &files)?;
    let html = dir.join("report.html");
    store::write_if_changed(&html, page::render(analysis, &figures, &drawn)?.as_bytes())?;
    Ok(ReportFiles {
        html,
        figures: files,
    })
}

/// Removes figures of an earlier report that this one does not have, and nothing else.
fn remove_stale(folder: &Path, files: &[PathBuf]) -> Result<(), ReportError> {
    for path in store::entries(folder)? {
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        let ours = gap_figures::is_name(name)
            && path.extension().is_some_and(|e| e == "svg" || e == "png");
        if ours && !files.contains(&path) {
            store::remove_file(&path)?;
        }
    }
    Ok(())
}
