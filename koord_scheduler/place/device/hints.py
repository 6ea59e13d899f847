"""Which NUMA nodes a pod's devices can come from (docs/reference/central.md 6.8, 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from koord_scheduler.place.device.allocate import Chosen, Policy, Site, allocate, types_now
from koord_scheduler.place.device.free import Scope
from koord_scheduler.place.device.request import Request
from koord_scheduler.place.device.types import GPU

_SAME_AS_BEST = 500
"""More than any score of CPUs, so that devices decide."""
_MOST_NODES = 8
"""More NUMA nodes have too many subsets; no machine with devices has more."""


class DeviceHint(NamedTuple):
    """``affinity``: bits of NUMA nodes. ``preferred``: no smaller set serves."""

    affinity: int
    preferred: bool
    score: int


Hints = Mapping[str, Sequence[DeviceHint]]
"""By type of device. No entry: the type does not care; an empty one: no set of nodes serves."""


def device_hints(request: Request, site: Site, policy: Policy) -> Hints:
    """Every set of NUMA nodes from which all devices of the pod can come, the same for all types,
    by size and then by number."""
    types = types_now(request, site, judging=False)
    nodes = sorted(
        {d.numa for d in site.shape.devices if d.type in types and d.placed and d.numa >= 0}
    )
    if not nodes or len(nodes) > _MOST_NODES or nodes[-1] >= 64:
        return {}
    best = _gpus(allocate(request, site, policy))
    found: list[tuple[int, int]] = []
    masks = [
        sum(1 << node for i, node in enumerate(nodes) if subset >> i & 1)
        for subset in range(1, 1 << len(nodes))
    ]
    for mask in sorted(masks, key=lambda each: (each.bit_count(), each)):
        scope = Scope(numa=frozenset(node for node in nodes if mask >> node & 1))
        chosen = allocate(request, site, policy, scope)
        if not isinstance(chosen, int):
            found.append((mask, _SAME_AS_BEST if _gpus(chosen) == best else 0))
    smallest = min((mask.bit_count() for mask, _ in found), default=0)
    hints = tuple(DeviceHint(mask, mask.bit_count() == smallest, score) for mask, score in found)
    return dict.fromkeys(types, hints)


def _gpus(chosen: Chosen | int) -> frozenset[int] | None:
    if isinstance(chosen, int):
        return None
    return frozenset(each.minor for each in chosen.get(GPU, ()))
