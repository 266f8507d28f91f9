//! The noise of the gradient at one point of training: from the gradients of single examples, and
//! from those of the pieces of a batch, weighted by the Hessian or in the metric of an optimizer.
//!
//! G is the expected gradient, Sigma the covariance of the gradient of one example (N - 1 under the
//! sum where the data set of N examples is all there is). All gradients here are those of a *mean*
//! loss. Standard errors and intervals leave out one example or one piece at a time (jackknife); see
//! [`crate::math::noise_scale`] for the interval of a quotient. They are about the data set where
//! `population` is given: of single examples variances take the factor 1 - B/N, and with all N
//! nothing is uncertain; of pieces, tr(Sigma) and tr(H Sigma) still depend on how the examples were
//! cut into pieces ([`piece_noise`]).

use thiserror::Error;

use super::landscape::difference_step;
use crate::math::noise::{self, NoiseError, share_of_mean};
use crate::math::noise_scale::{LeftOut, NoiseParts, Quantity, Ratio, TwoErrors};
use crate::math::operator::{Operator, SymmetricOperator, add_scaled, dot, norm};

/// The share of a variance that is left when `batch` of `population` examples are known: 1 - B/N.
fn unknown(batch: usize, population: Option<usize>) -> f64 {
    population.map_or(1.0, |n| (1.0 - batch as f64 / n as f64).max(0.0))
}

/// The share of the variance of tr(A Sigma) that `pieces` pieces of `batch` examples owe to the cut
/// alone and that `unknown` takes off all the same: (B/N)(B - L)/(B - 1).
fn of_the_cut(pieces: usize, batch: usize, population: Option<usize>) -> f64 {
    let alone = (batch - pieces) as f64 / (batch - 1) as f64;
    (1.0 - unknown(batch, population)) * alone
}

/// Gradients of single examples, as far as one layer's parameters go.
#[derive(Debug, Clone, Copy)]
pub struct LayerGradients<'a> {
    /// Name of the layer.
    pub layer: &'a str,
    /// |g_i|^2 of each example.
    pub squared_norms: &'a [f64],
    /// |g|^2 of the mean gradient of all these examples.
    pub squared_mean: f64,
    /// g_i'g of each example ([`inner_products`]); without them there is no jackknife.
    pub inner: Option<&'a [f64]>,
}

/// The noise from the gradients of single examples.
#[derive(Debug, Clone, PartialEq)]
pub struct ExampleNoise {
    /// Examples taken, B.
    pub examples: usize,
    /// Over all parameters: tr(Sigma) and |G|^2 are the sums of those of the layers.
    pub total: NoiseParts,
    /// By layer, in the order given.
    pub layers: Vec<(String, NoiseParts)>,
}

/// Why single examples give no noise.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExampleNoiseError {
    /// One example has no variance.
    #[error("the noise of the gradient needs at least 2 examples, found {found}")]
    TooFewExamples {
        /// Number of examples.
        found: usize,
    },
    /// Not one value an example.
    #[error("layer `{layer}`, {what}: expected one for each of {expected} examples, found {found}")]
    Length {
        /// The layer; empty: all.
        layer: String,
        /// What was given.
        what: &'static str,
        /// Number of examples.
        expected: usize,
        /// Number of values.
        found: usize,
    },
    /// More examples than there are.
    #[error("expected at most {population} examples, all of the data set, found {found}")]
    Population {
        /// Examples of the data set.
        population: usize,
        /// Examples taken.
        found: usize,
    },
}

/// The noise from B examples drawn without replacement from `population` (`None`: they never
/// repeat):
///
/// - tr(Sigma) = (sum |g_i|^2 - B |g|^2)/(B - 1), g the mean gradient;
/// - |G|^2 = |g|^2 - tr(Sigma)(1/B - 1/N), which is |g|^2 itself where B = N;
/// - B_simple = tr(Sigma)/|G|^2.
///
/// Without example i the mean is (B g - g_i)/(B - 1), so its norm takes |g_i|^2 and g_i'g alone.
/// `inner` holds g_i'g over all parameters, for where the layers' own are not known.
///
/// # Errors
/// With fewer than two examples, more than the population, or lengths that differ.
pub fn example_noise(
    layers: &[LayerGradients<'_>],
    inner: Option<&[f64]>,
    population: Option<usize>,
) -> Result<ExampleNoise, ExampleNoiseError> {
    let count = layers.first().map_or(0, |layer| layer.squared_norms.len());
    if count < 2 {
        return Err(ExampleNoiseError::TooFewExamples { found: count });
    }
    if let Some(population) = population.filter(|&n| n < count) {
        return Err(ExampleNoiseError::Population {
            population,
            found: count,
        });
    }
    let one_each = |layer: &str, what, found: usize| {
        if found == count {
            Ok(())
        } else {
            Err(ExampleNoiseError::Length {
                layer: layer.to_owned(),
                what,
                expected: count,
                found,
            })
        }
    };
    let mut squared_norms = vec![0.0; count];
    let mut squared_mean = 0.0;
    let mut summed = Some(vec![0.0; count]);
    for layer in layers {
        one_each(layer.layer, "squared norms", layer.squared_norms.len())?;
        add_scaled(&mut squared_norms, 1.0, layer.squared_norms);
        squared_mean += layer.squared_mean;
        match (layer.inner, &mut summed) {
            (Some(inner), sum) => {
                one_each(layer.layer, "inner products", inner.len())?;
                if let Some(sum) = sum {
                    add_scaled(sum, 1.0, inner);
                }
            }
            (None, sum) => *sum = None,
        }
    }
    if let Some(inner) = inner {
        one_each("", "inner products", inner.len())?;
    }
    let total = LayerGradients {
        layer: "",
        squared_norms: &squared_norms,
        squared_mean,
        inner: inner.or(summed.as_deref()),
    };
    Ok(ExampleNoise {
        examples: count,
        total: of_examples(&total, population),
        layers: layers
            .iter()
            .map(|layer| (layer.layer.to_owned(), of_examples(layer, population)))
            .collect(),
    })
}

/// tr(Sigma) and |G|^2 from sum |g_i|^2 and |g|^2 over `count` examples.
fn moments(count: f64, sum: f64, squared_mean: f64, population: Option<usize>) -> (f64, f64) {
    let tr_sigma = (sum - count * squared_mean) / (count - 1.0);
    let squared = squared_mean - tr_sigma * share_of_mean(count, population);
    (tr_sigma, squared)
}

fn of_examples(layer: &LayerGradients<'_>, population: Option<usize>) -> NoiseParts {
    let count = layer.squared_norms.len();
    let (n, rest) = (count as f64, (count - 1) as f64);
    let sum: f64 = layer.squared_norms.iter().sum();
    let (tr_sigma, squared) = moments(n, sum, layer.squared_mean, population);
    let left_out: Vec<(f64, f64)> = match layer.inner {
        // Without one of two there is no variance.
        Some(inner) if count > 2 => layer
            .squared_norms
            .iter()
            .zip(inner)
            .map(|(own, inner)| {
                let mean = (n * n * layer.squared_mean - 2.0 * n * inner + own) / (rest * rest);
                moments(rest, sum - own, mean, population)
            })
            .collect(),
        _ => Vec::new(),
    };
    let left_out = LeftOut {
        pairs: &left_out,
        finite: unknown(count, population),
    };
    NoiseParts::of(tr_sigma, squared, left_out)
}

/// g_i'u of each example for a direction u, by central differences of the losses of single
/// examples: |u| (l_i(t + e u/|u|) - l_i(t - e u/|u|))/(2 e), at the price of two passes forward and no
/// gradient. With u = g, or g in one layer and 0 elsewhere, these are the inner products that the
/// jackknife over examples takes.
///
/// e is 6.06e-6 (the cube root of the rounding of a double) times max(1, root mean square of t). For
/// smooth losses expect an error of 1e-9 of |g_i||u|.
///
/// # Errors
/// Those of the losses.
pub fn inner_products<E>(
    at: &[f64],
    direction: &[f64],
    mut losses: impl FnMut(&[f64]) -> Result<Vec<f64>, E>,
) -> Result<Vec<f64>, E> {
    let length = norm(direction);
    let step = difference_step(at);
    let shift = if length == 0.0 { 0.0 } else { step / length };
    let mut shifted = at.to_vec();
    add_scaled(&mut shifted, shift, direction);
    let mut ahead = losses(&shifted)?;
    if shift == 0.0 {
        ahead.fill(0.0);
        return Ok(ahead);
    }
    shifted.copy_from_slice(at);
    add_scaled(&mut shifted, -shift, direction);
    let behind = losses(&shifted)?;
    for (ahead, behind) in ahead.iter_mut().zip(&behind) {
        *ahead = (*ahead - behind) / (2.0 * shift);
    }
    Ok(ahead)
}

/// The noise of the gradient with and without the weight of the Hessian.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PieceNoise {
    /// tr(Sigma), |G|^2 and B_simple.
    pub plain: NoiseParts,
    /// tr(H Sigma).
    pub tr_h_sigma: Quantity,
    /// G'HG; may be zero or negative, and is never clipped.
    pub ghg: Quantity,
    /// B_noise = tr(H Sigma)/(G'HG), in examples.
    pub b_noise: Ratio,
    /// eps_max = |G|^2/(G'HG), the best rate without noise.
    pub eps_max: Ratio,
    /// Products made: one more than there are pieces.
    pub products: usize,
}

/// Why the pieces of a batch give no noise.
#[derive(Debug, Error)]
pub enum PieceNoiseError<E> {
    /// The pieces of the batch do not tell.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// The product failed.
    #[error("a product with the Hessian failed: {0}")]
    Product(E),
}

/// Quadratic forms with a matrix A, of pieces' gradients g_i = g + d_i with mean g.
struct Forms {
    /// g'Ag.
    mean: f64,
    /// d_i'Ad_i and d_i'Ag of each piece.
    pieces: Vec<(f64, f64)>,
}

/// tr(A Sigma) and G'AG: tr(A Sigma) = sum n_i d_i'Ad_i/(L - 1),
/// G'AG = g'Ag - tr(A Sigma)(1/B - 1/N).
struct FormEstimates {
    all: (f64, f64),
    /// Without each piece; none for two pieces.
    left_out: Vec<(f64, f64)>,
}

impl Forms {
    /// Without piece i of n examples the mean is g - c d_i with c = n/(B - n). The others deviate
    /// from it by d_j + c d_i, and their weighted squares add up to those of all less
    /// n (1 + c) d_i'Ad_i, since sum n_j d_j = 0. So no forms of two pieces are needed.
    fn estimates(&self, sizes: &[usize], population: Option<usize>) -> FormEstimates {
        let batch = sizes.iter().sum::<usize>() as f64;
        let freedom = (sizes.len() - 1) as f64;
        let squares = || sizes.iter().map(|&n| n as f64).zip(&self.pieces);
        let spread: f64 = squares().map(|(n, (own, _))| n * own).sum();
        let trace = spread / freedom;
        let all = (trace, self.mean - trace * share_of_mean(batch, population));
        let left_out = if sizes.len() > 2 {
            squares()
                .map(|(n, (own, cross))| {
                    let odds = n / (batch - n);
                    let trace = (spread - n * (1.0 + odds) * own) / (freedom - 1.0);
                    let mean = self.mean - 2.0 * odds * cross + odds * odds * own;
                    (trace, mean - trace * share_of_mean(batch - n, population))
                })
                .collect()
        } else {
            Vec::new()
        };
        FormEstimates { all, left_out }
    }
}

/// The noise from the mean gradients g_i of L pieces of n_i examples, drawn without replacement from
/// `population` examples (`None`: they never repeat), weighted by a Hessian H:
/// tr(H Sigma) = sum n_i (g_i - g)'H(g_i - g)/(L - 1) and G'HG = g'Hg - tr(H Sigma)(1/B - 1/N), g the
/// mean over all B (McCandlish et al. 2018, equation 2.8), and the same with H = I.
///
/// Takes L + 1 products. The jackknife is over pieces, and there is none for two. Unequal sizes make it
/// a little too wide; few pieces, where few directions carry the noise, too short: on the noisy
/// quadratic with 8 or 16 pieces the interval of B_noise covers 91 %, and that of B_simple 94 %.
///
/// # Errors of a known population
///
/// The mean g is that of the B examples, however they are cut into pieces: g'Hg has the error of the
/// sample alone, and it is certain at B = N. T = tr(H Sigma) also has the error of the random cut,
/// which no number of examples takes away. Of normal gradients Var(T) is
/// 2 tr((H Sigma)^2) (1/(L - 1) - B/((B - 1)N)), the jackknife's V(T) estimates
/// 2 tr((H Sigma)^2)/(L - 1), and so T takes
///
/// f = 1 - (B/N)(L - 1)/(B - 1),
///
/// which is 1 - B/N for single examples (L = B), and nearly 1 for a few large pieces. Heavier tails
/// make it a little too large. Given the B examples the cut is independent of g, so it enters
/// G'HG = g'Hg - s T, s = 1/B - 1/N, by -s times its error in T. With C the jackknife's covariance of
/// (T, G'HG) the covariance is
///
/// (1 - B/N) C + (f - 1 + B/N) V(T) (1, -s)(1, -s)',
///
/// and likewise with H = I. At B = N this leaves f V(T) for the traces, and 0 for |G|^2, G'HG and
/// eps_max, which are then exact.
///
/// # Errors
/// With fewer than two pieces, an empty piece or lengths that do not fit; if a product fails.
pub fn piece_noise<O: SymmetricOperator>(
    sizes: &[usize],
    gradients: &[Vec<f64>],
    population: Option<usize>,
    hessian: &mut O,
) -> Result<PieceNoise, PieceNoiseError<O::Error>> {
    let dimension = hessian.dimension();
    let mean = mean_gradient(sizes, gradients, dimension)?;
    let mut image = vec![0.0; dimension];
    let mut deviation = vec![0.0; dimension];
    let mut plain = Forms {
        mean: dot(&mean, &mean),
        pieces: Vec::with_capacity(sizes.len()),
    };
    hessian
        .apply(&mean, &mut image)
        .map_err(PieceNoiseError::Product)?;
    let curved_mean = image.clone();
    let mut curved = Forms {
        mean: dot(&mean, &curved_mean),
        pieces: Vec::with_capacity(sizes.len()),
    };
    for gradient in gradients {
        deviation.copy_from_slice(gradient);
        add_scaled(&mut deviation, -1.0, &mean);
        hessian
            .apply(&deviation, &mut image)
            .map_err(PieceNoiseError::Product)?;
        plain
            .pieces
            .push((dot(&deviation, &deviation), dot(&deviation, &mean)));
        curved
            .pieces
            .push((dot(&deviation, &image), dot(&deviation, &curved_mean)));
    }
    let plain = plain.estimates(sizes, population);
    let curved = curved.estimates(sizes, population);
    let batch = sizes.iter().sum();
    let finite = unknown(batch, population);
    let cut = of_the_cut(sizes.len(), batch, population);
    let share = share_of_mean(batch as f64, population);
    // What the cut of the examples does to T and to G'HG.
    let cut_of = |forms: &FormEstimates| -> Vec<(f64, f64)> {
        let traces = forms.left_out.iter().map(|pair| pair.0);
        traces.map(|trace| (trace, -share * trace)).collect()
    };
    let (plain_cut, curved_cut) = (cut_of(&plain), cut_of(&curved));
    // The second of each, |G|^2 and G'HG.
    let seconds = |plain: &[(f64, f64)], curved: &[(f64, f64)]| -> Vec<(f64, f64)> {
        let both = plain.iter().zip(curved);
        both.map(|(plain, curved)| (plain.1, curved.1)).collect()
    };
    let along = seconds(&plain.left_out, &curved.left_out);
    let along_cut = seconds(&plain_cut, &curved_cut);
    let errors = |sample, of_cut| TwoErrors {
        sample: LeftOut {
            pairs: sample,
            finite,
        },
        cut: LeftOut {
            pairs: of_cut,
            finite: cut,
        },
    };
    let noise = errors(&curved.left_out, &curved_cut);
    let (tr_h_sigma, ghg) = noise.quantities(curved.all.0, curved.all.1);
    Ok(PieceNoise {
        plain: NoiseParts::of(
            plain.all.0,
            plain.all.1,
            errors(&plain.left_out, &plain_cut),
        ),
        tr_h_sigma,
        ghg,
        b_noise: noise.ratio(curved.all.0, curved.all.1),
        eps_max: errors(&along, &along_cut).ratio(plain.all.1, curved.all.1),
        products: sizes.len() + 1,
    })
}

/// tr(Sigma), |G|^2 and B_simple of the preconditioned gradients p_j g_j: the noise scale in the
/// metric of an optimizer that moves along them, with p from [`adamw_preconditioner`]. The
/// preconditioner counts as fixed: its own noise is not in the interval. Of `PieceNoise` with
/// H = diag(p^2) these are tr(H Sigma), G'HG and B_noise.
///
/// # Errors
/// With fewer than two pieces, an empty piece or lengths that do not fit.
pub fn preconditioned_noise(
    sizes: &[usize],
    gradients: &[Vec<f64>],
    population: Option<usize>,
    preconditioner: &[f64],
) -> Result<NoiseParts, NoiseError> {
    let mut metric = Operator::new(preconditioner.len(), |v: &[f64], out: &mut [f64]| {
        for ((out, v), p) in out.iter_mut().zip(v).zip(preconditioner) {
            *out = p * p * v;
        }
        Ok::<(), std::convert::Infallible>(())
    });
    match piece_noise(sizes, gradients, population, &mut metric) {
        Ok(noise) => Ok(NoiseParts {
            tr_sigma: noise.tr_h_sigma,
            squared_gradient: noise.ghg,
            b_simple: noise.b_noise,
        }),
        Err(PieceNoiseError::Noise(error)) => Err(error),
        Err(PieceNoiseError::Product(never)) => match never {},
    }
}

/// p_j = 1/(sqrt(v_j) + epsilon) of Adam and AdamW, with v_j the second moment corrected for its
/// start: the update is -lr p_j m_j. The noise scale of p_j g_j is that which Qiao et al. 2021
/// (arXiv 2008.12260) use for adaptive optimizers.
pub fn adamw_preconditioner(corrected_second_moments: &[f64], epsilon: f64) -> Vec<f64> {
    corrected_second_moments
        .iter()
        .map(|v| 1.0 / (v.sqrt() + epsilon))
        .collect()
}

/// a'b/(|a||b|): how far two gradients, of two steps or two workers, point the same way. `None` where
/// one of them is zero or not finite, or the lengths differ.
pub fn cosine(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let cosine = dot(a, b) / norm(a) / norm(b);
    // Rounding alone can leave the range.
    cosine.is_finite().then(|| cosine.clamp(-1.0, 1.0))
}

/// Checks the pieces and returns their weighted mean.
fn mean_gradient(
    sizes: &[usize],
    gradients: &[Vec<f64>],
    dimension: usize,
) -> Result<Vec<f64>, NoiseError> {
    let batch = noise::pieces(sizes)?;
    noise::one_a_piece("gradients", sizes.len(), gradients.len())?;
    let mut mean = vec![0.0; dimension];
    for (&n, gradient) in sizes.iter().zip(gradients) {
        if gradient.len() != dimension {
            return Err(NoiseError::Length {
                what: "components of a gradient",
                expected: dimension,
                found: gradient.len(),
            });
        }
        add_scaled(&mut mean, n as f64 / batch as f64, gradient);
    }
    Ok(mean)
}
