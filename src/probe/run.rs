//! The probes of a config, one after the other.

use std::ops::Range;

use super::adversarial::{AdversarialError, Attack};
use super::noise::{
    ExampleNoise, LayerGradients, PieceNoise, PieceNoiseError, example_noise, inner_products,
    piece_noise, preconditioned_noise,
};
use super::sharpness::{self, Keskar, SharpnessError};
use super::{Curvature, ProbeError, Row, Subject, SubjectAt};
use crate::config::{
    AdversarialProbe, BlockKind, DensityProbe, HessianProbe, NoiseProbe, ProbesConfig,
    SharpnessProbe, TraceMethod,
};
use crate::math::density::{DensitySearch, spectral_density};
use crate::math::lanczos::{EigenPair, EigenSearch, Space, eigenpairs};
use crate::math::lbfgs_b::Outcome;
use crate::math::noise_scale::{NoiseParts, Quantity, Ratio};
use crate::math::operator::{add_scaled, norm};
use crate::math::trace::{
    TraceEstimate, TraceSearch, block_traces, deflated, hutch_plus_plus, hutchinson,
    krylov_deflated, space_deflated,
};
use crate::objective::Layout;
use crate::rng::Stream;

/// Fewest random vectors from which a trace's standard error is trusted.
const MIN_PROBES: usize = 10;

/// Eigenvectors that make a trace cheap where they are known, or products of a Krylov space in their
/// place.
const SKETCH: usize = 15;

/// What is probed.
#[derive(Debug, Clone)]
pub struct Probed<'a> {
    /// The parameters.
    pub parameters: &'a [f64],
    /// The optimizer's metric there, if it has one: the gradient is multiplied by it, element by
    /// element.
    pub metric: Option<Vec<f64>>,
}

/// Makes the probes that `probes` asks for, and tells `stage` what it is at. The random vectors come
/// from streams of the subject's seed, so the same probe of the same parameters gives the same bits.
///
/// # Errors
/// If the model fails, the user asks to stop, or the examples do not tell what is asked.
pub fn run(
    subject: &mut Subject<'_, '_>,
    probes: &ProbesConfig,
    probed: &Probed<'_>,
    stage: &mut dyn FnMut(&'static str),
) -> Result<Vec<Row>, ProbeError> {
    let mut rows = Vec::new();
    let at = probed.parameters;
    if let Some(probe) = &probes.hessian {
        matrix(subject, at, Curvature::Hessian, probe, &mut rows, stage)?;
    }
    if let Some(probe) = &probes.gauss_newton {
        matrix(subject, at, Curvature::GaussNewton, probe, &mut rows, stage)?;
    }
    if let Some(probe) = &probes.density {
        stage("density");
        density(subject, at, probe, &mut rows)?;
    }
    if let Some(probe) = &probes.sharpness {
        sharp(subject, at, probe, &mut rows, stage)?;
    }
    if let Some(probe) = &probes.adversarial {
        stage("adversarial");
        adversarial(subject, at, probe, &mut rows)?;
    }
    if let Some(probe) = &probes.noise {
        noise(subject, probed, probe, &mut rows, stage)?;
    }
    // What is not a number is an empty cell.
    for row in &mut rows {
        for cell in [&mut row.value, &mut row.standard_error, &mut row.residual] {
            *cell = cell.filter(|x| x.is_finite());
        }
    }
    Ok(rows)
}

/// A row that says what it is of and nothing yet.
fn row(subject: &Subject<'_, '_>, probe: &'static str, quantity: &'static str) -> Row {
    Row {
        probe,
        quantity,
        scope: String::new(),
        at: None,
        value: None,
        standard_error: None,
        residual: None,
        converged: None,
        products: None,
        examples: subject.examples(),
        statistics: subject.statistics_name(),
    }
}

/// Fills vectors with standard normal numbers of a stream.
fn normal(stream: &mut Stream) -> impl FnMut(&mut [f64]) + '_ {
    move |v: &mut [f64]| v.fill_with(|| stream.normal())
}

/// [`normal`], but for the first vector: that is one of +1 and -1, and the gradient added at the same
/// length. The gradient of a trained network lies mostly among the eigenvectors of the largest eigenvalues
/// (Gur-Ari, Roberts and Dyer 2018, arXiv 1812.04754), so a search that starts there finds these sooner;
/// what it does not hold is in the other half.
fn from_gradient(gradient: Vec<f64>, stream: &mut Stream) -> impl FnMut(&mut [f64]) + '_ {
    let mut gradient = Some(gradient);
    move |v: &mut [f64]| match gradient.take() {
        None => normal(stream)(v),
        Some(gradient) => {
            signs(stream)(v);
            let length = norm(&gradient);
            if length > 0.0 && length.is_finite() {
                add_scaled(v, norm(v) / length, &gradient);
            }
        }
    }
}

/// Fills vectors with +1 and -1.
fn signs(stream: &mut Stream) -> impl FnMut(&mut [f64]) + '_ {
    move |v: &mut [f64]| {
        let mut bits = 0;
        for (i, x) in v.iter_mut().enumerate() {
            if i % 64 == 0 {
                bits = stream.next_u64();
            }
            *x = if bits & 1 == 1 { 1.0 } else { -1.0 };
            bits >>= 1;
        }
    }
}

fn name(of: Curvature) -> &'static str {
    match of {
        Curvature::Hessian => "hessian",
        Curvature::GaussNewton => "gauss_newton",
    }
}

fn matrix(
    subject: &Subject<'_, '_>,
    at: &[f64],
    of: Curvature,
    probe: &HessianProbe,
    rows: &mut Vec<Row>,
    stage: &mut dyn FnMut(&'static str),
) -> Result<(), ProbeError> {
    let seed = subject.seed();
    let mut point = subject.at(at)?;
    let method = trace_method(subject, &point, of, probe)?;
    let (mut known, mut known_trace, mut space) = (Vec::new(), 0.0, None);
    if probe.largest + probe.smallest > 0 {
        stage("eigenvalues");
        let few = probe.largest + probe.smallest < SKETCH;
        let search = EigenSearch {
            keep: few && probe.trace_products > 0 && method == TraceMethod::Krylov,
            ..search(probe, probe.largest, probe.smallest)
        };
        let mut gradient = vec![0.0; at.len()];
        point.gradient_like_products(&mut gradient)?;
        let mut stream = Stream::new(seed, "lanczos", 0);
        let mut draw = from_gradient(gradient, &mut stream);
        let found = eigenpairs(&mut point.operator(of, None), &search, &mut draw)?;
        let ends = [
            ("eigenvalue", &found.largest),
            ("smallest_eigenvalue", &found.smallest),
        ];
        for (quantity, pairs) in ends {
            for (i, pair) in pairs.iter().enumerate() {
                rows.push(Row {
                    at: Some((i + 1) as f64),
                    ..eigenvalue(subject, of, quantity, pair, found.products)
                });
            }
        }
        let pairs = || found.largest.iter().chain(&found.smallest);
        // Where the ends meet, some pairs stand in both.
        let apart = probe.largest + probe.smallest <= at.len();
        if apart && pairs().all(|pair| pair.value.is_finite()) {
            known_trace = pairs().map(|pair| pair.value).sum();
            known = pairs().map(|pair| pair.vector.clone()).collect();
        }
        space = found.space;
    }
    let blocks = blocks_of(subject.layout(), probe.blocks);
    if probe.trace_products > 0 {
        stage("trace");
        let known = Known {
            space,
            vectors: known,
            trace: known_trace,
        };
        let found = traces(&mut point, of, (probe, method), known, &blocks)?;
        let mut scopes = vec![(String::new(), "trace")];
        scopes.extend(
            blocks
                .iter()
                .map(|(scope, _)| (scope.clone(), "block_trace")),
        );
        for ((scope, quantity), trace) in scopes.into_iter().zip(&found) {
            let own = row(subject, name(of), quantity);
            rows.push(estimate(Row { scope, ..own }, trace));
        }
    }
    if !blocks.is_empty() {
        stage("blocks");
    }
    for (i, (scope, range)) in blocks.iter().enumerate() {
        let mut stream = Stream::new(seed, "lanczos-block", i as u64);
        let mut draw = normal(&mut stream);
        let mut block = point.operator(of, Some(range.clone()));
        let found = eigenpairs(&mut block, &search(probe, 1, 0), &mut draw)?;
        for pair in &found.largest {
            rows.push(Row {
                scope: scope.clone(),
                ..eigenvalue(subject, of, "block_eigenvalue", pair, found.products)
            });
        }
    }
    Ok(())
}

/// What the search for eigenvalues leaves for the trace.
struct Known {
    space: Option<Space>,
    vectors: Vec<Vec<f64>>,
    /// The sum of the eigenvalues of `vectors`.
    trace: f64,
}

/// How the trace is found, [`TraceMethod::Auto`] decided.
fn trace_method(
    subject: &Subject<'_, '_>,
    point: &SubjectAt<'_, '_, '_>,
    of: Curvature,
    probe: &HessianProbe,
) -> Result<TraceMethod, ProbeError> {
    match probe.trace {
        method if probe.trace_products == 0 => Ok(method),
        TraceMethod::Exact => {
            point.check_layer_traces(of)?;
            Ok(TraceMethod::Exact)
        }
        // Differences are of a loss with its kinks.
        TraceMethod::Auto
            if !subject.has_exact_products() || subject.classes() > probe.trace_products =>
        {
            Ok(TraceMethod::Krylov)
        }
        TraceMethod::Auto => match point.check_layer_traces(of) {
            Ok(()) => Ok(TraceMethod::Exact),
            Err(ProbeError::NoExactTrace { .. }) => Ok(TraceMethod::Krylov),
            Err(error) => Err(error),
        },
        method => Ok(method),
    }
}

/// The trace, and those of the diagonal blocks.
fn traces(
    point: &mut SubjectAt<'_, '_, '_>,
    of: Curvature,
    (probe, method): (&HessianProbe, TraceMethod),
    known: Known,
    blocks: &[(String, Range<usize>)],
) -> Result<Vec<TraceEstimate>, ProbeError> {
    let ranges: Vec<Range<usize>> = blocks.iter().map(|(_, range)| range.clone()).collect();
    if method == TraceMethod::Exact {
        return exact_traces(point, of, &ranges);
    }
    let search = TraceSearch {
        tolerance: probe.trace_tolerance,
        min_probes: MIN_PROBES,
        max_products: probe.trace_products,
    };
    let mut stream = Stream::new(point.subject().seed(), "trace", 0);
    let mut draw = signs(&mut stream);
    let mut matrix = point.operator(of, None);
    let trace = match (method, known.space) {
        (TraceMethod::Hutchinson, _) => hutchinson(&mut matrix, &search, &mut draw)?,
        (TraceMethod::HutchPlusPlus, _) => hutch_plus_plus(&mut matrix, &search, &mut draw)?,
        (_, Some(space)) => {
            let steps = SKETCH.saturating_sub(space.vectors.len());
            space_deflated(&mut matrix, space, steps, &search, &mut draw)?
        }
        (_, None) if known.vectors.len() < SKETCH => {
            krylov_deflated(&mut matrix, SKETCH, &search, &mut draw)?
        }
        (_, None) => {
            let Known { vectors, trace, .. } = known;
            deflated(&mut matrix, &vectors, trace, 0, &search, &mut draw)?
        }
    };
    let mut all = vec![trace];
    if !ranges.is_empty() {
        all.extend(block_traces(&mut matrix, &ranges, &search, &mut draw)?);
    }
    Ok(all)
}

/// The trace and those of blocks of whole layers, from those of the layers.
fn exact_traces(
    point: &SubjectAt<'_, '_, '_>,
    of: Curvature,
    blocks: &[Range<usize>],
) -> Result<Vec<TraceEstimate>, ProbeError> {
    let layers = point.layer_traces(of)?;
    let passes = point.subject().classes();
    let parameters = &point.subject().layout().parameters;
    let within = |layer: &str, block: &Range<usize>| {
        let mut own = parameters.iter().filter(|p| p.layer() == layer);
        own.any(|p| block.contains(&p.range.start))
    };
    let total = layers.iter().map(|(_, trace)| trace).sum();
    let mut all = vec![TraceEstimate::exact(total, passes)];
    all.extend(blocks.iter().map(|block| {
        let own = layers.iter().filter(|(layer, _)| within(layer, block));
        TraceEstimate::exact(own.map(|(_, trace)| trace).sum(), passes)
    }));
    Ok(all)
}

fn search(probe: &HessianProbe, largest: usize, smallest: usize) -> EigenSearch {
    let wanted = largest + smallest;
    EigenSearch {
        largest,
        smallest,
        tolerance: probe.tolerance,
        max_products: probe.max_products,
        max_basis: (3 * wanted).max(60),
        recheck: false,
        keep: false,
    }
}

fn eigenvalue(
    subject: &Subject<'_, '_>,
    of: Curvature,
    quantity: &'static str,
    pair: &EigenPair,
    products: usize,
) -> Row {
    Row {
        value: pair.value.is_finite().then_some(pair.value),
        residual: pair.residual.is_finite().then_some(pair.residual),
        converged: Some(pair.converged),
        products: Some(products),
        ..row(subject, name(of), quantity)
    }
}

fn estimate(row: Row, trace: &TraceEstimate) -> Row {
    Row {
        value: trace.value.is_finite().then_some(trace.value),
        standard_error: trace.standard_error,
        converged: Some(trace.converged),
        products: Some(trace.products),
        ..row
    }
}

/// The diagonal blocks of a kind: their names and ranges. Parameters of one block lie side by side.
fn blocks_of(layout: &Layout, kind: BlockKind) -> Vec<(String, Range<usize>)> {
    let mut blocks: Vec<(String, Range<usize>)> = Vec::new();
    if kind == BlockKind::None {
        return blocks;
    }
    for parameter in &layout.parameters {
        let layer = parameter.layer();
        let own = match (kind, parameter.name.matches('.').count()) {
            (BlockKind::Block, 3..) => {
                let mut dots = parameter.name.match_indices('.');
                let end = dots.nth(1).map_or(layer.len(), |(at, _)| at);
                &parameter.name[..end]
            }
            _ => layer,
        };
        match blocks.last_mut() {
            Some((last, range)) if last == own => range.end = parameter.range.end,
            _ => blocks.push((own.to_owned(), parameter.range.clone())),
        }
    }
    blocks
}

fn density(
    subject: &Subject<'_, '_>,
    at: &[f64],
    probe: &DensityProbe,
    rows: &mut Vec<Row>,
) -> Result<(), ProbeError> {
    let mut point = subject.at(at)?;
    let search = DensitySearch {
        probes: probe.probes,
        steps: probe.lanczos_steps,
    };
    let mut stream = Stream::new(subject.seed(), "density", 0);
    let mut draw = signs(&mut stream);
    let mut matrix = point.operator(Curvature::Hessian, None);
    let found = spectral_density(&mut matrix, &search, &mut draw)?;
    let own = |quantity, at, value, standard_error| Row {
        at: Some(at),
        value: Some(value),
        standard_error,
        products: Some(found.products),
        converged: Some(found.finished),
        ..row(subject, "density", quantity)
    };
    for (node, weight) in found.nodes() {
        rows.push(own("node", node, weight, None));
    }
    let Some((low, high)) = found.range() else {
        return Ok(());
    };
    // A spectrum of one point has no range to take a share of.
    let width = if high > low {
        probe.width * (high - low)
    } else {
        found.default_width().unwrap_or(probe.width)
    };
    if let Some(smooth) = found.smooth(width, probe.points) {
        for (at, density) in smooth.at.iter().zip(&smooth.density) {
            rows.push(own("density", *at, density.value, density.standard_error));
        }
    }
    Ok(())
}

fn sharp(
    subject: &mut Subject<'_, '_>,
    at: &[f64],
    probe: &SharpnessProbe,
    rows: &mut Vec<Row>,
    stage: &mut dyn FnMut(&'static str),
) -> Result<(), ProbeError> {
    let seed = subject.seed();
    stage("sharpness");
    let mut spaces = vec![("sharpness_full", None)];
    if probe.subspace > 0 {
        let columns = probe.subspace.min(at.len());
        spaces.push(("sharpness_subspace", Some(columns)));
    }
    for &epsilon in &probe.epsilons {
        for &(quantity, subspace) in &spaces {
            let settings = Keskar {
                iterations: probe.iterations,
                ..Keskar::new(epsilon, subspace, seed)
            };
            let found = determined(sharpness::keskar(subject, at, &settings))?;
            let settled = found.as_ref().is_some_and(|found| {
                !matches!(
                    found.outcome,
                    Outcome::LineSearchFailed | Outcome::NotFinite
                )
            });
            rows.push(Row {
                at: Some(epsilon),
                value: found.as_ref().map(|found| found.value),
                converged: Some(settled),
                products: found.as_ref().map(|found| found.evaluations),
                ..row(subject, "sharpness", quantity)
            });
        }
    }
    for &rho in &probe.l2_radii {
        let found = sharpness::worst_loss_l2(subject, at, rho, probe.iterations, seed);
        let found = determined(found)?;
        rows.push(Row {
            at: Some(rho),
            value: found.as_ref().map(|found| found.value),
            products: found.as_ref().map(|found| found.evaluations),
            ..row(subject, "sharpness", "worst_loss_l2")
        });
    }
    for &sigma in &probe.sigmas {
        let found = sharpness::gaussian_loss(subject, at, sigma, probe.noise_pairs, seed);
        let found = determined(found)?;
        rows.push(Row {
            at: Some(sigma),
            value: found.as_ref().map(|found| found.value),
            standard_error: found.as_ref().and_then(|found| found.standard_error),
            products: found.as_ref().map(|found| found.evaluations),
            ..row(subject, "sharpness", "gaussian_loss")
        });
    }
    if probe.flatness_products > 0 {
        stage("relative flatness");
        flatness(subject, at, probe.flatness_products, rows)?;
    }
    Ok(())
}

/// What a measure found; nothing where the loss at the parameters is not a number that it can be
/// taken of, as for weights that have diverged.
fn determined<T>(found: Result<T, SharpnessError<ProbeError>>) -> Result<Option<T>, ProbeError> {
    match found {
        Err(SharpnessError::Loss { .. }) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Relative flatness, in all and of each parameter, from the traces of their blocks.
fn flatness(
    subject: &Subject<'_, '_>,
    at: &[f64],
    products: usize,
    rows: &mut Vec<Row>,
) -> Result<(), ProbeError> {
    let layout = subject.layout();
    let blocks: Vec<Range<usize>> = layout.parameters.iter().map(|p| p.range.clone()).collect();
    let search = TraceSearch {
        tolerance: f64::MIN_POSITIVE,
        min_probes: products.min(MIN_PROBES),
        max_products: products,
    };
    let mut stream = Stream::new(subject.seed(), "flatness", 0);
    let mut point = subject.at(at)?;
    let mut matrix = point.operator(Curvature::Hessian, None);
    let found = block_traces(&mut matrix, &blocks, &search, &mut signs(&mut stream))?;
    let traces: Vec<f64> = found.iter().map(|trace| trace.value).collect();
    let flatness = sharpness::relative_flatness(layout, at, &traces)?;
    let products = found.first().map(|trace| trace.products);
    let own = |scope: &str, value: f64| Row {
        scope: scope.to_owned(),
        value: value.is_finite().then_some(value),
        products,
        ..row(subject, "sharpness", "relative_flatness")
    };
    rows.push(own("", flatness.value));
    for (parameter, &value) in layout.parameters.iter().zip(&flatness.parameters) {
        rows.push(own(&parameter.name, value));
    }
    Ok(())
}

fn adversarial(
    subject: &Subject<'_, '_>,
    at: &[f64],
    probe: &AdversarialProbe,
    rows: &mut Vec<Row>,
) -> Result<(), ProbeError> {
    let attacks = [
        ("fgsm_accuracy", Attack::Fgsm),
        (
            "pgd_accuracy",
            Attack::Pgd {
                steps: probe.steps,
                step: None,
                seed: subject.seed(),
            },
        ),
    ];
    for (quantity, attack) in attacks {
        let found = match subject.attack(at, &attack, &probe.radii, probe.examples) {
            Err(ProbeError::Adversarial(error))
                if matches!(*error, AdversarialError::Gradient { .. }) =>
            {
                // Weights that have diverged.
                rows.extend(probe.radii.iter().map(|&radius| Row {
                    at: Some(radius),
                    ..row(subject, "adversarial", quantity)
                }));
                continue;
            }
            found => found?,
        };
        for found in found {
            let share = found.accuracy();
            // A share p of n examples has the standard error (p(1 - p)/n)^(1/2).
            let n = found.examples as f64;
            rows.push(Row {
                at: Some(found.radius),
                value: share,
                standard_error: share.map(|p| (p * (1.0 - p) / n).sqrt()),
                examples: found.examples,
                ..row(subject, "adversarial", quantity)
            });
        }
    }
    Ok(())
}

fn noise(
    subject: &Subject<'_, '_>,
    probed: &Probed<'_>,
    probe: &NoiseProbe,
    rows: &mut Vec<Row>,
    stage: &mut dyn FnMut(&'static str),
) -> Result<(), ProbeError> {
    if probe.exact {
        stage("example gradients");
        let found = of_examples(subject, probed.parameters)?;
        push_parts(subject, "", &found.total, rows);
        for (layer, parts) in &found.layers {
            push_parts(subject, layer, parts, rows);
        }
    }
    if probe.hessian_pieces > 1 {
        stage("Hessian-weighted noise");
        let (sizes, gradients) = subject.parts(probed.parameters, probe.hessian_pieces)?;
        let mut point = subject.at(probed.parameters)?;
        let found = piece_noise(
            &sizes,
            &gradients,
            subject.population(),
            &mut point.operator(Curvature::Hessian, None),
        )
        .map_err(|error| match error {
            PieceNoiseError::Noise(error) => error.into(),
            PieceNoiseError::Product(error) => error,
        })?;
        push_weighted(subject, &found, rows);
        if !probe.exact {
            push_parts(subject, "", &found.plain, rows);
        }
        if let Some(metric) = &probed.metric {
            let parts = preconditioned_noise(&sizes, &gradients, subject.population(), metric)?;
            push_ratio(
                subject,
                "",
                [
                    "b_simple_adamw",
                    "b_simple_adamw_low",
                    "b_simple_adamw_high",
                ],
                &parts.b_simple,
                None,
                rows,
            );
        }
    }
    Ok(())
}

/// The noise from the gradients of single examples, in total and by layer.
fn of_examples(subject: &Subject<'_, '_>, at: &[f64]) -> Result<ExampleNoise, ProbeError> {
    let point = subject.at(at)?;
    let norms = point.example_norms()?;
    let mut gradient = vec![0.0; at.len()];
    point.gradient_of_examples(&mut gradient)?;
    let layout = subject.layout();
    let mut squared_means = Vec::with_capacity(norms.layers.len());
    for layer in &norms.layers {
        let own = layout.parameters.iter();
        let own = own.filter(|p| p.layer() == layer.layer);
        let squares = own.flat_map(|p| &gradient[p.range.clone()]);
        squared_means.push(squares.map(|g| g * g).sum::<f64>());
    }
    let inner = inner_products(at, &gradient, |moved| subject.losses(moved))?;
    let layers: Vec<LayerGradients<'_>> = norms
        .layers
        .iter()
        .zip(&squared_means)
        .map(|(layer, &squared_mean)| LayerGradients {
            layer: &layer.layer,
            squared_norms: &layer.squared_norms,
            squared_mean,
            inner: None,
        })
        .collect();
    Ok(example_noise(&layers, Some(&inner), subject.population())?)
}

fn push_parts(subject: &Subject<'_, '_>, scope: &str, parts: &NoiseParts, rows: &mut Vec<Row>) {
    push_quantity(subject, scope, "tr_sigma", &parts.tr_sigma, None, rows);
    let squared = &parts.squared_gradient;
    push_quantity(subject, scope, "squared_gradient", squared, None, rows);
    let names = ["b_simple", "b_simple_low", "b_simple_high"];
    push_ratio(subject, scope, names, &parts.b_simple, None, rows);
}

fn push_weighted(subject: &Subject<'_, '_>, found: &PieceNoise, rows: &mut Vec<Row>) {
    let products = Some(found.products);
    push_quantity(subject, "", "tr_h_sigma", &found.tr_h_sigma, products, rows);
    push_quantity(subject, "", "ghg", &found.ghg, products, rows);
    let names = ["b_noise", "b_noise_low", "b_noise_high"];
    push_ratio(subject, "", names, &found.b_noise, products, rows);
    let names = ["eps_max", "eps_max_low", "eps_max_high"];
    push_ratio(subject, "", names, &found.eps_max, products, rows);
}

fn push_quantity(
    subject: &Subject<'_, '_>,
    scope: &str,
    name: &'static str,
    quantity: &Quantity,
    products: Option<usize>,
    rows: &mut Vec<Row>,
) {
    rows.push(Row {
        scope: scope.to_owned(),
        value: quantity.value.is_finite().then_some(quantity.value),
        standard_error: quantity.standard_error,
        products,
        ..row(subject, "noise", name)
    });
}

/// A quotient and the ends of its interval; without a value it is undetermined.
fn push_ratio(
    subject: &Subject<'_, '_>,
    scope: &str,
    [name, low, high]: [&'static str; 3],
    ratio: &Ratio,
    products: Option<usize>,
    rows: &mut Vec<Row>,
) {
    let own = |quantity, value: Option<f64>| Row {
        scope: scope.to_owned(),
        value,
        converged: (quantity == name).then_some(ratio.value.is_ok()),
        products,
        ..row(subject, "noise", quantity)
    };
    rows.push(own(name, ratio.value.ok()));
    if let Some(interval) = &ratio.interval {
        rows.push(own(low, Some(interval.low())));
        rows.push(own(high, interval.high()));
    }
}
