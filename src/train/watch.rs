//! The noise of the gradient of every update, from the pieces that it is made of anyway.

use std::ops::Range;
use std::sync::Arc;

use super::TrainError;
use super::gradient::Piece;
use super::session::{Leaf, Session};
use crate::collective::Root;
use crate::config::OptimizerConfig;
use crate::math::noise::PieceNorms;
use crate::objective::{Layout, Scalar};

/// Partial sums of a squared norm: enough to fill a processor's vector units. Fixed, so that sums
/// round the same everywhere.
const LANES: usize = 16;

/// Elements whose squares are summed in the gradient's own precision before f64 takes over: 32 a lane,
/// so that in f32 the sum keeps six digits and more.
const BLOCK: usize = 32 * LANES;

/// |a|^2, or |a + b|^2; blocks in F, their sum in f64.
pub(super) fn squared_norm<F: Scalar>(a: &[F], b: Option<&[F]>) -> f64 {
    match b {
        None => a.chunks(BLOCK).map(squares).sum(),
        Some(b) => {
            let mut both = [F::ZERO; BLOCK];
            let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK));
            blocks
                .map(|(a, b)| {
                    for (both, (&a, &b)) in both.iter_mut().zip(a.iter().zip(b)) {
                        *both = a + b;
                    }
                    squares(&both[..a.len()])
                })
                .sum()
        }
    }
}

fn squares<F: Scalar>(block: &[F]) -> f64 {
    let mut lanes = [F::ZERO; LANES];
    let whole = block.chunks_exact(LANES);
    let rest = whole.remainder();
    for row in whole {
        for (lane, &x) in lanes.iter_mut().zip(row) {
            *lane += x * x;
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += x * x;
    }
    lanes.iter().map(|lane| lane.to_f64()).sum()
}

/// The squared norm of scale_i x_i over x = a, or x = a + b, in f64.
fn scaled_norm<F: Scalar>(a: &[F], b: Option<&[F]>, scale: &[F]) -> f64 {
    let square = |(i, scale): (usize, &F)| {
        let x = b.map_or(a[i], |b| a[i] + b[i]);
        (x.to_f64() * scale.to_f64()).powi(2)
    };
    scale.iter().enumerate().map(square).sum()
}

/// Squared norms of one vector.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Norms {
    /// Of each layer, where they are wanted.
    pub(super) layers: Vec<f64>,
    /// In the optimizer's metric, where it has one.
    pub(super) metric: Option<f64>,
}

/// Which norms are wanted besides the plain one.
#[derive(Debug, Clone, Default)]
pub(super) struct Measures<F> {
    layers: Vec<Range<usize>>,
    metric: Option<Arc<Vec<F>>>,
}

impl<F: Scalar> Measures<F> {
    /// Those of a gradient.
    pub(super) fn of(&self, a: &[F], b: Option<&[F]>) -> Norms {
        let part = |range: &Range<usize>| {
            let own = b.map(|b| &b[range.clone()]);
            squared_norm(&a[range.clone()], own)
        };
        let metric = self.metric.as_ref();
        Norms {
            layers: self.layers.iter().map(part).collect(),
            metric: metric.map(|scale| scaled_norm(a, b, scale)),
        }
    }
}

/// The two-batch norms of one layer in one update.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNoise {
    /// The layer.
    pub layer: String,
    /// Mean squared norm over the pieces, weighted by their examples.
    pub g2_small: f64,
    /// Squared norm of the gradient of the batch.
    pub g2_big: f64,
}

/// What one update says about the noise of its gradient: with L pieces of n_i examples and mean
/// gradients g_i, B = sum n_i and g = sum n_i g_i/B.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateNoise {
    /// Updates made, this one included.
    pub step: u64,
    /// Epochs passed.
    pub epoch: f64,
    /// Examples processed.
    pub examples: u64,
    /// Learning rate.
    pub lr: f64,
    /// B/L: examples of a piece.
    pub b_small: f64,
    /// sum n_i |g_i|^2/B.
    pub g2_small: f64,
    /// B.
    pub b_big: f64,
    /// |g|^2.
    pub g2_big: f64,
    /// The estimate of tr(Sigma).
    pub tr_sigma: f64,
    /// The estimate of |G|^2; may be zero or negative.
    pub squared_gradient: f64,
    /// Cosine between g and the gradient of the update before, where it is asked for.
    pub cosine_previous: Option<f64>,
    /// Cosine between two pieces, their inner products and squared norms averaged first.
    pub cosine_workers: f64,
    /// The same norms of the gradient in AdamW's metric, g_j/(v_j^(1/2) + epsilon): small and big.
    pub adamw: Option<(f64, f64)>,
    /// By layer, where they are asked for.
    pub layers: Vec<LayerNoise>,
}

/// Layers of a layout: parameters whose names differ in the last part alone, with their range.
/// The parameters of a layer lie side by side.
pub(super) fn layers_of(layout: &Layout) -> Vec<(String, Range<usize>)> {
    let mut layers: Vec<(String, Range<usize>)> = Vec::new();
    for parameter in &layout.parameters {
        let name = parameter.layer();
        match layers.last_mut() {
            Some((last, range)) if last == name => range.end = parameter.range.end,
            _ => layers.push((name.to_owned(), parameter.range.clone())),
        }
    }
    layers
}

impl<F: Scalar> Session<'_, '_, F> {
    /// Whether the update after `step` others is one whose noise is written.
    pub(super) fn watches(&self, step: u64) -> bool {
        let noise = self.config.probes.noise_of_updates();
        noise.is_some_and(|noise| (step + 1).is_multiple_of(noise.every_steps))
    }

    /// The norms that such an update needs besides the plain ones.
    pub(super) fn measures(&self, step: u64) -> Measures<F> {
        let Some(noise) = self.config.probes.noise_of_updates() else {
            return Measures::default();
        };
        let layers = if noise.layers {
            let layers = layers_of(self.objective.layout());
            layers.into_iter().map(|(_, range)| range).collect()
        } else {
            Vec::new()
        };
        Measures {
            layers,
            metric: self.metric(step).map(Arc::new),
        }
    }

    /// 1/(v_j^(1/2) + epsilon) of AdamW, with its correction for the start; `None` before the first
    /// update, and for optimizers without a second moment.
    pub(super) fn metric(&self, step: u64) -> Option<Vec<F>> {
        let OptimizerConfig::Adamw { beta2, epsilon, .. } = self.config.optimizer else {
            return None;
        };
        let (_, second) = self.vectors().find(|(name, _)| *name == "exp_avg_sq")?;
        if step == 0 {
            return None;
        }
        let correction = 1.0 - beta2.powf(step as f64);
        let scale = |v: &F| F::from_f64(1.0 / ((v.to_f64() / correction).sqrt() + epsilon));
        Some(second.iter().map(scale).collect())
    }

    /// What the pieces of an update say about the noise of its gradient.
    pub(super) fn noise_of(
        &mut self,
        leaves: &[Leaf],
        pieces: &[Piece<F>],
        root: &Root<F>,
        measures: &Measures<F>,
    ) -> Result<Option<UpdateNoise>, TrainError> {
        let count = leaves.len();
        let cosine_previous = self.turn(root);
        if count < 2 {
            // The rest of an epoch, too small to be cut.
            return Ok(None);
        }
        let sizes: Vec<usize> = leaves.iter().map(|leaf| leaf.range.len()).collect();
        let big: f64 = sizes.iter().sum::<usize>() as f64;
        let squared_mean = squared_norm(&root.left, root.right.as_deref());
        let of_mean = measures.of(&root.left, root.right.as_deref());
        // Pieces are kept as their share of the mean: n_i g_i/B.
        let mean_square = |square: &dyn Fn(&Piece<F>) -> f64| -> f64 {
            let weighted = sizes.iter().zip(pieces);
            weighted
                .map(|(&n, piece)| square(piece) * big / n as f64)
                .sum()
        };
        let norms = PieceNorms {
            squared_norms: pieces.iter().map(|piece| piece.squared_norm).collect(),
            squared_mean,
            inner: None,
            population: self.population(),
            sizes: sizes.clone(),
        };
        let estimate = norms.noise()?;
        let weighted = sizes.iter().zip(&norms.squared_norms);
        let g2_small = weighted.clone().map(|(&n, s)| n as f64 * s).sum::<f64>() / big;
        let own: f64 = weighted.map(|(&n, s)| (n as f64 / big).powi(2) * s).sum();
        let pairs = 1.0 - sizes.iter().map(|&n| (n as f64 / big).powi(2)).sum::<f64>();
        let layers = layers_of(self.objective.layout())
            .into_iter()
            .zip(&of_mean.layers)
            .enumerate()
            .map(|(i, ((layer, _), &g2_big))| LayerNoise {
                layer,
                g2_small: mean_square(&|piece| piece.norms.layers[i]),
                g2_big,
            })
            .collect();
        let adamw = of_mean.metric.map(|big_norm| {
            let small = mean_square(&|piece| piece.norms.metric.unwrap_or_default());
            (small, big_norm)
        });
        Ok(Some(UpdateNoise {
            step: 0,
            epoch: 0.0,
            examples: 0,
            lr: 0.0,
            b_small: big / count as f64,
            g2_small,
            b_big: big,
            g2_big: squared_mean,
            tr_sigma: estimate.tr_sigma,
            squared_gradient: estimate.squared_gradient,
            cosine_previous,
            cosine_workers: (squared_mean - own) / pairs / g2_small,
            adamw,
            layers,
        }))
    }

    /// Cosine between the gradient and the one kept, which it takes the place of.
    fn turn(&mut self, root: &Root<F>) -> Option<f64> {
        let previous = self.previous.as_mut()?;
        let (mut product, mut own, mut other) = (0.0, 0.0, 0.0);
        for (i, kept) in previous.iter_mut().enumerate() {
            let left = root.left[i];
            let g = root.right.as_ref().map_or(left, |right| left + right[i]);
            let (a, b) = (g.to_f64(), kept.to_f64());
            product += a * b;
            own += a * a;
            other += b * b;
            *kept = g;
        }
        (other > 0.0 && own > 0.0).then(|| product / (own * other).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squared_norms_take_in_every_element_at_any_length() {
        for n in (0..40_u16).chain([511, 512, 513, 1000, 1024, 1039]) {
            let a: Vec<f64> = (1..=n).map(f64::from).collect();
            let expected: f64 = a.iter().map(|x| x * x).sum();
            let close = |found: f64, expected: f64| {
                assert!(
                    (found - expected).abs() <= 1e-14 * expected,
                    "{found} {expected}"
                );
            };
            close(squared_norm(&a, None), expected);
            close(squared_norm(&a, Some(&a)), 4.0 * expected);
            close(scaled_norm(&a, Some(&a), &vec![0.5; a.len()]), expected);
        }
    }

    #[test]
    fn in_f32_a_squared_norm_keeps_six_digits() {
        let values = |i: u32| (f64::from(i) * 0.618).fract() as f32 - 0.5;
        let a: Vec<f32> = (0..100_000).map(values).collect();
        let exact: f64 = a.iter().map(|&x| f64::from(x).powi(2)).sum();
        let found = squared_norm(&a, None);
        assert!((found / exact - 1.0).abs() < 1e-6, "{found} {exact}");
    }
}
