"""Events for what came, went or changed its state since it was last looked at."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from koordlet.actuator.conflict import Conflict
from koordlet.actuator.files import RELEASED
from koordlet.actuator.merge import Key
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.restore import RestoreReport, Status, together
from koordlet.actuator.sharing import likely
from koordlet.admin.model.events import EventKind
from koordlet.collectors.base import Health
from koordlet.config.load import Loaded
from koordlet.decision.plan import Result
from koordlet.decision.record import Kind, Record
from koordlet.decision.snapshot import Application, Fault, Pod
from koordlet.decision.why import Why
from koordlet.engine.absent import Absences
from koordlet.engine.parts import Parts

if TYPE_CHECKING:  # loaded where there are devices
    from koordlet.decision.devices import Inventory

log = structlog.get_logger()

BURST = 20
EVERY_S = 10.0
SUBJECT_S = 60.0
"""See ``Limiter``."""
MOST_BROKEN = 1000
SHOWN = 20
"""How many values that are not back the log names; the answer of the command has all."""


def log_restored(found: RestoreReport, *, why: str, owner: str = "all") -> None:
    """One line with counts, and one for each value that is not back, of the first ``SHOWN``."""
    counts = Counter(item.status.value for item in found.items)
    log.warning("restored", owner=owner, why=why, **dict(sorted(counts.items())))
    left = [item for item in found.items if item.status is Status.FAILED]
    for item in left[:SHOWN]:
        log.error("not put back", file=item.path, original=str(item.original), error=item.text)
    if len(left) > SHOWN:
        log.error("not put back", more=len(left) - SHOWN)


def log_given_up(owners: Iterable[str], outcomes: Sequence[Outcome]) -> None:
    """What went back of those that were switched off."""
    for owner in sorted(owners):
        back = [each for each in outcomes if each.owner == owner and each.why == RELEASED]
        if back:
            log_restored(
                together(RestoreReport(()), back), why=f"{owner} is switched off", owner=owner
            )


class Limiter:
    """For lines that others can cause as often as they like: about one subject one each
    ``SUBJECT_S``, in all ``BURST`` at once and then one each ``EVERY_S``. Times are monotonic."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at_s = -math.inf
        self._said_s: dict[str, float] = {}
        self._unsaid = 0
        self._counted_s = -math.inf

    def allows(self, subject: str, now: float) -> bool:
        """Whether it may be said now; else it counts as unsaid."""
        self._left = min(float(BURST), self._left + (now - self._at_s) / EVERY_S)
        self._at_s = now
        if self._left < 1 or now - self._said_s.get(subject, -math.inf) < SUBJECT_S:
            self._unsaid += 1
            return False
        self._left -= 1
        self._said_s = {s: at for s, at in self._said_s.items() if now - at < SUBJECT_S}
        self._said_s[subject] = now
        return True

    def unsaid(self, now: float) -> int:
        """How many were not said since this was last answered, which it is once each
        ``SUBJECT_S``."""
        if not self._unsaid or now - self._counted_s < SUBJECT_S:
            return 0
        found, self._unsaid, self._counted_s = self._unsaid, 0, now
        return found


class ChangeReporter:
    """Makes an event of what differs from the state of the call before: of pods, refused inputs,
    conflicts, collectors, devices. ``now``: monotonic seconds."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._events = parts.events
        root = parts.config.paths.cgroup_root
        self._absences = Absences(parts.host, parts.cgroups.layout, root, parts.problems)
        self._contested = False
        self._limits = {what: Limiter() for what in ("refused inputs", "conflicts", "devices")}
        self._conflicts: dict[Key, Conflict] = {}
        self._workloads: dict[str, str] = {}
        self._faults: frozenset[Fault] = frozenset()
        self._collectors: dict[str, str] = {}
        self._broken: set[str] = set()

    def mode(self, loaded: Loaded) -> None:
        """Another one than before."""
        mode, origin = loaded.config.daemon.mode, loaded.origins["daemon.mode"]
        log.warning("mode", now=mode, by=f"daemon.mode ({origin})")
        why = Why("lifecycle.mode", f"mode {mode} by daemon.mode ({origin})")
        self._parts.tell(Record(self._parts.host.time(), Kind.LIFECYCLE, "koordlet", why))

    def heard(self, outcome: Outcome) -> None:
        """A first foreign value is written over at once, with a word about it."""
        said = outcome.result is Result.WRITTEN and outcome.text
        self._contested |= bool(said) or outcome.result is Result.CONFLICT

    def workloads(
        self, time: float, pods: Iterable[Pod], applications: Sequence[Application]
    ) -> None:
        self._absences.follow(applications)
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

    def faults(self, now: float, time: float, faults: Iterable[Fault]) -> None:
        """Those that are new. Whoever changes his annotation each second is not heard each second;
        `status` and the metrics have the present ones in any case."""
        found = frozenset(faults)
        limit = self._limits["refused inputs"]
        for fault in sorted(found - self._faults, key=lambda f: (f.subject, f.path, f.message)):
            if limit.allows(fault.subject, now):
                text = f"{fault.path}: {fault.message}" if fault.path else fault.message
                self._events.emit(time, EventKind.REFUSED_INPUT, fault.subject, text)
                log.warning(
                    "refused input", owner=fault.subject, path=fault.path, why=fault.message
                )
        self._faults = found

    def conflicts(self, now: float, time: float) -> None:
        """At each tick: where another writer appeared or stopped. koordlet looks only where
        one may have begun, or must end: that is a pass over all files."""
        for what, limit in self._limits.items():
            if count := limit.unsaid(now):
                log.warning("not logged", what=what, count=count)
        if not self._contested and not self._conflicts:
            return
        self._contested, actuator = False, self._parts.actuator
        present = {Key(each.cgroup, each.resource): each for each in actuator.conflicts()}
        limit = self._limits["conflicts"]
        began = [key for key in present if key not in self._conflicts]
        owners = {Key(o.cgroup, o.resource): o.owner for o in actuator.owned()} if began else {}
        for key in began:
            each = present[key]
            if limit.allows(each.path, now):
                owner = owners.get(key, "")
                log.warning(
                    "conflict",
                    file=each.path,
                    owner=owner,
                    expected=str(each.expected),
                    found=str(each.found),
                    why=f"{likely(*key, each.found, math.inf)} writes it",
                )
        for key, each in self._conflicts.items():
            if key not in present and limit.allows(f"end of {each.path}", now):
                log.info("conflict over", file=each.path, changes=each.changes)
                text = f"{each.path}: no other process writes it any more"
                self._events.emit(time, EventKind.CONFLICT, f"{key.cgroup}/{key.resource}", text)
        self._conflicts = present

    def devices(self, now: float, time: float, found: Iterable[Inventory | None]) -> None:
        """Those that have stopped working, and those that work again. Who is not listed at present,
        as after a reload, has not changed."""
        limit = self._limits["devices"]
        for subject, health in (each for one in found if one is not None for each in one.health()):
            if health.is_good and subject in self._broken:
                self._broken.remove(subject)
                self._events.emit(time, EventKind.LIFECYCLE, subject, "works again")
            if not health.is_broken or subject in self._broken:
                continue
            if len(self._broken) >= MOST_BROKEN:  # names that somebody makes up
                self._broken.clear()
            self._broken.add(subject)
            why = health.why or health.code
            self._events.emit(time, EventKind.LIFECYCLE, subject, f"broken: {why}")
            if limit.allows(subject, now):
                log.error("device broken", device=subject, why=why)

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
