"""CPU burst: a service under a CPU quota, whose requests come in bursts.

nginx may use 0.2 of a core. Now and then requests worth 30 ms of CPU come at once: more than the
20 ms of a period, less than what is allowed on average. Arms: without a quota, with it and the
strategy off, with it and the strategy on.

A quota grows where the service was throttled, and stays: what counts is the service as it runs on
a node for good, after other arrivals of the same load for as long as is measured. What was
throttled meanwhile is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.effects import services
from bench.effects.client import Latencies
from bench.effects.stage import Stage, check_calm, in_turn, managed, measure, median, stage
from bench.figures import Figure
from koordlet.decision.resource import Resource

QUOTA_US = 20_000
PERIOD_US = 100_000
BURST_US = 30_000
BURSTS_PER_S = 2.5
_PAGE_BYTES = 32_768
# Requests that come together cost less than lone ones.
_PROBING_RATE, _PROBING_BURST = 100.0, 50
_WARM_UP_S = 2.0

CONFIG = """
[slo.cpuBurstStrategy]
policy = "{policy}"
"""


@dataclass(frozen=True)
class Seen:
    """``throttled``: periods in the window; ``before``: while the quota grew."""

    latency: Latencies
    throttled: int
    before: int


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    """Raises PermissionError without root, NotMeasuredError without the programs or on a
    busy machine."""
    seconds, usual = (2.0, 1) if smoke else (20.0, 5)
    say("how long nginx works for a page")
    burst = _requests_a_burst(smoke)
    arms = {
        "no quota": lambda: _arm(burst, _WARM_UP_S, seconds, "none", quota=False),
        "off": lambda: _arm(burst, _WARM_UP_S, seconds, "none", quota=True),
        "on": lambda: _arm(burst, seconds, seconds, "auto", quota=True),
    }
    return [Figure("requests a burst", burst, ""), *_figures(in_turn(arms, repeat or usual, say))]


def _requests_a_burst(smoke: bool) -> int:
    seconds = 1.0 if smoke else 3.0
    with stage("ls") as on:
        server = _server(on)
        seen = measure(on, {"nginx": server.load(_PROBING_RATE, seconds, burst=_PROBING_BURST)})
    if not smoke:
        check_calm(seen)
    cost_us = seen.used.cores["ls"] / _PROBING_RATE * 1e6
    return max(round(BURST_US / cost_us), 1)


def _arm(burst: int, settle_s: float, seconds: float, policy: str, *, quota: bool) -> Seen:
    rate = BURSTS_PER_S * burst
    with stage("ls") as on:
        server = _server(on)
        if quota:
            on.cgroups.write(on.groups["ls"], Resource.CPU_PERIOD_US, PERIOD_US)
            on.cgroups.write(on.groups["ls"], Resource.CPU_QUOTA_US, QUOTA_US)
        with managed(on.config({"ls": "LS"}, CONFIG.format(policy=policy))):
            before = measure(on, {"before": server.load(rate, settle_s, burst=burst, seed=2)})
            seen = measure(on, {"nginx": server.load(rate, seconds, burst=burst)})
    return Seen(seen.latencies["nginx"], seen.used.throttled["ls"], before.used.throttled["ls"])


def _server(on: Stage) -> services.Nginx:
    return services.nginx(on, "ls", workers=2, page_bytes=_PAGE_BYTES)


def _figures(found: Mapping[str, Sequence[Seen]]) -> list[Figure]:
    def p99(arm: str) -> float:
        return median(found[arm], lambda seen: seen.latency.quantile_ms(0.99))

    def throttled(arm: str) -> float:
        return median(found[arm], lambda seen: float(seen.throttled))

    return [
        Figure("p99 without a quota", p99("no quota"), "ms"),
        Figure("p99 with a quota", p99("off"), "ms"),
        Figure("p99 with bursts / with a quota", p99("on") / p99("off"), "x", 0.64),
        Figure("p99 with bursts / without a quota", p99("on") / p99("no quota"), "x"),
        Figure("periods throttled with a quota", throttled("off"), ""),
        Figure("periods throttled with bursts", throttled("on"), "", 0),
        Figure(
            "periods throttled before, while the quota grew",
            median(found["on"], lambda seen: float(seen.before)),
            "",
        ),
    ]
