//! docs/config-reference.md, made from the schema of study files.

use std::fmt::Write as _;

use serde_json::{Map, Value};

const HEAD: &str = "\
# Configuration reference

Every key of a study file. The page is made from the schema (`batchlab config schema`), and a test keeps it current.

A key without a default may be left out unless it is *required*; a required key may come from an axis of the sweep. What is one
of several kinds, such as the model, is a table named for its kind (`[model.mlp]`), or a word (`model = \"mlp\"`) where no key
of the kind is required.
";

/// A table of the file, or a value that is one of several kinds.
struct Section<'a> {
    /// Dotted keys that lead to it; empty for the file itself.
    path: String,
    schema: &'a Value,
}

/// The page.
pub(crate) fn markdown(schema: &Value) -> String {
    let mut page = HEAD.to_owned();
    let mut left = vec![Section {
        path: String::new(),
        schema,
    }];
    while !left.is_empty() {
        let Section { path, schema: of } = left.remove(0);
        let below = if path.is_empty() {
            page.push_str("\n## A study file\n\n");
            table(&mut page, of, &schema["$defs"], "")
        } else {
            // Where a description begins with the name of its table, the heading has said it.
            let about = prose(&of["description"]);
            let about = about.strip_prefix(&format!("`[{path}]`")).unwrap_or(&about);
            let about = about.trim_start_matches([':', ' ']);
            let _ = write!(page, "\n## `[{path}]`\n");
            if !about.is_empty() {
                let _ = write!(page, "\n{about}\n");
            }
            let kinds = kinds(of);
            if kinds.is_empty() {
                page.push('\n');
                table(&mut page, of, &schema["$defs"], &format!("{path}."))
            } else {
                let mut below = Vec::new();
                for (kind, about, of) in kinds {
                    let _ = write!(page, "\n### `[{path}.{kind}]`\n\n{}\n", prose(about));
                    if of["properties"].is_object() {
                        page.push('\n');
                        let prefix = format!("{path}.{kind}.");
                        below.extend(table(&mut page, of, &schema["$defs"], &prefix));
                    }
                }
                below
            }
        };
        left.splice(0..0, below);
        if path.is_empty() {
            let about = prose(&schema["$defs"]["Axis"]["description"]);
            let _ = write!(page, "\n## `[sweep]`\n\n{about}\n");
        }
    }
    page.push_str("\n## Roles\n\nWhat a parameter is for.\n\n");
    for (word, about) in words(&schema["$defs"]["Role"]) {
        let _ = writeln!(page, "- `\"{word}\"`: {}", prose(about));
    }
    page
}

/// The kinds of an externally tagged enum: name, description, table.
fn kinds(schema: &Value) -> Vec<(&str, &Value, &Value)> {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    variants
        .filter_map(|variant| {
            let (kind, table) = variant["properties"].as_object()?.iter().next()?;
            Some((kind.as_str(), &variant["description"], table))
        })
        .collect()
}

/// The words of a plain enum, each with its description.
fn words(schema: &Value) -> Vec<(&str, &Value)> {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    variants
        .filter_map(|variant| Some((variant["const"].as_str()?, &variant["description"])))
        .collect()
}

/// Writes the keys of a table; returns those that are tables of their own.
fn table<'a>(
    page: &mut String,
    schema: &'a Value,
    definitions: &'a Value,
    prefix: &str,
) -> Vec<Section<'a>> {
    page.push_str("| key | value | default | |\n|---|---|---|---|\n");
    let (mut below, mut explained) = (Vec::new(), String::new());
    let required: Vec<&str> = list(&schema["required"])
        .filter_map(Value::as_str)
        .collect();
    for (key, own) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{key}");
        let target = referred(own, definitions);
        let has_keys = target["properties"].is_object() && key != "sweep";
        let value = if !kinds(target).is_empty() || has_keys {
            let value = format!("[table](#{})", super::anchor(&path));
            below.push(Section {
                path: path.clone(),
                schema: target,
            });
            value
        } else {
            kind_of(target, definitions)
        };
        for (word, about) in words(target) {
            let _ = writeln!(explained, "- `{key} = \"{word}\"`: {}", prose(about));
        }
        let default = match &own["default"] {
            Value::Null if required.contains(&key.as_str()) => "*required*".to_owned(),
            Value::Null => String::new(),
            Value::Object(map) if map.is_empty() => String::new(),
            default => format!("`{}`", toml_text(default)),
        };
        let about = prose(&own["description"]);
        let _ = writeln!(page, "| `{path}` | {value} | {default} | {about} |");
    }
    if !explained.is_empty() {
        let _ = write!(page, "\n{explained}");
    }
    below
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The schema itself, or the one it refers to.
fn referred<'a>(schema: &'a Value, definitions: &'a Value) -> &'a Value {
    match schema["$ref"]
        .as_str()
        .and_then(|name| name.rsplit('/').next())
    {
        Some(name) => &definitions[name],
        None => schema,
    }
}

/// What may stand at a key, in words.
fn kind_of(schema: &Value, definitions: &Value) -> String {
    if *schema == definitions["Axis"] {
        return "list or range".to_owned();
    }
    if !words(schema).is_empty() {
        let words = words(schema);
        let words: Vec<String> = words
            .iter()
            .map(|(word, _)| format!("`\"{word}\"`"))
            .collect();
        return words.join(", ");
    }
    let either: Vec<String> = list(&schema["anyOf"])
        .map(|of| kind_of(of, definitions))
        .collect();
    if !either.is_empty() {
        return either.join(" or ");
    }
    match schema["type"].as_str() {
        Some("integer") => "whole number".to_owned(),
        Some("number") => "number".to_owned(),
        Some("string") => "text".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("object") => "table".to_owned(),
        Some("array") if schema["items"]["$ref"] == "#/$defs/Role" => {
            "list of [roles](#roles)".to_owned()
        }
        Some("array") => {
            let of = kind_of(referred(&schema["items"], definitions), definitions);
            let count = schema["maxItems"]
                .as_u64()
                .filter(|n| Some(*n) == schema["minItems"].as_u64());
            match count {
                Some(n) => format!("list of {n}: {of}"),
                None => format!("list of: {of}"),
            }
        }
        other => panic!("a type without words: {other:?} in {schema}"),
    }
}

/// A description as one line of a table; what looks like a tag or a column is not one.
fn prose(text: &Value) -> String {
    let text = text.as_str().unwrap_or_default().replace('\n', " ");
    text.replace('|', "\\|")
}

fn toml_text(value: &Value) -> String {
    let inner = |map: &Map<String, Value>| {
        let pairs: Vec<String> = map
            .iter()
            .map(|(k, v)| format!("{k} = {}", toml_text(v)))
            .collect();
        format!("{{ {} }}", pairs.join(", "))
    };
    match value {
        Value::Object(map) => match map.iter().next() {
            // A kind with all its defaults is its name.
            Some((kind, Value::Object(of))) if of.is_empty() => format!("\"{kind}\""),
            _ => inner(map),
        },
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(toml_text).collect();
            format!("[{}]", values.join(", "))
        }
        other => other.to_string(),
    }
}
