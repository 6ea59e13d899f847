"""Which thread of best-effort work is kept on which CPU, so that each CPU has as many. Pure.

Linux moves tasks from a busy CPU to another one by their weight, and those that weigh least first:
it is content with a best-effort task where a latency-sensitive one should have gone, which then
waits behind its own kind while the other CPU runs best effort. Tasks that may not be moved leave it
no choice (``docs/concepts/cpu-spread.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koordlet.protocol.cpuset import CPUSet

MOST_MOVES = 8
"""Threads that one look moves from CPU to CPU: each loses what its caches hold."""
BUSY, IDLE = 0.3, 0.1
"""A thread is kept once it wants this share of a CPU, until it wants no more than the other. One
that seldom runs is in nobody's way, and a program that it starts would find one CPU to run on."""
_FILLED = 0.9
"""Share of the CPUs that the busy threads together must want."""
_WORTH = 1.0
"""CPUs whose demand differs by less cannot be made more equal by moving a whole thread."""


class Thread(NamedTuple):
    """``demand``: share of the time in which it ran or waited to run, 0 to 1. ``cpu``: where it is
    kept; None: nowhere."""

    id: int
    demand: float
    cpu: int | None

    @property
    def is_busy(self) -> bool:
        return self.demand > (BUSY if self.cpu is None else IDLE)


def places(threads: Iterable[Thread], cpus: CPUSet) -> dict[int, int | None]:
    """Return thread -> CPU for those that are to be kept elsewhere than now, None for those that
    are to be let go: all of them where the busy ones together want less than all of the CPUs,
    since who is kept on one leaves another one idle."""
    threads = list(threads)
    busy = [each for each in threads if each.is_busy]
    if len(cpus) < 2 or sum(each.demand for each in busy) < len(cpus) * _FILLED:
        busy = []
    kept = {each.id for each in busy}
    found: dict[int, int | None] = {
        each.id: None for each in threads if each.cpu is not None and each.id not in kept
    }
    if not busy:
        return found
    load = dict.fromkeys(sorted(cpus), 0.0)
    homeless = []
    for thread in busy:
        if thread.cpu in load:
            load[thread.cpu] += thread.demand
        else:
            homeless.append(thread)
    for thread in sorted(homeless, key=lambda each: (-each.demand, each.id)):
        cpu = min(load, key=lambda each: (load[each], each))
        load[cpu] += thread.demand
        found[thread.id] = cpu
    return found | _evened(busy, load)


def _evened(threads: Sequence[Thread], load: dict[int, float]) -> dict[int, int]:
    """Moves from the CPU that most is wanted of to the one of which least is. Changes ``load``."""
    moved: dict[int, int] = {}
    kept = [each for each in threads if each.cpu in load]
    for _ in range(MOST_MOVES):
        most, least = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
        gap = load[most] - load[least]
        if gap <= _WORTH:
            break
        candidates = [
            each for each in kept if each.cpu == most and each.id not in moved and each.demand < gap
        ]
        if not candidates:
            break
        best = max(candidates, key=lambda each: (min(each.demand, gap - each.demand), -each.id))
        if min(best.demand, gap - best.demand) <= 0:
            break
        moved[best.id] = least
        load[most] -= best.demand
        load[least] += best.demand
    return moved


def parents_of_many(parents: Mapping[int, int]) -> frozenset[int]:
    """Return processes that have several children. ``parents``: process -> its parent. Who is kept
    on one CPU makes its children there, and all of them would wait for that one."""
    seen: set[int] = set()
    many: set[int] = set()
    for parent in parents.values():
        (many if parent in seen else seen).add(parent)
    return frozenset(many & parents.keys())
