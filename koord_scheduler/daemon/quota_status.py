"""What each ElasticQuota says of itself, its metrics, and the return of what was lent
(docs/reference/central.md 4.9, 4.10).

The figures are those by which the scheduler of this process admits pods, so this runs beside it.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.quota_shapes import QUOTAS, ElasticQuota
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.services.metrics import Family, Values, exponential
from koord_scheduler.share.quota.overuse import Overuse
from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.tree import Share, Tree
from koord_scheduler.share.quota.views import (
    METRIC_LABELS,
    figures_of,
    spec_metrics,
    status_metrics,
    status_of,
)
from koord_scheduler.share.quota.words import Amounts
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Key
from koordlet.protocol.objects.quota import (
    ALLOW_LENT,
    DEFAULT,
    IS_PARENT,
    PARENT,
    ROOT,
    SYSTEM,
)

EVERY_S = 1.0
RETRY_S = 5.0
MOST_WRITES = 100
"""In one round: what is left comes in the next, so that one round of a large tree does not hold up
the pods of another."""
_MOST_TOLD = 1000
_log = structlog.get_logger()
Evict = Callable[[Pod, str], Awaitable[None]]
"""Evicts a pod, or refuses to, for a reason in words; every eviction goes through the ledger."""


class QuotaStatus:
    """``quotas`` follow the cluster and `follow_quotas` the ElasticQuotas."""

    def __init__(self, context: Context, quotas: Quotas) -> None:
        self._context, self._quotas = context, quotas
        self._watched = context.watches.of(QUOTAS, optional=True)
        self._said: dict[Key, tuple[ElasticQuota, dict[str, Amounts]]] = {}
        """Objects as the watch showed them -> figures that they hold, or that were sent then."""
        self._seen = True
        """Whether the watch told something since the last round."""
        self._done = -1
        self._told: set[str] = set()
        families: tuple[tuple[str, str, Callable[[Quotas], Values]], ...] = (
            ("spec", "What quotas are given (CPU in milli-cores).", spec_metrics),
            (
                "status",
                "What quotas use, request and may use (CPU in milli-cores).",
                status_metrics,
            ),
        )
        self._writing = context.metrics.histogram(
            "scheduler_update_elastic_quota_status_duration_seconds",
            "Time of a write to an ElasticQuota.",
            exponential(0.001, 2, 15),
        )
        self._processing = context.metrics.histogram(
            "scheduler_elastic_quota_process_latency",
            "Seconds of a round over all quotas that wrote what differs, by operation.",
            exponential(0.00001, 2, 24),
            "operation",
        )
        for name, about, read in families:
            name = f"scheduler_elastic_quota_{name}"
            figures = functools.partial(read, quotas)
            context.metrics.add(Family(name, "gauge", about, METRIC_LABELS, figures))

    async def run(self) -> None:
        """Until it is cancelled."""
        self._said.clear()
        self._seen, self._done = True, -1
        end = self._watched.listen(self._on_change)
        try:
            await self._watched.until_known()
            while True:
                await asyncio.sleep(await self.round())
        finally:
            end()

    async def round(self) -> float:
        """Writes what differs. Returns when to come again, in seconds."""
        if not self._watched.synced:
            return RETRY_S
        trees = self._quotas.trees()
        version = self._quotas.version
        if version == self._done and not self._seen:
            return EVERY_S
        self._seen = False
        begun_s = time.perf_counter()
        try:
            return await self._round(trees, version)
        finally:
            self._processing.observe(time.perf_counter() - begun_s, "status")

    async def _round(self, trees: Mapping[str, Tree], version: int) -> float:
        objects = self._watched.objects
        self._said = {key: said for key, said in self._said.items() if key in objects}
        try:
            await self._make_built_in()
            left = MOST_WRITES
            for tree in trees.values():
                for share in tuple(tree.shares.values()):
                    left -= await self._write(tree, share)
                    if left <= 0:
                        self._seen = True
                        return EVERY_S
        except (KubeError, CredentialsError, NotLeadingError) as error:
            _log.debug("quota status waits", problem=str(error))
            self._seen = True
            return RETRY_S
        self._done = version
        return EVERY_S

    def _on_change(self, changes: object) -> None:
        self._seen = True

    async def _write(self, tree: Tree, share: Share) -> bool:
        """Whether it wrote."""
        key = self._key(tree, share)
        known = self._watched.objects.get(key)
        if known is None:
            self._said.pop(key, None)
            return False
        figures = figures_of(tree, share)
        if self._said.get(key) == (known, figures):
            return False  # nothing has changed, or the watch has not brought it back yet
        wanted = status_of(figures)
        annotations = {
            name: text
            for name, text in wanted.annotations.items()
            if known.metadata.annotations.get(name) != text
        }
        used = {name: str(each) for name, each in known.status.used.items()}
        changes: dict[str, Any] = {}
        if annotations:
            changes["metadata"] = {"annotations": annotations}
        if used != wanted.used:
            gone = dict.fromkeys(used.keys() - wanted.used.keys())
            changes["status"] = {"used": {**gone, **wanted.used}}
        if not changes:
            self._said[key] = (known, figures)
            return False
        changes.setdefault("metadata", {})["uid"] = known.metadata.uid
        begun_s = time.perf_counter()
        try:
            await self._context.writes.patch(QUOTAS, key.name, changes, key.namespace)
        except RefusedError as error:
            if error.passing or error.status == 401:
                raise
            # It is gone, or was made anew: the watch will say so. What is refused for what it is
            # must not hold up the others; it is written again when it or its figures change.
            if not error.gone:
                self._tell_once(share.name, "a quota cannot be written", error)
        self._writing.observe(time.perf_counter() - begun_s)
        self._said[key] = (known, figures)
        return True

    def _key(self, tree: Tree, share: Share) -> Key:
        namespace = share.quota.namespace
        if share is tree.root:
            # Roots of trees of their own have the same name, and no object.
            namespace = self._quotas.args.quota_group_namespace if not tree.id else ""
        return Key(namespace, share.name)

    async def _make_built_in(self) -> None:
        args = self._quotas.args
        names = {key.name for key in self._watched.objects}
        for name, most in (
            (ROOT, {}),
            (SYSTEM, args.system_quota_group_max),
            (DEFAULT, args.default_quota_group_max),
        ):
            if name in names:
                continue
            labels = {}
            if name == ROOT:
                labels = {IS_PARENT: "true", ALLOW_LENT: "false", PARENT: ""}
            head = {"name": name, "namespace": args.quota_group_namespace, "labels": labels}
            body = {
                "apiVersion": QUOTAS.api_version,
                "kind": QUOTAS.name,
                "metadata": head,
                "spec": {"max": dict(most)},
            }
            try:
                await self._context.writes.create(QUOTAS, body, args.quota_group_namespace)
            except RefusedError as error:
                # It works without the object; the others must be told of their figures.
                if not error.exists:
                    self._tell_once(name, "a quota cannot be made", error)

    def _tell_once(self, name: str, words: str, error: RefusedError) -> None:
        if name not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(name)
            _log.warning(words, quota=name, problem=str(error))


async def revoke_overuse(quotas: Quotas, evict: Evict, clock: Callable[[], float]) -> None:
    """Asks for the eviction of pods whose quota uses too much for too long; ends at once where that
    is switched off, else runs until it is cancelled. ``clock`` is monotonic."""
    if not (quotas.args.monitor_all_quotas and quotas.args.enable_runtime_quota):
        return
    overuse = Overuse(quotas)
    while True:
        for revocation in overuse.due(clock()):
            for claim in revocation.claims:
                await evict(claim.pod, revocation.why)
        await asyncio.sleep(quotas.args.revoke_pod_interval_s)
