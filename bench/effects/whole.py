"""The whole: nginx as LS and ffmpeg as BE on one machine, with everything switched on.

Three arms in turn: the service alone, with unmanaged best-effort work, with managed one. What is
published for the reference's line of work: p99 +141 % unmanaged, +25 % managed, CPU from 25 % to
49 %.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.effects import services
from bench.effects.client import Latencies
from bench.effects.stage import check_calm, in_turn, managed, measure, median, stage
from bench.figures import Figure

# Some 2 ms of compression for each page, as a dynamic page costs.
PAGE_BYTES = 262_144
LS_SHARE = 0.30
_MAX_RATE = 1500.0
_PROBING_RATE = 50.0
_SETTLE_S = 2.0  # ffmpeg fills its queues, the daemon sets its first limits

EVERYTHING = """
# BE may use what LS and the system leave of 95 % of the node: latency is protected by who yields
# to whom, so the reference's 65 % would only waste CPU here.
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 95
cpuSuppressPolicy = "cfsQuota"
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
_AMOUNTS = {
    "ls": 'cpu_request = "1"\nmemory_request = "256Mi"\n',
    "be": 'memory_request = "1Gi"\nmemory_limit = "4Gi"\n',
}


@dataclass(frozen=True)
class Seen:
    latency: Latencies
    node_share: float
    frames_per_s: float


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    """Raises PermissionError without root, NotMeasuredError without the programs or on a
    busy machine."""
    seconds, usual = (3.0, 1) if smoke else (20.0, 5)
    say("how long nginx works for a page")
    rate = calibrated_rate(smoke)
    arms = {
        "alone": lambda: _arm(rate, seconds, ffmpeg=False, config=None),
        "unmanaged": lambda: _arm(rate, seconds, ffmpeg=True, config=None),
        "managed": lambda: _arm(rate, seconds, ffmpeg=True, config=EVERYTHING),
    }
    found = in_turn(arms, repeat or usual, say)
    return [Figure("requests", rate, "/s"), *_figures(found)]


def calibrated_rate(smoke: bool) -> float:
    """Requests a second that make nginx use ``LS_SHARE`` of the machine."""
    seconds = 1.0 if smoke else 3.0
    with stage("ls") as on:
        server = services.nginx(on, "ls", workers=_cpus(), page_bytes=PAGE_BYTES)
        seen = measure(on, {"nginx": server.load(_PROBING_RATE, seconds)})
    if not smoke:
        check_calm(seen)
    cost_s = seen.used.cores["ls"] / _PROBING_RATE
    return round(min(LS_SHARE * _cpus() / cost_s, _MAX_RATE), 1)


def _arm(rate: float, seconds: float, *, ffmpeg: bool, config: str | None) -> Seen:
    with stage("ls", "be") as on:
        server = services.nginx(on, "ls", workers=_cpus(), page_bytes=PAGE_BYTES)
        video = services.ffmpeg(on, "be", jobs=_cpus()) if ffmpeg else None
        rest = None
        if config is not None:
            rest = on.config({"ls": "LS", "be": "BE"}, config, _AMOUNTS)
        with managed(rest):
            measure(on, {"warm-up": server.load(rate, _SETTLE_S, seed=2)})
            before = video.frames() if video else 0
            seen = measure(on, {"nginx": server.load(rate, seconds)})
            frames = video.frames() - before if video else 0
    return Seen(seen.latencies["nginx"], seen.used.node_share, frames / seen.used.seconds)


def _figures(found: Mapping[str, Sequence[Seen]]) -> list[Figure]:
    def ratio(arm: str, share: float) -> float:
        return median(found[arm], lambda s: s.latency.quantile_ms(share)) / median(
            found["alone"], lambda s: s.latency.quantile_ms(share)
        )

    def cpu(arm: str) -> float:
        return 100 * median(found[arm], lambda s: s.node_share)

    frames = {arm: median(found[arm], lambda s: s.frames_per_s) for arm in found}
    return [
        Figure("p99 alone", median(found["alone"], lambda s: s.latency.quantile_ms(0.99)), "ms"),
        Figure("p99 unmanaged / alone", ratio("unmanaged", 0.99), "x"),
        Figure("p99 managed / alone", ratio("managed", 0.99), "x", 1.10),
        Figure("p50 managed / alone", ratio("managed", 0.5), "x"),
        Figure("p99.9 managed / alone", ratio("managed", 0.999), "x"),
        Figure("node CPU alone", cpu("alone"), "%"),
        Figure("node CPU managed", cpu("managed"), "%", 85, at_most=False),
        Figure("frames unmanaged", frames["unmanaged"], "/s"),
        Figure("frames managed / unmanaged", frames["managed"] / frames["unmanaged"], "x"),
        Figure("the client itself", 100 * median(found["managed"], _client_cores), "% of a core"),
    ]


def _client_cores(seen: Seen) -> float:
    return seen.latency.client_cores


def _cpus() -> int:
    return os.cpu_count() or 1
