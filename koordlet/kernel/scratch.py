"""A cgroup of the probe's own, in every hierarchy, removed whatever happens."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import structlog

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup import Cgroups, enabling
from koordlet.kernel.host import Host

log = structlog.get_logger()

_PREFIX = "koordlet-probe-"
CHILD = "child"


class Scratch:
    """``name`` is the cgroup, directly below the root. ``refused``: hierarchies that would not
    have it."""

    def __init__(self, host: Host, cgroups: Cgroups, proc_root: str, sys_root: str) -> None:
        self.host = host
        self.cgroups = cgroups
        self.proc_root = proc_root
        self.sys_root = sys_root
        self.name = f"{_PREFIX}{os.getpid()}"
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
        for root in self.cgroups.layout.roots:
            self._remove_dead(root)
            try:
                self.host.mkdir(f"{root}/{self.name}")
            except OSError as error:
                self._refused[root] = error

    def remove(self) -> None:
        for root in self.cgroups.layout.roots:
            if root not in self._refused:
                self._remove(f"{root}/{self.name}")

    def _remove_dead(self, root: str) -> None:
        """What a killed probe left: its pid is nobody now, or us."""
        with contextlib.suppress(OSError):  # mkdir will say what is wrong with this hierarchy
            for name in self.host.subdirs(root):
                pid = name.removeprefix(_PREFIX)
                if pid == name or not pid.isdigit():
                    continue
                if int(pid) == os.getpid() or not self.host.exists(f"{self.proc_root}/{pid}"):
                    self._remove(f"{root}/{name}")

    def _remove(self, directory: str) -> None:
        try:
            if self.host.exists(f"{directory}/{CHILD}"):
                self.host.rmdir(f"{directory}/{CHILD}")
            self.host.rmdir(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("scratch cgroup stays until the next start", error=str(error))


class NotHere(Exception):  # noqa: N818 - an outcome, not a mistake
    """A feature is missing; ``why`` and, where something can be done about it, ``remedy``."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


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
