#!/usr/bin/env python3
"""Experiment 08: the noise scale through training, and how it moves with eps/B.

    pip install numpy scipy matplotlib
    python experiments/08-noise-scale/analyze.py               # from results/: prints the README's tables, draws figures/
    python experiments/08-noise-scale/analyze.py STUDY_FOLDER  # first makes results/probes.csv and results/noise.csv from a run's folder

Two estimates of B_simple = tr(Sigma)/|G|^2. "Exact": at the start and after each epoch, from the gradients of 2,048 single
examples (results/probes.csv). "Two-batch": from the squared norms that the 8 workers' gradients and their mean have at every
update, averages over a window of half an epoch first, the quotient last; the interval is Fieller's from a jackknife over 10 blocks,
as `batchlab noise` gives it (results/noise.csv). B_noise = tr(H Sigma)/(G'HG) and eps_max = |G|^2/(G'HG) are from 32 pieces
of the same 2,048 examples.

Logarithms are averaged over seeds; intervals are Student's at 95 % over 3 seeds, on the logarithm where a mean is geometric.
Slopes are least squares of log B on log(eps/B) over six runs (three rates, two batches) of a seed.
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
# Training losses at which all runs are compared.
LEVELS = [0.3, 0.2, 0.15, 0.1]


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
        for low, high in [*zip(EDGES, EDGES[1:]), (0, EPOCHS)]:
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


def geometric(logs, digits=3):
    """Geometric mean with the interval of the logarithm."""
    logs = np.asarray(logs)
    if len(logs) == 0 or not np.isfinite(logs).all():
        return "none"
    mean, half = interval(logs)
    return f"{sig(np.exp(mean), digits)} ({sig(np.exp(mean - half), digits)} to {sig(np.exp(mean + half), digits)})"


def sig(value, digits=3):
    """So many significant digits, all of them before the point where the number is large."""
    if not np.isfinite(value):
        return "none"
    decimals = max(0, digits - 1 - int(np.floor(np.log10(abs(value))))) if value else 0
    return f"{value:,.{decimals}f}"


def signed(values):
    mean, half = interval(values)
    return f"{mean:+.2f} ± {half:.2f}".replace("-", "−")


class Course:
    """What the probes of one run found, by whole epoch."""

    def __init__(self, probes):
        self.values, self.losses = {}, {}
        for row in probes:
            epoch = round(float(row["epoch"]))
            self.losses[epoch] = float(row["train_loss"])
            value = float(row["value"]) if row["value"] else np.nan
            self.values.setdefault(row["quantity"], {})[epoch] = value

    def log(self, quantity, epoch):
        """NaN where it is undetermined or negative."""
        value = self.values[quantity].get(epoch, np.nan)
        return np.log(value) if value > 0 else np.nan

    def log_at(self, quantity, loss):
        """On the line through the epochs in log loss, where it first falls to `loss`; NaN if it does not."""
        epochs = sorted(self.losses)
        for before, after in zip(epochs, epochs[1:]):
            high, low = self.losses[before], self.losses[after]
            if high > loss >= low:
                share = (np.log(high) - np.log(loss)) / (np.log(high) - np.log(low))
                return (1 - share) * self.log(quantity, before) + share * self.log(quantity, after)
        return np.nan


def slope(points):
    """d log B/d log T of (log T, log B)."""
    t, b = np.array(points).T
    return np.polyfit(t, b, 1)[0]


def both_slopes(points):
    """d log B/d log eps and d log B/d log batch of (log eps, log batch, log B)."""
    rate, batch, b = np.array(points).T
    return np.linalg.lstsq(np.column_stack([rate, batch, np.ones_like(b)]), b, rcond=None)[0][:2]


def main():
    if len(sys.argv) > 1:
        extract(Path(sys.argv[1]))
    probes, windows = rows(RESULTS / "probes.csv"), rows(RESULTS / "noise.csv")
    summary = rows(RESULTS / "summary.csv")
    keys = sorted({(float(r["rate"]), int(r["batch"])) for r in probes}, key=lambda k: (k[0] / k[1], k[0]))
    seeds = sorted({int(r["seed"]) for r in probes})
    runs = {}
    for rate, batch in keys:
        for seed in seeds:
            own = [r for r in probes if (float(r["rate"]), int(r["batch"]), int(r["seed"])) == (rate, batch, seed)]
            runs[rate, batch, seed] = Course(own)
    window = {}
    for r in windows:
        key = (float(r["rate"]), int(r["batch"]), int(r["seed"]))
        window.setdefault(key, {})[float(r["from_epoch"]), float(r["to_epoch"])] = r
    last = EPOCHS

    def name(rate, batch):
        return f"{rate:g}, {batch}"

    def logs(rate, batch, quantity, epoch):
        return [runs[rate, batch, s].log(quantity, epoch) for s in seeds]

    print("The runs:\n")
    lines = []
    for rate, batch in keys:
        own = [r for r in summary if float(r["learning_rate.base_lr"]) == rate and int(r["global_batch"]) == batch]
        lines.append(
            [
                name(rate, batch),
                f"{1e4 * rate / batch:.1f}",
                f"{float(own[0]['steps']):,.0f}",
                *(mean_text([float(r[c]) for r in own], f) for c, f in (("train_loss", 1), ("test_accuracy", 100))),
            ]
        )
    table(["rate, batch", "10⁴ ε/B", "updates", "training loss", "test accuracy, %"], lines)

    for quantity, title in (("b_simple", "B_simple, exact"), ("b_noise", "B_noise"), ("eps_max", "eps_max")):
        print(title + ":\n")
        lines = [[name(*k), *(geometric(logs(*k, quantity, e)) for e in (0, 1, 2, 4, last))] for k in keys]
        table(["rate, batch", "start", *(f"epoch {e}" for e in (1, 2, 4, last))], lines)

    print("Averages over training (epochs 1 to 6 weigh the same; the two-batch one over all updates):\n")
    lines = []
    for k in keys:
        line = [name(*k)]
        for quantity in ("b_simple", "b_noise"):
            means = [np.mean([runs[*k, s].values[quantity][e] for e in range(1, last + 1)]) for s in seeds]
            line.append(geometric(np.log(means)))
        whole = [float(window[*k, s][0, last]["b_simple"] or "nan") for s in seeds]
        line.append(geometric(np.log(whole)))
        line.append(geometric([np.mean([ratio(runs[*k, s], e) for e in range(1, last + 1)]) for s in seeds]))
        lines.append(line)
    table(["rate, batch", "B_simple, exact", "B_noise", "B_simple, two-batch, ratio of averages", "B_noise/B_simple"], lines)

    print("B_noise/B_simple, geometric mean over the six settings, of each seed:\n")
    line = [geometric([np.mean([ratio(runs[*k, s], e) for k in keys]) for s in seeds]) for e in range(last + 1)]
    table(["start", *(f"epoch {e}" for e in range(1, last + 1))], [line])

    print("Two-batch over exact at the same epoch (window of half an epoch around it):\n")
    lines = []
    for k in keys:
        line, covered, open_ends, number = [name(*k)], 0, 0, 0
        for e in range(1, last):
            found = []
            for s in seeds:
                row, exact = window[*k, s][e - 0.25, e + 0.25], runs[*k, s].values["b_simple"][e]
                value = row["b_simple"]
                found.append(np.log(float(value) / exact) if value else np.nan)
                number += 1
                open_ends += row["high"] == ""
                covered += row["low"] != "" and float(row["low"]) <= exact <= float(row["high"] or "inf")
            line.append(geometric(found, 2))
        lines.append([*line, f"{covered} of {number}", open_ends])
    together = [[agreement(runs, window, k, s, range(1, last)) for k in keys] for s in seeds]
    both = geometric([np.nanmean(t) for t in together])
    table(["rate, batch", *(f"epoch {e}" for e in range(1, last)), "exact within its interval", "open upward"], lines)
    print(f"All settings and epochs 1 to {last - 1} together: {both}\n")

    print("Slope of log B on log(eps/B) over the six settings:\n")
    lines = []
    for quantity, title in (("b_simple", "B_simple"), ("b_noise", "B_noise"), ("eps_max", "ε_max")):
        for e in range(1, last + 1):
            lines.append([f"{title}, epoch {e}", *fits(runs, keys, seeds, lambda run, e=e, q=quantity: run.log(q, e))])
        for level in LEVELS:
            found = fits(runs, keys, seeds, lambda run, level=level, q=quantity: run.log_at(q, level))
            lines.append([f"{title}, training loss {level:g}", *found])
    table(["", "on ε/B", "on ε at one B", "on B at one ε", "lowest to highest of the six, mean"], lines)

    print("Pairs of equal eps/B: the larger rate and batch over the smaller:\n")
    pairs = [(a, b) for i, a in enumerate(keys) for b in keys[i + 1 :] if np.isclose(a[0] / a[1], b[0] / b[1])]
    lines = []
    for quantity, title in (("b_simple", "B_simple"), ("b_noise", "B_noise")):
        for a, b in pairs:
            line = [f"{title}: {name(*b)} over {name(*a)}"]
            for e in (1, 2, 4, last):
                line.append(geometric([runs[*b, s].log(quantity, e) - runs[*a, s].log(quantity, e) for s in seeds]))
            lines.append(line)
    table(["", *(f"epoch {e}" for e in (1, 2, 4, last))], lines)

    print("Known within, and undetermined:\n")
    table(["", "determined", "median width of the interval: high over low"], known(probes, windows, last))
    figures(runs, window, keys, seeds, name, last)


def mean_text(values, scale):
    mean, half = interval(values)
    digits = 2 if scale == 100 else 4
    return f"{scale * mean:.{digits}f} ± {scale * half:.{digits}f}"


def ratio(run, epoch):
    return run.log("b_noise", epoch) - run.log("b_simple", epoch)


def agreement(runs, window, k, s, epochs):
    found = []
    for e in epochs:
        value = window[*k, s][e - 0.25, e + 0.25]["b_simple"]
        found.append(np.log(float(value) / runs[*k, s].values["b_simple"][e]) if value else np.nan)
    return np.nanmean(found)


def fits(runs, keys, seeds, of):
    """Slope on eps/B, slopes on eps and on B, and the range over the six; of each seed, then over seeds."""
    ones, rates, batches, spread = [], [], [], []
    for s in seeds:
        points = [(np.log(k[0]), np.log(k[1]), of(runs[*k, s])) for k in keys]
        if not np.isfinite([p[2] for p in points]).all():
            return ["not reached by all"] * 4
        ones.append(slope([(r - b, v) for r, b, v in points]))
        rate, batch = both_slopes(points)
        rates.append(rate)
        batches.append(batch)
        spread.append(sorted(p[2] for p in points))
    ends = np.exp(np.mean(spread, axis=0))
    return [signed(ones), signed(rates), signed(batches), f"{sig(ends[0])} to {sig(ends[-1])}"]


def known(probes, windows, last):
    lines = []
    groups = [(q, [r for r in probes if r["quantity"] == q]) for q in ("b_simple", "b_noise", "eps_max")]
    names = {"b_simple": "B_simple, exact", "b_noise": "B_noise", "eps_max": "ε_max"}
    groups = [(names[q], [(r["value"], r["low"], r["high"]) for r in g]) for q, g in groups]
    half = [r for r in windows if float(r["to_epoch"]) - float(r["from_epoch"]) < last]
    groups.append(("B_simple, two-batch, half an epoch", [(r["b_simple"], r["low"], r["high"]) for r in half]))
    for title, group in groups:
        found = [float(high) / float(low) for value, low, high in group if value and low and high and float(low) > 0]
        lines.append([title, f"{sum(v != '' for v, _, _ in group)} of {len(group)}", f"{np.median(found):.2f}"])
    return lines


def figures(runs, window, keys, seeds, name, last):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "batchlab", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    import matplotlib.pyplot as plt

    (HERE / "figures").mkdir(exist_ok=True)
    rates = sorted({k[0] for k in keys})
    colours = dict(zip(rates, ("#0b62a4", "#2a8a3e", "#c44e00")))
    styles = {64: ("o", "-"), 128: ("s", "--")}

    def save(figure, file):
        figure.tight_layout()
        figure.savefig(HERE / "figures" / file, metadata={"Date": None})
        plt.close(figure)

    epochs = list(range(last + 1))
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.4))
    drawn = (
        ("b_simple", "B_simple, exact, in examples"),
        ("b_noise", "B_noise (Hessian-weighted), in examples"),
        ("eps_max", "ε_max = |G|²/(GᵀHG)"),
    )
    for ax, (quantity, title) in zip(axes, drawn):
        for rate, batch in keys:
            marker, line = styles[batch]
            found = np.array([[runs[rate, batch, s].log(quantity, e) for s in seeds] for e in epochs])
            mean = np.exp(found.mean(axis=1))
            label = f"rate {rate:g}, batch {batch}"
            filled = colours[rate] if batch == 64 else "white"
            ax.plot(epochs, mean, marker + line, color=colours[rate], mfc=filled, ms=4, lw=1.2, label=label)
            low, high = np.exp(found.min(axis=1)), np.exp(found.max(axis=1))
            ax.fill_between(epochs, low, high, color=colours[rate], alpha=0.12, lw=0)
        ax.set(yscale="log", title=title, xlabel="epoch")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncols=6, fontsize=8)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(HERE / "figures" / "noise-through-training.svg", metadata={"Date": None})
    plt.close(figure)

    figure, axes = plt.subplots(2, 3, figsize=(11.5, 6.2), sharex=True, sharey=True)
    order = sorted(keys, key=lambda k: (k[1], k[0]))
    for ax, (rate, batch) in zip(axes.flat, order):
        for s in seeds:
            own = [(w, r) for w, r in sorted(window[rate, batch, s].items()) if w[1] - w[0] < last]
            x = np.array([(low + high) / 2 for (low, high), _ in own]) + 0.06 * (s - 1)
            for place, (_, row) in zip(x, own):
                if not row["low"]:
                    continue
                if row["high"]:
                    ax.plot([place] * 2, [float(row["low"]), float(row["high"])], "-", color=colours[rate], lw=0.9, alpha=0.7)
                else:
                    ax.plot(place, float(row["low"]), "^", color=colours[rate], ms=3, alpha=0.7)
            value = [float(row["b_simple"]) if row["b_simple"] else np.nan for _, row in own]
            ax.plot(x, value, "o", color=colours[rate], ms=3, label="two-batch, half an epoch" if s == seeds[0] else None)
        exact = np.array([[runs[rate, batch, s].log("b_simple", e) for s in seeds] for e in epochs])
        ax.plot(epochs, np.exp(exact.mean(axis=1)), "k-", lw=1.2, label="exact, mean of 3 seeds")
        ax.set(yscale="log", title=f"rate {rate:g}, batch {batch}")
        ax.legend(fontsize=7, loc="upper left")
    for ax in axes[1]:
        ax.set_xlabel("epoch")
    for ax in axes[:, 0]:
        ax.set_ylabel("B_simple, examples")
    save(figure, "two-batch-against-exact.svg")

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    moments = (
        (axes[0], [(f"epoch {e}", lambda run, q, e=e: run.log(q, e)) for e in (1, last)], "equal epochs"),
        (axes[1], [(f"training loss {v:g}", lambda run, q, v=v: run.log_at(q, v)) for v in (LEVELS[0], LEVELS[-1])], "equal training loss"),
    )
    for ax, cases, title in moments:
        for (label, of), filled in zip(cases, (False, True)):
            for quantity, colour, short_name in (("b_simple", "#0b62a4", "B_simple"), ("b_noise", "#c44e00", "B_noise")):
                points, logs = [], []
                for k in keys:
                    found = [of(runs[*k, s], quantity) for s in seeds]
                    if not np.isfinite(found).all():
                        continue
                    t = k[0] / k[1]
                    marker = styles[k[1]][0]
                    ax.plot([t] * len(found), np.exp(found), marker, color=colour, mfc=colour if filled else "white", ms=4)
                    points += [(np.log(t), v) for v in found]
                    logs.append(t)
                if points:
                    x, y = np.array(points).T
                    a, b = np.polyfit(x, y, 1)
                    span = np.array([min(logs), max(logs)])
                    style = "-" if filled else "--"
                    ax.plot(span, np.exp(b) * span**a, style, color=colour, lw=1, label=f"{short_name}, {label}: slope {a:+.2f}".replace("-", "−"))
        grid = np.array([4e-4, 3e-3])
        ax.plot(grid, 0.6 / grid, "k:", lw=1, label="slope −1")
        ax.set(xscale="log", yscale="log", title=title, xlabel="ε/B")
        ax.legend(fontsize=7)
    axes[0].set_ylabel("noise scale, examples")
    save(figure, "noise-by-temperature.svg")


main()
