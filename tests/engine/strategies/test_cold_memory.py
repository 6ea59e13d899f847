"""Cold memory in the whole daemon: kidled switched on and put back, and best-effort work that
gives way by what is cold in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.actuator.reclaim import Reclaimer
from koordlet.collectors.cold import collector
from koordlet.collectors.cold.worker import Worker
from koordlet.decision import memory_figures as m
from koordlet.decision.memory_figures import CollectPolicy, Subject, memory_figure
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Wake
from koordlet.engine.reclaims import Reclaims
from koordlet.kernel.cgroup.layout import detect
from tests.daemon.world import FEATURES, NO_ALARMS, World

MakeWorld = Callable[..., World]
MIB = 1 << 20
SETTINGS = ("scan_period_in_seconds", "use_hierarchy")
APPLICATIONS = """
[[applications]]
name = "hot"
cgroup = "hot"
qos = "BE"

[[applications]]
name = "cold"
cgroup = "cold"
qos = "BE"
"""
SLO = "[slo.resourceQOSStrategy.beClass.memoryQOS]\nenable = true\n"


@pytest.fixture(autouse=True)
def scans_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this thread, without a rest."""
    monkeypatch.setattr(collector, "Worker", lambda: Worker(lambda work: work(), lambda: 0.0))


def of(world: World) -> collector.ColdCollector:
    found = world.parts.runner.collectors
    return next(each for each in found if isinstance(each, collector.ColdCollector))


def reclaims_at_once(world: World) -> None:
    reclaimer = Reclaimer(world.host, detect(world.host), start=lambda work: work())
    world.engine.reclaims = Reclaims(
        reclaimer, world.parts.metrics, world.parts.tell, world.parts.runner.reclaimed
    )


def newest(world: World, metric: Metric, *labels: str) -> float | None:
    view = world.engine.snapshot(Wake()).metrics
    found = view.read(metric, labels, window_s=15, aggregate=Aggregate.LAST)
    return found.value if found is not None else None


def test_kidled_scans_while_the_strategy_is_on(make_world: MakeWorld) -> None:
    body = "[strategies.kidled]\nenable = true\n" + NO_ALARMS + APPLICATIONS
    world = make_world(body, "hybrid", anolis=True)
    for cgroup in ("hot", "cold"):
        world.application(cgroup, 0.1)
    world.start((*FEATURES, Resource.KIDLED_SCAN_PERIOD))
    world.host.read_files(world.processes["cold"], 64 * MIB)
    world.host.cool("cold", file_bytes=60 * MIB)
    paths = [f"/sys/kernel/mm/kidled/{name}" for name in SETTINGS]
    world.run(1)
    assert [world.host.read(path).strip() for path in paths] == [b"5", b"1"]
    world.run(290)
    assert newest(world, m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE, "cold") is None
    world.run(120)  # now it has scanned 60 times
    assert newest(world, m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE, "cold") == 60 * MIB
    assert of(world)._found_by == "kidled"
    view = world.engine.snapshot(Wake()).metrics
    figure = memory_figure(
        view, "usageWithHotPageCache", Subject.HOST_APPLICATION, ("cold",), window_s=15
    )
    assert figure is not None and figure.policy is CollectPolicy.WITH_HOT_PAGE_CACHE
    assert figure.reading.value == pytest.approx(4 * MIB)
    world.reload(NO_ALARMS + APPLICATIONS)
    world.run(1)
    assert [world.host.read(path).strip() for path in paths] == [b"0", b"0"]
    world.run(730)
    assert newest(world, m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE, "cold") is None
    assert "scan_period_in_seconds is 0" in of(world).about()


def test_the_cold_one_gives_and_is_confirmed(make_world: MakeWorld) -> None:
    body = SLO + '[collectors.cold]\nmethod = "mglru"\n' + NO_ALARMS + APPLICATIONS
    world = make_world(body, "v2", memory_bytes=2 << 30, lru_gen=True)
    for cgroup in ("hot", "cold"):
        world.application(cgroup, 0.1)
    world.start((*FEATURES, "memory.reclaim"))
    reclaims_at_once(world)
    host = world.host
    host.read_files(world.processes["hot"], 400 * MIB)
    host.read_files(world.processes["cold"], 200 * MIB)
    host.cool("cold", file_bytes=150 * MIB)
    world.run(260)
    assert newest(world, m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE, "cold") == 150 * MIB
    hot = world.value("hot", Resource.MEMORY_USAGE)
    host.make_cgroup("rest")
    total = world.parts.memory_bytes
    info = dict(line.split(":") for line in host.look("/proc/meminfo").splitlines())
    free = int(info["MemFree"].split()[0]) * 1024
    short = total * 3 // 100
    host.read_files(host.spawn("rest"), free - short + 40 * MIB)
    world.run(20)
    assert world.value("hot", Resource.MEMORY_USAGE) == hot
    taken = 200 * MIB - int(world.value("cold", Resource.MEMORY_USAGE) or 0)
    assert 40 * MIB <= taken < 60 * MIB
    told = [e.decision for e in world.parts.events.recent() if e.decision is not None]
    reclaim = next(each for each in told if each.resource == "memory.reclaim")
    assert "of it are cold" in reclaim.why.text
    assert {fact.name for fact in reclaim.why.inputs} == {"missing", "wmarkMinAdj", "cold"}
    groups = of(world)._groups.values()
    confirmed = {each.subject.label: each._confirmed.cold_bytes for each in groups}
    assert confirmed == {"hot": None, "cold": pytest.approx(taken, abs=4096)}
