"""The three ways in which a pod goes (docs/reference/central.md 10.13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.balance.job import EVICT_REASON, EVICT_TRIGGER, Job
from koord_scheduler.balance.migration_args import POLICIES, MigrationArgs
from koord_scheduler.kube.residents import PODS
from koord_scheduler.kube.writes import Writes, perhaps_done
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.protocol.keys import EVICT_POLICY
from koordlet.protocol.objects.migration import DeleteOptions
from koordlet.protocol.objects.times import instant

SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction"
Tree = Mapping[str, Any]


def policy_of(pod_labels: Mapping[str, str], job: Job | None, args: MigrationArgs) -> str:
    """The pod's label, else the job's, else the configuration's; unknown words count for none."""
    for labels in (pod_labels, job.labels if job is not None else {}):
        if labels.get(EVICT_POLICY.name) in POLICIES:
            return labels[EVICT_POLICY.name]
    return args.eviction_policy


async def stays(client: Client, error: Exception, pod_key: str, uid: str) -> bool:
    """Return whether the pod is as it was before an eviction that ended so. A server that answers
    500, as where two budgets cover the pod, may have carried it out: the pod itself says."""
    if not perhaps_done(error):
        return True
    if not isinstance(error, RefusedError):
        return False
    namespace, _, name = pod_key.partition("/")
    try:
        meta = (await client.tree(PODS.path(namespace, name)))["metadata"]
    except (KubeError, CredentialsError, LookupError):
        return False
    return bool(meta.get("uid") == uid and not meta.get("deletionTimestamp"))


async def evict(writes: Writes, pod: Tree, policy: str, job: Job, now_s: float) -> None:
    """Raises KubeError, NotLeadingError. A pod that is gone is no error."""
    meta = pod["metadata"]
    namespace, name, uid = meta["namespace"], meta["name"], meta["uid"]
    options = job.spec.delete_options or DeleteOptions()
    grace = options.grace_period_seconds
    grace_s = grace if grace is not None and grace >= 0 else None
    try:
        if policy == "SoftEviction":
            value = {
                "timestamp": instant(now_s),
                "deleteOptions": options,
                "initiator": job.annotations.get(EVICT_TRIGGER, ""),
                "reason": job.annotations.get(EVICT_REASON, ""),
            }
            text = msgspec.json.encode(value).decode()
            head = {"uid": uid, "annotations": {SOFT_EVICTION: text}}
            await writes.patch(PODS, name, {"metadata": head}, namespace)
        elif policy == "Delete":
            await writes.delete(PODS, name, namespace, uid=uid, grace_s=grace_s)
        else:
            await writes.evict(namespace, name, uid=uid, grace_s=grace_s)
    except RefusedError as error:
        if not error.gone:
            raise
