"""A real API server with the gate GenericWorkload: native gangs, gates, a resize, annotations."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from koordlet.kube.kinds import Kind
from tests.companion.daemon.cluster import NAMESPACES, PODS, Tree, Whole, here_on
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling
from tests.companion.scheduling.test_gangs import gang
from tests.kube.worlds import until
from tests.realkube.control_plane import control_plane
from tools.rbac import NAMESPACE

pytestmark = pytest.mark.cluster

GATED = "gang:default/g"


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_gangs_of_a_real_server(version: str, tmp_path: Path) -> None:
    option = f"--runtime-config=scheduling.k8s.io/{version}=true"
    with control_plane(tmp_path, "--feature-gates=GenericWorkload=true", option) as plane:

        async def story() -> None:
            async with here_on(plane.admin) as here:
                rig = Rig(here, None)  # type: ignore[arg-type]
                await here.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
                await rig.node("a", cpu="9")
                async with scheduling(here) as made:
                    served = {"podgroups.scheduling.k8s.io": f"scheduling.k8s.io/{version}"}
                    await until(lambda: made.context.watches.versions() == served)
                    await _native(rig, version)
                    await _released(rig, scheduler_of(made))
                    await _resized(rig)
                    await _too_large(rig)

        asyncio.run(story())


async def _native(rig: Rig, version: str) -> None:
    kind = Kind("scheduling.k8s.io", version, "PodGroup", "podgroups", True, Whole)
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "n"}}
    await rig.client.create(kind, {**body, "spec": policy}, SPACE)
    await rig.pod("n0", schedulingGroup={"podGroupName": "n"})
    await rig.until_said("n0", "child pod not collect enough")
    await rig.pod("n1", schedulingGroup={"podGroupName": "n"})
    await rig.until_bound("n0", "n1")


async def _released(rig: Rig, scheduler: Any) -> None:
    for name in ("g0", "g1"):
        await rig.pod(name, annotations=gang(2), schedulingGates=[{"name": "kueue.x-k8s.io/a"}])
    await until(lambda: GATED in scheduler.queue and scheduler.queue.unit(GATED).gate != "")
    await asyncio.sleep(1)
    begun_s = time.monotonic()
    for name in ("g0", "g1"):
        await rig.client.patch(PODS, name, {"spec": {"schedulingGates": None}}, SPACE)
    await rig.until_bound("g0", "g1")
    took_s = time.monotonic() - begun_s
    print(f"a gang released from gates has its nodes after {took_s:.3f} s")
    assert took_s < 10  # less than 0.5 on a machine with nothing else to do


async def _resized(rig: Rig) -> None:
    """Five of nine cores are left; a resize to 4 takes three of them, before kubelet admits it."""

    async def has(cpu: str) -> None:
        status = {"name": "c", "allocatedResources": {"cpu": cpu, "memory": "64Mi"}}
        whole = {**status, "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        body: Tree = {"status": {"containerStatuses": [whole]}}
        await rig.client.patch(PODS, "n0", body, SPACE, subresource="status")

    async def asks(cpu: str) -> None:
        resources = {"requests": {"cpu": cpu}}
        body: Tree = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        await rig.client.patch(PODS, "n0", body, SPACE, subresource="resize", strategic=True)

    await has("1")
    await asks("4")
    await rig.pod("p", cpu="3")
    await rig.until_said("p", "Insufficient cpu")
    await has("4")
    await asks("1")
    await asyncio.sleep(2)
    assert not (await rig.nodes_of())["p"]
    await has("1")
    await rig.until_bound("p")


async def _too_large(rig: Rig) -> None:
    most = {"example.com/a": "x" * (262_144 - 1_000)}
    for name in ("l0", "l1"):
        own = most if name == "l0" else {}
        said = {f"gang.scheduling.koordinator.sh/{k}": v for k, v in LARGE.items()}
        await rig.pod(name, cpu="100m", annotations={**own, **said})
    said_of = await rig.until_said("l0", "of which 262144 are allowed")
    assert said_of["reason"] == "Unschedulable"
    await rig.client.patch(
        PODS, "l0", {"metadata": {"annotations": {"example.com/a": None}}}, SPACE
    )
    await rig.until_bound("l0", "l1")


LARGE = {"name": "l" * 300, "min-available": "2"}
"""A gang whose name stands twice in each binding."""
