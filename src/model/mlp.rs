//! Dense models: softmax regression and the multilayer perceptron.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::{relu, tanh};
use burn::tensor::{Device, Tensor};

use super::network::{Forward, Network};
use crate::config::Activation;

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
    fn forward(&self, input: Tensor<2>, _pass: &mut Forward<'_>) -> Tensor<2> {
        self.linear.forward(input)
    }
}

/// Multilayer perceptron: dense layers with an activation between them. PyTorch names:
/// `layers.0`, `layers.1`, ...
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    #[module(skip)]
    activation: Activation,
}

impl Mlp {
    /// A model with hidden layers of these widths.
    pub fn new(
        features: usize,
        widths: &[usize],
        classes: usize,
        activation: Activation,
        device: &Device,
    ) -> Self {
        let inputs = std::iter::once(features).chain(widths.iter().copied());
        let outputs = widths.iter().copied().chain(std::iter::once(classes));
        let layers = inputs
            .zip(outputs)
            .map(|(i, o)| LinearConfig::new(i, o).init(device))
            .collect();
        Self { layers, activation }
    }
}

impl Network for Mlp {
    fn forward(&self, input: Tensor<2>, _pass: &mut Forward<'_>) -> Tensor<2> {
        let mut hidden = input;
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                hidden = match self.activation {
                    Activation::Relu => relu(hidden),
                    Activation::Tanh => tanh(hidden),
                };
            }
            hidden = layer.forward(hidden);
        }
        hidden
    }
}
