"""How a limit on best-effort CPU puts a service off the CPU in the middle of its work.

A service works for 3 ms of CPU, rests some 9 ms, and notes after each turn how much longer than its
CPU time the turn took, in one, two and four workers on any CPU. Best effort burns beside it, in
slices under one kind of limit each. No daemon, no network and no client take part: what is measured
is the kernel's. docs/concepts/cpu-suppress.md has the mechanism.

Run as ``python -m bench.effects.put_off WORKERS`` it is that service. At SIGTERM its workers print,
for each turn, the CLOCK_MONOTONIC second of its end and the delay, ms.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.effects import batch
from bench.effects.client import Latencies
from bench.effects.slices import (
    SMOKE,
    Holder,
    Size,
    Slice,
    Span,
    Watch,
    alternating,
    latency_ms,
    mean_value,
    slice_of,
    waited_ms_per_s,
    with_latencies,
)
from bench.effects.stage import Running, Stage, stage, until
from bench.figures import Figure, Measured
from koordlet.decision.resource import CFS_PERIOD_US, MIN_SHARES, Resource, Value
from koordlet.protocol.cpuset import format_cpulist

USUAL = Size(slices=10)
WORKERS = (1, 2, 4)
_WORK_S = 0.003
_REST_S = (0.007, 0.011)
_LONG_MS = 1.0
_SHARE = 0.6
"""Of all CPUs, what a quota leaves to best effort."""
Limit = tuple[tuple[Resource, Value], ...]


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises PermissionError without root, and Unsupported or OSError where the kernel lacks one of
    the limits."""
    size = size or (SMOKE if smoke else USUAL)
    figures, slices = [], []
    for workers in WORKERS:
        say(f"workers: {workers}")
        found = _measure(workers, size, say)
        slices += found
        figures += _figures(workers, found)
    return Measured(figures, size.seed, slices)


def _limits() -> dict[str, Limit | None]:
    """Limits of best effort in each arm; None: it stands still."""
    cpus = sorted(os.sched_getaffinity(0))
    quota = (Resource.CPU_QUOTA_US, round(_SHARE * len(cpus) * CFS_PERIOD_US))
    idle = (Resource.CPU_IDLE, 1)
    half = (Resource.CPUSET_CPUS, format_cpulist(frozenset(cpus[len(cpus) // 2 :])))
    return {
        "no best effort": None,
        "cpu.idle": (idle,),
        "cpu.idle and a quota": (idle, quota),
        "2 shares and a quota": ((Resource.CPU_SHARES, MIN_SHARES), quota),
        "cpu.idle and half the CPUs": (idle, half),
    }


def _arm(name: str, workers: int) -> str:
    return f"{name}, workers {workers}"


def _measure(workers: int, size: Size, say: Callable[[str], None]) -> list[Slice]:
    limits = {_arm(name, workers): limit for name, limit in _limits().items()}
    with stage("ls", "be") as on, closing(Watch(on)) as watch:
        batch.spinners(on, "be", count=2 * (os.cpu_count() or 1))
        service = _service(on, workers)

        def look() -> Callable[[str, int], tuple[Span, Slice]]:
            on.check()
            end = watch.begin()

            def found(arm: str, number: int) -> tuple[Span, Slice]:
                span = end()
                return span, slice_of(arm, number, span)

            return found

        spans = alternating(_arms(on, limits), size, say, look)
        delays = _delays(on, service)
    return with_latencies(spans, delays)


def _arms(on: Stage, limits: Mapping[str, Limit | None]) -> dict[str, Callable[[], None]]:
    group, holder = on.groups["be"], Holder(on)
    originals: dict[Resource, Value] = {}

    def begin(limit: Limit | None) -> None:
        while originals:
            on.cgroups.write(group, *originals.popitem())
        for resource, value in limit or ():
            originals[resource] = on.cgroups.read(group, resource)
            on.cgroups.write(group, resource, value)
        holder.enter(best_effort=limit is not None, managed=False)

    return {arm: partial(begin, limit) for arm, limit in limits.items()}


def _service(on: Stage, workers: int) -> Running:
    """Returns when it works."""
    command = (sys.executable, "-m", "bench.effects.put_off", str(workers))
    root = str(Path(__file__).parents[2])
    service = on.start("service", "ls", command, {"PYTHONPATH": root})
    until(lambda: service.log.stat().st_size > 0, "the service did not start")
    return service


def _delays(on: Stage, service: Running) -> Latencies:
    """End the service and return what it has noted."""
    for pid in on.pids("ls"):
        os.kill(pid, signal.SIGTERM)
    if service.process.wait():
        service.check()
    lines = service.log.read_text().splitlines()[1:]
    at_s, ms = zip(*sorted(tuple(map(float, line.split())) for line in lines), strict=True)
    return Latencies(at_s, ms, failed=0, client_cores=0.0)


def _figures(workers: int, slices: Sequence[Slice]) -> list[Figure]:
    def long(each: Slice) -> float:
        return sum(1 for ms in each.latencies_ms if ms > _LONG_MS) / each.seconds

    found = []
    for name in _limits():
        arm = _arm(name, workers)
        found += [
            Figure.of(
                f"{arm}: turns put off > {_LONG_MS:.0f} ms",
                mean_value(slices, arm, long),
                "a second",
            ),
            Figure.of(f"{arm}: put off, p99", latency_ms(slices, arm, 0.99), "ms"),
            Figure.of(
                f"{arm}: best effort", mean_value(slices, arm, lambda s: s.cores["be"]), "cores"
            ),
            Figure.of(f"{arm}: waits for a CPU", mean_value(slices, arm, waited_ms_per_s), "ms/s"),
        ]
    return found


def _work(seed: int, ends: threading.Event) -> list[tuple[float, float]]:
    """Ends of turns and delays, ms."""
    draw = random.Random(seed)
    found = []
    while not ends.is_set():
        begun, used = time.monotonic(), time.thread_time()
        while time.thread_time() - used < _WORK_S:
            sum(range(200))
        now = time.monotonic()
        found.append((now, (now - begun - (time.thread_time() - used)) * 1000))
        time.sleep(draw.uniform(*_REST_S))
    return found


def main(workers: int) -> None:
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    children = []
    for index in range(workers):
        child = os.fork()
        if child == 0:
            lines = "".join(f"{at:.6f} {ms:.3f}\n" for at, ms in _work(index, ends))
            os.write(1, lines.encode())
            os._exit(0)
        children.append(child)
    print("ready", flush=True)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
