"""CPU burst in the whole daemon: throttled work gets more, and goes back to what kubelet gave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Wake, WakeKind
from tests.daemon.world import CPUS, NO_ALARMS, World
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
BURST, QUOTA = Resource.CPU_BURST_US, Resource.CPU_QUOTA_US
SHOP = """
[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"
cpu_limit = "500m"
"""


def burst(policy: str = "auto", **fields: int) -> str:
    lines = [f"{name} = {value}" for name, value in fields.items()]
    return "\n".join(["[slo.cpuBurstStrategy]", f'policy = "{policy}"', *lines, ""])


def _pod(world: World, quota_us: int, demand_cores: float) -> tuple[str, str]:
    """A Burstable pod with one limited container: cgroups of pod and container."""
    made = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    box = made.containers[0]
    world.processes["box"] = world.host.spawn(box, demand_cores=demand_cores, threads=CPUS)
    for cgroup in (made.pod, box):
        world.parts.cgroups.write(cgroup, QUOTA, quota_us)
    return made.pod, box


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_throttled_work_gets_more_and_gives_it_back(make_world: MakeWorld, layout: str) -> None:
    world = make_world(burst() + NO_ALARMS, layout)
    world.start()
    pod, box = _pod(world, 50_000, 1.2)
    world.run(2)
    assert world.value(box, BURST) == world.value(pod, BURST) == 50_000
    world.run(10)
    assert world.value(box, QUOTA) == world.value(pod, QUOTA) >= 120_000
    assert world.pod(UIDS["burstable"]).cpu_cores == pytest.approx(1.2, abs=0.05)
    (written, *_) = [
        d for d in world.views.explain(box, 50)().decisions
        if d.resource == QUOTA and d.result == "written"
    ]  # fmt: skip
    assert "is throttled and the shared CPUs are idle" in written.why.text
    names = {input_.name for input_ in written.why.inputs}
    assert {"quota without bursts", "container_cpu_throttled", "highest quota"} <= names

    world.application("noise", CPUS)
    before = world.value(box, QUOTA)
    world.run(8)
    assert world.value(box, QUOTA) < before

    world.reload(NO_ALARMS)
    world.run(1)
    assert [world.value(c, r) for c in (pod, box) for r in (QUOTA, BURST)] == [50_000, 0] * 2
    assert world.views.status().journal.entries == 0


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_an_application_bursts_and_switching_off_restores(
    make_world: MakeWorld, layout: str
) -> None:
    world = make_world(burst() + SHOP + NO_ALARMS, layout)
    world.application("shop", 1.0)
    world.start()
    world.parts.cgroups.write("shop", QUOTA, 50_000)
    world.run(130)  # quotas of running groups are looked at in turns
    assert world.value("shop", QUOTA) >= 100_000
    assert world.value("shop", BURST) == 50_000
    world.reload(burst() + SHOP + NO_ALARMS + "[strategies.cpu-burst]\nenable = false\n")
    world.run(1)
    assert (world.value("shop", QUOTA), world.value("shop", BURST)) == (50_000, 0)


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_a_resize_by_kubelet_is_the_new_base(make_world: MakeWorld, layout: str) -> None:
    world = make_world(burst() + NO_ALARMS, layout)
    world.start()
    pod, box = _pod(world, 50_000, 0.9)
    world.run(8)
    assert world.value(box, QUOTA) > 50_000
    for cgroup in (pod, box):
        world.parts.cgroups.write(cgroup, QUOTA, 200_000)
    world.run(3)
    assert world.value(box, QUOTA) == world.value(pod, QUOTA) == 200_000
    assert world.value(box, BURST) == world.value(pod, BURST) == 200_000
    world.reload(NO_ALARMS)
    world.run(1)
    assert world.value(box, QUOTA) == world.value(pod, QUOTA) == 200_000


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_a_normalized_quota_is_raised_from_where_it_is(make_world: MakeWorld, layout: str) -> None:
    node = '[node.annotations]\n"node.koordinator.sh/cpu-normalization-ratio" = "1.25"\n'
    world = make_world(burst("cfsQuotaBurstOnly") + NO_ALARMS + node, layout)
    world.start()
    pod, box = _pod(world, 50_000, 1.2)
    world.run(15)
    assert world.value(box, QUOTA) == 120_000  # 300 % of 40 ms, not of 50 ms
    if layout == "v2":  # where the pod is scaled, too
        assert world.value(pod, QUOTA) == 120_000
    world.host.set_demand(world.processes["box"], 0.0)
    world.reload(NO_ALARMS + node)
    world.run(12)
    assert world.value(box, QUOTA) == 40_000
    assert world.value(pod, QUOTA) == (40_000 if layout == "v2" else 50_000)
    world.reload(NO_ALARMS)
    world.run(12)
    assert world.value(box, QUOTA) == world.value(pod, QUOTA) == 50_000


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_a_normalized_quota_is_no_base_once_it_is_given_up(
    make_world: MakeWorld, layout: str
) -> None:
    node = '[node.annotations]\n"node.koordinator.sh/cpu-normalization-ratio" = "1.25"\n'
    world = make_world(burst("cfsQuotaBurstOnly") + NO_ALARMS + node, layout)
    world.start()
    pod, box = _pod(world, 50_000, 1.8)
    world.run(15)
    assert world.value(box, QUOTA) == 120_000
    world.reload(burst("cfsQuotaBurstOnly") + NO_ALARMS)
    world.run(12)
    assert world.value(box, QUOTA) == world.value(pod, QUOTA) == 150_000  # 300 % of 50 ms


def test_nothing_is_raised_where_there_is_no_limit_any_more(make_world: MakeWorld) -> None:
    """Kubelet takes the limit away under a quota that was normalized."""
    node = '[node.annotations]\n"node.koordinator.sh/cpu-normalization-ratio" = "1.25"\n'
    world = make_world(burst("cfsQuotaBurstOnly") + NO_ALARMS + node, "v2")
    world.start()
    pod, box = _pod(world, 50_000, 1.2)
    world.run(2)
    for cgroup in (pod, box):
        world.parts.cgroups.write(cgroup, QUOTA, UNLIMITED)
    world.run(14)
    assert world.value(box, QUOTA) == world.value(pod, QUOTA) == UNLIMITED


def test_a_restart_goes_on_where_it_was(make_world: MakeWorld) -> None:
    world = make_world(burst() + NO_ALARMS)
    world.start()
    pod, box = _pod(world, 50_000, 1.2)
    world.run(12)
    raised = world.value(box, QUOTA)
    assert raised != 50_000
    world.host.set_demand(world.processes["box"], 0.2)
    world.stop()
    world.start()
    world.run(3)
    assert world.value(box, QUOTA) == raised
    world.reload(NO_ALARMS)
    world.run(1)
    assert [world.value(c, r) for c in (pod, box) for r in (QUOTA, BURST)] == [50_000, 0] * 2


def test_an_alarm_raises_at_once_and_steps_stay_a_second_apart(make_world: MakeWorld) -> None:
    world = make_world(burst("cfsQuotaBurstOnly") + "[alarms]\npsi = false\n")
    world.start()
    _, box = _pod(world, 50_000, 0.4)
    world.run(2.1)
    assert world.value(box, QUOTA) == 50_000
    world.host.set_demand(world.processes["box"], 1.2)
    world.run(0.6)
    assert any(wake.kind is WakeKind.THROTTLED for wake in world.woken)
    assert world.value(box, QUOTA) == 130_000, "80 ms of a period that its CPUs stood still"
    world.host.set_demand(world.processes["box"], 2.0)
    world.run(0.5)  # the tick in between
    assert world.value(box, QUOTA) == 130_000
    world.run(1)
    assert world.value(box, QUOTA) == 150_000, "the ceiling"


@pytest.mark.parametrize("limit", ["", 'cpu_limit = "500m"\n'])
@pytest.mark.parametrize("foreign_us", [90_000, 400_000])
@pytest.mark.parametrize("then", [WakeKind.TICK, WakeKind.PSI, WakeKind.CHANGE, "restart"])
def test_what_somebody_gives_a_raised_application_is_never_cut_back(
    make_world: MakeWorld, then: str, foreign_us: int, limit: str
) -> None:
    """Neither by an answer to whatever alarm, nor by a daemon that starts after it."""
    application = SHOP.replace('cpu_limit = "500m"\n', limit)
    world = make_world(burst() + application + NO_ALARMS, "v1")
    world.application("shop", 1.0)
    world.start()
    world.parts.cgroups.write("shop", QUOTA, 50_000)
    world.run(130)  # quotas of running groups are looked at in turns
    assert world.value("shop", QUOTA) > 90_000
    world.host.set_demand(world.processes["shop"], 0.1)
    world.run(3)
    if then == "restart":
        world.stop()
        world.parts.cgroups.write("shop", QUOTA, foreign_us)
        world.start()
    else:
        world.parts.cgroups.write("shop", QUOTA, foreign_us)
        world.engine.tick(Wake(WakeKind(then), "shop"))
    found = [world.value("shop", QUOTA)]
    for _ in range(3):
        world.run(1)
        found.append(world.value("shop", QUOTA))
    assert found == [foreign_us] * 4
    assert not world.views.status().conflicts
    world.reload(NO_ALARMS)
    world.run(1)
    assert world.value("shop", QUOTA) == foreign_us


def test_a_throttled_period_between_two_alarms_counts(make_world: MakeWorld) -> None:
    """Pressure has just been answered with a sample that was still quiet."""
    world = make_world(burst("cfsQuotaBurstOnly") + NO_ALARMS)
    world.start()
    _, box = _pod(world, 50_000, 0.4)
    world.run(2.1)
    world.engine.tick(Wake(WakeKind.PSI, box))
    world.host.set_demand(world.processes["box"], 1.2)
    world.run(0.2)
    world.engine.tick(Wake(WakeKind.THROTTLED, box))
    assert world.value(box, QUOTA) > 50_000
