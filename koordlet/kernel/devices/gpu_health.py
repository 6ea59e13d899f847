"""Which GPUs have reported a critical Xid error (spec/metrics.md 6.5; NVIDIA's *XID Errors*)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from koordlet.decision.devices import Health, State

if TYPE_CHECKING:
    from koordlet.kernel.devices.nvml import Nvml

FAULTS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes by itself; the card goes on."""

log = structlog.get_logger()


class GpuHealth:
    """A thread of its own waits for events: of two events that nobody has fetched, NVML keeps the
    number of the later one alone. What it has marked stays marked until ``stop``, because nothing
    tells that a card works again.

    A part of the daemon and not of a collector: it outlives both a reload and a collector that is
    shed.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._stop: threading.Event | None = None
        self._found: Mapping[str, Health] = {}

    def of(self, uuid: str) -> Health:
        """UNKNOWN until events are waited for, and of a card that sends none."""
        return self._found.get(uuid, Health())

    def follow(self, nvml: Nvml) -> None:
        """From now on; at once, and harmless when repeated."""
        if self._stop is not None:
            return
        from koordlet.kernel.devices.xid_events import watch

        self._stop = threading.Event()
        arguments = (nvml, self, self._stop)
        threading.Thread(target=watch, args=arguments, name="gpu-health", daemon=True).start()

    def stop(self) -> None:
        """Returns at once; the thread lets go of the driver within ``xid_events.WAIT_MS``. Marks
        are gone: a card can only be reset when nobody holds it."""
        if self._stop is not None:
            self._stop.set()
            self._stop = None
        self._found = {}

    # The thread's side

    def watched(self, found: Mapping[str, Health]) -> None:
        """Those are there. What was marked stays marked."""
        marked = {u: each for u, each in self._found.items() if each.state is State.UNHEALTHY}
        self._found = {**found, **marked}

    def reported(self, xid: int, uuids: tuple[str, ...]) -> None:
        if xid in FAULTS_OF_PROGRAMS:
            return
        log.error("GPU unhealthy", xid=xid, gpus=uuids)
        why = f"the driver reported Xid {xid}"
        health = Health(State.UNHEALTHY, f"Xid{xid}", why, self._now())
        self._found = {**self._found, **dict.fromkeys(uuids, health)}
