//! From a model's name in TOML to an objective.

use std::collections::BTreeMap;

use burn::tensor::Device;
use serde_json::{Map, Value};

use super::{BurnObjective, CifarResnet, Mlp, ModelError, Network, SimpleCnn, SoftmaxRegression};
use crate::backend::{self, BackendError};
use crate::config::{DataSource, ModelConfig, Precision, TrialConfig, nearest};
use crate::data::Data;
use crate::model::BurnScalar;
use crate::objective::{NoisyQuadratic, Objective};

/// An objective in both precisions.
pub trait AnyObjective: Objective<f32> + Objective<f64> {
    /// Whether parameter `index` is stored transposed with respect to PyTorch.
    fn transposed(&self, index: usize) -> bool;
}

impl<M: Network> AnyObjective for BurnObjective<M> {
    fn transposed(&self, index: usize) -> bool {
        self.foreign[index].transposed
    }
}

impl AnyObjective for NoisyQuadratic {
    fn transposed(&self, _index: usize) -> bool {
        false
    }
}

/// What a model is built from.
#[derive(Debug)]
pub struct BuildContext<'a> {
    /// Shape of one example: `[features]`, or `[channels, height, width]`.
    pub example_shape: &'a [usize],
    /// Number of classes.
    pub classes: usize,
    /// The device to build on.
    pub device: Device,
    /// `[model.custom.options]` of the config.
    pub options: &'a Map<String, Value>,
}

impl BuildContext<'_> {
    /// Number of features of one example.
    pub fn features(&self) -> usize {
        self.example_shape.iter().product()
    }

    /// A whole-number option, or its default.
    ///
    /// # Errors
    /// If the option is there and is no whole number.
    pub fn option_usize(&self, name: &str, default: usize) -> Result<usize, BuildError> {
        match self.options.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_u64()
                .map(|n| n as usize)
                .ok_or_else(|| BuildError::option(name, "a whole number", value)),
        }
    }

    /// A number option, or its default.
    ///
    /// # Errors
    /// If the option is there and is no number.
    pub fn option_f64(&self, name: &str, default: f64) -> Result<f64, BuildError> {
        match self.options.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .ok_or_else(|| BuildError::option(name, "a number", value)),
        }
    }
}

/// Why a model could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No such model.
    #[error("no model \"{name}\" is registered; registered: {known}{hint}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that are.
        known: String,
        /// A likely meant name, on a line of its own.
        hint: String,
    },
    /// An option has the wrong type.
    #[error("model.custom.options.{name}: expected {expected}, found {found}")]
    Option {
        /// The option.
        name: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The model does not go with the data.
    #[error("{model} needs {needs}, but the data set {data} has examples of shape {shape:?}")]
    Mismatch {
        /// The model.
        model: &'static str,
        /// What it needs.
        needs: &'static str,
        /// The data set.
        data: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Channels that do not divide into the groups of group normalization.
    #[error(
        "{key}: found {groups}, but a normalized layer has {channels} channels\n\
         hint: use a number of groups that divides the channels of every normalized layer"
    )]
    Groups {
        /// The key that gives the number of groups.
        key: String,
        /// The groups.
        groups: usize,
        /// The channels.
        channels: usize,
    },
    /// The module was refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The device cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The user's builder failed.
    #[error("model {name}: {source}")]
    Custom {
        /// The model's registered name.
        name: String,
        /// What the builder said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl BuildError {
    /// Names the key of a built-in model whose number of groups does not fit.
    fn of(model: &'static str) -> impl Fn(ModelError) -> Self {
        move |error| match error {
            ModelError::Groups { channels, groups } => Self::Groups {
                key: format!("model.{model}.normalization.group.groups"),
                groups,
                channels,
            },
            other => Self::Model(other),
        }
    }

    fn option(name: &str, expected: &'static str, found: &Value) -> Self {
        Self::Option {
            name: name.to_owned(),
            expected,
            found: found.to_string(),
        }
    }
}

type Built = Result<Box<dyn AnyObjective>, BuildError>;
type Builder = Box<dyn Fn(&BuildContext<'_>, &str) -> Built + Send + Sync>;

/// The models that TOML can name: the built-in ones and those a program registers.
#[derive(Default)]
pub struct Registry {
    custom: BTreeMap<String, Builder>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("custom", &self.custom.keys())
            .finish()
    }
}

impl Registry {
    /// A registry of the built-in models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a model known to TOML as `[model.custom] name = "..."`. `build` gets the shape of
    /// the examples, the number of classes, the device and the options of the config.
    pub fn register<M: Network>(
        mut self,
        name: &str,
        build: impl Fn(&BuildContext<'_>) -> Result<M, Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let own_name = name.to_owned();
        let builder: Builder = Box::new(move |context, device| {
            let network = build(context).map_err(|source| BuildError::Custom {
                name: own_name.clone(),
                source,
            })?;
            Ok(Box::new(BurnObjective::new(
                network,
                context.example_shape,
                device,
            )?))
        });
        self.custom.insert(name.to_owned(), builder);
        self
    }

    /// Builds the model of a trial for its data.
    ///
    /// # Errors
    /// If the model is not known, does not go with the data, or the device cannot be used.
    pub fn build(&self, config: &TrialConfig, data: &Data) -> Built {
        let device_name = config.train.device.as_str();
        let device = backend::device(device_name)?;
        let (dtype, precision) = match config.train.precision {
            Precision::F32 => (<f32 as BurnScalar>::DTYPE, "f32"),
            Precision::F64 => (<f64 as BurnScalar>::DTYPE, "f64"),
        };
        backend::check_precision(&device, device_name, dtype, precision)?;
        let empty = Map::new();
        let options = match &config.model {
            ModelConfig::Custom { options, .. } => options,
            _ => &empty,
        };
        let context = BuildContext {
            example_shape: &data.shape,
            classes: data.classes,
            device: device.clone(),
            options,
        };
        let features = context.features();
        let mismatch = |model, needs| BuildError::Mismatch {
            model,
            needs,
            data: data.name.clone(),
            shape: data.shape.clone(),
        };
        let image = |smallest: usize| match *data.shape {
            [c, h, w] if h >= smallest && w >= smallest => Some([c, h, w]),
            _ => None,
        };
        Ok(match &config.model {
            ModelConfig::SoftmaxRegression {} => {
                let network = SoftmaxRegression::new(features, data.classes, &device);
                Box::new(BurnObjective::new(network, &data.shape, device_name)?)
            }
            ModelConfig::Mlp {
                widths,
                activation,
                normalization,
            } => {
                let network = Mlp::new(
                    features,
                    widths,
                    data.classes,
                    *activation,
                    *normalization,
                    &device,
                )
                .map_err(BuildError::of("mlp"))?;
                Box::new(BurnObjective::new(network, &data.shape, device_name)?)
            }
            ModelConfig::SimpleCnn {
                channels,
                dense,
                normalization,
            } => {
                let shape = image(4)
                    .ok_or_else(|| mismatch("simple-cnn", "images of at least 4x4 pixels"))?;
                let network = SimpleCnn::new(
                    shape,
                    *channels,
                    *dense,
                    data.classes,
                    *normalization,
                    &device,
                )
                .map_err(BuildError::of("simple-cnn"))?;
                Box::new(BurnObjective::new(network, &data.shape, device_name)?)
            }
            ModelConfig::Resnet {
                depth,
                width,
                normalization,
                zero_gamma,
            } => {
                let [channels, _, _] =
                    image(4).ok_or_else(|| mismatch("resnet", "images of at least 4x4 pixels"))?;
                let network = CifarResnet::new(
                    channels,
                    *depth,
                    *width,
                    data.classes,
                    *normalization,
                    *zero_gamma,
                    &device,
                )
                .map_err(BuildError::of("resnet"))?;
                Box::new(BurnObjective::new(network, &data.shape, device_name)?)
            }
            ModelConfig::NoisyQuadratic {
                preconditioner_power,
            } => {
                let DataSource::NoisyQuadratic { dimension, .. } = config.data.source else {
                    return Err(mismatch(
                        "noisy-quadratic",
                        "data.source = \"noisy-quadratic\"",
                    ));
                };
                Box::new(NoisyQuadratic::preconditioned(
                    dimension,
                    config.data.split_seed,
                    *preconditioner_power,
                ))
            }
            ModelConfig::Custom { name, .. } => {
                let Some(builder) = self.custom.get(name) else {
                    let names: Vec<&str> = self.custom.keys().map(String::as_str).collect();
                    let known = if names.is_empty() {
                        "none".to_owned()
                    } else {
                        names.join(", ")
                    };
                    let hint = match nearest(name, names.iter().copied()) {
                        Some(close) => format!("\nhint: did you mean \"{close}\"?"),
                        None if names.is_empty() => {
                            "\nhint: run the program that registers it: see `batchlab::cli::main_with`"
                                .to_owned()
                        }
                        None => String::new(),
                    };
                    return Err(BuildError::Unknown {
                        name: name.clone(),
                        known,
                        hint,
                    });
                };
                return builder(&context, device_name);
            }
        })
    }
}
