"""ScheduleExplanations as the scheduler reads them (docs/reference/central.md 9.6)."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import force_setattr

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object
from koordlet.protocol.objects.explanation import ScheduleExplanationSpec


class AgedMetadata(Metadata, frozen=True):
    creation_timestamp: str = ""


class Explanation(Object, frozen=True):
    """``status`` as the server wrote it."""

    open_ended: ClassVar[bool] = True
    metadata: AgedMetadata = AgedMetadata()
    spec: ScheduleExplanationSpec = ScheduleExplanationSpec()
    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        force_setattr(self, "status", self.status.copy())


EXPLANATIONS = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "ScheduleExplanation",
    "scheduleexplanations",
    True,
    Explanation,
)
