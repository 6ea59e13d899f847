"""Weights on cgroup v2 beside those of a runtime: runc 1.3.2 makes 59 of 512 shares, 1.1 20."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Resources
from koordlet.engine import weights
from koordlet.protocol.qos import QoSClass
from tests.daemon.world import NO_ALARMS, World

ROOT = "kubepods.slice"
SHARES = Resource.CPU_SHARES
WEB, BATCH = (
    f"{ROOT}/kubepods-{qos}.slice/kubepods-{qos}-pod{uid}.slice/cri-containerd-{uid * 64}.scope"
    for qos, uid in (("burstable", "a"), ("besteffort", "b"))
)
CONFIG = NO_ALARMS + "[nri]\nenable = true\n[hooks.batch-resource]\nenable = true\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, CONFIG, "v2")
    for path in (WEB, BATCH):
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            world.host.make_cgroup("/".join(parts[:depth]))
    world.start()
    return world


def weigh(world: World, cgroup: str, weight: int) -> None:
    world.host.write(world.parts.cgroups.path(cgroup, SHARES), b"%d" % weight)
    world.host.deliver()


def weight(world: World, cgroup: str) -> int:
    return int(world.host.read(world.parts.cgroups.path(cgroup, SHARES)))


def tell(
    world: World,
    web: Resources = Resources(request_cpu_milli=500),  # noqa: B008
    requested: dict[Resource, Value] | None = None,
) -> None:
    batch = Resources(request_batch_cpu_milli=500, limit_batch_cpu_milli=500)
    for uid, cgroup, resources, qos in (
        ("a", WEB, web, QoSClass.LS),
        ("b", BATCH, batch, QoSClass.BE),
    ):
        container = ContainerFacts(
            f"containerd://{uid * 64}",
            cgroup,
            "main",
            False,
            resources=resources,
            requested=requested if uid == "a" else None,
        )
        world.parts.reported["nri"].upsert(
            PodFacts(
                uid,
                cgroup=cgroup.rpartition("/")[0],
                name=uid,
                namespace="ns",
                labels={"koordinator.sh/qosClass": qos.value},
                priority=5500 if qos is QoSClass.BE else 9500,
                resources=resources,
                containers=(container,),
            )
        )


@pytest.mark.parametrize(("beside", "ours"), [(59, 59), (20, 20), (7, 20)])
def test_ours_are_made_as_those_of_the_runtime(world: World, beside: int, ours: int) -> None:
    weigh(world, WEB, beside)
    weigh(world, BATCH, 1)
    tell(world)
    world.run(3)
    assert weight(world, BATCH) == ours and weight(world, WEB) == beside


@pytest.mark.parametrize("beside", [59, 1])
def test_a_container_without_resources_of_a_pod_with_a_limit_votes_by_what_was_asked(
    world: World, beside: int
) -> None:
    """kubelet asks for shares of the pod's limit (500m), and for 2 with the first resize, of which
    an event may be missing."""
    weigh(world, WEB, beside)
    weigh(world, BATCH, 1)
    tell(world, Resources(), {SHARES: 512})
    world.run(3)
    assert weight(world, BATCH) == (59 if beside == 59 else 20)
    assert not world.parts.actuator.conflicts()


def test_a_runtime_that_is_replaced_is_followed(world: World) -> None:
    weigh(world, WEB, 20)
    weigh(world, BATCH, 1)
    tell(world)
    world.run(3)
    assert weight(world, BATCH) == 20
    weigh(world, WEB, 59)
    world.run(weights.EVERY_S + 11)  # and the next look at a file that is in order
    assert weight(world, BATCH) == 59 and not world.parts.actuator.conflicts()
    world.reload(NO_ALARMS + "[hooks.batch-resource]\nenable = false\n")
    world.run(3)
    assert weight(world, BATCH) == 1 and not world.parts.actuator.owned()


def test_a_few_containers_are_asked_and_none_that_is_ours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    weigh(world, WEB, 59)
    tell(world)
    world.run(2)
    asked: list[object] = []
    monkeypatch.setattr(weights, "MOST_READ", 3)
    (pod,) = (each for each in world.parts.state.pods() if each.uid == "a")
    rule = world.engine.weights

    def note(key: object) -> bool:
        asked.append(key)
        return False

    rule._is_ours = note
    rule.look((pod,) * 50, world.host.monotonic() + weights.EVERY_S)
    assert len(asked) == 3
    rule._is_ours = lambda key: True
    weigh(world, WEB, 20)
    rule.look((pod,), world.host.monotonic() + 2 * weights.EVERY_S)
    assert rule.modern
