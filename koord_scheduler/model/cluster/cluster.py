"""The cluster as arrays, one row for each node.

All changes go through the methods of `Cluster`. While a trial runs each change is logged and undone
at its end, so whoever looks for room may place and evict as it likes: gangs, preemption,
``explain`` and ``simulate`` are trials.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from koord_scheduler.model.amounts import in_normal_form
from koord_scheduler.model.cluster.columns import PODS, Bools, Columns, Ints, Rows
from koord_scheduler.model.cluster.moves import Moves
from koord_scheduler.model.cluster.nodes import Node, Slot
from koord_scheduler.model.cluster.pods import Claim, PodClass

T = TypeVar("T")
Follower = Callable[[Claim, int], None]
_MOST_VECTORS = 65_536
_MOST_LATEST = 64
"""Changes that are kept one by one: whoever asks after each of them need not look at all rows."""


class _Held:
    """A reservation: what its reserve pod asked for, and what its users took of it. ``amounts`` is
    None and ``node`` empty while its reserve pod has no claim."""

    __slots__ = ("amounts", "node", "used", "users")

    def __init__(self) -> None:
        self.amounts: dict[str, int] | None = None
        self.node = ""
        self.used: dict[str, int] = {}
        self.users: set[str] = set()

    def left(self) -> dict[str, int]:
        amounts = self.amounts or {}
        return {name: max(n - self.used.get(name, 0), 0) for name, n in amounts.items()}


class _OnNode(Mapping[str, Claim]):
    """Claims of a node as they are now, by the pod's key. Made to be gone through."""

    __slots__ = ("_claims",)

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = claims

    def __getitem__(self, key: str) -> Claim:
        for claim in self._claims:
            if claim.pod.key == key:
                return claim
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (claim.pod.key for claim in self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def values(self) -> Sequence[Claim]:  # type: ignore[override]
        return self._claims

    def items(self) -> Iterator[tuple[str, Claim]]:  # type: ignore[override]
        return ((claim.pod.key, claim) for claim in self._claims)


class Cluster:
    """``allocatable`` and ``requested`` have a row for each node and a column for each resource
    (`Columns`); ``requested[:, PODS]`` counts pods. ``alive``: rows of nodes that exist.
    ``nodes[row]`` is None where ``alive`` is false. Arrays are read-only for all others, and may be
    replaced when nodes or resources come: take them from the cluster each time.
    """

    def __init__(self) -> None:
        self.columns = Columns()
        self.nodes: list[Node | None] = []
        self.row: dict[str, int] = {}
        self.allocatable: Ints = np.zeros((0, len(self.columns)), np.int64)
        self.requested: Ints = np.zeros((0, len(self.columns)), np.int64)
        self.alive: Bools = np.zeros(0, np.bool_)
        self.version = 0
        """Grows with every change of a row."""
        self.labels_version = 0
        """Changes with the set of nodes, their labels and taints."""
        self.now_s = 0.0
        """Unix time as of this cycle; who reads it touches the rows for which time matters."""
        self.claims: dict[str, Claim] = {}
        """Every pod that has a node, known or not, by the pod's key."""
        self.classes: dict[int, dict[int, int]] = {}
        """Number of a class -> row -> how many pods of it are there."""
        self.class_of: dict[int, PodClass] = {}
        """The classes of ``classes``."""
        self.with_terms: dict[int, PodClass] = {}
        """Those of them that have terms about other pods."""
        self.moves = Moves()
        """How ``classes`` changed of late."""
        self.namespaces: Mapping[str, Mapping[str, str]] = {}
        """Labels of namespaces, for terms that select them; another object when they change."""
        self._terms_came: dict[int, int] = {}
        """In the order of ``with_terms``: the how manyth each of them was."""
        self._terms_serial = 0
        self._by_node: dict[str, list[Claim]] = {}
        """In the order in which they came; a list takes a third of a dictionary."""
        self._slots: dict[str, dict[str, Any]] = {}
        self._held: dict[tuple[str, str], _Held] = {}
        """By uid and node: a pod elsewhere that says so uses nothing."""
        self._vectors: dict[int, Ints] = {}
        self._free: list[int] = []
        self._latest: list[int] = []
        self._touched: Ints = np.zeros(0, np.int64)
        self._undo: list[Callable[[], object]] | None = None
        self._followers: list[Follower] = []

    # What changed.

    def since(self, version: int) -> Rows:
        """Rows changed since, each once, in their order, dead ones too; all there ever were since
        -1."""
        many = self.version - version
        if many <= len(self._latest):
            return np.array(sorted(set(self._latest[len(self._latest) - many :])), np.intp)
        return (self._touched > max(version, 0)).nonzero()[0]

    def touch(self, row: int) -> None:
        self.version += 1
        self._touched[row] = self.version
        if len(self._latest) >= 2 * _MOST_LATEST:
            del self._latest[:_MOST_LATEST]
        self._latest.append(row)

    def rows(self) -> Rows:
        """All that are alive."""
        return np.flatnonzero(self.alive)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Everything that happens inside is undone at the end. Trials may stand in each other."""
        outer, self._undo = self._undo, []
        try:
            yield
        finally:
            undo, self._undo = self._undo, None
            for each in reversed(undo):
                each()
            self._undo = outer

    def follow(self, follower: Follower) -> None:
        """``follower`` gets every claim with 1 when it comes and -1 when it goes, in trials and
        when they are undone too, so that its sums are always those of ``claims``. It gets those
        that are there now at once."""
        self._followers.append(follower)
        for claim in self.claims.values():
            follower(claim, 1)

    # Nodes.

    def set_node(self, node: Node) -> None:
        """A new node, or a new version of one. Not in a trial."""
        self._widen(node)
        row = self.row.get(node.name)
        old = self.nodes[row] if row is not None else None
        if row is None:
            row = self._new_row()
            self.row[node.name] = row
        self.nodes[row] = node
        self.alive[row] = True
        self.allocatable[row] = self.columns.vector(node.allocatable)
        if (
            old is None
            or old.labels != node.labels
            or old.taints != node.taints
            or old.unschedulable != node.unschedulable
        ):
            self.labels_version += 1
        if old is None:
            self._count_again(row)
        self.touch(row)

    def remove_node(self, name: str) -> None:
        """Claims on it stay, and count again when it comes back. Not in a trial."""
        row = self.row.pop(name, None)
        if row is None:
            return
        for number, counts in tuple(self.classes.items()):
            many = counts.pop(row, 0)
            if many:
                self.moves.add(number, row, -many)
                if not counts:
                    self._forget(number)
        self.nodes[row] = None
        self.alive[row] = False
        self.allocatable[row] = self.requested[row] = 0
        self.labels_version += 1
        self._free.append(row)
        self.touch(row)

    def put(self, slot: Slot[T], name: str, value: T | None) -> None:
        """None takes the value away."""
        values = self._slots.setdefault(slot.name, {})
        old = values.get(name)
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
        row = self.row.get(name)
        if row is not None:
            self.touch(row)
        if self._undo is not None:
            self._undo.append(lambda: self.put(slot, name, old))

    def get(self, slot: Slot[T], row: int) -> T | None:
        node = self.nodes[row]
        if node is None:
            return None
        found: T | None = self._slots.get(slot.name, {}).get(node.name)
        return found

    def all(self, slot: Slot[T]) -> Mapping[str, T]:
        """By name of the node, known or not."""
        return self._slots.get(slot.name, {})

    # Pods.

    def add(self, claim: Claim) -> None:
        """The pod takes what it asks for; one that has a claim already changes it."""
        old = self.claims.get(claim.pod.key)
        if old is not None:
            self.remove(claim.pod.key)
        self.claims[claim.pod.key] = claim
        self._by_node.setdefault(claim.node, []).append(claim)
        self._count(claim, 1)
        if self._undo is not None:
            self._undo.append(lambda: self.remove(claim.pod.key))

    def remove(self, key: str) -> Claim | None:
        """The claim that was there."""
        claim = self.claims.pop(key, None)
        if claim is None:
            return None
        on_node = self._by_node[claim.node]
        del on_node[next(i for i, each in enumerate(on_node) if each is claim)]
        if not on_node:
            del self._by_node[claim.node]
        self._count(claim, -1)
        if self._undo is not None:
            self._undo.append(lambda: self.add(claim))
        return claim

    def claims_on(self, row: int) -> Mapping[str, Claim]:
        """By the pod's key, in the order in which they came."""
        node = self.nodes[row]
        return _OnNode(self._by_node.get(node.name, ()) if node is not None else ())

    def vector(self, pod: PodClass) -> Ints:
        """What such a pod asks for, in columns, with 1 for ``pods``."""
        found = self._vectors.get(pod.number)
        if found is None or len(found) != len(self.columns):
            if len(self._vectors) > _MOST_VECTORS:
                self._vectors.clear()
            found = self.columns.vector(pod.requests)
            found[PODS] = 1
            self._vectors[pod.number] = found
        return found

    def terms_since(self, serial: int) -> tuple[int, list[PodClass]]:
        """Classes of ``with_terms`` that came since, and the serial to ask with next; all of them
        since 0."""
        found = []
        for number in reversed(self._terms_came):
            if self._terms_came[number] <= serial:
                break
            found.append(self.with_terms[number])
        return self._terms_serial, found

    def left_of(self, reservation: str, node: str) -> Mapping[str, int]:
        """Return what the users of a reservation, by its uid, have not taken of it; empty where it
        is not on this node."""
        held = self._held.get((reservation, node))
        return held.left() if held is not None else {}

    def users_of(self, reservation: str, node: str) -> frozenset[str]:
        """Keys of the pods that use it on this node."""
        held = self._held.get((reservation, node))
        return frozenset(held.users) if held is not None else frozenset()

    @contextlib.contextmanager
    def unseen(self, numbers: Iterable[int]) -> Iterator[None]:
        """Pods of these classes are no neighbours inside; ``moves`` tell it to who keeps sums."""
        away = [
            (n, self.classes.pop(n), self.class_of.pop(n)) for n in numbers if n in self.classes
        ]
        self._tell_moves(away, -1)
        try:
            yield
        finally:
            for number, counts, cls in away:
                self.classes[number], self.class_of[number] = counts, cls
            self._tell_moves(away, 1)

    def _tell_moves(self, of: Iterable[tuple[int, Mapping[int, int], object]], sign: int) -> None:
        for number, counts, _ in of:
            for row, many in counts.items():
                self.moves.add(number, row, sign * many)

    def reserved_rows(self) -> Rows:
        """Rows with a reservation, each once."""
        nodes = {held.node for held in self._held.values()}
        return np.array(sorted(self.row[name] for name in nodes if name in self.row), np.intp)

    # How claims count.

    def _count(self, claim: Claim, sign: int) -> None:
        for follower in self._followers:
            follower(claim, sign)
        uid = claim.holds or claim.reservation
        if not uid:
            self._on_row(claim, sign)
            return
        held = self._held.setdefault((uid, claim.node), _Held())
        self._add_left(held, -1)
        if claim.holds:
            # A reserve pod stands for one pod until the first user is there.
            amounts = {**({"pods": 1} if claim.pod.holds else {}), **claim.pod.cls.requests}
            held.amounts, held.node = (amounts, claim.node) if sign > 0 else (None, "")
            self._as_holder(claim, sign)
        else:
            (held.users.add if sign > 0 else held.users.discard)(claim.pod.key)
            for resource, amount in (("pods", 1), *in_normal_form(claim.pod.cls.requests).items()):
                held.used[resource] = held.used.get(resource, 0) + sign * amount
            self._on_row(claim, sign)
        self._add_left(held, 1)
        if held.amounts is None and not held.users:
            del self._held[uid, claim.node]

    def _add_left(self, held: _Held, sign: int) -> None:
        row = self.row.get(held.node)
        if row is not None and held.amounts is not None:
            self.requested[row] += sign * self.columns.vector(held.left())
            self.touch(row)

    def _on_row(self, claim: Claim, sign: int) -> None:
        row = self.row.get(claim.node)
        if row is None:
            return
        self.requested[row] += sign * self.vector(claim.pod.cls)
        self._as_neighbour(claim.pod.cls, row, sign)

    def _as_holder(self, claim: Claim, sign: int) -> None:
        """Count a holder but for what is left of its reservation; a pod that is one is there."""
        row = self.row.get(claim.node)
        if row is None:
            return
        if not claim.pod.holds:
            self.requested[row, PODS] += sign
        self._as_neighbour(claim.pod.cls, row, sign)

    def _as_neighbour(self, cls: PodClass, row: int, sign: int) -> None:
        """Its labels, ports and terms count for other pods, whatever it takes of the node."""
        number = cls.number
        counts = self.classes.get(number)
        if counts is None:
            counts = self._meet(cls)
        self.moves.add(number, row, sign)
        many = counts.get(row, 0) + sign
        if many:
            counts[row] = many
        else:
            del counts[row]
            if not counts:
                self._forget(number)
        self.touch(row)

    def _meet(self, cls: PodClass) -> dict[int, int]:
        self.class_of[cls.number] = cls
        if (
            cls.affinity
            or cls.anti_affinity
            or cls.preferred_affinity
            or cls.preferred_anti_affinity
        ):
            self.with_terms[cls.number] = cls
            self._terms_serial += 1
            self._terms_came[cls.number] = self._terms_serial
        found = self.classes[cls.number] = {}
        return found

    def _forget(self, number: int) -> None:
        del self.classes[number], self.class_of[number]
        self.with_terms.pop(number, None)
        self._terms_came.pop(number, None)

    def _count_again(self, row: int) -> None:
        """Of a node that is new here: pods were there before it."""
        for claim in self.claims_on(row).values():
            if claim.holds:
                self._add_left(self._held[claim.holds, claim.node], 1)
                self._as_holder(claim, 1)
            else:
                self._on_row(claim, 1)

    # Room in the arrays.

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = len(self.nodes)
        self.nodes.append(None)
        if row >= len(self.alive):
            more = max(64, row)
            self.allocatable = np.pad(self.allocatable, ((0, more), (0, 0)))
            self.requested = np.pad(self.requested, ((0, more), (0, 0)))
            self.alive = np.pad(self.alive, (0, more))
            self._touched = np.pad(self._touched, (0, more))
        return row

    def _widen(self, node: Node) -> None:
        """Columns for what the node offers. Pods that asked for it before count in them now."""
        before = len(self.columns)
        for name in node.allocatable:
            self.columns.add(name)
        more = len(self.columns) - before
        if not more:
            return
        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, more)))
        self.requested = np.zeros_like(self.allocatable)
        self.classes, self.class_of, self.with_terms, self._terms_came = {}, {}, {}, {}
        self.moves.forget()
        for row in self.rows():
            self._count_again(int(row))
