//! Updates whose gradients are taken at earlier parameters: fixed delays, pipelines of layers, and
//! replicas on a simulated clock (`train.update`).
//!
//! A run keeps the parameters that gradients to come are taken at. It is then a plain sequence, whatever
//! would work side by side on a cluster: the gradient of update t at those parameters, and the update.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use super::TrainError;
use super::outcome::StalenessOutcome;
use super::watch::layers_of;
use crate::config::{TrialConfig, Update};
use crate::objective::{Layout, Scalar};
use crate::rng::Stream;
use crate::theory::collectives::Blocks;
use crate::theory::staleness::{
    Discipline, Event, Simulation, Summary, corrected_momentum, stale_rate,
};

/// Uniform numbers of each replica.
type Draw = Box<dyn FnMut(usize) -> f64 + Send>;

/// Which parameters gradients are taken at.
enum Kind {
    /// The present ones.
    Now,
    /// Those of so many updates before.
    Delay(u64),
    /// Each part of the vector at its own delay.
    Parts(Vec<(Range<usize>, u64)>),
    /// Those that a replica has read.
    Replicas(Box<Replicas>),
}

/// The simulated clock of a run, and what it has shown.
struct Replicas {
    simulation: Simulation<Draw>,
    /// The gradient that comes next; `None` where none can.
    next: Option<Event>,
    /// The version whose copy each replica has.
    copied: Vec<Option<u64>>,
    events: Vec<Event>,
}

impl Replicas {
    fn new(config: &TrialConfig) -> Result<Option<Self>, TrainError> {
        let Some((workers, server)) = config.train.update.cluster() else {
            return Ok(None);
        };
        let discipline = match config.train.update {
            Update::Asynchronous {
                bound: Some(bound), ..
            } => Discipline::Bounded(bound),
            _ => Discipline::Asynchronous,
        };
        let seed = config.seed;
        let mut streams: Vec<Stream> = (0..workers.len() as u64)
            .map(|replica| Stream::new(seed, "gradient-times", replica))
            .collect();
        let draw: Draw = Box::new(move |replica| streams[replica].uniform());
        let mut simulation = Simulation::new(&workers, discipline, server, draw)?;
        let next = simulation.next();
        Ok(Some(Self {
            simulation,
            next,
            copied: vec![None; workers.len()],
            events: Vec::new(),
        }))
    }

    /// Goes on to the gradient after the next one.
    fn advance(&mut self) {
        if let Some(event) = self.next.take() {
            self.events.push(event);
        }
        self.next = self.simulation.next();
    }
}

/// Which gradient an update is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lateness {
    /// Updates made since its parameters were read.
    pub(super) staleness: u64,
    /// The replica, from 0, and the simulated seconds, of an asynchronous run.
    pub(super) replica: Option<(usize, f64)>,
}

/// Earlier parameters of a session.
pub(super) struct Late<F> {
    kind: Kind,
    /// Of fixed delays: the parameters of the last updates, the oldest first. Of replicas: what each
    /// has read.
    earlier: VecDeque<Vec<F>>,
    /// Of a part-wise delay: where the point is put together.
    point: Vec<F>,
}

/// Whether a model has a layer for each stage of a pipeline.
///
/// # Errors
/// If it has fewer.
pub fn check_update(config: &TrialConfig, layout: &Layout) -> Result<(), TrainError> {
    match config.train.update {
        Update::Pipeline { stages: count, .. } => stages(layout, count).map(|_| ()),
        _ => Ok(()),
    }
}

/// The stages of a pipeline: runs of layers, as equal in number as can be.
fn stages(layout: &Layout, stages: u64) -> Result<Vec<Range<usize>>, TrainError> {
    let layers = layers_of(layout);
    if stages > layers.len() as u64 {
        return Err(TrainError::Stages {
            stages,
            layers: layers.len(),
        });
    }
    let blocks = Blocks::new(layers.len(), stages as usize);
    let range = |stage: usize| {
        let own = &layers[blocks.range(stage)];
        let start = own.first().map_or(0, |(_, range)| range.start);
        start..own.last().map_or(start, |(_, range)| range.end)
    };
    Ok((0..stages as usize).map(range).collect())
}

impl<F: Scalar> Late<F> {
    /// At the start of a run.
    pub(super) fn new(
        config: &TrialConfig,
        layout: &Layout,
        parameters: &[F],
    ) -> Result<Self, TrainError> {
        let kind = match &config.train.update {
            Update::Synchronous | Update::Stale { delay: 0, .. } => Kind::Now,
            Update::Stale { delay, .. } => Kind::Delay(*delay),
            Update::Pipeline {
                stages: count,
                schedule,
            } => {
                let ranges = stages(layout, *count)?;
                let delays = schedule.schedule().delays(*count as u32);
                let parts: Vec<(Range<usize>, u64)> = ranges
                    .into_iter()
                    .zip(delays.into_iter().map(u64::from))
                    .collect();
                if parts.iter().all(|(_, delay)| *delay == 0) {
                    Kind::Now
                } else {
                    Kind::Parts(parts)
                }
            }
            Update::Asynchronous { .. } => match Replicas::new(config)? {
                Some(replicas) => Kind::Replicas(Box::new(replicas)),
                None => Kind::Now,
            },
        };
        let copies = match &kind {
            Kind::Now => 0,
            Kind::Delay(delay) => *delay as usize,
            Kind::Parts(parts) => parts.iter().map(|(_, d)| *d as usize).max().unwrap_or(0),
            Kind::Replicas(replicas) => replicas.copied.len(),
        };
        Ok(Self {
            kind,
            earlier: vec![parameters.to_vec(); copies].into(),
            point: Vec::new(),
        })
    }

    /// Copies of the parameters that are kept.
    pub(super) fn vectors(&self) -> impl Iterator<Item = (Cow<'static, str>, &[F])> {
        let name = match self.kind {
            Kind::Replicas(_) => "read_by",
            _ => "earlier",
        };
        let named = move |(i, values)| {
            let values: &Vec<F> = values;
            (Cow::from(format!("{name}_{i}")), values.as_slice())
        };
        self.earlier.iter().enumerate().map(named)
    }

    /// How many there are.
    pub(super) fn copies(&self) -> usize {
        self.earlier.len()
    }

    /// Puts back what [`Late::vectors`] gave after this many updates.
    pub(super) fn restore(&mut self, step: u64, vectors: Vec<Vec<F>>) {
        self.earlier = vectors.into();
        if let Kind::Replicas(replicas) = &mut self.kind {
            for _ in 0..step {
                replicas.advance();
            }
        }
    }

    /// Replaces every copy: the run starts at other parameters.
    pub(super) fn start_at(&mut self, parameters: &[F]) {
        for copy in &mut self.earlier {
            copy.copy_from_slice(parameters);
        }
    }

    /// The delay, where all parameters have the same fixed one above 0.
    pub(super) fn fixed_delay(&self) -> Option<u64> {
        match self.kind {
            Kind::Delay(delay) => Some(delay),
            _ => None,
        }
    }

    /// The parameters that the gradient of the update `ahead` updates after the next one is taken at,
    /// where they are known: under a fixed delay of at least `ahead`.
    pub(super) fn ahead<'a>(&'a self, parameters: &'a [F], ahead: usize) -> Option<&'a [F]> {
        let Kind::Delay(delay) = self.kind else {
            return None;
        };
        match ahead.cmp(&(delay as usize)) {
            std::cmp::Ordering::Less => self.earlier.get(ahead).map(Vec::as_slice),
            std::cmp::Ordering::Equal => Some(parameters),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// The parameters that the next gradient is taken at, `step` updates made.
    pub(super) fn point<'a>(&'a mut self, step: u64, parameters: &'a [F]) -> &'a [F] {
        match &mut self.kind {
            Kind::Now => parameters,
            Kind::Delay(_) => self.earlier.front().map_or(parameters, Vec::as_slice),
            Kind::Parts(parts) => {
                self.point.clear();
                self.point.extend_from_slice(parameters);
                let held = self.earlier.len();
                for (range, delay) in parts.iter().filter(|(_, delay)| *delay > 0) {
                    let from = &self.earlier[held - *delay as usize];
                    self.point[range.clone()].copy_from_slice(&from[range.clone()]);
                }
                &self.point
            }
            Kind::Replicas(replicas) => {
                for (replica, copied) in replicas.copied.iter_mut().enumerate() {
                    let reads = replicas.simulation.has_read(replica, step)
                        || replicas
                            .next
                            .is_some_and(|e| e.worker == replica && e.read == step);
                    if reads && *copied != Some(step) {
                        // At the start all have them.
                        self.earlier[replica].copy_from_slice(parameters);
                        *copied = Some(step);
                    }
                }
                let next = replicas.next.map_or(0, |event| event.worker);
                self.earlier.get(next).map_or(parameters, Vec::as_slice)
            }
        }
    }

    /// The gradient of the next update, `step` updates made.
    pub(super) fn lateness(&self, step: u64) -> Lateness {
        let (staleness, replica) = match &self.kind {
            Kind::Now => (0, None),
            Kind::Delay(delay) => ((*delay).min(step), None),
            Kind::Parts(parts) => {
                let most = parts.iter().map(|(_, delay)| *delay).max();
                (most.unwrap_or(0).min(step), None)
            }
            Kind::Replicas(replicas) => match &replicas.next {
                Some(event) => (event.staleness(), Some((event.worker, event.time))),
                None => (0, None),
            },
        };
        Lateness { staleness, replica }
    }

    /// Told before the parameters change.
    pub(super) fn before_update(&mut self, parameters: &[F]) {
        if matches!(self.kind, Kind::Delay(_) | Kind::Parts(_))
            && let Some(mut oldest) = self.earlier.pop_front()
        {
            oldest.copy_from_slice(parameters);
            self.earlier.push_back(oldest);
        }
    }

    /// Told after each update, applied or not.
    pub(super) fn after_update(&mut self) {
        if let Kind::Replicas(replicas) = &mut self.kind {
            replicas.advance();
        }
    }

    /// Whether no gradient can come any more: all replicas are dead, or wait for one that is.
    pub(super) fn is_over(&self) -> bool {
        matches!(&self.kind, Kind::Replicas(replicas) if replicas.next.is_none())
    }

    /// The staleness of the gradients so far, of an asynchronous run.
    pub(super) fn outcome(&self) -> Option<StalenessOutcome> {
        let Kind::Replicas(replicas) = &self.kind else {
            return None;
        };
        let summary = Summary::of(&replicas.events);
        Some(StalenessOutcome {
            seconds: summary.seconds,
            mean: summary.mean_staleness().unwrap_or(0.0),
            histogram: summary.histogram,
            by_replica: replicas.by_replica(),
        })
    }
}

impl Replicas {
    fn by_replica(&self) -> Vec<u64> {
        let mut counts = vec![0; self.copied.len()];
        for event in &self.events {
            counts[event.worker] += 1;
        }
        counts
    }
}

/// Rate and momentum of an update of a late gradient.
pub(super) fn rates(
    update: &Update,
    late: Lateness,
    lr: f64,
    momentum: Option<f64>,
) -> (f64, Option<f64>) {
    let (divide, correct, staleness, mean) = match *update {
        Update::Stale {
            delay,
            divide_rate,
            correct_momentum,
        } => (divide_rate, correct_momentum, delay, delay as f64),
        Update::Asynchronous {
            replicas,
            divide_rate,
            correct_momentum,
            ..
        } => {
            let mean = replicas as f64 - 1.0;
            (divide_rate, correct_momentum, late.staleness, mean)
        }
        Update::Synchronous | Update::Pipeline { .. } => (false, false, 0, 0.0),
    };
    let lr = if divide {
        stale_rate(lr, staleness)
    } else {
        lr
    };
    let momentum = momentum.map(|m| {
        if correct {
            corrected_momentum(m, mean)
        } else {
            m
        }
    });
    (lr, momentum)
}
