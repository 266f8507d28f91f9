"""Reference values of src/collective/split_dense.rs and split_convolution.rs, from PyTorch in f64.

    pip install torch && python tests/reference/split_layers.py > tests/reference/split_layers.json

Outputs y and gradients dx, dw, db of the loss sum(g * y) for dense layers and for convolutions; all tensors flat,
row by row. Inputs have three decimals, so that the file says them exactly.
"""

import json
import sys

import torch
from torch.nn.functional import conv2d, linear


def draw(generator, *shape):
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * 1000).round() / 1000


def layer(generator, function, x, w, outputs):
    """What goes in and what comes out of one layer."""
    x, w = x.requires_grad_(), w.requires_grad_()
    b = draw(generator, outputs).requires_grad_()
    y = function(x, w, b)
    g = draw(generator, *y.shape)
    (y * g).sum().backward()
    tensors = {"x": x, "w": w, "b": b, "g": g, "y": y, "dx": x.grad, "dw": w.grad, "db": b.grad}
    return {name: tensor.detach().flatten().tolist() for name, tensor in tensors.items()}


def dense(generator, batch, inputs, outputs):
    sizes = {"batch": batch, "inputs": inputs, "outputs": outputs}
    x, w = draw(generator, batch, inputs), draw(generator, outputs, inputs)
    return sizes | layer(generator, linear, x, w, outputs)


def convolution(generator, image, filters, kernel, stride, padding):
    batch, channels, height, width = image
    sizes = {"batch": batch, "channels": channels, "height": height, "width": width, "filters": filters}
    sizes |= {"kernel": kernel, "stride": stride, "padding": padding}

    def function(x, w, b):
        return conv2d(x, w, b, stride=tuple(stride), padding=tuple(padding))

    x, w = draw(generator, *image), draw(generator, filters, channels, *kernel)
    return sizes | layer(generator, function, x, w, filters)


def main():
    generator = torch.Generator().manual_seed(6)
    sizes = [(4, 6, 5), (1, 1, 1), (3, 2, 9), (2, 13, 3)]
    cases = {"dense": [dense(generator, *size) for size in sizes], "convolution": []}
    image = (2, 2, 7, 4)
    for k in (1, 3, 5):
        for stride in (1, 2):
            for padding in sorted({0, k // 2}):
                # A kernel of 5 without padding is wider than the image.
                pair = [padding, k // 2]
                cases["convolution"].append(convolution(generator, image, 3, [k, k], [stride, stride], pair))
    for kernel, stride, padding in (
        ([2, 3], [1, 1], [0, 1]),  # even
        ([4, 1], [2, 1], [1, 0]),
        ([3, 2], [3, 2], [2, 0]),  # more padding than half a kernel
        ([2, 2], [3, 3], [0, 0]),  # rows that nobody reads
        ([7, 3], [1, 2], [3, 1]),  # as high as the image
        ([1, 1], [2, 1], [2, 0]),  # outputs of padding alone
    ):
        cases["convolution"].append(convolution(generator, (1, 2, 7, 5), 2, kernel, stride, padding))
    json.dump(cases, sys.stdout, separators=(",", ":"))
    print()


main()
