"""Applications that are not there: a problem as long as that lasts, with the nearest names."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from koordlet_fakefs import FakeHost
from structlog.testing import capture_logs

from koordlet.admin.model.doctor import CheckState
from koordlet.config.load import load
from koordlet.decision.snapshot import Application
from koordlet.engine.absent import LOOK_S, warnings
from koordlet.kernel.cgroup.layout import detect
from koordlet.protocol.qos import QoSClass
from koordlet.state.absent import SEARCHED, Existing
from tests.daemon.world import APPLICATIONS, LAYOUTS, NO_ALARMS, World

MakeWorld = Callable[..., World]
UNIT = """
[[applications]]
name = "web"
systemd_unit = "ngin.service"
qos = "LS"
"""
BODY = APPLICATIONS + UNIT + NO_ALARMS


def problems(world: World) -> dict[str, str]:
    return {each.part: each.why for each in world.views.status().problems}


def lines(logs: list[dict[str, object]]) -> list[str]:
    return [f"{e['event']} {e['name']}" for e in logs if "application" in str(e["event"])]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_a_problem_as_long_as_it_lasts(make_world: MakeWorld, layout: str) -> None:
    world = make_world(BODY, layout)
    world.application("shop", 0.1)
    for cgroup in ("batch-night", "system.slice", "system.slice/nginx.service"):
        world.host.make_cgroup(cgroup)
    with capture_logs() as logs:
        world.start()
        world.run(30)
        found = problems(world)
        assert set(found) == {"application batch", "application web"}
        assert found["application batch"].startswith("cgroup batch does not exist; nearest: batch-")
        assert found["application web"] == (
            "unit ngin.service does not run, or has another name; nearest: nginx.service"
        )
        world.host.make_cgroup("batch")
        world.run(1)
        assert set(problems(world)) == {"application web"}
        world.host.remove_cgroup("shop")
        world.run(20)
        assert set(problems(world)) == {"application shop", "application web"}
        world.reload(NO_ALARMS)
        world.run(1)
        assert problems(world) == {}
    assert lines(logs) == [
        "application absent batch",
        "application present shop",
        "application absent web",
        "application present batch",
        "application absent shop",
    ]


def test_status_doctor_explain_and_verdict_say_so(make_world: MakeWorld) -> None:
    world = make_world(APPLICATIONS + NO_ALARMS)
    world.application("shop", 0.1)
    world.host.make_cgroup("bath")
    world.start()
    world.run(2)
    text = "cgroup batch does not exist; nearest: bath"
    status = world.views.status()
    assert status.verdict.line == f"degraded: 1 problem: application batch: {text}"
    (check,) = [c for c in world.views.doctor()().checks if c.name == "application batch"]
    assert (check.state, check.why) == (CheckState.LIMITED, text)
    assert "config check" in check.remedy
    assert world.views.explain("batch", 1)().matched == f"application in cgroup batch; {text}"
    assert text not in world.views.explain("shop", 1)().matched
    assert "degraded: 1 problem" in world.views.summary()


def test_names_that_came_later_are_found(make_world: MakeWorld) -> None:
    world = make_world(APPLICATIONS + NO_ALARMS)
    world.start()
    world.run(2)
    assert "nearest" not in problems(world)["application batch"]
    world.host.make_cgroup("batch2")
    world.run(LOOK_S + 1)
    world.engine.rescan()
    assert problems(world)["application batch"].endswith("nearest: batch2")


def application(cgroup: str = "", unit: str = "") -> Application:
    return Application("a", cgroup, QoSClass.BE, systemd_unit=unit, present=False)


def test_near_is_what_has_a_like_name_wherever_it_is() -> None:
    host = FakeHost("hybrid")
    for cgroup in (
        "x",
        "x/y",
        "x/y/batch",
        "system.slice",
        "system.slice/batch.service",
        "kubepods",
    ):
        host.make_cgroup(cgroup)
    existing = Existing(host, detect(host))
    found = existing.why_absent(application("batch")).partition("nearest: ")[2]
    assert set(found.split(", ")) == {"system.slice/batch.service", "x/y/batch"}
    assert existing.why_absent(application("kubepod")) == "cgroup kubepod does not exist"
    assert "nearest: batch.service" in existing.why_absent(application(unit="batsh.service"))
    assert existing.why_absent(application("q" * 5000)).endswith("does not exist")


def test_a_huge_tree_is_not_searched_to_its_end() -> None:
    host = FakeHost("v2")
    for number in range(SEARCHED + 100):
        host.make_cgroup(f"g{number:04}")
    listed: list[str] = []
    subdirs = host.subdirs
    host.subdirs = lambda path: listed.append(path) or subdirs(path)  # type: ignore[method-assign]
    Existing(host, detect(host)).why_absent(application("batch"))
    assert len(listed) < 5


def test_a_file_is_compared_with_the_machine(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.host.make_cgroup("shop")
    world.host.make_cgroup("bath")
    loaded = load(str(world.file))
    found = list(warnings(world.host, loaded))
    assert [each.message for each in found] == [
        "application batch: cgroup batch does not exist; nearest: bath",
        "application web: unit ngin.service does not run, or has another name",
    ]
    line = world.file.read_text().splitlines().index('cgroup = "batch"') + 1
    assert str(found[0]).startswith(f"{world.file.name}:{line}: ")


def test_without_cgroups_nothing_is_compared(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    loaded = load(str(world.file))
    paths = msgspec.structs.replace(loaded.config.paths, cgroup_root="/nowhere")
    config = msgspec.structs.replace(loaded.config, paths=paths)
    elsewhere = msgspec.structs.replace(loaded, config=config)
    assert list(warnings(FakeHost("v2"), elsewhere)) == []
