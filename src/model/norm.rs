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
use super::dual::{self, Dual};
use super::example_norms::Capture;
use super::kept::Recall;
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
        self.forward_dual(None, Dual::constant(input), pass).value
    }

    /// [`BatchNormalization::forward`] and its derivative, where input or parameters move;
    /// `direction` is the layer in the place of this one. Statistics of the batch move with the
    /// input, those given do not.
    pub fn forward_dual<const D: usize>(
        &self,
        direction: Option<&Self>,
        input: Dual<D>,
        pass: &mut Forward<'_>,
    ) -> Dual<D> {
        let layer = pass.next_layer;
        pass.next_layer += 1;
        let shape = input.shape();
        let (examples, channels) = (shape[0], shape[1]);
        let positions = shape.num_elements() / (examples * channels);
        let output = match pass.mode {
            StatisticsMode::Batch => {
                let examples_first = input.reshape([examples, channels, positions]);
                self.by_group(direction, examples_first, pass)
            }
            StatisticsMode::Inference(statistics) => {
                let (device, dtype) = (input.value.device(), input.value.dtype());
                let of = |values: &[f64]| {
                    let data = TensorData::new(values.to_vec(), [1, 1, channels, 1]);
                    let data = data.convert_dtype(dtype);
                    Dual::constant(Tensor::<4>::from_data(data, (&device, dtype)))
                };
                let statistics = &statistics[layer];
                let centered =
                    input.reshape([1, examples, channels, positions]) - of(&statistics.mean);
                self.apply(direction, centered, of(&statistics.variance), pass)
            }
        };
        output.linear(|t| t.reshape(shape.clone()))
    }

    /// Normalizes [examples, channels, positions] by the groups of `pass`. Each run of groups of
    /// one size takes one pass, so that ghost batches with a larger last one take two.
    fn by_group(
        &self,
        direction: Option<&Self>,
        input: Dual<3>,
        pass: &mut Forward<'_>,
    ) -> Dual<4> {
        let [examples, channels, positions] = input.dims();
        let runs: Vec<&[usize]> = pass.groups.chunk_by(|a, b| a == b).collect();
        if let [run] = *runs {
            let grouped = input.reshape([run.len(), run[0], channels, positions]);
            return self
                .normalize(direction, grouped, pass)
                .reshape([1, examples, channels, positions]);
        }
        let mut start = 0;
        let parts = runs
            .into_iter()
            .map(|run| {
                let length = run.len() * run[0];
                let part = input.clone().linear(|t| t.narrow(0, start, length));
                start += length;
                let grouped = part.reshape([run.len(), run[0], channels, positions]);
                self.normalize(direction, grouped, pass)
                    .reshape([1, length, channels, positions])
            })
            .collect();
        Dual::cat(parts, 1)
    }

    /// Normalizes [groups, examples, channels, positions], each group on its own.
    fn normalize(
        &self,
        direction: Option<&Self>,
        input: Dual<4>,
        pass: &mut Forward<'_>,
    ) -> Dual<4> {
        let [groups, examples, channels, positions] = input.dims();
        let mean = input.clone().mean_dim(1).mean_dim(3);
        let centered = input - mean.clone();
        let variance = centered.clone().square().mean_dim(1).mean_dim(3);
        if let Some(record) = &mut pass.record {
            let (means, variances) = (host(mean.value), host(variance.value.clone()));
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
        self.apply(direction, centered, variance, pass)
    }

    /// Scale and shift of [groups, examples, channels, positions], whose mean is 0 already;
    /// `variance` broadcasts over it.
    fn apply(
        &self,
        direction: Option<&Self>,
        centered: Dual<4>,
        variance: Dual<4>,
        pass: &mut Forward<'_>,
    ) -> Dual<4> {
        let weight = dual::parameter(&self.weight, direction.map(|d| &d.weight));
        let bias = dual::parameter(&self.bias, direction.map(|d| &d.bias));
        let deviation = variance.add_scalar(self.epsilon).sqrt();
        let shape = [1, 1, weight.dims()[0], 1];
        let input = pass
            .capture
            .as_ref()
            .map(|_| centered.value.clone() / deviation.value.clone());
        let scale = weight.reshape(shape) / deviation;
        let output = centered * scale + bias.reshape(shape);
        captured(output, input, (&self.weight, &self.bias), &mut pass.capture)
    }
}

/// The output of a normalization layer, its scale and shift noted where the pass takes the
/// gradient norms of single examples.
fn captured(
    output: Dual<4>,
    normalized: Option<Tensor<4>>,
    (scale, shift): (&Param<Tensor<1>>, &Param<Tensor<1>>),
    capture: &mut Option<Capture>,
) -> Dual<4> {
    match (capture, normalized) {
        (Some(capture), Some(normalized)) => Dual::constant(capture.normalization(
            (scale.id, shift.id),
            normalized,
            scale.val().dims()[0],
            output.value,
        )),
        _ => output,
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
        self.run(None, Dual::constant(input), &mut None, None).value
    }

    /// [`GroupNormalization::forward`] and its derivative, where input or parameters move;
    /// `direction` is the layer in the place of this one.
    pub fn forward_dual<const D: usize>(
        &self,
        direction: Option<&Self>,
        input: Dual<D>,
        pass: &mut Forward<'_>,
    ) -> Dual<D> {
        self.run(direction, input, &mut pass.capture, pass.recall.as_mut())
    }

    fn run<const D: usize>(
        &self,
        direction: Option<&Self>,
        input: Dual<D>,
        capture: &mut Option<Capture>,
        recall: Option<&mut Recall<'_>>,
    ) -> Dual<D> {
        let shape = input.shape();
        let (examples, channels) = (shape[0], shape[1]);
        let (groups, members) = (self.groups, channels / self.groups);
        let positions = shape.num_elements() / (examples * channels);
        let rows = input.reshape([examples, groups, members * positions]);
        let known = recall.and_then(|recall| recall.centered(self.weight.id, &rows));
        let [centered, variance] = known.unwrap_or_else(|| {
            let mean = rows.clone().mean_dim(2);
            let centered = rows - mean;
            let variance = centered.clone().square().mean_dim(2);
            [centered, variance]
        });
        let deviation = variance
            .add_scalar(self.epsilon)
            .sqrt()
            .reshape([examples, groups, 1, 1]);
        let centered = centered.reshape([examples, groups, members, positions]);
        let normalized = capture
            .as_ref()
            .map(|_| centered.value.clone() / deviation.value.clone());
        let weight = dual::parameter(&self.weight, direction.map(|d| &d.weight));
        let bias = dual::parameter(&self.bias, direction.map(|d| &d.bias));
        let by_channel = [1, groups, members, 1];
        let scale = weight.reshape(by_channel) / deviation;
        let output = centered * scale + bias.reshape(by_channel);
        let output = captured(output, normalized, (&self.weight, &self.bias), capture);
        output.linear(|t| t.reshape(shape.clone()))
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
        self.forward_dual(None, Dual::constant(input), pass).value
    }

    /// [`Normalizer::forward`] and its derivative, where input or parameters move; `direction` is
    /// the layer in the place of this one, of the same kind.
    pub fn forward_dual<const D: usize>(
        &self,
        direction: Option<&Self>,
        input: Dual<D>,
        pass: &mut Forward<'_>,
    ) -> Dual<D> {
        match (self, direction) {
            (Self::Batch(layer), Some(Self::Batch(direction))) => {
                layer.forward_dual(Some(direction), input, pass)
            }
            (Self::Group(layer), Some(Self::Group(direction))) => {
                layer.forward_dual(Some(direction), input, pass)
            }
            (Self::Batch(layer), _) => layer.forward_dual(None, input, pass),
            (Self::Group(layer), _) => layer.forward_dual(None, input, pass),
        }
    }
}
