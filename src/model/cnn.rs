//! The simple CNN of Shallue et al. 2018.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor};

use super::network::{Forward, Network};

/// Two 5x5 convolutions (stride 1, zero padding that keeps the size), each followed by ReLU and
/// 2x2 max pooling, a dense layer with ReLU, and a dense output layer (Shallue et al. 2018,
/// arXiv 1811.03600, appendix B: "Simple CNN", 32 and 64 channels, 1024 units). PyTorch names:
/// `conv1`, `conv2`, `dense1`, `dense2`; features are flattened in (channel, row, column) order.
#[derive(Module, Debug)]
pub struct SimpleCnn {
    conv1: Conv2d,
    conv2: Conv2d,
    dense1: Linear,
    dense2: Linear,
}

impl SimpleCnn {
    /// A model for images of `shape` [channels, height, width], at least 4 pixels high and wide.
    pub fn new(
        shape: [usize; 3],
        channels: [usize; 2],
        dense: usize,
        classes: usize,
        device: &Device,
    ) -> Self {
        let convolution = |from: usize, to: usize| {
            Conv2dConfig::new([from, to], [5, 5])
                .with_padding(PaddingConfig2d::Explicit(2, 2, 2, 2))
                .init(device)
        };
        let [depth, height, width] = shape;
        let flat = channels[1] * (height / 2 / 2) * (width / 2 / 2);
        Self {
            conv1: convolution(depth, channels[0]),
            conv2: convolution(channels[0], channels[1]),
            dense1: LinearConfig::new(flat, dense).init(device),
            dense2: LinearConfig::new(dense, classes).init(device),
        }
    }
}

fn pool(input: Tensor<4>) -> Tensor<4> {
    max_pool2d(input, MaxPoolOptions::new([2, 2]))
}

impl Network for SimpleCnn {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        // ReLU and max pooling commute; after pooling ReLU has a quarter of the work.
        let hidden = relu(pool(self.conv1.forward(pass.image(input))));
        let hidden = relu(pool(self.conv2.forward(hidden)));
        let hidden = relu(self.dense1.forward(hidden.flatten(1, 3)));
        self.dense2.forward(hidden)
    }
}
