"""Who took the memory that others had to wait for. Pure.

No tracepoint says so. But who takes memory while there is none must itself reclaim some first, so
the pages that each cgroup reclaims for itself are what it takes. The same holds below the limit of
one cgroup: those below it compete with each other alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlet.collectors.waits.figures import Part
from koordlet.kernel.bpf.run_queue import OLDER
from koordlet.kernel.bpf.stalls import Stall

Scopes = Mapping[int, Mapping[int, Stall]]
_ALL = Part(1.0)
_NEVER = Stall(0, 0, 0)


def stalls_since(now: Scopes, before: Scopes) -> dict[int, dict[int, Stall]]:
    """What came on top, by scope and cgroup. A counter below its earlier value began anew."""
    found: dict[int, dict[int, Stall]] = {}
    nobody: Mapping[int, Stall] = {}
    for scope, stalls in now.items():
        earlier = before.get(scope, nobody)
        for cgroup, stall in stalls.items():
            last = earlier.get(cgroup, _NEVER)
            if stall.times < last.times:
                last = _NEVER
            if stall.times > last.times:
                new = (value - then for value, then in zip(stall, last, strict=True))
                found.setdefault(scope, {})[cgroup] = Stall(*new)
    return found


def blamed(stalls: Scopes, part: Part = _ALL) -> dict[int, dict[int, int]]:
    """Nanoseconds in this part of the time by victim and culprit: each cgroup's stalls, divided
    among all that reclaimed in the same scope, by pages; ``OLDER`` where nobody got one. A stall at
    one's own limit is nobody else's doing."""
    found: dict[int, dict[int, int]] = {}
    for scope, row in stalls.items():
        pages = sum(stall.pages for stall in row.values())
        weights = {cgroup: stall.pages / pages for cgroup, stall in row.items()} if pages else {}
        for victim, stall in row.items():
            into = found.setdefault(victim, {})
            ns = stall.ns * (part.rest if victim == scope else part.others)
            for culprit, weight in (weights or {OLDER: 1.0}).items():
                if weight:
                    into[culprit] = into.get(culprit, 0) + round(ns * weight)
    return found
