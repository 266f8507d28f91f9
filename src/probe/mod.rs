//! Probes: what an objective looks like around the parameters it is at.
//!
//! A probe takes gradients through a closure of its caller, who spreads them over threads and
//! weights the pieces; it changes nothing and says how good its answer is. What may enter: flat
//! vectors, the objective's door, random streams. What may not: the state of training.

mod curvature;

pub use curvature::{
    CurvatureError, Hessian, HessianNoise, PowerIteration, Product, TopEigenvalue, hessian_noise,
    top_eigenvalue,
};
