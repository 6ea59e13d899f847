"""The rule by which the node's runtime makes ``cpu.weight`` of shares.

runc 1.3.2 and crun 1.28 have another one than their predecessors: 512 shares are weight 59, not 20.
Beside a container of theirs, ours must have been made by the same rule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from koordlet.actuator.merge import Key
from koordlet.decision.cpu_amounts import milli_to_shares
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Container, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.conversions import is_modern, shares_to_weight
from koordlet.protocol.qos import KubeQoS

EVERY_S = 60.0
"""Seconds between two looks; a runtime is seldom replaced."""
AGAIN_S = 5.0
"""Seconds between two looks as long as no container tells the rule."""
MOST_READ = 16
"""Containers that are asked. One that is being resized may speak for the wrong rule."""


class WeightRule:
    """``is_ours``: whether koordlet has written the file, which then says nothing of the
    runtime."""

    def __init__(self, cgroups: Cgroups, is_ours: Callable[[Key], bool]) -> None:
        self._cgroups = cgroups
        self._is_ours = is_ours
        self._due_s = -math.inf
        self._undecided: tuple[Pod, ...] | None = ()
        self.modern = False

    def look(self, pods: tuple[Pod, ...], now_s: float) -> bool:
        """Follow the rule of most containers; return whether it is another one than before.
        ``now_s``: monotonic seconds."""
        is_news = self._undecided is not None and pods is not self._undecided
        if not (is_news or now_s >= self._due_s) or not self._has_weights:
            return False
        votes = Counter(map(self._vote, islice(self._asked(pods), MOST_READ)))
        decided = votes[True] != votes[False]
        self._due_s = now_s + (EVERY_S if decided else AGAIN_S)
        self._undecided = None if decided else pods
        modern = votes[True] > votes[False]
        if not decided or modern is self.modern:
            return False
        self.modern = modern
        self._cgroups.write_weights(modern=modern)
        return True

    @property
    def _has_weights(self) -> bool:
        return "cpu" in self._cgroups.layout.v2_controllers

    def _asked(self, pods: Iterable[Pod]) -> Iterator[tuple[Key, int]]:
        """Files that a runtime has made of known shares."""
        for pod in pods:
            if pod.kube_qos is KubeQoS.BEST_EFFORT:  # its shares are those of batch resources
                continue
            for container in pod.containers:
                key, shares = Key(container.cgroup, Resource.CPU_SHARES), _shares(container)
                if shares is not None and not self._is_ours(key):
                    yield key, shares

    def _vote(self, asked: tuple[Key, int]) -> bool | None:
        key, shares = asked
        try:
            found = self._cgroups.read(*key)
            return is_modern(shares, shares_to_weight(int(found)))
        except (OSError, ValueError, Unsupported):
            return None


def _shares(container: Container) -> int | None:
    """Return what kubelet asks for it; None where nobody knows, or it asks for nothing."""
    milli = container.resources.request_cpu_milli
    asked: Value | None = container.requested.get(Resource.CPU_SHARES)
    if milli:
        asked = milli_to_shares(milli)
    return asked if isinstance(asked, int) else None
