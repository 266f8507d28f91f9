//! A loss over its parameters, as a probe sees it.

use crate::math::operator::dot;

/// The step of central differences at the parameters `at` along a direction of length 1: the cube root
/// of the rounding of a double, 6.06e-6, times max(1, root mean square of `at`).
pub(super) fn difference_step(at: &[f64]) -> f64 {
    let mean_square = dot(at, at) / at.len().max(1) as f64;
    f64::EPSILON.cbrt() * mean_square.sqrt().max(1.0)
}

/// A loss and its gradient as functions of the parameters: a mean over fixed examples in double
/// precision, so that it answers the same for the same parameters.
pub trait Landscape {
    /// Why it could not be evaluated.
    type Error;

    /// Number of parameters.
    fn dimension(&self) -> usize;

    /// The loss.
    ///
    /// # Errors
    /// If the model fails.
    fn loss(&mut self, at: &[f64]) -> Result<f64, Self::Error>;

    /// The loss; overwrites `gradient` with its gradient.
    ///
    /// # Errors
    /// If the model fails.
    fn gradient(&mut self, at: &[f64], gradient: &mut [f64]) -> Result<f64, Self::Error>;
}
