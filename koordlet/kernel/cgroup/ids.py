"""Ids of cgroups, as programs in the kernel see them: the inode of the directory."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import NamedTuple

from koordlet.kernel.background import Pause
from koordlet.kernel.host import Host

MOST_IDS = 64
"""Of one cgroup and those below it: systemd in a container makes some 20, a hostile one makes
thousands."""


class Ids(NamedTuple):
    """``found``: the cgroup itself, then those below it, the nearest first and of one level the
    oldest. ``cut``: there are more."""

    found: tuple[int, ...]
    cut: bool = False


def ids_within(host: Host, directory: str, pause: Pause, most: int = MOST_IDS) -> Ids:
    """Of a cgroup and of those below it; none where it is gone. Lists at most ``most``
    directories."""
    found: list[int] = []
    with suppress(OSError):
        found.append(host.inode(directory))
    waiting = deque([directory] if found else [])
    while waiting:
        path = waiting.popleft()
        pause()
        try:
            inodes = host.subdir_inodes(path)
        except OSError:
            continue  # it has gone since
        below = sorted((inode, name) for name, inode in inodes.items())
        room = most - len(found)
        found += [inode for inode, _ in below[:room]]
        waiting += [f"{path}/{name}" for _, name in below[:room]]
        if len(below) > room:
            return Ids(tuple(found), cut=True)
    return Ids(tuple(found))
