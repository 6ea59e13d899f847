"""A search for nodes whose pods could go, which goes on where it was cut."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Sequence

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.plan.victims import Candidate, Cost, Sketch

Entry = tuple[Cost, int, Sketch | Candidate]
"""The number keeps the order of equals."""
_MOST_KEPT = 1024
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
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        heaps = [each for each in self._kept.values() if each.heap]
        for each in heaps[: max(len(heaps) - _MOST_HEAPS, 0)]:
            each.heap = []
