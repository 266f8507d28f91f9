"""What the analyses of the experiments on the critical batch size share.

`results/steps_to_target.csv` has the fewest updates to the target at each batch for each seed, `results/critical_batch.csv` every
estimate with its interval and cost, both as batchlab wrote them. Here the law S = S_min (1 + B_crit/B) is fitted again, by scipy
alone, to the logarithms of the former, and `expected.json` gets what comes out: `tests/experiments.rs` holds batchlab's fit against
it. Means over seeds are geometric.
"""

import json
from pathlib import Path

import numpy as np
from scipy.optimize import curve_fit

from common import rows, table


def number(text, digits=3):
    if text in ("", None):
        return "–"
    value = float(text)
    if not np.isfinite(value):
        return "unbounded"
    if value >= 1000:
        return f"{round(value):,}"
    return f"{value:.{digits}g}"


def span(row):
    if row["low"] == "" or row["high"] == "":
        return "–"
    return f"{number(row['low'])} to {number(row['high'])}"


def fit(measured):
    """S_min and B_crit by least squares in the logarithm; None where a target was not reached."""
    if any(row["reached"] != "true" for row in measured):
        return None
    batch = np.array([float(row["batch"]) for row in measured])
    steps = np.log([float(row["steps"]) for row in measured])
    law = lambda b, log_s, log_b: log_s + np.log1p(np.exp(log_b) / b)
    start = [steps.min(), np.log(np.median(batch))]
    (log_s, log_b), _ = curve_fit(law, batch, steps, p0=start, maxfev=10000)
    return {"s_min": float(np.exp(log_s)), "b_crit": float(np.exp(log_b))}


def mean(values):
    return float(np.exp(np.mean(np.log(values))))


def main(here):
    results = Path(here) / "results"
    measured = rows(results / "steps_to_target.csv")
    estimates = rows(results / "critical_batch.csv")
    cases = list(dict.fromkeys(row["case"] for row in measured))
    expected = {case: fit([row for row in measured if row["case"] == case]) for case in cases}
    (Path(here) / "expected.json").write_text(json.dumps({"cases": expected}, indent=1) + "\n")

    def of(case, method, quantity):
        found = [r for r in estimates if r["case"] == case and r["method"] == method and r["quantity"] == quantity]
        return found[0] if found else None

    head = ["case", "B_crit", "95 % interval", "within 20 % of perfect scaling up to", "published B_crit", "examples", "trials"]
    lines = []
    for case in cases:
        row = of(case, "sweep", "b_crit")
        efficient = next((r for r in estimates if r["case"] == case and r["quantity"] == "efficient_batch"), row)
        published = number(row["published"])
        lines.append([case, number(row["value"]), span(row), number(efficient["value"]), published, number(row["examples"]), row["trials"]])
    table(head, lines)

    batches = sorted({int(row["batch"]) for row in measured})
    for name, column in [("updates to the target", "steps"), ("best rate", "rate")]:
        lines = []
        for case in cases:
            line = [case]
            for batch in batches:
                own = [r for r in measured if r["case"] == case and int(r["batch"]) == batch]
                reached = [float(r[column]) for r in own if r["reached"] == "true"]
                missing = len(own) - len(reached)
                cell = number(mean(reached)) if reached else "–"
                line.append(cell + (f" ({missing} not)" if missing else ""))
            lines.append(line)
        table([f"{name} at batch", *map(str, batches)], lines)

    lines = []
    for case in cases:
        for row in (r for r in estimates if r["case"] == case and r["quantity"] in ("b_simple", "b_noise", "branched")):
            share = f"{100 * float(row['share_of_the_sweep']):.2g} %" if row["share_of_the_sweep"] else "–"
            lines.append([case, row["method"], row["quantity"], number(row["value"]), span(row), number(row["over_the_sweep"], 2), share, number(row["published"])])
    table(["case", "estimate", "quantity", "value", "95 % interval", "over the sweep's", "of its examples", "published"], lines)
