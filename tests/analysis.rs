//! The analysis of made-up tables, held against values worked out by hand.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

mod tables;

use std::path::PathBuf;

use batchlab::analysis::{self, GapAnalysis, Measure, Verdict};
use batchlab::config::{Metric, Split};
use serde_json::json;
use tables::{Outcome, Study, Target, diverged, failed, plausible, put, scaling_rules};

/// A trial that ends with these accuracies.
fn ends(train: f64, test: f64, steps: u64) -> Outcome {
    Outcome {
        status: "completed",
        message: "",
        train: Some((Some(train), 0.5)),
        test: Some((Some(test), 0.75)),
        steps,
        target: Target::None,
    }
}

fn written(study: &Study) -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let dir = study.write(parent.path());
    (parent, dir)
}

fn analysed(study: &Study) -> GapAnalysis {
    let (_parent, dir) = written(study);
    analysis::generalization_gap(&dir).expect("sound tables")
}

/// Batches 32, 64 and 128; test accuracy 0.9, 0.9 + noise, 0.8 + noise; one rule.
fn simple(outcome: fn(usize, u64, u64) -> Outcome) -> Study {
    Study {
        name: "simple",
        batches: vec![32, 64, 128],
        rule_keys: vec![],
        rules: vec![vec![]],
        seeds: 3,
        outcome,
    }
}

fn falling(_: usize, batch: u64, seed: u64) -> Outcome {
    let noise = [0.00, 0.01, 0.02][seed as usize];
    match batch {
        32 => ends(0.99 + noise / 4.0, 0.90 + noise, 300),
        64 => ends(
            0.99,
            0.90 + noise + [-0.002, 0.004, -0.001][seed as usize],
            150,
        ),
        _ => ends(0.90, 0.80 + noise + [0.001, -0.001, 0.0][seed as usize], 75),
    }
}

#[test]
fn batches_are_compared_by_differences_of_the_same_seed() {
    let analysis = analysed(&simple(falling));
    let rule = &analysis.answer.rules[0];
    // The seeds differ by 0.01 and 0.02, the pairs by a tenth of that: unpaired, an interval of
    // +-0.025 would hide what the pairs show.
    let small = rule.comparisons[0].change.expect("three pairs");
    assert_eq!(small.n, 3);
    assert!((small.mean - 0.001 / 3.0).abs() < 1e-12);
    assert_eq!(rule.comparisons[0].verdict, Verdict::Indistinguishable);
    let large = rule.comparisons[1].change.expect("three pairs");
    assert!((large.mean + 0.1).abs() < 1e-12);
    // t(2, 0.975) = 4.302652729911275, s = 0.001, n = 3.
    let half = 4.302_652_729_911_275 * 0.001 / 3f64.sqrt();
    assert!((large.half_width.expect("an interval") - half).abs() < 1e-9);
    assert_eq!(rule.comparisons[1].verdict, Verdict::Worse);
    assert_eq!(rule.holds_to, Some(64));
    assert_eq!(rule.falls_at.map(|c| c.batch), Some(128));
    let short = &analysis.answer.short;
    assert!(
        short.contains("holds up to a global batch of 64"),
        "{short}"
    );
    assert!(
        short.contains("At 128 it is lower: \u{2212}10.00 ± 0.25 points (n = 3)"),
        "{short}"
    );
}

#[test]
fn a_change_of_test_accuracy_is_that_of_training_less_that_of_the_gap() {
    let analysis = analysed(&Study {
        batches: (5..12).map(|k| 1 << k).collect(),
        rule_keys: vec!["learning_rate.scaling"],
        rules: scaling_rules(),
        outcome: plausible,
        ..simple(plausible)
    });
    for rule in &analysis.answer.rules {
        let mean = |e: Option<batchlab::math::statistics::Estimate>| e.expect("pairs").mean;
        let parts = mean(rule.train_change) - mean(rule.gap_change);
        assert!((mean(rule.change) - parts).abs() < 1e-12);
    }
}

#[test]
fn a_diverged_seed_is_in_no_mean_and_its_batch_does_not_hold() {
    let analysis = analysed(&simple(|rule, batch, seed| {
        if batch == 64 && seed == 1 {
            // It was evaluated before it diverged; that counts for nothing.
            Outcome {
                test: Some((Some(0.1), f64::NAN)),
                ..diverged()
            }
        } else {
            falling(rule, batch, seed)
        }
    }));
    let point = analysis.point(0, 64).expect("the point");
    let estimate = point.estimate(Measure::HeldOutAccuracy).expect("two seeds");
    assert_eq!(estimate.n, 2);
    assert!((estimate.mean - f64::midpoint(0.898, 0.919)).abs() < 1e-12);
    assert!(point.incomplete());
    assert_eq!(point.outcomes.diverged, 1);
    let rule = &analysis.answer.rules[0];
    assert_eq!(rule.holds_to, None);
    assert_eq!(
        rule.falls_at.map(|c| (c.batch, c.verdict)),
        Some((64, Verdict::Diverged))
    );
    assert!(
        analysis
            .answer
            .short
            .contains("diverged already at the first batch above 32")
    );
}

#[test]
fn no_claim_reaches_beyond_a_batch_where_nothing_finished() {
    let analysis = analysed(&simple(|rule, batch, seed| {
        if batch == 128 {
            diverged()
        } else {
            falling(rule, batch, seed)
        }
    }));
    let short = &analysis.answer.short;
    assert!(
        short.contains("holds up to a global batch of 64"),
        "{short}"
    );
    assert!(
        short.contains("At 128 seeds diverged under every rule"),
        "{short}"
    );
}

#[test]
fn one_seed_gives_means_without_intervals_and_no_verdict() {
    let analysis = analysed(&Study {
        seeds: 1,
        ..simple(falling)
    });
    let point = analysis.point(0, 128).expect("the point");
    let estimate = point.estimate(Measure::AccuracyGap).expect("a gap");
    assert!((estimate.mean - (0.90 - 0.801)).abs() < 1e-12);
    assert_eq!(estimate.half_width, None);
    let rule = &analysis.answer.rules[0];
    assert!(
        rule.comparisons
            .iter()
            .all(|c| c.verdict == Verdict::Unresolved)
    );
    assert_eq!(rule.holds_to, None);
}

#[test]
fn the_smallest_batch_and_the_cost_are_in_the_answer() {
    let analysis = analysed(&simple(falling));
    let all = analysis.answer.sentences.join(" ");
    assert!(all.contains("A trial at 32 makes 300 updates, one at 64 makes 150: 2 times fewer, for as many examples"), "{all}");
    assert!(
        all.contains("of the loss is in fitting the training data within the budget"),
        "{all}"
    );
}

#[test]
fn a_target_is_answered_in_updates_and_examples() {
    let analysis = analysed(&simple(|rule, batch, seed| match (batch, seed) {
        (64, 0) => failed(),
        (128, _) => Outcome {
            status: "censored",
            target: Target::Missed,
            ..falling(rule, batch, seed)
        },
        _ => Outcome {
            target: Target::Reached(6400 / batch),
            ..falling(rule, batch, seed)
        },
    }));
    let all = analysis.answer.sentences.join(" ");
    let expected = "The target was reached by 5 of 8 trials; at batch 32 after 200 updates and 6400 \
                    examples; at batch 64 after 100 updates and 6400 examples.";
    assert!(all.contains(expected), "{all}");
    let outcomes = analysis.outcomes();
    let counts = (outcomes.completed, outcomes.censored, outcomes.failed);
    assert_eq!(counts, (5, 3, 1));
}

#[test]
fn the_headline_metric_is_what_the_tables_have() {
    let metric = |outcome| {
        let metric = analysed(&simple(outcome)).metric.expect("a metric");
        (metric.split, metric.metric)
    };
    assert_eq!(metric(falling), (Split::Test, Metric::Accuracy));
    assert_eq!(
        metric(|r, b, s| Outcome {
            test: Some((None, 0.5)),
            ..falling(r, b, s)
        }),
        (Split::Test, Metric::Loss)
    );
    assert_eq!(
        metric(|r, b, s| Outcome {
            test: None,
            ..falling(r, b, s)
        }),
        (Split::Train, Metric::Accuracy)
    );
}

#[test]
fn rules_are_the_swept_keys_other_than_the_batch() {
    let analysis = analysed(&Study {
        rule_keys: vec!["learning_rate.scaling", "learning_rate.warmup.epochs"],
        rules: vec![
            vec![json!("linear"), json!(0)],
            vec![json!("linear"), json!(5)],
            vec![json!("none"), json!(0)],
        ],
        ..simple(plausible)
    });
    let labels: Vec<&str> = analysis.rules.iter().map(|r| r.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "linear, warmup epochs 0",
            "linear, warmup epochs 5",
            "no scaling, warmup epochs 0"
        ]
    );
    assert_eq!(analysis.batches, [32, 64, 128]);
    assert_eq!(analysis.points.len(), 9);
}

#[test]
fn a_folder_without_a_study_is_refused_with_a_hint() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let error = analysis::generalization_gap(empty.path())
        .expect_err("no study")
        .to_string();
    assert!(
        error.contains("study.json") && error.contains("hint:"),
        "{error}"
    );

    let (_parent, dir) = written(&simple(falling));
    std::fs::remove_file(dir.join("summary.csv")).expect("it is there");
    let error = analysis::generalization_gap(&dir)
        .expect_err("no summary")
        .to_string();
    assert!(
        error.contains("summary.csv") && error.contains("hint:"),
        "{error}"
    );
}

#[test]
fn a_damaged_table_is_refused_by_file_place_and_column() {
    let refused = |file: &str, from: &str, to: &str| {
        let (_parent, dir) = written(&simple(falling));
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).expect("a table");
        assert!(text.contains(from), "{file} has no {from}");
        put(&path, &text.replacen(from, to, 1));
        analysis::generalization_gap(&dir)
            .expect_err("damaged")
            .to_string()
    };
    let error = refused("summary.csv", ",300,", ",many,");
    assert!(
        error.contains("summary.csv, line 2, column `steps`"),
        "{error}"
    );
    let error = refused("summary.csv", "completed", "finished");
    assert!(
        error.contains("summary.csv, row 1, column `status`"),
        "{error}"
    );
    let error = refused("summary.csv", "test_accuracy", "accuracy");
    assert!(
        error.contains("summary.csv: no column `test_accuracy`"),
        "{error}"
    );
    let evaluations = "trials/000020000000/evaluations.csv";
    let error = refused(evaluations, "train", "training");
    assert!(
        error.contains("evaluations.csv, row 1, column `split`"),
        "{error}"
    );
    let error = refused("study.json", "\"trials\"", "\"trails\"");
    assert!(error.contains("study.json"), "{error}");
}

#[test]
fn curves_are_means_over_the_seeds_that_finished() {
    let analysis = analysed(&simple(falling));
    let curve = analysis
        .curves
        .iter()
        .find(|c| c.batch == 64 && c.split == Split::Test)
        .expect("a curve");
    assert_eq!((curve.n, curve.points.len()), (3, 11));
    let last = curve.points[10];
    assert_eq!(last.step, 150);
    assert!(last.low < last.mean && last.mean < last.high);
    assert_eq!(analysis.split_sizes[&Split::Test], 10_000);
}
