//! Probes of real networks: their numbers against those of PyTorch's tools on the same weights and
//! examples (`tests/reference/curvature.py`), and what must hold of them for any network, whatever
//! the threads, the pieces, the batch statistics or the products.

#[expect(dead_code, reason = "the examples of other tests")]
mod reference_data;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use batchlab::config::{
    self, AdversarialProbe, BlockKind, DensityProbe, HessianProbe, NoiseProbe, ProbesConfig,
    Products, SharpnessProbe, TraceMethod, TrialConfig,
};
use batchlab::data::order::{pieces, shards};
use batchlab::data::{self, Data, Examples};
use batchlab::math::density::{DensitySearch, spectral_density};
use batchlab::math::lanczos::{EigenPair, EigenSearch, eigenpairs};
use batchlab::math::noise_scale::Undetermined;
use batchlab::math::trace::{
    TraceSearch, block_traces, hutch_plus_plus, hutchinson, krylov_deflated,
};
use batchlab::model::{AnyObjective, Dual, Forward, Network, Registry, weights};
use batchlab::objective::{
    Batch, LayerStatistics, Layout, Objective, ObjectiveError, Role, StatisticsMode,
    population_statistics_at,
};
use batchlab::probe::noise::{LayerGradients, example_noise, inner_products, piece_noise};
use batchlab::probe::{
    self, Curvature, Landscape, ProbeError, Probed, Row, Subject, SubjectOptions,
    SubjectStatistics, sharpness,
};
use batchlab::rng::Stream;
use batchlab::train::{Pool, Session};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};
use reference_data::reference;
use safetensors::SafeTensors;
use serde_json::Value;

const EXAMPLES: usize = 97;

const MATRICES: [(Curvature, &str); 2] = [
    (Curvature::Hessian, "hessian"),
    (Curvature::GaussNewton, "gauss_newton"),
];

// ---------------------------------------------------------------------------------------------
// A network of tests/reference/curvature.py.

struct Peer {
    name: &'static str,
    facts: Value,
    data: Data,
    model: Box<dyn AnyObjective>,
    at: Vec<f64>,
    statistics: Vec<LayerStatistics>,
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    let chunks = bytes.chunks_exact(8);
    chunks
        .map(|c| f64::from_le_bytes(c.try_into().unwrap()))
        .collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().unwrap();
    list.iter().map(|x| x.as_f64().unwrap()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// JSON as TOML on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{k} = {}", inline(v)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

fn peers() -> impl Iterator<Item = Peer> {
    let names = ["softmax", "mlp-tanh", "mlp-relu", "mlp-batch-norm", "cnn"];
    names.into_iter().map(Peer::new)
}

impl Peer {
    fn new(name: &'static str) -> Self {
        let all: Value = serde_json::from_slice(&reference("curvature.json")).unwrap();
        let facts = all["models"][name].clone();
        let bytes = reference("curvature-examples.safetensors");
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let inputs = file.tensor(facts["inputs"].as_str().unwrap()).unwrap();
        let single = |x: f64| {
            let single = x as f32;
            assert_eq!(
                f64::from(single),
                x,
                "the inputs are exact in both precisions"
            );
            single
        };
        let labels = file.tensor("labels").unwrap();
        let shape = match facts["image"].as_bool() {
            Some(true) => vec![1, 8, 8],
            _ => vec![inputs.shape()[1]],
        };
        let data = Data {
            name: name.to_owned(),
            shape,
            classes: 10,
            train: Examples {
                features: doubles(inputs.data()).into_iter().map(single).collect(),
                labels: labels.data().iter().map(|&l| u32::from(l)).collect(),
            },
            validation: None,
            test: None,
            fresh: None,
            files: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(data.train.len(), EXAMPLES);
        let (config, _) = trial(&[&format!("model={}", inline(&facts["model"]))]);
        let model = Registry::new().build(&config, &data).unwrap();
        let file = reference(&format!("curvature-{name}.safetensors"));
        let (at, statistics) = weights::from_bytes::<f64>(&*model, &file).unwrap();
        assert_eq!(at.len() as u64, facts["parameters"].as_u64().unwrap());
        Self {
            name,
            facts,
            data,
            model,
            at,
            statistics,
        }
    }

    /// A vector of curvature-vectors.safetensors, in the layout of the model.
    fn stored(&self, what: &str) -> Vec<f64> {
        let bytes = reference("curvature-vectors.safetensors");
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let prefix = format!("{}/{what}/", self.name);
        let own = file.tensors().into_iter().filter_map(|(name, tensor)| {
            let name = name.strip_prefix(&prefix)?;
            Some((name.to_owned(), tensor))
        });
        let bytes = safetensors::serialize(own, None).unwrap();
        weights::from_bytes::<f64>(&*self.model, &bytes).unwrap().0
    }

    fn layout(&self) -> &Layout {
        Objective::<f64>::layout(&*self.model)
    }

    /// The largest magnitude of an eigenvalue.
    fn scale(&self, matrix: &str) -> f64 {
        let end = |end: &str| numbers(&self.facts[matrix][end])[0].abs();
        end("top").max(end("bottom"))
    }

    /// How many of the smallest eigenvalues to look for: 20, or none where many are 0 to rounding
    /// and have no ranks to be found by (as the script does not ask ARPACK for them either).
    fn smallest(&self, matrix: &str) -> usize {
        let twentieth = numbers(&self.facts[matrix]["bottom"])[19];
        if twentieth < -1e-4 * self.scale(matrix) {
            20
        } else {
            0
        }
    }

    /// Runs `body` on the subject of all examples.
    fn subject<R>(&self, body: impl FnOnce(&mut Subject<'_, '_>) -> R) -> R {
        let options = frozen(EXAMPLES, self.statistics.clone());
        with_subject(&*self.model, &self.data, 1, options, body)
    }

    fn rows(&self, probes: &ProbesConfig, metric: Option<Vec<f64>>) -> Vec<Row> {
        let probed = Probed {
            parameters: &self.at,
            metric,
        };
        self.subject(|subject| probe::run(subject, probes, &probed, &mut |_| {}).unwrap())
    }
}

fn frozen(examples: usize, statistics: Vec<LayerStatistics>) -> SubjectOptions {
    SubjectOptions {
        examples,
        seed: 3,
        statistics: SubjectStatistics::Frozen(statistics),
        l2: None,
        products: Products::Auto,
    }
}

fn with_subject<'env, R>(
    model: &'env dyn AnyObjective,
    data: &'env Data,
    threads: usize,
    options: SubjectOptions,
    body: impl FnOnce(&mut Subject<'_, 'env>) -> R,
) -> R {
    let objective: &'env dyn Objective<f64> = model;
    Pool::with(threads, |pool| {
        let mut subject = Subject::new(objective, data, pool, options).unwrap();
        body(&mut subject)
    })
}

// ---------------------------------------------------------------------------------------------
// Other networks and their data.

/// An MLP on the digits; `lines` join or replace what is here, as `--set` does.
fn trial(lines: &[&str]) -> (TrialConfig, Data) {
    let base = r#"
        [data]
        source = "digits"
        [model.mlp]
        widths = [8]
        activation = "tanh"
        [train]
        workers = 2
        global_batch = 16
        epochs = 1
        [learning_rate]
        base_lr = 0.05
        base_batch = 16
    "#;
    let set: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let study = config::parse(base, "probes.toml", &set).unwrap_or_else(|e| panic!("{e}"));
    let config = study.trials[0].config.clone();
    let data = data::load(&config.data, Path::new("data")).unwrap();
    (config, data)
}

/// A model of [`trial`], at initial parameters that are moved a little.
struct Own {
    config: TrialConfig,
    data: Data,
    model: Box<dyn AnyObjective>,
    at: Vec<f64>,
}

impl Own {
    fn new(lines: &[&str]) -> Self {
        Self::of(&Registry::new(), lines)
    }

    fn of(registry: &Registry, lines: &[&str]) -> Self {
        let (config, data) = trial(lines);
        let model = registry.build(&config, &data).unwrap();
        let initial = Objective::<f64>::initial(&*model, 5);
        let moved = initial.iter().zip(normal(1, initial.len()));
        let at = moved.map(|(t, z)| t + 0.1 * z).collect();
        Self {
            config,
            data,
            model,
            at,
        }
    }

    fn objective(&self) -> &dyn Objective<f64> {
        &*self.model
    }

    /// Exact inference statistics in groups of 50.
    fn statistics(&self) -> Vec<LayerStatistics> {
        Pool::with(1, |pool| {
            population_statistics_at(self.objective(), &self.data, (pool, None), &self.at, 50, 0)
                .unwrap()
        })
    }

    fn subject<R>(
        &self,
        threads: usize,
        options: SubjectOptions,
        body: impl FnOnce(&mut Subject<'_, '_>) -> R,
    ) -> R {
        with_subject(&*self.model, &self.data, threads, options, body)
    }

    fn batch(&self, ids: &[u64], groups: &[usize]) -> Batch<f64> {
        Batch::gather(&self.data, &self.data.train, ids, groups)
    }
}

fn normal(index: u64, n: usize) -> Vec<f64> {
    let mut stream = Stream::new(23, "probes-test", index);
    (0..n).map(|_| stream.normal()).collect()
}

fn draw(index: u64) -> impl FnMut(&mut [f64]) {
    let mut stream = Stream::new(29, "probes-test-draw", index);
    move |v: &mut [f64]| v.fill_with(|| stream.normal())
}

fn signs(index: u64) -> impl FnMut(&mut [f64]) {
    let mut stream = Stream::new(31, "probes-test-signs", index);
    move |v: &mut [f64]| v.fill_with(|| if stream.uniform() < 0.5 { 1.0 } else { -1.0 })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| x - y).collect()
}

/// a + s b.
fn plus(a: &[f64], s: f64, b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(x, y)| x + s * y).collect()
}

#[track_caller]
fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let error = norm(&minus(found, expected)) / norm(expected).max(f64::MIN_POSITIVE);
    assert!(error <= tolerance, "{what}: off by {error:e}");
}

#[track_caller]
fn near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{what}: {found} instead of {expected}, off by {:e}",
        found - expected
    );
}

/// An estimate of something known; 4 standard errors by chance: 1 in 16,000.
#[track_caller]
fn within(what: &str, found: f64, standard_error: Option<f64>, expected: f64) {
    let error = standard_error.unwrap_or_else(|| panic!("{what}: no standard error"));
    near(what, found, expected, 4.0 * error + 1e-10 * expected.abs());
}

fn product(subject: &Subject<'_, '_>, at: &[f64], of: Curvature, v: &[f64]) -> Vec<f64> {
    // What was there is overwritten.
    let mut product = vec![f64::NAN; v.len()];
    let mut point = subject.at(at).unwrap();
    point.product(of, v, &mut product).unwrap();
    product
}

fn gradient(subject: &Subject<'_, '_>, at: &[f64]) -> (f64, Vec<f64>) {
    let mut gradient = vec![f64::NAN; at.len()];
    let loss = subject.at(at).unwrap().gradient(&mut gradient).unwrap();
    (loss, gradient)
}

/// The rows of a quantity.
fn rows_of<'r>(rows: &'r [Row], probe: &str, quantity: &str, scope: &str) -> Vec<&'r Row> {
    rows.iter()
        .filter(|row| row.probe == probe && row.quantity == quantity && row.scope == scope)
        .collect()
}

/// The only row of a quantity.
#[track_caller]
fn row_of<'r>(rows: &'r [Row], probe: &str, quantity: &str, scope: &str) -> &'r Row {
    match rows_of(rows, probe, quantity, scope).as_slice() {
        [row] => row,
        found => panic!("{probe} {quantity} {scope}: {} rows", found.len()),
    }
}

#[track_caller]
fn value_of(rows: &[Row], probe: &str, quantity: &str, scope: &str) -> f64 {
    let row = row_of(rows, probe, quantity, scope);
    row.value
        .unwrap_or_else(|| panic!("{probe} {quantity} {scope}: no value"))
}

// ---------------------------------------------------------------------------------------------
// A. Against PyTorch's tools.

#[test]
fn losses_gradients_and_products_are_those_of_pytorch() {
    for peer in peers() {
        let name = peer.name;
        peer.subject(|subject| {
            assert!(subject.has_exact_products());
            let loss = number(&peer.facts["loss"]);
            near(name, subject.loss(&peer.at).unwrap(), loss, 1e-12 * loss);
            let (with_gradient, found) = gradient(subject, &peer.at);
            near(name, with_gradient, loss, 1e-12 * loss);
            let what = |part: &str| format!("{name}: {part}");
            close(&what("gradient"), &found, &peer.stored("gradient"), 1e-10);
            let losses = subject.losses(&peer.at).unwrap();
            let theirs = numbers(&peer.facts["losses"]);
            let expected: Vec<f64> = subject.ids().iter().map(|&i| theirs[i as usize]).collect();
            close(&what("losses"), &losses, &expected, 1e-10);
            for (matrix, kind) in MATRICES {
                for i in 0..2 {
                    let v = peer.stored(&format!("vector.{i}"));
                    let found = product(subject, &peer.at, matrix, &v);
                    let expected = peer.stored(&format!("{kind}.{i}"));
                    close(&what(kind), &found, &expected, 1e-10);
                    let form = &peer.facts["quadratic_forms"][kind][i];
                    near(
                        &what(kind),
                        dot(&v, &found),
                        number(form),
                        1e-9 * norm(&found),
                    );
                }
            }
            let top = peer.stored("top");
            let image = product(subject, &peer.at, Curvature::Hessian, &top);
            let lambda = numbers(&peer.facts["hessian"]["top"])[0];
            close(
                &what("eigenvector"),
                &image,
                &plus(&vec![0.0; top.len()], lambda, &top),
                1e-10,
            );
        });
    }
}

/// Pairs are what they say they are: of length 1, orthogonal, with the residual that a product
/// shows.
fn check_pairs(peer: &Peer, subject: &Subject<'_, '_>, of: Curvature, pairs: &[EigenPair]) {
    for (i, pair) in pairs.iter().enumerate() {
        assert!(pair.converged, "{} {i}", peer.name);
        near("length", norm(&pair.vector), 1.0, 1e-12);
        for other in &pairs[..i] {
            near("angle", dot(&pair.vector, &other.vector), 0.0, 1e-10);
        }
        let image = product(subject, &peer.at, of, &pair.vector);
        let residual = norm(&plus(&image, -pair.value, &pair.vector));
        near(
            "residual",
            pair.residual,
            residual,
            1e-13 * norm(&image).max(1.0),
        );
    }
}

#[test]
fn eigenvalues_are_those_of_dense_matrices_and_of_every_peer() {
    for peer in peers() {
        let n = peer.at.len();
        for (matrix, kind) in MATRICES {
            let (facts, scale) = (&peer.facts[kind], peer.scale(kind));
            let what = |part: &str| format!("{} {kind}: {part}", peer.name);
            let found = peer.subject(|subject| {
                let mut point = subject.at(&peer.at).unwrap();
                let search = EigenSearch {
                    largest: 20,
                    smallest: peer.smallest(kind),
                    tolerance: 1e-8,
                    max_products: 3000,
                    ..EigenSearch::default()
                };
                let mut operator = point.operator(matrix, None);
                let found = eigenpairs(&mut operator, &search, &mut draw(1)).unwrap();
                drop(operator);
                assert_eq!(found.products, point.products(), "{}", peer.name);
                check_pairs(&peer, subject, matrix, &found.largest);
                check_pairs(&peer, subject, matrix, &found.smallest);
                found
            });
            assert!(found.converged);
            // The search stops at residuals of 1e-8; an eigenvalue lies that near, and those that
            // stand apart far nearer.
            for (pairs, end) in [(&found.largest, "top"), (&found.smallest, "bottom")] {
                let expected = numbers(&facts[end]);
                assert!(pairs.len() == 20 || end == "bottom");
                for (rank, (pair, expected)) in pairs.iter().zip(&expected).enumerate() {
                    let rank = what(&format!("{end} {rank}"));
                    near(&rank, pair.value, *expected, 1e-8 * scale);
                }
            }
            let values: Vec<f64> = found.largest.iter().map(|pair| pair.value).collect();
            for tool in ["curvlinops", "hessian_eigenthings"] {
                let theirs = &peer.facts["tools"][tool][kind];
                for (own, theirs) in values.iter().zip(numbers(&theirs["top"])) {
                    near(&what(tool), *own, theirs, 1e-8 * scale);
                }
                let bottom = theirs.get("bottom").map(numbers).unwrap_or_default();
                for (own, theirs) in found.smallest.iter().zip(bottom) {
                    near(&what(tool), own.value, theirs, 1e-8 * scale);
                }
            }
            if n <= 500 && (kind == "hessian" || n < 320) {
                let mut whole = peer.subject(|subject| {
                    let mut point = subject.at(&peer.at).unwrap();
                    let search = EigenSearch {
                        largest: n,
                        smallest: 0,
                        tolerance: 1e-8,
                        max_products: 10 * n,
                        max_basis: n,
                        recheck: true,
                        keep: false,
                    };
                    eigenpairs(&mut point.operator(matrix, None), &search, &mut draw(2)).unwrap()
                });
                assert!(whole.complete && whole.converged, "{}", what("spectrum"));
                let found: Vec<f64> = whole.largest.drain(..).map(|pair| pair.value).collect();
                let expected = numbers(&facts["spectrum"]);
                assert_eq!(found.len(), n);
                for (found, expected) in found.iter().zip(expected) {
                    near(&what("spectrum"), *found, expected, 1e-10 * scale);
                }
            }
        }
    }
}

/// What has not converged says so, and its residual bounds its error all the same.
#[test]
fn a_search_that_ends_early_gives_values_within_their_residuals() {
    let peer = Peer::new("mlp-relu");
    for (matrix, kind) in MATRICES {
        let spectrum = numbers(&peer.facts[kind]["spectrum"]);
        for max_products in [30, 60] {
            let search = EigenSearch {
                largest: 10,
                smallest: 10,
                max_products,
                ..EigenSearch::default()
            };
            let found = peer.subject(|subject| {
                let mut point = subject.at(&peer.at).unwrap();
                eigenpairs(&mut point.operator(matrix, None), &search, &mut draw(6)).unwrap()
            });
            assert!(!found.converged && found.products <= max_products);
            for pair in found.largest.iter().chain(&found.smallest) {
                let distances = spectrum.iter().map(|value| (value - pair.value).abs());
                let nearest = distances.fold(f64::INFINITY, f64::min);
                assert!(
                    nearest <= pair.residual + 1e-12,
                    "{kind}: {nearest:e} {pair:?}"
                );
            }
        }
    }
}

/// PyHessian's power iteration divides by |v| + 1e-6 twice a step, so that its eigenvalues are low
/// by 2e-6 of themselves however long it iterates. Within its own residuals it agrees.
#[test]
fn eigenvalues_are_those_of_pyhessian_but_for_its_known_bias() {
    for peer in peers() {
        let search = EigenSearch {
            largest: 8,
            smallest: 1,
            tolerance: 1e-10,
            ..EigenSearch::default()
        };
        let found = peer.subject(|subject| {
            let mut point = subject.at(&peer.at).unwrap();
            eigenpairs(
                &mut point.operator(Curvature::Hessian, None),
                &search,
                &mut draw(3),
            )
            .unwrap()
        });
        let tool = &peer.facts["tools"]["pyhessian"];
        for run in ["tight", "default"] {
            let values = numbers(&tool[run]["eigenvalues"]);
            let residuals = numbers(&tool[run]["residuals"]);
            for (rank, (theirs, residual)) in values.iter().zip(&residuals).enumerate() {
                let distances = found.largest.iter().map(|own| (own.value - theirs).abs());
                let nearest = distances.fold(f64::INFINITY, f64::min);
                assert!(
                    nearest <= residual * (1.0 + 1e-3),
                    "{} {run} {rank}: {theirs} is {nearest:e} from any eigenvalue, its residual \
                     is {residual:e}",
                    peer.name
                );
                if run == "tight" {
                    // All of its five are positive, so its order by magnitude is the order here.
                    let own = found.largest[rank].value;
                    near("bias", theirs / own - 1.0, -2e-6, 1e-8);
                }
            }
        }
    }
}

#[test]
fn traces_are_those_of_dense_matrices_and_of_every_peer() {
    for peer in peers() {
        let n = peer.at.len();
        let layers = layers(peer.layout());
        for (matrix, kind) in MATRICES {
            let facts = &peer.facts[kind];
            let trace = number(&facts["trace"]);
            let what = |part: &str| format!("{} {kind}: {part}", peer.name);
            peer.subject(|subject| {
                let mut point = subject.at(&peer.at).unwrap();
                let mut operator = point.operator(matrix, None);
                let search = |max_products: usize| TraceSearch {
                    tolerance: f64::MIN_POSITIVE,
                    min_probes: 20,
                    max_products,
                };
                let found = hutchinson(&mut operator, &search(80), &mut signs(1)).unwrap();
                assert_eq!(found.products, 80);
                within(
                    &what("hutchinson"),
                    found.value,
                    found.standard_error,
                    trace,
                );
                // Its variance is 2 (|M|_F^2 - sum m_ii^2) a probe, so at most 2 |M|_F^2.
                let most = (2.0 * number(&facts["frobenius_squared"]) / 80.0).sqrt();
                assert!(found.standard_error.unwrap() < 1.5 * most);
                let found = hutch_plus_plus(&mut operator, &search(60), &mut signs(2)).unwrap();
                within(&what("hutch++"), found.value, found.standard_error, trace);
                let found = krylov_deflated(&mut operator, 15, &search(60), &mut signs(6)).unwrap();
                within(&what("Krylov"), found.value, found.standard_error, trace);
                if n < 400 {
                    let found = hutch_plus_plus(&mut operator, &search(n), &mut signs(3)).unwrap();
                    near(&what("exact"), found.value, trace, 1e-10 * trace.abs());
                    assert_eq!((found.standard_error, found.products), (Some(0.0), n));
                }
                let ranges: Vec<_> = layers.iter().map(|(_, range)| range.clone()).collect();
                let blocks =
                    block_traces(&mut operator, &ranges, &search(80), &mut signs(4)).unwrap();
                for ((layer, _), found) in layers.iter().zip(&blocks) {
                    let expected = number(&facts["blocks"][layer]["trace"]);
                    within(&what(layer), found.value, found.standard_error, expected);
                }
            });
        }
        let tools = &peer.facts["tools"];
        let theirs = &tools["pyhessian"]["trace"];
        let trace = number(&peer.facts["hessian"]["trace"]);
        let error = theirs["standard_error"].as_f64();
        within("PyHessian's own", number(&theirs["mean"]), error, trace);
        for (_, kind) in MATRICES {
            for estimate in ["hutchinson_trace_200", "hutch_plus_plus_trace_120"] {
                let theirs = &tools["hessian_eigenthings"][kind][estimate];
                let error = theirs["standard_error"].as_f64();
                let trace = number(&peer.facts[kind]["trace"]);
                within("eigenthings' own", number(&theirs["mean"]), error, trace);
            }
        }
    }
}

/// The traces of the matrices of peers, and of their layers, are those of the dense matrices to rounding;
/// where there is no exact form, the reason is named.
#[test]
fn exact_traces_are_those_of_dense_matrices_of_pytorch() {
    for peer in peers() {
        let layers = layers(peer.layout());
        for (matrix, kind) in MATRICES {
            let facts = &peer.facts[kind];
            let smooth = peer.name == "mlp-tanh" && matrix == Curvature::Hessian;
            let probe = |trace| HessianProbe {
                largest: 1,
                smallest: 0,
                max_products: 4,
                trace_products: 10,
                trace,
                blocks: BlockKind::Layer,
                ..HessianProbe::default()
            };
            let probes = |trace| match matrix {
                Curvature::Hessian => ProbesConfig {
                    hessian: Some(probe(trace)),
                    ..ProbesConfig::default()
                },
                Curvature::GaussNewton => ProbesConfig {
                    gauss_newton: Some(probe(trace)),
                    ..ProbesConfig::default()
                },
            };
            let of = |subject: &mut Subject<'_, '_>, trace| {
                let probed = Probed {
                    parameters: &peer.at,
                    metric: None,
                };
                probe::run(subject, &probes(trace), &probed, &mut |_| {})
            };
            let exact = peer.subject(|subject| of(subject, TraceMethod::Exact));
            let auto = peer
                .subject(|subject| of(subject, TraceMethod::Auto))
                .unwrap();
            if smooth {
                let error = exact.unwrap_err();
                assert!(matches!(error, ProbeError::NoExactTrace { .. }));
                let error = error.to_string();
                assert!(error.contains("not piecewise linear"), "{error}");
                assert!(error.contains("--trace krylov"), "{error}");
                let krylov = peer.subject(|subject| of(subject, TraceMethod::Krylov));
                assert!(auto == krylov.unwrap());
                continue;
            }
            let rows = exact.unwrap();
            assert!(rows == auto);
            let expected = layers.iter().map(|(layer, _)| {
                let trace = number(&facts["blocks"][layer]["trace"]);
                ("block_trace", layer.as_str(), trace)
            });
            let expected: Vec<_> = std::iter::once(("trace", "", number(&facts["trace"])))
                .chain(expected)
                .collect();
            for (quantity, layer, expected) in &expected {
                let row = row_of(&rows, kind, quantity, layer);
                let what = format!("{} {kind} {quantity} {layer}", peer.name);
                near(&what, row.value.unwrap(), *expected, 1e-12 * expected);
                assert_eq!(row.standard_error, Some(0.0));
                assert_eq!((row.products, row.converged), (Some(10), Some(true)));
            }
            // In f32.
            let mut bits = Vec::new();
            for threads in [1, 2] {
                Pool::with(threads, |pool| {
                    let options = frozen(EXAMPLES, peer.statistics.clone());
                    let objective: &dyn Objective<f64> = &*peer.model;
                    let subject = Subject::new(objective, &peer.data, pool, options).unwrap();
                    let mut subject = subject.with_single_products(&*peer.model).unwrap();
                    bits.push(of(&mut subject, TraceMethod::Exact).unwrap());
                });
            }
            assert!(bits[0] == bits[1], "other bits on 2 threads");
            for (quantity, layer, expected) in &expected {
                let found = value_of(&bits[0], kind, quantity, layer);
                let what = format!("{} {kind} {quantity} {layer} in f32", peer.name);
                near(&what, found, *expected, 1e-5 * expected);
                assert_ne!(found, value_of(&rows, kind, quantity, layer));
            }
            // Fewer products than classes: an estimate.
            let mut few = probes(TraceMethod::Auto);
            for probe in few.hessian.iter_mut().chain(&mut few.gauss_newton) {
                probe.trace_products = 9;
            }
            let rows = peer.rows(&few, None);
            let row = row_of(&rows, kind, "trace", "");
            let expected = number(&facts["trace"]);
            within(peer.name, row.value.unwrap(), row.standard_error, expected);
            assert!(row.standard_error.is_some_and(|error| error > 0.0));
            assert_eq!(row.products, Some(9));
        }
    }
}

/// Layers in the order of the layout, with the range of their parameters.
fn layers(layout: &Layout) -> Vec<(String, std::ops::Range<usize>)> {
    let mut layers: Vec<(String, std::ops::Range<usize>)> = Vec::new();
    for parameter in &layout.parameters {
        match layers.last_mut() {
            Some((last, range)) if last == parameter.layer() => range.end = parameter.range.end,
            _ => layers.push((parameter.layer().to_owned(), parameter.range.clone())),
        }
    }
    layers
}

#[test]
fn the_spectral_density_has_weights_of_sum_one_and_the_moments_of_dense_matrices() {
    for peer in peers() {
        for (matrix, kind) in MATRICES {
            let found = peer.subject(|subject| {
                let mut point = subject.at(&peer.at).unwrap();
                let search = DensitySearch {
                    probes: 20,
                    steps: 5,
                };
                spectral_density(&mut point.operator(matrix, None), &search, &mut signs(5)).unwrap()
            });
            for probe in &found.probes {
                near(peer.name, probe.weights.iter().sum(), 1.0, 1e-12);
            }
            near(
                peer.name,
                found.nodes().iter().map(|n| n.1).sum(),
                1.0,
                1e-12,
            );
            let moments = numbers(&peer.facts[kind]["moments"]);
            for (power, expected) in (1..).zip(&moments) {
                let own = found.moment(power);
                let what = format!("{} {kind}: moment {power}", peer.name);
                within(&what, own.value, own.standard_error, *expected);
            }
        }
    }
}

#[test]
fn norms_of_single_examples_and_the_noise_are_those_of_pytorch() {
    for peer in peers() {
        let facts = &peer.facts["noise"];
        let what = |part: &str| format!("{}: {part}", peer.name);
        peer.subject(|subject| {
            let mut point = subject.at(&peer.at).unwrap();
            let norms = point.example_norms().unwrap();
            assert!(norms.exact_pass);
            let order: Vec<usize> = subject.ids().iter().map(|&i| i as usize).collect();
            let of = |value: &Value| -> Vec<f64> {
                let all = numbers(value);
                order.iter().map(|&i| all[i]).collect()
            };
            let squares = &facts["squared_norms"];
            let total = of(&squares["total"]);
            for (found, expected) in norms.squared_norms().iter().zip(&total) {
                near(&what("|g_i|^2"), *found, *expected, 1e-10 * expected);
            }
            assert_eq!(
                norms.layers.len(),
                squares["layers"].as_object().unwrap().len()
            );
            for layer in &norms.layers {
                let own = of(&squares["layers"][&layer.layer]);
                for (found, expected) in layer.squared_norms.iter().zip(&own) {
                    // Dead units leave layers without a gradient: there the total is the scale.
                    near(
                        &what(&layer.layer),
                        *found,
                        *expected,
                        1e-10 * expected + 1e-26,
                    );
                }
            }
            let mut mean = vec![0.0; peer.at.len()];
            point.gradient_of_examples(&mut mean).unwrap();
            let inner = inner_products(&peer.at, &mean, |at| subject.losses(at)).unwrap();
            // The g_i'g average to |g|^2.
            let average = inner.iter().sum::<f64>() / EXAMPLES as f64;
            near(
                &what("inner"),
                average,
                dot(&mean, &mean),
                1e-7 * norm(&mean) * norm(&total).sqrt(),
            );
            let gradients: Vec<LayerGradients<'_>> = norms
                .layers
                .iter()
                .map(|layer| LayerGradients {
                    layer: &layer.layer,
                    squared_norms: &layer.squared_norms,
                    squared_mean: layers(peer.layout())
                        .into_iter()
                        .filter(|(name, _)| *name == layer.layer)
                        .map(|(_, range)| dot(&mean[range.clone()], &mean[range]))
                        .sum(),
                    inner: None,
                })
                .collect();
            let all = example_noise(&gradients, Some(&inner), Some(EXAMPLES)).unwrap();
            let tr_sigma = number(&facts["tr_sigma"]);
            let squared = number(&facts["squared_gradient"]);
            near(
                &what("tr Sigma"),
                all.total.tr_sigma.value,
                tr_sigma,
                1e-10 * tr_sigma,
            );
            let found = all.total.squared_gradient.value;
            near(&what("|G|^2"), found, squared, 1e-10 * tr_sigma);
            for (layer, parts) in &all.layers {
                let own = &facts["layers"][layer];
                let scale = 1e-10 * tr_sigma;
                near(
                    &what(layer),
                    parts.tr_sigma.value,
                    number(&own["tr_sigma"]),
                    scale,
                );
                let expected = number(&own["squared_gradient"]);
                near(&what(layer), parts.squared_gradient.value, expected, scale);
            }
            // As a sample of what never ends |G|^2 is smaller by tr(Sigma)/B.
            let sample = example_noise(&gradients, Some(&inner), None).unwrap();
            let expected = squared - tr_sigma / EXAMPLES as f64;
            near(
                &what("sample"),
                sample.total.squared_gradient.value,
                expected,
                1e-10 * tr_sigma,
            );

            let (sizes, gradients) = subject.parts(&peer.at, EXAMPLES).unwrap();
            assert!(sizes.iter().all(|&n| n == 1));
            for (gradient, expected) in gradients.iter().zip(&total) {
                near(
                    &what("parts"),
                    dot(gradient, gradient),
                    *expected,
                    1e-10 * expected,
                );
            }
            let mut hessian = point.operator(Curvature::Hessian, None);
            let found = piece_noise(&sizes, &gradients, Some(EXAMPLES), &mut hessian).unwrap();
            assert_eq!(found.products, EXAMPLES + 1);
            let tr_h_sigma = number(&facts["tr_h_sigma"]);
            let ghg = number(&facts["ghg"]);
            let scale = 1e-10 * peer.scale("hessian");
            near(
                &what("tr HSigma"),
                found.tr_h_sigma.value,
                tr_h_sigma,
                scale * tr_sigma,
            );
            near(&what("G'HG"), found.ghg.value, ghg, scale * tr_sigma);
            near(
                &what("tr Sigma"),
                found.plain.tr_sigma.value,
                tr_sigma,
                1e-10 * tr_sigma,
            );
            near(
                &what("B_noise"),
                found.b_noise.value.unwrap(),
                tr_h_sigma / ghg,
                1e-7 * tr_h_sigma / ghg,
            );
            let rate = squared / ghg;
            near(
                &what("eps_max"),
                found.eps_max.value.unwrap(),
                rate,
                1e-7 * rate,
            );
            // With N under the sum, as the script gives it too.
            let share = (EXAMPLES - 1) as f64 / EXAMPLES as f64;
            let population = number(&facts["tr_h_sigma_population"]);
            near(
                "N",
                share * found.tr_h_sigma.value,
                population,
                scale * tr_sigma,
            );
        });
    }
}

#[test]
fn the_rows_of_a_run_hold_the_values_of_the_peers() {
    for peer in peers() {
        let matrix = HessianProbe {
            smallest: 0,
            tolerance: 1e-6,
            max_products: 2000,
            trace_products: 60,
            trace_tolerance: 1e-9,
            trace: TraceMethod::Krylov,
            blocks: BlockKind::Layer,
            ..HessianProbe::default()
        };
        let probes = ProbesConfig {
            hessian: Some(HessianProbe {
                smallest: peer.smallest("hessian").min(5),
                ..matrix.clone()
            }),
            gauss_newton: Some(HessianProbe {
                trace: TraceMethod::HutchPlusPlus,
                ..matrix
            }),
            density: Some(DensityProbe {
                probes: 6,
                lanczos_steps: 20,
                ..DensityProbe::default()
            }),
            noise: Some(NoiseProbe {
                exact: true,
                hessian_pieces: EXAMPLES,
                ..NoiseProbe::default()
            }),
            ..ProbesConfig::default()
        };
        let metric: Vec<f64> = peer.at.iter().map(|t| 1.0 / (t.abs() + 0.1)).collect();
        let rows = peer.rows(&probes, Some(metric.clone()));
        let normalized = !peer.statistics.is_empty();
        for row in &rows {
            assert_eq!(row.examples, EXAMPLES);
            assert_eq!(row.statistics, if normalized { "frozen" } else { "" });
        }
        for (_, kind) in MATRICES {
            let (facts, scale) = (&peer.facts[kind], peer.scale(kind));
            let what = |part: &str| format!("{} {kind}: {part}", peer.name);
            for (quantity, end, count) in [
                ("eigenvalue", "top", 20),
                ("smallest_eigenvalue", "bottom", peer.smallest(kind).min(5)),
            ] {
                let found = rows_of(&rows, kind, quantity, "");
                let expected = numbers(&facts[end]);
                assert_eq!(found.len(), count);
                for (rank, (row, expected)) in (1..).zip(found.iter().zip(&expected)) {
                    assert_eq!((row.at, row.converged), (Some(f64::from(rank)), Some(true)));
                    let residual = row.residual.unwrap();
                    assert!(residual <= 1e-6 * scale * 1.000_001, "{residual}");
                    near(&what(quantity), row.value.unwrap(), *expected, 1e-6 * scale);
                    assert!(row.products.unwrap() >= 20);
                }
            }
            let trace = row_of(&rows, kind, "trace", "");
            let expected = number(&facts["trace"]);
            within(
                &what("trace"),
                trace.value.unwrap(),
                trace.standard_error,
                expected,
            );
            for (layer, _) in layers(peer.layout()) {
                let own = &facts["blocks"][&layer];
                let block = row_of(&rows, kind, "block_trace", &layer);
                let expected = number(&own["trace"]);
                within(
                    &what(&layer),
                    block.value.unwrap(),
                    block.standard_error,
                    expected,
                );
                let top = value_of(&rows, kind, "block_eigenvalue", &layer);
                near(&what(&layer), top, number(&own["top"]), 1e-6 * scale);
                let curvlinops = &peer.facts["tools"]["curvlinops"][kind]["block_top"][&layer];
                near(&what("curvlinops"), top, number(curvlinops), 1e-6 * scale);
            }
        }
        let nodes = rows_of(&rows, "density", "node", "");
        let weights: Vec<f64> = nodes.iter().map(|row| row.value.unwrap()).collect();
        near(peer.name, weights.iter().sum(), 1.0, 1e-12);
        let curve = rows_of(&rows, "density", "density", "");
        let integral: f64 = curve
            .windows(2)
            .map(|pair| {
                let width = pair[1].at.unwrap() - pair[0].at.unwrap();
                0.5 * width * (pair[0].value.unwrap() + pair[1].value.unwrap())
            })
            .sum();
        near(peer.name, integral, 1.0, 1e-4);

        let facts = &peer.facts["noise"];
        let tr_sigma = number(&facts["tr_sigma"]);
        let squared = number(&facts["squared_gradient"]);
        let found = row_of(&rows, "noise", "tr_sigma", "");
        near(peer.name, found.value.unwrap(), tr_sigma, 1e-9 * tr_sigma);
        // All examples are there, so nothing is uncertain.
        assert_eq!(found.standard_error, Some(0.0));
        let found = value_of(&rows, "noise", "b_simple", "");
        near(
            peer.name,
            found,
            tr_sigma / squared,
            1e-6 * tr_sigma / squared,
        );
        let (tr_h_sigma, ghg) = (number(&facts["tr_h_sigma"]), number(&facts["ghg"]));
        for (quantity, expected) in [
            ("tr_h_sigma", tr_h_sigma),
            ("ghg", ghg),
            ("b_noise", tr_h_sigma / ghg),
            ("eps_max", squared / ghg),
        ] {
            let found = value_of(&rows, "noise", quantity, "");
            near(
                &format!("{} {quantity}", peer.name),
                found,
                expected,
                1e-6 * expected.abs(),
            );
        }
        for (layer, _) in layers(peer.layout()) {
            let own = &facts["layers"][&layer];
            let expected = number(&own["tr_sigma"]);
            let found = value_of(&rows, "noise", "tr_sigma", &layer);
            near(&layer, found, expected, 1e-9 * tr_sigma);
            let squared = number(&own["squared_gradient"]);
            let found = value_of(&rows, "noise", "b_simple", &layer);
            near(&layer, found, expected / squared, 1e-6 * expected / squared);
        }
        // In the metric p: the gradients p_j g_ij, by hand from single examples.
        let found = value_of(&rows, "noise", "b_simple_adamw", "");
        let expected = peer.subject(|subject| {
            let (_, gradients) = subject.parts(&peer.at, EXAMPLES).unwrap();
            let n = EXAMPLES as f64;
            let mut mean = vec![0.0; metric.len()];
            let mut squares = 0.0;
            for gradient in &gradients {
                for ((mean, g), p) in mean.iter_mut().zip(gradient).zip(&metric) {
                    *mean += p * g / n;
                    squares += (p * g).powi(2);
                }
            }
            let square = dot(&mean, &mean);
            (squares - n * square) / (n - 1.0) / square
        });
        near(peer.name, found, expected, 1e-8 * expected);
    }
}

/// At radii so small that the loss is its Taylor polynomial, each measure of sharpness is one in
/// the gradient and the Hessian that PyTorch gives.
#[test]
fn sharpness_at_small_radii_is_what_pytorchs_gradient_and_trace_say() {
    let peer = Peer::new("mlp-tanh");
    let loss = number(&peer.facts["loss"]);
    let gradient = peer.stored("gradient");
    let length = norm(&gradient);
    peer.subject(|subject| {
        let sigma = 1e-3;
        let found = sharpness::gaussian_loss(subject, &peer.at, sigma, 200, 1).unwrap();
        let expected = 0.5 * sigma * sigma * number(&peer.facts["hessian"]["trace"]);
        // The fourth order, sigma^4/8 of fourth derivatives, is a millionth of that.
        within("gaussian", found.value, found.standard_error, expected);

        let rho = 1e-3;
        let found = sharpness::worst_loss_l2(subject, &peer.at, rho, 20, 1).unwrap();
        let along = number(&peer.facts["noise"]["ghg"]) / (length * length);
        let least = rho * length + 0.5 * rho * rho * along;
        let most = rho * length + 0.5 * rho * rho * numbers(&peer.facts["hessian"]["top"])[0];
        let third = 100.0 * rho.powi(3);
        assert!(
            found.value >= least - third && found.value <= most + third,
            "{} is not in [{least}, {most}]",
            found.value
        );

        let epsilon = 1e-7;
        let settings = sharpness::Keskar::new(epsilon, None, 1);
        let found = sharpness::keskar(subject, &peer.at, &settings).unwrap();
        let box_of = gradient.iter().zip(&peer.at);
        let rise: f64 = box_of
            .map(|(g, x)| epsilon * (x.abs() + 1.0) * g.abs())
            .sum();
        let expected = 100.0 * rise / (1.0 + loss);
        near("Keskar", found.value, expected, 1e-4 * expected);
        // The subspace's box lies along other axes: it can hold more, and less.
        let settings = sharpness::Keskar::new(epsilon, Some(100), 1);
        assert!(
            sharpness::keskar(subject, &peer.at, &settings)
                .unwrap()
                .value
                > 0.0
        );
    });
}

// ---------------------------------------------------------------------------------------------
// B. What must hold of a probe.

const TANH: [&str; 2] = [
    "model={mlp={widths=[8], activation=\"tanh\"}}",
    "data.subset=601",
];
const BATCH_NORMALIZED: [&str; 2] = [
    "model={mlp={widths=[8], activation=\"tanh\", normalization=\"batch\"}}",
    "data.subset=601",
];
const CNN: [&str; 2] = [
    "model={simple-cnn={channels=[2, 3], dense=6}}",
    "data.subset=300",
];

#[test]
fn products_are_symmetric_and_their_length_is_that_of_the_vector() {
    for lines in [TANH, BATCH_NORMALIZED, CNN] {
        let own = Own::new(&lines);
        let statistics = own.statistics();
        for products in [Products::Exact, Products::Differences] {
            if products == Products::Differences && lines == CNN {
                // Kinks: see tests/products.rs.
                continue;
            }
            let options = SubjectOptions {
                products,
                ..frozen(300, statistics.clone())
            };
            let tolerance = if products == Products::Exact {
                1e-13
            } else {
                1e-8
            };
            own.subject(2, options, |subject| {
                let n = own.at.len();
                let (u, v) = (normal(2, n), normal(3, n));
                for (matrix, kind) in MATRICES {
                    let what = format!("{kind} {products:?}");
                    let hu = product(subject, &own.at, matrix, &u);
                    let hv = product(subject, &own.at, matrix, &v);
                    near(
                        &what,
                        dot(&u, &hv),
                        dot(&v, &hu),
                        tolerance * norm(&u) * norm(&hv),
                    );
                    // A fixed operator: the same product twice is the same bits.
                    assert_eq!(product(subject, &own.at, matrix, &u), hu);
                    for length in [1e-8, 1e8] {
                        let long = plus(&vec![0.0; n], length, &v);
                        let expected = plus(&vec![0.0; n], length, &hv);
                        let found = product(subject, &own.at, matrix, &long);
                        close(&what, &found, &expected, tolerance);
                    }
                    let zero = product(subject, &own.at, matrix, &vec![0.0; n]);
                    assert!(zero.iter().all(|&x| x == 0.0));
                }
            });
        }
        if lines != CNN {
            let of = |products| {
                let options = SubjectOptions {
                    products,
                    ..frozen(300, statistics.clone())
                };
                own.subject(1, options, |subject| {
                    let v = normal(3, own.at.len());
                    MATRICES.map(|(matrix, _)| product(subject, &own.at, matrix, &v))
                })
            };
            let (exact, differences) = (of(Products::Exact), of(Products::Differences));
            for (exact, differences) in exact.iter().zip(&differences) {
                close("differences", differences, exact, 1e-8);
            }
        }
    }
}

/// What two pieces of unequal size say is weighed by their examples: 601 examples make pieces of
/// 201, 200 and 200.
#[test]
fn pieces_that_are_not_equal_weigh_by_their_examples() {
    let own = Own::new(&TANH);
    let count = 601;
    assert_eq!(own.data.train.len(), count);
    own.subject(2, frozen(count, Vec::new()), |subject| {
        let ids = subject.ids().to_vec();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert!(
            sorted.iter().copied().eq(0..count as u64),
            "each example once"
        );
        let point = own.objective().at(&own.at).unwrap();
        let mode = StatisticsMode::Inference(&[]);
        let of = |ids: &[u64], v: &[f64]| {
            let n = own.at.len();
            let (mut gradient, mut hv, mut gv) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
            let batch = own.batch(ids, &[ids.len()]);
            let loss = point
                .gradient(batch.clone(), mode, 1.0, &mut gradient)
                .unwrap();
            let along = point.along(v).unwrap();
            along
                .hessian_product(batch.clone(), mode, 1.0, &mut hv)
                .unwrap();
            along
                .gauss_newton_product(batch, mode, 1.0, &mut gv)
                .unwrap();
            (loss, gradient, hv, gv)
        };
        let v = normal(4, own.at.len());
        let (loss, expected, hv, gv) = of(&ids, &v);
        let (found_loss, found) = gradient(subject, &own.at);
        near("loss", found_loss, loss, 1e-13);
        near("loss", subject.loss(&own.at).unwrap(), loss, 1e-13);
        close("gradient", &found, &expected, 1e-12);
        close(
            "H v",
            &product(subject, &own.at, Curvature::Hessian, &v),
            &hv,
            1e-12,
        );
        close(
            "G v",
            &product(subject, &own.at, Curvature::GaussNewton, &v),
            &gv,
            1e-12,
        );
        let single = subject.losses(&own.at).unwrap();
        near(
            "losses",
            single.iter().sum::<f64>() / count as f64,
            loss,
            1e-13,
        );
        // The test can tell: with equal weights it would be off by far more.
        let parts = pieces(&(0..count), 256);
        assert_eq!(parts.len(), 3);
        let mut wrong = vec![0.0; own.at.len()];
        for part in parts {
            wrong = plus(&wrong, 1.0 / 3.0, &of(&ids[part], &v).2);
        }
        assert!(norm(&minus(&wrong, &hv)) > 1e-6 * norm(&hv));
        // The gradients of unequal parts add up too.
        let (sizes, gradients) = subject.parts(&own.at, 7).unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), count);
        let mut mean = vec![0.0; own.at.len()];
        for (&size, gradient) in sizes.iter().zip(&gradients) {
            mean = plus(&mean, size as f64 / count as f64, gradient);
        }
        close("parts", &mean, &expected, 1e-12);
    });
}

/// Every probe, in little.
fn every_probe() -> ProbesConfig {
    let matrix = HessianProbe {
        largest: 4,
        smallest: 2,
        max_products: 16,
        trace_products: 10,
        blocks: BlockKind::Layer,
        ..HessianProbe::default()
    };
    ProbesConfig {
        hessian: Some(matrix.clone()),
        gauss_newton: Some(matrix),
        density: Some(DensityProbe {
            probes: 2,
            lanczos_steps: 4,
            points: 40,
            ..DensityProbe::default()
        }),
        sharpness: Some(SharpnessProbe {
            epsilons: vec![1e-3],
            subspace: 10,
            iterations: 2,
            noise_pairs: 2,
            flatness_products: 2,
            ..SharpnessProbe::default()
        }),
        adversarial: Some(AdversarialProbe {
            radii: vec![0.0, 0.2],
            steps: 2,
            examples: Some(50),
        }),
        noise: Some(NoiseProbe {
            exact: true,
            hessian_pieces: 3,
            ..NoiseProbe::default()
        }),
        ..ProbesConfig::default()
    }
}

#[test]
fn threads_change_no_bit_of_any_probe() {
    for lines in [TANH, BATCH_NORMALIZED, CNN] {
        let own = Own::new(&lines);
        let statistics = own.statistics();
        let metric = vec![2.0; own.at.len()];
        let of = |threads: usize| {
            let options = frozen(own.data.train.len() - 4, statistics.clone());
            own.subject(threads, options, |subject| {
                let probed = Probed {
                    parameters: &own.at,
                    metric: Some(metric.clone()),
                };
                let rows = probe::run(subject, &every_probe(), &probed, &mut |_| {}).unwrap();
                let v = normal(5, own.at.len());
                let point = subject.at(&own.at).unwrap();
                (
                    rows,
                    gradient(subject, &own.at),
                    product(subject, &own.at, Curvature::Hessian, &v),
                    product(subject, &own.at, Curvature::GaussNewton, &v),
                    point.example_norms().unwrap(),
                    subject.losses(&own.at).unwrap(),
                    subject.loss(&own.at).unwrap(),
                )
            })
        };
        let one = of(1);
        assert!(one.0.len() > 60, "{}", one.0.len());
        assert!(one == of(2), "other bits on 2 threads");
        assert!(one == of(3), "other bits on 3 threads");
    }
}

/// Products in f32 cost a hundred-thousandth of an eigenvalue at most. Its residual is that of f64, or where
/// the tolerance is coarse, off by as little.
#[test]
fn products_in_single_precision_give_the_same_pairs_with_true_residuals() {
    for lines in [TANH, CNN] {
        let own = Own::new(&lines);
        let exact = |of, v: &[f64]| {
            let options = frozen(300, Vec::new());
            own.subject(1, options, |subject| product(subject, &own.at, of, v))
        };
        for (matrix, kind) in MATRICES {
            let mut bits = Vec::new();
            for threads in [1, 2] {
                Pool::with(threads, |pool| {
                    let options = frozen(300, Vec::new());
                    let subject = Subject::new(own.objective(), &own.data, pool, options).unwrap();
                    let subject = subject.with_single_products(&*own.model).unwrap();
                    let v = normal(6, own.at.len());
                    let rounded = product(&subject, &own.at, matrix, &v);
                    let accurate = exact(matrix, &v);
                    close(kind, &rounded, &accurate, 1e-5);
                    assert_ne!(rounded, accurate);
                    let mut all = Vec::new();
                    for (tolerance, off) in [(1e-4, 1e-12), (1e-3, 1e-5)] {
                        let search = EigenSearch {
                            largest: 2,
                            smallest: 0,
                            tolerance,
                            recheck: false,
                            ..EigenSearch::default()
                        };
                        let mut point = subject.at(&own.at).unwrap();
                        let mut operator = point.operator(matrix, None);
                        let found = eigenpairs(&mut operator, &search, &mut draw(7)).unwrap();
                        assert!(found.converged);
                        for pair in &found.largest {
                            let image = exact(matrix, &pair.vector);
                            let rest = plus(&image, -pair.value, &pair.vector);
                            let off = off * pair.value;
                            near("residual", pair.residual, norm(&rest), off);
                            near("value", pair.value, dot(&image, &pair.vector), off);
                        }
                        all.extend(found.largest);
                    }
                    bits.push((rounded, all));
                });
            }
            assert!(bits[0] == bits[1], "other bits on 2 threads");
        }
    }
    let own = Own::new(&TANH);
    let options = SubjectOptions {
        products: Products::Differences,
        ..frozen(50, Vec::new())
    };
    Pool::with(1, |pool| {
        let subject = Subject::new(own.objective(), &own.data, pool, options).unwrap();
        assert!(subject.with_single_products(&*own.model).is_err());
    });
}

#[test]
fn the_l2_term_adds_its_coefficient_to_every_eigenvalue_that_decays() {
    let lambda = 0.3;
    let parts = |roles: &str| {
        let optimizer = format!("optimizer={{momentum={{weight_decay={lambda}{roles}}}}}");
        Own::new(&[
            TANH[0],
            "data.subset=50",
            &optimizer,
            "probes={weight_decay=true}",
        ])
    };
    let all = parts("");
    let layout = Objective::<f64>::layout(&*all.model);
    let options = |own: &Own| SubjectOptions::new(&own.config, &own.data, layout, Vec::new(), 8);
    assert_eq!(options(&all).examples, 50);
    assert!(options(&all).l2.is_some());
    let search = EigenSearch {
        largest: 3,
        smallest: 2,
        tolerance: 1e-7,
        ..EigenSearch::default()
    };
    for (matrix, kind) in MATRICES {
        let values = |options: SubjectOptions| -> Vec<f64> {
            all.subject(1, options, |subject| {
                let mut point = subject.at(&all.at).unwrap();
                let mut operator = point.operator(matrix, None);
                let found = eigenpairs(&mut operator, &search, &mut draw(4)).unwrap();
                let pairs = found.largest.iter().chain(&found.smallest);
                pairs.map(|pair| pair.value).collect()
            })
        };
        let plain = SubjectOptions {
            l2: None,
            ..options(&all)
        };
        let (with, without) = (values(options(&all)), values(plain));
        for (with, without) in with.iter().zip(&without) {
            near(kind, with - without, lambda, 1e-7);
        }
    }
    // With the weights alone, the biases are as without.
    let weights = parts(", weight_decay_roles=[\"dense\"]");
    let of = |options: SubjectOptions| {
        weights.subject(1, options, |subject| {
            let v = normal(6, weights.at.len());
            let hv = product(subject, &weights.at, Curvature::Hessian, &v);
            let norms = subject.at(&weights.at).unwrap().example_norms().unwrap();
            let (loss, gradient) = gradient(subject, &weights.at);
            near(
                "loss",
                subject.loss(&weights.at).unwrap(),
                loss,
                1e-13 * loss,
            );
            (loss, gradient, hv, norms)
        })
    };
    let with = of(options(&weights));
    let without = of(SubjectOptions {
        l2: None,
        ..options(&weights)
    });
    let v = normal(6, weights.at.len());
    let mut squares = 0.0;
    for parameter in &layout.parameters {
        let range = parameter.range.clone();
        let share = if parameter.role == Role::Dense {
            lambda
        } else {
            0.0
        };
        let own = &weights.at[range.clone()];
        squares += share * dot(own, own);
        let expected = plus(&without.1[range.clone()], share, own);
        close("gradient", &with.1[range.clone()], &expected, 1e-13);
        let expected = plus(&without.2[range.clone()], share, &v[range.clone()]);
        close("product", &with.2[range], &expected, 1e-13);
    }
    near("loss", with.0 - without.0, 0.5 * squares, 1e-12);
    assert!(with.3 == without.3, "single examples have no part of it");
}

/// Products with all unit vectors say what the diagonal is. Every model that comes with batchlab, under
/// every normalization, with the L2 term.
#[test]
fn exact_traces_are_the_sums_of_the_diagonals_of_every_model() {
    let models = [
        ("\"softmax-regression\"", vec![""]),
        (
            "{mlp={widths=[5, 4], activation=\"relu\"NORM}}",
            vec!["", "batch", "layer", "weight"],
        ),
        (
            "{mlp={widths=[5, 4], activation=\"tanh\"NORM}}",
            vec!["", "batch"],
        ),
        (
            "{simple-cnn={channels=[2, 2], dense=4NORM}}",
            vec!["", "batch", "layer", "weight"],
        ),
        ("{resnet={depth=8, width=2NORM}}", vec!["", "batch"]),
    ];
    let lambda = 0.3;
    let mut exact = Vec::new();
    for (model, normalizations) in &models {
        for normalization in normalizations {
            let norm = match *normalization {
                "" => String::new(),
                "weight" => ", normalization={weight={data_dependent=false}}".to_owned(),
                kind => format!(", normalization=\"{kind}\""),
            };
            let model = format!("model={}", model.replace("NORM", &norm));
            let optimizer = format!(
                "optimizer={{momentum={{weight_decay={lambda}, weight_decay_roles=[\"dense\"]}}}}"
            );
            let own = Own::new(&[
                &model,
                &optimizer,
                "data.subset=300",
                "probes={examples=21, weight_decay=true}",
            ]);
            let layout = Objective::<f64>::layout(&*own.model);
            let n = own.at.len();
            let options = SubjectOptions::new(&own.config, &own.data, layout, own.statistics(), 8);
            for (matrix, kind) in MATRICES {
                own.subject(2, options.clone(), |subject| {
                    let mut point = subject.at(&own.at).unwrap();
                    let found = match point.layer_traces(matrix) {
                        Err(ProbeError::NoExactTrace { .. }) => return,
                        found => found.unwrap(),
                    };
                    exact.push(format!("{model} {kind}"));
                    let mut diagonal = vec![0.0; n];
                    let (mut unit, mut image) = (vec![0.0; n], vec![0.0; n]);
                    for i in 0..n {
                        unit[i] = 1.0;
                        point.product(matrix, &unit, &mut image).unwrap();
                        diagonal[i] = image[i];
                        unit[i] = 0.0;
                    }
                    let total: f64 = diagonal.iter().sum();
                    let mut layers = layers(layout);
                    layers.dedup_by(|(a, _), (b, _)| a == b);
                    assert_eq!(layers.len(), found.len());
                    for ((layer, range), (own, trace)) in layers.iter().zip(&found) {
                        assert_eq!(layer, own);
                        let expected: f64 = diagonal[range.clone()].iter().sum();
                        near(
                            &format!("{model} {kind} {layer}"),
                            *trace,
                            expected,
                            1e-11 * total,
                        );
                    }
                });
            }
        }
    }
    // The Hessian's of ReLU without normalization or with that of the batch, the Gauss-Newton matrix's of
    // all: 1 + 2 + 2 + 2 and 1 + 4 + 2 + 4 + 2.
    assert_eq!(exact.len(), 7 + 13, "{exact:#?}");
}

/// Losses of their own, and layers that no pass sees.
#[derive(Module, Debug)]
struct Odd {
    layer: Linear,
    #[module(skip)]
    doubled: bool,
}

impl Network for Odd {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        if self.doubled {
            pass.dense(&self.layer, input)
        } else {
            self.layer.forward(input)
        }
    }

    fn losses(&self, outputs: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        let entropy = log_softmax(outputs, 1).gather(1, labels.unsqueeze_dim(1));
        let entropy = entropy.squeeze_dim(1).neg();
        if self.doubled {
            entropy.mul_scalar(2.0)
        } else {
            entropy
        }
    }

    fn is_linear_in_each_parameter(&self) -> bool {
        true
    }
}

#[test]
fn traces_without_an_exact_form_say_why() {
    let mut registry = Registry::new();
    for (name, doubled) in [("doubled", true), ("unseen", false)] {
        registry = registry.register(name, move |context| {
            let layer = LinearConfig::new(context.features(), context.classes);
            Ok(Odd {
                layer: layer.init(&context.device),
                doubled,
            })
        });
    }
    let refused = |own: &Own, options: SubjectOptions, of: Curvature| {
        own.subject(1, options, |subject| {
            subject
                .at(&own.at)
                .unwrap()
                .layer_traces(of)
                .unwrap_err()
                .to_string()
        })
    };
    for (name, reason) in [
        ("doubled", "cross-entropy"),
        ("unseen", "one pass an example"),
    ] {
        let model = format!("model={{custom={{name=\"{name}\"}}}}");
        let own = Own::of(&registry, &[&model, "data.subset=60"]);
        for (of, _) in MATRICES {
            let error = refused(&own, frozen(60, Vec::new()), of);
            assert!(error.contains(reason), "{error}");
        }
    }
    // Of a network that says nothing, a trial with it ends before its first update.
    let model = "model={custom={name=\"idle\"}}";
    let probes = "probes={hessian={trace=\"exact\"}}";
    let own = Own::of(&self::registry(), &[model, probes, "data.subset=60"]);
    let error = refused(&own, frozen(60, Vec::new()), Curvature::Hessian);
    assert!(error.contains("does not say so"), "{error}");
    Pool::with(1, |pool| {
        let objective: &dyn Objective<f32> = &*own.model;
        let error = Session::new(&own.config, &own.data, objective, pool).err();
        let error = error.unwrap().to_string();
        assert!(error.contains("probes.hessian.trace"), "{error}");
    });
    let own = Own::new(&BATCH_NORMALIZED);
    let options = SubjectOptions {
        statistics: SubjectStatistics::Batch { group: 50 },
        ..frozen(200, Vec::new())
    };
    let error = refused(&own, options, Curvature::GaussNewton);
    assert!(error.contains("statistics of a batch"), "{error}");
    let own = Own::new(&[
        "data={source={noisy-quadratic={dimension=50}}}",
        "model=\"noisy-quadratic\"",
    ]);
    let error = refused(&own, frozen(100, Vec::new()), Curvature::GaussNewton);
    assert!(error.contains("no classes"), "{error}");
    // Differences see kinks, which no gradient at a point does.
    let own = Own::new(&CNN);
    let options = SubjectOptions {
        products: Products::Differences,
        ..frozen(60, Vec::new())
    };
    let rows = own.subject(1, options, |subject| {
        let probed = Probed {
            parameters: &own.at,
            metric: None,
        };
        probe::run(subject, &every_probe(), &probed, &mut |_| {}).unwrap()
    });
    let trace = row_of(&rows, "hessian", "trace", "");
    assert!(trace.standard_error.is_some_and(|error| error > 0.0));
}

#[test]
fn frozen_and_batch_statistics_are_two_losses_and_both_are_probed() {
    let own = Own::new(&BATCH_NORMALIZED);
    let count = 601;
    let group = 50;
    let batch = SubjectOptions {
        statistics: SubjectStatistics::Batch { group },
        ..frozen(count, Vec::new())
    };
    let statistics = own.statistics();
    let n = own.at.len();
    let v = normal(7, n);
    let parts = shards(count, count / group);
    assert_eq!(parts.len(), 12);
    let point = own.objective().at(&own.at).unwrap();
    own.subject(2, batch.clone(), |subject| {
        assert_eq!(subject.statistics_name(), "batch");
        // The mean over groups, each with statistics of its own.
        let (mut loss, mut expected, mut hv) = (0.0, vec![0.0; n], vec![0.0; n]);
        for part in &parts {
            let share = part.len() as f64 / count as f64;
            let ids = &subject.ids()[part.clone()];
            let one = own.batch(ids, &[ids.len()]);
            let mut buffer = vec![0.0; n];
            let mode = StatisticsMode::Batch;
            loss += share
                * point
                    .gradient(one.clone(), mode, share, &mut buffer)
                    .unwrap();
            expected = plus(&expected, 1.0, &buffer);
            let along = point.along(&v).unwrap();
            along
                .hessian_product(one, mode, share, &mut buffer)
                .unwrap();
            hv = plus(&hv, 1.0, &buffer);
        }
        let (found_loss, found) = gradient(subject, &own.at);
        near("loss", found_loss, loss, 1e-12);
        near("loss", subject.loss(&own.at).unwrap(), loss, 1e-12);
        close("gradient", &found, &expected, 1e-12);
        close(
            "H v",
            &product(subject, &own.at, Curvature::Hessian, &v),
            &hv,
            1e-11,
        );
        let error = subject.at(&own.at).unwrap().example_norms().unwrap_err();
        assert!(
            matches!(
                error,
                ProbeError::Objective(ObjectiveError::BatchStatistics)
            ),
            "{error}"
        );
        assert!(error.to_string().contains("hint: use inference statistics"));
    });
    let differences = SubjectOptions {
        products: Products::Differences,
        ..batch.clone()
    };
    let of = |options: SubjectOptions| {
        own.subject(1, options, |subject| {
            MATRICES.map(|(matrix, _)| product(subject, &own.at, matrix, &v))
        })
    };
    for (exact, differences) in of(batch.clone()).iter().zip(of(differences)) {
        close("differences", &differences, exact, 1e-7);
    }
    let (frozen_loss, frozen_product) = own.subject(1, frozen(count, statistics), |subject| {
        assert_eq!(subject.statistics_name(), "frozen");
        let v = product(subject, &own.at, Curvature::Hessian, &v);
        (gradient(subject, &own.at).0, v)
    });
    let (batch_loss, batch_product) = own.subject(1, batch.clone(), |subject| {
        let v = product(subject, &own.at, Curvature::Hessian, &v);
        (gradient(subject, &own.at).0, v)
    });
    // Near each other, and not the same.
    near("losses", frozen_loss, batch_loss, 0.1 * batch_loss);
    assert_ne!(frozen_loss, batch_loss);
    assert!(norm(&minus(&frozen_product, &batch_product)) > 1e-3 * norm(&batch_product));
    // Every probe but that of single examples works on both.
    let mut probes = every_probe();
    if let Some(noise) = &mut probes.noise {
        noise.exact = false;
    }
    own.subject(2, batch, |subject| {
        let probed = Probed {
            parameters: &own.at,
            metric: None,
        };
        let rows = probe::run(subject, &probes, &probed, &mut |_| {}).unwrap();
        assert!(rows.iter().all(|row| row.statistics == "batch"));
        assert!(value_of(&rows, "hessian", "trace", "").is_finite());
        probes.noise = every_probe().noise;
        let error = probe::run(subject, &probes, &probed, &mut |_| {}).unwrap_err();
        assert!(matches!(
            error,
            ProbeError::Objective(ObjectiveError::BatchStatistics)
        ));
    });
}

/// The gradients of parts are those of the loss that is probed, with batch statistics too: their
/// mean, weighed by their examples, is its gradient.
#[test]
fn the_gradients_of_parts_with_batch_statistics_are_of_the_loss_that_is_probed() {
    let own = Own::new(&BATCH_NORMALIZED);
    let options = SubjectOptions {
        statistics: SubjectStatistics::Batch { group: 20 },
        ..frozen(240, Vec::new())
    };
    own.subject(1, options, |subject| {
        let (sizes, gradients) = subject.parts(&own.at, 4).unwrap();
        assert_eq!(sizes, [60; 4]);
        let mut mean = vec![0.0; own.at.len()];
        for gradient in &gradients {
            mean = plus(&mean, 0.25, gradient);
        }
        close("parts", &mean, &gradient(subject, &own.at).1, 1e-11);
    });
}

/// A network with a layer that its loss does not use.
#[derive(Module, Debug)]
struct Idle {
    first: Linear,
    unused: Linear,
    last: Linear,
    #[module(skip)]
    dual: bool,
}

impl Network for Idle {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        let hidden = pass.dense(&self.first, input).tanh();
        pass.dense(&self.last, hidden)
    }

    fn has_dual(&self) -> bool {
        self.dual
    }

    fn forward_dual(
        &self,
        direction: &Self,
        input: Tensor<2>,
        pass: &mut Forward<'_>,
    ) -> Option<Dual<2>> {
        let input = Dual::constant(input);
        let hidden = pass.dense_dual(&self.first, Some(&direction.first), input);
        Some(pass.dense_dual(&self.last, Some(&direction.last), hidden.tanh()))
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    for (name, dual) in [("idle", true), ("idle-without-dual", false)] {
        registry = registry.register(name, move |context| {
            let layer = |from, to| LinearConfig::new(from, to).init(&context.device);
            Ok(Idle {
                first: layer(context.features(), 4),
                unused: layer(2, 3),
                last: layer(4, context.classes),
                dual,
            })
        });
    }
    registry
}

/// Other tools crash here: the gradient of an unused parameter is none, or the number 0.
#[test]
fn a_parameter_that_the_loss_does_not_use_is_a_row_of_zeros() {
    for (name, exact) in [("idle", true), ("idle-without-dual", false)] {
        let model = format!("model={{custom={{name=\"{name}\"}}}}");
        let own = Own::of(&registry(), &[&model, "data.subset=60"]);
        own.subject(2, frozen(60, Vec::new()), |subject| {
            assert_eq!(subject.has_exact_products(), exact);
            let all = layers(subject.layout());
            let unused = all.iter().find(|(layer, _)| layer == "unused");
            let unused = unused.unwrap().1.clone();
            assert_eq!(unused.len(), 9);
            let n = own.at.len();
            let (_, found) = gradient(subject, &own.at);
            assert!(found[unused.clone()].iter().all(|&g| g == 0.0));
            let mut along = vec![0.0; n];
            along[unused.clone()].fill(1.0);
            for (matrix, _) in MATRICES {
                let row = product(subject, &own.at, matrix, &normal(8, n));
                assert!(row[unused.clone()].iter().all(|&x| x == 0.0));
                assert!(row.iter().any(|&x| x != 0.0));
                let column = product(subject, &own.at, matrix, &along);
                assert!(column.iter().all(|&x| x == 0.0), "{name}");
            }
            let probed = Probed {
                parameters: &own.at,
                metric: Some(vec![1.0; n]),
            };
            let rows = probe::run(subject, &every_probe(), &probed, &mut |_| {}).unwrap();
            for (_, kind) in MATRICES {
                assert_eq!(value_of(&rows, kind, "block_trace", "unused"), 0.0);
                assert_eq!(value_of(&rows, kind, "block_eigenvalue", "unused"), 0.0);
                assert!(value_of(&rows, kind, "trace", "") > 0.0);
            }
            let noise = row_of(&rows, "noise", "b_simple", "unused");
            assert_eq!((noise.value, noise.converged), (None, Some(false)));
            assert_eq!(value_of(&rows, "noise", "tr_sigma", "unused"), 0.0);
            // Metric 1: as without.
            let adamw = value_of(&rows, "noise", "b_simple_adamw", "");
            assert!(adamw.is_finite());
        });
    }
}

#[test]
fn gradients_of_no_length_leave_the_noise_scale_undetermined() {
    let squares = [0.0; 6];
    let layer = LayerGradients {
        layer: "a",
        squared_norms: &squares,
        squared_mean: 0.0,
        inner: Some(&squares),
    };
    let found = example_noise(&[layer], None, None).unwrap();
    assert_eq!(found.total.b_simple.value, Err(Undetermined::NotPositive));
}

/// Eigenvalues 1/i, whatever the examples, which never repeat.
#[test]
fn the_noisy_quadratic_has_its_closed_form() {
    let own = Own::new(&[
        "data={source={noisy-quadratic={dimension=50}}}",
        "model=\"noisy-quadratic\"",
    ]);
    let eigenvalues: Vec<f64> = (1..=50).map(|i| 1.0 / f64::from(i)).collect();
    own.subject(2, frozen(1000, Vec::new()), |subject| {
        assert_eq!(subject.population(), None);
        let probes = ProbesConfig {
            hessian: Some(HessianProbe {
                largest: 5,
                smallest: 2,
                tolerance: 1e-10,
                trace_products: 60,
                trace: TraceMethod::HutchPlusPlus,
                ..HessianProbe::default()
            }),
            noise: Some(NoiseProbe {
                exact: true,
                hessian_pieces: 1000,
                ..NoiseProbe::default()
            }),
            ..ProbesConfig::default()
        };
        let probed = Probed {
            parameters: &own.at,
            metric: None,
        };
        let rows = probe::run(subject, &probes, &probed, &mut |_| {}).unwrap();
        for (row, expected) in rows_of(&rows, "hessian", "eigenvalue", "")
            .iter()
            .zip(&eigenvalues)
        {
            near("eigenvalue", row.value.unwrap(), *expected, 1e-10);
        }
        let smallest = rows_of(&rows, "hessian", "smallest_eigenvalue", "");
        near("smallest", smallest[0].value.unwrap(), 0.02, 1e-10);
        let trace: f64 = eigenvalues.iter().sum();
        near(
            "trace",
            value_of(&rows, "hessian", "trace", ""),
            trace,
            1e-12,
        );
        // Sigma = H: tr(Sigma) = tr H, tr(H Sigma) = tr H^2, G = H theta.
        let squares: f64 = eigenvalues.iter().map(|h| h * h).sum();
        let pairs = || eigenvalues.iter().zip(&own.at);
        let gradient: f64 = pairs().map(|(h, t)| (h * t).powi(2)).sum();
        let ghg: f64 = pairs().map(|(h, t)| h * (h * t).powi(2)).sum();
        for (quantity, expected) in [
            ("tr_sigma", trace),
            ("squared_gradient", gradient),
            ("tr_h_sigma", squares),
            ("ghg", ghg),
        ] {
            let row = row_of(&rows, "noise", quantity, "");
            within(quantity, row.value.unwrap(), row.standard_error, expected);
        }
    });
}

// ---------------------------------------------------------------------------------------------
// What is refused, and what goes wrong.

#[test]
fn a_probe_stops_when_it_is_told_to() {
    let own = Own::new(&["data.subset=50"]);
    let stop = AtomicBool::new(true);
    Pool::with(1, |pool| {
        let objective = own.objective();
        let subject = Subject::new(objective, &own.data, pool, frozen(50, Vec::new())).unwrap();
        let mut subject = subject.with_stop(&stop);
        let probed = Probed {
            parameters: &own.at,
            metric: None,
        };
        let found = probe::run(&mut subject, &every_probe(), &probed, &mut |_| {});
        assert!(matches!(found, Err(ProbeError::Interrupted)));
    });
}

#[test]
fn what_cannot_be_probed_says_why() {
    let own = Own::of(
        &registry(),
        &[
            "model={custom={name=\"idle-without-dual\"}}",
            "data.subset=50",
        ],
    );
    Pool::with(1, |pool| {
        let refused = |options: SubjectOptions| {
            Subject::new(own.objective(), &own.data, pool, options)
                .err()
                .unwrap()
        };
        let exact = SubjectOptions {
            products: Products::Exact,
            ..frozen(50, Vec::new())
        };
        let error = refused(exact);
        assert!(matches!(
            error,
            ProbeError::Objective(ObjectiveError::NoExactProducts)
        ));
        assert!(error.to_string().contains("hint: take differences"));
        assert!(matches!(
            refused(frozen(0, Vec::new())),
            ProbeError::NoExamples
        ));
        let options = frozen(50, Vec::new());
        let subject = Subject::new(own.objective(), &own.data, pool, options).unwrap();
        let error = subject.at(&own.at[1..]).err().unwrap();
        assert!(error.to_string().contains("expected"), "{error}");
    });
    // A subset of the examples is one of fixed, seeded examples, each once.
    own.subject(1, frozen(20, Vec::new()), |subject| {
        let ids = subject.ids().to_vec();
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 20);
        own.subject(1, frozen(20, Vec::new()), |again| {
            assert_eq!(again.ids(), ids);
        });
    });
}

/// Weights that are not numbers: a typed error or empty cells, never a panic or a number.
#[test]
fn weights_that_are_not_finite_give_errors_or_empty_cells() {
    for lines in [TANH, BATCH_NORMALIZED, CNN] {
        let own = Own::new(&lines);
        let statistics = own.statistics();
        for bad in [f64::NAN, f64::INFINITY, 1e300] {
            let at = vec![bad; own.at.len()];
            own.subject(1, frozen(40, statistics.clone()), |subject| {
                let all = every_probe();
                let only = |change: &dyn Fn(&mut ProbesConfig)| {
                    let mut probes = ProbesConfig::default();
                    change(&mut probes);
                    probes
                };
                for probes in [
                    only(&|p| p.hessian.clone_from(&all.hessian)),
                    only(&|p| p.gauss_newton.clone_from(&all.gauss_newton)),
                    only(&|p| p.density.clone_from(&all.density)),
                    only(&|p| p.sharpness.clone_from(&all.sharpness)),
                    only(&|p| p.adversarial.clone_from(&all.adversarial)),
                    only(&|p| p.noise.clone_from(&all.noise)),
                ] {
                    let probed = Probed {
                        parameters: &at,
                        metric: None,
                    };
                    match probe::run(subject, &probes, &probed, &mut |_| {}) {
                        Err(error) => assert!(!error.to_string().is_empty()),
                        Ok(rows) => {
                            for row in rows {
                                let numbers = [row.value, row.standard_error, row.residual];
                                let finite = numbers.iter().flatten().all(|x| x.is_finite());
                                assert!(finite, "{row:?}");
                            }
                        }
                    }
                }
            });
        }
    }
}
