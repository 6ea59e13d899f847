"""Evictions that make room for a pod of higher priority."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from koord_scheduler.daemon.controller import SCHEDULER, Context
from koord_scheduler.kube.scheduling.shapes import PODS
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.preemption import Preemption
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.events import Subject
from koordlet.protocol.objects.times import instant

_log = structlog.get_logger()
Refuse = Callable[[Pod, str], str | None]


class Evictions:
    """``refuse`` is the eviction ledger of the process: asked before each, and told by ``done``.

    As kube-scheduler, it deletes the pods after it has said so in their condition DisruptionTarget;
    budgets were weighed when they were chosen."""

    def __init__(self, context: Context) -> None:
        self._context = context
        ledger, wall = context.ledger, context.wall
        self.refuse: Refuse = lambda pod, node: ledger.refusal(
            pod, wall(), node=node, preempts=True
        )
        self.done: Callable[[Pod, str], None] = lambda pod, node: ledger.note(
            pod, wall(), role=SCHEDULER, node=node
        )
        self.count = 0

    async def preempt(self, found: Preemption) -> None:
        for victim in found.victims:
            message = f"Preempted by pod {found.pod.key} on node {found.node}"
            await self.evict(victim, found.node, "PreemptionByScheduler", message)

    async def evict(self, victim: Pod, node: str, reason: str, message: str) -> bool:
        """Whether the pod goes. Raises nothing: who asked tries again in its next round."""
        refusal = self.refuse(victim, node)
        if refusal is not None:
            _log.info("an eviction was refused", pod=victim.key, node=node, why=refusal)
            return False
        namespace, _, name = victim.key.partition("/")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": instant(self._context.wall()),
        }
        writes = self._context.writes
        body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}

        async def says() -> None:
            await writes.patch(PODS, name, body, namespace, subresource="status", strategic=True)

        async def goes() -> None:
            await writes.delete(PODS, name, namespace, uid=victim.uid)

        if not await _sent(victim, says) or not await _sent(victim, goes):
            return False
        self.count += 1
        self.done(victim, node)
        subject = Subject("v1", "Pod", namespace, name, victim.uid)
        self._context.events.tell(subject, "Normal", "Preempted", message)
        return True


async def _sent(victim: Pod, write: Callable[[], Awaitable[None]]) -> bool:
    try:
        await write()
    except RefusedError as error:
        if not error.missing and not error.conflict:
            _log.warning("an eviction failed", pod=victim.key, error=str(error))
        return False
    except (KubeError, CredentialsError, NotLeadingError) as error:
        _log.warning("an eviction failed", pod=victim.key, error=str(error))
        return False
    return True
