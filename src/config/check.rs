//! Whether the parts of a trial fit together. Each message says the key, what is wrong, and, as a
//! hint, what would be right.

use super::error::{Checked, Fault};
use super::types::{
    DataConfig, DataSource, DecayConfig, LearningRateConfig, Metric, ModelConfig, OptimizerConfig,
    Precision, Scaling, Split, TargetConfig, TrainConfig, TrialConfig, WarmupConfig,
};

/// Largest width, number of channels or number of classes: far above any network, and small
/// enough that products of a few cannot overflow.
const MAX_WIDTH: usize = 1 << 20;

/// Largest global batch and largest number of values of a synthetic set.
const MAX_VALUES: usize = 1 << 31;

/// Largest number of threads of one trial, and of trials at a time.
pub const MAX_THREADS: u16 = 1024;

/// Everything that can be said without the data.
pub(crate) fn trial(config: &TrialConfig) -> Checked {
    data(&config.data)?;
    model(config)?;
    train(&config.train)?;
    target(config)?;
    optimizer(&config.optimizer)?;
    learning_rate(config)
}

/// What depends on the number of training examples.
pub(crate) fn against_data(config: &TrialConfig, train_examples: usize) -> Checked {
    let batch = config.global_batch();
    let train = &config.train;
    let fresh = matches!(config.data.source, DataSource::NoisyQuadratic { .. });
    if train_examples == 0 {
        return Err(Fault::invalid("data", "there are no training examples"));
    }
    if batch > train_examples && !fresh {
        return Err(Fault::invalid(
            batch_key(train),
            format!(
                "a global batch of {} is larger than the data: {train_examples} training examples",
                config.explain_batch()
            ),
        )
        .hint(format!(
            "use a global batch of at most {}, or more data",
            train_examples - train_examples % train.workers.min(train_examples)
        )));
    }
    let steps_per_epoch = config.steps_per_epoch(train_examples);
    let budget = budget_steps(train, batch, steps_per_epoch);
    if budget.is_some_and(|steps| steps < 1.0 - 1e-9) {
        let (key, budget, unit, least) = match (train.epochs, train.examples) {
            (Some(epochs), _) => (
                "train.epochs",
                epochs.to_string(),
                "epochs",
                round_up(1.0 / steps_per_epoch).to_string(),
            ),
            (None, examples) => (
                "train.examples",
                examples.unwrap_or(0).to_string(),
                "examples",
                batch.to_string(),
            ),
        };
        return Err(Fault::invalid(
            key,
            format!(
                "{budget} {unit} of {train_examples} training examples are less than one update \
                 of {batch}"
            ),
        )
        .hint(format!("use at least {least} {unit}")));
    }
    if let (Some(warmup), Some(budget)) = (&config.learning_rate.warmup, budget) {
        let (key, steps) = match (warmup.epochs, warmup.steps) {
            (Some(epochs), _) => ("epochs", epochs * steps_per_epoch),
            (None, Some(steps)) => ("steps", steps as f64),
            (None, None) => return Ok(()),
        };
        if steps > budget * (1.0 + 1e-9) {
            return Err(warmup_too_long(
                key,
                &format!("{steps:.1} updates"),
                &format!("{budget:.1} updates"),
            ));
        }
    }
    let evaluate = &train.evaluate;
    if let Some(n) = evaluate.train_examples
        && n > train_examples
        && !fresh
    {
        return Err(Fault::invalid(
            "train.evaluate.train_examples",
            format!("{n} examples, but there are {train_examples} training examples"),
        )
        .hint("leave it out to evaluate on all of them"));
    }
    Ok(())
}

fn budget_steps(train: &TrainConfig, batch: usize, steps_per_epoch: f64) -> Option<f64> {
    match (train.epochs, train.steps, train.examples) {
        (Some(epochs), _, _) => Some(epochs * steps_per_epoch),
        (_, Some(steps), _) => Some(steps as f64),
        (_, _, Some(examples)) => Some(examples as f64 / batch.max(1) as f64),
        _ => None,
    }
}

fn warmup_too_long(key: &str, warmup: &str, run: &str) -> Fault {
    Fault::invalid(
        &format!("learning_rate.warmup.{key}"),
        format!("the warm-up is longer than the run: {warmup} of {run}"),
    )
    .hint("shorten the warm-up or lengthen the run")
}

fn data(data: &DataConfig) -> Checked {
    let fraction = data.validation_fraction;
    if !(0.0..1.0).contains(&fraction) {
        return Err(Fault::invalid(
            "data.validation_fraction",
            format!("{fraction} is not in [0, 1)"),
        )
        .hint("0.1 holds out a tenth of the training examples, 0 none"));
    }
    let fraction = data.test_fraction;
    if !(fraction > 0.0 && fraction < 1.0) {
        return Err(
            Fault::invalid("data.test_fraction", format!("{fraction} is not in (0, 1)"))
                .hint("0.2 makes a fifth of the examples the test set"),
        );
    }
    if !(0.0..=1.0).contains(&data.label_noise) {
        return Err(Fault::invalid(
            "data.label_noise",
            format!("{} is not in [0, 1]", data.label_noise),
        )
        .hint("0.1 replaces a tenth of the training labels, 0 none"));
    }
    at_least("data.subset", data.subset, 1)?;
    source(data)
}

fn source(data: &DataConfig) -> Checked {
    let key = |name: &str, field: &str| format!("data.source.{name}.{field}");
    match &data.source {
        DataSource::Idx {
            test_images,
            test_labels,
            ..
        } => {
            if test_images.is_some() != test_labels.is_some() {
                let (given, missing) = if test_images.is_some() {
                    ("test_images", "test_labels")
                } else {
                    ("test_labels", "test_images")
                };
                return Err(Fault::invalid(
                    &key("idx", given),
                    format!("it is given without `{missing}`"),
                )
                .hint(format!("add `{missing}`, or leave both out")));
            }
            Ok(())
        }
        DataSource::Csv { label, shape, .. } => {
            if label.is_empty() {
                return Err(Fault::invalid(&key("csv", "label"), "it is empty")
                    .hint("write the name of the label column, or its number from 0"));
            }
            let sizes = shape.as_ref().map_or(&[][..], |shape| &shape[..]);
            widths(&key("csv", "shape"), sizes)?;
            let product = sizes
                .iter()
                .try_fold(1_usize, |n, &size| n.checked_mul(size));
            if product.is_none_or(|product| product > MAX_VALUES) {
                return Err(Fault::invalid(
                    &key("csv", "shape"),
                    format!("{sizes:?} makes more values than {MAX_VALUES}"),
                ));
            }
            Ok(())
        }
        DataSource::GaussianMixture {
            classes,
            dimension,
            examples,
            test_examples,
            separation,
        } => {
            if !(*separation >= 0.0 && separation.is_finite()) {
                return Err(Fault::invalid(
                    &key("gaussian-mixture", "separation"),
                    format!("{separation} is negative"),
                ));
            }
            synthetic(
                "gaussian-mixture",
                *classes,
                &[*dimension],
                *examples,
                *test_examples,
            )
        }
        DataSource::Teacher {
            classes,
            dimension,
            width,
            examples,
            test_examples,
        } => {
            widths(&key("teacher", "width"), &[*width])?;
            synthetic(
                "teacher",
                *classes,
                &[*dimension, *width],
                *examples,
                *test_examples,
            )
        }
        DataSource::NoisyQuadratic {
            dimension,
            examples,
        } => {
            widths(&key("noisy-quadratic", "dimension"), &[*dimension])?;
            at_least(&key("noisy-quadratic", "examples"), Some(*examples), 1)?;
            for (field, given) in [
                ("validation_fraction", data.validation_fraction != 0.0),
                ("label_noise", data.label_noise != 0.0),
                ("subset", data.subset.is_some()),
            ] {
                if given {
                    return Err(Fault::invalid(
                        &format!("data.{field}"),
                        "the noisy quadratic draws fresh examples: nothing to hold out, relabel \
                         or choose from",
                    )
                    .hint("leave it out"));
                }
            }
            Ok(())
        }
        DataSource::Digits {}
        | DataSource::Mnist {}
        | DataSource::FashionMnist {}
        | DataSource::Cifar10 {}
        | DataSource::CifarBinary { .. } => Ok(()),
    }
}

fn synthetic(
    name: &str,
    classes: usize,
    sizes: &[usize],
    examples: usize,
    test_examples: usize,
) -> Checked {
    let key = |field: &str| format!("data.source.{name}.{field}");
    at_least(&key("classes"), Some(classes), 2)?;
    widths(&key("classes"), &[classes])?;
    widths(&key("dimension"), &sizes[..1])?;
    at_least(&key("examples"), Some(examples), 1)?;
    at_least(&key("test_examples"), Some(test_examples), 1)?;
    let most = sizes.iter().copied().chain([classes]).max().unwrap_or(1);
    for (field, n) in [("examples", examples), ("test_examples", test_examples)] {
        if n.checked_mul(most).is_none_or(|values| values > MAX_VALUES) {
            return Err(Fault::invalid(
                &key(field),
                format!("{n} examples of {most} values are more than {MAX_VALUES} values"),
            )
            .hint("use fewer examples or a smaller dimension"));
        }
    }
    Ok(())
}

fn model(config: &TrialConfig) -> Checked {
    let quadratic_data = matches!(config.data.source, DataSource::NoisyQuadratic { .. });
    let quadratic_model = matches!(config.model, ModelConfig::NoisyQuadratic {});
    if quadratic_data != quadratic_model {
        let (key, message) = if quadratic_model {
            (
                "model",
                "the model `noisy-quadratic` needs the data `noisy-quadratic`",
            )
        } else {
            (
                "data.source",
                "the data `noisy-quadratic` needs the model `noisy-quadratic`",
            )
        };
        return Err(Fault::invalid(key, message).hint(
            "write `model = \"noisy-quadratic\"` and `data.source = \"noisy-quadratic\"`, or \
             neither",
        ));
    }
    match &config.model {
        ModelConfig::SoftmaxRegression {} | ModelConfig::NoisyQuadratic {} => Ok(()),
        ModelConfig::Mlp { widths: list, .. } => {
            widths("model.mlp.widths", list)?;
            if list.len() > 1000 {
                return Err(Fault::invalid(
                    "model.mlp.widths",
                    format!("{} hidden layers are more than 1000", list.len()),
                ));
            }
            if list.is_empty() {
                return Err(Fault::invalid("model.mlp.widths", "no hidden layers").hint(
                    "write `model = \"softmax-regression\"` for a model without hidden layers",
                ));
            }
            Ok(())
        }
        ModelConfig::SimpleCnn { channels, dense } => {
            widths("model.simple-cnn.channels", channels)?;
            widths("model.simple-cnn.dense", &[*dense])?;
            images("simple-cnn", &config.data.source)
        }
        ModelConfig::Resnet { depth, width } => {
            if *depth < 8 || depth % 6 != 2 || *depth > 1202 {
                let below = (depth.saturating_sub(2) / 6 * 6 + 2).clamp(8, 1202);
                let above = (below + 6).min(1202);
                let hint = if *depth < 8 {
                    "the smallest is 8".to_owned()
                } else if *depth > 1202 {
                    "the largest is 1202".to_owned()
                } else {
                    format!("use {below} or {above}")
                };
                return Err(Fault::invalid(
                    "model.resnet.depth",
                    format!("{depth} is not 6k + 2 for a whole k from 1 to 200"),
                )
                .hint(hint));
            }
            widths("model.resnet.width", &[*width])?;
            images("resnet", &config.data.source)
        }
        ModelConfig::Custom { name, .. } => {
            if name.is_empty() {
                return Err(Fault::invalid("model.custom.name", "it is empty")
                    .hint("write the name that your program registers"));
            }
            Ok(())
        }
    }
}

/// Convolutions need images; whether they are large enough only the data can say.
fn images(model: &str, source: &DataSource) -> Checked {
    let flat = match source {
        DataSource::Csv { shape: None, .. } => {
            "set `data.source.csv.shape = [channels, height, width]`, or use `model = \"mlp\"`"
        }
        DataSource::GaussianMixture { .. } | DataSource::Teacher { .. } => "use `model = \"mlp\"`",
        _ => return Ok(()),
    };
    Err(Fault::invalid(
        "model",
        format!("`{model}` needs images, and the examples are flat vectors"),
    )
    .hint(flat))
}

fn train(train: &TrainConfig) -> Checked {
    if train.workers == 0 {
        return Err(Fault::invalid("train.workers", "there are no workers")
            .hint("write `workers = 1` for training without data parallelism"));
    }
    batch(train)?;
    at_least("train.micro_batch", train.micro_batch, 1)?;
    budget(train)?;
    let evaluate = &train.evaluate;
    if let Some(every) = evaluate.every_epochs {
        positive("train.evaluate.every_epochs", every)?;
        if evaluate.every_steps.is_some() {
            return Err(Fault::invalid(
                "train.evaluate.every_steps",
                "`every_epochs` is given too",
            )
            .hint("keep one of them"));
        }
    }
    at_least("train.evaluate.every_steps", evaluate.every_steps, 1)?;
    at_least("train.evaluate.train_examples", evaluate.train_examples, 1)?;
    positive("train.divergence_loss", train.divergence_loss)?;
    at_least("train.log_every", Some(train.log_every), 1)?;
    not_negative(
        "train.checkpoint_seconds",
        train.checkpoint_seconds,
        "10 is usual; 0 writes a checkpoint after every update",
    )?;
    if train.threads > usize::from(MAX_THREADS) {
        return Err(Fault::invalid(
            "train.threads",
            format!("{} threads are more than {MAX_THREADS}", train.threads),
        )
        .hint("leave it out: a trial then uses the cores there are"));
    }
    if train.device.is_empty() {
        return Err(Fault::invalid("train.device", "it is empty").hint("write `device = \"flex\"`"));
    }
    if train.precision == Precision::F64 && !matches!(train.device.as_str(), "flex" | "ndarray") {
        return Err(Fault::invalid(
            "train.precision",
            format!("the device `{}` does not compute in f64", train.device),
        )
        .hint("use `device = \"flex\"` (or \"ndarray\"), or `precision = \"f32\"`"));
    }
    Ok(())
}

fn batch_key(train: &TrainConfig) -> &'static str {
    if train.global_batch.is_some() {
        "train.global_batch"
    } else {
        "train.local_batch"
    }
}

fn batch(train: &TrainConfig) -> Checked {
    let workers = train.workers;
    match (train.global_batch, train.local_batch) {
        (Some(global), Some(local)) => Err(Fault::invalid(
            "train.local_batch",
            format!("`global_batch` is given too ({global}, with {workers} workers of {local})"),
        )
        .hint("keep one of them: global_batch = workers x local_batch")),
        (None, None) => Err(Fault::invalid("train", "the batch is missing").hint(
            "add `global_batch` (examples of one update over all workers) or `local_batch` (on \
             one worker)",
        )),
        (Some(global), None) => {
            at_least("train.global_batch", Some(global), 1)?;
            if global % workers != 0 {
                let below = global / workers * workers;
                let above = below.checked_add(workers);
                let hint = match (below, above) {
                    (0, Some(above)) => format!("use {above}, or fewer workers"),
                    (below, Some(above)) => format!("use {below} or {above}"),
                    (below, None) => format!("use {below}"),
                };
                return Err(Fault::invalid(
                    "train.global_batch",
                    format!("{global} is not divisible by {workers} workers"),
                )
                .hint(hint));
            }
            batch_size(train, Some(global))
        }
        (None, Some(local)) => {
            at_least("train.local_batch", Some(local), 1)?;
            batch_size(train, workers.checked_mul(local))
        }
    }
}

fn batch_size(train: &TrainConfig, global: Option<usize>) -> Checked {
    if global.is_none_or(|global| global > MAX_VALUES) {
        return Err(Fault::invalid(
            batch_key(train),
            format!("the global batch is larger than {MAX_VALUES}"),
        ));
    }
    if let (Some(examples), Some(global)) = (train.examples, global)
        && examples < global as u64
    {
        return Err(Fault::invalid(
            "train.examples",
            format!("{examples} examples are less than one update of {global}"),
        )
        .hint(format!("use at least {global}")));
    }
    Ok(())
}

fn budget(train: &TrainConfig) -> Checked {
    let given: Vec<&str> = [
        ("epochs", train.epochs.is_some()),
        ("steps", train.steps.is_some()),
        ("examples", train.examples.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect();
    match given.as_slice() {
        [] => Err(Fault::invalid("train", "the budget is missing")
            .hint("add one of `epochs`, `steps`, `examples`")),
        [_] => {
            if let Some(epochs) = train.epochs {
                positive("train.epochs", epochs)?;
            }
            at_least("train.steps", train.steps, 1)?;
            at_least("train.examples", train.examples, 1)
        }
        [first, .., last] => Err(Fault::invalid(
            &format!("train.{last}"),
            format!("`{first}` is given too: a run has one budget"),
        )
        .hint("keep one of `epochs`, `steps`, `examples`")),
    }
}

fn target(config: &TrialConfig) -> Checked {
    let Some(TargetConfig {
        metric,
        split,
        value,
    }) = config.train.target
    else {
        return Ok(());
    };
    if split == Split::Validation && config.data.validation_fraction == 0.0 {
        return Err(Fault::invalid(
            "train.target.split",
            "there is no validation split to measure the target on",
        )
        .hint("set `data.validation_fraction`, such as 0.1, or use another split"));
    }
    match metric {
        Metric::Accuracy => {
            if matches!(config.data.source, DataSource::NoisyQuadratic { .. }) {
                return Err(Fault::invalid(
                    "train.target.metric",
                    "the noisy quadratic has no classes, so no accuracy",
                )
                .hint("use `metric = \"loss\"`"));
            }
            if !(value > 0.0 && value <= 1.0) {
                return Err(Fault::invalid(
                    "train.target.value",
                    format!("an accuracy of {value} is not in (0, 1]"),
                )
                .hint("0.95 stands for 95 %"));
            }
            Ok(())
        }
        Metric::Loss => positive("train.target.value", value),
    }
}

fn optimizer(optimizer: &OptimizerConfig) -> Checked {
    let decay = |kind: &str, value: f64| {
        let key = format!("optimizer.{kind}.weight_decay");
        not_negative(&key, value, "0 leaves it out")
    };
    let share = |key: &str, value: f64, open: bool| {
        if (0.0..1.0).contains(&value) && !(open && value == 0.0) {
            return Ok(());
        }
        let range = if open { "(0, 1)" } else { "[0, 1)" };
        let fault = Fault::invalid(key, format!("{value} is not in {range}"));
        Err(if open && value == 0.0 {
            fault.hint("use `optimizer = \"sgd\"` for no momentum")
        } else {
            fault.hint("0.9 is usual")
        })
    };
    let roles = |kind: &str, roles: &Option<Vec<super::types::Role>>| {
        let mut sorted = roles.clone().unwrap_or_default();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            let key = format!("optimizer.{kind}.weight_decay_roles");
            return Err(Fault::invalid(&key, "a role stands twice").hint("keep it once"));
        }
        Ok(())
    };
    match optimizer {
        OptimizerConfig::Sgd {
            weight_decay,
            weight_decay_roles,
        } => {
            decay("sgd", *weight_decay)?;
            roles("sgd", weight_decay_roles)
        }
        OptimizerConfig::Momentum {
            momentum,
            weight_decay,
            weight_decay_roles,
        } => {
            share("optimizer.momentum.momentum", *momentum, false)?;
            decay("momentum", *weight_decay)?;
            roles("momentum", weight_decay_roles)
        }
        OptimizerConfig::Nesterov {
            momentum,
            weight_decay,
            weight_decay_roles,
        } => {
            share("optimizer.nesterov.momentum", *momentum, true)?;
            decay("nesterov", *weight_decay)?;
            roles("nesterov", weight_decay_roles)
        }
        OptimizerConfig::Adamw {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            weight_decay_roles,
        } => {
            share("optimizer.adamw.beta1", *beta1, false)?;
            share("optimizer.adamw.beta2", *beta2, false)?;
            positive("optimizer.adamw.epsilon", *epsilon)?;
            decay("adamw", *weight_decay)?;
            roles("adamw", weight_decay_roles)
        }
    }
}

fn learning_rate(config: &TrialConfig) -> Checked {
    let rate: &LearningRateConfig = &config.learning_rate;
    positive("learning_rate.base_lr", rate.base_lr)?;
    at_least("learning_rate.base_batch", rate.base_batch, 1)?;
    if rate.scaling != Scaling::None && rate.base_batch.is_none() {
        return Err(Fault::invalid(
            "learning_rate.scaling",
            "the rule needs `base_batch`, the global batch that `base_lr` suits",
        )
        .hint("add `base_batch`, such as 32, or write `scaling = \"none\"`"));
    }
    let scaled = config.scaled_rate();
    if !(scaled > 0.0 && scaled.is_finite()) {
        return Err(Fault::invalid(
            "learning_rate.base_lr",
            format!("the scaled rate is {scaled}, not a positive number"),
        ));
    }
    if let Some(warmup) = &rate.warmup {
        warm_up(warmup, config)?;
    }
    decay(&rate.decay)
}

fn warm_up(warmup: &WarmupConfig, config: &TrialConfig) -> Checked {
    if let Some(start) = warmup.start_lr {
        not_negative("learning_rate.warmup.start_lr", start, "0 starts from rest")?;
    }
    let train = &config.train;
    match (warmup.epochs, warmup.steps) {
        (Some(_), Some(_)) => Err(Fault::invalid(
            "learning_rate.warmup.steps",
            "`epochs` is given too",
        )
        .hint("keep one of them")),
        (None, None) => Err(Fault::invalid(
            "learning_rate.warmup",
            "the length of the warm-up is missing",
        )
        .hint("add `epochs` or `steps`; 0 is no warm-up")),
        (Some(epochs), None) => {
            not_negative("learning_rate.warmup.epochs", epochs, "0 leaves it out")?;
            match train.epochs {
                Some(run) if epochs > run => Err(warmup_too_long(
                    "epochs",
                    &format!("{epochs} epochs"),
                    &format!("{run} epochs"),
                )),
                _ => Ok(()),
            }
        }
        (None, Some(steps)) => {
            if train.steps.is_some_and(|run| steps > run) {
                let run = train.steps.unwrap_or_default();
                return Err(warmup_too_long(
                    "steps",
                    &format!("{steps} updates"),
                    &format!("{run} updates"),
                ));
            }
            let batch = config.global_batch() as u64;
            match train.examples {
                Some(run) if steps.checked_mul(batch).is_none_or(|n| n > run) => {
                    Err(warmup_too_long(
                        "steps",
                        &format!("{steps} updates of {batch} examples"),
                        &format!("{run} examples"),
                    ))
                }
                _ => Ok(()),
            }
        }
    }
}

fn decay(decay: &DecayConfig) -> Checked {
    let share = |kind: &str, value: f64| {
        if (0.0..=1.0).contains(&value) {
            return Ok(());
        }
        let key = format!("learning_rate.decay.{kind}.final_fraction");
        Err(Fault::invalid(&key, format!("{value} is not in [0, 1]"))
            .hint("0 decays to nothing, 0.1 to a tenth of the rate"))
    };
    match decay {
        DecayConfig::Constant {} => Ok(()),
        DecayConfig::Step { epochs, factor } => {
            let key = "learning_rate.decay.step.epochs";
            if epochs.is_empty() {
                return Err(Fault::invalid(key, "no epochs at which the rate drops")
                    .hint("write `decay = \"constant\"` for no decay"));
            }
            for &epoch in epochs {
                positive(key, epoch)?;
            }
            if let Some([before, after]) = epochs.array_windows().find(|[a, b]| a >= b) {
                return Err(
                    Fault::invalid(key, format!("{after} does not come after {before}"))
                        .hint("list them in rising order, each once"),
                );
            }
            positive("learning_rate.decay.step.factor", *factor)
        }
        DecayConfig::Cosine { final_fraction } => share("cosine", *final_fraction),
        DecayConfig::Polynomial {
            power,
            final_fraction,
        } => {
            positive("learning_rate.decay.polynomial.power", *power)?;
            share("polynomial", *final_fraction)
        }
        DecayConfig::Exponential { factor } => {
            positive("learning_rate.decay.exponential.factor", *factor)
        }
        DecayConfig::Linear { final_fraction } => share("linear", *final_fraction),
    }
}

fn positive(key: &str, value: f64) -> Checked {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    let last = key.rsplit('.').next().unwrap_or(key);
    let fault = Fault::invalid(key, format!("{value} is not a positive number"));
    Err(if value < 0.0 {
        fault.hint(format!("write `{last} = {}`", -value))
    } else {
        fault.hint(format!("write a number above 0, such as `{last} = 0.1`"))
    })
}

/// `zero` says what 0 stands for.
fn not_negative(key: &str, value: f64, zero: &str) -> Checked {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Fault::invalid(key, format!("{value} is negative or not finite")).hint(zero))
}

fn at_least<N: Copy + PartialOrd + From<u8> + std::fmt::Display>(
    key: &str,
    value: Option<N>,
    least: u8,
) -> Checked {
    match value {
        Some(n) if n < N::from(least) => {
            Err(Fault::invalid(key, format!("{n} is too few"))
                .hint(format!("use at least {least}")))
        }
        _ => Ok(()),
    }
}

fn widths(key: &str, widths: &[usize]) -> Checked {
    match widths
        .iter()
        .find(|&&width| width == 0 || width > MAX_WIDTH)
    {
        Some(width) => Err(Fault::invalid(
            key,
            format!("{width} is not a size from 1 to {MAX_WIDTH}"),
        )),
        None => Ok(()),
    }
}

/// Up to two decimals, so that a suggested budget is enough.
fn round_up(x: f64) -> f64 {
    (x * 100.0).ceil() / 100.0
}
