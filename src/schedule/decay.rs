//! Decay: the factor that multiplies the scaled rate after the warm-up.

use std::f64::consts::PI;

use super::error::ScheduleError;
use super::learning_rate::{check, updates};
use crate::config::DecayConfig;

/// A validated decay, with all lengths in updates.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decay {
    Constant,
    /// Updates at which the rate drops, ascending, and the factor of each drop.
    Step {
        drops: Vec<f64>,
        factor: f64,
    },
    Cosine {
        final_fraction: f64,
    },
    Polynomial {
        power: f64,
        final_fraction: f64,
    },
    Exponential {
        factor: f64,
        steps_per_epoch: f64,
    },
}

impl Decay {
    pub(super) fn new(config: &DecayConfig, steps_per_epoch: f64) -> Result<Self, ScheduleError> {
        Ok(match config {
            DecayConfig::Constant {} => Decay::Constant,
            DecayConfig::Step { epochs, factor } => {
                positive("learning_rate.decay.step.factor", *factor)?;
                let mut drops = Vec::with_capacity(epochs.len());
                for &epoch in epochs {
                    check(
                        "learning_rate.decay.step.epochs",
                        "finite and not negative",
                        epoch,
                        epoch.is_finite() && epoch >= 0.0,
                    )?;
                    drops.push(updates(epoch, steps_per_epoch));
                }
                drops.sort_by(f64::total_cmp);
                Decay::Step {
                    drops,
                    factor: *factor,
                }
            }
            DecayConfig::Cosine { final_fraction } => {
                fraction("learning_rate.decay.cosine.final_fraction", *final_fraction)?;
                Decay::Cosine {
                    final_fraction: *final_fraction,
                }
            }
            DecayConfig::Polynomial {
                power,
                final_fraction,
            } => {
                positive("learning_rate.decay.polynomial.power", *power)?;
                fraction(
                    "learning_rate.decay.polynomial.final_fraction",
                    *final_fraction,
                )?;
                Decay::Polynomial {
                    power: *power,
                    final_fraction: *final_fraction,
                }
            }
            DecayConfig::Exponential { factor } => {
                positive("learning_rate.decay.exponential.factor", *factor)?;
                Decay::Exponential {
                    factor: *factor,
                    steps_per_epoch,
                }
            }
            DecayConfig::Linear { final_fraction } => {
                fraction("learning_rate.decay.linear.final_fraction", *final_fraction)?;
                Decay::Polynomial {
                    power: 1.0,
                    final_fraction: *final_fraction,
                }
            }
        })
    }

    /// The factor at `step`. `progress` is the share, in [0, 1], of the way from the end of the
    /// warm-up to the end of the run.
    pub(super) fn factor(&self, step: f64, progress: f64) -> f64 {
        match self {
            Decay::Constant => 1.0,
            Decay::Step { drops, factor } => {
                let made = drops.partition_point(|&drop| drop <= step);
                factor.powi(i32::try_from(made).unwrap_or(i32::MAX))
            }
            Decay::Cosine { final_fraction } => {
                final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + (PI * progress).cos())
            }
            Decay::Polynomial {
                power,
                final_fraction,
            } => final_fraction + (1.0 - final_fraction) * (1.0 - progress).powf(*power),
            Decay::Exponential {
                factor,
                steps_per_epoch,
            } => factor.powf(step / steps_per_epoch),
        }
    }
}

fn positive(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    check(
        key,
        "positive and finite",
        value,
        value.is_finite() && value > 0.0,
    )
}

fn fraction(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    check(key, "in [0, 1]", value, (0.0..=1.0).contains(&value))
}
