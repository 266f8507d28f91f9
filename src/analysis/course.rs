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

/// The range that a quantity of these lines is drawn over, and whether on a logarithmic scale: that
/// is where values below an eighth of the largest hold for a quarter of the time or more, as those
/// of a stepped decay do and those of a cosine to 0 do not. The range then leaves out what is
/// below for less than a hundredth of the time, such as the last updates of a decay to 0.
pub(crate) fn extent(lines: &[&[(f64, f64)]]) -> Option<Extent> {
    let mut held: Vec<(f64, f64)> = lines
        .iter()
        .flat_map(|points| points.windows(2))
        .map(|w| (w[1].1, w[1].0 - w[0].0))
        .filter(|(_, time)| *time > 0.0)
        .collect();
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (held.first()?.0, held.last()?.0);
    let time = |held: &[(f64, f64)]| held.iter().map(|h| h.1).sum::<f64>();
    let all = time(&held);
    let below = time(&held[..held.partition_point(|h| h.0 < last / 8.0)]);
    let positive = held.partition_point(|h| h.0 <= 0.0);
    if below * 4.0 < all || last <= 0.0 {
        return Some(Extent {
            low: first,
            high: last,
            log: false,
        });
    }
    let mut passed = time(&held[..positive]);
    let low = held[positive..].iter().find(|(_, time)| {
        passed += time;
        passed * 100.0 >= all
    });
    Some(Extent {
        low: low.map_or(last, |h| h.0),
        high: last,
        log: true,
    })
}

/// See [`extent`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extent {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) log: bool,
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
        let course = course_of(&steps, &changes, point.batch);
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
/// end of a partial epoch: `batch`, where neither table tells.
fn course_of(steps: &[StepRow], changes: &[ChangeRow], batch: u64) -> Course {
    let mut builder = CourseBuilder::new(steps.len() as u64);
    let mut begins = 0.0;
    let mut made = 0;
    let constant = steps.first().and_then(|row| row.global_batch);
    for row in steps {
        let held = |begins: f64, ends: f64, batch: u64| Held {
            begins,
            ends,
            rate: row.lr,
            batch: batch as f64,
            momentum: row.momentum,
            noise: None,
        };
        // What changed between two logged updates, at its place.
        while let Some(change) = changes.get(made).filter(|c| c.step < row.step) {
            if change.epoch > begins {
                builder.push(held(begins, change.epoch, change.from));
                begins = change.epoch;
            }
            made += 1;
        }
        let last = made.checked_sub(1).and_then(|i| changes.get(i));
        let batch = match (last, changes.first()) {
            (Some(last), _) => last.to,
            (None, Some(first)) => first.from,
            (None, None) => constant.unwrap_or(batch),
        };
        builder.push(held(begins, row.epoch, batch));
        begins = row.epoch;
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(begins: f64, ends: f64, rate: f64) -> Held {
        Held {
            begins,
            ends,
            rate,
            batch: 32.0,
            momentum: None,
            noise: None,
        }
    }

    /// A course of the rate over epochs of a hundred updates.
    fn rate_over(updates: u32, rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let mut builder = CourseBuilder::new(u64::from(updates));
        for i in 0..updates {
            let (begins, ends) = (f64::from(i) / 100.0, f64::from(i + 1) / 100.0);
            builder.push(held(begins, ends, rate(begins)));
        }
        builder.finish().rate
    }

    fn step(step: u64, epoch: f64, lr: f64) -> StepRow {
        StepRow {
            step,
            epoch,
            global_batch: Some(8),
            lr,
            momentum: None,
            loss: 1.0,
        }
    }

    fn change(step: u64, epoch: f64, from: u64, to: u64) -> ChangeRow {
        ChangeRow {
            step,
            epoch,
            from,
            to,
            factor_from: 1.0,
            factor_to: 1.0,
            quantity: "epoch".to_owned(),
            value: Some(epoch),
            reason: String::new(),
        }
    }

    #[test]
    fn what_holds_for_a_while_keeps_its_place_however_long_the_run() {
        let steps = |e: f64| {
            if e < 300.0 { 0.1 } else { 0.02 }
        };
        let rate = rate_over(100_000, steps);
        assert_eq!(
            rate,
            [(0.0, 0.1), (300.0, 0.1), (300.0, 0.02), (1000.0, 0.02)]
        );
    }

    #[test]
    fn what_changes_at_every_update_keeps_its_ends_and_extremes() {
        // Many short cycles, their peaks and feet at places of their own.
        let rate = rate_over(100_000, |e| 1.0 + (e * 0.37).sin());
        assert!(rate.len() <= 2 * 4 * 151, "{}", rate.len());
        let values = || rate.iter().map(|p| p.1);
        assert!(values().fold(0.0, f64::max) > 1.999);
        assert!(values().fold(2.0, f64::min) < 0.001);
        assert_eq!(rate[0], (0.0, 1.0));
        assert_eq!(rate[rate.len() - 1].0, 1000.0);
        assert!(rate.windows(2).all(|w| w[0].0 <= w[1].0));
    }

    #[test]
    fn a_batch_changes_where_its_log_says_between_logged_updates_too() {
        // Every second update is logged; the batch grew after the third, at epoch 0.3.
        let steps = [step(2, 0.2, 0.1), step(4, 0.5, 0.1), step(6, 0.9, 0.1)];
        let course = course_of(&steps, &[change(3, 0.3, 8, 16)], 8);
        assert_eq!(
            course.batch,
            [(0.0, 8.0), (0.3, 8.0), (0.3, 16.0), (0.9, 16.0)]
        );
        assert_eq!(course.rate, [(0.0, 0.1), (0.9, 0.1)]);
        assert!(course.momentum.is_empty() && course.noise.is_empty());
    }

    #[test]
    fn the_rest_of_a_partial_epoch_is_no_change_of_the_batch() {
        let mut steps = [step(1, 0.5, 0.1), step(2, 1.0, 0.1), step(3, 1.5, 0.1)];
        steps[1].global_batch = Some(3);
        let course = course_of(&steps, &[], 8);
        assert_eq!(course.batch, [(0.0, 8.0), (1.5, 8.0)]);
    }

    #[test]
    fn a_logarithmic_scale_is_for_values_that_stay_far_below() {
        let log = |points: &[(f64, f64)]| extent(&[points]).map(|e| e.log);
        let stepped = |e: f64| {
            if e < 5.0 { 1.0 } else { 0.1 }
        };
        assert_eq!(log(&rate_over(1000, stepped)), Some(true));
        let cosine = |e: f64| f64::midpoint(1.0, (std::f64::consts::PI * e / 10.0).cos());
        assert_eq!(log(&rate_over(1000, cosine)), Some(false));
        assert_eq!(log(&rate_over(1000, |e| (e / 10.0).min(1.0))), Some(false));
        assert_eq!(log(&rate_over(10, |_| 0.1)), Some(false));
        assert_eq!(log(&[]), None);
        // From 0 up, and ever lower: the ends that hold for no time are left out.
        let rises_and_falls = |e: f64| if e < 0.01 { 0.0 } else { (-e).exp() };
        let found = extent(&[&rate_over(1000, rises_and_falls)]).expect("a range");
        assert!(found.log && found.low > 0.0 && found.low < 1e-4);
    }
}
