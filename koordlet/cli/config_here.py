"""Effect that a configuration would have on this machine at this moment, for `koordlet config
check`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

import msgspec

from koordlet.config.load import Loaded
from koordlet.config.part_tables import options_in
from koordlet.config.show import show
from koordlet.decision.snapshot import Capability
from koordlet.hooks import HOOKS
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.host import Host
from koordlet.kernel.parse import CpuTicks, ParseError, meminfo, proc_stat
from koordlet.kernel.probe.probe import probe
from koordlet.qos import STRATEGIES
from koordlet.qos.evict.config import Feature, Watermark, usage
from koordlet.views.switches import AnyPart, switched_off

LOOK_S = 0.5
"""Seconds for which the CPUs are watched."""


class Firing(msgspec.Struct, frozen=True):
    """Feature that is armed, and whether it would choose a victim now. ``percent``: in use."""

    name: str
    would_fire: bool
    percent: float
    threshold: int


class Idle(msgspec.Struct, frozen=True):
    """A part that is asked for and can do nothing on this kernel."""

    name: str
    why: str


def firing(host: Host, loaded: Loaded, armed: frozenset[str]) -> Iterator[Firing]:
    """Judge the features that go by what the node uses; the others need a daemon's samples."""
    slo, proc_root = loaded.slo.resource_used_threshold_with_be, loaded.config.paths.proc_root
    features = [each for each in Feature if each in armed]
    rules = {each: usage(each, slo) for each in features} if slo is not None else {}
    watched = {each: rule for each, rule in rules.items() if isinstance(rule, Watermark)}
    if not watched:
        return
    memory = _memory_percent(host, proc_root)
    cpu = _cpu_percent(host, proc_root) if Feature.CPU in watched else None
    for feature, rule in watched.items():
        percent = cpu if feature is Feature.CPU else memory
        if percent is not None:
            yield Firing(feature, percent >= rule.threshold, percent, rule.threshold)


def _memory_percent(host: Host, proc_root: str) -> float | None:
    path = f"{proc_root}/meminfo"
    try:
        info = meminfo(host.read(path), path)
    except (OSError, ParseError):
        return None
    if info.available_bytes is None or not info.total_bytes:
        return None
    return 100 * (info.total_bytes - info.available_bytes) / info.total_bytes


def _cpu_percent(host: Host, proc_root: str) -> float | None:
    try:
        before, since = _ticks(host, proc_root), host.monotonic()
        time.sleep(LOOK_S)
        after, until = _ticks(host, proc_root), host.monotonic()
    except (OSError, ParseError):
        return None
    per_cpu = (until - since) * os.sysconf("SC_CLK_TCK")
    return 100 * (after.node - before.node) / (per_cpu * max(len(after.cpus), 1))


def _ticks(host: Host, proc_root: str) -> CpuTicks:
    path = f"{proc_root}/stat"
    return proc_stat(host.read(path), path)


def idle(host: Host, loaded: Loaded) -> Iterator[Idle]:
    """Tries the kernel in a scratch cgroup, for which it takes root. Raises OSError and
    ParseError."""
    paths = loaded.config.paths
    layout = detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    found = asyncio.run(probe(host, layout, proc_root=paths.proc_root, sys_root=paths.sys_root))
    capabilities = {each.feature: each for each in found}
    values = {each.key: each.value for each in show(loaded)}
    strategies, hooks = loaded.config.strategies, loaded.config.hooks
    for parts, tables in ((STRATEGIES, strategies), (HOOKS, hooks)):
        for part in parts.values():
            off, _ = switched_off(part, values, loaded.origins)
            why = _missing(part, capabilities)
            if why and part.switches and not off and options_in(tables, part).enable:
                yield Idle(part.name, why)


def _missing(part: AnyPart, capabilities: dict[str, Capability]) -> str:
    """Return why it can do nothing; empty where it has what it needs, or that is not known."""
    needed = [capabilities[each] for each in part.needs if each in capabilities]
    if not needed or len(needed) < len(part.needs) or any(each.supported for each in needed):
        return ""
    return "; ".join(f"{each.feature}: {each.why}" for each in needed)
