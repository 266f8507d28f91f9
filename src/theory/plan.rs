//! What a worker is worth: time and cost to a target against the number of workers.
//!
//! T(B, p) = S(B) x (seconds of an update), with S(B) = S_min + E_min/B updates to the target at a batch
//! of B examples (McCandlish et al. 2018, arXiv 1812.06162), and an update that takes as long as its
//! computation and what of its communication is not hidden behind it. p workers make d groups of g, and
//! each group has its own b = B/d examples:
//!
//! | | data (g = 1) | features | pipeline |
//! |---|---|---|---|
//! | computation | J (k t0 + b t1) | J (k t0 + b t1/g) | J (M t0 + b t1)/g |
//! | idle in the pipeline | | | (g - 1)/M of the computation |
//! | inside a group | | k l (G_g(ba/k) + R_g(ba/k)) | 2 (M + g - 1) m(ba/M) |
//! | between groups | R_d(n) | R_d(n/g) | R_d(n/g) |
//!
//! t0 and t1 are a worker's fixed seconds for a (micro-)batch and its seconds for an example with the whole
//! model, k the micro-batches that memory asks for, M those of the pipeline (as many as are best, flushed
//! before each update), l layers, a bytes of one layer's output for one example, n bytes of all gradients,
//! R_q(x) and G_q(x) seconds of an all-reduce and an all-gather of x bytes over q ranks, m(x) of one
//! message. J is above 1 where workers share cores or where all wait for the slowest of random times. In
//! a layer split by features outputs are gathered on the way forward and gradients of inputs summed on the
//! way back, in the way of everything. Of the sum between groups a share `overlap` can be hidden, for as
//! long as the backward pass of the last micro-batch lasts.
//!
//! Groups lie packed: the first q workers share a node, and have faster links among themselves (`inner`).
//! A collective over more than one node is done in two levels, inside all nodes at once and then, on the
//! one link of each node (`outer`), between nodes. The workers of a node that take part in different sums
//! at once share that link.
//!
//! With data alone, T is convex in b, and with c the seconds of an update that do not depend on b the best
//! is b = (B_crit c/(p J t1))^(1/2), which gives T = ((S_min c)^(1/2) + (E_min J t1/p)^(1/2))^2: found in
//! closed form, with the two sides of the kink where hiding ends. Other strategies are searched.

use thiserror::Error;

use super::collectives::{Algorithm, Case, Hockney, LogGp, Model as _, Operation, Segments};
use super::staleness::Times;
use super::steps;
use crate::math::statistics::Interval;

/// Numbers of workers per octave that a plan looks at, before it refines.
const PER_OCTAVE: f64 = 16.0;

/// Batches around the best one that are looked at where T is uneven.
const AROUND: u16 = 64;

/// Points of one pass of the refinement.
const REFINEMENT: u64 = 32;

/// Steps to the target against the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepsLaw {
    /// Updates that no batch gets below, above 0.
    pub s_min: f64,
    /// Critical batch size, in examples, at least 0.
    pub b_crit: f64,
    /// Intervals of S_min and of E_min = S_min B_crit, if known.
    pub intervals: Option<StepsIntervals>,
}

/// How well the law is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepsIntervals {
    /// Of S_min, in updates.
    pub s_min: Interval,
    /// Of E_min, in examples.
    pub e_min: Interval,
}

impl StepsLaw {
    /// S(B), in updates.
    pub fn steps(&self, batch: f64) -> f64 {
        steps::steps(self.s_min, self.b_crit, batch)
    }

    /// S_min + E_min/B at both lower and at both upper ends: S(B) rises with both, so it lies between
    /// wherever they lie in their intervals.
    pub fn bounds(&self, batch: f64) -> Option<Interval> {
        self.intervals.map(|i| Interval {
            low: i.s_min.low + i.e_min.low / batch,
            high: i.s_min.high + i.e_min.high / batch,
        })
    }
}

/// What is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Number of parameters.
    pub parameters: f64,
    /// Bytes of one parameter's gradient on its way.
    pub bytes_per_parameter: f64,
    /// Layers: what features split one by one, and a pipeline among its stages.
    pub layers: u64,
    /// Bytes of one layer's output for one example, the mean over layers.
    pub activation_bytes: f64,
    /// Bytes of one copy of the model with gradients and the state of the optimizer.
    pub resident_bytes: f64,
}

/// One worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// t1, above 0.
    pub seconds_per_example: f64,
    /// t0: it makes small local batches inefficient, with half of the speed at t0/t1 examples.
    pub seconds_per_update: f64,
    /// Share of the computation that is the backward pass, in [0, 1]; about 2/3.
    pub backward: f64,
    /// Most examples that memory takes at once; larger local batches go in micro-batches.
    pub largest_local: Option<u64>,
    /// Bytes of memory for its share of the model; infinite where it does not matter.
    pub memory_bytes: f64,
    /// Price of a second, in any unit: money, or joules if it is the power in watts.
    pub price: f64,
    /// How the times of computing scatter, relative to their mean: all wait for the slowest.
    pub jitter: Option<Times>,
}

/// Where workers are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nodes {
    /// Workers on a node, at least 1.
    pub workers: u64,
    /// How many of them compute at full speed: the cores of a node over those that a worker uses. More
    /// share the cores. Infinite where each has its own.
    pub at_full_speed: f64,
}

/// Seconds of communication over links of one kind. Ranks are at least 2.
pub struct Timings<'a> {
    /// Of an all-reduce over so many ranks of so many bytes on each.
    pub all_reduce: Box<dyn Fn(u64, f64) -> f64 + 'a>,
    /// Of an all-gather that leaves so many bytes on each of so many ranks.
    pub all_gather: Box<dyn Fn(u64, f64) -> f64 + 'a>,
    /// Of one message of so many bytes.
    pub message: Box<dyn Fn(f64) -> f64 + 'a>,
}

/// A way to do collectives, on both kinds of links.
pub struct Network<'a> {
    /// Its name, of the algorithm for instance.
    pub name: String,
    /// Links inside a node.
    pub inner: Timings<'a>,
    /// The link of each node to the others.
    pub outer: Timings<'a>,
}

/// One kind of link, in the model of Hockney.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Seconds until the first byte arrives.
    pub latency: f64,
    /// Seconds of software for each message, on both sides together.
    pub overhead: f64,
    /// Bytes per second, above 0.
    pub bandwidth: f64,
    /// Seconds to add one byte's worth of numbers to others.
    pub seconds_per_byte_added: f64,
}

/// Algorithms that are built in, in the forms of the textbooks: for powers of two, or with what lies over
/// one folded in before and out after. Exact forms for all ranks and lengths are in
/// [`collectives`](super::collectives).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All to one, which adds, and back to all, one after another.
    Flat,
    /// Binomial tree up and down.
    Binomial,
    /// Reduce-scatter and all-gather around a ring.
    Ring,
    /// Everything exchanged with partners at distances 1, 2, 4, ...
    RecursiveDoubling,
    /// Halves, quarters, ... exchanged, and back.
    Rabenseifner,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Flat,
        Self::Binomial,
        Self::Ring,
        Self::RecursiveDoubling,
        Self::Rabenseifner,
    ];

    /// `flat`, `binomial`, `ring`, `recursive-doubling` or `rabenseifner`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Binomial => "binomial",
            Self::Ring => "ring",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::Rabenseifner => "rabenseifner",
        }
    }
}

/// Whole part of log2, and whether that is all of it.
fn log2(ranks: u64) -> (f64, bool) {
    (f64::from(ranks.max(1).ilog2()), ranks.is_power_of_two())
}

impl Link {
    /// Seconds of a message: latency + overhead + bytes/bandwidth.
    pub fn message(&self, bytes: f64) -> f64 {
        self.latency + self.overhead + bytes / self.bandwidth
    }

    /// Seconds of an all-reduce.
    ///
    /// ```
    /// # use batchlab::theory::plan::{Form, Link};
    /// let link = Link { latency: 1.0, overhead: 0.0, bandwidth: 2.0, seconds_per_byte_added: 0.25 };
    /// // 6 messages of a quarter of 8 bytes, 3 of which are added.
    /// assert_eq!(link.all_reduce(Form::Ring, 4, 8.0), 6.0 * (1.0 + 1.0) + 3.0 * 0.5);
    /// ```
    pub fn all_reduce(&self, form: Form, ranks: u64, bytes: f64) -> f64 {
        let there = self.message(bytes);
        let add = bytes * self.seconds_per_byte_added;
        let p = ranks as f64;
        let part = (p - 1.0) / p;
        let (levels, whole) = log2(ranks);
        let fold = if whole { 0.0 } else { 2.0 * there + add };
        let alpha = self.latency + self.overhead;
        let beta = bytes / self.bandwidth;
        match form {
            Form::Flat => (p - 1.0) * (2.0 * there + add),
            Form::Binomial => (levels + f64::from(!whole)) * (2.0 * there + add),
            Form::Ring => 2.0 * (p - 1.0) * alpha + part * (2.0 * beta + add),
            Form::RecursiveDoubling => levels * (there + add) + fold,
            Form::Rabenseifner => {
                let part = 1.0 - (-levels).exp2();
                2.0 * levels * alpha + part * (2.0 * beta + add) + fold
            }
        }
    }

    /// Seconds of an all-gather that leaves `bytes` on each rank.
    pub fn all_gather(&self, form: Form, ranks: u64, bytes: f64) -> f64 {
        let there = self.message(bytes);
        let p = ranks as f64;
        let part = (p - 1.0) / p;
        let (levels, whole) = log2(ranks);
        let alpha = self.latency + self.overhead;
        let beta = part * bytes / self.bandwidth;
        match form {
            Form::Flat => (p - 1.0) * (alpha + there) + beta,
            Form::Binomial => {
                let levels = levels + f64::from(!whole);
                levels * (alpha + there) + beta
            }
            Form::Ring => (p - 1.0) * alpha + beta,
            Form::RecursiveDoubling | Form::Rabenseifner => {
                let fold = if whole { 0.0 } else { alpha + there };
                levels * alpha + beta + fold
            }
        }
    }

    /// This link with this algorithm.
    pub fn timings(self, form: Form) -> Timings<'static> {
        Timings {
            all_reduce: Box::new(move |ranks, bytes| self.all_reduce(form, ranks, bytes)),
            all_gather: Box::new(move |ranks, bytes| self.all_gather(form, ranks, bytes)),
            message: Box::new(move |bytes| self.message(bytes)),
        }
    }
}

impl Network<'static> {
    /// The same algorithm on two kinds of links.
    pub fn of_links(form: Form, inner: Link, outer: Link) -> Self {
        Self {
            name: form.name().to_owned(),
            inner: inner.timings(form),
            outer: outer.timings(form),
        }
    }
}

/// A kind of link in one of the models of [`collectives`](super::collectives).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wire {
    /// Hockney's: latency and bandwidth.
    Hockney(Hockney<f64>),
    /// LogGP: the processor's part of a message apart from the link's.
    LogGp(LogGp<f64>),
}

impl super::collectives::Model for Wire {
    type Time = f64;

    fn first(&self, bytes: u128, adds: bool) -> f64 {
        match self {
            Self::Hockney(model) => model.first(bytes, adds),
            Self::LogGp(model) => model.first(bytes, adds),
        }
    }

    fn next(&self, bytes: u128, adds: bool) -> f64 {
        match self {
            Self::Hockney(model) => model.next(bytes, adds),
            Self::LogGp(model) => model.next(bytes, adds),
        }
    }

    fn chain(&self, ranks: usize, segments: Segments, adds: bool) -> f64 {
        match self {
            Self::Hockney(model) => model.chain(ranks, segments, adds),
            Self::LogGp(model) => model.chain(ranks, segments, adds),
        }
    }

    fn direct(&self, peers: usize, bytes: u128, receipts: usize, adds: bool) -> f64 {
        match self {
            Self::Hockney(model) => model.direct(peers, bytes, receipts, adds),
            Self::LogGp(model) => model.direct(peers, bytes, receipts, adds),
        }
    }
}

/// How all collectives of a network are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All to one, which adds, and back to all.
    Flat,
    /// A tree of this many children a node, at least 1.
    Tree(usize),
    /// The binomial tree.
    Binomial,
    /// A pipeline through all ranks in the number of segments that is best by the closed form for
    /// (p - 2 + x) messages of n/x bytes; an all-gather goes round a ring.
    Chain,
    /// A ring.
    Ring,
    /// Each with each.
    Direct,
    /// The butterfly that doubles.
    RecursiveDoubling,
    /// The butterfly that halves and doubles; an all-gather doubles.
    Rabenseifner,
}

impl Way {
    /// All ways, with trees of this many children.
    pub fn all(arity: usize) -> [Self; 8] {
        [
            Self::Flat,
            Self::Tree(arity),
            Self::Binomial,
            Self::Chain,
            Self::Ring,
            Self::Direct,
            Self::RecursiveDoubling,
            Self::Rabenseifner,
        ]
    }

    /// The name: `ring`, `tree of 4`, ...
    pub fn name(self) -> String {
        match self {
            Self::Tree(arity) => format!("tree of {arity}"),
            Self::Flat => "flat".to_owned(),
            Self::Binomial => "binomial".to_owned(),
            Self::Chain => "chain".to_owned(),
            Self::Ring => "ring".to_owned(),
            Self::Direct => "direct".to_owned(),
            Self::RecursiveDoubling => "recursive-doubling".to_owned(),
            Self::Rabenseifner => "rabenseifner".to_owned(),
        }
    }

    /// Whether an all-gather this way is one of its own, rather than a gather and a broadcast of all,
    /// or another way's.
    fn gathers(self) -> bool {
        matches!(self, Self::Ring | Self::Direct | Self::RecursiveDoubling)
    }

    /// Seconds of an all-reduce or an all-gather.
    fn time(self, wire: &Wire, operation: Operation, size: Size) -> f64 {
        let case = |algorithm| Case {
            operation,
            algorithm,
            ranks: size.ranks,
            elements: size.elements,
            element_bytes: size.element_bytes,
        };
        let gather = operation == Operation::AllGather;
        let algorithm = match self {
            Self::Flat => Algorithm::Flat,
            Self::Tree(k) => Algorithm::KaryTree { k },
            Self::Binomial => Algorithm::Binomial,
            Self::Chain if gather => Algorithm::Ring,
            Self::Chain => {
                let time = |segments: usize| {
                    let chain = case(Algorithm::Chain { segments });
                    chain.time(wire).unwrap_or(f64::INFINITY)
                };
                let best = best_chain(wire, size);
                let counts = [best.floor(), best.ceil()].map(|x| x.max(1.0) as usize);
                return time(counts[0]).min(time(counts[1]));
            }
            Self::Ring => Algorithm::Ring,
            Self::Direct => Algorithm::Direct,
            Self::Rabenseifner if !gather => Algorithm::Rabenseifner,
            Self::RecursiveDoubling | Self::Rabenseifner => Algorithm::RecursiveDoubling,
        };
        case(algorithm).time(wire).unwrap_or(f64::INFINITY)
    }
}

/// What a collective is about.
#[derive(Debug, Clone, Copy)]
struct Size {
    ranks: usize,
    elements: usize,
    element_bytes: usize,
}

/// Segments x that make (p - 2 + x) (a + c n/x) least, a and c of a message on the way up and down
/// together: x^2 = (p - 2) c n/a.
fn best_chain(wire: &Wire, size: Size) -> f64 {
    const FAR: u128 = 1 << 30;
    let both = |bytes| wire.next(bytes, true) + wire.next(bytes, false);
    let per_byte = (both(FAR) - both(1)) / (FAR - 1) as f64;
    let fixed = both(1) - per_byte;
    let bytes = size.elements as f64 * size.element_bytes as f64;
    let x = ((size.ranks as f64 - 2.0).max(0.0) * per_byte * bytes / fixed).sqrt();
    // Without a cost of a message there would be no end.
    x.clamp(1.0, size.elements.max(1) as f64)
}

/// Collectives in the closed forms of [`collectives`](super::collectives), exact for any number of ranks and any length:
/// each in the fastest of some ways, as an MPI library chooses by size.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    /// Its name.
    pub name: String,
    /// The ways, at least one. Of several that include a ring, direct or recursive doubling, these
    /// alone all-gather.
    pub ways: Vec<Way>,
    /// Links inside a node.
    pub inner: Wire,
    /// The link of each node to the others.
    pub outer: Wire,
    /// Bytes of one number, at least 1: lengths are rounded up to whole numbers.
    pub element_bytes: usize,
}

impl Exact {
    /// The network of a plan.
    pub fn network(&self) -> Network<'_> {
        Network {
            name: self.name.clone(),
            inner: self.timings(&self.inner),
            outer: self.timings(&self.outer),
        }
    }

    fn timings<'a>(&'a self, wire: &'a Wire) -> Timings<'a> {
        let seconds = move |operation, ranks, bytes| {
            let fastest = self.fastest(wire, operation, ranks, bytes);
            fastest.map_or(f64::INFINITY, |(_, seconds)| seconds)
        };
        Timings {
            all_reduce: Box::new(move |ranks, bytes| seconds(Operation::AllReduce, ranks, bytes)),
            all_gather: Box::new(move |ranks, bytes| seconds(Operation::AllGather, ranks, bytes)),
            message: Box::new(move |bytes| wire.first((bytes.ceil() as u128).max(1), false)),
        }
    }

    /// The fastest way to do an all-reduce or an all-gather of so many bytes over these links, and
    /// its seconds; `None` without ways.
    pub fn fastest(
        &self,
        wire: &Wire,
        operation: Operation,
        ranks: u64,
        bytes: f64,
    ) -> Option<(Way, f64)> {
        let size = Size {
            ranks: ranks as usize,
            elements: (bytes / self.element_bytes as f64).ceil() as usize,
            element_bytes: self.element_bytes,
        };
        let some = operation == Operation::AllGather && self.ways.iter().any(|way| way.gathers());
        let ways = self.ways.iter().filter(|way| !some || way.gathers());
        ways.map(|&way| (way, way.time(wire, operation, size)))
            .reduce(|a, b| if b.1 < a.1 { b } else { a })
    }
}

/// How the work is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Each worker has the whole model and its own examples.
    Data,
    /// Each layer's features are split over all workers.
    Features,
    /// Each worker has some of the layers.
    Pipeline,
    /// Features split in groups of this size, or of the best size if there is none; data over groups.
    FeatureGroups(Option<u64>),
    /// Layers split in groups of this size, or of the best size; data over groups.
    PipelineGroups(Option<u64>),
}

impl Strategy {
    /// `data`, `features`, `pipeline`, `feature-groups` or `pipeline-groups`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Features => "features",
            Self::Pipeline => "pipeline",
            Self::FeatureGroups(_) => "feature-groups",
            Self::PipelineGroups(_) => "pipeline-groups",
        }
    }

    fn pipelined(self) -> bool {
        matches!(self, Self::Pipeline | Self::PipelineGroups(_))
    }

    /// Sizes that a group may have among so many workers.
    fn sizes(self, workers: u64, nodes: Nodes) -> Vec<u64> {
        match self {
            Self::Data => vec![1],
            Self::Features | Self::Pipeline => vec![workers],
            Self::FeatureGroups(Some(size)) | Self::PipelineGroups(Some(size)) => {
                if (1..=workers).contains(&size) {
                    vec![size]
                } else {
                    Vec::new()
                }
            }
            Self::FeatureGroups(None) | Self::PipelineGroups(None) => {
                let powers = (0..64).map(|power| 1_u64 << power);
                let mut sizes: Vec<u64> = powers.take_while(|&size| size <= workers).collect();
                if nodes.workers <= workers && !nodes.workers.is_power_of_two() {
                    sizes.push(nodes.workers);
                }
                sizes
            }
        }
    }

    /// The most workers that one copy of the task's model can be split over, of so many; `None` where
    /// there are too few for a group.
    pub fn largest_group(self, task: &Task, workers: u64) -> Option<u64> {
        let most = if self.pipelined() {
            workers.min(task.model.layers)
        } else {
            workers
        };
        self.sizes(most, task.nodes).into_iter().max()
    }
}

/// The question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// Steps to the target.
    pub law: StepsLaw,
    /// What is trained.
    pub model: Model,
    /// On what.
    pub device: Device,
    /// Where.
    pub nodes: Nodes,
    /// Share of the sum of gradients that can be hidden behind the backward pass, in [0, 1].
    pub overlap: f64,
    /// No batch may be larger, if given; in examples.
    pub largest_batch: Option<u64>,
}

/// A number that no task has.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{field} should be {expected}, found {found}")]
pub struct TaskError {
    /// Its name.
    pub field: &'static str,
    /// What it should be.
    pub expected: &'static str,
    /// What it is.
    pub found: f64,
}

/// Seconds of one update.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTime {
    /// Computing.
    pub compute: f64,
    /// Idle while the pipeline fills and empties.
    pub bubble: f64,
    /// Communication inside a group.
    pub exchange: f64,
    /// The sum of gradients between groups, hidden or not.
    pub reduction: f64,
    /// What of it is not hidden.
    pub exposed: f64,
}

impl StepTime {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.compute + self.bubble + self.exchange + self.exposed
    }

    /// The share that is communication and not hidden.
    pub fn communication(&self) -> f64 {
        (self.exchange + self.exposed) / self.total()
    }
}

/// One way to use so many workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// p, with those that are left over where groups do not use all.
    pub workers: u64,
    /// The strategy.
    pub strategy: Strategy,
    /// The place of the network in the list.
    pub network: usize,
    /// d.
    pub groups: u64,
    /// g.
    pub group: u64,
    /// Examples per update.
    pub batch: f64,
    /// Examples of a group per update; of the largest, where groups differ by one.
    pub local_batch: f64,
    /// In how many pieces a group takes them.
    pub micro_batches: u64,
    /// Updates to the target.
    pub steps: f64,
    /// Seconds of an update.
    pub step: StepTime,
    /// Seconds to the target.
    pub time: f64,
    /// The same with the steps at the ends of their interval, if known.
    pub interval: Option<Interval>,
    /// Workers x seconds x price.
    pub cost: f64,
}

impl Point {
    /// By how much one per cent more batch lowers the steps, in per cent: B_crit/(B + B_crit), from 1
    /// where batches scale perfectly over 1/2 at B_crit to 0.
    pub fn worth_of_batch(&self, law: &StepsLaw) -> f64 {
        law.b_crit / (self.batch + law.b_crit)
    }
}

impl Task {
    /// Whether all numbers can be.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), TaskError> {
        const POSITIVE: (&str, f64, f64) = ("above 0 and finite", f64::MIN_POSITIVE, f64::MAX);
        const AT_LEAST_0: (&str, f64, f64) = ("at least 0 and finite", 0.0, f64::MAX);
        const SHARE: (&str, f64, f64) = ("between 0 and 1", 0.0, 1.0);
        const COUNT: (&str, f64, f64) = ("at least 1", 1.0, f64::MAX);
        const LIMIT: (&str, f64, f64) = ("above 0", f64::MIN_POSITIVE, f64::INFINITY);
        let (law, model, device) = (&self.law, &self.model, &self.device);
        let count = |limit: Option<u64>| limit.map_or(1.0, |limit| limit as f64);
        let fields = [
            ("s_min", law.s_min, POSITIVE),
            ("b_crit", law.b_crit, AT_LEAST_0),
            ("parameters", model.parameters, AT_LEAST_0),
            ("bytes_per_parameter", model.bytes_per_parameter, AT_LEAST_0),
            ("layers", model.layers as f64, COUNT),
            ("activation_bytes", model.activation_bytes, AT_LEAST_0),
            ("resident_bytes", model.resident_bytes, AT_LEAST_0),
            ("seconds_per_example", device.seconds_per_example, POSITIVE),
            ("seconds_per_update", device.seconds_per_update, AT_LEAST_0),
            ("backward", device.backward, SHARE),
            ("largest_local", count(device.largest_local), COUNT),
            ("memory_bytes", device.memory_bytes, LIMIT),
            ("price", device.price, AT_LEAST_0),
            ("workers of a node", self.nodes.workers as f64, COUNT),
            ("workers at full speed", self.nodes.at_full_speed, LIMIT),
            ("overlap", self.overlap, SHARE),
            ("largest_batch", count(self.largest_batch), COUNT),
        ];
        for (field, found, (expected, low, high)) in fields {
            if !(low..=high).contains(&found) {
                return Err(TaskError {
                    field,
                    expected,
                    found,
                });
            }
        }
        let wrong = device.jitter.and_then(Times::wrong);
        wrong.map_or(Ok(()), |(field, expected, found)| {
            Err(TaskError {
                field: if field == "cv" {
                    "cv of the jitter"
                } else {
                    "mean of the jitter"
                },
                expected,
                found,
            })
        })
    }

    /// J: how much longer a worker computes than it would alone.
    fn slowdown(&self, workers: u64) -> f64 {
        let shared = workers.min(self.nodes.workers) as f64 / self.nodes.at_full_speed;
        let jitter = self
            .device
            .jitter
            .map_or(1.0, |times| times.expected_longest(workers) / times.mean());
        shared.max(1.0) * jitter
    }
}

/// So many workers, in groups of one size.
struct Layout<'a> {
    task: &'a Task,
    network: &'a Network<'a>,
    pipelined: bool,
    groups: u64,
    group: u64,
    slowdown: f64,
    /// Seconds of the sum between groups.
    reduction: f64,
}

impl<'a> Layout<'a> {
    /// `None` if the model does not fit, or has too few layers.
    fn new(
        task: &'a Task,
        network: &'a Network<'a>,
        strategy: Strategy,
        workers: u64,
        group: u64,
        slowdown: f64,
    ) -> Option<Self> {
        let fits = task.model.resident_bytes / group as f64 <= task.device.memory_bytes;
        if !fits || (strategy.pipelined() && group > task.model.layers) {
            return None;
        }
        let mut layout = Self {
            task,
            network,
            pipelined: strategy.pipelined(),
            groups: workers / group,
            group,
            slowdown,
            reduction: 0.0,
        };
        layout.reduction = layout.between_groups();
        Some(layout)
    }

    /// Seconds of a collective over the ranks of one group.
    fn in_group(&self, seconds: impl Fn(&Timings, u64, f64) -> f64, bytes: f64) -> f64 {
        let node = self.task.nodes.workers;
        two_levels(
            self.network,
            seconds,
            self.group.min(node),
            self.group.div_ceil(node),
            (bytes, bytes),
        )
    }

    /// Seconds of the sum of gradients over groups.
    fn between_groups(&self) -> f64 {
        let node = self.task.nodes.workers;
        let model = &self.task.model;
        let bytes = model.parameters * model.bytes_per_parameter / self.group as f64;
        // Groups that lie on one node, and sums that go on at once over its link.
        let inside = (node / self.group).clamp(1, self.groups);
        let at_once = self.group.min(node) as f64;
        two_levels(
            self.network,
            |timings, ranks, bytes| (timings.all_reduce)(ranks, bytes),
            inside,
            self.groups.div_ceil(inside),
            (bytes, at_once * bytes),
        )
    }

    /// Seconds of a message to the next stage, over the slowest link between stages.
    fn to_next_stage(&self, bytes: f64) -> f64 {
        let far = self.group > self.task.nodes.workers;
        let timings = if far {
            &self.network.outer
        } else {
            &self.network.inner
        };
        (timings.message)(bytes)
    }

    /// Seconds of an update with `local` examples in a group, at least 1, and the number of pieces.
    fn step(&self, local: f64) -> (StepTime, u64) {
        let (model, device) = (&self.task.model, &self.task.device);
        let g = self.group as f64;
        let pieces = device
            .largest_local
            .map_or(1.0, |most| (local / most as f64).ceil().max(1.0));
        let mut step = StepTime {
            reduction: self.reduction,
            ..StepTime::default()
        };
        let compute = |fixed: f64, examples: f64| {
            self.slowdown
                * (fixed * device.seconds_per_update + examples * device.seconds_per_example)
        };
        let micro_batches = if self.pipelined && self.group > 1 {
            // A slot is the forward and the backward pass of one micro-batch at one stage.
            let slot = |examples: f64| {
                let bytes = examples * model.activation_bytes;
                (compute(1.0, examples) / g, 2.0 * self.to_next_stage(bytes))
            };
            let total = |m: f64| {
                let (computing, sending) = slot(local / m);
                (m + g - 1.0) * (computing + sending)
            };
            // (M + g - 1)(fixed + slope local/M) is least where M^2 = (g - 1) slope local/fixed.
            let (empty, full) = (slot(0.0), slot(local));
            let fixed = empty.0 + empty.1;
            let best = ((g - 1.0) * (full.0 + full.1 - fixed) / fixed).sqrt();
            let most = local.floor().max(1.0);
            let candidates = [best.floor(), best.ceil()].map(|m| m.clamp(pieces.min(most), most));
            let m = if total(candidates[1]) < total(candidates[0]) {
                candidates[1]
            } else {
                candidates[0]
            };
            let (computing, sending) = slot(local / m);
            step.compute = m * computing;
            step.bubble = (g - 1.0) * computing;
            step.exchange = (m + g - 1.0) * sending;
            m
        } else {
            step.compute = compute(pieces, local / g);
            if self.group > 1 {
                let bytes = local / pieces * model.activation_bytes;
                let gather = self.in_group(|t, ranks, bytes| (t.all_gather)(ranks, bytes), bytes);
                let reduce = self.in_group(|t, ranks, bytes| (t.all_reduce)(ranks, bytes), bytes);
                step.exchange = pieces * model.layers as f64 * (gather + reduce);
            }
            pieces
        };
        let window = device.backward * step.compute / micro_batches;
        step.exposed = self.reduction - (self.task.overlap * self.reduction).min(window);
        (step, micro_batches as u64)
    }

    /// Seconds to the target with `local` examples in each group.
    fn time(&self, local: f64) -> f64 {
        self.task.law.steps(local * self.groups as f64) * self.step(local).0.total()
    }

    /// The best number of examples in a group, whole and at least 1; `None` if the largest batch has less
    /// than one for each.
    fn best_local(&self) -> Option<f64> {
        let most = self
            .task
            .largest_batch
            .map_or(f64::INFINITY, |batch| (batch / self.groups) as f64);
        if most < 1.0 {
            return None;
        }
        let mut candidates = Vec::new();
        if self.group == 1 && self.task.device.largest_local.is_none() {
            candidates.extend(self.closed_form());
        } else {
            let found = self.search(most);
            candidates.push(found);
            if self.pipelined || self.task.device.largest_local.is_some() {
                // Whole pieces make T uneven, the more so the fewer they are.
                let half = i32::from(AROUND / 2);
                let around =
                    (-half..=half).map(|i| found * (f64::from(i) / f64::from(half) / 2.0).exp2());
                let piece = self.task.device.largest_local.unwrap_or(1) as f64;
                candidates.extend(around.flat_map(|b| [b.round(), (b / piece).ceil() * piece]));
                // The next full pieces may lie farther off.
                let full = (found / piece).floor();
                candidates.extend((-2..=2).map(|k| (full + f64::from(k)) * piece));
            }
        }
        let whole = candidates
            .into_iter()
            .flat_map(|b| [b.floor(), b.ceil()])
            .map(|b| b.clamp(1.0, most));
        whole.min_by(|a, b| self.time(*a).total_cmp(&self.time(*b)))
    }

    /// Where T may be least with data alone: on either side of the kink, and there.
    fn closed_form(&self) -> [f64; 3] {
        let device = &self.task.device;
        let (t0, t1) = (
            self.slowdown * device.seconds_per_update,
            self.slowdown * device.seconds_per_example,
        );
        let (reduction, overlap) = (self.reduction, self.task.overlap);
        let best = |fixed: f64, slope: f64| {
            (self.task.law.b_crit * fixed / (self.groups as f64 * slope)).sqrt()
        };
        let shown = 1.0 - device.backward;
        let ends_hidden = best(t0 + (1.0 - overlap) * reduction, t1);
        // With nothing but a backward pass there is no slope until all is hidden.
        let partly = if shown > 0.0 {
            best(shown * t0 + reduction, shown * t1)
        } else {
            ends_hidden
        };
        let kink = if device.backward > 0.0 {
            (overlap * reduction / device.backward - t0) / t1
        } else {
            ends_hidden
        };
        [ends_hidden, partly, kink]
    }

    /// Where T is least, by steps of half an octave until it has risen far, and golden section.
    fn search(&self, most: f64) -> f64 {
        const STEP: f64 = std::f64::consts::LN_2 / 2.0;
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let time = |log: f64| self.time(log.exp().clamp(1.0, most));
        let mut best = (time(0.0), 0.0);
        let mut log = 0.0;
        loop {
            log += STEP;
            let here = time(log);
            if here < best.0 {
                best = (here, log);
            }
            // T grows at least like S_min t1 b/g in the end.
            if here > 2.0 * best.0 || log.exp() > most || !here.is_finite() {
                break;
            }
        }
        let (mut low, mut high) = ((best.1 - STEP).max(0.0), best.1 + STEP);
        let mut inner = [GOLDEN, 1.0 - GOLDEN].map(|share| high - share * (high - low));
        let mut times = inner.map(time);
        while high - low > 1e-9 && high.exp() - low.exp() > 0.5 {
            if times[0] <= times[1] {
                high = inner[1];
                inner = [high - GOLDEN * (high - low), inner[0]];
                times = [time(inner[0]), times[0]];
            } else {
                low = inner[0];
                inner = [inner[1], low + GOLDEN * (high - low)];
                times = [times[1], time(inner[1])];
            }
        }
        let found = 0.5 * (low + high);
        let grid = best.1;
        if time(found) <= best.0 { found } else { grid }.exp()
    }
}

/// A collective over `inside` ranks on each of so many nodes; bytes inside, and on the link of a node.
fn two_levels(
    network: &Network,
    seconds: impl Fn(&Timings, u64, f64) -> f64,
    inside: u64,
    nodes: u64,
    bytes: (f64, f64),
) -> f64 {
    let level = |timings: &Timings, ranks: u64, bytes: f64| {
        if ranks > 1 {
            seconds(timings, ranks, bytes)
        } else {
            0.0
        }
    };
    level(&network.inner, inside, bytes.0) + level(&network.outer, nodes, bytes.1)
}

/// All points of a task with these networks.
struct Planner<'a> {
    task: &'a Task,
    networks: &'a [Network<'a>],
}

impl Planner<'_> {
    fn point(
        &self,
        layout: &Layout,
        (network, strategy, workers): (usize, Strategy, u64),
        (batch, local_batch): (f64, f64),
    ) -> Point {
        let (step, micro_batches) = layout.step(local_batch);
        let seconds = step.total();
        let steps = self.task.law.steps(batch);
        let time = steps * seconds;
        Point {
            workers,
            strategy,
            network,
            groups: layout.groups,
            group: layout.group,
            batch,
            local_batch,
            micro_batches,
            steps,
            step,
            time,
            interval: self.task.law.bounds(batch).map(|i| Interval {
                low: i.low * seconds,
                high: i.high * seconds,
            }),
            cost: workers as f64 * time * self.task.device.price,
        }
    }

    /// The fastest with this strategy, at a batch if one is given.
    fn best(
        &self,
        (network, strategy, workers): (usize, Strategy, u64),
        batch: Option<u64>,
        slowdown: f64,
    ) -> Option<Point> {
        let sizes = strategy.sizes(workers, self.task.nodes);
        let points = sizes.into_iter().filter_map(|size| {
            let place = &self.networks[network];
            let layout = Layout::new(self.task, place, strategy, workers, size, slowdown)?;
            let (batch, local) = if let Some(batch) = batch {
                if batch < layout.groups {
                    return None;
                }
                (batch as f64, batch.div_ceil(layout.groups) as f64)
            } else {
                let local = layout.best_local()?;
                (local * layout.groups as f64, local)
            };
            Some(self.point(&layout, (network, strategy, workers), (batch, local)))
        });
        faster(points)
    }
}

fn faster(points: impl IntoIterator<Item = Point>) -> Option<Point> {
    points
        .into_iter()
        .reduce(|a, b| if b.time < a.time { b } else { a })
}

/// The fastest way to use so many workers with one strategy on one network, at this batch, or at the best
/// one if there is none. `None` where it cannot be: a model that does not fit, more stages than layers,
/// more groups than examples.
///
/// # Errors
/// If a number of the task cannot be.
pub fn point(
    task: &Task,
    network: &Network,
    strategy: Strategy,
    workers: u64,
    batch: Option<u64>,
) -> Result<Option<Point>, TaskError> {
    task.check()?;
    if workers == 0 {
        return Ok(None);
    }
    let planner = Planner {
        task,
        networks: std::slice::from_ref(network),
    };
    Ok(planner.best((0, strategy, workers), batch, task.slowdown(workers)))
}

/// Points of one strategy on one network, by workers; numbers that it cannot use are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The strategy.
    pub strategy: Strategy,
    /// The place of the network in the list.
    pub network: usize,
    /// The points.
    pub points: Vec<Point>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Every strategy on every network.
    pub series: Vec<Series>,
    /// The fastest of all series, by workers.
    pub best: Vec<Point>,
    /// The fastest of all: more workers are of no use.
    pub fastest: Point,
    /// The cheapest of all.
    pub cheapest: Point,
    /// Of `best`, the fewest workers that spend half of their time or more in communication.
    pub communication_half: Option<Point>,
    /// Of `best`, the fewest workers whose best batch is so large that a larger one is hardly worth it:
    /// [`worth_of_batch`](Point::worth_of_batch) is at most what was asked for.
    pub statistics_end: Option<Point>,
    /// Points than which none is both faster and cheaper, from the fastest on.
    pub front: Vec<Point>,
}

impl Plan {
    /// The cheapest that takes at most so many seconds.
    pub fn cheapest_within(&self, seconds: f64) -> Option<&Point> {
        self.front.iter().rfind(|point| point.time <= seconds)
    }

    /// The fastest that costs at most so much.
    pub fn fastest_within(&self, cost: f64) -> Option<&Point> {
        self.front.iter().find(|point| point.cost <= cost)
    }

    /// Of `best`, the most workers that are still used with this efficiency, T(1)/(p T(p)); `None` where
    /// one worker cannot do it alone.
    pub fn most_at_efficiency(&self, efficiency: f64) -> Option<&Point> {
        let one = self.best.first().filter(|point| point.workers == 1)?;
        let used = |point: &&Point| one.time / (point.workers as f64 * point.time) >= efficiency;
        self.best.iter().rfind(used)
    }
}

/// Numbers of workers to look at: all up to 16, 16 per octave from there, powers of two and the last.
fn numbers_of_workers(up_to: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (1..=16.min(up_to)).collect();
    let steps = ((up_to as f64).log2() * PER_OCTAVE).floor() as u32;
    numbers.extend((0..=steps).map(|i| (f64::from(i) / PER_OCTAVE).exp2().round() as u64));
    numbers.push(up_to);
    numbers.retain(|p| (1..=up_to).contains(p));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Time and cost against workers, up to so many (at least 1), for all strategies on all networks.
///
/// `worth` is the [`worth_of_batch`](Point::worth_of_batch) at which the statistics are said to stop
/// paying: at 0.5 the best batch has come to B_crit.
///
/// Every strategy has its best batch at every number of workers looked at: up to 16 all, then 16 in each
/// octave. `fastest`, `communication_half` and `statistics_end` are refined between them to one worker, and
/// all series have these numbers too.
/// `None` if no strategy can use any number of workers.
///
/// # Errors
/// If a number of the task cannot be.
pub fn plan(
    task: &Task,
    networks: &[Network],
    strategies: &[Strategy],
    up_to: u64,
    worth: f64,
) -> Result<Option<Plan>, TaskError> {
    task.check()?;
    let planner = Planner { task, networks };
    let numbers = numbers_of_workers(up_to);
    let slowdowns: Vec<f64> = numbers.iter().map(|&p| task.slowdown(p)).collect();
    let mut series = Vec::new();
    for network in 0..networks.len() {
        for &strategy in strategies {
            let points = numbers
                .iter()
                .zip(&slowdowns)
                .filter_map(|(&p, &slowdown)| planner.best((network, strategy, p), None, slowdown));
            series.push(Series {
                strategy,
                network,
                points: points.collect(),
            });
        }
    }
    let at =
        |p: u64| {
            let slowdown = task.slowdown(p);
            let ways = series.iter().map(|s| (s.network, s.strategy));
            faster(ways.filter_map(|(network, strategy)| {
                planner.best((network, strategy, p), None, slowdown)
            }))
        };
    let grid = best_of(&series);
    let Some(fastest) = faster(grid.iter().copied()) else {
        return Ok(None);
    };
    let fastest = refine(&numbers, fastest, &at);
    let half = |point: &Point| point.step.communication() >= 0.5;
    let ended = |point: &Point| point.worth_of_batch(&task.law) <= worth;
    let refined = [
        Some(fastest),
        first(&grid, &at, half),
        first(&grid, &at, ended),
    ];
    for p in refined.into_iter().flatten().map(|point| point.workers) {
        let slowdown = task.slowdown(p);
        for s in &mut series {
            let place = s.points.binary_search_by_key(&p, |point| point.workers);
            if let Err(place) = place
                && let Some(point) = planner.best((s.network, s.strategy, p), None, slowdown)
            {
                s.points.insert(place, point);
            }
        }
    }
    let best = best_of(&series);
    let fastest = faster(best.iter().copied()).unwrap_or(fastest);
    let communication_half = best.iter().copied().find(half);
    let statistics_end = best.iter().copied().find(ended);
    let front = pareto(series.iter().flat_map(|s| &s.points).copied().collect());
    // The front ends with the cheapest.
    let cheapest = *front.last().unwrap_or(&fastest);
    Ok(Some(Plan {
        series,
        best,
        fastest,
        cheapest,
        communication_half,
        statistics_end,
        front,
    }))
}

/// The fastest of all series, by workers.
fn best_of(series: &[Series]) -> Vec<Point> {
    let mut all: Vec<Point> = series.iter().flat_map(|s| &s.points).copied().collect();
    all.sort_by_key(|point| point.workers);
    all.chunk_by(|a, b| a.workers == b.workers)
        .filter_map(|here| faster(here.iter().copied()))
        .collect()
}

/// The fastest between the neighbours of the best of a grid, by ever finer grids.
fn refine(numbers: &[u64], grid: Point, at: &impl Fn(u64) -> Option<Point>) -> Point {
    let place = numbers.partition_point(|&p| p < grid.workers);
    let mut low = numbers[place.saturating_sub(1)];
    let mut high = numbers[(place + 1).min(numbers.len() - 1)];
    let mut best = grid;
    loop {
        let stride = (high - low).div_ceil(REFINEMENT).max(1);
        let between = (low..=high).step_by(stride as usize).filter_map(at);
        best = faster(std::iter::once(best).chain(between)).unwrap_or(best);
        if stride == 1 {
            return best;
        }
        low = low.max(best.workers.saturating_sub(stride));
        high = high.min(best.workers + stride);
    }
}

/// The first that has a property, refined between the last of the grid that has not and the first that
/// has.
fn first(
    best: &[Point],
    at: &impl Fn(u64) -> Option<Point>,
    has: impl Fn(&Point) -> bool,
) -> Option<Point> {
    let place = best.iter().position(&has)?;
    let mut found = best[place];
    let mut low = place
        .checked_sub(1)
        .map_or(found.workers, |p| best[p].workers);
    while found.workers - low > 1 {
        let middle = low + (found.workers - low) / 2;
        match at(middle).filter(&has) {
            Some(point) => found = point,
            None => low = middle,
        }
    }
    Some(found)
}

/// Points than which none is faster at no more cost or cheaper in no more time, from the fastest on.
pub fn pareto(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.cost.total_cmp(&b.cost)));
    let mut front: Vec<Point> = Vec::new();
    for point in points {
        if front.last().is_none_or(|last| point.cost < last.cost) {
            front.push(point);
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64, relative: f64) {
        assert!(
            (found - expected).abs() <= relative * expected.abs(),
            "{found} instead of {expected}"
        );
    }

    const FREE: Link = Link {
        latency: 0.0,
        overhead: 0.0,
        bandwidth: f64::INFINITY,
        seconds_per_byte_added: 0.0,
    };

    const SLOW: Link = Link {
        latency: 2e-5,
        overhead: 1e-5,
        bandwidth: 1e9,
        seconds_per_byte_added: 1e-10,
    };

    const FAST: Link = Link {
        latency: 2e-6,
        overhead: 1e-6,
        bandwidth: 1e11,
        seconds_per_byte_added: 1e-11,
    };

    /// A small network on MNIST, or so.
    fn task() -> Task {
        Task {
            law: StepsLaw {
                s_min: 500.0,
                b_crit: 200.0,
                intervals: None,
            },
            model: Model {
                parameters: 1e6,
                bytes_per_parameter: 4.0,
                layers: 12,
                activation_bytes: 4096.0,
                resident_bytes: 1.2e7,
            },
            device: Device {
                seconds_per_example: 1e-3,
                seconds_per_update: 2e-3,
                backward: 2.0 / 3.0,
                largest_local: None,
                memory_bytes: f64::INFINITY,
                price: 1.0,
                jitter: None,
            },
            nodes: Nodes {
                workers: 1,
                at_full_speed: f64::INFINITY,
            },
            overlap: 0.0,
            largest_batch: None,
        }
    }

    fn one(task: &Task, network: &Network, strategy: Strategy, workers: u64) -> Point {
        point(task, network, strategy, workers, None)
            .unwrap()
            .unwrap()
    }

    fn ring(link: Link) -> Network<'static> {
        Network::of_links(Form::Ring, link, link)
    }

    #[test]
    fn without_communication_time_and_batch_are_the_closed_form() {
        let mut task = task();
        task.device.seconds_per_update = 2.0;
        let (s, e) = (500.0, 500.0 * 200.0);
        for p in [1, 2, 7, 64, 300] {
            let found = one(&task, &ring(FREE), Strategy::Data, p);
            let b = (200.0 * 2.0 / (p as f64 * 1e-3)).sqrt();
            assert!((found.local_batch - b).abs() <= 1.0);
            let time = ((s * 2.0_f64).sqrt() + (e * 1e-3 / p as f64).sqrt()).powi(2);
            // Rounding to whole examples costs second order.
            close(found.time, time, 1e-5);
            assert!(found.time >= time * (1.0 - 1e-14));
            close(found.cost, p as f64 * found.time, 1e-15);
        }
        // Without a fixed cost one example each is best, and the limit is S_min updates of one example.
        task.device.seconds_per_update = 0.0;
        for p in [1, 200, 100_000_000] {
            let found = one(&task, &ring(FREE), Strategy::Data, p);
            assert_eq!(found.batch, p as f64);
            close(found.time, 500.0 * (1.0 + 200.0 / p as f64) * 1e-3, 1e-14);
        }
    }

    #[test]
    fn the_bandwidth_of_a_ring_does_not_depend_on_the_workers_in_the_limit() {
        let link = Link {
            latency: 0.0,
            overhead: 0.0,
            ..SLOW
        };
        let reduction = |p| {
            let found = point(&task(), &ring(link), Strategy::Data, p, Some(1 << 30));
            found.unwrap().unwrap().step.reduction
        };
        for p in [2, 16, 100_000] {
            let part = 1.0 - 1.0 / p as f64;
            close(reduction(p), part * 4e6 * (2e-9 + 1e-10), 1e-13);
        }
        assert_eq!(reduction(1), 0.0);
    }

    /// All whole batches, one by one.
    #[test]
    fn the_best_batch_is_the_best_of_all() {
        let variants: [fn(&mut Task); 6] = [
            |_| {},
            |task| task.overlap = 0.7,
            |task| (task.overlap, task.device.backward) = (1.0, 1.0),
            |task| (task.overlap, task.device.backward) = (0.5, 0.0),
            |task| task.device.largest_local = Some(13),
            |task| (task.largest_batch, task.law.b_crit) = (Some(300), 3000.0),
        ];
        let strategies = [
            Strategy::Data,
            Strategy::Features,
            Strategy::Pipeline,
            Strategy::FeatureGroups(Some(2)),
            Strategy::PipelineGroups(Some(4)),
            Strategy::FeatureGroups(None),
        ];
        for (index, vary) in variants.into_iter().enumerate() {
            for link in [SLOW, FAST] {
                for strategy in strategies {
                    for p in [1, 2, 5, 8, 12] {
                        let mut task = task();
                        task.nodes.workers = 4;
                        vary(&mut task);
                        let network = Network::of_links(Form::Rabenseifner, FAST, link);
                        let Some(found) = point(&task, &network, strategy, p, None).unwrap() else {
                            assert_eq!((strategy, p < 4), (strategy, true));
                            continue;
                        };
                        let most = task.largest_batch.unwrap_or(4000);
                        let all = (found.groups..=most).filter_map(|batch| {
                            point(&task, &network, strategy, p, Some(batch)).unwrap()
                        });
                        let best = faster(all).unwrap();
                        let context = format!("{index} {strategy:?} {p} {found:?} {best:?}");
                        assert!(found.batch < 4000.0, "{context}");
                        // Whole micro-batches make T uneven, and the search is not exact then.
                        let uneven = !matches!(
                            strategy,
                            Strategy::Data | Strategy::Features | Strategy::FeatureGroups(_)
                        ) || task.device.largest_local.is_some();
                        let tolerance = if uneven { 1e-3 } else { 1e-12 };
                        assert!(found.time <= best.time * (1.0 + tolerance), "{context}");
                    }
                }
            }
        }
    }

    #[test]
    fn hiding_communication_helps_as_far_as_the_backward_pass_lasts() {
        let mut task = task();
        let at = |task: &Task, batch| {
            let found = point(task, &ring(SLOW), Strategy::Data, 8, Some(batch));
            found.unwrap().unwrap().step
        };
        let shown = at(&task, 800);
        assert_eq!(shown.exposed, shown.reduction);
        task.overlap = 0.5;
        let half = at(&task, 800);
        close(half.exposed, 0.5 * shown.reduction, 1e-14);
        close(half.total(), shown.total() - 0.5 * shown.reduction, 1e-14);
        // One example each: a backward pass of 2 ms, and 7.8 ms to be hidden.
        task.overlap = 1.0;
        let short = at(&task, 8);
        close(short.exposed, shown.reduction - 2e-3, 1e-13);
    }

    #[test]
    fn faster_machines_and_links_never_take_longer() {
        let strategies = [
            Strategy::Data,
            Strategy::Features,
            Strategy::Pipeline,
            Strategy::FeatureGroups(None),
            Strategy::PipelineGroups(None),
        ];
        for form in Form::ALL {
            let network = |inner, outer| Network::of_links(form, inner, outer);
            for strategy in strategies {
                for p in [1, 3, 8, 12] {
                    let time =
                        |task: &Task, network: &Network| one(task, network, strategy, p).time;
                    let mut task = task();
                    task.nodes.workers = 4;
                    let slow = time(&task, &network(SLOW, SLOW));
                    let mixed = time(&task, &network(FAST, SLOW));
                    let fast = time(&task, &network(FAST, FAST));
                    assert!(fast <= mixed && mixed <= slow);
                    for change in [
                        |task: &mut Task| task.overlap = 0.9,
                        |task: &mut Task| task.device.seconds_per_example *= 0.5,
                        |task: &mut Task| task.device.seconds_per_update *= 0.5,
                        |task: &mut Task| task.law.b_crit *= 0.5,
                        |task: &mut Task| task.law.s_min *= 0.9,
                        |task: &mut Task| task.model.parameters *= 0.5,
                        |task: &mut Task| task.model.activation_bytes *= 0.5,
                    ] {
                        let mut better = task;
                        change(&mut better);
                        assert!(time(&better, &network(SLOW, SLOW)) <= slow * (1.0 + 1e-12));
                    }
                }
            }
        }
    }

    #[test]
    fn links_have_the_textbooks_times() {
        let (a, b, c) = (3e-5, 1e-9, 1e-10);
        let n = 1000.0;
        for p in [2_u64, 8, 1024] {
            let q = p as f64;
            let log = q.log2();
            let part = (q - 1.0) / q;
            let expected = [
                (Form::Flat, (q - 1.0) * (2.0 * (a + n * b) + n * c)),
                (Form::Binomial, log * (2.0 * (a + n * b) + n * c)),
                (
                    Form::Ring,
                    2.0 * (q - 1.0) * a + 2.0 * part * n * b + part * n * c,
                ),
                (Form::RecursiveDoubling, log * (a + n * b + n * c)),
                (
                    Form::Rabenseifner,
                    2.0 * log * a + 2.0 * part * n * b + part * n * c,
                ),
            ];
            for (form, seconds) in expected {
                close(SLOW.all_reduce(form, p, n), seconds, 1e-13);
                let bound = log * a + part * n * b;
                assert!(SLOW.all_gather(form, p, n) >= bound * (1.0 - 1e-13));
            }
        }
        // Three ranks: two and one that is folded.
        let fold = 2.0 * (a + n * b) + n * c;
        let found = SLOW.all_reduce(Form::RecursiveDoubling, 3, n);
        close(found, a + n * b + n * c + fold, 1e-13);
        close(SLOW.all_reduce(Form::Binomial, 3, n), 2.0 * fold, 1e-13);
    }

    #[test]
    fn built_in_forms_are_the_exact_ones_where_ranks_are_powers_of_two() {
        use crate::theory::collectives::{Algorithm, Case, Hockney, Operation};
        let model = Hockney {
            alpha: 3e-5,
            beta: 1e-9,
            gamma: 1e-10,
        };
        for (form, algorithm) in [
            (Form::Flat, Algorithm::Flat),
            (Form::Binomial, Algorithm::Binomial),
            (Form::Ring, Algorithm::Ring),
            (Form::RecursiveDoubling, Algorithm::RecursiveDoubling),
            (Form::Rabenseifner, Algorithm::Rabenseifner),
        ] {
            for ranks in [2, 4, 64] {
                let case = |operation| Case {
                    operation,
                    algorithm,
                    ranks,
                    elements: 6400,
                    element_bytes: 4,
                };
                let bytes = 4.0 * 6400.0;
                let exact = case(Operation::AllReduce).time(&model).unwrap();
                close(SLOW.all_reduce(form, ranks as u64, bytes), exact, 1e-12);
                if let Some(exact) = case(Operation::AllGather).time(&model) {
                    close(SLOW.all_gather(form, ranks as u64, bytes), exact, 1e-12);
                }
            }
        }
    }

    fn wire(link: Link) -> Wire {
        Wire::Hockney(Hockney {
            alpha: link.latency + link.overhead,
            beta: 1.0 / link.bandwidth,
            gamma: link.seconds_per_byte_added,
        })
    }

    fn exact(ways: &[Way]) -> Exact {
        Exact {
            name: "exact".to_owned(),
            ways: ways.to_vec(),
            inner: wire(FAST),
            outer: wire(SLOW),
            element_bytes: 4,
        }
    }

    #[test]
    fn exact_collectives_are_the_textbooks_where_these_are_exact() {
        for (form, way) in [
            (Form::Flat, Way::Flat),
            (Form::Binomial, Way::Binomial),
            (Form::Ring, Way::Ring),
            (Form::RecursiveDoubling, Way::RecursiveDoubling),
            (Form::Rabenseifner, Way::Rabenseifner),
        ] {
            let exact = exact(&[way]);
            let (found, expected) = (exact.network(), Network::of_links(form, FAST, SLOW));
            for ranks in [2, 8, 1024] {
                let bytes = 4.0 * 102_400.0;
                let outer = (found.outer.all_reduce)(ranks, bytes);
                close(outer, (expected.outer.all_reduce)(ranks, bytes), 1e-12);
                let inner = (found.inner.all_gather)(ranks, bytes);
                close(inner, (expected.inner.all_gather)(ranks, bytes), 1e-12);
            }
            close((found.outer.message)(100.0), SLOW.message(100.0), 1e-12);
            // 3 elements and a part of one.
            let part = (found.outer.all_reduce)(5, 13.0);
            assert_eq!(part, (found.outer.all_reduce)(5, 16.0));
            assert_eq!((found.outer.all_reduce)(5, 0.0), 0.0);
        }
    }

    #[test]
    fn the_best_of_all_ways_is_the_fastest_of_each_at_every_size() {
        let all = exact(&Way::all(2));
        let mut chosen = Vec::new();
        for ranks in [2, 3, 8, 1000] {
            for bytes in [4.0, 4e3, 4e6, 4e9] {
                let (way, seconds) = all
                    .fastest(&all.outer, Operation::AllReduce, ranks, bytes)
                    .unwrap();
                for other in Way::all(2) {
                    let alone = exact(&[other]);
                    let time = (alone.network().outer.all_reduce)(ranks, bytes);
                    assert!(seconds <= time && time.is_finite());
                    assert!(way != other || seconds == time);
                }
                chosen.push(way);
                let gather = all.fastest(&all.outer, Operation::AllGather, ranks, bytes);
                assert!(gather.unwrap().0.gathers());
            }
        }
        chosen.sort_by_key(|way| way.name());
        chosen.dedup();
        assert!(chosen.len() > 2, "{chosen:?}");
        assert_eq!(
            exact(&[]).fastest(&all.outer, Operation::AllReduce, 2, 4.0),
            None
        );
    }

    #[test]
    fn a_chain_has_the_best_number_of_segments() {
        use crate::theory::collectives::best_segments;
        let chain = exact(&[Way::Chain]);
        for ranks in [2_u64, 3, 17, 500] {
            for elements in [1_usize, 100, 50_000, 2_000_000] {
                let operation = Operation::AllReduce;
                let best = best_segments(operation, ranks as usize, elements, 4, &chain.outer);
                let case = Case {
                    operation,
                    algorithm: Algorithm::Chain {
                        segments: best.unwrap(),
                    },
                    ranks: ranks as usize,
                    elements,
                    element_bytes: 4,
                };
                let found = (chain.network().outer.all_reduce)(ranks, 4.0 * elements as f64);
                // Elements are whole: the best number may differ by a little.
                close(found, case.time(&chain.outer).unwrap(), 2e-3);
            }
        }
    }

    #[test]
    fn a_processor_that_works_on_messages_slows_loggp_down() {
        let loggp = |overhead| {
            Wire::LogGp(LogGp {
                latency: 2e-5,
                overhead,
                gap: overhead,
                byte_gap: 1e-9,
                gamma: 1e-10,
            })
        };
        let exact = exact(&Way::all(4));
        for ranks in [2, 5, 64] {
            let time = |overhead| {
                let found = exact.fastest(&loggp(overhead), Operation::AllReduce, ranks, 4e5);
                found.unwrap().1
            };
            assert!(time(1e-6) < time(5e-6));
        }
    }

    #[test]
    fn nodes_sum_inside_first_and_then_over_their_one_link() {
        let mut task = task();
        task.nodes.workers = 4;
        let network = Network::of_links(Form::Ring, FAST, SLOW);
        let reduction = |strategy, p| {
            let found = point(&task, &network, strategy, p, Some(1024)).unwrap();
            found.unwrap().step.reduction
        };
        let n = 4e6;
        let inner = |ranks, bytes| FAST.all_reduce(Form::Ring, ranks, bytes);
        let outer = |ranks, bytes| SLOW.all_reduce(Form::Ring, ranks, bytes);
        close(reduction(Strategy::Data, 4), inner(4, n), 1e-14);
        close(
            reduction(Strategy::Data, 32),
            inner(4, n) + outer(8, n),
            1e-14,
        );
        // Pairs: two groups on a node, two sums of half of the gradients over its link.
        let pairs = Strategy::FeatureGroups(Some(2));
        close(reduction(pairs, 32), inner(2, n / 2.0) + outer(8, n), 1e-14);
        // A group on two nodes: four sums of an eighth at once.
        let wide = Strategy::FeatureGroups(Some(8));
        close(reduction(wide, 32), outer(4, n / 2.0), 1e-14);
        assert_eq!(reduction(Strategy::Features, 32), 0.0);
    }

    #[test]
    fn strategies_take_what_their_formulas_say() {
        let task = task();
        let at = |strategy, p, batch| {
            let found = point(&task, &ring(SLOW), strategy, p, Some(batch));
            found.unwrap().unwrap()
        };
        let features = at(Strategy::Features, 4, 100).step;
        close(features.compute, 2e-3 + 100.0 * 1e-3 / 4.0, 1e-14);
        let bytes = 100.0 * 4096.0;
        let exchange =
            12.0 * (SLOW.all_gather(Form::Ring, 4, bytes) + SLOW.all_reduce(Form::Ring, 4, bytes));
        close(features.exchange, exchange, 1e-14);
        let found = at(Strategy::Pipeline, 4, 100);
        let m = found.micro_batches as f64;
        let slots = m + 3.0;
        close(found.step.compute, (m * 2e-3 + 0.1) / 4.0, 1e-14);
        let bubble = found.step.bubble / (found.step.bubble + found.step.compute);
        close(bubble, 3.0 / slots, 1e-13);
        let exchange = slots * 2.0 * SLOW.message(bytes / m);
        close(found.step.exchange, exchange, 1e-13);
        // No other number of micro-batches is better.
        let total = |m: f64| {
            let slot = (2e-3 + 0.1 / m) / 4.0 + 2.0 * SLOW.message(bytes / m);
            (m + 3.0) * slot
        };
        close(total(m), found.step.total(), 1e-13);
        for other in 1..=100 {
            assert!(total(f64::from(other)) >= total(m) * (1.0 - 1e-14));
        }
        // One worker is one worker.
        let alone = at(Strategy::Data, 1, 100);
        for strategy in [Strategy::Features, Strategy::Pipeline] {
            assert_eq!(at(strategy, 1, 100).step, alone.step);
        }
        assert_eq!(
            point(&task, &ring(SLOW), Strategy::Pipeline, 13, None),
            Ok(None)
        );
        assert_eq!(point(&task, &ring(SLOW), Strategy::Data, 0, None), Ok(None));
    }

    #[test]
    fn memory_and_shared_cores_and_stragglers_count() {
        let mut task = task();
        task.device.memory_bytes = 4e6;
        let at =
            |task: &Task, strategy, p| point(task, &ring(FAST), strategy, p, Some(96)).unwrap();
        assert_eq!(at(&task, Strategy::Data, 3), None);
        assert_eq!(at(&task, Strategy::Features, 2), None);
        assert!(at(&task, Strategy::Features, 3).is_some());
        let best = at(&task, Strategy::FeatureGroups(None), 8).unwrap();
        assert!(best.group >= 4);
        task.device.memory_bytes = f64::INFINITY;
        task.nodes = Nodes {
            workers: 4,
            at_full_speed: 2.0,
        };
        let compute = |task: &Task, p| at(task, Strategy::Data, p).unwrap().step.compute;
        close(compute(&task, 2), 2e-3 + 48e-3, 1e-14);
        close(compute(&task, 4), 2.0 * (2e-3 + 24e-3), 1e-14);
        close(compute(&task, 8), 2.0 * (2e-3 + 12e-3), 1e-14);
        task.nodes.at_full_speed = f64::INFINITY;
        task.device.jitter = Some(Times::Exponential { mean: 3.0 });
        close(compute(&task, 2), 1.5 * (2e-3 + 48e-3), 1e-14);
    }

    fn everything(task: &Task, up_to: u64) -> Plan {
        let networks = Form::ALL.map(|form| Network::of_links(form, FAST, SLOW));
        let strategies = [
            Strategy::Data,
            Strategy::Features,
            Strategy::Pipeline,
            Strategy::FeatureGroups(None),
            Strategy::PipelineGroups(None),
        ];
        plan(task, &networks, &strategies, up_to, 0.5)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn the_answers_are_those_of_every_number_of_workers() {
        let mut task = task();
        task.nodes.workers = 4;
        let up_to = 400;
        let plan = everything(&task, up_to);
        let networks = Form::ALL.map(|form| Network::of_links(form, FAST, SLOW));
        let mut all = Vec::new();
        for p in 1..=up_to {
            let ways = plan
                .series
                .iter()
                .filter_map(|s| point(&task, &networks[s.network], s.strategy, p, None).unwrap());
            all.push(faster(ways).unwrap());
        }
        let fastest = faster(all.iter().copied()).unwrap();
        close(plan.fastest.time, fastest.time, 1e-14);
        assert!((1..up_to).contains(&plan.fastest.workers));
        let half = all.iter().find(|p| p.step.communication() >= 0.5);
        assert_eq!(
            plan.communication_half.map(|p| p.workers),
            half.map(|p| p.workers)
        );
        let end = all.iter().find(|p| p.batch >= 200.0);
        assert_eq!(
            plan.statistics_end.map(|p| p.workers),
            end.map(|p| p.workers)
        );
        assert!(plan.best.is_sorted_by(|a, b| a.workers < b.workers));
        let answers = [
            Some(plan.fastest),
            plan.communication_half,
            plan.statistics_end,
        ];
        for point in answers.into_iter().flatten() {
            assert!(plan.best.contains(&point));
            let data = plan.series.iter().filter(|s| s.strategy == Strategy::Data);
            for series in data {
                assert!(series.points.iter().any(|p| p.workers == point.workers));
            }
        }
        for series in &plan.series {
            assert!(series.points.is_sorted_by(|a, b| a.workers < b.workers));
        }
        // None of the front is beaten, and what it leaves out is.
        assert_eq!(plan.front.first().map(|p| p.time), Some(plan.fastest.time));
        assert_eq!(plan.front.last(), Some(&plan.cheapest));
        assert!(
            plan.front
                .is_sorted_by(|a, b| a.time < b.time && a.cost > b.cost)
        );
        for point in plan.series.iter().flat_map(|s| &s.points) {
            let beaten = |f: &&Point| f.time <= point.time && f.cost <= point.cost;
            assert!(plan.front.iter().any(|f| beaten(&f)));
        }
        assert_eq!(plan.cheapest.workers, 1);
        let limit = 2.0 * plan.fastest.time;
        let within = plan.cheapest_within(limit).unwrap();
        assert!(within.time <= limit && within.cost < plan.fastest.cost);
        let paid = plan.fastest_within(within.cost).unwrap();
        assert_eq!(paid.time, within.time);
        assert!(plan.fastest_within(0.0).is_none());
        assert_eq!(plan.most_at_efficiency(1.0).map(|p| p.workers), Some(1));
        assert!(plan.most_at_efficiency(0.3).unwrap().workers > 1);
    }

    #[test]
    fn an_interval_of_steps_is_an_interval_of_time() {
        let mut task = task();
        let interval = |low, high| Interval { low, high };
        task.law.intervals = Some(StepsIntervals {
            s_min: interval(450.0, 550.0),
            e_min: interval(9e4, 1.2e5),
        });
        let found = one(&task, &ring(SLOW), Strategy::Data, 16);
        let times = found.interval.unwrap();
        assert!(times.contains(found.time));
        let low = (450.0 + 9e4 / found.batch) * found.step.total();
        close(times.low, low, 1e-14);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_by_name() {
        let mut wrong = task();
        wrong.device.seconds_per_example = 0.0;
        let refused = |task: &Task| {
            let networks = [ring(SLOW)];
            let found = plan(task, &networks, &[Strategy::Data], 10, 0.5);
            found.unwrap_err().to_string()
        };
        let expected = "seconds_per_example should be above 0 and finite, found 0";
        assert_eq!(refused(&wrong), expected);
        let mut wrong = task();
        wrong.overlap = f64::NAN;
        assert_eq!(
            refused(&wrong),
            "overlap should be between 0 and 1, found NaN"
        );
        let mut wrong = task();
        wrong.nodes.workers = 0;
        assert_eq!(
            refused(&wrong),
            "workers of a node should be at least 1, found 0"
        );
        let mut wrong = task();
        wrong.device.jitter = Some(Times::LogNormal {
            mean: 1.0,
            cv: -1.0,
        });
        let expected = "cv of the jitter should be at least 0 and finite, found -1";
        assert_eq!(refused(&wrong), expected);
        let none = plan(&task(), &[], &[Strategy::Data], 10, 0.5);
        assert_eq!(none, Ok(None));
        let groups = [
            (Strategy::Data, Some(1)),
            (Strategy::Features, Some(100)),
            (Strategy::FeatureGroups(None), Some(64)),
            (Strategy::FeatureGroups(Some(30)), Some(30)),
            (Strategy::PipelineGroups(Some(101)), None),
        ];
        for (strategy, most) in groups {
            assert_eq!(strategy.largest_group(&task(), 100), most);
        }
        let mut few = task();
        few.model.layers = 12;
        assert_eq!(Strategy::Pipeline.largest_group(&few, 100), Some(12));
        let grouped = Strategy::PipelineGroups(None);
        assert_eq!(grouped.largest_group(&few, 100), Some(8));
        let mut small = task();
        small.device.memory_bytes = 1.0;
        assert_eq!(
            plan(&small, &[ring(SLOW)], &[Strategy::Data], 10, 0.5),
            Ok(None)
        );
        assert_eq!(
            plan(&task(), &[ring(SLOW)], &[Strategy::Data], 0, 0.5),
            Ok(None)
        );
    }

    /// 85 million parameters on 100,000 workers: Zhang et al. 2024 (arXiv 2410.21676), S(B) fitted to
    /// their steps.
    #[test]
    fn a_large_plan_ends_where_its_limits_are() {
        let mut task = task();
        task.law = StepsLaw {
            s_min: 1265.0,
            b_crit: 2241.0,
            intervals: None,
        };
        task.model.parameters = 85e6;
        task.device.seconds_per_example = 5e-3;
        task.nodes.workers = 8;
        let plan = everything(&task, 100_000);
        assert!((1..100_000).contains(&plan.fastest.workers));
        // No update is shorter than one of one example, and no batch saves more than to S_min updates.
        for point in plan.series.iter().flat_map(|s| &s.points) {
            assert!(point.time >= 1265.0 * 5e-3 / point.group as f64);
            assert!(point.time.is_finite() && point.batch >= point.groups as f64);
        }
        let half = plan.communication_half.unwrap();
        assert!(half.step.communication() >= 0.5);
        let end = plan.statistics_end.unwrap();
        assert!(end.batch >= 2241.0);
    }
}
