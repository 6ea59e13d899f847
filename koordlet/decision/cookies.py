"""Core-scheduling cookies: from what processes hold to what their group shall hold
(docs/reference/hooks.md
2.5, Linux ``Documentation/admin-guide/hw-vuln/core-scheduling.rst``).

Nothing is remembered between turns: the kernel holds the cookies, children inherit them, and a
group's cookie is whatever most of its processes hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec


class Observed(msgspec.Struct, frozen=True):
    """Processes of one cgroup. ``cookies``: pid (thread-group id) -> cookie, 0 = none."""

    cgroup: str
    cookies: Mapping[int, int]


class Create(msgspec.Struct, frozen=True):
    """A new cookie for the first of ``pids``, shared from it to the rest."""

    pids: tuple[int, ...]


class ShareCookie(msgspec.Struct, frozen=True):
    """The cookie of ``from_pid`` for each of ``to_pids``."""

    from_pid: int
    to_pids: tuple[int, ...]


class Clear(msgspec.Struct, frozen=True):
    """No cookie for each of ``pids``: shared from a thread that has none itself."""

    pids: tuple[int, ...]


Step = Create | ShareCookie | Clear


def steps(
    cgroup: str,
    group: str,
    observed: Observed,
    siblings: Sequence[Observed],
    taken: Collection[int] = (),
) -> tuple[Step, ...]:
    """What to do, in order, so that the processes of ``cgroup`` hold the cookie of ``group``.

    ``group`` ``""``: none. ``siblings``: other cgroups that are in the group now. ``taken``:
    cookies that processes of other groups hold; a process that came from there keeps it no longer.
    Empty when all is well. With several cookies in one group the one that most processes hold
    stays, of two the smaller: it is the same seen from every cgroup, so a turn over all cgroups,
    each observed when it is its turn, unites them. Where groups shared a cookie, a turn parts them
    and the next one unites.
    """
    if not group:
        held = tuple(sorted(pid for pid, cookie in observed.cookies.items() if cookie))
        return (Clear(held),) if held else ()
    holders = _holders((observed, *(other for other in siblings if other.cgroup != cgroup)))
    counts = Counter({c: len(pids) for c, pids in holders.items() if c and c not in taken})
    if not counts:
        everyone = tuple(sorted(observed.cookies))
        return (Create(everyone),) if everyone else ()
    target = min(counts, key=lambda cookie: (-counts[cookie], cookie))
    others = tuple(sorted(pid for pid, cookie in observed.cookies.items() if cookie != target))
    return (ShareCookie(min(holders[target]), others),) if others else ()


def _holders(cgroups: Sequence[Observed]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in cgroups:
        for pid, cookie in each.cookies.items():
            found.setdefault(cookie, []).append(pid)
    return found
