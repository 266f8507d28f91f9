//! The CIFAR ResNet of He et al. 2016.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};

use super::dual::Dual;
use super::network::{Forward, Network, data_dependent, default_initialization, initial_direction};
use super::{ModelError, Normalizer, weight_normalized};
use crate::config::Normalization;
use crate::objective::{Parameter, Role};
use crate::rng::Stream;

/// ResNet of depth 6k + 2 for small images (He et al. 2016, arXiv 1512.03385, section 4.2): a 3x3
/// convolution, three stages of k basic blocks with w, 2w and 4w channels, the later two starting
/// with stride 2, global average pooling and a dense layer. Shortcuts have no parameters (option
/// A): stride-2 subsampling, and zero channels added, half before and half after.
/// PyTorch names: `conv1`, `bn1`, `layer1.0.conv1`, `layer1.0.bn1`, ..., `linear`; `bn1` and
/// `bn2` whatever the kind of normalization. Convolutions have biases only where no normalization
/// layer follows them: without normalization, and with weight normalization.
#[derive(Module, Debug)]
pub struct CifarResnet {
    conv1: Conv2d,
    bn1: Option<Normalizer>,
    layer1: Vec<BasicBlock>,
    layer2: Vec<BasicBlock>,
    layer3: Vec<BasicBlock>,
    linear: Linear,
    #[module(skip)]
    normalization: Normalization,
    #[module(skip)]
    zero_gamma: bool,
}

#[derive(Module, Debug)]
struct BasicBlock {
    conv1: Conv2d,
    bn1: Option<Normalizer>,
    conv2: Conv2d,
    bn2: Option<Normalizer>,
    #[module(skip)]
    stride: usize,
}

/// Makes convolutions and what follows them.
struct Maker<'a> {
    normalization: Normalization,
    device: &'a Device,
}

impl Maker<'_> {
    /// A 3x3 convolution; with a bias if no shift follows it.
    fn convolution(&self, from: usize, to: usize, stride: usize) -> Conv2d {
        let bias = matches!(
            self.normalization,
            Normalization::None | Normalization::Weight { .. }
        );
        Conv2dConfig::new([from, to], [3, 3])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_bias(bias)
            .init(self.device)
    }

    fn normalizer(&self, name: String, channels: usize) -> Result<Option<Normalizer>, ModelError> {
        Normalizer::new(self.normalization, name, channels, self.device)
    }

    fn block(
        &self,
        name: &str,
        from: usize,
        to: usize,
        stride: usize,
    ) -> Result<BasicBlock, ModelError> {
        Ok(BasicBlock {
            conv1: self.convolution(from, to, stride),
            bn1: self.normalizer(format!("{name}.bn1"), to)?,
            conv2: self.convolution(to, to, 1),
            bn2: self.normalizer(format!("{name}.bn2"), to)?,
            stride,
        })
    }
}

/// A convolution and what follows it; each with the layer in its place in the direction.
fn normalized(
    convolution: (&Conv2d, Option<&Conv2d>),
    norm: Option<&Normalizer>,
    norm_direction: Option<&Normalizer>,
    input: Dual<4>,
    pass: &mut Forward<'_>,
) -> Dual<4> {
    let hidden = pass.convolution_dual(convolution.0, convolution.1, input);
    match norm {
        None => hidden,
        Some(norm) => norm.forward_dual(norm_direction, hidden, pass),
    }
}

impl BasicBlock {
    fn run(&self, direction: Option<&Self>, input: Dual<4>, pass: &mut Forward<'_>) -> Dual<4> {
        let hidden = normalized(
            (&self.conv1, direction.map(|d| &d.conv1)),
            self.bn1.as_ref(),
            direction.and_then(|d| d.bn1.as_ref()),
            input.clone(),
            pass,
        )
        .relu();
        let hidden = normalized(
            (&self.conv2, direction.map(|d| &d.conv2)),
            self.bn2.as_ref(),
            direction.and_then(|d| d.bn2.as_ref()),
            hidden,
            pass,
        );
        let target = hidden.dims();
        let shortcut = if self.stride == 1 {
            input
        } else {
            input.linear(|t| shortcut(t, target))
        };
        (hidden + shortcut).relu()
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
    /// A model of depth 6k + 2 whose first stage has `width` channels. With `zero_gamma` the scale
    /// of the last normalization of each block starts at 0, so that every block starts as the
    /// identity, or as its shortcut where it changes the shape (Goyal et al. 2017, arXiv 1706.02677,
    /// section 5.1); without a normalization that has a scale it changes nothing.
    ///
    /// # Errors
    /// If `width` does not divide into the groups of group normalization.
    pub fn new(
        channels: usize,
        depth: usize,
        width: usize,
        classes: usize,
        normalization: Normalization,
        zero_gamma: bool,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let make = Maker {
            normalization,
            device,
        };
        let blocks = (depth - 2) / 6;
        let stage = |name: &str, from: usize, to: usize, stride: usize| {
            (0..blocks)
                .map(|i| {
                    let (from, stride) = if i == 0 { (from, stride) } else { (to, 1) };
                    make.block(&format!("{name}.{i}"), from, to, stride)
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let model = Self {
            conv1: make.convolution(channels, width, 1),
            bn1: make.normalizer("bn1".to_owned(), width)?,
            layer1: stage("layer1", width, width, 1)?,
            layer2: stage("layer2", width, 2 * width, 2)?,
            layer3: stage("layer3", 2 * width, 4 * width, 2)?,
            linear: LinearConfig::new(4 * width, classes).init(device),
            normalization,
            zero_gamma,
        };
        Ok(match normalization {
            Normalization::Weight { .. } => weight_normalized(model),
            _ => model,
        })
    }

    fn run(&self, direction: Option<&Self>, input: Tensor<2>, pass: &mut Forward<'_>) -> Dual<2> {
        let image = Dual::constant(pass.image(input));
        let mut hidden = normalized(
            (&self.conv1, direction.map(|d| &d.conv1)),
            self.bn1.as_ref(),
            direction.and_then(|d| d.bn1.as_ref()),
            image,
            pass,
        )
        .relu();
        for (i, stage) in self.stages().into_iter().enumerate() {
            for (j, block) in stage.iter().enumerate() {
                hidden = block.run(direction.map(|d| &d.stages()[i][j]), hidden, pass);
            }
        }
        let pooled = hidden.linear(|t| t.mean_dim(3).mean_dim(2).flatten(1, 3));
        pass.dense_dual(&self.linear, direction.map(|d| &d.linear), pooled)
    }

    fn stages(&self) -> [&[BasicBlock]; 3] {
        [&self.layer1, &self.layer2, &self.layer3]
    }
}

impl Network for CifarResnet {
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

    /// Convolutions normal with variance 2/fan_in (He et al. 2015); the rest as by default.
    fn initialize(&self, parameter: &Parameter, fan_in: usize, stream: &mut Stream) -> Vec<f64> {
        if self.zero_gamma && parameter.name.ends_with(".bn2.weight") {
            return vec![0.0; parameter.range.len()];
        }
        if let Some(direction) = initial_direction(self.normalization, parameter, stream) {
            return direction;
        }
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

    fn needs_data_initialization(&self) -> bool {
        data_dependent(self.normalization)
    }
}
