"""What becomes of reservations where somebody was in between: a copy, a kill, another scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.daemon.scheduler.reservations import Reservations
from koord_scheduler.kube.scheduling.binder import Outcome
from koord_scheduler.kube.writes import Writes
from koord_scheduler.plan.outcomes import Placement
from koordlet.kube.errors import NotSentError
from tests.companion.daemon.cluster import PODS
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling, told
from tests.companion.scheduling.test_reservations import (
    ALLOCATED,
    RESERVATIONS,
    reserve,
    until_phase,
)
from tests.kube.worlds import until


def test_a_copy_of_a_user_uses_nothing() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="3")
        async with scheduling(rig.here):
            await reserve(rig, "r", "2")
            await until_phase(rig, "r", "Available")
            uid = (await rig.client.get(RESERVATIONS, "r")).metadata.uid
            of_another = {ALLOCATED: json.dumps({"name": "r", "uid": uid})}
            await rig.pod("copy", annotations=of_another)
            await rig.until_bound("copy")
            assert ALLOCATED not in (await rig.get("copy")).metadata.annotations
            await rig.node("b", cpu="1")
            by_hand = {"nodeName": "b", "annotations": of_another}
            await rig.pod("elsewhere", **by_hand)
        async with scheduling(rig.here):
            await rig.pod("stranger")
            await rig.until_said("stranger", "Insufficient cpu")
            await rig.pod("web", cpu="2", labels={"app": "web"})
            assert (await rig.until_bound("web"))["web"] == "a"

    told(story)


def test_room_that_pods_lend_is_theirs_and_the_reservations_after_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods are told first: killed at any write, whoever comes after goes on."""
    real, left = Writes.patch, {"status": 2, "annotations": 1}

    async def patch(self: Writes, kind: Any, name: str, body: Any, *more: Any, **how: Any) -> Any:
        what = how.get("subresource") or ("annotations" if kind.name == "Pod" else "")
        taken = what != "status" or body["status"].get("phase") == "Available"
        if taken and left.get(what, 0):
            left[what] -= 1
            raise NotSentError("killed")
        return await real(self, kind, name, body, *more, **how)

    async def story(rig: Rig) -> None:
        await rig.node("a")
        asked = {"requests": {"cpu": "4", "memory": "128Mi"}}
        box = {"name": "c", "image": "none", "resources": asked}
        spec: dict[str, Any] = {
            "template": {"spec": {"schedulerName": "koord-scheduler", "containers": [box]}},
            "allocateOnce": False,
            "allocatePolicy": "Restricted",
            "preAllocation": True,
            "preAllocationPolicy": {"enableMultiple": True},
        }
        async with scheduling(rig.here):
            for name in ("w0", "w1"):
                await rig.pod(name, cpu="2", labels={"app": "web"})
            await rig.until_bound("w0", "w1")
            monkeypatch.setattr(Writes, "patch", patch)
            await reserve(rig, "r", "4", **spec)
            await until(lambda: left == {"status": 1, "annotations": 0})
        async with scheduling(rig.here) as made:
            await until_phase(rig, "r", "Available")
            uid = (await rig.client.get(RESERVATIONS, "r")).metadata.uid
            for name in ("w0", "w1"):
                said = (await rig.get(name)).metadata.annotations[ALLOCATED]
                assert json.loads(said) == {"name": "r", "uid": uid}
            cluster = scheduler_of(made).cluster
            await until(lambda: len(cluster.users_of(uid, "a")) == 2)
            assert (cluster.requested[0] <= cluster.allocatable[0]).all()
            await rig.client.delete(PODS, "w0", SPACE)
            await rig.pod("stranger", cpu="2")
            await rig.until_said("stranger", "Insufficient cpu")

    told(story)


@pytest.mark.parametrize(
    ("meanwhile", "status"),
    [
        ({"phase": "Available", "nodeName": "b", "allocatable": {"cpu": "2"}}, None),
        (None, {"cpu": "3", "memory": "64Mi"}),
    ],
    ids=["bound by another", "edited"],
)
def test_a_decision_about_what_has_changed_is_not_written(
    meanwhile: Any, status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = Reservations.bind, []

    async def bind(self: Reservations, placement: Placement) -> Outcome:
        begun.append(placement)
        if len(begun) == 1:
            await change(self)
        return await real(self, placement)

    async def change(known: Reservations) -> None:
        rig, before = rigs[0], known.known["r"]
        if meanwhile is not None:
            body = {"status": meanwhile}
            await rig.client.patch(RESERVATIONS, "r", body, subresource="status")
        else:
            box = {"name": "c", "resources": {"requests": status}}
            spec = {"schedulerName": "koord-scheduler", "containers": [box]}
            edited = {"spec": {"template": {"spec": spec}}}
            await rig.client.patch(RESERVATIONS, "r", edited)
        await until(lambda: known.known["r"] is not before)

    rigs: list[Rig] = []

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        await rig.node("a")
        monkeypatch.setattr(Reservations, "bind", bind)
        async with scheduling(rig.here) as made:
            await rig.node("b", cpu="1")
            await reserve(rig, "r", "2")
            found = await until_phase(rig, "r", "Available")
            cluster = scheduler_of(made).cluster
            await until(lambda: not scheduler_of(made).assumed)
            await until(lambda: "(reservation)/r" in cluster.claims)
            claim = cluster.claims["(reservation)/r"]
            found = dict((await rig.client.get(RESERVATIONS, "r")).status)
            if meanwhile is not None:
                assert (found["nodeName"], claim.node) == ("b", "b")
            else:
                assert (found["nodeName"], found["allocatable"]) == ("a", status)
                assert claim.pod.cls.requests["cpu"] == 3000

    told(story)
