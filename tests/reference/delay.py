"""Reference values of src/theory/delay.rs, from numpy (PyPI).

    pip install numpy && python tests/reference/delay.py > tests/reference/delay.json

Written apart from the Rust code: radii are those of all roots of the polynomial of the recursion,
limits are found by bisection on them, the best rate is where the polynomial and its derivative share a
root (the roots of the derivative are tried), and variances come from the linear equations
of the autocovariances.
"""

import json
import sys

import numpy


def coefficients(delay, momentum, y):
    """c of x_t = sum_i c_i x_(t-i), from lag 1 on."""
    c = numpy.zeros(max(delay + 1, 2))
    c[0] += 1 + momentum
    c[1] -= momentum
    c[delay] -= y
    return c


def radius(delay, momentum, y):
    c = coefficients(delay, momentum, y)
    return float(abs(numpy.roots(numpy.concatenate([[1], -c]))).max())


def limit(delay, momentum):
    low, high = 1e-6, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        if radius(delay, momentum, middle) < 1:
            low = middle
        else:
            high = middle
    return low


def double(delay, momentum):
    """y with a double root, and the root: y(z) = -z^(delay-1) (z-1) (z-m) is stationary."""
    g = -numpy.polymul([1, -1], [1, -momentum])
    g = numpy.concatenate([g, numpy.zeros(delay - 1)])
    z = max(z.real for z in numpy.roots(numpy.polyder(g)) if abs(z.imag) < 1e-9)
    return float(numpy.polyval(g, z)), float(z)


def variance(delay, momentum, y):
    c = coefficients(delay, momentum, y)
    p = len(c)
    # gamma_k = sum_i c_i gamma_|k-i| + [k = 0], for k = 0 .. p.
    a = numpy.eye(p + 1)
    for k in range(p + 1):
        for i in range(1, p + 1):
            a[k, abs(k - i)] -= c[i - 1]
    b = numpy.zeros(p + 1)
    b[0] = 1
    return float(numpy.linalg.solve(a, b)[0])


def row(delay, momentum, value, y=None):
    return {"delay": delay, "momentum": momentum, "y": y, "value": value}


out = {"limit": [], "radius": [], "double": [], "variance": []}
for delay in range(21):
    for momentum in (0.0, 0.2, 0.5, 0.9):
        top = limit(delay, momentum)
        out["limit"].append(row(delay, momentum, top))
        best = None
        if delay > 0:
            best, z = double(delay, momentum)
            out["double"].append(row(delay, momentum, z, best))
        tried = [-0.5, -0.01] + [top * s for s in (0.01, 0.1, 0.3, 0.6, 0.9, 0.99, 1.01, 1.5, 4, 100)]
        for y in tried:
            # At a double root half of the digits are lost.
            if best is not None and abs(y / best - 1) < 0.02:
                continue
            if delay == 0 and abs((1 + momentum - y) ** 2 - 4 * momentum) < 0.02:
                continue
            y = round(y, 6)
            out["radius"].append(row(delay, momentum, radius(delay, momentum, y), y))
        for share in (0.05, 0.4, 0.8, 0.97):
            y = round(share * top, 6)
            out["variance"].append(row(delay, momentum, variance(delay, momentum, y), y))

json.dump(out, sys.stdout, separators=(",", ":"))
print()
