"""Reference values of src/math/noise_scale.rs and src/probe/noise.rs, from numpy and scipy (PyPI).

    pip install scipy && python tests/reference/noise_scale.py > tests/reference/noise_scale.json

Written apart from the Rust code, from the definitions: averages of what is left when a block, an
example or a piece is taken away are computed again from the rest, covariances by numpy, the ends of
an interval as roots of Fieller's polynomial by numpy.

    python tests/reference/noise_scale.py coverage 300

prints how often three kinds of interval cover the noise scale, over so many seeds for each setting:
the choice that the documentation of src/math/noise_scale.rs speaks of.
"""

import json
import sys

import numpy
import scipy
from scipy import stats

T = 0.975


def left_out_parts(n, blocks):
    """The indices that remain without each block; the first blocks are the longer ones."""
    everything = numpy.arange(n)
    return [numpy.setdiff1d(everything, block) for block in numpy.array_split(everything, blocks)]


def jackknife(*estimates):
    """Covariance matrix of estimates from those without each block."""
    return (len(estimates[0]) - 1) * numpy.cov(numpy.vstack(estimates), bias=True)


def fieller(x, y, covariance, k):
    """(low, high): high is None where the set is open upward, both where nothing is known."""
    square = stats.t.ppf(T, k - 1) ** 2
    a = y * y - square * covariance[1, 1]
    b = x * y - square * covariance[0, 1]
    c = x * x - square * covariance[0, 0]
    if a > 0:
        roots = numpy.sort(numpy.roots([a, -2 * b, c]).real)
        if y <= 0 or (x <= 0 and roots[1] <= 0):
            return None, None
        return float(roots[0]), float(roots[1])
    if c <= 0 or x <= 0:
        return None, None
    return float(max(numpy.roots([a, -2 * b, c]).real)), None


def ratio(name, x, y, k, covariance):
    """x/y with its interval from the covariance matrix of k blocks, and both standard errors."""
    out = {f"{name}": None, f"{name}_low": None, f"{name}_high": None}
    resolved = y * y > stats.t.ppf(T, k - 1) ** 2 * covariance[1, 1]
    if x > 0 and y > 0 and resolved:
        out[name] = float(x / y)
    out[f"{name}_low"], out[f"{name}_high"] = fieller(x, y, covariance, k)
    return out, [float(v) for v in numpy.sqrt(numpy.diag(covariance))]


# ---- tables of norms


def table(rng, rows, sizes, pieces, gradient, deviations, start=10):
    """Rows of norms of pieces' mean gradients, the last piece shorter by a half."""
    out = []
    for row in range(rows):
        batch = int(sizes[row % len(sizes)])
        count = pieces[row % len(pieces)]
        n = [batch // count] * count
        n[-1] -= n[-1] // 2
        g = numpy.array(
            [gradient + deviations * rng.normal(size=len(gradient)) / numpy.sqrt(m) for m in n]
        )
        total = sum(n)
        mean = numpy.average(g, axis=0, weights=n)
        small = float(numpy.average((g**2).sum(1), weights=n))
        out.append((start * (row + 1), total / count, small, total, float((mean**2).sum())))
    return out


def text(rows):
    lines = ["step,lr,b_small,g2_small,b_big,g2_big"]
    lines += [f"{s},0.1,{bs!r},{gs!r},{bb!r},{gb!r}" for s, bs, gs, bb, gb in rows]
    return "\n".join(lines) + "\n"


def expected(rows, blocks=None, population=None):
    _, bs, gs, bb, gb = numpy.array(rows, dtype=float).T
    blocks = blocks or max(1, min(10, int(numpy.sqrt(len(rows)))))
    trace = (gs - gb) / (1 / bs - 1 / bb)
    if population is None:
        squared = (bb * gb - bs * gs) / (bb - bs)
    else:
        squared = gb - trace * (1 / bb - 1 / population)
    rest = left_out_parts(len(rows), blocks)
    xs = [trace[r].mean() for r in rest]
    ys = [squared[r].mean() for r in rest]
    out, errors = ratio("b_simple", trace.mean(), squared.mean(), blocks, jackknife(xs, ys))
    noise = (trace / bb).mean()
    pairs = (bb * gb - bs * gs) / (bb - bs)
    return out | {
        "tr_sigma": float(trace.mean()),
        "tr_sigma_error": errors[0],
        "squared_gradient": float(squared.mean()),
        "squared_gradient_error": errors[1],
        "gradient_norm": float(numpy.sqrt(gb).mean()),
        "snr": float(squared.mean() / noise) if noise > 0 else None,
        "cosine": float(pairs.mean() / gs.mean()),
        "rows": len(rows),
        "blocks": blocks,
    }


def tables():
    rng = numpy.random.default_rng(0)
    g = numpy.array([0.8, -0.5, 0.3, 0.1])
    s = numpy.array([2.0, 1.0, 0.5, 3.0])
    cases = [
        ("resolved, sizes that change", table(rng, 137, [64, 96, 128], [4, 3], g, s), {}),
        ("seven blocks of unequal length", table(rng, 41, [64], [4], g, s), {"blocks": 7}),
        ("without replacement from 200", table(rng, 60, [128], [4], g, s), {"population": 200}),
        ("not told from 0", table(rng, 50, [16], [2], 0.1 * g, s), {}),
        ("all noise", table(rng, 25, [8], [2], 0.0 * g, s), {"blocks": 25}),
        ("no noise", table(rng, 12, [32], [2], g, 1e-3 * s), {}),
    ]
    return [
        {"name": name, "csv": text(rows), **options, "expected": expected(rows, **options)}
        for name, rows, options in cases
    ]


# ---- single examples and pieces


def trace_and_square(gradients, population):
    n = len(gradients)
    mean = gradients.mean(axis=0)
    trace = float(numpy.trace(numpy.atleast_2d(numpy.cov(gradients.T))))
    share = 1 / n - (1 / population if population else 0)
    return trace, float(mean @ mean) - trace * share


def of_examples(gradients, population):
    n = len(gradients)
    trace, square = trace_and_square(gradients, population)
    without = [
        trace_and_square(numpy.delete(gradients, i, axis=0), population) for i in range(n)
    ]
    finite = 1 - n / population if population else 1.0
    xs, ys = numpy.array(without).T
    out, errors = ratio("b_simple", trace, square, n, finite * jackknife(xs, ys))
    return out | {
        "tr_sigma": trace,
        "tr_sigma_error": errors[0],
        "squared_gradient": square,
        "squared_gradient_error": errors[1],
    }


def examples():
    rng = numpy.random.default_rng(1)
    gradients = (rng.normal(size=(14, 6)) * [1, 2, 0.5, 1, 0.3, 0.7] + 1.2).round(3)
    cases = []
    for population in (None, 20):
        cases.append(
            {
                "population": population,
                "total": of_examples(gradients, population),
                "layers": [
                    of_examples(gradients[:, :4], population),
                    of_examples(gradients[:, 4:], population),
                ],
            }
        )
    return {"gradients": gradients.tolist(), "split": 4, "cases": cases}


def forms(sizes, gradients, matrix, population):
    """tr(A Sigma) and G'AG from a literal weighted sum."""
    batch = sum(sizes)
    mean = numpy.average(gradients, axis=0, weights=sizes)
    d = gradients - mean
    trace = sum(n * v @ matrix @ v for n, v in zip(sizes, d)) / (len(sizes) - 1)
    share = 1 / batch - (1 / population if population else 0)
    return float(trace), float(mean @ matrix @ mean - trace * share)


# From tr(Sigma), g'g, tr(H Sigma), g'Hg to tr(Sigma), |G|^2, tr(H Sigma), G'HG.
def correction(share):
    return numpy.array([[1, 0, 0, 0], [-share, 1, 0, 0], [0, 0, 1, 0], [0, 0, -share, 1]])


def of_pieces(sizes, gradients, hessian, population):
    one = numpy.eye(gradients.shape[1])
    full = forms(sizes, gradients, one, population) + forms(sizes, gradients, hessian, population)
    without = []
    for i in range(len(sizes)):
        rest = numpy.delete(numpy.array(sizes), i)
        g = numpy.delete(gradients, i, axis=0)
        without.append(forms(rest, g, one, population) + forms(rest, g, hessian, population))
    count, batch = len(sizes), sum(sizes)
    known = batch / population if population else 0.0
    change = correction(1 / batch - known / batch)
    back = numpy.linalg.inv(change)
    # The mean has the error of the sample alone, and so has what it shares with the traces; the
    # traces have the error of the cut as well, which stays.
    raw = (1 - known) * back @ jackknife(*numpy.array(without).T) @ back.T
    if population:
        raw[::2, ::2] *= (1 - known * (count - 1) / (batch - 1)) / (1 - known)
    covariance = change @ raw @ change.T

    def of(name, i, j):
        return ratio(name, full[i], full[j], count, covariance[numpy.ix_([i, j], [i, j])])

    simple, errors = of("b_simple", 0, 1)
    noise, curved = of("b_noise", 2, 3)
    rate, _ = of("eps_max", 1, 3)
    return (
        simple
        | noise
        | rate
        | {
            "tr_sigma": full[0],
            "tr_sigma_error": errors[0],
            "squared_gradient": full[1],
            "squared_gradient_error": errors[1],
            "tr_h_sigma": full[2],
            "tr_h_sigma_error": curved[0],
            "ghg": full[3],
            "ghg_error": curved[1],
        }
    )


def pieces():
    rng = numpy.random.default_rng(2)
    sizes = [5, 8, 8, 3, 6, 8]
    gradients = (rng.normal(size=(6, 4)) * 0.4 + [1.0, -0.5, 0.7, 0.2]).round(3)
    root = rng.normal(size=(4, 4)).round(2)
    hessian = (root + root.T).round(2) + 3.0 * numpy.eye(4)
    moments = numpy.array([0.04, 0.25, 1.0, 0.09])
    metric = 1 / (numpy.sqrt(moments) + 0.01)
    scaled = gradients * metric
    return {
        "sizes": sizes,
        "gradients": gradients.tolist(),
        "hessian": hessian.tolist(),
        "second_moments": moments.tolist(),
        "epsilon": 0.01,
        "cases": [
            {
                "population": population,
                "expected": of_pieces(sizes, gradients, hessian, population),
                "preconditioned": of_pieces(sizes, scaled, numpy.eye(4), population),
            }
            for population in (None, 50)
        ],
    }


# ---- which interval covers


SETTINGS = {
    "resolved, 200 rows": dict(rows=200, d=10, g=1.0, s=3.0, batch=64, pieces=4),
    "resolved, 30 rows": dict(rows=30, d=10, g=1.0, s=3.0, batch=64, pieces=4),
    "B_simple 14 B, 400 rows": dict(rows=400, d=20, g=0.05, s=1.0, batch=32, pieces=2),
    "B_simple 14 B, 2000 rows": dict(rows=2000, d=20, g=0.05, s=1.0, batch=32, pieces=2),
    "B_simple 7 B, 3 parameters, 300 rows": dict(rows=300, d=3, g=0.1, s=1.0, batch=16, pieces=2),
    "B_simple 38 B, 100 rows": dict(rows=100, d=20, g=0.03, s=1.0, batch=32, pieces=2),
    "gradients correlated 0.9, 400 rows": dict(rows=400, rho=0.9),
    "gradients correlated 0.9, 1000 rows": dict(rows=1000, rho=0.9),
    "gradients and noise 0.95, 1000 rows": dict(rows=1000, d=3, rho=0.95, noise=0.5),
    "gradients correlated 0.9, 100 rows": dict(rows=100, rho=0.9),
    "gradients correlated 0.5, 60 rows": dict(rows=60, rho=0.5),
}


def draw(rng, rows, d=10, g=0.3, s=2.0, batch=64, pieces=4, rho=None, noise=0.0):
    """Rows' estimates, and the true noise scale. With `rho` the expected gradient moves about g by an
    autoregression of standard deviation g; so does, with `noise`, the logarithm of Sigma."""
    deviations = s * numpy.linspace(0.5, 1.5, d)
    expected_gradient = numpy.full((rows, d), g)
    variance = numpy.ones(rows)
    if rho is not None:
        x, y = g * rng.normal(size=d), noise * rng.normal()
        for row in range(rows):
            expected_gradient[row] += x
            variance[row] = numpy.exp(y - noise**2 / 2)
            fresh = numpy.sqrt(1 - rho**2)
            x = rho * x + fresh * g * rng.normal(size=d)
            y = rho * y + fresh * noise * rng.normal()
    n = batch // pieces
    spread = numpy.sqrt(variance / n)[:, None, None] * deviations
    gradients = expected_gradient[:, None, :] + rng.normal(size=(rows, pieces, d)) * spread
    small = (gradients**2).sum(2).mean(1)
    big = (gradients.mean(1) ** 2).sum(1)
    trace = (small - big) / (1 / n - 1 / batch)
    squared = d * g * g * (1 if rho is None else 2)
    return trace, big - trace / batch, (deviations**2).sum() / squared


def intervals(trace, squared, blocks):
    rest = left_out_parts(len(trace), blocks)
    xs = numpy.array([trace[r].mean() for r in rest])
    ys = numpy.array([squared[r].mean() for r in rest])
    x, y = trace.mean(), squared.mean()
    t = stats.t.ppf(T, blocks - 1)
    out = {"log": None, "inverse": None}
    if x > 0 and y > 0 and (xs > 0).all() and (ys > 0).all():
        half = t * numpy.sqrt((blocks - 1) * numpy.var(numpy.log(xs / ys)))
        out["log"] = x / y * numpy.exp(-half), x / y * numpy.exp(half)
    if x > 0 and (xs > 0).all():
        half = t * numpy.sqrt((blocks - 1) * numpy.var(ys / xs))
        low, high = y / x - half, y / x + half
        out["inverse"] = (1 / high if high > 0 else None), (1 / low if low > 0 else None)
    out["fieller"] = fieller(x, y, jackknife(xs, ys), blocks)
    return out


def coverage(seeds):
    for name, setting in SETTINGS.items():
        for blocks in (None, 20, 40):
            blocks = blocks or min(10, int(numpy.sqrt(setting["rows"])))
            if blocks > setting["rows"]:
                continue
            counts = {}
            for seed in range(seeds):
                trace, squared, truth = draw(numpy.random.default_rng([7, seed]), **setting)
                for kind, ends in intervals(trace, squared, blocks).items():
                    count = counts.setdefault(kind, [0, 0, 0])
                    if ends is None:
                        count[2] += 1
                        continue
                    low, high = ends
                    count[0] += (low is None or low <= truth) and (high is None or truth <= high)
                    count[1] += high is None
            shown = "   ".join(
                f"{kind} {c[0] / seeds:.3f} (open {c[1] / seeds:.2f}, none {c[2] / seeds:.2f})"
                for kind, c in counts.items()
            )
            print(f"{name:<38} {blocks:>3} blocks   {shown}", flush=True)


if sys.argv[1:2] == ["coverage"]:
    coverage(int(sys.argv[2]))
else:
    out = {
        "made_with": {"scipy": scipy.__version__, "numpy": numpy.__version__},
        "tables": tables(),
        "examples": examples(),
        "pieces": pieces(),
    }
    json.dump(out, sys.stdout, indent=1)
    print()
