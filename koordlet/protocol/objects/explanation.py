"""ScheduleExplanation: asks why something finds no node, and holds the answer
(docs/reference/central.md 9.6)."""

from __future__ import annotations

from typing import Any

from koordlet.protocol.objects.node_metric import InstantText
from koordlet.protocol.slo import Section

TOPOLOGY_KEY = "scheduling.koordinator.sh/topology-key-to-explain"
"""A label of the object: the answer is given for each value that nodes have of this label."""


class ScheduleExplanationSpec(Section, frozen=True):
    question_object_key: str = ""
    """Name of a pod or gang as namespace/name, or the id of a gang group."""
    question_object_template: dict[str, Any] | None = None
    """Pod that does not exist, with metadata and spec."""
    ttl: str = ""
    """Time after which the object is deleted; 24h without."""


class PodOnNode(Section, frozen=True):
    namespace: str = ""
    """Namespace of the pod."""
    name: str = ""
    """Name of the pod."""
    uid: str = ""
    """UID of the pod."""
    node_name: str = ""
    """Node that it would get."""


class NodeFailedDetail(Section, frozen=True):
    failed_plugin: str = ""
    """Plugin that refuses the nodes."""
    reason: str = ""
    """Reason it gives."""
    preempt_might_help: bool = False
    """True where room made by preemption could change that."""
    failed_nodes: tuple[str, ...] = ()
    """Nodes that are refused."""


class Scheduling(Section, frozen=True):
    """What became of an attempt that changed nothing."""

    schedulable: bool = False
    """True where all pods get a node."""
    failed_message: str = ""
    """Summary of why they do not."""
    feasible_scheduling_result: tuple[PodOnNode, ...] = ()
    """Pods that get a node, and which."""
    node_failed_details: tuple[NodeFailedDetail, ...] = ()
    """Nodes that are refused, by plugin and reason."""


class PossibleVictim(Section, frozen=True):
    namespace: str = ""
    """Namespace of the pod."""
    name: str = ""
    """Name of the pod."""
    uid: str = ""
    """UID of the pod."""
    is_nominated_pod: bool = False
    """True of a pod that only waits for a node that was promised to it."""


class NodePossibleVictims(Section, frozen=True):
    node_name: str = ""
    """Name of the node."""
    possible_victims: tuple[PossibleVictim, ...] = ()
    """Pods that would have to go."""


class DetailedExplanation(Section, frozen=True):
    """``topology_domain`` empty: all nodes. ``preempt_explanation``: as if the victims had gone."""

    topology_domain: str = ""
    """Domain of nodes that was looked at; empty for all nodes."""
    schedulable: bool = False
    """True where it can be scheduled now."""
    schedulable_after_preemption: bool = False
    """True where it could be scheduled once the victims have gone."""
    failed_message: str = ""
    """Summary of why not."""
    schedule_explanation: Scheduling | None = None
    """Outcome of an attempt on the nodes as they are."""
    node_possible_victims: tuple[NodePossibleVictims, ...] = ()
    """Victims on each node."""
    preempt_explanation: Scheduling | None = None
    """Outcome of an attempt as if the victims had gone."""


class ScheduleExplanationStatus(Section, frozen=True):
    schedulable: bool = False
    """True where it can be scheduled now."""
    schedulable_after_preemption: bool = False
    """True where it could be scheduled once the victims have gone."""
    failed_message: str = ""
    """Summary of why not."""
    last_update_time: InstantText | None = None
    """Time of the answer."""
    detailed_explanation: tuple[DetailedExplanation, ...] = ()
    """Details by domain of nodes."""
