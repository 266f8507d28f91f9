//! Probes of a session: they read its parameters and change nothing.

use std::sync::atomic::AtomicBool;

use super::TrainError;
use super::session::Session;
use crate::objective::{LayerStatistics, Scalar};
use crate::probe::{self, Probed, Row, Subject, SubjectOptions};

impl<F: Scalar> Session<'_, '_, F> {
    /// Makes the probes of the config at the parameters that evaluations use, with these inference
    /// statistics.
    ///
    /// # Errors
    /// If the session has no objective in f64 ([`Session::with_curvature`]), the model fails, or
    /// `stop` is set.
    pub fn probe(
        &self,
        statistics: &[LayerStatistics],
        stop: &AtomicBool,
    ) -> Result<Vec<Row>, TrainError> {
        let objective = self.curvature.ok_or(TrainError::NoCurvature)?;
        let options = SubjectOptions::new(
            self.config,
            self.data,
            objective.layout(),
            statistics.to_vec(),
            self.statistics_group(),
        );
        let mut subject = Subject::new(objective, self.data, self.pool, options)?.with_stop(stop);
        let parameters: Vec<f64> = self
            .evaluated_parameters()
            .iter()
            .map(|p| p.to_f64())
            .collect();
        let metric = self.metric(self.step_count());
        let probed = Probed {
            parameters: &parameters,
            metric: metric.map(|metric| metric.iter().map(|m| m.to_f64()).collect()),
        };
        let rows = probe::run(&mut subject, &self.config.probes, &probed, &mut |_| {})?;
        Ok(rows)
    }
}
