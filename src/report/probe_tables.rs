//! What the page says of the probes: sentences and tables beside the figures.

use std::fmt::Write as _;

use serde::Serialize;

use crate::analysis::numbers::{decimals, significant, with_interval};
use crate::analysis::{Measured, Moment, NoiseCourse, Probe, ProbeAnalysis, ProbeKey, ProbedPoint};
use crate::math::noise_scale::{NoiseParts, Ratio, RatioInterval, Undetermined};
use crate::math::statistics::Estimate;

use super::page::Table;
use super::probe_figures::Topic;
use super::probe_words::{data_sentence, moment_name, moment_sentence, name};

/// Rows of a folded table; one with more is left out with a word on where the values are.
const MOST_ROWS: usize = 600;

/// Why a difference in sharpness alone says little.
const RESCALING: &str = "None of these measures is invariant to how the weights are scaled: in a network with ReLUs one \
    layer can be multiplied and the next divided by the same factor, which leaves every output as it is and makes \
    eigenvalues, trace and sharpness as large or as small as one likes (Dinh et al. 2017). Runs whose weights differ in \
    size, as those of different rates or weight decay do, are compared with that in mind; relative flatness, where it was \
    measured, does not change under it.";

/// What a section says besides its figures.
#[derive(Serialize)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) sentences: Vec<String>,
    pub(super) tables: Vec<Titled>,
    /// Filled in by the page, once.
    pub(super) notes: Vec<String>,
}

/// A table with its heading.
#[derive(Serialize)]
pub(super) struct Titled {
    pub(super) title: String,
    pub(super) table: Table,
    pub(super) note: String,
    pub(super) folded: bool,
}

/// A section of the page.
pub(super) fn section(analysis: &ProbeAnalysis, topic: Topic) -> Section {
    match topic {
        Topic::Curvature => curvature(analysis),
        Topic::Noise => noise(analysis),
    }
}

fn dash() -> String {
    "–".to_owned()
}

/// Sentences that say at which comparisons values stand, and on what they were measured.
fn comparisons(analysis: &ProbeAnalysis, probes: &[Probe]) -> Vec<String> {
    let mut sentences = Vec::new();
    for moment in Moment::BOTH {
        let here = analysis.at(moment).any(|p| p.probed + p.never > 0);
        if here {
            sentences.push(moment_sentence(analysis, moment));
        }
    }
    let ended = analysis.at(Moment::End).next().is_some();
    if analysis.compared && ended && analysis.at(Moment::TrainLoss).next().is_none() {
        sentences.push(
            "Nothing was measured at equal training loss, for `probes.at_train_loss` is not set: at equal epochs runs differ \
             in how far they fit the data, and curvature differs with that alone."
                .to_owned(),
        );
    }
    sentences.push(data_sentence(analysis, probes));
    sentences.retain(|s| !s.is_empty());
    sentences
}

fn curvature(analysis: &ProbeAnalysis) -> Section {
    let probes = [
        Probe::Hessian,
        Probe::GaussNewton,
        Probe::Density,
        Probe::Sharpness,
        Probe::Adversarial,
    ];
    let of_topic = |key: &ProbeKey| probes.contains(&key.probe);
    let mut sentences = comparisons(analysis, &probes);
    let sharp = analysis.points.iter().flat_map(|p| &p.measured);
    if sharp.map(|m| &m.key).any(of_topic) || !analysis.planes.is_empty() {
        sentences.push(RESCALING.to_owned());
    }
    // Ranks below the first have a table of their own.
    let main = |key: &ProbeKey| {
        let lower = key.quantity.ends_with("eigenvalue") && key.at.is_some_and(|at| at > 1.0);
        of_topic(key) && key.scope.is_empty() && !lower
    };
    let mut tables = Vec::new();
    for moment in Moment::BOTH {
        tables.extend(points_table(analysis, moment, &main));
    }
    let every = |key: &ProbeKey| {
        key.scope.is_empty() && key.quantity.ends_with("eigenvalue") && of_topic(key)
    };
    tables.extend(values_table(analysis, "Every eigenvalue", every));
    let parts = |key: &ProbeKey| !key.scope.is_empty() && of_topic(key);
    tables.extend(values_table(
        analysis,
        "By layer, block and parameter",
        parts,
    ));
    Section {
        title: "Curvature and sharpness",
        sentences,
        tables,
        notes: Vec::new(),
    }
}

fn noise(analysis: &ProbeAnalysis) -> Section {
    let of_topic = |key: &ProbeKey| key.probe == Probe::Noise;
    let mut sentences = vec![
        "B_simple = tr Σ/|G|² is the batch at which the noise of a gradient is as large as the gradient; B_noise = \
         tr(HΣ)/(G′HG) weighs both by the curvature, and ε_max = |G|²/(G′HG) is the best rate of a step without noise \
         (McCandlish et al. 2018)."
            .to_owned(),
    ];
    sentences.extend(comparisons(analysis, &[Probe::Noise]));
    if !analysis.noise.is_empty() {
        sentences.push(
            "The noise scale over training is at equal epochs: runs are beside each other at the same pass over the data, \
             whatever their training loss."
                .to_owned(),
        );
    }
    let ends = |key: &ProbeKey| key.quantity.ends_with("_low") || key.quantity.ends_with("_high");
    let main = |key: &ProbeKey| of_topic(key) && key.scope.is_empty() && !ends(key);
    let mut tables: Vec<Titled> = windows_table(analysis).into_iter().collect();
    for moment in Moment::BOTH {
        tables.extend(points_table(analysis, moment, &main));
    }
    tables.extend(layers_table(analysis));
    let parts = |key: &ProbeKey| of_topic(key) && !key.scope.is_empty() && !ends(key);
    tables.extend(values_table(analysis, "Noise by layer", parts));
    Section {
        title: "Gradient noise",
        sentences,
        tables,
        notes: Vec::new(),
    }
}

fn rule_columns(analysis: &ProbeAnalysis) -> Vec<String> {
    let mut head = Vec::new();
    if analysis.rules.len() > 1 {
        head.push("rule".to_owned());
    }
    head.push("global batch".to_owned());
    head
}

fn rule_cells(analysis: &ProbeAnalysis, rule: usize, batch: u64) -> Vec<String> {
    let mut cells = Vec::new();
    if analysis.rules.len() > 1 {
        cells.push(analysis.rules[rule].clone());
    }
    cells.push(batch.to_string());
    cells
}

/// A mean with half of its interval in as many digits as the interval allows; in powers of ten where
/// it would be long.
fn number(estimate: &Estimate, half: Option<f64>, factor: f64) -> String {
    let shown = Estimate {
        mean: estimate.mean * factor,
        standard_deviation: None,
        half_width: half.map(|h| h * factor),
        n: estimate.n,
    };
    if shown.half_width == Some(0.0) {
        return format!("{} ± 0", significant(shown.mean, 4));
    }
    let size = shown.mean.abs().max(shown.half_width.unwrap_or(0.0));
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        let mean = significant(shown.mean, 3);
        return match shown.half_width {
            Some(h) => format!("{mean} ± {}", significant(h, 2)),
            None => mean,
        };
    }
    with_interval(&shown, 1.0, decimals(&shown))
}

/// A quantity in a cell: mean ± half of the interval, and what a reader must know of it.
fn cell(point: &ProbedPoint, measured: Option<&Measured>, factor: f64) -> String {
    let Some(measured) = measured else {
        return dash();
    };
    if let Some((quotient, n)) = point.noise_quotient(measured) {
        return format!("{} (n = {n})", ratio(&quotient));
    }
    let mut text = match (measured.estimate(), point.span(measured)) {
        (None, _) => "undetermined".to_owned(),
        (Some(estimate), None) => number(&estimate, None, factor),
        (Some(estimate), Some((low, high))) => {
            let (below, above) = (estimate.mean - low, high - estimate.mean);
            if (below - above).abs() <= 1e-6 * above.abs() {
                number(&estimate, Some(above), factor)
            } else {
                let ends = [low, high].map(|v| significant(v * factor, 3));
                let mean = significant(estimate.mean * factor, 3);
                format!("{mean} [{} to {}]", ends[0], ends[1])
            }
        }
    };
    let mut remarks = Vec::new();
    if let [only] = &measured.values[..]
        && only.standard_error == Some(0.0)
    {
        remarks.push("exact".to_owned());
    }
    let determined = measured.values.len() - measured.undetermined();
    if determined < point.probed && determined > 0 {
        remarks.push(format!("n = {determined}"));
    }
    if measured.undetermined() > 0 && determined > 0 {
        remarks.push(format!("{} undetermined", measured.undetermined()));
    }
    if measured.not_converged() > 0 {
        remarks.push(format!("{} not converged", measured.not_converged()));
    }
    if !remarks.is_empty() {
        let _ = write!(text, " ({})", remarks.join(", "));
    }
    text
}

/// Quantities by batch at one moment.
fn points_table(
    analysis: &ProbeAnalysis,
    moment: Moment,
    wanted: &dyn Fn(&ProbeKey) -> bool,
) -> Option<Titled> {
    let here = |key: &ProbeKey| analysis.at(moment).any(|p| p.get(key).is_some());
    let keys: Vec<&ProbeKey> = analysis
        .keys()
        .into_iter()
        .filter(|k| wanted(k) && here(k))
        .collect();
    if keys.is_empty() {
        return None;
    }
    let converging = |m: &&Measured| wanted_family(&m.key, &keys);
    let mut head = rule_columns(analysis);
    let fixed = head.len();
    head.push("training loss".to_owned());
    head.push("n".to_owned());
    let families = analysis
        .at(moment)
        .flat_map(|p| &p.measured)
        .filter(converging)
        .any(|m| m.values.iter().any(|v| v.converged.is_some()));
    if families {
        head.push("not converged".to_owned());
    }
    head.extend(keys.iter().map(|k| name(k).with_unit()));
    let rows = analysis.at(moment).map(|point| {
        let mut row = rule_cells(analysis, point.rule, point.batch);
        let losses: Vec<f64> = point.train_losses.iter().map(|l| l.1).collect();
        row.push(Estimate::of(&losses).map_or_else(dash, |e| number(&e, e.half_width, 1.0)));
        row.push(format!("{} of {}", point.probed, point.planned));
        if families {
            let of = point.measured.iter().filter(converging);
            let (not, all) = of.fold((0, 0), |(not, all), m| {
                let judged = m.values.iter().filter(|v| v.converged.is_some()).count();
                (not + m.not_converged(), all + judged)
            });
            row.push(if all > 0 {
                format!("{not} of {all}")
            } else {
                dash()
            });
        }
        row.extend(
            keys.iter()
                .map(|key| cell(point, point.get(key), name(key).factor)),
        );
        row
    });
    let at = moment_name(analysis, moment);
    Some(Titled {
        title: format!("At {at}: mean ± half of the 95 % interval"),
        table: Table {
            rows: rows.collect(),
            head,
            numbers_from: fixed,
        },
        note: format!(
            "{} n: trials that measured, of those planned. Intervals are over seeds; of one seed, of the estimator.{}",
            moment_sentence(analysis, moment),
            if families {
                " Not converged: values that an iteration did not bring to its tolerance, all ranks of eigenvalues counted; \
                 they are in the means."
            } else {
                ""
            }
        ),
        folded: false,
    })
}

/// Whether a quantity is one of these, or another rank of one of them.
fn wanted_family(key: &ProbeKey, keys: &[&ProbeKey]) -> bool {
    keys.iter()
        .any(|k| (k.probe, &k.quantity, &k.scope) == (key.probe, &key.quantity, &key.scope))
}

/// One row a quantity, point and moment; folded.
fn values_table(
    analysis: &ProbeAnalysis,
    title: &str,
    wanted: impl Fn(&ProbeKey) -> bool,
) -> Option<Titled> {
    let mut head = vec!["at".to_owned()];
    head.extend(rule_columns(analysis));
    head.push("quantity".to_owned());
    let fixed = head.len();
    for column in [
        "mean ± half of the 95 % interval",
        "n",
        "not converged",
        "largest residual |Hv − λv|",
    ] {
        head.push(column.to_owned());
    }
    let mut rows = Vec::new();
    for point in &analysis.points {
        for measured in point.measured.iter().filter(|m| wanted(&m.key)) {
            let name = name(&measured.key);
            let mut row = vec![moment_name(analysis, point.moment).to_owned()];
            row.extend(rule_cells(analysis, point.rule, point.batch));
            row.push(name.with_unit());
            row.push(cell(point, Some(measured), name.factor));
            row.push(measured.values.len().to_string());
            row.push(if measured.values.iter().any(|v| v.converged.is_some()) {
                measured.not_converged().to_string()
            } else {
                dash()
            });
            row.push(measured.residual().map_or_else(dash, |r| significant(r, 2)));
            rows.push(row);
        }
    }
    let all = rows.len();
    if all == 0 {
        return None;
    }
    let note = if all > MOST_ROWS {
        rows.truncate(MOST_ROWS);
        format!(
            "{} more rows are in probes.csv of the trials.",
            all - MOST_ROWS
        )
    } else {
        String::new()
    };
    Some(Titled {
        title: format!("{title} ({all})"),
        table: Table {
            rows,
            head,
            numbers_from: fixed,
        },
        note,
        folded: true,
    })
}

/// A quotient with its interval.
fn ratio(ratio: &Ratio) -> String {
    let value = match ratio.value {
        Ok(value) => significant(value, 3),
        Err(Undetermined::NotPositive) => "undetermined (|G|² not positive)".to_owned(),
        Err(Undetermined::NumeratorNotPositive) => "undetermined (tr Σ not positive)".to_owned(),
        Err(Undetermined::NotDistinguishable) => "undetermined (|G|² not told from 0)".to_owned(),
        Err(Undetermined::NotFinite) => "undetermined (not finite)".to_owned(),
    };
    match ratio.interval {
        Some(RatioInterval::Bounded(i)) => format!(
            "{value} [{} to {}]",
            significant(i.low, 3),
            significant(i.high, 3)
        ),
        Some(RatioInterval::AtLeast(low)) => {
            format!("{value}; at least {}", significant(low, 3))
        }
        None => value,
    }
}

fn parts_cells(parts: &NoiseParts) -> [String; 3] {
    [
        ratio(&parts.b_simple),
        significant(parts.tr_sigma.value, 3),
        significant(parts.squared_gradient.value, 3),
    ]
}

fn rates(course: &NoiseCourse) -> String {
    let (low, high) = course.rates;
    if !low.is_finite() {
        return dash();
    }
    let [low, high] = [low, high].map(|v| significant(v, 3));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// The noise scale in the first and in the last window of training.
fn windows_table(analysis: &ProbeAnalysis) -> Option<Titled> {
    let mut head = rule_columns(analysis);
    let fixed = head.len();
    for column in [
        "learning rate",
        "highest rate / batch",
        "seeds",
        "windows",
        "undetermined",
        "B_simple in the first window (examples)",
        "B_simple in the last window (examples)",
        "tr Σ there",
        "|G|² there",
    ] {
        head.push(column.to_owned());
    }
    let cosine = analysis
        .noise
        .iter()
        .flat_map(|c| &c.windows)
        .any(|w| w.cosine_previous.is_some() || w.cosine_workers.is_some());
    if cosine {
        head.push("cosine between steps there".to_owned());
        head.push("cosine between workers there".to_owned());
    }
    let rows: Vec<Vec<String>> = analysis
        .noise
        .iter()
        .filter_map(|course| {
            let (first, last) = (course.windows.first()?, course.windows.last()?);
            let none = course
                .windows
                .iter()
                .filter(|w| w.parts.b_simple.value.is_err());
            let mut row = rule_cells(analysis, course.rule, course.batch);
            row.push(rates(course));
            row.push(if course.rates.1.is_finite() && course.batch > 0 {
                significant(course.rates.1 / course.batch as f64, 3)
            } else {
                dash()
            });
            row.push(course.seeds.to_string());
            row.push(course.windows.len().to_string());
            row.push(none.count().to_string());
            row.push(ratio(&first.parts.b_simple));
            row.extend(parts_cells(&last.parts));
            if cosine {
                for value in [last.cosine_previous, last.cosine_workers] {
                    row.push(value.map_or_else(dash, |v| significant(v, 2)));
                }
            }
            Some(row)
        })
        .collect();
    (!rows.is_empty()).then(|| Titled {
        title: "Noise scale over training, at equal epochs".to_owned(),
        table: Table {
            rows,
            head,
            numbers_from: fixed,
        },
        note: "B_simple with its 95 % interval: averages of tr Σ and |G|² over the steps of a window and over seeds, \
               then the quotient. Undetermined: windows in which |G|² is not positive or cannot be told from zero. The \
               noise scale grows as the temperature, rate / batch, falls, so it means little without them."
            .to_owned(),
        folded: false,
    })
}

/// Noise scales of layers, from two batch sizes; folded.
fn layers_table(analysis: &ProbeAnalysis) -> Option<Titled> {
    let mut head = rule_columns(analysis);
    head.push("layer".to_owned());
    let fixed = head.len();
    for column in ["rows", "B_simple (examples)", "tr Σ", "|G|²"] {
        head.push(column.to_owned());
    }
    let mut rows = Vec::new();
    for course in &analysis.noise {
        for layer in &course.layers {
            let mut row = rule_cells(analysis, course.rule, course.batch);
            row.push(layer.layer.clone());
            row.push(layer.rows.to_string());
            row.extend(parts_cells(&layer.parts));
            rows.push(row);
        }
    }
    let all = rows.len();
    if all == 0 {
        return None;
    }
    rows.truncate(MOST_ROWS);
    let more = if all > MOST_ROWS {
        " Not all are shown; all are in noise-layers.csv of the trials."
    } else {
        ""
    };
    Some(Titled {
        title: format!("Noise scale of each layer ({all})"),
        table: Table {
            rows,
            head,
            numbers_from: fixed,
        },
        note: format!("Over the last third of the steps, from two batch sizes a step.{more}"),
        folded: true,
    })
}
