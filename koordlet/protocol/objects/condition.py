"""A condition in the status of an object, as all kinds of Koordinator have it."""

from __future__ import annotations

from koordlet.protocol.objects.node_metric import InstantText
from koordlet.protocol.slo import Section


class Condition(Section, frozen=True):
    type: str
    """Aspect that the condition is about."""
    status: str
    """True, False or Unknown."""
    reason: str = ""
    """Cause of the last change, in one word."""
    message: str = ""
    """Cause of the last change, for people."""
    last_probe_time: InstantText | None = None
    """Time of the last look."""
    last_transition_time: InstantText | None = None
    """Time of the last change of status."""
