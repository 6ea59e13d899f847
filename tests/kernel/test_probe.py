"""The probe: on this kernel, and on hosts that refuse everything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.probe import FEATURES, probe
from koordlet.kernel.probe.scratch import leftovers, remove_leftovers
from koordlet.kernel.proc.files import start_ticks
from tests.kernel.dict_host import DictHost

ROOT = "/sys/fs/cgroup"
PROBE = f"koordlet-probe-{os.getpid()}"
"""Its name on a host whose procfs does not tell when we were started."""
PURE = Layout({}, ROOT, frozenset({"cpu", "pids"}))


def run(host: DictHost | LinuxHost, layout: Layout) -> dict[str, Capability]:
    found = asyncio.run(probe(host, layout))
    assert [capability.feature for capability in found] == [f.name for f in FEATURES]
    return {capability.feature: capability for capability in found}


class ReadOnlyHost(DictHost):
    def mkdir(self, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def test_feature_names_are_unique_and_every_cost_is_told() -> None:
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    assert all(feature.cost for feature in FEATURES)


def test_a_bare_v2_host_says_which_controller_is_not_enabled() -> None:
    host = DictHost({f"{ROOT}/cgroup.subtree_control": "", "/proc/filesystems": "nodev cgroup2"})
    found = run(host, PURE)
    assert not any(capability.supported for capability in found.values())
    assert found[Resource.CPU_QUOTA_US].why == (
        f"{ROOT}/{PROBE}/cpu.max does not exist: controller cpu is not "
        f"enabled in {ROOT}/cgroup.subtree_control"
    )
    assert found[Resource.CPU_STAT].why == found[Resource.CPU_QUOTA_US].why
    assert found[Resource.CPU_STAT].remedy == (
        f"echo +cpu > {ROOT}/cgroup.subtree_control; under systemd set CPUWeight= of a unit there"
    )
    assert "controller pids is not enabled" in found["pids.max"].why
    assert found["pids.max"].remedy.startswith("echo +pids")
    assert not found[Resource.CPU_BVT_WARP_NS].remedy  # a vendor's file: that would not help
    assert "v2 controller memory" in found[Resource.MEMORY_MIN].why
    assert found["pmu"].why == "perf_event_open: ENOSYS (Function not implemented)"
    assert "PR_SCHED_CORE" in found["core-sched"].why and found["core-sched"].remedy
    assert all(capability.cost for capability in found.values())
    assert host.directories == set() and host.written == []


def test_a_read_only_hierarchy_is_the_reason() -> None:
    host = ReadOnlyHost({f"{ROOT}/cgroup.subtree_control": "cpu", "/proc/filesystems": ""})
    found = run(host, PURE)
    path = f"{ROOT}/{PROBE}"
    assert found[Resource.CPU_SHARES].why == f"{path}: EROFS (Read-only file system)"
    assert found["inotify-cgroup"].why == f"{path}: EROFS (Read-only file system)"


@pytest.mark.parametrize(("number", "for_now"), [(errno.EAGAIN, True), (errno.EROFS, False)])
def test_what_only_has_no_time_now_is_tried_again(number: int, for_now: bool) -> None:
    class Refusing(DictHost):
        def mkdir(self, path: str) -> None:
            super().mkdir(path)
            self.files[f"{path}/memory.high"] = b"max\n"

        def rmdir(self, path: str) -> None:
            self.files.pop(f"{path}/memory.high", None)
            super().rmdir(path)

        def write_limit(self, path: str, data: bytes) -> None:
            raise OSError(number, os.strerror(number), path)

    host = Refusing({f"{ROOT}/cgroup.subtree_control": "memory", "/proc/filesystems": ""})
    found = run(host, Layout({}, ROOT, frozenset({"memory"})))[Resource.MEMORY_HIGH]
    assert not found.supported and errno.errorcode[number] in found.why
    assert found.for_now is for_now


def test_group_identity_can_be_switched_on_where_it_is_off() -> None:
    file = f"{ROOT}/{PROBE}/cpu.bvt_warp_ns"
    switch = "/proc/sys/kernel/sched_group_identity_enabled"

    class Vendor(DictHost):
        def mkdir(self, path: str) -> None:
            super().mkdir(path)
            self.files[file] = b"0\n"

        def rmdir(self, path: str) -> None:
            super().rmdir(path)
            del self.files[file]

    base = {f"{ROOT}/cgroup.subtree_control": "cpu", "/proc/filesystems": ""}
    found = run(Vendor({**base, switch: "1\n"}), PURE)
    on = found[Resource.CPU_BVT_WARP_NS]
    assert found[Resource.SYSCTL_GROUP_IDENTITY].supported
    off = run(Vendor({**base, switch: "0\n"}), PURE)[Resource.CPU_BVT_WARP_NS]
    assert on.supported and "wrote 2, -1, 0" in on.why
    assert off.supported and f"{switch} is 0" in off.why


@pytest.mark.kernel
def test_this_host_and_nothing_left_behind(linux: LinuxHost, layout: Layout) -> None:
    """Also what a killed probe left: 2**22 is above every pid."""
    for root in layout.roots:
        os.makedirs(f"{root}/koordlet-probe-4194305/child")
    before = len(os.listdir("/proc/self/fd"))
    found = {c.feature: c for c in asyncio.run(probe(linux, layout))}
    left = [path for root in layout.roots for path in Path(root).glob("koordlet-probe-*")]
    assert left == []
    for thread in [each for each in threading.enumerate() if each.name == "psi"]:
        thread.join()
    assert len(os.listdir("/proc/self/fd")) == before
    assert found[Resource.CPU_QUOTA_US].supported, found[Resource.CPU_QUOTA_US].why
    assert found["inotify-cgroup"].supported, found["inotify-cgroup"].why
    assert all(c.why and (c.supported or c.cost) for c in found.values())


@pytest.mark.kernel
def test_what_is_of_others_is_left_alone(linux: LinuxHost, layout: Layout) -> None:
    """Probes of living processes, what holds something, and what is only called nearly so."""
    parent = os.getppid()
    root = layout.reference_root
    alive = [f"koordlet-probe-{parent}", f"koordlet-probe-{parent}-{start_ticks(linux, parent)}"]
    others = ["koordlet-probe-4194305-x", "koordlet-probe-+4194305", "koordlet-probe-0x1-1"]
    dead = ["koordlet-probe-4194305-7", f"koordlet-probe-{parent}-1", "koordlet-probe-4194306"]
    held = ["koordlet-probe-4194307-7", "koordlet-probe-4194307-7/of-somebody"]
    made = [f"{root}/{name}" for name in (*alive, *others, *dead, *held)]
    try:
        for directory in made:
            with contextlib.suppress(FileExistsError):  # a killed run of this test
                linux.mkdir(directory)
        assert leftovers(linux, layout) == sorted(f"{root}/{name}" for name in dead)
        asyncio.run(probe(linux, layout))
        there = {name for name in (*alive, *others, *dead, *held) if linux.exists(f"{root}/{name}")}
        assert there == {*alive, *others, *held}
    finally:
        for directory in reversed(made):
            if linux.exists(directory):
                linux.rmdir(directory)


@pytest.mark.kernel
def test_a_killed_probe_leaves_what_the_next_one_and_restore_remove(
    linux: LinuxHost, layout: Layout
) -> None:
    program = (
        "import sys, time\n"
        "from koordlet.kernel.cgroup.cgroups import Cgroups\n"
        "from koordlet.kernel.cgroup.layout import detect\n"
        "from koordlet.kernel.linux import LinuxHost\n"
        "from koordlet.kernel.probe.scratch import scratch\n"
        "host = LinuxHost()\n"
        "with scratch(host, Cgroups(host, detect(host))) as made:\n"
        "    print(made.name, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        name = child.stdout.readline().decode().strip()
        directories = sorted(f"{root}/{name}" for root in layout.roots)
        try:
            assert all(linux.exists(directory) for directory in directories)
            assert name not in "".join(leftovers(linux, layout))
        finally:
            child.kill()
    assert [each for each in leftovers(linux, layout) if name in each] == directories
    assert not any(remove_leftovers(linux, layout).values())
    assert not any(linux.exists(directory) for directory in directories)
