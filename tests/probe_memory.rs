//! Memory under many probes, in a process of its own so that no other test's memory counts.

use std::path::Path;

use batchlab::config::{
    HessianProbe, NoiseProbe, ProbesConfig, Products, SharpnessProbe, TrialConfig,
};
use batchlab::data;
use batchlab::model::Registry;
use batchlab::objective::Objective;
use batchlab::probe::{Probed, Subject, SubjectOptions, SubjectStatistics, run};
use batchlab::train::Pool;
use serde_json::json;

/// Most bytes that a hundred probes may add. One parameter vector is 75 KiB, a graph of 512 examples more
/// than a megabyte; a hundred of either would show.
const LIMIT: usize = 4 << 20;

/// Bytes of this process in memory.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// A known fault of tools that keep the graph of the gradient: memory grows with every minibatch.
#[test]
fn a_hundred_probes_need_no_more_memory_than_ten() {
    let config: TrialConfig = serde_json::from_value(json!({
        "data": {"source": {"digits": {}}},
        "model": {"mlp": {"widths": [64, 64]}},
        "train": {"global_batch": 32, "steps": 1},
        "learning_rate": {"base_lr": 0.1},
    }))
    .unwrap();
    let data = data::load(&config.data, Path::new("")).unwrap();
    let model = Registry::new().build(&config, &data).unwrap();
    let objective: &dyn Objective<f64> = &*model;
    let parameters: Vec<f64> = objective.initial(1);
    let probes = ProbesConfig {
        hessian: Some(HessianProbe {
            largest: 3,
            smallest: 1,
            max_products: 30,
            trace_products: 30,
            ..HessianProbe::default()
        }),
        sharpness: Some(SharpnessProbe {
            iterations: 2,
            subspace: 5,
            flatness_products: 4,
            ..SharpnessProbe::default()
        }),
        noise: Some(NoiseProbe {
            exact: true,
            hessian_pieces: 4,
            ..NoiseProbe::default()
        }),
        ..ProbesConfig::default()
    };
    let grown = Pool::with(2, |pool| {
        let mut growth = Vec::new();
        let mut before = None;
        for round in 0..310 {
            let options = SubjectOptions {
                examples: 512,
                seed: 0,
                statistics: SubjectStatistics::Frozen(Vec::new()),
                l2: None,
                products: Products::Auto,
            };
            let mut subject = Subject::new(objective, &data, pool, options).unwrap();
            let probed = Probed {
                parameters: &parameters,
                metric: None,
            };
            run(&mut subject, &probes, &probed, &mut |_| {}).unwrap();
            if round % 100 == 9 {
                let now = resident();
                // Elsewhere than on Linux nothing is known.
                if round > 9 {
                    growth.push(now.zip(before).map_or(0, |(a, b)| a.saturating_sub(b)));
                }
                if growth.last().is_some_and(|grown| *grown < LIMIT) {
                    break;
                }
                before = now;
            }
        }
        growth
    });
    // What is kept of each probe grows with every hundred of them; what the allocator takes at once, now
    // and then, does not.
    let last = grown.last().copied().unwrap_or(0);
    assert!(last < LIMIT, "{grown:?} bytes more in each hundred");
}
