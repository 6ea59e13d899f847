"""What a pod of the API server says about a pod on this node. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from koordlet.cluster.shapes import MIRROR, Amounts, Pod, PodContainer
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.snapshot import Resources
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import KubeQoS
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY

MOST_CONTAINERS = 200

_STATIC_UID = re.compile("[0-9a-f]{32}")
"""kubelet's own. Uids of the API server have dashes, so that nobody who may create pods can pass
one of his for another pod that is no static one."""
_FIELDS = (
    ("cpu_milli", CPU),
    ("memory_bytes", MEMORY),
    ("batch_cpu_milli", BATCH_CPU),
    ("batch_memory_bytes", BATCH_MEMORY),
)
_ENDED = frozenset({"Succeeded", "Failed"})
_RESIZE_PENDING = "PodResizePending"


def has_ended(pod: Pod) -> bool:
    return pod.status.phase in _ENDED


def uid_of(pod: Pod) -> str:
    """Under which kubelet runs it; empty where it says nothing that can be one."""
    mirrored = pod.metadata.annotations.get(MIRROR)
    if mirrored is None:
        return pod.metadata.uid
    return mirrored if _STATIC_UID.fullmatch(mirrored) else ""


def facts_of(pod: Pod) -> PodFacts:
    """Without cgroups: only this node knows them."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    lasting = (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    waits = any(each.type == _RESIZE_PENDING for each in status.conditions)
    actual = _actual(pod) if waits else {}
    whole = (status.resources if waits else None) or spec.resources or Amounts()
    asked = [_resources(each.resources, actual.get(each.name)) for each in lasting]
    passing = islice(_passing(pod), MOST_CONTAINERS)
    by_name = dict(zip((each.name for each in lasting), asked, strict=True))
    by_name |= {each.name: _resources(each.resources, actual.get(each.name)) for each in passing}
    return PodFacts(
        uid=uid_of(pod),
        kube_qos=_kube_qos(status.qos_class),
        name=meta.name or None,
        namespace=meta.namespace or None,
        priority=spec.priority,
        phase=status.phase or None,
        labels=meta.labels,
        annotations=meta.annotations,
        resources=_together(asked, whole, spec.overhead),
        host_network=spec.host_network,
        ips=tuple(each.ip for each in status.pod_ips) or None,
        runtime_handler=None,  # a RuntimeClass names another handler than itself
        containers=(*_started(pod, by_name), *_named(by_name)),
    )


def _passing(pod: Pod) -> Iterable[PodContainer]:
    return (each for each in pod.spec.init_containers if each.restart_policy != "Always")


def _started(pod: Pod, by_name: Mapping[str, Resources]) -> Iterable[ContainerFacts]:
    status = pod.status
    every = (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    )
    for each in every[:MOST_CONTAINERS]:
        if each.container_id:
            yield ContainerFacts(
                each.container_id,
                name=each.name or None,
                is_sandbox=False,
                resources=by_name.get(each.name),
            )


def _named(by_name: Mapping[str, Resources]) -> Iterable[ContainerFacts]:
    """Those that are yet to be created: a runtime asks about them by name."""
    for name in list(by_name)[:MOST_CONTAINERS]:
        yield ContainerFacts("", name=name, resources=by_name[name])


def _kube_qos(text: str) -> KubeQoS | None:
    return KubeQoS(text) if text in set(KubeQoS) else None


def _actual(pod: Pod) -> dict[str, Amounts]:
    """Return what kubelet set for containers, by name. It counts while kubelet has not admitted
    what the pod asks for: a resize that must wait, or that does not fit the node. Else their own
    figures do, because kubelet reads cgroups, in which we may have written."""
    status = pod.status
    every = (*status.init_container_statuses, *status.container_statuses)[:MOST_CONTAINERS]
    return {each.name: each.resources for each in every if each.resources is not None}


def _resources(amounts: Amounts, actual: Amounts | None) -> Resources:
    """Of a container. A request that is not there is that of the limit, as the API server has
    it."""
    if actual is not None:
        amounts = actual
    found: dict[str, int | None] = {}
    for field, name in _FIELDS:
        limit = amounts.limits.get(name)
        found[f"limit_{field}"] = amount(limit, name)
        found[f"request_{field}"] = amount(amounts.requests.get(name, limit), name)
    return Resources(**found)


def _together(every: Sequence[Resources], whole: Amounts, overhead: Mapping[str, str]) -> Resources:
    """Return what a pod asks for: as a whole where it says so (kubelet's ``PodRequests``), else the
    sum of its containers. A limit that one container lacks is no limit of the pod."""
    found: dict[str, int] = {}
    for field, name in _FIELDS:
        more = amount(overhead.get(name), name) or 0
        requests = [getattr(each, f"request_{field}") for each in every]
        limits = [getattr(each, f"limit_{field}") for each in every]
        known = [each for each in requests if each is not None]
        limit = sum(limits) if limits and None not in limits else None
        if name in whole.limits:
            limit = amount(whole.limits[name], name)
        request = sum(known) if known else limit if name in whole.limits else None
        if name in whole.requests:
            request = amount(whole.requests[name], name)
        if request is not None:
            found[f"request_{field}"] = request + more
        if limit is not None:
            found[f"limit_{field}"] = limit + more
    return Resources(**found)


@lru_cache(maxsize=2048)  # pods of a workload ask for the same
def amount(text: str | None, resource: str) -> int | None:
    """CPU in milli-cores, everything else in its own unit (those of the tiers are whole numbers);
    None where it is not there or no quantity."""
    if text is None:
        return None
    try:
        found = parse_quantity(text)
    except (ProtocolError, ValueError):
        return None
    return found.milli if resource == CPU else found.value
