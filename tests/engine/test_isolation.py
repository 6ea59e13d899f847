"""A strategy or hook that raises: the others go on, what it had set stays, and it is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlet.actuator.actuator import GRACE_S
from koordlet.actuator.traffic.devices import Devices, Shaped
from koordlet.decision.family import Page
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.engine.traffic import devices_path
from koordlet.hooks import HOOKS
from koordlet.kernel.proc.files import boot_id
from koordlet.qos import STRATEGIES
from koordlet.report.page import Format, render
from koordlet.views.publish import publish
from tests.daemon.everything import IN_CORE_SCHED, Fault, furnish, held, start, tell
from tests.daemon.world import World

MakeWorld = Callable[..., World]
EVERY = (*STRATEGIES, *HOOKS)
HOLDS_NOTHING = frozenset({"cpu-means", "interference", "memory-evict", "gpu-env", "rdma-devices"})
"""Evictions, and what only a runtime that creates a container can be given."""
TEXT = "ZeroDivisionError: injected into {}"


def problems(world: World) -> dict[str, str]:
    return {each.part: each.why for each in world.views.status().problems}


def _page(world: World) -> str:
    return b"".join(render(world.parts.metrics, Format.TEXT, Page.INTERNAL)).decode()


@pytest.mark.parametrize("name", EVERY)
def test_one_that_raises_is_isolated_and_recovers(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fault = Fault(monkeypatch, name)
    world = furnish(make_world, core_sched=name in IN_CORE_SCHED)
    start(world)
    world.run(15)
    before = held(world, name)
    assert bool(before) is (name not in HOLDS_NOTHING)
    part = f"{'strategy' if name in STRATEGIES else 'hook'} {name}"
    assert part not in problems(world)

    fault.on = True
    # What nearly everybody would answer.
    world.host.set_demand(world.processes["shop"], 0.1)
    world.host.set_demand(world.processes["batch"], 0.1)
    world.parts.metrics.scalars.clear()
    counts = {each: runs.count for each, runs in world.engine.runs.items()}
    tell(world, priority="2")
    began = world.host.time()
    world.run(25)
    assert fault.hits
    assert held(world, name) == before
    for other, runs in world.engine.runs.items():
        assert runs.count > counts[other]
        assert (runs.error == "") is (other != name), (other, runs.error)
    assert problems(world)[part].startswith(TEXT.format(name))
    (row,) = [each for each in world.views.status().strategies if each.name == name]
    assert row.result.startswith(TEXT.format(name))
    failed = world.engine.runs[name]
    assert failed.failing_since is not None
    assert began <= failed.failing_since <= began + 11
    told = [text for text in world.texts() if f"injected into {name}" in text]
    assert len(told) == 1
    publish(world.engine, world.views)
    page = _page(world)
    assert f'koordlet_strategy_failing{{error="ZeroDivisionError",strategy="{name}"}} 1' in page
    assert f'koordlet_strategy_failures_total{{strategy="{name}"}} {failed.failures}' in page

    fault.on = False
    world.run(12)
    assert part not in problems(world)
    assert world.engine.runs[name].error == ""
    publish(world.engine, world.views)
    assert "koordlet_strategy_failing{" not in _page(world)
    assert bool(held(world, name)) is (name not in HOLDS_NOTHING)


@pytest.mark.parametrize(
    "name", ["cpu-suppress", "cpu-burst", "resctrl-qos", "cpu-evict", "cpu-qos", "resctrl"]
)
def test_one_that_raises_after_a_restart_gives_up_nothing(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Longer than the actuator waits for owners that never speak."""
    fault = Fault(monkeypatch, name)
    world = furnish(make_world, core_sched=name in IN_CORE_SCHED)
    start(world)
    world.run(15)
    before = held(world, name)
    world.stop()
    fault.on = True
    start(world)
    world.run(GRACE_S + 2)
    assert held(world, name) == before


def test_traffic_classes_of_an_earlier_daemon_stay_until_somebody_says_what_shall_be(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(monkeypatch, TRAFFIC)
    fault.on = True
    world = furnish(make_world)
    boot = boot_id(world.host, "/proc")
    (world.directory / "state").mkdir()
    path = devices_path(str(world.directory / "state"))
    Devices(path, boot).add(Shaped("eth0", 2, "fq_codel", "", 1.0))
    asked = []
    world.host.traffic = lambda: asked.append(1)  # type: ignore[assignment]
    start(world)
    world.run(70)
    assert not asked
    assert not Devices(path, boot).is_empty
    fault.on = False
    tell(world, priority="2")
    world.run(15)
    world.parts.traffic.close()
    assert asked


def test_switching_off_one_that_raises_puts_back_what_it_had_set(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(monkeypatch, "cpu-suppress")
    world = furnish(make_world)
    start(world)
    world.run(5)
    fault.on = True
    world.run(2)
    body = world.file.read_text().partition("[node.annotations]")
    off = "[strategies.cpu-suppress]\nenable = false\n"
    world.reload(off + "[node.annotations]" + body[2])
    world.run(2)
    assert not held(world, "cpu-suppress")
    assert "strategy cpu-suppress" not in problems(world)


def test_what_one_pod_makes_raise_is_asked_again_though_the_pod_stays_as_it_is(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an answer depends on may be none of what is compared between two passes."""
    fault = Fault(monkeypatch, "oom-score-adj")
    fault.on = True
    world = furnish(make_world)
    start(world)
    world.run(12)
    assert not held(world, "oom-score-adj")
    assert "hook oom-score-adj" in problems(world)
    fault.on = False
    world.run(12)
    assert held(world, "oom-score-adj")
