"""Which event can help a pod that found no node: by the plugins that refused it.

A unit whose refusals an event cannot change stays where it is. A plugin that is not in the table,
such as one of another package, may be helped by every event.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Event(Enum):
    """What happened in the cluster."""

    NODE = "a node came"
    NODE_RESOURCES = "a node offers something else"
    NODE_LABELS = "labels, taints or annotations of a node changed, or it was uncordoned"
    POD_GONE = "a pod left a node"
    POD_PLACED = "a pod got a node"
    POD_CHANGED = "the pod itself, or labels of a running one, changed"
    LOAD = "a node reported its load"
    DEVICES = "a node reported its devices"
    TOPOLOGY = "a node reported its topology"
    RESERVATION = "a reservation came, changed or went"
    QUOTA = "a quota changed, or its pods use less"
    GANG = "a gang got a member or changed"
    TIME = "a node is no longer avoided"


_PLACE = frozenset({Event.NODE, Event.NODE_LABELS})
_ROOM = frozenset({Event.NODE, Event.NODE_RESOURCES, Event.POD_GONE, Event.RESERVATION})
_PODS = frozenset(
    {Event.NODE, Event.NODE_LABELS, Event.POD_PLACED, Event.POD_GONE, Event.RESERVATION}
)
_HELPS: dict[str, frozenset[Event]] = {
    "NodeUnschedulable": _PLACE,
    "NodeName": frozenset({Event.NODE}),
    "TaintToleration": _PLACE,
    "NodeAffinity": _PLACE,
    "SchedulingHint": frozenset({Event.NODE, Event.POD_CHANGED}),
    "NodePorts": frozenset({Event.NODE, Event.POD_GONE, Event.RESERVATION}),
    "NodeResourcesFit": _ROOM,
    "PodTopologySpread": _PODS | {Event.POD_CHANGED},
    "InterPodAffinity": _PODS | {Event.POD_CHANGED},
    "LoadAwareScheduling": frozenset({Event.NODE, Event.POD_GONE, Event.LOAD}),
    "NodeStrain": _PLACE | {Event.LOAD, Event.TOPOLOGY},
    "NodeNUMAResource": _ROOM | {Event.TOPOLOGY, Event.NODE_LABELS},
    "DeviceShare": _ROOM | {Event.DEVICES, Event.TOPOLOGY},
    "Reservation": _ROOM,
    "NodeBackoff": frozenset({Event.NODE, Event.TIME}),
    "ElasticQuota": frozenset(
        {Event.QUOTA, Event.POD_GONE, Event.NODE, Event.NODE_RESOURCES}  # totals follow nodes
    ),
    "Coscheduling": frozenset({Event.GANG, Event.NODE, Event.POD_GONE, Event.NODE_RESOURCES}),
    "SchedulingGates": frozenset({Event.POD_CHANGED}),
    "Unsupported": frozenset({Event.POD_CHANGED}),
    "Annotations": frozenset({Event.POD_CHANGED}),
}
_ALWAYS = frozenset(Event)


def helps(event: Event, refused_by: Iterable[str]) -> bool:
    """Whether any of these refusals may be gone. One refusal is enough, because each node has its
    own."""
    return any(event in _HELPS.get(plugin, _ALWAYS) for plugin in refused_by)


def waits_for(refused_by: Iterable[str]) -> tuple[str, ...]:
    """The events that may help, in words, for people."""
    return tuple(event.value for event in Event if helps(event, refused_by))
