"""A cgroup of the probe's own, in every hierarchy, removed whatever happens.

A probe that is killed leaves it behind. Its name says whose it is, by pid and start time, so that
the next probe and ``koordlet restore`` can remove what belongs to nobody any more.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

import structlog

from koordlet.decision.resctrl import GROUP_PREFIX, MONITORS
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, enabling
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import start_ticks
from koordlet.kernel.resctrl import mount_point

log = structlog.get_logger()

PREFIX = f"{GROUP_PREFIX}probe-"
"""How its name begins, and that of a resctrl group that is tried."""
CHILD = "child"
_NUMBER = "(0|[1-9][0-9]*)"
_OWNER = re.compile(f"{_NUMBER}(?:-{_NUMBER})?", re.ASCII)


def owner(host: Host, proc_root: str = "/proc") -> str:
    """This process, as the end of a name: ``<pid>-<start time in clock ticks>``."""
    try:
        return f"{os.getpid()}-{start_ticks(host, 'self', proc_root)}"
    except (OSError, ParseError):
        return str(os.getpid())


def has_ended(host: Host, owner: str, proc_root: str = "/proc") -> bool:
    """Whether ``owner`` is a process that is no more. Earlier versions gave no start time; then a
    process with that pid counts as the same."""
    found = _OWNER.fullmatch(owner)
    if found is None:
        return False
    pid, started = found.groups()
    if not host.exists(f"{proc_root}/{pid}"):
        return True
    try:
        return started is not None and start_ticks(host, pid, proc_root) != int(started)
    except OSError:
        return not host.exists(f"{proc_root}/{pid}")
    except ParseError:
        return False


class Scratch:
    """``name`` is the cgroup, directly below the root. ``refused``: hierarchies that would not
    have it."""

    def __init__(self, host: Host, cgroups: Cgroups, proc_root: str, sys_root: str) -> None:
        self.host = host
        self.cgroups = cgroups
        self.proc_root = proc_root
        self.sys_root = sys_root
        self.owner = owner(host, proc_root)
        self.name = f"{PREFIX}{self.owner}"
        self._refused: dict[str, OSError] = {}

    def file(self, resource: Resource) -> str:
        """The scratch cgroup's file. Raises Unsupported, or the OSError of its creation."""
        return self._checked(self.cgroups.path(self.name, resource))

    def unified(self, file: str) -> str:
        """The same for a file of cgroup v2 that is no resource."""
        if self.cgroups.layout.v2 is None:
            raise NotHere(f"{file} needs cgroup v2, which is not mounted")
        return self._checked(f"{self.cgroups.layout.v2}/{self.name}/{file}")

    def of_controller(self, controller: str, file: str) -> str:
        """The same for a file of a controller that is no resource."""
        layout = self.cgroups.layout
        root = layout.v1.get(controller)
        if root is None and controller in layout.v2_controllers:
            root = layout.v2
        if root is None:
            raise NotHere(f"controller {controller} is not mounted")
        path = self._checked(f"{root}/{self.name}/{file}")
        if control := self.cgroups.kept_by(path, controller):
            raise NotHere(
                f"{path} does not exist: controller {controller} is not enabled in {control}",
                enabling(controller, control),
            )
        return path

    def reference_directory(self) -> str:
        return self._checked(f"{self.cgroups.layout.reference_root}/{self.name}")

    def _checked(self, path: str) -> str:
        for root, error in self._refused.items():
            if path.startswith(f"{root}/"):
                raise error
        return path

    def make(self) -> None:
        remove_leftovers(self.host, self.cgroups.layout, self.proc_root, self.sys_root)
        for root in self.cgroups.layout.roots:
            directory = f"{root}/{self.name}"
            if self.host.exists(directory):
                _remove(self.host, directory)
            try:
                self.host.mkdir(directory)
            except OSError as error:
                self._refused[root] = error

    def remove(self) -> None:
        for root in self.cgroups.layout.roots:
            if root not in self._refused:
                _remove(self.host, f"{root}/{self.name}")


def leftovers(
    host: Host, layout: Layout, proc_root: str = "/proc", sys_root: str = "/sys"
) -> list[str]:
    """Directories that killed probes have left, and in which there is nothing of anybody else."""
    found = []
    resctrl = mount_point(sys_root)
    groups = (resctrl, f"{resctrl}/{MONITORS}")
    for root in (*layout.roots, *groups):
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = host.subdirs(root)
        for name in names:
            owner = name.removeprefix(PREFIX)
            if owner == name or not has_ended(host, owner, proc_root):
                continue
            directory = f"{root}/{name}"
            with contextlib.suppress(OSError):
                if root in groups:
                    is_empty = not host.read(f"{directory}/tasks").strip()
                else:
                    is_empty = _is_empty(host, directory)
                if is_empty:
                    found.append(directory)
    return found


def remove_leftovers(
    host: Host, layout: Layout, proc_root: str = "/proc", sys_root: str = "/sys"
) -> dict[str, str]:
    """Remove them. Directory -> why it is still there; empty where it is gone."""
    found = leftovers(host, layout, proc_root, sys_root)
    return {directory: _remove(host, directory) for directory in found}


def _is_empty(host: Host, directory: str) -> bool:
    """No process in it, and no cgroup but the one that a probe makes."""
    children = host.subdirs(directory)
    if set(children) - {CHILD} or host.read(f"{directory}/cgroup.procs").strip():
        return False
    return all(_is_empty(host, f"{directory}/{child}") for child in children)


def _remove(host: Host, directory: str) -> str:
    try:
        if host.exists(f"{directory}/{CHILD}"):
            host.rmdir(f"{directory}/{CHILD}")
        host.rmdir(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("scratch cgroup stays until the next start", error=str(error))
        return str(error)
    return ""


class NotHere(Exception):  # noqa: N818 - an outcome, not a mistake
    """A feature is missing; ``why`` and, where something can be done about it, ``remedy``.
    ``for_now``: it may only have been too slow."""

    def __init__(self, why: str, remedy: str = "", *, for_now: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy
        self.for_now = for_now


@contextlib.contextmanager
def scratch(
    host: Host, cgroups: Cgroups, proc_root: str = "/proc", sys_root: str = "/sys"
) -> Iterator[Scratch]:
    """A fresh scratch cgroup, gone afterwards."""
    made = Scratch(host, cgroups, proc_root, sys_root)
    try:
        made.make()
        yield made
    finally:
        made.remove()
