"""A condition in the status of an object, as all kinds of Koordinator have it."""

from __future__ import annotations

from koordlet.protocol.objects.node_metric import InstantText
from koordlet.protocol.slo import Section


class Condition(Section, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_probe_time: InstantText | None = None
    last_transition_time: InstantText | None = None
