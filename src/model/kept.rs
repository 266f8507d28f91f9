//! What one product with the Hessian leaves behind for the next, at the same point on the same examples.
//!
//! In L' = grad L . v (see [`dual`](super::dual)) a layer makes z = A(x, W) + b and its rate
//! ż = A(x, V) + A(ẋ, W) + c, with A bilinear: a matrix product or a convolution. L' is linear in the
//! rates, so that what comes back to ż is the same for every v: it is d, the derivative of the loss by
//! z. These are kept from one product to the next:
//!
//! - z;
//! - what d sends back to ẋ through W;
//! - what d sends back to V, where V itself depends on parameters (weight normalization).
//!
//! Of the eight matrix products or convolutions of a hidden layer (three forward, five backward), six are
//! left: as many as two gradients take. Group normalization keeps its first two steps in the same way.
//! A product that finds nothing kept computes the same in the same order: its bits are those of any
//! other.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::ops::{FloatTensorOps, ModuleOps};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex, TensorMetadata};
use burn::module::ParamId;
use burn::tensor::Tensor;
use burn::tensor::ops::ConvOptions;

use super::dual::Dual;

/// The device whose tensors can be kept.
pub(super) const DEVICE: &str = "flex";

type Values = FloatTensor<Flex>;
type Tracked = FloatTensor<Autodiff<Flex>>;

/// A bilinear map of input and weight, and what goes back through it.
#[derive(Debug, Clone)]
pub(super) enum Map {
    /// [examples, inputs] by [inputs, outputs].
    Dense,
    /// A convolution in two dimensions.
    Convolution(ConvOptions<2>),
}

impl Map {
    fn apply(&self, input: Values, weight: Values, bias: Option<Values>) -> Values {
        match self {
            Self::Dense => Flex::linear(input, weight, bias),
            Self::Convolution(options) => Flex::conv2d(input, weight, bias, options.clone()),
        }
    }

    /// Of the input only the shape counts.
    fn to_input(&self, input: Values, weight: Values, back: Values) -> Values {
        match self {
            Self::Dense => Flex::linear_x_backward(weight, back),
            Self::Convolution(options) => {
                Flex::conv2d_x_backward(input, weight, back, options.clone())
            }
        }
    }

    /// Of the weight only the shape counts.
    fn to_weight(&self, input: Values, weight: Values, back: Values) -> Values {
        match self {
            Self::Dense => Flex::linear_weight_backward(input, back),
            Self::Convolution(options) => {
                Flex::conv2d_weight_backward(input, weight, back, options.clone())
            }
        }
    }

    /// Of input and bias only the shapes count.
    fn to_bias(&self, input: Values, bias: Values, back: Values) -> Values {
        match self {
            Self::Dense => Flex::linear_bias_backward(back),
            Self::Convolution(_) => Flex::conv2d_bias_backward(input, bias, back),
        }
    }
}

/// Which operation it is: the parameter that it belongs to, and the shape of its input.
type Key = (ParamId, Vec<usize>);

/// What is kept of one operation.
#[derive(Debug, Default)]
struct Layer {
    key: OnceLock<Key>,
    output: OnceLock<Values>,
    to_rate: OnceLock<Values>,
    to_direction: OnceLock<Values>,
}

/// What is kept of the operations of a network, in the order of the pass.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Vec<Arc<Layer>>>);

impl Memory {
    /// What it holds.
    pub(super) fn bytes(&self) -> usize {
        let layers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        layers
            .iter()
            .flat_map(|layer| [&layer.output, &layer.to_rate, &layer.to_direction])
            .filter_map(OnceLock::get)
            .map(|values| values.shape().num_elements() * values.dtype().size())
            .sum()
    }

    /// The operation at a place; one of which nothing is kept, where another was there before.
    fn layer(&self, index: usize, key: &Key) -> Arc<Layer> {
        let mut layers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while layers.len() <= index {
            layers.push(Arc::default());
        }
        let layer = &layers[index];
        if layer.key.get_or_init(|| key.clone()) == key {
            layer.clone()
        } else {
            Arc::default()
        }
    }
}

/// A [`Memory`] in one pass through the network.
#[derive(Debug)]
pub(super) struct Recall<'a> {
    memory: &'a Memory,
    next: usize,
}

impl<'a> Recall<'a> {
    /// For a pass that starts.
    pub(super) fn new(memory: &'a Memory) -> Self {
        Self { memory, next: 0 }
    }

    fn next<const D: usize>(&mut self, parameter: ParamId, input: &Dual<D>) -> Arc<Layer> {
        let layer = self
            .memory
            .layer(self.next, &(parameter, input.dims().to_vec()));
        self.next += 1;
        layer
    }

    /// The next layer of the pass, which is the map `map` by `weight`.
    pub(super) fn layer<const D: usize>(
        &mut self,
        map: Map,
        weight: ParamId,
        input: &Dual<D>,
    ) -> Known {
        let layer = self.next(weight, input);
        Known { layer, map }
    }

    /// The next two operations of the pass, in the layer of `parameter`: rows (along the last axis) minus
    /// their means, and the means of the squares of that. `None` where the rows do not move, or are not
    /// tracked on the backend that this knows.
    pub(super) fn centered(&mut self, parameter: ParamId, rows: &Dual<3>) -> Option<[Dual<3>; 2]> {
        let [center, square] = [self.next(parameter, rows), self.next(parameter, rows)];
        let (x, moved) = (tracked(&rows.value)?, tracked(rows.tangent.as_ref()?)?);
        let share = 2.0 / rows.dims()[2] as f64;
        let values = |tensor: &Tracked| tensor.primitive().clone();

        let own = center.output.get_or_init(|| minus_means(values(&x)));
        let c = insert(Centered, [x.node()], (), own.clone());
        let own = minus_means(values(&moved));
        let c_rate = insert(CenteredRate, [moved.node()], center.clone(), own);

        let own = square.output.get_or_init(|| {
            let squares = Flex::float_mul(values(&c), values(&c));
            Flex::float_mean_dim(squares, 2)
        });
        let held = (share, values(&c));
        let s = insert(Square, [c.node()], held, own.clone());
        let products = Flex::float_mul(values(&c), values(&c_rate));
        let own = Flex::float_mul_scalar(Flex::float_mean_dim(products, 2), 2.0.into());
        let held = (square.clone(), share, [values(&c), values(&c_rate)]);
        let s_rate = insert(SquareRate, [c.node(), c_rate.node()], held, own);

        let dual = |value, tangent| {
            let [value, tangent] = [value, tangent].map(Tensor::from_primitive::<Autodiff<Flex>>);
            Dual::new(value, tangent)
        };
        Some([dual(c, c_rate), dual(s, s_rate)])
    }
}

fn minus_means(rows: Values) -> Values {
    let means = Flex::float_mean_dim(rows.clone(), 2);
    Flex::float_sub(rows, means)
}

/// An operation whose output is known, in the graph of its parents.
fn insert<O: Backward<Flex, N>, const N: usize>(
    operation: O,
    parents: [NodeGuard; N],
    state: O::State,
    output: Values,
) -> Tracked {
    let operation = operation.prepare::<NoCheckpointing>(parents);
    match operation.compute_bound().stateful() {
        OpsKind::UnTracked(operation) => operation.finish(output),
        OpsKind::Tracked(operation) => operation.finish(state, output),
    }
}

/// A layer that something may be kept of.
#[derive(Debug)]
pub(super) struct Known {
    layer: Arc<Layer>,
    map: Map,
}

impl Known {
    /// z = A(x, W) + b. `None` where the tensors are not tracked on the backend that this knows.
    pub(super) fn value<const D: usize, const W: usize>(
        &self,
        input: &Tensor<D>,
        weight: &Tensor<W>,
        bias: Option<&Tensor<1>>,
    ) -> Option<Tensor<D>> {
        let (x, w) = (tracked(input)?, tracked(weight)?);
        let b = match bias {
            None => None,
            Some(bias) => Some(tracked(bias)?),
        };
        let (layer, map) = (&self.layer, &self.map);
        let output = layer.output.get_or_init(|| {
            let b = b.as_ref().map(|b| b.primitive().clone());
            map.apply(x.primitive().clone(), w.primitive().clone(), b)
        });
        // Nothing is sent to what stands for the bias of a layer without.
        let nodes = match &b {
            Some(b) => [x.node(), w.node(), b.node()],
            None => [x.node(), w.node(), untracked(&w).node()],
        };
        let held = Held {
            map: map.clone(),
            input: x.into_primitive(),
            weight: w.into_primitive(),
        };
        let bias = b.map(Tracked::into_primitive);
        let z = insert(Value, nodes, (held, bias), output.clone());
        Some(Tensor::from_primitive::<Autodiff<Flex>>(z))
    }

    /// ż = A(x, V) + A(ẋ, W) + c. `None` as in [`Known::value`], and where c is tracked.
    pub(super) fn rate<const D: usize, const W: usize>(
        &self,
        input: [&Tensor<D>; 2],
        weight: [&Tensor<W>; 2],
        bias: Option<&Tensor<1>>,
    ) -> Option<Tensor<D>> {
        let [x, moved] = [tracked(input[0])?, tracked(input[1])?];
        let [w, v] = [tracked(weight[0])?, tracked(weight[1])?];
        let c = match bias {
            None => None,
            Some(bias) if bias.is_tracked() => return None,
            Some(bias) => Some(tracked(bias)?.into_primitive()),
        };
        let nodes = [x.node(), moved.node(), w.node(), v.node()];
        let [x, moved, w, v] = [x, moved, w, v].map(Tracked::into_primitive);
        let map = &self.map;
        let by_weight = map.apply(x.clone(), v.clone(), c);
        let by_input = map.apply(moved.clone(), w.clone(), None);
        let sum = Flex::float_add(by_weight, by_input);
        let held = Held {
            map: map.clone(),
            input: x,
            weight: w,
        };
        let state = (held, [moved, v], self.layer.clone());
        let rate = insert(Rate, nodes, state, sum);
        Some(Tensor::from_primitive::<Autodiff<Flex>>(rate))
    }
}

/// The tensor below the tensor, where it is one of this backend under autodiff.
fn tracked<const D: usize>(tensor: &Tensor<D>) -> Option<Tracked> {
    tensor.clone().try_into_primitive::<Autodiff<Flex>>().ok()
}

/// The same values as nobody's result.
fn untracked(tensor: &Tracked) -> Tracked {
    Tracked::new(tensor.primitive().clone())
}

/// A, x and W.
#[derive(Debug, Clone)]
struct Held {
    map: Map,
    input: Values,
    weight: Values,
}

/// z from x, W and b.
#[derive(Debug)]
struct Value;

impl Backward<Flex, 3> for Value {
    type State = (Held, Option<Values>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let back = gradients.consume::<Flex>(&ops.node);
        let [to_input, to_weight, to_bias] = ops.parents;
        let (held, bias) = ops.state;
        let Held { map, input, weight } = held;
        if let Some(node) = to_input {
            let own = map.to_input(input.clone(), weight.clone(), back.clone());
            gradients.register::<Flex>(node.id, own);
        }
        if let Some(node) = to_weight {
            let own = map.to_weight(input.clone(), weight, back.clone());
            gradients.register::<Flex>(node.id, own);
        }
        if let Some((node, bias)) = to_bias.zip(bias) {
            let own = map.to_bias(input, bias, back);
            gradients.register::<Flex>(node.id, own);
        }
    }
}

/// ż from x, ẋ, W and V.
#[derive(Debug)]
struct Rate;

impl Backward<Flex, 4> for Rate {
    type State = (Held, [Values; 2], Arc<Layer>);

    fn backward(self, ops: Ops<Self::State, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let back = gradients.consume::<Flex>(&ops.node);
        let [to_input, to_rate, to_weight, to_direction] = ops.parents;
        let (held, [moved, direction], layer) = ops.state;
        let Held { map, input, weight } = held;
        if let Some(node) = to_input {
            let own = map.to_input(input.clone(), direction.clone(), back.clone());
            gradients.register::<Flex>(node.id, own);
        }
        if let Some(node) = to_rate {
            let own = layer
                .to_rate
                .get_or_init(|| map.to_input(input.clone(), weight.clone(), back.clone()));
            gradients.register::<Flex>(node.id, own.clone());
        }
        if let Some(node) = to_weight {
            let own = map.to_weight(moved, weight, back.clone());
            gradients.register::<Flex>(node.id, own);
        }
        if let Some(node) = to_direction {
            let own = layer
                .to_direction
                .get_or_init(|| map.to_weight(input, direction, back));
            gradients.register::<Flex>(node.id, own.clone());
        }
    }
}

/// Rows minus their means.
#[derive(Debug)]
struct Centered;

impl Backward<Flex, 1> for Centered {
    type State = ();

    fn backward(self, ops: Ops<(), 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let back = gradients.consume::<Flex>(&ops.node);
        if let [Some(node)] = ops.parents {
            gradients.register::<Flex>(node.id, minus_means(back));
        }
    }
}

/// The same of the rates of rows.
#[derive(Debug)]
struct CenteredRate;

impl Backward<Flex, 1> for CenteredRate {
    type State = Arc<Layer>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let back = gradients.consume::<Flex>(&ops.node);
        if let [Some(node)] = ops.parents {
            let own = ops.state.to_rate.get_or_init(|| minus_means(back));
            gradients.register::<Flex>(node.id, own.clone());
        }
    }
}

/// A number a row times the row.
fn scaled(share: f64, numbers: Values, rows: Values) -> Values {
    Flex::float_mul(rows, Flex::float_mul_scalar(numbers, share.into()))
}

/// s, the means of the squares of c.
#[derive(Debug)]
struct Square;

impl Backward<Flex, 1> for Square {
    type State = (f64, Values);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let back = gradients.consume::<Flex>(&ops.node);
        let (share, c) = ops.state;
        if let [Some(node)] = ops.parents {
            gradients.register::<Flex>(node.id, scaled(share, back, c));
        }
    }
}

/// ṡ, twice the means of c ċ.
#[derive(Debug)]
struct SquareRate;

impl Backward<Flex, 2> for SquareRate {
    type State = (Arc<Layer>, f64, [Values; 2]);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let back = gradients.consume::<Flex>(&ops.node);
        let [to_c, to_rate] = ops.parents;
        let (layer, share, [c, c_rate]) = ops.state;
        if let Some(node) = to_c {
            let own = scaled(share, back.clone(), c_rate);
            gradients.register::<Flex>(node.id, own);
        }
        if let Some(node) = to_rate {
            let own = layer.to_rate.get_or_init(|| scaled(share, back, c));
            gradients.register::<Flex>(node.id, own.clone());
        }
    }
}
