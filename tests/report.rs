//! The report of made-up studies: it says what the tables say, and never panics.
//!
//! The folders stay in cargo's temporary folder of the target, to be looked at.

mod tables;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use batchlab::{analysis, report};
use serde_json::{Value, json};
use tables::{Outcome, Study, Target, diverged, failed, plausible, scaling_rules};

fn report(study: &Study) -> (PathBuf, String) {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    let dir = study.write(&parent);
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    let files = report::write(&dir, &analysis).expect("a report");
    for figure in &files.figures {
        assert!(figure.is_file(), "{}", figure.display());
    }
    let page = std::fs::read_to_string(&files.html).expect("a page");
    (dir, page)
}

fn standard(name: &'static str) -> Study {
    Study {
        name,
        batches: (5..14).map(|k| 1 << k).collect(),
        rule_keys: vec!["learning_rate.scaling"],
        rules: scaling_rules(),
        seeds: 3,
        outcome: |rule, batch, seed| match (rule, batch) {
            (2, 4096) if seed == 1 => diverged(),
            (2, 8192) if seed > 0 => diverged(),
            (1, 8192) if seed == 2 => failed(),
            _ => plausible(rule, batch, seed),
        },
    }
}

#[test]
fn the_page_answers_from_the_tables_and_shows_what_went_wrong() {
    let (dir, page) = report(&standard("standard"));
    for text in [
        "holds up to a global batch of",
        "95 % interval",
        "of 81 trials finished",
        "loss of update 38 is NaN",
        "hint: lower it",
        "not all seeds finished",
        "batchlab run config.toml",
        "&lt;A &amp; B&gt;",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("<script"));
    let svgs = page.matches("<svg ").count();
    let files = std::fs::read_dir(dir.join("figures"))
        .expect("figures")
        .count();
    assert_eq!(files, 2 * svgs);
}

#[test]
fn figures_of_an_earlier_report_go_and_other_files_stay() {
    let (dir, _) = report(&standard("stale"));
    let figures = dir.join("figures");
    tables::put(&figures.join("training-curves-9-gone.svg"), "");
    tables::put(&figures.join("notes.txt"), "mine");
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    report::write(&dir, &analysis).expect("a report");
    assert!(!figures.join("training-curves-9-gone.svg").exists());
    assert!(figures.join("notes.txt").exists());
}

#[test]
fn the_same_tables_give_the_same_bytes() {
    let bytes = |name| {
        let (dir, page) = report(&standard(name));
        let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir.join("figures"))
            .expect("figures")
            .map(|e| e.expect("an entry").path())
            .map(|p| {
                (
                    p.display().to_string(),
                    std::fs::read(&p).expect("a figure"),
                )
            })
            .collect();
        files.sort();
        (page, files)
    };
    assert!(bytes("twice") == bytes("twice"));
}

#[test]
fn one_seed_has_no_interval_and_the_page_says_so() {
    let (_, page) = report(&Study {
        seeds: 1,
        outcome: plausible,
        ..standard("one-seed")
    });
    assert!(
        page.contains("With one seed there is no interval"),
        "{page}"
    );
    assert!(page.contains("one trial a point, so no interval"));
    assert!(!page.contains("± 0.00"));
}

#[test]
fn one_rule_needs_no_name() {
    let (_, page) = report(&Study {
        rule_keys: vec![],
        rules: vec![vec![]],
        outcome: plausible,
        ..standard("one-rule")
    });
    assert!(page.contains("Test accuracy holds up to a global batch of"));
    assert!(page.contains("linear scaling"));
    assert!(!page.contains("Rule:"));
}

#[test]
fn one_batch_compares_rules() {
    let (_, page) = report(&Study {
        batches: vec![256],
        rule_keys: vec!["optimizer"],
        rules: vec![
            vec![json!("sgd")],
            vec![json!({"momentum": {"momentum": 0.9}})],
            vec![json!({"adamw": {"weight_decay": 0.1}})],
        ],
        outcome: plausible,
        ..standard("one-batch")
    });
    assert!(page.contains("All trials use the global batch 256"));
    assert!(page.contains("adamw weight_decay 0.1"));
    assert!(page.contains("Against the next"));
    assert!(page.contains("<h3>Rules at batch 256</h3>"));
    assert!(page.contains("2 comparisons were made"));
    assert!(!page.contains("Rule by rule"));
    let cells = cells_of(&page, "sgd");
    assert_eq!(cells[2..5], ["3", "baseline", "–"], "{cells:?}");
    // 600,000 examples, in updates of 256.
    assert_eq!(cells[5..], ["2344", "600,064", "0 of 3"], "{cells:?}");
}

/// The cells of the first row of a table that begins with `first`.
fn cells_of(page: &str, first: &str) -> Vec<String> {
    let start = format!("<tr><td class=\"text\">{first}</td>");
    let row = page.lines().find(|l| l.starts_with(&start));
    row.unwrap_or_default()
        .split("</td>")
        .filter_map(|cell| cell.rsplit_once('>'))
        .map(|(_, text)| text.to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

#[test]
fn rules_with_one_batch_are_beside_each_other_and_not_rule_by_rule() {
    let study = Study {
        batches: vec![64, 128],
        outcome: |rule, batch, seed| match (rule, seed) {
            (2, 1) => diverged(),
            // The second rule sees half as many examples.
            (1, _) => Outcome {
                steps: 60_000 * 5 / batch,
                ..plausible(rule, batch, seed)
            },
            _ => plausible(rule, batch, seed),
        },
        ..standard("partly-compared")
    };
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    let dir = study.write(&parent);
    tables::retain_trials(&dir, |point| {
        point["learning_rate.scaling"] == "none" || point["train.global_batch"] == 64
    });
    let page = again(&dir);
    let (before, rest) = page.split_once("<h3>Rule by rule</h3>").expect("a table");
    let (by_rule, _) = rest.split_once("</table>").expect("its end");
    assert!(by_rule.contains("no scaling") && !by_rule.contains("sqrt"));
    assert!(before.contains("<h3>Rules at batch 64</h3>"));
    assert!(
        before.contains("from 299,968 with “sqrt” to 600,000 with “no scaling”"),
        "{before}"
    );
    let cells = cells_of(before, "linear");
    assert_eq!((cells[2].as_str(), cells[7].as_str()), ("2", "1 of 3"));
    assert_eq!(cells[4], "seeds diverged");
}

#[test]
fn forty_series_have_a_legend_each() {
    let rules: Vec<Vec<Value>> = (0..40)
        .map(|i| {
            let warmup = [
                Value::from("none"),
                json!({"epochs": 2}),
                json!({"epochs": 5, "shape": "constant"}),
                json!({"steps": 100}),
            ];
            vec![
                json!(f64::from(i / 4 + 1) / 100.0),
                warmup[i as usize % 4].clone(),
            ]
        })
        .collect();
    let (_, page) = report(&Study {
        rule_keys: vec!["learning_rate.base_lr", "learning_rate.warmup"],
        rules,
        batches: (3..17).map(|k| 1 << k).collect(),
        outcome: |rule, batch, seed| {
            if batch > 4096 && rule % 5 == 0 {
                diverged()
            } else {
                plausible(rule, batch, seed)
            }
        },
        ..standard("forty")
    });
    assert!(page.contains("base_lr 0.1, warmup 5 epochs constant"));
}

#[test]
fn nothing_finished_is_said_and_not_drawn() {
    let (_, page) = report(&Study {
        outcome: |_, _, seed| if seed == 0 { failed() } else { diverged() },
        ..standard("nothing")
    });
    assert!(page.contains("No trial came to its end"));
    assert!(!page.contains("<svg"));
}

#[test]
fn a_study_under_way_shows_what_is_there() {
    let (_, page) = report(&Study {
        outcome: |rule, batch, seed| {
            if batch > 512 || (batch > 64 && seed > 1) {
                Outcome {
                    status: "pending",
                    ..diverged()
                }
            } else {
                plausible(rule, batch, seed)
            }
        },
        ..standard("under-way")
    });
    assert!(page.contains("not run"));
}

#[test]
fn a_loss_without_classes_is_reported_as_loss() {
    let (_, page) = report(&Study {
        outcome: |rule, batch, seed| {
            let made = plausible(rule, batch, seed);
            Outcome {
                train: None,
                test: made.test.map(|t| (None, t.1)),
                ..made
            }
        },
        ..standard("loss-only")
    });
    assert!(page.contains("Test loss against global batch"));
    assert!(!page.contains("accuracy (%)"));
}

#[test]
fn without_a_test_split_the_training_split_is_named() {
    let (_, page) = report(&Study {
        outcome: |rule, batch, seed| Outcome {
            test: None,
            ..plausible(rule, batch, seed)
        },
        ..standard("no-test")
    });
    assert!(page.contains("Training accuracy against global batch"));
}

#[test]
fn a_target_is_reported_in_updates_and_examples() {
    let (_, page) = report(&Study {
        outcome: |rule, batch, seed| {
            let made = plausible(rule, batch, seed);
            let steps =
                (2000.0 * (1.0 + 400.0 / batch as f64) / (1.0 + rule as f64)) as u64 + 7 * seed;
            if steps < made.steps {
                Outcome {
                    steps,
                    target: Target::Reached(steps),
                    ..made
                }
            } else {
                Outcome {
                    status: "censored",
                    target: Target::Missed,
                    ..made
                }
            }
        },
        ..standard("target")
    });
    assert!(page.contains("Updates and examples to the target"));
    assert!(page.contains("censored"));
}

#[test]
fn the_headline_fits_a_terminal() {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    let dir = standard("headline").write(&parent);
    let text = analysis::generalization_gap(&dir)
        .expect("sound tables")
        .headline()
        .to_string();
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(text.contains("test accuracy in %"), "{text}");
    assert!(text.contains("2 diverged"), "{text}");
    assert!(text.contains("best mean test accuracy"), "{text}");
}

/// steps.csv of a trial: `updates` of them, ten an epoch, each with its rate and its batch.
fn steps(updates: u64, of: impl Fn(u64) -> (f64, u64)) -> String {
    let header = "step,epoch,examples,global_batch,lr,loss,workers,momentum\n";
    let rows = (1..=updates).map(|step| {
        let (rate, batch) = of(step);
        format!(
            "{step},{},{},{batch},{rate},1,4,0.9\n",
            step as f64 / 10.0,
            step * batch
        )
    });
    header.to_owned() + &rows.collect::<String>()
}

const CHANGES: &str = "step,epoch,examples,from_batch,to_batch,from_rate_factor,to_rate_factor,quantity,value,reason\n";

/// The folders of the trials of a made-up study, in the order of its plan.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let record = std::fs::read_to_string(dir.join("study.json")).expect("a plan");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let trials = record["trials"].as_array().expect("trials");
    let id = |trial: &Value| trial["id"].as_str().expect("an id").to_owned();
    trials
        .iter()
        .map(|t| dir.join("trials").join(id(t)))
        .collect()
}

fn again(dir: &Path) -> String {
    let analysis = analysis::generalization_gap(dir).expect("sound tables");
    let files = report::write(dir, &analysis).expect("a report");
    std::fs::read_to_string(files.html).expect("a page")
}

fn controlled(name: &'static str) -> Study {
    Study {
        batches: vec![64],
        rule_keys: vec!["batch.controller"],
        rules: vec![vec![json!("constant")], vec![json!("norm-test")]],
        outcome: plausible,
        ..standard(name)
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test takes tables away")]
fn a_controlled_run_shows_its_series_and_what_moved_it() {
    let (dir, before) = report(&controlled("controlled"));
    for (i, folder) in folders(&dir).into_iter().enumerate() {
        let (rule, seed) = (i as u64 / 3, i as u64 % 3);
        // The batch grows at every tenth update, later with each seed.
        let batch = |step: u64| 64 + rule * 64 * ((step - 1) / (10 + seed));
        tables::put(
            &folder.join("steps.csv"),
            &steps(200, |step| (0.1, batch(step))),
        );
        let mut log = CHANGES.to_owned();
        for step in (1..200).filter(|step| batch(step + 1) != batch(*step)) {
            let (from, to) = (batch(step), batch(step + 1));
            let at = step as f64 / 10.0;
            let _ = writeln!(
                log,
                "{step},{at},0,{from},{to},1,1,\"b_norm_test\",{},\"reason <{step}>, seed {seed}\"",
                to as f64 + 0.5,
            );
        }
        tables::put(&folder.join("batch.csv"), &log);
    }
    let page = again(&dir);
    assert_eq!(
        page.matches("<svg ").count(),
        before.matches("<svg ").count() + 1
    );
    for text in [
        "Learning rate and batch over the runs",
        "The first seed is drawn strong, the others faint.",
        ">seed 0<",
        ">other seeds<",
        "What the batch controller did, seed 0: 19 lines",
        "reason &lt;10&gt;, seed 0",
        "b_norm_test",
        "7 more in batch.csv",
        "reason &lt;190&gt;, seed 0",
    ] {
        // plotters puts the text of an element on a line of its own.
        let flat: String = page
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("> ", ">")
            .replace(" <", "<");
        assert!(flat.contains(text), "{text}");
    }
    assert!(!page.contains("reason &lt;100&gt;") && !page.contains(", seed 1"));
    let figure = dir.join("figures/schedule-1-controller-norm-test.svg");
    assert!(figure.is_file());

    // Without the tables of the trials the report is the one before.
    for folder in folders(&dir) {
        for name in ["steps.csv", "batch.csv"] {
            std::fs::remove_file(folder.join(name)).expect("a table");
        }
    }
    assert_eq!(again(&dir), before);
    assert!(!figure.exists());
}

#[test]
fn constant_rates_and_batches_leave_the_report_as_it_is() {
    let (dir, before) = report(&Study {
        outcome: plausible,
        ..standard("constant")
    });
    for folder in folders(&dir) {
        // The rest of a partial epoch, and a controller that was held where it was.
        let batch = |step: u64| if step.is_multiple_of(10) { 13 } else { 64 };
        tables::put(
            &folder.join("steps.csv"),
            &steps(50, |step| (0.1, batch(step))),
        );
        let held = "11,1.1,700,64,64,1,1,\"b_cabs\",3.5,\"held at the smallest, 64\"\n";
        tables::put(&folder.join("batch.csv"), &(CHANGES.to_owned() + held));
    }
    assert_eq!(again(&dir), before);
}

#[test]
fn a_rate_that_moves_is_drawn_with_a_line_for_each_batch() {
    let (dir, before) = report(&Study {
        rule_keys: vec![],
        rules: vec![vec![]],
        batches: vec![64, 128, 256],
        outcome: plausible,
        ..standard("decay")
    });
    for folder in folders(&dir) {
        // A table of an older version.
        let rows = (1..=20)
            .map(|step: u8| (step, f64::from(step)))
            .map(|(step, at)| format!("{step},{},0.1,{}\n", at / 2.0, 1.0 / at));
        let text = "step,epoch,loss,lr\n".to_owned() + &rows.collect::<String>();
        tables::put(&folder.join("steps.csv"), &text);
    }
    let page = again(&dir);
    assert_eq!(
        page.matches("<svg ").count(),
        before.matches("<svg ").count() + 1
    );
    for text in ["All seeds coincide.", "Global batch at the start"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("What the batch controller did"));
}

#[test]
fn many_rules_with_decays_have_a_limited_number_of_figures() {
    let (dir, before) = report(&Study {
        rule_keys: vec!["learning_rate.base_lr"],
        rules: (1..=30)
            .map(|i| vec![json!(f64::from(i) / 100.0)])
            .collect(),
        batches: vec![64],
        seeds: 1,
        outcome: plausible,
        ..standard("many-decays")
    });
    for folder in folders(&dir) {
        let text = steps(20, |step| (0.1 / step as f64, 64));
        tables::put(&folder.join("steps.csv"), &text);
    }
    let page = again(&dir);
    assert_eq!(
        page.matches("<svg ").count(),
        before.matches("<svg ").count() + 12
    );
    assert!(page.contains("Rate and batch of the other rules are in steps.csv."));
}
