"""Pods of this node as somebody lists them who may be wrong or away for a while: the API server, or
kubelet (docs/reference/metrics.md 6.3).

A pod that is no longer listed while a runtime still has it keeps what is known of it: a list may be
empty because a server has just started, and an object may be deleted by force while its containers
run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

import msgspec

from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Application, Fault
from koordlet.kernel.host import Host
from koordlet.state.reported_file import ReportedFile

AWAITED_S = 10.0
"""How long the first list is waited for; a server that is away must not stop those who wait."""
MOST_PODS = 2000
"""kubelet runs 110 by default, and what is not alive here is of no use."""

_LATEST = float("inf")
"""What is listed is the object itself; runtimes have a copy of when the sandbox was made."""


class ListedSource:
    """``name`` is the origin of its fields: ``api``, ``kubelet``.

    ``alive`` tells the uids that runtimes and cgroups know. ``file`` keeps what is listed over a
    restart. ``error`` is set by whoever lists.
    """

    def __init__(self, name: str, host: Host, file: ReportedFile[PodFacts] | None = None) -> None:
        self.name = name
        self.error = ""
        self.alive: Callable[[], Set[str]] = frozenset[str]
        self.awaited = True
        """Whether somebody lists all the time."""
        self.listed = False
        """Whether there was a list in this run."""
        self.refused: tuple[Fault, ...] = ()
        self._host = host
        self._file = file
        self._on_change: Callable[[], None] = _nobody
        self._started_s = host.monotonic()
        self._facts: dict[str, PodFacts] = {}
        self._departed: set[str] = set()
        """Of ``_facts``: no longer listed."""
        self._pods: tuple[PodFacts, ...] = ()

    @property
    def synced(self) -> bool:
        return (
            self.listed or not self.awaited or self._host.monotonic() - self._started_s >= AWAITED_S
        )

    @property
    def tells_labels(self) -> bool:
        return not self.synced or (self.listed and not self.error)

    @property
    def departed(self) -> int:
        """How many pods are known that nobody lists any more."""
        return len(self._departed)

    def start(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._started_s = self._host.monotonic()
        if self._file is not None:
            for pod in self._file.load():
                self._facts.setdefault(pod.uid, _latest(pod))
                self._departed.add(pod.uid)  # until it is listed again
            self._publish(self._facts)

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()

    def rescan(self) -> None:
        self._sweep()

    def pods(self) -> tuple[PodFacts, ...]:
        return self._pods

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        wrong = (self._file.error, self._file.damage) if self._file is not None else ()
        found = [Fault(f"source {self.name}", "", each) for each in wrong if each]
        if self.error and self.listed:
            text = f"{self.error}; pods are those last known"
            found.append(Fault(f"source {self.name}", "", text))
        return (*found, *self.refused)

    def replace(self, pods: Iterable[PodFacts]) -> None:
        """A whole list. Of two pods with one uid the first counts."""
        found: dict[str, PodFacts] = {}
        for pod in pods:
            if len(found) < MOST_PODS:
                found.setdefault(pod.uid, _latest(pod))
        first, self.listed = not self.listed, True
        changed = {uid for uid, pod in found.items() if self._facts.get(uid) != pod}
        self._facts |= {uid: found[uid] for uid in changed}
        self._departed = self._facts.keys() - found.keys()
        gone = self._gone()
        if changed or gone or first:
            self._publish(changed | gone)

    def put(self, pods: Iterable[PodFacts]) -> None:
        """These came or changed."""
        changed = set()
        for pod in pods:
            uid, new = pod.uid, _latest(pod)
            self._departed.discard(uid)
            known = self._facts.get(uid)
            if known == new or (known is None and len(self._facts) >= MOST_PODS):
                continue
            self._facts[uid] = new
            changed.add(uid)
        if changed:
            self._publish(changed)

    def drop(self, uids: Iterable[str]) -> None:
        """These are no longer listed."""
        self._departed |= self._facts.keys() & set(uids)
        self._sweep()

    def clear(self) -> None:
        """Nobody asks for a list any more: somebody better tells them."""
        self.listed, self.error = False, ""
        if self._facts:
            gone = set(self._facts)
            self._facts, self._departed = {}, set()
            self._publish(gone)

    def _sweep(self) -> None:
        if gone := self._gone():
            self._publish(gone)

    def _gone(self) -> set[str]:
        """Forgets what is neither listed nor alive."""
        if not self._departed:
            return set()
        gone = self._departed - self.alive()
        self._departed -= gone
        for uid in gone:
            del self._facts[uid]
        return gone

    def _publish(self, changed: Iterable[str]) -> None:
        if self._file is not None:
            self._file.save(self._facts, changed)
        self._pods = tuple(self._facts[uid] for uid in sorted(self._facts))
        self._on_change()


def _latest(pod: PodFacts) -> PodFacts:
    return msgspec.structs.replace(pod, as_of=_LATEST)


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
