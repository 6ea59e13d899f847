"""From the memory QoS and the request of each cgroup to the values of its files
(docs/reference/qos.md 5.2).
They stand until a pod, an application or the NodeSLO changes.

``request_bytes``: 0 = nothing asked. ``limit_bytes``: 0 = no limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from koordlet.decision.cgroups import parent
from koordlet.decision.plan import Setting
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Level
from koordlet.decision.why import Input, Why
from koordlet.protocol.qos import KubeQoS
from koordlet.protocol.slo import MemoryQOS, ResourceQOSStrategy
from koordlet.qos.memory_qos.high import huge_bytes
from koordlet.qos.memory_qos.parts import Part, of_kube_qos, parts


class Floors(NamedTuple):
    """``memory.min`` and ``memory.low``, 0 = none."""

    min_bytes: int
    low_bytes: int


def floors(qos: MemoryQOS, request_bytes: int) -> Floors:
    """A lower bound that is asked for is never below the hard one."""
    hard = request_bytes * (qos.min_limit_percent or 0) // 100
    low = request_bytes * (qos.low_limit_percent or 0) // 100
    return Floors(hard, max(low, hard) if low else 0)


def high_bytes(
    qos: MemoryQOS, request_bytes: int, limit_bytes: int, node_bytes: int, page_bytes: int
) -> int:
    """``memory.high`` between request and limit, or what the node has; UNLIMITED for none."""
    percent = qos.throttling_percent or 0
    if not percent:
        return UNLIMITED
    limit = max(limit_bytes or node_bytes, request_bytes)
    found = (request_bytes + (limit - request_bytes) * percent // 100) // page_bytes * page_bytes
    return max(found, floors(qos, request_bytes).min_bytes) if found else UNLIMITED


# Resource -> field, and what a kernel has from the start.
WMARKS = {
    Resource.MEMORY_WMARK_RATIO: ("wmark_ratio", 0),
    Resource.MEMORY_WMARK_SCALE_FACTOR: ("wmark_scale_permill", 50),
    Resource.MEMORY_WMARK_MIN_ADJ: ("wmark_min_adj", 0),
}
PRIORITIES = {
    Resource.MEMORY_PRIORITY: ("priority", 0),
    Resource.MEMORY_USE_PRIORITY_OOM: ("priority_enable", 0),
}
PAGE_CACHE = (
    Resource.MEMORY_PAGECACHE_LIMIT_ENABLE,
    Resource.MEMORY_PAGECACHE_LIMIT_SIZE,
    Resource.MEMORY_PAGECACHE_LIMIT_SYNC,
)
OOM_GROUP = {Resource.MEMORY_OOM_GROUP: ("oom_kill_group", 0)}


def plain(
    qos: MemoryQOS, given: frozenset[str], table: dict[Resource, tuple[str, int]]
) -> dict[Resource, int]:
    """Values that stand in the QoS as they are. What the kernel has anyway is left to it, unless
    the pod itself tells it: somebody else (kubelet) may have reasons for another value."""
    found = {}
    for resource, (field, neutral) in table.items():
        value = getattr(qos, field)
        if value is not None and (value != neutral or field in given):
            found[resource] = value
    return found


def page_cache(qos: MemoryQOS, limit_bytes: int) -> dict[Resource, int]:
    """Limits of the page cache; empty if none are set."""
    asked = (qos.page_cache_enable, qos.page_cache_limit_size, qos.page_cache_limit_percent)
    if all(each is None for each in asked):
        return {}
    found = {}
    size = _page_cache_bytes(qos, limit_bytes)
    if size is not None:
        found[Resource.MEMORY_PAGECACHE_LIMIT_ENABLE] = 1 if size else 0
        found[Resource.MEMORY_PAGECACHE_LIMIT_SIZE] = size
        if size:
            found[Resource.MEMORY_PAGECACHE_LIMIT_SYNC] = int(bool(qos.page_cache_reclaim_sync))
    if qos.page_cache_enable is not None:
        found[Resource.MEMORY_PAGECACHE_LIMIT_ENABLE] = int(qos.page_cache_enable)
    return found


def _page_cache_bytes(qos: MemoryQOS, limit_bytes: int) -> int | None:
    """None: the settings determine no size."""
    if qos.page_cache_limit_size is not None:
        size = qos.page_cache_limit_size
        return min(size, limit_bytes) if limit_bytes else size
    if qos.page_cache_limit_percent is None or not limit_bytes:
        return None
    return qos.page_cache_limit_percent * limit_bytes // 100


RECLAIM = "memory.reclaim"
"""The capability: memory can be reclaimed from a cgroup on demand."""
PRESSURE = "psi-cgroup"
"""The capability: a cgroup reports how long its tasks wait."""
_FLOORS = (
    (Resource.MEMORY_MIN, "minLimitPercent"),
    (Resource.MEMORY_LOW, "lowLimitPercent"),
)


class Standing(msgspec.Struct, frozen=True):
    """``throttled``: parts with the ``memory.high`` that their QoS asks for, in bytes."""

    parts: tuple[Part, ...]
    settings: tuple[Setting, ...]
    throttled: tuple[tuple[Part, int], ...]
    notes: tuple[Why, ...]


def stand(snapshot: Snapshot, strategy: ResourceQOSStrategy) -> Standing:
    found = _Found(snapshot)
    every = tuple(parts(snapshot, strategy))
    for part in every:
        _floors(found, part)
        _throttled(found, part)
        _plain(found, part)
    _directories(found, strategy)
    _sums(found, every)
    settings = tuple(found.settings.values())
    return Standing(every, settings, tuple(found.throttled), tuple(_notes(found)))


class _Found:
    """``lacking``: resources that are asked for and not there. ``unknown``: titles of parts whose
    request nobody tells, with what they do not get for that."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.settings: dict[tuple[str, Resource], Setting] = {}
        self.throttled: list[tuple[Part, int]] = []
        self.lacking: set[Resource] = set()
        self.unknown: set[tuple[str, str]] = set()

    def has(self, resource: Resource) -> bool:
        if self.snapshot.node.has(resource):
            return True
        self.lacking.add(resource)
        return False

    def set(self, cgroup: str, resource: Resource, value: int, why: Why) -> None:
        if self.has(resource):
            self.settings[cgroup, resource] = Setting(cgroup, resource, value, why)

    def is_stronger(self, cgroup: str, resource: Resource, value: int) -> bool:
        """Whether somebody else (kubelet's own memory QoS) had set a stronger one before us."""
        original = self.snapshot.in_force.original(cgroup, resource)
        if not isinstance(original, int):
            return False
        if resource is Resource.MEMORY_HIGH:
            return original != UNLIMITED and original < value
        return original == UNLIMITED or original > value


def _floors(found: _Found, part: Part) -> None:
    qos = part.config.qos
    if part.request_bytes is None:
        if qos.min_limit_percent or qos.low_limit_percent:
            found.unknown.add((part.title, "floor"))
        return
    amounts = floors(qos, part.request_bytes)
    percents = (qos.min_limit_percent, qos.low_limit_percent)
    huge = huge_bytes(found.snapshot, part.cgroup) if any(amounts) else 0
    for (resource, field), amount, percent in zip(_FLOORS, amounts, percents, strict=True):
        value = amount + huge if amount else 0
        if value and found.has(resource) and not found.is_stronger(part.cgroup, resource, value):
            origin = ", estimated from oom_score_adj" if part.estimated else ""
            text = f"{part.title}: {percent} % of a request of {part.request_bytes} bytes{origin}"
            if huge:
                text += f", and {huge} bytes of huge pages"
            facts = (
                Input(field, percent, "%"),
                Input(f"request{origin}", part.request_bytes, "bytes"),
                Input("source", part.config.source),
            )
            found.set(part.cgroup, resource, value, Why("memory-qos.floor", text, facts))


def _throttled(found: _Found, part: Part) -> None:
    qos, resource = part.config.qos, Resource.MEMORY_HIGH
    if part.level is Level.POD or not qos.throttling_percent:
        return
    if part.request_bytes is None or part.estimated:
        # An estimate is a lower bound: right for a floor, too low for a ceiling.
        found.unknown.add((part.title, resource))
        return
    node = found.snapshot.node
    wanted = high_bytes(
        qos, part.request_bytes, part.limit_bytes, node.memory_bytes, node.rules.page_bytes
    )
    if wanted == UNLIMITED or not found.has(resource):
        return
    if not found.is_stronger(part.cgroup, resource, wanted):
        found.throttled.append((part, wanted))


def _plain(found: _Found, part: Part) -> None:
    config = part.config
    values = plain(config.qos, config.asked_by_pod, WMARKS | PRIORITIES | OOM_GROUP)
    if part.level is not Level.CONTAINER:
        values |= page_cache(config.qos, part.limit_bytes)
    for resource, value in values.items():
        text = f"{part.title}: {resource} is {value} by {config.source}"
        why = Why("memory-qos.class", text, (Input("source", config.source),))
        found.set(part.cgroup, resource, value, why)


def _directories(found: _Found, strategy: ResourceQOSStrategy) -> None:
    """The order of out-of-memory victims among the QoS directories. ``memory.oom.group`` is not
    for them: one out-of-memory kill would end every pod of the class."""
    node = found.snapshot.node
    directories = {
        KubeQoS.GUARANTEED: node.tree.root,
        KubeQoS.BURSTABLE: node.tree.burstable,
        KubeQoS.BEST_EFFORT: node.tree.besteffort,
    }
    for kube, cgroup in directories.items():
        config = of_kube_qos(kube, strategy) if cgroup else None
        if config is None:
            continue
        for resource, value in plain(config.qos, config.asked_by_pod, PRIORITIES).items():
            text = f"directory of {kube} pods: {resource} is {value} by {config.source}"
            found.set(cgroup, resource, value, Why("memory-qos.class", text))


def _sums(found: _Found, every: Sequence[Part]) -> None:
    """The kernel gives a cgroup no more protection than its parent has. So every cgroup above a
    floor promises the sum of those below it, where that is more than its own floor."""
    for resource, _ in _FLOORS:
        own = {
            part.cgroup: int(setting.value)
            for part in every
            if (setting := found.settings.get((part.cgroup, resource))) is not None
        }
        above = {ancestor for cgroup in own for ancestor in _above(cgroup)}
        below: defaultdict[str, int] = defaultdict(int)
        for cgroup in sorted(own.keys() | above, key=lambda each: (-each.count("/"), each)):
            value = max(own.get(cgroup, 0), below[cgroup])
            below[parent(cgroup)] += value
            if value > own.get(cgroup, 0) and not found.is_stronger(cgroup, resource, value):
                why = Why("memory-qos.sum", "sum of the protection of the cgroups below")
                found.set(cgroup, resource, value, why)


def _above(cgroup: str) -> Iterator[str]:
    while cgroup := parent(cgroup):
        yield cgroup


def _notes(found: _Found) -> Iterator[Why]:
    node = found.snapshot.node
    lacking = sorted(found.lacking)
    instead = [resource for resource in lacking if resource in WMARKS and node.has(RECLAIM)]
    if instead:
        text = f"this kernel has no {', '.join(instead)}: koordlet reclaims by {RECLAIM} instead"
        yield Why("memory-qos.reclaims", text)
    missing: list[str] = [resource for resource in lacking if resource not in instead]
    if not WMARKS.keys().isdisjoint(missing):
        missing.append(RECLAIM)  # which would do it instead
    if missing:
        reasons = []
        for feature in missing:
            capability = node.capabilities.get(feature)
            reasons.append(f"{feature} ({capability.why if capability else 'not probed'})")
        text = f"left out, because this kernel lacks it: {'; '.join(reasons)}"
        yield Why("memory-qos.unsupported", text)
    pressure = node.capabilities.get(PRESSURE)
    if found.throttled and pressure is not None and not pressure.supported:
        text = (
            "memory.high is set, but koordlet cannot notice work that gets stuck at it: "
            f"{PRESSURE} ({pressure.why})"
        )
        yield Why("memory-qos.unwatched", text, (Input("cgroups", len(found.throttled)),))
    if found.unknown:
        titles = sorted({title for title, _ in found.unknown})
        left_out = " and no ".join(sorted({what for _, what in found.unknown}))
        text = f"no source reports the memory request of {titles[0]}, so it gets no {left_out}"
        yield Why("memory-qos.no-request", text, (Input("cgroups", len(titles)),))
