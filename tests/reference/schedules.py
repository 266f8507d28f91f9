"""Learning rates of PyTorch's schedulers, for src/schedule/learning_rate.rs.

    python tests/reference/schedules.py      # needs torch; writes schedules.json beside itself

Each case names a batchlab configuration and the rates of the first `total_steps` updates of the
PyTorch scheduler that means the same.
"""

import json
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler as scheduler

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


def case(name, learning_rate, rates, steps_per_epoch=5.0, global_batch=32):
    return {
        "name": name,
        "learning_rate": learning_rate,
        "global_batch": global_batch,
        "total_steps": STEPS,
        "steps_per_epoch": steps_per_epoch,
        "rates": rates,
    }


def warm(optimizer, after):
    """Gradual warm-up over 8 updates from a quarter of the rate, then `after`."""
    first = scheduler.LinearLR(optimizer, start_factor=0.25, end_factor=1.0, total_iters=8)
    return scheduler.SequentialLR(optimizer, [first, after], milestones=[8])


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
]

path = Path(__file__).with_name("schedules.json")
path.write_text(
    json.dumps({"script": Path(__file__).name, "torch": torch.__version__, "cases": cases}, indent=1)
    + "\n"
)
print(f"{path}: {len(cases)} cases")
