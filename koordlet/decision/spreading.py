"""Which thread of best-effort work is kept on which CPU, so that each CPU has as many. Pure.

Linux moves tasks from a busy CPU to another one by their weight, and those that weigh least first:
it is content with a best-effort task where a latency-sensitive one should have gone, which then
waits behind its own kind while the other CPU runs best effort. Tasks that may not be moved leave it
no choice (``docs/concepts/cpu-means.md``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from koordlet.protocol.cpuset import CPUSet

MOST_MOVES = 8
"""Threads that one pass moves from CPU to CPU: each loses what its caches hold."""
_WORTH = 1.0
"""CPUs whose demand differs by less cannot be made more equal by moving a whole thread."""


class Thread(NamedTuple):
    """``demand``: share of the time in which it ran or waited to run, 0 to 1. ``cpu``: where it is
    kept; None: nowhere yet."""

    id: int
    demand: float
    cpu: int | None


def places(threads: Sequence[Thread], cpus: CPUSet) -> dict[int, int]:
    """Return thread -> CPU for those that are to be kept elsewhere than now. Empty where the
    threads together want less than all of the CPUs: who is kept on one leaves another one idle."""
    if not cpus or not is_worth_it(threads, cpus):
        return {}
    load = dict.fromkeys(sorted(cpus), 0.0)
    count = dict.fromkeys(load, 0)
    found: dict[int, int] = {}
    homeless = []
    for thread in threads:
        if thread.cpu in load:
            load[thread.cpu] += thread.demand
            count[thread.cpu] += 1
        else:
            homeless.append(thread)
    for thread in sorted(homeless, key=lambda each: (-each.demand, each.id)):
        cpu = min(load, key=lambda each: (load[each], count[each], each))
        load[cpu] += thread.demand
        count[cpu] += 1
        found[thread.id] = cpu
    return found | _evened(threads, load)


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


def is_worth_it(threads: Iterable[Thread], cpus: Collection[int]) -> bool:
    """Whether the threads want every CPU."""
    return sum(each.demand for each in threads) >= len(cpus) * 0.9


def parents_of_many(parents: Mapping[int, int]) -> frozenset[int]:
    """Return processes that have several children. ``parents``: process -> its parent. Who is kept
    on one CPU makes its children there, and all of them would wait for that one."""
    seen: set[int] = set()
    many: set[int] = set()
    for parent in parents.values():
        (many if parent in seen else seen).add(parent)
    return frozenset(many & parents.keys())
