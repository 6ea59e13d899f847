"""Golden inputs of each format, and random bytes for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.kernel import parse, parse_hot
from koordlet.kernel.parse import NumaMemory, ParseError, PressureLine, Throttling

CPU_STAT_V1 = b"nr_periods 10\nnr_throttled 3\nthrottled_time 12345\nnr_bursts 0\nburst_time 0\n"
CPU_STAT_V2 = (
    b"usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnice_usec 0\n"
    b"nr_periods 4\nnr_throttled 1\nthrottled_usec 77\nnr_bursts 0\nburst_usec 0\n"
)
MEMORY_STAT_V1 = (
    b"cache 1\nrss 2\ninactive_anon 3\nactive_anon 4\ninactive_file 5\nactive_file 6\n"
    b"unevictable 7\ntotal_cache 10\ntotal_rss 20\ntotal_rss_huge 0\ntotal_inactive_anon 30\n"
    b"total_active_anon 40\ntotal_inactive_file 50\ntotal_active_file 60\ntotal_unevictable 70\n"
)
MEMORY_STAT_V2 = (
    b"anon 20\nfile 10\nkernel 5\ninactive_anon 30\nactive_anon 40\ninactive_file 50\n"
    b"active_file 60\nunevictable 70\nslab_reclaimable 1\n"
)
NUMA_V1 = (
    b"total=9 N0=4 N2=5\nfile=1 N0=1 N2=0\nanon=8 N0=3 N2=5\nunevictable=0 N0=0 N2=0\n"
    b"hierarchical_total=90 N0=40 N2=50\nhierarchical_file=20 N0=10 N2=10\n"
    b"hierarchical_anon=60 N0=28 N2=32\nhierarchical_unevictable=10 N0=2 N2=8\n"
)
NUMA_V2 = (
    b"anon N0=4096 N3=8192\nfile N0=1 N3=2\nkernel_stack N0=10 N3=20\npagetables N0=0 N3=0\n"
    b"inactive_anon N0=4000 N3=8000\nactive_anon N0=96 N3=192\nunevictable N0=5 N3=0\n"
    b"slab_reclaimable N0=100 N3=0\nworkingset_refault_anon N0=9 N3=9\n"
)
PSI = (
    b"some avg10=1.50 avg60=0.20 avg300=0.00 total=123\n"
    b"full avg10=0.00 avg60=0.00 avg300=100.00 total=45\n"
)
PROC_STAT = (
    b"cpu  10 2 5 1000 7 3 1 9 8 8\ncpu0 4 1 2 500 7 1 0 9 8 8\ncpu3 6 1 3 500 0 2 1 0 0 0\n"
    b"intr 12345 0 0 0\nctxt 99\ncpufreq 1\n"
)
MEMINFO = (
    b"MemTotal:       24684092 kB\nMemFree:  100 kB\nMemAvailable:  300 kB\nBuffers: 1 kB\n"
    b"Active(anon):  7 kB\nActive(file):  20 kB\nInactive(file):  30 kB\nSReclaimable:  40 kB\n"
    b"HugePages_Total:       0\n"
)


def test_cpu_stat_is_nanoseconds_on_both_versions() -> None:
    assert parse.cpu_stat(CPU_STAT_V1) == Throttling(10, 3, 12345)
    assert parse.cpu_stat(CPU_STAT_V2) == Throttling(4, 1, 77000)


def test_cpu_stat_without_bandwidth_control_names_the_missing_line() -> None:
    with pytest.raises(ParseError, match=r"/x/cpu\.stat: no line 'nr_periods'"):
        parse.cpu_stat(b"usage_usec 1\nuser_usec 1\nsystem_usec 0\n", "/x/cpu.stat")


def test_cpu_usage() -> None:
    assert parse.cpu_usage_ns(b"219197459022\n") == 219197459022
    assert parse.cpu_usage_ns(CPU_STAT_V2) == 1500000


@pytest.mark.parametrize("data", [MEMORY_STAT_V1, MEMORY_STAT_V2])
def test_memory_stat_is_hierarchical(data: bytes) -> None:
    stat = parse.memory_stat(data)
    assert stat == (10, 20, 50, 60, 30, 40, 70)
    assert stat.usage_bytes == 30 + 40 + 70
    assert stat.usage_with_page_cache_bytes == 30 + 40 + 70 + 60 + 50


def test_numa_stat_v1_counts_descendants_and_pages_of_this_machine() -> None:
    assert parse.numa_stat(NUMA_V1, page_bytes=65536) == {
        0: NumaMemory(40 * 65536, 30 * 65536),
        2: NumaMemory(50 * 65536, 40 * 65536),
    }


def test_numa_stat_v2_is_bytes_whatever_the_page_size_and_has_gaps() -> None:
    assert parse.numa_stat(NUMA_V2, page_bytes=65536) == {
        0: NumaMemory(4096 + 1 + 10 + 100, 4000 + 96 + 5),
        3: NumaMemory(8192 + 2 + 20, 8000 + 192),
    }


def test_numa_stat_of_a_kernel_without_hierarchical_lines_is_refused() -> None:
    with pytest.raises(ParseError, match="no line"):
        parse.numa_stat(b"total=9 N0=9\nfile=1 N0=1\n")


def test_pressure() -> None:
    assert parse.pressure(PSI) == (
        PressureLine(1.5, 0.2, 0.0, 123),
        PressureLine(0.0, 0.0, 100.0, 45),
    )
    assert parse.pressure(PSI.splitlines()[0]).full is None


def test_keys_in_any_order_and_only_whole_keys() -> None:
    data = b"a 1\nab 2\nb 3\nxa 4\n"
    assert parse.flat_keyed(data, (b"xa", b"b", b"a", b"ab")) == (4, 3, 1, 2)
    with pytest.raises(ParseError, match="no line 'x'"):
        parse.flat_keyed(data, (b"x",))
    with pytest.raises(ParseError, match=r"f:2: b'two' is not a decimal number"):
        parse.flat_keyed(b"a 1\nb two\n", (b"b",), "f")


def test_stall_time_alone() -> None:
    assert parse_hot.pressure_some_total_us(PSI) == 123


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 0),
        (PSI.splitlines()[1], 0),
        (b"most avg10=0 avg60=0 avg300=0 total=1\n", 1),
        (PSI + b"\n", 3),
        (b"some avg10=nan avg60=0 avg300=0 total=1\n", 1),
        (b"some avg10=0.0 avg60=0.0 avg300=0.0\n", 1),
        (b"some avg10=0.0 avg60=0.0 avg300=0.0 total=1_0\n", 1),
    ],
)
def test_pressure_refuses(data: bytes, line: int) -> None:
    with pytest.raises(ParseError) as refused:
        parse.pressure(data, "cpu.pressure")
    assert (refused.value.path, refused.value.line_no) == ("cpu.pressure", line)


def test_proc_stat_counts_five_fields_and_sparse_cpus() -> None:
    assert parse.proc_stat(PROC_STAT) == (21, {0: 8, 3: 13})


def test_proc_stat_of_too_few_fields() -> None:
    with pytest.raises(ParseError, match="stat:2: 6 fields"):
        parse.proc_stat(b"cpu 1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6\n", "stat")


def test_meminfo_of_machine_and_node() -> None:
    machine = parse.meminfo(MEMINFO)
    assert machine.total_bytes == 24684092 * 1024
    assert machine.available_bytes == parse_hot.memory_available_bytes(MEMINFO) == 300 * 1024
    assert machine.used_without_cache_bytes == (24684092 - 100 - 50 - 40) * 1024
    lines = [b"Node 1 " + x for x in MEMINFO.splitlines() if not x.startswith(b"MemAvailable")]
    node = parse.meminfo(b"\n".join(lines))
    assert node == machine._replace(available_bytes=None)


def test_a_pool_of_huge_pages_is_no_memory_in_use() -> None:
    machine = parse.meminfo(MEMINFO + b"Hugetlb:        17825792 kB\n")
    assert machine.total_bytes == (24684092 - 17825792) * 1024
    assert machine.used_without_cache_bytes == machine.total_bytes - (100 + 50 + 40) * 1024


PARSERS: list[tuple[Callable[..., Any], bytes]] = [
    (parse.integer, b"12\n"),
    (parse.cpu_stat, CPU_STAT_V1),
    (parse.cpu_stat, CPU_STAT_V2),
    (parse.cpu_usage_ns, CPU_STAT_V2),
    (parse.memory_stat, MEMORY_STAT_V1),
    (parse.memory_stat, MEMORY_STAT_V2),
    (parse.numa_stat, NUMA_V1),
    (parse.numa_stat, NUMA_V2),
    (parse.pressure, PSI),
    (parse_hot.pressure_some_total_us, PSI),
    (parse_hot.memory_available_bytes, MEMINFO),
    (parse.proc_stat, PROC_STAT),
    (parse.meminfo, MEMINFO),
]


@pytest.mark.parametrize(("parser", "golden"), PARSERS)
@given(data=st.data())
def test_any_bytes_parse_or_raise_parse_error(
    parser: Callable[..., Any], golden: bytes, data: st.DataObject
) -> None:
    """Noise, and golden text with a piece replaced: the second comes much further in."""
    start = data.draw(st.integers(0, len(golden)))
    end = data.draw(st.integers(start, len(golden)))
    piece = data.draw(st.binary(max_size=30) | st.sampled_from([b" ", b"\n", b"=", b"-1", b"N"]))
    for text in (piece, golden[:start] + piece + golden[end:], golden[:start]):
        try:
            parser(text, "file")
        except ParseError as error:
            assert error.path == "file" and error.line_no >= 0


def test_times_of_a_thread() -> None:
    assert parse.schedstat(b"1500 2500 7\n") == (1500, 2500)
    for bad in (b"", b"1500\n", b"a b c\n"):
        with pytest.raises(parse.ParseError):
            parse.schedstat(bad, "/proc/1/schedstat")
