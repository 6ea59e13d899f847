"""The custom resources of the protocol, one declaration each (docs/reference/central.md 0.2).

`make crds` writes ``deploy/crds/`` from here.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec
from koordlet.protocol.objects.device import DeviceSpec, DeviceStatus
from koordlet.protocol.objects.explanation import (
    ScheduleExplanationSpec,
    ScheduleExplanationStatus,
)
from koordlet.protocol.objects.migration import PodMigrationJobSpec, PodMigrationJobStatus
from koordlet.protocol.objects.network_topology import (
    ClusterNetworkTopologySpec,
    ClusterNetworkTopologyStatus,
)
from koordlet.protocol.objects.node_metric import NodeMetricSpec, NodeMetricStatus
from koordlet.protocol.objects.numa_topology import NumaTopology
from koordlet.protocol.objects.pod_group import PodGroupSpec, PodGroupStatus
from koordlet.protocol.objects.quota import (
    ElasticQuotaProfileSpec,
    ElasticQuotaSpec,
    ElasticQuotaStatus,
)
from koordlet.protocol.objects.recommendation import RecommendationSpec, RecommendationStatus
from koordlet.protocol.objects.reservation import ReservationSpec, ReservationStatus
from koordlet.protocol.slo import NodeSLOSpec, Section


class Column(NamedTuple):
    """What ``kubectl get`` shows. ``type`` is one of OpenAPI's, or ``date``; ``wide``: with
    ``-o wide`` alone."""

    name: str
    json_path: str
    type: str = "string"
    wide: bool = False


class NoStatus(Section, frozen=True):
    """Has no fields: nobody writes it."""


class CustomResource(NamedTuple):
    """``body``: where fields stand beside ``metadata`` instead of in ``spec`` and ``status``.
    ``status_apart``: whether the status is a subresource, which is written by itself.
    ``newer_versions``: served too, with the same fields; the last one is stored."""

    group: str
    version: str
    kind: str
    plural: str
    about: str
    spec: type[msgspec.Struct] | None = None
    status: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    namespaced: bool = False
    short_names: tuple[str, ...] = ()
    status_apart: bool = True
    columns: tuple[Column, ...] = ()
    newer_versions: tuple[str, ...] = ()


AGE = Column("Age", ".metadata.creationTimestamp", "date")

CUSTOM_RESOURCES = (
    CustomResource(
        "config.koordinator.sh",
        "v1alpha1",
        "ClusterColocationProfile",
        "clustercolocationprofiles",
        "What admission changes of the pods that it selects.",
        spec=ClusterColocationProfileSpec,
        status=NoStatus,
        columns=(
            Column("QoS", ".spec.qosClass"),
            Column("Priority", ".spec.priorityClassName"),
            Column("Probability", ".spec.probability", wide=True),
            AGE,
        ),
    ),
    CustomResource(
        "slo.koordinator.sh",
        "v1alpha1",
        "NodeSLO",
        "nodeslos",
        "What koordlet does on the node of this name.",
        spec=NodeSLOSpec,
        status=NoStatus,
        columns=(
            Column("Enabled", ".spec.resourceUsedThresholdWithBE.enable", "boolean"),
            Column(
                "CPU%", ".spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent", "integer"
            ),
            Column(
                "Evict-Memory%",
                ".spec.resourceUsedThresholdWithBE.memoryEvictThresholdPercent",
                "integer",
            ),
            Column("Burst", ".spec.cpuBurstStrategy.policy", wide=True),
            AGE,
        ),
    ),
    CustomResource(
        "slo.koordinator.sh",
        "v1alpha1",
        "NodeMetric",
        "nodemetrics",
        "What the node of this name, its pods and its host applications use.",
        spec=NodeMetricSpec,
        status=NodeMetricStatus,
        columns=(
            Column("CPU", ".status.nodeMetric.nodeUsage.resources.cpu"),
            Column("Memory", ".status.nodeMetric.nodeUsage.resources.memory"),
            Column("System-CPU", ".status.nodeMetric.systemUsage.resources.cpu", wide=True),
            Column("Reclaimable-CPU", ".status.prodReclaimableMetric.resource.resources.cpu"),
            Column("Reclaimable-Memory", ".status.prodReclaimableMetric.resource.resources.memory"),
            Column("Updated", ".status.updateTime", "date"),
            AGE,
        ),
    ),
    CustomResource(
        "scheduling.koordinator.sh",
        "v1alpha1",
        "Device",
        "devices",
        "The accelerators and network cards of the node of this name.",
        spec=DeviceSpec,
        status=DeviceStatus,
        status_apart=False,
        columns=(AGE,),
    ),
    CustomResource(
        "scheduling.koordinator.sh",
        "v1alpha1",
        "Reservation",
        "reservations",
        "Room on a node, kept for pods that are still to come.",
        spec=ReservationSpec,
        status=ReservationStatus,
        columns=(
            Column("Phase", ".status.phase"),
            Column("Node", ".status.nodeName"),
            Column("TTL", ".spec.ttl"),
            Column("Expires", ".spec.expires"),
            AGE,
        ),
    ),
    CustomResource(
        "scheduling.koordinator.sh",
        "v1alpha1",
        "PodMigrationJob",
        "podmigrationjobs",
        "A pod that shall move to another node.",
        spec=PodMigrationJobSpec,
        status=PodMigrationJobStatus,
        short_names=("pmj",),
        columns=(
            Column("Phase", ".status.phase"),
            Column("Status", ".status.status"),
            AGE,
            Column("Node", ".status.nodeName"),
            Column("Reservation", ".spec.reservationOptions.reservationRef.name"),
            Column("PodNamespace", ".spec.podRef.namespace"),
            Column("Pod", ".spec.podRef.name"),
            Column("NewPod", ".status.podRef.name"),
            Column("TTL", ".spec.ttl"),
            Column("Reason", ".status.reason", wide=True),
        ),
    ),
    CustomResource(
        "scheduling.sigs.k8s.io",
        "v1alpha1",
        "ElasticQuota",
        "elasticquotas",
        "What the pods of a group may use: at least, and at most.",
        spec=ElasticQuotaSpec,
        status=ElasticQuotaStatus,
        namespaced=True,
        status_apart=False,
        columns=(
            Column("Min-CPU", ".spec.min.cpu"),
            Column("Max-CPU", ".spec.max.cpu"),
            Column("Used-CPU", ".status.used.cpu"),
            Column("Min-Memory", ".spec.min.memory", wide=True),
            Column("Max-Memory", ".spec.max.memory", wide=True),
            Column("Used-Memory", ".status.used.memory", wide=True),
            AGE,
        ),
    ),
    CustomResource(
        "scheduling.sigs.k8s.io",
        "v1alpha1",
        "PodGroup",
        "podgroups",
        "Pods that start together or not at all.",
        spec=PodGroupSpec,
        status=PodGroupStatus,
        namespaced=True,
        short_names=("pg", "pgs"),
        status_apart=False,
        columns=(
            Column("Phase", ".status.phase"),
            Column("Min", ".spec.minMember", "integer"),
            Column("Scheduled", ".status.scheduled", "integer"),
            Column("Running", ".status.running", "integer"),
            Column("Succeeded", ".status.succeeded", "integer", wide=True),
            Column("Failed", ".status.failed", "integer", wide=True),
            AGE,
        ),
    ),
    CustomResource(
        "scheduling.koordinator.sh",
        "v1alpha1",
        "ClusterNetworkTopology",
        "clusternetworktopologies",
        "By which labels of nodes the network of the cluster is a tree.",
        spec=ClusterNetworkTopologySpec,
        status=ClusterNetworkTopologyStatus,
        columns=(AGE,),
    ),
    CustomResource(
        "scheduling.koordinator.sh",
        "v1alpha1",
        "ScheduleExplanation",
        "scheduleexplanations",
        "Why a pod or a gang has no node.",
        spec=ScheduleExplanationSpec,
        status=ScheduleExplanationStatus,
        namespaced=True,
        short_names=("sched-exp",),
        columns=(
            Column("Question", ".spec.questionObjectKey"),
            Column("Schedulable", ".status.schedulable", "boolean"),
            Column("Message", ".status.failedMessage"),
            Column("Updated", ".status.lastUpdateTime", "date"),
            AGE,
        ),
    ),
    CustomResource(
        "quota.koordinator.sh",
        "v1alpha1",
        "ElasticQuotaProfile",
        "elasticquotaprofiles",
        "A quota made of the nodes that it selects.",
        spec=ElasticQuotaProfileSpec,
        status=NoStatus,
        status_apart=False,
        namespaced=True,
        short_names=("eqp",),
        columns=(
            Column("Quota", ".spec.quotaName"),
            Column("Ratio", ".spec.resourceRatio"),
            AGE,
        ),
    ),
    CustomResource(
        "analysis.koordinator.sh",
        "v1alpha1",
        "Recommendation",
        "recommendations",
        "What the containers of a workload should request.",
        spec=RecommendationSpec,
        status=RecommendationStatus,
        namespaced=True,
        short_names=("recom",),
        columns=(
            Column("Type", ".spec.target.type"),
            Column("Kind", ".spec.target.workload.kind"),
            Column("Name", ".spec.target.workload.name"),
            Column("CPU", ".status.podStatus.containerStatuses[*].resources.cpu"),
            Column("Memory", ".status.podStatus.containerStatuses[*].resources.memory"),
            Column("LastUpdateTime", ".status.updateTime", "date"),
            AGE,
        ),
    ),
    CustomResource(
        "topology.node.k8s.io",
        "v1alpha1",
        "NodeResourceTopology",
        "noderesourcetopologies",
        "The NUMA nodes of the node of this name, and what each has.",
        body=NumaTopology,
        short_names=("node-res-topo",),
        newer_versions=("v1alpha2",),
        columns=(Column("Policies", ".topologyPolicies"), AGE),
    ),
)
