//! What collective operations cost, side by side: a row for each algorithm, number of ranks and
//! length, which one is the fastest, where that changes, and the event simulation beside the closed
//! form.
//!
//! The formulas are those of [`theory::collectives`](crate::theory::collectives). Lengths are bytes of
//! the whole vector: of gathers and scatters, of all blocks together.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::collective::{self, Deadlock, Disturbance, Simulated, SlowLink, Transfer};
use crate::config::suggest::nearest;
use crate::math::statistics::Estimate;
use crate::rng::Stream;
use crate::store::{self, StoreError, Table};
use crate::theory::collectives::{
    self as theory, Algorithm, Case, Hockney, LogGp, LowerBounds, Operation, Power, Traffic,
};

/// Most ranks that are tabulated.
pub const MOST_RANKS: u64 = 100_000;

/// Most bytes: a pebibyte.
pub const MOST_BYTES: u64 = 1 << 50;

/// Simulated time is counted in these, so that it is exact.
const TICKS_PER_SECOND: f64 = 1e21;

/// Largest latency and largest time of a byte for which ticks are counted without running over.
const MOST_LATENCY: f64 = 1e4;
const MOST_PER_BYTE: f64 = 1e-3;

/// Most watts of a rank, and most joules of a message or a byte.
const MOST_POWER: f64 = 1e6;
const MOST_ENERGY: f64 = 1e6;

/// Most children of a node, or segments, that can be asked for.
const MOST_PARTS: usize = 1 << 30;

/// The tables of costs.
pub const COST_TABLES: [&str; 3] = ["collectives.csv", "crossovers.csv", "parameters.csv"];

/// Sizes looked at in an octave for crossovers, and how close one is found.
const PER_OCTAVE: f64 = 4.0;
const CLOSE: f64 = 5e-4;

/// Times that differ by less, relative to the larger, are equal.
const TIE: f64 = 1e-9;

/// How an operation is to be done; what is left open is chosen as is best for each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// [`Algorithm::Flat`].
    Flat,
    /// [`Algorithm::KaryTree`] of so many children, or as many as are best.
    Tree(Option<usize>),
    /// [`Algorithm::Binomial`].
    Binomial,
    /// [`Algorithm::Chain`] of so many segments, or as many as are best.
    Chain(Option<usize>),
    /// [`Algorithm::Ring`].
    Ring,
    /// [`Algorithm::Direct`].
    Direct,
    /// [`Algorithm::RecursiveDoubling`].
    RecursiveDoubling,
    /// [`Algorithm::Rabenseifner`].
    Rabenseifner,
}

impl Choice {
    /// All, with nothing given.
    pub const ALL: [Self; 8] = [
        Self::Flat,
        Self::Tree(None),
        Self::Binomial,
        Self::Chain(None),
        Self::Ring,
        Self::Direct,
        Self::RecursiveDoubling,
        Self::Rabenseifner,
    ];

    /// The place in [`Choice::ALL`] of the kind.
    pub fn kind(self) -> usize {
        match self {
            Self::Flat => 0,
            Self::Tree(_) => 1,
            Self::Binomial => 2,
            Self::Chain(_) => 3,
            Self::Ring => 4,
            Self::Direct => 5,
            Self::RecursiveDoubling => 6,
            Self::Rabenseifner => 7,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Tree(_) => "tree",
            Self::Binomial => "binomial",
            Self::Chain(_) => "chain",
            Self::Ring => "ring",
            Self::Direct => "direct",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::Rabenseifner => "rabenseifner",
        }
    }

    /// Whether it can do the operation.
    pub fn can(self, operation: Operation) -> bool {
        let algorithm = match self {
            Self::Flat => Algorithm::Flat,
            Self::Tree(k) => Algorithm::KaryTree { k: k.unwrap_or(2) },
            Self::Binomial => Algorithm::Binomial,
            Self::Chain(segments) => Algorithm::Chain {
                segments: segments.unwrap_or(1),
            },
            Self::Ring => Algorithm::Ring,
            Self::Direct => Algorithm::Direct,
            Self::RecursiveDoubling => Algorithm::RecursiveDoubling,
            Self::Rabenseifner => Algorithm::Rabenseifner,
        };
        algorithm.can(operation)
    }

    /// Whether children or segments are left open.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Tree(None) | Self::Chain(None))
    }

    /// The case of this algorithm, with the best children or segments in the model where none are
    /// given, and no more segments than elements. `None` where it cannot do the operation.
    pub fn case(
        self,
        operation: Operation,
        ranks: usize,
        elements: usize,
        element_bytes: usize,
        network: &Network,
    ) -> Option<Case> {
        if !self.can(operation) {
            return None;
        }
        let algorithm = match self {
            Self::Flat => Algorithm::Flat,
            Self::Tree(Some(k)) => Algorithm::KaryTree { k },
            Self::Tree(None) => Algorithm::KaryTree {
                k: network.best_arity(operation, ranks, elements, element_bytes)?,
            },
            Self::Binomial => Algorithm::Binomial,
            Self::Chain(Some(segments)) => Algorithm::Chain {
                segments: segments.min(elements.max(1)),
            },
            Self::Chain(None) => Algorithm::Chain {
                segments: network.best_segments(operation, ranks, elements, element_bytes)?,
            },
            Self::Ring => Algorithm::Ring,
            Self::Direct => Algorithm::Direct,
            Self::RecursiveDoubling => Algorithm::RecursiveDoubling,
            Self::Rabenseifner => Algorithm::Rabenseifner,
        };
        Some(Case {
            operation,
            algorithm,
            ranks,
            elements,
            element_bytes,
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(Some(n)) | Self::Chain(Some(n)) => f.pad(&format!("{}={n}", self.word())),
            _ => f.pad(self.word()),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = match text.split_once('=') {
            Some((word, number)) => (word, Some(number)),
            None => (text, None),
        };
        let Some(choice) = Self::ALL.into_iter().find(|c| c.word() == word) else {
            return Err(unknown(
                "an algorithm",
                word,
                Self::ALL.map(Self::word).as_slice(),
            ));
        };
        let Some(number) = number else {
            return Ok(choice);
        };
        let n = number.parse().ok().filter(|n| (1..=MOST_PARTS).contains(n));
        match (choice, n) {
            (Self::Tree(_), Some(_)) => Ok(Self::Tree(n)),
            (Self::Chain(_), Some(_)) => Ok(Self::Chain(n)),
            (Self::Tree(_) | Self::Chain(_), None) => Err(format!(
                "expected a number from 1 to {MOST_PARTS} after `{word}=`, found `{number}`"
            )),
            _ => Err(format!(
                "expected `{word}` alone, found `{text}`; a number belongs to `tree=K` and `chain=SEGMENTS`"
            )),
        }
    }
}

/// "expected the name of an algorithm, found `rign`; did you mean `ring`?", and which there are.
fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    let hint = match nearest(found, known.iter().copied()) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => String::new(),
    };
    format!(
        "expected the name of {what}, found `{found}`{hint}\nthere are {}",
        known.join(", ")
    )
}

/// The operation of this name.
///
/// # Errors
/// No operation has it; says which is nearest.
pub fn parse_operation(text: &str) -> Result<Operation, String> {
    let names = Operation::ALL.map(|operation| operation.to_string());
    match names.iter().position(|name| name == text) {
        Some(found) => Ok(Operation::ALL[found]),
        None => Err(unknown(
            "an operation",
            text,
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        )),
    }
}

/// One entry of a list of ranks: a number from 1, or `2..1024`, which doubles from the first up to
/// the last.
///
/// # Errors
/// Anything else.
pub fn parse_ranks(text: &str) -> Result<Vec<u64>, String> {
    series(text, MOST_RANKS, "ranks", |text| text.parse().ok())
}

/// One entry of a list of lengths: bytes, with KiB, MiB or GiB, or `8..1MiB`, which doubles from the
/// first up to the last.
///
/// # Errors
/// Anything else.
pub fn parse_bytes(text: &str) -> Result<Vec<u64>, String> {
    series(text, MOST_BYTES, "bytes", |text| {
        let (number, unit) = ["KiB", "MiB", "GiB"]
            .iter()
            .enumerate()
            .find_map(|(i, unit)| Some((text.strip_suffix(unit)?, 1 << (10 * (i + 1)))))
            .unwrap_or((text, 1));
        number.trim().parse::<u64>().ok()?.checked_mul(unit)
    })
}

fn series(
    text: &str,
    most: u64,
    what: &str,
    number: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<u64>, String> {
    let allowed = |text: &str| number(text.trim()).filter(|n| (1..=most).contains(n));
    let wrong = || {
        format!(
            "expected {what} from 1 to {most}, or a range of them such as `8..1024`, found `{text}`"
        )
    };
    let Some((first, last)) = text.split_once("..") else {
        return allowed(text).map(|n| vec![n]).ok_or_else(wrong);
    };
    let (first, last) = (
        allowed(first).ok_or_else(wrong)?,
        allowed(last).ok_or_else(wrong)?,
    );
    if first > last {
        return Err(wrong());
    }
    let doubled = std::iter::successors(Some(first), |n| n.checked_mul(2));
    Ok(doubled.take_while(|n| *n <= last).collect())
}

/// A link between two ranks that is slower than the others: `0-1=10`, ten times.
///
/// # Errors
/// Anything else.
pub fn parse_slow_link(text: &str) -> Result<SlowLink, String> {
    let parts = || {
        let (link, factor) = text.split_once('=')?;
        let (a, b) = link.split_once('-')?;
        let ranks = (a.trim().parse().ok()?, b.trim().parse().ok()?);
        let factor: u32 = factor.trim().parse().ok()?;
        (ranks.0 != ranks.1 && factor > 0).then_some(SlowLink {
            ranks,
            factor: u128::from(factor),
        })
    };
    parts().ok_or_else(|| {
        format!("expected two ranks and how many times slower, such as `0-1=10`, found `{text}`")
    })
}

/// A number with a power of ten, `2e-6`, and zero as `0`.
pub fn scientific(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        format!("{value:e}")
    }
}

/// A network: a model with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Network {
    /// alpha, beta, gamma.
    Hockney(Hockney<f64>),
    /// L, o, g, G, gamma.
    LogGp(LogGp<f64>),
}

impl Network {
    /// What the model is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hockney(_) => "hockney",
            Self::LogGp(_) => "loggp",
        }
    }

    /// Names, values and units of the parameters.
    pub fn parameters(&self) -> Vec<(&'static str, f64, &'static str)> {
        match self {
            Self::Hockney(m) => vec![
                ("alpha", m.alpha, "s"),
                ("beta", m.beta, "s/B"),
                ("gamma", m.gamma, "s/B"),
            ],
            Self::LogGp(m) => vec![
                ("latency L", m.latency, "s"),
                ("overhead o", m.overhead, "s"),
                ("gap g", m.gap, "s"),
                ("gap per byte G", m.byte_gap, "s/B"),
                ("gamma", m.gamma, "s/B"),
            ],
        }
    }

    /// Seconds of a case; `None` as in [`Case::time`].
    pub fn time(&self, case: &Case) -> Option<f64> {
        match self {
            Self::Hockney(model) => case.time(model),
            Self::LogGp(model) => case.time(model),
        }
    }

    fn best_arity(
        &self,
        op: Operation,
        ranks: usize,
        elements: usize,
        size: usize,
    ) -> Option<usize> {
        match self {
            Self::Hockney(model) => theory::best_arity(op, ranks, elements, size, model),
            Self::LogGp(model) => theory::best_arity(op, ranks, elements, size, model),
        }
    }

    fn best_segments(
        &self,
        op: Operation,
        ranks: usize,
        elements: usize,
        size: usize,
    ) -> Option<usize> {
        match self {
            Self::Hockney(model) => theory::best_segments(op, ranks, elements, size, model),
            Self::LogGp(model) => theory::best_segments(op, ranks, elements, size, model),
        }
    }

    fn check(&self) -> Result<(), CollectivesError> {
        for (name, found, unit) in self.parameters() {
            let most = if unit == "s" {
                MOST_LATENCY
            } else {
                MOST_PER_BYTE
            };
            in_range(name, most, unit, found)?;
        }
        match self {
            Self::LogGp(m) if m.gap > m.latency + 2.0 * m.overhead => Err(CollectivesError::Gap {
                gap: m.gap,
                most: m.latency + 2.0 * m.overhead,
            }),
            _ => Ok(()),
        }
    }
}

fn in_range(
    name: &'static str,
    most: f64,
    unit: &'static str,
    found: f64,
) -> Result<(), CollectivesError> {
    if (0.0..=most).contains(&found) {
        return Ok(());
    }
    Err(CollectivesError::Parameter {
        name,
        most,
        unit,
        found,
    })
}

/// Parameters under a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// Where its numbers are from.
    pub source: &'static str,
    /// In Hockney's model.
    pub hockney: Hockney<f64>,
    /// In LogGP, with alpha = L + 2o and beta = G.
    pub loggp: LogGp<f64>,
}

/// The presets. Rates are those of the standards; every other number is an illustration.
pub const PRESETS: [Preset; 3] = [
    Preset {
        name: "infiniband-100g",
        source: "beta: EDR InfiniBand, 4 lanes of 25.78125 Gb/s, 64 of 66 bits data (InfiniBand Architecture \
                 Specification 1.3); alpha, gamma and the parts of LogGP are illustrative, of the order that latency \
                 tests of MPI show",
        hockney: Hockney {
            alpha: 1.5e-6,
            beta: 8e-11,
            gamma: 1e-10,
        },
        loggp: LogGp {
            latency: 1e-6,
            overhead: 2.5e-7,
            gap: 3e-7,
            byte_gap: 8e-11,
            gamma: 1e-10,
        },
    },
    Preset {
        name: "ethernet-10g",
        source: "beta: the line rate of 10 Gb/s (IEEE 802.3ae), without headers; alpha, gamma and the parts of LogGP \
                 are illustrative, of the order of TCP through the kernel",
        hockney: Hockney {
            alpha: 2e-5,
            beta: 8e-10,
            gamma: 1e-10,
        },
        loggp: LogGp {
            latency: 1.4e-5,
            overhead: 3e-6,
            gap: 3e-6,
            byte_gap: 8e-10,
            gamma: 1e-10,
        },
    },
    Preset {
        name: "shared-memory",
        source: "illustrative, all numbers: processes of one machine that copy 10 GB/s; measure your own with --measure",
        hockney: Hockney {
            alpha: 5e-7,
            beta: 1e-10,
            gamma: 1e-10,
        },
        loggp: LogGp {
            latency: 3e-7,
            overhead: 1e-7,
            gap: 1e-7,
            byte_gap: 1e-10,
            gamma: 1e-10,
        },
    },
];

/// The preset of this name.
///
/// # Errors
/// No preset has it; says which is nearest.
pub fn parse_preset(text: &str) -> Result<Preset, String> {
    let found = PRESETS.into_iter().find(|preset| preset.name == text);
    found.ok_or_else(|| unknown("a preset", text, &PRESETS.map(|preset| preset.name)))
}

/// Parameters given one by one, which take the place of those of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Given {
    /// alpha, s.
    pub alpha: Option<f64>,
    /// beta, s/B.
    pub beta: Option<f64>,
    /// L, s.
    pub latency: Option<f64>,
    /// o, s.
    pub overhead: Option<f64>,
    /// g, s.
    pub gap: Option<f64>,
    /// G, s/B.
    pub byte_gap: Option<f64>,
    /// gamma, s/B, of both models.
    pub gamma: Option<f64>,
}

/// The network that is asked for, and where its numbers are from. The model is LogGP if `loggp` says so
/// or parameters of it are given.
///
/// # Errors
/// Parameters of both models, or of the one that was not asked for; one out of range.
pub fn network(
    preset: &Preset,
    loggp: Option<bool>,
    given: &Given,
) -> Result<(Network, String), CollectivesError> {
    let hockney_given = [given.alpha, given.beta].iter().any(Option::is_some);
    let loggp_given = [given.latency, given.overhead, given.gap, given.byte_gap]
        .iter()
        .any(Option::is_some);
    let loggp = loggp.unwrap_or(loggp_given);
    if loggp && hockney_given || !loggp && loggp_given {
        return Err(CollectivesError::Models);
    }
    let network = if loggp {
        let base = preset.loggp;
        Network::LogGp(LogGp {
            latency: given.latency.unwrap_or(base.latency),
            overhead: given.overhead.unwrap_or(base.overhead),
            gap: given.gap.unwrap_or(base.gap),
            byte_gap: given.byte_gap.unwrap_or(base.byte_gap),
            gamma: given.gamma.unwrap_or(base.gamma),
        })
    } else {
        let base = preset.hockney;
        Network::Hockney(Hockney {
            alpha: given.alpha.unwrap_or(base.alpha),
            beta: given.beta.unwrap_or(base.beta),
            gamma: given.gamma.unwrap_or(base.gamma),
        })
    };
    network.check()?;
    let own = if loggp {
        vec![given.latency, given.overhead, given.gap, given.byte_gap]
    } else {
        vec![given.alpha, given.beta]
    };
    let all_given = given.gamma.is_some() && own.iter().all(Option::is_some);
    let source = if all_given {
        "as given".to_owned()
    } else if hockney_given || loggp_given || given.gamma.is_some() {
        format!("as given, else preset {}: {}", preset.name, preset.source)
    } else {
        format!("preset {}: {}", preset.name, preset.source)
    };
    Ok((network, source))
}

/// Why nothing could be tabulated.
#[derive(Debug, thiserror::Error)]
pub enum CollectivesError {
    /// A parameter out of range.
    #[error("expected {name} from 0 to {most:e} {unit}, found {found:e}")]
    Parameter {
        /// Which.
        name: &'static str,
        /// The largest.
        most: f64,
        /// The unit.
        unit: &'static str,
        /// What was given.
        found: f64,
    },
    /// The closed forms of LogGP need g <= L + 2o.
    #[error(
        "expected gap g of at most L + 2o = {} s, as the closed forms ask, found {gap:e}",
        scientific(*most)
    )]
    Gap {
        /// What was given.
        gap: f64,
        /// The largest.
        most: f64,
    },
    /// Parameters of two models.
    #[error(
        "expected parameters of one model: alpha and beta of hockney, or latency, overhead, gap and gap per byte of loggp"
    )]
    Models,
    /// An algorithm that cannot do the operation.
    #[error("{choice} cannot do {operation}; {} can", list(can))]
    Cannot {
        /// The algorithm.
        choice: Choice,
        /// The operation.
        operation: Operation,
        /// Those that can.
        can: Vec<Choice>,
    },
    /// A length that is no number of elements.
    #[error(
        "expected a multiple of {element_bytes} bytes, the length of an element, found {bytes}"
    )]
    Elements {
        /// The length.
        bytes: u64,
        /// Bytes of an element.
        element_bytes: usize,
    },
    /// Jitter that no simulation has.
    #[error(
        "expected a case of 2 ranks or more that is simulated, to have jitter, found none; \
         cases of up to {} ranks and {} messages are simulated",
        simulated.ranks, simulated.messages
    )]
    Jitter {
        /// Which cases are simulated.
        simulated: Bounds,
    },
    /// A slow link that no simulation has.
    #[error(
        "no simulation has the slow link {}-{}; the largest is of {ranks} ranks, counted from 0",
        link.0, link.1
    )]
    SlowLink {
        /// The ranks it joins.
        link: (usize, usize),
        /// Ranks of the largest simulation.
        ranks: u64,
    },
    /// A simulation that does not end, which no schedule here has.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
}

fn list(choices: &[Choice]) -> String {
    let names: Vec<String> = choices.iter().map(Choice::to_string).collect();
    super::numbers::list(&names)
}

/// What is not as the model has it, in the simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disturbed {
    /// Mean of the exponential time that each message takes longer, in seconds.
    pub jitter: f64,
    /// A slow link.
    pub slow_link: Option<SlowLink>,
    /// Simulations, each with a seed of its own; one without jitter.
    pub seeds: u64,
}

/// Which cases are simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Ranks up to this; 0 for no simulation.
    pub ranks: usize,
    /// Messages up to this.
    pub messages: u128,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Operations, one after the other.
    pub operations: Vec<Operation>,
    /// Algorithms; empty for all that can do the operation.
    pub choices: Vec<Choice>,
    /// Numbers of ranks.
    pub ranks: Vec<u64>,
    /// Lengths of the vector in bytes.
    pub bytes: Vec<u64>,
    /// Bytes of an element, at least 1.
    pub element_bytes: usize,
    /// The model.
    pub network: Network,
    /// Where its parameters are from.
    pub source: String,
    /// What makes energy.
    pub power: Power,
    /// What is simulated.
    pub simulated: Bounds,
    /// With these disturbances, if any.
    pub disturbed: Option<Disturbed>,
}

impl Question {
    /// The algorithms for an operation.
    pub fn choices(&self, operation: Operation) -> Vec<Choice> {
        let asked = if self.choices.is_empty() {
            &Choice::ALL[..]
        } else {
            &self.choices
        };
        asked
            .iter()
            .copied()
            .filter(|choice| choice.can(operation))
            .collect()
    }

    /// Whether there is an answer.
    ///
    /// # Errors
    /// What is wrong with the question.
    pub fn check(&self) -> Result<(), CollectivesError> {
        self.network.check()?;
        for &operation in &self.operations {
            if let Some(&choice) = self.choices.iter().find(|choice| !choice.can(operation)) {
                let can = Choice::ALL.into_iter().filter(|c| c.can(operation));
                return Err(CollectivesError::Cannot {
                    choice,
                    operation,
                    can: can.collect(),
                });
            }
        }
        let size = self.element_bytes as u64;
        for &bytes in &self.bytes {
            if size == 0 || !bytes.is_multiple_of(size) {
                return Err(CollectivesError::Elements {
                    bytes,
                    element_bytes: self.element_bytes,
                });
            }
        }
        let Power {
            static_watts,
            message_joules,
            byte_joules,
        } = self.power;
        in_range("static power", MOST_POWER, "W", static_watts)?;
        in_range("energy of a message", MOST_ENERGY, "J", message_joules)?;
        in_range("energy of a byte", MOST_ENERGY, "J", byte_joules)?;
        let Some(disturbed) = self.disturbed else {
            return Ok(());
        };
        in_range("jitter", MOST_LATENCY, "s", disturbed.jitter)?;
        let ranks = self.most_simulated();
        if disturbed.jitter > 0.0 && ranks < 2 {
            return Err(CollectivesError::Jitter {
                simulated: self.simulated,
            });
        }
        match disturbed.slow_link {
            Some(SlowLink { ranks: link, .. }) if link.0.max(link.1) as u64 >= ranks => {
                Err(CollectivesError::SlowLink { link, ranks })
            }
            _ => Ok(()),
        }
    }

    fn simulates(&self, ranks: usize, traffic: &Traffic) -> bool {
        ranks <= self.simulated.ranks && traffic.messages <= self.simulated.messages
    }

    /// Ranks of the largest simulation; 0 without one.
    fn most_simulated(&self) -> u64 {
        let (size, network) = (self.element_bytes, &self.network);
        let is_simulated = |operation, choice: Choice, ranks: u64, bytes: u64| {
            // Trees and chains of many ranks would take long.
            ranks <= self.simulated.ranks as u64
                && choice
                    .case(
                        operation,
                        ranks as usize,
                        bytes as usize / size,
                        size,
                        network,
                    )
                    .and_then(|case| case.traffic())
                    .is_some_and(|traffic| self.simulates(ranks as usize, &traffic))
        };
        let any = |ranks: &u64| {
            self.operations.iter().any(|&operation| {
                let mut choices = self.choices(operation).into_iter();
                choices.any(|choice| {
                    let mut lengths = self.bytes.iter();
                    lengths.any(|&bytes| is_simulated(operation, choice, *ranks, bytes))
                })
            })
        };
        self.ranks.iter().copied().filter(any).max().unwrap_or(0)
    }

    /// Lengths between which crossovers are looked for, in elements.
    fn searched(&self) -> (usize, usize) {
        let size = self.element_bytes as u64;
        let (low, high) = match (self.bytes.iter().min(), self.bytes.iter().max()) {
            (Some(&low), Some(&high)) if low < high => (low, high),
            _ => (size, 1 << 30),
        };
        ((low / size).max(1) as usize, (high / size).max(1) as usize)
    }
}

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The algorithm as it was asked for.
    pub choice: Choice,
    /// The case, with the children or segments that are best where they were left open.
    pub case: Case,
    /// Seconds in the model.
    pub time: f64,
    /// Whether no other algorithm asked for is faster; all of them where there is nothing to do.
    pub fastest: bool,
    /// Messages and bytes.
    pub traffic: Traffic,
    /// Bytes of memory beyond operand and result, of the rank that needs most.
    pub extra_memory: u128,
    /// Joules of all ranks.
    pub energy: f64,
    /// What no algorithm can beat, in Hockney's model.
    pub bounds: Option<LowerBounds>,
    /// The event simulation, where it was made.
    pub simulated: Option<Exact>,
    /// The simulation with disturbances, in seconds, over seeds.
    pub disturbed: Option<Estimate>,
}

impl Row {
    /// Bytes of the vector.
    pub fn bytes(&self) -> u64 {
        (self.case.elements * self.case.element_bytes) as u64
    }

    /// The largest of the lower bounds, in seconds.
    pub fn bound(&self) -> Option<f64> {
        let bounds = self.bounds?;
        Some(bounds.latency.max(bounds.bandwidth).max(bounds.computation))
    }

    /// Children of a node, or segments, where the algorithm has them.
    pub fn parts(&self) -> Option<usize> {
        match self.case.algorithm {
            Algorithm::KaryTree { k } => Some(k),
            Algorithm::Chain { segments } => Some(segments),
            _ => None,
        }
    }
}

/// The event simulation and the closed form, both in whole ticks of 1e-21 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exact {
    /// Ticks in the simulation.
    pub simulated: i128,
    /// Ticks in the closed form.
    pub closed_form: i128,
}

impl Exact {
    /// Seconds in the simulation.
    pub fn seconds(&self) -> f64 {
        self.simulated as f64 / TICKS_PER_SECOND
    }

    /// Seconds that the simulation takes longer: 0, exactly.
    pub fn difference(&self) -> f64 {
        (self.simulated - self.closed_form) as f64 / TICKS_PER_SECOND
    }
}

/// Where one algorithm overtakes another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossover {
    /// The operation.
    pub operation: Operation,
    /// Ranks.
    pub ranks: usize,
    /// The faster for shorter vectors.
    pub below: Choice,
    /// The faster for longer ones.
    pub above: Choice,
    /// From so many bytes on, found to a share of 5e-4.
    pub bytes: u64,
    /// The length at which both take equally long if all is cut evenly, in Hockney's model and where
    /// nothing is chosen by length.
    pub even_bytes: Option<f64>,
    /// Whether no other algorithm asked for is faster there.
    pub of_fastest: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Collectives {
    /// What was asked.
    pub question: Question,
    /// By operation, ranks, bytes and algorithm, in the order asked for.
    pub rows: Vec<Row>,
    /// By operation and ranks.
    pub crossovers: Vec<Crossover>,
}

/// Tabulates what is asked.
///
/// # Errors
/// A question that has no answer.
pub fn collectives(question: Question) -> Result<Collectives, CollectivesError> {
    question.check()?;
    let mut rows = Vec::new();
    let mut crossovers = Vec::new();
    for &operation in &question.operations {
        let choices = question.choices(operation);
        for &ranks in &question.ranks {
            for &bytes in &question.bytes {
                let first = rows.len();
                for &choice in &choices {
                    rows.extend(row(&question, operation, choice, ranks as usize, bytes)?);
                }
                mark_fastest(&mut rows[first..]);
            }
            crossovers.extend(find_crossovers(
                &question,
                operation,
                &choices,
                ranks as usize,
            ));
        }
    }
    Ok(Collectives {
        question,
        rows,
        crossovers,
    })
}

fn row(
    question: &Question,
    operation: Operation,
    choice: Choice,
    ranks: usize,
    bytes: u64,
) -> Result<Option<Row>, CollectivesError> {
    let (size, network) = (question.element_bytes, &question.network);
    let elements = bytes as usize / size;
    let known = || {
        let case = choice.case(operation, ranks, elements, size, network)?;
        let time = network.time(&case)?;
        Some(Row {
            choice,
            case,
            time,
            fastest: false,
            traffic: case.traffic()?,
            extra_memory: case.extra_memory()?,
            energy: case.energy(time, &question.power)?,
            bounds: match network {
                Network::Hockney(model) => Some(case.lower_bounds(model)),
                Network::LogGp(_) => None,
            },
            simulated: None,
            disturbed: None,
        })
    };
    let Some(mut row) = known() else {
        return Ok(None);
    };
    if question.simulates(ranks, &row.traffic) {
        simulate(question, &mut row)?;
    }
    Ok(Some(row))
}

fn mark_fastest(rows: &mut [Row]) {
    let least = rows
        .iter()
        .map(|row| row.time)
        .fold(f64::INFINITY, f64::min);
    for row in rows {
        row.fastest = row.time <= least * (1.0 + TIE);
    }
}

fn ticks(seconds: f64) -> i128 {
    (seconds * TICKS_PER_SECOND).round() as i128
}

/// Runs the schedule of the case as events: exactly, and with the disturbances that are asked for.
fn simulate(question: &Question, row: &mut Row) -> Result<(), CollectivesError> {
    let case = row.case;
    let Some(schedule) =
        collective::schedule(case.operation, case.algorithm, case.ranks, case.elements)
    else {
        return Ok(());
    };
    let size = case.element_bytes;
    let none = &mut Disturbance::default();
    let (done, closed_form) = match &question.network {
        Network::Hockney(m) => {
            let exact = Hockney {
                alpha: ticks(m.alpha),
                beta: ticks(m.beta),
                gamma: ticks(m.gamma),
            };
            let done = collective::simulate_hockney(&schedule, size, &exact, none)?;
            (done, case.time(&exact))
        }
        Network::LogGp(m) => {
            let exact = LogGp {
                latency: ticks(m.latency),
                overhead: ticks(m.overhead),
                gap: ticks(m.gap),
                byte_gap: ticks(m.byte_gap),
                gamma: ticks(m.gamma),
            };
            let done = collective::simulate_loggp(&schedule, size, &exact, none)?;
            (done, case.time(&exact))
        }
    };
    row.simulated = closed_form.map(|closed_form| Exact {
        simulated: done.time(),
        closed_form,
    });
    let Some(disturbed) = question.disturbed else {
        return Ok(());
    };
    let seeds = if disturbed.jitter > 0.0 {
        disturbed.seeds
    } else {
        1
    };
    let mut times = Vec::new();
    for seed in 0..seeds {
        let mut stream = Stream::new(seed, "collective-jitter", 0);
        let mean = disturbed.jitter;
        let draw = move |_: Transfer| -mean * (1.0 - stream.uniform()).ln();
        let mut disturbance = Disturbance {
            jitter: (mean > 0.0).then(|| Box::new(draw) as Box<dyn FnMut(Transfer) -> f64>),
            slow_link: disturbed.slow_link,
        };
        let done: Simulated<f64> = match &question.network {
            Network::Hockney(m) => {
                collective::simulate_hockney(&schedule, size, m, &mut disturbance)?
            }
            Network::LogGp(m) => collective::simulate_loggp(&schedule, size, m, &mut disturbance)?,
        };
        times.push(done.time());
    }
    row.disturbed = Estimate::of(&times);
    Ok(())
}

/// The sign of a - b, 0 where they are equal but for rounding.
fn order(a: f64, b: f64) -> i8 {
    if (a - b).abs() <= TIE * a.max(b) {
        0
    } else if a < b {
        -1
    } else {
        1
    }
}

/// All crossovers of pairs of algorithms: where the sign of the difference changes between
/// neighbours of a grid, by bisection.
fn find_crossovers(
    question: &Question,
    operation: Operation,
    choices: &[Choice],
    ranks: usize,
) -> Vec<Crossover> {
    let (size, network) = (question.element_bytes, &question.network);
    let (low, high) = question.searched();
    if ranks < 2 || choices.len() < 2 || low >= high {
        return Vec::new();
    }
    let mut known: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut time = |choice: usize, elements: usize| {
        *known.entry((choice, elements)).or_insert_with(|| {
            choices[choice]
                .case(operation, ranks, elements, size, network)
                .and_then(|case| network.time(&case))
                .unwrap_or(f64::INFINITY)
        })
    };
    let steps = ((high as f64 / low as f64).log2() * PER_OCTAVE).ceil() as i32;
    let mut grid: Vec<usize> = (0..=steps)
        .map(|i| (low as f64 * 2f64.powf(f64::from(i) / PER_OCTAVE)).round() as usize)
        .map(|elements| elements.min(high))
        .collect();
    grid.dedup();
    let mut found = Vec::new();
    for a in 0..choices.len() {
        for b in a + 1..choices.len() {
            // The last length at which they differed, and how.
            let mut last: Option<(usize, i8)> = None;
            for &elements in &grid {
                let sign = order(time(a, elements), time(b, elements));
                if sign == 0 {
                    continue;
                }
                if let Some((from, before)) = last.filter(|(_, before)| *before != sign) {
                    let (mut below, mut above) = (from, elements);
                    while above - below > 1 && above as f64 > below as f64 * (1.0 + CLOSE) {
                        let middle = below.midpoint(above);
                        let there = order(time(a, middle), time(b, middle));
                        if there == before {
                            below = middle;
                        } else {
                            above = middle;
                        }
                    }
                    let mut least = |elements| {
                        (0..choices.len())
                            .map(|choice| time(choice, elements))
                            .fold(f64::INFINITY, f64::min)
                    };
                    let (least_below, least_above) = (least(below), least(above));
                    let (first, second) = if before < 0 { (a, b) } else { (b, a) };
                    let is_least = |t: f64, least: f64| t <= least * (1.0 + CLOSE);
                    found.push(Crossover {
                        operation,
                        ranks,
                        below: choices[first],
                        above: choices[second],
                        bytes: (above * size) as u64,
                        even_bytes: even(
                            question,
                            operation,
                            ranks,
                            choices[first],
                            choices[second],
                        ),
                        of_fastest: is_least(time(first, below), least_below)
                            && is_least(time(second, above), least_above),
                    });
                }
                last = Some((elements, sign));
            }
        }
    }
    found.sort_by_key(|crossover| crossover.bytes);
    found
}

fn even(
    question: &Question,
    operation: Operation,
    ranks: usize,
    a: Choice,
    b: Choice,
) -> Option<f64> {
    let Network::Hockney(model) = &question.network else {
        return None;
    };
    if a.is_open() || b.is_open() {
        return None;
    }
    let case = |choice: Choice| {
        choice.case(
            operation,
            ranks,
            // As many as there can be segments.
            MOST_PARTS,
            question.element_bytes,
            &question.network,
        )
    };
    theory::crossover(&case(a)?, &case(b)?, model)
}

type MakeTable = fn(&Collectives, &Path) -> Result<Table, StoreError>;

impl Collectives {
    /// Writes `collectives.csv`, `crossovers.csv` and `parameters.csv` into a folder, which is made.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write_tables(&self, folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
        store::create_folder(folder)?;
        let mut files = Vec::new();
        let tables: [MakeTable; 3] = [Self::table, Self::crossover_table, Self::parameter_table];
        for (name, table) in COST_TABLES.into_iter().zip(tables) {
            let path = folder.join(name);
            table(self, &path)?.write()?;
            files.push(path);
        }
        Ok(files)
    }

    fn table(&self, path: &Path) -> Result<Table, StoreError> {
        let mut table = Table::new(
            path,
            [
                "operation",
                "algorithm",
                "children_or_segments",
                "ranks",
                "bytes",
                "element_bytes",
                "model",
                "time_s",
                "fastest",
                "messages",
                "bytes_sent",
                "busiest_messages",
                "busiest_bytes",
                "extra_memory_bytes",
                "energy_j",
                "bound_latency_s",
                "bound_bandwidth_s",
                "bound_computation_s",
                "simulated_s",
                "simulated_minus_closed_form_s",
                "disturbed_s",
                "disturbed_low_s",
                "disturbed_high_s",
                "disturbed_seeds",
            ],
        )?;
        for row in &self.rows {
            let interval = row.disturbed.and_then(|d| d.interval());
            let count = |n: u128| n.to_string();
            table.push(&[
                &row.case.operation.to_string(),
                &row.choice.word(),
                &row.parts(),
                &row.case.ranks,
                &row.bytes(),
                &row.case.element_bytes,
                &self.question.network.name(),
                &row.time,
                &row.fastest,
                &count(row.traffic.messages),
                &count(row.traffic.bytes),
                &count(row.traffic.busiest_messages),
                &count(row.traffic.busiest_bytes),
                &count(row.extra_memory),
                &row.energy,
                &row.bounds.map(|b| b.latency),
                &row.bounds.map(|b| b.bandwidth),
                &row.bounds.map(|b| b.computation),
                &row.simulated.map(|s| s.seconds()),
                &row.simulated.map(|s| s.difference()),
                &row.disturbed.map(|d| d.mean),
                &interval.map(|i| i.low),
                &interval.map(|i| i.high),
                &row.disturbed.map(|d| d.n),
            ])?;
        }
        Ok(table)
    }

    fn crossover_table(&self, path: &Path) -> Result<Table, StoreError> {
        let mut table = Table::new(
            path,
            [
                "operation",
                "ranks",
                "faster_below",
                "faster_above",
                "bytes",
                "bytes_if_even",
                "of_the_fastest",
            ],
        )?;
        for crossover in &self.crossovers {
            table.push(&[
                &crossover.operation.to_string(),
                &crossover.ranks,
                &crossover.below.to_string(),
                &crossover.above.to_string(),
                &crossover.bytes,
                &crossover.even_bytes,
                &crossover.of_fastest,
            ])?;
        }
        Ok(table)
    }

    fn parameter_table(&self, path: &Path) -> Result<Table, StoreError> {
        let mut table = Table::new(path, ["parameter", "value", "unit", "source"])?;
        let question = &self.question;
        for (name, value, unit) in question.network.parameters() {
            table.push(&[&name, &value, &unit, &question.source])?;
        }
        let Power {
            static_watts,
            message_joules,
            byte_joules,
        } = question.power;
        for (name, value, unit) in [
            ("static power of a rank", static_watts, "W"),
            ("energy of a message", message_joules, "J"),
            ("energy of a byte", byte_joules, "J"),
        ] {
            table.push(&[&name, &value, &unit, &"as given, else 0"])?;
        }
        if let Some(disturbed) = question.disturbed {
            table.push(&[
                &"mean jitter of a message",
                &disturbed.jitter,
                &"s",
                &"as given",
            ])?;
            if let Some(link) = disturbed.slow_link {
                let name = format!(
                    "slow link between ranks {} and {}",
                    link.ranks.0, link.ranks.1
                );
                table.push(&[&name, &(link.factor as f64), &"times", &"as given"])?;
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            operations: vec![Operation::AllReduce],
            choices: Vec::new(),
            ranks: vec![2, 3, 8, 13],
            bytes: vec![8, 1 << 12, 1 << 20],
            element_bytes: 4,
            network: Network::Hockney(PRESETS[0].hockney),
            source: "a test".to_owned(),
            power: Power {
                static_watts: 100.0,
                message_joules: 1e-6,
                byte_joules: 1e-9,
            },
            simulated: Bounds {
                ranks: 16,
                messages: 20_000,
            },
            disturbed: None,
        }
    }

    #[test]
    fn every_simulation_is_the_closed_form_to_the_last_tick() {
        for network in [
            Network::Hockney(PRESETS[0].hockney),
            Network::LogGp(PRESETS[0].loggp),
        ] {
            let found = collectives(Question {
                operations: Operation::ALL.to_vec(),
                network,
                ..question()
            })
            .unwrap();
            let simulated: Vec<&Row> = found
                .rows
                .iter()
                .filter(|r| r.simulated.is_some())
                .collect();
            assert!(simulated.len() * 10 > found.rows.len() * 9);
            for row in simulated {
                let exact = row.simulated.unwrap();
                assert_eq!(exact.simulated, exact.closed_form, "{row:?}");
                assert_eq!(exact.difference(), 0.0);
                assert!((exact.seconds() / row.time - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn the_fastest_is_the_one_with_the_least_time() {
        let found = collectives(question()).unwrap();
        assert_eq!(found.rows.len(), 4 * 3 * 8);
        for group in found.rows.chunks(8) {
            let least = group.iter().map(|r| r.time).fold(f64::INFINITY, f64::min);
            assert!(group.iter().any(|row| row.fastest));
            for row in group {
                assert_eq!(row.fastest, row.time <= least * (1.0 + 1e-9));
                assert!(row.bound().unwrap() <= row.time * (1.0 + 1e-12), "{row:?}");
            }
        }
    }

    #[test]
    fn what_is_left_open_is_as_good_as_any_number_given() {
        let network = Network::Hockney(PRESETS[0].hockney);
        let time = |choice: Choice| {
            let case = choice.case(Operation::AllReduce, 9, 5000, 4, &network);
            network.time(&case.unwrap()).unwrap()
        };
        for n in 1..40 {
            assert!(time(Choice::Chain(None)) <= time(Choice::Chain(Some(n))));
            assert!(time(Choice::Tree(None)) <= time(Choice::Tree(Some(n))));
        }
    }

    #[test]
    fn crossovers_are_where_the_closed_form_has_them() {
        let found = collectives(Question {
            choices: vec![
                Choice::RecursiveDoubling,
                Choice::Rabenseifner,
                Choice::Ring,
                Choice::Chain(None),
            ],
            ranks: vec![8],
            ..question()
        })
        .unwrap();
        let of = |below, above| {
            let mut all = found.crossovers.iter();
            all.find(|c| c.below == below && c.above == above)
        };
        let first = of(Choice::RecursiveDoubling, Choice::Rabenseifner).unwrap();
        let even = first.even_bytes.unwrap();
        // Found to 5e-4; Rabenseifner cuts into eighths, of which the longer count.
        assert!((first.bytes as f64 / even - 1.0).abs() < 0.01, "{first:?}");
        assert!(first.of_fastest);
        assert_eq!(of(Choice::Rabenseifner, Choice::RecursiveDoubling), None);
        let open = found.crossovers.iter().find(|c| {
            matches!(c.below, Choice::Chain(None)) || matches!(c.above, Choice::Chain(None))
        });
        assert!(open.is_none_or(|c| c.even_bytes.is_none()));
        // Both take as long to either side.
        let network = found.question.network;
        for c in &found.crossovers {
            let time = |choice: Choice| {
                let elements = c.bytes as usize / 4;
                let case = choice.case(c.operation, 8, elements, 4, &network).unwrap();
                network.time(&case).unwrap()
            };
            let ratio = time(c.below) / time(c.above);
            assert!((1.0..1.01).contains(&ratio), "{c:?} {ratio}");
        }
    }

    #[test]
    fn a_chain_has_no_more_segments_than_elements() {
        let found = collectives(Question {
            choices: vec![Choice::Chain(Some(1_000_000_000)), Choice::Chain(Some(16))],
            ranks: vec![4],
            bytes: vec![1024],
            ..question()
        })
        .unwrap();
        let names = found.rows.iter().map(|row| row.case.algorithm.to_string());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["chain of 256 segments", "chain of 16 segments"]
        );
        assert_eq!(found.rows[0].parts(), Some(256));
    }

    #[test]
    fn zero_has_no_power_of_ten() {
        assert_eq!([0.0, -0.0, 2e-6].map(scientific), ["0", "0", "2e-6"]);
    }

    #[test]
    fn two_ranks_that_do_the_same_have_no_crossover() {
        let found = collectives(Question {
            choices: vec![Choice::Flat, Choice::Tree(None), Choice::Binomial],
            ranks: vec![1, 2],
            ..question()
        })
        .unwrap();
        assert_eq!(found.crossovers, []);
        assert!(found.rows.iter().all(|row| row.fastest));
    }

    #[test]
    fn jitter_and_a_slow_link_make_it_longer() {
        let of = |disturbed| {
            let question = Question {
                choices: vec![Choice::Ring, Choice::Binomial],
                ranks: vec![4],
                disturbed: Some(disturbed),
                ..question()
            };
            collectives(question).unwrap().rows
        };
        let link = parse_slow_link("0-1=10").unwrap();
        let slow = of(Disturbed {
            jitter: 0.0,
            slow_link: Some(link),
            seeds: 20,
        });
        for row in &slow {
            let disturbed = row.disturbed.unwrap();
            assert!(disturbed.mean > 1.5 * row.time);
            assert_eq!((disturbed.n, disturbed.interval()), (1, None));
        }
        // A ring in which all wait for the slow link in each of its 6 rounds.
        let ring = &slow[2];
        assert!((ring.disturbed.unwrap().mean / ring.time - 10.0).abs() < 0.5);
        let jitter = Disturbed {
            jitter: 1e-5,
            slow_link: None,
            seeds: 12,
        };
        for row in of(jitter) {
            let disturbed = row.disturbed.unwrap();
            assert_eq!(disturbed.n, 12);
            let interval = disturbed.interval().unwrap();
            assert!(interval.low > row.time && interval.contains(disturbed.mean));
        }
        assert_eq!(of(jitter), of(jitter));
    }

    #[test]
    fn tables_have_a_row_for_each_case_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let found = collectives(Question {
            disturbed: Some(Disturbed {
                jitter: 1e-6,
                slow_link: None,
                seeds: 3,
            }),
            ..question()
        })
        .unwrap();
        let files = found.write_tables(&folder.path().join("new")).unwrap();
        let read = |i: usize| Table::read(&files[i]).unwrap();
        let table = read(0);
        assert_eq!(table.len(), found.rows.len());
        let times = table.numbers("time_s").unwrap();
        for (time, row) in times.iter().zip(&found.rows) {
            assert_eq!(*time, Some(row.time));
        }
        assert!(table.numbers("disturbed_low_s").unwrap()[0].is_some());
        assert_eq!(read(1).len(), found.crossovers.len());
        assert_eq!(read(2).texts("parameter").unwrap()[0], Some("alpha"));
    }

    #[test]
    fn lists_and_names_are_read_and_slips_are_told() {
        assert_eq!(parse_ranks("2..9").unwrap(), [2, 4, 8]);
        assert_eq!(parse_ranks("7").unwrap(), [7]);
        assert_eq!(parse_bytes("3KiB").unwrap(), [3072]);
        assert_eq!(
            parse_bytes("256KiB..1MiB").unwrap(),
            [1 << 18, 1 << 19, 1 << 20]
        );
        for wrong in [
            "0",
            "-1",
            "x",
            "8..2",
            "1.5",
            "",
            "2..",
            "99999999999999999999",
        ] {
            assert!(
                parse_ranks(wrong)
                    .unwrap_err()
                    .contains("expected ranks from 1")
            );
            assert!(parse_bytes(wrong).is_err());
        }
        for choice in Choice::ALL
            .into_iter()
            .chain([Choice::Tree(Some(3)), Choice::Chain(Some(9))])
        {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let refused = |text: &str| text.parse::<Choice>().unwrap_err();
        assert!(refused("rign").contains("did you mean `ring`?"));
        assert!(refused("ring=3").contains("expected `ring` alone"));
        for wrong in ["tree=0", "tree=99999999999", "chain=-1"] {
            assert!(refused(wrong).contains("expected a number from 1 to 1073741824"));
        }
        assert_eq!(parse_operation("all-gather"), Ok(Operation::AllGather));
        assert!(
            parse_operation("allreduce")
                .unwrap_err()
                .contains("`all-reduce`")
        );
        assert!(
            parse_preset("ethernet10g")
                .unwrap_err()
                .contains("a preset, found")
        );
        for wrong in ["0-0=3", "0-1", "0-1=0", "a-b=2"] {
            assert!(parse_slow_link(wrong).is_err());
        }
    }

    #[test]
    fn a_network_is_a_preset_with_what_is_given() {
        let alpha = Given {
            alpha: Some(1e-3),
            ..Given::default()
        };
        let (found, source) = network(&PRESETS[1], None, &alpha).unwrap();
        assert_eq!(
            found,
            Network::Hockney(Hockney {
                alpha: 1e-3,
                ..PRESETS[1].hockney
            })
        );
        assert!(source.starts_with("as given, else preset ethernet-10g"));
        let gap = Given {
            gap: Some(1e-7),
            ..Given::default()
        };
        assert_eq!(network(&PRESETS[0], None, &gap).unwrap().0.name(), "loggp");
        assert!(matches!(
            network(&PRESETS[0], Some(true), &alpha),
            Err(CollectivesError::Models)
        ));
        let wide = Given {
            gap: Some(1.0),
            ..gap
        };
        assert!(matches!(
            network(&PRESETS[0], None, &wide),
            Err(CollectivesError::Gap { .. })
        ));
        for bad in [-1.0, f64::NAN, 1e9] {
            let given = Given {
                alpha: Some(bad),
                ..alpha
            };
            assert!(matches!(
                network(&PRESETS[0], None, &given),
                Err(CollectivesError::Parameter { name: "alpha", .. })
            ));
        }
        for preset in PRESETS {
            assert!(network(&preset, Some(true), &Given::default()).is_ok());
            let LogGp {
                latency, overhead, ..
            } = preset.loggp;
            assert!((latency + 2.0 * overhead - preset.hockney.alpha).abs() < 1e-12);
            assert_eq!(preset.loggp.byte_gap, preset.hockney.beta);
        }
    }

    #[test]
    fn questions_without_an_answer_are_refused() {
        let refused = |question: Question| collectives(question).unwrap_err().to_string();
        assert_eq!(
            refused(Question {
                operations: vec![Operation::Scatter],
                choices: vec![Choice::Ring],
                ..question()
            }),
            "ring cannot do scatter; flat, tree and binomial can"
        );
        assert_eq!(
            refused(Question {
                bytes: vec![10],
                ..question()
            }),
            "expected a multiple of 4 bytes, the length of an element, found 10"
        );
        let of_power = |power| {
            refused(Question {
                power,
                ..question()
            })
        };
        assert_eq!(
            of_power(Power {
                static_watts: -1.0,
                ..Power::default()
            }),
            "expected static power from 0 to 1e6 W, found -1e0"
        );
        assert_eq!(
            of_power(Power {
                message_joules: f64::NAN,
                ..Power::default()
            }),
            "expected energy of a message from 0 to 1e6 J, found NaN"
        );
        assert_eq!(
            of_power(Power {
                byte_joules: 1e308,
                ..Power::default()
            }),
            "expected energy of a byte from 0 to 1e6 J, found 1e308"
        );
        let of_jitter = |jitter, ranks, simulated| {
            refused(Question {
                ranks,
                simulated,
                disturbed: Some(Disturbed {
                    jitter,
                    slow_link: None,
                    seeds: 2,
                }),
                ..question()
            })
        };
        let bounds = question().simulated;
        assert_eq!(
            of_jitter(1e300, vec![4], bounds),
            "expected jitter from 0 to 1e4 s, found 1e300"
        );
        let few = Bounds {
            messages: 1,
            ..bounds
        };
        let none = Bounds { ranks: 0, ..bounds };
        for (ranks, bounds) in [(17, bounds), (1, bounds), (8, few), (4, none)] {
            let error = of_jitter(1e-6, vec![ranks], bounds);
            assert!(error.contains("to have jitter, found none"), "{error}");
        }
        assert_eq!(
            refused(Question {
                disturbed: Some(Disturbed {
                    jitter: 0.0,
                    slow_link: Some(SlowLink {
                        ranks: (0, 13),
                        factor: 2,
                    }),
                    seeds: 2,
                }),
                ..question()
            }),
            "no simulation has the slow link 0-13; the largest is of 13 ranks, counted from 0"
        );
    }
}
