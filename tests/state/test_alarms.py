"""Alarms on the fake machine: triggers where the kernel allows them, else the sampler."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs import Process

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import WHOLE_NODE, Application, Container, Pod, Wake, WakeKind
from koordlet.kernel.parse import meminfo
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.alarms import Alarms, Mechanism
from koordlet.state.pressure import AlarmOptions

from .world import World, make_world

WEB = Application("web", "web", QoSClass.LS)
JOB = Application("job", "job", QoSClass.BE)
PRESSURE = "/sys/fs/cgroup/unified/web/cpu.pressure"


class Bench:
    def __init__(self, world: World, options: AlarmOptions | None = None) -> None:
        self.world = world
        self.wakes: list[Wake] = []
        self.cpu_s = 0.0
        self.cost_s = 0.0  # what each call of the process clock adds
        self.alarms = Alarms(
            world.host, world.cgroups, self.wakes.append, options, cpu_seconds=self._cpu
        )

    def _cpu(self) -> float:
        self.cpu_s += self.cost_s
        return self.cpu_s

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.world.host.advance(0.05)
            self.alarms.sample()

    def mechanisms(self) -> dict[tuple[str, WakeKind], Mechanism]:
        return {(a.source, a.kind): a.mechanism for a in self.alarms.describe()}


def bench(layout: str = "hybrid", *, cap: bool = False, **options: object) -> Bench:
    world = make_world(layout, cap_sys_resource=cap)
    for cgroup in ("web", "job"):
        world.host.make_cgroup(cgroup)
    return Bench(world, AlarmOptions(**options))


def test_triggers_where_short_windows_are_allowed() -> None:
    b = bench(cap=True)
    b.alarms.watch((), (WEB, JOB))
    assert b.mechanisms() == {
        (WHOLE_NODE, WakeKind.PSI): Mechanism.TRIGGER,
        ("web", WakeKind.PSI): Mechanism.TRIGGER,
    }
    assert not b.alarms.sampling
    b.world.host.advance(1)
    assert b.wakes == []
    b.world.host.stall(PRESSURE, some=0.5)
    b.world.host.advance(1)
    assert b.wakes and set(b.wakes) == {Wake(WakeKind.PSI, "web")}
    b.alarms.close()
    count = len(b.wakes)
    b.world.host.advance(2)
    assert len(b.wakes) == count


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_the_sampler_stands_in_and_says_why(layout: str) -> None:
    b = bench(layout)
    b.alarms.watch((), (WEB, JOB))
    assert b.mechanisms()["web", WakeKind.PSI] is Mechanism.SAMPLED
    assert all(
        "refused" in armed.reason and "0.5 s" in armed.reason for armed in b.alarms.describe()
    )
    assert b.alarms.sampling
    b.run(1)
    assert b.wakes == []
    path = PRESSURE if layout == "hybrid" else "/sys/fs/cgroup/web/cpu.pressure"
    b.world.host.stall(path, some=0.5)
    b.run(0.15)
    assert b.wakes == [Wake(WakeKind.PSI, "web")]


def test_an_alarm_is_repeated_at_most_once_in_the_gap() -> None:
    b = bench(min_gap_s=0.5)
    b.alarms.watch((), (WEB,))
    b.world.host.stall(PRESSURE, some=1.0)
    b.run(2.05)
    assert b.wakes == [Wake(WakeKind.PSI, "web")] * 4


def test_the_node_tells_only_the_beginning() -> None:
    b = bench()
    b.alarms.watch((), ())
    b.world.host.stall("/proc/pressure/cpu", some=1.0)
    b.run(5)
    assert b.wakes == [Wake(WakeKind.PSI, WHOLE_NODE)]
    b.world.host.stall("/proc/pressure/cpu", some=0.0)
    b.run(3)
    b.world.host.stall("/proc/pressure/cpu", some=1.0)
    b.run(1)
    assert len(b.wakes) == 2


def test_an_application_called_node_is_not_the_whole_node() -> None:
    b = bench()
    b.world.host.make_cgroup("node")
    b.alarms.watch((), (Application("node", "node", QoSClass.LS),))
    assert set(b.mechanisms()) == {(WHOLE_NODE, WakeKind.PSI), ("node", WakeKind.PSI)}
    b.world.host.stall(PRESSURE.replace("web", "node"), some=1.0)
    b.run(2.05)
    assert b.wakes == [Wake(WakeKind.PSI, "node")] * 4
    b.world.host.stall("/proc/pressure/cpu", some=1.0)
    b.run(0.15)
    assert Wake(WakeKind.PSI, WHOLE_NODE) in b.wakes


def pod(qos: KubeQoS = KubeQoS.BURSTABLE, uid: str = "u1") -> Pod:
    cgroup = f"kubepods/burstable/pod{uid}"
    return Pod(
        uid=uid,
        cgroup=cgroup,
        kube_qos=qos,
        containers=(Container("c1", f"{cgroup}/c1"), Container("c2", f"{cgroup}/c2")),
    )


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_a_throttled_container_of_an_ls_pod(layout: str) -> None:
    b = bench(layout)
    ls = pod()
    for container in ls.containers:
        b.world.host.make_cgroup(container.cgroup)
    b.world.cgroups.write(ls.containers[0].cgroup, Resource.CPU_QUOTA_US, 10_000)
    b.alarms.watch((ls,), ())
    mechanisms = b.mechanisms()
    assert mechanisms[ls.containers[0].cgroup, WakeKind.THROTTLED] is Mechanism.SAMPLED
    assert (ls.containers[1].cgroup, WakeKind.THROTTLED) not in mechanisms
    b.run(0.5)
    assert WakeKind.THROTTLED not in {wake.kind for wake in b.wakes}
    b.world.host.spawn(ls.containers[0].cgroup, demand_cores=1)
    b.run(0.5)
    assert Wake(WakeKind.THROTTLED, ls.containers[0].cgroup) in b.wakes


def test_best_effort_and_absent_are_not_watched() -> None:
    b = bench()
    gone = Application("gone", "gone", QoSClass.LS, present=False)
    b.alarms.watch((pod(KubeQoS.BEST_EFFORT),), (JOB, gone))
    assert {source for source, _ in b.mechanisms()} == {WHOLE_NODE}


def test_no_pressure_file_is_said_and_tried_again() -> None:
    b = bench()
    later = Application("later", "later", QoSClass.LS)
    b.alarms.watch((), (later,))
    assert b.mechanisms()["later", WakeKind.PSI] is Mechanism.NONE
    b.world.host.make_cgroup("later")
    b.alarms.watch((), (later,))
    assert b.mechanisms()["later", WakeKind.PSI] is Mechanism.SAMPLED


def test_pure_v1_without_pressure() -> None:
    b = bench("v1")
    b.alarms.watch((), (WEB,))
    web = next(armed for armed in b.alarms.describe() if armed.source == "web")
    assert web.mechanism is Mechanism.NONE and "cpu.pressure" in web.reason


def test_a_vanished_group_and_an_io_error_cost_only_themselves() -> None:
    b = bench()
    other = Application("other", "other", QoSClass.LSR)
    b.world.host.make_cgroup("other")
    b.alarms.watch((), (WEB, other))
    b.run(0.2)
    b.world.host.remove_cgroup("web")
    b.world.host.stall("/sys/fs/cgroup/unified/other/cpu.pressure", some=1.0)
    b.run(0.3)
    assert b.wakes == [Wake(WakeKind.PSI, "other")]
    assert b.mechanisms()["web", WakeKind.PSI] is Mechanism.NONE
    b.world.host.faults.add("*other/cpu.pressure", op="read", errno=errno.EIO)
    b.run(0.1)
    assert b.mechanisms()["other", WakeKind.PSI] is Mechanism.NONE
    b.alarms.watch((), (other,))
    assert b.mechanisms() == {
        (WHOLE_NODE, WakeKind.PSI): Mechanism.SAMPLED,
        ("other", WakeKind.PSI): Mechanism.SAMPLED,
    }


def test_a_group_made_anew_is_read_on() -> None:
    b = bench()
    b.alarms.watch((), (WEB,))
    b.run(0.2)
    b.world.host.remove_cgroup("web")
    b.world.host.make_cgroup("web")
    b.world.host.stall(PRESSURE, some=1.0)
    b.run(0.3)
    assert b.wakes == [Wake(WakeKind.PSI, "web")]


def test_files_are_closed_when_no_longer_wanted() -> None:
    b = bench()
    before = len(b.world.host.open_files)
    b.alarms.watch((), (WEB,))
    b.run(0.1)
    assert len(b.world.host.open_files) == before + 2
    b.alarms.watch((), ())
    b.run(0.1)
    assert len(b.world.host.open_files) == before + 1
    b.alarms.close()
    assert len(b.world.host.open_files) == before


def test_a_turn_reads_no_more_than_it_may() -> None:
    b = bench(max_reads=5)
    apps = tuple(Application(f"a{n}", f"a{n}", QoSClass.LS) for n in range(20))
    for app in apps:
        b.world.host.make_cgroup(app.cgroup)
    b.alarms.watch((), apps)
    fault = b.world.host.faults.before("*cpu.pressure", lambda: None, op="read", times=None)
    b.alarms.sample()
    assert fault.hits <= 5
    b.world.host.stall("/sys/fs/cgroup/unified/a13/cpu.pressure", some=1.0)
    b.run(1)
    assert b.wakes == [Wake(WakeKind.PSI, "a13")] * len(b.wakes) and b.wakes


def test_an_expensive_sampler_reads_less() -> None:
    b = bench(max_reads=40)
    b.alarms.watch((), (WEB,))
    b.cost_s = 0.001
    b.run(1.1)
    assert b.alarms.cost_cores == pytest.approx(0.02, rel=0.2)
    assert b.alarms._reads == 20


LIMIT = 1 << 30


def memory_bench(**options: object) -> tuple[Bench, Process]:
    """No more than ``LIMIT`` is an alarm; all but twice that is free at first."""
    b = bench(psi=False, **options)
    total = meminfo(b.world.host.read("/proc/meminfo")).total_bytes
    b.alarms.watch_memory(total - LIMIT)
    return b, b.world.host.spawn("job")


def test_memory_is_an_alarm_when_it_becomes_short_and_no_longer_than_a_while() -> None:
    b, leak = memory_bench()
    assert b.mechanisms() == {(WHOLE_NODE, WakeKind.MEMORY): Mechanism.SAMPLED}
    assert b.alarms.sampling
    b.run(2)
    assert b.wakes == []
    for _ in range(2):
        b.wakes.clear()
        b.world.host.set_memory(leak, LIMIT)
        b.run(0.05)
        assert b.wakes == [Wake(WakeKind.MEMORY, WHOLE_NODE)]
        b.run(0.6)
        assert len(b.wakes) == 2, "the first may have come too early for new figures"
        b.run(20)
        assert len(b.wakes) <= 3
        b.world.host.set_memory(leak, 0)
        b.run(1)
    b.alarms.close()
    assert not b.alarms.sampling
    assert not b.world.host.open_files
    assert b.alarms.describe() == ()


def test_memory_alarms_can_be_switched_off() -> None:
    b, leak = memory_bench(memory=False)
    b.world.host.set_memory(leak, LIMIT)
    b.run(1)
    assert not b.alarms.sampling
    assert b.wakes == []


def test_without_the_figure_there_is_no_alarm_and_the_reason_is_told() -> None:
    b, _ = memory_bench()
    b.world.host.faults.add("/proc/meminfo", op="read", errno=errno.EIO, times=None)
    b.run(1)
    (armed,) = b.alarms.describe()
    assert (armed.mechanism, b.wakes) == (Mechanism.NONE, [])
    assert "/proc/meminfo" in armed.reason


def burstable(count: int) -> tuple[Pod, ...]:
    return tuple(
        Pod(uid=f"u{n}", cgroup=f"kubepods/burstable/podu{n}", kube_qos=KubeQoS.BURSTABLE)
        for n in range(count)
    )


POD_PRESSURE = "/sys/fs/cgroup/unified/kubepods/burstable/podu7/cpu.pressure"
TIER_PRESSURE = "/sys/fs/cgroup/unified/kubepods/burstable/cpu.pressure"


def test_burstable_pods_are_looked_at_when_their_directory_is_under_pressure() -> None:
    b = bench(max_reads=10)
    pods = burstable(30)
    for each in pods:
        b.world.host.make_cgroup(each.cgroup)
    b.alarms.watch(pods, ())
    assert b.mechanisms()[pods[7].cgroup, WakeKind.PSI] is Mechanism.SAMPLED
    b.run(2)  # the first look tells nothing yet, so everybody is looked at for a while
    looks = b.world.host.faults.before("*podu*/cpu.pressure", lambda: None, op="read", times=None)
    b.run(5)
    assert looks.hits == 0
    for path in (POD_PRESSURE, TIER_PRESSURE):
        b.world.host.stall(path, some=0.5)
    b.run(1)
    assert Wake(WakeKind.PSI, pods[7].cgroup) in b.wakes
    assert {wake.source for wake in b.wakes} == {pods[7].cgroup}
    for path in (POD_PRESSURE, TIER_PRESSURE):
        b.world.host.stall(path, some=0.0)
    b.run(2)
    seen = looks.hits
    b.run(2)
    assert looks.hits == seen


def test_throttling_of_a_pod_is_seen_while_its_directory_is_calm() -> None:
    b = bench()
    pods = burstable(3)
    for each in pods:
        b.world.host.make_cgroup(each.cgroup)
    b.world.cgroups.write(pods[1].cgroup, Resource.CPU_QUOTA_US, 10_000)
    b.alarms.watch(pods, ())
    b.run(3)
    b.wakes.clear()
    b.world.host.spawn(pods[1].cgroup, demand_cores=1)
    b.run(0.5)
    assert Wake(WakeKind.THROTTLED, pods[1].cgroup) in b.wakes


def test_a_directory_that_cannot_be_read_hides_nobody() -> None:
    b = bench()
    pods = burstable(10)
    for each in pods:
        b.world.host.make_cgroup(each.cgroup)
    b.alarms.watch(pods, ())
    b.world.host.faults.add(TIER_PRESSURE, op="read", errno=errno.EIO, times=None)
    b.run(2)
    b.world.host.stall(POD_PRESSURE, some=0.5)
    b.run(1)
    assert Wake(WakeKind.PSI, pods[7].cgroup) in b.wakes
