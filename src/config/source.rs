//! TOML text and `--set` arguments as values, with the origin of every key.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Checked, ConfigError, Fault, Origin, Problem, dotted};

/// Why a file has no text to read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The system refused, or the file is too large.
    Read(io::Error),
    /// Its bytes are no text.
    Text(ConfigError),
}

/// The text of a file of at most so many bytes.
pub(crate) fn load(path: &Path, most: u64) -> Result<String, Unread> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|handle| handle.take(most + 1).read_to_end(&mut bytes))
        .map_err(Unread::Read)?;
    if bytes.len() as u64 > most {
        let message = format!("larger than {} MiB", most >> 20);
        return Err(Unread::Read(io::Error::other(message)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.split(|&byte| byte == b'\n').count();
        let problem = Problem::Syntax("the text is not UTF-8".to_owned());
        let file = path.display().to_string();
        Unread::Text(ConfigError::new(&file, Some(Origin::Line(line)), problem))
    })
}

/// Where a key was written, and its place in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) origin: Origin,
    pub(crate) position: usize,
}

/// Marks of keys and list elements (segment `[i]`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(BTreeMap<Vec<String>, Mark>);

impl Marks {
    pub(crate) fn insert(&mut self, path: &[String], mark: Mark) {
        self.0.insert(path.to_vec(), mark);
    }

    /// The mark of the key or of the nearest table around it; the first line if there is none.
    pub(crate) fn get(&self, path: &[String]) -> Mark {
        (1..=path.len())
            .rev()
            .find_map(|n| self.0.get(&path[..n]))
            .cloned()
            .unwrap_or(Mark {
                origin: Origin::Line(1),
                position: 0,
            })
    }

    /// Forgets a key and all below it.
    pub(crate) fn remove(&mut self, path: &[String]) {
        self.0.retain(|key, _| !key.starts_with(path));
    }

    /// Takes over the marks below `from`, as marks below `to`.
    pub(crate) fn graft(&mut self, other: &Marks, from: &[String], to: &[String]) {
        for (key, mark) in &other.0 {
            if let Some(rest) = key.strip_prefix(from) {
                let mut path = to.to_vec();
                path.extend_from_slice(rest);
                self.0.insert(path, mark.clone());
            }
        }
    }
}

/// A study file as values.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) root: Map<String, Value>,
    pub(crate) marks: Marks,
}

/// Reads TOML text. Errors carry line and column.
pub(crate) fn read(text: &str, file: &str) -> Result<Source, ConfigError> {
    let lines = Lines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let (line, column) = lines.position(error.span().map_or(0, |span| span.start));
        let message = error.message().trim().replace('\n', "; ");
        ConfigError::new(file, Some(Origin::Line(line)), Problem::Syntax(message)).at_column(column)
    })?;
    let mut reader = Reader {
        marks: Marks::default(),
        mark: &|span| Mark {
            origin: Origin::Line(lines.line(span.start)),
            position: span.start,
        },
    };
    match reader.table(table.get_ref(), &mut Vec::new()) {
        Ok(root) => Ok(Source {
            root,
            marks: reader.marks,
        }),
        Err(fault) => {
            let origin = reader.marks.get(&fault.path).origin;
            Err(ConfigError::from_fault(file, origin, fault))
        }
    }
}

/// A `--set key=value` argument.
#[derive(Debug)]
pub(crate) struct Override {
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
    pub(crate) marks: Marks,
    pub(crate) mark: Mark,
}

/// Reads the `number`-th `--set` argument. The value is TOML; a bare word stands for itself in
/// quotes, since a shell takes quotes away.
pub(crate) fn read_override(
    text: &str,
    number: usize,
    file: &str,
) -> Result<Override, ConfigError> {
    let mark = Mark {
        origin: Origin::Set(text.to_owned()),
        // After everything in the file.
        position: usize::MAX / 2 + number,
    };
    let refuse = |message: String| {
        ConfigError::new(file, Some(mark.origin.clone()), Problem::Override(message))
            .with_hint("write it as `--set train.epochs=10`: a dotted key, `=`, a value of TOML")
    };
    let Some((key, value)) = text.split_once('=') else {
        return Err(refuse("there is no `=` in it".to_owned()));
    };
    let path = key_path(key).ok_or_else(|| refuse(format!("`{key}` is not a dotted key")))?;
    let line = format!("value = {value}");
    let parsed = DeTable::parse(&line).ok();
    let one = parsed
        .as_ref()
        .map(Spanned::get_ref)
        .filter(|table| table.len() == 1)
        .and_then(|table| table.get("value"));
    let mut reader = Reader {
        marks: Marks::default(),
        mark: &|_| mark.clone(),
    };
    let mut at = path.clone();
    let value = match one {
        Some(parsed) => reader
            .value(parsed, &mut at)
            .map_err(|fault| ConfigError::from_fault(file, mark.origin.clone(), fault))?,
        None if is_bare(value.trim()) => Value::from(value.trim()),
        None => return Err(refuse(format!("`{value}` is not a value of TOML"))),
    };
    let mut marks = reader.marks;
    marks.insert(&path, mark.clone());
    Ok(Override {
        path,
        value,
        marks,
        mark,
    })
}

fn is_bare(word: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '~');
    !word.is_empty() && word.chars().all(fits)
}

fn key_path(key: &str) -> Option<Vec<String>> {
    let line = format!("{key} = 0");
    let table = DeTable::parse(&line).ok()?;
    let mut path = Vec::new();
    let mut table = table.get_ref();
    loop {
        let mut entries = table.iter();
        let (Some((key, value)), None) = (entries.next(), entries.next()) else {
            return None;
        };
        path.push(key.get_ref().clone().into_owned());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            DeValue::Integer(_) => return Some(path),
            _ => return None,
        }
    }
}

/// Deeper than any key of the schema; `options` of a custom model may nest.
const MAX_DEPTH: usize = 32;

struct Reader<'a> {
    marks: Marks,
    mark: &'a dyn Fn(Range<usize>) -> Mark,
}

impl Reader<'_> {
    fn table(
        &mut self,
        table: &DeTable<'_>,
        path: &mut Vec<String>,
    ) -> Checked<Map<String, Value>> {
        // A map of toml is sorted by key; the order of writing is that of the spans.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut map = Map::new();
        for (key, value) in entries {
            path.push(key.get_ref().clone().into_owned());
            let mark = (self.mark)(key.span());
            self.marks.insert(path, mark);
            let value = self.value(value, path)?;
            map.insert(path.pop().unwrap_or_default(), value);
        }
        Ok(map)
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &mut Vec<String>) -> Checked<Value> {
        let refuse = |message: String| {
            let key = dotted(path);
            Fault::new(path, Problem::Invalid { key, message })
        };
        if path.len() > MAX_DEPTH {
            return Err(refuse(format!("nested more than {MAX_DEPTH} deep")));
        }
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::String(text.clone().into_owned()),
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                let parsed = i128::from_str_radix(&digits, number.radix());
                let whole = parsed.ok().and_then(Number::from_i128);
                Value::Number(whole.ok_or_else(|| refuse(format!("{digits} is too large")))?)
            }
            DeValue::Float(number) => {
                let digits = number.as_str().replace('_', "");
                let parsed = digits.parse().ok().and_then(Number::from_f64);
                Value::Number(
                    parsed.ok_or_else(|| refuse(format!("{digits} is not a finite number")))?,
                )
            }
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(_) => {
                return Err(refuse("no key takes a date".to_owned())
                    .hint("put it in quotes if text is meant"));
            }
            DeValue::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    path.push(format!("[{i}]"));
                    let mark = (self.mark)(item.span());
                    self.marks.insert(path, mark);
                    list.push(self.value(item, path)?);
                    path.pop();
                }
                Value::Array(list)
            }
            DeValue::Table(table) => Value::Object(self.table(table, path)?),
        })
    }
}

/// Byte offsets as lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Lines {
            text,
            starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// Line, from 1.
    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset)
    }

    /// Line and column (in characters), both from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line(offset);
        let start = self.starts[line.saturating_sub(1)];
        let before = self.text.get(start..offset.min(self.text.len()));
        (line, before.map_or(1, |text| text.chars().count() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> Vec<String> {
        key.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn every_key_has_its_line() {
        let source = read("a = 1\n[b]\nc = [\n 1,\n 2,\n]\nd.e = 2\n", "f").expect("valid");
        for (key, line) in [("a", 1), ("b", 2), ("b.c", 3), ("b.c.[1]", 5), ("b.d.e", 7)] {
            assert_eq!(
                source.marks.get(&path(key)).origin,
                Origin::Line(line),
                "{key}"
            );
        }
        assert_eq!(source.marks.get(&path("b.zzz")).origin, Origin::Line(2));
        assert_eq!(source.marks.get(&path("zzz")).origin, Origin::Line(1));
    }

    #[test]
    fn bad_toml_is_reported_at_line_and_column() {
        let error = read("a = 1\nb = = 2\n", "f.toml")
            .expect_err("not TOML")
            .to_string();
        assert!(error.starts_with("f.toml:2:5: not valid TOML: "), "{error}");
        let error = read("a = 1\n\na = 2\n", "f.toml")
            .expect_err("twice")
            .to_string();
        assert!(
            error.starts_with("f.toml:3:1: not valid TOML: duplicate key"),
            "{error}"
        );
    }

    #[test]
    fn numbers_that_json_cannot_hold_are_refused() {
        for text in ["nan", "-inf", "1e999", "99999999999999999999999"] {
            let error = read(&format!("\na.b = {text}"), "f").expect_err(text);
            assert_eq!(
                (error.line(), error.key()),
                (Some(2), Some("a.b")),
                "{error}"
            );
        }
        let source = read("a = 1_000\nb = 0xff\nc = 18446744073709551615", "f").expect("valid");
        assert_eq!(source.root["a"], 1000);
        assert_eq!(source.root["b"], 255);
        assert_eq!(source.root["c"], u64::MAX);
    }

    #[test]
    fn an_override_is_a_dotted_key_and_a_value() {
        let read = |text| read_override(text, 0, "f");
        let fine = read("a.\"b.c\"=[1, 2]").expect("valid");
        assert_eq!(fine.path, ["a", "b.c"]);
        assert_eq!(fine.value, serde_json::json!([1, 2]));
        assert_eq!(read("optimizer=adamw").expect("bare word").value, "adamw");
        assert_eq!(read("a=data/x.csv").expect("bare path").value, "data/x.csv");
        assert_eq!(read("a=\"x y\"").expect("quoted").value, "x y");
        for bad in [
            "a",
            "=1",
            "a=",
            "a..b=1",
            "a=[1",
            "a=1\nb=2",
            "a b=1",
            "a={x=1}\n[q]",
        ] {
            let error = read(bad).expect_err(bad);
            assert_eq!(error.set(), Some(bad));
        }
    }
}
