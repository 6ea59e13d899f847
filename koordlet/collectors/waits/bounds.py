"""Nobody waits longer than its tasks had time.

Three things would say otherwise: the first look after a calm time, which divides the waits for
others of all victims alike; a wait for a CPU or for memory, which counts when it is over, though
most of it may be from before; and a defect. What one part of the time has no room for goes into the
others, and what none has room for is cut and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlet.collectors.waits.figures import PartRows, Row
from koordlet.collectors.waits.groups import Group, victims
from koordlet.collectors.waits.readings import Subjects
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

_TASK_MS_PER_S = 1000.0
_HEAVY = 0.5
"""Share of the time of one task: whose waits are less is not looked at."""
_LEAST_CUT_MS = 50.0
"""Readings of a busy machine take so long. What is cut below that is not told."""


class Tasks:
    """Count the tasks that victims have, or had at the look before where those were more: some end
    between their last wait and the look."""

    def __init__(self, host: Host, layout: Layout) -> None:
        self._host = host
        self._root = layout.v1.get("pids", layout.v2)
        self._before: dict[Group, int] = {}

    def within(
        self, parts: tuple[PartRows, ...], subjects: Subjects
    ) -> tuple[tuple[PartRows, ...], tuple[str, ...]]:
        """Return the waits, no more than there was time for, and what was cut."""
        heavy = {
            group
            for part in parts
            for group, row in part.rows.items()
            if sum(row.values()) > _HEAVY * _TASK_MS_PER_S
        }
        before, self._before = self._before, {}
        if not heavy:
            return parts, ()
        for place in victims(*subjects):
            if place.group in heavy and (count := self._count(place.cgroup)) is not None:
                self._before[place.group] = self._before.get(place.group, 0) + count
        most = {group: max(n, before.get(group, 0), 1) for group, n in self._before.items()}
        found, cut_ms = within_time(parts, most)
        return found, tuple(_told(cut_ms))

    def _count(self, cgroup: str) -> int | None:
        """Return None where the machine does not count them, or all have ended."""
        if self._root is None:
            return None
        try:
            return int(self._host.read(f"{self._root}/{cgroup}/pids.current")) or None
        except (OSError, ValueError):
            return None


def within_time(
    parts: tuple[PartRows, ...], tasks: Mapping[Group, int]
) -> tuple[tuple[PartRows, ...], dict[Group, float]]:
    """``tasks``: of victims; others are left as they are. The second result: milliseconds that no
    part had room for."""
    changed: list[dict[Group, Row]] = [{} for _ in parts]
    cut_ms: dict[Group, float] = {}
    for group, count in tasks.items():
        rows = [dict(part.rows.get(group, {})) for part in parts]
        most = count * _TASK_MS_PER_S
        if max(sum(row.values()) for row in rows) <= most:
            continue
        over: Row = {}
        for part, row in zip(parts, rows, strict=True):
            for culprit, ms in _taken(row, sum(row.values()) - most).items():
                over[culprit] = over.get(culprit, 0.0) + ms * part.span_s
        for part, row in zip(parts, rows, strict=True):
            room_ms = (most - sum(row.values())) * part.span_s
            for culprit, ms in _taken(over, min(room_ms, sum(over.values()))).items():
                row[culprit] = row.get(culprit, 0.0) + ms / part.span_s
        left = sum(over.values())
        if left > 0:
            cut_ms[group] = left
        for into, row in zip(changed, rows, strict=True):
            into[group] = row
    found = (
        PartRows(part.span_s, {**part.rows, **new}) if new else part
        for part, new in zip(parts, changed, strict=True)
    )
    return tuple(found), cut_ms


def _taken(row: Row, ms: float) -> Row:
    """So much of a row, of each cell the same share; it is gone from there."""
    whole = sum(row.values())
    if ms <= 0 or whole <= 0:
        return {}
    share = min(ms / whole, 1.0)
    taken = {culprit: value * share for culprit, value in row.items()}
    for culprit, value in taken.items():
        row[culprit] -= value
    return taken


def _told(cut_ms: Mapping[Group, float]) -> Iterator[str]:
    for group, ms in sorted(cut_ms.items()):
        if ms >= _LEAST_CUT_MS:
            yield (
                f"{ms:.0f} ms of waits of {group.kind} {group.name} are left out: "
                "more than its tasks had time for"
            )
