//! What is minimized: loss and gradient of a flat parameter vector on given examples.
//!
//! The one door to the neural-network framework. Training, optimizers, collectives and probes see
//! parameters as a flat vector with a [`Layout`] and reach a model only through [`Objective`].
//! Closed-form objectives live here; those made from burn modules live in `model`.

mod along;
mod differences;
mod examples;
mod layout;
mod quadratic;
mod scalar;

pub use along::{Along, ExampleNorms, LayerNorms, Prepared, example_norms_one_by_one};
pub use differences::Differences;
pub(crate) use differences::difference_step;
pub use examples::{Scores, population_statistics_at, scores_at};
pub(crate) use examples::{read_moments, write_moments};
pub use layout::{Layout, Parameter, Role};
pub use quadratic::NoisyQuadratic;
pub use scalar::Scalar;

/// Examples handed to an objective, grouped by the shard (or ghost batch) they belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<F> {
    /// Features, row-major: one row an example. Empty where examples are known by id alone.
    pub features: Vec<F>,
    /// Class of each example. Empty where there are no classes.
    pub labels: Vec<u32>,
    /// Identity of each example: its index in the data set, or its position in the stream of a
    /// data set that never repeats.
    pub ids: Vec<u64>,
    /// Sizes of the groups that share batch statistics, in order; they add up to the number of
    /// examples.
    pub groups: Vec<usize>,
}

impl<F> Batch<F> {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Mean and variance that one batch-normalization layer uses at inference, one entry a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerStatistics {
    /// Name of the layer.
    pub name: String,
    /// Mean.
    pub mean: Vec<f64>,
    /// Biased variance.
    pub variance: Vec<f64>,
}

/// Which statistics normalization layers use.
#[derive(Debug, Clone, Copy)]
pub enum StatisticsMode<'a> {
    /// Those of each group of the batch.
    Batch,
    /// These, whatever the batch. Empty for a model without batch normalization.
    Inference(&'a [LayerStatistics]),
}

/// Mean and variance of one group of examples at one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupMoments {
    /// Name of the layer.
    pub layer: String,
    /// Examples in the group.
    pub examples: usize,
    /// Values of each channel: examples times positions. The unbiased variance is `variance`
    /// times values/(values - 1).
    pub values: usize,
    /// Mean over examples and positions, one entry a channel.
    pub mean: Vec<f64>,
    /// Biased variance over examples and positions, one entry a channel.
    pub variance: Vec<f64>,
}

/// What a model says about each example.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Predictions {
    /// Loss of each example.
    pub losses: Vec<f64>,
    /// The most probable class of each example; empty where there are no classes.
    pub classes: Vec<u32>,
}

/// Why an objective could not be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum ObjectiveError {
    /// Batch statistics of a single example are its own values: the normalized output is zero.
    #[error(
        "batch normalization needs at least 2 examples in each group, found a group of 1\n\
         hint: raise train.local_batch to 2 or more, or use train.epoch_end = \"drop\""
    )]
    GroupOfOne,
    /// The gradient with respect to the features was asked of an objective without one.
    #[error(
        "this objective has no input gradient, which adversarial examples need\n\
         hint: use a neural network as model, or no adversarial examples"
    )]
    NoInputGradient,
    /// Exact products were asked of an objective that has none.
    #[error(
        "this objective has no exact products with its Hessian\n\
         hint: take differences of gradients, or give the network `forward_dual` and `has_dual`"
    )]
    NoExactProducts,
    /// Outputs were asked of an objective without any.
    #[error(
        "this objective has no outputs that its loss is a function of, which Gauss-Newton \
         products need\n\
         hint: use a neural network as model, or products with the Hessian"
    )]
    NoOutputs,
    /// Gradient norms of single examples were asked of an objective that has no answer of its own.
    #[error(
        "this objective does not give the gradient norms of single examples\n\
         hint: take one gradient an example with `example_norms_one_by_one`"
    )]
    NoExampleNorms,
    /// With batch statistics the loss of an example is not a function of that example.
    #[error(
        "single examples have no gradients of their own where batch normalization uses the \
         statistics of the batch\n\
         hint: use inference statistics, or a model without batch normalization"
    )]
    BatchStatistics,
    /// An exact trace of the Hessian was asked for, and nothing says that it is that of the
    /// Gauss-Newton matrix.
    #[error(
        "probes.hessian.trace: the model does not say that its outputs are piecewise linear in each \
         parameter, and has no exact trace without\n\
         hint: use \"auto\" or \"krylov\", or give the network `is_linear_in_each_parameter`"
    )]
    NotLinear,
    /// A network's losses and its dual losses differ.
    #[error(
        "the network's `losses_dual` gives a mean loss of {dual}, its `losses` one of {own}\n\
         hint: a network that overrides `losses` overrides `losses_dual` too"
    )]
    DualLosses {
        /// The mean of the dual losses.
        dual: f64,
        /// The mean of the losses.
        own: f64,
    },
    /// A unit of a layer has the same value for all examples: there is no scale that gives it
    /// variance 1.
    #[error(
        "data-dependent initialization: a unit of the layer with {parameter} has the same value \
         for all {examples} examples\n\
         hint: use a larger batch, or weight normalization with data_dependent = false"
    )]
    ConstantUnit {
        /// The layer's scale.
        parameter: String,
        /// Examples of the batch.
        examples: usize,
    },
    /// A shape does not fit.
    #[error("{what}: expected {expected}, found {found}")]
    Shape {
        /// What has the shape.
        what: String,
        /// The expected shape or length.
        expected: String,
        /// The shape or length found.
        found: String,
    },
    /// The model's code panicked.
    #[error("the model stopped with a panic: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// Another rank failed, or this one and the others were told of it.
    #[error("{message}")]
    Elsewhere {
        /// What the rank said.
        message: String,
    },
    /// The ranks cannot work together.
    #[error(transparent)]
    Ranks(#[from] crate::collective::RanksError),
    /// The device could not do what was asked.
    #[error("the device {device} failed: {message}")]
    Device {
        /// The device.
        device: String,
        /// What it said.
        message: String,
    },
}

/// Loss and gradient of a flat parameter vector on given examples.
///
/// The loss of a batch is the mean over its examples; an objective never sums.
pub trait Objective<F: Scalar>: Send + Sync {
    /// The layout of the parameter vector.
    fn layout(&self) -> &Layout;

    /// Initial parameters, a pure function of the seed.
    fn initial(&self, seed: u64) -> Vec<F>;

    /// Whether [`Objective::initialize_from`] is to be called before training starts.
    fn needs_data_initialization(&self) -> bool {
        false
    }

    /// Data-dependent initialization: changes `parameters`, as [`Objective::initial`] gave them,
    /// to what the examples of `batch` call for, in one forward pass over all of them.
    ///
    /// # Errors
    /// If the batch does not determine them, or the model fails; `parameters` are then unchanged.
    fn initialize_from(&self, parameters: &mut [F], batch: Batch<F>) -> Result<(), ObjectiveError> {
        let _ = (parameters, batch);
        Ok(())
    }

    /// Whether the loss of an example depends on the others of its group.
    fn has_batch_statistics(&self) -> bool {
        false
    }

    /// The largest number of examples that one forward and backward pass should take when a shard
    /// of `shard` examples may be cut. Depends on the model and on `shard` alone, so that results
    /// do not depend on the machine.
    fn default_micro_batch(&self, shard: usize) -> usize {
        shard
    }

    /// Whether points have [`Point::along`]: products with the Hessian without differences.
    fn has_exact_products(&self) -> bool {
        false
    }

    /// Whether the outputs are piecewise linear in each single parameter while the others stay. Then the
    /// Hessian and the Gauss-Newton matrix have the same diagonal.
    fn is_linear_in_each_parameter(&self) -> bool {
        false
    }

    /// The objective at these parameters. This copies the parameters once; the point is then
    /// shared by all workers.
    ///
    /// # Errors
    /// If the parameters do not fit the layout.
    fn at<'a>(&'a self, parameters: &[F]) -> Result<Box<dyn Point<F> + 'a>, ObjectiveError>;
}

/// An objective at fixed parameters.
pub trait Point<F: Scalar>: Send + Sync {
    /// Writes `weight` times the gradient of the mean loss over `batch` into `gradient` (its
    /// former content is overwritten) and returns the mean loss, in nats for a classifier.
    /// A parameter that the loss does not use gets zeros.
    ///
    /// # Errors
    /// If a group is too small for batch statistics, or the model fails.
    fn gradient(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        gradient: &mut [F],
    ) -> Result<f64, ObjectiveError>;

    /// [`Point::gradient`], and the moments that the same forward pass used: those of each group
    /// at each normalization layer, in forward order. Empty without batch normalization, and
    /// where `mode` is not [`StatisticsMode::Batch`].
    ///
    /// # Errors
    /// As [`Point::gradient`].
    fn gradient_and_moments(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        gradient: &mut [F],
    ) -> Result<(f64, Vec<GroupMoments>), ObjectiveError> {
        Ok((self.gradient(batch, mode, weight, gradient)?, Vec::new()))
    }

    /// Writes the gradient of the sum of the losses with respect to the features into `gradient`,
    /// row-major as in the batch, and returns that sum. Where no batch statistics are used, each
    /// row is the gradient of its own example's loss.
    ///
    /// # Errors
    /// As [`Point::gradient`], and if the objective has no features that it can be differentiated by.
    fn input_gradient(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        gradient: &mut Vec<F>,
    ) -> Result<f64, ObjectiveError> {
        let _ = (batch, mode, gradient);
        Err(ObjectiveError::NoInputGradient)
    }

    /// Loss and predicted class of each example.
    ///
    /// # Errors
    /// As [`Point::gradient`].
    fn predict(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Result<Predictions, ObjectiveError>;

    /// Batch statistics of each group at each normalization layer, in forward order. Empty
    /// without batch normalization.
    ///
    /// # Errors
    /// As [`Point::gradient`].
    fn moments(&self, batch: Batch<F>) -> Result<Vec<GroupMoments>, ObjectiveError> {
        let _ = batch;
        Ok(Vec::new())
    }

    /// Exact products with the matrices of this point along `direction`, which is copied once.
    /// [`Differences`] are the other way to them.
    ///
    /// # Errors
    /// If the objective has none ([`Objective::has_exact_products`]), or the direction does not
    /// fit the layout.
    fn along<'a>(&'a self, direction: &[F]) -> Result<Box<dyn Along<F> + 'a>, ObjectiveError> {
        let _ = direction;
        Err(ObjectiveError::NoExactProducts)
    }

    /// The exact products of [`Point::along`] on a batch with `weight` that stays, where the
    /// objective gains by keeping what does not depend on the direction. `None` where it does not.
    ///
    /// # Errors
    /// As [`Point::gradient`].
    fn prepare(
        &self,
        batch: &Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
    ) -> Result<Option<Box<dyn Prepared<F>>>, ObjectiveError> {
        let _ = (batch, mode, weight);
        Ok(None)
    }

    /// The outputs z that the loss of each example is a function of, such as logits: row-major,
    /// one row an example.
    ///
    /// # Errors
    /// As [`Point::gradient`], and if the objective has no outputs.
    fn outputs(&self, batch: Batch<F>, mode: StatisticsMode<'_>) -> Result<Vec<F>, ObjectiveError> {
        let _ = (batch, mode);
        Err(ObjectiveError::NoOutputs)
    }

    /// Overwrites `product` with `weight`/n sum_i J_i' H_i t_i: J_i is the derivative of the
    /// outputs of example i by the parameters, H_i the Hessian of its loss by those outputs, t_i
    /// row i of `tangent`, shaped as [`Point::outputs`]. With t = J v it is the Gauss-Newton
    /// product.
    ///
    /// # Errors
    /// As [`Point::outputs`], and if `tangent` has another shape.
    fn pull_back(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        tangent: &[F],
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        let _ = (batch, mode, tangent, weight, product);
        Err(ObjectiveError::NoOutputs)
    }

    /// The squared norms of the gradients of single examples, by layer.
    ///
    /// # Errors
    /// As [`Point::gradient`], and where the loss of an example depends on others.
    fn example_norms(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Result<ExampleNorms, ObjectiveError> {
        let _ = (batch, mode);
        Err(ObjectiveError::NoExampleNorms)
    }

    /// The exact expected loss, for an objective in closed form that needs no examples to know it.
    fn expected_loss(&self) -> Option<f64> {
        None
    }
}

/// Combines the moments of groups into inference statistics by the law of total variance: with
/// n_g examples in group g, mean = sum n_g mean_g / N and
/// variance = sum n_g (variance_g + (mean_g - mean)^2) / N.
///
/// `groups` holds the layers of a forward pass in order, pass after pass.
pub fn population_statistics(groups: &[GroupMoments]) -> Vec<LayerStatistics> {
    let mut names: Vec<&str> = Vec::new();
    for group in groups {
        if !names.contains(&group.layer.as_str()) {
            names.push(&group.layer);
        }
    }
    names
        .into_iter()
        .map(|name| {
            let own: Vec<&GroupMoments> = groups.iter().filter(|g| g.layer == name).collect();
            let total: f64 = own.iter().map(|g| g.examples as f64).sum();
            let channels = own[0].mean.len();
            let mean: Vec<f64> = (0..channels)
                .map(|c| {
                    own.iter()
                        .map(|g| g.examples as f64 * g.mean[c])
                        .sum::<f64>()
                        / total
                })
                .collect();
            let variance = (0..channels)
                .map(|c| {
                    own.iter()
                        .map(|g| {
                            g.examples as f64 * (g.variance[c] + (g.mean[c] - mean[c]).powi(2))
                        })
                        .sum::<f64>()
                        / total
                })
                .collect();
            LayerStatistics {
                name: name.to_owned(),
                mean,
                variance,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn population_statistics_of_groups_equal_those_of_all_examples() {
        let groups: [&[f64]; 3] = [&[1.0, 2.0, 6.0], &[-3.0, 5.0], &[0.5, 0.25, 8.0, -1.0]];
        let moments = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance =
                values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
            (mean, variance)
        };
        let of_groups: Vec<GroupMoments> = groups
            .iter()
            .map(|values| {
                let (mean, variance) = moments(values);
                GroupMoments {
                    layer: "bn".to_owned(),
                    examples: values.len(),
                    values: values.len(),
                    mean: vec![mean],
                    variance: vec![variance],
                }
            })
            .collect();
        let combined = population_statistics(&of_groups);
        let (mean, variance) = moments(&groups.concat());
        assert!((combined[0].mean[0] - mean).abs() < 1e-14);
        assert!((combined[0].variance[0] - variance).abs() < 1e-13);
    }
}
