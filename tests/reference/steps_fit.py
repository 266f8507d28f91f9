"""Reference values of src/math/steps_fit.rs and src/math/rate_fit.rs, from scipy and numpy (PyPI).

    pip install scipy && python tests/reference/steps_fit.py > tests/reference/steps_fit.json

Written apart from the Rust code, from the definitions: all parameters are free in one minimization by
scipy, of squares or of the negative likelihood with censoring, started from many places; the resamples
of the bootstrap are drawn as all n^n ordered ones.
"""

import csv
import itertools
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
# A file here shares its name with a module of the standard library that scipy imports.
sys.path.pop(0)

import numpy
import scipy
from scipy import optimize, stats


def law(theta, log_batch):
    return numpy.logaddexp(0.0, theta - log_batch)


def starts(batch):
    return numpy.log(batch.min()) + numpy.linspace(-1, 1, 9) + numpy.log(batch.max() / batch.min()) * numpy.linspace(0, 1, 9)


def least_squares(batch, steps):
    """log s_min, log b_crit, mean square of the residuals."""
    x, y = numpy.log(batch), numpy.log(steps)
    best = None
    for theta in starts(batch):
        start = [numpy.mean(y - law(theta, x)), theta]
        fit = optimize.least_squares(
            lambda p: y - p[0] - law(p[1], x), start, jac=lambda p: numpy.column_stack([-numpy.ones_like(x), -scipy.special.expit(p[1] - x)]), xtol=1e-15, ftol=1e-15, gtol=1e-15
        )
        if best is None or fit.cost < best.cost:
            best = fit
    return best.x[0], best.x[1], 2 * best.cost / len(x)


def tobit(batch, steps, reached):
    """log s_min, log b_crit, sd, log likelihood (of log steps)."""
    x, y = numpy.log(batch), numpy.log(steps)

    def loss(p):
        z = (y - p[0] - law(p[1], x)) / numpy.exp(p[2])
        return -numpy.sum(numpy.where(reached, stats.norm.logpdf(z) - p[2], stats.norm.logsf(z)))

    def gradient(p):
        sd = numpy.exp(p[2])
        z = (y - p[0] - law(p[1], x)) / sd
        pull = numpy.where(reached, z, numpy.exp(stats.norm.logpdf(z) - stats.norm.logsf(z)))
        return -numpy.array(
            [
                numpy.sum(pull / sd),
                numpy.sum(pull * scipy.special.expit(p[1] - x) / sd),
                numpy.sum(pull * z - reached),
            ]
        )

    best = None
    for theta in starts(batch):
        start = [numpy.mean(y - law(theta, x)), theta, numpy.log(0.3)]
        fit = optimize.minimize(loss, start, method="BFGS", jac=gradient)
        if best is None or fit.fun < best.fun:
            best = fit
    exact = optimize.root(gradient, best.x, tol=1e-13).x
    assert numpy.abs(gradient(exact)).max() < 1e-7 and loss(exact) <= best.fun + 1e-9
    return exact[0], exact[1], float(numpy.exp(exact[2])), -loss(exact)


def lack_of_fit(batch, steps, a, theta):
    x, y = numpy.log(batch), numpy.log(steps)
    residual = y - a - law(theta, x)
    sizes = numpy.unique(batch)
    pure = sum(numpy.sum((y[batch == b] - y[batch == b].mean()) ** 2) for b in sizes)
    freedom = (len(sizes) - 2, len(y) - len(sizes))
    f = ((numpy.sum(residual**2) - pure) / freedom[0]) / (pure / freedom[1])
    return {
        "r_squared": float(1 - numpy.sum(residual**2) / numpy.sum((y - y.mean()) ** 2)),
        "rms_log": float(numpy.sqrt(numpy.mean(residual**2))),
        "f": float(f),
        "freedom": freedom,
        "p": float(stats.f.sf(f, *freedom)),
    }


def simulated(seed, seeds, batches, s_min, b_crit, noise, common, holes=0.0):
    random = numpy.random.default_rng(seed)
    rows = []
    for s in range(seeds):
        effect = common * random.normal()
        for batch in batches:
            log_steps = numpy.log(s_min * (1 + b_crit / batch)) + effect + noise * random.normal()
            if random.uniform() >= holes:
                rows.append((float(batch), float(numpy.ceil(numpy.exp(log_steps))), s))
    return rows


def columns(rows):
    table = numpy.array(rows)
    return table[:, 0], table[:, 1], table[:, 2].astype(int)


out = {"made_with": {"scipy": scipy.__version__, "numpy": numpy.__version__}, "uncensored": [], "censored": [], "intervals": [], "rates": [], "zhang": {}}

POWERS = [8.0 * 2**i for i in range(11)]
for seed, seeds, batches, b_crit, noise, holes in [
    (1, 1, POWERS, 300.0, 0.1, 0.0),
    (2, 3, POWERS[::2], 40.0, 0.2, 0.0),
    (3, 5, POWERS, 5000.0, 0.05, 0.3),
    (4, 4, POWERS[3:7], 900.0, 0.1, 0.0),
]:
    rows = simulated(seed, seeds, batches, 250.0, b_crit, noise, 0.1, holes)
    batch, steps, _ = columns(rows)
    a, theta, variance = least_squares(batch, steps)
    case = {"rows": rows, "s_min": float(numpy.exp(a)), "b_crit": float(numpy.exp(theta)), "log_sd": float(numpy.sqrt(variance))}
    if seeds > 1:
        case["goodness"] = lack_of_fit(batch, steps, a, theta)
    out["uncensored"].append(case)

for seed, seeds, batches, b_crit, noise, most_steps, most_examples in [
    (11, 3, POWERS, 300.0, 0.15, 4000.0, numpy.inf),
    (12, 5, POWERS[::2], 300.0, 0.1, numpy.inf, 700000.0),
    (13, 3, POWERS, 2000.0, 0.2, 20000.0, 1500000.0),
    (14, 1, POWERS, 300.0, 0.3, 1500.0, numpy.inf),
]:
    rows = simulated(seed, seeds, batches, 250.0, b_crit, noise, 0.1)
    limited = []
    for batch, steps, s in rows:
        limit = float(numpy.floor(min(most_steps, most_examples / batch)))
        limited.append((batch, min(steps, limit), s, bool(steps <= limit)))
    batch, steps, _ = columns([row[:3] for row in limited])
    reached = numpy.array([row[3] for row in limited])
    assert 0 < numpy.sum(~reached) < len(reached)
    a, theta, sd, value = tobit(batch, steps, reached)
    out["censored"].append({"rows": limited, "s_min": float(numpy.exp(a)), "b_crit": float(numpy.exp(theta)), "log_sd": sd, "log_likelihood": float(value)})

for seed, seeds, confidence, at in [(21, 3, 0.95, [8.0, 512.0, 65536.0]), (22, 4, 0.9, [100.0])]:
    rows = simulated(seed, seeds, POWERS[::2], 250.0, 300.0, 0.1, 0.1, 0.1)
    batch, steps, of_seed = columns(rows)
    a, theta, _ = least_squares(batch, steps)
    found = []
    for drawn in itertools.product(range(seeds), repeat=seeds):
        index = numpy.concatenate([numpy.flatnonzero(of_seed == s) for s in drawn])
        p = least_squares(batch[index], steps[index])
        found.append([p[0], p[1], p[0] + p[1], *(p[0] + law(p[1], numpy.log(b)) for b in at)])
    center = numpy.array([a, theta, a + theta, *(a + law(theta, numpy.log(b)) for b in at)])
    half = stats.t.ppf(0.5 + confidence / 2, seeds - 1) * numpy.std(numpy.array(found), axis=0) * numpy.sqrt(seeds / (seeds - 1))
    ends = [[float(x) for x in pair] for pair in zip(numpy.exp(center - half), numpy.exp(center + half))]
    out["intervals"].append({"rows": rows, "confidence": confidence, "at": at, "s_min": ends[0], "b_crit": ends[1], "e_min": ends[2], "curve": ends[3:]})

for seed, alpha, b_star in [(31, 1.0, 200.0), (32, 0.5, 1000.0), (33, 0.8, 60.0)]:
    random = numpy.random.default_rng(seed)
    rows = [(b, float(0.7 * (1 + b_star / b) ** -alpha * numpy.exp(0.05 * random.normal())), s) for s in range(3) for b in POWERS]
    batch, rate, _ = columns(rows)
    x, y = numpy.log(batch), numpy.log(rate)
    case = {"rows": rows}
    for name, given in [("fitted", None), ("given", 0.9)]:
        def residual(p):
            return y - p[0] + (p[2] if given is None else given) * law(p[1], x)

        best = None
        for theta in starts(batch):
            start = [numpy.log(0.7), theta] + ([0.7] if given is None else [])
            limits = ([-numpy.inf, -10] + [0.0] * (given is None), [numpy.inf, 25] + [1.5] * (given is None))
            fit = optimize.least_squares(residual, start, bounds=limits, jac="3-point", xtol=1e-15, ftol=1e-15, gtol=1e-15)
            if best is None or fit.cost < best.cost:
                best = fit
        case[name] = {"rate_max": float(numpy.exp(best.x[0])), "b_star": float(numpy.exp(best.x[1])), "alpha": float(best.x[2]) if given is None else given, "log_sd": float(numpy.sqrt(2 * best.cost / len(x)))}
    out["rates"].append(case)

with open(HERE / "zhang2024.csv") as file:
    points = list(csv.DictReader(file))
for model in dict.fromkeys(p["model"] for p in points):
    mine = [p for p in points if p["model"] == model]
    a, theta, _ = least_squares(numpy.array([float(p["batch"]) for p in mine]), numpy.array([float(p["steps"]) for p in mine]))
    out["zhang"][model] = {"s_min": float(numpy.exp(a)), "b_crit": float(numpy.exp(theta))}

json.dump(out, sys.stdout, indent=1)
print()
