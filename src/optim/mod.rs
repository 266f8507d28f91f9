//! Optimizers as pure, one-pass updates over flat slices.
//!
//! The parameters of a model are one flat vector with a [`Layout`]; a gradient and each slot of
//! optimizer state (momentum, second moment) are vectors of the same length. [`Optimizer::update`]
//! reads and writes a contiguous part of them, in place and without allocating, so several threads
//! can update disjoint parts of one vector at once: each element's arithmetic is the same whatever
//! the cut, hence the bits are too. What may enter: configuration, layout, slices. What may not:
//! models, tensors, burn, files, threads.
//!
//! Definitions and defaults are PyTorch's (`torch.optim.SGD` with dampening 0, `torch.optim.AdamW`);
//! g is the gradient, p a parameter, d the weight decay (0 for roles that do not decay):
//!
//! | rule       | update                                                                        |
//! |------------|-------------------------------------------------------------------------------|
//! | `sgd`      | g <- g + d p; p <- p - lr g                                                   |
//! | `momentum` | g <- g + d p; v <- m v + g; p <- p - lr v                                     |
//! | `nesterov` | g <- g + d p; v <- m v + g; p <- p - lr (g + m v)                             |
//! | `adamw`    | p <- (1 - lr d) p; m <- m + (1 - b1)(g - m); v <- b2 v + (1 - b2) g^2;        |
//! |            | p <- p - lr/(1 - b1^t) m / (v^(1/2)/(1 - b2^t)^(1/2) + e)                     |
//!
//! State starts at zero. PyTorch starts its momentum buffer as the first gradient, which is the
//! same: m 0 + g = g. Scalars (1 - lr d, the bias corrections) are computed in f64 and rounded once.
//!
//! # How a rule is built, and where the next ones go
//!
//! `Optimizer::new` resolves the layout into *segments*, runs of neighbouring parameters with the
//! same coefficients; an update hoists the coefficients per segment and runs one branch-free loop
//! over it. Lion and other elementwise rules are one more loop in `kernels`.
//! LARS and LAMB scale each layer's update by a trust ratio, which needs norms over whole layers
//! before any of it may be written. They fit as two passes over the same segments (one a layer):
//! the first computes partial sums of squares of a part (of p and g for LARS; LAMB also advances
//! its moments there), the caller adds them up in a fixed order and turns them into one ratio a
//! segment, and the second pass is `update` with that ratio in the segment's coefficients.
//! Clipping by the global norm is the same with one segment.

mod error;
mod kernels;

use std::ops::Range;

pub use error::OptimError;

use crate::config::{OptimizerConfig, Role};
use crate::objective::{Layout, Scalar};

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

impl<F> Gradient<'_, F> {
    fn has_length(&self, length: usize) -> bool {
        match self {
            Gradient::One(gradient) => gradient.len() == length,
            Gradient::Sum(left, right) => left.len() == length && right.len() == length,
        }
    }
}

/// An update rule with its coefficients, resolved for the parameters of one layout.
///
/// ```
/// # use batchlab::config::{OptimizerConfig, Role};
/// # use batchlab::objective::Layout;
/// # use batchlab::optim::{Gradient, Optimizer};
/// let mut layout = Layout::default();
/// layout.push("weight", &[2], Role::Dense);
/// let optimizer = Optimizer::new(&OptimizerConfig::default(), &layout)?;
/// assert_eq!(optimizer.slots(), ["momentum_buffer"]);
/// let mut parameters = [1.0, 2.0];
/// let mut state = optimizer.initial_state::<f64>();
/// for step in 1..=2 {
///     optimizer.update(step, 0.1, 0, &mut parameters, Gradient::One(&[1.0, 0.0]), &mut state);
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

/// The rule and its coefficients.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    Sgd,
    Momentum {
        momentum: f64,
    },
    Nesterov {
        momentum: f64,
    },
    Adamw {
        beta1: f64,
        beta2: f64,
        epsilon: f64,
    },
}

/// A run of neighbouring parameters with the same coefficients.
#[derive(Debug, Clone, PartialEq)]
struct Segment {
    range: Range<usize>,
    weight_decay: f64,
}

impl Optimizer {
    /// The rule of `config` over the parameters of `layout`.
    ///
    /// # Errors
    /// A coefficient outside its range.
    pub fn new(config: &OptimizerConfig, layout: &Layout) -> Result<Self, OptimError> {
        let (rule, decay_key, weight_decay, roles) = match config {
            OptimizerConfig::Sgd {
                weight_decay,
                weight_decay_roles,
            } => (
                Rule::Sgd,
                "optimizer.sgd.weight_decay",
                *weight_decay,
                weight_decay_roles,
            ),
            OptimizerConfig::Momentum {
                momentum,
                weight_decay,
                weight_decay_roles,
            } => {
                let momentum = *momentum;
                let holds = (0.0..1.0).contains(&momentum);
                check("optimizer.momentum.momentum", "in [0, 1)", momentum, holds)?;
                (
                    Rule::Momentum { momentum },
                    "optimizer.momentum.weight_decay",
                    *weight_decay,
                    weight_decay_roles,
                )
            }
            OptimizerConfig::Nesterov {
                momentum,
                weight_decay,
                weight_decay_roles,
            } => {
                let momentum = *momentum;
                let holds = momentum > 0.0 && momentum < 1.0;
                check("optimizer.nesterov.momentum", "in (0, 1)", momentum, holds)?;
                (
                    Rule::Nesterov { momentum },
                    "optimizer.nesterov.weight_decay",
                    *weight_decay,
                    weight_decay_roles,
                )
            }
            OptimizerConfig::Adamw {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                weight_decay_roles,
            } => {
                let (beta1, beta2, epsilon) = (*beta1, *beta2, *epsilon);
                let unit = 0.0..1.0;
                check(
                    "optimizer.adamw.beta1",
                    "in [0, 1)",
                    beta1,
                    unit.contains(&beta1),
                )?;
                check(
                    "optimizer.adamw.beta2",
                    "in [0, 1)",
                    beta2,
                    unit.contains(&beta2),
                )?;
                // At 0, a parameter whose gradient is always 0 would become 0/0.
                let holds = epsilon.is_finite() && epsilon > 0.0;
                check(
                    "optimizer.adamw.epsilon",
                    "positive and finite",
                    epsilon,
                    holds,
                )?;
                let rule = Rule::Adamw {
                    beta1,
                    beta2,
                    epsilon,
                };
                (
                    rule,
                    "optimizer.adamw.weight_decay",
                    *weight_decay,
                    weight_decay_roles,
                )
            }
        };
        check(
            decay_key,
            "finite and not negative",
            weight_decay,
            weight_decay.is_finite() && weight_decay >= 0.0,
        )?;
        Ok(Self {
            rule,
            segments: segments(layout, weight_decay, roles.as_deref()),
        })
    }

    /// The names of the state vectors, in the order in which `update` takes them; PyTorch's names.
    pub fn slots(&self) -> &'static [&'static str] {
        match self.rule {
            Rule::Sgd => &[],
            Rule::Momentum { .. } | Rule::Nesterov { .. } => &["momentum_buffer"],
            Rule::Adamw { .. } => &["exp_avg", "exp_avg_sq"],
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

    /// Makes update number `step` (1 for the first) at rate `lr` on a part of the parameters.
    ///
    /// `parameters`, `gradient` and every slot of `state` are the part of the flat vectors that
    /// starts at `offset`. One update of a whole vector may be made as several calls with the same
    /// `step` and `lr` on parts that do not overlap, in any order and on any threads.
    ///
    /// # Panics
    /// If the slices differ in length, reach past the layout, or are not one a slot.
    pub fn update<F: Scalar, S: AsMut<[F]>>(
        &self,
        step: u64,
        lr: f64,
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
        let first = self
            .segments
            .partition_point(|segment| segment.range.end <= offset);
        for segment in &self.segments[first..] {
            if segment.range.start >= end {
                break;
            }
            let part =
                segment.range.start.max(offset) - offset..segment.range.end.min(end) - offset;
            let parameters = &mut parameters[part.clone()];
            match gradient {
                Gradient::One(gradient) => {
                    let gradient = gradient[part.clone()].iter().copied();
                    self.update_segment(step, lr, segment, part, parameters, gradient, state);
                }
                Gradient::Sum(left, right) => {
                    let pairs = left[part.clone()].iter().zip(&right[part.clone()]);
                    let gradient = pairs.map(|(&left, &right)| left + right);
                    self.update_segment(step, lr, segment, part, parameters, gradient, state);
                }
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call site, one segment of `update`"
    )]
    fn update_segment<F: Scalar, S: AsMut<[F]>>(
        &self,
        step: u64,
        lr: f64,
        segment: &Segment,
        part: Range<usize>,
        parameters: &mut [F],
        gradient: impl Iterator<Item = F>,
        state: &mut [S],
    ) {
        let rate = F::from_f64(lr);
        let decay = F::from_f64(segment.weight_decay);
        let decays = segment.weight_decay != 0.0;
        match (self.rule, state) {
            (Rule::Sgd, []) => {
                if decays {
                    kernels::sgd::<F, true>(parameters, gradient, rate, decay);
                } else {
                    kernels::sgd::<F, false>(parameters, gradient, rate, decay);
                }
            }
            (Rule::Momentum { momentum }, [velocity]) => {
                let velocity = &mut velocity.as_mut()[part];
                let momentum = F::from_f64(momentum);
                if decays {
                    kernels::momentum::<F, true>(
                        parameters, gradient, velocity, rate, momentum, decay,
                    );
                } else {
                    kernels::momentum::<F, false>(
                        parameters, gradient, velocity, rate, momentum, decay,
                    );
                }
            }
            (Rule::Nesterov { momentum }, [velocity]) => {
                let velocity = &mut velocity.as_mut()[part];
                let momentum = F::from_f64(momentum);
                if decays {
                    kernels::nesterov::<F, true>(
                        parameters, gradient, velocity, rate, momentum, decay,
                    );
                } else {
                    kernels::nesterov::<F, false>(
                        parameters, gradient, velocity, rate, momentum, decay,
                    );
                }
            }
            (
                Rule::Adamw {
                    beta1,
                    beta2,
                    epsilon,
                },
                [first, second],
            ) => {
                let correction1 = 1.0 - beta1.powf(step as f64);
                let correction2 = 1.0 - beta2.powf(step as f64);
                kernels::adamw(
                    parameters,
                    gradient,
                    &mut first.as_mut()[part.clone()],
                    &mut second.as_mut()[part],
                    &kernels::Adamw {
                        keep: F::from_f64(1.0 - lr * segment.weight_decay),
                        rate: F::from_f64(lr / correction1),
                        rest1: F::from_f64(1.0 - beta1),
                        beta2: F::from_f64(beta2),
                        rest2: F::from_f64(1.0 - beta2),
                        root_correction2: F::from_f64(correction2.sqrt()),
                        epsilon: F::from_f64(epsilon),
                    },
                );
            }
            _ => unreachable!("`update` has checked the number of slots"),
        }
    }
}

/// Neighbouring parameters with the same weight decay, joined.
fn segments(layout: &Layout, weight_decay: f64, roles: Option<&[Role]>) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for parameter in &layout.parameters {
        let decays = roles.is_none_or(|roles| roles.contains(&parameter.role));
        let weight_decay = if decays { weight_decay } else { 0.0 };
        match segments.last_mut() {
            Some(last)
                if last.weight_decay == weight_decay && last.range.end == parameter.range.start =>
            {
                last.range.end = parameter.range.end;
            }
            _ => segments.push(Segment {
                range: parameter.range.clone(),
                weight_decay,
            }),
        }
    }
    segments
}

fn check(
    key: &'static str,
    expected: &'static str,
    found: f64,
    holds: bool,
) -> Result<(), OptimError> {
    if holds {
        Ok(())
    } else {
        Err(OptimError::OutOfRange {
            key,
            expected,
            found,
        })
    }
}
