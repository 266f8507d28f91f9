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
    assert!(
        !analysis.answer.short.contains("equally many"),
        "all saw 9600"
    );
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

/// Four controllers at batch 64: the baseline, one that is worse by 0.01, one that cannot be told
/// from the baseline, and one whose seed 1 diverged.
fn controllers(rule: usize, batch: u64, seed: u64) -> Outcome {
    let at = seed as usize;
    let baseline = 0.90 + [0.00, 0.01, 0.02][at];
    match rule {
        0 => ends(0.99, baseline, 19_200 / batch),
        1 => ends(
            0.99,
            baseline - 0.01 + [0.000, -0.001, 0.001][at],
            100 + 10 * seed,
        ),
        2 => ends(0.99, baseline + [0.002, -0.004, 0.005][at], 19_200 / batch),
        _ if seed == 1 => diverged(),
        _ => ends(0.99, baseline + [0.003, 0.0, 0.005][at], 19_200 / batch),
    }
}

fn compared() -> Study {
    Study {
        name: "compared",
        batches: vec![64],
        rule_keys: vec!["batch.controller"],
        rules: ["constant", "absa", "cabs", "norm-test"]
            .iter()
            .map(|c| vec![json!(c)])
            .collect(),
        seeds: 3,
        outcome: controllers,
    }
}

/// As [`compared`], at 32 and 64, where only the first rule is at 64.
fn partly_compared(outcome: fn(usize, u64, u64) -> Outcome) -> (tempfile::TempDir, PathBuf) {
    let (parent, dir) = written(&Study {
        batches: vec![32, 64],
        outcome,
        ..compared()
    });
    tables::retain_trials(&dir, |point| {
        point["batch.controller"] == "constant" || point["train.global_batch"] == 32
    });
    (parent, dir)
}

#[test]
fn rules_at_one_batch_are_compared_with_the_first_seed_by_seed() {
    let analysis = analysed(&compared());
    let rules = analysis.answer.at_one_batch.as_ref().expect("one batch");
    assert_eq!((rules.batch, rules.baseline, rules.rows.len()), (64, 0, 4));
    assert_eq!(rules.rows[0].comparison, None);
    assert_eq!(rules.rows[0].steps, Some((300.0, 300.0)));
    assert_eq!(rules.rows[1].steps, Some((100.0, 120.0)));
    assert_eq!(rules.rows[1].examples, Some((6400.0, 7680.0)));
    let comparison = |rule: usize| rules.rows[rule].comparison.expect("another rule");
    let change = |rule: usize| comparison(rule).change.expect("pairs");
    // t(2, 0.975) = 4.302652729911275. Differences -0.010, -0.011, -0.009: s = 0.001.
    // Differences 0.002, -0.004, 0.005: mean 0.001, squared deviations 1 + 25 + 16 millionths,
    // s^2 = 21e-6.
    let t = 4.302_652_729_911_275;
    for (rule, mean, variance) in [(1, -0.01, 1e-6), (2, 0.001, 21e-6_f64)] {
        assert_eq!(change(rule).n, 3);
        assert!((change(rule).mean - mean).abs() < 1e-12);
        let half = t * (variance / 3.0).sqrt();
        assert!((change(rule).half_width.expect("an interval") - half).abs() < 1e-9);
    }
    // Two pairs, 0.003 and 0.005: t(1, 0.975) = 12.706204736432095, s / sqrt(2) = 0.001.
    assert_eq!(change(3).n, 2);
    assert!((change(3).mean - 0.004).abs() < 1e-12);
    assert!((change(3).half_width.expect("an interval") - 0.012_706_204_736).abs() < 1e-9);
    let verdicts = [1, 2, 3].map(|r| comparison(r).verdict);
    assert_eq!(
        verdicts,
        [
            Verdict::Worse,
            Verdict::Indistinguishable,
            Verdict::Diverged
        ]
    );
    assert_eq!(rules.rows[3].outcomes.diverged, 1);
    assert!(
        rules
            .preface
            .contains("\u{201C}controller constant\u{201D}, paired by seed")
    );
    assert!(
        rules.preface.contains("3 comparisons were made"),
        "{}",
        rules.preface
    );
    // Means of 6400, 7040 and 7680 examples, and of three times 19,200.
    let budgets = rules.budgets.as_deref().expect("budgets differ");
    assert!(
        budgets.contains("from 7040 with \u{201C}controller absa\u{201D} to 19,200 with"),
        "{budgets}"
    );
}

#[test]
fn the_terminal_lists_the_rules_of_one_batch() {
    let text = analysed(&compared()).headline().to_string();
    assert!(text.starts_with("All trials use the global batch 64: this study compares rules."));
    // Half widths by hand from 0.90, 0.91, 0.92; 0.890, 0.899, 0.911; 0.902, 0.906, 0.925; and
    // 0.903, 0.925; those of the differences are worked out above.
    let rows = [
        "  controller constant   91.00 ± 2.48 (3)                                  300",
        "  controller absa       90.00 ± 2.62 (3)              \u{2212}1.00 ± 0.25 worse  100 to 120",
        "  controller cabs       91.10 ± 3.05 (3)              +0.10 ± 1.14        300",
        "  controller norm-test  91.40 ± 13.98 (2) 1 diverged  +0.40 ± 1.27        300",
    ];
    for row in rows {
        assert!(text.lines().any(|l| l == row), "{row}\n{text}");
    }
    assert!(!text.contains("  batch  "), "no wide table: {text}");
    assert!(text.contains("did not see equally many examples"), "{text}");
    let wide = text.lines().filter(|l| !l.starts_with("best mean"));
    assert!(wide.into_iter().all(|l| l.chars().count() <= 96), "{text}");
}

#[test]
fn rules_are_compared_at_one_batch_only_where_one_has_no_other() {
    let grid = analysed(&Study {
        batches: vec![32, 64],
        ..compared()
    });
    assert_eq!(grid.answer.at_one_batch, None);
    let one_rule = analysed(&Study {
        batches: vec![64],
        ..simple(falling)
    });
    assert_eq!(one_rule.answer.at_one_batch, None);

    let (_parent, dir) = partly_compared(controllers);
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    let rules = analysis.answer.at_one_batch.as_ref().expect("a comparison");
    assert_eq!((rules.batch, rules.rows.len()), (32, 4));
    assert!(rules.elsewhere.is_empty());
    // Only the rule with two batches has columns.
    let text = analysis.headline().to_string();
    assert!(
        text.lines().any(|l| l == "  batch  controller constant"),
        "{text}"
    );

    // Where the batch of most rules has none that finished, there is nothing to compare.
    let (_parent, dir) = partly_compared(|rule, batch, seed| match rule {
        0 => controllers(rule, batch, seed),
        _ => diverged(),
    });
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    assert_eq!(analysis.answer.at_one_batch, None);
}

#[test]
fn a_rule_that_is_at_another_batch_alone_is_listed_with_it() {
    let (_parent, dir) = written(&Study {
        batches: vec![32, 64],
        ..compared()
    });
    tables::retain_trials(&dir, |point| {
        (point["batch.controller"] == "cabs") == (point["train.global_batch"] == 64)
    });
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    let rules = analysis.answer.at_one_batch.as_ref().expect("a comparison");
    let at = |rows: &[analysis::RuleRow]| rows.iter().map(|r| r.rule).collect::<Vec<_>>();
    // In the order of the plan, cabs comes last: its batch does.
    assert_eq!(
        (at(&rules.rows), at(&rules.elsewhere)),
        (vec![0, 1, 2], vec![3])
    );
    let text = analysis.headline().to_string();
    let cabs = text.lines().find(|l| l.starts_with("  controller cabs"));
    assert!(cabs.is_some_and(|l| l.contains("at batch 64")), "{text}");
}

#[test]
fn the_baseline_is_the_first_rule_that_finished() {
    let analysis = analysed(&Study {
        outcome: |rule, batch, seed| match rule {
            0 => failed(),
            _ => controllers(rule, batch, seed),
        },
        ..compared()
    });
    let rules = analysis.answer.at_one_batch.as_ref().expect("one batch");
    assert_eq!((rules.baseline, rules.rows.len()), (1, 4));
    let said = "\u{201C}controller absa\u{201D}, the first rule of the plan that finished";
    assert!(rules.preface.contains(said), "{}", rules.preface);
    assert_eq!(rules.rows[0].estimate, None);
}

#[test]
fn one_seed_compares_no_rules() {
    let analysis = analysed(&Study {
        seeds: 1,
        ..compared()
    });
    let rules = analysis.answer.at_one_batch.as_ref().expect("one batch");
    assert!(
        rules.preface.contains("there is no interval"),
        "{}",
        rules.preface
    );
    let verdicts = rules
        .rows
        .iter()
        .filter_map(|r| Some(r.comparison?.verdict));
    assert!(verdicts.into_iter().all(|v| v == Verdict::Unresolved));
}

#[test]
fn batches_with_different_numbers_of_examples_are_named_with_them() {
    let short = |outcome| analysed(&simple(outcome)).answer.short;
    let said = short(|rule, batch, seed| Outcome {
        steps: 300,
        ..falling(rule, batch, seed)
    });
    let expected = "These trials did not see equally many examples: 9600 at 32, 19,200 at 64 and 38,400 at 128.";
    assert!(said.ends_with(expected), "{said}");
    // 9600, 9664 and 9600: within 1 %, as the remainders of epochs are.
    let said = short(|rule, batch, seed| Outcome {
        steps: 9600u64.div_ceil(batch) + u64::from(batch == 64),
        ..falling(rule, batch, seed)
    });
    assert!(!said.contains("equally many"), "{said}");
}
