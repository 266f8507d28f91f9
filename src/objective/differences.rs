//! Products with the Hessian and the Gauss-Newton matrix by differences.

use super::{Along, Batch, Objective, ObjectiveError, Point, Scalar, StatisticsMode};

/// [`Along`] for any objective, by central differences. With u = v/|v|,
///
/// H v = |v| (g(t + e u) - g(t - e u))/(2 e),
///
/// and likewise J v from the outputs, which [`Point::pull_back`] takes back through J' H_z.
///
/// The step e is (machine epsilon)^(1/3) max(1, root mean square of t): for a smooth function the
/// two errors, e^2/6 times the third derivative along u and the rounding of the gradients over e,
/// then balance. Expect 1e-9 of |H| |v| in f64, and 1e-2 in f32, of little use. Where the function
/// has kinks (ReLU, max pooling), the gradient of an example that has one between the two points
/// jumps, and the jump over 2e is added: one example of 30 000 can outweigh the whole product. The
/// outputs have no jumps, so that Gauss-Newton products suffer little (1e-5 in the same case).
pub struct Differences<'a, F> {
    centre: &'a dyn Point<F>,
    moved: Option<Moved<'a, F>>,
}

/// The two points t +- shift v.
struct Moved<'a, F> {
    ahead: Box<dyn Point<F> + 'a>,
    behind: Box<dyn Point<F> + 'a>,
    shift: f64,
}

impl<'a, F: Scalar> Differences<'a, F> {
    /// The matrices of `objective` at the parameters `at`, where it is `centre`, along `direction`.
    /// The two points that differences need are made here once, for all pieces and threads.
    ///
    /// # Errors
    /// If the lengths do not fit the layout.
    pub fn new(
        objective: &'a (impl Objective<F> + ?Sized),
        centre: &'a dyn Point<F>,
        at: &[F],
        direction: &[F],
    ) -> Result<Self, ObjectiveError> {
        if at.len() != direction.len() {
            return Err(ObjectiveError::Shape {
                what: "direction".to_owned(),
                expected: at.len().to_string(),
                found: direction.len().to_string(),
            });
        }
        let length = norm(direction);
        if length == 0.0 {
            return Ok(Self {
                centre,
                moved: None,
            });
        }
        // Where the length overflows or is NaN, so does the answer.
        let shift = difference_step(at) / length;
        let shifted = |shift: f64| {
            let moved: Vec<F> = at
                .iter()
                .zip(direction)
                .map(|(t, v)| F::from_f64(t.to_f64() + shift * v.to_f64()))
                .collect();
            objective.at(&moved)
        };
        Ok(Self {
            centre,
            moved: Some(Moved {
                ahead: shifted(shift)?,
                behind: shifted(-shift)?,
                shift,
            }),
        })
    }
}

impl<F: Scalar> Along<F> for Differences<'_, F> {
    fn hessian_product(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        let Some(moved) = &self.moved else {
            product.fill(F::ZERO);
            return Ok(());
        };
        let mut behind = vec![F::ZERO; product.len()];
        moved
            .behind
            .gradient(batch.clone(), mode, weight, &mut behind)?;
        moved.ahead.gradient(batch, mode, weight, product)?;
        difference(product, &behind, moved.shift);
        Ok(())
    }

    fn gauss_newton_product(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        let Some(moved) = &self.moved else {
            product.fill(F::ZERO);
            return Ok(());
        };
        let behind = moved.behind.outputs(batch.clone(), mode)?;
        let mut tangent = moved.ahead.outputs(batch.clone(), mode)?;
        difference(&mut tangent, &behind, moved.shift);
        self.centre
            .pull_back(batch, mode, &tangent, weight, product)
    }
}

/// ahead <- (ahead - behind)/(2 shift).
fn difference<F: Scalar>(ahead: &mut [F], behind: &[F], shift: f64) {
    for (ahead, behind) in ahead.iter_mut().zip(behind) {
        *ahead = F::from_f64((ahead.to_f64() - behind.to_f64()) / (2.0 * shift));
    }
}

/// The step of central differences of gradients at `at`, for a direction of length 1.
pub(crate) fn difference_step<F: Scalar>(at: &[F]) -> f64 {
    let epsilon = if F::BYTES == 4 {
        f64::from(f32::EPSILON)
    } else {
        f64::EPSILON
    };
    let root_mean_square = norm(at) / (at.len().max(1) as f64).sqrt();
    epsilon.cbrt() * root_mean_square.max(1.0)
}

fn norm<F: Scalar>(v: &[F]) -> f64 {
    v.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::NoisyQuadratic;

    #[test]
    fn differences_of_a_quadratic_are_its_exact_product_at_any_length() {
        let model = NoisyQuadratic::new(6, 4);
        let at: Vec<f64> = Objective::<f64>::initial(&model, 2);
        let point = model.at(&at).unwrap();
        let batch = Batch {
            features: Vec::new(),
            labels: Vec::new(),
            ids: (0..5).collect(),
            groups: vec![5],
        };
        for length in [0.0, 1e-8, 1.0, 1e8] {
            let v: Vec<f64> = (0..6).map(|i| length * (f64::from(i) - 1.7)).collect();
            let mut found = [7.0; 6];
            let mut exact = [7.0; 6];
            let mode = StatisticsMode::Batch;
            Differences::new(&model, &*point, &at, &v)
                .unwrap()
                .hessian_product(batch.clone(), mode, 0.5, &mut found)
                .unwrap();
            point
                .along(&v)
                .unwrap()
                .hessian_product(batch.clone(), mode, 0.5, &mut exact)
                .unwrap();
            for i in 0..6 {
                assert!((exact[i] - 0.5 * v[i] / (i + 1) as f64).abs() <= 1e-15 * length);
                assert!((found[i] - exact[i]).abs() <= 1e-9 * length);
            }
        }
    }

    #[test]
    fn a_direction_of_another_length_is_refused() {
        let model = NoisyQuadratic::new(3, 0);
        let at = [0.0f64; 3];
        let point = model.at(&at).unwrap();
        let refused = Differences::new(&model, &*point, &at, &[1.0; 2]).err();
        assert_eq!(
            refused.map(|e| e.to_string()).as_deref(),
            Some("direction: expected 3, found 2")
        );
        assert!(point.along(&[1.0; 4]).is_err());
        assert!(matches!(
            point.outputs(
                Batch {
                    features: Vec::new(),
                    labels: Vec::new(),
                    ids: vec![0],
                    groups: vec![1]
                },
                StatisticsMode::Batch
            ),
            Err(ObjectiveError::NoOutputs)
        ));
    }
}
