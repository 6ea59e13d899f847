"""Evictions in the whole daemon on the fake kernel: from the threshold to freed memory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

import msgspec
import pytest

from koordlet.decision.facts import PodFacts
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import WHOLE_NODE, Wake, WakeKind
from koordlet.kernel.proc import kill
from koordlet.report import metrics
from tests.daemon.world import LAYOUTS, NO_ALARMS, World

MIB = 1 << 20
MEMORY_MIB = 8192
SLO = """
[slo.resourceUsedThresholdWithBE]
enable = true
memoryEvictThresholdPercent = 70
memoryEvictLowerPercent = 55
"""
CPU_SLO = """
[strategies.cpu-suppress]
enable = false
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 100
memoryEvictThresholdPercent = 100
cpuEvictThresholdPercent = 80
cpuEvictLowerPercent = 60
evictEnabledPriorityThreshold = 5999
"""
APPS = """
[[applications]]
name = "job"
cgroup = "job"
qos = "BE"
evict = "{evict}"

[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"
"""
OBSERVE = '[daemon]\nmode = "observe"\n'
MakeWorld = Callable[..., World]


SAYS_NO = {"koordinator.sh/eviction-policy": "[]"}


def pod(
    world: World,
    number: int,
    memory_mib: int,
    qos: str = "BE",
    annotations: Mapping[str, str] | None = None,
    **labels: str,
) -> str:
    """A pod that a runtime has told of; the name of its process is its uid."""
    uid = f"00000000-0000-0000-0000-00000000000{number}"
    kube = "besteffort" if qos == "BE" else "burstable"
    groups = world.host.make_pod(qos=kube, uid=uid, containers=(f"c{number}" * 32,))
    world.processes[uid] = world.host.spawn(groups.containers[0], memory_bytes=memory_mib * MIB)
    world.parts.reported["nri"].upsert(
        PodFacts(
            uid,
            cgroup=groups.pod,
            name=f"pod{number}",
            namespace="ns",
            labels={"koordinator.sh/qosClass": qos, **labels},
            annotations=annotations or {},
        )
    )
    return uid


def furnish(make_world: MakeWorld, layout: str, body: str = SLO) -> tuple[World, dict[str, str]]:
    world = make_world(body + NO_ALARMS, layout, memory_bytes=MEMORY_MIB * MIB)
    world.host.make_pod(qos="besteffort")
    world.host.remove_cgroup("kubepods/besteffort/pod6553a60b-2b97-442a-b6da-a5704d81dd98")
    world.start()
    uids = {
        "small": pod(world, 1, 300),
        "leak": pod(world, 2, 1000),
        "says-no": pod(world, 3, 1500, annotations=SAYS_NO),
        "web": pod(world, 4, 2000, "LS"),
    }
    world.run(3)
    return world, uids


def evictions(world: World) -> list[Record]:
    found = world.parts.decisions.read(newest_first=False)
    return [record for record in found if record.kind is Kind.EVICTION]


def leak(world: World, uid: str, to_mib: int) -> None:
    world.host.set_memory(world.processes[uid], to_mib * MIB)


def alive(world: World, uids: dict[str, str]) -> dict[str, bool]:
    return {name: world.processes[uid].alive for name, uid in uids.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_leak_is_ended_and_nobody_else(make_world: MakeWorld, layout: str) -> None:
    world, uids = furnish(make_world, layout)
    assert all(alive(world, uids).values()) and not evictions(world)
    leak(world, uids["leak"], 3500)
    world.run(2)
    assert alive(world, uids) == {"small": True, "leak": False, "says-no": True, "web": True}
    begun, ended = evictions(world)
    assert (begun.result, ended.result) == ("evicting", "evicted")
    assert begun.owner == "memory-evict" and uids["leak"] in begun.cgroup
    assert "pod ns/pod2 evicted after" in ended.why.text
    assert "no cluster configured" in ended.detail
    world.run(10)
    assert len(evictions(world)) == 2
    assert any("pod ns/pod2 evicted" in text for text in world.texts())
    explained = world.views.explain(uids["leak"], 5)().decisions
    assert [decision.result for decision in explained][:2] == ["evicted", "evicting"]
    reason = "trigger by koordlet feature BEMemoryEvict"
    scalars = world.parts.metrics.scalars
    assert scalars[metrics.POD_EVICTION] == {(reason,): 1.0}
    assert scalars[metrics.POD_EVICTION_DETAIL] == {("ns", "pod2", reason): 1.0}


def test_nobody_is_evicted_right_after_a_start(make_world: MakeWorld) -> None:
    world, uids = furnish(make_world, "v2")
    leak(world, uids["leak"], 3500)
    world.stop()
    head = world.file.read_text()
    world.file.write_text(head.replace("start_grace_seconds = 0", "start_grace_seconds = 10"))
    world.start()
    world.run(8)
    assert all(alive(world, uids).values())
    said = [decision.why.text for decision in world.views.explain("memory-evict", 5)().decisions]
    assert any("has just started" in text for text in said), said
    world.run(4)
    assert not alive(world, uids)["leak"]


def test_a_leak_is_ended_between_two_ticks(make_world: MakeWorld) -> None:
    """The alarm sounds when the threshold is reached, and not on and on where nobody may go."""
    world, uids = furnish(make_world, "v2")
    world.reload(SLO + "[alarms]\npsi = false\n")
    (armed,) = [each for each in world.views.status().alarms if each.name == "memory /"]
    assert armed.mechanism == "sampled"
    world.run(0.4)
    leak(world, uids["leak"], 3500)
    world.run(0.1)
    assert world.woken == [Wake(WakeKind.MEMORY, WHOLE_NODE)]
    assert evictions(world)[0].result == "evicting"
    assert "alarm /: memory in use has reached the threshold of eviction" in world.texts()
    world.run(3)
    assert alive(world, uids) == {"small": True, "leak": False, "says-no": True, "web": True}
    world.woken.clear()
    leak(world, uids["web"], 5000)
    world.run(30)
    assert 1 <= len(world.woken) <= 3
    world.reload(SLO + "[alarms]\npsi = false\n[strategies.memory-evict]\nenable = false\n")
    assert "memory /" not in {each.name for each in world.views.status().alarms}


def test_an_evicted_pod_leaves_the_metrics_page_after_a_while(make_world: MakeWorld) -> None:
    world, uids = furnish(make_world, "v1")
    leak(world, uids["leak"], 3500)
    world.run(3)
    scalars = world.parts.metrics.scalars
    assert scalars[metrics.POD_EVICTION_DETAIL]
    world.host.advance(301)
    world.engine.tick()
    assert not scalars[metrics.POD_EVICTION_DETAIL] and scalars[metrics.POD_EVICTION]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_observed_a_leak_is_only_told(make_world: MakeWorld, layout: str) -> None:
    world, uids = furnish(make_world, layout, OBSERVE + SLO)
    leak(world, uids["leak"], 3500)
    world.run(20)
    assert all(alive(world, uids).values())
    (row,) = world.views.strategies("memory-evict")().strategies
    assert row.state == "observing"
    (only,) = evictions(world)
    assert only.result == "would-evict" and "pod ns/pod2 would be evicted" in only.why.text
    assert not (world.directory / "state" / "evictions").exists()


def test_one_that_hangs_is_killed_and_nobody_in_its_place(make_world: MakeWorld) -> None:
    world, uids = furnish(make_world, "v1")
    world.host.deaf.add(world.processes[uids["leak"]].pid)
    leak(world, uids["leak"], 3500)
    world.run(1)
    assert [record.result for record in evictions(world)] == ["evicting"]
    assert alive(world, uids)["leak"]
    world.run(4)
    assert alive(world, uids) == {"small": True, "leak": False, "says-no": True, "web": True}
    assert "grace period over; SIGKILL" in evictions(world)[-1].detail


def test_after_a_crash_the_same_eviction_goes_on(make_world: MakeWorld) -> None:
    world, uids = furnish(
        make_world, "v1", SLO + "[strategies.memory-evict]\nmax_grace_seconds = 20\n"
    )
    world.host.deaf.add(world.processes[uids["leak"]].pid)
    leak(world, uids["leak"], 3500)
    world.run(2)
    assert [record.result for record in evictions(world)] == ["evicting"]
    facts = world.parts.reported["nri"].pods()
    world.stop()
    world.start()
    for each in facts:
        world.parts.reported["nri"].upsert(each)
    world.run(10)
    assert [record.result for record in evictions(world)] == ["evicting", "evicting"]
    assert all(alive(world, uids).values())
    world.run(25)
    assert alive(world, uids) == {"small": True, "leak": False, "says-no": True, "web": True}


def restart(world: World) -> None:
    """With the same pods told."""
    facts = world.parts.reported["nri"].pods()
    world.stop()
    world.start()
    for each in facts:
        world.parts.reported["nri"].upsert(each)


@pytest.mark.parametrize(
    "limits", ["cool_down_seconds = 30", "cool_down_seconds = 0\nmax_per_minute = 1"]
)
def test_a_restart_gives_nobody_a_new_budget(make_world: MakeWorld, limits: str) -> None:
    world, uids = furnish(make_world, "v1", f"{SLO}[strategies.memory-evict]\n{limits}\n")
    leak(world, uids["leak"], 3500)
    world.run(3)
    assert not alive(world, uids)["leak"]
    restart(world)
    leak(world, uids["small"], 3500)
    world.run(15)
    assert alive(world, uids)["small"]
    world.run(50)
    assert not alive(world, uids)["small"]


def test_observed_for_a_while_an_eviction_is_not_carried_out_much_later(
    make_world: MakeWorld,
) -> None:
    body = SLO + "[strategies.memory-evict]\nmax_grace_seconds = 20\n"
    world, uids = furnish(make_world, "v1", body)
    world.host.deaf.add(world.processes[uids["leak"]].pid)
    leak(world, uids["leak"], 3500)
    world.run(2)
    assert [record.result for record in evictions(world)] == ["evicting"]
    world.reload(OBSERVE + body + NO_ALARMS)
    world.run(60)
    leak(world, uids["leak"], 100)
    world.reload(body + NO_ALARMS)
    world.run(5)
    restart(world)
    world.run(60)
    assert all(alive(world, uids).values())
    assert "evicted" not in {record.result for record in evictions(world)}


def test_observed_for_a_moment_an_eviction_goes_on(make_world: MakeWorld) -> None:
    body = SLO + "[strategies.memory-evict]\nmax_grace_seconds = 10\n"
    world, uids = furnish(make_world, "v1", body)
    world.host.deaf.add(world.processes[uids["leak"]].pid)
    leak(world, uids["leak"], 3500)
    world.run(2)
    world.reload(OBSERVE + body + NO_ALARMS)
    world.run(3)
    world.reload(body + NO_ALARMS)
    world.run(5)
    assert all(alive(world, uids).values())
    assert len(world.engine.evictions.view().terminating) == 1
    world.run(20)
    assert alive(world, uids) == {"small": True, "leak": False, "says-no": True, "web": True}


SLOW = "[strategies.cpu-evict]\nmax_grace_seconds = 10\n"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body.replace('evict = "stop"', 'evict = "never"'), "evict = never"),
        (lambda body: body.replace('evict = "stop"', 'evict = "freeze"'), "evict = freeze"),
        (lambda body: body.replace(SLOW, SLOW + "enable = false\n"), "cpu-evict is switched off"),
        (lambda body: body.replace("cpuEvictThresholdPercent", "#"), "CPUEvict is switched off"),
        (
            lambda body: body.replace("BE]\nenable = true", "BE]\nenable = false"),
            "is no longer true",
        ),
    ],
)
def test_an_eviction_that_is_no_longer_asked_for_is_given_up(
    make_world: MakeWorld, change: Callable[[str], str], why: str, restarted: bool
) -> None:
    body = CPU_SLO + SLOW + NO_ALARMS + APPS.format(evict="stop")
    world = make_world(body, "v1")
    job = world.application("job", 2.0)
    world.application("shop", 1.8)
    world.host.deaf.add(job.pid)
    world.start()
    world.run(4)
    assert [record.result for record in evictions(world)] == ["evicting"]
    world.reload(change(body))
    if restarted:
        world.stop()
        world.start()
    world.run(30)
    assert job.alive
    found = evictions(world)
    assert [record.result for record in found] == ["evicting", "not-evicted"]
    assert "given up: " in found[-1].detail and why in found[-1].detail
    assert not world.engine.evictions.view().terminating


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_that_says_no_meanwhile_is_spared(make_world: MakeWorld, restarted: bool) -> None:
    body = SLO + "[strategies.memory-evict]\nmax_grace_seconds = 10\n"
    world, uids = furnish(make_world, "v1", body)
    world.host.deaf.add(world.processes[uids["leak"]].pid)
    leak(world, uids["leak"], 3500)
    world.run(2)
    assert [record.result for record in evictions(world)] == ["evicting"]
    facts = {each.uid: each for each in world.parts.reported["nri"].pods()}
    if restarted:
        world.stop()
        world.start()
    says_no = {**facts[uids["leak"]].annotations, "koordinator.sh/eviction-policy": "[]"}
    facts[uids["leak"]] = msgspec.structs.replace(facts[uids["leak"]], annotations=says_no)
    for each in facts.values():
        world.parts.reported["nri"].upsert(each)
    world.run(5)
    assert world.host.machine.processes[world.processes[uids["leak"]].pid].alive
    (given_up,) = (each for each in evictions(world) if each.result == "not-evicted")
    assert "may no longer be evicted by BEMemoryEvict" in given_up.detail


def test_switched_off_nobody_is_evicted(make_world: MakeWorld) -> None:
    body = SLO + "[strategies.memory-evict]\nenable = false\n"
    world, uids = furnish(make_world, "v2", body)
    leak(world, uids["leak"], 3500)
    world.run(10)
    assert all(alive(world, uids).values())
    world.reload(SLO + NO_ALARMS)
    world.run(3)
    assert not alive(world, uids)["leak"]


def test_memory_of_pods_is_fresh_only_while_it_is_tight(make_world: MakeWorld) -> None:
    world, uids = furnish(make_world, "v1")
    readings = []
    for used_mib, expected in ((100, 5), (1000, 10)):
        leak(world, uids["leak"], used_mib)
        world.run(2)
        before = _samples(world, uids["small"])
        world.run(10)
        readings.append((_samples(world, uids["small"]) - before, expected))
    assert all(found == expected for found, expected in readings)


def _samples(world: World, uid: str) -> int:
    found = world.views.query("pod_memory_usage", {"pod_uid": uid}, 3600, "count")()
    return int(found.series[0].value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("evict", ["never", "stop", "freeze"])
def test_applications_as_configured(make_world: MakeWorld, layout: str, evict: str) -> None:
    world = make_world(CPU_SLO + NO_ALARMS + APPS.format(evict=evict), layout)
    job, shop = world.application("job", 2.0), world.application("shop", 1.8)
    world.start()
    world.run(4)
    assert shop.alive and job.alive is (evict != "stop")
    if evict == "freeze":
        assert world.value("job", Resource.FREEZE) == 1
        world.run(30)
        assert world.value("job", Resource.FREEZE) == 1
        assert world.pod("job").cpu_cores == pytest.approx(0, abs=0.01)
        world.host.set_demand(shop, 0.2)
        world.run(62)
        assert world.value("job", Resource.FREEZE) == 0
        assert world.views.status().journal.entries == 0
    results = [record.result for record in evictions(world)]
    assert results == (["evicting", "evicted"] if evict == "stop" else [])


def test_cpu_and_memory_evict_end_one_where_one_will_do(make_world: MakeWorld) -> None:
    """For CPU the busiest goes; for memory alone it would be the largest."""
    slo = CPU_SLO.replace(
        "memoryEvictThresholdPercent = 100",
        "memoryEvictThresholdPercent = 70\nmemoryEvictLowerPercent = 60",
    )
    off = slo.replace("enable = true", "enable = false")
    world = make_world(off + NO_ALARMS, "v2", memory_bytes=MEMORY_MIB * MIB)
    world.start()
    willing = {"koordinator.sh/eviction-enabled": "true"}
    uids = {"busy": pod(world, 1, 2500, **willing), "large": pod(world, 2, 3500, **willing)}
    inside = f"kubepods/besteffort/pod{uids['busy']}/" + "c1" * 32
    world.processes[uids["busy"]] = world.host.spawn(inside, demand_cores=3.6, threads=4)
    world.run(4)
    assert not evictions(world)
    world.reload(slo + NO_ALARMS)
    world.run(4)
    assert alive(world, uids) == {"busy": False, "large": True}
    assert {record.owner for record in evictions(world)} == {"cpu-evict"}


def with_a_frozen_job(make_world: MakeWorld) -> World:
    world = make_world(CPU_SLO + NO_ALARMS + APPS.format(evict="freeze"), "v1")
    world.application("job", 2.0)
    world.application("shop", 1.8)
    world.start()
    world.run(4)
    assert world.value("job", Resource.FREEZE) == 1
    return world


def test_what_is_frozen_stays_so_over_a_restart(make_world: MakeWorld) -> None:
    world = with_a_frozen_job(make_world)
    world.stop()
    world.host.written.clear()
    world.start()
    for _ in range(30):
        world.run(1)
        assert world.value("job", Resource.FREEZE) == 1
    assert not [path for path, _ in world.host.written if "freezer.state" in path]


def test_what_is_frozen_goes_on_after_restore(make_world: MakeWorld) -> None:
    world = with_a_frozen_job(make_world)
    world.engine.restore(dry_run=False)
    assert world.value("job", Resource.FREEZE) == 0


def test_what_holds_koordlet_or_init_is_not_frozen(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill, "guarded", lambda *_: "process 1 is init")
    world = make_world(CPU_SLO + NO_ALARMS + APPS.format(evict="freeze"), "v2")
    world.application("job", 2.0)
    world.application("shop", 1.8)
    world.start()
    world.run(4)
    assert world.value("job", Resource.FREEZE) == 0
    problem = world.parts.problems["eviction of application job"]
    assert problem == "it is not frozen: process 1 is init"


def test_processes_that_cannot_be_looked_at_are_not_frozen_and_stop_no_tick(
    make_world: MakeWorld,
) -> None:
    world = make_world(CPU_SLO + NO_ALARMS + APPS.format(evict="freeze"), "v2")
    world.application("job", 2.0)
    world.application("shop", 1.8)
    fault = world.host.faults.add("/proc/*/status", op="read", errno=errno.EIO, times=None)
    world.start()
    world.run(4)
    assert fault.hits and world.value("job", Resource.FREEZE) == 0
    assert "cannot be looked at" in world.parts.problems["eviction of application job"]


LIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "koord-prod": ({"koordinator.sh/priority-class": "koord-prod"}, {}),
    "sub-priority": ({"koordinator.sh/priority": "2147483647"}, {}),
    "not enabled": ({"koordinator.sh/eviction-enabled": "false"}, {}),
    "broken policy": ({}, {"koordinator.sh/eviction-policy": "["}),
    "huge policy": ({}, {"koordinator.sh/eviction-policy": "[0," * 80_000}),
    "no feature": ({}, {"koordinator.sh/eviction-policy": '["never"]'}),
    "LSE": ({"koordinator.sh/qosClass": "LSE"}, {}),
    "LSR": ({"koordinator.sh/qosClass": "LSR"}, {}),
}
LIES["all together"] = (
    {key: value for labels, _ in LIES.values() for key, value in labels.items()},
    {"koordinator.sh/eviction-policy": "{"},
)


@pytest.mark.parametrize("lie", LIES)
def test_whoever_lies_goes_before_its_neighbour(make_world: MakeWorld, lie: str) -> None:
    """Two best-effort pods of one priority: the larger one goes, whatever it says of itself."""
    labels, annotations = LIES[lie]
    world = make_world(SLO + NO_ALARMS, "v2", memory_bytes=MEMORY_MIB * MIB)
    world.host.make_pod(qos="besteffort")
    world.start()
    hog = pod(world, 1, 2000, annotations=annotations, **labels)
    uids = {"hog": hog, "neighbour": pod(world, 2, 1000), "web": pod(world, 3, 2000, "LS")}
    world.run(3)
    leak(world, hog, 4000)
    world.run(3)
    assert alive(world, uids) == {"hog": False, "neighbour": True, "web": True}
    told = {each.path.partition(" ")[0] for each in world.engine.faults()}
    assert bool(told & {*labels, *annotations}) is (lie != "not enabled")
