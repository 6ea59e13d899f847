"""Answers ScheduleExplanations while this process leads (docs/reference/central.md 9.6).

The reference has the type and nobody who answers. An answer is made anew where the question or the
cluster changed, and written where it differs, or once a minute.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec
import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.kube.explanation_shapes import EXPLANATIONS, Explanation
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.kube.scheduling.shapes import CLASSES, VOLUMES
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.model import pod_reading, pod_wire
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.reading import instant_s
from koord_scheduler.plan import answers
from koord_scheduler.plan.evaluator import PluginError
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Key
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.keys import QUESTIONED_OBJECT_KEY
from koordlet.protocol.objects.explanation import TOPOLOGY_KEY, DetailedExplanation
from koordlet.protocol.objects.times import instant

EVERY_S = 2.0
REPEAT_S = 60.0
"""An answer that stays as it is says so this often."""
DEFAULT_TTL_S = 86_400.0
MOST_A_ROUND = 20
"""Each may cost as much as a decision with preemption; others come in the next round."""
_log = structlog.get_logger()


class _Given(NamedTuple):
    """``version``: of the cluster that the answer was made with."""

    answer: dict[str, Any]
    version: int
    written_s: float
    question: object


class Explanations:
    def __init__(self, context: Context, scheduler: Scheduler) -> None:
        self._context, self._scheduler = context, scheduler
        self._watched = context.watches.of(EXPLANATIONS, optional=True)
        self._given: dict[Key, _Given] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        self._given.clear()
        while True:
            await asyncio.sleep(EVERY_S)
            await self.round()

    async def round(self) -> None:
        objects = self._watched.objects
        for key in self._given.keys() - objects.keys():
            del self._given[key]
        # Those answered longest ago come first, so that nobody waits for ever.
        last = {key: each.written_s for key, each in self._given.items()}
        order = sorted(objects, key=lambda key: (last.get(key, 0.0), key))
        asked = 0
        for key in order:
            item = objects.get(key)
            if item is None or await self._expired(key, item) or not self._due(key, item):
                continue
            await self._answer(key, item)
            asked += 1
            if asked >= MOST_A_ROUND:
                return

    async def _expired(self, key: Key, item: Explanation) -> bool:
        created_s = instant_s(item.metadata.creation_timestamp)
        if created_s is None or self._context.wall() < created_s + _ttl_s(item.spec.ttl):
            return False
        await self._sent(
            self._context.writes.delete(
                EXPLANATIONS, key.name, key.namespace, uid=item.metadata.uid
            )
        )
        return True

    def _due(self, key: Key, item: Explanation) -> bool:
        given = self._given.get(key)
        if given is None or given.question != _question(item):
            return True
        aged = self._context.wall() - given.written_s >= REPEAT_S
        return aged or given.version != self._scheduler.cluster.version

    async def _answer(self, key: Key, item: Explanation) -> None:
        now_s, version = self._context.wall(), self._scheduler.cluster.version
        try:
            answer = _status(answer_of(self._scheduler, item))
        except PluginError as error:
            answer = _status((DetailedExplanation(failed_message=str(error)),))
        except UNFORESEEN as error:
            _log.error("a defect: please report it", explanation=key.name, exc_info=error)
            answer = _status((DetailedExplanation(failed_message=repr(error)[:1024]),))
        given = self._given.get(key)
        if given is not None and given.answer == answer and now_s - given.written_s < REPEAT_S:
            self._given[key] = given._replace(version=version, question=_question(item))
            return
        # Of a custom resource's status the server compares the version, and never the uid.
        body = {
            "metadata": {"resourceVersion": item.metadata.resource_version},
            "status": {**answer, "lastUpdateTime": instant(now_s)},
        }
        patch = self._context.writes.patch(
            EXPLANATIONS, key.name, body, key.namespace, subresource="status"
        )
        if await self._sent(patch):
            self._given[key] = _Given(answer, version, now_s, _question(item))

    async def _sent(self, write: Any) -> bool:
        try:
            await write
        except RefusedError as error:
            if not error.gone:
                _log.warning("a ScheduleExplanation was not written", error=str(error))
            return False
        except (KubeError, CredentialsError, NotLeadingError) as error:
            _log.debug("a ScheduleExplanation waits", error=str(error))
            return False
        return True


def answer_of(scheduler: Scheduler, item: Explanation) -> tuple[DetailedExplanation, ...]:
    """For all nodes; where the object has the label for a topology, also for each domain of it.
    Raises PluginError."""
    labels, spec = item.metadata.labels, item.spec
    key = spec.question_object_key or labels.get(QUESTIONED_OBJECT_KEY.name, "")
    pod = _pod(scheduler, key, spec.question_object_template)
    if pod is None:
        return (_of_group(scheduler, key),)
    engine = scheduler.parts.engines.get(pod.scheduler)
    if engine is None:
        words = f"the pod asks for the scheduler {pod.scheduler!r}, not for this one"
        return (DetailedExplanation(failed_message=words),)
    preemptor = scheduler.parts.preemptors.get(pod.scheduler)
    found = [answers.of_pod(engine, pod, preemptor, scheduler.feed.budgets())]
    if topology := labels.get(TOPOLOGY_KEY, ""):
        for domain, rows in answers.domains(scheduler.cluster, topology).items():
            found.append(answers.of_pod(engine, pod, rows=rows, domain=domain))
    return tuple(found)


def _pod(scheduler: Scheduler, key: str, template: dict[str, Any] | None) -> Pod | None:
    if key:
        item = scheduler.feed.pod(key) if "/" in key else None
        return item.pod if item is not None else None
    if template is None:
        return None
    try:
        wire = msgspec.convert(template, pod_wire.SchedulingPod)
    except msgspec.ValidationError:
        return None
    return pod_reading.pod_of(wire, CLASSES, VOLUMES.of)


def _of_group(scheduler: Scheduler, key: str) -> DetailedExplanation:
    book = scheduler.parts.gangs
    group = key
    if book is not None and key in book:
        group = book.group_of(key)
    pending = book.pending(group) if book is not None and group else []
    if book is None or not pending:
        words = f"no pod and no gang that waits is called {key[:256]!r}: write namespace/name"
        return DetailedExplanation(failed_message=words)
    engine = scheduler.parts.engines.get(pending[0].scheduler, scheduler.parts.first)
    refuse = scheduler.evictions.refuse
    return answers.of_group(engine, book, group, scheduler.network, refuse)


def _status(details: tuple[DetailedExplanation, ...]) -> dict[str, Any]:
    """The first one is about all nodes. A merge patch leaves alone what it does not name, so all
    is named."""
    first = details[0]
    return {
        "schedulable": first.schedulable,
        "schedulableAfterPreemption": first.schedulable_after_preemption,
        "failedMessage": first.failed_message,
        "detailedExplanation": msgspec.to_builtins(details),
    }


def _question(item: Explanation) -> object:
    labels = item.metadata.labels
    return (item.metadata.uid, item.spec, labels.get(TOPOLOGY_KEY))


def _ttl_s(text: str) -> float:
    try:
        return parse_duration(text) if text else DEFAULT_TTL_S
    except ProtocolError:
        return DEFAULT_TTL_S
