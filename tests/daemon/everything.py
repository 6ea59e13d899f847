"""A fake machine on which every strategy and every hook has something to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from koordlet_fakefs import shape

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Resources
from koordlet.decision.strategy import Hook, Strategy
from koordlet.engine import options, traffic
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from tests.daemon.world import NO_ALARMS, World

MakeWorld = Callable[..., World]
MIB = 1 << 20
QUOTA = Resource.CPU_QUOTA_US
FEATURES = (
    *(str(resource) for resource in Resource),
    *("resctrl.l3", "resctrl.mb", "core-sched", "terway", "memory.reclaim"),
)
_IDENTITY_ONLY = {str(Resource.CPU_BVT_WARP_NS), str(Resource.SYSCTL_GROUP_IDENTITY)}

NODE = """
[node.annotations]
"node.koordinator.sh/cpu-shared-pools" = '[{"socket":0,"node":0,"cpuset":"1-3"}]'
"node.koordinator.sh/cpu-normalization-ratio" = "1.25"
"""
SLO = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
memoryEvictThresholdPercent = 70
memoryEvictLowerPercent = 55
cpuEvictThresholdPercent = 20
cpuEvictLowerPercent = 10
evictEnabledPriorityThreshold = 5999
[slo.cpuBurstStrategy]
policy = "auto"
[slo.systemStrategy]
watermarkScaleFactor = 150
totalNetworkBandwidth = "40M"
[slo.resourceQOSStrategy.policies]
cpuPolicy = "{cpu_policy}"
netQOSPolicy = "{net_policy}"
[slo.resourceQOSStrategy.lsClass.cpuQOS]
enable = true
groupIdentity = 2
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
schedIdle = 1
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
minLimitPercent = 50
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
throttlingPercent = 80
[slo.resourceQOSStrategy.beClass.resctrlQOS]
enable = true
mbaPercent = 35
[slo.resourceQOSStrategy.beClass.networkQOS]
enable = true
egressLimit = "20M"
[slo.resourceQOSStrategy.beClass.blkioQOS]
enable = true
[[slo.resourceQOSStrategy.beClass.blkioQOS.blocks]]
name = "vda"
type = "device"
[slo.resourceQOSStrategy.beClass.blkioQOS.blocks.ioCfg]
readBPS = 1000
"""
APPLICATIONS = """
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
memory_limit = "100Mi"

[[applications]]
name = "job"
cgroup = "job"
qos = "BE"
evict = "freeze"
"""
QUIET_EVICTIONS = "[strategies.cpu-evict]\ncool_down_seconds = 0\n"
OPT_IN = "[strategies.resctrl-monitor]\nenable = true\n"
LIMITED = "00000000-0000-0000-0000-000000000003"
PODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # uid: kube class, QoS class, annotations
    "00000000-0000-0000-0000-000000000001": (
        "besteffort",
        "BE",
        {
            "node.koordinator.sh/extended-resource-spec": {
                "containers": {
                    "main": {
                        "requests": {"kubernetes.io/batch-cpu": "500"},
                        "limits": {
                            "kubernetes.io/batch-cpu": "1000",
                            "kubernetes.io/batch-memory": "64Mi",
                        },
                    }
                }
            }
        },
    ),
    "00000000-0000-0000-0000-000000000002": (
        "burstable",
        "LS",
        {
            "koordinator.sh/oom-score-adj": 990,
            "node.koordinator.sh/resctrl": {"llc": {"schemata": {"range": [0, 50]}}},
        },
    ),
    LIMITED: ("burstable", "LS", {}),
}
IN_CORE_SCHED = frozenset({"core-sched", "terway-qos"})
"""These work under policies of their own; all others under the defaults."""


def furnish(make_world: MakeWorld, *, core_sched: bool = False) -> World:
    body = SLO.format(
        cpu_policy="coreSched" if core_sched else "groupIdentity",
        net_policy="terway-qos" if core_sched else "tc",
    )
    world = make_world(
        NODE + body + APPLICATIONS + NO_ALARMS + QUIET_EVICTIONS + OPT_IN,
        "hybrid",
        anolis=True,
        resctrl=True,
        terway=True,
        memory_bytes=8192 * MIB,
        topology=shape(cores_per_l3=4, smt=2),
    )
    for cgroup, cores in (("shop", 1.2), ("batch", 4.0), ("job", 2.0)):
        world.application(cgroup, cores)
    for number, (uid, (kube, _, _)) in enumerate(PODS.items()):
        groups = world.host.make_pod("cgroupfs", kube, uid, (f"c{number}" * 32,))
        world.processes[uid] = world.host.spawn(groups.containers[0], demand_cores=0.2)
    cgroups = Cgroups(world.host, detect(world.host))
    pod = f"kubepods/burstable/pod{LIMITED}"
    quotas = {"shop": 50_000, pod: 100_000, f"{pod}/{'c2' * 32}": 100_000}
    for cgroup, quota_us in quotas.items():
        cgroups.write(cgroup, QUOTA, quota_us)
    return world


def start(world: World) -> None:
    """The daemon, and what a runtime tells it."""
    features = FEATURES
    if 'cpuPolicy = "coreSched"' in world.file.read_text():
        features = tuple(each for each in FEATURES if each not in _IDENTITY_ONLY)
    world.start(features)
    tell(world)


def tell(world: World, priority: str = "0") -> None:
    """What a runtime knows of the pods; with another ``priority`` every pod has changed."""
    for number, (uid, (_, qos, asked)) in enumerate(PODS.items()):
        known = Resources(limit_cpu_milli=1000) if uid == LIMITED else None
        (cgroup,) = [p.cgroup for p in world.parts.state.pods() if p.uid == uid]
        container = f"c{number}" * 32
        world.parts.reported["nri"].upsert(
            PodFacts(
                uid,
                cgroup=cgroup,
                name=f"pod{number}",
                namespace="ns",
                labels={"koordinator.sh/qosClass": qos, "koordinator.sh/priority": priority},
                annotations={
                    key: value if isinstance(value, str) else json.dumps(value)
                    for key, value in asked.items()
                },
                resources=known,
                containers=(
                    ContainerFacts(container, f"{cgroup}/{container}", "main", resources=known),
                ),
            )
        )


def held(world: World, owner: str) -> dict[tuple[str, Resource], Value]:
    """What is in the files that the owner holds, and how the link is divided for it."""
    plan = world.parts.traffic.plan if owner == TRAFFIC else None
    divided = {} if plan is None else {("", Resource.NET_EGRESS): str(plan)}
    return divided | {
        (each.cgroup, each.resource): world.parts.knobs.read(each.cgroup, each.resource)
        for each in world.parts.actuator.owned()
        if each.owner == owner
    }


class Fault:
    """Makes one strategy or hook raise while ``on``, over restarts and reloads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.name = name
        self.on = False
        self.hits = 0
        strategies, hooks = options.enabled_strategies, options.enabled_hooks
        divide = traffic.traffic

        def check() -> None:
            if self.on:
                self.hits += 1
                raise ZeroDivisionError(f"injected into {name}")

        def strategy(each: Strategy) -> Strategy:
            def decide(snapshot: Any, memory: Any) -> Any:
                check()
                return each.decide(snapshot, memory)

            return (
                replace(each, function=lambda snapshot, memory, _: decide(snapshot, memory))
                if each.name == name
                else each
            )

        def hook(each: Hook) -> Hook:
            def evaluate(subject: Any, snapshot: Any) -> Any:
                check()
                return each.evaluate(subject, snapshot)

            return (
                replace(each, function=lambda subject, snapshot, _: evaluate(subject, snapshot))
                if each.name == name
                else each
            )

        def divided(snapshot: Any) -> Any:
            if name == TRAFFIC:
                check()
            return divide(snapshot)

        monkeypatch.setattr(
            options, "enabled_strategies", lambda c: tuple(map(strategy, strategies(c)))
        )
        monkeypatch.setattr(options, "enabled_hooks", lambda c: tuple(map(hook, hooks(c))))
        monkeypatch.setattr(traffic, "traffic", divided)
