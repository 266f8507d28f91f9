//! Results folders of studies that never ran: tables with known contents, made by formula.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use batchlab::rng::Stream;
use serde_json::{Map, Value, json};

/// A made-up study.
pub(crate) struct Study {
    /// Its name, and the name of its folder.
    pub(crate) name: &'static str,
    /// Global batches; swept unless there is one.
    pub(crate) batches: Vec<u64>,
    /// Swept keys that make up the rules, and the values of each rule.
    pub(crate) rule_keys: Vec<&'static str>,
    /// Values of the keys for each rule.
    pub(crate) rules: Vec<Vec<Value>>,
    /// Number of seeds.
    pub(crate) seeds: u64,
    /// What becomes of a trial, from the index of its rule, its batch and its seed.
    pub(crate) outcome: fn(usize, u64, u64) -> Outcome,
}

/// What becomes of a trial.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// As in `summary.csv`.
    pub(crate) status: &'static str,
    /// Why.
    pub(crate) message: &'static str,
    /// Final training accuracy and loss; no accuracy for a model without classes.
    pub(crate) train: Option<(Option<f64>, f64)>,
    /// Final test accuracy and loss.
    pub(crate) test: Option<(Option<f64>, f64)>,
    /// Updates made.
    pub(crate) steps: u64,
    /// Whether there is a target, and when it was reached.
    pub(crate) target: Target,
}

/// Whether there is a target, and when it was reached.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// There is none.
    None,
    /// The budget ended first.
    Missed,
    /// Reached after so many updates.
    Reached(u64),
}

const TRAIN_EXAMPLES: u64 = 60_000;
const EPOCHS: u64 = 10;

/// A plausible trial: accuracy falls with the logarithm of the batch beyond 512, less so the
/// better the rule scales the rate.
pub(crate) fn plausible(rule: usize, batch: u64, seed: u64) -> Outcome {
    let mut noise = Stream::new(seed, "made-up", rule as u64 * 1_000_000 + batch);
    let beyond = (batch as f64 / 512.0).log2().max(0.0);
    let strength = [0.9, 0.35, 0.12][rule % 3] * (1.0 + rule as f64 * 0.03);
    let error = 0.018 + 0.012 * strength * beyond.powf(1.7) + 0.0008 * noise.normal();
    let train_error = 0.002 + 0.8 * (error - 0.018).max(0.0) + 0.0003 * noise.normal().abs();
    Outcome {
        status: "completed",
        message: "",
        train: Some((Some(1.0 - train_error), 0.006 + 3.3 * train_error)),
        test: Some((Some(1.0 - error), 0.02 + 3.0 * error)),
        steps: (TRAIN_EXAMPLES * EPOCHS).div_ceil(batch),
        target: Target::None,
    }
}

/// A trial that diverged after a few updates.
pub(crate) fn diverged() -> Outcome {
    Outcome {
        status: "diverged",
        message: "loss of update 38 is NaN",
        train: None,
        test: None,
        steps: 38,
        target: Target::None,
    }
}

/// A trial that an error ended.
pub(crate) fn failed() -> Outcome {
    Outcome {
        status: "failed",
        message: "train.global_batch: expected at most 60000, found 65536\nhint: lower it, or raise data.subset",
        steps: 0,
        ..diverged()
    }
}

/// Scaling rules none, sqrt and linear.
pub(crate) fn scaling_rules() -> Vec<Vec<Value>> {
    ["none", "sqrt", "linear"]
        .iter()
        .map(|r| vec![json!(r)])
        .collect()
}

impl Study {
    /// Writes the folder into `parent` and returns its path.
    pub(crate) fn write(&self, parent: &Path) -> PathBuf {
        let dir = parent.join(self.name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).expect("an old folder can be removed");
        }
        let mut trials = Vec::new();
        let mut summary = String::from("trial,status");
        let mut axes = Vec::new();
        if self.batches.len() > 1 {
            summary.push_str(",train.global_batch");
            let values: Vec<Value> = self.batches.iter().map(|b| json!([b])).collect();
            axes.push(json!({ "keys": ["train.global_batch"], "values": values }));
        }
        for key in &self.rule_keys {
            let _ = write!(summary, ",{key}");
        }
        if !self.rule_keys.is_empty() {
            axes.push(json!({ "keys": self.rule_keys, "values": self.rules }));
        }
        summary.push_str(
            ",seed,workers,local_batch,global_batch,scaling,warmup,lr,lr_explained,steps,examples,\
             epochs,train_loss,train_accuracy,validation_loss,validation_accuracy,test_loss,\
             test_accuracy,generalization_gap,loss_gap,target_reached,steps_to_target,\
             examples_to_target,message\n",
        );
        for &batch in &self.batches {
            for (rule, values) in self.rules.iter().enumerate() {
                for seed in 0..self.seeds {
                    let id = format!("{batch:06x}{rule:03x}{seed:03x}");
                    let mut point = Map::new();
                    if self.batches.len() > 1 {
                        point.insert("train.global_batch".into(), json!(batch));
                    }
                    for (key, value) in self.rule_keys.iter().zip(values) {
                        point.insert((*key).into(), value.clone());
                    }
                    let outcome = (self.outcome)(rule, batch, seed);
                    if outcome.status != "pending" {
                        row(&mut summary, &id, &point, batch, seed, &outcome);
                        trial(&dir, &id, batch, &outcome);
                    }
                    trials.push(json!({ "id": id, "point": point, "seed": seed }));
                }
            }
        }
        let study = json!({
            "batchlab": "0.1.0",
            "name": self.name,
            "description": "How far can the batch grow on MNIST before test accuracy falls? <A & B>",
            "overrides": [],
            "seeds": (0..self.seeds).collect::<Vec<_>>(),
            "axes": axes,
            "trials": trials,
        });
        put(
            &dir.join("study.json"),
            &serde_json::to_string_pretty(&study).expect("JSON"),
        );
        put(&dir.join("summary.csv"), &summary);
        put(
            &dir.join("config.toml"),
            &format!(
                "# as given\nname = \"{}\"\nseeds = {}\n",
                self.name, self.seeds
            ),
        );
        dir
    }
}

fn row(out: &mut String, id: &str, point: &Map<String, Value>, batch: u64, seed: u64, o: &Outcome) {
    let _ = write!(out, "{id},{}", o.status);
    for value in point.values() {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(out, ",\"{}\"", text.replace('"', "\"\""));
    }
    let examples = o.steps * batch;
    let _ = write!(
        out,
        ",{seed},4,{},{batch},linear,none,{},\"{} = 0.1 x {batch}/256 (linear)\",{},{examples},{}",
        batch / 4,
        0.1 * batch as f64 / 256.0,
        0.1 * batch as f64 / 256.0,
        o.steps,
        examples as f64 / TRAIN_EXAMPLES as f64,
    );
    let text = |v: Option<f64>| v.map_or_else(String::new, |v| v.to_string());
    let loss = |s: Option<(Option<f64>, f64)>| text(s.map(|s| s.1));
    let accuracy = |s: Option<(Option<f64>, f64)>| text(s.and_then(|s| s.0));
    let _ = write!(out, ",{},{},,", loss(o.train), accuracy(o.train));
    let _ = write!(out, ",{},{},,", loss(o.test), accuracy(o.test));
    let (reached, steps) = match o.target {
        Target::None => ("", None),
        Target::Missed => ("false", None),
        Target::Reached(steps) => ("true", Some(steps)),
    };
    let steps_text = steps.map_or_else(String::new, |s| s.to_string());
    let examples_text = steps.map_or_else(String::new, |s| (s * batch).to_string());
    let _ = writeln!(
        out,
        ",{reached},{steps_text},{examples_text},\"{}\"",
        o.message.replace('"', "\"\"")
    );
}

fn trial(dir: &Path, id: &str, batch: u64, o: &Outcome) {
    let folder = dir.join("trials").join(id);
    let mut evaluations = String::from("step,epoch,examples,split,loss,accuracy,n\n");
    for epoch in 0..=EPOCHS {
        let step = o.steps * epoch / EPOCHS;
        for (split, end, n) in [("train", o.train, TRAIN_EXAMPLES), ("test", o.test, 10_000)] {
            let Some((accuracy, loss)) = end else {
                continue;
            };
            let left = (-0.9 * epoch as f64 * (64.0 / batch as f64).powf(0.15)).exp();
            let accuracy = accuracy.map(|a| a + (0.1 - a) * left);
            let _ = writeln!(
                evaluations,
                "{step},{epoch},{},{split},{},{},{n}",
                step * batch,
                loss + (2.3 - loss) * left,
                accuracy.map_or_else(String::new, |a| a.to_string()),
            );
        }
    }
    put(&folder.join("evaluations.csv"), &evaluations);
    put(
        &folder.join("config.toml"),
        "seed = 0\n[data]\nsplit_seed = 0\n[data.source.mnist]\n[model.mlp]\nwidths = [256, 256]\n\
         activation = \"relu\"\n[train]\nepochs = 10\nworkers = 4\n[learning_rate]\nbase_lr = 0.1\n\
         base_batch = 256\n[optimizer.momentum]\nmomentum = 0.9\nweight_decay = 0\n",
    );
}

/// Writes a file and the folders it needs.
pub(crate) fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a writable folder");
}

/// Leaves only those trials in the plan whose swept values pass.
#[allow(dead_code, reason = "not every test takes trials away")]
pub(crate) fn retain_trials(dir: &Path, keep: impl Fn(&Value) -> bool) {
    let path = dir.join("study.json");
    let text = std::fs::read_to_string(&path).expect("a plan");
    let mut study: Value = serde_json::from_str(&text).expect("JSON");
    let trials = study["trials"].as_array_mut().expect("trials");
    trials.retain(|trial| keep(&trial["point"]));
    put(&path, &study.to_string());
}
