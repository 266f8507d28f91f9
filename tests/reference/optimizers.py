"""Twenty updates of PyTorch's optimizers on given gradients, for tests/optimizers.rs.

    python tests/reference/optimizers.py      # needs torch; writes optimizers.json beside itself

Parameters, gradients and results lie in one flat vector, parameter after parameter, row-major.
Gradients do not depend on the parameters, so that each rule sees the same ones. Every number is
a float32, so that both precisions start from the same values.
"""

import json
from pathlib import Path

import torch

STEPS = 20
PARAMETERS = [
    ("dense.weight", "dense", (4, 3)),
    ("dense.bias", "bias", (4,)),
    ("norm.weight", "normalization-scale", (4,)),
    ("norm.bias", "normalization-shift", (4,)),
    ("conv.weight", "convolution", (2, 1, 3, 3)),
    ("conv.bias", "bias", (2,)),
]
DECAYING = {"dense", "convolution"}

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
# Name; batchlab's [optimizer]; learning rate; PyTorch's class and arguments; roles that decay.
CASES = [
    ("sgd", {"sgd": {}}, 0.1, SGD, {}, None),
    ("sgd with weight decay", {"sgd": {"weight_decay": 0.05}}, 0.1, SGD, {"weight_decay": 0.05}, None),
    ("momentum", {"momentum": {}}, 0.05, SGD, {"momentum": 0.9}, None),
    (
        "momentum with weight decay",
        {"momentum": {"momentum": 0.8, "weight_decay": 0.05}},
        0.05,
        SGD,
        {"momentum": 0.8, "weight_decay": 0.05},
        None,
    ),
    (
        "momentum with weight decay of weights alone",
        {"momentum": {"weight_decay": 0.05, "weight_decay_roles": ["dense", "convolution"]}},
        0.05,
        SGD,
        {"momentum": 0.9, "weight_decay": 0.05},
        DECAYING,
    ),
    ("nesterov", {"nesterov": {}}, 0.05, SGD, {"momentum": 0.9, "nesterov": True}, None),
    (
        "nesterov with weight decay",
        {"nesterov": {"momentum": 0.7, "weight_decay": 0.05}},
        0.05,
        SGD,
        {"momentum": 0.7, "weight_decay": 0.05, "nesterov": True},
        None,
    ),
    ("adamw", {"adamw": {}}, 0.01, ADAMW, {}, None),
    (
        "adamw with other coefficients",
        {"adamw": {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.3}},
        0.02,
        ADAMW,
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3},
        None,
    ),
    (
        "adamw with weight decay of weights alone",
        {"adamw": {"weight_decay": 0.3, "weight_decay_roles": ["dense", "convolution"]}},
        0.02,
        ADAMW,
        {"weight_decay": 0.3},
        DECAYING,
    ),
]

generator = torch.Generator().manual_seed(0)
initial = [torch.randn(shape, generator=generator) for _, _, shape in PARAMETERS]
# Gradients of different sizes in different places and at different times, one of them always 0.
gradients = []
for step in range(STEPS):
    now = [torch.randn(shape, generator=generator) * 10.0 ** (i % 3 - 1) for i, (_, _, shape) in enumerate(PARAMETERS)]
    now[1][2] = 0.0
    gradients.append([g * (1 + step % 4) for g in now])


def flat(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).tolist()


def run(dtype, lr, build, arguments, decaying):
    """Parameters after each update."""
    parameters = [p.to(dtype).clone().requires_grad_() for p in initial]
    groups = [{"params": parameters}]
    if decaying is not None:
        roles = [role for _, role, _ in PARAMETERS]
        groups = [
            {"params": [p for p, role in zip(parameters, roles) if role in decaying]},
            {"params": [p for p, role in zip(parameters, roles) if role not in decaying], "weight_decay": 0.0},
        ]
    optimizer = build(groups, lr=lr, **arguments)
    history = []
    for step in range(STEPS):
        for p, g in zip(parameters, gradients[step]):
            p.grad = g.to(dtype)
        # A rate that changes from step to step, so that where it enters the rule matters.
        for group in optimizer.param_groups:
            group["lr"] = rate(lr, step)
        optimizer.step()
        history.append(flat(parameters))
    return history


def rate(lr, step):
    return lr * (1 - 0.5 * step / STEPS)


cases = []
for name, config, lr, build, arguments, decaying in CASES:
    f64 = run(torch.float64, lr, build, arguments, decaying)
    f32 = run(torch.float32, lr, build, arguments, decaying)
    scale = max(abs(x) for x in f64[-1])
    print(f"{name:45} f32 against f64: {max(abs(a - b) for a, b in zip(f32[-1], f64[-1])) / scale:.1e}")
    cases.append(
        {
            "name": name,
            "optimizer": config,
            "rates": [rate(lr, step) for step in range(STEPS)],
            "after": {"1": f64[0], "2": f64[1], str(STEPS): f64[-1]},
        }
    )

path = Path(__file__).with_name("optimizers.json")
path.write_text(
    json.dumps(
        {
            "script": Path(__file__).name,
            "torch": torch.__version__,
            "precision": "float64",
            "parameters": [{"name": n, "role": r, "shape": list(s)} for n, r, s in PARAMETERS],
            "initial": flat(initial),
            "gradients": [flat(g) for g in gradients],
            "cases": cases,
        }
    )
    + "\n"
)
print(path, path.stat().st_size, "bytes")
