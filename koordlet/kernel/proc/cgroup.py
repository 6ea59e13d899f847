"""In which cgroups a process is (``cgroups(7)``)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from koordlet.kernel.host import Host


def cgroup_paths(host: Host, pid: int, proc_root: str = "/proc") -> frozenset[str]:
    """One path for each hierarchy, without the leading slash. Raises OSError where the process has
    ended."""
    return frozenset(_paths(host.read(f"{proc_root}/{pid}/cgroup")))


def _paths(text: bytes) -> Iterator[str]:
    for line in text.splitlines():
        path = line.split(b":", 2)[-1]
        yield os.fsdecode(path.removeprefix(b"/"))
