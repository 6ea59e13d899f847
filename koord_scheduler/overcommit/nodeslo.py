"""The spec of a NodeSLO (docs/reference/central.md 1.8, docs/reference/protocol.md 4.1)."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit.configuration import Configuration, select
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.slo import NodeSLOSpec, SystemStrategy

BANDWIDTH = "node.koordinator.sh/network-bandwidth"
_EXTENSIONS = "extensions"
_NETWORK = "networkQOS"
_NETWORK_DEFAULTS = {
    "ingressRequest": 0,
    "ingressLimit": 100,
    "egressRequest": 0,
    "egressLimit": 100,
}
"""What the API server adds where the reference's CRD is installed (4.1)."""


def slo_spec(
    configuration: Configuration, node: NodeFacts, present: Tree | None
) -> tuple[Tree | None, tuple[str, ...]]:
    """What ``spec`` should be, and what is wrong with the node's own annotations. The spec is None
    where no write is due. ``present``: the spec of the object, None where there is no object.

    ``extensions`` are those of others and stay.
    """
    spec, problems = node_slo(configuration, node)
    wanted: Tree = msgspec.json.decode(msgspec.json.encode(spec))
    if present is None:
        return wanted, problems
    if _EXTENSIONS in present:
        wanted[_EXTENSIONS] = present[_EXTENSIONS]
    if present in (wanted, _with_api_defaults(wanted)):
        return None, problems
    return wanted, problems


def node_slo(configuration: Configuration, node: NodeFacts) -> tuple[NodeSLOSpec, tuple[str, ...]]:
    """The strategies that each key selects for the node, and what is wrong with its annotations."""
    labels = node.labels
    system, problems = _system(select(configuration.system, labels), node)
    spec = NodeSLOSpec(
        resource_used_threshold_with_be=select(configuration.threshold, labels),
        resource_qos_strategy=select(configuration.qos, labels),
        cpu_burst_strategy=select(configuration.cpu_burst, labels),
        system_strategy=system,
        host_applications=select(configuration.applications, labels).applications,
    )
    return spec, problems


def _system(strategy: SystemStrategy, node: NodeFacts) -> tuple[SystemStrategy, tuple[str, ...]]:
    """With the node's own bandwidth. Unlike in the reference, one that cannot be read costs itself
    alone and not the whole strategy, whose settings koordlet would take back."""
    text = node.annotations.get(BANDWIDTH)
    if not text:
        return strategy, ()
    try:
        bandwidth = parse_quantity(text)
        if bandwidth.nano < 0:
            raise ProtocolError(f"{text[:64]!r} is negative")
    except ProtocolError as error:
        return strategy, (f"annotation {BANDWIDTH}: {error}; totalNetworkBandwidth stays",)
    return msgspec.structs.replace(strategy, total_network_bandwidth=str(bandwidth)), ()


def _with_api_defaults(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_with_api_defaults(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    found = {key: _with_api_defaults(value) for key, value in tree.items()}
    if isinstance(network := found.get(_NETWORK), dict):
        found[_NETWORK] = {**_NETWORK_DEFAULTS, **network}
    return found
