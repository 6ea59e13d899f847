"""Who may go from a node for a pod, as far as sums of resources tell; which node costs least."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints
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


_MOST_POTENTIALS = 4


class _Potential:
    __slots__ = ("amounts", "version")

    def __init__(self) -> None:
        self.version = -1
        self.amounts: Ints = np.zeros((0, 0), np.int64)


class Potentials:
    """Follow the rows that change, for the sets of classes that were asked about last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: OrderedDict[frozenset[int], _Potential] = OrderedDict()

    def of(self, numbers: frozenset[int]) -> Ints:
        """Return the sum of each row; the caller must not change it."""
        cluster = self._cluster
        kept = self._kept.get(numbers)
        if kept is None:
            if len(self._kept) >= _MOST_POTENTIALS:
                self._kept.popitem(last=False)
            kept = self._kept[numbers] = _Potential()
        self._kept.move_to_end(numbers)
        changed = cluster.since(kept.version) if kept.version >= 0 else None
        if changed is None or kept.amounts.shape != cluster.requested.shape:
            kept.amounts = np.zeros_like(cluster.requested)
            for number in numbers:
                counts = cluster.classes.get(number, {})
                where = np.fromiter(counts, np.intp, len(counts))
                many = np.fromiter(counts.values(), np.int64, len(counts))
                kept.amounts[where] += many[:, None] * cluster.vector(cluster.class_of[number])
        else:
            for row in changed:
                kept.amounts[row] = 0
                for claim in cluster.claims_on(int(row)).values():
                    if claim.pod.cls.number in numbers and not claim.pod.holds:
                        kept.amounts[row] += cluster.vector(claim.pod.cls)
        kept.version = cluster.version
        return kept.amounts


Entry = tuple[Cost, int, Sketch | Candidate]
"""The number keeps the order of equals."""
_MOST_SEARCHES = 1024
_MOST_HEAPS = 4


class Search:
    """``heap``: nodes that may help, those looked at closely as `Candidate`. ``spent_s``: CPU
    seconds of its slices in a row."""

    __slots__ = ("_again", "_looked", "_serial", "_version", "heap", "spent_s")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.spent_s = 0.0
        self._looked = self._serial = 0
        self._again: list[int] = []
        """Rows that changed since they were looked at."""
        self._version = -1

    def resume(self, cluster: Cluster, rows: Collection[int]) -> None:
        """Give up what was found on nodes that changed, or that are not among ``rows`` now."""
        if not self.heap:
            return
        changed = set(cluster.since(self._version).tolist())
        there = set(rows)
        self._again += [each[2].row for each in self.heap if each[2].row in changed]
        self.heap = [e for e in self.heap if e[2].row in there and e[2].row not in changed]

    def pause(self, cluster: Cluster) -> None:
        self._version = cluster.version

    def next_row(self, rows: Sequence[int]) -> int | None:
        """Return the next one to look at; None after the last."""
        if self._again:
            return self._again.pop()
        if self._looked >= len(rows):
            return None
        self._looked += 1
        return rows[self._looked - 1]

    def put(self, cost: Cost, found: Sketch) -> None:
        self._serial += 1
        heapq.heappush(self.heap, (cost, self._serial, found))


class Searches:
    """Searches that were cut, by the pod's uid."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Search] = OrderedDict()

    def take(self, uid: str) -> Search:
        return self._kept.pop(uid, None) or Search()

    def goes_on(self, uid: str) -> bool:
        """Return whether a search was cut that may go on at once."""
        found = self._kept.get(uid)
        return found is not None and found.spent_s > 0.0

    def keep(self, uid: str, search: Search, cluster: Cluster) -> None:
        search.pause(cluster)
        self._kept[uid] = search
        if len(self._kept) > _MOST_SEARCHES:
            self._kept.popitem(last=False)
        heaps = [each for each in self._kept.values() if each.heap]
        for each in heaps[: max(len(heaps) - _MOST_HEAPS, 0)]:
            each.heap = []
