"""The part ``scheduler``: the scheduler with its gangs, quotas and services."""

from __future__ import annotations

import asyncio

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.quota_status import QuotaStatus, revoke_overuse
from koord_scheduler.daemon.scheduler.declared import follow_gangs
from koord_scheduler.daemon.scheduler.explanations import Explanations
from koord_scheduler.daemon.scheduler.gap import OptimalityGap
from koord_scheduler.daemon.scheduler.pages import routes
from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.daemon.scheduler.setup import Setup
from koord_scheduler.daemon.scheduler.watching import Watching
from koord_scheduler.kube.quota_feed import follow_quotas, quota_read
from koord_scheduler.kube.quota_shapes import QUOTAS, ElasticQuota
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.profile import built_in
from koord_scheduler.share.quota.words import Quota
from koordlet.kube.mirror import Change


class Role:
    """A `Controller`: the scheduler and what runs beside it while it leads."""

    def __init__(
        self,
        context: Context,
        setup: Setup,
        watching: Watching,
        debug_flags: bool,
        gap_every_s: float = 0.0,
    ) -> None:
        self.scheduler = Scheduler(context, setup, watching)
        self._context = context
        self._explanations = Explanations(context, self.scheduler)
        follow_gangs(context.watches, self.scheduler)
        self._quota_status: QuotaStatus | None = None
        quotas = self.scheduler.parts.quotas
        if quotas is not None:
            watched = context.watches.of(QUOTAS, optional=True)
            follow_quotas(watched, quotas)
            watched.listen(self._quotas_changed)
            self._quota_status = QuotaStatus(context, quotas)
        self._gap: OptimalityGap | None = None
        if gap_every_s > 0:
            self._gap = OptimalityGap(context.metrics, self.scheduler, gap_every_s)
        context.routes.extend(routes(self.scheduler))
        if debug_flags:
            context.routes.extend(self.scheduler.flags.routes())

    async def run(self) -> None:
        """Until it is cancelled."""
        quotas = self.scheduler.parts.quotas
        async with asyncio.TaskGroup() as group:
            group.create_task(self.scheduler.run(), name="scheduler")
            group.create_task(self._explanations.run(), name="explanations")
            if self._gap is not None:
                group.create_task(self._gap.run(), name="optimality gap")
            if quotas is not None and self._quota_status is not None:
                clock = self._context.clock
                group.create_task(self._quota_status.run(), name="quota status")
                group.create_task(revoke_overuse(quotas, self._revoke, clock), name="overuse")

    def _quotas_changed(self, changes: tuple[Change[ElasticQuota], ...]) -> None:
        """What quotas say of themselves in their status helps nobody."""
        if any(_asked(change.old) != _asked(change.new) for change in changes):
            self.scheduler.changes.happened(Event.QUOTA)

    async def _revoke(self, pod: Pod, why: str) -> None:
        claim = self.scheduler.cluster.claims.get(pod.key)
        if claim is not None:
            evictions = self.scheduler.evictions
            await evictions.evict(pod, claim.node, "TerminationByKoordScheduler", why)


def _asked(item: ElasticQuota | None) -> Quota | None:
    return quota_read(item) if item is not None else None


def make(context: Context) -> Role:
    extra = context.options.extra
    setup = extra.get("scheduler") or Setup((built_in(),))
    watching = extra.get("watching") or Watching()
    gap_every_s = float(extra.get("optimality_gap") or 0.0)
    return Role(context, setup, watching, bool(extra.get("debug_flags")), gap_every_s)
