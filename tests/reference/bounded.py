"""Reference values of src/math/lbfgs_b.rs: minima inside bounds from scipy (PyPI).

    pip install scipy && python tests/reference/bounded.py > tests/reference/bounded.json

L-BFGS-B finds the minimum; trust-constr, an interior-point method that shares no code with it, says
whether it is one (the script stops where the two differ).
"""

import json
import sys

import numpy
import scipy
from scipy.optimize import Bounds, minimize

INFINITY = 1e300  # JSON has no infinity; the test reads this as one.


def rosenbrock(x):
    return numpy.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_gradient(x):
    g = numpy.zeros_like(x)
    t = x[1:] - x[:-1] ** 2
    g[:-1] = -400 * x[:-1] * t - 2 * (1 - x[:-1])
    g[1:] += 200 * t
    return g


def exponential(x):
    """sum exp(a_i x_i) - b_i x_i + (sum x)^2/2, with a_i = 1/(i + 1), b_i = i - 1."""
    i = numpy.arange(len(x))
    return numpy.sum(numpy.exp(x / (i + 1)) - (i - 1) * x) + numpy.sum(x) ** 2 / 2


def exponential_gradient(x):
    i = numpy.arange(len(x))
    return numpy.exp(x / (i + 1)) / (i + 1) - (i - 1) + numpy.sum(x)


def quadratic(matrix, linear):
    return (lambda x: x @ matrix @ x / 2 - linear @ x), (lambda x: matrix @ x - linear)


random = numpy.random.default_rng(0)
problems = []


def add(name, function, gradient, start, lower, upper, **data):
    start, lower, upper = (numpy.asarray(v, float) for v in (start, lower, upper))
    options = {"maxiter": 100000, "maxfun": 100000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 10}
    found = minimize(
        function, start, jac=gradient, method="L-BFGS-B", bounds=Bounds(lower, upper), options=options
    )
    other = minimize(
        function,
        numpy.clip(start, lower, upper),
        jac=gradient,
        hess=scipy.optimize.BFGS(),
        method="trust-constr",
        bounds=Bounds(lower, upper),
        options={"maxiter": 20000, "gtol": 1e-9, "xtol": 1e-12, "barrier_tol": 1e-10},
    )
    if abs(other.fun - found.fun) > 1e-5 * max(1, abs(found.fun)):
        sys.exit(f"{name}: {found.fun} and {other.fun}")
    finite = lambda v: [float(x) for x in numpy.clip(v, -INFINITY, INFINITY)]
    problems.append(
        {
            "name": name,
            "start": finite(start),
            "lower": finite(lower),
            "upper": finite(upper),
            "value": float(found.fun),
            "at": [float(x) for x in found.x],
            "evaluations": int(found.nfev),
            **data,
        }
    )


box = lambda n, low, high: ([low] * n, [high] * n)
add("rosenbrock", rosenbrock, rosenbrock_gradient, [-1.2, 1.0], [-1.5, -0.5], [0.5, 2.0])
add("rosenbrock", rosenbrock, rosenbrock_gradient, [-1.0, 1.5], [-2.0, 1.25], [2.0, 2.0])
add("rosenbrock", rosenbrock, rosenbrock_gradient, [0.0] * 10, *box(10, -2.0, 0.8))
add("rosenbrock", rosenbrock, rosenbrock_gradient, [0.5] * 10, *box(10, -numpy.inf, numpy.inf))
add(
    "rosenbrock",
    rosenbrock,
    rosenbrock_gradient,
    [3.0] * 50,
    [1.05 if i % 2 == 0 else -100.0 for i in range(50)],
    [100.0] * 50,
)
add(
    "rosenbrock",
    rosenbrock,
    rosenbrock_gradient,
    [0.1] * 50,
    [-numpy.inf if i % 3 else 0.0 for i in range(50)],
    [0.9 if i % 5 == 0 else numpy.inf for i in range(50)],
)
add(
    "exponential",
    exponential,
    exponential_gradient,
    [0.0] * 8,
    [-0.5 if i % 2 else -numpy.inf for i in range(8)],
    [numpy.inf if i % 3 else 0.25 for i in range(8)],
)
for n, conditioning in ((12, 10.0), (12, 1e4)):
    root = random.normal(size=(n, n))
    basis, _ = numpy.linalg.qr(root)
    matrix = basis @ numpy.diag(numpy.geomspace(1.0, conditioning, n)) @ basis.T
    matrix = ((matrix + matrix.T) / 2).round(6)
    linear = random.normal(size=n).round(3) * (10 if conditioning == 10 else 100)
    add(
        "quadratic",
        *quadratic(matrix, linear),
        [0.0] * n,
        *box(n, -0.3, 0.4),
        matrix=matrix.tolist(),
        linear=linear.tolist(),
    )
made_with = {"scipy": scipy.__version__, "numpy": numpy.__version__}
json.dump({"made_with": made_with, "problems": problems}, sys.stdout, indent=1)
print()
