//! Decay: the factor that multiplies the scaled rate after the warm-up.

use std::f64::consts::PI;

use super::error::ScheduleError;
use super::time::{check, not_negative, positive, reached, snapped, updates};
use crate::config::{DecayConfig, DecayShape};

/// A validated decay, with all lengths on the clock.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decay {
    Constant,
    /// Times at which the rate drops, ascending, and the factor of each drop.
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
    InverseSqrt {
        timescale: f64,
    },
    /// Constant for `stable` after the warm-up, then down for `down`, to the end.
    Stable {
        stable: f64,
        down: f64,
        final_fraction: f64,
        shape: DecayShape,
    },
    Cyclic {
        period: f64,
        min_fraction: f64,
        cycle_factor: f64,
    },
}

/// Where the clock stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Since the start of training.
    pub(super) clock: f64,
    /// Since the end of the warm-up.
    pub(super) since: f64,
    /// The share, in [0, 1], of the way from the end of the warm-up to the end of the run.
    pub(super) progress: f64,
}

impl Decay {
    /// `warmup` and `total` are the lengths of the warm-up and of the run on the clock.
    pub(super) fn new(
        config: &DecayConfig,
        warmup: f64,
        total: f64,
        steps_per_epoch: f64,
    ) -> Result<Self, ScheduleError> {
        Ok(match config {
            DecayConfig::Constant {} => Decay::Constant,
            DecayConfig::Step { epochs, factor } => {
                positive("learning_rate.decay.step.factor", *factor)?;
                let mut drops = Vec::with_capacity(epochs.len());
                for &epoch in epochs {
                    not_negative("learning_rate.decay.step.epochs", epoch)?;
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
            DecayConfig::InverseSqrt { timescale_epochs } => {
                let timescale = match *timescale_epochs {
                    Some(epochs) => {
                        positive("learning_rate.decay.inverse-sqrt.timescale_epochs", epochs)?;
                        epochs * steps_per_epoch
                    }
                    None if warmup > 0.0 => warmup,
                    None => return Err(ScheduleError::MissingTimescale),
                };
                Decay::InverseSqrt { timescale }
            }
            DecayConfig::WarmupStableDecay {
                decay_fraction,
                final_fraction,
                shape,
            } => {
                above_zero(
                    "learning_rate.decay.warmup-stable-decay.decay_fraction",
                    *decay_fraction,
                )?;
                fraction(
                    "learning_rate.decay.warmup-stable-decay.final_fraction",
                    *final_fraction,
                )?;
                let length = total - warmup;
                // 1 - x^(1/2) makes a rounding of 1e-16 in x one of 1e-8 in the rate.
                let stable = snapped(length - decay_fraction * length);
                Decay::Stable {
                    stable,
                    down: length - stable,
                    final_fraction: *final_fraction,
                    shape: *shape,
                }
            }
            DecayConfig::Cyclic {
                period_epochs,
                min_fraction,
                cycle_factor,
            } => {
                positive("learning_rate.decay.cyclic.period_epochs", *period_epochs)?;
                fraction("learning_rate.decay.cyclic.min_fraction", *min_fraction)?;
                above_zero("learning_rate.decay.cyclic.cycle_factor", *cycle_factor)?;
                Decay::Cyclic {
                    period: updates(*period_epochs, steps_per_epoch),
                    min_fraction: *min_fraction,
                    cycle_factor: *cycle_factor,
                }
            }
        })
    }

    /// The factor at this time, which is not before the end of the warm-up.
    pub(super) fn factor(&self, now: Now) -> f64 {
        match self {
            Decay::Constant => 1.0,
            Decay::Step { drops, factor } => {
                let made = drops.partition_point(|&drop| reached(now.clock, drop));
                factor.powi(i32::try_from(made).unwrap_or(i32::MAX))
            }
            Decay::Cosine { final_fraction } => {
                final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + (PI * now.progress).cos())
            }
            Decay::Polynomial {
                power,
                final_fraction,
            } => final_fraction + (1.0 - final_fraction) * (1.0 - now.progress).powf(*power),
            Decay::Exponential {
                factor,
                steps_per_epoch,
            } => factor.powf(now.clock / steps_per_epoch),
            Decay::InverseSqrt { timescale } => (1.0 + now.since / timescale).sqrt().recip(),
            Decay::Stable {
                stable,
                down,
                final_fraction,
                shape,
            } => {
                let x = if now.progress >= 1.0 {
                    1.0
                } else {
                    ((now.since - stable) / down).clamp(0.0, 1.0)
                };
                let left = match shape {
                    DecayShape::Linear => 1.0 - x,
                    DecayShape::Cosine => 0.5 * (1.0 + (PI * x).cos()),
                    DecayShape::Sqrt => 1.0 - x.sqrt(),
                };
                final_fraction + (1.0 - final_fraction) * left
            }
            Decay::Cyclic {
                period,
                min_fraction,
                cycle_factor,
            } => {
                let cycles = now.since / period;
                let cycle = cycles.floor();
                let height = 1.0 - (2.0 * (cycles - cycle) - 1.0).abs();
                min_fraction + (1.0 - min_fraction) * height * cycle_factor.powf(cycle)
            }
        }
    }
}

fn fraction(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    check(key, "in [0, 1]", value, (0.0..=1.0).contains(&value))
}

fn above_zero(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    check(key, "in (0, 1]", value, value > 0.0 && value <= 1.0)
}
