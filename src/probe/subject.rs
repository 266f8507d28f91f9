//! The loss that a probe looks at: a mean over fixed examples, in double precision.

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::adversarial::{self, Attack, RobustAccuracy, robust_accuracy};
use super::{Landscape, ProbeError};
use crate::collective::Pool;
use crate::config::{ProbeStatistics, ProbesConfig, Products, TrialConfig};
use crate::data::order::{pieces, shards};
use crate::data::{Data, Examples};
use crate::math::operator::{SymmetricOperator, add_scaled, dot};
use crate::objective::{
    Along, Batch, Differences, ExampleNorms, LayerStatistics, Layout, Objective, ObjectiveError,
    Point, Prepared, Scalar, StatisticsMode, example_norms_one_by_one,
};
use crate::rng;
use crate::store::memory;

/// Examples in one piece. Fixed, so that sums round the same on any machine.
const PIECE: usize = 256;

/// Sums that are made side by side and then added in order. Fixed, so that the bits do not depend on
/// the number of threads; each costs a vector as long as the parameters.
const STRIPS: usize = 16;

/// Elements of a vector that strips are added up for at a time.
const PART: usize = 2048;

/// What may be kept from one product to the next in any case, in bytes. What does not fit is made again,
/// to the same bits.
const KEPT_BYTES: usize = 1 << 30;
/// The share of the free memory that may be kept where that is more.
const KEPT_SHARE: u64 = 4;
/// What is kept in this process, by all subjects.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Examples of a probe where the config says nothing.
const DEFAULT_EXAMPLES: usize = 2048;

/// Which batch statistics a batch-normalized model uses under a probe.
#[derive(Debug, Clone, PartialEq)]
pub enum SubjectStatistics {
    /// These, held fixed. Empty for a model without batch normalization.
    Frozen(Vec<LayerStatistics>),
    /// Those of groups of at least this many examples.
    Batch {
        /// Examples of a group.
        group: usize,
    },
}

/// Test examples that are attacked where nothing is said.
const ATTACKED_EXAMPLES: usize = 1000;

/// What a probe looks at, besides model and data.
#[derive(Debug, Clone, PartialEq)]
pub struct SubjectOptions {
    /// Number of training examples.
    pub examples: usize,
    /// Seed of their choice.
    pub seed: u64,
    /// Batch statistics.
    pub statistics: SubjectStatistics,
    /// The L2 term lambda/2 |p|^2 over the parameters in these ranges.
    pub l2: Option<(f64, Vec<Range<usize>>)>,
    /// How products with the Hessian are made.
    pub products: Products,
}

impl SubjectOptions {
    /// Those that a config asks for. `statistics` are the inference statistics of the parameters
    /// that are probed, `group` the examples of a group in training.
    pub fn new(
        config: &TrialConfig,
        data: &Data,
        layout: &Layout,
        statistics: Vec<LayerStatistics>,
        group: usize,
    ) -> Self {
        let probes: &ProbesConfig = &config.probes;
        let available = match &data.fresh {
            Some(_) => usize::MAX,
            None => data.train.len(),
        };
        let l2 = config.optimizer.l2().filter(|_| probes.weight_decay);
        let roles = config.optimizer.l2_roles();
        Self {
            examples: probes.examples.unwrap_or(DEFAULT_EXAMPLES).min(available),
            seed: config.data.split_seed,
            statistics: match probes.statistics {
                ProbeStatistics::Frozen => SubjectStatistics::Frozen(statistics),
                ProbeStatistics::Batch => SubjectStatistics::Batch { group },
            },
            l2: l2.map(|lambda| {
                let decays = |role| roles.is_none_or(|roles| roles.contains(&role));
                let own = layout.parameters.iter().filter(|p| decays(p.role));
                (lambda, own.map(|p| p.range.clone()).collect())
            }),
            products: probes.products,
        }
    }
}

/// A part of the examples that one pass takes.
#[derive(Debug, Clone)]
struct Piece {
    range: Range<usize>,
    groups: Vec<usize>,
}

/// The groups of `n` examples that share batch statistics, of at least `group` examples.
fn groups_of(n: usize, group: usize) -> Vec<Range<usize>> {
    shards(n, (n / group.max(1)).max(1))
}

/// Pieces of whole groups of about `group` examples.
fn whole_groups(groups: &[Range<usize>], group: usize) -> Vec<Piece> {
    groups
        .chunks((PIECE / group.max(1)).max(1))
        .map(|groups| Piece {
            range: groups[0].start..groups[groups.len() - 1].end,
            groups: groups.iter().map(Range::len).collect(),
        })
        .collect()
}

/// Pieces of examples that share nothing.
fn cut(range: &Range<usize>) -> Vec<Piece> {
    let pieces = pieces(range, PIECE).into_iter();
    pieces
        .map(|range| Piece {
            groups: vec![range.len()],
            range,
        })
        .collect()
}

/// What the threads share.
struct Inner<'env> {
    objective: &'env dyn Objective<f64>,
    data: &'env Data,
    examples: &'env Examples,
    ids: Vec<u64>,
    pieces: Vec<Piece>,
    statistics: SubjectStatistics,
}

impl Inner<'_> {
    fn batch<F: Scalar>(&self, piece: usize) -> (Batch<F>, f64) {
        let Piece { range, groups } = &self.pieces[piece];
        let ids = &self.ids[range.clone()];
        let batch = Batch::gather(self.data, self.examples, ids, groups);
        (batch, range.len() as f64 / self.ids.len() as f64)
    }

    fn mode(&self) -> StatisticsMode<'_> {
        match &self.statistics {
            SubjectStatistics::Frozen(statistics) => StatisticsMode::Inference(statistics),
            SubjectStatistics::Batch { .. } => StatisticsMode::Batch,
        }
    }
}

/// The mean loss over fixed, seeded training examples as a function of the parameters, spread over
/// threads; the same bits on any number of them. The order of the examples, their cut into pieces
/// and the order of summation are fixed.
pub struct Subject<'pool, 'env> {
    inner: Arc<Inner<'env>>,
    pool: &'pool Pool<'env>,
    l2: Option<(f64, Vec<Range<usize>>)>,
    seed: u64,
    exact: bool,
    single: Option<&'env dyn Objective<f32>>,
    stop: Option<&'pool AtomicBool>,
    evaluations: Arc<AtomicUsize>,
}

impl<'pool, 'env> Subject<'pool, 'env> {
    /// The loss of `objective` on training examples of `data`.
    ///
    /// # Errors
    /// If exact products are asked of an objective that has none, or a group of batch statistics
    /// would have a single example.
    pub fn new(
        objective: &'env dyn Objective<f64>,
        data: &'env Data,
        pool: &'pool Pool<'env>,
        options: SubjectOptions,
    ) -> Result<Self, ProbeError> {
        let exact = match options.products {
            Products::Auto => objective.has_exact_products(),
            Products::Differences => false,
            Products::Exact if objective.has_exact_products() => true,
            Products::Exact => return Err(ObjectiveError::NoExactProducts.into()),
        };
        let ids: Vec<u64> = if data.fresh.is_some() {
            (0..options.examples as u64).collect()
        } else {
            let n = data.train.len();
            let order = rng::permutation(n, options.seed, "curvature", 0);
            let own = order.iter().take(options.examples);
            own.map(|&i| u64::from(i)).collect()
        };
        if ids.is_empty() {
            return Err(ProbeError::NoExamples);
        }
        let whole = 0..ids.len();
        let pieces = match options.statistics {
            SubjectStatistics::Batch { group } if objective.has_batch_statistics() => {
                whole_groups(&groups_of(ids.len(), group), group)
            }
            _ => cut(&whole),
        };
        let inner = Inner {
            objective,
            data,
            examples: &data.train,
            ids,
            pieces,
            statistics: options.statistics,
        };
        Ok(Self {
            inner: Arc::new(inner),
            pool,
            l2: options.l2.filter(|(lambda, _)| *lambda != 0.0),
            seed: options.seed,
            exact,
            single: None,
            stop: None,
            evaluations: Arc::default(),
        })
    }

    /// Ends with [`ProbeError::Interrupted`] once `stop` is set.
    pub fn with_stop(mut self, stop: &'pool AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Makes products with the matrices in single precision, by `objective`: the same in f32. Losses,
    /// gradients, the sums over strips and all vectors stay in f64, and so do the products that the
    /// residuals of eigenpairs come from, where rounding could show there. Only exact products are
    /// good enough for it.
    ///
    /// # Errors
    /// If products are by differences, whose steps would drown in the rounding.
    pub fn with_single_products(
        mut self,
        objective: &'env dyn Objective<f32>,
    ) -> Result<Self, ProbeError> {
        if !self.exact {
            return Err(ObjectiveError::NoExactProducts.into());
        }
        self.single = Some(objective);
        Ok(self)
    }

    /// The layout of the parameters.
    pub fn layout(&self) -> &'env Layout {
        self.inner.objective.layout()
    }

    /// Seed of the examples' choice, and of the random vectors of probes.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The batch statistics as tables name them; empty for a model without batch normalization.
    pub fn statistics_name(&self) -> &'static str {
        match self.inner.statistics {
            _ if !self.inner.objective.has_batch_statistics() => "",
            SubjectStatistics::Frozen(_) => ProbeStatistics::Frozen.name(),
            SubjectStatistics::Batch { .. } => ProbeStatistics::Batch.name(),
        }
    }

    /// Number of examples.
    pub fn examples(&self) -> usize {
        self.inner.ids.len()
    }

    /// Which training examples, in the order in which they are cut into pieces.
    pub fn ids(&self) -> &[u64] {
        &self.inner.ids
    }

    /// Number of classes; 0 where there are none.
    pub fn classes(&self) -> usize {
        self.inner.data.classes
    }

    /// Training examples that there are; `None` where they never repeat.
    pub fn population(&self) -> Option<usize> {
        let data = self.inner.data;
        data.fresh.is_none().then(|| data.train.len())
    }

    /// Whether products are exact, not differences of gradients.
    pub fn has_exact_products(&self) -> bool {
        self.exact
    }

    /// Losses, gradients and products made so far, for a progress bar.
    pub fn evaluations(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.evaluations)
    }

    /// Counts an evaluation, unless the user asked to stop.
    fn go_on(&self) -> Result<(), ProbeError> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(ProbeError::Interrupted);
        }
        self.evaluations.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The sum over the pieces of what `work` writes for each, and the sum of what it returns.
    /// `work` gets the pieces of one strip and the vector to write their sum into.
    fn sum<F: Scalar>(
        &self,
        out: &mut [f64],
        work: impl Fn(&Inner<'env>, Range<usize>, &mut [F]) -> Result<f64, ObjectiveError>
        + Send
        + Sync
        + 'env,
    ) -> Result<f64, ProbeError> {
        self.go_on()?;
        let strips = shards(self.inner.pieces.len(), STRIPS.min(self.inner.pieces.len()));
        let (inner, length) = (Arc::clone(&self.inner), out.len());
        let count = strips.len();
        let results = self.pool.map(count, move |i| {
            let mut sum = vec![F::ZERO; length];
            work(&inner, strips[i].clone(), &mut sum).map(|value| (value, sum))
        });
        let results: Result<Vec<_>, ObjectiveError> = results.into_iter().collect();
        let (values, sums): (Vec<f64>, Vec<Vec<F>>) = results?.into_iter().unzip();
        // In parts, so that each stays in the cache while all strips are added to it.
        for (i, part) in out.chunks_mut(PART).enumerate() {
            part.fill(0.0);
            for sum in &sums {
                for (total, x) in part.iter_mut().zip(&sum[i * PART..]) {
                    *total += x.to_f64();
                }
            }
        }
        Ok(values.iter().sum())
    }

    /// Adds the L2 term's part of a gradient or of a product with the Hessian.
    fn add_l2(&self, of: &[f64], out: &mut [f64]) -> f64 {
        let Some((lambda, ranges)) = &self.l2 else {
            return 0.0;
        };
        let mut squares = 0.0;
        for range in ranges {
            let own = &of[range.clone()];
            add_scaled(&mut out[range.clone()], *lambda, own);
            squares += dot(own, own);
        }
        0.5 * lambda * squares
    }

    /// The loss at these parameters, to be differentiated again and again.
    ///
    /// # Errors
    /// If their number does not fit the model.
    pub fn at(&self, parameters: &[f64]) -> Result<SubjectAt<'_, 'pool, 'env>, ProbeError> {
        let pieces = self.inner.pieces.len();
        let single = self.single.map(|objective| {
            let rounded = parameters.iter().map(|&x| x as f32).collect();
            Fixed::new(objective, rounded, pieces).map(Arc::new)
        });
        let fixed = Fixed::new(self.inner.objective, parameters.to_vec(), pieces)?;
        Ok(SubjectAt {
            subject: self,
            fixed: Arc::new(fixed),
            single: single.transpose()?,
            products: 0,
        })
    }

    /// The loss of each example, in the order of [`Subject::ids`]. Without the L2 term.
    ///
    /// # Errors
    /// If the model fails.
    pub fn losses(&self, parameters: &[f64]) -> Result<Vec<f64>, ProbeError> {
        self.go_on()?;
        let point: Arc<dyn Point<f64> + 'env> = Arc::from(self.inner.objective.at(parameters)?);
        let inner = Arc::clone(&self.inner);
        let count = inner.pieces.len();
        let parts = self.pool.map(count, move |i| {
            let (batch, _) = inner.batch(i);
            Ok(point.predict(batch, inner.mode())?.losses)
        });
        let parts: Result<Vec<Vec<f64>>, ObjectiveError> = parts.into_iter().collect();
        Ok(parts?.concat())
    }

    /// Accuracy on test examples (training examples where there is no test set) that `attack` moves,
    /// at each radius: `count` of them (default 1000), drawn with the seed.
    ///
    /// # Errors
    /// If the model fails or has no input gradient.
    pub fn attack(
        &self,
        parameters: &[f64],
        attack: &Attack,
        radii: &[f64],
        count: Option<usize>,
    ) -> Result<Vec<RobustAccuracy>, ProbeError> {
        self.go_on()?;
        let data = self.inner.data;
        let test = data.test.as_ref().filter(|test| !test.is_empty());
        let examples = test.unwrap_or(&data.train);
        let order = rng::permutation(examples.len(), self.seed, "adversarial", 0);
        let ids = order.iter().map(|&i| u64::from(i));
        let ids: Vec<u64> = ids.take(count.unwrap_or(ATTACKED_EXAMPLES)).collect();
        let parts = pieces(&(0..ids.len()), PIECE);
        let point: Arc<dyn Point<f64> + 'env> = Arc::from(self.inner.objective.at(parameters)?);
        let (inner, attack, own) = (Arc::clone(&self.inner), *attack, radii.to_vec());
        let found = self.pool.map(parts.len(), move |i| {
            let part = &ids[parts[i].clone()];
            let batch: Batch<f64> = Batch::gather(data, examples, part, &[part.len()]);
            let labels: Vec<usize> = batch.labels.iter().map(|&label| label as usize).collect();
            let with = |features: &[f64]| Batch {
                features: features.to_vec(),
                ..batch.clone()
            };
            let mut gradient = |features: &[f64], out: &mut [f64]| {
                let mut own = Vec::with_capacity(out.len());
                point.input_gradient(with(features), inner.mode(), &mut own)?;
                out.copy_from_slice(&own);
                Ok::<(), ProbeError>(())
            };
            let mut predict = |features: &[f64]| {
                let classes = point.predict(with(features), inner.mode())?.classes;
                Ok(classes.into_iter().map(|class| class as usize).collect())
            };
            let attacked = adversarial::Examples {
                features: &batch.features,
                labels: &labels,
                first: parts[i].start as u64,
                range: None,
            };
            robust_accuracy(&attacked, &attack, &own, &mut gradient, &mut predict)
        });
        let zero = |&radius: &f64| RobustAccuracy {
            radius,
            correct: 0,
            examples: 0,
        };
        let mut all: Vec<RobustAccuracy> = radii.iter().map(zero).collect();
        for part in found {
            for (all, part) in all.iter_mut().zip(part?) {
                all.correct += part.correct;
                all.examples += part.examples;
            }
        }
        Ok(all)
    }

    /// The gradient of each of `count` equal parts of the examples, and their sizes; parts of whole
    /// groups where examples share batch statistics, and no more of them than there are groups.
    ///
    /// # Errors
    /// If the model fails.
    pub fn parts(
        &self,
        parameters: &[f64],
        count: usize,
    ) -> Result<(Vec<usize>, Vec<Vec<f64>>), ProbeError> {
        let n = self.examples();
        let parts: Vec<Vec<Piece>> = match self.inner.statistics {
            SubjectStatistics::Batch { group } if self.inner.objective.has_batch_statistics() => {
                let groups = groups_of(n, group);
                let parts = shards(groups.len(), count.clamp(1, groups.len())).into_iter();
                parts.map(|own| whole_groups(&groups[own], group)).collect()
            }
            _ => shards(n, count.clamp(1, n)).iter().map(cut).collect(),
        };
        if parts.len() < 2 && count > 1 {
            return Err(ProbeError::OneGroup { examples: n });
        }
        self.go_on()?;
        let size = |part: &Vec<Piece>| part.iter().map(|piece| piece.range.len()).sum();
        let sizes: Vec<usize> = parts.iter().map(size).collect();
        let point: Arc<dyn Point<f64> + 'env> = Arc::from(self.inner.objective.at(parameters)?);
        let (inner, length) = (Arc::clone(&self.inner), parameters.len());
        let (count, own) = (parts.len(), sizes.clone());
        let gradients = self.pool.map(count, move |i| {
            let mut gradient = vec![0.0; length];
            let mut buffer = vec![0.0; length];
            for piece in &parts[i] {
                let weight = piece.range.len() as f64 / own[i] as f64;
                let ids = &inner.ids[piece.range.clone()];
                let batch = Batch::gather(inner.data, inner.examples, ids, &piece.groups);
                point.gradient(batch, inner.mode(), weight, &mut buffer)?;
                add_scaled(&mut gradient, 1.0, &buffer);
            }
            Ok(gradient)
        });
        let gradients: Result<Vec<_>, ObjectiveError> = gradients.into_iter().collect();
        Ok((sizes, gradients?))
    }
}

impl Landscape for Subject<'_, '_> {
    type Error = ProbeError;

    fn dimension(&self) -> usize {
        self.layout().len()
    }

    fn loss(&mut self, at: &[f64]) -> Result<f64, ProbeError> {
        let point: Arc<dyn Point<f64> + '_> = Arc::from(self.inner.objective.at(at)?);
        let loss = self.sum(&mut [], move |inner, strip, _: &mut [f64]| {
            let mut sum = 0.0;
            for piece in strip {
                let (batch, weight) = inner.batch(piece);
                let losses = point.predict(batch, inner.mode())?.losses;
                sum += weight * losses.iter().sum::<f64>() / losses.len() as f64;
            }
            Ok(sum)
        })?;
        let mut unused = at.to_vec();
        Ok(loss + self.add_l2(at, &mut unused))
    }

    fn gradient(&mut self, at: &[f64], gradient: &mut [f64]) -> Result<f64, ProbeError> {
        self.at(at)?.gradient(gradient)
    }
}

/// The objective at fixed parameters in one precision, and what is kept of it from product to product.
struct Fixed<'env, F: Scalar> {
    objective: &'env dyn Objective<F>,
    point: Arc<dyn Point<F> + 'env>,
    parameters: Vec<F>,
    /// The pieces, ready for products along any direction.
    pieces: Vec<Mutex<Kept<F>>>,
    /// The most bytes that may be kept in this process.
    most_bytes: OnceLock<usize>,
}

/// What is kept of a piece.
enum Kept<F> {
    /// Nothing yet, or no more.
    Out,
    /// The objective has nothing to keep.
    Never,
    /// This.
    In {
        prepared: Box<dyn Prepared<F>>,
        _bytes: Bytes,
    },
}

/// Bytes that count in [`KEPT`] as long as this lives.
struct Bytes(usize);

impl Bytes {
    /// `None` if they are too many.
    fn count(bytes: usize, most: usize) -> Option<Self> {
        let counted = Self(bytes);
        let before = KEPT.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= most).then_some(counted)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A quarter of the memory that is free, or 1 GiB.
fn most_kept_bytes() -> usize {
    let share = memory::available().map(|bytes| bytes / KEPT_SHARE);
    let share = share.and_then(|bytes| usize::try_from(bytes).ok());
    share.map_or(KEPT_BYTES, |bytes| bytes.max(KEPT_BYTES))
}

impl<'env, F: Scalar> Fixed<'env, F> {
    fn new(
        objective: &'env dyn Objective<F>,
        parameters: Vec<F>,
        pieces: usize,
    ) -> Result<Self, ProbeError> {
        Ok(Self {
            objective,
            point: Arc::from(objective.at(&parameters)?),
            parameters,
            pieces: (0..pieces).map(|_| Mutex::new(Kept::Out)).collect(),
            most_bytes: OnceLock::new(),
        })
    }

    /// Adds the product of some pieces.
    fn add_products(
        &self,
        inner: &Inner<'_>,
        strip: Range<usize>,
        (of, exact): (Curvature, bool),
        direction: &[F],
        sum: &mut [F],
    ) -> Result<(), ObjectiveError> {
        let mut left = Vec::new();
        for piece in strip {
            if !(exact && self.add_prepared(inner, piece, of, direction, sum)?) {
                left.push(piece);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let along: Box<dyn Along<F> + '_> = if exact {
            self.point.along(direction)?
        } else {
            let (objective, point) = (self.objective, &*self.point);
            Box::new(Differences::new(
                objective,
                point,
                &self.parameters,
                direction,
            )?)
        };
        let mut buffer = vec![F::ZERO; sum.len()];
        for piece in left {
            let (batch, weight) = inner.batch(piece);
            let weight = F::from_f64(weight);
            match of {
                Curvature::Hessian => {
                    along.hessian_product(batch, inner.mode(), weight, &mut buffer)?;
                }
                Curvature::GaussNewton => {
                    along.gauss_newton_product(batch, inner.mode(), weight, &mut buffer)?;
                }
            }
            for (sum, &x) in sum.iter_mut().zip(&buffer) {
                *sum += x;
            }
        }
        Ok(())
    }

    /// Adds the exact product of a piece; false if the objective has nothing to keep.
    fn add_prepared(
        &self,
        inner: &Inner<'_>,
        piece: usize,
        of: Curvature,
        direction: &[F],
        sum: &mut [F],
    ) -> Result<bool, ObjectiveError> {
        self.with_prepared(inner, piece, |prepared| match of {
            Curvature::Hessian => prepared.add_hessian_product(direction, sum),
            Curvature::GaussNewton => prepared.add_gauss_newton_product(direction, sum),
        })
    }

    /// Adds the gradient of some pieces.
    fn add_gradients(
        &self,
        inner: &Inner<'_>,
        strip: Range<usize>,
        exact: bool,
        sum: &mut [F],
    ) -> Result<(), ObjectiveError> {
        let mut buffer = Vec::new();
        for piece in strip {
            let add = |prepared: &dyn Prepared<F>| prepared.add_gradient(sum);
            if exact && self.with_prepared(inner, piece, add)? {
                continue;
            }
            buffer.resize(sum.len(), F::ZERO);
            let (batch, weight) = inner.batch(piece);
            let weight = F::from_f64(weight);
            self.point
                .gradient(batch, inner.mode(), weight, &mut buffer)?;
            for (sum, &x) in sum.iter_mut().zip(&buffer) {
                *sum += x;
            }
        }
        Ok(())
    }

    /// Applies a piece made ready, and keeps it as long as it fits; false if the objective has nothing to
    /// keep.
    fn with_prepared(
        &self,
        inner: &Inner<'_>,
        piece: usize,
        apply: impl FnOnce(&dyn Prepared<F>) -> Result<(), ObjectiveError>,
    ) -> Result<bool, ObjectiveError> {
        // No other thread has this piece.
        let mut kept = self.pieces[piece]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let prepared = match mem::replace(&mut *kept, Kept::Out) {
            Kept::In { prepared, .. } => Some(prepared),
            Kept::Never => None,
            Kept::Out => {
                let (batch, weight) = inner.batch(piece);
                let weight = F::from_f64(weight);
                self.point.prepare(&batch, inner.mode(), weight)?
            }
        };
        let Some(prepared) = prepared else {
            *kept = Kept::Never;
            return Ok(false);
        };
        apply(&*prepared)?;
        let most = *self.most_bytes.get_or_init(most_kept_bytes);
        if let Some(bytes) = Bytes::count(prepared.bytes(), most) {
            *kept = Kept::In {
                prepared,
                _bytes: bytes,
            };
        }
        Ok(true)
    }
}

/// A [`Subject`] at fixed parameters.
pub struct SubjectAt<'a, 'pool, 'env> {
    subject: &'a Subject<'pool, 'env>,
    fixed: Arc<Fixed<'env, f64>>,
    /// The same in single precision, where products are made in it.
    single: Option<Arc<Fixed<'env, f32>>>,
    products: usize,
}

/// A matrix of second derivatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curvature {
    /// The Hessian of the loss.
    Hessian,
    /// The Gauss-Newton matrix (1/N) sum J'H_z J, J the derivative of an example's outputs by the
    /// parameters, H_z the Hessian of its loss by the outputs.
    GaussNewton,
}

impl<'pool, 'env> SubjectAt<'_, 'pool, 'env> {
    /// The loss that this is a point of.
    pub fn subject(&self) -> &Subject<'pool, 'env> {
        self.subject
    }

    /// The loss; overwrites `gradient` with its gradient.
    ///
    /// # Errors
    /// If the model fails.
    pub fn gradient(&self, gradient: &mut [f64]) -> Result<f64, ProbeError> {
        let loss = self.gradient_of_examples(gradient)?;
        Ok(loss + self.subject.add_l2(&self.fixed.parameters, gradient))
    }

    /// As [`SubjectAt::gradient`], without the L2 term.
    ///
    /// # Errors
    /// If the model fails.
    pub fn gradient_of_examples(&self, gradient: &mut [f64]) -> Result<f64, ProbeError> {
        let point = Arc::clone(&self.fixed.point);
        self.subject.sum(gradient, move |inner, strip, sum| {
            let mut buffer = vec![0.0; sum.len()];
            let mut loss = 0.0;
            for piece in strip {
                let (batch, weight) = inner.batch(piece);
                loss += weight * point.gradient(batch, inner.mode(), weight, &mut buffer)?;
                add_scaled(sum, 1.0, &buffer);
            }
            Ok(loss)
        })
    }

    /// Overwrites `gradient` with the gradient in the precision that products are made in. Shares with
    /// them what is kept from product to product.
    ///
    /// # Errors
    /// If the model fails.
    pub fn gradient_like_products(&self, gradient: &mut [f64]) -> Result<(), ProbeError> {
        match &self.single {
            None => self.gradient_by(Arc::clone(&self.fixed), gradient),
            Some(single) => self.gradient_by(Arc::clone(single), gradient),
        }
    }

    fn gradient_by<F: Scalar>(
        &self,
        fixed: Arc<Fixed<'env, F>>,
        gradient: &mut [f64],
    ) -> Result<(), ProbeError> {
        let exact = self.subject.exact;
        self.subject.sum(gradient, move |inner, strip, sum| {
            fixed.add_gradients(inner, strip, exact, sum)?;
            Ok(0.0)
        })?;
        self.subject.add_l2(&self.fixed.parameters, gradient);
        Ok(())
    }

    /// Overwrites `product` with the product of a matrix of second derivatives and v.
    ///
    /// # Errors
    /// If the model fails.
    pub fn product(
        &mut self,
        of: Curvature,
        v: &[f64],
        product: &mut [f64],
    ) -> Result<(), ProbeError> {
        match &self.single {
            None => self.accurate_product(of, v, product),
            Some(single) => {
                let single = Arc::clone(single);
                let rounded = v.iter().map(|&x| x as f32).collect();
                self.product_by(single, of, v, rounded, product)
            }
        }
    }

    /// [`SubjectAt::product`] in f64, in any case.
    ///
    /// # Errors
    /// If the model fails.
    pub fn accurate_product(
        &mut self,
        of: Curvature,
        v: &[f64],
        product: &mut [f64],
    ) -> Result<(), ProbeError> {
        self.product_by(Arc::clone(&self.fixed), of, v, v.to_vec(), product)
    }

    fn product_by<F: Scalar>(
        &mut self,
        fixed: Arc<Fixed<'env, F>>,
        of: Curvature,
        v: &[f64],
        direction: Vec<F>,
        product: &mut [f64],
    ) -> Result<(), ProbeError> {
        if v.iter().all(|&x| x == 0.0) {
            product.fill(0.0);
            return Ok(());
        }
        self.products += 1;
        let kind = (of, self.subject.exact);
        self.subject.sum(product, move |inner, strip, sum| {
            fixed.add_products(inner, strip, kind, &direction, sum)?;
            Ok(0.0)
        })?;
        self.subject.add_l2(v, product);
        Ok(())
    }

    /// Products made so far.
    pub fn products(&self) -> usize {
        self.products
    }

    /// The matrix as an operator on whole parameter vectors, or on the vectors that are zero outside
    /// `range`: then it is the diagonal block of these parameters.
    pub fn operator(
        &mut self,
        of: Curvature,
        range: Option<Range<usize>>,
    ) -> impl SymmetricOperator<Error = ProbeError> {
        let length = self.fixed.parameters.len();
        let range = range.unwrap_or(0..length);
        Block {
            whole: range.len() == length,
            padded: vec![0.0; length],
            image: vec![0.0; length],
            range,
            of,
            at: self,
        }
    }

    /// Whether [`SubjectAt::layer_traces`] answers for this matrix.
    ///
    /// # Errors
    /// [`ProbeError::NoExactTrace`] if not; another if the model fails.
    pub fn check_layer_traces(&self, of: Curvature) -> Result<(), ProbeError> {
        let inner = &self.subject.inner;
        let no = |reason| Err(ProbeError::NoExactTrace { reason });
        if of == Curvature::Hessian && !inner.objective.is_linear_in_each_parameter() {
            return no(
                "the outputs of the model are not piecewise linear in each parameter, or \
                 `Network::is_linear_in_each_parameter` does not say so",
            );
        }
        let classes = inner.data.classes;
        if classes == 0 {
            return no("the data have no classes");
        }
        if inner.objective.has_batch_statistics() && matches!(inner.mode(), StatisticsMode::Batch) {
            return no(
                "single examples have no gradients under the statistics of a batch, as they have \
                 under frozen ones",
            );
        }
        // The first example, once as each class.
        let first: Batch<f64> =
            Batch::gather(inner.data, inner.examples, &inner.ids[..1], &[classes]);
        let every = Batch {
            features: first.features.repeat(classes),
            labels: (0..classes as u32).collect(),
            ids: vec![inner.ids[0]; classes],
            groups: first.groups.clone(),
        };
        let point = &self.fixed.point;
        let one = Batch {
            groups: vec![1],
            ..first
        };
        match point.example_norms(one.clone(), inner.mode()) {
            Ok(norms) if norms.exact_pass => {}
            Ok(_) | Err(ObjectiveError::NoExampleNorms) => {
                return no("the gradients of single examples take one pass an example");
            }
            Err(error) => return Err(error.into()),
        }
        let outputs = point.outputs(one, inner.mode())?;
        let losses = point.predict(every, inner.mode())?.losses;
        let largest = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = outputs.iter().map(|z| (z - largest).exp()).sum();
        let entropies = outputs.iter().map(|z| largest + sum.ln() - z);
        let same = outputs.len() == classes
            && entropies.zip(&losses).all(|(own, loss)| {
                (own - loss).abs() <= 1e-8 * (1.0 + own.abs()) || !own.is_finite()
            });
        if !same {
            return no("the losses are not the cross-entropy of softmax");
        }
        Ok(())
    }

    /// The traces of the diagonal blocks of the layers, in the order of the layout, exactly; the trace of
    /// the matrix is their sum. Takes one pass a class.
    ///
    /// With logits z, p = softmax(z) and g_ic the gradient of -log p_c of example i, the Hessian of the loss
    /// by z is diag(p) - pp' = sum_c p_c (p - e_c)(p - e_c)', so the Gauss-Newton matrix is
    /// G = (1/N) sum_i sum_c p_ic g_ic g_ic' (the Fisher matrix of the model's own labels, Martens 2014,
    /// arXiv 1412.1193), and its trace is that sum over |g_ic|^2 ([`SubjectAt::example_norms`]). What the
    /// Hessian has besides, (1/N) sum_i sum_c (p_ic - y_ic) H(z_ic), has a diagonal of zeros where outputs
    /// are piecewise linear in each single parameter (Botev et al. 2017, arXiv 1706.03662). Rounding alone
    /// is in the answer; with the L2 term.
    ///
    /// # Errors
    /// As [`SubjectAt::check_layer_traces`], and if the model fails.
    pub fn layer_traces(&self, of: Curvature) -> Result<Vec<(String, f64)>, ProbeError> {
        self.check_layer_traces(of)?;
        let mut traces = match &self.single {
            None => self.fisher_traces(&self.fixed)?,
            Some(single) => self.fisher_traces(single)?,
        };
        if let Some((lambda, ranges)) = &self.subject.l2 {
            for parameter in &self.subject.layout().parameters {
                let own = traces
                    .iter_mut()
                    .find(|(layer, _)| layer == parameter.layer());
                if let (Some((_, trace)), true) = (own, ranges.contains(&parameter.range)) {
                    *trace += lambda * parameter.range.len() as f64;
                }
            }
        }
        Ok(traces)
    }

    /// (1/N) sum_i sum_c p_ic |g_ic|^2, by layer.
    fn fisher_traces<F: Scalar>(
        &self,
        fixed: &Arc<Fixed<'env, F>>,
    ) -> Result<Vec<(String, f64)>, ProbeError> {
        let examples = self.subject.examples() as f64;
        let mut traces: Vec<(String, f64)> = Vec::new();
        for class in 0..self.subject.inner.data.classes {
            self.subject.go_on()?;
            let (point, inner) = (Arc::clone(&fixed.point), Arc::clone(&self.subject.inner));
            let parts = self.subject.pool.map(inner.pieces.len(), move |i| {
                let (mut batch, _) = inner.batch::<F>(i);
                batch.labels.fill(class as u32);
                let norms = point.example_norms(batch, inner.mode())?;
                let weigh = |squares: &[f64]| -> f64 {
                    let pairs = squares.iter().zip(&norms.losses);
                    pairs.map(|(square, loss)| (-loss).exp() * square).sum()
                };
                let layers = norms.layers.iter();
                Ok(layers
                    .map(|own| (own.layer.clone(), weigh(&own.squared_norms)))
                    .collect())
            });
            for part in parts {
                let part: Result<Vec<(String, f64)>, ObjectiveError> = part;
                let part = part?;
                traces.resize_with(part.len(), Default::default);
                for ((name, sum), (layer, more)) in traces.iter_mut().zip(part) {
                    *name = layer;
                    *sum += more;
                }
            }
        }
        for (_, trace) in &mut traces {
            *trace /= examples;
        }
        Ok(traces)
    }

    /// Squared gradient norms of all examples, in the order of [`Subject::ids`]. Without the L2
    /// term.
    ///
    /// # Errors
    /// With batch statistics, where the gradient of one example is not defined; if the model fails.
    pub fn example_norms(&self) -> Result<ExampleNorms, ProbeError> {
        self.subject.go_on()?;
        let (point, inner) = (
            Arc::clone(&self.fixed.point),
            Arc::clone(&self.subject.inner),
        );
        let count = inner.pieces.len();
        let parts = self.subject.pool.map(count, move |i| {
            let (batch, _) = inner.batch(i);
            match point.example_norms(batch.clone(), inner.mode()) {
                Err(ObjectiveError::NoExampleNorms) => {
                    let layout = inner.objective.layout();
                    example_norms_one_by_one(&*point, layout, &batch, inner.mode())
                }
                found => found,
            }
        });
        let mut all: Option<ExampleNorms> = None;
        for part in parts {
            let part = part?;
            match &mut all {
                None => all = Some(part),
                Some(all) => {
                    all.losses.extend(part.losses);
                    for (own, more) in all.layers.iter_mut().zip(part.layers) {
                        own.squared_norms.extend(more.squared_norms);
                    }
                }
            }
        }
        all.ok_or(ProbeError::NoExamples)
    }
}

/// Where the residual of an eigenpair is held against at least this share of the matrix's norm, it may come
/// from a product in f32: fifty times what the rounding of such products has been seen to cost.
const COARSE_RESIDUAL: f64 = 5e-4;

/// The same of exact products in f64, and of sums of them: ten thousand times their rounding.
const FINE_RESIDUAL: f64 = 1e-10;

/// A diagonal block of a matrix of second derivatives.
struct Block<'b, 'a, 'pool, 'env> {
    at: &'b mut SubjectAt<'a, 'pool, 'env>,
    of: Curvature,
    range: Range<usize>,
    whole: bool,
    padded: Vec<f64>,
    image: Vec<f64>,
}

impl SymmetricOperator for Block<'_, '_, '_, '_> {
    type Error = ProbeError;

    fn dimension(&self) -> usize {
        self.range.len()
    }

    fn apply(&mut self, v: &[f64], product: &mut [f64]) -> Result<(), ProbeError> {
        self.apply_by(v, product, SubjectAt::product)
    }

    fn apply_for_residual(
        &mut self,
        v: &[f64],
        product: &mut [f64],
        tolerance: f64,
    ) -> Result<(), ProbeError> {
        if tolerance < COARSE_RESIDUAL {
            self.apply_by(v, product, SubjectAt::accurate_product)
        } else {
            self.apply(v, product)
        }
    }

    fn adds_up(&self, tolerance: f64) -> bool {
        let least = match self.at.single {
            None => FINE_RESIDUAL,
            Some(_) => COARSE_RESIDUAL,
        };
        self.at.subject.exact && tolerance >= least
    }
}

impl<'a, 'pool, 'env> Block<'_, 'a, 'pool, 'env> {
    fn apply_by(
        &mut self,
        v: &[f64],
        product: &mut [f64],
        whole: impl Fn(
            &mut SubjectAt<'a, 'pool, 'env>,
            Curvature,
            &[f64],
            &mut [f64],
        ) -> Result<(), ProbeError>,
    ) -> Result<(), ProbeError> {
        if self.whole {
            return whole(self.at, self.of, v, product);
        }
        self.padded[self.range.clone()].copy_from_slice(v);
        whole(self.at, self.of, &self.padded, &mut self.image)?;
        product.copy_from_slice(&self.image[self.range.clone()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_while_they_live_and_no_more_than_the_most() {
        // Other tests of this process keep nothing of this size.
        let large = 1 << 50;
        let first = Bytes::count(large, 2 * large);
        assert!(first.is_some());
        assert!(Bytes::count(large + 1, 2 * large).is_none());
        assert!(KEPT.load(Ordering::Relaxed) < 2 * large);
        drop(first);
        assert!(Bytes::count(large + 1, 2 * large).is_some());
    }
}
