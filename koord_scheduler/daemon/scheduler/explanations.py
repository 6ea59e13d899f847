"""Answers ScheduleExplanations: whether a pod or a gang would get nodes now, and why not
(spec/central.md 9.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.kube.explanation_shapes import EXPLANATIONS, Explanation
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.reading import instant_s
from koord_scheduler.plan import explain, gangs
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.outcomes import Failure
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Key
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.explanation import (
    DetailedExplanation,
    FeasibleResult,
    NodeFailedDetail,
    ScheduleDetail,
    ScheduleExplanationStatus,
)
from koordlet.protocol.objects.times import instant

EVERY_S = 60.0
_LOOK_EVERY_S = 1.0
_TTL_S = 86_400.0
_MOST_ANSWERS = 20
"""In one look: an answer costs as much as some decisions."""
_log = structlog.get_logger()


class Explanations:
    """A `Controller`. Each question is answered at once, and again each minute."""

    def __init__(self, context: Context, scheduler: Scheduler) -> None:
        self._context, self._scheduler = context, scheduler
        self._watched = context.watches.of(EXPLANATIONS, optional=True)
        self._answered_s: dict[tuple[Key, str], float] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        self._answered_s.clear()
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        now_s, clock_s = self._context.wall(), self._context.clock()
        there = {(key, each.metadata.uid): each for key, each in self._watched.objects.items()}
        for gone in self._answered_s.keys() - there.keys():
            del self._answered_s[gone]
        left = _MOST_ANSWERS
        for (key, uid), item in there.items():
            last_s = self._answered_s.get((key, uid))
            if last_s is not None and clock_s - last_s < EVERY_S:
                continue
            self._answered_s[(key, uid)] = clock_s
            try:
                await self._one(key, item, now_s)
            except RefusedError as error:
                if not (error.missing or error.conflict):
                    _log.warning("an explanation waits", name="/".join(key), error=str(error))
            except (KubeError, CredentialsError, NotLeadingError) as error:
                _log.debug("an explanation waits", name="/".join(key), error=str(error))
            left -= 1
            if not left:
                return

    async def _one(self, key: Key, item: Explanation, now_s: float) -> None:
        writes, uid = self._context.writes, item.metadata.uid
        created_s = instant_s(item.metadata.creation_timestamp) or now_s
        if now_s - created_s > _ttl_s(item.spec.ttl):
            await writes.delete(EXPLANATIONS, key.name, key.namespace, uid=uid)
            return
        answer = self.answer(item.spec.question_object_key, now_s)
        # Defaults are not written; a merge patch would leave what stood there before.
        status: dict[str, Any] = {
            **msgspec.to_builtins(answer),
            "schedulable": answer.schedulable,
            "failedMessage": answer.failed_message,
        }
        body = {"metadata": {"uid": uid}, "status": status}
        await writes.patch(EXPLANATIONS, key.name, body, key.namespace, subresource="status")

    def answer(self, question: str, now_s: float) -> ScheduleExplanationStatus:
        """Of this instant; decisions are made in a trial."""
        detail = self._detail(question)
        return ScheduleExplanationStatus(
            schedulable=detail.schedulable,
            failed_message=detail.failed_message,
            last_update_time=instant(now_s),
            detailed_explanation=(
                DetailedExplanation(
                    schedulable=detail.schedulable,
                    failed_message=detail.failed_message,
                    schedule_explanation=detail,
                ),
            ),
        )

    def _detail(self, question: str) -> ScheduleDetail:
        scheduler, cluster = self._scheduler, self._scheduler.cluster
        claim = cluster.claims.get(question)
        if claim is not None:
            return _feasible([(claim.pod, claim.node)])
        pod = scheduler.waiting.get(question)
        try:
            if pod is not None and not (pod.gang and scheduler.parts.gangs is not None):
                engine = scheduler.parts.engines[pod.scheduler]
                with cluster.trial():
                    outcome = engine.place(pod)
                if isinstance(outcome, Failure):
                    return self._failed(outcome, outcome.text())
                return _feasible([(pod, outcome.node)])
            return self._group(pod.gang if pod is not None else question)
        except PluginError as error:
            return ScheduleDetail(failed_message=str(error))

    def _group(self, question: str) -> ScheduleDetail:
        scheduler, book = self._scheduler, self._scheduler.parts.gangs
        group = book.group_of(question) if book is not None else ""
        pending = book.pending(group) if book is not None else []
        if book is None or not pending:
            return ScheduleDetail(failed_message=f"nothing that waits is called {question[:300]}")
        engine = scheduler.parts.engines.get(pending[0].scheduler, scheduler.parts.first)
        with scheduler.cluster.trial():
            outcome = gangs.place_group(engine, book, group, scheduler.network)
        if isinstance(outcome, gangs.GroupFailed):
            if outcome.root is None:
                return ScheduleDetail(failed_message=outcome.words)
            return self._failed(outcome.root, outcome.words)
        return _feasible([(each.pod, each.node) for each in outcome.placements])

    def _failed(self, failure: Failure, words: str) -> ScheduleDetail:
        engine = self._scheduler.parts.engines[failure.pod.scheduler]
        details = () if failure.refused_by else explain.failed_nodes(engine, failure.pod)
        return ScheduleDetail(
            failed_message=words, node_failed_details=tuple(NodeFailedDetail(*d) for d in details)
        )


def _feasible(found: Sequence[tuple[Pod, str]]) -> ScheduleDetail:
    results = []
    for pod, node in found:
        namespace, _, name = pod.key.partition("/")
        results.append(FeasibleResult(namespace, name, pod.uid, node))
    return ScheduleDetail(schedulable=True, feasible_scheduling_result=tuple(results))


def _ttl_s(text: str) -> float:
    if not text:
        return _TTL_S
    try:
        return parse_duration(text) or _TTL_S
    except ProtocolError:
        return _TTL_S
