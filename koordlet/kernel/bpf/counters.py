"""Counters in the kernel by cgroup, of those cgroups alone that are watched."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from koordlet.kernel.bpf.syscalls import Map, delete, entries, update

MOST_WATCHED = 4096
"""As many entries as the maps in ``programs/`` have."""


class Counters:
    """A map in which the programs count, but make no entry: its keys are what is watched."""

    def __init__(self, map_: Map) -> None:
        self._map = map_
        self._zeros = bytes(8 * map_.stride)
        self.watched: frozenset[int] = frozenset()
        self._last: dict[int, tuple[int, tuple[int, ...]]] = {}
        """What was read last: the sum of all words, and the words."""

    def watch(self, cgroups: Collection[int]) -> int:
        """From now on count for these ids and no others, the first ones where not all have room;
        how many have none. A counter of one that was watched before goes on."""
        wanted = frozenset(islice(cgroups, MOST_WATCHED))
        for cgroup in self.watched - wanted:
            self._last.pop(cgroup, None)
            delete(self._map, (cgroup,))
        for cgroup in wanted - self.watched:
            update(self._map, (cgroup,), self._zeros)
        self.watched = wanted
        return len(cgroups) - len(wanted)

    def read(self, pause: Callable[[], None]) -> dict[int, tuple[int, ...]]:
        """The words of each entry, summed over the CPUs where each has its own. One in which
        nothing was counted is the tuple of the read before: most cgroups are idle."""
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        words, stride = self._map.value_words, self._map.stride
        for each in entries(self._map):
            for number, cgroup in enumerate(each.keys):
                pause()
                values = each.values[number * stride : (number + 1) * stride]
                total, last = sum(values), self._last.get(cgroup)
                found[cgroup] = (
                    last
                    if last is not None and last[0] == total
                    else (total, tuple(sum(values[word::words]) for word in range(words)))
                )
        self._last = found
        return {cgroup: words_ for cgroup, (_, words_) in found.items()}
