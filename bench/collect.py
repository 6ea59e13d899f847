"""What a round of collection costs on real cgroups, and what looking for alarms costs.

    python -m bench.collect [--pods 300] [--containers 2] [--rounds 30] [--smoke]

Makes empty cgroups below a scratch cgroup, finds them as the daemon does, runs rounds of the
standard collectors, then reads the same files as often by plain ``open().read()``. Needs root.
Removes what it made, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.tree import make_pods, scratch_root, top_of
from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.base import CollectorPart, Machine
from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.runner import Runner
from koordlet.decision.snapshot import Node, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import File
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.files import memory
from koordlet.kernel.topology import read_topology
from koordlet.state.alarms import Alarms
from koordlet.state.kubepods import KubepodsSource
from koordlet.state.node import NodeOptions, node_of
from koordlet.state.node_state import NodeState
from koordlet.state.pressure import AlarmOptions
from koordlet.tsdb.store import Store

Plan = list[list[str]]

# Memory is read in turns of 2 and 10 rounds: after ten all is as it was.
CYCLE = 10
# Back to back rounds look like an overloaded daemon; nothing may be shed here.
UNBOUNDED = BudgetOptions(cores=float("inf"))


class _RecordedFile:
    """A kept file that notes each read."""

    def __init__(self, file: File, reads: list[str]) -> None:
        self.path = file.path
        self._file = file
        self._reads = reads

    def read(self) -> bytes:
        data = self._file.read()
        self._reads.append(self.path)
        return data

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


class RecordingHost(LinuxHost):
    """Notes which files a round reads, so that the other way can read exactly the same."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def open(self, path: str, *, write: bool = False) -> File:
        return _RecordedFile(super().open(path, write=write), self.reads)

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.reads.append(path)
        return data


@dataclass(frozen=True)
class Cost:
    """CPU seconds per round, as the median over rounds."""

    cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.cpu_s * 1000:8.2f} ms CPU a round = {self.cpu_s * 100:5.2f} % of a core at 1 Hz"
        )


def measure(rounds: int, step: Callable[[], object]) -> Cost:
    costs = []
    for _ in range(rounds):
        before = time.process_time()
        step()
        costs.append(time.process_time() - before)
    return Cost(statistics.median(costs))


Kinds = tuple[CollectorPart[Any], ...]


def always(parts: Iterable[CollectorPart[Any]]) -> Kinds:
    """Due in every round."""
    due = {"interval_seconds": 0.0}
    return tuple(part.with_options(msgspec.structs.replace(part.options, **due)) for part in parts)


def recorded(cgroups: Cgroups, pods: tuple[Pod, ...], node: Node, kinds: Kinds) -> Plan:
    """The files that each of the next ``CYCLE`` rounds of these collectors reads."""
    host = RecordingHost()
    store = Store(None)
    mine = Cgroups(host, cgroups.layout)
    runner = Runner(
        collectors(kinds, Machine(host, mine, Descriptors(host), store)), store, host, UNBOUNDED
    )
    runner.run(node, pods, ())
    plan = []
    for _ in range(CYCLE):
        host.reads.clear()
        runner.run(node, pods, ())
        plan.append(list(host.reads))
    runner.close()
    return plan


def plain_reader(plan: Plan) -> Callable[[], None]:
    """The rounds of ``plan`` one after the other, by ``open()`` and ``read()``."""
    rounds = itertools.cycle(plan)

    def step() -> None:
        for path in next(rounds):
            with open(path) as file:
                file.read()

    return step


@contextmanager
def kept_reader(plan: Plan) -> Iterator[Callable[[], None]]:
    """The same by descriptors that stay open."""
    files = Descriptors(LinuxHost())
    rounds = itertools.cycle(plan)

    def step() -> None:
        for path in next(rounds):
            files.read(path)

    for _ in plan:
        step()
    yield step
    files.close()


def find(host: LinuxHost, cgroups: Cgroups, parent: str, name: str) -> tuple[tuple[Pod, ...], Node]:
    """The pods and the node, by the daemon's own discovery."""

    async def look() -> tuple[tuple[Pod, ...], Node]:
        source = KubepodsSource(host, cgroups.layout, top_of(parent))
        state = NodeState([source], lambda: None)
        state.start()
        try:
            node = node_of(
                NodeOptions(name),
                read_topology(host),
                memory(host).total_bytes,
                {},
                source.tree(),
            )
            return state.pods(), node
        finally:
            state.stop()

    return asyncio.run(look())


def compare(
    title: str,
    host: LinuxHost,
    cgroups: Cgroups,
    pods: tuple[Pod, ...],
    node: Node,
    kinds: Kinds,
    rounds: int,
) -> Cost:
    plan = recorded(cgroups, pods, node, kinds)
    store = Store(None)
    runner = Runner(
        collectors(kinds, Machine(host, cgroups, Descriptors(host), store)), store, host, UNBOUNDED
    )
    runner.run(node, pods, ())
    samples = statistics.mean(len(runner.run(node, pods, ()).ids) for _ in range(CYCLE))
    files = statistics.mean(len(reads) for reads in plan)
    print(f"{title}: {files:.0f} reads and {samples:.0f} samples a round")
    ours = measure(rounds, lambda: runner.run(node, pods, ()))
    with kept_reader(plan) as kept:
        reading = measure(rounds, kept)
    theirs = measure(rounds, plain_reader(plan))
    print(f"  koordlet: read, parse, store  {ours}")
    print(f"  the kept files, only read     {reading}")
    print(f"  plain open() and read()       {theirs}")
    print(f"  ratio, whole round            {theirs.cpu_s / ours.cpu_s:8.2f} x")
    print(f"  ratio, reading alone          {theirs.cpu_s / reading.cpu_s:8.2f} x")
    for health in runner.health():
        if not health.success or health.skipped:
            print(f"  {health.name}: {health.error or health.skipped_example}")
    print(f"  open descriptors              {len(os.listdir('/proc/self/fd')):8d}")
    runner.close()
    return ours


def bench_rounds(
    host: LinuxHost, cgroups: Cgroups, pods: tuple[Pod, ...], node: Node, rounds: int
) -> None:
    fast = always(part for part in COLLECTORS.values() if part.options.interval_seconds <= 1)
    slow = always(part for part in COLLECTORS.values() if part.options.interval_seconds > 1)
    each = compare("every second", host, cgroups, pods, node, fast, rounds)
    tenth = compare(
        "every ten seconds (pressure, NUMA memory)", host, cgroups, pods, node, slow, rounds
    )
    whole = each.cpu_s + tenth.cpu_s / 10
    print(f"all collection at the usual intervals: {whole * 100:.2f} % of a core")
    with open("/proc/self/statm", "rb") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print(f"resident memory: {resident / (1 << 20):.1f} MiB")


def bench_alarms(host: LinuxHost, cgroups: Cgroups, pods: tuple[Pod, ...], turns: int) -> None:
    async def run() -> None:
        options = AlarmOptions()
        alarms = Alarms(host, cgroups, lambda wake: None, options)
        started = time.process_time()
        alarms.watch(pods, ())
        armed = time.process_time() - started
        for _ in range(5):
            alarms.sample()
        cost = measure(turns, alarms.sample)
        per_second = cost.cpu_s / options.sample_interval_s
        watched = alarms.describe()
        counts: dict[str, int] = {}
        for one in watched:
            counts[one.mechanism] = counts.get(one.mechanism, 0) + 1
        told = ", ".join(f"{count} {mechanism}" for mechanism, count in sorted(counts.items()))
        print(f"alarms: {told}; armed in {armed * 1000:.1f} ms")
        print(
            f"  a turn of the sampler {cost.cpu_s * 1e6:.0f} us, "
            f"{per_second * 100:.3f} % of a core at {1 / options.sample_interval_s:.0f} Hz"
        )
        alarms.close()

    asyncio.run(run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--containers", type=int, default=2, help="of each pod")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="ten pods, three rounds")
    options = parser.parse_args()
    if options.smoke:
        options.pods, options.rounds = 10, 3
    if os.geteuid() != 0:
        print("bench/collect.py makes cgroups, which needs root", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    host = LinuxHost()
    cgroups = Cgroups(host, detect(host))
    parent = f"koordlet-bench-{os.getpid()}"
    total = options.pods * (1 + options.containers)
    print(f"{options.pods} pods, {total} cgroups, layout {cgroups.layout.kind}")
    try:
        with scratch_root(cgroups, parent) as make:
            make_pods(cgroups, make, parent, options.pods, options.containers)
            started = time.process_time()
            pods, node = find(host, cgroups, parent, "bench")
            print(f"found {len(pods)} pods in {(time.process_time() - started) * 1000:.1f} ms CPU")
            bench_rounds(host, cgroups, pods, node, options.rounds)
            bench_alarms(host, cgroups, pods, options.rounds * 5)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
