"""Keeps the root quota of each ElasticQuotaProfile as its nodes are
(docs/reference/central.md 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.queue import Queue
from koord_scheduler.kube.quota_shapes import (
    QUOTA_PROFILES,
    QUOTAS,
    ElasticQuota,
    ElasticQuotaProfile,
)
from koord_scheduler.kube.shapes import NODES, Node
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.overcommit.quota_profile import (
    NodeShare,
    Profile,
    Quota,
    rendered,
    tree_id,
)
from koordlet.kube.errors import RefusedError
from koordlet.kube.events import Subject
from koordlet.kube.mirror import Change, Key
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.quota import PROFILE, TREE_ID, ElasticQuotaSpec
from koordlet.protocol.quantity import Quantity, parse_quantity

SETTLE_S = 1.0
"""Nodes come and go in flocks: what they change is written once for all of them."""
RETRY_S = 2.0
_log = structlog.get_logger()


def make(context: Context) -> QuotaProfiles:
    return QuotaProfiles(context)


class QuotaProfiles:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._profiles = context.watches.of(QUOTA_PROFILES)
        self._quotas = context.watches.of(QUOTAS)
        self._nodes = context.watches.of(NODES)
        self._shares: dict[str, tuple[Node, NodeShare]] = {}
        self._told: dict[str, tuple[str, ...]] = {}
        """The problems of each profile that were told, so that each is told once."""
        self._queue = Queue(
            self._one, workers=1, on_error=self._failed, retry=lambda error: _retry_s(error)
        )

    async def run(self) -> None:
        endings = (
            self._profiles.listen(self._on_profiles),
            self._quotas.listen(self._on_quotas),
            self._nodes.listen(self._on_nodes),
        )
        try:
            self._queue.add_all(map(_text, self._profiles.objects))
            await self._queue.run()
        finally:
            for end in endings:
                end()

    def _on_profiles(self, changes: tuple[Change[ElasticQuotaProfile], ...]) -> None:
        for change in changes:
            key = _text(change.key)
            if change.new is None:
                self._queue.drop(key)
                self._told.pop(key, None)
            else:
                self._queue.add(key)

    def _on_quotas(self, changes: tuple[Change[ElasticQuota], ...]) -> None:
        for change in changes:
            for each in (change.old, change.new):
                owner = each.metadata.labels.get(PROFILE) if each is not None else None
                if owner and Key(change.key.namespace, owner) in self._profiles.objects:
                    self._queue.add(f"{change.key.namespace}/{owner}")

    def _on_nodes(self, changes: tuple[Change[Node], ...]) -> None:
        for change in changes:
            if change.new is None:
                self._shares.pop(change.key.name, None)
        if any(_matters(change) for change in changes):
            for key in self._profiles.objects:
                self._queue.add_after(_text(key), SETTLE_S)

    async def _one(self, key: str) -> float | None:
        namespace, _, name = key.partition("/")
        found = self._profiles.get(name, namespace)
        if found is None:
            return None
        meta = found.metadata
        if not meta.labels.get(TREE_ID):
            labels = {TREE_ID: tree_id(namespace, name)}
            head = {"labels": labels, "resourceVersion": meta.resource_version}
            # The watch brings it back with its label.
            await self._context.writes.patch(QUOTA_PROFILES, name, {"metadata": head}, namespace)
            return RETRY_S
        quota_key = Key(namespace, found.spec.quota_name)
        known = self._quotas.objects.get(quota_key)
        profile = Profile(namespace, name, meta.labels, meta.annotations, found.spec)
        shares = (self._share(each.name, node) for each, node in self._nodes.objects.items())
        wanted = rendered(profile, shares, _quota(known) if known is not None else None)
        self._tell_problems(key, found, wanted.problems)
        if wanted.quota is None:
            return None
        try:
            await self._write(quota_key, known, wanted.quota)
        except RefusedError as error:
            if known is not None and (error.conflict or error.missing):
                return RETRY_S
            word = "CreateQuotaFailed" if known is None else "UpdateQuotaFailed"
            self._tell(found, "Warning", word, str(error))
            return RETRY_S
        return None

    async def _write(self, key: Key, known: ElasticQuota | None, wanted: Quota) -> None:
        writes = self._context.writes
        if known is None:
            body = {
                "apiVersion": QUOTAS.api_version,
                "kind": QUOTAS.name,
                "metadata": {
                    "name": key.name,
                    "namespace": key.namespace,
                    "labels": wanted.labels,
                    "annotations": wanted.annotations,
                },
                "spec": {"min": wanted.spec.min, "max": wanted.spec.max},
            }
            await writes.create(QUOTAS, body, key.namespace)
        elif changes := _difference(known, wanted):
            head = changes.setdefault("metadata", {})
            head["resourceVersion"] = known.metadata.resource_version
            await writes.patch(QUOTAS, key.name, changes, key.namespace)

    def _share(self, name: str, node: Node) -> NodeShare:
        kept = self._shares.get(name)
        if kept is None or kept[0] is not node:
            kept = self._shares[name] = (node, share_of(node))
        return kept[1]

    def _tell_problems(
        self, key: str, profile: ElasticQuotaProfile, problems: tuple[str, ...]
    ) -> None:
        if problems == self._told.get(key, ()):
            return
        self._told[key] = problems
        if problems:
            self._tell(profile, "Warning", "ProfileProblem", "; ".join(problems))

    def _tell(
        self, profile: ElasticQuotaProfile, kind: Literal["Normal", "Warning"], why: str, text: str
    ) -> None:
        meta = profile.metadata
        subject = Subject(
            QUOTA_PROFILES.api_version, QUOTA_PROFILES.name, meta.namespace, meta.name, meta.uid
        )
        self._context.events.tell(subject, kind, why, text)

    def _failed(self, key: str, error: Exception) -> None:
        _log.debug("quota profile waits", profile=key, problem=str(error))


def share_of(node: Node) -> NodeShare:
    usable = node.status.ready and not node.spec.unschedulable
    return NodeShare(node.metadata.labels, _quantities(node.status.allocatable), usable)


def _matters(change: Change[Node]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (
        old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
        or old.spec.unschedulable != new.spec.unschedulable
        or old.status.ready != new.status.ready
    )


def _quota(known: ElasticQuota) -> Quota:
    least = {name: str(each) for name, each in known.spec.min.items()}
    most = {name: str(each) for name, each in known.spec.max.items()}
    meta = known.metadata
    return Quota(meta.labels, meta.annotations, ElasticQuotaSpec(least, most))


def _difference(known: ElasticQuota, wanted: Quota) -> dict[str, Any]:
    """A merge patch; empty where nothing differs. What others added to the metadata stays."""
    meta = known.metadata
    head: dict[str, Any] = {}
    for field, old, new in (
        ("labels", meta.labels, wanted.labels),
        ("annotations", meta.annotations, wanted.annotations),
    ):
        if differing := {key: text for key, text in new.items() if old.get(key) != text}:
            head[field] = differing
    found: dict[str, Any] = {"metadata": head} if head else {}
    spec: dict[str, Any] = {}
    for name, have, want in (
        ("min", known.spec.min, wanted.spec.min),
        ("max", known.spec.max, wanted.spec.max),
    ):
        if _quantities(have) != _quantities(want) or have.keys() != want.keys():
            spec[name] = {**dict.fromkeys(have.keys() - want.keys()), **want}
    if spec:
        found["spec"] = spec
    return found


def _quantities(resources: Mapping[str, str | int | float]) -> dict[str, Quantity]:
    """What cannot be read is left out, as if the node did not have it."""
    found = {}
    for name, text in resources.items():
        try:
            found[name] = parse_quantity(text)
        except ProtocolError:
            continue
    return found


def _retry_s(error: Exception) -> float | None:
    return RETRY_S if isinstance(error, NotLeadingError) else None


def _text(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
