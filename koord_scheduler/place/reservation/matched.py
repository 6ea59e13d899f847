"""Which reservations are for a class of pods, kept until rows change
(docs/reference/central.md 7.3, 7.9)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

import msgspec

from koord_scheduler.model.amounts import in_normal_form
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import FITS, REASONS, Codes
from koord_scheduler.place.node_affinity import selected
from koord_scheduler.place.reservation.matching import (
    Match,
    Wishes,
    match,
    untolerated_by,
    wishes_of,
)
from koord_scheduler.place.reservation.reservation import RESERVATIONS, Reservation

_MOST_KEPT = 512
_OF_RESERVATION = "Reservation(s) "


class Row(msgspec.Struct, frozen=True):
    """Reservations on a node: those that the pod may use, and why it is one of the owners of others
    and may not use them, in words; ``matched``: how many match, of use or not."""

    usable: tuple[Reservation, ...] = ()
    matched: int = 0
    why_not: tuple[str, ...] = ()

    @property
    def owned(self) -> int:
        return self.matched + len(self.why_not)


class Found(msgspec.Struct):
    """Matches of a class, by row. ``counts``: of words, over all rows; ``owned``: reservations of
    which the pod is an owner; ``unseen``: numbers of the classes of reserve pods that it may use,
    so that it does not see them beside it."""

    version: int = -1
    rows: dict[int, tuple[Reservation, ...]] = msgspec.field(default_factory=dict)
    all: dict[int, Row] = msgspec.field(default_factory=dict)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    owned: int = 0
    unseen: frozenset[int] = frozenset()


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
            changed &= there | found.all.keys()
        for row in changed:
            self._match_row(cluster, pod, row, found)
        if changed:
            found.unseen = frozenset(
                r.pod.cls.number for row in found.rows.values() for r in row if r.pod.holds
            )
        found.version = cluster.version
        return found

    def _match_row(self, cluster: Cluster, pod: PodClass, row: int, found: Found) -> None:
        found.rows.pop(row, None)
        before = found.all.pop(row, None)
        if before is not None:
            found.counts.subtract(before.why_not)
            found.owned -= before.owned
        node = cluster.nodes[row]
        there = cluster.get(RESERVATIONS, row)
        if node is None or not there or not selected(pod, node):
            return
        new = self._row(cluster, pod, node, there.values())
        if new.usable:
            found.rows[row] = new.usable
        if new.owned:
            found.all[row] = new
            found.counts.update(new.why_not)
            found.owned += new.owned

    def _row(
        self, cluster: Cluster, pod: PodClass, node: Node, there: Iterable[Reservation]
    ) -> Row:
        wishes, asked = self.wishes_of(pod), in_normal_form(pod.requests)
        usable, matched, why_not = [], 0, []
        for each in sorted(there, key=lambda each: each.name):
            outcome = match(pod, wishes, each, node, bool(cluster.users_of(each.uid, each.node)))
            if outcome is Match.YES:
                matched += not wishes.ignored
                # Without an affinity it uses none that keeps nothing of what it asks for.
                if wishes.affinity is not None or any(n in each.allocatable for n in asked):
                    usable.append(each)
            elif outcome not in (Match.OWNERS, Match.USED):
                words = outcome.value
                if outcome is Match.TAINT and (taint := untolerated_by(wishes, each)):
                    words = f"{words} {{{taint.key}: {taint.value}}}"
                why_not.append(words)
        return Row(tuple(usable), matched, tuple(why_not))


def report(cluster: Cluster, found: Found, wishes: Wishes, why: Codes) -> tuple[str, ...]:
    """Say why reservations do not serve such a pod, and how many there are of each kind. ``why``:
    the reason against each row."""
    name = wishes.affinity.name if wishes.affinity is not None else ""
    rows, counts, owned = found.all, found.counts, found.owned
    named_on = _row_of(cluster, name) if name else None
    if named_on is not None:
        here = found.all.get(named_on, Row())
        rows, counts, owned = {named_on: here}, Counter(here.why_not), here.owned
    if not owned and wishes.affinity is None:
        return ()
    matched = sum(row.matched for row in rows.values())
    lines = [f"{matched} {_OF_RESERVATION}{_NAMED}"] if name and matched else []
    lines += [
        f"{number} {_OF_RESERVATION}{words}"
        for words, number in sorted(counts.items(), key=lambda each: (_place(each[0]), each))
        if number
    ]
    of_nodes: Counter[str] = Counter()
    for at, row in rows.items():
        words = REASONS[int(why[at])].text if row.matched and why[at] > FITS else ""
        if words and not words.startswith(_OF_RESERVATION):
            of_nodes[words] += row.matched
    lines += [
        f"{number} {_OF_RESERVATION}for node reason that {words}"
        for words, number in sorted(of_nodes.items())
    ]
    return (*lines, f"{owned} {_OF_RESERVATION}matched owner total")


_NAMED = "exactly matches the requested reservation name"
_ORDER = (Match.NAME, Match.AFFINITY, Match.UNSCHEDULABLE, Match.EXACT, Match.TAINT)


def _place(words: str) -> int:
    return next((i for i, each in enumerate(_ORDER) if words.startswith(each.value)), len(_ORDER))


def _row_of(cluster: Cluster, name: str) -> int | None:
    """The node of a reservation; None where none by this name is available."""
    for node, there in cluster.all(RESERVATIONS).items():
        if any(each.name == name for each in there.values()):
            return cluster.row.get(node)
    return None
