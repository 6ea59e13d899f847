"""Device and NodeResourceTopology on their way to the API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from koordlet.cluster.beside import KubeletFollower
from koordlet.cluster.kubelet_config import Allocation, KubeletConfig
from koordlet.cluster.reporting.kinds import TOPOLOGIES
from koordlet.cluster.reporting.own_objects import OwnObjects
from koordlet.cluster.shapes import NODES
from koordlet.decision.devices import Inventory
from koordlet.kube.client import Client
from tests.cluster.reporting.rig import NAME, Rig, fake_cluster, make_node, quick
from tests.cluster.reporting.test_device import INVENTORY
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import until

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")


def found(fake: FakeKube, plural: str) -> dict[str, Any]:
    """Empty where it is missing."""
    from tests.fakekube.answers import ApiError

    try:
        return fake.store.get(fake.resource(plural), ("", NAME))
    except ApiError:
        return {}


def topology(fake: FakeKube) -> dict[str, Any]:
    return found(fake, "noderesourcetopologies")


def play(story: Callable[[Rig, OwnObjects, FakeKube, Client], Awaitable[None]]) -> None:
    async def run() -> None:
        rig = Rig()
        objects = OwnObjects(rig.lent)
        async with fake_cluster() as (fake, client), rig.reporting(client, objects):
            await story(rig, objects, fake, client)

    asyncio.run(run())


def test_a_topology_is_made_and_kept() -> None:
    async def story(rig: Rig, objects: OwnObjects, fake: FakeKube, client: Client) -> None:
        await asyncio.sleep(0.2)  # whose it is, is not known
        assert topology(fake) == {}
        await make_node(client, rig)
        await rig.passes(lambda: topology(fake) != {})
        made = topology(fake)
        assert rig.member.node is not None
        assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
        (owner,) = made["metadata"]["ownerReferences"]
        assert owner["uid"] == rig.member.node.metadata.uid and owner["controller"]
        assert len(made["metadata"]["annotations"]) == 8
        assert [zone["name"] for zone in made["zones"]] == ["node-0", "node-1"]
        assert found(fake, "devices") == {}  # there are none
        await rig.passes(lambda: objects.written == 1)
        await asyncio.sleep(0.3)
        assert objects.written == 1
        await client.patch(TOPOLOGIES, NAME, {"metadata": {"annotations": {"mine": "x"}}})
        key = "node.koordinator.sh/cpu-topology"
        await client.patch(TOPOLOGIES, NAME, {"metadata": {"annotations": {key: "wrong"}}})
        await rig.passes(lambda: "wrong" not in json.dumps(topology(fake)))
        assert topology(fake)["metadata"]["annotations"]["mine"] == "x"
        await client.delete(TOPOLOGIES, NAME)
        await rig.passes(lambda: topology(fake) != {})

    play(story)


def test_resources_of_the_manager_in_zones_stay() -> None:
    async def story(rig: Rig, objects: OwnObjects, fake: FakeKube, client: Client) -> None:
        await make_node(client, rig)
        await rig.passes(lambda: topology(fake) != {})
        zones = topology(fake)["zones"]
        amounts = dict.fromkeys(("capacity", "allocatable", "available"), "1")
        zones[0]["resources"].append({"name": "kubernetes.io/batch-cpu", **amounts})
        await client.patch(TOPOLOGIES, NAME, {"zones": zones})
        label = "node.koordinator.sh/enable-numa-reservation"
        await client.patch(NODES, NAME, {"metadata": {"labels": {label: "true"}}})
        rig.member.node = await client.get(NODES, NAME)
        await rig.passes(lambda: label in topology(fake)["metadata"]["labels"])
        cpu, *_, last = topology(fake)["zones"][0]["resources"]
        assert (cpu["capacity"], cpu["allocatable"]) == ("4", "3500m")
        assert "kubernetes.io/batch-cpu" in json.dumps(topology(fake)["zones"][0])
        assert last["name"] == "memory"
        version = topology(fake)["metadata"]["resourceVersion"]
        await asyncio.sleep(0.3)
        assert topology(fake)["metadata"]["resourceVersion"] == version

    play(story)


def test_devices_come_change_and_go() -> None:
    async def story(rig: Rig, objects: OwnObjects, fake: FakeKube, client: Client) -> None:
        rig.inventory = None
        await make_node(client, rig)
        await rig.passes(lambda: topology(fake) != {})
        rig.inventory = INVENTORY
        await rig.passes(lambda: found(fake, "devices") != {})
        made = found(fake, "devices")
        assert made["metadata"]["labels"]["node.koordinator.sh/gpu-model"] == "A100"
        assert [each["minor"] for each in made["spec"]["devices"]] == [0, 1]
        rig.inventory = msgspec.structs.replace(INVENTORY, gpus=INVENTORY.gpus[:1])
        await rig.passes(lambda: len(found(fake, "devices")["spec"]["devices"]) == 1)
        rig.inventory = None  # cannot be looked at: nothing is said anew
        await asyncio.sleep(0.2)
        assert len(found(fake, "devices")["spec"]["devices"]) == 1
        rig.inventory = Inventory()
        await rig.passes(lambda: found(fake, "devices")["spec"]["devices"] == [])
        assert "node.koordinator.sh/gpu-model" not in found(fake, "devices")["metadata"]["labels"]

    play(story)


def test_what_a_lost_answer_made_is_not_made_twice() -> None:
    async def story(rig: Rig, objects: OwnObjects, fake: FakeKube, client: Client) -> None:
        lost = fake.faults.add(Fault(lambda what: what.startswith("POST"), after_s=None))
        await make_other_node(client, fake, rig)
        await until(lambda: topology(fake) != {})
        await until(lambda: "NodeResourceTopology" in rig.problems)
        assert lost.met == 1 and "no answer" in rig.problems["NodeResourceTopology"]
        rig.clock.now_s += 60.0
        await asyncio.sleep(0.3)
        posts = [n for what, n in fake.requests.items() if what.startswith("POST /apis/topology")]
        assert posts == [1]

    async def make_other_node(client: Client, fake: FakeKube, rig: Rig) -> None:
        body = {"metadata": {"name": NAME}, "status": {}}
        fake.store.create(fake.resource("nodes"), "", body)
        rig.member.node = await client.get(NODES, NAME)

    play(story)


def test_no_right_to_write_is_shown() -> None:
    async def story(rig: Rig, objects: OwnObjects, fake: FakeKube, client: Client) -> None:
        fake.faults.add(Fault(lambda what: "topology" in what and "POST" in what, 10**9, 403))
        await make_node(client, rig)
        await until(lambda: "403" in rig.problems.get("NodeResourceTopology", ""))
        asked = sum(fake.requests.values())
        await asyncio.sleep(0.3)  # the clock stands: no other try yet
        assert sum(fake.requests.values()) == asked

    play(story)


def test_while_kubelet_does_not_answer() -> None:
    """What was reported of it last stays; the rest is told (D-16)."""

    async def story(rig: Rig, objects: OwnObjects, fake: FakeKube, client: Client) -> None:
        options = rig.member.options._replace(kubelet=True)
        rig.member.options = options
        follower = SimpleNamespace(config=None, held=(), cpu_error="")
        rig.member.kubelet = cast(KubeletFollower, follower)
        await make_node(client, rig)
        await asyncio.sleep(0.2)
        assert topology(fake) == {}
        follower.config = KubeletConfig("static", topology_manager_policy="restricted")
        follower.held = (Allocation("u1", frozenset({1, 5}), None),)
        await rig.passes(lambda: topology(fake) != {})
        assert topology(fake)["topologyPolicies"] == ["RestrictedContainerLevel"]
        before = topology(fake)["metadata"]["annotations"]
        follower.config, rig.clock.now_s = None, rig.clock.now_s + 60.0
        key = "node.koordinator.sh/cpu-topology"
        await client.patch(TOPOLOGIES, NAME, {"metadata": {"annotations": {key: None}}})
        await rig.passes(lambda: key in topology(fake)["metadata"]["annotations"])
        assert topology(fake)["metadata"]["annotations"] == before
        assert topology(fake)["topologyPolicies"] == ["RestrictedContainerLevel"]
        follower.config, follower.held = KubeletConfig(), ()
        await rig.passes(lambda: topology(fake)["topologyPolicies"] == ["None"])

    play(story)
