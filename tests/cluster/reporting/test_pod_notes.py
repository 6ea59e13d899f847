"""Conditions and events of pods on their way to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koordlet.actuator.evict.executor import EvictOutcome, EvictResult
from koordlet.actuator.evict.journal import Begun
from koordlet.cluster.reporting import pod_notes
from koordlet.cluster.reporting.conditions import CONFLICT, EVICTED, REFUSED, SUPPRESSED
from koordlet.cluster.reporting.pod_notes import BURST, PER_SECOND, PROBLEM, PodNotes
from koordlet.cluster.shapes import PODS
from koordlet.decision import metrics as k
from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.snapshot import Fault, Pod
from koordlet.decision.why import Why
from koordlet.kube.client import Client
from koordlet.kube.mirror import Mirror
from koordlet.protocol.qos import KubeQoS, QoSClass
from tests.cluster.reporting.rig import Rig, be_pod, fake_cluster, make_pod, quick
from tests.fakekube import FakeKube
from tests.fakekube import Fault as ServerFault
from tests.fakekube.selectors import Selector
from tests.kube.worlds import WITHIN_S, until

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")
BAD = (Fault("pod jobs/bad", "koordinator.sh/cpuBurst $.policy", "must be one of none, auto"),)
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def conditions(fake: FakeKube, name: str) -> dict[str, dict[str, Any]]:
    pod = fake.store.get(fake.resource("pods"), ("jobs", name))
    return {each["type"]: each for each in pod.get("status", {}).get("conditions", [])}


def events(fake: FakeKube) -> list[tuple[str, str, str, str]]:
    found = fake.store.all(fake.resource("events"), "", Selector())
    return [
        (each["involvedObject"]["name"], each["type"], each["reason"], each["message"])
        for each in found
    ]


def play(story: Callable[[Rig, PodNotes, FakeKube, Client], Awaitable[None]]) -> None:
    async def run() -> None:
        rig = Rig()
        notes = PodNotes(rig.lent)
        async with fake_cluster() as (fake, client), rig.reporting(client, notes):
            await story(rig, notes, fake, client)

    asyncio.run(run())


def best_effort(rig: Rig, seconds: int, limit_milli: float, request_milli: float) -> None:
    rig.measure(
        seconds,
        {
            (k.NODE_BE, ("cpu", "real-limit")): limit_milli,
            (k.NODE_BE, ("cpu", "request")): request_milli,
        },
    )


async def last(
    rig: Rig, limit_milli: float, request_milli: float, holds: Callable[[], bool]
) -> None:
    """It goes on like this, second after second, until that holds."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            best_effort(rig, 1, limit_milli, request_milli)
            await asyncio.sleep(0.02)


def test_refused_annotations() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        uid = await make_pod(client, "bad")
        body = {"status": {"conditions": [READY]}}
        await client.patch(PODS, "bad", body, "jobs", subresource="status")
        rig.state.all = (be_pod(uid, "bad", faults=BAD),)
        await until(lambda: REFUSED in conditions(fake, "bad"))
        told = conditions(fake, "bad")[REFUSED]
        assert (told["status"], told["reason"]) == ("True", "InvalidAnnotation")
        assert "koordinator.sh/cpuBurst $.policy: must be" in told["message"]
        assert conditions(fake, "bad")["Ready"] == READY  # kubelet's stay
        await until(lambda: len(events(fake)) == 1)
        assert events(fake)[0][:3] == ("bad", "Warning", "InvalidAnnotation")
        rig.state.all = (be_pod(uid, "bad"),)
        await until(lambda: conditions(fake, "bad")[REFUSED]["status"] == "False")
        await until(lambda: len(events(fake)) == 2)
        await until(lambda: notes.written == 2)
        await asyncio.sleep(0.3)
        assert notes.written == 2

    play(story)


def test_suppression_that_lasts() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        uid = await make_pod(client, "be")
        rig.state.all = (be_pod(uid),)

        def told() -> dict[str, Any]:
            return conditions(fake, "be").get(SUPPRESSED, {"message": "", "status": ""})

        await last(rig, 1200.0, 4000.0, lambda: told()["status"] == "True")
        first = told()
        assert first["reason"] == "CPUSuppressed" and "less than 50 %" in first["message"]
        await last(rig, 400.0, 4000.0, lambda: "less than 25 %" in told()["message"])
        assert told()["lastTransitionTime"] == first["lastTransitionTime"]
        await last(rig, 4000.0, 4000.0, lambda: told()["status"] == "False")
        assert conditions(fake, "be")[SUPPRESSED]["reason"] == "CPUAvailable"
        await until(lambda: notes.written == 3)

    play(story)


def bound_pod(uid: str, name: str, cpus: set[int]) -> Pod:
    return Pod(
        uid,
        f"kubepods/{uid}",
        KubeQoS.GUARANTEED,
        name=name,
        namespace="jobs",
        raw_qos=QoSClass.LSR,
        phase="Running",
        pinned_cpus=frozenset(cpus),
    )


def test_cpus_that_two_pods_were_given() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        one, two = await make_pod(client, "one"), await make_pod(client, "two")
        rig.state.all = (bound_pod(one, "one", {0, 1, 2}), bound_pod(two, "two", {2, 3}))
        await until(
            lambda: CONFLICT in conditions(fake, "one") and CONFLICT in conditions(fake, "two")
        )
        told = conditions(fake, "one")[CONFLICT]
        assert (told["status"], told["reason"]) == ("True", "AllocationTaken")
        assert told["message"] == "CPUs 2: given to pod two too"
        await until(lambda: len(events(fake)) == 2)
        assert {each[:3] for each in events(fake)} == {
            (name, "Warning", "AllocationTaken") for name in ("one", "two")
        }
        rig.state.all = (bound_pod(one, "one", {0, 1, 2}),)
        await until(lambda: conditions(fake, "one")[CONFLICT]["status"] == "False")

    play(story)


def test_what_an_earlier_run_has_set() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        uid = await make_pod(client, "be")
        old = {**READY, "type": SUPPRESSED}
        body = {"status": {"conditions": [old, READY]}}
        await client.patch(PODS, "be", body, "jobs", subresource="status")
        rig.state.all = (be_pod(uid),)
        rig.member.pods = Mirror(client, PODS, lambda _: None)
        running = asyncio.ensure_future(rig.member.pods.run())
        await until(lambda: conditions(fake, "be")[SUPPRESSED]["status"] == "False")
        running.cancel()

    play(story)


def outcome(
    result: EvictResult, uid: str, name: str = "be", text: str = "", namespace: str = "jobs"
) -> EvictOutcome:
    begun = Begun(
        Victim(VictimKind.POD, uid),
        f"pod jobs/{name}",
        "kubepods/x",
        1,
        "memory-evict",
        "BEMemoryEvict",
        Why("memory-evict.release", "memory is at 91 %, the threshold is 70 %"),
        0.0,
        30.0,
        namespace=namespace,
        name=name,
    )
    return EvictOutcome(0.0, begun, result, text)


def test_evictions() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        uid = await make_pod(client, "be")
        notes.heard(outcome(EvictResult.WOULD_EVICT, "other"))
        notes.heard(outcome(EvictResult.BEGUN, uid))
        await until(lambda: EVICTED in conditions(fake, "be"))
        told = conditions(fake, "be")[EVICTED]
        assert told["reason"] == "BEMemoryEvict" and "memory is at 91 %" in told["message"]
        await client.delete(PODS, "be", "jobs")
        notes.heard(outcome(EvictResult.BEGUN, uid))
        notes.heard(outcome(EvictResult.EVICTED, uid, text="Kubernetes eviction API"))
        notes.heard(outcome(EvictResult.FAILED, "u2", "b2", "a budget forbids it"))
        await until(lambda: len(events(fake)) == 2)
        by_name = {each[0]: each[1:] for each in events(fake)}
        kind, reason, message = by_name["be"]
        assert (kind, reason) == ("Warning", "evictPodSuccess")
        assert message == (
            "evict Pod:jobs/be, reason: BEMemoryEvict, message: memory is at 91 %, the threshold "
            "is 70 %; Kubernetes eviction API"
        )
        assert by_name["b2"][1] == "evictPodFail"

    play(story)


def test_many_pods_are_told_at_a_bounded_rate() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        uids = {f"p{n}": await make_pod(client, f"p{n}") for n in range(BURST + 20)}
        rig.state.all = tuple(be_pod(uid, name, faults=BAD) for name, uid in uids.items())
        await until(lambda: notes.written == BURST)
        await asyncio.sleep(0.3)
        assert notes.written == BURST
        rig.clock.now_s += 5 / PER_SECOND
        await until(lambda: notes.written == BURST + 5)

    play(story)


def test_another_pod_of_the_same_name_is_told_nothing() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        await make_pod(client, "be")
        rig.state.all = (be_pod("an-older-one", faults=BAD), be_pod("gone", "gone", faults=BAD))
        await until(lambda: fake.requests["PATCH /api/v1/namespaces/jobs/pods/gone/status"] == 1)
        await asyncio.sleep(0.2)
        assert conditions(fake, "be") == {} and notes.written == 0 and events(fake) == []
        assert fake.requests["PATCH /api/v1/namespaces/jobs/pods/be/status"] == 1

    play(story)


def test_while_the_server_refuses() -> None:
    async def story(rig: Rig, notes: PodNotes, fake: FakeKube, client: Client) -> None:
        uid = await make_pod(client, "be")
        fake.faults.add(ServerFault(lambda what: what.startswith("PATCH"), times=2, status=403))
        rig.state.all = (be_pod(uid, faults=BAD),)
        await until(lambda: "403" in rig.problems.get(PROBLEM, ""))
        await until(lambda: REFUSED in conditions(fake, "be") and PROBLEM not in rig.problems)

    play(story)


def test_evictions_that_nobody_can_be_told_of_are_counted() -> None:
    notes = PodNotes(Rig().lent)
    for number in range(pod_notes.KEPT + 3):
        notes.heard(outcome(EvictResult.EVICTED, f"u{number}"))
    assert notes.dropped == 3
