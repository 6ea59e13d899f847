"""CPU burst: a service under a CPU quota, whose requests come in bursts.

nginx, or PostgreSQL, may use 0.2 of a core. Now and then requests worth 30 ms of CPU come at once:
more than the 20 ms of a period, less than what is allowed on average. Arms in slices: without a
quota, with it and the strategy off, with it and the strategy on.

A quota grows where the service was throttled, and stays: what counts is the service as it runs on
a node for good. That takes longer than a slice, so each arm has a cgroup that keeps its state, and
nginx moves from one to the other. It begins in the managed one, with other arrivals of the same
load; what was throttled meanwhile is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bench.effects import services
from bench.effects.client import Load
from bench.effects.slices import (
    SMOKE,
    Size,
    Slice,
    in_slices,
    latency_ms,
    latency_ratio,
    mean_value,
    waits_figures,
)
from bench.effects.stage import Stage, check_calm, managed, measure, stage
from bench.figures import Figure, Measured
from bench.tree import enter
from koordlet.decision.resource import Resource

QUOTA_US = 20_000
PERIOD_US = 100_000
BURST_US = 30_000
BURSTS_PER_S = 2.5
_PAGE_BYTES = 32_768
# Requests that come together cost less than lone ones.
_PROBING_RATE, _PROBING_BURST = 100.0, 50
_GROUPS = {"no quota": "ls/free", "off": "ls/held", "on": "ls/managed"}

CONFIG = """
[slo.cpuBurstStrategy]
policy = "auto"
"""


class Server(Protocol):
    """A service and its load."""

    def load(self, rate_per_s: float, seconds: float, *, burst: int = 1, seed: int = 1) -> Load: ...


@dataclass(frozen=True)
class Served:
    """``start``: in a group of a stage. ``goal``: p99 with bursts by p99 without a quota; None:
    there is none."""

    title: str
    start: Callable[[Stage, str], Server]
    goal: float | None = None


def run(
    served: Served, smoke: bool, say: Callable[[str], None], size: Size | None = None
) -> Measured:
    """Raises PermissionError without root, NotMeasuredError without the programs or on a
    busy machine."""
    size = size or (SMOKE if smoke else Size())
    say("how long the service works for a request")
    burst = _requests_a_burst(served, smoke)
    rate = BURSTS_PER_S * burst
    with stage("ls", *_GROUPS.values(), "be") as on:
        for arm in ("off", "on"):
            on.cgroups.write(on.groups[_GROUPS[arm]], Resource.CPU_PERIOD_US, PERIOD_US)
            on.cgroups.write(on.groups[_GROUPS[arm]], Resource.CPU_QUOTA_US, QUOTA_US)
        server = served.start(on, _GROUPS["on"])
        with managed(on.config({_GROUPS["on"]: "LS"}, CONFIG)):
            say("the quota grows")
            others = size.seed + size.slices  # a seed that no slice has
            growing = server.load(rate, 2.0 if smoke else 20.0, burst=burst, seed=others)
            before = measure(on, {"before": growing})
            slices = in_slices(
                on,
                lambda seconds: server.load(rate, seconds, burst=burst, seed=size.seed),
                {arm: partial(_move, on, group) for arm, group in _GROUPS.items()},
                size,
                say,
            )
    figures = _figures(served, slices, before.used.throttled[_GROUPS["on"]])
    return Measured([Figure("requests a burst", burst, ""), *figures], size.seed, slices)


def _requests_a_burst(served: Served, smoke: bool) -> int:
    seconds = 1.0 if smoke else 3.0
    with stage("ls") as on:
        server = served.start(on, "ls")
        seen = measure(on, {"ls": server.load(_PROBING_RATE, seconds, burst=_PROBING_BURST)})
    if not smoke:
        check_calm(seen)
    cost_us = seen.used.cores["ls"] / _PROBING_RATE * 1e6
    return max(round(BURST_US / cost_us), 1)


def _move(on: Stage, to: str) -> None:
    """Move the service into this group."""
    for group in _GROUPS.values():
        for pid in on.pids(group) if group != to else ():
            enter(on.cgroups, on.groups[to], pid)


def _figures(served: Served, slices: Sequence[Slice], before: int) -> list[Figure]:
    """``before``: periods throttled while the quota grew."""

    def throttled(arm: str) -> Callable[[Slice], float]:
        return lambda each: each.throttled[_GROUPS[arm]] / each.seconds

    return [
        Figure.of("p99 without a quota", latency_ms(slices, "no quota", 0.99), "ms"),
        Figure.of("p99 with a quota", latency_ms(slices, "off", 0.99), "ms"),
        Figure.of(
            "p99 with bursts / with a quota",
            latency_ratio(slices, "on", 0.99, to="off"),
            "x",
            0.64,
        ),
        Figure.of(
            "p99 with bursts / without a quota",
            latency_ratio(slices, "on", 0.99, to="no quota"),
            "x",
            served.goal,
        ),
        Figure.of(
            "periods throttled with a quota", mean_value(slices, "off", throttled("off")), "/s"
        ),
        Figure.of(
            "periods throttled with bursts", mean_value(slices, "on", throttled("on")), "/s", 0
        ),
        Figure("periods throttled before, while the quota grew", before, ""),
        *waits_figures(slices, tuple(_GROUPS)),
    ]


def _nginx(on: Stage, group: str) -> Server:
    return services.nginx(on, group, workers=2, page_bytes=_PAGE_BYTES)


def _postgres(on: Stage, group: str) -> Server:
    return services.postgres(on, group, scale=10)


SERVICES = {
    "cpu-burst": Served("nginx", _nginx),
    "cpu-burst-postgres": Served("postgres", _postgres, 1.10),
}
"""Services by the name of their bench."""
