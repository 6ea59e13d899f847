"""The whole loop: a report becomes batch resources, YARN is given them and takes some, and the node
offers pods the rest."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from koord_scheduler.daemon import yarn as controller
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.yarn import Setup
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.times import instant
from tests.companion.running import cluster, companion, make, node, tree
from tests.companion.sinks.yarn_fake import fake_yarn
from tests.fakekube import FakeKube
from tests.kube.kinds import CONFIG_MAPS
from tests.kube.worlds import World, until

LOOP = tuple(part for part in PARTS if part.name in ("noderesource", "yarn"))
METRICS = Kind("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics", False, Object)
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
AGENT = "nm-1:8041"
GIB = 1 << 30


async def _report(world: World, cpu: str) -> None:
    """What the system of node n1 uses; everything else idles."""
    usage = {"resources": {"cpu": cpu, "memory": "0"}}
    figures = {"nodeUsage": usage, "systemUsage": usage}
    status = {"updateTime": instant(time.time()), "nodeMetric": figures}
    await world.client.patch(METRICS, "n1", {"status": status}, subresource="status")


def _batch(fake: FakeKube) -> tuple[int, int]:
    amounts = tree(fake, "nodes", "n1")["status"]["allocatable"]
    return int(amounts.get(CPU, -1)), int(amounts.get(MEMORY, -1)) // GIB


def test_yarn_and_pods_share_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "EVERY_S", 0.05)
    monkeypatch.setattr(controller, "SETTLE_S", 0.01)
    strategy = {
        "enable": True,
        "cpuReclaimThresholdPercent": 100,
        "memoryReclaimThresholdPercent": 100,
    }

    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            await make(
                world,
                CONFIG_MAPS,
                {
                    "metadata": {"name": "slo-controller-config"},
                    "data": {"colocation-config": json.dumps(strategy)},
                },
                "koordinator-system",
            )
            yarn.join(AGENT)
            amounts = {"cpu": "100", "memory": "200Gi"}
            named = {"node.yarn.koordinator.sh/node-id": AGENT}
            await node(world, "n1", amounts=amounts, annotations=named)
            await make(world, METRICS, {"metadata": {"name": "n1"}, "spec": {}})
            await _report(world, "10")
            async with companion(world, *LOOP, yarn=Setup({"": (yarn.url,)})):
                await until(lambda: _batch(fake) == (90_000, 200))
                await until(lambda: yarn.total(AGENT) == (90, 204_800))
                yarn.use(AGENT, 30, 51_200)
                await until(lambda: _batch(fake) == (60_000, 150))
                # Production needs more: both are left less, and YARN keeps what it has.
                await _report(world, "60")
                await until(lambda: _batch(fake) == (10_000, 150))
                await until(lambda: yarn.total(AGENT) == (40, 204_800))
                yarn.use(AGENT, 0, 0)
                await until(lambda: _batch(fake) == (40_000, 200))
                assert yarn.total(AGENT) == (40, 204_800)

    asyncio.run(story())
