"""How GPUs are chosen: by template, partition, topology, or in general
(docs/reference/central.md 6.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koord_scheduler.model.cluster.verdict import reason
from koord_scheduler.place.device.free import NAME, Card
from koord_scheduler.place.device.request import DeviceHint, PartitionSpec, Wanted
from koord_scheduler.place.device.select import Scorer
from koord_scheduler.place.device.types import Amounts, Given, Partition, Shape

NO_TABLE = reason(NAME, "node(s) missing GPU Partition Table", unresolvable=True)
NO_NUMBER = reason(NAME, "node(s) Unsupported number of GPU requests", unresolvable=True)
NO_PARTITION = reason(NAME, "Insufficient Partitioned GPU Devices")
NO_TREE = reason(NAME, "node(s) missing GPU Device Topology Tree", unresolvable=True)
NO_SHARED = reason(NAME, "node(s) Unsupported Multi-Shared GPU", unresolvable=True)
NO_SCOPE = reason(NAME, "Insufficient Topology Scoped GPU Devices")
NO_GPU = reason(NAME, "Insufficient GPU Devices")

_WEIGHTS = {8: 10_000, 4: 100, 2: 1}
_HOPPER = frozenset(("H100", "H800", "H20"))
_OCTETS = tuple(
    (size, tuple(Partition(tuple(range(n, n + size))) for n in range(0, 8, size)))
    for size in (1, 2, 4, 8)
)
"""Partitions of a machine with eight GPUs behind NVSwitches."""
_NUMA, _PCIE, _DEVICE = 2, 3, 4

Partitions = Sequence[tuple[int, Sequence[Partition]]]


def partitions_of(shape: Shape, vendor: str, model: str) -> Partitions | None:
    """The node's own table, or one that is known for its model."""
    if shape.partitions is not None:
        return shape.partitions
    return _OCTETS if vendor in ("", "nvidia") and model in _HOPPER else None


def by_partition(
    cards: Sequence[Card],
    wanted: Wanted,
    table: Partitions | None,
    spec: PartitionSpec | None,
    among: frozenset[int] = frozenset(),
) -> list[Given] | int:
    """GPUs of one partition, ``among`` which are these minors, or the code of the reason why none
    serves.

    Partitions of the highest score come first. Of several, the one that leaves the most whole
    partitions of eight, four and two.
    """
    if table is None:
        return NO_TABLE
    sizes = dict(table)
    if not sizes.get(wanted.instances):
        return NO_NUMBER
    used = _mask(card.device.minor for card in cards if card.taken)
    alive = _mask(card.device.minor for card in cards if card.total)
    bandwidth = spec.ring_bus_bandwidth if spec is not None else None
    usable = [
        each
        for each in sizes[wanted.instances]
        if among <= frozenset(each.minors)
        and not each.mask & used
        and each.mask & alive == each.mask
        and (
            bandwidth is None or (each.bandwidth is not None and each.bandwidth >= bandwidth.value)
        )
    ]
    top = max(each.score for each in sizes[wanted.instances])
    if spec is not None and spec.allocate_policy == "Restricted":
        usable = [each for each in usable if each.score == top]
    if not usable:
        return NO_PARTITION
    best = [each for each in usable if each.score == usable[0].score]
    chosen = max(best, key=lambda each: _left(used | each.mask, sizes, wanted.instances))
    return [Given(minor, wanted.each) for minor in chosen.minors]


def _left(used: int, sizes: Mapping[int, Sequence[Partition]], count: int) -> int:
    points = 0
    for size, weight in _WEIGHTS.items():
        partitions = sizes.get(size) if size >= count else None
        if partitions:
            top = partitions[0].score
            points += weight * sum(
                each.score for each in partitions if each.score == top and not each.mask & used
            )
    return points


class _Found(NamedTuple):
    """Compared in this order; ``minors`` of an earlier scope stay where all else is equal."""

    depth: int
    not_empty: int
    score: int
    minors: tuple[int, ...]


class _Scope(NamedTuple):
    level: int
    cards: tuple[Card, ...]
    inside: tuple[_Scope, ...] = ()


def by_topology(
    cards: Sequence[Card], wanted: Wanted, hint: DeviceHint, scorer: Scorer
) -> list[Given] | int | None:
    """GPUs that are near each other, in scopes that are in use already. None: the general way is to
    be tried, because nothing is known of where they are and no scope is required."""
    required = hint.level
    if not cards or not all(card.device.placed for card in cards):
        return NO_TREE if required else None
    if wanted.shared and wanted.instances > 1:
        return NO_SHARED if required else None
    if required == _DEVICE:
        # A GPU is a scope of its own: one of them always keeps to it, several never do.
        if wanted.instances > 1:
            return NO_SCOPE
        required = _PCIE
    found = _search(_tree(cards), wanted, required, scorer, 0, 0)
    if found is None:
        return NO_SCOPE if required else NO_GPU
    return [Given(minor, wanted.each) for minor in found.minors]


def _tree(cards: Sequence[Card]) -> _Scope:
    numa: dict[int, dict[str, list[Card]]] = {}
    for card in cards:
        numa.setdefault(card.device.numa, {}).setdefault(card.device.pcie, []).append(card)
    nodes = []
    for _, pcies in sorted(numa.items()):
        inside = tuple(_Scope(_PCIE, tuple(each)) for _, each in sorted(pcies.items()))
        together = sorted(
            (card for scope in inside for card in scope.cards), key=lambda c: c.device.minor
        )
        nodes.append(_Scope(_NUMA, tuple(together), inside))
    return _Scope(1, tuple(cards), tuple(nodes))


def _search(
    scope: _Scope, wanted: Wanted, required: int, scorer: Scorer, depth: int, not_empty: int
) -> _Found | None:
    if len(scope.cards) < wanted.instances:
        return None
    depth += 1
    not_empty += any(card.taken for card in scope.cards)
    best: _Found | None = None
    for child in scope.inside:
        found = _search(child, wanted, required, scorer, depth, not_empty)
        if found is not None and (best is None or found[:3] > best[:3]):
            best = found
    if best is not None or required > scope.level:
        return best
    fitting = [card for card in scope.cards if card.total and card.holds(wanted.each)]
    if wanted.shared:
        if not fitting:
            return None
        chosen = max(fitting, key=lambda card: (scorer(wanted.each, card), -card.device.minor))
        return _Found(depth, not_empty, scorer(wanted.each, chosen), (chosen.device.minor,))
    if len(fitting) < wanted.instances:
        return None
    return _Found(depth, not_empty, 0, tuple(c.device.minor for c in fitting[: wanted.instances]))


def _mask(minors: Iterable[int]) -> int:
    mask = 0
    for minor in minors:
        mask |= 1 << minor
    return mask


def template_of(
    each: Amounts, templates: Mapping[str, Mapping[str, Amounts]], vendor: str, model: str
) -> tuple[str, ...]:
    """Names of the templates of this model that give exactly what one card is asked for."""
    found = templates.get(f"{vendor}-{model}", {})
    asked = {name: amount for name, amount in each.items() if amount}
    return tuple(sorted(name for name, gives in found.items() if dict(gives) == asked))
