"""The cgroups that memory QoS is about, with what each of them asks for (spec/qos.md 5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Container, InForce, Pod, Resources, Snapshot
from koordlet.decision.strategy import Level
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.protocol.slo import ResourceQOSStrategy
from koordlet.qos.memory_qos_config import Config, of_application, of_pod


class Part(msgspec.Struct, frozen=True):
    """A pod, one of its containers, or an application, which is both at once.

    ``request_bytes`` None: nobody has told it. ``limit_bytes`` 0: no limit.
    """

    cgroup: str
    title: str
    level: Level
    config: Config
    request_bytes: int | None
    limit_bytes: int
    is_best_effort: bool


def parts(snapshot: Snapshot, strategy: ResourceQOSStrategy) -> Iterator[Part]:
    """Those with a memory QoS, outer ones first. What is there twice, as an application inside
    a pod may be, is told by the later, which a person declared."""
    in_force = snapshot.in_force
    for pod in snapshot.pods:
        config = of_pod(pod, strategy) if pod.is_active and pod.cgroup else None
        if config is not None:
            yield _pod(pod, config, in_force)
            yield from _containers(pod, config, in_force)
    for application in snapshot.applications:
        if not (application.present and application.cgroup):
            continue
        config = of_application(application, strategy)
        if config is not None:
            yield _application(application, config, in_force)


def _pod(pod: Pod, config: Config, in_force: InForce) -> Part:
    batch = pod.raw_qos is QoSClass.BE
    limit = _limit(pod.resources, None, pod.cgroup, in_force, batch=batch)
    request = _pod_request(pod, in_force, batch=batch)
    if request is None and pod.kube_qos is KubeQoS.GUARANTEED:
        request = limit or None
    return Part(pod.cgroup, pod.title, Level.POD, config, request, limit, pod.is_best_effort)


def _pod_request(pod: Pod, in_force: InForce, *, batch: bool) -> int | None:
    """What is told of the pod, else the sum of what its containers ask for."""
    if batch:
        told = pod.resources.request_batch_memory_bytes
        if told is not None:
            return told
        return sum(each.resources.request_batch_memory_bytes or 0 for each in pod.containers)
    if pod.resources.request_memory_bytes is not None:
        return pod.resources.request_memory_bytes
    total = 0
    for container in pod.containers:
        own = 0 if container.is_sandbox else _native_request(pod, container, in_force)
        if own is None:
            return None
        total += own
    return total if pod.containers or pod.kube_qos is KubeQoS.BEST_EFFORT else None


def _containers(pod: Pod, config: Config, in_force: InForce) -> Iterator[Part]:
    batch = pod.raw_qos is QoSClass.BE
    for container in pod.containers:
        if container.is_sandbox or not container.cgroup:
            continue
        if batch:
            request: int | None = container.resources.request_batch_memory_bytes or 0
        else:
            request = _native_request(pod, container, in_force)
        limit = _limit(container.resources, container, container.cgroup, in_force, batch=batch)
        title = f"container {container.name or container.id} of {pod.title}"
        yield Part(
            container.cgroup, title, Level.CONTAINER, config, request, limit, pod.is_best_effort
        )


def _application(application: Application, config: Config, in_force: InForce) -> Part:
    known, cgroup = application.resources, application.cgroup
    return Part(
        cgroup,
        f"application {application.name}",
        Level.APPLICATION,
        config,
        known.request_memory_bytes or 0,
        _limit(known, None, cgroup, in_force, batch=False),
        application.is_best_effort,
    )


def _native_request(pod: Pod, container: Container, in_force: InForce) -> int | None:
    """A runtime is told limits alone: of a Guaranteed pod they are the requests too."""
    told = container.resources.request_memory_bytes
    if told is not None:
        return told
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return 0
    if pod.kube_qos is KubeQoS.GUARANTEED:
        limit = _limit(container.resources, container, container.cgroup, in_force, batch=False)
        return limit or None
    return None


def _limit(
    known: Resources,
    container: Container | None,
    cgroup: str,
    in_force: InForce,
    *,
    batch: bool,
) -> int:
    """What is told, else what kubelet asked the runtime for, else what the file holds."""
    told = known.limit_batch_memory_bytes if batch else known.limit_memory_bytes
    asked = container.requested.get(Resource.MEMORY_LIMIT) if container is not None else None
    for value in (told, asked, in_force.value(cgroup, Resource.MEMORY_LIMIT)):
        if isinstance(value, int) and value:
            return max(value, 0)
    return 0
