#!/usr/bin/env python3
"""Times the same work in batchlab and in PyTorch, and prints the ratio as a Markdown table.

    cargo build --release
    python scripts/compare_pytorch.py                 # training steps, at one and at two threads
    python scripts/compare_pytorch.py --sweep         # a whole study, configs/quickstart.toml
    python scripts/compare_pytorch.py --sweep FILE    # another study of an MLP on digits

Needs torch and numpy (--sweep: scikit-learn too) from PyPI. PyTorch runs as installed: no other allocator, no
compilation; `--fused` gives it its fused optimizers. Both sides are measured in turns, in processes of
their own, several rounds; the order within a round alternates, so that a slow moment of the machine
hits both. A ratio above 1 means that batchlab is faster.

Steps: forward, backward and a momentum update of one batch, gathered from examples in memory. Sweep: the
whole command, from the first instruction to the last file, the imports included. PyTorch trains the
trials of the study with the same numbers of steps, batch sizes, rates and evaluations; it writes one CSV of
losses a trial and no checkpoint, manifest or report. PyTorch trains with one worker, and so does batchlab here
(train.workers=1), whatever the study says: workers change results by rounding only, and cost time.
"""

import argparse
import csv
import functools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = [("mlp", 32), ("mlp", 256), ("mlp", 2048), ("simple-cnn", 64)]
NAMES = {"mlp": "MLP 784-256-256-10", "simple-cnn": "CNN 5x5 32, 5x5 64, 1024"}


# --- PyTorch, in its own process -------------------------------------------------------------------------


def step_model(name):
    from torch import nn

    if name == "mlp":
        widths = [784, 256, 256, 10]
        layers = [nn.Linear(widths[0], widths[1])]
        for i, o in zip(widths[1:], widths[2:]):
            layers += [nn.ReLU(), nn.Linear(i, o)]
        return nn.Sequential(*layers), (784,)
    return (
        nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 1024),
            nn.ReLU(),
            nn.Linear(1024, 10),
        ),
        (1, 28, 28),
    )


def torch_step(name, batch, threads, seconds, fused):
    """Median microseconds of a training step."""
    import torch
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, shape = step_model(name)
    examples = max(4 * batch, 4096)
    inputs, labels = torch.randn(examples, *shape), torch.randint(10, (examples,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **({"fused": True} if fused else {}))
    order = torch.randperm(examples)

    def step(number):
        start = number * batch % (examples - batch + 1)
        index = order[start : start + batch]
        x, y = inputs.index_select(0, index), labels.index_select(0, index)
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    # A fifth of the time to warm up, at least 3 steps of each.
    clock = time.perf_counter
    count, until = 0, clock() + seconds / 5
    while count < 3 or clock() < until:
        step(count)
        count += 1
    times, until = [], clock() + seconds
    while len(times) < 3 or clock() < until:
        start = clock()
        step(count)
        times.append(clock() - start)
        count += 1
    return {"microseconds_per_step": statistics.median(times) * 1e6, "steps": len(times)}


def rate_factor(config, steps, steps_per_epoch, peak):
    """The factor of the peak rate at each update, or None where it is always 1."""
    warmup, decay = config["learning_rate"].get("warmup"), config["learning_rate"].get("decay", {"constant": {}})
    kind, options = (decay, {}) if isinstance(decay, str) else next(iter(decay.items()))
    if warmup is None and kind == "constant":
        return None
    length, start = 0, 0.0
    if warmup is not None:
        length = warmup["steps"] if "steps" in warmup else warmup["epochs"] * steps_per_epoch
        start = warmup.get("start_lr", min(config["learning_rate"]["base_lr"], peak)) / peak
        if warmup.get("shape", "gradual") != "gradual":
            sys.exit("compare_pytorch.py knows gradual warm-up alone")
    last = options.get("final_fraction", 0.0)

    def factor(step):
        if step < length:
            return start + (1 - start) * step / length
        progress = (step - length) / max(steps - length, 1)
        if kind == "constant":
            return 1.0
        if kind == "cosine":
            return last + (1 - last) * 0.5 * (1 + math.cos(math.pi * progress))
        if kind == "linear":
            return last + (1 - last) * (1 - progress)
        if kind == "step":
            return options.get("factor", 0.1) ** sum(step >= e * steps_per_epoch for e in options["epochs"])
        sys.exit(f"compare_pytorch.py knows no decay {kind!r}")

    return factor


def sweep_model(config, features, classes):
    from torch import nn

    kind, options = next(iter(config["model"].items()))
    if kind not in ("mlp", "softmax-regression"):
        sys.exit(f"compare_pytorch.py knows no model {kind!r}")
    hidden = options.get("widths", [256, 256]) if kind == "mlp" else []
    activation = nn.Tanh if options.get("activation") == "tanh" else nn.ReLU
    widths = [features, *hidden, classes]
    layers = []
    for i, o in zip(widths, widths[1:]):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers[:-1])


def sweep_optimizer(config, parameters, lr, fused):
    import torch

    kind, options = next(iter(config.get("optimizer", {"momentum": {}}).items()))
    extra = {"fused": True} if fused else {}
    if kind == "adamw":
        betas = (options.get("beta1", 0.9), options.get("beta2", 0.999))
        decay, eps = options.get("weight_decay", 0.01), options.get("epsilon", 1e-8)
        return torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=decay, eps=eps, **extra)
    momentum = 0.0 if kind == "sgd" else options.get("momentum", 0.9)
    decay = options.get("weight_decay", 0.0)
    nesterov = kind == "nesterov"
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=decay, **extra)


@functools.cache
def digits(source, test_fraction, validation_fraction):
    """The splits, standardized on the training part; read once a process."""
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    if source != "digits":
        sys.exit(f"compare_pytorch.py knows no data {source!r}")
    inputs, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        inputs / 16, labels, test_size=test_fraction, random_state=0, stratify=labels
    )
    x, x_test, y, y_test = (torch.tensor(p) for p in parts)
    mean, deviation = x.mean(), x.std()
    ready = {"train": (x, y), "test": (x_test, y_test)}
    if validation_fraction:
        held = round(len(x) * validation_fraction)
        ready |= {"validation": (x[:held], y[:held]), "train": (x[held:], y[held:])}
    return {k: (((x - mean) / deviation).float(), y) for k, (x, y) in ready.items()}


def torch_trial(trial, fused, out):
    """One trial as a researcher would write it; returns the final test accuracy."""
    import torch
    from torch.nn.functional import cross_entropy

    config, batch, steps = trial["config"], trial["batch"], trial["steps"]
    given = config["data"]
    source = given["source"] if isinstance(given["source"], str) else next(iter(given["source"]))
    data = digits(source, given.get("test_fraction", 0.2), given.get("validation_fraction", 0.0))
    inputs, labels = data["train"]
    torch.manual_seed(trial["seed"])
    model = sweep_model(config, inputs.shape[1], 10)
    optimizer = sweep_optimizer(config, model.parameters(), trial["lr"], fused)
    factor = rate_factor(config, steps, len(inputs) / batch, trial["lr"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor) if factor else None
    evaluations = {}

    def evaluate(step):
        model.eval()
        with torch.no_grad():
            for split in trial["splits"]:
                x, y = data[split]
                scores = model(x)
                accuracy = (scores.argmax(1) == y).float().mean().item()
                evaluations[step, split] = cross_entropy(scores, y).item(), accuracy
        model.train()

    losses, at = [], {*trial["evaluated_at"], steps}
    if 0 in at:
        evaluate(0)
    order, position = torch.randperm(len(inputs)), 0
    for step in range(1, steps + 1):
        if position + batch > len(inputs):
            # The rest of this epoch and the start of the next: the stream is cut into full batches.
            rest, order = order[position:], torch.randperm(len(inputs))
            position = batch - len(rest)
            index = torch.cat([rest, order[:position]])
        else:
            index = order[position : position + batch]
            position += batch
        x, y = inputs.index_select(0, index), labels.index_select(0, index)
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if schedule:
            schedule.step()
        losses.append(loss.detach())
        if step in at:
            evaluate(step)
    with open(Path(out) / f"{trial['id']}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "loss"])
        writer.writerows(enumerate(torch.stack(losses).tolist(), 1))
    return evaluations[steps, "test"][1]


def torch_sweep(plan, processes, threads, fused):
    """All trials of a plan; seconds without the imports, and the final test accuracies."""
    import torch

    torch.set_num_threads(threads)
    trials = json.loads(Path(plan).read_text())
    with tempfile.TemporaryDirectory() as out:
        jobs = [(trial, fused, out) for trial in trials]
        start = time.perf_counter()
        if processes == 1:
            accuracies = [torch_trial(*job) for job in jobs]
        else:
            import multiprocessing

            import sklearn.model_selection  # noqa: F401  once, before the fork

            with multiprocessing.get_context("fork").Pool(processes) as pool:
                accuracies = pool.starmap(torch_trial, jobs, chunksize=1)
        seconds = time.perf_counter() - start
    return {"seconds_without_imports": seconds, "test_accuracy": accuracies}


# --- both sides, in turns --------------------------------------------------------------------------------


def call(command, **options):
    """Runs a command; its output and its wall-clock seconds."""
    start = time.perf_counter()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout, seconds


def own(*arguments):
    return [sys.executable, Path(__file__).resolve(), *arguments]


def spread(values, digits=2):
    """Median with range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def in_turns(number, sides):
    """Calls each side once; every second round in the opposite order."""
    found = {}
    for side in list(sides) if number % 2 == 0 else reversed(list(sides)):
        found[side] = sides[side]()
    return found


def machine(options):
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    torch, _ = call([sys.executable, "-c", "import torch; print(torch.__version__)"])
    batchlab, _ = call([options.batchlab, "--version"])
    optimizers = ", fused optimizers" if options.fused else ""
    return (
        f"{processor}, {os.cpu_count()} cores, {platform.system()}; {batchlab.strip()}; "
        f"PyTorch {torch.strip()}{optimizers}; load average {options.load:.1f} at the start; rounds: {options.rounds}."
    )


def compare_steps(options):
    cases = [(model, batch, threads) for model, batch in STEPS for threads in options.threads]
    found = {case: [] for case in cases}
    fused = ["--fused"] if options.fused else []
    for number in range(options.rounds):
        for model, batch, threads in cases:
            where = ["--model", model, "--batch", batch, "--threads", threads, "--seconds", options.seconds]
            sides = {
                "torch": lambda: call(own("--torch-step", *where, *fused)),
                "batchlab": lambda: call([options.batchlab, "bench-step", *where]),
            }
            turn = in_turns(number, sides)
            turn = {side: json.loads(out)["microseconds_per_step"] for side, (out, _) in turn.items()}
            found[model, batch, threads].append(turn)
            print(
                f"round {number + 1}: {model} batch {batch}, {threads} threads: {turn['torch']:.0f} us PyTorch, "
                f"{turn['batchlab']:.0f} us batchlab",
                file=sys.stderr,
            )
    print(f"{machine(options)} Microseconds a step, medians; ratio with its range over rounds.\n")
    print("| model | batch | threads | PyTorch | batchlab | PyTorch / batchlab |")
    print("|---|---:|---:|---:|---:|---:|")
    for (model, batch, threads), turns in found.items():
        torch = statistics.median(turn["torch"] for turn in turns)
        batchlab = statistics.median(turn["batchlab"] for turn in turns)
        ratio = spread([turn["torch"] / turn["batchlab"] for turn in turns])
        print(f"| {NAMES[model]} | {batch} | {threads} | {torch:.0f} | {batchlab:.0f} | {ratio} |")
    return [{"model": m, "batch": b, "threads": t, "rounds": turns} for (m, b, t), turns in found.items()]


def read_plan(results):
    """What PyTorch is to do: the trials of a finished study, from its own files."""
    trials = []
    with open(results / "summary.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        folder = results / "trials" / row["trial"]
        with open(folder / "evaluations.csv", newline="") as file:
            evaluations = list(csv.DictReader(file))
        trials.append(
            {
                "id": row["trial"],
                "seed": int(row["seed"]),
                "batch": int(row["global_batch"]),
                "steps": int(row["steps"]),
                "lr": float(row["lr"]),
                "config": tomllib.loads((folder / "config.toml").read_text()),
                "evaluated_at": sorted({int(e["step"]) for e in evaluations}),
                "splits": sorted({e["split"] for e in evaluations}),
            }
        )
    accuracy = [float(row["test_accuracy"]) for row in rows if row["test_accuracy"]]
    return trials, accuracy


def compare_sweep(options):
    config = Path(options.sweep).resolve()
    fused = ["--fused"] if options.fused else []
    with tempfile.TemporaryDirectory() as temporary:
        plan = Path(temporary) / "plan.json"

        def batchlab():
            with tempfile.TemporaryDirectory(dir=temporary) as folder:
                _, seconds = call([options.batchlab, "run", config, "--set", "train.workers=1"], cwd=folder)
                (results,) = (Path(folder) / "results").glob("*/")
                trials, accuracy = read_plan(results)
                plan.write_text(json.dumps(trials))
                return {"seconds": seconds, "test_accuracy": accuracy, "trials": len(trials)}

        def torch(processes, threads):
            out, seconds = call(
                own("--torch-sweep", plan, "--processes", processes, "--threads", threads, *fused)
            )
            return json.loads(out) | {"seconds": seconds}

        sides = {
            "batchlab": batchlab,
            "PyTorch, 1 process, 1 thread": lambda: torch(1, 1),
            "PyTorch, 1 process, 2 threads": lambda: torch(1, 2),
            "PyTorch, 2 processes, 1 thread each": lambda: torch(2, 1),
        }
        rounds = []
        for number in range(options.rounds):
            rounds.append(in_turns(number, sides))
            seconds = ", ".join(f"{turn['seconds']:.1f} s {side}" for side, turn in rounds[-1].items())
            print(f"round {number + 1}: {seconds}", file=sys.stderr)
        trials = json.loads(plan.read_text())
    steps = sum(trial["steps"] for trial in trials)
    print(
        f"{machine(options)} {config.name}: {len(trials)} trials, {steps} steps. Seconds of the whole command, "
        f"median (range). Ratio: of the seconds to batchlab's, per round.\n"
    )
    print("| | seconds | without imports | mean test accuracy | ratio |")
    print("|---|---:|---:|---:|---:|")
    for side in sides:
        seconds = [turn[side]["seconds"] for turn in rounds]
        ratio = [turn[side]["seconds"] / turn["batchlab"]["seconds"] for turn in rounds]
        accuracy = statistics.mean(rounds[0][side]["test_accuracy"])
        bare = [turn[side]["seconds_without_imports"] for turn in rounds] if side != "batchlab" else None
        print(
            f"| {side} | {spread(seconds, 1)} | {f'{statistics.median(bare):.1f}' if bare else ''} "
            f"| {accuracy:.4f} | {spread(ratio)} |"
        )
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", nargs="?", const=ROOT / "configs/quickstart.toml", metavar="FILE")
    parser.add_argument("--batchlab", default=ROOT / "target/release/batchlab", help="the program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of a step")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--fused", action="store_true", help="PyTorch's fused optimizers")
    parser.add_argument("--json", metavar="FILE", help="write every round here as well")
    # How this script calls itself.
    parser.add_argument("--torch-step", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--torch-sweep", metavar="PLAN", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--processes", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_step:
        found = torch_step(options.model, options.batch, options.threads[0], options.seconds, options.fused)
        print(json.dumps(found))
    elif options.torch_sweep:
        print(json.dumps(torch_sweep(options.torch_sweep, options.processes, options.threads[0], options.fused)))
    else:
        options.batchlab = Path(options.batchlab).resolve()
        options.load = os.getloadavg()[0]
        if options.load > 0.5:
            # Two OpenMP threads on busy cores wait for each other at every barrier.
            print(f"load average {options.load:.1f}: the numbers of a busy machine mean nothing", file=sys.stderr)
        rounds = compare_sweep(options) if options.sweep else compare_steps(options)
        if options.json:
            Path(options.json).write_text(json.dumps(rounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
