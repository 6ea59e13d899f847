"""The workload auditor: the course of each pod and gang group that waits, in figures and alerts
(docs/reference/central.md 9.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

import structlog

from koord_scheduler.daemon.scheduler.auditing import (
    Alert,
    Course,
    Finding,
    Measure,
    Step,
    after,
    at_end,
)
from koord_scheduler.daemon.scheduler.watching import AuditLimits
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan import gangs
from koord_scheduler.plan.queue import Unit
from koord_scheduler.services.metrics import Family, Labels, Metrics, exponential

MOST_UNITS = 20_000
"""Tracked at once; others are counted, and left alone."""
MOST_LABELS = 64
"""Sets of values of labels; pods beyond have ``other`` for each value."""
MOST_VICTIMS = 1024
"""Waited for, of one unit."""
MOST_LINES = 100
LINES_EVERY_S = 60.0
"""Alerts in the log in this time; all are counted."""
_PREFIX = "scheduler_workload_auditor_"
_OTHER = "other"
_MOST_CHARACTERS = 256
_SECONDS = exponential(0.1, 2, 15)
_HISTOGRAMS: dict[Measure, tuple[str, tuple[float, ...]]] = {
    Measure.RESCHEDULE_S: ("From the end of the last victim to the next result.", _SECONDS),
    Measure.RETRIES: ("Attempts while victims leave, of each preemption.", tuple(range(20))),
    Measure.DELETION_S: ("From a nomination to the end of its last victim.", _SECONDS),
    Measure.INTERRUPTED_S: ("From a nomination to what ended it before its victims.", _SECONDS),
    Measure.INTERVAL_S: ("Between results of one round.", exponential(0.1, 2, 20)),
}
_log = structlog.get_logger()


class Outcome(Enum):
    SCHEDULED = "scheduled"
    DELETED = "deleted"


class _Tracked:
    __slots__ = ("course", "gated", "labels", "lacking", "told", "victims")

    def __init__(self, labels: Labels) -> None:
        self.course = Course()
        self.labels = labels
        self.gated = False
        self.lacking = True
        """Members, of a gang group."""
        self.victims: set[str] = set()
        self.told: set[Alert] = set()


class Auditor:
    """``labels``: name of a label of the metrics -> label of pods. ``clock`` is monotonic."""

    def __init__(
        self,
        metrics: Metrics,
        limits: AuditLimits,
        labels: tuple[tuple[str, str], ...],
        clock: Callable[[], float],
    ) -> None:
        self._limits, self._labels, self._clock = limits, labels, clock
        self._units: dict[str, _Tracked] = {}
        self._victims: dict[str, set[str]] = {}
        """Key of a victim -> units that wait for its end."""
        self._known: set[Labels] = set()
        self._lines, self._lines_since_s, self._unsaid = 0, clock(), 0
        names = ("priority", *(name for name, _ in labels))
        self._counters = {
            Measure.REPEATED: metrics.counter(
                f"{_PREFIX}{Measure.REPEATED.value}", "Nominations after the first.", *names
            ),
            Measure.INVALIDATED: metrics.counter(
                f"{_PREFIX}{Measure.INVALIDATED.value}", "Nominations that came to nothing.", *names
            ),
        }
        self._histograms = {
            measure: metrics.histogram(f"{_PREFIX}{measure.value}", about, bounds, *names)
            for measure, (about, bounds) in _HISTOGRAMS.items()
        }
        self._steps = metrics.histogram(
            f"{_PREFIX}scheduling_events_before_outcome",
            "How often each event was seen of a pod or gang group until its outcome.",
            tuple(range(30)),
            *names,
            "event_type",
            "outcome",
            most=MOST_LABELS * len(Step) * 4,
        )
        self._alerts = metrics.counter(f"{_PREFIX}alerts_total", "Alerts, by kind.", "alert")
        self._untracked = metrics.counter(
            f"{_PREFIX}untracked_total", "Pods and gang groups that were too many to be tracked."
        )
        metrics.add(
            Family(
                f"{_PREFIX}tracked",
                "gauge",
                "Pods and gang groups that are tracked.",
                (),
                lambda: [((), float(len(self._units)))],
            )
        )

    # What it is told.

    def waits(self, unit: Unit, pod: Pod | None) -> None:
        """It came into the queue, or changed there. ``pod``: the first of its pods."""
        name, gated = unit.name, pod is not None and bool(pod.gates)
        found = self._units.get(name)
        if found is None:
            if len(self._units) >= MOST_UNITS:
                self._untracked[()] += 1
                return
            found = self._units[name] = _Tracked(self._labels_of(pod))
            self.step(name, Step.CREATED)
        if gated != found.gated:
            found.gated = gated
            self.step(name, Step.GATED if gated else Step.ADMITTED)
        if not name.startswith(gangs.UNIT):
            return
        lacking = bool(unit.gate)
        if lacking != found.lacking:
            found.lacking = lacking
            if not lacking:
                self.step(name, Step.ENOUGH_MEMBERS)

    def step(self, name: str, step: Step, why: str = "") -> None:
        found = self._units.get(name)
        if found is None:
            return
        found.course, findings = after(found.course, step, self._clock(), self._limits)
        self._tell(name, found, findings, step.value, why)

    def nominated(self, name: str, victims: Iterable[Pod]) -> None:
        found = self._units.get(name)
        if found is None:
            return
        self._forget_victims(name, found)
        for victim in victims:
            if len(found.victims) >= MOST_VICTIMS:
                break
            found.victims.add(victim.key)
            self._victims.setdefault(victim.key, set()).add(name)
        self.step(name, Step.NOMINATED)

    def gone(self, pod: Pod) -> None:
        """A pod does not count any more, whoever waits for that."""
        for name in self._victims.pop(pod.key, ()):
            found = self._units[name]
            found.victims.discard(pod.key)
            if not found.victims:
                self.step(name, Step.VICTIMS_GONE)

    def ended(self, name: str, outcome: Outcome) -> None:
        """It does not wait any more. Once told, it is forgotten."""
        if name not in self._units:
            return
        if outcome is Outcome.SCHEDULED:
            self.step(name, Step.SCHEDULED)
        found = self._units.pop(name)
        self._forget_victims(name, found)
        word = outcome.value
        if name.startswith(gangs.UNIT):
            word = f"gang{word.capitalize()}"
        self._tell(name, found, at_end(found.course, self._clock(), self._limits), word, "")
        for step, number in found.course.counts.items():
            self._steps.observe(number, *found.labels, step.value, word)

    def clear(self) -> None:
        """Another process leads."""
        self._units.clear()
        self._victims.clear()

    # What it tells.

    def _tell(
        self, name: str, found: _Tracked, findings: Iterable[Finding], trigger: str, why: str
    ) -> None:
        for measure, value, alert in findings:
            if measure in self._counters:
                self._counters[measure][found.labels] += 1
            else:
                self._histograms[measure].observe(value, *found.labels)
            if alert is None:
                continue
            self._alerts[(alert.value,)] += 1
            # A pod that waits for hours has the same alert every few minutes.
            if alert not in found.told and self._may_say():
                found.told.add(alert)
                _log.warning(
                    "workload auditor: alert",
                    alert=alert.value,
                    unit=name,
                    labels=",".join(found.labels),
                    value=round(value, 3),
                    trigger=trigger,
                    why=why[:_MOST_CHARACTERS],
                )

    def _may_say(self) -> bool:
        now_s = self._clock()
        if now_s - self._lines_since_s >= LINES_EVERY_S:
            if self._unsaid:
                _log.warning("workload auditor: more alerts than lines", alerts=self._unsaid)
            self._lines, self._lines_since_s, self._unsaid = 0, now_s, 0
        if self._lines >= MOST_LINES:
            self._unsaid += 1
            return False
        self._lines += 1
        return True

    def _labels_of(self, pod: Pod | None) -> Labels:
        if pod is None:
            return ("",) * (1 + len(self._labels))
        priority = pod.cls.priority_class
        values = (
            priority.value if priority is not None else "",
            *(pod.labels.get(label, "") for _, label in self._labels),
        )
        if values not in self._known:
            if len(self._known) >= MOST_LABELS - 1:
                return (_OTHER,) * len(values)
            self._known.add(values)
        return values

    def _forget_victims(self, name: str, found: _Tracked) -> None:
        for key in found.victims:
            waits = self._victims.get(key, set())
            waits.discard(name)
            if not waits:
                self._victims.pop(key, None)
        found.victims.clear()
