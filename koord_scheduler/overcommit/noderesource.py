"""What a node's status and metadata should say of overcommitted resources (spec/central.md 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord_scheduler.model.facts import Inputs, NodeFacts
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit.configuration import Configuration
from koordlet.protocol.colocation import ColocationStrategy


@dataclass(frozen=True)
class Plan:
    """``resources``: whole units by name, None = is to be removed; a name that is not there is left
    alone. ``annotations`` and ``labels`` likewise. ``zones``: batch resources by zone name.
    ``reset``: why batch and mid resources are taken back, empty where they are not. ``problems``:
    what could not be computed and is left as it is. ``strategy``: that of this node."""

    strategy: ColocationStrategy
    resources: Mapping[str, int | None]
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None]
    zones: Mapping[str, Mapping[str, int]]
    reset: str = ""
    problems: tuple[str, ...] = ()


def plan(inputs: Inputs, configuration: Configuration, now_s: float) -> Plan | None:
    """None while there is no configuration (`Configuration.colocation`)."""
    raise NotImplementedError


def node_patch(
    wanted: Plan, node: NodeFacts, last_sync_s: float | None, now_s: float
) -> tuple[Tree, tuple[str, ...]] | None:
    """A JSON merge patch of the Node for its **status subresource**, and why it is due; None where
    no write is due.

    Metadata and status go in one request: the status subresource of Node takes labels and
    annotations too. A write is due where a resource differs from the node's by more than
    ``resourceDiffThreshold`` or is there when it should not be, where metadata differs, and for
    the smallest difference once ``updateTimeThresholdSeconds`` have passed since ``last_sync_s``
    (None = never). Equal values are never written.
    """
    raise NotImplementedError


def zones_patch(
    wanted: Plan, inputs: Inputs, zones: list[Tree], last_sync_s: float | None, now_s: float
) -> list[Tree] | None:
    """``zones`` of the NodeResourceTopology as they should be; None where no write is due. ``zones``
    are those of the object, with every field."""
    raise NotImplementedError
