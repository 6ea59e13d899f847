"""CPUs of pods' own on a fake API server, from koordlet's topology to the binding."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from koordlet.kube.kinds import Kind
from koordlet.protocol.cpuset import parse_cpulist
from tests.companion.daemon.cluster import Whole
from tests.companion.scheduling.rig import Rig, scheduling, told

TOPOLOGIES = Kind(
    "topology.node.k8s.io",
    "v1alpha1",
    "NodeResourceTopology",
    "noderesourcetopologies",
    False,
    Whole,
)
STATUS = "scheduling.koordinator.sh/resource-status"
LSR: dict[str, Any] = {"priority": 9500, "labels": {"koordinator.sh/qosClass": "LSR"}}


async def topology(rig: Rig, name: str, cpus: int = 8) -> None:
    """Two NUMA nodes with half of the CPUs each."""
    half = cpus // 2
    detail = [{"id": n, "core": n // 2, "socket": 0, "node": n // half} for n in range(cpus)]
    amount = {key: str(half) for key in ("capacity", "allocatable", "available")}
    zones = [
        {
            "name": f"node-{n}",
            "type": "Node",
            "resources": [
                {"name": "cpu", **amount},
                {"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "8Gi"},
            ],
        }
        for n in (0, 1)
    ]
    annotations = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    body = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, "annotations": annotations},
        "topologyPolicies": ["SingleNUMANodePodLevel"],
        "zones": zones,
    }
    await rig.client.create(TOPOLOGIES, body)


async def _cpus(rig: Rig, name: str) -> frozenset[int]:
    status = json.loads((await rig.get(name)).metadata.annotations[STATUS])
    return parse_cpulist(status["cpuset"])


def test_pods_get_cpus_and_the_next_leader_knows_them() -> None:
    async def story(rig: Rig) -> None:
        await topology(rig, "a")
        await rig.node("a", cpu="16")  # more than its topology has
        await rig.node("bare", cpu="8")
        async with scheduling(rig.here):
            await rig.pod("first", cpu="2", **LSR)
            await rig.pod("second", cpu="3", **LSR)
            assert set((await rig.until_bound("first", "second")).values()) == {"a"}
        async with (
            scheduling(rig.here) as made,
            aiohttp.ClientSession(f"http://127.0.0.1:{made.metrics_port}") as session,
        ):
            await rig.pod("third", cpu="2", **LSR)
            await rig.pod("fourth", cpu="2", **LSR)
            await rig.until_bound("third")
            said = await rig.until_said("fourth", "0/2 nodes are available")
            assert "not enough cpus available" in said["message"]
            assert "invalid CPU Topology" in said["message"]
            found = [await _cpus(rig, name) for name in ("first", "second", "third")]
            assert [len(each) for each in found] == [2, 3, 2]
            assert len(frozenset().union(*found)) == 7
            path = "/apis/v1/plugins/NodeNUMAResource/nodes"
            async with session.get(f"{path}/a") as answer:
                assert len(parse_cpulist((await answer.json())["allocatedCPUs"])) == 7
            async with session.get(f"{path}/bare") as answer:
                assert answer.status == 500
                assert "no valid CPU topology" in (await answer.json())["message"]
            async with session.get(f"{path}/none") as answer:
                assert answer.status == 404
            path = "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries"
            async with session.get(path) as answer:
                assert (answer.status, await answer.json()) == (200, {})

    told(story)
