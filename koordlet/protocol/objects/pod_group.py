"""PodGroup: the gang of pods that name it (docs/reference/central.md 3.2, 3.5)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from koordlet.protocol.objects.node_metric import InstantText, QuantityText
from koordlet.protocol.slo import Section


class PodGroupSpec(Section, frozen=True):
    min_member: Annotated[int, Meta(description="So many pods start together, or none does.")] = 0
    min_resources: Annotated[
        dict[str, QuantityText] | None,
        Meta(description="What the pods need together; kept for others, not looked at."),
    ] = None
    schedule_timeout_seconds: Annotated[
        int | None, Meta(description="How long members wait for each other; 600 without.")
    ] = None


class PodGroupStatus(Section, frozen=True):
    """``occupied_by``: owners of a member, ``namespace/name``, joined by commas."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: InstantText | None = None
