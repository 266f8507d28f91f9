//! Short labels for the values of swept keys.

use serde_json::Value;

/// Keys whose text values name themselves: "linear" rather than "scaling linear".
const SELF_NAMED: [&str; 6] = [
    "scaling",
    "optimizer",
    "model",
    "source",
    "activation",
    "precision",
];

/// Last parts of a key that say little without the part before them.
const NEEDS_PARENT: [&str; 9] = [
    "epochs",
    "steps",
    "examples",
    "shape",
    "factor",
    "value",
    "metric",
    "power",
    "final_fraction",
];

/// The name of a key in labels: its last part, with the one before where the last says little.
pub(crate) fn key_name(key: &str) -> String {
    let parts: Vec<&str> = key.split('.').collect();
    match parts.as_slice() {
        [.., parent, last] if NEEDS_PARENT.contains(last) => format!("{parent} {last}"),
        [.., last] => (*last).to_owned(),
        [] => String::new(),
    }
}

/// The label of one swept value, short but clear beside the labels of other keys.
pub(crate) fn value_label(key: &str, value: &Value) -> String {
    let name = key_name(key);
    match value {
        Value::Null | Value::Bool(false) => format!("no {name}"),
        Value::Bool(true) => name,
        Value::String(text) if text == "none" => format!("no {name}"),
        Value::String(text) if SELF_NAMED.contains(&name.as_str()) => text.clone(),
        Value::Object(fields) => match fields.iter().next() {
            // `{ adamw = { .. } }`: an externally tagged variant names itself.
            Some((tag, Value::Object(inner))) if fields.len() == 1 => {
                let prefix = if SELF_NAMED.contains(&name.as_str()) {
                    tag.clone()
                } else {
                    format!("{name} {tag}")
                };
                join(&prefix, inner)
            }
            _ => join(&name, fields),
        },
        other => format!("{name} {}", plain(other)),
    }
}

fn join(prefix: &str, fields: &serde_json::Map<String, Value>) -> String {
    let mut words = vec![prefix.to_owned()];
    for (field, value) in fields {
        words.push(match value {
            Value::String(text) => text.clone(),
            // "momentum 0.9" rather than "momentum momentum 0.9".
            other if prefix.ends_with(field.as_str()) => plain(other),
            number if matches!(field.as_str(), "epochs" | "steps" | "examples") => {
                format!("{} {field}", plain(number))
            }
            other => format!("{field} {}", plain(other)),
        });
    }
    words.join(" ")
}

/// A value as a reader would write it in TOML, without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(plain).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(k, v)| format!("{k} = {}", plain(v)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        // 30.0 reads better as 30.
        Value::Number(number) => match number.as_f64() {
            Some(x) if x.fract() == 0.0 && x.abs() < 1e15 => format!("{x:.0}"),
            _ => number.to_string(),
        },
        Value::Bool(truth) => truth.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_are_short_and_say_what_they_are() {
        let cases = [
            ("learning_rate.scaling", json!("linear"), "linear"),
            ("learning_rate.scaling", json!("none"), "no scaling"),
            ("learning_rate.decay", json!("linear"), "decay linear"),
            (
                "learning_rate.warmup",
                json!({"epochs": 5}),
                "warmup 5 epochs",
            ),
            (
                "learning_rate.warmup",
                json!({"shape": "constant", "steps": 9}),
                "warmup constant 9 steps",
            ),
            ("learning_rate.warmup", Value::Null, "no warmup"),
            ("learning_rate.warmup.epochs", json!(5), "warmup epochs 5"),
            (
                "optimizer",
                json!({"adamw": {"weight_decay": 0.1}}),
                "adamw weight_decay 0.1",
            ),
            ("optimizer", json!({"sgd": {}}), "sgd"),
            (
                "optimizer",
                json!({"momentum": {"momentum": 0.9}}),
                "momentum 0.9",
            ),
            (
                "model",
                json!({"mlp": {"widths": [64, 32]}}),
                "mlp widths [64, 32]",
            ),
            ("optimizer.momentum.momentum", json!(0.9), "momentum 0.9"),
        ];
        for (key, value, label) in cases {
            assert_eq!(value_label(key, &value), label);
        }
    }
}
