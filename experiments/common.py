"""What the analyses of several experiments share."""

import csv

import numpy as np
from scipy import stats


def interval(values):
    """Mean, and half the width of Student's 95 % interval (NaN for one value)."""
    values = np.asarray(values, float)
    n = len(values)
    half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / n**0.5 if n > 1 else float("nan")
    return values.mean(), half


def text(values, form=".2f", factor=100):
    """Mean ± half the width of the interval; no sign before a zero."""
    mean, half = interval(values)
    shown = f"{factor * mean:{form}}"
    if float(shown) == 0:
        shown = shown.lstrip("+-")
    return f"{shown} ± {factor * half:{form.lstrip('+')}}".replace("-", "−")


def table(head, lines):
    """Prints a table of Markdown."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(str(cell) for cell in line) + " |")
    print()


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def extract_curves(run, results):
    """results/curves.csv: the evaluations of every trial of a run."""
    columns = ["trial", "step", "epoch", "split", "loss", "accuracy"]
    with open(results / "curves.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(columns)
        for trial in rows(results / "summary.csv"):
            for row in rows(run / "trials" / trial["trial"] / "evaluations.csv"):
                out.writerow([trial["trial"], *(row[c] for c in columns[1:])])
