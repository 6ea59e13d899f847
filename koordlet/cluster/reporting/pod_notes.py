"""Tells pods what was done to them, where their users look: conditions and events."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from enum import Enum, auto
from typing import Literal, NamedTuple

import structlog

from koordlet.actuator.evict.executor import EvictOutcome, EvictResult
from koordlet.cluster.member import Member
from koordlet.cluster.reporting import conditions
from koordlet.cluster.reporting.conditions import Ledger, Suppression, Told
from koordlet.cluster.reporting.lent import Lent
from koordlet.cluster.reporting.trigger import Pace
from koordlet.cluster.shapes import PODS
from koordlet.decision import metrics as k
from koordlet.decision.conflicts import Conflict, conflicts
from koordlet.decision.metrics import Aggregate
from koordlet.decision.plan import VictimKind
from koordlet.decision.snapshot import Pod
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.events import Events, Subject
from koordlet.protocol.objects.times import instant
from koordlet.state.snapshot import TsdbView

log = structlog.get_logger()

COMPONENT = "koordlet-qosManager"
"""As the reference calls itself in events."""
LOOK_S = 5.0
WINDOW_S = 15.0
PER_SECOND, BURST = 0.2, 10
"""Conditions written. What is over that is written later, if it still holds then. When thousands of
nodes become busy together, the API server has other work."""
KEPT = 200
"""Evictions not yet told; the oldest are dropped."""
PROBLEM = "pod conditions"

_TYPES = frozenset({conditions.SUPPRESSED, conditions.REFUSED, conditions.CONFLICT})


class _Answer(Enum):
    """``GONE``: there is no such pod any more, another one has its name, or the server does not
    take it: nothing is told."""

    WRITTEN = auto()
    GONE = auto()
    LATER = auto()


class _Eviction(NamedTuple):
    subject: Subject
    result: EvictResult
    told: Told
    message: str


class PodNotes:
    """``heard`` is told of each eviction. ``written``: conditions; ``dropped``: evictions that
    were too many to be told."""

    __name__ = "pod conditions"

    def __init__(self, lent: Lent) -> None:
        self.written = self.dropped = 0
        self.suppression = Suppression()
        self.ledger = Ledger()
        self._lent = lent
        self._host = lent.around.host
        self._pace = Pace(PER_SECOND, BURST, self._host.monotonic())
        self._evictions: deque[_Eviction] = deque(maxlen=KEPT)
        self._wake = asyncio.Event()
        self._learned: set[str] = set()
        self._said: tuple[str, ...] = ()

    def heard(self, outcome: EvictOutcome) -> None:
        begun = outcome.begun
        if begun.victim.kind is not VictimKind.POD or not begun.namespace:
            return
        if outcome.result is EvictResult.WOULD_EVICT:
            return
        if len(self._evictions) == KEPT:
            self.dropped += 1
        text = f"{begun.why.text}; {outcome.text}" if outcome.text else begun.why.text
        self._evictions.append(
            _Eviction(
                Subject("v1", "Pod", begun.namespace, begun.name, begun.victim.name),
                outcome.result,
                conditions.evicted(begun.feature, text),
                f"evict Pod:{begun.namespace}/{begun.name}, reason: {begun.feature}, "
                f"message: {text}",
            )
        )
        self._wake.set()

    async def __call__(self, member: Member) -> None:
        """Until it is cancelled."""
        assert member.client is not None
        events = Events(member.client, COMPONENT, member.options.node)
        async with asyncio.TaskGroup() as group:
            group.create_task(events.run())
            while True:
                self._learn(member)
                self._see()
                await self._tell(member.client, events)
                await self._rest()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S * (0.75 + 0.5 * random.random())):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _learn(self, member: Member) -> None:
        """Which conditions an earlier run has set, as the API server tells of a pod the first
        time that it does."""
        if member.pods is None:
            return
        here = set()
        for pod in member.pods.objects.values():
            uid = pod.metadata.uid
            here.add(uid)
            if uid in self._learned:
                continue
            set_ = [each.type for each in pod.status.conditions if each.status == "True"]
            self.ledger.learn(uid, _TYPES.intersection(set_))
        self._learned = here

    def _see(self) -> None:
        view = TsdbView(self._lent.around.store, int(self._host.time() * 1000))
        limit, request = (
            view.read(k.NODE_BE, ("cpu", which), window_s=WINDOW_S, aggregate=Aggregate.AVG)
            for which in ("real-limit", "request")
        )
        self.suppression.see(
            self._host.monotonic(),
            limit.value if limit is not None else None,
            request.value if request is not None else None,
        )

    async def _tell(self, client: Client, events: Events) -> None:
        is_heard = True
        while self._evictions:
            each = self._evictions.popleft()
            if each.result is not EvictResult.BEGUN:
                self._tell_end(events, each)
            elif is_heard and self._pace.take(self._host.monotonic()):
                answer = await self._set(client, each.subject, each.told)
                is_heard = answer is not _Answer.LATER
        if not is_heard:
            return
        pods = self._lent.around.state.pods()
        self.ledger.forget_others(pod.uid for pod in pods)
        found = self._conflicts(pods)
        for due in self.ledger.due(pods, self.suppression.told, found):
            if not self._pace.take(self._host.monotonic()):
                break
            subject = Subject("v1", "Pod", due.pod.namespace, due.pod.name, due.pod.uid)
            answer = await self._set(client, subject, due.told, turns=due.turns)
            if answer is _Answer.LATER:
                break
            self.ledger.done(due)
            if answer is _Answer.WRITTEN:
                warns = due.told.warns and due.told.status
                kind: Literal["Normal", "Warning"] = "Warning" if warns else "Normal"
                events.tell(subject, kind, due.told.reason, due.told.message)

    def _conflicts(self, pods: tuple[Pod, ...]) -> dict[str, tuple[Conflict, ...]]:
        """By uid. The log has them too, whenever they change."""
        found: dict[str, tuple[Conflict, ...]] = {}
        for each in conflicts(pods):
            found[each.pod.uid] = (*found.get(each.pod.uid, ()), each)
        said = tuple(
            f"{each.pod.title} shares {each.things} with {other.title}"
            for of_pod in found.values()
            for each in of_pod
            for other in each.others[: conditions.OTHERS_NAMED]
        )[:KEPT]
        if said and said != self._said:
            log.warning("what was given to a pod is held by another", conflicts=said)
        self._said = said
        return found

    def _tell_end(self, events: Events, each: _Eviction) -> None:
        done = each.result is EvictResult.EVICTED
        events.tell(
            each.subject, "Warning", "evictPodSuccess" if done else "evictPodFail", each.message
        )

    async def _set(
        self, client: Client, subject: Subject, told: Told, *, turns: bool = True
    ) -> _Answer:
        """``LATER`` holds for all others too."""
        now = instant(self._host.time())
        condition = {
            "type": told.type,
            "status": "True" if told.status else "False",
            "reason": told.reason,
            "message": told.message,
            "lastProbeTime": now,
            **({"lastTransitionTime": now} if turns else {}),
        }
        body = {"metadata": {"uid": subject.uid}, "status": {"conditions": [condition]}}
        try:
            await client.patch(
                PODS,
                subject.name,
                body,
                subject.namespace,
                subresource="status",
                strategic=True,
            )
        except RefusedError as error:
            if error.gone:
                return _Answer.GONE
            self._say(str(error))
            # One that this server finds invalid must not keep the others from being told.
            return _Answer.GONE if error.status in (400, 422) else _Answer.LATER
        except (KubeError, CredentialsError) as error:
            self._say(str(error))
            return _Answer.LATER
        self.written += 1
        self._lent.around.problems.pop(PROBLEM, None)
        return _Answer.WRITTEN

    def _say(self, why: str) -> None:
        problems = self._lent.around.problems
        if problems.get(PROBLEM) != why:
            log.warning("conditions of pods are not written", why=why)
        problems[PROBLEM] = why
