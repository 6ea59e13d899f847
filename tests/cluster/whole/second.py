"""The second act: a gang, a quota, a share of a GPU, and a hot node that is cooled.

Its nodes have no kubelet; a stand-in starts their pods, which go at once when they are
deleted. Scheduler and descheduler,
the API server and its controllers are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.protocol.objects.times import instant
from koordlet.protocol.quantity import parse_quantity
from tests.companion.daemon.cluster import DEVICES, METRICS, NAMESPACES, NODES, PODS, Tree, Whole
from tests.realkube.control_plane import ControlPlane, free_ports
from tests.runtime.process import Process

SPACE, OURS = "act", "koord-scheduler"
NODES_OF = ("act-a", "act-b", "act-c")
WITHIN_S = 180.0
SCHEDULER = Path(__file__).with_name("objects") / "scheduler.yaml"
DESCHEDULER = Path(__file__).with_name("objects") / "descheduler.yaml"
GANG = "gang.scheduling.koordinator.sh/"
QUOTA = "quota.scheduling.koordinator.sh/name"
GPU = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
RESERVED = "scheduling.koordinator.sh/reservation-allocated"
QUOTAS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas", True, Whole)
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments", True, Whole)
RESERVATIONS = Kind(
    "scheduling.koordinator.sh", "v1alpha1", "Reservation", "reservations", False, Whole
)
Tell = Callable[[str], None]


class Act:
    """``tell`` gets each sentence as it becomes true."""

    def __init__(self, client: Client, process: Process, tell: Tell) -> None:
        self.client, self.process, self.tell = client, process, tell

    async def all(self) -> None:
        for name in NODES_OF:
            await self.node(name)
        await self.client.create(NAMESPACES, {"metadata": {"name": SPACE}})
        await self.gang()
        await self.quota()
        await self.share()
        await self.cooled()

    async def short(self) -> None:
        """Play the gang and the shares; the scheduler is killed between them."""
        for name in NODES_OF:
            await self.node(name)
        await self.client.create(NAMESPACES, {"metadata": {"name": SPACE}})
        await self.gang()
        self.process.end(9)
        self.process.start()
        self.tell("the scheduler is killed and starts again")
        await self.share()

    async def node(self, name: str) -> None:
        amounts = {"cpu": "4", "memory": "16Gi", "pods": "50"}
        if name == NODES_OF[2]:
            amounts |= {
                "koordinator.sh/gpu-core": "100",
                "koordinator.sh/gpu-memory-ratio": "100",
                "koordinator.sh/gpu-memory": "16Gi",
            }
        ready = [{"type": "Ready", "status": "True"}]
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}}
        labels = {"act": "two", "kubernetes.io/hostname": name}
        await self.create(NODES, name, {"metadata": {"labels": labels}})
        await self.client.patch(NODES, name, status, subresource="status")
        with contextlib.suppress(RefusedError):  # the manager of the first act may be faster
            await self.create(METRICS, name, {"spec": {}})
        await self.report(name, {})
        if name == NODES_OF[2]:
            # Long before a pod asks for it: without a Device a node counts as one whose devices
            # nobody divides, as in the reference, and another watch may bring the pod first.
            device = {
                "type": "gpu", "minor": 0, "id": "GPU-0", "health": True,
                "resources": {**dict.fromkeys(GPU, "100"), "koordinator.sh/gpu-memory": "16Gi"},
            }  # fmt: skip
            await self.create(DEVICES, name, {"spec": {"devices": [device]}})

    async def gang(self) -> None:
        notes = {GANG + "name": "train", GANG + "min-available": "4"}
        for i in range(3):
            await self.pod(f"train-{i}", "2", annotations=notes)
        await self.until("three members of a gang of four wait", self._three_wait)
        self.tell("three members of a gang of four ask for 2 CPUs each; none of them gets a node")
        begun_s = time.monotonic()
        await self.pod("train-3", "2", annotations=notes)
        found = await self.bound(*(f"train-{i}" for i in range(4)))
        took_s = time.monotonic() - begun_s
        places = sorted(set(found.values()))
        self.tell(f"the fourth comes: {took_s:.2f} s later all run, on {', '.join(places)}")
        await self.drop(*found)

    async def _three_wait(self) -> bool:
        pods = await self.pods()
        return all("Gang" in _said(pods.get(f"train-{i}")) for i in range(3))

    async def quota(self) -> None:
        for name in ("red", "blue"):
            spec = {"min": {"cpu": "6", "memory": "20Gi"}, "max": {"cpu": "12", "memory": "40Gi"}}
            await self.create(QUOTAS, name, {"spec": spec}, SPACE)
        await self._keep_others_out()
        for i in range(8):
            await self.pod(f"red-{i}", "1", labels={QUOTA: "red"})
        await self.bound(*(f"red-{i}" for i in range(8)))
        self.tell("quota red may use 6 CPUs for sure and has 8: blue, who needs none, lends 2")
        for i in range(6):
            await self.pod(f"blue-{i}", "1", labels={QUOTA: "blue"})
        await self.bound(*(f"blue-{i}" for i in range(4)))
        await self.pod("red-8", "1", labels={QUOTA: "red"})

        async def refused() -> bool:
            return "quota" in _said((await self.pods()).get("red-8")).lower()

        await self.until("red gets nothing more", refused)
        self.tell("blue asks for its 6: 4 fit beside, red gets no more, and says why")
        begun_s = time.monotonic()
        found = await self.bound(*(f"blue-{i}" for i in range(6)))
        red = [each for each in await self.pods() if each.startswith("red-")]
        took_s = time.monotonic() - begun_s
        self.tell(f"red gives back what it borrowed within {took_s:.1f} s: blue has all 6")
        assert len(red) <= 7, red
        await self.drop(*red, *(each for each in found if each.startswith("blue-")))
        for name in ("red", "blue"):
            await self.client.delete(QUOTAS, name, SPACE)

    async def share(self) -> None:
        for i in range(3):
            await self.pod(f"half-{i}", "100m", more=GPU)
        async with asyncio.timeout(WITHIN_S):
            while len(found := {k: v for k, v in (await self.halves()).items() if v}) < 2:
                await asyncio.sleep(0.05)
        notes = (await self.pods())[next(iter(found))].metadata.annotations
        card = json.loads(notes[ALLOCATED])["gpu"][0]
        percent = card["resources"]["koordinator.sh/gpu-core"]
        self.tell(f"two pods share card {card['minor']} of {NODES_OF[2]}, {percent} % for each")
        (third,) = set(await self.halves()) - set(found)

        async def refused() -> bool:
            return "nodes are available" in _said((await self.pods()).get(third))

        await self.until("the third waits", refused)
        self.tell("a third one waits: there is no other half")
        await self.drop(*await self.halves())

    async def halves(self) -> dict[str, str]:
        pods = await self.pods()
        return {k: p.spec.get("nodeName", "") for k, p in pods.items() if k.startswith("half-")}

    async def cooled(self) -> None:
        container = _container("500m", {})
        labels = {"app": "hot"}
        pod = {
            "schedulerName": OURS,
            "nodeSelector": {"act": "two"},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 6, "selector": {"matchLabels": labels}, "template": template}
        for name in NODES_OF[1:]:
            await self.client.patch(NODES, name, {"spec": {"unschedulable": True}})
        await self.create(DEPLOYMENTS, "hot", {"spec": spec}, SPACE)

        async def six() -> bool:
            return [p.status.get("phase") for p in (await self.pods()).values()] == ["Running"] * 6

        await self.until("six pods run", six)
        for name in NODES_OF[1:]:
            await self.client.patch(NODES, name, {"spec": {"unschedulable": None}})
        began = set(await self.pods())
        hot = NODES_OF[0]
        await self.report(hot, dict.fromkeys(began, "550m"))
        self.tell(f"six pods use 3.3 of the 4 CPUs of {hot}, the others are idle")
        begun_s = time.monotonic()

        async def moved() -> bool:
            pods = await self.pods()
            new = [p for k, p in pods.items() if k not in began]
            return any(RESERVED in p.metadata.annotations for p in new) and len(pods) == 6

        await self.until("a pod moved into its reservation", moved)
        pods = await self.pods()
        new = next(p for k, p in pods.items() if RESERVED in p.metadata.annotations)
        name = json.loads(new.metadata.annotations[RESERVED])["name"]
        assert new.spec["nodeName"] != hot
        took_s = time.monotonic() - begun_s
        self.tell(
            f"{took_s:.1f} s later one of them runs on {new.spec['nodeName']} in reservation"
            f" {name[:8]}, which was there before the old one went"
        )

    # What they do.

    async def create(self, kind: Kind[Whole], name: str, body: Tree, space: str = "") -> None:
        meta = {**body.pop("metadata", {}), "name": name}
        head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
        await self.client.create(kind, {**head, **body}, space)

    async def pod(self, name: str, cpu: str, more: Tree | None = None, **meta: Any) -> None:
        spec = {
            "schedulerName": OURS,
            "nodeSelector": {"act": "two"},
            "terminationGracePeriodSeconds": 0,
            "containers": [_container(cpu, more or {})],
        }
        await self.create(PODS, name, {"metadata": meta, "spec": spec}, SPACE)

    async def pods(self) -> dict[str, Whole]:
        page = await self.client.page(PODS, namespace=SPACE)
        found = [msgspec.json.decode(raw, type=Whole) for raw in page.items or ()]
        return {each.metadata.name: each for each in found}

    async def _keep_others_out(self) -> None:
        """Nodes of the first act have a quota of their own, which lends nothing. It has half of
        them: their pods, which have no quota, take from what all quotas share."""
        page = await self.client.page(NODES)
        nodes = [msgspec.json.decode(raw, type=Whole) for raw in page.items or ()]
        found = [n.status["allocatable"] for n in nodes if n.metadata.name not in NODES_OF]
        if found:
            milli = sum(parse_quantity(each["cpu"]).milli for each in found) // 2
            size = sum(parse_quantity(each["memory"]).value for each in found) // 2
            amounts = {"cpu": f"{milli}m", "memory": str(size)}
            labels = {"quota.scheduling.koordinator.sh/allow-lent-resource": "false"}
            body = {"metadata": {"labels": labels}, "spec": {"min": amounts, "max": amounts}}
            await self.create(QUOTAS, "others", body, SPACE)

    async def report(self, name: str, pods: dict[str, str]) -> None:
        used = [
            {"namespace": SPACE, "name": k, "podUsage": {"resources": {"cpu": cpu}}}
            for k, cpu in pods.items()
        ]
        status = {
            "updateTime": instant(time.time()),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "100m", "memory": "1Gi"}}},
            "podsMetric": used,
        }
        await self.client.patch(METRICS, name, {"status": status}, subresource="status")

    async def bound(self, *names: str) -> dict[str, str]:
        async def all_bound() -> bool:
            pods = await self.pods()
            return all(name in pods and pods[name].spec.get("nodeName") for name in names)

        await self.until(f"{', '.join(names)} have nodes", all_bound)
        pods = await self.pods()
        return {name: pods[name].spec["nodeName"] for name in names}

    async def drop(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(RefusedError):
                await self.client.delete(PODS, name, SPACE)

        async def gone() -> bool:
            return not set(names) & set(await self.pods())

        await self.until("they are gone", gone)

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                while not await holds():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pods = {k: _said(p) for k, p in (await self.pods()).items()}
            raise AssertionError(f"never: {what}; {pods}; {self.process.said()}") from None

    async def stand_in(self) -> None:
        """For kubelet."""
        while True:
            for name, pod in (await self.pods()).items():
                with contextlib.suppress(RefusedError):
                    if pod.spec.get("nodeName") and pod.status.get("phase") == "Pending":
                        ready = [{"type": "Ready", "status": "True"}]
                        status = {"phase": "Running", "conditions": ready}
                        await self.client.patch(
                            PODS, name, {"status": status}, SPACE, subresource="status"
                        )
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _beside(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def play(plane: ControlPlane, process: Process, tell: Tell) -> None:
    """``process`` has both roles. Raises AssertionError where a sentence does not become true."""
    _played(plane, process, tell, Act.all)


def play_short(plane: ControlPlane, process: Process, tell: Tell) -> None:
    """Play what CI has the time for; see ``play``."""
    _played(plane, process, tell, Act.short)


def _played(
    plane: ControlPlane, process: Process, tell: Tell, part: Callable[[Act], Awaitable[None]]
) -> None:
    async def story() -> None:
        async with Client(plane.admin, per_second=1e6, burst=1000) as client:
            act = Act(client, process, tell)
            async with _beside(act.stand_in()):
                await part(act)

    process.start()
    try:
        tell("second act: koord-scheduler schedules and deschedules, on three more nodes")
        asyncio.run(story())
    finally:
        process.end()


def process_of(plane: ControlPlane, work: Path) -> Process:
    """One, with both roles."""
    metrics, health = free_ports(2)
    command = [
        sys.executable, "-m", "koord_scheduler.cli", "run", "--roles", "scheduler,descheduler",
        "--config", SCHEDULER, "--descheduler-config", DESCHEDULER,
        "--kubeconfig", plane.kubeconfig, "--no-leader-election",
        "--metrics-addr", f"127.0.0.1:{metrics}", "--health-probe-addr", f"127.0.0.1:{health}",
    ]  # fmt: skip
    return Process(command, work / "koord-scheduler.log")


def _container(cpu: str, more: Tree) -> Tree:
    asked = {"cpu": cpu, "memory": "64Mi", **more}
    resources: Tree = {"requests": asked}
    if more:
        resources["limits"] = more
    return {"name": "c", "image": "none", "resources": resources}


def _said(pod: Whole | None) -> str:
    conditions = pod.status.get("conditions", []) if pod is not None else []
    return next((e.get("message", "") for e in conditions if e["type"] == "PodScheduled"), "")
