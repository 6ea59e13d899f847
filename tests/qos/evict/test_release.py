"""The figures of docs/reference/qos.md 4.3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict.config import Satisfaction, Watermark
from koordlet.qos.evict.release import (
    BestEffort,
    Release,
    above,
    allocatable_release,
    cpu_release,
    memory_release,
    over_allocatable,
    satisfaction_release,
    starved_milli,
)
from tests.qos.evict.scene import GB, WINDOW_S, Scene

GIB = 1 << 30
Tier = tuple[int, int, int]


@pytest.mark.parametrize(
    ("average", "last", "usage", "released"),
    [
        ((20000, 19000, 40000), None, 90, 0),
        ((10000, 9500, 50000), (10000, 5000, 50000), 90, 0),
        ((10000, 9500, 50000), (14000, 13000, 50000), 90, 6000),
        ((13000, 12000, 50000), (11000, 10000, 50000), 90, 7000),
        ((10000, 6000, 50000), (14000, 8000, 50000), 50, 6000),
        ((0, 0, 50000), None, 90, 0),
        ((10000, 9500, 0), None, 90, 0),
        # One idle tier below a core is left alone; the reference evicts it.
        ((500, 10, 5000), None, 90, 0),
        ((500, 480, 5000), None, 90, 1500),
        # Satisfied again meanwhile.
        ((10000, 9500, 50000), (10000, 9500, 20000), 90, 0),
    ],
)
def test_satisfaction(average: Tier, last: Tier | None, usage: int, released: int) -> None:
    rules = Satisfaction(30, 40, usage, by_allocatable=False)
    found = starved_milli(rules, BestEffort(*average), BestEffort(*(last or average)))
    assert found == released


@pytest.mark.parametrize(
    ("batch_cpu", "released"), [(8000, 12000), (0, 19999), (-5, "not known"), (None, "not known")]
)
def test_satisfaction_by_allocatable(batch_cpu: int | None, released: int | str) -> None:
    scene = Scene().tier((10000, 6000, 50000), (10000, 4000, 50000))
    if batch_cpu is not None:
        scene.offers(batch_cpu=batch_cpu)
    rules = Satisfaction(30, 40, 50, by_allocatable=True)
    slo = ResourceThresholdStrategy(cpu_evict_time_window_seconds=WINDOW_S)
    found = satisfaction_release(scene.take(), rules, slo)
    if isinstance(released, str):
        assert isinstance(found, str) and released in found
    else:
        assert isinstance(found, Release)
        assert found.amounts == {"kubernetes.io/batch-cpu": released}


def test_satisfaction_needs_a_third_of_the_window() -> None:
    scene = Scene().tier((10000, 9500, 50000), None)
    rules = Satisfaction(30, 40, 90, by_allocatable=False)
    slo = ResourceThresholdStrategy(cpu_evict_time_window_seconds=60)
    scene.samples.count = 19
    found = satisfaction_release(scene.take(), rules, slo)
    assert isinstance(found, str) and "third" in found
    scene.samples.count = 20
    assert isinstance(satisfaction_release(scene.take(), rules, slo), Release)
    scene.samples.last.clear()
    scene.samples.average.clear()
    assert isinstance(satisfaction_release(scene.take(), rules, slo), str)


@pytest.mark.parametrize(
    ("used", "threshold", "lower", "released"),
    [
        (81, 80, 78, 3000),
        (81, 80, 80, 1000),
        (11, 80, 78, 0),
        (81, 81, 78, 3000),
        (81, 78, 76, 5000),
    ],
)
def test_cpu(used: float, threshold: int, lower: int, released: int) -> None:
    found = cpu_release(
        Scene(cpus=100).cpu(used).take(),
        Watermark(threshold, lower, 1),
        ResourceThresholdStrategy(),
    )
    assert isinstance(found, Release)
    assert found.amounts == ({"cpu": released} if released else {})


def test_cpu_average_of_the_past_does_not_evict_more() -> None:
    rules, slo = Watermark(80, 78, 1), ResourceThresholdStrategy(cpu_evict_time_window_seconds=60)
    found = cpu_release(Scene(cpus=100).cpu(60, average=95).take(), rules, slo)
    assert isinstance(found, Release) and not found.amounts
    found = cpu_release(Scene(cpus=100).cpu(85, average=95).take(), rules, slo)
    assert isinstance(found, Release) and found.amounts == {"cpu": 7000}
    assert isinstance(cpu_release(Scene().take(), rules, slo), str)


@pytest.mark.parametrize(
    ("used", "lower", "released"),
    [(115, 78, 20_400), (115, 80, 18_000), (115, 74, 25_200), (80, 78, 0)],
)
def test_memory(used: int, lower: int, released: int) -> None:
    found = memory_release(Scene().memory(used * GB).take(), Watermark(82, lower))
    assert isinstance(found, Release)
    assert found.amounts.get("memory", 0) == released * 10**6


@pytest.mark.parametrize(
    ("lower", "said"),
    [
        (78, "(threshold 82 %); 19455 MiB must be released to reach 78 %"),
        (0, "(threshold 82 %); all of it must be released"),
    ],
)
def test_the_text_says_how_much_must_be_released(lower: int, said: str) -> None:
    found = memory_release(Scene().memory(115 * GB).take(), Watermark(82, lower))
    assert isinstance(found, Release) and found.text.endswith(said), found


def test_memory_without_a_sample_is_no_reason() -> None:
    assert isinstance(memory_release(Scene().take(), Watermark(80, 78)), str)


@pytest.mark.parametrize(
    ("requested", "offered", "threshold", "lower", "released"),
    [
        (85000, 100000, 80, 70, 15000),
        (85 * GIB, 100 * GIB, 80, 70, 16106127360),
        (85000, 100000, 0, 0, 85000),
        (85000, 0, 80, 70, 85000),
        (80000, 100000, 80, 70, 0),
        (80001, 100000, 80, 70, 10001),
        (130000, 100000, 120, 110, 20000),
    ],
)
def test_allocatable(
    requested: int, offered: int, threshold: int, lower: int, released: int
) -> None:
    assert over_allocatable(Watermark(threshold, lower, 1), requested, offered) == released


def test_allocatable_that_nobody_has_told_is_no_reason() -> None:
    rules, asked = Watermark(80, 70, 7999), {"kubernetes.io/batch-cpu": 85000}
    assert isinstance(allocatable_release(Scene().take(), rules, asked), str)
    lacks = allocatable_release(Scene().offers(batch_memory=5).take(), rules, asked)
    assert isinstance(lacks, Release) and lacks.amounts == asked
    assert lacks.text.endswith(" 0 allocatable (threshold 80 %); all of it must be released")


@given(
    st.integers(0, 200_000),
    st.integers(1, 100_000),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_never_more_than_down_to_the_lower_mark(
    used: int, capacity: int, threshold: int, lower: int
) -> None:
    released = above(Watermark(threshold, min(lower, threshold)), used, capacity)
    assert 0 <= released <= used
    if released:
        assert used * 100 // capacity >= threshold
        assert used - released >= capacity * min(lower, threshold) // 100 - 1


@given(*(st.integers(0, 10**6) for _ in range(3)), st.integers(1, 60), st.integers(0, 39))
def test_a_tier_is_never_satisfied_beyond_the_upper_mark(
    limit: int, used: int, request: int, lower: int, more: int
) -> None:
    rules = Satisfaction(lower, lower + more, 90, by_allocatable=False)
    released = starved_milli(
        rules, BestEffort(limit, used, request), BestEffort(limit, used, request)
    )
    assert 0 <= released <= request
    if released:
        # What is left of the requests is still worth the limit at the upper mark or a bit less.
        assert (request * (lower + more) - 100 * limit) // 100 == released
