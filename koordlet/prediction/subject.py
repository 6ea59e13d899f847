"""Who is predicted: pods, applications, and what the reference calls items of the node."""

from __future__ import annotations

from koordlet.prediction.forecast import CPU, MEMORY, Forecast, Rule
from koordlet.prediction.reclaimable import Amounts
from koordlet.prediction.season import HORIZON_S
from koordlet.protocol.histogram import SECOND_NS
from koordlet.protocol.qos import PriorityClass

NODE = "__node__"
SYSTEM = "sys"
ITEMS = (*(each.value for each in PriorityClass), "", SYSTEM)
"""Priority classes, no class at all, and what belongs to no pod (docs/reference/metrics.md 4.1)."""


def uid_of_item(item: str) -> str:
    return f"__node-{item}__"


NODE_UIDS = (NODE, *map(uid_of_item, ITEMS))


_APPLICATION = "app:"


def uid_of_application(name: str) -> str:
    """Ours: the reference has pods alone."""
    return f"{_APPLICATION}{name}"


def is_of_pod(uid: str) -> bool:
    """Whether a pod may have it: one that calls itself the node must not teach its model."""
    return uid not in NODE_UIDS and not uid.startswith(_APPLICATION)


class Subject:
    """``since_s``: unix time of its first sample, ``updated_s`` of its last one."""

    __slots__ = ("cpu", "memory", "since_s", "updated_s")

    def __init__(self, cpu_half_life_s: float, memory_half_life_s: float, since_s: float) -> None:
        self.cpu = Forecast(CPU, cpu_half_life_s)
        self.memory = Forecast(MEMORY, memory_half_life_s)
        self.since_s = self.updated_s = since_s

    @property
    def forecasts(self) -> tuple[Forecast, Forecast]:
        return self.cpu, self.memory

    def learn(self, cpu_cores: float, memory_bytes: float, time_ns: int, rule: Rule) -> None:
        time_s = time_ns / SECOND_NS
        # A model that has not seen an hour yet misses what nobody could know.
        is_tested = time_s - self.since_s >= HORIZON_S
        self.cpu.learn(cpu_cores, time_ns, rule, is_tested=is_tested)
        self.memory.learn(memory_bytes, time_ns, rule, is_tested=is_tested)
        self.updated_s = time_s
        self.since_s = min(self.since_s, time_s)  # the clock was ahead, and is set right now

    def is_cold(self, time_s: float, cold_start_s: float) -> bool:
        """Whether it has not been watched for long enough. The reference asks for the age of the
        pod instead, also where it has just begun to watch it (D-17)."""
        return time_s - self.since_s <= cold_start_s

    def percentiles(self) -> Amounts:
        return Amounts(self.cpu.percentile(), self.memory.percentile())

    def peak(self, rule: Rule) -> Amounts:
        """By the model in force."""
        return Amounts(*(each.peak(rule.model, rule) for each in self.forecasts))
