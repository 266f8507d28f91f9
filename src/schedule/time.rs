//! The clock of the schedules, and checks that they share.
//!
//! A clock counts updates at the starting batch, from 0. It is whole where the batch is constant.

use super::error::ScheduleError;

/// Two times within this share of each other are one: both come out of products and quotients of
/// sizes, and a rounding must not move a change by a whole update.
const SAME: f64 = 1e-9;

/// A number of epochs on the clock. 0.1 epochs of 30 updates are 3 updates, not
/// 3.0000000000000004, which would add a fourth.
pub(super) fn updates(epochs: f64, steps_per_epoch: f64) -> f64 {
    snapped(epochs * steps_per_epoch)
}

/// The time itself, or the whole number that it is within rounding of.
pub(super) fn snapped(time: f64) -> f64 {
    let whole = time.round();
    if (time - whole).abs() <= SAME * whole.max(1e-3) {
        whole
    } else {
        time
    }
}

/// Whether the clock has come to `time`, within rounding. On a whole clock and a snapped time this
/// is `clock >= time`.
pub(super) fn reached(clock: f64, time: f64) -> bool {
    time - clock <= SAME * clock.max(1e-3)
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

pub(super) fn positive(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    let holds = value.is_finite() && value > 0.0;
    check(key, "positive and finite", value, holds)
}

pub(super) fn not_negative(key: &'static str, value: f64) -> Result<(), ScheduleError> {
    let holds = value.is_finite() && value >= 0.0;
    check(key, "finite and not negative", value, holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_whole_clock_a_time_is_reached_as_numbers_compare() {
        for time in [0.0, 3.0, 3.000_001, 234.375, 299.999_999, 1e7 + 0.5].map(snapped) {
            for clock in [
                0.0,
                2.0,
                3.0,
                4.0,
                234.0,
                235.0,
                299.0,
                300.0,
                1e7,
                1e7 + 1.0,
            ] {
                assert_eq!(reached(clock, time), clock >= time, "{clock}, {time}");
            }
        }
    }

    #[test]
    fn a_time_is_reached_within_the_rounding_of_its_unit() {
        // 7 epochs of 1437 examples in batches of 30, once as epochs and once as examples.
        for epochs in 1..1000u32 {
            let epochs = f64::from(epochs);
            assert!(reached(
                epochs * 1437.0 / 30.0,
                updates(epochs, 1437.0 / 30.0)
            ));
            let before = (epochs * 1437.0 - 1.0) / 30.0;
            assert!(!reached(before, updates(epochs, 1437.0 / 30.0)));
        }
    }
}
