"""What plugins want to know of each node beside the node itself: one line for each kind of object.

A source whose definition the API server does not have counts as one without objects.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from koord_scheduler.kube.shapes import DEVICES, NODE_METRICS, TOPOLOGIES
from koord_scheduler.model.cluster.nodes import Slot
from koord_scheduler.plan.hints import Event
from koordlet.kube.kinds import Kind


class Source(NamedTuple):
    """``read``: ``module:function`` of ``f(object) -> value of the slot | None``, imported where
    one of ``plugins`` is on; ``slot``: ``module:NAME`` of its `Slot`. Objects have the names of
    their nodes."""

    kind: Kind[Any]
    plugins: frozenset[str]
    slot: str
    read: str
    event: Event


_READERS = "koord_scheduler.kube.scheduling.readers:"
SOURCES: tuple[Source, ...] = (
    Source(
        DEVICES,
        frozenset({"DeviceShare"}),
        "koord_scheduler.place.device.types:DEVICES",
        _READERS + "device",
        Event.DEVICES,
    ),
    Source(
        NODE_METRICS,
        frozenset({"LoadAwareScheduling"}),
        "koord_scheduler.place.load_reading:LOAD",
        _READERS + "load",
        Event.LOAD,
    ),
    Source(
        TOPOLOGIES,
        frozenset({"NodeStrain"}),
        "koord_scheduler.place.strain:STRAIN",
        _READERS + "strain",
        Event.LOAD,
    ),
    Source(
        TOPOLOGIES,
        frozenset({"NodeNUMAResource"}),
        "koord_scheduler.place.numa.types:NUMA",
        _READERS + "numa",
        Event.TOPOLOGY,
    ),
)


def named(text: str) -> Any:
    """What ``module:NAME`` means."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def slot_of(source: Source) -> Slot[Any]:
    found: Slot[Any] = named(source.slot)
    return found


def reader_of(source: Source) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] = named(source.read)
    return found
