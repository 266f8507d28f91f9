#!/usr/bin/env python3
"""Experiment 05: the local batch of batch normalization, the statistics of its evaluation, and what can take its place.

    pip install numpy scipy matplotlib
    python experiments/05-local-statistics/analyze.py      # from results/: prints the README's tables, draws figures/
    python experiments/05-local-statistics/analyze.py RUN  # first takes results/curves.csv out of a run's folder

Means and Student's 95 % intervals are over seeds; differences are taken within a seed, at the same rate. Trials that differ in
the statistics of their evaluation alone are the same run; with RUN this is checked, update by update. Also taken from RUN:
the mean loss of the batches of the last epoch, as training saw it, each group normalized by its own statistics; and for each
normalization of the network the ratio of the variances that the two kinds of statistics end with, averaged over its features.
"""

import csv
import json
import struct
import sys
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import interval, rows, table, text  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GROUPS = [2, 4, 8, 16, 32, 64, 256]
AVERAGED = [2, 4, 8, 32, 256]
EPOCH_UPDATES = 39
RATES = [0.01, 0.03, 0.1]
PLACES = {"none": "none", "layer": "layer", "group": "group (8)", "weight": "weight"}
COLOURS = {"none": "#777777", "layer": "#2a8a3e", "group": "#8a3ea8", "weight": "#c44e00"}


def key(row):
    """(normalization, examples that share statistics, statistics of the evaluation)"""
    norm = row["model.mlp.normalization"]
    if norm != "batch":
        return "group" if "group" in norm else norm, None, None
    group = row["train.statistics_group"]
    size = 256 if group == "global" else int("".join(c for c in group if c.isdigit()))
    statistics = row["train.batch_statistics"]
    return "batch", size, "ema 0.01" if "0.01" in statistics else statistics.split()[0].strip('"')


def tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    at = {name: [8 + length + offset for offset in entry["data_offsets"]] for name, entry in header.items()}
    return {name: np.frombuffer(data[start:end], "<f4").reshape(header[name]["shape"]) for name, (start, end) in at.items()}


def extract(run):
    columns = ["trial", "step", "epoch", "loss", "accuracy"]
    updates, weights = {}, {}
    with open(RESULTS / "curves.csv", "w", newline="") as file, open(RESULTS / "batches.csv", "w", newline="") as other:
        out, last = csv.writer(file, lineterminator="\n"), csv.writer(other, lineterminator="\n")
        out.writerow(columns)
        last.writerow(["trial", "loss", *(f"variance_ratio_{i}" for i in (1, 2, 3))])
        for trial in rows(RESULTS / "summary.csv"):
            folder = run / "trials" / trial["trial"]
            for row in rows(folder / "evaluations.csv"):
                if row["split"] == "test" and row["step"] != "0":
                    out.writerow([trial["trial"], *(row[c] for c in columns[1:])])
            which = (*key(trial)[:2], trial["learning_rate.base_lr"], trial["seed"])
            steps = (folder / "steps.csv").read_text()
            assert updates.setdefault(which, steps) == steps, which
            batches = [float(row["loss"]) for row in csv.DictReader(steps.splitlines())]
            ratios = ["", "", ""]
            if key(trial)[0] == "batch" and trial["status"] == "completed":
                # Trials with population statistics come first.
                found = tensors(folder / "model.safetensors")
                base = weights.setdefault(which, found)
                assert all(np.array_equal(found[n], base[n]) for n in found if "running" not in n), which
                names = [f"norms.{i}.running_var" for i in range(3)]
                ratios = [float(np.mean(found[n].astype(float) / base[n])) for n in names]
            last.writerow([trial["trial"], float(np.mean(batches[-EPOCH_UPDATES:])), *ratios])


def read():
    """{key: {rate: {seed: row}}}, the curves of the test set by trial [(step, loss, accuracy)], the
    losses of the last epoch's batches, and the ratios of variances."""
    found = {}
    for row in rows(RESULTS / "summary.csv"):
        found.setdefault(key(row), {}).setdefault(float(row["learning_rate.base_lr"]), {})[int(row["seed"])] = row
    curves = {}
    for row in rows(RESULTS / "curves.csv"):
        curves.setdefault(row["trial"], []).append((int(row["step"]), float(row["loss"]), float(row["accuracy"])))
    batches, ratios = {}, {}
    for row in rows(RESULTS / "batches.csv"):
        batches[row["trial"]] = float(row["loss"])
        if row["variance_ratio_1"]:
            ratios[row["trial"]] = [float(row[f"variance_ratio_{i}"]) for i in (1, 2, 3)]
    return found, curves, batches, ratios


def whole(of):
    return all(row["status"] == "completed" for row in of.values())


def column(of, name):
    return np.array([float(of[seed][name]) for seed in sorted(of)])


def show(of, name="test_accuracy", form=".2f", factor=100):
    lost = sum(row["status"] == "diverged" for row in of.values())
    return f"{lost} of {len(of)} div." if lost else text(column(of, name), form, factor)


def change(of, base, name="test_accuracy", form="+.2f", factor=100):
    if not (whole(of) and whole(base)):
        return "div."
    return text(column(of, name) - column(base, name), form, factor)


def best(by_rate):
    """The rate with the best mean test accuracy of those at which every seed finished."""
    means = {rate: column(of, "test_accuracy").mean() for rate, of in by_rate.items() if whole(of)}
    return max(means, key=means.get)


def label(size):
    return "256 (global)" if size == 256 else str(size)


def main():
    if len(sys.argv) > 1:
        extract(Path(sys.argv[1]))
    runs, curves, batches, ratios = read()
    population = {size: runs["batch", size, "population"] for size in GROUPS}
    at = [f"rate {rate:g}" for rate in RATES]

    print("Test accuracy in % with population statistics, and against global statistics at the same rate:\n")
    lines = []
    for size in GROUPS:
        line = [label(size)]
        for rate in RATES:
            line.append(show(population[size][rate]))
        for rate in RATES:
            line.append("" if size == 256 else change(population[size][rate], population[256][rate]))
        lines.append(line)
    table(["local batch", *at, *(f"against global, {a}" for a in at)], lines)

    print("Training accuracy in %, and training minus test accuracy in points, with population statistics:\n")
    lines = []
    for size in GROUPS:
        of = population[size]
        lines.append(
            [label(size), *(show(of[r], "train_accuracy") for r in RATES), *(show(of[r], "generalization_gap") for r in RATES)]
        )
    table(["local batch", *(f"training, {a}" for a in at), *(f"gap, {a}" for a in at)], lines)

    print("Mean loss of the last epoch's batches as training saw it, and at the end over the training set with population statistics:\n")
    lines = []
    for size in GROUPS:
        seen = [np.array([batches[of[s]["trial"]] for s in sorted(of)]) for of in (population[size][r] for r in RATES)]
        ends = [show(population[size][r], "train_loss", ".3f", 1) for r in RATES]
        lines.append([label(size), *(text(x, ".3f", 1) for x in seen), *ends])
    table(["local batch", *(f"as seen, {a}" for a in at), *(f"population, {a}" for a in at)], lines)

    print("Population statistics minus running averages (rate 0.1) at the end of the same runs:\n")
    lines = []
    for size in AVERAGED:
        ema = runs["batch", size, "ema"]
        line = [label(size)]
        line += [change(population[size][rate], ema[rate]) for rate in RATES]
        line += [change(population[size][rate], ema[rate], "test_loss", "+.3f", 1) for rate in RATES]
        lines.append(line)
    table(["local batch", *(f"test accuracy, points, {a}" for a in at), *(f"test loss, {a}" for a in at)], lines)

    def curve(of, place):
        return np.array([[point[place] for point in curves[of[s]["trial"]]] for s in sorted(of)])

    print("The same along the run, test accuracy in points at the middle rate, for running averages of two rates:\n")
    lines = []
    steps = [point[0] for point in curves[population[2][RATES[1]][0]["trial"]]]
    for size in AVERAGED:
        for name in ("ema", "ema 0.01"):
            if ("batch", size, name) in runs:
                ema = curve(runs["batch", size, name][RATES[1]], 2)
                difference = curve(population[size][RATES[1]], 2) - ema
                rate = "0.01" if "0.01" in name else "0.1"
                lines.append([label(size), rate, *(text(d, "+.2f") for d in difference.T)])
    table(["local batch", "rate of the average", *(f"update {step}" for step in steps)], lines)

    print("In place of batch normalization, test accuracy in %:\n")
    lines = []
    entries = [(f"batch, {label(size)}", population[size]) for size in (2, 4, 8, 32, 256)]
    entries += [(name, runs[norm, None, None]) for norm, name in PLACES.items()]
    top = {name: best(of) for name, of in entries}
    references = {name: dict(entries)[name] for name in ("batch, 2", "batch, 4", "batch, 8", "batch, 256 (global)")}
    for name, of in entries:
        chosen = of[top[name]]
        line = [name, *(show(of[rate]) for rate in RATES), f"{top[name]:g}"]
        for reference, base in references.items():
            line.append("" if name.startswith("batch") else change(chosen, base[top[reference]]))
        lines.append(line)
    table(["normalization", *at, "best rate", *(f"at the best rates, against {r}" for r in references)], lines)
    print("Variance of the running average (rate 0.1) over the population's, at the end of the same runs, at the middle rate:\n")
    lines = []
    for size in AVERAGED:
        of = runs["batch", size, "ema"][RATES[1]]
        lines.append(
            [label(size), f"{size / (size - 1):.3f}", *(text([ratios[of[s]["trial"]][i] for s in sorted(of)], ".3f", 1) for i in range(3))]
        )
    table(["local batch b", "b/(b − 1)", "first normalization", "second", "third"], lines)
    figures(runs, population, curve, steps)


def figures(runs, population, curve, steps):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    def save(figure, name):
        figure.tight_layout()
        figure.savefig(HERE / "figures" / name, metadata={"Date": None})
        plt.close(figure)

    (HERE / "figures").mkdir(exist_ok=True)
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.8), sharey=True)
    for ax, rate in zip(axes, RATES):
        for norm, name in PLACES.items():
            of = runs[norm, None, None][rate]
            if whole(of):
                mean, half = interval(100 - 100 * column(of, "test_accuracy"))
                ax.axhline(mean, color=COLOURS[norm], lw=1, label=name)
                ax.axhspan(mean - half, mean + half, color=COLOURS[norm], alpha=0.1, lw=0)
        for statistics, marker, line, shift in (("population", "o", "-", 0.97), ("ema", "x", "--", 1.03)):
            sizes = [s for s in (GROUPS if statistics == "population" else AVERAGED) if whole(runs["batch", s, statistics][rate])]
            found = [interval(100 - 100 * column(runs["batch", s, statistics][rate], "test_accuracy")) for s in sizes]
            mean, half = np.array(found).T
            name = "batch, population" if statistics == "population" else "batch, running average"
            ax.errorbar(np.array(sizes) * shift, mean, half, fmt=marker + line, color="#0b62a4", ms=4, lw=1, capsize=2, label=name)
        ax.set(xscale="log", yscale="log", title=f"rate {rate:g}", xlabel="examples that share statistics")
        ax.set_xticks(GROUPS, [str(g) for g in GROUPS])
        ax.minorticks_off()
    axes[0].set_ylabel("test error in %")
    ticks = [14, 16, 18, 20, 25, 30, 40, 50]
    axes[0].set_yticks(ticks, [str(t) for t in ticks])
    axes[0].minorticks_off()
    axes[0].legend(fontsize=8, loc="upper right")
    save(figure, "test-error-by-local-batch.svg")

    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), sharey=True)
    lines = {"population": ("#0b62a4", "o-"), "ema": ("#c44e00", "x-"), "ema 0.01": ("#777777", "s--")}
    names = {"population": "population", "ema": "running average, rate 0.1", "ema 0.01": "running average, rate 0.01"}
    for ax, size in zip(axes, (2, 8, 256)):
        for statistics, (colour, form) in lines.items():
            if ("batch", size, statistics) in runs:
                loss = curve(runs["batch", size, statistics][RATES[1]], 1)
                mean, half = np.array([interval(c) for c in loss.T]).T
                ax.errorbar(steps, mean, half, fmt=form, color=colour, ms=4, lw=1, capsize=2, label=names[statistics])
        ax.set(title=f"groups of {label(size)}, rate {RATES[1]:g}", xlabel="updates", yscale="log")
    axes[0].set_ylabel("test loss")
    ticks = [0.4, 0.6, 0.8, 1, 1.5]
    axes[0].set_yticks(ticks, [str(t) for t in ticks])
    axes[0].minorticks_off()
    axes[1].legend(fontsize=8)
    save(figure, "test-loss-by-statistics.svg")


main()
