"""ScheduleExplanation: asks why something finds no node, and holds the answer
(docs/reference/central.md 9.6)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from koordlet.protocol.objects.node_metric import InstantText
from koordlet.protocol.slo import Section

TOPOLOGY_KEY = "scheduling.koordinator.sh/topology-key-to-explain"
"""A label of the object: the answer is given for each value that nodes have of this label."""


class ScheduleExplanationSpec(Section, frozen=True):
    question_object_key: Annotated[
        str,
        Meta(description="namespace/name of a pod or gang, or the id of a gang group."),
    ] = ""
    question_object_template: Annotated[
        dict[str, Any] | None,
        Meta(description="A pod that does not exist, with metadata and spec."),
    ] = None
    ttl: Annotated[str, Meta(description="The object is deleted after this; 24h without.")] = ""


class PodOnNode(Section, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    node_name: str = ""


class NodeFailedDetail(Section, frozen=True):
    failed_plugin: str = ""
    reason: str = ""
    preempt_might_help: bool = False
    failed_nodes: tuple[str, ...] = ()


class Scheduling(Section, frozen=True):
    """What became of an attempt that changed nothing."""

    schedulable: bool = False
    failed_message: str = ""
    feasible_scheduling_result: tuple[PodOnNode, ...] = ()
    node_failed_details: tuple[NodeFailedDetail, ...] = ()


class PossibleVictim(Section, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    is_nominated_pod: bool = False


class NodePossibleVictims(Section, frozen=True):
    node_name: str = ""
    possible_victims: tuple[PossibleVictim, ...] = ()


class DetailedExplanation(Section, frozen=True):
    """``topology_domain`` empty: all nodes. ``preempt_explanation``: as if the victims had gone."""

    topology_domain: str = ""
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    schedule_explanation: Scheduling | None = None
    node_possible_victims: tuple[NodePossibleVictims, ...] = ()
    preempt_explanation: Scheduling | None = None


class ScheduleExplanationStatus(Section, frozen=True):
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    last_update_time: InstantText | None = None
    detailed_explanation: tuple[DetailedExplanation, ...] = ()
