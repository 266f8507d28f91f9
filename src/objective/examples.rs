//! From a data set to batches, and what is computed over all of its training examples.

use std::ops::Range;
use std::sync::Arc;

use super::{
    Batch, LayerStatistics, Objective, ObjectiveError, Point, Scalar, StatisticsMode,
    population_statistics,
};
use crate::collective::Pool;
use crate::data::order::shards;
use crate::data::{Data, Examples};
use crate::rng;

/// Examples in one pass, if a group is not larger. Fixed, so that sums round the same on any
/// machine.
const PIECE: usize = 256;

impl<F: Scalar> Batch<F> {
    /// Copies the examples `ids` of `from`, a part of `data`, into a batch with these groups.
    pub fn gather(data: &Data, from: &Examples, ids: &[u64], groups: &[usize]) -> Self {
        let (mut features, mut labels) = (Vec::new(), Vec::new());
        if data.fresh.is_none() {
            let width: usize = data.shape.iter().product();
            features.reserve_exact(ids.len() * width);
            for &id in ids {
                let row = id as usize * width;
                let values = &from.features[row..row + width];
                features.extend(values.iter().map(|&v| F::from_f32(v)));
            }
            labels.extend(ids.iter().map(|&id| from.labels[id as usize]));
        }
        Self {
            features,
            labels,
            ids: ids.to_vec(),
            groups: groups.to_vec(),
        }
    }
}

/// Exact inference statistics at `parameters`: one pass over the training set, in a fixed mixed
/// order drawn with `seed`, in groups of at least `group` examples, as equal as can be:
/// n examples make max(1, floor(n/group)) of them. None without batch normalization.
///
/// # Errors
/// If a group has a single example, or the model fails.
pub fn population_statistics_at<'env, F: Scalar>(
    objective: &'env dyn Objective<F>,
    data: &'env Data,
    pool: &Pool<'env>,
    parameters: &[F],
    group: usize,
    seed: u64,
) -> Result<Vec<LayerStatistics>, ObjectiveError> {
    if !objective.has_batch_statistics() {
        return Ok(Vec::new());
    }
    let point: Arc<dyn Point<F> + 'env> = Arc::from(objective.at(parameters)?);
    let n = data.train.len();
    // In a mixed order: a file sorted by class would make groups unlike those of training.
    let order = rng::permutation(n, seed, "population-statistics", 0);
    let groups = shards(n, (n / group).max(1));
    let per_piece = (PIECE / group).max(1);
    let pieces: Vec<Vec<Range<usize>>> = groups.chunks(per_piece).map(<[_]>::to_vec).collect();
    let count = pieces.len();
    let moments = pool.map(count, move |i| {
        let ids: Vec<u64> = pieces[i]
            .iter()
            .flat_map(Clone::clone)
            .map(|e| u64::from(order[e]))
            .collect();
        let sizes: Vec<usize> = pieces[i].iter().map(Range::len).collect();
        point.moments(Batch::gather(data, &data.train, &ids, &sizes))
    });
    let mut all = Vec::new();
    for piece in moments {
        all.extend(piece?);
    }
    Ok(population_statistics(&all))
}

/// Mean loss and accuracy over examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// Mean loss.
    pub loss: f64,
    /// Share of examples classified correctly; `None` where there are no classes.
    pub accuracy: Option<f64>,
}

/// Loss and accuracy of the examples `ids` of `examples`, a part of `data`, at `point` with these
/// inference statistics.
///
/// # Errors
/// If the model fails.
pub fn scores_at<'env, F: Scalar>(
    point: Arc<dyn Point<F> + 'env>,
    data: &'env Data,
    pool: &Pool<'env>,
    examples: &'env Examples,
    ids: Vec<u64>,
    statistics: &[LayerStatistics],
) -> Result<Scores, ObjectiveError> {
    let (n, statistics) = (ids.len(), statistics.to_vec());
    let results = pool.map(n.div_ceil(PIECE), move |i| {
        let part = &ids[i * PIECE..((i + 1) * PIECE).min(n)];
        let batch = Batch::gather(data, examples, part, &[part.len()]);
        let labels = batch.labels.clone();
        let mode = StatisticsMode::Inference(&statistics);
        let predictions = point.predict(batch, mode)?;
        let correct = predictions
            .classes
            .iter()
            .zip(&labels)
            .filter(|(class, label)| class == label);
        Ok((predictions.losses.iter().sum::<f64>(), correct.count()))
    });
    let (mut loss, mut correct) = (0.0, 0);
    for result in results {
        let (piece_loss, piece_correct): (f64, usize) = result.map_err(|e: ObjectiveError| e)?;
        loss += piece_loss;
        correct += piece_correct;
    }
    Ok(Scores {
        loss: loss / n as f64,
        accuracy: (data.classes > 0).then(|| correct as f64 / n as f64),
    })
}
