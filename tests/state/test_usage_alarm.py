"""Latency-sensitive work that takes more CPU than a plan left for it."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs import shape

from koordlet.decision.snapshot import WHOLE_NODE, Application, Pod, Wake, WakeKind
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.alarms import Mechanism
from koordlet.state.pressure import AlarmOptions
from koordlet.state.usage_alarm import MOST_GROUPS, Expected, margin_cores, signs

from .test_alarms import Bench
from .world import make_world

BE_DIR = "kubepods/besteffort"
TREE = Expected(0.5, 4, "kubepods", BE_DIR)
SHOP = "kubepods/burstable/podshop"


def bench(layout: str = "hybrid", **options: object) -> Bench:
    """Eight CPUs, so that nobody waits."""
    world = make_world(layout, topology=shape(cores_per_l3=8))
    for cgroup in ("web", "job"):
        world.host.make_cgroup(cgroup)
    return Bench(world, AlarmOptions(psi=False, **options))


def loaded(layout: str = "hybrid", *, best_effort: float = 2.0, **options: object) -> Bench:
    """LS uses half a core, and a plan that allows for it was made a second ago."""
    b = bench(layout, **options)
    for cgroup in (SHOP, f"{BE_DIR}/podjob"):
        b.world.host.make_cgroup(cgroup)
    b.shop = b.world.host.spawn(SHOP, demand_cores=0.5, threads=4)
    b.world.host.spawn(f"{BE_DIR}/podjob", demand_cores=best_effort, threads=4)
    b.alarms.watch((), ())
    plan(b)
    b.run(1.0)
    plan(b)
    return b


def plan(b: Bench, expected: Expected | None = TREE) -> None:
    b.alarms.expect_usage(expected)


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_a_step_is_an_alarm_within_three_looks_and_tells_what_is_used(layout: str) -> None:
    b = loaded(layout)
    b.run(1.0)
    assert b.wakes == []
    b.world.host.set_demand(b.shop, 2.0)
    b.run(0.15)
    (wake,) = b.wakes
    assert (wake.kind, wake.source) == (WakeKind.USAGE, WHOLE_NODE)
    assert wake.ls_cores == pytest.approx(2.0, abs=0.05)


def test_a_burst_of_one_look_is_none() -> None:
    b = loaded()
    for _ in range(5):
        b.world.host.set_demand(b.shop, 3.0)
        b.run(0.05)
        b.world.host.set_demand(b.shop, 0.5)
        b.run(0.15)
    assert b.wakes == []


def test_where_best_effort_uses_nothing_there_is_nothing_to_take() -> None:
    b = loaded(best_effort=0.05)
    b.world.host.set_demand(b.shop, 3.0)
    b.run(1.0)
    assert b.wakes == []


def test_the_plan_that_answers_is_the_new_measure() -> None:
    b = loaded(min_gap_s=0.1)
    b.world.host.set_demand(b.shop, 2.0)
    b.run(0.15)
    plan(b, Expected(b.wakes[0].ls_cores, 4, "kubepods", BE_DIR))
    b.run(1.0)
    assert len(b.wakes) == 1, "what was allowed for is no alarm"
    b.world.host.set_demand(b.shop, 3.0)
    b.run(0.15)
    assert b.wakes[-1].ls_cores == pytest.approx(3.0, abs=0.05)


def test_at_most_one_in_the_gap() -> None:
    b = loaded(min_gap_s=0.5)
    for cores in (1.2, 1.8, 2.4, 3.0):
        b.world.host.set_demand(b.shop, cores)
        b.run(0.2)
    assert len(b.wakes) == 2


def test_without_a_plan_nothing_is_looked_at() -> None:
    b = loaded()
    assert b.alarms.sampling
    assert [(a.kind, a.mechanism) for a in b.alarms.describe()] == [
        (WakeKind.USAGE, Mechanism.SAMPLED)
    ]
    plan(b, None)
    assert not b.alarms.sampling
    assert b.alarms.describe() == ()
    assert not b.world.host.open_files


def test_it_can_be_switched_off() -> None:
    b = loaded(usage=False)
    b.world.host.set_demand(b.shop, 3.0)
    b.run(1.0)
    assert b.wakes == [] and not b.alarms.sampling


def test_a_counter_that_cannot_be_read_is_told_and_costs_only_itself() -> None:
    b = loaded()
    b.world.host.faults.add("*kubepods/cpuacct.usage", op="read", errno=errno.EIO, times=3)
    b.run(0.1)
    (armed,) = b.alarms.describe()
    assert armed.mechanism is Mechanism.NONE and "cpuacct.usage" in armed.reason
    b.run(0.5)
    plan(b)
    b.run(1.0)
    plan(b)
    b.world.host.set_demand(b.shop, 3.0)
    b.run(0.15)
    assert len(b.wakes) == 1


def test_a_tier_made_anew_is_no_step() -> None:
    b = loaded()
    b.world.host.remove_cgroup(f"{BE_DIR}/podjob")
    b.world.host.remove_cgroup(BE_DIR)
    b.run(0.2)
    b.world.host.make_cgroup(f"{BE_DIR}/podjob")
    b.run(1.0)
    assert b.wakes == []


def test_an_application_takes_cpu() -> None:
    b = bench()
    web = b.world.host.spawn("web", demand_cores=0.2, threads=4)
    b.world.host.spawn("job", demand_cores=2.0, threads=4)
    apps = (Application("web", "web", QoSClass.LS), Application("job", "job", QoSClass.BE))
    b.alarms.watch((), apps)
    for _ in range(2):
        b.alarms.expect_usage(Expected(0.2, 4))
        b.run(1.0)
    b.world.host.set_demand(web, 1.5)
    b.run(0.15)
    assert b.wakes == [Wake(WakeKind.USAGE, WHOLE_NODE, pytest.approx(1.5, abs=0.05))]


def test_each_piece_of_work_counts_once() -> None:
    def app(cgroup: str, qos: QoSClass, *, present: bool = True) -> Application:
        return Application(cgroup.replace("/", "-"), cgroup, qos, present=present)

    labelled = Pod("u", "kubepods/burstable/podu", KubeQoS.BURSTABLE, raw_qos=QoSClass.BE)
    apps = (
        app("web", QoSClass.LS),
        app("web/inner", QoSClass.LSR),
        app("web/batch", QoSClass.BE),
        app("job", QoSClass.BE),
        app("job/job", QoSClass.BE),
        app("gone", QoSClass.LS, present=False),
        app(f"{BE_DIR}/x", QoSClass.LS),
        app("system", QoSClass.SYSTEM),
    )
    assert sorted(signs(TREE, (labelled,), apps)) == [
        ("job", 0, 1),
        ("kubepods", 1, 0),
        (BE_DIR, -1, 1),
        (f"{BE_DIR}/x", 1, -1),
        ("kubepods/burstable/podu", -1, 1),
        ("web", 1, 0),
        ("web/batch", -1, 1),
    ]


def test_groups_are_bounded_and_the_margin_grows_with_the_node() -> None:
    apps = tuple(Application(f"a{n}", f"a{n}", QoSClass.LS) for n in range(100))
    assert len(signs(TREE, (), apps)) == MOST_GROUPS
    assert margin_cores(2) == 0.2
    assert margin_cores(64) == pytest.approx(3.2)
