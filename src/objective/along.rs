//! What is known of an objective beyond its gradient: products with the Hessian and the
//! Gauss-Newton matrix, and the gradient norms of single examples.

use super::{Batch, Layout, ObjectiveError, Point, Scalar, StatisticsMode};

/// The matrices of an objective at fixed parameters, along a fixed direction v.
///
/// One of these is shared by all pieces of a batch and all threads. The product of a whole batch
/// is the sum over its pieces, each with `weight` its share of the examples.
pub trait Along<F: Scalar>: Send + Sync {
    /// Overwrites `product` with `weight` H v, H the Hessian of the mean loss over `batch`. A
    /// parameter that the loss does not use gets zeros.
    ///
    /// # Errors
    /// As [`Point::gradient`].
    fn hessian_product(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError>;

    /// Overwrites `product` with `weight` G v, G = (1/n) sum_i J_i' H_i J_i the Gauss-Newton matrix
    /// of the mean loss over `batch`: J_i is the derivative of the outputs of example i by the
    /// parameters, H_i the Hessian of its loss by those outputs.
    ///
    /// # Errors
    /// As [`Point::outputs`].
    fn gauss_newton_product(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError>;
}

/// An objective at fixed parameters on a fixed batch, ready for products along many directions:
/// [`Along`] the other way round.
pub trait Prepared<F: Scalar>: Send + Sync {
    /// What it holds now. A product may add to it.
    fn bytes(&self) -> usize;

    /// Adds what [`Point::gradient`](super::Point::gradient) writes to `gradient`.
    ///
    /// # Errors
    /// If `gradient` does not fit the layout, or the model fails.
    fn add_gradient(&self, gradient: &mut [F]) -> Result<(), ObjectiveError>;

    /// Adds what [`Along::hessian_product`] writes along `direction` to `product`.
    ///
    /// # Errors
    /// If the direction does not fit the layout, or the model fails.
    fn add_hessian_product(&self, direction: &[F], product: &mut [F])
    -> Result<(), ObjectiveError>;

    /// Adds what [`Along::gauss_newton_product`] writes along `direction` to `product`.
    ///
    /// # Errors
    /// As [`Prepared::add_hessian_product`].
    fn add_gauss_newton_product(
        &self,
        direction: &[F],
        product: &mut [F],
    ) -> Result<(), ObjectiveError>;
}

/// The gradient norms of single examples.
#[derive(Debug, Clone, PartialEq)]
pub struct ExampleNorms {
    /// Loss of each example.
    pub losses: Vec<f64>,
    /// The layers, in the order of the layout. |g_i|^2 is the sum over them.
    pub layers: Vec<LayerNorms>,
    /// Whether one pass over all examples gave them, rather than one an example. The answer is the
    /// same up to rounding.
    pub exact_pass: bool,
}

/// The part of one layer in [`ExampleNorms`].
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorms {
    /// The layer: [`Parameter::layer`](super::Parameter::layer) of its parameters.
    pub layer: String,
    /// Squared norm of each example's gradient by the parameters of the layer.
    pub squared_norms: Vec<f64>,
}

impl ExampleNorms {
    /// The norms of layers from those of parameters, given in the order of `layout`, one row a
    /// parameter and one value an example.
    pub fn by_layer(
        layout: &Layout,
        losses: Vec<f64>,
        parameters: Vec<Vec<f64>>,
        exact_pass: bool,
    ) -> Self {
        let mut layers: Vec<LayerNorms> = Vec::new();
        for (parameter, squares) in layout.parameters.iter().zip(parameters) {
            let name = parameter.layer();
            match layers.iter_mut().find(|known| known.layer == name) {
                None => layers.push(LayerNorms {
                    layer: name.to_owned(),
                    squared_norms: squares,
                }),
                Some(known) => {
                    for (sum, square) in known.squared_norms.iter_mut().zip(squares) {
                        *sum += square;
                    }
                }
            }
        }
        Self {
            losses,
            layers,
            exact_pass,
        }
    }

    /// |g_i|^2 of each example.
    pub fn squared_norms(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.losses.len()];
        for layer in &self.layers {
            for (sum, square) in sums.iter_mut().zip(&layer.squared_norms) {
                *sum += square;
            }
        }
        sums
    }
}

/// The gradient norms of single examples by one gradient an example, for any objective whose
/// losses do not depend on other examples. As slow as batches of one.
///
/// # Errors
/// As [`Point::gradient`].
pub fn example_norms_one_by_one<F: Scalar>(
    point: &(impl Point<F> + ?Sized),
    layout: &Layout,
    batch: &Batch<F>,
    mode: StatisticsMode<'_>,
) -> Result<ExampleNorms, ObjectiveError> {
    let n = batch.len();
    let width = batch.features.len() / n.max(1);
    let mut losses = Vec::with_capacity(n);
    let mut parameters = vec![Vec::with_capacity(n); layout.parameters.len()];
    let mut gradient = vec![F::ZERO; layout.len()];
    for (i, id) in batch.ids.iter().enumerate() {
        let one = Batch {
            features: batch.features[i * width..(i + 1) * width].to_vec(),
            labels: batch.labels.get(i).copied().into_iter().collect(),
            ids: vec![*id],
            groups: vec![1],
        };
        losses.push(point.gradient(one, mode, F::ONE, &mut gradient)?);
        for (squares, parameter) in parameters.iter_mut().zip(&layout.parameters) {
            let own = &gradient[parameter.range.clone()];
            squares.push(own.iter().map(|g| g.to_f64().powi(2)).sum());
        }
    }
    Ok(ExampleNorms::by_layer(layout, losses, parameters, false))
}
