//! Values as text: canonical JSON for the run id, TOML for a resolved trial, short text for
//! messages and tables.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::node::Node;

/// JSON without white space and with keys sorted; numbers as `serde_json` writes them (floats as
/// the shortest decimal that reads back).
pub(crate) fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            let fields: Vec<String> = keys
                .into_iter()
                .map(|key| {
                    format!(
                        "{}:{}",
                        Value::from(key.as_str()),
                        canonical_json(&map[key])
                    )
                })
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical_json).collect();
            format!("[{}]", items.join(","))
        }
        scalar => scalar.to_string(),
    }
}

/// A value of a sweep's point as short text for messages and tables: words without quotes, whole
/// numbers without a fraction, a table as in TOML: `linear`, `0.1`, `[64, 64]`,
/// `{ adamw = { beta1 = 0.9 } }`.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(x) if number.is_f64() && x.fract() == 0.0 && x.abs() < 1e15 => format!("{x:.0}"),
            _ => number.to_string(),
        },
        other => inline(other),
    }
}

/// A key as TOML writes it: bare where it can be.
pub(crate) fn toml_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        toml_string(key)
    }
}

/// A basic string of TOML, on one line.
fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A value on one line of TOML. TOML has no null; it is written as an empty string.
pub(crate) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => toml_string(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{} = {}", toml_key(key), inline(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

/// A kind without keys of its own as its name: `{ "sgd": {} }` as `"sgd"`.
pub(crate) fn shorthand<'a>(node: &Node, value: &'a Value) -> Option<&'a str> {
    let (Node::Kinds(_), Value::Object(map)) = (node, value) else {
        return None;
    };
    let mut entries = map.iter();
    match (entries.next(), entries.next()) {
        (Some((kind, Value::Object(keys))), None) if keys.is_empty() => Some(kind),
        _ => None,
    }
}

/// A table as TOML text: keys first, then `[tables]`; kinds without keys as words; free tables on
/// one line.
pub(crate) fn toml_table(node: &Node, map: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_table(&mut text, node, &mut Vec::new(), map);
    text
}

fn write_table(text: &mut String, node: &Node, path: &mut Vec<String>, map: &Map<String, Value>) {
    let mut tables = Vec::new();
    for (key, value) in map {
        let child = node.child(key).unwrap_or(&Node::Free);
        match value {
            Value::Null => {}
            Value::Object(inner) if matches!(child, Node::Table(_) | Node::Kinds(_)) => {
                if let Some(kind) = shorthand(child, value) {
                    line(text, key, &Value::from(kind));
                } else {
                    tables.push((key, child, inner));
                }
            }
            other => line(text, key, other),
        }
    }
    for (key, child, inner) in tables {
        path.push(toml_key(key));
        // A kind is a table that holds nothing but the table of its keys: one header for both.
        if matches!(child, Node::Table(_)) {
            let _ = write!(text, "\n[{}]\n", path.join("."));
        }
        write_table(text, child, path, inner);
        path.pop();
    }
}

fn line(text: &mut String, key: &str, value: &Value) {
    let _ = writeln!(text, "{} = {}", toml_key(key), inline(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_json_sorts_keys_and_keeps_every_bit_of_a_float() {
        let value = json!({ "b": [1, 0.1], "a": { "d": 0.1 + 0.2, "c": "x\"" }, "e": 1.0 });
        assert_eq!(
            canonical_json(&value),
            r#"{"a":{"c":"x\"","d":0.30000000000000004},"b":[1,0.1],"e":1.0}"#
        );
    }

    #[test]
    fn values_read_as_in_the_file() {
        for (value, text) in [
            (json!("linear"), "linear"),
            (json!(2.0), "2"),
            (json!(64), "64"),
            (json!(1e-8), "1e-8"),
            (json!([64, 64]), "[64, 64]"),
            (
                json!({ "adamw": { "beta1": 0.9 } }),
                "{ adamw = { beta1 = 0.9 } }",
            ),
        ] {
            assert_eq!(value_text(&value), text);
        }
    }

    #[test]
    fn any_text_survives_toml() {
        let text = "a \"b\" \\ \n\r\t\u{0}\u{7f}\u{85} é 語";
        let line = format!("{} = {}", toml_key(text), toml_string(text));
        let table: toml::Table = line.parse().expect("valid TOML");
        assert_eq!(table.get(text).and_then(toml::Value::as_str), Some(text));
    }
}
