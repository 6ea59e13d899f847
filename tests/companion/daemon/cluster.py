"""A cluster for tests of the controllers: the fake server or a real one, and a manager on it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from koord_scheduler.daemon.controller import Options
from koord_scheduler.daemon.parts import chosen
from koord_scheduler.daemon.process import Companion
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.times import instant
from tests.fakekube import FakeKube, serving

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
CONFIG = "slo-controller-config"
WITHIN_S = 60.0
_numbers = itertools.count()

Tree = dict[str, Any]


class Whole(Object, frozen=True):
    """An object with all that tests look at."""

    spec: Tree = msgspec.field(default_factory=dict)
    status: Tree = msgspec.field(default_factory=dict)
    zones: list[Tree] = msgspec.field(default_factory=list)
    involved_object: Tree = msgspec.field(default_factory=dict)
    reason: str = ""
    message: str = ""


def _kind(group: str, name: str, plural: str, namespaced: bool = False) -> Kind[Whole]:
    return Kind(group, "v1" if group == "" else "v1alpha1", name, plural, namespaced, Whole)


NODES = _kind("", "Node", "nodes")
PODS = _kind("", "Pod", "pods", True)
MAPS = _kind("", "ConfigMap", "configmaps", True)
EVENTS = _kind("", "Event", "events", True)
NAMESPACES = _kind("", "Namespace", "namespaces")
METRICS = _kind("slo.koordinator.sh", "NodeMetric", "nodemetrics")
SLOS = _kind("slo.koordinator.sh", "NodeSLO", "nodeslos")
DEVICES = _kind("scheduling.koordinator.sh", "Device", "devices")
TOPOLOGIES = _kind("topology.node.k8s.io", "NodeResourceTopology", "noderesourcetopologies")

ON = {"enable": True, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}


class Here:
    """``namespace`` has the ConfigMap and the lease; ``client`` is the hands of the test."""

    def __init__(self, cluster: Cluster, client: Client, namespace: str) -> None:
        self.cluster, self.client, self.namespace = cluster, client, namespace
        self.name = f"node-{namespace}"
        """Of the node of this test."""
        self.made: list[tuple[Kind[Whole], str]] = []

    def options(self, **more: Any) -> Options:
        base = Options(
            config_namespace=self.namespace,
            lease_namespace=self.namespace,
            metrics_address="127.0.0.1:0",
            health_address="127.0.0.1:0",
            requests_per_s=1000.0,
            requests_burst=1000,
        )
        return replace(base, **more)

    async def configure(self, colocation: Tree | None = None, **sections: str) -> None:
        """The ConfigMap; a key of ``sections`` has _ for -."""
        data = {key.replace("_", "-"): text for key, text in sections.items()}
        if colocation is not None:
            data["colocation-config"] = json.dumps(colocation)
        await self.put(MAPS, CONFIG, {"data": data}, self.namespace)

    async def put(self, kind: Kind[Whole], name: str, body: Tree, namespace: str = "") -> None:
        """Made, or merged into what is there, with its status."""
        try:
            await self.client.patch(kind, name, body, namespace)
        except RefusedError as error:
            if not error.missing:
                raise
            meta = {**body.get("metadata", {}), "name": name}
            head = {"apiVersion": kind.api_version, "kind": kind.name}
            await self.client.create(kind, {**head, **body, "metadata": meta}, namespace)
            self.made.append((kind, name))
        if "status" in body:
            status = {"status": body["status"]}
            await self.client.patch(kind, name, status, namespace, subresource="status")

    async def node(self, cpu: str = "100", memory: str = "120G", **meta: Any) -> None:
        amounts = {"cpu": cpu, "memory": memory}
        status = {"capacity": amounts, "allocatable": amounts}
        await self.put(NODES, self.name, {"metadata": meta, "status": status})

    async def report(
        self, *, pods: list[Tree] | None = None, age_s: float = 0.0, system: str = "7"
    ) -> None:
        """A NodeMetric's status; usage of the node is that of fixture F of
        docs/reference/central.md 1.4."""
        status = {
            "updateTime": instant(time.time() - age_s),
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": "50", "memory": "55G"}},
                "systemUsage": {"resources": {"cpu": system, "memory": "12G"}},
            },
            "podsMetric": pods or [],
        }
        await self.client.patch(METRICS, self.name, {"status": status}, subresource="status")

    async def get(self, kind: Kind[Whole]) -> Whole | None:
        """The node's own object of this kind."""
        try:
            return await self.client.get(kind, self.name)
        except RefusedError as error:
            if not error.missing:
                raise
            return None

    async def until(self, kind: Kind[Whole], holds: Any) -> Whole:
        """The node's object, when it is there and as it should be."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = await self.get(kind)
                if found is not None and holds(found):
                    return found
                await asyncio.sleep(0.01)

    async def until_gone(self, kind: Kind[Whole]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while await self.get(kind) is not None:
                await asyncio.sleep(0.01)

    async def events(self, namespace: str = "", about: str = CONFIG) -> list[Whole]:
        """``namespace`` empty: that of the test."""
        page = await self.client.page(EVENTS, namespace=namespace or self.namespace)
        found = [msgspec.json.decode(raw, type=Whole) for raw in page.items or ()]
        return [each for each in found if each.involved_object.get("name") == about]

    async def clean(self) -> None:
        for kind, name in reversed(self.made):
            if not kind.namespaced:
                with contextlib.suppress(RefusedError):
                    await self.client.delete(kind, name)


@contextlib.asynccontextmanager
async def here_on(cluster: Cluster) -> AsyncIterator[Here]:
    async with Client(cluster, per_second=1e6, burst=1000) as client:
        namespace = f"manager-{os.getpid()}-{next(_numbers)}"
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        here = Here(cluster, client, namespace)
        try:
            yield here
        finally:
            await here.clean()


@contextlib.asynccontextmanager
async def fake_here() -> AsyncIterator[tuple[Here, FakeKube]]:
    definitions = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    async with serving(*definitions) as fake, here_on(Cluster(fake.url, "the test")) as here:
        yield here, fake


@contextlib.asynccontextmanager
async def manager(here: Here, **options: Any) -> AsyncIterator[Companion]:
    """It runs, and leads."""
    made = Companion(here.cluster, here.options(**options), chosen(["manager"], ["*"]))
    task = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(WITHIN_S):
            while not (made.leads() and not made.context.watches.unsynced()):
                if task.done():
                    task.result()
                await asyncio.sleep(0.005)
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
