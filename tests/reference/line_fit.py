"""Straight lines through times, by numpy and scipy: weighted least squares with weights 1/y^2, and
intervals by Student's t. Writes line_fit.json beside it."""

import json
from pathlib import Path

import numpy as np
from scipy import optimize, stats

CASES = [
    [[1, 0.0031], [4, 0.0042], [16, 0.0088], [64, 0.026], [256, 0.101]],
    [[8, 1.2], [8, 1.25], [32, 2.9], [128, 10.4], [512, 39.0]],
    [[1, 0.5], [2, 1.3], [4, 2.9], [8, 6.2]],
]


def line(points):
    x, y = np.array(points, dtype=float).T
    n = len(x)
    design = np.column_stack([np.ones(n), x]) / y[:, None]
    beta, *_ = np.linalg.lstsq(design, np.ones(n), rcond=None)
    residuals = 1 - design @ beta
    covariance = np.linalg.inv(design.T @ design) * (residuals @ residuals) / (n - 2)
    t = stats.t.ppf(0.975, n - 2)
    ends = np.maximum(beta[0] + t * np.sqrt(covariance[0, 0]) * np.array([-1, 1]), 0)
    slope, slope_error, freedom = beta[1], np.sqrt(covariance[1, 1]), n - 2
    if beta[0] < 0:
        beta, residual = optimize.nnls(design, np.ones(n))
        residuals = 1 - design @ beta
        slope, freedom = beta[1], n - 1
        slope_error = np.sqrt(residuals @ residuals / freedom / np.sum((x / y) ** 2))
    half = stats.t.ppf(0.975, freedom) * slope_error
    return {
        "points": points,
        "intercept": beta[0],
        "slope": slope,
        "intercept_low": ends[0],
        "intercept_high": ends[1],
        "slope_low": slope - half,
        "slope_high": slope + half,
        "relative_rms": float(np.sqrt(np.mean(residuals**2))),
    }


out = {"cases": [line(points) for points in CASES]}
Path(__file__).with_suffix(".json").write_text(json.dumps(out, indent=1) + "\n")
