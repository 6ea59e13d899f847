"""What pods do with caches: from samples to figures of each pod. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

Labels = tuple[str, ...]


def cycles_per_instruction(counted: Mapping[Labels, float]) -> dict[str, float]:
    """By uid, over all containers. ``counted``: the samples of ``container_cpi`` by uid, container
    and resource. A pod that executed nothing has none."""
    cycles: defaultdict[str, float] = defaultdict(float)
    instructions: defaultdict[str, float] = defaultdict(float)
    for (uid, _, resource), value in counted.items():
        (cycles if resource == "cycle" else instructions)[uid] += value
    return {uid: cycles[uid] / count for uid, count in instructions.items() if count > 0}


def llc_bytes(occupied: Mapping[Labels, float]) -> dict[str, float]:
    """By uid, over all caches. ``occupied``: the samples of ``pod_resctrl_llc`` by uid and
    cache."""
    found: defaultdict[str, float] = defaultdict(float)
    for (uid, _), value in occupied.items():
        found[uid] += value
    return dict(found)
