"""Which cgroup hierarchies are mounted, and where (``proc(5)`` mountinfo, ``cgroups(7)``)."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from koordlet.kernel.host import Host

# Super options of a v1 mount also hold flags (rw, clone_children ...) and name=...; these are
# the controllers any kernel with cgroup v1 has had.
_V1_CONTROLLERS = frozenset(
    (
        *("cpu", "cpuacct", "cpuset", "memory", "blkio", "devices", "freezer", "pids"),
        *("net_cls", "net_prio", "perf_event", "hugetlb", "rdma", "misc"),
    )
)


@dataclass(frozen=True)
class Layout:
    """``v1``: controller -> mount point (co-mounted controllers share one). ``v2``: mount point
    of the unified hierarchy. ``v2_controllers``: what its root offers; empty on most hybrids.
    ``counts_huge_pages``: they are memory of their cgroup there (the mount option
    memory_hugetlb_accounting, Linux 6.6; systemd 259 and later sets it)."""

    v1: Mapping[str, str]
    v2: str | None
    v2_controllers: frozenset[str] = frozenset()
    counts_huge_pages: bool = False

    @property
    def kind(self) -> Literal["v1", "hybrid", "v2"]:
        if self.v2 is None:
            return "v1"
        return "hybrid" if self.v1 else "v2"

    @property
    def roots(self) -> tuple[str, ...]:
        """Mount points of all hierarchies, each once, sorted."""
        roots = set(self.v1.values())
        if self.v2 is not None:
            roots.add(self.v2)
        return tuple(sorted(roots))

    @property
    def reference_root(self) -> str:
        """The one hierarchy that tells which cgroups there are: cpu on v1, else the unified."""
        if "cpu" in self.v1:
            return self.v1["cpu"]
        return self.v2 if self.v2 is not None else self.roots[0]


HUGE_PAGES_OPTION = "memory_hugetlb_accounting"


def _unescape(field: bytes) -> str:
    r"""mountinfo writes space, tab, newline and backslash as ``\040`` and so on."""
    head, *rest = field.split(b"\\")
    parts = [head]
    for part in rest:
        code = part[:3]
        if len(code) == 3 and all(digit in b"01234567" for digit in code):
            parts.append(bytes([int(code, 8) & 0xFF]) + part[3:])
        else:
            parts.append(b"\\" + part)
    return os.fsdecode(b"".join(parts))


def _mounts(mountinfo: bytes, below: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Visible mounts at or under ``below``: mount point -> (filesystem type, super options)."""
    visible: dict[str, tuple[str, frozenset[str]]] = {}
    for line in mountinfo.split(b"\n"):
        before, separator, after = line.partition(b" - ")
        # Of white space only these two are escaped in names.
        fields, tail = before.split(b" "), after.split(b" ")
        if not separator or len(fields) < 6 or len(tail) < 3:
            continue
        point = _unescape(fields[4])
        if point != below and not point.startswith(below + "/"):
            continue
        # A later mount hides what was mounted at or under its mount point before.
        for hidden in [p for p in visible if p == point or p.startswith(point + "/")]:
            del visible[hidden]
        options = frozenset(tail[2].decode(errors="replace").split(","))
        visible[point] = (tail[0].decode(errors="replace"), options)
    return visible


def detect(host: Host, *, cgroup_root: str = "/sys/fs/cgroup", proc_root: str = "/proc") -> Layout:
    """The layout as this process sees it.

    Only mounts at or under ``cgroup_root`` count. Raises FileNotFoundError when no hierarchy is
    mounted there.
    """
    v1: dict[str, str] = {}
    v2: str | None = None
    counts_huge_pages = False
    for point, (kind, options) in _mounts(
        host.read(f"{proc_root}/self/mountinfo"), cgroup_root
    ).items():
        if kind == "cgroup2" and v2 is None:
            v2, counts_huge_pages = point, HUGE_PAGES_OPTION in options
        elif kind == "cgroup":
            for controller in options & _V1_CONTROLLERS:
                v1.setdefault(controller, point)
    if not v1 and v2 is None:
        raise FileNotFoundError(
            errno.ENOENT, "no cgroup hierarchy is mounted here; mount cgroup2", cgroup_root
        )
    controllers: frozenset[str] = frozenset()
    if v2 is not None:
        controllers = frozenset(host.read(f"{v2}/cgroup.controllers").decode().split())
    return Layout(dict(sorted(v1.items())), v2, controllers, counts_huge_pages)


def passed_on(host: Host, layout: Layout) -> frozenset[str]:
    """v2 controllers that cgroups below the root get now. They change while the machine runs:
    systemd switches them on and off by what its units need."""
    if layout.v2 is None:
        return frozenset()
    return frozenset(host.read(f"{layout.v2}/cgroup.subtree_control").decode().split())
