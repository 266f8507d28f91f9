//! The JSON schema of a study file, and the tree made from it.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::critical::CriticalBatchConfig;
use super::node::{Key, Node};
use super::types::TrialConfig;

/// The schema of a study file as JSON Schema 2020-12, for editors and for
/// `configs/schema.json`: `batchlab config schema > configs/schema.json` writes it anew.
pub fn schema_json() -> String {
    let mut schema = derived().clone();
    add_critical_batch(&mut schema);
    without_null(&mut schema);
    kinds_as_words(&mut schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let mut all = Map::new();
        for (name, about, mut value) in study_keys() {
            value["description"] = about.into();
            all.insert(name.to_owned(), value);
        }
        // The seed of a trial comes from `seeds`.
        all.extend(
            std::mem::take(properties)
                .into_iter()
                .filter(|(name, _)| name != "seed"),
        );
        *properties = all;
    }
    schema["title"] = "batchlab study file".into();
    schema["description"] =
        "One study: a trial for each seed at each point of the sweep. A required key may come \
         from an axis of the sweep instead."
            .into();
    schema["$defs"]["Axis"] = json!({
        "description": "Values of one key: a list, powers of two from `log2[0]` to `log2[1]`, or \
                        `points` values evenly spaced in the logarithm from `log[0]` to `log[1]`.",
        "anyOf": [
            { "type": "array", "minItems": 1 },
            {
                "type": "object",
                "properties": { "log2": {
                    "type": "array",
                    "items": { "type": "integer", "minimum": 1 },
                    "minItems": 2, "maxItems": 2
                } },
                "required": ["log2"],
                "additionalProperties": false
            },
            {
                "type": "object",
                "properties": {
                    "log": {
                        "type": "array",
                        "items": { "type": "number", "exclusiveMinimum": 0 },
                        "minItems": 2, "maxItems": 2
                    },
                    "points": { "type": "integer", "minimum": 2 }
                },
                "required": ["log", "points"],
                "additionalProperties": false
            },
            {
                "description": "A table of axes, as in `[sweep.train]`.",
                "type": "object",
                "additionalProperties": { "$ref": "#/$defs/Axis" }
            }
        ]
    });
    // `{:#}` of a Value cannot fail.
    format!("{schema:#}\n")
}

/// The keys of a study file besides those of a trial: name, description, schema.
fn study_keys() -> [(&'static str, &'static str, Value); 5] {
    [
        (
            "name",
            "Name of the study and of its folder under `results/`. Default: the file's name.",
            json!({ "type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*$", "maxLength": 100 }),
        ),
        (
            "description",
            "What is asked, for the reader of the report.",
            json!({ "type": "string" }),
        ),
        (
            "seeds",
            "Seeds of the trials: `n` stands for 0, 1, ..., n-1, or a list. Default: 1.",
            json!({ "anyOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "array", "minItems": 1, "uniqueItems": true,
                  "items": { "type": "integer", "minimum": 0 } }
            ] }),
        ),
        (
            "sweep",
            "Axes of the sweep: dotted keys, such as `\"train.global_batch\"`, with their values; \
             every combination is a point. Keys of one `[[sweep.zip]]` table move together.",
            json!({
                "type": "object",
                "properties": { "zip": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": { "$ref": "#/$defs/Axis" }
                    }
                } },
                "additionalProperties": { "$ref": "#/$defs/Axis" }
            }),
        ),
        (
            "critical_batch",
            "A study of the critical batch size, run by `batchlab critical-batch`.",
            json!({ "$ref": "#/$defs/CriticalBatchConfig" }),
        ),
    ]
}

/// What is said of `[critical_batch.search]`.
const SEARCH: &str = "Other keys to search over besides the rate, with their values, such as \
     `\"optimizer.momentum.momentum\"`: every combination gets a search of the rate of its own, and the \
     best one counts.";

/// Puts the table of a study of the critical batch size among the definitions.
fn add_critical_batch(schema: &mut Value) {
    let mut table = critical_batch().clone();
    if let Value::Object(table) = &mut table {
        for key in ["$schema", "title"] {
            table.shift_remove(key);
        }
        if let (Some(Value::Object(own)), Some(Value::Object(all))) =
            (table.shift_remove("$defs"), schema.get_mut("$defs"))
        {
            all.extend(own);
        }
    }
    let batches = table["properties"]["batches"]["description"].take();
    table["properties"]["batches"] = json!({ "$ref": "#/$defs/Axis", "description": batches });
    table["properties"]["search"] = json!({
        "description": SEARCH,
        "type": "object",
        "additionalProperties": { "$ref": "#/$defs/Axis" }
    });
    schema["$defs"]["CriticalBatchConfig"] = table;
}

fn critical_batch() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        serde_json::to_value(schemars::schema_for!(CriticalBatchConfig)).unwrap_or_default()
    })
}

/// The tree of `[critical_batch]`.
fn critical_batch_node() -> Node {
    match Node::from_json_schema(critical_batch()) {
        Node::Table(mut keys) => {
            keys.push(Key {
                name: "search".to_owned(),
                node: Node::Free,
                required: false,
                about: SEARCH.to_owned(),
            });
            Node::Table(keys)
        }
        other => other,
    }
}

/// The tree of one trial's keys, without `seed`.
pub(crate) fn trial_node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| match Node::from_json_schema(derived()) {
        Node::Table(mut keys) => {
            keys.retain(|key| key.name != "seed");
            Node::Table(keys)
        }
        other => other,
    })
}

/// The tree of a study file: the trial's keys, required or not, and the study's own.
pub(crate) fn file_node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        let own = study_keys().map(|(name, about, _)| Key {
            name: name.to_owned(),
            node: match name {
                "name" | "description" => Node::Text,
                "critical_batch" => critical_batch_node(),
                _ => Node::Free,
            },
            required: false,
            about: about.to_owned(),
        });
        match trial_node() {
            Node::Table(keys) => Node::Table(own.into_iter().chain(keys.iter().cloned()).collect()),
            other => other.clone(),
        }
    })
}

fn derived() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    // Serialized rather than taken as it is: that puts `$schema`, title and description first.
    SCHEMA.get_or_init(|| {
        serde_json::to_value(schemars::schema_for!(TrialConfig)).unwrap_or_default()
    })
}

/// TOML has no null: an optional key is left out. Also drops the formats `double` and `uint`,
/// which no validator knows.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.shift_remove("format");
            if map.get("default").is_some_and(Value::is_null) {
                map.shift_remove("default");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    map.insert("type".to_owned(), one);
                }
            }
            if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(one)] = choices.as_slice() {
                    let one = one.clone();
                    map.shift_remove("anyOf");
                    map.extend(one);
                }
            }
            map.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// A kind whose keys all have defaults may be written as a word.
fn kinds_as_words(schema: &mut Value) {
    let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) else {
        return;
    };
    for definition in definitions.values_mut() {
        let Some(variants) = definition.get_mut("oneOf").and_then(Value::as_array_mut) else {
            continue;
        };
        let kinds = variants.iter().filter_map(|v| v["properties"].as_object());
        let words: Vec<Value> = kinds
            .flatten()
            .filter(|(_, keys)| keys["required"].is_null())
            .map(|(kind, _)| Value::from(kind.as_str()))
            .collect();
        if !words.is_empty() {
            variants.push(json!({
                "description": "A kind with its defaults.",
                "type": "string",
                "enum": words
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn free_keys(node: &Node, path: &str, into: &mut Vec<String>) {
        match node {
            Node::Free => into.push(path.to_owned()),
            Node::Table(keys) => {
                for key in keys {
                    free_keys(&key.node, &format!("{path}.{}", key.name), into);
                }
            }
            Node::Kinds(kinds) => {
                for (kind, node) in kinds {
                    free_keys(node, &format!("{path}.{kind}"), into);
                }
            }
            Node::List(item, _) => free_keys(item, &format!("{path}[]"), into),
            _ => {}
        }
    }

    #[test]
    fn only_the_options_of_a_custom_model_are_unchecked() {
        let mut free = Vec::new();
        free_keys(trial_node(), "", &mut free);
        assert_eq!(free, [".model.custom.options"]);
    }

    #[test]
    fn every_key_is_described() {
        fn walk(node: &Node, path: &str) {
            if let Node::Table(keys) = node {
                for key in keys {
                    assert!(
                        !key.about.is_empty(),
                        "{path}.{} has no description",
                        key.name
                    );
                    walk(&key.node, &format!("{path}.{}", key.name));
                }
            }
        }
        walk(file_node(), "");
    }

    #[test]
    fn the_schema_has_no_null() {
        fn walk(value: &Value) {
            match value {
                Value::Null => panic!("null in the schema"),
                Value::String(text) => assert_ne!(text, "null"),
                Value::Array(items) => items.iter().for_each(walk),
                Value::Object(map) => map.values().for_each(walk),
                _ => {}
            }
        }
        walk(&serde_json::from_str(&schema_json()).expect("the schema is JSON"));
    }
}
