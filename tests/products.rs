//! Products with the Hessian and the Gauss-Newton matrix, and gradient norms of single examples:
//! against closed forms, dense matrices made by differences, differences along the direction, and
//! one gradient an example. In f64 but where it says otherwise.

use batchlab::config::{Activation, Normalization};
use batchlab::model::{
    AnyObjective, BurnObjective, CifarResnet, Dual, Forward, Mlp, Network, SimpleCnn,
    SoftmaxRegression,
};
use batchlab::objective::{
    Along, Batch, Differences, ExampleNorms, LayerStatistics, Layout, Objective, ObjectiveError,
    Point, Scalar, StatisticsMode, example_norms_one_by_one, population_statistics,
};
use batchlab::rng::Stream;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};

const INFERENCE: StatisticsMode<'static> = StatisticsMode::Inference(&[]);
const CLASSES: usize = 3;

const NORMALIZATIONS: [Normalization; 5] = [
    Normalization::None,
    Normalization::Batch,
    Normalization::Layer,
    Normalization::Group { groups: 2 },
    Normalization::Weight {
        data_dependent: false,
    },
];

/// A model with the shape of its examples.
struct Model {
    name: String,
    objective: Box<dyn AnyObjective>,
    features: usize,
    batch_normalized: bool,
}

fn wrap<M: Network>(name: impl Into<String>, network: M, shape: &[usize]) -> Model {
    let objective = BurnObjective::new(network, shape, "flex").unwrap();
    Model {
        name: name.into(),
        batch_normalized: Objective::<f64>::has_batch_statistics(&objective),
        objective: Box::new(objective),
        features: shape.iter().product(),
    }
}

fn mlp(activation: Activation, normalization: Normalization) -> Model {
    let network = Mlp::new(
        5,
        &[6, 4],
        CLASSES,
        activation,
        normalization,
        &Device::flex(),
    );
    let name = format!("mlp {activation:?} {normalization:?}");
    wrap(name, network.unwrap(), &[5])
}

/// Every shipped model with every normalization.
fn models() -> Vec<Model> {
    let device = Device::flex();
    let mut all = vec![wrap(
        "softmax regression",
        SoftmaxRegression::new(5, CLASSES, &device),
        &[5],
    )];
    for normalization in NORMALIZATIONS {
        all.push(mlp(Activation::Tanh, normalization));
        all.push(mlp(Activation::Relu, normalization));
        let shape = [2, 7, 6];
        let cnn = SimpleCnn::new(shape, [2, 4], 6, CLASSES, normalization, &device);
        all.push(wrap(format!("cnn {normalization:?}"), cnn.unwrap(), &shape));
        let resnet = CifarResnet::new(3, 8, 2, CLASSES, normalization, false, &device);
        all.push(wrap(
            format!("resnet {normalization:?}"),
            resnet.unwrap(),
            &[3, 6, 6],
        ));
    }
    all
}

impl Model {
    fn layout(&self) -> &Layout {
        Objective::<f64>::layout(&*self.objective)
    }

    /// Initial parameters, moved so that scales are not 1 and shifts are not 0.
    fn parameters<F: Scalar>(&self) -> Vec<F> {
        let initial = Objective::<f64>::initial(&*self.objective, 3);
        let moved = initial.iter().zip(normal(4, initial.len()));
        moved.map(|(t, z)| F::from_f64(t + 0.2 * z)).collect()
    }

    fn batch<F: Scalar>(&self, groups: &[usize]) -> Batch<F> {
        let n: usize = groups.iter().sum();
        let features = normal(5, n * self.features);
        Batch {
            features: features.into_iter().map(F::from_f64).collect(),
            labels: (0..n).map(|i| (i * i % CLASSES) as u32).collect(),
            ids: (0..n as u64).collect(),
            groups: groups.to_vec(),
        }
    }

    /// Inference statistics, those of other parameters than the test is at.
    fn statistics(&self) -> Vec<LayerStatistics> {
        let at = Objective::<f64>::initial(&*self.objective, 1);
        let point = self.objective.at(&at).unwrap();
        population_statistics(&point.moments(self.batch(&[9])).unwrap())
    }
}

fn normal(index: u64, n: usize) -> Vec<f64> {
    let mut stream = Stream::new(11, "products-test", index);
    (0..n).map(|_| stream.normal()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The distance relative to what is expected.
#[track_caller]
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let difference: Vec<f64> = found.iter().zip(expected).map(|(a, b)| a - b).collect();
    norm(&difference) / norm(expected)
}

/// Some examples of a batch, in one group.
fn part(model: &Model, batch: &Batch<f64>, range: std::ops::Range<usize>) -> Batch<f64> {
    let features = range.start * model.features..range.end * model.features;
    Batch {
        features: batch.features[features].to_vec(),
        labels: batch.labels[range.clone()].to_vec(),
        ids: batch.ids[range.clone()].to_vec(),
        groups: vec![range.len()],
    }
}

#[track_caller]
fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let error = distance(found, expected);
    assert!(error <= tolerance, "{what}: off by {error:e}");
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Matrix {
    Hessian,
    GaussNewton,
}
use Matrix::{GaussNewton, Hessian};

fn of(
    along: &dyn Along<f64>,
    matrix: Matrix,
    batch: Batch<f64>,
    mode: StatisticsMode<'_>,
    weight: f64,
    n: usize,
) -> Vec<f64> {
    // What was there is overwritten.
    let mut product = vec![f64::NAN; n];
    match matrix {
        Hessian => along.hessian_product(batch, mode, weight, &mut product),
        GaussNewton => along.gauss_newton_product(batch, mode, weight, &mut product),
    }
    .unwrap();
    product
}

fn exact(
    point: &dyn Point<f64>,
    matrix: Matrix,
    batch: &Batch<f64>,
    mode: StatisticsMode<'_>,
    v: &[f64],
) -> Vec<f64> {
    let along = point.along(v).unwrap();
    of(&*along, matrix, batch.clone(), mode, 1.0, v.len())
}

fn unit(n: usize, i: usize) -> Vec<f64> {
    let mut v = vec![0.0; n];
    v[i] = 1.0;
    v
}

#[test]
fn softmax_regression_has_its_closed_form() {
    let model = wrap(
        "softmax regression",
        SoftmaxRegression::new(5, CLASSES, &Device::flex()),
        &[5],
    );
    let at: Vec<f64> = model.parameters();
    let n = 7;
    let batch = model.batch::<f64>(&[n]);
    let point = model.objective.at(&at).unwrap();
    // H = (1/N) sum (diag p - p p') (x) x x', x with a 1 for the bias; the layout is W row-major
    // [features, classes], then b.
    let mut expected = vec![vec![0.0; at.len()]; at.len()];
    for example in 0..n {
        let mut x = batch.features[example * 5..(example + 1) * 5].to_vec();
        x.push(1.0);
        let logit = |c: usize| -> f64 { (0..6).map(|f| x[f] * at[f * CLASSES + c]).sum() };
        let total: f64 = (0..CLASSES).map(|c| logit(c).exp()).sum();
        let p: Vec<f64> = (0..CLASSES).map(|c| logit(c).exp() / total).collect();
        for (i, row) in expected.iter_mut().enumerate() {
            for (j, h) in row.iter_mut().enumerate() {
                let (f, c, g, d) = (i / CLASSES, i % CLASSES, j / CLASSES, j % CLASSES);
                let own = if c == d { p[c] } else { 0.0 };
                *h += (own - p[c] * p[d]) * x[f] * x[g] / n as f64;
            }
        }
    }
    for (i, row) in expected.iter().enumerate() {
        for matrix in [Hessian, GaussNewton] {
            let found = exact(&*point, matrix, &batch, INFERENCE, &unit(at.len(), i));
            close(&format!("row {i}"), &found, row, 1e-12);
        }
    }
}

/// Columns (f(t + e unit) - f(t - e unit))/(2 e), to fourth order by Richardson's rule from e and
/// e/2.
fn derivative(at: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<Vec<f64>> {
    let central = |i: usize, e: f64| -> Vec<f64> {
        let (mut ahead, mut behind) = (at.to_vec(), at.to_vec());
        ahead[i] += e;
        behind[i] -= e;
        let pairs = f(&ahead).into_iter().zip(f(&behind));
        pairs.map(|(a, b)| (a - b) / (2.0 * e)).collect()
    };
    (0..at.len())
        .map(|i| {
            let (wide, narrow) = (central(i, 4e-4), central(i, 2e-4));
            let pairs = wide.into_iter().zip(narrow);
            pairs.map(|(w, n)| (4.0 * n - w) / 3.0).collect()
        })
        .collect()
}

#[test]
fn products_of_a_tiny_network_are_those_of_its_dense_matrices() {
    for normalization in NORMALIZATIONS {
        let model = mlp(Activation::Tanh, normalization);
        let at: Vec<f64> = model.parameters();
        let n = 6;
        let batch = model.batch::<f64>(&[n]);
        let mode = StatisticsMode::Batch;
        let gradient = |at: &[f64]| {
            let mut gradient = vec![0.0; at.len()];
            let point = model.objective.at(at).unwrap();
            point
                .gradient(batch.clone(), mode, 1.0, &mut gradient)
                .unwrap();
            gradient
        };
        let outputs = |at: &[f64]| {
            let point = model.objective.at(at).unwrap();
            point.outputs(batch.clone(), mode).unwrap()
        };
        let hessian = derivative(&at, gradient);
        // J by columns, and G = (1/n) J' (diag p - p p') J.
        let jacobian = derivative(&at, outputs);
        let logits = outputs(&at);
        let curve = |t: &[f64]| -> Vec<f64> {
            let rows = logits.chunks(CLASSES).zip(t.chunks(CLASSES));
            rows.flat_map(|(z, t)| {
                let total: f64 = z.iter().map(|z| z.exp()).sum();
                let p: Vec<f64> = z.iter().map(|z| z.exp() / total).collect();
                let mean = dot(&p, t);
                let own = p.iter().zip(t).map(|(p, t)| p * (t - mean) / n as f64);
                own.collect::<Vec<f64>>()
            })
            .collect()
        };
        let point = model.objective.at(&at).unwrap();
        let scale = hessian.iter().map(|row| dot(row, row)).sum::<f64>().sqrt();
        let (mut found_h, mut found_g, mut dense_h, mut dense_g) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for i in 0..at.len() {
            let v = unit(at.len(), i);
            found_h.extend(exact(&*point, Hessian, &batch, mode, &v));
            found_g.extend(exact(&*point, GaussNewton, &batch, mode, &v));
            dense_h.extend(&hessian[i]);
            let u = curve(&jacobian[i]);
            dense_g.extend(jacobian.iter().map(|column| dot(column, &u)));
        }
        close(&model.name, &found_h, &dense_h, 1e-8);
        close(&model.name, &found_g, &dense_g, 1e-8);
        for i in 0..at.len() {
            for j in 0..i {
                let asymmetry = found_h[i * at.len() + j] - found_h[j * at.len() + i];
                assert!(asymmetry.abs() <= 1e-14 * scale, "{}", model.name);
            }
        }
        for seed in 0..20 {
            let v = normal(100 + seed, at.len());
            let g = exact(&*point, GaussNewton, &batch, mode, &v);
            assert!(dot(&v, &g) >= 0.0, "{}", model.name);
        }
    }
}

/// What holds of products in one mode.
fn check(model: &Model, groups: &[usize], mode: StatisticsMode<'_>) {
    let at: Vec<f64> = model.parameters();
    let point = model.objective.at(&at).unwrap();
    let batch = model.batch(groups);
    let (u, v) = (normal(6, at.len()), normal(7, at.len()));
    for matrix in [Hessian, GaussNewton] {
        let name = &model.name;
        let product = |v: &[f64]| exact(&*point, matrix, &batch, mode, v);
        let (hu, hv) = (product(&u), product(&v));
        let by_differences = Differences::new(&*model.objective, &*point, &at, &v).unwrap();
        let differences = of(&by_differences, matrix, batch.clone(), mode, 1.0, at.len());
        close(&format!("{name}: differences"), &differences, &hv, 1e-7);
        let asymmetry = (dot(&u, &hv) - dot(&v, &hu)).abs();
        assert!(
            asymmetry <= 1e-13 * norm(&u) * norm(&hv),
            "{name}: {asymmetry:e}"
        );
        let mixed: Vec<f64> = u.iter().zip(&v).map(|(u, v)| 3.0 * u - 0.5 * v).collect();
        let expected: Vec<f64> = hu.iter().zip(&hv).map(|(u, v)| 3.0 * u - 0.5 * v).collect();
        close(
            &format!("{name}: linear"),
            &product(&mixed),
            &expected,
            1e-12,
        );
        for length in [1e-9, 1e9] {
            let long: Vec<f64> = v.iter().map(|v| length * v).collect();
            let expected: Vec<f64> = hv.iter().map(|h| length * h).collect();
            close(
                &format!("{name}: length"),
                &product(&long),
                &expected,
                1e-12,
            );
        }
        let nothing = product(&vec![0.0; at.len()]);
        assert!(nothing.iter().all(|x| *x == 0.0), "{name}");
        if matches!(mode, StatisticsMode::Inference(_)) {
            let n = batch.len();
            let along = point.along(&v).unwrap();
            let mut sum = vec![0.0; at.len()];
            for range in [0..1, 1..n] {
                let part = part(model, &batch, range.clone());
                let weight = range.len() as f64 / n as f64;
                let own = of(&*along, matrix, part, mode, weight, at.len());
                sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
            close(&format!("{name}: pieces"), &sum, &hv, 1e-12);
        }
    }
}

#[test]
fn products_of_every_model_and_normalization_are_exact() {
    for model in models() {
        assert!(Objective::<f64>::has_exact_products(&*model.objective));
        check(&model, &[5], StatisticsMode::Inference(&model.statistics()));
        check(&model, &[3, 3], StatisticsMode::Batch);
        check(&model, &[4, 4, 3], StatisticsMode::Batch);
    }
}

/// Products that keep what does not depend on the direction are those that do not, up to the order of
/// sums; and what is kept changes no bit: the first product has those of a later one.
#[test]
fn prepared_products_and_gradients_are_those_made_without() {
    // Dense layers in a row have all that they keep at once.
    let at_once = ["softmax regression", "mlp Tanh None", "mlp Relu None"];
    let own = Own::model(Kind::DualSquares);
    for model in models().into_iter().chain([own]) {
        let at: Vec<f64> = model.parameters();
        let point = model.objective.at(&at).unwrap();
        let batch = model.batch(&[7]);
        let mode = StatisticsMode::Inference(&[]);
        let mode = if model.batch_normalized {
            StatisticsMode::Batch
        } else {
            mode
        };
        let prepare = || point.prepare(&batch, mode, 0.3).unwrap().unwrap();
        let prepared = prepare();
        assert!(prepared.bytes() >= 8 * batch.features.len());
        let before = prepared.bytes();
        let single: Vec<f32> = model.parameters();
        let single = model.objective.at(&single).unwrap();
        let rounded = single
            .prepare(&model.batch(&[7]), mode, 0.3)
            .unwrap()
            .unwrap();
        let mut gradient = vec![0.0; at.len()];
        point
            .gradient(batch.clone(), mode, 0.3, &mut gradient)
            .unwrap();
        let mut sum = vec![1.0; at.len()];
        prepared.add_gradient(&mut sum).unwrap();
        let added: Vec<f64> = sum.iter().map(|x| x - 1.0).collect();
        close(&model.name, &added, &gradient, 1e-13);
        // The second direction shows that the first has left nothing of its own.
        for v in [normal(6, at.len()), normal(7, at.len())] {
            let along = point.along(&v).unwrap();
            let short: Vec<f32> = v.iter().map(|&x| x as f32).collect();
            for matrix in [Hessian, GaussNewton] {
                let expected = of(&*along, matrix, batch.clone(), mode, 0.3, at.len());
                let mut sum = vec![1.0; at.len()];
                let mut short_sum = vec![0.0; at.len()];
                match matrix {
                    Hessian => {
                        prepared.add_hessian_product(&v, &mut sum).unwrap();
                        rounded.add_hessian_product(&short, &mut short_sum).unwrap();
                    }
                    GaussNewton => {
                        prepared.add_gauss_newton_product(&v, &mut sum).unwrap();
                        rounded
                            .add_gauss_newton_product(&short, &mut short_sum)
                            .unwrap();
                    }
                }
                let added: Vec<f64> = sum.iter().map(|x| x - 1.0).collect();
                close(&model.name, &added, &expected, 1e-12);
                let mut first = vec![1.0; at.len()];
                match matrix {
                    Hessian => prepare().add_hessian_product(&v, &mut first).unwrap(),
                    GaussNewton => prepare().add_gauss_newton_product(&v, &mut first).unwrap(),
                }
                assert_eq!(sum, first, "{} {matrix:?}", model.name);
                let added: Vec<f64> = short_sum.iter().map(|&x| f64::from(x)).collect();
                // Normalization over two values divides what is rounded by their small difference.
                let plain = at_once.contains(&model.name.as_str());
                let tolerance = if plain { 1e-5 } else { 1e-4 };
                close(
                    &format!("{} in f32", model.name),
                    &added,
                    &expected,
                    tolerance,
                );
            }
        }
        let error = prepared
            .add_hessian_product(&[1.0], &mut [0.0])
            .unwrap_err();
        assert!(error.to_string().contains("direction: expected"), "{error}");
        let grows = !at_once.contains(&model.name.as_str());
        assert_eq!(prepared.bytes() > before, grows, "{}", model.name);
    }
}

/// Where an example has a kink between the two points of a difference, the difference takes in the
/// jump of its gradient. That is why there are exact products.
#[test]
fn kinks_disturb_differences_and_not_exact_products() {
    let device = Device::flex();
    let (widths, activation) = ([64, 64], Activation::Relu);
    let network = Mlp::new(
        5,
        &widths,
        CLASSES,
        activation,
        Normalization::None,
        &device,
    );
    let model = wrap("wide", network.unwrap(), &[5]);
    let at: Vec<f64> = model.parameters();
    let point = model.objective.at(&at).unwrap();
    let (pieces, n) = (30, 1000);
    let batch = model.batch(&[pieces * n]);
    let (u, v) = (normal(6, at.len()), normal(7, at.len()));
    let hu = exact(&*point, Hessian, &batch, INFERENCE, &u);
    let hv = exact(&*point, Hessian, &batch, INFERENCE, &v);
    let asymmetry = (dot(&u, &hv) - dot(&v, &hu)).abs();
    assert!(asymmetry <= 1e-13 * norm(&u) * norm(&hv), "{asymmetry:e}");
    let differences = Differences::new(&*model.objective, &*point, &at, &v).unwrap();
    let by_differences = of(
        &differences,
        Hessian,
        batch.clone(),
        INFERENCE,
        1.0,
        at.len(),
    );
    assert!(distance(&by_differences, &hv) > 0.01);
    // The pieces without such an example agree, and they are all but a few.
    let mut disturbed = 0;
    for piece in 0..pieces {
        let part = part(&model, &batch, piece * n..(piece + 1) * n);
        let hv = exact(&*point, Hessian, &part, INFERENCE, &v);
        let by_differences = of(&differences, Hessian, part, INFERENCE, 1.0, at.len());
        disturbed += usize::from(distance(&by_differences, &hv) > 1e-7);
    }
    assert!((1..=3).contains(&disturbed), "{disturbed} of {pieces}");
    // The outputs have no jumps.
    let gv = exact(&*point, GaussNewton, &batch, INFERENCE, &v);
    let by_differences = of(&differences, GaussNewton, batch, INFERENCE, 1.0, at.len());
    close("Gauss-Newton", &by_differences, &gv, 1e-4);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Cross-entropy without dual numbers.
    Plain,
    /// Squares of the outputs, without their dual.
    Squares,
    /// Squares of the outputs, with their dual.
    DualSquares,
    /// Dense layers not called through the pass.
    Direct,
    /// The output layer called twice.
    Twice,
    /// The weight of the first layer in the losses as well.
    Penalty,
    /// No dual, although it says so.
    Nothing,
}

/// A user's network.
#[derive(Module, Debug)]
struct Own {
    first: Linear,
    unused: Linear,
    last: Linear,
    #[module(skip)]
    kind: Kind,
}

impl Own {
    fn model(kind: Kind) -> Model {
        let layer = |from, to| LinearConfig::new(from, to).init(&Device::flex());
        let network = Self {
            first: layer(5, 4),
            unused: layer(2, 3),
            last: layer(4, if kind == Kind::Twice { 4 } else { CLASSES }),
            kind,
        };
        wrap(format!("{kind:?}"), network, &[5])
    }
}

impl Network for Own {
    fn forward(&self, input: Tensor<2>, pass: &mut Forward<'_>) -> Tensor<2> {
        if self.kind == Kind::Direct {
            return self.last.forward(self.first.forward(input).tanh());
        }
        let hidden = pass.dense(&self.first, input).tanh();
        match self.kind {
            Kind::Twice => {
                let hidden = pass.dense(&self.last, hidden).tanh();
                pass.dense(&self.last, hidden)
            }
            Kind::Penalty => {
                // Only the pass for its gradients would know.
                let share = self.first.weight.val().sum().unsqueeze();
                pass.dense(&self.last, hidden) * share
            }
            _ => pass.dense(&self.last, hidden),
        }
    }

    fn losses(&self, outputs: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        if matches!(self.kind, Kind::Squares | Kind::DualSquares) {
            return outputs.powi_scalar(2).sum_dim(1).squeeze_dim(1);
        }
        burn::tensor::activation::log_softmax(outputs, 1)
            .gather(1, labels.unsqueeze_dim(1))
            .squeeze_dim(1)
            .neg()
    }

    fn has_dual(&self) -> bool {
        matches!(self.kind, Kind::Squares | Kind::DualSquares | Kind::Nothing)
    }

    fn forward_dual(
        &self,
        direction: &Self,
        input: Tensor<2>,
        pass: &mut Forward<'_>,
    ) -> Option<Dual<2>> {
        if self.kind == Kind::Nothing {
            return None;
        }
        let input = Dual::constant(input);
        let hidden = pass.dense_dual(&self.first, Some(&direction.first), input);
        Some(pass.dense_dual(&self.last, Some(&direction.last), hidden.tanh()))
    }

    fn losses_dual(&self, outputs: Dual<2>, labels: Tensor<1, Int>) -> Dual<1> {
        if self.kind == Kind::DualSquares {
            return outputs
                .square()
                .linear(|t| t.sum_dim(1))
                .linear(|t| t.squeeze_dim(1));
        }
        // As one who forgot to override it.
        let labels = labels.unsqueeze_dim(1);
        Dual::constant(outputs.value.gather(1, labels).squeeze_dim(1))
    }
}

#[test]
fn a_users_network_has_exact_products_where_it_gives_its_derivative() {
    let model = Own::model(Kind::DualSquares);
    check(&model, &[6], INFERENCE);
    let at: Vec<f64> = model.parameters();
    let point = model.objective.at(&at).unwrap();
    // A parameter that the loss does not use is a row and a column of zeros.
    for parameter in &model.layout().parameters {
        let own = parameter.range.clone();
        let used = parameter.layer() != "unused";
        let batch = model.batch(&[4]);
        let rows = exact(&*point, Hessian, &batch, INFERENCE, &normal(1, at.len()));
        assert_eq!(rows[own.clone()].iter().any(|x| *x != 0.0), used);
        let mut v = vec![0.0; at.len()];
        v[own].fill(1.0);
        for matrix in [Hessian, GaussNewton] {
            let column = exact(&*point, matrix, &batch, INFERENCE, &v);
            assert_eq!(column.iter().any(|x| *x != 0.0), used, "{}", parameter.name);
        }
    }
}

#[test]
fn a_network_without_dual_numbers_has_products_by_differences() {
    let squares = Own::model(Kind::DualSquares);
    let plain = Own::model(Kind::Plain);
    assert!(!Objective::<f64>::has_exact_products(&*plain.objective));
    let at: Vec<f64> = plain.parameters();
    let v = normal(8, at.len());
    let point = plain.objective.at(&at).unwrap();
    assert!(matches!(
        point.along(&v).err(),
        Some(ObjectiveError::NoExactProducts)
    ));
    let batch = plain.batch(&[5]);
    // J' H_z t by differences of the losses against the closed form of the squares, H_z = 2.
    let tangent = normal(9, 5 * CLASSES);
    let pull = |model: &Model, tangent: &[f64]| {
        let mut product = vec![f64::NAN; at.len()];
        let point = model.objective.at(&at).unwrap();
        point
            .pull_back(batch.clone(), INFERENCE, tangent, 0.7, &mut product)
            .unwrap();
        product
    };
    let logits = point.outputs(batch.clone(), INFERENCE).unwrap();
    let rows = logits.chunks(CLASSES).zip(tangent.chunks(CLASSES));
    let halves: Vec<f64> = rows
        .flat_map(|(z, t)| {
            let total: f64 = z.iter().map(|z| z.exp()).sum();
            let p: Vec<f64> = z.iter().map(|z| z.exp() / total).collect();
            let mean = dot(&p, t);
            let own = p.iter().zip(t).map(|(p, t)| p * (t - mean) / 2.0);
            own.collect::<Vec<f64>>()
        })
        .collect();
    close(
        "pulled back",
        &pull(&plain, &tangent),
        &pull(&squares, &halves),
        1e-8,
    );
    // Rows of zeros do not move.
    assert!(pull(&plain, &[0.0; 5 * CLASSES]).iter().all(|x| *x == 0.0));
    let differences = Differences::new(&*plain.objective, &*point, &at, &v).unwrap();
    let (hv, gv) = (
        of(
            &differences,
            Hessian,
            batch.clone(),
            INFERENCE,
            1.0,
            at.len(),
        ),
        of(
            &differences,
            GaussNewton,
            batch.clone(),
            INFERENCE,
            1.0,
            at.len(),
        ),
    );
    assert!(dot(&v, &gv) > 0.0 && norm(&hv) > 0.0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |kind: Kind| {
        let model = Own::model(kind);
        let at: Vec<f64> = model.parameters();
        let point = model.objective.at(&at).unwrap();
        let along = point.along(&at).unwrap();
        along
            .hessian_product(model.batch(&[3]), INFERENCE, 1.0, &mut vec![0.0; at.len()])
            .unwrap_err()
    };
    assert!(matches!(
        refused(Kind::Squares),
        ObjectiveError::DualLosses { .. }
    ));
    assert!(matches!(
        refused(Kind::Nothing),
        ObjectiveError::NoExactProducts
    ));

    let model = mlp(Activation::Tanh, Normalization::Batch);
    let at: Vec<f64> = model.parameters();
    let point = model.objective.at(&at).unwrap();
    let message = |error: Option<ObjectiveError>| error.unwrap().to_string();
    assert_eq!(
        message(point.along(&at[1..]).err()),
        format!("direction: expected {}, found {}", at.len(), at.len() - 1)
    );
    let short = Differences::new(&*model.objective, &*point, &at, &[1.0]);
    assert!(message(short.err()).starts_with("direction"));
    let mut product = vec![0.0; at.len()];
    let batch = model.batch::<f64>(&[4]);
    let pulled = point.pull_back(
        batch.clone(),
        StatisticsMode::Batch,
        &[0.0; 5],
        1.0,
        &mut product,
    );
    assert_eq!(
        message(pulled.err()),
        "tangent of the outputs: expected 4 examples x 3, found 5"
    );
    let along = point.along(&at).unwrap();
    let one = along.hessian_product(model.batch(&[1]), StatisticsMode::Batch, 1.0, &mut product);
    assert!(matches!(one, Err(ObjectiveError::GroupOfOne)));
    assert!(matches!(
        point.example_norms(batch, StatisticsMode::Batch),
        Err(ObjectiveError::BatchStatistics)
    ));
}

fn norms<F: Scalar>(model: &Model, mode: StatisticsMode<'_>) -> (ExampleNorms, ExampleNorms)
where
    dyn AnyObjective: Objective<F>,
{
    let objective: &dyn AnyObjective = &*model.objective;
    let at: Vec<F> = model.parameters();
    let point = objective.at(&at).unwrap();
    let batch = model.batch::<F>(&[7]);
    let fast = point.example_norms(batch.clone(), mode).unwrap();
    let slow = example_norms_one_by_one(&*point, model.layout(), &batch, mode).unwrap();
    (fast, slow)
}

fn compare(name: &str, (fast, slow): &(ExampleNorms, ExampleNorms), tolerance: f64) {
    close(
        &format!("{name}: losses"),
        &fast.losses,
        &slow.losses,
        tolerance,
    );
    let layers = |norms: &ExampleNorms| -> Vec<String> {
        norms
            .layers
            .iter()
            .map(|layer| layer.layer.clone())
            .collect()
    };
    assert_eq!(layers(fast), layers(slow));
    for (fast, slow) in fast.layers.iter().zip(&slow.layers) {
        for (a, b) in fast.squared_norms.iter().zip(&slow.squared_norms) {
            assert!(
                (a - b).abs() <= tolerance * b,
                "{name} {}: {a} {b}",
                slow.layer
            );
        }
    }
}

#[test]
fn example_norms_in_one_pass_are_those_of_one_gradient_an_example() {
    for model in models() {
        let statistics = model.statistics();
        let inference = StatisticsMode::Inference(&statistics);
        let modes = [inference, StatisticsMode::Batch];
        let modes = &modes[..if model.batch_normalized { 1 } else { 2 }];
        for mode in modes {
            let double = norms::<f64>(&model, *mode);
            assert!(
                double.0.exact_pass && !double.1.exact_pass,
                "{}",
                model.name
            );
            compare(&model.name, &double, 1e-10);
            let single = norms::<f32>(&model, *mode);
            assert!(single.0.exact_pass, "{}", model.name);
            compare(&model.name, &single, 1e-5);
        }
        let (fast, _) = norms::<f64>(&model, inference);
        let at: Vec<f64> = model.parameters();
        let point = model.objective.at(&at).unwrap();
        let batch = part(&model, &model.batch(&[7]), 6..7);
        let mut gradient = vec![0.0; at.len()];
        point
            .gradient(batch, inference, 1.0, &mut gradient)
            .unwrap();
        let square = dot(&gradient, &gradient);
        assert!((fast.squared_norms()[6] - square).abs() <= 1e-10 * square);
    }
}

#[test]
fn example_norms_of_layers_that_the_pass_does_not_see_are_taken_one_by_one() {
    for kind in [Kind::Plain, Kind::Direct, Kind::Twice, Kind::Penalty] {
        let model = Own::model(kind);
        let both = norms::<f64>(&model, INFERENCE);
        assert!(!both.0.exact_pass, "{kind:?}");
        assert_eq!(both.0, both.1, "{kind:?}");
    }
}
