"""The condition PodScheduled of pods that wait, written where it changed, not too often, and by
turns of namespaces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from koord_scheduler.kube.queue import Queue
from koord_scheduler.kube.scheduling.turns import Turns
from koord_scheduler.kube.writes import NotLeadingError, Writes
from koord_scheduler.model.cluster.pods import Pod
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import PODS
from koordlet.protocol.objects.times import instant

UNSCHEDULABLE = "Unschedulable"
GATED = "SchedulingGated"
EVERY_S = 10.0
"""Between two writes to one pod. The first, and one with a nomination, goes out at once."""
WORKERS = 8


class Said(NamedTuple):
    """``nominated`` None: as it is."""

    reason: str
    message: str
    nominated: str | None = None


class _Wanted(NamedTuple):
    pod: Pod
    said: Said


class Conditions:
    """``run`` writes while this process leads."""

    def __init__(
        self,
        writes: Writes,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._writes, self._every_s, self._clock, self._wall = writes, every_s, clock, wall
        self._known: dict[str, tuple[str, str]] = {}
        """Key of a pod -> reason and message that stand there."""
        self._wanted: dict[str, _Wanted] = {}
        self._written_s: dict[str, float] = {}
        self._on_way: dict[str, _Wanted] = {}
        """What is being written, until it is forgotten."""
        self._queue = self._new_queue()
        self._turns = self._new_turns()
        self.spoken: Callable[[Pod, str], None] = lambda pod, message: None
        """Hears what is about to be written."""
        self.of_reservation: Callable[[Pod, str], Awaitable[bool]] | None = None
        """Writes what is to be said of a reserve pod, which is no object of its own; whether it
        stands there."""

    def _new_queue(self) -> Queue:
        return Queue(
            self._write,
            workers=WORKERS,
            retry=lambda error: self._every_s if isinstance(error, NotLeadingError) else None,
        )

    def _new_turns(self) -> Turns:
        return Turns(
            lambda key: self._queue.add(key),
            lambda wait_s, call: asyncio.get_running_loop().call_later(wait_s, call),
            self._clock,
        )

    def learn(self, key: str, reason: str, message: str) -> None:
        """What the watch shows."""
        if reason:
            self._known[key] = (reason, message)

    def told(self, key: str) -> bool:
        """Whether something stands there, or will soon."""
        return key in self._known or key in self._wanted or key in self._on_way

    def tell(self, pod: Pod, said: Said) -> bool:
        """Return whether that stands there already, so that nothing is written."""
        if said.nominated is None and self._known.get(pod.key) == (said.reason, said.message):
            self._wanted.pop(pod.key, None)
            return True
        before = self._wanted.get(pod.key)
        if before is not None and said.nominated is None and before.pod.uid == pod.uid:
            said = said._replace(nominated=before.said.nominated)
        self._wanted[pod.key] = _Wanted(pod, said)
        due_s = self._written_s.get(pod.key, float("-inf")) + self._every_s - self._clock()
        if said.nominated is not None or due_s <= 0.0:
            self._queue.add(pod.key)
        else:
            self._queue.add_after(pod.key, due_s)
        return False

    def forget(self, key: str) -> None:
        """The pod has a node or is gone."""
        for each in (self._known, self._wanted, self._written_s, self._on_way):
            each.pop(key, None)
        self._queue.drop(key)
        self._turns.drop(key)

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._queue.run()

    def stop(self) -> None:
        """Another process leads: what was not written is not ours to write any more."""
        self._wanted.clear()
        self._written_s.clear()
        self._queue = self._new_queue()
        self._turns = self._new_turns()

    async def _write(self, key: str) -> float | None:
        wanted = self._wanted.get(key)
        if wanted is None or (wanted.said.nominated is None and not self._turns.has(key)):
            return None
        del self._wanted[key]
        self._on_way[key] = wanted
        pod, said = wanted
        self.spoken(pod, said.message)
        if pod.holds:
            if self.of_reservation is None or await self.of_reservation(pod, said.message):
                self._is_written(key, wanted)
            return None
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": said.reason,
            "message": said.message,
        }
        if self._known.get(key, ("", ""))[0] == "":
            condition["lastTransitionTime"] = instant(self._wall())
        status: dict[str, Any] = {"conditions": [condition]}
        if said.nominated is not None:
            status["nominatedNodeName"] = said.nominated or None
        body = {"metadata": {"uid": pod.uid}, "status": status}
        namespace, _, name = key.partition("/")
        try:
            await self._writes.patch(
                PODS, name, body, namespace, subresource="status", strategic=True
            )
        except RefusedError as error:
            if error.gone:
                return None
            self._is_wanted(key, wanted)
            raise
        except Exception:
            self._is_wanted(key, wanted)
            raise
        self._is_written(key, wanted)
        return None

    def _is_wanted(self, key: str, wanted: _Wanted) -> None:
        """Still, unless the pod is gone."""
        if self._on_way.pop(key, None) is wanted:
            self._wanted.setdefault(key, wanted)

    def _is_written(self, key: str, wanted: _Wanted) -> None:
        """A pod that is gone says nothing of the next one by its name."""
        if self._on_way.pop(key, None) is wanted:
            self._known[key] = (wanted.said.reason, wanted.said.message)
            self._written_s[key] = self._clock()
