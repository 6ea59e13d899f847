"""The scheduler's role on the fake API server."""

from __future__ import annotations

from tests.companion.scheduling.running import (
    condition,
    node,
    node_of,
    on_fake,
    pod,
    scheduling,
    until,
)
from tests.fakekube import FakeKube
from tests.kube.worlds import World

TWO = {"cpu": "2", "memory": "1000", "pods": "10"}


@on_fake
async def test_binds_pods_where_there_is_room(world: World, fake: FakeKube) -> None:
    for name in ("a", "b"):
        await node(world, name, amounts=TWO)
    names = [f"p{number}" for number in range(5)]
    async with scheduling(world):
        for name in names:
            await pod(world, name)
        await until(lambda: sum(bool(node_of(fake, name)) for name in names) == 4)
        left = next(name for name in names if not node_of(fake, name))
        await until(lambda: condition(fake, left))
        told = condition(fake, left)
        assert (told["status"], told["reason"]) == ("False", "Unschedulable")
        assert told["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
        await node(world, "c", amounts=TWO)
        await until(lambda: node_of(fake, left) == "c")
