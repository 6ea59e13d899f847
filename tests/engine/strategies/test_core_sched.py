"""Core scheduling in the whole daemon: pods and applications of a class share cookies, newcomers
get them, a restart keeps them and restore takes them back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs import Process

from koordlet.actuator.actuator import LOOK_EVERY_S
from koordlet.admin.checks import of_status
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.report.metrics import CONTAINER_CORE_SCHED_COOKIE, CORE_SCHED_COOKIE_MANAGE_STATUS
from koordlet.views.publish import publish
from tests.daemon.world import APPLICATIONS, FEATURES, NO_ALARMS, World

MakeWorld = Callable[..., World]
GROUP = Resource.CORE_SCHED_GROUP
SLO = """
[slo.resourceQOSStrategy.policies]
cpuPolicy = "coreSched"
[slo.resourceQOSStrategy.lsClass.cpuQOS]
enable = true
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
"""
BODY = SLO + APPLICATIONS + NO_ALARMS
PODS = {
    # name: kube class, labels
    "web": ("burstable", {"koordinator.sh/qosClass": "LS"}),
    "db": (
        "burstable",
        {"koordinator.sh/qosClass": "LS", "koordinator.sh/core-sched-group-id": "db"},
    ),
    "train": ("besteffort", {"koordinator.sh/qosClass": "BE"}),
    "agent": ("burstable", {"koordinator.sh/qosClass": "SYSTEM"}),
}


def uid(name: str) -> str:
    return f"00000000-0000-4000-8000-00000000000{list(PODS).index(name)}"


def furnish(
    make_world: MakeWorld, layout: str = "v2", body: str = BODY, *, core_sched: bool = True
) -> World:
    world = make_world(body, layout, core_sched=core_sched)
    for name, (kube, _) in PODS.items():
        groups = world.host.make_pod("cgroupfs", kube, uid(name), (container(name),))
        world.processes[name] = world.host.spawn(groups.containers[0], threads=2)
    world.application("shop", 0.1)
    world.application("batch", 0.1)
    start(world, core_sched=core_sched)
    return world


def container(name: str) -> str:
    return f"{list(PODS).index(name)}" * 64


def start(world: World, *, core_sched: bool = True) -> None:
    world.start((*FEATURES, "core-sched") if core_sched else FEATURES)
    for pod in world.parts.state.pods():
        (name,) = [each for each in PODS if uid(each) == pod.uid]
        world.parts.reported["nri"].upsert(
            PodFacts(
                pod.uid,
                cgroup=pod.cgroup,
                name=name,
                namespace="ns",
                labels=PODS[name][1],
                containers=(
                    ContainerFacts(container(name), f"{pod.cgroup}/{container(name)}", "main"),
                ),
            )
        )
    world.run(2)


def cookie(process: Process) -> int:
    (held,) = {thread.cookie for thread in process.threads.values()}
    return int(held)


def cookies(world: World) -> dict[str, int]:
    return {name: cookie(process) for name, process in world.processes.items()}


def cgroup_of(world: World, name: str) -> str:
    (found,) = [pod.cgroup for pod in world.parts.state.pods() if pod.uid == uid(name)]
    return f"{found}/{container(name)}"


def metric(world: World) -> dict[tuple[str, ...], float]:
    publish(world.engine, world.views)
    return world.parts.metrics.scalars[CONTAINER_CORE_SCHED_COOKIE]


def doctor(world: World) -> str:
    (row,) = [
        each for each in of_status(world.views.status()) if each.name == "daemon: core scheduling"
    ]
    return row.why


@pytest.mark.parametrize("layout", ["v1", "hybrid", "comount", "v2"])
def test_classes_share_no_core(make_world: MakeWorld, layout: str) -> None:
    world = furnish(make_world, layout)
    held = cookies(world)
    assert held["web"] == held["shop"] and held["train"] == held["batch"]
    assert len({held["web"], held["db"], held["train"]}) == 3 and held["agent"] == 0
    assert all(held[name] for name in PODS if name != "agent")

    samples = metric(world)
    assert samples[
        uid("db"), "db", "ns", "main", container("db"), "db-expeller", str(held["db"])
    ] == 1.0  # fmt: skip
    assert {labels[1]: labels[5] for labels in samples} == {
        "web": "-expeller", "db": "db-expeller", "train": "",
    }  # fmt: skip
    counted = world.parts.metrics.scalars[CORE_SCHED_COOKIE_MANAGE_STATUS]
    assert counted["db-expeller", "succeeded"] == 1.0
    assert not [labels for labels in counted if labels[1] == "failed"]

    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(LOOK_EVERY_S + 1)
    assert set(cookies(world).values()) == {0} and not metric(world)
    assert world.views.status().journal.entries == 0


def test_newcomers_are_covered(make_world: MakeWorld) -> None:
    world = furnish(make_world)
    held = cookies(world)
    for name in ("web", "train"):  # as `kubectl exec` does
        world.processes[f"{name}-exec"] = world.host.spawn(cgroup_of(world, name))
    world.processes["shop-exec"] = world.host.spawn("shop")
    world.host.make_cgroup("batch/inner")
    world.processes["batch-inner"] = world.host.spawn("batch/inner")
    world.run(LOOK_EVERY_S + 1)
    after = cookies(world)
    assert {name: after[name] for name in held} == held
    assert after["web-exec"] == after["shop-exec"] == held["web"]
    assert after["train-exec"] == after["batch-inner"] == held["train"]


def test_a_container_that_starts_gets_its_cookie_with_the_first_process(
    make_world: MakeWorld,
) -> None:
    world = furnish(make_world)
    late = world.host.make_pod(
        "cgroupfs", "besteffort", "44444444-0000-4000-8000-000000000004", ("e" * 64,)
    )
    world.run(3)
    process = world.host.spawn(late.containers[0])
    world.run(1.1)
    assert cookie(process) == cookies(world)["train"] != 0


def test_a_restart_keeps_them_and_restore_takes_them_back(make_world: MakeWorld) -> None:
    world = furnish(make_world)
    held = cookies(world)
    world.stop()
    newcomer = world.host.spawn("shop")
    start(world)
    world.run(LOOK_EVERY_S + 1)
    assert cookies(world) == held
    assert cookie(newcomer) == held["shop"]
    world.engine.restore(dry_run=False)
    assert set(cookies(world).values()) == {0} and cookie(newcomer) == 0


def test_a_change_of_group_moves_the_processes(make_world: MakeWorld) -> None:
    world = furnish(make_world)
    before = cookies(world)
    world.reload(BODY.replace("lsClass.cpuQOS]", "lsClass.cpuQOS]\ncoreExpeller = false"))
    world.run(LOOK_EVERY_S + 1)
    after = cookies(world)
    assert len(set(after.values())) == 3  # no label, db, none
    assert after["web"] == after["shop"] == after["train"] == after["batch"]
    assert after["db"] not in (0, before["train"])


def test_the_doctor_says_whether_it_is_used(make_world: MakeWorld) -> None:
    world = furnish(make_world)
    assert "class LS expels others from its cores" in doctor(world)
    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(LOOK_EVERY_S + 1)
    assert "policies.cpuPolicy is groupIdentity" in doctor(world)
    world.reload(BODY + "[hooks.core-sched]\nenable = false\n")
    world.run(2)
    assert "hooks.core-sched.enable is false" in doctor(world)


def test_without_the_kernel_feature_nothing_is_tried_and_it_is_said(make_world: MakeWorld) -> None:
    world = furnish(make_world, core_sched=False)
    world.run(LOOK_EVERY_S + 1)
    assert set(cookies(world).values()) == {0}
    (hook,) = [each for each in world.views.status().strategies if each.name == "core-sched"]
    assert "this kernel has nothing that core-sched needs" in hook.result
    assert "pods of different groups may run on hyperthreads of one core" in hook.result
