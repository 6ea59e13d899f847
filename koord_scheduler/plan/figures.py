"""How full a cluster is, and what two courses of it differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.plan.course import Course, Decision
from koordlet.protocol import resources

HOT_PERCENT = 90
"""A node counts as hot from here on, by what is requested of its CPU or memory."""
_MOST_POINTS = 200
_CURVES = (resources.CPU, resources.MEMORY)


class Packing(msgspec.Struct, frozen=True):
    """Of one resource. CPU in milli-cores, else whole units. ``percent_*``: of single nodes, by
    what is requested there."""

    requested: int
    allocatable: int
    percent: float
    percent_p50: float
    percent_p90: float
    percent_max: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """``empty``: nodes without a pod; ``hot``: those that are nearly full (`HOT_PERCENT`)."""

    nodes: int
    pods: int
    empty: int
    hot: int
    resources: Mapping[str, Packing]


def figures(cluster: Cluster) -> Figures:
    rows = cluster.rows()
    packing: dict[str, Packing] = {}
    hot = np.zeros(len(rows), np.bool_)
    for column, name in enumerate(cluster.columns.names):
        offered = cluster.allocatable[rows, column]
        has = offered > 0
        if name == "pods" or not has.any():
            continue
        asked = cluster.requested[rows, column]
        percent = asked[has] * 100.0 / offered[has]
        if name in _CURVES:
            hot[has] |= percent >= HOT_PERCENT
        total, whole = int(asked.sum()), int(offered.sum())
        p50, p90 = np.percentile(percent, (50, 90))
        packing[name] = Packing(
            total,
            whole,
            round(total * 100 / whole, 2),
            round(float(p50), 2),
            round(float(p90), 2),
            round(float(percent.max()), 2),
        )
    pods = [len(cluster.claims_on(int(row))) for row in rows]
    return Figures(
        nodes=len(rows),
        pods=sum(pods),
        empty=sum(not each for each in pods),
        hot=int(hot.sum()),
        resources=packing,
    )


def curve(cluster: Cluster, name: str) -> list[tuple[float, float]]:
    """Nodes by how much of a resource is requested there, the fullest first: (node, percent)."""
    column = cluster.columns.index.get(name)
    if column is None:
        return []
    rows = cluster.rows()
    offered = cluster.allocatable[rows, column]
    rows, offered = rows[offered > 0], offered[offered > 0]
    percent = np.sort(cluster.requested[rows, column] * 100.0 / offered)[::-1]
    if not len(percent):
        return []
    at = np.unique(np.linspace(0, len(percent) - 1, min(len(percent), _MOST_POINTS)).astype(int))
    return [(float(i), float(percent[i])) for i in at.tolist()]


def reasons(decisions: Iterable[Decision]) -> dict[str, int]:
    """Why pods have no node -> how many, most first."""
    counts = Counter(each.why for each in decisions if not each.node)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


class Moved(msgspec.Struct, frozen=True):
    """``old`` or ``new`` empty: the pod has no node there."""

    pod: str
    old: str
    new: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """``moved``: on another node; ``lost``: a node with the old policy alone; ``gained``: with the
    new one alone. ``why``: of those that lost."""

    pods: int
    moved: tuple[Moved, ...]
    lost: tuple[Moved, ...]
    gained: tuple[Moved, ...]
    why: Mapping[str, int]
    evicted_old: int
    evicted_new: int

    @property
    def differs(self) -> bool:
        return bool(self.moved or self.lost or self.gained)


def compare(old: Course, new: Course) -> Comparison:
    moved: list[Moved] = []
    lost: list[Moved] = []
    gained: list[Moved] = []
    failed: list[Decision] = []
    keys = sorted({*old.decisions, *new.decisions})
    for key in keys:
        was, now = old.decisions.get(key), new.decisions.get(key)
        each = Moved(key, was.node if was is not None else "", now.node if now is not None else "")
        if each.old == each.new:
            continue
        if each.old and each.new:
            moved.append(each)
        elif each.old:
            lost.append(each)
            if now is not None:
                failed.append(now)
        else:
            gained.append(each)
    return Comparison(
        pods=len(keys),
        moved=tuple(moved),
        lost=tuple(lost),
        gained=tuple(gained),
        why=reasons(failed),
        evicted_old=_evictions(old),
        evicted_new=_evictions(new),
    )


def _evictions(course: Course) -> int:
    return sum(len(each.evicted) for each in course.decisions.values())
