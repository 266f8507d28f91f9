#!/usr/bin/env python3
"""Computes an experiment's expected.json from its study.json and summary.csv, with numpy and scipy alone.

    pip install numpy scipy
    python experiments/expected.py experiments/01-generalization-gap

The test `tests/experiments.rs` holds batchlab's own analysis of the same table against it. A point is a rule (the values
of all swept keys but the seed, the one that sets the batch, and those zipped with it) at a global batch. For each point:
the number of finished and of diverged trials, and for test accuracy and for the gap (training minus test accuracy) the
mean over finished seeds and half the width of Student's 95 % interval. For each point also the paired difference of test
accuracy to the smallest batch of the same rule at which a seed finished: the mean over seeds that both points finished,
and half the width of its interval. A missing interval is null, and so is the difference of a point with no smaller batch
to compare with.
"""

import csv
import json
import sys
from pathlib import Path

import numpy
from scipy import stats

# The first of these that is swept sets the batch.
BATCH = ("train.global_batch", "train.local_batch", "train.workers")


def estimate(values):
    n = len(values)
    if n == 0:
        return None
    mean = float(numpy.mean(values))
    if n == 1:
        return {"mean": mean, "half_width": None, "n": 1}
    error = float(numpy.std(values, ddof=1)) / n**0.5
    return {"mean": mean, "half_width": float(stats.t.ppf(0.975, n - 1)) * error, "n": n}


def rule_keys(axes):
    """Swept keys less the one that sets the batch, and those that only move along with it."""
    keys = [key for axis in axes for key in axis["keys"]]
    batch = next((key for key in BATCH if key in keys), None)
    along = [batch]
    for axis in axes:
        if batch in axis["keys"]:
            at = axis["keys"].index(batch)
            batches = [values[at] for values in axis["values"]]
            # A batch that stands in the axis twice does not say which of the points is meant.
            if len(set(batches)) == len(batches):
                along += axis["keys"]
    return [key for key in keys if key not in along]


def main():
    folder = Path(sys.argv[1])
    study = json.loads((folder / "results" / "study.json").read_text())
    keys = [key for axis in study["axes"] for key in axis["keys"]]
    of_rule = rule_keys(study["axes"])
    points = {}
    with open(folder / "results" / "summary.csv", newline="") as file:
        for row in csv.DictReader(file):
            rule = tuple(row[key] for key in of_rule)
            points.setdefault((rule, int(row["global_batch"])), []).append(row)

    def finished(rows):
        return {row["seed"]: row for row in rows if row["status"] in ("completed", "censored")}

    result = []
    for (rule, batch), rows in points.items():
        measured = [b for r, b in points if r == rule and finished(points[r, b])]
        smallest = min(measured, default=batch)
        done, base = finished(rows), finished(points[rule, smallest])
        accuracy = {seed: float(row["test_accuracy"]) for seed, row in done.items()}
        gaps = [float(row["train_accuracy"]) - float(row["test_accuracy"]) for row in done.values()]
        shared = [seed for seed in done if seed in base]
        change = [accuracy[s] - float(base[s]["test_accuracy"]) for s in shared]
        result.append(
            {
                "point": {key: rows[0][key] for key in keys},
                "finished": len(done),
                "diverged": sum(row["status"] == "diverged" for row in rows),
                "test_accuracy": estimate(list(accuracy.values())),
                "generalization_gap": estimate(gaps),
                "change": estimate(change) if batch > smallest else None,
            }
        )
    text = json.dumps({"experiment": folder.name, "points": result}, indent=1)
    (folder / "expected.json").write_text(text + "\n")


main()
