"""The tables of docs/reference/qos.md 4.2."""

from __future__ import annotations

import pytest

from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict.config import Feature, Satisfaction, Watermark, allocatable, satisfaction
from koordlet.qos.evict.config import usage as usage_of


@pytest.mark.parametrize(
    ("lower", "upper", "ok"),
    [
        (0, 50, False),
        (30, 100, False),
        (40, 30, False),
        (61, 70, False),
        (30, None, False),
        (None, 30, False),
        (30, 40, True),
        (60, 60, True),
    ],
)
def test_satisfaction(lower: int | None, upper: int | None, ok: bool) -> None:
    slo = ResourceThresholdStrategy(
        cpu_evict_be_satisfaction_lower_percent=lower,
        cpu_evict_be_satisfaction_upper_percent=upper,
    )
    found = satisfaction(slo)
    assert isinstance(found, Satisfaction if ok else str)
    assert found != "" and (not ok or found.usage_percent == 90)


def test_what_is_not_asked_for_is_no_fault() -> None:
    slo = ResourceThresholdStrategy()
    assert satisfaction(slo) is None
    for feature in (Feature.CPU, Feature.BE_MEMORY, Feature.MEMORY):
        assert usage_of(feature, slo) is None
    for feature in (Feature.CPU_ALLOCATABLE, Feature.MEMORY_ALLOCATABLE):
        assert allocatable(feature, slo) is None


@pytest.mark.parametrize(
    ("threshold", "lower", "expected"),
    [(80, None, 78), (80, 70, 70), (80, 80, None), (80, 90, None), (1, None, 0), (0, None, 0)],
)
@pytest.mark.parametrize("feature", [Feature.CPU, Feature.BE_MEMORY, Feature.MEMORY])
def test_usage(feature: Feature, threshold: int, lower: int | None, expected: int | None) -> None:
    slo = ResourceThresholdStrategy(
        cpu_evict_threshold_percent=threshold,
        cpu_evict_lower_percent=lower,
        memory_evict_threshold_percent=threshold,
        memory_evict_lower_percent=lower,
        evict_enabled_priority_threshold=5999,
    )
    found = usage_of(feature, slo)
    if expected is None:
        assert isinstance(found, str) and "must be below" in found
    else:
        priority = None if feature is Feature.BE_MEMORY else 5999
        assert found == Watermark(threshold, expected, priority)


def test_no_threshold_reaches_production() -> None:
    slo = ResourceThresholdStrategy(
        memory_evict_threshold_percent=80, evict_enabled_priority_threshold=9999
    )
    assert usage_of(Feature.MEMORY, slo) == Watermark(80, 78, 7999)


def test_cpu_needs_a_priority() -> None:
    found = usage_of(Feature.CPU, ResourceThresholdStrategy(cpu_evict_threshold_percent=80))
    assert found == "evictEnabledPriorityThreshold is not set"


@pytest.mark.parametrize(
    ("threshold", "lower", "priority", "ok"),
    [
        (80, 70, 7999, True),
        (120, 100, 5999, True),
        (80, None, 5999, False),
        (80, 80, 5999, False),
        (80, 70, None, False),
        (80, 70, 8000, False),
    ],
)
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_allocatable(
    resource: str, threshold: int, lower: int | None, priority: int | None, ok: bool
) -> None:
    slo = ResourceThresholdStrategy(
        allocatable_evict_priority_threshold=priority,
        **{
            f"{resource}_allocatable_evict_threshold_percent": threshold,
            f"{resource}_allocatable_evict_lower_percent": lower,
        },
    )
    feature = Feature.CPU_ALLOCATABLE if resource == "cpu" else Feature.MEMORY_ALLOCATABLE
    found = allocatable(feature, slo)
    assert isinstance(found, Watermark if ok else str)
