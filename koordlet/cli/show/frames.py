"""Where the frames of ``koordlet top`` come from: threads, so that keys never wait for them."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from koordlet.admin.client import RefusedError
from koordlet.admin.model.usage import TopView
from koordlet.cli.show.limits import Limits
from koordlet.cli.show.processes import SystemProcesses
from koordlet.cli.show.screen import Frame, worth_a_line
from koordlet.decision.names import harmless
from koordlet.history.source import Source
from koordlet.history.view import PastView

if TYPE_CHECKING:
    from koordlet.history.past import Decisions


class Arrived(NamedTuple):
    """``at``: the time of the past that it was asked for; None: the present. ``frame`` None: the
    stream of the present has ended."""

    at: float | None
    frame: Frame | None


class Inbox:
    """``descriptor`` is readable when ``latest`` has something."""

    def __init__(self) -> None:
        self.descriptor, self._wake = os.pipe()
        self._queue: queue.SimpleQueue[Arrived | Exception] = queue.SimpleQueue()

    def put(self, found: Arrived | Exception) -> None:
        self._queue.put(found)
        os.write(self._wake, b"\0")

    def latest(self) -> Arrived:
        """Raises what ended a thread."""
        os.read(self.descriptor, 1)
        found = self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found


def follow_present(inbox: Inbox, views: Iterator[TopView], processes: int, limits: Limits) -> None:
    """Frames with what this machine adds to them, until the stream ends."""

    def read() -> None:
        watched = SystemProcesses()
        decisions = worth_a_line((), ())
        try:
            for view in views:
                decisions = worth_a_line(decisions, view.decisions)
                cgroups = [pod.cgroup for pod in view.pods]
                biggest = watched.biggest(cgroups, processes) if processes else ()
                inbox.put(Arrived(None, Frame(view, decisions, biggest, limits.of(cgroups))))
            inbox.put(Arrived(None, None))
        except Exception as error:  # raised again where the screen is
            inbox.put(error)

    Thread(target=read, daemon=True).start()


class Past:
    """Frames of the past, each as it is asked for; of those asked for meanwhile only the last."""

    def __init__(self, inbox: Inbox, source: Source) -> None:
        self._inbox = inbox
        from koordlet.history.past import Decisions

        self._decisions = Decisions(source)
        self._source = source
        self._wanted: queue.SimpleQueue[float] = queue.SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def ask(self, at: float) -> None:
        self._wanted.put(at)

    def _read(self) -> None:
        try:
            while True:
                at = self._wanted.get()
                while not self._wanted.empty():
                    at = self._wanted.get()
                self._inbox.put(Arrived(at, past_frame(self._source, self._decisions, at)))
        except Exception as error:
            self._inbox.put(error)


def past_frame(source: Source, decisions: Decisions, at: float) -> Frame:
    """Where there is nothing of that time, a frame that says so."""
    from koordlet.history.past import past

    try:
        view = past(source, at, decisions.before(at))
    except RefusedError as error:
        view = PastView(
            time=at,
            node="",
            cpu_capacity_cores=0.0,
            memory_capacity_bytes=0,
            age_s=0.0,
            notes=(harmless(str(error)),),
        )
    return Frame(view, worth_a_line((), view.decisions))
