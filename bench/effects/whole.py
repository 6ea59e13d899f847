"""The whole: a service and best-effort work on one machine, with everything switched on.

Three arms in turn: the service alone, with unmanaged best-effort work, with managed one. What is
published for the reference's line of work: p99 +141 % unmanaged, +25 % managed, CPU from 25 % to
49 %. Two pairs: nginx beside ffmpeg, redis beside a compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.effects import batch, services
from bench.effects.client import Latencies, Load
from bench.effects.stage import Stage, check_calm, in_turn, managed, measure, median, stage
from bench.figures import Figure, NotMeasuredError

_CPUS = os.cpu_count() or 1
# Some 2 ms of compression for each page, as a dynamic page costs.
PAGE_BYTES = 262_144
_LS_SHARE = 0.30
# redis works in one thread, and is full long before that is.
_REDIS_CORES = 0.4
_MAX_RATE = 1500.0
_PROBING_RATE = 50.0
# BE fills its queues, the daemon sets its first limits.
_SETTLE_S, _SETTLE_SMOKE_S = 2.0, 1.0

EVERYTHING = """
# BE may use what LS and the system leave of 95 % of the node: latency is protected by who yields
# to whom, so the reference's 65 % would only waste CPU here.
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 95
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
"""
Requests = Callable[[float, float, int], Load]
"""The load for a rate (1/s), seconds and a seed."""
_AMOUNTS = {
    "ls": 'cpu_request = "1"\nmemory_request = "256Mi"\n',
    "be": 'memory_request = "1Gi"\nmemory_limit = "4Gi"\n',
}


@dataclass(frozen=True)
class Pair:
    """``ls`` starts the service. ``be`` starts best-effort work and returns what counts how much
    is done, in ``units``. ``ls_cores``: what the service is to use."""

    ls: Callable[[Stage], Requests]
    be: Callable[[Stage], Callable[[], int]]
    units: str
    ls_cores: float


@dataclass(frozen=True)
class Seen:
    latency: Latencies
    node_share: float
    units_per_s: float


def run(
    pair: Pair, smoke: bool, say: Callable[[str], None], repeat: int | None = None
) -> list[Figure]:
    """Raises PermissionError without root, NotMeasuredError without the programs or on a
    busy machine."""
    seconds, usual = (2.0, 1) if smoke else (20.0, 5)
    say("how long the service works for a request")
    rate = _calibrated_rate(pair, smoke)
    settle_s = _SETTLE_SMOKE_S if smoke else _SETTLE_S

    def arm(*, shared: bool, config: str | None = None) -> Callable[[], Seen]:
        return lambda: _arm(pair, rate, settle_s, seconds, shared=shared, config=config)

    arms = {
        "alone": arm(shared=False),
        "unmanaged": arm(shared=True),
        "managed": arm(shared=True, config=EVERYTHING),
    }
    found = in_turn(arms, repeat or usual, say)
    return [Figure("requests", rate, "/s"), *_figures(pair, found)]


def _calibrated_rate(pair: Pair, smoke: bool) -> float:
    """Requests a second that make the service use what it is to use."""
    seconds = 1.0 if smoke else 3.0
    with stage("ls") as on:
        requests = pair.ls(on)
        seen = measure(on, {"ls": requests(_PROBING_RATE, seconds, 1)})
    if not smoke:
        check_calm(seen)
    cost_s = seen.used.cores["ls"] / _PROBING_RATE
    return round(min(pair.ls_cores / cost_s, _MAX_RATE), 1)


def _arm(
    pair: Pair, rate: float, settle_s: float, seconds: float, *, shared: bool, config: str | None
) -> Seen:
    with stage("ls", "be") as on:
        requests = pair.ls(on)
        done = pair.be(on) if shared else lambda: 0
        rest = None
        if config is not None:
            rest = on.config({"ls": "LS", "be": "BE"}, config, _AMOUNTS)
        with managed(rest):
            measure(on, {"warm-up": requests(rate, settle_s, 2)})
            before = done()
            seen = measure(on, {"ls": requests(rate, seconds, 1)})
            units = done() - before
    return Seen(seen.latencies["ls"], seen.used.node_cores / _CPUS, units / seen.used.seconds)


def _figures(pair: Pair, found: Mapping[str, Sequence[Seen]]) -> list[Figure]:
    def ratio(arm: str, share: float) -> float:
        return median(found[arm], lambda s: s.latency.quantile_ms(share)) / median(
            found["alone"], lambda s: s.latency.quantile_ms(share)
        )

    def cpu(arm: str) -> float:
        return 100 * median(found[arm], lambda s: s.node_share)

    units = {arm: median(found[arm], lambda s: s.units_per_s) for arm in found}
    if not units["unmanaged"]:
        raise NotMeasuredError(
            f"not one of the {pair.units} was done unmanaged; measure for longer"
        )
    return [
        Figure("p99 alone", median(found["alone"], lambda s: s.latency.quantile_ms(0.99)), "ms"),
        Figure("p99 unmanaged / alone", ratio("unmanaged", 0.99), "x"),
        Figure("p99 managed / alone", ratio("managed", 0.99), "x", 1.10),
        Figure("p50 managed / alone", ratio("managed", 0.5), "x"),
        Figure("p99.9 managed / alone", ratio("managed", 0.999), "x"),
        Figure("node CPU alone", cpu("alone"), "%"),
        Figure("node CPU managed", cpu("managed"), "%", 85, at_most=False),
        Figure(f"{pair.units} unmanaged", units["unmanaged"], "/s"),
        Figure(f"{pair.units} managed / unmanaged", units["managed"] / units["unmanaged"], "x"),
        Figure("the client itself", 100 * median(found["managed"], _client_cores), "% of a core"),
    ]


def _client_cores(seen: Seen) -> float:
    return seen.latency.client_cores


def _nginx(on: Stage) -> Requests:
    server = services.nginx(on, "ls", workers=_CPUS, page_bytes=PAGE_BYTES)
    return lambda rate, seconds, seed: server.load(rate, seconds, seed=seed)


def _redis(on: Stage) -> Requests:
    server = services.redis(on, "ls", lists=100)
    return lambda rate, seconds, seed: server.sorting(rate, seconds, seed=seed)


def _ffmpeg(on: Stage) -> Callable[[], int]:
    return batch.ffmpeg(on, "be", jobs=_CPUS).frames


def _compiler(on: Stage) -> Callable[[], int]:
    return batch.compiler(on, "be", jobs=2 * _CPUS, functions=12).units


NGINX_FFMPEG = Pair(_nginx, _ffmpeg, "frames", _LS_SHARE * _CPUS)
REDIS_COMPILER = Pair(_redis, _compiler, "translation units", min(_LS_SHARE * _CPUS, _REDIS_CORES))
