"""Means of holding best-effort work back, set by hand without a daemon, beside a service that
nobody has pinned: what each does to its latency and to its waits, and what best effort gets.

The smallest weight or ``cpu.idle``; with threads of best effort kept each on one CPU, as many on
each; with a quota of 60 % of the machine, or on half of its CPUs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from bench.effects import batch, services
from bench.effects.slices import (
    SMOKE,
    Holder,
    Size,
    Slice,
    going_on,
    in_slices,
    latency_ratio,
    mean_value,
    waits_figures,
)
from bench.effects.stage import Stage, stage
from bench.figures import Figure, Measured
from koordlet.decision.resource import CFS_PERIOD_US, MIN_SHARES, UNLIMITED, Resource
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.cpuset import format_cpulist

_QUOTA_SHARE = 0.6
_SWEEP_S = 1.0
_USE = 0.2  # of the machine, by the service


class Means(NamedTuple):
    """``idle``: ``cpu.idle``, else the smallest weight. ``quota_ms``: period of the quota, 0: there
    is none."""

    idle: bool
    spread: bool = False
    quota_ms: int = 0
    half: bool = False


ARMS = {
    "weight": Means(idle=False),
    "idle": Means(idle=True),
    "weight, spread": Means(idle=False, spread=True),
    "idle, spread": Means(idle=True, spread=True),
    "idle, spread, quota of 100 ms": Means(idle=True, spread=True, quota_ms=100),
    "idle, spread, quota of 1 s": Means(idle=True, spread=True, quota_ms=1000),
    "idle, half": Means(idle=True, half=True),
}


class Shape(NamedTuple):
    """The service: ``threads`` that work for ``work_ms`` on each request."""

    threads: int
    work_ms: float


SHAPES = {
    "means": Shape(2, 4.0),
    "means-short": Shape(4, 1.0),
    "means-long": Shape(2, 16.0),
    "means-one": Shape(1, 4.0),
}


def run(
    shape: Shape,
    smoke: bool,
    say: Callable[[str], None],
    size: Size | None = None,
    *,
    means: Mapping[str, Means] = ARMS,
    start: Callable[..., services.WorkerThreads] = services.worker_threads,
    spin: Callable[..., Callable[[], int]] = batch.spinners,
) -> Measured:
    """``start``: of the service; ``spin``: of best effort. Raises PermissionError without root."""
    size = size or (SMOKE if smoke else Size())
    cpus = frozenset(os.sched_getaffinity(0))
    with stage("ls", "be") as on, going_on(on), _sweeping(on) as knobs:
        service = start(on, "ls", threads=shape.threads, work_ms=shape.work_ms)
        done = spin(on, "be", count=2 * len(cpus))
        holder = Holder(on)

        def enter(each: Means) -> None:
            _set(on, knobs, each, cpus)
            holder.enter(best_effort=True, managed=False)

        arms: dict[str, Callable[[], None]] = {
            "alone": lambda: holder.enter(best_effort=False, managed=False),
            **{name: partial(enter, each) for name, each in means.items()},
        }
        rate = round(_USE * len(cpus) * 1000 / shape.work_ms, 1)
        slices = in_slices(on, lambda seconds: service.load(rate, seconds), arms, size, say, done)
    return Measured(_figures(rate, slices, tuple(means)), size.seed, slices)


@contextmanager
def _sweeping(on: Stage) -> Iterator[Knobs]:
    """Looks at the threads that are spread once a second, as the daemon does."""
    knobs, ended = Knobs(LinuxHost(), on.cgroups), threading.Event()

    def sweep() -> None:
        while not ended.wait(_SWEEP_S):
            knobs.spread.sweep()

    thread = threading.Thread(target=sweep, daemon=True)
    thread.start()
    try:
        yield knobs
    finally:
        ended.set()
        thread.join()


def _set(on: Stage, knobs: Knobs, means: Means, cpus: frozenset[int]) -> None:
    group, write = on.groups["be"], on.cgroups.write
    write(group, Resource.CPU_IDLE, int(means.idle))
    if not means.idle:
        write(group, Resource.CPU_SHARES, MIN_SHARES)
    period_us = 1000 * means.quota_ms or CFS_PERIOD_US
    write(group, Resource.CPU_QUOTA_US, UNLIMITED)
    write(group, Resource.CPU_PERIOD_US, period_us)
    if means.quota_ms:
        write(group, Resource.CPU_QUOTA_US, round(_QUOTA_SHARE * len(cpus) * period_us))
    some = frozenset(sorted(cpus)[: max(1, len(cpus) // 2)]) if means.half else cpus
    write(group, Resource.CPUSET_CPUS, format_cpulist(some))
    wanted = format_cpulist(cpus) if means.spread else ""
    if knobs.read(group, Resource.CPU_SPREAD) != wanted:
        knobs.write(group, Resource.CPU_SPREAD, wanted)
        knobs.spread.sweep()


def _figures(rate: float, slices: Sequence[Slice], arms: Sequence[str]) -> list[Figure]:
    found = [Figure("requests", rate, "/s")]
    for arm in arms:
        found += [
            Figure.of(f"p99 {arm} / alone", latency_ratio(slices, arm, 0.99), "x", 1.10),
            Figure.of(f"BE, {arm}", mean_value(slices, arm, lambda s: s.cores["be"]), "cores"),
        ]
    return [*found, *waits_figures(slices, ("alone", *arms))]
