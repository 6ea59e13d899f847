"""Whose cgroup an id is, in one hierarchy; kept from one look to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest

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
from koordlet.kernel.cgroup.ids import MOST_IDS, ids_within
from koordlet.kernel.host import Host

LIST_AGAIN_S = 300.0
"""After so long it is listed anew which cgroups containers have made in theirs."""
ROOT_ID = 1
GONE = Group(Kind.GONE, "")
_MOST_NAMES = 20_000


class Names:
    """``special``: ids that are no cgroups.

    The kernel does not use an id again, so a name outlives its cgroup: the last waits for a job are
    found after it has ended. ``follow`` learns the names while the cgroups are there.
    """

    def __init__(self, host: Host, root: str, special: Mapping[int, Group] | None = None) -> None:
        self._host = host
        self.root = root
        self._special = {ROOT_ID: Group(Kind.SYSTEM, "/"), **(special or {})}
        self._groups: dict[int, Group] = dict(self._special)
        self._known: dict[str, Group] = {}
        """Cgroups whose ids have their names, by path."""
        self._subjects: Subjects | None = None
        self._listed_s = -math.inf
        self.victims: dict[int, Place] = {}
        """Cgroups of latency-sensitive work: first those of containers and applications, then those
        that these have made, in turns, so that none of them takes all the room there is. Another
        object after each change."""
        self.cut: tuple[str, ...] = ()
        """Those of ``victims`` that have more cgroups than are listed."""

    def list_victims(self, subjects: Subjects, pause: Pause) -> None:
        """Bring ``victims`` up to date."""
        now_s = self._host.monotonic()
        if subjects == self._subjects and now_s - self._listed_s < LIST_AGAIN_S:
            return
        self.follow(subjects, pause)
        places = tuple(victims(*subjects))
        listed = [ids_within(self._host, self._path(place.cgroup), pause) for place in places]
        found: dict[int, Place] = {}
        for turn in zip_longest(*(ids.found for ids in listed)):
            for cgroup, place in zip(turn, places, strict=True):
                if cgroup is not None:
                    found.setdefault(cgroup, place)
        self._groups |= {cgroup: place.group for cgroup, place in found.items()}
        self.victims, self._subjects, self._listed_s = found, subjects, now_s
        self.cut = tuple(place.cgroup for place, ids in zip(places, listed, strict=True) if ids.cut)

    def groups(self) -> dict[int, Group]:
        """Of the victims."""
        return {cgroup: place.group for cgroup, place in self.victims.items()}

    def follow(self, subjects: Subjects, pause: Pause) -> None:
        """Learn the names of who has come, before it has gone again."""
        wanted = prefixes(*subjects)
        if len(self._groups) > _MOST_NAMES:
            self._groups, self._known = dict(self._special), {}
        for path, group in tuple(self._known.items()):
            if wanted.get(path) != group:
                del self._known[path]
                if group.kind is Kind.APPLICATION:  # its cgroup stays, and is no longer its
                    self._forget(group)
        for path, group in wanted.items():
            if path not in self._known:
                ids = ids_within(self._host, self._path(path), pause).found
                if ids:
                    self._known[path] = group
                    self._groups |= dict.fromkeys(ids, group)

    def of(self, ids: Iterable[int], subjects: Subjects, pause: Pause) -> Mapping[int, Group]:
        """Of all ids. One that is found nowhere has gone, and stays so."""
        unknown = frozenset(ids) - self._groups.keys()
        if unknown:
            of_prefix = prefixes(*subjects)
            self._groups |= dict.fromkeys(unknown, GONE)
            for cgroup, path in paths_of(self._host, self.root, unknown, pause).items():
                self._groups[cgroup] = group_of(path, of_prefix)
        return self._groups

    def _path(self, cgroup: str) -> str:
        return f"{self.root}/{cgroup}"

    def _forget(self, group: Group) -> None:
        self._groups = {each: whose for each, whose in self._groups.items() if whose != group}


def left_out(names: Names, unwatched: int, lost: int) -> tuple[str, ...]:
    """What the figures do not contain. ``unwatched``: cgroups that found no room among the watched
    ones. ``lost``: waits that found no room in the kernel's maps."""
    found = [f"{each} has more than {MOST_IDS} cgroups, not all are watched" for each in names.cut]
    if unwatched:
        found.append(f"{unwatched} cgroups are beyond the bound of watched ones")
    if lost > 0:
        found.append(f"{lost} waits found no room in a map of the kernel")
    return tuple(found)
