"""From a memory QoS and the memory a cgroup asks for to the values of its files (spec/qos.md 5.2).

``request_bytes``: 0 = nothing asked. ``limit_bytes``: 0 = no limit.
"""

from __future__ import annotations

from typing import NamedTuple

from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.protocol.slo import MemoryQOS


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
OOM_GROUP = {Resource.MEMORY_OOM_GROUP: ("oom_kill_group", 0)}


def plain(
    qos: MemoryQOS, told: frozenset[str], table: dict[Resource, tuple[str, int]]
) -> dict[Resource, int]:
    """Values that stand in the QoS as they are. What the kernel has anyway is left to it, unless
    the pod itself tells it: somebody else (kubelet) may have reasons for another value."""
    found = {}
    for resource, (field, neutral) in table.items():
        value = getattr(qos, field)
        if value is not None and (value != neutral or field in told):
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
