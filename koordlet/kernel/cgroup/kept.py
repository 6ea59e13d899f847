"""Files of hundreds of cgroups that a decision reads at each tick, kept open in between: a read
costs an eighth of what it costs to open the file each time."""

from __future__ import annotations

import errno
import resource

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.forms import Form
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host, whole_lines
from koordlet.kernel.parse import ParseError

RESOURCES = frozenset({Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US})
MOST_KEPT = 2048
"""A choice: quotas and periods of 300 pods with 600 containers, on cgroup v1 in files of their
own."""
_GONE = (errno.ENOENT, errno.ENODEV)


class KeptFiles:
    """At most ``limit`` files stay open, and never more than a quarter of RLIMIT_NOFILE:
    collectors have half. What comes beyond is opened each time."""

    def __init__(self, host: Host, cgroups: Cgroups, limit: int = MOST_KEPT) -> None:
        quarter = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self._files = Descriptors(host, min(limit, quarter))
        self._cgroups = cgroups
        self._places: dict[tuple[str, Resource], tuple[str, Form]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def read(self, cgroup: str, resource: Resource) -> Value:
        """The canonical value. Raises as ``Cgroups.read``.

        An open file stays with a cgroup that is renamed, while its path may lead to another one by
        then: call ``close`` when cgroups have come, gone or moved.
        """
        place = self._places.get((cgroup, resource))
        if place is None:
            place = self._places[cgroup, resource] = self._cgroups.locate(cgroup, resource)
        path, form = place
        try:
            data = whole_lines(self._files.read(path), path)
        except OSError as error:
            del self._places[cgroup, resource]
            if error.errno not in _GONE:
                raise
            return self._cgroups.read(cgroup, resource)  # elsewhere by now, or says what is missing
        try:
            return form.parse(data)
        except ValueError as error:
            raise ParseError(path, 0, str(error)) from error

    def close(self) -> None:
        """Close all. The next reads open them anew."""
        self._files.close()
        self._places.clear()
