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

/// g <- g + d p; v <- carry v + lr g; p <- p - v
pub(super) fn momentum_inside<F: Scalar, const DECAY: bool>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    velocity: &mut [F],
    rate: F,
    carry: F,
    decay: F,
) {
    for ((p, v), g) in parameters.iter_mut().zip(velocity).zip(gradient) {
        let g = if DECAY { g + decay * *p } else { g };
        let next = carry * *v + rate * g;
        *v = next;
        *p = *p - next;
    }
}

/// g <- g + d p; v <- carry v + lr g; p <- p - (lr g + m v)
pub(super) fn nesterov_inside<F: Scalar, const DECAY: bool>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    velocity: &mut [F],
    rate: F,
    [carry, momentum]: [F; 2],
    decay: F,
) {
    for ((p, v), g) in parameters.iter_mut().zip(velocity).zip(gradient) {
        let g = if DECAY { g + decay * *p } else { g };
        let step = rate * g;
        let next = carry * *v + step;
        *v = next;
        *p = *p - (step + momentum * next);
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

/// Coefficients of one LAMB update, but for the rate.
pub(super) struct Lamb<F> {
    /// 1/(1 - beta1^t)
    pub(super) inverse_correction1: F,
    /// 1 - beta1
    pub(super) rest1: F,
    /// beta2
    pub(super) beta2: F,
    /// 1 - beta2
    pub(super) rest2: F,
    /// (1 - beta2^t)^(-1/2)
    pub(super) inverse_root_correction2: F,
    /// epsilon
    pub(super) epsilon: F,
    /// d
    pub(super) decay: F,
}

impl<F: Scalar> Lamb<F> {
    /// The new moments and the update u of one element.
    fn advance(&self, p: F, m: F, v: F, g: F) -> (F, F, F) {
        let mean = m + self.rest1 * (g - m);
        let square = self.beta2 * v + self.rest2 * g * g;
        let denominator = square.sqrt() * self.inverse_root_correction2 + self.epsilon;
        let update = mean * self.inverse_correction1 / denominator + self.decay * p;
        (mean, square, update)
    }
}

/// m <- m + (1 - b1)(g - m); v <- b2 v + (1 - b2) g^2;
/// u = m/(1 - b1^t) / (v^(1/2)/(1 - b2^t)^(1/2) + e) + d p; p <- p - lr ratio u
pub(super) fn lamb<F: Scalar>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    first: &mut [F],
    second: &mut [F],
    rate: F,
    with: &Lamb<F>,
) {
    for (((p, m), v), g) in parameters.iter_mut().zip(first).zip(second).zip(gradient) {
        let (mean, square, update) = with.advance(*p, *m, *v, g);
        *m = mean;
        *v = square;
        *p = *p - rate * update;
    }
}

/// Replaces g by the u of [`lamb`], and changes nothing else.
pub(super) fn lamb_direction<F: Scalar>(
    gradient: &mut [F],
    parameters: &[F],
    first: &[F],
    second: &[F],
    with: &Lamb<F>,
) {
    for (((g, &p), &m), &v) in gradient.iter_mut().zip(parameters).zip(first).zip(second) {
        *g = with.advance(p, m, v, *g).2;
    }
}

/// Coefficients of one Lion update.
pub(super) struct Lion<F> {
    /// lr
    pub(super) rate: F,
    /// 1 - lr d
    pub(super) keep: F,
    /// beta1
    pub(super) beta1: F,
    /// 1 - beta1
    pub(super) rest1: F,
    /// beta2
    pub(super) beta2: F,
    /// 1 - beta2
    pub(super) rest2: F,
}

/// c = b1 m + (1 - b1) g; p <- (1 - lr d) p - lr sign(c); m <- b2 m + (1 - b2) g
pub(super) fn lion<F: Scalar>(
    parameters: &mut [F],
    gradient: impl Iterator<Item = F>,
    first: &mut [F],
    with: &Lion<F>,
) {
    for ((p, m), g) in parameters.iter_mut().zip(first).zip(gradient) {
        let c = with.beta1 * *m + with.rest1 * g;
        *m = with.beta2 * *m + with.rest2 * g;
        // What is neither above nor below 0 is its own sign: 0, and NaN, which must not vanish.
        let sign = if c > F::ZERO {
            F::ONE
        } else if c < F::ZERO {
            -F::ONE
        } else {
            c
        };
        *p = with.keep * *p - with.rate * sign;
    }
}

/// g <- g + d p
pub(super) fn add_decay<F: Scalar>(gradient: &mut [F], parameters: &[F], decay: F) {
    for (g, &p) in gradient.iter_mut().zip(parameters) {
        *g += decay * p;
    }
}
