"""Learning rates and momenta of other people's schedules, for src/schedule/.

    python tests/reference/schedules.py      # writes schedules.json beside itself

Needs torch, optax (with jax) and numpy from PyPI. Each case names a batchlab configuration and the
values of the first updates of the scheduler of PyTorch or optax that means the same. Where neither has
the schedule, numpy follows the formula of the paper, in the paper's own terms.
"""

import json
import warnings
from pathlib import Path

import jax
import numpy as np
import optax
import torch
from torch.optim import lr_scheduler as scheduler

jax.config.update("jax_enable_x64", True)
warnings.filterwarnings("ignore", message=".*(scheduler.step|epoch parameter).*")

STEPS = 40


def rates(base_lr, build, steps_per_tick=1):
    """Rates of STEPS updates; the scheduler advances once every `steps_per_tick` updates."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base_lr)
    schedule = build(optimizer)
    found = []
    for step in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % steps_per_tick == 0:
            schedule.step()
    return found


def of_optax(schedule):
    """Values of STEPS updates."""
    return [float(schedule(step)) for step in range(STEPS)]


def case(name, learning_rate, rates, steps_per_epoch=5.0, global_batch=32, total=STEPS):
    return {
        "name": name,
        "learning_rate": learning_rate,
        "global_batch": global_batch,
        "total": total,
        "steps_per_epoch": steps_per_epoch,
        "rates": rates,
    }


def warm(optimizer, after):
    """Gradual warm-up over 8 updates from a quarter of the rate, then `after`."""
    first = scheduler.LinearLR(optimizer, start_factor=0.25, end_factor=1.0, total_iters=8)
    return scheduler.SequentialLR(optimizer, [first, after], milestones=[8])


def transformer(warmup, peak):
    """Vaswani et al. 2017, section 5.3, d_model chosen such that the highest rate is `peak`."""
    step = np.arange(STEPS, dtype=np.float64)
    d_model = 1 / (peak**2 * warmup)
    with np.errstate(divide="ignore"):
        return list(d_model**-0.5 * np.minimum(step**-0.5, step * warmup**-1.5))


def cooldown_1_sqrt(peak, final, stable, total):
    """Haegele et al. 2024, section 3: constant, then 1 - sqrt((n - (N - N_decay)) / N_decay)."""
    n_decay = total - stable
    n = np.arange(STEPS, dtype=np.float64)
    shape = 1 - np.sqrt(np.maximum(n - (total - n_decay), 0) / n_decay)
    return list(final + (peak - final) * shape)


def saturating(eps_max, noise_scale, batch):
    """McCandlish et al. 2018, section 2.2."""
    return eps_max / (1 + noise_scale / batch)


GRADUAL = {"shape": "gradual", "steps": 8, "start_lr": 0.1}
WARM = optax.linear_schedule(0.1, 0.4, 8)

cases = [
    case(
        "CosineAnnealingLR",
        {"base_lr": 0.4, "decay": {"cosine": {"final_fraction": 0.1}}},
        rates(0.4, lambda o: scheduler.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.04)),
    ),
    case(
        "MultiStepLR, advanced once an epoch",
        {"base_lr": 0.4, "decay": {"step": {"epochs": [3.0, 5.0], "factor": 0.2}}},
        rates(0.4, lambda o: scheduler.MultiStepLR(o, milestones=[3, 5], gamma=0.2), 5),
    ),
    case(
        "ExponentialLR, one update an epoch",
        {"base_lr": 0.4, "decay": {"exponential": {"factor": 0.9}}},
        rates(0.4, lambda o: scheduler.ExponentialLR(o, gamma=0.9)),
        steps_per_epoch=1.0,
    ),
    case(
        "ExponentialLR, an epoch of 5 updates",
        {"base_lr": 0.4, "decay": {"exponential": {"factor": 0.5}}},
        rates(0.4, lambda o: scheduler.ExponentialLR(o, gamma=0.5 ** (1 / 5))),
    ),
    case(
        "PolynomialLR",
        {"base_lr": 0.4, "decay": {"polynomial": {"power": 3.0}}},
        rates(0.4, lambda o: scheduler.PolynomialLR(o, total_iters=STEPS, power=3.0)),
    ),
    case(
        "LinearLR",
        {"base_lr": 0.4, "decay": {"linear": {"final_fraction": 0.2}}},
        rates(0.4, lambda o: scheduler.LinearLR(o, 1.0, 0.2, total_iters=STEPS)),
    ),
    case(
        "LinearLR warm-up, then CosineAnnealingLR; linear scaling by 4",
        {
            "base_lr": 0.1,
            "base_batch": 8,
            "scaling": "linear",
            "warmup": {"shape": "gradual", "steps": 8},
            "decay": {"cosine": {}},
        },
        rates(0.4, lambda o: warm(o, scheduler.CosineAnnealingLR(o, T_max=STEPS - 8))),
    ),
    case(
        "LinearLR warm-up, then constant; warm-up of 1.6 epochs of 5 updates",
        {
            "base_lr": 0.1,
            "base_batch": 8,
            "scaling": "linear",
            "warmup": {"shape": "gradual", "epochs": 1.6},
        },
        rates(0.4, lambda o: warm(o, scheduler.ConstantLR(o, factor=1.0, total_iters=0))),
    ),
    # Its two phases end at updates 0.2 x 40 - 1 and 40 - 1.
    case(
        "OneCycleLR with straight lines; warm-up of 7 updates given in examples",
        {
            "base_lr": 0.4,
            "warmup": {"shape": "gradual", "examples": 7 * 32, "start_lr": 0.04},
            "decay": {"linear": {"final_fraction": 0.001}},
        },
        rates(
            0.4,
            lambda o: scheduler.OneCycleLR(
                o,
                max_lr=0.4,
                total_steps=STEPS,
                pct_start=0.2,
                anneal_strategy="linear",
                div_factor=10.0,
                final_div_factor=100.0,
                cycle_momentum=False,
            ),
        ),
        total=STEPS - 1,
    ),
    case(
        "CyclicLR, triangular, a period of 7 updates",
        {"base_lr": 0.4, "decay": {"cyclic": {"period_epochs": 1.4, "min_fraction": 0.25}}},
        rates(
            0.4,
            lambda o: scheduler.CyclicLR(
                o, base_lr=0.1, max_lr=0.4, step_size_up=3.5, cycle_momentum=False
            ),
        ),
    ),
    case(
        "CyclicLR, triangular2",
        {
            "base_lr": 0.4,
            "decay": {
                "cyclic": {"period_epochs": 2.0, "min_fraction": 0.05, "cycle_factor": 0.5}
            },
        },
        rates(
            0.4,
            lambda o: scheduler.CyclicLR(
                o,
                base_lr=0.02,
                max_lr=0.4,
                step_size_up=5,
                mode="triangular2",
                cycle_momentum=False,
            ),
        ),
    ),
    case(
        "linear_schedule, then triangles by piecewise_interpolate_schedule",
        {
            "base_lr": 0.4,
            "warmup": GRADUAL,
            "decay": {"cyclic": {"period_epochs": 1.2, "min_fraction": 0.25}},
        },
        of_optax(
            optax.join_schedules(
                [
                    WARM,
                    optax.piecewise_interpolate_schedule(
                        "linear", 0.1, {3 * i: 4.0 if i % 2 else 0.25 for i in range(1, 12)}
                    ),
                ],
                [8],
            )
        ),
    ),
    case(
        "exponential_decay upwards as warm-up, then cosine_decay_schedule; power scaling",
        {
            "base_lr": 0.1,
            "base_batch": 4,
            "scaling": {"power": {"exponent": 2 / 3}},
            "warmup": {"shape": "exponential", "epochs": 2.0, "start_lr": 0.0125},
            "decay": {"cosine": {"final_fraction": 0.1}},
        },
        of_optax(
            optax.join_schedules(
                [
                    optax.exponential_decay(0.0125, 10, 0.4 / 0.0125),
                    optax.cosine_decay_schedule(0.4, STEPS - 10, alpha=0.1),
                ],
                [10],
            )
        ),
    ),
    case(
        "constant warm-up, then exponential_decay counted from the start; the saturating law",
        {
            "base_lr": 0.1,
            "base_batch": 8,
            "scaling": {"saturating": {"noise_scale": 24.0}},
            "warmup": {"shape": "constant", "epochs": 2.0},
            "decay": {"exponential": {"factor": 0.5}},
        },
        of_optax(
            optax.join_schedules(
                [
                    optax.constant_schedule(0.1),
                    lambda step: optax.exponential_decay(
                        saturating(0.4, 24.0, 32), transition_steps=5, decay_rate=0.5
                    )(step + 10),
                ],
                [10],
            )
        ),
    ),
    # 0.8 epochs of 10 updates at the base batch of 16, 1.6 of 5 updates at 32.
    case(
        "LEGW: warmup_constant_schedule, epochs doubled with the batch, square-root scaling",
        {
            "base_lr": 0.2,
            "base_batch": 16,
            "scaling": "sqrt",
            "warmup": {"shape": "legw", "epochs": 0.8},
        },
        of_optax(
            optax.warmup_constant_schedule(
                init_value=0.0, peak_value=0.2 * 2**0.5, warmup_steps=round(0.8 * 2 * 5)
            )
        ),
    ),
    case(
        "warm-up, stable, linear_schedule down",
        {
            "base_lr": 0.4,
            "warmup": GRADUAL,
            "decay": {"warmup-stable-decay": {"decay_fraction": 0.25, "final_fraction": 0.1}},
        },
        of_optax(
            optax.join_schedules(
                [WARM, optax.constant_schedule(0.4), optax.linear_schedule(0.4, 0.04, 8)],
                [8, 32],
            )
        ),
    ),
    case(
        "warm-up, stable, cosine_decay_schedule down",
        {
            "base_lr": 0.4,
            "warmup": GRADUAL,
            "decay": {"warmup-stable-decay": {"decay_fraction": 0.375, "shape": "cosine"}},
        },
        of_optax(
            optax.join_schedules(
                [WARM, optax.constant_schedule(0.4), optax.cosine_decay_schedule(0.4, 12)],
                [8, 28],
            )
        ),
    ),
    case(
        "stable, then 1 - sqrt down over 0.3 of 40 updates (formula)",
        {
            "base_lr": 0.4,
            "decay": {
                "warmup-stable-decay": {
                    "decay_fraction": 0.3,
                    "final_fraction": 0.1,
                    "shape": "sqrt",
                }
            },
        },
        cooldown_1_sqrt(0.4, 0.04, stable=28, total=40),
    ),
    case(
        "the transformer's schedule (formula)",
        {
            "base_lr": 0.4,
            "warmup": {"shape": "gradual", "steps": 8, "start_lr": 0.0},
            "decay": {"inverse-sqrt": {}},
        },
        transformer(8, 0.4),
    ),
    # Its time scale is a warm-up of 10 updates, of which the run has none.
    case(
        "the transformer's schedule after its warm-up (formula), given its time scale",
        {"base_lr": 0.4, "decay": {"inverse-sqrt": {"timescale_epochs": 2.0}}},
        [0.4 * (10 / (10 + step)) ** 0.5 for step in range(STEPS)],
    ),
]


def momentum_case(name, schedule, momentum, values, every=1, steps_per_epoch=5.0):
    """Values at updates 0, `every`, 2 `every`, ..."""
    return {
        "name": name,
        "momentum_schedule": schedule,
        "momentum": momentum,
        "steps_per_epoch": steps_per_epoch,
        "every": every,
        "values": values,
    }


def sutskever(cap, every):
    """Sutskever et al. 2013, equation 5, at updates 0, `every`, 2 `every`, ..."""
    t = np.arange(STEPS) * every
    return list(np.minimum(1 - 2 ** (-1 - np.log2(t // 250 + 1)), cap))


momentum_cases = [
    momentum_case(
        "constants by join_schedules",
        {"step": {"epochs": [2.0, 4.5], "values": [0.95, 0.98]}},
        0.9,
        of_optax(
            optax.join_schedules(
                [optax.constant_schedule(m) for m in (0.9, 0.95, 0.98)],
                # Update 22.5 is reached by update 23.
                [10, 23],
            )
        ),
    ),
    momentum_case(
        "linear_schedule",
        {"linear": {"start": 0.5, "epochs": 4.0}},
        0.9,
        of_optax(optax.linear_schedule(0.5, 0.9, 20)),
    ),
    momentum_case(
        "the schedule of Sutskever et al. (formula), capped early",
        {"sutskever": {}},
        0.9,
        sutskever(0.9, 125),
        every=125,
    ),
    momentum_case(
        "the schedule of Sutskever et al. (formula), not capped",
        {"sutskever": {}},
        0.995,
        sutskever(0.995, 83),
        every=83,
    ),
]

path = Path(__file__).with_name("schedules.json")
path.write_text(
    json.dumps(
        {
            "script": Path(__file__).name,
            "torch": torch.__version__,
            "optax": optax.__version__,
            "numpy": np.__version__,
            "cases": cases,
            "momentum_cases": momentum_cases,
        },
        indent=1,
    )
    + "\n"
)
print(f"{path}: {len(cases)} cases of rates, {len(momentum_cases)} of momentum")
