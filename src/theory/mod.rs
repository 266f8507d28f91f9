//! The field's laws as functions: f64 in, f64 out, each with its formula, units and source.
//!
//! What may enter: numbers. What may not: files, configurations, models. Arguments outside the
//! range that a function states give what the formula gives (often NaN); nothing here panics.

pub mod collectives;
pub mod critical;
pub mod delay;
pub mod learning_rate;
pub mod noise;
pub mod noisy_quadratic;
pub mod plan;
pub mod staleness;
pub mod steps;
