//! Dense models: softmax regression and the multilayer perceptron.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::dual::Dual;
use super::network::{Forward, Network, data_dependent, default_initialization, initial_direction};
use super::{ModelError, Normalizer, weight_normalized};
use crate::config::{Activation, Normalization};
use crate::objective::Parameter;
use crate::rng::Stream;

/// Softmax regression: logits = x W + b. PyTorch name: `linear`.
#[derive(Module, Debug)]
pub struct SoftmaxRegression {
    linear: Linear,
}

impl SoftmaxRegression {
    /// A model for `features` features and `classes` classes.
    pub fn new(features: usize, classes: usize, device: &Device) -> Self {
        Self {
            linear: LinearConfig::new(features, classes).init(device),
        }
    }
}

impl Network for SoftmaxRegression {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        pass.dense(&self.linear, input)
    }

    fn has_dual(&self) -> bool {
        true
    }

    fn forward_dual(
        &self,
        direction: &Self,
        input: Tensor<2>,
        pass: &mut Forward<'_>,
    ) -> Option<Dual<2>> {
        let input = Dual::constant(input);
        Some(pass.dense_dual(&self.linear, Some(&direction.linear), input))
    }

    fn is_linear_in_each_parameter(&self) -> bool {
        true
    }
}

/// Multilayer perceptron: dense layers with an activation between them, and where asked a
/// normalization before each activation. PyTorch names: `layers.0`, `layers.1`, ...; `norms.0`
/// behind `layers.0`, and so on. Dense layers keep their biases under any normalization.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    norms: Vec<Normalizer>,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    normalization: Normalization,
}

impl Mlp {
    /// A model with hidden layers of these widths.
    ///
    /// # Errors
    /// If a width does not divide into the groups of group normalization.
    pub fn new(
        features: usize,
        widths: &[usize],
        classes: usize,
        activation: Activation,
        normalization: Normalization,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let inputs = std::iter::once(features).chain(widths.iter().copied());
        let outputs = widths.iter().copied().chain(std::iter::once(classes));
        let layers = inputs
            .zip(outputs)
            .map(|(i, o)| LinearConfig::new(i, o).init(device))
            .collect();
        let mut norms = Vec::new();
        for (i, &width) in widths.iter().enumerate() {
            norms.extend(Normalizer::new(
                normalization,
                format!("norms.{i}"),
                width,
                device,
            )?);
        }
        let model = Self {
            layers,
            norms,
            activation,
            normalization,
        };
        Ok(match normalization {
            Normalization::Weight { .. } => weight_normalized(model),
            _ => model,
        })
    }

    /// The activation, where the layers have no normalization.
    pub(super) fn plain_activation(&self) -> Option<Activation> {
        matches!(self.normalization, Normalization::None).then_some(self.activation)
    }

    fn run(&self, direction: Option<&Self>, input: Tensor<2>, pass: &mut Forward<'_>) -> Dual<2> {
        let mut hidden = Dual::constant(input);
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                if let Some(norm) = self.norms.get(i - 1) {
                    hidden = norm.forward_dual(direction.map(|d| &d.norms[i - 1]), hidden, pass);
                }
                hidden = match self.activation {
                    Activation::Relu => hidden.relu(),
                    Activation::Tanh => hidden.tanh(),
                };
            }
            hidden = pass.dense_dual(layer, direction.map(|d| &d.layers[i]), hidden);
        }
        hidden
    }
}

impl Network for Mlp {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        self.run(None, input, pass).value
    }

    fn has_dual(&self) -> bool {
        true
    }

    fn forward_dual(
        &self,
        direction: &Self,
        input: Tensor<2>,
        pass: &mut Forward<'_>,
    ) -> Option<Dual<2>> {
        Some(self.run(Some(direction), input, pass))
    }

    fn is_linear_in_each_parameter(&self) -> bool {
        self.activation == Activation::Relu && self.normalization.keeps_linear()
    }

    fn initialize(&self, parameter: &Parameter, fan_in: usize, stream: &mut Stream) -> Vec<f64> {
        initial_direction(self.normalization, parameter, stream)
            .unwrap_or_else(|| default_initialization(parameter, fan_in, stream))
    }

    fn needs_data_initialization(&self) -> bool {
        data_dependent(self.normalization)
    }
}
