"""How good recommendations would have been: each is made of the past alone and compared with what
came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from koord_scheduler.recommend.history import History
from koord_scheduler.recommend.policy import HOUR_S, Policy
from koord_scheduler.recommend.target import ContainerUsage

EVERY_S = 6 * HOUR_S
"""How often the recommendation is renewed: a request is not changed every minute."""


class BackTest(NamedTuple):
    """``tried``: samples that came while a recommendation stood. ``*_missed``: the share of them
    that used more. ``*_excess``: how much more at the worst, as a share of the recommendation.
    ``*_over``: recommended by used, over all samples; 1 would be exact."""

    tried: int
    cpu_missed: float
    memory_missed: float
    cpu_excess: float
    memory_excess: float
    cpu_over: float
    memory_over: float


class Sample(NamedTuple):
    time_s: float
    usages: tuple[ContainerUsage, ...]


def back_test(
    samples: Iterable[Sample], policy: Policy, *, after_s: float = 0.0, every_s: float = EVERY_S
) -> BackTest:
    """``samples`` in the order of time. Those of the first ``after_s`` are learned and not
    compared. Raises ValueError where nothing could be compared."""
    history = History(policy)
    begun_s: float | None = None
    due_s = 0.0
    tried = cpu_missed = memory_missed = 0
    cpu_excess = memory_excess = 0.0
    cpu_used = memory_used = cpu_given = memory_given = 0.0
    for sample in samples:
        if begun_s is None:
            begun_s = sample.time_s
        if sample.time_s >= due_s:
            history.stands(history.recommended(sample.time_s))
            due_s = sample.time_s + every_s
        if sample.time_s - begun_s >= after_s:
            for usage in sample.usages:
                learned = history.containers.get(usage.name)
                standing = learned.standing if learned is not None else None
                if standing is None:
                    continue
                tried += 1
                cpu_used += usage.cpu_milli
                memory_used += usage.memory_bytes
                cpu_given += standing.cpu_milli
                memory_given += standing.memory_bytes
                over_cpu = usage.cpu_milli / standing.cpu_milli - 1
                over_memory = usage.memory_bytes / standing.memory_bytes - 1
                cpu_missed += over_cpu > 0
                memory_missed += over_memory > 0
                cpu_excess = max(cpu_excess, over_cpu)
                memory_excess = max(memory_excess, over_memory)
        history.add(sample.usages, sample.time_s)
    if not tried:
        raise ValueError("no sample came while a recommendation stood")
    return BackTest(
        tried,
        cpu_missed / tried,
        memory_missed / tried,
        cpu_excess,
        memory_excess,
        cpu_given / max(cpu_used, 1e-9),
        memory_given / max(memory_used, 1e-9),
    )
