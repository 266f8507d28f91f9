//! A burn module as loss and gradient of a flat parameter vector.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId, Reparameterization};
use burn::tensor::{DType, Device, Element, Gradients, Int, Tensor, TensorData};

use super::chain::{self, Chain};
use super::dual::Dual;
use super::example_norms::Capture;
use super::kept::{self, Memory, Recall};
use super::network::{Forward, Network};
use super::norm::host;
use super::weight_norm::{Initialization, WeightNormalization};
use crate::backend::{self, BackendError};
use crate::objective::{
    Along, Batch, ExampleNorms, GroupMoments, LayerStatistics, Layout, Objective, ObjectiveError,
    Point, Predictions, Prepared, Role, Scalar, StatisticsMode, difference_step,
    example_norms_one_by_one,
};
use crate::rng::Stream;

/// A [`Scalar`] that burn knows.
pub trait BurnScalar: Scalar + Element {
    /// burn's name of the type.
    const DTYPE: DType;
}
impl BurnScalar for f32 {
    const DTYPE: DType = DType::F32;
}
impl BurnScalar for f64 {
    const DTYPE: DType = DType::F64;
}

/// Why a module cannot become an objective.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It holds a layer whose state or randomness breaks the contracts of training.
    #[error(
        "the module holds burn's {layer} at `{path}`, which keeps {reason}\n\
         hint: {hint}"
    )]
    Layer {
        /// The layer's type.
        layer: &'static str,
        /// Its path in the module.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
        /// What to use.
        hint: &'static str,
    },
    /// Two parameters have one name.
    #[error("two parameters of the module are called `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// It has no parameters.
    #[error("the module has no parameters to train")]
    Empty,
    /// It has more parameters than one flat vector takes.
    #[error(
        "the model has {found} parameters, more than {MAX_PARAMETERS}\n\
         hint: make it narrower"
    )]
    TooLarge {
        /// Its parameters.
        found: usize,
    },
    /// Channels that do not divide into the groups of group normalization.
    #[error("group normalization: {channels} channels do not divide into {groups} groups")]
    Groups {
        /// The channels.
        channels: usize,
        /// The groups.
        groups: usize,
    },
    /// The device cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Largest number of parameters: 8 GiB in f32, and several times that in training.
const MAX_PARAMETERS: usize = 1 << 31;

/// How one parameter of the module maps to PyTorch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreign {
    /// Stored [in, out] here and [out, in] in PyTorch.
    pub(super) transposed: bool,
    /// Inputs that feed one output of its layer.
    pub(super) fan_in: usize,
    /// Where it is the scale g of a weight w = g v/|v|: the index of v.
    scale_of: Option<usize>,
}

/// A burn module as an [`Objective`].
#[derive(Debug, Clone)]
pub struct BurnObjective<M> {
    network: M,
    device: Device,
    device_name: String,
    example_shape: Vec<usize>,
    layout: Layout,
    pub(super) foreign: Vec<Foreign>,
    batch_normalized: bool,
    reparameterized: bool,
}

impl<M: Network> BurnObjective<M> {
    /// Wraps `network`, whose examples have shape `example_shape` (`[features]` or
    /// [channels, height, width]), to compute on the device called `device_name`. The values of
    /// the module's parameters are not used; initial weights come from
    /// [`Network::initialize`] and batchlab's own streams.
    ///
    /// # Errors
    /// If the device does not exist, or the module holds burn's `BatchNorm` or `Dropout`.
    pub fn new(network: M, example_shape: &[usize], device_name: &str) -> Result<Self, ModelError> {
        let device = backend::device(device_name)?;
        let mut inspector = Inspector::default();
        network.visit(&mut inspector);
        if let Some(refused) = inspector.refused {
            return Err(refused);
        }
        let layout = inspector.layout;
        if layout.is_empty() {
            return Err(ModelError::Empty);
        }
        if layout.len() > MAX_PARAMETERS {
            return Err(ModelError::TooLarge {
                found: layout.len(),
            });
        }
        for (i, parameter) in layout.parameters.iter().enumerate() {
            if layout.parameters[..i]
                .iter()
                .any(|p| p.name == parameter.name)
            {
                return Err(ModelError::DuplicateName {
                    name: parameter.name.clone(),
                });
            }
        }
        Ok(Self {
            network,
            device,
            device_name: device_name.to_owned(),
            example_shape: example_shape.to_vec(),
            layout,
            foreign: inspector.foreign,
            batch_normalized: inspector.batch_normalized,
            reparameterized: inspector.reparameterized,
        })
    }

    /// The module's network, as it was given.
    pub fn network(&self) -> &M {
        &self.network
    }

    fn check_length<F>(&self, what: &str, vector: &[F]) -> Result<(), ObjectiveError> {
        if vector.len() == self.layout.len() {
            return Ok(());
        }
        Err(ObjectiveError::Shape {
            what: what.to_owned(),
            expected: self.layout.len().to_string(),
            found: vector.len().to_string(),
        })
    }

    /// The parameters on the device, one tensor each.
    fn tensors<F: BurnScalar>(&self, parameters: &[F]) -> Vec<Tensor<1>> {
        self.layout
            .parameters
            .iter()
            .map(|p| {
                let values = parameters[p.range.clone()].to_vec();
                let data = TensorData::new(values, [p.range.len()]);
                Tensor::from_data(data, (&self.device, F::DTYPE))
            })
            .collect()
    }

    fn guard<R>(&self, work: impl FnOnce() -> R) -> Result<R, ObjectiveError> {
        guard(&self.device_name, work)
    }
}

/// Turns a panic of `work` on this device into an error.
pub(super) fn guard<R>(device_name: &str, work: impl FnOnce() -> R) -> Result<R, ObjectiveError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let message = panic_message(payload.as_ref());
        if device_name == "flex" {
            ObjectiveError::Panicked { message }
        } else {
            ObjectiveError::Device {
                device: device_name.to_owned(),
                message,
            }
        }
    })
}

pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Reads names, shapes and roles off a module without initializing its parameters.
#[derive(Default)]
struct Inspector {
    path: Vec<String>,
    containers: Vec<String>,
    layout: Layout,
    foreign: Vec<Foreign>,
    layer_fan_in: usize,
    batch_normalized: bool,
    /// Some weight is a function of others that is not known here.
    reparameterized: bool,
    refused: Option<ModelError>,
}

impl Inspector {
    fn refuse(&mut self, layer: &'static str, reason: &'static str, hint: &'static str) {
        let path = self.path.join(".");
        self.refused.get_or_insert(ModelError::Layer {
            layer,
            path,
            reason,
            hint,
        });
    }
}

impl ModuleVisitor for Inspector {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        self.containers.push(container_type.to_owned());
        match container_type {
            // The parameter before is the v of w = g v/|v|; PyTorch calls it so.
            "Reparameterization" if name == WeightNormalization::NAME => {
                if let Some(v) = self.layout.parameters.last_mut() {
                    v.name.push_str("_v");
                }
            }
            "Reparameterization" => self.reparameterized = true,
            "Struct:BatchNorm" => self.refuse(
                "BatchNorm",
                "running statistics by thread",
                "use batchlab::model::BatchNormalization",
            ),
            "Struct:Dropout" => self.refuse(
                "Dropout",
                "its randomness in a generator that all threads share",
                "leave it out",
            ),
            "Struct:BatchNormalization" => self.batch_normalized = true,
            _ => {}
        }
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let shape = param.lazy_shape().as_slice().to_vec();
        // The innermost struct is the layer; the path ends with the field's own name.
        let layer = self
            .containers
            .iter()
            .rev()
            .find_map(|c| c.strip_prefix("Struct:"))
            .unwrap_or_default();
        if layer == "WeightNormalization"
            && let Some(v) = self.layout.parameters.last()
        {
            let index = self.layout.parameters.len() - 1;
            let name = format!("{}_g", v.name.strip_suffix("_v").unwrap_or(&v.name));
            // One value a unit, in the shape that broadcasts over v.
            let mut own = vec![1; v.shape.len()];
            own[usize::from(v.shape.len() == 2)] = shape[0];
            let of_v = self.foreign[index];
            self.foreign.push(Foreign {
                scale_of: Some(index),
                ..of_v
            });
            self.layout.push(name, &own, Role::NormalizationScale);
            return;
        }
        let field = self.path.last().map_or("", String::as_str);
        let normalization = layer.contains("Norm");
        let role = match field {
            "gamma" => Role::NormalizationScale,
            "beta" => Role::NormalizationShift,
            "weight" if normalization => Role::NormalizationScale,
            "bias" if normalization => Role::NormalizationShift,
            "bias" => Role::Bias,
            "weight" if layer.starts_with("Conv") || layer.starts_with("DeformConv") => {
                Role::Convolution
            }
            "weight" if layer == "Embedding" => Role::Embedding,
            "weight" if D == 2 => Role::Dense,
            _ => Role::Other,
        };
        let transposed = layer == "Linear" && field == "weight";
        if field != "bias" {
            self.layer_fan_in = match role {
                Role::Dense => shape[0],
                Role::Convolution => shape[1..].iter().product(),
                _ => shape.iter().product(),
            };
        }
        // The kind of a normalizer has no part in the names of its parameters.
        let mut name: Vec<String> = self
            .path
            .iter()
            .zip(&self.containers)
            .filter(|(_, container)| *container != "Enum:Normalizer")
            .map(|(part, _)| part.clone())
            .collect();
        if let Some(last) = name.last_mut() {
            match last.as_str() {
                "gamma" => "weight".clone_into(last),
                "beta" => "bias".clone_into(last),
                _ => {}
            }
        }
        self.foreign.push(Foreign {
            transposed,
            fan_in: self.layer_fan_in,
            scale_of: None,
        });
        self.layout.push(name.join("."), &shape, role);
    }
}

/// By what a pass is differentiated.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Nothing,
    Parameters,
    Features,
    /// The zeros that [`Capture`] adds to the outputs of layers.
    Layers,
}

/// Puts the tensors of a point into a module, as autodiff leaves of its own where they are what
/// the pass is differentiated by.
struct Fill<'a> {
    tensors: &'a [Tensor<1>],
    next: usize,
    by: By,
}

impl ModuleMapper for Fill<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape = param.lazy_shape();
        let mut tensor: Tensor<D> = self.tensors[self.next].clone().reshape(shape);
        self.next += 1;
        match self.by {
            By::Nothing => {}
            By::Parameters => tensor = tensor.autodiff().require_grad(),
            By::Features | By::Layers => tensor = tensor.autodiff(),
        }
        Param::initialized(param.id, tensor)
    }
}

/// Takes the gradients out in the order of the layout.
struct Collect<'a, F> {
    gradients: Gradients,
    layout: &'a Layout,
    next: usize,
    weight: F,
    output: &'a mut [F],
}

impl<F: BurnScalar> ModuleVisitor for Collect<'_, F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let range = self.layout.parameters[self.next].range.clone();
        self.next += 1;
        let output = &mut self.output[range];
        match param.base().grad_remove(&mut self.gradients) {
            None => output.fill(F::ZERO),
            Some(gradient) => {
                let data = gradient.into_data();
                if let Ok(values) = data.as_slice::<F>() {
                    for (slot, value) in output.iter_mut().zip(values) {
                        *slot = self.weight * *value;
                    }
                } else {
                    for (slot, value) in output.iter_mut().zip(data.iter::<F>()) {
                        *slot = self.weight * value;
                    }
                }
            }
        }
    }
}

impl<M: Network, F: BurnScalar> Objective<F> for BurnObjective<M> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Each parameter is drawn from a stream of its own. The scales of weight normalization are
    /// not drawn and do not count, so that a model starts from the same weights with and without.
    fn initial(&self, seed: u64) -> Vec<F> {
        let mut values: Vec<F> = Vec::with_capacity(self.layout.len());
        let mut drawn = 0;
        for (parameter, foreign) in self.layout.parameters.iter().zip(&self.foreign) {
            if let Some(v) = foreign.scale_of {
                let v = &self.layout.parameters[v];
                let norms = norms(&values[v.range.clone()], &v.shape);
                values.extend(norms.into_iter().map(F::from_f64));
                continue;
            }
            let mut stream = Stream::new(seed, "initial-weights", drawn);
            drawn += 1;
            let own = self
                .network
                .initialize(parameter, foreign.fan_in, &mut stream);
            values.extend(own.into_iter().map(F::from_f64));
        }
        values
    }

    fn needs_data_initialization(&self) -> bool {
        self.network.needs_data_initialization()
    }

    fn initialize_from(&self, parameters: &mut [F], batch: Batch<F>) -> Result<(), ObjectiveError> {
        if !self.network.needs_data_initialization() {
            return Ok(());
        }
        self.check_length("parameter vector", parameters)?;
        let point = BurnPoint {
            objective: self,
            tensors: self.guard(|| self.tensors(parameters))?,
        };
        point.check(&batch, StatisticsMode::Batch)?;
        let examples = batch.len();
        let (network, initialization) = self.guard(|| {
            let passed = point.forward(
                batch,
                StatisticsMode::Batch,
                Pass {
                    initialize: true,
                    ..Pass::default()
                },
            );
            (passed.network, passed.initialization)
        })?;
        let mut ids = Ids::default();
        network.visit(&mut ids);
        let parameter = |id| {
            let index = ids.0.iter().position(|own| *own == id);
            index.map(|index| &self.layout.parameters[index])
        };
        if let Some(constant) = initialization.constant {
            return Err(ObjectiveError::ConstantUnit {
                parameter: parameter(constant).map_or_else(String::new, |p| p.name.clone()),
                examples,
            });
        }
        for (id, values) in initialization.values {
            if let Some(parameter) = parameter(id) {
                let slots = &mut parameters[parameter.range.clone()];
                for (slot, value) in slots.iter_mut().zip(values) {
                    *slot = F::from_f64(value);
                }
            }
        }
        Ok(())
    }

    fn has_batch_statistics(&self) -> bool {
        self.batch_normalized
    }

    fn has_exact_products(&self) -> bool {
        self.network.has_dual() && !self.reparameterized
    }

    fn is_linear_in_each_parameter(&self) -> bool {
        self.network.is_linear_in_each_parameter() && !self.reparameterized
    }

    /// Half the shard, but at most 256 examples and at least 16, or as many as make 40 million
    /// floating-point operations at 6 a parameter and example. Two pieces keep two cores busy;
    /// pieces of 256 use a core as well as larger ones do, and smaller ones than these cost more
    /// in overhead than a second core gains.
    fn default_micro_batch(&self, shard: usize) -> usize {
        let smallest = (40_000_000 / (6 * self.layout.len())).clamp(16, 256);
        if shard < 2 * smallest {
            shard
        } else {
            shard.div_ceil(2).clamp(smallest, 256)
        }
    }

    fn at<'a>(&'a self, parameters: &[F]) -> Result<Box<dyn Point<F> + 'a>, ObjectiveError> {
        self.check_length("parameter vector", parameters)?;
        let tensors = self.guard(|| self.tensors(parameters))?;
        Ok(Box::new(BurnPoint {
            objective: self,
            tensors,
        }))
    }
}

/// |v| of each output unit of a weight: a dense one [inputs, outputs], or a kernel
/// [outputs, ...].
fn norms<F: Scalar>(v: &[F], shape: &[usize]) -> Vec<f64> {
    let square = |value: &F| value.to_f64().powi(2);
    let squares: Vec<f64> = match *shape {
        [_, outputs] => (0..outputs)
            .map(|unit| v.iter().skip(unit).step_by(outputs).map(square).sum())
            .collect(),
        _ => v
            .chunks_exact(v.len() / shape[0])
            .map(|unit| unit.iter().map(square).sum())
            .collect(),
    };
    squares.into_iter().map(f64::sqrt).collect()
}

/// The ids of a module's parameters, in the order of the layout.
#[derive(Default)]
struct Ids(Vec<ParamId>);

impl ModuleVisitor for Ids {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.id);
    }
}

/// What a forward pass is for.
#[derive(Debug, Clone, Copy)]
struct Pass {
    by: By,
    record: bool,
    initialize: bool,
    capture: bool,
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            by: By::Nothing,
            record: false,
            initialize: false,
            capture: false,
        }
    }
}

/// What a forward pass gave.
struct Passed<M> {
    network: M,
    /// The features, where the pass is differentiated by them.
    features: Option<Tensor<2>>,
    outputs: Tensor<2>,
    labels: Tensor<1, Int>,
    moments: Vec<GroupMoments>,
    initialization: Initialization,
    capture: Capture,
}

/// A batch on the device.
struct Fed {
    input: Tensor<2>,
    labels: Tensor<1, Int>,
    groups: Vec<usize>,
}

struct BurnPoint<'a, M> {
    objective: &'a BurnObjective<M>,
    tensors: Vec<Tensor<1>>,
}

impl<M: Network> BurnPoint<'_, M> {
    fn network(&self, by: By) -> M {
        let mut fill = Fill {
            tensors: &self.tensors,
            next: 0,
            by,
        };
        self.objective.network.clone().map(&mut fill)
    }

    fn check<F>(&self, batch: &Batch<F>, mode: StatisticsMode<'_>) -> Result<(), ObjectiveError> {
        let features: usize = self.objective.example_shape.iter().product();
        if batch.features.len() != batch.len() * features {
            return Err(ObjectiveError::Shape {
                what: "features of the batch".to_owned(),
                expected: format!("{} examples x {features}", batch.len()),
                found: batch.features.len().to_string(),
            });
        }
        let grouped = matches!(mode, StatisticsMode::Batch) && self.objective.batch_normalized;
        if grouped && batch.groups.iter().any(|&g| g < 2) {
            return Err(ObjectiveError::GroupOfOne);
        }
        let grouped_examples: usize = batch.groups.iter().sum();
        if grouped && grouped_examples != batch.len() {
            return Err(ObjectiveError::Shape {
                what: "groups of the batch".to_owned(),
                expected: format!("{} examples in all", batch.len()),
                found: grouped_examples.to_string(),
            });
        }
        Ok(())
    }

    /// Puts a batch on the device, tracked as the pass asks.
    fn feed<F: BurnScalar>(&self, batch: Batch<F>, by: By) -> Fed {
        let device = if by == By::Nothing {
            self.objective.device.clone()
        } else {
            self.objective.device.clone().autodiff()
        };
        let n = batch.len();
        let width = batch.features.len() / n;
        let data = TensorData::new(batch.features, [n, width]);
        let labels: Vec<i32> = batch.labels.iter().map(|&l| l.cast_signed()).collect();
        Fed {
            input: Tensor::from_data(data, (&device, F::DTYPE)),
            labels: Tensor::from_data(TensorData::new(labels, [n]), &device),
            groups: batch.groups,
        }
    }

    /// Runs the network.
    fn forward<F: BurnScalar>(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        what: Pass,
    ) -> Passed<M> {
        let network = self.network(what.by);
        let mut fed = self.feed(batch, what.by);
        let mut features = None;
        if what.by == By::Features {
            fed.input = fed.input.require_grad();
            features = Some(fed.input.clone());
        }
        let mut pass = Forward {
            example_shape: &self.objective.example_shape,
            groups: &fed.groups,
            mode,
            next_layer: 0,
            record: what.record.then(Vec::new),
            initialization: what.initialize.then(Initialization::default),
            capture: what.capture.then(Capture::default),
            recall: None,
        };
        let outputs = network.forward(fed.input, &mut pass);
        Passed {
            network,
            features,
            outputs,
            labels: fed.labels,
            moments: pass.record.unwrap_or_default(),
            initialization: pass.initialization.unwrap_or_default(),
            capture: pass.capture.unwrap_or_default(),
        }
    }

    /// Writes `weight` times the gradient of a scalar, made from the parameters of `network`.
    fn collect<F: BurnScalar>(&self, network: &M, of: &Tensor<1>, weight: F, output: &mut [F]) {
        if !of.is_tracked() {
            output.fill(F::ZERO);
            return;
        }
        network.visit(&mut Collect {
            gradients: of.backward(),
            layout: &self.objective.layout,
            next: 0,
            weight,
            output,
        });
    }

    /// Writes `weight` J' u: J the derivative of the outputs by the parameters of `network`.
    fn pull<F: BurnScalar>(
        &self,
        network: &M,
        outputs: Tensor<2>,
        u: Tensor<2>,
        weight: F,
        product: &mut [F],
    ) {
        let along = (outputs * u.autodiff()).sum();
        self.collect(network, &along, weight, product);
    }

    /// H_z t of the sum of losses, for constant tensors.
    fn curve<F: BurnScalar>(
        &self,
        network: &M,
        outputs: Tensor<2>,
        tangent: Tensor<2>,
        labels: &Tensor<1, Int>,
    ) -> Tensor<2> {
        let slope = |at: Tensor<2>, of: &dyn Fn(Tensor<2>) -> Option<Tensor<1>>| {
            let leaf = at.autodiff().require_grad();
            of(leaf.clone())
                .filter(Tensor::is_tracked)
                .and_then(|value| leaf.grad(&value.sum().backward()))
                .unwrap_or_else(|| leaf.inner().zeros_like())
        };
        if self.objective.network.has_dual() {
            let tangent = tangent.autodiff();
            return slope(outputs, &|z| {
                let dual = Dual::new(z, tangent.clone());
                network.losses_dual(dual, labels.clone()).tangent
            });
        }
        // Rows are moved by the same length: the losses of examples do not depend on each other.
        let lengths = tangent.clone().powi_scalar(2).sum_dim(1).sqrt();
        let still = lengths.clone().equal_elem(0);
        let step = difference_step(&host_values::<F>(outputs.clone()));
        let shift = lengths.mask_fill(still, 1).recip().mul_scalar(step);
        let moved = tangent * shift.clone();
        let losses = |z| Some(network.losses(z, labels.clone()));
        let ahead = slope(outputs.clone() + moved.clone(), &losses);
        let behind = slope(outputs - moved, &losses);
        (ahead - behind) / shift.mul_scalar(2)
    }

    /// Nothing where some parameter is used otherwise than in the layers that the pass knows.
    fn example_norms_in_one_pass<F: BurnScalar>(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Result<Option<ExampleNorms>, ObjectiveError> {
        let mut ids = Ids::default();
        self.objective.network.visit(&mut ids);
        self.objective.guard(|| {
            let what = Pass {
                by: By::Layers,
                capture: true,
                ..Pass::default()
            };
            let passed = self.forward(batch, mode, what);
            let losses = passed.network.losses(passed.outputs, passed.labels);
            let values = host(losses.clone());
            let sum = losses.sum();
            if !sum.is_tracked() {
                return None;
            }
            let mut squares = passed.capture.squares(sum.backward())?;
            let parameters = ids.0.iter().map(|id| {
                let own = squares.iter_mut().find(|(known, _)| known == id);
                own.map(|(_, squares)| std::mem::take(squares))
            });
            let parameters = parameters.collect::<Option<Vec<_>>>()?;
            let layout = &self.objective.layout;
            Some(ExampleNorms::by_layer(layout, values, parameters, true))
        })
    }

    fn differentiate<F: BurnScalar>(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        gradient: &mut [F],
        record: bool,
    ) -> Result<(f64, Vec<GroupMoments>), ObjectiveError> {
        self.check(&batch, mode)?;
        self.objective.guard(|| {
            let what = Pass {
                by: By::Parameters,
                record,
                ..Pass::default()
            };
            let passed = self.forward(batch, mode, what);
            let loss = passed.network.losses(passed.outputs, passed.labels).mean();
            self.collect(&passed.network, &loss, weight, gradient);
            (loss.into_scalar::<F>().to_f64(), passed.moments)
        })
    }
}

impl<M: Network, F: BurnScalar> Point<F> for BurnPoint<'_, M> {
    fn gradient(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        gradient: &mut [F],
    ) -> Result<f64, ObjectiveError> {
        let (loss, _) = self.differentiate(batch, mode, weight, gradient, false)?;
        Ok(loss)
    }

    fn gradient_and_moments(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        gradient: &mut [F],
    ) -> Result<(f64, Vec<GroupMoments>), ObjectiveError> {
        self.differentiate(batch, mode, weight, gradient, true)
    }

    fn input_gradient(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        gradient: &mut Vec<F>,
    ) -> Result<f64, ObjectiveError> {
        self.check(&batch, mode)?;
        let length = batch.features.len();
        self.objective.guard(|| {
            let what = Pass {
                by: By::Features,
                ..Pass::default()
            };
            let passed = self.forward(batch, mode, what);
            let loss = passed.network.losses(passed.outputs, passed.labels).sum();
            let gradients = loss.backward();
            gradient.clear();
            match passed.features.and_then(|f| f.grad(&gradients)) {
                Some(own) => gradient.extend(own.into_data().iter::<F>()),
                // The losses do not depend on the features.
                None => gradient.resize(length, F::ZERO),
            }
            loss.into_scalar::<F>().to_f64()
        })
    }

    fn predict(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Result<Predictions, ObjectiveError> {
        self.check(&batch, mode)?;
        self.objective.guard(|| {
            let n = batch.len();
            let passed = self.forward(batch, mode, Pass::default());
            let scores = host(passed.outputs.clone());
            let classes = scores.chunks_exact(scores.len() / n).map(largest).collect();
            let losses = host(passed.network.losses(passed.outputs, passed.labels));
            Predictions { losses, classes }
        })
    }

    fn moments(&self, batch: Batch<F>) -> Result<Vec<GroupMoments>, ObjectiveError> {
        if !self.objective.batch_normalized {
            return Ok(Vec::new());
        }
        self.check(&batch, StatisticsMode::Batch)?;
        self.objective.guard(|| {
            let what = Pass {
                record: true,
                ..Pass::default()
            };
            self.forward(batch, StatisticsMode::Batch, what).moments
        })
    }

    fn along<'a>(&'a self, direction: &[F]) -> Result<Box<dyn Along<F> + 'a>, ObjectiveError> {
        if !Objective::<F>::has_exact_products(self.objective) {
            return Err(ObjectiveError::NoExactProducts);
        }
        self.objective.check_length("direction", direction)?;
        let tensors = self.objective.guard(|| self.objective.tensors(direction))?;
        Ok(Box::new(BurnAlong {
            point: self,
            direction: tensors,
            memory: None,
        }))
    }

    fn prepare(
        &self,
        batch: &Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
    ) -> Result<Option<Box<dyn Prepared<F>>>, ObjectiveError> {
        self.check(batch, mode)?;
        let Some(activation) = chain::activation(&self.objective.network) else {
            let exact = Objective::<F>::has_exact_products(self.objective)
                && self.objective.device_name == kept::DEVICE;
            let kept = || BurnKept::new(self, batch, mode, weight);
            return Ok(exact.then(|| Box::new(kept()) as Box<dyn Prepared<F>>));
        };
        let BurnObjective {
            layout,
            device,
            device_name,
            ..
        } = self.objective;
        let chain = self.objective.guard(|| {
            let device = (device, device_name.as_str());
            Chain::new(activation, layout, &self.tensors, batch, weight, device)
        })?;
        Ok(Some(Box::new(chain)))
    }

    fn outputs(&self, batch: Batch<F>, mode: StatisticsMode<'_>) -> Result<Vec<F>, ObjectiveError> {
        self.check(&batch, mode)?;
        self.objective
            .guard(|| host_values(self.forward(batch, mode, Pass::default()).outputs))
    }

    fn pull_back(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        tangent: &[F],
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.check(&batch, mode)?;
        let n = batch.len();
        let wrong = self.objective.guard(|| {
            let what = Pass {
                by: By::Parameters,
                ..Pass::default()
            };
            let passed = self.forward(batch, mode, what);
            let shape = passed.outputs.dims();
            if shape[0] * shape[1] != tangent.len() {
                return Some(shape);
            }
            let data = TensorData::new(tangent.to_vec(), shape);
            let tangent = Tensor::from_data(data, (&self.objective.device, F::DTYPE));
            let outputs = passed.outputs;
            let u = self.curve::<F>(
                &passed.network,
                outputs.clone().inner(),
                tangent,
                &passed.labels,
            );
            self.pull(&passed.network, outputs, u, weight / count(n), product);
            None
        })?;
        match wrong {
            None => Ok(()),
            Some([rows, columns]) => Err(ObjectiveError::Shape {
                what: "tangent of the outputs".to_owned(),
                expected: format!("{rows} examples x {columns}"),
                found: tangent.len().to_string(),
            }),
        }
    }

    /// In one pass where all parameters belong to layers that the pass knows; otherwise by one
    /// gradient an example. A layer's weight that is also used elsewhere would deceive the pass, so
    /// the first example is looked at both ways.
    fn example_norms(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Result<ExampleNorms, ObjectiveError> {
        self.check(&batch, mode)?;
        if matches!(mode, StatisticsMode::Batch) && self.objective.batch_normalized {
            return Err(ObjectiveError::BatchStatistics);
        }
        let layout = &self.objective.layout;
        if let Some(norms) = self.example_norms_in_one_pass(batch.clone(), mode)? {
            let slow = example_norms_one_by_one(self, layout, &first(&batch), mode)?;
            let agree = norms
                .layers
                .iter()
                .zip(&slow.layers)
                .all(|(fast, slow)| close::<F>(fast.squared_norms[0], slow.squared_norms[0]));
            if agree {
                return Ok(norms);
            }
        }
        example_norms_one_by_one(self, layout, &batch, mode)
    }
}

/// Whether two numbers are the same up to rounding and to what sums of many terms lose; NaN is
/// close to NaN.
fn close<F: Scalar>(a: f64, b: f64) -> bool {
    let tolerance = if F::BYTES == 4 { 1e-3 } else { 1e-8 };
    (a - b).abs() <= tolerance * (a.abs() + b.abs()) || !(a.is_finite() && b.is_finite())
}

/// The first example of a batch.
fn first<F: Scalar>(batch: &Batch<F>) -> Batch<F> {
    let width = batch.features.len() / batch.len();
    Batch {
        features: batch.features[..width].to_vec(),
        labels: batch.labels.iter().take(1).copied().collect(),
        ids: vec![batch.ids[0]],
        groups: vec![1],
    }
}

/// A number of examples.
fn count<F: Scalar>(examples: usize) -> F {
    F::from_f64(examples as f64)
}

fn host_values<F: BurnScalar>(tensor: Tensor<2>) -> Vec<F> {
    tensor.into_data().iter::<F>().collect()
}

/// A direction on the device.
struct BurnAlong<'a, M> {
    point: &'a BurnPoint<'a, M>,
    direction: Vec<Tensor<1>>,
    /// What is kept of the batch, which is then always the same.
    memory: Option<&'a Memory>,
}

impl<M: Network> BurnAlong<'_, M> {
    /// The network, its outputs with their derivative, and the labels.
    fn forward<F: BurnScalar>(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
    ) -> Option<(M, Dual<2>, Tensor<1, Int>)> {
        let objective = self.point.objective;
        let network = self.point.network(By::Parameters);
        let direction = objective.network.clone().map(&mut Fill {
            tensors: &self.direction,
            next: 0,
            by: By::Layers,
        });
        let fed = self.point.feed(batch, By::Parameters);
        let mut pass = Forward {
            example_shape: &objective.example_shape,
            groups: &fed.groups,
            mode,
            next_layer: 0,
            record: None,
            initialization: None,
            capture: None,
            recall: self.memory.map(Recall::new),
        };
        let outputs = network.forward_dual(&direction, fed.input, &mut pass)?;
        Some((network, outputs, fed.labels))
    }

    /// That the dual losses are those of the network, found out on the outputs of a batch.
    fn check_losses(
        network: &M,
        outputs: &Tensor<2>,
        labels: &Tensor<1, Int>,
    ) -> Result<(), ObjectiveError> {
        let mean = |losses: Vec<f64>| losses.iter().sum::<f64>() / losses.len() as f64;
        let (outputs, labels) = (outputs.clone().inner(), labels.clone().inner());
        let own = mean(host(network.losses(outputs.clone(), labels.clone())));
        let dual = network.losses_dual(Dual::constant(outputs), labels);
        let dual = mean(host(dual.value));
        if close::<f32>(own, dual) {
            Ok(())
        } else {
            Err(ObjectiveError::DualLosses { dual, own })
        }
    }
}

impl<M: Network, F: BurnScalar> Along<F> for BurnAlong<'_, M> {
    fn hessian_product(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.point.check(&batch, mode)?;
        self.point.objective.guard(|| {
            let (network, outputs, labels) = self
                .forward(batch, mode)
                .ok_or(ObjectiveError::NoExactProducts)?;
            Self::check_losses(&network, &outputs.value, &labels)?;
            match network.losses_dual(outputs, labels).tangent {
                None => product.fill(F::ZERO),
                Some(rate) => self.point.collect(&network, &rate.mean(), weight, product),
            }
            Ok(())
        })?
    }

    fn gauss_newton_product(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.point.check(&batch, mode)?;
        let n = batch.len();
        self.point.objective.guard(|| {
            let (network, outputs, labels) = self
                .forward(batch, mode)
                .ok_or(ObjectiveError::NoExactProducts)?;
            Self::check_losses(&network, &outputs.value, &labels)?;
            let Some(tangent) = outputs.tangent else {
                product.fill(F::ZERO);
                return Ok(());
            };
            let constant = outputs.value.clone().inner();
            let u = self
                .point
                .curve::<F>(&network, constant, tangent.inner(), &labels);
            self.point
                .pull(&network, outputs.value, u, weight / count(n), product);
            Ok(())
        })?
    }
}

/// A point on a batch that stays, with what products keep of it.
struct BurnKept<M, F> {
    objective: BurnObjective<M>,
    tensors: Vec<Tensor<1>>,
    batch: Batch<F>,
    /// Those of the batch, if `None`.
    statistics: Option<Vec<LayerStatistics>>,
    weight: F,
    memory: Memory,
}

impl<M: Network, F: BurnScalar> BurnKept<M, F> {
    fn new(
        point: &BurnPoint<'_, M>,
        batch: &Batch<F>,
        mode: StatisticsMode<'_>,
        weight: F,
    ) -> Self {
        Self {
            objective: point.objective.clone(),
            tensors: point.tensors.clone(),
            batch: batch.clone(),
            statistics: match mode {
                StatisticsMode::Batch => None,
                StatisticsMode::Inference(statistics) => Some(statistics.to_vec()),
            },
            weight,
            memory: Memory::default(),
        }
    }

    fn point(&self) -> BurnPoint<'_, M> {
        BurnPoint {
            objective: &self.objective,
            tensors: self.tensors.clone(),
        }
    }

    fn mode(&self) -> StatisticsMode<'_> {
        match &self.statistics {
            None => StatisticsMode::Batch,
            Some(statistics) => StatisticsMode::Inference(statistics),
        }
    }

    /// Adds what `write` writes.
    fn add(
        &self,
        sum: &mut [F],
        write: impl FnOnce(&BurnPoint<'_, M>, &mut [F]) -> Result<(), ObjectiveError>,
    ) -> Result<(), ObjectiveError> {
        self.objective.check_length("product", sum)?;
        let mut own = vec![F::ZERO; sum.len()];
        write(&self.point(), &mut own)?;
        for (sum, own) in sum.iter_mut().zip(own) {
            *sum += own;
        }
        Ok(())
    }

    /// Adds what `write` writes along a direction.
    fn add_along(
        &self,
        direction: &[F],
        sum: &mut [F],
        write: impl FnOnce(&BurnAlong<'_, M>, &mut [F]) -> Result<(), ObjectiveError>,
    ) -> Result<(), ObjectiveError> {
        self.objective.check_length("direction", direction)?;
        let direction = self.objective.guard(|| self.objective.tensors(direction))?;
        self.add(sum, |point, own| {
            let along = BurnAlong {
                point,
                direction,
                memory: Some(&self.memory),
            };
            write(&along, own)
        })
    }
}

impl<M: Network, F: BurnScalar> Prepared<F> for BurnKept<M, F> {
    fn bytes(&self) -> usize {
        self.batch.features.len() * F::BYTES + self.memory.bytes()
    }

    fn add_gradient(&self, gradient: &mut [F]) -> Result<(), ObjectiveError> {
        self.add(gradient, |point, own| {
            let batch = self.batch.clone();
            point
                .gradient(batch, self.mode(), self.weight, own)
                .map(|_| ())
        })
    }

    fn add_hessian_product(
        &self,
        direction: &[F],
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.add_along(direction, product, |along, own| {
            along.hessian_product(self.batch.clone(), self.mode(), self.weight, own)
        })
    }

    fn add_gauss_newton_product(
        &self,
        direction: &[F],
        product: &mut [F],
    ) -> Result<(), ObjectiveError> {
        self.add_along(direction, product, |along, own| {
            along.gauss_newton_product(self.batch.clone(), self.mode(), self.weight, own)
        })
    }
}

/// The index of the largest score; the first of equal ones.
fn largest(scores: &[f64]) -> u32 {
    let mut best = 0;
    for (i, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = i;
        }
    }
    best as u32
}
