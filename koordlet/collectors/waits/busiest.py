"""The busiest process of a culprit that is no pod, for whoever asks at 3 a.m. why
``system.slice/backup.service`` kept others waiting."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Mapping

from koordlet.collectors.waits.figures import Rows
from koordlet.collectors.waits.groups import Group, Kind
from koordlet.collectors.waits.readings import Subjects
from koordlet.collectors.waits.series import Labels
from koordlet.kernel.background import Pause
from koordlet.kernel.host import Host
from koordlet.kernel.proc.files import process_ticks

LEAST_MS_PER_S = 10.0
"""Whoever takes less is not looked at."""
MOST_LOOKED_AT = 3
MOST_CGROUPS = 16
"""Most directories of one culprit, and as many processes of each."""
MOST_PROCESSES = 64


class Busiest:
    """``root``: of the hierarchy in which the culprits are."""

    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._root = root
        self._ticks: dict[int, int] = {}
        """CPU time by process, as it was at the look before."""

    def of(self, rows: Rows, subjects: Subjects, pause: Pause) -> dict[Labels, float]:
        """Return by culprit its kind and the process; the value is the process' CPU time since the
        look before, in clock ticks. At the first look, all of its life counts."""
        took: dict[Group, float] = {}
        for row in rows.values():
            for group, ms in row.items():
                took[group] = took.get(group, 0.0) + ms
        paths = {app.name: app.cgroup for app in subjects[1]}
        before, self._ticks = self._ticks, {}
        found: dict[Labels, float] = {}
        for group in _worst(took):
            path = group.name if group.kind is Kind.SYSTEM else paths.get(group.name)
            busiest = self._busiest(path, before, pause) if path else None
            if busiest is not None:
                found[group.name, str(group.kind), busiest[1]] = float(busiest[0])
        return found

    def _busiest(
        self, path: str, before: Mapping[int, int], pause: Pause
    ) -> tuple[int, str] | None:
        """Its ticks and its name, with the cgroup below ``path`` that it is in."""
        found: list[tuple[int, str]] = []
        for below, pid in self._processes(path):
            pause()
            try:
                name, ticks = process_ticks(self._host, pid)
            except OSError:  # it has ended
                continue
            self._ticks[pid] = ticks
            found.append((ticks - before.get(pid, 0), f"{below}: {name}" if below else name))
        return max(found, default=None)

    def _processes(self, path: str) -> Iterator[tuple[str, int]]:
        waiting = deque([""])
        for _ in range(MOST_CGROUPS):
            if not waiting:
                return
            below = waiting.popleft()
            directory = f"{self._root}/{path}/{below}".rstrip("/")
            try:
                pids = self._host.read(f"{directory}/cgroup.procs").split()
                inodes = self._host.subdir_inodes(directory)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
                    raise
                continue
            yield from ((below, int(pid)) for pid in pids[:MOST_PROCESSES])
            waiting += [f"{below}/{name}".lstrip("/") for name in sorted(inodes)[:MOST_CGROUPS]]


def _worst(took: Mapping[Group, float]) -> list[Group]:
    """Parts of the system and applications; a pod says itself what it runs."""
    found = [
        group
        for group, ms in took.items()
        if ms >= LEAST_MS_PER_S
        and (group.kind is Kind.APPLICATION or (group.kind is Kind.SYSTEM and group.name != "/"))
    ]
    return sorted(found, key=lambda group: (-took[group], group))[:MOST_LOOKED_AT]
