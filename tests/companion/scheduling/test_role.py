"""Pods get nodes on a fake API server: the whole role, end to end."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
import structlog

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.device.plugin import DeviceShare
from koord_scheduler.place.load import LoadAware
from koord_scheduler.plan.engine import Engine
from koordlet.kube.kinds import Kind
from tests.companion.daemon.cluster import PODS, Whole
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling, told
from tests.fakekube.faults import Fault
from tests.kube.worlds import until

QUESTIONS = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "ScheduleExplanation",
    "scheduleexplanations",
    True,
    Whole,
)


def test_pods_get_nodes_by_one_write_each() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        await rig.node("b")
        async with scheduling(rig.here):
            for i in range(8):
                await rig.pod(f"p{i}")
            found = await rig.until_bound(*(f"p{i}" for i in range(8)))
            assert sorted(found.values()) == ["a"] * 4 + ["b"] * 4
            for i in range(8):
                path = f"/api/v1/namespaces/{SPACE}/pods/p{i}"
                assert rig.fake.requests[f"POST {path}/binding"] == 1
                assert not rig.fake.requests[f"PATCH {path}/status"]

    told(story)


def test_a_pod_that_fits_nowhere_says_why_once_and_gets_the_room_that_comes() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1")
        async with scheduling(rig.here):
            await rig.pod("big", cpu="2")
            said = await rig.until_said("big", "0/1 nodes are available")
            assert said["reason"] == "Unschedulable" and said["status"] == "False"
            assert "Insufficient cpu" in said["message"]
            await rig.node("b")
            assert (await rig.until_bound("big"))["big"] == "b"
            path = f"/api/v1/namespaces/{SPACE}/pods/big/status"
            assert rig.fake.requests[f"PATCH {path}"] == 1
            uid = (await rig.get("big")).metadata.uid
            async with asyncio.timeout(20):
                while len(found := await rig.events()) < 2:
                    await asyncio.sleep(0.01)
            events = {each.reason: each for each in found}
            assert len(found) == 2
            assert {each.involved_object["uid"] for each in found} == {uid}
            assert "Insufficient cpu" in events["FailedScheduling"].message
            assert events["Scheduled"].message == "Has got node b"


def test_each_member_of_a_gang_that_does_not_fit_has_its_event() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1")
        gang = {
            "gang.scheduling.koordinator.sh/name": "g",
            "gang.scheduling.koordinator.sh/min-available": "2",
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
        async with scheduling(rig.here):
            for name in ("m0", "m1"):
                await rig.pod(name, annotations=gang)
                refs = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
                await rig.client.patch(PODS, name, refs, SPACE)
            await rig.until_said("m1", "nodes")
            async with asyncio.timeout(20):
                while len(found := await rig.events()) < 2:
                    await asyncio.sleep(0.01)
            about = {(e.involved_object["kind"], e.involved_object["name"]) for e in found}
            assert about == {("Pod", "m0"), ("Pod", "m1")}
            assert {each.reason for each in found} == {"FailedScheduling"}

    told(story)


def test_pods_of_others_count_and_are_left_alone() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        await rig.node("b", cpu="1")
        async with scheduling(rig.here) as made:
            await rig.pod("foreign", cpu="2", scheduler="default-scheduler")
            await rig.client.bind(SPACE, "foreign", "a", uid="")
            await until(lambda: "default/foreign" in scheduler_of(made).cluster.claims)
            await rig.pod("other", scheduler="default-scheduler")
            await rig.pod("ours")
            found = await rig.until_bound("ours")
            assert found["ours"] == "b" and not found["other"]

    told(story)


def test_the_label_overrides_the_name_of_the_scheduler() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here):
            label = {"scheduling.koordinator.sh/scheduler-name": "koord-scheduler"}
            await rig.pod("p", scheduler="default-scheduler", labels=label)
            await rig.until_bound("p")

    told(story)


def test_a_gated_pod_waits_for_its_gates() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here):
            await rig.pod("gated", schedulingGates=[{"name": "wait"}])
            await rig.pod("free")
            await rig.until_bound("free")
            assert not (await rig.nodes_of())["gated"]
            await rig.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, SPACE)
            await rig.until_bound("gated")

    told(story)


def test_what_is_not_supported_is_refused_in_words() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here):
            volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
            await rig.pod("p", volumes=[volume])
            await rig.until_said("p", "volume claim data: it does not exist")

    told(story)


def test_allocations_copied_from_another_pod_are_cleared() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        key = "scheduling.koordinator.sh/resource-status"
        async with scheduling(rig.here):
            await rig.pod("p", annotations={key: '{"cpuset":"0-3"}'})
            await rig.until_bound("p")
            assert key not in (await rig.get("p")).metadata.annotations

    told(story)


@pytest.mark.parametrize("status", [500, 429, 409])
def test_a_binding_that_fails_is_tried_again(status: int) -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        path = f"POST /api/v1/namespaces/{SPACE}/pods/p/binding"
        rig.fake.faults.add(Fault(path.__eq__, status=status))
        async with scheduling(rig.here) as made:
            await rig.pod("p")
            await rig.until_bound("p")
            assert rig.fake.requests[path] == 2
            assert list(scheduler_of(made).cluster.claims) == ["default/p"]

    told(story)


def test_a_binding_whose_answer_was_lost_is_not_sent_again() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        path = f"POST /api/v1/namespaces/{SPACE}/pods/p/binding"
        rig.fake.faults.add(Fault(path.__eq__, drop=True))
        async with scheduling(rig.here) as made:
            await rig.pod("p")
            await rig.until_bound("p")
            scheduler = scheduler_of(made)
            await until(lambda: not scheduler.assumed and not len(scheduler.queue))
            assert rig.fake.requests[path] == 1

    told(story)


def test_a_pod_made_anew_while_its_namesake_is_bound_is_not_forgotten() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        path = f"POST /api/v1/namespaces/{SPACE}/pods/p/binding"
        rig.fake.faults.add(Fault(path.__eq__, before_s=1.0))
        last = rig.fake.faults.add(Fault(path.__eq__, before_s=2.0, status=500))
        async with scheduling(rig.here) as made:
            await rig.pod("p")
            await until(lambda: rig.fake.requests[path] == 1)
            await rig.client.delete(PODS, "p", SPACE)
            await rig.pod("p")
            await until(lambda: last.met == 1)
            await rig.until_bound("p")
            await until(lambda: not len(scheduler_of(made).queue))

    told(story)


def test_a_pod_that_joins_a_gang_waits_for_it_alone() -> None:
    async def story(rig: Rig) -> None:
        async with scheduling(rig.here) as made:
            await rig.pod("p")
            queue = scheduler_of(made).queue
            await until(lambda: list(queue.names()) == ["default/p"])
            gang = {"gang.scheduling.koordinator.sh/name": "g"}
            most = {"gang.scheduling.koordinator.sh/min-available": "2"}
            change = {"metadata": {"annotations": gang | most}}
            await rig.client.patch(PODS, "p", change, SPACE)
            await until(lambda: list(queue.names()) == ["gang:default/g"])
            leave = {"metadata": {"annotations": dict.fromkeys(gang | most)}}
            await rig.client.patch(PODS, "p", leave, SPACE)
            await until(lambda: list(queue.names()) == ["default/p"])

    told(story)


def test_a_pod_of_higher_priority_gets_room() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        async with scheduling(rig.here) as made:
            await rig.pod("low", cpu="2", priority=1)
            await rig.until_bound("low")
            await until(lambda: not scheduler_of(made).assumed)
            await rig.pod("high", cpu="2", priority=1000)
            assert (await rig.until_bound("high"))["high"] == "a"
            assert "low" not in await rig.nodes_of()

    told(story)


def test_a_namespace_that_looked_for_victims_for_long_looks_again_later() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        async with scheduling(rig.here) as made:
            scheduler = scheduler_of(made)
            await rig.pod("low", cpu="2", priority=1)
            await rig.until_bound("low")
            await until(lambda: not scheduler.assumed)
            scheduler.queue.accounts.of(SPACE).evictions.owe(0.102, scheduler.now_s())
            await rig.pod("high", cpu="2", priority=1000)
            await rig.until_said("high", "it looks again soon")
            assert (await rig.until_bound("high"))["high"] == "a"

    told(story)


def test_a_look_for_victims_that_was_cut_goes_on_at_the_next_turn() -> None:
    async def story(rig: Rig) -> None:
        for name in "abc":
            await rig.node(name, cpu="2")
        async with scheduling(rig.here) as made:
            scheduler = scheduler_of(made)
            for name in "abc":
                await rig.pod(f"low-{name}", cpu="2", priority=ord(name))
            await rig.until_bound("low-a", "low-b", "low-c")
            await until(lambda: not scheduler.assumed)
            preemptor, ticks, pauses = scheduler.parts.preemptors["koord-scheduler"], 0, 0

            def cpu_s() -> float:
                nonlocal ticks, pauses
                ticks += 1
                pauses += preemptor.goes_on(scheduler.waiting[f"{SPACE}/high"])
                return ticks * 0.011  # cut once, and far from what one search may take in all

            preemptor.cpu_s = cpu_s
            await rig.pod("high", cpu="2", priority=1000)
            await rig.until_bound("high")
            assert pauses
            nodes = await rig.nodes_of()
            assert "low-a" not in nodes and "low-b" in nodes and "low-c" in nodes

    told(story)


def test_a_gang_starts_when_all_its_members_have_room() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        gang = {
            "annotations": {
                "gang.scheduling.koordinator.sh/name": "g",
                "gang.scheduling.koordinator.sh/min-available": "3",
            }
        }
        async with scheduling(rig.here):
            for i in range(3):
                await rig.pod(f"g{i}", **gang)
            await rig.until_said("g2", "Gang")
            assert not any((await rig.nodes_of()).values())
            await rig.node("b", cpu="2")
            await rig.until_bound("g0", "g1", "g2")
            kept = (await rig.get("g0")).metadata.annotations
            assert kept["internal.scheduling.koordinator.sh/bind-gang-group-id"] == "default/g"

    told(story)


def test_members_whose_bindings_failed_are_tried_again() -> None:
    """The first one is bound, and seen to be, before the others fail."""

    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="4")
        gang = {
            "annotations": {
                "gang.scheduling.koordinator.sh/name": "g",
                "gang.scheduling.koordinator.sh/min-available": "3",
            }
        }
        for i in (1, 2):
            path = f"POST /api/v1/namespaces/{SPACE}/pods/g{i}/binding"
            rig.fake.faults.add(Fault(path.__eq__, status=500, before_s=0.3))
        async with scheduling(rig.here):
            for i in range(3):
                await rig.pod(f"g{i}", **gang)
            await rig.until_bound("g0", "g1", "g2")

    told(story)


def test_the_next_leader_finishes_what_waits() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="2")
        async with scheduling(rig.here):
            await rig.pod("p0")
            await rig.until_bound("p0")
        await rig.pod("p1")
        async with scheduling(rig.here) as made:
            await rig.until_bound("p1")
            assert len(scheduler_of(made).cluster.claims) == 2

    told(story)


def test_manager_and_scheduler_share_one_watch_of_pods() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here, roles=("manager", "scheduler")) as made:
            await rig.pod("p")
            await rig.until_bound("p")
            watched = [each for each in made.context.watches.all() if str(each.kind) == "pods"]
            assert len(watched) == 1
            assert made.leads("manager") and made.leads("scheduler")

    told(story)


def test_kubelet_that_refuses_pods_is_left_alone() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="8")
        async with scheduling(rig.here):
            await rig.pod("p")
            await rig.until_bound("p")
            status = {"status": {"phase": "Failed", "reason": "OutOfcpu"}}
            await rig.client.patch(PODS, "p", status, SPACE, subresource="status")
            await asyncio.sleep(0.2)
            await rig.pod("q")
            await rig.until_said("q", "refused a pod a moment ago")

    told(story)


def test_services_answer_where_the_process_leads() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with (
            scheduling(rig.here, extra={"debug_flags": True}) as made,
            aiohttp.ClientSession(f"http://127.0.0.1:{made.metrics_port}") as session,
        ):
            await rig.pod("p")
            await rig.pod("big", cpu="100")
            await rig.until_bound("p")
            await rig.until_said("big", "nodes are available")
            async with session.get("/apis/v1/nodes/a") as answer:
                found = await answer.json()
                assert found["requested"]["cpu"] == 1000 and found["remaining"]["cpu"] == 3000
            async with session.get("/apis/v1/nodes/none") as answer:
                assert answer.status == 404
                assert await answer.json() == {"message": "cannot find node none"}
            async with session.get("/apis/v1/__services__") as answer:
                assert "/apis/v1/nodes/:node" in (await answer.json())["GET"]
            for path in ("/plugins/Coscheduling/gangs", "/plugins/ElasticQuota/quotas", "/queue"):
                async with session.get(f"/apis/v1{path}") as answer:
                    assert answer.status == 200
            async with session.get("/apis/v1/explain/default/big") as answer:
                assert (await answer.json())["pod"] == "default/big"
            async with session.get("/metrics") as answer:
                page = await answer.text()
                assert 'attempts_total{result="scheduled",profile="koord-scheduler"} 1' in page
            async with session.put("/debug/flags/s", data="3") as answer:
                assert await answer.text() == "successfully set debugTopNScores to 3"
            async with session.put("/debug/flags/f", data="perhaps") as answer:
                assert answer.status == 400
            async with session.post("/debug/flags/f", data="true") as answer:
                assert (answer.status, await answer.text()) == (406, "unsupported http method")

    told(story)


def test_who_asks_why_is_answered() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="1")
        async with scheduling(rig.here) as made:
            await rig.pod("big", cpu="2")
            await rig.until_said("big", "nodes are available")
            await until(lambda: not len(scheduler_of(made).assumed))
            head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": QUESTIONS.name}
            spec = {"questionObjectKey": f"{SPACE}/big"}
            body = {**head, "metadata": {"name": "why"}, "spec": spec}
            await rig.client.create(QUESTIONS, body, SPACE)

            async with asyncio.timeout(60):
                while not (found := (await rig.client.get(QUESTIONS, "why", SPACE)).status):
                    await asyncio.sleep(0.05)
            assert found["schedulable"] is False and "Insufficient cpu" in found["failedMessage"]
            (detail,) = found["detailedExplanation"][0]["scheduleExplanation"]["nodeFailedDetails"]
            assert (detail["failedPlugin"], detail["failedNodes"]) == ("NodeResourcesFit", ["a"])

    told(story)


def test_a_defect_that_one_pod_meets_costs_that_pod_alone() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here) as made:
            scheduler = scheduler_of(made)
            before = scheduler.flags.before

            def fails(engine: Engine, pod: Pod) -> None:
                if pod.key.endswith("bad"):
                    raise KeyError("what nobody foresaw")
                before(engine, pod)

            scheduler.flags.before = fails  # type: ignore[method-assign]
            await rig.pod("bad")
            await rig.pod("good")
            await rig.until_bound("good")
            scheduler.flags.before = before  # type: ignore[method-assign]
            await rig.until_bound("bad")

    told(story)


def test_a_plugin_that_fails_on_the_way_costs_its_answer_and_not_the_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_about: object) -> None:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(LoadAware, "tick", fails)
    monkeypatch.setattr(DeviceShare, "recognise", fails)

    async def story(rig: Rig) -> None:
        await rig.node("a")
        async with scheduling(rig.here) as made:
            await rig.pod("foreign", scheduler="default-scheduler")
            await rig.client.bind(SPACE, "foreign", "a", uid="")
            await until(lambda: "default/foreign" in scheduler_of(made).cluster.claims)
            await rig.pod("p")
            await rig.until_bound("p")
            assert made.leads()

    with structlog.testing.capture_logs() as log:
        told(story)
    errors = [each["error"] for each in log if each["log_level"] == "error"]
    assert sorted(errors) == [
        f"plugin {name} failed: ZeroDivisionError('no such thing')"
        for name in ("DeviceShare", "LoadAwareScheduling")
    ]


def test_the_optimality_gap_is_exported_where_it_is_asked_for() -> None:
    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="4")
        async with scheduling(rig.here, extra={"optimality_gap": 0.1}) as made:
            page = made.context.metrics.page
            await rig.pod("first", cpu="3")
            await rig.until_bound("first")
            await until(lambda: 'optimality_gap_outcome{outcome="idle"} 1' in page())
            await rig.pod("late", cpu="2")
            await rig.until_said("late", "Insufficient cpu")
            await until(lambda: 'optimality_gap_outcome{outcome="solved"} 1' in page())
            assert "koord_scheduler_optimality_gap 0" in page()

    told(story)
