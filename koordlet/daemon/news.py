"""Events for what came, went or changed its state since it was last looked at."""

from __future__ import annotations

from collections.abc import Iterable

from koordlet.admin.model import EventKind
from koordlet.collectors.base import Health
from koordlet.daemon.events import Events
from koordlet.decision.snapshot import Application, Fault, Pod


class News:
    """Remembers what it told; each call is the present state."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._workloads: dict[str, str] = {}
        self._faults: frozenset[Fault] = frozenset()
        self._collectors: dict[str, str] = {}

    def workloads(
        self, time: float, pods: Iterable[Pod], applications: Iterable[Application]
    ) -> None:
        known = {pod.uid: f"pod {_name(pod)}" for pod in pods}
        for application in applications:
            if application.present:
                text = f"application {application.name}"
                known[text] = text
        for key in sorted(self._workloads.keys() ^ known.keys()):
            subject = known[key] if key in known else self._workloads[key]
            text = f"{subject} {'appeared' if key in known else 'is gone'}"
            self._events.emit(time, EventKind.WORKLOAD, subject, text)
        self._workloads = known

    def faults(self, time: float, faults: Iterable[Fault]) -> None:
        found = frozenset(faults)
        for fault in sorted(found - self._faults, key=lambda f: (f.subject, f.path, f.message)):
            text = f"{fault.path}: {fault.message}" if fault.path else fault.message
            self._events.emit(time, EventKind.REFUSED_INPUT, fault.subject, text)
        self._faults = found

    def collectors(self, time: float, health: Iterable[Health]) -> None:
        found: dict[str, str] = {}
        for h in health:
            state = found[h.name] = "shed" if h.shed else "failed" if h.error else ""
            if state != self._collectors.get(h.name, ""):
                text = {"shed": "shed to keep koordlet within its CPU budget", "failed": h.error}
                subject = f"collector {h.name}"
                self._events.emit(
                    time, EventKind.LIFECYCLE, subject, text.get(state, "works again")
                )
        self._collectors = found


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.name else pod.uid
