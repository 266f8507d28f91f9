#!/usr/bin/env python3
"""Experiment 02: the best rate at each batch, the law of its growth, and the rules against the tuned rate.

    pip install numpy scipy matplotlib
    python experiments/02-scaling-rules/analyze.py                 # from results/: prints the README's tables, draws figures/
    python experiments/02-scaling-rules/analyze.py --fit TABLE...  # only the noise scale, from other summary.csv files

The best rate of a seed at a batch is the vertex of the parabola, in log2 of the rate and of the validation error, through
the best rate of the grid and its two neighbours. Means and Student's 95 % intervals are over the seeds' log2, and given as
rates. Where the grid's best is its end, or a neighbour diverged, that grid rate stands, and the first is counted.
The laws are fitted to all seeds by least squares in log2 of the rate.
The tuned rate is the one of the grid with the best mean validation accuracy over seeds none of which diverged; accuracies
reported are those on the test set, and differences are paired by seed.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import interval, table  # noqa: E402

HERE = Path(__file__).resolve().parent
SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
RULES = ["none", "linear", "sqrt", "saturating"]
BASE = 32
BASE_RATE = 0.025
FIT_BATCHES = [32, 128, 512]
# Up to here there are 48 updates and more; at 8192 there are 12.
LARGEST = 2048


def read(path):
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file)]


def done(row):
    return row["status"] in ("completed", "censored")


class Cell:
    """One data set, one warm-up, one batch: the grid of rates, and the rules."""

    def __init__(self, rows):
        self.rows = rows
        self.grid = {}
        for row in rows:
            if row["learning_rate.scaling"] == "none":
                self.grid.setdefault(float(row["learning_rate.base_lr"]), {})[int(row["seed"])] = row
        self.rates = sorted(self.grid)
        self.seeds = sorted({int(row["seed"]) for row in rows})
        means = {
            rate: np.mean([float(row["validation_accuracy"]) for row in seeds.values()])
            for rate, seeds in self.grid.items()
            if all(done(row) for row in seeds.values())
        }
        self.tuned = max(means, key=means.get)

    def error(self, rate, seed):
        row = self.grid[rate][seed]
        return np.log2(1 - float(row["validation_accuracy"])) if done(row) else float("inf")

    def best(self, seed):
        """log2 of the best rate, and whether it is an end of the grid."""
        errors = [self.error(rate, seed) for rate in self.rates]
        i = int(np.argmin(errors))
        x = np.log2(self.rates)
        if i in (0, len(x) - 1):
            return x[i], True
        low, mid, high = errors[i - 1 : i + 2]
        if not np.isfinite([low, high]).all():
            return x[i], False
        step = x[i + 1] - x[i]
        return x[i] + step / 2 * (low - high) / (low - 2 * mid + high), False

    def rule(self, name):
        """Test accuracy by seed (None where the seed diverged) of a rule from the base rate."""
        rate = str(BASE_RATE)
        found = {}
        for row in self.rows:
            scaling = row["learning_rate.scaling"]
            if row["learning_rate.base_lr"] == rate and (scaling == name or name in scaling):
                found[int(row["seed"])] = float(row["test_accuracy"]) if done(row) else None
        return found

    def tuned_accuracy(self):
        return {seed: float(row["test_accuracy"]) for seed, row in self.grid[self.tuned].items()}


def saturating(batches, rates):
    """eps_max and noise scale of eps_max/(1 + noise/B), fitted to log2 of rates."""
    batches = np.asarray(batches, float)
    misfit = lambda p: p[0] - np.log2(1 + 2.0 ** p[1] / batches) - rates
    found = least_squares(misfit, [np.max(rates), 8.0], bounds=([-20, 0], [20, 24]))
    return found.x, np.sqrt(np.mean(found.fun**2))


def power(batches, rates, exponent=None):
    """Exponent and root mean square misfit of the power law."""
    x = np.log2(batches)
    if exponent is None:
        exponent = np.polyfit(x, rates, 1)[0]
    rest = rates - exponent * x
    return exponent, np.sqrt(np.mean((rest - rest.mean()) ** 2))


def best_rates(cells, batches):
    """Batches and log2 best rates of all seeds, and by seed."""
    seeds = cells[batches[0]].seeds
    by_seed = {s: np.array([cells[b].best(s)[0] for b in batches]) for s in seeds}
    return np.tile(batches, len(seeds)), np.concatenate([by_seed[s] for s in seeds]), by_seed


def cells_of(rows):
    """{(set, warm-up): {batch: Cell}}"""
    groups = {}
    for row in rows:
        key = row["data.source"], float(row["learning_rate.warmup.epochs"])
        groups.setdefault(key, {}).setdefault(int(row["global_batch"]), []).append(row)
    return {k: {b: Cell(r) for b, r in sorted(v.items())} for k, v in groups.items()}


def with_factor(values):
    """A mean of log2 values as a number, with its interval."""
    mean, half = interval(values)
    number = lambda log: f"{2**log:.3g}" if log < 9 else f"{2**log:,.0f}"
    return f"{number(mean)} ({number(mean - half)} to {number(mean + half)})"


def points(values):
    mean, half = interval(values)
    return f"{100 * mean:.2f} ± {100 * half:.2f}".replace("-", "−")


def signed(values):
    mean, half = interval(values)
    return f"{100 * mean:+.2f} ± {100 * half:.2f}".replace("-", "−")


def name(key):
    return f"{SETS[key[0]]}, {'warm-up' if key[1] else 'no warm-up'}"


def fit(paths):
    rows = [row for path in paths for row in read(path)]
    for key, cells in cells_of(rows).items():
        batches, rates, _ = best_rates(cells, FIT_BATCHES)
        (top, noise), misfit = saturating(batches, rates)
        print(f"{name(key)}, batches {FIT_BATCHES}: noise scale {2**noise:.0f}, eps_max {2**top:.3g}, misfit {misfit:.2f}")
        for b in FIT_BATCHES:
            print(f"  best rate at {b}: {with_factor([cells[b].best(s)[0] for s in cells[b].seeds])}")


def main():
    cells = cells_of(read(HERE / "results" / "summary.csv"))
    batches = sorted(next(iter(cells.values())))

    print("Best rate (95 % interval):\n")
    lines = []
    for b in batches:
        line = [f"{b:,}"]
        for key in cells:
            found = [cells[key][b].best(s) for s in cells[key][b].seeds]
            ends = sum(end for _, end in found)
            line.append(with_factor([rate for rate, _ in found]) + (f", {ends} at the end" if ends else ""))
        lines.append(line)
    table(["global batch", *map(name, cells)], lines)

    print("Exponent of its growth between neighbouring batches, and over all:\n")
    lines = []
    for low, high in [*zip(batches, batches[1:]), (batches[0], 512), (batches[0], LARGEST)]:
        line = [f"{low:,} to {high:,}"]
        span = [b for b in batches if low <= b <= high]
        for key in cells:
            by_seed = best_rates(cells[key], span)[2]
            mean, half = interval([power(span, rates)[0] for rates in by_seed.values()])
            line.append(f"{mean:.2f} ± {half:.2f}".replace("-", "−"))
        lines.append(line)
    table(["batches", *map(name, cells)], lines)

    print("Laws fitted to the best rates: root mean square misfit in log2 of the rate (1 is a factor of 2):\n")
    lines = []
    for largest in (LARGEST, batches[-1]):
        span = [b for b in batches if b <= largest]
        for key in cells:
            b, rates, by_seed = best_rates(cells[key], span)
            (top, noise), saturated = saturating(b, rates)
            noises = [saturating(span, r)[0][1] for r in by_seed.values()]
            exponent, free = power(b, rates)
            lines.append(
                [
                    f"{name(key)}, to {largest:,}",
                    f"{power(b, rates, 1)[1]:.2f}",
                    f"{power(b, rates, 0.5)[1]:.2f}",
                    f"{free:.2f} (exponent {exponent:.2f})",
                    f"{saturated:.2f}",
                    with_factor(noises),
                    f"{2**top:.3g}",
                ]
            )
    table(["", "linear", "sqrt", "any power", "saturating", "noise scale (95 % interval)", "eps_max"], lines)

    nearest, lowest = {}, {}
    for key in cells:
        print(f"{name(key)}: test accuracy in % at the tuned rate, and that of each rule from {BASE_RATE} at {BASE} minus it, in points:\n")
        lines = []
        for b in batches:
            cell = cells[key][b]
            tuned = cell.tuned_accuracy()
            line = [f"{b:,}", f"{cell.tuned:g}", points(list(tuned.values()))]
            costs = {}
            for rule in RULES:
                found = cell.rule(rule)
                lost = sum(v is None for v in found.values())
                if lost:
                    line.append(f"{lost} of {len(found)} div.")
                    continue
                difference = [found[s] - tuned[s] for s in found]
                costs[rule] = np.mean(difference)
                line.append(signed(difference) if np.any(difference) else "the same")
            best = max(costs.values())
            if b > BASE:
                line.append(", ".join(r for r in costs if costs[r] == best))
                for rule in RULES:
                    nearest[rule] = nearest.get(rule, 0) + (costs.get(rule) == best)
                    # A diverged rule has no accuracy to compare.
                    if rule in costs:
                        lowest[rule] = min(lowest.get(rule, 0), costs[rule])
            else:
                line.append("")
            lines.append(line)
        table(["global batch", "tuned rate", "tuned", *RULES, "nearest"], lines)
    total = sum(len(batches) - 1 for _ in cells)
    print("All data sets, warm-ups and batches above the base together:\n")
    lines = []
    for rule in RULES:
        broken = sum(None in cells[key][b].rule(rule).values() for key in cells for b in batches[1:])
        lines.append([rule, f"{nearest[rule]} of {total}", f"{100 * lowest[rule]:+.2f}".replace("-", "−"), broken])
    table(["rule", "nearest to the tuned rate", "worst mean difference", "points with a diverged seed"], lines)

    print("Warm-up minus no warm-up, test accuracy in points, paired by seed:\n")
    lines = []
    for b in batches:
        line = [f"{b:,}"]
        for source in SETS:
            off, on = cells[source, 0.0][b], cells[source, 1.0][b]
            pairs = [(off.tuned_accuracy(), on.tuned_accuracy())]
            pairs += [(off.rule(rule), on.rule(rule)) for rule in ("linear", "sqrt", "saturating")]
            for without, with_it in pairs:
                both = [s for s in without if without[s] is not None and with_it[s] is not None]
                full = len(both) == len(without)
                line.append(signed([with_it[s] - without[s] for s in both]) if full else "div.")
        lines.append(line)
    short = {"mnist": "MNIST", "fashion-mnist": "Fashion"}
    table(["global batch", *(f"{short[s]}: {r}" for s in SETS for r in ("tuned", "linear", "sqrt", "saturating"))], lines)

    same, compared = on_grid(cells)
    print(f"Trials of rules whose rate is on the grid: {compared}, of which {same} end with the grid's trial in every digit.")
    figures(cells, batches)


def on_grid(cells):
    same = compared = 0
    for group in cells.values():
        for cell in group.values():
            for row in cell.rows:
                twin = cell.grid.get(float(row["lr"]), {}).get(int(row["seed"]))
                if row["learning_rate.scaling"] != "none" and twin is not None:
                    compared += 1
                    same += all(row[k] == twin[k] for k in ("train_loss", "validation_loss", "test_loss", "test_accuracy"))
    return same, compared


def figures(cells, batches):
    import matplotlib
    import matplotlib.ticker

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    def save(figure, file):
        figure.tight_layout()
        figure.savefig(HERE / "figures" / file, metadata={"Date": None})
        plt.close(figure)

    (HERE / "figures").mkdir(exist_ok=True)
    x = np.geomspace(batches[0], batches[-1], 100)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    for ax, source in zip(axes, SETS):
        for warmup, marker, colour, shift in ((0.0, "o", "#0b62a4", 0.97), (1.0, "s", "#c44e00", 1.03)):
            group = cells[source, warmup]
            found = [interval([group[b].best(s)[0] for s in group[b].seeds]) for b in batches]
            mean = np.array([2**m for m, _ in found])
            low = np.array([2 ** (m - h) for m, h in found])
            high = np.array([2 ** (m + h) for m, h in found])
            label = "with warm-up" if warmup else "no warm-up"
            place = np.array(batches) * shift
            ax.errorbar(place, mean, [mean - low, high - mean], fmt=marker, color=colour, capsize=3, label=label)
            if not warmup:
                b, rates, _ = best_rates(group, [b for b in batches if b <= LARGEST])
                (top, noise), _ = saturating(b, rates)
                label = f"saturating, fitted to {LARGEST}: noise scale {2**noise:.0f}"
                ax.plot(x, 2**top / (1 + 2**noise / x), color=colour, label=label)
        ax.plot(x, BASE_RATE * x / BASE, "k:", label="linear")
        ax.plot(x, BASE_RATE * np.sqrt(x / BASE), "k--", label="sqrt")
        ax.set(xscale="log", yscale="log", title=SETS[source], xlabel="global batch", ylim=(0.01, 1.5))
        ax.set_xticks(batches, [str(b) for b in batches], minor=False)
        ax.minorticks_off()
        ax.legend(fontsize=7, loc="lower right")
    axes[0].set_ylabel("best learning rate")
    save(figure, "best-rate-by-batch.svg")

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True)
    styles = {"none": ("v", "#777777"), "linear": ("^", "#c44e00"), "sqrt": ("s", "#2a8a3e"), "saturating": ("D", "#0b62a4")}
    for ax, key in zip(axes.flat, cells):
        group = cells[key]
        found = [interval(list(group[b].tuned_accuracy().values())) for b in batches]
        ax.errorbar(batches, [100 * m for m, _ in found], [100 * h for _, h in found], fmt="ko-", capsize=3, label="tuned at each batch")
        for rule, (marker, colour) in styles.items():
            whole = [b for b in batches if None not in group[b].rule(rule).values()]
            found = [interval(list(group[b].rule(rule).values())) for b in whole]
            ax.errorbar(whole, [100 * m for m, _ in found], [100 * h for _, h in found], fmt=marker + "-", color=colour, lw=1, capsize=2, label=rule)
        ax.set(xscale="log", title=name(key))
        ax.set_ylim(55 if key[0] == "fashion-mnist" else 60, 90 if key[0] == "fashion-mnist" else 98.5)
        ax.set_xticks(batches, [str(b) for b in batches], minor=False)
        ax.minorticks_off()
    for ax in axes[1]:
        ax.set_xlabel("global batch")
    for ax in axes[:, 0]:
        ax.set_ylabel("test accuracy in %")
    axes[0, 0].legend(fontsize=8, loc="lower left")
    save(figure, "test-accuracy-by-batch.svg")

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, sharey="row")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(batches)))
    for ax, key in zip(axes.flat, cells):
        for b, colour in zip(batches, colours):
            cell = cells[key][b]
            whole = [r for r in cell.rates if all(done(row) for row in cell.grid[r].values())]
            mean = [100 * np.mean([1 - float(row["validation_accuracy"]) for row in cell.grid[r].values()]) for r in whole]
            ax.plot(whole, mean, "o-", color=colour, ms=3, label=f"batch {b}")
        ax.set(xscale="log", yscale="log", title=name(key))
        ticks = [3, 5, 10, 20, 40, 80] if key[0] == "mnist" else [12, 15, 20, 30, 50, 80]
        ax.set_yticks(ticks, [str(t) for t in ticks], minor=False)
        ax.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    for ax in axes[1]:
        ax.set_xlabel("learning rate")
    for ax in axes[:, 0]:
        ax.set_ylabel("validation error in %")
    axes[0, 0].legend(fontsize=8)
    save(figure, "validation-error-by-rate.svg")


if len(sys.argv) > 2 and sys.argv[1] == "--fit":
    fit(sys.argv[2:])
else:
    main()
