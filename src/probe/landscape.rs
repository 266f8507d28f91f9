//! A loss over its parameters, as a probe sees it.

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
