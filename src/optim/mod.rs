//! Optimizers as pure updates over flat slices, one pass where the rule allows, and averages of
//! the parameters over a run.
//!
//! The parameters of a model are one flat vector with a [`Layout`]; a gradient and each slot of
//! optimizer state (momentum, second moment) are vectors of the same length. What may enter:
//! configuration, layout, slices, the rates of an update. What may not: models, tensors, burn,
//! files, threads.
//!
//! # The rules
//!
//! g is the gradient, p a parameter, d the weight decay (0 for roles that do not decay), m the
//! momentum, lr the rate, t the number of the update, 1 for the first. |x| is the Euclidean norm of
//! x over one parameter tensor.
//!
//! | rule                      | update                                                    |
//! |---------------------------|-----------------------------------------------------------|
//! | `sgd`                     | g <- g + d p; p <- p - lr g                               |
//! | `momentum`                | g <- g + d p; v <- m v + g; p <- p - lr v                 |
//! | `momentum`, `inside`      | g <- g + d p; v <- c m v + lr g; p <- p - v               |
//! | `nesterov`                | g <- g + d p; v <- m v + g; p <- p - lr (g + m v)         |
//! | `nesterov`, `inside`      | g <- g + d p; v <- c m v + lr g; p <- p - (lr g + m v)    |
//! | `adamw`                   | p <- (1 - lr d) p; n <- n + (1 - b1)(g - n);              |
//! |                           | s <- b2 s + (1 - b2) g^2;                                 |
//! |                           | p <- p - lr/(1 - b1^t) n / (s^(1/2)/(1 - b2^t)^(1/2) + e) |
//! | `lars`                    | as `inside`, with lr r in place of lr,                    |
//! |                           | r = trust_coefficient \|p\| / (\|g\| + d \|p\| + e)       |
//! | `lars`, `norms = "joint"` | r = trust_coefficient \|p\| / (\|g + d p\| + e)           |
//! | `lars`, `clip`            | min(r, lr) in place of lr r                               |
//! | `lamb`                    | n and s as `adamw`;                                       |
//! |                           | u = n/(1 - b1^t) / (s^(1/2)/(1 - b2^t)^(1/2) + e) + d p;  |
//! |                           | p <- p - lr r u with r = \|p\| / \|u\|                    |
//! | `lamb`, `clip`            | min(r, 1) in place of r                                   |
//! | `lion`                    | c = b1 n + (1 - b1) g; p <- (1 - lr d) p - lr sign(c);    |
//! |                           | n <- b2 n + (1 - b2) g                                    |
//!
//! With `correction` c is lr_t/lr_(t-1): a rate that changes rescales what the velocity already
//! holds, and `inside` equals `outside` (Goyal et al. 2017, section 3, remark 2). Without it c is 1.
//! After a rate of 0 nothing is left to rescale, and c is 1.
//!
//! A tensor has no trust ratio, and takes lr as it stands, if its role is excluded, if one of the
//! norms |p| and |g| (|g + d p| where joint, |u| for LAMB) is 0, or if lr r is too large for the
//! precision.
//!
//! Sources: `sgd`, `momentum`, `nesterov`, `adamw` are PyTorch's (`torch.optim.SGD` with dampening
//! 0, `torch.optim.AdamW`; Loshchilov and Hutter 2019); `inside` is Caffe's solver and equation 10
//! of Goyal et al. 2017 (arXiv 1706.02677); `lars` is algorithm 1 of You et al. 2017 (arXiv
//! 1708.03888), joint norms those of `optax.lars`, `clip` LARC; `lamb` is algorithm 2 of You et al.
//! 2020 (arXiv 1904.00962); `lion` is algorithm 2 of Chen et al. 2023 (arXiv 2302.06675).
//!
//! State starts at zero. PyTorch starts its momentum buffer as the first gradient, which is the
//! same: m 0 + g = g. Scalars (1 - lr d, the bias corrections, c m, lr r) are computed in f64 and
//! rounded once.
//!
//! # One pass or two
//!
//! An update is [`Optimizer::prepare`] and then [`Optimizer::update`].
//!
//! `update` is one pass, in place and without allocating, over any part of the vectors: each
//! element's arithmetic is the same whatever the cut, hence the bits are too, and several threads
//! can update disjoint parts of one vector at once. `sgd`, `momentum`, `nesterov`, `adamw` and
//! `lion` need no more, and `prepare` returns at once.
//!
//! `prepare` reads the whole vectors, and writes nothing, where a number of the whole is needed
//! before any element may be written:
//!
//! - clipping by the global norm (Pascanu et al. 2012, arXiv 1211.5063; `train.clip_norm`): one
//!   pass over the gradient for its norm over all parameters. The rule then sees
//!   g min(1, clip_norm/norm).
//! - `lars` and `lamb`: one pass for the trust ratio of each parameter tensor (after the one for
//!   clipping, for the ratio is that of the clipped gradient). LAMB computes its moments there, for
//!   u, and again in `update`: arithmetic is cheaper than writing them twice.
//!
//! Sums of squares are added up in f64 in an order fixed by the layout.
//!
//! # How a rule is built
//!
//! `Optimizer::new` resolves the layout into *segments*, runs of neighbouring parameters with the
//! same coefficients (single parameter tensors for rules with trust ratios); an update hoists the
//! coefficients per segment and runs one branch-free loop of `kernels` over it. An elementwise rule
//! is one more variant in `rule` and one more loop; a rule with norms by tensor is also one more arm
//! in `Optimizer::ratio`.

mod averaging;
mod error;
mod kernels;
mod norms;
mod rule;

use std::ops::Range;

pub use averaging::Average;
pub use error::OptimError;

use crate::config::{MomentumForm, OptimizerConfig, RatioNorms};
use crate::objective::{Layout, Scalar};
use crate::theory::learning_rate::momentum_correction;
use norms::CHUNK;
use rule::{LarsRatio, Moments, Rule, Segment, Velocity};

/// The gradient of one update, as one vector or as two that are still to be added.
///
/// `Sum` saves a pass over memory: the last addition of a reduction tree happens while the update
/// reads its operands. The bits are those of adding first.
#[derive(Debug, Clone, Copy)]
pub enum Gradient<'a, F> {
    /// The gradient.
    One(&'a [F]),
    /// The gradient is `left[i] + right[i]`.
    Sum(&'a [F], &'a [F]),
}

impl<F: Scalar> Gradient<'_, F> {
    fn has_length(&self, length: usize) -> bool {
        match self {
            Gradient::One(gradient) => gradient.len() == length,
            Gradient::Sum(left, right) => left.len() == length && right.len() == length,
        }
    }

    /// Writes a range of the gradient, times `clip` where there is one.
    fn write(&self, range: Range<usize>, clip: Option<F>, to: &mut [F]) {
        match self {
            Gradient::One(gradient) => to.copy_from_slice(&gradient[range]),
            Gradient::Sum(left, right) => {
                let pairs = left[range.clone()].iter().zip(&right[range]);
                for (to, (&left, &right)) in to.iter_mut().zip(pairs) {
                    *to = left + right;
                }
            }
        }
        if let Some(clip) = clip {
            for value in to {
                *value = *value * clip;
            }
        }
    }
}

/// What may change from one update to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Number of the update, 1 for the first.
    pub step: u64,
    /// Learning rate of this update.
    pub lr: f64,
    /// Learning rate of the update before; `lr` at the first. Momentum correction uses it.
    pub previous_lr: f64,
    /// Momentum of this update, in place of the configured one. Rules without momentum ignore it.
    pub momentum: Option<f64>,
}

impl Rates {
    /// Update number `step`, 1 for the first, at a rate that has not changed and the configured
    /// momentum.
    pub fn new(step: u64, lr: f64) -> Self {
        Self {
            step,
            lr,
            previous_lr: lr,
            momentum: None,
        }
    }
}

/// What an update needs to know about the whole vectors. Empty for a rule without trust ratios
/// and without clipping.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prepared {
    gradient_norm: Option<f64>,
    /// Factor below 1 of the gradient.
    clip: Option<f64>,
    ratios: Vec<f64>,
}

impl Prepared {
    /// Euclidean norm of the gradient over all parameters, before clipping; measured where a norm to
    /// clip at was given.
    pub fn gradient_norm(&self) -> Option<f64> {
        self.gradient_norm
    }

    /// The factor on the rate of each parameter tensor, in the order of the layout: its trust
    /// ratio r; with `clip`, min(r/lr, 1) for LARS and min(r, 1) for LAMB; 1 for a tensor without a
    /// ratio. Empty for rules without trust ratios.
    pub fn ratios(&self) -> &[f64] {
        &self.ratios
    }
}

/// An update rule with its coefficients, resolved for the parameters of one layout.
///
/// ```
/// # use batchlab::config::{OptimizerConfig, Role};
/// # use batchlab::objective::Layout;
/// # use batchlab::optim::{Gradient, Optimizer, Rates};
/// let mut layout = Layout::default();
/// layout.push("weight", &[2], Role::Dense);
/// let optimizer = Optimizer::new(&OptimizerConfig::default(), &layout)?;
/// assert_eq!(optimizer.slots(), ["momentum_buffer"]);
/// let mut parameters = [1.0, 2.0];
/// let mut state = optimizer.initial_state::<f64>();
/// for step in 1..=2 {
///     let gradient = Gradient::One(&[1.0, 0.0]);
///     optimizer.step(&Rates::new(step, 0.1), None, &mut parameters, gradient, &mut state);
/// }
/// // Two equal gradients at momentum 0.9: 0.1 (1 + 1.9) in all.
/// assert!((parameters[0] - 0.71).abs() < 1e-15);
/// # Ok::<(), batchlab::optim::OptimError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    rule: Rule,
    segments: Vec<Segment>,
}

/// One update of one segment.
#[derive(Clone, Copy)]
struct Now<'a> {
    rates: &'a Rates,
    weight_decay: f64,
    /// lr, times the trust ratio where there is one.
    rate: f64,
}

impl Optimizer {
    /// The rule of `config` over the parameters of `layout`.
    ///
    /// # Errors
    /// A coefficient outside its range.
    pub fn new(config: &OptimizerConfig, layout: &Layout) -> Result<Self, OptimError> {
        let (rule, segments) = Rule::resolve(config, layout)?;
        Ok(Self { rule, segments })
    }

    /// The names of the state vectors, in the order in which `update` takes them; PyTorch's names.
    pub fn slots(&self) -> &'static [&'static str] {
        match self.rule {
            Rule::Sgd => &[],
            Rule::Momentum(_) | Rule::Lars(..) => &["momentum_buffer"],
            Rule::Lion { .. } => &["exp_avg"],
            Rule::Adamw(_) | Rule::Lamb { .. } => &["exp_avg", "exp_avg_sq"],
        }
    }

    /// The configured momentum m of `momentum`, `nesterov` and `lars`.
    pub fn momentum(&self) -> Option<f64> {
        match self.rule {
            Rule::Momentum(velocity) | Rule::Lars(velocity, _) => Some(velocity.momentum),
            Rule::Sgd | Rule::Adamw(_) | Rule::Lamb { .. } | Rule::Lion { .. } => None,
        }
    }

    /// The number of parameters.
    pub fn len(&self) -> usize {
        self.segments.last().map_or(0, |last| last.range.end)
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// State before the first update: one vector of zeros a slot.
    pub fn initial_state<F: Scalar>(&self) -> Vec<Vec<F>> {
        vec![vec![F::ZERO; self.len()]; self.slots().len()]
    }

    /// Makes one update of whole vectors: [`Optimizer::prepare`], then [`Optimizer::update`].
    ///
    /// # Panics
    /// As these two.
    pub fn step<F: Scalar>(
        &self,
        rates: &Rates,
        clip_norm: Option<f64>,
        parameters: &mut [F],
        gradient: Gradient<'_, F>,
        state: &mut [Vec<F>],
    ) -> Prepared {
        let prepared = self.prepare(rates, clip_norm, parameters, gradient, state);
        self.update(rates, &prepared, 0, parameters, gradient, state);
        prepared
    }

    /// Measures what one update needs to know about the whole vectors, and changes nothing. A rule
    /// without trust ratios and without `clip_norm` reads nothing either.
    ///
    /// `parameters`, `gradient` and `state` are those before the update. `clip_norm`, above 0, is
    /// the largest norm that the gradient keeps.
    ///
    /// # Panics
    /// If the vectors differ in length from the layout, or the state is not one a slot.
    pub fn prepare<F: Scalar>(
        &self,
        rates: &Rates,
        clip_norm: Option<f64>,
        parameters: &[F],
        gradient: Gradient<'_, F>,
        state: &[Vec<F>],
    ) -> Prepared {
        let length = self.len();
        assert_eq!(parameters.len(), length, "parameters of another layout");
        assert!(gradient.has_length(length), "gradient of another length");
        assert_eq!(state.len(), self.slots().len(), "one state vector a slot");
        let fits = |slot: &Vec<F>| slot.len() == length;
        assert!(state.iter().all(fits), "state of another length");
        let mut prepared = Prepared::default();
        if let Some(clip_norm) = clip_norm {
            let mut buffer = [F::ZERO; CHUNK];
            let squares: f64 = norms::chunks(0..length)
                .map(|chunk| {
                    let part = &mut buffer[..chunk.len()];
                    gradient.write(chunk, None, part);
                    norms::sum_of_squares(part)
                })
                .sum();
            let norm = squares.sqrt();
            prepared.gradient_norm = Some(norm);
            prepared.clip = (norm > clip_norm).then(|| clip_norm / norm);
        }
        if self.rule.has_ratios() {
            let clip = prepared.clip.map(F::from_f64);
            prepared.ratios = self
                .segments
                .iter()
                .map(|segment| self.ratio(rates, segment, clip, parameters, gradient, state))
                .collect();
        }
        prepared
    }

    /// The factor on the rate of one parameter tensor.
    fn ratio<F: Scalar>(
        &self,
        rates: &Rates,
        segment: &Segment,
        clip: Option<F>,
        parameters: &[F],
        gradient: Gradient<'_, F>,
        state: &[Vec<F>],
    ) -> f64 {
        if !segment.adapts {
            return 1.0;
        }
        let decay = F::from_f64(segment.weight_decay);
        let joint = matches!(self.rule, Rule::Lars(_, ratio) if ratio.norms == RatioNorms::Joint);
        let lamb = match self.rule {
            Rule::Lamb { moments, .. } => Some(lamb(moments, rates.step, decay)),
            _ => None,
        };
        let mut buffer = [F::ZERO; CHUNK];
        let (mut of_parameters, mut of_update) = (0.0, 0.0);
        for chunk in norms::chunks(segment.range.clone()) {
            let part = &mut buffer[..chunk.len()];
            let parameters = &parameters[chunk.clone()];
            gradient.write(chunk.clone(), clip, part);
            if let (Some(with), [first, second]) = (&lamb, state) {
                let (first, second) = (&first[chunk.clone()], &second[chunk]);
                kernels::lamb_direction(part, parameters, first, second, with);
            } else if joint && segment.weight_decay != 0.0 {
                kernels::add_decay(part, parameters, decay);
            }
            of_parameters += norms::sum_of_squares(parameters);
            of_update += norms::sum_of_squares(part);
        }
        let (of_parameters, of_update) = (of_parameters.sqrt(), of_update.sqrt());
        let ratio = match self.rule {
            Rule::Lars(_, ratio) => {
                let decayed = if joint {
                    0.0
                } else {
                    segment.weight_decay * of_parameters
                };
                ratio.trust_coefficient * of_parameters / (of_update + decayed + ratio.epsilon)
            }
            _ => of_parameters / of_update,
        };
        let usable =
            of_parameters > 0.0 && of_update > 0.0 && F::from_f64(rates.lr * ratio).is_finite();
        match self.rule {
            _ if !usable => 1.0,
            Rule::Lars(_, LarsRatio { clip: true, .. }) => (ratio / rates.lr).min(1.0),
            Rule::Lamb { clip: true, .. } => ratio.min(1.0),
            _ => ratio,
        }
    }

    /// Makes one update on a part of the parameters.
    ///
    /// `parameters`, `gradient` and every slot of `state` are the part of the flat vectors that
    /// starts at `offset`. One update of a whole vector may be made as several calls with the same
    /// `rates` and `prepared` on parts that do not overlap, in any order and on any threads.
    ///
    /// # Panics
    /// If the slices differ in length, reach past the layout, or are not one a slot, or if
    /// `prepared` is another optimizer's.
    pub fn update<F: Scalar, S: AsMut<[F]>>(
        &self,
        rates: &Rates,
        prepared: &Prepared,
        offset: usize,
        parameters: &mut [F],
        gradient: Gradient<'_, F>,
        state: &mut [S],
    ) {
        let length = parameters.len();
        let end = offset + length;
        assert!(end <= self.len(), "the part reaches past the layout");
        assert!(gradient.has_length(length), "gradient of another length");
        assert_eq!(state.len(), self.slots().len(), "one state slice a slot");
        let fits = |slot: &mut S| slot.as_mut().len() == length;
        assert!(state.iter_mut().all(fits), "state of another length");
        let tensors = if self.rule.has_ratios() {
            self.segments.len()
        } else {
            0
        };
        assert_eq!(prepared.ratios.len(), tensors, "one ratio a tensor");
        let clip = prepared.clip.map(F::from_f64);
        let first = self
            .segments
            .partition_point(|segment| segment.range.end <= offset);
        for (index, segment) in self.segments.iter().enumerate().skip(first) {
            if segment.range.start >= end {
                break;
            }
            let part =
                segment.range.start.max(offset) - offset..segment.range.end.min(end) - offset;
            let parameters = &mut parameters[part.clone()];
            let ratio = prepared.ratios.get(index);
            let now = Now {
                rates,
                weight_decay: segment.weight_decay,
                rate: ratio.map_or(rates.lr, |ratio| rates.lr * ratio),
            };
            match (gradient, clip) {
                (Gradient::One(gradient), None) => {
                    let gradient = gradient[part.clone()].iter().copied();
                    self.update_segment(now, part, parameters, gradient, state);
                }
                (Gradient::One(gradient), Some(clip)) => {
                    let gradient = gradient[part.clone()].iter().map(|&g| g * clip);
                    self.update_segment(now, part, parameters, gradient, state);
                }
                (Gradient::Sum(left, right), None) => {
                    let pairs = left[part.clone()].iter().zip(&right[part.clone()]);
                    let gradient = pairs.map(|(&left, &right)| left + right);
                    self.update_segment(now, part, parameters, gradient, state);
                }
                (Gradient::Sum(left, right), Some(clip)) => {
                    let pairs = left[part.clone()].iter().zip(&right[part.clone()]);
                    let gradient = pairs.map(|(&left, &right)| (left + right) * clip);
                    self.update_segment(now, part, parameters, gradient, state);
                }
            }
        }
    }

    fn update_segment<F: Scalar, S: AsMut<[F]>>(
        &self,
        now: Now<'_>,
        part: Range<usize>,
        parameters: &mut [F],
        gradient: impl Iterator<Item = F>,
        state: &mut [S],
    ) {
        if now.weight_decay == 0.0 {
            self.apply::<F, S, false>(now, part, parameters, gradient, state);
        } else {
            self.apply::<F, S, true>(now, part, parameters, gradient, state);
        }
    }

    fn apply<F: Scalar, S: AsMut<[F]>, const DECAY: bool>(
        &self,
        now: Now<'_>,
        part: Range<usize>,
        parameters: &mut [F],
        gradient: impl Iterator<Item = F>,
        state: &mut [S],
    ) {
        let (step, lr) = (now.rates.step, now.rates.lr);
        let rate = F::from_f64(now.rate);
        let decay = F::from_f64(now.weight_decay);
        match (self.rule, state) {
            (Rule::Sgd, []) => kernels::sgd::<F, DECAY>(parameters, gradient, rate, decay),
            (Rule::Momentum(velocity) | Rule::Lars(velocity, _), [slot]) => {
                let slot = &mut slot.as_mut()[part];
                let m = now.rates.momentum.unwrap_or(velocity.momentum);
                let momentum = F::from_f64(m);
                let carry = F::from_f64(m * correction::<F>(velocity, now.rates));
                match (velocity.form, velocity.nesterov) {
                    (MomentumForm::Outside, false) => kernels::momentum::<F, DECAY>(
                        parameters, gradient, slot, rate, momentum, decay,
                    ),
                    (MomentumForm::Outside, true) => kernels::nesterov::<F, DECAY>(
                        parameters, gradient, slot, rate, momentum, decay,
                    ),
                    (MomentumForm::Inside, false) => kernels::momentum_inside::<F, DECAY>(
                        parameters, gradient, slot, rate, carry, decay,
                    ),
                    (MomentumForm::Inside, true) => kernels::nesterov_inside::<F, DECAY>(
                        parameters,
                        gradient,
                        slot,
                        rate,
                        [carry, momentum],
                        decay,
                    ),
                }
            }
            (Rule::Adamw(moments), [first, second]) => {
                let (correction1, correction2) = bias_corrections(moments, step);
                kernels::adamw(
                    parameters,
                    gradient,
                    &mut first.as_mut()[part.clone()],
                    &mut second.as_mut()[part],
                    &kernels::Adamw {
                        keep: F::from_f64(1.0 - lr * now.weight_decay),
                        rate: F::from_f64(lr / correction1),
                        rest1: F::from_f64(1.0 - moments.beta1),
                        beta2: F::from_f64(moments.beta2),
                        rest2: F::from_f64(1.0 - moments.beta2),
                        root_correction2: F::from_f64(correction2.sqrt()),
                        epsilon: F::from_f64(moments.epsilon),
                    },
                );
            }
            (Rule::Lamb { moments, .. }, [first, second]) => kernels::lamb(
                parameters,
                gradient,
                &mut first.as_mut()[part.clone()],
                &mut second.as_mut()[part],
                rate,
                &lamb(moments, step, decay),
            ),
            (Rule::Lion { beta1, beta2 }, [first]) => kernels::lion(
                parameters,
                gradient,
                &mut first.as_mut()[part],
                &kernels::Lion {
                    rate,
                    keep: F::from_f64(1.0 - lr * now.weight_decay),
                    beta1: F::from_f64(beta1),
                    rest1: F::from_f64(1.0 - beta1),
                    beta2: F::from_f64(beta2),
                    rest2: F::from_f64(1.0 - beta2),
                },
            ),
            _ => unreachable!("`update` has checked the number of slots"),
        }
    }
}

/// The factor lr_t/lr_(t-1) on a velocity; 1 without correction, and after a rate that left nothing
/// to correct.
fn correction<F: Scalar>(velocity: Velocity, rates: &Rates) -> f64 {
    let factor = momentum_correction(rates.lr, rates.previous_lr);
    // In a narrower type a large factor may not be finite.
    if velocity.correction && F::from_f64(factor).is_finite() {
        factor
    } else {
        1.0
    }
}

/// 1 - b1^t and 1 - b2^t
fn bias_corrections(moments: Moments, step: u64) -> (f64, f64) {
    (
        1.0 - moments.beta1.powf(step as f64),
        1.0 - moments.beta2.powf(step as f64),
    )
}

/// The coefficients of LAMB at one update, but for the rate.
fn lamb<F: Scalar>(moments: Moments, step: u64, decay: F) -> kernels::Lamb<F> {
    let (correction1, correction2) = bias_corrections(moments, step);
    kernels::Lamb {
        inverse_correction1: F::from_f64(1.0 / correction1),
        rest1: F::from_f64(1.0 - moments.beta1),
        beta2: F::from_f64(moments.beta2),
        rest2: F::from_f64(1.0 - moments.beta2),
        inverse_root_correction2: F::from_f64(1.0 / correction2.sqrt()),
        epsilon: F::from_f64(moments.epsilon),
        decay,
    }
}
