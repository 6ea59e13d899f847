"""Pods that are resized in place: they count with the larger of what they ask for, what kubelet
admitted and what their containers have; where the resize is infeasible, with the latter two (as
PodRequests of k8s.io/component-helpers 0.37 with UseStatusResources)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from koord_scheduler.model.wire import ContainerResources, ContainerStatus, Resources, SizedStatus

PENDING, INFEASIBLE = "PodResizePending", "Infeasible"
Spec = TypeVar("Spec", bound=msgspec.Struct)
_NOTHING = ContainerResources()


def sizes(spec: Spec, status: SizedStatus) -> tuple[Spec, ...]:
    """The spec (of either kind: with ``containers``, ``init_containers`` and ``resources``) as
    asked for, as admitted and as it is; the largest amount of each resource counts. One alone where
    they are the same, as nearly always."""
    asked: Any = spec
    known: dict[str, ContainerStatus] = {}
    for statuses in (status.init_container_statuses, status.container_statuses):
        for each in statuses:
            known[each.name] = each
    infeasible = False
    for condition in status.conditions:
        if condition.type == PENDING and condition.reason == INFEASIBLE:
            infeasible = True
    whole = status.resources or _NOTHING
    if not (infeasible or whole.requests or whole.limits or status.allocated_resources):
        for container in (*asked.containers, *asked.init_containers):
            if container.name in known and _resized(container, known[container.name]):
                break
        else:
            return (spec,)
    admitted = _sized(asked, known, _admitted, status.allocated_resources or whole.requests, {})
    actual = _sized(asked, known, _actual, whole.requests, whole.limits)
    return (admitted, actual) if infeasible else (spec, admitted, actual)


def _resized(container: Any, status: ContainerStatus) -> bool:
    own, admitted, has = container.resources, status.allocated_resources, status.resources
    if admitted and admitted != own.requests:
        return True
    if has is None:
        return False
    return bool(
        (has.requests and has.requests != own.requests) or (has.limits and has.limits != own.limits)
    )


def _admitted(own: Any, status: ContainerStatus) -> Any:
    """Of limits kubelet says only what they are."""
    requests = status.allocated_resources or {**own.limits, **own.requests}
    return type(own)(requests=requests)


def _actual(own: Any, status: ContainerStatus) -> Any:
    has = status.resources or _NOTHING
    requests = has.requests or status.allocated_resources or {**own.limits, **own.requests}
    return type(own)(requests=requests, limits=has.limits or own.limits)


def _sized(
    spec: Any,
    known: Mapping[str, ContainerStatus],
    size: Any,
    requests: Resources,
    limits: Resources,
) -> Any:
    """``requests`` and ``limits`` of the pod as a whole: where kubelet tells them, they are the
    sums of its containers."""

    def of(containers: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            msgspec.structs.replace(each, resources=size(each.resources, known[each.name]))
            if each.name in known
            else each
            for each in containers
        )

    made = msgspec.structs.replace(
        spec, containers=of(spec.containers), init_containers=of(spec.init_containers)
    )
    whole = spec.resources
    if not (whole.requests or whole.limits):
        return made
    said = type(whole)({**whole.requests, **requests}, {**whole.limits, **limits})
    return msgspec.structs.replace(made, resources=said)
