"""Curvature and gradient noise of small networks, from tools of the PyTorch world, for the tests of the probes.

    python tests/reference/curvature.py [MODEL ...]    # all, or again these alone
                                           # torch numpy scipy safetensors scikit-learn
                                           # pyhessian==0.1 curvlinops-for-pytorch==3.0.1 hessian-eigenthings==1.0.0a5

The tools (versions as found are in the JSON):

    torch.func            automatic differentiation: the dense Hessian (forward over reverse), the dense Gauss-Newton
                          matrix from the Jacobian, and the gradient of each example (vmap). These are the exact values.
    PyHessian             power iteration on double-backward products, Hutchinson's trace (Yao et al. 2020).
    curvlinops            Hessian and Gauss-Newton as SciPy operators (forward over reverse, J'HJ by jvp and vjp);
                          eigenvalues by SciPy's ARPACK (eigsh), to 1e-12.
    hessian-eigenthings   Lanczos, Hutchinson and Hutch++ on double-backward products or central differences.

PyHessian 0.1 needs two things to run here: torch.set_default_dtype(float64), since it draws its starting vectors in
the default type, and, for its density alone, a stand-in for torch.eig, which PyTorch has removed (torch.linalg.eigh
of the same symmetric matrix, in the old layout). Nothing else is patched. pytorch-hessian-eigenthings is called
hessian-eigenthings on PyPI.

Where the tools disagree: PyHessian's eigenvalues are low by 2e-6 of themselves however long it iterates, since it
divides by |v| + 1e-6 twice a step; with its defaults its residuals are 1 to 4 % of the eigenvalue. hessian-eigenthings
weighs batches of 60 and 37 examples equally, which moves the top eigenvalue by up to 10 %. All else agrees to rounding,
or, the traces, to 4 standard errors; the script stops where it does not.

Loss: mean cross entropy in nats over all 97 examples (an odd prime: no batch divides it), float64, no weight decay.
Inputs are sums of bytes divided by powers of two, weights are rounded to float32 after training, the two fixed
vectors are multiples of 2^-10: all are exact in both precisions. Batch normalization is in evaluation mode.

Writes beside itself:

    curvature-examples.safetensors  `digits` [97, 64], `pooled` [97, 16] (means of 2x2 pixels), `rows` [97, 8] (means of
                                    rows), float64; `labels` [97], bytes. The first 97 digits.
    curvature-<model>.safetensors   weights (and running statistics) with PyTorch's names and layouts, float64.
    curvature-vectors.safetensors   `<model>/<what>/<parameter>`, float64, in the parameters' shapes. <what>:
                                    `gradient`; `vector.0`, `vector.1`; `hessian.0`, `hessian.1`, `gauss_newton.0`,
                                    `gauss_newton.1`: the products with them; `top`: the top eigenvector of the Hessian
                                    (its sign is arbitrary).
    curvature.json                  everything else; `structure` in it says what is what.
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy
import torch
from curvlinops import GGNLinearOperator, HessianLinearOperator, hutchinson_trace, hutchpp_trace, xtrace
from hessian_eigenthings import (
    GGNOperator,
    HessianOperator,
    hutch_plus_plus,
    hutchinson,
    lanczos,
    supervised_forward,
    supervised_loss,
    supervised_loss_of_output,
)
from pyhessian import hessian as PyHessian
from safetensors.torch import load_file, save_file
from scipy.sparse.linalg import eigsh
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn import functional

HERE = Path(__file__).parent
EXAMPLES, PIECES, KEPT = 97, (60, 37), 20

STRUCTURE = {
    "models.<m>": "model: batchlab's [model]; inputs: tensor of the examples; image: whether they are 1x8x8 images; "
    "parameters: n; order: parameters in PyTorch's order; layers: names",
    "loss, accuracy, squared_gradient": "over all examples, squared_gradient = |G|^2",
    "hessian, gauss_newton": "exact. trace; frobenius_squared = tr(M^2); moments[k-1] = tr(M^k)/n, k = 1..4; "
    "top: the largest 20 eigenvalues, descending; bottom: the smallest 20, ascending; "
    "spectrum (n <= 500): all, descending; blocks.<layer>: trace, top (largest eigenvalue), bottom, moments as above",
    "quadratic_forms": "v_i'M v_i of the fixed vectors i = 0, 1 with hessian and gauss_newton, |v_i|^2",
    "noise": "squared_norms: |g_i|^2 of each example, total and by layer; squared_gradient: |G|^2; tr_sigma: trace of "
    "the covariance of one example's gradient, N - 1 under the sum; tr_sigma_population: N under the sum; "
    "the same for tr_h_sigma = tr(H Sigma); ghg = G'HG; layers.<layer>: squared_gradient, tr_sigma (N - 1)",
    "losses": "cross entropy of each example",
    "tools": "what each tool answered, and (worst_*) how far from the exact values, relative to the largest eigenvalue "
    "in magnitude; traces with their standard errors where the tool gives one or its samples do. pyhessian.tight: top "
    "5 with tol = 1e-13, at most 1000 iterations each, residuals |Hv - lambda v| of what it returned; "
    "pyhessian.default: its top 5 with its defaults; pyhessian.trace with 200 probes, and with its default stop; "
    "hessian_eigenthings.two_pieces: its top eigenvalue over batches of 60 and 37, where it weighs batches equally",
}


class SoftmaxRegression(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.linear = nn.Linear(inputs, 10)

    def forward(self, x):
        return self.linear(x)


class Mlp(nn.Module):
    def __init__(self, widths, activation, normalized=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(w) for w in widths[1:-1]) if normalized else []
        self.activation = activation

    def forward(self, x):
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if self.norms:
                x = self.norms[i](x)
            x = self.activation(x)
        return self.layers[-1](x)


class SimpleCnn(nn.Module):
    def __init__(self, channels, dense, pool=lambda x: functional.max_pool2d(x, 2)):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], 5, padding=2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=2)
        self.dense1 = nn.Linear(channels[1] * 4, dense)
        self.dense2 = nn.Linear(dense, 10)
        self.pool = pool

    def forward(self, x):
        x = functional.relu(self.pool(self.conv1(x.view(-1, 1, 8, 8))))
        x = functional.relu(self.pool(self.conv2(x)))
        return self.dense2(functional.relu(self.dense1(x.flatten(1))))


def pool_by_amax(x):
    """2x2 maxima whose gradient is shared among equal values, where max_pool2d gives it to the first."""
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).amax(dim=(3, 5))


# Name; batchlab's [model]; module; inputs; steps of training and their rate.
MODELS = [
    ("softmax", "softmax-regression", lambda: SoftmaxRegression(64), "digits", 150, 0.05),
    (
        "mlp-tanh",
        {"mlp": {"widths": [16], "activation": "tanh"}},
        lambda: Mlp([8, 16, 10], torch.tanh),
        "rows",
        400,
        0.1,
    ),
    (
        "mlp-relu",
        {"mlp": {"widths": [12, 10], "activation": "relu"}},
        lambda: Mlp([16, 12, 10, 10], functional.relu),
        "pooled",
        250,
        0.05,
    ),
    (
        "mlp-batch-norm",
        {"mlp": {"widths": [16], "activation": "relu", "normalization": "batch"}},
        lambda: Mlp([8, 16, 10], functional.relu, normalized=True),
        "rows",
        200,
        0.05,
    ),
    (
        "cnn",
        {"simple-cnn": {"channels": [3, 4], "dense": 10}},
        lambda: SimpleCnn((3, 4), 10),
        "digits",
        120,
        0.03,
    ),
]


def examples():
    digits = load_digits()
    pixels = torch.tensor(digits.images[:EXAMPLES])
    blocks = pixels.view(EXAMPLES, 4, 2, 4, 2).sum(dim=(2, 4)) / 64
    inputs = {
        "digits": pixels.flatten(1) / 16,
        "pooled": blocks.flatten(1),
        "rows": pixels.sum(dim=2) / 128,
    }
    return inputs, torch.tensor(digits.target[:EXAMPLES])


def trained(build, inputs, labels, steps, rate):
    """Weights after some steps of 16 examples with momentum: past the chaos of the start, short of loss zero."""
    torch.manual_seed(0)
    model = build().train()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.kaiming_normal_(p, nonlinearity="relu")
    update = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(steps):
        index = torch.randperm(EXAMPLES)[:16]
        update.zero_grad()
        functional.cross_entropy(model(inputs[index]), labels[index]).backward()
        update.step()
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            if value.is_floating_point():
                value.copy_(value.float().double())
    return model.eval()


def layer_of(parameter):
    return parameter.rpartition(".")[0]


class Exact:
    """Dense matrices and per-example gradients by torch.func."""

    def __init__(self, model, x, y):
        named = {k: p.detach() for k, p in model.named_parameters()}
        buffers = dict(model.named_buffers())
        sizes = [p.numel() for p in named.values()]

        def unflatten(flat):
            return {k: v.view_as(p) for (k, p), v in zip(named.items(), flat.split(sizes))}

        def outputs(flat, x):
            return functional_call(model, unflatten(flat) | buffers, (x,))

        def loss(flat, x, y):
            return functional.cross_entropy(outputs(flat, x), y)

        at = torch.cat([p.flatten() for p in named.values()])
        self.unflatten, self.size = unflatten, len(at)
        self.layers = {}
        for k, part in zip(named, torch.arange(self.size).split(sizes)):
            self.layers.setdefault(layer_of(k), []).append(part)
        self.layers = {k: torch.cat(parts) for k, parts in self.layers.items()}
        self.loss = loss(at, x, y).item()
        self.accuracy = (outputs(at, x).argmax(1) == y).double().mean().item()
        self.losses = functional.cross_entropy(outputs(at, x), y, reduction="none")
        self.gradient = grad(loss)(at, x, y)
        per_example = vmap(grad(lambda t, x, y: loss(t, x[None], y[None])), in_dims=(None, 0, 0))
        self.gradients = per_example(at, x, y)
        # Forward over reverse, one column after the other in blocks of 128.
        columns = vmap(lambda v: torch.func.jvp(lambda t: grad(loss)(t, x, y), (at,), (v,))[1], chunk_size=128)
        self.hessian = columns(torch.eye(self.size))
        jacobian = jacrev(outputs)(at, x)
        p = outputs(at, x).softmax(1)
        inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        weighted = torch.einsum("nij,njt->nit", inner, jacobian).flatten(0, 1)
        self.gauss_newton = jacobian.flatten(0, 1).T @ weighted / len(x)
        for matrix in (self.hessian, self.gauss_newton):
            assert (matrix - matrix.T).abs().max() < 1e-12 * matrix.abs().max()


def close(found, expected, tolerance, scale=None):
    """How far `found` is, relative to `scale`; the script stops where it is too far."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    scale = expected.abs().max() if scale is None else scale
    error = ((found - expected).abs().max() / scale).item()
    assert error < tolerance, (error, found, expected)
    return error


def within(found, expected, standard_error):
    """An estimate of a trace; 4 standard errors by chance: 1 in 16,000."""
    assert abs(found - expected) < 4 * standard_error, (found, expected, standard_error)


def facts(matrix):
    values = torch.linalg.eigvalsh((matrix + matrix.T) / 2).flip(0)
    moments = [values.pow(k).mean().item() for k in (1, 2, 3, 4)]
    trace, frobenius = matrix.trace().item(), matrix.square().sum().item()
    return values, {"trace": trace, "frobenius_squared": frobenius, "moments": moments}


def spectrum(exact, matrix):
    values, found = facts(matrix)
    found |= {"top": values[:KEPT].tolist(), "bottom": values.flip(0)[:KEPT].tolist()}
    if exact.size <= 500:
        found["spectrum"] = values.tolist()
    found["blocks"] = {}
    for layer, index in exact.layers.items():
        block_values, block = facts(matrix[index][:, index])
        found["blocks"][layer] = block | {"top": block_values[0].item(), "bottom": block_values[-1].item()}
    return values, found


def noise(exact):
    per, mean, n = exact.gradients, exact.gradient, len(exact.gradients)
    centered = per - mean
    close(per.mean(0), mean, 1e-12)
    tr_sigma = centered.square().sum().item()
    tr_h_sigma = torch.einsum("ni,ij,nj->", centered, exact.hessian, centered).item()
    layers = {}
    for layer, index in exact.layers.items():
        layers[layer] = {
            "squared_gradient": mean[index].square().sum().item(),
            "tr_sigma": centered[:, index].square().sum().item() / (n - 1),
        }
    by_layer = {layer: per[:, index].square().sum(1).tolist() for layer, index in exact.layers.items()}
    return {
        "squared_norms": {"total": per.square().sum(1).tolist(), "layers": by_layer},
        "squared_gradient": mean.square().sum().item(),
        "tr_sigma": tr_sigma / (n - 1),
        "tr_sigma_population": tr_sigma / n,
        "tr_h_sigma": tr_h_sigma / (n - 1),
        "tr_h_sigma_population": tr_h_sigma / n,
        "ghg": (mean @ exact.hessian @ mean).item(),
        "layers": layers,
    }


def standard_error(samples):
    return (numpy.std(samples, ddof=1) / len(samples) ** 0.5).item()


def ask_pyhessian(model, x, y, exact, values):
    scale = values.abs().max()
    by_magnitude = values[values.abs().argsort(descending=True)]

    def flat(parts):
        return torch.cat([p.detach().flatten() for p in parts])

    def residuals(found, vectors):
        return [(exact.hessian @ flat(v) - e * flat(v)).norm().item() for e, v in zip(found, vectors)]

    def distance(found):
        return ((torch.tensor(found) - by_magnitude[: len(found)]).abs().max() / scale).item()

    torch.manual_seed(1)
    tool = PyHessian(model, functional.cross_entropy, data=(x, y), cuda=False)
    answer = {}
    for name, arguments in (("tight", {"maxIter": 1000, "tol": 1e-13}), ("default", {})):
        found, vectors = tool.eigenvalues(top_n=5, **arguments)
        answer[name] = {
            "eigenvalues": found,
            "residuals": residuals(found, vectors),
            "worst_eigenvalue": distance(found),
        }
    # A negative tolerance: all probes are made.
    samples = tool.trace(maxIter=200, tol=-1.0)
    stopped = tool.trace()
    for name, drawn in (("trace", samples), ("trace_default_stop", stopped)):
        mean, error = numpy.mean(drawn).item(), standard_error(drawn) if len(drawn) > 1 else None
        answer[name] = {"mean": mean, "standard_error": error, "probes": len(drawn)}
    within(answer["trace"]["mean"], exact.hessian.trace(), answer["trace"]["standard_error"])
    try:
        tool.density(iter=2)
        answer["density"] = {"unpatched": "works"}
    except (AttributeError, RuntimeError) as error:
        answer["density"] = {"unpatched": f"{type(error).__name__}: {str(error).splitlines()[0]}"}

    def eig(matrix, eigenvectors):
        assert eigenvectors
        values, vectors = torch.linalg.eigh(matrix)
        return torch.stack([values, torch.zeros_like(values)], dim=1), vectors

    had = getattr(torch, "eig", None)
    torch.eig = eig
    try:
        nodes, weights = tool.density(iter=30, n_v=10)
    finally:
        del torch.eig
        if had is not None:
            torch.eig = had
    nodes, weights = numpy.array(nodes), numpy.array(weights)
    moments = [(weights * nodes**k).sum(1).mean().item() for k in range(5)]
    answer["density"] |= {"starts": 10, "steps": 30, "moments_0_to_4": moments}
    model.zero_grad()
    return answer


def ask_curvlinops(model, x, y, exact, vectors, values, tops):
    parameters = list(model.parameters())
    data = [(x[: PIECES[0]], y[: PIECES[0]]), (x[PIECES[0] :], y[PIECES[0] :])]
    loss = nn.CrossEntropyLoss()
    answer = {}
    for name, kind, matrix in (
        ("hessian", HessianLinearOperator, exact.hessian),
        ("gauss_newton", GGNLinearOperator, exact.gauss_newton),
    ):
        operator = kind(model, loss, parameters, data)
        worst = max(close((operator @ v).detach(), matrix @ v, 1e-12) for v in vectors)
        scale = values[name].abs().max()

        def ends(operator, index, k, which):
            # A basis of up to 120 vectors: ARPACK's default of 2k + 1 restarts for minutes.
            ncv, start = min(len(index), 120), vectors[0][index].numpy()
            found = eigsh(operator, k=k, which=which, tol=1e-12, ncv=ncv, v0=start, return_eigenvectors=False)
            return numpy.sort(found) if which == "SA" else numpy.sort(found)[::-1].copy()

        every = torch.arange(exact.size)
        scipy = operator.to_scipy()
        top = ends(scipy, every, KEPT, "LA")
        worst_eigenvalue = close(top, values[name][:KEPT], 1e-10, scale)
        bottom = []
        if values[name][-5] < -1e-3 * scale:
            # Where the smallest are many zeros they have no ranks for ARPACK to find.
            bottom = ends(scipy, every, 5, "SA")
            worst_eigenvalue = max(worst_eigenvalue, close(bottom, values[name].flip(0)[:5], 1e-10, scale))
        torch.manual_seed(2)
        blocks, by_name = {}, dict(model.named_parameters())
        for layer, index in exact.layers.items():
            block = kind(model, loss, [p for k, p in by_name.items() if layer_of(k) == layer], data).to_scipy()
            blocks[layer] = ends(block, index, 1, "LA").item()
            close(blocks[layer], tops[name][layer], 1e-10, scale)
        answer[name] = {
            "top": top.tolist(),
            "bottom": list(bottom),
            "block_top": blocks,
            "worst_product": worst,
            "worst_eigenvalue": worst_eigenvalue,
            "hutchinson_trace_120": hutchinson_trace(operator, num_matvecs=120).item(),
            "hutchpp_trace_120": hutchpp_trace(operator, num_matvecs=120).item(),
            "xtrace_120": xtrace(operator, num_matvecs=120).item(),
        }
    return answer


def ask_eigenthings(model, x, y, exact, vectors, values):
    whole, pieces = [(x, y)], [(x[: PIECES[0]], y[: PIECES[0]]), (x[PIECES[0] :], y[PIECES[0] :])]
    loss = supervised_loss(functional.cross_entropy)
    output_loss = supervised_loss_of_output(functional.cross_entropy)
    answer = {}
    for name, operator in (
        ("hessian", HessianOperator(model, whole, loss)),
        ("gauss_newton", GGNOperator(model, whole, supervised_forward, output_loss)),
    ):
        matrix = exact.hessian if name == "hessian" else exact.gauss_newton
        steps = min(exact.size, 120)
        top = lanczos(operator, k=5, max_iter=steps, tol=1e-10, reorthogonalize=True, which="LA", seed=3)
        trace = hutchinson(operator, num_samples=200, seed=4)
        better = hutch_plus_plus(operator, num_matvecs=120, seed=5)
        within(trace.estimate, matrix.trace(), trace.stderr)
        within(better.estimate, matrix.trace(), better.stderr)
        answer[name] = {
            "top": top.eigenvalues.tolist(),
            "converged": top.converged.tolist(),
            "worst_product": max(close(operator.matvec(v).detach(), matrix @ v, 1e-11) for v in vectors),
            "worst_eigenvalue": close(top.eigenvalues, values[name][:5], 1e-6, values[name].abs().max()),
            "hutchinson_trace_200": {"mean": trace.estimate, "standard_error": trace.stderr},
            "hutch_plus_plus_trace_120": {"mean": better.estimate, "standard_error": better.stderr},
        }
    # Its difference step is not divided by |v|: exact products for unit vectors, not for random signs.
    differences = HessianOperator(model, whole, loss, method="finite_difference")
    unit = vectors[0] / vectors[0].norm()
    signs = torch.where(vectors[1] < 0, -1.0, 1.0)
    for name, v in (("unit", unit), ("signs", signs)):
        right = exact.hessian @ v
        answer[f"difference_error_{name}"] = ((differences.matvec(v) - right).norm() / right.norm()).item()
    unequal = lanczos(HessianOperator(model, pieces, loss), k=1, max_iter=60, which="LA", seed=3).eigenvalues[0]
    answer["two_pieces"] = {
        "top": unequal.item(),
        "relative_error": (unequal / values["hessian"][0] - 1).item(),
    }
    return answer


def check_closed_form(exact, x, y, model):
    """Softmax regression: H = (1/N) sum (diag p - p p') (x) z z', z = (x, 1); so is its Gauss-Newton matrix."""
    p = model(x).detach().softmax(1)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    z = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    expected = torch.einsum("nij,na,nb->iajb", inner, z, z) / len(x)
    # PyTorch's order: the weight [10, features], then the bias [10].
    weight = torch.arange(10 * z.shape[1]).view(10, -1)
    order = torch.cat([weight[:, :-1].flatten(), weight[:, -1]])
    expected = expected.reshape(exact.size, exact.size)[order][:, order]
    close(exact.hessian, expected, 1e-13)
    close(exact.gauss_newton, expected, 1e-13)


def check_ties(model, x, y, v):
    """Equal values under one maximum come from equal patches, so that it does not matter which of them is taken:
    the gradient and a product are the same when they share."""
    other = SimpleCnn((3, 4), 10, pool_by_amax).eval()
    other.load_state_dict(model.state_dict())

    def both(module):
        parameters = list(module.parameters())
        gradient = torch.autograd.grad(functional.cross_entropy(module(x), y), parameters, create_graph=True)
        inner = sum((g * d).sum() for g, d in zip(gradient, v))
        return [t.detach() for t in (*gradient, *torch.autograd.grad(inner, parameters))]

    for found, expected in zip(both(other), both(model)):
        close(found, expected, 1e-12)


def check_double_backward(model, x, y, exact, vectors):
    parameters = list(model.parameters())
    gradient = torch.autograd.grad(functional.cross_entropy(model(x), y), parameters, create_graph=True)
    for v in vectors:
        parts = list(exact.unflatten(v).values())
        product = torch.autograd.grad(gradient, parameters, grad_outputs=parts, retain_graph=True)
        close(torch.cat([p.flatten() for p in product]), exact.hessian @ v, 1e-12)


def main():
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    # PyHessian differentiates with create_graph=True and leaves the cycle; its objects are few here.
    warnings.filterwarnings("ignore", message="Using backward.. with create_graph=True")
    inputs, labels = examples()
    save_file(inputs | {"labels": labels.to(torch.uint8)}, HERE / "curvature-examples.safetensors")
    path, vectors_path = HERE / "curvature.json", HERE / "curvature-vectors.safetensors"
    asked, stored, models = sys.argv[1:], {}, {}
    if asked and path.exists():
        stored, models = load_file(vectors_path), json.loads(path.read_text())["models"]
    for name, kind, build, source, steps, rate in MODELS:
        if asked and name not in asked:
            continue
        started = time.perf_counter()
        x, y = inputs[source], labels
        model = trained(build, x, y, steps, rate)
        state = {k: v for k, v in model.state_dict().items() if "tracked" not in k}
        save_file(state, HERE / f"curvature-{name}.safetensors")
        exact = Exact(model, x, y)
        random = torch.Generator().manual_seed(7)
        vectors = [(torch.randn(exact.size, generator=random) * 1024).round() / 1024 for _ in range(2)]
        check_double_backward(model, x, y, exact, vectors)
        if name == "softmax":
            check_closed_form(exact, x, y, model)
        if name == "cnn":
            check_ties(model, x, y, list(exact.unflatten(vectors[0]).values()))
        values, found = {}, {}
        for what in ("hessian", "gauss_newton"):
            values[what], found[what] = spectrum(exact, getattr(exact, what))
        tops = {what: {k: b["top"] for k, b in found[what]["blocks"].items()} for what in found}
        top = torch.linalg.eigh(exact.hessian)[1][:, -1]
        flats = {"gradient": exact.gradient, "top": top}
        for i, v in enumerate(vectors):
            flats |= {f"vector.{i}": v, f"hessian.{i}": exact.hessian @ v, f"gauss_newton.{i}": exact.gauss_newton @ v}
        for what, flat in flats.items():
            stored |= {f"{name}/{what}/{k}": v.contiguous() for k, v in exact.unflatten(flat).items()}
        models[name] = {
            "model": kind,
            "inputs": source,
            "image": name == "cnn",
            "parameters": exact.size,
            "order": [k for k, _ in model.named_parameters()],
            "layers": list(exact.layers),
            "loss": exact.loss,
            "accuracy": exact.accuracy,
            "losses": exact.losses.tolist(),
            "squared_gradient": exact.gradient.square().sum().item(),
            **found,
            "quadratic_forms": {
                "hessian": [(v @ exact.hessian @ v).item() for v in vectors],
                "gauss_newton": [(v @ exact.gauss_newton @ v).item() for v in vectors],
                "squared_norms": [(v @ v).item() for v in vectors],
            },
            "noise": noise(exact),
            "tools": {
                "pyhessian": ask_pyhessian(model, x, y, exact, values["hessian"]),
                "curvlinops": ask_curvlinops(model, x, y, exact, vectors, values, tops),
                "hessian_eigenthings": ask_eigenthings(model, x, y, exact, vectors, values),
            },
        }
        ends, seconds = values["hessian"], time.perf_counter() - started
        traces = ", ".join(f"trace {what} {getattr(exact, what).trace():.3f}" for what in ("hessian", "gauss_newton"))
        print(
            f"{name:15} n {exact.size:4} loss {exact.loss:.4f} accuracy {exact.accuracy:.2f}, |G| "
            f"{exact.gradient.norm():.1e}, eigenvalues {ends[-1]:.3f} to {ends[0]:.3f}, {traces} ({seconds:.0f} s)",
            flush=True,
        )
        write(path, vectors_path, models, stored)


def write(path, vectors_path, models, stored):
    """The models in their order, whichever was made last."""
    names = [name for name, *_ in MODELS if name in models]
    known = tuple(f"{name}/" for name in names)
    save_file({k: v for k, v in sorted(stored.items()) if k.startswith(known)}, vectors_path)
    tools = ("torch", "pyhessian", "curvlinops-for-pytorch", "hessian-eigenthings", "numpy", "scipy", "scikit-learn")
    about = {
        "script": Path(__file__).name,
        "versions": {tool: version(tool) for tool in tools},
        "examples": EXAMPLES,
        "structure": STRUCTURE,
        "models": {name: models[name] for name in names},
    }
    path.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
