//! The momentum of every update of a run.

use super::error::ScheduleError;
use super::time::{check, positive, reached, updates};
use crate::config::MomentumSchedule;

/// The momentum as a pure function of time, m the optimizer's own:
///
/// | schedule | momentum |
/// |---|---|
/// | `constant` | m |
/// | `step` | m before the first of `epochs`, then the value of the last one reached |
/// | `linear` | start + (m - start) c/L for c < L, L = `epochs` on the clock; then m |
/// | `sutskever` | min(1 - 2^(-1 - log2(floor(t/250) + 1)), m): 1/2, 3/4, 5/6, 7/8, ... for 250 updates each, up to m (Sutskever et al. 2013, section 3) |
///
/// t is the number of updates already made, c the clock of
/// [`LearningRate`](super::LearningRate): t where the batch is constant.
///
/// ```
/// # use batchlab::config::MomentumSchedule;
/// # use batchlab::schedule::Momentum;
/// let momentum = Momentum::new(&MomentumSchedule::Sutskever {}, 0.8, 20.0)?;
/// assert_eq!(momentum.at(0, 0.0), 0.5);
/// assert_eq!(momentum.at(250, 250.0), 0.75);
/// assert_eq!(momentum.at(500, 500.0), 0.8);
/// # Ok::<(), batchlab::schedule::ScheduleError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Momentum {
    own: f64,
    change: Change,
}

/// A validated change, with all lengths on the clock.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    Constant,
    /// From when, ascending, and to what.
    Step(Vec<(f64, f64)>),
    Linear {
        start: f64,
        length: f64,
    },
    Sutskever,
}

impl Momentum {
    /// The schedule of an optimizer of momentum `m`, where an epoch has `steps_per_epoch` updates
    /// at the starting batch (not necessarily a whole number).
    ///
    /// # Errors
    /// A momentum outside [0, 1), a length or an epoch outside its range, epochs that do not rise,
    /// another number of values than of epochs.
    pub fn new(
        schedule: &MomentumSchedule,
        m: f64,
        steps_per_epoch: f64,
    ) -> Result<Self, ScheduleError> {
        momentum("the optimizer's momentum", m)?;
        positive("updates per epoch", steps_per_epoch)?;
        let change = match schedule {
            MomentumSchedule::Constant {} => Change::Constant,
            MomentumSchedule::Step { epochs, values } => {
                Change::Step(steps(epochs, values, steps_per_epoch)?)
            }
            MomentumSchedule::Linear { start, epochs } => {
                momentum("momentum_schedule.linear.start", *start)?;
                positive("momentum_schedule.linear.epochs", *epochs)?;
                Change::Linear {
                    start: *start,
                    length: updates(*epochs, steps_per_epoch),
                }
            }
            MomentumSchedule::Sutskever {} => Change::Sutskever,
        };
        Ok(Self { own: m, change })
    }

    /// The momentum, in [0, 1), of the update that follows `step` updates (0 for the first) and
    /// comes at `clock`.
    pub fn at(&self, step: u64, clock: f64) -> f64 {
        match &self.change {
            Change::Constant => self.own,
            Change::Step(changes) => {
                let made = changes.partition_point(|&(time, _)| reached(clock, time));
                made.checked_sub(1).map_or(self.own, |last| changes[last].1)
            }
            Change::Linear { start, length } => {
                if reached(clock, *length) {
                    self.own
                } else {
                    start + (self.own - start) * (clock / length)
                }
            }
            Change::Sutskever => (1.0 - 0.5 / ((step / 250) as f64 + 1.0)).min(self.own),
        }
    }
}

fn steps(
    epochs: &[f64],
    values: &[f64],
    steps_per_epoch: f64,
) -> Result<Vec<(f64, f64)>, ScheduleError> {
    if epochs.len() != values.len() {
        return Err(ScheduleError::MomentumValues {
            epochs: epochs.len(),
            values: values.len(),
        });
    }
    let key = "momentum_schedule.step.epochs";
    let mut before = None;
    let mut changes = Vec::with_capacity(epochs.len());
    for (&epoch, &value) in epochs.iter().zip(values) {
        positive(key, epoch)?;
        if let Some(before) = before.filter(|&before| epoch <= before) {
            return Err(ScheduleError::NotRising {
                key,
                before,
                after: epoch,
            });
        }
        before = Some(epoch);
        momentum("momentum_schedule.step.values", value)?;
        changes.push((updates(epoch, steps_per_epoch), value));
    }
    Ok(changes)
}

fn momentum(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    check(key, "in [0, 1)", value, (0.0..1.0).contains(&value))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn constant_is_the_optimizers_own_momentum() {
        let momentum = Momentum::new(&MomentumSchedule::Constant {}, 0.9, 46.875).unwrap();
        assert!((0..1000).all(|step| momentum.at(step, step as f64) == 0.9));
    }

    #[test]
    fn steps_and_lines_follow_the_clock_and_sutskever_the_updates() {
        let step = MomentumSchedule::Step {
            epochs: vec![2.0, 4.0],
            values: vec![0.95, 0.98],
        };
        let linear = MomentumSchedule::Linear {
            start: 0.5,
            epochs: 4.0,
        };
        let of = |schedule: &MomentumSchedule| Momentum::new(schedule, 0.9, 10.0).unwrap();
        // The batch has grown: 7 updates have seen the examples of 25.5 at the starting batch.
        assert_eq!(of(&step).at(7, 25.5), 0.95);
        assert!((of(&linear).at(7, 25.5) - (0.5 + 0.4 * 25.5 / 40.0)).abs() < 1e-15);
        assert_eq!(of(&MomentumSchedule::Sutskever {}).at(249, 1e6), 0.5);
        assert_eq!(of(&MomentumSchedule::Sutskever {}).at(250, 10.0), 0.75);
    }

    #[test]
    fn steps_come_at_their_epoch() {
        let schedule = MomentumSchedule::Step {
            epochs: vec![0.7, 2.0],
            values: vec![0.5, 0.0],
        };
        let momentum = Momentum::new(&schedule, 0.9, 30.0).unwrap();
        let at = |step: u64| momentum.at(step, step as f64);
        // In floating point, 0.7 * 30 is not 21.
        assert_eq!(
            [at(0), at(20), at(21), at(59), at(60)],
            [0.9, 0.9, 0.5, 0.5, 0.0]
        );
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let step = |epochs: &[f64], values: &[f64]| MomentumSchedule::Step {
            epochs: epochs.to_vec(),
            values: values.to_vec(),
        };
        let linear = |start, epochs| MomentumSchedule::Linear { start, epochs };
        for (schedule, m, told) in [
            (
                MomentumSchedule::Constant {},
                1.0,
                "`the optimizer's momentum` must be in [0, 1), found 1",
            ),
            (
                step(&[1.0], &[0.9, 0.95]),
                0.9,
                "`momentum_schedule.step` needs as many `values` as `epochs`, found 2 values and 1 \
                 epochs",
            ),
            (
                step(&[60.0, 30.0], &[0.9, 0.95]),
                0.9,
                "`momentum_schedule.step.epochs` must rise, found 30 after 60",
            ),
            (
                step(&[30.0, 30.0], &[0.9, 0.95]),
                0.9,
                "`momentum_schedule.step.epochs` must rise, found 30 after 30",
            ),
            (
                step(&[f64::NAN], &[0.9]),
                0.9,
                "`momentum_schedule.step.epochs` must be positive and finite, found NaN",
            ),
            (
                step(&[1.0], &[-0.1]),
                0.9,
                "`momentum_schedule.step.values` must be in [0, 1), found -0.1",
            ),
            (
                linear(1.0, 5.0),
                0.9,
                "`momentum_schedule.linear.start` must be in [0, 1), found 1",
            ),
            (
                linear(0.5, 0.0),
                0.9,
                "`momentum_schedule.linear.epochs` must be positive and finite, found 0",
            ),
        ] {
            let error = Momentum::new(&schedule, m, 10.0).unwrap_err().to_string();
            assert_eq!(error.lines().next(), Some(told));
        }
    }

    /// `tests/reference/schedules.py` ran optax's schedules and the formula of the paper.
    #[test]
    fn where_optax_or_the_paper_has_the_schedule_the_momenta_are_equal() {
        let reference: Value =
            serde_json::from_str(include_str!("../../tests/reference/schedules.json")).unwrap();
        let cases = reference["momentum_cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4);
        for case in cases {
            let schedule: MomentumSchedule =
                serde_json::from_value(case["momentum_schedule"].clone()).unwrap();
            let momentum = Momentum::new(
                &schedule,
                case["momentum"].as_f64().unwrap(),
                case["steps_per_epoch"].as_f64().unwrap(),
            )
            .unwrap();
            let values = case["values"].as_array().unwrap();
            assert!(values.len() > 20);
            for (step, expected) in values.iter().enumerate() {
                let step = step as u64 * case["every"].as_u64().unwrap();
                let (found, expected) =
                    (momentum.at(step, step as f64), expected.as_f64().unwrap());
                assert!(
                    (found - expected).abs() <= 1e-12,
                    "{}, update {step}: {found} instead of {expected}",
                    case["name"]
                );
            }
        }
    }
}
