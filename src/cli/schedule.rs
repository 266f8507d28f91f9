//! `batchlab config show --schedule`: rate, batch, momentum and noise scale over the run of each
//! trial, without training.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::analysis::numbers::plural;
use crate::analysis::{Course, CourseBuilder, Held, extent, value_label, varies};
use crate::config::{DataConfig, DataSource, Scaling, StudyConfig, TrialSpec, env, short};
use crate::data;
use crate::report;
use crate::study::BoxError;
use crate::theory::noise::sgd_noise_scale;
use crate::train::{PlannedUpdate, Setup, TrainError};

/// Rows of a table at most.
const ROWS: usize = 25;
/// Of them, updates at which something changes.
const CHANGES: usize = 16;
/// Between two rows lies at most this share of the run, as far as there are updates.
const GAP: f64 = 1.0 / 8.0;
/// Updates that are kept to choose from.
const CANDIDATES: u64 = 256;
/// Changes that are kept to choose from; beyond, they are only counted.
const REMEMBERED: usize = 4096;
/// Updates that are walked over at most: a minute or two.
const MOST_UPDATES: u64 = 1_000_000_000;
/// Columns and rows of a plot in the terminal.
const WIDTH: usize = 60;
const HEIGHT: usize = 5;

/// What `--schedule` was asked with.
#[derive(Debug, Clone)]
pub(super) struct Options<'a> {
    /// Number of training examples, in place of reading the data.
    pub(super) examples: Option<usize>,
    /// Where to draw the figure.
    pub(super) plot: Option<&'a Path>,
}

/// The data of a study cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}\nhint: --examples N shows the schedule for N training examples, without the data")]
struct NoData(BoxError);

/// A run that is too long to walk over.
#[derive(Debug, thiserror::Error)]
#[error(
    "trial {index}: {updates} updates are too many to walk over, more than {MOST_UPDATES}\n\
     hint: `--set` with a smaller budget shows a shorter run"
)]
struct TooLong {
    index: usize,
    updates: u64,
}

/// The number of training examples, and whether they never repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    examples: usize,
    fresh: bool,
}

/// Prints the schedule of these trials, and draws it where asked. Trials that differ in their seed
/// alone share one.
pub(super) fn show(
    study: &StudyConfig,
    trials: &[&TrialSpec],
    options: &Options<'_>,
    out: &mut dyn Write,
) -> Result<(), BoxError> {
    let mut sizes = Sizes::default();
    let mut plans = Vec::new();
    for group in trials.chunk_by(|a, b| a.point == b.point) {
        let trial = group[0];
        let size = match options.examples {
            Some(examples) => Size {
                examples,
                fresh: matches!(trial.config.data.source, DataSource::NoisyQuadratic { .. }),
            },
            None => sizes.of(study, trial)?,
        };
        study.validate_against_data(trial, size.examples)?;
        let setup = Setup::of_examples(&trial.config, size.examples, size.fresh)
            .map_err(|error| placed(study, trial, error))?;
        let most = setup.total_steps;
        if most > MOST_UPDATES {
            return Err(Box::new(TooLong {
                index: trial.index,
                updates: most,
            }));
        }
        let walked = Walked::over(&setup, trial, size);
        if !plans.is_empty() {
            writeln!(out)?;
        }
        head(study, group, &setup, size, out)?;
        walked.print(out)?;
        plans.push((name(study, trial), walked.course));
    }
    if let Some(path) = options.plot {
        let keys: Vec<&str> = study
            .axes
            .iter()
            .flat_map(|axis| &axis.keys)
            .map(String::as_str)
            .collect();
        report::write_schedule(path, &study.name, &keys.join(", "), &plans)?;
        writeln!(out, "\nfigure: {}", path.display())?;
    }
    Ok(())
}

/// An error of the schedule with its place in the file, where that is known.
fn placed(study: &StudyConfig, trial: &TrialSpec, error: TrainError) -> BoxError {
    let key = match &error {
        TrainError::Schedule(_) => "learning_rate",
        TrainError::Batch(_) => "batch",
        _ => return error.into(),
    };
    study.error_at_key(trial, key, &error.to_string()).into()
}

/// What tells the trial's point apart.
fn name(study: &StudyConfig, trial: &TrialSpec) -> String {
    if trial.point.is_empty() {
        return study.name.clone();
    }
    let values = trial
        .point
        .iter()
        .map(|(key, value)| value_label(key, value));
    values.collect::<Vec<_>>().join(", ")
}

/// Sizes of the data that were read.
#[derive(Default)]
struct Sizes {
    known: Vec<(DataConfig, Size)>,
}

impl Sizes {
    fn of(&mut self, study: &StudyConfig, trial: &TrialSpec) -> Result<Size, NoData> {
        let config = &trial.config.data;
        if let Some((_, size)) = self.known.iter().find(|(known, _)| known == config) {
            return Ok(*size);
        }
        let dir = env::data_dir().unwrap_or_else(|| PathBuf::from("data"));
        let data = data::load(config, &dir).map_err(|error| {
            let error = study.error_at_key(trial, "data.source", &error.to_string());
            NoData(error.into())
        })?;
        let size = Size {
            examples: data
                .fresh
                .map_or(data.train.len(), |fresh| fresh.epoch_examples),
            fresh: data.fresh.is_some(),
        };
        self.known.push((config.clone(), size));
        Ok(size)
    }
}

/// What is known before the table.
fn head(
    study: &StudyConfig,
    group: &[&TrialSpec],
    setup: &Setup,
    size: Size,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (trial, config) = (group[0], &group[0].config);
    let seeds: Vec<String> = group.iter().map(|t| t.seed.to_string()).collect();
    let point = match name(study, trial) {
        name if name == study.name => String::new(),
        name => format!(", {name}").replace('\n', "\\n"),
    };
    let seeds = match seeds.as_slice() {
        [seed] => format!("trial {}, id {}{point}, seed {seed}", trial.index, trial.id),
        [first, .., last] => format!(
            "trials {} to {}{point}, seeds {first} to {last}",
            trial.index,
            trial.index + group.len() - 1
        ),
        [] => String::new(),
    };
    writeln!(out, "{seeds}")?;
    writeln!(out, "global batch: {}", config.explain_batch())?;
    writeln!(out, "learning rate: {}", config.explain_rate())?;
    writeln!(out, "warm-up: {}", config.explain_warmup())?;
    writeln!(out, "batch controller: {}", setup.control.describe())?;
    if setup.control.planned().is_none() {
        writeln!(
            out,
            "  the run decides about the batch: what follows is the schedule at the starting batch"
        )?;
    }
    if let (Scaling::Adascale {}, Some(base)) = (
        config.learning_rate.scaling,
        config.learning_rate.base_batch,
    ) {
        let most = setup.total_steps;
        let gain = (setup.global_batch as f64 / base as f64).max(1.0);
        writeln!(
            out,
            "  the run multiplies the rate by the measured gain, 1 to {}, and ends when the gains \
             add up to {most}:\n  after {} to {most} updates; what follows is the schedule at a gain \
             of 1",
            short(gain),
            (most as f64 / gain).ceil()
        )?;
    }
    let examples = if size.fresh {
        format!(
            "{} examples, which count as an epoch and never repeat",
            size.examples
        )
    } else {
        plural(size.examples, "training example", "training examples")
    };
    writeln!(
        out,
        "noise scale: rate (N/B - 1)/(1 - momentum) of Smith et al. 2017 (not the B_noise of the rule `saturating`), N = {examples}, B the global batch\n"
    )
}

/// A planned run: the rows worth showing, and its course.
struct Walked {
    rows: Vec<Row>,
    course: Course,
    /// Changes that no row is left for.
    left_out: usize,
}

struct Row {
    update: PlannedUpdate,
    noise: f64,
    notes: Vec<String>,
}

impl Walked {
    fn over(setup: &Setup, trial: &TrialSpec, size: Size) -> Self {
        let noise = |update: &PlannedUpdate, batch: usize| {
            let momentum = update.momentum.unwrap_or(0.0);
            sgd_noise_scale(update.lr, size.examples as f64, batch as f64, momentum)
        };
        let mut course = CourseBuilder::new(setup.total_steps);
        let mut changes = Changes::default();
        let every = setup.total_steps.div_ceil(CANDIDATES).max(1);
        let mut candidates: Vec<PlannedUpdate> = Vec::new();
        let mut last = None;
        for update in setup.planned(&trial.config) {
            course.push(Held {
                begins: update.begins,
                ends: update.epoch,
                rate: update.lr,
                batch: update.batch as f64,
                momentum: update.momentum,
                noise: Some(noise(&update, update.batch)),
            });
            changes.push(update);
            if last.is_none() || update.step % every == 0 {
                candidates.push(update);
            }
            last = Some(update);
        }
        candidates.extend(last);
        let (chosen, left_out) = changes.finish();
        let rows = rows(&candidates, chosen)
            .into_values()
            .map(|(update, notes)| Row {
                noise: noise(&update, update.global_batch),
                update,
                notes,
            })
            .collect();
        Self {
            rows,
            course: course.finish(),
            left_out,
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = [
            "update",
            "epoch",
            "examples",
            "batch",
            "workers",
            "rate",
            "momentum",
            "noise scale",
        ];
        let mut table = vec![header.map(str::to_owned)];
        table.extend(self.rows.iter().map(|row| {
            let update = &row.update;
            [
                update.step.to_string(),
                short(update.epoch),
                update.examples.to_string(),
                update.global_batch.to_string(),
                update.workers.to_string(),
                short(update.lr),
                update.momentum.map_or_else(|| "-".to_owned(), short),
                short(row.noise),
            ]
        }));
        let notes = [Vec::new()];
        let notes = notes.iter().chain(self.rows.iter().map(|row| &row.notes));
        for (row, notes) in table.iter().zip(notes) {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, cell)| {
                    let widths = table.iter().map(|row| row[column].len());
                    format!("{cell:>width$}", width = widths.max().unwrap_or(0))
                })
                .collect();
            let line = format!("{}  {}", cells.join("  "), notes.join(", "));
            writeln!(out, "{}", line.trim_end())?;
        }
        if self.left_out > 0 {
            let left = plural(self.left_out, "more change", "more changes");
            writeln!(out, "{left} of rate, batch or momentum not shown")?;
        }
        let course = &self.course;
        plot("learning rate", &course.rate, out)?;
        plot("global batch", &course.batch, out)?;
        if varies(&course.momentum) {
            plot("momentum", &course.momentum, out)?;
        }
        Ok(())
    }
}

/// Updates at which something changes, by number, with what.
type Noted = BTreeMap<u64, (PlannedUpdate, Vec<String>)>;

/// The rows of a table: the first update, the last one, those at which something changes, and
/// others in between where the gaps are large.
fn rows(candidates: &[PlannedUpdate], mut rows: Noted) -> Noted {
    let (Some(first), Some(last)) = (candidates.first(), candidates.last()) else {
        return rows;
    };
    let note = |rows: &mut Noted, update: &PlannedUpdate, text: &str| {
        let row = rows.entry(update.step).or_insert((*update, Vec::new()));
        row.1.insert(0, text.to_owned());
    };
    note(&mut rows, first, "start");
    if last.step > first.step {
        note(&mut rows, last, "end");
    }
    while rows.len() < ROWS {
        let shown: Vec<(u64, f64)> = rows.values().map(|row| (row.0.step, row.0.epoch)).collect();
        let mut gaps: Vec<_> = shown.windows(2).map(|w| (w[0], w[1])).collect();
        gaps.retain(|(a, b)| b.1 - a.1 > GAP * last.epoch * (1.0 + 1e-9));
        gaps.sort_by(|a, b| (b.1.1 - b.0.1).total_cmp(&(a.1.1 - a.0.1)));
        let middle = gaps.into_iter().find_map(|(a, b)| {
            let middle = f64::midpoint(a.1, b.1);
            let distance = |u: &PlannedUpdate| (u.epoch - middle).abs();
            candidates
                .iter()
                .filter(|u| u.step > a.0 && u.step < b.0)
                .min_by(|u, v| distance(u).total_cmp(&distance(v)))
        });
        let Some(update) = middle else { break };
        rows.insert(update.step, (*update, Vec::new()));
    }
    rows
}

/// Finds the updates at which batch, rate or momentum change course.
#[derive(Default)]
struct Changes {
    /// The newest update first.
    recent: Vec<PlannedUpdate>,
    rate: Trend,
    momentum: Trend,
    found: Noted,
    beyond: usize,
}

impl Changes {
    fn push(&mut self, update: PlannedUpdate) {
        let before = self.recent.first().copied();
        self.recent.insert(0, update);
        self.recent.truncate(3);
        if let Some(before) = before {
            if before.batch != update.batch {
                let text = format!("batch {} to {}", before.batch, update.batch);
                self.note(0, text);
            }
            if before.warms_up && !update.warms_up {
                self.note(0, "end of the warm-up".to_owned());
            }
        }
        let turns = (
            self.rate.push(update.lr),
            self.momentum.push(update.momentum.unwrap_or(0.0)),
        );
        self.note_turn("rate", turns.0, |u| u.lr);
        self.note_turn("momentum", turns.1, |u| u.momentum.unwrap_or(0.0));
    }

    fn note_turn(&mut self, name: &str, turn: Option<Turn>, of: impl Fn(&PlannedUpdate) -> f64) {
        match turn {
            Some(Turn::Jump) if self.recent.len() == 3 => {
                let (from, to) = (of(&self.recent[2]), of(&self.recent[1]));
                self.note(1, format!("{name} {} to {}", short(from), short(to)));
            }
            // The end of a warm-up is a turn of its own.
            Some(Turn::To(direction))
                if self.recent.len() == 3 && (name != "rate" || !self.ends_warm_up(2)) =>
            {
                self.note(2, format!("{name} {direction} from here"));
            }
            _ => {}
        }
    }

    /// Whether the recent update at `back` is known as the end of the warm-up.
    fn ends_warm_up(&self, back: usize) -> bool {
        let step = self.recent[back].step;
        let notes = self.found.get(&step).map(|found| &found.1);
        notes.is_some_and(|notes| notes.iter().any(|note| note.starts_with("end of")))
    }

    fn note(&mut self, back: usize, text: String) {
        let update = self.recent[back];
        if self.found.len() >= REMEMBERED && !self.found.contains_key(&update.step) {
            self.beyond += 1;
            return;
        }
        let found = self.found.entry(update.step);
        found.or_insert((update, Vec::new())).1.push(text);
    }

    /// What to show, evenly chosen where it is too much, and how much that leaves out.
    fn finish(mut self) -> (Noted, usize) {
        if let Some(&last) = self.recent.first() {
            // What happened at the last update but one, or at the last, shows in a further one.
            self.push(last);
        }
        let all = self.found.len();
        let chosen = self
            .found
            .into_iter()
            .enumerate()
            .filter(|(i, _)| all <= CHANGES || i * CHANGES / all != (i + 1) * CHANGES / all)
            .map(|(_, found)| found);
        let chosen: Noted = chosen.collect();
        let left_out = all - chosen.len() + self.beyond;
        (chosen, left_out)
    }
}

/// Follows one quantity for the places where it jumps or turns.
#[derive(Default)]
struct Trend {
    value: Option<f64>,
    /// Its last two changes.
    before: f64,
    now: Option<f64>,
    direction: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The last value but one is far from that before it, and the two beside are not.
    Jump,
    /// The direction is another from the last value but two on.
    To(&'static str),
}

impl Trend {
    fn push(&mut self, value: f64) -> Option<Turn> {
        let next = value - self.value.replace(value)?;
        let before = self.before;
        let now = self.now.replace(next)?;
        self.before = now;
        let rounding = 1e-12 * value.abs();
        if now.abs() > 3.0 * before.abs().max(next.abs()) && now.abs() > rounding {
            return Some(Turn::Jump);
        }
        let direction = if now.abs() <= rounding {
            "level"
        } else if now > 0.0 {
            "rises"
        } else {
            "falls"
        };
        let known = self.direction.replace(direction)?;
        (known != direction).then_some(Turn::To(direction))
    }
}

/// A quantity over the epochs of a run, in characters.
fn plot(name: &str, points: &[(f64, f64)], out: &mut dyn Write) -> io::Result<()> {
    let (Some(&(end, value)), Some(extent)) = (points.last(), extent(&[points])) else {
        return Ok(());
    };
    if !varies(points) {
        return writeln!(out, "\n{name}: {} throughout", short(value));
    }
    let (low, high, log) = (extent.low, extent.high, extent.log);
    let share = |value: f64| {
        if log {
            (value.max(low) / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        }
    };
    // Each column is filled to its value at the middle; the lowest value still shows.
    let filled: Vec<usize> = (0..WIDTH)
        .map(|column| {
            let epoch = (column as f64 + 0.5) / WIDTH as f64 * end;
            let at = points.partition_point(|p| p.0 < epoch);
            let (epochs, value) = points.get(at).copied().unwrap_or((end, low));
            let value = match at.checked_sub(1).map(|before| points[before]) {
                Some((start, from)) if epochs > start => {
                    from + (value - from) * (epoch - start) / (epochs - start)
                }
                _ => value,
            };
            1 + (share(value).clamp(0.0, 1.0) * (8 * HEIGHT - 1) as f64).round() as usize
        })
        .collect();
    writeln!(out, "\n{name}{}", if log { " (log scale)" } else { "" })?;
    let (top, bottom) = (short(high), short(low));
    let room = top.len().max(bottom.len());
    for row in (0..HEIGHT).rev() {
        let label = match row {
            0 => &bottom,
            row if row == HEIGHT - 1 => &top,
            _ => "",
        };
        let bars: String = filled
            .iter()
            .map(|&eighths| BARS[eighths.saturating_sub(8 * row).min(8)])
            .collect();
        writeln!(out, "{label:>room$} |{}", bars.trim_end())?;
    }
    let epochs = format!("{} epochs", short(end));
    writeln!(
        out,
        "{:room$} +{}\n{:room$}  0{epochs:>width$}",
        "",
        "-".repeat(WIDTH),
        "",
        width = WIDTH - 1
    )
}

const BARS: [char; 9] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const STUDY: &str = "name = \"one\"\nmodel = \"mlp\"\ndata.source = \"mnist\"\n\
        [train]\nworkers = 4\nglobal_batch = 100\nepochs = 8\n\
        [learning_rate]\nbase_lr = 0.1\nbase_batch = 100\n";

    /// What is shown for 1000 examples, 10 updates an epoch.
    fn shown(more: &str) -> String {
        let study = config::parse(&format!("{STUDY}{more}"), "one.toml", &[]).expect("a study");
        let trials: Vec<&TrialSpec> = study.trials.iter().collect();
        let options = Options {
            examples: Some(1000),
            plot: None,
        };
        let mut out = Vec::new();
        show(&study, &trials, &options, &mut out).expect("a schedule");
        String::from_utf8(out).expect("UTF-8")
    }

    /// The rows of the table that say what changes: number of the update, and what.
    fn noted(text: &str) -> Vec<(u64, String)> {
        let rows = text.lines().skip_while(|line| !line.starts_with("update"));
        let table = rows
            .skip(1)
            .take_while(|line| !line.is_empty() && !line.ends_with("not shown"));
        table
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let step = words.first()?.parse().ok()?;
                (words.len() > 8).then(|| (step, words[8..].join(" ")))
            })
            .collect()
    }

    fn expected(rows: &[(u64, &str)]) -> Vec<(u64, String)> {
        rows.iter()
            .map(|(n, text)| (*n, (*text).to_owned()))
            .collect()
    }

    #[test]
    fn a_stepped_rate_after_a_warm_up_shows_every_change() {
        let text = shown(
            "warmup = { epochs = 1, start_lr = 0.01 }\n\
             decay = { step = { epochs = [4, 6], factor = 0.2 } }\n",
        );
        let rows = [
            (1, "start"),
            (11, "end of the warm-up"),
            (41, "rate 0.1 to 0.02"),
            (61, "rate 0.02 to 0.004"),
            (80, "end"),
        ];
        assert_eq!(noted(&text), expected(&rows), "{text}");
        // 0.1 (1000/100 - 1)/(1 - 0.9)
        let row = "    11    1.1      1100    100        4    0.1       0.9            9  end of";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("learning rate (log scale)\n"), "{text}");
        assert!(text.contains("global batch: 100 throughout"), "{text}");
    }

    #[test]
    fn a_batch_that_takes_the_place_of_a_decay_shows_where_it_grows() {
        let text = shown(
            "[batch]\nmax_batch = 400\n[batch.controller.smith]\nepochs = [2, 4]\nfactor = 4\n",
        );
        let rows = [
            (1, "start"),
            (21, "batch 100 to 400"),
            (26, "rate 0.1 to 0.025"),
            (35, "end"),
        ];
        assert_eq!(noted(&text), expected(&rows), "{text}");
        assert!(
            text.contains("100 from epoch 0, 400 from epoch 2"),
            "{text}"
        );
    }

    #[test]
    fn rates_that_turn_show_where() {
        let text = shown("decay = { cyclic = { period_epochs = 4, min_fraction = 0.5 } }\n");
        let rows = [
            (1, "start"),
            (21, "rate falls from here"),
            (41, "rate rises from here"),
            (61, "rate falls from here"),
            (80, "end"),
        ];
        assert_eq!(noted(&text), expected(&rows), "{text}");
    }

    #[test]
    fn more_changes_than_rows_are_counted() {
        let epochs: Vec<String> = (1..80)
            .map(|i| format!("{}", f64::from(i) / 10.0))
            .collect();
        let text = shown(&format!(
            "decay = {{ step = {{ epochs = [{}], factor = 0.9 }} }}\n",
            epochs.join(", ")
        ));
        assert!(text.lines().count() < 50, "{text}");
        // Every update has a rate of its own here: nothing of it is a jump.
        assert_eq!(
            noted(&text),
            expected(&[(1, "start"), (80, "end")]),
            "{text}"
        );
        let sparse: Vec<String> = (1..40).map(|i| format!("{}", f64::from(i) / 5.0)).collect();
        let text = shown(&format!(
            "decay = {{ step = {{ epochs = [{}], factor = 0.9 }} }}\n",
            sparse.join(", ")
        ));
        assert!(
            text.contains("23 more changes of rate, batch or momentum not shown"),
            "{text}"
        );
        let rows = noted(&text);
        assert!(rows.len() == CHANGES + 2 && rows.len() <= ROWS, "{rows:?}");
    }

    #[test]
    fn what_only_the_run_decides_is_said() {
        let text = shown("[batch]\ncontroller = \"cabs\"\n");
        assert!(
            text.contains("batch controller: cabs: 100 to 1000"),
            "{text}"
        );
        assert!(text.contains("the run decides about the batch"), "{text}");
        let text = shown("scaling = \"adascale\"\n");
        assert!(text.contains("the measured gain, 1 to 1,"), "{text}");
    }

    #[test]
    fn a_run_of_one_update_is_a_row() {
        let study = STUDY.replace("epochs = 8", "steps = 1");
        let study = config::parse(&study, "one.toml", &[]).expect("a study");
        let options = Options {
            examples: Some(1000),
            plot: None,
        };
        let mut out = Vec::new();
        show(&study, &[&study.trials[0]], &options, &mut out).expect("a schedule");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(noted(&text), expected(&[(1, "start")]), "{text}");
    }
}
