"""Two configurations on the same nodes: what would differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.overcommit.nodemetric import metric_spec
from koord_scheduler.overcommit.noderesource import plan
from koord_scheduler.overcommit.nodeslo import slo_spec
from koord_scheduler.overcommit.third_party import ORIGIN
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY


class Difference(msgspec.Struct, frozen=True):
    """``what``: a resource, or the path of a field of the NodeSLO's or NodeMetric's spec. None =
    not there."""

    node: str
    what: str
    old: Any
    new: Any


def compare(
    inputs: Iterable[Inputs], old: Configuration, new: Configuration, now_s: float
) -> list[Difference]:
    """By node, resources first."""
    found: list[Difference] = []
    for each in inputs:
        before, after = _state(each, old, now_s), _state(each, new, now_s)
        found += (
            Difference(each.node.name, what, before.get(what), after.get(what))
            for what in dict.fromkeys((*before, *after))
            if before.get(what) != after.get(what)
        )
    return found


def _state(inputs: Inputs, configuration: Configuration, now_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    wanted = plan(inputs, configuration, now_s)
    if wanted is not None:
        found.update((name, wanted.resources[name]) for name in sorted(wanted.resources))
        # What third parties may take is a text of the batch resources, which are shown.
        found.update((k, v) for k, v in wanted.annotations.items() if k != ORIGIN)
        found.update(wanted.labels)
        for zone in sorted(wanted.zones):
            amounts = wanted.zones[zone]
            found[f"zone {zone} {BATCH_CPU}"] = amounts.cpu_milli
            found[f"zone {zone} {BATCH_MEMORY}"] = amounts.memory_bytes
    spec, _ = slo_spec(configuration, inputs.node, None)
    found.update(_leaves(spec or {}, "NodeSLO"))
    found.update(_leaves(metric_spec(configuration, inputs.node, None) or {}, "NodeMetric"))
    return found


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping) and tree:
        for key in sorted(tree):
            yield from _leaves(tree[key], f"{path}.{key}")
    else:
        yield path, tree


def totals(differences: Iterable[Difference]) -> dict[str, tuple[int, int]]:
    """Of each resource with a number: the sum over the nodes that differ, before and after."""
    found: dict[str, tuple[int, int]] = {}
    for each in differences:
        if "/" in each.what and not each.what.startswith(("zone ", "NodeSLO", "NodeMetric")):
            numbers = [each.old, each.new]
            if all(n is None or (isinstance(n, int) and not isinstance(n, bool)) for n in numbers):
                old, new = found.get(each.what, (0, 0))
                found[each.what] = (old + (each.old or 0), new + (each.new or 0))
    return found
