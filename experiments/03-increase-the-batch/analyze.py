#!/usr/bin/env python3
"""Experiment 03: loss curves over epochs of Smith's schedules against that of a decayed rate, and their updates.

    pip install numpy scipy matplotlib
    python experiments/03-increase-the-batch/analyze.py      # from results/: prints the README's tables, draws figures/
    python experiments/03-increase-the-batch/analyze.py RUN  # first takes results/curves.csv out of a run's folder

The relative difference of a curve is L/L_decay - 1 at the same epoch and seed, L the loss over all training examples. From
its values at the epochs after the first change of rate or batch a seed gets the mean, the mean size and the largest size;
intervals are Student's at 95 % over seeds. The spread between seeds is the same between the decayed runs of every two seeds.
Updates are predicted from the schedule alone, by counting examples, and compared with those made, at every evaluation.
"""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import extract_curves, interval, rows, table, text  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
EXAMPLES = 60000
EPOCHS = 20
CHANGES = [6, 12, 16]
CAP = 6000
NAMES = ["no change", "decay the rate", "increase the batch", "+ larger initial rate", "+ larger momentum"]
COLOURS = ["#777777", "#0b62a4", "#c44e00", "#2a8a3e", "#8a3ea8"]
# Of each schedule: the first batch and rate, the momentum, and the factor that each change brings to rate and to batch.
SCHEDULES = [
    (32, 0.01, 0.9, 1, 1),
    (32, 0.01, 0.9, 0.2, 1),
    (32, 0.01, 0.9, 1, 5),
    (160, 0.05, 0.9, 1, 5),
    (800, 0.05, 0.98, 1, 5),
]


def stages(schedule):
    """[(epoch it starts at, batch, rate, momentum)]; what the cap takes from the batch, the rate loses."""
    batch, rate, momentum, decay, growth = schedule
    found = [(0, batch, rate, momentum)]
    for epoch in CHANGES:
        grown = min(batch * growth, CAP)
        rate *= decay * (grown / batch) / growth
        batch = grown
        found.append((epoch, batch, rate, momentum))
    return found


def predicted(schedule):
    """Updates made when each whole epoch has first been passed, and at the end."""
    plan = stages(schedule)
    examples = updates = 0
    passed = {0: 0}
    while True:
        batch = [b for epoch, b, _, _ in plan if examples >= epoch * EXAMPLES][-1]
        if examples + batch > EPOCHS * EXAMPLES:
            return passed, updates
        before = examples // EXAMPLES
        examples += batch
        updates += 1
        if examples // EXAMPLES > before:
            passed[examples // EXAMPLES] = updates


def noise(batch, rate, momentum):
    """Smith's noise scale eps (N/B - 1)/(1 - m)."""
    return rate * (EXAMPLES / batch - 1) / (1 - momentum)


def variant(row):
    if row["batch.controller"] == "constant":
        return 0 if row["learning_rate.decay"] == "constant" else 1
    return {32: 2, 160: 3, 800: 4}[int(row["global_batch"])]


def read():
    """By variant and seed: the row of the summary, and the training curve {epoch: (step, loss)}."""
    curves = {}
    for row in rows(RESULTS / "curves.csv"):
        if row["split"] == "train":
            at = curves.setdefault(row["trial"], {})
            at[int(float(row["epoch"]))] = (int(row["step"]), float(row["loss"]), float(row["epoch"]))
    found = [{} for _ in NAMES]
    for row in rows(RESULTS / "summary.csv"):
        assert row["status"] == "completed", row
        found[variant(row)][int(row["seed"])] = (row, curves[row["trial"]])
    return found


def losses(curve, after):
    return np.array([curve[e][1] for e in range(after, EPOCHS + 1)])


def main():
    if len(sys.argv) > 1:
        extract_curves(Path(sys.argv[1]), RESULTS)
    runs = read()
    seeds = sorted(runs[1])

    print("Schedules: batch, rate and noise scale from epoch 0, 6, 12 and 16 on:\n")
    lines = []
    for name, schedule in zip(NAMES, SCHEDULES):
        plan = stages(schedule)
        cells = [f"{b:,}; {r:.3g}; {noise(b, r, m):.3g}" for _, b, r, m in plan]
        lines.append([name, f"{schedule[2]:g}", *cells])
    table(["schedule", "momentum", *(f"from epoch {e}" for e in [0, *CHANGES])], lines)

    print("Updates, predicted from the schedule and made:\n")
    lines = []
    base = predicted(SCHEDULES[1])[1]
    for name, schedule, of in zip(NAMES, SCHEDULES, runs):
        passed, total = predicted(schedule)
        made = {int(row["steps"]) for row, _ in of.values()}
        agree = sum(curve[e][0] == passed.get(e, total) for _, curve in of.values() for e in range(EPOCHS + 1))
        lines.append(
            [name, f"{total:,}", ", ".join(f"{m:,}" for m in made), f"{base / total:.2f}", f"{agree} of {len(of) * (EPOCHS + 1)}"]
        )
    table(["schedule", "predicted", "made (all seeds)", "factor", "evaluations at the predicted update"], lines)

    first = CHANGES[0] + 1
    equal = all(runs[1][s][1][e] == runs[2][s][1][e] for s in seeds for e in range(first))
    print(f"Decay and increase agree in every digit up to epoch {CHANGES[0]}: {equal}\n")

    def compared(a, b):
        return losses(a, first) / losses(b, first) - 1

    print(f"Training loss against that of the decayed rate, in %, epochs {first} to {EPOCHS}:\n")
    lines = []
    for v in (2, 3, 4, 0):
        found = [compared(runs[v][s][1], runs[1][s][1]) for s in seeds]
        each = np.array([interval([f[i] for f in found]) for i in range(EPOCHS - first + 1)])
        outside = int(np.sum(np.abs(each[:, 0]) > each[:, 1]))
        lines.append(
            [
                NAMES[v],
                text([f.mean() for f in found], "+.2f"),
                text([np.abs(f).mean() for f in found]),
                text([np.abs(f).max() for f in found]),
                f"{outside} of {len(each)}",
            ]
        )
    pairs = [compared(runs[1][a][1], runs[1][b][1]) for a, b in combinations(seeds, 2)]
    sizes, largest = [np.abs(p).mean() for p in pairs], [np.abs(p).max() for p in pairs]
    spread = [f"{100 * np.mean(x):.2f} ({100 * min(x):.2f} to {100 * max(x):.2f})" for x in (sizes, largest)]
    lines.append([f"decay, seed against seed ({len(pairs)} pairs)", "", *spread, ""])
    table(["schedule", "mean", "mean size", "largest size", "epochs whose interval leaves out 0"], lines)

    print("At the end:\n")
    lines = []
    for v, of in enumerate(runs):
        def column(name, of=of):
            return np.array([float(of[s][0][name]) for s in seeds])

        base_accuracy = np.array([float(runs[1][s][0]["test_accuracy"]) for s in seeds])
        change = column("test_accuracy") - base_accuracy
        lines.append(
            [
                NAMES[v],
                f"{int(of[seeds[0]][0]['steps']):,}",
                text(column("train_loss"), ".4f", 1),
                text(column("train_accuracy")),
                text(column("test_accuracy")),
                "" if v == 1 else text(change, "+.2f"),
            ]
        )
    table(["schedule", "updates", "training loss", "training accuracy in %", "test accuracy in %", "against decay, points"], lines)
    figures(runs, seeds)


def figures(runs, seeds):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    (HERE / "figures").mkdir(exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    marks = ["", "o", "x", "", ""]
    for v, (name, colour) in enumerate(zip(NAMES, COLOURS)):
        curves = [runs[v][s][1] for s in seeds]
        loss = np.array([losses(curve, 1) for curve in curves])
        mean, half = np.array([interval(column) for column in loss.T]).T
        for ax, place in ((axes[0], 2), (axes[1], 0)):
            x = [curves[0][e][place] for e in range(1, EPOCHS + 1)]
            ax.plot(x, mean, color=colour, lw=1.3, marker=marks[v], ms=5 if v == 2 else 3, label=name)
            ax.fill_between(x, mean - half, mean + half, color=colour, alpha=0.18, lw=0)
    for epoch in CHANGES:
        axes[0].axvline(epoch, color="k", lw=0.7, ls=":")
    axes[0].set(xlabel="epochs", ylabel="training loss", yscale="log")
    axes[1].set(xlabel="updates", xscale="log")
    axes[0].set_yticks([0.2, 0.3, 0.4, 0.5], ["0.2", "0.3", "0.4", "0.5"])
    axes[0].minorticks_off()
    axes[0].set_xticks(range(0, EPOCHS + 1, 4))
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(HERE / "figures" / "training-loss.svg", metadata={"Date": None})
    plt.close(figure)

    first = CHANGES[0]
    figure, ax = plt.subplots(figsize=(6.2, 3.8))
    reference = [losses(runs[1][s][1], first) for s in seeds]
    x = range(first, EPOCHS + 1)
    mean = np.mean(reference, axis=0)
    spread = 100 * np.std(reference, axis=0, ddof=1) / mean
    ax.fill_between(x, -spread, spread, color=COLOURS[1], alpha=0.15, lw=0, label="decay: standard deviation over seeds")
    for v in (2, 3):
        found = 100 * np.array([losses(runs[v][s][1], first) / r - 1 for s, r in zip(seeds, reference)])
        mean, half = np.array([interval(column) for column in found.T]).T
        ax.errorbar(x, mean, half, color=COLOURS[v], marker="o", ms=3, lw=1.2, capsize=2, label=NAMES[v])
    ax.set(xlabel="epochs", ylabel="training loss against decay, in %")
    ax.set_xticks(range(first, EPOCHS + 1, 2))
    ax.set_ylim(-6, 12)
    ax.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(HERE / "figures" / "difference-to-decay.svg", metadata={"Date": None})
    plt.close(figure)


main()
