"""What each part asks of the API server. RBAC in `deploy/` is made from here."""

from __future__ import annotations

from collections.abc import Iterable

from koord_scheduler.daemon.controller import DESCHEDULER, LEASES
from koord_scheduler.daemon.descheduler.workloads import SCALED
from koordlet.kube.access import Need

_SLO = "slo.koordinator.sh"
_NODES = Need("", "nodes", ("list", "watch"), "labels and annotations of nodes choose strategies")
_GONE = Need("", "nodes", ("get",), "nothing is deleted because a watch does not show its node")
_NODE_EVENTS = Need(
    "",
    "events",
    ("create", "patch"),
    "what is wrong with annotations of a node is told at the node",
    namespace="default",
)
_CONFIG = Need(
    "",
    "configmaps",
    ("list", "watch"),
    "slo-controller-config says what all nodes get",
    namespace="koordinator-system",
    names=("slo-controller-config",),
)


def lease(role: str) -> Need:
    """Each role has its own."""
    return Need(
        "coordination.k8s.io",
        "leases",
        ("get", "update"),
        "one of several processes leads",
        namespace="koordinator-system",
        names=(LEASES[role],),
    )


PROCESS = (
    # No name can be given to what does not exist yet.
    Need(
        "coordination.k8s.io",
        "leases",
        ("create",),
        "the first process makes the lease",
        namespace="koordinator-system",
    ),
    Need(
        "",
        "events",
        ("create", "patch"),
        "what is wrong with a configuration is told where users look",
        namespace="koordinator-system",
    ),
)
"""Of the process itself, whatever it runs, besides its leases."""

NODEMETRIC = (
    _NODES,
    _GONE,
    _CONFIG,
    Need(
        _SLO,
        "nodemetrics",
        ("list", "watch", "create", "patch", "delete"),
        "every node has a NodeMetric, which goes with it",
    ),
)
NODESLO = (
    _NODES,
    _GONE,
    _CONFIG,
    Need(
        _SLO,
        "nodeslos",
        ("list", "watch", "create", "patch", "delete"),
        "every node has a NodeSLO, which goes with it",
    ),
    _NODE_EVENTS,
)
NODERESOURCE = (
    _NODES,
    _CONFIG,
    _NODE_EVENTS,
    Need(_SLO, "nodemetrics", ("list", "watch"), "usage is what batch resources are made of"),
    Need("", "pods", ("list", "watch"), "requests of pods count as reserved"),
    Need(
        "",
        "nodes/status",
        ("patch",),
        "batch, mid and device resources are offered there, with their annotations",
    ),
    Need(
        "scheduling.koordinator.sh",
        "devices",
        ("list", "watch"),
        "healthy devices become resources of the node",
    ),
    Need(
        "topology.node.k8s.io",
        "noderesourcetopologies",
        ("list", "watch", "patch"),
        "NUMA nodes get their part of the batch resources",
    ),
)
QUOTA_PROFILE = (
    _NODES,
    Need(
        "quota.koordinator.sh",
        "elasticquotaprofiles",
        ("list", "watch", "patch"),
        "each profile becomes a quota, and gets the id of its tree",
    ),
    Need(
        "scheduling.sigs.k8s.io",
        "elasticquotas",
        ("list", "watch", "create", "patch"),
        "the quota of a profile follows its nodes",
    ),
    Need("", "events", ("create", "patch"), "what is wrong with a profile is told beside it"),
)
QUOTA_STATUS = (
    Need(
        "scheduling.sigs.k8s.io",
        "elasticquotas",
        ("list", "watch", "create", "patch"),
        "quotas bound what pods get, and say what they may use; built-in ones are made",
    ),
)
"""Of the scheduler, which writes the figures by which it admits pods."""
_DEFINED = "what plugins know of nodes beside the nodes"
_PODS = Need("", "pods", ("list", "watch", "get"), "pods that wait get nodes, others count")
EXPLANATIONS = (
    Need(
        "scheduling.koordinator.sh",
        "scheduleexplanations",
        ("list", "watch", "delete"),
        "who asks why gets an answer, for as long as it was asked for",
    ),
    Need(
        "scheduling.koordinator.sh",
        "scheduleexplanations/status",
        ("patch",),
        "the answer is its status",
    ),
)
SCHEDULER_NEEDS = (
    _PODS,
    Need("", "nodes", ("list", "watch"), "pods go to nodes"),
    Need("", "pods/binding", ("create",), "a pod gets its node and what it was given there"),
    Need(
        "",
        "pods/status",
        ("patch",),
        "pods that found no node say why, and those that must go say for whom",
    ),
    Need(
        "",
        "pods",
        ("patch", "delete"),
        "an allocation that was copied from another pod is cleared; pods of lower priority make "
        "room",
    ),
    Need("policy", "poddisruptionbudgets", ("list", "watch"), "budgets are weighed"),
    Need("", "persistentvolumeclaims", ("list", "watch"), "volumes say where pods may go"),
    Need("", "persistentvolumes", ("list", "watch"), "volumes say where pods may go"),
    Need(
        "",
        "events",
        ("create", "patch"),
        "what a pod waits for, and which node it got, is told at the pod",
    ),
    Need(_SLO, "nodemetrics", ("list", "watch"), _DEFINED),
    Need("scheduling.koordinator.sh", "devices", ("list", "watch"), _DEFINED),
    Need("topology.node.k8s.io", "noderesourcetopologies", ("list", "watch"), _DEFINED),
    Need(
        "scheduling.koordinator.sh",
        "reservations",
        ("list", "watch", "patch", "delete"),
        "reservations keep room for pods, with the devices that they say, until their time is over",
    ),
    Need(
        "scheduling.koordinator.sh",
        "reservations/status",
        ("patch",),
        "where a reservation is, and who uses it, is its status",
    ),
    Need("scheduling.sigs.k8s.io", "podgroups", ("list", "watch"), "they declare gangs"),
    Need("scheduling.k8s.io", "podgroups", ("list", "watch"), "they declare gangs"),
    Need(
        "scheduling.koordinator.sh",
        "clusternetworktopologies",
        ("list", "watch"),
        "gangs may ask for nodes that are near each other",
    ),
    Need("", "namespaces", ("list", "watch"), "terms about other pods select namespaces"),
    *QUOTA_STATUS,
    *EXPLANATIONS,
)
RECOMMENDER = (
    Need(
        "analysis.koordinator.sh",
        "recommendations",
        ("get", "list", "watch", "patch"),
        "a recommendation says whose usage to look at, and keeps what was learned",
    ),
    Need(
        "analysis.koordinator.sh",
        "recommendations/status",
        ("patch",),
        "what containers should request is its status",
    ),
    Need(_SLO, "nodemetrics", ("list", "watch"), "usage of pods is what it is learned from"),
    Need(
        "",
        "pods",
        ("list", "watch", "get"),
        "owners and labels say to which workload a pod belongs, and one pod what its containers "
        "ask for",
    ),
)
YARN = (
    Need(
        "",
        "nodes",
        ("list", "watch", "get", "patch"),
        "what YARN uses is an annotation of the node",
    ),
    Need("", "pods", ("list", "watch"), "pods of NodeManagers, and what pods take of batch"),
    _NODE_EVENTS,
)

PODGROUP = (
    Need(
        "scheduling.sigs.k8s.io",
        "podgroups",
        ("get", "list", "watch", "patch"),
        "the status of a gang follows its pods",
    ),
    # A definition that is not ours keeps the status apart.
    Need(
        "scheduling.sigs.k8s.io",
        "podgroups/status",
        ("patch",),
        "the status of a gang follows its pods",
    ),
    Need("", "pods", ("list", "watch"), "pods say to which gang they belong"),
)
NETWORKTOPOLOGY = (
    _NODES,
    Need(
        "scheduling.koordinator.sh",
        "clusternetworktopologies",
        ("get", "list", "watch"),
        "labels of nodes make the network a tree",
    ),
    Need(
        "scheduling.koordinator.sh",
        "clusternetworktopologies/status",
        ("patch",),
        "its status shows the domains of the network",
    ),
    Need("", "events", ("create", "patch"), "what is wrong with a topology is told beside it"),
)


_PROFILES = Need(
    "config.koordinator.sh",
    "clustercolocationprofiles",
    ("list", "watch"),
    "profiles say what pods become",
)
_NAMESPACES = Need("", "namespaces", ("get", "list", "watch"), "profiles select namespaces")
_CERTIFICATE = "koordinator-webhook-certs"
_REGISTRATIONS = (
    ("mutatingwebhookconfigurations", "koordinator-mutating-webhook-configuration"),
    ("validatingwebhookconfigurations", "koordinator-validating-webhook-configuration"),
)
_ADMISSION = "admissionregistration.k8s.io"

WEBHOOK = (
    _PROFILES,
    _NAMESPACES,
    _NODES,
    _CONFIG,
    Need(
        "scheduling.k8s.io",
        "priorityclasses",
        ("list", "watch"),
        "a profile's PriorityClass has a value and a policy",
    ),
    Need(
        "scheduling.sigs.k8s.io",
        "elasticquotas",
        ("list", "watch"),
        "quotas are admitted against each other, and pods against quotas",
    ),
    Need(
        "quota.koordinator.sh",
        "elasticquotaprofiles",
        ("list", "watch"),
        "pods stay on the nodes of their quota tree",
    ),
    Need("", "pods", ("get", "list"), "a quota with pods stays, and pods may exempt bindings"),
    Need(
        "",
        "configmaps",
        ("list", "watch"),
        "pod-enhanced-validator-config names labels that pods must have",
        namespace="koordinator-system",
        names=("pod-enhanced-validator-config",),
    ),
    Need(
        "",
        "secrets",
        ("list", "watch"),
        "every replica shows the same certificate",
        namespace="koordinator-system",
        names=(_CERTIFICATE,),
    ),
)
WEBHOOK_REGISTRATION = (
    Need(
        "",
        "secrets",
        ("get", "update"),
        "the certificate is renewed",
        namespace="koordinator-system",
        names=(_CERTIFICATE,),
    ),
    # No name can be given to what does not exist yet.
    Need(
        "",
        "secrets",
        ("create",),
        "the first process makes the certificate",
        namespace="koordinator-system",
    ),
    *(
        Need(
            _ADMISSION,
            resource,
            ("get", "list", "watch", "patch"),
            "the API server knows the webhooks and whom to trust",
            names=(name,),
        )
        for resource, name in _REGISTRATIONS
    ),
    *(
        Need(_ADMISSION, resource, ("create",), "the first process registers the webhooks")
        for resource, _ in _REGISTRATIONS
    ),
)
COLOCATIONPROFILE = (
    _PROFILES,
    _NAMESPACES,
    Need(
        "",
        "pods",
        ("get", "list", "watch", "update"),
        "pods that wait for a node get what profiles say now",
    ),
)

DESCHEDULER_NEEDS = (
    lease(DESCHEDULER),
    Need(
        "",
        "nodes",
        ("get", "list", "watch", "patch"),
        "pods move between nodes, and nodes are cordoned",
    ),
    Need(
        "",
        "pods",
        ("get", "list", "watch", "patch", "delete"),
        "pods move; a deletion cost says which one a scale-down takes; a policy says how they go",
    ),
    Need("", "pods/eviction", ("create",), "pods are evicted as disruption budgets allow"),
    Need(_SLO, "nodemetrics", ("list", "watch"), "usage says which nodes are overloaded"),
    *(
        Need("apps", resource, ("list", "watch"), "replicas of a workload limit its evictions")
        for resource in ("replicasets", "deployments", "statefulsets")
    ),
    *(
        Need(group, scale, ("get",), "so do those of workloads of other kinds")
        for group, scale in SCALED.items()
    ),
    Need(
        "scheduling.koordinator.sh",
        "podmigrationjobs",
        ("get", "list", "watch", "create", "patch", "delete"),
        "each pod that shall move has a job",
    ),
    Need(
        "scheduling.koordinator.sh",
        "podmigrationjobs/status",
        ("patch",),
        "how far the job is",
    ),
    Need(
        "scheduling.koordinator.sh",
        "reservations",
        ("get", "create", "patch", "delete"),
        "room on another node comes first",
    ),
    Need("", "events", ("create", "patch"), "why a pod goes is told at the pod"),
)


def merged(groups: Iterable[tuple[Need, ...]]) -> tuple[Need, ...]:
    """Each resource once, with all verbs that somebody needs."""
    found: dict[tuple[str, str, str, tuple[str, ...]], Need] = {}
    for each in (need for group in groups for need in group):
        key = (each.group, each.resource, each.namespace, each.names)
        old = found.get(key)
        if old is not None:
            verbs = tuple(dict.fromkeys((*old.verbs, *each.verbs)))
            why = old.why if each.why in old.why else f"{old.why}; {each.why}"
            each = old._replace(verbs=verbs, why=why)
        found[key] = each
    return tuple(found.values())


NEEDS = merged(
    (
        PROCESS,
        NODEMETRIC,
        NODESLO,
        NODERESOURCE,
        WEBHOOK,
        WEBHOOK_REGISTRATION,
        COLOCATIONPROFILE,
        QUOTA_PROFILE,
        RECOMMENDER,
        YARN,
        PODGROUP,
        NETWORKTOPOLOGY,
        SCHEDULER_NEEDS,
        tuple(map(lease, LEASES)),
        DESCHEDULER_NEEDS,
    )
)
"""Of the process with all its parts. A test sees that no part is left out."""
