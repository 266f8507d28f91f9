#!/usr/bin/env python3
"""Loads the weights of finished trials into PyTorch and compares losses and accuracies.

    python scripts/check_weights.py results/quickstart      # a study's folder, or several

Needs Python 3.11, torch and safetensors. For every trial of a study on `digits` with a built-in model it builds
the same architecture as an nn.Module, loads model.safetensors, evaluates the training and the test examples in
eval mode in float64, and compares with the last rows of evaluations.csv. Ends with status 1 where a loss differs
by more than 1e-4 of its value (and 1e-6), or the accuracy by more than one example.

The modules below are also the reference for names and layouts; docs/weights.md describes them.
"""

import csv
import gzip
import hashlib
import struct
import sys
import tomllib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

DIGITS = Path(__file__).parent.parent / "assets" / "digits.csv.gz"


class SoftmaxRegression(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, x):
        return self.linear(x.flatten(1))


def norm(kind, channels, images):
    """What follows a layer of so many channels; `kind` is a resolved `normalization`."""
    if kind == "batch":
        return nn.BatchNorm2d(channels) if images else nn.BatchNorm1d(channels)
    if kind == "layer":
        return nn.GroupNorm(1, channels)
    if isinstance(kind, dict) and "group" in kind:
        return nn.GroupNorm(kind["group"]["groups"], channels)
    return nn.Identity()


def weight_normalized(module, kind):
    """The module with weight normalization of all its layers where `kind` asks for it."""
    if isinstance(kind, dict) and "weight" in kind:
        for layer in module.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                parametrizations.weight_norm(layer)
    return module


class Mlp(nn.Module):
    def __init__(self, features, widths, classes, activation, kind):
        super().__init__()
        sizes = [features, *widths, classes]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(sizes, sizes[1:]))
        self.norms = nn.ModuleList(norm(kind, width, False) for width in widths)
        self.activation = activation

    def forward(self, x):
        x = x.flatten(1)
        for layer, normalize in zip(self.layers, self.norms):
            x = self.activation(normalize(layer(x)))
        return self.layers[-1](x)


class SimpleCnn(nn.Module):
    def __init__(self, shape, channels, dense, classes, kind):
        super().__init__()
        self.norms = nn.ModuleList(norm(kind, c, images) for c, images in [*((c, True) for c in channels), (dense, False)])
        depth, height, width = shape
        self.conv1 = nn.Conv2d(depth, channels[0], 5, padding=2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=2)
        self.dense1 = nn.Linear(channels[1] * (height // 4) * (width // 4), dense)
        self.dense2 = nn.Linear(dense, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norms[0](self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.norms[1](self.conv2(x))), 2)
        return self.dense2(functional.relu(self.norms[2](self.dense1(x.flatten(1)))))


def biased(kind):
    """Convolutions of the ResNet have biases where no shift follows them."""
    return kind == "none" or isinstance(kind, dict) and "weight" in kind


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, kind):
        super().__init__()
        bias = biased(kind)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=bias)
        self.bn1 = norm(kind, outputs, True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=bias)
        self.bn2 = norm(kind, outputs, True)
        self.stride, self.pad = stride, (outputs - inputs) // 2

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.stride == 2:  # option A: every second pixel, zero channels before and after
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return functional.relu(x + y)


class Resnet(nn.Module):
    def __init__(self, channels, depth, width, classes, kind):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=biased(kind))
        self.bn1 = norm(kind, width, True)
        inputs = width
        for stage, outputs in enumerate([width, 2 * width, 4 * width], 1):
            blocks = []
            for block in range((depth - 2) // 6):
                blocks.append(Block(inputs, outputs, 2 if stage > 1 and block == 0 else 1, kind))
                inputs = outputs
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.linear = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


def build(model):
    """The module of a resolved `model` key, for digits: 1x8x8 pixels, 10 classes."""
    if model == "softmax-regression":
        return SoftmaxRegression(64, 10)
    kind, options = next(iter(model.items()))
    normalization = options.get("normalization", "batch" if kind == "resnet" else "none")
    if kind == "mlp":
        activation = {"relu": functional.relu, "tanh": torch.tanh}[options["activation"]]
        return weight_normalized(Mlp(64, options["widths"], 10, activation, normalization), normalization)
    if kind == "simple-cnn":
        cnn = SimpleCnn((1, 8, 8), options["channels"], options["dense"], 10, normalization)
        return weight_normalized(cnn, normalization)
    if kind == "resnet":
        return weight_normalized(Resnet(1, options["depth"], options["width"], 10, normalization), normalization)
    raise SystemExit(f"model.{kind}: not a built-in classifier")


def chacha8(key, stream, block):
    """The 16 words of one block: ChaCha with 8 rounds, a 64-bit counter and a 64-bit stream number."""
    start = list(struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key))
    start += [block & 0xFFFFFFFF, block >> 32, stream & 0xFFFFFFFF, stream >> 32]
    x = start.copy()

    def quarter(a, b, c, d):
        for p, q, r, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) & 0xFFFFFFFF
            mixed = x[r] ^ x[p]
            x[r] = (mixed << turn | mixed >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(4):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
    return [(a + b) & 0xFFFFFFFF for a, b in zip(x, start)]


def permutation(n, seed, purpose):
    """batchlab's shuffled order of 0..n for this key (src/rng.rs)."""
    key = hashlib.sha256(struct.pack("<Q", seed) + purpose.encode()).digest()

    def draws():
        block = 0
        while True:
            words = chacha8(key, 0, block)
            yield from (low | high << 32 for low, high in zip(words[::2], words[1::2]))
            block += 1

    source = draws()
    order = list(range(n))
    for last in range(n - 1, 0, -1):
        bound = last + 1
        excess = 2**64 % bound
        other = next(draw for draw in source if draw < 2**64 - excess) % bound
        order[last], order[other] = order[other], order[last]
    return order


def digits(data):
    """Inputs and labels of the splits of a resolved [data] table, standardized as batchlab does."""
    plain = data["validation_fraction"] == 0 and data["label_noise"] == 0 and "subset" not in data
    if data["source"] != "digits" or data["standardize"] != "channel" or not plain:
        raise SystemExit("this script knows `digits` as they come, standardized by channel")
    rows = [[int(float(v)) for v in line.split(",")] for line in gzip.open(DIGITS, "rt")]
    table = torch.tensor(rows)
    order = permutation(len(rows), data["split_seed"], "data.test_fraction")
    taken = round(data["test_fraction"] * len(rows))
    parts = {"test": sorted(order[:taken]), "train": sorted(order[taken:])}
    pixels, labels = table[:, :64].double() / 16, table[:, 64]
    train = pixels[parts["train"]]
    pixels = (pixels - train.mean()) / train.std(correction=0)
    return {name: (pixels[part].reshape(-1, 1, 8, 8), labels[part]) for name, part in parts.items()}


def last_evaluations(path):
    with path.open(newline="") as file:
        return {row["split"]: row for row in csv.DictReader(file)}


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    worst_loss, worst_examples, splits, bad, known = 0.0, 0, 0, 0, {}
    for folder in sorted(path for study in sys.argv[1:] for path in Path(study).glob("trials/*/")):
        if not (folder / "result.json").exists():
            continue
        config = tomllib.loads((folder / "config.toml").read_text())
        key = str(config["data"])
        if key not in known:
            known[key] = digits(config["data"])
        model = build(config["model"])
        missing, unexpected = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing), (missing, unexpected)
        model = model.double().eval()
        for split, row in last_evaluations(folder / "evaluations.csv").items():
            inputs, labels = known[key][split]
            assert len(labels) == int(row["n"])
            with torch.no_grad():
                outputs = model(inputs)
            loss = functional.cross_entropy(outputs, labels).item()
            right = (outputs.argmax(1) == labels).sum().item()
            theirs, their_right = float(row["loss"]), round(float(row["accuracy"]) * len(labels))
            difference = abs(loss - theirs)
            worst_loss = max(worst_loss, difference / theirs)
            worst_examples = max(worst_examples, abs(right - their_right))
            splits += 1
            if difference > 1e-6 + 1e-4 * theirs or abs(right - their_right) > 1:
                bad += 1
                print(f"{folder.name} {split}: loss {loss} here, {theirs} there; right {right} here, {their_right} there")
    print(f"{splits} splits of trials: losses within {worst_loss:.1e} of their value, right answers within {worst_examples}")
    sys.exit(bad > 0 or splits == 0)


if __name__ == "__main__":
    main()
