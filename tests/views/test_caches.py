"""What pods do with caches as ``top`` and ``pods`` show it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.admin.caches import cycles_per_instruction, llc_bytes
from koordlet.admin.model.usage import PodView
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Metric
from koordlet.views.usage import Usage
from tests.daemon.world import World
from tests.engine.test_kubepods import UIDS

MakeWorld = Callable[..., World]
WEB, BATCH = UIDS["guaranteed"], UIDS["besteffort"]
MIB = 1 << 20
CPI = "[collectors.cpi]\nenable = true\n"


def shown(world: World) -> dict[str, PodView]:
    return {pod.uid: pod for pod in Usage(world.engine).pods()}


def busy(make_world: MakeWorld, body: str, pmu: str) -> World:
    world = make_world(body, pmu=pmu)
    pod = world.host.make_pod("cgroupfs", "guaranteed", WEB, ["a" * 64, "b" * 64])
    for container, cores, cpi in zip(pod.containers, (1.5, 0.5), (1.25, 5.0), strict=True):
        world.host.spawn(container, demand_cores=cores, threads=2)
        world.host.counters.cpi[container] = cpi
    world.host.make_pod("cgroupfs", "besteffort", BATCH, ["c" * 64])
    world.start()
    return world


def test_cpi_is_that_of_all_containers_together(make_world: MakeWorld) -> None:
    """By hand: of 2 cycles 1.5 execute 1.2 instructions, 0.5 only 0.1."""
    world = busy(make_world, CPI, "full")
    world.run(70)
    pods = shown(world)
    assert pods[WEB].cycles_per_instruction == pytest.approx(2 / 1.3, rel=0.01)
    assert pods[BATCH].cycles_per_instruction is None


def test_cpi_stays_until_the_next_window_has_ended(make_world: MakeWorld) -> None:
    """The first one ends after some 10 s; a pod shows it whatever second it is."""
    world = busy(make_world, CPI, "full")
    world.run(15)
    for _ in range(60):
        world.run(1)
        assert shown(world)[WEB].cycles_per_instruction is not None


@pytest.mark.parametrize(("body", "pmu"), [("", "full"), (CPI, "none")])
def test_where_nobody_counts_there_is_no_figure(make_world: MakeWorld, body: str, pmu: str) -> None:
    world = busy(make_world, body, pmu)
    world.run(70)
    assert {pod.cycles_per_instruction for pod in shown(world).values()} == {None}
    assert {pod.llc_bytes for pod in shown(world).values()} == {None}


def append(world: World, metric: Metric, *labels: str, value: float) -> None:
    store = world.parts.store
    series = store.series(metric.kind, tuple(zip(metric.labels, labels, strict=True)))
    store.append(int(world.host.time() * 1000), [series], [value])


def test_llc_is_that_of_all_caches(make_world: MakeWorld) -> None:
    world = busy(make_world, "", "none")
    world.run(3)
    append(world, k.POD_RESCTRL_LLC, WEB, "0", value=4.0 * MIB)
    append(world, k.POD_RESCTRL_LLC, WEB, "1", value=2.0 * MIB)
    pods = shown(world)
    assert (pods[WEB].llc_bytes, pods[BATCH].llc_bytes) == (6 * MIB, None)


def test_nothing_was_executed() -> None:
    cycles, instructions = ("a", "1", "cycle"), ("a", "1", "instruction")
    assert cycles_per_instruction({cycles: 5.0}) == {}
    assert cycles_per_instruction({cycles: 5.0, instructions: 0.0}) == {}
    assert cycles_per_instruction({cycles: 5.0, instructions: 2.0}) == {"a": 2.5}
    assert llc_bytes({}) == {}
