"""Replicas of the workloads that own pods (docs/reference/central.md 10.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from koord_scheduler.balance.world import Workload
from koord_scheduler.kube.migration_shapes import Scaled
from koord_scheduler.model.cluster.pods import Owner
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError
from koordlet.kube.mirror import Key

_MOST_OWNERS = 10_000
_SCALE_KEPT_S = 60.0
_AT_ONCE = 50
_BACKOFF_LIMIT = 6
"""Of a Job that does not say, as in Kubernetes."""
BATCH = "batch"
SCALED = {
    "apps": "*/scale",
    "apps.kruise.io": "*/scale",
    "": "replicationcontrollers/scale",
    BATCH: "jobs",
}
"""Group of workloads -> whose scale is looked up there, as RBAC names it; a batch Job has none, so
it is read itself. A pod may claim any owner, so nothing else is asked for."""

Given = Callable[[], Mapping[Key, Scaled]]


class Workloads:
    """Of ReplicaSets, with their Deployments, and of StatefulSets by the objects that are given,
    of all others by their scale, which `look_up` asks for."""

    def __init__(
        self,
        sets: Given,
        deployments: Given,
        stateful: Given,
        clock: Callable[[], float],
    ) -> None:
        self._sets, self._deployments, self._stateful = sets, deployments, stateful
        self._clock = clock
        self._scales: dict[tuple[str, Owner], tuple[float, Workload | None]] = {}
        self._unknown: dict[tuple[str, Owner], None] = {}
        self._plurals: dict[str, dict[str, str]] = {}
        self._members: dict[str, frozenset[str]] | None = None

    def forget(self) -> None:
        """A ReplicaSet changed. A round may be looking at them in a thread of its own."""
        self._members = None

    def find(self, namespace: str, owner: Owner) -> Workload | None:
        if owner.kind == "ReplicaSet" and owner.api_version.startswith("apps/"):
            return self._of_set(namespace, owner)
        if owner.kind == "StatefulSet" and owner.api_version.startswith("apps/"):
            return _alone(self._stateful().get(Key(namespace, owner.name)), owner)
        key = (namespace, owner)
        kept = self._scales.get(key)
        old = kept is None or self._clock() - kept[0] > _SCALE_KEPT_S
        if old and len(self._unknown) < _MOST_OWNERS:
            self._unknown.setdefault(key)
        return kept[1] if kept is not None else None

    def _of_set(self, namespace: str, owner: Owner) -> Workload | None:
        found = self._sets().get(Key(namespace, owner.name))
        if found is None or found.metadata.uid != owner.uid:
            return None
        above = found.controller
        if above is None or above.kind != "Deployment":
            return _alone(found, owner)
        deployment = self._deployments().get(Key(namespace, above.name))
        if deployment is None:
            return None
        members = self._members
        if members is None:
            members = self._members = _members_of(tuple(self._sets().values()))
        mine = members.get(above.uid, frozenset((owner.uid,)))
        return Workload(above.uid, above.kind, above.name, deployment.replicas, mine)

    async def look_up(self, client: Client) -> None:
        """Replicas of workloads of other kinds, which were asked for since the last call, by their
        scale. One that has none stays unknown."""
        asked, self._unknown = list(self._unknown), {}
        now_s = self._clock()
        if len(self._scales) > _MOST_OWNERS:
            self._scales.clear()
        for start in range(0, len(asked), _AT_ONCE):
            part = asked[start : start + _AT_ONCE]
            found = await asyncio.gather(*(self._scale(client, *each) for each in part))
            for key, workload in zip(part, found, strict=True):
                self._scales[key] = (now_s, workload)

    async def _scale(self, client: Client, namespace: str, owner: Owner) -> Workload | None:
        if owner.api_version == f"{BATCH}/v1" and owner.kind == "Job":
            return await _job(client, namespace, owner)
        name, slash, version = owner.api_version.rpartition("/")
        if name not in SCALED or name == BATCH or not version.isalnum():
            return None
        group = f"/apis/{name}/{version}" if slash else "/api/v1"
        try:
            if group not in self._plurals:
                listed = await client.tree(group)
                self._plurals[group] = {
                    each["kind"]: each["name"]
                    for each in listed.get("resources", ())
                    if "/" not in each.get("name", "/")
                }
            plural = self._plurals[group].get(owner.kind)
            if plural is None or SCALED[name] not in ("*/scale", f"{plural}/scale"):
                return None
            place = f"{group}/namespaces/{quote(namespace, safe='')}"
            path = f"{place}/{plural}/{quote(owner.name, safe='')}/scale"
            scale = await client.tree(path)
            replicas = scale["spec"].get("replicas", 0)
        except (KubeError, CredentialsError, KeyError, TypeError, AttributeError):
            return None
        members = frozenset((owner.uid,))
        return Workload(owner.uid, owner.kind, owner.name, int(replicas), members)


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _FailureRule(msgspec.Struct, frozen=True, rename="camel"):
    action: str = ""
    on_pod_conditions: tuple[_PodCondition, ...] = ()


class _FailurePolicy(msgspec.Struct, frozen=True):
    rules: tuple[_FailureRule, ...] = ()


class _JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    pod_failure_policy: _FailurePolicy | None = None


class _JobStatus(msgspec.Struct, frozen=True):
    succeeded: int = 0
    failed: int = 0


class _JobMetadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _BatchJob(msgspec.Struct, frozen=True):
    metadata: _JobMetadata = _JobMetadata()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


async def _job(client: Client, namespace: str, owner: Owner) -> Workload | None:
    """Its replicas are the pods that it keeps at once: so many as are still to come, at most
    ``parallelism``. An eviction costs one retry where the Job does not pass over disruptions."""
    place = f"/apis/{BATCH}/v1/namespaces/{quote(namespace, safe='')}"
    try:
        found = msgspec.convert(
            await client.tree(f"{place}/jobs/{quote(owner.name, safe='')}"), _BatchJob
        )
    except (KubeError, CredentialsError, msgspec.ValidationError):
        return None
    if found.metadata.uid != owner.uid:
        return None
    spec, status = found.spec, found.status
    replicas = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is not None:
        replicas = min(replicas, spec.completions - status.succeeded)
    limit = _BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
    left = None if _passes_over(spec) else max(limit - status.failed, 0)
    members = frozenset((owner.uid,))
    return Workload(owner.uid, owner.kind, owner.name, max(replicas, 0), members, left)


def _passes_over(spec: _JobSpec) -> bool:
    """The first rule that names disruptions decides."""
    for rule in spec.pod_failure_policy.rules if spec.pod_failure_policy else ():
        for each in rule.on_pod_conditions:
            if each.type == "DisruptionTarget" and each.status in ("", "True"):
                return rule.action == "Ignore"
    return False


def _members_of(sets: tuple[Scaled, ...]) -> dict[str, frozenset[str]]:
    """uid of a Deployment -> uids of its ReplicaSets."""
    members: dict[str, set[str]] = {}
    for each in sets:
        if each.controller is not None:
            members.setdefault(each.controller.uid, set()).add(each.metadata.uid)
    return {uid: frozenset(each) for uid, each in members.items()}


def _alone(found: Scaled | None, owner: Owner) -> Workload | None:
    if found is None or found.metadata.uid != owner.uid:
        return None
    return Workload(owner.uid, owner.kind, owner.name, found.replicas, frozenset((owner.uid,)))
