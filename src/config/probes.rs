//! `[probes]`: what is measured of a run besides its losses, and when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{Checked, Fault};
use super::types::{
    Activation, DataSource, ModelConfig, Normalization, OptimizerConfig, Role, TrialConfig,
};

/// `[probes]`: curvature, sharpness and gradient noise, measured during training. A probe leaves
/// the run as it is, bit by bit. Each kind of probe runs where its table is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbesConfig {
    /// Probe each time this many epochs have passed. A run is probed at its end in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_epochs: Option<f64>,
    /// Probe every this many updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    /// Probe before the first update too.
    #[serde(default)]
    pub start: bool,
    /// Probe once at the first evaluation whose training loss is at most this, so that runs can be
    /// compared at equal training loss besides equal epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_train_loss: Option<f64>,
    /// Training examples that the loss of a probe is a mean over: fixed, drawn with
    /// `data.split_seed`. Default: 2048, or all if there are fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
    /// Batch statistics of a batch-normalized model under a probe.
    #[serde(default)]
    pub statistics: ProbeStatistics,
    /// Add the optimizer's L2 term to the loss: weight_decay/2 times the squared norm of the
    /// parameters that decay.
    #[serde(default)]
    pub weight_decay: bool,
    /// Products with the Hessian: exact, or by differences of gradients.
    #[serde(default)]
    pub products: Products,
    /// Eigenvalues and trace of the Hessian.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hessian: Option<HessianProbe>,
    /// The same of the Gauss-Newton matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gauss_newton: Option<HessianProbe>,
    /// Spectral density of the Hessian.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density: Option<DensityProbe>,
    /// Sharpness of the training loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharpness: Option<SharpnessProbe>,
    /// Accuracy on adversarial test examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adversarial: Option<AdversarialProbe>,
    /// Noise of the gradient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseProbe>,
}

/// Batch statistics under a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeStatistics {
    /// The inference statistics of the parameters that are probed, held fixed: the loss of the
    /// model as it is evaluated.
    #[default]
    Frozen,
    /// Those of groups of examples as large as those of training: the loss that training sees.
    Batch,
}

impl ProbeStatistics {
    /// The name in TOML and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Batch => "batch",
        }
    }
}

/// How products with the Hessian are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Products {
    /// Exact where the model has them, as all built-in models do, else differences.
    #[default]
    Auto,
    /// Exact: the gradient of the directional derivative.
    Exact,
    /// Central differences of gradients. They see the kinks of ReLU and max pooling that lie
    /// between the two gradients, as exact products do not.
    Differences,
}

/// `[probes.hessian]`, `[probes.gauss_newton]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HessianProbe {
    /// Largest eigenvalues.
    #[serde(default = "twenty")]
    pub largest: usize,
    /// Smallest (most negative) eigenvalues.
    #[serde(default = "twenty")]
    pub smallest: usize,
    /// An eigenvalue has converged when its residual |Hv - lambda v| is at most this share of it; for
    /// eigenvalues of less than a thousandth of the largest magnitude, of that thousandth.
    #[serde(default = "residual")]
    pub tolerance: f64,
    /// Most products for the eigenvalues.
    #[serde(default = "eigenvalue_products")]
    pub max_products: usize,
    /// Most products for an estimate of the trace; 0: no trace.
    #[serde(default = "trace_products")]
    pub trace_products: usize,
    /// An estimate of the trace is good enough at a standard error of this share of it.
    #[serde(default = "trace_tolerance")]
    pub trace_tolerance: f64,
    /// How the trace is found.
    #[serde(default)]
    pub trace: TraceMethod,
    /// Trace of each layer's diagonal block, and its largest eigenvalue.
    #[serde(default)]
    pub blocks: BlockKind,
}

impl Default for HessianProbe {
    fn default() -> Self {
        Self {
            largest: twenty(),
            smallest: twenty(),
            tolerance: residual(),
            max_products: eigenvalue_products(),
            trace_products: trace_products(),
            trace_tolerance: trace_tolerance(),
            trace: TraceMethod::default(),
            blocks: BlockKind::default(),
        }
    }
}

/// How a trace is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TraceMethod {
    /// Exact where the model allows it and has at most `trace_products` classes, else `krylov`.
    #[default]
    Auto,
    /// Exact, from the gradients of single examples for every class, a pass each. Of the Hessian where
    /// the model is piecewise linear in each parameter: ReLU, and no or batch normalization.
    Exact,
    /// Mean of z'Hz over random vectors of +1 and -1 (Hutchinson 1990).
    Hutchinson,
    /// Hutch++ (Meyer et al. 2021): the trace on a random subspace that the matrix maps to,
    /// exactly, and Hutchinson's mean of the rest. For traces to a fraction of a per cent.
    HutchPlusPlus,
    /// The trace on the eigenvectors that were found, exactly, and Hutchinson's mean of the rest;
    /// where fewer than 15 were asked for, on a Krylov space of 15 products in their place.
    Krylov,
}

/// Which diagonal blocks of the Hessian are probed on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockKind {
    /// None.
    #[default]
    None,
    /// One a layer: parameters whose names differ in the last part alone (`layers.0.weight`,
    /// `layers.0.bias`).
    Layer,
    /// One a block of layers: by the first two parts of names where there are four or more
    /// (`layer1.0.conv1.weight`), else as by layer.
    Block,
}

/// `[probes.density]`: stochastic Lanczos quadrature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DensityProbe {
    /// Random starts; their spread is the standard error.
    #[serde(default = "density_probes")]
    pub probes: usize,
    /// Lanczos steps, one product each, from each start.
    #[serde(default = "lanczos_steps")]
    pub lanczos_steps: usize,
    /// Width of the Gaussian kernels, as a share of the spectrum's range.
    #[serde(default = "kernel_width")]
    pub width: f64,
    /// Points of the curve.
    #[serde(default = "density_points")]
    pub points: usize,
}

impl Default for DensityProbe {
    fn default() -> Self {
        Self {
            probes: density_probes(),
            lanczos_steps: lanczos_steps(),
            width: kernel_width(),
            points: density_points(),
        }
    }
}

/// `[probes.sharpness]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharpnessProbe {
    /// Half-widths e of Keskar's box |z_i| <= e(|x_i| + 1).
    #[serde(default = "box_sizes")]
    pub epsilons: Vec<f64>,
    /// Dimension of the random subspace; 0: the full space only.
    #[serde(default = "subspace")]
    pub subspace: usize,
    /// Iterations of bounded L-BFGS.
    #[serde(default = "ten")]
    pub iterations: usize,
    /// Radii of the L2 ball for the worst loss (as SAM).
    #[serde(default = "l2_radii")]
    pub l2_radii: Vec<f64>,
    /// Standard deviations of Gaussian noise on the parameters for the expected loss.
    #[serde(default = "sigmas")]
    pub sigmas: Vec<f64>,
    /// Pairs of draws of that noise.
    #[serde(default = "noise_pairs")]
    pub noise_pairs: usize,
    /// Relative flatness, the sum over weights of |w|^2 tr(H_w), from this many products;
    /// 0: none.
    #[serde(default = "flatness_products")]
    pub flatness_products: usize,
}

impl Default for SharpnessProbe {
    fn default() -> Self {
        Self {
            epsilons: box_sizes(),
            subspace: subspace(),
            iterations: ten(),
            l2_radii: l2_radii(),
            sigmas: sigmas(),
            noise_pairs: noise_pairs(),
            flatness_products: flatness_products(),
        }
    }
}

/// `[probes.adversarial]`: attacks on the test examples, in units of the prepared features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdversarialProbe {
    /// Largest change of a feature, for each of which accuracy is measured.
    #[serde(default = "attack_radii")]
    pub radii: Vec<f64>,
    /// Steps of PGD; FGSM has one.
    #[serde(default = "ten")]
    pub steps: usize,
    /// Test examples; default: 1000, or all if there are fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
}

impl Default for AdversarialProbe {
    fn default() -> Self {
        Self {
            radii: attack_radii(),
            steps: ten(),
            examples: None,
        }
    }
}

/// `[probes.noise]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoiseProbe {
    /// Write the two-batch norms of every this many updates, from the pieces that the workers'
    /// gradients are made of, into `noise.csv`; 0: none.
    #[serde(default = "ten_u64")]
    pub every_steps: u64,
    /// Write those of each layer too, into `noise-layers.csv`.
    #[serde(default)]
    pub layers: bool,
    /// Cosine of the gradient with that of the update before. Keeps one more vector.
    #[serde(default)]
    pub cosine: bool,
    /// At each probe, the noise from the gradients of single examples.
    #[serde(default)]
    pub exact: bool,
    /// At each probe, tr(H Sigma) and G'HG from this many pieces of the examples; 0: neither.
    #[serde(default)]
    pub hessian_pieces: usize,
}

impl Default for NoiseProbe {
    fn default() -> Self {
        Self {
            every_steps: 10,
            layers: false,
            cosine: false,
            exact: false,
            hessian_pieces: 0,
        }
    }
}

impl ProbesConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether anything is measured at single moments, besides the noise of every update.
    pub fn at_moments(&self) -> bool {
        let noise = |noise: &NoiseProbe| noise.exact || noise.hessian_pieces > 0;
        self.hessian.is_some()
            || self.gauss_newton.is_some()
            || self.density.is_some()
            || self.sharpness.is_some()
            || self.adversarial.is_some()
            || self.noise.as_ref().is_some_and(noise)
    }

    /// The noise of the updates, where it is written.
    pub fn noise_of_updates(&self) -> Option<&NoiseProbe> {
        self.noise.as_ref().filter(|noise| noise.every_steps > 0)
    }
}

impl OptimizerConfig {
    /// The coefficient of an L2 term that is part of the gradient; `None` where decay is
    /// decoupled from it, or a part of the trust ratio.
    pub fn l2(&self) -> Option<f64> {
        match self {
            Self::Sgd { weight_decay, .. }
            | Self::Momentum { weight_decay, .. }
            | Self::Nesterov { weight_decay, .. } => Some(*weight_decay),
            Self::Adamw { .. } | Self::Lars { .. } | Self::Lamb { .. } | Self::Lion { .. } => None,
        }
    }

    /// The roles of the parameters that have this term; `None`: all.
    pub fn l2_roles(&self) -> Option<&[Role]> {
        match self {
            Self::Sgd {
                weight_decay_roles, ..
            }
            | Self::Momentum {
                weight_decay_roles, ..
            }
            | Self::Nesterov {
                weight_decay_roles, ..
            } => weight_decay_roles.as_deref(),
            Self::Adamw { .. } | Self::Lars { .. } | Self::Lamb { .. } | Self::Lion { .. } => None,
        }
    }
}

const MOST: usize = 100_000;

/// Most examples of a probe.
const MOST_EXAMPLES: usize = 1 << 31;

fn count(key: &str, value: usize, least: usize) -> Checked {
    if (least..=MOST).contains(&value) {
        return Ok(());
    }
    Err(Fault::invalid(
        key,
        format!("{value} is not from {least} to {MOST}"),
    ))
}

/// Largest step, radius or tolerance: far above any use, and small enough that nothing overflows.
const LARGEST: f64 = 1e6;

/// A number without hundreds of digits.
fn shown(value: f64) -> String {
    if (1e-4..1e7).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

fn above_zero(key: &str, values: &[f64]) -> Checked {
    match values.iter().find(|v| !(**v > 0.0 && **v <= LARGEST)) {
        None => Ok(()),
        Some(found) => Err(Fault::invalid(
            key,
            format!(
                "{} is not a positive number of at most {LARGEST:e}",
                shown(*found)
            ),
        )),
    }
}

fn eigenvalues(table: &str, probe: &HessianProbe) -> Checked {
    let key = |field: &str| format!("probes.{table}.{field}");
    count(&key("largest"), probe.largest, 0)?;
    count(&key("smallest"), probe.smallest, 0)?;
    count(&key("max_products"), probe.max_products, 2)?;
    if probe.largest + probe.smallest + probe.trace_products == 0 && probe.blocks == BlockKind::None
    {
        return Err(Fault::invalid(
            &key("largest"),
            "no eigenvalues and no trace: there is nothing to probe",
        )
        .hint(format!("leave [probes.{table}] out, or ask for something")));
    }
    count(&key("trace_products"), probe.trace_products, 0)?;
    above_zero(&key("tolerance"), &[probe.tolerance])?;
    above_zero(&key("trace_tolerance"), &[probe.trace_tolerance])
}

/// What stands in the way of an exact trace, as far as the config tells.
fn no_exact_trace(config: &TrialConfig, of_hessian: bool) -> Option<&'static str> {
    let (activation, normalization) = match &config.model {
        ModelConfig::NoisyQuadratic { .. } => return Some("the noisy quadratic has no classes"),
        ModelConfig::SoftmaxRegression {} | ModelConfig::Custom { .. } => return None,
        ModelConfig::Mlp {
            activation,
            normalization,
            ..
        } => (*activation, *normalization),
        ModelConfig::SimpleCnn { normalization, .. }
        | ModelConfig::Resnet { normalization, .. } => (Activation::Relu, *normalization),
    };
    let batch = config.probes.statistics == ProbeStatistics::Batch;
    if batch && normalization == Normalization::Batch {
        return Some(
            "single examples have no gradients under the statistics of a batch, as they have under \
             frozen ones",
        );
    }
    let linear = activation == Activation::Relu && normalization.keeps_linear();
    (of_hessian && !linear).then_some("the Hessian's needs ReLU, and no or batch normalization")
}

/// Everything about `[probes]` that can be said without the data.
pub(super) fn check(config: &TrialConfig) -> Checked {
    let probes = &config.probes;
    if let Some(every) = probes.every_epochs {
        above_zero("probes.every_epochs", &[every])?;
        if probes.every_steps.is_some() {
            return Err(
                Fault::invalid("probes.every_steps", "`every_epochs` is given too")
                    .hint("keep one of them"),
            );
        }
    }
    if probes.every_steps == Some(0) {
        return Err(Fault::invalid("probes.every_steps", "0 is too few").hint("use at least 1"));
    }
    if let Some(loss) = probes.at_train_loss {
        above_zero("probes.at_train_loss", &[loss])?;
    }
    if let Some(examples) = probes.examples
        && !(2..=MOST_EXAMPLES).contains(&examples)
    {
        return Err(Fault::invalid(
            "probes.examples",
            format!("{examples} is not from 2 to {MOST_EXAMPLES}"),
        )
        .hint("use thousands for curvature that differs little between draws"));
    }
    if probes.weight_decay && config.optimizer.l2().is_none() {
        return Err(Fault::invalid(
            "probes.weight_decay",
            format!(
                "weight decay of `{}` is not a term of the loss",
                config.optimizer.name()
            ),
        )
        .hint("leave it out, or use sgd, momentum or nesterov"));
    }
    let matrices = [
        ("hessian", &probes.hessian),
        ("gauss_newton", &probes.gauss_newton),
    ];
    for (table, probe) in matrices {
        let Some(probe) = probe else { continue };
        eigenvalues(table, probe)?;
        if probe.trace == TraceMethod::Exact
            && probe.trace_products > 0
            && let Some(reason) = no_exact_trace(config, table == "hessian")
        {
            return Err(Fault::invalid(
                &format!("probes.{table}.trace"),
                format!("this model has no exact trace: {reason}"),
            )
            .hint("use \"auto\", or an estimate: \"krylov\""));
        }
    }
    if probes.gauss_newton.is_some() && matches!(config.model, ModelConfig::NoisyQuadratic { .. }) {
        return Err(Fault::invalid(
            "probes.gauss_newton",
            "the noisy quadratic has no outputs that a Gauss-Newton matrix is made of",
        )
        .hint("leave it out"));
    }
    if let Some(probe) = &probes.density {
        count("probes.density.probes", probe.probes, 1)?;
        count("probes.density.lanczos_steps", probe.lanczos_steps, 2)?;
        count("probes.density.points", probe.points, 2)?;
        above_zero("probes.density.width", &[probe.width])?;
    }
    if let Some(probe) = &probes.sharpness {
        above_zero("probes.sharpness.epsilons", &probe.epsilons)?;
        above_zero("probes.sharpness.l2_radii", &probe.l2_radii)?;
        above_zero("probes.sharpness.sigmas", &probe.sigmas)?;
        count("probes.sharpness.subspace", probe.subspace, 0)?;
        count("probes.sharpness.iterations", probe.iterations, 1)?;
        count("probes.sharpness.noise_pairs", probe.noise_pairs, 1)?;
        count(
            "probes.sharpness.flatness_products",
            probe.flatness_products,
            0,
        )?;
    }
    if let Some(probe) = &probes.adversarial {
        if let Some(found) = probe.radii.iter().find(|r| !(0.0..=LARGEST).contains(*r)) {
            return Err(Fault::invalid(
                "probes.adversarial.radii",
                format!("{} is not a number from 0 to {LARGEST:e}", shown(*found)),
            ));
        }
        count("probes.adversarial.steps", probe.steps, 1)?;
        count(
            "probes.adversarial.examples",
            probe.examples.unwrap_or(1),
            1,
        )?;
        if matches!(config.model, ModelConfig::NoisyQuadratic { .. }) {
            return Err(Fault::invalid(
                "probes.adversarial",
                "the noisy quadratic has no features to attack",
            )
            .hint("leave it out"));
        }
    }
    if let Some(probe) = &probes.noise
        && probe.hessian_pieces == 1
    {
        return Err(
            Fault::invalid("probes.noise.hessian_pieces", "one piece has no variance")
                .hint("use at least 2; 32 is usual"),
        );
    }
    Ok(())
}

/// What depends on the number of training examples.
pub(super) fn against_data(config: &TrialConfig, train_examples: usize) -> Checked {
    let fresh = matches!(config.data.source, DataSource::NoisyQuadratic { .. });
    if let Some(examples) = config.probes.examples
        && examples > train_examples
        && !fresh
    {
        return Err(Fault::invalid(
            "probes.examples",
            format!("{examples} examples, but there are {train_examples} training examples"),
        )
        .hint("leave it out to probe on at most 2048"));
    }
    Ok(())
}

fn twenty() -> usize {
    20
}
fn ten() -> usize {
    10
}
fn ten_u64() -> u64 {
    10
}
fn residual() -> f64 {
    1e-3
}
fn eigenvalue_products() -> usize {
    400
}
fn trace_products() -> usize {
    300
}
fn trace_tolerance() -> f64 {
    0.02
}
fn density_probes() -> usize {
    4
}
fn lanczos_steps() -> usize {
    80
}
fn kernel_width() -> f64 {
    0.01
}
fn density_points() -> usize {
    400
}
fn box_sizes() -> Vec<f64> {
    vec![1e-3, 5e-4]
}
fn subspace() -> usize {
    100
}
fn l2_radii() -> Vec<f64> {
    vec![0.05]
}
fn sigmas() -> Vec<f64> {
    vec![0.01]
}
fn noise_pairs() -> usize {
    8
}
fn flatness_products() -> usize {
    32
}
fn attack_radii() -> Vec<f64> {
    vec![0.0, 0.05, 0.1, 0.2]
}
