"""What a source of pods and applications looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Application, Fault


class Source(Protocol):
    """One origin of knowledge about who runs here.

    Everything runs on the thread of the event loop. The tuples that ``pods`` and
    ``applications`` return stay the same objects while nothing changed, so that a reader can
    tell by identity.
    """

    @property
    def name(self) -> str:
        """Shown as the origin of a field: ``cgroup-tree``, ``config`` ..."""
        ...

    @property
    def synced(self) -> bool:
        """True once everything was listed at least once."""
        ...

    @property
    def error(self) -> str:
        """Why it cannot list at present; empty while it can."""
        ...

    @property
    def tells_labels(self) -> bool:
        """Whether it reports labels of pods, though perhaps not yet of every pod."""
        ...

    def start(self, on_change: Callable[[], None]) -> None:
        """List, then watch. ``on_change`` is called after each change of what is known."""
        ...

    def stop(self) -> None: ...

    def rescan(self) -> None:
        """Lists everything again: the slow safety net behind the watches."""
        ...

    def pods(self) -> tuple[PodFacts, ...]: ...

    def applications(self) -> tuple[Application, ...]: ...

    def faults(self) -> tuple[Fault, ...]:
        """Input of this source that was refused, as of now."""
        ...
