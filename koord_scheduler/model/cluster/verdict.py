"""What a plugin says of nodes, and how it is asked.

A plugin judges all nodes at once. Its numbers of reasons stand for texts in one table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass

Codes = NDArray[np.int16]
FITS = 0
"""The code of a node where the pod may go."""
_MOST_REASONS = 4096


class Reason(NamedTuple):
    """``text`` as in the condition of the pod, without the number of nodes. ``unresolvable``: no
    eviction of pods makes the node fit (``UnschedulableAndUnresolvable``)."""

    plugin: str
    text: str
    unresolvable: bool = False


class _Reasons:
    """Codes of reasons, for the life of the process. Texts come of nodes and pods: a full table
    gives what comes later the plugin's name as text."""

    def __init__(self) -> None:
        self._all: list[Reason] = [Reason("", "")]
        self._codes: dict[Reason, int] = {}

    def code(self, reason: Reason) -> int:
        found = self._codes.get(reason)
        if found is None:
            if len(self._all) >= _MOST_REASONS:
                reason = Reason(reason.plugin, f"refused by {reason.plugin}", reason.unresolvable)
                if reason in self._codes:
                    return self._codes[reason]
            found = self._codes[reason] = len(self._all)
            self._all.append(reason)
        return found

    def __getitem__(self, code: int) -> Reason:
        return self._all[code]


REASONS = _Reasons()


def reason(plugin: str, text: str, *, unresolvable: bool = False) -> int:
    """The code of a reason; the same for the same words."""
    return REASONS.code(Reason(plugin, text, unresolvable))


class Verdict(NamedTuple):
    """For the rows that were asked about, in their order. ``why``: FITS or the code of the first
    reason. ``score``: the more the better, None where the plugin has no opinion. ``is_normal``: it
    is 0 to 100 for such pods, whatever the plugin's scores are for others."""

    why: Codes
    score: Ints | None = None
    is_normal: bool = False


class Normalize(Enum):
    """What becomes of scores before they are weighted, over all nodes where the pod fits."""

    NO = "no"
    """They are 0 to 100 already."""
    DEFAULT = "default"
    """``score * 100 / max`` (docs/reference/central.md 0.1)."""
    REVERSE = "reverse"
    """100 less that."""


class Plugin(Protocol):
    """``local``: the verdict on a node depends on the pod's class and on that row of the cluster
    alone, so it is kept until the row changes (`Cluster.since`). Where it is not, all rows are
    judged anew for each pod.
    """

    @property
    def name(self) -> str: ...
    @property
    def local(self) -> bool: ...
    @property
    def normalize(self) -> Normalize: ...

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        """False where it has nothing to say about any node for such pods. It may depend on
        ``cluster`` only through what does not change from row to row."""
        ...

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict: ...


@runtime_checkable
class ByPods(Protocol):
    """A plugin that is not local, whose refusal pods elsewhere can end."""

    def helped(
        self, cluster: Cluster, pod: PodClass, others: Collection[PodClass], *, gone: bool
    ) -> bool:
        """Whether such a pod may fit somewhere because pods of one of these classes got a node, or
        left theirs (``gone``)."""
        ...


class Refusal(NamedTuple):
    """An allocator cannot serve the pod on this node after all."""

    why: int


class Allocator(Plugin, Protocol):
    """A plugin that also gives a pod something that must be named: CPUs, devices, a reservation.

    A refusal on a node counts for all pods of the class until the node changes. An allocator whose
    answer differs between pods of one class has an attribute ``by_pod`` that is True."""

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> Any | Refusal | None:
        """On the chosen node. ``grants``: what allocators before this one gave. None: it gives
        nothing. Changes nothing; the grant takes effect with the claim that holds it."""
        ...

    def annotations(self, pod: Pod, grant: Any) -> Mapping[str, str]:
        """What the binding says of the grant."""
        ...

    def recognise(self, pod: Pod) -> Any | None:
        """The grant that the annotations of a pod on a node tell of, made by whomever; None where
        there is none or it cannot be read."""
        ...


class Gate(Protocol):
    """Whether a pod may take anything at all now, wherever: quotas. Its sums follow the claims of
    the cluster (`Cluster.follow`), so a trial that places several pods is checked as a whole."""

    @property
    def name(self) -> str: ...

    def admit(self, pod: Pod) -> str | None:
        """None, or why not, as in the condition of the pod."""
        ...

    def may_preempt(self, pod: Pod, victim: Pod) -> bool: ...
