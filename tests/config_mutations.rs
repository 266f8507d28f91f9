//! Study files with 10,000 random damages: never a panic, and every error says where.

use batchlab::config;
use batchlab::rng::Stream;

const FILES: [&str; 5] = [
    include_str!("../configs/quickstart.toml"),
    include_str!("../configs/mnist-generalization-gap.toml"),
    include_str!("../configs/cifar10-resnet.toml"),
    include_str!("../configs/own-data.toml"),
    include_str!("../configs/pareto-targets.toml"),
];

/// Pieces of TOML that change what a file means rather than only breaking it.
const PIECES: [&str; 45] = [
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "1e-400",
    "99999999999999999999",
    "18446744073709551615",
    "0x_",
    "\"\"",
    "\"mlp\"",
    "'",
    "\"\"\"",
    "[]",
    "{}",
    "[[",
    "]]",
    "[sweep]",
    "[[sweep.zip]]",
    "=",
    ".",
    ",",
    "\n",
    "\r",
    "\u{0}",
    "\u{feff}",
    "é",
    "#",
    "true",
    "2024-01-01",
    "{ log2 = [1, 2] }",
    "{ log = [1e-300, 1e300], points = 100000 }",
    "sweep.",
    "seeds = ",
    "train.",
    "optimizer.",
    "model.custom.options.a.b.c = 1\n",
    "\"train.workers\" = [1, 2]\n",
    "steps = 1\n",
    "seed",
    "local_batch = 9223372036854775807\n",
    "warmup",
    "[learning_rate.decay.step]\n",
    "\\u0000",
    "[[[[[[[[[",
];

fn mutate(text: &str, stream: &mut Stream) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=stream.below(4) {
        let at = stream.below(chars.len() as u64 + 1) as usize;
        let length = stream.below(12) as usize;
        let end = (at + length).min(chars.len());
        match stream.below(6) {
            0 => drop(chars.drain(at..end)),
            1 => {
                let copy = chars[at..end].to_vec();
                let to = stream.below(chars.len() as u64 + 1) as usize;
                chars.splice(to..to, copy);
            }
            2 => chars.truncate(at),
            3 => {
                let piece = PIECES[stream.below(PIECES.len() as u64) as usize];
                chars.splice(at..end, piece.chars());
            }
            4 => {
                // A whole value: from a `=` to the end of its line.
                let equals: Vec<usize> = (0..chars.len()).filter(|&i| chars[i] == '=').collect();
                if !equals.is_empty() {
                    let from = equals[stream.below(equals.len() as u64) as usize] + 1;
                    let to = (from..chars.len())
                        .find(|&i| chars[i] == '\n')
                        .unwrap_or(chars.len());
                    let piece = PIECES[stream.below(PIECES.len() as u64) as usize];
                    chars.splice(from..to, format!(" {piece}").chars());
                }
            }
            _ => {
                // A line moved elsewhere.
                let mut lines: Vec<String> = chars
                    .iter()
                    .collect::<String>()
                    .lines()
                    .map(str::to_owned)
                    .collect();
                if !lines.is_empty() {
                    let line = lines.remove(stream.below(lines.len() as u64) as usize);
                    let to = stream.below(lines.len() as u64 + 1) as usize;
                    lines.insert(to, line);
                }
                chars = lines.join("\n").chars().collect();
            }
        }
    }
    chars.into_iter().collect()
}

#[test]
fn ten_thousand_damaged_files_never_panic_and_every_error_says_where() {
    let (mut fine, mut about_a_key, mut syntax) = (0, 0, 0);
    for number in 0..10_000_u64 {
        let mut stream = Stream::new(20_240_607, "config mutations", number);
        let text = mutate(FILES[(number % FILES.len() as u64) as usize], &mut stream);
        match config::parse(&text, "damaged.toml", &[]) {
            Ok(study) => {
                fine += 1;
                for trial in study.trials.iter().take(2) {
                    let _ = study.validate_against_data(trial, 100);
                    let alone = trial.config.to_toml();
                    let again = config::parse(&alone, "alone.toml", &[])
                        .unwrap_or_else(|error| panic!("{error}\nin\n{alone}\nfrom\n{text}"));
                    assert_eq!(again.trials[0].id, trial.id, "{alone}");
                }
            }
            Err(error) => {
                let printed = error.to_string();
                assert!(
                    printed.starts_with("damaged.toml:"),
                    "{printed}\nin\n{text}"
                );
                assert!(printed.len() < 5000, "{printed}");
                let line = error
                    .line()
                    .unwrap_or_else(|| panic!("no line: {printed}\nin\n{text}"));
                assert!(line >= 1 && line <= text.lines().count() + 1, "{printed}");
                match error.key() {
                    Some(key) => {
                        about_a_key += 1;
                        assert!(!key.is_empty() && printed.contains(key), "{key}: {printed}");
                    }
                    None => syntax += 1,
                }
            }
        }
    }
    // The damages are of all sorts, or the test shows little.
    assert!(
        fine > 500 && about_a_key > 500 && syntax > 500,
        "{fine} {about_a_key} {syntax}"
    );
}

#[test]
fn damaged_overrides_never_panic_and_every_error_says_set() {
    let good = [
        "train.epochs=10",
        "sweep.\"train.global_batch\"={ log2 = [32, 64] }",
        "optimizer=adamw",
        "model.mlp.widths=[8, 8]",
        "seeds=3",
    ];
    for number in 0..2_000_u64 {
        let mut stream = Stream::new(20_240_608, "config overrides", number);
        let text = mutate(good[(number % good.len() as u64) as usize], &mut stream);
        if let Err(error) = config::parse(FILES[0], "fine.toml", std::slice::from_ref(&text)) {
            let printed = error.to_string();
            assert!(printed.starts_with("fine.toml"), "{printed}");
            assert!(error.set().is_some() || error.line().is_some(), "{printed}");
        }
    }
}
