"""What the classes do to packets: shares and limits, measured in bytes between two namespaces."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from koordlet.decision.traffic import Member
from tests.actuator.traffic.test_writer import BE, LS, MBIT, POD, Node, of_class, plan
from tests.kernel.net.pairs import (
    NODE_IPS,
    NODE_IPS6,
    PEER_IP,
    PEER_IP6,
    Flow,
    pair,
    rates_bps,
    udp,
)

pytestmark = [pytest.mark.kernel, pytest.mark.alone]

WIRE = 1442 / 1400
"""Bytes that a class counts for each byte of payload: with the heads of UDP, IPv4 and Ethernet.
IPv6 adds 1.4 %."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with pair() as net:
        yield Node(net, tmp_path)


def sending(node: Node, ips: Sequence[str], peer: str = PEER_IP) -> list[float]:
    """Mbit/s of what each address sends as fast as it can, all at once."""
    flows = [Flow(udp(node.net.node, ip), udp(node.net.peer, peer)) for ip in ips]
    return [WIRE * rate / MBIT for rate in rates_bps(flows)]


def receiving(node: Node, ips: Sequence[str], peer: str = PEER_IP) -> list[float]:
    """The same for what arrives, sent at more than any share."""
    flows = [Flow(udp(node.net.peer, peer), udp(node.net.node, ip), 15 * MBIT) for ip in ips]
    return [WIRE * rate / MBIT for rate in rates_bps(flows)]


@pytest.mark.parametrize("measure", [sending, receiving])
@pytest.mark.parametrize(("ips", "peer"), [(NODE_IPS, PEER_IP), (NODE_IPS6, PEER_IP6)])
def test_each_class_gets_what_it_is_promised(node: Node, measure, ips, peer) -> None:
    """SYSTEM, LS and BE contend for 20 Mbit/s; each has its share within 10 %."""
    node.apply(plan())
    assert measure(node, ips[:3], peer) == pytest.approx([4, 10, 6], rel=0.1)


def test_without_marks_addresses_on_the_wire_tell(node: Node) -> None:
    node.apply(plan(), features=node.features - {"nft.priority"})
    assert sending(node, NODE_IPS[:3]) == pytest.approx([4, 10, 6], rel=0.1)


def test_what_others_leave_goes_to_ls_first(node: Node) -> None:
    node.apply(plan())
    assert sending(node, NODE_IPS[1:3]) == pytest.approx([14, 6], rel=0.1)


@pytest.mark.parametrize("measure", [sending, receiving])
def test_a_pod_stays_within_its_limit(node: Node, measure) -> None:
    """3 Mbit/s, alone and among others; the others of its class have the rest of its share."""
    members = (
        Member(LS, "ls", (NODE_IPS[1],)),
        Member(BE, "be", (NODE_IPS[2],)),
        Member(POD, "pod", (NODE_IPS[3],)),
    )
    node.apply(plan(of_class("pod", POD, 0, 3, BE), members=members))
    assert measure(node, NODE_IPS[3:]) == pytest.approx([3], rel=0.1)
    assert measure(node, NODE_IPS) == pytest.approx([4, 10, 3, 3], rel=0.1)


def test_a_new_limit_counts_at_once_and_breaks_nothing(node: Node) -> None:
    """The flow goes on, from 2 to 6 Mbit/s."""
    pod = Member(POD, "pod", (NODE_IPS[3],))
    node.apply(plan(of_class("pod", POD, 0, 2, BE), members=(pod,)))
    flow = Flow(udp(node.net.node, NODE_IPS[3]), udp(node.net.peer, PEER_IP))

    def rate() -> float:
        time.sleep(0.7)
        before, began = flow.received, time.monotonic()
        time.sleep(1.5)
        return WIRE * 8 * (flow.received - before) / (time.monotonic() - began) / MBIT

    flow.start()
    try:
        assert rate() == pytest.approx(2, rel=0.1)
        node.apply(plan(of_class("pod", POD, 0, 6, BE), members=(pod,)))
        assert rate() == pytest.approx(6, rel=0.1)
    finally:
        flow.stop()


def test_afterwards_nothing_is_held_back(node: Node) -> None:
    node.apply(plan())
    node.restore()
    flow = Flow(udp(node.net.node, NODE_IPS[2]), udp(node.net.peer, PEER_IP), 50 * MBIT)
    [rate] = rates_bps([flow], warm_s=0.2, measure_s=1.0)
    assert rate / MBIT > 25
