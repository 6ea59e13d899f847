"""Waits for critical Xid events, in the thread of ``GpuHealth``."""

from __future__ import annotations

import contextlib
import threading

import structlog

from koordlet.decision.devices import HEALTHY, Health, State
from koordlet.kernel.devices.gpu_health import GpuHealth
from koordlet.kernel.devices.nvml import Event, Handle, Nvml, NvmlError
from koordlet.kernel.devices.nvml_abi import XID_CRITICAL, Code

WAIT_MS = 1000
"""So long it takes to stop at most."""
AGAIN_S = 30.0
"""After so long a session is begun anew, when one has ended with an error."""

log = structlog.get_logger()


def watch(nvml: Nvml, health: GpuHealth, stop: threading.Event) -> None:
    """Until ``stop``; what stops a session does not stop the next one."""
    said = ""
    while not stop.is_set():
        try:
            _session(nvml, health, stop)
        except NvmlError as error:
            if str(error) != said:
                log.warning("events of GPUs cannot be waited for", error=str(error))
            said = str(error)
        stop.wait(AGAIN_S)


def _session(nvml: Nvml, health: GpuHealth, stop: threading.Event) -> None:
    nvml.init()
    try:
        events = nvml.event_set()
        try:
            found = _register(nvml, events)
            if not stop.is_set():
                health.watched(found)
            while not stop.is_set():
                event = nvml.wait(events, WAIT_MS)
                if event is not None and event.type == XID_CRITICAL and not stop.is_set():
                    health.reported(event.data, _concerned(nvml, event, tuple(found)))
        finally:
            with contextlib.suppress(NvmlError):
                nvml.free_events(events)
    finally:
        with contextlib.suppress(NvmlError):
            nvml.shutdown()


def _register(nvml: Nvml, events: Handle) -> dict[str, Health]:
    """All cards that answer, by uuid."""
    found: dict[str, Health] = {}
    for index in range(nvml.count()):
        with contextlib.suppress(NvmlError):
            device = nvml.handle(index)
            found[nvml.uuid(device)] = _registered(nvml, device, events)
    return found


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
