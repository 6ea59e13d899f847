"""The kinds that the fake server has from the start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """``status``: writes to the object leave its status alone, writes to ``/status`` the rest.
    ``unconditional``: an update without resourceVersion is taken (of a custom resource, never)."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    status: bool = False
    scale: bool = False
    unconditional: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


BUILT_IN = (
    Resource("", "v1", "Namespace", "namespaces", False, status=True),
    Resource("", "v1", "Node", "nodes", False, status=True),
    Resource("", "v1", "Pod", "pods", True, status=True),
    Resource("", "v1", "ConfigMap", "configmaps", True),
    Resource("", "v1", "Secret", "secrets", True),
    Resource("", "v1", "Event", "events", True),
    Resource("", "v1", "ReplicationController", "replicationcontrollers", True, scale=True),
    Resource("", "v1", "PersistentVolume", "persistentvolumes", False, status=True),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, status=True),
    Resource("apps", "v1", "Deployment", "deployments", True, status=True, scale=True),
    Resource("apps", "v1", "ReplicaSet", "replicasets", True, status=True, scale=True),
    Resource("apps", "v1", "StatefulSet", "statefulsets", True, status=True, scale=True),
    Resource("apps", "v1", "DaemonSet", "daemonsets", True, status=True),
    Resource("", "v1", "Service", "services", True, status=True),
    Resource("", "v1", "ServiceAccount", "serviceaccounts", True),
    Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", True),
    *(
        Resource("rbac.authorization.k8s.io", "v1", kind, f"{kind.lower()}s", "Cluster" not in kind)
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    ),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        status=True,
    ),
    Resource("coordination.k8s.io", "v1", "Lease", "leases", True, unconditional=False),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, status=True),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        False,
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        False,
    ),
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False),
)
