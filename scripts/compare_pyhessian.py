#!/usr/bin/env python3
"""Times the top eigenvalue and the trace of the Hessian in batchlab and in PyHessian, to the same accuracy.

    cargo build --release
    python scripts/compare_pyhessian.py results/STUDY/trials/TRIAL --data DIR        # the weights of a trial
    python scripts/compare_pyhessian.py TRIAL --data DIR --weights model.safetensors  # others of that model
    python scripts/compare_pyhessian.py TRIAL --data DIR --pyhessian-only             # no batchlab, the first rows

DIR holds train-images-idx3-ubyte and train-labels-idx1-ubyte (or .gz): `batchlab data fetch` gets them. Needs
torch, numpy, safetensors and pyhessian==0.1 from PyPI.

Both sides have the same weights, the same examples (those that `batchlab probe` draws), the same number of threads,
and answer to the same accuracy:

    eigenvalue  the largest (PyHessian: the largest in magnitude), until |Hv - lambda v| / (|lambda| |v|) is at most
                --residual
    trace       until its standard error is at most --share of it, in at least 20 products. batchlab's is exact where
                the model allows it (--trace auto: of MLPs and CNNs with ReLU), and its standard error 0; its
                products are then passes, one a class. --trace krylov has it estimate in any case

PyHessian knows neither: its eigenvalue stops where two Rayleigh quotients agree, its trace where two running means
do. So each run is first made once, untimed, to find the fewest iterations that reach the accuracy from this seed, and
then timed with exactly these (maxIter; its own stops are off): the best that a user could have chosen, knowing the
answer. The residual printed is that of the pair which PyHessian returned, by one more product in float64. What it
does with its defaults is printed too. PyHessian runs in float32, as it is used, and in float64, where it needs
torch.set_default_dtype for its starting vectors; it is not patched when timed. batchlab runs in float64, as it is
used, and with products in float32 (--precision f32); its vectors and sums are in float64 in both, and so are the
products behind residuals where --residual is below 5e-4. Its residual and standard error are its own; the script says
where eigenvalues or traces of the two sides differ by more than these allow.

Seconds are those of computing, with weights and examples in memory, in a process of its own for each run: PyHessian's
constructor (one gradient) is in both of its numbers. batchlab's seconds of an eigenvalue include the product that its
residual comes from; PyHessian's do not, but for the rows "with its residual", which add the product above. The order
of the sides alternates from round to round, and PyHessian's seed changes; batchlab's vectors are those of
data.split_seed. A ratio above 1: batchlab is faster.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import sys
import tempfile
import time
import tomllib
import warnings
from pathlib import Path

from compare_pytorch import ROOT, call, in_turns, machine, spread

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
QUANTITIES = ("eigenvalue", "trace")
FEWEST_PROBES = 20
MOST_PRODUCTS = 20000


# --- batchlab --------------------------------------------------------------------------------------------


def probe(options, threads, precision="f64"):
    """What `batchlab probe --json` reports of the largest eigenvalue and the trace, and its wall-clock seconds."""
    # Weights from elsewhere go with a study file; a trial's config is one.
    source = [options.run / "config.toml", "--weights", options.weights] if options.weights else [options.run]
    wanted = ["--largest", 1, "--smallest", 0, "--tolerance", options.residual, "--trace-tolerance", options.share]
    most = ["--max-products", MOST_PRODUCTS, "--trace-products", MOST_PRODUCTS]
    where = ["--examples", options.examples, "--threads", threads, "--precision", precision, "--trace", options.trace]
    with tempfile.TemporaryDirectory() as folder:
        command = [options.batchlab, "probe", *source, "hessian", *where, *wanted, *most]
        out, wall = call([*command, "--json", "--quiet", "--out", folder])
    return json.loads(out), wall


def batchlab_ids(options):
    """Rows of the training part that the probe looks at."""
    return probe(options, 1)[0]["ids"]


def batchlab_side(options, threads, precision):
    """As `PyHessianSide.answer`; residual and standard error are relative here, absolute in batchlab's report."""
    found, wall = probe(options, threads, precision)
    rows = {row["quantity"]: row for row in found["rows"] if row["probe"] == "hessian"}
    answer = {"wall": wall}
    for quantity, stage, error in (("eigenvalue", "eigenvalues", "residual"), ("trace", "trace", "standard_error")):
        row = rows[quantity]
        if not row["converged"]:
            print(f"batchlab: the {quantity} has not converged in {row['products']} products", file=sys.stderr)
        answer[quantity] = {
            "value": row["value"],
            "seconds": found["seconds"][stage],
            "products": row["products"],
            "accuracy": row[error] / abs(row["value"]),
        }
    return answer


# --- PyHessian, in its own process -----------------------------------------------------------------------


def read_idx(folder, name):
    import numpy

    plain, packed = Path(folder) / name, Path(folder) / f"{name}.gz"
    content = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    sizes = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i]) for i in range(content[3])]
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)


def training_examples(config, folder, rows):
    """Features [rows, width] as batchlab holds them (float32, standardized on the whole part), and labels."""
    import numpy

    data = config["data"]
    source = data["source"] if isinstance(data["source"], str) else next(iter(data["source"]))
    if source not in ("mnist", "fashion-mnist"):
        sys.exit(f"data.source is {source!r}; compare_pyhessian.py knows mnist and fashion-mnist")
    for key in ("validation_fraction", "label_noise", "subset"):
        if data.get(key):
            sys.exit(f"data.{key} is {data[key]}; compare_pyhessian.py cannot draw as batchlab does: it needs none")
    images, labels = (read_idx(folder, name) for name in FILES)
    # One value for each of the 256 bytes; mean and deviation from how often each occurs.
    values = numpy.arange(256, dtype=numpy.float32) / numpy.float32(255)
    kind = data.get("standardize", "channel")
    if kind == "feature":
        sys.exit("data.standardize is 'feature'; compare_pyhessian.py knows 'channel' and 'none'")
    if kind == "channel":
        wide, share = values.astype(numpy.float64), numpy.bincount(images.ravel(), minlength=256) / images.size
        mean = wide @ share
        values = ((wide - mean) / numpy.sqrt((wide - mean) ** 2 @ share)).astype(numpy.float32)
    return values[images[rows].reshape(len(rows), -1)], labels[rows].astype(numpy.int64)


def build(config):
    """The module of a trial's model, with batchlab's names of the parameters."""
    from torch import nn
    from torch.nn import functional

    class SoftmaxRegression(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(784, 10)

        def forward(self, x):
            return self.linear(x)

    class Mlp(nn.Module):
        def __init__(self, widths, activation):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
            self.activation = activation

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = self.activation(layer(x))
            return self.layers[-1](x)

    class SimpleCnn(nn.Module):
        def __init__(self, channels, dense):
            super().__init__()
            self.conv1 = nn.Conv2d(1, channels[0], 5, padding=2)
            self.conv2 = nn.Conv2d(channels[0], channels[1], 5, padding=2)
            self.dense1 = nn.Linear(channels[1] * 49, dense)
            self.dense2 = nn.Linear(dense, 10)

        def forward(self, x):
            x = functional.max_pool2d(functional.relu(self.conv1(x.view(-1, 1, 28, 28))), 2)
            x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
            return self.dense2(functional.relu(self.dense1(x.flatten(1))))

    given = config["model"]
    kind, settings = (given, {}) if isinstance(given, str) else next(iter(given.items()))
    if settings.get("normalization", "none") != "none":
        sys.exit("compare_pyhessian.py knows models without normalization alone")
    if kind == "softmax-regression":
        return SoftmaxRegression()
    if kind == "mlp":
        activation = functional.relu if settings.get("activation", "relu") == "relu" else nn.Tanh()
        return Mlp([784, *settings.get("widths", [256, 256]), 10], activation)
    if kind == "simple-cnn":
        return SimpleCnn(settings.get("channels", [32, 64]), settings.get("dense", 1024))
    sys.exit(f"compare_pyhessian.py knows no model {kind!r}")


class Reached(Exception):
    """The search for the fewest iterations is over."""


class PyHessianSide:
    """PyHessian on one model and one batch."""

    def __init__(self, task):
        import torch
        from safetensors.torch import load_file

        torch.set_num_threads(task["threads"])
        self.dtype = {"f32": torch.float32, "f64": torch.float64}[task["precision"]]
        torch.set_default_dtype(self.dtype)
        # PyTorch warns of the reference cycle that PyHessian's constructor leaves.
        warnings.filterwarnings("ignore", message="Using backward.. with create_graph=True")
        config = tomllib.loads((Path(task["run"]) / "config.toml").read_text())
        features, labels = training_examples(config, task["data"], task["rows"])
        self.x, self.y = torch.tensor(features, dtype=self.dtype), torch.tensor(labels)
        self.model = build(config)
        self.model.load_state_dict(load_file(task["weights"]))
        self.model.to(self.dtype)
        self.seed, self.target, self.share = task["seed"], task["residual"], task["share"]
        self.torch = torch

    def tool(self):
        from pyhessian import hessian
        from torch.nn.functional import cross_entropy

        # The constructor adds to the gradient that it finds.
        self.model.zero_grad(set_to_none=True)
        return hessian(self.model, cross_entropy, data=(self.x, self.y), cuda=False)

    def timed(self, work):
        """The answer and its seconds, from this side's seed; the constructor is part of the work."""
        self.torch.manual_seed(self.seed)
        start = time.perf_counter()
        answer = work(self.tool())
        return answer, time.perf_counter() - start

    def double_loss(self):
        """Loss over the examples and its gradient with a graph, in float64; and the parameters."""
        from torch.nn.functional import cross_entropy

        self.model.double()
        parameters = list(self.model.parameters())
        loss = cross_entropy(self.model(self.x.double()), self.y)
        return loss, self.torch.autograd.grad(loss, parameters, create_graph=True), parameters

    def loss(self):
        loss, _, _ = self.double_loss()
        self.model.to(self.dtype)
        return loss.item()

    def residual(self, eigenvalue, vector):
        """|Hv - lambda v| / (|lambda| |v|), by a product in float64."""
        _, gradient, parameters = self.double_loss()
        vector = [v.detach().double() for v in vector]
        product = self.torch.autograd.grad(gradient, parameters, grad_outputs=vector)
        self.model.to(self.dtype)

        def norm(parts):
            return math.sqrt(sum(p.square().sum().item() for p in parts))

        return norm([h - eigenvalue * v for h, v in zip(product, vector)]) / (abs(eigenvalue) * norm(vector))

    def fewest_iterations(self):
        """The first maxIter at which what PyHessian returns, the Rayleigh quotient of iteration k and the vector
        after it, has the residual. Watches its products; they are the same as those of the timed run."""
        import pyhessian  # noqa: F401

        # `pyhessian.hessian` is the class of that name.
        module = sys.modules["pyhessian.hessian"]
        product, passed = module.hessian_vector_product, []

        def dot(a, b):
            return sum((p.double() * q.double()).sum().item() for p, q in zip(a, b))

        def watched(gradient, parameters, v):
            hv = product(gradient, parameters, v)
            if passed:
                last = passed[-1]
                error = [h.double() - last * p.double() for h, p in zip(hv, v)]
                if math.sqrt(dot(error, error) / dot(v, v)) <= self.target * abs(last):
                    raise Reached
            passed.append(dot(hv, v))
            return hv

        module.hessian_vector_product = watched
        try:
            self.timed(lambda tool: tool.eigenvalues(maxIter=MOST_PRODUCTS, tol=0.0))
        except Reached:
            return len(passed)
        finally:
            module.hessian_vector_product = product
        sys.exit(f"PyHessian has not reached a residual of {self.target} in {MOST_PRODUCTS} iterations")

    def fewest_probes(self):
        """The first number of probes whose standard error is small enough. Its samples are those of the timed run."""
        number = 4 * FEWEST_PROBES
        while number <= MOST_PRODUCTS:
            samples, _ = self.timed(lambda tool: tool.trace(maxIter=number, tol=-math.inf))
            for probes in range(FEWEST_PROBES, number + 1):
                if relative_error(samples[:probes]) <= self.share:
                    return probes
            number *= 2
        sys.exit(f"PyHessian has not reached a standard error of {self.share} in {MOST_PRODUCTS} probes")

    def eigenvalue(self):
        iterations = self.fewest_iterations()
        (values, vectors), seconds = self.timed(lambda tool: tool.eigenvalues(maxIter=iterations, tol=0.0))
        start = time.perf_counter()
        residual = self.residual(values[0], vectors[0])
        known = seconds + time.perf_counter() - start
        return {"value": values[0], "seconds": seconds, "known": known, "products": iterations, "accuracy": residual}

    def trace(self):
        probes = self.fewest_probes()
        samples, seconds = self.timed(lambda tool: tool.trace(maxIter=probes, tol=-math.inf))
        return {
            "value": statistics.fmean(samples),
            "seconds": seconds,
            "products": len(samples),
            "accuracy": relative_error(samples),
        }

    def defaults(self):
        """What PyHessian answers with its own stops; its eigenvalues tell no number of products."""
        (values, vectors), eigenvalue_seconds = self.timed(lambda tool: tool.eigenvalues())
        samples, trace_seconds = self.timed(lambda tool: tool.trace())
        return {
            "eigenvalue": {
                "value": values[0],
                "seconds": eigenvalue_seconds,
                "accuracy": self.residual(values[0], vectors[0]),
            },
            "trace": {
                "value": statistics.fmean(samples),
                "seconds": trace_seconds,
                "products": len(samples),
                "accuracy": relative_error(samples) if len(samples) > 1 else None,
            },
        }

    def answer(self):
        return {
            "loss": self.loss(),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "eigenvalue": self.eigenvalue(),
            "trace": self.trace(),
            "defaults": self.defaults(),
        }


def relative_error(samples):
    """Standard error of the mean over the mean."""
    mean = statistics.fmean(samples)
    return statistics.stdev(samples) / math.sqrt(len(samples)) / abs(mean) if mean else math.inf


def pyhessian_side(options, threads, precision, seed):
    task = {
        "run": str(options.run),
        "weights": str(options.weights or options.run / "model.safetensors"),
        "data": str(options.data),
        "rows": options.rows,
        "threads": threads,
        "precision": precision,
        "seed": seed,
        "residual": options.residual,
        "share": options.share,
    }
    out, _ = call([sys.executable, Path(__file__).resolve(), "--task", "-"], input=json.dumps(task))
    return json.loads(out)


# --- both sides, in turns --------------------------------------------------------------------------------


def check(ours, theirs, options):
    """Says where the two sides have not measured the same matrix."""
    # The residual bounds how far the closest eigenvalue lies, on each side.
    a, b = ours["eigenvalue"]["value"], theirs["eigenvalue"]["value"]
    if abs(a - b) > 2 * options.residual * abs(b):
        print(f"eigenvalues differ: {a} in batchlab, {b} in PyHessian", file=sys.stderr)
    a, b = ours["trace"]["value"], theirs["trace"]["value"]
    if abs(a - b) > 4 * math.sqrt(2) * options.share * abs(b):
        print(f"traces differ: {a} in batchlab, {b} in PyHessian", file=sys.stderr)


def compare(options):
    """One entry a round and number of threads: threads, seed, and what each side answered."""
    rounds = []
    for number in range(options.rounds):
        for threads in options.threads:
            seed = options.seed + number
            sides = {
                f"PyHessian {p}": lambda p=p: pyhessian_side(options, threads, p, seed) for p in options.precision
            }
            if not options.pyhessian_only:
                for p in options.precision:
                    sides[f"batchlab {p}"] = lambda p=p: batchlab_side(options, threads, p)
            found = in_turns(number, sides)
            rounds.append({"round": number, "threads": threads, "seed": seed, "sides": found})
            for side, answer in found.items():
                if side.startswith("PyHessian") and not options.pyhessian_only:
                    check(found[side.replace("PyHessian", "batchlab")], answer, options)
                told = ", ".join(f"{q} {answer[q]['value']:.6g} in {answer[q]['seconds']:.2f} s" for q in QUANTITIES)
                print(f"round {number + 1}, {threads} threads: {side}: {told}", file=sys.stderr)
    return rounds


def cells(answers, seconds_of="seconds"):
    """Median seconds, products and accuracy."""
    seconds = statistics.median(a[seconds_of] for a in answers)
    products = statistics.median(a["products"] for a in answers)
    worst = max(a["accuracy"] for a in answers)
    return f"{seconds:.3f} | {products:.0f} | {worst:.1e}"


def print_tables(options, rounds):
    parameters = next(iter(rounds[0]["sides"].values()))["parameters"]
    heading = (
        f"{parameters} parameters, {len(options.rows)} examples. Medians over {options.rounds} rounds, the largest "
        f"residual or standard error (relative; asked: {options.residual:g} and {options.share:g}); ratio of the "
        "seconds with its range over rounds."
    )
    where = f"load average {options.load:.1f} at the start." if options.pyhessian_only else machine(options)
    print(f"{where} {heading}\n")
    print("| | threads | precision | PyHessian s | products | reached | batchlab s | products | reached | ratio |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for quantity in QUANTITIES:
        for threads in options.threads:
            turns = [r["sides"] for r in rounds if r["threads"] == threads]
            for precision in options.precision:
                theirs = [turn[f"PyHessian {precision}"][quantity] for turn in turns]
                for name, seconds in ((quantity, "seconds"), (f"{quantity} with its residual", "known")):
                    if seconds not in theirs[0]:
                        continue
                    ours, ratio = " | | ", ""
                    if not options.pyhessian_only:
                        own = [turn[f"batchlab {precision}"][quantity] for turn in turns]
                        ours = cells(own)
                        ratio = spread([t[seconds] / o["seconds"] for t, o in zip(theirs, own)])
                    print(f"| {name} | {threads} | {precision} | {cells(theirs, seconds)} | {ours} | {ratio} |")
    print("\nPyHessian with its own stops (maxIter = 100, tol = 1e-3), whatever it reached:\n")
    print("| | threads | precision | s | reached, range over seeds |")
    print("|---|---:|---|---:|---:|")
    for quantity in QUANTITIES:
        for threads in options.threads:
            for precision in options.precision:
                turns = [r["sides"][f"PyHessian {precision}"] for r in rounds if r["threads"] == threads]
                found = [turn["defaults"][quantity] for turn in turns]
                seconds = statistics.median(f["seconds"] for f in found)
                reached = [f["accuracy"] for f in found if f["accuracy"] is not None]
                ends = f"{min(reached):.1e} to {max(reached):.1e}" if reached else "one probe"
                print(f"| {quantity} | {threads} | {precision} | {seconds:.3f} | {ends} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, metavar="TRIAL", help="folder of a trial of a study")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where the IDX files of the trial's data are")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="other weights than the trial's")
    parser.add_argument("--examples", type=int, default=4096)
    parser.add_argument("--residual", type=float, default=1e-3, help="of the eigenvalue, relative to it")
    parser.add_argument("--share", type=float, default=0.02, help="standard error of the trace, relative to it")
    parser.add_argument("--trace", default="auto", help="how batchlab finds the trace: its option of that name")
    parser.add_argument("--precision", nargs="+", default=["f32", "f64"], choices=["f32", "f64"], help="of both sides")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--batchlab", type=Path, default=ROOT / "target/release/batchlab", help="the program")
    parser.add_argument("--pyhessian-only", action="store_true", help="PyHessian's half, on the first rows")
    parser.add_argument("--json", metavar="FILE", help="write every round here as well")
    # How this script calls itself.
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(PyHessianSide(json.load(sys.stdin)).answer()))
        return
    if options.run is None or options.data is None:
        parser.error("a trial's folder and --data are needed")
    options.run, options.data, options.fused = options.run.resolve(), options.data.resolve(), False
    options.batchlab = options.batchlab.resolve()
    options.weights = options.weights and options.weights.resolve()
    options.load = os.getloadavg()[0]
    if options.load > 0.5:
        print(f"load average {options.load:.1f}: the numbers of a busy machine mean nothing", file=sys.stderr)
    options.rows = list(range(options.examples)) if options.pyhessian_only else batchlab_ids(options)
    rounds = compare(options)
    print_tables(options, rounds)
    if options.json:
        Path(options.json).write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
