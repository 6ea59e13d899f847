"""Cgroups by their path relative to the hierarchy roots, the same on v1, hybrid and v2.

Whether a resource is supported is decided by the file being there, each time: a cgroup made a
moment ago may have what was missing before.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from koordlet.decision.names import shown
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.forms import Form, Weight
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.cgroup.table import TABLE, Knob, Row
from koordlet.kernel.host import Host, read_lines
from koordlet.kernel.parse import ParseError

_GONE = (errno.ENOENT, errno.ENODEV)
_MAY_RECLAIM = frozenset({Resource.MEMORY_HIGH, Resource.MEMORY_LIMIT})
_ABOVE = 1000
"""So many cgroups are tried as the new name of one above."""


class Unsupported(Exception):  # noqa: N818 - an outcome, not a mistake
    """This host, or this cgroup, has no file for the resource. ``remedy``: what can be done about
    it, empty when nothing is known."""

    def __init__(self, resource: Resource, why: str, remedy: str = "") -> None:
        super().__init__(f"{resource}: {why}; {remedy}" if remedy else f"{resource}: {why}")
        self.resource = resource
        self.why = why
        self.remedy = remedy


# A setting that makes systemd enable the controller, for the unit and its neighbours.
_UNIT_SETTING = {
    "cpu": "CPUWeight=",
    "cpuset": "AllowedCPUs=",
    "io": "IOWeight=",
    "memory": "MemoryMax=",
    "pids": "TasksMax=",
}


def enabling(controller: str, control: str) -> str:
    """What to do about a controller that is not in the cgroup.subtree_control ``control``."""
    text = f"echo +{controller} > {shown(control)}"
    setting = _UNIT_SETTING.get(controller)
    return f"{text}; under systemd set {setting} of a unit there" if setting else text


def check_path(cgroup: str) -> None:
    """Raises ValueError for a path that is not plain names joined by ``/``."""
    if not cgroup:
        return
    if "\0" in cgroup or any(part in ("", ".", "..") for part in cgroup.split("/")):
        raise ValueError(
            f"cgroup path {cgroup!r}: must be relative to the hierarchy root, without '..', "
            "empty parts or NUL"
        )


class Place(NamedTuple):
    """The directory of a cgroup, and its id. Each hierarchy counts its ids for itself."""

    directory: str
    id: int


class Cgroups:
    """Every method raises ValueError for a path that leaves the root. ``read``, ``write`` and
    their raw forms raise Unsupported when the cgroup lacks the file, FileNotFoundError or
    OSError ENODEV when the cgroup is gone, and any other OSError as the kernel gave it.
    """

    def __init__(self, host: Host, layout: Layout) -> None:
        self._host = host
        self.layout = layout
        self._places = {row.resource: self._places_of(row) for row in TABLE.values()}
        self.file_of_ours: Callable[[str, Resource], str] = lambda cgroup, resource: ""
        """The file in which a value of ours stands. Of a resource that two hierarchies have, the
        other one is not used while this one is there."""

    def write_weights(self, *, modern: bool) -> None:
        """Make ``cpu.weight`` of shares by this rule from now on."""
        self._places[Resource.CPU_SHARES] = tuple(
            (root, replace(knob, form=Weight(modern=modern)) if _is_weight(knob) else knob)
            for root, knob in self._places[Resource.CPU_SHARES]
        )

    def path(self, cgroup: str, resource: Resource) -> str:
        """The file. Raises Unsupported when its controller is mounted nowhere."""
        return self.locate(cgroup, resource)[0]

    def locate(self, cgroup: str, resource: Resource) -> tuple[str, Form]:
        """Path and form; of two hierarchies that could have the file, the one that has it. Raises
        like ``path``."""
        check_path(cgroup)
        first = self._first(resource)
        places = self._places[resource]
        middle = f"/{cgroup}/" if cgroup else "/"
        if len(places) > 1:
            ours = self.file_of_ours(cgroup, resource)
            for root, knob in sorted(places, key=lambda p: p[0] + middle + p[1].file != ours):
                path = root + middle + knob.file
                stays = path == ours and not self._is_removed(root, path.rpartition("/")[0])
                if stays or self._host.exists(path):
                    return path, knob.form
        return places[0][0] + middle + first.file, first.form

    def directory(self, cgroup: str, resource: Resource) -> str:
        """The directory that holds the file. Raises like ``path``."""
        return self.path(cgroup, resource).rpartition("/")[0]

    def directories(self, cgroup: str) -> tuple[str, ...]:
        """The cgroup's directory in every hierarchy where it exists."""
        check_path(cgroup)
        found = (f"{root}/{cgroup}" if cgroup else root for root in self.layout.roots)
        return tuple(path for path in found if self._host.exists(path))

    def exists(self, cgroup: str) -> bool:
        return bool(self.directories(cgroup))

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        """Paths of the direct children, sorted, in the hierarchy that has the files of ``of``; else
        as the reference hierarchy has them (``Layout.reference_root``). Empty when the cgroup is
        gone. Raises Unsupported where ``of`` has no hierarchy."""
        if of is None:
            check_path(cgroup)
            root = self.layout.reference_root
            directory = f"{root}/{cgroup}" if cgroup else root
        else:
            directory = self.directory(cgroup, of)
        try:
            names = self._host.subdirs(directory)
        except OSError as error:
            if error.errno in _GONE:
                return ()
            raise
        return tuple(f"{cgroup}/{name}" if cgroup else name for name in names)

    def child_ids(self, cgroup: str, resource: Resource) -> dict[str, int]:
        """The direct children in the hierarchy that holds ``resource``, with their cgroup ids;
        empty when the cgroup is gone."""
        try:
            found = self._host.subdir_inodes(self.directory(cgroup, resource))
        except OSError as error:
            if error.errno in _GONE:
                return {}
            raise
        return {f"{cgroup}/{name}" if cgroup else name: inode for name, inode in found.items()}

    def read(self, cgroup: str, resource: Resource) -> Value:
        """The canonical value. Raises ParseError when the file holds something else."""
        path, form = self.locate(cgroup, resource)
        data = self._read(cgroup, path, resource)
        with _naming(path):
            return form.parse(data)

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        return self._read(cgroup, self.path(cgroup, resource), resource)

    def encode(self, resource: Resource, value: Value) -> bytes:
        """The text that stands for ``value`` in the file (of a shared file, its own part).

        Raises ValueError naming the resource and its range, and Unsupported.
        """
        return self._encode(self._first(resource).form, resource, value)

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        """Bring the file to ``value``. A file of several lines takes several writes; devices
        that the value does not list are cleared."""
        path, form = self.locate(cgroup, resource)
        self._encode(form, resource, value)
        with _naming(path):
            writes = form.writes(value, lambda: self._read(cgroup, path, resource))
        self._write(cgroup, path, resource, writes)

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        """Put back what ``read_raw`` gave: verbatim, or, where the file holds more than this
        resource (cpu.max, io.max), this resource's part of it."""
        path, form = self.locate(cgroup, resource)
        with _naming(path):
            writes = form.raw_writes(data, lambda: self._read(cgroup, path, resource))
        self._write(cgroup, path, resource, writes)

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        """Whether the file is byte for byte what ``read_raw`` gave."""
        return self.read_raw(cgroup, resource) == data

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        """Whether a file that reads as ``found`` holds ``wanted`` already.

        Lists count as sets, limits by whole pages, all forms of unlimited as one, and a
        cpu.weight of either conversion rule as the shares it was made of (so the order of the
        arguments matters). Raises Unsupported, and ValueError for values of the wrong type.
        """
        return self._first(resource).form.equal(wanted, found)

    def made(self, resource: Resource, written: Value, found: Value) -> bool:
        """Whether writing ``written`` gives a file that reads as ``found``. Raises as ``equal``."""
        return self._first(resource).form.made(written, found)

    def id(self, cgroup: str, resource: Resource) -> int:
        """The cgroup id in the hierarchy that holds ``resource``."""
        return self.place(cgroup, resource).id

    def place(self, cgroup: str, resource: Resource) -> Place:
        """Tell the cgroup from another one of its name. Raises like ``path``, and OSError where
        there is none."""
        directory = self.directory(cgroup, resource)
        return Place(directory, self._host.inode(directory))

    def has_lost(self, cgroup: str, resource: Resource) -> bool:
        """Whether what the file held is gone for good: the cgroup was removed, or its v2 parent has
        taken the controller away. False for one that is only out of sight, because its hierarchy is
        not mounted or its directory cannot be entered."""
        try:
            path = self.path(cgroup, resource)
        except Unsupported:
            return False
        root = next(root for root, _ in self._places[resource] if path.startswith(f"{root}/"))
        if self._is_removed(root, path.rpartition("/")[0]):
            return True
        if self._host.exists(path):
            return False
        knob = self._knob_of(path, resource)
        try:
            return knob.controller is not None and bool(self.kept_by(path, knob.controller))
        except OSError:
            return False

    def _is_removed(self, root: str, directory: str) -> bool:
        """To be seen: the hierarchy is there, and the directory is not."""
        try:
            self._host.inode(directory)
        except OSError as error:
            return error.errno == errno.ENOENT and self._host.exists(f"{root}/cgroup.procs")
        return False

    def moved_to(
        self,
        cgroup: str,
        inode: int,
        path: str,
        listed: MutableMapping[str, Mapping[str, int]],
    ) -> str | None:
        """Where the cgroup of this id is now, a file of which was at ``path``. Only v1 lets cgroups
        be renamed, each in its place (``cgroup1_rename`` in kernel/cgroup/cgroup-v1.c); another
        name of one above it moves it too.

        ``listed``: what was listed for others a moment ago, directory -> names with ids.
        """
        roots = (root for root in self.layout.v1.values() if f"{root}/{cgroup}/" in path)
        root = next(roots, None)
        parts = cgroup.split("/")
        for depth in range(len(parts), 0, -1) if root is not None else ():
            above, below = parts[: depth - 1], parts[depth:]
            directory = "/".join((root or "", *above))
            with suppress(OSError):
                if directory not in listed:
                    listed[directory] = self._host.subdir_inodes(directory)
                most = _ABOVE if below else None
                for name, beside in islice(listed[directory].items(), most):
                    candidate = "/".join((*above, name, *below))
                    if candidate == cgroup:
                        continue
                    if self._has_id(f"{root}/{candidate}", inode) if below else beside == inode:
                        return candidate
        return None

    def _has_id(self, directory: str, inode: int) -> bool:
        try:
            return self._host.inode(directory) == inode
        except OSError:
            return False

    def _places_of(self, row: Row) -> tuple[tuple[str, Knob], ...]:
        places = []
        if row.v1 is not None and (root := self.layout.v1.get(row.v1.controller or "")):
            places.append((root, row.v1))
        if (
            row.v2 is not None
            and self.layout.v2 is not None
            and (row.v2.controller is None or row.v2.controller in self.layout.v2_controllers)
        ):
            places.append((self.layout.v2, row.v2))
        return tuple(reversed(places)) if row.v2_first else tuple(places)

    def _first(self, resource: Resource) -> Knob:
        places = self._places[resource]
        if not places:
            row = TABLE[resource]
            raise Unsupported(resource, _nowhere(row, self.layout))
        return places[0][1]

    def _encode(self, form: Form, resource: Resource, value: Value) -> bytes:
        if TABLE[resource].read_only:
            raise ValueError(f"{resource}: the file is read-only")
        try:
            return form.format(value)
        except ValueError as error:
            raise ValueError(f"{resource}: {error}") from error

    def _read(self, cgroup: str, path: str, resource: Resource) -> bytes:
        try:
            return read_lines(self._host, path)
        except FileNotFoundError as error:
            raise self._missing(cgroup, path, resource) or error from error

    def _write(self, cgroup: str, path: str, resource: Resource, writes: list[bytes]) -> None:
        write = self._host.write_limit if resource in _MAY_RECLAIM else self._host.write
        try:
            for data in writes:
                write(path, data)
        except FileNotFoundError as error:
            raise self._missing(cgroup, path, resource) or error from error

    def _missing(self, cgroup: str, path: str, resource: Resource) -> Unsupported | None:
        """Why the file is not there; None when the cgroup is in no hierarchy any more."""
        directory = path.rpartition("/")[0]
        if not self._host.exists(directory):
            elsewhere = self.directories(cgroup)
            if not elsewhere:
                return None
            found = ", ".join(map(shown, elsewhere))
            why = f"{shown(directory)} does not exist, the cgroup is only in {found}"
            return Unsupported(resource, why)
        knob = self._knob_of(path, resource)
        why, remedy = f"{shown(path)} does not exist", ""
        if knob.controller is not None and (control := self.kept_by(path, knob.controller)):
            why += f": controller {knob.controller} is not enabled in {shown(control)}"
            remedy = enabling(knob.controller, control)
        if knob.vendor:
            why += f" ({knob.vendor})"
        return Unsupported(resource, why, "" if knob.vendor else remedy)

    def _knob_of(self, path: str, resource: Resource) -> Knob:
        file = path.rpartition("/")[2]
        return next(knob for _, knob in self._places[resource] if knob.file == file)

    def kept_by(self, path: str, controller: str) -> str:
        """The parent's cgroup.subtree_control, where a v2 file is missing because the parent
        keeps the controller to itself; empty when that is not the reason."""
        root, directory = self.layout.v2, path.rpartition("/")[0]
        if root is None or not directory.startswith(f"{root}/"):
            return ""
        control = f"{directory.rpartition('/')[0]}/cgroup.subtree_control"
        return "" if controller in self._host.read(control).decode().split() else control


def _is_weight(knob: Knob) -> bool:
    return isinstance(knob.form, Weight)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Content that is not in its file's format names the file."""
    try:
        yield
    except ValueError as error:
        raise ParseError(path, 0, str(error)) from error


def _nowhere(row: Row, layout: Layout) -> str:
    """Why no mounted hierarchy can have the file."""
    needs = []
    if row.v1 is not None:
        needs.append(f"v1 controller {row.v1.controller}")
    if row.v2 is not None:
        controller = row.v2.controller
        needs.append("cgroup v2" if controller is None else f"v2 controller {controller}")
    return f"needs {' or '.join(needs)}, which is not mounted (layout {layout.kind})"
