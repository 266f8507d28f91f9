//! The critical batch size, measured in several ways: by steps to a target over batches, by the
//! noise scale, and by branches; and what the numbers say, in words.

mod answer;
mod csv;
mod study;
mod types;
mod words;

pub use answer::{Costs, EFFICIENCY_OVERHEAD, batch_point, case};
pub use csv::{CsvError, FromCsv, from_csv};
pub use study::{StudyReadError, critical_batch, is_critical};
pub use types::{
    BatchPoint, Branch, BranchMoment, Case, Cost, CriticalBatch, EstimateRow, Fit, Mean, Noise,
    NoisePoint, NoiseSummary, Published, RateLaw, SeedPoint, Tried, TriedEnd,
};
pub use words::{headline, words};
