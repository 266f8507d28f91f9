//! Averages of the parameters over a run.
//!
//! The state is one vector as long as the parameters and a count, so that a checkpoint holds all
//! of it. Nothing here decides what is evaluated at the average.

use super::error::{OptimError, not_negative, positive, share};
use crate::config::Averaging;
use crate::objective::Scalar;

/// Slack of an epoch count, in units of `every_epochs`: epochs are quotients of whole numbers, and
/// rounding must not move a point to the next update.
const SLACK: f64 = 1e-9;

/// An average of the parameters over the updates of a run.
///
/// | kind  | after each update                                                                |
/// |-------|----------------------------------------------------------------------------------|
/// | `ema` | a <- a + (1 - decay)(p - a), from the initial parameters (Polyak and Juditsky     |
/// |       | 1992 with exponential weights; `torch.optim.swa_utils.get_ema_multi_avg_fn`)      |
/// | `swa` | at each point: n <- n + 1; a <- a + (p - a)/n (Izmailov et al. 2018, algorithm 1; |
/// |       | `torch.optim.swa_utils.get_swa_multi_avg_fn`); before the first point: a <- p     |
///
/// The points of `swa` are the epochs start_epoch + k every_epochs, k = 0, 1, ...; each takes the
/// parameters of the first update that reaches it (the initial ones at epoch 0), and an update that
/// reaches several counts once.
///
/// ```
/// # use batchlab::config::Averaging;
/// # use batchlab::optim::Average;
/// let every_epoch_from_2 = Averaging::Swa { start_epoch: 2.0, every_epochs: 1.0 };
/// let average = Average::new(&every_epoch_from_2)?.unwrap();
/// let (mut mean, mut count) = average.initial(&[0.0]);
/// for epoch in 1..=4 {
///     let parameters = [f64::from(epoch)];
///     average.update(&mut mean, &mut count, &parameters, f64::from(epoch - 1), f64::from(epoch));
/// }
/// // The mean of 2, 3 and 4.
/// assert_eq!((mean, count), (vec![3.0], 3));
/// # Ok::<(), batchlab::optim::OptimError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Ema { decay: f64 },
    Swa { start: f64, every: f64 },
}

impl Average {
    /// The average of `config`; `None` if it asks for none.
    ///
    /// # Errors
    /// A coefficient outside its range.
    pub fn new(config: &Averaging) -> Result<Option<Self>, OptimError> {
        let kind = match *config {
            Averaging::None => return Ok(None),
            Averaging::Ema { decay } => {
                share("train.averaging.ema.decay", decay)?;
                Kind::Ema { decay }
            }
            Averaging::Swa {
                start_epoch,
                every_epochs,
            } => {
                not_negative("train.averaging.swa.start_epoch", start_epoch)?;
                positive("train.averaging.swa.every_epochs", every_epochs)?;
                Kind::Swa {
                    start: start_epoch,
                    every: every_epochs,
                }
            }
        };
        Ok(Some(Self { kind }))
    }

    /// The average before the first update, the parameters themselves, and how many parameters
    /// count in it.
    pub fn initial<F: Scalar>(&self, parameters: &[F]) -> (Vec<F>, u64) {
        let count = match self.kind {
            Kind::Ema { .. } => 1,
            Kind::Swa { start, every } => u64::from(points(0.0, start, every) > 0.0),
        };
        (parameters.to_vec(), count)
    }

    /// Takes in the parameters after an update that led from `epoch_before` to `epoch_after`.
    ///
    /// `average` and `count` are those of [`Average::initial`] and of the calls since. `count` is
    /// how many parameters count in `average`: all up to now (`ema`), or those at the points up to
    /// now (`swa`).
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn update<F: Scalar>(
        &self,
        average: &mut [F],
        count: &mut u64,
        parameters: &[F],
        epoch_before: f64,
        epoch_after: f64,
    ) {
        assert_eq!(
            average.len(),
            parameters.len(),
            "parameters of another model"
        );
        let weight = match self.kind {
            Kind::Ema { decay } => 1.0 - decay,
            Kind::Swa { start, every } => {
                let reached = points(epoch_after, start, every);
                match (reached > points(epoch_before, start, every), *count) {
                    (false, 0) => {
                        average.copy_from_slice(parameters);
                        return;
                    }
                    (false, _) => return,
                    (true, before) => 1.0 / (before + 1) as f64,
                }
            }
        };
        *count += 1;
        if weight == 1.0 {
            // a + (p - a) is not always p.
            average.copy_from_slice(parameters);
            return;
        }
        let weight = F::from_f64(weight);
        for (a, &p) in average.iter_mut().zip(parameters) {
            *a = *a + weight * (p - *a);
        }
    }
}

/// How many of the epochs start + k every, k = 0, 1, ..., have been reached at `epoch`.
fn points(epoch: f64, start: f64, every: f64) -> f64 {
    ((epoch - start) / every + SLACK + 1.0).floor().max(0.0)
}
