"""The whole: a service and best-effort work on one machine, with everything switched on.

Arms in slices: the service alone, with the daemon, with unmanaged best-effort work, and with
managed one that takes the node to 0.80, 0.90 and 0.95 of its CPUs. What is published for the
reference's line of work: p99 +141 % unmanaged, +25 % managed, CPU from 25 % to 49 %.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.child import daemon
from bench.effects import batch, services
from bench.effects.client import Load
from bench.effects.slices import (
    SMOKE,
    Holder,
    Size,
    Slice,
    going_on,
    in_slices,
    latency_ratio,
    mean_value,
    of_arm,
    value_ratio,
    waits_figures,
)
from bench.effects.stage import Stage, check_calm, measure, stage
from bench.figures import Figure, Measured, NotMeasuredError
from koordlet.protocol.intervals import quantile_of

_CPUS = os.cpu_count() or 1
# Some 2 ms of compression for each page, as a dynamic page costs.
PAGE_BYTES = 262_144
_LS_SHARE = 0.30
# redis works in one thread, and is full long before that is.
_REDIS_CORES = 0.4
# A model server on one thread falls behind where best effort leaves it less than it needs, and what
# it owes then is paid in the next arm's slices.
_MODEL_CORES = 0.25
_MAX_RATE = 1500.0
_PROBING_RATE = 50.0

EVERYTHING = """
# BE may use what LS and the system leave of so much of the node: latency is protected by who yields
# to whom, so the reference's 65 % would only waste CPU here.
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = {percent}
memoryEvictThresholdPercent = 95
cpuEvictBESatisfactionLowerPercent = 10
cpuEvictBESatisfactionUpperPercent = 20
cpuEvictBEUsageThresholdPercent = 90

[slo.resourceQOSStrategy.lsClass.cpuQOS]
enable = true
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true

[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
lowLimitPercent = 100
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
throttlingPercent = 90

[slo.resourceQOSStrategy.lsClass.resctrlQOS]
enable = true
[slo.resourceQOSStrategy.beClass.resctrlQOS]
enable = true

[slo.cpuBurstStrategy]
policy = "auto"

# A trial of means needs its own slices: bench `chosen`.
[strategies.cpu-means]
enable = {trial}
"""
Requests = Callable[[float, float, int], Load]
"""The load for a rate (1/s), seconds and a seed."""
_AMOUNTS = {
    "ls": 'cpu_request = "1"\nmemory_request = "256Mi"\n',
    "be": 'memory_request = "1Gi"\nmemory_limit = "4Gi"\n',
}


@dataclass(frozen=True)
class Pair:
    """``title``: who runs beside whom. ``ls`` starts the service, ``be`` best-effort work, and
    returns what counts how much is done, in ``units``. ``ls_cores``: what the service is to use;
    ``goal``: p99 managed by p99 alone."""

    title: str
    ls: Callable[[Stage], Requests]
    be: Callable[[Stage], Callable[[], int]]
    units: str
    ls_cores: float
    goal: float


RUNGS = (80, 90, 95)
"""Percent of the CPUs to which best-effort work takes the node: ``cpuSuppressThresholdPercent``."""


def run(pair: Pair, smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises PermissionError without root, NotMeasuredError without the programs or on a
    busy machine."""
    size = size or (SMOKE if smoke else Size())
    say("how long the service works for a request")
    rate = calibrated_rate(pair, smoke)
    with stage("ls", "be") as on, going_on(on):
        requests = pair.ls(on)
        done = pair.be(on)
        with daemon(config(on, RUNGS[0])) as child:
            holder = Holder(on, child)

            def managed(percent: int) -> None:
                holder.enter(best_effort=True, managed=True)
                child.take_up(config(on, percent))

            arms: dict[str, Callable[[], None]] = {
                "alone": lambda: holder.enter(best_effort=False, managed=False),
                "daemon": lambda: holder.enter(best_effort=False, managed=True),
                "unmanaged": lambda: holder.enter(best_effort=True, managed=False),
            }
            for percent in RUNGS:
                arms[arm_of(percent)] = partial(managed, percent)
            slices = in_slices(
                on, lambda seconds: requests(rate, seconds, size.seed), arms, size, say, done
            )
    return Measured(_figures(pair, rate, slices), size.seed, slices)


def arm_of(percent: int) -> str:
    """The name of the managed arm at this rung."""
    return f"managed at {percent / 100:.2f}"


def config(on: Stage, percent: int, *, trial: bool = False) -> str:
    """The daemon's, with everything on. ``trial``: also the trial of means."""
    everything = EVERYTHING.format(percent=percent, trial=str(trial).lower())
    return on.config({"ls": "LS", "be": "BE"}, everything, _AMOUNTS)


def calibrated_rate(pair: Pair, smoke: bool) -> float:
    """Requests a second that make the service use what it is to use."""
    seconds = 1.0 if smoke else 3.0
    with stage("ls") as on:
        requests = pair.ls(on)
        seen = measure(on, {"ls": requests(_PROBING_RATE, seconds, 1)})
    if not smoke:
        check_calm(seen)
    cost_s = seen.used.cores["ls"] / _PROBING_RATE
    return round(min(pair.ls_cores / cost_s, _MAX_RATE), 1)


def _figures(pair: Pair, rate: float, slices: Sequence[Slice]) -> list[Figure]:
    if not sum(each.units for each in of_arm(slices, "unmanaged")):
        raise NotMeasuredError(
            f"not one of the {pair.units} was done unmanaged; measure for longer"
        )
    alone = quantile_of([each.latencies_ms for each in of_arm(slices, "alone")], 0.99)
    rungs = [arm_of(percent) for percent in RUNGS]
    found = [
        Figure("requests", rate, "/s"),
        Figure("p99 alone", alone(range(len(of_arm(slices, "alone")))), "ms"),
        Figure.of("p99 unmanaged / alone", latency_ratio(slices, "unmanaged", 0.99), "x"),
        Figure.of("p99 with the daemon / alone", latency_ratio(slices, "daemon", 0.99), "x", 1.02),
    ]
    for arm in rungs:
        p99, p50 = (latency_ratio(slices, arm, share) for share in (0.99, 0.5))
        cpu = mean_value(slices, arm, lambda each: 100 * each.node_cores / _CPUS)
        done = value_ratio(slices, arm, lambda each: each.units / each.seconds)
        found += [
            Figure.of(f"p99 {arm} / alone", p99, "x", pair.goal),
            Figure.of(f"p50 {arm} / alone", p50, "x"),
            Figure.of(f"node CPU {arm}", cpu, "%"),
            Figure.of(f"{pair.units} {arm} / unmanaged", done, "x"),
        ]
    return [*found, *waits_figures(slices, ("alone", "daemon", "unmanaged", *rungs))]


def _nginx(on: Stage) -> Requests:
    server = services.nginx(on, "ls", workers=_CPUS, page_bytes=PAGE_BYTES)
    return lambda rate, seconds, seed: server.load(rate, seconds, seed=seed)


def _redis(on: Stage) -> Requests:
    server = services.redis(on, "ls", lists=100)
    return lambda rate, seconds, seed: server.sorting(rate, seconds, seed=seed)


def _memcached(on: Stage) -> Requests:
    server = services.memcached(on, "ls", threads=_CPUS)
    return lambda rate, seconds, seed: server.load(rate, seconds, seed=seed)


def _postgres(on: Stage) -> Requests:
    server = services.postgres(on, "ls", scale=10)
    return lambda rate, seconds, seed: server.load(rate, seconds, seed=seed)


def _model(on: Stage) -> Requests:
    server = services.model_server(on, "ls", threads=1)
    return lambda rate, seconds, seed: server.load(rate, seconds, seed=seed)


def _threads(threads: int, work_ms: float) -> Callable[[Stage], Requests]:
    """The demo's service with so many workers, each request ``work_ms`` of CPU."""

    def start(on: Stage) -> Requests:
        server = services.worker_threads(on, "ls", threads=threads, work_ms=work_ms)
        return lambda rate, seconds, seed: server.load(rate, seconds, seed=seed)

    return start


def _ffmpeg(on: Stage) -> Callable[[], int]:
    return batch.ffmpeg(on, "be", jobs=_CPUS).frames


def _compiler(on: Stage) -> Callable[[], int]:
    return batch.compiler(on, "be", jobs=2 * _CPUS, functions=12).units


def _spinners(on: Stage) -> Callable[[], int]:
    return batch.spinners(on, "be", count=2 * _CPUS)


_SPUN = "ms of CPU"
_CORES = _LS_SHARE * _CPUS
PAIRS = {
    "whole": Pair("nginx beside ffmpeg", _nginx, _ffmpeg, "frames", _CORES, 1.00),
    "whole-redis": Pair(
        "redis beside a compiler",
        _redis,
        _compiler,
        "translation units",
        min(_CORES, _REDIS_CORES),
        1.10,
    ),
    "whole-memcached": Pair(
        "memcached beside spinners", _memcached, _spinners, _SPUN, _CORES, 1.05
    ),
    "whole-postgres": Pair("postgres beside spinners", _postgres, _spinners, _SPUN, _CORES, 1.10),
    "whole-model": Pair(
        "a model server beside ffmpeg", _model, _ffmpeg, "frames", _MODEL_CORES, 1.10
    ),
    "whole-1-thread": Pair(
        "1 worker, 4 ms, beside spinners", _threads(1, 4.0), _spinners, _SPUN, _CORES * 2 / 3, 1.10
    ),
    "whole-2-threads": Pair(
        "2 workers, 4 ms, beside spinners", _threads(2, 4.0), _spinners, _SPUN, _CORES * 2 / 3, 1.10
    ),
    "whole-2-threads-long": Pair(
        "2 workers, 16 ms, beside spinners",
        _threads(2, 16.0),
        _spinners,
        _SPUN,
        _CORES * 2 / 3,
        1.10,
    ),
    "whole-4-threads-short": Pair(
        "4 workers, 1 ms, beside spinners", _threads(4, 1.0), _spinners, _SPUN, _CORES * 2 / 3, 1.10
    ),
}
"""Pairs by the name of their bench. Services are not pinned to CPUs, as most are not."""
