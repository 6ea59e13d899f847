"""One part of the companion on a fake API server, for tests of controllers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from koord_scheduler.daemon.controller import Options, Part
from koord_scheduler.daemon.process import Companion
from koordlet.kube.credentials import Cluster
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.companion.accounts import as_account
from tests.fakekube import FakeKube
from tests.kube.worlds import World, fake_world

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
NODES = Kind("", "v1", "Node", "nodes", False, Object)
PODS = Kind("", "v1", "Pod", "pods", True, Object)


def definitions() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[tuple[World, FakeKube]]:
    async with fake_world(*definitions()) as made:
        yield made


@contextlib.asynccontextmanager
async def companion(
    world: World, *parts: Part, us: Cluster | None = None, **extra: object
) -> AsyncIterator[Companion]:
    """``us``: as whom it asks, if not as the test. ``extra``: what the command line would say to
    these parts."""
    options = Options(
        elect=False,
        metrics_address="127.0.0.1:0",
        health_address="127.0.0.1:0",
        requests_per_s=1000.0,
        requests_burst=1000,
        extra=extra,
    )
    with as_account(us or world.cluster, parts) as account:
        made = Companion(account, options, parts)
        task = asyncio.create_task(made.run())
        try:
            yield made
            if task.done():
                task.result()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def kubeconfig(path: Path, server: str, token: str = "") -> str:
    """Where it is, for a command line."""
    user = {"token": token} if token else {}
    tree = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(tree))
    return str(path)


def tree(fake: FakeKube, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
    """As it is on the server; empty where it is not."""
    for key, found in fake.store._objects.get(fake.resource(plural), {}).items():
        if key == (namespace, name):
            return found
    return {}


async def make(world: World, kind: Kind[Object], body: dict[str, Any], namespace: str = "") -> None:
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    await world.client.create(kind, {**head, **body}, namespace)


async def node(world: World, name: str, **changes: Any) -> None:
    """A node that is ready, with 10 CPUs."""
    meta = {"name": name, "labels": changes.pop("labels", {})}
    annotations = changes.pop("annotations", {})
    ready = "True" if changes.pop("ready", True) else "False"
    amounts = {"cpu": "10", "memory": "1000", **changes.pop("amounts", {})}
    body = {"metadata": {**meta, "annotations": annotations}, "spec": changes}
    await make(world, NODES, body)
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    await world.client.patch(NODES, name, {"status": status}, subresource="status")
