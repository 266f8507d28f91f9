//! Pure f64 mathematics: statistics today. No files, no burn, no knowledge of studies; slices and
//! closures in, numbers out.

pub mod noise;
pub mod statistics;
