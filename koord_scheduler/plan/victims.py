"""Who may go from a node for a pod, as far as sums of resources tell; which node costs least."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.place.reservation.reservation import RESERVE_POD
from koord_scheduler.plan.engine import Engine
from koordlet.protocol import keys

_LOWEST = 1 << 31
Cost = tuple[int, int, int, int, float]


class Sketch(NamedTuple):
    """A node with those that may go, the terminating ones aside, in the order in which they are
    spared, and the keys of those whose room is not needed by the sums of resources alone."""

    row: int
    violating: tuple[Claim, ...]
    others: tuple[Claim, ...]
    ending: tuple[Claim, ...]
    stay: frozenset[str]


class Candidate(NamedTuple):
    row: int
    victims: tuple[Claim, ...]
    violations: int


class Ask:
    """What the pod asks for, in the columns it asks for, as plain integers."""

    __slots__ = ("_by_class", "_columns", "_engine", "_vector", "pod")

    def __init__(self, engine: Engine, pod: Pod) -> None:
        self.pod = pod
        self._engine = engine
        self._vector = engine.cluster.vector(pod.cls)
        self._columns = np.flatnonzero(self._vector)
        self._by_class: dict[int, list[int]] = {}

    def amounts(self, cls: PodClass) -> list[int]:
        found = self._by_class.get(cls.number)
        if found is None:
            found = self._engine.cluster.vector(cls)[self._columns].tolist()
            self._by_class[cls.number] = found
        return found

    def free(self, row: int, gone: Iterable[Claim]) -> list[int]:
        """What the row has beside the pod, and beside those nominated there, without ``gone``."""
        cluster = self._engine.cluster
        left = (cluster.allocatable[row] - cluster.requested[row] - self._vector)[self._columns]
        found: list[int] = left.tolist()
        for claims, sign in ((gone, 1), (self._engine.ahead(self.pod, row), -1)):
            for claim in claims:
                amounts = self.amounts(claim.pod.cls)
                found = [have + sign * amount for have, amount in zip(found, amounts, strict=True)]
        return found


def preemptible(cls: PodClass) -> bool:
    """Return whether such pods may go for those of higher priority, by their labels. Reserve pods
    never go."""
    return RESERVE_POD not in cls.annotations and (
        cls.labels.get(keys.PREEMPTIBLE.name) != "false"
        and cls.labels.get(keys.DISABLE_PREEMPTIBLE.name) != "true"
    )


def importance(claim: Claim) -> tuple[int, float, str]:
    """The most important first: higher priority, then longer on its node."""
    return (-claim.pod.cls.priority, claim.since_s, claim.pod.key)


def candidate_of(sketch: Sketch, stay: frozenset[str]) -> Candidate:
    against = [claim for claim in sketch.violating if claim.pod.key not in stay]
    others = [claim for claim in sketch.others if claim.pod.key not in stay]
    leaving = sorted((*others, *against), key=importance, reverse=True)
    return Candidate(sketch.row, tuple(leaving), len(against))


def cost(candidate: Candidate) -> Cost:
    """Fewest budgets exceeded, lowest most important victim, least sum of priorities, fewest
    victims, latest start of the most important ones."""
    victims = candidate.victims
    if not victims:
        return (candidate.violations, -_LOWEST, 0, 0, 0.0)
    priorities = [claim.pod.cls.priority for claim in victims]
    most = max(priorities)
    started = min(claim.since_s for claim in victims if claim.pod.cls.priority == most)
    total = sum(priority + _LOWEST for priority in priorities)
    return (candidate.violations, most, total, len(victims), -started)
