"""What goes wrong between a client and the fake server, as a test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakekube.broken import Break


@dataclass
class Fault:
    """Of the next ``times`` requests that ``on`` chooses (``METHOD PATH``).

    ``before_s``, ``after_s``: how long it waits before it does what was asked, and before it
    answers. ``status``: it refuses with this instead. ``drop``: it closes the connection instead of
    answering; with ``after_s`` None, it never answers at all.
    """

    on: Callable[[str], bool]
    times: int = 1
    status: int = 0
    retry_after_s: int | None = None
    before_s: float = 0.0
    after_s: float | None = 0.0
    drop: bool = False
    body: bytes | None = None
    """Sent instead of the answer, whatever it is."""
    met: int = 0


@dataclass
class Faults:
    """``token``: the only bearer token that is taken; empty: nobody has to show one."""

    token: str = ""
    down: bool = False
    """Connections are closed without an answer, watches are cut."""
    pending: list[Fault] = field(default_factory=list)
    watchers: set[asyncio.Event] = field(default_factory=set)
    """One for each open watch; set to cut it."""
    piece_bytes: int = 0
    """Watches send in pieces of this size; 0: a line at once."""

    breaks: Break | None = None
    """Answers instead of the server, unless it gives None."""

    def add(self, fault: Fault) -> Fault:
        self.pending.append(fault)
        return fault

    def refuse_watches(self) -> Fault:
        """Until the fault is taken back."""
        return self.add(Fault(lambda what: what.startswith("WATCH"), times=10**9, status=503))

    def take(self, request: str) -> Fault | None:
        for fault in self.pending:
            if fault.met < fault.times and fault.on(request):
                fault.met += 1
                return fault
        return None

    def cut_watches(self) -> None:
        for each in tuple(self.watchers):
            each.set()
