"""PodGroup: the gang of pods that name it (docs/reference/central.md 3.2, 3.5)."""

from __future__ import annotations

from koordlet.protocol.objects.node_metric import InstantText, QuantityText
from koordlet.protocol.slo import Section


class PodGroupSpec(Section, frozen=True):
    min_member: int = 0
    """Number of pods that start together, or not at all."""
    min_resources: dict[str, QuantityText] | None = None
    """Resources that the pods need together; kept for others, not looked at."""
    schedule_timeout_seconds: int | None = None
    """Seconds that members wait for each other; 600 without."""


class PodGroupStatus(Section, frozen=True):
    """``occupied_by``: owners of a member, ``namespace/name``, joined by commas."""

    phase: str = ""
    """Pending, PreScheduling, Scheduling, Scheduled, Running, Unknown, Finished or Failed."""
    occupied_by: str = ""
    """Owners of a member, as namespace/name joined by commas."""
    scheduled: int = 0
    """Members that have a node."""
    running: int = 0
    """Members that run."""
    succeeded: int = 0
    """Members that ended well."""
    failed: int = 0
    """Members that failed."""
    schedule_start_time: InstantText | None = None
    """Time at which scheduling began."""
