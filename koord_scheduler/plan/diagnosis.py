"""The record of a failed decision in the reference's words (docs/reference/central.md 9.5)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.explain import failed_nodes
from koord_scheduler.plan.outcomes import Failure
from koord_scheduler.plan.preemption.pods import NoPreemption, Preemption

_MOST_OFFERS = 100
EVICT_SELF = "EvictWorkloadSelf"
VICTIMS_RELEASED = "WaitingVictimReleased"


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    pass


class FailedDetail(_Record, frozen=True):
    failed_plugin: str
    reason: str
    preempt_might_help: bool
    failed_nodes: tuple[str, ...] = ()


class ScheduleDiagnosis(_Record, frozen=True):
    """``node_offer_slot``: name of a node -> how many members of a gang fit there."""

    already_wait_for_bound: int = 0
    node_offer_slot: Mapping[str, int] = {}
    node_failed_details: tuple[FailedDetail, ...] = ()


class PreemptionDiagnosis(_Record, frozen=True):
    failed_message: str = ""


class Suggestion(_Record, frozen=True):
    type: str
    message: str = ""


class Diagnosis(_Record, frozen=True):
    """``timestamp``: RFC 3339. ``questioned_key``: ``namespace/name``, the name of a reservation or
    the id of a gang group."""

    timestamp: str
    questioned_key: str
    is_root_cause_pod: bool
    nominated_node: str = ""
    pre_filter_message: str = ""
    topology_key_to_explain: str = ""
    schedule_diagnosis: ScheduleDiagnosis = ScheduleDiagnosis()
    preemption_diagnosis: PreemptionDiagnosis | None = None
    suggestion: Suggestion | None = None


def diagnose(
    engine: Engine,
    failure: Failure,
    timestamp: str,
    *,
    preemption: Preemption | NoPreemption | None = None,
    group: str = "",
    bound: int = 0,
) -> Diagnosis:
    """Of a decision that just failed. ``group``: the gang group whose decision it was, ``bound``:
    how many of its members have a node. Raises PluginError."""
    pod = failure.pod
    details = () if failure.refused_by else failed_nodes(engine, pod)
    return Diagnosis(
        timestamp=timestamp,
        questioned_key=group or pod.holds or pod.key,
        is_root_cause_pod=True,
        nominated_node=engine.nomination(pod),
        pre_filter_message=failure.words,
        schedule_diagnosis=ScheduleDiagnosis(
            already_wait_for_bound=bound,
            node_offer_slot=_offers(engine, pod) if group else {},
            node_failed_details=tuple(FailedDetail(*each) for each in details),
        ),
        preemption_diagnosis=(
            PreemptionDiagnosis(failed_message=preemption.words)
            if isinstance(preemption, NoPreemption)
            else None
        ),
        suggestion=_suggestion(failure, preemption),
    )


def _offers(engine: Engine, pod: Pod) -> dict[str, int]:
    """Of the first nodes that offer any."""
    found: dict[str, int] = {}
    for row, many in enumerate(engine.offers(pod.cls, 1 << 20).tolist()):
        node = engine.cluster.nodes[row]
        if many and node is not None:
            found[node.name] = many
            if len(found) >= _MOST_OFFERS:
                break
    return found


def _suggestion(
    failure: Failure, preemption: Preemption | NoPreemption | None
) -> Suggestion | None:
    if isinstance(preemption, Preemption):
        return Suggestion(
            type=VICTIMS_RELEASED, message=f"waits until pods on {preemption.node} are gone"
        )
    if not failure.refused_by and not failure.resolvable:
        return Suggestion(type=EVICT_SELF, message="no eviction of others makes it fit")
    return None
