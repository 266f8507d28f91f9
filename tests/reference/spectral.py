"""Reference values of src/math/{tridiagonal,lanczos,trace,density}.rs, from numpy and scipy (PyPI).

    pip install scipy && python tests/reference/spectral.py > tests/reference/spectral.json

The matrices are made by formulas that the unit tests repeat; only results are stored.
"""

import json
import sys

# This folder holds files that share their names with modules of the standard library.
sys.path.pop(0)

import numpy
import scipy
from scipy.linalg import eigh_tridiagonal

MASK = (1 << 64) - 1


def mixed(x):
    """The output function of splitmix64 (Steele, Lea and Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def entry(i, j):
    """Uniform on [-1/2, 1/2), symmetric in i and j."""
    low, high = min(i, j), max(i, j)
    return (mixed((high << 32) | low) >> 11) * 2.0**-53 - 0.5


def first_weights(diagonal, beside):
    values, vectors = eigh_tridiagonal(diagonal, beside, lapack_driver="stev")
    return {
        "diagonal": [float(x) for x in diagonal],
        "beside": [float(x) for x in beside],
        "values": values.tolist(),
        "first_squared": (vectors[0] ** 2).tolist(),
        "last_squared": (vectors[-1] ** 2).tolist(),
    }


n = 200
matrix = numpy.array([[entry(i, j) for j in range(n)] for i in range(n)])
powers = [numpy.linalg.matrix_power(matrix, k) for k in range(7)]
blocks = [(0, 20), (20, 50), (50, 200)]

k = numpy.arange(1, 31)
out = {
    "made_with": {"scipy": scipy.__version__, "numpy": numpy.__version__},
    "random": {
        "n": n,
        "eigenvalues": numpy.linalg.eigvalsh(matrix).tolist(),
        "moments": [float(numpy.trace(p)) / n for p in powers],
        "block_traces": [
            {"from": a, "to": b, "value": float(numpy.trace(matrix[a:b, a:b]))} for a, b in blocks
        ],
    },
    "tridiagonal": {
        # Wilkinson's: pairs of eigenvalues that agree to 14 digits.
        "wilkinson": first_weights(numpy.abs(numpy.arange(-10.0, 11.0)), numpy.ones(20)),
        "smooth": first_weights(numpy.sin(k), numpy.cos(k[:-1]) + 0.1),
        # Falls apart into three matrices.
        "split": first_weights(
            numpy.sqrt(k.astype(float)), numpy.where(numpy.isin(k[:-1], (7, 8)), 0.0, 0.5)
        ),
        "graded_down": first_weights(10.0 ** -k[:12], 10.0 ** (-k[:11] - 0.7)),
        "graded_up": first_weights(10.0 ** (k[:12] - 12), 10.0 ** (k[:11] - 11.7)),
    },
}
json.dump(out, sys.stdout, indent=1)
print()
