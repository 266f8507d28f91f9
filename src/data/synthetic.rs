//! Examples drawn from known distributions. Each example has its own stream, so the first n of a
//! larger set are the smaller set.

use super::{DataError, Examples};
use crate::rng::Stream;

/// Most feature values that a synthetic set may hold (32 GiB).
const MOST_VALUES: usize = 1 << 33;

/// Refuses sizes that cannot be meant.
fn check(key: &'static str, examples: usize, dimension: usize) -> Result<(), DataError> {
    if examples > u32::MAX as usize
        || examples
            .checked_mul(dimension)
            .is_none_or(|values| values > MOST_VALUES)
    {
        return Err(DataError::option(
            key,
            format!("small enough for memory (examples x dimension at most {MOST_VALUES})"),
            examples,
        ));
    }
    Ok(())
}

/// Refuses a count below `least`.
fn at_least(key: &'static str, least: usize, found: usize) -> Result<(), DataError> {
    if found < least {
        return Err(DataError::option(key, format!("at least {least}"), found));
    }
    Ok(())
}

/// Training and test examples; no test set where it would be empty.
type Parts = (Examples, Option<Examples>);

/// x = mean of the class + standard normal noise; the class means are uniform on a sphere of radius
/// `separation`; example i has class i mod `classes`.
pub(super) fn gaussian_mixture(
    classes: usize,
    dimension: usize,
    examples: usize,
    test_examples: usize,
    separation: f64,
    seed: u64,
) -> Result<Parts, DataError> {
    at_least("data.source.gaussian-mixture.classes", 2, classes)?;
    at_least("data.source.gaussian-mixture.dimension", 1, dimension)?;
    at_least("data.source.gaussian-mixture.examples", 1, examples)?;
    check("data.source.gaussian-mixture.examples", examples, dimension)?;
    check(
        "data.source.gaussian-mixture.test_examples",
        test_examples,
        dimension,
    )?;
    check("data.source.gaussian-mixture.classes", classes, dimension)?;
    if !(separation.is_finite() && separation >= 0.0) {
        return Err(DataError::option(
            "data.source.gaussian-mixture.separation",
            "a finite number, at least 0",
            separation,
        ));
    }
    let means: Vec<Vec<f64>> = (0..classes)
        .map(|class| {
            let mut stream = Stream::new(seed, "gaussian-mixture-means", class as u64);
            let direction: Vec<f64> = (0..dimension).map(|_| stream.normal()).collect();
            let norm = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
            direction.iter().map(|x| separation * x / norm).collect()
        })
        .collect();
    let draw = |purpose: &str, n: usize| {
        let mut features = Vec::with_capacity(n * dimension);
        let mut labels = Vec::with_capacity(n);
        for example in 0..n {
            let class = example % classes;
            let mut stream = Stream::new(seed, purpose, example as u64);
            features.extend(
                means[class]
                    .iter()
                    .map(|mean| (mean + stream.normal()) as f32),
            );
            labels.push(class as u32);
        }
        Examples { features, labels }
    };
    let test = draw("gaussian-mixture-test", test_examples);
    Ok((
        draw("gaussian-mixture-train", examples),
        (test_examples > 0).then_some(test),
    ))
}

/// x standard normal; label = argmax of V tanh(W x / sqrt(dimension)), W and V standard normal.
pub(super) fn teacher(
    classes: usize,
    dimension: usize,
    width: usize,
    examples: usize,
    test_examples: usize,
    seed: u64,
) -> Result<Parts, DataError> {
    at_least("data.source.teacher.classes", 2, classes)?;
    at_least("data.source.teacher.dimension", 1, dimension)?;
    at_least("data.source.teacher.width", 1, width)?;
    at_least("data.source.teacher.examples", 1, examples)?;
    check("data.source.teacher.examples", examples, dimension)?;
    check(
        "data.source.teacher.test_examples",
        test_examples,
        dimension,
    )?;
    check("data.source.teacher.width", width, dimension)?;
    check("data.source.teacher.classes", classes, width)?;
    let weights = |purpose: &str, n: usize| -> Vec<f64> {
        let mut stream = Stream::new(seed, purpose, 0);
        (0..n).map(|_| stream.normal()).collect()
    };
    let first = weights("teacher-first-layer", width * dimension);
    let second = weights("teacher-second-layer", classes * width);
    let scale = 1.0 / (dimension as f64).sqrt();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let draw = |purpose: &str, n: usize| {
        let mut features = Vec::with_capacity(n * dimension);
        let mut labels = Vec::with_capacity(n);
        for example in 0..n {
            let mut stream = Stream::new(seed, purpose, example as u64);
            // Rounded first: the label is that of the features as stored.
            let stored: Vec<f32> = (0..dimension).map(|_| stream.normal() as f32).collect();
            let input: Vec<f64> = stored.iter().map(|&x| f64::from(x)).collect();
            let hidden: Vec<f64> = first
                .chunks_exact(dimension)
                .map(|row| (scale * dot(row, &input)).tanh())
                .collect();
            let mut best = (0, f64::NEG_INFINITY);
            for (class, row) in second.chunks_exact(width).enumerate() {
                let score = dot(row, &hidden);
                if score > best.1 {
                    best = (class, score);
                }
            }
            features.extend(stored);
            labels.push(best.0 as u32);
        }
        Examples { features, labels }
    };
    let test = draw("teacher-test", test_examples);
    Ok((
        draw("teacher-train", examples),
        (test_examples > 0).then_some(test),
    ))
}

/// Sizes of the noisy quadratic.
pub(super) fn check_quadratic(dimension: usize, examples: usize) -> Result<(), DataError> {
    at_least("data.source.noisy-quadratic.dimension", 1, dimension)?;
    at_least("data.source.noisy-quadratic.examples", 1, examples)?;
    check("data.source.noisy-quadratic.dimension", 1, dimension)?;
    check("data.source.noisy-quadratic.examples", examples, 1)
}
