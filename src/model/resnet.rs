//! The CIFAR ResNet of He et al. 2016.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use super::network::{Forward, Network, default_initialization};
use super::norm::BatchNormalization;
use crate::objective::{Parameter, Role};
use crate::rng::Stream;

/// ResNet of depth 6k + 2 for small images (He et al. 2016, arXiv 1512.03385, section 4.2): a 3x3
/// convolution, three stages of k basic blocks with w, 2w and 4w channels, the later two starting
/// with stride 2, global average pooling and a dense layer. Shortcuts have no parameters (option
/// A): stride-2 subsampling, and zero channels added, half before and half after.
/// PyTorch names: `conv1`, `bn1`, `layer1.0.conv1`, `layer1.0.bn1`, ..., `linear`.
#[derive(Module, Debug)]
pub struct CifarResnet {
    conv1: Conv2d,
    bn1: BatchNormalization,
    layer1: Vec<BasicBlock>,
    layer2: Vec<BasicBlock>,
    layer3: Vec<BasicBlock>,
    linear: Linear,
}

#[derive(Module, Debug)]
struct BasicBlock {
    conv1: Conv2d,
    bn1: BatchNormalization,
    conv2: Conv2d,
    bn2: BatchNormalization,
    #[module(skip)]
    stride: usize,
}

fn convolution(from: usize, to: usize, stride: usize, device: &Device) -> Conv2d {
    Conv2dConfig::new([from, to], [3, 3])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(device)
}

impl BasicBlock {
    fn new(name: &str, from: usize, to: usize, stride: usize, device: &Device) -> Self {
        Self {
            conv1: convolution(from, to, stride, device),
            bn1: BatchNormalization::new(format!("{name}.bn1"), to, device),
            conv2: convolution(to, to, 1, device),
            bn2: BatchNormalization::new(format!("{name}.bn2"), to, device),
            stride,
        }
    }

    fn forward(&self, input: Tensor<4>, pass: &mut Forward<'_>) -> Tensor<4> {
        let hidden = relu(self.bn1.forward(self.conv1.forward(input.clone()), pass));
        let hidden = self.bn2.forward(self.conv2.forward(hidden), pass);
        let shortcut = if self.stride == 1 {
            input
        } else {
            shortcut(input, hidden.dims())
        };
        relu(hidden + shortcut)
    }
}

/// Every second row and column, zero channels before and after.
fn shortcut(input: Tensor<4>, target: [usize; 4]) -> Tensor<4> {
    let [examples, channels, height, width] = input.dims();
    let device = input.device();
    let dtype = input.dtype();
    let rows = input.slice_dim(2, burn::tensor::s![0..height;2]);
    let small = rows.slice_dim(3, burn::tensor::s![0..width;2]);
    let before = (target[1] - channels) / 2;
    let after = target[1] - channels - before;
    let zeros = |count: usize| {
        Tensor::<4>::zeros([examples, count, target[2], target[3]], (&device, dtype))
    };
    Tensor::cat(vec![zeros(before), small, zeros(after)], 1)
}

impl CifarResnet {
    /// A model of depth 6k + 2 whose first stage has `width` channels.
    pub fn new(
        channels: usize,
        depth: usize,
        width: usize,
        classes: usize,
        device: &Device,
    ) -> Self {
        let blocks = (depth - 2) / 6;
        let stage = |name: &str, from: usize, to: usize, stride: usize| {
            (0..blocks)
                .map(|i| {
                    let (from, stride) = if i == 0 { (from, stride) } else { (to, 1) };
                    BasicBlock::new(&format!("{name}.{i}"), from, to, stride, device)
                })
                .collect()
        };
        Self {
            conv1: convolution(channels, width, 1, device),
            bn1: BatchNormalization::new("bn1", width, device),
            layer1: stage("layer1", width, width, 1),
            layer2: stage("layer2", width, 2 * width, 2),
            layer3: stage("layer3", 2 * width, 4 * width, 2),
            linear: LinearConfig::new(4 * width, classes).init(device),
        }
    }
}

impl Network for CifarResnet {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        let image = pass.image(input);
        let mut hidden = relu(self.bn1.forward(self.conv1.forward(image), pass));
        for block in self.layer1.iter().chain(&self.layer2).chain(&self.layer3) {
            hidden = block.forward(hidden, pass);
        }
        let pooled = hidden.mean_dim(3).mean_dim(2).flatten(1, 3);
        self.linear.forward(pooled)
    }

    /// Convolutions normal with variance 2/fan_in (He et al. 2015); the rest as by default.
    fn initialize(&self, parameter: &Parameter, fan_in: usize, stream: &mut Stream) -> Vec<f64> {
        if parameter.role == Role::Convolution {
            let deviation = (2.0 / fan_in as f64).sqrt();
            return parameter
                .range
                .clone()
                .map(|_| deviation * stream.normal())
                .collect();
        }
        default_initialization(parameter, fan_in, stream)
    }
}
