"""Which eviction features the NodeSLO asks for, and whether their arguments make sense
(docs/reference/qos.md 4.2)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koordlet.protocol.qos import PRIORITY_BANDS, PriorityClass
from koordlet.protocol.slo import ResourceThresholdStrategy

HIGHEST_PRIORITY = PRIORITY_BANDS[PriorityClass.MID].high
"""Work above it is production, and no threshold reaches it."""

_BELOW_THRESHOLD = 2
_USAGE_PERCENT = 90


class Feature(StrEnum):
    """Names of the reference's feature gates, which annotation ``eviction-policy`` lists."""

    BE_CPU = "BECPUEvict"
    CPU = "CPUEvict"
    CPU_ALLOCATABLE = "CPUAllocatableEvict"
    BE_MEMORY = "BEMemoryEvict"
    MEMORY = "MemoryEvict"
    MEMORY_ALLOCATABLE = "MemoryAllocatableEvict"


class Watermark(msgspec.Struct, frozen=True):
    """Evict from ``threshold`` percent on, down to ``lower`` percent. ``priority``: the highest of
    those that may be evicted, None where the class BE is what counts."""

    threshold: int
    lower: int
    priority: int | None = None


class Satisfaction(msgspec.Struct, frozen=True):
    """Evict when the BE tier gets at most ``lower`` percent of its request, until it gets
    ``upper``; only while it uses ``usage_percent`` of its limit."""

    lower: int
    upper: int
    usage_percent: int
    by_allocatable: bool


def satisfaction(slo: ResourceThresholdStrategy) -> Satisfaction | str | None:
    """Arguments of BECPUEvict. None: not asked for; text: why they are refused."""
    lower = slo.cpu_evict_be_satisfaction_lower_percent
    upper = slo.cpu_evict_be_satisfaction_upper_percent
    if lower is None and upper is None:
        return None
    names = "cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"
    if lower is None or upper is None:
        return f"{names[lower is not None]} is not set"
    if not 0 < lower <= 60:
        return f"{names[0]} must be in 1..60, but is {lower}"
    if not lower <= upper < 100:
        return f"{names[1]} must be in {lower}..99, but is {upper}"
    usage = slo.cpu_evict_be_usage_threshold_percent
    return Satisfaction(
        lower,
        upper,
        _USAGE_PERCENT if usage is None else usage,
        slo.cpu_evict_policy == "evictByAllocatable",
    )


def usage(feature: Feature, slo: ResourceThresholdStrategy) -> Watermark | str | None:
    """Arguments of CPUEvict, BEMemoryEvict and MemoryEvict. None, text: as ``satisfaction``."""
    if feature is Feature.CPU:
        resource, threshold = "cpu", slo.cpu_evict_threshold_percent
        lower = slo.cpu_evict_lower_percent
    else:
        resource, threshold = "memory", slo.memory_evict_threshold_percent
        lower = slo.memory_evict_lower_percent
    priority = slo.evict_enabled_priority_threshold
    if threshold is None or (feature is Feature.MEMORY and priority is None):
        return None
    if feature is Feature.CPU and priority is None:
        return "evictEnabledPriorityThreshold is not set"
    if lower is None:
        lower = max(threshold - _BELOW_THRESHOLD, 0)
    elif lower >= threshold:
        return f"{resource}EvictLowerPercent must be below {threshold}, but is {lower}"
    if feature is Feature.BE_MEMORY or priority is None:
        return Watermark(threshold, lower)
    return Watermark(threshold, lower, min(priority, HIGHEST_PRIORITY))


def allocatable(feature: Feature, slo: ResourceThresholdStrategy) -> Watermark | str | None:
    """Arguments of both allocatable features. None, text: as ``satisfaction``."""
    if feature is Feature.CPU_ALLOCATABLE:
        resource, threshold = "cpu", slo.cpu_allocatable_evict_threshold_percent
        lower = slo.cpu_allocatable_evict_lower_percent
    else:
        resource, threshold = "memory", slo.memory_allocatable_evict_threshold_percent
        lower = slo.memory_allocatable_evict_lower_percent
    if threshold is None:
        return None
    name = f"{resource}AllocatableEvictLowerPercent"
    if lower is None:
        return f"{name} is not set"
    if lower >= threshold:
        return f"{name} must be below {threshold}, but is {lower}"
    priority = slo.allocatable_evict_priority_threshold
    if priority is None:
        return "allocatableEvictPriorityThreshold is not set"
    if priority > HIGHEST_PRIORITY:
        return f"allocatableEvictPriorityThreshold must be at most {HIGHEST_PRIORITY}"
    return Watermark(threshold, lower, priority)


def asked_for(
    feature: Feature, slo: ResourceThresholdStrategy
) -> Satisfaction | Watermark | str | None:
    """Arguments of any feature. None, text: as ``satisfaction``."""
    if feature is Feature.BE_CPU:
        return satisfaction(slo)
    if feature in (Feature.CPU_ALLOCATABLE, Feature.MEMORY_ALLOCATABLE):
        return allocatable(feature, slo)
    return usage(feature, slo)
