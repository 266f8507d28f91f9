//! Products with the Hessian for dense layers in a row, written out.
//!
//! Let a_0 = x, z_l = a_(l-1) W_l + b_l, a_l = f(z_l), the loss cross-entropy of softmax(z_L), and d_l its
//! derivative by z_l. Where the parameters move at the rates V_l and c_l, so do these (the R-operator of
//! Pearlmutter 1994; a dot is the rate, * elementwise):
//!
//! - ż_l = a_(l-1) V_l + ȧ_(l-1) W_l + c_l, with ȧ_0 = 0 and ȧ_l = f'(z_l) * ż_l;
//! - ḋ_L = (diag(p) - p p') ż_L/n, and ḋ_l = f'(z_l) * (ḋ_(l+1) W' + d_(l+1) V') + f''(z_l) * (d_(l+1) W') * ż_l,
//!   W and V those of layer l + 1;
//! - H v is a_(l-1)' ḋ_l + ȧ_(l-1)' d_l for W_l, and the sum of ḋ_l over the examples for b_l.
//!
//! a, f', d and p are the same for each v. They are kept, so that a product takes six matrix products in
//! a hidden layer and two in the first, as many as two gradients and one. The Gauss-Newton product is
//! what is left without the terms in d.

use std::any::Any;
use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use super::burn_objective::{BurnScalar, guard};
use super::{Mlp, Network, SoftmaxRegression};
use crate::config::Activation;
use crate::objective::{Batch, Layout, ObjectiveError, Prepared, Scalar};

/// The activation of a network that is dense layers in a row and nothing else, its parameters a weight
/// and a bias a layer.
pub(super) fn activation<M: Network>(network: &M) -> Option<Activation> {
    let network: &dyn Any = network;
    if network.is::<SoftmaxRegression>() {
        // One layer: there is nothing to activate.
        return Some(Activation::default());
    }
    network.downcast_ref().and_then(Mlp::plain_activation)
}

/// A layer, with what each product needs of it.
struct Layer<F> {
    weight: Tensor<2>,
    weights: Range<usize>,
    biases: Range<usize>,
    /// a_(l-1).
    input: Tensor<2>,
    /// f'(z_(l-1)); empty in the first layer.
    slope: Vec<F>,
    /// f''(z_(l-1)) * (d_l W_l'); empty in the first layer and where f'' is 0.
    bend: Vec<F>,
    /// d_l.
    error: Tensor<2>,
}

/// The layers on fixed examples.
pub(super) struct Chain<F> {
    layers: Vec<Layer<F>>,
    /// p, row by row.
    shares: Vec<F>,
    /// 1/n, times the weight of the examples.
    scale: F,
    device: Device,
    device_name: String,
    parameters: usize,
}

/// The values of a tensor, to be changed in place.
fn values<F: BurnScalar>(data: &mut TensorData) -> &mut [F] {
    data.as_mut_slice()
        .expect("a tensor has the type of its point")
}

fn add<F: Scalar>(sum: &mut [F], terms: &[F]) {
    for (sum, &term) in sum.iter_mut().zip(terms) {
        *sum += term;
    }
}

fn multiply<F: Scalar>(product: &mut [F], factors: &[F]) {
    for (product, &factor) in product.iter_mut().zip(factors) {
        *product = *product * factor;
    }
}

/// f(z), f'(z) and f''(z) from a = f(z).
fn slopes<F: Scalar>(activation: Activation, a: &[F]) -> (Vec<F>, Vec<F>) {
    match activation {
        Activation::Relu => {
            let step = |&a: &F| if a > F::ZERO { F::ONE } else { F::ZERO };
            (a.iter().map(step).collect(), Vec::new())
        }
        Activation::Tanh => {
            let slope = |&a: &F| F::ONE - a * a;
            let bend = |a: &F| -(*a + *a) * slope(a);
            (a.iter().map(slope).collect(), a.iter().map(bend).collect())
        }
    }
}

impl<F: BurnScalar> Chain<F> {
    /// The layers with the parameters in `tensors` on the examples of `batch`, which `weigh` as much.
    pub(super) fn new(
        activation: Activation,
        layout: &Layout,
        tensors: &[Tensor<1>],
        batch: &Batch<F>,
        weight: F,
        device: (&Device, &str),
    ) -> Self {
        let n = batch.len();
        let width = batch.features.len() / n;
        let mut chain = Self {
            layers: Vec::new(),
            shares: Vec::new(),
            scale: weight / F::from_f64(n as f64),
            device: device.0.clone(),
            device_name: device.1.to_owned(),
            parameters: layout.len(),
        };
        let mut bends = Vec::new();
        let features = TensorData::new(batch.features.clone(), [n, width]);
        let mut input = chain.tensor(features);
        let mut slope = Vec::new();
        let pairs = layout
            .parameters
            .chunks_exact(2)
            .zip(tensors.chunks_exact(2));
        let last = pairs.len() - 1;
        for (l, (parameters, tensors)) in pairs.enumerate() {
            let [rows, columns] = [parameters[0].shape[0], parameters[0].shape[1]];
            let weight = tensors[0].clone().reshape([rows, columns]);
            let bias = tensors[1].clone().reshape([1, columns]);
            let z = input.clone().matmul(weight.clone()) + bias;
            chain.layers.push(Layer {
                weight,
                weights: parameters[0].range.clone(),
                biases: parameters[1].range.clone(),
                input,
                slope,
                bend: Vec::new(),
                error: z.clone(),
            });
            if l == last {
                chain.shares = shares(values(&mut z.into_data()), columns);
                break;
            }
            let a = match activation {
                Activation::Relu => burn::tensor::activation::relu(z),
                Activation::Tanh => burn::tensor::activation::tanh(z),
            };
            let (own, bend) = slopes::<F>(activation, values(&mut a.clone().into_data()));
            bends.push(bend);
            (input, slope) = (a, own);
        }
        chain.go_back(&batch.labels, bends);
        chain
    }

    /// Fills in d_l from the last layer to the first, and what bends there.
    fn go_back(&mut self, labels: &[u32], mut bends: Vec<Vec<F>>) {
        let classes = self.shares.len() / labels.len();
        let mut error = self.shares.clone();
        for (row, &label) in error.chunks_exact_mut(classes).zip(labels) {
            row[label as usize] += -F::ONE;
            for x in row {
                *x = *x * self.scale;
            }
        }
        let mut error = self.tensor(TensorData::new(error, [labels.len(), classes]));
        for l in (0..self.layers.len()).rev() {
            let layer = &mut self.layers[l];
            layer.error = error.clone();
            let Some(mut bend) = bends.pop() else { break };
            let mut back = error.matmul(layer.weight.clone().transpose()).into_data();
            let own = values::<F>(&mut back);
            multiply(&mut bend, own);
            multiply(own, &layer.slope);
            layer.bend = bend;
            error = self.tensor(back);
        }
    }

    fn tensor<const D: usize>(&self, data: TensorData) -> Tensor<D> {
        Tensor::from_data(data, (&self.device, F::DTYPE))
    }

    /// Adds the product; with the terms in d, that of the Hessian.
    fn add_product(&self, direction: &[F], hessian: bool, product: &mut [F]) {
        let directions: Vec<Tensor<2>> = self
            .layers
            .iter()
            .map(|layer| {
                let own = direction[layer.weights.clone()].to_vec();
                self.tensor(TensorData::new(own, layer.weight.dims()))
            })
            .collect();
        // ȧ_1, ȧ_2, ..., and ż_1, ż_2, ... where f'' asks for them.
        let mut rates: Vec<Tensor<2>> = Vec::new();
        let mut moves: Vec<TensorData> = Vec::new();
        let mut output = TensorData::new(Vec::<F>::new(), [0, 0]);
        for (l, layer) in self.layers.iter().enumerate() {
            let mut z = layer
                .input
                .clone()
                .matmul(directions[l].clone())
                .into_data();
            let own = values::<F>(&mut z);
            if let Some(rate) = rates.last() {
                let mut through = rate.clone().matmul(layer.weight.clone()).into_data();
                add(own, values(&mut through));
            }
            let bias = &direction[layer.biases.clone()];
            for row in own.chunks_exact_mut(bias.len()) {
                add(row, bias);
            }
            let Some(next) = self.layers.get(l + 1) else {
                output = z;
                break;
            };
            if hessian && !next.bend.is_empty() {
                moves.push(z.clone());
            }
            multiply(values(&mut z), &next.slope);
            rates.push(self.tensor(z));
        }
        self.curve(values(&mut output));
        let mut error = output;
        for (layer, direction) in self.layers.iter().zip(&directions).rev() {
            let sums = &mut product[layer.biases.clone()];
            for row in values::<F>(&mut error).chunks_exact(sums.len()) {
                add(sums, row);
            }
            let rate = self.tensor::<2>(error);
            let sums = &mut product[layer.weights.clone()];
            let own = layer.input.clone().transpose().matmul(rate.clone());
            add(sums, values(&mut own.into_data()));
            let Some(input) = rates.pop() else { break };
            let mut back = rate.matmul(layer.weight.clone().transpose()).into_data();
            let own = values::<F>(&mut back);
            if hessian {
                let moved = input.transpose().matmul(layer.error.clone());
                add(sums, values(&mut moved.into_data()));
                let turned = layer.error.clone().matmul(direction.clone().transpose());
                add(own, values(&mut turned.into_data()));
            }
            multiply(own, &layer.slope);
            if let Some(mut bent) = moves.pop() {
                let bent = values(&mut bent);
                multiply(bent, &layer.bend);
                add(own, bent);
            }
            error = back;
        }
    }

    /// Adds the gradient: a_(l-1)' d_l for W_l, and the sum of d_l over the examples for b_l.
    fn sum_gradient(&self, gradient: &mut [F]) {
        for layer in &self.layers {
            let own = layer.input.clone().transpose().matmul(layer.error.clone());
            let sums = &mut gradient[layer.weights.clone()];
            add(sums, values(&mut own.into_data()));
            let sums = &mut gradient[layer.biases.clone()];
            let mut error = layer.error.clone().into_data();
            for row in values::<F>(&mut error).chunks_exact(sums.len()) {
                add(sums, row);
            }
        }
    }

    /// From ż_L to ḋ_L.
    fn curve(&self, rates: &mut [F]) {
        let classes = self.layers.last().map_or(1, |layer| layer.biases.len());
        let rows = rates.chunks_exact_mut(classes);
        for (row, shares) in rows.zip(self.shares.chunks_exact(classes)) {
            let mean: F = row.iter().zip(shares).map(|(&z, &p)| p * z).sum();
            for (z, &p) in row.iter_mut().zip(shares) {
                *z = self.scale * p * (*z - mean);
            }
        }
    }

    /// Runs `work` on a vector that must be as long as the parameters.
    fn guarded(
        &self,
        what: &str,
        length: usize,
        work: impl FnOnce(),
    ) -> Result<(), ObjectiveError> {
        if length != self.parameters {
            return Err(ObjectiveError::Shape {
                what: what.to_owned(),
                expected: self.parameters.to_string(),
                found: length.to_string(),
            });
        }
        guard(&self.device_name, work)
    }
}

/// softmax of each row.
fn shares<F: BurnScalar>(outputs: &mut [F], classes: usize) -> Vec<F> {
    let mut shares = Vec::with_capacity(outputs.len());
    for row in outputs.chunks_exact(classes) {
        let largest = row.iter().fold(row[0], |m, &z| if z > m { z } else { m });
        let powers = row.iter().map(|&z| (z - largest).to_f64().exp());
        let sum: f64 = powers.clone().sum();
        shares.extend(powers.map(|power| F::from_f64(power / sum)));
    }
    shares
}

impl<F: BurnScalar> Prepared<F> for Chain<F> {
    fn bytes(&self) -> usize {
        let kept = |layer: &Layer<F>| {
            let errors = layer.error.dims();
            let inputs = layer.input.dims();
            inputs[0] * inputs[1] + errors[0] * errors[1] + layer.slope.len() + layer.bend.len()
        };
        let values: usize = self.layers.iter().map(kept).sum();
        (values + self.shares.len()) * F::BYTES
    }

    fn add_gradient(&self, gradient: &mut [F]) -> Result<(), ObjectiveError> {
        self.guarded("gradient", gradient.len(), || self.sum_gradient(gradient))
    }

    fn add_hessian_product(
        &self,
        direction: &[F],
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.guarded("direction", direction.len(), || {
            self.add_product(direction, true, product);
        })
    }

    fn add_gauss_newton_product(
        &self,
        direction: &[F],
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.guarded("direction", direction.len(), || {
            self.add_product(direction, false, product);
        })
    }
}
