"""ScheduleExplanation: a question why a pod or a gang has no node, and the answer
(spec/central.md 9.6)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from koordlet.protocol.objects.node_metric import InstantText
from koordlet.protocol.slo import Section


class ScheduleExplanationSpec(Section, frozen=True):
    question_object_key: Annotated[
        str, Meta(description="namespace/name of a pod or a gang, or the id of a gang group.")
    ] = ""
    question_object_template: Annotated[
        dict[str, Any] | None, Meta(description="Kept for others, not looked at.")
    ] = None
    ttl: Annotated[str | None, Meta(description="When it is deleted; 24h without.")] = None


class FeasibleResult(Section, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    node_name: str = ""


class NodeFailedDetail(Section, frozen=True):
    failed_plugin: str = ""
    reason: str = ""
    preempt_might_help: bool = False
    failed_nodes: tuple[str, ...] = ()


class ScheduleDetail(Section, frozen=True):
    schedulable: bool = False
    failed_message: str = ""
    feasible_scheduling_result: tuple[FeasibleResult, ...] = ()
    node_failed_details: tuple[NodeFailedDetail, ...] = ()


class DetailedExplanation(Section, frozen=True):
    topology_domain: str = ""
    schedulable: bool = False
    failed_message: str = ""
    schedule_explanation: ScheduleDetail = ScheduleDetail()


class ScheduleExplanationStatus(Section, frozen=True):
    schedulable: bool = False
    failed_message: str = ""
    last_update_time: InstantText | None = None
    detailed_explanation: tuple[DetailedExplanation, ...] = ()
