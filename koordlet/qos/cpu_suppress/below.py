"""Finds cgroups below pods, containers and applications, perhaps thousands, that have a CPU list of
their own: cgroup v1 refuses a list of the parent in which they do not fit.

A decision looks at ``LOOKS`` of them. If there are more, a round takes several decisions: those
that were found stay found until a whole round has not found them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from koordlet.decision.cgroups import parent
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce

LOOKS = 200
"""Cgroups looked at in one decision: some 5 ms."""
NAMES_PER_LOOK = 25
"""Listing this many names costs as much as looking at one cgroup."""
FOLLOWERS = 256
"""Most cgroups that are managed; more cannot be written within a tick. A cgroup with ``SIBLINGS``
siblings counts twice, one with twice as many three times: the kernel compares a new list with those
of all siblings (``validate_change`` in kernel/cgroup/cpuset.c), which takes 3 ms for 10,000."""
SIBLINGS = 400


class Below(msgspec.Struct, frozen=True):
    """What is known after a decision. ``waiting``: to be looked at in this round. ``found``: those
    of this round that must follow, ``known``: those of the last whole round; ``more``, ``beyond``:
    how many more there are than can follow, in this round so far and in the last one; ``example``:
    one of them. ``crowds``: cgroup -> how many more than once each of those directly in it counts.
    ``room``: for how many more there is in this round."""

    waiting: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    more: int = 0
    beyond: int = 0
    example: str = ""
    crowds: Mapping[str, int] = {}
    room: int = FOLLOWERS

    @property
    def followers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.known, *self.found)))

    @property
    def left_out(self) -> int:
        """How many of those that must follow are too many to manage."""
        return max(self.more, self.beyond)


def look(
    in_force: InForce,
    tops: Iterable[str],
    memory: Below,
    follows: Callable[[str], bool],
) -> Below:
    """Look at what is below ``tops``, which are not looked at themselves, as far as one decision
    may. ``follows``: whether a cgroup has a list of its own."""
    above = dict.fromkeys(tops)
    waiting = deque(memory.waiting or above)
    found, more, left = list(memory.found), memory.more, LOOKS
    crowds, room, example = dict(memory.crowds), memory.room, memory.example
    while waiting and left > 0:
        cgroup = waiting.popleft()
        if cgroup not in above:
            left -= 1
            if follows(cgroup):
                counts = 1 + crowds.get(parent(cgroup), 0)
                if counts <= room:
                    found.append(cgroup)
                    room -= counts
                else:
                    more, example = more + 1, example or cgroup
        below = [
            each for each in in_force.children(cgroup, Resource.CPUSET_CPUS) if each not in above
        ]
        left -= len(below) // NAMES_PER_LOOK
        if len(below) >= SIBLINGS:
            crowds[cgroup] = len(below) // SIBLINGS
        waiting.extend(below)
    if waiting:
        known = tuple(each for each in memory.known if _is_below(each, above))
        before = memory.beyond
        return Below(tuple(waiting), tuple(found), known, more, before, example, crowds, room)
    return Below(known=tuple(found), beyond=more, example=example if more else "")


def _is_below(cgroup: str, above: dict[str, None]) -> bool:
    while cgroup:
        if cgroup in above:
            return True
        cgroup = parent(cgroup)
    return False
