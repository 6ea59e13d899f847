"""What the daemon knows of pods, from whom, and when: on the fake kernel, with a runtime on a real
socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.decision.facts import PodFacts
from koordlet.decision.resource import Resource
from koordlet.engine import parts
from koordlet.protocol.cpuset import parse_cpulist
from tests.daemon.world import CPUS, NO_ALARMS, World, suppress
from tests.state.fake_runtime import POD, FakeRuntime

MakeWorld = Callable[..., World]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_runtime_that_comes_after_the_daemon_is_found(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At boot koordlet may be first."""
    socket = str(tmp_path / "runtime.sock")
    monkeypatch.setattr(
        parts, "runtime_socket", lambda *_: socket if os.path.exists(socket) else ""
    )
    world = make_world("[nri]\nenable = true\n")
    for cgroup in ("s1", "c1"):
        world.host.make_cgroup(f"{POD}/{cgroup}")

    async def test() -> None:
        world.start()
        assert [each.name for each in world.parts.sources] == [
            "cgroup-tree", "nri", "config", "slo",
        ]  # fmt: skip
        world.parts.find_runtime()
        assert world.parts.cri is None
        runtime = FakeRuntime(socket)
        await runtime.start()
        world.parts.find_runtime()
        world.parts.find_runtime()
        assert [each.name for each in world.parts.sources] == [
            "cgroup-tree", "nri", "cri", "config", "slo",
        ]  # fmt: skip
        assert not world.parts.state.synced, "its pods are not known yet"
        await until(lambda: world.parts.state.synced)
        (pod,) = world.parts.state.pods()
        assert pod.labels == {"koordinator.sh/qosClass": "BE"}
        assert pod.origins["labels"] == "cri"
        assert "cri" in {each.name for each in world.views.status().sources}
        world.parts.state.stop()
        await runtime.stop()

    asyncio.run(test())


GUARANTEED = "11111111-0000-4000-8000-000000000001"
NEWCOMER = "11111111-0000-4000-8000-000000000002"
SHARED = "22222222-0000-4000-8000-000000000003"
BATCH = "33333333-0000-4000-8000-000000000004"
STATUS = "scheduling.koordinator.sh/resource-status"
QOS = "koordinator.sh/qosClass"
CPUS_OF = Resource.CPUSET_CPUS


def _pod(world: World, uid: str, qos: str = "guaranteed") -> str:
    """The cgroup of its container."""
    return world.host.make_pod("cgroupfs", qos, uid, [uid[-1] * 64]).containers[0]


def _facts(uid: str, qos: str, cpus: str = "") -> PodFacts:
    pinned = {STATUS: json.dumps({"cpuset": cpus})} if cpus else {}
    return PodFacts(uid, name=uid[-1], namespace="shop", labels={QOS: qos}, annotations=pinned)


def _written(world: World, cgroup: str) -> list[str]:
    """CPU lists that were written there, oldest first."""
    found = world.views.explain(cgroup, 100)().decisions
    return [d.wanted for d in reversed(found) if d.resource == CPUS_OF and d.result == "written"]


def test_a_pod_is_left_alone_until_its_labels_come(make_world: MakeWorld) -> None:
    """Its class by the cgroup alone would put an LSR pod on the shared CPUs."""
    world = make_world(NO_ALARMS)
    world.start()
    told = world.parts.reported["nri"]
    first = _pod(world, GUARANTEED)
    told.replace([_facts(GUARANTEED, "LSR", "0-1")])
    world.run(2)
    assert world.value(first, CPUS_OF) == "0-1"
    newcomer, batch = _pod(world, NEWCOMER), _pod(world, BATCH, "besteffort")
    world.run(5)
    assert {pod.uid for pod in world.parts.state.awaiting} == {NEWCOMER, BATCH}
    assert _written(world, newcomer) == []
    assert world.value(first, CPUS_OF) == "0-1", "others are managed meanwhile"
    told.upsert(_facts(NEWCOMER, "LSR", "2"))
    told.upsert(_facts(BATCH, "BE"))
    world.run(0.1)
    assert world.value(newcomer, CPUS_OF) == "2"
    assert _written(world, newcomer) == ["2"]
    assert world.views.status().refused_inputs == ()
    assert batch


def test_labels_that_never_come_are_awaited_for_ten_seconds(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    told = world.parts.reported["nri"]
    _pod(world, GUARANTEED)
    told.replace([_facts(GUARANTEED, "LSR", "0-1")])
    newcomer = _pod(world, NEWCOMER)
    world.run(9)
    assert _written(world, newcomer) == []
    world.run(2.5)
    assert _written(world, newcomer) == ["2-3"], "the shared CPUs"
    (refused,) = world.views.status().refused_inputs
    assert (refused.path, "managed by its kube class" in refused.message) == ("labels", True)
    assert any("no source has reported them" in text for text in world.texts())


def test_best_effort_by_its_directory_is_held_back_at_once(make_world: MakeWorld) -> None:
    world = make_world(suppress("cpuset") + NO_ALARMS)
    world.start()
    world.parts.reported["nri"].replace([])
    busy = _pod(world, GUARANTEED)
    world.host.spawn(busy, demand_cores=1.5, threads=CPUS)
    batch = _pod(world, BATCH, "besteffort")
    world.host.spawn(batch, demand_cores=4, threads=CPUS)
    world.run(3)
    assert {pod.uid for pod in world.parts.state.awaiting} == {GUARANTEED, BATCH}
    assert len(parse_cpulist(str(world.value(batch, CPUS_OF)))) < CPUS
    assert _written(world, busy) == []


def test_after_a_restart_what_was_set_stays_until_labels_come(
    make_world: MakeWorld,
) -> None:
    # A path that is there stands for the socket of a runtime.
    world = make_world(NO_ALARMS + '[nri]\nsocket = "/proc/stat"\n')
    world.start()
    first, shared = _pod(world, GUARANTEED), _pod(world, SHARED, "burstable")
    everybody = [_facts(GUARANTEED, "LSR", "0-1"), _facts(SHARED, "LS")]
    world.parts.reported["nri"].replace(everybody)
    world.run(2)
    assert (world.value(first, CPUS_OF), world.value(shared, CPUS_OF)) == ("0-1", "2-3")
    world.stop()
    for file in (world.directory / "state").glob("reported-*"):
        file.unlink()
    world.start()
    told = world.parts.reported["nri"]
    began = world.host.time()
    world.run(3)
    told.replace([])  # the plugin is registered; the runtime tells its pods one by one
    _pod(world, BATCH, "besteffort")  # and hooks are asked anew
    world.run(3)
    assert (world.value(first, CPUS_OF), world.value(shared, CPUS_OF)) == ("0-1", "2-3")
    for pod in everybody:
        told.upsert(pod)
    world.run(2)
    assert (world.value(first, CPUS_OF), world.value(shared, CPUS_OF)) == ("0-1", "2-3")
    since = [
        decision
        for cgroup in (first, shared)
        for decision in world.views.explain(cgroup, 100)().decisions
        if decision.time >= began and decision.result in ("written", "restored")
    ]
    assert since == []
