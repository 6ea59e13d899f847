"""Containers that were created while no hook could be asked: compared, told, shown, ended."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from koordlet.cli.show.hooks import lines
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.given import Given
from koordlet.decision.resource import Resource
from koordlet.engine import missed as missed_module
from koordlet.report import metrics
from tests.daemon.world import NO_ALARMS, World

MakeWorld = Callable[..., World]
UID = "22222222-0000-4000-8000-000000000002"
OTHER = "22222222-0000-4000-8000-000000000003"
BOX = "a" * 64
GPUS = "scheduling.koordinator.sh/device-allocated"
CPUS = "scheduling.koordinator.sh/resource-status"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
EVICT = '[hooks.gpu-env]\non_missing = "evict"\n'
HAS_ALL = Given({VISIBLE: "all"}, {}, frozenset())
RIGHT = Given({VISIBLE: "1,3"}, {}, frozenset())


def _gpu_pod(
    world: World,
    given: Given | None,
    uid: str = UID,
    box: str = BOX,
    pinned: str = "",
    **labels: str,
) -> PodFacts:
    """Made by the runtime, and told by NRI."""
    groups = world.host.make_pod("cgroupfs", "burstable", uid, [box])
    pod = PodFacts(
        uid,
        cgroup=groups.pod,
        name=f"train-{uid[-1]}",
        namespace="ml",
        labels={"koordinator.sh/qosClass": "LS", **labels},
        annotations={
            GPUS: json.dumps({"gpu": [{"minor": 1}, {"minor": 3}]}),
            **({CPUS: json.dumps({"cpuset": pinned})} if pinned else {}),
        },
        containers=(
            ContainerFacts(f"containerd://{box}", groups.containers[0], "main", given=given),
        ),
    )
    world.host.spawn(groups.containers[0], demand_cores=0.1)
    world.parts.reported["nri"].upsert(pod)
    return pod


def _gauge(world: World) -> dict[tuple[str, ...], float]:
    return world.parts.metrics.scalars.get(metrics.MISSED_ADJUSTMENTS, {})


def _counter(world: World) -> float:
    series = world.parts.metrics.scalars.get(metrics.MISSED_ADJUSTMENTS_FOUND, {})
    return series.get(("gpu-env", "env"), 0.0)


def _doctor(world: World) -> list[tuple[str, str]]:
    checks = world.views.doctor()().checks
    return [(c.name, c.state) for c in checks if c.name.startswith("missed adjustments")]


def _ends(world: World) -> list[str]:
    """Whose eviction began."""
    texts = (text for text in world.texts() if "is being evicted" in text)
    return [text.partition("pod ")[2].partition(" ")[0] for text in texts]


def test_it_is_told_once_and_shown_as_long_as_the_container_lives(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    pod = _gpu_pod(world, HAS_ALL)
    world.run(12)
    told = [text for text in world.texts() if "gpu-env.missed" in text or "env NVIDIA" in text]
    assert len(told) == 1, told
    assert "container main of pod ml/train-2: env NVIDIA_VISIBLE_DEVICES is 'all'" in told[0]
    assert "it should be '1,3'; it sees GPUs that are not its own" in told[0]
    assert "restart the pod" in told[0]
    assert _gauge(world) == {("gpu-env", "env"): 1.0}
    assert _counter(world) == 1.0
    assert _doctor(world) == [("missed adjustments: ml/train-2", "fail")]
    (action,) = [a for a in world.views.hooks(UID).actions if a.kind == "env"]
    assert (action.value, action.has, action.missed) == ("1,3", "all", True)
    shown = "\n".join(lines(world.views.hooks("ml/train-2")))
    assert "env NVIDIA_VISIBLE_DEVICES = 1,3, by gpu-env, at PreCreateContainer" in shown
    assert "has all: the container was created without it; restart the pod" in shown
    assert _ends(world) == [], "by default nobody is ended"

    # The container is made anew, and the runtime asks.
    world.host.remove_cgroup(pod.containers[0].cgroup or "")
    _gpu_pod(world, RIGHT, box="b" * 64)
    world.run(1)
    assert _gauge(world) == {}
    assert _counter(world) == 1.0
    assert _doctor(world) == []
    (action,) = [a for a in world.views.hooks(UID).actions if a.kind == "env"]
    assert (action.has, action.missed) == ("1,3", False)


def test_settings_are_shown_beside_what_is_in_force(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS + '[daemon]\nmode = "observe"\n')
    world.start()
    _gpu_pod(world, HAS_ALL, pinned="0-1")
    world.run(2)
    view = world.views.hooks(UID)
    cpus = [a for a in view.actions if a.name == "cpuset.cpus" and a.level == "container"]
    assert [(a.value, a.has, a.missed) for a in cpus] == [("0-1", "0-3", False)]
    assert "    has 0-3" in lines(view)
    # In observe mode nobody gets variables on purpose; what it has is shown all the same.
    (action,) = [a for a in view.actions if a.kind == "env"]
    assert (action.has, action.missed) == ("all", False)
    assert _gauge(world) == {}
    assert _counter(world) == 0.0


def test_after_a_restart_it_is_told_by_who_remembers(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    _gpu_pod(world, HAS_ALL)
    world.run(1)
    kept = (world.directory / "state" / "reported-nri").read_text()
    assert VISIBLE in kept
    world.stop()
    world.start()
    world.run(1)
    assert _gauge(world) == {("gpu-env", "env"): 1.0}


def test_a_process_tells_where_nobody_else_does(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    pod = _gpu_pod(world, None)
    cgroup = pod.containers[0].cgroup
    process = next(p for p in world.host.machine.processes.values() if p.comm == "task")
    process.environ = f"PASSWORD=secret\0{VISIBLE}=all\0"
    world.run(12)
    assert cgroup
    assert _gauge(world) == {("gpu-env", "env"): 1.0}
    everything = msgspec.json.encode(world.views.hooks(UID)) + repr(world.texts()).encode()
    assert b"secret" not in everything
    assert b"PASSWORD" not in everything


def test_what_nobody_tells_is_no_finding(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    _gpu_pod(world, None)
    world.run(12)
    assert _gauge(world) == {}
    (action,) = [a for a in world.views.hooks(UID).actions if a.kind == "env"]
    assert (action.has, action.missed) == (None, False)


def test_a_pod_that_sees_more_is_ended_once_where_that_is_asked_for(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS + EVICT)
    world.start()
    world.engine.missed.asked = lambda: True
    _gpu_pod(world, HAS_ALL)
    _gpu_pod(world, Given({VISIBLE: "1"}, {}, frozenset()), OTHER, "c" * 64)
    world.run(1)
    assert _ends(world) == ["ml/train-2"], "the other one sees less than it may"
    world.run(60)
    assert _ends(world) == ["ml/train-2"]


@pytest.mark.parametrize("by", ["configuration", "label"])
def test_one_that_is_being_ended_is_spared_when_that_is_no_longer_asked_for(
    make_world: MakeWorld, by: str
) -> None:
    world = make_world(NO_ALARMS + EVICT)
    world.start()
    world.engine.missed.asked = lambda: True
    pod = _gpu_pod(world, HAS_ALL)
    process = max(world.host.machine.processes.values(), key=lambda each: each.pid)
    world.host.deaf.add(process.pid)
    world.run(1)
    assert _ends(world) == ["ml/train-2"] and world.engine.evictions.view().terminating
    if by == "configuration":
        world.reload(NO_ALARMS)
    else:
        labels = {**(pod.labels or {}), "koordinator.sh/eviction-enabled": "false"}
        world.parts.reported["nri"].upsert(msgspec.structs.replace(pod, labels=labels))
    world.run(60)
    assert not world.engine.evictions.view().terminating
    assert process.alive


def test_nobody_is_ended_while_no_runtime_asks(make_world: MakeWorld) -> None:
    """The container would be made anew as it was."""
    world = make_world(NO_ALARMS + EVICT)
    world.start()
    _gpu_pod(world, HAS_ALL)
    world.run(12)
    assert _ends(world) == []
    told = [text for text in world.texts() if "is not ended" in text]
    assert len(told) == 1
    assert "no runtime asks koordlet at present" in told[0]
    world.engine.missed.asked = lambda: True
    world.run(11)
    assert _ends(world) == ["ml/train-2"]


@pytest.mark.parametrize(
    "labels",
    [
        {"koordinator.sh/eviction-enabled": "false"},
        {"koordinator.sh/qosClass": "LSR"},
        {"koordinator.sh/qosClass": "LSE"},
    ],
)
def test_who_may_not_be_evicted_is_not(make_world: MakeWorld, labels: dict[str, str]) -> None:
    world = make_world(NO_ALARMS + EVICT)
    world.start()
    world.engine.missed.asked = lambda: True
    _gpu_pod(world, HAS_ALL, **labels)
    world.run(12)
    assert _ends(world) == []
    assert sum("says that it may not be evicted" in text for text in world.texts()) == 1
    assert _gauge(world) == {("gpu-env", "env"): 1.0}


def test_in_observe_mode_nobody_is_ended(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS + EVICT + '[daemon]\nmode = "observe"\n')
    world.start()
    world.engine.missed.asked = lambda: True
    _gpu_pod(world, HAS_ALL)
    world.run(12)
    assert _ends(world) == []


def test_many_are_told_some_at_a_time(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_module, "TELL_AT_ONCE", 2)
    world = make_world(NO_ALARMS)
    world.start()
    for number in range(5):
        uid = f"{UID[:-1]}{number}"
        _gpu_pod(world, HAS_ALL, uid, f"{number}" * 64)
    world.run(0.2)
    assert _gauge(world) == {("gpu-env", "env"): 5.0}
    assert _counter(world) == 2.0
    world.run(25)
    assert _counter(world) == 5.0


def test_a_defect_here_stops_no_hook(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(NO_ALARMS)
    world.start()
    pod = _gpu_pod(world, HAS_ALL, pinned="0-1")
    monkeypatch.setattr(missed_module, "missed", lambda *_: 1 / 0)
    world.run(2)
    assert "ZeroDivisionError" in world.parts.problems["missed adjustments"]
    container = pod.containers[0].cgroup
    assert container
    assert world.value(container, Resource.CPUSET_CPUS) == "0-1", "the others go on"
    monkeypatch.undo()
    world.run(11)
    assert "missed adjustments" not in world.parts.problems
    assert _gauge(world) == {("gpu-env", "env"): 1.0}
