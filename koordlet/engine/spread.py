"""Best-effort work whose threads are to be kept each on one CPU: looked at again and again, in a
thread, since the first look at a thousand of them takes some 13 ms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import structlog

from koordlet.decision.names import shown
from koordlet.decision.why import Input, Why
from koordlet.kernel.background import Background
from koordlet.kernel.host import Host
from koordlet.kernel.proc.spread import MOST_THREADS, CpuSpread, SpreadState

log = structlog.get_logger()


class Spreading:
    """``turn`` is called at each tick."""

    def __init__(self, host: Host, spread: CpuSpread) -> None:
        self._host = host
        self._spread = spread
        self._thread: Background | None = None
        self._look: Future[None] | None = None

    def turn(self) -> tuple[Why, ...]:
        """Begin the next look, where anything is to be spread and none goes on. Returns what the
        last one found to be in the way."""
        failed: tuple[Why, ...] = ()
        if self._look is not None and self._look.done():
            error, self._look = self._look.exception(), None
            if error is not None:  # a defect of ours: one feature, whatever it raised
                log.error("threads were not looked at", exc_info=error)
                failed = (Why("cpu-spread.failed", f"{type(error).__name__}: {error}"),)
        if self._look is None and self._spread.is_wanted:
            if self._thread is None:
                self._thread = self._host.background("spread")
            self._look = self._thread.submit(self._spread.sweep)
        return failed + spread_notes(self._spread.state)

    def close(self) -> None:
        """End a look that goes on; threads stay where they are."""
        if self._thread is not None:
            self._thread.close(lambda: None)
            self._thread = self._look = None


def spread_notes(state: Mapping[str, SpreadState]) -> tuple[Why, ...]:
    """Cgroups of which threads are not kept, although koordlet was to."""
    return tuple(note for item in sorted(state.items()) for note in _of_cgroup(*item))


def _of_cgroup(cgroup: str, state: SpreadState) -> Iterator[Why]:
    if state.too_many:
        text = (
            f"{shown(cgroup)}: its {state.too_many} threads are more than the {MOST_THREADS} that "
            "koordlet looks at; none is kept on one CPU"
        )
        yield Why("cpu-spread.too-many", text, (Input("threads", state.too_many),))
    if state.refused:
        text = (
            f"{shown(cgroup)}: threads cannot be kept on one CPU: {state.refused}; koordlet needs "
            "CAP_SYS_NICE for those of other users"
        )
        yield Why("cpu-spread.refused", text)
