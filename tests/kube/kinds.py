"""Kinds for tests of the room itself."""

from __future__ import annotations

import msgspec

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape


class ConfigMap(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class PodSpec(Shape, frozen=True):
    node_name: str = ""


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()


CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps", True, ConfigMap)
PODS = Kind("", "v1", "Pod", "pods", True, Pod)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False, Object)
BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, Object)
