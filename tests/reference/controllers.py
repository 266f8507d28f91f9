"""What cockpit and PyTorch say about the gradients of one batch, for tests/controllers.rs.

    python tests/reference/controllers.py     # needs torch, cockpit-for-pytorch 1.0.2, setuptools < 81
                                              # writes controllers.json beside itself

The model is softmax regression in float64: weight [classes, features] and bias [classes], in one flat
vector in this order, row-major; the loss is the mean cross entropy of the batch.

    cockpit     its CABS, NormTest, InnerTest and OrthoTest, each an example a gradient. CABS is the batch it
                suggests (with the variance over B, not B - 1); the tests are the largest theta (or nu) at
                which they would fail, so theta^2 = variance/(B |g|^2), variance/(B |g|^4), variance/(B |g|^2).
    pieces      the batch in pieces of unequal sizes: tr(H Sigma), from the dense Hessian and covariance.
    hessian     of the batch, by PyTorch's second derivatives.
"""

import json
import warnings
from pathlib import Path

import torch
from torch import nn

warnings.filterwarnings("ignore")
from backpack import extend  # noqa: E402
from cockpit import Cockpit, quantities  # noqa: E402

EXAMPLES, FEATURES, CLASSES, RATE = 12, 4, 3, 0.3
SIZES = [1, 2, 4, 5]

torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(EXAMPLES, FEATURES, generator=generator)
labels = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
start = torch.randn(CLASSES * FEATURES + CLASSES, generator=generator)


def loss_at(flat, inputs, labels):
    weight = flat[: CLASSES * FEATURES].reshape(CLASSES, FEATURES)
    return nn.functional.cross_entropy(inputs @ weight.T + flat[CLASSES * FEATURES :], labels)


def gradient(rows):
    flat = start.clone().requires_grad_()
    return torch.autograd.grad(loss_at(flat, inputs[rows], labels[rows]), flat)[0]


def by_cockpit():
    model = extend(nn.Linear(FEATURES, CLASSES))
    with torch.no_grad():
        model.weight.copy_(start[: CLASSES * FEATURES].reshape(CLASSES, FEATURES))
        model.bias.copy_(start[CLASSES * FEATURES :])
    individual, mean = extend(nn.CrossEntropyLoss(reduction="none")), extend(nn.CrossEntropyLoss())
    names = {"cabs": "CABS", "norm_test": "NormTest", "inner_test": "InnerTest", "ortho_test": "OrthoTest"}
    cockpit = Cockpit(model.parameters(), [getattr(quantities, name)(lambda step: True) for name in names.values()])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, loss = individual(model(inputs), labels), mean(model(inputs), labels)
    info = {"batch_size": EXAMPLES, "individual_losses": losses, "loss": loss, "optimizer": optimizer}
    with cockpit(0, info=info):
        loss.backward(create_graph=cockpit.create_graph(0))
    return {key: cockpit.get_output()[0][name] for key, name in names.items()}


hessian = torch.autograd.functional.hessian(lambda flat: loss_at(flat, inputs, labels), start)
full = gradient(slice(None))
ends = [sum(SIZES[: i + 1]) for i in range(len(SIZES))]
pieces = [gradient(slice(end - size, end)) for size, end in zip(SIZES, ends)]
covariance = sum(n * torch.outer(g - full, g - full) for n, g in zip(SIZES, pieces)) / (len(SIZES) - 1)

(Path(__file__).parent / "controllers.json").write_text(
    json.dumps(
        {
            "features": FEATURES,
            "classes": CLASSES,
            "rate": RATE,
            "inputs": inputs.flatten().tolist(),
            "labels": labels.tolist(),
            "parameters": start.tolist(),
            "loss": loss_at(start, inputs, labels).item(),
            "cockpit": by_cockpit(),
            "pieces": {
                "sizes": SIZES,
                "tr_sigma": covariance.trace().item(),
                "inner_variance": (full @ covariance @ full).item(),
                "tr_h_sigma": (hessian @ covariance).trace().item(),
            },
            "ghg": (full @ hessian @ full).item(),
            "hessian": hessian.flatten().tolist(),
            "eigenvalues": torch.linalg.eigvalsh(hessian).tolist(),
        },
        indent=1,
    )
    + "\n"
)
