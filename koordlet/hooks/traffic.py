"""Traffic classes of our own, for netQOSPolicy ``tc`` (docs/reference/hooks.md 2.11).

``traffic`` says how the link shall be divided, and the daemon hands that to
``actuator/traffic/writer.py``. Pods and applications get the class of what they send into their
``net_cls.classid`` where the host has it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from koordlet.decision import slo_keys
from koordlet.decision.options import Options, about
from koordlet.decision.part import Switch
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Subject
from koordlet.decision.traffic import (
    HOST_SOCKETS,
    INGRESS,
    MAJOR,
    MARKS,
    SHAPING,
    BandwidthShare,
    Member,
    Rate,
    TrafficClass,
    TrafficPlan,
)
from koordlet.decision.why import Input, Why
from koordlet.hooks import bandwidth
from koordlet.hooks.bandwidth import NodeBandwidth
from koordlet.protocol.errors import Problem, join
from koordlet.protocol.qos import QoSClass

NAME = "network-qos"
SYSTEM, LS, BE = 2, 3, 4
"""Minor numbers of the classes of the node; 1 is the whole link."""

_FIRST_OF_PODS = 16
_MINORS = 1 << 16

_CLASS = {
    QoSClass.SYSTEM: SYSTEM,
    QoSClass.LSE: LS,
    QoSClass.LSR: LS,
    QoSClass.LS: LS,
    QoSClass.BE: BE,
}
_PRIORITY = {SYSTEM: 1, LS: 2, BE: 3}


class NetworkQosOptions(Options, frozen=True):
    devices: Annotated[
        tuple[str, ...],
        about("Network devices to divide; none = those of the default routes."),
    ] = ()


# The kernel's dev_valid_name (net/core/dev.c): 15 bytes, neither slash nor colon nor space.
_DEVICE = re.compile(r"(?!\.{1,2}$)[^/:\s\0]{1,15}")


def _check(options: NetworkQosOptions) -> Iterator[Problem]:
    for index, device in enumerate(options.devices):
        # One that is no text was refused already; the file's other faults are found all the same.
        if isinstance(device, str) and not _DEVICE.fullmatch(device):
            text = f"{device[:64]!r} cannot be the name of a network device"
            yield Problem(join("devices", index), text)


def _evaluate(subject: Subject, snapshot: Snapshot, _: NetworkQosOptions) -> Adjustment:
    if bandwidth.policy(snapshot) != bandwidth.TC:
        return Adjustment()
    if subject.level is Level.NODE:
        return _node(snapshot)
    pod, application = subject.pod, subject.application
    if not bandwidth.of_node(snapshot).total_bps:
        return Adjustment()
    by_classid = snapshot.node.has(Resource.NET_CLS_CLASSID)
    if application is not None and application.qos is not None:
        minor = _CLASS[application.qos] if by_classid else None
        return _classid(minor, "application", application.qos)
    if pod is None:
        return Adjustment()
    share, problems = bandwidth.of_pod(pod)
    notes = [Why("network-qos.ignored", problem) for problem in problems]
    if pod.host_network and share.ingress.max_bps:
        text = (
            "ingressLimit is ignored: on the host network no address identifies the pod's traffic"
        )
        notes.append(Why("network-qos.host-network", f"{pod.title}: {text}"))
    minor = _minor(pod, share) if by_classid else None
    return _classid(minor, "pod", pod.qos, tuple(notes))


def _classid(minor: int | None, who: str, qos: QoSClass, notes: tuple[Why, ...] = ()) -> Adjustment:
    if minor is None:
        return Adjustment(notes=notes)
    text = f"class {MAJOR}:{minor:x} for what the {who} sends"
    why = Why("network-qos.class", text, (Input("class", qos),))
    return Adjustment(((Resource.NET_CLS_CLASSID, MAJOR << 16 | minor, why),), notes)


def _node(snapshot: Snapshot) -> Adjustment:
    node = bandwidth.of_node(snapshot)
    notes = [Why("network-qos.ignored", problem) for problem in node.problems]
    plan = traffic(snapshot)
    if plan is None:
        return Adjustment(notes=tuple(notes))
    own = [each for each in plan.classes if each.minor >= _FIRST_OF_PODS]
    total = Input("totalNetworkBandwidth", plan.total_bps, "bits/s")
    text = (
        f"{len(plan.classes)} traffic classes divide the link ({len(own)} of single pods; "
        f"{len(plan.members)} pods and applications in all)"
    )
    notes.append(Why("network-qos.classes", text, (total,)))
    for direction, promised in _promised(node.shares.values()).items():
        if promised > plan.total_bps:
            text = (
                f"{direction}Request of all classes together is {promised} bits/s, more than "
                f"totalNetworkBandwidth, {plan.total_bps}; all are scaled down in proportion, and "
                "class SYSTEM gets no guarantee"
            )
            notes.append(Why("network-qos.promises", text))
    shared = [each for each in own if "," in each.name]
    notes += (Why("network-qos.shared-class", f"{each.name}: one class") for each in shared)
    return Adjustment(notes=tuple(notes))


def traffic(snapshot: Snapshot) -> TrafficPlan | None:
    """How the link shall be divided; None where nothing asks for it.

    A pod with limits has a class of its own inside that of its QoS class: a limit promises
    nothing. Its number follows from its uid, so that it stays while other pods come and go. Two
    pods that meet in one number share the sum of their limits. Applications have no limits of
    their own, and belong to their class by cgroup.
    """
    if bandwidth.policy(snapshot) != bandwidth.TC:
        return None
    node = bandwidth.of_node(snapshot)
    if not node.total_bps:
        return None
    members = []
    limited: dict[int, list[tuple[Pod, BandwidthShare]]] = {}
    for pod in snapshot.pods:
        if not pod.is_active or not pod.cgroup:
            continue
        share, _ = bandwidth.of_pod(pod)
        minor = _minor(pod, share)
        if minor is None:
            continue
        # The addresses of a pod on the host network are those of the node.
        members.append(Member(minor, pod.cgroup, pod.ips if pod.host_network is False else ()))
        if minor >= _FIRST_OF_PODS:
            limited.setdefault(minor, []).append((pod, share))
    members += (
        Member(_CLASS[application.qos], application.cgroup)
        for application in snapshot.applications
        if application.present and application.cgroup and application.qos is not None
    )
    if not (node.shares or limited):
        return None
    own = (_of_pods(minor, pods, node.total_bps) for minor, pods in sorted(limited.items()))
    classes = (*_of_node(node), *own)
    return TrafficPlan(node.total_bps, SYSTEM, classes, tuple(members))


def _minor(pod: Pod, share: BandwidthShare) -> int | None:
    """None: the pod stays in the default class, because it has no label."""
    if share.egress.max_bps or share.ingress.max_bps:
        return _FIRST_OF_PODS + zlib.crc32(pod.uid.encode()) % (_MINORS - _FIRST_OF_PODS)
    return _CLASS[pod.raw_qos] if pod.raw_qos is not None else None


def _of_node(node: NodeBandwidth) -> Iterator[TrafficClass]:
    """SYSTEM has what the others are not promised. HTB keeps promises that are more than the link
    together, and lets more through than the link has: so they count in proportion."""
    total = node.total_bps
    shares = [_bounded(node.shares.get(qos, BandwidthShare()), total) for qos in bandwidth.CLASSES]
    promised = _promised(shares)
    ls, be = (
        BandwidthShare(
            _in_proportion(share.egress, total, promised["egress"]),
            _in_proportion(share.ingress, total, promised["ingress"]),
        )
        for share in shares
    )
    rest = BandwidthShare(
        Rate(max(0, total - promised["egress"]), total),
        Rate(max(0, total - promised["ingress"]), total),
    )
    for name, minor, share in (("system", SYSTEM, rest), ("ls", LS, ls), ("be", BE, be)):
        yield TrafficClass(name, minor, _PRIORITY[minor], share)


def _promised(shares: Iterable[BandwidthShare]) -> Mapping[str, int]:
    """Direction -> sum, bits per second."""
    shares = tuple(shares)
    return {
        "egress": sum(share.egress.min_bps for share in shares),
        "ingress": sum(share.ingress.min_bps for share in shares),
    }


def _in_proportion(rate: Rate, total: int, promised: int) -> Rate:
    return Rate(rate.min_bps * total // max(total, promised), rate.max_bps)


def _of_pods(minor: int, pods: list[tuple[Pod, BandwidthShare]], total: int) -> TrafficClass:
    def together(limits: list[int]) -> Rate:
        return Rate(0, min(sum(limits), total) if all(limits) else total)

    part_of = min((_CLASS[pod.qos] for pod, _ in pods), key=_PRIORITY.__getitem__)
    return TrafficClass(
        ", ".join(pod.title for pod, _ in pods),
        minor,
        _PRIORITY[part_of],
        BandwidthShare(
            together([share.egress.max_bps for _, share in pods]),
            together([share.ingress.max_bps for _, share in pods]),
        ),
        part_of,
    )


def _bounded(share: BandwidthShare, total: int) -> BandwidthShare:
    """Without a limit of its own, a class is limited by the link."""
    return BandwidthShare(
        Rate(share.egress.min_bps, share.egress.max_bps or total),
        Rate(share.ingress.min_bps, share.ingress.max_bps or total),
    )


HOOK = Hook(
    name=NAME,
    help="Traffic classes of koordlet's own, where netQOSPolicy is tc.",
    options=NetworkQosOptions(),
    check=_check,
    levels=(Level.NODE, Level.POD, Level.APPLICATION),
    function=_evaluate,
    writes=(Resource.NET_CLS_CLASSID,),
    needs=(SHAPING,),
    tried_on_demand=True,
    uses=(INGRESS, MARKS, HOST_SOCKETS),
    switches=(
        slo_keys.policy("netQOSPolicy", bandwidth.TC),
        (Switch(slo_keys.BANDWIDTH, example='"10G"'),),
        slo_keys.of_classes("networkQOS", "lsClass", "beClass"),
    ),
    arguments=bandwidth.ARGUMENTS,
)
