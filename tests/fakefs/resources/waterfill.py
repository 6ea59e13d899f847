"""Who gets how much CPU: hierarchical weighted fairness under CPU masks and group limits.

Exact for fluid tasks: water flows into the tree of groups, at each group split among the children
that still want more in proportion to their weights, until a leaf has what it wants, a group is at
its limit, or all CPUs a set of leaves may run on are full. Then these are frozen and the flow
goes on into the rest.

Each group keeps a level: the inflow per weight of each child that is not frozen. Children leave
and never join, so a child has received its weight times that level, and the level at which the
next thing happens inside it stays the same until something does. A heap per group orders these
levels, and an event costs the depth of the tree, not its width.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

EPSILON = 1e-9
MAX_MASK_SETS = 4096

Mask = int
"""CPUs as a bitmap."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A group: index of its parent (the first branch is the root and has -1), weight, limit in
    cores."""

    parent: int
    weight: float
    limit: float = inf


@dataclass(frozen=True, slots=True)
class Leaf:
    """Threads that share a group and a mask: index of the branch, weight, wanted cores."""

    branch: int
    weight: float
    want: float
    mask: Mask


@lru_cache(maxsize=256)
def mask_sets(masks: tuple[Mask, ...]) -> tuple[Mask, ...]:
    """All unions of overlapping masks: leaves inside such a union share its CPUs.

    Unions of disjoint masks follow from their parts. The number is bounded; past the bound only
    the union of all is added, so capacity as a whole is never exceeded.
    """
    found = dict.fromkeys(masks)
    fresh = list(found)
    while fresh and len(found) < MAX_MASK_SETS:
        grown = {a | b for a in fresh for b in masks if a & b} - found.keys()
        fresh = sorted(grown)
        found.update(dict.fromkeys(fresh))
    everything = 0
    for mask in masks:
        everything |= mask
    found[everything] = None
    return tuple(found)


def allocate(branches: Sequence[Branch], leaves: Sequence[Leaf]) -> list[float]:
    """Cores for each leaf. Branches come parents first."""
    if _all_fits(branches, leaves):
        return [leaf.want for leaf in leaves]
    return _Filling(branches, leaves).run()


def _all_fits(branches: Sequence[Branch], leaves: Sequence[Leaf]) -> bool:
    wanted = [0.0] * len(branches)
    by_mask: dict[Mask, float] = {}
    for leaf in leaves:
        wanted[leaf.branch] += leaf.want
        by_mask[leaf.mask] = by_mask.get(leaf.mask, 0.0) + leaf.want
    for index in range(len(branches) - 1, -1, -1):
        if wanted[index] > branches[index].limit:
            return False
        if branches[index].parent >= 0:
            wanted[branches[index].parent] += wanted[index]
    return all(
        sum(want for mask, want in by_mask.items() if mask | cpus == cpus) <= cpus.bit_count()
        for cpus in mask_sets(tuple(sorted(by_mask)))
    )


class _Node:
    """A branch or a leaf while water flows.

    ``inflow`` is right for the parent's level ``seen``. Of a branch, ``level`` is the inflow per
    weight of its children, ``weights`` and ``active`` are of the children not frozen, ``shares``
    is how much of their weight each mask has, ``events`` orders the children by the level at
    which something happens to them. ``fraction`` is how the inflow divides over the masks.
    """

    __slots__ = (
        "active", "due", "events", "fraction", "frozen", "inflow", "level", "limit", "number",
        "parent", "seen", "shares", "weight", "weights",
    )  # fmt: skip

    def __init__(
        self, number: int, parent: _Node | None, weight: float, limit: float, masks: int
    ) -> None:
        self.number = number
        self.parent = parent
        self.weight = weight
        self.limit = limit
        self.inflow = self.level = self.seen = self.weights = self.due = 0.0
        self.active = 0
        self.frozen = False
        self.fraction = [0.0] * masks
        self.shares = [0.0] * masks
        self.events: list[tuple[float, int, _Node]] = []

    def catch_up(self) -> None:
        """Receive what has flowed since the parent's level was ``seen``."""
        assert self.parent is not None
        gained = self.weight * (self.parent.level - self.seen)
        self.seen = self.parent.level
        self.inflow += gained
        if self.active:
            self.level += gained / self.weights

    def head(self) -> _Node | None:
        """The child to which something happens first."""
        while self.events:
            due, _, child = self.events[0]
            if not child.frozen and child.due == due:
                return child
            heapq.heappop(self.events)
        return None

    def room(self) -> float:
        """Inflow until something happens here: the own limit, or a child's event."""
        child = self.head()
        inside = inf if child is None else (child.due - self.level) * self.weights
        return max(0.0, min(self.limit - self.inflow, inside))

    def divide(self) -> None:
        self.fraction = [share / self.weights for share in self.shares]

    def join(self) -> None:
        """Take part in the parent's flow; everything below has joined."""
        parent = self.parent
        if parent is not None:
            parent.active += 1
            parent.weights += self.weight
            self._add_shares(parent, self.fraction)
            self.queue()

    def leave(self) -> None:
        """Take no further part; what is below keeps what it has."""
        self.frozen = True
        node = self
        while (parent := node.parent) is not None:
            if node.frozen:
                parent.active -= 1
                parent.weights -= node.weight
                node._add_shares(parent, [-part for part in node.fraction])
                parent.frozen = not parent.active
            else:
                before = node.fraction
                node.divide()
                change = [new - old for new, old in zip(node.fraction, before, strict=True)]
                node._add_shares(parent, change)
                node.queue()
            node = parent

    def queue(self) -> None:
        """Tell the parent at which of its levels something happens here."""
        assert self.parent is not None
        self.due = self.seen + self.room() / self.weight
        heapq.heappush(self.parent.events, (self.due, self.number, self))

    def _add_shares(self, parent: _Node, fraction: list[float]) -> None:
        for mask, part in enumerate(fraction):
            parent.shares[mask] += self.weight * part


class _Filling:
    """One run over one tree."""

    def __init__(self, branches: Sequence[Branch], leaves: Sequence[Leaf]) -> None:
        masks = sorted({leaf.mask for leaf in leaves})
        self.branches: list[_Node] = []
        for number, branch in enumerate(branches):
            parent = self.branches[branch.parent] if branch.parent >= 0 else None
            self.branches.append(_Node(number, parent, branch.weight, branch.limit, len(masks)))
        self.leaves: list[_Node] = []
        self.by_mask: list[list[_Node]] = [[] for _ in masks]
        for number, leaf in enumerate(leaves, start=len(branches)):
            node = _Node(number, self.branches[leaf.branch], leaf.weight, leaf.want, len(masks))
            kind = masks.index(leaf.mask)
            node.fraction[kind] = 1.0
            self.leaves.append(node)
            self.by_mask[kind].append(node)
        sets = mask_sets(tuple(masks))
        self.room = {cpus: float(cpus.bit_count()) for cpus in sets}
        self.inside = {
            cpus: [kind for kind, mask in enumerate(masks) if mask | cpus == cpus] for cpus in sets
        }
        self._join_all()

    def _join_all(self) -> None:
        for node in self.leaves:
            if node.limit > EPSILON:
                node.join()
            else:
                node.frozen = True
        for node in reversed(self.branches):
            if node.active and node.limit > EPSILON:
                node.divide()
                node.join()
            else:
                node.frozen = True

    def run(self) -> list[float]:
        root = self.branches[0]
        while root.active and not root.frozen:
            self._flow(root)
        for node in (*self.branches[1:], *self.leaves):
            if not node.frozen:
                node.catch_up()
        return [min(node.inflow, node.limit) for node in self.leaves]

    def _flow(self, root: _Node) -> None:
        """Let water in until the next event, and handle it."""
        amount, tight = root.room(), None
        rates = {
            cpus: sum(root.shares[kind] for kind in kinds) / root.weights
            for cpus, kinds in self.inside.items()
        }
        for cpus, rate in rates.items():
            if rate > EPSILON and self.room[cpus] < amount * rate:
                amount, tight = max(0.0, self.room[cpus] / rate), cpus
        root.inflow += amount
        root.level += amount / root.weights
        for cpus, rate in rates.items():
            self.room[cpus] -= rate * amount
        if tight is not None:
            self._fill_up(tight)
        elif root.limit - root.inflow <= EPSILON:
            root.frozen = True
        else:
            self._handle(root)

    def _fill_up(self, cpus: Mask) -> None:
        """All CPUs of the set are taken: leaves that can run nowhere else stop."""
        del self.room[cpus]
        for kind in self.inside.pop(cpus):
            for leaf in self.by_mask[kind]:
                chain = []
                node: _Node | None = leaf
                while node is not None and node.parent is not None:
                    chain.append(node)
                    node = node.parent
                if not any(node.frozen for node in chain):
                    for node in reversed(chain):
                        node.catch_up()
                    leaf.leave()

    def _handle(self, node: _Node) -> None:
        """Something is due inside ``node``: go down to the one it happens to."""
        child = node.head()
        if child is None:
            return
        child.catch_up()
        if child.limit - child.inflow <= EPSILON:
            child.leave()
        else:
            self._handle(child)
            if not child.frozen:
                child.queue()
