"""Recommendation: what the containers of a workload should request
(docs/reference/protocol.md 4.10)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from koordlet.protocol.objects.device import Condition
from koordlet.protocol.objects.node_metric import InstantText, QuantityText
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section


class WorkloadReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind`` may be that of any object which owns pods, by itself or as a Deployment does."""

    kind: str
    name: str
    api_version: str = msgspec.field(default="", name="apiVersion")


class RecommendationTarget(Section, frozen=True):
    """``workload`` counts with type ``workload``, ``pod_selector`` with ``podSelector``."""

    type: Literal["workload", "podSelector"]
    workload: WorkloadReference | None = None
    pod_selector: LabelSelector | None = None


class RecommendationSpec(Section, frozen=True):
    target: Annotated[
        RecommendationTarget, Meta(description="Whose usage is looked at, in this namespace.")
    ]


class RecommendedContainer(Section, frozen=True):
    container_name: str = ""
    resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class RecommendedPod(Section, frozen=True):
    container_statuses: tuple[RecommendedContainer, ...] = ()


class RecommendationStatus(Section, frozen=True):
    update_time: InstantText | None = None
    conditions: tuple[Condition, ...] = ()
    pod_status: RecommendedPod | None = None
