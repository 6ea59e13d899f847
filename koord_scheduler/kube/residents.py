"""Pods as the descheduler keeps them: all that are not finished well, each as a `Resident`."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.balance.bin_pack import DELETION_COST
from koord_scheduler.balance.job import EVICT_ANYWAY
from koord_scheduler.balance.world import MIRROR, Details, Resident
from koord_scheduler.kube.migration_shapes import DatedMetadata
from koord_scheduler.kube.shapes import KEPT_ANNOTATIONS
from koord_scheduler.model import wire
from koord_scheduler.model.amounts import amount_of
from koord_scheduler.model.cluster.pods import (
    NodeRequirement,
    NodeTerm,
    Owner,
    Pod,
    PodClass,
    PodTerm,
    PreferredNodes,
    SpreadConstraint,
    Toleration,
)
from koord_scheduler.model.reading import instant_s
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol import qos
from koordlet.protocol.keys import PRIORITY_CLASS, QOS_CLASS
from koordlet.protocol.selector import LabelSelector

WATCHED = "status.phase!=Succeeded"
"""Pods that ended well take nothing and are nobody's replica any more."""
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
_SOURCE = "kubernetes.io/config.source"
_MOST_CLASSES = 50_000
_MOST_COST = 2**31 - 1
_numbers = itertools.count(1)
_classes: dict[Hashable, PodClass] = {}


class _Requirement(Shape, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _NodeTerm(Shape, frozen=True):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()


class _Required(Shape, frozen=True):
    node_selector_terms: tuple[_NodeTerm, ...] = ()


class _Preferred(Shape, frozen=True):
    weight: int = 0
    preference: _NodeTerm = _NodeTerm()


class _NodeAffinity(Shape, frozen=True):
    required: _Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[_Preferred, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _PodTerm(Shape, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class _PodAffinity(Shape, frozen=True):
    required: tuple[_PodTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Shape, frozen=True):
    node_affinity: _NodeAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Toleration(Shape, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class _Spread(Shape, frozen=True):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class _Container(wire.Container, frozen=True):
    image: str = ""


class _Volume(Shape, frozen=True):
    empty_dir: msgspec.Raw | None = None
    host_path: msgspec.Raw | None = None
    persistent_volume_claim: msgspec.Raw | None = None


class _Spec(Shape, frozen=True):
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: wire.Resources = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: _Affinity | None = None
    tolerations: tuple[_Toleration, ...] = ()
    topology_spread_constraints: tuple[_Spread, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _State(Shape, frozen=True):
    reason: str = ""
    exit_code: int | None = None


class _States(Shape, frozen=True):
    waiting: _State | None = None
    terminated: _State | None = None


class _ContainerStatus(Shape, frozen=True):
    restart_count: int = 0
    state: _States = _States()


class _Condition(Shape, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Status(Shape, frozen=True):
    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    start_time: str | None = None
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


_NO_SPEC, _NO_STATUS = _Spec(), _Status()
_NOBODY = Resident(Pod(key="", uid="", cls=PodClass(number=0, namespace="")))


class ResidentPod(Object, frozen=True):
    """``resident`` is made of the rest, which is dropped."""

    metadata: DatedMetadata = DatedMetadata()
    spec: _Spec = _NO_SPEC
    status: _Status = _NO_STATUS
    resident: Resident = _NOBODY

    def __post_init__(self) -> None:
        made = resident_of(self.metadata, self.spec, self.status)
        force_setattr(self, "resident", made)
        meta = self.metadata
        force_setattr(
            self, "metadata", DatedMetadata(name=meta.name, namespace=meta.namespace, uid=meta.uid)
        )
        force_setattr(self, "spec", _NO_SPEC)
        force_setattr(self, "status", _NO_STATUS)


PODS = Kind("", "v1", "Pod", "pods", True, ResidentPod)


def resident_of(meta: DatedMetadata, spec: _Spec, status: _Status) -> Resident:
    owner = next((each for each in meta.owner_references if each.controller), None)
    conditions = {each.type: each for each in status.conditions}
    ready, scheduled = conditions.get("Ready"), conditions.get("PodScheduled")
    pod = Pod(
        key=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        cls=_class(meta, spec, status, daemon=owner is not None and owner.kind == "DaemonSet"),
        labels=meta.labels,
        annotations={k: v for k, v in meta.annotations.items() if KEPT_ANNOTATIONS in k},
        created_s=instant_s(meta.creation_timestamp) or 0.0,
        owner=Owner()
        if owner is None
        else Owner(owner.kind, owner.name, owner.uid, owner.api_version),
        scheduler=spec.scheduler_name,
        node=spec.node_name,
        phase=status.phase or "Pending",
        ready=ready is not None and ready.status == "True",
        terminating=meta.deletion_timestamp is not None,
        scheduled_s=(scheduled and instant_s(scheduled.last_transition_time)) or 0.0,
    )
    return Resident(pod, _details(meta, spec, status))


def _details(meta: DatedMetadata, spec: _Spec, status: _Status) -> Details:
    notes = meta.annotations
    main, init = status.container_statuses, status.init_container_statuses
    return Details(
        owned=bool(meta.owner_references),
        static=MIRROR in notes or notes.get(_SOURCE, "api") != "api",
        local_storage=any(
            each.empty_dir is not None or each.host_path is not None for each in spec.volumes
        ),
        pvc=any(each.persistent_volume_claim is not None for each in spec.volumes),
        evict_anyway=EVICT_ANYWAY in notes,
        deletion_cost=_cost(notes.get(DELETION_COST)),
        eviction_cost=_cost(notes.get(EVICTION_COST)),
        restarts=sum(each.restart_count for each in main),
        init_restarts=sum(each.restart_count for each in init),
        reasons=(*((status.reason,) if status.reason else ()), *_reasons(main)),
        init_reasons=_reasons(init),
        exit_codes=tuple(
            each.state.terminated.exit_code
            for each in main
            if each.state.terminated is not None and each.state.terminated.exit_code is not None
        ),
        images=tuple(each.image for each in spec.containers),
        priority_class_name=spec.priority_class_name,
        started_s=instant_s(status.start_time) or 0.0,
    )


def _reasons(statuses: Iterable[_ContainerStatus]) -> tuple[str, ...]:
    states = (each.state.waiting or each.state.terminated for each in statuses)
    return tuple(each.reason for each in states if each is not None and each.reason)


def _cost(text: str | None) -> int:
    """0 for what is no number, as in Kubernetes."""
    digits = (text or "").removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 10:
        return 0
    return max(min(int(text or "0"), _MOST_COST), -_MOST_COST)


def _class(meta: DatedMetadata, spec: _Spec, status: _Status, *, daemon: bool) -> PodClass:
    asked = requests(spec)
    label, priority_label = meta.labels.get(QOS_CLASS.name), meta.labels.get(PRIORITY_CLASS.name)
    rest = (spec.affinity, spec.tolerations, spec.topology_spread_constraints, spec.node_selector)
    key = (
        meta.namespace,
        tuple(sorted(meta.labels.items())),
        tuple(sorted(asked.items())),
        spec.priority,
        status.qos_class,
        daemon,
        msgspec.json.encode(rest),
    )
    found = _classes.get(key)
    if found is not None:
        return found
    if len(_classes) >= _MOST_CLASSES:
        _classes.clear()
    kube = status.qos_class
    cls = qos.qos_with_default(
        qos.raw_qos(label), qos.KubeQoS(kube) if kube in tuple(qos.KubeQoS) else None
    )
    raw = qos.raw_priority_class(priority_label, spec.priority)
    affinity = spec.affinity or _Affinity()
    of_node = affinity.node_affinity or _NodeAffinity()
    apart = affinity.pod_anti_affinity or _PodAffinity()
    required = of_node.required
    found = _classes[key] = PodClass(
        number=next(_numbers),
        namespace=meta.namespace,
        labels=meta.labels,
        requests=asked,
        priority=spec.priority or 0,
        priority_class=qos.priority_class_with_default(raw, cls),
        qos=cls,
        kube_qos=kube or "Burstable",
        daemon=daemon,
        node_selector=spec.node_selector,
        node_terms=None if required is None else tuple(map(_term, required.node_selector_terms)),
        preferred_nodes=tuple(
            PreferredNodes(each.weight, _term(each.preference)) for each in of_node.preferred
        ),
        tolerations=tuple(
            Toleration(each.key, each.operator, each.value, each.effect)
            for each in spec.tolerations
        ),
        spread=tuple(map(_spread, spec.topology_spread_constraints)),
        anti_affinity=tuple(_pod_term(each, meta.namespace) for each in apart.required),
    )
    return found


def _term(term: _NodeTerm) -> NodeTerm:
    return (
        *(NodeRequirement(each.key, each.operator, each.values) for each in term.match_expressions),
        *(
            NodeRequirement(each.key, each.operator, each.values, field=True)
            for each in term.match_fields
        ),
    )


def _spread(each: _Spread) -> SpreadConstraint:
    return SpreadConstraint(
        each.topology_key,
        each.max_skew,
        each.when_unsatisfiable == "DoNotSchedule",
        each.label_selector,
        honor_affinity=each.node_affinity_policy == "Honor",
        honor_taints=each.node_taints_policy == "Honor",
    )


def _pod_term(each: _PodTerm, namespace: str) -> PodTerm:
    own = not each.namespaces and each.namespace_selector is None
    return PodTerm(
        each.topology_key,
        each.label_selector,
        frozenset((namespace,)) if own else frozenset(each.namespaces),
        each.namespace_selector,
    )


def requests(spec: _Spec) -> dict[str, int]:
    """As Kubernetes counts them: containers and sidecars together, or the largest init container
    with the sidecars before it; overhead besides."""
    total: dict[str, int] = {}
    _add(total, (each.resources.requests for each in spec.containers))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each in spec.init_containers:
        own: dict[str, int] = dict(sidecars)
        _add(own, (each.resources.requests,))
        if each.restart_policy == "Always":
            sidecars = own
        for name, amount in own.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in sidecars.items():
        total[name] = total.get(name, 0) + amount
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    _add(total, (spec.overhead,))
    return total


def _add(total: dict[str, int], parts: Iterable[Mapping[str, Any]]) -> None:
    for part in parts:
        for name, text in part.items():
            total[name] = total.get(name, 0) + (amount_of(text, name) or 0)
