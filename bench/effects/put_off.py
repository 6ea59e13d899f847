"""How a limit on best-effort CPU puts a service off the CPU in the middle of its work.

A service with one worker a CPU works for 3 ms of CPU, rests some 9 ms, and notes after each turn
how much longer than its CPU time the turn took. Best effort burns beside it, under one kind of
limit an arm. No daemon, no network and no client take part: what is measured is the kernel's.
docs/concepts/cpu-suppress.md has the mechanism.

Run as ``python -m bench.effects.put_off WORKERS SECONDS PINNED`` it is that service, and prints the
delays, ms, one a line.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench.effects.stage import in_turn, stage
from bench.figures import Figure, quantile
from bench.load import start
from bench.tree import enter
from koordlet.decision.resource import CFS_PERIOD_US, MIN_SHARES, Resource, Value
from koordlet.demo.meter import used
from koordlet.protocol.cpuset import format_cpulist

_WORK_S = 0.003
_REST_S = (0.007, 0.011)
_LONG_MS = 1.0
_SHARE = 0.6
"""Of all CPUs, what a quota leaves to best effort."""


class Delays(NamedTuple):
    """Of one arm. ``be_cores``: what best effort used."""

    ms: list[float]
    seconds: float
    be_cores: float


def run(smoke: bool, say: Callable[[str], None], repeat: int = 1) -> list[Figure]:
    """Raises PermissionError without root, and Unsupported or OSError where the kernel lacks one of
    the limits."""
    seconds = 0.5 if smoke else 8.0
    cpus = sorted(os.sched_getaffinity(0))
    quota: tuple[Resource, Value] = (
        Resource.CPU_QUOTA_US,
        round(_SHARE * len(cpus) * CFS_PERIOD_US),
    )
    idle: tuple[Resource, Value] = (Resource.CPU_IDLE, 1)
    half = (Resource.CPUSET_CPUS, format_cpulist(frozenset(cpus[len(cpus) // 2 :])))
    limits: Mapping[str, tuple[tuple[Resource, Value], ...] | None] = {
        "no best effort": None,
        "cpu.idle": (idle,),
        "cpu.idle and a quota": (idle, quota),
        "2 shares and a quota": ((Resource.CPU_SHARES, MIN_SHARES), quota),
        "cpu.idle and half the CPUs": (idle, half),
    }
    arms = {
        f"{name}, workers {'pinned' if pinned else 'free'}": _arm(limit, pinned, seconds)
        for pinned in (True, False)
        for name, limit in limits.items()
    }
    found = in_turn(arms, repeat, say)
    return [figure for name, each in found.items() for figure in _figures(name, each)]


def _figures(name: str, found: list[Delays]) -> list[Figure]:
    delays = [ms for each in found for ms in each.ms]
    seconds = sum(each.seconds for each in found)
    long = sum(1 for ms in delays if ms > _LONG_MS)
    cores = sum(each.be_cores for each in found) / len(found)
    return [
        Figure(f"{name}: turns put off > {_LONG_MS:.0f} ms", long / seconds, "a second"),
        Figure(f"{name}: put off, p99", quantile(delays, 0.99), "ms"),
        Figure(f"{name}: best effort", cores, "cores"),
    ]


def _arm(
    limit: tuple[tuple[Resource, Value], ...] | None, pinned: bool, seconds: float
) -> Callable[[], Delays]:
    workers = len(os.sched_getaffinity(0))
    arguments = (str(workers), str(seconds), str(int(pinned)))

    def measure() -> Delays:
        with stage("ls", "be") as on:
            best_effort = on.groups["be"]
            for resource, value in limit or ():
                on.cgroups.write(best_effort, resource, value)
            burner = None
            if limit is not None:
                burner = start("burn", 2 * workers, lambda pid: enter(on.cgroups, best_effort, pid))
            meter = on.meter()
            before = meter.read()
            command = (sys.executable, "-m", "bench.effects.put_off", *arguments)
            service = on.start("service", "ls", command, {"PYTHONPATH": os.getcwd()})
            if service.process.wait():
                service.check()
            cores = used(before, meter.read()).cores["be"]
            if burner is not None:
                burner.kill()
                burner.wait()
            return Delays([float(each) for each in service.log.read_text().split()], seconds, cores)

    return measure


def _work(seconds: float, seed: int) -> list[float]:
    """Delays, ms."""
    draw = random.Random(seed)
    found = []
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        used = time.thread_time()
        while time.thread_time() - used < _WORK_S:
            sum(range(200))
        found.append((time.monotonic() - begun - (time.thread_time() - used)) * 1000)
        time.sleep(draw.uniform(*_REST_S))
    return found


def main(workers: int, seconds: float, pinned: bool) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    children = []
    for index in range(workers):
        child = os.fork()
        if child == 0:
            if pinned:
                os.sched_setaffinity(0, {cpus[index % len(cpus)]})
            lines = "".join(f"{ms:.3f}\n" for ms in _work(seconds, index))
            os.write(1, lines.encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "1")
