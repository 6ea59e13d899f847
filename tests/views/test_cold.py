"""Cold memory as the daemon shows it: pods, top, and the metrics page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.admin.model.usage import ColdView
from koordlet.collectors.cold import collector
from koordlet.collectors.cold import families as f
from koordlet.collectors.cold.worker import Worker
from koordlet.views.publish import publish
from koordlet.views.usage import Usage
from tests.daemon.world import NO_ALARMS, World
from tests.engine.test_kubepods import UIDS

MakeWorld = Callable[..., World]
MIB = 1 << 20
APPLICATION = '[[applications]]\nname = "batch"\ncgroup = "batch"\nqos = "BE"\n'
UID = UIDS["besteffort"]


@pytest.fixture(autouse=True)
def scans_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "Worker", lambda: Worker(lambda work: work(), lambda: 0.0))


def measured(make_world: MakeWorld, method: str) -> World:
    body = f'[collectors.cold]\nmethod = "{method}"\n' + NO_ALARMS + APPLICATION
    world = make_world(body, "v2", lru_gen=True)
    world.application("batch", 0.1)
    pod = world.host.make_pod("cgroupfs", "besteffort", UID, ["c1" * 32])
    world.host.spawn(pod.containers[0], memory_bytes=64 * MIB, cache_bytes=32 * MIB)
    world.host.cool(pod.containers[0], anon_bytes=24 * MIB, file_bytes=8 * MIB)
    world.host.set_memory(world.processes["batch"], 16 * MIB)
    world.host.cool("batch", anon_bytes=4 * MIB)
    world.start()
    world.run(150)
    return world


def test_pods_applications_and_the_node(make_world: MakeWorld) -> None:
    world = measured(make_world, "mglru")
    usage = Usage(world.engine)
    cold = {pod.uid or pod.name: pod.cold for pod in usage.pods()}
    assert cold == {
        UID: ColdView(
            method="mglru", file_bytes=8 * MIB, anon_bytes=24 * MIB, refault_bytes_per_s=0.0
        ),
        "batch": ColdView(
            method="mglru", file_bytes=0, anon_bytes=4 * MIB, refault_bytes_per_s=0.0
        ),
    }
    node = usage.top(world.engine.node(), None, ()).cold
    assert node == ColdView(method="mglru", file_bytes=8 * MIB, anon_bytes=28 * MIB)


def test_by_default_only_refaults_are_known(make_world: MakeWorld) -> None:
    world = measured(make_world, "kidled")
    usage = Usage(world.engine)
    assert {pod.cold for pod in usage.pods()} == {ColdView(refault_bytes_per_s=0.0)}
    assert usage.top(world.engine.node(), None, ()).cold is None


def test_the_metrics_page_has_each_value_with_its_method(make_world: MakeWorld) -> None:
    world = measured(make_world, "mglru")
    publish(world.engine, world.views)
    scalars = world.parts.metrics.scalars
    pod = (UID, "", "")
    assert scalars[f.PODS.cold] == {
        (*pod, "file", "mglru"): 8 * MIB,
        (*pod, "anon", "mglru"): 24 * MIB,
    }
    assert scalars[f.PODS.with_hot] == {(*pod, "mglru"): (64 + 32 - 8) * MIB}
    assert scalars[f.NODE.cold] == {("file", "mglru"): 8 * MIB, ("anon", "mglru"): 28 * MIB}
    (container,) = scalars[f.CONTAINERS.cold]
    assert container[-2:] == ("file", "mglru")
    assert scalars[f.APPLICATIONS.cold]["batch", "anon", "mglru"] == 4 * MIB
    assert f.PODS.refault is not None and scalars[f.PODS.refault] == {pod: 0.0}
    assert scalars[f.SCAN_CPU_CORES] == {(): 0.0}
