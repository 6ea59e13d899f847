"""What waiting pods are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from koord_scheduler.kube.scheduling.conditions import UNSCHEDULABLE, Conditions, Said
from koord_scheduler.kube.scheduling.turns import AT_ONCE, PER_S, Turns
from koord_scheduler.model.cluster.pods import Pod, PodClass
from tests.kube.worlds import until


class _Writes:
    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.goes = asyncio.Event()

    async def patch(self, _kind: Any, _name: str, body: Any, *_: Any, **__: Any) -> None:
        self.bodies.append(body)
        await self.goes.wait()


def _pod(uid: str) -> Pod:
    return Pod(key="default/p", uid=uid, cls=PodClass(number=0, namespace="default"))


def test_what_is_said_of_a_pod_that_went_is_said_again_of_its_namesake() -> None:
    async def story() -> None:
        writes: Any = _Writes()
        conditions = Conditions(writes)
        task = asyncio.create_task(conditions.run())
        try:
            said = Said(UNSCHEDULABLE, "no node")
            conditions.tell(_pod("1"), said)
            await until(lambda: len(writes.bodies) == 1)
            conditions.forget("default/p")
            writes.goes.set()
            await asyncio.sleep(0.05)
            conditions.tell(_pod("2"), said)
            await until(lambda: len(writes.bodies) == 2)
            assert writes.bodies[1]["metadata"]["uid"] == "2"
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(story())


class _Time:
    """A clock, and what is to be called at which time."""

    def __init__(self) -> None:
        self.now_s, self.calls = 100.0, list[tuple[float, Callable[[], None]]]()

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        self.calls.append((self.now_s + wait_s, call))

    def go_to(self, now_s: float) -> None:
        while due := [each for each in self.calls if each[0] <= now_s]:
            first = min(due, key=lambda each: each[0])
            self.calls.remove(first)
            self.now_s = first[0] + 1e-9
            first[1]()
        self.now_s = now_s


def test_a_namespace_writes_a_few_at_once_and_then_at_a_rate_whatever_waits() -> None:
    time, came = _Time(), list[str]()
    turns = Turns(came.append, time.later, lambda: time.now_s)
    evil = [f"evil/{i}" for i in range(1_000)]
    assert sum(map(turns.has, evil)) == AT_ONCE
    assert turns.has("good/0")
    assert len(time.calls) == 1  # one timer, however many wait
    for key in evil[AT_ONCE : AT_ONCE + 100]:
        turns.drop(key)  # gone: it takes nobody's turn
    time.go_to(time.now_s + 10.0)
    assert abs(len(came) - 10 * PER_S) <= 1
    assert came == evil[AT_ONCE + 100 :][: len(came)]
    assert all(map(turns.has, came)) and not turns.has(came[0])  # each turn once


def test_conditions_of_a_namespace_without_end_hold_up_no_other() -> None:
    async def story() -> None:
        writes: Any = _Writes()
        writes.goes.set()
        conditions, spoken = Conditions(writes, clock=lambda: 1.0), list[str]()
        conditions.spoken = lambda pod, message: spoken.append(pod.key)
        task = asyncio.create_task(conditions.run())
        try:
            said = Said(UNSCHEDULABLE, "no node")
            for i in range(1_000):
                cls = PodClass(number=0, namespace="evil")
                conditions.tell(Pod(key=f"evil/{i}", uid=f"{i}", cls=cls), said)
            conditions.tell(_pod("good"), said)
            await until(lambda: "default/p" in spoken and len(writes.bodies) == len(spoken))
            assert len(spoken) == AT_ONCE + 1
            conditions.tell(Pod(key="evil/999", uid="999", cls=cls), said._replace(nominated="n"))
            await until(lambda: "evil/999" in spoken)  # who has a node to come does not wait
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(story())
