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

use super::probes::ProbesConfig;
use super::update::{Reduction, Update};

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
    /// How the global batch changes over the run. Default: it does not.
    #[serde(default, skip_serializing_if = "BatchConfig::is_default")]
    pub batch: BatchConfig,
    /// The optimizer. Default: SGD with momentum 0.9.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// How the optimizer's momentum changes over the run. Default: it does not.
    #[serde(default, skip_serializing_if = "MomentumSchedule::is_constant")]
    pub momentum_schedule: MomentumSchedule,
    /// Curvature, sharpness and gradient noise, measured during training. Default: none.
    #[serde(default, skip_serializing_if = "ProbesConfig::is_default")]
    pub probes: ProbesConfig,
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
        /// Normalization between each hidden dense layer and its activation (weight
        /// normalization: of the weights of all dense layers).
        #[serde(default, skip_serializing_if = "Normalization::is_none")]
        normalization: Normalization,
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
        /// Normalization between each convolution or hidden dense layer and its activation
        /// (weight normalization: of the weights of all layers).
        #[serde(default, skip_serializing_if = "Normalization::is_none")]
        normalization: Normalization,
    },
    /// CIFAR ResNet of depth 6k + 2 (He et al. 2016), with batch normalization unless
    /// `normalization` says otherwise, and parameter-free shortcuts (option A).
    Resnet {
        /// Depth, 6k + 2: 8, 14, 20, 32, 44, 56, 110.
        #[serde(default = "defaults::resnet_depth")]
        depth: usize,
        /// Channels of the first stage; the next two have twice and four times as many.
        #[serde(default = "defaults::resnet_width")]
        width: usize,
        /// Normalization after each convolution (weight normalization: of the weights of all
        /// layers).
        #[serde(
            default = "Normalization::batch",
            skip_serializing_if = "Normalization::is_batch"
        )]
        normalization: Normalization,
        /// Start the scale of the last normalization of each block at 0, so that every block
        /// begins as the identity (Goyal et al. 2017, section 5.1).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        zero_gamma: bool,
    },
    /// The closed-form objective of `data.source = "noisy-quadratic"`.
    NoisyQuadratic {
        /// Descend preconditioned by the known Hessian H to this power p, in [0, 1]:
        /// theta <- theta - lr H^-p g. The parameters are H^(p/2) theta, in which that is plain descent.
        #[serde(default, skip_serializing_if = "defaults::is_zero")]
        preconditioner_power: f64,
    },
    /// A model registered by the user's own program (README, "Your own model").
    Custom {
        /// The name it was registered under.
        name: String,
        /// Handed to the model's builder as it stands.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        options: Map<String, Value>,
    },
}

/// What a model normalizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Normalization {
    /// Nothing.
    #[default]
    None,
    /// Batch normalization (Ioffe and Szegedy 2015), over the groups of
    /// `train.statistics_group`.
    Batch,
    /// Layer normalization (Ba et al. 2016): over all features of one example.
    Layer,
    /// Group normalization (Wu and He 2018): over groups of channels of one example.
    Group {
        /// Number of groups; the number of channels of every normalized layer is a multiple of it.
        #[serde(default = "defaults::channel_groups")]
        groups: usize,
    },
    /// Weight normalization (Salimans and Kingma 2016): w = g v / |v| for each output unit or
    /// channel.
    Weight {
        /// Set g and the biases from the first batch, so that each pre-activation starts with mean 0
        /// and variance 1 (section 3 of the paper).
        #[serde(default = "defaults::yes")]
        data_dependent: bool,
    },
}

impl Normalization {
    /// Whether outputs that are piecewise linear in each single parameter without this normalization are
    /// so with it: those of batch normalization where its statistics are held fixed.
    pub(crate) fn keeps_linear(self) -> bool {
        matches!(self, Self::None | Self::Batch)
    }

    pub(crate) fn batch() -> Self {
        Normalization::Batch
    }

    fn is_none(&self) -> bool {
        *self == Normalization::None
    }

    fn is_batch(&self) -> bool {
        *self == Normalization::Batch
    }
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
    /// and batch alone. Changes memory and speed, and results only by rounding; but where the noise
    /// of the gradient is measured (`[batch]`, AdaScale), smaller pieces give another estimate of it.
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
    /// End after this many updates, whatever the budget, which the schedules go by: with a target,
    /// as a run that did not reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_steps: Option<u64>,
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
    /// Which examples share batch statistics in training.
    #[serde(default, skip_serializing_if = "StatisticsGroup::is_local")]
    pub statistics_group: StatisticsGroup,
    /// Inference statistics of batch-normalized models.
    #[serde(default)]
    pub batch_statistics: BatchStatistics,
    /// Scale the gradient down to this Euclidean norm where its norm over all parameters is
    /// larger: g min(1, clip_norm/|g|).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Average of the parameters over the run; evaluations and the model that is kept use it.
    #[serde(default, skip_serializing_if = "Averaging::is_none")]
    pub averaging: Averaging,
    /// How gradients become updates.
    #[serde(default, skip_serializing_if = "Update::is_synchronous")]
    pub update: Update,
    /// How gradients are summed over processes, under `mpirun`.
    #[serde(default, skip_serializing_if = "Reduction::is_ordered")]
    pub reduction: Reduction,
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

/// Which examples share batch statistics in training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StatisticsGroup {
    /// Those of one worker's shard: no communication.
    #[default]
    Local,
    /// All examples of an update, as synchronized batch normalization: on many machines the workers
    /// would exchange their sums at every layer, forward and backward (`result.json` counts them).
    /// Here the whole batch is one pass, on one thread.
    Global,
    /// Groups of a fixed size inside each worker's shard (Hoffer et al. 2017).
    Ghost {
        /// Examples in a group, at least 2 and at most the shard.
        ghost_size: usize,
        /// What happens to the examples left over where a shard does not divide.
        #[serde(default)]
        remainder: GhostRemainder,
    },
}

impl StatisticsGroup {
    fn is_local(&self) -> bool {
        *self == StatisticsGroup::Local
    }
}

/// What happens to the examples of a shard that do not fill a ghost batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GhostRemainder {
    /// They join the last group.
    #[default]
    Merge,
    /// The config is refused.
    Refuse,
}

/// Inference statistics of batch normalization.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BatchStatistics {
    /// An exact pass over the training set at each evaluation: means and second moments of all
    /// groups combined by the law of total variance.
    #[default]
    Population,
    /// Running averages over the updates, from mean 0 and variance 1: r <- (1 - rate) r + rate s,
    /// s the mean over the groups of the update of their mean and of their unbiased variance
    /// (as PyTorch).
    Ema {
        /// Share of the newest update, in (0, 1]; PyTorch calls it momentum.
        #[serde(default = "defaults::statistics_rate")]
        rate: f64,
    },
}

/// Average of the parameters over the run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Averaging {
    /// None: the parameters of the last update.
    #[default]
    None,
    /// Exponential moving average: a <- decay a + (1 - decay) p after each update, from the
    /// initial parameters.
    Ema {
        /// Decay, in [0, 1). The average holds about 1/(1 - decay) updates, and the initial
        /// parameters weigh decay^t after t of them: keep it well below the length of the run.
        #[serde(default = "defaults::averaging_decay")]
        decay: f64,
    },
    /// Stochastic weight averaging (Izmailov et al. 2018): the plain mean of the parameters at
    /// `start_epoch` and every `every_epochs` after it. Until then, the parameters themselves.
    Swa {
        /// Epoch of the first parameters that count.
        start_epoch: f64,
        /// Epochs between two that count.
        #[serde(default = "defaults::one_f64")]
        every_epochs: f64,
    },
}

impl Averaging {
    fn is_none(&self) -> bool {
        *self == Averaging::None
    }
}

/// A target that ends a trial: `metric` on `split` reaches `value`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Evaluate after update 1, and then each time the updates have grown by this factor, but never
    /// twice at one: after s, next after max(s + 1, ceil(growth s)). A crossing is then placed to the
    /// same share of the updates whenever it comes. More than 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<f64>,
    /// Evaluate these splits only. Default: all that the data have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<Vec<Split>>,
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
    /// The global batch that `base_lr` suits. Required unless `scaling = "none"`, and by the warm-up
    /// `legw`.
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

/// Learning-rate scaling rule. Applied again wherever the batch changes inside a run
/// (`batch.coupling`).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scaling {
    /// The rate stays base_lr at every batch.
    #[default]
    None,
    /// base_lr * (B / base_batch)^(1/2) (Krizhevsky 2014, Hoffer et al. 2017).
    Sqrt,
    /// base_lr * B / base_batch (Goyal et al. 2017).
    Linear,
    /// base_lr * (B / base_batch)^exponent.
    Power {
        /// The exponent; 0 is `none`, 0.5 `sqrt`, 1 `linear`.
        exponent: f64,
    },
    /// The saturating law eps_max / (1 + noise_scale/B) (McCandlish et al. 2018), with eps_max such
    /// that a batch of `base_batch` has base_lr: base_lr * (1 + noise_scale/base_batch) /
    /// (1 + noise_scale/B).
    Saturating {
        /// The noise scale B_noise, in examples.
        noise_scale: f64,
    },
    /// AdaScale (Johnson et al. 2020): base_lr times the gain r in [1, S], S = B/base_batch, measured
    /// from the gradients of the pieces of each batch. Warm-up, decay and the budget count the sum
    /// of the gains, so that they are those of a run at `base_batch`: the run ends when that sum
    /// reaches the updates that the budget makes there.
    Adascale {},
}

impl Scaling {
    /// The name in TOML and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Scaling::None => "none",
            Scaling::Sqrt => "sqrt",
            Scaling::Linear => "linear",
            Scaling::Power { .. } => "power",
            Scaling::Saturating { .. } => "saturating",
            Scaling::Adascale {} => "adascale",
        }
    }
}

/// `[learning_rate.warmup]`: exactly one of `epochs`, `steps`, `examples`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmupConfig {
    /// Shape of the warm-up.
    #[serde(default)]
    pub shape: WarmupShape,
    /// Length in epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Length in updates; where the batch changes, in updates of the first batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Length in examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Rate at update 0. Default: `base_lr` (Goyal et al. 2017), or the scaled rate if that is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_lr: Option<f64>,
}

/// Shape of the warm-up, over t updates of its length W.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarmupShape {
    /// Linear in the update count from `start_lr` to the scaled rate (Goyal et al. 2017, section
    /// 2.2).
    #[default]
    Gradual,
    /// `start_lr` throughout, then the scaled rate at once (Goyal et al. 2017, section 2.2).
    Constant,
    /// Geometric from `start_lr` to the scaled rate: start (peak/start)^(t/W).
    Exponential,
    /// LEGW (You et al. 2019, arXiv 1901.08256): gradual from 0 unless `start_lr` says otherwise, the
    /// length in epochs or examples multiplied by global_batch/base_batch (so that its updates stay
    /// the same; a length in updates stands as it is). Needs `base_batch`. The paper pairs it with
    /// `scaling = "sqrt"`.
    Legw,
}

/// Learning-rate decay. Cosine, polynomial, linear and warmup-stable-decay run from the end of the
/// warm-up to the end of the budget, inverse-sqrt and cyclic from the end of the warm-up; step and
/// exponential count epochs from the start of training.
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
    /// (1 + e/timescale)^(-1/2), e the epochs since the warm-up (Vaswani et al. 2017, for which the
    /// time scale is the warm-up).
    InverseSqrt {
        /// Time scale in epochs. Default: the length of the warm-up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timescale_epochs: Option<f64>,
    },
    /// Constant, then down to `final_fraction` over the last `decay_fraction` of the run (Hu et al.
    /// 2024, Haegele et al. 2024).
    WarmupStableDecay {
        /// Share of the run, without the warm-up, over which the rate goes down; in (0, 1].
        #[serde(default = "defaults::wsd_decay_fraction")]
        decay_fraction: f64,
        /// Share of the rate that is left at the end.
        #[serde(default)]
        final_fraction: f64,
        /// How it goes down.
        #[serde(default)]
        shape: DecayShape,
    },
    /// Triangles between `min_fraction` and 1 (Smith 2017, "Cyclical learning rates"): up over the
    /// first half of each period, down over the second.
    Cyclic {
        /// Length of one cycle in epochs.
        period_epochs: f64,
        /// Lowest share of the rate.
        #[serde(default = "defaults::cyclic_min")]
        min_fraction: f64,
        /// The height of each triangle over that of the one before: 1 is the paper's
        /// `triangular`, 0.5 its `triangular2`.
        #[serde(default = "defaults::one_f64")]
        cycle_factor: f64,
    },
}

/// How a rate goes down; x runs from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecayShape {
    /// 1 - x
    #[default]
    Linear,
    /// (1 + cos(pi x))/2
    Cosine,
    /// 1 - x^(1/2)
    Sqrt,
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
        /// Where the rate stands; see [`MomentumForm`].
        #[serde(default, skip_serializing_if = "MomentumForm::is_outside")]
        form: MomentumForm,
        /// With `form = "inside"`: multiply the velocity by lr_t/lr_(t-1) where the rate changes
        /// (momentum correction; Goyal et al. 2017, section 3, remark 2). The form `outside` needs
        /// none.
        #[serde(default = "defaults::yes", skip_serializing_if = "is_true")]
        correction: bool,
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
        /// Where the rate stands; see [`MomentumForm`].
        #[serde(default, skip_serializing_if = "MomentumForm::is_outside")]
        form: MomentumForm,
        /// With `form = "inside"`: multiply the velocity by lr_t/lr_(t-1) where the rate changes
        /// (momentum correction; Goyal et al. 2017, section 3, remark 2). The form `outside` needs
        /// none.
        #[serde(default = "defaults::yes", skip_serializing_if = "is_true")]
        correction: bool,
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
    /// LARS (You et al. 2017): each parameter tensor's rate is multiplied by its trust ratio
    /// trust_coefficient |p| / (|g| + weight_decay |p| + epsilon), and
    /// v <- m v + lr ratio (g + weight_decay p); p <- p - v.
    Lars {
        /// Momentum m, in [0, 1).
        #[serde(default = "defaults::momentum")]
        momentum: f64,
        /// Nesterov's form: p <- p - (m v + lr ratio (g + weight_decay p)).
        #[serde(default)]
        nesterov: bool,
        /// Weight decay; part of the ratio and of the update.
        #[serde(default)]
        weight_decay: f64,
        /// Roles that decay; default: all but biases and normalization.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
        /// Trust coefficient.
        #[serde(default = "defaults::trust_coefficient")]
        trust_coefficient: f64,
        /// Added to the denominator of the ratio.
        #[serde(default)]
        epsilon: f64,
        /// The denominator: `"separate"` norms |g| + weight_decay |p| (the paper), or the `"joint"`
        /// norm |g + weight_decay p| (optax).
        #[serde(default)]
        norms: RatioNorms,
        /// Roles that have no ratio of their own (a ratio of 1); default: biases and normalization.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exclude_roles: Option<Vec<Role>>,
        /// LARC: the tensor's rate is min(ratio, lr) in place of lr ratio.
        #[serde(default)]
        clip: bool,
        /// As for momentum: multiply the velocity by lr_t/lr_(t-1) where the rate changes. The rate
        /// stands inside the velocity in LARS. The paper does not.
        #[serde(default)]
        correction: bool,
    },
    /// LAMB (You et al. 2020): Adam's update u = m^ / (v^^(1/2) + epsilon) + weight_decay p,
    /// multiplied for each parameter tensor by the trust ratio |p| / |u|.
    Lamb {
        /// Decay of the first moment.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay of the second moment.
        #[serde(default = "defaults::beta2")]
        beta2: f64,
        /// Added to the root of the second moment.
        #[serde(default = "defaults::lamb_epsilon")]
        epsilon: f64,
        /// Weight decay; part of the ratio and of the update.
        #[serde(default)]
        weight_decay: f64,
        /// Roles that decay; default: all but biases and normalization.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
        /// Roles that have no ratio of their own (a ratio of 1); default: none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exclude_roles: Option<Vec<Role>>,
        /// Use min(ratio, 1).
        #[serde(default)]
        clip: bool,
    },
    /// Lion (Chen et al. 2023): c = b1 m + (1 - b1) g; p <- p - lr (sign c + weight_decay p);
    /// m <- b2 m + (1 - b2) g.
    Lion {
        /// Weight of the momentum in the update.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay of the momentum.
        #[serde(default = "defaults::lion_beta2")]
        beta2: f64,
        /// Decoupled weight decay.
        #[serde(default)]
        weight_decay: f64,
        /// Roles that decay; default: all parameters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_decay_roles: Option<Vec<Role>>,
    },
}

/// Where the learning rate stands in momentum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MomentumForm {
    /// v <- m v + g; p <- p - lr v (PyTorch). Nesterov: p <- p - lr (g + m v).
    #[default]
    Outside,
    /// v <- m v + lr g; p <- p - v (Caffe, and Goyal's equation 10). Nesterov:
    /// p <- p - (lr g + m v).
    Inside,
}

impl MomentumForm {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_outside(&self) -> bool {
        *self == MomentumForm::Outside
    }
}

/// The norms in the denominator of a trust ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RatioNorms {
    /// |g| + weight_decay |p|
    #[default]
    Separate,
    /// |g + weight_decay p|
    Joint,
}

/// How the momentum of `momentum`, `nesterov` or `lars` changes over a run; m is the optimizer's
/// own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MomentumSchedule {
    /// m throughout.
    Constant {},
    /// m until the first of `epochs`, then one of `values` from each epoch on.
    Step {
        /// Epochs at which the momentum changes, rising.
        epochs: Vec<f64>,
        /// The momentum from each of them on.
        values: Vec<f64>,
    },
    /// From `start` to m in a straight line over the first `epochs`.
    Linear {
        /// Momentum of the first update.
        start: f64,
        /// Length in epochs.
        epochs: f64,
    },
    /// min(1 - 2^(-1 - log2(floor(t/250) + 1)), m) at update t (Sutskever et al. 2013).
    Sutskever {},
}

impl MomentumSchedule {
    fn is_constant(&self) -> bool {
        *self == MomentumSchedule::Constant {}
    }
}

impl Default for MomentumSchedule {
    fn default() -> Self {
        MomentumSchedule::Constant {}
    }
}

/// `[batch]`: how the global batch changes over a run. A change alters nothing else: the order of
/// the examples, the seeds, and the accounts of updates and examples go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchConfig {
    /// Who decides. Default: the batch stays that of `[train]`.
    #[serde(default)]
    pub controller: BatchController,
    /// How a larger batch is made.
    #[serde(default)]
    pub growth: BatchGrowth,
    /// Whether a change of the batch moves the learning rate. Default: `"rule"`, but `"none"` for
    /// `smith`, which changes the batch in place of the rate, and `cabs`, which follows the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coupling: Option<Coupling>,
    /// Smallest global batch. Default: that of the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_batch: Option<usize>,
    /// Largest global batch. Default: the training examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<usize>,
    /// Decide every this many updates. Default for controllers that measure gradients: 10. Those that
    /// measure nothing ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    /// Decide each time this many epochs have passed. Default for `absa`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_epochs: Option<f64>,
    /// Weight of the past in the averages of what is measured, in [0, 1): a <- s a + (1 - s) x,
    /// corrected for its start. Averages come first, ratios of them after.
    #[serde(
        default = "defaults::smoothing",
        skip_serializing_if = "defaults::is_smoothing"
    )]
    pub smoothing: f64,
}

impl Default for BatchConfig {
    fn default() -> Self {
        BatchConfig {
            controller: BatchController::default(),
            growth: BatchGrowth::default(),
            coupling: None,
            min_batch: None,
            max_batch: None,
            every_steps: None,
            every_epochs: None,
            smoothing: defaults::smoothing(),
        }
    }
}

impl BatchConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == BatchConfig::default()
    }
}

/// How a larger batch is made. Shards of a worker are the local groups of batch normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BatchGrowth {
    /// Larger shards: the workers stay, the local batch changes.
    #[default]
    Shards,
    /// More workers: the local batch stays.
    Workers,
    /// Accumulation: workers and local batch stay, each update is the mean over several passes.
    Accumulation,
}

/// Whether a change of the batch moves the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// `learning_rate.scaling` holds at every batch.
    Rule,
    /// The rate is that of the first batch.
    None,
}

/// Who decides about the batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum BatchController {
    /// The batch of `[train]` throughout.
    Constant {},
    /// Given batches from given epochs on.
    Schedule {
        /// Pairs [epoch, global batch], epochs rising.
        stages: Vec<[f64; 2]>,
    },
    /// Smith et al. 2017, "Don't decay the learning rate, increase the batch size": at each of
    /// `epochs`, where the rate would have been divided by `factor`, the batch is multiplied by it up
    /// to `batch.max_batch`, and the rate takes what is left of the factor.
    Smith {
        /// Epochs at which the rate would have been decayed, rising.
        epochs: Vec<f64>,
        /// What the rate would have been divided by.
        #[serde(default = "defaults::smith_factor")]
        factor: f64,
        /// Start with rate and batch both multiplied by this ("increased initial learning rate").
        #[serde(default = "defaults::one_f64")]
        initial_factor: f64,
        /// Start with this momentum in place of the optimizer's m, and the batch multiplied by
        /// (1 - m)/(1 - momentum) ("increased momentum": B in proportion to lr/(1 - m)).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        momentum: Option<f64>,
    },
    /// ABSA (Yao et al. 2018, arXiv 1810.01021): the batch is multiplied by `factor` when the top
    /// eigenvalue of the Hessian has fallen to `decrease` of its reference, or after
    /// `patience_epochs` without a change; divided by it when the eigenvalue has risen to
    /// `increase` of its reference. Part of each batch is moved along the sign of the gradient
    /// (FGSM); that part is divided by `factor` at each growth, and 0 from `max_batch` on.
    Absa {
        /// Factor of each change.
        #[serde(default = "defaults::two")]
        factor: f64,
        /// The batch grows when the eigenvalue is at most this share of its reference, in (0, 1).
        #[serde(default = "defaults::half")]
        decrease: f64,
        /// The batch shrinks when the eigenvalue is at least this multiple of its reference; an
        /// addition to the published algorithm, which only grows. Leave it out to do as it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        increase: Option<f64>,
        /// Epochs without a change after which the batch grows.
        #[serde(default = "defaults::ten_f64")]
        patience_epochs: f64,
        /// Share of each batch that is adversarial at the start, in [0, 1].
        #[serde(default = "defaults::adversarial_share")]
        adversarial_share: f64,
        /// Largest change of a feature of an adversarial example, in units of the standardized
        /// features.
        #[serde(default = "defaults::adversarial_epsilon")]
        adversarial_epsilon: f64,
        /// Share of the budget after which no example is adversarial.
        #[serde(default = "defaults::half")]
        adversarial_until: f64,
        /// Training examples, fixed and seeded, of the Hessian.
        #[serde(default = "defaults::curvature_examples")]
        curvature_examples: usize,
        /// Most Hessian-vector products of one decision.
        #[serde(default = "defaults::power_iterations")]
        power_iterations: usize,
        /// Relative error of the eigenvalue at which it has converged, taken as the square of its
        /// relative residual |Hv - lambda v|/|lambda|.
        #[serde(default = "defaults::power_tolerance")]
        tolerance: f64,
    },
    /// CABS (Balles et al. 2017): B = lr tr(Sigma) / loss. Derived for `sgd`; with momentum the
    /// effective rate is lr/(1 - m), which the rule does not see.
    Cabs {},
    /// The norm test (Byrd et al. 2012): B = tr(Sigma) / (theta^2 |G|^2).
    NormTest {
        /// Accepted ratio of the gradient's standard error to its norm.
        #[serde(default = "defaults::norm_theta")]
        theta: f64,
    },
    /// The inner-product test (Bollapragada et al. 2018): B = Var(g_i'G) / (theta^2 |G|^4).
    InnerProductTest {
        /// Accepted ratio of the standard error of g'G to |G|^2.
        #[serde(default = "defaults::inner_theta")]
        theta: f64,
        /// Also hold the part orthogonal to G within this multiple of |G| (the paper's nu; its
        /// augmented test).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        orthogonality: Option<f64>,
    },
    /// B = (exchange_rate B_noise)^(1/2) with the Hessian-weighted noise scale
    /// B_noise = tr(H Sigma)/(G'HG) (McCandlish et al. 2018).
    NoiseScale {
        /// Examples that are worth one update.
        exchange_rate: f64,
        /// Training examples, fixed and seeded, of the Hessian.
        #[serde(default = "defaults::curvature_examples")]
        curvature_examples: usize,
    },
    /// B = B_simple = tr(Sigma)/|G|^2 (McCandlish et al. 2018).
    SimpleNoiseScale {},
}

impl Default for BatchController {
    fn default() -> Self {
        BatchController::Constant {}
    }
}

impl BatchController {
    /// Whether the batches of the whole run are known without training.
    pub fn is_planned(&self) -> bool {
        matches!(
            self,
            BatchController::Constant {}
                | BatchController::Schedule { .. }
                | BatchController::Smith { .. }
        )
    }

    /// The name in TOML and in tables.
    pub fn name(&self) -> &'static str {
        match self {
            BatchController::Constant {} => "constant",
            BatchController::Schedule { .. } => "schedule",
            BatchController::Smith { .. } => "smith",
            BatchController::Absa { .. } => "absa",
            BatchController::Cabs {} => "cabs",
            BatchController::NormTest { .. } => "norm-test",
            BatchController::InnerProductTest { .. } => "inner-product-test",
            BatchController::NoiseScale { .. } => "noise-scale",
            BatchController::SimpleNoiseScale {} => "simple-noise-scale",
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_true(value: &bool) -> bool {
    *value
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        OptimizerConfig::Momentum {
            momentum: defaults::momentum(),
            weight_decay: 0.0,
            weight_decay_roles: None,
            form: MomentumForm::Outside,
            correction: true,
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
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(crate) fn is_zero(number: &f64) -> bool {
        *number == 0.0
    }
    pub(crate) fn yes() -> bool {
        true
    }
    pub(crate) fn one() -> usize {
        1
    }
    pub(crate) fn one_u64() -> u64 {
        1
    }
    pub(crate) fn one_f64() -> f64 {
        1.0
    }
    pub(crate) fn two() -> f64 {
        2.0
    }
    pub(crate) fn half() -> f64 {
        0.5
    }
    pub(crate) fn ten_f64() -> f64 {
        10.0
    }
    pub(crate) fn channel_groups() -> usize {
        8
    }
    pub(crate) fn statistics_rate() -> f64 {
        0.1
    }
    pub(crate) fn averaging_decay() -> f64 {
        0.999
    }
    pub(crate) fn wsd_decay_fraction() -> f64 {
        0.2
    }
    pub(crate) fn cyclic_min() -> f64 {
        0.1
    }
    pub(crate) fn trust_coefficient() -> f64 {
        0.001
    }
    pub(crate) fn lamb_epsilon() -> f64 {
        1e-6
    }
    pub(crate) fn lion_beta2() -> f64 {
        0.99
    }
    pub(crate) fn smoothing() -> f64 {
        0.9
    }
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(crate) fn is_smoothing(value: &f64) -> bool {
        *value == smoothing()
    }
    pub(crate) fn smith_factor() -> f64 {
        5.0
    }
    pub(crate) fn adversarial_share() -> f64 {
        0.2
    }
    pub(crate) fn adversarial_epsilon() -> f64 {
        0.005
    }
    pub(crate) fn curvature_examples() -> usize {
        512
    }
    pub(crate) fn power_iterations() -> usize {
        10
    }
    pub(crate) fn power_tolerance() -> f64 {
        0.01
    }
    pub(crate) fn norm_theta() -> f64 {
        0.5
    }
    pub(crate) fn inner_theta() -> f64 {
        0.9
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
