//! From the text of a study file to its trials.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::critical::{self, CriticalBatchConfig};
use super::error::{Checked, ConfigError, Fault, Problem};
use super::node::{Node, Stage, found};
use super::schema::{file_node, trial_node};
use super::source::{self, Mark, Marks, Override, Unread};
use super::sweep::{self, Sweep};
use super::trial::WITHOUT_EFFECT;
use super::types::TrialConfig;

/// The largest number of trials of one study.
pub const MAX_TRIALS: usize = 100_000;

/// The largest study file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A study: its trials, and what they have in common.
#[derive(Debug, Clone)]
pub struct StudyConfig {
    /// Name of the study and of its folder under `results/`.
    pub name: String,
    /// What is asked, for the reader of the report.
    pub description: Option<String>,
    /// Seeds of every point.
    pub seeds: Vec<u64>,
    /// Axes of the sweep, in the order of the file.
    pub axes: Vec<Axis>,
    /// Every point with every seed: the first axis slowest, seeds fastest.
    pub trials: Vec<TrialSpec>,
    /// The text of the study file as it was given.
    pub source: String,
    /// The path of the study file as it was given.
    pub file: String,
    /// The `--set` arguments as they were given.
    pub overrides: Vec<String>,
    /// What `[critical_batch]` asks for. The trials are then those that the search of each point and
    /// seed begins with.
    pub critical_batch: Option<CriticalStudy>,
    places: Places,
    /// Keys of all trials, without those of the axes.
    base: Map<String, Value>,
}

/// `[critical_batch]` with its axes.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticalStudy {
    /// The table.
    pub config: CriticalBatchConfig,
    /// `[critical_batch.search]`: keys searched over besides the rate.
    pub search: Vec<Axis>,
}

/// An axis of a sweep: one key, or several that move together.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Dotted keys.
    pub keys: Vec<String>,
    /// The points: one value for each key. A kind without keys of its own is its name.
    pub values: Vec<Vec<Value>>,
}

/// One trial of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialSpec {
    /// Run id: 12 hex digits, [`TrialConfig::run_id`].
    pub id: String,
    /// Place in the plan, from 0.
    pub index: usize,
    /// The value of each axis key, in the order of the axes.
    pub point: Vec<(String, Value)>,
    /// The seed.
    pub seed: u64,
    /// The resolved configuration.
    pub config: TrialConfig,
}

/// Where the values of every trial were written.
#[derive(Debug, Clone, Default)]
struct Places {
    marks: Marks,
    axes: Vec<AxisPlaces>,
    seeds: usize,
}

/// Reads a study file and its `--set key=value` overrides.
///
/// # Errors
/// What is wrong, with file, line, key and a hint; for an error in one trial, the point of the
/// sweep.
pub fn load(path: &Path, overrides: &[String]) -> Result<StudyConfig, ConfigError> {
    let file = path.display().to_string();
    let unreadable = |error| ConfigError::new(&file, None, Problem::Read(error));
    let text = source::load(path, MAX_BYTES).map_err(|error| match error {
        Unread::Read(error) => unreadable(error),
        Unread::Text(error) => error,
    })?;
    parse(&text, &file, overrides)
}

/// Reads the text of a study file; `file` is its path, for messages and the default name.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, file: &str, overrides: &[String]) -> Result<StudyConfig, ConfigError> {
    let source::Source { root, mut marks } = source::read(text, file)?;
    let locate = |marks: &Marks, fault: Fault| {
        ConfigError::from_fault(file, marks.get(&fault.path).origin, fault)
    };

    if root.contains_key("cluster") {
        let fault = Fault::invalid("cluster", "this is a plan file, not a study")
            .hint("answer it with `batchlab plan`");
        return Err(locate(&marks, fault));
    }
    let mut root = Value::Object(root);
    ranged_batches(&mut root).map_err(|fault| locate(&marks, fault))?;
    let node = file_node();
    node.conform(node, &mut root, &mut Vec::new(), Stage::Partial)
        .map_err(|fault| locate(&marks, fault))?;
    let mut base = match root {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let mut sweeps = match base.shift_remove("sweep") {
        Some(table) => {
            sweep::read(&table, &marks, &["sweep"]).map_err(|fault| locate(&marks, fault))?
        }
        None => Vec::new(),
    };
    for (number, text) in overrides.iter().enumerate() {
        let given = source::read_override(text, number, file)?;
        let origin = given.mark.origin.clone();
        apply(given, &mut base, &mut sweeps, &mut marks)
            .map_err(|fault| ConfigError::from_fault(file, origin, fault))?;
    }
    sweep::check(&sweeps)
        .map_err(|place| ConfigError::from_fault(file, place.0.origin, place.1))?;

    let name = name(&mut base, file).map_err(|fault| locate(&marks, fault))?;
    let description = match base.shift_remove("description") {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let seeds =
        seeds(base.shift_remove("seeds").as_ref()).map_err(|fault| locate(&marks, fault))?;
    let critical_batch = match base.shift_remove("critical_batch") {
        Some(table) => Some(
            read_critical_batch(table, &base, &sweeps, &marks)
                .map_err(|fault| locate(&marks, fault))?,
        ),
        None => None,
    };
    let points = sweeps
        .iter()
        .try_fold(1_usize, |n, sweep| n.checked_mul(sweep.axis.values.len()));
    let trials = points.and_then(|points| points.checked_mul(seeds.len()));
    if trials.is_none_or(|trials| trials > MAX_TRIALS) {
        let sizes: Vec<String> = sweeps
            .iter()
            .map(|sweep| sweep.axis.values.len())
            .chain([seeds.len()])
            .map(|n| n.to_string())
            .collect();
        let message = format!(
            "{} seeds at every point make {} trials, more than {MAX_TRIALS}",
            seeds.len(),
            sizes.join(" x ")
        );
        let key = if sweeps.is_empty() { "seeds" } else { "sweep" };
        let fault = Fault::invalid(key, message).hint("split the study in several files");
        return Err(locate(&marks, fault));
    }

    let mut study = StudyConfig {
        name,
        description,
        seeds,
        axes: Vec::with_capacity(sweeps.len()),
        trials: Vec::new(),
        source: text.to_owned(),
        file: file.to_owned(),
        overrides: overrides.to_vec(),
        critical_batch,
        places: Places::default(),
        base,
    };
    for sweep in sweeps {
        let paths = sweep.axis.keys.iter().map(|key| segments(key)).collect();
        let marks = sweep.value_marks;
        study.places.axes.push(AxisPlaces { paths, marks });
        study.axes.push(sweep.axis);
    }
    study.places.marks = marks;
    study.places.seeds = study.seeds.len();
    let mut start = study.base.clone();
    if let Some(CriticalStudy { config, .. }) = &study.critical_batch {
        assign(
            &mut start,
            &segments("train.global_batch"),
            config.middle().into(),
        );
        assign(
            &mut start,
            &segments("train.epochs"),
            config.budget_epochs.into(),
        );
    }
    study.expand(&start)?;
    if let Some(CriticalStudy { config, .. }) = &study.critical_batch {
        for (point, trial) in study.trials.chunks(study.seeds.len().max(1)).enumerate() {
            if let Some(trial) = trial.first() {
                critical::trial(config, &trial.config)
                    .map_err(|fault| study.error_at(point, &trial.point, fault))?;
            }
        }
    }
    Ok(study)
}

/// Writes out `critical_batch.batches` where it is a range.
fn ranged_batches(root: &mut Value) -> Checked {
    let Some(batches) = root
        .get_mut("critical_batch")
        .and_then(|table| table.get_mut("batches"))
    else {
        return Ok(());
    };
    if let Value::Object(range) = batches
        && (range.contains_key("log2") || range.contains_key("log"))
    {
        let path = ["critical_batch".to_owned(), "batches".to_owned()];
        *batches = sweep::range_values(range, &Node::Integer, &path)?.into();
    }
    Ok(())
}

fn read_critical_batch(
    mut table: Value,
    base: &Map<String, Value>,
    sweeps: &[Sweep],
    marks: &Marks,
) -> Checked<CriticalStudy> {
    const KEY: &str = "critical_batch";
    let search = table.as_object_mut().and_then(|t| t.shift_remove("search"));
    let search = match &search {
        Some(search) => sweep::read(search, marks, &[KEY, "search"])?,
        None => Vec::new(),
    };
    let node = file_node().find(&[KEY.to_owned()])?;
    let mut path = vec![KEY.to_owned()];
    node.conform(file_node(), &mut table, &mut path, Stage::Complete)?;
    let config: CriticalBatchConfig =
        serde_json::from_value(table).map_err(|error| Fault::invalid(KEY, error.to_string()))?;
    critical::table(&config)?;
    let workers = base.get("train").and_then(|train| train.get("workers"));
    if let Some(workers) = workers.and_then(Value::as_u64) {
        critical::divisible(&config, usize::try_from(workers).unwrap_or(usize::MAX))?;
    }
    let set = |key: &str| {
        let mut value = base.get("train");
        if let Some(last) = key.strip_prefix("train.") {
            value = value.and_then(|train| train.get(last));
        }
        value.is_some()
    };
    if let Some(key) = critical::SEARCHED.iter().find(|key| set(key)) {
        return Err(Fault::invalid(
            key,
            "`[critical_batch]` sets it for every trial of the search",
        )
        .hint("leave it out: batches are `critical_batch.batches`, budgets `budget_epochs` and `budget_steps`"));
    }
    let searched = |key: &str| critical::SEARCHED.contains(&key) || key == critical::RATE;
    // The first rate may go with other keys: it tells no cases apart.
    let zipped = |sweep: &Sweep, key: &str| key == critical::RATE && sweep.axis.keys.len() > 1;
    let swept: Vec<&str> = sweeps
        .iter()
        .flat_map(|sweep| {
            let keys = sweep.axis.keys.iter().map(String::as_str);
            keys.filter(move |key| !zipped(sweep, key))
        })
        .collect();
    if let Some(key) = swept.iter().find(|key| searched(key)) {
        return Err(Fault::invalid(
            "sweep",
            format!("`{key}` is searched by `[critical_batch]`, so it cannot be swept"),
        )
        .hint("leave it out of the sweep"));
    }
    for key in search.iter().flat_map(|sweep| &sweep.axis.keys) {
        let task = ["data.", "train.target", "seed", "critical_batch"];
        if task.iter().any(|start| key.starts_with(start)) {
            return Err(Fault::invalid(
                "critical_batch.search",
                format!("`{key}` sets the task, and the search compares runs of one task"),
            )
            .hint("sweep it instead: every point of `[sweep]` is a case of its own"));
        }
        if searched(key) || swept.contains(&key.as_str()) {
            return Err(Fault::invalid(
                "critical_batch.search",
                format!("`{key}` is searched or swept already"),
            ));
        }
    }
    Ok(CriticalStudy {
        config,
        search: search.into_iter().map(|sweep| sweep.axis).collect(),
    })
}

impl StudyConfig {
    /// Checks what depends on the number of training examples, as
    /// [`TrialConfig::validate_against_data`], and says the line of the file.
    ///
    /// # Errors
    /// The first thing that is wrong with this trial, with file, line, key, hint and point.
    pub fn validate_against_data(
        &self,
        trial: &TrialSpec,
        train_examples: usize,
    ) -> Result<(), ConfigError> {
        super::check::against_data(&trial.config, train_examples)
            .map_err(|fault| self.error_at(self.number(trial), &trial.point, fault))
    }

    /// The number of a trial's point.
    fn number(&self, trial: &TrialSpec) -> usize {
        trial.index / self.places.seeds.max(1)
    }

    /// A trial of this study at a point that no axis need hold: `point` is what tells it from others,
    /// `hidden` are further keys that are set. A key in `point` that is no key of a study file only
    /// names the trial; those in `without` are left out. Its index is 0;
    /// [`StudyConfig::with_trials`] numbers it.
    ///
    /// # Errors
    /// If the trial is impossible.
    pub fn trial(
        &self,
        point: Vec<(String, Value)>,
        hidden: &[(String, Value)],
        without: &[&str],
        seed: u64,
    ) -> Result<TrialSpec, ConfigError> {
        let known = |key: &str| trial_node().find(&segments(key)).is_ok();
        let mut base = self.base.clone();
        for (key, value) in point.iter().filter(|(key, _)| known(key)) {
            assign(&mut base, &segments(key), value.clone());
        }
        for key in without {
            remove(&mut base, &segments(key));
        }
        let config = resolve(&base, hidden).map_err(|fault| {
            let origin = self.places.marks.get(&fault.path).origin;
            ConfigError::from_fault(&self.file, origin, fault).at_point(&point)
        })?;
        let config = TrialConfig { seed, ..config };
        Ok(TrialSpec {
            id: config.run_id(),
            index: 0,
            point,
            seed,
            config,
        })
    }

    /// This study with other trials, and the keys of their points as its axes.
    #[must_use]
    pub fn with_trials(&self, trials: Vec<TrialSpec>) -> Self {
        let mut axes: Vec<Axis> = Vec::new();
        for (key, value) in trials.iter().flat_map(|trial| &trial.point) {
            let known = axes.iter().position(|axis| axis.keys[0] == *key);
            let place = known.unwrap_or_else(|| {
                axes.push(Axis {
                    keys: vec![key.clone()],
                    values: Vec::new(),
                });
                axes.len() - 1
            });
            let values = &mut axes[place].values;
            if !values.iter().any(|known| known[0] == *value) {
                values.push(vec![value.clone()]);
            }
        }
        let number = |(index, trial)| TrialSpec { index, ..trial };
        Self {
            axes,
            trials: trials.into_iter().enumerate().map(number).collect(),
            places: Places {
                marks: self.places.marks.clone(),
                ..Places::default()
            },
            ..self.clone()
        }
    }

    /// An error at a key of one trial that only showed beyond the config, in its data or its model:
    /// with the line of the file. `message` may end in a line `hint: ...`.
    pub fn error_at_key(&self, trial: &TrialSpec, key: &str, message: &str) -> ConfigError {
        let (message, hint) = match message.split_once("\nhint: ") {
            Some((message, hint)) => (message, Some(hint)),
            None => (message, None),
        };
        let mut fault = Fault::invalid(key, message);
        fault.hint = hint.map(str::to_owned);
        // Which data there are depends on no other table, so a point without them says nothing.
        let of_data = |key: &str| key.split('.').next() == Some("data");
        let mut swept = self.axes.iter().flat_map(|axis| &axis.keys);
        if of_data(key) && !swept.any(|key| of_data(key)) {
            let origin = self.places.marks.get(&fault.path).origin;
            return ConfigError::from_fault(&self.file, origin, fault);
        }
        self.error_at(self.number(trial), &trial.point, fault)
    }

    fn points(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Index of the value of each axis at a point.
    fn digits(&self, mut point: usize) -> Vec<usize> {
        let mut digits = vec![0; self.axes.len()];
        for (digit, axis) in digits.iter_mut().zip(&self.axes).rev() {
            *digit = point % axis.values.len();
            point /= axis.values.len();
        }
        digits
    }

    fn point(&self, point: usize) -> Vec<(String, Value)> {
        self.axes
            .iter()
            .zip(self.digits(point))
            .flat_map(|(axis, digit)| axis.keys.iter().cloned().zip(axis.values[digit].clone()))
            .collect()
    }

    fn expand(&mut self, base: &Map<String, Value>) -> Result<(), ConfigError> {
        let points = self.points();
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        let mut trials = Vec::with_capacity(points * self.seeds.len());
        for number in 0..points {
            let point = self.point(number);
            let config = match resolve(base, &point) {
                Ok(config) => config,
                Err(fault) => return Err(self.error_in_expansion(base, number, fault)),
            };
            for &seed in &self.seeds {
                let config = TrialConfig {
                    seed,
                    ..config.clone()
                };
                let id = config.run_id();
                if let Some(twin) = known.insert(id.clone(), number) {
                    return Err(self.same_trial(twin, number));
                }
                trials.push(TrialSpec {
                    id,
                    index: trials.len(),
                    point: point.clone(),
                    seed,
                    config,
                });
            }
        }
        self.trials = trials;
        Ok(())
    }

    /// Names the point, unless the same is wrong at the other end of the sweep.
    fn error_in_expansion(
        &self,
        base: &Map<String, Value>,
        number: usize,
        fault: Fault,
    ) -> ConfigError {
        let last = self.points() - 1;
        let everywhere = number != last
            && resolve(base, &self.point(last)).is_err_and(|other| {
                other.path == fault.path && other.problem.to_string() == fault.problem.to_string()
            });
        if everywhere {
            let origin = self.places.marks.get(&fault.path).origin;
            return ConfigError::from_fault(&self.file, origin, fault);
        }
        self.error_at(number, &self.point(number), fault)
    }

    fn error_at(&self, number: usize, point: &[(String, Value)], fault: Fault) -> ConfigError {
        let mut mark = self.places.marks.get(&fault.path);
        for (axis, digit) in self.places.axes.iter().zip(self.digits(number)) {
            for (path, value_mark) in axis.paths.iter().zip(&axis.marks[digit]) {
                if fault.path.starts_with(path) || path.starts_with(&fault.path) {
                    mark = value_mark.clone();
                }
            }
        }
        ConfigError::from_fault(&self.file, mark.origin, fault).at_point(point)
    }

    fn same_trial(&self, twin: usize, number: usize) -> ConfigError {
        let text = |point: usize| {
            let values: Vec<String> = self
                .point(point)
                .iter()
                .map(|(key, value)| format!("{key} = {}", super::value_text(value)))
                .collect();
            values.join(", ")
        };
        let message = format!(
            "two points are the same trial: {}; {}",
            text(twin),
            text(number)
        );
        let (one, other) = (self.point(twin), self.point(number));
        let idle = one
            .iter()
            .zip(&other)
            .filter(|(one, other)| one != other)
            .find_map(|((key, _), _)| WITHOUT_EFFECT.iter().find(|idle| *idle == key));
        let fault = Fault::invalid("sweep", message).hint(match idle {
            Some(key) => format!("`{key}` never changes a result: set it outside of the sweep"),
            None => {
                "let keys that depend on each other move together in `[[sweep.zip]]`".to_owned()
            }
        });
        let origin = self.places.marks.get(&fault.path).origin;
        ConfigError::from_fault(&self.file, origin, fault)
    }
}

/// Where the values of an axis were written.
#[derive(Debug, Clone)]
struct AxisPlaces {
    /// Of each key, its segments.
    paths: Vec<Vec<String>>,
    /// `marks[point][key]`.
    marks: Vec<Vec<Mark>>,
}

fn segments(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

/// The trial at a point: base values, then those of the axes; checked, every default in place.
fn resolve(base: &Map<String, Value>, point: &[(String, Value)]) -> Checked<TrialConfig> {
    let mut value = base.clone();
    for (key, at_point) in point {
        assign(&mut value, &segments(key), at_point.clone());
    }
    let mut value = Value::Object(value);
    let node = trial_node();
    node.conform(node, &mut value, &mut Vec::new(), Stage::Complete)?;
    let config: TrialConfig = serde_json::from_value(value).map_err(|error| {
        // The walk above knows more than serde; this is for what it may have missed.
        let message = error.to_string();
        let key = "study".to_owned();
        Fault::new(&[], Problem::Invalid { key, message })
    })?;
    super::check::trial(&config)?;
    Ok(config.resolved())
}

/// Puts a value at a key, making the tables on the way. A kind written as a word becomes a table.
fn assign(map: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((last, tables)) = path.split_last() else {
        return;
    };
    let mut map = map;
    for segment in tables {
        let slot = map.entry(segment.clone()).or_insert(Value::Null);
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        let Value::Object(inner) = slot else {
            return;
        };
        map = inner;
    }
    map.insert(last.clone(), value);
}

/// Keys of which a file has one: `--set` of one takes the place of the others.
const EXCLUSIVE: [&[&str]; 5] = [
    &["train.global_batch", "train.local_batch"],
    &["train.epochs", "train.steps", "train.examples"],
    &[
        "train.evaluate.every_epochs",
        "train.evaluate.every_steps",
        "train.evaluate.growth",
    ],
    &[
        "learning_rate.warmup.epochs",
        "learning_rate.warmup.steps",
        "learning_rate.warmup.examples",
    ],
    &["batch.every_epochs", "batch.every_steps"],
];

fn apply(
    given: Override,
    base: &mut Map<String, Value>,
    sweeps: &mut Vec<Sweep>,
    marks: &mut Marks,
) -> Checked {
    if given.path[0] == "sweep" {
        return apply_to_sweep(&given, sweeps);
    }
    let Override {
        path,
        mut value,
        marks: new_marks,
        mark,
    } = given;
    let root = file_node();
    let node = root.find(&path)?;
    if path == ["critical_batch", "batches"]
        && let Value::Object(range) = &value
    {
        value = sweep::range_values(range, &Node::Integer, &path)?.into();
    }
    node.conform(root, &mut value, &mut path.clone(), Stage::Partial)?;
    let key = path.join(".");

    for sweep in sweeps.iter_mut() {
        let Some(place) = sweep.axis.keys.iter().position(|axis| *axis == key) else {
            continue;
        };
        if sweep.axis.keys.len() > 1 {
            let others = sweep.axis.keys.join("`, `");
            return Err(Fault::invalid(
                &key,
                format!("it is one of the keys of a zipped axis: `{others}`"),
            )
            .hint(
                "change the study file, or set all keys of the axis: --set 'sweep.\"KEY\"=[...]'",
            ));
        }
        if let Some(word) = super::canonical::shorthand(node, &value) {
            value = word.into();
        }
        sweep.axis.values = vec![vec![value]];
        sweep.marks[place] = Mark {
            origin: mark.origin.clone(),
            position: sweep.marks[place].position,
        };
        sweep.value_marks = vec![vec![mark]];
        return Ok(());
    }

    for group in EXCLUSIVE
        .iter()
        .filter(|group| group.contains(&key.as_str()))
    {
        for other in group.iter().filter(|other| **other != key) {
            remove(base, &segments(other));
            marks.remove(&segments(other));
        }
    }
    drop_other_kinds(base, &path);
    assign(base, &path, value);
    marks.remove(&path);
    marks.graft(&new_marks, &path, &path);
    Ok(())
}

/// `--set 'sweep."train.global_batch"=[32, 64]'` replaces that axis, or adds it.
fn apply_to_sweep(given: &Override, sweeps: &mut Vec<Sweep>) -> Checked {
    let key = given.path[1..].join(".");
    if key.is_empty() || key.split('.').next() == Some("zip") {
        let path = given.path.join(".");
        return Err(Fault::invalid(&path, "only single axes can be set")
            .hint("write --set 'sweep.\"train.global_batch\"=[32, 64]'"));
    }
    for mut new in sweep::read_one(&key, &given.value, &given.marks, &given.path)? {
        let old = sweeps
            .iter()
            .position(|sweep| sweep.axis.keys.contains(&new.axis.keys[0]));
        match old {
            Some(old) if sweeps[old].axis.keys.len() == 1 => {
                new.marks[0].position = sweeps[old].marks[0].position;
                sweeps[old] = new;
            }
            Some(old) => {
                let keys = sweeps[old].axis.keys.join("`, `");
                return Err(Fault::invalid(
                    &new.axis.keys[0],
                    format!("it is one of the keys of a zipped axis: `{keys}`"),
                )
                .hint("change the study file"));
            }
            None => sweeps.push(new),
        }
    }
    Ok(())
}

fn remove(map: &mut Map<String, Value>, path: &[String]) {
    match path {
        [] => {}
        [last] => {
            map.shift_remove(last);
        }
        [first, rest @ ..] => {
            if let Some(Value::Object(inner)) = map.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}

/// Keeps of every kind on the way to `path` only the one that the path names.
fn drop_other_kinds(base: &mut Map<String, Value>, path: &[String]) {
    let mut map = base;
    let mut node = file_node();
    for segment in path {
        if matches!(node, Node::Kinds(_)) {
            map.retain(|kind, _| kind == segment);
        }
        let (Some(child), Some(Value::Object(inner))) = (node.child(segment), map.get_mut(segment))
        else {
            return;
        };
        node = child;
        map = inner;
    }
}

fn name(base: &mut Map<String, Value>, file: &str) -> Checked<String> {
    let given = base.shift_remove("name");
    let name = match &given {
        Some(Value::String(name)) => name.clone(),
        _ => Path::new(file)
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default(),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let starts = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts && name.len() <= 100 && name.chars().all(plain) {
        return Ok(name);
    }
    let message = match given {
        Some(_) => format!("{} is not a plain folder name", found(&name.into())),
        None => "the file's name is not a plain folder name".to_owned(),
    };
    Err(Fault::invalid("name", message)
        .hint("use letters, digits, `-`, `_` and `.`, at most 100, the first a letter or digit"))
}

fn seeds(value: Option<&Value>) -> Checked<Vec<u64>> {
    let fault = |message: String| Err(Fault::invalid("seeds", message));
    let seeds = match value {
        None => vec![0],
        Some(Value::Number(n)) => match n.as_u64() {
            Some(0) => return fault("no seeds, no trials".to_owned()),
            Some(n) if n <= MAX_TRIALS as u64 => (0..n).collect(),
            Some(n) => return fault(format!("{n} seeds are more than {MAX_TRIALS}")),
            None => return fault(format!("expected a number of seeds, found {n}")),
        },
        Some(Value::Array(items)) if items.is_empty() => {
            return fault("no seeds, no trials".to_owned());
        }
        Some(Value::Array(items)) => {
            let mut seeds = Vec::with_capacity(items.len());
            for (i, item) in items.iter().enumerate() {
                let Some(seed) = item.as_u64() else {
                    let path = ["seeds".to_owned(), format!("[{i}]")];
                    return Err(Fault::new(
                        &path,
                        Problem::Mismatch {
                            key: super::error::dotted(&path),
                            expected: "a whole number, not negative".to_owned(),
                            found: found(item),
                        },
                    ));
                };
                seeds.push(seed);
            }
            let mut sorted = seeds.clone();
            sorted.sort_unstable();
            if let Some([seed, _]) = sorted.array_windows().find(|[a, b]| a == b) {
                return fault(format!("the seed {seed} stands twice"));
            }
            seeds
        }
        Some(other) => {
            return fault(format!(
                "expected a number of seeds or a list of them, found {}",
                found(other)
            ));
        }
    };
    Ok(seeds)
}
