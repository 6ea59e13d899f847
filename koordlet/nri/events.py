"""What the plugin does at each event: ask the daemon, and remember which sandbox is whose.

Everything here is synchronous, so events are handled one after the other in the order in which
they come. Imports protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from koordlet.decision.answer import Ask, Combined
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.strategy import Stage
from koordlet.nri import changes, fields
from koordlet.nri.facts import container_facts, container_id, pod_facts, pod_uid, requested_of_pod
from koordlet.wire.pb import nri_pb2 as pb

ORIGIN = "nri"
_POD_STAGES = {
    pb.RUN_POD_SANDBOX: Stage.RUN_POD_SANDBOX,
    pb.STOP_POD_SANDBOX: Stage.STOP_POD_SANDBOX,
}


Held = Callable[[Mapping[str, Mapping[Resource, Value]]], None]
"""Takes bare container id -> what the runtime has stored of its resources, of all there are."""


class Reported(Protocol):
    """Remembers the pods that a runtime reports; ``Ask`` adds those it is asked about."""

    def replace(self, pods: Iterable[PodFacts]) -> None:
        """These are all there are."""
        ...

    def remove_pod(self, uid: str) -> None:
        """Unknown ones are ignored, here and below."""
        ...

    def remove_container(self, uid: str, container_id: str) -> None: ...


@dataclass
class _Sandbox:
    """``requested``: container id -> what kubelet asked for, before any hook."""

    uid: str
    requested: dict[str, Mapping[Resource, Value]] = field(default_factory=dict)


class Events:
    """Outlives sessions: what kubelet asked for at creation is told only once.

    Methods raise HookFailedError where the runtime's operation shall fail.
    """

    def __init__(self, ask: Ask, reported: Reported, held: Held) -> None:
        self._ask = ask
        self._reported = reported
        self._held = held
        self._sandboxes: dict[str, _Sandbox] = {}
        self._current: dict[str, str] = {}  # uid -> id of its latest sandbox
        self.runtime = ""

    def synchronize(self, pods: Iterable[Any], containers: Iterable[Any]) -> tuple[int, int]:
        """Everything that runs; replaces what was known. Returns how many of each."""
        before, self._sandboxes, self._current = self._sandboxes, {}, {}
        found: dict[str, tuple[Any, list[ContainerFacts]]] = {}
        for pod in pods:
            uid = pod_uid(pod)
            if uid:
                self._know(pod, uid)
                # A second sandbox of a pod: the later one tells, both have their containers.
                found[uid] = (pod, found[uid][1] if uid in found else [])
        held = {}
        for container in containers:
            sandbox = self._sandboxes.get(container.pod_sandbox_id)
            if sandbox is None or container.state == pb.CONTAINER_STOPPED:
                continue
            old = before.get(container.pod_sandbox_id)
            asked = old.requested.get(container.id) if old is not None else None
            if asked is not None:
                sandbox.requested[container.id] = asked
            found[sandbox.uid][1].append(container_facts(container, self.runtime, asked))
            held[container.id] = fields.requested(container.linux)
        self._held(held)
        self._reported.replace(
            [pod_facts(pod, self.runtime, tuple(inside)) for pod, inside in found.values()]
        )
        return len(found), len(held)

    def create_container(self, pod: Any, container: Any) -> Any | None:
        """``ContainerAdjustment``, None for no change."""
        asked = fields.requested(container.linux)
        combined = self._container(Stage.CREATE_CONTAINER, pod, container, asked)
        return changes.adjustment(combined, container)

    def update_container(self, pod: Any, container: Any, resources: Any) -> Any | None:
        """``ContainerUpdate``, None for no change. What ``resources`` leave open stays as kubelet
        asked for it before."""
        asked = fields.requested_of(resources)
        asked = {**(self._requested(container) or {}), **asked}
        combined = self._container(Stage.UPDATE_CONTAINER, pod, container, asked)
        return changes.answer_to_update(combined, container, resources)

    def update_pod(self, pod: Any, resources: Any, overhead: Any) -> None:
        """The pod gets other limits as a whole as soon as this returns."""
        self._know(pod, _uid_of(pod))
        facts = msgspec.structs.replace(
            pod_facts(pod, self.runtime), requested=requested_of_pod(resources, overhead)
        )
        self._ask.pod(ORIGIN, Stage.UPDATE_POD, facts)

    def event(self, number: int, pod: Any | None, container: Any | None) -> None:
        """All that wants no answer. ``pod`` may be missing where its container goes."""
        if number in _POD_STAGES and pod is not None:
            self._pod(number, pod)
        elif number == pb.REMOVE_POD_SANDBOX and pod is not None:
            self._remove_pod(pod)
        elif number == pb.START_CONTAINER and pod is not None and container is not None:
            # The container's cgroup is there and holds no process of its image yet.
            asked = self._requested(container)
            self._container(Stage.PRE_START_CONTAINER, pod, container, asked)
        elif number == pb.STOP_CONTAINER and container is not None:
            self._stop_container(pod, container)
        elif number == pb.REMOVE_CONTAINER and container is not None:
            self._forget_container(pod, container)

    def _pod(self, number: int, pod: Any) -> None:
        if number == pb.STOP_POD_SANDBOX and self._current.get(pod_uid(pod)) != pod.id:
            return  # already replaced, or unknown: to ask would bring it back to life
        self._know(pod, _uid_of(pod))
        facts = pod_facts(pod, self.runtime)
        self._ask.pod(ORIGIN, _POD_STAGES[number], facts)

    def _remove_pod(self, pod: Any) -> None:
        uid = _uid_of(pod)
        self._sandboxes.pop(pod.id, None)
        if self._current.get(uid, pod.id) != pod.id:
            # kubelet has made a new sandbox for the same pod, which lives on.
            self._reported.remove_container(uid, container_id(pod.id, self.runtime))
            return
        self._current.pop(uid, None)
        try:
            facts = pod_facts(pod, self.runtime)
            self._ask.pod(ORIGIN, Stage.REMOVE_POD_SANDBOX, facts)
        finally:
            self._reported.remove_pod(uid)

    def _container(
        self,
        stage: Stage,
        pod: Any,
        container: Any,
        asked: Mapping[Resource, Value] | None,
    ) -> Combined:
        sandbox = self._know(pod, _uid_of(pod))
        if asked is not None:
            sandbox.requested[container.id] = asked
        return self._ask.container(
            ORIGIN,
            stage,
            pod_facts(pod, self.runtime),
            container_facts(
                container, self.runtime, asked, created=stage is not Stage.CREATE_CONTAINER
            ),
        )

    def _stop_container(self, pod: Any | None, container: Any) -> None:
        try:
            # Of a pod that is gone nothing is asked: that would bring it back to life.
            if pod is not None and container.pod_sandbox_id in self._sandboxes:
                asked = self._requested(container)
                self._container(Stage.STOP_CONTAINER, pod, container, asked)
        finally:
            self._forget_container(pod, container)

    def _forget_container(self, pod: Any | None, container: Any) -> None:
        sandbox = self._sandboxes.get(container.pod_sandbox_id)
        uid = sandbox.uid if sandbox is not None else pod_uid(pod) if pod is not None else ""
        if sandbox is not None:
            sandbox.requested.pop(container.id, None)
        if uid:
            self._reported.remove_container(uid, container_id(container.id, self.runtime))

    def _know(self, pod: Any, uid: str) -> _Sandbox:
        """The sandbox that was made last is the pod's current one."""
        sandbox = self._sandboxes.get(pod.id)
        if sandbox is None:
            sandbox = self._sandboxes[pod.id] = _Sandbox(uid)
            self._current[uid] = pod.id
        return sandbox

    def _requested(self, container: Any) -> Mapping[Resource, Value] | None:
        sandbox = self._sandboxes.get(container.pod_sandbox_id)
        return sandbox.requested.get(container.id) if sandbox is not None else None


def _uid_of(pod: Any) -> str:
    """Raises ValueError where the runtime tells none."""
    uid = pod_uid(pod)
    if not uid:
        raise ValueError(f"sandbox {pod.id!r}: the runtime tells no pod uid (uid, label)")
    return uid
