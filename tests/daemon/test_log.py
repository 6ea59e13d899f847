"""What journald keeps: changes of mode, restores, conflicts and refused inputs, each once."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from koordlet.decision.facts import PodFacts
from koordlet.decision.resource import Resource
from koordlet.engine.changes import BURST, EVERY_S, SUBJECT_S, Limiter
from koordlet.protocol.qos import KubeQoS
from koordlet.state.node_state import NodeState
from tests.daemon.test_lifecycle import BODY as STAGE_BODY
from tests.daemon.test_lifecycle import Stage, stage
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, NO_ALARMS, World, suppress, write_config
from tests.engine.test_kubepods import BOX, UIDS
from tests.views.test_shown import STATUS, Kubelet, annotated

__all__ = ["stage"]

MakeWorld = Callable[..., World]
BODY = suppress("cfsQuota") + CPU_QOS + NO_ALARMS + APPLICATIONS
OBSERVE = '[daemon]\nmode = "observe"\n'
Logs = list[dict[str, Any]]


def managed(make_world: MakeWorld) -> World:
    world = make_world(BODY)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    world.start()
    world.run(3)
    return world


def about(logs: Logs, event: str) -> Logs:
    return [each for each in logs if each["event"] == event]


def test_each_change_of_mode_with_the_key_that_says_so(make_world: MakeWorld) -> None:
    world = managed(make_world)
    with capture_logs() as logs:
        for body in (OBSERVE + BODY, OBSERVE + BODY, BODY):
            world.reload(body)
            world.run(2)
    first, second = about(logs, "mode")
    assert (first["now"], second["now"]) == ("observe", "enforce")
    assert first["by"].startswith("daemon.mode (koordlet.toml:")
    assert second["by"] == "daemon.mode (default)"
    texts = [text for text in world.texts() if "lifecycle koordlet: mode" in text]
    assert len(texts) == 2


def test_what_is_switched_off_goes_back_with_owner_and_counts(make_world: MakeWorld) -> None:
    world = managed(make_world)
    with capture_logs() as logs:
        world.reload(BODY + "[strategies.cpu-suppress]\nenable = false\n")
        world.run(5)
    (line,) = about(logs, "restored")
    assert (line["owner"], line["restored"]) == ("cpu-suppress", 1)
    assert line["why"] == "cpu-suppress is switched off"


def test_a_pause_says_who_and_why_and_names_what_is_not_back(make_world: MakeWorld) -> None:
    world = managed(make_world)
    world.host.faults.add("*/batch/cpu.cfs_quota_us", op="write", errno=errno.EIO, times=None)
    how: dict[str, Any] = {"for_s": 60.0, "reason": "disk swap", "by": "root (pid 7)"}
    with capture_logs() as logs:
        world.views.pause((), (), **how)
        world.run(5)
        world.views.resume((), (), by="alice as root (pid 8)")
        world.run(2)
    (paused,) = about(logs, "paused")
    assert (paused["scope"], paused["by"], paused["reason"]) == (
        "everything",
        "root (pid 7)",
        "disk swap",
    )
    assert "until" in paused
    (restored,) = about(logs, "restored")
    assert (restored["restored"], restored["failed"]) == (3, 1)
    (left,) = about(logs, "not put back")
    assert left["file"].endswith("/batch/cpu.cfs_quota_us") and "EIO" in left["error"]
    (resumed,) = about(logs, "resumed")
    assert resumed["why"] == "ended by alice as root (pid 8)"


def test_a_stop_that_restores(stage: Stage) -> None:
    write_config(stage.directory, STAGE_BODY + '[daemon]\non_stop = "restore"\n')

    async def scene(daemon: object) -> None:
        import asyncio

        await asyncio.sleep(3)

    with capture_logs() as logs:
        stage.play(scene)
    (line,) = about(logs, "restored")
    assert line["why"] == 'daemon.on_stop = "restore"'
    assert line["restored"] >= 2


def test_a_conflict_has_a_beginning_and_an_end(make_world: MakeWorld) -> None:
    world = managed(make_world)
    path = world.parts.cgroups.path("batch", Resource.CPU_QUOTA_US)
    with capture_logs() as logs:
        for _ in range(20):
            world.host.write(path, b"-1")
            world.run(1)
        world.run(700)
    (began,) = about(logs, "conflict")
    assert (began["file"], began["owner"], began["found"]) == (path, "cpu-suppress", "-1")
    (over,) = about(logs, "conflict over")
    assert over["file"] == path and over["changes"] >= 3
    assert any(f"{path}: no other process writes it any more" in text for text in world.texts())


def hostile(world: World, number: int) -> None:
    annotated(world, UIDS["burstable"], {STATUS: f'{{"cpuset": "{number + 2}-1"}}'})


def test_a_refused_input_is_logged_once_and_a_hostile_pod_not_each_second(
    make_world: MakeWorld,
) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS)
    world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    world.start()
    with capture_logs() as logs:
        hostile(world, 1)
        world.run(30)
        (line,) = about(logs, "refused input")
        assert line["owner"] == "pod shop/web-0"
        assert line["path"] == f"{STATUS} $.cpuset" and "3-1" in line["why"]
        for number in range(2, 242):
            hostile(world, number)
            world.run(1)
        world.run(SUBJECT_S + 1)
    assert 3 <= len(about(logs, "refused input")) <= 6
    assert 1 <= len(about(logs, "not logged")) <= 6
    told = sum(each["count"] for each in about(logs, "not logged"))
    assert told + len(about(logs, "refused input")) == 241, "what is not said is counted"
    assert len(logs) <= 12
    assert len(world.views.status().refused_inputs) == 1
    events = [text for text in world.texts() if text.startswith("refused-input")]
    assert len(events) <= 6


def test_many_hostile_pods_at_once_are_bounded_too(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    pods = [
        PodFacts(
            f"{number:08d}-0000-4000-8000-000000000001",
            kube_qos=KubeQoS.BURSTABLE,
            name=f"web-{number}",
            namespace="shop",
            annotations={STATUS: '{"cpuset": "9-1"}'},
        )
        for number in range(300)
    ]
    for pod in pods:
        world.host.make_pod("cgroupfs", "burstable", pod.uid, [])
    parts = world.parts
    with capture_logs() as logs:
        parts.state = NodeState((Kubelet(*pods), *parts.sources), parts.callbacks.on_change)
        world.changed = True
        world.run(5)
    assert len(about(logs, "refused input")) == BURST
    assert [each["count"] for each in about(logs, "not logged")] == [300 - BURST]
    assert len(world.views.status().refused_inputs) == 300


def test_the_limit_by_itself() -> None:
    limit = Limiter()
    assert limit.allows("a", 0.0)
    assert not limit.allows("a", SUBJECT_S - 1)
    assert limit.allows("a", SUBJECT_S + 1)
    assert limit.unsaid(SUBJECT_S + 1) == 1
    assert limit.unsaid(SUBJECT_S + 2) == 0
    now = 1000.0
    assert sum(limit.allows(f"s{number}", now) for number in range(100)) == BURST
    assert limit.allows("t", now + EVERY_S)
    assert not limit.allows("u", now + EVERY_S + 1)


@pytest.mark.parametrize("reloads", [3])
def test_a_steady_state_says_nothing(make_world: MakeWorld, reloads: int) -> None:
    world = managed(make_world)
    world.run(20)
    with capture_logs() as logs:
        for _ in range(reloads):
            world.reload(BODY)
            world.run(20)
            world.engine.rescan()
    assert logs == []
