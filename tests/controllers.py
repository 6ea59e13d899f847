"""cgroup v2 gives a child the files of a controller only when its parent passes that on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from koordlet.kernel.host import Host

CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
"""Those that tests use."""


def pass_on(host: Host, directory: str) -> list[str]:
    """Switch on for the children of a v2 cgroup what it has of CONTROLLERS; returns what was
    off before."""
    control = f"{directory}/cgroup.subtree_control"
    there = host.read(f"{directory}/cgroup.controllers").decode().split()
    on = host.read(control).decode().split()
    missing = [name for name in CONTROLLERS if name in there and name not in on]
    for name in missing:
        host.write(control, f"+{name}".encode())
    return missing


@contextmanager
def passed_on(host: Host, directory: str | None) -> Iterator[None]:
    """The same for a while. ``directory`` None: there is no v2 hierarchy, nothing to do."""
    missing = pass_on(host, directory) if directory is not None else []
    try:
        yield
    finally:
        for name in missing:
            try:
                host.write(f"{directory}/cgroup.subtree_control", f"-{name}".encode())
            except OSError as error:
                if error.errno != errno.EBUSY:  # somebody else has come to use it since
                    raise
