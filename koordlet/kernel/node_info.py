"""What a NodeResourceTopology says of the machine besides its CPUs
(docs/reference/metrics.md 2.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from koordlet.kernel.host import Host
from koordlet.kernel.parse import integer, meminfo
from koordlet.kernel.resctrl import mount_point
from koordlet.kernel.topology import numa_nodes

UNKNOWN = "unknown"
HUGE_PAGES = {"hugepages-2Mi": 2 << 20, "hugepages-1Gi": 1 << 30}
"""Resource of Kubernetes -> bytes of one page."""


class CpuInfo(NamedTuple):
    """``l3_mask``: of all ways, hexadecimal; empty where resctrl is not mounted."""

    model: str = UNKNOWN
    vendor: str = UNKNOWN
    is_hyper_threaded: bool = False
    is_turbo_enabled: bool = False
    l3_mask: str = ""


class NumaMemory(NamedTuple):
    """``huge_bytes``: by name of the resource, part of ``total_bytes``."""

    total_bytes: int
    huge_bytes: Mapping[str, int]


def cpu_info(host: Host, *, sys_root: str = "/sys", proc_root: str = "/proc") -> CpuInfo:
    """A part that cannot be read has its default."""
    words = _cpuinfo(_text(host, f"{proc_root}/cpuinfo"))
    cpus = f"{sys_root}/devices/system/cpu"
    no_turbo = _text(host, f"{cpus}/intel_pstate/no_turbo").strip()
    boost = _text(host, f"{cpus}/cpufreq/boost").strip()
    return CpuInfo(
        words.get("model name") or UNKNOWN,
        words.get("vendor_id") or UNKNOWN,
        is_hyper_threaded=_text(host, f"{cpus}/smt/active").strip() == "1",
        is_turbo_enabled=no_turbo == "0" or (not no_turbo and boost == "1"),
        l3_mask=_text(host, f"{mount_point(sys_root)}/info/L3/cbm_mask").strip(),
    )


def kernel_version(host: Host, proc_root: str = "/proc") -> tuple[int, int]:
    """The first two numbers of its release; (0, 0) where it cannot be read."""
    release = re.match(r"(\d+)\.(\d+)", _text(host, f"{proc_root}/sys/kernel/osrelease"))
    return (int(release[1]), int(release[2])) if release is not None else (0, 0)


def numa_memory(host: Host, sys_root: str = "/sys") -> dict[int, NumaMemory]:
    """By NUMA node, also those without CPUs. Raises OSError and ParseError."""
    base, found = f"{sys_root}/devices/system/node", {}
    for numa in numa_nodes(host, sys_root):
        path = f"{base}/node{numa}/meminfo"
        total_bytes = meminfo(host.read(path), path).total_bytes
        found[numa] = NumaMemory(total_bytes, huge_bytes(host, f"{base}/node{numa}"))
    return found


def huge_bytes(host: Host, node: str) -> dict[str, int]:
    """Pools of a NUMA node, by the resource's name. ``node``: its directory. Raises OSError and
    ParseError."""
    return {
        name: size * _pages(host, f"{node}/hugepages/hugepages-{size >> 10}kB")
        for name, size in HUGE_PAGES.items()
    }


def _pages(host: Host, directory: str) -> int:
    """0 where the kernel has no pages of this size."""
    path = f"{directory}/nr_hugepages"
    try:
        return integer(host.read(path), path)
    except FileNotFoundError:
        return 0


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path).decode(errors="replace")
    except OSError:
        return ""


def _cpuinfo(text: str) -> dict[str, str]:
    """Of the first CPU; names in lower case, because arm64 writes ``Model Name``."""
    found: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip().lower(), value.strip())
    return found
