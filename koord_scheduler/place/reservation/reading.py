"""Reservation objects to reservations with their reserve pods
(docs/reference/central.md 7.1, 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.model import pod_wire
from koord_scheduler.model.amounts import Text, amount_of
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.pod_reading import Classes, pod_of
from koord_scheduler.model.reading import instant_s
from koord_scheduler.model.texts import decoded, whole_number
from koord_scheduler.place.reservation.reservation import (
    NO_POLICY,
    NODE_RESERVATION,
    ORDER,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVE_POD,
    RESTRICTED_OPTIONS,
    PreAllocation,
    Reservation,
)
from koordlet.protocol.objects.reservation import ReservationOwner, ReservationSpec

PRIORITY_LABEL = "koordinator.sh/priority"
HIGHEST = 2**31 - 1
_MOST_OWNERS = 64
_MOST_DIGITS = 18
Tree = Mapping[str, Any]


class _Resources(msgspec.Struct, frozen=True):
    resources: Any = None


_resources = msgspec.json.Decoder(_Resources)


def read_reservation(tree: Tree, classes: Classes) -> Reservation | None:
    """Of the JSON value of the object; None where its template cannot be read."""
    meta, spec = tree.get("metadata") or {}, tree.get("spec") or {}
    status = tree.get("status") or {}
    try:
        found = msgspec.convert({**spec, "owners": []}, ReservationSpec)
        pod = _reserve_pod(meta, found, status)
    except (msgspec.ValidationError, TypeError, KeyError):
        return None
    allocatable = _amounts(status.get("allocatable"))
    made = pod_of(pod, classes)
    made = msgspec.structs.replace(made, key=key_of(str(meta.get("name", ""))), holds=meta["name"])
    keeps = allocatable or dict(made.cls.requests)
    annotations = meta.get("annotations") or {}
    labels = meta.get("labels") or {}
    restricted = frozenset(_names(annotations.get(RESTRICTED_OPTIONS))) & keeps.keys()
    return Reservation(
        name=meta["name"],
        uid=meta.get("uid", ""),
        pod=made,
        labels=labels,
        owners=_owners(spec.get("owners")),
        node=status.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        policy=found.allocate_policy,
        allocate_once=found.allocate_once is not False,
        allocatable=keeps,
        reserved=_amounts(_decoded(annotations.get(NODE_RESERVATION))),
        restricted=restricted or frozenset(keeps),
        order=_order(labels.get(ORDER)),
        unschedulable=found.unschedulable or meta.get("deletionTimestamp") is not None,
        taints=tuple(Taint(t.key, t.value, t.effect) for t in found.taints[:_MOST_OWNERS]),
        pre_allocation=_pre_allocation(found),
        created_s=instant_s(meta.get("creationTimestamp")) or 0.0,
    )


def key_of(name: str) -> str:
    """The key of a reserve pod; no namespace is called like this."""
    return f"(reservation)/{name}"


def _reserve_pod(meta: Tree, spec: ReservationSpec, status: Tree) -> pod_wire.SchedulingPod:
    """The pod that holds the room. What the object has of labels and annotations goes before its
    template's."""
    template = spec.template
    inner = template.get("metadata") or {}
    pod_spec = dict(template.get("spec") or {})
    labels = {**(inner.get("labels") or {}), **(meta.get("labels") or {})}
    annotations = {**(inner.get("annotations") or {}), **(meta.get("annotations") or {})}
    annotations[RESERVE_POD] = spec.allocate_policy or NO_POLICY
    annotations[RESERVATION_NAME] = meta["name"]
    wanted = pod_spec.pop("nodeName", "")
    if wanted:
        annotations[RESERVATION_NODE] = wanted
    if pod_spec.get("priority") is None:
        pod_spec["priority"] = _priority(labels.get(PRIORITY_LABEL))
    allocatable = status.get("allocatable")
    if allocatable:
        # One container with what was granted, in place of the template's.
        pod_spec["containers"] = [{"resources": {"requests": allocatable}}]
        pod_spec.pop("initContainers", None)
        pod_spec.pop("overhead", None)
        pod_spec.pop("resources", None)
    pod_spec.setdefault("schedulerName", "default-scheduler")
    # Claims are not reserved: whoever uses the reservation brings its own.
    pod_spec.pop("volumes", None)
    return msgspec.convert(
        {
            "metadata": {
                "name": meta.get("uid", ""),
                "namespace": inner.get("namespace") or "default",
                "uid": meta.get("uid", ""),
                "labels": labels,
                "annotations": annotations,
                "creationTimestamp": meta.get("creationTimestamp"),
                "deletionTimestamp": meta.get("deletionTimestamp"),
            },
            "spec": {**pod_spec, "nodeName": status.get("nodeName") or ""},
        },
        pod_wire.SchedulingPod,
    )


def _priority(text: Any) -> int:
    found = whole_number(text, 10) if isinstance(text, str) else None
    return HIGHEST if found is None else min(found, HIGHEST)


def _owners(value: Any) -> tuple[ReservationOwner, ...] | None:
    try:
        return msgspec.convert((value or [])[:_MOST_OWNERS], tuple[ReservationOwner, ...])
    except (msgspec.ValidationError, TypeError):
        return None


def _order(text: Any) -> int:
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    return 0


def _pre_allocation(spec: ReservationSpec) -> PreAllocation | None:
    if not spec.pre_allocation:
        return None
    policy = spec.pre_allocation_policy
    if policy is None:
        return PreAllocation()
    return PreAllocation(policy.mode == "Cluster", policy.enable_multiple)


def _decoded(text: Any) -> Any:
    found = decoded(_resources, text) if isinstance(text, str) else None
    return found.resources if found is not None else None


def _names(text: Any) -> tuple[str, ...]:
    found = _decoded(text)
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


def _amounts(resources: Any) -> dict[str, int]:
    if not isinstance(resources, Mapping):
        return {}
    found = {}
    for name, text in resources.items():
        amount = amount_of(text, name) if isinstance(text, Text) else None
        if amount is not None:
            found[name] = max(amount, 0)
    return found
