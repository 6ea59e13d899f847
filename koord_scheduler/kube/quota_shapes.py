"""ElasticQuota and ElasticQuotaProfile as the companion keeps them."""

from __future__ import annotations

import msgspec

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.objects.quota import ElasticQuotaProfileSpec
from koordlet.protocol.selector import LabelSelector

Resources = dict[str, str | int | float]


class ElasticQuotaSpec(Shape, frozen=True):
    """Quantities as they stand there: text, or bare numbers."""

    min: Resources = msgspec.field(default_factory=dict)
    max: Resources = msgspec.field(default_factory=dict)


class ElasticQuota(Object, frozen=True):
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


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
