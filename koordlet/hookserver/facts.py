"""What a hook request tells of a pod and a container (docs/reference/hooks.md 1.6, 4.6). Pure."""

from __future__ import annotations

from typing import Any

from koordlet.decision.facts import ContainerFacts, PodFacts, asked_for_pod
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.hooks.delivery import FIELDS
from koordlet.state.runtimes import container_cgroup, pod_cgroup

RESOURCE_OF_FIELD = {fields.cri: resource for resource, fields in FIELDS.items() if fields.cri}
_DOCKER_TYPE = "io.kubernetes.docker.type"
_SIGNED = frozenset({Resource.OOM_SCORE_ADJ})


class InvalidRequestError(ValueError):
    """A request that says nothing usable; the text begins with the field."""


def sandbox_facts(request: Any) -> PodFacts:
    """Of a ``PodSandboxHookRequest``. Raises InvalidRequestError."""
    return PodFacts(
        uid=_uid(request),
        cgroup=_pod_cgroup("cgroup_parent", request.cgroup_parent),
        name=request.pod_meta.name or None,
        namespace=request.pod_meta.namespace or None,
        labels=dict(request.labels),
        annotations=dict(request.annotations),
        requested=asked_for_pod(*map(resource_values, (request.resources, request.overhead))),
        runtime_handler=request.runtime_handler or None,
    )


def pod_facts(request: Any) -> PodFacts:
    """The pod of a ``ContainerResourceHookRequest``. Raises InvalidRequestError."""
    return PodFacts(
        uid=_uid(request),
        cgroup=_pod_cgroup("pod_cgroup_parent", request.pod_cgroup_parent),
        name=request.pod_meta.name or None,
        namespace=request.pod_meta.namespace or None,
        labels=dict(request.pod_labels),
        annotations=dict(request.pod_annotations),
    )


def container_facts(request: Any, pod: PodFacts, runtime: str) -> ContainerFacts:
    """Without ``requested``. ``id`` is empty before the container is created.

    ``runtime``: scheme of container ids, where the pod's annotations do not name docker.
    """
    identity = request.container_meta.id
    if identity and "://" not in identity:
        scheme = "docker" if _DOCKER_TYPE in request.pod_annotations else runtime
        identity = f"{scheme}://{identity}"
    cgroup = container_cgroup(pod.cgroup, identity) if identity and pod.cgroup else None
    return ContainerFacts(
        id=identity, cgroup=cgroup, name=request.container_meta.name or None, is_sandbox=False
    )


def resource_values(resources: Any) -> dict[Resource, Value]:
    """Fields of a ``LinuxContainerResources`` that are set: neither zero nor empty."""
    values: dict[Resource, Value] = {}
    for field, resource in RESOURCE_OF_FIELD.items():
        value = getattr(resources, field)
        if isinstance(value, int) and value < 0 and resource not in _SIGNED:
            value = UNLIMITED
        if value:
            values[resource] = value
    return values


def _uid(request: Any) -> str:
    uid: str = request.pod_meta.uid
    if not uid:
        raise InvalidRequestError("pod_meta.uid: is empty; a pod is known by its uid alone")
    return uid


def _pod_cgroup(field: str, parent: str) -> str | None:
    try:
        return pod_cgroup(parent)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: {error}") from error
