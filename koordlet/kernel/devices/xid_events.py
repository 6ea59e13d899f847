"""Waits for critical Xid events of GPUs (docs/reference/metrics.md 6.5; NVIDIA's *XID Errors*)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

import structlog

from koordlet.decision.devices import HEALTHY, Health, State
from koordlet.kernel.devices.gpu_health import NOT_HEARD
from koordlet.kernel.devices.nvml import Event, Handle, Nvml, NvmlError
from koordlet.kernel.devices.nvml_abi import XID_CRITICAL, Code

FAULTS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes by itself; the card goes on."""
WAIT_MS = 1000
"""So long it takes to stop at most."""
AGAIN_S = 30.0
"""After so long a session is begun anew, when one has ended with an error."""
SILENT_S = 30.0
"""Without an answer to a wait for so long the driver hangs."""

log = structlog.get_logger()


class XidWatch:
    """In a thread that always waits: when two events come between two waits, NVML keeps the number
    of the later one only. What is marked stays marked, because no event says that a card works
    again."""

    def __init__(self, nvml: Nvml, now: Callable[[], float]) -> None:
        self._found: Mapping[str, Health] = {}
        """By uuid, of all cards; replaced whole, so that any thread may read it."""
        self._error = ""
        """Why the last session has ended; empty while one goes on."""
        self._heard_s = time.monotonic()
        """When the driver last answered."""
        self._kept: set[str] = set()
        """Errors at the end of sessions."""
        self._nvml = nvml
        self._now = now
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="gpu-health", daemon=True).start()

    def of(self, uuid: str) -> Health | None:
        """None until events are waited for. A card that is not marked is healthy only as long as
        events of it would be heard."""
        found = self._found.get(uuid)
        if found is not None and found.is_broken:
            return found
        if self._error:
            return _not_heard(self._error)
        silent_s = time.monotonic() - self._heard_s
        if silent_s > SILENT_S:
            return _not_heard(f"the driver has not answered for {silent_s:.0f} s")
        if found is None and self._found:
            return _not_heard("this GPU did not answer when the others were asked for theirs")
        return found

    def stop(self) -> None:
        """Returns at once."""
        self._stop.set()

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                self._session()
            except NvmlError as error:
                self._error = str(error)
                if self._error != said:
                    log.warning("events of GPUs cannot be waited for", error=self._error)
                said = self._error
            self._stop.wait(AGAIN_S)

    def _session(self) -> None:
        nvml = self._nvml
        nvml.init()
        try:
            events = nvml.event_set()
            try:
                self._register(events)
                self._error = ""
                while not self._stop.is_set():
                    event = nvml.wait(events, WAIT_MS)
                    self._heard_s = time.monotonic()
                    if event is not None and event.type == XID_CRITICAL:
                        self._mark(event)
            finally:
                self._let_go(lambda: nvml.free_events(events))
        finally:
            self._let_go(nvml.shutdown)

    def _let_go(self, end: Callable[[], None]) -> None:
        """Sessions may end time and again while the driver is in trouble: an error is told once."""
        try:
            end()
        except NvmlError as error:
            if str(error) not in self._kept:
                self._kept.add(str(error))
                log.warning("the driver keeps what events were heard by", error=str(error))

    def _register(self, events: Handle) -> None:
        """All cards that answer."""
        found: dict[str, Health] = {}
        for index in range(self._nvml.count()):
            with contextlib.suppress(NvmlError):
                device = self._nvml.handle(index)
                found[self._nvml.uuid(device)] = self._registered(device, events)
        marked = {u: each for u, each in self._found.items() if each.is_broken}
        self._found = {**found, **marked}
        self._heard_s = time.monotonic()

    def _registered(self, device: Handle, events: Handle) -> Health:
        try:
            self._nvml.register(device, XID_CRITICAL, events)
        except NvmlError as error:
            if error.code != Code.NOT_SUPPORTED:
                return _not_heard(str(error))
            why = "this GPU sends no events of errors"
            return Health(State.UNKNOWN, "DeviceHealthCheckNotSupported", why)
        return HEALTHY

    def _mark(self, event: Event) -> None:
        xid = event.data
        if xid in FAULTS_OF_PROGRAMS:
            return
        why = f"the driver reported Xid {xid}"
        health = Health(State.UNHEALTHY, f"Xid{xid}", why, self._now())
        self._found = {**self._found, **dict.fromkeys(self._concerned(event), health)}

    def _concerned(self, event: Event) -> tuple[str, ...]:
        """An event of a card that has no name any more may be about each."""
        every = tuple(self._found)
        try:
            return (self._nvml.uuid(event.device),) if event.device else every
        except NvmlError:
            return every


def _not_heard(why: str) -> Health:
    return Health(State.UNKNOWN, NOT_HEARD, f"events of errors cannot be waited for: {why}")
