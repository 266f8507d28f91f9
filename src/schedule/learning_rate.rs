//! The learning rate of every update of a run.

use super::decay::{Decay, Now};
use super::error::ScheduleError;
use super::time::{check, not_negative, positive, reached, snapped, updates};
use crate::config::{LearningRateConfig, Scaling, WarmupConfig, WarmupShape};

/// The learning rate as a pure function of the clock c.
///
/// The clock is the number of updates already made, so the first update has c = 0. In runs whose
/// batch varies and whose budget is in epochs or examples, it is the examples processed over the
/// starting batch: updates at the starting batch, no longer whole, so that every length in epochs
/// stays that length. A constant batch makes the two one.
///
/// With B the global batch at the start and b = `base_batch`, the scaling rule gives the peak:
///
/// | `scaling` | peak |
/// |---|---|
/// | `none` | base_lr |
/// | `sqrt` | base_lr (B/b)^(1/2) (Krizhevsky 2014, Hoffer et al. 2017) |
/// | `linear` | base_lr B/b (Goyal et al. 2017) |
/// | `power` | base_lr (B/b)^exponent |
/// | `saturating` | base_lr (1 + noise_scale/b) / (1 + noise_scale/B) (McCandlish et al. 2018) |
/// | `adascale` | base_lr: the clock runs at b, and the trainer multiplies by the measured gain (Johnson et al. 2020) |
///
/// For c < W, W the length of the warm-up, the rate goes from start (`start_lr`) to the peak:
///
/// | `warmup.shape` | rate | default start |
/// |---|---|---|
/// | `gradual` | start + (peak - start) c/W (Goyal et al. 2017, section 2.2) | base_lr, or the peak if lower |
/// | `constant` | start (Goyal et al. 2017, section 2.2) | the same |
/// | `exponential` | start (peak/start)^(c/W) | the same |
/// | `legw` | as `gradual` (You et al. 2019, arXiv 1901.08256) | 0 |
///
/// W is the number of updates of the given `epochs`, `steps` or `examples` at B. It need not be
/// whole: 5 epochs of 46.875 updates are 234.375 updates. For `legw` (linear-epoch gradual warm-up)
/// the length given is that at b, and B/b times as many epochs or examples warm up at B. That is
/// the same number of updates, so `steps` are W themselves.
///
/// From W on the rate is the peak times the factor of the decay. With s = c - W, the time since the
/// warm-up, p = min(s/(T - W), 1), the progress in a run of length T, f = `final_fraction`, and
/// e = c / steps_per_epoch, the clock in epochs:
///
/// | `decay` | factor |
/// |---|---|
/// | `constant` | 1 |
/// | `step` | factor^(number of `epochs` that are at most e) |
/// | `exponential` | factor^e |
/// | `cosine` | f + (1 - f) (1 + cos(pi p))/2 |
/// | `polynomial` | f + (1 - f) (1 - p)^power |
/// | `linear` | f + (1 - f) (1 - p) |
/// | `inverse-sqrt` | (1 + s/k)^(-1/2), k = `timescale_epochs` on the clock, by default W: (W/c)^(1/2), as Vaswani et al. 2017 |
/// | `warmup-stable-decay` | f + (1 - f) d(x), x = max(0, 1 - (1 - p)/`decay_fraction`), d(x) = 1 - x (`linear`), (1 + cos(pi x))/2 (`cosine`) or 1 - x^(1/2) (`sqrt`) (Hu et al. 2024; Haegele et al. 2024) |
/// | `cyclic` | l + (1 - l) (1 - \|2y - 1\|) cycle_factor^n, l = `min_fraction`, n and y the whole and the fractional part of s over the period (Smith 2017, arXiv 1506.01186) |
///
/// Step and exponential decay count from the start of training. A cycle starts at its lowest rate,
/// so behind a warm-up the rate falls from the peak to l times the peak.
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
///         examples: None,
///         start_lr: None,
///     }),
///     decay: DecayConfig::Constant {},
/// };
/// let rate = LearningRate::new(&config, 2048, 1000.0, 20.0)?;
/// assert_eq!(rate.peak(), 0.8); // 0.1 x 2048/256
/// assert_eq!(rate.at(0.0), 0.1);
/// assert!((rate.at(50.0) - 0.45).abs() < 1e-15);
/// assert_eq!(rate.at(100.0), rate.peak());
/// # Ok::<(), batchlab::schedule::ScheduleError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRate {
    peak: f64,
    total: f64,
    warmup: Option<Warmup>,
    decay: Decay,
}

/// A validated warm-up.
#[derive(Debug, Clone, PartialEq)]
struct Warmup {
    shape: WarmupShape,
    /// On the clock.
    length: f64,
    start: f64,
}

impl LearningRate {
    /// The rate of a run of length `total` on the clock that starts with updates of `global_batch`
    /// examples, `steps_per_epoch` of them an epoch (neither is necessarily whole). For
    /// [`Scaling::Adascale`], whose clock runs at the base batch, `global_batch` is `base_batch`.
    ///
    /// # Errors
    /// A rate, factor, exponent or length outside its range; a scaling rule or LEGW without
    /// `base_batch`; a warm-up with none or several of `epochs`, `steps` and `examples`, or longer
    /// than the run (it is never shortened: a run with another warm-up is another experiment);
    /// inverse-square-root decay with neither a time scale nor a warm-up.
    pub fn new(
        config: &LearningRateConfig,
        global_batch: usize,
        total: f64,
        steps_per_epoch: f64,
    ) -> Result<Self, ScheduleError> {
        let base = config.base_lr;
        positive("learning_rate.base_lr", base)?;
        check(
            "train.global_batch",
            "at least 1",
            global_batch as f64,
            global_batch >= 1,
        )?;
        not_negative("the length of the run", total)?;
        positive("updates per epoch", steps_per_epoch)?;
        check_scaling(config)?;
        let peak = config.scaled(global_batch);
        positive("the scaled learning rate", peak)?;
        let warmup = match &config.warmup {
            None => None,
            Some(warmup) => {
                // By how much LEGW stretches the warm-up.
                let stretch = match warmup.shape {
                    WarmupShape::Legw => {
                        let base_batch = base_batch(config, "learning_rate.warmup.shape", "legw")?;
                        global_batch as f64 / base_batch as f64
                    }
                    _ => 1.0,
                };
                let sizes = Sizes {
                    global_batch,
                    total,
                    steps_per_epoch,
                };
                Warmup::new(warmup, stretch, base.min(peak), &sizes)?
            }
        };
        let length = warmup.as_ref().map_or(0.0, |warmup| warmup.length);
        Ok(Self {
            peak,
            total,
            warmup,
            decay: Decay::new(&config.decay, length, total, steps_per_epoch)?,
        })
    }

    /// The rate of the update that comes at `clock` (0 for the first). Past the end of the run,
    /// decays that run to its end stay at their final value.
    pub fn at(&self, clock: f64) -> f64 {
        self.at_scaled(clock, 1.0)
    }

    /// As [`LearningRate::at`], where the scaled rate is now `factor` times that of the start, since
    /// the batch has changed or a controller has moved the rate. A warm-up still starts from the rate
    /// that it was given.
    pub fn at_scaled(&self, clock: f64, factor: f64) -> f64 {
        let peak = self.peak * factor;
        let mut start_of_decay = 0.0;
        if let Some(warmup) = &self.warmup {
            if self.warms_up(clock) {
                return warmup.at(clock, peak);
            }
            start_of_decay = warmup.length;
        }
        let since = (clock - start_of_decay).max(0.0);
        let length = self.total - start_of_decay;
        let progress = if length > 0.0 {
            (since / length).min(1.0)
        } else {
            1.0
        };
        peak * self.decay.factor(Now {
            clock,
            since,
            progress,
        })
    }

    /// Whether the update that comes at `clock` belongs to the warm-up.
    pub fn warms_up(&self, clock: f64) -> bool {
        let warmup = self.warmup.as_ref();
        warmup.is_some_and(|warmup| !reached(clock, warmup.length))
    }

    /// The scaled rate, before warm-up and decay.
    pub fn peak(&self) -> f64 {
        self.peak
    }
}

/// What lengths are measured against.
struct Sizes {
    global_batch: usize,
    total: f64,
    steps_per_epoch: f64,
}

impl Warmup {
    /// `None` for a warm-up of length 0, so that a sweep over its length may include none.
    fn new(
        config: &WarmupConfig,
        stretch: f64,
        base: f64,
        sizes: &Sizes,
    ) -> Result<Option<Self>, ScheduleError> {
        let key = "learning_rate.warmup.start_lr";
        let start = config.start_lr.unwrap_or(match config.shape {
            WarmupShape::Legw => 0.0,
            _ => base,
        });
        match config.shape {
            WarmupShape::Gradual | WarmupShape::Legw => not_negative(key, start)?,
            // A constant warm-up at rate 0 would train nothing at all, and no factor leads from 0
            // to the peak.
            WarmupShape::Constant | WarmupShape::Exponential => positive(key, start)?,
        }
        let length = match (config.epochs, config.steps, config.examples) {
            (Some(epochs), None, None) => {
                not_negative("learning_rate.warmup.epochs", epochs)?;
                updates(epochs * stretch, sizes.steps_per_epoch)
            }
            (None, Some(steps), None) => steps as f64,
            (None, None, Some(examples)) => {
                snapped(examples as f64 * stretch / sizes.global_batch as f64)
            }
            _ => return Err(length_error(config)),
        };
        // The run may end within the warm-up's last update: an epoch of 22.5 updates has 22.
        if !reached(sizes.total, length.floor()) {
            return Err(ScheduleError::WarmupTooLong {
                warmup_steps: length,
                total_steps: sizes.total,
                steps_per_epoch: sizes.steps_per_epoch,
                global_batch: sizes.global_batch,
                stretch,
            });
        }
        Ok((length > 0.0).then_some(Self {
            shape: config.shape,
            length,
            start,
        }))
    }

    /// The rate at a time before the end of the warm-up.
    fn at(&self, clock: f64, peak: f64) -> f64 {
        let progress = clock / self.length;
        match self.shape {
            WarmupShape::Constant => self.start,
            WarmupShape::Gradual | WarmupShape::Legw => self.start + (peak - self.start) * progress,
            WarmupShape::Exponential => self.start * (peak / self.start).powf(progress),
        }
    }
}

fn length_error(config: &WarmupConfig) -> ScheduleError {
    let given: Vec<&str> = [
        ("`epochs`", config.epochs.is_some()),
        ("`steps`", config.steps.is_some()),
        ("`examples`", config.examples.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect();
    ScheduleError::WarmupLength {
        found: if given.is_empty() {
            "none".to_owned()
        } else {
            given.join(" and ")
        },
    }
}

/// The numbers of a scaling rule. One that follows the batch needs the batch that the base rate
/// suits.
fn check_scaling(config: &LearningRateConfig) -> Result<(), ScheduleError> {
    match config.scaling {
        Scaling::None => return Ok(()),
        Scaling::Sqrt | Scaling::Linear | Scaling::Adascale {} => {}
        Scaling::Power { exponent } => check(
            "learning_rate.scaling.power.exponent",
            "finite",
            exponent,
            exponent.is_finite(),
        )?,
        Scaling::Saturating { noise_scale } => {
            positive("learning_rate.scaling.saturating.noise_scale", noise_scale)?;
        }
    }
    base_batch(config, "learning_rate.scaling", config.scaling.name()).map(|_| ())
}

/// The batch that the base rate suits, for the rule at `key` that needs it.
fn base_batch(
    config: &LearningRateConfig,
    key: &'static str,
    rule: &'static str,
) -> Result<usize, ScheduleError> {
    let batch = config
        .base_batch
        .ok_or(ScheduleError::MissingBaseBatch { key, rule })?;
    check(
        "learning_rate.base_batch",
        "at least 1",
        batch as f64,
        batch >= 1,
    )?;
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::{DecayConfig, DecayShape};

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
            examples: None,
            start_lr: None,
        }
    }

    fn stable_decay(decay_fraction: f64, final_fraction: f64) -> DecayConfig {
        DecayConfig::WarmupStableDecay {
            decay_fraction,
            final_fraction,
            shape: DecayShape::Sqrt,
        }
    }

    fn cyclic(period_epochs: f64, min_fraction: f64, cycle_factor: f64) -> DecayConfig {
        DecayConfig::Cyclic {
            period_epochs,
            min_fraction,
            cycle_factor,
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
            let rate = LearningRate::new(&scaling(0.1, rule), global_batch, 10.0, 5.0).unwrap();
            rate.peak()
        };
        close(peak(Scaling::Linear, 2048), 0.8);
        close(peak(Scaling::Sqrt, 2048), 0.1 * 8f64.sqrt());
        assert_eq!(peak(Scaling::None, 2048), 0.1);
        close(peak(Scaling::Linear, 32), 0.0125);
        close(
            peak(
                Scaling::Power {
                    exponent: 2.0 / 3.0,
                },
                2048,
            ),
            0.4,
        );
        let noise_scale = 256.0 * 3.0;
        // 0.1 (1 + 3)/(1 + 3/8)
        close(peak(Scaling::Saturating { noise_scale }, 2048), 0.4 / 1.375);
        assert_eq!(peak(Scaling::Adascale {}, 256), 0.1);
    }

    #[test]
    fn gradual_warmup_is_a_straight_line_from_base_to_peak() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 2048, 1000.0, 20.0).unwrap();
        for step in 0..100 {
            close(
                rate.at(f64::from(step)),
                0.1 + 0.7 * f64::from(step) / 100.0,
            );
        }
        for step in 100..1000 {
            assert_eq!(rate.at(f64::from(step)), rate.peak());
        }
    }

    #[test]
    fn constant_warmup_holds_the_base_rate_and_then_jumps() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Constant, 1.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 2048, 1000.0, 20.0).unwrap();
        assert!((0..20).all(|step| rate.at(f64::from(step)) == 0.1));
        assert_eq!(rate.at(20.0), rate.peak());
    }

    #[test]
    fn warmup_starts_at_the_scaled_rate_where_that_is_lower() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 32, 1000.0, 20.0).unwrap();
        assert!((0..1000).all(|step| rate.at(f64::from(step)) == 0.0125));
    }

    #[test]
    fn a_given_start_is_used_as_it_stands() {
        let config = LearningRateConfig {
            warmup: Some(WarmupConfig {
                shape: WarmupShape::Gradual,
                epochs: None,
                steps: Some(4),
                examples: None,
                start_lr: Some(0.0),
            }),
            ..plain(0.4)
        };
        let rate = LearningRate::new(&config, 32, 10.0, 5.0).unwrap();
        for (step, expected) in [0.0, 0.1, 0.2, 0.3, 0.4, 0.4].into_iter().enumerate() {
            close(rate.at(step as f64), expected);
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
        let rate = LearningRate::new(&config, 512, 100.0, 30.0).unwrap();
        assert_eq!(rate.at(2.0), 0.1);
        assert_eq!(rate.at(3.0), 0.2);
        assert_eq!(rate.at(20.0), 0.2);
        assert_eq!(rate.at(21.0), 0.1);
    }

    #[test]
    fn a_warmup_of_length_zero_is_none() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 0.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let rate = LearningRate::new(&config, 512, 100.0, 30.0).unwrap();
        assert_eq!(rate.at(0.0), rate.peak());
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
        let rate = LearningRate::new(&config, 8, 900.0, 10.0).unwrap();
        close(rate.at(299.0), 0.1);
        close(rate.at(300.0), 0.01);
        close(rate.at(599.0), 0.01);
        close(rate.at(600.0), 0.001);
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
            let rate = LearningRate::new(&config, 2048, 120.0, 10.0).unwrap();
            close(rate.at(20.0), peak);
            close(rate.at(70.0), peak * at_middle);
            close(rate.at(120.0), peak * at_end);
            assert_eq!(rate.at(500.0), rate.at(120.0));
        }
    }

    #[test]
    fn exponential_decay_is_continuous_in_the_epoch_fraction() {
        let config = LearningRateConfig {
            decay: DecayConfig::Exponential { factor: 0.25 },
            ..plain(1.0)
        };
        let rate = LearningRate::new(&config, 8, 100.0, 10.0).unwrap();
        close(rate.at(5.0), 0.5);
        close(rate.at(10.0), 0.25);
        close(rate.at(20.0), 0.0625);
    }

    #[test]
    fn exponential_warmup_multiplies_by_one_factor_an_update() {
        let config = LearningRateConfig {
            warmup: Some(WarmupConfig {
                start_lr: Some(0.05),
                ..warmup(WarmupShape::Exponential, 2.0)
            }),
            ..scaling(0.1, Scaling::Linear)
        };
        // 0.05 to 0.8 is 2^4 over 20 updates.
        let rate = LearningRate::new(&config, 2048, 100.0, 10.0).unwrap();
        assert_eq!(rate.at(0.0), 0.05);
        close(rate.at(5.0), 0.1);
        close(rate.at(10.0), 0.2);
        close(rate.at(19.0) * 2f64.powf(0.2), rate.at(20.0));
        assert_eq!(rate.at(20.0), rate.peak());
    }

    #[test]
    fn legw_warms_up_over_as_many_updates_at_every_batch_from_zero() {
        let legw = |epochs, steps, examples| LearningRateConfig {
            warmup: Some(WarmupConfig {
                shape: WarmupShape::Legw,
                epochs,
                steps,
                examples,
                start_lr: None,
            }),
            ..scaling(0.1, Scaling::Sqrt)
        };
        // 5120 examples: 20 updates an epoch at the base batch of 256, 5 at 1024.
        for config in [
            legw(Some(2.0), None, None),
            legw(None, Some(40), None),
            legw(None, None, Some(2 * 5120)),
        ] {
            for (batch, steps_per_epoch) in [(256, 20.0), (1024, 5.0), (128, 40.0)] {
                let rate = LearningRate::new(&config, batch, 200.0, steps_per_epoch).unwrap();
                close(rate.peak(), 0.1 * (batch as f64 / 256.0).sqrt());
                for step in 0..40 {
                    let step = f64::from(step);
                    close(rate.at(step), rate.peak() * step / 40.0);
                }
                assert_eq!(rate.at(40.0), rate.peak());
            }
        }
    }

    #[test]
    fn a_warmup_in_examples_is_as_long_as_its_updates() {
        let of = |epochs, examples| {
            let config = LearningRateConfig {
                warmup: Some(WarmupConfig {
                    epochs,
                    examples,
                    ..warmup(WarmupShape::Gradual, 0.0)
                }),
                ..scaling(0.1, Scaling::Linear)
            };
            LearningRate::new(&config, 1024, 500.0, 46.875).unwrap()
        };
        // 5 epochs of 48,000 examples.
        assert_eq!(of(Some(5.0), None), of(None, Some(240_000)));
    }

    #[test]
    fn on_a_clock_that_is_not_whole_changes_come_where_they_come_in_epochs() {
        let config = LearningRateConfig {
            warmup: Some(WarmupConfig {
                start_lr: Some(0.001),
                ..warmup(WarmupShape::Constant, 1.0)
            }),
            decay: DecayConfig::Step {
                epochs: vec![7.0],
                factor: 0.1,
            },
            ..scaling(0.1, Scaling::Linear)
        };
        // 1437 examples, first in batches of 30; the clock is examples/30.
        let rate = LearningRate::new(&config, 30, 479.0, 47.9).unwrap();
        let at = |examples: f64| rate.at(examples / 30.0);
        let peak = 0.1 * 30.0 / 256.0;
        assert_eq!(at(1436.0), 0.001);
        close(at(1437.0), peak);
        close(at(7.0 * 1437.0 - 1.0), peak);
        close(at(7.0 * 1437.0), peak * 0.1);
    }

    #[test]
    fn inverse_square_root_decay_is_that_of_the_transformer_by_default() {
        let config = LearningRateConfig {
            warmup: Some(WarmupConfig {
                start_lr: Some(0.0),
                ..warmup(WarmupShape::Gradual, 4.0)
            }),
            decay: DecayConfig::InverseSqrt {
                timescale_epochs: None,
            },
            ..plain(0.3)
        };
        let rate = LearningRate::new(&config, 32, 1000.0, 10.0).unwrap();
        assert_eq!(rate.at(40.0), 0.3);
        close(rate.at(160.0), 0.15);
        close(rate.at(4000.0), 0.03);
        let config = LearningRateConfig {
            warmup: None,
            decay: DecayConfig::InverseSqrt {
                timescale_epochs: Some(0.5),
            },
            ..plain(0.3)
        };
        let rate = LearningRate::new(&config, 32, 1000.0, 10.0).unwrap();
        assert_eq!(rate.at(0.0), 0.3);
        close(rate.at(15.0), 0.15);
    }

    #[test]
    fn inverse_square_root_decay_without_a_time_scale_is_refused_by_name() {
        for warmup in [None, Some(warmup(WarmupShape::Gradual, 0.0))] {
            let config = LearningRateConfig {
                warmup,
                decay: DecayConfig::InverseSqrt {
                    timescale_epochs: None,
                },
                ..plain(0.3)
            };
            let error = LearningRate::new(&config, 32, 10.0, 5.0).unwrap_err();
            assert_eq!(error, ScheduleError::MissingTimescale);
            assert!(error.to_string().contains("timescale_epochs"));
        }
    }

    #[test]
    fn stable_decay_leaves_the_peak_where_it_says_and_ends_at_its_share() {
        for (shape, at_a_quarter) in [
            (DecayShape::Linear, 0.75),
            (DecayShape::Cosine, 0.5 * (1.0 + 0.5f64.sqrt())),
            (DecayShape::Sqrt, 0.5),
        ] {
            let config = LearningRateConfig {
                warmup: Some(warmup(WarmupShape::Gradual, 2.0)),
                decay: DecayConfig::WarmupStableDecay {
                    decay_fraction: 0.2,
                    final_fraction: 0.1,
                    shape,
                },
                ..scaling(0.1, Scaling::Linear)
            };
            // 20 updates of warm-up, 80 stable, 20 down.
            let rate = LearningRate::new(&config, 2048, 120.0, 10.0).unwrap();
            assert!((20..=100).all(|step| rate.at(f64::from(step)) == rate.peak()));
            close(rate.at(105.0), rate.peak() * (0.1 + 0.9 * at_a_quarter));
            close(rate.at(120.0), rate.peak() * 0.1);
            assert_eq!(rate.at(500.0), rate.at(120.0));
        }
        let whole = LearningRateConfig {
            decay: DecayConfig::WarmupStableDecay {
                decay_fraction: 1.0,
                final_fraction: 0.1,
                shape: DecayShape::Linear,
            },
            ..plain(0.4)
        };
        let linear = LearningRateConfig {
            decay: DecayConfig::Linear {
                final_fraction: 0.1,
            },
            ..plain(0.4)
        };
        let of = |config| LearningRate::new(config, 8, 30.0, 10.0).unwrap();
        for step in 0..40 {
            let step = f64::from(step);
            close(of(&whole).at(step), of(&linear).at(step));
        }
    }

    #[test]
    fn cycles_are_triangles_that_start_where_the_warmup_ends() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 1.0)),
            decay: cyclic(2.0, 0.2, 0.5),
            ..plain(0.1)
        };
        let rate = LearningRate::new(&config, 8, 100.0, 10.0).unwrap();
        for (step, share) in [
            (10.0, 0.2),
            (15.0, 0.6),
            (20.0, 1.0),
            (25.0, 0.6),
            (30.0, 0.2),
            (40.0, 0.6),
            (50.0, 0.2),
            (60.0, 0.4),
        ] {
            close(rate.at(step), 0.1 * share);
        }
    }

    #[test]
    fn a_stretched_warmup_that_does_not_fit_is_explained_in_the_users_epochs() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Legw, 2.0)),
            ..scaling(0.1, Scaling::Sqrt)
        };
        let error = LearningRate::new(&config, 2048, 40.5, 5.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the warm-up is longer than the run: 80 updates of warm-up (16 epochs), 40.5 updates \
             in all (8.1 epochs) at global batch 2048\n\
             hint: shorten `learning_rate.warmup` to at most 1.0125 epochs (LEGW makes them 8.1), \
             or train for at least 16 epochs"
        );
    }

    #[test]
    fn the_numbers_of_a_scaling_rule_are_checked() {
        for (rule, key) in [
            (
                Scaling::Power { exponent: f64::NAN },
                "`learning_rate.scaling.power.exponent`",
            ),
            (
                Scaling::Saturating { noise_scale: 0.0 },
                "`learning_rate.scaling.saturating.noise_scale`",
            ),
            (
                Scaling::Saturating {
                    noise_scale: f64::INFINITY,
                },
                "`learning_rate.scaling.saturating.noise_scale`",
            ),
        ] {
            let error = LearningRate::new(&scaling(0.1, rule), 8, 10.0, 5.0).unwrap_err();
            assert!(error.to_string().starts_with(key), "{error}");
        }
    }

    #[test]
    fn warmups_that_need_a_rate_above_zero_refuse_zero() {
        for shape in [WarmupShape::Constant, WarmupShape::Exponential] {
            let config = LearningRateConfig {
                warmup: Some(WarmupConfig {
                    start_lr: Some(0.0),
                    ..warmup(shape, 1.0)
                }),
                ..plain(0.1)
            };
            let error = LearningRate::new(&config, 8, 10.0, 5.0).unwrap_err();
            assert_eq!(
                error.to_string(),
                "`learning_rate.warmup.start_lr` must be positive and finite, found 0"
            );
        }
    }

    #[test]
    fn a_warmup_longer_than_the_run_is_refused_with_the_fix() {
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Gradual, 5.0)),
            ..scaling(0.1, Scaling::Linear)
        };
        let error = LearningRate::new(&config, 8192, 20.0, 7.5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the warm-up is longer than the run: 37.5 updates of warm-up (5 epochs), 20 updates \
             in all (2.66667 epochs) at global batch 8192\n\
             hint: shorten `learning_rate.warmup` to at most 2.66667 epochs, or train for at \
             least 5 epochs"
        );
        // As long as the run is not longer than the run.
        assert!(LearningRate::new(&config, 8192, 38.0, 7.5).is_ok());
    }

    #[test]
    fn rates_that_are_not_positive_are_refused_by_name() {
        for base_lr in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            let error = LearningRate::new(&plain(base_lr), 8, 10.0, 5.0).unwrap_err();
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
            DecayConfig::InverseSqrt {
                timescale_epochs: Some(0.0),
            },
            DecayConfig::InverseSqrt {
                timescale_epochs: None,
            },
            stable_decay(0.0, 0.0),
            stable_decay(1.1, 0.0),
            stable_decay(0.2, -0.1),
            cyclic(0.0, 0.1, 1.0),
            cyclic(2.0, 1.1, 1.0),
            cyclic(2.0, 0.1, 0.0),
            cyclic(2.0, 0.1, 1.5),
        ];
        for decay in bad_decays {
            let config = LearningRateConfig {
                decay,
                ..plain(0.1)
            };
            let error = LearningRate::new(&config, 8, 10.0, 5.0).unwrap_err();
            assert!(error.to_string().contains("learning_rate.decay."));
        }
    }

    #[test]
    fn a_rule_that_follows_the_batch_needs_a_base_batch() {
        for (rule, name) in [
            (Scaling::Sqrt, "sqrt"),
            (Scaling::Linear, "linear"),
            (Scaling::Power { exponent: 0.7 }, "power"),
            (Scaling::Saturating { noise_scale: 50.0 }, "saturating"),
            (Scaling::Adascale {}, "adascale"),
        ] {
            let config = LearningRateConfig {
                scaling: rule,
                ..plain(0.1)
            };
            let error = LearningRate::new(&config, 8, 10.0, 5.0).unwrap_err();
            let key = "learning_rate.scaling";
            assert_eq!(error, ScheduleError::MissingBaseBatch { key, rule: name });
        }
        let config = LearningRateConfig {
            warmup: Some(warmup(WarmupShape::Legw, 1.0)),
            ..plain(0.1)
        };
        let error = LearningRate::new(&config, 8, 10.0, 5.0).unwrap_err();
        assert_eq!(
            error.to_string().lines().next(),
            Some("`learning_rate.warmup.shape` = \"legw\" needs `learning_rate.base_batch`")
        );
    }

    #[test]
    fn a_warmup_needs_one_length() {
        for (epochs, steps, examples, found) in [
            (Some(1.0), Some(3), None, "`epochs` and `steps`"),
            (None, Some(3), Some(64), "`steps` and `examples`"),
            (
                Some(1.0),
                Some(3),
                Some(64),
                "`epochs` and `steps` and `examples`",
            ),
            (None, None, None, "none"),
        ] {
            let config = LearningRateConfig {
                warmup: Some(WarmupConfig {
                    shape: WarmupShape::Gradual,
                    epochs,
                    steps,
                    examples,
                    start_lr: None,
                }),
                ..plain(0.1)
            };
            let error = LearningRate::new(&config, 8, 10.0, 5.0).unwrap_err();
            let found = found.to_owned();
            assert_eq!(error, ScheduleError::WarmupLength { found });
        }
    }

    /// `tests/reference/schedules.py` ran the schedules of PyTorch and optax, and the formulas of
    /// papers where they have none.
    #[test]
    fn where_a_peer_has_the_schedule_the_rates_are_equal() {
        let reference: Value =
            serde_json::from_str(include_str!("../../tests/reference/schedules.json")).unwrap();
        let cases = reference["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 20);
        for case in cases {
            let config: LearningRateConfig =
                serde_json::from_value(case["learning_rate"].clone()).unwrap();
            let rates = case["rates"].as_array().unwrap();
            let rate = LearningRate::new(
                &config,
                case["global_batch"].as_u64().unwrap() as usize,
                case["total"].as_f64().unwrap(),
                case["steps_per_epoch"].as_f64().unwrap(),
            )
            .unwrap();
            assert!(rates.len() > 20);
            for (step, expected) in rates.iter().enumerate() {
                let (found, expected) = (rate.at(step as f64), expected.as_f64().unwrap());
                assert!(
                    (found - expected).abs() <= 1e-10 * rate.peak(),
                    "{}, step {step}: {found} instead of {expected}",
                    case["name"]
                );
            }
        }
    }
}
