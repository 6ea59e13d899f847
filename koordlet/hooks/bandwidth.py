"""Network bandwidth by class and pod (docs/reference/protocol.md 5.4.5, 5.6), in bits per second.

Shared by the two mechanisms behind ``networkQOS``, which apply it differently. Invalid values
count as absent, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.traffic import BandwidthShare, Rate
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import SLO_SECTION_OF_QOS, QoSClass
from koordlet.protocol.quantity import parse_quantity

TC = "tc"
TERWAY = "terway-qos"
ARGUMENTS = (
    slo_keys.BANDWIDTH,
    *slo_keys.below(slo_keys.CLASSES, "policies.netQOSPolicy", "*.networkQOS.*"),
)
"""Keys of the NodeSLO that dividing the network goes by, whoever carries it out."""

CLASSES = (QoSClass.LS, QoSClass.BE)
"""The classes whose ``networkQOS`` counts."""

_WITHOUT = {
    "lsr_class": "lsrClass.networkQOS: LSE and LSR use lsClass",
    "system_class": "systemClass.networkQOS: SYSTEM gets what lsClass and beClass do not reserve",
}
"""Other sections of the NodeSLO that may have one, and what happens instead."""


class NodeBandwidth(msgspec.Struct, frozen=True):
    """``shares`` has the classes with an enabled ``networkQOS`` alone. Where ``total_bps`` is set
    nothing is larger."""

    total_bps: int
    shares: Mapping[QoSClass, BandwidthShare]
    problems: tuple[str, ...] = ()


def policy(snapshot: Snapshot) -> str:
    """``netQOSPolicy``; empty while there is no NodeSLO."""
    if snapshot.slo is None:
        return ""
    strategy = snapshot.slo.resource_qos_strategy
    policies = strategy.policies if strategy is not None else None
    return (policies.net_qos_policy if policies is not None else None) or TC


def of_node(snapshot: Snapshot) -> NodeBandwidth:
    """The total and the shares of the classes."""
    slo = snapshot.slo
    system = slo.system_strategy if slo is not None else None
    strategy = slo.resource_qos_strategy if slo is not None else None
    problems: list[str] = []
    total = _bits(system.total_network_bandwidth if system is not None else None)
    if total < 0:
        problems.append(f"totalNetworkBandwidth {total} is negative; it is ignored")
        total = 0
    for name, instead in _WITHOUT.items():
        block = getattr(strategy, name, None)
        if block is not None and block.network_qos is not None and block.network_qos.enable:
            problems.append(f"resourceQOSStrategy.{instead}; it is ignored")
    shares = {}
    for qos in CLASSES:
        block = getattr(strategy, SLO_SECTION_OF_QOS[qos], None)
        network = block.network_qos if block is not None else None
        if network is not None and network.enable:
            shares[qos] = BandwidthShare(
                _rate(qos, "egress", network.egress_request, network.egress_limit, total, problems),
                _rate(
                    qos, "ingress", network.ingress_request, network.ingress_limit, total, problems
                ),
            )
    return NodeBandwidth(total, shares, tuple(problems))


def of_pod(pod: Pod) -> tuple[BandwidthShare, tuple[str, ...]]:
    """The limits of its annotation, either of which may be absent, and what is wrong with it."""
    try:
        limits = keys.NETWORK_QOS.read(pod.annotations)
    except AnnotationError as error:
        return BandwidthShare(), (f"{pod.title}: {error}; the annotation is ignored",)
    if limits is None:
        return BandwidthShare(), ()
    given = {"egressLimit": limits.egress_limit, "ingressLimit": limits.ingress_limit}
    problems = tuple(
        f"{pod.title}: {keys.NETWORK_QOS.name}: {name} {limit} is negative; it is ignored"
        for name, limit in given.items()
        if limit is not None and limit.value < 0
    )
    egress, ingress = (
        Rate(0, max(limit.value, 0)) if limit is not None else Rate() for limit in given.values()
    )
    return BandwidthShare(egress, ingress), problems


def _rate(
    qos: QoSClass,
    direction: str,
    request: int | str | None,
    limit: int | str | None,
    total: int,
    problems: list[str],
) -> Rate:
    least = _amount(f"{direction}Request of class {qos}", request, total, problems)
    most = _amount(f"{direction}Limit of class {qos}", limit, total, problems)
    return Rate(min(least, most or least), most)


def _amount(name: str, asked: int | str | None, total: int, problems: list[str]) -> int:
    """An integer is a percentage of the total, text a quantity."""
    if isinstance(asked, int):
        if asked and not total:
            problems.append(
                f"{name} is {asked} % of totalNetworkBandwidth, which is not set; it is ignored"
            )
        return total * asked // 100
    bits = _bits(asked)
    if bits < 0:
        problems.append(f"{name} {asked} is negative; it is ignored")
        return 0
    if total and bits > total:
        problems.append(f"{name} {asked} is capped at totalNetworkBandwidth, {total}")
        return total
    return bits


def _bits(amount: int | str | None) -> int:
    return parse_quantity(amount).value if amount is not None else 0
