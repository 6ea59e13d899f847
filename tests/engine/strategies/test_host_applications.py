"""Host applications get what a pod of their class gets from every strategy and hook. What they do
not get is listed, here and in docs/concepts/host-applications.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from koordlet_fakefs import shape

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Resources, Wake
from koordlet.decision.strategy import Level
from koordlet.hooks import HOOKS
from koordlet.hooks.traffic import traffic
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.qos import STRATEGIES
from tests.daemon.everything import FEATURES, SLO, held
from tests.daemon.world import LAYOUTS, NO_ALARMS, World

MakeWorld = Callable[..., World]
R = Resource
MIB = 1 << 20
SHOP, BATCH = "shop", "batch"
PODS = {
    # the application of the same class: kube class, QoS class, uid
    SHOP: ("burstable", "LS", "11111111-0000-4000-8000-000000000001"),
    BATCH: ("besteffort", "BE", "22222222-0000-4000-8000-000000000002"),
}
CONTAINER = {SHOP: "a" * 64, BATCH: "b" * 64}
POOLS = """
[node.annotations]
"node.koordinator.sh/cpu-shared-pools" = '[{"socket":0,"node":0,"cpuset":"1-3"}]'
"""
LIMITS = Resources(
    limit_cpu_milli=500, request_memory_bytes=256 * MIB, limit_memory_bytes=512 * MIB
)
CONFIGURED = """
[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"
cpu_limit = "500m"
memory_request = "256Mi"
memory_limit = "512Mi"

[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
memory_limit = "512Mi"
"""
TOLD = """
[[slo.hostApplications]]
name = "shop"
qos = "LS"
cgroupPath = { base = "CgroupRoot", relativePath = "shop" }

[[slo.hostApplications]]
name = "batch"
qos = "BE"
cgroupPath = { base = "CgroupRoot", relativePath = "batch" }
"""
NO_CPU_EVICT = "[strategies.cpu-evict]\nenable = false\n"
IDENTITY, CORE_SCHED = "groupIdentity", "coreSched"
ANOLIS = ("v1", "hybrid", "comount")


@dataclass(frozen=True)
class Same:
    """``part`` gives ``resource`` the same value at an application and at ``beside``: the pod of
    its class, the container in that, or the best-effort directory. ``asked``: it follows from what
    the application has asked for, which a NodeSLO cannot say."""

    part: str
    application: str
    resource: Resource
    beside: str = "container"
    layouts: tuple[str, ...] = LAYOUTS
    asked: bool = False


SAME = (
    Same("cpu-spread", BATCH, R.CPU_SPREAD, "directory"),
    Same("cpu-burst", SHOP, R.CPU_BURST_US),
    Same("memory-qos", SHOP, R.MEMORY_MIN, asked=True),
    Same("memory-qos", BATCH, R.MEMORY_HIGH),
    Same("resctrl-qos", BATCH, R.RESCTRL_GROUP),
    Same("blkio-qos", BATCH, R.BLKIO_READ_BPS, "directory"),
    Same("cpu-qos", SHOP, R.CPU_BVT_WARP_NS, layouts=ANOLIS),
    Same("cpu-qos", BATCH, R.CPU_BVT_WARP_NS, layouts=ANOLIS),
    Same("cpuset", SHOP, R.CPUSET_CPUS),
    Same("core-sched", SHOP, R.CORE_SCHED_GROUP),
    Same("core-sched", BATCH, R.CORE_SCHED_GROUP),
    Same("network-qos", SHOP, R.NET_CLS_CLASSID, "pod", ("comount",)),
    Same("network-qos", BATCH, R.NET_CLS_CLASSID, "pod", ("comount",)),
)
IN_ANOTHER_WAY = {
    "cpu-means": "measured like pods; who yields is tried of them alone: tests/qos/cpu_means",
    "cpu-suppress": "each gets its part of one allowance: below",
    "cpu-evict": "stopped or frozen where the configuration allows it: test_evict.py",
    "memory-evict": "stopped where the configuration allows it: below",
    "interference": "told as victim and culprit, held back with act: tests/qos/interference",
}
NOT_AT_ALL = {
    "system-knobs": "is about the machine",
    "resctrl-monitor": "one is counted with its class",
    "kidled": "is about the machine",
    "batch-resource": "limits from requests for batch resources; an application has none",
    "cpu-normalization": "scales a quota that kubelet has set",
    "oom-score-adj": "an annotation asks for it",
    "resctrl": "an annotation asks for it",
    "gpu-env": "given to a container that is made",
    "rdma-devices": "given to a container that is made",
    "terway-qos": "terway knows pods alone",
}


def furnish(
    make_world: MakeWorld, applications: str, layout: str, policy: str = IDENTITY
) -> tuple[World, dict[str, dict[str, str]]]:
    """An application and a pod of each class with the same limits, everything on. Where each
    pod is: ``pod``, ``container``, ``directory``."""
    world = make_world(
        POOLS + SLO.format(cpu_policy=policy, net_policy="tc") + applications + NO_ALARMS,
        layout,
        anolis=layout in ANOLIS,
        core_sched=True,
        resctrl=True,
        memory_bytes=8192 * MIB,
        topology=shape(cores_per_l3=4, smt=2),
    )
    places = {}
    for name, (kube, _, uid) in PODS.items():
        groups = world.host.make_pod("cgroupfs", kube, uid, (CONTAINER[name],))
        places[name] = {
            "pod": groups.pod,
            "container": groups.containers[0],
            "directory": groups.pod.rpartition("/")[0],
        }
        world.processes[uid] = world.host.spawn(groups.containers[0], demand_cores=0.2)
        world.application(name, 1.0)
    knobs = Cgroups(world.host, detect(world.host))
    for cgroup in (SHOP, places[SHOP]["pod"], places[SHOP]["container"]):
        knobs.write(cgroup, R.CPU_QUOTA_US, 50_000)
    for cgroup in (BATCH, places[BATCH]["pod"], places[BATCH]["container"]):
        knobs.write(cgroup, R.MEMORY_LIMIT, 512 * MIB)
    identity = {str(R.CPU_BVT_WARP_NS), str(R.SYSCTL_GROUP_IDENTITY), str(R.SYSCTL_SCHED_CORE)}
    without = identity if policy == CORE_SCHED or layout not in ANOLIS else set()
    world.start(tuple(each for each in FEATURES if each not in without))
    for name, (_, qos, uid) in PODS.items():
        world.parts.reported["nri"].upsert(
            PodFacts(
                uid,
                cgroup=places[name]["pod"],
                name=f"pod-{name}",
                namespace="ns",
                labels={"koordinator.sh/qosClass": qos},
                resources=LIMITS,
                containers=(
                    ContainerFacts(
                        CONTAINER[name], places[name]["container"], "main", resources=LIMITS
                    ),
                ),
            )
        )
    world.run(12)
    return world, places


@pytest.mark.parametrize("policy", [IDENTITY, CORE_SCHED])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("applications", [CONFIGURED, TOLD], ids=["config", "NodeSLO"])
def test_as_a_pod_of_its_class(
    make_world: MakeWorld, applications: str, layout: str, policy: str
) -> None:
    world, places = furnish(make_world, applications, layout, policy)
    off = "core-sched" if policy == IDENTITY else "cpu-qos"
    for row in SAME:
        if layout not in row.layouts or row.part == off:
            continue
        mine = held(world, row.part)
        found = mine.get((row.application, row.resource))
        beside = mine.get((places[row.application][row.beside], row.resource))
        assert beside is not None, row
        assert found == (None if row.asked and applications == TOLD else beside), row
    world.reload(applications + NO_ALARMS)
    world.run(12)
    left = {each.cgroup for each in world.parts.actuator.owned()}
    assert left.isdisjoint(PODS)


@pytest.mark.parametrize("applications", [CONFIGURED, TOLD], ids=["config", "NodeSLO"])
def test_traffic_is_of_the_same_class_where_cgroups_are_matched(
    make_world: MakeWorld, applications: str
) -> None:
    world, places = furnish(make_world, applications, "v2")
    plan = traffic(world.engine.snapshot(Wake()))
    assert plan is not None
    minors = {member.cgroup: member.minor for member in plan.members}
    for name, place in places.items():
        assert minors[name] == minors[place["pod"]]
    assert minors[SHOP] != minors[BATCH]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("applications", [CONFIGURED, TOLD], ids=["config", "NodeSLO"])
def test_both_are_suppressed(make_world: MakeWorld, applications: str, layout: str) -> None:
    world, places = furnish(make_world, applications, layout)
    world.host.set_demand(world.processes[SHOP], 3.0)
    world.host.set_demand(world.processes[BATCH], 4.0)
    world.host.set_demand(world.processes[PODS[BATCH][2]], 4.0)
    world.run(12)
    mine = held(world, "cpu-suppress")
    quotas = [mine[cgroup, R.CPU_QUOTA_US] for cgroup in (BATCH, places[BATCH]["directory"])]
    assert all(isinstance(quota, int) and quota > 0 for quota in quotas)
    assert (SHOP, R.CPU_QUOTA_US) not in mine


@pytest.mark.parametrize(
    ("applications", "lives"),
    [(CONFIGURED + 'evict = "stop"\n', False), (CONFIGURED, True), (TOLD, True)],
    ids=["stop", "never", "NodeSLO"],
)
def test_a_leak_is_ended_where_the_configuration_allows_it(
    make_world: MakeWorld, applications: str, lives: bool
) -> None:
    world, _ = furnish(make_world, applications + NO_CPU_EVICT, "hybrid")
    world.parts.cgroups.write(BATCH, R.MEMORY_LIMIT, UNLIMITED)
    world.host.set_memory(world.processes[BATCH], 6000 * MIB)
    world.run(10)
    assert world.processes[BATCH].alive is lives and world.processes[SHOP].alive


def test_every_strategy_and_hook_says_what_applications_get() -> None:
    listed = [*{row.part for row in SAME}, *IN_ANOTHER_WAY, *NOT_AT_ALL]
    assert sorted(listed) == sorted([*STRATEGIES, *HOOKS])


def test_what_is_said_not_to_be_for_applications_never_is_asked_about_one() -> None:
    asked = {hook.name for hook in HOOKS.values() if Level.APPLICATION in hook.levels}
    assert asked.isdisjoint(NOT_AT_ALL)
    assert {row.part for row in SAME} - STRATEGIES.keys() == asked
