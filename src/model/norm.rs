//! Batch normalization with its group stated.
//!
//! burn's own layer keys running statistics by thread and changes them in every differentiated
//! pass, so that K logical workers cannot share it. This one holds no state: in training it uses
//! the statistics of each group of the batch, at inference those it is given.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use super::network::Forward;
use crate::objective::{GroupMoments, StatisticsMode};

/// Batch normalization over [examples, channels, height, width] (Ioffe and Szegedy 2015):
/// y = weight (x - mean) / sqrt(variance + epsilon) + bias, mean and biased variance over the
/// examples and positions of a group.
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
            epsilon: 1e-5,
            name: name.into(),
        }
    }

    /// Normalizes `input` as `pass` says.
    pub fn forward(&self, input: Tensor<4>, pass: &mut Forward<'_>) -> Tensor<4> {
        let layer = pass.next_layer;
        pass.next_layer += 1;
        match pass.mode {
            StatisticsMode::Batch => self.by_group(input, pass),
            StatisticsMode::Inference(statistics) => {
                let [_, channels, _, _] = input.dims();
                let of = |values: &[f64]| {
                    let device = input.device();
                    let data = burn::tensor::TensorData::new(values.to_vec(), [1, channels, 1, 1]);
                    Tensor::<4>::from_data(
                        data.convert_dtype(input.dtype()),
                        (&device, input.dtype()),
                    )
                };
                let statistics = &statistics[layer];
                let (mean, variance) = (of(&statistics.mean), of(&statistics.variance));
                self.apply(input, mean, variance, 1)
            }
        }
    }

    fn by_group(&self, input: Tensor<4>, pass: &mut Forward<'_>) -> Tensor<4> {
        let groups = pass.groups;
        if let [size, rest @ ..] = groups
            && rest.iter().all(|g| g == size)
        {
            let [examples, channels, height, width] = input.dims();
            let grouped = input.reshape([groups.len(), *size, channels, height * width]);
            return self
                .normalize(grouped, *size, pass)
                .reshape([examples, channels, height, width]);
        }
        let mut start = 0;
        let parts = groups
            .iter()
            .map(|&size| {
                let part = input.clone().narrow(0, start, size);
                start += size;
                let [_, channels, height, width] = part.dims();
                let grouped = part.reshape([1, size, channels, height * width]);
                self.normalize(grouped, size, pass)
                    .reshape([size, channels, height, width])
            })
            .collect();
        Tensor::cat(parts, 0)
    }

    /// Normalizes [groups, examples, channels, positions], each group on its own.
    fn normalize(&self, input: Tensor<4>, size: usize, pass: &mut Forward<'_>) -> Tensor<4> {
        let mean = input.clone().mean_dim(1).mean_dim(3);
        let variance = (input.clone() - mean.clone())
            .powi_scalar(2)
            .mean_dim(1)
            .mean_dim(3);
        if let Some(record) = &mut pass.record {
            let host =
                |tensor: Tensor<4>| -> Vec<f64> { tensor.into_data().iter::<f64>().collect() };
            let [groups, _, channels, _] = mean.dims();
            let (means, variances) = (host(mean.clone()), host(variance.clone()));
            for group in 0..groups {
                let own = group * channels..(group + 1) * channels;
                record.push(GroupMoments {
                    layer: self.name.clone(),
                    examples: size,
                    mean: means[own.clone()].to_vec(),
                    variance: variances[own].to_vec(),
                });
            }
        }
        self.apply(input, mean, variance, 2)
    }

    /// `mean` and `variance` broadcast over `input`; channels lie in dimension `axis`.
    fn apply(
        &self,
        input: Tensor<4>,
        mean: Tensor<4>,
        variance: Tensor<4>,
        axis: usize,
    ) -> Tensor<4> {
        let weight = self.weight.val();
        let mut shape = [1; 4];
        shape[axis] = weight.dims()[0];
        let scale = weight.reshape(shape) / variance.add_scalar(self.epsilon).sqrt();
        (input - mean) * scale + self.bias.val().reshape(shape)
    }
}
