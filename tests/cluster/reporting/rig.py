"""A node that reports to the fake server, or to a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from koordlet.cluster.around import Around
from koordlet.cluster.member import Member
from koordlet.cluster.options import Options
from koordlet.cluster.reporting import metric_reporter, own_objects, pod_notes
from koordlet.cluster.reporting.lent import Lent
from koordlet.cluster.shapes import NODES, PODS
from koordlet.decision import metrics as k
from koordlet.decision.devices import Inventory
from koordlet.decision.metrics import Metric
from koordlet.decision.snapshot import Application, Node, Pod
from koordlet.kernel.host import Host
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.prediction.reclaimable import Reclaimable
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.listed import ListedSource
from koordlet.state.node_state import NodeState
from koordlet.tsdb import Store
from tests.cluster.reporting.test_packing import machine
from tests.fakekube import FakeKube, serving
from tests.kernel.dict_host import DictHost
from tests.kernel.test_node_info import MEMINFO
from tests.kube.worlds import until

GIB = 1 << 30
CRDS = Path(__file__).parents[3] / "deploy" / "crds"
NODE_DIR = "/sys/devices/system/node"
NAME = "n1"
BEGIN_S = 1_800_000_000.0


class Clock(DictHost):
    """A machine with two NUMA nodes whose clocks stand until they are set."""

    def __init__(self) -> None:
        super().__init__({f"{NODE_DIR}/node{numa}/meminfo": MEMINFO for numa in range(2)})
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return BEGIN_S + self.now_s


class State:
    def __init__(self) -> None:
        self.all: tuple[Pod, ...] = ()

    def pods(self) -> tuple[Pod, ...]:
        return self.all

    def applications(self) -> tuple[Application, ...]:
        return ()


class Rig:
    """``name``: of the node."""

    def __init__(self, name: str = NAME) -> None:
        self.clock = Clock()
        self.state = State()
        self.store = Store(None)
        self.problems: dict[str, str] = {}
        self.node = Node(name, machine(1, 2, 2), capacity_milli=8000, memory_bytes=16 * GIB)
        self.inventory: Inventory | None = Inventory()
        self.predicted: Reclaimable | None = None
        host = cast(Host, self.clock)
        self.around = Around(
            host=host,
            state=cast(NodeState, self.state),
            node=lambda: self.node,
            store=self.store,
            problems=self.problems,
            took_node=lambda _: None,
            took_slo=lambda _: None,
            took_topology=lambda _: None,
            listed={name: ListedSource(name, host) for name in ("api", "kubelet")},
        )
        self.lent = Lent(
            self.around,
            predicted=lambda: self.predicted,
            inventory=lambda: self.inventory,
        )
        self.member = Member(Options("fake", name, kubelet=False), self.around)

    def measure(self, seconds: int, values: dict[tuple[Metric, tuple[str, ...]], float]) -> None:
        """A round a second; the clock goes on."""
        ids = [
            self.store.series(metric.kind, tuple(zip(metric.labels, labels, strict=True)))
            for metric, labels in values
        ]
        for _ in range(seconds):
            self.clock.now_s += 1.0
            self.store.append(int(self.clock.time() * 1000), ids, list(values.values()))

    async def passes(self, holds: Callable[[], bool]) -> None:
        """Time goes on until that holds, so that a write is made again where it came too late."""

        def looks() -> bool:
            self.clock.now_s += 0.05
            return holds()

        await until(looks)

    def use(self, seconds: int, cores: float, memory_gib: float = 4.0) -> None:
        self.measure(
            seconds,
            {(k.NODE_CPU_USAGE, ()): cores, (k.NODE_MEMORY_USAGE, ()): memory_gib * GIB},
        )

    @contextlib.asynccontextmanager
    async def reporting(
        self, client: Client, *parts: Callable[[Member], Awaitable[None]]
    ) -> AsyncIterator[None]:
        self.member.client = client
        tasks = [asyncio.ensure_future(part(self.member)) for part in parts]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def be_pod(uid: str, name: str = "be", namespace: str = "jobs", **fields: Any) -> Pod:
    return Pod(
        uid,
        f"kubepods/{uid}",
        KubeQoS.BURSTABLE,
        name=name,
        namespace=namespace,
        raw_qos=QoSClass.BE,
        phase="Running",
        **fields,
    )


def definitions() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]


@contextlib.asynccontextmanager
async def fake_cluster() -> AsyncIterator[tuple[FakeKube, Client]]:
    async with (
        serving(*definitions()) as fake,
        Client(Cluster(fake.url, "the test"), per_second=1e6, burst=1000, deadline_s=2.0) as client,
    ):
        yield fake, client


async def make_node(client: Client, rig: Rig, **metadata: Any) -> None:
    """The Node exists, and the member knows it."""
    status = {
        "capacity": {"cpu": "8", "memory": "16Gi"},
        "allocatable": {"cpu": "7", "memory": "15Gi"},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": rig.node.name, **metadata},
        "status": status,
    }
    await client.create(NODES, body)
    rig.member.node = await client.get(NODES, rig.node.name)


async def make_pod(client: Client, name: str, namespace: str = "jobs", node: str = NAME) -> str:
    """Its uid."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    return (await client.create(PODS, body, namespace)).metadata.uid


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other as fast as they can be told apart."""
    monkeypatch.setattr(metric_reporter, "LOOK_S", 0.02)
    monkeypatch.setattr(metric_reporter, "SPREAD_S", 0.02)
    monkeypatch.setattr(own_objects, "LOOK_S", 0.02)
    monkeypatch.setattr(pod_notes, "LOOK_S", 0.02)
