#!/usr/bin/env python3
"""Holds predicted times of an update against real MPI runs: on this machine, and on hosts made by hosts.py.

    cargo build --release --features mpi
    python scripts/check_plan.py here    target/release/batchlab --out docs/plan-check        # 1, 2 and 4 ranks
    sudo python scripts/check_plan.py hosts   target/release/batchlab --out docs/plan-check   # 9 networks, 1, 2 and 4 hosts
    sudo python scripts/check_plan.py overlap target/release/batchlab --out docs/plan-check   # late gradients
    sudo python scripts/check_plan.py connections target/release/batchlab --out docs/plan-check   # why some of them miss
    python scripts/check_plan.py tables --out docs/plan-check                                 # Markdown of the tables
    python scripts/check_plan.py test                                                         # this script

What goes in: seconds of an update against the batch on one rank (`bench-step`), to which t0 + t1 b is fitted,
and alpha, beta and gamma of the links, fitted by `batchlab collectives --measure` on two ranks, on this
machine also on four, which share the cores. What comes out: seconds of an update on 1, 2 and 4 ranks, for
batches that are not in the fit, three times:

- `planner`: `batchlab plan`, from its [check]. Its `ring` has the messages, bytes and additions of reduction =
  "ordered" where a rank sends one message at a time; for "native" it takes the fastest of recursive doubling, the
  ring and Rabenseifner. Ranks share the cores of this machine, so all of them are one node to it. Late
  gradients: `overlap` and `backward` of 1, so that the sum is hidden behind all of the computing.
- `small`: with the two exchanges of a few bytes that come before each sum: the length, and then the losses, of a
  rank's pieces.
- `network`: as `small`, from what UDP and TCP measure of the network in place of the fit, and with all messages
  of an exchange at once, as `reduction = "ordered"` sends them: four times one way, and the bytes at the rate.

From 64 KiB on Open MPI asks the receiver before it sends over TCP, and the answer waits behind what the receiver
itself sends; `connections` measures what that costs, and `--eager-limit` lifts it from all runs on hosts.

Each case is run several times, all of them in turns, shuffled anew each time; what is shown is the median
of the runs' medians, and the smallest and the largest. Before a run the script waits for the cores to be idle, for as
long as `--patience` lasts; `others_busy` is the share of them that other programs used just before, the
median over the runs.
"""

import argparse
import csv
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from hosts import Hosts, HostsError  # noqa: E402

CORES = len(os.sched_getaffinity(0))
MODELS = {"small": ("32,32", 26_506), "large": ("256,256", 269_322)}  # widths, parameters
LOCAL = [1, 8, 32, 128, 256]  # batches of the fit
DELAYS = [0.2e-3, 1e-3, 5e-3]
RATES = [1e8, 5e8, 2e9]
ON_HOSTS = [("small", 512), ("large", 64), ("large", 8192)]
OVERLAP = [512, 2048, 4096, 8192]
PIECE = 64  # bytes, about, of what is told of a piece
KINDS = ("planner", "small", "network")  # predictions
CHANNELS = ["--operation", "all-reduce", "--algorithm", "direct,ring,recursive-doubling", "--bytes", "8..2MiB"]


# --- the model -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """Seconds of a message, of a byte, of a byte added."""

    alpha: float
    beta: float
    gamma: float

    def small(self, ranks):
        """The two exchanges before a sum, one message after another."""
        return (ranks - 1) * (2 * self.alpha + (8 + PIECE) * self.beta)

    def at_once(self, ranks, size):
        """All that is said in an update: lengths, losses, parts to their owners, sums to all."""
        return 4 * self.alpha + (ranks - 1) * (8 + PIECE + 2 * size / ranks) * self.beta


@dataclass(frozen=True)
class Device:
    """Seconds of an update on one rank: fixed, and of an example."""

    fixed: float
    example: float

    def compute(self, ranks, batch):
        return max(1.0, ranks / CORES) * (self.fixed + self.example * batch / ranks)


PLAN = """
[steps]
s_min = 1000
b_crit = 1000
[model]
parameters = {parameters}
[device]
seconds_per_update = {device.fixed!r}
seconds_per_example = {device.example!r}
backward = {backward}
[cluster]
workers_per_node = 4
full_speed_workers = {cores}
[cluster.between]
{link}
[cluster.inside]
{link}
[collectives]
algorithms = {algorithms}
overlap = {overlap}
[plan]
up_to = 4
[check]
csv = "measured.csv"
"""
ALGORITHMS = {"ordered": ["ring"], "native": ["recursive-doubling", "ring", "rabenseifner"]}


def planner(program, device, link, parameters, measured, reduction="ordered", late=False):
    """What `batchlab plan` predicts for measurements (ranks, batch, seconds)."""
    costs = {"latency": link.alpha, "bandwidth": 1 / max(link.beta, 1e-15), "seconds_per_byte_added": link.gamma}
    text = PLAN.format(
        parameters=parameters,
        device=device,
        backward=float(late) or 2 / 3,
        cores=CORES,
        link="\n".join(f"{key} = {value!r}" for key, value in costs.items()),
        algorithms=json.dumps(ALGORITHMS[reduction]),
        overlap=float(late),
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plan.toml").write_text(text)
        write(Path(folder) / "measured.csv", [dict(zip(("workers", "batch", "seconds"), m)) for m in measured], quiet=True)
        command = [program, "plan", "plan.toml", "--out", "answer"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode != 0:
            raise HostsError(f"batchlab plan: exit status {done.returncode}\n{done.stderr.strip()}")
        rows = read(Path(folder) / "answer" / "check.csv")
    found = {(int(row["workers"]), int(row["batch"])): float(row["predicted"]) for row in rows}
    return [found[ranks, batch] for ranks, batch, _ in measured]


def result_rows(name, model, reduction, cases, program, device, link, late=False, network=None):
    """Rows of cases (ranks, batch, runs): predictions beside what was measured."""
    parameters = MODELS[model][1]
    measured = [(ranks, batch, statistics.median(runs.seconds)) for ranks, batch, runs in cases]
    rows = []
    planned = planner(program, device, link, parameters, measured, reduction, late)
    apart = planner(program, device, link, parameters, measured, reduction) if late else planned
    for (ranks, batch, runs), (_, _, seconds), plan, all_of_it in zip(cases, measured, planned, apart):
        computing = device.compute(ranks, batch)
        join = max if late else lambda a, b: a + b
        predicted = {"planner": plan, "small": join(computing, all_of_it - computing + link.small(ranks))}
        if network and ranks > 1:
            alone = Link(network["one_way_s"], 8 / network["stream_bit_s"], 0.0)
            predicted["network"] = join(computing, alone.at_once(ranks, 4 * parameters))
        rows.append(
            {
                "where": name,
                "model": model,
                "reduction": reduction,
                "late": int(late),
                "ranks": ranks,
                "batch": batch,
                **{f"{kind}_s": predicted.get(kind, "") for kind in KINDS},
                "measured_s": seconds,
                "measured_low_s": min(runs.seconds),
                "measured_high_s": max(runs.seconds),
                "runs": len(runs.seconds),
                "others_busy": round(statistics.median(runs.busy), 2),
                **{f"error_{kind}": predicted[kind] / seconds - 1 if kind in predicted else "" for kind in KINDS},
            }
        )
    return rows


def fit_line(points):
    """t0 and t1 >= 0 that make the squares of (t0 + t1 b - t)/t least; points are (b, t)."""
    w, x, xx, y, xy = (
        sum(f(b, t) / (t * t) for b, t in points)
        for f in (lambda b, t: 1, lambda b, t: b, lambda b, t: b * b, lambda b, t: t, lambda b, t: b * t)
    )
    slope = (w * xy - x * y) / (w * xx - x * x)
    fixed = (y - slope * x) / w
    if fixed < 0:
        fixed, slope = 0.0, xy / xx
    return Device(fixed, slope)


def fit_device(runs, resamples=1000):
    """The fit to medians over runs, and its 95 % interval by resampling the runs of each batch."""
    draw = random.Random(0)

    def fit(pick):
        return fit_line([(b, statistics.median(pick(times))) for b, times in runs.items()])

    drawn = [fit(lambda times: draw.choices(times, k=len(times))) for _ in range(resamples)]
    interval = {
        name: [sorted(getattr(d, name) for d in drawn)[int(share * resamples)] for share in (0.025, 0.975)]
        for name in ("fixed", "example")
    }
    return fit(lambda times: times), interval


# --- measurements ----------------------------------------------------------------------------------------


class Here:
    """Ranks on this machine."""

    def run(self, command, ranks):
        if ranks > 1:
            oversubscribed = ["--oversubscribe"] if ranks > CORES else []
            command = ["mpirun", "--allow-run-as-root", *oversubscribed, "--bind-to", "none", "-n", str(ranks), *command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise HostsError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")
        return done.stdout


class On:
    """One rank on each of the first hosts."""

    def __init__(self, hosts, options=()):
        self.hosts, self.options = hosts, options

    def run(self, command, ranks):
        if ranks > 1:
            return self.hosts.run(command, ranks, self.options, timeout=300)
        return Here().run(command, 1)


def update_seconds(where, program, model, batch, ranks, seconds, extra=()):
    """Median seconds of an update in one run; a rank computes one piece."""
    widths, parameters = MODELS[model]
    command = [program, "bench-step", "--model", "mlp", "--widths", widths, "--threads", "1", "--seconds", str(seconds)]
    command += ["--batch", str(batch), "--workers", str(ranks), *extra]
    found = json.loads(where.run(command, ranks))
    if found["ranks"] != ranks or found["parameters"] != parameters:
        raise HostsError(f"expected {ranks} ranks and {parameters} parameters, found {found}")
    return found["microseconds_per_step"] * 1e-6


def busy():
    """Share of the cores that is in use, over a quarter of a second."""

    def ticks():
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]

    total, idle = ticks()
    time.sleep(0.25)
    later, later_idle = ticks()
    return 1 - (later_idle - idle) / max(later - total, 1)


class Patience:
    """Seconds left to wait for idle cores, and how busy they were."""

    def __init__(self, seconds):
        self.left = seconds

    def wait(self):
        while (share := busy()) > 0.1 and self.left > 0:
            time.sleep(min(1.0, self.left))
            self.left -= 1.25
        return share


class Runs:
    """Runs of one case, and how busy others kept the cores before each."""

    def __init__(self):
        self.seconds, self.busy = [], []


def in_turns(cases, options, measure):
    """Runs of each case, all cases in turns."""
    draw, runs = random.Random(0), {case: Runs() for case in cases}
    for number in range(options.rounds):
        for case in draw.sample(cases, len(cases)):
            runs[case].busy.append(options.patience.wait())
            runs[case].seconds.append(measure(*case))
            print(f"round {number + 1}: {case} {runs[case].seconds[-1] * 1e3:.3f} ms", file=sys.stderr, flush=True)
    return runs


def measure_link(where, program, seconds, ranks=2):
    """alpha, beta and gamma as `batchlab collectives --measure` fits them, and the row of the fit."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "collectives", "--measure", *CHANNELS, "--most-seconds", str(seconds), "--out", folder]
        where.run(command, ranks)
        rows = {row["parameter"]: row for row in read(Path(folder) / "fit.csv")}
    fit = {"ranks": ranks}
    for name in ("alpha", "beta", "gamma"):
        fit |= {name: rows[name]["value"], f"{name}_low": rows[name]["low"], f"{name}_high": rows[name]["high"]}
    return Link(*(float(rows[name]["value"]) for name in ("alpha", "beta", "gamma"))), fit


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows, quiet=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    if not quiet:
        print(f"{path}: {len(rows)} rows", file=sys.stderr)


def devices_of(out):
    return {row["model"]: Device(float(row["t0_s"]), float(row["t1_s"])) for row in read(out / "device.csv")}


def here(options):
    out, program = options.out, options.program
    where = Here()
    fit_cases = [(model, batch, 1, "fit") for model in MODELS for batch in LOCAL]
    cases = [
        (model, batch, ranks, reduction)
        for model in MODELS
        for batch in (64, 512, 4096)
        for ranks in (1, 2, 4)
        for reduction in (("ordered", "native") if ranks > 1 else ("ordered",))
    ]

    def measure(model, batch, ranks, reduction):
        extra = ["--reduction", reduction] if reduction != "fit" else []
        return update_seconds(where, program, model, batch, ranks, options.seconds, extra)

    # Before the updates and after them.
    turns = {ranks: [measure_link(where, program, options.link_seconds, ranks)] for ranks in (2, 4)}
    runs = in_turns(fit_cases + cases, options, measure)
    for ranks, found in turns.items():
        found.append(measure_link(where, program, options.link_seconds, ranks))
    named = [(when, fit) for found in turns.values() for when, (_, fit) in zip(("before", "after"), found)]
    write(out / "links-here.csv", [{"where": f"here, {when}", **fit} for when, fit in named])
    links = {ranks: between(*(link for link, _ in found)) for ranks, found in turns.items()}
    links[1] = links[2]
    rows, devices, table = [], {}, []
    for model in MODELS:
        fitted = {batch: runs[model, batch, 1, "fit"] for batch in LOCAL}
        devices[model], interval = fit_device({batch: found.seconds for batch, found in fitted.items()})
        row = {"model": model, "parameters": MODELS[model][1]}
        for key, name in (("t0", "fixed"), ("t1", "example")):
            low, high = interval[name]
            row |= {f"{key}_s": getattr(devices[model], name), f"{key}_low_s": low, f"{key}_high_s": high}
        table.append(row)
        own = [(1, batch, found) for batch, found in fitted.items()]
        rows += result_rows("here, in the fit", model, "ordered", own, program, devices[model], links[1])
        for model_, batch, ranks, reduction in cases:
            if model_ == model:
                own = [(ranks, batch, runs[model, batch, ranks, reduction])]
                rows += result_rows("here", model, reduction, own, program, devices[model], links[ranks])
    write(out / "device.csv", table)
    write(out / "here.csv", rows)


def between(one, other):
    """The geometric mean of each cost."""
    return Link(*(math.sqrt(getattr(one, f.name) * getattr(other, f.name)) for f in fields(Link)))


def name_of(delay, rate):
    return f"{delay * 1e3:g} ms, {rate * 1e-6:g} Mbit/s"


def parameters_of(options):
    """For mpirun."""
    limit = options.eager_limit
    return ["--mca", "btl_tcp_eager_limit", str(limit)] if limit else []


def measure_network(hosts, options):
    """What a network really does, and the costs of its links."""
    ping = hosts.ping()
    network = {
        "delay_s": hosts.delay,
        "rate_bit_s": hosts.rate,
        "one_way_s": ping["median"],
        "one_way_low_s": ping["low"],
        "one_way_high_s": ping["high"],
        "stream_bit_s": hosts.stream() * 8,
    }
    link, fit = measure_link(On(hosts, parameters_of(options)), options.program, options.link_seconds)
    return network | fit, link


def on_network(options, count, delay, rate, cases):
    """Runs of cases (model, batch, ranks, whether late) on hosts, with what their network does."""
    name = name_of(delay, rate)
    print(f"--- {name}", file=sys.stderr, flush=True)
    with Hosts(count, delay, rate, kind=options.kind) as made:
        network, link = measure_network(made, options)
        where = On(made, parameters_of(options))

        def measure(model, batch, ranks, late):
            extra = ["--delay", "1"] if late else []
            return update_seconds(where, options.program, model, batch, ranks, options.seconds, extra)

        runs = in_turns(cases, options, measure)
        network = {"where": name, **network, **made.counters()}
    devices, rows = devices_of(options.out), []
    for model in MODELS:
        for late in (False, True):
            own = [(ranks, batch, runs[m, batch, ranks, k]) for m, batch, ranks, k in cases if (m, k) == (model, late)]
            if own:
                rows += result_rows(name, model, "ordered", own, options.program, devices[model], link, late, network)
    return network, rows


def on_networks(options, name, count, networks, cases):
    found, rows = [], []
    for delay, rate in networks:
        network, more = on_network(options, count, delay, rate, cases)
        found.append(network)
        rows += more
        # What there is stays if a later network fails.
        write(options.out / f"networks-{name}.csv", found)
        write(options.out / f"{name}.csv", rows)


def hosts(options):
    cases = [(model, batch, ranks, False) for model, batch in ON_HOSTS for ranks in (1, 2, 4)]
    name = f"hosts-eager-{options.eager_limit}" if options.eager_limit else "hosts"
    on_networks(options, name, 4, [(delay, rate) for delay in DELAYS for rate in RATES], cases)


def overlap(options):
    cases = [("large", batch, 2, late) for batch in OVERLAP for late in (False, True)]
    name = f"overlap-eager-{options.eager_limit}" if options.eager_limit else "overlap"
    on_networks(options, name, 2, [(1e-3, 5e8), (5e-3, 5e8)], cases)


def connections(options):
    """What one TCP connection between two hosts costs that sends both ways at once, and one that waits for receivers."""
    rows = []
    cases = [(links, eager) for links in (1, 2) for eager in (65536, 4 << 20)]
    for delay, rate in ((0.2e-3, 1e8), (1e-3, 5e8), (5e-3, 5e8)):
        name = name_of(delay, rate)
        print(f"--- {name}", file=sys.stderr)
        with Hosts(2, delay, rate, kind=options.kind) as made:

            def measure(links, eager):
                parameters = ["--mca", "btl_tcp_links", str(links), "--mca", "btl_tcp_eager_limit", str(eager)]
                return update_seconds(On(made, parameters), options.program, "large", 64, 2, options.seconds)

            runs = in_turns(cases, options, measure)
        for (links, eager), found in runs.items():
            row = {"where": name, "ranks": 2, "batch": 64, "connections": links, "eager_limit": eager}
            row |= {"on_the_wire_s": 8 * 4 * MODELS["large"][1] / rate, "measured_s": statistics.median(found.seconds)}
            rows.append(row | {"measured_low_s": min(found.seconds), "measured_high_s": max(found.seconds)})
        write(options.out / "connections.csv", rows)


# --- tables ----------------------------------------------------------------------------------------------


def table(header, rows):
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print()


def ms(text):
    return f"{float(text) * 1e3:.3g}"


def percent(number):
    return f"{number * 100:+.0f} %"


def result_table(rows):
    header = ["where", "model", "reduction", "late", "ranks", "batch", *(f"{kind}, ms" for kind in KINDS)]
    header += ["measured, ms", "from to", *(f"{kind}, error" for kind in KINDS)]
    cells = []
    for r in rows:
        head = [r[key] for key in ("where", "model", "reduction", "late", "ranks", "batch")]
        head += [ms(r[f"{kind}_s"]) if r[f"{kind}_s"] else "" for kind in KINDS]
        head += [ms(r["measured_s"]), f"{ms(r['measured_low_s'])} to {ms(r['measured_high_s'])}"]
        errors = (r[f"error_{kind}"] for kind in KINDS)
        cells.append([*head, *(percent(float(error)) if error else "" for error in errors)])
    table(header, cells)


def error_summary(rows, by):
    """Median size of the error and the largest, in groups."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in by), []).append(row)
    cells = []
    for key, group in groups.items():
        cell = [*key, len(group)]
        for kind in KINDS:
            errors = sorted((float(row[f"error_{kind}"]) for row in group if row[f"error_{kind}"]), key=abs)
            cell.append(f"{statistics.median(map(abs, errors)) * 100:.0f} % ({percent(errors[-1])})" if errors else "")
        cells.append(cell)
    table([*by, "cases", *(f"{kind}: median error (largest)" for kind in KINDS)], cells)


def best_ranks(rows):
    """For each network, model and batch: the fastest number of hosts, predicted and measured."""
    groups = {}
    for row in rows:
        groups.setdefault((row["where"], row["model"], row["batch"]), []).append(row)
    cells, agree = [], dict.fromkeys(KINDS, 0)
    for key, group in groups.items():
        measured = {row["ranks"]: float(row["measured_s"]) for row in group}
        best = min(measured, key=measured.get)
        choices = {
            kind: min(group, key=lambda row: float(row[f"{kind}_s"] or row["planner_s"]))["ranks"] for kind in KINDS
        }
        for kind, choice in choices.items():
            agree[kind] += choice == best
        lost = max(measured[choice] for choice in choices.values()) / measured[best] - 1
        cells.append([*key, *choices.values(), best, percent(lost)])
    table(["where", "model", "batch", *(f"best by {kind}" for kind in KINDS), "measured", "lost by the worst choice"], cells)
    print(f"The choice is the measured one in {agree} of {len(cells)}.\n")


def links_table(rows):
    header, cells = ["where", "ranks", "alpha, ms", "95 %", "1/beta, Mbit/s", "gamma, ns/B"], []
    for r in rows:
        interval = f"{ms(r['alpha_low'])} to {ms(r['alpha_high'])}" if r["alpha_low"] else ""
        beta, gamma = float(r["beta"]), float(r["gamma"])
        cell = [r["where"], r["ranks"], ms(r["alpha"]), interval, f"{8e-6 / beta:.0f}" if beta else "", f"{gamma * 1e9:.2g}"]
        if "one_way_s" in r:
            cell += [ms(r["one_way_s"]), f"{ms(r['one_way_low_s'])} to {ms(r['one_way_high_s'])}"]
            cell += [f"{float(r['stream_bit_s']) * 1e-6:.0f}", r["segments_sent_again"], r["frames_dropped"]]
        cells.append(cell)
    if rows and "one_way_s" in rows[0]:
        header += ["one way, ms", "90 %", "stream, Mbit/s", "segments sent again", "frames dropped"]
    table(header, cells)


def tables(options):
    for path in [options.out / "links-here.csv", *sorted(options.out.glob("networks-*.csv"))]:
        if path.exists():
            print(f"## {path.stem}\n")
            links_table(read(path))
    if (options.out / "connections.csv").exists():
        header = ["where", "connections", "eager limit, KiB", "bytes at the rate, ms", "measured, ms", "from to"]
        cells = []
        for r in read(options.out / "connections.csv"):
            span = f"{ms(r['measured_low_s'])} to {ms(r['measured_high_s'])}"
            eager = int(r["eager_limit"]) >> 10
            cells.append([r["where"], r["connections"], eager, ms(r["on_the_wire_s"]), ms(r["measured_s"]), span])
        table(header, cells)
    groups = {"here": ["where", "reduction", "ranks"], "hosts": ["model", "ranks"], "overlap": ["where", "late"]}
    for kind, by in groups.items():
        for path in sorted(options.out.glob(f"{kind}*.csv")):
            rows = read(path)
            print(f"## {path.stem}\n")
            error_summary(rows, by)
            if kind == "hosts":
                best_ranks(rows)
            result_table(rows)


def test():
    line = fit_line([(b, 2e-3 + 1e-5 * b) for b in LOCAL])
    assert abs(line.fixed - 2e-3) < 1e-12 and abs(line.example - 1e-5) < 1e-14
    assert fit_line([(1, 1.0), (2, 4.0), (3, 6.0)]).fixed == 0.0
    link = Link(alpha=1.0, beta=0.25, gamma=0.125)
    assert link.small(4) == 3 * (2 + (8 + PIECE) * 0.25) and link.small(1) == 0
    # Two ranks: halves of 800 bytes there and back.
    assert link.at_once(2, 800) == 4 + (8 + PIECE + 800) * 0.25
    assert between(link, link) == link
    device = Device(fixed=1.0, example=0.5)
    assert device.compute(1, 8) == 5 and device.compute(2 * CORES, 8 * CORES) == 2 * (1 + 2)
    fitted, interval = fit_device({1: [1.5, 1.4, 1.6], 9: [5.5, 5.4, 5.7]})
    assert interval["example"][0] <= fitted.example <= interval["example"][1]
    print("ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["here", "hosts", "overlap", "connections", "tables", "test"])
    parser.add_argument("program", nargs="?", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--out", type=Path, default=Path("docs/plan-check"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one run")
    parser.add_argument("--link-seconds", type=float, default=10.0, help="for alpha, beta, gamma")
    waits = {"type": lambda t: Patience(float(t)), "default": Patience(0.0)}
    parser.add_argument("--patience", **waits, help="seconds, in all, to wait for idle cores")
    parser.add_argument("--eager-limit", type=int, metavar="BYTES", help="of Open MPI over TCP; its default is 65536")
    parser.add_argument("--kind", choices=["auto", "netem", "switch"], default="auto", help="what makes delays")
    options = parser.parse_args()
    if options.what == "test":
        return test()
    if options.what != "tables" and options.program is None:
        parser.error("which batchlab?")
    actions = {"here": here, "hosts": hosts, "overlap": overlap, "connections": connections, "tables": tables}
    try:
        return actions[options.what](options)
    except HostsError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    sys.exit(main())
