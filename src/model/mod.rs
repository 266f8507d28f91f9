//! Models on burn, and the door from a burn module to an [`Objective`](crate::objective::Objective).
//!
//! One of the two rooms that may name burn. A model is a burn module that implements [`Network`];
//! [`BurnObjective`] turns it into loss and gradient of a flat parameter vector, and where the
//! network knows its derivative along a direction ([`Network::forward_dual`]) into products with
//! the Hessian.

mod burn_objective;
mod chain;
mod cnn;
mod dual;
mod example_norms;
mod kept;
mod mlp;
mod network;
mod norm;
mod registry;
mod resnet;
mod weight_norm;
pub mod weights;

pub use burn_objective::{BurnObjective, BurnScalar, ModelError};
pub use cnn::SimpleCnn;
pub use dual::Dual;
pub use mlp::{Mlp, SoftmaxRegression};
pub use network::{Forward, Network};
pub use norm::{BatchNormalization, GroupNormalization, Normalizer};
pub use registry::{AnyObjective, BuildContext, BuildError, Registry};
pub use resnet::CifarResnet;
pub use weight_norm::weight_normalized;
