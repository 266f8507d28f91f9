//! The inner loops: one pass over a segment, coefficients in registers, no branch an element.
//!
//! All slices have the length of the segment. The loops are zips, which compile without bounds
//! checks and to vector instructions; `DECAY` is a constant so that a segment without weight decay
//! neither computes nor rounds a term d p.

use crate::objective::Scalar;

/// g <- g + d p; p <- p - lr g
pub(super) fn sgd<F: Scalar, const DECAY: bool>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    rate: F,
    decay: F,
) {
    for (p, g) in parameters.iter_mut().zip(gradient) {
        let g = if DECAY { g + decay * *p } else { g };
        *p = *p - rate * g;
    }
}

/// g <- g + d p; v <- m v + g; p <- p - lr v
pub(super) fn momentum<F: Scalar, const DECAY: bool>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    velocity: &mut [F],
    rate: F,
    momentum: F,
    decay: F,
) {
    for ((p, v), g) in parameters.iter_mut().zip(velocity).zip(gradient) {
        let g = if DECAY { g + decay * *p } else { g };
        let next = momentum * *v + g;
        *v = next;
        *p = *p - rate * next;
    }
}

/// g <- g + d p; v <- m v + g; p <- p - lr (g + m v)
pub(super) fn nesterov<F: Scalar, const DECAY: bool>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    velocity: &mut [F],
    rate: F,
    momentum: F,
    decay: F,
) {
    for ((p, v), g) in parameters.iter_mut().zip(velocity).zip(gradient) {
        let g = if DECAY { g + decay * *p } else { g };
        let next = momentum * *v + g;
        *v = next;
        *p = *p - rate * (g + momentum * next);
    }
}

/// Coefficients of one AdamW update.
pub(super) struct Adamw<F> {
    /// 1 - lr d
    pub(super) keep: F,
    /// lr / (1 - beta1^t)
    pub(super) rate: F,
    /// 1 - beta1
    pub(super) rest1: F,
    /// beta2
    pub(super) beta2: F,
    /// 1 - beta2
    pub(super) rest2: F,
    /// (1 - beta2^t)^(1/2)
    pub(super) root_correction2: F,
    /// epsilon
    pub(super) epsilon: F,
}

/// p <- (1 - lr d) p; m <- m + (1 - b1)(g - m); v <- b2 v + (1 - b2) g^2;
/// p <- p - lr/(1 - b1^t) m / (v^(1/2)/(1 - b2^t)^(1/2) + e)
pub(super) fn adamw<F: Scalar>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    first: &mut [F],
    second: &mut [F],
    with: &Adamw<F>,
) {
    for (((p, m), v), g) in parameters.iter_mut().zip(first).zip(second).zip(gradient) {
        let mean = *m + with.rest1 * (g - *m);
        let square = with.beta2 * *v + with.rest2 * g * g;
        *m = mean;
        *v = square;
        let denominator = square.sqrt() / with.root_correction2 + with.epsilon;
        *p = with.keep * *p - with.rate * mean / denominator;
    }
}
