"""Pods that come and go, between ticks and in the middle of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.daemon.lifecycle import SECOND_LOOK_S
from koordlet.decision.resource import Resource
from koordlet.protocol.qos import KubeQoS, QoSClass
from tests.daemon.world import CPUS, LAYOUTS, NO_ALARMS, World, suppress

MakeWorld = Callable[..., World]
UIDS = {
    "guaranteed": "11111111-0000-4000-8000-000000000001",
    "burstable": "22222222-0000-4000-8000-000000000002",
    "besteffort": "33333333-0000-4000-8000-000000000003",
}
BOX = "a" * 64
CLASSES = {
    "guaranteed": (KubeQoS.GUARANTEED, QoSClass.LSR),
    "burstable": (KubeQoS.BURSTABLE, QoSClass.LS),
    "besteffort": (KubeQoS.BEST_EFFORT, QoSClass.BE),
}
BE_DIRECTORY = {
    "cgroupfs": "kubepods/besteffort",
    "systemd": "kubepods.slice/kubepods-besteffort.slice",
}


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pods_are_found_measured_limited_and_forgotten(
    make_world: MakeWorld, layout: str, driver: str
) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS, layout)
    world.start()
    world.run(1)
    assert world.views.pods()() == ()
    groups = {}
    for qos, cores in (("guaranteed", 0.6), ("burstable", 0.4), ("besteffort", CPUS)):
        groups[qos] = world.host.make_pod(driver, qos, UIDS[qos], [BOX])
        world.host.spawn(groups[qos].containers[0], demand_cores=cores, threads=CPUS)
    world.run(0.1)
    found = {pod.uid: pod for pod in world.views.pods()()}
    for qos, (kube, koordinator) in CLASSES.items():
        pod = found[UIDS[qos]]
        assert (pod.kube_qos, pod.qos, pod.cgroup) == (kube, koordinator, groups[qos].pod)
        assert [container.cgroup for container in pod.containers] == [groups[qos].containers[0]]
        assert f"workload pod {pod.uid}: pod {pod.uid} appeared" in world.texts()
    world.run(4)
    assert world.limit_cores(BE_DIRECTORY[driver]) == pytest.approx(2.6 - 1.0, abs=0.05)
    assert world.pod(UIDS["guaranteed"]).cpu_cores == pytest.approx(0.6, abs=0.05)
    top = world.views.top()()
    assert top.cpu_ls_cores == pytest.approx(1.0, abs=0.05)
    assert top.cpu_be_cores == pytest.approx(1.6, abs=0.1)

    world.host.remove_cgroup(groups["burstable"].pod)
    world.run(0.1)
    assert UIDS["burstable"] not in {pod.uid for pod in world.views.pods()()}
    assert world.texts()[-1] == f"workload pod {UIDS['burstable']}: pod {UIDS['burstable']} is gone"
    world.run(9)  # the last, small part of a rise waits
    assert world.limit_cores(BE_DIRECTORY[driver]) == pytest.approx(2.6 - 0.6, abs=0.05)
    assert world.views.status().problems == ()


@pytest.mark.parametrize("op", ["open", "read"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pod_that_vanishes_in_the_middle_of_a_round(
    make_world: MakeWorld, layout: str, op: str
) -> None:
    world = make_world(suppress("cfsQuota"), layout)
    pods = [
        world.host.make_pod("cgroupfs", "burstable", f"{n:08d}-0000-4000-8000-000000000000", [BOX])
        for n in range(3)
    ]
    for pod in pods:
        world.host.spawn(pod.containers[0], demand_cores=0.2)
    world.start()
    world.run(2)
    for pod in pods[:2]:
        vanish = world.host.faults.before(
            f"*/{pod.pod}*", lambda pod=pod: world.host.remove_cgroup(pod.pod), op=op
        )
        world.run(2)
        assert vanish.hits or op == "open"  # files that are open already are read, not opened
        if not vanish.hits:
            world.host.faults.clear()
            world.host.remove_cgroup(pod.pod)
            world.run(1)
    assert [pod.cgroup for pod in world.views.pods()()] == [pods[2].pod]
    status = world.views.status()
    assert status.problems == ()
    assert all(collector.success for collector in status.collectors)


def test_a_qos_directory_that_vanishes_under_the_write(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS)
    pod = world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.host.spawn(pod.containers[0], demand_cores=CPUS, threads=CPUS)
    world.host.faults.before(
        "*/kubepods/besteffort/cpu.cfs_quota_us",
        lambda: world.host.remove_cgroup("kubepods/besteffort"),
        op="write",
    )
    world.start()
    world.run(3)
    results = [e.decision.result for e in world.parts.events.recent() if e.decision is not None]
    assert "gone" in results
    assert world.views.status().journal.entries == 0
    world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.host.spawn(pod.containers[0], demand_cores=CPUS, threads=CPUS)
    world.run(3)
    assert world.limit_cores("kubepods/besteffort") < CPUS


def test_a_busy_newcomer_does_not_cost_the_others_their_share(make_world: MakeWorld) -> None:
    """Its first second is its own from the start, and no use of the system's."""
    world = make_world(suppress("cfsQuota") + NO_ALARMS)
    first = world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.host.spawn(first.containers[0], demand_cores=1.0)
    world.start()
    world.run(3.4)
    before = world.limit_cores("kubepods/besteffort")
    late = world.host.make_pod(
        "cgroupfs", "besteffort", "44444444-0000-4000-8000-000000000004", [BOX]
    )
    world.host.spawn(late.containers[0], demand_cores=CPUS, threads=CPUS)
    for _ in range(4):
        world.run(0.5)
        assert world.limit_cores("kubepods/besteffort") == pytest.approx(before, abs=0.3)


def test_a_pod_made_anew_under_the_same_name_is_measured_anew(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    pod = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    world.host.spawn(pod.containers[0], demand_cores=2.0, threads=CPUS)
    world.start()
    world.run(3)
    assert world.pod(UIDS["burstable"]).cpu_cores == pytest.approx(2.0, abs=0.05)
    world.host.remove_cgroup(pod.pod)
    world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    world.host.spawn(pod.containers[0], demand_cores=0.5, threads=CPUS)
    world.run(3)
    assert world.pod(UIDS["burstable"]).cpu_cores == pytest.approx(0.5, abs=0.05)


def test_pods_of_the_tree_are_no_business_of_a_daemon_without_that_source(
    make_world: MakeWorld,
) -> None:
    world = make_world(suppress("cfsQuota") + "[sources]\nkubepods = false\n")
    pod = world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.host.spawn(pod.containers[0], demand_cores=CPUS, threads=CPUS)
    world.start()
    world.run(5)
    assert world.views.pods()() == ()
    assert world.value("kubepods/besteffort", Resource.CPU_QUOTA_US) == -1
    assert not world.host.written


def test_a_second_tree_is_told_and_the_key_ends_it(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS)
    world.host.make_pod("systemd", "besteffort", UIDS["besteffort"], [BOX])
    for n in range(3):
        world.host.make_cgroup(f"lxc/kubepods/besteffort/pod{n}")
    world.start()
    world.run(1)
    assert [pod.uid for pod in world.views.pods()()] == [UIDS["besteffort"]]
    (problem,) = world.views.status().problems
    assert problem.part == "kubepods"
    assert "kubepods.slice counts" in problem.why and "lxc/kubepods" in problem.why
    assert any("sources.kubepods_root" in check.why for check in world.views.doctor()().checks)
    world.stop()
    body = world.file.read_text() + '[sources]\nkubepods_root = "lxc/kubepods"\n'
    world.file.write_text(body)
    world.start()
    assert {pod.uid for pod in world.views.pods()()} == {"0", "1", "2"}
    assert world.views.status().problems == ()


def test_a_second_look_gives_the_first_limit_before_the_second_tick(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota"))
    pod = world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    world.host.spawn(pod.containers[0], demand_cores=2)
    world.start()
    assert world.value("kubepods/besteffort", Resource.CPU_QUOTA_US) == -1
    world.host.advance(SECOND_LOOK_S)
    world.engine.tick(early=True)
    assert world.value("kubepods/besteffort", Resource.CPU_QUOTA_US) > 0
