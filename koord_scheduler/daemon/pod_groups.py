"""Keeps the status of each PodGroup as its pods are (docs/reference/central.md 3.5)."""

from __future__ import annotations

from typing import Any

import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.gang_shapes import POD_GROUPS, PodGroup
from koord_scheduler.kube.queue import Queue
from koord_scheduler.kube.shapes import PODS, Pod
from koord_scheduler.kube.watches import Watched
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.model.pod_reading import gang_of
from koord_scheduler.model.reading import instant_s
from koord_scheduler.share.gang.status import Child, Status, status_of, worth_a_look
from koordlet.kube.errors import RefusedError
from koordlet.kube.mirror import Change, Keep, Key
from koordlet.protocol.objects.times import instant

SETTLE_S = 0.3
"""Members come, start and end in flocks: one write tells of all of them."""
RETRY_S = 2.0
_MOST_STEPS = 4
_log = structlog.get_logger()


def make(context: Context) -> PodGroups:
    return PodGroups(context)


class PodGroups:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups = context.watches.of(POD_GROUPS)
        self._pods: Watched[Any] = context.watches.of(PODS, keep=Keep.LEAN)
        """Members of gangs are `Pod`; others may be anything."""
        self._children: dict[str, set[Key]] = {}
        self._apart = False
        """The server keeps the status apart: the definition is not ours."""
        self._queue = self._new_queue()

    async def run(self) -> None:
        self._queue = self._new_queue()
        self._children = {}
        for key, pod in self._pods.objects.items():
            self._join(key, pod)
        endings = (
            self._groups.listen(self._on_groups),
            self._pods.listen(self._on_pods),
        )
        try:
            for key, group in self._groups.objects.items():
                created_s = instant_s(group.metadata.creation_timestamp) or 0.0
                if worth_a_look(_status(group), group.spec.min_member, created_s):
                    self._queue.add(_text(key))
            await self._queue.run()
        finally:
            for end in endings:
                end()

    def _new_queue(self) -> Queue:
        return Queue(
            self._one,
            workers=1,
            on_error=self._failed,
            retry=lambda error: RETRY_S if isinstance(error, NotLeadingError) else None,
        )

    def _on_groups(self, changes: tuple[Change[PodGroup], ...]) -> None:
        for change in changes:
            if change.new is None:
                self._queue.drop(_text(change.key))
            else:
                self._queue.add(_text(change.key))

    def _on_pods(self, changes: tuple[Change[Any], ...]) -> None:
        for change in changes:
            before, after = _gang(change.old), _gang(change.new)
            if before and before != after:
                self._leave(change.key, before)
            if change.new is not None and after:
                self._join(change.key, change.new)
            for gang in {before, after} - {""}:
                self._look_soon(gang)

    def _look_soon(self, gang: str) -> None:
        namespace, _, name = gang.partition("/")
        if self._groups.get(name, namespace) is not None:
            self._queue.add_after(gang, SETTLE_S)

    def _join(self, key: Key, pod: Any) -> None:
        gang = _gang(pod)
        if gang:
            self._children.setdefault(gang, set()).add(key)

    def _leave(self, key: Key, gang: str) -> None:
        children = self._children.get(gang, set())
        children.discard(key)
        if not children:
            self._children.pop(gang, None)

    async def _one(self, text: str) -> float | None:
        namespace, _, name = text.partition("/")
        group = self._groups.get(name, namespace)
        if group is None:
            return None
        old = _status(group)
        new = self._settled(text, group, old)
        if new == old:
            return None
        body, head = _tree(new), {"uid": group.metadata.uid}
        writes = self._context.writes
        try:
            if not self._apart:
                changes = {"metadata": head, "status": body}
                answer = await writes.patch(POD_GROUPS, name, changes, namespace)
                self._apart = _status(answer) != new
            if self._apart:
                await writes.set_status(POD_GROUPS, group.metadata, body)
        except RefusedError as error:
            if not error.gone:
                raise
            self._apart = False
        return None

    def _settled(self, text: str, group: PodGroup, old: Status) -> Status:
        """After as many steps as there are: steps between are not written."""
        children = [
            _child(self._pods.objects[key])
            for key in sorted(self._children.get(text, ()))
            if key in self._pods.objects
        ]
        now_s = float(int(self._context.wall()))  # as the API keeps it
        for _ in range(_MOST_STEPS):
            new = status_of(old, group.spec.min_member, children, now_s)
            if new == old:
                break
            old = new
        return old

    def _failed(self, key: str, error: Exception) -> None:
        _log.debug("the status of a pod group waits", group=key, problem=str(error))


def _gang(pod: Any) -> str:
    if not isinstance(pod, Pod):
        return ""
    meta = pod.metadata
    return gang_of(meta.namespace, meta.labels, meta.annotations)


def _child(pod: Pod) -> Child:
    meta = pod.metadata
    owners = tuple(f"{meta.namespace}/{each.name}" for each in meta.owner_references)
    return Child(pod.status.phase, bool(pod.facts.node), owners)


def _status(group: PodGroup) -> Status:
    found = group.status
    return Status(
        found.phase,
        found.occupied_by,
        found.scheduled,
        found.running,
        found.succeeded,
        found.failed,
        instant_s(found.schedule_start_time),
    )


def _tree(status: Status) -> dict[str, Any]:
    found: dict[str, Any] = {
        "phase": status.phase,
        "occupiedBy": status.occupied_by,
        "scheduled": status.scheduled,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
    }
    if status.started_s is not None:
        found["scheduleStartTime"] = instant(status.started_s)
    return found


def _text(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
