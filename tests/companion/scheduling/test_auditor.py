"""The workload auditor: each alert of docs/reference/central.md 9.7, and the whole role with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from koord_scheduler.daemon.process import Companion
from koord_scheduler.daemon.scheduler.auditing import (
    Alert,
    Course,
    Finding,
    Measure,
    Step,
    after,
    at_end,
)
from koord_scheduler.daemon.scheduler.auditor import (
    LINES_EVERY_S,
    MOST_LABELS,
    MOST_LINES,
    MOST_UNITS,
    Auditor,
    Outcome,
)
from koord_scheduler.daemon.scheduler.watching import AuditLimits, Watching
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.plan.queue import Unit
from koord_scheduler.services.metrics import Metrics
from koordlet.protocol.qos import PriorityClass
from tests.companion.daemon.cluster import PODS, fake_here
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling
from tests.kube.worlds import until

C, N, L, G = Step.CREATED, Step.NOMINATED, Step.VICTIMS_LEAVE, Step.VICTIMS_GONE
F, X, S, W, A = Step.FAILED, Step.NO_ROOM, Step.SCHEDULED, Step.GATED, Step.ADMITTED
E, T = Step.ENOUGH_MEMBERS, Step.ALL_TRIED
Steps = list[tuple[float, Step]]
LIMITS = AuditLimits()


def played(steps: Steps, limits: AuditLimits = LIMITS) -> tuple[Course, list[Finding]]:
    course, found = Course(), list[Finding]()
    for at_s, step in steps:
        course, more = after(course, step, at_s, limits)
        found += more
    return course, found


ALERTS: dict[str, tuple[Steps, list[Alert]]] = {
    "a smooth way": ([(0, C), (1, F), (5, S)], []),
    "a smooth preemption": ([(0, C), (1, N), (3, L), (9, G), (12, S)], []),
    "nominated again": ([(0, C), (1, N), (2, N)], [Alert.INVALIDATED, Alert.REPEATED]),
    "a failure takes it back": ([(0, C), (1, N), (2, F)], [Alert.INVALIDATED]),
    "no room takes it back": ([(0, C), (1, N), (2, X)], [Alert.INVALIDATED]),
    "taken back once": ([(0, C), (1, N), (2, F), (3, X), (4, F)], [Alert.INVALIDATED]),
    "taken back after its victims": ([(0, C), (1, N), (2, G), (3, F)], [Alert.INVALIDATED]),
    "again after a failure": (
        [(0, C), (1, N), (2, F), (3, N)],
        [Alert.INVALIDATED, Alert.REPEATED],
    ),
    "late after its victims": ([(0, C), (1, N), (2, G), (12.1, S)], [Alert.SLOW_RESCHEDULE]),
    "in time after its victims": ([(0, C), (1, N), (2, G), (12, S)], []),
    "victims leave is no result": (
        [(0, C), (1, N), (2, G), (3, L), (13, S)],
        [Alert.SLOW_RESCHEDULE],
    ),
    "gated meanwhile": ([(0, C), (1, N), (2, G), (3, W), (90, A), (91, S)], []),
    "victims that stay": ([(0, C), (1, N), (31.1, G), (32, S)], [Alert.SLOW_DELETION]),
    "in time with victims": ([(0, C), (1, N), (31, G), (32, S)], []),
    "placed beside its victims": ([(0, C), (1, N), (40, S)], [Alert.INTERRUPTED]),
    "three tries": ([(0, C), (1, N), (2, L), (3, L), (4, L), (5, G), (6, S)], []),
    "four tries": (
        [(0, C), (1, N), (2, L), (3, L), (4, L), (5, L), (6, G), (7, S)],
        [Alert.RETRIES],
    ),
    "tries of each preemption": (
        [(0, C), (1, N), (2, L), (3, L), (4, N), (5, L), (6, L), (7, G), (8, S)],
        [Alert.INVALIDATED, Alert.REPEATED],
    ),
    "five minutes": ([(0, C), (300, F), (600, F)], []),
    "more than five minutes": ([(0, C), (300.1, F), (400, F)], [Alert.SLOW_STEPS]),
    "a gate ends the round": ([(0, C), (1, F), (2, W), (900, A), (901, F)], []),
    "members that come late": ([(0, C), (900, E), (901, T), (902, S)], []),
    "a gang nobody tries": ([(0, C), (1, E), (400, T)], [Alert.SLOW_STEPS]),
    "victims gone is no result": (
        [(0, C), (1, N), (9, G), (301.1, S)],
        [Alert.SLOW_RESCHEDULE, Alert.SLOW_STEPS],
    ),
}


@pytest.mark.parametrize("name", ALERTS)
def test_alerts(name: str) -> None:
    steps, alerts = ALERTS[name]
    found = played(steps)[1]
    assert [each.alert for each in found if each.alert is not None] == alerts


def test_every_alert_has_a_story_and_every_step_is_counted() -> None:
    assert {alert for _, alerts in ALERTS.values() for alert in alerts} == set(Alert)
    course, _ = played([(0, C), (1, F), (2, F), (3, S)])
    assert course.counts == {C: 1, F: 2, S: 1}


def test_what_is_measured() -> None:
    course, found = played([(0, C), (1, N), (3, L), (9, G), (12, S)])
    assert found == [
        Finding(Measure.INTERVAL_S, 1),
        Finding(Measure.INTERVAL_S, 2),
        Finding(Measure.DELETION_S, 8),
        Finding(Measure.RETRIES, 1),
        Finding(Measure.RESCHEDULE_S, 3),
        Finding(Measure.INTERVAL_S, 9),
    ]
    assert at_end(course, 20, LIMITS) == ()


def test_a_preemption_that_its_end_interrupts_is_measured() -> None:
    course, _ = played([(0, C), (1, N), (2, L)])
    assert at_end(course, 42, LIMITS) == (
        Finding(Measure.INTERRUPTED_S, 41, Alert.INTERRUPTED),
        Finding(Measure.RETRIES, 1),
    )


def test_limits_are_those_that_are_given() -> None:
    limits = AuditLimits(0, 0, 0, 0)
    alerts = {each.alert for each in played([(0, C), (1, N), (2, L), (3, G), (4, S)], limits)[1]}
    assert alerts == {
        Alert.SLOW_STEPS,
        Alert.SLOW_DELETION,
        Alert.RETRIES,
        Alert.SLOW_RESCHEDULE,
    }


# The auditor.


class Hands:
    def __init__(self, labels: tuple[tuple[str, str], ...] = ()) -> None:
        self.now_s = 0.0
        self.metrics = Metrics()
        self.auditor = Auditor(self.metrics, LIMITS, labels, lambda: self.now_s)
        self.cls = PodClass(number=1, namespace="a", priority_class=PriorityClass.PROD)

    def pod(self, name: str, **more: Any) -> Pod:
        return Pod(key=f"a/{name}", uid=name, cls=self.cls, **more)

    def waits(self, name: str, gate: str = "", **more: Any) -> None:
        pod = self.pod(name, **more)
        unit_name = f"gang:a/{name}" if pod.gang else pod.key
        self.auditor.waits(Unit(unit_name, pods=(pod.key,), gate=gate), pod)

    def page(self) -> str:
        return self.metrics.page()


def test_what_ends_is_counted_and_forgotten() -> None:
    hands = Hands()
    for name in ("p", "q"):
        hands.waits(name)
        hands.waits(name)
        hands.auditor.step(f"a/{name}", Step.FAILED)
    assert "auditor_tracked 2" in hands.page()
    hands.auditor.ended("a/p", Outcome.SCHEDULED)
    hands.auditor.ended("a/q", Outcome.DELETED)
    hands.auditor.ended("a/q", Outcome.DELETED)
    page, name = hands.page(), "scheduler_workload_auditor_scheduling_events_before_outcome_sum"
    for labels in (
        'event_type="create",outcome="scheduled"',
        'event_type="scheduled",outcome="scheduled"',
        'event_type="scheduleFailure",outcome="deleted"',
    ):
        assert f'{name}{{priority="koord-prod",{labels}}} 1' in page
    assert 'event_type="scheduled",outcome="deleted"' not in page
    assert "auditor_tracked 0" in page


def test_a_gang_group_lacks_members_and_a_pod_has_gates() -> None:
    hands = Hands()
    hands.waits("g", gate="2 of 3 members", gang="a/g")
    hands.waits("g", gang="a/g")
    hands.waits("p", gates=("wait",))
    hands.waits("p")
    hands.auditor.ended("gang:a/g", Outcome.SCHEDULED)
    hands.auditor.ended("a/p", Outcome.SCHEDULED)
    page = hands.page()
    for event, outcome in (
        ("gangMinMemberSatisfied", "gangScheduled"),
        ("gatedByQueueAdmission", "scheduled"),
        ("admissionPassed", "scheduled"),
    ):
        assert f'_count{{priority="koord-prod",event_type="{event}",outcome="{outcome}"}} 1' in page


def test_the_last_victim_ends_a_preemption() -> None:
    hands = Hands()
    hands.waits("p")
    hands.auditor.nominated("a/p", [hands.pod("v"), hands.pod("w")])
    hands.now_s = 4
    hands.auditor.gone(hands.pod("v"))
    assert 'deleted_seconds_sum{priority="koord-prod"}' not in hands.page()
    hands.now_s = 5
    hands.auditor.gone(hands.pod("w"))
    assert 'deleted_seconds_sum{priority="koord-prod"} 5' in hands.page()


def test_victims_of_what_ended_are_nobodys() -> None:
    hands = Hands()
    hands.waits("p")
    hands.auditor.nominated("a/p", [hands.pod("v")])
    hands.auditor.ended("a/p", Outcome.DELETED)
    hands.auditor.gone(hands.pod("v"))
    hands.waits("q")
    hands.auditor.nominated("a/q", [hands.pod("v")])
    hands.auditor.nominated("a/q", [hands.pod("w")])
    hands.auditor.gone(hands.pod("v"))
    assert "deleted_seconds_count{" not in hands.page()
    hands.auditor.clear()
    hands.auditor.gone(hands.pod("w"))
    assert "deleted_seconds_count{" not in hands.page()


def test_labels_of_pods_become_labels_of_metrics_within_bounds() -> None:
    hands = Hands((("team", "example.com/team"),))
    for i in range(MOST_LABELS + 10):
        hands.waits(f"p{i}", labels={"example.com/team": f"t{i}"})
        hands.auditor.step(f"a/p{i}", Step.FAILED)
    page = hands.page()
    name = "scheduler_workload_auditor_scheduling_event_interval_seconds_count"
    assert page.count(name + "{") == MOST_LABELS
    assert f'{name}{{priority="koord-prod",team="t0"}} 1' in page
    assert f'{name}{{priority="other",team="other"}} 11' in page


def test_units_beyond_the_bound_are_counted_and_left_alone() -> None:
    hands = Hands()
    for i in range(MOST_UNITS + 3):
        hands.waits(f"p{i}")
    page = hands.page()
    assert f"auditor_tracked {MOST_UNITS}" in page
    assert "auditor_untracked_total 3" in page
    hands.auditor.step(f"a/p{MOST_UNITS + 1}", Step.FAILED)
    hands.auditor.ended(f"a/p{MOST_UNITS + 1}", Outcome.SCHEDULED)
    assert hands.page() == page


def test_an_alert_is_counted_each_time_and_logged_once_for_a_unit() -> None:
    hands = Hands()
    with structlog.testing.capture_logs() as log:
        for i in range(MOST_LINES + 5):
            hands.waits(f"p{i}")
        for _ in range(2):
            hands.now_s += 301
            for i in range(MOST_LINES + 5):
                hands.auditor.step(f"a/p{i}", Step.FAILED, "0/3 nodes")
    kind = Alert.SLOW_STEPS.value
    assert f'alerts_total{{alert="{kind}"}} {2 * (MOST_LINES + 5)}' in hands.page()
    alerts = [each for each in log if each.get("alert") == kind]
    assert len(alerts) == MOST_LINES + 5, "the rest is told when there are lines again"
    assert alerts[0] == {
        "event": "workload auditor: alert",
        "log_level": "warning",
        "alert": kind,
        "unit": "a/p0",
        "labels": "koord-prod",
        "value": 301,
        "trigger": "scheduleFailure",
        "why": "0/3 nodes",
    }
    assert [each["alerts"] for each in log if "alerts" in each] == [5]
    assert LINES_EVERY_S < 301


# The role.


def page_of(made: Companion) -> str:
    metrics: Metrics = scheduler_of(made).context.metrics
    return metrics.page()


def test_the_role_tells_of_a_preemption_that_takes_too_long() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            rig = Rig(here, fake)
            await rig.node("a", cpu="2")
            watching = Watching(audit=AuditLimits(deletion_s=0.0))
            async with scheduling(here, extra={"watching": watching}) as made:
                await rig.pod("low", cpu="2", priority=1)
                await rig.until_bound("low")
                await rig.pod("high", cpu="2", priority=1000)
                await rig.until_bound("high")
                auditor = scheduler_of(made).auditor
                assert auditor is not None
                await until(lambda: "auditor_tracked 0" in page_of(made))
                page = page_of(made)
        for event, outcome in (
            ("preemptNominated", "scheduled"),
            ("victimAllDeleted", "scheduled"),
        ):
            labels = f'event_type="{event}",outcome="{outcome}"'
            assert f'before_outcome_count{{priority="koord-prod",{labels}}} 1' in page
        assert 'alerts_total{alert="slowVictimDeletion"} 1' in page
        assert 'victim_reschedule_duration_seconds_count{priority="koord-prod"} 1' in page

    with structlog.testing.capture_logs() as log:
        asyncio.run(story())
    (alert,) = [each for each in log if "alert" in each]
    assert (alert["alert"], alert["unit"], alert["trigger"]) == (
        "slowVictimDeletion",
        "default/high",
        "victimAllDeleted",
    )


def test_the_role_follows_gangs_gates_and_pods_that_go() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            rig = Rig(here, fake)
            await rig.node("a", cpu="2")
            async with scheduling(here, extra={"watching": Watching(audit=LIMITS)}) as made:
                gang = {
                    "gang.scheduling.koordinator.sh/name": "g",
                    "gang.scheduling.koordinator.sh/min-available": "2",
                }
                await rig.pod("m0", annotations=gang)
                await until(lambda: "auditor_tracked 1" in page_of(made))
                await rig.pod("m1", annotations=gang)
                await rig.until_bound("m0", "m1")
                await until(lambda: "auditor_tracked 0" in page_of(made))
                await rig.pod("big", cpu="2")
                await rig.until_said("big", "Insufficient cpu")
                await rig.client.delete(PODS, "big", SPACE)
                await until(lambda: "auditor_tracked 0" in page_of(made))
                page = page_of(made)
        for event, outcome in (
            ("create", "gangScheduled"),
            ("gangMinMemberSatisfied", "gangScheduled"),
            ("create", "deleted"),
        ):
            labels = f'event_type="{event}",outcome="{outcome}"'
            assert f'before_outcome_count{{priority="koord-prod",{labels}}} 1' in page
        failures = 'event_type="preemptFailure",outcome="deleted"'
        assert f'before_outcome_count{{priority="koord-prod",{failures}}} 1' in page

    asyncio.run(story())


def test_there_is_no_auditor_unless_it_is_asked_for() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            await Rig(here, fake).node("a")
            async with scheduling(here) as made:
                assert scheduler_of(made).auditor is None
                assert "workload_auditor" not in page_of(made)

    asyncio.run(story())
