"""The parsers of the hot path give what the full ones give, and fail as they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.kernel import parse, parse_hot
from koordlet.kernel.parse import ParseError

from .world import UID, World

counts = st.integers(0, 2**60)
FAST = [
    parse_hot.memory_in_use,
    parse_hot.numa_in_use,
    parse_hot.cfs_periods,
    parse_hot.pressure_avg10,
    parse_hot.pressure_some_total_us,
]


@given(values=st.lists(counts, min_size=7, max_size=7), v1=st.booleans(), shuffled=st.booleans())
def test_memory(values: list[int], v1: bool, shuffled: bool) -> None:
    keys = ["inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable"]
    keys = [*(["cache", "rss"] if v1 else ["anon", "file"]), *(keys[::-1] if shuffled else keys)]
    lines = [f"{'total_' if v1 else ''}{key} {n}\n" for key, n in zip(keys, values, strict=True)]
    own = [f"{key} 7\n" for key in keys] if v1 else ["slab 3\n"]
    data = "".join(own + lines if v1 else lines + own).encode()
    full = parse.memory_stat(data)
    assert parse_hot.memory_in_use(data) == (full.usage_bytes, full.usage_with_page_cache_bytes)


V1 = {
    "cache": 1,
    "rss": 2,
    "inactive_anon": 3,
    "active_anon": 4,
    "inactive_file": 5,
    "active_file": 6,
    "unevictable": 7,
    "total_cache": 10,
    "total_rss": 20,
    "total_inactive_anon": 30,
    "total_active_anon": 40,
    "total_inactive_file": 50,
    "total_active_file": 60,
    "total_unevictable": 70,
}
V2 = {key.removeprefix("total_"): n for key, n in V1.items() if key.startswith("total_")}
V2 = {{"cache": "file", "rss": "anon"}.get(key, key): n for key, n in V2.items()}


@given(data=st.data(), v1=st.booleans())
def test_memory_in_any_order_of_its_lines(data: st.DataObject, v1: bool) -> None:
    items = data.draw(st.permutations(sorted((V1 if v1 else V2).items())))
    text = "".join(f"{key} {number}\n" for key, number in items).encode()
    assert parse.memory_stat(text) == (10, 20, 50, 60, 30, 40, 70)
    assert parse_hot.memory_in_use(text) == (140, 250)


CPU = {"nr_periods": 10, "nr_throttled": 3, "nr_bursts": 0, "usage_usec": 7}


@given(data=st.data(), v1=st.booleans())
def test_throttling_in_any_order_of_its_lines(data: st.DataObject, v1: bool) -> None:
    lines = {**CPU, **({"throttled_time": 5000} if v1 else {"throttled_usec": 5})}
    items = data.draw(st.permutations(sorted(lines.items())))
    text = "".join(f"{key} {number}\n" for key, number in items).encode()
    assert parse.cpu_stat(text) == (10, 3, 5000)
    assert parse_hot.cfs_periods(text) == (10, 3)


@pytest.mark.parametrize("layout", ["v1", "hybrid"])
def test_both_sources_of_memory_agree(layout: str) -> None:
    world = World(layout)
    pod = world.pod("burstable", UID, "c1")
    world.host.spawn(pod.containers[0].cgroup, memory_bytes=5 << 20, cache_bytes=3 << 20)
    directory = f"/sys/fs/cgroup/memory/{pod.cgroup}"
    by_numa = parse_hot.numa_in_use(world.host.read(f"{directory}/memory.numa_stat"))
    assert by_numa == parse_hot.memory_in_use(world.host.read(f"{directory}/memory.stat"))
    assert by_numa == (5 << 20, 8 << 20)


@given(periods=counts, throttled=counts)
def test_periods(periods: int, throttled: int) -> None:
    v1 = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 5\n"
    v2 = f"usage_usec 1\nuser_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\n"
    assert (
        parse_hot.cfs_periods(v1.encode())
        == parse_hot.cfs_periods(v2.encode())
        == (periods, throttled)
    )


@given(some=st.floats(0, 100), full=st.none() | st.floats(0, 100), total=counts)
def test_pressure(some: float, full: float | None, total: int) -> None:
    text = f"some avg10={some:.2f} avg60=1.00 avg300=0.00 total={total}\n"
    if full is not None:
        text += f"full avg10={full:.2f} avg60=0.00 avg300=0.00 total=3\n"
    whole = parse.pressure(text.encode())
    expected = (whole.some.avg10, whole.full.avg10 if whole.full is not None else None)
    assert parse_hot.pressure_avg10(text.encode()) == expected
    assert parse_hot.pressure_some_total_us(text.encode()) == total


@given(
    data=st.binary(max_size=200)
    | st.sampled_from(
        [
            b"",
            b"some avg10=",
            b"some avg10=1.00 ",
            b"some avg10=x avg60=0 total=1\n",
            b"some total=",
            b"nr_periods 1\nnr_throttled ",
            b"nr_periods x\nnr_throttled 1\n",
            b"x\ntotal_inactive_anon 1\ntotal_active_anon x\n",
            b"inactive_anon 1\nactive_anon 2\ninactive_file 3\nactive_file 4\nunevictable",
            b"x\nhierarchical_file=1",
            b"x\nhierarchical_file=" + b"9" * 5000 + b" N0=1\n",
        ]
    )
)
def test_garbage_raises_nothing_but_parse_errors(data: bytes) -> None:
    for fast in FAST:
        try:
            fast(data)
        except ParseError:
            continue
