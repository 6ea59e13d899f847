"""What a pod asks for as Kubernetes counts it, with its containers, its overhead and a resize."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from koord_scheduler.model import pod_wire as wire
from koord_scheduler.model.amounts import Text, amount_of
from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.model.resize import sizes
from koord_scheduler.model.wire import PodSpec
from koordlet.protocol import qos
from koordlet.protocol.resources import CPU, MEMORY


def sidecars(spec: wire.PodPlacement) -> tuple[wire.Container, ...]:
    return tuple(each for each in spec.init_containers if each.restart_policy == "Always")


def amounts_of(spec: wire.PodPlacement) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits of the pod as Kubernetes counts them: with the overhead, and the pod's
    own in place of its containers' where it has some."""
    overhead = _amounts(spec.overhead)
    requests = _total(spec, lambda r: _amounts({**r.limits, **r.requests}))
    limits = _total(spec, lambda r: _amounts(r.limits))
    whole = spec.resources
    if whole.requests or whole.limits:
        requests.update(_amounts({**whole.limits, **whole.requests}))
        limits.update(_amounts(whole.limits))
    for name, amount in overhead.items():
        requests[name] = requests.get(name, 0) + amount
        if name in limits:
            limits[name] += amount
    return (
        {name: amount for name, amount in requests.items() if amount},
        {name: amount for name, amount in limits.items() if amount},
    )


def resized(
    spec: wire.PodPlacement, status: wire.PodStatus
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Requests and limits of a pod that is resized; None where it counts with what it asks for."""
    every = sizes(spec, status)
    if len(every) == 1:
        return None
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for each in every:
        for largest, amounts in zip((requests, limits), amounts_of(each), strict=True):
            for name, amount in amounts.items():
                largest[name] = max(largest.get(name, 0), amount)
    found = (requests, limits)
    return None if found == amounts_of(spec) else found


def _total(
    spec: wire.PodPlacement, asked: Callable[[wire.Resourced], dict[str, int]]
) -> dict[str, int]:
    """Containers and sidecars together, or the largest init container with the sidecars that began
    before it."""
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, asked(container.resources))
    beginning: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers:
        own = asked(container.resources)
        if container.restart_policy == "Always":
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for name, amount in own.items():
            beginning[name] = max(beginning.get(name, 0), amount)
    _add(running, sidecars)
    for name, amount in beginning.items():
        running[name] = max(running.get(name, 0), amount)
    return running


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = min(total.get(name, 0) + amount, MOST_AMOUNT)


def _amounts(resources: Mapping[str, Text]) -> dict[str, int]:
    return {
        sys.intern(name): min(max(amount, 0), MOST_AMOUNT)
        for name, text in resources.items()
        if (amount := amount_of(text, name)) is not None
    }


def kube_qos(spec: wire.PodPlacement | PodSpec, text: str) -> qos.KubeQoS:
    if text in set(qos.KubeQoS):
        return qos.KubeQoS(text)
    return qos.kube_qos_of(
        (
            (_plain({**r.limits, **r.requests}), _plain(r.limits))
            for r in (each.resources for each in (*spec.containers, *spec.init_containers))
        ),
        (_plain(spec.resources.requests), _plain(spec.resources.limits)),
    )


def _plain(resources: Mapping[str, Text]) -> dict[str, int]:
    return {name: amount_of(resources.get(name), name) or 0 for name in (CPU, MEMORY)}
