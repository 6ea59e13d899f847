"""The custom resources of the protocol, one declaration each (spec/central.md 0.2).

`make crds` writes ``deploy/crds/`` from here.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from koordlet.protocol.objects.colocation_profile import (
    ClusterColocationProfileSpec,
    ClusterColocationProfileStatus,
)
from koordlet.protocol.objects.device import DeviceSpec
from koordlet.protocol.objects.node_metric import NodeMetricSpec, NodeMetricStatus
from koordlet.protocol.objects.numa_topology import NumaTopology
from koordlet.protocol.slo import NodeSLOSpec


class Column(NamedTuple):
    """What ``kubectl get`` shows. ``type`` is one of OpenAPI's, or ``date``; ``wide``: with
    ``-o wide`` alone."""

    name: str
    json_path: str
    type: str = "string"
    wide: bool = False


class CustomResource(NamedTuple):
    """``body``: where fields stand beside ``metadata`` instead of in ``spec`` and ``status``."""

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
    columns: tuple[Column, ...] = ()


AGE = Column("Age", ".metadata.creationTimestamp", "date")

CUSTOM_RESOURCES = (
    CustomResource(
        "config.koordinator.sh",
        "v1alpha1",
        "ClusterColocationProfile",
        "clustercolocationprofiles",
        "What admission changes of the pods that it selects.",
        spec=ClusterColocationProfileSpec,
        status=ClusterColocationProfileStatus,
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
        columns=(AGE,),
    ),
    CustomResource(
        "topology.node.k8s.io",
        "v1alpha1",
        "NodeResourceTopology",
        "noderesourcetopologies",
        "The NUMA nodes of the node of this name, and what each has.",
        body=NumaTopology,
        short_names=("node-res-topo",),
        columns=(Column("Policies", ".topologyPolicies"), AGE),
    ),
)
