//! A model of one's own: a residual network of dense layers with layer normalization.
//!
//!     cargo run --release --example custom_model -- run configs/custom-model.toml
//!
//! The program made here has every command and every data set of `batchlab`, and one model more.
//! To start a program of your own, copy this file to `src/main.rs` of a new crate that depends on
//! `batchlab` and on the same version of `burn`; README, "Your own model", has the two lines.

use std::error::Error;
use std::process::ExitCode;

use batchlab::model::{BuildContext, Forward, Network, Registry};
use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// x + dense2(relu(dense1(norm(x)))): what a block adds is normalized on its way in, and the sum
/// itself is left alone.
#[derive(Module, Debug)]
struct Block {
    norm: LayerNorm,
    dense1: Linear,
    dense2: Linear,
}

impl Block {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            norm: LayerNormConfig::new(width).init(device),
            dense1: LinearConfig::new(width, width).init(device),
            dense2: LinearConfig::new(width, width).init(device),
        }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let hidden = relu(self.dense1.forward(self.norm.forward(input.clone())));
        input + self.dense2.forward(hidden)
    }
}

/// A dense layer, `blocks` residual blocks, and a dense layer to the classes. The fields' names are
/// the parameters' names in `model.safetensors`: `first.weight`, `blocks.0.norm.weight`, ...
#[derive(Module, Debug)]
struct ResidualMlp {
    first: Linear,
    blocks: Vec<Block>,
    last: Linear,
}

impl ResidualMlp {
    /// Builds the network for the data of a trial. Features and classes come from the data, the
    /// rest from `[model.custom.options]`. The values that burn gives the weights here do not
    /// matter: batchlab draws its own from the trial's seed.
    fn build(context: &BuildContext<'_>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        const OPTIONS: [&str; 2] = ["width", "blocks"];
        if let Some(unknown) = context
            .options
            .keys()
            .find(|key| !OPTIONS.contains(&key.as_str()))
        {
            return Err(
                format!("unknown option `{unknown}`; known: {}", OPTIONS.join(", ")).into(),
            );
        }
        let width = context.option_usize("width", 64)?;
        let blocks = context.option_usize("blocks", 2)?;
        if width == 0 {
            return Err("width: expected at least 1, found 0".into());
        }
        let device = &context.device;
        Ok(Self {
            first: LinearConfig::new(context.features(), width).init(device),
            blocks: (0..blocks).map(|_| Block::new(width, device)).collect(),
            last: LinearConfig::new(width, context.classes).init(device),
        })
    }
}

/// One method is enough. `losses` (cross-entropy) and `initialize` (PyTorch's distributions) have
/// defaults that a model may replace.
impl Network for ResidualMlp {
    /// From features of shape [examples, features] to outputs of shape [examples, classes].
    fn forward(&self, input: Tensor<2>, _pass: &mut Forward<'_>) -> Tensor<2> {
        let mut hidden = self.first.forward(input);
        for block in &self.blocks {
            hidden = block.forward(hidden);
        }
        self.last.forward(relu(hidden))
    }
}

fn main() -> ExitCode {
    batchlab::cli::main_with(&Registry::new().register("residual-mlp", ResidualMlp::build))
}
