//! Steps and examples to a target against the batch.
//!
//! S(B) = S_min (1 + B_crit/B) updates and E(B) = B S(B) = E_min (1 + B/B_crit) examples, where S_min
//! is the least number of updates, E_min the least number of examples, and B_crit = E_min/S_min the
//! critical batch size, in examples. McCandlish et al. 2018 (arXiv 1812.06162), section 2.3. Fits to
//! measured steps are in [`steps_fit`](crate::math::steps_fit).

/// S(B) = S_min (1 + B_crit/B), in updates.
///
/// ```
/// # use batchlab::theory::steps::steps;
/// assert_eq!(steps(100.0, 400.0, 400.0), 200.0);
/// assert_eq!(steps(100.0, 400.0, 100.0), 500.0);
/// ```
pub fn steps(s_min: f64, b_crit: f64, batch: f64) -> f64 {
    s_min * (1.0 + b_crit / batch)
}

/// E(B) = E_min (1 + B/B_crit), in examples.
///
/// ```
/// # use batchlab::theory::steps::examples;
/// assert_eq!(examples(40_000.0, 400.0, 400.0), 80_000.0);
/// ```
pub fn examples(e_min: f64, b_crit: f64, batch: f64) -> f64 {
    e_min * (1.0 + batch / b_crit)
}

/// Examples that a run of this many updates takes on the Pareto front
/// (S/S_min - 1)(E/E_min - 1) = 1: E = E_min (1 + 1/(S/S_min - 1)). Infinite at S = S_min; below, the
/// target is out of reach and the value, negative or below E_min, means nothing.
///
/// ```
/// # use batchlab::theory::steps::examples_of_steps;
/// assert_eq!(examples_of_steps(100.0, 40_000.0, 200.0), 80_000.0);
/// assert_eq!(examples_of_steps(100.0, 40_000.0, 125.0), 200_000.0);
/// ```
pub fn examples_of_steps(s_min: f64, e_min: f64, steps: f64) -> f64 {
    e_min * (1.0 + 1.0 / (steps / s_min - 1.0))
}

/// The largest batch that takes at most this share more examples than the least, overhead B_crit:
/// E(B)/E_min = 1 + B/B_crit. At 0.2 it is the critical batch size of Zhang et al. 2024 (arXiv
/// 2410.21676), up to 20 % more than perfect scaling.
///
/// ```
/// # use batchlab::theory::steps::efficient_batch;
/// assert_eq!(efficient_batch(400.0, 0.25), 100.0);
/// ```
pub fn efficient_batch(b_crit: f64, overhead: f64) -> f64 {
    overhead * b_crit
}

/// The batch from which on at most this share more updates than the least are taken,
/// B_crit/overhead: S(B)/S_min = 1 + B_crit/B. At 0.2 it is 5 B_crit.
///
/// ```
/// # use batchlab::theory::steps::saturated_batch;
/// assert_eq!(saturated_batch(400.0, 0.25), 1600.0);
/// ```
pub fn saturated_batch(b_crit: f64, overhead: f64) -> f64 {
    b_crit / overhead
}

/// Critical batch size and noise scale published for a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedBatches {
    /// B_crit, from a sweep, in examples.
    pub b_crit: f64,
    /// B_simple, averaged over training, in examples.
    pub b_simple: f64,
    /// Where.
    pub source: &'static str,
}

/// What is published for a source of data (`mnist`, `cifar10`, `svhn`); `None` for others.
///
/// The values hold for the models and targets of that paper: another model on the same data has
/// another critical batch size, though one of this size.
///
/// ```
/// # use batchlab::theory::steps::published;
/// assert_eq!(published("mnist").unwrap().b_crit, 200.0);
/// assert_eq!(published("digits"), None);
/// ```
pub fn published(source: &str) -> Option<PublishedBatches> {
    let (b_crit, b_simple) = match source {
        "mnist" => (200.0, 900.0),
        "cifar10" => (900.0, 2000.0),
        "svhn" => (500.0, 4000.0),
        _ => return None,
    };
    Some(PublishedBatches {
        b_crit,
        b_simple,
        source: "McCandlish et al. 2018, table 1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_examples_lie_on_the_pareto_front() {
        let (s_min, b_crit) = (1265.0, 2241.0);
        let e_min = s_min * b_crit;
        for batch in [1.0, 64.0, 2241.0, 16_384.0, 1e6] {
            let (s, e) = (steps(s_min, b_crit, batch), examples(e_min, b_crit, batch));
            assert!((e / (batch * s) - 1.0).abs() < 1e-14);
            assert!(((s / s_min - 1.0) * (e / e_min - 1.0) - 1.0).abs() < 1e-9);
            assert!((examples_of_steps(s_min, e_min, s) / e - 1.0).abs() < 1e-9);
        }
        assert_eq!(examples_of_steps(s_min, e_min, s_min), f64::INFINITY);
    }

    #[test]
    fn at_the_ends_of_the_regimes_the_overhead_is_the_one_asked_for() {
        let (s_min, b_crit) = (100.0, 400.0);
        let e = examples(s_min * b_crit, b_crit, efficient_batch(b_crit, 0.2));
        assert!((e / (s_min * b_crit) - 1.2).abs() < 1e-14);
        let s = steps(s_min, b_crit, saturated_batch(b_crit, 0.2));
        assert!((s / s_min - 1.2).abs() < 1e-14);
    }
}
