#!/usr/bin/env python3
"""Tables and figures of experiment 10, from results/summary.csv and the run's folder.

    python experiments/10-staleness/analyze.py results/10-staleness > experiments/10-staleness/results/tables.md

For each optimizer and kind of update: the rate with the best mean validation accuracy at the end, test accuracy there and
its difference to synchronous updates, paired by seed; and the rate with the fewest mean updates to the target, these updates,
and their ratio to those of synchronous updates, paired by seed (Student's interval on the logarithm). A crossing is placed on
the straight line between two evaluations. Without the run's folder it works from results/curves.csv and results/staleness.csv.
"""

import csv
import json
import sys
import tomllib
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import interval, rows, table, text

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
TARGET = 0.85


def extract(run):
    """results/curves.csv: the validation split of every trial; results/staleness.csv: what asynchronous runs report."""
    with open(RESULTS / "curves.csv", "w", newline="") as curves, open(RESULTS / "staleness.csv", "w", newline="") as late:
        curve, staleness = (csv.writer(file, lineterminator="\n") for file in (curves, late))
        curve.writerow(["trial", "step", "accuracy"])
        staleness.writerow(["trial", "mean", "largest", "seconds"])
        for trial in rows(RESULTS / "summary.csv"):
            folder = run / "trials" / trial["trial"]
            for row in rows(folder / "evaluations.csv"):
                if row["split"] == "validation":
                    curve.writerow([trial["trial"], row["step"], row["accuracy"]])
            found = json.loads((folder / "result.json").read_text()).get("staleness")
            if found:
                staleness.writerow([trial["trial"], found["mean"], len(found["histogram"]) - 1, found["seconds"]])


def name(update):
    """An update in words, its delay, and the group that the figures put it in."""
    if update == "synchronous":
        return "synchronous", 0, "synchronous"
    kind, options = next(iter(tomllib.loads(f"update = {update}")["update"].items()))
    more = []
    if options.get("divide_rate"):
        more.append("rate / staleness")
    if options.get("correct_momentum"):
        more.append("momentum corrected")
    if options.get("stragglers"):
        more.append("one 8 times slower")
    if kind == "stale":
        words, delay = f"stale, delay {options['delay']}", options["delay"]
    elif kind == "asynchronous":
        words, delay = f"asynchronous, {options['replicas']} replicas", options["replicas"] - 1
    else:
        twice = options.get("schedule") == "both-each-slot"
        delay = (options["stages"] - 1) * (2 if twice else 1)
        words = f"pipeline, {options['stages']} stages" + (", both each slot" if twice else "")
    return ", ".join([words, *more]), delay, kind if not more else "variant"


def crossing(curve):
    """Updates at which the accuracy first reaches the target; None if it does not."""
    before = None
    for step, accuracy in curve:
        if accuracy >= TARGET:
            if before is None:
                return float(step)
            share = (TARGET - before[1]) / (accuracy - before[1])
            return before[0] + share * (step - before[0])
        before = (step, accuracy)
    return None


def main():
    if len(sys.argv) > 1:
        extract(Path(sys.argv[1]))
    curves = {}
    for row in rows(RESULTS / "curves.csv"):
        curves.setdefault(row["trial"], []).append((int(row["step"]), float(row["accuracy"])))
    late = {row["trial"]: row for row in rows(RESULTS / "staleness.csv")}
    points = {}
    for row in rows(RESULTS / "summary.csv"):
        optimizer = "SGD" if "sgd" in row["optimizer"] else "momentum 0.9"
        key = (optimizer, row["train.update"], float(row["learning_rate.base_lr"]))
        points.setdefault(key, []).append(row)
    updates = list(dict.fromkeys(update for _, update, _ in points))
    optimizers = list(dict.fromkeys(optimizer for optimizer, _, _ in points))
    rates = sorted({rate for _, _, rate in points})

    def validation(trials):
        if any(t["status"] == "diverged" for t in trials):
            return -1.0
        return np.mean([float(t["validation_accuracy"]) for t in trials])

    def steps(trials):
        found = [crossing(curves.get(t["trial"], [])) for t in trials]
        return found if all(found) else None

    drawn = {}
    for optimizer in optimizers:
        lines, base = [], {}
        for update in updates:
            words, delay, group = name(update)
            of_rate = {rate: points[optimizer, update, rate] for rate in rates}
            best = max(rates, key=lambda rate: validation(of_rate[rate]))
            accuracy = [float(t["test_accuracy"]) for t in of_rate[best]]
            reaching = {rate: found for rate in rates if (found := steps(of_rate[rate]))}
            fewest = min(reaching, key=lambda rate: np.mean(reaching[rate]), default=None)
            needed = reaching.get(fewest)
            if update == "synchronous":
                base = {"accuracy": accuracy, "steps": needed}
            change = "" if update == "synchronous" else text(np.subtract(accuracy, base["accuracy"]), "+.2f")
            ratio, shown = "", "not reached"
            if needed:
                mean, half = interval(needed)
                shown = f"{mean:.0f} ± {half:.0f}"
                logs = np.log(np.divide(needed, base["steps"]))
                mean, half = interval(logs)
                if update != "synchronous":
                    ratio = f"{np.exp(mean):.2f} ({np.exp(mean - half):.2f} to {np.exp(mean + half):.2f})"
                drawn.setdefault((optimizer, group), []).append((delay, np.exp(mean), np.exp(mean - half), np.exp(mean + half)))
            seen = [float(late[t["trial"]]["mean"]) for t in of_rate[best] if t["trial"] in late]
            most = [int(late[t["trial"]]["largest"]) for t in of_rate[best] if t["trial"] in late]
            staleness = f"{np.mean(seen):.2f}, at most {max(most)}" if seen else str(delay)
            diverged = sum(t["status"] == "diverged" for rate in rates for t in of_rate[rate])
            lines.append([words, staleness, f"{best:g}", text(accuracy), change, f"{fewest:g}" if fewest else "", shown, ratio, diverged])
        head = ["update", "staleness", "best rate", "test accuracy in %", "minus synchronous", "fastest rate", f"updates to {TARGET:.0%}", "times synchronous", "diverged"]
        print(f"{optimizer}:\n")
        table(head, lines)
    draw(drawn, optimizers)


def draw(drawn, optimizers):
    plt.rcParams["svg.hashsalt"] = "10-staleness"
    figure, axes = plt.subplots(1, len(optimizers), figsize=(9, 3.8), sharey=True, layout="constrained")
    marks = {"stale": "o", "asynchronous": "s", "pipeline": "^"}
    for axis, optimizer in zip(axes, optimizers):
        for group, mark in marks.items():
            found = sorted(drawn.get((optimizer, group), []))
            if not found:
                continue
            delay, middle, low, high = np.array(found).T
            axis.errorbar(delay, middle, [middle - low, high - middle], marker=mark, capsize=3, label=group)
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_xlim(0.8, 19)
        axis.set_xticks([1, 3, 7, 15], [1, 3, 7, 15])
        axis.set_yscale("log", base=2)
        axis.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        axis.set_title(optimizer)
        axis.set_xlabel("delay, or mean staleness (updates)")
        axis.legend(loc="upper left")
    axes[0].set_ylabel(f"updates to {TARGET:.0%}, times synchronous")
    figure.savefig(FOLDER / "figures" / "steps-by-delay.svg", metadata={"Date": None})


main()
