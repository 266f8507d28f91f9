//! The learning rate of every update of a run.

use super::decay::Decay;
use super::error::ScheduleError;
use crate::config::{LearningRateConfig, Scaling, WarmupConfig, WarmupShape, short};

/// The learning rate as a pure function of the update count t (the number of updates already
/// made, so the first update has t = 0):
///
/// - peak = base_lr * s, with s = 1 (`none`), (B / base_batch)^(1/2) (`sqrt`; Krizhevsky 2014,
///   Hoffer et al. 2017) or B / base_batch (`linear`; Goyal et al. 2017), B the global batch;
/// - for t < W, W the length of the warm-up in updates: start + (peak - start) t / W (`gradual`;
///   Goyal et al. 2017, section 2.2) or start (`constant`);
/// - from W on: peak * decay. Cosine, polynomial and linear decay run over
///   (t - W) / (T - W), T the length of the run; step and exponential decay over the epoch
///   fraction t / steps_per_epoch, counted from the start of training.
///
/// W need not be a whole number: 5 epochs of 46.875 updates are 234.375 updates.
///
/// ```
/// # use batchlab::config::{DecayConfig, LearningRateConfig, Scaling, WarmupConfig, WarmupShape};
/// # use batchlab::schedule::LearningRate;
/// let config = LearningRateConfig {
///     base_lr: 0.1,
///     base_batch: Some(256),
///     scaling: Scaling::Linear,
///     warmup: Some(WarmupConfig {
///         shape: WarmupShape::Gradual,
///         epochs: Some(5.0),
///         steps: None,
///         start_lr: None,
///     }),
///     decay: DecayConfig::Constant {},
/// };
/// let rate = LearningRate::new(&config, 2048, 1000, 20.0)?;
/// assert_eq!(rate.peak(), 0.8); // 0.1 x 2048/256
/// assert_eq!(rate.at(0), 0.1);
/// assert!((rate.at(50) - 0.45).abs() < 1e-15);
/// assert_eq!(rate.at(100), rate.peak());
/// # Ok::<(), batchlab::schedule::ScheduleError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRate {
    peak: f64,
    total_steps: f64,
    warmup: Option<Warmup>,
    decay: Decay,
}

/// A validated warm-up.
#[derive(Debug, Clone, PartialEq)]
struct Warmup {
    shape: WarmupShape,
    steps: f64,
    start: f64,
}

impl LearningRate {
    /// The rate of a run of `total_steps` updates of `global_batch` examples, `steps_per_epoch`
    /// of them an epoch (not necessarily a whole number).
    ///
    /// # Errors
    /// A rate, factor, exponent or length outside its range; a scaling rule without `base_batch`;
    /// a warm-up with both or neither of `epochs` and `steps`, or longer than the run (it is never
    /// shortened: a run with another warm-up is another experiment).
    pub fn new(
        config: &LearningRateConfig,
        global_batch: usize,
        total_steps: u64,
        steps_per_epoch: f64,
    ) -> Result<Self, ScheduleError> {
        let base = config.base_lr;
        check(
            "learning_rate.base_lr",
            "positive and finite",
            base,
            base.is_finite() && base > 0.0,
        )?;
        check(
            "train.global_batch",
            "at least 1",
            global_batch as f64,
            global_batch >= 1,
        )?;
        check(
            "updates per epoch",
            "positive and finite",
            steps_per_epoch,
            steps_per_epoch.is_finite() && steps_per_epoch > 0.0,
        )?;
        check_base_batch(config)?;
        let peak = config.scaled(global_batch);
        check(
            "the scaled learning rate",
            "positive and finite",
            peak,
            peak.is_finite() && peak > 0.0,
        )?;
        let warmup = match &config.warmup {
            None => None,
            Some(warmup) => Warmup::new(warmup, base.min(peak), steps_per_epoch)?,
        };
        // The run may end within the warm-up's last update: an epoch of 22.5 updates has 22.
        if let Some(warmup) = &warmup
            && warmup.steps.floor() > total_steps as f64
        {
            return Err(ScheduleError::WarmupTooLong {
                warmup_steps: short(warmup.steps),
                warmup_epochs: short(warmup.steps / steps_per_epoch),
                total_steps,
                total_epochs: short(total_steps as f64 / steps_per_epoch),
                global_batch,
            });
        }
        Ok(Self {
            peak,
            total_steps: total_steps as f64,
            warmup,
            decay: Decay::new(&config.decay, steps_per_epoch)?,
        })
    }

    /// The rate of the update that follows `step` updates (0 for the first). Past the end of the
    /// run, decays that run to its end stay at their final value.
    pub fn at(&self, step: u64) -> f64 {
        let step = step as f64;
        let mut start_of_decay = 0.0;
        if let Some(warmup) = &self.warmup {
            if step < warmup.steps {
                return match warmup.shape {
                    WarmupShape::Constant => warmup.start,
                    WarmupShape::Gradual => {
                        warmup.start + (self.peak - warmup.start) * (step / warmup.steps)
                    }
                };
            }
            start_of_decay = warmup.steps;
        }
        let length = self.total_steps - start_of_decay;
        let progress = if length > 0.0 {
            ((step - start_of_decay) / length).min(1.0)
        } else {
            1.0
        };
        self.peak * self.decay.factor(step, progress)
    }

    /// The scaled rate, before warm-up and decay.
    pub fn peak(&self) -> f64 {
        self.peak
    }
}

impl Warmup {
    /// `None` for a warm-up of length 0, so that a sweep over its length may include none.
    fn new(
        config: &WarmupConfig,
        default_start: f64,
        steps_per_epoch: f64,
    ) -> Result<Option<Self>, ScheduleError> {
        let start = config.start_lr.unwrap_or(default_start);
        match config.shape {
            WarmupShape::Gradual => check(
                "learning_rate.warmup.start_lr",
                "finite and not negative",
                start,
                start.is_finite() && start >= 0.0,
            )?,
            // A constant warm-up at rate 0 would train nothing at all.
            WarmupShape::Constant => check(
                "learning_rate.warmup.start_lr",
                "positive and finite",
                start,
                start.is_finite() && start > 0.0,
            )?,
        }
        let steps = match (config.epochs, config.steps) {
            (Some(epochs), None) => {
                check(
                    "learning_rate.warmup.epochs",
                    "finite and not negative",
                    epochs,
                    epochs.is_finite() && epochs >= 0.0,
                )?;
                updates(epochs, steps_per_epoch)
            }
            (None, Some(steps)) => steps as f64,
            (Some(_), Some(_)) => return Err(ScheduleError::WarmupLength { found: "both" }),
            (None, None) => return Err(ScheduleError::WarmupLength { found: "neither" }),
        };
        Ok((steps > 0.0).then_some(Self {
            shape: config.shape,
            steps,
            start,
        }))
    }
}

/// A rule that follows the batch needs the batch that the base rate suits.
fn check_base_batch(config: &LearningRateConfig) -> Result<(), ScheduleError> {
    let scaling = config.scaling.name();
    match config.base_batch {
        _ if config.scaling == Scaling::None => Ok(()),
        None => Err(ScheduleError::MissingBaseBatch { scaling }),
        Some(batch) => check(
            "learning_rate.base_batch",
            "at least 1",
            batch as f64,
            batch >= 1,
        ),
    }
}

pub(super) fn check(
    key: &'static str,
    expected: &'static str,
    found: f64,
    holds: bool,
) -> Result<(), ScheduleError> {
    if holds {
        Ok(())
    } else {
        Err(ScheduleError::OutOfRange {
            key,
            expected,
            found,
        })
    }
}

/// A number of epochs in updates. A product within rounding of a whole number is that number:
/// 0.1 epochs of 30 updates are 3 updates, not 3.0000000000000004, which would add a fourth.
pub(super) fn updates(epochs: f64, steps_per_epoch: f64) -> f64 {
    let steps = epochs * steps_per_epoch;
    let whole = steps.round();
    if (steps - whole).abs() <= 1e-9 * whole.max(1e-3) {
        whole
    } else {
        steps
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::DecayConfig;

    fn plain(base_lr: f64) -> LearningRateConfig {
        LearningRateConfig {
            base_lr,
            base_batch: None,
            scaling: Scaling::None,
            warmup: None,
            decay: DecayConfig::Constant {},
        }
    }

    fn scaling(base_lr: f64, rule: Scaling) -> LearningRateConfig {
        LearningRateConfig {
            base_batch: Some(256),
            scaling: rule,
            ..plain(base_lr)
        }
    }

    fn warmup(shape: WarmupShape, epochs: f64) -> WarmupConfig {
        WarmupConfig {
            shape,
            epochs: Some(epochs),
            steps: None,
            start_lr: None,
        }
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 1e-12 * expected.abs().max(1e-3),
            "{found} instead of {expected}"
        );
    }

    #[test]
    fn each_scaling_rule_follows_the_batch() {
        let peak = |rule, global_batch| {
            let rate = LearningRate::new(&scaling(0.1, rule), global_batch, 10, 5.0).unwrap();
            rate.peak()
        };
        close(peak(Scaling::Linear, 2048), 0.8);
        close(peak(Scaling::Sqrt, 2048), 0.1 * 8f64.sqrt());
        assert_eq!(peak(Scaling::None, 2048), 0.1);
        close(peak(Scaling::Linear, 32), 0.0125);
    }

    #[test]
    fn gradual_warmup_is_a_straight_line_from_base_to_peak() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 2048, 1000, 20.0).unwrap();
        for step in 0..100 {
            close(rate.at(step), 0.1 + 0.7 * step as f64 / 100.0);
        }
        for step in 100..1000 {
            assert_eq!(rate.at(step), rate.peak());
        }
    }

    #[test]
    fn constant_warmup_holds_the_base_rate_and_then_jumps() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Constant, 1.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 2048, 1000, 20.0).unwrap();
        assert!((0..20).all(|step| rate.at(step) == 0.1));
        assert_eq!(rate.at(20), rate.peak());
    }

    #[test]
    fn warmup_starts_at_the_scaled_rate_where_that_is_lower() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 32, 1000, 20.0).unwrap();
        assert!((0..1000).all(|step| rate.at(step) == 0.0125));
    }

    #[test]
    fn a_given_start_is_used_as_it_stands() {
        let config = LearningRateConfig {
            warmup: Some(WarmupConfig {
                shape: WarmupShape::Gradual,
                epochs: None,
                steps: Some(4),
                start_lr: Some(0.0),
            }),
            ..plain(0.4)
        };
        let rate = LearningRate::new(&config, 32, 10, 5.0).unwrap();
        for (step, expected) in [0.0, 0.1, 0.2, 0.3, 0.4, 0.4].into_iter().enumerate() {
            close(rate.at(step as u64), expected);
        }
    }

    #[test]
    fn rounding_never_adds_an_update_to_a_warmup_or_moves_a_drop() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Constant, 0.1)),
            decay: DecayConfig::Step {
                epochs: vec![0.7],
                factor: 0.5,
            },
            ..scaling(0.1, Scaling::Linear)
        };
        // In floating point, 0.1 * 30 and 0.7 * 30 are not 3 and 21.
        let rate = LearningRate::new(&config, 512, 100, 30.0).unwrap();
        assert_eq!(rate.at(2), 0.1);
        assert_eq!(rate.at(3), 0.2);
        assert_eq!(rate.at(20), 0.2);
        assert_eq!(rate.at(21), 0.1);
    }

    #[test]
    fn a_warmup_of_length_zero_is_none() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 0.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 512, 100, 30.0).unwrap();
        assert_eq!(rate.at(0), rate.peak());
    }

    #[test]
    fn step_decay_counts_epochs_from_the_start_in_any_order() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            decay: DecayConfig::Step {
                epochs: vec![60.0, 30.0],
                factor: 0.1,
            },
            ..plain(0.1)
        };
        let rate = LearningRate::new(&config, 8, 900, 10.0).unwrap();
        close(rate.at(299), 0.1);
        close(rate.at(300), 0.01);
        close(rate.at(599), 0.01);
        close(rate.at(600), 0.001);
    }

    #[test]
    fn decays_that_run_to_the_end_start_where_the_warmup_ends() {
        let peak = 0.8;
        for (decay, at_middle, at_end) in [
            (
                DecayConfig::Cosine {
                    final_fraction: 0.2,
                },
                0.6,
                0.2,
            ),
            (
                DecayConfig::Linear {
                    final_fraction: 0.2,
                },
                0.6,
                0.2,
            ),
            (
                DecayConfig::Polynomial {
                    power: 2.0,
                    final_fraction: 0.0,
                },
                0.25,
                0.0,
            ),
        ] {
            let config = LearningRateConfig {
                warmup: Some(warmup(WarmupShape::Gradual, 2.0)),
                decay,
                ..scaling(0.1, Scaling::Linear)
            };
            let rate = LearningRate::new(&config, 2048, 120, 10.0).unwrap();
            close(rate.at(20), peak);
            close(rate.at(70), peak * at_middle);
            close(rate.at(120), peak * at_end);
            assert_eq!(rate.at(500), rate.at(120));
        }
    }

    #[test]
    fn exponential_decay_is_continuous_in_the_epoch_fraction() {
        let config = LearningRateConfig {
            decay: DecayConfig::Exponential { factor: 0.25 },
            ..plain(1.0)
        };
        let rate = LearningRate::new(&config, 8, 100, 10.0).unwrap();
        close(rate.at(5), 0.5);
        close(rate.at(10), 0.25);
        close(rate.at(20), 0.0625);
    }

    #[test]
    fn a_warmup_longer_than_the_run_is_refused_with_the_fix() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let error = LearningRate::new(&config, 8192, 20, 7.5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the warm-up is longer than the run: 37.5 updates of warm-up (5 epochs), 20 updates \
             in all (2.66667 epochs) at global batch 8192\n\
             hint: shorten `learning_rate.warmup` to at most 2.66667 epochs, or train for at \
             least 5 epochs"
        );
        // As long as the run is not longer than the run.
        assert!(LearningRate::new(&config, 8192, 38, 7.5).is_ok());
    }

    #[test]
    fn rates_that_are_not_positive_are_refused_by_name() {
        for base_lr in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            let error = LearningRate::new(&plain(base_lr), 8, 10, 5.0).unwrap_err();
            assert!(error.to_string().contains("`learning_rate.base_lr`"));
        }
        let bad_decays = [
            DecayConfig::Step {
                epochs: vec![1.0],
                factor: 0.0,
            },
            DecayConfig::Step {
                epochs: vec![-1.0],
                factor: 0.1,
            },
            DecayConfig::Exponential { factor: -1.0 },
            DecayConfig::Cosine {
                final_fraction: 1.5,
            },
            DecayConfig::Linear {
                final_fraction: f64::NAN,
            },
            DecayConfig::Polynomial {
                power: 0.0,
                final_fraction: 0.0,
            },
        ];
        for decay in bad_decays {
            let config = LearningRateConfig {
                decay,
                ..plain(0.1)
            };
            let error = LearningRate::new(&config, 8, 10, 5.0).unwrap_err();
            assert!(error.to_string().contains("learning_rate.decay."));
        }
    }

    #[test]
    fn a_scaling_rule_without_a_base_batch_is_refused() {
        let config = LearningRateConfig {
            scaling: Scaling::Linear,
            ..plain(0.1)
        };
        let error = LearningRate::new(&config, 8, 10, 5.0).unwrap_err();
        assert_eq!(error, ScheduleError::MissingBaseBatch { scaling: "linear" });
    }

    #[test]
    fn a_warmup_needs_one_length() {
        for (epochs, steps, found) in [(Some(1.0), Some(3), "both"), (None, None, "neither")] {
            let config = LearningRateConfig {
                warmup: Some(WarmupConfig {
                    shape: WarmupShape::Gradual,
                    epochs,
                    steps,
                    start_lr: None,
                }),
                ..plain(0.1)
            };
            let error = LearningRate::new(&config, 8, 10, 5.0).unwrap_err();
            assert_eq!(error, ScheduleError::WarmupLength { found });
        }
    }

    /// `tests/reference/schedules.py` ran PyTorch's schedulers.
    #[test]
    fn where_pytorch_has_the_schedule_the_rates_are_equal() {
        let reference: Value =
            serde_json::from_str(include_str!("../../tests/reference/schedules.json")).unwrap();
        let cases = reference["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 8);
        for case in cases {
            let config: LearningRateConfig =
                serde_json::from_value(case["learning_rate"].clone()).unwrap();
            let rates = case["rates"].as_array().unwrap();
            let rate = LearningRate::new(
                &config,
                case["global_batch"].as_u64().unwrap() as usize,
                case["total_steps"].as_u64().unwrap(),
                case["steps_per_epoch"].as_f64().unwrap(),
            )
            .unwrap();
            assert!(rates.len() > 20);
            for (step, expected) in rates.iter().enumerate() {
                let (found, expected) = (rate.at(step as u64), expected.as_f64().unwrap());
                assert!(
                    (found - expected).abs() <= 1e-10 * rate.peak(),
                    "{}, step {step}: {found} instead of {expected}",
                    case["name"]
                );
            }
        }
    }
}
