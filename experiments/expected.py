#!/usr/bin/env python3
"""Computes an experiment's expected.json from its summary.csv, with numpy and scipy alone.

    pip install numpy scipy
    python experiments/expected.py experiments/01-generalization-gap

The test `tests/experiments.rs` holds batchlab's own analysis of the same table against it. For each point
(every swept key but the seed): the number of finished and of diverged trials, and for test accuracy and for the
gap (training minus test accuracy) the mean over finished seeds and half the width of Student's 95 % interval.
For each point also the paired difference of test accuracy to the smallest batch of the same rule: the mean over
seeds that both points finished, and half the width of its interval. A missing interval is null.
"""

import csv
import json
import sys
from pathlib import Path

import numpy
from scipy import stats

BATCH = "train.global_batch"


def estimate(values):
    n = len(values)
    if n == 0:
        return None
    mean = float(numpy.mean(values))
    if n == 1:
        return {"mean": mean, "half_width": None, "n": 1}
    error = float(numpy.std(values, ddof=1)) / n**0.5
    return {"mean": mean, "half_width": float(stats.t.ppf(0.975, n - 1)) * error, "n": n}


def main():
    folder = Path(sys.argv[1])
    study = json.loads((folder / "results" / "study.json").read_text())
    keys = [key for axis in study["axes"] for key in axis["keys"]]
    points = {}
    with open(folder / "results" / "summary.csv", newline="") as file:
        for row in csv.DictReader(file):
            points.setdefault(tuple(row[key] for key in keys), []).append(row)

    def finished(rows):
        return {row["seed"]: row for row in rows if row["status"] in ("completed", "censored")}

    result = []
    for point, rows in points.items():
        rule = [value for key, value in zip(keys, point) if key != BATCH]
        same = [p for p in points if [v for k, v in zip(keys, p) if k != BATCH] == rule]
        smallest = min(same, key=lambda p: int(p[keys.index(BATCH)]))
        done, base = finished(rows), finished(points[smallest])
        accuracy = {seed: float(row["test_accuracy"]) for seed, row in done.items()}
        gaps = [float(row["train_accuracy"]) - float(row["test_accuracy"]) for row in done.values()]
        shared = [seed for seed in done if seed in base]
        change = [accuracy[s] - float(base[s]["test_accuracy"]) for s in shared]
        result.append(
            {
                "point": dict(zip(keys, point)),
                "finished": len(done),
                "diverged": sum(row["status"] == "diverged" for row in rows),
                "test_accuracy": estimate(list(accuracy.values())),
                "generalization_gap": estimate(gaps),
                "change": None if point == smallest else estimate(change),
            }
        )
    text = json.dumps({"experiment": folder.name, "points": result}, indent=1)
    (folder / "expected.json").write_text(text + "\n")


main()
