use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::{StudyError, StudyRecord, TrialRunner};
use crate::config::{ConfigError, StudyConfig, TrialSpec, value_text};

/// A study that was found possible: its trials, and how long each is.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) study: StudyConfig,
    updates: Vec<u64>,
}

impl Plan {
    /// Asks the runner about every trial.
    ///
    /// # Errors
    /// [`StudyError::Config`] or [`StudyError::Trial`] for the first trial that cannot run.
    pub fn new(study: StudyConfig, runner: &dyn TrialRunner) -> Result<Self, StudyError> {
        Self::growing(study, runner, &mut BTreeMap::new())
    }

    /// As [`Plan::new`], for one of several plans of which each has the trials of the one before:
    /// `known` holds what the runner said of those, by id.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn growing(
        study: StudyConfig,
        runner: &dyn TrialRunner,
        known: &mut BTreeMap<String, u64>,
    ) -> Result<Self, StudyError> {
        let mut ask = |spec: &TrialSpec| {
            if let Some(&updates) = known.get(&spec.id) {
                return Ok(updates);
            }
            let updates = runner.updates(&study, spec).map_err(|error| {
                match error.downcast::<ConfigError>() {
                    Ok(error) => StudyError::Config(*error),
                    Err(error) => StudyError::Trial {
                        label: label(spec),
                        error,
                    },
                }
            })?;
            known.insert(spec.id.clone(), updates);
            Ok(updates)
        };
        let updates = study
            .trials
            .iter()
            .map(&mut ask)
            .collect::<Result<_, StudyError>>()?;
        Ok(Self { study, updates })
    }

    /// The study.
    pub fn study(&self) -> &StudyConfig {
        &self.study
    }

    /// Trials in plan order.
    pub fn trials(&self) -> &[TrialSpec] {
        &self.study.trials
    }

    /// Updates in the whole budget of each trial, in plan order.
    pub fn updates(&self) -> &[u64] {
        &self.updates
    }

    /// What `study.json` will hold.
    pub fn record(&self) -> StudyRecord {
        StudyRecord::new(&self.study)
    }

    /// What a trial costs against the others of its plan: updates x (batch + 16). The time of an
    /// update that does not depend on the batch counts as 16 examples: a guess that only decides
    /// which trial starts first and how a measured time carries over to another batch.
    pub fn cost(&self, index: usize) -> f64 {
        let batch = self.study.trials[index].config.global_batch();
        self.updates[index] as f64 * update_cost(batch)
    }

    /// The indices that `selection` takes.
    ///
    /// # Errors
    /// [`StudyError::Index`] if it names a trial that is not there.
    pub fn select(&self, selection: Selection) -> Result<Vec<usize>, StudyError> {
        let trials = self.study.trials.len();
        match selection {
            Selection::All => Ok((0..trials).collect()),
            Selection::Shard { number, of } => Ok((number - 1..trials).step_by(of).collect()),
            Selection::Index(index) if index < trials => Ok(vec![index]),
            Selection::Index(index) => Err(StudyError::Index { index, trials }),
        }
    }
}

/// Cost of one update, in examples.
pub(super) fn update_cost(global_batch: usize) -> f64 {
    global_batch as f64 + 16.0
}

/// Which trials of a plan a process takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    /// All of them.
    #[default]
    All,
    /// Every `of`-th, from the `number`-th on, where 1 <= number <= of: index mod of = number - 1.
    Shard {
        /// Number of the shard, from 1.
        number: usize,
        /// Number of shards.
        of: usize,
    },
    /// One, by its index from 0.
    Index(usize),
}

/// A shard is written `i/n`.
impl FromStr for Selection {
    type Err = StudyError;

    fn from_str(text: &str) -> Result<Self, StudyError> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((number, of)) if 1 <= number && number <= of => Ok(Self::Shard { number, of }),
            _ => Err(StudyError::Shard {
                found: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(out, "all trials"),
            Self::Shard { number, of } => write!(out, "shard {number}/{of}"),
            Self::Index(index) => write!(out, "trial {index}"),
        }
    }
}

/// A trial in few words: `global_batch=2048 scaling=linear seed=1`. Keys are shortened to their
/// last part where that is no other key's.
pub fn label(spec: &TrialSpec) -> String {
    label_of(
        spec.point.iter().map(|(key, value)| (key.as_str(), value)),
        spec.seed,
    )
}

pub(super) fn label_of<'a>(
    point: impl Iterator<Item = (&'a str, &'a Value)> + Clone,
    seed: u64,
) -> String {
    let keys: Vec<&str> = point.clone().map(|(key, _)| key).collect();
    let mut words: Vec<String> = point
        .filter(|(key, _)| *key != "seed")
        .map(|(key, value)| format!("{}={}", shorten(key, &keys), value_text(value)))
        .collect();
    words.push(format!("seed={seed}"));
    words.join(" ")
}

fn shorten<'a>(key: &'a str, keys: &[&str]) -> &'a str {
    let last = |key: &'a str| key.rsplit('.').next().unwrap_or(key);
    let short = last(key);
    let same = |other: &&&str| other.rsplit('.').next() == Some(short);
    if keys.iter().filter(same).count() > 1 {
        key
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_read_and_a_wrong_one_refused() {
        let shard = |text: &str| text.parse::<Selection>();
        assert_eq!(
            shard("2/4").expect("a shard"),
            Selection::Shard { number: 2, of: 4 }
        );
        for text in ["0/4", "5/4", "1/0", "1", "a/b", "1/2/3", "-1/2", ""] {
            let error = shard(text).expect_err(text).to_string();
            assert!(error.ends_with(&format!("found {text:?}")), "{error}");
        }
    }

    #[test]
    fn a_key_is_shortened_only_where_it_stays_unique() {
        let keys = [
            "train.global_batch",
            "optimizer.sgd.weight_decay",
            "optimizer.adamw.weight_decay",
        ];
        assert_eq!(shorten(keys[0], &keys), "global_batch");
        assert_eq!(shorten(keys[1], &keys), keys[1]);
    }
}
