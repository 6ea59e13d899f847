"""API pods to ``Pod`` and ``PodClass``.

Nothing here raises: what cannot be read counts as absent, and what this scheduler cannot honour is
a reason in words on the class, so that the pod is refused and nothing is guessed.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.model import annotations as room
from koord_scheduler.model import pod_wire as wire
from koord_scheduler.model.cluster import pods
from koord_scheduler.model.pod_amounts import amounts_of, kube_qos, resized, sidecars
from koord_scheduler.model.pod_bounds import (
    MOST_TERMS,
    beyond,
    cut,
    required_of_nodes,
    required_of_pods,
    size_of_node_term,
    size_of_pod_term,
)
from koord_scheduler.model.pod_terms import (
    node_term,
    node_terms,
    pod_terms,
    preferred_terms,
    spread_constraint,
)
from koord_scheduler.model.reading import instant_s, kept_annotations, pod_key
from koordlet.protocol import keys, qos

UNIQUE_LABELS = frozenset(
    (
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    )
)
"""Labels that differ from pod to pod of one workload. No class has them: selectors that name them
see pods without them."""

_SCHEDULING = "scheduling.koordinator.sh/"
CLASS_ANNOTATIONS = (
    f"{_SCHEDULING}resource-spec",
    f"{_SCHEDULING}numa-topology-spec",
    f"{_SCHEDULING}device-allocate-hint",
    f"{_SCHEDULING}device-joint-allocate",
    f"{_SCHEDULING}gpu-partition-spec",
    f"{_SCHEDULING}reservation-affinity",
    f"{_SCHEDULING}exact-match-reservation",
    f"{_SCHEDULING}load-estimated-scaling-factors",
    f"{_SCHEDULING}load-estimated-seconds-after-pod-scheduled",
    f"{_SCHEDULING}load-estimated-seconds-after-initialized",
    f"{_SCHEDULING}scheduling-hint",
    f"internal.{_SCHEDULING}scheduling-hint",
    f"{_SCHEDULING}network-topology-selector",
)
"""Annotations of a pod that decide about its place."""
SCHEDULER_LABEL = f"{_SCHEDULING}scheduler-name"
UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled of a pod that fits nowhere."""
NETWORK_INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
GANG_LABELS = (
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
GANG_ANNOTATION = "gang.scheduling.koordinator.sh/name"
_MOST_TEXT = 16_384
_MOST_OWNERS = 16
_NO_MAPPING: Mapping[str, str] = {}
_time_s = functools.lru_cache(1024)(instant_s)
"""Pods that were made in one second share the number."""


class Volume(NamedTuple):
    """What a claim of a pod means for its place: why it cannot be served, and the terms of its
    volume, one of which the node must meet."""

    refused: str = ""
    terms: tuple[pods.NodeTerm, ...] = ()


VolumeOf = Callable[[str, str], Volume]
"""(namespace, name of a PersistentVolumeClaim) -> what is known of it."""


def no_volumes(namespace: str, name: str) -> Volume:
    return Volume(f"volume claim {name}: volumes are not known here")


class Classes:
    """Pods that are alike share their class. It lives as long as a pod has it."""

    def __init__(self) -> None:
        self.named: frozenset[str] = frozenset()
        """Names and uids of the pods that some reservation means as objects."""
        self._known: weakref.WeakValueDictionary[bytes, pods.PodClass] = (
            weakref.WeakValueDictionary()
        )
        self._last = 0
        self._encoder = msgspec.json.Encoder()

    def __len__(self) -> int:
        return len(self._known)

    def of(
        self,
        pod: wire.SchedulingPod,
        volume_of: VolumeOf,
        reserves: Mapping[str, str] = _NO_MAPPING,
    ) -> pods.PodClass:
        meta, spec = pod.metadata, pod.spec
        labels = meta.labels
        if not UNIQUE_LABELS.isdisjoint(labels):
            labels = {name: text for name, text in labels.items() if name not in UNIQUE_LABELS}
        annotations = {
            name: text
            for name in CLASS_ANNOTATIONS
            if (text := meta.annotations.get(name)) is not None and len(text) <= _MOST_TEXT
        }
        annotations.update(reserves)
        unsupported, volume_terms = _volumes(meta.namespace, spec, volume_of)
        daemon = any(each.kind == "DaemonSet" for each in meta.owner_references)
        owners = tuple(map(_owner, meta.owner_references[:_MOST_OWNERS]))
        is_named = meta.name in self.named or meta.uid in self.named
        named = pods.Named(meta.name, meta.uid) if is_named else pods.Named()
        placement = wire.PodPlacement(
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            topology_spread_constraints=spec.topology_spread_constraints,
        )
        size = resized(placement, pod.status) if spec.node_name else None
        identity = self._encoder.encode(
            (
                meta.namespace,
                labels,
                annotations,
                pod.status.qos_class,
                owners,
                daemon,
                named,
                unsupported,
                volume_terms,
                placement,
                size,
            )
        )
        found = self._known.get(identity)
        if found is None:
            self._last += 1
            found = _class(
                self._last, meta.namespace, labels, annotations, placement, pod.status.qos_class
            )
            requests, limits = size or (found.requests, found.limits)
            terms, many = _with_volumes(found.node_terms, volume_terms)
            unsupported = (*unsupported, *beyond(placement), *((many,) if many else ()))
            found = msgspec.structs.replace(
                found,
                daemon=daemon,
                owners=owners,
                named=named,
                requests=requests,
                limits=limits,
                unsupported=unsupported,
                node_terms=terms,
            )
            self._known[identity] = found
        return found


def pod_of(
    pod: wire.SchedulingPod,
    classes: Classes,
    volume_of: VolumeOf = no_volumes,
    reserves: Mapping[str, str] = _NO_MAPPING,
) -> pods.Pod:
    """``reserves``: annotations that mark a reserve pod. No pod can give them to itself."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    told = status.conditions if status.nominated_node_name else ()
    since = {c.type: c.last_transition_time for c in status.conditions if c.status == "True"}
    return pods.Pod(
        key=pod_key(meta.namespace, meta.name),
        uid=meta.uid,
        cls=classes.of(pod, volume_of, reserves),
        labels=meta.labels or _NO_MAPPING,
        annotations=kept_annotations(meta.annotations) or _NO_MAPPING,
        annotation_bytes=0 if spec.node_name else room.bytes_of(meta.annotations),
        created_s=_time_s(meta.creation_timestamp) or 0.0,
        owner=_controller(meta.owner_references),
        scheduler=sys.intern(meta.labels.get(SCHEDULER_LABEL) or spec.scheduler_name),
        node=sys.intern(spec.node_name),
        phase=sys.intern(status.phase),
        ready="Ready" in since,
        terminating=meta.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        nominated=status.nominated_node_name,
        refused=any(c.type == "PodScheduled" and c.reason == UNSCHEDULABLE for c in told),
        gang=gang_of(meta.namespace, meta.labels, meta.annotations, spec.scheduling_group),
        index=_index(meta.annotations.get(NETWORK_INDEX)),
        scheduled_s=_time_s(since.get("PodScheduled")) or 0.0,
        initialized_s=_time_s(since.get("Initialized")) or 0.0,
    )


def gang_of(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    group: wire.SchedulingGroup | None = None,
) -> str:
    """``namespace/name`` of a pod's gang (docs/reference/central.md 3.2); empty without one."""
    name = next((text for key in GANG_LABELS if (text := labels.get(key))), "")
    name = name or annotations.get(GANG_ANNOTATION, "")
    if not name and group is not None:
        name = group.pod_group_name
    return f"{namespace}/{name}" if name else ""


def _controller(owners: Iterable[wire.OwnerReference]) -> pods.Owner:
    return next((_owner(each) for each in owners if each.controller), pods.Owner())


def _owner(each: wire.OwnerReference) -> pods.Owner:
    return pods.Owner(each.kind, each.name, each.uid, each.api_version, each.controller)


def _index(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= 9):
        return 0
    return int(text)


def _with_volumes(
    own: tuple[pods.NodeTerm, ...] | None, of_volumes: tuple[tuple[pods.NodeTerm, ...], ...]
) -> tuple[tuple[pods.NodeTerm, ...] | None, str]:
    """Terms of which a node must meet one, so that it meets one of the pod's own and one of each
    volume's; and why not, where these are too many. Volumes of one zone have the same terms."""
    terms = own
    for each in dict.fromkeys(of_volumes):
        if terms is None:
            terms = each
        elif len(terms) * len(each) > MOST_TERMS:
            return terms, f"volumes with more than {MOST_TERMS} combinations of node terms"
        else:
            # A term without requirements matches no node.
            terms = tuple(a + b for a in terms for b in each if a and b)
    return terms, ""


def _volumes(
    namespace: str, spec: wire.PodSpec, volume_of: VolumeOf
) -> tuple[tuple[str, ...], tuple[tuple[pods.NodeTerm, ...], ...]]:
    """Why the pod is refused, and the terms of each volume that is bound to some nodes."""
    refused, terms = [], []
    if spec.resource_claims:
        refused.append("resource claims (DRA) are not supported by koord_scheduler")
    if len(spec.volumes) > MOST_TERMS:
        refused.append(f"more than {MOST_TERMS} volumes")
    for each in spec.volumes[:MOST_TERMS]:
        if each.ephemeral is not None:
            refused.append(f"volume {each.name}: ephemeral claims are not supported")
        elif each.persistent_volume_claim is not None:
            found = volume_of(namespace, each.persistent_volume_claim.claim_name)
            if found.refused:
                refused.append(found.refused)
            if found.terms:
                terms.append(found.terms)
    return tuple(refused), tuple(terms)


def _class(
    number: int,
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: wire.PodPlacement,
    qos_class: str,
) -> pods.PodClass:
    requests, limits = amounts_of(spec)
    kube = kube_qos(spec, qos_class)
    cls = qos.qos_with_default(qos.raw_qos(labels.get(keys.QOS_CLASS.name)), kube)
    priority = qos.raw_priority_class(labels.get(keys.PRIORITY_CLASS.name), spec.priority)
    affinity = spec.affinity or wire.Affinity()
    nodes = affinity.node_affinity or wire.NodeAffinity()
    together = affinity.pod_affinity or wire.PodAffinity()
    apart = affinity.pod_anti_affinity or wire.PodAffinity()
    preferred, size = cut(
        ((each, size_of_pod_term(each.pod_affinity_term)) for each in together.preferred),
        required_of_pods(spec),
    )
    not_preferred, _ = cut(
        ((each, size_of_pod_term(each.pod_affinity_term)) for each in apart.preferred), size
    )
    preferred_nodes, _ = cut(
        ((each, size_of_node_term(each.preference)) for each in nodes.preferred),
        required_of_nodes(spec),
    )
    return pods.PodClass(
        number=number,
        namespace=namespace,
        labels=labels,
        annotations=annotations,
        requests=requests,
        limits=limits,
        priority=spec.priority or 0,
        priority_class=qos.priority_class_with_default(priority, cls),
        qos=cls,
        kube_qos=str(kube),
        preempts=spec.preemption_policy != "Never",
        node_selector=spec.node_selector,
        node_terms=node_terms(nodes.required),
        preferred_nodes=tuple(
            pods.PreferredNodes(each.weight, node_term(each.preference)) for each in preferred_nodes
        ),
        tolerations=tuple(
            pods.Toleration(t.key, t.operator or "Equal", t.value, t.effect)
            for t in spec.tolerations[:MOST_TERMS]
        ),
        spread=tuple(
            spread_constraint(each, labels)
            for each in spec.topology_spread_constraints[:MOST_TERMS]
        ),
        affinity=pod_terms(together.required, namespace, labels),
        anti_affinity=pod_terms(apart.required, namespace, labels),
        preferred_affinity=preferred_terms(preferred, namespace, labels),
        preferred_anti_affinity=preferred_terms(not_preferred, namespace, labels),
        ports=tuple(
            pods.HostPort(port.host_port, port.protocol or "TCP", port.host_ip or "0.0.0.0")
            for container in (*spec.containers, *sidecars(spec))
            for port in container.ports
            if port.host_port
        ),
    )
