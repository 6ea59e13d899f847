"""The network as a tree of domains, and how a job is spread over it
(docs/reference/central.md 8.1).

Arrays of one layer are in the order of its domains; the lowest layer is the rows of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec, TopologyLayer

NODE_LAYER = "NodeTopologyLayer"
CLUSTER_LAYER = "ClusterTopologyLayer"
MUST_GATHER, PREFER_GATHER = "MustGather", "PreferGather"
_MOST_LAYERS = 16
_MOST_MULTIPLE = 1 << 30
"""More pods than there are: such a domain takes none."""
Ints = NDArray[np.int64]


class Gather(NamedTuple):
    """``multiple``: pods are put into a domain in multiples of this, 0 without."""

    layer: str
    must: bool = False
    multiple: int = 0


class TopologyError(Exception):
    """The text says what is wrong with a topology or with what a gang asks of it."""


class _Strategy(msgspec.Struct, frozen=True, rename="camel"):
    layer: str = ""
    strategy: str = PREFER_GATHER
    pod_count_multiple: int = 0


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    gather_strategy: tuple[_Strategy, ...] = ()


class Layer(NamedTuple):
    """``parent``: of each domain, its index in the layer above."""

    name: str
    domains: tuple[str, ...]
    parent: NDArray[np.intp]


class Tree(NamedTuple):
    """From the cluster down to the nodes. ``rows``: row of the cluster of each domain of the last
    layer."""

    layers: tuple[Layer, ...]
    rows: NDArray[np.intp]

    def depth_of(self, layer: str) -> int:
        """Raises TopologyError."""
        for depth, each in enumerate(self.layers):
            if each.name == layer:
                return depth
        names = ", ".join(each.name for each in self.layers)
        raise TopologyError(f"no topology layer is called {layer!r}; there are: {names}")


class Plan(NamedTuple):
    """``counts``: (row, number of pods) in the order in which pods are assigned."""

    counts: tuple[tuple[int, int], ...]
    domain: str


class NoPlan(NamedTuple):
    """``text``: as the reference writes it, without the fit error of the pods; ``tail`` comes
    after that."""

    text: str
    tail: str = ""


def read_gather(text: str) -> tuple[Gather, ...]:
    """Of the annotation ``network-topology-spec``. Raises TopologyError."""
    try:
        found = msgspec.json.decode(text.encode(), type=_Spec)
    except UNREADABLE as error:
        raise TopologyError(f"network-topology-spec cannot be read: {error}") from None
    if len(found.gather_strategy) > _MOST_LAYERS:
        raise TopologyError(f"network-topology-spec: at most {_MOST_LAYERS} layers are read")
    return tuple(
        Gather(
            each.layer,
            each.strategy == MUST_GATHER,
            min(max(each.pod_count_multiple, 0), _MOST_MULTIPLE),
        )
        for each in found.gather_strategy
    )


def tree(
    spec: ClusterNetworkTopologySpec, nodes: Iterable[tuple[int, str, Mapping[str, str]]]
) -> Tree:
    """``nodes``: row, name and labels. A node that lacks the label of a layer is left out; without
    the label of the layer next to it, it counts for the layers above alone. Raises
    TopologyError."""
    chain = _chain(spec.network_topology_spec)
    found: list[tuple[tuple[str, ...], str, int]] = []
    for row, name, labels in nodes:
        path = tuple(_value(layer, labels) for layer in chain)
        if all(path[:-1]):
            found.append((path, name, row))
    found.sort()
    layers = [Layer(CLUSTER_LAYER, ("",), np.zeros(1, np.intp))]
    above: dict[tuple[str, ...], int] = {(): 0}
    for depth, each in enumerate(chain):
        paths = sorted({path[: depth + 1] for path, _, _ in found})
        parent = np.array([above[path[:depth]] for path in paths], np.intp)
        layers.append(Layer(each.topology_layer, tuple(path[-1] for path in paths), parent))
        above = {path: index for index, path in enumerate(paths)}
    last = np.array([above[path] for path, _, _ in found], np.intp)
    layers.append(Layer(NODE_LAYER, tuple(name for _, name, _ in found), last))
    return Tree(tuple(layers), np.array([row for _, _, row in found], np.intp))


def plan(
    tree: Tree,
    gather: Sequence[Gather],
    offers: Ints,
    want: int,
    existing: Ints | None = None,
    scores: Ints | None = None,
) -> Plan | NoPlan:
    """``offers``, ``existing`` and ``scores`` by row of the cluster: how many pods each node takes,
    how many pods of the same selector it has, and how good it is. Raises TopologyError."""
    multiples = [0] * len(tree.layers)
    lowest_must = 0
    known = {each.name for each in tree.layers}
    # What a gang prefers of a layer that is not there keeps it from nothing.
    gather = [each for each in gather if each.must or each.layer in known]
    for each in gather:
        depth = tree.depth_of(each.layer)
        multiples[depth] = each.multiple
        if each.must:
            lowest_must = max(lowest_must, depth)
    kinds = _Kinds.of(tree, multiples, offers, existing, scores)
    candidates, depth = kinds.candidates(lowest_must, want)
    for index in candidates:
        counts = kinds.spread(depth, index, want)
        if sum(number for _, number in counts) == want:
            layer = tree.layers[depth]
            rows = tuple((int(tree.rows[node]), number) for node, number in counts)
            return Plan(rows, f"{layer.name}/{layer.domains[index]}")
    return NoPlan(*kinds.refusal(lowest_must, want, gather))


class _Kinds(NamedTuple):
    """What is known of each domain, by depth."""

    tree: Tree
    multiples: Sequence[int]
    offers: list[Ints]
    existing: list[Ints]
    scores: list[Ints]

    @classmethod
    def of(
        cls,
        tree: Tree,
        multiples: Sequence[int],
        offers: Ints,
        existing: Ints | None,
        scores: Ints | None,
    ) -> _Kinds:
        nothing = np.zeros(len(tree.rows), np.int64)
        there = nothing if existing is None else existing[tree.rows]
        good = nothing if scores is None else scores[tree.rows]
        ones = np.ones(len(tree.rows), np.int64)
        offered = [_floor(offers[tree.rows], multiples[-1])]
        summed, numbers, counted = [good], [ones], [there]
        for depth in range(len(tree.layers) - 2, -1, -1):
            below = tree.layers[depth + 1].parent
            size = len(tree.layers[depth].domains)
            offered.append(_floor(_sums(below, offered[-1], size), multiples[depth]))
            counted.append(_sums(below, counted[-1], size))
            summed.append(_sums(below, summed[-1], size))
            numbers.append(_sums(below, numbers[-1], size))
        # A domain is as good as its nodes are on average.
        means = [a // np.maximum(n, 1) for a, n in zip(summed, numbers, strict=True)]
        return cls(tree, multiples, offered[::-1], counted[::-1], means[::-1])

    def candidates(self, depth: int, want: int) -> tuple[list[int], int]:
        """Of the lowest layer that has a domain with room for all, the best first."""
        layers = self.tree.layers
        fits = self._fitting(depth, np.arange(len(layers[depth].domains)), want)
        while len(fits) and depth + 1 < len(layers):
            below = np.flatnonzero(np.isin(layers[depth + 1].parent, fits))
            lower = self._fitting(depth + 1, below, want)
            if not len(lower):
                break
            fits, depth = lower, depth + 1
        domains = layers[depth].domains
        return sorted(fits.tolist(), key=lambda i: (*self._climb(depth, i), domains[i])), depth

    def spread(self, depth: int, index: int, want: int) -> list[tuple[int, int]]:
        """(node, number of pods) within one domain."""
        layers = self.tree.layers
        take = min(int(self.offers[depth][index]), want)
        if self.multiples[depth]:
            take -= take % self.multiples[depth]
        if take <= 0:
            return []
        if depth == len(layers) - 1:
            return [(index, take)]
        below = layers[depth + 1]
        children = np.flatnonzero(below.parent == index).tolist()
        children.sort(
            key=lambda i: (
                -self.existing[depth + 1][i],
                -self.offers[depth + 1][i],
                -self.scores[depth + 1][i],
                below.domains[i],
            )
        )
        found: list[tuple[int, int]] = []
        for child in children:
            if take <= 0:
                break
            part = self.spread(depth + 1, child, take)
            take -= sum(number for _, number in part)
            found += part
        return found

    def refusal(self, depth: int, want: int, gather: Sequence[Gather]) -> tuple[str, str]:
        layer = self.tree.layers[depth]
        told = "".join(
            f"{layer.name}/{name}: {offer};"
            for name, offer in zip(layer.domains[:64], self.offers[depth].tolist(), strict=False)
        )
        text = (
            "no candidate topology nodes can accommodate job, "
            f"desiredOfferSlot: {want}, topology topologyNode {told.rstrip(';')}"
        )
        multiples = ", ".join(sorted(f"{g.layer}={g.multiple}" for g in gather if g.multiple > 1))
        return text, f"; podCountMultiple constraints: {multiples}" if multiples else ""

    def _fitting(self, depth: int, indexes: NDArray[np.intp], want: int) -> NDArray[np.intp]:
        """Nodes of which the domain is not known are no domain."""
        names = self.tree.layers[depth].domains
        known = [bool(names[i]) or depth == 0 for i in indexes.tolist()]
        return indexes[(self.offers[depth][indexes] >= want) & np.array(known, np.bool_)]

    def _climb(self, depth: int, index: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        there, offered = [], []
        score = -int(self.scores[depth][index])
        while True:
            there.append(-int(self.existing[depth][index]))
            offered.append(int(self.offers[depth][index]))
            if depth == 0:
                return tuple(there), tuple(offered), score
            index = int(self.tree.layers[depth].parent[index])
            depth -= 1


def _chain(layers: Sequence[TopologyLayer]) -> tuple[TopologyLayer, ...]:
    """From the highest to the one next to nodes."""
    by_name = {each.topology_layer: each for each in layers}
    if len(by_name) < len(layers) or len(layers) > _MOST_LAYERS:
        raise TopologyError(
            f"networkTopologySpec: at most {_MOST_LAYERS} layers, each named once, are read"
        )
    lowest = by_name.pop(NODE_LAYER, None)
    by_name.pop(CLUSTER_LAYER, None)
    above = {each.parent_topology_layer for each in by_name.values()}
    ends = [lowest.parent_topology_layer] if lowest else [n for n in by_name if n not in above]
    chain: list[TopologyLayer] = []
    name = ends[0] if ends else ""
    while name in by_name:
        chain.append(by_name.pop(name))
        name = chain[-1].parent_topology_layer
    if by_name or len(ends) > 1 or name not in ("", CLUSTER_LAYER):
        raise TopologyError(
            "networkTopologySpec: layers must make one line, each with the next one above as "
            f"parentTopologyLayer; {', '.join(sorted(by_name)) or name} is not in it"
        )
    return tuple(reversed(chain))


def _value(layer: TopologyLayer, labels: Mapping[str, str]) -> str:
    return next((labels[key] for key in layer.label_key if labels.get(key)), "")


def _sums(parent: NDArray[np.intp], values: Ints, size: int) -> Ints:
    found = np.zeros(size, np.int64)
    np.add.at(found, parent, values)
    return found


def _floor(values: Ints, multiple: int) -> Ints:
    return values - values % multiple if multiple else values


def detail(tree: Tree) -> list[dict[str, Any]]:
    """``status.detailStatus`` of the ClusterNetworkTopology: one entry for each domain."""
    found: list[dict[str, Any]] = []
    layers = tree.layers
    nodes = [np.ones(len(tree.rows), np.int64)]
    for depth in range(len(layers) - 2, -1, -1):
        nodes.append(_sums(layers[depth + 1].parent, nodes[-1], len(layers[depth].domains)))
    nodes.reverse()
    for depth, layer in enumerate(layers[:-1]):
        below = layers[depth + 1]
        children: list[list[str]] = [[] for _ in layer.domains]
        for name, parent in zip(below.domains, below.parent.tolist(), strict=True):
            children[parent].append(name)
        for index, name in enumerate(layer.domains):
            entry: dict[str, Any] = {
                "topologyInfo": {"topologyLayer": layer.name, "topologyName": name},
                "childTopologyLayer": below.name,
                "childTopologyNames": children[index],
                "nodeNum": int(nodes[depth][index]),
            }
            if depth:
                above = layers[depth - 1]
                entry["parentTopologyInfo"] = {
                    "topologyLayer": above.name,
                    "topologyName": above.domains[layer.parent[index]],
                }
            found.append(entry)
    return found
