#!/usr/bin/env python3
"""Steps to a target on the noisy quadratic, by simulation with numpy alone: writes noisy_sweep.json.

    pip install numpy scipy
    python tests/reference/noisy_sweep.py

Loss L = sum h_i theta_i^2/2, h_i = 1/i; gradient of a batch h theta + (h/B)^(1/2) xi; theta standard normal at the start. For
each batch and replicate the fewest steps over a grid of rates after which L is at most the target, the crossing on the straight
line between two steps. All rates of a replicate see the same noise, as the trials of one seed do. A single run crosses the
target before the expected loss does where noise moves the loss, so these are fewer steps than the closed form has at small
batches. The same preconditioned by the Hessian to a power p: theta - rate h^-p (h theta + noise). The mean of the logarithms over replicates, its standard error, and the fit of S_min (1 + B_crit/B) to the means.
"""

import json
from pathlib import Path

import numpy
from scipy.optimize import curve_fit

DIMENSION, TARGET, FACTOR, BASE = 400, 1.0, 1.3, 0.5
# Preconditioned, the larger target takes a step or two at large batches.
PRECONDITIONED_TARGET = 0.3
BATCHES, REPLICATES, LONGEST = [2, 8, 32, 128, 512], 400, 2000
RATES = BASE * FACTOR ** numpy.arange(-10, 8)


def steps(batch, power, target, generator):
    h = 1 / numpy.arange(1, DIMENSION + 1)
    theta = numpy.tile(generator.standard_normal(DIMENSION), (len(RATES), 1))
    found = numpy.full(len(RATES), numpy.inf)
    before = (theta**2 @ h) / 2
    for step in range(1, LONGEST):
        noise = numpy.sqrt(h / batch) * generator.standard_normal(DIMENSION)
        with numpy.errstate(over="ignore", invalid="ignore"):
            theta = theta - RATES[:, None] * h**-power * (h * theta + noise)
            loss = (theta**2 @ h) / 2
            share = (before - target) / (before - loss)
        first = (loss <= target) & numpy.isinf(found)
        found[first] = step - 1 + share[first]
        before = loss
        if step > found.min():
            return found.min()
    raise ValueError("no rate reached the target")


def sweep(power, target, generator):
    logs = numpy.log([[steps(batch, power, target, generator) for _ in range(REPLICATES)] for batch in BATCHES])
    means = logs.mean(axis=1)
    law = lambda batch, s_min, b_crit: s_min + numpy.log1p(numpy.exp(b_crit) / batch)
    (s_min, b_crit), _ = curve_fit(law, numpy.array(BATCHES, float), means, p0=[2.0, 2.0])
    return {
        "log_steps": means.tolist(),
        "standard_errors": (logs.std(axis=1, ddof=1) / REPLICATES**0.5).tolist(),
        "deviations": logs.std(axis=1, ddof=1).tolist(),
        "s_min": float(numpy.exp(s_min)),
        "b_crit": float(numpy.exp(b_crit)),
    }


def main():
    generator = numpy.random.default_rng(20261130)
    result = {"dimension": DIMENSION, "batches": BATCHES}
    result |= {"target": TARGET} | sweep(0.0, TARGET, generator)
    result["preconditioned"] = {"power": 0.5, "target": PRECONDITIONED_TARGET} | sweep(
        0.5, PRECONDITIONED_TARGET, generator
    )
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(result, indent=1) + "\n")


main()
