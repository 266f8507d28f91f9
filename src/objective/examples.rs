//! From a data set to batches, and what is computed over all of its training examples.

use std::ops::Range;
use std::sync::Arc;

use super::{
    Batch, GroupMoments, LayerStatistics, Objective, ObjectiveError, Point, Scalar, StatisticsMode,
    population_statistics,
};
use crate::collective::wire::{Reader, Writer};
use crate::collective::{Pool, Ranks, all_gather_bytes, leaves_of_rank};
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

/// What `work(0)`, ..., `work(tasks - 1)` give, in order: on the threads of a pool, and spread over
/// ranks where there are several, which then all have all of it.
fn spread<'env, T: Send + 'env>(
    pool: &Pool<'env>,
    ranks: Option<&dyn Ranks>,
    tasks: usize,
    work: impl Fn(usize) -> Result<T, ObjectiveError> + Send + Sync + 'env,
    write: fn(&T, &mut Writer),
    read: fn(&mut Reader<'_>) -> Option<T>,
) -> Result<Vec<T>, ObjectiveError> {
    let Some(ranks) = ranks.filter(|ranks| ranks.size() > 1) else {
        return pool.map(tasks, work).into_iter().collect();
    };
    let own = leaves_of_rank(tasks, ranks.size(), ranks.rank());
    let first = own.start;
    let found: Result<Vec<T>, ObjectiveError> = pool
        .map(own.len(), move |i| work(first + i))
        .into_iter()
        .collect();
    let mut message = Writer::new();
    message.flag(found.is_ok());
    match &found {
        Ok(parts) => parts.iter().for_each(|part| write(part, &mut message)),
        Err(error) => message.bytes(error.to_string().as_bytes()),
    }
    let lost = || ObjectiveError::Elsewhere {
        message: "a message between ranks does not read".to_owned(),
    };
    let mut all = Vec::with_capacity(tasks);
    for (rank, message) in all_gather_bytes(ranks, &message.finish())?
        .iter()
        .enumerate()
    {
        let mut message = Reader::new(message);
        if !message.flag().ok_or_else(lost)? {
            let message = message.text().ok_or_else(lost)?;
            return Err(ObjectiveError::Elsewhere { message });
        }
        for _ in leaves_of_rank(tasks, ranks.size(), rank) {
            all.push(read(&mut message).ok_or_else(lost)?);
        }
    }
    Ok(all)
}

/// Moments of groups as a message.
pub(crate) fn write_moments(groups: &Vec<GroupMoments>, message: &mut Writer) {
    message.count(groups.len());
    for group in groups {
        message.bytes(group.layer.as_bytes());
        message.count(group.examples);
        message.count(group.values);
        message.numbers(&group.mean);
        message.numbers(&group.variance);
    }
}

/// Reads what [`write_moments`] wrote.
pub(crate) fn read_moments(message: &mut Reader<'_>) -> Option<Vec<GroupMoments>> {
    let mut groups = Vec::new();
    for _ in 0..message.count()? {
        groups.push(GroupMoments {
            layer: message.text()?,
            examples: message.count()?,
            values: message.count()?,
            mean: message.numbers()?,
            variance: message.numbers()?,
        });
    }
    Some(groups)
}

/// Exact inference statistics at `parameters`: one pass over the training set, in a fixed mixed
/// order drawn with `seed`, in groups of at least `group` examples, as equal as can be:
/// n examples make max(1, floor(n/group)) of them. None without batch normalization. The groups are
/// spread over the threads of the pool, and over ranks where there are several.
///
/// # Errors
/// If a group has a single example, or the model fails.
pub fn population_statistics_at<'env, F: Scalar>(
    objective: &'env dyn Objective<F>,
    data: &'env Data,
    (pool, ranks): (&Pool<'env>, Option<&dyn Ranks>),
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
    let work = move |i: usize| {
        let ids: Vec<u64> = pieces[i]
            .iter()
            .flat_map(Clone::clone)
            .map(|e| u64::from(order[e]))
            .collect();
        let sizes: Vec<usize> = pieces[i].iter().map(Range::len).collect();
        point.moments(Batch::gather(data, &data.train, &ids, &sizes))
    };
    let moments = spread(pool, ranks, count, work, write_moments, read_moments)?;
    Ok(population_statistics(&moments.concat()))
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
/// inference statistics; spread over the threads of the pool, and over ranks where there are several.
///
/// # Errors
/// If the model fails.
pub fn scores_at<'env, F: Scalar>(
    point: Arc<dyn Point<F> + 'env>,
    data: &'env Data,
    (pool, ranks): (&Pool<'env>, Option<&dyn Ranks>),
    examples: &'env Examples,
    ids: Vec<u64>,
    statistics: &[LayerStatistics],
) -> Result<Scores, ObjectiveError> {
    let (n, statistics) = (ids.len(), statistics.to_vec());
    let work = move |i: usize| {
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
    };
    let write = |(loss, correct): &(f64, usize), message: &mut Writer| {
        message.number(*loss);
        message.count(*correct);
    };
    let read = |message: &mut Reader<'_>| Some((message.number()?, message.count()?));
    let (mut loss, mut correct) = (0.0, 0);
    for (piece_loss, piece_correct) in spread(pool, ranks, n.div_ceil(PIECE), work, write, read)? {
        loss += piece_loss;
        correct += piece_correct;
    }
    Ok(Scores {
        loss: loss / n as f64,
        accuracy: (data.classes > 0).then(|| correct as f64 / n as f64),
    })
}
