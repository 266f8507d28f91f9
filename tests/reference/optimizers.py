"""Twenty updates of torch's, timm's and optax's optimizers on given gradients, for tests/optimizers.rs.

    pip install torch timm optax      # what wrote optimizers.json stands in it
    python tests/reference/optimizers.py      # writes optimizers.json beside itself

Parameters, gradients and results lie in one flat vector, parameter after parameter, row-major.
Gradients do not depend on the parameters, so that each rule sees the same ones. Every number is
a float32, so that both precisions start from the same values.
"""

import json
import os
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import optax
import timm
import torch
from timm.optim import Lamb, Lars, Lion

STEPS = 20
PARAMETERS = [
    ("dense.weight", "dense", (4, 3)),
    ("dense.bias", "bias", (4,)),
    ("norm.weight", "normalization-scale", (4,)),
    ("norm.bias", "normalization-shift", (4,)),
    ("conv.weight", "convolution", (2, 1, 3, 3)),
    ("conv.bias", "bias", (2,)),
    ("embedding.weight", "embedding", (5, 2)),
    ("zero", "other", (3,)),
    ("idle", "other", (2,)),
]
ROLES = [role for _, role, _ in PARAMETERS]
START_AT_ZERO = {"zero", "idle"}
WITHOUT_GRADIENT = {"embedding.weight", "idle"}
EVERY = set(ROLES)
VECTORS = {"bias", "normalization-scale", "normalization-shift"}
WEIGHTS = EVERY - VECTORS
DENSE = {"dense", "convolution"}

generator = torch.Generator().manual_seed(0)
initial = [torch.randn(shape, generator=generator) for _, _, shape in PARAMETERS]
for tensor, (name, _, _) in zip(initial, PARAMETERS):
    if name in START_AT_ZERO:
        tensor.zero_()
# Gradients of different sizes in different places and at different times, one of them always 0.
gradients = []
for step in range(STEPS):
    now = [torch.randn(shape, generator=generator) * 10.0 ** (i % 3 - 1) for i, (_, _, shape) in enumerate(PARAMETERS)]
    now[1][2] = 0.0
    for tensor, (name, _, _) in zip(now, PARAMETERS):
        if name in WITHOUT_GRADIENT:
            tensor.zero_()
    gradients.append([g * (1 + step % 4) for g in now])
norms = [float(sum((g.double() ** 2).sum() for g in now)) ** 0.5 for now in gradients]
CLIP = float(np.float32(np.median(norms)))  # clips every other update


def flat(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).tolist()


def falling(lr):
    """A rate that changes from step to step, so that where it enters the rule matters."""
    return [lr * (1 - 0.5 * step / STEPS) for step in range(STEPS)]


def with_torch(build, special=None, **arguments):
    """Parameters after each update of a torch (or timm) optimizer.

    `special` is a set of roles and what their group has in place of `arguments`.
    """

    def run(dtype, rates, momenta):
        parameters = [p.to(getattr(torch, dtype)).clone().requires_grad_() for p in initial]
        groups = [{"params": parameters}]
        if special is not None:
            roles, changed = special
            groups = [
                {"params": [p for p, role in zip(parameters, ROLES) if role not in roles]},
                {"params": [p for p, role in zip(parameters, ROLES) if role in roles], **changed},
            ]
        optimizer = build(groups, lr=rates[0], **arguments)
        history = []
        for step in range(STEPS):
            for p, g in zip(parameters, gradients[step]):
                p.grad = g.to(p.dtype)
            for group in optimizer.param_groups:
                group["lr"] = rates[step]
                if momenta:
                    group["momentum"] = momenta[step]
            optimizer.step()
            history.append(flat(parameters))
        return history

    return run


def with_optax(build):
    """Parameters after each update of the optax transformation `build(rate)`, or
    `build(rate, momentum)` where the momentum changes. Each update has a transformation of its own;
    the state goes on."""

    def run(dtype, rates, momenta):
        parameters = [jnp.asarray(p.numpy(), dtype=dtype) for p in initial]
        state, history = None, []
        for step in range(STEPS):
            transformation = build(rates[step], momenta[step]) if momenta else build(rates[step])
            if state is None:
                state = transformation.init(parameters)
            now = [jnp.asarray(g.numpy(), dtype=dtype) for g in gradients[step]]
            updates, state = transformation.update(now, state, parameters)
            parameters = optax.apply_updates(parameters, updates)
            history.append(np.concatenate([np.asarray(p, dtype="float64").ravel() for p in parameters]).tolist())
        return history

    return run


def mask(roles):
    return [role in roles for role in ROLES]


def inside(decay=0.0, roles=EVERY, momentum=0.9, nesterov=False):
    """Momentum with the rate inside the velocity: Caffe's solver, in optax's parts."""
    return with_optax(
        lambda lr, m=momentum: optax.chain(
            optax.add_decayed_weights(decay, mask(roles)),
            optax.scale_by_learning_rate(lr),
            optax.trace(m, nesterov),
        )
    )


def lars(momentum=0.9, decay_roles=WEIGHTS, ratio_roles=WEIGHTS, **arguments):
    return with_optax(
        lambda lr, m=momentum: optax.lars(
            lr,
            momentum=m,
            weight_decay_mask=mask(decay_roles),
            trust_ratio_mask=mask(ratio_roles),
            **arguments,
        )
    )


def lamb_excluding(roles, exclude):
    return with_optax(
        lambda lr: optax.chain(
            optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-6),
            optax.add_decayed_weights(0.1, mask(roles)),
            optax.masked(optax.scale_by_trust_ratio(), mask(EVERY - exclude)),
            optax.scale_by_learning_rate(lr),
        )
    )


def clipped(build):
    return with_optax(lambda lr: optax.chain(optax.clip_by_global_norm(CLIP), build(lr)))


SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
# A momentum that changes from step to step.
MOMENTA = [0.5 + 0.02 * step for step in range(STEPS)]
# timm's LARS has its rate outside the velocity, batchlab's inside: equal at a constant rate.
CONSTANT = [0.5] * STEPS
# What timm does to a parameter it adapts, and to one it does not.
ADAPT = {"always_adapt": True}
SPARE = {"weight_decay": 0.0, "always_adapt": False}

cases = []


def case(name, optimizer, rates, run, momenta=None, clip_norm=None):
    f64, f32 = run("float64", rates, momenta), run("float32", rates, momenta)
    scale = max(abs(x) for x in f64[-1])
    assert np.isfinite(f64).all()
    print(f"{name:55} f32 against f64: {max(abs(a - b) for a, b in zip(f32[-1], f64[-1])) / scale:.1e}")
    cases.append(
        {
            "name": name,
            "optimizer": optimizer,
            "rates": rates,
            **({"momenta": momenta} if momenta else {}),
            **({"clip_norm": clip_norm} if clip_norm else {}),
            "after": {"1": f64[0], "2": f64[1], str(STEPS): f64[-1]},
        }
    )


rates = falling(0.1)
case("sgd: torch", {"sgd": {}}, rates, with_torch(SGD))
case(
    "sgd, weight decay: torch",
    {"sgd": {"weight_decay": 0.05}},
    rates,
    with_torch(SGD, weight_decay=0.05),
)
case("sgd, clipped: optax", {"sgd": {}}, rates, clipped(optax.sgd), clip_norm=CLIP)

rates = falling(0.05)
case("momentum: torch", {"momentum": {}}, rates, with_torch(SGD, momentum=0.9))
case(
    "momentum, weight decay: torch",
    {"momentum": {"momentum": 0.8, "weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.8, weight_decay=0.05),
)
case(
    "momentum, weight decay of some roles: torch",
    {"momentum": {"weight_decay": 0.05, "weight_decay_roles": ["dense", "convolution"]}},
    rates,
    with_torch(SGD, (EVERY - DENSE, {"weight_decay": 0.0}), momentum=0.9, weight_decay=0.05),
)
case(
    "momentum that changes: torch",
    {"momentum": {"weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.9, weight_decay=0.05),
    momenta=MOMENTA,
)
case(
    "momentum inside, corrected, is momentum outside: torch",
    {"momentum": {"form": "inside", "weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.9, weight_decay=0.05),
)
case(
    "momentum inside, corrected, that changes: torch",
    {"momentum": {"form": "inside", "weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.9, weight_decay=0.05),
    momenta=MOMENTA,
)
case(
    "momentum inside: optax",
    {"momentum": {"form": "inside", "correction": False}},
    rates,
    inside(),
)
case(
    "momentum inside, weight decay of some roles: optax",
    {
        "momentum": {
            "form": "inside",
            "correction": False,
            "momentum": 0.8,
            "weight_decay": 0.05,
            "weight_decay_roles": ["dense", "convolution"],
        }
    },
    rates,
    inside(0.05, DENSE, momentum=0.8),
)
case(
    "momentum inside that changes: optax",
    {"momentum": {"form": "inside", "correction": False}},
    rates,
    inside(),
    momenta=MOMENTA,
)
case(
    "momentum, weight decay, clipped: optax",
    {"momentum": {"weight_decay": 0.05}},
    rates,
    clipped(lambda lr: optax.chain(optax.add_decayed_weights(0.05), optax.sgd(lr, momentum=0.9))),
    clip_norm=CLIP,
)

case("nesterov: torch", {"nesterov": {}}, rates, with_torch(SGD, momentum=0.9, nesterov=True))
case(
    "nesterov, weight decay: torch",
    {"nesterov": {"momentum": 0.7, "weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.7, weight_decay=0.05, nesterov=True),
)
case(
    "nesterov that changes: torch",
    {"nesterov": {"weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.9, weight_decay=0.05, nesterov=True),
    momenta=MOMENTA,
)
case(
    "nesterov inside, corrected, is nesterov outside: torch",
    {"nesterov": {"form": "inside", "weight_decay": 0.05}},
    rates,
    with_torch(SGD, momentum=0.9, weight_decay=0.05, nesterov=True),
)
case(
    "nesterov inside: optax",
    {"nesterov": {"form": "inside", "correction": False, "weight_decay": 0.05}},
    rates,
    inside(0.05, nesterov=True),
)

case("adamw: torch", {"adamw": {}}, falling(0.01), with_torch(ADAMW))
case(
    "adamw, other coefficients: torch",
    {"adamw": {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.3}},
    falling(0.02),
    with_torch(ADAMW, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3),
)
case(
    "adamw, weight decay of some roles: torch",
    {"adamw": {"weight_decay": 0.3, "weight_decay_roles": ["dense", "convolution"]}},
    falling(0.02),
    with_torch(ADAMW, (EVERY - DENSE, {"weight_decay": 0.0}), weight_decay=0.3),
)
case(
    "adamw, clipped: optax",
    {"adamw": {}},
    falling(0.01),
    clipped(lambda lr: optax.adamw(lr, weight_decay=0.01)),
    clip_norm=CLIP,
)

rates = falling(0.5)
case("lars: optax", {"lars": {}}, rates, lars())
case(
    "lars, joint norms: optax",
    {"lars": {"norms": "joint", "weight_decay": 0.3, "trust_coefficient": 0.05}},
    rates,
    lars(weight_decay=0.3, trust_coefficient=0.05),
)
case(
    "lars, joint norms, nesterov, other roles: optax",
    {
        "lars": {
            "norms": "joint",
            "momentum": 0.7,
            "nesterov": True,
            "weight_decay": 0.3,
            "weight_decay_roles": ["dense", "bias", "embedding"],
            "exclude_roles": ["convolution"],
            "trust_coefficient": 0.05,
            "epsilon": 0.1,
        }
    },
    rates,
    lars(
        0.7,
        {"dense", "bias", "embedding"},
        EVERY - {"convolution"},
        weight_decay=0.3,
        trust_coefficient=0.05,
        eps=0.1,
        nesterov=True,
    ),
)
case(
    "lars, joint norms, momentum that changes: optax",
    {"lars": {"norms": "joint", "weight_decay": 0.3}},
    rates,
    lars(weight_decay=0.3),
    momenta=MOMENTA,
)
case(
    "lars, joint norms, clipped gradient: optax",
    {"lars": {"norms": "joint", "weight_decay": 0.3, "epsilon": 0.1, "trust_coefficient": 0.05}},
    rates,
    clipped(
        lambda lr: optax.lars(
            lr,
            weight_decay=0.3,
            eps=0.1,
            trust_coefficient=0.05,
            weight_decay_mask=mask(WEIGHTS),
            trust_ratio_mask=mask(WEIGHTS),
        )
    ),
    clip_norm=CLIP,
)
case(
    "lars, separate norms: timm",
    {"lars": {"weight_decay": 0.3, "trust_coefficient": 0.05}},
    CONSTANT,
    with_torch(Lars, (VECTORS, SPARE), momentum=0.9, weight_decay=0.3, trust_coeff=0.05, eps=0.0, **ADAPT),
)
case(
    "lars, separate norms, no role excluded, nesterov: timm",
    {
        "lars": {
            "momentum": 0.7,
            "nesterov": True,
            "weight_decay": 0.3,
            "exclude_roles": [],
            "epsilon": 0.1,
            "trust_coefficient": 0.05,
        }
    },
    CONSTANT,
    with_torch(
        Lars,
        (VECTORS, {"weight_decay": 0.0}),
        momentum=0.7,
        nesterov=True,
        weight_decay=0.3,
        trust_coeff=0.05,
        eps=0.1,
        **ADAPT,
    ),
)
case(
    "lars, separate norms, ratio clipped: timm",
    {"lars": {"clip": True, "weight_decay": 0.3, "trust_coefficient": 0.25}},
    CONSTANT,
    with_torch(
        Lars, (VECTORS, SPARE), momentum=0.9, weight_decay=0.3, trust_coeff=0.25, eps=0.0, trust_clip=True, **ADAPT
    ),
)

rates = falling(0.1)
case("lamb: optax", {"lamb": {}}, rates, with_optax(optax.lamb))
case(
    "lamb, weight decay: optax",
    {"lamb": {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.3}},
    rates,
    with_optax(lambda lr: optax.lamb(lr, 0.8, 0.95, eps=1e-3, weight_decay=0.3, mask=mask(WEIGHTS))),
)
case(
    "lamb, other roles: optax",
    {
        "lamb": {
            "weight_decay": 0.1,
            "weight_decay_roles": ["bias", "convolution"],
            "exclude_roles": ["bias", "normalization-scale"],
        }
    },
    rates,
    lamb_excluding({"bias", "convolution"}, {"bias", "normalization-scale"}),
)
case(
    "lamb, weight decay, clipped gradient: timm",
    {"lamb": {"weight_decay": 0.3}},
    rates,
    with_torch(Lamb, (VECTORS, {"weight_decay": 0.0}), weight_decay=0.3, max_grad_norm=CLIP, **ADAPT),
    clip_norm=CLIP,
)
case(
    "lamb, ratio clipped: timm",
    {"lamb": {"clip": True, "weight_decay": 0.3}},
    rates,
    with_torch(
        Lamb, (VECTORS, {"weight_decay": 0.0}), weight_decay=0.3, trust_clip=True, max_grad_norm=None, **ADAPT
    ),
)

rates = falling(0.02)
case("lion: optax", {"lion": {}}, rates, with_optax(lambda lr: optax.lion(lr, weight_decay=0.0)))
case(
    "lion, weight decay of some roles: optax",
    {
        "lion": {
            "beta1": 0.8,
            "beta2": 0.95,
            "weight_decay": 0.3,
            "weight_decay_roles": ["dense", "convolution"],
        }
    },
    rates,
    with_optax(lambda lr: optax.lion(lr, 0.8, 0.95, weight_decay=0.3, mask=mask(DENSE))),
)
case(
    "lion, clipped: optax",
    {"lion": {"weight_decay": 0.3}},
    rates,
    clipped(lambda lr: optax.lion(lr, weight_decay=0.3)),
    clip_norm=CLIP,
)
case(
    "lion, weight decay: timm",
    {"lion": {"weight_decay": 0.3}},
    rates,
    with_torch(Lion, weight_decay=0.3),
)

path = Path(__file__).with_name("optimizers.json")
path.write_text(
    json.dumps(
        {
            "script": Path(__file__).name,
            "torch": torch.__version__,
            "timm": timm.__version__,
            "optax": optax.__version__,
            "jax": jax.__version__,
            "precision": "float64",
            "parameters": [{"name": n, "role": r, "shape": list(s)} for n, r, s in PARAMETERS],
            "initial": flat(initial),
            "gradients": [flat(g) for g in gradients],
            "cases": cases,
        }
    )
    + "\n"
)
print(path, path.stat().st_size, "bytes,", len(cases), "cases")
