"""The cgroups that memory QoS manages: which memory QoS each has, and what it requests
(docs/reference/qos.md
5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Application, Container, InForce, Pod, Resources, Snapshot
from koordlet.decision.strategy import Level
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import PodMemoryQOS
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.merge import overlay
from koordlet.protocol.qos import SLO_SECTION_OF_QOS, KubeQoS, QoSClass, qos_with_default
from koordlet.protocol.slo import MemoryQOS, ResourceQOSStrategy
from koordlet.protocol.slo_defaults import DEFAULTS, NONE


class Part(msgspec.Struct, frozen=True):
    """A pod, one of its containers, or an application, which is both at once. ``name``: its uid, id
    or name.

    ``request_bytes`` None: nobody has told it, and nothing lets it be estimated. ``estimated``: it
    is at least that much. ``limit_bytes`` 0: no limit.
    """

    cgroup: str
    title: str
    level: Level
    name: str
    config: MemoryProfile
    request_bytes: int | None
    limit_bytes: int
    is_best_effort: bool
    estimated: bool = False


class Request(NamedTuple):
    """See ``Part``."""

    size_bytes: int | None
    estimated: bool = False


def parts(snapshot: Snapshot, strategy: ResourceQOSStrategy) -> Iterator[Part]:
    """Those with a memory QoS, outer ones first. What is there twice, as an application inside
    a pod may be, is told by the later, which a person declared."""
    in_force, node_bytes = snapshot.in_force, snapshot.node.memory_bytes
    for pod in snapshot.pods:
        config = of_pod(pod, strategy) if pod.is_active and pod.cgroup else None
        if config is not None:
            own = {
                each.id: _container_request(pod, each, in_force, node_bytes)
                for each in pod.containers
                if _is_container(pod, each)
            }
            yield _pod(pod, config, in_force, own)
            yield from _containers(pod, config, in_force, own)
    for application in snapshot.applications:
        if not (application.present and application.cgroup):
            continue
        config = of_application(application, strategy)
        if config is not None:
            yield _application(application, config, in_force)


Requests = Mapping[str, Request]
"""Id of a container -> what it asks for; without sandboxes."""


def _pod(pod: Pod, config: MemoryProfile, in_force: InForce, own: Requests) -> Part:
    batch = pod.raw_qos is QoSClass.BE
    limit = _limit(pod.resources, None, pod.cgroup, in_force, batch=batch)
    request = _pod_request(pod, own, batch=batch)
    if request.size_bytes is None and pod.kube_qos is KubeQoS.GUARANTEED:
        request = Request(limit or None)
    return Part(
        pod.cgroup, pod.title, Level.POD, pod.uid, config, request.size_bytes, limit,
        pod.is_best_effort, request.estimated,
    )  # fmt: skip


def _pod_request(pod: Pod, own: Requests, *, batch: bool) -> Request:
    """The pod's reported request, else the sum of its containers' requests."""
    known = pod.resources
    reported = known.request_batch_memory_bytes if batch else known.request_memory_bytes
    if reported is not None:
        return Request(reported)
    sizes = [each.size_bytes for each in own.values()]
    if None in sizes or not (batch or pod.containers or pod.kube_qos is KubeQoS.BEST_EFFORT):
        return Request(None)
    return Request(sum(filter(None, sizes)), any(each.estimated for each in own.values()))


def _containers(
    pod: Pod, config: MemoryProfile, in_force: InForce, own: Requests
) -> Iterator[Part]:
    batch = pod.raw_qos is QoSClass.BE
    for container in pod.containers:
        if not (container.cgroup and _is_container(pod, container)):
            continue
        request = own[container.id]
        limit = _limit(container.resources, container, container.cgroup, in_force, batch=batch)
        title = f"container {container.name or container.id} of {pod.title}"
        yield Part(
            container.cgroup, title, Level.CONTAINER, container.id, config, request.size_bytes,
            limit, pod.is_best_effort, request.estimated,
        )  # fmt: skip


def _is_container(pod: Pod, container: Container) -> bool:
    """Return whether it is no sandbox. Of a pod that somebody has told the name of, one that is
    known by its cgroup alone may be: it is told soon."""
    is_told = container.is_sandbox is False or bool(container.name)
    return not container.is_sandbox and (is_told or not pod.name)


def _application(application: Application, config: MemoryProfile, in_force: InForce) -> Part:
    known, cgroup = application.resources, application.cgroup
    return Part(
        cgroup,
        f"application {application.name}",
        Level.APPLICATION,
        application.name,
        config,
        known.request_memory_bytes or 0,
        _limit(known, None, cgroup, in_force, batch=False),
        application.is_best_effort,
    )


def _container_request(
    pod: Pod, container: Container, in_force: InForce, node_bytes: int
) -> Request:
    """A runtime knows only limits: for a Guaranteed pod they are also the requests."""
    if pod.raw_qos is QoSClass.BE:
        return Request(container.resources.request_batch_memory_bytes or 0)
    reported = container.resources.request_memory_bytes
    if reported is not None:
        return Request(reported)
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return Request(0)
    limit = _limit(container.resources, container, container.cgroup, in_force, batch=False)
    if pod.kube_qos is KubeQoS.GUARANTEED:
        return Request(limit or None)
    score = container.requested.get(Resource.OOM_SCORE_ADJ)
    if score is None and container.cgroup:
        score = in_force.original(container.cgroup, Resource.OOM_SCORE_ADJ)
    found = estimate_bytes(score, node_bytes)
    if found is not None and limit:
        found = min(found, limit)  # the score may be another's than kubelet's
    return Request(found, estimated=found is not None)


def estimate_bytes(score: Value | None, node_bytes: int) -> int | None:
    """The least that a container of a Burstable pod asks for, by the ``oom_score_adj`` that
    kubelet gives it: 1000 - 1000 * request / capacity, rounded, within 2..999
    (``GetContainerOOMScoreAdjust``, kubelet's ``pkg/kubelet/qos/policy.go``).

    Of different scores in one container the lowest counts: a process may raise its own. None for
    a score that kubelet gives to no container of such a pod, but a critical one's.
    """
    scores = [int(each) for each in str(score).split(",") if each.removeprefix("-").isdecimal()]
    lowest = min(scores, default=0)
    if not 2 <= lowest <= 999:
        return None
    # 999 stands for nothing as well.
    return 0 if lowest == 999 else (1000 - lowest) * node_bytes // 1000


def _limit(
    known: Resources,
    container: Container | None,
    cgroup: str,
    in_force: InForce,
    *,
    batch: bool,
) -> int:
    """The reported value, else what kubelet asked the runtime for, else what the file holds."""
    reported = known.limit_batch_memory_bytes if batch else known.limit_memory_bytes
    asked = container.requested.get(Resource.MEMORY_LIMIT) if container is not None else None
    for value in (reported, asked, in_force.value(cgroup, Resource.MEMORY_LIMIT)):
        if isinstance(value, int) and value:
            return max(value, 0)
    return 0


class MemoryProfile(msgspec.Struct, frozen=True):
    """``qos`` has no field left out that has a default. ``asked_by_pod``: fields that the pod
    itself asks for; those are set also where they say what the kernel does anyway. ``source``: for
    people."""

    qos: MemoryQOS
    source: str
    asked_by_pod: frozenset[str] = frozenset()


def of_pod(pod: Pod, strategy: ResourceQOSStrategy) -> MemoryProfile | None:
    """None: nothing is to be set. A bad annotation counts as absent (it is a fault of the pod)."""
    own = _annotation(pod)
    node = of_class(pod.qos, strategy)
    if own is None:
        return node
    fields = _fields(own)
    if own.policy == "none" or (own.policy != "auto" and node is None and not fields):
        return None
    if own.policy == "auto":
        base, source = _memory_qos(DEFAULTS.resource_qos_strategy, pod.qos), "policy auto"
    else:
        base, source = node.qos if node is not None else None, f"class {pod.qos}"
    qos = overlay(base or NONE.memory_qos, MemoryQOS(**fields)) or MemoryQOS()
    if fields:
        source += f" with fields of annotation {keys.MEMORY_QOS.name}"
    return MemoryProfile(qos, source, frozenset(fields))


def of_application(application: Application, strategy: ResourceQOSStrategy) -> MemoryProfile | None:
    return of_class(application.qos, strategy) if application.qos is not None else None


def of_kube_qos(kube: KubeQoS, strategy: ResourceQOSStrategy) -> MemoryProfile | None:
    """Of a QoS directory."""
    return of_class(qos_with_default(None, kube), strategy)


def of_class(qos: QoSClass, strategy: ResourceQOSStrategy) -> MemoryProfile | None:
    """None where the NodeSLO does not switch it on."""
    found = _memory_qos(strategy, qos)
    return MemoryProfile(found, f"class {qos}") if found is not None and found.enable else None


def _memory_qos(strategy: ResourceQOSStrategy | None, qos: QoSClass) -> MemoryQOS | None:
    found = getattr(strategy, SLO_SECTION_OF_QOS[qos], None)
    return found.memory_qos if found is not None else None


def _annotation(pod: Pod) -> PodMemoryQOS | None:
    try:
        return keys.MEMORY_QOS.read(pod.annotations)
    except AnnotationError:
        return None


def _fields(own: PodMemoryQOS) -> dict[str, Any]:
    """What the annotation says itself. ``enable`` is the node's, not the pod's."""
    names = (name for name in MemoryQOS.__struct_fields__ if name != "enable")
    return {name: value for name in names if (value := getattr(own, name)) is not None}
