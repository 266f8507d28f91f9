#!/usr/bin/env python3
"""Experiment 07: curvature, sharpness and gap against the batch, at equal epochs and at equal training loss.

    pip install numpy scipy matplotlib
    python experiments/07-sharp-minima/analyze.py               # from results/: prints the README's tables, draws figures/
    python experiments/07-sharp-minima/analyze.py STUDY_FOLDER  # first makes results/probes.csv from a run's folder

"Equal epochs" is the end of the run, "equal loss" the first evaluation (two an epoch) with a training loss at or below the
target. Cells are means over seeds ± half of Student's 95 % interval; ratios of the largest to the smallest batch are
geometric means over seeds, each paired by seed, with the interval of their logarithm. The gap is training minus test
accuracy, both over the whole splits at the same moment. Correlations are Spearman's over the runs of one data set, with a
percentile bootstrap that draws runs within each batch (4,000 draws): over batches, and within a batch, where each run counts
as its distance to the mean of its batch (of logarithms, but for gap and accuracy). "At one
training loss, by regression" is least squares of the logarithms of a measure, at equal loss, on one constant a batch and the
logarithm of the loss that was reached, over all runs of a data set.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy import stats

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import interval, rows, table, text  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
MOMENTS = {"end": "equal epochs", "train_loss": "equal loss"}
DRAWS = 4000
# Rows of a trial's probes.csv without a scope that are kept.
KEPT = {
    "eigenvalue",
    "smallest_eigenvalue",
    "trace",
    "sharpness_full",
    "sharpness_subspace",
    "worst_loss_l2",
    "gaussian_loss",
    "relative_flatness",
    "fgsm_accuracy",
    "pgd_accuracy",
}
COLUMNS = "trial,seed,source,batch,when,train_loss,quantity,at,value,standard_error,residual,converged".split(",")
# (quantity, at) and what it is called.
CURVATURE = {
    ("eigenvalue", "1"): "top eigenvalue λ₁",
    ("trace", ""): "trace",
}
SHARPNESS = {
    ("sharpness_full", "0.001"): "full, ε = 10⁻³",
    ("sharpness_full", "0.0005"): "full, ε = 5·10⁻⁴",
    ("sharpness_subspace", "0.001"): "subspace, ε = 10⁻³",
    ("sharpness_subspace", "0.0005"): "subspace, ε = 5·10⁻⁴",
}
OTHER = {
    ("worst_loss_l2", "0.05"): "worst loss, L2 0.05",
    ("gaussian_loss", "0.01"): "Gaussian noise, σ = 0.01",
    ("relative_flatness", ""): "relative flatness",
}
ATTACKS = {
    ("fgsm_accuracy", "0.1"): "FGSM 0.1",
    ("fgsm_accuracy", "0.3"): "FGSM 0.3",
    ("pgd_accuracy", "0.1"): "PGD 0.1",
    ("pgd_accuracy", "0.3"): "PGD 0.3",
}
MEASURES = {**CURVATURE, **SHARPNESS, **OTHER}


def short(number, digits=6):
    return f"{float(number):.{digits}g}" if number else ""


def extract(run):
    """results/probes.csv: of every trial what is compared here, six digits of each number."""
    out = []
    for trial in rows(RESULTS / "summary.csv"):
        folder = run / "trials" / trial["trial"]
        head = [trial["trial"], trial["seed"], trial["data.source"], trial["global_batch"]]
        evaluations = {(row["step"], row["split"]): row for row in rows(folder / "evaluations.csv")}
        moments = {}
        for row in rows(folder / "probes.csv"):
            moments[row["when"]] = (row["step"], row["epoch"], row["train_loss"])
            if row["scope"] or row["quantity"] not in KEPT:
                continue
            values = [short(row[c]) for c in ("at", "value", "standard_error")]
            end = [short(row["residual"], 2), row["converged"]]
            out.append([*head, row["when"], short(row["train_loss"]), row["quantity"], *values, *end])
        for when, (step, epoch, loss) in moments.items():
            found = {f"{split}_accuracy": evaluations[step, split]["accuracy"] for split in ("train", "test")}
            found["test_loss"] = evaluations[step, "test"]["loss"]
            for quantity, value in {"step": step, "epoch": epoch, **found}.items():
                out.append([*head, when, short(loss), quantity, "", short(value), "", "", ""])
    with open(RESULTS / "probes.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(out)


class Runs:
    """The runs of one data set at one moment: values by batch and seed."""

    def __init__(self, probes):
        self.values = {}
        for row in probes:
            cell = self.values.setdefault(int(row["batch"]), {}).setdefault(int(row["seed"]), {})
            cell["train_loss", ""] = float(row["train_loss"])
            if row["value"]:
                cell[row["quantity"], row["at"]] = float(row["value"])
            if row["quantity"] == "eigenvalue":
                cell["resolved", row["at"]] = resolved(row)
        for seeds in self.values.values():
            for cell in seeds.values():
                cell["gap", ""] = cell["train_accuracy", ""] - cell["test_accuracy", ""]

    def of(self, batch, key):
        """By seed."""
        return np.array([cell[key] for _, cell in sorted(self.values.get(batch, {}).items())])

    def seeds(self, batch):
        return sorted(self.values.get(batch, {}))

    def ratio(self, small, large, key):
        """log of the value at `large` over that at `small`, of each seed that has both."""
        both = [s for s in self.seeds(small) if s in self.seeds(large)]
        return np.array([np.log(self.values[large][s][key] / self.values[small][s][key]) for s in both])


def number(value):
    """Three digits; thousands as they are."""
    if not np.isfinite(value):
        return "none"
    if value == 0:
        return "0"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{digits}f}"


def cell(values):
    """Mean ± half the interval, in three digits of the mean."""
    if len(values) == 0:
        return "not reached"
    mean, half = interval(values)
    digits = max(0, 2 - int(np.floor(np.log10(abs(mean))))) if mean else 2
    out = f"{mean:,.{digits}f} ± {half:,.{digits}f}".replace("-", "−")
    return out


def factor(logs):
    """Geometric mean and the interval of the logarithm."""
    if len(logs) == 0:
        return "not reached"
    mean, half = interval(logs)
    return f"{number(np.exp(mean))} ({number(np.exp(mean - half))} to {number(np.exp(mean + half))})"


def spearman(x, y):
    return stats.spearmanr(x, y).statistic


def correlation(pairs, rng):
    """Spearman's over all runs with its bootstrap interval; `pairs`: an array of (x, y) for each batch."""
    whole = np.concatenate(pairs)
    if len(whole) < 4 or np.ptp(whole[:, 0]) == 0 or np.ptp(whole[:, 1]) == 0:
        return "none"
    drawn = np.array([np.concatenate([p[rng.integers(0, len(p), len(p))] for p in pairs]) for _ in range(DRAWS)])
    ranks = stats.rankdata(drawn, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    x, y = ranks[..., 0], ranks[..., 1]
    with np.errstate(invalid="ignore"):
        found = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    low, high = np.nanquantile(found, [0.025, 0.975])
    return f"{spearman(whole[:, 0], whole[:, 1]):+.2f} ({low:+.2f} to {high:+.2f})".replace("-", "−")


def main():
    if len(sys.argv) > 1:
        extract(Path(sys.argv[1]))
    probes = rows(RESULTS / "probes.csv")
    runs = {}
    for source in SETS:
        for when in MOMENTS:
            chosen = [r for r in probes if r["source"] == source and r["when"] == when]
            runs[source, when] = Runs(chosen)
    batches = sorted({int(row["batch"]) for row in probes})

    def shown(source, when):
        return f"{SETS[source]}, {MOMENTS[when]}"

    print("Where the runs are compared:\n")
    lines = []
    for key, group in runs.items():
        for b in batches:
            line = [shown(*key), b, len(group.seeds(b))]
            if not group.seeds(b):
                lines.append([*line, *["not reached"] * 5])
                continue
            line.append(number(group.of(b, ("epoch", "")).mean()))
            line.append(f"{group.of(b, ('step', '')).mean():,.0f}")
            line.append(cell(group.of(b, ("train_loss", ""))))
            line.append(text(group.of(b, ("test_accuracy", ""))))
            line.append(text(group.of(b, ("gap", ""))))
            lines.append(line)
    head = ["", "batch", "runs", "epoch", "updates", "training loss", "test accuracy, %", "gap, points"]
    table(head, lines)

    for title, measures in (
        ("Curvature of the training loss", {**CURVATURE, ("smallest_eigenvalue", "1"): "smallest eigenvalue"}),
        ("Keskar's sharpness in per cent", SHARPNESS),
        ("Rise of the training loss, and relative flatness", OTHER),
    ):
        print(title + ":\n")
        lines = [[shown(*key), b, *(cell(g.of(b, m)) for m in measures)] for key, g in runs.items() for b in batches]
        table(["", "batch", *measures.values()], lines)

    print("Accuracy in % on 1,000 test examples under attack, features changed by so much at most:\n")
    lines = []
    for key, group in runs.items():
        for b in batches:
            found = [group.of(b, m) for m in ATTACKS]
            lines.append([shown(*key), b, *(text(v, ".1f") if len(v) else "not reached" for v in found)])
    table(["", "batch", *ATTACKS.values()], lines)

    small, large = batches[0], batches[-1]
    print(f"The value at {large} over that at {small}, paired by seed:\n")
    keys = {("train_loss", ""): "training loss", **MEASURES}
    lines = [[name, *(factor(group.ratio(small, large, m)) for group in runs.values())] for m, name in keys.items()]
    table(["", *(shown(*key) for key in runs)], lines)

    print("The same at one training loss, by regression, and the power of the loss that a measure follows within a batch:\n")
    lines = []
    for m, name in MEASURES.items():
        line = [name]
        for source in SETS:
            line += at_one_loss(runs[source, "train_loss"], batches, m)
        lines.append(line)
    table(["", *(f"{SETS[s]}: {c}" for s in SETS for c in (f"{large} over {small}", "power of the loss"))], lines)

    rng = np.random.default_rng(0)
    with_loss = {("train_loss", ""): "training loss", **MEASURES}
    print("Rank correlation with the gap, over all runs:\n")
    correlations(runs, batches, shown, with_loss, "gap", rng)
    print("Rank correlation with the gap, within a batch:\n")
    correlations(runs, batches, shown, with_loss, "gap", rng, within)
    print("Rank correlation with test accuracy, over all runs:\n")
    correlations(runs, batches, shown, with_loss, "test_accuracy", rng)
    print("Rank correlation with the training loss, over all runs:\n")
    correlations(runs, batches, shown, MEASURES, "train_loss", rng)
    print("Rank correlation over all runs of λ₁ and trace with accuracy under attack:\n")
    lines = []
    for m, name in CURVATURE.items():
        for attack in (("fgsm_accuracy", "0.1"), ("pgd_accuracy", "0.1")):
            found = [correlation(arrays(g, batches, m, *attack), rng) for g in runs.values()]
            lines.append([f"{name}, {ATTACKS[attack]}", *found])
    table(["", *(shown(*key) for key in runs)], lines)

    print("How well the numbers are known; residuals in per cent of their eigenvalue, errors in per cent of the trace:\n")
    lines = []
    for source, when in runs:
        chosen = [r for r in probes if r["source"] == source and r["when"] == when]
        lines.append([shown(source, when), *known(chosen)])
    head = ["", "residual of λ₁, largest", "of the 20, largest", "of the 20 not converged"]
    head.append("smallest eigenvalues not converged")
    table([*head, "trace: largest error", "traces not converged", "maximizations not finished"], lines)
    figures(runs, batches, shown)


def arrays(group, batches, key, other, at=""):
    """(value, other) of each run, one array a batch."""
    found = []
    for b in batches:
        if group.seeds(b):
            found.append(np.column_stack([group.of(b, key), group.of(b, (other, at))]))
    return found


def correlations(runs, batches, shown, measures, other, rng, of=lambda pairs: pairs):
    lines = []
    for m, name in measures.items():
        lines.append([name, *(correlation(of(arrays(g, batches, m, other)), rng) for g in runs.values())])
    table(["", *(shown(*key) for key in runs)], lines)


def at_one_loss(group, batches, key):
    """Least squares of log value on one constant a batch and log loss: largest over smallest batch, and the power."""
    have = [b for b in batches if group.seeds(b)]
    loss = np.concatenate([np.log(group.of(b, ("train_loss", ""))) for b in have])
    value = np.concatenate([np.log(group.of(b, key)) for b in have])
    which = np.concatenate([np.full(len(group.seeds(b)), b) for b in have])
    design = np.column_stack([*(which == b for b in have), loss]).astype(float)
    found, *_ = np.linalg.lstsq(design, value, rcond=None)
    free = len(value) - design.shape[1]
    covariance = np.sum((value - design @ found) ** 2) / free * np.linalg.inv(design.T @ design)
    contrast = np.zeros(design.shape[1])
    contrast[0], contrast[len(have) - 1] = -1, 1
    t = stats.t.ppf(0.975, free)
    ratio, half = contrast @ found, t * (contrast @ covariance @ contrast) ** 0.5
    power = f"{found[-1]:.2f} ± {t * covariance[-1, -1] ** 0.5:.2f}".replace("-", "−")
    return [f"{number(np.exp(ratio))} ({number(np.exp(ratio - half))} to {number(np.exp(ratio + half))})", power]


def within(pairs):
    """Distances of log value and of gap to the means of their batch."""
    moved = [np.column_stack([np.log(p[:, 0]), p[:, 1]]) for p in pairs if len(p) > 1]
    return [p - p.mean(axis=0) for p in moved]


def resolved(row):
    """Whether the eigenvalue is drawn: converged against its own magnitude, and positive beyond its residual.

    Below a thousandth of the largest, the probe measures against that thousandth, and a residual may exceed its eigenvalue.
    """
    return row["converged"] == "true" and float(row["residual"]) <= 0.1 * float(row["value"])


def known(probes):
    """Residuals in per cent of the eigenvalue, standard errors in per cent of the trace, and what has not converged."""
    eigen = [r for r in probes if r["quantity"] == "eigenvalue"]
    share = [(100 * float(r["residual"]) / abs(float(r["value"])), r["at"]) for r in eigen]
    lowest = [r for r in probes if r["quantity"] == "smallest_eigenvalue"]
    traces = [r for r in probes if r["quantity"] == "trace"]
    errors = [100 * float(r["standard_error"]) / float(r["value"]) for r in traces]
    boxes = [r for r in probes if r["quantity"].startswith("sharpness")]

    def failed(group):
        return f"{sum(r['converged'] == 'false' for r in group)} of {len(group)}"

    first = max((s for s, at in share if at == "1"), default=float("nan"))
    largest = max((s for s, _ in share), default=float("nan"))
    return [
        f"{first:.2g} %",
        f"{largest:.2g} %",
        failed(eigen),
        failed(lowest),
        f"{max(errors, default=float('nan')):.2g} %",
        failed(traces),
        failed(boxes),
    ]


def figures(runs, batches, shown):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    (HERE / "figures").mkdir(exist_ok=True)
    colours = {"mnist": "#0b62a4", "fashion-mnist": "#c44e00"}
    styles = {"end": ("o", "-"), "train_loss": ("s", "--")}

    def save(figure, file):
        figure.tight_layout()
        figure.savefig(HERE / "figures" / file, metadata={"Date": None})
        plt.close(figure)

    def batch_axis(ax):
        ax.set_xscale("log")
        ax.set_xticks(batches, [str(b) for b in batches], minor=False)
        ax.minorticks_off()

    drawn = {
        ("eigenvalue", "1"): "top eigenvalue of the Hessian",
        ("trace", ""): "trace of the Hessian",
        ("sharpness_full", "0.001"): "Keskar's sharpness in %, full space, ε = 0.001",
        ("sharpness_subspace", "0.001"): "the same in a random subspace of 100",
        ("relative_flatness", ""): "relative flatness",
        ("train_loss", ""): "training loss",
    }
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.6), sharex=True)
    for ax, (key, title) in zip(axes.flat, drawn.items()):
        for (source, when), group in runs.items():
            have = [b for b in batches if group.seeds(b)]
            logs = [interval(np.log(group.of(b, key))) for b in have]
            mean = np.exp([m for m, _ in logs])
            low, high = (np.exp([m + s * h for m, h in logs]) for s in (-1, 1))
            marker, line = styles[when]
            filled = colours[source] if when == "end" else "white"
            ax.errorbar(
                have, mean, [mean - low, high - mean], fmt=marker + line, color=colours[source], mfc=filled, ms=4, lw=1, capsize=2,
                label=shown(source, when),
            )
        ax.set(yscale="log", title=title)
        batch_axis(ax)
    for ax in axes[1]:
        ax.set_xlabel("global batch")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=9)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(HERE / "figures" / "sharpness-by-batch.svg", metadata={"Date": None})
    plt.close(figure)

    shades = dict(zip(batches, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(batches)))))
    figure, axes = plt.subplots(2, 4, figsize=(13, 6.4))
    for column, (source, when) in enumerate(runs):
        group = runs[source, when]
        for ax, key, name in (
            (axes[0, column], ("eigenvalue", "1"), "top eigenvalue"),
            (axes[1, column], ("sharpness_full", "0.001"), "sharpness in %, full, ε = 0.001"),
        ):
            for b in batches:
                if group.seeds(b):
                    ax.plot(group.of(b, key), 100 * group.of(b, ("gap", "")), "o", color=shades[b], ms=5, label=f"batch {b}")
            ax.set(xscale="log", xlabel=name)
            span = np.concatenate([group.of(b, key) for b in batches])
            wide = span.max() / span.min()
            steps = (1,) if wide > 100 else (1, 2, 5) if wide > 4 else (1, 1.5, 2, 3, 4, 6, 8)
            ticks = [t * 10**p for p in range(-2, 4) for t in steps if span.min() / 1.1 <= t * 10**p <= span.max() * 1.1]
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks], minor=False)
            ax.minorticks_off()
        axes[0, column].set_title(shown(source, when))
    for ax in axes[:, 0]:
        ax.set_ylabel("gap: training − test accuracy, points")
    axes[0, 0].legend(fontsize=8)
    save(figure, "gap-by-sharpness.svg")

    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6))
    for ax, (source, when) in zip(axes, runs):
        group = runs[source, when]
        for b in batches:
            if not group.seeds(b):
                continue
            ranks = [r for r in range(1, 21) if group.of(b, ("resolved", str(r))).all()]
            logs = np.array([interval(np.log(group.of(b, ("eigenvalue", str(r))))) for r in ranks])
            ax.plot(ranks, np.exp(logs[:, 0]), "o-", color=shades[b], ms=3, lw=1, label=f"batch {b}")
            ax.fill_between(ranks, np.exp(logs[:, 0] - logs[:, 1]), np.exp(logs[:, 0] + logs[:, 1]), color=shades[b], alpha=0.2, lw=0)
        ax.set(yscale="log", title=shown(source, when), xlabel="rank of the eigenvalue")
        ax.set_xticks([1, 5, 10, 15, 20])
    axes[0].set_ylabel("eigenvalue of the Hessian")
    axes[0].legend(fontsize=8)
    save(figure, "top-eigenvalues.svg")


main()
