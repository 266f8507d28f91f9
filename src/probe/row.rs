//! The results of probes as rows of a table, one value a row.

/// The first line of `probes.csv`.
pub const HEADER: &str = "step,epoch,when,train_loss,probe,quantity,scope,at,value,standard_error,residual,converged,products,examples,statistics\n";

/// When in a run probes were made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Updates made.
    pub step: u64,
    /// Epochs passed.
    pub epoch: f64,
    /// Why then: `start`, `schedule`, `train_loss`, `end`, or `after` the run.
    pub when: &'static str,
    /// Loss of the training split there.
    pub train_loss: Option<f64>,
}

/// One value that a probe found.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The probe: `hessian`, `gauss_newton`, `density`, `sharpness`, `adversarial`, `noise`.
    pub probe: &'static str,
    /// What was measured.
    pub quantity: &'static str,
    /// The layer, block or parameter that it is of; empty: all parameters.
    pub scope: String,
    /// Where: the rank of an eigenvalue, a radius, the abscissa of a density.
    pub at: Option<f64>,
    /// The value; `None` where it is undetermined.
    pub value: Option<f64>,
    /// Its standard error.
    pub standard_error: Option<f64>,
    /// The residual |H v - lambda v|.
    pub residual: Option<f64>,
    /// Whether the search for it converged.
    pub converged: Option<bool>,
    /// Products with the matrix that it took, or evaluations of loss and gradient for a
    /// sharpness; where several values come from the same ones, each row holds them all.
    pub products: Option<usize>,
    /// Examples that it is a mean over.
    pub examples: usize,
    /// Batch statistics under the probe: `frozen` or `batch`; empty without batch normalization.
    pub statistics: &'static str,
}

impl Row {
    /// A line of `probes.csv`.
    pub fn csv(&self, place: &Place) -> String {
        let number = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
        let Place {
            step, epoch, when, ..
        } = place;
        format!(
            "{step},{epoch},{when},{},{},{},{},{},{},{},{},{},{},{},{}\n",
            number(place.train_loss),
            self.probe,
            self.quantity,
            self.scope,
            number(self.at),
            number(self.value),
            number(self.standard_error),
            number(self.residual),
            self.converged.map_or_else(String::new, |c| c.to_string()),
            self.products.map_or_else(String::new, |n| n.to_string()),
            self.examples,
            self.statistics,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_every_column() {
        let row = Row {
            probe: "hessian",
            quantity: "eigenvalue",
            scope: String::new(),
            at: Some(1.0),
            value: Some(12.5),
            standard_error: None,
            residual: Some(1e-3),
            converged: Some(true),
            products: Some(31),
            examples: 2048,
            statistics: "",
        };
        let place = Place {
            step: 10,
            epoch: 0.5,
            when: "end",
            train_loss: None,
        };
        let line = row.csv(&place);
        assert_eq!(
            line,
            "10,0.5,end,,hessian,eigenvalue,,1,12.5,,0.001,true,31,2048,\n"
        );
        assert_eq!(line.split(',').count(), HEADER.split(',').count());
    }
}
