"""What people see of trouble: refused inputs, conflicts, notes, events of earlier runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from koordlet.admin.model.events import EventKind, EventView
from koordlet.config.errors import ConfigErrors
from koordlet.decision.facts import PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Fault
from koordlet.hooks import HOOKS
from koordlet.protocol.qos import KubeQoS
from koordlet.qos import STRATEGIES
from koordlet.state.node_state import NodeState
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, NO_ALARMS, World, suppress
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
BODY = suppress("cfsQuota") + CPU_QOS + NO_ALARMS + APPLICATIONS
QOS = "node.koordinator.sh/cpuQOS"
STATUS = "scheduling.koordinator.sh/resource-status"


class Kubelet:
    """A source that knows annotations, as later ones will."""

    name = "kubelet"
    synced = True
    error = ""
    tells_labels = True

    def __init__(self, *pods: PodFacts) -> None:
        self.known = pods

    def start(self, on_change: Callable[[], None]) -> None: ...
    def stop(self) -> None: ...
    def rescan(self) -> None: ...
    def pods(self) -> tuple[PodFacts, ...]:
        return self.known

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        return ()


def annotated(world: World, uid: str, annotations: dict[str, str]) -> None:
    """From now on a source knows these annotations of a pod."""
    facts = PodFacts(
        uid, kube_qos=KubeQoS.BURSTABLE, name="web-0", namespace="shop", annotations=annotations
    )
    parts = world.parts
    parts.state = NodeState((Kubelet(facts), *parts.sources), parts.callbacks.on_change)
    world.changed = True


def test_a_bad_annotation_is_refused_shown_told_and_costs_nobody_else(
    make_world: MakeWorld,
) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS)
    pods = {q: world.host.make_pod("cgroupfs", q, UIDS[q], [BOX]) for q in UIDS}
    for pod in pods.values():
        world.host.spawn(pod.containers[0], demand_cores=0.5)
    world.start()
    world.run(3)
    annotated(world, UIDS["burstable"], {STATUS: '{"cpuset": "9-1"}'})
    world.run(3)
    (refused,) = world.views.status().refused_inputs
    assert refused.subject == "pod shop/web-0"
    assert refused.path == f"{STATUS} $.cpuset"
    assert "9-1" in refused.message
    assert world.pod("web-0").faults
    told = [t for t in world.texts() if t.startswith("refused-input")]
    assert told == [f"refused-input pod shop/web-0: {refused.path}: {refused.message}"]
    checks = {c.name: c for c in world.views.doctor()().checks}
    assert checks["refused input: pod shop/web-0"].state == "limited"
    assert world.limit_cores("kubepods/besteffort") < CPUS
    assert world.pod(UIDS["guaranteed"]).faults == ()
    annotated(world, UIDS["burstable"], {})
    world.run(1)
    assert world.views.status().refused_inputs == ()


def test_a_second_writer_is_named_and_given_way_to(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    world.start()
    world.run(3)
    path = world.parts.cgroups.path("batch", Resource.CPU_QUOTA_US)
    for _ in range(30):
        world.host.write(path, b"-1")
        world.run(1)
    (conflict,) = world.views.status().conflicts
    assert conflict.path == path
    assert conflict.found == "-1"
    assert conflict.count >= 3
    assert conflict.backing_off_until is not None
    assert conflict.backing_off_until > world.host.time()
    ours = sum(1 for name, data in world.host.written if name == path and data != b"-1")
    assert ours < 15  # it backs off instead of answering each second
    conflicts = [e for e in world.parts.events.recent() if e.kind is EventKind.CONFLICT]
    assert 1 <= len(conflicts) <= 10
    assert "expected" in conflicts[0].decision.detail
    assert "found -1" in conflicts[0].decision.detail
    world.run(700)
    assert world.views.status().conflicts == ()
    assert world.value("batch", Resource.CPU_QUOTA_US) != -1


def test_a_note_that_stands_is_told_once_a_new_one_at_once(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS)
    world.start()
    world.run(120)
    notes = [t for t in world.texts() if "nothing to suppress" in t]
    assert len(notes) == 1
    world.application("batch", CPUS)
    world.reload(BODY)
    world.run(2)
    (strategy,) = [s for s in world.views.status().strategies if s.name == "cpu-suppress"]
    assert "batch gets" in strategy.result


def test_a_bad_configuration_is_kept_out_and_shown(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("batch", CPUS)
    world.start()
    good = world.file.read_text()
    world.file.write_text(good + "[daemon]\ntick_secnds = 2\n")
    with pytest.raises(ConfigErrors) as caught:
        world.reload()
    world.views.keep_out(caught.value)
    state = world.views.status().config
    assert 'did you mean "tick_seconds"?' in state.error
    assert world.engine.loaded.config.daemon.tick_seconds == 1.0
    world.file.write_text(good)
    world.reload()
    assert world.views.status().config.error == ""


def test_what_is_switched_off_is_listed_as_such(make_world: MakeWorld) -> None:
    world = make_world("[strategies.cpu-suppress]\nenable = false\n")
    world.start()
    enabled = {s.name: s.enabled for s in world.views.status().strategies}
    assert enabled.keys() == {*STRATEGIES, *HOOKS}
    assert not enabled["cpu-suppress"] and enabled["cpu-qos"]


async def _collected(world: World, since: float) -> list[EventView]:
    return [event async for event in world.views.events(since=since, follow=False)]


def test_events_reach_back_into_earlier_runs(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    world.start()
    first = world.host.time()
    world.run(5)
    world.stop()
    world.host.advance(60)
    world.start()
    second = world.host.time()
    world.run(2)
    events = asyncio.run(_collected(world, first))
    earlier = [event for event in events if event.sequence == 0]
    assert earlier
    assert earlier == events[: len(earlier)]
    assert all(first <= event.time < second for event in earlier)
    assert {event.subject for event in earlier} >= {"batch/cpu.cfs_quota_us"}
    assert earlier[0].decision is not None
    assert [event.time for event in events] == sorted(event.time for event in events)
    present = asyncio.run(_collected(world, 0.0))
    assert present == events[len(earlier) :]
    assert [event.sequence for event in present] == list(range(1, len(present) + 1))
    assert asyncio.run(_collected(world, second + 1e6)) == []


def test_followers_get_what_comes_and_slow_ones_lose_the_oldest(make_world: MakeWorld) -> None:
    world = make_world()
    world.start()
    events = world.parts.events

    async def follow() -> list[int]:
        stream = world.views.events(since=0.0, follow=True)
        first = await anext(stream)
        while first.subject != "test":
            first = await anext(stream)
        for number in range(600):
            events.emit(float(number), EventKind.CONFIG, "test", "text")
        found = [first.sequence]
        while found[-1] < first.sequence + 600:
            found.append((await anext(stream)).sequence)
        await stream.aclose()
        return found

    events.emit(0.0, EventKind.CONFIG, "test", "text")
    found = asyncio.run(follow())
    assert len(found) == 501
    assert found[1] - found[0] == 101  # the gap tells


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_throttling_shows_two_samples_after_koordlet_set_the_quota(
    make_world: MakeWorld, layout: str
) -> None:
    world = make_world(BODY, layout)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    world.start()
    while world.value("batch", Resource.CPU_QUOTA_US) == -1:
        world.run(1)
    batch = world.pod("batch")
    assert (batch.throttled_ratio, batch.throttled_why) == (None, "no quota")
    world.run(1)
    assert world.pod("batch").throttled_why == "measuring"
    world.run(1)
    batch = world.pod("batch")
    assert batch.throttled_ratio is not None
    assert batch.throttled_ratio > 0.5
    assert batch.throttled_why == ""
    assert world.pod("shop").throttled_why == "no quota"
    world.reload(BODY.replace("enable = true", "enable = false"))
    world.run(6)  # the old samples are no longer fresh
    batch = world.pod("batch")
    assert (batch.throttled_ratio, batch.throttled_why) == (None, "no quota")


def test_a_collector_that_is_off_is_the_reason_why_throttling_is_not_known(
    make_world: MakeWorld,
) -> None:
    world = make_world(BODY + "[collectors.throttled]\nenable = false\n")
    world.application("batch", CPUS)
    world.start()
    world.run(3)
    assert world.pod("batch").throttled_why == "not measured: collectors.throttled is off"
