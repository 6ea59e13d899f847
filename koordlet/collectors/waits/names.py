"""Whose cgroup an id is, in one hierarchy; kept from one look to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from koordlet.collectors.waits.groups import (
    Group,
    Kind,
    Place,
    group_of,
    paths_of,
    prefixes,
    victims,
)
from koordlet.collectors.waits.readings import Subjects
from koordlet.kernel.background import Pause
from koordlet.kernel.cgroup.ids import ids_below
from koordlet.kernel.host import Host

LIST_AGAIN_S = 300.0
"""After so long it is listed anew which cgroups containers have made in theirs."""
ROOT_ID = 1
GONE = Group(Kind.GONE, "")
_MOST_NAMES = 20_000


class Names:
    """``special``: ids that are no cgroups."""

    def __init__(self, host: Host, root: str, special: Mapping[int, Group] | None = None) -> None:
        self._host = host
        self._root = root
        self._special = {ROOT_ID: Group(Kind.SYSTEM, "/"), **(special or {})}
        self._groups: dict[int, Group] = dict(self._special)
        self._subjects: Subjects | None = None
        self._listed_s = -math.inf
        self.victims: dict[int, Place] = {}
        """Cgroups of latency-sensitive work."""

    def list(self, subjects: Subjects, pause: Pause) -> bool:
        """Bring ``victims`` up to date; whether it was listed anew."""
        now_s = self._host.monotonic()
        if subjects == self._subjects and now_s - self._listed_s < LIST_AGAIN_S:
            return False
        if subjects != self._subjects or len(self._groups) > _MOST_NAMES:
            self._groups = dict(self._special)
        found: dict[int, Place] = {}
        for place in victims(*subjects):
            ids = ids_below(self._host, f"{self._root}/{place.cgroup}", pause)
            found |= dict.fromkeys(ids, place)
        self._groups |= {cgroup: place.group for cgroup, place in found.items()}
        self.victims, self._subjects, self._listed_s = found, subjects, now_s
        return True

    def groups(self) -> dict[int, Group]:
        """Of the victims."""
        return {cgroup: place.group for cgroup, place in self.victims.items()}

    def of(self, ids: Iterable[int], pause: Pause) -> Mapping[int, Group]:
        """Of all ids, after ``list``. One that is found nowhere has gone, and stays so."""
        unknown = frozenset(ids) - self._groups.keys()
        if unknown and self._subjects is not None:
            of_prefix = prefixes(*self._subjects)
            self._groups |= dict.fromkeys(unknown, GONE)
            for cgroup, path in paths_of(self._host, self._root, unknown, pause).items():
                self._groups[cgroup] = group_of(path, of_prefix)
        return self._groups
