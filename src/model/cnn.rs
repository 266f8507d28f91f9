//! The simple CNN of Shallue et al. 2018.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor};

use super::dual::Dual;
use super::network::{Forward, Network, data_dependent, default_initialization, initial_direction};
use super::{ModelError, Normalizer, weight_normalized};
use crate::config::Normalization;
use crate::objective::Parameter;
use crate::rng::Stream;

/// Two 5x5 convolutions (stride 1, zero padding that keeps the size), each followed by ReLU and
/// 2x2 max pooling, a dense layer with ReLU, and a dense output layer (Shallue et al. 2018,
/// arXiv 1811.03600, appendix B: "Simple CNN", 32 and 64 channels, 1024 units). PyTorch names:
/// `conv1`, `conv2`, `dense1`, `dense2`; features are flattened in (channel, row, column) order.
/// With normalization, `norms.0` to `norms.2` lie behind the first three, before ReLU and pooling.
/// All layers keep their biases under any normalization.
#[derive(Module, Debug)]
pub struct SimpleCnn {
    conv1: Conv2d,
    conv2: Conv2d,
    dense1: Linear,
    dense2: Linear,
    norms: Vec<Normalizer>,
    #[module(skip)]
    normalization: Normalization,
}

impl SimpleCnn {
    /// A model for images of `shape` [channels, height, width], at least 4 pixels high and wide.
    ///
    /// # Errors
    /// If a width does not divide into the groups of group normalization.
    pub fn new(
        shape: [usize; 3],
        channels: [usize; 2],
        dense: usize,
        classes: usize,
        normalization: Normalization,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let convolution = |from: usize, to: usize| {
            Conv2dConfig::new([from, to], [5, 5])
                .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
                .init(device)
        };
        let [depth, height, width] = shape;
        let flat = channels[1] * (height / 2 / 2) * (width / 2 / 2);
        let mut norms = Vec::new();
        for (i, width) in [channels[0], channels[1], dense].into_iter().enumerate() {
            norms.extend(Normalizer::new(
                normalization,
                format!("norms.{i}"),
                width,
                device,
            )?);
        }
        let model = Self {
            conv1: convolution(depth, channels[0]),
            conv2: convolution(channels[0], channels[1]),
            dense1: LinearConfig::new(flat, dense).init(device),
            dense2: LinearConfig::new(dense, classes).init(device),
            norms,
            normalization,
        };
        Ok(match normalization {
            Normalization::Weight { .. } => weight_normalized(model),
            _ => model,
        })
    }

    fn normalize<const D: usize>(
        &self,
        index: usize,
        direction: Option<&Self>,
        hidden: Dual<D>,
        pass: &mut Forward<'_>,
    ) -> Dual<D> {
        match self.norms.get(index) {
            None => hidden,
            Some(norm) => norm.forward_dual(direction.map(|d| &d.norms[index]), hidden, pass),
        }
    }

    fn run(&self, direction: Option<&Self>, input: Tensor<2>, pass: &mut Forward<'_>) -> Dual<2> {
        let pool = |hidden: Dual<4>| hidden.max_pool(MaxPoolOptions::new([2, 2]));
        // ReLU and max pooling commute; after pooling ReLU has a quarter of the work.
        let image = Dual::constant(pass.image(input));
        let hidden = pass.convolution_dual(&self.conv1, direction.map(|d| &d.conv1), image);
        let hidden = pool(self.normalize(0, direction, hidden, pass)).relu();
        let hidden = pass.convolution_dual(&self.conv2, direction.map(|d| &d.conv2), hidden);
        let hidden = pool(self.normalize(1, direction, hidden, pass)).relu();
        let flat = hidden.linear(|t| t.flatten(1, 3));
        let hidden = pass.dense_dual(&self.dense1, direction.map(|d| &d.dense1), flat);
        let hidden = self.normalize(2, direction, hidden, pass).relu();
        pass.dense_dual(&self.dense2, direction.map(|d| &d.dense2), hidden)
    }
}

impl Network for SimpleCnn {
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
        self.normalization.keeps_linear()
    }

    fn initialize(&self, parameter: &Parameter, fan_in: usize, stream: &mut Stream) -> Vec<f64> {
        initial_direction(self.normalization, parameter, stream)
            .unwrap_or_else(|| default_initialization(parameter, fan_in, stream))
    }

    fn needs_data_initialization(&self) -> bool {
        data_dependent(self.normalization)
    }
}
