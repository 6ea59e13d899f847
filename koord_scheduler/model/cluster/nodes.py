"""Nodes, and what else is known about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")


class Taint(NamedTuple):
    """``effect``: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """``allocatable``: CPU in milli-cores, all else in whole units; ``annotations`` are the
    protocol's. ``ready``: kubelet reports that it is."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, int] = {}


class Slot(Generic[T]):
    """A place for what one plugin wants to know of each node, under the node's name. It may be
    filled before the node is known, and is kept while the node is away.

    A plugin declares its own: ``LOAD: Slot[NodeLoad] = Slot("load")``.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
