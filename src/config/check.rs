//! Whether the parts of a trial fit together. Each message says the key, what is wrong, and, as a
//! hint, what would be right.

use super::error::{Checked, Fault};
use super::probes;
use super::types::{
    Averaging, BatchConfig, BatchController, BatchGrowth, BatchStatistics, Coupling, DataConfig,
    DataSource, DecayConfig, GhostRemainder, LearningRateConfig, Metric, ModelConfig, MomentumForm,
    MomentumSchedule, Normalization, OptimizerConfig, Precision, Role, Scaling, Split,
    StatisticsGroup, TargetConfig, TrainConfig, TrialConfig, WarmupConfig, WarmupShape,
};
use super::update;

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
    momentum_schedule(config)?;
    batch_control(config)?;
    learning_rate(config)?;
    probes::check(config)?;
    update::check(config)?;
    statistics(config)
}

/// What depends on the number of training examples.
pub(crate) fn against_data(config: &TrialConfig, train_examples: usize) -> Checked {
    probes::against_data(config, train_examples)?;
    let batch = config.global_batch();
    let train = &config.train;
    let fresh = matches!(config.data.source, DataSource::NoisyQuadratic { .. });
    if train_examples == 0 {
        return Err(Fault::invalid("data", "there are no training examples"));
    }
    if batch > train_examples && !fresh {
        let key = match config.batch.controller {
            BatchController::Smith {
                momentum: Some(_), ..
            } if batch != config.written_batch() => "batch.controller.smith.momentum",
            BatchController::Smith { .. } if batch != config.written_batch() => {
                "batch.controller.smith.initial_factor"
            }
            _ => batch_key(train),
        };
        return Err(Fault::invalid(
            key,
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
    if let (Averaging::Swa { start_epoch, .. }, Some(budget)) = (train.averaging, budget)
        && matches!(config.batch.controller, BatchController::Constant {})
        && start_epoch > budget / steps_per_epoch + 1e-9
    {
        return Err(Fault::invalid(
            "train.averaging.swa.start_epoch",
            format!(
                "{start_epoch} epochs are more than the run of {}",
                round_up(budget / steps_per_epoch)
            ),
        )
        .hint("start within the run; three quarters of it are usual"));
    }
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
    // AdaScale counts the updates of its base batch; with a batch that changes, those of the first
    // epochs are not those of the last.
    let adascale = matches!(config.learning_rate.scaling, Scaling::Adascale {});
    let changes = !matches!(config.batch.controller, BatchController::Constant {});
    if let (Some(warmup), Some(budget), false) =
        (&config.learning_rate.warmup, budget, adascale || changes)
    {
        let (key, steps) = match (warmup.epochs, warmup.steps, warmup.examples) {
            (Some(epochs), ..) => ("epochs", epochs * steps_per_epoch),
            (None, Some(steps), _) => ("steps", steps as f64),
            (None, None, Some(examples)) => ("examples", examples as f64 / batch as f64),
            (None, None, None) => return Ok(()),
        };
        let longer = match warmup.shape {
            WarmupShape::Legw if warmup.steps.is_none() => {
                batch as f64 / config.learning_rate.base_batch.unwrap_or(batch) as f64
            }
            _ => 1.0,
        };
        let steps = steps * longer;
        if steps > budget * (1.0 + 1e-9) {
            return Err(warmup_too_long(
                key,
                &format!("{steps:.1} updates"),
                &format!("{budget:.1} updates"),
            ));
        }
    }
    if let Some(most) = config.batch.max_batch
        && most > train_examples
        && !fresh
    {
        return Err(Fault::invalid(
            "batch.max_batch",
            format!("{most} is larger than the data: {train_examples} training examples"),
        )
        .hint(format!("use at most {train_examples}, or leave it out")));
    }
    if let DecayConfig::Cyclic { period_epochs, .. } = config.learning_rate.decay
        && period_epochs * steps_per_epoch < 1.0
    {
        return Err(Fault::invalid(
            "learning_rate.decay.cyclic.period_epochs",
            format!("a cycle of {period_epochs} epochs is shorter than an update"),
        )
        .hint(format!("use at least {}", round_up(2.0 / steps_per_epoch))));
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
    let quadratic_model = matches!(config.model, ModelConfig::NoisyQuadratic { .. });
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
        ModelConfig::SoftmaxRegression {} => Ok(()),
        ModelConfig::NoisyQuadratic {
            preconditioner_power,
        } => unit_interval(
            "model.noisy-quadratic.preconditioner_power",
            *preconditioner_power,
        ),
        ModelConfig::Mlp {
            widths: list,
            normalization,
            ..
        } => {
            self::normalization("mlp", *normalization, config)?;
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
        ModelConfig::SimpleCnn {
            channels,
            dense,
            normalization,
        } => {
            self::normalization("simple-cnn", *normalization, config)?;
            widths("model.simple-cnn.channels", channels)?;
            widths("model.simple-cnn.dense", &[*dense])?;
            images("simple-cnn", &config.data.source)
        }
        ModelConfig::Resnet {
            depth,
            width,
            normalization,
            zero_gamma,
        } => {
            self::normalization("resnet", *normalization, config)?;
            if *zero_gamma
                && matches!(
                    normalization,
                    Normalization::None | Normalization::Weight { .. }
                )
            {
                return Err(Fault::invalid(
                    "model.resnet.zero_gamma",
                    "there is no normalization with a scale to start at 0",
                )
                .hint("leave it out, or use `normalization = \"batch\"`, \"layer\" or \"group\""));
            }
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

fn normalization(model: &str, normalization: Normalization, config: &TrialConfig) -> Checked {
    match normalization {
        Normalization::Group { groups } => widths(
            &format!("model.{model}.normalization.group.groups"),
            &[groups],
        ),
        Normalization::Weight {
            data_dependent: true,
        } if config.global_batch() < 2 => Err(Fault::invalid(
            &format!("model.{model}.normalization.weight.data_dependent"),
            "the first batch sets the scales by its variance, and a batch of 1 has none",
        )
        .hint("use a larger batch, or `data_dependent = false`")),
        _ => Ok(()),
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
    if let Some(growth) = evaluate.growth {
        if !(growth > 1.0 && growth.is_finite()) {
            return Err(Fault::invalid(
                "train.evaluate.growth",
                format!("expected a number above 1, found {growth}"),
            )
            .hint("1.05 evaluates each time the updates have grown by 5 %"));
        }
        if evaluate.every_steps.is_some() || evaluate.every_epochs.is_some() {
            return Err(Fault::invalid(
                "train.evaluate.growth",
                "`every_steps` or `every_epochs` is given too",
            )
            .hint("keep one of them"));
        }
    }
    if evaluate.splits.as_ref().is_some_and(Vec::is_empty) {
        return Err(
            Fault::invalid("train.evaluate.splits", "no split is evaluated")
                .hint("leave it out to evaluate all"),
        );
    }
    at_least("train.stop_steps", train.stop_steps, 1)?;
    at_least("train.evaluate.train_examples", evaluate.train_examples, 1)?;
    positive("train.divergence_loss", train.divergence_loss)?;
    if let Some(norm) = train.clip_norm {
        positive("train.clip_norm", norm)?;
    }
    averaging(train)?;
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
    let evaluated = config.train.evaluate.splits.as_ref();
    if evaluated.is_some_and(|splits| !splits.contains(&split)) {
        return Err(Fault::invalid(
            "train.evaluate.splits",
            "the split of the target is not among them",
        )
        .hint("add it, or set `train.target.split` to another"));
    }
    if split == Split::Validation && config.data.validation_fraction == 0.0 {
        return Err(Fault::invalid(
            "train.target.split",
            "there is no validation split to measure the target on",
        )
        .hint("set `data.validation_fraction`, such as 0.1, or use another split"));
    }
    let quadratic = matches!(config.data.source, DataSource::NoisyQuadratic { .. });
    match metric {
        Metric::Accuracy => {
            if quadratic {
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
        Metric::Loss if quadratic && split == Split::Test => Err(Fault::invalid(
            "train.target.split",
            "the noisy quadratic has no test set to measure the target on",
        )
        .hint("use `split = \"train\"`")),
        Metric::Loss => positive("train.target.value", value),
    }
}

fn averaging(train: &TrainConfig) -> Checked {
    match train.averaging {
        Averaging::None => Ok(()),
        Averaging::Ema { decay } => share("train.averaging.ema.decay", decay, "0.999 is usual"),
        Averaging::Swa {
            start_epoch,
            every_epochs,
        } => {
            let key = "train.averaging.swa.start_epoch";
            not_negative(key, start_epoch, "0 averages from the start")?;
            if let Some(run) = train.epochs
                && start_epoch > run
            {
                return Err(Fault::invalid(
                    key,
                    format!("{start_epoch} epochs are more than the run of {run}"),
                )
                .hint("start within the run; three quarters of it are usual"));
            }
            positive("train.averaging.swa.every_epochs", every_epochs)
        }
    }
}

/// In [0, 1).
fn share(key: &str, value: f64, hint: &str) -> Checked {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(Fault::invalid(key, format!("{value} is not in [0, 1)")).hint(hint))
}

fn optimizer(optimizer: &OptimizerConfig) -> Checked {
    let kind = optimizer.name();
    let key = |name: &str| format!("optimizer.{kind}.{name}");
    let decay = |value: f64| not_negative(&key("weight_decay"), value, "0 leaves it out");
    let usual = |name: &str, value: f64| share(&key(name), value, "0.9 is usual");
    let roles = |name: &str, roles: &Option<Vec<Role>>| {
        let mut sorted = roles.clone().unwrap_or_default();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Fault::invalid(&key(name), "a role stands twice").hint("keep it once"));
        }
        Ok(())
    };
    let corrected = |form: MomentumForm, correction: bool| {
        if form == MomentumForm::Outside && !correction {
            return Err(Fault::invalid(
                &key("correction"),
                "with `form = \"outside\"` the velocity does not hold the rate: there is nothing to \
                 correct",
            )
            .hint("leave it out, or write `form = \"inside\"`"));
        }
        Ok(())
    };
    match optimizer {
        OptimizerConfig::Sgd {
            weight_decay,
            weight_decay_roles,
        } => {
            decay(*weight_decay)?;
            roles("weight_decay_roles", weight_decay_roles)
        }
        OptimizerConfig::Momentum {
            momentum,
            weight_decay,
            weight_decay_roles,
            form,
            correction,
        } => {
            usual("momentum", *momentum)?;
            decay(*weight_decay)?;
            corrected(*form, *correction)?;
            roles("weight_decay_roles", weight_decay_roles)
        }
        OptimizerConfig::Nesterov {
            momentum,
            weight_decay,
            weight_decay_roles,
            form,
            correction,
        } => {
            if *momentum == 0.0 {
                return Err(Fault::invalid(&key("momentum"), "0 is not in (0, 1)")
                    .hint("use `optimizer = \"sgd\"` for no momentum"));
            }
            if !(*momentum > 0.0 && *momentum < 1.0) {
                return Err(Fault::invalid(
                    &key("momentum"),
                    format!("{momentum} is not in (0, 1)"),
                )
                .hint("0.9 is usual"));
            }
            decay(*weight_decay)?;
            corrected(*form, *correction)?;
            roles("weight_decay_roles", weight_decay_roles)
        }
        OptimizerConfig::Adamw {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            weight_decay_roles,
        } => {
            usual("beta1", *beta1)?;
            usual("beta2", *beta2)?;
            positive(&key("epsilon"), *epsilon)?;
            decay(*weight_decay)?;
            roles("weight_decay_roles", weight_decay_roles)
        }
        OptimizerConfig::Lars {
            momentum,
            weight_decay,
            weight_decay_roles,
            trust_coefficient,
            epsilon,
            exclude_roles,
            nesterov: _,
            norms: _,
            clip: _,
            correction: _,
        } => {
            usual("momentum", *momentum)?;
            decay(*weight_decay)?;
            positive(&key("trust_coefficient"), *trust_coefficient)?;
            not_negative(&key("epsilon"), *epsilon, "0 leaves it out")?;
            roles("weight_decay_roles", weight_decay_roles)?;
            roles("exclude_roles", exclude_roles)
        }
        OptimizerConfig::Lamb {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            weight_decay_roles,
            exclude_roles,
            clip: _,
        } => {
            usual("beta1", *beta1)?;
            usual("beta2", *beta2)?;
            positive(&key("epsilon"), *epsilon)?;
            decay(*weight_decay)?;
            roles("weight_decay_roles", weight_decay_roles)?;
            roles("exclude_roles", exclude_roles)
        }
        OptimizerConfig::Lion {
            beta1,
            beta2,
            weight_decay,
            weight_decay_roles,
        } => {
            usual("beta1", *beta1)?;
            usual("beta2", *beta2)?;
            decay(*weight_decay)?;
            roles("weight_decay_roles", weight_decay_roles)
        }
    }
}

fn momentum_schedule(config: &TrialConfig) -> Checked {
    let kind = match &config.momentum_schedule {
        MomentumSchedule::Constant {} => return Ok(()),
        MomentumSchedule::Step { .. } => "step",
        MomentumSchedule::Linear { .. } => "linear",
        MomentumSchedule::Sutskever {} => "sutskever",
    };
    let key = |name: &str| format!("momentum_schedule.{kind}.{name}");
    if config.optimizer.momentum().is_none() {
        return Err(Fault::invalid(
            "momentum_schedule",
            format!(
                "the optimizer `{}` has no momentum",
                config.optimizer.name()
            ),
        )
        .hint("use `momentum`, `nesterov` or `lars`"));
    }
    match &config.momentum_schedule {
        MomentumSchedule::Step { epochs, values } => {
            rising(&key("epochs"), epochs, "the momentum changes")?;
            if epochs.len() != values.len() {
                return Err(Fault::invalid(
                    &key("values"),
                    format!("{} values for {} epochs", values.len(), epochs.len()),
                )
                .hint("give one momentum for each epoch"));
            }
            values
                .iter()
                .try_for_each(|&value| share(&key("values"), value, "0.9 is usual"))
        }
        MomentumSchedule::Linear { start, epochs } => {
            share(&key("start"), *start, "0.5 is usual")?;
            positive(&key("epochs"), *epochs)
        }
        MomentumSchedule::Constant {} | MomentumSchedule::Sutskever {} => Ok(()),
    }
}

/// `[batch]`.
fn batch_control(config: &TrialConfig) -> Checked {
    let batch: &BatchConfig = &config.batch;
    share(
        "batch.smoothing",
        batch.smoothing,
        "0 uses the newest measurement alone",
    )?;
    if let Some(every) = batch.every_epochs {
        positive("batch.every_epochs", every)?;
        if batch.every_steps.is_some() {
            return Err(
                Fault::invalid("batch.every_steps", "`every_epochs` is given too")
                    .hint("keep one of them"),
            );
        }
    }
    at_least("batch.every_steps", batch.every_steps, 1)?;
    at_least("batch.min_batch", batch.min_batch, 1)?;
    at_least("batch.max_batch", batch.max_batch, 1)?;
    controller(config)?;
    let start = config.global_batch();
    if start > MAX_VALUES {
        return Err(Fault::invalid(
            "batch.controller.smith",
            format!("the first batch is larger than {MAX_VALUES}"),
        ));
    }
    if let Some(most) = batch.max_batch
        && most < start
    {
        return Err(Fault::invalid(
            "batch.max_batch",
            format!("the cap of {most} is below the start of {start}"),
        )
        .hint(format!("use at least {start}")));
    }
    if let Some(least) = batch.min_batch
        && least > start
    {
        return Err(Fault::invalid(
            "batch.min_batch",
            format!("{least} is above the start of {start}"),
        )
        .hint(format!("use at most {start}")));
    }
    measured(config)?;
    let shards = batch.growth == BatchGrowth::Shards;
    if shards && config.local_batch() * config.train.workers != start {
        return Err(Fault::invalid(
            "batch.controller.smith.initial_factor",
            format!("the first batch of {start} is not divisible by the workers"),
        ));
    }
    Ok(())
}

/// What a controller needs that measures gradients, and what AdaScale does.
fn measured(config: &TrialConfig) -> Checked {
    let (batch, train) = (&config.batch, &config.train);
    let kind = batch.controller.name();
    let planned = batch.controller.is_planned();
    let smallest = batch
        .min_batch
        .unwrap_or(usize::MAX)
        .min(config.global_batch());
    if config.measures_gradients() && smallest < 2 {
        let (key, what) = if batch.min_batch.is_some_and(|least| least < 2) && !planned {
            ("batch.min_batch", "a batch of 1")
        } else {
            (batch_key(train), "a batch of 1")
        };
        return Err(Fault::invalid(
            key,
            format!("the noise of the gradient shows between examples, and {what} has none"),
        )
        .hint("use at least 2; from 8 on the noise is measured well"));
    }
    if matches!(batch.controller, BatchController::Cabs {})
        && !matches!(
            config.optimizer,
            OptimizerConfig::Sgd { .. }
                | OptimizerConfig::Momentum { .. }
                | OptimizerConfig::Nesterov { .. }
        )
    {
        return Err(Fault::invalid(
            "batch.controller",
            format!(
                "`cabs` is derived for steps of lr times the gradient, and `{}` makes others",
                config.optimizer.name()
            ),
        )
        .hint("use `sgd`, `momentum` or `nesterov`, or a controller such as `norm-test`"));
    }
    // Epochs pass at a pace that only the run decides, and such a run counts updates.
    if train.steps.is_some() && !planned {
        let rate = &config.learning_rate;
        let epochs = match &rate.decay {
            DecayConfig::Step { .. } => Some("learning_rate.decay.step"),
            DecayConfig::Exponential { .. } => Some("learning_rate.decay.exponential"),
            DecayConfig::Cyclic { .. } => Some("learning_rate.decay.cyclic"),
            DecayConfig::InverseSqrt {
                timescale_epochs: Some(_),
            } => Some("learning_rate.decay.inverse-sqrt"),
            _ => None,
        };
        let warmup = config.resolved().learning_rate.warmup;
        let warmup = warmup.is_some_and(|warmup| warmup.steps.is_none());
        let momentum = matches!(
            config.momentum_schedule,
            MomentumSchedule::Step { .. } | MomentumSchedule::Linear { .. }
        );
        if let Some(key) = epochs
            .or(warmup.then_some("learning_rate.warmup"))
            .or(momentum.then_some("momentum_schedule"))
        {
            return Err(Fault::invalid(
                key,
                format!("it counts epochs, and `{kind}` decides how many updates an epoch has"),
            )
            .hint("give the budget as `train.epochs` or `train.examples` in place of `steps`"));
        }
    }
    Ok(())
}

fn controller(config: &TrialConfig) -> Checked {
    let batch = &config.batch;
    let controller = &batch.controller;
    let kind = controller.name();
    let key = |name: &str| format!("batch.controller.{kind}.{name}");
    let fraction = |name: &str, value: f64| {
        if value > 0.0 && value < 1.0 {
            return Ok(());
        }
        Err(Fault::invalid(
            &key(name),
            format!("{value} is not in (0, 1)"),
        ))
    };
    let above_one = |name: &str, value: f64| {
        if value > 1.0 && value.is_finite() {
            return Ok(());
        }
        Err(Fault::invalid(
            &key(name),
            format!("{value} is not a number above 1"),
        ))
    };
    match controller {
        BatchController::Constant {}
        | BatchController::Cabs {}
        | BatchController::SimpleNoiseScale {} => Ok(()),
        BatchController::Schedule { stages } => {
            let mut epochs: Vec<f64> = stages.iter().map(|stage| stage[0]).collect();
            if epochs.first() == Some(&0.0) && epochs.len() > 1 {
                epochs.remove(0);
            }
            if epochs != [0.0] {
                rising(&key("stages"), &epochs, "the batch changes")?;
            }
            for [_, size] in stages {
                if !(*size >= 1.0 && size.fract() == 0.0 && *size <= MAX_VALUES as f64) {
                    return Err(Fault::invalid(
                        &key("stages"),
                        format!("a batch of {size} is not a whole number from 1 to {MAX_VALUES}"),
                    )
                    .hint("a stage is [epoch, global batch], such as [10, 256]"));
                }
                let unit = config.batch_unit();
                let rest = *size as usize % unit;
                if rest != 0 {
                    let below = *size as usize - rest;
                    let nearest = if below == 0 {
                        unit.to_string()
                    } else {
                        format!("{below} or {}", below + unit)
                    };
                    let growth = match batch.growth {
                        BatchGrowth::Shards => "the workers",
                        BatchGrowth::Workers => "the local batch",
                        BatchGrowth::Accumulation => "the batch of [train]",
                    };
                    return Err(Fault::invalid(
                        &key("stages"),
                        format!("a batch of {size} is no multiple of {unit}, {growth}"),
                    )
                    .hint(format!("use {nearest}")));
                }
                if let Some(most) = batch.max_batch
                    && *size > most as f64
                {
                    return Err(Fault::invalid(
                        "batch.max_batch",
                        format!("the stage of {size} is above {most}"),
                    )
                    .hint("raise it, or leave it out"));
                }
            }
            Ok(())
        }
        BatchController::Smith {
            epochs,
            factor,
            initial_factor,
            momentum,
        } => {
            if batch.coupling == Some(Coupling::Rule) {
                return Err(Fault::invalid(
                    "batch.coupling",
                    "`smith` changes the batch in place of the rate: a rule must not change both",
                )
                .hint("leave it out"));
            }
            if matches!(config.learning_rate.decay, DecayConfig::Step { .. }) {
                return Err(Fault::invalid(
                    "learning_rate.decay",
                    "`smith` grows the batch in place of a rate that falls in steps, and both are given",
                )
                .hint(
                    "write `decay = \"constant\"`; to compare the two, let `batch.controller` and \
                     `learning_rate.decay` move together in a `[[sweep.zip]]`",
                ));
            }
            rising(&key("epochs"), epochs, "the batch grows")?;
            above_one("factor", *factor)?;
            positive(&key("initial_factor"), *initial_factor)?;
            if *initial_factor < 1.0 {
                return Err(Fault::invalid(
                    &key("initial_factor"),
                    format!("{initial_factor} is below 1"),
                )
                .hint("1 starts with the batch of [train]"));
            }
            if let Some(larger) = *momentum {
                share(&key("momentum"), larger, "0.98 is Smith's")?;
                let Some(own) = config.optimizer.momentum() else {
                    return Err(Fault::invalid(
                        &key("momentum"),
                        format!(
                            "the optimizer `{}` has no momentum",
                            config.optimizer.name()
                        ),
                    )
                    .hint("use `momentum`, `nesterov` or `lars`"));
                };
                if larger < own {
                    return Err(Fault::invalid(
                        &key("momentum"),
                        format!("{larger} is below the optimizer's {own}"),
                    )
                    .hint("use a larger one, or leave it out"));
                }
            }
            Ok(())
        }
        BatchController::Absa {
            factor,
            decrease,
            increase,
            patience_epochs,
            adversarial_share,
            adversarial_epsilon,
            adversarial_until,
            curvature_examples,
            power_iterations,
            tolerance,
        } => {
            above_one("factor", *factor)?;
            fraction("decrease", *decrease)?;
            if let Some(increase) = increase {
                above_one("increase", *increase)?;
            }
            positive(&key("patience_epochs"), *patience_epochs)?;
            unit_interval(&key("adversarial_share"), *adversarial_share)?;
            not_negative(
                &key("adversarial_epsilon"),
                *adversarial_epsilon,
                "0 leaves examples as they are",
            )?;
            unit_interval(&key("adversarial_until"), *adversarial_until)?;
            curvature_examples_fit(&key("curvature_examples"), *curvature_examples)?;
            at_least(&key("power_iterations"), Some(*power_iterations), 1)?;
            if *power_iterations > 10_000 {
                return Err(Fault::invalid(
                    &key("power_iterations"),
                    format!("{power_iterations} products are more than 10000"),
                ));
            }
            positive(&key("tolerance"), *tolerance)?;
            on_flex(config, kind)?;
            if matches!(config.model, ModelConfig::NoisyQuadratic { .. })
                && *adversarial_share > 0.0
            {
                return Err(Fault::invalid(
                    &key("adversarial_share"),
                    "the noisy quadratic has no features to move",
                )
                .hint("write `adversarial_share = 0`"));
            }
            Ok(())
        }
        BatchController::NormTest { theta } => positive(&key("theta"), *theta),
        BatchController::InnerProductTest {
            theta,
            orthogonality,
        } => {
            positive(&key("theta"), *theta)?;
            orthogonality.map_or(Ok(()), |nu| positive(&key("orthogonality"), nu))
        }
        BatchController::NoiseScale {
            exchange_rate,
            curvature_examples,
        } => {
            positive(&key("exchange_rate"), *exchange_rate)?;
            curvature_examples_fit(&key("curvature_examples"), *curvature_examples)?;
            on_flex(config, kind)
        }
    }
}

fn curvature_examples_fit(key: &str, examples: usize) -> Checked {
    at_least(key, Some(examples), 2)?;
    if examples > 1_000_000 {
        return Err(
            Fault::invalid(key, format!("{examples} examples are more than 1000000"))
                .hint("512 are usual"),
        );
    }
    Ok(())
}

/// Hessian-vector products are taken in f64.
fn on_flex(config: &TrialConfig, kind: &str) -> Checked {
    let device = config.train.device.as_str();
    if matches!(device, "flex" | "ndarray") {
        return Ok(());
    }
    Err(Fault::invalid(
        &format!("batch.controller.{kind}"),
        format!(
            "it takes Hessian-vector products in f64, which the device `{device}` does not have"
        ),
    )
    .hint("use `device = \"flex\"`, or a controller that needs gradients alone"))
}

/// How batch statistics are formed.
fn statistics(config: &TrialConfig) -> Checked {
    if let BatchStatistics::Ema { rate } = config.train.batch_statistics
        && !(rate > 0.0 && rate <= 1.0)
    {
        return Err(Fault::invalid(
            "train.batch_statistics.ema.rate",
            format!("{rate} is not in (0, 1]"),
        )
        .hint("0.1 is usual"));
    }
    let StatisticsGroup::Ghost {
        ghost_size,
        remainder,
    } = config.train.statistics_group
    else {
        return Ok(());
    };
    let key = "train.statistics_group.ghost.ghost_size";
    if ghost_size < 2 {
        return Err(Fault::invalid(
            key,
            format!("a group of {ghost_size} has no variance of its own"),
        )
        .hint("use at least 2"));
    }
    let local = config.local_batch();
    if ghost_size > local {
        return Err(Fault::invalid(
            key,
            format!("groups of {ghost_size} do not fit into shards of {local} examples"),
        )
        .hint(format!(
            "use at most {local}, a larger batch, or `statistics_group = \"local\"`"
        )));
    }
    if remainder == GhostRemainder::Refuse && !local.is_multiple_of(ghost_size) {
        return Err(Fault::invalid(
            key,
            format!("shards of {local} examples do not divide into groups of {ghost_size}"),
        )
        .hint("write `remainder = \"merge\"`: the rest joins the last group"));
    }
    Ok(())
}

/// Epochs in rising order, none of them 0 or less.
fn rising(key: &str, epochs: &[f64], what: &str) -> Checked {
    if epochs.is_empty() {
        return Err(Fault::invalid(key, format!("no epochs at which {what}")));
    }
    if let Some(epoch) = epochs
        .iter()
        .find(|epoch| !(**epoch > 0.0 && epoch.is_finite()))
    {
        return Err(Fault::invalid(
            key,
            format!("epoch {epoch} is not a positive number"),
        ));
    }
    match epochs.array_windows().find(|[a, b]| a >= b) {
        Some([before, after]) => Err(Fault::invalid(
            key,
            format!("{after} does not come after {before}"),
        )
        .hint("list them in rising order, each once")),
        None => Ok(()),
    }
}

/// In [0, 1].
fn unit_interval(key: &str, value: f64) -> Checked {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Fault::invalid(key, format!("{value} is not in [0, 1]")))
}

fn learning_rate(config: &TrialConfig) -> Checked {
    let rate: &LearningRateConfig = &config.learning_rate;
    positive("learning_rate.base_lr", rate.base_lr)?;
    at_least("learning_rate.base_batch", rate.base_batch, 1)?;
    match rate.scaling {
        Scaling::Power { exponent } if !exponent.is_finite() => {
            return Err(Fault::invalid(
                "learning_rate.scaling.power.exponent",
                format!("{exponent} is not finite"),
            ));
        }
        Scaling::Saturating { noise_scale } => {
            positive("learning_rate.scaling.saturating.noise_scale", noise_scale)?;
        }
        _ => {}
    }
    if rate.scaling != Scaling::None && rate.base_batch.is_none() {
        return Err(Fault::invalid(
            "learning_rate.scaling",
            "the rule needs `base_batch`, the global batch that `base_lr` suits",
        )
        .hint("add `base_batch`, such as 32, or write `scaling = \"none\"`"));
    }
    if let (Scaling::Adascale {}, Some(base)) = (rate.scaling, rate.base_batch)
        && base > config.written_batch()
    {
        return Err(Fault::invalid(
            "learning_rate.base_batch",
            format!(
                "AdaScale gains from a batch larger than `base_batch`, and {} is smaller than {base}",
                config.written_batch()
            ),
        )
        .hint("use a smaller `base_batch`"));
    }
    let scaled = config.scaled_rate();
    if !(scaled > 0.0 && scaled.is_finite()) {
        let key = match rate.scaling {
            Scaling::Power { .. } => "learning_rate.scaling.power.exponent",
            _ => "learning_rate.base_lr",
        };
        return Err(Fault::invalid(
            key,
            format!("the scaled rate is {scaled:e}, not a positive number"),
        ));
    }
    if let Some(warmup) = &rate.warmup {
        warm_up(warmup, config)?;
    }
    decay(
        &rate.decay,
        config.resolved().learning_rate.warmup.is_some(),
    )
}

fn warm_up(warmup: &WarmupConfig, config: &TrialConfig) -> Checked {
    if let Some(start) = warmup.start_lr {
        not_negative("learning_rate.warmup.start_lr", start, "0 starts from rest")?;
    }
    // From 0 neither would ever move.
    if matches!(
        warmup.shape,
        WarmupShape::Exponential | WarmupShape::Constant
    ) && let Some(start) = warmup.start_lr
    {
        let key = "learning_rate.warmup.start_lr";
        positive(key, start)?;
        if !(config.scaled_rate() / start).is_finite() {
            return Err(Fault::invalid(
                key,
                format!("{start:e} is too small to grow from"),
            ));
        }
    }
    if warmup.shape == WarmupShape::Legw && config.learning_rate.base_batch.is_none() {
        return Err(Fault::invalid(
            "learning_rate.warmup.shape",
            "`legw` needs `base_batch`, the batch that the given length suits",
        )
        .hint("add `learning_rate.base_batch`"));
    }
    let train = &config.train;
    let given = [
        ("epochs", warmup.epochs.is_some()),
        ("steps", warmup.steps.is_some()),
        ("examples", warmup.examples.is_some()),
    ];
    let mut given = given
        .iter()
        .filter(|(_, given)| *given)
        .map(|(name, _)| *name);
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        return Err(Fault::invalid(
            &format!("learning_rate.warmup.{second}"),
            format!("`{first}` is given too"),
        )
        .hint("keep one of them"));
    }
    match (warmup.epochs, warmup.steps, warmup.examples) {
        (None, None, None) => Err(Fault::invalid(
            "learning_rate.warmup",
            "the length of the warm-up is missing",
        )
        .hint("add `epochs`, `steps` or `examples`; 0 is no warm-up")),
        (Some(epochs), ..) => {
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
        (None, None, Some(examples)) => match train.examples {
            Some(run) if examples > run => Err(warmup_too_long(
                "examples",
                &format!("{examples} examples"),
                &format!("{run} examples"),
            )),
            _ => Ok(()),
        },
        (None, Some(steps), _) => {
            if train.steps.is_some_and(|run| steps > run) {
                let run = train.steps.unwrap_or_default();
                return Err(warmup_too_long(
                    "steps",
                    &format!("{steps} updates"),
                    &format!("{run} updates"),
                ));
            }
            let adascale = matches!(config.learning_rate.scaling, Scaling::Adascale {});
            let base = config.learning_rate.base_batch.filter(|_| adascale);
            let batch = base.unwrap_or(config.global_batch()) as u64;
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

fn decay(decay: &DecayConfig, warms_up: bool) -> Checked {
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
            rising(key, epochs, "the rate drops")?;
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
        DecayConfig::InverseSqrt { timescale_epochs } => {
            let key = "learning_rate.decay.inverse-sqrt.timescale_epochs";
            match timescale_epochs {
                Some(epochs) => positive(key, *epochs),
                None if warms_up => Ok(()),
                None => Err(Fault::invalid(key, "there is no warm-up to take it from")
                    .hint("set it, or add `[learning_rate.warmup]`")),
            }
        }
        DecayConfig::WarmupStableDecay {
            decay_fraction,
            final_fraction,
            shape: _,
        } => {
            share("warmup-stable-decay", *final_fraction)?;
            if *decay_fraction > 0.0 && *decay_fraction <= 1.0 {
                return Ok(());
            }
            Err(Fault::invalid(
                "learning_rate.decay.warmup-stable-decay.decay_fraction",
                format!("{decay_fraction} is not in (0, 1]"),
            )
            .hint("0.2 decays over the last fifth of the run"))
        }
        DecayConfig::Cyclic {
            period_epochs,
            min_fraction,
            cycle_factor,
        } => {
            positive("learning_rate.decay.cyclic.period_epochs", *period_epochs)?;
            unit_interval("learning_rate.decay.cyclic.min_fraction", *min_fraction)?;
            if *cycle_factor > 0.0 && *cycle_factor <= 1.0 {
                return Ok(());
            }
            Err(Fault::invalid(
                "learning_rate.decay.cyclic.cycle_factor",
                format!("{cycle_factor} is not in (0, 1]"),
            )
            .hint("1 keeps the height of the triangles, 0.5 halves it each cycle"))
        }
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
