"""Waits for critical Xid events of GPUs (spec/metrics.md 6.5; NVIDIA's *XID Errors*)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping

import structlog

from koordlet.decision.devices import HEALTHY, Health, State
from koordlet.kernel.devices.nvml import Event, Handle, Nvml, NvmlError
from koordlet.kernel.devices.nvml_abi import XID_CRITICAL, Code

FAULTS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes by itself; the card goes on."""
WAIT_MS = 1000
"""So long it takes to stop at most."""
AGAIN_S = 30.0
"""After so long a session is begun anew, when one has ended with an error."""

log = structlog.get_logger()


class XidWatch:
    """In a thread of its own, because of two events that nobody has fetched NVML keeps the number
    of the later one alone. What is marked stays marked: nothing tells that a card works again.

    ``found``: by uuid, of all cards; replaced whole, so that any thread may read it.
    """

    def __init__(self, nvml: Nvml, now: Callable[[], float]) -> None:
        self.found: Mapping[str, Health] = {}
        self._nvml = nvml
        self._now = now
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="gpu-health", daemon=True).start()

    def stop(self) -> None:
        """Returns at once."""
        self._stop.set()

    def _run(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                self._session()
            except NvmlError as error:
                if str(error) != said:
                    log.warning("events of GPUs cannot be waited for", error=str(error))
                said = str(error)
            self._stop.wait(AGAIN_S)

    def _session(self) -> None:
        nvml = self._nvml
        nvml.init()
        try:
            events = nvml.event_set()
            try:
                self._register(events)
                while not self._stop.is_set():
                    event = nvml.wait(events, WAIT_MS)
                    if event is not None and event.type == XID_CRITICAL:
                        self._mark(event)
            finally:
                with contextlib.suppress(NvmlError):
                    nvml.free_events(events)
        finally:
            with contextlib.suppress(NvmlError):
                nvml.shutdown()

    def _register(self, events: Handle) -> None:
        """All cards that answer."""
        found: dict[str, Health] = {}
        for index in range(self._nvml.count()):
            with contextlib.suppress(NvmlError):
                device = self._nvml.handle(index)
                found[self._nvml.uuid(device)] = self._registered(device, events)
        marked = {u: each for u, each in self.found.items() if each.state is State.UNHEALTHY}
        self.found = {**found, **marked}

    def _registered(self, device: Handle, events: Handle) -> Health:
        try:
            self._nvml.register(device, XID_CRITICAL, events)
        except NvmlError as error:
            if error.code != Code.NOT_SUPPORTED:
                raise
            why = "this GPU sends no events of errors"
            return Health(State.UNKNOWN, "DeviceHealthCheckNotSupported", why)
        return HEALTHY

    def _mark(self, event: Event) -> None:
        xid = event.data
        if xid in FAULTS_OF_PROGRAMS:
            return
        uuids = self._concerned(event)
        log.error("GPU unhealthy", xid=xid, gpus=uuids)
        why = f"the driver reported Xid {xid}"
        health = Health(State.UNHEALTHY, f"Xid{xid}", why, self._now())
        self.found = {**self.found, **dict.fromkeys(uuids, health)}

    def _concerned(self, event: Event) -> tuple[str, ...]:
        """An event of a card that has no name any more may be about each."""
        every = tuple(self.found)
        try:
            return (self._nvml.uuid(event.device),) if event.device else every
        except NvmlError:
            return every
