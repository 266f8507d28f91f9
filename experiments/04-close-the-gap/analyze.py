#!/usr/bin/env python3
"""Experiment 04: the rungs of Hoffer's ladder, each against the one before and against the small batch.

    pip install numpy scipy matplotlib
    python experiments/04-close-the-gap/analyze.py      # from results/: prints the README's tables, draws figures/
    python experiments/04-close-the-gap/analyze.py RUN  # first takes results/curves.csv out of a run's folder

Means and Student's 95 % intervals are over seeds; differences, and shares of the gap won back, are taken within a seed.
"""

import sys
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import extract_curves, interval, rows, table, text  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
EXAMPLES = 10000
NAMES = ["small batch", "large batch", "+ square-root rate", "+ ghost batch norm", "+ regime adaptation"]
COLOURS = ["#222222", "#777777", "#c44e00", "#2a8a3e", "#0b62a4"]


def loss(values):
    mean, half = interval(values)
    return f"{mean:.3g} ± {half:.2g}".replace("-", "−")


def rung(row):
    if row["global_batch"] == "64":
        return 0
    if row["learning_rate.scaling"] == "none":
        return 1
    if row["train.statistics_group"] == "local":
        return 2
    return 3 if float(row["train.epochs"]) < 100 else 4


def read():
    """By rung and seed: the row of the summary."""
    found = [{} for _ in NAMES]
    for row in rows(RESULTS / "summary.csv"):
        assert row["status"] == "completed", row
        found[rung(row)][int(row["seed"])] = row
    return found


def main():
    if len(sys.argv) > 1:
        extract_curves(Path(sys.argv[1]), RESULTS)
    runs = read()
    seeds = sorted(runs[0])

    def column(v, name):
        return np.array([float(runs[v][s][name]) for s in seeds])

    print("What each rung does:\n")
    lines = []
    for name, of in zip(NAMES, runs):
        row = of[seeds[0]]
        group = "64" if "ghost" in row["train.statistics_group"] else row["global_batch"]
        predicted = int(float(row["train.epochs"]) * EXAMPLES // int(row["global_batch"]))
        made = {int(r["steps"]) for r in of.values()}
        assert made == {predicted}, (name, made, predicted)
        lines.append(
            [name, row["global_batch"], f"{float(row['lr']):.3g}", group, f"{float(row['train.epochs']):g}", f"{predicted:,}"]
        )
    table(["rung", "batch", "rate", "examples that share statistics", "epochs", "updates"], lines)

    print("At the end:\n")
    accuracy = [column(v, "test_accuracy") for v in range(len(NAMES))]
    lines = []
    for v, name in enumerate(NAMES):
        lines.append(
            [
                name,
                loss(column(v, "train_loss")),
                text(column(v, "train_accuracy")),
                text(column(v, "test_loss"), ".3f", 1),
                text(accuracy[v]),
                text(column(v, "generalization_gap")),
            ]
        )
    table(
        ["rung", "training loss", "training accuracy in %", "test loss", "test accuracy in %", "training − test accuracy, points"],
        lines,
    )

    train = [column(v, "train_accuracy") for v in range(len(NAMES))]
    print("Accuracy in points, paired by seed:\n")
    gap = accuracy[0] - accuracy[1]
    lines = []
    for v, name in enumerate(NAMES):
        if v == 0:
            continue
        lines.append(
            [
                name,
                text(train[v] - train[v - 1], "+.2f"),
                text(accuracy[v] - accuracy[v - 1], "+.2f"),
                text(accuracy[v] - accuracy[0], "+.2f"),
                "" if v == 1 else text((accuracy[v] - accuracy[1]) / gap, ".0f"),
            ]
        )
    table(
        [
            "rung",
            "training, against the rung before",
            "test, against the rung before",
            "test, against the small batch",
            "of the test gap won back, in %",
        ],
        lines,
    )
    figures(accuracy, train, runs, seeds)


def figures(test, train, runs, seeds):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    def save(figure, name):
        figure.tight_layout()
        figure.savefig(HERE / "figures" / name, metadata={"Date": None})
        plt.close(figure)

    (HERE / "figures").mkdir(exist_ok=True)
    figure, ax = plt.subplots(figsize=(7, 3.8))
    place = np.arange(len(NAMES))
    for values, shift, marker, colour, label in ((train, -0.08, "s", "#999999", "training"), (test, 0.08, "o", "#0b62a4", "test")):
        mean, half = np.array([interval(v) for v in values]).T * 100
        ax.errorbar(place + shift, mean, half, fmt=marker, color=colour, capsize=3, label=label)
        for i, seed_values in enumerate(values):
            ax.plot(np.full(len(seed_values), place[i] + 2 * shift), 100 * seed_values, ".", color=colour, ms=3, alpha=0.6)
    ax.axhline(100 * test[0].mean(), color="#0b62a4", lw=0.8, ls=":")
    ax.set_xticks(place, [n.replace(" batch norm", "\nbatch norm").replace(" adaptation", "\nadaptation").replace("-root ", "-root\n") for n in NAMES])
    ax.set_ylabel("accuracy in %")
    ax.legend(fontsize=8, loc="lower left")
    save(figure, "ladder.svg")

    curves = {}
    for row in rows(RESULTS / "curves.csv"):
        if row["split"] == "test" and row["step"] != "0":
            curves.setdefault(row["trial"], []).append((int(row["step"]), 1 - float(row["accuracy"])))
    figure, ax = plt.subplots(figsize=(7, 3.8))
    for name, colour, of in zip(NAMES, COLOURS, runs):
        found = [curves[of[s]["trial"]] for s in seeds]
        steps = [step for step, _ in found[0]]
        errors = 100 * np.array([[error for _, error in curve] for curve in found])
        mean, half = np.array([interval(column) for column in errors.T]).T
        ax.plot(steps, mean, "o-", color=colour, ms=3, lw=1.2, label=name)
        ax.fill_between(steps, np.maximum(mean - half, 0.1), mean + half, color=colour, alpha=0.18, lw=0)
    ax.set(xscale="log", yscale="log", xlabel="updates", ylabel="test error in %", ylim=(2, 30))
    ax.set_yticks([2, 3, 5, 10, 20], ["2", "3", "5", "10", "20"])
    ax.minorticks_off()
    ax.legend(fontsize=8)
    save(figure, "test-error-by-updates.svg")


main()
