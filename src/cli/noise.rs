//! `batchlab noise`: the noise scale of the gradient from logged norms.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::analysis::numbers::{count, list, plural, significant};
use crate::math::noise_scale::{
    self, NoiseScale, NoiseScaleError, NormRow, Options, Quantity, Ratio, RatioInterval,
    Undetermined,
};
use crate::store::{self, StoreError, Table};
use crate::study::BoxError;

/// Largest integer below which each has a floating-point number of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The noise scale of the gradient, B_simple, from squared norms that any program logged.
///
/// The file has the columns step, b_small, g2_small, b_big, g2_big, and others that are not read: in
/// each row g2_big is the squared norm of the mean gradient of b_big examples, g2_small the mean of
/// the squared norms of mean gradients of b_small examples (workers, micro-batches) at the same
/// step. Averages over rows come first, the quotient last, with a 95 % interval from the jackknife
/// over blocks of steps.
#[derive(Debug, Args)]
pub(super) struct NoiseArgs {
    /// The table, such as noise.csv in the folder of a trial
    #[arg(long, value_name = "FILE")]
    from_csv: PathBuf,
    /// Blocks of the jackknife [default: the root of the number of rows, at most 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
    /// Training examples, where batches are drawn from them without replacement
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    population: Option<u64>,
    /// Leave out rows of steps below this one
    #[arg(long, value_name = "STEP", default_value_t = 0)]
    skip: u64,
    /// Show the noise scale over training as well, in windows of so many rows; a rest shorter than half
    /// a window, or than --blocks, joins the last one
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// The layer to look at, in a table with the column `layer`
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// Take the norms of AdamW's preconditioned gradient: adamw_g2_small, adamw_g2_big
    #[arg(long)]
    adamw: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// What is wrong with a table.
#[derive(Debug, thiserror::Error)]
enum NoiseCommandError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}, row {row}, column `{column}`: expected {expected}, found {found}", path.display())]
    Cell {
        path: PathBuf,
        row: usize,
        column: String,
        expected: &'static str,
        found: String,
    },
    #[error("{}: expected rows of {wanted}, found {found}", path.display())]
    NothingLeft {
        path: PathBuf,
        wanted: String,
        found: String,
    },
    #[error("{}: expected one layer, found {found}\nhint: --layer NAME", path.display())]
    Layers { path: PathBuf, found: String },
    #[error("{}: {error}", path.display())]
    Estimate {
        path: PathBuf,
        error: NoiseScaleError,
    },
}

/// Prints the noise scale of a table.
pub(super) fn run(args: &NoiseArgs, out: &mut dyn Write) -> Result<(), BoxError> {
    let rows = Rows::read(args)?;
    let options = Options {
        blocks: args.blocks.map(|blocks| blocks as usize),
        population: args.population.map(|n| n as usize),
    };
    let whole = rows.of(|norms| noise_scale::noise_scale(norms, options))?;
    let windows = match args.window {
        None => Vec::new(),
        Some(window) => rows.of(|norms| noise_scale::course(norms, options, window as usize))?,
    };
    if args.json {
        let mut line = as_json(&whole);
        if args.window.is_some() {
            line["windows"] = windows.iter().map(as_json).collect();
        }
        writeln!(out, "{line}")?;
        return Ok(());
    }
    print(args, &whole, out)?;
    if args.window.is_some() {
        print_windows(&windows, out)?;
    }
    Ok(())
}

/// Norms, and the row of the file that each is from.
struct Rows<'a> {
    path: &'a Path,
    norms: Vec<NormRow>,
    places: Vec<usize>,
}

impl<'a> Rows<'a> {
    fn read(args: &'a NoiseArgs) -> Result<Self, NoiseCommandError> {
        let path = args.from_csv.as_path();
        // Programs differ in whether the last line ends.
        let mut bytes = store::read(path)?;
        if bytes.last().is_some_and(|&last| last != b'\n') {
            bytes.push(b'\n');
        }
        let table = Table::from_csv(path, &bytes)?;
        let prefix = if args.adamw { "adamw_" } else { "" };
        let small = format!("{prefix}g2_small");
        let big = format!("{prefix}g2_big");
        let columns = ["step", "b_small", &small, "b_big", &big];
        // A column that is missing comes before a cell that is wrong.
        for column in columns {
            table.texts(column)?;
        }
        let layers = layer_column(args, path, &table)?;
        let mut numbers = Vec::new();
        for column in columns {
            numbers.push(table.numbers(column)?);
        }
        let mut rows = Self {
            path,
            norms: Vec::new(),
            places: Vec::new(),
        };
        let mut last_step = None;
        for index in 0..table.len() {
            if layers.as_ref().is_some_and(|chosen| !chosen[index]) {
                continue;
            }
            let wrong = |column: usize, expected, found: String| NoiseCommandError::Cell {
                path: path.to_owned(),
                row: index + 1,
                column: columns[column].to_owned(),
                expected,
                found,
            };
            let number = |column: usize| {
                numbers[column][index]
                    .ok_or_else(|| wrong(column, "a number", "an empty cell".to_owned()))
            };
            let step = number(0)?;
            if !((0.0..EXACT).contains(&step) && step.fract() == 0.0) {
                return Err(wrong(0, "an integer from 0", step.to_string()));
            }
            let step = step as u64;
            last_step = Some(step);
            if step < args.skip {
                continue;
            }
            rows.norms.push(NormRow {
                step,
                b_small: number(1)?,
                g2_small: number(2)?,
                b_big: number(3)?,
                g2_big: number(4)?,
            });
            rows.places.push(index + 1);
        }
        if rows.norms.is_empty() {
            return Err(NoiseCommandError::NothingLeft {
                path: path.to_owned(),
                wanted: if args.skip == 0 {
                    "norms".to_owned()
                } else {
                    format!("steps from {} on (--skip)", args.skip)
                },
                found: last_step.map_or("none".to_owned(), |step| format!("the last at {step}")),
            });
        }
        Ok(rows)
    }

    /// An estimate of the rows; an error names the row of the file.
    fn of<T>(
        &self,
        estimate: impl FnOnce(&[NormRow]) -> Result<T, NoiseScaleError>,
    ) -> Result<T, NoiseCommandError> {
        estimate(&self.norms).map_err(|mut error| {
            if let NoiseScaleError::Value { row, .. }
            | NoiseScaleError::OnePiece { row, .. }
            | NoiseScaleError::Step { row, .. } = &mut error
            {
                *row = self.places.get(*row - 1).copied().unwrap_or(*row);
            }
            NoiseCommandError::Estimate {
                path: self.path.to_owned(),
                error,
            }
        })
    }
}

/// Which rows are of the layer asked for; `None`: all of them.
fn layer_column(
    args: &NoiseArgs,
    path: &Path,
    table: &Table,
) -> Result<Option<Vec<bool>>, NoiseCommandError> {
    if args.layer.is_none() && !table.has("layer") {
        return Ok(None);
    }
    let layers = table.texts("layer")?;
    let mut names: Vec<String> = Vec::new();
    for layer in layers.iter().flatten() {
        if !names.iter().any(|name| name == layer) {
            names.push((*layer).to_owned());
        }
    }
    match &args.layer {
        Some(wanted) if names.contains(wanted) => Ok(Some(
            layers.iter().map(|layer| *layer == Some(wanted)).collect(),
        )),
        Some(wanted) => Err(NoiseCommandError::NothingLeft {
            path: path.to_owned(),
            wanted: format!("the layer `{wanted}`"),
            found: match names.as_slice() {
                [] => "none".to_owned(),
                names => list(names),
            },
        }),
        None if names.len() > 1 => Err(NoiseCommandError::Layers {
            path: path.to_owned(),
            found: list(&names),
        }),
        None => Ok(None),
    }
}

fn print(args: &NoiseArgs, scale: &NoiseScale, out: &mut dyn Write) -> std::io::Result<()> {
    if scale.looks_summed() {
        writeln!(
            out,
            "note: tr Sigma is negative beyond doubt: g2_big is above g2_small. Norms must be of mean \
             gradients; the gradient of a loss summed over b examples is b times as long, its squared \
             norm b^2 times"
        )?;
    }
    writeln!(
        out,
        "{}: {}, steps {} to {}",
        args.from_csv.display(),
        plural(scale.rows, "row", "rows"),
        scale.first_step,
        scale.last_step
    )?;
    let parts = &scale.parts;
    match parts.b_simple.value {
        Ok(value) => writeln!(
            out,
            "noise scale B_simple: {} examples{}",
            significant(value, 4),
            interval(&parts.b_simple)
        )?,
        Err(reason) => writeln!(
            out,
            "noise scale B_simple: undetermined, {reason}{}",
            interval(&parts.b_simple)
        )?,
    }
    writeln!(out, "tr Sigma (numerator): {}", quantity(parts.tr_sigma))?;
    writeln!(
        out,
        "|G|^2 (denominator): {}",
        quantity(parts.squared_gradient)
    )?;
    let or_none = |value: Option<f64>| value.map_or("none".to_owned(), |v| significant(v, 4));
    writeln!(
        out,
        "mean norm of the big batch's gradient: {}",
        significant(scale.gradient_norm, 4)
    )?;
    writeln!(
        out,
        "signal to noise of the big batch, |G|^2/(tr Sigma/B): {}",
        or_none(scale.snr)
    )?;
    writeln!(
        out,
        "cosine between two small batches: {}",
        or_none(scale.cosine)
    )?;
    if scale.blocks > 1 {
        let (length, rest) = (scale.rows / scale.blocks, scale.rows % scale.blocks);
        let longer = if rest > 0 {
            format!(" to {}", length + 1)
        } else {
            String::new()
        };
        writeln!(
            out,
            "intervals and errors: jackknife over {} blocks of {length}{longer} rows in a row",
            scale.blocks
        )?;
    } else {
        writeln!(
            out,
            "no interval: it takes 2 blocks of rows; --blocks N sets their number (by default the root of the number of rows)"
        )?;
    }
    Ok(())
}

/// ", 95 % interval 120 to 310"; of a negative quotient the upper end alone.
fn interval(ratio: &Ratio) -> String {
    match ratio.interval {
        Some(RatioInterval::Bounded(interval))
            if ratio.value == Err(Undetermined::NumeratorNotPositive) =>
        {
            format!(
                "; at most {} examples (95 %)",
                significant(interval.high, 4)
            )
        }
        Some(RatioInterval::Bounded(interval)) => format!(
            ", 95 % interval {} to {}",
            significant(interval.low, 4),
            significant(interval.high, 4)
        ),
        Some(RatioInterval::AtLeast(low)) => {
            format!("; at least {} examples (95 %)", significant(low, 4))
        }
        None => String::new(),
    }
}

fn quantity(quantity: Quantity) -> String {
    let value = significant(quantity.value, 4);
    match quantity.standard_error {
        Some(error) => format!("{value}, standard error {}", significant(error, 2)),
        None => value,
    }
}

fn print_windows(windows: &[NoiseScale], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "\n{:>10} {:>10} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11}",
        "first step", "last step", "rows", "B_simple", "low", "high", "tr Sigma", "|G|^2"
    )?;
    for window in windows {
        let ratio = &window.parts.b_simple;
        let value = match ratio.value {
            Ok(value) => significant(value, 4),
            Err(_) => "undet.".to_owned(),
        };
        let end = |end: Option<f64>| end.map_or("-".to_owned(), |v| significant(v, 4));
        writeln!(
            out,
            "{:>10} {:>10} {:>6} {value:>11} {:>11} {:>11} {:>11} {:>11}",
            window.first_step,
            window.last_step,
            count(window.rows as u64),
            end(ratio.interval.map(|interval| interval.low())),
            end(ratio.interval.and_then(|interval| interval.high())),
            significant(window.parts.tr_sigma.value, 4),
            significant(window.parts.squared_gradient.value, 4),
        )?;
    }
    Ok(())
}

/// One object; what is not known is null.
fn as_json(scale: &NoiseScale) -> Value {
    let parts = &scale.parts;
    let interval = parts.b_simple.interval;
    json!({
        "b_simple": parts.b_simple.value.ok(),
        "b_simple_low": interval.map(|interval| interval.low()),
        "b_simple_high": interval.and_then(|interval| interval.high()),
        "undetermined": parts.b_simple.value.err().map(|reason| reason.to_string()),
        "tr_sigma": parts.tr_sigma.value,
        "tr_sigma_error": parts.tr_sigma.standard_error,
        "squared_gradient": parts.squared_gradient.value,
        "squared_gradient_error": parts.squared_gradient.standard_error,
        "gradient_norm": scale.gradient_norm,
        "snr": scale.snr,
        "cosine": scale.cosine,
        "rows": scale.rows,
        "blocks": scale.blocks,
        "first_step": scale.first_step,
        "last_step": scale.last_step,
        "looks_summed": scale.looks_summed(),
    })
}
