"""The formulas of memory QoS, by the tables of docs/reference/qos.md 5.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resource import UNLIMITED
from koordlet.protocol.slo import MemoryQOS
from koordlet.qos.memory_qos.values import (
    OOM_GROUP,
    PRIORITIES,
    WMARKS,
    floors,
    high_bytes,
    page_cache,
    plain,
)

PAGE, MIB, GIB = 4096, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("request_bytes", "limit", "node", "percent", "wanted"),
    [
        (GIB, GIB, 8 * GIB, 80, 1073741824),
        (0, 0, GIB, 80, 858992640),
        (0, 0, GIB, 40, 429494272),
        (0, 100 * MIB, GIB, 80, 83886080),
        (2 * GIB, 6 * GIB, 64 * GIB, 80, 5583454208),
        (GIB, 2 * GIB, 8 * GIB, 0, UNLIMITED),
        (GIB, 2 * GIB, 8 * GIB, None, UNLIMITED),
        (4 * GIB, 0, GIB, 50, 4 * GIB),  # asks for more than there is
    ],
)
def test_high(request_bytes: int, limit: int, node: int, percent: int | None, wanted: int) -> None:
    qos = MemoryQOS(throttling_percent=percent)
    assert high_bytes(qos, request_bytes, limit, node, PAGE) == wanted


def test_high_is_a_whole_number_of_the_kernels_own_pages() -> None:
    """64 KiB on some ARM machines: a limit between two pages is one that never shows."""
    qos = MemoryQOS(throttling_percent=80)
    assert high_bytes(qos, 0, 0, GIB, 64 << 10) == 858980352 == 858992640 // 65536 * 65536


def test_the_watermark_of_the_example_in_the_spec() -> None:
    high = high_bytes(MemoryQOS(throttling_percent=80), 0, 100 * MIB, GIB, PAGE)
    assert high * 95 // 100 == 79691776


def test_high_is_not_below_min() -> None:
    qos = MemoryQOS(min_limit_percent=50, throttling_percent=40)
    assert floors(qos, GIB).min_bytes == 536870912
    assert high_bytes(qos, GIB, GIB, 8 * GIB, PAGE) == 1073741824
    above = MemoryQOS(min_limit_percent=100, throttling_percent=1)
    assert high_bytes(above, 10 * MIB + 4095, 0, 0, PAGE) == 10 * MIB + 4095


@pytest.mark.parametrize(
    ("hard", "low", "request_bytes", "wanted"),
    [
        (100, None, 100 * MIB, (104857600, 0)),
        (0, 0, GIB, (0, 0)),
        (50, 20, GIB, (GIB // 2, GIB // 2)),
        (50, 80, 1000, (500, 800)),
        (None, 30, 1001, (0, 300)),
        (100, 100, 0, (0, 0)),
    ],
)
def test_floors(
    hard: int | None, low: int | None, request_bytes: int, wanted: tuple[int, int]
) -> None:
    qos = MemoryQOS(min_limit_percent=hard, low_limit_percent=low)
    assert floors(qos, request_bytes) == wanted


@pytest.mark.parametrize(
    ("fields", "limit", "wanted"),
    [
        ({"page_cache_limit_size": 512 * MIB}, GIB, (1, 512 * MIB)),
        ({"page_cache_limit_size": 2 * GIB}, GIB, (1, GIB)),
        ({"page_cache_limit_size": 2 * GIB}, 0, (1, 2 * GIB)),
        ({"page_cache_limit_size": 0}, GIB, (0, 0)),
        ({"page_cache_limit_size": 512 * MIB, "page_cache_enable": False}, GIB, (0, 512 * MIB)),
        ({"page_cache_enable": True}, GIB, (1, None)),
        ({"page_cache_limit_percent": 50}, GIB, (1, 512 * MIB)),
        ({"page_cache_limit_percent": 50}, 0, (None, None)),
        (
            {"page_cache_limit_percent": 50, "page_cache_limit_size": 256 * MIB},
            GIB,
            (1, 256 * MIB),
        ),
        ({}, GIB, (None, None)),
    ],
)
def test_page_cache(
    fields: dict[str, int], limit: int, wanted: tuple[int | None, int | None]
) -> None:
    found = {str(r): value for r, value in page_cache(MemoryQOS(**fields), limit).items()}
    enable, size = wanted
    assert found.get("memory.pagecache_limit.enable") == enable
    assert found.get("memory.pagecache_limit.size") == size
    assert ("memory.pagecache_limit.sync" in found) == bool(size)


def test_page_cache_is_reclaimed_synchronously_where_asked() -> None:
    qos = MemoryQOS(page_cache_limit_size=MIB, page_cache_reclaim_sync=True)
    assert {str(r): v for r, v in page_cache(qos, 0).items()}["memory.pagecache_limit.sync"] == 1


def test_what_the_kernel_has_anyway_is_left_to_it_unless_the_pod_tells_it() -> None:
    every = WMARKS | PRIORITIES | OOM_GROUP
    neutral = MemoryQOS(
        wmark_ratio=0,
        wmark_scale_permill=50,
        wmark_min_adj=0,
        priority=0,
        priority_enable=0,
        oom_kill_group=0,
    )
    assert plain(neutral, frozenset(), every) == {}
    assert plain(neutral, frozenset({"oom_kill_group"}), every) == {"memory.oom.group": 0}
    class_ls = MemoryQOS(wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25)
    assert plain(class_ls, frozenset(), every) == {
        "memory.wmark_ratio": 95,
        "memory.wmark_scale_factor": 20,
        "memory.wmark_min_adj": -25,
    }


@given(
    request_bytes=st.integers(0, 1 << 40),
    limit=st.integers(0, 1 << 40),
    node=st.integers(1 << 20, 1 << 42),
    hard=st.integers(0, 100),
    low=st.integers(0, 100),
    percent=st.integers(0, 100),
)
def test_bounds(
    request_bytes: int, limit: int, node: int, hard: int, low: int, percent: int
) -> None:
    qos = MemoryQOS(min_limit_percent=hard, low_limit_percent=low, throttling_percent=percent)
    found = floors(qos, request_bytes)
    high = high_bytes(qos, request_bytes, limit, node, PAGE)
    assert 0 <= found.min_bytes <= request_bytes
    assert found.low_bytes == 0 or found.min_bytes <= found.low_bytes <= request_bytes
    assert high == UNLIMITED or found.min_bytes <= high <= max(limit or node, request_bytes)
