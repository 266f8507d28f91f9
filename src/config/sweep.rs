//! `[sweep]`: axes of lists, ranges and zipped keys.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::canonical::{canonical_json, shorthand};
use super::error::{Checked, Fault, Problem, dotted};
use super::node::{Node, Stage, found};
use super::schema::trial_node;
use super::source::{Mark, Marks};
use super::study::{Axis, MAX_TRIALS};

/// An axis with the origin of its keys and values.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) axis: Axis,
    /// Of each key.
    pub(crate) marks: Vec<Mark>,
    /// Of each value: `values[point][key]`.
    pub(crate) value_marks: Vec<Vec<Mark>>,
}

/// One key with its values.
struct Column {
    key: String,
    mark: Mark,
    values: Vec<Value>,
    marks: Vec<Mark>,
}

/// The axes of a `[sweep]` table, in the order of the file; `path` is where it stands.
pub(crate) fn read(sweep: &Value, marks: &Marks, path: &[&str]) -> Checked<Vec<Sweep>> {
    let mut path: Vec<String> = path.iter().map(|&segment| segment.to_owned()).collect();
    let Value::Object(table) = sweep else {
        return Err(expected(&path, "a table of keys and their values", sweep));
    };
    let mut axes = Vec::new();
    let mut columns = Vec::new();
    for (key, value) in table {
        path.push(key.clone());
        if key == "zip" {
            axes.extend(read_zips(value, marks, &mut path)?);
        } else {
            read_columns(key, value, marks, &mut path, &mut columns)?;
        }
        path.pop();
    }
    axes.extend(columns.into_iter().map(|column| axis(vec![column])));
    axes.sort_by_key(|axis| axis.marks.iter().map(|mark| mark.position).min());
    Ok(axes)
}

/// The axes of one key of `[sweep]`, given by `--set`.
pub(crate) fn read_one(
    key: &str,
    value: &Value,
    marks: &Marks,
    path: &[String],
) -> Checked<Vec<Sweep>> {
    let mut columns = Vec::new();
    read_columns(key, value, marks, &mut path.to_vec(), &mut columns)?;
    Ok(columns
        .into_iter()
        .map(|column| axis(vec![column]))
        .collect())
}

fn read_zips(zips: &Value, marks: &Marks, path: &mut Vec<String>) -> Checked<Vec<Sweep>> {
    let Value::Array(zips) = zips else {
        return Err(expected(path, "a list of tables", zips)
            .hint("write `[[sweep.zip]]`, once for each group of keys that move together"));
    };
    let mut axes = Vec::new();
    for (i, zip) in zips.iter().enumerate() {
        path.push(format!("[{i}]"));
        let Value::Object(table) = zip else {
            return Err(expected(path, "a table of keys and their values", zip));
        };
        let mut columns = Vec::new();
        for (key, value) in table {
            path.push(key.clone());
            read_columns(key, value, marks, path, &mut columns)?;
            path.pop();
        }
        if let Some((first, rest)) = columns.split_first() {
            for column in rest {
                if column.values.len() != first.values.len() {
                    return Err(invalid(
                        path,
                        format!(
                            "keys of one zip move together, but `{}` has {} values and `{}` has {}",
                            first.key,
                            first.values.len(),
                            column.key,
                            column.values.len()
                        ),
                    ));
                }
            }
        } else {
            return Err(invalid(path, "there are no keys in it".to_owned()));
        }
        axes.push(axis(columns));
        path.pop();
    }
    Ok(axes)
}

/// Nested tables down to lists and ranges. `key` is the dotted key so far.
fn read_columns(
    key: &str,
    value: &Value,
    marks: &Marks,
    path: &mut Vec<String>,
    into: &mut Vec<Column>,
) -> Checked {
    let segments: Vec<String> = key.split('.').map(str::to_owned).collect();
    if let Some(hint) = match segments[0].as_str() {
        "seed" | "seeds" => Some("set `seeds` at the top of the file"),
        "name" | "description" => Some("all trials of a study share it"),
        _ => None,
    } {
        return Err(invalid(path, "this cannot be an axis".to_owned()).hint(hint));
    }
    let node = trial_node().find(&segments).map_err(|fault| Fault {
        path: path.clone(),
        ..fault
    })?;
    let column = |values: Vec<Value>, marks_of: Vec<Mark>| Column {
        key: key.to_owned(),
        mark: marks.get(path),
        values,
        marks: marks_of,
    };
    match value {
        Value::Array(values) => {
            let mut at = path.clone();
            let marks_of = (0..values.len()).map(|i| {
                at.truncate(path.len());
                at.push(format!("[{i}]"));
                marks.get(&at)
            });
            into.push(conformed(
                node,
                path,
                column(values.clone(), marks_of.collect()),
            )?);
            Ok(())
        }
        Value::Object(range) if range.contains_key("log2") || range.contains_key("log") => {
            let values = range_values(range, node, path)?;
            let marks_of = vec![marks.get(path); values.len()];
            into.push(conformed(node, path, column(values, marks_of))?);
            Ok(())
        }
        Value::Object(table) if matches!(node, Node::Table(_) | Node::Kinds(_)) => {
            if table.is_empty() {
                return Err(invalid(path, "there are no values in it".to_owned()));
            }
            for (inner, value) in table {
                path.push(inner.clone());
                read_columns(&format!("{key}.{inner}"), value, marks, path, into)?;
                path.pop();
            }
            Ok(())
        }
        other => {
            let list = format!("[{}]", super::canonical::inline(other));
            Err(expected(
                path,
                "a list of values, `{ log2 = [lo, hi] }` or `{ log = [lo, hi], points = n }`",
                other,
            )
            .hint(format!("for one value, write `{list}`")))
        }
    }
}

/// Holds each value against the schema and refuses an empty list.
fn conformed(node: &Node, path: &[String], mut column: Column) -> Checked<Column> {
    if column.values.is_empty() {
        return Err(invalid(path, "there are no values in it".to_owned()));
    }
    for (i, value) in column.values.iter_mut().enumerate() {
        let key: Vec<String> = column.key.split('.').map(str::to_owned).collect();
        node.conform(trial_node(), value, &mut key.clone(), Stage::Partial)
            .map_err(|fault| {
                // The message names the key; the place is that of the value in the sweep.
                let mut at = path.to_vec();
                at.push(format!("[{i}]"));
                at.extend(fault.path.iter().skip(key.len()).cloned());
                Fault { path: at, ..fault }
            })?;
        if let Some(word) = shorthand(node, value) {
            *value = word.into();
        }
    }
    Ok(column)
}

fn axis(columns: Vec<Column>) -> Sweep {
    let points = columns.first().map_or(0, |column| column.values.len());
    let point = |i: usize| columns.iter().map(|c| c.values[i].clone()).collect();
    let point_marks = |i: usize| columns.iter().map(|c| c.marks[i].clone()).collect();
    Sweep {
        marks: columns.iter().map(|c| c.mark.clone()).collect(),
        value_marks: (0..points).map(point_marks).collect(),
        axis: Axis {
            values: (0..points).map(point).collect(),
            keys: columns.into_iter().map(|c| c.key).collect(),
        },
    }
}

/// Refuses a key that two axes set, and equal points of one axis. The fault's path is the key.
pub(crate) fn check(axes: &[Sweep]) -> Result<(), Box<(Mark, Fault)>> {
    let mut seen: Vec<&str> = Vec::new();
    for sweep in axes {
        for (key, mark) in sweep.axis.keys.iter().zip(&sweep.marks) {
            let inside = |outer: &str, inner: &str| {
                inner
                    .strip_prefix(outer)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let other = seen
                .iter()
                .find(|other| inside(other, key) || inside(key, other));
            if let Some(other) = other {
                let fault = if other == key {
                    Fault::invalid(key, "the sweep sets it twice")
                } else {
                    Fault::invalid(
                        key,
                        format!("the sweep sets it twice: `{other}` is an axis too"),
                    )
                };
                return Err(Box::new((mark.clone(), fault.hint("keep one of the axes"))));
            }
            seen.push(key);
        }
        let mut points = BTreeSet::new();
        for (point, marks) in sweep.axis.values.iter().zip(&sweep.value_marks) {
            let text: Vec<String> = point.iter().map(canonical_json).collect();
            if !points.insert(text) {
                let mark = marks.first().or(sweep.marks.first()).cloned();
                let values: Vec<String> = point.iter().map(super::canonical::value_text).collect();
                let message = format!("the value {} stands twice in the sweep", values.join(", "));
                let fault = Fault::invalid(&sweep.axis.keys[0], message);
                if let Some(mark) = mark {
                    let fault = fault.hint("keep it once; `seeds` repeats a point");
                    return Err(Box::new((mark, fault)));
                }
            }
        }
    }
    Ok(())
}

/// The values of a range, `{ log2 = [lo, hi] }` or `{ log = [lo, hi], points = n }`.
pub(crate) fn range_values(
    range: &Map<String, Value>,
    node: &Node,
    path: &[String],
) -> Checked<Vec<Value>> {
    let at = |key: &str| {
        let mut at = path.to_vec();
        at.push(key.to_owned());
        at
    };
    let allowed: &[&str] = if range.contains_key("log2") {
        &["log2"]
    } else {
        &["log", "points"]
    };
    if let Some(key) = range.keys().find(|key| !allowed.contains(&key.as_str())) {
        return Err(Fault::new(&at(key), Problem::UnknownKey(dotted(&at(key))))
            .hint("a range is `{ log2 = [lo, hi] }` or `{ log = [lo, hi], points = n }`"));
    }
    if let Some(ends) = range.get("log2") {
        return powers_of_two(ends, &at("log2"));
    }
    let [lo, hi] = ends(&range["log"], Value::as_f64, "two numbers", &at("log"))?;
    if lo <= 0.0 || hi <= lo {
        return Err(invalid(
            &at("log"),
            format!("a range from {lo} to {hi} is not positive and rising"),
        ));
    }
    let points = match range.get("points").map(|points| (points, points.as_u64())) {
        Some((_, Some(points))) if (2..=MAX_TRIALS as u64).contains(&points) => points as usize,
        Some((points, _)) => {
            let least = format!("a whole number from 2 to {MAX_TRIALS}");
            return Err(expected(&at("points"), &least, points));
        }
        None => {
            return Err(
                invalid(path, "`log` needs the number of `points`".to_owned())
                    .hint("such as `{ log = [0.01, 1], points = 5 }`"),
            );
        }
    };
    Ok((0..points)
        .map(|i| {
            let x = match i {
                0 => lo,
                i if i == points - 1 => hi,
                i => rounded(lo * (hi / lo).powf(i as f64 / (points - 1) as f64)),
            };
            if *node == Node::Integer {
                Value::from(x.round() as u64)
            } else {
                number(x)
            }
        })
        .collect())
}

fn powers_of_two(ends_value: &Value, path: &[String]) -> Checked<Vec<Value>> {
    let [lo, hi] = ends(ends_value, Value::as_u64, "two whole numbers", path)?;
    for end in [lo, hi] {
        if !end.is_power_of_two() {
            let mut fault = invalid(path, format!("{end} is not a power of two"));
            if let Some(above) = end.checked_next_power_of_two() {
                fault = if above > 1 {
                    fault.hint(format!("write {} or {above}", above / 2))
                } else {
                    fault.hint("the smallest is 1")
                };
            }
            return Err(fault);
        }
    }
    if hi < lo {
        return Err(invalid(path, format!("a range from {lo} to {hi} falls"))
            .hint(format!("write `[{hi}, {lo}]`")));
    }
    Ok((lo.trailing_zeros()..=hi.trailing_zeros())
        .map(|power| Value::from(1_u64 << power))
        .collect())
}

fn ends<T>(
    value: &Value,
    read: impl Fn(&Value) -> Option<T>,
    what: &str,
    path: &[String],
) -> Checked<[T; 2]> {
    if let Value::Array(items) = value
        && let [lo, hi] = items.as_slice()
        && let (Some(lo), Some(hi)) = (read(lo), read(hi))
    {
        return Ok([lo, hi]);
    }
    Err(expected(
        path,
        &format!("a list of {what}, the lowest and the highest"),
        value,
    ))
}

/// To six significant digits: points inside a range read well, and hash the same on machines whose
/// `pow` differs in the last bit.
fn rounded(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

fn number(x: f64) -> Value {
    Number::from_f64(x).map_or(Value::Null, Value::Number)
}

fn expected(path: &[String], what: &str, value: &Value) -> Fault {
    Fault::new(
        path,
        Problem::Mismatch {
            key: dotted(path),
            expected: what.to_owned(),
            found: found(value),
        },
    )
}

fn invalid(path: &[String], message: String) -> Fault {
    Fault::new(
        path,
        Problem::Invalid {
            key: dotted(path),
            message,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn axes(sweep: &Value) -> Result<Vec<Axis>, String> {
        read(sweep, &Marks::default(), &["sweep"])
            .map_err(|fault| fault.problem.to_string())
            .and_then(|axes| {
                check(&axes).map_err(|place| place.1.problem.to_string())?;
                Ok(axes.into_iter().map(|sweep| sweep.axis).collect())
            })
    }

    fn values(range: &Value) -> Vec<Value> {
        let axes = axes(&json!({ "learning_rate.base_lr": range })).expect("a valid range");
        axes[0]
            .values
            .iter()
            .map(|point| point[0].clone())
            .collect()
    }

    #[test]
    fn log2_counts_in_powers_of_two() {
        let axes = axes(&json!({ "train.global_batch": { "log2": [32, 256] } })).expect("valid");
        assert_eq!(
            axes[0].values,
            [[json!(32)], [json!(64)], [json!(128)], [json!(256)]]
        );
        assert_eq!(values(&json!({ "log2": [1, 2] })), [json!(1.0), json!(2.0)]);
    }

    #[test]
    fn log_has_its_ends_exactly_and_round_points_between() {
        let range = values(&json!({ "log": [0.01, 10], "points": 4 }));
        assert_eq!(range, [json!(0.01), json!(0.1), json!(1.0), json!(10.0)]);
        let range = values(&json!({ "log": [0.1, 0.3], "points": 3 }));
        assert_eq!(range, [json!(0.1), json!(0.173_205), json!(0.3)]);
        let batches = axes(&json!({ "train.global_batch": { "log": [10, 1000], "points": 3 } }));
        assert_eq!(batches.expect("valid")[0].values[1], [json!(100)]);
    }

    #[test]
    fn quoted_and_nested_keys_are_the_same_axis() {
        let quoted = axes(&json!({ "train.global_batch": [8, 16] }));
        assert_eq!(
            quoted,
            axes(&json!({ "train": { "global_batch": [8, 16] } }))
        );
        let twice = axes(&json!({ "train.global_batch": [8], "train": { "global_batch": [16] } }));
        assert_eq!(
            twice,
            Err("`train.global_batch`: the sweep sets it twice".to_owned())
        );
    }

    #[test]
    fn an_axis_inside_another_axis_is_set_twice() {
        let inside = axes(&json!({ "optimizer": ["sgd"], "optimizer.momentum.momentum": [0.5] }));
        assert!(inside.expect_err("twice").contains("twice"));
    }

    #[test]
    fn zipped_keys_move_together() {
        let zipped = axes(&json!({ "zip": [{
            "train.global_batch": { "log2": [8, 32] },
            "train.workers": [1, 2, 4],
        }] }));
        let zipped = zipped.expect("valid");
        assert_eq!(zipped[0].keys, ["train.global_batch", "train.workers"]);
        assert_eq!(zipped[0].values[2], [json!(32), json!(4)]);
        let uneven = json!({ "zip": [{ "train.global_batch": [1, 2], "train.workers": [1] }] });
        assert!(
            axes(&uneven)
                .expect_err("uneven")
                .contains("has 2 values and `train.workers` has 1")
        );
    }

    #[test]
    fn values_are_held_against_the_schema() {
        for (sweep, expected) in [
            (
                json!({ "train.global_bach": [1] }),
                "unknown key `train.global_bach`",
            ),
            (
                json!({ "train.global_batch": ["a"] }),
                "`train.global_batch`: expected a whole number",
            ),
            (
                json!({ "train.global_batch": [] }),
                "`sweep.\"train.global_batch\"`: there are no values",
            ),
            (
                json!({ "train.global_batch": 8 }),
                "expected a list of values",
            ),
            (
                json!({ "train": {} }),
                "`sweep.train`: there are no values in it",
            ),
            (
                json!({ "train.global_batch": { "log2": [30, 64] } }),
                "30 is not a power of two",
            ),
            (
                json!({ "train.global_batch": { "log2": [64, 32] } }),
                "a range from 64 to 32 falls",
            ),
            (
                json!({ "train.global_batch": { "log2": [0, 64] } }),
                "0 is not a power of two",
            ),
            (
                json!({ "train.global_batch": { "log2": [1], "x": 1 } }),
                "unknown key",
            ),
            (
                json!({ "learning_rate.base_lr": { "log": [0, 1], "points": 3 } }),
                "not positive",
            ),
            (
                json!({ "learning_rate.base_lr": { "log": [0.1, 1] } }),
                "number of `points`",
            ),
            (
                json!({ "learning_rate.base_lr": { "log": [0.1, 1], "points": 1e9 } }),
                "from 2 to",
            ),
            (json!({ "learning_rate.base_lr": [1, 1.0] }), "stands twice"),
            (
                json!({ "optimizer": ["adam"] }),
                "expected one of the kinds",
            ),
            (json!({ "seed": [1] }), "cannot be an axis"),
            (
                json!({ "zip": { "train.workers": [1] } }),
                "expected a list of tables",
            ),
            (json!({ "zip": [{}] }), "no keys"),
            (json!(3), "`sweep`: expected a table"),
        ] {
            let error = axes(&sweep).expect_err("not valid");
            assert!(error.contains(expected), "{sweep}: {error}");
        }
    }
}
