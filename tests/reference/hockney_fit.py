"""Reference values of src/math/hockney_fit.rs, from scipy and numpy (PyPI).

    pip install scipy && python tests/reference/hockney_fit.py > tests/reference/hockney_fit.json
"""

import json
import sys

sys.path.pop(0)

import numpy
import scipy
from scipy.optimize import least_squares, nnls

random = numpy.random.default_rng(6)
out = {"made_with": {"scipy": scipy.__version__, "numpy": numpy.__version__}, "nnls": [], "fits": []}

for trial in range(12):
    rows = random.uniform(0.0, 1.0, (9, 3)) * [1.0, 10.0, 0.1]
    truth = numpy.array([1.0, 0.2, 3.0]) * random.integers(-1, 2, 3)
    values = rows @ truth + random.normal(0.0, 0.1, 9)
    x, _ = nnls(rows, values)
    if not x.any():
        continue
    out["nnls"].append({"rows": rows.tolist(), "values": values.tolist(), "x": x.tolist()})

SIZES = [8.0, 512.0, 32768.0, 262144.0, 2097152.0]
COUNTS = [
    [m, b * n, a * n]
    for n in SIZES
    for m, b, a in [(6, 1.5, 0.75), (2, 2, 2), (4, 1.5, 0.75), (6, 6, 3), (2, 2, 0), (3, 3, 0)]
]
counts = numpy.array(COUNTS)
for alpha, beta, gamma, spread in [
    (3e-6, 2e-10, 1.5e-10, 0.1),
    (1e-6, 8e-11, 1e-11, 0.3),
    (2e-5, 8e-10, 1e-10, 0.05),
    (5e-7, 1e-10, 0.0, 0.2),
]:
    times = counts @ [alpha, beta, gamma] * numpy.exp(random.normal(0.0, spread, len(counts)))
    scale = numpy.array([1e-6, 1e-10, 1e-10])

    def residuals(x):
        return numpy.log(counts @ (x * scale) / times)

    best = None
    # From several starts: the problem is not convex.
    for start in ([1, 1, 1], [10, 10, 1], [0.1, 1, 0.1], [1, 0.1, 3]):
        found = least_squares(
            residuals, start, bounds=(0.0, numpy.inf), method="trf", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=10000
        )
        if best is None or found.cost < best.cost:
            best = found
    costs = best.x * scale
    # The method stays a little inside of its bounds.
    on_bound = best.x < 1e-6
    if on_bound.any():
        free = ~on_bound
        inner = least_squares(
            lambda y: numpy.log(counts[:, free] @ (y * scale[free]) / times),
            best.x[free],
            method="lm",
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
        )
        costs = numpy.zeros(3)
        costs[free] = inner.x * scale[free]
    error = numpy.sqrt(numpy.mean(numpy.log(counts @ costs / times) ** 2))
    out["fits"].append(
        {"counts": COUNTS, "times": times.tolist(), "costs": costs.tolist(), "log_error": float(error)}
    )

json.dump(out, sys.stdout, indent=1)
print()
