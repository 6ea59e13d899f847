"""An alarm wakes the strategy between two ticks: measured anew, decided, written, counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.decision.options import DEFAULTS
from koordlet.decision.plan import Decision, Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.decision.strategy import Strategy
from koordlet.engine.runs import Runs
from koordlet.report import metrics
from tests.daemon.world import APPLICATIONS, CPUS, NO_ALARMS, SAMPLE_S, World, suppress
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
BODY = suppress("cfsQuota") + APPLICATIONS
NO_PRESSURE = "[alarms]\npsi = false\nthrottled = false\nmemory = false\n"
WAKES = frozenset({WakeKind.PSI, WakeKind.THROTTLED, WakeKind.USAGE})


@pytest.mark.parametrize("layout", ["hybrid", "comount", "v2"])
@pytest.mark.parametrize("privileged", [False, True])
def test_pressure_of_ls_limits_be_before_the_next_tick(
    make_world: MakeWorld, layout: str, privileged: bool
) -> None:
    world = make_world(BODY, layout, cap_sys_resource=privileged)
    shop = world.application("shop", 0.2)
    world.application("batch", CPUS)
    world.start()
    world.run(20.4)
    mechanism = {alarm.name: alarm.mechanism for alarm in world.views.status().alarms}["psi shop"]
    assert mechanism == ("psi-trigger" if privileged else "sampled")
    world.woken.clear()
    before = world.limit_cores("batch")
    rounds = _rounds(world)
    world.host.set_demand(shop, 3.5)
    steps = 0
    while not world.woken and steps < 11:  # less than a second: no tick
        world.run(SAMPLE_S)
        steps += 1
    assert world.woken[0] == Wake(WakeKind.PSI, "shop")
    assert world.limit_cores("batch") < before
    assert _rounds(world) > rounds
    decision = next(d for d in world.views.explain("batch", 5)().decisions if d.result == "written")
    assert decision.wake == "psi shop"
    assert "alarm shop: tasks had to wait for a CPU" in world.texts()
    (alarm,) = [a for a in world.views.status().alarms if a.name == "psi shop"]
    assert alarm.count >= 1
    assert alarm.last_time is not None
    assert world.parts.metrics.scalars[metrics.ALARMS][(WakeKind.PSI,)] >= 1


def test_throttling_of_an_ls_pod_on_a_busy_node_is_an_alarm(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota"), "v1")
    pods = {q: world.host.make_pod("cgroupfs", q, UIDS[q], [BOX]) for q in UIDS}
    world.host.spawn(pods["burstable"].containers[0], demand_cores=2.0, threads=CPUS)
    world.host.spawn(pods["besteffort"].containers[0], demand_cores=CPUS, threads=CPUS)
    path = f"/sys/fs/cgroup/cpu/{pods['burstable'].pod}/cpu.cfs_quota_us"
    world.host.write(path, b"100000")
    world.start()
    world.run(3)
    throttled = [wake for wake in world.woken if wake.kind is WakeKind.THROTTLED]
    assert throttled
    assert throttled[0].source == pods["burstable"].pod
    (alarm,) = [a for a in world.views.status().alarms if a.name.startswith("throttled")]
    assert alarm.mechanism == "sampled"
    assert alarm.count == len(throttled)


def test_alarms_of_groups_that_are_gone_are_forgotten(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota"))
    pod = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    world.start()
    world.engine.alarmed(Wake(WakeKind.PSI, pod.pod))
    world.run(1)
    assert (WakeKind.PSI, pod.pod) in world.engine.alarms_heard
    world.host.remove_cgroup(pod.pod)
    world.run(1)
    assert (WakeKind.PSI, pod.pod) not in world.engine.alarms_heard


def test_alarms_switched_off_by_reload(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("shop", 3.0)
    world.application("batch", CPUS)
    world.start()
    world.run(2)
    assert world.woken
    world.reload(BODY + NO_ALARMS)
    world.woken.clear()
    world.run(5)
    assert world.woken == []
    assert world.views.status().alarms == ()
    assert not world.parts.alarms.sampling


def test_an_alarm_runs_only_what_it_wakes(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("batch", CPUS)
    world.start()
    world.run(3)
    hook, strategy = world.engine.runs["cpu-qos"], world.engine.runs["cpu-suppress"]
    before = hook.last_run
    world.host.advance(0.5)
    world.engine.tick(Wake(WakeKind.PSI, "shop"))
    assert hook.last_run == before
    assert strategy.last_run == world.host.time()
    assert world.value("batch", Resource.CPU_QUOTA_US) != -1


def _rounds(world: World) -> int:
    """Samples of the node's CPU so far."""
    return next(
        (s.count for s in world.views.query("node_cpu_usage", {}, 3600, "count")().series), 0
    )


def test_a_stretch_of_alarms_is_recorded_by_its_beginning(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota"))
    world.start()
    for _ in range(100):
        world.engine.alarmed(Wake(WakeKind.PSI, "shop"))
        world.host.advance(1.0)
    told = [text for text in world.texts() if text.startswith("alarm shop")]
    assert len(told) == 2
    assert any("(59 more times since the last such record)" in text for text in told)
    assert world.parts.metrics.scalars[metrics.ALARMS][(WakeKind.PSI,)] == 100
    world.host.advance(10)
    world.engine.alarmed(Wake(WakeKind.PSI, "shop"))
    assert len([t for t in world.texts() if t.startswith("alarm shop")]) == 3


def test_ls_that_takes_cpu_without_waiting_limits_be_before_the_next_tick(
    make_world: MakeWorld,
) -> None:
    """With 2 shares for best-effort an LS pod gets what it wants at once: no pressure tells."""
    world = make_world(suppress("cfsQuota") + NO_PRESSURE)
    pods = {q: world.host.make_pod("cgroupfs", q, UIDS[q], [BOX]) for q in UIDS}
    shop = world.host.spawn(pods["burstable"].containers[0], demand_cores=0.2, threads=CPUS)
    world.host.spawn(pods["besteffort"].containers[0], demand_cores=CPUS, threads=CPUS)
    world.start()
    world.run(20.4)
    (alarm,) = world.views.status().alarms
    assert (alarm.name, alarm.mechanism, alarm.count) == ("usage /", "sampled", 0)
    before = world.limit_cores("kubepods/besteffort")
    world.host.set_demand(shop, 1.0)
    world.run(3 * SAMPLE_S)
    assert [wake.kind for wake in world.woken if wake.kind in WAKES] == [WakeKind.USAGE]
    assert world.limit_cores("kubepods/besteffort") == pytest.approx(before - 0.8, abs=0.1)
    decision = next(
        d
        for d in world.views.explain("kubepods/besteffort", 5)().decisions
        if d.result == "written"
    )
    assert decision.wake == "usage /"
    assert "that LS has begun to use since" in decision.why.text
    assert any("uses more CPU than the last plan left for it" in text for text in world.texts())


def test_another_strategy_that_wakes_on_usage_switches_nothing_off(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + NO_PRESSURE)
    world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.start()
    other = Strategy(
        name="other",
        help="of a test",
        options=DEFAULTS,
        function=lambda snapshot, memory, _: Decision(Plan("other")),
        initial=None,
        wakes_on=frozenset({WakeKind.USAGE}),
    )
    world.engine.strategies += (other,)
    world.engine.runs["other"] = Runs("other", "strategy")
    world.run(3)
    assert world.parts.alarms.sampling


def test_who_no_longer_suppresses_no_longer_looks_at_usage(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + NO_PRESSURE)
    world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.start()
    world.run(3)
    assert world.parts.alarms.sampling
    world.reload(suppress("cfsQuota") + NO_PRESSURE + "[strategies.cpu-suppress]\nenable = false\n")
    world.run(2)
    assert not world.parts.alarms.sampling
