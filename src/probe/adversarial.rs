//! Accuracy on examples that were moved against the network: FGSM (Goodfellow et al. 2015) and PGD
//! (Madry et al. 2018), by which Yao et al. (2018) compare networks trained with small and large
//! batches.
//!
//! Examples are flat: n rows of one width. The network comes in as two closures: the gradient of the
//! loss with respect to the examples, of which only the signs count (so that it may be of the sum or
//! of the mean), and the predicted classes. A radius is the largest change of a feature, in the units
//! in which the network gets its features.

use thiserror::Error;

use crate::rng::Stream;

/// The gradient of the loss with respect to the examples: reads the examples, overwrites the second
/// argument, of the same length.
pub type InputGradient<'a, E> = dyn FnMut(&[f64], &mut [f64]) -> Result<(), E> + 'a;

/// The predicted class of each example.
pub type Predict<'a, E> = dyn FnMut(&[f64]) -> Result<Vec<usize>, E> + 'a;

/// How examples are moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Attack {
    /// One step of the radius along the sign of the gradient.
    Fgsm,
    /// Projected gradient descent on minus the loss, from a random point of the ball.
    Pgd {
        /// Number of steps, at least 1.
        steps: usize,
        /// Length of a step; `None`: 2.5 radius/steps, so that any point of the ball can be reached
        /// from any other.
        step: Option<f64>,
        /// Seed of the random start.
        seed: u64,
    },
}

/// A batch of examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Examples<'a> {
    /// Features by rows.
    pub features: &'a [f64],
    /// The class of each example.
    pub labels: &'a [usize],
    /// Index of the first example in its data set, which keys its random start: how a data set is cut
    /// into batches changes nothing.
    pub first: u64,
    /// The smallest and the largest value that a feature may have. A feature that is outside already
    /// may stay where it is.
    pub range: Option<(f64, f64)>,
}

/// Accuracy at one radius.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RobustAccuracy {
    /// The largest change of a feature.
    pub radius: f64,
    /// Examples whose class was predicted.
    pub correct: usize,
    /// All examples.
    pub examples: usize,
}

impl RobustAccuracy {
    /// Share of the examples whose class was predicted; `None` of no examples.
    pub fn accuracy(&self) -> Option<f64> {
        (self.examples > 0).then(|| self.correct as f64 / self.examples as f64)
    }
}

/// Why there is no accuracy.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AdversarialError<E> {
    /// The features cannot be cut into as many rows as there are labels.
    #[error("{features} features are not a multiple of {examples} examples")]
    Shape {
        /// Number of features.
        features: usize,
        /// Number of labels.
        examples: usize,
    },
    /// Not one prediction an example.
    #[error("expected the classes of {expected} examples, found {found}")]
    Predictions {
        /// Number of examples.
        expected: usize,
        /// Number of predictions.
        found: usize,
    },
    /// A setting that makes no sense.
    #[error("{name} is {found}; it must be {right}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: f64,
        /// What would be right.
        right: &'static str,
    },
    /// The values a feature may have are none.
    #[error("the range of the features is {low} to {high}; the low end must not be above")]
    Range {
        /// Low end.
        low: f64,
        /// High end.
        high: f64,
    },
    /// A gradient without a sign.
    #[error(
        "the gradient of the loss with respect to feature {feature} of example {example} is NaN"
    )]
    Gradient {
        /// The example, from 0, in its data set.
        example: u64,
        /// The feature, from 0.
        feature: usize,
    },
    /// The network failed.
    #[error("the network could not be evaluated: {0}")]
    Network(E),
}

/// The accuracy on the examples, each radius by itself. Radius 0 moves nothing and gives the clean
/// accuracy.
///
/// # Errors
/// With lengths that do not fit, a negative radius, a range that is empty, no steps, a gradient that
/// is NaN; if the network fails.
pub fn robust_accuracy<E>(
    examples: &Examples<'_>,
    attack: &Attack,
    radii: &[f64],
    gradient: &mut InputGradient<'_, E>,
    predict: &mut Predict<'_, E>,
) -> Result<Vec<RobustAccuracy>, AdversarialError<E>> {
    let count = examples.labels.len();
    let accuracy = |&radius: &f64| {
        let moved = perturb(examples, attack, radius, gradient)?;
        let classes = predict(&moved).map_err(AdversarialError::Network)?;
        if classes.len() != count {
            return Err(AdversarialError::Predictions {
                expected: count,
                found: classes.len(),
            });
        }
        let pairs = classes.iter().zip(examples.labels);
        Ok(RobustAccuracy {
            radius,
            correct: pairs.filter(|(class, label)| class == label).count(),
            examples: count,
        })
    };
    radii.iter().map(accuracy).collect()
}

/// The examples after the attack: no feature moved by more than the radius, or out of the range.
///
/// # Errors
/// As [`robust_accuracy`], but for the predictions.
pub fn perturb<E>(
    examples: &Examples<'_>,
    attack: &Attack,
    radius: f64,
    gradient: &mut InputGradient<'_, E>,
) -> Result<Vec<f64>, AdversarialError<E>> {
    let clean = examples.features;
    let count = examples.labels.len();
    let width = clean.len().checked_div(count).unwrap_or(0);
    if width * count != clean.len() {
        return Err(AdversarialError::Shape {
            features: clean.len(),
            examples: count,
        });
    }
    if !(radius >= 0.0 && radius.is_finite()) {
        return Err(AdversarialError::Setting {
            name: "radius",
            found: radius,
            right: "finite and not negative",
        });
    }
    let (low, high) = examples.range.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
    let ordered = low <= high;
    if !ordered {
        return Err(AdversarialError::Range { low, high });
    }
    let (steps, step) = match *attack {
        Attack::Fgsm => (1, radius),
        Attack::Pgd { steps, step, .. } => (steps, step.unwrap_or(2.5 * radius / steps as f64)),
    };
    if steps == 0 {
        return Err(AdversarialError::Setting {
            name: "steps",
            found: 0.0,
            right: "at least 1",
        });
    }
    if radius > 0.0 && !(step > 0.0 && step.is_finite()) {
        return Err(AdversarialError::Setting {
            name: "step",
            found: step,
            right: "positive and finite",
        });
    }
    let mut moved = clean.to_vec();
    if radius == 0.0 || clean.is_empty() {
        return Ok(moved);
    }
    // The nearest value that is allowed in place of a clean one.
    let project = |x: f64, clean: f64| {
        let least = (clean - radius).max(low.min(clean));
        let most = (clean + radius).min(high.max(clean));
        x.max(least).min(most)
    };
    if let Attack::Pgd { seed, .. } = *attack {
        let rows = moved.chunks_exact_mut(width).zip(clean.chunks_exact(width));
        for (index, (row, clean)) in (examples.first..).zip(rows) {
            let mut stream = Stream::new(seed, "adversarial-start", index);
            for (x, &clean) in row.iter_mut().zip(clean) {
                *x = project(clean + radius * (2.0 * stream.uniform() - 1.0), clean);
            }
        }
    }
    let mut slopes = vec![0.0; clean.len()];
    for _ in 0..steps {
        gradient(&moved, &mut slopes).map_err(AdversarialError::Network)?;
        if let Some(index) = slopes.iter().position(|slope| slope.is_nan()) {
            return Err(AdversarialError::Gradient {
                example: examples.first + (index / width) as u64,
                feature: index % width,
            });
        }
        for ((x, &clean), &slope) in moved.iter_mut().zip(clean).zip(&slopes) {
            if slope != 0.0 {
                *x = project(*x + step * slope.signum(), clean);
            }
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::math::operator::dot;

    const WEIGHTS: [f64; 3] = [1.0, -2.0, 0.5];
    const PGD: Attack = Attack::Pgd {
        steps: 10,
        step: None,
        seed: 4,
    };

    /// 40 examples, with the classes of w'x > 0 but for every ninth.
    fn examples() -> (Vec<f64>, Vec<usize>) {
        let mut stream = Stream::new(1, "adversarial-test", 0);
        let features: Vec<f64> = (0..120).map(|_| stream.normal()).collect();
        let rows = features.chunks_exact(3).enumerate();
        let labels = rows
            .map(|(i, x)| usize::from((dot(x, &WEIGHTS) > 0.0) != (i % 9 == 0)))
            .collect();
        (features, labels)
    }

    fn batch<'a>(features: &'a [f64], labels: &'a [usize]) -> Examples<'a> {
        Examples {
            features,
            labels,
            first: 0,
            range: None,
        }
    }

    /// Sum of log(1 + exp(-y w'x)) over examples, with its gradient.
    fn logistic(x: &[f64], labels: &[usize], g: &mut [f64]) -> f64 {
        let rows = x.chunks_exact(3).zip(g.chunks_exact_mut(3)).zip(labels);
        rows.map(|((x, g), &label)| {
            let y = 2.0 * label as f64 - 1.0;
            let margin = y * dot(x, &WEIGHTS);
            for (g, w) in g.iter_mut().zip(&WEIGHTS) {
                *g = -y * w / (1.0 + margin.exp());
            }
            (-margin).exp().ln_1p()
        })
        .sum()
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the attack asks it")]
    fn classes(x: &[f64]) -> Result<Vec<usize>, Infallible> {
        let rows = x.chunks_exact(3);
        Ok(rows.map(|x| usize::from(dot(x, &WEIGHTS) > 0.0)).collect())
    }

    fn accuracies(examples: &Examples<'_>, attack: &Attack, radii: &[f64]) -> Vec<RobustAccuracy> {
        let labels = examples.labels;
        let mut gradient = |x: &[f64], g: &mut [f64]| {
            logistic(x, labels, g);
            Ok(())
        };
        robust_accuracy(examples, attack, radii, &mut gradient, &mut classes).unwrap()
    }

    #[test]
    fn a_linear_classifier_loses_the_examples_within_its_margin() {
        let (features, labels) = examples();
        let radii = [0.0, 0.01, 0.1, 0.3, 1.0, 3.0];
        for attack in [Attack::Fgsm, PGD] {
            let found = accuracies(&batch(&features, &labels), &attack, &radii);
            for (found, radius) in found.iter().zip(radii) {
                // The margin falls by the radius times |w|_1.
                let reach = radius * 3.5;
                let rows = features.chunks_exact(3).zip(&labels);
                let margins = rows.map(|(x, &y)| (2.0 * y as f64 - 1.0) * dot(x, &WEIGHTS));
                assert_eq!(found.correct, margins.filter(|m| *m > reach).count());
                assert_eq!((found.radius, found.examples), (radius, 40));
            }
            let clean = classes(&features).unwrap();
            let right = clean.iter().zip(&labels).filter(|(a, b)| a == b).count();
            assert_eq!(found[0].accuracy(), Some(right as f64 / 40.0));
            assert_eq!(found[5].correct, 0);
        }
    }

    /// Sum of log(1 + exp(-y v'tanh(Ux))) over examples, with its gradient: not linear in x, and
    /// without the valley of a squared error, on whose two sides one step and many may end.
    fn bent(x: &[f64], labels: &[usize], g: &mut [f64]) -> f64 {
        let u = [[1.5, -2.0, 0.3], [0.4, 1.1, -1.7], [-2.2, 0.6, 0.9]];
        let v = [1.0, -1.4, 0.8];
        let rows = x.chunks_exact(3).zip(g.chunks_exact_mut(3)).zip(labels);
        rows.map(|((x, g), &label)| {
            let y = 2.0 * label as f64 - 1.0;
            let hidden = u.map(|row| dot(&row, x).tanh());
            let margin = y * dot(&hidden, &v);
            let factor = -y / (1.0 + margin.exp());
            for (k, g) in g.iter_mut().enumerate() {
                *g = (0..3)
                    .map(|j| factor * v[j] * (1.0 - hidden[j] * hidden[j]) * u[j][k])
                    .sum();
            }
            (-margin).exp().ln_1p()
        })
        .sum()
    }

    #[test]
    fn many_steps_raise_the_loss_at_least_as_far_as_one() {
        let (features, labels) = examples();
        let examples = batch(&features, &labels);
        let mut scratch = vec![0.0; features.len()];
        let mut gradient = |x: &[f64], g: &mut [f64]| -> Result<(), Infallible> {
            bent(x, &labels, g);
            Ok(())
        };
        let clean = bent(&features, &labels, &mut scratch);
        for radius in [0.1, 0.5, 1.0] {
            let mut raised = |attack| {
                let moved = perturb(&examples, &attack, radius, &mut gradient).unwrap();
                for (moved, clean) in moved.iter().zip(&features) {
                    assert!((moved - clean).abs() <= radius * (1.0 + 1e-12));
                }
                bent(&moved, &labels, &mut scratch)
            };
            let one = raised(Attack::Fgsm);
            let many = raised(Attack::Pgd {
                steps: 40,
                step: None,
                seed: 0,
            });
            assert!(
                many >= one && one > clean,
                "{radius}: {many}, {one}, {clean}"
            );
        }
    }

    #[test]
    fn moved_examples_stay_in_the_range_of_the_data() {
        let features = [0.0, 0.1, 0.95, 1.0, 0.5, 1.3];
        let labels = [0, 1];
        let examples = Examples {
            range: Some((0.0, 1.0)),
            ..batch(&features, &labels)
        };
        let mut gradient = |x: &[f64], g: &mut [f64]| -> Result<(), Infallible> {
            logistic(x, &labels, g);
            Ok(())
        };
        for attack in [Attack::Fgsm, PGD] {
            let moved = perturb(&examples, &attack, 0.2, &mut gradient).unwrap();
            for (moved, clean) in moved.iter().zip(&features) {
                assert!(
                    (0.0..=clean.max(1.0)).contains(moved),
                    "{moved} from {clean}"
                );
                assert!((moved - clean).abs() <= 0.2 + 1e-15);
            }
            // Class 0 is moved along w, class 1 against it.
            let expected = [0.2, 0.0, 1.0, 0.8, 0.7, 1.1];
            for (moved, expected) in moved.iter().zip(expected) {
                assert!((moved - expected).abs() < 1e-15, "{moved}, not {expected}");
            }
        }
    }

    #[test]
    fn batches_and_seeds_decide_nothing_but_what_they_say() {
        let (features, labels) = examples();
        let mut gradient = |_: &[f64], g: &mut [f64]| -> Result<(), Infallible> {
            // No slope: examples stay where they start.
            g.fill(0.0);
            Ok(())
        };
        let mut starts = |examples: &Examples<'_>, seed| {
            let attack = Attack::Pgd {
                steps: 1,
                step: None,
                seed,
            };
            perturb(examples, &attack, 0.1, &mut gradient).unwrap()
        };
        let whole = starts(&batch(&features, &labels), 0);
        let tail = Examples {
            first: 25,
            ..batch(&features[75..], &labels[25..])
        };
        assert_eq!(starts(&tail, 0), whole[75..]);
        assert_ne!(starts(&tail, 1), whole[75..]);
        assert_ne!(whole, features);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (features, labels) = examples();
        let good = batch(&features, &labels);
        let ask = |examples: &Examples<'_>, attack: Attack, radius: f64, slope: f64| {
            let mut gradient = |_: &[f64], g: &mut [f64]| -> Result<(), Infallible> {
                g.fill(1.0);
                g[4] = slope;
                Ok(())
            };
            let mut predict = |_: &[f64]| Ok(vec![0; 3]);
            robust_accuracy(examples, &attack, &[radius], &mut gradient, &mut predict).unwrap_err()
        };
        let shape = ask(&batch(&features[1..], &labels), PGD, 0.1, 1.0);
        assert!(matches!(shape, AdversarialError::Shape { .. }));
        let negative = ask(&good, PGD, -0.1, 1.0);
        assert!(matches!(
            negative,
            AdversarialError::Setting { name: "radius", .. }
        ));
        let nan = ask(&good, Attack::Fgsm, 0.1, f64::NAN);
        let place = AdversarialError::Gradient {
            example: 1,
            feature: 1,
        };
        assert_eq!(nan, place);
        let few = ask(&good, Attack::Fgsm, 0.1, 1.0);
        assert!(matches!(
            few,
            AdversarialError::Predictions { found: 3, .. }
        ));
        let range = Some((1.0, 0.0));
        let empty = ask(&Examples { range, ..good }, Attack::Fgsm, 0.1, 1.0);
        assert!(matches!(empty, AdversarialError::Range { .. }));
        for (steps, step) in [(0, None), (3, Some(0.0)), (3, Some(f64::NAN))] {
            let attack = Attack::Pgd {
                steps,
                step,
                seed: 0,
            };
            let bad = ask(&good, attack, 0.1, 1.0);
            assert!(matches!(bad, AdversarialError::Setting { .. }));
        }
    }

    #[test]
    fn no_examples_have_no_accuracy() {
        let found = accuracies(&batch(&[], &[]), &PGD, &[0.1]);
        assert_eq!(found[0].accuracy(), None);
    }
}
