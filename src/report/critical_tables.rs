//! The critical batch size as tables, for programs.

use std::path::Path;

use crate::analysis::critical_batch::CriticalBatch;
use crate::store::{self, StoreError, Table};

/// Updates to the target: what `batchlab critical-batch --from-csv` reads.
pub(super) const STEPS: &str = "steps_to_target.csv";

/// All estimates.
pub(super) const ESTIMATES: &str = "critical_batch.csv";

/// Writes both tables. They hold no times, so that they are the same whenever the study was run.
pub(super) fn write(dir: &Path, found: &CriticalBatch) -> Result<(), StoreError> {
    for table in [steps(dir, found)?, estimates(dir, found)?] {
        let path = dir.join(if table.has("method") {
            ESTIMATES
        } else {
            STEPS
        });
        store::write_if_changed(&path, &table.to_csv())?;
    }
    Ok(())
}

/// The best trial at each batch with each seed; where none reached the target, the updates that steps
/// to target exceed.
fn steps(dir: &Path, found: &CriticalBatch) -> Result<Table, StoreError> {
    let columns = [
        "case", "batch", "seed", "steps", "reached", "rate", "others", "edge",
    ];
    let mut table = Table::new(dir.join(STEPS), columns)?;
    for case in &found.cases {
        let label = name(&case.label);
        for point in &case.batches {
            for seed in &point.seeds {
                let reached = seed.steps.is_some();
                let steps = seed.steps.unwrap_or(seed.bound);
                let others = (!seed.others.is_empty()).then_some(seed.others.as_str());
                table.push(&[
                    &label,
                    &point.batch,
                    &seed.seed,
                    &steps,
                    &reached,
                    &seed.rate,
                    &others,
                    &seed.edge,
                ])?;
            }
        }
    }
    Ok(table)
}

fn estimates(dir: &Path, found: &CriticalBatch) -> Result<Table, StoreError> {
    let columns = [
        "case",
        "method",
        "quantity",
        "value",
        "low",
        "high",
        "over_the_sweep",
        "examples",
        "trials",
        "share_of_the_sweep",
        "published",
        "published_source",
        "note",
    ];
    let mut table = Table::new(dir.join(ESTIMATES), columns)?;
    for case in &found.cases {
        let label = name(&case.label);
        for row in &case.estimates {
            let note = (!row.note.is_empty()).then_some(row.note.as_str());
            table.push(&[
                &label,
                &row.method,
                &row.quantity,
                &row.value,
                &row.interval.map(|i| i.low),
                &row.interval.map(|i| i.high),
                &row.ratio,
                &row.cost.map(|cost| cost.examples),
                &row.cost.map(|cost| cost.trials),
                &row.share,
                &row.published.map(|published| published.value),
                &row.published.map(|published| published.source),
                &note,
            ])?;
        }
    }
    Ok(table)
}

/// The label of a case; a single one has none, and a cell is not to be empty.
fn name(label: &str) -> String {
    let label = if label.is_empty() { "all" } else { label };
    label.to_owned()
}
