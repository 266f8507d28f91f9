//! The noise scale of the gradient over training, from the norms that training logged.

use std::collections::BTreeMap;
use std::path::Path;

use super::tables::AnalysisError;
use crate::math::noise_scale::{LeftOut, NoiseParts};
use crate::math::statistics::Moments;
use crate::store::{self, Table};

/// Windows that the noise scale over training is cut into, at most.
const MOST_WINDOWS: usize = 20;
/// Rows of all seeds that a window has at least, where there are as many.
const ROWS_A_WINDOW: usize = 40;
/// Blocks of the jackknife of one window, over all seeds.
const MOST_BLOCKS: usize = 10;
/// The last part of the rows that the noise scale of a layer is of.
const LAYER_SHARE: f64 = 1.0 / 3.0;

/// The noise scale B_simple in one window of training, from two batch sizes a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseWindow {
    /// Mean epoch of its rows.
    pub epoch: f64,
    /// Rows of all seeds.
    pub rows: usize,
    /// tr(Sigma), |G|^2 and their quotient with its interval: averages first, quotient last.
    pub parts: NoiseParts,
    /// The same in the metric of AdamW, where it was measured.
    pub adamw: Option<NoiseParts>,
    /// Mean cosine of the gradients of consecutive steps.
    pub cosine_previous: Option<f64>,
    /// Mean cosine of the gradients of workers.
    pub cosine_workers: Option<f64>,
}

/// The noise scale of one layer over the last third of the rows.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNoise {
    /// Name of the layer.
    pub layer: String,
    /// Rows of all seeds.
    pub rows: usize,
    /// Averages and their quotient.
    pub parts: NoiseParts,
}

/// The noise scale of a point over training.
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseCourse {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch.
    pub batch: u64,
    /// Seeds pooled.
    pub seeds: usize,
    /// Lowest and highest learning rate of the rows.
    pub rates: (f64, f64),
    /// Windows in the order of training.
    pub windows: Vec<NoiseWindow>,
    /// Layers, in the order of the table; empty without `noise-layers.csv`.
    pub layers: Vec<LayerNoise>,
}

/// One row of `noise.csv`: estimates without bias of one step.
#[derive(Debug, Clone, Copy)]
struct NoiseRow {
    step: u64,
    epoch: f64,
    lr: Option<f64>,
    whole: Pair,
    adamw: Option<Pair>,
    /// 1/B - 1/N of the step.
    share: f64,
    cosine_previous: Option<f64>,
    cosine_workers: Option<f64>,
}

/// tr(Sigma) and |G|^2 of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    trace: f64,
    squared: f64,
}

impl Pair {
    /// From squared norms at two sizes: tr = (g_small - g_big)/(1/b_small - 1/b_big),
    /// |G|^2 = g_big - tr * share.
    fn of(sizes: (f64, f64), norms: (f64, f64), share: f64) -> Option<Self> {
        let trace = (norms.0 - norms.1) / (1.0 / sizes.0 - 1.0 / sizes.1);
        let squared = norms.1 - trace * share;
        (trace.is_finite() && squared.is_finite()).then_some(Self { trace, squared })
    }
}

/// The noise tables of one trial.
pub(super) struct NoiseTables {
    rows: Vec<NoiseRow>,
    /// Steps without finite estimates.
    pub(super) missing: usize,
    /// (layer, step, estimates), in the order of the table.
    layers: Vec<(String, u64, Pair)>,
}

impl NoiseTables {
    /// Reads `noise.csv` and `noise-layers.csv` of a trial's folder; `None` without the first.
    pub(super) fn read(trial_dir: &Path) -> Result<Option<Self>, AnalysisError> {
        let path = trial_dir.join("noise.csv");
        if !store::exists(&path) {
            return Ok(None);
        }
        let table = Table::read(&path)?;
        let (steps, epochs) = (table.integers("step")?, table.numbers("epoch")?);
        let rates = table.numbers("lr")?;
        let sizes = [table.numbers("b_small")?, table.numbers("b_big")?];
        let big = table.numbers("g2_big")?;
        let parts = [
            table.numbers("tr_sigma")?,
            table.numbers("squared_gradient")?,
        ];
        let cosines = [
            table.numbers("cosine_previous")?,
            table.numbers("cosine_workers")?,
        ];
        let adamw = [
            table.numbers("adamw_g2_small")?,
            table.numbers("adamw_g2_big")?,
        ];
        let finite = |v: &f64| v.is_finite();
        let (mut rows, mut missing) = (Vec::with_capacity(table.len()), 0);
        for i in 0..table.len() {
            let cells = (parts[0][i].filter(finite), parts[1][i].filter(finite));
            let (Some(step), Some(trace), Some(squared)) = (steps[i], cells.0, cells.1) else {
                missing += 1;
                continue;
            };
            let sizes = (
                sizes[0][i].unwrap_or(f64::NAN),
                sizes[1][i].unwrap_or(f64::NAN),
            );
            // What the row itself took tr(Sigma) times, so that layers are of the same population.
            let own = (big[i].unwrap_or(f64::NAN) - squared) / trace;
            let share = if own.is_finite() { own } else { 1.0 / sizes.1 };
            let adamw = adamw[0][i]
                .zip(adamw[1][i])
                .and_then(|norms| Pair::of(sizes, norms, share));
            rows.push(NoiseRow {
                step,
                epoch: epochs[i].unwrap_or(f64::NAN),
                lr: rates[i],
                whole: Pair { trace, squared },
                adamw,
                share,
                cosine_previous: cosines[0][i].filter(finite),
                cosine_workers: cosines[1][i].filter(finite),
            });
        }
        let shares: BTreeMap<u64, f64> = rows.iter().map(|row| (row.step, row.share)).collect();
        Ok(Some(Self {
            rows,
            missing,
            layers: read_layers(trial_dir, &shares)?,
        }))
    }
}

/// Reads `noise-layers.csv` of a trial's folder; nothing if there is none.
fn read_layers(
    trial_dir: &Path,
    shares: &BTreeMap<u64, f64>,
) -> Result<Vec<(String, u64, Pair)>, AnalysisError> {
    let path = trial_dir.join("noise-layers.csv");
    if !store::exists(&path) {
        return Ok(Vec::new());
    }
    let table = Table::read(&path)?;
    let (steps, layers) = (table.integers("step")?, table.texts("layer")?);
    let sizes = [table.numbers("b_small")?, table.numbers("b_big")?];
    let norms = [table.numbers("g2_small")?, table.numbers("g2_big")?];
    let pair = |columns: &[Vec<Option<f64>>; 2], i: usize| columns[0][i].zip(columns[1][i]);
    let rows = (0..table.len()).filter_map(|i| {
        let step = steps[i]?;
        let (sizes, norms) = (pair(&sizes, i)?, pair(&norms, i)?);
        let share = shares.get(&step).copied().unwrap_or(1.0 / sizes.1);
        let estimates = Pair::of(sizes, norms, share)?;
        Some((layers[i].unwrap_or_default().to_owned(), step, estimates))
    });
    Ok(rows.collect())
}

/// The quotient of averages over the rows of all seeds, each seed's in the order of its steps. Of the
/// jackknife each seed has blocks of its own.
fn parts_of(seeds: &[Vec<Pair>]) -> Option<NoiseParts> {
    let seeds: Vec<&Vec<Pair>> = seeds.iter().filter(|rows| !rows.is_empty()).collect();
    let all: usize = seeds.iter().map(|rows| rows.len()).sum();
    let mean =
        |pick: fn(&Pair) -> f64| Moments::of(seeds.iter().copied().flatten().map(pick)).mean();
    let (trace, squared) = (mean(|p| p.trace)?, mean(|p| p.squared)?);
    let blocks = all.isqrt().clamp(1, MOST_BLOCKS);
    let each = (blocks / seeds.len()).max(1);
    let mut left_out = Vec::new();
    for rows in &seeds {
        let each = each.min(rows.len());
        for block in 0..each {
            let part = &rows[block * rows.len() / each..(block + 1) * rows.len() / each];
            let rest = (all - part.len()) as f64;
            if rest > 0.0 {
                let without = |whole: f64, pick: fn(&Pair) -> f64| {
                    let own = Moments::of(part.iter().map(pick)).mean().unwrap_or(whole);
                    whole + part.len() as f64 / rest * (whole - own)
                };
                left_out.push((without(trace, |p| p.trace), without(squared, |p| p.squared)));
            }
        }
    }
    let left_out = LeftOut {
        pairs: &left_out,
        finite: 1.0,
    };
    Some(NoiseParts::of(trace, squared, left_out))
}

/// The noise scale of all rows of all seeds; `None` without a row.
pub(super) fn noise_of_rows(tables: &[NoiseTables]) -> Option<NoiseParts> {
    let of = |table: &NoiseTables| table.rows.iter().map(|row| row.whole).collect();
    parts_of(&tables.iter().map(of).collect::<Vec<_>>())
}

/// The noise scale of a point, all its seeds together; `None` without a row.
pub(super) fn noise_course(rule: usize, batch: u64, tables: &[NoiseTables]) -> Option<NoiseCourse> {
    let rows = || tables.iter().flat_map(|t| &t.rows);
    let (first, last) = super::probes::range(rows().map(|row| row.epoch))?;
    let windows = (rows().count() / ROWS_A_WINDOW).clamp(1, MOST_WINDOWS);
    let window_of = |row: &NoiseRow| {
        let place = (row.epoch - first) / (last - first) * windows as f64;
        (place.max(0.0) as usize).min(windows - 1)
    };
    let window = |w: usize| {
        let of = |seed: &NoiseTables| -> Vec<NoiseRow> {
            let here = |row: &&NoiseRow| window_of(row) == w;
            seed.rows.iter().filter(here).copied().collect()
        };
        let seeds: Vec<Vec<NoiseRow>> = tables.iter().map(of).collect();
        let here = || seeds.iter().flatten();
        let pairs = |pick: fn(&NoiseRow) -> Option<Pair>| -> Vec<Vec<Pair>> {
            let of_seed = |rows: &Vec<NoiseRow>| rows.iter().filter_map(pick).collect();
            seeds.iter().map(of_seed).collect()
        };
        let mean = |pick: fn(&NoiseRow) -> Option<f64>| Moments::of(here().filter_map(pick)).mean();
        Some(NoiseWindow {
            epoch: mean(|row| Some(row.epoch))?,
            rows: here().count(),
            parts: parts_of(&pairs(|row| Some(row.whole)))?,
            adamw: parts_of(&pairs(|row| row.adamw)),
            cosine_previous: mean(|row| row.cosine_previous),
            cosine_workers: mean(|row| row.cosine_workers),
        })
    };
    Some(NoiseCourse {
        rule,
        batch,
        seeds: tables.iter().filter(|t| !t.rows.is_empty()).count(),
        rates: super::probes::range(rows().filter_map(|row| row.lr))
            .unwrap_or((f64::NAN, f64::NAN)),
        windows: (0..windows).filter_map(window).collect(),
        layers: layers(tables),
    })
}

/// Noise scales of the layers, over the last third of each trial's steps.
fn layers(tables: &[NoiseTables]) -> Vec<LayerNoise> {
    let mut names: Vec<&str> = Vec::new();
    for (name, ..) in tables.iter().flat_map(|t| &t.layers) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let of = |name: &str| {
        let seeds: Vec<Vec<Pair>> = tables
            .iter()
            .map(|table| {
                let last = table.layers.iter().map(|l| l.1).max().unwrap_or_default();
                let from = last as f64 * (1.0 - LAYER_SHARE);
                let here = table.layers.iter();
                here.filter(|l| l.0 == name && l.1 as f64 >= from)
                    .map(|l| l.2)
                    .collect()
            })
            .collect();
        Some(LayerNoise {
            layer: name.to_owned(),
            rows: seeds.iter().map(Vec::len).sum(),
            parts: parts_of(&seeds)?,
        })
    };
    names.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::noise_scale::{self, NormRow, Options, RatioInterval};

    /// Norms of steps of one seed, some negative in |G|^2.
    fn norms(seed: u64) -> Vec<NormRow> {
        let mut stream = crate::rng::Stream::new(seed, "probe-analysis-test", 0);
        (1..=49)
            .map(|step| {
                let signal = 0.5 + 0.2 * stream.normal();
                let noise = 64.0 + 10.0 * stream.normal();
                NormRow {
                    step,
                    b_small: 16.0,
                    g2_small: (signal + noise / 16.0).max(0.0),
                    b_big: 64.0,
                    g2_big: (signal + noise / 64.0).max(0.0),
                }
            })
            .collect()
    }

    fn pairs(rows: &[NormRow]) -> Vec<Pair> {
        rows.iter()
            .map(|r| {
                let (sizes, norms) = ((r.b_small, r.b_big), (r.g2_small, r.g2_big));
                Pair::of(sizes, norms, 1.0 / r.b_big).unwrap()
            })
            .collect()
    }

    #[test]
    fn one_seed_gives_what_the_noise_scale_of_its_norms_is() {
        let rows = norms(1);
        let ours = parts_of(&[pairs(&rows)]).unwrap();
        let theirs = noise_scale::noise_scale(&rows, Options::default());
        let theirs = theirs.unwrap().parts.b_simple;
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
        assert!(close(ours.b_simple.value.unwrap(), theirs.value.unwrap()));
        // 49 rows are 7 blocks of 7 here and there.
        let (Some(RatioInterval::Bounded(a)), Some(RatioInterval::Bounded(b))) =
            (ours.b_simple.interval, theirs.interval)
        else {
            panic!("{:?} {theirs:?}", ours.b_simple);
        };
        assert!(close(a.low, b.low) && close(a.high, b.high), "{a:?} {b:?}");
        assert!(a.contains(128.0), "{a:?}");
    }

    #[test]
    fn seeds_are_pooled_before_the_quotient_is_taken() {
        let one = [Pair {
            trace: 10.0,
            squared: 1.0,
        }; 4]
            .to_vec();
        let other = [Pair {
            trace: 30.0,
            squared: -0.5,
        }; 4]
            .to_vec();
        let parts = parts_of(&[one, other, Vec::new()]).unwrap();
        assert_eq!(
            (parts.tr_sigma.value, parts.squared_gradient.value),
            (20.0, 0.25)
        );
        let negative = parts_of(&[vec![
            Pair {
                trace: 1.0,
                squared: -1.0
            };
            9
        ]])
        .unwrap();
        assert!(negative.b_simple.value.is_err());
        assert!(parts_of(&[Vec::new()]).is_none());
    }
}
