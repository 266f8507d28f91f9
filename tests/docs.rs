//! What the pages say is true: study files load, links lead somewhere, flags exist, outputs shown
//! are those that come, and the tables of files and columns are what a study writes.

#![expect(
    clippy::disallowed_methods,
    reason = "tests lay out folders of their own"
)]

mod reference_page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use batchlab::config::{self, StudyConfig};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn has_ending(path: impl AsRef<Path>, ending: &str) -> bool {
    let found = path.as_ref().extension();
    found.is_some_and(|found| found == ending)
}

/// Every page of the repository, by its path from the root.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = folder.join(&name);
            // What git ignores is not of the repository, but for the page about results.
            let ignored = folder.as_os_str().is_empty()
                && ["target", "data", "results"].contains(&name.as_str());
            if entry.path().is_dir() {
                if !ignored && !name.starts_with('.') {
                    left.push(path);
                }
            } else if has_ending(&path, "md") {
                let text = fs::read_to_string(entry.path()).unwrap();
                pages.insert(path.to_str().unwrap().to_owned(), text);
            }
        }
    }
    pages.insert("results/README.md".to_owned(), read("results/README.md"));
    assert!(pages.len() >= 8, "{:?}", pages.keys());
    pages
}

/// A fenced block of a page.
struct Fence {
    /// `README.md:12`
    place: String,
    language: String,
    text: String,
}

/// The fenced blocks of a page, and the page without them.
fn fences(page: &str, text: &str) -> (Vec<Fence>, String) {
    let (mut fences, mut rest) = (Vec::new(), String::new());
    let mut open: Option<Fence> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Fence {
                    place: format!("{page}:{}", number + 1),
                    language: language.trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => fences.extend(open.take()),
            (Some(fence), None) => {
                fence.text.push_str(line);
                fence.text.push('\n');
            }
            (None, None) => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{page}: a block without an end");
    (fences, rest)
}

fn all_fences() -> Vec<Fence> {
    let pages = pages();
    pages
        .iter()
        .flat_map(|(page, text)| fences(page, text).0)
        .collect()
}

/// What stands between backticks in a line.
fn spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

fn batchlab(words: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_batchlab"))
        .args(words)
        .current_dir(root())
        .output()
        .unwrap()
}

// ---- study files

/// A study that the fragments on the pages are laid over.
const BASE: &str = r#"
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
"#;

/// A study file, or a fragment of one over [`BASE`].
fn study_of(text: &str, place: &str) -> StudyConfig {
    let fragment: toml::Table = text
        .parse()
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    let whole = ["data", "model", "train", "learning_rate"];
    let text = if whole.iter().all(|key| fragment.contains_key(*key)) {
        text.to_owned()
    } else {
        let mut study: toml::Table = BASE.parse().unwrap();
        if fragment.contains_key("critical_batch")
            && let Some(toml::Value::Table(train)) = study.get_mut("train")
        {
            // The search sets both.
            train.retain(|key, _| !["global_batch", "epochs"].contains(&key));
        }
        for (key, value) in fragment {
            match (study.get_mut(&key), value) {
                (Some(toml::Value::Table(old)), toml::Value::Table(new)) if key != "data" => {
                    for (one, others) in [
                        ("local_batch", &["global_batch"][..]),
                        ("steps", &["epochs"]),
                        ("examples", &["epochs"]),
                    ] {
                        if new.contains_key(one) {
                            old.retain(|key, _| !others.contains(&key));
                        }
                    }
                    old.extend(new);
                }
                (_, value) => drop(study.insert(key, value)),
            }
        }
        toml::to_string(&study).unwrap()
    };
    config::parse(&text, place, &[]).unwrap_or_else(|error| panic!("{place}: {error}"))
}

#[test]
fn every_study_file_on_the_pages_loads() {
    let mut seen = 0;
    for fence in all_fences() {
        if fence.language != "toml" {
            continue;
        }
        seen += 1;
        if fence.text.contains("[dependencies]") {
            let line = fence.text.lines().find(|line| line.starts_with("burn ="));
            let manifest = read("Cargo.toml");
            assert!(
                line.is_some_and(|line| manifest.lines().any(|own| own == line)),
                "{}: not the burn of Cargo.toml",
                fence.place
            );
        } else if fence.text.contains("[cluster]") {
            let plan = config::parse_plan(&fence.text, &fence.place, &[]);
            plan.unwrap_or_else(|error| panic!("{}: {error}", fence.place));
        } else {
            study_of(&fence.text, &fence.place);
        }
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn the_readme_says_what_the_quickstart_is() {
    let study = config::load(&root().join("configs/quickstart.toml"), &[]).unwrap();
    let readme = read("README.md");
    let trials = format!("{} times", study.trials.len());
    assert!(readme.contains(&trials), "`{trials}`");
    let sizes: Vec<usize> = study.axes.iter().map(|axis| axis.values.len()).collect();
    assert_eq!((sizes, study.seeds.len()), (vec![3, 7], 3));
    assert!(readme.contains("seven batches with three rules and three seeds"));
}

#[test]
fn the_rust_shown_is_that_of_the_example() {
    let example = read("examples/custom_model.rs");
    let readme = read("README.md");
    let (blocks, _) = fences("README.md", &readme);
    let block = blocks.iter().find(|fence| fence.language == "rust");
    let block = &block.expect("README shows some").text;
    let call = block.lines().find(|line| line.contains("main_with"));
    assert!(example.contains(call.expect("the call").trim()), "{block}");
}

// ---- links

/// The name by which a heading is linked to.
pub(crate) fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let anchors: BTreeMap<&String, BTreeSet<String>> = pages
        .iter()
        .map(|(page, text)| {
            let (_, text) = fences(page, text);
            let headings = text.lines().filter(|line| line.starts_with('#'));
            let names = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
            (page, names.collect())
        })
        .collect();
    let (mut dead, mut seen) = (Vec::new(), 0);
    for (page, text) in &pages {
        let (_, text) = fences(page, text);
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            if target.starts_with("https://") {
                continue;
            }
            seen += 1;
            let (path, name) = target.split_once('#').unwrap_or((target, ""));
            let folder = root().join(page).parent().unwrap().to_owned();
            let to = if path.is_empty() {
                root().join(page)
            } else {
                folder.join(path)
            };
            let Ok(to) = to.canonicalize() else {
                dead.push(format!("{page}: {target}"));
                continue;
            };
            let inside = to.strip_prefix(root().canonicalize().unwrap()).ok();
            let of = inside.and_then(|to| anchors.get(&to.to_str()?.to_owned()));
            if !name.is_empty() && of.is_none_or(|names| !names.contains(name)) {
                dead.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(seen >= 20, "{seen}");
}

// ---- commands

/// A command line as words; single quotes keep words together, `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            '#' if !quoted && word.is_empty() => break,
            ' ' if !quoted => {
                words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty()));
            }
            c => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// The arguments of `batchlab` in a line that runs it.
fn arguments(line: &str) -> Option<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    if let Some(rest) = line.strip_prefix("batchlab ") {
        return Some(words(rest));
    }
    let cargo = line.starts_with("cargo run ");
    let (_, rest) = line.split_once(" -- ").filter(|_| cargo)?;
    Some(words(rest))
}

/// The program's help, by subcommand.
struct Help(BTreeMap<String, String>);

impl Help {
    fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn of(&mut self, place: &str, command: &[&str]) -> &str {
        self.0.entry(command.join(" ")).or_insert_with(|| {
            let output = batchlab(&[command, &["--help"]].concat());
            assert!(output.status.success(), "{place}: batchlab {command:?}");
            String::from_utf8(output.stdout).unwrap()
        })
    }
}

fn has_flag(help: &str, flag: &str) -> bool {
    let of = |c: char| c.is_whitespace() || [',', '=', '[', ']', '('].contains(&c);
    help.split(of).any(|word| word == flag)
}

/// Checks one command line: its subcommand, its flags, and what it sets.
fn check_command(place: &str, arguments: &[String], help: &mut Help) {
    let command: Vec<&str> = match arguments {
        [group, which, ..] if ["config", "data"].contains(&group.as_str()) => vec![group, which],
        [command, ..] => vec![command],
        [] => panic!("{place}: no command"),
    };
    let alternatives: Vec<&str> = command.last().unwrap().split('|').collect();
    for alternative in alternatives {
        let mut command = command.clone();
        *command.last_mut().unwrap() = alternative;
        let mut text = help.of(place, &command).to_owned();
        // Each kind of probe has flags of its own.
        let kinds = ["hessian", "sharpness", "noise", "surface"];
        let kind = arguments.iter().find(|word| kinds.contains(&word.as_str()));
        if let (["probe"], Some(kind)) = (command.as_slice(), kind) {
            text += help.of(place, &["probe", "RUN", kind]);
        }
        for word in arguments.iter().filter(|word| word.starts_with('-')) {
            let flag = word.split('=').next().unwrap();
            assert!(has_flag(&text, flag), "{place}: {command:?} has no {flag}");
        }
    }
    let sets: Vec<String> = arguments
        .windows(2)
        .filter(|pair| pair[0] == "--set")
        .map(|pair| pair[1].clone())
        .collect();
    let own = |word: &&String| has_ending(word, "toml");
    if let Some(file) = arguments.iter().find(own) {
        let mut path = root().join(file);
        if file.starts_with("configs/") {
            assert!(path.exists(), "{place}: there is no {file}");
        } else {
            path = root().join("configs/quickstart.toml");
        }
        if command == ["plan"] {
            if file.starts_with("configs/") || file.starts_with("experiments/") {
                let path = root().join(file);
                config::load_plan(&path, &sets).unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            return;
        }
        config::load(&path, &sets).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
}

#[test]
fn every_command_and_flag_on_the_pages_exists() {
    let (mut help, mut seen) = (Help::new(), 0);
    for (page, text) in pages() {
        let (fences, rest) = fences(&page, &text);
        let mut lines: Vec<(String, String)> = Vec::new();
        for fence in fences {
            if ["sh", "console"].contains(&fence.language.as_str()) {
                lines.extend(
                    fence
                        .text
                        .lines()
                        .map(|l| (fence.place.clone(), l.to_owned())),
                );
            }
        }
        lines.extend(
            spans(&rest)
                .into_iter()
                .map(|span| (page.clone(), span.to_owned())),
        );
        for (place, line) in lines {
            let line = line.split(" > ").next().unwrap_or_default();
            if let Some(arguments) = arguments(line) {
                // A placeholder stands for a whole command line: `cargo run --release --`.
                if !arguments.is_empty() {
                    check_command(&format!("{place}: {line}"), &arguments, &mut help);
                    seen += 1;
                }
            }
        }
    }
    for file in fs::read_dir(root().join("configs")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix('#')) {
            if let Some(arguments) = arguments(line) {
                let place = format!("{}: {line}", path.display());
                check_command(&place, &arguments, &mut help);
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen}");
}

/// Flags that stand alone in the text, such as `--dry-run`, belong to some command.
#[test]
fn every_flag_named_in_the_text_exists() {
    let mut help = Help::new();
    let commands: [&[&str]; 14] = [
        &["run"],
        &["status"],
        &["report"],
        &["critical-batch"],
        &["probe"],
        &["noise"],
        &["collectives"],
        &["plan"],
        &["slurm"],
        &["config", "check"],
        &["config", "show"],
        &["data", "list"],
        &["data", "fetch"],
        &["data", "import"],
    ];
    let all: String = commands.map(|c| help.of("", c).to_owned()).concat();
    let user_pages = ["README.md", "CHANGELOG.md", "results/README.md"];
    for (page, text) in pages() {
        if !user_pages.contains(&page.as_str()) && !page.starts_with("docs/") {
            continue;
        }
        let (_, rest) = fences(&page, &text);
        for span in spans(&rest) {
            if let Some(flag) = span.split(' ').next().filter(|word| word.starts_with("--")) {
                assert!(has_flag(&all, flag), "{page}: no command has {flag}");
            }
        }
    }
}

#[test]
fn outputs_shown_with_their_command_are_what_it_prints() {
    let mut seen = 0;
    for fence in all_fences() {
        if fence.language != "console" {
            continue;
        }
        let (command, shown) = fence.text.split_once('\n').unwrap();
        let arguments = arguments(command).expect("a command of batchlab");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = batchlab(&arguments);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            printed.starts_with(shown),
            "{}: shown\n{shown}printed\n{printed}",
            fence.place
        );
        seen += 1;
    }
    assert!(seen >= 1);
}

// ---- output files

/// A study that makes every file there is, with a key of the sweep in more than one word.
const TINY: &str = r#"
name = "tiny"
seeds = 2
[data]
source = "digits"
validation_fraction = 0.1
subset = 200
[model.mlp]
widths = [8]
[train]
workers = 2
epochs = 2
[train.target]
value = 0.999
[learning_rate]
base_lr = 0.05
base_batch = 16
[sweep]
"learning_rate.scaling" = ["none", "linear"]
"train.global_batch" = [16, 32]
"#;

const SWEPT: [&str; 2] = ["learning_rate.scaling", "train.global_batch"];

/// The files of a study by the names of the pages, each with its text where it is text.
fn tiny_study() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tiny.toml");
    fs::write(&config, TINY).unwrap();
    let config = config.to_str().unwrap();
    let results = folder.path().to_str().unwrap();
    let output = batchlab(&["run", config, "--quiet", "--results", results]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let study = folder.path().join("tiny");
    let mut found = BTreeMap::new();
    let mut left = vec![study.clone()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let name = path.strip_prefix(&study).unwrap().to_str().unwrap();
            let name = match name.split('/').collect::<Vec<_>>()[..] {
                ["trials", _, file] => format!("trials/<id>/{file}"),
                ["figures", _] => "figures/".to_owned(),
                _ => name.to_owned(),
            };
            let bytes = fs::read(&path).unwrap();
            found.insert(name, String::from_utf8(bytes).unwrap_or_default());
        }
    }
    found
}

/// Columns of a table, or top-level keys of a JSON file.
fn names_in(file: &str, text: &str) -> Vec<String> {
    if has_ending(file, "csv") {
        let header = text.lines().next().unwrap_or_default();
        return header.split(',').map(str::to_owned).collect();
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => map.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn names_shown(cell: &str) -> Vec<String> {
    let cell = cell.replace(
        "*the swept keys*",
        &SWEPT.map(|key| format!("`{key}`")).join(", "),
    );
    spans(&cell).into_iter().map(str::to_owned).collect()
}

/// Rows of the tables of a page, as cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect()
}

#[test]
fn the_pages_name_every_file_and_column_that_a_study_writes() {
    let files = tiny_study();
    let written: BTreeSet<&str> = files.keys().map(String::as_str).collect();
    for page in ["README.md", "results/README.md"] {
        let text = read(page);
        let section = match text.split_once("\n## Output files\n") {
            Some((_, section)) => section.split("\n## ").next().unwrap(),
            None => &text,
        };
        let shown: Vec<(&str, Vec<&str>)> = rows(section)
            .into_iter()
            .filter_map(|row| Some((row[0].strip_prefix('`')?.strip_suffix('`')?, row)))
            .collect();
        let named: BTreeSet<&str> = shown.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, written, "{page}");
        for (name, row) in shown {
            if let Some(cell) = row.get(2).filter(|cell| !cell.is_empty()) {
                assert_eq!(
                    names_shown(cell),
                    names_in(name, &files[name]),
                    "{page}: {name}"
                );
            }
        }
    }
    // docs/output-files.md has a section for each file, and a row for each of its names.
    let text = read("docs/output-files.md");
    let mut named = BTreeSet::new();
    for section in text.split("\n## ").skip(1) {
        let (heading, body) = section.split_once('\n').unwrap();
        let rows = rows(body);
        for name in spans(heading) {
            assert!(written.contains(name), "docs/output-files.md: {name}");
            named.insert(name);
            if rows.is_empty() {
                continue;
            }
            let shown: Vec<String> = rows[1..]
                .iter()
                .flat_map(|row| names_shown(row[0]))
                .collect();
            assert_eq!(
                shown,
                names_in(name, &files[name]),
                "docs/output-files.md: {name}"
            );
        }
    }
    let unexplained: Vec<_> = written.difference(&named).collect();
    assert_eq!(
        unexplained,
        [&"config.toml"],
        "the study file itself needs no section"
    );
}

// ---- the house

#[test]
fn the_rooms_on_the_pages_are_those_of_the_library() {
    let library = read("src/lib.rs");
    let rooms: BTreeSet<&str> = library
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    let map: BTreeSet<&str> = library
        .lines()
        .filter_map(|line| line.strip_prefix("//! | [`")?.split('`').next())
        .collect();
    assert_eq!(map, rooms, "the crate map");
    let text = read("CONTRIBUTING.md");
    let (_, house) = text.split_once("## The house").unwrap();
    let (house, _) = house.split_once("\n## ").unwrap();
    let shown: BTreeSet<&str> = rows(house)
        .into_iter()
        .filter_map(|row| row[0].strip_prefix('`')?.strip_suffix('`'))
        .collect();
    assert_eq!(shown, rooms, "CONTRIBUTING.md");
}

// ---- the reference page

#[test]
fn the_reference_page_is_current() {
    let page = reference_page::markdown(&serde_json::from_str(&config::schema_json()).unwrap());
    let on_disk = fs::read_to_string(root().join("docs/config-reference.md")).unwrap_or_default();
    if on_disk != page {
        let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config-reference.md");
        fs::write(&fresh, page).unwrap();
        panic!(
            "docs/config-reference.md is out of date; renew it with\n    cp {} docs/config-reference.md",
            fresh.display()
        );
    }
}
