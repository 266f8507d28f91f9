//! Updates that are not synchronous (`train.update`), and updates that several ranks share: here ranks
//! are threads; `tests/mpi.rs` has the same over MPI.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use batchlab::collective::{Ranks, on_threads};
use batchlab::config::TrialConfig;
use batchlab::data::{self, Data};
use batchlab::model::Registry;
use batchlab::objective::Objective;
use batchlab::theory::delay::Delayed;
use batchlab::theory::staleness::{Discipline, Simulation, Summary};
use batchlab::train::{Control, Places, Pool, Session, TrainError, TrialOutcome, run_trial};
use serde_json::{Value, json};

const STEPS: u64 = 12;

const STEPS_OF_QUADRATIC: usize = 150;

/// A trial on the digits, with these keys in `[train]`.
fn trial(model: &Value, optimizer: &Value, train: &Value) -> (TrialConfig, Data) {
    let mut keys = json!({"workers": 5, "global_batch": 40, "steps": STEPS});
    for (key, value) in train.as_object().unwrap() {
        keys[key] = value.clone();
    }
    let config: TrialConfig = serde_json::from_value(json!({
        "data": {"source": {"digits": {}}, "subset": 300},
        "model": model,
        "optimizer": optimizer,
        "train": keys,
        "learning_rate": {"base_lr": 0.05},
    }))
    .unwrap();
    let data = data::load(&config.data, Path::new("data")).unwrap();
    (config, data)
}

fn mlp() -> Value {
    json!({"mlp": {"widths": [20, 12]}})
}

fn momentum() -> Value {
    json!({"momentum": {"momentum": 0.9}})
}

/// What a run comes to: parameters and losses, as bits.
#[derive(Debug, PartialEq)]
struct Run {
    parameters: Vec<u32>,
    losses: Vec<u64>,
    scores: Vec<u64>,
}

fn run(config: &TrialConfig, data: &Data, ranks: Option<&dyn Ranks>, threads: usize) -> Run {
    let model = Registry::new().build(config, data).unwrap();
    let objective: &dyn Objective<f32> = &*model;
    // The pool's work may borrow the ranks for as long as the pool lives.
    Pool::with(threads, |pool| {
        let mut session = Session::new(config, data, objective, pool).unwrap();
        if let Some(ranks) = ranks {
            session = session.with_ranks(ranks).unwrap();
        }
        let mut losses = Vec::new();
        while !session.is_over() {
            losses.push(session.step().unwrap().loss.to_bits());
        }
        let statistics = session.statistics().unwrap();
        let split = batchlab::config::Split::Train;
        let scores = session.evaluate(split, &statistics).unwrap().unwrap();
        Run {
            parameters: session.parameters().iter().map(|p| p.to_bits()).collect(),
            losses,
            scores: vec![scores.loss.to_bits(), scores.accuracy.unwrap().to_bits()],
        }
    })
}

fn updates() -> Vec<Value> {
    vec![
        json!("synchronous"),
        json!({"stale": {"delay": 1}}),
        json!({"stale": {"delay": 3, "divide_rate": true, "correct_momentum": true}}),
        json!({"stale": {"delay": 40}}),
        json!({"pipeline": {"stages": 3}}),
        json!({"pipeline": {"stages": 2, "schedule": "both-each-slot"}}),
        json!({"asynchronous": {"replicas": 4}}),
        json!({"asynchronous": {"replicas": 3, "bound": 1, "times": {"lognormal": {"cv": 0.5}},
            "stragglers": [[1, 4.0]], "deaths": [[0, 5.0]], "divide_rate": true}}),
    ]
}

#[test]
fn no_delay_has_the_bits_of_synchronous_updates() {
    let (config, data) = trial(&mlp(), &momentum(), &json!({}));
    let synchronous = run(&config, &data, None, 1);
    for update in [
        json!({"stale": {"delay": 0}}),
        json!({"stale": {"delay": 0, "divide_rate": true, "correct_momentum": true}}),
        json!({"asynchronous": {"replicas": 1}}),
        json!({"pipeline": {"stages": 1}}),
        json!({"pipeline": {"stages": 3, "schedule": "flush"}}),
    ] {
        let (config, data) = trial(&mlp(), &momentum(), &json!({"update": update}));
        assert_eq!(run(&config, &data, None, 1), synchronous, "{update}");
    }
    let (config, data) = trial(
        &mlp(),
        &momentum(),
        &json!({"update": {"stale": {"delay": 1}}}),
    );
    assert_ne!(run(&config, &data, None, 1), synchronous);
}

#[test]
fn every_kind_of_update_has_the_same_bits_on_any_number_of_threads_and_ranks() {
    for update in updates() {
        let (config, data) = trial(&mlp(), &momentum(), &json!({"update": update}));
        let alone = run(&config, &data, None, 1);
        assert_eq!(run(&config, &data, None, 3), alone, "{update}");
        for size in [1, 2, 3, 4, 7] {
            let runs = on_threads(size, |ranks| run(&config, &data, Some(ranks), 1)).unwrap();
            for found in runs {
                assert_eq!(found, alone, "{update} on {size} ranks");
            }
        }
    }
}

#[test]
fn models_and_measurements_of_every_kind_have_the_same_bits_on_ranks() {
    let batch_norm = json!({"mlp": {"widths": [12], "normalization": "batch"}});
    let noise = json!({"noise": {"every_steps": 2, "layers": true, "cosine": true}});
    let adamw = json!({"adamw": {}});
    let controller = json!({"min_batch": 20, "max_batch": 80, "controller": {"cabs": {}}});
    for (model, optimizer, train, probes, controller) in [
        (&batch_norm, &momentum(), json!({}), &json!({}), None),
        (
            &batch_norm,
            &momentum(),
            json!({"batch_statistics": {"ema": {}}, "update": {"stale": {"delay": 2}}}),
            &json!({}),
            None,
        ),
        (&mlp(), &adamw, json!({"clip_norm": 0.5}), &noise, None),
        (
            &mlp(),
            &adamw,
            json!({"update": {"stale": {"delay": 2}}}),
            &noise,
            None,
        ),
        (
            &mlp(),
            &json!({"sgd": {}}),
            json!({"steps": null, "examples": 1200}),
            &json!({}),
            Some(&controller),
        ),
    ] {
        let (mut config, data) = trial(model, optimizer, &train);
        config.probes = serde_json::from_value(probes.clone()).unwrap();
        if let Some(controller) = controller {
            config.batch = serde_json::from_value(controller.clone()).unwrap();
        }
        let alone = run(&config, &data, None, 1);
        assert!(!alone.losses.is_empty());
        for size in [2, 3] {
            let runs = on_threads(size, |ranks| run(&config, &data, Some(ranks), 1)).unwrap();
            for found in runs {
                assert_eq!(found, alone, "{model} {train} on {size} ranks");
            }
        }
    }
}

#[test]
fn a_native_reduction_is_equal_on_all_ranks_and_near_the_ordered_one() {
    let (config, data) = trial(&mlp(), &momentum(), &json!({"reduction": "native"}));
    let (ordered, _) = trial(&mlp(), &momentum(), &json!({}));
    let ordered = run(&ordered, &data, None, 1);
    assert_eq!(run(&config, &data, None, 1), ordered, "one process");
    let runs = on_threads(3, |ranks| run(&config, &data, Some(ranks), 1)).unwrap();
    for found in &runs {
        assert_eq!(*found, runs[0]);
        for (a, b) in found.parameters.iter().zip(&ordered.parameters) {
            let (a, b) = (f32::from_bits(*a), f32::from_bits(*b));
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
    }
}

#[test]
fn batch_statistics_over_all_workers_are_refused_on_several_ranks() {
    let model = json!({"mlp": {"widths": [12], "normalization": "batch"}});
    let (config, data) = trial(&model, &momentum(), &json!({"statistics_group": "global"}));
    let refused = on_threads(2, |ranks| {
        let model = Registry::new().build(&config, &data).unwrap();
        let objective: &dyn Objective<f32> = &*model;
        Pool::with(1, |pool| {
            let session = Session::new(&config, &data, objective, pool).unwrap();
            session.with_ranks(ranks).err().map(|e| e.to_string())
        })
    });
    for message in refused.unwrap() {
        assert!(message.unwrap().contains("train.statistics_group"));
    }
}

/// Differences between two runs with the same noise and different starts: on a quadratic they follow
/// d_(t+1) = d_t - lr h d_(t-k) exactly, for the noise cancels.
#[test]
fn on_a_quadratic_late_gradients_follow_their_recurrence_and_its_limit() {
    for delay in [0, 1, 2, 5] {
        let limit = Delayed::plain(delay).limit();
        for (lr, stable) in [(0.9 * limit, true), (1.1 * limit, false)] {
            let config: TrialConfig = serde_json::from_value(json!({
                "data": {"source": {"noisy-quadratic": {"dimension": 3}}},
                "model": {"noisy-quadratic": {}},
                "optimizer": {"sgd": {}},
                "train": {"workers": 2, "global_batch": 8, "steps": 400, "precision": "f64",
                    "divergence_loss": 1e300,
                    "update": {"stale": {"delay": delay}}},
                "learning_rate": {"base_lr": lr},
            }))
            .unwrap();
            let data = data::load(&config.data, Path::new("data")).unwrap();
            let model = Registry::new().build(&config, &data).unwrap();
            let objective: &dyn Objective<f64> = &*model;
            let ends: Vec<Vec<f64>> = [1.0, 2.0]
                .into_iter()
                .map(|start| {
                    Pool::with(1, |pool| {
                        let mut session = Session::new(&config, &data, objective, pool).unwrap();
                        session.set_parameters(vec![start; 3]);
                        for _ in 0..STEPS_OF_QUADRATIC {
                            session.step().unwrap();
                        }
                        session.parameters().to_vec()
                    })
                })
                .collect();
            for (i, (one, two)) in ends[0].iter().zip(&ends[1]).enumerate() {
                let h = 1.0 / (i + 1) as f64;
                let mut past = vec![1.0; delay as usize + 1];
                for _ in 0..STEPS_OF_QUADRATIC {
                    let late = past[past.len() - 1 - delay as usize];
                    past.push(past.last().unwrap() - lr * h * late);
                }
                let (found, expected) = (two - one, *past.last().unwrap());
                let scale = two.abs().max(1.0);
                assert!(
                    (found - expected).abs() < 1e-10 * scale,
                    "{found} {expected}"
                );
                if i == 0 {
                    let swing = |part: &[f64]| part.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                    let (before, after) = past[past.len() - 80..].split_at(40);
                    let shrinks = swing(after) < swing(before);
                    assert_eq!(shrinks, stable, "delay {delay}, rate {lr}");
                }
            }
        }
    }
}

#[test]
fn stages_of_a_pipeline_are_late_by_their_schedule() {
    // Three layers in three stages, delays 2, 1, 0: the gradient of update t is taken where the first
    // layer is two updates old and the second one.
    let update = json!({"pipeline": {"stages": 3}});
    let (config, data) = trial(&mlp(), &json!({"sgd": {}}), &json!({"update": update}));
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f32> = &*model;
    let ends: Vec<usize> = ["layers.0.bias", "layers.1.bias", "layers.2.bias"]
        .iter()
        .map(|name| {
            let mut all = objective.layout().parameters.iter();
            all.find(|p| p.name == *name).unwrap().range.end
        })
        .collect();
    let (synchronous, _) = trial(&mlp(), &json!({"sgd": {}}), &json!({}));
    Pool::with(1, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        let mut other = Session::new(&synchronous, &data, objective, pool).unwrap();
        let mut past = vec![session.parameters().to_vec()];
        for t in 0..6_usize {
            session.step().unwrap();
            let mut point = past[t].clone();
            point[..ends[0]].copy_from_slice(&past[t.saturating_sub(2)][..ends[0]]);
            let second = ends[0]..ends[1];
            point[second.clone()].copy_from_slice(&past[t.saturating_sub(1)][second]);
            // One plain update from that point shows its gradient.
            other.set_parameters(point.clone());
            other.step().unwrap();
            let moved = other.parameters().iter().zip(&point);
            let expected: Vec<f32> = past[t]
                .iter()
                .zip(moved)
                .map(|(p, (after, before))| p + (after - before))
                .collect();
            for (found, expected) in session.parameters().iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
            past.push(session.parameters().to_vec());
        }
    });
}

/// What momentum and rate a late gradient is applied with, by runs that are given them.
#[test]
fn corrections_of_rate_and_momentum_are_those_of_their_formulas() {
    let run_with = |update: &Value, lr: f64, momentum: f64| {
        let optimizer = json!({"momentum": {"momentum": momentum}});
        let (mut config, data) = trial(&mlp(), &optimizer, &json!({"update": update}));
        config.learning_rate.base_lr = lr;
        run(&config, &data, None, 1)
    };
    // 0.9/(1 - 0.9) - 3 = 6 = m/(1 - m), and a third of the rate.
    let corrected = run_with(
        &json!({"stale": {"delay": 3, "correct_momentum": true}}),
        0.05,
        0.9,
    );
    let m = batchlab::theory::staleness::corrected_momentum(0.9, 3.0);
    assert!((m - 6.0 / 7.0).abs() < 1e-14);
    assert_eq!(
        corrected,
        run_with(&json!({"stale": {"delay": 3}}), 0.05, m)
    );
    let divided = run_with(
        &json!({"stale": {"delay": 3, "divide_rate": true}}),
        0.3,
        0.9,
    );
    assert_eq!(
        divided,
        run_with(&json!({"stale": {"delay": 3}}), 0.3 / 3.0, 0.9)
    );
    assert_ne!(divided, corrected);
}

/// The updates of an asynchronous run, one after the other, from gradients of plain updates at the
/// versions that the events of the clock name.
#[test]
fn an_asynchronous_run_applies_the_gradients_that_its_events_name() {
    let update =
        json!({"asynchronous": {"replicas": 4, "stragglers": [[2, 3.0]], "divide_rate": true}});
    let train = json!({"update": update, "steps": 40});
    let (config, data) = trial(&mlp(), &json!({"sgd": {}}), &train);
    let (synchronous, _) = trial(&mlp(), &json!({"sgd": {}}), &json!({"steps": 40}));
    let (workers, server) = config.train.update.cluster().unwrap();
    let mut streams: Vec<_> = (0..4)
        .map(|replica| batchlab::rng::Stream::new(config.seed, "gradient-times", replica))
        .collect();
    let draw = |replica: usize| streams[replica].uniform();
    let clock = Simulation::new(&workers, Discipline::Asynchronous, server, draw).unwrap();
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f32> = &*model;
    Pool::with(1, |pool| {
        let mut session = Session::new(&config, &data, objective, pool).unwrap();
        let mut plain = Session::new(&synchronous, &data, objective, pool).unwrap();
        let mut versions = vec![session.parameters().to_vec()];
        for event in clock.take(40) {
            session.step().unwrap();
            let at = &versions[event.read as usize];
            plain.set_parameters(at.clone());
            plain.step().unwrap();
            let share = 1.0 / event.staleness().max(1) as f32;
            let last = versions.last().unwrap();
            let moved = plain.parameters().iter().zip(at);
            let expected = last.iter().zip(moved);
            let expected = expected.map(|(p, (a, b))| p + share * (a - b));
            for (found, expected) in session.parameters().iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
            versions.push(session.parameters().to_vec());
        }
    });
}

#[test]
fn a_pipeline_of_more_stages_than_layers_is_refused() {
    let update = json!({"pipeline": {"stages": 4}});
    let (config, data) = trial(&mlp(), &momentum(), &json!({"update": update}));
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f32> = &*model;
    let refused = Pool::with(1, |pool| {
        Session::new(&config, &data, objective, pool).err()
    });
    let message = refused.unwrap().to_string();
    assert!(
        message.contains("train.update.pipeline.stages: 4"),
        "{message}"
    );
    assert!(message.contains("use at most 3"), "{message}");
}

/// A whole trial in `folder`, on as many ranks, from its checkpoint if it has one; stopped once after
/// `stop` updates.
fn trial_in(
    folder: &Path,
    config: &TrialConfig,
    data: &Data,
    size: usize,
    stop: Option<u64>,
) -> Option<TrialOutcome> {
    let model = Registry::new().build(config, data).unwrap();
    let model = &*model;
    let outcomes = on_threads(size, |ranks| {
        let stopped = AtomicBool::new(false);
        let made = AtomicU64::new(0);
        // One rank alone is told to stop; all of them do.
        let told = ranks.rank() + 1 == ranks.size();
        let progress = |_: u64, _: u64, _: f64| {
            let made = made.fetch_add(1, Ordering::Relaxed) + 1;
            if told && stop == Some(made) {
                stopped.store(true, Ordering::Relaxed);
            }
        };
        let control = Control {
            threads: 1,
            stop: &stopped,
            checkpoint_seconds: 1e9,
            progress: &progress,
            ranks: (ranks.size() > 1).then_some(ranks),
        };
        let places = Places {
            folder: if ranks.rank() == 0 {
                folder
            } else {
                Path::new("/nowhere")
            },
            run_id: "trial",
        };
        match run_trial::<f32>(config, data, model, model, model, places, control) {
            Ok(outcome) => Some(outcome),
            Err(TrainError::Interrupted { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    });
    let mut outcomes = outcomes.unwrap();
    outcomes.swap_remove(0)
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_run_that_was_stopped_ends_in_the_same_bytes_on_other_ranks() {
    for update in updates() {
        let train = json!({"update": update, "averaging": {"ema": {"decay": 0.5}}});
        let (config, data) = trial(&mlp(), &momentum(), &train);
        let whole = tempfile::tempdir().unwrap();
        let expected = trial_in(whole.path(), &config, &data, 1, None).unwrap();
        for (size, stop, then) in [(1, 5, 1), (3, 4, 1), (1, 7, 2), (2, 1, 3)] {
            let folder = tempfile::tempdir().unwrap();
            let first = trial_in(folder.path(), &config, &data, size, Some(stop));
            assert_eq!(first, None, "{update}");
            let outcome = trial_in(folder.path(), &config, &data, then, None).unwrap();
            assert_eq!(outcome, expected, "{update}");
            assert!(
                files(folder.path()) == files(whole.path()),
                "{update}: files of {size} ranks, then {then}"
            );
        }
    }
}

#[test]
fn the_staleness_of_a_run_is_that_of_its_simulated_clock() {
    let update = json!({"asynchronous": {"replicas": 4, "times": "exponential", "seconds": 2.0,
        "stragglers": [[3, 5.0]]}});
    let train = json!({"update": update, "steps": 50});
    let (config, data) = trial(&mlp(), &json!({"sgd": {}}), &train);
    let folder = tempfile::tempdir().unwrap();
    let outcome = trial_in(folder.path(), &config, &data, 1, None).unwrap();
    let found = outcome.staleness.unwrap();
    let (workers, server) = config.train.update.cluster().unwrap();
    let mut streams: Vec<_> = (0..4)
        .map(|replica| batchlab::rng::Stream::new(config.seed, "gradient-times", replica))
        .collect();
    let draw = |replica: usize| streams[replica].uniform();
    let events: Vec<_> = Simulation::new(&workers, Discipline::Asynchronous, server, draw)
        .unwrap()
        .take(50)
        .collect();
    let summary = Summary::of(&events);
    assert_eq!(found.histogram, summary.histogram);
    assert_eq!(found.seconds, summary.seconds);
    assert_eq!(found.by_replica.iter().sum::<u64>(), 50);
    assert!(found.by_replica[3] < found.by_replica[0]);
    let table = std::fs::read_to_string(folder.path().join("staleness.csv")).unwrap();
    assert_eq!(table.lines().count(), 51);
    let last = events.last().unwrap();
    let row = format!("50,{},{},{}", last.time, last.worker, last.staleness());
    assert_eq!(table.lines().last().unwrap(), row);
}

#[test]
fn a_run_whose_replicas_are_all_dead_ends_and_says_so() {
    let update = json!({"asynchronous": {"replicas": 2, "times": "constant",
        "deaths": [[0, 3.5], [1, 5.5]]}});
    let (config, data) = trial(&mlp(), &json!({"sgd": {}}), &json!({"update": update}));
    let folder = tempfile::tempdir().unwrap();
    let outcome = trial_in(folder.path(), &config, &data, 1, None).unwrap();
    assert_eq!(outcome.steps, 8);
    assert_eq!(outcome.status, batchlab::train::Status::Censored);
    let message = outcome.message.unwrap();
    assert!(message.contains("no replica sends gradients"), "{message}");
}
