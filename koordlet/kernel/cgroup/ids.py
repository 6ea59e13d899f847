"""Ids of cgroups, as programs in the kernel see them: the inode of the directory."""

from __future__ import annotations

from koordlet.kernel.background import Pause
from koordlet.kernel.host import Host

_DEEPEST = 4
"""Levels below a cgroup that are looked at: systemd in a container makes some."""


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
