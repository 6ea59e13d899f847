"""ScheduleExplanations, access, and what terms about namespaces see; on a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from koord_scheduler.daemon.access import SCHEDULER_NEEDS
from koord_scheduler.kube.explanation_shapes import EXPLANATIONS
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from tests.companion.daemon.cluster import NAMESPACES, PODS, Whole
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling, told
from tests.kube.worlds import until

QUESTIONS: Kind[Whole] = Kind(
    EXPLANATIONS.group, EXPLANATIONS.version, EXPLANATIONS.name, EXPLANATIONS.plural, True, Whole
)
WITHIN_S = 60.0


async def ask(rig: Rig, name: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
    head = {"apiVersion": EXPLANATIONS.api_version, "kind": EXPLANATIONS.name}
    meta = {"name": name, "labels": labels or {}}
    await rig.client.create(QUESTIONS, {**head, "metadata": meta, "spec": spec}, SPACE)


async def answer(rig: Rig, name: str, holds: Callable[[Any], bool] = bool) -> Any:
    async with asyncio.timeout(WITHIN_S):
        while not holds(found := (await rig.client.get(QUESTIONS, name, SPACE)).status):
            await asyncio.sleep(0.02)
    return found


def test_who_asks_why_learns_it_and_learns_when_it_changes() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1")
        async with scheduling(rig.here):
            await rig.pod("big", cpu="2")
            await ask(rig, "why", questionObjectKey=f"{SPACE}/big")
            found = await answer(rig, "why")
            assert found["schedulable"] is False and found["schedulableAfterPreemption"] is False
            assert "0/1 nodes are available: 1 Insufficient cpu." in found["failedMessage"]
            (detail,) = found["detailedExplanation"]
            (reason,) = detail["scheduleExplanation"]["nodeFailedDetails"]
            assert reason == {
                "failedPlugin": "NodeResourcesFit",
                "reason": "Insufficient cpu",
                "failedNodes": ["a"],
            }, "no eviction makes a node larger"
            await rig.node("b")
            found = await answer(rig, "why", lambda status: status["schedulable"])
            assert found["failedMessage"] == ""
            (where,) = found["detailedExplanation"][0]["scheduleExplanation"][
                "feasibleSchedulingResult"
            ]
            assert (where["name"], where["nodeName"]) == ("big", "b")

    told(story)


def test_victims_of_a_preemption_are_named_and_stay() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        async with scheduling(rig.here) as made:
            await rig.pod("low", cpu="2", priority=1)
            await rig.until_bound("low")
            await until(lambda: not scheduler_of(made).assumed)
            template = {
                "metadata": {"name": "wish", "namespace": SPACE},
                "spec": {
                    "schedulerName": "koord-scheduler",
                    "priority": 1000,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
                },
            }
            await ask(rig, "wish", questionObjectTemplate=template)
            found = await answer(rig, "wish")
            assert found["schedulable"] is False and found["schedulableAfterPreemption"] is True
            (detail,) = found["detailedExplanation"]
            (node,) = detail["nodePossibleVictims"]
            assert node["nodeName"] == "a"
            assert [each["name"] for each in node["possibleVictims"]] == ["low"]
            assert detail["preemptExplanation"]["feasibleSchedulingResult"][0]["nodeName"] == "a"
            assert (await rig.nodes_of())["low"] == "a"

    told(story)


def test_domains_are_answered_each_for_itself() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1", labels={"zone": "x"})
        await rig.node("b", cpu="1", labels={"zone": "y"})
        async with scheduling(rig.here):
            await rig.pod("p", nodeSelector={"zone": "z"})
            labels = {"scheduling.koordinator.sh/topology-key-to-explain": "zone"}
            await ask(rig, "why", labels, questionObjectKey=f"{SPACE}/p")
            found = await answer(rig, "why")
            details = found["detailedExplanation"]
            assert [each.get("topologyDomain", "") for each in details] == ["", "x", "y"]
            for each, node in zip(details[1:], "ab", strict=True):
                (reason,) = each["scheduleExplanation"]["nodeFailedDetails"]
                assert reason["failedNodes"] == [node]

    told(story)


def test_a_gang_is_answered_as_one() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1")
        gang = {
            "annotations": {
                "gang.scheduling.koordinator.sh/name": "g",
                "gang.scheduling.koordinator.sh/min-available": "2",
            }
        }
        async with scheduling(rig.here):
            for i in range(2):
                await rig.pod(f"g{i}", **gang)
            await ask(rig, "why", questionObjectKey=f"{SPACE}/g")
            found = await answer(rig, "why", lambda s: "too few" in s.get("failedMessage", ""))
            assert found["schedulable"] is False
            assert not any((await rig.nodes_of()).values())

    told(story)


def test_what_is_over_is_deleted_and_what_is_unknown_is_said() -> None:
    async def story(rig: Rig) -> None:
        async with scheduling(rig.here):
            await ask(rig, "nobody", questionObjectKey=f"{SPACE}/nobody")
            found = await answer(rig, "nobody")
            assert "no pod and no gang" in found["failedMessage"]
            await ask(rig, "short", questionObjectKey=f"{SPACE}/x", ttl="1ms")
            async with asyncio.timeout(WITHIN_S):
                while True:
                    try:
                        await rig.client.get(QUESTIONS, "short", SPACE)
                    except RefusedError as error:
                        assert error.missing
                        break
                    await asyncio.sleep(0.02)

    told(story)


def test_terms_see_labels_of_namespaces() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", labels={"kubernetes.io/hostname": "a"})
        await rig.node("b", cpu="2", labels={"kubernetes.io/hostname": "b"})
        meta = {"metadata": {"name": "noisy", "labels": {"noise": "yes"}}}
        await rig.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **meta})
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "loud", "namespace": "noisy", "labels": {"app": "loud"}},
            "spec": {"nodeName": "a", "schedulerName": "other", "containers": [{"name": "c"}]},
        }
        await rig.client.create(PODS, body, "noisy")
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "loud"}},
            "namespaceSelector": {"matchLabels": {"noise": "yes"}},
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        async with scheduling(rig.here) as made:
            await until(lambda: bool(scheduler_of(made).cluster.namespaces.get("noisy")))
            await until(lambda: "noisy/loud" in scheduler_of(made).cluster.claims)
            await rig.pod("quiet", affinity={"podAntiAffinity": required})
            assert (await rig.until_bound("quiet"))["quiet"] == "b"

    told(story)


def test_access_covers_every_kind_that_is_watched() -> None:
    """A kind that it may not list is one it never sees, so this is about more than words."""

    async def story(rig: Rig) -> None:
        async with scheduling(rig.here, only=("scheduler",)) as made:
            permitted = {
                (need.group, need.resource)
                for need in SCHEDULER_NEEDS
                if {"list", "watch"} <= set(need.verbs)
            }
            watched = {(each.kind.group, each.kind.plural) for each in made.context.watches.all()}
            assert watched - {("", "configmaps")} <= permitted

    told(story)
