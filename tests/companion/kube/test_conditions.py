"""What waiting pods are told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from koord_scheduler.kube.scheduling.conditions import UNSCHEDULABLE, Conditions, Said
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
