//! Short labels for the values of swept keys.

use std::collections::BTreeSet;

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

/// Labels of at most this many characters are left whole.
const SHORT: usize = 30;

/// A label for each rule, given its keys and values, and what the labels leave out.
///
/// Where one of them would be longer than a column of the terminal, all leave out the values that
/// more than half of the rules have, except of the key with the most different values. Only
/// zipped keys have such values: in a grid every value is as frequent as the others of its key.
pub(crate) fn rule_labels(rules: &[&[(String, Value)]]) -> (Vec<String>, Vec<String>) {
    let parts: Vec<Vec<String>> = rules
        .iter()
        .map(|values| values.iter().map(|(k, v)| value_label(k, v)).collect())
        .collect();
    let whole: Vec<String> = parts.iter().map(|p| p.join(", ")).collect();
    if whole.iter().all(|l| l.chars().count() <= SHORT) {
        return (whole, Vec::new());
    }
    let keys = rules.first().map_or(0, |values| values.len());
    let texts = |key: usize| parts.iter().filter_map(move |p| p.get(key));
    let different = |key: usize| texts(key).collect::<BTreeSet<_>>().len();
    // Of equals `max_by_key` takes the last, here the first key.
    let kept = (0..keys).rev().max_by_key(|&k| different(k));
    let usual: Vec<Option<&String>> = (0..keys)
        .map(|key| {
            let half = parts.len() / 2;
            texts(key)
                .find(|text| texts(key).filter(|t| t == text).count() > half)
                .filter(|_| kept != Some(key))
        })
        .collect();
    let short: Vec<String> = parts
        .iter()
        .map(|p| {
            let named = p
                .iter()
                .zip(&usual)
                .filter(|(t, usual)| **usual != Some(*t));
            named
                .map(|(t, _)| t.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        })
        .collect();
    if short.iter().collect::<BTreeSet<_>>().len() < short.len() {
        return (whole, Vec::new());
    }
    (short, usual.into_iter().flatten().cloned().collect())
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

    fn labels(keys: &[&str], rules: &[&[Value]]) -> (Vec<String>, Vec<String>) {
        let rules: Vec<Vec<(String, Value)>> = rules
            .iter()
            .map(|values| {
                let keys = keys.iter().map(|k| (*k).to_owned());
                keys.zip(values.iter().cloned()).collect()
            })
            .collect();
        rule_labels(&rules.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn long_labels_leave_out_what_most_rules_share() {
        let keys = ["batch.controller", "optimizer", "learning_rate.base_lr"];
        let (named, usual) = labels(
            &keys,
            &[
                &[json!("constant"), json!("momentum"), json!(0.025)],
                &[json!("absa"), json!("momentum"), json!(0.025)],
                &[json!("cabs"), json!("momentum"), json!(0.025)],
                &[json!("constant"), json!("sgd"), json!(0.25)],
                &[json!("norm-test"), json!("momentum"), json!(0.025)],
            ],
        );
        assert_eq!(
            named,
            [
                "controller constant",
                "controller absa",
                "controller cabs",
                "controller constant, sgd, base_lr 0.25",
                "controller norm-test",
            ]
        );
        assert_eq!(usual, ["momentum", "base_lr 0.025"]);
    }

    #[test]
    fn labels_of_a_grid_and_short_labels_stay_whole() {
        let keys = ["batch.controller", "learning_rate.decay"];
        let mut grid: Vec<Vec<Value>> = Vec::new();
        for controller in ["inner-product-test", "simple-noise-scale"] {
            for decay in ["constant", "cosine", "linear"] {
                grid.push(vec![json!(controller), json!(decay)]);
            }
        }
        let (named, usual) = labels(&keys, &grid.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(named[1], "controller inner-product-test, decay cosine");
        assert!(usual.is_empty());
        let few: [&[Value]; 3] = [
            &[json!("absa"), json!("cosine")],
            &[json!("cabs"), json!("cosine")],
            &[json!("cabs"), json!("linear")],
        ];
        let (named, usual) = labels(&keys, &few);
        assert_eq!(named[0], "controller absa, decay cosine");
        assert!(usual.is_empty());
    }
}
