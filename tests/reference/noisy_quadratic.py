"""Reference values of src/theory/noisy_quadratic.rs, from numpy (PyPI).

    pip install numpy && python tests/reference/noisy_quadratic.py > tests/reference/noisy_quadratic.json

Written apart from the Rust code: second moments go step by step through the recursion, also with
momentum, as the three moments of (theta, last change); no power, no closed form, no search but the
first step that is low enough. Deviations are those of simulated runs, and the fewest examples those
of a Kalman filter that takes one measurement after another.
"""

import json

import numpy

RATES = numpy.logspace(-5, 0.5, 100)


def harmonic(n):
    h = 1 / numpy.arange(1, n + 1)
    return {"h": h, "count": numpy.ones(n), "start": numpy.ones(n), "noise": h.copy()}


def binned(n, bins):
    edges = numpy.geomspace(1, 1 / n, bins)
    # Edges fall; the place of 1/i is the first edge that is not above it.
    place = numpy.searchsorted(-edges, -1 / numpy.arange(1, n + 1))
    count = numpy.bincount(place, minlength=bins).astype(float)
    full = count > 0
    h = edges[full]
    return {"h": h, "count": count[full], "start": numpy.ones(len(h)), "noise": h.copy()}


def losses(q, rate, batch, power=0.0, momentum=0.0, guard=0.0):
    """The loss before each step, for a rate or for a column of rates."""
    a = rate * q["h"] ** -power
    x = a * q["h"]
    noise = a * a * q["noise"] / batch
    keep = (1 - x) ** 2
    if guard:
        noise = noise * (1 - keep) / (1 - keep + guard)
    weight = q["count"] * q["h"] / 2
    tt = q["start"] + 0 * x
    if not momentum:
        while True:
            yield tt @ weight
            tt *= keep
            tt += noise
    tu, uu = 0 * x, 0 * x
    while True:
        yield tt @ weight
        m = momentum
        tt, tu, uu = (
            (1 - x) ** 2 * tt + 2 * (1 - x) * m * tu + m * m * uu + noise,
            -x * (1 - x) * tt + (1 - 2 * x) * m * tu + m * m * uu + noise,
            x * x * tt - 2 * x * m * tu + m * m * uu + noise,
        )


def first(q, rate, batch, power, momentum):
    """The first step with a loss of at most each target, and the losses at some steps."""
    found, wanted = [None] * len(TARGETS), {}
    for step, loss in enumerate(losses(q, rate, batch, power, momentum)):
        for i, target in enumerate(TARGETS):
            if found[i] is None and loss <= target:
                found[i] = step
        if step in STEPS:
            wanted[step] = float(loss)
        if step == LIMIT or loss > 1e290:
            return found, [wanted[step] for step in STEPS]


def times(q, target, rates, *arguments):
    """Where the loss with each of the rates passes the target, by interpolation of its logarithm."""
    found = numpy.full(len(rates), numpy.inf)
    before = None
    for step, loss in enumerate(losses(q, rates[:, None], *arguments)):
        new = (loss <= target) & numpy.isinf(found)
        if new.any():
            fraction = numpy.log(before / target) / numpy.log(before / loss)
            found[new] = step - 1 + fraction[new]
        if step > 2 * found.min():
            return found
        before = loss


def fastest(q, target, batch, power, guard=0.0, rates=RATES):
    """The first step at which any of the rates is there, and the first of those."""
    for step, loss in enumerate(losses(q, rates[:, None], batch, power, guard=guard)):
        if (loss <= target).any():
            return step, float(rates[numpy.argmax(loss <= target)])


def floor(q, rate, batch, power, momentum):
    """Fixed point of the three moments."""
    total = 0.0
    for h, count, v in zip(q["h"], q["count"], q["noise"]):
        a = rate * h**-power
        x, m = a * h, momentum
        step = [
            [(1 - x) ** 2, 2 * (1 - x) * m, m * m],
            [-x * (1 - x), (1 - 2 * x) * m, m * m],
            [x * x, -2 * x * m, m * m],
        ]
        moments = numpy.linalg.solve(numpy.eye(3) - step, numpy.full(3, a * a * v / batch))
        total += count * h / 2 * moments[0]
    return total


def kalman(q, target):
    variance = q["start"].copy()
    measured = q["noise"] / q["h"] ** 2
    n = 0
    while (q["count"] * q["h"] * variance).sum() / 2 > target:
        variance = variance - variance**2 / (variance + measured)
        n += 1
    return n


def simulated(q, rate, batch, momentum, steps, known, runs=20_000):
    """Mean and standard deviation of the loss of single runs, with their standard errors."""
    draw = numpy.random.default_rng(1)
    shape = (runs, len(q["h"]))
    theta = numpy.sqrt(q["start"]) * (numpy.ones(shape) if known else draw.standard_normal(shape))
    w = numpy.zeros(shape)
    for _ in range(steps):
        noise = numpy.sqrt(q["noise"] / batch) * draw.standard_normal(shape)
        w = momentum * w + q["h"] * theta + noise
        theta = theta - rate * w
    loss = (q["count"] * q["h"] * theta**2).sum(axis=1) / 2
    sd = loss.std(ddof=1)
    kurtosis = ((loss - loss.mean()) ** 4).mean() / sd**4
    return {
        "mean": loss.mean(),
        "mean_error": sd / runs**0.5,
        "sd": sd,
        "sd_error": sd * ((kurtosis - 1) / (4 * runs)) ** 0.5,
    }


def listed(q):
    return {name: values.tolist() for name, values in q.items()}


MODELS = {
    "harmonic": harmonic(20),
    # Starts below what noise leaves: the first direction rises while the others fall.
    "rising": {
        "h": numpy.array([2.0, 0.5, 0.05]),
        "count": numpy.array([3.0, 1.0, 2.5]),
        "start": numpy.array([0.0, 4.0, 1.0]),
        "noise": numpy.array([2.0, 0.1, 0.3]),
    },
}

CURVES = [
    # model, rate, batch, power, momentum
    ("harmonic", 0.3, 8.0, 0.0, 0.0),
    ("harmonic", 1.0, 64.0, 0.0, 0.0),
    ("harmonic", 1.9, 4.0, 0.0, 0.0),
    ("harmonic", 2.0, 4.0, 0.0, 0.0),
    ("harmonic", 2.3, 1e4, 0.0, 0.0),
    ("harmonic", 0.2, 50.0, 0.5, 0.0),
    ("harmonic", 0.01, 1.0, 1.0, 0.0),
    ("harmonic", 0.05, 8.0, 0.0, 0.5),
    ("harmonic", 0.05, 8.0, 0.0, 0.9),
    ("harmonic", 3.7, 512.0, 0.0, 0.9),
    ("harmonic", 3.9, 512.0, 0.0, 0.9),
    ("harmonic", 0.4, 512.0, 0.5, 0.99),
    ("rising", 0.4, 2.0, 0.0, 0.0),
    ("rising", 0.9, 20.0, 0.0, 0.0),
    # The first direction is unstable, and the loss falls below targets before it is felt.
    ("rising", 1.05, 1e6, 0.0, 0.0),
    ("rising", 0.1, 20.0, 0.0, 0.8),
    ("rising", 1.85, 1e6, 0.0, 0.8),
]

TARGETS = [3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.01, 0.001]
STEPS = [0, 1, 2, 3, 7, 30, 31, 200, 1000]
LIMIT = 3000


def curve(name, rate, batch, power, momentum):
    q = MODELS[name]
    arguments = (rate, batch, power, momentum)
    firsts, wanted = first(q, *arguments)
    m = momentum
    x = rate * q["h"] ** (1 - power)
    stable = (x < 2 * (1 + m)).all()
    return {
        "model": name,
        "rate": rate,
        "batch": batch,
        "power": power,
        "momentum": momentum,
        "losses": wanted,
        "first": firsts,
        "floor": floor(q, *arguments) if stable else None,
    }


def optimum(batch, power, momentum, target, low, high):
    rates = numpy.geomspace(low, high, 401)
    found = times(MODELS["harmonic"], target, rates, batch, power, momentum)
    best = int(numpy.argmin(found))
    assert 0 < best < 400
    return {
        "batch": batch,
        "power": power,
        "momentum": momentum,
        "target": target,
        "rate": float(rates[best]),
        "time": found[best],
    }


def table():
    q = binned(10_000, 100)
    rows = []
    for power, batch in [
        (0.0, 4.0), (0.0, 64.0), (0.0, 1024.0), (0.0, 16384.0), (0.0, 262144.0),
        (0.5, 4.0), (0.5, 64.0), (0.5, 1024.0), (0.5, 16384.0), (0.5, 262144.0),
    ]:  # fmt: skip
        # Many steps: for the best rate and its neighbours alone.
        rates = RATES[{0.0: slice(56, 59), 0.5: slice(32, 35)}[power]] if batch == 4.0 else RATES
        steps, rate = fastest(q, 0.01, batch, power, rates=rates)
        row = {"power": power, "batch": batch, "steps": steps, "rate": rate}
        if steps < 1_000_000:
            row["guarded"], _ = fastest(q, 0.01, batch, power, guard=1e-8, rates=rates)
        rows.append(row)
    return rows


def main():
    print(
        json.dumps(
            {
                "numpy": numpy.__version__,
                "models": {name: listed(q) for name, q in MODELS.items()},
                "binned": listed(binned(10_000, 100)),
                "steps": STEPS,
                "targets": TARGETS,
                "limit": LIMIT,
                "curves": [curve(*case) for case in CURVES],
                "simulated": [
                    {
                        "model": name,
                        "rate": rate,
                        "batch": batch,
                        "momentum": momentum,
                        "steps": steps,
                        "known": known,
                        **simulated(MODELS[name], rate, batch, momentum, steps, known),
                    }
                    for name, rate, batch, momentum, steps, known in [
                        ("harmonic", 0.5, 16.0, 0.0, 12, False),
                        ("harmonic", 0.5, 16.0, 0.0, 12, True),
                        ("harmonic", 0.1, 64.0, 0.9, 25, False),
                        ("harmonic", 0.1, 64.0, 0.9, 25, True),
                    ]
                ],
                "fewest": [
                    {"model": "harmonic", "target": target, "examples": kalman(harmonic(20), target)}
                    for target in [0.3, 0.05, 0.01]
                ],
                "optima": [
                    optimum(16.0, 0.0, 0.0, 0.1, 0.03, 1.9),
                    optimum(4096.0, 0.0, 0.0, 0.01, 0.3, 2.1),
                    optimum(64.0, 0.5, 0.0, 0.05, 0.03, 1.9),
                    optimum(64.0, 0.0, 0.9, 0.05, 0.003, 0.5),
                ],
                "table": table(),
            },
            indent=1,
        )
    )


main()
