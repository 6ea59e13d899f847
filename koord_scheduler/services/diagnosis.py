"""The record of why a pod found no node (spec/central.md 9.5)."""

from __future__ import annotations

import msgspec

from koord_scheduler.plan import explain
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.outcomes import Failure
from koordlet.protocol.objects.times import instant


class NodeFailedDetail(msgspec.Struct, frozen=True, rename="camel"):
    failed_plugin: str
    reason: str
    preempt_might_help: bool
    failed_nodes: tuple[str, ...] = ()


class ScheduleDiagnosis(msgspec.Struct, frozen=True, rename="camel"):
    already_wait_for_bound: int = 0
    node_offer_slot: dict[str, int] = {}
    node_failed_details: tuple[NodeFailedDetail, ...] = ()


class PreemptionDiagnosis(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    failed_message: str = ""


class Diagnosis(msgspec.Struct, frozen=True, rename="camel"):
    """``pre_filter_message``: why it was refused whatever the nodes are."""

    timestamp: str
    questioned_key: str
    nominated_node: str = ""
    pre_filter_message: str = ""
    topology_key_to_explain: str = ""
    is_root_cause_pod: bool = True
    schedule_diagnosis: ScheduleDiagnosis = ScheduleDiagnosis()
    preemption_diagnosis: PreemptionDiagnosis = PreemptionDiagnosis()


def failed_details(engine: Engine, failure: Failure) -> tuple[NodeFailedDetail, ...]:
    """Nodes by the first reason against them, sorted by plugin, reason and preemptMightHelp."""
    if failure.refused_by:
        return ()
    return tuple(
        NodeFailedDetail(each.failed_plugin, each.reason, each.preempt_might_help, each.nodes)
        for each in explain.failed_nodes(engine, failure.pod)
    )


def diagnosis(engine: Engine, failure: Failure, preemption: str = "") -> Diagnosis:
    pod = failure.pod
    return Diagnosis(
        timestamp=instant(engine.cluster.now_s),
        questioned_key=pod.key,
        nominated_node=engine.nomination(pod),
        pre_filter_message=failure.words,
        schedule_diagnosis=ScheduleDiagnosis(node_failed_details=failed_details(engine, failure)),
        preemption_diagnosis=PreemptionDiagnosis(preemption),
    )
