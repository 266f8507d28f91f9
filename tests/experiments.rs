//! The committed experiments: they are whole, their configs still mean the trials in their tables,
//! batchlab's analysis of those tables equals the independent one of `experiments/expected.py`, and
//! their pages show the tables that `analyze.py` printed.

use std::path::{Path, PathBuf};

use batchlab::analysis::critical_batch::from_csv;
use batchlab::analysis::{GapAnalysis, Measure, generalization_gap};
use batchlab::config::{self, StudyConfig, TrialSpec, value_text};
use batchlab::math::statistics::Estimate;
use batchlab::study::{
    BoxError, StudyFolder, TrialControl, TrialError, TrialRunner, critical_trials,
};
use batchlab::train::TrialOutcome;
use serde_json::Value;

/// Those that run a study.
fn experiments() -> Vec<PathBuf> {
    let mut all = folders();
    all.retain(|folder| folder.join("config.toml").exists());
    assert!(!all.is_empty());
    all
}

fn folders() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

fn assert_estimate(what: &str, found: Option<&Estimate>, expected: &Value) {
    let Some(found) = found else {
        assert!(expected.is_null(), "{what}: nothing against {expected}");
        return;
    };
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-3);
    let mean = expected["mean"].as_f64().unwrap();
    assert!(
        close(found.mean, mean),
        "{what}: mean {} against {mean}",
        found.mean
    );
    assert_eq!(found.n as u64, expected["n"].as_u64().unwrap(), "{what}");
    match (found.half_width, expected["half_width"].as_f64()) {
        (Some(a), Some(b)) => assert!(close(a, b), "{what}: half width {a} against {b}"),
        (a, b) => assert_eq!(a, b, "{what}"),
    }
}

/// A runner that knows how many training examples there are, and runs nothing.
struct Examples(usize);

impl TrialRunner for Examples {
    fn updates(&self, _: &StudyConfig, _: &TrialSpec) -> Result<u64, BoxError> {
        Ok(1)
    }

    fn run(
        &self,
        _: &TrialSpec,
        _: &Path,
        _: &TrialControl<'_>,
    ) -> Result<TrialOutcome, TrialError> {
        Err(TrialError::Interrupted)
    }

    fn train_examples(&self, _: &TrialSpec) -> Result<usize, BoxError> {
        Ok(self.0)
    }
}

/// The fit of batchlab to the committed steps against that of scipy; no fit of scipy's where a target
/// was not reached.
fn critical_batch_sizes_equal(folder: &Path, cases: &serde_json::Map<String, Value>) {
    let read = from_csv(&folder.join("results/steps_to_target.csv")).unwrap();
    assert_eq!(read.critical_batch.cases.len(), cases.len());
    for case in &read.critical_batch.cases {
        let expected = &cases[&case.label];
        if expected.is_null() {
            continue;
        }
        let found = case.fit.as_ref().unwrap().fit;
        for (found, key) in [(found.b_crit, "b_crit"), (found.s_min, "s_min")] {
            let expected = expected[key].as_f64().unwrap();
            assert!(
                (found / expected - 1.0).abs() < 1e-4,
                "{}, {}: {key} {found} against {expected}",
                folder.display(),
                case.label
            );
        }
    }
}

/// A page has its sections, and shows figures that are there.
fn page_of(folder: &Path) -> String {
    let what = folder.display();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let number = name.split('-').next().unwrap();
    assert!(page.starts_with(&format!("# {number}: ")), "{what}");
    for heading in ["## Claim", "## What was run", "## Result", "## Verdict"] {
        assert!(page.contains(heading), "{what}: no \"{heading}\"");
    }
    let shown = page
        .split("](figures/")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|figure| !figure.is_empty());
    let mut figures = 0;
    for figure in shown {
        assert!(
            folder.join("figures").join(figure).is_file(),
            "{what}: no {figure}"
        );
        figures += 1;
    }
    assert!(figures > 0, "{what}: the page shows no figure");
    page
}

/// An experiment without a study plans: its files load, and the page says how to run each.
#[test]
fn an_experiment_of_plans_is_whole() {
    let mut plans = 0;
    for folder in folders() {
        if folder.join("config.toml").exists() {
            continue;
        }
        let name = folder.file_name().unwrap().to_str().unwrap();
        let page = page_of(&folder);
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                config::load_plan(&path, &[]).unwrap();
                let file = path.file_name().unwrap().to_str().unwrap();
                let command = format!("batchlab plan experiments/{name}/{file}");
                assert!(page.contains(&command), "{name}: no \"{command}\"");
                plans += 1;
            }
        }
    }
    assert!(plans > 1);
}

#[test]
fn an_experiment_is_whole() {
    for folder in experiments() {
        let what = folder.display();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let study = config::load(&folder.join("config.toml"), &[]).unwrap();
        assert_eq!(study.name, name);
        assert!(study.description.is_some(), "{what}: no description");
        assert!(study.seeds.len() >= 3, "{what}: {:?}", study.seeds);
        let page = page_of(&folder);
        let command = match study.critical_batch {
            Some(_) => "critical-batch",
            None => "run",
        };
        let command = format!("batchlab {command} experiments/{name}/config.toml");
        assert!(page.contains(&command), "{what}: no \"{command}\"");
    }
}

/// Where an experiment's `analyze.py` prints tables, `results/tables.md` is what it printed; the page
/// shows them under "Result", up to "Published" where published numbers follow.
#[test]
fn the_tables_on_a_page_are_those_that_were_computed() {
    for folder in experiments() {
        let Ok(tables) = std::fs::read_to_string(folder.join("results/tables.md")) else {
            continue;
        };
        let computed: Vec<&str> = tables.lines().collect();
        let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let result = page.split("\n## Result").nth(1).unwrap();
        let result = result.split("\n## ").next().unwrap();
        let result = result.split("\n### Published").next().unwrap();
        let rows: Vec<&str> = result.lines().filter(|l| l.starts_with('|')).collect();
        assert!(!rows.is_empty(), "{}: no table", folder.display());
        for row in rows {
            assert!(
                computed.contains(&row),
                "{}: not in results/tables.md: {row}",
                folder.display()
            );
        }
    }
}

#[test]
fn the_config_of_an_experiment_still_means_the_trials_in_its_table() {
    for folder in experiments() {
        let study = config::load(&folder.join("config.toml"), &[]).unwrap();
        let table = std::fs::read_to_string(folder.join("results/summary.csv")).unwrap();
        if study.critical_batch.is_some() {
            // Which trials follow depends on results; the first ones do not.
            let nothing = tempfile::tempdir().unwrap();
            let place = StudyFolder::at(nothing.path());
            let (first, _) = critical_trials(&study, &place, &Examples(57_600)).unwrap();
            assert!(!first.is_empty());
            for trial in first {
                assert!(
                    table.contains(&trial.id),
                    "{}: {}",
                    folder.display(),
                    trial.id
                );
            }
            continue;
        }
        let found: Vec<&str> = table
            .lines()
            .skip(1)
            .filter_map(|line| line.split(',').next())
            .collect();
        let expected: Vec<&str> = study.trials.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(found, expected, "{}", folder.display());
    }
}

#[test]
fn the_analysis_of_an_experiment_equals_the_independent_one() {
    for folder in experiments() {
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        if let Some(cases) = expected["cases"].as_object() {
            critical_batch_sizes_equal(&folder, cases);
            continue;
        }
        let analysis: GapAnalysis = generalization_gap(&folder.join("results")).unwrap();
        let points = expected["points"].as_array().unwrap();
        assert_eq!(points.len(), analysis.points.len());
        for expected in points {
            let keys = expected["point"].as_object().unwrap();
            let what = format!("{}: {}", folder.display(), expected["point"]);
            let point = analysis
                .points
                .iter()
                .find(|point| {
                    let trial = &analysis.trials[point.trials[0]];
                    trial.point.iter().all(|(key, value)| {
                        let written = keys[key].as_str().unwrap();
                        [value_text(value), value.to_string()].contains(&written.to_owned())
                    })
                })
                .unwrap_or_else(|| panic!("{what}: no such point"));
            assert_eq!(
                point.outcomes.finished() as u64,
                expected["finished"].as_u64().unwrap()
            );
            assert_eq!(
                point.outcomes.diverged as u64,
                expected["diverged"].as_u64().unwrap()
            );
            let accuracy = point.estimate(Measure::HeldOutAccuracy);
            assert_estimate(&what, accuracy, &expected["test_accuracy"]);
            let gap = point.estimate(Measure::AccuracyGap);
            assert_estimate(&what, gap, &expected["generalization_gap"]);
            // A rule of which no seed finished has no answer.
            let rule = analysis.answer.rules.iter().find(|r| r.rule == point.rule);
            let comparisons = rule.map_or(&[][..], |rule| &rule.comparisons);
            let change = comparisons.iter().find(|c| c.batch == point.batch);
            let change = change.and_then(|c| c.change.as_ref());
            assert_estimate(&what, change, &expected["change"]);
        }
    }
}
