//! Batch, layer and group normalization.
//!
//! burn's own batch normalization keys running statistics by thread and changes them in every
//! differentiated pass, so that K logical workers cannot share it. The one here holds no state: in
//! training it uses the statistics of each group of the batch, at inference those it is given.
//! Which examples form a group (one worker's shard, a ghost batch inside it, or the whole batch)
//! is not its business: the batch says so.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};

use super::ModelError;
use super::network::Forward;
use crate::config::Normalization;
use crate::objective::{GroupMoments, StatisticsMode};

/// Added to each variance, as in PyTorch.
const EPSILON: f64 = 1e-5;

/// Batch normalization over [examples, channels, ...] (Ioffe and Szegedy 2015):
/// y = weight (x - mean) / sqrt(variance + epsilon) + bias, mean and biased variance over the
/// examples and positions of a group; dense features [examples, features] have one position.
#[derive(Module, Debug)]
pub struct BatchNormalization {
    /// Scale (gamma), one a channel.
    pub weight: Param<Tensor<1>>,
    /// Shift (beta), one a channel.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    epsilon: f64,
    #[module(skip)]
    name: String,
}

impl BatchNormalization {
    /// A layer over `channels` channels with PyTorch's epsilon of 1e-5. `name` is the layer's
    /// path in the model, as PyTorch would call it.
    pub fn new(name: impl Into<String>, channels: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::ones([channels], device)),
            bias: Param::from_tensor(Tensor::zeros([channels], device)),
            epsilon: EPSILON,
            name: name.into(),
        }
    }

    /// Normalizes `input`, [examples, channels, ...], as `pass` says.
    pub fn forward<const D: usize>(&self, input: Tensor<D>, pass: &mut Forward<'_>) -> Tensor<D> {
        let layer = pass.next_layer;
        pass.next_layer += 1;
        let shape = input.shape();
        let (examples, channels) = (shape[0], shape[1]);
        let positions = shape.num_elements() / (examples * channels);
        let output = match pass.mode {
            StatisticsMode::Batch => {
                let examples_first = input.reshape([examples, channels, positions]);
                self.by_group(examples_first, pass)
            }
            StatisticsMode::Inference(statistics) => {
                let (device, dtype) = (input.device(), input.dtype());
                let of = |values: &[f64]| {
                    let data = TensorData::new(values.to_vec(), [1, 1, channels, 1]);
                    Tensor::<4>::from_data(data.convert_dtype(dtype), (&device, dtype))
                };
                let statistics = &statistics[layer];
                let centered =
                    input.reshape([1, examples, channels, positions]) - of(&statistics.mean);
                self.apply(centered, of(&statistics.variance))
            }
        };
        output.reshape(shape)
    }

    /// Normalizes [examples, channels, positions] by the groups of `pass`. Each run of groups of
    /// one size takes one pass, so that ghost batches with a larger last one take two.
    fn by_group(&self, input: Tensor<3>, pass: &mut Forward<'_>) -> Tensor<4> {
        let [examples, channels, positions] = input.dims();
        let runs: Vec<&[usize]> = pass.groups.chunk_by(|a, b| a == b).collect();
        if let [run] = *runs {
            let grouped = input.reshape([run.len(), run[0], channels, positions]);
            return self
                .normalize(grouped, pass)
                .reshape([1, examples, channels, positions]);
        }
        let mut start = 0;
        let parts = runs
            .into_iter()
            .map(|run| {
                let length = run.len() * run[0];
                let part = input.clone().narrow(0, start, length);
                start += length;
                let grouped = part.reshape([run.len(), run[0], channels, positions]);
                self.normalize(grouped, pass)
                    .reshape([1, length, channels, positions])
            })
            .collect();
        Tensor::cat(parts, 1)
    }

    /// Normalizes [groups, examples, channels, positions], each group on its own.
    fn normalize(&self, input: Tensor<4>, pass: &mut Forward<'_>) -> Tensor<4> {
        let [groups, examples, channels, positions] = input.dims();
        let mean = input.clone().mean_dim(1).mean_dim(3);
        let centered = input - mean.clone();
        let variance = centered.clone().powi_scalar(2).mean_dim(1).mean_dim(3);
        if let Some(record) = &mut pass.record {
            let (means, variances) = (host(mean), host(variance.clone()));
            for group in 0..groups {
                let own = group * channels..(group + 1) * channels;
                record.push(GroupMoments {
                    layer: self.name.clone(),
                    examples,
                    values: examples * positions,
                    mean: means[own.clone()].to_vec(),
                    variance: variances[own].to_vec(),
                });
            }
        }
        self.apply(centered, variance)
    }

    /// Scale and shift of [groups, examples, channels, positions], whose mean is 0 already;
    /// `variance` broadcasts over it.
    fn apply(&self, centered: Tensor<4>, variance: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let shape = [1, 1, weight.dims()[0], 1];
        let scale = weight.reshape(shape) / variance.add_scalar(self.epsilon).sqrt();
        centered * scale + self.bias.val().reshape(shape)
    }
}

/// The values of a tensor, row-major.
pub(super) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Group normalization over [examples, channels, ...] (Wu and He 2018, arXiv 1803.08494):
/// y = weight (x - mean) / sqrt(variance + epsilon) + bias, mean and biased variance over the
/// channels of a group and the positions of one example; weight and bias one a channel.
///
/// With one group it is layer normalization (Ba et al. 2016, arXiv 1607.06450), over all features
/// of one example. For dense features that is PyTorch's `LayerNorm`; for images it is
/// `GroupNorm(1, channels)`, whose weight and bias are one a channel, not one a feature, so that
/// they do not depend on the size of the images.
#[derive(Module, Debug)]
pub struct GroupNormalization {
    /// Scale (gamma), one a channel.
    pub weight: Param<Tensor<1>>,
    /// Shift (beta), one a channel.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    groups: usize,
    #[module(skip)]
    epsilon: f64,
}

impl GroupNormalization {
    /// A layer over `channels` channels in `groups` groups, with PyTorch's epsilon of 1e-5.
    ///
    /// # Errors
    /// If the channels do not divide into the groups.
    pub fn new(groups: usize, channels: usize, device: &Device) -> Result<Self, ModelError> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(ModelError::Groups { channels, groups });
        }
        Ok(Self {
            weight: Param::from_tensor(Tensor::ones([channels], device)),
            bias: Param::from_tensor(Tensor::zeros([channels], device)),
            groups,
            epsilon: EPSILON,
        })
    }

    /// Normalizes `input`, [examples, channels, ...].
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let shape = input.shape();
        let (examples, channels) = (shape[0], shape[1]);
        let (groups, members) = (self.groups, channels / self.groups);
        let positions = shape.num_elements() / (examples * channels);
        let rows = input.reshape([examples, groups, members * positions]);
        let mean = rows.clone().mean_dim(2);
        let centered = rows - mean;
        let variance = centered.clone().powi_scalar(2).mean_dim(2);
        let deviation = variance
            .add_scalar(self.epsilon)
            .sqrt()
            .reshape([examples, groups, 1, 1]);
        let by_channel = |values: Tensor<1>| values.reshape([1, groups, members, 1]);
        let scale = by_channel(self.weight.val()) / deviation;
        let output = centered.reshape([examples, groups, members, positions]) * scale
            + by_channel(self.bias.val());
        output.reshape(shape)
    }
}

/// The normalization between a layer and its activation, of the kind that the config names.
/// Parameters are called `weight` and `bias`, whatever the kind.
#[derive(Module, Debug)]
pub enum Normalizer {
    /// Batch normalization.
    Batch(BatchNormalization),
    /// Group normalization, and layer normalization as its case of one group.
    Group(GroupNormalization),
}

impl Normalizer {
    /// The layer that `normalization` puts behind a layer of `channels` channels (or units):
    /// nothing for `None` and for `Weight`, which is a matter of the weights. `name` is its path
    /// in the model, as PyTorch would call it.
    ///
    /// # Errors
    /// If the channels do not divide into the groups of group normalization.
    pub fn new(
        normalization: Normalization,
        name: impl Into<String>,
        channels: usize,
        device: &Device,
    ) -> Result<Option<Self>, ModelError> {
        Ok(match normalization {
            Normalization::None | Normalization::Weight { .. } => None,
            Normalization::Batch => {
                Some(Self::Batch(BatchNormalization::new(name, channels, device)))
            }
            Normalization::Layer => {
                Some(Self::Group(GroupNormalization::new(1, channels, device)?))
            }
            Normalization::Group { groups } => Some(Self::Group(GroupNormalization::new(
                groups, channels, device,
            )?)),
        })
    }

    /// Normalizes `input`, [examples, channels, ...].
    pub fn forward<const D: usize>(&self, input: Tensor<D>, pass: &mut Forward<'_>) -> Tensor<D> {
        match self {
            Self::Batch(layer) => layer.forward(input, pass),
            Self::Group(layer) => layer.forward(input),
        }
    }
}
