"""Which nodes are alike for an allocator, and what came of each class of pods there.

Each distinct state of a node has a number, so that a class of pods is tried once for all nodes that
are alike, and again only where something changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import FITS, Codes, reason
from koord_scheduler.place.grants import Loan
from koord_scheduler.place.reservation.reservation import RESERVE_POD

Ask = TypeVar("Ask")
State = TypeVar("State")
Loans = Callable[[Cluster, PodClass, int], Iterable[Loan]]
"""Loans of the reservations on a row to such a pod, or of running pods to a reserve pod."""
_MOST_STATES = 65_536


class RequestError(Exception):
    """A pod asks for what no node can give; the text says what."""


class States(Generic[State]):
    """``all[number]`` is the state of a number. ``epoch`` changes when the numbers do. ``look``:
    all that decides on a row, its shape first, or None; ``make``: the state of that."""

    def __init__(
        self,
        look: Callable[[Cluster, int], tuple[Any, ...] | None],
        make: Callable[[Any], State],
    ) -> None:
        self.epoch = 0
        self._look, self._make = look, make
        self._of: Cluster | None = None
        self._start()

    def _start(self) -> None:
        self.all: list[State] = []
        self._numbers: dict[tuple[object, ...] | None, int] = {}
        self._of_row: Ints = np.zeros(0, np.int64)
        self._version = -1

    def numbers(self, cluster: Cluster) -> Ints:
        """The number of each row, now."""
        if self._of is not cluster or len(self.all) > _MOST_STATES:
            self._of = cluster
            self.epoch += 1
            self._start()
        if len(self._of_row) < len(cluster.nodes):
            self._of_row = np.pad(self._of_row, (0, len(cluster.alive) - len(self._of_row)))
        version = cluster.version
        if version != self._version:
            for row in cluster.since(self._version).tolist():
                self._of_row[row] = self._number(self._look(cluster, row))
            self._version = version
        return self._of_row

    def _number(self, site: tuple[Any, ...] | None) -> int:
        # Shapes are shared objects, and `all` keeps them: their identity stands for their content.
        key = (id(site[0]), *site[1:]) if site is not None else None
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(self._make(site))
        return found


class Tried(Generic[Ask]):
    """Of one class: what it asks for, and the verdict by number. ``ask`` is None where that is
    nothing, and where ``code`` refuses it everywhere."""

    __slots__ = ("ask", "code", "epoch", "known", "score", "why")

    def __init__(self, ask: Ask | None, code: int) -> None:
        self.ask, self.code = ask, code
        self.forget(0)

    def forget(self, epoch: int) -> None:
        self.epoch = epoch
        self.known: Bools = np.zeros(0, np.bool_)
        self.why: Codes = np.zeros(0, np.int16)
        self.score: Ints = np.zeros(0, np.int64)

    def grow(self, size: int) -> None:
        more = size - len(self.known)
        if more > 0:
            more += size
            self.known = np.pad(self.known, (0, more))
            self.why = np.pad(self.why, (0, more))
            self.score = np.pad(self.score, (0, more))


class Tries(Generic[Ask, State]):
    """Tries each class of pods once on each state. ``read`` says what a class asks for, or raises
    RequestError; ``attempt`` gives the code and the score."""

    loans: Loans | None = None

    def __init__(
        self,
        plugin: str,
        states: States[State],
        read: Callable[[PodClass], Ask | None],
        attempt: Callable[[Ask, State], tuple[int, int]],
    ) -> None:
        self.states = states
        self._plugin, self._read, self._attempt = plugin, read, attempt
        self.forget()

    def forget(self) -> None:
        """Other outcomes than before are possible."""
        self._tried: weakref.WeakKeyDictionary[PodClass, Tried[Ask]] = weakref.WeakKeyDictionary()

    def of(self, pod: PodClass) -> Tried[Ask]:
        found = self._tried.get(pod)
        if found is None:
            try:
                found = Tried(self._read(pod), FITS)
            except RequestError as error:
                found = Tried(None, reason(self._plugin, str(error), unresolvable=True))
            self._tried[pod] = found
        return found

    def judge(self, tried: Tried[Ask], numbers: Ints) -> tuple[Codes, Ints]:
        """Codes and scores of these states for a class that asks for something."""
        assert tried.ask is not None
        states = self.states
        if tried.epoch != states.epoch:
            tried.forget(states.epoch)
        tried.grow(len(states.all))
        known = tried.known[numbers]
        if not known.all():
            for number in np.unique(numbers[~known]).tolist():
                code, score = self._attempt(tried.ask, states.all[number])
                tried.why[number], tried.score[number] = code, score
                tried.known[number] = True
        return tried.why[numbers], tried.score[numbers]

    def let_in(
        self,
        cluster: Cluster,
        pod: PodClass,
        rows: Rows,
        why: Codes,
        fits: Callable[[int, Loan], bool],
    ) -> list[int]:
        """Places in ``rows`` that refuse the pod, where it fits with what others lend it. ``fits``:
        of a row and a loan."""
        if self.loans is None or not why.any():
            return []
        refused = (why != FITS) & self._lending(cluster, pod, rows)
        return [
            i
            for i in np.flatnonzero(refused).tolist()
            if any(fits(int(rows[i]), loan) for loan in self.loans(cluster, pod, int(rows[i])))
        ]

    def _lending(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Bools:
        """Mark rows where somebody may lend to such a pod: running pods do to reserve pods."""
        if RESERVE_POD in pod.annotations:
            return np.ones(len(rows), np.bool_)
        return np.isin(rows, cluster.reserved_rows())

    def offers(
        self,
        cluster: Cluster,
        pod: PodClass,
        rows: Rows,
        most: int,
        count: Callable[[Ask, State], int],
    ) -> Ints:
        """How many such pods each row lets in, never fewer than do; ``count``: a state."""
        tried = self.of(pod)
        if tried.ask is None:
            return np.full(len(rows), most if tried.code == FITS else 0, np.int64)
        numbers = self.states.numbers(cluster)[rows]
        distinct, where = np.unique(numbers, return_inverse=True)
        found = [count(tried.ask, self.states.all[n]) for n in distinct.tolist()]
        counts: Ints = np.array(found, np.int64)[where]
        if self.loans is not None:
            for i in np.flatnonzero(self._lending(cluster, pod, rows)).tolist():
                if any(True for _ in self.loans(cluster, pod, int(rows[i]))):
                    counts[i] = most
        return counts
