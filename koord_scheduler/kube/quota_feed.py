"""ElasticQuotas of a watch into the quotas by which pods are admitted."""

from __future__ import annotations

from collections.abc import Callable

from koord_scheduler.kube.quota_shapes import ElasticQuota
from koord_scheduler.kube.watches import Watched
from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.words import Quota, read_quota
from koordlet.kube.mirror import Change


def quota_read(item: ElasticQuota) -> Quota:
    meta = item.metadata
    return read_quota(
        meta.name, meta.namespace, meta.labels, meta.annotations, item.spec.min, item.spec.max
    )


def follow_quotas(watched: Watched[ElasticQuota], quotas: Quotas) -> Callable[[], None]:
    """From now on ``quotas`` are those of ``watched``. Returns what ends it."""

    def take(changes: tuple[Change[ElasticQuota], ...]) -> None:
        for change in changes:
            if change.new is None:
                quotas.drop_quota(change.key.namespace, change.key.name)
            else:
                quotas.set_quota(quota_read(change.new))

    there = {(key.namespace, key.name) for key in watched.objects}
    for namespace, name in quotas.quotas.keys() - there:
        quotas.drop_quota(namespace, name)
    for item in watched.objects.values():
        quotas.set_quota(quota_read(item))
    return watched.listen(take)
