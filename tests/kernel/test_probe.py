"""The probe: on this kernel, and on hosts that refuse everything."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.kernel.layout import Layout
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe import FEATURES, probe
from tests.kernel.dict_host import DictHost

ROOT = "/sys/fs/cgroup"
PURE = Layout({}, ROOT, frozenset({"cpu", "pids"}))


def run(host: DictHost | LinuxHost, layout: Layout) -> dict[str, Capability]:
    found = asyncio.run(probe(host, layout, system_calls={}))
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
        f"{ROOT}/koordlet-probe-{os.getpid()}/cpu.max does not exist: controller cpu is not "
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
    assert found["perf-hardware"].why == "not tried on this host"
    assert "PR_SCHED_CORE" in found["core-sched"].why and found["core-sched"].remedy
    assert all(capability.cost for capability in found.values())
    assert host.directories == set() and host.written == []


def test_a_read_only_hierarchy_is_the_reason() -> None:
    host = ReadOnlyHost({f"{ROOT}/cgroup.subtree_control": "cpu", "/proc/filesystems": ""})
    found = run(host, PURE)
    path = f"{ROOT}/koordlet-probe-{os.getpid()}"
    assert found[Resource.CPU_SHARES].why == f"{path}: EROFS (Read-only file system)"
    assert found["inotify-cgroup"].why == f"{path}: EROFS (Read-only file system)"


def test_group_identity_can_be_switched_on_where_it_is_off() -> None:
    file = f"{ROOT}/koordlet-probe-{os.getpid()}/cpu.bvt_warp_ns"
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
def test_the_probe_of_another_process_is_left_alone(linux: LinuxHost, layout: Layout) -> None:
    mine = f"{layout.reference_root}/koordlet-probe-{os.getppid()}"
    linux.mkdir(mine)
    try:
        asyncio.run(probe(linux, layout))
        assert linux.exists(mine)
    finally:
        linux.rmdir(mine)
