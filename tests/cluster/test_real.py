"""A real API server, with the definitions of ours, tells the daemon the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from koordlet.cluster.shapes import NODE_SLOS, NODES, PODS
from koordlet.kube.client import Client
from tests.cluster.joined import NODE, Joined, config, node, pod, running, slo
from tests.daemon.world import World
from tests.fakekube import FakeKube
from tests.realkube.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

BE = {"koordinator.sh/qosClass": "BE"}
USE = {"enable": True, "cpuSuppressThresholdPercent": 40}


def threshold(joined: Joined) -> int | None:
    found = joined.world.engine.loaded.slo.resource_used_threshold_with_be
    return found.cpu_suppress_threshold_percent if found is not None else None


async def furnish(client: Client) -> str:
    """The uid of its pod."""
    tree = node()
    await client.create(NODES, {"metadata": tree["metadata"]})
    await client.patch(NODES, NODE, {"status": tree["status"]}, subresource="status")
    kind = {"apiVersion": NODE_SLOS.api_version, "kind": NODE_SLOS.name}
    await client.create(NODE_SLOS, kind | slo(resourceUsedThresholdWithBE=USE))
    made = pod("be", labels=BE, containers=({"name": "main", "image": "none"},))
    made["spec"]["terminationGracePeriodSeconds"] = 0
    made.pop("status")
    created = await client.create(PODS, made, "default")
    return created.metadata.uid


async def clear(client: Client) -> None:
    await client.delete(PODS, "be", "default")
    await client.delete(NODE_SLOS, NODE)
    await client.delete(NODES, NODE)


def test_node_slo_and_pods_over_a_death_of_the_server(
    plane: ControlPlane, make_world: Callable[..., World]
) -> None:
    async def main() -> None:
        async with Client(plane.admin, per_second=1e6, burst=1000) as client:
            uid = await furnish(client)
            world = make_world(config(plane.kubeconfig, "kubelet = false"))
            async with running(world, FakeKube()) as joined:
                world.host.make_pod(uid=uid, qos="burstable")
                await joined.sees(lambda: threshold(joined) == 40)
                await joined.sees(lambda: joined.pod(uid) is not None)
                await joined.sees(lambda: joined.pod(uid).qos == "BE")
                await joined.sees(lambda: bool(world.engine.node().allocatable))
                await asyncio.to_thread(plane.end_server, 9)
                await joined.sees(lambda: joined.object("NodeSLO").state == "last known")
                assert threshold(joined) == 40
                plane.start_server()  # here, because it dies with the thread that starts it
                use = {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 50}}
                await client.patch(NODE_SLOS, NODE, {"spec": use})
                labels = {"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}}
                await client.patch(PODS, "be", labels, "default")
                await joined.sees(lambda: threshold(joined) == 50 and joined.pod(uid).qos == "LS")
                await clear(client)
                await joined.sees(lambda: joined.object("NodeSLO").state == "deleted")
                assert threshold(joined) == 50

    asyncio.run(main())
