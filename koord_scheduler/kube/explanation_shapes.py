"""ScheduleExplanations: who asks why an object found no node (spec/central.md 9.6)."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape


class AgedMetadata(Metadata, frozen=True):
    creation_timestamp: str = ""


class ExplanationSpec(Shape, frozen=True):
    """``question_object_template`` and ``ttl`` as they were written; the template is no pod of
    this cluster yet."""

    question_object_key: str = ""
    question_object_template: dict[str, Any] = msgspec.field(default_factory=dict)
    ttl: str = ""


class Explanation(Object, frozen=True):
    metadata: AgedMetadata = AgedMetadata()
    spec: ExplanationSpec = ExplanationSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


EXPLANATIONS = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "ScheduleExplanation",
    "scheduleexplanations",
    True,
    Explanation,
)
