//! The rules of the house, held on the source text: which room may import from which, and what
//! only one room may do.
//!
//! The text is read as tokens, so comments and strings do not count. Modules under `#[cfg(test)]`
//! may import and do what they like, as tests/, benches/ and examples/ may; `unsafe` is forbidden
//! there too.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// All rooms, from the top of the house down. A room may import from those above it.
const ROOMS: [&str; 18] = [
    "math",
    "theory",
    "rng",
    "config",
    "store",
    "collective",
    "schedule",
    "data",
    "objective",
    "optim",
    "backend",
    "model",
    "probe",
    "train",
    "study",
    "analysis",
    "report",
    "cli",
];

/// The rooms behind which burn stands.
const BURN: [&str; 2] = ["backend", "model"];

/// The room that prints.
const PRINTS: &str = "cli";

/// The room that writes files.
const WRITES: &str = "store";

/// Names of `std::fs` that write, and of other crates that do it behind one's back.
const WRITERS: [&str; 14] = [
    "create_dir",
    "create_dir_all",
    "remove_dir",
    "remove_dir_all",
    "remove_file",
    "hard_link",
    "symlink",
    "soft_link",
    "set_permissions",
    "set_len",
    "OpenOptions",
    "DirBuilder",
    "serialize_to_file",
    "tempfile",
];

/// Names that write only where they are those of `std::fs`.
const FS_WRITERS: [&str; 3] = ["write", "copy", "rename"];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Mark(char),
    /// A string, a character, a number or a lifetime.
    Other,
}

#[derive(Debug, Clone)]
struct Placed {
    line: usize,
    token: Token,
}

/// A rule that is broken, with its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Breach {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

// ---- tokens

/// The text as tokens, without comments.
fn tokens(text: &str) -> Vec<Placed> {
    let text: Vec<char> = text.chars().collect();
    let at = |i: usize| text.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < text.len() {
        let start = i;
        let token = match at(i) {
            c if c.is_whitespace() => {
                i += 1;
                None
            }
            '/' if at(i + 1) == '/' => {
                while i < text.len() && at(i) != '\n' {
                    i += 1;
                }
                None
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= text.len() {
                        break;
                    }
                }
                None
            }
            '"' => {
                i = quoted(&text, i, '"');
                Some(Token::Other)
            }
            // A lifetime, or a character.
            '\'' => {
                if at(i + 1) != '\\' && at(i + 2) != '\'' {
                    i += 1;
                    while is_word(at(i)) {
                        i += 1;
                    }
                } else {
                    i = quoted(&text, i, '\'');
                }
                Some(Token::Other)
            }
            c if c.is_ascii_digit() => {
                while is_word(at(i)) || at(i) == '.' && at(i + 1).is_ascii_digit() {
                    i += 1;
                }
                Some(Token::Other)
            }
            c if is_word(c) => {
                while is_word(at(i)) {
                    i += 1;
                }
                let word: String = text[start..i].iter().collect();
                let hashes = (i..text.len()).take_while(|&k| at(k) == '#').count();
                match word.as_str() {
                    "r" | "br" | "cr" if at(i + hashes) == '"' => {
                        i = raw(&text, i, hashes);
                        Some(Token::Other)
                    }
                    "b" | "c" if at(i) == '"' || at(i) == '\'' => {
                        i = quoted(&text, i, at(i));
                        Some(Token::Other)
                    }
                    // r#name is a name.
                    "r" if hashes == 1 => {
                        i += 1;
                        None
                    }
                    _ => Some(Token::Word(word)),
                }
            }
            mark => {
                i += 1;
                Some(Token::Mark(mark))
            }
        };
        found.extend(token.map(|token| Placed { line, token }));
        line += text[start..i.min(text.len())]
            .iter()
            .filter(|&&c| c == '\n')
            .count();
    }
    found
}

/// The end of a string or character that starts at `i`.
fn quoted(text: &[char], mut i: usize, quote: char) -> usize {
    i += 1;
    while i < text.len() && text[i] != quote {
        i += 1 + usize::from(text[i] == '\\');
    }
    i + 1
}

/// The end of a raw string whose hashes start at `i`.
fn raw(text: &[char], i: usize, hashes: usize) -> usize {
    let mut end = i + hashes + 1;
    while end < text.len() {
        let closed = text[end] == '"'
            && (end + 1..=end + hashes).all(|k| text.get(k).is_some_and(|&c| c == '#'));
        if closed {
            return end + 1 + hashes;
        }
        end += 1;
    }
    end
}

/// The tokens of one file, with questions about them.
struct Text(Vec<Placed>);

impl Text {
    fn is(&self, i: usize, mark: char) -> bool {
        (self.0.get(i)).is_some_and(|placed| placed.token == Token::Mark(mark))
    }

    fn word(&self, i: usize) -> Option<&str> {
        match self.0.get(i).map(|placed| &placed.token) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Whether `::` stands here.
    fn path(&self, i: usize) -> bool {
        self.is(i, ':') && self.is(i + 1, ':')
    }

    /// The word before `::` before this place.
    fn qualifier(&self, i: usize) -> Option<&str> {
        if i >= 3 && self.path(i - 2) {
            // `use ::name` has no word there.
            self.word(i - 3).filter(|&word| word != "use")
        } else {
            None
        }
    }

    fn line(&self, i: usize) -> usize {
        self.0.get(i).map_or(0, |placed| placed.line)
    }

    /// The place after the bracket that closes the one at `i`.
    fn after_group(&self, i: usize) -> usize {
        let mut depth = 0_i32;
        for (k, placed) in self.0.iter().enumerate().skip(i) {
            match placed.token {
                Token::Mark('{' | '(' | '[') => depth += 1,
                Token::Mark('}' | ')' | ']') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return k + 1;
            }
        }
        self.0.len()
    }

    /// The words that the branches of `{a::b, c, d as e}` start with, with their places.
    fn branches(&self, open: usize) -> Vec<usize> {
        let end = self.after_group(open) - 1;
        let mut starts = Vec::new();
        let mut i = open + 1;
        while i < end {
            starts.push(i);
            while i < end && !self.is(i, ',') {
                i = if self.is(i, '{') {
                    self.after_group(i)
                } else {
                    i + 1
                };
            }
            i += 1;
        }
        starts
    }

    /// Without the items under `#[cfg(test)]`.
    fn without_tests(&self) -> Self {
        let mut kept = Vec::new();
        let mut i = 0;
        while i < self.0.len() {
            let test = self.is(i, '#')
                && self.is(i + 1, '[')
                && self.word(i + 2) == Some("cfg")
                && self.is(i + 3, '(')
                && self.word(i + 4) == Some("test")
                && self.is(i + 5, ')');
            if !test {
                kept.push(self.0[i].clone());
                i += 1;
                continue;
            }
            while self.is(i, '#') {
                i = self.after_group(i + 1);
            }
            while i < self.0.len() && !self.is(i, ';') && !self.is(i, '{') {
                i = if self.is(i, '(') {
                    self.after_group(i)
                } else {
                    i + 1
                };
            }
            i = self.after_group(i);
        }
        Self(kept)
    }
}

// ---- rules

/// The room of a file below src/, and how many modules it lies below the crate's root. `None` for
/// main.rs and lib.rs, which belong to no room.
fn room_of(file: &Path) -> Option<(String, usize)> {
    let mut names: Vec<String> = file
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    match names.as_slice() {
        [one] if one == "main" || one == "lib" => None,
        _ => Some((names[0].clone(), names.len())),
    }
}

/// Every rule that a file breaks. `file` is relative to src/.
fn breaches(file: &Path, text: &str) -> Vec<Breach> {
    let whole = Text(tokens(text));
    let mut found = Vec::new();
    let mut breach = |line: usize, what: String| {
        found.push(Breach {
            file: Path::new("src").join(file),
            line,
            what,
        });
    };
    for i in 0..whole.0.len() {
        if whole.word(i) == Some("unsafe") {
            breach(whole.line(i), "`unsafe` is used nowhere here".to_owned());
        }
    }
    let Some((room, depth)) = room_of(file) else {
        return found;
    };
    let Some(rank) = ROOMS.iter().position(|known| *known == room) else {
        breach(
            1,
            format!("`{room}` is no room; give it its place in ROOMS"),
        );
        return found;
    };
    let text = whole.without_tests();
    for (place, target) in imports(&text, depth) {
        let line = text.line(place);
        match ROOMS.iter().position(|known| *known == target) {
            None => breach(line, format!("`{target}` is no room to import from")),
            Some(other) if other > rank => breach(
                line,
                format!("`{room}` may not import from `{target}`, which is below it"),
            ),
            Some(_) => {}
        }
    }
    for i in 0..text.0.len() {
        let Some(word) = text.word(i) else { continue };
        let line = text.line(i);
        // A name of our own, such as `model::burn_objective`, is not burn.
        let crate_name = text.qualifier(i).is_none() && text.path(i + 1)
            || text.word(i + 1) == Some("as")
            || i > 0 && text.word(i - 1) == Some("crate");
        let burn = word == "burn" || word.starts_with("burn_");
        if burn && crate_name && !BURN.contains(&room.as_str()) {
            breach(line, format!("`{room}` may not name burn"));
        }
        if room != PRINTS {
            let macros = ["print", "println", "eprint", "eprintln", "dbg"];
            let streams = ["stdout", "stderr"];
            if macros.contains(&word) && text.is(i + 1, '!')
                || streams.contains(&word) && text.qualifier(i).is_some()
            {
                breach(
                    line,
                    format!("only `{PRINTS}` prints, and this is `{word}`"),
                );
            }
        }
        if room != WRITES && writes(&text, i, word) {
            breach(
                line,
                format!("only `{WRITES}` writes files, and this is `{word}`"),
            );
        }
        // The linter sees a trait's `default` and cannot forbid that of one type.
        if word == "default" && text.qualifier(i) == Some("Device") && room != "backend" {
            breach(line, "devices are named in `backend`".to_owned());
        }
    }
    found
}

/// Whether the word here is a way to write a file.
fn writes(text: &Text, i: usize, word: &str) -> bool {
    match text.qualifier(i) {
        Some("fs") => WRITERS.contains(&word) || FS_WRITERS.contains(&word),
        Some("File") => ["create", "create_new", "options"].contains(&word),
        Some("store") => false,
        _ => {
            WRITERS.contains(&word)
                || word == "fs"
                    && text.path(i + 1)
                    && text.is(i + 3, '{')
                    && text.branches(i + 3).into_iter().any(|branch| {
                        text.word(branch)
                            .is_some_and(|name| FS_WRITERS.contains(&name))
                    })
        }
    }
}

/// The rooms that paths of a file lead to, with their places. `depth`: how many modules the file
/// lies below the crate's root.
fn imports(text: &Text, depth: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // The brackets that close inline modules.
    let mut modules: Vec<usize> = Vec::new();
    for i in 0..text.0.len() {
        modules.retain(|&end| i < end);
        match text.word(i) {
            Some("mod") if text.is(i + 2, '{') => modules.push(text.after_group(i + 2)),
            // `pub(crate)` and `pub(in crate::room)` import nothing.
            Some("crate") if i > 0 && text.word(i - 1) == Some("in") => {}
            Some("crate") if text.word(i + 1) == Some("as") => {
                found.push((i, "crate as a whole".to_owned()));
            }
            Some("crate") if text.path(i + 1) => targets(text, i + 3, &mut found),
            // The first of a chain; the others come with it.
            Some("super") if text.qualifier(i) != Some("super") => {
                let (mut end, mut steps) = (i, 0);
                while text.word(end) == Some("super") && text.path(end + 1) {
                    (end, steps) = (end + 3, steps + 1);
                }
                if steps > 0 && steps == depth + modules.len() {
                    targets(text, end, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// What stands after `crate::`: a name, `*`, or a group of branches.
fn targets(text: &Text, i: usize, found: &mut Vec<(usize, String)>) {
    let starts = if text.is(i, '{') {
        text.branches(i)
    } else {
        vec![i]
    };
    for start in starts {
        let target = match text.word(start) {
            Some(word) => word.to_owned(),
            None => "*".to_owned(),
        };
        found.push((start, target));
    }
}

// ---- tests

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn rust_files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the source") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.insert(path);
        }
    }
}

#[test]
fn the_source_keeps_the_rules_of_the_house() {
    let mut files = BTreeSet::new();
    rust_files(&source(), &mut files);
    assert!(files.len() > 50, "only {} files found", files.len());
    let mut found = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a text file");
        let inside = file.strip_prefix(source()).expect("below src");
        found.extend(breaches(inside, &text).iter().map(Breach::to_string));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn the_program_is_a_door_and_no_room() {
    let text = std::fs::read_to_string(source().join("main.rs")).expect("src/main.rs");
    assert!(text.lines().count() <= 15, "main.rs only opens cli::main");
}

#[track_caller]
fn breaks(file: &str, text: &str, expected: &[(usize, &str)]) {
    let found: Vec<_> = breaches(Path::new(file), text)
        .into_iter()
        .map(|breach| (breach.line, breach.what))
        .collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((line, what), (expected_line, part)) in found.iter().zip(expected) {
        assert!(
            line == expected_line && what.contains(part),
            "{found:?} instead of {expected:?}"
        );
    }
}

#[test]
fn imports_from_below_are_found_however_they_are_written() {
    let bad = "`store` may not import from `study`";
    for text in [
        "use crate::study::Plan;",
        "pub(crate) use crate::study;",
        "use crate::{rng, study::{Plan, Trainer}};",
        "use {crate::rng, crate::study};",
        "fn f() { crate::study::plan() }",
        "use super::super::study::Plan;",
        "use super::super::{rng, study};",
        "macro_rules! m { () => { $crate::study::plan() } }",
        "fn f(x: &dyn crate::study::Trainer) {}",
        "mod inner { use super::super::super::study; }",
        "use crate::r#study::Plan;",
    ] {
        breaks("store/table.rs", text, &[(1, bad)]);
    }
    // From the room's own module file, one step up is the crate.
    breaks("store/mod.rs", "\n\nuse super::study::Plan;", &[(3, bad)]);
    breaks(
        "rng.rs",
        "use super::config;",
        &[(1, "`rng` may not import from `config`")],
    );
    breaks(
        "config/check.rs",
        "use crate::{\n    rng,\n    store::{self, read},\n    data,\n};\n",
        &[(3, "from `store`"), (4, "from `data`")],
    );
    breaks("cli/mod.rs", "use crate::*;", &[(1, "`*` is no room")]);
    breaks("cli/mod.rs", "use crate as b;", &[(1, "no room")]);
    breaks("cli/mod.rs", "use crate::Registry;", &[(1, "`Registry`")]);
    breaks("attic/mod.rs", "", &[(1, "`attic` is no room")]);
}

#[test]
fn imports_from_above_and_from_the_own_room_are_free() {
    for text in [
        "use crate::store::{self, Table};\nuse crate::{config::Split, math, rng::Stream};",
        "use super::plan::Plan;\nuse super::{tables, record::*};",
        "pub(in crate::study) fn f() {}\npub(crate) struct A(crate::rng::Stream);",
        "use crate::study::plan;\nmod inner { use super::super::plan; }",
        "/// [`report`](crate::report::write)\nfn f() { /* crate::report */ \"crate::report\"; }",
        "fn f() { r#\"use crate::report;\"#; b\"crate::cli\"; '\"'; '\\''; let a: &'static str; }",
        "fn f() {}\n#[cfg(test)]\nmod tests { use crate::report; fn g() { println!(); } }\nfn h() {}",
        "#[cfg(test)]\n#[expect(x)]\nuse crate::report;\nfn h() {}",
    ] {
        breaks("study/execute.rs", text, &[]);
    }
    breaks("lib.rs", "pub mod cli;\npub use crate::cli::main;", &[]);
    // What follows the tests of a file is looked at again.
    breaks(
        "rng.rs",
        "#[cfg(test)]\nmod tests { fn f() { \"}\"; } }\nuse crate::cli;",
        &[(3, "from `cli`")],
    );
}

#[test]
fn burn_is_named_behind_its_door_alone() {
    for text in [
        "use burn::tensor::Tensor;",
        "fn f(x: burn::tensor::Device) {}",
        "use burn as b;",
        "use ::burn::tensor;",
        "use burn_tensor::Tensor;",
        "extern crate burn;",
    ] {
        breaks("train/session.rs", text, &[(1, "may not name burn")]);
        breaks("backend.rs", text, &[]);
        breaks("model/norm.rs", text, &[]);
    }
    breaks(
        "study/trainer.rs",
        "fn f() { insert(\"burn\"); } use crate::model::burn_objective::Door;",
        &[],
    );
    breaks(
        "model/mlp.rs",
        "fn f() { g(&Device::default()) }",
        &[(1, "devices are named in `backend`")],
    );
}

#[test]
fn only_one_room_prints() {
    for text in [
        "fn f() { println!(\"x\"); }",
        "fn f() { eprint!(\"x\"); }",
        "fn f() { dbg!(1); }",
        "fn f() { std::io::stdout().lock(); }",
    ] {
        breaks("study/execute.rs", text, &[(1, "only `cli` prints")]);
        breaks("cli/study.rs", text, &[]);
    }
    breaks(
        "study/execute.rs",
        "fn f() { write!(out, \"println!\"); out.print(); }",
        &[],
    );
}

#[test]
fn only_one_room_writes_files() {
    for text in [
        "fn f() { std::fs::write(\"a\", \"b\"); }",
        "fn f() { fs::rename(\"a\", \"b\"); }",
        "use std::fs::{read, copy};",
        "use std::fs::remove_file;",
        "use std::fs::{self, OpenOptions};",
        "fn f() { File::create(\"a\"); }",
        "fn f() { std::fs::File::options(); }",
        "fn f() { safetensors::serialize_to_file(a, b, c); }",
    ] {
        breaks("report/mod.rs", text, &[(1, "only `store` writes files")]);
        breaks("store/atomic.rs", text, &[]);
    }
    breaks(
        "report/mod.rs",
        "use std::fs::{File, read};\nfn f() { store::remove_file(p); File::open(p); out.write(b); }",
        &[],
    );
}

#[test]
fn unsafe_is_used_nowhere() {
    for file in ["lib.rs", "store/mod.rs", "optim/kernels.rs"] {
        breaks(
            file,
            "// unsafe\n#[cfg(test)]\nmod tests {\n    fn f() { unsafe { g() } }\n}",
            &[(4, "`unsafe`")],
        );
    }
}
