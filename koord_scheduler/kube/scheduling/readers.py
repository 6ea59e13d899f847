"""Objects of watches to what plugins keep of each node."""

from __future__ import annotations

from koord_scheduler.kube.shapes import NodeMetric
from koord_scheduler.place.load_reading import NodeLoad, read_load
from koordlet.kube.client import UNREADABLE


def load(item: NodeMetric) -> NodeLoad | None:
    """None for what cannot be read, as where there is no report."""
    try:
        return read_load(bytes(item.spec), bytes(item.status))
    except UNREADABLE:
        return None
