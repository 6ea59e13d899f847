"""The room on the fake kernel: every layout, with and without the vendor's files."""

from __future__ import annotations

import asyncio
import errno
from typing import Literal

import pytest
from koordlet_fakefs import FakeHost, Resctrl
from koordlet_fakefs.tree import Leaf

from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Capability
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.probe.probe import probe

R = Resource
Mounted = Literal["v1", "hybrid", "v2", "comount"]
KIND = {"v1": "v1", "hybrid": "hybrid", "comount": "hybrid", "v2": "v2"}
MOUNTS: tuple[Mounted, ...] = ("v1", "hybrid", "v2", "comount")


def probed(host: FakeHost) -> dict[str, Capability]:
    layout = detect(host)

    async def scenario() -> tuple[Capability, ...]:
        async def deliver() -> None:
            while True:
                host.deliver()
                await asyncio.sleep(0)

        pump = asyncio.create_task(deliver())
        try:
            return await probe(host, layout)
        finally:
            pump.cancel()

    return {capability.feature: capability for capability in asyncio.run(scenario())}


@pytest.mark.parametrize("mounted", MOUNTS)
def test_what_every_layout_can_do(mounted: Mounted) -> None:
    host = FakeHost(mounted)
    layout = detect(host)
    found = probed(host)
    assert layout.kind == KIND[mounted]
    for feature in (
        *(R.CPU_QUOTA_US, R.CPU_PERIOD_US, R.CPU_BURST_US, R.CPU_SHARES, R.CPU_IDLE),
        *(R.CPUSET_CPUS, R.CPU_STAT, R.CPUACCT_USAGE, R.MEMORY_LIMIT, R.MEMORY_STAT),
        *(R.MEMORY_NUMA_STAT, R.BLKIO_READ_BPS, R.BLKIO_WRITE_IOPS),
        *("pids.max", "cgroup.freeze", "psi-node", "psi-trigger-2s", "inotify-cgroup"),
    ):
        assert found[feature].supported, found[feature].why
    for feature in (R.MEMORY_MIN, R.MEMORY_LOW, R.MEMORY_HIGH, R.MEMORY_OOM_GROUP):
        assert found[feature].supported == (mounted == "v2"), found[feature].why
    assert not found[R.CPU_BVT_WARP_NS].supported
    assert not found["psi-trigger-500ms"].supported
    left = [name for root in layout.roots for name in host.subdirs(root) if "probe" in name]
    assert left == []


@pytest.mark.parametrize("mounted", MOUNTS)
def test_vendor_kernel_and_full_capabilities(mounted: Mounted) -> None:
    found = probed(FakeHost(mounted, anolis=True, cap_sys_resource=True))
    for feature in (
        *(R.CPU_BVT_WARP_NS, R.MEMORY_MIN, R.MEMORY_HIGH, R.MEMORY_OOM_GROUP),
        *(R.MEMORY_WMARK_RATIO, R.MEMORY_WMARK_MIN_ADJ, R.MEMORY_PRIORITY),
        *("psi-cgroup", "psi-trigger-500ms"),
    ):
        assert found[feature].supported, found[feature].why
    assert not found["psi-trigger-100ms"].supported


@pytest.mark.parametrize("mounted", MOUNTS)
@pytest.mark.parametrize(
    ("resource", "value"),
    [
        *((R.CPU_SHARES, 1024), (R.CPU_QUOTA_US, 150_000), (R.CPU_QUOTA_US, -1)),
        *((R.CPU_PERIOD_US, 50_000), (R.CPU_IDLE, 1), (R.CPUSET_CPUS, "1")),
        *((R.MEMORY_LIMIT, 1_000_000), (R.MEMORY_LIMIT, -1)),
    ],
)
def test_one_value_whatever_is_mounted(mounted: Mounted, resource: Resource, value: Value) -> None:
    host = FakeHost(mounted)
    host.make_cgroup("a/b")
    cgroups = Cgroups(host, detect(host))
    original = cgroups.read_raw("a/b", resource)
    cgroups.write("a/b", resource, value)
    assert cgroups.equal(resource, value, cgroups.read("a/b", resource))
    cgroups.write_raw("a/b", resource, original)
    assert cgroups.read_raw("a/b", resource) == original
    assert cgroups.children("a") == ("a/b",)


def test_a_period_on_v2_keeps_the_quota_in_force() -> None:
    host = FakeHost("v2")
    host.make_cgroup("a")
    cgroups = Cgroups(host, detect(host))
    cgroups.write("a", R.CPU_QUOTA_US, 70_000)
    cgroups.write("a", R.CPU_PERIOD_US, 50_000)
    assert host.read("/sys/fs/cgroup/a/cpu.max") == b"70000 50000\n"


HOST_WIDE = (
    *("core-sched", R.SYSCTL_GROUP_IDENTITY, R.SYSCTL_SCHED_CORE, "resctrl.l3", "resctrl.mb"),
    *("oom_score_adj", "oom_score_adj.lower", "terway", "resctrl.monitor"),
)


def test_what_is_no_cgroup_file_is_tried_and_put_back() -> None:
    host = FakeHost(anolis=True, core_sched=True, resctrl=True, terway=True, cap_sys_resource=True)
    for left in ("koordlet-probe-99999", "mon_groups/koordlet-probe-99999"):
        host.mkdir(f"/sys/fs/resctrl/{left}")  # of a probe that was killed
    found = probed(host)
    assert all(found[feature].supported for feature in HOST_WIDE)
    for place in ("", "/mon_groups"):
        assert not [name for name in host.subdirs(f"/sys/fs/resctrl{place}") if "probe" in name]
    assert host.listdir("/var/lib/terway/qos") == []
    assert host.read("/proc/self/oom_score_adj") == b"0\n"
    assert host.read("/proc/sys/kernel/sched_core") == b"0\n"


def test_what_is_no_cgroup_file_and_missing_says_why_and_what_to_do() -> None:
    found = probed(FakeHost())
    for feature in HOST_WIDE:
        capability = found[feature]
        assert capability.supported == (feature == "oom_score_adj")
        assert capability.why and (capability.supported or capability.cost)
    assert "CAP_SYS_RESOURCE" in found["oom_score_adj.lower"].remedy
    assert "CONFIG_SCHED_CORE" in found["core-sched"].remedy


COLD = ("mglru", "page-idle", "clear-refs", "memory.refaults", R.KIDLED_SCAN_PERIOD)


def test_ways_to_find_cold_memory_are_tried_without_marking_anything() -> None:
    host = FakeHost(anolis=True, lru_gen=True, page_idle=True)
    lists = host.look("/sys/kernel/debug/lru_gen")
    found = probed(host)
    assert all(found[feature].supported for feature in COLD), found
    assert len(host.look("/sys/kernel/debug/lru_gen").splitlines()) >= len(lists.splitlines())
    taken = [path for path, _ in host.written if path.endswith(("lru_gen", "clear_refs", "bitmap"))]
    assert not taken, "the kernel took an order"
    assert host.look("/sys/kernel/mm/kidled/scan_period_in_seconds") == "0\n"


def test_a_locked_down_kernel_and_a_kdamond_are_typed_outcomes() -> None:
    found = probed(FakeHost(lru_gen=True, lockdown=True, page_idle=True, kdamond=True))
    assert "EPERM" in found["mglru"].why and "lockdown=none" in found["mglru"].remedy
    assert "kdamonds/0/state is on" in found["page-idle"].why
    assert found["clear-refs"].supported and found["memory.refaults"].supported
    assert all(found[name].cost for name in ("mglru", "page-idle"))


def test_resctrl_counts_as_there_when_all_its_groups_are_in_use() -> None:
    host = FakeHost(resctrl=True)
    for number in range(7):
        host.mkdir(f"/sys/fs/resctrl/koordlet-{number}")
    found = probed(host)
    assert found["resctrl.l3"].supported and "in use" in found["resctrl.l3"].why


def test_monitoring_says_what_is_counted_and_for_how_many() -> None:
    found = probed(FakeHost(resctrl=Resctrl(rmids=224)))["resctrl.monitor"]
    events = "llc_occupancy, mbm_local_bytes, mbm_total_bytes"
    assert found.supported and f"counts {events}, 224 groups apart" in found.why
    alone = probed(FakeHost(resctrl=Resctrl(events=("llc_occupancy",))))["resctrl.monitor"]
    assert alone.supported and "rdt=mbmtotal,mbmlocal" in alone.why
    mpam = probed(FakeHost(resctrl=Resctrl(events=("mbm_total_bytes",))))["resctrl.monitor"]
    assert mpam.supported and "counts mbm_total_bytes, 32" in mpam.why and "rdt=" not in mpam.why
    nothing = probed(FakeHost(resctrl=Resctrl(events=())))["resctrl.monitor"]
    assert not nothing.supported and "names nothing" in nothing.why
    only = probed(FakeHost(resctrl=Resctrl(allocates=False)))
    assert only["resctrl.monitor"].supported and not only["resctrl.l3"].supported


def test_monitoring_counts_as_there_when_no_rmid_is_free() -> None:
    host = FakeHost(resctrl=Resctrl(rmids=2))
    host.mkdir("/sys/fs/resctrl/mon_groups/theirs")
    found = probed(host)
    assert found["resctrl.monitor"].supported
    assert "every RMID has a group" in found["resctrl.monitor"].why
    host.rmdir("/sys/fs/resctrl/mon_groups/theirs")
    found = probed(host)
    for feature in ("resctrl.monitor", "resctrl.l3"):
        assert found[feature].supported and "in limbo" in found[feature].why
    assert host.subdirs("/sys/fs/resctrl/mon_groups") == []


def test_resctrl_with_code_and_data_apart() -> None:
    found = probed(FakeHost(resctrl=Resctrl(cdp=True, min_ways=2)))
    assert found["resctrl.l3"].supported and "L3CODE:0=7ff" in found["resctrl.l3"].why


def test_resctrl_with_bandwidth_in_megabytes_per_second() -> None:
    found = probed(FakeHost(resctrl=Resctrl(most=(1 << 32) - 1)))
    assert not found["resctrl.mb"].supported and "mba_MBps" in found["resctrl.mb"].remedy


def test_resctrl_that_is_not_mounted_and_one_without_bandwidth() -> None:
    host = FakeHost(resctrl=True)
    root = host.resctrl
    assert root is not None
    root.percents.clear()
    root.entries["schemata"] = Leaf(lambda: "    L3:0=7ff\n", root.entries["schemata"].write)
    assert "has no line MB" in probed(host)["resctrl.mb"].why
    host.root.entries["sys"].entries["fs"].entries.pop("resctrl")
    missing = probed(host)["resctrl.l3"]
    assert "not mounted" in missing.why and "mount -t resctrl" in missing.remedy


_NO_ENTRY = "ENOENT (No such file or directory)"


@pytest.mark.parametrize(
    ("pmu", "supported", "why"),
    [
        ("full", True, "perf_event_open counts cycles and instructions"),
        (
            "cycles",
            False,
            f"cycles alone are counted; perf_event_open(instructions, CPU 0): {_NO_ENTRY}",
        ),
        ("none", False, f"perf_event_open(cycles, CPU 0): {_NO_ENTRY}"),
    ],
)
def test_what_the_hardware_counts(pmu: str, supported: bool, why: str) -> None:
    host = FakeHost("v2", pmu=pmu)
    found = probed(host)["pmu"]
    assert (found.supported, found.why) == (supported, why)
    assert bool(found.remedy) != supported
    assert host.counters.held == 0


@pytest.mark.parametrize("mounted", ["v2", "hybrid", "comount"])
def test_counters_of_a_cgroup(mounted: Mounted) -> None:
    host = FakeHost(mounted)
    assert probed(host)["perf-cgroup"].supported
    assert host.counters.held == 0


def test_counters_of_a_cgroup_without_its_hierarchy() -> None:
    found = probed(FakeHost("v1"))["perf-cgroup"]
    assert not found.supported and "perf_event is mounted" in found.why
    assert found.remedy.startswith("mount -t cgroup")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.ENOENT, "echo +cpu >"), (errno.EINVAL, "CONFIG_CGROUP_PERF"), (errno.EMFILE, "")],
)
def test_counters_of_a_cgroup_refused(code: int, remedy: str) -> None:
    """ENOENT: a kernel that has never passed on a controller."""
    host = FakeHost("v2")
    host.faults.add("perf_event_open(cpu-clock*", op="perf", errno=code)
    found = probed(host)["perf-cgroup"]
    assert not found.supported and errno.errorcode[code] in found.why
    assert found.remedy.startswith(remedy) or remedy in found.remedy
    assert bool(found.remedy) == bool(remedy)
    assert host.counters.held == 0
