"""Which GPUs have reported a critical Xid error (spec/metrics.md 6.5; NVIDIA's *XID Errors*)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import structlog

from koordlet.decision.devices import HEALTHY, Health, State
from koordlet.kernel.devices.nvml import Code, Event, Handle, Nvml, NvmlError
from koordlet.kernel.devices.nvml_abi import XID_CRITICAL

FAULTS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that a program causes by itself; the card goes on."""
WAIT_MS = 1000
"""So long it takes to stop at most."""
AGAIN_S = 30.0
"""After so long a session is begun anew, when one has ended with an error."""

log = structlog.get_logger()


class GpuHealth:
    """A thread of its own waits for events: between two events that nobody has fetched, NVML keeps
    the number of the later one alone. What it has marked stays marked until ``stop``, because
    nothing tells that a card works again.

    A part of the daemon and not of a collector: it outlives both a reload and a collector that is
    shed.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._stop: threading.Event | None = None
        self._found: dict[str, Health] = {}

    def of(self, uuid: str) -> Health:
        """UNKNOWN until events are waited for, and of a card that sends none."""
        return self._found.get(uuid, Health())

    def follow(self, nvml: Nvml) -> None:
        """From now on; at once, and harmless when repeated."""
        if self._stop is None:
            self._stop = threading.Event()
            arguments = (nvml, self._stop)
            threading.Thread(
                target=self._run, args=arguments, name="gpu-health", daemon=True
            ).start()

    def stop(self) -> None:
        """Returns at once; the thread lets go of the driver within ``WAIT_MS``. Marks are gone: a
        card can only be reset when nobody holds it."""
        if self._stop is not None:
            self._stop.set()
            self._stop = None
        self._found = {}

    def _run(self, nvml: Nvml, stop: threading.Event) -> None:
        said = ""
        while not stop.is_set():
            try:
                self._session(nvml, stop)
            except NvmlError as error:
                if str(error) != said:
                    log.warning("events of GPUs cannot be waited for", error=str(error))
                said = str(error)
            stop.wait(AGAIN_S)

    def _session(self, nvml: Nvml, stop: threading.Event) -> None:
        nvml.init()
        try:
            events = nvml.event_set()
            try:
                uuids = self._register(nvml, events, stop)
                while not stop.is_set():
                    event = nvml.wait(events, WAIT_MS)
                    if event is not None and event.type == XID_CRITICAL and not stop.is_set():
                        self._mark(event.data, _concerned(nvml, event, uuids))
            finally:
                with contextlib.suppress(NvmlError):
                    nvml.free_events(events)
        finally:
            with contextlib.suppress(NvmlError):
                nvml.shutdown()

    def _register(self, nvml: Nvml, events: Handle, stop: threading.Event) -> tuple[str, ...]:
        """uuids of all cards that answer."""
        found: dict[str, Health] = {}
        for index in range(nvml.count()):
            with contextlib.suppress(NvmlError):
                device = nvml.handle(index)
                found[nvml.uuid(device)] = _registered(nvml, device, events)
        if not stop.is_set():
            self._found = found | {u: h for u, h in self._found.items() if h.state is _MARKED}
        return tuple(found)

    def _mark(self, xid: int, uuids: tuple[str, ...]) -> None:
        if xid in FAULTS_OF_PROGRAMS:
            return
        log.error("GPU unhealthy", xid=xid, gpus=uuids)
        health = Health(_MARKED, f"Xid{xid}", f"the driver reported Xid {xid}", self._time())
        self._found = self._found | dict.fromkeys(uuids, health)


_MARKED = State.UNHEALTHY


def _registered(nvml: Nvml, device: Handle, events: Handle) -> Health:
    try:
        nvml.register(device, XID_CRITICAL, events)
    except NvmlError as error:
        if error.code != Code.NOT_SUPPORTED:
            raise
        why = "this GPU sends no events of errors"
        return Health(State.UNKNOWN, "DeviceHealthCheckNotSupported", why)
    return HEALTHY


def _concerned(nvml: Nvml, event: Event, uuids: tuple[str, ...]) -> tuple[str, ...]:
    """An event of a card that has no name any more may be about each."""
    try:
        return (nvml.uuid(event.device),) if event.device else uuids
    except NvmlError:
        return uuids
