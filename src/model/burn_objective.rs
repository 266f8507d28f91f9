//! A burn module as loss and gradient of a flat parameter vector.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId, Reparameterization};
use burn::tensor::{DType, Device, Element, Gradients, Int, Tensor, TensorData};

use super::network::{Forward, Network};
use super::norm::host;
use super::weight_norm::{Initialization, WeightNormalization};
use crate::backend::{self, BackendError};
use crate::objective::{
    Batch, GroupMoments, Layout, Objective, ObjectiveError, Point, Predictions, Role, Scalar,
    StatisticsMode,
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
#[derive(Debug)]
pub struct BurnObjective<M> {
    network: M,
    device: Device,
    device_name: String,
    example_shape: Vec<usize>,
    layout: Layout,
    pub(super) foreign: Vec<Foreign>,
    batch_normalized: bool,
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
        })
    }

    /// The module's network, as it was given.
    pub fn network(&self) -> &M {
        &self.network
    }

    fn check_length<F>(&self, parameters: &[F]) -> Result<(), ObjectiveError> {
        if parameters.len() == self.layout.len() {
            return Ok(());
        }
        Err(ObjectiveError::Shape {
            what: "parameter vector".to_owned(),
            expected: self.layout.len().to_string(),
            found: parameters.len().to_string(),
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
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            let message = panic_message(payload.as_ref());
            if self.device_name == "flex" {
                ObjectiveError::Panicked { message }
            } else {
                ObjectiveError::Device {
                    device: self.device_name.clone(),
                    message,
                }
            }
        })
    }
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
            By::Features => tensor = tensor.autodiff(),
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
        self.check_length(parameters)?;
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
        self.check_length(parameters)?;
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
}

impl Default for Pass {
    fn default() -> Self {
        Self {
            by: By::Nothing,
            record: false,
            initialize: false,
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

    /// Runs the network.
    fn forward<F: BurnScalar>(
        &self,
        batch: Batch<F>,
        mode: StatisticsMode<'_>,
        what: Pass,
    ) -> Passed<M> {
        let objective = self.objective;
        let network = self.network(what.by);
        let device = if what.by == By::Nothing {
            objective.device.clone()
        } else {
            objective.device.clone().autodiff()
        };
        let n = batch.len();
        let width = batch.features.len() / n;
        let data = TensorData::new(batch.features, [n, width]);
        let mut input = Tensor::<2>::from_data(data, (&device, F::DTYPE));
        let mut features = None;
        if what.by == By::Features {
            input = input.require_grad();
            features = Some(input.clone());
        }
        let labels: Vec<i32> = batch.labels.iter().map(|&l| l.cast_signed()).collect();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [n]), &device);
        let mut pass = Forward {
            example_shape: &objective.example_shape,
            groups: &batch.groups,
            mode,
            next_layer: 0,
            record: what.record.then(Vec::new),
            initialization: what.initialize.then(Initialization::default),
        };
        let outputs = network.forward(input, &mut pass);
        Passed {
            network,
            features,
            outputs,
            labels,
            moments: pass.record.unwrap_or_default(),
            initialization: pass.initialization.unwrap_or_default(),
        }
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
            let gradients = loss.backward();
            passed.network.visit(&mut Collect {
                gradients,
                layout: &self.objective.layout,
                next: 0,
                weight,
                output: gradient,
            });
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
