//! A dense layer whose features are spread over ranks.
//!
//! y = x W' + b: x is batch x inputs, W outputs x inputs, y batch x outputs, all row by row. p ranks hold
//! [`Blocks`] of one side's features, so the widths differ by one at most, and ranks beyond the
//! features hold none. g is the gradient of the loss by y.
//!
//! | split | a rank holds | forward | backward |
//! |---|---|---|---|
//! | outputs | rows of W, their part of b | its columns of y; all-gather of y | its rows of g'x, its part of the column sums of g, and g W over its outputs; all-reduce of that |
//! | inputs | columns of W, all of b | x W' over its inputs; all-reduce of that; + b | its columns of g'x, all column sums of g, and its columns of g W; all-gather of these |
//!
//! The gathers are there only where the side that is split is to be [`Held::Whole`] on all ranks. With
//! [`Held::Part`] each rank keeps its columns, and two layers make a pair: outputs split, each unit
//! through its activation, inputs split. Such a pair sums once each way, y forward and the gradient of
//! x backward, and gathers nothing (Shoeybi et al. 2019, arXiv 1909.08053, section 3).
//!
//! # Layout of the gather
//!
//! In y, row by row, the columns of a rank are not in one piece. So they travel feature by feature: a
//! feature is one element of the collective, batch numbers wide, and the blocks are those of
//! the features. Nothing is padded and no feature is cut; each rank transposes y once.
//!
//! # Order of additions
//!
//! [`DenseShape::forward`] and [`DenseShape::backward`] are the unsplit layer: each number is one sum,
//! in the order of the index summed over, and the bias comes last. Split by outputs, y and the
//! gradients of W and b have the same bits as theirs, for any ranks and any gather; the gradient of x
//! is a sum of as many sums as there are ranks, in the order of the all-reduce. Split by inputs, all
//! gradients have the same bits and y is such a sum. All ranks agree on every bit of what they all hold.
//!
//! # Cost
//!
//! A gather is the collective of as many elements as features of 8 batch bytes each; a sum that of batch
//! x features elements of 8 bytes. Messages, bytes and time are [`Case`]'s, exact.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::OnceLock;

use super::execute::Transport;
use super::plan::Schedule;
use super::simulate::Load;
use super::split::{
    LayoutError, Pass, SplitError, carry_out, case, check, product, sent, transposed, wide_schedule,
};
use crate::theory::collectives::{Algorithm, Blocks, Case, Model, Operation};

/// Sizes of a dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseShape {
    /// Examples.
    pub batch: usize,
    /// Features of x.
    pub inputs: usize,
    /// Features of y.
    pub outputs: usize,
}

/// Gradients of the loss, as the tensors they belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseGradients {
    /// By x.
    pub input: Vec<f64>,
    /// By W.
    pub weight: Vec<f64>,
    /// By b.
    pub bias: Vec<f64>,
}

impl DenseShape {
    /// y of the layer that is not split.
    ///
    /// # Errors
    /// A tensor of another length.
    pub fn forward(
        &self,
        input: &[f64],
        weight: &[f64],
        bias: &[f64],
    ) -> Result<Vec<f64>, SplitError<Infallible>> {
        let tensors = [
            ("the input", input, self.batch.saturating_mul(self.inputs)),
            (
                "the weight",
                weight,
                self.inputs.saturating_mul(self.outputs),
            ),
            ("the bias", bias, self.outputs),
        ];
        check(0, 1, &tensors)?;
        let mut output = self.products(input, weight);
        self.add_bias(&mut output, bias);
        Ok(output)
    }

    /// The gradients of the layer that is not split; `output_gradient` is g.
    ///
    /// # Errors
    /// A tensor of another length.
    pub fn backward(
        &self,
        input: &[f64],
        weight: &[f64],
        output_gradient: &[f64],
    ) -> Result<DenseGradients, SplitError<Infallible>> {
        let outputs = self.batch.saturating_mul(self.outputs);
        let tensors = [
            ("the input", input, self.batch.saturating_mul(self.inputs)),
            (
                "the weight",
                weight,
                self.inputs.saturating_mul(self.outputs),
            ),
            ("the gradient of the output", output_gradient, outputs),
        ];
        check(0, 1, &tensors)?;
        Ok(self.gradients(input, weight, output_gradient))
    }

    /// x W'.
    fn products(&self, input: &[f64], weight: &[f64]) -> Vec<f64> {
        let mut output = vec![0.0; self.batch * self.outputs];
        for example in 0..self.batch {
            let x = &input[example * self.inputs..][..self.inputs];
            for unit in 0..self.outputs {
                let w = &weight[unit * self.inputs..][..self.inputs];
                let products = x.iter().zip(w).map(|(x, w)| x * w);
                output[example * self.outputs + unit] = products.fold(0.0, |sum, p| sum + p);
            }
        }
        output
    }

    fn add_bias(&self, output: &mut [f64], bias: &[f64]) {
        for (i, y) in output.iter_mut().enumerate() {
            *y += bias[i % self.outputs];
        }
    }

    fn gradients(&self, input: &[f64], weight: &[f64], output_gradient: &[f64]) -> DenseGradients {
        let mut gradients = DenseGradients {
            input: vec![0.0; input.len()],
            weight: vec![0.0; weight.len()],
            bias: vec![0.0; self.outputs],
        };
        for example in 0..self.batch {
            let row = example * self.inputs..(example + 1) * self.inputs;
            for unit in 0..self.outputs {
                let g = output_gradient[example * self.outputs + unit];
                gradients.bias[unit] += g;
                let of_unit = unit * self.inputs..(unit + 1) * self.inputs;
                scaled(
                    &mut gradients.weight[of_unit.clone()],
                    g,
                    &input[row.clone()],
                );
                scaled(&mut gradients.input[row.clone()], g, &weight[of_unit]);
            }
        }
        gradients
    }
}

/// `sum += factor * data`.
fn scaled(sum: &mut [f64], factor: f64, data: &[f64]) {
    for (s, d) in sum.iter_mut().zip(data) {
        *s += factor * d;
    }
}

/// The columns `own` of a matrix of `columns` columns.
fn cut(matrix: &[f64], columns: usize, own: &Range<usize>) -> Vec<f64> {
    let rows = matrix.chunks_exact(columns.max(1));
    rows.flat_map(|row| &row[own.clone()]).copied().collect()
}

/// Which features are spread over the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DenseSplit {
    /// Those of y: rows of W.
    Outputs,
    /// Those of x: columns of W.
    Inputs,
}

/// What each rank has of the side that is split, and of its gradient. The other side is whole on all
/// ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// All of it: y is gathered forward, or the gradient of x backward.
    Whole,
    /// Its own columns: nothing is gathered.
    Part,
}

/// How the collectives of a layer are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseAlgorithms {
    /// The all-gather.
    pub gather: Algorithm,
    /// The all-reduce.
    pub sum: Algorithm,
}

/// One collective, and its schedule once it is asked for.
#[derive(Debug, Clone)]
struct Exchange {
    case: Case,
    schedule: OnceLock<Option<Schedule>>,
}

impl Exchange {
    fn new(case: Case) -> Self {
        Self {
            case,
            schedule: OnceLock::new(),
        }
    }

    fn schedule(&self) -> Option<&Schedule> {
        self.schedule
            .get_or_init(|| wide_schedule(&self.case))
            .as_ref()
    }

    fn carry_out<T: Transport>(
        &self,
        rank: usize,
        vector: &mut [f64],
        transport: &mut T,
    ) -> Result<(), SplitError<T::Error>> {
        match self.schedule() {
            Some(schedule) => carry_out(schedule, rank, vector, transport),
            None => Ok(()),
        }
    }
}

/// A dense layer spread over ranks. To make one is cheap for any number of ranks; schedules are made when
/// they are first needed.
///
/// ```
/// use batchlab::collective::{
///     Algorithm, DenseAlgorithms, DenseShape, DenseSplit, Held, Pass, SplitDense,
/// };
///
/// let shape = DenseShape { batch: 10, inputs: 6, outputs: 8 };
/// let ring = DenseAlgorithms { gather: Algorithm::Ring, sum: Algorithm::Ring };
/// let layer = SplitDense::new(shape, 4, DenseSplit::Outputs, Held::Whole, ring)?;
/// // Forward p(p-1) messages and (p-1) 8 batch outputs bytes,
/// // backward twice the messages and 2(p-1) 8 batch inputs bytes.
/// let (forward, backward) = (layer.traffic(Pass::Forward), layer.traffic(Pass::Backward));
/// assert_eq!((forward.messages, forward.bytes), (12, 3 * 8 * 10 * 8));
/// assert_eq!((backward.messages, backward.bytes), (24, 2 * 3 * 8 * 10 * 6));
/// # Ok::<(), batchlab::collective::LayoutError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SplitDense {
    shape: DenseShape,
    ranks: usize,
    split: DenseSplit,
    held: Held,
    gather: Option<Exchange>,
    sum: Exchange,
}

impl SplitDense {
    /// The layer on `ranks` ranks.
    ///
    /// # Errors
    /// No ranks, tensors too large to count, or an algorithm that cannot do its part (that of the gather
    /// does not count with [`Held::Part`]).
    pub fn new(
        shape: DenseShape,
        ranks: usize,
        split: DenseSplit,
        held: Held,
        algorithms: DenseAlgorithms,
    ) -> Result<Self, LayoutError> {
        if ranks == 0 {
            return Err(LayoutError::NoRanks);
        }
        let DenseShape {
            batch,
            inputs,
            outputs,
        } = shape;
        product("the input", &[batch, inputs])?;
        product("the weight", &[inputs, outputs])?;
        product("the output", &[batch, outputs])?;
        let (spread, other) = match split {
            DenseSplit::Outputs => (outputs, inputs),
            DenseSplit::Inputs => (inputs, outputs),
        };
        let gather = match held {
            Held::Whole => {
                let operation = Operation::AllGather;
                let gather = case(operation, algorithms.gather, ranks, spread, batch)?;
                Some(Exchange::new(gather))
            }
            Held::Part => None,
        };
        let operation = Operation::AllReduce;
        let sum = case(operation, algorithms.sum, ranks, batch * other, 1)?;
        Ok(Self {
            shape,
            ranks,
            split,
            held,
            gather,
            sum: Exchange::new(sum),
        })
    }

    /// Sizes of the whole layer.
    pub fn shape(&self) -> DenseShape {
        self.shape
    }

    /// Ranks of the layer.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The features of a rank, of the side that is split.
    pub fn features(&self, rank: usize) -> Range<usize> {
        Blocks::new(self.spread(), self.ranks).range(rank)
    }

    fn spread(&self) -> usize {
        match self.split {
            DenseSplit::Outputs => self.shape.outputs,
            DenseSplit::Inputs => self.shape.inputs,
        }
    }

    /// The layer as one rank computes it.
    fn local(&self, rank: usize) -> DenseShape {
        let own = self.features(rank).len();
        match self.split {
            DenseSplit::Outputs => DenseShape {
                outputs: own,
                ..self.shape
            },
            DenseSplit::Inputs => DenseShape {
                inputs: own,
                ..self.shape
            },
        }
    }

    /// A rank's part of x, y or one of their gradients, of the side that is split.
    ///
    /// # Errors
    /// A tensor of another length, or no such rank.
    pub fn feature_part(
        &self,
        rank: usize,
        whole: &[f64],
    ) -> Result<Vec<f64>, SplitError<Infallible>> {
        let size = self.shape.batch * self.spread();
        check(rank, self.ranks, &[("all features", whole, size)])?;
        Ok(cut(whole, self.spread(), &self.features(rank)))
    }

    /// A rank's part of W or its gradient.
    ///
    /// # Errors
    /// A tensor of another length, or no such rank.
    pub fn weight_part(
        &self,
        rank: usize,
        whole: &[f64],
    ) -> Result<Vec<f64>, SplitError<Infallible>> {
        let inputs = self.shape.inputs;
        let size = inputs * self.shape.outputs;
        check(rank, self.ranks, &[("the whole weight", whole, size)])?;
        let own = self.features(rank);
        Ok(match self.split {
            DenseSplit::Outputs => whole[own.start * inputs..own.end * inputs].to_vec(),
            DenseSplit::Inputs => cut(whole, inputs, &own),
        })
    }

    /// A rank's part of b or its gradient: all of it where inputs are split.
    ///
    /// # Errors
    /// A tensor of another length, or no such rank.
    pub fn bias_part(
        &self,
        rank: usize,
        whole: &[f64],
    ) -> Result<Vec<f64>, SplitError<Infallible>> {
        let size = self.shape.outputs;
        check(rank, self.ranks, &[("the whole bias", whole, size)])?;
        Ok(match self.split {
            DenseSplit::Outputs => whole[self.features(rank)].to_vec(),
            DenseSplit::Inputs => whole.to_vec(),
        })
    }

    /// y, of a rank's parts of x, W and b. All ranks must call it.
    ///
    /// # Errors
    /// No such rank, a tensor of another length, or the transport's own.
    pub fn forward<T: Transport>(
        &self,
        rank: usize,
        input: &[f64],
        weight: &[f64],
        bias: &[f64],
        transport: &mut T,
    ) -> Result<Vec<f64>, SplitError<T::Error>> {
        let local = self.local(rank);
        let tensors = [
            ("the input", input, self.input_size(rank)),
            ("the weight", weight, local.inputs * local.outputs),
            ("the bias", bias, local.outputs),
        ];
        check(rank, self.ranks, &tensors)?;
        match self.split {
            DenseSplit::Outputs => {
                let mut output = local.products(input, weight);
                local.add_bias(&mut output, bias);
                self.gathered(rank, output, transport)
            }
            DenseSplit::Inputs => {
                let mut output = local.products(&self.own_input(rank, input), weight);
                self.sum.carry_out(rank, &mut output, transport)?;
                local.add_bias(&mut output, bias);
                Ok(output)
            }
        }
    }

    /// The gradients by x, W and b, each as the rank holds it; `output_gradient` is g, held as y. All
    /// ranks must call it.
    ///
    /// # Errors
    /// No such rank, a tensor of another length, or the transport's own.
    pub fn backward<T: Transport>(
        &self,
        rank: usize,
        input: &[f64],
        weight: &[f64],
        output_gradient: &[f64],
        transport: &mut T,
    ) -> Result<DenseGradients, SplitError<T::Error>> {
        let local = self.local(rank);
        let outputs = match (self.split, self.held) {
            (DenseSplit::Outputs, Held::Part) => local.outputs,
            _ => self.shape.outputs,
        };
        let gradient_size = self.shape.batch * outputs;
        let tensors = [
            ("the input", input, self.input_size(rank)),
            ("the weight", weight, local.inputs * local.outputs),
            ("the gradient of the output", output_gradient, gradient_size),
        ];
        check(rank, self.ranks, &tensors)?;
        match self.split {
            DenseSplit::Outputs => {
                let mut gradients = match self.held {
                    Held::Whole => {
                        let own = cut(output_gradient, self.shape.outputs, &self.features(rank));
                        local.gradients(input, weight, &own)
                    }
                    Held::Part => local.gradients(input, weight, output_gradient),
                };
                self.sum.carry_out(rank, &mut gradients.input, transport)?;
                Ok(gradients)
            }
            DenseSplit::Inputs => {
                let own = self.own_input(rank, input);
                let gradients = local.gradients(&own, weight, output_gradient);
                Ok(DenseGradients {
                    input: self.gathered(rank, gradients.input, transport)?,
                    ..gradients
                })
            }
        }
    }

    /// Numbers of x that a rank holds.
    fn input_size(&self, rank: usize) -> usize {
        let inputs = match self.held {
            Held::Whole => self.shape.inputs,
            Held::Part => self.local(rank).inputs,
        };
        self.shape.batch * inputs
    }

    /// The columns of x that a rank computes with, where inputs are split.
    fn own_input(&self, rank: usize, input: &[f64]) -> Vec<f64> {
        match self.held {
            Held::Whole => cut(input, self.shape.inputs, &self.features(rank)),
            Held::Part => input.to_vec(),
        }
    }

    /// All columns, of those of each rank; or just those where nothing is gathered.
    fn gathered<T: Transport>(
        &self,
        rank: usize,
        own: Vec<f64>,
        transport: &mut T,
    ) -> Result<Vec<f64>, SplitError<T::Error>> {
        let Some(gather) = &self.gather else {
            return Ok(own);
        };
        let (batch, features) = (self.shape.batch, self.features(rank));
        let mut by_feature = vec![0.0; batch * self.spread()];
        by_feature[features.start * batch..features.end * batch]
            .copy_from_slice(&transposed(&own, batch));
        gather.carry_out(rank, &mut by_feature, transport)?;
        Ok(transposed(&by_feature, self.spread()))
    }

    fn exchange(&self, pass: Pass) -> Option<&Exchange> {
        match (pass, self.split) {
            (Pass::Forward, DenseSplit::Outputs) | (Pass::Backward, DenseSplit::Inputs) => {
                self.gather.as_ref()
            }
            (Pass::Backward, DenseSplit::Outputs) | (Pass::Forward, DenseSplit::Inputs) => {
                Some(&self.sum)
            }
        }
    }

    /// The collective of a pass.
    pub fn collective(&self, pass: Pass) -> Option<Case> {
        self.exchange(pass).map(|exchange| exchange.case)
    }

    /// Messages and bytes that all ranks send in a pass, by formula.
    pub fn traffic(&self, pass: Pass) -> Load {
        let traffic = self.collective(pass).and_then(|case| case.traffic());
        traffic.map_or_else(Load::default, |traffic| Load {
            messages: traffic.messages,
            bytes: traffic.bytes,
        })
    }

    /// Messages and bytes that one rank sends in a pass, by the schedule.
    pub fn sent(&self, pass: Pass, rank: usize) -> Load {
        self.exchange(pass)
            .and_then(Exchange::schedule)
            .map_or_else(Load::default, |schedule| sent(schedule, rank))
    }

    /// How long the messages of a pass take in a model of the network, from a common start to the last
    /// rank's end.
    pub fn time<M: Model>(&self, pass: Pass, model: &M) -> M::Time {
        let time = self.collective(pass).and_then(|case| case.time(model));
        time.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::split::testing::{close, numbers, on_ranks};
    use super::*;

    const RING: DenseAlgorithms = DenseAlgorithms {
        gather: Algorithm::Ring,
        sum: Algorithm::Ring,
    };

    const SPLITS: [(DenseSplit, Held); 4] = [
        (DenseSplit::Outputs, Held::Whole),
        (DenseSplit::Outputs, Held::Part),
        (DenseSplit::Inputs, Held::Whole),
        (DenseSplit::Inputs, Held::Part),
    ];

    /// A layer with all that goes in and comes out.
    struct Known {
        shape: DenseShape,
        input: Vec<f64>,
        weight: Vec<f64>,
        bias: Vec<f64>,
        output_gradient: Vec<f64>,
        output: Vec<f64>,
        gradients: DenseGradients,
    }

    impl Known {
        fn unsplit(batch: usize, inputs: usize, outputs: usize) -> Self {
            let shape = DenseShape {
                batch,
                inputs,
                outputs,
            };
            let [input, weight] = [numbers(0, batch * inputs), numbers(1, inputs * outputs)];
            let [bias, output_gradient] = [numbers(2, outputs), numbers(3, batch * outputs)];
            Self {
                output: shape.forward(&input, &weight, &bias).unwrap(),
                gradients: shape.backward(&input, &weight, &output_gradient).unwrap(),
                shape,
                input,
                weight,
                bias,
                output_gradient,
            }
        }
    }

    fn reference() -> Vec<Known> {
        let all: Value =
            serde_json::from_str(include_str!("../../tests/reference/split_layers.json")).unwrap();
        let cases = all["dense"].as_array().unwrap().iter();
        cases
            .map(|case| {
                let size = |name: &str| case[name].as_u64().unwrap() as usize;
                let tensor = |name: &str| serde_json::from_value(case[name].clone()).unwrap();
                Known {
                    shape: DenseShape {
                        batch: size("batch"),
                        inputs: size("inputs"),
                        outputs: size("outputs"),
                    },
                    input: tensor("x"),
                    weight: tensor("w"),
                    bias: tensor("b"),
                    output_gradient: tensor("g"),
                    output: tensor("y"),
                    gradients: DenseGradients {
                        input: tensor("dx"),
                        weight: tensor("dw"),
                        bias: tensor("db"),
                    },
                }
            })
            .collect()
    }

    /// The same of each rank, as threads, and what was sent forward and backward.
    type OfRank = (Vec<f64>, DenseGradients, [Load; 2]);

    fn run(layer: &SplitDense, known: &Known) -> Vec<OfRank> {
        let (split, held) = (layer.split, layer.held);
        on_ranks(layer.ranks(), |rank, transport| {
            let part = |tensor: &[f64], cut: bool| {
                if cut && held == Held::Part {
                    layer.feature_part(rank, tensor).unwrap()
                } else {
                    tensor.to_vec()
                }
            };
            let input = part(&known.input, split == DenseSplit::Inputs);
            let gradient = part(&known.output_gradient, split == DenseSplit::Outputs);
            let weight = layer.weight_part(rank, &known.weight).unwrap();
            let bias = layer.bias_part(rank, &known.bias).unwrap();
            let output = layer
                .forward(rank, &input, &weight, &bias, transport)
                .unwrap();
            let forward = transport.take();
            let gradients = layer
                .backward(rank, &input, &weight, &gradient, transport)
                .unwrap();
            (output, gradients, [forward, transport.take()])
        })
    }

    /// Numbers, and the same bits where no order of additions has changed.
    #[track_caller]
    fn check_numbers(layer: &SplitDense, known: &Known, found: &[OfRank], bits: bool) {
        for (rank, (output, gradients, _)) in found.iter().enumerate() {
            let weight = layer.weight_part(rank, &known.gradients.weight).unwrap();
            let bias = layer.bias_part(rank, &known.gradients.bias).unwrap();
            let part = |tensor: &[f64]| match layer.held {
                Held::Whole => tensor.to_vec(),
                Held::Part => layer.feature_part(rank, tensor).unwrap(),
            };
            let (y, dx) = match layer.split {
                DenseSplit::Outputs => (part(&known.output), known.gradients.input.clone()),
                DenseSplit::Inputs => (known.output.clone(), part(&known.gradients.input)),
            };
            close("y", output, &y);
            close("dx", &gradients.input, &dx);
            close("dw", &gradients.weight, &weight);
            close("db", &gradients.bias, &bias);
            if !bits {
                continue;
            }
            assert_eq!((&gradients.weight, &gradients.bias), (&weight, &bias));
            // What is summed over ranks is the same on all of them, though not as unsplit.
            let all_ranks_have_one = layer.ranks() == 1;
            match layer.split {
                DenseSplit::Outputs => {
                    assert_eq!(*output, y);
                    assert_eq!(gradients.input, found[0].1.input);
                    assert!(!all_ranks_have_one || gradients.input == dx);
                }
                DenseSplit::Inputs => {
                    assert_eq!(gradients.input, dx);
                    assert_eq!(*output, found[0].0);
                    assert!(!all_ranks_have_one || *output == y);
                }
            }
        }
    }

    /// What was sent, against the formulas.
    #[track_caller]
    fn check_traffic(layer: &SplitDense, found: &[OfRank]) {
        for (i, pass) in Pass::ALL.into_iter().enumerate() {
            let mut all = Load::default();
            for (rank, (_, _, sent)) in found.iter().enumerate() {
                assert_eq!(sent[i], layer.sent(pass, rank), "{pass:?}, rank {rank}");
                all.messages += sent[i].messages;
                all.bytes += sent[i].bytes;
            }
            assert_eq!(all, layer.traffic(pass), "{pass:?}");
        }
    }

    #[test]
    fn the_unsplit_layer_is_that_of_pytorch() {
        let cases = reference();
        assert!(cases.len() >= 4);
        for known in cases {
            let shape = known.shape;
            let output = shape
                .forward(&known.input, &known.weight, &known.bias)
                .unwrap();
            close("y", &output, &known.output);
            let gradients = shape
                .backward(&known.input, &known.weight, &known.output_gradient)
                .unwrap();
            close("dx", &gradients.input, &known.gradients.input);
            close("dw", &gradients.weight, &known.gradients.weight);
            close("db", &gradients.bias, &known.gradients.bias);
        }
    }

    #[test]
    fn every_split_is_the_layer_of_pytorch_on_up_to_seven_ranks() {
        for known in reference() {
            for ranks in 1..=7 {
                for (split, held) in SPLITS {
                    let layer = SplitDense::new(known.shape, ranks, split, held, RING).unwrap();
                    check_numbers(&layer, &known, &run(&layer, &known), false);
                }
            }
        }
    }

    #[test]
    fn every_split_is_the_unsplit_layer_and_sends_what_the_formula_says() {
        let algorithms = [
            (Algorithm::Flat, Algorithm::Chain { segments: 3 }),
            (Algorithm::KaryTree { k: 2 }, Algorithm::KaryTree { k: 2 }),
            (Algorithm::Binomial, Algorithm::Rabenseifner),
            (Algorithm::Ring, Algorithm::Ring),
            (Algorithm::Direct, Algorithm::Direct),
            (Algorithm::RecursiveDoubling, Algorithm::RecursiveDoubling),
        ];
        for (batch, inputs, outputs) in [(5, 7, 3), (1, 1, 1), (3, 2, 13), (4, 11, 6)] {
            let known = Known::unsplit(batch, inputs, outputs);
            for ranks in 1..=7 {
                for (split, held) in SPLITS {
                    for (gather, sum) in algorithms {
                        let algorithms = DenseAlgorithms { gather, sum };
                        let layer =
                            SplitDense::new(known.shape, ranks, split, held, algorithms).unwrap();
                        let found = run(&layer, &known);
                        check_numbers(&layer, &known, &found, true);
                        check_traffic(&layer, &found);
                    }
                }
            }
        }
    }

    #[test]
    fn layers_without_examples_or_features_send_no_empty_messages() {
        for (batch, inputs, outputs) in [(0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0, 0)] {
            let known = Known::unsplit(batch, inputs, outputs);
            for ranks in [1, 3] {
                for (split, held) in SPLITS {
                    let layer = SplitDense::new(known.shape, ranks, split, held, RING).unwrap();
                    let found = run(&layer, &known);
                    check_numbers(&layer, &known, &found, true);
                    check_traffic(&layer, &found);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_sizes_on_any_ranks_are_the_unsplit_layer(
            batch in 0..9usize,
            inputs in 0..20usize,
            outputs in 0..20usize,
            ranks in 1..=7usize,
            which in 0..4usize,
        ) {
            let known = Known::unsplit(batch, inputs, outputs);
            let (split, held) = SPLITS[which];
            let layer = SplitDense::new(known.shape, ranks, split, held, RING).unwrap();
            let found = run(&layer, &known);
            check_numbers(&layer, &known, &found, true);
            check_traffic(&layer, &found);
        }
    }

    #[test]
    fn a_pair_of_layers_sums_once_each_way_and_gathers_nothing() {
        // x (5) -> tanh of 9 units -> y (4)
        let (batch, hidden) = (6, 9);
        let [one, two] = [
            Known::unsplit(batch, 5, hidden),
            Known::unsplit(batch, hidden, 4),
        ];
        let tanh = |x: &[f64]| -> Vec<f64> { x.iter().map(|x| x.tanh()).collect() };
        let back = |h: &[f64], g: &[f64]| -> Vec<f64> {
            h.iter().zip(g).map(|(h, g)| g * (1.0 - h * h)).collect()
        };
        let units = tanh(&one.output);
        let y = two.shape.forward(&units, &two.weight, &two.bias).unwrap();
        let gradients_two = two
            .shape
            .backward(&units, &two.weight, &two.output_gradient)
            .unwrap();
        let before = back(&units, &gradients_two.input);
        let gradients_one = one
            .shape
            .backward(&one.input, &one.weight, &before)
            .unwrap();
        for ranks in 1..=7 {
            let make = |shape, split| SplitDense::new(shape, ranks, split, Held::Part, RING);
            let first = make(one.shape, DenseSplit::Outputs).unwrap();
            let second = make(two.shape, DenseSplit::Inputs).unwrap();
            let found = on_ranks(ranks, |rank, transport| {
                let weights = [
                    first.weight_part(rank, &one.weight).unwrap(),
                    second.weight_part(rank, &two.weight).unwrap(),
                ];
                let bias = first.bias_part(rank, &one.bias).unwrap();
                let forward = first.forward(rank, &one.input, &weights[0], &bias, transport);
                let units = tanh(&forward.unwrap());
                let y = second.forward(rank, &units, &weights[1], &two.bias, transport);
                let forward = transport.take();
                let g = &two.output_gradient;
                let of_second = second
                    .backward(rank, &units, &weights[1], g, transport)
                    .unwrap();
                let before = back(&units, &of_second.input);
                let of_first = first.backward(rank, &one.input, &weights[0], &before, transport);
                (
                    y.unwrap(),
                    of_first.unwrap(),
                    of_second,
                    [forward, transport.take()],
                )
            });
            let mut all = [Load::default(); 2];
            for (rank, (output, of_first, of_second, sent)) in found.iter().enumerate() {
                close("y", output, &y);
                close("dx", &of_first.input, &gradients_one.input);
                let weight = first.weight_part(rank, &gradients_one.weight).unwrap();
                close("dw1", &of_first.weight, &weight);
                let bias = first.bias_part(rank, &gradients_one.bias).unwrap();
                close("db1", &of_first.bias, &bias);
                let weight = second.weight_part(rank, &gradients_two.weight).unwrap();
                close("dw2", &of_second.weight, &weight);
                close("db2", &of_second.bias, &gradients_two.bias);
                for (all, sent) in all.iter_mut().zip(sent) {
                    all.messages += sent.messages;
                    all.bytes += sent.bytes;
                }
            }
            assert_eq!(first.traffic(Pass::Forward), Load::default());
            assert_eq!(second.traffic(Pass::Backward), Load::default());
            assert_eq!(all[0], second.traffic(Pass::Forward));
            assert_eq!(all[1], first.traffic(Pass::Backward));
            // A ring sends 2(p-1)/p of the vector from each rank.
            let p = ranks as u128;
            let numbers = (batch * 4) as u128;
            assert_eq!(all[0].bytes, 2 * (p - 1) * 8 * numbers);
        }
    }

    #[test]
    fn costs_of_many_ranks_are_counted_without_schedules() {
        let shape = DenseShape {
            batch: 4096,
            inputs: 50_000,
            outputs: 200_000,
        };
        let p = 100_000;
        let layer = SplitDense::new(shape, p, DenseSplit::Outputs, Held::Whole, RING).unwrap();
        let bytes = (p as u128 - 1) * 8 * 4096;
        assert_eq!(layer.traffic(Pass::Forward).bytes, bytes * 200_000);
        assert_eq!(layer.traffic(Pass::Backward).bytes, 2 * bytes * 50_000);
        let model = crate::theory::collectives::Hockney {
            alpha: 1000i128,
            beta: 2,
            gamma: 1,
        };
        // p - 1 blocks of two features.
        assert_eq!(
            layer.time(Pass::Forward, &model),
            (p as i128 - 1) * (1000 + 2 * 2 * 8 * 4096)
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let shape = DenseShape {
            batch: 2,
            inputs: 3,
            outputs: 4,
        };
        let make = |ranks, held, gather| {
            let sum = Algorithm::Rabenseifner;
            let algorithms = DenseAlgorithms { gather, sum };
            SplitDense::new(shape, ranks, DenseSplit::Outputs, held, algorithms)
        };
        assert_eq!(
            make(0, Held::Whole, Algorithm::Ring).unwrap_err(),
            LayoutError::NoRanks
        );
        assert_eq!(
            make(2, Held::Whole, Algorithm::Rabenseifner)
                .unwrap_err()
                .to_string(),
            "Rabenseifner cannot do the all-gather that the layer needs"
        );
        assert!(make(2, Held::Part, Algorithm::Rabenseifner).is_ok());
        let large = DenseShape {
            batch: usize::MAX / 4,
            ..shape
        };
        assert_eq!(
            SplitDense::new(large, 2, DenseSplit::Inputs, Held::Part, RING)
                .unwrap_err()
                .to_string(),
            "the input would hold more numbers than can be counted"
        );
        let layer = make(2, Held::Whole, Algorithm::Ring).unwrap();
        let found = on_ranks(1, |_, transport| {
            [
                layer.forward(2, &[0.0; 6], &[0.0; 6], &[0.0; 2], transport),
                layer.forward(1, &[0.0; 6], &[0.0; 5], &[0.0; 2], transport),
            ]
            .map(|result| result.unwrap_err().to_string())
        });
        assert_eq!(
            found[0],
            [
                "rank 2 is not one of the 2 ranks of the layer",
                "the weight of rank 1: 5 numbers instead of 6"
            ]
        );
        assert_eq!(
            shape.forward(&[0.0; 5], &[], &[]).unwrap_err().to_string(),
            "the input of rank 0: 5 numbers instead of 6"
        );
    }
}
