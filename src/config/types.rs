//! The TOML schema as types: what one trial is.
//!
//! Every field's doc comment becomes its description in `configs/schema.json` and in
//! `batchlab config schema`. Enums are externally tagged (`[optimizer.adamw]`), and a
//! variant whose fields all have defaults may be written as a plain string
//! (`optimizer = "adamw"`); the loader rewrites the string into an empty table.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One trial, resolved: everything that decides its bits, and the two keys that do not
/// (`train.threads`, `data.dir`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialConfig {
    /// Seed of this trial: initial weights, data order. A study sets it from `seeds`.
    #[serde(default)]
    pub seed: u64,
    /// The examples, their splits and preparation.
    pub data: DataConfig,
    /// The model.
    pub model: ModelConfig,
    /// Workers, batch, budget, evaluation.
    pub train: TrainConfig,
    /// Learning rate: base, scaling rule, warm-up, decay.
    pub learning_rate: LearningRateConfig,
    /// The optimizer. Default: SGD with momentum 0.9.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
}

/// `[data]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Where the examples come from: `"digits"`, `"mnist"`, `"fashion-mnist"`, `"cifar10"`, or a
    /// table `[data.source.csv]`, `[data.source.idx]`, `[data.source.cifar-binary]`,
    /// `[data.source.gaussian-mixture]`, `[data.source.teacher]`, `[data.source.noisy-quadratic]`.
    pub source: DataSource,
    /// Folder of the named sets. Default: `$BATCHLAB_DATA`, else `data/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Share of the training examples held out for validation, in [0, 1).
    #[serde(default)]
    pub validation_fraction: f64,
    /// Share of all examples used as the test set, in (0, 1), for sources that come without one
    /// (digits, csv without `test_path`).
    #[serde(default = "defaults::test_fraction")]
    pub test_fraction: f64,
    /// Seed of splits, subset, label noise and synthetic examples; separate from the trial's seed,
    /// so that all seeds of a study train on the same examples.
    #[serde(default)]
    pub split_seed: u64,
    /// Use only this many training examples (drawn with `split_seed`, after the validation split).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subset: Option<usize>,
    /// Share of training labels replaced by a uniformly drawn other class, in [0, 1].
    #[serde(default)]
    pub label_noise: f64,
    /// Standardization, fitted on the training part only.
    #[serde(default)]
    pub standardize: Standardize,
}

/// How features are standardized. Mean and standard deviation come from the training part only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standardize {
    /// As read (images scaled to [0, 1]).
    None,
    /// One mean and standard deviation per channel (images), or for all features together.
    #[default]
    Channel,
    /// One mean and standard deviation per feature; constant features become 0.
    Feature,
}

/// Where examples come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DataSource {
    /// 1,797 handwritten digits of 8x8 pixels (UCI, CC BY 4.0), embedded in the program.
    Digits {},
    /// MNIST, from `data.dir/mnist` (IDX, raw or .gz): see `batchlab data fetch mnist`.
    Mnist {},
    /// Fashion-MNIST, from `data.dir/fashion-mnist` (IDX, raw or .gz).
    FashionMnist {},
    /// CIFAR-10, from `data.dir/cifar10` (binary batches).
    Cifar10 {},
    /// Any IDX image and label files.
    Idx {
        /// Training images, IDX3 (or IDX4 with channels), raw or .gz.
        train_images: PathBuf,
        /// Training labels, IDX1.
        train_labels: PathBuf,
        /// Test images; without them `test_fraction` is split off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_images: Option<PathBuf>,
        /// Test labels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_labels: Option<PathBuf>,
    },
    /// A folder of CIFAR-10 binary batches: `data_batch_*.bin` and `test_batch.bin`.
    CifarBinary {
        /// The folder.
        dir: PathBuf,
    },
    /// A CSV file with one example a row and a label column.
    Csv {
        /// The file of training examples (of all examples if there is no `test_path`).
        path: PathBuf,
        /// A file of test examples with the same columns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test_path: Option<PathBuf>,
        /// The label column: its name, or its number from 0 where there is no header.
        label: String,
        /// Whether the first row names the columns.
        #[serde(default = "defaults::yes")]
        header: bool,
        /// Image shape [channels, height, width] of a row; default: a flat vector.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<[usize; 3]>,
    },
    /// Gaussian clusters: class means drawn on a sphere of radius `separation`, unit noise.
    GaussianMixture {
        /// Number of classes.
        #[serde(default = "defaults::classes")]
        classes: usize,
        /// Number of features.
        #[serde(default = "defaults::dimension")]
        dimension: usize,
        /// Training examples.
        #[serde(default = "defaults::synthetic_examples")]
        examples: usize,
        /// Test examples.
        #[serde(default = "defaults::synthetic_examples")]
        test_examples: usize,
        /// Distance of each class mean from the origin, in standard deviations of the noise.
        #[serde(default = "defaults::separation")]
        separation: f64,
    },
    /// Labels given by a random two-layer tanh network to Gaussian inputs.
    Teacher {
        /// Number of classes.
        #[serde(default = "defaults::classes")]
        classes: usize,
        /// Number of features.
        #[serde(default = "defaults::dimension")]
        dimension: usize,
        /// Hidden units of the teacher.
        #[serde(default = "defaults::teacher_width")]
        width: usize,
        /// Training examples.
        #[serde(default = "defaults::synthetic_examples")]
        examples: usize,
        /// Test examples.
        #[serde(default = "defaults::synthetic_examples")]
        test_examples: usize,
    },
    /// The noisy quadratic model (Zhang et al. 2019): goes with `model = "noisy-quadratic"`.
    /// Example k is a vector of standard normal noise; every epoch draws fresh ones.
    NoisyQuadratic {
        /// Number of parameters; eigenvalue i is 1/i.
        #[serde(default = "defaults::quadratic_dimension")]
        dimension: usize,
        /// Examples that count as one epoch.
        #[serde(default = "defaults::synthetic_examples")]
        examples: usize,
    },
}

/// The model. Widths and depths; the input shape and the number of classes come from the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ModelConfig {
    /// One dense layer and softmax.
    SoftmaxRegression {},
    /// Dense layers with an activation between them.
    Mlp {
        /// Widths of the hidden layers.
        #[serde(default = "defaults::widths")]
        widths: Vec<usize>,
        /// Activation.
        #[serde(default)]
        activation: Activation,
    },
    /// The simple CNN of Shallue et al. 2018: 5x5 convolutions (32, 64), each with 2x2 max pooling,
    /// a dense layer of 1024, ReLU. Widths can be changed.
    SimpleCnn {
        /// Channels of the two convolutions.
        #[serde(default = "defaults::cnn_channels")]
        channels: [usize; 2],
        /// Width of the dense layer.
        #[serde(default = "defaults::cnn_dense")]
        dense: usize,
    },
    /// CIFAR ResNet of depth 6k + 2 (He et al. 2016), with batch normalization and
    /// parameter-free shortcuts (option A).
    Resnet {
        /// Depth, 6k + 2: 8, 14, 20, 32, 44, 56, 110.
        #[serde(default = "defaults::resnet_depth")]
        depth: usize,
        /// Channels of the first stage; the next two have twice and four times as many.
        #[serde(default = "defaults::resnet_width")]
        width: usize,
    },
    /// The closed-form objective of `data.source = "noisy-quadratic"`.
    NoisyQuadratic {},
    /// A model registered by the user's own program (README, "Your own model").
    Custom {
        /// The name it was registered under.
        name: String,
        /// Handed to the model's builder as it stands.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        options: Map<String, Value>,
    },
}

/// Activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// max(x, 0)
    #[default]
    Relu,
    /// Hyperbolic tangent.
    Tanh,
}

/// `[train]`: exactly one of `global_batch` and `local_batch`, exactly one budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Logical data-parallel workers P. The global batch is workers x local_batch.
    #[serde(default = "defaults::one")]
    pub workers: usize,
    /// Examples of one update over all workers, B = P x b. Must be divisible by `workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<usize>,
    /// Examples of one update on one worker, b.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_batch: Option<usize>,
    /// Largest number of examples in one forward and backward pass. Default: chosen from model
    /// and batch alone. Changes memory and speed, and results only by rounding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    /// What happens where an epoch does not divide into batches.
    #[serde(default)]
    pub epoch_end: EpochEnd,
    /// Budget in passes over the training set, rounded down to whole updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Budget in updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Budget in examples processed, rounded down to whole updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Stop at the first evaluation that reaches this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetConfig>,
    /// When and on what to evaluate.
    #[serde(default)]
    pub evaluate: EvaluateConfig,
    /// A trial ends as `diverged` if the loss of a batch, or of the training split at an
    /// evaluation, is not finite or exceeds this bound.
    #[serde(default = "defaults::divergence_loss")]
    pub divergence_loss: f64,
    /// Floating-point type of parameters, gradients and updates.
    #[serde(default)]
    pub precision: Precision,
    /// Inference statistics of batch-normalized models.
    #[serde(default)]
    pub batch_statistics: BatchStatistics,
    /// Write a row of steps.csv every this many updates.
    #[serde(default = "defaults::one_u64")]
    pub log_every: u64,
    /// Compute device: `"flex"` (CPU), or `"ndarray"`, `"wgpu"`, `"cuda"` where built in.
    #[serde(default = "defaults::device")]
    pub device: String,
    /// Threads of one trial; 0: what the machine has. Never changes the results.
    #[serde(default)]
    pub threads: usize,
    /// Seconds between two checkpoints of a running trial: what a kill may cost. Never changes
    /// the results.
    #[serde(default = "defaults::checkpoint_seconds")]
    pub checkpoint_seconds: f64,
}

/// What happens where an epoch does not divide into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EpochEnd {
    /// The stream of shuffled epochs is cut into full batches; a batch may span two epochs.
    #[default]
    Carry,
    /// The incomplete batch is left out.
    Drop,
    /// The incomplete batch is used, its gradient the mean over its own examples.
    Partial,
}

/// Floating-point type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 64 bits (flex and ndarray only).
    F64,
}

/// Inference statistics of batch normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BatchStatistics {
    /// An exact pass over the training set at each evaluation: means and second moments of all
    /// groups combined by the law of total variance.
    #[default]
    Population,
}

/// A target that ends a trial: `metric` on `split` reaches `value`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// The metric.
    #[serde(default)]
    pub metric: Metric,
    /// The split it is measured on.
    #[serde(default = "defaults::target_split")]
    pub split: Split,
    /// Accuracy: reached when at least this. Loss: reached when at most this.
    pub value: f64,
}

/// A metric of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Share of examples classified correctly, in [0, 1].
    #[default]
    Accuracy,
    /// Mean loss per example.
    Loss,
}

/// A part of the data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Training examples.
    Train,
    /// Held-out part of the training examples.
    Validation,
    /// Test examples.
    Test,
}

impl Split {
    /// The name used in TOML and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        }
    }
}

/// `[train.evaluate]`: at most one of `every_epochs` and `every_steps`. The start (step 0) and the
/// end of training are always evaluated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluateConfig {
    /// Evaluate each time this many epochs have passed. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_epochs: Option<f64>,
    /// Evaluate every this many updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    /// Evaluate the training split on this many fixed examples; default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_examples: Option<usize>,
}

/// `[learning_rate]`: the rate of update t is
/// `base_lr * scale(global_batch / base_batch) * warm-up(t) * decay(t)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LearningRateConfig {
    /// Learning rate that suits a global batch of `base_batch`.
    pub base_lr: f64,
    /// The global batch that `base_lr` suits. Required unless `scaling = "none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_batch: Option<usize>,
    /// How the rate follows the global batch.
    #[serde(default)]
    pub scaling: Scaling,
    /// Warm-up: none unless given. A length of 0 is none, so that an axis can turn it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<WarmupConfig>,
    /// Decay after warm-up.
    #[serde(default)]
    pub decay: DecayConfig,
}

/// Learning-rate scaling rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// The rate stays base_lr at every batch.
    #[default]
    None,
    /// base_lr * (B / base_batch)^(1/2) (Krizhevsky 2014, Hoffer et al. 2017).
    Sqrt,
    /// base_lr * B / base_batch (Goyal et al. 2017).
    Linear,
}

impl Scaling {
    /// The name in TOML and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Scaling::None => "none",
            Scaling::Sqrt => "sqrt",
            Scaling::Linear => "linear",
        }
    }
}

/// `[learning_rate.warmup]`: exactly one of `epochs`, `steps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmupConfig {
    /// Shape of the warm-up.
    #[serde(default)]
    pub shape: WarmupShape,
    /// Length in epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Length in updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Rate at update 0. Default: `base_lr` (Goyal et al. 2017), or the scaled rate if that is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_lr: Option<f64>,
}

/// Shape of the warm-up (Goyal et al. 2017, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarmupShape {
    /// Linear in the update count from `start_lr` to the scaled rate.
    #[default]
    Gradual,
    /// `start_lr` throughout, then the scaled rate at once.
    Constant,
}

/// Learning-rate decay. Cosine, polynomial and linear run from the end of the warm-up to the end
/// of the budget; step and exponential count epochs from the start of training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DecayConfig {
    /// No decay.
    Constant {},
    /// Multiply by `factor` at each of `epochs`.
    Step {
        /// Epochs at which the rate drops.
        epochs: Vec<f64>,
        /// Factor of each drop.
        #[serde(default = "defaults::decay_factor")]
        factor: f64,
    },
    /// Half a cosine from 1 to `final_fraction`.
    Cosine {
        /// Share of the rate that is left at the end.
        #[serde(default)]
        final_fraction: f64,
    },
    /// f + (1 - f) (1 - progress)^power.
    Polynomial {
        /// Exponent.
        #[serde(default = "defaults::power")]
        power: f64,
        /// Share f of the rate that is left at the end.
        #[serde(default)]
        final_fraction: f64,
    },
    /// `factor`^epoch, continuous in the epoch fraction.
    Exponential {
        /// Factor of one epoch.
        factor: f64,
    },
    /// From 1 to `final_fraction` in a straight line.
    Linear {
        /// Share of the rate that is left at the end.
        #[serde(default)]
        final_fraction: f64,
    },
}

impl Default for DecayConfig {
    fn default() -> Self {
        DecayConfig::Constant {}
    }
}

/// The optimizer, with PyTorch's definitions and defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum OptimizerConfig {
    /// Stochastic gradient descent.
    Sgd {
        /// L2 coefficient, added to the gradient as weight_decay * parameter.
        #[serde(default)]
        weight_decay: f64,
        /// Roles that decay; default: all parameters (as PyTorch).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
    },
    /// Heavy-ball momentum: v <- m v + g; p <- p - lr v.
    Momentum {
        /// Momentum m, in [0, 1).
        #[serde(default = "defaults::momentum")]
        momentum: f64,
        /// L2 coefficient, added to the gradient as weight_decay * parameter.
        #[serde(default)]
        weight_decay: f64,
        /// Roles that decay; default: all parameters (as PyTorch).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
    },
    /// Nesterov momentum: v <- m v + g; p <- p - lr (g + m v).
    Nesterov {
        /// Momentum m, in (0, 1).
        #[serde(default = "defaults::momentum")]
        momentum: f64,
        /// L2 coefficient, added to the gradient as weight_decay * parameter.
        #[serde(default)]
        weight_decay: f64,
        /// Roles that decay; default: all parameters (as PyTorch).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
    },
    /// AdamW (Loshchilov and Hutter 2019): decoupled decay lr * weight_decay * parameter.
    Adamw {
        /// Decay of the first moment.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay of the second moment.
        #[serde(default = "defaults::beta2")]
        beta2: f64,
        /// Added to the root of the second moment.
        #[serde(default = "defaults::epsilon")]
        epsilon: f64,
        /// Decoupled weight decay.
        #[serde(default = "defaults::adamw_weight_decay")]
        weight_decay: f64,
        /// Roles that decay; default: all parameters (as PyTorch).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
    },
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerConfig::Momentum {
            momentum: defaults::momentum(),
            weight_decay: 0.0,
            weight_decay_roles: None,
        }
    }
}

/// What a parameter is for, so that a rule can say "all but biases and normalization".
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Weight matrix of a dense layer.
    Dense,
    /// Kernel of a convolution.
    Convolution,
    /// Bias.
    Bias,
    /// Scale (gamma) of a normalization layer.
    NormalizationScale,
    /// Shift (beta) of a normalization layer.
    NormalizationShift,
    /// Embedding table.
    Embedding,
    /// None of these.
    Other,
}

/// Default values, named so that serde and the constructors share them.
pub(crate) mod defaults {
    pub(crate) fn yes() -> bool {
        true
    }
    pub(crate) fn one() -> usize {
        1
    }
    pub(crate) fn one_u64() -> u64 {
        1
    }
    pub(crate) fn test_fraction() -> f64 {
        0.2
    }
    pub(crate) fn classes() -> usize {
        10
    }
    pub(crate) fn dimension() -> usize {
        32
    }
    pub(crate) fn synthetic_examples() -> usize {
        4096
    }
    pub(crate) fn separation() -> f64 {
        3.0
    }
    pub(crate) fn teacher_width() -> usize {
        32
    }
    pub(crate) fn quadratic_dimension() -> usize {
        100
    }
    pub(crate) fn widths() -> Vec<usize> {
        vec![256, 256]
    }
    pub(crate) fn cnn_channels() -> [usize; 2] {
        [32, 64]
    }
    pub(crate) fn cnn_dense() -> usize {
        1024
    }
    pub(crate) fn resnet_depth() -> usize {
        8
    }
    pub(crate) fn resnet_width() -> usize {
        16
    }
    pub(crate) fn divergence_loss() -> f64 {
        1e6
    }
    pub(crate) fn checkpoint_seconds() -> f64 {
        10.0
    }
    pub(crate) fn device() -> String {
        "flex".to_owned()
    }
    pub(crate) fn target_split() -> super::Split {
        super::Split::Test
    }
    pub(crate) fn decay_factor() -> f64 {
        0.1
    }
    pub(crate) fn power() -> f64 {
        2.0
    }
    pub(crate) fn momentum() -> f64 {
        0.9
    }
    pub(crate) fn beta1() -> f64 {
        0.9
    }
    pub(crate) fn beta2() -> f64 {
        0.999
    }
    pub(crate) fn epsilon() -> f64 {
        1e-8
    }
    pub(crate) fn adamw_weight_decay() -> f64 {
        1e-2
    }
}
