//! The rule of a configuration: its coefficients, checked, and which parameters each applies to.

use std::ops::Range;

use super::error::{OptimError, check, not_negative, positive, share};
use crate::config::{MomentumForm, OptimizerConfig, RatioNorms, Role};
use crate::objective::Layout;

/// A rule and its coefficients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    Sgd,
    Momentum(Velocity),
    Adamw(Moments),
    Lars(Velocity, LarsRatio),
    Lamb {
        moments: Moments,
        /// min(ratio, 1)
        clip: bool,
    },
    Lion {
        beta1: f64,
        beta2: f64,
    },
}

/// How a velocity is made and used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Velocity {
    pub(super) momentum: f64,
    pub(super) nesterov: bool,
    pub(super) form: MomentumForm,
    /// Of the form `inside`: multiply by lr_t/lr_(t-1).
    pub(super) correction: bool,
}

/// Coefficients of Adam's moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moments {
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) epsilon: f64,
}

/// Coefficients of LARS's trust ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LarsRatio {
    pub(super) trust_coefficient: f64,
    pub(super) epsilon: f64,
    pub(super) norms: RatioNorms,
    /// min(ratio, lr) in place of lr ratio
    pub(super) clip: bool,
}

/// A run of neighbouring parameters with the same coefficients; one parameter tensor where the
/// rule has trust ratios.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Segment {
    pub(super) range: Range<usize>,
    pub(super) weight_decay: f64,
    /// Whether it has a trust ratio of its own.
    pub(super) adapts: bool,
}

/// A set of roles.
#[derive(Clone, Copy)]
enum Roles<'a> {
    All,
    None,
    /// Biases, scales and shifts.
    Vectors,
    AllButVectors,
    These(&'a [Role]),
}

impl<'a> Roles<'a> {
    fn given_or(given: Option<&'a [Role]>, default: Roles<'a>) -> Self {
        given.map_or(default, Roles::These)
    }

    fn contains(self, role: Role) -> bool {
        let vector = matches!(
            role,
            Role::Bias | Role::NormalizationScale | Role::NormalizationShift
        );
        match self {
            Roles::All => true,
            Roles::None => false,
            Roles::Vectors => vector,
            Roles::AllButVectors => !vector,
            Roles::These(roles) => roles.contains(&role),
        }
    }
}

impl Rule {
    /// The rule of `config` and its segments over the parameters of `layout`.
    pub(super) fn resolve(
        config: &OptimizerConfig,
        layout: &Layout,
    ) -> Result<(Self, Vec<Segment>), OptimError> {
        let (rule, decay_key, weight_decay, decaying, excluded) = match config {
            OptimizerConfig::Sgd {
                weight_decay,
                weight_decay_roles,
            } => (
                Rule::Sgd,
                "optimizer.sgd.weight_decay",
                *weight_decay,
                Roles::given_or(weight_decay_roles.as_deref(), Roles::All),
                Roles::All,
            ),
            OptimizerConfig::Momentum {
                momentum,
                weight_decay,
                weight_decay_roles,
                form,
                correction,
            } => {
                share("optimizer.momentum.momentum", *momentum)?;
                (
                    Rule::Momentum(Velocity {
                        momentum: *momentum,
                        nesterov: false,
                        form: *form,
                        correction: *correction,
                    }),
                    "optimizer.momentum.weight_decay",
                    *weight_decay,
                    Roles::given_or(weight_decay_roles.as_deref(), Roles::All),
                    Roles::All,
                )
            }
            OptimizerConfig::Nesterov {
                momentum,
                weight_decay,
                weight_decay_roles,
                form,
                correction,
            } => {
                let holds = *momentum > 0.0 && *momentum < 1.0;
                check("optimizer.nesterov.momentum", "in (0, 1)", *momentum, holds)?;
                (
                    Rule::Momentum(Velocity {
                        momentum: *momentum,
                        nesterov: true,
                        form: *form,
                        correction: *correction,
                    }),
                    "optimizer.nesterov.weight_decay",
                    *weight_decay,
                    Roles::given_or(weight_decay_roles.as_deref(), Roles::All),
                    Roles::All,
                )
            }
            OptimizerConfig::Adamw {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                weight_decay_roles,
            } => {
                share("optimizer.adamw.beta1", *beta1)?;
                share("optimizer.adamw.beta2", *beta2)?;
                // At 0, a parameter whose gradient is always 0 would become 0/0.
                positive("optimizer.adamw.epsilon", *epsilon)?;
                (
                    Rule::Adamw(Moments {
                        beta1: *beta1,
                        beta2: *beta2,
                        epsilon: *epsilon,
                    }),
                    "optimizer.adamw.weight_decay",
                    *weight_decay,
                    Roles::given_or(weight_decay_roles.as_deref(), Roles::All),
                    Roles::All,
                )
            }
            OptimizerConfig::Lars {
                momentum,
                nesterov,
                weight_decay,
                weight_decay_roles,
                trust_coefficient,
                epsilon,
                norms,
                exclude_roles,
                clip,
                correction,
            } => {
                share("optimizer.lars.momentum", *momentum)?;
                positive("optimizer.lars.trust_coefficient", *trust_coefficient)?;
                not_negative("optimizer.lars.epsilon", *epsilon)?;
                (
                    Rule::Lars(
                        Velocity {
                            momentum: *momentum,
                            nesterov: *nesterov,
                            form: MomentumForm::Inside,
                            correction: *correction,
                        },
                        LarsRatio {
                            trust_coefficient: *trust_coefficient,
                            epsilon: *epsilon,
                            norms: *norms,
                            clip: *clip,
                        },
                    ),
                    "optimizer.lars.weight_decay",
                    *weight_decay,
                    Roles::given_or(weight_decay_roles.as_deref(), Roles::AllButVectors),
                    Roles::given_or(exclude_roles.as_deref(), Roles::Vectors),
                )
            }
            OptimizerConfig::Lamb {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                weight_decay_roles,
                exclude_roles,
                clip,
            } => {
                share("optimizer.lamb.beta1", *beta1)?;
                share("optimizer.lamb.beta2", *beta2)?;
                positive("optimizer.lamb.epsilon", *epsilon)?;
                (
                    Rule::Lamb {
                        moments: Moments {
                            beta1: *beta1,
                            beta2: *beta2,
                            epsilon: *epsilon,
                        },
                        clip: *clip,
                    },
                    "optimizer.lamb.weight_decay",
                    *weight_decay,
                    Roles::given_or(weight_decay_roles.as_deref(), Roles::AllButVectors),
                    Roles::given_or(exclude_roles.as_deref(), Roles::None),
                )
            }
            OptimizerConfig::Lion {
                beta1,
                beta2,
                weight_decay,
                weight_decay_roles,
            } => {
                share("optimizer.lion.beta1", *beta1)?;
                share("optimizer.lion.beta2", *beta2)?;
                (
                    Rule::Lion {
                        beta1: *beta1,
                        beta2: *beta2,
                    },
                    "optimizer.lion.weight_decay",
                    *weight_decay,
                    Roles::given_or(weight_decay_roles.as_deref(), Roles::All),
                    Roles::All,
                )
            }
        };
        not_negative(decay_key, weight_decay)?;
        let mut segments: Vec<Segment> = Vec::new();
        for parameter in &layout.parameters {
            let decays = decaying.contains(parameter.role);
            let weight_decay = if decays { weight_decay } else { 0.0 };
            match segments.last_mut() {
                Some(last) if !rule.has_ratios() && last.weight_decay == weight_decay => {
                    last.range.end = parameter.range.end;
                }
                _ => segments.push(Segment {
                    range: parameter.range.clone(),
                    weight_decay,
                    adapts: !excluded.contains(parameter.role),
                }),
            }
        }
        Ok((rule, segments))
    }

    /// Whether each parameter tensor's rate has a factor of its own.
    pub(super) fn has_ratios(self) -> bool {
        matches!(self, Rule::Lars(..) | Rule::Lamb { .. })
    }
}
