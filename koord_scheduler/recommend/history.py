"""What was learned of the containers of one workload, and what they should request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.recommend.policy import Policy
from koord_scheduler.recommend.target import ContainerUsage
from koordlet.protocol.histogram import CPU_BUCKETS, MEMORY_BUCKETS, SECOND_NS, Histogram

MOST_CONTAINERS = 16
"""Of one workload; names of containers come from users."""
MIB = 1 << 20


class Request(NamedTuple):
    cpu_milli: int
    memory_bytes: int


class Learned:
    """Of one container. ``standing``: what is recommended at present. ``tried``: samples that came
    while something was; ``cpu_missed`` and ``memory_missed``: those of them that used more."""

    __slots__ = ("cpu", "cpu_missed", "memory", "memory_missed", "samples", "standing", "tried")

    def __init__(self, policy: Policy) -> None:
        self.cpu = Histogram(CPU_BUCKETS, _ns(policy.cpu_half_life_s))
        self.memory = Histogram(MEMORY_BUCKETS, _ns(policy.memory_half_life_s))
        self.samples = 0
        self.standing: Request | None = None
        self.tried = self.cpu_missed = self.memory_missed = 0


class History:
    """``since_s`` and ``last_s``: Unix time of the first and of the last sample."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.containers: dict[str, Learned] = {}
        self.since_s = 0.0
        self.last_s = 0.0

    def add(self, usages: Iterable[ContainerUsage], time_s: float) -> None:
        """One sample of one pod. Containers beyond MOST_CONTAINERS are left out."""
        for each in usages:
            learned = self.containers.get(each.name)
            if learned is None:
                if len(self.containers) >= MOST_CONTAINERS:
                    continue
                learned = self.containers[each.name] = Learned(self.policy)
            _try(learned, each)
            time_ns = _ns(time_s)
            learned.cpu.add(each.cpu_milli / 1000, time_ns)
            learned.memory.add(each.memory_bytes, time_ns)
            learned.samples += 1
        self.since_s = min(self.since_s, time_s) if self.since_s else time_s
        self.last_s = max(self.last_s, time_s)

    def recommended(self, now_s: float) -> dict[str, Request]:
        """By container, those of which enough is known. It does not stand yet: see ``stands``."""
        found = {name: self._request(each, now_s) for name, each in self.containers.items()}
        return {name: each for name, each in found.items() if each is not None}

    def stands(self, requests: Mapping[str, Request]) -> None:
        """What users were told: samples that come from now on are compared with it."""
        for name, learned in self.containers.items():
            learned.standing = requests.get(name)

    def keep(self, names: Iterable[str]) -> None:
        """Forgets containers that the workload no longer has."""
        kept = set(names)
        self.containers = {name: each for name, each in self.containers.items() if name in kept}

    def _request(self, learned: Learned, now_s: float) -> Request | None:
        policy = self.policy
        if learned.samples < policy.least_samples or now_s - self.since_s < policy.least_history_s:
            return None
        more = (100 + policy.margin_percent) / 100
        cpu = learned.cpu.percentile(policy.cpu_share) * more
        memory = learned.memory.percentile(policy.memory_share) * more
        return Request(math.ceil(cpu * 1000), math.ceil(memory / MIB) * MIB)


def _try(learned: Learned, usage: ContainerUsage) -> None:
    """What stands, against a sample that it does not know."""
    standing = learned.standing
    if standing is None:
        return
    learned.tried += 1
    learned.cpu_missed += usage.cpu_milli > standing.cpu_milli
    learned.memory_missed += usage.memory_bytes > standing.memory_bytes


def _ns(seconds: float) -> int:
    return int(seconds * SECOND_NS)
