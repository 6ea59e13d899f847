"""On which NUMA nodes a pod goes (docs/reference/central.md 5.4).

The reference tries every combination of one hint for each resource. The best one has the same set
of NUMA nodes for all resources wherever one exists, so only these sets are looked at here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from koord_scheduler.place.numa.topology import bits, mask_of
from koord_scheduler.place.numa.types import RESTRICTED, SINGLE_NUMA_NODE, Amounts

_MOST_NODES = 8
"""Of more NUMA nodes single ones, pairs and all of them are looked at."""
ALL = 0
"""The pod may use all NUMA nodes."""
MISSING = "node(s) missing NUMA resources"


class Hint(Protocol):
    """A set of NUMA nodes that serves; ``preferred``: no smaller one does."""

    @property
    def affinity(self) -> int: ...
    @property
    def preferred(self) -> bool: ...
    @property
    def score(self) -> int: ...


Given = Mapping[str, Sequence[Hint]]
"""Hints of other plugins, by resource: empty where nothing serves, no entry for no care."""


class Occupied(NamedTuple):
    """NUMA nodes in these states (`free.Used`)."""

    single: int = 0
    shared: int = 0

    def forbid(self, mask: int) -> bool:
        return bool(mask & (self.single if mask.bit_count() > 1 else self.shared))


NOBODY = Occupied()


def affinity(
    left: Mapping[int, Amounts],
    need: Amounts,
    policy: str,
    *,
    score: Callable[[int], int],
    given: Given | None = None,
    occupied: Occupied = NOBODY,
) -> int | str:
    """The set of NUMA nodes, ALL, or why there is none.

    ``left``: by NUMA node, what it has of the resources that count. ``score``: of a set, the more
    the better. ``occupied``: states that forbid sets to this pod."""
    if not left:
        return MISSING
    nodes = sorted(left)
    whole = mask_of(nodes)
    names = sorted(name for name in need if any(name in there for there in left.values()))
    own = _own(left, need, nodes, names, smallest=not given and occupied == NOBODY)
    strict = policy in (RESTRICTED, SINGLE_NUMA_NODE)
    if strict:
        for name, masks in own.items():
            if not masks:
                return f"Unsatisfied NUMA {_short(left, need, names) or name}"
    found: list[dict[int, tuple[bool, int]]] = []
    for masks in own.values():
        smallest = min((mask.bit_count() for mask in masks), default=0)
        every = policy == RESTRICTED
        found.append({m: (every or m.bit_count() == smallest, 0) for m in masks})
    for name, hints in sorted((given or {}).items()):
        if strict and not hints:
            return f"Unsatisfied NUMA {name}"
        found.append({each.affinity: (each.preferred, each.score) for each in hints})
    if not found:
        return ALL
    if policy == SINGLE_NUMA_NODE:
        found = [
            {mask: hint for mask, hint in each.items() if hint[0] and mask.bit_count() == 1}
            for each in found
        ]
    best = _best(found, score, len(names), occupied)
    if best is None or (strict and not best[0]):
        if not strict:
            return ALL
        forbidden = best is not None and occupied.forbid(best[1])
        cause = "NUMA nodes of others" if forbidden else ", ".join((*names, *(given or {})))
        return f"Unaligned NUMA Hint cause {cause}"
    return ALL if best[1] == whole else best[1]


def _best(
    found: list[dict[int, tuple[bool, int]]],
    score: Callable[[int], int],
    names: int,
    occupied: Occupied,
) -> tuple[bool, int] | None:
    """The set that serves all: preferred ones first, then smaller ones, then by score, then by
    number."""
    common = set(found[0]).intersection(*found[1:])
    ranked = [
        (not (all(each[m][0] for each in found) and not occupied.forbid(m)), m.bit_count(), m)
        for m in common
    ]
    if not ranked:
        return None
    first = min(ranked)
    ties = sorted(
        mask for not_preferred, size, mask in ranked if (not_preferred, size) == first[:2]
    )
    if len(ties) > 1:
        ties.sort(key=lambda m: -(names * score(m) + sum(each[m][1] for each in found)))
    return not first[0], ties[0]


def _own(
    left: Mapping[int, Amounts],
    need: Amounts,
    nodes: list[int],
    names: list[str],
    *,
    smallest: bool,
) -> dict[str, list[int]]:
    """By resource, the sets on which all of the pod finds room, without those that have a node
    where nothing of the resource is left. ``smallest``: none larger than the smallest that serves
    all resources, as nobody else has a say."""
    empty = {
        name: mask_of(node for node in nodes if left[node].get(name, 0) <= 0) for name in names
    }
    found: dict[str, list[int]] = {name: [] for name in names}
    enough = len(nodes)
    for mask in subsets(tuple(nodes)):
        members = bits(mask)
        if len(members) > enough:
            break
        if all(sum(left[n].get(name, 0) for n in members) >= need[name] for name in names):
            for name in names:
                if not mask & empty[name]:
                    found[name].append(mask)
            if smallest and not any(mask & each for each in empty.values()):
                enough = len(members)
    return found


@functools.lru_cache(maxsize=64)
def subsets(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """By size, then by number."""
    if len(nodes) <= _MOST_NODES:
        masks = [
            mask_of(node for i, node in enumerate(nodes) if subset >> i & 1)
            for subset in range(1, 1 << len(nodes))
        ]
    else:
        masks = [1 << node for node in nodes]
        masks += [1 << a | 1 << b for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
        masks.append(mask_of(nodes))
    return tuple(sorted(masks, key=lambda mask: (mask.bit_count(), mask)))


def _short(left: Mapping[int, Amounts], need: Amounts, names: list[str]) -> str:
    """The first resource of which even all NUMA nodes together have too little."""
    for name in names:
        if sum(there.get(name, 0) for there in left.values()) < need[name]:
            return name
    return ""


def split(
    left: Mapping[int, Amounts], need: Amounts, mask: int, units: Mapping[str, int]
) -> dict[int, dict[str, int]] | str:
    """Shares of NUMA nodes
    (docs/reference/central.md 5.5), or the resource of which there is too little.
    ``units``: an amount is split into multiples of this; resources that no NUMA node has do not
    count."""
    nodes = [node for node in sorted(left) if mask == ALL or mask >> node & 1]
    found: dict[int, dict[str, int]] = {}
    for name in sorted(need):
        if not any(name in there for there in left.values()):
            continue
        rest = need[name]
        unit = units.get(name, 1)
        there = sorted(nodes, key=lambda node: (left[node].get(name, 0), node))
        for i, node in enumerate(there):
            many = len(there) - i
            share = rest if many == 1 else rest // unit // many * unit
            share = min(share, left[node].get(name, 0))
            if share > 0:
                found.setdefault(node, {})[name] = share
                rest -= share
        if rest > 0:
            return name
    return dict(sorted(found.items()))
