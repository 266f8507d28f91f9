//! From a plan file and what was counted and measured to the answer.

use std::path::{Path, PathBuf};

use super::words::{self, trimmed};
use crate::analysis::collectives::PRESETS;
use crate::analysis::critical_batch::{Case, from_csv};
use crate::analysis::numbers::{count, list, significant};
use crate::config::{
    AlgorithmChoice, ConfigError, JitterConfig, LinkConfig, PlanFile, StrategyChoice, WireModel,
};
use crate::math::line_fit::{LineFit, fit_line};
use crate::math::statistics::Interval;
use crate::store::{self, StoreError, Table};
use crate::theory::collectives::{Hockney, LogGp, Operation};
use crate::theory::plan::{
    self, Device, Exact, Model, Network, Nodes, Plan, Point, StepTime, StepsIntervals, StepsLaw,
    Strategy, Task, Way, Wire,
};
use crate::theory::staleness::Times;

/// Confidence of the intervals of measured times.
const CONFIDENCE: f64 = 0.95;

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// What cost is counted in where no price is given, and below how many of them it is in seconds.
const WORKER_HOURS: &str = "worker-hours";
const LEAST_HOURS: f64 = 0.1;

/// Rows of the table that are powers of 2; beyond, powers of 4.
const MOST_DOUBLINGS: u32 = 12;

/// What the program counts in the model of a study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelNumbers {
    /// Parameters.
    pub parameters: u64,
    /// Layers.
    pub layers: u64,
    /// Bytes of one layer's output for one example, the mean over layers; `None` where it is not known.
    pub activation_bytes: Option<f64>,
}

/// A measured update of one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceSample {
    /// Examples.
    pub batch: usize,
    /// Seconds.
    pub seconds: f64,
}

/// A measured update of several workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Workers.
    pub workers: u64,
    /// Examples.
    pub batch: u64,
    /// Seconds.
    pub seconds: f64,
    /// Their interval.
    pub interval: Option<Interval>,
}

/// What a plan asks of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlanInputs {
    /// Of the model of `model.study`.
    pub model: Option<ModelNumbers>,
    /// Updates at several local batches, for `device.measure`.
    pub device: Vec<DeviceSample>,
}

/// A number and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// What.
    pub what: String,
    /// How much.
    pub value: String,
    /// Whence.
    pub source: String,
}

/// A point of the table, and what it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The point.
    pub point: Point,
    /// Whether the numbers of workers are special: `fastest`, ...
    pub marks: Vec<&'static str>,
}

/// What the intervals of law and device leave open.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The fewest and the most workers that are fastest.
    pub fastest: (u64, u64),
    /// The fewest and the most that are worth it.
    pub worth_it: (u64, u64),
    /// What was varied.
    pub varied: Vec<&'static str>,
}

/// A measurement beside its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    /// The measurement.
    pub measured: Measured,
    /// The prediction with data parallelism; `None` where it cannot be done.
    pub predicted: Option<StepTime>,
}

impl Checked {
    /// Predicted over measured, less 1.
    pub fn error(&self) -> Option<f64> {
        let predicted = self.predicted?.total();
        Some(predicted / self.measured.seconds - 1.0)
    }
}

/// How many workers are worth it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanAnswer {
    /// Name of the plan.
    pub name: String,
    /// What is asked.
    pub description: Option<String>,
    /// The numbers that went in.
    pub facts: Vec<Fact>,
    /// The question in the terms of the theory.
    pub task: Task,
    /// Interval of B_crit, if known.
    pub b_crit_interval: Option<Interval>,
    /// The task with the device's times at both ends of their intervals, if known.
    pub device_ends: Option<(Task, Task)>,
    /// Names of the networks: how sums are made.
    pub networks: Vec<String>,
    /// Every strategy on every network.
    pub plan: Plan,
    /// The most workers that were asked about.
    pub up_to: u64,
    /// Share of their cost that is used where workers are said to be worth it.
    pub efficiency: f64,
    /// Of one per cent more batch, the per cent of updates saved where statistics stop paying.
    pub worth: f64,
    /// The most workers that are used so well, of the numbers that were looked at.
    pub worth_it: Point,
    /// What cost is counted in.
    pub unit: String,
    /// Selected numbers of workers.
    pub rows: Vec<Row>,
    /// What intervals leave open; `None` without intervals.
    pub spread: Option<Spread>,
    /// Measurements beside predictions.
    pub checked: Vec<Checked>,
    /// What else to know.
    pub notes: Vec<String>,
    exacts: Vec<Exact>,
}

impl PlanAnswer {
    /// The fewest workers that can do it: one, unless the model does not fit there.
    pub fn fewest(&self) -> &Point {
        self.plan.best.first().unwrap_or(&self.plan.fastest)
    }

    /// Efficiency against the fewest workers: the statistical part and that of the machine.
    pub fn efficiency_parts(&self, point: &Point) -> (f64, f64) {
        efficiency_parts(self.fewest(), point)
    }

    /// Efficiency against the fewest workers.
    pub fn efficiency_of(&self, point: &Point) -> f64 {
        let (statistical, machine) = self.efficiency_parts(point);
        statistical * machine
    }

    /// Seconds to the target with law and device at the ends of their intervals.
    pub fn interval(&self, point: &Point) -> Option<Interval> {
        let Some((low, high)) = &self.device_ends else {
            return point.interval;
        };
        let steps = self.task.law.bounds(point.batch).unwrap_or(Interval {
            low: point.steps,
            high: point.steps,
        });
        let seconds = |task: &Task| {
            let network = self.exacts.get(point.network)?.network();
            let batch = Some(point.batch as u64);
            let again = plan::point(task, &network, point.strategy, point.workers, batch);
            Some(again.ok()??.step.total())
        };
        Some(Interval {
            low: steps.low * seconds(low)?,
            high: steps.high * seconds(high)?,
        })
    }

    /// How the gradients of a point are summed: over the links between nodes, or inside of one if all
    /// are there. `None` where there is nothing to sum.
    pub fn sums_by(&self, point: &Point) -> Option<Way> {
        let exact = self.exacts.get(point.network)?;
        let (node, group, groups) = (self.task.nodes.workers, point.group, point.groups);
        let bytes = self.task.model.parameters * self.task.model.bytes_per_parameter / group as f64;
        let inside = (node / group).clamp(1, groups);
        let nodes = groups.div_ceil(inside);
        let (wire, ranks, bytes) = if nodes > 1 {
            (&exact.outer, nodes, group.min(node) as f64 * bytes)
        } else {
            (&exact.inner, inside, bytes)
        };
        if ranks < 2 {
            return None;
        }
        let found = exact.fastest(wire, Operation::AllReduce, ranks, bytes);
        found.map(|(way, _)| way)
    }
}

fn efficiency_parts(base: &Point, point: &Point) -> (f64, f64) {
    let statistical = base.steps * base.batch / (point.steps * point.batch);
    let machine = (point.batch / (point.workers as f64 * point.step.total()))
        / (base.batch / (base.workers as f64 * base.step.total()));
    (statistical, machine)
}

/// Answers a plan file.
///
/// # Errors
/// A key that cannot be used: steps that do not tell the law, times that make no line, a model that fits
/// on no number of workers; a table that cannot be read.
pub fn answer(file: &PlanFile, inputs: &PlanInputs) -> Result<PlanAnswer, ConfigError> {
    let mut facts = Vec::new();
    let (law, b_crit_interval) = law(file, &mut facts)?;
    let model = model(file, inputs.model, &mut facts)?;
    let (device, ends) = device(file, &inputs.device, &mut facts)?;
    let (wires, nodes) = cluster(file, &mut facts)?;
    let (price, mut unit) = cost(file, &mut facts);
    let (config, search) = (&file.config, &file.config.plan);
    let mut task = Task {
        law,
        model,
        device: Device { price, ..device },
        nodes,
        overlap: config.collectives.overlap,
        largest_batch: search.largest_batch,
    };
    if task.overlap > 0.0 {
        let value = format!("{} %", number(100.0 * task.overlap));
        facts.push(given("sum hidden behind the backward pass, at most", value));
    }
    let exacts = exacts(file, wires, &model);
    let networks: Vec<Network> = exacts.iter().map(Exact::network).collect();
    let strategies = strategies(file);
    let find = |task: &Task| {
        let found = plan::plan(task, &networks, &strategies, search.up_to, search.worth);
        found.map_err(|error| file.error_at_key("plan", &error.to_string(), None))
    };
    let Some(mut found) = find(&task)? else {
        return Err(impossible(file, &task, &strategies));
    };
    let fewest = found.best.first().map_or(0.0, |point| point.cost);
    if unit == WORKER_HOURS && fewest < LEAST_HOURS {
        task.device.price = 1.0;
        "worker-seconds".clone_into(&mut unit);
        found = find(&task)?.unwrap_or(found);
    }
    let worth_it = worth_it(&found, search.efficiency);
    let device_ends = ends.map(|(low, high)| {
        let with = |device: Device| Task {
            device: Device {
                price: task.device.price,
                ..device
            },
            ..task
        };
        (with(low), with(high))
    });
    let mut variants = Vec::new();
    let mut varied = Vec::new();
    if let Some(interval) = b_crit_interval {
        let finite = [interval.low, interval.high]
            .into_iter()
            .filter(|b| b.is_finite());
        variants.extend(finite.map(|b_crit| Task {
            law: StepsLaw { b_crit, ..law },
            ..task
        }));
        varied.push("the critical batch size");
    }
    if let Some((low, high)) = device_ends {
        variants.extend([low, high]);
        varied.push("the times of the device");
    }
    let mut spread = Spread {
        fastest: (found.fastest.workers, found.fastest.workers),
        worth_it: (worth_it.workers, worth_it.workers),
        varied,
    };
    for variant in &variants {
        let Some(other) = find(variant)? else {
            continue;
        };
        let widen = |range: &mut (u64, u64), p: u64| *range = (range.0.min(p), range.1.max(p));
        widen(&mut spread.fastest, other.fastest.workers);
        let other = self::worth_it(&other, search.efficiency);
        widen(&mut spread.worth_it, other.workers);
    }
    let measured = measured(file)?;
    let checked = checked(&task, &networks, measured);
    let mut notes = Vec::new();
    if config.cluster.between == LinkConfig::default() {
        notes.push("No link is given, so communication is free.".to_owned());
    }
    if b_crit_interval.is_some_and(|i| !i.high.is_finite()) {
        notes.push("The steps leave B_crit open above: it may be far larger.".to_owned());
    }
    drop(networks);
    let mut answer = PlanAnswer {
        name: file.name.clone(),
        description: config.description.clone(),
        facts,
        b_crit_interval,
        device_ends,
        networks: exacts.iter().map(|exact| exact.name.clone()).collect(),
        up_to: search.up_to,
        efficiency: search.efficiency,
        worth: search.worth,
        worth_it,
        unit,
        rows: Vec::new(),
        spread: (!variants.is_empty()).then_some(spread),
        checked,
        notes,
        plan: found,
        task,
        exacts,
    };
    answer.rows = rows(&answer);
    Ok(answer)
}

/// Why no strategy can use any number of workers.
fn impossible(file: &PlanFile, task: &Task, strategies: &[Strategy]) -> ConfigError {
    let up_to = file.config.plan.up_to;
    let groups = strategies.iter().map(|s| s.largest_group(task, up_to));
    let group = groups.flatten().max();
    let (resident, memory) = (task.model.resident_bytes, task.device.memory_bytes);
    match group.map(|group| (group, resident / group as f64)) {
        Some((group, needed)) if needed > memory => file.error_at_key(
            "device.memory_bytes",
            &format!(
                "expected at least {}, found {memory}: `plan.strategies` split the {} resident bytes of the model over {} at most",
                needed.ceil(),
                number(resident),
                words::workers(group)
            ),
            Some("`features`, `pipeline` and their groups in `plan.strategies` split the model; `data` does not"),
        ),
        _ => file.error_at_key(
            "plan.strategies",
            &format!("none of them can use any number of workers up to {up_to}"),
            Some("`plan.group` may be more than these, or the model fit into `device.memory_bytes` on none of the numbers looked at"),
        ),
    }
}

fn given(what: &str, value: String) -> Fact {
    fact(what, value, "given")
}

fn fact(what: &str, value: String, source: impl Into<String>) -> Fact {
    Fact {
        what: what.to_owned(),
        value,
        source: source.into(),
    }
}

fn number(value: f64) -> String {
    let whole = value.fract() == 0.0 && (1e4..1e9).contains(&value.abs());
    if whole {
        count(value as u64)
    } else {
        trimmed(&significant(value, 4))
    }
}

fn ends_of(interval: Option<Interval>) -> String {
    interval.map_or(String::new(), |i| {
        format!(" ({} to {})", number(i.low), number(i.high))
    })
}

fn as_interval(ends: Option<[f64; 2]>) -> Option<Interval> {
    ends.map(|[low, high]| Interval { low, high })
}

/// S(B), and the interval of B_crit.
fn law(
    file: &PlanFile,
    facts: &mut Vec<Fact>,
) -> Result<(StepsLaw, Option<Interval>), ConfigError> {
    let steps = &file.config.steps;
    let (law, b_crit_interval, source) =
        if let (Some(s_min), Some(b_crit)) = (steps.s_min, steps.b_crit) {
            let intervals = as_interval(steps.s_min_interval)
                .zip(as_interval(steps.e_min_interval))
                .map(|(s_min, e_min)| StepsIntervals { s_min, e_min });
            let law = StepsLaw {
                s_min,
                b_crit,
                intervals,
            };
            // Without its own, the widest that those of S_min and E_min allow.
            let implied = intervals.map(|i| Interval {
                low: i.e_min.low / i.s_min.high,
                high: i.e_min.high / i.s_min.low,
            });
            let interval = as_interval(steps.b_crit_interval).or(implied);
            (law, interval, "given".to_owned())
        } else {
            let (key, path) = match (&steps.study, &steps.csv) {
                (Some(folder), _) => ("steps.study", Path::new(folder).join("steps_to_target.csv")),
                (_, csv) => (
                    "steps.csv",
                    PathBuf::from(csv.as_deref().unwrap_or_default()),
                ),
            };
            if key == "steps.study" && !store::exists(&path) {
                let message = format!("there is no {}", path.display());
                let hint =
                    "`batchlab critical-batch` writes it; `batchlab report FOLDER` writes it again";
                return Err(file.error_at_key(key, &message, Some(hint)));
            }
            let read = from_csv(&path)
                .map_err(|error| file.error_at_key(key, &error.to_string(), None))?;
            let case = chosen(file, key, &read.critical_batch.cases)?;
            let fit = case.fit.as_ref().map_err(|error| {
                file.error_at_key(key, &format!("{}: {error}", path.display()), None)
            })?;
            if let Some(bound) = fit.fit.bound {
                let message = format!(
                    "{}: the steps leave B_crit open {}",
                    path.display(),
                    match bound {
                        crate::math::steps_fit::Bound::Above => "above: no batch flattens",
                        crate::math::steps_fit::Bound::Below =>
                            "below: no batch gains on a smaller one",
                    }
                );
                let hint = "give `s_min` and `b_crit`, or measure more batches";
                return Err(file.error_at_key(key, &message, Some(hint)));
            }
            let found = fit.intervals.as_ref();
            let law = StepsLaw {
                s_min: fit.fit.s_min,
                b_crit: fit.fit.b_crit,
                intervals: found.map(|i| StepsIntervals {
                    s_min: i.s_min,
                    e_min: i.e_min,
                }),
            };
            let seeds = found.map_or(String::new(), |i| {
                format!(", intervals of 95 % over {} seeds", i.seeds)
            });
            let of = match case.label.as_str() {
                "" | "all" => String::new(),
                label => format!(", {label}"),
            };
            let source = format!("fit to {}{of}{seeds}", path.display());
            (law, found.map(|i| i.b_crit), source)
        };
    let intervals = law.intervals;
    facts.push(fact(
        "S_min (updates)",
        format!(
            "{}{}",
            number(law.s_min),
            ends_of(intervals.map(|i| i.s_min))
        ),
        &source,
    ));
    facts.push(fact(
        "B_crit (examples)",
        format!("{}{}", number(law.b_crit), ends_of(b_crit_interval)),
        source,
    ));
    Ok((law, b_crit_interval))
}

/// The case that is asked for, or the only one.
fn chosen<'a>(file: &PlanFile, key: &str, cases: &'a [Case]) -> Result<&'a Case, ConfigError> {
    let quoted = |case: &Case| format!("{:?}", case.label);
    let names = list(&cases.iter().map(quoted).collect::<Vec<_>>());
    match (&file.config.steps.case, cases) {
        (Some(wanted), [only]) if only.label.is_empty() && !wanted.is_empty() => {
            let message = format!("no case {wanted:?}: the table of `{key}` has no cases");
            Err(file.error_at_key("steps.case", &message, Some("leave it out")))
        }
        (Some(wanted), _) => cases
            .iter()
            .find(|case| case.label == *wanted)
            .ok_or_else(|| {
                let hint = format!("the cases are {names}");
                file.error_at_key("steps.case", &format!("no case {wanted:?}"), Some(&hint))
            }),
        (None, [one]) => Ok(one),
        (None, _) => Err(file.error_at_key(
            key,
            &format!("expected one case, found {}", cases.len()),
            Some(&format!("name one in `steps.case`: {names}")),
        )),
    }
}

fn model(
    file: &PlanFile,
    counted: Option<ModelNumbers>,
    facts: &mut Vec<Fact>,
) -> Result<Model, ConfigError> {
    let model = &file.config.model;
    let source = |given: bool| match &model.study {
        Some(study) if !given => format!("counted in the model of {study}"),
        _ => "given".to_owned(),
    };
    let parameters = model.parameters.or(counted.map(|c| c.parameters as f64));
    let Some(parameters) = parameters else {
        return Err(file.error_at_key("model.study", "the model could not be counted", None));
    };
    let layers = model.layers.or(counted.map(|c| c.layers)).unwrap_or(1);
    let activation = model
        .activation_bytes
        .or(counted.and_then(|c| c.activation_bytes));
    let splitting = |s: &StrategyChoice| s.splits_the_model();
    let splits = file.config.plan.strategies.iter().any(splitting);
    if splits && activation.is_none() {
        let message = "the outputs of this model's layers could not be counted";
        let hint = "give `model.activation_bytes`: bytes of one layer's output for one example, the mean over layers";
        return Err(file.error_at_key("model.study", message, Some(hint)));
    }
    facts.push(fact(
        "parameters",
        number(parameters),
        source(model.parameters.is_some()),
    ));
    facts.push(given("bytes a gradient", number(model.bytes_per_parameter)));
    if splits {
        let value = layers.to_string();
        facts.push(fact("layers", value, source(model.layers.is_some())));
        facts.push(fact(
            "bytes of a layer's output for an example",
            number(activation.unwrap_or(0.0)),
            source(model.activation_bytes.is_some()),
        ));
    }
    // Parameter, gradient and the two averages of Adam.
    let resident = 4.0 * parameters * model.bytes_per_parameter;
    Ok(Model {
        parameters,
        bytes_per_parameter: model.bytes_per_parameter,
        layers,
        activation_bytes: activation.unwrap_or(0.0),
        resident_bytes: model.resident_bytes.unwrap_or(resident),
    })
}

/// Seconds of an update against its examples: the median of each batch, and a line through them.
///
/// `None` of fewer than two batches, or times that are not above 0.
pub fn device_line(samples: &[DeviceSample]) -> Option<LineFit> {
    let mut batches: Vec<usize> = samples.iter().map(|s| s.batch).collect();
    batches.sort_unstable();
    batches.dedup();
    let median = |batch: &usize| {
        let own = samples.iter().filter(|s| s.batch == *batch);
        let times: Vec<f64> = own.map(|s| s.seconds).collect();
        let median = crate::math::statistics::quantile(&times, 0.5)?;
        Some((*batch as f64, median))
    };
    let points: Option<Vec<_>> = batches.iter().map(median).collect();
    fit_line(&points?, CONFIDENCE)
}

/// The device, and it at both ends of its times' intervals. Its price is not known here.
fn device(
    file: &PlanFile,
    samples: &[DeviceSample],
    facts: &mut Vec<Fact>,
) -> Result<(Device, Option<(Device, Device)>), ConfigError> {
    let config = &file.config.device;
    let (t1, t0, t1_ends, t0_ends, source) = if config.measure {
        let line = device_line(samples).filter(|line| line.slope > 0.0);
        let Some(line) = line else {
            let message = "the times measured do not grow with the batch";
            let hint = "measure larger batches, for longer: `device.measure_batches`, `device.measure_seconds`";
            return Err(file.error_at_key("device.measure", message, Some(hint)));
        };
        let source = format!(
            "measured on this machine: line through {} batches, off by {} % in the mean",
            line.n,
            significant(100.0 * line.relative_rms, 2)
        );
        (
            line.slope,
            line.intercept,
            line.slope_interval,
            line.intercept_interval,
            source,
        )
    } else {
        (
            config.seconds_per_example.unwrap_or(0.0),
            config.seconds_per_update.unwrap_or(0.0),
            as_interval(config.seconds_per_example_interval),
            as_interval(config.seconds_per_update_interval),
            "given".to_owned(),
        )
    };
    facts.push(fact(
        "seconds of an example",
        format!("{}{}", number(t1), ends_of(t1_ends)),
        &source,
    ));
    facts.push(fact(
        "seconds of an update besides",
        format!("{}{}", number(t0), ends_of(t0_ends)),
        source,
    ));
    if let Some(most) = config.largest_local {
        facts.push(given("examples at once, at most", most.to_string()));
    }
    let memory = config.memory_bytes.unwrap_or(f64::INFINITY);
    if memory.is_finite() {
        facts.push(given("bytes of memory", number(memory)));
    }
    let jitter = config.jitter.map(|jitter| {
        let (name, cv, times) = match jitter {
            JitterConfig::Lognormal { cv } => ("lognormal", cv, Times::LogNormal { mean: 1.0, cv }),
            JitterConfig::ShiftedExponential { cv } => (
                "shifted exponential",
                cv,
                Times::ShiftedExponential { mean: 1.0, cv },
            ),
        };
        let scatter = number(100.0 * cv);
        facts.push(given("scatter of times", format!("{name}, {scatter} %")));
        times
    });
    let device = Device {
        seconds_per_example: t1,
        seconds_per_update: t0,
        backward: config.backward,
        largest_local: config.largest_local,
        memory_bytes: memory,
        price: 0.0,
        jitter,
    };
    let known = t1_ends.is_some() || t0_ends.is_some();
    let ends = known.then(|| {
        let end = |of: fn(Interval) -> f64| Device {
            // Time passes: an interval that reaches 0 is cut far below the estimate.
            seconds_per_example: t1_ends.map_or(t1, of).max(1e-3 * t1),
            seconds_per_update: t0_ends.map_or(t0, of).max(0.0),
            ..device
        };
        (end(|i| i.low), end(|i| i.high))
    });
    Ok((device, ends))
}

/// A link with the numbers of its preset where none are written, and where they are from.
fn link(written: LinkConfig, model: WireModel) -> (LinkConfig, String) {
    let Some(preset) = written.preset else {
        return (written, "given".to_owned());
    };
    let known = PRESETS.iter().find(|known| known.name == preset.name());
    let (hockney, loggp, source) = known.map_or((NVLINK.0, NVLINK.1, NVLINK_SOURCE), |known| {
        (known.hockney, known.loggp, known.source)
    });
    let (latency, overhead, gap, per_byte, added) = match model {
        WireModel::AlphaBeta => (hockney.alpha, 0.0, None, hockney.beta, hockney.gamma),
        WireModel::Loggp => (
            loggp.latency,
            2.0 * loggp.overhead,
            Some(loggp.gap),
            loggp.byte_gap,
            loggp.gamma,
        ),
    };
    let all = LinkConfig {
        preset: written.preset,
        latency: written.latency.or(Some(latency)),
        bandwidth: written.bandwidth.or(Some(1.0 / per_byte)),
        overhead: written.overhead.or(Some(overhead)),
        gap: written.gap.or(gap),
        seconds_per_byte_added: written.seconds_per_byte_added.or(Some(added)),
    };
    let alone = LinkConfig {
        preset: written.preset,
        ..LinkConfig::default()
    };
    let source = if written == alone {
        format!("preset {}: {source}", preset.name())
    } else {
        format!("as given, else preset {}: {source}", preset.name())
    };
    (all, source)
}

/// NVLink 3 in both models.
const NVLINK: (Hockney<f64>, LogGp<f64>) = (
    Hockney {
        alpha: 5e-6,
        beta: 1.0 / 3e11,
        gamma: 2e-12,
    },
    LogGp {
        latency: 3e-6,
        overhead: 1e-6,
        gap: 1e-6,
        byte_gap: 1.0 / 3e11,
        gamma: 2e-12,
    },
);

const NVLINK_SOURCE: &str = "half of the 600 GB/s that NVIDIA names for both directions of an A100 \
                             (nvidia.com/en-us/data-center/nvlink); all else is illustrative";

/// Wires inside a node and between nodes, and the nodes.
fn cluster(file: &PlanFile, facts: &mut Vec<Fact>) -> Result<((Wire, Wire), Nodes), ConfigError> {
    let config = &file.config.cluster;
    let (between, source) = link(config.between, config.model);
    let (inside, inside_source) = match config.inside {
        Some(written) => link(written, config.model),
        None => (between, source.clone()),
    };
    let workers = config.workers_per_node.unwrap_or(1);
    let written = config.between != LinkConfig::default();
    if workers > 1 {
        facts.push(given("workers on a node", workers.to_string()));
        let words = link_words(&inside);
        facts.push(fact("links inside a node", words, inside_source));
        facts.push(fact("link of a node", link_words(&between), source));
    } else if written {
        facts.push(fact("link of a worker", link_words(&between), source));
    }
    let at_full_speed = config.full_speed_workers.unwrap_or(f64::INFINITY);
    if at_full_speed.is_finite() {
        let value = number(at_full_speed);
        facts.push(given("of these at full speed", value));
    }
    let outer = wire(file, "between", &between)?;
    let inner = match config.inside {
        Some(_) => wire(file, "inside", &inside)?,
        None => outer,
    };
    let nodes = Nodes {
        workers,
        at_full_speed,
    };
    Ok(((inner, outer), nodes))
}

fn link_words(link: &LinkConfig) -> String {
    let mut words = vec![format!("{} s", number(link.latency.unwrap_or(0.0)))];
    match link.bandwidth {
        Some(bandwidth) => words.push(format!("{} bytes/s", number(bandwidth))),
        None => words.push("any bandwidth".to_owned()),
    }
    if let Some(overhead) = link.overhead.filter(|&o| o > 0.0) {
        words.push(format!("overhead {} s", number(overhead)));
    }
    if let Some(added) = link.seconds_per_byte_added.filter(|&a| a > 0.0) {
        words.push(format!("{} s a byte added", number(added)));
    }
    words.join(", ")
}

fn wire(file: &PlanFile, name: &str, link: &LinkConfig) -> Result<Wire, ConfigError> {
    let latency = link.latency.unwrap_or(0.0);
    let overhead = link.overhead.unwrap_or(0.0);
    let per_byte = link.bandwidth.map_or(0.0, |bandwidth| 1.0 / bandwidth);
    let gamma = link.seconds_per_byte_added.unwrap_or(0.0);
    if file.config.cluster.model == WireModel::AlphaBeta {
        return Ok(Wire::Hockney(Hockney {
            alpha: latency + overhead,
            beta: per_byte,
            gamma,
        }));
    }
    let own = overhead / 2.0;
    let gap = link.gap.unwrap_or(own);
    if gap > latency + overhead {
        let message = format!(
            "the forms of LogGP hold for a gap up to latency + overhead, {}; found {gap}",
            number(latency + overhead)
        );
        let key = format!("cluster.{name}.gap");
        return Err(file.error_at_key(&key, &message, None));
    }
    Ok(Wire::LogGp(LogGp {
        latency,
        overhead: own,
        gap,
        byte_gap: per_byte,
        gamma,
    }))
}

/// The price of a second of a worker, and what it is counted in.
fn cost(file: &PlanFile, facts: &mut Vec<Fact>) -> (f64, String) {
    let cost = &file.config.cost;
    if let Some(watts) = cost.watts_per_worker {
        facts.push(given("watts of a worker", number(watts)));
        return (watts / 1000.0 / HOUR, "kWh".to_owned());
    }
    if let Some(price) = cost.per_worker_hour {
        let unit = cost.unit.clone().unwrap_or_else(|| "units".to_owned());
        let value = format!("{} {unit}", number(price));
        facts.push(given("price of a worker for an hour", value));
        return (price / HOUR, unit);
    }
    (1.0 / HOUR, WORKER_HOURS.to_owned())
}

fn exacts(file: &PlanFile, (inner, outer): (Wire, Wire), model: &Model) -> Vec<Exact> {
    let collectives = &file.config.collectives;
    let mut choices = collectives.algorithms.clone();
    let mut seen: Vec<AlgorithmChoice> = Vec::new();
    choices.retain(|choice| {
        let new = !seen.contains(choice);
        seen.push(*choice);
        new
    });
    let arity = collectives.tree_arity;
    let exact = |choice: AlgorithmChoice| {
        let ways = match choice {
            AlgorithmChoice::Best => Way::all(arity).to_vec(),
            AlgorithmChoice::Flat => vec![Way::Flat],
            AlgorithmChoice::Tree => vec![Way::Tree(arity)],
            AlgorithmChoice::Binomial => vec![Way::Binomial],
            AlgorithmChoice::Chain => vec![Way::Chain],
            AlgorithmChoice::Ring => vec![Way::Ring],
            AlgorithmChoice::Direct => vec![Way::Direct],
            AlgorithmChoice::RecursiveDoubling => vec![Way::RecursiveDoubling],
            AlgorithmChoice::Rabenseifner => vec![Way::Rabenseifner],
        };
        let name = match (choice, ways.as_slice()) {
            (AlgorithmChoice::Best, _) | (_, []) => "best".to_owned(),
            (_, [way, ..]) => way.name(),
        };
        Exact {
            name,
            ways,
            inner,
            outer,
            element_bytes: model.bytes_per_parameter.round().max(1.0) as usize,
        }
    };
    choices.into_iter().map(exact).collect()
}

fn strategies(file: &PlanFile) -> Vec<Strategy> {
    let search = &file.config.plan;
    let mut strategies: Vec<Strategy> = Vec::new();
    for choice in &search.strategies {
        let strategy = match choice {
            StrategyChoice::Data => Strategy::Data,
            StrategyChoice::Features => Strategy::Features,
            StrategyChoice::Pipeline => Strategy::Pipeline,
            StrategyChoice::FeatureGroups => Strategy::FeatureGroups(search.group),
            StrategyChoice::PipelineGroups => Strategy::PipelineGroups(search.group),
        };
        if !strategies.contains(&strategy) {
            strategies.push(strategy);
        }
    }
    strategies
}

/// The most workers of which so large a share is used, against the fewest that can do it.
fn worth_it(plan: &Plan, efficiency: f64) -> Point {
    let base = plan.best.first().unwrap_or(&plan.fastest);
    let used = |point: &&Point| {
        let (statistical, machine) = efficiency_parts(base, point);
        // Rounding may leave the fewest themselves just below 1.
        statistical * machine >= efficiency * (1.0 - 1e-12)
    };
    // Beyond the fastest, more workers only take longer.
    let until = plan
        .best
        .iter()
        .filter(|p| p.workers <= plan.fastest.workers);
    *until.rev().find(used).unwrap_or(base)
}

/// Measurements of the file, and of its table.
fn measured(file: &PlanFile) -> Result<Vec<Measured>, ConfigError> {
    let mut all = Vec::new();
    if let Some(check) = &file.config.check {
        all.extend(check.measured.iter().filter_map(|m| {
            Some(Measured {
                workers: m.workers,
                batch: m.batch.or(check.batch)?,
                seconds: m.seconds,
                interval: as_interval(m.interval),
            })
        }));
        if let Some(csv) = &check.csv {
            let read = read_measured(Path::new(csv), check.batch);
            all.extend(
                read.map_err(|error| file.error_at_key("check.csv", &error.to_string(), None))?,
            );
        }
    }
    all.sort_by_key(|m| (m.batch, m.workers));
    Ok(all)
}

fn read_measured(path: &Path, batch: Option<u64>) -> Result<Vec<Measured>, StoreError> {
    let table = Table::read(path)?;
    let optional = |column: &str| {
        let none = || Ok(vec![None; table.len()]);
        if table.has(column) {
            table.numbers(column)
        } else {
            none()
        }
    };
    let workers = table.integers("workers")?;
    let seconds = table.numbers("seconds")?;
    let batches = if table.has("batch") {
        table.integers("batch")?
    } else {
        vec![None; table.len()]
    };
    let (low, high) = (optional("low")?, optional("high")?);
    let mut all = Vec::with_capacity(table.len());
    for row in 0..table.len() {
        let wrong = |column: &str, expected: &'static str, found: String| StoreError::Cell {
            path: path.to_owned(),
            line: table.lines()[row],
            column: column.to_owned(),
            expected,
            found,
        };
        let shown = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        let whole = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
        let own = workers[row].filter(|&p| p > 0);
        let own = own.ok_or_else(|| wrong("workers", "an integer from 1", whole(workers[row])))?;
        let time = seconds[row].filter(|s| *s > 0.0 && s.is_finite());
        let time =
            time.ok_or_else(|| wrong("seconds", "a finite number above 0", shown(seconds[row])))?;
        let examples = batches[row].or(batch);
        let examples = examples.filter(|&b| b >= own).ok_or_else(|| {
            let expected = "a batch of at least one example a worker, here or in `check.batch`";
            wrong("batch", expected, whole(examples))
        })?;
        let interval = match (low[row], high[row]) {
            (None, None) => None,
            (Some(low), Some(high)) if low >= 0.0 && low <= time && time <= high => {
                Some(Interval { low, high })
            }
            (low, high) => {
                let end =
                    |end: Option<f64>| end.map_or("nothing".to_owned(), |end| end.to_string());
                return Err(StoreError::Malformed {
                    path: path.to_owned(),
                    line: table.lines()[row],
                    expected: format!("`low` to `high` around `seconds`, {time}"),
                    found: format!("{} to {}", end(low), end(high)),
                });
            }
        };
        all.push(Measured {
            workers: own,
            batch: examples,
            seconds: time,
            interval,
        });
    }
    Ok(all)
}

/// Each beside its prediction: data parallelism on the fastest network.
fn checked(task: &Task, networks: &[Network], measured: Vec<Measured>) -> Vec<Checked> {
    let predict = |m: &Measured| {
        let at = |network: &Network| {
            let found = plan::point(task, network, Strategy::Data, m.workers, Some(m.batch));
            found.ok()?.map(|point| point.step)
        };
        let all = networks.iter().filter_map(at);
        all.min_by(|a, b| a.total().total_cmp(&b.total()))
    };
    let with = |measured| Checked {
        predicted: predict(&measured),
        measured,
    };
    measured.into_iter().map(with).collect()
}

/// Powers of 2 (of 4 where they are many), and the numbers of workers that are answers.
fn rows(answer: &PlanAnswer) -> Vec<Row> {
    let plan = &answer.plan;
    let doublings = answer.up_to.ilog2();
    let stride = if doublings > MOST_DOUBLINGS { 2 } else { 1 };
    let powers: Vec<u64> = (0..=doublings).step_by(stride).map(|k| 1 << k).collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |point: &Point, mark: Option<&'static str>| {
        let place = rows.binary_search_by_key(&point.workers, |row| row.point.workers);
        let place = place.unwrap_or_else(|place| {
            let row = Row {
                point: *point,
                marks: Vec::new(),
            };
            rows.insert(place, row);
            place
        });
        rows[place].marks.extend(mark);
    };
    for point in &plan.best {
        if powers.contains(&point.workers) {
            add(point, None);
        }
    }
    for point in plan.best.first().into_iter().chain(plan.best.last()) {
        add(point, None);
    }
    add(&answer.worth_it, Some("worth it"));
    if let Some(point) = &plan.communication_half {
        add(point, Some("communication"));
    }
    if let Some(point) = &plan.statistics_end {
        add(point, Some("statistics"));
    }
    add(&plan.cheapest, Some("cheapest"));
    add(&plan.fastest, Some("fastest"));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_plan;

    const PLAN: &str = r"
[steps]
s_min = 500
b_crit = 200
s_min_interval = [450, 550]
e_min_interval = [90000, 120000]
[model]
parameters = 1e6
[device]
seconds_per_example = 1e-3
seconds_per_update = 2e-3
[cluster.between]
latency = 3e-5
bandwidth = 1e9
seconds_per_byte_added = 1e-10
[plan]
up_to = 256
";

    fn ask(set: &[&str], inputs: &PlanInputs) -> Result<PlanAnswer, ConfigError> {
        let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
        answer(&parse_plan(PLAN, "p.toml", &set)?, inputs)
    }

    fn asked(set: &[&str]) -> PlanAnswer {
        ask(set, &PlanInputs::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refused(set: &[&str], inputs: &PlanInputs) -> String {
        match ask(set, inputs) {
            Ok(_) => panic!("no error with {set:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn efficiency_is_the_time_of_one_over_that_of_all_workers() {
        let answer = asked(&[]);
        let one = answer.fewest();
        assert_eq!(one.workers, 1);
        for point in &answer.plan.best {
            let expected = one.time / (point.workers as f64 * point.time);
            assert!((answer.efficiency_of(point) / expected - 1.0).abs() < 1e-12);
            let (statistical, machine) = answer.efficiency_parts(point);
            assert!(statistical <= 1.0 + 1e-12 && machine > 0.0);
        }
        assert!(answer.efficiency_of(&answer.worth_it) >= 0.5);
        let later = |p: &&Point| p.workers > answer.worth_it.workers;
        for point in answer.plan.best.iter().filter(later) {
            let beyond = point.workers > answer.plan.fastest.workers;
            assert!(beyond || answer.efficiency_of(point) < 0.5);
        }
        let all = asked(&["plan.efficiency=0"]);
        assert_eq!(all.worth_it.workers, all.plan.fastest.workers);
        assert_eq!(asked(&["plan.efficiency=1"]).worth_it.workers, 1);
    }

    #[test]
    fn rows_hold_every_answer_in_order() {
        let answer = asked(&[]);
        assert!(
            answer
                .rows
                .is_sorted_by(|a, b| a.point.workers < b.point.workers)
        );
        let marked = |mark| {
            let mut rows = answer
                .rows
                .iter()
                .filter(move |row| row.marks.contains(&mark));
            rows.next().map(|row| row.point.workers)
        };
        assert_eq!(marked("fastest"), Some(answer.plan.fastest.workers));
        assert_eq!(marked("worth it"), Some(answer.worth_it.workers));
        let half = answer.plan.communication_half.map(|p| p.workers);
        assert_eq!(marked("communication"), half);
        for power in [1, 2, 4, 8, 128, 256] {
            assert!(answer.rows.iter().any(|row| row.point.workers == power));
        }
        let limit = 2.0 * answer.plan.fastest.time;
        let patient = answer.plan.cheapest_within(limit).unwrap();
        for row in &answer.rows {
            assert!(answer.plan.best.contains(&row.point));
            assert!(row.point.time > limit || row.point.cost >= patient.cost);
        }
    }

    #[test]
    fn a_measured_device_is_the_line_through_medians_and_widens_the_interval() {
        let samples = |noise: f64| -> Vec<DeviceSample> {
            let batches = [1_usize, 16, 64, 256];
            let of = |(i, batch): (usize, usize)| {
                let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
                let seconds = (2e-3 + 1e-3 * batch as f64) * (1.0 + sign * noise);
                // The odd one out does not move the median.
                [seconds, seconds, 100.0 * seconds].map(|seconds| DeviceSample { batch, seconds })
            };
            batches.into_iter().enumerate().flat_map(of).collect()
        };
        let with = |noise| PlanInputs {
            device: samples(noise),
            model: Some(ModelNumbers {
                parameters: 7,
                layers: 3,
                activation_bytes: None,
            }),
        };
        let set = ["device.measure=true", "model.study=s.toml"];
        let exact = ask(&set, &with(0.0)).unwrap();
        let given = asked(&[]);
        // Given numbers of the model win over what is counted.
        assert_eq!(exact.task.model.parameters, 1e6);
        assert!((exact.task.device.seconds_per_example / 1e-3 - 1.0).abs() < 1e-9);
        let point = given.plan.fastest;
        let law = given.interval(&point).unwrap();
        assert!(law.contains(point.time));
        let noisy = ask(&set, &with(0.02)).unwrap();
        let both = noisy.interval(&noisy.plan.fastest).unwrap();
        assert!(both.contains(noisy.plan.fastest.time));
        assert!(both.high / both.low > law.high / law.low);
        let varied = &noisy.spread.as_ref().unwrap().varied;
        assert_eq!(
            varied.as_slice(),
            ["the critical batch size", "the times of the device"]
        );
        let falling = PlanInputs {
            device: [(1, 3.0), (10, 2.0), (100, 1.0)]
                .map(|(batch, seconds)| DeviceSample { batch, seconds })
                .to_vec(),
            ..with(0.0)
        };
        let error = refused(&set, &falling);
        assert!(
            error.contains("`device.measure`: the times measured do not grow"),
            "{error}"
        );
        let error = refused(
            &["model.study=s.toml", "plan.strategies=features"],
            &with(0.0),
        );
        assert!(error.contains("could not be counted"), "{error}");
    }

    #[test]
    fn the_spread_holds_what_other_laws_would_answer() {
        let answer = asked(&[]);
        let spread = answer.spread.unwrap();
        for b_crit in ["163.7", "266.6"] {
            let other = asked(&[
                &format!("steps.b_crit={b_crit}"),
                "steps.s_min_interval=[0, 1e9]",
                "steps.e_min_interval=[0, 1e9]",
            ]);
            let fastest = other.plan.fastest.workers;
            assert!(spread.fastest.0 <= fastest && fastest <= spread.fastest.1);
        }
        assert!(spread.worth_it.0 < spread.worth_it.1);
        let set = ["steps.csv=tests/none.csv"];
        assert!(refused(&set, &PlanInputs::default()).contains("cannot read tests/none.csv"));
    }

    #[test]
    fn presets_say_where_they_are_from_and_written_numbers_win() {
        let answer = asked(&["cluster.between={preset = \"ethernet-10g\", latency = 1e-3}"]);
        let fact = answer.facts.iter().find(|f| f.what == "link of a worker");
        let fact = fact.unwrap();
        assert!(
            fact.value.starts_with("0.001 s, 1.25e9 bytes/s"),
            "{}",
            fact.value
        );
        assert!(
            fact.source
                .starts_with("as given, else preset ethernet-10g: beta: ")
        );
        let loggp = asked(&[
            "cluster.between={preset = \"ethernet-10g\"}",
            "cluster.model=loggp",
        ]);
        let hockney = asked(&["cluster.between={preset = \"ethernet-10g\"}"]);
        assert!(loggp.plan.fastest.time < hockney.plan.fastest.time);
        let error = refused(
            &["cluster.model=loggp", "cluster.between.gap=1"],
            &PlanInputs::default(),
        );
        assert!(
            error.starts_with("p.toml: --set cluster.between.gap=1: "),
            "{error}"
        );
        assert!(asked(&["cluster.between={}"]).notes[0].contains("communication is free"));
    }

    #[test]
    fn cost_is_in_what_was_asked_for() {
        let hours = asked(&[]);
        let seconds = hours.fewest();
        assert_eq!(hours.unit, "worker-seconds");
        assert!((seconds.cost / seconds.time - 1.0).abs() < 1e-12);
        let money = asked(&["cost.per_worker_hour=7.2", "cost.unit=EUR"]);
        assert_eq!(money.unit, "EUR");
        assert!((money.fewest().cost / money.fewest().time - 2e-3).abs() < 1e-12);
        let energy = asked(&["cost.watts_per_worker=360"]);
        assert_eq!(energy.unit, "kWh");
        assert!((energy.fewest().cost / energy.fewest().time - 1e-4).abs() < 1e-12);
        let long = asked(&["device.seconds_per_example=1"]);
        assert_eq!(long.unit, "worker-hours");
    }

    #[test]
    fn measurements_are_held_against_data_parallelism() {
        let answer = ask(
            &[
                "check.measured=[{workers = 1, batch = 64, seconds = 0.066}, {workers = 2, batch = 64, seconds = 0.05}]",
            ],
            &PlanInputs::default(),
        );
        let checked = answer.unwrap().checked;
        assert!(checked[0].error().unwrap().abs() < 1e-12);
        let predicted = checked[1].predicted.unwrap();
        assert!((predicted.compute - 0.034).abs() < 1e-12 && predicted.exposed > 0.0);
        let error = checked[1].error().unwrap();
        assert!((error - (predicted.total() / 0.05 - 1.0)).abs() < 1e-12);
    }
}
