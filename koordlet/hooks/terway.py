"""Files for terway-qos, which limits network bandwidth by class and pod
(docs/reference/hooks.md 2.10).

Bandwidth is in bits per second where we read it and in bytes per second where we write it.
"""

from __future__ import annotations

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Subject
from koordlet.decision.traffic import BandwidthShare
from koordlet.decision.why import Input, Why
from koordlet.hooks import bandwidth
from koordlet.hooks.bandwidth import NodeBandwidth
from koordlet.protocol.qos import QoSClass

NAME = "terway-qos"
FEATURE = "terway"
NET_CLS_ROOT = "/sys/fs/cgroup/net_cls"
"""Where terway-qos looks for the cgroups of pods."""

_PRIORITIES = {QoSClass.SYSTEM: 0, QoSClass.BE: 2}
_PRIORITY_OF_OTHERS = 1


class _QosConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes per second; 0 = no limit."""

    ingress_bandwidth: int
    egress_bandwidth: int


class _PodRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One value of ``pod.json``, as terway-qos reads it."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="podUID")
    prio: int
    cgroup_dir: str
    qos_config: _QosConfig


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    if bandwidth.policy(snapshot) != bandwidth.TERWAY:
        return Adjustment()
    of_node = bandwidth.of_node(snapshot)
    problems = list(of_node.problems)
    records = {}
    for pod in sorted(snapshot.pods, key=lambda pod: pod.uid):
        if pod.is_active and pod.cgroup:
            share, faults = bandwidth.of_pod(pod)
            records[pod.uid] = _record(pod, share)
            problems += faults
    total = Input("totalNetworkBandwidth", of_node.total_bps, "bits/s")
    why = Why("terway-qos.policy", "netQOSPolicy is terway-qos", (total,))
    return Adjustment(
        (
            (Resource.TERWAY_GLOBAL, _global(of_node), why),
            (Resource.TERWAY_PODS, msgspec.json.encode(records).decode(), why),
        ),
        tuple(Why("terway-qos.ignored", problem) for problem in problems),
    )


def _global(node: NodeBandwidth) -> str:
    """``global_bps_config``: ten lines, in the order of the reference."""
    total = _bytes(node.total_bps)
    lines = [f"hw_tx_bps_max {total}", f"hw_rx_bps_max {total}"]
    for level, qos in enumerate(bandwidth.CLASSES, start=1):
        share = node.shares.get(qos, BandwidthShare())
        for way, rate in (("tx", share.egress), ("rx", share.ingress)):
            lines.append(f"offline_l{level}_{way}_bps_min {_bytes(rate.min_bps)}")
            lines.append(f"offline_l{level}_{way}_bps_max {_bytes(rate.max_bps)}")
    return "".join(f"{line}\n" for line in lines)


def _record(pod: Pod, share: BandwidthShare) -> _PodRecord:
    return _PodRecord(
        pod.name,
        pod.namespace,
        pod.uid,
        _PRIORITIES.get(pod.qos, _PRIORITY_OF_OTHERS),
        f"{NET_CLS_ROOT}/{pod.cgroup}",
        _QosConfig(_bytes(share.ingress.max_bps), _bytes(share.egress.max_bps)),
    )


def _bytes(bits: int) -> int:
    return bits // 8


HOOK = Hook(
    name=NAME,
    help="Files for terway-qos, where netQOSPolicy is terway-qos.",
    options=DEFAULTS,
    levels=(Level.NODE,),
    function=_evaluate,
    needs=(FEATURE,),
    writes=(Resource.TERWAY_GLOBAL, Resource.TERWAY_PODS),
    without="under netQOSPolicy terway-qos no pod is limited",
    switches=(slo_keys.policy("netQOSPolicy", bandwidth.TERWAY),),
    arguments=bandwidth.ARGUMENTS,
)
