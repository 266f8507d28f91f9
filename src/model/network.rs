//! The trait by which a burn module becomes trainable here.

use burn::module::Module;
use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};

use super::dual::{self, Dual};
use super::example_norms::Capture;
use super::kept::Recall;
use super::weight_norm::Initialization;
use crate::config::Normalization;
use crate::objective::{GroupMoments, Parameter, Role, StatisticsMode};
use crate::rng::Stream;

/// A burn module that maps a batch of examples to one row of outputs each.
///
/// Implement this for your own module, register a builder for it under a name
/// ([`Registry::register`](super::Registry::register)), and the name can be used in TOML.
///
/// What a module must not do: keep state between calls, or draw random numbers from burn.
/// burn's `BatchNorm` and `Dropout` do, so a module that holds one is refused; use
/// [`BatchNormalization`](super::BatchNormalization), or [`Normalizer`](super::Normalizer) for
/// the kind that an option names. [`weight_normalized`](super::weight_normalized) gives a module
/// weight normalization.
pub trait Network: Module + Sync + 'static {
    /// Outputs (logits) of shape [examples, outputs] for features of shape [examples, features].
    /// [`Forward::image`] reshapes features to [examples, channels, height, width].
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2>;

    /// Loss of each example, shape `[examples]`. Default: cross-entropy of softmax(outputs), in nats.
    fn losses(&self, outputs: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        log_softmax(outputs, 1)
            .gather(1, labels.unsqueeze_dim(1))
            .squeeze_dim(1)
            .neg()
    }

    /// Whether [`Network::forward_dual`] answers, so that products with the Hessian are exact.
    /// Default: no; they are then differences of gradients.
    fn has_dual(&self) -> bool {
        false
    }

    /// [`Network::forward`], and the derivative of the outputs where each parameter moves at the
    /// rate that `direction`, the same module, holds in its place. Default: `None`.
    ///
    /// To write a network once, write it over [`Dual`] with an optional direction, as batchlab's
    /// own are: [`Forward::dense_dual`], [`Forward::convolution_dual`] and
    /// [`Normalizer::forward_dual`](super::Normalizer::forward_dual) take one, and without it they
    /// do what the forward pass does.
    fn forward_dual(
        &self,
        direction: &Self,
        input: Tensor<2>,
        pass: &mut Forward<'_>,
    ) -> Option<Dual<2>> {
        let _ = (direction, input, pass);
        None
    }

    /// [`Network::losses`], and their derivatives where the outputs move. Default: those of the
    /// default losses, softmax(z) . z' - z'_label. A network that overrides `losses` and has
    /// [`Network::forward_dual`] overrides this too; if it does not, products are refused.
    fn losses_dual(&self, outputs: Dual<2>, labels: Tensor<1, Int>) -> Dual<1> {
        let labels = labels.unsqueeze_dim(1);
        let logarithms = log_softmax(outputs.value, 1);
        let tangent = outputs.tangent.map(|tangent| {
            let mean = (logarithms.clone().exp() * tangent.clone()).sum_dim(1);
            (mean - tangent.gather(1, labels.clone())).squeeze_dim(1)
        });
        Dual {
            value: logarithms.gather(1, labels).squeeze_dim(1).neg(),
            tangent,
        }
    }

    /// Whether every output is piecewise linear in each single parameter while the others stay, as of
    /// dense and convolution layers, ReLU, pooling and batch normalization with fixed statistics. With the
    /// default losses the trace of the Hessian is then that of the Gauss-Newton matrix, which the
    /// gradients of single examples give exactly. Default: no; the trace is then estimated.
    ///
    /// Say no with tanh, with layer, group or weight normalization, and where a parameter is used twice.
    fn is_linear_in_each_parameter(&self) -> bool {
        false
    }

    /// Initial values of one parameter, drawn from its own stream. Default: PyTorch's for dense
    /// and convolution layers, uniform in +-1/sqrt(fan_in) for weights and biases; 1 and 0 for
    /// normalization scale and shift; standard normal for embeddings.
    ///
    /// `fan_in` is the number of inputs that feed one output of the layer the parameter belongs to.
    fn initialize(&self, parameter: &Parameter, fan_in: usize, stream: &mut Stream) -> Vec<f64> {
        default_initialization(parameter, fan_in, stream)
    }

    /// Whether training starts with data-dependent initialization: see
    /// [`weight_normalized`](super::weight_normalized). Default: no.
    fn needs_data_initialization(&self) -> bool {
        false
    }
}

/// Initial v of Salimans and Kingma 2016, section 3, for data-dependent initialization: normal
/// with this standard deviation.
const DIRECTION_DEVIATION: f64 = 0.05;

/// Whether `normalization` asks for data-dependent initialization.
pub(super) fn data_dependent(normalization: Normalization) -> bool {
    matches!(
        normalization,
        Normalization::Weight {
            data_dependent: true
        }
    )
}

/// That v, where `normalization` asks for it and the parameter is one.
pub(super) fn initial_direction(
    normalization: Normalization,
    parameter: &Parameter,
    stream: &mut Stream,
) -> Option<Vec<f64>> {
    let direction =
        data_dependent(normalization) && matches!(parameter.role, Role::Dense | Role::Convolution);
    direction.then(|| {
        let values = parameter.range.clone();
        values
            .map(|_| DIRECTION_DEVIATION * stream.normal())
            .collect()
    })
}

/// See [`Network::initialize`].
pub(crate) fn default_initialization(
    parameter: &Parameter,
    fan_in: usize,
    stream: &mut Stream,
) -> Vec<f64> {
    let n = parameter.range.len();
    match parameter.role {
        Role::NormalizationScale => vec![1.0; n],
        Role::NormalizationShift => vec![0.0; n],
        Role::Embedding => (0..n).map(|_| stream.normal()).collect(),
        Role::Dense | Role::Convolution | Role::Bias | Role::Other => {
            let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
            (0..n)
                .map(|_| bound * (2.0 * stream.uniform() - 1.0))
                .collect()
        }
    }
}

/// What one forward pass knows besides its input: the shape of an example, the groups of the
/// batch, and which batch statistics to use.
#[derive(Debug)]
pub struct Forward<'a> {
    pub(super) example_shape: &'a [usize],
    pub(super) groups: &'a [usize],
    pub(super) mode: StatisticsMode<'a>,
    pub(super) next_layer: usize,
    pub(super) record: Option<Vec<GroupMoments>>,
    pub(super) initialization: Option<Initialization>,
    pub(super) capture: Option<Capture>,
    pub(super) recall: Option<Recall<'a>>,
}

impl Forward<'_> {
    /// Shape of one example: `[features]`, or `[channels, height, width]`.
    pub fn example_shape(&self) -> &[usize] {
        self.example_shape
    }

    /// Reshapes features to [examples, channels, height, width]; a flat example becomes one
    /// channel of height 1.
    pub fn image(&self, input: Tensor<2>) -> Tensor<4> {
        let [examples, features] = input.dims();
        let [channels, height, width] = match *self.example_shape {
            [channels, height, width] => [channels, height, width],
            _ => [1, 1, features],
        };
        input.reshape([examples, channels, height, width])
    }

    /// `layer.forward(input)`. Where the pass is that of data-dependent initialization and the
    /// layer is weight-normalized, with the scale and bias that the input gives.
    ///
    /// Gradient norms of single examples come from one pass where all parameters belong to layers
    /// that are called through [`Forward`] or [`Normalizer`](super::Normalizer).
    pub fn dense(&mut self, layer: &Linear, input: Tensor<2>) -> Tensor<2> {
        self.dense_dual(layer, None, Dual::constant(input)).value
    }

    /// `layer.forward(input)`, as [`Forward::dense`].
    pub fn convolution(&mut self, layer: &Conv2d, input: Tensor<4>) -> Tensor<4> {
        self.convolution_dual(layer, None, Dual::constant(input))
            .value
    }

    /// [`Forward::dense`] and its derivative, where input or parameters move; `direction` is the
    /// layer in the place of `layer`.
    pub fn dense_dual(
        &mut self,
        layer: &Linear,
        direction: Option<&Linear>,
        input: Dual<2>,
    ) -> Dual<2> {
        if let Some(initialization) = &mut self.initialization {
            Dual::constant(initialization.dense(layer, input.value))
        } else if let Some(capture) = &mut self.capture {
            Dual::constant(capture.dense(layer, input.value))
        } else {
            dual::dense(layer, direction, input, self.recall.as_mut())
        }
    }

    /// [`Forward::convolution`] and its derivative, as [`Forward::dense_dual`].
    pub fn convolution_dual(
        &mut self,
        layer: &Conv2d,
        direction: Option<&Conv2d>,
        input: Dual<4>,
    ) -> Dual<4> {
        if let Some(initialization) = &mut self.initialization {
            Dual::constant(initialization.convolution(layer, input.value))
        } else if let Some(capture) = &mut self.capture {
            Dual::constant(capture.convolution(layer, input.value))
        } else {
            dual::convolution(layer, direction, input, self.recall.as_mut())
        }
    }
}
