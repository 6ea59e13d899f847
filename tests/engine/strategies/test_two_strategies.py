"""Two owners of one file: the merge rule of each resource, whole daemons with pairs of strategies
on the same cgroup, and kubelet, which resizes pods underneath them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from koordlet_fakefs import shape

from koordlet.actuator.merge import RULES, Rule
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Resources
from koordlet.qos.memory_qos.strategy import LOOK_S
from tests.actuator.world import World as Machine
from tests.actuator.world import fake
from tests.daemon.everything import FEATURES, LIMITED, MIB, furnish, start
from tests.daemon.world import CPUS, NO_ALARMS, World
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
R = Resource
QUOTA, BURST, HIGH = R.CPU_QUOTA_US, R.CPU_BURST_US, R.MEMORY_HIGH
DOC = Path(__file__).parents[3] / "docs" / "concepts" / "actuator.md"
OWNERS = ("first", "second")


def test_the_table_of_the_documentation_is_the_table_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", DOC.read_text(), re.MULTILINE)
    told = {rule: set(re.findall(r"`([^`]+)`", names)) for rule, names in rows if rule in set(Rule)}
    assert told == {
        rule: {resource.value for resource, each in RULES.items() if each is rule} for rule in Rule
    }


@dataclass(frozen=True)
class Pair:
    """``wants``: what the first and the second owner want. ``together``: what comes of both."""

    resource: Resource
    wants: tuple[Value, Value]
    together: Value


PAIRS = (
    Pair(R.CPUSET_CPUS, ("0-2", "1-3"), "1-2"),
    Pair(R.CPUSET_CPUS, ("0-1", "2-3"), "0-1"),
    Pair(QUOTA, (80_000, 50_000), 50_000),
    Pair(QUOTA, (-1, 50_000), 50_000),
    Pair(R.CPU_SHARES, (2, 262_144), 2),
    Pair(R.CPU_IDLE, (1, 0), 1),
    Pair(R.MEMORY_LIMIT, (64 * MIB, 32 * MIB), 32 * MIB),
    Pair(HIGH, (-1, 32 * MIB), 32 * MIB),
    Pair(R.MEMORY_MIN, (16 * MIB, 32 * MIB), 32 * MIB),
    Pair(R.MEMORY_LOW, (32 * MIB, 16 * MIB), 32 * MIB),
    Pair(R.MEMORY_OOM_GROUP, (1, 0), 1),
    Pair(R.BLKIO_READ_BPS, ("254:0 1000", "254:0 2000"), "254:0 1000"),
    Pair(R.FREEZE, (1, 0), 1),
)


def machine(tmp_path: Path, name: str) -> Machine:
    (tmp_path / name).mkdir()
    made = Machine(fake("v2", topology=shape(cores_per_l3=4)), str(tmp_path / name))
    made.host.make_cgroup("x")
    made.start(ranks=OWNERS)
    return made


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.resource}-{pair.wants[0]}")
def test_who_speaks_first_does_not_matter_and_each_may_give_up(tmp_path: Path, pair: Pair) -> None:
    wants = dict(zip(OWNERS, pair.wants, strict=True))
    for order in permutations(OWNERS):
        for leaves in OWNERS:
            found = machine(tmp_path, f"{order[0]}-{leaves}")
            original = found.value("x", pair.resource)
            for owner in order:
                found.want(owner, ("x", pair.resource, wants[owner]))
            assert found.value("x", pair.resource) == pair.together
            stays = next(owner for owner in OWNERS if owner != leaves)
            found.want(leaves)
            assert found.value("x", pair.resource) == wants[stays]
            found.want(leaves, ("x", pair.resource, wants[leaves]))
            assert found.value("x", pair.resource) == pair.together
            found.want(leaves)
            found.want(stays)
            # An empty CPU list has the effect of the whole machine's.
            assert found.value("x", pair.resource) in (original, original or "0-3")
            found.close()


def test_a_quota_that_falls_takes_the_burst_of_another_owner_with_it(tmp_path: Path) -> None:
    """The kernel takes no quota below the burst: whoever sets that must not hold the other up."""
    found = machine(tmp_path, "burst")
    found.cgroups.write("x", QUOTA, 100_000)
    found.want("second", ("x", BURST, 100_000))
    found.want("first", ("x", QUOTA, 30_000))
    assert (found.value("x", QUOTA), found.value("x", BURST)) == (30_000, 30_000)
    assert [o.why.text for o in found.apply() if o.resource is BURST] == [
        "the test wants it (at most the quota that first sets, 30000 us)"
    ]
    found.want("first", ("x", QUOTA, 60_000))
    assert (found.value("x", QUOTA), found.value("x", BURST)) == (60_000, 60_000)
    found.want("first")
    assert (found.value("x", QUOTA), found.value("x", BURST)) == (100_000, 100_000)
    found.want("first", ("x", QUOTA, 30_000))
    found.want("second")
    assert (found.value("x", QUOTA), found.value("x", BURST)) == (30_000, 0)
    found.want("first")
    assert (found.value("x", QUOTA), found.value("x", BURST)) == (100_000, 0)
    found.close()


BOX_OF_LIMITED = f"kubepods/burstable/pod{LIMITED}/{'c2' * 32}"


def switch(world: World, **tables: bool) -> None:
    """Strategies and hooks off or on again, by their names with ``_``."""
    text = world.file.read_text().partition("# switches\n")[0] + "# switches\n"
    for name, on in tables.items():
        if name == "cpu_evict":  # has a table already
            key = f"cool_down_seconds = 0\nenable = {str(on).lower()}\n"
            text = re.sub(r"cool_down_seconds = 0\n(enable = \w+\n)?", key, text)
            continue
        room = "hooks" if name == "cpu_normalization" else "strategies"
        text += f"[{room}.{name.replace('_', '-')}]\nenable = {str(on).lower()}\n"
    world.file.write_text(text)
    world.reload()
    world.run(3)


def test_burst_on_a_quota_that_another_owner_scales(make_world: MakeWorld) -> None:
    """cpu-normalization and cpu-burst: neither holds the other up, in whatever order they go."""
    world = furnish(make_world)
    start(world)
    world.run(4)

    def values() -> tuple[Value, Value]:
        return world.value(BOX_OF_LIMITED, QUOTA), world.value(BOX_OF_LIMITED, BURST)

    assert values() == (80_000, 80_000)
    switch(world, cpu_normalization=False)
    assert values() == (100_000, 100_000)
    switch(world, cpu_normalization=True)
    world.run(10)
    assert values() == (80_000, 80_000)
    switch(world, cpu_burst=False)
    assert values() == (80_000, 0)
    switch(world, cpu_burst=False, cpu_normalization=False)
    assert values() == (100_000, 0)
    assert not world.views.status().conflicts


def test_suppressed_best_effort_has_no_bursts(make_world: MakeWorld) -> None:
    """cpu-suppress and cpu-burst share no file: what is suppressed may not burst. Each of them may
    come and go beside the other."""
    world = furnish(make_world)
    start(world)
    world.run(10)
    owners = {
        each.owner for each in world.parts.actuator.owned() if each.resource in (QUOTA, BURST)
    }
    assert owners == {"cpu-suppress", "cpu-burst", "cpu-normalization"}
    assert world.value("batch", BURST) == 0
    raised, limit = world.value("shop", QUOTA), world.value("batch", QUOTA)
    assert raised != 50_000
    assert limit != -1
    switch(world, cpu_burst=False)
    assert (world.value("shop", QUOTA), world.value("shop", BURST)) == (50_000, 0)
    assert world.value("batch", QUOTA) != -1
    switch(world, cpu_burst=True, cpu_suppress=False)
    assert world.value("batch", QUOTA) == -1
    assert world.value("shop", BURST) == 50_000


MEMORY = """
[slo.resourceUsedThresholdWithBE]
enable = true
memoryEvictThresholdPercent = 70
memoryEvictLowerPercent = 55
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
throttlingPercent = 80
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
minLimitPercent = 50
lowLimitPercent = 100
"""


def pod(world: World, number: int, memory_mib: int, limit_mib: int, qos: str = "BE") -> str:
    """A pod that a runtime has told of, with a memory limit; returns its container's cgroup."""
    uid = f"00000000-0000-0000-0000-00000000000{number}"
    kube = "besteffort" if qos == "BE" else "burstable"
    groups = world.host.make_pod("cgroupfs", kube, uid, (f"c{number}" * 32,))
    (box,) = groups.containers
    world.processes[box] = world.host.spawn(box, memory_bytes=memory_mib * MIB)
    tell(world, number, qos, request_mib=limit_mib // 2, limit_mib=limit_mib)
    world.parts.cgroups.write(box, R.MEMORY_LIMIT, limit_mib * MIB)
    return box


def tell(world: World, number: int, qos: str, *, request_mib: int, limit_mib: int) -> None:
    uid = f"00000000-0000-0000-0000-00000000000{number}"
    kube = "besteffort" if qos == "BE" else "burstable"
    cgroup = f"kubepods/{kube}/pod{uid}"
    container = f"c{number}" * 32
    amounts = Resources(
        request_memory_bytes=request_mib * MIB,
        limit_memory_bytes=limit_mib * MIB,
        request_batch_memory_bytes=request_mib * MIB,
        limit_batch_memory_bytes=limit_mib * MIB,
    )
    world.parts.reported["nri"].upsert(
        PodFacts(
            uid,
            cgroup=cgroup,
            name=f"pod{number}",
            namespace="ns",
            labels={"koordinator.sh/qosClass": qos},
            annotations={},
            resources=amounts,
            containers=(
                ContainerFacts(container, f"{cgroup}/{container}", "main", resources=amounts),
            ),
        )
    )


def test_the_settings_of_a_victim_go_with_it_and_those_of_others_stay(
    make_world: MakeWorld,
) -> None:
    """memory-qos throttles whom memory-evict ends: nothing is written to who is on his way out
    that he did not have, and nothing of him is left in the journal."""
    world = make_world(MEMORY + NO_ALARMS, "v2", memory_bytes=8192 * MIB)
    world.start(FEATURES)
    stays, leak = pod(world, 1, 300, 1000), pod(world, 2, 1000, 6000)
    web = pod(world, 3, 2000, 4000, "LS")
    world.run(12)
    highs = {box: world.value(box, HIGH) for box in (stays, leak)}
    assert all(isinstance(high, int) and high > 0 for high in highs.values())
    floor = world.value(web, R.MEMORY_MIN)
    assert floor == 1000 * MIB
    world.host.set_memory(world.processes[leak], 4700 * MIB)
    world.run(3)
    assert not world.processes[leak].alive
    assert world.processes[stays].alive
    # Kubelet removes the cgroup of who has ended.
    world.host.remove_cgroup(leak.rpartition("/")[0])
    world.run(LOOK_S + 2)
    owned = {each.cgroup for each in world.parts.actuator.owned()}
    assert stays in owned
    assert not any(leak.rpartition("/")[0] in cgroup for cgroup in owned)
    assert world.value(stays, HIGH) == highs[stays]
    assert world.value(web, R.MEMORY_MIN) == floor
    status = world.views.status()
    assert not status.conflicts
    assert not status.problems


def test_freezing_and_throttling_one_application(make_world: MakeWorld) -> None:
    """cpu-evict freezes what memory-qos and cpu-suppress limit; each goes without the others."""
    world = furnish(make_world)
    start(world)
    world.run(8)
    files = (R.FREEZE, HIGH, QUOTA)
    frozen, high, quota = (world.value("job", each) for each in files)
    assert frozen == 1
    assert high != -1
    assert quota != -1
    switch(world, cpu_evict=False)
    assert world.value("job", R.FREEZE) == 0
    assert world.value("job", HIGH) == high
    assert world.value("job", QUOTA) != -1
    switch(world, cpu_evict=True, memory_qos=False)
    world.run(5)
    assert world.value("job", R.FREEZE) == 1
    assert world.value("job", HIGH) != high


BURSTS = '[slo.cpuBurstStrategy]\npolicy = "auto"\n'


def resize(world: World, cgroup: str, resource: Resource, value: int) -> bool:
    """As kubelet and the runtime do it, who know of no bursts. Whether the kernel took it."""
    try:
        world.parts.cgroups.write(cgroup, resource, value)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_kubelet_gives_a_bursting_pod_more(make_world: MakeWorld, layout: str) -> None:
    world = make_world(BURSTS + NO_ALARMS, layout)
    world.start()
    made = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    (box,) = made.containers
    world.host.spawn(box, demand_cores=3.5, threads=CPUS)
    for cgroup in (made.pod, box):
        world.parts.cgroups.write(cgroup, QUOTA, 50_000)
    world.run(4)
    assert int(world.value(box, QUOTA)) > 50_000
    for cgroup in (made.pod, box):
        assert resize(world, cgroup, QUOTA, 200_000)
    world.run(1)
    assert (world.value(box, BURST), world.value(made.pod, BURST)) == (200_000, 200_000)
    world.run(10)
    # Raised from there, never back to what it was before.
    assert int(world.value(box, QUOTA)) >= 200_000
    world.reload(NO_ALARMS)
    world.run(2)
    assert [world.value(c, r) for c in (made.pod, box) for r in (QUOTA, BURST)] == [200_000, 0] * 2


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_kubelet_gives_a_bursting_pod_less(make_world: MakeWorld, layout: str) -> None:
    """The kernel refuses a quota below the burst. Told by the runtime what is asked for, koordlet
    lowers the burst, and what kubelet repeats is taken."""
    world = make_world(BURSTS + NO_ALARMS, layout)
    world.start()
    made = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    (box,) = made.containers
    world.host.spawn(box, demand_cores=0.1)
    for cgroup in (made.pod, box):
        world.parts.cgroups.write(cgroup, QUOTA, 100_000)
    facts = PodFacts(
        UIDS["burstable"],
        cgroup=made.pod,
        containers=(ContainerFacts(BOX, box, "main", requested={QUOTA: 100_000}),),
    )
    world.parts.reported["nri"].upsert(facts)
    world.run(3)
    assert (world.value(box, BURST), world.value(made.pod, BURST)) == (100_000, 100_000)
    assert not resize(world, box, QUOTA, 40_000)
    (container,) = facts.containers
    asked = msgspec.structs.replace(container, requested={QUOTA: 40_000})
    world.parts.reported["nri"].upsert(msgspec.structs.replace(facts, containers=(asked,)))
    world.run(1)
    for cgroup in (box, made.pod):
        assert world.value(cgroup, BURST) == 40_000
        assert resize(world, cgroup, QUOTA, 40_000)
    world.run(70)
    for cgroup in (box, made.pod):
        assert (world.value(cgroup, QUOTA), world.value(cgroup, BURST)) == (40_000, 40_000)
    assert not world.views.status().conflicts


def test_kubelet_resizes_memory_under_floors_and_throttling(make_world: MakeWorld) -> None:
    world = make_world(MEMORY + NO_ALARMS, "v2", memory_bytes=8192 * MIB)
    world.start(FEATURES)
    box, web = pod(world, 1, 100, 1000), pod(world, 3, 100, 1000, "LS")
    world.run(3)
    assert world.value(box, HIGH) == 900 * MIB
    assert [world.value(web, each) for each in (R.MEMORY_MIN, R.MEMORY_LOW)] == [
        250 * MIB,
        500 * MIB,
    ]
    for number, qos, cgroup in ((1, "BE", box), (3, "LS", web)):
        assert resize(world, cgroup, R.MEMORY_LIMIT, 2000 * MIB)
        tell(world, number, qos, request_mib=1000, limit_mib=2000)
    world.run(2)
    assert world.value(box, HIGH) == 1800 * MIB
    assert [world.value(web, r) for r in (R.MEMORY_MIN, R.MEMORY_LOW)] == [500 * MIB, 1000 * MIB]
    above = web.rpartition("/")[0]
    assert world.value(above, R.MEMORY_MIN) == 500 * MIB
    for number, qos, cgroup in ((1, "BE", box), (3, "LS", web)):
        assert resize(world, cgroup, R.MEMORY_LIMIT, 400 * MIB)
        tell(world, number, qos, request_mib=200, limit_mib=400)
    world.run(2)
    assert world.value(box, HIGH) == 360 * MIB
    assert [world.value(web, r) for r in (R.MEMORY_MIN, R.MEMORY_LOW)] == [100 * MIB, 200 * MIB]
    assert world.value(box, R.MEMORY_LIMIT) == world.value(web, R.MEMORY_LIMIT) == 400 * MIB
    assert not world.views.status().conflicts
