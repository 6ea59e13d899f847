"""The spec of a NodeSLO (spec/central.md 1.8, spec/protocol.md 4.1)."""

from __future__ import annotations

from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit.configuration import Configuration


def slo_spec(
    configuration: Configuration, node: NodeFacts, present: Tree | None
) -> tuple[Tree | None, tuple[str, ...]]:
    """What ``spec`` should be, and what is wrong with the node's own annotations. The spec is None
    where no write is due. ``present``: the spec of the object, None where there is no object."""
    raise NotImplementedError
