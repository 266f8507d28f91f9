//! What a session measures on its way: the noise of the gradient from the pieces of a batch, the
//! curvature, running batch statistics; and what its batch controller makes of them.

use super::TrainError;
use super::gradient::Piece;
use super::session::{BatchChange, Leaf, Session};
use super::watch::squared_norm;
use crate::collective::Root;
use crate::config::{BatchController, BatchStatistics, Products, TrialConfig};
use crate::math::lanczos::{TopSearch, top_eigenvalue};
use crate::math::noise::{Average, NoiseEstimate, PieceNorms};
use crate::objective::{
    Batch, GroupMoments, LayerStatistics, ObjectiveError, Point, Scalar, StatisticsMode,
};
use crate::probe::noise::{PieceNoiseError, piece_noise};
use crate::probe::{Curvature, Subject, SubjectOptions, SubjectStatistics};
use crate::rng::Stream;
use crate::schedule::{Measured, Need};
use crate::theory::learning_rate::{adascale_gain, adascale_smoothing};

/// Elements of an inner product that are summed at a time; the sums of the chunks are added in order,
/// so that the result does not depend on threads.
const CHUNK: usize = 4096;

fn sum(mut terms: impl Iterator<Item = f64>) -> f64 {
    let mut total = 0.0;
    loop {
        let mut any = false;
        let chunk: f64 = terms.by_ref().take(CHUNK).inspect(|_| any = true).sum();
        if !any {
            return total;
        }
        total += chunk;
    }
}

/// The gradient of the batch, its last addition made on the way.
fn mean_gradient<F: Scalar>(root: &Root<F>) -> impl Iterator<Item = F> {
    let right = root.right.as_deref();
    root.left
        .iter()
        .enumerate()
        .map(move |(i, &left)| right.map_or(left, |right| left + right[i]))
}

/// AdaScale's state.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gains {
    /// Sum of the gains.
    pub(super) sum: f64,
    variance: Average,
    squared_gradient: Average,
}

impl Gains {
    pub(super) fn new(config: &TrialConfig, global_batch: usize) -> Self {
        let base = config.learning_rate.base_batch.unwrap_or(global_batch);
        let average = Average::new(adascale_smoothing(base as f64, global_batch as f64));
        Self {
            sum: 0.0,
            variance: average,
            squared_gradient: average,
        }
    }

    /// Takes in one update's noise and returns its gain.
    pub(super) fn next(&mut self, config: &TrialConfig, noise: &NoiseEstimate) -> f64 {
        self.variance.push(noise.tr_sigma);
        self.squared_gradient.push(noise.squared_gradient);
        let (Some(variance), Some(squared)) =
            (self.variance.value(), self.squared_gradient.value())
        else {
            return 1.0;
        };
        let base = config.learning_rate.base_batch.unwrap_or(noise.batch);
        let gain = adascale_gain(variance, squared, base as f64, noise.batch as f64);
        if gain.is_finite() { gain } else { 1.0 }
    }
}

/// FGSM (Goodfellow et al. 2015): x + epsilon sign(gradient of its loss), for the first `moved`
/// examples of the batch.
pub(super) fn move_along_the_gradient<F: Scalar>(
    point: &dyn Point<F>,
    batch: &mut Batch<F>,
    moved: usize,
    epsilon: f64,
) -> Result<(), ObjectiveError> {
    let mut gradient = Vec::new();
    point.input_gradient(batch.clone(), StatisticsMode::Batch, &mut gradient)?;
    let width = batch.features.len() / batch.len().max(1);
    for (x, g) in batch.features[..moved * width].iter_mut().zip(&gradient) {
        let g = g.to_f64();
        if g != 0.0 {
            *x += F::from_f64(epsilon.copysign(g));
        }
    }
    Ok(())
}

/// Running statistics as bits, which JSON keeps whatever they are: a network that diverges may have
/// statistics that are not finite before its loss shows it.
pub(super) mod exact {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::objective::LayerStatistics;

    type Bits = (String, Vec<u64>, Vec<u64>);

    pub(in crate::train) fn serialize<S: Serializer>(
        layers: &[LayerStatistics],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bits = |values: &[f64]| -> Vec<u64> { values.iter().map(|v| v.to_bits()).collect() };
        let layers: Vec<Bits> = layers
            .iter()
            .map(|layer| (layer.name.clone(), bits(&layer.mean), bits(&layer.variance)))
            .collect();
        layers.serialize(serializer)
    }

    pub(in crate::train) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<LayerStatistics>, D::Error> {
        let values = |bits: Vec<u64>| bits.into_iter().map(f64::from_bits).collect();
        let layers = Vec::<Bits>::deserialize(deserializer)?;
        Ok(layers
            .into_iter()
            .map(|(name, mean, variance)| LayerStatistics {
                name,
                mean: values(mean),
                variance: values(variance),
            })
            .collect())
    }
}

impl<'env, F: Scalar> Session<'_, 'env, F> {
    /// Adversarial examples at the front of a batch of `total`, and how far their features move.
    pub(super) fn adversarial(&self, total: usize) -> (usize, f64) {
        let progress = self.setup.progress(&self.reached());
        let control = &self.setup.control;
        control
            .adversarial(&self.counters.control, progress)
            .map_or((0, 0.0), |adversarial| {
                let count = (adversarial.share * total as f64).round();
                (count as usize, adversarial.epsilon)
            })
    }

    /// What the pieces of the batch say about the noise of its gradient; `None` with one piece.
    pub(super) fn noise(
        &self,
        leaves: &[Leaf],
        pieces: &[Piece<F>],
        root: &Root<F>,
        need: Need,
    ) -> Result<Option<NoiseEstimate>, TrainError> {
        if leaves.len() < 2 {
            return Ok(None);
        }
        let total: usize = leaves.iter().map(|leaf| leaf.range.len()).sum();
        let inner = (need == Need::InnerProducts).then(|| {
            pieces
                .iter()
                .zip(leaves)
                .map(|(piece, leaf)| {
                    let own = piece.gradient.iter().flatten();
                    let weight = leaf.range.len() as f64 / total as f64;
                    let products = own
                        .zip(mean_gradient(root))
                        .map(|(a, b)| a.to_f64() * b.to_f64());
                    sum(products) / weight
                })
                .collect()
        });
        let norms = PieceNorms {
            sizes: leaves.iter().map(|leaf| leaf.range.len()).collect(),
            squared_norms: pieces.iter().map(|piece| piece.squared_norm).collect(),
            squared_mean: squared_norm(&root.left, root.right.as_deref()),
            inner,
            population: self.population(),
        };
        Ok(Some(norms.noise()?))
    }

    /// Examples that batches are drawn from; `None` where they never repeat.
    pub(super) fn population(&self) -> Option<usize> {
        let fresh = self.data.fresh.is_some();
        (!fresh).then(|| self.data.train.len())
    }

    /// The measurement that the batch controller asked for, after a gradient.
    pub(super) fn measured(
        &self,
        need: Need,
        noise: NoiseEstimate,
        leaves: &[Leaf],
        pieces: &[Piece<F>],
        loss: f64,
    ) -> Result<Measured, TrainError> {
        if need != Need::HessianNoise {
            return Ok(Measured::Noise {
                estimate: noise,
                loss,
            });
        }
        let BatchController::NoiseScale {
            curvature_examples, ..
        } = self.config.batch.controller
        else {
            return Ok(Measured::Nothing);
        };
        let total: usize = leaves.iter().map(|leaf| leaf.range.len()).sum();
        let sizes: Vec<usize> = leaves.iter().map(|leaf| leaf.range.len()).collect();
        let gradients: Vec<Vec<f64>> = pieces
            .iter()
            .zip(&sizes)
            .map(|(piece, &size)| {
                let weight = size as f64 / total as f64;
                let own = piece.gradient.iter().flatten();
                own.map(|g| g.to_f64() / weight).collect()
            })
            .collect();
        let (subject, at) = self.curvature(curvature_examples)?;
        let mut point = subject.at(&at)?;
        let mut hessian = point.operator(Curvature::Hessian, None);
        let noise =
            piece_noise(&sizes, &gradients, self.population(), &mut hessian).map_err(|error| {
                match error {
                    PieceNoiseError::Noise(error) => TrainError::from(error),
                    PieceNoiseError::Product(error) => error.into(),
                }
            })?;
        Ok(Measured::HessianNoise {
            tr_h_sigma: noise.tr_h_sigma.value,
            ghg: noise.ghg.value,
        })
    }

    /// What a plan for the batch does before an update, by the epochs passed.
    pub(super) fn follow_plan(&mut self) {
        let moment = self.setup.moment(&self.reached());
        if self.setup.control.need(&self.counters.control, moment) == Need::Nothing {
            self.decide(&Measured::Nothing, 0.0);
        }
    }

    /// What the batch controller makes of the curvature after an update, for those that come.
    pub(super) fn follow_curvature(&mut self, lr: f64) -> Result<(), TrainError> {
        let moment = self.setup.moment(&self.reached());
        let need = self.setup.control.need(&self.counters.control, moment);
        let BatchController::Absa {
            curvature_examples,
            power_iterations,
            tolerance,
            ..
        } = self.config.batch.controller
        else {
            return Ok(());
        };
        if need != Need::TopEigenvalue {
            return Ok(());
        }
        let top = {
            let (subject, at) = self.curvature(curvature_examples)?;
            let mut point = subject.at(&at)?;
            let search = TopSearch {
                tolerance: tolerance.sqrt(),
                max_products: power_iterations,
                ..TopSearch::default()
            };
            let mut stream = Stream::new(self.config.data.split_seed, "top-eigenvalue", 0);
            let mut draw = |v: &mut [f64]| v.fill_with(|| stream.normal());
            let mut hessian = point.operator(Curvature::Hessian, None);
            top_eigenvalue(&mut hessian, &search, &mut draw)?
        };
        let measured = Measured::Eigenvalue {
            value: top.value,
            converged: top.converged,
            residual: top.residual,
            products: top.products,
        };
        self.decide(&measured, lr);
        Ok(())
    }

    /// Lets the batch controller decide about the updates that come, if any do, and notes what it
    /// did.
    pub(super) fn decide(&mut self, measured: &Measured, lr: f64) {
        if self.is_over() {
            return;
        }
        let moment = self.setup.moment(&self.reached());
        let state = &mut self.counters.control;
        if let Some(change) = self.setup.control.decide(state, moment, measured, lr) {
            self.changes.push(BatchChange {
                step: moment.step,
                epoch: moment.epoch,
                examples: self.counters.position.examples,
                change,
            });
        }
    }

    /// The mean loss of fixed, seeded training examples in f64, with the batch statistics of the
    /// present parameters frozen; and these parameters.
    fn curvature(&self, examples: usize) -> Result<(Subject<'_, 'env>, Vec<f64>), TrainError> {
        let objective = self.curvature.ok_or(TrainError::NoCurvature)?;
        let options = SubjectOptions {
            examples,
            seed: self.config.data.split_seed,
            statistics: SubjectStatistics::Frozen(self.statistics_at(&self.parameters)?),
            l2: None,
            products: Products::Auto,
        };
        let subject = Subject::new(objective, self.data, self.pool, options)?;
        let at = self.parameters.iter().map(|p| p.to_f64()).collect();
        Ok((subject, at))
    }

    /// Running statistics before the first update: mean 0 and variance 1 of every layer.
    pub(super) fn start_statistics(&mut self) -> Result<(), TrainError> {
        let wanted = matches!(
            self.config.train.batch_statistics,
            BatchStatistics::Ema { .. }
        );
        if !wanted || !self.objective.has_batch_statistics() {
            return Ok(());
        }
        let ids: Vec<u64> = (0..self.data.train.len().min(2) as u64).collect();
        let batch = Batch::gather(self.data, &self.data.train, &ids, &[ids.len()]);
        let layers = self.objective.at(&self.parameters)?.moments(batch)?;
        self.counters.running = layers
            .into_iter()
            .map(|layer| LayerStatistics {
                name: layer.layer,
                mean: vec![0.0; layer.mean.len()],
                variance: vec![1.0; layer.mean.len()],
            })
            .collect();
        Ok(())
    }

    /// Moves the running statistics: r <- (1 - rate) r + rate s, s the mean over the groups of the
    /// update of their mean and of their unbiased variance.
    pub(super) fn follow_statistics(&mut self, pieces: &[Piece<F>]) {
        let BatchStatistics::Ema { rate } = self.config.train.batch_statistics else {
            return;
        };
        for running in &mut self.counters.running {
            let own: Vec<&GroupMoments> = pieces
                .iter()
                .flat_map(|piece| &piece.moments)
                .filter(|moments| moments.layer == running.name)
                .collect();
            if own.is_empty() {
                continue;
            }
            let groups = own.len() as f64;
            let follow = |r: &mut f64, s: f64| *r = (1.0 - rate) * *r + rate * s;
            for c in 0..running.mean.len() {
                let mean: f64 = own.iter().map(|g| g.mean[c]).sum();
                follow(&mut running.mean[c], mean / groups);
                let unbiased = |g: &&GroupMoments| {
                    let n = g.values as f64;
                    g.variance[c] * n / (n - 1.0)
                };
                let variance: f64 = own.iter().map(unbiased).sum();
                follow(&mut running.variance[c], variance / groups);
            }
        }
    }
}
