"""Which reservations are for a class of pods, kept until rows change
(docs/reference/central.md 7.3)."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.place.reservation.matching import Match, Wishes, match, wishes_of
from koord_scheduler.place.reservation.reservation import RESERVATIONS, Reservation

_MOST_KEPT = 512


class Found(msgspec.Struct):
    """Reservations that a class matches, by row, and what keeps it from the others."""

    version: int = -1
    rows: dict[int, tuple[Reservation, ...]] = msgspec.field(default_factory=dict)
    why_not: dict[int, tuple[tuple[Reservation, Match], ...]] = msgspec.field(default_factory=dict)


class Matched:
    def __init__(self) -> None:
        self._of: Cluster | None = None
        self._found: OrderedDict[int, Found] = OrderedDict()
        self._wishes: dict[int, Wishes] = {}

    def wishes_of(self, pod: PodClass) -> Wishes:
        found = self._wishes.get(pod.number)
        if found is None:
            if len(self._wishes) >= _MOST_KEPT:
                self._wishes.clear()
            found = self._wishes[pod.number] = wishes_of(pod)
        return found

    def of(self, cluster: Cluster, pod: PodClass) -> Found:
        """Kept by class, refreshed where rows changed."""
        if self._of is not cluster:
            self._of = cluster
            self._found.clear()
            self._wishes.clear()
        found = self._found.get(pod.number)
        if found is None:
            if len(self._found) >= _MOST_KEPT:
                self._found.popitem(last=False)
            found = self._found[pod.number] = Found()
        if found.version == cluster.version:
            return found
        changed = set(cluster.since(found.version).tolist())
        names = cluster.all(RESERVATIONS)
        if len(changed) > len(names):
            there = {cluster.row[name] for name in names if name in cluster.row}
            changed &= there | found.rows.keys() | found.why_not.keys()
        for row in changed:
            self._match_row(cluster, pod, row, found)
        found.version = cluster.version
        return found

    def _match_row(self, cluster: Cluster, pod: PodClass, row: int, found: Found) -> None:
        found.rows.pop(row, None)
        found.why_not.pop(row, None)
        node = cluster.nodes[row]
        there = cluster.get(RESERVATIONS, row)
        if node is None or not there:
            return
        wishes = self.wishes_of(pod)
        yes, no = [], []
        for name in sorted(there):
            each = there[name]
            outcome = match(pod, wishes, each, node, bool(cluster.users_of(name)))
            if outcome is not Match.YES:
                no.append((each, outcome))
            elif wishes.affinity is not None or any(n in each.allocatable for n in pod.requests):
                # Without an affinity it uses none that keeps nothing of what it asks for.
                yes.append(each)
        if yes:
            found.rows[row] = tuple(yes)
        if no:
            found.why_not[row] = tuple(no)


def report(found: Found) -> tuple[str, ...]:
    """Why reservations do not serve such a pod, with how many there are of each kind."""
    counts: dict[str, int] = {}
    owned = sum(len(each) for each in found.rows.values())
    for each in found.why_not.values():
        for reservation, why in each:
            if why is Match.OWNERS:
                continue
            owned += 1
            text = why.value
            if why is Match.TAINT and reservation.taints:
                taint = reservation.taints[0]
                text = f"{text} {{{taint.key}: {taint.value}}}"
            counts[text] = counts.get(text, 0) + 1
    lines = [f"{n} Reservation(s) {text}" for text, n in sorted(counts.items())]
    return (*lines, f"{owned} Reservation(s) matched owner total") if owned else ()
