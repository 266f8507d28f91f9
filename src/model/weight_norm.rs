//! Weight normalization.
//!
//! burn can hold a weight as a function of other parameters (its reparameterization hook): the
//! module keeps burn's own dense and convolution layers, `weight.val()` is w = g v/|v|, and a
//! visitor finds v and g as parameters. So a model without weight normalization is unchanged, and
//! any module can have it, one of a user too, without layers of its own.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId, Reparameterization, Reparameterizer};
use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::tensor::{Device, Tensor};

use super::dual::Dual;
use super::norm::host;

/// g of w = g v/|v|, attached to a parameter that holds v.
#[derive(Module, Debug)]
pub(super) struct WeightNormalization {
    pub(super) g: Param<Tensor<1>>,
}

/// The axis of a weight along which its output units lie: the last of a dense weight
/// [inputs, outputs], the first of a convolution kernel.
fn output_axis<const D: usize>() -> usize {
    usize::from(D == 2)
}

/// |v| of each output unit, in the shape that broadcasts over v.
pub(super) fn lengths<const D: usize>(v: Dual<D>) -> Dual<D> {
    let squares = v.square();
    let sums: Dual<D> = if D == 2 {
        squares.linear(|t| t.sum_dim(0))
    } else {
        let outputs = squares.dims()[0];
        let rest = squares.shape().num_elements() / outputs;
        let mut shape = [1; D];
        shape[0] = outputs;
        squares
            .reshape([outputs, rest])
            .linear(|t| t.sum_dim(1))
            .reshape(shape)
    };
    sums.sqrt()
}

/// v/|v|, the norm taken for each output unit.
pub(super) fn directions<const D: usize>(v: Dual<D>) -> Dual<D> {
    let lengths = lengths(v.clone());
    v / lengths
}

impl WeightNormalization {
    /// w = g v/|v|.
    pub(super) fn weight<const D: usize>(v: Dual<D>, g: Dual<1>) -> Dual<D> {
        let mut shape = [1; D];
        shape[output_axis::<D>()] = v.dims()[output_axis::<D>()];
        directions(v) * g.reshape(shape)
    }
}

impl Reparameterization for WeightNormalization {
    const NAME: &'static str = "weight_normalization";

    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        Self::weight(Dual::constant(base), Dual::constant(self.g.val())).value
    }
}

/// Applies weight normalization (Salimans and Kingma 2016, arXiv 1602.07868) to the weights of
/// all dense and convolution layers of a module: w = g v/|v| for each output unit or channel.
///
/// The module's code stays as it is. In the parameter vector `weight` becomes `weight_v`, which
/// keeps its shape, role and initial values, and `weight_g`, with the role of a normalization
/// scale, which starts at |v|, so that w starts at v.
///
/// For data-dependent initialization (section 3 of the paper) the module's forward pass goes
/// through [`Forward::dense`](super::Forward::dense) and
/// [`Forward::convolution`](super::Forward::convolution), and its
/// [`Network::needs_data_initialization`](super::Network::needs_data_initialization) is true.
pub fn weight_normalized<M: Module>(module: M) -> M {
    let mut finder = Finder::default();
    module.visit(&mut finder);
    module.apply_reparameterization(Attach {
        weights: finder.weights,
    })
}

/// Finds the paths of the weights of dense and convolution layers.
#[derive(Default)]
struct Finder {
    path: Vec<String>,
    containers: Vec<String>,
    weights: BTreeSet<String>,
}

impl ModuleVisitor for Finder {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        self.containers.push(container_type.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        // A transposed convolution has its output channels elsewhere.
        let layer = self.containers.last().map_or("", String::as_str);
        let has = layer == "Struct:Linear"
            || (layer.starts_with("Struct:Conv") && !layer.starts_with("Struct:ConvTranspose"));
        if has && self.path.last().is_some_and(|field| field == "weight") {
            self.weights.insert(self.path.join("."));
        }
    }
}

struct Attach {
    weights: BTreeSet<String>,
}

impl Reparameterizer for Attach {
    type Reparam = WeightNormalization;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<WeightNormalization>) {
        if !self.weights.contains(path) {
            return (param, None);
        }
        let outputs = param.lazy_shape()[output_axis::<D>()];
        let device: Device = param.lazy_device();
        let g = Param::from_tensor(Tensor::ones([outputs], &device));
        (param, Some(WeightNormalization { g }))
    }
}

/// What a forward pass finds for data-dependent initialization.
#[derive(Debug, Default)]
pub(super) struct Initialization {
    /// Parameters with their values.
    pub(super) values: Vec<(ParamId, Vec<f64>)>,
    /// The first g whose unit has the same value for all examples.
    pub(super) constant: Option<ParamId>,
}

/// A unit whose deviation is below this share of its mean varies by rounding errors alone.
const CONSTANT: f64 = 1e-6;

impl Initialization {
    /// A dense layer with g and b such that its outputs on `input` have mean 0 and variance 1.
    pub(super) fn dense(&mut self, layer: &Linear, input: Tensor<2>) -> Tensor<2> {
        let Some(own) = layer.weight.reparameterization::<WeightNormalization>() else {
            return layer.forward(input);
        };
        let mut bare = layer.clone();
        bare.weight = Param::from_tensor(directions(Dual::constant(layer.weight.base())).value);
        bare.bias = None;
        let output = bare.forward(input);
        let [examples, units] = output.dims();
        self.standardize(
            output.reshape([examples, units, 1]),
            own.g.id,
            layer.bias.as_ref(),
        )
        .reshape([examples, units])
    }

    /// A convolution, as [`Initialization::dense`], over examples and positions.
    pub(super) fn convolution(&mut self, layer: &Conv2d, input: Tensor<4>) -> Tensor<4> {
        let Some(own) = layer.weight.reparameterization::<WeightNormalization>() else {
            return layer.forward(input);
        };
        let mut bare = layer.clone();
        bare.weight = Param::from_tensor(directions(Dual::constant(layer.weight.base())).value);
        bare.bias = None;
        let output = bare.forward(input);
        let [examples, channels, height, width] = output.dims();
        self.standardize(
            output.reshape([examples, channels, height * width]),
            own.g.id,
            layer.bias.as_ref(),
        )
        .reshape([examples, channels, height, width])
    }

    /// t = v.x/|v|, [examples, units, positions]: g = 1/std(t), b = -mean(t)/std(t), and the
    /// outputs g t + b; without a bias, g t.
    fn standardize(
        &mut self,
        t: Tensor<3>,
        g: ParamId,
        bias: Option<&Param<Tensor<1>>>,
    ) -> Tensor<3> {
        let mean = t.clone().mean_dim(0).mean_dim(2);
        let centered = t.clone() - mean.clone();
        let deviation = centered
            .clone()
            .powi_scalar(2)
            .mean_dim(0)
            .mean_dim(2)
            .sqrt();
        let (means, deviations) = (host(mean), host(deviation.clone()));
        let varies = |(mean, deviation): (&f64, &f64)| *deviation > CONSTANT * mean.abs();
        if !means.iter().zip(&deviations).all(varies) {
            self.constant.get_or_insert(g);
        }
        self.values
            .push((g, deviations.iter().map(|s| 1.0 / s).collect()));
        let Some(bias) = bias else {
            return t / deviation;
        };
        let shift = means.iter().zip(&deviations).map(|(m, s)| -m / s);
        self.values.push((bias.id, shift.collect()));
        centered / deviation
    }
}
