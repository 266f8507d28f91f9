"""Twenty training steps in PyTorch, for the tests of whole training steps.

    python tests/reference/training.py    # needs torch, numpy, safetensors, scikit-learn

Writes beside itself:

    batches.safetensors   20 batches of 16 examples, in order. `digits.inputs` [320, 1, 8, 8] and `images.inputs`
                          [320, 3, 8, 8] are bytes 0 to 16: an input is byte / 16. `digits.labels`, `images.labels`.
    mlp.safetensors, cnn.safetensors, resnet.safetensors
                          initial weights (float32), named and laid out as in the modules below.
    training.json         per model and optimizer: the loss of each step (mean cross entropy of its batch before
                          its update, in nats), the mean loss over all 320 examples after the last update, and the
                          Euclidean norm of the final parameters. In float64; in float32 as well for comparison.

The MLP flattens its inputs and is run twice from the same weights, with ReLU and with tanh. The ResNet is in
training mode throughout (batch statistics); as "two workers" each batch is cut into two halves of 8 with
batch statistics of their own, and the gradient is the mean of theirs.
"""

import json
from pathlib import Path

import numpy
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

STEPS, BATCH = 20, 16
HERE = Path(__file__).parent

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
# Name; batchlab's [optimizer]; learning rate; PyTorch's class and arguments.
OPTIMIZERS = [
    ("sgd", {"sgd": {}}, 0.1, SGD, {}),
    ("momentum", {"momentum": {"momentum": 0.9}}, 0.05, SGD, {"momentum": 0.9}),
    ("nesterov", {"nesterov": {"momentum": 0.9}}, 0.05, SGD, {"momentum": 0.9, "nesterov": True}),
    (
        "momentum with weight decay",
        {"momentum": {"momentum": 0.9, "weight_decay": 0.03}},
        0.05,
        SGD,
        {"momentum": 0.9, "weight_decay": 0.03},
    ),
    ("adamw", {"adamw": {"weight_decay": 0.1}}, 0.01, ADAMW, {"weight_decay": 0.1}),
]


class Mlp(nn.Module):
    def __init__(self, widths, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
        self.activation = activation

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class SimpleCnn(nn.Module):
    """The simple CNN of Shallue et al. 2018, narrow, on 8x8 images."""

    def __init__(self, channels=(4, 8), dense=32, size=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], 5, padding=2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=2)
        self.dense1 = nn.Linear(channels[1] * (size // 4) ** 2, dense)
        self.dense2 = nn.Linear(dense, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.dense1(x.flatten(1)))
        return self.dense2(x)


class Block(nn.Module):
    """Two 3x3 convolutions and a parameter-free shortcut (He et al. 2016, option A): where the block halves the
    image and doubles the channels, every second pixel, and zeros for half of the new channels on each side."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.pad = (outputs - inputs) // 2

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.stride != 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return functional.relu(out + x)


class Resnet(nn.Module):
    """CIFAR ResNet-(6k+2)."""

    def __init__(self, depth=8, width=4):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self.stage(width, width, blocks, 1)
        self.layer2 = self.stage(width, 2 * width, blocks, 2)
        self.layer3 = self.stage(2 * width, 4 * width, blocks, 2)
        self.linear = nn.Linear(4 * width, 10)

    @staticmethod
    def stage(inputs, outputs, blocks, stride):
        first = Block(inputs, outputs, stride)
        return nn.Sequential(first, *(Block(outputs, outputs, 1) for _ in range(blocks - 1)))

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


def batches():
    """`digits`: the first 320 digits. `images`: the same in three channels (upright, transposed, mirrored) with
    uniform noise, clipped to the range of a digit's pixels."""
    digits = load_digits()
    upright = digits.images[: STEPS * BATCH].astype(numpy.int64)
    labels = torch.tensor(digits.target[: STEPS * BATCH])
    channels = numpy.stack([upright, upright.transpose(0, 2, 1), upright[:, :, ::-1]], axis=1)
    noise = numpy.random.default_rng(0).integers(-4, 5, channels.shape)
    images = numpy.clip(channels + noise, 0, 16)
    return {
        "digits": (torch.tensor(upright[:, None]), labels),
        "images": (torch.tensor(images), labels),
    }


def initial(build):
    """He normal weights (PyTorch's default is so small that the CNN would hardly move in 20 steps), biases as
    PyTorch draws them."""
    torch.manual_seed(0)
    weights = {}
    for name, p in build().named_parameters():
        if p.dim() > 1:
            nn.init.kaiming_normal_(p, nonlinearity="relu")
        weights[name] = p.detach().clone()
    return weights


def train(build, weights, examples, optimizer, dtype, workers=1):
    model = build().to(dtype).train()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    # Running statistics are not part of the weights.
    assert not unexpected and all("running" in name or "tracked" in name for name in missing)
    _, _, lr, rule, arguments = optimizer
    update = rule(model.parameters(), lr=lr, **arguments)
    inputs, labels = examples
    inputs = inputs.to(dtype) / 16
    losses = []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        shards = zip(inputs[part].chunk(workers), labels[part].chunk(workers))
        loss = sum(functional.cross_entropy(model(x), y) for x, y in shards) / workers
        update.zero_grad(set_to_none=True)
        loss.backward()
        update.step()
        losses.append(loss.item())
    result = {"losses": losses}
    if not any(isinstance(m, nn.BatchNorm2d) for m in model.modules()):
        with torch.no_grad():
            result["final_loss"] = functional.cross_entropy(model(inputs), labels).item()
    result["final_norm"] = nn.utils.parameters_to_vector(model.parameters()).double().norm().item()
    return result


def main():
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    examples = batches()
    tensors = {}
    for name, (inputs, labels) in examples.items():
        tensors[f"{name}.inputs"] = inputs.to(torch.uint8).contiguous()
        tensors[f"{name}.labels"] = labels.to(torch.uint8)
    save_file(tensors, HERE / "batches.safetensors")

    models = [
        ("mlp relu", "mlp", lambda: Mlp([64, 32, 16, 10], functional.relu), "digits", 1, OPTIMIZERS),
        ("mlp tanh", "mlp", lambda: Mlp([64, 32, 16, 10], torch.tanh), "digits", 1, OPTIMIZERS),
        ("cnn", "cnn", SimpleCnn, "digits", 1, OPTIMIZERS),
        ("resnet", "resnet", Resnet, "images", 1, OPTIMIZERS[1:2]),
        ("resnet, two workers", "resnet", Resnet, "images", 2, OPTIMIZERS[1:2]),
    ]
    runs, weights = [], {}
    for name, file, build, inputs, workers, optimizers in models:
        if file not in weights:
            weights[file] = initial(build)
            save_file(weights[file], HERE / f"{file}.safetensors")
        for optimizer in optimizers:
            f64 = train(build, weights[file], examples[inputs], optimizer, torch.float64, workers)
            f32 = train(build, weights[file], examples[inputs], optimizer, torch.float32, workers)
            worst = max(abs(a - b) / b for a, b in zip(f32["losses"], f64["losses"]))
            first, last = f64["losses"][0], f64["losses"][-1]
            print(f"{name:20} {optimizer[0]:28} {first:.4f} -> {last:.4f}  f32 within {worst:.1e}")
            runs.append(
                {
                    "model": name,
                    "weights": f"{file}.safetensors",
                    "examples": inputs,
                    "workers": workers,
                    "case": optimizer[0],
                    "optimizer": optimizer[1],
                    "learning_rate": optimizer[2],
                    "f64": f64,
                    "f32": f32,
                }
            )
    path = HERE / "training.json"
    about = {"script": Path(__file__).name, "torch": torch.__version__, "steps": STEPS, "batch": BATCH}
    path.write_text(json.dumps(about | {"runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
