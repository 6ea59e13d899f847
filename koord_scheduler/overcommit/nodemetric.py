"""The spec of a NodeMetric (spec/central.md 1.7, spec/protocol.md 4.2)."""

from __future__ import annotations

from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit.configuration import Configuration


def metric_spec(configuration: Configuration, node: NodeFacts, present: Tree | None) -> Tree | None:
    """What ``spec`` should be; None where no write is due: it says so already, or the ConfigMap
    cannot be read. ``present``: the spec of the object, None where there is no object."""
    raise NotImplementedError
