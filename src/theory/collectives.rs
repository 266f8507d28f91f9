//! What collective operations cost: time, messages, bytes, memory and energy, exact for any number
//! of ranks and any length, for the schedules that `collective::schedule` makes.
//!
//! n bytes, p ranks. The models:
//!
//! - [`Hockney`]: a message of m bytes takes alpha + m beta, in which it holds the sending port of
//!   one rank and the receiving port of the other (one port each way, both at once); adding it
//!   takes the receiver m gamma more. Neither end waits for anything but the other. Hockney 1994
//!   (Parallel Computing 20, 389).
//! - [`LogGp`]: a send costs the processor o; the last byte arrives (m-1)G + L later; taking it in
//!   costs o again. Two sends start max(g, o) + (m-1)G apart, m of the former, and the network
//!   interface takes messages in, in the order of the program, max(g, o) + (m-1)G apart, m of the
//!   latter. Alexandrov et al. 1995 (LogGP, SPAA '95), with m gamma for adding as above. The closed
//!   forms hold for g <= L + 2o, which the model's own limit of L/g messages under way implies.
//!
//! Written w(m) for the first message over an idle link and s(m) for each further message of the
//! same port; w+ and s+ when the receiver adds:
//!
//! | | Hockney | LogGP |
//! |---|---|---|
//! | w(m) | alpha + m beta | 2o + L + (m-1)G |
//! | s(m) | alpha + m beta | max(g, o) + (m-1)G |
//! | w+(m) | alpha + m(beta + gamma) | w(m) + m gamma |
//! | s+(m) | alpha + m(beta + gamma) | max(s(m), o + m gamma) |
//!
//! A vector cut into parts has the longer parts first ([`Blocks`]). N = min(p, elements) is the
//! number of ranks with a block that is not empty, n_r the block of rank r; no message is empty.
//! P is the largest power of two up to p and K = log2 P. E(i) is the length of the first i parts.
//!
//! | algorithm, operation | time |
//! |---|---|
//! | flat, broadcast and reduce | w + (p-2)s, w+ + (p-2)s+ |
//! | flat, scatter and gather | s(n_1) + ... + s(n_(N-2)) + w(n_(N-1)) |
//! | k-ary tree, broadcast | B(p), B(1) = 0, B(t) = max over children i = 0, 1, .. of i s + w + B(t_i); d k w in Hockney's model where all d levels are full; reduce the same in w+, s+ |
//! | binomial, broadcast | ceil(log2 p) w in Hockney's model; B(t) = max(w + B(t - 2^b), s + b w) in general, 2^b < t <= 2^(b+1); reduce the same in w+, s+ |
//! | trees, scatter and gather | as broadcast, with the bytes of each subtree; ceil(log2 N) alpha + (n - n_0) beta for the binomial tree in Hockney's model |
//! | these, all-reduce and all-gather | reduce + broadcast, gather + broadcast |
//! | chain of c segments of up to m bytes | Hockney: c alpha + n beta + (p-2)(alpha + m beta), beta + gamma for beta when adding; LogGP: [`LogGp`]'s [`Model::chain`] |
//! | ring, all-gather; all-reduce | (p-1) w(E(1)); that + (p-1) w+(E(1)); p parts |
//! | direct, all-gather; all-reduce | (p-1) w(E(1)), (p-1) w+(n) in Hockney's model; LogGP: [`LogGp`]'s [`Model::direct`] |
//! | recursive doubling, all-reduce | K w+(n), and where p > P once w+(n) + w(n) for folding |
//! | recursive doubling, all-gather | w(E(min(2^t, p-P) + 2^t)) over t < K, p parts; where p > P once w(n_1) + w(n) |
//! | Rabenseifner, all-reduce | w+(E(2^t)) + w(E(2^t)) over t < K, P parts; where p > P once w+(n) + w(n) |
//!
//! Where p is a power of two that divides the elements these are the forms of the textbooks:
//! Chan, Heimlich, Purkayastha and van de Geijn 2007 (Concurrency and Computation 19, 1749); Thakur,
//! Rabenseifner and Gropp 2005 (IJHPCA 19, 49); ring: Patarasuk and Yuan 2009 (JPDC 69, 117).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Range};

/// What a collective operation does. The root is rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The root's vector to all.
    Broadcast,
    /// The sum of all vectors to the root.
    Reduce,
    /// The sum of all vectors to all.
    AllReduce,
    /// The block of each rank to all.
    AllGather,
    /// Block r of the root's vector to rank r.
    Scatter,
    /// The block of each rank to the root.
    Gather,
}

impl Operation {
    /// All six.
    pub const ALL: [Self; 6] = [
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::AllGather,
        Self::Scatter,
        Self::Gather,
    ];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
        })
    }
}

/// How a collective operation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// The root speaks with each rank in turn.
    Flat,
    /// A tree of `k` children a node, as balanced as can be; each subtree is a run of ranks.
    KaryTree {
        /// Children of a node, at least 1.
        k: usize,
    },
    /// The binomial tree: the parent of a rank is that rank without its lowest set bit.
    Binomial,
    /// A pipeline through all ranks in order, in segments.
    Chain {
        /// Segments of the vector, at least 1; no more than there are elements are used.
        segments: usize,
    },
    /// Blocks go round a ring.
    Ring,
    /// Each rank speaks with each.
    Direct,
    /// The butterfly in which what is exchanged doubles (all-gather) or is the whole (all-reduce).
    RecursiveDoubling,
    /// The butterfly that halves what it adds, then doubles what it gathers.
    Rabenseifner,
}

impl Algorithm {
    /// Whether the algorithm can do the operation.
    ///
    /// ```
    /// # use batchlab::theory::collectives::{Algorithm, Operation};
    /// assert!(Algorithm::Ring.can(Operation::AllReduce));
    /// assert!(!Algorithm::Ring.can(Operation::Scatter));
    /// ```
    pub fn can(self, operation: Operation) -> bool {
        use Operation::{AllGather, AllReduce, Broadcast, Reduce};
        match self {
            Self::Flat | Self::Binomial => true,
            Self::KaryTree { k } => k > 0,
            Self::Chain { segments } => {
                segments > 0 && matches!(operation, Broadcast | Reduce | AllReduce)
            }
            Self::Ring | Self::Direct | Self::RecursiveDoubling => {
                matches!(operation, AllReduce | AllGather)
            }
            Self::Rabenseifner => operation == AllReduce,
        }
    }

    /// The subtrees of a node that stands for the ranks `node` and is the first of them, in the
    /// order in which it sends to them (and the opposite of that in which it receives). Empty for
    /// algorithms that are no trees.
    ///
    /// ```
    /// # use batchlab::theory::collectives::Algorithm;
    /// assert_eq!(Algorithm::Binomial.subtrees(0..6), [4..6, 2..4, 1..2]);
    /// assert_eq!(Algorithm::KaryTree { k: 2 }.subtrees(0..6), [1..4, 4..6]);
    /// ```
    pub fn subtrees(self, node: Range<usize>) -> Vec<Range<usize>> {
        let others = node.len().saturating_sub(1);
        let arity = match self {
            Self::Flat => others,
            Self::KaryTree { k } => k.min(others),
            Self::Binomial => {
                let mut subtrees = Vec::new();
                let mut end = node.end;
                while end > node.start + 1 {
                    let half = 1 << (end - node.start - 1).ilog2();
                    subtrees.push(node.start + half..end);
                    end = node.start + half;
                }
                return subtrees;
            }
            _ => 0,
        };
        let parts = Blocks::new(others, arity);
        (0..arity)
            .map(|i| node.start + 1 + parts.start(i)..node.start + 1 + parts.start(i + 1))
            .collect()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flat => "flat",
            Self::KaryTree { k } => return f.pad(&format!("{k}-ary tree")),
            Self::Binomial => "binomial tree",
            Self::Chain { segments: 1 } => "chain of 1 segment",
            Self::Chain { segments } => return f.pad(&format!("chain of {segments} segments")),
            Self::Ring => "ring",
            Self::Direct => "direct",
            Self::RecursiveDoubling => "recursive doubling",
            Self::Rabenseifner => "Rabenseifner",
        })
    }
}

/// A vector cut into parts whose lengths differ by one at most, the longer ones first.
///
/// ```
/// # use batchlab::theory::collectives::Blocks;
/// let blocks = Blocks::new(7, 3);
/// assert_eq!([blocks.range(0), blocks.range(1), blocks.range(2)], [0..3, 3..5, 5..7]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    elements: usize,
    /// Length of the shorter parts.
    short: usize,
    /// How many parts are longer by one.
    long: usize,
}

impl Blocks {
    /// `elements` in `parts` parts; in none if `parts` is 0.
    pub fn new(elements: usize, parts: usize) -> Self {
        Self {
            elements,
            short: elements.checked_div(parts).unwrap_or(0),
            long: elements.checked_rem(parts).unwrap_or(0),
        }
    }

    /// Where part `i` starts, which is where part `i - 1` ends.
    pub fn start(&self, i: usize) -> usize {
        (i.saturating_mul(self.short) + i.min(self.long)).min(self.elements)
    }

    /// The elements of part `i`.
    pub fn range(&self, i: usize) -> Range<usize> {
        self.start(i)..self.start(i + 1)
    }

    /// The elements of the parts `parts`.
    pub fn span(&self, parts: Range<usize>) -> Range<usize> {
        self.start(parts.start)..self.start(parts.end)
    }

    /// Length of part `i`.
    pub fn size(&self, i: usize) -> usize {
        self.range(i).len()
    }

    /// How many parts are longer than the others; 0 if all are equal.
    pub fn longer(&self) -> usize {
        self.long
    }
}

/// A number that a time can be: `f64` seconds, or `i128` in any unit, with which sums are exact.
pub trait Quantity: Copy + PartialOrd + Default + fmt::Debug + Add<Output = Self> {
    /// The quantity, so many times.
    fn times(self, count: u128) -> Self;
    /// The larger of two.
    fn or_later(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

impl Quantity for f64 {
    fn times(self, count: u128) -> Self {
        self * count as f64
    }
}

impl Quantity for i128 {
    fn times(self, count: u128) -> Self {
        self.saturating_mul(i128::try_from(count).unwrap_or(i128::MAX))
    }
}

/// Hockney's model: alpha-beta-gamma.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hockney<T> {
    /// Latency of a message.
    pub alpha: T,
    /// Time of a byte on the wire.
    pub beta: T,
    /// Time to add a byte.
    pub gamma: T,
}

/// The LogGP model, and the time to add a byte.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogGp<T> {
    /// L, on the wire.
    pub latency: T,
    /// o, of the processor, for each send and each receive.
    pub overhead: T,
    /// g, between messages.
    pub gap: T,
    /// G, between the bytes of a message.
    pub byte_gap: T,
    /// Time to add a byte.
    pub gamma: T,
}

/// What the closed forms ask of a model. Lengths in bytes, none of them 0.
pub trait Model {
    /// What times are counted in.
    type Time: Quantity;

    /// w(m), or w+(m) if the receiver adds: from the start of a send to the end of its receipt.
    fn first(&self, bytes: u128, adds: bool) -> Self::Time;

    /// s(m), or s+(m): what one more message of the same port takes.
    fn next(&self, bytes: u128, adds: bool) -> Self::Time;

    /// A pipeline of `ranks` (at least 2) ranks, its segments given by their bytes.
    fn chain(&self, ranks: usize, segments: Segments, adds: bool) -> Self::Time;

    /// Each rank sends up to `bytes` to each of `peers` others and then takes `receipts` messages.
    fn direct(&self, peers: usize, bytes: u128, receipts: usize, adds: bool) -> Self::Time;
}

/// Segments of a pipeline: `long` of `long_bytes`, then `short` of `short_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// At least 1.
    pub long: usize,
    /// Bytes of each of them.
    pub long_bytes: u128,
    /// May be 0.
    pub short: usize,
    /// Bytes of each of them.
    pub short_bytes: u128,
}

impl<T: Quantity> Model for Hockney<T> {
    type Time = T;

    fn first(&self, bytes: u128, adds: bool) -> T {
        let wire = self.alpha + self.beta.times(bytes);
        if adds {
            wire + self.gamma.times(bytes)
        } else {
            wire
        }
    }

    fn next(&self, bytes: u128, adds: bool) -> T {
        self.first(bytes, adds)
    }

    /// All segments over one link and the longest over the others.
    fn chain(&self, ranks: usize, segments: Segments, adds: bool) -> T {
        let long = self.first(segments.long_bytes, adds);
        let mut time = long.times((segments.long + ranks - 2) as u128);
        if segments.short > 0 {
            time = time
                + self
                    .first(segments.short_bytes, adds)
                    .times(segments.short as u128);
        }
        time
    }

    fn direct(&self, peers: usize, bytes: u128, _receipts: usize, adds: bool) -> T {
        self.first(bytes, adds).times(peers as u128)
    }
}

impl<T: Quantity> LogGp<T> {
    /// max(g, o) + (m-1)G.
    fn port(&self, bytes: u128) -> T {
        self.gap.or_later(self.overhead) + self.byte_gap.times(bytes.saturating_sub(1))
    }

    /// o, and m gamma if the receiver adds: what the processor spends on a message that is there.
    fn receipt(&self, bytes: u128, adds: bool) -> T {
        if adds {
            self.overhead + self.gamma.times(bytes)
        } else {
            self.overhead
        }
    }

    /// The slower of the port and of the processor of a rank that sends and receives each segment.
    fn relay(&self, sent: u128, received: u128, adds: bool) -> T {
        self.port(sent)
            .or_later(self.overhead + self.receipt(received, adds))
    }
}

impl<T: Quantity> Model for LogGp<T> {
    type Time = T;

    fn first(&self, bytes: u128, adds: bool) -> T {
        self.overhead
            + self.byte_gap.times(bytes.saturating_sub(1))
            + self.latency
            + self.receipt(bytes, adds)
    }

    fn next(&self, bytes: u128, adds: bool) -> T {
        self.port(bytes).or_later(self.receipt(bytes, adds))
    }

    /// x segments of M bytes, then y of m bytes; r(m) = o (+ m gamma) the receipt. With three ranks
    /// or more and y = 0: (p-1) w(M) + (x-1) max(s(M), o + r(M)), since a rank between two others
    /// pays o for the receipt and for the send of each segment. With y > 0 the later of
    ///
    /// - (p-2) w(M) + (x-1) max(s(M), o + r(M)) + max(s(M), o + r(m)) + (y-1) max(s(m), o + r(m)) + w(m),
    /// - (p-1) w(M) + (x-1) max(s(M), o + r(M)) + y r(m): the last rank, busy with what is there.
    ///
    /// With two ranks: the latest of the arrival of segment j and all receipts from j on, which is
    /// at the first or the last j of either length.
    fn chain(&self, ranks: usize, segments: Segments, adds: bool) -> T {
        let Segments {
            long,
            long_bytes,
            short,
            short_bytes,
        } = segments;
        let hops = ranks as u128 - 1;
        if hops == 1 {
            let gap = self.gap.or_later(self.overhead);
            let from = |j: usize| {
                let (long_sent, short_sent) = (long.min(j + 1), (j + 1).saturating_sub(long));
                let sent = long_sent as u128 * long_bytes.saturating_sub(1)
                    + short_sent as u128 * short_bytes.saturating_sub(1);
                let (long_left, short_left) = (long.saturating_sub(j), short.min(long + short - j));
                self.overhead
                    + self.latency
                    + self.byte_gap.times(sent)
                    + gap.times(j as u128)
                    + self.receipt(long_bytes, adds).times(long_left as u128)
                    + self.receipt(short_bytes, adds).times(short_left as u128)
            };
            let last = long + short - 1;
            return from(0)
                .or_later(from(long - 1))
                .or_later(from(long.min(last)))
                .or_later(from(last));
        }
        let first = self.first(long_bytes, adds);
        let relays = self
            .relay(long_bytes, long_bytes, adds)
            .times(long as u128 - 1);
        if short == 0 {
            return first.times(hops) + relays;
        }
        let passing = first.times(hops - 1)
            + relays
            + self.relay(long_bytes, short_bytes, adds)
            + self
                .relay(short_bytes, short_bytes, adds)
                .times(short as u128 - 1)
            + self.first(short_bytes, adds);
        let ending =
            first.times(hops) + relays + self.receipt(short_bytes, adds).times(short as u128);
        passing.or_later(ending)
    }

    /// The later of the last message's arrival, w + (q-1) s for q peers, and of the processor, that
    /// sends all before it receives any: (q-1) (max(g, o) + (m-1)G) + o, and the receipts.
    fn direct(&self, peers: usize, bytes: u128, receipts: usize, adds: bool) -> T {
        let others = peers as u128 - 1;
        let arrival = self.first(bytes, adds) + self.next(bytes, adds).times(others);
        let processor = self.port(bytes).times(others)
            + self.overhead
            + self.receipt(bytes, adds).times(receipts as u128);
        arrival.or_later(processor)
    }
}

/// What is sent: all of it, and by the busiest port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Messages of all ranks.
    pub messages: u128,
    /// Bytes of all ranks.
    pub bytes: u128,
    /// The most messages that one rank sends, or receives if that is more.
    pub busiest_messages: u128,
    /// The most bytes that one rank sends, or receives if that is more.
    pub busiest_bytes: u128,
}

/// What makes the energy of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Power {
    /// Watts of one rank, whatever it does.
    pub static_watts: f64,
    /// Joules of a message.
    pub message_joules: f64,
    /// Joules of a byte on the wire.
    pub byte_joules: f64,
}

/// What no algorithm can beat in Hockney's model; each bound holds alone, their sum need not.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LowerBounds {
    /// Seconds of latency.
    pub latency: f64,
    /// Seconds on the wire.
    pub bandwidth: f64,
    /// Seconds of adding.
    pub computation: f64,
}

/// One operation, done by one algorithm, of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub operation: Operation,
    /// How.
    pub algorithm: Algorithm,
    /// p.
    pub ranks: usize,
    /// Elements of the whole vector: for gathers and scatters of all blocks together.
    pub elements: usize,
    /// Bytes of one element, at least 1.
    pub element_bytes: usize,
}

/// The largest power of two up to p, its logarithm, and what is left of p.
fn fold(ranks: usize) -> (usize, u32, usize) {
    let levels = ranks.max(1).ilog2();
    let power = 1 << levels;
    (power, levels, ranks.saturating_sub(power))
}

/// ceil(log2 count), 0 for counts below 2.
fn doublings(count: usize) -> u128 {
    u128::from(count.max(1).next_power_of_two().ilog2())
}

impl Case {
    fn bytes(&self, elements: usize) -> u128 {
        elements as u128 * self.element_bytes as u128
    }

    fn blocks(&self) -> Blocks {
        Blocks::new(self.elements, self.ranks)
    }

    /// Ranks with a block that is not empty.
    fn holders(&self) -> usize {
        self.ranks.min(self.elements)
    }

    /// The same case of another operation.
    fn of(&self, operation: Operation) -> Self {
        Self { operation, ..*self }
    }

    /// None where there is no such case, false where nothing is to be done.
    fn works(&self) -> Option<bool> {
        (self.ranks > 0 && self.element_bytes > 0 && self.algorithm.can(self.operation))
            .then_some(self.ranks > 1 && self.elements > 0)
    }

    fn segments(&self, segments: usize) -> (usize, Segments) {
        let count = segments.min(self.elements);
        let cut = Blocks::new(self.elements, count);
        let long = if cut.longer() == 0 {
            count
        } else {
            cut.longer()
        };
        let segments = Segments {
            long,
            long_bytes: self.bytes(cut.size(0)),
            short: count - long,
            short_bytes: self.bytes(cut.size(count - 1)),
        };
        (count, segments)
    }

    /// From the start until the last rank is done. `None` where the algorithm cannot do the
    /// operation, without ranks, and for elements of no bytes.
    ///
    /// ```
    /// # use batchlab::theory::collectives::{Algorithm, Case, Hockney, Operation};
    /// let ring = Case {
    ///     operation: Operation::AllReduce,
    ///     algorithm: Algorithm::Ring,
    ///     ranks: 4,
    ///     elements: 1000,
    ///     element_bytes: 8,
    /// };
    /// let model = Hockney { alpha: 1e-6, beta: 1e-9, gamma: 1e-10 };
    /// // 2(p-1) alpha + 2((p-1)/p) n beta + ((p-1)/p) n gamma
    /// let seconds = 6.0 * 1e-6 + 1.5 * 8000.0 * 1e-9 + 0.75 * 8000.0 * 1e-10;
    /// assert!((ring.time(&model).unwrap() - seconds).abs() < 1e-18);
    /// ```
    pub fn time<M: Model>(&self, model: &M) -> Option<M::Time> {
        use Operation::{AllGather, AllReduce, Broadcast, Gather, Reduce, Scatter};
        if !self.works()? {
            return Some(M::Time::default());
        }
        let (p, whole) = (self.ranks, self.bytes(self.elements));
        let others = p as u128 - 1;
        let adds = self.operation == Reduce;
        let largest = self.bytes(self.blocks().size(0));
        Some(match (self.algorithm, self.operation) {
            (
                Algorithm::Flat
                | Algorithm::KaryTree { .. }
                | Algorithm::Binomial
                | Algorithm::Chain { .. },
                AllReduce,
            ) => self.of(Reduce).time(model)? + self.of(Broadcast).time(model)?,
            (Algorithm::Flat | Algorithm::KaryTree { .. } | Algorithm::Binomial, AllGather) => {
                self.of(Gather).time(model)? + self.of(Broadcast).time(model)?
            }
            (Algorithm::Flat, Scatter | Gather) => self.flat_blocks(model),
            (_, Scatter | Gather) => self.tree_blocks(model).0,
            (Algorithm::Flat, _) => {
                model.first(whole, adds) + model.next(whole, adds).times(others - 1)
            }
            (Algorithm::KaryTree { k: 1 }, _) => model.first(whole, adds).times(others),
            (Algorithm::KaryTree { k }, _) => {
                let (first, next) = (model.first(whole, adds), model.next(whole, adds));
                kary(k, p, first, next, &mut BTreeMap::new())
            }
            (Algorithm::Binomial, _) => {
                binomial(p, model.first(whole, adds), model.next(whole, adds))
            }
            (Algorithm::Chain { segments }, _) => model.chain(p, self.segments(segments).1, adds),
            (Algorithm::Ring, AllGather) => model.first(largest, false).times(others),
            (Algorithm::Ring, _) => {
                (model.first(largest, true) + model.first(largest, false)).times(others)
            }
            (Algorithm::Direct, AllGather) => {
                model.direct(p - 1, largest, self.holders() - 1, false)
            }
            (Algorithm::Direct, _) => model.direct(p - 1, whole, p - 1, true),
            (Algorithm::RecursiveDoubling, AllGather) => self.doubling_gather(model),
            (Algorithm::RecursiveDoubling, _) => {
                let (_, levels, left) = fold(p);
                let adding = model.first(whole, true);
                let rounds = adding.times(u128::from(levels));
                if left > 0 {
                    rounds + adding + model.first(whole, false)
                } else {
                    rounds
                }
            }
            (Algorithm::Rabenseifner, _) => {
                let (power, levels, left) = fold(p);
                let parts = Blocks::new(self.elements, power);
                let mut time = M::Time::default();
                for level in 0..levels {
                    let half = self.bytes(parts.start(1 << level));
                    time = time + model.first(half, true) + model.first(half, false);
                }
                if left > 0 {
                    time + model.first(whole, true) + model.first(whole, false)
                } else {
                    time
                }
            }
        })
    }

    /// s(n_1) + ... + s(n_(N-2)) + w(n_(N-1)).
    fn flat_blocks<M: Model>(&self, model: &M) -> M::Time {
        let (blocks, holders) = (self.blocks(), self.holders());
        if holders < 2 {
            return M::Time::default();
        }
        let between = holders - 2;
        let long = blocks.longer().saturating_sub(1).min(between);
        let mut time = model.first(self.bytes(blocks.size(holders - 1)), false);
        if long > 0 {
            time = time
                + model
                    .next(self.bytes(blocks.size(0)), false)
                    .times(long as u128);
        }
        if between > long {
            let short = self.bytes(blocks.size(holders - 2));
            time = time + model.next(short, false).times((between - long) as u128);
        }
        time
    }

    /// Time and bytes of a scatter or gather over a tree.
    fn tree_blocks<M: Model>(&self, model: &M) -> (M::Time, u128) {
        if self.algorithm == (Algorithm::KaryTree { k: 1 }) {
            let blocks = self.blocks();
            let mut sum = (M::Time::default(), 0);
            for rank in 1..self.holders() {
                let bytes = self.bytes(self.elements - blocks.start(rank));
                sum = (sum.0 + model.first(bytes, false), sum.1 + bytes);
            }
            return sum;
        }
        self.subtree(model, 0..self.ranks, &mut BTreeMap::new())
    }

    /// The part of the node that stands for the ranks `node`. Nodes of as many ranks, all with
    /// blocks of the same length, are alike.
    fn subtree<M: Model>(
        &self,
        model: &M,
        node: Range<usize>,
        known: &mut BTreeMap<(usize, usize), (M::Time, u128)>,
    ) -> (M::Time, u128) {
        let blocks = self.blocks();
        let place = if node.end <= blocks.longer() {
            0
        } else if node.start >= blocks.longer() {
            self.ranks
        } else {
            // A node with blocks of both lengths is like no other.
            self.ranks + 1 + node.start
        };
        let key = (place, node.len());
        if let Some(found) = known.get(&key) {
            return *found;
        }
        let (mut time, mut volume) = (M::Time::default(), 0);
        let mut port = M::Time::default();
        for child in self.algorithm.subtrees(node) {
            let bytes = self.bytes(blocks.span(child.clone()).len());
            if bytes == 0 {
                continue;
            }
            let below = self.subtree(model, child, known);
            time = time.or_later(port + model.first(bytes, false) + below.0);
            port = port + model.next(bytes, false);
            volume += bytes + below.1;
        }
        known.insert(key, (time, volume));
        (time, volume)
    }

    /// Elements that round `level` of an all-gather by doubling exchanges at most: the blocks of
    /// the first 2^level pairs and single ranks.
    fn doubled(&self, level: u32) -> usize {
        let (_, _, left) = fold(self.ranks);
        self.blocks()
            .start((1usize << level).min(left) + (1 << level))
    }

    fn doubling_gather<M: Model>(&self, model: &M) -> M::Time {
        let (_, levels, left) = fold(self.ranks);
        let mut time = M::Time::default();
        for level in 0..levels {
            time = time + model.first(self.bytes(self.doubled(level)), false);
        }
        if left > 0 {
            time = time + model.first(self.bytes(self.elements), false);
            let second = self.blocks().size(1);
            if second > 0 {
                time = time + model.first(self.bytes(second), false);
            }
        }
        time
    }

    /// Messages and bytes, exact. `None` as in [`time`](Self::time).
    ///
    /// ```
    /// # use batchlab::theory::collectives::{Algorithm, Case, Operation};
    /// let case = Case {
    ///     operation: Operation::AllReduce,
    ///     algorithm: Algorithm::Ring,
    ///     ranks: 3,
    ///     elements: 9,
    ///     element_bytes: 8,
    /// };
    /// let traffic = case.traffic().unwrap();
    /// assert_eq!((traffic.messages, traffic.bytes), (12, 2 * 2 * 72));
    /// assert_eq!((traffic.busiest_messages, traffic.busiest_bytes), (4, 2 * 48));
    /// ```
    pub fn traffic(&self) -> Option<Traffic> {
        if !self.works()? {
            return Some(Traffic::default());
        }
        let (p, whole) = (self.ranks as u128, self.bytes(self.elements));
        let holders = self.holders() as u128;
        Some(match (self.algorithm, self.operation) {
            (Algorithm::Flat | Algorithm::KaryTree { .. } | Algorithm::Binomial, _) => {
                self.tree_traffic()
            }
            (Algorithm::Chain { segments }, operation) => {
                let count = self.segments(segments).0 as u128;
                let all = operation == Operation::AllReduce;
                let ways = if all { 2 } else { 1 };
                // With two ranks each port serves one way only.
                let port = if p == 2 { 1 } else { ways };
                Traffic {
                    messages: ways * (p - 1) * count,
                    bytes: ways * (p - 1) * whole,
                    busiest_messages: port * count,
                    busiest_bytes: port * whole,
                }
            }
            (Algorithm::Ring, operation) => {
                let blocks = self.blocks();
                let (shortest, longer) = (blocks.size(self.ranks - 1), blocks.longer());
                let full = u128::from(shortest > 0);
                if operation == Operation::AllGather {
                    Traffic {
                        messages: (p - 1) * holders,
                        bytes: (p - 1) * whole,
                        busiest_messages: holders - full,
                        busiest_bytes: self.bytes(self.elements - shortest),
                    }
                } else {
                    // A rank never sends two neighbouring blocks once; one is among the longer
                    // if all but one are.
                    let one = usize::from(longer + 1 == self.ranks);
                    Traffic {
                        messages: 2 * (p - 1) * holders,
                        bytes: 2 * (p - 1) * whole,
                        busiest_messages: if full == 1 {
                            2 * (p - 1)
                        } else {
                            2 * holders - one as u128
                        },
                        busiest_bytes: self.bytes(2 * self.elements - 2 * shortest - one),
                    }
                }
            }
            (Algorithm::Direct, Operation::AllGather) => Traffic {
                messages: (p - 1) * holders,
                bytes: (p - 1) * whole,
                busiest_messages: p - 1,
                busiest_bytes: (p - 1) * self.bytes(self.blocks().size(0)),
            },
            (Algorithm::Direct, _) => Traffic {
                messages: p * (p - 1),
                bytes: p * (p - 1) * whole,
                busiest_messages: p - 1,
                busiest_bytes: (p - 1) * whole,
            },
            (Algorithm::RecursiveDoubling, Operation::AllGather) => self.doubling_gather_traffic(),
            (Algorithm::RecursiveDoubling, _) => {
                let (power, levels, left) = fold(self.ranks);
                let messages = power as u128 * u128::from(levels) + 2 * left as u128;
                let busiest = u128::from(levels) + u128::from(left > 0);
                Traffic {
                    messages,
                    bytes: messages * whole,
                    busiest_messages: busiest,
                    busiest_bytes: busiest * whole,
                }
            }
            (Algorithm::Rabenseifner, _) => self.rabenseifner_traffic(),
        })
    }

    /// Children of the root, and of the first rank below it.
    fn degrees(&self) -> (usize, usize) {
        match self.algorithm {
            Algorithm::KaryTree { k } => {
                let root = k.min(self.ranks - 1);
                (root, k.min((self.ranks - 1).div_ceil(root) - 1))
            }
            Algorithm::Flat => (self.ranks - 1, 0),
            // No rank of a binomial tree has more neighbours than the root.
            _ => (doublings(self.ranks) as usize, 0),
        }
    }

    fn tree_traffic(&self) -> Traffic {
        let (whole, blocks) = (self.bytes(self.elements), self.blocks());
        let others = self.ranks as u128 - 1;
        let (root, below) = self.degrees();
        let (root, below) = (root as u128, below as u128);
        let blocks_sent = self.holders() as u128 - 1;
        let bytes_of = || match self.algorithm {
            Algorithm::Flat => self.bytes(self.elements - blocks.size(0)),
            _ => self.tree_blocks(&Hockney::<i128>::default()).1,
        };
        match self.operation {
            Operation::Broadcast | Operation::Reduce => Traffic {
                messages: others,
                bytes: others * whole,
                busiest_messages: root,
                busiest_bytes: root * whole,
            },
            Operation::AllReduce => {
                let busiest = root.max(below + 1);
                Traffic {
                    messages: 2 * others,
                    bytes: 2 * others * whole,
                    busiest_messages: busiest,
                    busiest_bytes: busiest * whole,
                }
            }
            Operation::Scatter | Operation::Gather => Traffic {
                messages: blocks_sent,
                bytes: bytes_of(),
                busiest_messages: match self.algorithm {
                    Algorithm::Flat => blocks_sent,
                    Algorithm::Binomial => doublings(self.holders()),
                    _ => self.most_subtrees(),
                },
                busiest_bytes: self.bytes(self.elements - blocks.size(0)),
            },
            Operation::AllGather => {
                let first = match self.algorithm {
                    Algorithm::KaryTree { .. } => {
                        let size = (self.ranks - 1).div_ceil(root as usize);
                        self.bytes(blocks.span(1..1 + size).len())
                    }
                    _ => 0,
                };
                Traffic {
                    messages: blocks_sent + others,
                    bytes: bytes_of() + others * whole,
                    busiest_messages: root.max(below + u128::from(blocks_sent > 0)),
                    busiest_bytes: (root * whole).max(first + below * whole),
                }
            }
        }
    }

    /// The most subtrees with a block that is not empty, over all nodes of a k-ary tree. A node
    /// has no more than the one of its level that comes first.
    fn most_subtrees(&self) -> u128 {
        let Algorithm::KaryTree { k } = self.algorithm else {
            return 0;
        };
        let holders = self.holders();
        if k == 1 {
            return u128::from(holders > 1);
        }
        let (mut most, mut node) = (0, 0..self.ranks);
        while node.len() > 1 {
            let subtrees = self.algorithm.subtrees(node.clone());
            most = most.max(subtrees.iter().filter(|s| s.start < holders).count());
            node = subtrees[0].clone();
        }
        most as u128
    }

    fn doubling_gather_traffic(&self) -> Traffic {
        let (power, levels, left) = fold(self.ranks);
        let (blocks, holders) = (self.blocks(), self.holders());
        let whole = self.bytes(self.elements);
        // Real rank at which virtual rank v starts, and virtual ranks that hold anything.
        let real = |v: usize| v + v.min(left);
        let held = if holders <= 2 * left {
            holders.div_ceil(2)
        } else {
            holders - left
        };
        let folded: usize = left.min(holders / 2);
        let folded_bytes =
            self.bytes(left * blocks.size(self.ranks - 1) + left.min(blocks.longer() / 2));
        // What virtual rank v sends in the rounds.
        let sent = |v: usize| {
            let (mut messages, mut elements) = (0, 0);
            for level in 0..levels {
                let group = v >> level;
                let length = blocks
                    .span(real(group << level)..real((group + 1) << level))
                    .len();
                messages += u128::from(length > 0);
                elements += length;
            }
            (messages, self.bytes(elements))
        };
        let rounds: u128 = (0..levels)
            .map(|level| (held.div_ceil(1 << level) as u128) << level)
            .sum();
        let mut busiest = sent(0);
        // After all rounds a virtual rank has received all but its own block.
        busiest.0 = busiest.0.max(doublings(held) + u128::from(folded > 0));
        busiest.1 = busiest
            .1
            .max(self.bytes(self.elements - blocks.size(self.ranks - 1)));
        if left > 0 {
            let ends = sent(power - left);
            busiest = (busiest.0.max(ends.0 + 1), busiest.1.max(ends.1 + whole));
        }
        Traffic {
            messages: rounds + (folded + left) as u128,
            bytes: (power - 1 + left) as u128 * whole + folded_bytes,
            busiest_messages: busiest.0,
            busiest_bytes: busiest.1,
        }
    }

    fn rabenseifner_traffic(&self) -> Traffic {
        let (power, levels, left) = fold(self.ranks);
        let parts = Blocks::new(self.elements, power);
        let whole = self.bytes(self.elements);
        let held = power.min(self.elements);
        // What a rank sends in both halves, which is also what it receives.
        let sent = |v: usize| {
            let mut messages = 0;
            let mut elements = self.elements - parts.size(v);
            for level in 0..levels {
                let group = (v >> (level + 1)) << (level + 1);
                messages += u128::from(group < held) + u128::from(group + (1 << level) < held);
                let own = (v >> level) << level;
                elements += parts.span(own..own + (1 << level)).len();
            }
            (messages, self.bytes(elements))
        };
        let rounds: u128 = (0..levels)
            .map(|level| (held.div_ceil(1 << level) as u128) << level)
            .sum();
        let mut busiest = sent(0);
        if left > 0 {
            let ends = sent(power - left);
            busiest = (busiest.0.max(ends.0 + 1), busiest.1.max(ends.1 + whole));
        }
        Traffic {
            messages: 2 * rounds + 2 * left as u128,
            bytes: 2 * (power - 1 + left) as u128 * whole,
            busiest_messages: busiest.0,
            busiest_bytes: busiest.1,
        }
    }

    /// The most bytes that a rank needs beyond what it has at first and is to have at last: for
    /// messages that wait to be added, and for blocks on their way to others. `None` as in
    /// [`time`](Self::time).
    pub fn extra_memory(&self) -> Option<u128> {
        use Operation::{AllReduce, Gather, Reduce, Scatter};
        if !self.works()? {
            return Some(0);
        }
        let blocks = self.blocks();
        let elements = match (self.algorithm, self.operation) {
            (Algorithm::KaryTree { .. }, Scatter | Gather) => {
                let size = (self.ranks - 1).div_ceil(self.degrees().0);
                blocks.span(2..1 + size).len()
            }
            (Algorithm::Binomial, Scatter | Gather) => self
                .algorithm
                .subtrees(0..self.ranks)
                .into_iter()
                .map(|child| blocks.span(child.start + 1..child.end).len())
                .max()
                .unwrap_or(0),
            (Algorithm::Chain { segments }, Reduce | AllReduce) => {
                self.elements.div_ceil(self.segments(segments).0)
            }
            (Algorithm::Ring, AllReduce) => blocks.size(0),
            (Algorithm::Direct, AllReduce) => {
                return Some((self.ranks as u128 - 1) * self.bytes(self.elements));
            }
            (Algorithm::Rabenseifner, _) if self.ranks.is_power_of_two() => {
                blocks.start(self.ranks / 2)
            }
            (_, Reduce | AllReduce) => self.elements,
            _ => 0,
        };
        Some(self.bytes(elements))
    }

    /// Joules: static power x time x ranks, and so much a message and a byte. `seconds` is the time,
    /// as a model or a clock says. `None` as in [`time`](Self::time).
    pub fn energy(&self, seconds: f64, power: &Power) -> Option<f64> {
        let traffic = self.traffic()?;
        Some(
            power.static_watts * seconds * self.ranks as f64
                + power.message_joules * traffic.messages as f64
                + power.byte_joules * traffic.bytes as f64,
        )
    }

    /// What no algorithm can beat in Hockney's model, whatever `algorithm` says. Latency: what
    /// all must know is known to twice as many ranks after each message. Bandwidth: what the root,
    /// or the rank with the shortest block, must send or receive; 2((p-1)/p) n for an all-reduce
    /// (Patarasuk and Yuan 2009). Computation: (p-1) n bytes are added by p ranks. Chan et al. 2007,
    /// section 3.
    pub fn lower_bounds(&self, model: &Hockney<f64>) -> LowerBounds {
        if self.ranks < 2 || self.elements == 0 {
            return LowerBounds::default();
        }
        let (blocks, p) = (self.blocks(), self.ranks as f64);
        let whole = self.bytes(self.elements) as f64;
        let share = whole * (p - 1.0) / p;
        let (latency, bytes, adds) = match self.operation {
            Operation::Broadcast => (self.ranks, whole, 0.0),
            Operation::Reduce => (self.ranks, whole, share),
            Operation::AllReduce => (self.ranks, 2.0 * share, share),
            Operation::AllGather => {
                let most = self.elements - blocks.size(self.ranks - 1);
                (self.ranks, self.bytes(most) as f64, 0.0)
            }
            Operation::Scatter | Operation::Gather => {
                let most = self.elements - blocks.size(0);
                (self.holders(), self.bytes(most) as f64, 0.0)
            }
        };
        LowerBounds {
            latency: model.alpha * doublings(latency) as f64,
            bandwidth: model.beta * bytes,
            computation: model.gamma * adds,
        }
    }
}

/// B(t) of a k-ary tree, k > 1. The children of a node have two sizes; of each, the last is the
/// latest.
fn kary<T: Quantity>(
    k: usize,
    size: usize,
    first: T,
    next: T,
    known: &mut BTreeMap<usize, T>,
) -> T {
    if size < 2 {
        return T::default();
    }
    if let Some(found) = known.get(&size) {
        return *found;
    }
    let arity = k.min(size - 1);
    let children = Blocks::new(size - 1, arity);
    let short = first
        + next.times(arity as u128 - 1)
        + kary(k, children.size(arity - 1), first, next, known);
    let time = if children.longer() == 0 {
        short
    } else {
        let before = next.times(children.longer() as u128 - 1);
        short.or_later(first + before + kary(k, children.size(0), first, next, known))
    };
    known.insert(size, time);
    time
}

/// B(t) of a binomial tree: the child with what is beyond the largest power of two below t, and the
/// full tree of that power.
fn binomial<T: Quantity>(size: usize, first: T, next: T) -> T {
    if size < 2 {
        return T::default();
    }
    let levels = (size - 1).ilog2();
    let far = first + binomial(size - (1 << levels), first, next);
    if levels == 0 {
        return far;
    }
    far.or_later(next + first + first.or_later(next).times(u128::from(levels) - 1))
}

/// The message size in bytes at which two algorithms take equally long in Hockney's model, for
/// messages long enough to be cut evenly: both times are then A + B n. `None` if one is faster at
/// all lengths or where there is no such case. The elements of the cases do not matter.
///
/// ```
/// # use batchlab::theory::collectives::{Algorithm, Case, Hockney, Operation, crossover};
/// let case = |algorithm| Case {
///     operation: Operation::AllReduce,
///     algorithm,
///     ranks: 8,
///     elements: 0,
///     element_bytes: 4,
/// };
/// let model = Hockney { alpha: 1e-6, beta: 1e-9, gamma: 0.0 };
/// // 3(alpha + n beta) against 6 alpha + 2(7/8) n beta: n = 2.4 alpha/beta.
/// let n = crossover(&case(Algorithm::RecursiveDoubling), &case(Algorithm::Rabenseifner), &model);
/// assert!((n.unwrap() - 2400.0).abs() < 1e-6);
/// ```
pub fn crossover(a: &Case, b: &Case, model: &Hockney<f64>) -> Option<f64> {
    let line = |case: &Case| {
        let segments = match case.algorithm {
            Algorithm::Chain { segments } => segments,
            _ => 1,
        };
        let even = case
            .ranks
            .checked_next_power_of_two()?
            .checked_mul(case.ranks)?
            .checked_mul(segments)?;
        let long = Case {
            elements: even,
            ..*case
        };
        let only_alpha = Hockney {
            beta: 0.0,
            gamma: 0.0,
            ..*model
        };
        let no_alpha = Hockney {
            alpha: 0.0,
            ..*model
        };
        let per_byte = long.time(&no_alpha)? / long.bytes(even) as f64;
        Some((long.time(&only_alpha)?, per_byte))
    };
    let ((a0, a1), (b0, b1)) = (line(a)?, line(b)?);
    let bytes = (b0 - a0) / (a1 - b1);
    (bytes.is_finite() && bytes > 0.0).then_some(bytes)
}

/// The length m* = sqrt(n alpha/((p-2) beta)) in bytes of the segments that make a chain fastest,
/// were any length possible. Infinite for two ranks: one segment. With `adds`, beta + gamma for beta.
pub fn best_segment_bytes(ranks: usize, bytes: f64, model: &Hockney<f64>, adds: bool) -> f64 {
    let per_byte = if adds {
        model.beta + model.gamma
    } else {
        model.beta
    };
    (bytes * model.alpha / ((ranks as f64 - 2.0) * per_byte)).sqrt()
}

/// The number of segments with which a chain takes least, and the fewest such. Exact: of all numbers
/// that cut the vector into segments of up to the same length, the least is the best, and those are
/// tried. `None` where a chain cannot do the operation.
pub fn best_segments<M: Model>(
    operation: Operation,
    ranks: usize,
    elements: usize,
    element_bytes: usize,
    model: &M,
) -> Option<usize> {
    let time = |segments| {
        Case {
            operation,
            algorithm: Algorithm::Chain { segments },
            ranks,
            elements,
            element_bytes,
        }
        .time(model)
    };
    let root = elements.isqrt().max(1);
    let mut best = (time(1)?, 1);
    let few = 2..=root;
    let many = (1..=root)
        .rev()
        .map(|length| elements.div_ceil(length).max(1));
    for segments in few.chain(many) {
        let found = time(segments)?;
        if found < best.0 {
            best = (found, segments);
        }
    }
    Some(best.1)
}

/// The k with which a k-ary tree takes least, and the least such k. Tried are all k up to 64, those
/// at which the tree loses a level, and p - 1, the flat tree. `None` without ranks. In Hockney's
/// model a broadcast has it at 2 or 3, near e, which makes k/ln k least.
pub fn best_arity<M: Model>(
    operation: Operation,
    ranks: usize,
    elements: usize,
    element_bytes: usize,
    model: &M,
) -> Option<usize> {
    let time = |k| {
        Case {
            operation,
            algorithm: Algorithm::KaryTree { k },
            ranks,
            elements,
            element_bytes,
        }
        .time(model)
    };
    let flat = ranks.saturating_sub(1).max(1);
    let depths = (1..=ranks.max(2).ilog2()).rev().map(|depth| {
        let (mut low, mut high) = (1, flat);
        while low < high {
            let middle = low.midpoint(high);
            if holds(middle, depth, ranks) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    });
    let mut best = (time(1)?, 1);
    for k in (2..=64).chain(depths).filter(|k| *k <= flat) {
        let found = time(k)?;
        if found < best.0 {
            best = (found, k);
        }
    }
    Some(best.1)
}

/// Whether a k-ary tree of so many levels below the root has room for so many ranks.
fn holds(k: usize, depth: u32, ranks: usize) -> bool {
    let (mut room, mut level) = (1usize, 1usize);
    for _ in 0..depth {
        level = level.saturating_mul(k);
        room = room.saturating_add(level);
        if room >= ranks {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Hockney<i128> = Hockney {
        alpha: 1000,
        beta: 3,
        gamma: 2,
    };
    const LOGGP: LogGp<i128> = LogGp {
        latency: 500,
        overhead: 20,
        gap: 30,
        byte_gap: 3,
        gamma: 2,
    };

    fn case(operation: Operation, algorithm: Algorithm, ranks: usize, elements: usize) -> Case {
        Case {
            operation,
            algorithm,
            ranks,
            elements,
            element_bytes: 1,
        }
    }

    #[test]
    fn even_cuts_on_powers_of_two_give_the_forms_of_the_textbooks() {
        let (p, levels, n) = (16i128, 4, 4096);
        let Hockney { alpha, beta, gamma } = MODEL;
        let share = n * (p - 1) / p;
        let time = |operation, algorithm| case(operation, algorithm, 16, 4096).time(&MODEL);
        let sum = |algorithm| time(Operation::AllReduce, algorithm);
        assert_eq!(
            sum(Algorithm::Ring),
            Some(2 * (p - 1) * alpha + 2 * share * beta + share * gamma)
        );
        assert_eq!(
            sum(Algorithm::RecursiveDoubling),
            Some(levels * (alpha + n * (beta + gamma)))
        );
        assert_eq!(
            sum(Algorithm::Rabenseifner),
            Some(2 * levels * alpha + 2 * share * beta + share * gamma)
        );
        assert_eq!(
            sum(Algorithm::Binomial),
            Some(levels * (2 * alpha + n * (2 * beta + gamma)))
        );
        assert_eq!(
            sum(Algorithm::Flat),
            Some((p - 1) * (2 * alpha + n * (2 * beta + gamma)))
        );
        let gather = Some(levels * alpha + share * beta);
        assert_eq!(
            time(Operation::AllGather, Algorithm::RecursiveDoubling),
            gather
        );
        assert_eq!(time(Operation::Scatter, Algorithm::Binomial), gather);
        assert_eq!(time(Operation::Gather, Algorithm::Binomial), gather);
        // (p + s - 2)(alpha + m beta), s = n/m.
        assert_eq!(
            time(Operation::Broadcast, Algorithm::Chain { segments: 64 }),
            Some((p + 64 - 2) * (alpha + 64 * beta))
        );
    }

    #[test]
    fn full_trees_take_d_k_messages_one_after_the_other() {
        for (k, depth, ranks) in [(1, 5, 6), (2, 3, 15), (3, 2, 13), (4, 3, 85)] {
            let tree = Algorithm::KaryTree { k };
            let rounds = (k * depth) as i128;
            assert_eq!(
                case(Operation::Broadcast, tree, ranks, 10).time(&MODEL),
                Some(rounds * (1000 + 30))
            );
            assert_eq!(
                case(Operation::Reduce, tree, ranks, 10).time(&MODEL),
                Some(rounds * (1000 + 50))
            );
        }
    }

    #[test]
    fn a_tree_is_no_deeper_than_it_must_be() {
        for k in 2..6 {
            for ranks in 2..200 {
                let mut depth = 0;
                let mut node = 0..ranks;
                while node.len() > 1 {
                    node = Algorithm::KaryTree { k }.subtrees(node)[0].clone();
                    depth += 1;
                }
                assert!(holds(k, depth, ranks) && !holds(k, depth - 1, ranks));
            }
        }
    }

    #[test]
    fn a_binomial_tree_takes_as_many_rounds_as_ranks_double_and_scatters_each_block_once_a_hop() {
        for ranks in 2..200usize {
            let rounds = i128::from(ranks.next_power_of_two().ilog2());
            let broadcast = case(Operation::Broadcast, Algorithm::Binomial, ranks, 10);
            assert_eq!(broadcast.time(&MODEL), Some(rounds * 1030));
            for elements in [1, 3, 17, 200, 203] {
                let scatter = case(Operation::Scatter, Algorithm::Binomial, ranks, elements);
                let blocks = Blocks::new(elements, ranks);
                let holders = ranks.min(elements).next_power_of_two().ilog2();
                let bytes = (elements - blocks.size(0)) as i128;
                assert_eq!(
                    scatter.time(&MODEL),
                    Some(i128::from(holders) * 1000 + 3 * bytes)
                );
                let hops: u128 = (0..ranks)
                    .map(|rank| blocks.size(rank) as u128 * u128::from(rank.count_ones()))
                    .sum();
                assert_eq!(scatter.traffic().unwrap().bytes, hops);
            }
        }
    }

    #[test]
    fn a_flat_tree_is_the_k_ary_tree_of_all_others() {
        for ranks in [2, 5, 12] {
            for elements in [1, 4, 40, 43] {
                for operation in Operation::ALL {
                    let flat = case(operation, Algorithm::Flat, ranks, elements);
                    let tree = case(
                        operation,
                        Algorithm::KaryTree { k: ranks - 1 },
                        ranks,
                        elements,
                    );
                    assert_eq!(flat.time(&LOGGP), tree.time(&LOGGP));
                    assert_eq!(flat.traffic(), tree.traffic());
                    assert_eq!(flat.extra_memory(), tree.extra_memory());
                }
            }
        }
    }

    #[test]
    fn the_flat_broadcast_in_loggp_is_the_published_form() {
        let n = 100;
        let LogGp {
            latency,
            overhead,
            gap,
            byte_gap,
            ..
        } = LOGGP;
        // L + 2o + (n-1)G + (p-2)(max(g, o) + (n-1)G)
        let expected = latency
            + 2 * overhead
            + (n - 1) * byte_gap
            + 7 * (gap.max(overhead) + (n - 1) * byte_gap);
        let flat = case(Operation::Broadcast, Algorithm::Flat, 9, 100);
        assert_eq!(flat.time(&LOGGP), Some(expected));
    }

    #[test]
    fn nothing_to_do_costs_nothing_and_what_has_no_meaning_has_no_cost() {
        for (ranks, elements) in [(1, 7), (5, 0)] {
            let idle = case(Operation::AllReduce, Algorithm::Ring, ranks, elements);
            assert_eq!(idle.time(&MODEL), Some(0));
            assert_eq!(idle.traffic(), Some(Traffic::default()));
            assert_eq!(idle.extra_memory(), Some(0));
        }
        let without = [
            case(Operation::Scatter, Algorithm::Ring, 4, 7),
            case(Operation::AllReduce, Algorithm::Ring, 0, 7),
            case(Operation::Broadcast, Algorithm::KaryTree { k: 0 }, 4, 7),
            Case {
                element_bytes: 0,
                ..case(Operation::AllReduce, Algorithm::Ring, 4, 7)
            },
        ];
        for case in without {
            assert_eq!(case.time(&MODEL), None);
            assert_eq!(case.traffic(), None);
            assert_eq!(case.extra_memory(), None);
            assert_eq!(case.energy(1.0, &Power::default()), None);
        }
    }

    #[test]
    fn energy_counts_waiting_ranks_messages_and_bytes() {
        let ring = case(Operation::AllReduce, Algorithm::Ring, 4, 1000);
        let power = Power {
            static_watts: 100.0,
            message_joules: 2.0,
            byte_joules: 0.5,
        };
        let expected = 100.0 * 3.0 * 4.0 + 2.0 * 24.0 + 0.5 * 6000.0;
        assert_eq!(ring.energy(3.0, &power), Some(expected));
    }

    #[test]
    fn at_the_crossover_both_algorithms_take_equally_long() {
        let model = Hockney {
            alpha: 1e-5,
            beta: 1e-9,
            gamma: 2e-10,
        };
        let few = case(Operation::AllReduce, Algorithm::RecursiveDoubling, 12, 0);
        for many in [
            Algorithm::Ring,
            Algorithm::Rabenseifner,
            Algorithm::Chain { segments: 32 },
        ] {
            let many = case(Operation::AllReduce, many, 12, 0);
            let bytes = crossover(&few, &many, &model).unwrap();
            assert_eq!(crossover(&many, &few, &model), Some(bytes));
            let gap = |bytes: f64| {
                let at = |case: &Case| {
                    let elements = bytes as usize;
                    Case { elements, ..*case }.time(&model).unwrap()
                };
                at(&many) - at(&few)
            };
            assert!(gap(bytes * 0.99) > 0.0 && gap(bytes * 1.01) < 0.0);
        }
        // The flat tree sends more messages and more bytes: never faster.
        let flat = case(Operation::AllReduce, Algorithm::Flat, 12, 0);
        assert_eq!(crossover(&few, &flat, &model), None);
    }

    #[test]
    fn the_best_segments_and_arity_are_those_of_a_full_search() {
        for (ranks, elements) in [(2, 50), (3, 777), (9, 1000), (20, 3000)] {
            for operation in [Operation::Broadcast, Operation::AllReduce] {
                let time = |segments| {
                    case(operation, Algorithm::Chain { segments }, ranks, elements)
                        .time(&LOGGP)
                        .unwrap()
                };
                let best = best_segments(operation, ranks, elements, 1, &LOGGP).unwrap();
                let least = (1..=elements).map(time).min().unwrap();
                assert_eq!(
                    time(best),
                    least,
                    "{operation}, {ranks} ranks, {best} segments"
                );
            }
        }
        for ranks in [2, 3, 10, 64] {
            let time = |k| {
                case(Operation::Reduce, Algorithm::KaryTree { k }, ranks, 8)
                    .time(&LOGGP)
                    .unwrap()
            };
            let best = best_arity(Operation::Reduce, ranks, 8, 1, &LOGGP).unwrap();
            assert_eq!(time(best), (1..ranks).map(time).min().unwrap());
        }
        let hockney = best_arity(Operation::Broadcast, 1000, 8, 1, &MODEL).unwrap();
        assert!(hockney == 2 || hockney == 3, "{hockney}");
        let loggp = best_arity(Operation::Broadcast, 1000, 1, 1, &LOGGP).unwrap();
        assert!(loggp > 3, "sends cost far less than the latency: {loggp}");
    }

    #[test]
    fn the_best_segment_length_is_near_the_best_number_of_segments() {
        let model = Hockney {
            alpha: 1000.0,
            beta: 3.0,
            gamma: 0.0,
        };
        let elements = 1_000_000;
        let length = best_segment_bytes(18, 1e6, &model, false);
        assert!((length - (1e6_f64 * 1000.0 / (16.0 * 3.0)).sqrt()).abs() < 1e-9);
        let best = best_segments(Operation::Broadcast, 18, elements, 1, &model).unwrap();
        let found = elements as f64 / best as f64;
        assert!(
            (found / length - 1.0).abs() < 0.01,
            "{found} against {length}"
        );
    }

    #[test]
    fn many_ranks_and_long_vectors_are_counted_without_running_over() {
        for algorithm in [
            Algorithm::Flat,
            Algorithm::KaryTree { k: 1 },
            Algorithm::KaryTree { k: 3 },
            Algorithm::Binomial,
            Algorithm::Chain { segments: 1000 },
            Algorithm::Ring,
            Algorithm::Direct,
            Algorithm::RecursiveDoubling,
            Algorithm::Rabenseifner,
        ] {
            for operation in Operation::ALL {
                let case = Case {
                    element_bytes: 8,
                    ..case(operation, algorithm, 100_000, 10_000_000_001)
                };
                let time = case.time(&MODEL);
                assert_eq!(time.is_some(), algorithm.can(operation));
                assert!(time.is_none_or(|time| time > 0 && time < i128::MAX));
                assert_eq!(case.traffic().is_some(), time.is_some());
            }
        }
    }
}
