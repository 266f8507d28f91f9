//! `batchlab collectives`: its tables, files and errors, and a measurement on threads.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use batchlab::store::Table;

fn collectives(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .arg("collectives")
        .args(arguments)
        .env_remove("OMPI_COMM_WORLD_SIZE")
        .output()
        .unwrap()
}

/// What is printed, of a command that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = collectives(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a command that is used wrongly.
fn refused(arguments: &[&str]) -> String {
    let output = collectives(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}\n{error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

fn table(path: &Path) -> Table {
    Table::read(path).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_ring_costs_what_the_textbook_says() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("costs");
    let text = printed(&[
        "--algorithm",
        "ring,recursive-doubling",
        "--ranks",
        "4,8",
        "--bytes",
        "4KiB,1MiB",
        "--alpha",
        "2e-6",
        "--beta",
        "1e-9",
        "--gamma",
        "1e-10",
        "--static-power",
        "100",
        "--energy-per-message",
        "1e-6",
        "--energy-per-byte",
        "1e-9",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(text.contains("alpha = 2e-6 s, beta = 1e-9 s/B, gamma = 1e-10 s/B"));
    assert!(text.contains("as given"));
    assert!(text.contains("difference 0 s exactly"));
    let costs = table(&out.join("collectives.csv"));
    let row = |algorithm: &str, ranks: u64, bytes: u64| {
        let names = costs.texts("algorithm").unwrap();
        let (of_ranks, of_bytes) = (
            costs.integers("ranks").unwrap(),
            costs.integers("bytes").unwrap(),
        );
        (0..costs.len())
            .find(|i| {
                names[*i] == Some(algorithm)
                    && of_ranks[*i] == Some(ranks)
                    && of_bytes[*i] == Some(bytes)
            })
            .unwrap()
    };
    let number = |column: &str, row: usize| costs.numbers(column).unwrap()[row].unwrap();
    let ring = row("ring", 8, 1 << 20);
    let n = f64::from(1 << 20);
    // 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma.
    let time = 14.0 * 2e-6 + 1.75 * n * 1e-9 + 0.875 * n * 1e-10;
    assert!((number("time_s", ring) / time - 1.0).abs() < 1e-12);
    assert_eq!(number("messages", ring), 14.0 * 8.0);
    assert_eq!(number("bytes_sent", ring), 14.0 * n);
    assert_eq!(number("extra_memory_bytes", ring), n / 8.0);
    let energy = 100.0 * time * 8.0 + 112.0 * 1e-6 + 14.0 * n * 1e-9;
    assert!((number("energy_j", ring) / energy - 1.0).abs() < 1e-12);
    assert!((number("bound_bandwidth_s", ring) / (1.75 * n * 1e-9) - 1.0).abs() < 1e-12);
    let differences = costs.numbers("simulated_minus_closed_form_s").unwrap();
    assert!(differences.iter().all(|d| *d == Some(0.0)));
    assert_eq!(costs.texts("fastest").unwrap()[ring], Some("true"));
    assert_eq!(
        costs.texts("fastest").unwrap()[row("ring", 8, 4096)],
        Some("false")
    );
    // 3(alpha + n(beta + gamma)) against the ring.
    let crossovers = table(&out.join("crossovers.csv"));
    let even = crossovers.numbers("bytes_if_even").unwrap()[1].unwrap();
    let expected = 11.0 * 2e-6 / (3.0 * 1.1e-9 - 1.75e-9 - 0.875e-10);
    assert!((even / expected - 1.0).abs() < 1e-9, "{even} {expected}");
    let found = crossovers.numbers("bytes").unwrap()[1].unwrap();
    assert!((found / even - 1.0).abs() < 0.01);
    for name in ["parameters.csv", "report.html"] {
        assert!(out.join(name).exists(), "{name}");
    }
    for name in ["bytes", "ranks", "fastest"] {
        for ending in ["svg", "png"] {
            let figure = out.join(format!("figures/collectives-{name}.{ending}"));
            assert!(figure.exists(), "{}", figure.display());
        }
    }
}

#[test]
fn by_default_all_algorithms_are_compared_and_the_source_is_said() {
    let text = printed(&[]);
    assert!(text.contains("preset infiniband-100g") && text.contains("illustrative"));
    for part in [
        "all-reduce, 1024 ranks: time (µs)",
        "rabenseifner",
        "where the fastest algorithm changes",
        "recursive-doubling to",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(text, printed(&[]));
}

#[test]
fn other_operations_models_and_disturbances_are_tabulated() {
    let text = printed(&[
        "--operation",
        "broadcast,scatter",
        "--algorithm",
        "binomial,tree=3,flat",
        "--model",
        "loggp",
        "--preset",
        "ethernet-10g",
        "--ranks",
        "6",
        "--bytes",
        "1KiB",
        "--jitter",
        "1e-5",
        "--seeds",
        "5",
        "--slow-link",
        "0-1=10",
    ]);
    for part in [
        "model loggp: latency L = 1.4e-5 s",
        "broadcast: every case",
        "scatter: every case",
        "3-ary tree",
        "mean 1e-5 s, over 5 seeds",
        "ranks 0 and 1 10 times slower",
        "95 % interval (µs)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn wrong_usage_says_what_would_be_right() {
    for (arguments, expected) in [
        (&["--algorithm", "rign"][..], "did you mean `ring`?"),
        (&["--operation", "allreduce"], "did you mean `all-reduce`?"),
        (&["--preset", "infiniband"], "expected the name of a preset"),
        (&["--ranks", "0"], "expected ranks from 1"),
        (&["--ranks", "8..2"], "expected ranks from 1"),
        (&["--bytes", "12x"], "expected bytes from 1"),
        (
            &["--bytes", "10"],
            "--bytes: expected a multiple of 4 bytes",
        ),
        (
            &["--operation", "scatter", "--algorithm", "ring"],
            "--algorithm: ring cannot do scatter; flat, tree and binomial can",
        ),
        (
            &["--alpha", "1e-6", "--gap", "1e-6"],
            "parameters of one model",
        ),
        (
            &["--algorithm", "tree=99999999999"],
            "expected a number from 1 to 1073741824 after `tree=`",
        ),
        (
            &["--alpha", "nan"],
            "--alpha: expected alpha from 0 to 1e4 s, found NaN",
        ),
        (&["--gap", "1"], "--gap: expected gap g of at most L + 2o"),
        (
            &["--static-power", "inf"],
            "--static-power: expected static power from 0 to 1e6 W, found inf",
        ),
        (
            &["--energy-per-byte", "1e308"],
            "--energy-per-byte: expected energy of a byte from 0 to 1e6 J",
        ),
        (
            &["--jitter", "1e300"],
            "--jitter: expected jitter from 0 to 1e4 s, found 1e300",
        ),
        (
            &["--jitter", "1e-6", "--simulate-up-to", "0"],
            "--jitter: expected a case of 2 ranks or more that is simulated",
        ),
        (&["--jitter", "1e-6", "--ranks", "32"], "found none"),
        (
            &["--slow-link", "0-1=10", "--ranks", "32"],
            "--slow-link: no simulation has the slow link 0-1",
        ),
        (&["--slow-link", "1-1=3"], "expected two ranks"),
        (&["--threads", "4"], "--measure"),
        (
            &["--measure", "--threads", "4", "--ranks", "5"],
            "expected 2 to 4",
        ),
        (
            &["--measure", "--threads", "4", "--bytes", "12"],
            "expected a multiple of 8",
        ),
        (
            &["--measure", "--threads", "4", "--model", "loggp"],
            "fits the model hockney",
        ),
        (&["--measure", "--jitter", "1"], "cannot be used with"),
        (&["--measure"], "expected at least two ranks to measure"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(expected), "{arguments:?}\n{error}");
    }
}

#[test]
fn negative_numbers_are_out_of_range() {
    for (flag, expected) in [
        ("--alpha", "--alpha: expected alpha from 0 to 1e4 s"),
        ("--gap-per-byte", "--gap-per-byte: expected gap per byte G"),
        ("--jitter", "--jitter: expected jitter from 0 to 1e4 s"),
        ("--static-power", "--static-power: expected static power"),
        ("--ranks", "expected ranks from 1"),
        ("--simulate-up-to", "-1 is not in 0..=4096"),
    ] {
        let error = refused(&[flag, "-1"]);
        assert!(error.contains(expected), "{flag}\n{error}");
    }
    assert!(refused(&["--alpha", "-1e-6"]).contains("found -1e-6"));
}

#[test]
fn flags_without_effect_are_refused() {
    for arguments in [
        &["--seeds", "5"][..],
        &["--slow-link", "0-1=2", "--seeds", "5"],
        &["--repetitions", "5"],
        &["--warm-up", "5"],
        &["--most-seconds", "5"],
        &["--rank-timeout", "5"],
    ] {
        let error = refused(arguments);
        assert!(
            error.contains("were not provided"),
            "{arguments:?}\n{error}"
        );
    }
    let measured = |more: &[&str]| refused(&[&["--measure", "--threads", "2"], more].concat());
    for more in [
        ["--static-power", "5"],
        ["--energy-per-message", "5"],
        ["--energy-per-byte", "5"],
        ["--simulate-up-to", "5"],
        ["--rank-timeout", "5"],
    ] {
        let error = measured(&more);
        assert!(error.contains("cannot be used with"), "{more:?}\n{error}");
    }
    for more in [
        ["--alpha", "1e-6"],
        ["--beta", "1e-9"],
        ["--gamma", "1e-9"],
        ["--preset", "ethernet-10g"],
    ] {
        let error = measured(&[&["--algorithm", "ring,tree=3"], &more[..]].concat());
        let expected = format!("{}: with --measure it only chooses", more[0]);
        assert!(error.contains(&expected), "{more:?}\n{error}");
    }
}

#[test]
fn a_chain_is_named_with_the_segments_that_are_carried_out() {
    let text = printed(&[
        "--algorithm",
        "chain=1000000000",
        "--ranks",
        "4",
        "--bytes",
        "1KiB",
        "--gamma",
        "0",
    ]);
    assert!(text.contains("chain of 256 segments"), "{text}");
    assert!(text.contains("gamma = 0 s/B"), "{text}");
}

/// Measuring would take days.
#[test]
fn a_folder_that_cannot_be_made_is_refused_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for out in [&file, &file.join("below")] {
        for more in [
            &["--ranks", "4"][..],
            &[
                "--measure",
                "--threads",
                "2",
                "--repetitions",
                "1000000",
                "--most-seconds",
                "1e6",
            ],
        ] {
            let out = ["--bytes", "8", "--out", out.to_str().unwrap()];
            let output = collectives(&[more, &out].concat());
            assert_eq!(output.status.code(), Some(1), "{more:?}");
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains("--out: cannot create the folder"), "{error}");
            assert!(output.stdout.is_empty(), "{more:?}");
        }
    }
}

#[test]
fn the_report_of_a_study_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("study.json"), "{}").unwrap();
    let out = folder.path().to_str().unwrap();
    let output = collectives(&["--ranks", "4", "--bytes", "8", "--out", out]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("the folder of a study"), "{error}");
}

/// No time is asserted, only that everything is there.
#[test]
fn threads_are_measured_and_the_model_fitted() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("measured");
    let costs = ["--ranks", "2..8", "--bytes", "8", "--out"];
    printed(&[&costs[..], &[out.to_str().unwrap()]].concat());
    let text = printed(&[
        "--measure",
        "--threads",
        "3",
        "--operation",
        "all-reduce,broadcast",
        "--ranks",
        "2,3",
        "--bytes",
        "8,4KiB,64KiB",
        "--repetitions",
        "5",
        "--out",
        out.to_str().unwrap(),
    ]);
    for part in [
        "threads of one process, 3 ranks on",
        "alpha = ",
        "all-reduce, sum of the threads",
        "broadcast, binomial tree",
        "model against measurement",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let measured = table(&out.join("measured.csv"));
    // Eight algorithms for all-reduce and four for broadcast, and the sum of all threads.
    assert_eq!(measured.len(), (8 + 4) * 2 * 3 + 3);
    let times = measured.numbers("measured_s").unwrap();
    assert!(times.iter().all(|t| t.is_some_and(|t| t > 0.0)));
    assert!(
        measured
            .integers("repetitions")
            .unwrap()
            .iter()
            .all(|n| *n == Some(5))
    );
    assert_eq!(table(&out.join("fit.csv")).len(), 3);
    for name in [
        "collectives.csv",
        "crossovers.csv",
        "parameters.csv",
        "figures/collectives-ranks.svg",
    ] {
        assert!(!out.join(name).exists(), "{name}");
    }
    for name in ["measured-all-reduce", "measured-broadcast", "model"] {
        let figure = out.join(format!("figures/collectives-{name}.svg"));
        assert!(figure.exists(), "{}", figure.display());
    }
}
