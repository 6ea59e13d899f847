"""What admission watches and writes, and where it is."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.admission.profiles import PriorityClassValue, Profile
from koord_scheduler.admission.quotas import Quota, QuotaProfile, quota_from
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section


class ColocationProfile(Object, frozen=True):
    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()

    @property
    def profile(self) -> Profile:
        meta = self.metadata
        return Profile(meta.name, self.spec, meta.labels, meta.annotations)


class PriorityClass(Object, frozen=True):
    value: int = 0
    preemption_policy: str = ""

    @property
    def facts(self) -> PriorityClassValue:
        return PriorityClassValue(self.value, self.preemption_policy)


class _Amounts(Shape, frozen=True):
    min: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    max: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class _Used(Shape, frozen=True):
    used: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ElasticQuota(Object, frozen=True):
    spec: _Amounts = _Amounts()
    status: _Used = _Used()

    @property
    def quota(self) -> Quota:
        """Raises AdmissionError."""
        return quota_from(msgspec.to_builtins(self))


class _OfNodes(Section, frozen=True):
    node_selector: LabelSelector | None = None


class ElasticQuotaProfile(Object, frozen=True):
    spec: _OfNodes = _OfNodes()

    @property
    def facts(self) -> QuotaProfile:
        tree_id = self.metadata.labels.get("quota.scheduling.koordinator.sh/tree-id", "")
        return QuotaProfile(self.metadata.name, tree_id, self.spec.node_selector)


class Secret(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Configuration(Object, frozen=True):
    """Of webhooks."""

    webhooks: list[dict[str, Any]] = msgspec.field(default_factory=list)


PROFILES = Kind(
    "config.koordinator.sh",
    "v1alpha1",
    "ClusterColocationProfile",
    "clustercolocationprofiles",
    False,
    ColocationProfile,
)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False, Object)
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, PriorityClass
)
QUOTAS = Kind(
    "scheduling.sigs.k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas", True, ElasticQuota
)
QUOTA_PROFILES = Kind(
    "quota.koordinator.sh",
    "v1alpha1",
    "ElasticQuotaProfile",
    "elasticquotaprofiles",
    True,
    ElasticQuotaProfile,
)
SECRETS = Kind("", "v1", "Secret", "secrets", True, Secret)
_ADMISSION = ("admissionregistration.k8s.io", "v1")
MUTATING = Kind(
    *_ADMISSION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    False,
    Configuration,
)
VALIDATING = Kind(
    *_ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
    Configuration,
)
