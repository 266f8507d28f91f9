//! The schema as a tree, and the walk that holds a value against it.
//!
//! The tree is made from the JSON schema that the types derive, so there is one schema. A walk of
//! our own gives what serde's errors cannot: the whole key, its line, and the nearest known key.

use serde_json::{Map, Number, Value};

use super::error::{Checked, Fault, Problem, dotted};
use super::nearest;
use super::suggest::name_elsewhere;

/// What may stand at a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// A finite number.
    Number,
    /// A whole number, not negative.
    Integer,
    /// `true` or `false`.
    Bool,
    /// Text.
    Text,
    /// One of some words.
    Word(Vec<String>),
    /// A list, of exactly so many where a number is given.
    List(Box<Node>, Option<usize>),
    /// A table with these keys.
    Table(Vec<Key>),
    /// A table with exactly one key, which names the kind: an externally tagged enum. A kind may
    /// also be written as a word.
    Kinds(Vec<(String, Node)>),
    /// A kind without keys of its own that stands as its word.
    Bare,
    /// Anything: checked by whoever receives it.
    Free,
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) node: Node,
    pub(crate) required: bool,
    pub(crate) about: String,
}

/// Whether keys may still be missing: an axis of the sweep or `--set` may bring them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Partial,
    Complete,
}

impl Node {
    /// The tree of a JSON schema as `schemars` derives it.
    pub(crate) fn from_json_schema(schema: &Value) -> Node {
        node_of(schema, &schema["$defs"])
    }

    pub(crate) fn child(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Table(keys) => keys.iter().find(|k| k.name == key).map(|k| &k.node),
            Node::Kinds(kinds) => kinds.iter().find(|(kind, _)| kind == key).map(|(_, n)| n),
            Node::Free => Some(&Node::Free),
            _ => None,
        }
    }

    /// The node at a key, or a fault that names the nearest key.
    pub(crate) fn find(&self, path: &[String]) -> Checked<&Node> {
        let mut node = self;
        for (i, segment) in path.iter().enumerate() {
            node = match node.child(segment) {
                Some(child) => child,
                None => return Err(self.unknown(node, &path[..i], segment)),
            };
        }
        Ok(node)
    }

    /// Holds `value`, which stands at `path`, against this node. Rewrites what may be written in
    /// two ways into one: a kind given as a word into a table, a whole number where any number may
    /// stand into a float.
    pub(crate) fn conform(
        &self,
        root: &Node,
        value: &mut Value,
        path: &mut Vec<String>,
        stage: Stage,
    ) -> Checked {
        match (self, &mut *value) {
            (Node::Free, _) | (Node::Bool, Value::Bool(_)) | (Node::Text, Value::String(_)) => {
                Ok(())
            }
            (Node::Number, Value::Number(number)) => {
                if let Some(float) = number.as_f64().and_then(Number::from_f64) {
                    *number = float;
                }
                Ok(())
            }
            (Node::Integer, Value::Number(number)) if number.is_u64() => Ok(()),
            (Node::Word(words), Value::String(word)) if words.contains(word) => Ok(()),
            (Node::List(item, exactly), Value::Array(values))
                if exactly.is_none_or(|n| n == values.len()) =>
            {
                for (i, value) in values.iter_mut().enumerate() {
                    path.push(format!("[{i}]"));
                    item.conform(root, value, path, stage)?;
                    path.pop();
                }
                Ok(())
            }
            (Node::Table(keys), Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    let Some(child) = self.child(key) else {
                        return Err(root.unknown(self, path, key));
                    };
                    path.push(key.clone());
                    child.conform(root, value, path, stage)?;
                    path.pop();
                }
                match keys
                    .iter()
                    .find(|k| k.required && !map.contains_key(&k.name))
                {
                    Some(key) if stage == Stage::Complete => Err(missing(key, path)),
                    _ => Ok(()),
                }
            }
            (Node::Kinds(_), Value::String(kind)) if self.child(kind) == Some(&Node::Bare) => {
                Ok(())
            }
            (Node::Kinds(_), Value::String(kind)) if self.child(kind).is_some() => {
                let mut table = Map::new();
                table.insert(std::mem::take(kind), Value::Object(Map::new()));
                *value = Value::Object(table);
                self.conform(root, value, path, stage)
            }
            (Node::Kinds(_), Value::Object(map)) if map.is_empty() && stage == Stage::Partial => {
                Ok(())
            }
            (Node::Kinds(_), Value::Object(map))
                if map.len() == 1
                    && map.iter().all(|(kind, keys)| {
                        self.child(kind) == Some(&Node::Bare)
                            && keys.as_object().is_some_and(Map::is_empty)
                    }) =>
            {
                let word = map.keys().next().cloned().unwrap_or_default();
                *value = Value::String(word);
                Ok(())
            }
            (Node::Kinds(_), Value::Object(map)) if !map.is_empty() => {
                for (kind, keys) in map.iter_mut() {
                    let Some(child) = self.child(kind) else {
                        return Err(root.unknown(self, path, kind));
                    };
                    path.push(kind.clone());
                    child.conform(root, keys, path, stage)?;
                    path.pop();
                }
                if map.len() > 1 {
                    return Err(two_kinds(map, path));
                }
                Ok(())
            }
            (_, value) => Err(self.mismatch(value, path)),
        }
    }

    fn mismatch(&self, value: &Value, path: &[String]) -> Fault {
        let fault = Fault::new(
            path,
            Problem::Mismatch {
                key: dotted(path),
                expected: self.expected(),
                found: found(value),
            },
        );
        let Some(last) = path.last() else {
            return fault;
        };
        match (self, value) {
            (Node::Word(words), Value::String(word)) => {
                did_you_mean(fault, nearest(word, words.iter().map(String::as_str)))
            }
            (Node::Kinds(kinds), Value::String(word)) => did_you_mean(
                fault,
                nearest(word, kinds.iter().map(|(kind, _)| kind.as_str())),
            ),
            (Node::Integer, Value::Number(number)) => match number.as_f64() {
                Some(x) if x >= 0.0 && x.fract() == 0.0 && x < 1e15 => {
                    fault.hint(format!("write `{last} = {x:.0}`"))
                }
                _ => fault,
            },
            (Node::List(item, None), value) => {
                let mut one = value.clone();
                match item.conform(self, &mut one, &mut path.to_vec(), Stage::Partial) {
                    Ok(()) => fault.hint(format!(
                        "write `{last} = [{}]`",
                        super::canonical::inline(value)
                    )),
                    Err(_) => fault,
                }
            }
            (Node::Table(keys), _) if path.len() > 1 && !value.is_object() => {
                match keys.iter().find(|k| k.name == *last) {
                    Some(key) => fault.hint(format!(
                        "`{last}` is a table here: write `{}.{} = {}`",
                        dotted(path),
                        key.name,
                        super::canonical::inline(value)
                    )),
                    None => fault,
                }
            }
            _ => fault,
        }
    }

    /// What may stand here, in words.
    pub(crate) fn expected(&self) -> String {
        match self {
            Node::Number => "a number".to_owned(),
            Node::Integer => "a whole number, not negative".to_owned(),
            Node::Bool => "true or false".to_owned(),
            Node::Text => "text in quotes".to_owned(),
            Node::Word(words) => one_of(words.iter().map(String::as_str)),
            Node::List(item, None) => format!("a list, each of it {}", item.expected()),
            Node::List(item, Some(n)) => format!("a list of {n}, each of it {}", item.expected()),
            Node::Table(_) => "a table".to_owned(),
            Node::Kinds(kinds) => {
                format!(
                    "one of the kinds {}",
                    list(kinds.iter().map(|(kind, _)| kind.as_str()))
                )
            }
            Node::Bare => "a kind without keys".to_owned(),
            Node::Free => "anything".to_owned(),
        }
    }

    /// The fault of a key that `node`, at `path` below this root, does not have.
    fn unknown(&self, node: &Node, path: &[String], key: &str) -> Fault {
        let mut full = path.to_vec();
        full.push(key.to_owned());
        let fault = Fault::new(&full, Problem::UnknownKey(dotted(&full)));
        let place = if path.is_empty() {
            "at the top of the file".to_owned()
        } else {
            format!("in `{}`", dotted(path))
        };
        match node {
            Node::Table(keys) => {
                if let Some(name) = name_elsewhere(key) {
                    return fault.hint(name);
                }
                let near = nearest(key, keys.iter().map(|k| k.name.as_str()));
                if near.is_none()
                    && let Some(home) = self.home_of(key, &mut Vec::new())
                {
                    return fault.hint(format!("`{key}` belongs in `[{home}]`"));
                }
                if near.is_some() {
                    return did_you_mean(fault, near);
                }
                if keys.is_empty() {
                    return fault.hint(format!("there are no keys {place}"));
                }
                let known = list(keys.iter().map(|k| k.name.as_str()));
                fault.hint(format!("the keys {place} are {known}"))
            }
            Node::Kinds(kinds) => {
                if let Some((kind, _)) = kinds.iter().find(|(_, n)| n.child(key).is_some()) {
                    return fault.hint(format!(
                        "`{key}` goes inside a kind, such as `[{}.{kind}]`",
                        dotted(path)
                    ));
                }
                let near = nearest(key, kinds.iter().map(|(kind, _)| kind.as_str()));
                if near.is_some() {
                    return did_you_mean(fault, near);
                }
                let known = list(kinds.iter().map(|(kind, _)| kind.as_str()));
                fault.hint(format!("the kinds {place} are {known}"))
            }
            _ => fault.hint(format!(
                "`{}` is no table: it is {}",
                dotted(path),
                node.expected()
            )),
        }
    }

    /// The first table that has this key.
    fn home_of(&self, key: &str, path: &mut Vec<String>) -> Option<String> {
        let Node::Table(keys) = self else {
            return None;
        };
        if !path.is_empty() && keys.iter().any(|k| k.name == key) {
            return Some(dotted(path));
        }
        keys.iter().find_map(|k| {
            path.push(k.name.clone());
            let home = k.node.home_of(key, path);
            path.pop();
            home
        })
    }
}

fn missing(key: &Key, path: &[String]) -> Fault {
    let mut full = path.to_vec();
    full.push(key.name.clone());
    let about = key.about.split("\n\n").next().unwrap_or_default();
    Fault::new(
        &full,
        Problem::MissingKey {
            key: dotted(&full),
            about: about.replace('\n', " ").trim_end_matches('.').to_owned(),
        },
    )
}

fn two_kinds(map: &Map<String, Value>, path: &[String]) -> Fault {
    let kinds = list(map.keys().map(String::as_str));
    Fault::new(
        path,
        Problem::Invalid {
            key: dotted(path),
            message: format!("one kind at a time, but {kinds} are given"),
        },
    )
    .hint(format!("keep one of {kinds}"))
}

fn did_you_mean(fault: Fault, near: Option<&str>) -> Fault {
    match near {
        Some(word) => fault.hint(format!("did you mean `{word}`?")),
        None => fault,
    }
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("one of {}", list(words))
}

/// What stands in a file, in words.
pub(crate) fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let short: String = text.chars().take(40).collect();
            let cut = if short.len() < text.len() { "..." } else { "" };
            format!("the text {}{cut}", super::canonical::inline(&short.into()))
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "a table".to_owned(),
    }
}

fn node_of(schema: &Value, definitions: &Value) -> Node {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.trim_start_matches("#/$defs/");
        return node_of(&definitions[name], definitions);
    }
    // An optional value is "this or null"; a TOML file leaves it out instead.
    if let Some(choices) = schema["anyOf"].as_array() {
        let mut others = choices.iter().filter(|choice| choice["type"] != "null");
        return others
            .next()
            .map_or(Node::Free, |s| node_of(s, definitions));
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        let words: Option<Vec<String>> = variants
            .iter()
            .map(|variant| variant["const"].as_str().map(str::to_owned))
            .collect();
        return words.map_or_else(
            || {
                let kinds = variants.iter().flat_map(|variant| {
                    let word = variant["const"]
                        .as_str()
                        .map(|w| (w.to_owned(), Node::Bare));
                    let table = variant["properties"].as_object().into_iter().flatten();
                    let tables =
                        table.map(|(kind, schema)| (kind.clone(), node_of(schema, definitions)));
                    word.into_iter().chain(tables)
                });
                Node::Kinds(kinds.collect())
            },
            Node::Word,
        );
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null"),
        kind => Some(kind),
    };
    match kind.and_then(Value::as_str) {
        Some("number") => Node::Number,
        Some("integer") => Node::Integer,
        Some("boolean") => Node::Bool,
        Some("string") => Node::Text,
        Some("array") => {
            let exactly = schema["minItems"].as_u64().map(|n| n as usize);
            Node::List(Box::new(node_of(&schema["items"], definitions)), exactly)
        }
        Some("object") if schema["additionalProperties"] == Value::Bool(false) => {
            let required = schema["required"].as_array();
            let keys = schema["properties"].as_object().into_iter().flatten();
            Node::Table(
                keys.map(|(name, schema)| Key {
                    name: name.clone(),
                    node: node_of(schema, definitions),
                    required: required.is_some_and(|names| names.iter().any(|n| n == name)),
                    about: schema["description"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                })
                .collect(),
            )
        }
        _ => Node::Free,
    }
}
