"""Loss and gradients of normalized models in PyTorch, for the tests of normalization.

    python tests/reference/normalization.py    # needs torch, numpy, safetensors

Writes beside itself:

    normalization.safetensors   per case `<case>.weights.<parameter>` (float32, multiples of 2^-12, so that both
                                precisions hold them exactly) and `<case>.gradients.<parameter>` (float64), named and
                                laid out as in the modules below.
    normalization.json          per case: its model, normalization, batch and groups, and the loss in float64.

Inputs are the first examples of `batches.safetensors` (byte / 16). Batch statistics are those of chunks of the batch,
each normalized by PyTorch's own `batch_norm` in training mode. Weight normalization is
`torch.nn.utils.parametrizations.weight_norm`; its weights are loaded as `weight_g` and `weight_v`, and its gradients
are saved under those names. Layer normalization of images is `GroupNorm(1, channels)`, of dense features `LayerNorm`.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

HERE = Path(__file__).parent
EXAMPLES = 17


class GhostBatchNorm(nn.Module):
    """Batch normalization by groups of the given sizes."""

    def __init__(self, channels, sizes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.sizes = sizes

    def forward(self, x):
        parts = [
            functional.batch_norm(part, None, None, self.weight, self.bias, training=True)
            for part in x.split(self.sizes)
        ]
        return torch.cat(parts)


def norm(kind, channels, sizes, image):
    if kind == "batch":
        return GhostBatchNorm(channels, sizes)
    if kind == "layer":
        return nn.GroupNorm(1, channels) if image else nn.LayerNorm(channels)
    if kind == "group":
        return nn.GroupNorm(2, channels)
    return nn.Identity()


class Mlp(nn.Module):
    def __init__(self, kind, sizes, widths=(64, 12, 8, 10)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(norm(kind, width, sizes, False) for width in widths[1:-1])

    def forward(self, x):
        x = x.flatten(1)
        for layer, normalize in zip(self.layers, self.norms):
            x = functional.relu(normalize(layer(x)))
        return self.layers[-1](x)


class SimpleCnn(nn.Module):
    def __init__(self, kind, sizes, channels=(2, 4), dense=8, size=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], 5, padding=2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=2)
        self.dense1 = nn.Linear(channels[1] * (size // 4) ** 2, dense)
        self.dense2 = nn.Linear(dense, 10)
        widths = [(channels[0], True), (channels[1], True), (dense, False)]
        self.norms = nn.ModuleList(norm(kind, width, sizes, image) for width, image in widths)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norms[0](self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.norms[1](self.conv2(x))), 2)
        x = functional.relu(self.norms[2](self.dense1(x.flatten(1))))
        return self.dense2(x)


class Block(nn.Module):
    def __init__(self, kind, sizes, inputs, outputs, stride):
        super().__init__()
        bias = kind in ("none", "weight")
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=bias)
        self.bn1 = norm(kind, outputs, sizes, True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=bias)
        self.bn2 = norm(kind, outputs, sizes, True)
        self.stride = stride
        self.pad = (outputs - inputs) // 2

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.stride != 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return functional.relu(out + x)


class Resnet(nn.Module):
    """CIFAR ResNet-8."""

    def __init__(self, kind, sizes, width=2):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=kind in ("none", "weight"))
        self.bn1 = norm(kind, width, sizes, True)
        self.layer1 = nn.Sequential(Block(kind, sizes, width, width, 1))
        self.layer2 = nn.Sequential(Block(kind, sizes, width, 2 * width, 2))
        self.layer3 = nn.Sequential(Block(kind, sizes, 2 * width, 4 * width, 2))
        self.linear = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


MODELS = {"mlp": (Mlp, "digits"), "cnn": (SimpleCnn, "digits"), "resnet": (Resnet, "images")}
# Name; batchlab's normalization; groups of the batch.
CASES = [
    ("none", "none", [17]),
    ("batch", "batch", [17]),
    ("batch", "batch", [5, 5, 7]),
    ("batch", "batch", [6, 6, 5]),
    ("layer", "layer", [17]),
    ("group", {"group": {"groups": 2}}, [17]),
    ("weight", {"weight": {"data_dependent": False}}, [17]),
]


def short(name):
    """The name in the file: both of PyTorch's weight normalizations load `weight_g` and `weight_v`."""
    name = name.replace("parametrizations.weight.original0", "weight_g")
    return name.replace("parametrizations.weight.original1", "weight_v")


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    batches = load_file(HERE / "batches.safetensors")
    tensors, cases = {}, []
    for model, (build, examples) in MODELS.items():
        inputs = batches[f"{examples}.inputs"][:EXAMPLES].double() / 16
        labels = batches[f"{examples}.labels"][:EXAMPLES].long()
        for kind, normalization, sizes in CASES:
            torch.manual_seed(1)
            module = build(kind, sizes)
            if kind == "weight":
                for layer in [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]:
                    weight_norm(layer)
            weights = {}
            for name, p in module.named_parameters():
                # Scales near 1, everything else near 0; not what a model starts with.
                scale = p.dim() == 1 and name.endswith("weight")
                scale = scale or name.endswith("original0")
                spread = 0.3 if p.dim() == 1 or scale else 1.5 / p[0].numel() ** 0.5
                value = spread * torch.randn(p.shape) + (1.0 if scale else 0.0)
                weights[short(name)] = torch.round(value * 2**12) / 2**12
            module.double().load_state_dict({name: w.double() for name, w in weights.items()})
            loss = functional.cross_entropy(module(inputs), labels)
            loss.backward()
            case = f"{model}.{len(cases)}"
            for name, w in weights.items():
                tensors[f"{case}.weights.{name}"] = w
            for name, p in module.named_parameters():
                tensors[f"{case}.gradients.{short(name)}"] = p.grad.clone()
            print(f"{case:12} {kind:8} {sizes!s:12} loss {loss.item():.6f}")
            cases.append(
                {
                    "case": case,
                    "model": model,
                    "normalization": normalization,
                    "examples": examples,
                    "groups": sizes,
                    "loss": loss.item(),
                }
            )
    save_file(tensors, HERE / "normalization.safetensors")
    about = {"script": Path(__file__).name, "torch": torch.__version__, "cases": cases}
    (HERE / "normalization.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
