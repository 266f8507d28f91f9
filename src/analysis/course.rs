//! How the learning rate, the global batch and the momentum went over a run, in few enough points to
//! draw; and which points of a study have anything to show of it.

use std::path::Path;

use super::generalization_gap::{Point, Trial};
use super::tables::{AnalysisError, ChangeRow, StepRow, read_changes, read_steps};
use crate::train::Status;

/// Stretches that a run is cut into.
const STRETCHES: u64 = 150;
/// Values that one stretch keeps: the first, the least, the greatest and the last one, where there
/// are more.
const KEPT: usize = 4;

/// What holds during one update, or several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// The epoch it begins at.
    pub begins: f64,
    /// The epoch it ends at.
    pub ends: f64,
    /// Learning rate.
    pub rate: f64,
    /// Global batch.
    pub batch: f64,
    /// Momentum, where there is one.
    pub momentum: Option<f64>,
    /// Noise scale, where it is known.
    pub noise: Option<f64>,
}

/// The quantities of a run over its epochs. Each is a line of (epoch, value) points, level while a
/// value holds and upright where it changes. A value that holds for a stretch of updates is there as
/// it was; of values that change at every update each of 150 stretches has its first, its least,
/// its greatest and its last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Course {
    /// Learning rate.
    pub rate: Vec<(f64, f64)>,
    /// Global batch.
    pub batch: Vec<(f64, f64)>,
    /// Momentum; empty without one.
    pub momentum: Vec<(f64, f64)>,
    /// Noise scale; empty where it is not known.
    pub noise: Vec<(f64, f64)>,
}

/// Makes a [`Course`] from the updates of a run in their order, however many there are.
#[derive(Debug)]
pub struct CourseBuilder {
    updates: u64,
    given: u64,
    stretch: u64,
    rate: Outline,
    batch: Outline,
    momentum: Outline,
    noise: Outline,
}

impl CourseBuilder {
    /// For a run of about so many updates.
    pub fn new(updates: u64) -> Self {
        Self {
            updates: updates.max(1),
            given: 0,
            stretch: 0,
            rate: Outline::default(),
            batch: Outline::default(),
            momentum: Outline::default(),
            noise: Outline::default(),
        }
    }

    /// Takes in the next update.
    pub fn push(&mut self, held: Held) {
        let stretch = (u128::from(self.given) * u128::from(STRETCHES) / u128::from(self.updates))
            .min(u128::from(u64::MAX)) as u64;
        let new = stretch != self.stretch;
        self.stretch = stretch;
        self.given += 1;
        let push = |outline: &mut Outline, value: Option<f64>| {
            if new {
                outline.close();
            }
            if let Some(value) = value.filter(|v| v.is_finite()) {
                outline.push(held.begins, held.ends, value);
            }
        };
        push(&mut self.rate, Some(held.rate));
        push(&mut self.batch, Some(held.batch));
        push(&mut self.momentum, held.momentum);
        push(&mut self.noise, held.noise);
    }

    /// The course of what was pushed.
    pub fn finish(self) -> Course {
        Course {
            rate: self.rate.finish(),
            batch: self.batch.finish(),
            momentum: self.momentum.finish(),
            noise: self.noise.finish(),
        }
    }
}

/// One quantity: pieces of a run over which it has one value.
#[derive(Debug, Default)]
struct Outline {
    kept: Vec<Piece>,
    open: Vec<Piece>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    begins: f64,
    ends: f64,
    value: f64,
}

impl Outline {
    fn push(&mut self, begins: f64, ends: f64, value: f64) {
        let last = self.open.last_mut().or(self.kept.last_mut());
        match last {
            Some(last) if last.value == value => last.ends = ends,
            _ => self.open.push(Piece {
                begins,
                ends,
                value,
            }),
        }
        // A long stretch is thinned on the way.
        if self.open.len() > 4096 {
            self.thin();
        }
    }

    fn thin(&mut self) {
        if self.open.len() <= KEPT {
            return;
        }
        let by_value = |a: &(usize, &Piece), b: &(usize, &Piece)| a.1.value.total_cmp(&b.1.value);
        let pieces = || self.open.iter().enumerate();
        let least = pieces().min_by(by_value).map_or(0, |p| p.0);
        let greatest = pieces().max_by(by_value).map_or(0, |p| p.0);
        let mut kept = [0, least, greatest, self.open.len() - 1];
        kept.sort_unstable();
        let mut last = None;
        self.open = kept
            .into_iter()
            .filter(|i| last.replace(*i) != Some(*i))
            .map(|i| self.open[i])
            .collect();
    }

    fn close(&mut self) {
        self.thin();
        self.kept.append(&mut self.open);
    }

    fn finish(mut self) -> Vec<(f64, f64)> {
        self.close();
        self.kept
            .iter()
            .flat_map(|p| [(p.begins, p.value), (p.ends, p.value)])
            .collect()
    }
}

/// The runs of one point whose batch or whose learning rate changes.
#[derive(Debug, Clone, PartialEq)]
pub struct PointCourses {
    /// Index of the rule.
    pub rule: usize,
    /// Global batch at the start.
    pub batch: u64,
    /// Seed of the first course.
    pub seed: u64,
    /// The course of the first seed, then those of the others that differ from it.
    pub courses: Vec<Course>,
    /// Seeds that were read.
    pub seeds: usize,
    /// What the batch controller did in the run of the first course.
    pub changes: Vec<ChangeRow>,
}

impl PointCourses {
    /// Whether the batch of a run changes.
    pub fn moves_batch(&self) -> bool {
        self.courses.iter().any(|c| varies(&c.batch))
    }
}

/// Whether a quantity has more than one value.
pub(crate) fn varies(points: &[(f64, f64)]) -> bool {
    points.windows(2).any(|w| w[0].1 != w[1].1)
}

/// Reads the courses of a point; `None` where rate and batch are constant, or no table tells.
pub(super) fn read_courses(
    dir: &Path,
    point: &Point,
    trials: &[Trial],
) -> Result<Option<PointCourses>, AnalysisError> {
    let mut changes = Vec::new();
    for &i in &point.trials {
        let trial = &trials[i];
        if !matches!(trial.row.status, None | Some(Status::Failed)) {
            let folder = dir.join("trials").join(&trial.row.trial);
            let rows = read_changes(&folder)?.unwrap_or_default();
            changes.push((folder, trial.row.seed.unwrap_or_default(), rows));
        }
    }
    let moved = |row: &ChangeRow| row.from != row.to || row.factor_from != row.factor_to;
    let moves = changes.iter().any(|(.., rows)| rows.iter().any(moved));
    let mut found: Option<PointCourses> = None;
    for (folder, seed, changes) in changes {
        let Some(steps) = read_steps(&folder)?.filter(|rows| !rows.is_empty()) else {
            continue;
        };
        let course = course_of(&steps, &changes);
        drop(steps);
        match &mut found {
            None if moves || varies(&course.rate) => {
                found = Some(PointCourses {
                    rule: point.rule,
                    batch: point.batch,
                    seed,
                    courses: vec![course],
                    seeds: 1,
                    changes,
                });
            }
            // Without a move, the seeds differ in nothing that could make the rate change.
            None => return Ok(None),
            Some(found) => {
                found.seeds += 1;
                if !found.courses.contains(&course) {
                    found.courses.push(course);
                }
            }
        }
    }
    Ok(found)
}

/// The course that the tables of a trial tell. The batch is the one that holds, not the rest at the
/// end of a partial epoch.
fn course_of(steps: &[StepRow], changes: &[ChangeRow]) -> Course {
    let mut builder = CourseBuilder::new(steps.len() as u64);
    let mut begins = 0.0;
    let mut made = 0;
    let constant = steps[0].global_batch;
    for row in steps {
        let held = |begins: f64, ends: f64, batch: Option<u64>| Held {
            begins,
            ends,
            rate: row.lr,
            batch: batch.map_or(f64::NAN, |b| b as f64),
            momentum: row.momentum,
            noise: None,
        };
        // What changed between two logged updates, at its place.
        while let Some(change) = changes.get(made).filter(|c| c.step < row.step) {
            if change.epoch > begins {
                builder.push(held(begins, change.epoch, Some(change.from)));
                begins = change.epoch;
            }
            made += 1;
        }
        let last = made.checked_sub(1).and_then(|i| changes.get(i));
        let batch = match (last, changes.first()) {
            (Some(last), _) => Some(last.to),
            (None, Some(first)) => Some(first.from),
            (None, None) => constant,
        };
        builder.push(held(begins, row.epoch, batch));
        begins = row.epoch;
    }
    builder.finish()
}
