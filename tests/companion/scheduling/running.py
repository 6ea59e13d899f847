"""A scheduler on the fake API server, and pods for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from koord_scheduler.daemon.parts import chosen
from koord_scheduler.daemon.process import Companion
from koord_scheduler.daemon.scheduler.part import Role
from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from tests.companion import running
from tests.companion.running import PODS, make, node, tree
from tests.fakekube import FakeKube
from tests.kube.worlds import World

WITHIN_S = 60.0
NAME = "koord-scheduler"
Tree = dict[str, Any]
__all__ = ["NAME", "PODS", "WITHIN_S", "Tree", "make", "node", "tree"]


def on_fake(story: Callable[[World, FakeKube], Awaitable[None]]) -> Callable[[], None]:
    """A test of a story on a fake API server of its own."""

    async def told() -> None:
        async with running.cluster() as (world, fake):
            await story(world, fake)

    def test() -> None:
        asyncio.run(told())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@contextlib.asynccontextmanager
async def scheduling(world: World, **extra: object) -> AsyncIterator[tuple[Companion, Scheduler]]:
    """The whole role; ``extra`` as the command line would have it."""
    async with running.companion(world, *chosen(["scheduler"], ["*"]), **extra) as made:
        yield made, scheduler_of(made)


def scheduler_of(companion: Companion) -> Scheduler:
    role = next(each for part, each in companion.controllers if part.name == "scheduler")
    assert isinstance(role, Role)
    return role.scheduler


def pod_body(name: str, cpu: str = "1", memory: str = "10", **changes: Any) -> Tree:
    """Of the scheduler, which asks for this much. ``labels``, ``annotations``, ``owner`` go to its
    metadata, the rest to its spec."""
    meta: Tree = {"name": name, "namespace": "default"}
    for each in ("labels", "annotations"):
        if each in changes:
            meta[each] = changes.pop(each)
    if owner := changes.pop("owner", None):
        meta["ownerReferences"] = [owner]
    requests = {"cpu": cpu, "memory": memory, **changes.pop("requests", {})}
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    container.update(changes.pop("container", {}))
    return {"metadata": meta, "spec": {"schedulerName": NAME, "containers": [container], **changes}}


async def pod(world: World, name: str, cpu: str = "1", memory: str = "10", **changes: Any) -> None:
    status = changes.pop("status", {})
    await make(world, PODS, pod_body(name, cpu, memory, **changes), "default")
    if status:
        await world.client.patch(PODS, name, {"status": status}, "default", subresource="status")


def node_of(fake: FakeKube, name: str) -> str:
    return str(tree(fake, "pods", name, "default").get("spec", {}).get("nodeName", ""))


def condition(fake: FakeKube, name: str) -> Tree:
    """PodScheduled, empty where it has none."""
    conditions: Iterable[Tree] = (
        tree(fake, "pods", name, "default").get("status", {}).get("conditions", [])
    )
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.005)
