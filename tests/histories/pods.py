"""Pods of all classes, with what a scheduler and their owners may have written on them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from koordlet_fakefs import Process
from koordlet_fakefs.kubepods import PodGroups

from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Resources

MIB = 1 << 20


@dataclass
class Pod:
    """``twins``: its processes on the other machine."""

    facts: PodFacts
    kube: str
    groups: PodGroups
    processes: list[Process] = field(default_factory=list)
    twins: list[Process] = field(default_factory=list)

    @property
    def uid(self) -> str:
        return self.facts.uid

    @property
    def qos(self) -> str:
        return (self.facts.labels or {}).get("koordinator.sh/qosClass", "")

    @property
    def priority(self) -> int:
        """As it counts where none is told."""
        if self.facts.priority is not None:
            return self.facts.priority
        return 5000 if self.is_best_effort else 9000

    @property
    def is_best_effort(self) -> bool:
        return self.qos == "BE" or self.kube == "besteffort"

    @property
    def memory_limit_bytes(self) -> int:
        """Without a limit that of any machine."""
        asked = self.facts.resources or Resources()
        return asked.limit_batch_memory_bytes or asked.limit_memory_bytes or 1 << 62

    def lets(self, feature: str) -> bool:
        """Whether its owner lets ``feature`` evict it."""
        labels, annotations = self.facts.labels or {}, self.facts.annotations or {}
        told = annotations.get(EVICTION_POLICY)
        if feature.startswith("BE"):
            # A list that cannot be read exempts nobody from what needs no consent.
            is_list = told is not None and told.startswith("[")
            return self.qos == "BE" and (not is_list or f'"{feature}"' in (told or ""))
        if told is not None and f'"{feature}"' not in told:
            return False
        return labels.get("koordinator.sh/eviction-enabled") == "true"

    @property
    def cgroups(self) -> tuple[str, ...]:
        return (self.groups.pod, *self.groups.containers)


def priority_of(chance: random.Random, qos: str) -> int | None:
    if qos == "BE":
        return chance.choice((None, 5000, 5500, 5999))
    return chance.choice((None, 9000, 7500, 5800))


def labels_of(chance: random.Random, qos: str) -> dict[str, str]:
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    if chance.random() < 0.5:
        labels["koordinator.sh/eviction-enabled"] = chance.choice(("true", "false", "maybe"))
    if chance.random() < 0.1:
        labels["koordinator.sh/core-sched-policy"] = "exclusive"
        labels["koordinator.sh/coreSchedulingGroup"] = "group"
    return labels


_ANNOTATIONS = (
    ("koordinator.sh/cpuBurst", '{"policy":"auto","cpuBurstPercent":200}'),
    ("koordinator.sh/cpuBurst", '{"policy":"none"}'),
    ("koordinator.sh/cpuBurst", '{"policy":'),
    ("koordinator.sh/memoryQOS", '{"policy":"auto"}'),
    ("koordinator.sh/memoryQOS", '{"enable":true,"minLimitPercent":100,"throttlingPercent":60}'),
    ("koordinator.sh/memoryQOS", '{"policy":"sometimes"}'),
    ("scheduling.koordinator.sh/resource-status", '{"cpuset":"2-3"}'),
    ("scheduling.koordinator.sh/resource-status", '{"cpuset":"9-99"}'),
    ("koordinator.sh/resctrl", '{"llc":{"schemata":{"range":[0,30]}}}'),
    ("koordinator.sh/container-oom-score-adj", "100"),
    ("koordinator.sh/networkQOS", '{"ingressLimit":"10M","egressLimit":"20M"}'),
    ("koordinator.sh/networkQOS", '{"egressLimit":"30M"}'),
    ("koordinator.sh/networkQOS", '{"egressLimit":-1'),
)  # fmt: skip


EVICTION_POLICY = "koordinator.sh/eviction-policy"
_EVICTION_POLICIES = ('["BECPUEvict"]', '["BEMemoryEvict","MemoryEvict"]', "[]", "BEMemoryEvict")


def annotations_of(chance: random.Random, qos: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if chance.random() < 0.15:
        found[EVICTION_POLICY] = chance.choice(_EVICTION_POLICIES)
    if chance.random() < 0.4:
        found |= [chance.choice(_ANNOTATIONS)]
    if qos not in ("LSR", "LSE"):
        found.pop("scheduling.koordinator.sh/resource-status", None)
    return found


def resources_of(chance: random.Random, kube: str, qos: str) -> Resources:
    if kube == "besteffort":
        if chance.random() < 0.4:
            return Resources()
        milli = chance.choice((500, 1000, 2000))
        memory = chance.choice((512, 1024)) * MIB
        return Resources(
            request_batch_cpu_milli=milli,
            limit_batch_cpu_milli=milli,
            request_batch_memory_bytes=memory,
            limit_batch_memory_bytes=memory,
        )
    milli = chance.choice((250, 500, 1000, 2000))
    memory = chance.choice((256, 512, 1024, 3072)) * MIB
    if kube == "guaranteed":
        return Resources(milli, milli, memory, memory)
    if chance.random() < 0.3:
        return Resources(milli, None, memory, None)
    return Resources(milli, milli * chance.choice((1, 2)), memory, memory * chance.choice((1, 2)))
