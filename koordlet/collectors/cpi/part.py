"""Cycles per instruction of containers: the declaration. What it takes is imported where it is
switched on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from koordlet.collectors.base import (
    Collector,
    CollectorOptions,
    CollectorPart,
    Interval,
    Machine,
)
from koordlet.decision import metrics
from koordlet.decision.options import about
from koordlet.protocol.errors import Problem


class CpiOptions(CollectorOptions, frozen=True):
    enable: Annotated[
        bool, about("Whether it runs. Off by default, as the gate CPICollector of the reference.")
    ] = False
    interval_seconds: Interval = 60.0
    window_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=600)],
        about("For how long of each interval the hardware counts."),
    ] = 10.0
    max_descriptors: Annotated[
        Annotated[int, Meta(ge=1, le=65536)],
        about(
            "Without eBPF: how many counters may be open, two for each container and CPU, for "
            "latency-sensitive containers first. Never more than a quarter of the files that "
            "koordlet may open."
        ),
    ] = 1024


def _check(options: CpiOptions) -> Iterable[Problem]:
    if options.window_seconds >= options.interval_seconds:
        yield Problem(
            "window_seconds",
            f"must be shorter than the interval of {options.interval_seconds:g} s, is "
            f"{options.window_seconds:g} s",
        )


def _make(machine: Machine, options: CpiOptions) -> Collector:
    from koordlet.collectors.cpi.collector import CpiCollector

    return CpiCollector(
        machine.host, machine.cgroups.layout, machine.store, options, machine.sys_root
    )


COLLECTOR = CollectorPart(
    name="cpi",
    help="Cycles and instructions of containers, in windows (hardware counters).",
    options=CpiOptions(),
    check=_check,
    make=_make,
    metrics=(metrics.CONTAINER_CPI, metrics.CONTAINER_CYCLES_PER_INSTRUCTION),
)
