"""Where a test of the room runs: on the fake server or on a real one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.errors import RefusedError
from tests.fakekube import FakeKube, serving
from tests.kube.kinds import CONFIG_MAPS, NAMESPACES

WITHIN_S = 20.0
_numbers = itertools.count()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.005)


class World:
    """A server with a namespace of the test's own. ``client`` is for the hands of the test, with no
    budget to speak of."""

    def __init__(self, cluster: Cluster, client: Client, namespace: str) -> None:
        self.cluster = cluster
        self.client = client
        self.namespace = namespace

    async def put(self, name: str, value: str) -> None:
        """ConfigMap ``name`` holds ``value``, whether it existed or not."""
        data = {"data": {"v": value}}
        try:
            await self.client.patch(CONFIG_MAPS, name, data, self.namespace)
        except RefusedError as error:
            if not error.missing:
                raise
            body = {"metadata": {"name": name}, **data}
            await self.client.create(CONFIG_MAPS, body, self.namespace)

    async def drop(self, name: str) -> None:
        await self.client.delete(CONFIG_MAPS, name, self.namespace)


OpenWorld = Callable[[], AbstractAsyncContextManager[World]]
"""What tests get that run on both."""


def _namespace() -> str:
    """Other workers and other runs have others."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@contextlib.asynccontextmanager
async def world_on(cluster: Cluster) -> AsyncIterator[World]:
    """With a new namespace there."""
    async with Client(cluster, per_second=1e6, burst=1000) as client:
        name = _namespace()
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        yield World(cluster, client, name)


@contextlib.asynccontextmanager
async def fake_world(*definitions: dict[str, Any]) -> AsyncIterator[tuple[World, FakeKube]]:
    """For tests that break what a real server does not break on demand."""
    async with serving(*definitions) as fake, world_on(Cluster(fake.url, "the test")) as world:
        yield world, fake
