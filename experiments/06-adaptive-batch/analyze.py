#!/usr/bin/env python3
"""Experiment 06: adaptive batches against the best constant batch, and against constant batches of as many updates.

    pip install numpy scipy matplotlib
    python experiments/06-adaptive-batch/analyze.py              # from results/: prints the README's tables, draws figures/
    python experiments/06-adaptive-batch/analyze.py STUDY_FOLDER # first makes results/batches.csv from a run's folder

Intervals are Student's at 95 % over seeds. The best constant batch has the best mean validation accuracy; what is reported
is measured on the test set. "At equal updates" compares a run with the constant batches of its seed, between two of them
interpolated in log2 of the updates. Differences are paired by seed. "At equal training loss" finds on the same line, of means
over seeds, the updates of the constant batch with the mean training loss of the runs; its interval is a percentile bootstrap
over seeds, drawn for runs and constant batches together.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import interval, table  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
EPOCHS = 10
GRID = np.arange(0, EPOCHS + 0.01, 0.25)
SHOWN = [0.5, 1, 2, 4, 6, 8, 9.75]
# Examples of the Hessian; what an exact Hessian-vector product of a perceptron costs, in gradients (measured by
# benches/curvature.rs); and products of a decision: at most those of Lanczos's method, and one for each of the 8 pieces of
# a batch and their mean.
CURVATURE = 512
GRADIENTS = 1.66
ABSA_PRODUCTS = 10
NOISE_PRODUCTS = 9
CONTROLLERS = {
    "absa": "ABSA",
    "{ absa = { patience_epochs = 0.9 } }": "ABSA, one epoch",
    "cabs": "CABS",
    "norm-test": "norm test",
    "inner-product-test": "inner-product test",
    "{ noise-scale = { exchange_rate = 330.0 } }": "noise scale",
    "simple-noise-scale": "simple noise scale",
}


def name(point):
    """The row's name, from the swept keys."""
    without = ", no momentum" if point["optimizer"] == "sgd" else ""
    without += ", no decay" if point["learning_rate.decay"] == "constant" else ""
    controller = point["batch.controller"]
    if controller == "constant":
        return f"constant {point['train.global_batch']}" + without
    return CONTROLLERS[controller] + without


def read(file):
    with open(RESULTS / file, newline="") as table:
        return list(csv.DictReader(table))


def text(values, scale=1.0, digits=2, sign=""):
    mean, half = interval(values)
    mean = f"{scale * mean:{sign},.{digits}f}"
    if not mean.strip("+-0."):
        mean = mean.lstrip("+-")
    return f"{mean} ± {scale * half:,.{digits}f}".replace("-", "−")


def extract(run):
    """The batch of every run with a controller at multiples of a quarter epoch."""
    study = json.loads((RESULTS / "study.json").read_text())
    rows = []
    for trial in study["trials"]:
        if trial["point"]["batch.controller"] == "constant":
            continue
        with open(run / "trials" / trial["id"] / "steps.csv", newline="") as file:
            steps = list(csv.DictReader(file))
        # A row's epoch is that after its update.
        ends = np.array([float(row["epoch"]) for row in steps])
        for epoch in GRID:
            at = min(int(np.searchsorted(ends, epoch, side="right")), len(steps) - 1)
            rows.append([trial["id"], trial["seed"], f"{epoch:g}", steps[at]["global_batch"]])
    with open(RESULTS / "batches.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trial", "seed", "epoch", "global_batch"])
        writer.writerows(rows)


def main():
    if len(sys.argv) > 1:
        extract(Path(sys.argv[1]))
    rows = read("summary.csv")
    assert all(row["status"] == "completed" for row in rows)
    runs = {}
    for row in rows:
        runs.setdefault(name(row), {})[int(row["seed"])] = row

    def values(which, column):
        return np.array([float(runs[which][seed][column]) for seed in sorted(runs[which])])

    constants = [n for n in runs if n.startswith("constant") and "momentum" not in n]
    others = [n for n in runs if n in CONTROLLERS.values()]
    best = max(constants, key=lambda n: values(n, "validation_accuracy").mean())
    lines = []
    for n in runs:
        examples = values(n, "examples").mean()
        lines.append(
            [
                n + (" (best constant)" if n == best else ""),
                f"{values(n, 'steps').mean():,.0f}" if n in constants else text(values(n, "steps"), digits=0),
                f"{examples / values(n, 'steps').mean():,.0f}",
                f"{examples:,.0f}",
                text(values(n, "test_accuracy"), 100),
                text(values(n, "test_loss"), digits=4),
                text(values(n, "train_loss"), digits=4),
                measuring(n, values(n, "steps").mean(), examples),
            ]
        )
    head = ["batch", "updates", "examples an update", "examples", "test accuracy, %", "test loss", "training loss"]
    table([*head, "measuring"], lines)

    print("Against the best constant batch, and against constant batches at equal updates; paired by seed:\n")
    lines = []
    for n in others:
        fewer = values(best, "steps") / values(n, "steps")
        line = [n, text(fewer, digits=1)]
        line.append(text(values(n, "test_accuracy") - values(best, "test_accuracy"), 100, sign="+"))
        for column, scale, digits in (("test_accuracy", 100, 2), ("test_loss", 1, 4), ("train_loss", 1, 4)):
            difference = [own - like for own, like in at_equal_updates(runs, constants, n, column)]
            line.append(text(difference, scale, digits, "+"))
        line.append(at_equal_loss(runs, constants, n))
        lines.append(line)
    head = ["batch", f"{best}'s updates over its own", "test accuracy, points", "the same at equal updates"]
    head += ["test loss at equal updates", "training loss at equal updates"]
    table([*head, "updates at equal training loss over its own"], lines)

    print("CABS minus the constant batch, both without momentum and decay:\n")
    with_it, without = (n for n in reversed(runs) if n not in constants and n not in others)
    line = [text(values(with_it, "steps"), digits=0)]
    for column, scale, digits in (("test_accuracy", 100, 2), ("test_loss", 1, 4), ("train_loss", 1, 4)):
        line.append(text(values(with_it, column) - values(without, column), scale, digits, "+"))
    table(["updates", "test accuracy, points", "test loss", "training loss"], [line])

    print("The batch over time (geometric mean over seeds):\n")
    batches = {}
    names = {row["trial"]: name(row) for row in rows}
    for row in read("batches.csv"):
        batches.setdefault(names[row["trial"]], {}).setdefault(float(row["epoch"]), []).append(float(row["global_batch"]))
    moving = [n for n in runs if not n.startswith("constant")]
    lines = [[n, *(f"{np.exp(np.mean(np.log(batches[n][epoch]))):,.0f}" for epoch in SHOWN)] for n in moving]
    table(["epoch", *(f"{epoch:g}" for epoch in SHOWN)], lines)
    figures(runs, constants, others, values, batches, moving)


def at_equal_updates(runs, constants, which, column):
    """(own value, that of the constant batches at as many updates), seed by seed."""
    pairs = []
    for seed, row in sorted(runs[which].items()):
        line = sorted((np.log2(float(runs[c][seed]["steps"])), float(runs[c][seed][column])) for c in constants)
        x, y = zip(*line)
        steps = np.log2(float(row["steps"]))
        assert x[0] <= steps <= x[-1], which
        pairs.append((float(row[column]), float(np.interp(steps, x, y))))
    return pairs


def at_equal_loss(runs, constants, which):
    """Updates that a constant batch needs for the run's mean training loss over its own, with a bootstrap interval."""
    seeds = sorted(runs[which])
    steps = np.log2([[float(runs[c][s]["steps"]) for s in seeds] for c in constants]).mean(axis=1)
    losses = np.array([[float(runs[c][s]["train_loss"]) for s in seeds] for c in constants])
    own = np.array([float(runs[which][s]["train_loss"]) for s in seeds])
    made = np.array([float(runs[which][s]["steps"]) for s in seeds])

    def ratio(drawn):
        # The constants go from most to fewest updates, and the loss of fewer is not lower.
        line = np.maximum.accumulate(losses[:, drawn].mean(axis=1))
        return 2 ** np.interp(own[drawn].mean(), line, steps) / made[drawn].mean()

    if not losses[0].mean() < own.mean() < losses[-1].mean():
        return "outside"
    rng = np.random.default_rng(0)
    drawn = [ratio(rng.integers(0, len(seeds), len(seeds))) for _ in range(4000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{ratio(np.arange(len(seeds))):.2f} ({low:.2f} to {high:.2f})"


def measuring(which, steps, examples):
    """Cost of Hessian-vector products, in gradients of examples over those of training; decisions each epoch, or 10 updates."""
    if which.startswith("ABSA"):
        return f"up to {EPOCHS * ABSA_PRODUCTS * GRADIENTS * CURVATURE / examples:.1f} ×"
    if which == "noise scale":
        return f"{steps / 10 * NOISE_PRODUCTS * GRADIENTS * CURVATURE / examples:.1f} ×"
    return ""


def figures(runs, constants, others, values, batches, moving):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    (HERE / "figures").mkdir(exist_ok=True)
    colours = dict(zip([*others, *(n for n in moving if n not in others)], plt.get_cmap("tab10").colors))

    def save(figure, file):
        figure.tight_layout()
        figure.savefig(HERE / "figures" / file, metadata={"Date": None})
        plt.close(figure)

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
    for ax, column, scale, title in zip(axes, ("test_accuracy", "test_loss"), (100, 1), ("test accuracy in %", "test loss")):
        found = [interval(scale * values(n, column)) for n in constants]
        steps = [values(n, "steps").mean() for n in constants]
        ax.errorbar(steps, [m for m, _ in found], [h for _, h in found], fmt="ko-", capsize=2, ms=4, label="constant 2048 to 32")
        for n in others:
            mean, half = interval(scale * values(n, column))
            ax.errorbar(values(n, "steps").mean(), mean, half, fmt="D", color=colours[n], capsize=2, ms=5, label=n)
        ax.set(xscale="log", xlabel="updates in 10 epochs", ylabel=title)
    axes[0].legend(fontsize=7, loc="lower right")
    save(figure, "accuracy-by-updates.svg")

    figure, ax = plt.subplots(figsize=(8, 4.2))
    for n in moving:
        epochs = sorted(batches[n])
        logs = np.log2([batches[n][epoch] for epoch in epochs])
        ax.plot(epochs, 2 ** logs.mean(axis=1), color=colours[n], label=n)
        ax.fill_between(epochs, 2 ** logs.min(axis=1), 2 ** logs.max(axis=1), color=colours[n], alpha=0.15, lw=0)
    ax.set(yscale="log", xlabel="epoch", ylabel="global batch")
    ticks = [8, 32, 128, 512, 2048]
    ax.set_yticks(ticks, [str(t) for t in ticks], minor=False)
    ax.minorticks_off()
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, "batch-over-epochs.svg")


main()
