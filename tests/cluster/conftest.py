"""A machine in a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.joined import Joined, config, definitions, kubeconfig, running
from tests.daemon.conftest import make_world
from tests.daemon.world import World
from tests.fakekube import FakeKube, serving
from tests.kube.conftest import defined, plane, real

__all__ = ["defined", "make_world", "plane", "real"]

Join = Callable[..., AbstractAsyncContextManager[Joined]]


@pytest.fixture
def join(make_world: Callable[..., World], tmp_path: Path) -> Iterator[Join]:
    """``join(more)``: a machine whose configuration says ``more`` in its table ``[cluster]`` and
    after it; ``before`` furnishes machine and server before the daemon starts."""

    @asynccontextmanager
    async def joined(
        more: str = "", before: Callable[[World, FakeKube], None] = lambda world, kube: None
    ) -> AsyncIterator[Joined]:
        async with serving(*definitions()) as kube:
            world = make_world(config(kubeconfig(tmp_path, kube.url), more))
            before(world, kube)
            async with running(world, kube) as found:
                yield found

    yield joined
