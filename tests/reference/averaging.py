"""Averages of a random walk by torch.optim.swa_utils, for tests/optimizers.rs.

    pip install torch && python tests/reference/averaging.py      # writes averaging.json beside itself

The walk has 20 updates of 1/5 of an epoch. Every position is a float32, so that both precisions
see the same values.
"""

import json
from fractions import Fraction
from pathlib import Path

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

torch.set_default_dtype(torch.float64)  # for the weight 1/(n + 1), which is a tensor
STEPS, EPOCH = 20, Fraction(1, 5)
generator = torch.Generator().manual_seed(1)
walk = [torch.randn(7, generator=generator, dtype=torch.float32)]
for step in range(STEPS):
    walk.append(walk[-1] + 0.3 * torch.randn(7, generator=generator, dtype=torch.float32))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(walk[0].double())


def ema(decay):
    model = Model()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.update_parameters(model)  # the first call copies
    history = []
    for position in walk[1:]:
        model.weight.data = position.double()
        average.update_parameters(model)
        history.append(average.module.weight.tolist())
    return history


def swa(start, every):
    """Averages the parameters of the first update that reaches each of start, start + every, ..."""
    due = {-(-(start + k * every) // EPOCH) for k in range(1000)}
    model = Model()
    average = AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())
    history = []
    for step, position in enumerate(walk):
        model.weight.data = position.double()
        if step in due:
            average.update_parameters(model)
        history.append((average.module.weight if average.n_averaged > 0 else model.weight).tolist())
    return history[1:]


cases = []
for decay in [0.0, 0.6, 0.99]:
    cases.append(({"ema": {"decay": decay}}, ema(decay)))
for start, every in [("0", "1"), ("3/2", "1/2"), ("7/10", "3/10"), ("13/10", "1/10"), ("2", "3/5"), ("9", "1")]:
    start, every = Fraction(start), Fraction(every)
    cases.append(({"swa": {"start_epoch": float(start), "every_epochs": float(every)}}, swa(start, every)))

path = Path(__file__).with_name("averaging.json")
path.write_text(
    json.dumps(
        {
            "script": Path(__file__).name,
            "torch": torch.__version__,
            "updates_per_epoch": int(1 / EPOCH),
            "walk": [position.double().tolist() for position in walk],
            "cases": [{"averaging": averaging, "after": history} for averaging, history in cases],
        }
    )
    + "\n"
)
print(path, path.stat().st_size, "bytes")
