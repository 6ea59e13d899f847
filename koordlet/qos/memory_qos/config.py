"""Which memory QoS a pod, an application or a QoS directory has (spec/qos.md 5.1)."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlet.decision.snapshot import Application, Pod
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import PodMemoryQOS
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.merge import overlay
from koordlet.protocol.qos import SLO_SECTION_OF_QOS, KubeQoS, QoSClass, qos_with_default
from koordlet.protocol.slo import MemoryQOS, ResourceQOSStrategy
from koordlet.protocol.slo_defaults import DEFAULTS, NONE


class Config(msgspec.Struct, frozen=True):
    """``qos`` has no field left out that has a default. ``told``: fields that the pod itself asks
    for; those are set also where they say what the kernel does anyway. ``source``: for people."""

    qos: MemoryQOS
    source: str
    told: frozenset[str] = frozenset()


def of_pod(pod: Pod, strategy: ResourceQOSStrategy) -> Config | None:
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
    return Config(qos, source, frozenset(fields))


def of_application(application: Application, strategy: ResourceQOSStrategy) -> Config | None:
    return of_class(application.qos, strategy) if application.qos is not None else None


def of_kube_qos(kube: KubeQoS, strategy: ResourceQOSStrategy) -> Config | None:
    """Of a QoS directory."""
    return of_class(qos_with_default(None, kube), strategy)


def of_class(qos: QoSClass, strategy: ResourceQOSStrategy) -> Config | None:
    """None where the NodeSLO does not switch it on."""
    found = _memory_qos(strategy, qos)
    return Config(found, f"class {qos}") if found is not None and found.enable else None


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
