//! Weights as safetensors, with PyTorch's names and layouts.
//!
//! A dense weight is [out, in] in the file, as in PyTorch, and [in, out] in the flat vector. The
//! two parts of a normalized weight are `weight_v` and `weight_g` ([out, 1] or [out, 1, 1, 1]),
//! which both of PyTorch's `weight_norm` load; those of `parametrizations.weight_norm` are read too.
//! Inference statistics of batch normalization are written as `running_mean` and `running_var`;
//! the variance is the biased population variance. The PyTorch side reads a file with
//!
//! ```python
//! from safetensors.torch import load_file
//! state = load_file("model.safetensors")
//! model.load_state_dict(state, strict=False)  # strict=False: no num_batches_tracked
//! ```

use std::collections::HashMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::AnyObjective;
use crate::objective::{LayerStatistics, Layout, Objective, Scalar};

/// Why weights could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// Not a safetensors file.
    #[error("not a valid safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    /// A parameter is missing.
    #[error("no tensor `{name}` of shape {shape:?}; the file has: {found}")]
    Missing {
        /// The parameter.
        name: String,
        /// Its shape in the file.
        shape: Vec<usize>,
        /// Names in the file.
        found: String,
    },
    /// A tensor has another shape or type.
    #[error("tensor `{name}`: expected {expected}, found {found}")]
    Mismatch {
        /// The tensor.
        name: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The file has tensors that the model lacks.
    #[error("the file has tensors that the model does not: {names}")]
    Unexpected {
        /// Their names.
        names: String,
    },
}

fn dtype<F: Scalar>() -> Dtype {
    if F::BYTES == 4 {
        Dtype::F32
    } else {
        Dtype::F64
    }
}

fn foreign_shape(shape: &[usize], transposed: bool) -> Vec<usize> {
    if transposed {
        shape.iter().rev().copied().collect()
    } else {
        shape.to_vec()
    }
}

/// [rows, columns] to [columns, rows], row-major.
fn transpose<T: Copy>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..columns)
        .flat_map(|c| (0..rows).map(move |r| values[r * columns + c]))
        .collect()
}

/// The bytes of a safetensors file with these parameters and inference statistics.
///
/// # Errors
/// If `parameters` does not fit the layout.
pub fn to_bytes<F: Scalar>(
    objective: &dyn AnyObjective,
    parameters: &[F],
    statistics: &[LayerStatistics],
) -> Result<Vec<u8>, WeightsError> {
    let layout = layout_of(objective);
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (i, parameter) in layout.parameters.iter().enumerate() {
        let values = &parameters[parameter.range.clone()];
        let transposed = objective.transposed(i);
        let data = match *parameter.shape {
            [rows, columns] if transposed => F::le_bytes(&transpose(values, rows, columns)),
            _ => F::le_bytes(values),
        };
        tensors.push((
            parameter.name.clone(),
            foreign_shape(&parameter.shape, transposed),
            data,
        ));
    }
    for layer in statistics {
        for (name, values) in [
            ("running_mean", &layer.mean),
            ("running_var", &layer.variance),
        ] {
            let values: Vec<F> = values.iter().map(|&v| F::from_f64(v)).collect();
            tensors.push((
                format!("{}.{name}", layer.name),
                vec![values.len()],
                F::le_bytes(&values),
            ));
        }
    }
    let views = tensors
        .iter()
        .map(|(name, shape, data)| Ok((name, TensorView::new(dtype::<F>(), shape.clone(), data)?)))
        .collect::<Result<Vec<_>, WeightsError>>()?;
    // One entry at most: a second would be written in the order of a hash map.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    Ok(safetensors::serialize(views, Some(metadata))?)
}

/// Parameters, and inference statistics where the file has them, from a safetensors file with
/// PyTorch's names and layouts. `num_batches_tracked` is ignored.
///
/// # Errors
/// If the file is broken, or names, shapes or types do not fit the model.
pub fn from_bytes<F: Scalar>(
    objective: &dyn AnyObjective,
    bytes: &[u8],
) -> Result<(Vec<F>, Vec<LayerStatistics>), WeightsError> {
    let layout = layout_of(objective);
    let file = SafeTensors::deserialize(bytes)?;
    let mut parameters = Vec::with_capacity(layout.len());
    let mut used = Vec::new();
    for (i, parameter) in layout.parameters.iter().enumerate() {
        let transposed = objective.transposed(i);
        let shape = foreign_shape(&parameter.shape, transposed);
        let parametrized = parametrized(&parameter.name);
        let name = match &parametrized {
            Some(name) if file.tensor(&parameter.name).is_err() => name,
            _ => &parameter.name,
        };
        let Ok(tensor) = file.tensor(name) else {
            let mut found: Vec<&str> = file.names();
            found.sort_unstable();
            return Err(WeightsError::Missing {
                name: parameter.name.clone(),
                shape,
                found: found.join(", "),
            });
        };
        let values = read::<F>(name, &tensor, &shape)?;
        used.push(name.clone());
        match *shape {
            [rows, columns] if transposed => {
                parameters.extend(transpose(&values, rows, columns));
            }
            _ => parameters.extend(values),
        }
    }
    let mut statistics = Vec::new();
    for parameter in &layout.parameters {
        let Some(layer) = parameter.name.strip_suffix(".weight") else {
            continue;
        };
        let names = [
            format!("{layer}.running_mean"),
            format!("{layer}.running_var"),
        ];
        let (Ok(mean), Ok(variance)) = (file.tensor(&names[0]), file.tensor(&names[1])) else {
            continue;
        };
        statistics.push(LayerStatistics {
            name: layer.to_owned(),
            mean: read::<f64>(&names[0], &mean, &parameter.shape)?,
            variance: read::<f64>(&names[1], &variance, &parameter.shape)?,
        });
        used.extend(names);
    }
    let mut unexpected: Vec<&str> = file
        .names()
        .into_iter()
        .filter(|n| !n.ends_with("num_batches_tracked") && !used.iter().any(|u| u == n))
        .collect();
    if !unexpected.is_empty() {
        unexpected.sort_unstable();
        return Err(WeightsError::Unexpected {
            names: unexpected.join(", "),
        });
    }
    Ok((parameters, statistics))
}

/// What `torch.nn.utils.parametrizations.weight_norm` calls the two parts of a weight.
fn parametrized(name: &str) -> Option<String> {
    let part = |suffix: &str, original: &str| {
        let layer = name.strip_suffix(suffix)?;
        Some(format!("{layer}.parametrizations.weight.{original}"))
    };
    part(".weight_g", "original0").or_else(|| part(".weight_v", "original1"))
}

fn layout_of(objective: &dyn AnyObjective) -> &Layout {
    Objective::<f32>::layout(objective)
}

fn read<F: Scalar>(
    name: &str,
    tensor: &TensorView<'_>,
    shape: &[usize],
) -> Result<Vec<F>, WeightsError> {
    let mismatch = |expected: String, found: String| WeightsError::Mismatch {
        name: name.to_owned(),
        expected,
        found,
    };
    if tensor.shape() != shape {
        return Err(mismatch(
            format!("shape {shape:?}"),
            format!("shape {:?}", tensor.shape()),
        ));
    }
    let data = tensor.data();
    match tensor.dtype() {
        Dtype::F32 => Ok(data
            .chunks_exact(4)
            .map(|c| F::from_f64(f64::from(f32::from_le_slice(c))))
            .collect()),
        Dtype::F64 => Ok(data
            .chunks_exact(8)
            .map(|c| F::from_f64(f64::from_le_slice(c)))
            .collect()),
        other => Err(mismatch(
            "type F32 or F64".to_owned(),
            format!("type {other:?}"),
        )),
    }
}
