"""Gangs on a fake API server: what wakes them, and how they are declared."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.companion.daemon.cluster import PODS, Tree
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling, told
from tests.kube.worlds import until

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
            begun_s = time.monotonic()
            async with asyncio.timeout(AT_ONCE_S):
                await rig.until_bound("g0", "g1")
            assert time.monotonic() - begun_s < AT_ONCE_S

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
            async with asyncio.timeout(AT_ONCE_S):
                await rig.until_bound("late")

    told(story)
