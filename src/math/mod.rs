//! Pure f64 mathematics: statistics, the noise of gradients, eigenvalues and traces of matrices known
//! by their products, bounded minimization. No files, no burn, no knowledge of studies; slices and
//! closures in, numbers out.

pub mod density;
pub mod hockney_fit;
pub mod lanczos;
pub mod lbfgs_b;
pub mod line_fit;
pub mod noise;
pub mod noise_scale;
pub mod operator;
pub mod rate_fit;
pub mod statistics;
pub mod steps_fit;
pub mod trace;
pub mod tridiagonal;
