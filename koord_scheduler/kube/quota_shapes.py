"""ElasticQuota and ElasticQuotaProfile as the companion keeps them: the one shape of each, because
all parts of a process share one watch."""

from __future__ import annotations

import msgspec

from koord_scheduler.admission.quotas import Quota, QuotaProfile, quota_from
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.objects.quota import TREE_ID, ElasticQuotaProfileSpec
from koordlet.protocol.selector import LabelSelector

Resources = dict[str, str | int | float]


class ElasticQuotaSpec(Shape, frozen=True):
    """Quantities as they stand there: text, or bare numbers."""

    min: Resources = msgspec.field(default_factory=dict)
    max: Resources = msgspec.field(default_factory=dict)


class ElasticQuotaStatus(Shape, frozen=True):
    used: Resources = msgspec.field(default_factory=dict)


class ElasticQuota(Object, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class ElasticQuotaProfile(Object, frozen=True):
    spec: ElasticQuotaProfileSpec = ElasticQuotaProfileSpec("", LabelSelector())


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


def quota_of(item: ElasticQuota) -> Quota:
    """As admission sees it. Raises AdmissionError."""
    return quota_from(msgspec.to_builtins(item))


def quota_profile_of(item: ElasticQuotaProfile) -> QuotaProfile:
    meta = item.metadata
    return QuotaProfile(meta.name, meta.labels.get(TREE_ID, ""), item.spec.node_selector)
