"""From a hook request to its response: what koordlet wants, laid over what the request says.

A proxy takes some fields from a response even when they are empty
(docs/reference/hooks.md 4.6), so each
response repeats its request, with fields that we do not know.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from koordlet.decision.answer import Ask, Combined
from koordlet.decision.strategy import Stage
from koordlet.hooks.delivery import cri_fields
from koordlet.hookserver.calls import StageCalls
from koordlet.hookserver.facts import (
    RESOURCE_OF_FIELD,
    container_facts,
    pod_facts,
    resource_values,
    sandbox_facts,
)
from koordlet.hookserver.requested import Requested
from koordlet.wire.pb import hook_pb2 as pb

ORIGIN = "hooks"
SANDBOX_STAGES = frozenset({Stage.RUN_POD_SANDBOX, Stage.STOP_POD_SANDBOX, Stage.UPDATE_POD})

log = structlog.get_logger()


class Answers:
    """``runtime``: the scheme of container ids (``containerd``, ``cri-o``, ``docker``).

    ``lost`` counts what this API cannot carry: ``mounts``, ``devices``.
    """

    def __init__(
        self,
        ask: Ask,
        runtime: str,
        clock: Callable[[], float] = time.perf_counter,
        requested: Requested | None = None,
    ) -> None:
        self._ask = ask
        self._runtime = runtime
        self._clock = clock
        self._requested = requested or Requested()
        self.stages: dict[Stage, StageCalls] = {}
        self.lost: Counter[str] = Counter()

    def answer(self, stage: Stage, request: Any, *, whole: bool = True) -> Any:
        """``whole``: with everything of the request that no hook changed, as the hook API wants
        it; otherwise as ``wire/hook_line.py`` does.

        Raises InvalidRequestError, HookFailedError, and whatever ``ask`` has for a defect.
        """
        counts = self.stages.setdefault(stage, StageCalls(stage))
        counts.calls += 1
        started = self._clock()
        try:
            sandbox = stage in SANDBOX_STAGES
            response = (self._pod if sandbox else self._container)(stage, request)
        except Exception:
            counts.failed += 1
            raise
        finally:
            seconds = self._clock() - started
            counts.seconds_total += seconds
            counts.seconds_max = max(counts.seconds_max, seconds)
        counts.changed += bool(response.ByteSize())
        return _with_rest(response, request) if whole else response

    def _pod(self, stage: Stage, request: Any) -> Any:
        """What the hooks change."""
        pod = sandbox_facts(request)
        combined = self._ask.pod(ORIGIN, stage, pod)
        if stage is Stage.STOP_POD_SANDBOX:
            self._requested.forget_pod(pod.uid)
        response = pb.PodSandboxHookResponse()
        _overlay(response, "resources", request.resources, cri_fields(combined))
        self._count_lost(combined)
        return response

    def _container(self, stage: Stage, request: Any) -> Any:
        """What the hooks change."""
        pod = pod_facts(request)
        container = container_facts(request, pod, self._runtime)
        name = container.name or container.id
        given = resource_values(request.container_resources)
        asked = self._requested.asked(stage, pod.uid, name, given)
        combined = self._ask.container(
            ORIGIN, stage, pod, msgspec.structs.replace(container, requested=asked)
        )
        fields = cri_fields(combined)
        response = pb.ContainerResourceHookResponse()
        _overlay(response, "container_resources", request.container_resources, fields)
        for variable in combined.env:
            if request.container_envs.get(variable.name) != variable.value:
                response.container_envs[variable.name] = variable.value
        self._count_lost(combined)
        if stage is Stage.STOP_CONTAINER:
            self._requested.forget(pod.uid, name)
        else:
            ours = {RESOURCE_OF_FIELD[field]: value for field, value in fields.items()}
            self._requested.answered(pod.uid, name, ours)
        return response

    def _count_lost(self, combined: Combined) -> None:
        for kind, wanted in (("mounts", combined.mounts), ("devices", combined.devices)):
            if wanted and not self.lost[kind]:
                why = wanted[0].why
                log.warning(
                    "a CRI proxy cannot add this to a container; use NRI",
                    what=kind,
                    rule=why.rule,
                    reason=why.text,
                )
            self.lost[kind] += len(wanted)


def _overlay(response: Any, name: str, asked: Any, fields: Mapping[str, Any]) -> None:
    """``asked`` with the values of the hooks, where they differ."""
    changed = {field: value for field, value in fields.items() if getattr(asked, field) != value}
    if changed:
        resources = getattr(response, name)
        resources.CopyFrom(asked)
        for field, value in changed.items():
            setattr(resources, field, value)


def _with_rest(changed: Any, request: Any) -> Any:
    """The request, of which ``changed`` counts more."""
    response = type(changed)()
    for field in _ECHOED[type(changed)]:
        if field in _MESSAGES:
            source = changed if changed.HasField(field) else request
            if source.HasField(field):
                getattr(response, field).CopyFrom(getattr(source, field))
        elif field in _TEXTS:
            setattr(response, field, getattr(request, field))
        else:
            getattr(response, field).MergeFrom(getattr(request, field))
            getattr(response, field).MergeFrom(getattr(changed, field))
    return response


_MESSAGES = frozenset({"resources", "container_resources"})
_TEXTS = frozenset({"cgroup_parent", "pod_cgroup_parent"})
_ECHOED = {
    response: tuple(field.name for field in response.DESCRIPTOR.fields)
    for response in (pb.PodSandboxHookResponse, pb.ContainerResourceHookResponse)
}
