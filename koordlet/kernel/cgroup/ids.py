"""Ids of cgroups, as programs in the kernel see them: the inode of the directory."""

from __future__ import annotations

from koordlet.kernel.background import Pause
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.host import Host

_DEEPEST = 4
"""Levels below a cgroup that are looked at: systemd in a container makes some."""


def id_root(host: Host, layout: Layout) -> tuple[str, bool]:
    """Mount point of the hierarchy that ids are from, and whether that is by the controller
    ``cpu``. Raises OSError."""
    by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(host, layout)
    root = layout.reference_root if by_cpu else layout.v2
    assert root is not None  # a layout without cpu on v1 has v2
    return root, by_cpu


def ids_below(host: Host, directory: str, pause: Pause) -> list[int]:
    """Of a cgroup and of those below it; empty where it is gone."""
    found: list[int] = []
    try:
        found.append(host.inode(directory))
        level = [directory]
        for _ in range(_DEEPEST):
            below = [(path, host.subdir_inodes(path)) for path in level]
            pause()
            for _, inodes in below:
                found += inodes.values()
            level = [f"{path}/{name}" for path, inodes in below for name in inodes]
    except OSError:
        pass  # went away meanwhile; what was found is still right
    return found
