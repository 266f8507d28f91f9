//! Study files through the public door: what they stand for, and what is said when they are wrong.

use std::path::Path;

use batchlab::config::{
    self, ConfigError, DataSource, ModelConfig, OptimizerConfig, Problem, StudyConfig,
};
use serde_json::json;

const BASE: &str = r#"name = "base"
model = "mlp"
[data]
source = "digits"
[train]
workers = 4
global_batch = 64
epochs = 10
[learning_rate]
base_lr = 0.1
base_batch = 32
scaling = "linear"
"#;

fn parse(text: &str) -> Result<StudyConfig, ConfigError> {
    config::parse(text, "f.toml", &[])
}

fn set(text: &str, overrides: &[&str]) -> Result<StudyConfig, ConfigError> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    config::parse(text, "f.toml", &overrides)
}

fn good(text: &str) -> StudyConfig {
    parse(text).unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
}

fn error(text: &str) -> ConfigError {
    match parse(text) {
        Ok(_) => panic!("no error in\n{text}"),
        Err(error) => error,
    }
}

/// `BASE` with one line replaced, or with a line at the end.
fn with(old: &str, new: &str) -> String {
    if old.is_empty() {
        return format!("{BASE}{new}\n");
    }
    assert!(BASE.contains(old), "{old}");
    BASE.replace(old, new)
}

#[test]
fn every_ready_made_config_is_valid() {
    let mut seen = 0;
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs"))
        .expect("configs/ is there")
    {
        let path = entry.expect("an entry").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            seen += 1;
            if path.file_stem().is_some_and(|name| name == "plan") {
                // Not a study.
                config::load_plan(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
                continue;
            }
            let study = config::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                Some(study.name.as_ref()),
                path.file_stem(),
                "named as the file"
            );
            assert!(
                study.description.is_some(),
                "{} says what it asks",
                study.name
            );
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn the_quickstart_fits_its_data() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/quickstart.toml");
    let study = config::load(&path, &[]).expect("valid");
    assert!(study.seeds.len() >= 3);
    for trial in &study.trials {
        study
            .validate_against_data(trial, 1437)
            .expect("1,797 digits less a fifth");
    }
}

#[test]
fn the_schema_on_disk_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/schema.json");
    let on_disk = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        on_disk == config::schema_json(),
        "configs/schema.json is out of date; renew it with\n    \
         cargo run --release -- config schema > configs/schema.json"
    );
}

#[test]
fn every_default_is_resolved() {
    let study = good(BASE);
    assert_eq!((study.seeds.as_slice(), study.trials.len()), (&[0][..], 1));
    let config = &study.trials[0].config;
    assert_eq!((config.global_batch(), config.local_batch()), (64, 16));
    assert!(matches!(&config.model, ModelConfig::Mlp { widths, .. } if *widths == [256, 256]));
    assert_eq!(config.optimizer, OptimizerConfig::default());
    assert_eq!(config.data.source, DataSource::Digits {});
    assert_eq!(config.explain_rate(), "0.2 = 0.1 x 64/32 (linear)");
    assert_eq!(config.explain_batch(), "64 = 4 workers x 16");
    assert_eq!(config.explain_warmup(), "none");
}

#[test]
fn a_kind_may_be_a_word_or_a_table() {
    let word = good(BASE);
    for table in [
        with("model = \"mlp\"\n", "[model.mlp]\nwidths = [256, 256]\n"),
        with("model = \"mlp\"", "model = { mlp = {} }"),
        with("model = \"mlp\"", "model.mlp.activation = \"relu\""),
        with("source = \"digits\"", "source.digits = {}"),
        with("", "decay = \"constant\"\n[optimizer]\nmomentum = {}"),
        with(
            "",
            "[learning_rate.decay.constant]\n[optimizer.momentum]\nmomentum = 0.9",
        ),
    ] {
        assert_eq!(good(&table).trials[0].id, word.trials[0].id, "{table}");
    }
    let adamw = good(&with("", "[optimizer.adamw]"));
    assert_eq!(
        adamw.trials[0].id,
        set(BASE, &["optimizer=adamw"]).expect("a word").trials[0].id
    );
}

#[test]
fn the_sweep_is_every_point_with_every_seed_in_the_order_of_the_file() {
    let study = good(
        &with(
            "",
            "[sweep]\n\"train.global_batch\" = { log2 = [64, 128] }\n\
         \"learning_rate.scaling\" = [\"none\", \"sqrt\"]\n\
         optimizer.momentum.momentum = [0.5]\n",
        )
        .replace("model = ", "seeds = [7, 3]\nmodel = "),
    );
    let keys: Vec<&str> = study
        .axes
        .iter()
        .map(|axis| axis.keys[0].as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "train.global_batch",
            "learning_rate.scaling",
            "optimizer.momentum.momentum"
        ]
    );
    let plan: Vec<(usize, String, u64)> = study
        .trials
        .iter()
        .map(|trial| {
            (
                trial.config.global_batch(),
                trial.config.explain_rate(),
                trial.seed,
            )
        })
        .collect();
    let plan: Vec<(usize, &str, u64)> = plan.iter().map(|(b, r, s)| (*b, r.as_str(), *s)).collect();
    assert_eq!(
        plan,
        [
            (64, "0.1 (no scaling)", 7),
            (64, "0.1 (no scaling)", 3),
            (64, "0.141421 = 0.1 x sqrt(64/32) (sqrt)", 7),
            (64, "0.141421 = 0.1 x sqrt(64/32) (sqrt)", 3),
            (128, "0.1 (no scaling)", 7),
            (128, "0.1 (no scaling)", 3),
            (128, "0.2 = 0.1 x sqrt(128/32) (sqrt)", 7),
            (128, "0.2 = 0.1 x sqrt(128/32) (sqrt)", 3),
        ]
    );
    for (index, trial) in study.trials.iter().enumerate() {
        assert_eq!((trial.index, trial.config.seed), (index, trial.seed));
        assert_eq!(
            trial.point[2],
            ("optimizer.momentum.momentum".to_owned(), json!(0.5))
        );
    }
}

#[test]
fn an_axis_over_a_whole_kind_takes_words_and_tables() {
    let study = good(&with(
        "",
        "[sweep]\noptimizer = [\"sgd\", { adamw = { beta1 = 0.8 } }]",
    ));
    assert_eq!(
        study.axes[0].values,
        [[json!("sgd")], [json!({ "adamw": { "beta1": 0.8 } })]]
    );
    assert!(matches!(
        study.trials[0].config.optimizer,
        OptimizerConfig::Sgd { .. }
    ));
    assert!(matches!(
        study.trials[1].config.optimizer,
        OptimizerConfig::Adamw { beta1: 0.8, .. }
    ));
}

#[test]
fn an_axis_may_bring_a_key_that_is_required() {
    let text = with("base_lr = 0.1\n", "") + "[sweep]\n\"learning_rate.base_lr\" = [0.1, 0.2]";
    assert_eq!(good(&text).trials[1].config.learning_rate.base_lr, 0.2);
    let text = with("[data]\nsource = \"digits\"\n", "")
        + "[sweep]\n\"data.source\" = [\"digits\", { csv = { path = \"a\", label = \"y\" } }]";
    assert_eq!(good(&text).trials.len(), 2);
}

#[test]
fn warm_up_of_length_zero_is_none() {
    let text = with("", "[sweep]\nlearning_rate.warmup.epochs = [0, 5]");
    let study = good(&text);
    assert_eq!(study.trials[0].config.learning_rate.warmup, None);
    assert_eq!(study.trials[0].id, good(BASE).trials[0].id);
    assert_eq!(study.trials[1].config.explain_warmup(), "gradual 5 epochs");
}

#[test]
fn a_resolved_trial_is_a_study_file_with_the_same_id() {
    let texts = [
        BASE.to_owned(),
        with(
            "",
            "[optimizer.adamw]\nepsilon = 1e-12\nweight_decay_roles = [\"dense\"]",
        ),
        with(
            "",
            "warmup = { steps = 3, shape = \"constant\" }\ndecay.step.epochs = [2, 4.5]",
        ),
        with(
            "model = \"mlp\"",
            "model.custom.name = \"a \\\"b\\\"\\n\\u0001\\\\c\"\nmodel.custom.options = { depth = 3, x = [1.0, { \"k k\" = \"v\" }], e = {} }",
        ),
        with(
            "source = \"digits\"",
            "dir = \"d\"\nsource.csv = { path = \"a/b.csv\", label = \"y\", shape = [1, 2, 3] }",
        ),
        with(
            "",
            "[train.target]\nvalue = 0.5\nmetric = \"loss\"\n[train.evaluate]\nevery_steps = 3",
        ),
        with("name", "seeds = [18446744073709551615]\nname"),
        include_str!("../configs/quickstart.toml").to_owned(),
        include_str!("../configs/own-data.toml").to_owned(),
        include_str!("../configs/cifar10-resnet.toml").to_owned(),
        include_str!("../configs/mnist-generalization-gap.toml").to_owned(),
    ];
    for text in texts {
        for trial in good(&text).trials {
            let alone = trial.config.to_toml();
            let study = good(&alone);
            assert_eq!(study.trials.len(), 1);
            assert_eq!(study.trials[0].id, trial.id, "{alone}");
            assert_eq!(study.trials[0].config, trial.config, "{alone}");
            assert_eq!(study.trials[0].config.to_toml(), alone);
        }
    }
}

#[test]
fn the_run_id_depends_on_what_decides_the_bits_and_on_nothing_else() {
    let id = |text: &str| good(text).trials[0].id.clone();
    let base = id(BASE);
    assert_eq!(base.len(), 12);
    for same in [
        with("epochs = 10", "epochs = 10.0"),
        with("epochs = 10", "epochs = 10\nthreads = 2"),
        with("source", "dir = \"elsewhere\"\nsource"),
        with("name = \"base\"", "name = \"other\"\ndescription = \"why\""),
        with("", "[optimizer.momentum]\nmomentum = 0.9"),
        with("base_lr = 0.1", "base_lr = 1e-1"),
        with("global_batch = 64", "local_batch = 16"),
    ] {
        assert_eq!(id(&same), base, "{same}");
    }
    for other in [
        with("epochs = 10", "epochs = 11"),
        with("name", "seeds = [1]\nname"),
        with("base_lr = 0.1", "base_lr = 0.10000000000000002"),
        with("epochs = 10", "epochs = 10\ndevice = \"wgpu\""),
        with("global_batch = 64", "local_batch = 64"),
    ] {
        assert_ne!(id(&other), base, "{other}");
    }
}

#[test]
fn the_run_id_does_not_change_from_version_to_version() {
    // Results on disk are found again by it. A change of the schema that changes this id (a new
    // key that is always written out) makes every study of every user start anew.
    assert_eq!(good(BASE).trials[0].id, "60d1e7ca6da6");
}

#[test]
fn set_wins_over_the_file() {
    let study = set(BASE, &["train.epochs=3", "name=other", "seeds=2"]).expect("valid");
    assert_eq!((study.name.as_str(), study.trials.len()), ("other", 2));
    assert_eq!(study.trials[0].config.train.epochs, Some(3.0));
    let last = set(BASE, &["train.epochs=3", "train.epochs=4"]).expect("valid");
    assert_eq!(last.trials[0].config.train.epochs, Some(4.0));
}

#[test]
fn set_takes_the_place_of_keys_that_it_excludes() {
    let study = set(BASE, &["train.local_batch=8", "train.steps=5"]).expect("valid");
    let config = &study.trials[0].config;
    assert_eq!(
        (
            config.global_batch(),
            config.train.steps,
            config.train.epochs
        ),
        (32, Some(5), None)
    );
    let text = with("", "[optimizer.momentum]\nmomentum = 0.5");
    let study = set(&text, &["optimizer.adamw.beta1=0.5"]).expect("valid");
    let optimizer = &study.trials[0].config.optimizer;
    assert!(matches!(
        optimizer,
        OptimizerConfig::Adamw { beta1: 0.5, .. }
    ));
    let study = set(BASE, &["model.mlp.widths=[8]"]).expect("valid");
    assert!(
        matches!(&study.trials[0].config.model, ModelConfig::Mlp { widths, .. } if *widths == [8])
    );
}

#[test]
fn set_fixes_replaces_or_adds_an_axis() {
    let text = with(
        "",
        "[sweep]\ntrain.global_batch = [8, 16]\nlearning_rate.base_lr = [1, 2]",
    );
    let fixed = set(&text, &["train.global_batch=32"]).expect("valid");
    assert_eq!(fixed.trials.len(), 2);
    assert_eq!(fixed.axes[0].keys, ["train.global_batch"]);
    assert_eq!(fixed.axes[0].values, [[json!(32)]]);
    let replaced = set(&text, &["sweep.\"train.global_batch\"={ log2 = [4, 32] }"]).expect("valid");
    assert_eq!(replaced.trials.len(), 8);
    assert_eq!(replaced.axes[0].keys, ["train.global_batch"]);
    let added = set(&text, &["sweep.train.workers=[1, 2]"]).expect("valid");
    assert_eq!(added.trials.len(), 8);
    assert_eq!(added.axes[2].keys, ["train.workers"]);
    let zipped = with(
        "",
        "[[sweep.zip]]\ntrain.global_batch = [8]\ntrain.workers = [2]",
    );
    let error = set(&zipped, &["train.workers=1"])
        .expect_err("one key of a zip")
        .to_string();
    assert!(error.contains("zipped axis"), "{error}");
}

#[test]
fn an_error_from_set_says_set() {
    for (text, expected) in [
        (
            "train.epoch=3",
            "f.toml: --set train.epoch=3: unknown key `train.epoch`\nhint: did you mean `epochs`?",
        ),
        (
            "train.epochs=many",
            "f.toml: --set train.epochs=many: `train.epochs`: expected a number, found the text \"many\"",
        ),
        (
            "train.epochs=-1",
            "f.toml: --set train.epochs=-1: `train.epochs`: -1 is not a positive number\nhint: write `epochs = 1`",
        ),
        (
            "train.epochs",
            "f.toml: --set train.epochs: there is no `=` in it\nhint: write it as",
        ),
        (
            "sweep.train.global_bach=[1]",
            "f.toml: --set sweep.train.global_bach=[1]: unknown key `train.global_bach`\nhint: did you mean `global_batch`?",
        ),
        (
            "seed=3",
            "f.toml: --set seed=3: unknown key `seed`\nhint: did you mean `seeds`?",
        ),
    ] {
        let error = set(BASE, &[text]).expect_err(text);
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!((error.line(), error.set()), (None, Some(text)));
    }
}

/// Text, line, key, part of the message, part of the hint.
type Case = (String, usize, &'static str, &'static str, &'static str);

fn check(cases: Vec<Case>) {
    for (text, line, key, message, hint) in cases {
        let error = error(&text);
        let printed = error.to_string();
        assert!(
            printed.starts_with(&format!("f.toml:{line}: ")),
            "{printed}\nin\n{text}"
        );
        assert_eq!(error.key(), Some(key), "{printed}");
        assert!(printed.contains(key), "{printed}");
        assert!(
            error.problem().to_string().contains(message),
            "{printed}\nshould say {message}"
        );
        assert!(
            error.hint().unwrap_or_default().contains(hint),
            "{printed}\nshould hint {hint}"
        );
        assert!(hint.is_empty() || printed.contains("\nhint: "), "{printed}");
    }
}

#[test]
fn unknown_keys_name_the_nearest_or_the_right_place() {
    check(vec![
        (
            with("base_batch = 32", "base_bach = 32"),
            11,
            "learning_rate.base_bach",
            "unknown key",
            "did you mean `base_batch`?",
        ),
        (
            with("[learning_rate]", "[learning-rate]"),
            9,
            "learning-rate",
            "unknown key",
            "did you mean `learning_rate`?",
        ),
        (
            with("workers = 4", "workers = 4\nbatch_size = 3"),
            7,
            "train.batch_size",
            "unknown key",
            "`train.global_batch`",
        ),
        (
            with("workers = 4", "base_lr = 4"),
            6,
            "train.base_lr",
            "unknown key",
            "`base_lr` belongs in `[learning_rate]`",
        ),
        (
            with("workers = 4", "zzz = 4"),
            6,
            "train.zzz",
            "unknown key",
            "the keys in `train` are `workers`",
        ),
        (
            with("model = \"mlp\"", "model.mlpp = {}"),
            2,
            "model.mlpp",
            "unknown key",
            "did you mean `mlp`?",
        ),
        (
            with("", "[optimizer]\nweight_decay = 1"),
            14,
            "optimizer.weight_decay",
            "unknown key",
            "goes inside a kind, such as `[optimizer.sgd]`",
        ),
        (
            with("model = \"mlp\"", "model.mlp.width = 3"),
            2,
            "model.mlp.width",
            "unknown key",
            "did you mean `widths`?",
        ),
        (
            with("model = \"mlp\"", "model = \"mlp\"\nseed = 3"),
            3,
            "seed",
            "unknown key",
            "did you mean `seeds`?",
        ),
        (
            with("", "[sweep]\n\"train.global_bach\" = [1]"),
            14,
            "train.global_bach",
            "unknown key `train.global_bach`",
            "did you mean `global_batch`?",
        ),
        (
            with("source = \"digits\"", "source.digits.x = 1"),
            4,
            "data.source.digits.x",
            "unknown key",
            "there are no keys in",
        ),
    ]);
}

#[test]
fn wrong_types_say_what_was_expected_and_found() {
    check(vec![
        (
            with("epochs = 10", "epochs = \"10\""),
            8,
            "train.epochs",
            "expected a number, found the text \"10\"",
            "",
        ),
        (
            with("workers = 4", "workers = 4.0"),
            6,
            "train.workers",
            "expected a whole number, not negative, found 4.0",
            "write `workers = 4`",
        ),
        (
            with("workers = 4", "workers = -4"),
            6,
            "train.workers",
            "found -4",
            "",
        ),
        (
            with("workers = 4", "workers = [4]"),
            6,
            "train.workers",
            "found a list of 1",
            "",
        ),
        (
            with("scaling = \"linear\"", "scaling = \"liner\""),
            12,
            "learning_rate.scaling",
            "expected one of the kinds `none`, `sqrt`, `linear`, `power`, `saturating`, `adascale`, \
             found the text \"liner\"",
            "did you mean `linear`?",
        ),
        (
            with("source = \"digits\"", "source = \"digit\""),
            4,
            "data.source",
            "expected one of the kinds `digits`",
            "did you mean `digits`?",
        ),
        (
            with("source = \"digits\"", "source = \"csv\""),
            4,
            "data.source.csv.path",
            "missing key `data.source.csv.path`: The file of training",
            "",
        ),
        (
            with("model = \"mlp\"", "model.mlp.widths = 64"),
            2,
            "model.mlp.widths",
            "expected a list",
            "write `widths = [64]`",
        ),
        (
            with("model = \"mlp\"", "model.mlp.widths = [\n64,\n-1]"),
            4,
            "model.mlp.widths[1]",
            "found -1",
            "",
        ),
        (
            with("model = \"mlp\"", "model.simple-cnn.channels = [1]"),
            2,
            "model.simple-cnn.channels",
            "expected a list of 2",
            "",
        ),
        (
            with("", "[optimizer]\nmomentum = 0.9"),
            14,
            "optimizer.momentum",
            "expected a table, found 0.9",
            "write `optimizer.momentum.momentum = 0.9`",
        ),
        (
            with("", "[optimizer.momentum]\n[optimizer.sgd]"),
            13,
            "optimizer",
            "one kind at a time",
            "keep one",
        ),
        (
            with("model = \"mlp\"", "model = {}"),
            2,
            "model",
            "expected one of the kinds",
            "",
        ),
        (
            with("base_lr = 0.1", "base_lr = nan"),
            10,
            "learning_rate.base_lr",
            "not a finite number",
            "",
        ),
        (
            with("base_lr = 0.1", "base_lr = 2024-01-01"),
            10,
            "learning_rate.base_lr",
            "no key takes a date",
            "",
        ),
        (
            with("base_lr = 0.1\n", ""),
            9,
            "learning_rate.base_lr",
            "missing key",
            "",
        ),
        (
            with("[data]\nsource = \"digits\"\n", ""),
            1,
            "data",
            "missing key `data`: The examples",
            "",
        ),
        (
            with("model", "sweep = 3\nmodel"),
            2,
            "sweep",
            "expected a table",
            "",
        ),
        (
            with("model", "seeds = \"3\"\nmodel"),
            2,
            "seeds",
            "found the text \"3\"",
            "",
        ),
        (
            with("name = \"base\"", "name = 3"),
            1,
            "name",
            "expected text in quotes, found 3",
            "",
        ),
    ]);
}

#[test]
fn what_does_not_fit_together_is_said_with_its_fix() {
    let noisy = with("source = \"digits\"", "source = \"noisy-quadratic\"");
    let cnn = with("model = \"mlp\"", "model = \"simple-cnn\"");
    check(vec![
        (
            with("global_batch = 64", "global_batch = 66"),
            7,
            "train.global_batch",
            "66 is not divisible by 4 workers",
            "use 64 or 68",
        ),
        (
            with("global_batch = 64", "global_batch = 3"),
            7,
            "train.global_batch",
            "not divisible",
            "use 4, or fewer workers",
        ),
        (
            with("global_batch = 64", "global_batch = 64\nlocal_batch = 16"),
            8,
            "train.local_batch",
            "`global_batch` is given too",
            "keep one",
        ),
        (
            with("global_batch = 64\n", ""),
            5,
            "train",
            "the batch is missing",
            "add `global_batch`",
        ),
        (
            with("global_batch = 64", "global_batch = 0"),
            7,
            "train.global_batch",
            "0 is too few",
            "at least 1",
        ),
        (
            with("workers = 4", "workers = 0"),
            6,
            "train.workers",
            "no workers",
            "workers = 1",
        ),
        (
            with("epochs = 10", "epochs = 10\nsteps = 3"),
            9,
            "train.steps",
            "`epochs` is given too",
            "keep one",
        ),
        (
            with("epochs = 10\n", ""),
            5,
            "train",
            "the budget is missing",
            "add one of",
        ),
        (
            with("epochs = 10", "epochs = 0"),
            8,
            "train.epochs",
            "0 is not a positive number",
            "",
        ),
        (
            with("epochs = 10", "steps = 0"),
            8,
            "train.steps",
            "too few",
            "",
        ),
        (
            with("epochs = 10", "examples = 63"),
            8,
            "train.examples",
            "less than one update of 64",
            "at least 64",
        ),
        (
            with("epochs = 10", "epochs = 10\nmicro_batch = 0"),
            9,
            "train.micro_batch",
            "too few",
            "",
        ),
        (
            with("epochs = 10", "epochs = 10\nlog_every = 0"),
            9,
            "train.log_every",
            "too few",
            "",
        ),
        (
            with(
                "epochs = 10",
                "epochs = 10\ndevice = \"wgpu\"\nprecision = \"f64\"",
            ),
            10,
            "train.precision",
            "`wgpu` does not compute in f64",
            "flex",
        ),
        (
            with(
                "epochs = 10",
                "epochs = 10\nevaluate = { every_epochs = 1, every_steps = 1 }",
            ),
            9,
            "train.evaluate.every_steps",
            "`every_epochs` is given too",
            "keep one",
        ),
        (
            with(
                "epochs = 10",
                "epochs = 10\nevaluate = { every_epochs = 0 }",
            ),
            9,
            "train.evaluate.every_epochs",
            "positive",
            "",
        ),
        (
            with("base_lr = 0.1", "base_lr = 0"),
            10,
            "learning_rate.base_lr",
            "0 is not a positive number",
            "above 0",
        ),
        (
            with("base_lr = 0.1", "base_lr = -0.1"),
            10,
            "learning_rate.base_lr",
            "-0.1 is not a positive",
            "write `base_lr = 0.1`",
        ),
        (
            with("base_batch = 32\n", ""),
            11,
            "learning_rate.scaling",
            "needs `base_batch`",
            "add `base_batch`",
        ),
        (
            with("", "warmup.epochs = 11"),
            13,
            "learning_rate.warmup.epochs",
            "the warm-up is longer than the run: 11 epochs of 10 epochs",
            "shorten",
        ),
        (
            with("epochs = 10", "steps = 10") + "warmup.steps = 11",
            13,
            "learning_rate.warmup.steps",
            "longer than the run",
            "shorten",
        ),
        (
            with("epochs = 10", "examples = 640") + "warmup.steps = 11",
            13,
            "learning_rate.warmup.steps",
            "longer than the run",
            "shorten",
        ),
        (
            with("", "warmup = {}"),
            13,
            "learning_rate.warmup",
            "length of the warm-up is missing",
            "add `epochs`, `steps` or `examples`",
        ),
        (
            with("", "warmup = { epochs = 1, steps = 1 }"),
            13,
            "learning_rate.warmup.steps",
            "given too",
            "keep one",
        ),
        (
            with("", "warmup = { epochs = 1, start_lr = -1 }"),
            13,
            "learning_rate.warmup.start_lr",
            "negative",
            "",
        ),
        (
            with("", "decay.step.epochs = [5, 5]"),
            13,
            "learning_rate.decay.step.epochs",
            "5 does not come after 5",
            "rising",
        ),
        (
            with("", "decay.step.epochs = []"),
            13,
            "learning_rate.decay.step.epochs",
            "no epochs",
            "constant",
        ),
        (
            with("", "decay.cosine.final_fraction = 2"),
            13,
            "learning_rate.decay.cosine.final_fraction",
            "not in [0, 1]",
            "",
        ),
        (
            with("", "decay.exponential.factor = 0"),
            13,
            "learning_rate.decay.exponential.factor",
            "positive",
            "",
        ),
        (
            with("", "[optimizer]\nmomentum.momentum = 1"),
            14,
            "optimizer.momentum.momentum",
            "1 is not in [0, 1)",
            "0.9",
        ),
        (
            with("", "[optimizer]\nnesterov.momentum = 0"),
            14,
            "optimizer.nesterov.momentum",
            "0 is not in (0, 1)",
            "sgd",
        ),
        (
            with("", "[optimizer]\nadamw.beta2 = 1.5"),
            14,
            "optimizer.adamw.beta2",
            "not in [0, 1)",
            "",
        ),
        (
            with("", "[optimizer]\nsgd.weight_decay = -1"),
            14,
            "optimizer.sgd.weight_decay",
            "negative",
            "",
        ),
        (
            with("source", "validation_fraction = 1\nsource"),
            4,
            "data.validation_fraction",
            "1 is not in [0, 1)",
            "0.1",
        ),
        (
            with("source", "test_fraction = 0\nsource"),
            4,
            "data.test_fraction",
            "0 is not in (0, 1)",
            "0.2",
        ),
        (
            with("source", "label_noise = 1.5\nsource"),
            4,
            "data.label_noise",
            "not in [0, 1]",
            "",
        ),
        (
            with("source", "subset = 0\nsource"),
            4,
            "data.subset",
            "too few",
            "",
        ),
        (
            with("model = \"mlp\"", "model.mlp.widths = [64, 0]"),
            2,
            "model.mlp.widths",
            "0 is not a size",
            "",
        ),
        (
            with("model = \"mlp\"", "model.mlp.widths = []"),
            2,
            "model.mlp.widths",
            "no hidden layers",
            "softmax-regression",
        ),
        (
            with("model = \"mlp\"", "model.resnet.depth = 18"),
            2,
            "model.resnet.depth",
            "18 is not 6k + 2",
            "use 14 or 20",
        ),
        (
            with("model = \"mlp\"", "model.resnet.width = 0"),
            2,
            "model.resnet.width",
            "0 is not a size",
            "",
        ),
        (
            noisy.clone(),
            4,
            "data.source",
            "needs the model `noisy-quadratic`",
            "or neither",
        ),
        (
            with("model = \"mlp\"", "model = \"noisy-quadratic\""),
            2,
            "model",
            "needs the data",
            "or neither",
        ),
        (
            noisy
                .replace("\"mlp\"", "\"noisy-quadratic\"")
                .replace("source", "subset = 3\nsource"),
            4,
            "data.subset",
            "fresh examples",
            "leave it out",
        ),
        (
            noisy.replace("\"mlp\"", "\"noisy-quadratic\"") + "[train.target]\nvalue = 0.9",
            13,
            "train.target.metric",
            "no classes",
            "loss",
        ),
        (
            noisy.replace("\"mlp\"", "\"noisy-quadratic\"")
                + "[train.target]\nmetric = \"loss\"\nvalue = 0.9",
            13,
            "train.target.split",
            "no test set",
            "split = \"train\"",
        ),
        (
            cnn.replace("\"digits\"", "{ csv = { path = \"p\", label = \"y\" } }"),
            2,
            "model",
            "needs images",
            "shape",
        ),
        (
            cnn.replace("\"digits\"", "\"teacher\""),
            2,
            "model",
            "needs images",
            "mlp",
        ),
        (
            with("", "[train.target]\nvalue = 95"),
            14,
            "train.target.value",
            "an accuracy of 95 is not in (0, 1]",
            "0.95 stands for 95 %",
        ),
        (
            with("", "[train.target]\nvalue = 0.9\nsplit = \"validation\""),
            15,
            "train.target.split",
            "no validation split",
            "validation_fraction",
        ),
        (
            with(
                "source = \"digits\"",
                "source.idx = { train_images = \"a\", train_labels = \"b\", test_images = \"c\" }",
            ),
            4,
            "data.source.idx.test_images",
            "without `test_labels`",
            "add `test_labels`",
        ),
        (
            with("model", "seeds = 0\nmodel"),
            2,
            "seeds",
            "no seeds",
            "",
        ),
        (
            with("model", "seeds = []\nmodel"),
            2,
            "seeds",
            "no seeds",
            "",
        ),
        (
            with("model", "seeds = [1, 2, 1]\nmodel"),
            2,
            "seeds",
            "the seed 1 stands twice",
            "",
        ),
        (
            with("\"base\"", "\"../up\""),
            1,
            "name",
            "not a plain folder name",
            "letters, digits",
        ),
        (
            with("\"base\"", "\"\""),
            1,
            "name",
            "not a plain folder name",
            "",
        ),
        (
            with("\"base\"", "\".\""),
            1,
            "name",
            "not a plain folder name",
            "",
        ),
    ]);
}

#[test]
fn an_exact_trace_of_a_model_without_one_is_refused_before_it_trains() {
    let probes = "[probes.hessian]\ntrace = \"exact\"\n[probes.gauss_newton]\ntrace = \"exact\"";
    let study = |model: &str, more: &str| with("model = \"mlp\"", model) + more + probes;
    let case = |model: &str, more: &str, line, message| {
        let key = "probes.hessian.trace";
        (study(model, more), line, key, message, "\"krylov\"")
    };
    check(vec![
        case(
            "model = {mlp = {activation = \"tanh\"}}",
            "",
            14,
            "needs ReLU",
        ),
        case(
            "model = {mlp = {normalization = \"layer\"}}",
            "",
            14,
            "needs ReLU",
        ),
        case(
            "model = {mlp = {normalization = \"weight\"}}",
            "",
            14,
            "needs ReLU",
        ),
        case(
            "model = {mlp = {normalization = \"batch\"}}",
            "[probes]\nstatistics = \"batch\"\n",
            16,
            "statistics of a batch",
        ),
    ]);
    for model in [
        "model = \"softmax-regression\"",
        "model = {mlp = {normalization = \"batch\"}}",
        "model = {custom = {name = \"own\"}}",
    ] {
        good(&study(model, ""));
    }
    good(
        &study("model = {mlp = {activation = \"tanh\"}}", "")
            .replace("[probes.hessian]\ntrace = \"exact\"", ""),
    );
}

#[test]
fn an_error_in_one_trial_names_the_point_and_the_line_of_its_value() {
    let text = with(
        "",
        "[sweep]\n\"train.workers\" = [4, 8]\n\"train.global_batch\" = [\n64,\n100,\n]",
    );
    let error = error(&text);
    assert_eq!(
        error.to_string(),
        "f.toml:17: `train.global_batch`: 100 is not divisible by 8 workers, \
         at train.workers = 8, train.global_batch = 100\nhint: use 96 or 104"
    );
    assert_eq!(error.point().len(), 2);
}

#[test]
fn an_error_at_every_point_names_none() {
    let text = with("base_lr = 0.1", "base_lr = -1") + "[sweep]\ntrain.global_batch = [8, 16]";
    let error = error(&text);
    assert_eq!(
        (error.line(), error.point().len()),
        (Some(10), 0),
        "{error}"
    );
}

#[test]
fn points_that_are_one_trial_are_an_error() {
    let text = with(
        "",
        "[sweep.learning_rate.warmup]\nepochs = [0, 1]\nshape = [\"gradual\", \"constant\"]",
    );
    let error = error(&text);
    assert!(
        error.to_string().contains("two points are the same trial"),
        "{error}"
    );
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("[[sweep.zip]]")),
        "{error}"
    );
}

#[test]
fn too_many_trials_are_refused_before_they_are_made() {
    let range = "{ log = [0.001, 1], points = 100000 }";
    let text = with(
        "",
        &format!("[sweep]\nlearning_rate.base_lr = {range}\noptimizer.momentum.momentum = {range}"),
    );
    let error = error(&text.replace("model", "seeds = 100000\nmodel"));
    assert!(
        error.to_string().starts_with("f.toml:14: `sweep`: "),
        "{error}"
    );
    assert!(error.to_string().contains("more than 100000"), "{error}");
}

#[test]
fn what_needs_the_data_is_checked_when_the_data_is_there() {
    let check = |text: &str, n: usize, line: usize, key: &str, expected: &str| {
        let study = good(text);
        let trial = &study.trials[study.trials.len() - 1];
        study
            .validate_against_data(trial, 1_000_000)
            .expect("with many examples it fits");
        let error = study
            .validate_against_data(trial, n)
            .expect_err("with few it does not");
        assert_eq!(
            (error.line(), error.key()),
            (Some(line), Some(key)),
            "{error}"
        );
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.hint().is_some(), "{error}");
        let bare = trial.config.validate_against_data(n).expect_err("the same");
        assert_eq!((bare.file(), bare.key()), (None, Some(key)));
    };
    check(
        BASE,
        60,
        7,
        "train.global_batch",
        "64 = 4 workers x 16 is larger than the data: 60",
    );
    let swept = with("", "[sweep]\ntrain.global_batch = [32, 128]");
    check(
        &swept,
        100,
        14,
        "train.global_batch",
        "at train.global_batch = 128",
    );
    let local = with("global_batch = 64", "local_batch = 16");
    check(&local, 60, 7, "train.local_batch", "larger than the data");
    let long = with("", "warmup.steps = 11");
    check(
        &long,
        64,
        13,
        "learning_rate.warmup.steps",
        "longer than the run: 11.0 updates of 10.0 updates",
    );
    let short = with("epochs = 10", "epochs = 0.01");
    check(&short, 640, 8, "train.epochs", "less than one update of 64");
    let many = with("epochs = 10", "epochs = 10\nevaluate.train_examples = 100");
    check(
        &many,
        99,
        9,
        "train.evaluate.train_examples",
        "there are 99",
    );
    let steps = with("epochs = 10", "steps = 10") + "warmup.epochs = 2";
    let study = good(&steps);
    study.trials[0]
        .config
        .validate_against_data(320)
        .expect("10 updates are 2 epochs");
    assert!(study.trials[0].config.validate_against_data(384).is_err());
}

#[test]
fn the_name_defaults_to_that_of_the_file() {
    let text = with("name = \"base\"\n", "");
    let study = config::parse(&text, "some/where/my-study.toml", &[]).expect("valid");
    assert_eq!(study.name, "my-study");
    let error = config::parse(&text, "some/where/my study.toml", &[]).expect_err("not plain");
    assert_eq!(error.key(), Some("name"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.toml");
    let error = config::load(&missing, &[]).expect_err("not there");
    assert!(matches!(error.problem(), Problem::Read(_)));
    assert!(
        error
            .to_string()
            .starts_with(&missing.display().to_string()),
        "{error}"
    );
    assert!(config::load(folder.path(), &[]).is_err());
}

#[test]
fn the_text_is_kept_as_it_was_given() {
    let text = with("", "# a comment\n");
    let study = good(&text);
    assert_eq!((study.source, study.file.as_str()), (text, "f.toml"));
}

/// `BASE` with these lines at its end, which begins a table of its own.
fn and(lines: &str) -> String {
    with("", lines)
}

#[test]
fn rules_and_controllers_that_do_not_fit_say_why() {
    check(vec![
        (
            with("scaling = \"linear\"", "scaling = { power = {} }"),
            12,
            "learning_rate.scaling.power.exponent",
            "missing key",
            "",
        ),
        (
            with(
                "scaling = \"linear\"",
                "scaling = { saturating = { noise_scale = 0 } }",
            ),
            12,
            "learning_rate.scaling.saturating.noise_scale",
            "0 is not a positive number",
            "",
        ),
        (
            with(
                "base_batch = 32\nscaling = \"linear\"",
                "scaling = \"adascale\"",
            ),
            11,
            "learning_rate.scaling",
            "needs `base_batch`",
            "add `base_batch`",
        ),
        (
            with(
                "base_batch = 32\nscaling = \"linear\"",
                "base_batch = 512\nscaling = \"adascale\"",
            ),
            11,
            "learning_rate.base_batch",
            "is smaller than 512",
            "smaller `base_batch`",
        ),
        (
            and("decay = \"inverse-sqrt\""),
            13,
            "learning_rate.decay.inverse-sqrt.timescale_epochs",
            "no warm-up to take it from",
            "set it",
        ),
        (
            and("decay = { cyclic = { period_epochs = 2, cycle_factor = 1.5 } }"),
            13,
            "learning_rate.decay.cyclic.cycle_factor",
            "1.5 is not in (0, 1]",
            "",
        ),
        (
            and("decay = { warmup-stable-decay = { decay_fraction = 0 } }"),
            13,
            "learning_rate.decay.warmup-stable-decay.decay_fraction",
            "0 is not in (0, 1]",
            "",
        ),
        (
            and("warmup = { epochs = 1, examples = 100 }"),
            13,
            "learning_rate.warmup.examples",
            "`epochs` is given too",
            "keep one",
        ),
        (
            and("[batch]\ncontroller = \"smth\""),
            14,
            "batch.controller",
            "found the text \"smth\"",
            "did you mean `smith`?",
        ),
        (
            and("[batch]\ncontroller = \"cbas\""),
            14,
            "batch.controller",
            "found the text \"cbas\"",
            "did you mean `cabs`?",
        ),
        (
            and("[batch]\nmax_batch = 8\ncontroller = \"cabs\""),
            14,
            "batch.max_batch",
            "the cap of 8 is below the start of 64",
            "at least 64",
        ),
        (
            and("[batch]\nmin_batch = 128\ncontroller = \"cabs\""),
            14,
            "batch.min_batch",
            "128 is above the start of 64",
            "at most 64",
        ),
        (
            and("decay = { step = { epochs = [2] } }\n[batch.controller.smith]\nepochs = [2]"),
            13,
            "learning_rate.decay",
            "in place of a rate that falls in steps",
            "[[sweep.zip]]",
        ),
        (
            and("[batch.controller.smith]\nepochs = [2, 1]"),
            14,
            "batch.controller.smith.epochs",
            "1 does not come after 2",
            "rising order",
        ),
        (
            and("[batch.controller.smith]\nepochs = [1]\nfactor = 1"),
            15,
            "batch.controller.smith.factor",
            "1 is not a number above 1",
            "",
        ),
        (
            and("[batch.controller.smith]\nepochs = [1]\nmomentum = 0.5"),
            15,
            "batch.controller.smith.momentum",
            "0.5 is below the optimizer's 0.9",
            "larger",
        ),
        (
            and("[batch.controller.schedule]\nstages = [[1, 12.5]]"),
            14,
            "batch.controller.schedule.stages",
            "a batch of 12.5 is not a whole number",
            "[epoch, global batch]",
        ),
        (
            and("[batch.controller.norm-test]\ntheta = -0.5"),
            14,
            "batch.controller.norm-test.theta",
            "-0.5 is not a positive number",
            "write `theta = 0.5`",
        ),
        (
            and("[batch.controller.absa]\ndecrease = 2"),
            14,
            "batch.controller.absa.decrease",
            "2 is not in (0, 1)",
            "",
        ),
        (
            and("[batch]\nsmoothing = 1\ncontroller = \"cabs\""),
            14,
            "batch.smoothing",
            "1 is not in [0, 1)",
            "",
        ),
        (
            and("[momentum_schedule.step]\nepochs = [1, 2]\nvalues = [0.9]"),
            15,
            "momentum_schedule.step.values",
            "1 values for 2 epochs",
            "one momentum for each",
        ),
        (
            and("[momentum_schedule]\nsutskever = {}\n[optimizer.adamw]"),
            13,
            "momentum_schedule",
            "`adamw` has no momentum",
            "`momentum`",
        ),
        (
            and("[optimizer.momentum]\ncorrection = false"),
            14,
            "optimizer.momentum.correction",
            "does not hold the rate",
            "inside",
        ),
        (
            and("[optimizer.lars]\ntrust_coefficient = 0"),
            14,
            "optimizer.lars.trust_coefficient",
            "0 is not a positive number",
            "",
        ),
        (
            with("workers = 4", "workers = 4\nclip_norm = 0"),
            7,
            "train.clip_norm",
            "0 is not a positive number",
            "",
        ),
        (
            with(
                "workers = 4",
                "workers = 4\naveraging = { ema = { decay = 1 } }",
            ),
            7,
            "train.averaging.ema.decay",
            "1 is not in [0, 1)",
            "0.999",
        ),
        (
            with(
                "workers = 4",
                "workers = 4\nstatistics_group = { ghost = { ghost_size = 1 } }",
            ),
            7,
            "train.statistics_group.ghost.ghost_size",
            "no variance of its own",
            "at least 2",
        ),
        (
            with(
                "workers = 4",
                "workers = 4\nstatistics_group = { ghost = { ghost_size = 32 } }",
            ),
            7,
            "train.statistics_group.ghost.ghost_size",
            "do not fit into shards of 16",
            "at most 16",
        ),
        (
            with(
                "workers = 4",
                "workers = 4\nstatistics_group = { ghost = { ghost_size = 5, remainder = \"refuse\" } }",
            ),
            7,
            "train.statistics_group.ghost.ghost_size",
            "do not divide into groups of 5",
            "merge",
        ),
        (
            with(
                "workers = 4",
                "workers = 4\nbatch_statistics = { ema = { rate = 0 } }",
            ),
            7,
            "train.batch_statistics.ema.rate",
            "0 is not in (0, 1]",
            "0.1",
        ),
    ]);
}

#[test]
fn a_kind_without_keys_may_also_be_written_as_a_table() {
    let word = good(&with(
        "workers = 4",
        "workers = 4\nstatistics_group = \"global\"",
    ));
    let table = good(&with(
        "workers = 4",
        "workers = 4\nstatistics_group = { global = {} }",
    ));
    assert_eq!(word.trials[0].id, table.trials[0].id);
    let default = good(&with(
        "workers = 4",
        "workers = 4\nstatistics_group = \"local\"",
    ));
    assert_eq!(default.trials[0].id, good(BASE).trials[0].id);
}

#[test]
fn smiths_start_keeps_the_rate_over_the_batch_or_the_noise_scale() {
    let of = |lines: &str| good(&and(lines)).trials.remove(0).config;
    let plain = of("");
    let rate = of("[batch.controller.smith]\nepochs = [1]\ninitial_factor = 5");
    assert_eq!(rate.global_batch(), 5 * plain.global_batch());
    assert_eq!(rate.scaled_rate(), 5.0 * plain.scaled_rate());
    // (1 - 0.9)/(1 - 0.98) = 5.
    let momentum = of("[batch.controller.smith]\nepochs = [1]\nmomentum = 0.98");
    assert_eq!(momentum.global_batch(), 5 * plain.global_batch());
    assert_eq!(momentum.scaled_rate(), plain.scaled_rate());
    assert_eq!(momentum.momentum(), Some(0.98));
    assert_eq!(momentum.local_batch(), 5 * plain.local_batch());
    let workers = of(
        "[batch]\ngrowth = \"workers\"\n[batch.controller.smith]\nepochs = [1]\ninitial_factor = 5",
    );
    assert_eq!((workers.workers(), workers.local_batch()), (20, 16));
}

#[test]
fn a_plan_is_not_a_study_and_the_message_says_what_it_is() {
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/plan.toml");
    let error = config::load(&plan, &[]).unwrap_err().to_string();
    assert!(error.contains("`cluster`: this is a plan file"), "{error}");
    assert!(error.contains("batchlab plan"), "{error}");
}
