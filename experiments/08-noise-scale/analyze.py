#!/usr/bin/env python3
"""Experiment 08: the noise scale through training, and how it moves with eps/B.

    pip install numpy scipy matplotlib
    python experiments/08-noise-scale/analyze.py               # from results/: prints the README's tables, draws figures/
    python experiments/08-noise-scale/analyze.py STUDY_FOLDER  # first makes results/probes.csv and results/noise.csv from a run's folder

Two estimates of B_simple = tr(Sigma)/|G|^2. "Exact": at the start and after each epoch, from the gradients of 2,048 single
examples (results/probes.csv). "Two-batch": from the squared norms that the 8 workers' gradients and their mean have at every
update, averaged over windows of half an epoch (results/noise.csv; the interval of a window is Fieller's from a jackknife over
blocks of updates, as `batchlab noise` gives it). B_noise = tr(H Sigma)/(G'HG) and eps_max = |G|^2/(G'HG) are from 32 pieces of
the same 2,048 examples.

A single moment hardly resolves |G|^2 late in training. So moments (or windows) of the three seeds are pooled for each rate
and batch: averages of numerator and denominator first, the quotient last, with Fieller's 95 % interval from leaving out one
moment at a time. None is left out for being small or negative. Comparisons between settings take logarithms of pooled
quotients, their jackknife variances, and Student's t with Welch's degrees of freedom; a slope is that of least squares
through the six settings. A setting is resolved where Fieller's interval has two ends. The logarithm of a quotient that is not
has no such interval to it, so what rests on one is marked with *, and given for the resolved settings alone as well (which
are not a random choice: a small denominator is resolved less often). "Equal training loss": the epochs of a setting at which
the training loss, mean over seeds, lies between 0.095 and 0.15.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy import stats

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import interval, rows, table  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
POPULATION = 60000
EPOCHS = 6
BLOCKS = 10
# Half an epoch around each whole and each half epoch, and half as much at both ends.
EDGES = [0, *np.arange(0.25, EPOCHS, 0.5), EPOCHS]
KEPT = ["b_simple", "b_noise", "eps_max", "tr_sigma", "squared_gradient", "tr_h_sigma", "ghg"]
HALVES = [(float(low), float(high)) for low, high in zip(EDGES, EDGES[1:])]
# The last eighth of an epoch, and the first of the next.
SEAMS = [(e - 0.125, e) for e in range(1, EPOCHS)] + [(e, e + 0.125) for e in range(1, EPOCHS)]
# Epochs that are pooled.
PHASES = {"epochs 1 to 2": (1, 2), "epochs 3 to 4": (3, 4), "epochs 5 to 6": (5, 6)}
LOSSES = (0.095, 0.15)
# Numerator and denominator of each quotient.
QUOTIENTS = {
    "B_simple, two-batch": ("window_tr_sigma", "window_squared_gradient"),
    "B_simple, exact": ("tr_sigma", "squared_gradient"),
    "B_noise": ("tr_h_sigma", "ghg"),
    "ε_max": ("squared_gradient", "ghg"),
}


def short(number, digits=6):
    return f"{float(number):.{digits}g}" if number not in ("", None) else ""


def fieller(x, y, xs, ys):
    """Quotient x/y and the ends of its 95 % interval from the estimates without each block; None where there is none."""
    k = len(xs)
    (vx, c), (_, vy) = (k - 1) * np.cov(xs, ys, bias=True)
    t2 = stats.t.ppf(0.975, k - 1) ** 2
    a, b, d = y * y - t2 * vy, x * y - t2 * c, x * x - t2 * vx
    if a > 0 and y > 0:
        low, high = np.sort(np.roots([a, -2 * b, d]).real)
        return x / y, low, high
    # |G|^2 cannot be told from 0: open upward, or nothing is known.
    return None, max(np.roots([a, -2 * b, d]).real) if d > 0 and x > 0 else None, None


def two_batch(part):
    """tr(Sigma), |G|^2 and B_simple of rows of noise.csv."""
    small, g_small, big, g_big = (np.array([float(r[c]) for r in part]) for c in ("b_small", "g2_small", "b_big", "g2_big"))
    sigma = (g_small - g_big) / (1 / small - 1 / big)
    square = g_big - sigma * (1 / big - 1 / POPULATION)
    blocks = np.array_split(np.arange(len(part)), min(BLOCKS, int(len(part) ** 0.5)))
    without = [np.setdiff1d(np.arange(len(part)), block) for block in blocks]
    xs, ys = ([v[rest].mean() for rest in without] for v in (sigma, square))
    return sigma.mean(), square.mean(), *fieller(sigma.mean(), square.mean(), xs, ys)


def extract(run):
    probes, windows = [], []
    for trial in rows(RESULTS / "summary.csv"):
        folder = run / "trials" / trial["trial"]
        head = [trial["trial"], trial["seed"], trial["learning_rate.base_lr"], trial["global_batch"]]
        found = {}
        for row in rows(folder / "probes.csv"):
            if row["scope"] or row["probe"] != "noise":
                continue
            # The last moment may be due by schedule and as the end.
            found.setdefault((row["step"], row["epoch"], row["train_loss"]), {}).setdefault(row["quantity"], row)
        for (step, epoch, loss), moment in found.items():
            for quantity in KEPT:
                row = moment.get(quantity)
                if row is None:
                    continue
                ends = [moment.get(f"{quantity}_{end}", {}).get("value", "") for end in ("low", "high")]
                values = [short(v) for v in (row["value"], row["standard_error"], *ends)]
                probes.append([*head, step, short(epoch), short(loss), quantity, *values])
        noise = rows(folder / "noise.csv")
        # A row's epoch is that after its update.
        epochs = np.array([float(row["epoch"]) for row in noise])
        for low, high in [*HALVES, *SEAMS, (0, EPOCHS)]:
            part = [row for row, e in zip(noise, epochs) if low < e <= high + 1e-9]
            windows.append([*head, f"{low:g}", f"{high:g}", len(part), *map(short, two_batch(part))])
    for file, columns, lines in (
        ("probes.csv", "step,epoch,train_loss,quantity,value,standard_error,low,high", probes),
        ("noise.csv", "from_epoch,to_epoch,updates,tr_sigma,squared_gradient,b_simple,low,high", windows),
    ):
        with open(RESULTS / file, "w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["trial", "seed", "rate", "batch", *columns.split(",")])
            writer.writerows(lines)


class Setting:
    """One rate and batch: values by quantity, epoch and seed; windows by their ends."""

    def __init__(self, probes, windows):
        self.values, self.losses, self.windows = {}, {}, {}
        for row in probes:
            epoch = round(float(row["epoch"]))
            self.losses.setdefault(epoch, {})[row["seed"]] = float(row["train_loss"])
            if row["value"]:
                self.values.setdefault(row["quantity"], {}).setdefault(epoch, {})[row["seed"]] = float(row["value"])
        for row in windows:
            low, high = float(row["from_epoch"]), float(row["to_epoch"])
            self.windows.setdefault((low, high), {})[row["seed"]] = row

    def pairs(self, quotient, epochs):
        """Numerators and denominators of all seeds at these epochs."""
        numerator, denominator = QUOTIENTS[quotient]
        found = []
        for epoch in epochs:
            if numerator.startswith("window_"):
                rows = self.windows[around(epoch)].values()
                found += [[float(r[name.removeprefix("window_")]) for name in (numerator, denominator)] for r in rows]
            else:
                values = self.values[numerator][epoch], self.values[denominator][epoch]
                found += [[values[0][seed], values[1][seed]] for seed in sorted(values[0])]
        return np.array(found)

    def near(self):
        """Epochs of "equal training loss", and the geometric mean of the losses there."""
        means = {e: np.exp(np.mean(np.log(list(v.values())))) for e, v in self.losses.items()}
        epochs = [e for e, loss in means.items() if LOSSES[0] <= loss <= LOSSES[1]]
        return sorted(epochs), float(np.exp(np.mean([np.log(means[e]) for e in epochs])))


def around(epoch):
    """The window with this epoch at its centre, or at its end."""
    return (max(0.0, epoch - 0.25), min(float(EPOCHS), epoch + 0.25))


class Pooled:
    """A quotient of averages, or a product of such, in logarithms: value, variance, degrees of freedom."""

    def __init__(self, value, variance, free):
        self.value, self.variance, self.free = value, variance, free

    @classmethod
    def of(cls, columns, powers):
        """The sum of power times log of the mean of each column; rows are left out one at a time."""
        columns, powers = np.asarray(columns), np.asarray(powers)
        n = len(columns)
        without = (columns.sum(axis=0) - columns) / (n - 1)
        if (without <= 0).any():
            return cls(np.nan, np.nan, n - 1)
        left = np.log(without) @ powers
        return cls(np.log(columns.mean(axis=0)) @ powers, (n - 1) * left.var(), n - 1)

    def text(self, digits=3):
        if not np.isfinite(self.value):
            return "undetermined"
        half = stats.t.ppf(0.975, self.free) * self.variance**0.5
        low, mean, high = (sig(np.exp(v), digits) for v in (self.value - half, self.value, self.value + half))
        return f"{mean} ({low} to {high})"

    def plain(self):
        if not np.isfinite(self.value):
            return "undetermined"
        return f"{self.value:+.2f} ± {stats.t.ppf(0.975, self.free) * self.variance**0.5:.2f}".replace("-", "−")


def combine(pooled, weights):
    """The weighted sum, with Welch's degrees of freedom."""
    parts = [w * w * p.variance for p, w in zip(pooled, weights)]
    free = sum(parts) ** 2 / sum(v * v / p.free for p, v in zip(pooled, parts))
    return Pooled(sum(w * p.value for p, w in zip(pooled, weights)), sum(parts), free)


def sig(value, digits=3):
    """So many significant digits, all of them before the point where the number is large."""
    if not np.isfinite(value):
        return "none"
    decimals = max(0, digits - 1 - int(np.floor(np.log10(abs(value))))) if value else 0
    return f"{value:,.{decimals}f}"


def fieller_of(pairs):
    """A pooled quotient and the ends of Fieller's interval."""
    x, y = pairs.mean(axis=0)
    return fieller(x, y, *((pairs.sum(axis=0) - pairs) / (len(pairs) - 1)).T)


def resolved(pairs):
    return fieller_of(pairs)[0] is not None


def mark(text, groups):
    """With a star where one of these pooled quotients is not resolved."""
    return text if all(map(resolved, groups)) else text + " *"


def quotient(pairs):
    """A pooled quotient with Fieller's interval."""
    value, low, high = fieller_of(pairs)
    if value is None:
        return f"above {sig(low)}" if low else "undetermined"
    return f"{sig(value)} ({sig(low)} to {sig(high)})"


def slopes(settings, keys, chosen, name):
    """Of log quotient on log(eps/B); on log eps and on log B together; and the first of the resolved settings alone, from three
    settings with two eps/B on. `chosen`: the epochs of each setting."""

    def fit(keys):
        pooled = [Pooled.of(settings[k].pairs(name, chosen[k]), [1, -1]) for k in keys]
        rate, batch = (np.log([k[i] for k in keys]) for i in (0, 1))
        one = np.linalg.pinv(np.column_stack([rate - batch, np.ones(len(keys))]))
        two = np.linalg.pinv(np.column_stack([rate, batch, np.ones(len(keys))]))
        return [combine(pooled, w).plain() for w in (one[0], two[0], two[1])]

    sure = [k for k in keys if resolved(settings[k].pairs(name, chosen[k]))]
    enough = len(sure) >= 3 and len({round(np.log(k[0] / k[1]), 6) for k in sure}) >= 2
    every = fit(keys)
    if len(sure) < len(keys):
        every = [text + " *" for text in every]
    return [*every, f"{len(sure)} of {len(keys)}", fit(sure)[0] if enough else "too few"]


def main():
    if len(sys.argv) > 1:
        extract(Path(sys.argv[1]))
    probes, windows = rows(RESULTS / "probes.csv"), rows(RESULTS / "noise.csv")
    summary = rows(RESULTS / "summary.csv")
    assert all(row["status"] == "completed" for row in summary)

    def key(row, rate="rate", batch="batch"):
        return float(row[rate]), int(row[batch])

    keys = sorted({key(r) for r in probes}, key=lambda k: (k[0] / k[1], k[0]))
    settings = {k: Setting([r for r in probes if key(r) == k], [r for r in windows if key(r) == k]) for k in keys}

    def name(k):
        return f"{k[0]:g}, {k[1]}"

    print("The runs:\n")
    lines = []
    for k in keys:
        own = [r for r in summary if key(r, "learning_rate.base_lr", "global_batch") == k]
        loss, accuracy = (interval([float(r[c]) for r in own]) for c in ("train_loss", "test_accuracy"))
        lines.append(
            [
                name(k),
                f"{1e4 * k[0] / k[1]:.1f}",
                f"{float(own[0]['steps']):,.0f}",
                f"{loss[0]:.4f} ± {loss[1]:.4f}",
                f"{100 * accuracy[0]:.2f} ± {100 * accuracy[1]:.2f}",
            ]
        )
    table(["rate, batch", "10⁴ ε/B", "updates", "training loss", "test accuracy, %"], lines)

    moments = {"start": (0,), **PHASES}
    for title in QUOTIENTS:
        print(title + " (the start: the first quarter of an epoch):\n" if "two" in title else title + ":\n")
        lines = []
        for k in keys:
            lines.append([name(k), *(quotient(settings[k].pairs(title, epochs)) for epochs in moments.values())])
        table(["rate, batch", *moments], lines)

    print("Averages of B_simple over training, two-batch, mean ± half the interval over seeds:\n")
    lines = []
    for k in keys:
        found = [averages(settings[k], seed) for seed in sorted(settings[k].losses[0])]
        means = [interval(column) for column in np.array(found).T]
        lines.append([name(k), *(f"{m:,.0f} ± {h:,.0f}" for m, h in means)])
    table(["rate, batch", "average of the windows", "average tr(Σ) over average G²"], lines)

    print("B_noise over B_simple (exact, the same examples), geometric mean over settings:\n")
    lines = []
    for row in ("all six", "those resolved in both"):
        line = [row]
        for epochs in moments.values():
            groups = {k: [settings[k].pairs(q, epochs) for q in ("B_noise", "B_simple, exact")] for k in keys}
            sure = [k for k in keys if all(map(resolved, groups[k]))]
            chosen = keys if row == "all six" else sure
            found = [compared(settings[k], epochs, "B_noise", "B_simple, exact") for k in chosen]
            # All settings of a seed start from the same parameters.
            text = "none" if not found else found[0].text() if epochs == (0,) else average(found).text()
            if row == "all six":
                text = mark(text, [g for k in keys for g in groups[k]])
            elif found:
                text += f", {len(sure)} of {len(keys)}"
            line.append(text)
        lines.append(line)
    table(["settings", *moments], lines)

    print("Two-batch (a window of half an epoch around) over exact at the same epoch, geometric mean over settings:\n")
    inner = {f"epoch {e}": (e,) for e in range(1, EPOCHS)}
    inner[f"epochs 1 to {EPOCHS - 1}"] = tuple(range(1, EPOCHS))
    lines = []
    for title, column in (("tr(Σ)", 0), ("G²", 1), ("B_simple", None)):
        line, only = [title], [f"{title}, settings resolved in both"]
        for epochs in inner.values():
            text = average([compared(settings[k], epochs, "B_simple, two-batch", "B_simple, exact", column) for k in keys]).text()
            both = {k: [settings[k].pairs(q, epochs) for q in ("B_simple, two-batch", "B_simple, exact")] for k in keys}
            line.append(text if column == 0 else mark(text, [g for k in keys for g in both[k]]))
            sure = [k for k in keys if all(map(resolved, both[k]))]
            found = [compared(settings[k], epochs, "B_simple, two-batch", "B_simple, exact", column) for k in sure]
            only.append(f"{average(found).text()}, {len(sure)} of {len(keys)}" if found else "none")
        lines += [line] if column == 0 else [line, only]
    table(["", *inner], lines)

    print("Two-batch in the last eighth of an epoch over the first eighth of the next, 18 runs, epochs 1 to 5:\n")
    seams = [seam(settings[k], seed) for k in keys for seed in sorted(settings[k].losses[0])]
    line = []
    for logs in np.array(seams).T:
        mean, half = interval(logs)
        line.append(f"{np.exp(mean):.2f} ({np.exp(mean - half):.2f} to {np.exp(mean + half):.2f})")
    table(["tr(Σ)", "G²"], [line])

    near = {k: settings[k].near() for k in keys}
    print("The epochs of equal training loss:\n")
    lines = [[name(k), ", ".join(map(str, near[k][0])), f"{near[k][1]:.3f}"] for k in keys]
    table(["rate, batch", "epochs", "training loss, geometric mean"], lines)

    print("Slope of log B on log(ε/B) through the six settings, and on both parts; and through the resolved settings alone:\n")
    lines = []
    for title in QUOTIENTS:
        cases = {phase: {k: epochs for k in keys} for phase, epochs in PHASES.items()}
        cases["equal training loss"] = {k: near[k][0] for k in keys}
        for case, chosen in cases.items():
            lines.append([f"{title}, {case}", *slopes(settings, keys, chosen, title)])
    table(["", "on ε/B", "on ε", "on B", "resolved", "on ε/B, those only"], lines)

    print("Pairs of equal ε/B, the larger rate and batch over the smaller:\n")
    pairs = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :] if np.isclose(a[0] / a[1], b[0] / b[1])]
    lines = []
    for a, b in pairs:
        line = [f"training loss: {name(b)} over {name(a)}"]
        for epochs in PHASES.values():
            logs = [log_loss(settings[b], epochs, s) - log_loss(settings[a], epochs, s) for s in settings[a].losses[0]]
            mean, half = interval(logs)
            line.append(f"{sig(np.exp(mean))} ({sig(np.exp(mean - half))} to {sig(np.exp(mean + half))})")
        lines.append(line)
    for title in QUOTIENTS:
        for a, b in pairs:
            line = [f"{title}: {name(b)} over {name(a)}"]
            for epochs in PHASES.values():
                groups = [settings[k].pairs(title, epochs) for k in (b, a)]
                line.append(mark(combine([Pooled.of(g, [1, -1]) for g in groups], [1, -1]).text(), groups))
            lines.append(line)
    table(["", *PHASES], lines)

    print("Single moments, not pooled:\n")
    table(["", "determined", "width of the interval (upper over lower end), median"], known(probes, windows))
    figures(settings, keys, near)


def compared(setting, epochs, one, other, column=None):
    """Quotient `one` over quotient `other`, or only their numerators (0) or denominators (1), of the same moments."""
    own = np.hstack([setting.pairs(one, epochs), setting.pairs(other, epochs)])
    powers = {None: [1, -1, -1, 1], 0: [1, 0, -1, 0], 1: [0, 1, 0, -1]}[column]
    kept = [i for i, power in enumerate(powers) if power]
    return Pooled.of(own[:, kept], [powers[i] for i in kept])


def average(pooled):
    return combine(pooled, [1 / len(pooled)] * len(pooled))


def seam(setting, seed):
    """log of tr(Sigma) and of |G|^2, averaged over epochs, at their ends over that after them."""
    found = []
    for column in ("tr_sigma", "squared_gradient"):
        before, after = (
            np.mean([float(setting.windows[ends][seed][column]) for ends in SEAMS if (ends[1] == round(ends[1])) == last])
            for last in (True, False)
        )
        found.append(np.log(before / after))
    return found


def log_loss(setting, epochs, seed):
    return np.mean([np.log(setting.losses[e][seed]) for e in epochs])


def averages(setting, seed):
    """Over windows, as long as they are; and the quotient of averages over all updates."""
    value, width = [], []
    for (low, high), by_seed in setting.windows.items():
        row = by_seed[seed]
        if (low, high) in HALVES:
            value.append(float(row["tr_sigma"]) / float(row["squared_gradient"]))
            width.append(high - low)
    whole = setting.windows[0, EPOCHS][seed]
    return np.average(value, weights=width), float(whole["tr_sigma"]) / float(whole["squared_gradient"])


def known(probes, windows):
    names = {"b_simple": "B_simple, exact", "b_noise": "B_noise", "eps_max": "ε_max"}
    groups = [(title, [r for r in probes if r["quantity"] == q], "value") for q, title in names.items()]
    half = [r for r in windows if (float(r["from_epoch"]), float(r["to_epoch"])) in HALVES]
    groups.append(("B_simple, two-batch, half an epoch", half, "b_simple"))
    lines = []
    for title, group, column in groups:
        found = [float(r["high"]) / float(r["low"]) for r in group if r[column] and r["high"] and float(r["low"] or 0) > 0]
        lines.append([title, f"{sum(r[column] != '' for r in group)} of {len(group)}", f"{np.median(found):.1f}"])
    return lines


def figures(settings, keys, near):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    (HERE / "figures").mkdir(exist_ok=True)
    rates = sorted({k[0] for k in keys})
    colours = dict(zip(rates, ("#0b62a4", "#2a8a3e", "#c44e00")))
    styles = {64: ("o", "-"), 128: ("s", "--")}

    def label(k):
        return f"rate {k[0]:g}, batch {k[1]}"

    def save(figure, file, rect=None):
        figure.tight_layout(rect=rect)
        figure.savefig(HERE / "figures" / file, metadata={"Date": None})
        plt.close(figure)

    # Pooled quotients through training; phases are drawn at their middle.
    figure, axes = plt.subplots(1, 4, figsize=(13, 4.3))
    order = sorted(keys)
    for ax, title in zip(axes, QUOTIENTS):
        for shift, k in enumerate(order):
            marker, line = styles[k[1]]
            x, points, sure = [], [], []
            cases = {0.0: (0,), **{np.mean(e): e for e in PHASES.values()}}
            if "two-batch" in title:
                cases = {0.125: (0,), 0.5: (0.5,), **{e: (e,) for e in np.arange(1, EPOCHS, 0.5)}, 5.875: (EPOCHS,)}
            for place, epochs in cases.items():
                pairs = settings[k].pairs(title, epochs)
                pooled = Pooled.of(pairs, [1, -1])
                half = stats.t.ppf(0.975, pooled.free) * pooled.variance**0.5
                sure.append(resolved(pairs))
                x.append(place + (0 if "two-batch" in title else 0.08 * (shift - 2.5)))
                points.append([pooled.value, half])
            mean, half = np.array(points).T
            x, sure = np.array(x), np.array(sure)
            filled = colours[k[0]] if k[1] == 64 else "white"
            ax.plot(x, np.exp(mean), line, color=colours[k[0]], lw=1.1)
            ax.plot(x[sure], np.exp(mean[sure]), marker, color=colours[k[0]], mfc=filled, ms=4)
            ax.plot(x[~sure], np.exp(mean[~sure]), "x", color=colours[k[0]], ms=5)
            ax.plot([], [], marker + line, color=colours[k[0]], mfc=filled, ms=4, lw=1.1, label=label(k))
            if "two-batch" not in title:
                low, high = np.exp(mean - half), np.exp(mean + half)
                ax.vlines(x[sure], low[sure], high[sure], color=colours[k[0]], lw=1)
        unit = "" if title == "ε_max" else ", examples"
        ax.set(yscale="log", title=title + unit, xlabel="epoch")
    for ax in axes[:3]:
        ax.set_ylim(20, 20000)
    axes[0].plot([], [], "kx", ms=5, label="not resolved")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=7, fontsize=8)
    save(figure, "noise-through-training.svg", (0, 0.07, 1, 1))

    # Each seed's windows with their intervals, beside the pooled exact estimate.
    figure, axes = plt.subplots(2, 3, figsize=(11.5, 6.2), sharex=True, sharey=True)
    for ax, k in zip(axes.flat, sorted(keys, key=lambda k: (k[1], k[0]))):
        colour = colours[k[0]]
        for ends, by_seed in settings[k].windows.items():
            if ends not in HALVES:
                continue
            for number, (_, row) in enumerate(sorted(by_seed.items())):
                place = sum(ends) / 2 + 0.09 * (number - 1)
                if row["high"]:
                    ax.plot([place] * 2, [float(row["low"]), float(row["high"])], "-", color=colour, lw=0.8, alpha=0.7)
                    ax.plot(place, float(row["b_simple"]), "o", color=colour, ms=2.5)
                elif row["low"]:
                    ax.plot(place, float(row["low"]), "^", color=colour, ms=3)
        ax.plot([], [], "o-", color=colour, ms=2.5, lw=0.8, label="two-batch, half an epoch of one seed")
        ax.plot([], [], "^", color=colour, ms=3, label="the same, open upward")
        for place, epochs in {0.0: (0,), **{np.mean(e): e for e in PHASES.values()}}.items():
            pairs = settings[k].pairs("B_simple, exact", epochs)
            value, low, high = fieller_of(pairs)
            if value is not None:
                ax.errorbar(place, value, [[value - low], [high - value]], fmt="kD", ms=4, capsize=3)
        ax.plot([], [], "kD", ms=4, label="exact, pooled over seeds and epochs")
        ax.set(yscale="log", title=label(k), ylim=(50, 20000))
        ax.legend(fontsize=7, loc="lower right")
    for ax in axes[1]:
        ax.set_xlabel("epoch")
    for ax in axes[:, 0]:
        ax.set_ylabel("B_simple, examples")
    save(figure, "two-batch-against-exact.svg")

    # Against eps/B.
    figure, axes = plt.subplots(1, 4, figsize=(13, 4.2), sharey=True)
    shades = {"B_simple, two-batch": "#0b62a4", "B_simple, exact": "#222222", "B_noise": "#c44e00"}
    cases = {phase: {k: epochs for k in keys} for phase, epochs in PHASES.items()}
    cases["equal training loss"] = {k: near[k][0] for k in keys}
    for ax, (case, chosen) in zip(axes, cases.items()):
        for shift, (title, colour) in enumerate(shades.items()):
            for k in keys:
                pairs = settings[k].pairs(title, chosen[k])
                pooled = Pooled.of(pairs, [1, -1])
                if not np.isfinite(pooled.value):
                    continue
                place = k[0] / k[1] * 1.05 ** (shift - 1 + (0.35 if k[1] == 128 else -0.35))
                half = stats.t.ppf(0.975, pooled.free) * pooled.variance**0.5
                low, mean, high = np.exp([pooled.value - half, pooled.value, pooled.value + half])
                filled = colour if k[1] == 64 else "white"
                marker = styles[k[1]][0]
                if not resolved(pairs):
                    ax.plot(place, mean, "x", color=colour, ms=5)
                    continue
                ax.errorbar(place, mean, [[mean - low], [high - mean]], fmt=marker, color=colour, mfc=filled, ms=4, lw=0.9, capsize=2)
            ax.plot([], [], "o", color=colour, ms=4, label=title)
        grid = np.array([3.9e-4, 3.1e-3])
        ax.plot(grid, 0.9 / grid, "k:", lw=1, label="slope −1")
        ax.set(xscale="log", yscale="log", title=case, xlabel="ε/B", ylim=(20, 20000))
        ticks = [5e-4, 1e-3, 2e-3]
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks], minor=False)
        ax.minorticks_off()
    axes[0].set_ylabel("noise scale, examples")
    axes[0].plot([], [], "o", color="#777777", label="batch 64")
    axes[0].plot([], [], "s", color="#777777", mfc="white", label="batch 128")
    axes[0].plot([], [], "x", color="#777777", label="not resolved")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=7, fontsize=8)
    save(figure, "noise-by-temperature.svg", (0, 0.07, 1, 1))


main()
