//! The plan file: what `batchlab plan` asks, as TOML of its own kind.
//!
//! As with a study file every error names file, line and key, and `--set key=value` wins over the file.
//! Paths are relative to the current directory.

use std::path::Path;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{Checked, ConfigError, Fault, Problem, dotted};
use super::node::{Node, Stage, found};
use super::source::{self, Marks, Unread};

/// The largest plan file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The most workers that a plan looks at.
pub(super) const MOST_WORKERS: u64 = 100_000;

/// A plan file.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanConfig {
    /// Name of the plan and of its folder under `results/`. Default: the file's name.
    #[serde(default)]
    pub name: Option<String>,
    /// What is asked, for the reader of the report.
    #[serde(default)]
    pub description: Option<String>,
    /// Updates to the target against the batch.
    pub steps: StepsConfig,
    /// What is trained.
    pub model: PlannedModel,
    /// One worker.
    pub device: DeviceConfig,
    /// Where workers are, and what connects them.
    #[serde(default)]
    pub cluster: ClusterConfig,
    /// How collectives are done.
    #[serde(default)]
    pub collectives: CollectivesConfig,
    /// What a worker costs.
    #[serde(default)]
    pub cost: CostConfig,
    /// What is looked at.
    #[serde(default)]
    pub plan: SearchConfig,
    /// Measured seconds of updates, to be held against the prediction.
    #[serde(default)]
    pub check: Option<CheckConfig>,
}

/// `[steps]`: S(B) = S_min (1 + B_crit/B), given, or fitted to measured steps.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepsConfig {
    /// Updates that no batch gets below.
    #[serde(default)]
    pub s_min: Option<f64>,
    /// Critical batch size, in examples.
    #[serde(default)]
    pub b_crit: Option<f64>,
    /// Interval of S_min, `[low, high]`.
    #[serde(default)]
    pub s_min_interval: Option<[f64; 2]>,
    /// Interval of B_crit.
    #[serde(default)]
    pub b_crit_interval: Option<[f64; 2]>,
    /// Interval of E_min = S_min B_crit, in examples.
    #[serde(default)]
    pub e_min_interval: Option<[f64; 2]>,
    /// Folder of a study of the critical batch size: the law is fitted to its steps_to_target.csv.
    #[serde(default)]
    pub study: Option<String>,
    /// A table of steps to target, as `batchlab critical-batch --from-csv` reads it.
    #[serde(default)]
    pub csv: Option<String>,
    /// The case of `study` or `csv`, where there are several.
    #[serde(default)]
    pub case: Option<String>,
}

/// `[model]`: numbers of what is trained. What is written wins over what is counted.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedModel {
    /// A study file: parameters, layers and activations of its model are counted.
    #[serde(default)]
    pub study: Option<String>,
    /// Number of parameters.
    #[serde(default)]
    pub parameters: Option<f64>,
    /// Bytes of one parameter's gradient on its way.
    #[serde(default = "four")]
    pub bytes_per_parameter: f64,
    /// Layers: what features split one by one, and a pipeline among its stages.
    #[serde(default)]
    pub layers: Option<u64>,
    /// Bytes of one layer's output for one example, the mean over layers.
    #[serde(default)]
    pub activation_bytes: Option<f64>,
    /// Bytes of one copy of the model with gradients and the state of the optimizer. Default: four
    /// numbers a parameter, which are those of Adam.
    #[serde(default)]
    pub resident_bytes: Option<f64>,
}

/// `[device]`: how fast one worker computes.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Seconds of one example, forward and backward, of the whole model.
    #[serde(default)]
    pub seconds_per_example: Option<f64>,
    /// Interval of `seconds_per_example`.
    #[serde(default)]
    pub seconds_per_example_interval: Option<[f64; 2]>,
    /// Seconds of an update that do not depend on its examples. Default: 0.
    #[serde(default)]
    pub seconds_per_update: Option<f64>,
    /// Interval of `seconds_per_update`.
    #[serde(default)]
    pub seconds_per_update_interval: Option<[f64; 2]>,
    /// Measure both on this machine, with the model of `model.study`.
    #[serde(default)]
    pub measure: bool,
    /// Local batches at which updates are timed.
    #[serde(default = "measure_batches")]
    pub measure_batches: Vec<usize>,
    /// Seconds for each of them.
    #[serde(default = "one")]
    pub measure_seconds: f64,
    /// Share of the computation that is the backward pass.
    #[serde(default = "backward")]
    pub backward: f64,
    /// Most examples that memory takes at once; larger local batches go in micro-batches.
    #[serde(default)]
    pub largest_local: Option<u64>,
    /// Bytes of memory for a worker's share of the model. Default: enough.
    #[serde(default)]
    pub memory_bytes: Option<f64>,
    /// How the times of workers scatter: all wait for the slowest. Default: not at all.
    #[serde(default)]
    pub jitter: Option<JitterConfig>,
}

/// How the time of a worker is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum JitterConfig {
    /// The logarithm is normal.
    Lognormal {
        /// Standard deviation over mean.
        cv: f64,
    },
    /// A least time and an exponential time after it.
    ShiftedExponential {
        /// Standard deviation over mean, at most 1.
        cv: f64,
    },
}

/// `[cluster]`: nodes and links. Without it, all communication is free.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Workers on a node. Default: 1.
    #[serde(default)]
    pub workers_per_node: Option<u64>,
    /// Workers of a node that compute at full speed, the cores of a node over those of a worker; more
    /// share them. Default: all.
    #[serde(default)]
    pub full_speed_workers: Option<f64>,
    /// The model of a message.
    #[serde(default)]
    pub model: WireModel,
    /// The link of a node to the others.
    #[serde(default)]
    pub between: LinkConfig,
    /// Links inside a node. Default: those between nodes.
    #[serde(default)]
    pub inside: Option<LinkConfig>,
}

/// One kind of link.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Numbers of a known kind of link; what is written wins over them.
    #[serde(default)]
    pub preset: Option<LinkPreset>,
    /// Seconds until the first byte arrives.
    #[serde(default)]
    pub latency: Option<f64>,
    /// Bytes per second.
    #[serde(default)]
    pub bandwidth: Option<f64>,
    /// Seconds of software for each message, on both sides together.
    #[serde(default)]
    pub overhead: Option<f64>,
    /// Seconds between the starts of two messages, for `loggp`. Default: half of `overhead`.
    #[serde(default)]
    pub gap: Option<f64>,
    /// Seconds to add one byte's worth of numbers to others.
    #[serde(default)]
    pub seconds_per_byte_added: Option<f64>,
}

/// How long a message takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WireModel {
    /// Latency + overhead + bytes/bandwidth, during which both ports are held.
    #[default]
    AlphaBeta,
    /// LogGP: a sender goes on after its overhead.
    Loggp,
}

/// Links with known numbers; where they are from stands in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum LinkPreset {
    /// InfiniBand of 100 Gbit/s.
    #[serde(rename = "infiniband-100g")]
    Infiniband100g,
    /// Ethernet of 10 Gbit/s.
    #[serde(rename = "ethernet-10g")]
    Ethernet10g,
    /// Processes of one machine.
    #[serde(rename = "shared-memory")]
    SharedMemory,
    /// Third generation of NVLink, as between A100s of a node.
    #[serde(rename = "nvlink-3")]
    Nvlink3,
}

impl LinkPreset {
    /// The name in TOML.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infiniband100g => "infiniband-100g",
            Self::Ethernet10g => "ethernet-10g",
            Self::SharedMemory => "shared-memory",
            Self::Nvlink3 => "nvlink-3",
        }
    }
}

/// `[collectives]`: how sums are made.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectivesConfig {
    /// Each one apart; `best` takes the fastest of all at each size.
    #[serde(default = "best")]
    pub algorithms: Vec<AlgorithmChoice>,
    /// Children of a node in a `tree`.
    #[serde(default = "two")]
    pub tree_arity: usize,
    /// Share of the sum of gradients that can be hidden behind the backward pass.
    #[serde(default)]
    pub overlap: f64,
}

impl Default for CollectivesConfig {
    fn default() -> Self {
        Self {
            algorithms: best(),
            tree_arity: two(),
            overlap: 0.0,
        }
    }
}

/// An algorithm of collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmChoice {
    /// The fastest of all others at each size.
    Best,
    /// All to one and back.
    Flat,
    /// A tree of `tree_arity` children.
    Tree,
    /// The binomial tree.
    Binomial,
    /// A pipeline in segments.
    Chain,
    /// A ring.
    Ring,
    /// Each with each.
    Direct,
    /// The butterfly that doubles.
    RecursiveDoubling,
    /// The butterfly that halves and doubles.
    Rabenseifner,
}

/// `[cost]`: the price of a worker. Without it, cost is in worker-hours.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostConfig {
    /// Price of a worker for an hour.
    #[serde(default)]
    pub per_worker_hour: Option<f64>,
    /// What `per_worker_hour` is counted in, such as `"EUR"`.
    #[serde(default)]
    pub unit: Option<String>,
    /// Power of a worker in watts: cost is then energy, in kWh.
    #[serde(default)]
    pub watts_per_worker: Option<f64>,
}

/// `[plan]`: what is looked at.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchConfig {
    /// The most workers, up to 100,000.
    #[serde(default = "up_to")]
    pub up_to: u64,
    /// How work is shared out.
    #[serde(default = "data")]
    pub strategies: Vec<StrategyChoice>,
    /// Workers of a group, for `feature-groups` and `pipeline-groups`. Default: the best.
    #[serde(default)]
    pub group: Option<u64>,
    /// No batch may be larger, in examples.
    #[serde(default)]
    pub largest_batch: Option<u64>,
    /// The statistics are said to stop paying where 1 % more batch saves this many per cent of the
    /// updates or less: 0.5 is at B_crit.
    #[serde(default = "half")]
    pub worth: f64,
    /// Workers are said to be worth it as long as this share of what they cost is used.
    #[serde(default = "half")]
    pub efficiency: f64,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self {
            up_to: up_to(),
            strategies: data(),
            group: None,
            largest_batch: None,
            worth: half(),
            efficiency: half(),
        }
    }
}

/// How work is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyChoice {
    /// Each worker has the whole model and its own examples.
    Data,
    /// Each layer's features are split over all workers.
    Features,
    /// Each worker has some of the layers.
    Pipeline,
    /// Features split in groups, data over groups.
    FeatureGroups,
    /// Layers split in groups, data over groups.
    PipelineGroups,
}

/// `[check]`: measured seconds of updates.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// Examples of an update, where a measurement does not say.
    #[serde(default)]
    pub batch: Option<u64>,
    /// Measurements.
    #[serde(default)]
    pub measured: Vec<MeasuredConfig>,
    /// More of them: a table with columns workers and seconds, and optional batch, low and high.
    #[serde(default)]
    pub csv: Option<String>,
}

/// Measured seconds of an update.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredConfig {
    /// Workers.
    pub workers: u64,
    /// Examples of an update. Default: `check.batch`.
    #[serde(default)]
    pub batch: Option<u64>,
    /// Seconds of an update.
    pub seconds: f64,
    /// Interval of `seconds`.
    #[serde(default)]
    pub interval: Option<[f64; 2]>,
}

fn four() -> f64 {
    4.0
}

fn two() -> usize {
    2
}

fn one() -> f64 {
    1.0
}

fn half() -> f64 {
    0.5
}

fn backward() -> f64 {
    2.0 / 3.0
}

fn up_to() -> u64 {
    1024
}

fn measure_batches() -> Vec<usize> {
    vec![1, 4, 16, 64, 256]
}

fn best() -> Vec<AlgorithmChoice> {
    vec![AlgorithmChoice::Best]
}

fn data() -> Vec<StrategyChoice> {
    vec![StrategyChoice::Data]
}

impl StrategyChoice {
    /// Whether layers or features are split.
    pub fn splits_the_model(self) -> bool {
        self != Self::Data
    }
}

/// A plan file that was read: its numbers, and where they stand.
#[derive(Debug, Clone)]
pub struct PlanFile {
    /// The numbers.
    pub config: PlanConfig,
    /// Name of the plan.
    pub name: String,
    /// The path as it was given.
    pub file: String,
    /// The text.
    pub source: String,
    /// The `--set` arguments as they were given.
    pub overrides: Vec<String>,
    marks: Marks,
}

/// Why a plan file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// The system refused, or the file is too large.
    #[error("cannot read the plan file {file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// The answer.
        error: std::io::Error,
    },
    /// What stands in it is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Reads a plan file and its `--set key=value` overrides.
///
/// # Errors
/// What is wrong, with file, line, key and a hint.
pub fn load_plan(path: &Path, overrides: &[String]) -> Result<PlanFile, PlanFileError> {
    let file = path.display().to_string();
    let unreadable = |error| PlanFileError::Read {
        file: file.clone(),
        error,
    };
    let text = source::load(path, MAX_BYTES).map_err(|error| match error {
        Unread::Read(error) => unreadable(error),
        Unread::Text(error) => error.into(),
    })?;
    Ok(parse_plan(&text, &file, overrides)?)
}

/// Reads the text of a plan file; `file` is its path, for messages and the default name.
///
/// # Errors
/// As [`load_plan`].
///
/// ```
/// let text = r#"
///     [steps]
///     s_min = 1265
///     b_crit = 2241
///     [model]
///     parameters = 85e6
///     [device]
///     seconds_per_example = 0.005
///     [cluster.between]
///     latency = 2e-5
///     bandwidth = 1.25e9
/// "#;
/// let plan = batchlab::config::parse_plan(text, "plan.toml", &["plan.up_to=64".to_owned()])?;
/// assert_eq!((plan.name.as_str(), plan.config.plan.up_to), ("plan", 64));
/// # Ok::<(), batchlab::config::ConfigError>(())
/// ```
pub fn parse_plan(text: &str, file: &str, overrides: &[String]) -> Result<PlanFile, ConfigError> {
    let source::Source { root, mut marks } = source::read(text, file)?;
    let locate = |marks: &Marks, fault: Fault| {
        let origin = marks.get(&fault.path).origin;
        ConfigError::from_fault(file, origin, fault)
    };
    if let Some(key) = ["train", "data"]
        .into_iter()
        .find(|key| root.contains_key(*key))
    {
        let fault = Fault::invalid(key, "this is a study file, not a plan")
            .hint("run it with `batchlab run`; a plan names it as `model.study`");
        return Err(locate(&marks, fault));
    }
    let node = plan_node();
    let mut root = Value::Object(root);
    words_as_lists(&mut root);
    node.conform(node, &mut root, &mut Vec::new(), Stage::Partial)
        .map_err(|fault| locate(&marks, fault))?;
    for (number, text) in overrides.iter().enumerate() {
        let mut given = source::read_override(text, number, file)?;
        let path = given.path.clone();
        let at_argument = |fault| ConfigError::from_fault(file, given.mark.origin.clone(), fault);
        one_word_as_list(&path, &mut given.value);
        node.find(&path)
            .and_then(|child| {
                child.conform(node, &mut given.value, &mut path.clone(), Stage::Partial)
            })
            .map_err(at_argument)?;
        for other in replaced_by(&path) {
            remove(&mut root, &other);
            marks.remove(&other);
        }
        // A table that the file lacks begins here.
        for table in (1..path.len()).map(|n| &path[..n]) {
            if find(&root, table).is_none() {
                marks.insert(table, given.mark.clone());
            }
        }
        assign(&mut root, &path, given.value);
        marks.remove(&path);
        marks.graft(&given.marks, &path, &path);
    }
    node.conform(node, &mut root, &mut Vec::new(), Stage::Complete)
        .map_err(|fault| locate(&marks, fault))?;
    let config: PlanConfig = serde_json::from_value(root)
        .map_err(|error| locate(&marks, Fault::invalid("plan", error.to_string())))?;
    let name = check(&config, file).map_err(|fault| locate(&marks, fault))?;
    Ok(PlanFile {
        config,
        name,
        file: file.to_owned(),
        source: text.to_owned(),
        overrides: overrides.to_vec(),
        marks,
    })
}

impl PlanFile {
    /// An error at a key that only showed beyond the file, with the line of the file.
    pub fn error_at_key(&self, key: &str, message: &str, hint: Option<&str>) -> ConfigError {
        let mut fault = Fault::invalid(key, message);
        fault.hint = hint.map(str::to_owned);
        let origin = self.marks.get(&fault.path).origin;
        ConfigError::from_fault(&self.file, origin, fault)
    }
}

fn plan_node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        let schema = serde_json::to_value(schemars::schema_for!(PlanConfig)).unwrap_or_default();
        Node::from_json_schema(&schema)
    })
}

/// Keys whose value may be one word in place of a list of one.
const LISTS: [[&str; 2]; 2] = [["collectives", "algorithms"], ["plan", "strategies"]];

fn words_as_lists(root: &mut Value) {
    for [table, key] in LISTS {
        if let Some(value) = root.get_mut(table).and_then(|table| table.get_mut(key)) {
            one_word_as_list(&[table.to_owned(), key.to_owned()], value);
        }
    }
}

fn one_word_as_list(path: &[String], value: &mut Value) {
    if LISTS.iter().any(|list| path == list) && value.is_string() {
        *value = Value::Array(vec![value.take()]);
    }
}

/// Keys that a `--set` of this one takes the place of.
fn replaced_by(path: &[String]) -> Vec<Vec<String>> {
    const STEPS: [&str; 7] = [
        "s_min",
        "b_crit",
        "s_min_interval",
        "b_crit_interval",
        "e_min_interval",
        "study",
        "csv",
    ];
    let [table, key] = path else {
        return Vec::new();
    };
    let read = ["study", "csv"].contains(&key.as_str());
    let others: Vec<&str> = match table.as_str() {
        "steps" if read => STEPS.into_iter().filter(|other| other != key).collect(),
        "steps" if key != "case" => vec!["study", "csv", "case"],
        "device" if key == "measure" => vec![
            "seconds_per_example",
            "seconds_per_update",
            "seconds_per_example_interval",
            "seconds_per_update_interval",
        ],
        "device" if ["seconds_per_example", "seconds_per_update"].contains(&key.as_str()) => {
            vec!["measure"]
        }
        "cost" if key == "watts_per_worker" => vec!["per_worker_hour", "unit"],
        "cost" => vec!["watts_per_worker"],
        _ => Vec::new(),
    };
    let full = |other: &str| vec![table.clone(), other.to_owned()];
    others.into_iter().map(full).collect()
}

fn remove(root: &mut Value, path: &[String]) {
    let Some((last, tables)) = path.split_last() else {
        return;
    };
    let inner = tables
        .iter()
        .try_fold(root, |value, table| value.get_mut(table));
    if let Some(Value::Object(map)) = inner {
        map.shift_remove(last);
    }
}

fn find<'a>(root: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, key| value.get(key))
}

fn assign(root: &mut Value, path: &[String], value: Value) {
    let mut slot = root;
    for segment in path {
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        let Value::Object(map) = slot else {
            return;
        };
        slot = map.entry(segment.clone()).or_insert(Value::Null);
    }
    *slot = value;
}

/// What can be said of the file alone; returns the name of the plan.
fn check(config: &PlanConfig, file: &str) -> Checked<String> {
    let name = name(config, file)?;
    check_steps(&config.steps)?;
    check_model(config)?;
    check_device(config)?;
    check_cluster(&config.cluster)?;
    let collectives = &config.collectives;
    if collectives.algorithms.is_empty() {
        return Err(
            Fault::invalid("collectives.algorithms", "expected one or more, found none")
                .hint("leave it out for the best of all"),
        );
    }
    if collectives.tree_arity == 0 {
        return Err(Fault::invalid(
            "collectives.tree_arity",
            "expected at least 1 child, found 0",
        ));
    }
    check_range("collectives.overlap", Some(collectives.overlap), SHARE)?;
    check_cost(&config.cost)?;
    let search = &config.plan;
    if !(1..=MOST_WORKERS).contains(&search.up_to) {
        let found = search.up_to;
        return Err(Fault::invalid(
            "plan.up_to",
            format!("expected 1 to {MOST_WORKERS} workers, found {found}"),
        ));
    }
    if search.strategies.is_empty() {
        return Err(
            Fault::invalid("plan.strategies", "expected one or more, found none")
                .hint("strategies = [\"data\"]"),
        );
    }
    for (key, value) in [
        ("plan.group", search.group),
        ("plan.largest_batch", search.largest_batch),
        ("device.largest_local", config.device.largest_local),
    ] {
        if value == Some(0) {
            return Err(Fault::invalid(key, "expected at least 1, found 0"));
        }
    }
    check_range("plan.worth", Some(search.worth), SHARE)?;
    check_range("plan.efficiency", Some(search.efficiency), SHARE)?;
    if let Some(measured) = &config.check {
        check_measured(measured)?;
    }
    Ok(name)
}

/// The name that is given, or that of the file; the name of a folder.
fn name(config: &PlanConfig, file: &str) -> Checked<String> {
    let given = config.name.clone();
    let own = || Path::new(file).file_stem()?.to_str().map(str::to_owned);
    let name = given.or_else(own).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let starts = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with(starts) && name.len() <= 100 && name.chars().all(plain) {
        return Ok(name);
    }
    let found = found(&name.into());
    Err(
        Fault::invalid("name", format!("{found} is not a plain folder name")).hint(
            "use letters, digits, `-`, `_` and `.`, at most 100, the first a letter or digit",
        ),
    )
}

/// What a number may be, in words, and its ends.
type Range = (&'static str, f64, f64);
const POSITIVE: Range = ("a number above 0", 1e-30, 1e30);
const AT_LEAST_0: Range = ("a number, at least 0", 0.0, 1e30);
const SCATTER: Range = ("a number from 0 to 100", 0.0, 100.0);
const SHARE: Range = ("a number between 0 and 1", 0.0, 1.0);

fn check_range(key: &str, value: Option<f64>, (expected, low, high): Range) -> Checked {
    match value {
        // So that no product of a few of them overflows.
        Some(found) if found.is_finite() && found > high && high > 1.0 => Err(Fault::invalid(
            key,
            format!("expected at most {high:e}, found {found:e}"),
        )),
        Some(found) if found > 0.0 && found < low => Err(Fault::invalid(
            key,
            format!("expected at least {low:e}, found {found:e}"),
        )),
        Some(found) if !(low..=high).contains(&found) => Err(Fault::invalid(
            key,
            format!("expected {expected}, found {found}"),
        )),
        _ => Ok(()),
    }
}

/// Two ends with the value between them.
fn check_interval(key: &str, interval: Option<[f64; 2]>, value: Option<f64>) -> Checked {
    let Some([low, high]) = interval else {
        return Ok(());
    };
    let sound = low >= 0.0 && low <= high && value.is_none_or(|v| low <= v && v <= high);
    if sound {
        return Ok(());
    }
    let around = value.map_or(String::new(), |v| format!(" around {v}"));
    Err(Fault::invalid(
        key,
        format!("expected [low, high]{around}, found [{low}, {high}]"),
    ))
}

fn check_steps(steps: &StepsConfig) -> Checked {
    let given = steps.s_min.is_some() || steps.b_crit.is_some();
    let ways = [given, steps.study.is_some(), steps.csv.is_some()];
    match ways.iter().filter(|way| **way).count() {
        1 => {}
        0 => {
            return Err(Fault::invalid(
                "steps",
                "expected `s_min` and `b_crit`, or `study`, or `csv`; found none of them",
            )
            .hint("`study` is the folder of a study of the critical batch size, such as \"results/critical-batch\""));
        }
        _ => {
            return Err(Fault::invalid(
                "steps",
                "expected one of `s_min` with `b_crit`, `study` and `csv`; found several",
            )
            .hint("keep one of them"));
        }
    }
    if !given {
        let intervals = [
            ("steps.s_min_interval", steps.s_min_interval),
            ("steps.b_crit_interval", steps.b_crit_interval),
            ("steps.e_min_interval", steps.e_min_interval),
        ];
        if let Some((key, _)) = intervals.iter().find(|(_, interval)| interval.is_some()) {
            return Err(
                Fault::invalid(key, "the law is fitted, and so are its intervals")
                    .hint("leave it out"),
            );
        }
        return Ok(());
    }
    let (Some(s_min), Some(b_crit)) = (steps.s_min, steps.b_crit) else {
        let missing = if steps.s_min.is_none() {
            "s_min"
        } else {
            "b_crit"
        };
        return Err(Fault::invalid(
            "steps",
            format!("`s_min` and `b_crit` go together, and `{missing}` is missing"),
        ));
    };
    check_range("steps.s_min", Some(s_min), POSITIVE)?;
    check_range("steps.b_crit", Some(b_crit), AT_LEAST_0)?;
    check_interval("steps.s_min_interval", steps.s_min_interval, Some(s_min))?;
    check_interval("steps.b_crit_interval", steps.b_crit_interval, Some(b_crit))?;
    check_interval(
        "steps.e_min_interval",
        steps.e_min_interval,
        Some(s_min * b_crit),
    )?;
    if steps.s_min_interval.is_some() != steps.e_min_interval.is_some() {
        return Err(Fault::invalid(
            "steps",
            "`s_min_interval` and `e_min_interval` go together, and one is missing",
        )
        .hint("E_min = S_min B_crit, in examples"));
    }
    if steps.case.is_some() {
        return Err(
            Fault::invalid("steps.case", "given numbers have no cases").hint("leave it out")
        );
    }
    Ok(())
}

fn check_model(config: &PlanConfig) -> Checked {
    let model = &config.model;
    if model.study.is_none() && model.parameters.is_none() {
        return Err(Fault::invalid(
            "model",
            "expected `parameters`, or `study`, whose model is counted; found neither",
        ));
    }
    check_range("model.parameters", model.parameters, POSITIVE)?;
    check_range(
        "model.bytes_per_parameter",
        Some(model.bytes_per_parameter),
        POSITIVE,
    )?;
    check_range("model.activation_bytes", model.activation_bytes, AT_LEAST_0)?;
    check_range("model.resident_bytes", model.resident_bytes, AT_LEAST_0)?;
    if model.layers == Some(0) {
        return Err(Fault::invalid(
            "model.layers",
            "expected at least 1, found 0",
        ));
    }
    let splitting = config.plan.strategies.iter().any(|s| s.splits_the_model());
    for (key, known) in [
        ("layers", model.layers.is_some()),
        ("activation_bytes", model.activation_bytes.is_some()),
    ] {
        if splitting && !known && model.study.is_none() {
            return Err(Fault::invalid(
                "model",
                format!("`plan.strategies` splits the model, and `{key}` is missing"),
            )
            .hint("without it communication inside the model would be free"));
        }
    }
    Ok(())
}

fn check_device(config: &PlanConfig) -> Checked {
    let device = &config.device;
    let given = device.seconds_per_example.is_some() || device.seconds_per_update.is_some();
    if device.measure && given {
        return Err(
            Fault::invalid("device.measure", "times are given and to be measured")
                .hint("keep one of them"),
        );
    }
    if device.measure && config.model.study.is_none() {
        return Err(
            Fault::invalid("device.measure", "there is no model to measure")
                .hint("name a study file in `model.study`"),
        );
    }
    if !device.measure && device.seconds_per_example.is_none() {
        return Err(Fault::invalid(
            "device",
            "expected `seconds_per_example`, or `measure = true`; found neither",
        ));
    }
    check_range(
        "device.seconds_per_example",
        device.seconds_per_example,
        POSITIVE,
    )?;
    check_range(
        "device.seconds_per_update",
        device.seconds_per_update,
        AT_LEAST_0,
    )?;
    check_interval(
        "device.seconds_per_example_interval",
        device.seconds_per_example_interval,
        device.seconds_per_example,
    )?;
    check_interval(
        "device.seconds_per_update_interval",
        device.seconds_per_update_interval,
        Some(device.seconds_per_update.unwrap_or(0.0)).filter(|_| !device.measure),
    )?;
    check_range("device.backward", Some(device.backward), SHARE)?;
    check_range("device.memory_bytes", device.memory_bytes, POSITIVE)?;
    check_range(
        "device.measure_seconds",
        Some(device.measure_seconds),
        POSITIVE,
    )?;
    let mut batches = device.measure_batches.clone();
    batches.sort_unstable();
    batches.dedup();
    if batches.len() < 3 || batches[0] == 0 {
        return Err(Fault::invalid(
            "device.measure_batches",
            "expected three different batches or more, each at least 1",
        )
        .hint("a straight line through two tells no interval"));
    }
    match device.jitter {
        Some(JitterConfig::Lognormal { cv }) => {
            check_range("device.jitter.lognormal.cv", Some(cv), SCATTER)
        }
        Some(JitterConfig::ShiftedExponential { cv }) => {
            check_range("device.jitter.shifted-exponential.cv", Some(cv), SHARE)
        }
        None => Ok(()),
    }
}

fn check_cluster(cluster: &ClusterConfig) -> Checked {
    if cluster.workers_per_node == Some(0) {
        return Err(Fault::invalid(
            "cluster.workers_per_node",
            "expected at least 1, found 0",
        ));
    }
    check_range(
        "cluster.full_speed_workers",
        cluster.full_speed_workers,
        POSITIVE,
    )?;
    let links = [
        ("between", Some(cluster.between)),
        ("inside", cluster.inside),
    ];
    for (name, link) in links {
        let Some(link) = link else { continue };
        let key = |key: &str| format!("cluster.{name}.{key}");
        check_range(&key("latency"), link.latency, AT_LEAST_0)?;
        check_range(&key("bandwidth"), link.bandwidth, POSITIVE)?;
        check_range(&key("overhead"), link.overhead, AT_LEAST_0)?;
        check_range(&key("gap"), link.gap, AT_LEAST_0)?;
        let added = link.seconds_per_byte_added;
        check_range(&key("seconds_per_byte_added"), added, AT_LEAST_0)?;
        if link.gap.is_some() && cluster.model != WireModel::Loggp {
            return Err(
                Fault::invalid(&key("gap"), "only the model `loggp` has a gap")
                    .hint("cluster.model = \"loggp\""),
            );
        }
    }
    Ok(())
}

fn check_cost(cost: &CostConfig) -> Checked {
    check_range("cost.per_worker_hour", cost.per_worker_hour, POSITIVE)?;
    check_range("cost.watts_per_worker", cost.watts_per_worker, POSITIVE)?;
    if cost.watts_per_worker.is_some() && cost.per_worker_hour.is_some() {
        return Err(Fault::invalid(
            "cost",
            "cost is money or energy: `per_worker_hour` and `watts_per_worker` are both given",
        )
        .hint("keep one of them"));
    }
    if cost.unit.is_some() && cost.per_worker_hour.is_none() {
        return Err(Fault::invalid(
            "cost.unit",
            "there is no `per_worker_hour` to count in it",
        ));
    }
    Ok(())
}

fn check_measured(check: &CheckConfig) -> Checked {
    if check.measured.is_empty() && check.csv.is_none() {
        return Err(Fault::invalid(
            "check.measured",
            "expected one measurement or more, here or in `check.csv`; found none",
        )
        .hint("measured = [{ workers = 1, seconds = 0.012 }, { workers = 2, seconds = 0.007 }]"));
    }
    if check.batch == Some(0) {
        return Err(Fault::invalid(
            "check.batch",
            "expected at least 1, found 0",
        ));
    }
    for (i, measured) in check.measured.iter().enumerate() {
        check_measurement(check, measured).map_err(|(key, message)| {
            let path = ["check", "measured", &format!("[{i}]"), key].map(str::to_owned);
            let key = dotted(&path);
            Fault::new(&path, Problem::Invalid { key, message })
        })?;
    }
    Ok(())
}

/// Which key of a measurement is wrong, and how.
fn check_measurement(
    check: &CheckConfig,
    measured: &MeasuredConfig,
) -> Result<(), (&'static str, String)> {
    let (workers, seconds) = (measured.workers, measured.seconds);
    if workers == 0 {
        return Err(("workers", "expected at least 1, found 0".to_owned()));
    }
    if !(seconds > 0.0 && seconds.is_finite()) {
        return Err((
            "seconds",
            format!("expected a number above 0, found {seconds}"),
        ));
    }
    if let Some([low, high]) = measured.interval
        && !(low <= seconds && seconds <= high)
    {
        let message = format!("expected [low, high] around {seconds}, found [{low}, {high}]");
        return Err(("interval", message));
    }
    match measured.batch.or(check.batch) {
        None => Err((
            "batch",
            "the measurement has no batch, and there is no `check.batch`".to_owned(),
        )),
        Some(batch) if batch < workers => Err((
            "batch",
            format!("a batch of {batch} has less than an example for each of {workers} workers"),
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r"
[steps]
s_min = 1000
b_crit = 500
[model]
parameters = 1e6
[device]
seconds_per_example = 0.001
[cluster.between]
latency = 1e-5
bandwidth = 1e9
";

    fn good(text: &str, set: &[&str]) -> PlanFile {
        let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
        parse_plan(text, "p.toml", &set).unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
    }

    fn wrong(text: &str, set: &[&str]) -> String {
        let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
        match parse_plan(text, "p.toml", &set) {
            Ok(_) => panic!("no error in\n{text} with {set:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let plan = good(GOOD, &[]);
        assert_eq!(plan.name, "p");
        let config = &plan.config;
        assert_eq!(config.steps.s_min, Some(1000.0));
        assert_eq!(config.plan, SearchConfig::default());
        assert_eq!(config.collectives, CollectivesConfig::default());
        assert_eq!(config.cluster.between.bandwidth, Some(1e9));
        assert_eq!(config.model.bytes_per_parameter, 4.0);
        assert!(config.cluster.inside.is_none() && config.check.is_none());
    }

    #[test]
    fn one_word_stands_for_a_list_of_one() {
        let text = format!("{GOOD}[collectives]\nalgorithms = \"ring\"\n");
        let plan = good(&text, &["plan.strategies=data"]);
        assert_eq!(plan.config.collectives.algorithms, [AlgorithmChoice::Ring]);
        assert_eq!(plan.config.plan.strategies, [StrategyChoice::Data]);
    }

    #[test]
    fn an_argument_wins_and_takes_the_place_of_what_it_excludes() {
        let plan = good(
            GOOD,
            &["steps.study=results/x", "steps.case=adamw", "name=other"],
        );
        assert_eq!(plan.name, "other");
        assert_eq!(plan.config.steps.s_min, None);
        assert_eq!(plan.config.steps.study.as_deref(), Some("results/x"));
        let back = ["steps.csv=x.csv", "steps.s_min=5", "steps.b_crit=7"];
        assert_eq!(good(GOOD, &back).config.steps.csv, None);
        let measure = ["device.measure=true", "model.study=s.toml"];
        let plan = good(GOOD, &measure);
        assert_eq!(plan.config.device.seconds_per_example, None);
        assert!(plan.config.device.measure);
        let jitter = good(GOOD, &["device.jitter.lognormal.cv=0.2"]);
        let expected = JitterConfig::Lognormal { cv: 0.2 };
        assert_eq!(jitter.config.device.jitter, Some(expected));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_would_be_right() {
        let with = |line: &str| format!("{GOOD}{line}\n");
        for (text, set, expected) in [
            (
                GOOD.replace("s_min", "s_mim"),
                vec![],
                "p.toml:3: unknown key `steps.s_mim`\nhint: did you mean `s_min`?",
            ),
            (
                GOOD.replace("b_crit = 500\n", ""),
                vec![],
                "p.toml:2: `steps`: `s_min` and `b_crit` go together, and `b_crit` is missing",
            ),
            (
                GOOD.to_owned(),
                vec!["plan.up_to=200000"],
                "p.toml: --set plan.up_to=200000: `plan.up_to`: expected 1 to 100000 workers, found 200000",
            ),
            (
                with("overhead = -1"),
                vec![],
                "p.toml:12: `cluster.between.overhead`: expected a number, at least 0, found -1",
            ),
            (
                with("gap = 1e-6"),
                vec![],
                "p.toml:12: `cluster.between.gap`: only the model `loggp` has a gap",
            ),
            (
                with("[plan]\nstrategies = [\"data\", \"pipeline\"]"),
                vec![],
                "p.toml:5: `model`: `plan.strategies` splits the model, and `layers` is missing",
            ),
            (
                with("[check]\nbatch = 4\nmeasured = [{workers = 8, seconds = 1}]"),
                vec![],
                "p.toml:14: `check.measured[0].batch`: a batch of 4 has less than an example for each of 8 workers",
            ),
            (
                GOOD.to_owned(),
                vec!["check.measured=[]"],
                "p.toml: --set check.measured=[]: `check.measured`: expected one measurement or more",
            ),
            (
                GOOD.to_owned(),
                vec!["check.batch=4"],
                "p.toml: --set check.batch=4: `check.measured`: expected one measurement or more",
            ),
            (
                with("[check]\nbatch = 4"),
                vec![],
                "p.toml:12: `check.measured`: expected one measurement or more",
            ),
            (
                with("[collectives]\nalgorithms = [\"rings\"]"),
                vec![],
                "p.toml:13: `collectives.algorithms[0]`: expected one of `best`, `flat`",
            ),
            (
                GOOD.replace("seconds_per_example = 0.001", "measure = true"),
                vec![],
                "p.toml:8: `device.measure`: there is no model to measure",
            ),
            (
                GOOD.replace("[steps]", "[steps]\nb_crit_interval = [600, 700]"),
                vec![],
                "p.toml:3: `steps.b_crit_interval`: expected [low, high] around 500, found [600, 700]",
            ),
            (
                with("[train]\nsteps = 5"),
                vec![],
                "p.toml:12: `train`: this is a study file, not a plan",
            ),
            (
                GOOD.to_owned(),
                vec!["name=a/b"],
                "p.toml: --set name=a/b: `name`: ",
            ),
        ] {
            let found = wrong(&text, &set);
            assert!(
                found.starts_with(expected),
                "{found}\ninstead of\n{expected}"
            );
        }
        let later = good(GOOD, &[]).error_at_key("model.parameters", "too few", Some("more"));
        let expected = "p.toml:6: `model.parameters`: too few\nhint: more";
        assert_eq!(later.to_string(), expected);
    }

    #[test]
    fn every_key_is_described() {
        fn walk(node: &Node, path: &str) {
            match node {
                Node::Table(keys) => {
                    for key in keys {
                        let path = format!("{path}.{}", key.name);
                        assert!(!key.about.is_empty(), "{path} has no description");
                        walk(&key.node, &path);
                    }
                }
                Node::Kinds(kinds) => kinds.iter().for_each(|(_, node)| walk(node, path)),
                Node::Free => panic!("{path} is not checked"),
                _ => {}
            }
        }
        walk(plan_node(), "");
    }
}
