//! The layout of a flat parameter vector: which range is which parameter, and what it is for.

use std::ops::Range;

pub use crate::config::Role;

/// One parameter tensor inside the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name, as PyTorch would call it: `layers.0.weight`.
    pub name: String,
    /// Shape of the tensor as it lies in the flat vector, row-major.
    pub shape: Vec<usize>,
    /// What the parameter is for.
    pub role: Role,
    /// Where it lies in the flat vector.
    pub range: Range<usize>,
}

/// The layout of a flat parameter vector: its parameters in order, without gaps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// The parameters, in the order in which they lie in the vector.
    pub parameters: Vec<Parameter>,
}

impl Parameter {
    /// The layer it belongs to: its name without the last part, `layers.0` of `layers.0.weight`. A
    /// name of one part is a layer of its own.
    pub fn layer(&self) -> &str {
        let parts = self.name.rsplit_once('.');
        parts.map_or(&self.name, |(layer, _)| layer)
    }
}

impl Layout {
    /// Appends a parameter behind the last one.
    pub fn push(&mut self, name: impl Into<String>, shape: &[usize], role: Role) {
        let start = self.len();
        self.parameters.push(Parameter {
            name: name.into(),
            shape: shape.to_vec(),
            role,
            range: start..start + shape.iter().product::<usize>(),
        });
    }

    /// Length of the flat vector.
    pub fn len(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.range.end)
    }

    /// Whether there are no parameters at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
