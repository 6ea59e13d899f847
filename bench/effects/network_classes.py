"""Our traffic classes by themselves: what each gets of its promise while all contend."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from tempfile import TemporaryDirectory

from bench.effects.network_pair import NODE_IPS, PEER_IP, Flow, Pair, rates_bps, udp
from bench.figures import Figure
from koordlet.actuator.traffic.devices import Devices
from koordlet.actuator.traffic.writer import Wanted, apply, restore
from koordlet.decision.traffic import BandwidthShare, Member, Rate, TrafficClass, TrafficPlan
from koordlet.kernel.net.marks import NetFilter
from koordlet.kernel.net.tc import TrafficControl

MBIT = 1_000_000
SYSTEM, LS, BE, POD = 2, 3, 4, 16
GOAL_PERCENT = 10
# Bytes that a class counts for each byte of payload: with the heads of UDP, IPv4 and Ethernet.
_WIRE = 1442 / 1400
# What classes may send at once, and more; a slower link takes longer for it.
_WARM_S = 0.7
_SLOW_MBIT = 6
_NAMES = ("SYSTEM", "LS", "BE", "a BE pod with a limit")


def class_figures(
    net: Pair, features: frozenset[str], total_mbit: int, seconds: float
) -> list[Figure]:
    """SYSTEM is promised a fifth of the link, LS half, BE the rest; a pod of BE may have 15 %.
    ``seconds``: of each measurement, before it is stretched."""
    seconds = stretched(seconds, total_mbit)
    promised = [total_mbit * share for share in (0.2, 0.5, 0.3)]
    limit = 0.15 * total_mbit
    found = []
    with TemporaryDirectory(prefix="koordlet-bench-") as directory:
        devices = Devices(f"{directory}/devices", "boot")

        def settle(plan: TrafficPlan | None) -> None:
            def run() -> None:
                with closing(TrafficControl()) as control, closing(NetFilter()) as tables:
                    if plan is None:
                        restore(control, tables, devices, time=1.0)
                    else:
                        apply(control, tables, Wanted(plan, (), features), devices, time=1.0)

            net.node.run(run)

        try:
            for way, measure in (("sent", _sent), ("received", _received)):
                settle(_plan(total_mbit, promised))
                got = measure(net, NODE_IPS[:3], total_mbit, seconds)
                found += _worst(f"{way}: SYSTEM, LS and BE, most off their promise", got, promised)
                settle(_plan(total_mbit, promised, limit))
                got = measure(net, NODE_IPS, total_mbit, seconds)
                wanted = [*promised[:2], promised[2] - limit, limit]
                found += _worst(f"{way}: with a limited pod, most off", got, wanted)
            found += _updated(net, settle, total_mbit, promised, seconds)
        finally:
            settle(None)
    return found


def stretched(seconds: float, total_mbit: float) -> float:
    """Longer where a link is so slow that few packets would be counted."""
    return seconds * max(1.0, _SLOW_MBIT / total_mbit)


def _plan(total_mbit: float, promised: Sequence[float], pod_mbit: float = 0) -> TrafficPlan:
    def rate(least: float, most: float) -> BandwidthShare:
        both = Rate(int(least * MBIT), int(most * MBIT))
        return BandwidthShare(both, both)

    classes = [
        TrafficClass(name, minor, minor - 1, rate(least, total_mbit))
        for name, minor, least in zip(
            ("system", "ls", "be"), (SYSTEM, LS, BE), promised, strict=True
        )
    ]
    members = [Member(LS, "ls", (NODE_IPS[1],)), Member(BE, "be", (NODE_IPS[2],))]
    if pod_mbit:
        classes.append(TrafficClass("pod", POD, BE - 1, rate(0, pod_mbit), BE))
        members.append(Member(POD, "pod", (NODE_IPS[3],)))
    return TrafficPlan(int(total_mbit * MBIT), SYSTEM, tuple(classes), tuple(members))


def _sent(net: Pair, ips: Sequence[str], total_mbit: float, seconds: float) -> list[float]:
    """Mbit/s of what each address sends as fast as it can, all at once."""
    flows = [Flow(udp(net.node, ip), udp(net.peer, PEER_IP)) for ip in ips]
    return _rates_mbit(flows, total_mbit, seconds)


def _received(net: Pair, ips: Sequence[str], total_mbit: float, seconds: float) -> list[float]:
    """The same for what arrives, sent at more than any share."""
    bps = int(0.75 * total_mbit * MBIT)
    flows = [Flow(udp(net.peer, PEER_IP), udp(net.node, ip), bps) for ip in ips]
    return _rates_mbit(flows, total_mbit, seconds)


def _rates_mbit(flows: Sequence[Flow], total_mbit: float, seconds: float) -> list[float]:
    rates = rates_bps(flows, stretched(_WARM_S, total_mbit), seconds)
    return [_WIRE * rate / MBIT for rate in rates]


def _worst(text: str, got: Sequence[float], wanted: Sequence[float]) -> list[Figure]:
    off = [100 * abs(g - w) / w for g, w in zip(got, wanted, strict=True)]
    name = _NAMES[off.index(max(off))]
    return [Figure(f"{text} ({name})", max(off), "%", GOAL_PERCENT)]


def _updated(
    net: Pair,
    settle: Callable[[TrafficPlan], None],
    total_mbit: float,
    promised: Sequence[float],
    seconds: float,
) -> list[Figure]:
    """The limit of a pod becomes three times as much while it sends."""
    before, after = 0.1 * total_mbit, 0.3 * total_mbit
    settle(_plan(total_mbit, promised, before))
    flow = Flow(udp(net.node, NODE_IPS[3]), udp(net.peer, PEER_IP))
    flow.start()
    try:
        time.sleep(seconds)
        began = time.monotonic()
        settle(_plan(total_mbit, promised, after))
        took_s = time.monotonic() - began
        time.sleep(stretched(_WARM_S, total_mbit))
        first, began = flow.received, time.monotonic()
        time.sleep(seconds)
        got = _WIRE * 8 * (flow.received - first) / (time.monotonic() - began) / MBIT
    finally:
        flow.stop()
    return [
        Figure("a new limit, all of the change", 1000 * took_s, "ms"),
        Figure("off the new limit afterwards", 100 * abs(got - after) / after, "%", GOAL_PERCENT),
    ]
