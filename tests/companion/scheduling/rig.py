"""A scheduler on the fake API server, and the hands of who uses the cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from koord_scheduler.daemon.parts import chosen
from koord_scheduler.daemon.process import Companion
from koord_scheduler.daemon.scheduler.part import Role
from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koordlet.kube.client import Client
from koordlet.kube.kinds import Kind
from tests.companion.accounts import as_account
from tests.companion.daemon.cluster import EVENTS, PODS, Here, Tree, Whole, fake_here
from tests.fakekube import FakeKube
from tools.rbac import NAMESPACE

NODES: Kind[Whole] = Kind("", "v1", "Node", "nodes", False, Whole)
SPACE = "default"


class Rig:
    def __init__(self, here: Here, fake: FakeKube) -> None:
        self.here, self.fake = here, fake
        self.client: Client = here.client

    async def node(self, name: str, cpu: str = "4", **more: Any) -> None:
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        body = {
            "metadata": {"name": name, "labels": more.pop("labels", {})},
            "spec": more,
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", **body})
        status = {"status": body["status"]}
        await self.client.patch(NODES, name, status, subresource="status")

    async def pod(
        self,
        name: str,
        cpu: str = "1",
        *,
        priority: int = 0,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        scheduler: str = "koord-scheduler",
        **spec: Any,
    ) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": SPACE,
                "labels": labels or {},
                "annotations": annotations or {},
            },
            "spec": {
                "schedulerName": scheduler,
                "priority": priority,
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
                    }
                ],
                **spec,
            },
            "status": {"phase": "Pending"},
        }
        await self.client.create(PODS, body, SPACE)

    async def get(self, name: str) -> Whole:
        return await self.client.get(PODS, name, SPACE)

    async def nodes_of(self) -> dict[str, str]:
        page = await self.client.page(PODS, namespace=SPACE)
        items = [msgspec.json.decode(raw, type=Whole) for raw in page.items or ()]
        return {each.metadata.name: each.spec.get("nodeName", "") for each in items}

    async def until_bound(self, *names: str, within_s: float = 60.0) -> dict[str, str]:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    found = await self.nodes_of()
                    if all(found.get(name) for name in names):
                        return found
                    await asyncio.sleep(0.01)
        except TimeoutError:
            said = {name: (await self.said(name)).get("message", "") for name in names}
            text = f"not bound within {within_s} s; their conditions: {said}"
            raise AssertionError(text) from None

    async def said(self, name: str) -> Tree:
        """The condition PodScheduled, empty without one."""
        found = await self.get(name)
        conditions: list[Tree] = found.status.get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    async def until_said(self, name: str, text: str) -> Tree:
        async with asyncio.timeout(60):
            while True:
                found = await self.said(name)
                if text in found.get("message", ""):
                    return found
                await asyncio.sleep(0.01)

    async def events(self) -> list[Whole]:
        page = await self.client.page(EVENTS, namespace=SPACE)
        return [msgspec.json.decode(raw, type=Whole) for raw in page.items or ()]


Story = Callable[[Rig], Awaitable[None]]


def told(story: Story) -> None:
    """On a fake server with our custom resources."""

    async def tell() -> None:
        async with fake_here() as (here, fake):
            await story(Rig(here, fake))

    asyncio.run(tell())


@contextlib.asynccontextmanager
async def scheduling(here: Here, **options: Any) -> AsyncIterator[Companion]:
    """It runs, and leads. ``us``: as whom it asks a real server, if not as the test."""
    parts = chosen(options.pop("roles", ("scheduler",)), options.pop("only", ("*",)))
    # Where its role may write.
    spaces = {"config_namespace": NAMESPACE, "lease_namespace": NAMESPACE}
    with as_account(options.pop("us", None) or here.cluster, parts) as account:
        made = Companion(account, here.options(**spaces, **options), parts)
        task = asyncio.create_task(made.run())
        try:
            async with asyncio.timeout(60):
                while not made.leads():
                    if task.done():
                        task.result()
                    await asyncio.sleep(0.005)
            yield made
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def scheduler_of(made: Companion) -> Scheduler:
    role = next(each for part, each in made.controllers if part.name == "scheduler")
    assert isinstance(role, Role)
    return role.scheduler
