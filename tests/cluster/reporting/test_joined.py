"""A whole daemon on the fake kernel that reports to the fake server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koordlet.report import metrics
from koordlet.views.publish import publish
from tests.cluster.conftest import Join
from tests.cluster.joined import NODE, Joined, node, pod
from tests.cluster.reporting.rig import quick
from tests.daemon.world import World
from tests.fakekube import FakeKube
from tests.fakekube.answers import ApiError
from tests.fakekube.selectors import Selector

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")
MIB = 1 << 20
BE = {"koordinator.sh/qosClass": "BE", "app": "leak"}
UID = "00000000-0000-0000-0000-000000000001"
EVICT = """
[slo.resourceUsedThresholdWithBE]
enable = true
memoryEvictThresholdPercent = 70
memoryEvictLowerPercent = 55
"""


def found(joined: Joined, plural: str, name: str = NODE, namespace: str = "") -> dict[str, Any]:
    """Empty where it is missing."""
    try:
        return joined.kube.store.get(joined.kube.resource(plural), (namespace, name))
    except ApiError:
        return {}


def events(joined: Joined) -> dict[str, str]:
    every = joined.kube.store.all(joined.kube.resource("events"), "", Selector())
    return {each["reason"]: each["message"] for each in every}


def furnish(world: World, kube: FakeKube) -> None:
    """A node with a best-effort pod, and what the manager would have made."""
    store = kube.store
    store.create(kube.resource("nodes"), "", node())
    store.merge(kube.resource("nodes"), ("", NODE), {"status": node()["status"]}, "status")
    metric = {"metadata": {"name": NODE}, "spec": {}}
    store.create(kube.resource("nodemetrics"), "", metric)
    groups = world.host.make_pod(qos="besteffort", uid=UID, containers=("c1" * 32,))
    process = world.host.spawn(
        groups.containers[0], memory_bytes=100 * MIB, demand_cores=1.0, threads=1
    )
    world.processes[UID] = process
    amounts = {"kubernetes.io/batch-cpu": "4000"}
    containers = ({"name": "main", "resources": {"requests": amounts, "limits": amounts}},)
    body = pod("leak", labels=BE, containers=containers, ids={"main": "c1" * 32})
    made = store.create(kube.resource("pods"), "default", body)
    # The server chooses uids; the runtime knows the pod by this one.
    resource = kube.resource("pods")
    store._objects[resource][("default", "leak")]["metadata"]["uid"] = UID
    status = {"status": {**body["status"], "qosClass": "BestEffort"}}
    assert made["metadata"]["uid"] != UID
    store.merge(resource, ("default", "leak"), status, "status")


def play(join: Join, more: str, story: Callable[[Joined], Awaitable[None]]) -> None:
    async def run() -> None:
        async with join(f"kubelet = false\n{more}", furnish) as joined:
            await story(joined)

    asyncio.run(run())


async def ticks(joined: Joined, holds: Callable[[], bool]) -> None:
    """Second after second, until that holds. The machine's time stands still while the server is
    asked for an eviction: its answer takes real time, and a grace period must not end before."""

    def looks() -> bool:
        if not joined.world.engine.evictions.api._running:
            joined.world.run(1)
        return holds()

    await joined.sees(looks)


async def joins(joined: Joined) -> None:
    """The pod is known by what the server says of it."""

    def has() -> bool:
        found = joined.pod(UID)
        return found is not None and found.raw_qos is not None

    await ticks(joined, has)


def test_usage_topology_and_refusals_reach_the_cluster(join: Join) -> None:
    async def story(joined: Joined) -> None:
        await ticks(joined, lambda: bool(found(joined, "nodemetrics").get("status")))
        await ticks(
            joined,
            lambda: bool(found(joined, "nodemetrics")["status"].get("podsMetric")),
        )
        status = found(joined, "nodemetrics")["status"]
        (used,) = status["podsMetric"]
        assert (used["name"], used["namespace"], used["qos"]) == ("leak", "default", "BE")
        assert used["priority"] == "koord-batch"
        assert used["podUsage"]["resources"]["memory"] == "100Mi"
        assert status["nodeMetric"]["nodeUsage"]["resources"]["cpu"]
        publish(joined.world.engine, joined.world.views)
        numbers = joined.world.parts.metrics.scalars
        (cores, size_bytes) = numbers[metrics.NODE_METRIC_NODE_USAGE].items()
        assert cores[0] == ("cpu", "core") and 0 < cores[1] < 4
        assert size_bytes[0] == ("memory", "byte") and size_bytes[1] > 100 * MIB
        assert set(numbers[metrics.CLUSTER_OBJECT_AGE]) >= {("Node",), ("Pod",)}
        assert ("NodeMetric",) not in numbers[metrics.CLUSTER_OBJECT_AGE]
        assert joined.object("NodeMetric").state == "reported"
        await joined.sees(lambda: bool(found(joined, "noderesourcetopologies")))
        topology = found(joined, "noderesourcetopologies")
        pools = topology["metadata"]["annotations"]["node.koordinator.sh/be-cpu-shared-pools"]
        assert json.loads(pools) == [{"socket": 0, "node": 0, "cpuset": "0-3"}]
        bad = {"metadata": {"annotations": {"koordinator.sh/cpuBurst": "no JSON"}}}
        joined.change("pods", "leak", bad, "default")
        await ticks(joined, lambda: "InvalidAnnotation" in events(joined))
        conditions = found(joined, "pods", "leak", "default")["status"]["conditions"]
        assert [each["type"] for each in conditions] == ["koordinator.sh/AnnotationsRefused"]
        assert "cpuBurst" in events(joined)["InvalidAnnotation"]

    play(join, "", story)


def test_suppression_reaches_those_who_are_suppressed(join: Join) -> None:
    """The latency-sensitive application takes most of the machine, and later rests."""

    def told(joined: Joined) -> dict[str, str]:
        status = found(joined, "pods", "leak", "default")["status"]
        every = {each["type"]: each for each in status.get("conditions", ())}
        return every.get("koordinator.sh/Suppressed", {"status": "", "message": ""})

    async def story(joined: Joined) -> None:
        await joins(joined)
        world = joined.world
        shop = world.application("shop", demand_cores=1.5)
        await ticks(joined, lambda: told(joined)["status"] == "True")
        assert "production needs CPU" in told(joined)["message"]
        await ticks(joined, lambda: "CPUSuppressed" in events(joined))
        shop.demand_cores = 0.0
        await ticks(joined, lambda: "less than 75 %" in told(joined)["message"])

    use = "[slo.resourceUsedThresholdWithBE]\nenable = true\ncpuSuppressPolicy = 'cfsQuota'\n"
    play(join, use, story)


def budget(joined: Joined) -> None:
    body = {
        "metadata": {"name": "none", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "leak"}}},
        "status": {"disruptionsAllowed": 0},
    }
    joined.kube.store.create(joined.kube.resource("poddisruptionbudgets"), "default", body)


def leak(joined: Joined) -> None:
    world = joined.world
    world.host.set_memory(world.processes[UID], world.parts.memory_bytes * 8 // 10)


@pytest.mark.parametrize("mode", ["api-first", "only-api", "node"])
def test_who_evicts(join: Join, mode: str) -> None:
    async def story(joined: Joined) -> None:
        await joins(joined)
        leak(joined)
        await ticks(joined, lambda: "evictPodSuccess" in events(joined))
        told = events(joined)["evictPodSuccess"]
        assert told.startswith("evict Pod:default/leak, reason: BEMemoryEvict, message: ")
        there = found(joined, "pods", "leak", "default")
        assert bool(there) == (mode == "node")
        assert ("the node acts by itself" in told) == (mode == "node")
        if there:
            types = {each["type"]: each["status"] for each in there["status"]["conditions"]}
            assert types["koordinator.sh/Evicted"] == "True"

    play(join, f'evictions = "{mode}"\n{EVICT}', story)


def test_a_budget_counts_where_the_configuration_says_so(join: Join) -> None:
    async def story(joined: Joined) -> None:
        await joins(joined)
        budget(joined)
        leak(joined)
        await ticks(joined, lambda: "evictPodFail" in events(joined))
        assert "a disruption budget does not allow it" in events(joined)["evictPodFail"]
        assert joined.world.processes[UID].alive
        assert found(joined, "pods", "leak", "default")

    play(join, f'evictions = "only-api"\n{EVICT}', story)


def test_the_node_acts_by_itself_while_the_server_is_away(join: Join) -> None:
    async def story(joined: Joined) -> None:
        await joins(joined)
        joined.kube.faults.down = True
        joined.kube.faults.cut_watches()
        await joined.sees(lambda: joined.member.is_away)
        leak(joined)
        await ticks(joined, lambda: not joined.world.processes[UID].alive)
        joined.kube.faults.down = False
        await ticks(joined, lambda: "evictPodSuccess" in events(joined))
        assert "the API server is away" in events(joined)["evictPodSuccess"]

    play(join, f'evictions = "only-api"\n{EVICT}', story)
