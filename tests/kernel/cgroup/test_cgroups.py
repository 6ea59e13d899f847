"""Cgroups on a dictionary: places, errors, and files that several resources share."""

from __future__ import annotations

import pytest

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.parse import ParseError
from tests.kernel.dict_host import DictHost

R = Resource
V2 = "/sys/fs/cgroup"
V1 = {name: f"/sys/fs/cgroup/{name}" for name in ("cpu", "cpuacct", "cpuset", "memory", "blkio")}
UNIFIED = "/sys/fs/cgroup/unified"
HYBRID = Layout(V1, UNIFIED, frozenset({"hugetlb"}))
PURE = Layout({}, V2, frozenset({"cpu", "cpuset", "memory", "io"}))


def v2(files: dict[str, str], *directories: str) -> tuple[Cgroups, DictHost]:
    host = DictHost(
        {f"{V2}/{name}": text for name, text in files.items()},
        tuple(f"{V2}/{name}" for name in directories),
    )
    return Cgroups(host, PURE), host


def test_paths_on_either_version() -> None:
    host = DictHost({f"{UNIFIED}/a/cpu.pressure": ""})
    hybrid = Cgroups(host, HYBRID)
    pure, _ = v2({})
    assert hybrid.path("a/b", R.CPU_SHARES) == "/sys/fs/cgroup/cpu/a/b/cpu.shares"
    assert pure.path("a/b", R.CPU_SHARES) == "/sys/fs/cgroup/a/b/cpu.weight"
    assert hybrid.path("", R.MEMORY_LIMIT) == "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    assert pure.path("", R.MEMORY_LIMIT) == "/sys/fs/cgroup/memory.max"
    assert hybrid.path("a", R.CPUSET_CPUS_EFFECTIVE).endswith("cpuset/a/cpuset.effective_cpus")
    assert hybrid.directory("a", R.BLKIO_READ_BPS) == "/sys/fs/cgroup/blkio/a"


def test_of_two_hierarchies_the_one_that_has_the_file() -> None:
    beside = Cgroups(DictHost({f"{UNIFIED}/a/cpu.pressure": ""}), HYBRID)
    assert beside.path("a", R.CPU_PRESSURE) == f"{UNIFIED}/a/cpu.pressure"
    vendor = Cgroups(DictHost({f"{V1['cpuacct']}/a/cpu.pressure": ""}), HYBRID)
    assert vendor.path("a", R.CPU_PRESSURE) == "/sys/fs/cgroup/cpuacct/a/cpu.pressure"


@pytest.mark.parametrize(
    "cgroup", ["..", "a/../../b", "/a", "a/", "a//b", "./a", "a/.", "a\0b", "/"]
)
def test_no_path_leaves_the_root(cgroup: str) -> None:
    cgroups, host = v2({"a/cpu.weight": "100"})
    for call in (
        lambda: cgroups.path(cgroup, R.CPU_SHARES),
        lambda: cgroups.read(cgroup, R.CPU_SHARES),
        lambda: cgroups.write(cgroup, R.CPU_SHARES, 1024),
        lambda: cgroups.write_raw(cgroup, R.CPU_SHARES, b"1"),
        lambda: cgroups.children(cgroup),
        lambda: cgroups.exists(cgroup),
    ):
        with pytest.raises(ValueError, match="cgroup path"):
            call()
    assert host.written == []


def test_unsupported_tells_the_three_reasons_apart() -> None:
    cgroups, _ = v2({"a/cpu.weight": "1", "cgroup.subtree_control": "cpu memory"}, "a/b")
    with pytest.raises(Unsupported, match=r"needs v1 controller net_cls.*layout v2") as nowhere:
        cgroups.read("a", R.NET_CLS_CLASSID)
    assert nowhere.value.resource is R.NET_CLS_CLASSID
    with pytest.raises(
        Unsupported, match=r"controller io is not enabled in /sys/fs/cgroup/cgroup\.subtree_control"
    ):
        cgroups.write("a", R.BLKIO_READ_BPS, "8:0 5")
    with pytest.raises(Unsupported, match=r"cpu\.bvt_warp_ns does not exist \(Anolis"):
        cgroups.read("a", R.CPU_BVT_WARP_NS)


def test_support_is_looked_at_each_time() -> None:
    cgroups, host = v2({"cgroup.subtree_control": "cpu"}, "a")
    with pytest.raises(Unsupported):
        cgroups.read("a", R.CPU_SHARES)
    host.make_anew(f"{V2}/a/cpu.weight", "39\n")
    assert cgroups.read("a", R.CPU_SHARES) == 999


def test_a_cgroup_that_is_gone_is_not_unsupported() -> None:
    cgroups, _ = v2({"a/cpu.weight": "1"})
    with pytest.raises(FileNotFoundError) as gone:
        cgroups.read("b", R.CPU_SHARES)
    assert gone.value.filename == f"{V2}/b/cpu.weight"
    assert cgroups.children("b") == ()


def test_a_cgroup_in_another_hierarchy_only() -> None:
    cgroups = Cgroups(DictHost({f"{V1['memory']}/a/memory.stat": ""}), HYBRID)
    with pytest.raises(Unsupported, match="only in /sys/fs/cgroup/memory/a"):
        cgroups.read("a", R.CPU_SHARES)
    assert cgroups.exists("a") and cgroups.directories("a") == ("/sys/fs/cgroup/memory/a",)


def test_children_come_from_the_reference_hierarchy() -> None:
    directories = (f"{V1['cpu']}/a/y", f"{V1['cpu']}/a/x", f"{V1['memory']}/a/z")
    cgroups = Cgroups(DictHost({f"{V1['cpu']}/a/tasks": ""}, directories), HYBRID)
    assert cgroups.children("a") == ("a/x", "a/y")
    assert cgroups.children("") == ("a",)


def test_period_leaves_the_quota_alone_and_quota_the_period() -> None:
    cgroups, host = v2({"a/cpu.max": "50000 100000\n"})
    cgroups.write("a", R.CPU_PERIOD_US, 20000)
    assert host.written == [(f"{V2}/a/cpu.max", b"50000 20000")]
    cgroups.write("a", R.CPU_QUOTA_US, -1)
    assert host.written[-1][1] == b"max"


def test_raw_bytes_of_a_shared_file_restore_their_own_part() -> None:
    """Another owner may still want the quota when the period goes back, and the reverse."""
    cgroups, host = v2({"a/cpu.max": "30000 50000\n"})
    cgroups.write_raw("a", R.CPU_PERIOD_US, b"max 100000\n")
    assert host.written.pop() == (f"{V2}/a/cpu.max", b"30000 100000")
    cgroups.write_raw("a", R.CPU_QUOTA_US, b"max 20000\n")
    assert host.written.pop() == (f"{V2}/a/cpu.max", b"max")


def test_raw_bytes_go_back_verbatim_elsewhere() -> None:
    cgroups, host = v2({"a/cpu.weight": "0\n", "a/cpuset.cpus": "\n"})
    cgroups.write_raw("a", R.CPU_SHARES, b"0\n")
    cgroups.write_raw("a", R.CPUSET_CPUS, b"\n")
    assert [data for _, data in host.written] == [b"0", b"\n"]


def test_device_limits_go_out_one_write_each() -> None:
    now = "8:0 rbps=1 wbps=max riops=max wiops=max\n"
    cgroups, host = v2({"a/io.max": now})
    cgroups.write("a", R.BLKIO_READ_BPS, "8:16 100\n8:32 200")
    assert [data for _, data in host.written[:1]] == [b"8:0 rbps=max"]
    assert [data for _, data in host.written[1:]] == [b"8:16 rbps=100", b"8:32 rbps=200"]


def test_bad_values_name_resource_and_range_and_write_nothing() -> None:
    cgroups, host = v2({"a/cpu.weight": "39\n", "a/cpu.stat": ""})
    with pytest.raises(ValueError, match=r"cpu\.shares.*1 is outside 2\.\.262144"):
        cgroups.write("a", R.CPU_SHARES, 1)
    with pytest.raises(ValueError, match=r"cpu\.stat: the file is read-only"):
        cgroups.write("a", R.CPU_STAT, "x")
    assert cgroups.encode(R.CPU_SHARES, 1024) == b"39"
    assert host.written == []


def test_nonsense_in_a_file_names_the_file() -> None:
    cgroups, _ = v2({"a/cpu.max": "garbage\n"})
    with pytest.raises(ParseError, match=r"/sys/fs/cgroup/a/cpu\.max: .*QUOTA"):
        cgroups.read("a", R.CPU_QUOTA_US)
    with pytest.raises(ParseError, match=r"/sys/fs/cgroup/a/cpu\.max: .*QUOTA"):
        cgroups.write("a", R.CPU_PERIOD_US, 50_000)  # it reads the quota first
