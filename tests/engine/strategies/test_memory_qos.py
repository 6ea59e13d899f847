"""Memory QoS in the whole daemon: floors up the tree, reclaim in time, and all of it put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs import Process

from koordlet.actuator.reclaim import Reclaimer
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Resources, Wake, WakeKind
from koordlet.engine.reclaims import Reclaims
from koordlet.kernel.cgroup.layout import detect
from tests.daemon.world import FEATURES, LAYOUTS, NO_ALARMS, World
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
MIB = 1 << 20
R = Resource
FLOORS = (R.MEMORY_MIN, R.MEMORY_LOW)
V2 = (*FEATURES, *FLOORS, R.MEMORY_HIGH, R.MEMORY_OOM_GROUP, "memory.reclaim")
WMARKS = (R.MEMORY_WMARK_RATIO, R.MEMORY_WMARK_SCALE_FACTOR, R.MEMORY_WMARK_MIN_ADJ)
ORDER = (R.MEMORY_PRIORITY, R.MEMORY_USE_PRIORITY_OOM)
ANOLIS = (*FEATURES, *FLOORS, R.MEMORY_HIGH, R.MEMORY_OOM_GROUP, *WMARKS, *ORDER)
SLO = """
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
minLimitPercent = 50
lowLimitPercent = 100
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
throttlingPercent = 80
oomKillGroup = 1
"""
APPLICATIONS = """
[[applications]]
name = "shop"
cgroup = "services/shop"
qos = "LS"
memory_request = "256Mi"
memory_limit = "512Mi"

[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
memory_limit = "100Mi"
"""
FILES = (*FLOORS, R.MEMORY_HIGH, R.MEMORY_OOM_GROUP, *WMARKS, *ORDER)


def furnished(make_world: MakeWorld, layout: str, body: str = SLO, **options: object) -> World:
    """A world with both applications; what is reclaimed is reclaimed at once."""
    world = make_world(body + APPLICATIONS + NO_ALARMS, layout, **options)
    world.host.make_cgroup("services")
    world.application("services/shop", 0.1)
    world.application("batch", 0.1)
    return world


def started(world: World, features: tuple[str, ...]) -> World:
    world.start(features)
    reclaimer = Reclaimer(world.host, detect(world.host), start=lambda work: work())
    world.engine.reclaims = Reclaims(
        reclaimer, world.parts.metrics, world.parts.tell, world.parts.runner.reclaimed
    )
    return world


def held(world: World) -> dict[tuple[str, Resource], object]:
    """Values of every file there is."""
    found = {}
    for cgroup in ("services", "services/shop", "batch"):
        for resource in FILES:
            path = world.parts.cgroups.path(cgroup, resource)
            if world.host.exists(path):
                found[cgroup, resource] = world.parts.cgroups.read(cgroup, resource)
    return found


def process(world: World, cgroup: str) -> Process:
    return world.processes[cgroup]


def test_floors_limits_and_back_again_on_v2(make_world: MakeWorld) -> None:
    world = furnished(make_world, "v2")
    started(world, FEATURES)
    before = held(world)
    world.stop()
    started(world, V2)
    world.run(2)
    assert world.value("services/shop", R.MEMORY_MIN) == 128 * MIB
    assert world.value("services/shop", R.MEMORY_LOW) == 256 * MIB
    assert world.value("services", R.MEMORY_LOW) == 256 * MIB
    assert world.value("batch", R.MEMORY_HIGH) == 80 * MIB
    assert world.value("batch", R.MEMORY_OOM_GROUP) == 1
    assert world.value("services/shop", R.MEMORY_HIGH) == -1
    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(1)
    assert held(world) == before
    assert world.views.status().journal.entries == 0


def test_switched_off_by_configuration_everything_is_as_before(make_world: MakeWorld) -> None:
    world = furnished(make_world, "v2")
    started(world, V2)
    world.run(2)
    assert world.value("batch", R.MEMORY_HIGH) == 80 * MIB
    world.reload(SLO + APPLICATIONS + NO_ALARMS + "[strategies.memory-qos]\nenable = false\n")
    world.run(1)
    assert world.value("batch", R.MEMORY_HIGH) == -1
    assert world.views.status().journal.entries == 0


@pytest.mark.parametrize("layout", ["v1", "hybrid", "comount"])
def test_a_stock_kernel_with_v1_says_that_it_cannot(make_world: MakeWorld, layout: str) -> None:
    world = started(furnished(make_world, layout), FEATURES)
    world.run(70)
    assert world.views.status().journal.entries == 0
    texts = [text for text in world.texts() if "left out, because this kernel" in text]
    assert len(texts) == 1
    assert "memory.high" in texts[0] and "memory.min" in texts[0] and "wmark_ratio" in texts[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_vendor_kernel_gets_its_watermarks(make_world: MakeWorld, layout: str) -> None:
    world = started(furnished(make_world, layout, anolis=True), ANOLIS)
    world.run(2)
    assert world.value("batch", R.MEMORY_HIGH) == 80 * MIB
    assert world.value("batch", R.MEMORY_WMARK_RATIO) == 95
    assert world.value("batch", R.MEMORY_WMARK_MIN_ADJ) == 50
    assert world.value("services/shop", R.MEMORY_WMARK_MIN_ADJ) == -25
    assert world.value("services/shop", R.MEMORY_WMARK_SCALE_FACTOR) == 20
    assert world.value("services/shop", R.MEMORY_MIN) == 128 * MIB
    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(1)
    assert world.value("batch", R.MEMORY_WMARK_RATIO) == 0
    assert world.views.status().journal.entries == 0


def test_pods_of_all_classes_and_one_that_comes_later(make_world: MakeWorld) -> None:
    body = (
        SLO + "[slo.resourceQOSStrategy.lsrClass.memoryQOS]\nenable = true\nminLimitPercent=100\n"
    )
    world = furnished(make_world, "v2", body)
    first = world.host.make_pod("cgroupfs", "guaranteed", UIDS["guaranteed"], [BOX])
    path = "/sys/fs/cgroup/" + first.containers[0] + "/memory.max"
    world.host.write(path, str(64 * MIB).encode())
    started(world, V2)
    world.run(2)
    assert world.value(first.containers[0], R.MEMORY_MIN) == 64 * MIB
    assert world.value(first.pod, R.MEMORY_MIN) == 64 * MIB
    assert world.value("kubepods", R.MEMORY_MIN) == 64 * MIB
    other = world.host.make_pod(
        "cgroupfs", "guaranteed", "44444444-0000-4000-8000-000000000004", [BOX]
    )
    world.host.write(
        "/sys/fs/cgroup/" + other.containers[0] + "/memory.max", str(32 * MIB).encode()
    )
    world.run(1.1)
    assert world.value("kubepods", R.MEMORY_MIN) == 96 * MIB
    world.host.remove_cgroup(first.pod)
    world.run(1.1)
    assert world.value("kubepods", R.MEMORY_MIN) == 32 * MIB


def test_floors_together_are_no_more_than_the_machine_has(make_world: MakeWorld) -> None:
    lines = "".join(
        f'[[applications]]\nname = "a{n}"\ncgroup = "a{n}"\nqos = "LS"\nmemory_request = "{n}Gi"\n'
        for n in (2, 6)
    )
    world = make_world(SLO + lines + NO_ALARMS, "v2", memory_bytes=2 << 30)
    for name in ("a2", "a6"):
        world.host.make_cgroup(name)
    world.start(V2)
    world.run(1)
    floors = [world.value(name, R.MEMORY_MIN) for name in ("a2", "a6")]
    assert floors == [512 * MIB, 1536 * MIB]


def test_page_cache_of_best_effort_goes_before_it_is_throttled(make_world: MakeWorld) -> None:
    """Above 95 % of memory.high, down to 93 % of it, and the latency-sensitive one keeps all."""
    world = started(furnished(make_world, "v2"), V2)
    world.run(2)
    world.host.read_files(process(world, "batch"), 79 * MIB)
    world.host.read_files(process(world, "services/shop"), 400 * MIB)
    used = world.value("batch", R.MEMORY_USAGE)
    assert isinstance(used, int) and used > 78 * MIB
    world.run(3)
    low = 80 * MIB * 95 // 100 - 80 * MIB * 20 // 1000
    assert world.value("batch", R.MEMORY_USAGE) == pytest.approx(low, abs=4096)
    assert world.value("services/shop", R.MEMORY_USAGE) == 400 * MIB
    written = [e for e in world.parts.events.recent() if e.decision is not None]
    (told,) = [e.decision for e in written if e.decision.resource == "memory.reclaim"]
    assert told.result == "reclaimed" and told.cgroup == "batch"


def test_pods_that_come_and_go_do_not_hold_reclaim_up(make_world: MakeWorld) -> None:
    """The worker has not begun when the next pod comes."""
    world = started(furnished(make_world, "v2"), V2)
    waiting: list[Callable[[], None]] = []
    reclaimer = Reclaimer(world.host, detect(world.host), start=waiting.append)
    world.engine.reclaims = Reclaims(
        reclaimer, world.parts.metrics, world.parts.tell, world.parts.runner.reclaimed
    )
    world.run(2)
    world.host.read_files(process(world, "batch"), 79 * MIB)
    while not waiting:
        world.run(1)
    world.host.make_cgroup("another")
    world.engine.tick(Wake(WakeKind.CHANGE))
    waiting.pop()()
    low = 80 * MIB * 95 // 100 - 80 * MIB * 20 // 1000
    assert world.value("batch", R.MEMORY_USAGE) == pytest.approx(low, abs=4096)


def test_best_effort_gives_way_when_little_of_the_node_is_free(make_world: MakeWorld) -> None:
    body = "[slo.resourceQOSStrategy.beClass.memoryQOS]\nenable = true\n"
    world = furnished(make_world, "v2", body, memory_bytes=2 << 30)
    started(world, V2)
    world.run(2)
    total = world.parts.memory_bytes
    world.host.read_files(process(world, "services/shop"), 300 * MIB)
    filler = world.host.spawn("batch")
    world.host.write("/sys/fs/cgroup/batch/memory.max", b"max")
    shop = world.value("services/shop", R.MEMORY_USAGE)
    left = total - _used(world)
    world.host.read_files(filler, left - 8 * MIB)
    world.run(10)
    assert total - _used(world) >= total * 3 // 100 - MIB
    assert world.value("services/shop", R.MEMORY_USAGE) == shop


def _used(world: World) -> int:
    text = world.host.read("/proc/meminfo").decode()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()}
    return (kib["MemTotal"] - kib["MemFree"]) * 1024


def test_in_observe_mode_nothing_is_reclaimed_and_it_is_told(make_world: MakeWorld) -> None:
    world = furnished(make_world, "v2", SLO + '[daemon]\nmode = "observe"\n')
    started(world, V2)
    world.host.read_files(process(world, "batch"), 99 * MIB)
    used = world.value("batch", R.MEMORY_USAGE)
    world.run(3)
    assert world.value("batch", R.MEMORY_USAGE) == used
    results = [
        e.decision.result
        for e in world.parts.events.recent()
        if e.decision is not None and e.decision.resource == "memory.reclaim"
    ]
    assert results == ["would-reclaim"]


def test_the_livelock_at_memory_high_is_seen_and_ended(make_world: MakeWorld) -> None:
    """Anonymous memory that cannot be reclaimed, its tasks waiting all the time."""
    world = started(furnished(make_world, "v2"), V2)
    world.run(2)
    world.host.set_memory(process(world, "batch"), 80 * MIB)
    world.host.stall("/sys/fs/cgroup/batch/memory.pressure", some=0.95, full=0.9)
    world.run(8)
    assert world.value("batch", R.MEMORY_HIGH) == 88 * MIB
    assert any("instead of" in text and "application batch" in text for text in world.texts())
    world.stop()
    started(world, V2)
    world.run(2)
    assert world.value("batch", R.MEMORY_HIGH) == 88 * MIB
    world.host.stall("/sys/fs/cgroup/batch/memory.pressure", some=0.0, full=0.0)
    world.run(70)
    assert world.value("batch", R.MEMORY_HIGH) == 80 * MIB


def test_a_burstable_pod_of_which_nobody_tells_the_request(make_world: MakeWorld) -> None:
    """By the cgroup tree alone, as on a node where koordlet may ask neither kubelet nor runtime."""
    world = make_world(SLO + NO_ALARMS, "v2", memory_bytes=10_000 * MIB)
    pod = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    inside = world.host.spawn(pod.containers[0])
    inside.oom_score_adj = 900
    world.start(V2)
    world.run(2)
    assert world.value(pod.containers[0], R.MEMORY_MIN) == 500 * MIB
    assert world.value(pod.pod, R.MEMORY_LOW) == 1000 * MIB
    (first, *_) = world.views.explain(pod.containers[0], 10)().decisions
    assert "estimated from oom_score_adj" in first.why.text
    world.views.restore(dry_run=False)
    assert world.value(pod.containers[0], R.MEMORY_MIN) == 0


def test_a_resize_leaves_the_group_kill_that_kubelet_set(make_world: MakeWorld) -> None:
    """Of a class that does not ask for one, ``memory.oom.group`` is never ours: not while a pod is
    resized, nor when its floors go back."""
    world = make_world(SLO + "[nri]\nenable = true\n" + NO_ALARMS, "v2")
    boxes = [letter * 64 for letter in "ab"]
    pod = world.host.make_pod("systemd", "burstable", UIDS["burstable"], boxes)
    for cgroup in pod.containers:
        world.host.write(f"/sys/fs/cgroup/{cgroup}/memory.oom.group", b"1")
    world.start(V2)

    def tell(memory_bytes: int) -> None:
        asked = Resources(request_memory_bytes=memory_bytes, limit_memory_bytes=memory_bytes)
        containers = tuple(
            ContainerFacts(f"containerd://{number}", cgroup, f"c{number}", False, resources=asked)
            for number, cgroup in enumerate(pod.containers)
        )
        world.parts.reported["nri"].upsert(
            PodFacts(
                UIDS["burstable"],
                cgroup=pod.pod,
                name="web",
                namespace="ns",
                labels={"koordinator.sh/qosClass": "LS"},
                priority=9500,
                resources=asked,
                containers=containers,
            )
        )
        world.run(2)

    for size in (64 * MIB, 32 * MIB, 128 * MIB):
        tell(size)
        assert world.value(pod.containers[0], R.MEMORY_MIN) == size // 2
    world.views.restore(dry_run=False)
    assert not [path for path, _ in world.host.written if path.endswith("memory.oom.group")][2:]
    assert [world.value(each, R.MEMORY_OOM_GROUP) for each in pod.containers] == [1, 1]
