"""Reservations and devices through the whole role, on a fake API server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from koord_scheduler.daemon.scheduler import reservations
from koordlet.kube.kinds import Kind
from koordlet.protocol.cpuset import parse_cpulist
from tests.companion.daemon.cluster import Whole
from tests.companion.scheduling.rig import NODES, SPACE, Rig, scheduler_of, scheduling, told
from tests.companion.scheduling.test_cpus import STATUS, topology
from tests.kube.worlds import until

RESERVATIONS: Kind[Whole] = Kind(
    "scheduling.koordinator.sh", "v1alpha1", "Reservation", "reservations", False, Whole
)
DEVICES: Kind[Whole] = Kind(
    "scheduling.koordinator.sh", "v1alpha1", "Device", "devices", False, Whole
)
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
DEVICE = "scheduling.koordinator.sh/device-allocated"


async def reserve(
    rig: Rig, name: str, cpu: str, annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    body = {
        "apiVersion": RESERVATIONS.api_version,
        "kind": "Reservation",
        "metadata": {"name": name, "annotations": annotations or {}},
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


def test_owners_are_told_without_waiting_for_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here):
            await reserve(rig, "r", "2", allocateOnce=False)
            await until_phase(rig, "r", "Available")
            for count in (1, 2):
                await rig.pod(f"web-{count}", cpu="1", labels={"app": "web"})
                async with asyncio.timeout(60):
                    while True:
                        found = (await rig.client.get(RESERVATIONS, "r")).status
                        if len(found.get("currentOwners") or ()) == count:
                            break
                        await asyncio.sleep(0.02)
                assert found["allocated"] == {"cpu": str(count), "memory": f"{64 * count}Mi"}

    monkeypatch.setattr(reservations, "SYNC_EVERY_S", 3600.0)
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


ONE_OF_EACH = {
    "cpu": "4",
    "memory": "1Gi",
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
    "koordinator.sh/rdma": "100",
}
LSR: dict[str, Any] = {"priority": 9500, "labels": {"koordinator.sh/qosClass": "LSR"}}


def asking(amounts: dict[str, str]) -> dict[str, Any]:
    return {"name": "c", "image": "none", "resources": {"requests": amounts, "limits": amounts}}


async def machine(rig: Rig, name: str) -> None:
    """Two NUMA nodes, each with 8 CPUs, a GPU and an RDMA card."""
    await topology(rig, name, cpus=16)
    await rig.node(name, cpu="16")
    gpu = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "16Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    rdma = {"koordinator.sh/rdma": "100"}
    total = {key: "32Gi" if key.endswith("memory") else "200" for key in (*gpu, *rdma)}
    status = {"status": {"allocatable": total, "capacity": total}}
    await rig.client.patch(NODES, name, status, subresource="status")
    devices = [
        {
            "type": of,
            "minor": minor,
            "id": f"{of}-{minor}",
            "health": True,
            "resources": amounts,
            "topology": {"socketID": 0, "nodeID": minor, "pcieID": str(minor), "busID": ""},
        }
        for of, amounts in (("gpu", gpu), ("rdma", rdma))
        for minor in (0, 1)
    ]
    body = {
        "apiVersion": DEVICES.api_version,
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }
    await rig.client.create(DEVICES, body)


async def given(rig: Rig, name: str = "", reservation: str = "") -> tuple[Any, frozenset[int]]:
    """Minors by type, and CPUs, of a pod or a Reservation."""
    item = await (rig.get(name) if name else rig.client.get(RESERVATIONS, reservation))
    annotations = item.metadata.annotations
    devices = json.loads(annotations[DEVICE])
    cpus = parse_cpulist(json.loads(annotations[STATUS])["cpuset"])
    return {of: [each["minor"] for each in found] for of, found in devices.items()}, cpus


SPEC: dict[str, Any] = {
    "template": {
        "metadata": {"labels": LSR["labels"]},
        "spec": {
            "schedulerName": "koord-scheduler",
            "priority": LSR["priority"],
            "containers": [asking(ONE_OF_EACH)],
        },
    }
}
OF_THE_REFERENCE = {
    STATUS: json.dumps(
        {
            "cpuset": "8-11",
            "numaNodeResources": [{"node": 1, "resources": {"cpu": "4", "memory": "1Gi"}}],
        }
    ),
    DEVICE: json.dumps(
        {
            "gpu": [
                {
                    "minor": 1,
                    "resources": {
                        "koordinator.sh/gpu-core": "100",
                        "koordinator.sh/gpu-memory": "16Gi",
                        "koordinator.sh/gpu-memory-ratio": "100",
                    },
                }
            ],
            "rdma": [{"minor": 1, "resources": {"koordinator.sh/rdma": "100"}}],
        }
    ),
}


@pytest.mark.parametrize("made_by", ["us", "the reference"])
def test_what_is_reserved_stays_so_over_a_restart_and_a_switch(made_by: str) -> None:
    async def story(rig: Rig) -> None:
        await machine(rig, "a")
        if made_by == "us":
            async with scheduling(rig.here):
                await reserve(rig, "r", "4", **SPEC)
                status = await until_phase(rig, "r", "Available")
                assert status["allocatable"] == ONE_OF_EACH
        else:
            await reserve(rig, "r", "4", **SPEC)
            told = {"metadata": {"annotations": OF_THE_REFERENCE}}
            await rig.client.patch(RESERVATIONS, "r", told)
            status = {"phase": "Available", "nodeName": "a", "allocatable": ONE_OF_EACH}
            body = {"status": status}
            await rig.client.patch(RESERVATIONS, "r", body, subresource="status")
        devices, cpus = await given(rig, reservation="r")
        (minor,) = devices["gpu"]
        assert devices["rdma"] == [minor] and len(cpus) == 4
        assert {cpu // 8 for cpu in cpus} == {minor}
        async with scheduling(rig.here):
            for name in ("stranger", "second"):
                await rig.pod(name, containers=[asking(ONE_OF_EACH)], **LSR)
            await rig.until_bound("stranger")
            await rig.until_said("second", "0/1 nodes are available")
            found, theirs = await given(rig, "stranger")
            assert found == {"gpu": [1 - minor], "rdma": [1 - minor]} and not cpus & theirs
            labels = {**LSR["labels"], "app": "web"}
            await rig.pod("web", containers=[asking(ONE_OF_EACH)], labels=labels, priority=9500)
            await rig.until_bound("web")
            assert await given(rig, "web") == (devices, cpus)
            await until_phase(rig, "r", "Succeeded")
            assert not (await rig.nodes_of())["second"]

    told(story)


def test_what_an_earlier_attempt_left_on_a_reservation_is_taken_away() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here):
            await reserve(rig, "r", "99")
            await until_phase(rig, "r", "Pending")
            left = {"metadata": {"annotations": OF_THE_REFERENCE}}
            await rig.client.patch(RESERVATIONS, "r", left)
            await rig.node("b", cpu="100")
            await until_phase(rig, "r", "Available")
            item = await rig.client.get(RESERVATIONS, "r")
            assert not OF_THE_REFERENCE.keys() & item.metadata.annotations.keys()

    told(story)


def test_one_made_again_under_its_name_has_none_of_the_old_users() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="8")
        async with scheduling(rig.here):
            await reserve(rig, "r", "2", allocateOnce=False)
            await until_phase(rig, "r", "Available")
            await rig.pod("web", cpu="2", labels={"app": "web"})
            await rig.until_bound("web")
            await rig.client.delete(RESERVATIONS, "r")
            await reserve(rig, "r", "2")
            status = await until_phase(rig, "r", "Available")
            assert not status.get("currentOwners")
            await rig.pod("filler", cpu="4")
            await rig.until_bound("filler")
            await rig.pod("stranger", cpu="1")
            await rig.until_said("stranger", "Insufficient cpu")
            await rig.pod("new", cpu="2", labels={"app": "web"})
            await rig.until_bound("new")
            status = await until_phase(rig, "r", "Succeeded")
            assert [each["name"] for each in status["currentOwners"]] == ["new"]

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
