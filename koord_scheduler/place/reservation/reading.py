"""Reservation objects to reservations with their reserve pods
(docs/reference/central.md 7.1, 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.model import pod_wire
from koord_scheduler.model.amounts import Text, amount_of, in_normal_form
from koord_scheduler.model.annotations import GIVEN
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import AS_RESERVATION, OPERATING_MODE, Pod
from koord_scheduler.model.pod_reading import Classes, pod_of
from koord_scheduler.model.reading import instant_s
from koord_scheduler.model.texts import decoded, whole_number
from koord_scheduler.place.reservation.reservation import (
    ALIGNED,
    AVAILABLE,
    CURRENT_OWNER,
    NO_POLICY,
    NODE_RESERVATION,
    ORDER,
    OWNERS_OF_POD,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVE_POD,
    RESIZE,
    RESTRICTED_OPTIONS,
    PreAllocation,
    Reservation,
)
from koord_scheduler.place.reservation.status import quantities
from koordlet.protocol.objects.reservation import ReservationOwner, ReservationSpec

PRIORITY_LABEL = "koordinator.sh/priority"
HIGHEST = 2**31 - 1
_MOST_OWNERS = 64
_MOST_DIGITS = 19
Tree = Mapping[str, Any]


class _Resources(msgspec.Struct, frozen=True):
    resources: Any = None


_resources = msgspec.json.Decoder(_Resources)
_owners_of_pod = msgspec.json.Decoder(tuple[ReservationOwner, ...])


def read_reservation(tree: Tree, classes: Classes) -> Reservation | None:
    """Of the JSON value of the object; None where its template cannot be read."""
    meta, spec = tree.get("metadata") or {}, tree.get("spec") or {}
    status = tree.get("status") or {}
    annotations = meta.get("annotations") or {}
    try:
        found = msgspec.convert({**spec, "owners": []}, ReservationSpec)
        made, texts = _reserve_pod(meta, found, status, classes)
    except (msgspec.ValidationError, TypeError, KeyError, AttributeError):
        return None
    keeps = _amounts(in_normal_form(status.get("allocatable") or texts))
    labels = meta.get("labels") or {}
    options = in_normal_form(dict.fromkeys(_names(annotations.get(RESTRICTED_OPTIONS))))
    restricted = options.keys() & keeps.keys()
    return Reservation(
        name=meta["name"],
        uid=made.uid,
        pod=made,
        labels=labels,
        owners=_owners(spec.get("owners")),
        node=status.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        policy=found.allocate_policy,
        allocate_once=found.allocate_once is not False,
        allocatable=keeps,
        texts=texts,
        reserved=_amounts(in_normal_form(_resources_in(annotations.get(NODE_RESERVATION)))),
        restricted=frozenset(restricted or keeps),
        order=_order(labels.get(ORDER)),
        unschedulable=found.unschedulable or meta.get("deletionTimestamp") is not None,
        taints=tuple(Taint(t.key, t.value, t.effect) for t in found.taints[:_MOST_OWNERS]),
        pre_allocation=_pre_allocation(found),
        created_s=instant_s(meta.get("creationTimestamp")) or 0.0,
    )


def read_operating_pod(pod: Pod) -> Reservation | None:
    """Read a pod that is a reservation itself while it is ready (7.8); None for any other."""
    if pod.labels.get(OPERATING_MODE) != AS_RESERVATION or not pod.node:
        return None
    owners = decoded(_owners_of_pod, pod.annotations.get(OWNERS_OF_POD))
    keeps = in_normal_form(pod.cls.requests)
    return Reservation(
        name=pod.key,
        uid=pod.uid,
        pod=pod,
        labels=pod.labels,
        owners=owners[:_MOST_OWNERS] if owners else (),
        node=pod.node,
        phase=AVAILABLE if pod.phase == "Running" and pod.ready else "Pending",
        policy=ALIGNED,
        allocatable=keeps,
        reserved=_amounts(in_normal_form(_resources_in(pod.annotations.get(NODE_RESERVATION)))),
        restricted=frozenset(keeps),
        order=_order(pod.labels.get(ORDER)),
        unschedulable=pod.terminating,
        taken=bool(pod.annotations.get(CURRENT_OWNER)),
    )


def key_of(name: str) -> str:
    """The key of a reserve pod; no namespace is called like this."""
    return f"(reservation)/{name}"


def _reserve_pod(
    meta: Tree, spec: ReservationSpec, status: Tree, classes: Classes
) -> tuple[Pod, dict[str, str]]:
    """The pod that holds the room, and what it keeps in words. What the object has of labels and
    annotations goes before its template's."""
    inner = spec.template.get("metadata") or {}
    pod_spec = dict(spec.template.get("spec") or {})
    labels = {**(inner.get("labels") or {}), **(meta.get("labels") or {})}
    # What a scheduler gave the pod that the template was copied of is not the reservation's.
    copied = {k: v for k, v in (inner.get("annotations") or {}).items() if k not in GIVEN}
    name, uid = meta["name"], meta.get("uid") or meta["name"]
    marks = {RESERVE_POD: spec.allocate_policy or NO_POLICY, RESERVATION_NAME: name}
    wanted = pod_spec.pop("nodeName", "")
    if wanted:
        marks[RESERVATION_NODE] = wanted
    if pod_spec.get("priority") is None:
        pod_spec["priority"] = _priority(labels.get(PRIORITY_LABEL))
    pod_spec.setdefault("schedulerName", "default-scheduler")
    # Claims are not reserved: whoever uses the reservation brings its own.
    pod_spec.pop("volumes", None)
    annotations = {**copied, **(meta.get("annotations") or {})}
    head = {
        "name": uid,
        "namespace": inner.get("namespace") or "default",
        "uid": uid,
        "labels": labels,
        "annotations": annotations,
        "creationTimestamp": meta.get("creationTimestamp"),
        "deletionTimestamp": meta.get("deletionTimestamp"),
    }

    def read(pod_spec: Tree) -> Pod:
        tree = {
            "metadata": head,
            "spec": {**pod_spec, "nodeName": status.get("nodeName") or ""},
        }
        return pod_of(msgspec.convert(tree, pod_wire.SchedulingPod), classes, reserves=marks)

    made = read(pod_spec)
    texts = _texts(pod_spec, made.cls.requests)
    # What it was granted counts before its template, and so does what it is to be resized to.
    given = status.get("allocatable") or _resources_in((meta.get("annotations") or {}).get(RESIZE))
    if given or in_normal_form(texts) is not texts:
        texts.update({name: str(text) for name, text in given.items()})
        made = read(_asking(pod_spec, in_normal_form(texts)))
    return msgspec.structs.replace(made, key=key_of(name), holds=name), texts


def _texts(pod_spec: Tree, requests: Mapping[str, int]) -> dict[str, str]:
    """Return what a template asks for, each amount in the unit in which it is written there, if one
    container asks for all of it."""
    found = quantities(requests)
    parts = (c.get("resources") or {} for c in pod_spec.get("containers") or ())
    kinds = (part.get(kind) or {} for part in parts for kind in ("limits", "requests"))
    for name, text in (each for kind in kinds for each in kind.items()):
        if amount_of(text, name) == requests.get(name):
            found[name] = str(text)
    return found


def _asking(pod_spec: Tree, texts: Mapping[str, str]) -> dict[str, Any]:
    """A template whose containers ask for nothing, beside one that asks for all of this."""
    found = {k: v for k, v in pod_spec.items() if k not in ("overhead", "resources")}
    for of in ("containers", "initContainers"):
        if of in found:
            found[of] = [{**each, "resources": {}} for each in found[of] or ()]
    asking = {"name": "reservation", "resources": {"requests": dict(texts)}}
    return {**found, "containers": [*(found.get("containers") or ()), asking]}


def _priority(text: Any) -> int:
    found = whole_number(text, 10) if isinstance(text, str) else None
    return HIGHEST if found is None else min(found, HIGHEST)


def _owners(value: Any) -> tuple[ReservationOwner, ...] | None:
    try:
        return msgspec.convert((value or [])[:_MOST_OWNERS], tuple[ReservationOwner, ...])
    except (msgspec.ValidationError, TypeError):
        return None


def _order(text: Any) -> int:
    """A signed integer of 64 bits; 0 for none."""
    number = (whole_number(text, _MOST_DIGITS) if isinstance(text, str) else None) or 0
    return number if -(1 << 63) <= number < 1 << 63 else 0


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


def _resources_in(text: Any) -> Mapping[str, Any]:
    found = _decoded(text)
    return found if isinstance(found, dict) else {}


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name, text in resources.items():
        amount = amount_of(text, name) if isinstance(text, Text) else None
        if amount is not None:
            found[name] = max(amount, 0)
    return found
