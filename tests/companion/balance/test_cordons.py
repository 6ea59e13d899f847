"""Nodes that a drain cordons, on a fake API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.daemon.descheduler.cordons import CORDONED
from koord_scheduler.kube.migration_shapes import JOBS
from koord_scheduler.kube.reservation_shapes import RESERVATIONS
from tests.companion.balance.test_descheduler import PART, SETS, job, jobs, on_loop, pod, pods
from tests.companion.running import NODES, cluster, companion, make, node, tree
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import World, until


def draining(tmp_path: Path) -> str:
    levels = [
        {"name": name, "nodeSelector": {"matchLabels": {"level": name}}} for name in ("gold", "tin")
    ]
    drain = {"evictionOrder": levels, "mode": "DrainNode", "autoCordon": True}
    document = {
        "profiles": [
            {
                "name": "drain",
                "plugins": {"balance": {"enabled": [{"name": "CustomPriority"}]}},
                "pluginConfig": [{"name": "CustomPriority", "args": drain}],
            }
        ]
    }
    path = tmp_path / "descheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def two_nodes(world: World, fake: FakeKube) -> None:
    for name, level in (("n1", "gold"), ("n2", "tin")):
        await node(world, name, amounts={"pods": "20"}, labels={"level": level})
    await make(world, SETS, {"metadata": {"name": "web"}, "spec": {"replicas": 40}}, "default")
    await pod(world, "web-0", "n1", tree(fake, "replicasets", "web", "default")["metadata"]["uid"])


def n1(fake: FakeKube) -> tuple[bool, bool]:
    """Whether it is cordoned, and whether it says that we did it."""
    found = tree(fake, "nodes", "n1")
    notes = found["metadata"].get("annotations", {})
    return found["spec"].get("unschedulable", False), CORDONED in notes


def reservations(fake: FakeKube) -> list[str]:
    return [name for _, name in fake.store._objects.get(fake.resource("reservations"), {})]


FULL: dict[str, Any] = {"phase": "Failed"}
READY = {"type": "Ready", "status": "False", "reason": "Expired"}
EXPIRED: dict[str, Any] = {"phase": "Failed", "conditions": [READY]}


@pytest.mark.parametrize("status", [FULL, EXPIRED])
@on_loop
async def test_a_drain_that_fails_gives_the_node_back(
    tmp_path: Path, status: dict[str, Any]
) -> None:
    async with cluster() as (world, fake):
        await two_nodes(world, fake)
        async with companion(world, PART, descheduler_config=draining(tmp_path)):
            await until(lambda: bool(reservations(fake)))
            assert n1(fake) == (True, True)
            (name,) = reservations(fake)
            await world.client.patch(RESERVATIONS, name, {"status": status}, subresource="status")
            await until(lambda: n1(fake) == (False, False))
            (found,) = jobs(fake)
            assert found["status"]["phase"] == "Failed" and "web-0" in pods(fake)


@on_loop
async def test_a_drain_that_ends_well_leaves_the_node_cordoned(tmp_path: Path) -> None:
    async with cluster() as (world, fake):
        await two_nodes(world, fake)
        async with companion(world, PART, descheduler_config=draining(tmp_path)):
            await until(lambda: bool(reservations(fake)))
            (name,) = reservations(fake)
            status: dict[str, Any] = {"phase": "Available", "nodeName": "n2"}
            await world.client.patch(RESERVATIONS, name, {"status": status}, subresource="status")
            await until(lambda: "web-0" not in pods(fake))
            owner = {"namespace": "default", "name": "web-1", "uid": "u"}
            status = {"phase": "Succeeded", "currentOwners": [owner]}
            await world.client.patch(RESERVATIONS, name, {"status": status}, subresource="status")
            await until(lambda: jobs(fake)[0]["status"]["phase"] == "Succeeded")
            await world.client.delete(JOBS, jobs(fake)[0]["metadata"]["name"])
            await until(lambda: not reservations(fake))
            assert n1(fake) == (True, True)


@on_loop
async def test_a_job_that_somebody_deletes_ends_the_drain(tmp_path: Path) -> None:
    async with cluster() as (world, fake):
        await two_nodes(world, fake)
        async with companion(world, PART, descheduler_config=draining(tmp_path)):
            await until(lambda: bool(reservations(fake)))
            await world.client.delete(JOBS, jobs(fake)[0]["metadata"]["name"])
            await until(lambda: n1(fake) == (False, False))


@on_loop
async def test_a_job_that_cannot_be_made_ends_the_drain(tmp_path: Path) -> None:
    async with cluster() as (world, fake):
        await two_nodes(world, fake)
        begin = "POST /apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
        fake.faults.add(Fault(lambda text: text.startswith(begin), times=100, status=403))
        cordons = "PATCH /api/v1/nodes/n1"
        met = fake.faults.add(Fault(lambda text: text.startswith(cordons), times=2))
        async with companion(world, PART, descheduler_config=draining(tmp_path)):
            await until(lambda: met.met == 2 and n1(fake) == (False, False))
            assert not jobs(fake)


@on_loop
async def test_a_job_that_goes_while_its_reservation_is_made_takes_it_along(
    tmp_path: Path,
) -> None:
    async with cluster() as (world, fake):
        await two_nodes(world, fake)
        begin = "POST /apis/scheduling.koordinator.sh/v1alpha1/reservations"
        met = fake.faults.add(Fault(lambda text: text.startswith(begin), after_s=0.5))
        async with companion(world, PART, descheduler_config=draining(tmp_path)):
            await until(lambda: bool(reservations(fake)))
            await world.client.delete(JOBS, jobs(fake)[0]["metadata"]["name"])
            assert met.met
            await until(lambda: not reservations(fake))


@on_loop
async def test_who_cordons_by_hand_uncordons_by_hand(tmp_path: Path) -> None:
    """And so do jobs about other matters leave cordons alone."""
    async with cluster() as (world, fake):
        await two_nodes(world, fake)
        by_hand = {"spec": {"unschedulable": True}}
        await world.client.patch(NODES, "n1", by_hand)
        async with companion(world, PART, descheduler_config=draining(tmp_path)):
            await until(lambda: bool(reservations(fake)))
            await world.client.delete(JOBS, jobs(fake)[0]["metadata"]["name"])
            await until(lambda: not reservations(fake))
            await job(world, "j", "nobody", "EvictDirectly")
            await until(lambda: jobs(fake)[0].get("status", {}).get("phase") == "Failed")
            assert n1(fake) == (True, False)
