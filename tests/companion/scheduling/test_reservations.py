"""Reservations and devices through the whole role, on a fake API server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from koordlet.kube.kinds import Kind
from tests.companion.daemon.cluster import Whole
from tests.companion.scheduling.rig import NODES, SPACE, Rig, scheduler_of, scheduling, told
from tests.kube.worlds import until

RESERVATIONS: Kind[Whole] = Kind(
    "scheduling.koordinator.sh", "v1alpha1", "Reservation", "reservations", False, Whole
)
DEVICES: Kind[Whole] = Kind(
    "scheduling.koordinator.sh", "v1alpha1", "Device", "devices", False, Whole
)
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
DEVICE = "scheduling.koordinator.sh/device-allocated"


async def reserve(rig: Rig, name: str, cpu: str, **spec: Any) -> None:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    body = {
        "apiVersion": RESERVATIONS.api_version,
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {"schedulerName": "koord-scheduler", "containers": [container]},
            },
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            **spec,
        },
    }
    await rig.client.create(RESERVATIONS, body)


async def until_phase(rig: Rig, name: str, phase: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found = await rig.client.get(RESERVATIONS, name)
            if found.status.get("phase") == phase:
                return dict(found.status)
            await asyncio.sleep(0.02)


def test_room_is_kept_for_its_owners_and_used_up_by_the_first() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="4")
        async with scheduling(rig.here):
            await reserve(rig, "r", "3")
            status = await until_phase(rig, "r", "Available")
            assert (status["nodeName"], status["allocatable"]["cpu"]) == ("a", "3")
            await rig.pod("stranger", cpu="2")
            await rig.until_said("stranger", "Insufficient cpu")
            await rig.pod("web", cpu="3", labels={"app": "web"})
            assert (await rig.until_bound("web"))["web"] == "a"
            written = (await rig.get("web")).metadata.annotations[ALLOCATED]
            assert json.loads(written)["name"] == "r"
            status = await until_phase(rig, "r", "Succeeded")
            assert [each["name"] for each in status["currentOwners"]] == ["web"]
            assert not (await rig.nodes_of())["stranger"]

    told(story)


def test_one_that_fits_nowhere_says_so_and_gets_the_room_that_comes() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1")
        async with scheduling(rig.here):
            await reserve(rig, "r", "3")
            status = await until_phase(rig, "r", "Pending")
            (said,) = status["conditions"]
            assert "Insufficient cpu" in said["message"]
            await rig.node("b", cpu="4")
            assert (await until_phase(rig, "r", "Available"))["nodeName"] == "b"

    told(story)


def test_metrics_say_what_is_kept_and_used() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here) as made:
            await reserve(rig, "room", "2", allocateOnce=False)
            await reserve(rig, "huge", "99")
            await until_phase(rig, "room", "Available")
            await until_phase(rig, "huge", "Pending")
            await rig.pod("owner", cpu="500m", labels={"app": "web"})
            await rig.until_bound("owner")
            lines = (
                'reservation_status_phase{name="room",phase="Available"} 1',
                'reservation_status_phase{name="room",phase="Pending"} 0',
                'reservation_status_phase{name="huge",phase="Pending"} 1',
                'resource{type="allocatable",name="room",resource="cpu",unit="core"} 2',
                'resource{type="allocated",name="room",resource="cpu",unit="core"} 0.5',
                'resource{type="utilization",name="room",resource="cpu",unit="ratio"} 0.25',
                'resource{type="allocatable",name="room",resource="memory",unit="Gi"} 0.0625',
                'scheduler_pending_pods{queue="unschedulable"} 1',
            )
            await until(lambda: all(each in made.context.metrics.page() for each in lines))

    told(story)


def test_what_is_made_of_an_old_status_takes_nothing_back() -> None:
    async def story(rig: Rig) -> None:
        async with scheduling(rig.here) as made:
            await reserve(rig, "room", "2")
            scheduler = scheduler_of(made)
            await until_phase(rig, "room", "Pending")
            reservations = scheduler.reservations
            assert reservations is not None
            pod = next(each for each in scheduler.waiting.values() if each.holds == "room")
            rig.fake.faults.refuse_watches()
            rig.fake.faults.cut_watches()
            status = {"status": {"phase": "Available", "nodeName": "b"}}
            await rig.client.patch(RESERVATIONS, "room", status, subresource="status")
            assert not await reservations.say(pod, "other words")
            found = await rig.client.get(RESERVATIONS, "room")
            assert found.status["phase"] == "Available"

    told(story)


def test_one_whose_time_is_over_gives_its_room_back() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="4")
        async with scheduling(rig.here):
            await reserve(rig, "r", "3", ttl="1s")
            await rig.pod("stranger", cpu="2")
            status = await until_phase(rig, "r", "Failed")
            assert any(each["reason"] == "Expired" for each in status["conditions"])
            assert (await rig.until_bound("stranger"))["stranger"] == "a"

    told(story)


def test_a_pod_that_is_named_finds_its_reservation() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="4")
        owners = [{"object": {"namespace": SPACE, "name": "chosen"}}]
        async with scheduling(rig.here):
            await rig.pod("filler", cpu="1")
            await rig.until_bound("filler")
            await reserve(rig, "r", "3", owners=owners)
            await until_phase(rig, "r", "Available")
            await rig.pod("other", cpu="3")
            await rig.until_said("other", "Insufficient cpu")
            await rig.pod("chosen", cpu="3")
            assert (await rig.until_bound("chosen"))["chosen"] == "a"

    told(story)


def test_a_share_of_a_gpu_is_written_with_the_binding() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("plain")
        await rig.node("gpu")
        amounts = {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "16Gi",
            "koordinator.sh/gpu-memory-ratio": "100",
        }
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await rig.client.patch(NODES, "gpu", status, subresource="status")
        device = {
            "type": "gpu",
            "minor": 0,
            "id": "GPU-0",
            "health": True,
            "resources": amounts,
            "topology": {"socketID": 0, "nodeID": 0, "pcieID": "0", "busID": "0000:00:08.0"},
        }
        body = {
            "apiVersion": DEVICES.api_version,
            "kind": "Device",
            "metadata": {"name": "gpu"},
            "spec": {"devices": [device]},
        }
        await rig.client.create(DEVICES, body)
        half = {
            "cpu": "1",
            "koordinator.sh/gpu-core": "50",
            "koordinator.sh/gpu-memory-ratio": "50",
        }
        container = {"name": "c", "image": "none", "resources": {"requests": half, "limits": half}}
        async with scheduling(rig.here):
            for name in ("one", "two", "three"):
                await rig.pod(name, containers=[container])
            bound = await rig.until_bound("one", "two")
            assert (bound["one"], bound["two"]) == ("gpu", "gpu")
            given = json.loads((await rig.get("one")).metadata.annotations[DEVICE])
            assert given["gpu"][0]["minor"] == 0
            await rig.until_said("three", "0/2 nodes are available")

    told(story)
