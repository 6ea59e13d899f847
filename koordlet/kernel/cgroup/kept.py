"""Files of hundreds of cgroups that a decision reads at each tick, kept open in between: a read
costs an eighth of what it costs to open the file each time."""

from __future__ import annotations

import errno
import resource

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.forms import Form
from koordlet.kernel.host import File, Host, whole_lines
from koordlet.kernel.parse import ParseError

RESOURCES = frozenset({Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US})
MOST_KEPT = 2048
"""A choice: quotas and periods of 300 pods with 600 containers, on cgroup v1 in files of their
own."""


_Key = tuple[str, Resource]


class KeptFiles:
    """At most ``limit`` files stay open, and never more than a quarter of RLIMIT_NOFILE. What comes
    beyond is opened each time."""

    def __init__(self, host: Host, cgroups: Cgroups, limit: int = MOST_KEPT) -> None:
        self._host = host
        self._cgroups = cgroups
        self._limit = min(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._files: dict[str, File] = {}
        self._known: dict[_Key, tuple[File, Form]] = {}
        self._keys: dict[str, list[_Key]] = {}
        """By path: on v2 a file holds quota and period."""

    def __len__(self) -> int:
        return len(self._files)

    def read(self, cgroup: str, resource: Resource) -> Value:
        """The canonical value. Raises as ``Cgroups.read``.

        An open file stays with a cgroup that is renamed, while its path may lead to another one by
        then: call ``close`` when cgroups have come, gone or moved.
        """
        known = self._known.get((cgroup, resource))
        if known is None:
            known = self._open(cgroup, resource)
        if known is None:
            return self._cgroups.read(cgroup, resource)
        file, form = known
        try:
            data = whole_lines(file.read(), file.path)
        except OSError as error:
            self._forget(file)
            if error.errno != errno.ENODEV:
                raise
            return self._cgroups.read(cgroup, resource)  # gone, or made anew
        try:
            return form.parse(data)
        except ValueError as error:
            raise ParseError(file.path, 0, str(error)) from error

    def close(self) -> None:
        """Close all. The next reads open them anew."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._known.clear()
        self._keys.clear()

    def _open(self, cgroup: str, resource: Resource) -> tuple[File, Form] | None:
        path, form = self._cgroups.locate(cgroup, resource)
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= self._limit:
                return None
            try:
                file = self._files[path] = self._host.open(path)
            except OSError:
                return None
        self._keys.setdefault(path, []).append((cgroup, resource))
        known = self._known[cgroup, resource] = file, form
        return known

    def _forget(self, file: File) -> None:
        for key in self._keys.pop(file.path):
            del self._known[key]
        del self._files[file.path]
        file.close()
