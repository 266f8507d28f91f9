//! The tables of probes as typed rows. An error names the file, the place and the column.

use std::path::Path;

use super::probes::{
    LineCurve, LossLine, LossPlane, Probe, ProbeAnalysis, ProbeKey, ProbeRow, ProbeValue, When,
};
use super::tables::AnalysisError;
use crate::config::Split;
use crate::store::{self, Table};

/// A word of a column, or an error that says which there are.
fn word<T: Copy>(
    table: &Path,
    row: usize,
    column: &'static str,
    cell: Option<&str>,
    all: &[T],
    name: fn(T) -> &'static str,
    expected: &'static str,
) -> Result<T, AnalysisError> {
    let found = cell.unwrap_or_default();
    all.iter()
        .copied()
        .find(|one| name(*one) == found)
        .ok_or_else(|| AnalysisError::Word {
            path: table.to_owned(),
            row,
            column,
            expected,
            found: found.to_owned(),
        })
}

/// Reads `probes.csv` of a trial's folder; `None` if there is none. `seed` is put into the values.
///
/// # Errors
/// If the file is unreadable, lacks a column, or a cell does not parse.
pub fn read_probes(trial_dir: &Path, seed: u64) -> Result<Option<Vec<ProbeRow>>, AnalysisError> {
    let path = trial_dir.join("probes.csv");
    if !store::exists(&path) {
        return Ok(None);
    }
    let table = Table::read(&path)?;
    let (steps, epochs) = (table.integers("step")?, table.numbers("epoch")?);
    let (whens, losses) = (table.texts("when")?, table.numbers("train_loss")?);
    let (probes, quantities) = (table.texts("probe")?, table.texts("quantity")?);
    let (scopes, ats) = (table.texts("scope")?, table.numbers("at")?);
    let (values, errors) = (table.numbers("value")?, table.numbers("standard_error")?);
    let (residuals, converged) = (table.numbers("residual")?, table.texts("converged")?);
    let (products, examples) = (table.integers("products")?, table.integers("examples")?);
    let statistics = table.texts("statistics")?;
    let finite = |v: &f64| v.is_finite();
    let rows = (0..table.len()).map(|i| {
        let row = i + 1;
        let truth = |name: bool| if name { "true" } else { "false" };
        let when = word(
            &path,
            row,
            "when",
            whens[i],
            &When::ALL,
            When::name,
            "start, schedule, train_loss, end or after",
        )?;
        let probe = word(
            &path,
            row,
            "probe",
            probes[i],
            &Probe::ALL,
            Probe::name,
            "hessian, gauss_newton, density, sharpness, adversarial or noise",
        )?;
        let quantity = quantities[i].ok_or_else(|| AnalysisError::Word {
            path: path.clone(),
            row,
            column: "quantity",
            expected: "the name of a quantity",
            found: String::new(),
        })?;
        let converged = match converged[i] {
            None => None,
            cell => Some(word(
                &path,
                row,
                "converged",
                cell,
                &[true, false],
                truth,
                "true, false or nothing",
            )?),
        };
        Ok(ProbeRow {
            step: steps[i],
            epoch: epochs[i],
            when,
            train_loss: losses[i].filter(finite),
            key: ProbeKey {
                probe,
                quantity: quantity.to_owned(),
                scope: scopes[i].unwrap_or_default().to_owned(),
                at: ats[i],
            },
            value: ProbeValue {
                seed,
                value: values[i].filter(finite),
                standard_error: errors[i].filter(finite),
                residual: residuals[i],
                converged,
                products: products[i],
            },
            examples: examples[i],
            statistics: statistics[i].map(str::to_owned),
        })
    });
    rows.collect::<Result<_, _>>().map(Some)
}

/// Reads the loss along lines and on a plane of one folder; says whether there was any.
pub(super) fn surfaces(
    analysis: &mut ProbeAnalysis,
    dir: &Path,
    source: &str,
) -> Result<bool, AnalysisError> {
    let line = read_line(&dir.join("probes").join("line.csv"))?;
    let plane = read_plane(&dir.join("probes").join("plane.csv"))?;
    let any = line.is_some() || plane.is_some();
    analysis.lines.extend(line.map(|curves| LossLine {
        source: source.to_owned(),
        curves,
    }));
    analysis
        .planes
        .extend(plane.map(|(alphas, betas, losses)| LossPlane {
            source: source.to_owned(),
            alphas,
            betas,
            losses,
        }));
    Ok(any)
}

/// A number that a column must have in every row.
fn numbers(table: &Table, path: &Path, column: &'static str) -> Result<Vec<f64>, AnalysisError> {
    let cells = table.numbers(column)?.into_iter().enumerate();
    cells
        .map(|(i, cell)| {
            cell.filter(|v| v.is_finite())
                .ok_or_else(|| AnalysisError::Word {
                    path: path.to_owned(),
                    row: i + 1,
                    column,
                    expected: "a finite number",
                    found: cell.map_or_else(String::new, |v| v.to_string()),
                })
        })
        .collect()
}

/// Reads `line.csv`; `None` if there is none.
fn read_line(path: &Path) -> Result<Option<Vec<LineCurve>>, AnalysisError> {
    if !store::exists(path) {
        return Ok(None);
    }
    let table = Table::read(path)?;
    let alphas = numbers(&table, path, "alpha")?;
    let (splits, losses) = (table.texts("split")?, table.numbers("loss")?);
    let accuracies = table.numbers("accuracy")?;
    let labels = if table.has("label") {
        table.texts("label")?
    } else {
        vec![None; table.len()]
    };
    let mut curves: Vec<LineCurve> = Vec::new();
    for (i, alpha) in alphas.into_iter().enumerate() {
        let split = word(
            path,
            i + 1,
            "split",
            splits[i],
            &[Split::Train, Split::Validation, Split::Test],
            Split::name,
            "train, validation or test",
        )?;
        let value = (alpha, losses[i].unwrap_or(f64::NAN), accuracies[i]);
        let is = |c: &&mut LineCurve| c.split == split && c.label.as_deref() == labels[i];
        match curves.iter_mut().find(is) {
            Some(curve) => curve.points.push(value),
            None => curves.push(LineCurve {
                label: labels[i].map(str::to_owned),
                split,
                points: vec![value],
            }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    Ok((!curves.is_empty()).then_some(curves))
}

type Plane = (Vec<f64>, Vec<f64>, Vec<Option<f64>>);

/// Reads `plane.csv`; `None` if there is none. Places of the grid without a row have no loss.
fn read_plane(path: &Path) -> Result<Option<Plane>, AnalysisError> {
    if !store::exists(path) {
        return Ok(None);
    }
    let table = Table::read(path)?;
    let columns = [
        numbers(&table, path, "alpha")?,
        numbers(&table, path, "beta")?,
    ];
    let losses = table.numbers("loss")?;
    let [alphas, betas] = [0, 1].map(|i| {
        let mut places = columns[i].clone();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    });
    let mut grid = vec![None; alphas.len() * betas.len()];
    for (i, loss) in losses.into_iter().enumerate() {
        let at = |places: &[f64], value: f64| places.partition_point(|p| *p < value);
        let (a, b) = (at(&alphas, columns[0][i]), at(&betas, columns[1][i]));
        grid[b * alphas.len() + a] = loss.filter(|v| v.is_finite());
    }
    Ok((alphas.len() > 1 && betas.len() > 1).then_some((alphas, betas, grid)))
}
