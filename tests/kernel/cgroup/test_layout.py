"""Layouts from the mountinfo of hosts and containers."""

from __future__ import annotations

import pytest

from koordlet.kernel.cgroup.layout import HUGE_PAGES_OPTION, Layout, detect
from tests.kernel.dict_host import DictHost

HEAD = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
"""
SEPARATE = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime shared:7 master:2 - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset,clone_children
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
"""
UNIFIED_BESIDE = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
CO_MOUNTED = """\
24 23 0:22 / /sys/fs/cgroup ro,nosuid shared:8 - tmpfs tmpfs ro,mode=755
25 24 0:23 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,xattr,name=systemd
30 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:13 - cgroup cgroup rw,cpu,cpuacct
31 24 0:28 / /sys/fs/cgroup/net_cls,net_prio rw shared:14 - cgroup cgroup rw,net_cls,net_prio
"""
PURE = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = """\
700 690 0:26 /kubepods/podX /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate
701 690 0:50 / /host/cgroup rw - tmpfs tmpfs rw
702 701 0:51 / /host/cgroup/with\\040space rw - cgroup cgroup rw,memory
"""


def read(mounts: str, controllers: dict[str, str] | None = None, root: str = "") -> Layout:
    files = {"/proc/self/mountinfo": HEAD + mounts}
    for mount, text in (controllers or {}).items():
        files[f"{mount}/cgroup.controllers"] = text
    host = DictHost(files)
    return detect(host, cgroup_root=root) if root else detect(host)


def test_separate_v1_mounts() -> None:
    layout = read(SEPARATE)
    assert layout.kind == "v1"
    assert layout.v2 is None
    assert dict(layout.v1) == {
        "cpu": "/sys/fs/cgroup/cpu",
        "cpuacct": "/sys/fs/cgroup/cpuacct",
        "cpuset": "/sys/fs/cgroup/cpuset",
    }
    assert layout.reference_root == "/sys/fs/cgroup/cpu"


def test_hybrid() -> None:
    unified = "/sys/fs/cgroup/unified"
    layout = read(SEPARATE + UNIFIED_BESIDE, {unified: "hugetlb\n"})
    assert (layout.kind, layout.v2) == ("hybrid", unified)
    assert layout.v2_controllers == {"hugetlb"}
    assert layout.roots[-1] == unified and layout.reference_root == "/sys/fs/cgroup/cpu"


def test_co_mounts_list_each_controller_and_one_root() -> None:
    layout = read(CO_MOUNTED)
    assert layout.v1["cpu"] == layout.v1["cpuacct"] == "/sys/fs/cgroup/cpu,cpuacct"
    assert layout.v1["net_cls"] == "/sys/fs/cgroup/net_cls,net_prio"
    assert len(layout.roots) == 2
    assert not any("systemd" in root for root in layout.roots)


def test_pure_v2() -> None:
    layout = read(PURE, {"/sys/fs/cgroup": "cpuset cpu io memory pids\n"})
    assert (layout.kind, layout.v2, dict(layout.v1)) == ("v2", "/sys/fs/cgroup", {})
    assert layout.v2_controllers == {"cpuset", "cpu", "io", "memory", "pids"}
    assert layout.reference_root == "/sys/fs/cgroup"
    assert not layout.counts_huge_pages
    mounts = PURE.replace("nsdelegate", f"nsdelegate,{HUGE_PAGES_OPTION}")
    assert read(mounts, {"/sys/fs/cgroup": "memory\n"}).counts_huge_pages


def test_container_sees_its_own_mount_and_another_root_on_request() -> None:
    assert read(CONTAINER, {"/sys/fs/cgroup": "cpu\n"}).kind == "v2"
    layout = read(CONTAINER, root="/host/cgroup")
    assert dict(layout.v1) == {"memory": "/host/cgroup/with space"}


def test_a_later_mount_hides_what_was_below_it() -> None:
    layout = read(SEPARATE + UNIFIED_BESIDE + PURE, {"/sys/fs/cgroup": "cpu\n"})
    assert (layout.kind, layout.v2) == ("v2", "/sys/fs/cgroup")


def test_other_mounts_and_odd_lines_do_not_count() -> None:
    odd = "99 1 0:1 / /sys/fs/cgroupX rw - cgroup2 x rw\nnot a mount\n\n5 - 6\n"
    assert read(SEPARATE + odd).v2 is None


@pytest.mark.parametrize("mounts", ["", SEPARATE.splitlines()[0] + "\n"])
def test_nothing_mounted_says_where_and_what_to_do(mounts: str) -> None:
    with pytest.raises(FileNotFoundError, match="mount cgroup2") as missing:
        read(mounts)
    assert missing.value.filename == "/sys/fs/cgroup"


@pytest.mark.parametrize("white", ["\r", "\v", "\f", "\x1c", "\u2028"])
def test_white_space_that_the_kernel_does_not_escape_ends_no_field(white: str) -> None:
    """A container is in a cgroup of that name, and its root shows in our mountinfo."""
    odd = f"99 31 0:29 /a{white}b /somewhere/c{white}d rw - cgroup cgroup rw,memory\n"
    assert read(SEPARATE + odd) == read(SEPARATE)
    below = f"99 31 0:37 / /sys/fs/cgroup/m{white}n rw - cgroup cgroup rw,memory\n"
    assert read(SEPARATE + below).v1["memory"] == f"/sys/fs/cgroup/m{white}n"
