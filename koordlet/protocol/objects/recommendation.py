"""Recommendation: what the containers of a workload should request
(docs/reference/protocol.md 4.10)."""

from __future__ import annotations

from typing import Literal

import msgspec

from koordlet.protocol.objects.device import Condition
from koordlet.protocol.objects.node_metric import InstantText, QuantityText
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section


class WorkloadReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind`` may be that of any object which owns pods, by itself or as a Deployment does."""

    kind: str
    """Kind of the workload."""
    name: str
    """Name of the workload."""
    api_version: str = msgspec.field(default="", name="apiVersion")
    """Group and version of the workload."""


class RecommendationTarget(Section, frozen=True):
    """``workload`` counts with type ``workload``, ``pod_selector`` with ``podSelector``."""

    type: Literal["workload", "podSelector"]
    """workload or podSelector: which of the two below counts."""
    workload: WorkloadReference | None = None
    """Workload whose pods are looked at."""
    pod_selector: LabelSelector | None = None
    """Labels of the pods that are looked at."""


class RecommendationSpec(Section, frozen=True):
    target: RecommendationTarget
    """Pods whose usage is looked at, in this namespace."""


class RecommendedContainer(Section, frozen=True):
    container_name: str = ""
    """Name of the container."""
    resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Amounts that it should request."""


class RecommendedPod(Section, frozen=True):
    container_statuses: tuple[RecommendedContainer, ...] = ()
    """Amounts for each container."""


class RecommendationStatus(Section, frozen=True):
    update_time: InstantText | None = None
    """Time of the last change."""
    conditions: tuple[Condition, ...] = ()
    """Findings: is there a recommendation, and why not."""
    pod_status: RecommendedPod | None = None
    """Amounts that are recommended."""
