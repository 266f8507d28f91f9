//! How many workers are worth it: a plan file answered, and the answer in words.
//!
//! The formulas are those of [`theory::plan`](crate::theory::plan), with collectives in their exact
//! closed forms. Here numbers are gathered with where they come from, and the answer gets what the
//! law and the device leave open: every time has an interval with the steps (and the device's
//! times) at the ends of theirs, and the numbers of workers are found again at those ends.
//!
//! The efficiency of p workers against the fewest that can do it is the share of what they cost that
//! one would have needed: T(1)/(p T(p)). It is the product of two: the statistical one, examples to the
//! target at the batch of one worker over those at theirs, and that of the machine, their examples a
//! second and worker over those of one.

mod answer;
mod words;

pub use answer::{
    Checked, DeviceSample, Fact, Measured, ModelNumbers, PlanAnswer, PlanInputs, Row, Spread,
    answer, device_line,
};
pub use words::{TextTable, amount, check_table, duration, layout, printed, table, words};
