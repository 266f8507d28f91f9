//! Tables in, typed results out. No burn, no drawing and no clock, so that a report can be made
//! again from the tables alone.

mod answer;
pub mod collectives;
pub mod collectives_measured;
pub mod collectives_text;
mod course;
pub mod critical_batch;
mod generalization_gap;
mod headline;
mod labels;
mod noise_course;
pub mod numbers;
pub mod plan;
mod probe_tables;
mod probes;
mod rules_at_batch;
mod staleness;
pub mod tables;

pub use answer::{Answer, BestPoint, Comparison, RuleAnswer, Verdict};
pub use course::{Course, CourseBuilder, Held, PointCourses};
pub use generalization_gap::{
    Curve, CurvePoint, GapAnalysis, HeadlineMetric, Measure, Outcomes, Point, Rule, Setting, Trial,
    generalization_gap,
};
pub use headline::{Headline, HeadlineCell};
pub use noise_course::{LayerNoise, NoiseCourse, NoiseWindow};
pub use probe_tables::read_probes;
pub use probes::{
    Density, LineCurve, LossLine, LossPlane, Measured, Moment, Probe, ProbeAnalysis, ProbeCourse,
    ProbeCoursePoint, ProbeData, ProbeKey, ProbeRow, ProbeValue, ProbedPoint, Quotient, When,
    probes_of_run,
};
pub use rules_at_batch::{RuleRow, RulesAtBatch};
pub use staleness::{
    Clock, ClockStaleness, MeansOfReplicas, PointStaleness, StalenessAnalysis, TimeCurve,
    TimePoint, geometric,
};
pub use tables::AnalysisError;

pub(crate) use answer::outcome_words;
pub(crate) use course::{extent, varies};
pub(crate) use generalization_gap::{rule_title, split_name};
pub(crate) use labels::value_label;
#[cfg(test)]
pub(crate) use staleness::tests::study as late_study;
