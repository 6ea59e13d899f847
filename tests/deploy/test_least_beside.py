"""Least RBAC of the manager's parts that other tests than `test_least` play: quota profiles,
recommendations and YARN. Nothing that they ask is refused, and every verb is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.daemon.access import QUOTA_PROFILE, RECOMMENDER, YARN
from koordlet.kube.events import EVERY_S
from tests.companion.running import NODES
from tests.companion.sinks.test_real_api import (
    MINE,
    NODE,
    PROFILES,
    RECOMMENDATIONS,
    playing,
    settled,
)
from tests.deploy.audited import audited, cluster_of, requests
from tests.deploy.least import unused
from tests.kube.worlds import world_on
from tests.realkube.binaries import why_not
from tests.realkube.control_plane import ControlPlane
from tools.rbac import ACCOUNTS

MANAGER = next(each for each in ACCOUNTS if each.name == "koord-manager")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a control plane can run here"),
]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with audited(tmp_path, (MANAGER.name,)) as made:
        yield made


async def _until_asked(plane: ControlPlane, verb: str, resource: str) -> None:
    for _ in range(600):
        made = await asyncio.to_thread(requests, plane)
        if any((each.verb, each.resource) == (verb, resource) for each in made):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"nobody asked to {verb} {resource}")


def test_every_verb_is_asked_for_and_none_is_missing(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world_on(plane.admin) as world:
            us = cluster_of(plane, MANAGER.name)
            async with playing(world, monkeypatch, us) as played:
                await settled(plane, world)
                # Another node: the quota grows. What is wrong is told, and counted later.
                change = {"status": {"allocatable": {"cpu": "30"}, "capacity": {"cpu": "30"}}}
                await world.client.patch(NODES, NODE, change, subresource="status")
                await _until_asked(plane, "patch", "elasticquotas")
                for ratio in ("2", "0.5", "2"):
                    spec = {"spec": {"resourceRatio": ratio}}
                    await world.client.patch(PROFILES, "p", spec, world.namespace)
                    await asyncio.sleep(0.5 if ratio != "0.5" else EVERY_S)
                await _until_asked(plane, "patch", "events")
                asked = asyncio.create_task(_until_asked(plane, "get", "recommendations"))
                no_more: dict[str, Any] = {"status": {"conditions": None, "podStatus": None}}
                while not asked.done():  # until it writes the status of a version that is past
                    await world.client.patch(
                        RECOMMENDATIONS, "web", no_more, world.namespace, subresource="status"
                    )
                    label = {"metadata": {"labels": {"now": str(time.monotonic_ns())}}}
                    await world.client.patch(RECOMMENDATIONS, "web", label, world.namespace)
                await asked
                assert played.url

    asyncio.run(story())
    made = {each for each in requests(plane) if each.account == MANAGER.name}
    assert {each for each in made if each.code == 403} == set()
    assert not unused(made, MANAGER, (*QUOTA_PROFILE, *RECOMMENDER, *YARN))
    assert len(MINE) == 3
