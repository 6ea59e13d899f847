"""Answers to runtimes (NRI, hook server), decided from a snapshot of the current state.

An answer is what reconciling would set, at the moment when it does most good: before the first
process of a container runs. What concerns the pod's own cgroup is written here; what concerns the
container goes back to the runtime, and reconciling only checks it later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from koordlet.decision.answer import Combined, HookFailedError
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Container, Pod, Wake, WakeKind
from koordlet.decision.strategy import AnyHook, Level, Stage, Subject
from koordlet.engine.engine import Engine
from koordlet.hooks import delivery
from koordlet.hooks.combine import combine
from koordlet.qos.cpu_burst.quota import NAME as CPU_BURST
from koordlet.qos.cpu_burst.quota import make_pod_room, make_room, told_us
from koordlet.report import metrics
from koordlet.report.record import answer_records
from koordlet.state.merge import bare_id
from koordlet.state.reported import ReportedSource

_CARRIES_VALUES = frozenset({Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER})


class Asked:
    """``decision.answer.Ask`` of this daemon. ``reported``: origin -> the source that
    remembers what a runtime reported with its questions."""

    def __init__(
        self,
        engine: Engine,
        reported: Mapping[str, ReportedSource],
        answered: Callable[[str, str, Combined], None],
    ) -> None:
        """``answered(origin, container id, values)`` hears what a runtime was given to store."""
        self._engine = engine
        self._reported = reported
        self._answered = answered

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined:
        if stage is Stage.REMOVE_POD_SANDBOX:
            self._reported[origin].remove_pod(pod.uid)
            return Combined()
        is_resized = stage is Stage.UPDATE_POD
        self._reported[origin].upsert(pod, is_resized=is_resized)
        known = self._engine.parts.state.asked(origin, pod)
        if known is None:
            return Combined()
        if is_resized:
            self._make_pod_room(origin, known, pod.requested or {})
            return Combined()
        return self._answer(origin, stage, Subject(Level.POD, known.cgroup, pod=known))

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        reported = self._reported[origin].upsert(pod, container)
        if container.id:
            bare = bare_id(container.id)
            container = next((c for c in reported.containers if bare_id(c.id) == bare), container)
        placed = _placed(pod, container)
        known = self._engine.parts.state.asked(
            origin, msgspec.structs.replace(pod, containers=(placed,))
        )
        found = _container(known, placed) if known is not None else None
        if known is None or found is None:
            return Combined()
        subject = Subject(Level.CONTAINER, found.cgroup, pod=known, container=found)
        combined = self._answer(origin, stage, subject)
        if stage is Stage.UPDATE_CONTAINER:
            self._make_room(origin, known, found, combined)
        if stage in _CARRIES_VALUES and container.id:
            self._answered(origin, container.id, combined)
        return combined

    def _answer(self, origin: str, stage: Stage, subject: Subject) -> Combined:
        """What a runtime gets for ``subject``; the pod's own values are in force afterwards. In
        observe mode, and of hooks that are paused, it gets nothing; the decision log says what it
        would have got.

        Raises HookFailedError where the configuration wants that.
        """
        engine, parts = self._engine, self._engine.parts
        snapshot = engine.snapshot(Wake(WakeKind.ASKED, f"{origin} {stage}"))
        started = parts.host.monotonic()

        def heard(hook: str, success: bool) -> None:
            nonlocal started
            ended = parts.host.monotonic()
            labels = (hook, stage, "success" if success else "fail")
            parts.metrics.observe(
                metrics.RUNTIME_HOOK_INVOKED_DURATION, 1000 * (ended - started), labels
            )
            started = ended

        answering: list[AnyHook] = []
        showing: list[AnyHook] = []
        for hook in engine.hooks:
            is_shown = engine.only_shows(hook.name, subject.cgroup)
            (showing if is_shown else answering).append(hook)
        shown = combine(showing, subject, snapshot, stage, heard)
        combined = combine(answering, subject, snapshot, stage, heard)
        if stage is Stage.CREATE_CONTAINER:
            combined = delivery.startable(combined, snapshot.in_force)
        for owner, note in (*combined.notes, *shown.notes):
            engine.tell_notes(engine.runs[owner], (note,), snapshot, others_stand=True)
        for owner, error in (*combined.failed, *shown.failed):
            engine.runs[owner].failed(snapshot.time, error, parts.problems)
        wrong = (*combined.refused, *combined.failed)
        if wrong and engine.loaded.config.hooks.failure_policy == "Fail":
            raise HookFailedError("; ".join(f"{hook}: {why}" for hook, why in wrong))
        if subject.level is Level.CONTAINER:
            for each, observing in ((combined, False), (shown, True)):
                for record in answer_records(each, subject, snapshot, observing=observing):
                    parts.tell(record)
        elif stage is Stage.RUN_POD_SANDBOX:
            for each in (combined, shown):
                engine.amend(delivery.plans(subject, each), snapshot)
        return combined

    def _make_pod_room(self, origin: str, pod: Pod, requested: Mapping[Resource, Value]) -> None:
        """Make room for a smaller quota of the pod as a whole, written when kubelet has the
        answer."""
        snapshot = self._engine.snapshot(Wake(WakeKind.ASKED, f"{origin} resize"))
        quota_us = told_us(snapshot.in_force, pod.cgroup, requested, None)
        if quota_us is not None:
            plan = make_pod_room(CPU_BURST, snapshot.in_force, pod, quota_us)
            if plan is not None:
                self._engine.amend((plan,), snapshot)

    def _make_room(self, origin: str, pod: Pod, container: Container, answer: Combined) -> None:
        """For a smaller quota, which the runtime writes when it has the answer."""
        requested_us = container.requested.get(Resource.CPU_QUOTA_US)
        ours = (each.value for each in answer.settings if each.resource is Resource.CPU_QUOTA_US)
        quota_us = next(ours, requested_us)
        if isinstance(quota_us, int):
            snapshot = self._engine.snapshot(Wake(WakeKind.ASKED, f"{origin} resize"))
            plan = make_room(CPU_BURST, snapshot.in_force, pod, container.cgroup, quota_us)
            if plan is not None:
                self._engine.amend((plan,), snapshot)


def _placed(pod: PodFacts, container: ContainerFacts) -> ContainerFacts:
    """A container whose cgroup has no name yet stands for one inside its pod's."""
    if container.cgroup is not None:
        return container
    name = container.name or "new"
    return msgspec.structs.replace(
        container, id=container.id or name, cgroup=f"{pod.cgroup or ''}/{name}".strip("/")
    )


def _container(pod: Pod, asked: ContainerFacts) -> Container | None:
    wanted = bare_id(asked.id)
    return next((each for each in pod.containers if bare_id(each.id) == wanted), None)
