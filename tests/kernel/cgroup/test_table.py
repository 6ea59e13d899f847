"""The table: complete, and each value in the text of either version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.table import TABLE, Knob
from koordlet.protocol.cpuset import format_cpulist

R = Resource
MAX = 2**63 - 1


def knob(resource: Resource, version: int) -> Knob:
    row = TABLE[resource]
    found = row.v1 if version == 1 else row.v2
    assert found is not None
    return found


def test_every_row_is_of_some_version() -> None:
    assert all(row.v1 or row.v2 for row in TABLE.values())


def test_v1_files_are_named_like_the_resource() -> None:
    other = {r for r, row in TABLE.items() if row.v1 is not None and row.v1.file != r}
    assert other == {R.CPUSET_CPUS_EFFECTIVE}


def test_only_these_have_no_v2_file() -> None:
    assert {r for r, row in TABLE.items() if row.v2 is None} == {
        R.MEMORY_IDLE_PAGE_STATS,
        R.NET_CLS_CLASSID,
    }


def test_what_a_plan_may_not_set() -> None:
    assert {str(r) for r, row in TABLE.items() if row.read_only} == {
        *("cpu.stat", "cpuset.cpus.effective", "cpuacct.stat", "cpuacct.usage"),
        *("cpu.pressure", "memory.pressure", "io.pressure"),
        *("memory.usage_in_bytes", "memory.stat", "memory.numa_stat", "memory.idle_page_stats"),
    }


@pytest.mark.parametrize(
    ("resource", "value", "v1", "v2"),
    [
        (R.CPU_SHARES, 1024, b"1024", b"39"),
        (R.FREEZE, 1, b"FROZEN", b"1"),
        (R.FREEZE, 0, b"THAWED", b"0"),
        (R.CPU_SHARES, 2, b"2", b"1"),
        (R.CPU_QUOTA_US, 200000, b"200000", b"200000"),
        (R.CPU_QUOTA_US, -1, b"-1", b"max"),
        (R.CPU_BURST_US, 5_000_000_000, b"5000000000", b"5000000000"),
        (R.CPU_BVT_WARP_NS, -1, b"-1", b"-1"),
        (R.CPUSET_CPUS, "5,0-2,1", b"0-2,5", b"0-2,5"),
        (R.CPUSET_CPUS, "", b"\n", b"\n"),
        (R.MEMORY_LIMIT, -1, b"-1", b"max"),
        (R.MEMORY_LIMIT, 4096, b"4096", b"4096"),
        (R.MEMORY_HIGH, MAX, b"max", b"max"),
        (R.MEMORY_LOW, 0, b"0", b"0"),
        (R.MEMORY_WMARK_MIN_ADJ, -25, b"-25", b"-25"),
        (R.BLKIO_READ_BPS, "8:16 2048\n8:0 0", b"8:16 2048", b"8:16 rbps=2048"),
        (R.BLKIO_WRITE_IOPS, "8:16 7", b"8:16 7", b"8:16 wiops=7"),
        (R.BLKIO_COST_WEIGHT, "8:16 40", b"8:16 40", b"8:16 40"),
        (R.BLKIO_BFQ_WEIGHT, "8:16 40\n8:0 100", b"8:0 100\n8:16 40", b"8:0 100\n8:16 40"),
        (R.TASKS, "3\n4", b"3\n4", b"3\n4"),
    ],
)
def test_text_of_a_value(resource: Resource, value: Value, v1: bytes, v2: bytes) -> None:
    assert knob(resource, 1).form.format(value) == v1
    assert knob(resource, 2).form.format(value) == v2


@pytest.mark.parametrize(
    ("resource", "version", "text", "value"),
    [
        (R.CPU_SHARES, 2, b"39\n", 999),
        (R.CPU_SHARES, 2, b"0\n", 2),  # cpu.idle = 1 on kernels before 6.10
        (R.CPU_QUOTA_US, 1, b"-1\n", -1),
        (R.CPU_QUOTA_US, 2, b"max 100000\n", -1),
        (R.CPU_QUOTA_US, 2, b"50000 20000\n", 50000),
        (R.CPU_PERIOD_US, 2, b"max 20000\n", 20000),
        (R.MEMORY_LIMIT, 1, b"9223372036854771712\n", -1),
        (R.MEMORY_LIMIT, 1, b"9223372036854710272\n", -1),  # 64 KiB pages
        (R.MEMORY_LIMIT, 2, b"max\n", -1),
        (R.MEMORY_HIGH, 2, b"4096\n", 4096),
        (R.CPUACCT_USAGE, 1, b"1500000\n", 1500000),
        (R.CPUACCT_USAGE, 2, b"usage_usec 1500\nuser_usec 1\nsystem_usec 0\n", 1500000),
        (R.CPUACCT_STAT, 1, b"user 7\nsystem 3\n", "user 7\nsystem 3"),
        (R.CPUSET_CPUS, 1, b"\n", ""),
        (R.NET_CLS_CLASSID, 1, b"1048577\n", 0x100001),
        (R.FREEZE, 1, b"THAWED\n", 0),
        (R.FREEZE, 1, b"FREEZING\n", 1),
        (R.FREEZE, 1, b"FROZEN\n", 1),
        (R.FREEZE, 2, b"0\n", 0),
        (R.BLKIO_READ_BPS, 1, b"8:16 2048\n8:0 512\n", "8:0 512\n8:16 2048"),
        (R.PROCS, 1, b"1\n22\n", "1\n22"),
    ],
)
def test_value_of_a_text(resource: Resource, version: int, text: bytes, value: Value) -> None:
    assert knob(resource, version).form.parse(text) == value


def test_io_max_is_four_resources() -> None:
    text = (
        b"8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:0 rbps=max wbps=max riops=5 wiops=max"
    )
    found = {
        r: knob(r, 2).form.parse(text)
        for r in (R.BLKIO_READ_BPS, R.BLKIO_WRITE_BPS, R.BLKIO_READ_IOPS, R.BLKIO_WRITE_IOPS)
    }
    assert found == {
        R.BLKIO_READ_BPS: "8:16 2097152",
        R.BLKIO_WRITE_BPS: "",
        R.BLKIO_READ_IOPS: "8:0 5",
        R.BLKIO_WRITE_IOPS: "8:16 120",
    }


@pytest.mark.parametrize(
    ("resource", "value"),
    [
        *((R.CPU_SHARES, 1), (R.CPU_SHARES, 262145), (R.CPU_QUOTA_US, 999), (R.CPU_QUOTA_US, 0)),
        *((R.CPU_QUOTA_US, -2), (R.CPU_PERIOD_US, 1_000_001), (R.CPU_BURST_US, -1)),
        *((R.CPU_BVT_WARP_NS, 3), (R.CPU_IDLE, 2), (R.MEMORY_WMARK_RATIO, 101)),
        *((R.MEMORY_WMARK_SCALE_FACTOR, 0), (R.MEMORY_PRIORITY, 13), (R.MEMORY_LIMIT, -2)),
        *((R.CPUSET_CPUS, "0-99999"), (R.CPUSET_CPUS, "a"), (R.CPUSET_CPUS, 3)),
        *((R.CPU_SHARES, "1024"), (R.CPU_IDLE, True), (R.TASKS, "x")),
        *((R.BLKIO_READ_BPS, "8:16 -1"), (R.BLKIO_READ_BPS, "sda 5"), (R.BLKIO_READ_BPS, 5)),
        *((R.BLKIO_READ_BPS, "8:16 5\n8:16 6"), (R.BLKIO_COST_WEIGHT, "8:16 0")),
        *((R.BLKIO_COST_MODEL, "8:16 ctrl=user rbps=0"), (R.BLKIO_COST_QOS, "8:16 enable")),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_values_out_of_range(resource: Resource, value: Value, version: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        knob(resource, version).form.format(value)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0x10001, 65537),
        ("0x0010aBcD", 0x10ABCD),
        ("4294967295", 2**32 - 1),
        ("0xffffffff", 2**32 - 1),
    ],
)
def test_class_ids(value: Value, number: int) -> None:
    form = knob(R.NET_CLS_CLASSID, 1).form
    assert form.format(value) == str(number).encode()
    assert form.equal(value, number)


@pytest.mark.parametrize("value", [-1, 2**32, "0xfffffffff", "beef", "0x", "-3", "", "1_0"])
def test_class_ids_out_of_range(value: Value) -> None:
    with pytest.raises(ValueError, match=r"."):
        knob(R.NET_CLS_CLASSID, 1).form.format(value)


def test_equality_knows_pages_unlimited_sets_and_both_weight_rules() -> None:
    limit = knob(R.MEMORY_LIMIT, 1).form
    assert limit.equal(1_000_000, 999_424) and not limit.equal(1_000_000, 995_328)
    assert limit.equal(MAX, -1) and not limit.equal(0, -1) and not limit.equal(-1, 4095)
    assert knob(R.CPUSET_CPUS, 2).form.equal("2,0-1", "0-2")
    shares = knob(R.CPU_SHARES, 2).form
    assert shares.equal(1024, shares.parse(b"39")) and shares.equal(1024, shares.parse(b"100"))
    assert not shares.equal(1024, shares.parse(b"50"))
    assert not knob(R.CPU_SHARES, 1).form.equal(1024, 999)


def test_device_lines_clear_what_is_not_listed_and_leave_what_is_right() -> None:
    form = knob(R.BLKIO_READ_BPS, 2).form
    now = b"8:0 rbps=10 wbps=max riops=max wiops=max\n8:16 rbps=20 wbps=5 riops=max wiops=max\n"
    assert form.writes("8:16 20\n8:32 30", lambda: now) == [b"8:0 rbps=max", b"8:32 rbps=30"]
    assert form.writes("", lambda: now) == [b"8:0 rbps=max", b"8:16 rbps=max"]
    assert knob(R.BLKIO_READ_BPS, 1).form.writes("", lambda: b"8:0 10\n") == [b"8:0 0"]


def test_device_weights_keep_the_default_line() -> None:
    form = knob(R.BLKIO_COST_WEIGHT, 2).form
    assert form.parse(b"default 100\n8:16 50\n") == "8:16 50"
    assert form.parse(b"default 30\n") == "default 30"
    assert form.writes("8:0 70", lambda: b"default 30\n8:16 50\n") == [
        b"default 100",
        b"8:0 70",
        b"8:16 default",
    ]


@pytest.mark.parametrize("resource", [R.BLKIO_COST_WEIGHT, R.BLKIO_BFQ_WEIGHT])
def test_a_device_may_have_the_usual_weight_beside_another_default(resource: Resource) -> None:
    form = knob(resource, 2).form
    found = b"default 30\n8:16 100\n"
    assert form.parse(found) == "default 30\n8:16 100"
    assert form.raw_writes(found, lambda: b"default 30\n8:16 50\n") == [b"8:16 100"]
    assert form.writes("default 30", lambda: found) == [b"8:16 default"]


def test_device_fields() -> None:
    form = knob(R.BLKIO_COST_QOS, 2).form
    found = form.parse(b"8:0 enable=0 ctrl=auto\n8:16 enable=1 ctrl=user rpct=95.00 rlat=3000\n")
    assert found == "8:16 enable=1 ctrl=user rpct=95.00 rlat=3000"
    assert form.equal("8:16 enable=1 rpct=95", found)
    assert not form.equal("8:16 enable=1 rpct=90", found)
    assert not form.equal("8:16 enable=1 wpct=95", found)
    assert form.equal("8:16 enable=0", "")
    assert form.writes("8:32 enable=1", lambda: found.encode()) == [
        b"8:16 enable=0 ctrl=auto",
        b"8:32 enable=1",
    ]


def test_parameters_that_somebody_set_and_switched_off_go_back_as_they_were() -> None:
    form = knob(R.BLKIO_COST_QOS, 2).form
    found = b"8:0 enable=0 ctrl=user rpct=90.00 rlat=7000\n"
    ours = b"8:0 enable=1 ctrl=user rpct=95.00 rlat=3000\n"
    assert form.parse(found) == found.decode().strip()
    assert form.raw_writes(found, lambda: ours) == [found.strip()]
    assert form.raw_writes(b"8:0 enable=0 ctrl=auto rpct=0.00\n", lambda: ours) == [
        b"8:0 enable=0 ctrl=auto"
    ]


NUMBERS = st.integers(-(2**64), 2**64)
TEXTS = st.text(max_size=30) | st.sets(st.integers(0, 300)).map(format_cpulist)


@pytest.mark.parametrize("version", [1, 2])
@given(resource=st.sampled_from(tuple(TABLE)), value=NUMBERS | TEXTS)
def test_what_a_form_accepts_it_reads_back_as_equal(
    version: int, resource: Resource, value: Value
) -> None:
    row = TABLE[resource]
    place = row.v1 if version == 1 else row.v2
    # Of a shared or read-only file, format gives a part only.
    if place is None or row.read_only or place.file in ("cpu.max", "io.max"):
        return
    try:
        data = place.form.format(value)
    except ValueError:
        return
    assert place.form.equal(value, place.form.parse(data))


@pytest.mark.parametrize("version", [1, 2])
@given(resource=st.sampled_from(tuple(TABLE)), data=st.binary(max_size=60))
def test_any_bytes_parse_or_raise_value_error(
    version: int, resource: Resource, data: bytes
) -> None:
    row = TABLE[resource]
    place = row.v1 if version == 1 else row.v2
    if place is None:
        return
    try:
        value = place.form.parse(data)
    except ValueError:
        return
    assert isinstance(value, int | str)
