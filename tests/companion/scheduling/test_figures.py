"""Metrics of the scheduler (docs/reference/central.md 9.3, 9.4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from koord_scheduler.daemon.scheduler.figures import job_size
from koord_scheduler.daemon.scheduler.monitor import Monitor
from koord_scheduler.daemon.scheduler.setup import Setup
from koord_scheduler.daemon.scheduler.watching import MonitorLimits
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.plan.profile import read_profiles
from koord_scheduler.plan.queue import Unit
from koord_scheduler.services.metrics import Metrics
from tests.companion.daemon.cluster import fake_here
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling
from tests.kube.worlds import until


@pytest.mark.parametrize(
    ("members", "label"),
    [
        (0, "0"),
        (1, "1-100"),
        (100, "1-100"),
        (101, "101-200"),
        (1000, "901-1000"),
        (1001, "1000+"),
    ],
)
def test_sizes_of_gangs(members: int, label: str) -> None:
    assert job_size(members) == label


class Watch:
    """``begin``, ``end``: of a pod ``p`` of the profile ``koord``."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.metrics = Metrics()
        pod = Pod(key="p", uid="", cls=PodClass(number=1, namespace=""), scheduler="koord")
        limits = MonitorLimits(period_s=10, timeout_s=30)
        self.monitor = Monitor(self.metrics, limits, {"p": pod}, lambda: self.now_s)

    def begin(self) -> None:
        self.monitor.began(Unit("p", pods=("p",)))

    def end(self) -> None:
        self.monitor.ended("p")

    def look(self, after_s: float) -> None:
        self.now_s += after_s
        self.monitor.look()

    def count(self) -> int:
        (family,) = text_string_to_metric_families(self.metrics.page())
        assert all(each.labels == {"profile": "koord"} for each in family.samples)
        return int(sum(each.value for each in family.samples))


def test_an_attempt_that_takes_too_long_is_counted_at_each_look_and_logged_once() -> None:
    watch = Watch()
    with structlog.testing.capture_logs() as log:
        watch.begin()
        watch.look(30)
        assert watch.count() == 0
        watch.look(9)
        assert watch.count() == 0, "a look is due after 10 s"
        watch.look(1)
        watch.look(10)
        watch.end()
        assert watch.count() == 3
        watch.look(10)
        assert watch.count() == 3
        watch.begin()
        watch.now_s += 31
        watch.end()
        assert watch.count() == 4
    assert [each["event"] for each in log] == ["!!!CRITICAL TIMEOUT!!! scheduling pod"] * 2
    assert log[0]["unit"] == "p" and log[0]["seconds"] == 40


def test_what_another_leader_decides_is_not_looked_at() -> None:
    watch = Watch()
    watch.begin()
    watch.monitor.clear()
    watch.look(60)
    assert watch.count() == 0


def samples(page: str, name: str, **labels: str) -> dict[str, float]:
    """By the rest of the name after ``name_``, of series with these labels."""
    families = {each.name: each for each in text_string_to_metric_families(page)}
    family = families[f"scheduler_{name}"]
    assert family.type == "histogram"
    return {
        each.name.removeprefix(f"scheduler_{name}_") + each.labels.get("le", ""): each.value
        for each in family.samples
        if labels.items() <= each.labels.items()
    }


def test_nodes_that_a_pod_was_tried_on_and_the_queue() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            rig = Rig(here, fake)
            for name, cpu in (("a", "1"), ("b", "8"), ("c", "8")):
                await rig.node(name, cpu=cpu)
            async with scheduling(here) as made:
                await rig.pod("p", cpu="2")
                await rig.until_bound("p")
                await rig.pod("big", cpu="64")
                await rig.until_said("big", "Insufficient cpu")
                page = scheduler_of(made).context.metrics.page()
        tried = samples(page, "pod_scheduling_evaluated_nodes")
        assert (tried["count"], tried["sum"], tried["bucket2"], tried["bucket4"]) == (2, 6, 0, 2)
        assert "bucket8.388608e+06" in tried and len(tried) == 24 + 3
        fits = samples(page, "pod_scheduling_feasible_nodes")
        assert (fits["count"], fits["sum"], fits["bucket1"], fits["bucket2"]) == (2, 2, 1, 2)
        taken = samples(page, "next_pod_delete_from_queue_latency")
        assert taken["count"] == 2 and "bucket1e-05" in taken

    asyncio.run(story())


@pytest.mark.parametrize("owed_s", [0.0, 0.102])
def test_gangs_and_the_room_that_is_made_for_them(owed_s: float) -> None:
    """Also where their namespace must rest from looking for victims for a while."""
    annotations = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "2",
    }
    arguments = {"enablePreemption": True}
    tree: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "pluginConfig": [{"name": "Coscheduling", "args": arguments}],
                "plugins": {"preEnqueue": {"enabled": [{"name": "Coscheduling"}]}},
            }
        ],
    }

    async def story() -> None:
        async with fake_here() as (here, fake):
            rig = Rig(here, fake)
            await rig.node("a", cpu="2")
            extra = {"scheduler": Setup(read_profiles(tree))}
            async with scheduling(here, extra=extra) as made:
                await rig.pod("low", cpu="2", priority=1)
                await rig.until_bound("low")
                scheduler = scheduler_of(made)
                scheduler.queue.accounts.of(SPACE).evictions.owe(owed_s, scheduler.now_s())
                for name in ("m0", "m1"):
                    await rig.pod(name, priority=1000, annotations=annotations)
                await rig.until_bound("m0", "m1")
                await until(lambda: not scheduler_of(made).assumed)
                page = scheduler_of(made).context.metrics.page()
        name = "gang_schedule_cycle_duration_seconds"
        for reason in ("all_pending_pods_is_already_attempted", "gang_is_succeed"):
            cycles = samples(page, name, reason=reason, job_size="1-100")
            assert cycles["count"] >= 1 and "bucket7.5" in cycles
        made_room = samples(page, "job_preemption_duration_seconds", result="preempt success")
        assert made_room["count"] == 1 and "bucket524.288" in made_room
        assert 'jobName="default/g"' in page

    asyncio.run(story())


def test_writes_to_quotas_are_timed() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            rig = Rig(here, fake)
            await rig.node("a")
            async with scheduling(here) as made:
                page = scheduler_of(made).context.metrics.page
                await until(lambda: 'operation="status",le' in page())
                name = "update_elastic_quota_status_duration_seconds"
                await until(lambda: samples(page(), name)["count"] > 0)
                assert "bucket16.384" in samples(page(), name)
                assert samples(page(), "elastic_quota_process_latency", operation="status")["count"]

    asyncio.run(story())
