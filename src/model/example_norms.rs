//! Gradient norms of single examples from one pass.
//!
//! A zero added to the output of a layer has the gradient of the loss by that output as its own,
//! delta_i for example i. With the layer's input a_i that gives the gradient of each example by
//! the layer's parameters, and for a dense layer its norm without the gradient itself (Goodfellow
//! 2015, arXiv 1510.01799): |g_i|^2 = |delta_i|^2 (|a_i|^2 + 1), the 1 for the bias.

use burn::module::{Param, ParamId};
use burn::nn::conv::Conv2d;
use burn::nn::{Linear, PaddingConfig2d};
use burn::tensor::{Gradients, Tensor};

use super::dual::Dual;
use super::norm::host;
use super::weight_norm::{WeightNormalization, directions, lengths};

/// Elements of the unfolded input of a convolution that are held at a time.
const UNFOLDED: usize = 1 << 22;

/// What a forward pass saw of its layers.
#[derive(Debug, Default)]
pub(super) struct Capture {
    sites: Vec<Site>,
    /// Some layer is of a kind that is not known here.
    unknown: bool,
}

/// The input of a layer, and the zero added to its output.
#[derive(Debug)]
enum Site {
    Dense {
        layer: Linear,
        input: Tensor<2>,
        zero: Tensor<2>,
    },
    Convolution {
        layer: Conv2d,
        input: Tensor<4>,
        zero: Tensor<4>,
    },
    Normalization {
        /// Scale and shift.
        parameters: (ParamId, ParamId),
        /// The input without scale and shift, [examples, channels, positions].
        normalized: Tensor<3>,
        zero: Tensor<4>,
    },
}

/// The squared norms of a parameter's gradients, one an example.
pub(super) type Squares = (ParamId, Vec<f64>);

fn with_zero<const D: usize>(output: Tensor<D>) -> (Tensor<D>, Tensor<D>) {
    let zero = output
        .clone()
        .inner()
        .zeros_like()
        .autodiff()
        .require_grad();
    (output + zero.clone(), zero)
}

impl Capture {
    pub(super) fn dense(&mut self, layer: &Linear, input: Tensor<2>) -> Tensor<2> {
        let (output, zero) = with_zero(layer.forward(input.clone()));
        self.sites.push(Site::Dense {
            layer: layer.clone(),
            input: input.inner(),
            zero,
        });
        output
    }

    pub(super) fn convolution(&mut self, layer: &Conv2d, input: Tensor<4>) -> Tensor<4> {
        // burn keeps to itself what it pads for `Same`.
        self.unknown |= matches!(layer.padding, PaddingConfig2d::Same);
        let (output, zero) = with_zero(layer.forward(input.clone()));
        self.sites.push(Site::Convolution {
            layer: layer.clone(),
            input: input.inner(),
            zero,
        });
        output
    }

    /// A normalization layer whose `output` is `normalized`, scaled and shifted; both lie in the
    /// order (example, channel, position), the last axis that of positions.
    pub(super) fn normalization(
        &mut self,
        parameters: (ParamId, ParamId),
        normalized: Tensor<4>,
        channels: usize,
        output: Tensor<4>,
    ) -> Tensor<4> {
        let (output, zero) = with_zero(output);
        let positions = normalized.dims()[3];
        let normalized = normalized.inner();
        let examples = normalized.shape().num_elements() / (channels * positions);
        self.sites.push(Site::Normalization {
            parameters,
            normalized: normalized.reshape([examples, channels, positions]),
            zero,
        });
        output
    }

    /// The squared gradient norms of each parameter, for a sum of losses with these gradients;
    /// nothing if some layer is not known here, or was called twice.
    pub(super) fn squares(self, mut gradients: Gradients) -> Option<Vec<Squares>> {
        if self.unknown {
            return None;
        }
        let mut all: Vec<Squares> = Vec::new();
        for site in self.sites {
            let own = site.squares(&mut gradients);
            if own.iter().any(|(id, _)| all.iter().any(|(k, _)| k == id)) {
                return None;
            }
            all.extend(own);
        }
        Some(all)
    }
}

impl Site {
    fn squares(self, gradients: &mut Gradients) -> Vec<Squares> {
        match self {
            Self::Dense { layer, input, zero } => dense(&layer, input, &gradient(&zero, gradients)),
            Self::Convolution { layer, input, zero } => {
                convolution(&layer, &input, &gradient(&zero, gradients))
            }
            Self::Normalization {
                parameters: (scale, shift),
                normalized,
                zero,
            } => {
                let delta = gradient(&zero, gradients).reshape(normalized.shape());
                let squares = |t: Tensor<3>| row_squares(t.sum_dim(2));
                vec![
                    (scale, squares(delta.clone() * normalized)),
                    (shift, squares(delta)),
                ]
            }
        }
    }
}

/// The gradient of a zero; 0 where the losses do not depend on it.
fn gradient<const D: usize>(zero: &Tensor<D>, gradients: &mut Gradients) -> Tensor<D> {
    zero.grad_remove(gradients)
        .unwrap_or_else(|| zero.clone().inner())
}

/// The sum of squares of each example: over all axes but the first.
fn row_squares<const D: usize>(values: Tensor<D>) -> Vec<f64> {
    let examples = values.dims()[0];
    let rest = values.shape().num_elements() / examples.max(1);
    host(values.reshape([examples, rest]).powi_scalar(2).sum_dim(1))
}

/// u = v/|v| and g/|v| of a normalized weight, with the id of g.
type Parts<const D: usize> = (ParamId, Tensor<D>, Tensor<D>);

fn parts<const D: usize>(weight: &Param<Tensor<D>>) -> Option<Parts<D>> {
    let own = weight.reparameterization::<WeightNormalization>()?;
    let v = Dual::constant(weight.base().inner());
    let lengths = lengths(v.clone()).value;
    let g = own.g.val().inner().reshape(lengths.shape());
    Some((own.g.id, directions(v).value, g / lengths))
}

fn dense(layer: &Linear, input: Tensor<2>, delta: &Tensor<2>) -> Vec<Squares> {
    let mut all = Vec::new();
    let squares = delta.clone().powi_scalar(2);
    let inputs = input.clone().powi_scalar(2).sum_dim(1);
    let bias = host(squares.clone().sum_dim(1));
    match parts(&layer.weight) {
        None => {
            let weight = squares.sum_dim(1) * inputs;
            all.push((layer.weight.id, host(weight)));
        }
        Some((g, u, ratio)) => {
            // The gradient by column j of w is a delta_j; by g_j its part along u_j, by v_j the
            // rest times g_j/|v_j|.
            let along = input.matmul(u).powi_scalar(2);
            let across = (inputs - along.clone()).clamp_min(0);
            let v = squares.clone() * across * ratio.powi_scalar(2);
            all.push((layer.weight.id, host(v.sum_dim(1))));
            all.push((g, host((squares * along).sum_dim(1))));
        }
    }
    all.extend(layer.bias.as_ref().map(|own| (own.id, bias)));
    all
}

fn convolution(layer: &Conv2d, input: &Tensor<4>, delta: &Tensor<4>) -> Vec<Squares> {
    let [examples, outputs, height, width] = delta.dims();
    let positions = height * width;
    let [_, inputs, rows, columns] = layer.weight.dims();
    let groups = layer.groups;
    let own = inputs * rows * columns;
    let parts = parts(&layer.weight);
    let (mut weight, mut scale) = (Vec::new(), Vec::new());
    let padded = pad(input.clone(), &layer.padding);
    let chunk = (UNFOLDED / (groups * own * positions).max(1)).max(1);
    let mut start = 0;
    while start < examples {
        let n = chunk.min(examples - start);
        let unfolded = unfold(layer, &padded.clone().narrow(0, start, n), [height, width]);
        let delta = delta.clone().narrow(0, start, n);
        start += n;
        // The gradient of each example by the kernel: [n, outputs, inputs rows columns].
        let gradient = delta
            .reshape([n, groups, outputs / groups, positions])
            .matmul(
                unfolded
                    .reshape([n, groups, own, positions])
                    .swap_dims(2, 3),
            )
            .reshape([n, outputs, own]);
        match &parts {
            None => weight.extend(row_squares(gradient)),
            Some((_, u, ratio)) => {
                let u = u.clone().reshape([1, outputs, own]);
                let ratio = ratio.clone().reshape([1, outputs, 1]);
                let along = (gradient.clone() * u.clone()).sum_dim(2);
                weight.extend(row_squares((gradient - along.clone() * u) * ratio));
                scale.extend(row_squares(along));
            }
        }
    }
    let mut all = vec![(layer.weight.id, weight)];
    all.extend(parts.map(|(g, _, _)| (g, scale)));
    if let Some(bias) = &layer.bias {
        let delta = delta.clone().reshape([examples, outputs, positions]);
        all.push((bias.id, row_squares(delta.sum_dim(2))));
    }
    all
}

/// Zeros around the images, as the layer adds them.
fn pad(input: Tensor<4>, padding: &PaddingConfig2d) -> Tensor<4> {
    match *padding {
        PaddingConfig2d::Explicit(top, left, bottom, right) => {
            input.pad([(top, bottom), (left, right)], 0.0)
        }
        _ => input,
    }
}

/// What the kernel of a layer sees of padded images, [examples, channels, rows x columns, height x width]
/// for outputs of `height` x `width`.
fn unfold(layer: &Conv2d, padded: &Tensor<4>, [height, width]: [usize; 2]) -> Tensor<4> {
    let [examples, channels, _, _] = padded.dims();
    let [down, right] = layer.stride.map(usize::cast_signed);
    let [row_step, column_step] = layer.dilation;
    let [rows, columns] = layer.kernel_size;
    let [last_row, last_column] = [
        (height - 1) * layer.stride[0],
        (width - 1) * layer.stride[1],
    ];
    let mut seen = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        let top = row * row_step;
        let lines = padded
            .clone()
            .slice_dim(2, burn::tensor::s![top..=top + last_row;down]);
        for column in 0..columns {
            let left = column * column_step;
            let part = lines
                .clone()
                .slice_dim(3, burn::tensor::s![left..=left + last_column;right]);
            seen.push(part.reshape([examples, channels, 1, height * width]));
        }
    }
    Tensor::cat(seen, 2)
}
