//! Dual numbers: a tensor and its derivative along a direction.
//!
//! Products with the Hessian by reverse over forward differentiation (Pearlmutter 1994, "Fast exact
//! multiplication by the Hessian", in another order): where each parameter moves at the rate v, the
//! rate of the loss is L' = grad L . v, an ordinary tensor, and the gradient of L' is H v. burn's
//! autodiff, which differentiates once only, suffices for it.

use std::ops::{Add, Div, Mul, Sub};

use burn::module::Param;
use burn::nn::Linear;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::module::{linear, max_pool2d, max_pool2d_with_indices};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Shape, Tensor, activation};

use super::kept::{Known, Map, Recall};
use super::weight_norm::WeightNormalization;

/// A tensor that moves at a rate: value + t tangent, to first order in t.
///
/// Without tangents each operation is burn's own and nothing else.
#[derive(Debug, Clone)]
pub struct Dual<const D: usize> {
    /// The tensor.
    pub value: Tensor<D>,
    /// Its derivative, of the same shape. `None`: it does not move.
    pub tangent: Option<Tensor<D>>,
}

fn sum<const D: usize>(a: Option<Tensor<D>>, b: Option<Tensor<D>>) -> Option<Tensor<D>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, None) => a,
        (None, b) => b,
    }
}

impl<const D: usize> Dual<D> {
    /// A tensor that moves at the rate `tangent`.
    pub fn new(value: Tensor<D>, tangent: Tensor<D>) -> Self {
        Self {
            value,
            tangent: Some(tangent),
        }
    }

    /// A tensor that does not move.
    pub fn constant(value: Tensor<D>) -> Self {
        Self {
            value,
            tangent: None,
        }
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.value.shape()
    }

    /// Its dimensions.
    pub fn dims(&self) -> [usize; D] {
        self.value.dims()
    }

    /// A linear map, such as a reshape, a slice or a mean: value and tangent each go through it.
    pub fn linear<const E: usize>(self, map: impl Fn(Tensor<D>) -> Tensor<E>) -> Dual<E> {
        Dual {
            value: map(self.value),
            tangent: self.tangent.map(map),
        }
    }

    /// `Tensor::reshape`.
    pub fn reshape<const E: usize>(self, shape: [usize; E]) -> Dual<E> {
        self.linear(|t| t.reshape(shape))
    }

    /// `Tensor::mean_dim`.
    pub fn mean_dim(self, axis: usize) -> Self {
        self.linear(|t| t.mean_dim(axis))
    }

    /// `Tensor::add_scalar`.
    pub fn add_scalar(self, number: f64) -> Self {
        Self {
            value: self.value.add_scalar(number),
            tangent: self.tangent,
        }
    }

    /// x^2, elementwise: (x^2)' = 2 x x'.
    pub fn square(self) -> Self {
        match self.tangent {
            None => Self::constant(self.value.powi_scalar(2)),
            Some(tangent) => Self::new(
                self.value.clone().powi_scalar(2),
                (self.value * tangent).mul_scalar(2),
            ),
        }
    }

    /// The square root, elementwise: x'/(2 sqrt(x)).
    pub fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        let tangent = self.tangent.map(|t| t / value.clone().mul_scalar(2));
        Self { value, tangent }
    }

    /// max(x, 0), elementwise; the tangent is 0 where x is at most 0, as in burn's gradient.
    pub fn relu(self) -> Self {
        let value = activation::relu(self.value);
        let tangent = self.tangent.map(|t| {
            let off = value.clone().inner().lower_equal_elem(0);
            t.mask_fill(off, 0)
        });
        Self { value, tangent }
    }

    /// tanh(x), elementwise: (1 - tanh(x)^2) x'.
    pub fn tanh(self) -> Self {
        let value = activation::tanh(self.value);
        let tangent = self.tangent.map(|t| {
            let square = value.clone() * value.clone();
            t * square.neg().add_scalar(1)
        });
        Self { value, tangent }
    }

    /// `Tensor::cat`.
    pub fn cat(parts: Vec<Self>, axis: usize) -> Self {
        let moving = parts.iter().any(|part| part.tangent.is_some());
        let tangents = moving.then(|| {
            let tangent = |part: &Self| match &part.tangent {
                Some(tangent) => tangent.clone(),
                None => part.value.zeros_like(),
            };
            Tensor::cat(parts.iter().map(tangent).collect(), axis)
        });
        let values = parts.into_iter().map(|part| part.value).collect();
        Self {
            value: Tensor::cat(values, axis),
            tangent: tangents,
        }
    }
}

impl<const D: usize> Add for Dual<D> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            tangent: sum(self.tangent, other.tangent),
        }
    }
}

impl<const D: usize> Sub for Dual<D> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let tangent = match (self.tangent, other.tangent) {
            (Some(a), Some(b)) => Some(a - b),
            (a, None) => a,
            (None, Some(b)) => Some(b.neg()),
        };
        Self {
            value: self.value - other.value,
            tangent,
        }
    }
}

impl<const D: usize> Mul for Dual<D> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let left = self.tangent.map(|t| t * other.value.clone());
        let right = other.tangent.map(|t| self.value.clone() * t);
        Self {
            value: self.value * other.value,
            tangent: sum(left, right),
        }
    }
}

impl<const D: usize> Div for Dual<D> {
    type Output = Self;

    /// (a/b)' = (a' - (a/b) b')/b.
    fn div(self, other: Self) -> Self {
        if self.tangent.is_none() && other.tangent.is_none() {
            return Self::constant(self.value / other.value);
        }
        let value = self.value / other.value.clone();
        let drift = other.tangent.map(|t| (value.clone() * t).neg());
        let tangent = sum(self.tangent, drift).map(|t| t / other.value);
        Self { value, tangent }
    }
}

impl Dual<4> {
    /// Max pooling; the tangent is that of the largest input of each window.
    pub fn max_pool(self, options: MaxPoolOptions<2>) -> Self {
        let Some(tangent) = self.tangent else {
            return Self::constant(max_pool2d(self.value, options));
        };
        let [examples, channels, height, width] = self.value.dims();
        let (value, indices) = max_pool2d_with_indices(self.value, options);
        let shape = value.dims();
        let planes = examples * channels;
        let tangent = tangent
            .reshape([planes, height * width])
            .gather(1, indices.reshape([planes, shape[2] * shape[3]]))
            .reshape(shape);
        Self::new(value, tangent)
    }
}

/// A parameter, moving where a direction is given. A normalized weight moves with its two parts.
pub(super) fn parameter<const D: usize>(
    own: &Param<Tensor<D>>,
    direction: Option<&Param<Tensor<D>>>,
) -> Dual<D> {
    let Some(direction) = direction else {
        return Dual::constant(own.val());
    };
    let parts = own
        .reparameterization::<WeightNormalization>()
        .zip(direction.reparameterization::<WeightNormalization>());
    match parts {
        Some((scale, moving)) => WeightNormalization::weight(
            Dual::new(own.base(), direction.base()),
            Dual::new(scale.g.val(), moving.g.val()),
        ),
        None => Dual::new(own.val(), direction.val()),
    }
}

/// An affine map whose operation `apply` is linear in input and weight together with bias:
/// y' = apply(x, w', b') + apply(x', w, nothing). Some of it may be kept.
fn affine<const D: usize, const W: usize>(
    input: Dual<D>,
    weight: Dual<W>,
    bias: Option<Dual<1>>,
    apply: impl Fn(Tensor<D>, Tensor<W>, Option<Tensor<1>>) -> Tensor<D>,
    known: Option<&Known>,
) -> Dual<D> {
    let (bias, bias_tangent) = match bias {
        None => (None, None),
        Some(bias) => (Some(bias.value), bias.tangent),
    };
    let rate = known.and_then(|known| {
        let input = [&input.value, input.tangent.as_ref()?];
        let weight = [&weight.value, weight.tangent.as_ref()?];
        known.rate(input, weight, bias_tangent.as_ref())
    });
    let tangent = rate.or_else(|| {
        let by_weight = weight
            .tangent
            .map(|tangent| apply(input.value.clone(), tangent, bias_tangent));
        let by_input = input
            .tangent
            .map(|tangent| apply(tangent, weight.value.clone(), None));
        sum(by_weight, by_input)
    });
    let value = known
        .and_then(|known| known.value(&input.value, &weight.value, bias.as_ref()))
        .unwrap_or_else(|| apply(input.value, weight.value, bias));
    Dual { value, tangent }
}

/// A dense layer.
pub(super) fn dense(
    layer: &Linear,
    direction: Option<&Linear>,
    input: Dual<2>,
    recall: Option<&mut Recall<'_>>,
) -> Dual<2> {
    let known = recall.map(|recall| recall.layer(Map::Dense, layer.weight.id, &input));
    if direction.is_none() && input.tangent.is_none() {
        return Dual::constant(layer.forward(input.value));
    }
    let weight = parameter(&layer.weight, direction.map(|d| &d.weight));
    let bias = layer
        .bias
        .as_ref()
        .map(|own| parameter(own, direction.and_then(|d| d.bias.as_ref())));
    affine(input, weight, bias, linear, known.as_ref())
}

/// A convolution.
pub(super) fn convolution(
    layer: &Conv2d,
    direction: Option<&Conv2d>,
    input: Dual<4>,
    recall: Option<&mut Recall<'_>>,
) -> Dual<4> {
    let known = recall
        .zip(options(layer))
        .map(|(recall, options)| recall.layer(Map::Convolution(options), layer.weight.id, &input));
    if direction.is_none() && input.tangent.is_none() {
        return Dual::constant(layer.forward(input.value));
    }
    let weight = parameter(&layer.weight, direction.map(|d| &d.weight));
    let bias = layer
        .bias
        .as_ref()
        .map(|own| parameter(own, direction.and_then(|d| d.bias.as_ref())));
    let apply = |input, weight: Tensor<4>, bias: Option<Tensor<1>>| {
        // The layer knows its stride and padding; only the tensors are others.
        let mut bare = layer.clone();
        bare.weight = Param::initialized(layer.weight.id, weight);
        bare.bias = bias.map(|bias| Param::initialized(layer.weight.id, bias));
        bare.forward(input)
    };
    affine(input, weight, bias, apply, known.as_ref())
}

/// How a layer convolves, where that does not depend on the size of its input.
fn options(layer: &Conv2d) -> Option<ConvOptions<2>> {
    let padding = match layer.padding {
        PaddingConfig2d::Valid => [(0, 0), (0, 0)],
        PaddingConfig2d::Explicit(top, left, bottom, right) => [(top, bottom), (left, right)],
        PaddingConfig2d::Same => return None,
    };
    Some(ConvOptions::new_with_padding(
        layer.stride,
        padding,
        layer.dilation,
        layer.groups,
    ))
}
