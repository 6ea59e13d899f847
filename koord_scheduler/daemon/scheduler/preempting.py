"""Evictions that make room for a pod of higher priority."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from koord_scheduler.daemon.controller import SCHEDULER, Context
from koord_scheduler.kube.writes import NotLeadingError, perhaps_done
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.preemption.pods import Preemption
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.events import Subject
from koordlet.kube.kinds import PODS
from koordlet.kube.objects import Metadata
from koordlet.protocol.objects.times import instant

_log = structlog.get_logger()


class Evictions:
    """As kube-scheduler, it deletes the pods after it has said so in their condition
    DisruptionTarget; budgets were weighed when they were chosen. Each eviction is taken of the
    eviction ledger of the process, which is asked by `refuse` when victims are chosen. ``waits``:
    whether a pod still needs the room that is made for it."""

    def __init__(self, context: Context, waits: Callable[[Pod], bool]) -> None:
        self._context, self._waits = context, waits
        self.count = 0

    def refuse(self, pod: Pod, node: str) -> str | None:
        context = self._context
        return context.ledger.refusal(pod, context.wall(), node=node, preempts=True)

    async def preempt(self, found: Preemption) -> None:
        for victim in found.victims:
            node = found.elsewhere.get(victim.key, found.node)
            message = f"Preempted by pod {found.pod.key} on node {node}"
            reason = "PreemptionByScheduler"
            await self.evict(victim, node, reason, message, lambda: self._waits(found.pod))

    async def evict(
        self,
        victim: Pod,
        node: str,
        reason: str,
        message: str,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Whether the pod goes. ``wanted`` is asked before each write. Raises nothing: who asked
        tries again in its next round."""
        if not wanted():
            return False
        ledger, now_s = self._context.ledger, self._context.wall()
        taken = ledger.take(victim, now_s, role=SCHEDULER, node=node, preempts=True)
        if isinstance(taken, str):
            _log.info("an eviction was refused", pod=victim.key, node=node, why=taken)
            return False
        namespace, _, name = victim.key.partition("/")
        goes = perhaps = False
        try:
            there = await self._say(victim, reason, message)
            if wanted():
                perhaps = True
                await self._context.writes.delete(PODS, name, namespace, uid=victim.uid)
                goes = True
            else:
                await self._take_back(there, reason)
        except (KubeError, CredentialsError, NotLeadingError) as error:
            perhaps = perhaps and perhaps_done(error)
            gone = isinstance(error, RefusedError) and error.gone
            if not gone:
                _log.warning("an eviction failed", pod=victim.key, error=str(error))
        finally:
            if not perhaps:
                ledger.give_back(taken)
        if not goes:
            return False
        self.count += 1
        subject = Subject("v1", "Pod", namespace, name, victim.uid)
        self._context.events.tell(subject, "Normal", "Preempted", message)
        return True

    async def _say(self, victim: Pod, reason: str, message: str) -> Metadata:
        """Return the head of the pod that has the condition."""
        namespace, _, name = victim.key.partition("/")
        body = {"metadata": {"uid": victim.uid}, "status": self._status(reason, message, "True")}
        stored = await self._context.writes.patch(
            PODS, name, body, namespace, subresource="status", strategic=True
        )
        return stored.metadata

    async def _take_back(self, there: Metadata, reason: str) -> None:
        """Say that the pod stays, of the version that was told to go: a request that is held up on
        its way must not unsay what was said later."""
        status = self._status(reason, "the room is not needed any more", "False")
        await self._context.writes.set_status(PODS, there, status, strategic=True)

    def _status(self, reason: str, message: str, value: str) -> dict[str, Any]:
        condition = {
            "type": "DisruptionTarget",
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": instant(self._context.wall()),
        }
        return {"conditions": [condition]}
