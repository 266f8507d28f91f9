//! What the report says of probes: every value at its comparison, what did not converge and what was
//! undetermined counted, and nothing where nothing was probed.
//!
//! The folders stay in cargo's temporary folder of the target, to be looked at.

#[allow(dead_code, reason = "not every test makes every kind of study")]
mod tables;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use batchlab::analysis::{self, Moment, Probe, ProbeAnalysis, ProbeKey};
use batchlab::report;
use batchlab::rng::Stream;
use serde_json::{Value, json};
use tables::{Outcome, Study, diverged, plausible, put};

const PROBES: &str = "step,epoch,when,train_loss,probe,quantity,scope,at,value,standard_error,residual,converged,products,\
                      examples,statistics\n";
const NOISE: &str = "step,epoch,examples,lr,b_small,g2_small,b_big,g2_big,tr_sigma,squared_gradient,cosine_previous,\
                     cosine_workers,snr,adamw_g2_small,adamw_g2_big\n";
const RANKS: u32 = 20;

fn parent() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-probes")
}

fn study(name: &'static str) -> Study {
    Study {
        name,
        batches: vec![64, 256, 1024, 4096],
        rule_keys: vec![],
        rules: vec![vec![]],
        seeds: 3,
        outcome: plausible,
    }
}

/// A trial of a made-up study: folder, rule values, batch, seed.
struct Place {
    folder: PathBuf,
    point: Value,
    batch: u64,
    seed: u64,
}

fn places(dir: &Path) -> Vec<Place> {
    let record = std::fs::read_to_string(dir.join("study.json")).expect("a plan");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let trials = record["trials"].as_array().expect("trials").iter();
    trials
        .map(|trial| {
            let id = trial["id"].as_str().expect("an id");
            Place {
                folder: dir.join("trials").join(id),
                point: trial["point"].clone(),
                batch: u64::from_str_radix(&id[..6], 16).expect("a batch"),
                seed: trial["seed"].as_u64().expect("a seed"),
            }
        })
        .collect()
}

/// Evaluations of a trial: step, epoch, training loss.
fn evaluations(folder: &Path) -> Vec<(u64, f64, f64)> {
    let text = std::fs::read_to_string(folder.join("evaluations.csv")).expect("evaluations");
    text.lines()
        .filter(|line| line.contains(",train,"))
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |i: usize| cells[i].parse::<f64>().expect("a number");
            (number(0) as u64, number(1), number(4))
        })
        .collect()
}

/// probes.csv of a trial: sharper the larger the batch, and the further the training.
fn probes(place: &Place, at_train_loss: f64) -> String {
    let mut noise = Stream::new(place.seed, "made-up-probes", place.batch);
    let mut text = PROBES.to_owned();
    let evaluations = evaluations(&place.folder);
    let Some(last) = evaluations.len().checked_sub(1) else {
        return text;
    };
    let reached = evaluations.iter().position(|e| e.2 <= at_train_loss);
    let mut moments: Vec<(usize, &str)> = vec![(0, "start"), (last / 2, "schedule"), (last, "end")];
    moments.extend(reached.map(|i| (i, "train_loss")));
    for (i, when) in moments {
        let (step, epoch, loss) = evaluations[i];
        let head = format!("{step},{epoch},{when},{loss}");
        let progress = (i as f64 + 0.3) / (last as f64 + 0.3);
        let sharp = (place.batch as f64 / 64.0).powf(0.7) * progress;
        let mut jitter = |share: f64| (share * noise.normal()).exp();
        let mut row = |probe: &str, quantity: &str, at: &str, value: f64, rest: &str| {
            let _ = writeln!(
                text,
                "{head},{probe},{quantity},,{at},{value},{rest},512,batch"
            );
        };
        for rank in 1..=RANKS {
            let value = 4.0 * sharp * jitter(0.1) / f64::from(rank).powf(0.9);
            let converged = !(rank > 18 && place.batch == 4096);
            let rest = format!(",{},{converged},80", value * 1e-4);
            row("hessian", "eigenvalue", &rank.to_string(), value, &rest);
        }
        row(
            "hessian",
            "smallest_eigenvalue",
            "1",
            -0.2 * sharp * jitter(0.2),
            ",0.001,true,80",
        );
        row(
            "hessian",
            "trace",
            "",
            40.0 * sharp * jitter(0.1),
            "1.5,,,60",
        );
        for epsilon in [0.0005, 0.001] {
            let at = epsilon.to_string();
            let value = 6000.0 * epsilon * sharp * jitter(0.2);
            row("sharpness", "sharpness_full", &at, value, ",,true,40");
            row(
                "sharpness",
                "sharpness_subspace",
                &at,
                value / 8.0,
                ",,true,40",
            );
        }
        row(
            "sharpness",
            "worst_loss_l2",
            "0.05",
            0.02 * sharp * jitter(0.1),
            ",,true,20",
        );
        row(
            "sharpness",
            "gaussian_loss",
            "0.01",
            0.004 * sharp * jitter(0.1),
            "0.0002,,,10",
        );
        row(
            "adversarial",
            "fgsm_accuracy",
            "0.1",
            0.8 - 0.05 * sharp.ln().max(0.0),
            ",,,1",
        );
        for (quantity, value) in [
            (
                "b_simple",
                300.0 / progress.recip().powi(2) * jitter(0.1) + 20.0,
            ),
            ("b_noise", 90.0 * progress + 8.0),
            ("tr_sigma", 12.0),
            ("squared_gradient", 0.05),
            ("eps_max", 0.4 / sharp),
        ] {
            row("noise", quantity, "", value, ",,,1");
        }
        let _ = writeln!(
            text,
            "{head},sharpness,relative_flatness,layers.0.weight,,{},,,,40,512,batch",
            9.0 * sharp
        );
        let _ = writeln!(
            text,
            "{head},hessian,block_trace,layers.0,,{},0.5,,,40,512,batch",
            25.0 * sharp
        );
        for k in -30..=120 {
            let x = f64::from(k) / 20.0 * sharp;
            let bulk = (-(x / (0.3 * sharp)).powi(2)).exp() / sharp;
            let outliers: f64 = (1..=6)
                .map(|r| 4.0 * sharp / f64::from(r).powf(0.9))
                .map(|c| 1e-4 / sharp * (-((x - c) / (0.08 * sharp)).powi(2)).exp())
                .sum();
            let _ = writeln!(
                text,
                "{head},density,density,,{x},{},,,,60,512,batch",
                bulk + outliers
            );
        }
        let _ = writeln!(
            text,
            "{head},density,node,,{},0.25,,,,60,512,batch",
            3.0 * sharp
        );
    }
    text
}

/// noise.csv of a trial: the noise scale grows; late in training |G|^2 drowns.
fn noise(place: &Place, rate: f64) -> (String, String) {
    let mut stream = Stream::new(place.seed, "made-up-noise", place.batch);
    let (mut text, mut layers) = (
        NOISE.to_owned(),
        "step,layer,b_small,g2_small,b_big,g2_big\n".to_owned(),
    );
    let steps = 400;
    let (big, small) = (place.batch as f64, place.batch as f64 / 4.0);
    for step in 1..=steps {
        let done = f64::from(step) / f64::from(steps);
        let squared = 0.3 * (-6.0 * done).exp();
        let trace = 30.0 * (-2.0 * done).exp() * (0.1 / rate).sqrt();
        let norm = |size: f64, draw: f64| (squared + trace / size * (1.0 + 0.25 * draw)).max(0.0);
        let (g_small, g_big) = (
            norm(small, stream.normal() / 2.0),
            norm(big, stream.normal()),
        );
        let trace = (g_small - g_big) / (1.0 / small - 1.0 / big);
        let squared = g_big - trace * (1.0 / big - 1.0 / 60_000.0);
        let _ = writeln!(
            text,
            "{step},{},{},{rate},{small},{g_small},{big},{g_big},{trace},{squared},0.1,0.2,,{},{}",
            10.0 * done,
            f64::from(step) * big,
            2.0 * g_small,
            2.0 * g_big,
        );
        for (layer, share) in [("layers.0", 0.7), ("layers.1", 0.3)] {
            let _ = writeln!(
                layers,
                "{step},{layer},{small},{},{big},{}",
                share * g_small,
                share * g_big
            );
        }
    }
    (text, layers)
}

/// Lines and planes of a bowl, with a place where the loss overflows.
fn surfaces(folder: &Path) {
    let mut line = String::from("alpha,split,loss,accuracy,label\n");
    for label in ["batch 64 to 4096", "batch 64 to 1024"] {
        let k = if label.ends_with("4096") { 3.0 } else { 1.5 };
        for i in -20..=40 {
            let alpha = f64::from(i) / 20.0;
            for (split, more) in [("train", 0.0), ("test", 0.08)] {
                let loss = 0.02 + more + k * (alpha * (alpha - 1.0)).powi(2) + more * alpha;
                let loss = if i == 40 && k > 2.0 {
                    f64::INFINITY
                } else {
                    loss
                };
                let _ = writeln!(
                    line,
                    "{alpha},{split},{loss},{},{label}",
                    0.99 - 0.3 * (1.0 - (-loss).exp())
                );
            }
        }
    }
    put(&folder.join("probes/line.csv"), &line);
    let mut plane = String::from("alpha,beta,loss\n");
    for i in -12..=12 {
        for j in -12..=12 {
            let (a, b) = (f64::from(i) / 12.0, f64::from(j) / 12.0);
            let loss = 0.03 + 6.0 * a * a + 1.5 * b * b + 1.2 * (3.0 * a).sin() * b * b;
            let loss = if i == 12 && j > 9 {
                "inf".to_owned()
            } else {
                loss.to_string()
            };
            let _ = writeln!(plane, "{a},{b},{loss}");
        }
    }
    put(&folder.join("probes/plane.csv"), &plane);
}

fn write(dir: &Path) -> (ProbeAnalysis, String) {
    let analysis = analysis::generalization_gap(dir).expect("sound tables");
    let files = report::write(dir, &analysis).expect("a report");
    for figure in &files.figures {
        assert!(figure.is_file(), "{}", figure.display());
    }
    let page = std::fs::read_to_string(&files.html).expect("a page");
    (analysis.probes.expect("probes"), page)
}

/// A study with everything, its target loss one that the largest batch misses with two seeds.
fn full(study: &Study) -> PathBuf {
    let dir = study.write(&parent());
    for place in places(&dir) {
        if !place.folder.exists() {
            continue;
        }
        put(&place.folder.join("probes.csv"), &probes(&place, 0.035));
        let rate = place.point["learning_rate.base_lr"].as_f64().unwrap_or(0.1);
        let (noise, layers) = noise(&place, rate);
        put(&place.folder.join("noise.csv"), &noise);
        put(&place.folder.join("noise-layers.csv"), &layers);
        let config = place.folder.join("config.toml");
        let text = std::fs::read_to_string(&config).expect("a config");
        put(&config, &(text + "[probes]\nat_train_loss = 0.035\n"));
    }
    surfaces(&dir);
    dir
}

fn key(probe: Probe, quantity: &str, at: Option<f64>) -> ProbeKey {
    ProbeKey {
        probe,
        quantity: quantity.to_owned(),
        scope: String::new(),
        at,
    }
}

/// The text of the page in one line, as a reader sees it.
fn flat(page: &str) -> String {
    let words: Vec<&str> = page.split_whitespace().collect();
    words.join(" ").replace("> ", ">").replace(" <", "<")
}

#[test]
fn every_figure_and_table_says_at_which_comparison_it_stands() {
    let dir = full(&study("full"));
    let (probes, page) = write(&dir);
    let page = flat(&page);
    for text in [
        "<h2>Curvature and sharpness</h2>",
        "<h2>Gradient noise</h2>",
        "At equal epochs: after the last update, at epoch 10; training loss there",
        "Shown at equal epochs (epoch 10, training loss",
        "At equal training loss: at the first evaluation whose training loss is at most 0.035;",
        "training loss actually reached",
        "Dinh et al. 2017",
        "Hessian on 512 examples (batch statistics: batch)",
        "At equal epochs: mean ± half of the 95 % interval",
        "At equal training loss: mean ± half of the 95 % interval",
        "Generalization gap against sharpness, at equal epochs",
        "Generalization gap against sharpness, at equal training loss",
        "Curvature and sharpness against global batch, at equal epochs and at equal training loss",
        "density at equal epochs (share per unit of eigenvalue, log scale)",
        "sharpness, full space, ε = 0.001 (%)",
        "6 of 78",
        "Every eigenvalue",
        "relative flatness |w|² tr H of layers.0.weight",
        "Noise scale over training, at equal epochs",
        "Fieller",
        "Grey with a cross: 3 places without a finite loss.",
        "figure class=\"map\"",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for name in [
        "probe-eigenvalues-by-batch",
        "probe-density",
        "probe-curvature-by-batch",
        "probe-gap-at-the-end",
        "probe-gap-at-equal-loss",
        "probe-curvature-over-training",
        "probe-loss-line",
        "probe-loss-surface",
        "probe-noise-scale",
    ] {
        for ending in ["svg", "png"] {
            assert!(
                dir.join(format!("figures/{name}.{ending}")).is_file(),
                "{name}"
            );
        }
    }
    let end = probes.point(Moment::End, 0, 4096).expect("a point");
    let eigenvalue = end
        .get(&key(Probe::Hessian, "eigenvalue", Some(19.0)))
        .expect("rank 19");
    assert_eq!(
        (eigenvalue.values.len(), eigenvalue.not_converged()),
        (3, 3)
    );
    assert!(eigenvalue.estimate().is_some_and(|e| e.n == 3));
    assert_eq!(probes.epochs(Moment::End), Some((10.0, 10.0)));
}

#[test]
fn equal_loss_is_where_each_trial_first_reached_it_and_the_rest_are_counted() {
    let dir = full(&study("equal-loss"));
    let (probes, page) = write(&dir);
    let (mut reached, mut never) = (0, 0);
    for place in places(&dir) {
        let evaluations = evaluations(&place.folder);
        let Some(first) = evaluations.iter().find(|e| e.2 <= 0.035) else {
            never += 1;
            continue;
        };
        reached += 1;
        let point = probes
            .point(Moment::TrainLoss, 0, place.batch)
            .expect("a point");
        let of = |values: &[(u64, f64)]| values.iter().find(|v| v.0 == place.seed).map(|v| v.1);
        assert_eq!(of(&point.train_losses), Some(first.2));
        assert_eq!(of(&point.epochs), Some(first.1));
        assert!(of(&point.accuracy_gaps).is_some() && of(&point.loss_gaps).is_some());
    }
    assert!(reached > 0 && never > 0, "{reached} {never}");
    let sum = |of: fn(&analysis::ProbedPoint) -> usize| -> usize {
        probes.at(Moment::TrainLoss).map(of).sum()
    };
    assert_eq!((sum(|p| p.probed), sum(|p| p.never)), (reached, never));
    assert!(flat(&page).contains(&format!(
        "{never} of 12 trials never reached it, and are missing here."
    )));
}

#[test]
fn a_study_without_tables_of_probes_has_the_report_it_had() {
    let dir = study("without").write(&parent());
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    assert!(analysis.probes.is_none());
    let files = report::write(&dir, &analysis).expect("a report");
    let before = std::fs::read_to_string(&files.html).expect("a page");
    for text in ["Curvature", "Gradient noise", ".map"] {
        assert!(!before.contains(text), "{text}");
    }
    for place in places(&dir) {
        put(&place.folder.join("probes.csv"), &probes(&place, 0.035));
    }
    let (_, with) = write(&dir);
    assert!(with.contains("Curvature and sharpness"));
    assert!(dir.join("figures/probe-density.svg").is_file());
    for place in places(&dir) {
        #[expect(clippy::disallowed_methods, reason = "the test takes a table away")]
        std::fs::remove_file(place.folder.join("probes.csv")).expect("a table");
    }
    let analysis = analysis::generalization_gap(&dir).expect("sound tables");
    let files = report::write(&dir, &analysis).expect("a report");
    assert!(std::fs::read_to_string(&files.html).expect("a page") == before);
    assert!(!dir.join("figures/probe-density.svg").exists());
}

#[test]
fn what_was_undetermined_is_said_and_not_drawn_as_a_number() {
    let dir = study("undetermined").write(&parent());
    for place in places(&dir) {
        let value = if place.seed == 1 { "" } else { "250" };
        let simple = if place.batch == 64 {
            "NaN".to_owned()
        } else {
            value.to_owned()
        };
        let table = format!(
            "{PROBES}100,10,end,0.01,noise,b_simple,,,{simple},,,,,512,\n100,10,end,0.01,noise,tr_sigma,,,-3,,,,,512,\n"
        );
        put(&place.folder.join("probes.csv"), &table);
        // No window resolves the gradient.
        let rows = (1..=90).map(|step: u32| {
            let sign = if step.is_multiple_of(2) { 1.0 } else { -1.1 };
            format!(
                "{step},{},0,0.1,16,1,64,0.3,40,{sign},,,,,\n",
                f64::from(step) / 9.0
            )
        });
        put(
            &place.folder.join("noise.csv"),
            &(NOISE.to_owned() + &rows.collect::<String>()),
        );
    }
    let (probes, page) = write(&dir);
    let point = probes.point(Moment::End, 0, 64).expect("a point");
    let b_simple = point
        .get(&key(Probe::Noise, "b_simple", None))
        .expect("values");
    assert_eq!((b_simple.undetermined(), b_simple.estimate()), (3, None));
    let trace = point
        .get(&key(Probe::Noise, "tr_sigma", None))
        .expect("values");
    assert_eq!(trace.estimate().map(|e| e.mean), Some(-3.0));
    let page = flat(&page);
    for text in [
        ">undetermined<",
        "250.0 ± 0 (n = 2, 1 undetermined)",
        "undetermined (|G|² not positive)",
        "A cross below the plot",
        "Nothing was measured at equal training loss",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn an_exact_value_of_one_seed_is_called_so_and_has_no_interval() {
    let one_seed = Study {
        seeds: 1,
        ..study("exact")
    };
    let dir = one_seed.write(&parent());
    for place in places(&dir) {
        let error = if place.batch == 64 { "0" } else { "0.5" };
        let table = format!("{PROBES}100,10,end,0.01,hessian,trace,,,27.1,{error},,true,10,512,\n");
        put(&place.folder.join("probes.csv"), &table);
    }
    let (_, page) = write(&dir);
    let page = flat(&page);
    assert!(page.contains("27.10 (exact)"), "{page}");
    assert!(page.contains("27.10 ± 0.98"), "{page}");
    assert!(!page.contains("± 0 "), "{page}");
}

#[test]
fn rules_at_several_rates_have_a_noise_figure_each_and_one_batch_has_one_for_all() {
    let rates = |name, batches: Vec<u64>| Study {
        rule_keys: vec!["learning_rate.base_lr"],
        rules: vec![vec![json!(0.03)], vec![json!(0.1)], vec![json!(0.3)]],
        batches,
        outcome: |rule, batch, seed| {
            if rule == 2 && batch > 256 && seed == 2 {
                diverged()
            } else {
                plausible(rule, batch, seed)
            }
        },
        ..study(name)
    };
    let dir = full(&rates("rates", vec![64, 256, 1024]));
    let (_, page) = write(&dir);
    for name in [
        "probe-noise-scale-1-base-lr-0-03",
        "probe-noise-scale-3-base-lr-0-3",
    ] {
        assert!(dir.join(format!("figures/{name}.svg")).is_file(), "{name}");
    }
    assert!(flat(&page).contains("1 of 27 trials did not finish, and is missing here."));
    let dir = full(&rates("rates-one-batch", vec![256]));
    write(&dir);
    assert!(dir.join("figures/probe-noise-scale.svg").is_file());
    assert!(dir.join("figures/probe-eigenvalues-by-rank.svg").is_file());
    assert!(!dir.join("figures/probe-curvature-by-batch.svg").exists());
}

#[test]
fn budgets_that_differ_are_not_called_equal_epochs() {
    let dir = full(&Study {
        outcome: plausible,
        ..study("unequal")
    });
    for place in places(&dir).iter().filter(|p| p.batch == 64) {
        let path = place.folder.join("probes.csv");
        let text = std::fs::read_to_string(&path).expect("probes");
        put(&path, &text.replace(",10,end,", ",30,end,"));
    }
    let (_, page) = write(&dir);
    let page = flat(&page);
    assert!(
        page.contains("At the end of the runs, which is not at equal epochs here: 10 to 30 epochs")
    );
    assert!(!page.contains("density at equal epochs"));
}

#[test]
fn one_run_is_drawn_from_its_folder_alone() {
    let dir = full(&Study {
        batches: vec![256],
        seeds: 1,
        outcome: |rule, batch, seed| Outcome {
            ..plausible(rule, batch, seed)
        },
        ..study("one-run")
    });
    let run = places(&dir)[0].folder.clone();
    let after = std::fs::read_to_string(run.join("probes.csv")).expect("probes");
    put(&run.join("probes.csv"), &after.replace(",end,", ",after,"));
    surfaces(&run);
    let probes = analysis::probes_of_run(&run)
        .expect("sound tables")
        .expect("probes");
    let point = probes.at(Moment::End).next().expect("a point");
    assert!(point.get(&key(Probe::Hessian, "trace", None)).is_some());
    let folder = run.join("figures");
    let files = report::write_probe_figures(&folder, &probes).expect("figures");
    assert!(
        files.len() >= 10 && files.iter().all(|f| f.is_file()),
        "{files:?}"
    );
    // A figure that the tables no longer give goes; others stay.
    put(&folder.join("probe-old.svg"), "");
    put(&folder.join("mine.svg"), "");
    report::write_probe_figures(&folder, &probes).expect("figures");
    assert!(!folder.join("probe-old.svg").exists() && folder.join("mine.svg").exists());
    let empty = parent().join("empty");
    put(&empty.join("notes.txt"), "");
    assert_eq!(analysis::probes_of_run(&empty).expect("no table"), None);
}

#[test]
fn a_table_that_is_not_sound_is_refused_with_file_row_and_column() {
    let dir = study("unsound").write(&parent());
    let folder = places(&dir)[0].folder.clone();
    let refused = |name: &str, text: &str| {
        put(&folder.join(name), text);
        analysis::generalization_gap(&dir)
            .expect_err("refused")
            .to_string()
    };
    let row = |when: &str, probe: &str, value: &str, converged: &str| {
        format!("{PROBES}1,0.1,{when},0.5,{probe},trace,,,{value},,,{converged},,,\n")
    };
    for (name, text, parts) in [
        (
            "probes.csv",
            row("later", "hessian", "1", ""),
            ["row 1", "`when`", "\"later\""],
        ),
        (
            "probes.csv",
            row("end", "hesse", "1", ""),
            ["row 1", "`probe`", "\"hesse\""],
        ),
        (
            "probes.csv",
            row("end", "hessian", "one", ""),
            ["line 2", "`value`", "\"one\""],
        ),
        (
            "probes.csv",
            row("end", "hessian", "1", "yes"),
            ["row 1", "`converged`", "\"yes\""],
        ),
        (
            "probes.csv",
            "step,epoch\n1,2\n".to_owned(),
            ["probes.csv", "no column", "`when`"],
        ),
        (
            "noise.csv",
            "step,epoch\n1,2\n".to_owned(),
            ["noise.csv", "no column", "`lr`"],
        ),
        (
            "probes/line.csv",
            "alpha,split,loss,accuracy\n,train,1,\n".to_owned(),
            ["row 1", "`alpha`", "a finite number"],
        ),
        (
            "probes/line.csv",
            "alpha,split,loss,accuracy\n0,all,1,\n".to_owned(),
            ["row 1", "`split`", "\"all\""],
        ),
        (
            "probes/plane.csv",
            "alpha,beta,loss\n0,x,1\n".to_owned(),
            ["line 2", "`beta`", "\"x\""],
        ),
    ] {
        let error = refused(name, &text);
        for part in parts.iter().chain([&name]) {
            assert!(error.contains(part), "{part} in {error}");
        }
        #[expect(clippy::disallowed_methods, reason = "the test takes a table away")]
        std::fs::remove_file(folder.join(name)).expect("a table");
    }
}
