"""Keeps the daemon off the CPUs to which latency-sensitive work is pinned.

A service that has a CPU for itself must not share it with whoever measures it. The daemon is work
of the system like any other, and goes where that may run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from koordlet.decision.snapshot import Node, Pod
from koordlet.protocol.cpuset import CPUSet, format_cpulist

log = structlog.get_logger()

Move = Callable[[CPUSet], None]


class OwnCpus:
    """``first``: the CPUs that the daemon was started with. ``move`` raises OSError."""

    def __init__(self, first: CPUSet, move: Move) -> None:
        self._first = first
        self._move = move
        self._now = first
        self._seen: tuple[tuple[Pod, ...], CPUSet] | None = None

    def follow(self, node: Node, pods: tuple[Pod, ...]) -> None:
        """To be called at each tick; it works only when pods or the node have changed."""
        static = node.kubelet.static_cpus
        if self._seen is not None and self._seen[0] is pods and self._seen[1] == static:
            return
        self._seen = (pods, static)
        wanted = beside(self._first, static, pods)
        if wanted == self._now:
            return
        self._now = wanted
        try:
            self._move(wanted)
        except OSError as error:
            # Its cpuset was changed by somebody, and counts for more than our wish.
            log.warning("own CPUs", wanted=format_cpulist(wanted), error=error.strerror)
            return
        log.info("own CPUs", cpus=format_cpulist(wanted))


def beside(first: CPUSet, static: CPUSet, pods: Iterable[Pod]) -> CPUSet:
    """``first`` without those of LSE and LSR pods, and without ``static``, which kubelet gave to
    containers alone. All of them where nothing would be left."""
    taken = static.union(*(pod.own_cpus for pod in pods))
    return (first - taken) or first
