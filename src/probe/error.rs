//! What keeps a probe from an answer.

use super::adversarial::AdversarialError;
use super::sharpness::SharpnessError;
use super::surface::SurfaceError;
use crate::math::noise::NoiseError;
use crate::objective::ObjectiveError;

/// Why a probe has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The model failed, or does not offer what the probe needs.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// The noise of the gradient cannot be estimated.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// The gradients of single examples do not tell.
    #[error(transparent)]
    Examples(#[from] super::noise::ExampleNoiseError),
    /// A measure of sharpness cannot be taken.
    #[error(transparent)]
    Sharpness(Box<SharpnessError<ProbeError>>),
    /// Examples cannot be attacked.
    #[error(transparent)]
    Adversarial(Box<AdversarialError<ProbeError>>),
    /// There is no surface.
    #[error(transparent)]
    Surface(Box<SurfaceError<ProbeError>>),
    /// The trace can only be estimated.
    #[error(
        "the trace has no exact form here: {reason}\n\
         hint: let it be estimated, with trace = \"krylov\" (--trace krylov) or \"auto\""
    )]
    NoExactTrace {
        /// What stands in the way.
        reason: &'static str,
    },
    /// There is nothing to take a mean over.
    #[error("a probe needs training examples, found none")]
    NoExamples,
    /// There are no two parts to compare.
    #[error(
        "probes.noise.hessian_pieces: the {examples} examples make one group of batch statistics, and \
         the noise needs at least 2\n\
         hint: raise probes.examples, or use probes.statistics = \"frozen\""
    )]
    OneGroup {
        /// Examples of the probe.
        examples: usize,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<SharpnessError<ProbeError>> for ProbeError {
    fn from(error: SharpnessError<ProbeError>) -> Self {
        match error {
            SharpnessError::Landscape(error) => error,
            error => Self::Sharpness(Box::new(error)),
        }
    }
}

impl From<AdversarialError<ProbeError>> for ProbeError {
    fn from(error: AdversarialError<ProbeError>) -> Self {
        match error {
            AdversarialError::Network(error) => error,
            error => Self::Adversarial(Box::new(error)),
        }
    }
}

impl From<SurfaceError<ProbeError>> for ProbeError {
    fn from(error: SurfaceError<ProbeError>) -> Self {
        match error {
            SurfaceError::Evaluation(error) => error,
            error => Self::Surface(Box::new(error)),
        }
    }
}
