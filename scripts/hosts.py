#!/usr/bin/env python3
"""Makes hosts on one machine, with a delay and a rate between them, and runs a command on them under mpirun.

    sudo python scripts/hosts.py --hosts 2 --delay 1ms --rate 500Mbit -- batchlab run study.toml
    sudo python scripts/hosts.py --hosts 4 --delay 0.2ms --rate 1Gbit --measure
    python scripts/hosts.py --test                            # needs no root: the queue and the parsing

Hosts are network namespaces, which share the cores and the memory of the machine; each has a host name and an
address of its own, and MPI reaches the others by TCP alone. Needs Linux, root, iproute2, util-linux, and
Open MPI 4 for mpirun.

The rate is that of each host's way out, by tc: a token bucket (tbf), or netem where the kernel has it. The delay
is that of each way: netem's, or else that of a small switch in user space (one TAP device for each
host) that holds every frame for the time and passes it on. What that comes to is for `--measure` to say: UDP
round trips and a TCP stream between the first two hosts. TCP is CUBIC without its slow start after idle, as
it is set up on clusters; otherwise an update after a pause would begin with ten segments.

Everything made here lives in one process, the keeper, and is removed when that ends: on errors, on Ctrl-C, and
when this script is killed.
"""

import argparse
import collections
import contextlib
import fcntl
import json
import math
import os
import select
import shlex
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

NETWORK = "10.213.0"  # inside the namespaces alone
PORT = 5201
RING = 20_000  # frames that a TAP device holds; more are dropped
SPIN = 100e-6  # before a frame is due the switch looks at the clock instead of sleeping
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
RATES = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def quantity(text, units):
    """A number with a unit, such as 0.5ms."""
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = text.strip()[len(digits) :].lower()
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not (unit in units and 0 <= value < math.inf):
        raise argparse.ArgumentTypeError(f"expected a number with a unit ({', '.join(units)}), found {text!r}")
    return value * units[unit]


def ip(*arguments, **options):
    return subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True, **options)


def tc(namespace, *arguments):
    ip("netns", "exec", namespace, "tc", *arguments)


# --- the keeper: makes hosts, passes frames on, removes all ----------------------------------------------


class Switch:
    """Frames on their way: each leaves `delay` after it came, in order. `write(port, frame)` sends."""

    def __init__(self, delay, ports, write):
        self.delay, self.ports, self.write = delay, ports, write
        self.waiting = collections.deque()

    def arrived(self, port, frame, now):
        self.waiting.append((now + self.delay, port, frame))

    def send_due(self, now):
        """Sends what is due; seconds until the next frame is, or None."""
        while self.waiting:
            due, origin, frame = self.waiting[0]
            if due > now:
                return due - now
            self.waiting.popleft()
            target = self.ports.get(frame[:6])
            for port in self.ports.values() if target is None else (target,):
                if port != origin:
                    self.write(port, frame)
        return None


def mac(index):
    return bytes([2, 0, 0, 0, index >> 8, index & 255])


def has_netem(name):
    """Whether the kernel has netem, tried on the loopback device of a namespace."""
    with contextlib.suppress(subprocess.CalledProcessError):
        tc(name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        tc(name, "qdisc", "del", "dev", "lo", "root")
        return True
    return False


class Keeper:
    """What there is, and its removal."""

    def __init__(self, prefix, count, delay, rate, mtu, kind):
        self.prefix, self.count, self.delay, self.rate, self.mtu, self.kind = prefix, count, delay, rate, mtu, kind
        self.made = []
        self.taps = []

    def namespace(self, name):
        ip("netns", "add", name)
        self.made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def make(self):
        names = [f"{self.prefix}-{i}" for i in range(self.count)]
        for name in names:
            self.namespace(name)
        if self.kind == "auto":
            self.kind = "netem" if has_netem(names[0]) else "switch"
        if self.kind == "netem":
            middle = f"{self.prefix}-s"
            self.namespace(middle)
            ip("-n", middle, "link", "add", "bridge", "type", "bridge")
            ip("-n", middle, "link", "set", "bridge", "mtu", self.mtu, "up")
        for i, name in enumerate(names):
            if self.kind == "netem":
                ip("-n", name, "link", "add", "net0", "type", "veth", "peer", "name", f"port{i}", "netns", middle)
                ip("-n", middle, "link", "set", f"port{i}", "mtu", self.mtu, "master", "bridge", "up")
            else:
                tap = f"{self.prefix}t{i}"
                fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                self.taps.append(fd)
                fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", tap.encode(), IFF_TAP | IFF_NO_PI))
                ip("link", "set", tap, "netns", name)
                ip("-n", name, "link", "set", tap, "name", "net0")
            net0 = ["link", "set", "net0"]
            ip("-n", name, *net0, "address", mac(i).hex(":"), "mtu", self.mtu, "txqueuelen", RING)
            quiet = ["net.ipv6.conf.all.disable_ipv6=1", "net.ipv4.tcp_slow_start_after_idle=0"]
            quiet += ["net.ipv4.tcp_congestion_control=cubic", "net.ipv4.tcp_no_metrics_save=1"]
            for setting in quiet:
                # Not all kernels have all of them for each namespace.
                subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", setting], capture_output=True)
            ip("-n", name, *net0, "up")
            ip("-n", name, "address", "add", f"{address(i)}/24", "dev", "net0")
            for j in range(self.count):
                if j != i:
                    ip("-n", name, "neighbour", "add", address(j), "lladdr", mac(j).hex(":"), "dev", "net0")
            frame = self.mtu + 14
            if self.kind == "netem":
                rate = ["rate", f"{self.rate:.0f}bit"] if self.rate else []
                wait = ["netem", "delay", f"{self.delay * 1e6:.3f}us", *rate, "limit", str(RING)]
                tc(name, "qdisc", "add", "dev", "net0", "root", *wait)
            elif self.rate:
                # Frames that may go at once: two, or those of the 50 us that a timer may be late by.
                burst = max(2 * frame, int(self.rate / 8 * 50e-6))
                bucket = ["tbf", "rate", f"{self.rate:.0f}bit", "burst", str(burst), "limit", str(frame * RING)]
                tc(name, "qdisc", "add", "dev", "net0", "root", *bucket)

    def keep(self):
        """Until standard input ends."""
        switch = Switch(self.delay, {mac(i): fd for i, fd in enumerate(self.taps)}, os.write)
        with contextlib.suppress(OSError):
            Path("/proc/self/timerslack_ns").write_text("1")
        if self.taps:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        sources = [0, *self.taps]
        clock, most = time.monotonic, self.mtu + 18
        while True:
            wait = switch.send_due(clock())
            if wait is not None:
                wait = 0 if wait < SPIN else wait - SPIN
            ready, _, _ = select.select(sources, [], [], wait)
            for fd in ready:
                if fd == 0:
                    return
                # A few at a time, so that what is due goes out.
                for _ in range(16):
                    try:
                        frame = os.read(fd, most)
                    except BlockingIOError:
                        break
                    switch.arrived(fd, frame, clock())

    def remove(self):
        for name in self.made:
            for _ in range(50):
                found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
                pids = [int(pid) for pid in found.stdout.split()]
                if not pids:
                    break
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        for fd in self.taps:
            os.close(fd)
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def keeper(arguments):
    prefix, count, delay, rate, mtu, kind, folder = arguments
    # Ended by the end of standard input, which the one who started it holds, and by nothing else.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    kept = Keeper(prefix, int(count), float(delay), float(rate), int(mtu), kind)
    try:
        kept.make()
        print(kept.kind, flush=True)
        kept.keep()
    except subprocess.CalledProcessError as error:
        print(f"error: {shlex.join(error.cmd)}: {error.stderr.strip()}", flush=True)
    except OSError as error:
        print(f"error: {error}", flush=True)
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        kept.remove()
        shutil.rmtree(folder, ignore_errors=True)


# --- what uses it ----------------------------------------------------------------------------------------


def address(index):
    return f"{NETWORK}.{index + 1}"


class HostsError(Exception):
    """Hosts that could not be made, or a command that failed on them."""


class Hosts:
    """Hosts for a `with` block. `delay` in seconds, each way; `rate` in bits per second, 0 for none."""

    def __init__(self, count, delay=0.0, rate=0.0, mtu=None, kind="auto"):
        if not 1 <= count <= 200:
            raise HostsError(f"expected 1 to 200 hosts, found {count}")
        self.count, self.delay, self.rate, self.kind = count, delay, rate, kind
        # Frames take the switch microseconds, whatever their length.
        self.mtu = mtu or (1500 if 0 < rate <= 2e8 else 9000)
        self.prefix = f"bl{os.getpid()}"
        self.process = None

    def __enter__(self):
        if os.geteuid() != 0:
            raise HostsError("only root can make hosts")
        for program in ("ip", "tc", "unshare"):
            if shutil.which(program) is None:
                raise HostsError(f"{program} is not installed (iproute2, util-linux)")
        self.folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        words = [self.prefix, self.count, self.delay, self.rate, self.mtu, self.kind, self.folder]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "_keeper", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said = self.process.stdout.readline().strip()
            if said not in ("netem", "switch"):
                raise HostsError(f"hosts could not be made: {said or 'no answer'}")
            self.kind = said
            self.write_launcher()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None

    def write_launcher(self):
        for ranks in range(1, self.count + 1):
            lines = "".join(f"{address(i)} slots=1\n" for i in range(ranks))
            (self.folder / f"hostfile-{ranks}").write_text(lines)
        # As ssh: the host, then words for its shell.
        agent = self.folder / "agent"
        enter = 'exec ip netns exec "$name" unshare --uts sh -c "hostname h$i && exec $*"'
        which = f'i=$((${{1##*.}} - 1)); name={self.prefix}-$i; shift'
        agent.write_text(f"#!/bin/sh\n{which}\n{enter}\n")
        agent.chmod(0o755)

    def inside(self, index, command):
        """The command as it is to be started to run on a host."""
        name = ["sh", "-c", 'hostname "$0" && exec "$@"', f"h{index}"]
        return ["ip", "netns", "exec", f"{self.prefix}-{index}", "unshare", "--uts", *name, *command]

    def mpirun(self, command, ranks=None, options=()):
        """The command under mpirun, one rank on each of the first hosts, as it is to be started."""
        ranks = ranks or self.count
        hostfile = self.folder / f"hostfile-{ranks}"
        parameters = {
            "plm": "rsh",
            "plm_rsh_agent": self.folder / "agent",
            "orte_tmpdir_base": self.folder,
            "pml": "ob1",
            "btl": "tcp,self",
            "btl_tcp_if_include": f"{NETWORK}.0/24",
            "oob_tcp_if_include": f"{NETWORK}.0/24",
        }
        if ranks > (os.cpu_count() or 1):
            parameters["mpi_yield_when_idle"] = 1
        launch = ["mpirun", "--allow-run-as-root", "-n", str(ranks), "--hostfile", str(hostfile)]
        launch += ["--map-by", "node", "--bind-to", "none"]
        for name, value in parameters.items():
            launch += ["--mca", name, str(value)]
        return self.inside(0, [*launch, *options, *command])

    def run(self, command, ranks=None, options=(), timeout=None):
        """Runs the command under mpirun; what it printed."""
        started = subprocess.Popen(
            self.mpirun(command, ranks, options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            output, errors = started.communicate(timeout=timeout)
        except BaseException:
            # The keeper ends those on the other hosts.
            started.kill()
            started.communicate()
            raise
        if started.returncode != 0:
            raise HostsError(f"{shlex.join(command)}: exit status {started.returncode}\n{errors.strip()}")
        return output

    def counters(self):
        """Segments sent again and frames dropped, of all hosts since they were made."""
        again = dropped = 0
        for i in range(self.count):
            files = ["/proc/net/snmp", "/sys/class/net/net0/statistics/tx_dropped"]
            lines = ip("netns", "exec", f"{self.prefix}-{i}", "cat", *files).stdout.splitlines()
            tcp = [line.split() for line in lines if line.startswith("Tcp:")]
            again += int(dict(zip(*tcp))["RetransSegs"])
            dropped += int(lines[-1])
        return {"segments_sent_again": again, "frames_dropped": dropped}

    def between(self, what, *words):
        """What two helpers on the first two hosts find."""
        own = [sys.executable, __file__]
        command = self.inside(1, [*own, f"_{what}_server", address(1)])
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            if server.stdout.readline() != "ready\n":
                raise HostsError(f"the {what} server did not start")
            client = [*own, f"_{what}_client", address(1), *map(str, words)]
            found = subprocess.run(self.inside(0, client), capture_output=True, text=True, timeout=120)
            if found.returncode != 0:
                raise HostsError(f"the {what} client failed: {found.stderr.strip()}")
            return json.loads(found.stdout)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def ping(self, count=300):
        """Seconds of one way: half of UDP round trips of 64 bytes. Median, quantiles, and how many came back."""
        halves = sorted(trip / 2 for trip in self.between("ping", count))
        if not halves:
            raise HostsError("no datagram came back")

        def at(share):
            return halves[min(int(share * len(halves)), len(halves) - 1)]

        return {"median": at(0.5), "low": at(0.05), "high": at(0.95), "came_back": len(halves), "sent": count}

    def stream(self, seconds=2.0):
        """Bytes per second that arrive of a TCP stream, after its first quarter."""
        return self.between("stream", seconds)


def ping_server(words):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((words[0], PORT))
        print("ready", flush=True)
        while True:
            data, sender = sock.recvfrom(2048)
            sock.sendto(data, sender)


def ping_client(words):
    trips = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        for number in range(int(words[1])):
            text = f"{number:064d}".encode()
            start = time.perf_counter()
            sock.sendto(text, (words[0], PORT))
            with contextlib.suppress(TimeoutError):
                while sock.recv(2048) != text:
                    pass
                trips.append(time.perf_counter() - start)
            time.sleep(0.001 + 0.002 * (number % 7) / 7)
    print(json.dumps(trips))


def stream_server(words):
    with socket.create_server((words[0], PORT)) as listening:
        print("ready", flush=True)
        sock, _ = listening.accept()
        with sock:
            room = bytearray(1 << 20)
            seconds = float(sock.recv(64))
            sock.sendall(b"go")
            total, start = 0, None
            begin = time.perf_counter()
            while (count := sock.recv_into(room)) > 0:
                now = time.perf_counter()
                if start is not None:
                    total += count
                elif now - begin > seconds / 4:
                    start = now
                if now - begin > seconds:
                    break
            sock.sendall(json.dumps(total / (time.perf_counter() - (start or begin))).encode() + b"\n")
            # The rest is read, so that the answer is not lost to a reset.
            while sock.recv_into(room) > 0:
                pass


def stream_client(words):
    with socket.create_connection((words[0], PORT)) as sock:
        sock.sendall(words[1].encode())
        sock.recv(2)
        data = bytes(1 << 18)
        answer = b""
        sending = threading.Event()

        def listen():
            nonlocal answer
            while not answer.endswith(b"\n") and (more := sock.recv(64)):
                answer += more
            sending.set()

        listener = threading.Thread(target=listen)
        listener.start()
        while not sending.is_set():
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        listener.join()
    print(answer.decode())


INTERNAL = {
    "_keeper": keeper,
    "_ping_server": ping_server,
    "_ping_client": ping_client,
    "_stream_server": stream_server,
    "_stream_client": stream_client,
}


def test():
    sent = []
    ports = {mac(0): 10, mac(1): 11, mac(2): 12}
    switch = Switch(2.0, ports, lambda port, frame: sent.append((port, frame)))
    to_1, to_all = mac(1) + b"one", b"\xff" * 6 + b"all"
    switch.arrived(10, to_1, 5.0)
    switch.arrived(11, to_all, 6.0)
    assert switch.send_due(6.5) == 0.5 and sent == []
    assert switch.send_due(7.0) == 1.0 and sent == [(11, to_1)]
    assert switch.send_due(9.0) is None
    assert sorted(sent[1:]) == [(10, to_all), (12, to_all)], "all but where it came from"
    switch.arrived(10, mac(0) + b"self", 9.0)
    assert switch.send_due(20.0) is None and len(sent) == 3, "never back"
    assert quantity("0.5ms", UNITS) == 0.5e-3 and quantity("2Gbit", RATES) == 2e9 and quantity("1s", UNITS) == 1
    for wrong in ("5", "ms", "-1ms", "1mbit", "nanms", "infs"):
        try:
            quantity(wrong, UNITS)
        except argparse.ArgumentTypeError:
            continue
        raise AssertionError(wrong)
    print("ok")


def main():
    if sys.argv[1:2] and sys.argv[1] in INTERNAL:
        return INTERNAL[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, metavar="N")
    times = {"type": lambda text: quantity(text, UNITS), "default": 0.0, "metavar": "TIME"}
    rates = {"type": lambda text: quantity(text, RATES), "default": 0.0, "metavar": "RATE"}
    parser.add_argument("--delay", **times, help="one way, such as 1ms")
    parser.add_argument("--rate", **rates, help="of each host, such as 500Mbit")
    parser.add_argument("--mtu", type=int, help="default: 1500 up to 200Mbit, else 9000")
    parser.add_argument("--kind", choices=["auto", "netem", "switch"], default="auto", help="what makes the delay")
    parser.add_argument("--measure", action="store_true", help="measure delay and rate first")
    parser.add_argument("--test", action="store_true", help="test this script")
    parser.add_argument("command", nargs="*", help="what mpirun starts, one rank on each host")
    arguments = parser.parse_args()
    if arguments.test:
        return test()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Hosts(arguments.hosts, arguments.delay, arguments.rate, arguments.mtu, arguments.kind) as hosts:
            if arguments.measure and arguments.hosts > 1:
                ping, rate = hosts.ping(), hosts.stream()
                low, middle, high = (f"{ping[key] * 1e3:.3f}" for key in ("low", "median", "high"))
                print(f"made by {hosts.kind}; one way {middle} ms (90 % in {low} to {high})")
                print(f"{ping['came_back']} of {ping['sent']} came back; {rate * 8e-6:.0f} Mbit/s of TCP; {hosts.counters()}")
            if arguments.command:
                return subprocess.run(hosts.mpirun(arguments.command)).returncode
    except HostsError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
