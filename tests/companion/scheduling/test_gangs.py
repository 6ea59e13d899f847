"""Gangs on a fake API server: what wakes them, and how they are declared."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from koordlet.kube.kinds import Kind
from tests.companion.daemon.cluster import PODS, Tree, Whole
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling, told
from tests.kube.worlds import until

CORE = "scheduling.k8s.io"
PREFIX = "gang.scheduling.koordinator.sh/"
AT_ONCE_S = 20.0
"""Long before a unit that nothing helped is tried again, and long enough for a slow machine."""


def gang(least: int) -> dict[str, str]:
    return {f"{PREFIX}name": "g", f"{PREFIX}min-available": str(least)}


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"schedulingGates": [{"name": "kueue"}]}, {"spec": {"schedulingGates": None}}),
        ({}, {"spec": {"tolerations": [{"operator": "Exists"}]}}),
        ({"nodeSelector": {"pool": "none"}}, {"spec": {"nodeSelector": None}}),
    ],
    ids=["gates", "tolerations", "selector"],
)
def test_a_changed_member_wakes_its_gang(before: Tree, change: Tree) -> None:
    taints: list[Any] = [{"key": "a", "effect": "NoSchedule"}] if "tol" in str(change) else []

    async def story(rig: Rig) -> None:
        await rig.node("n", taints=taints)
        async with scheduling(rig.here) as made:
            for name in ("g0", "g1"):
                await rig.pod(name, annotations=gang(2), **before)
            queue = scheduler_of(made).queue
            await until(lambda: "gang:default/g" in queue)
            if "schedulingGates" in before:
                await until(lambda: "kueue" in queue.unit("gang:default/g").gate)
                assert queue.position("gang:default/g").attempts == 0
            else:
                await rig.until_said("g0", "nodes are available")
            for name in ("g0", "g1"):
                await rig.client.patch(PODS, name, change, SPACE)
            await rig.until_bound("g0", "g1", within_s=AT_ONCE_S)

    told(story)


def definition(version: str) -> Tree:
    """Kubernetes' own PodGroup, as far as the fake server must know it."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    served = {"name": version, "served": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "spec": {
            "group": CORE,
            "scope": "Namespaced",
            "names": {"plural": "podgroups", "kind": "PodGroup"},
            "versions": [served],
        }
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3", "v1alpha2"])
def test_native_gangs_in_whichever_version_the_server_has(version: str) -> None:
    kind = Kind(CORE, version, "PodGroup", "podgroups", True, Whole)

    async def group(rig: Rig, name: str, **more: Any) -> None:
        policy = {"gang": {"minCount": 2}}
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": policy, **more},
        }
        await rig.client.create(kind, body, SPACE)

    async def story(rig: Rig) -> None:
        rig.fake.define(definition(version))
        await rig.node("n")
        async with scheduling(rig.here) as made:
            await group(rig, "g")
            await group(rig, "near", schedulingConstraints={"topology": [{"key": "zone"}]})
            await rig.pod("g0", schedulingGroup={"podGroupName": "g"})
            await rig.until_said("g0", "child pod not collect enough")
            for name in ("n0", "n1"):
                await rig.pod(name, schedulingGroup={"podGroupName": "near"})
            await rig.pod("g1", schedulingGroup={"podGroupName": "g"})
            await rig.until_bound("g0", "g1")
            await rig.until_said("n0", "topology constraints of PodGroup default/near")
            async with aiohttp.ClientSession() as session:
                url = f"http://127.0.0.1:{made.health_port}/readyz"
                async with session.get(url) as answer:
                    assert f"podgroups.{CORE}: as {kind.api_version}" in await answer.text()

    told(story)


def test_members_behind_gates_do_not_hold_those_that_are_enough() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("n")
        async with scheduling(rig.here) as made:
            await rig.pod("late", annotations=gang(2), schedulingGates=[{"name": "kueue"}])
            await rig.pod("g0", annotations=gang(2))
            queue = scheduler_of(made).queue
            await until(lambda: "kueue" in (u.gate if (u := queue.unit("gang:default/g")) else ""))
            await rig.pod("g1", annotations=gang(2))
            found = await rig.until_bound("g0", "g1")
            assert not found["late"]
            await rig.client.patch(PODS, "late", {"spec": {"schedulingGates": None}}, SPACE)
            await rig.until_bound("late", within_s=AT_ONCE_S)

    told(story)
