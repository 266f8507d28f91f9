"""Reference values of src/math/statistics.rs, from scipy and numpy (PyPI).

    pip install scipy && python tests/reference/intervals.py > tests/reference/intervals.json
"""

import json
import sys

# This file shares its name with a module of the standard library that scipy imports.
sys.path.pop(0)

import numpy
import scipy
from scipy import stats

SAMPLES = [
    [0.9712, 0.9745, 0.9698],
    [97.0, 98.0],
    [1.5, 1.5, 1.75, 1.25, 1.0],
    [1000000.1, 1000000.2, 1000000.4, 1000000.8],
    [float(x) for x in numpy.random.default_rng(0).normal(3.0, 0.5, 40).round(6)],
]

out = {
    "made_with": {"scipy": scipy.__version__, "numpy": numpy.__version__},
    "t_quantiles": [
        {"probability": p, "freedom": f, "value": float(stats.t.ppf(p, f))}
        for f in (1, 2, 3, 4, 9, 29, 200)
        for p in (0.05, 0.6, 0.9, 0.975, 0.995)
    ],
    "intervals": [],
    "quantiles": [
        {"values": s, "probability": p, "value": float(numpy.quantile(s, p))}
        for s in SAMPLES
        for p in (0.0, 0.025, 0.3, 0.5, 0.975, 1.0)
    ],
}
for sample in SAMPLES:
    for confidence in (0.9, 0.95, 0.99):
        mean = float(numpy.mean(sample))
        low, high = stats.t.interval(confidence, len(sample) - 1, loc=mean, scale=stats.sem(sample))
        out["intervals"].append(
            {
                "values": sample,
                "confidence": confidence,
                "mean": mean,
                "sd": float(numpy.std(sample, ddof=1)),
                "half_width": float(high - low) / 2,
            }
        )
json.dump(out, sys.stdout, indent=1)
print()
