"""A pass that knows the one before finds what one from scratch would, with less work."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import (
    Application,
    CpuPool,
    Kubelet,
    Node,
    NodeCpus,
    Pod,
    Resources,
    Snapshot,
)
from koordlet.decision.strategy import Adjustment, Hook, Level, Subject
from koordlet.decision.why import Why
from koordlet.hooks import HOOKS
from koordlet.hooks.cpuset import CpusetOptions
from koordlet.hooks.reconcile import Pass, reconcile, run
from koordlet.protocol import keys
from koordlet.protocol.slo import NetworkQOS
from tests.hooks.build import ALL, ON, every_hook, made, network_slo, slo, supports
from tests.qos.build import EIGHT, Kernel, app, be_pod, kernel, node, pod, snapshot

_BATCH = {
    "requests": {"kubernetes.io/batch-cpu": 500},
    "limits": {"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": 1 << 30},
}
EVERYTHING = supports(*Resource, "core-sched", "terway", "resctrl.l3")
NODE = node(EIGHT, capabilities=EVERYTHING, l3_masks={0: 0xFFF})
NAMES = ("a", "b", "c")


def moody(subject: Subject, snap: Snapshot) -> Adjustment:
    """Looks at the tree, and fails now and then."""
    inner = snap.in_force.children(subject.cgroup)
    if "broken" in inner:
        raise RuntimeError("broken")
    why = Why("moody", f"{len(inner)} inside")
    return Adjustment(((Resource.MEMORY_HIGH, len(inner), why),), (why,))


MOODY = made("moody", tuple(Level), moody, writes=(Resource.MEMORY_HIGH,))


def variants(uid: str) -> tuple[Pod, ...]:
    """What a pod may be, and become."""
    spec = json.dumps({"containers": {"main": _BATCH}})
    limited = {keys.NETWORK_QOS.name: '{"egressLimit": "1M"}'}
    found = (
        pod(uid, containers=("x",)),
        pod(uid, None, "Guaranteed", resources=Resources(limit_cpu_milli=2000)),
        pod(uid, "LSR", "Guaranteed", cpus={ord(uid) % 4}, containers=("x", "y")),
        pod(uid, "LSE", "Guaranteed", cpus={4 + ord(uid) % 4}, containers=("x",)),
        pod(uid, "LS", "Burstable", phase="Failed", cpus={7}),
        be_pod(uid, containers=("x",), annotations={keys.EXTENDED_RESOURCE_SPEC.name: spec}),
        be_pod(uid, containers=("x",), annotations={keys.EXTENDED_RESOURCE_SPEC.name: "{"}),
        pod(uid, "LS", containers=("x",), annotations=limited),
        pod(uid, "LS", containers=("x",), annotations={keys.RESCTRL.name: '{"llc": 5}'}),
        pod(uid, "LS", containers=("x",), annotations={keys.OOM_SCORE_ADJ.name: "-1000"}),
    )
    return tuple(
        msgspec.structs.replace(
            each,
            containers=tuple(msgspec.structs.replace(c, name="main") for c in each.containers),
        )
        for each in found
    )


PODS = {uid: variants(uid) for uid in NAMES}
SPECS = (
    ALL,
    slo("coreSched", be=ON, ls=ON),
    network_slo("tc", "1G", be=NetworkQOS(True, egress_limit=50)),
    network_slo("terway-qos", "1G", ls=NetworkQOS(True, egress_limit=50)),
    None,
)
NODES = (
    NODE,
    msgspec.structs.replace(NODE, cpus=NodeCpus(normalization_ratio=1.5)),
    msgspec.structs.replace(NODE, kubelet=Kubelet(static_policy=True)),
    msgspec.structs.replace(NODE, cpus=NodeCpus(share_pools=(CpuPool(0, 0, frozenset({0, 1})),))),
    msgspec.structs.replace(NODE, capabilities={}),
)
SETS = (
    (*HOOKS.values(), MOODY),
    (*every_hook(cpuset=CpusetOptions(be_pools=True)), MOODY),
    tuple(HOOKS.values())[:3],
)
APPLICATIONS = (app("job", "BE"), app("web", "LS"), app("same", "BE", "kubepods/burstable/poda"))
CGROUPS = ("kubepods", "kubepods/besteffort", "kubepods/burstable/poda", "kubepods/podb/x")
FILES = {
    Resource.CPUSET_CPUS: ("0-3", "0-7", ""),
    Resource.CPU_QUOTA_US: (-1, 50_000),
    Resource.CPU_SHARES: (2, 1024),
    Resource.CPU_PERIOD_US: (100_000, 10_000),
}


@dataclass
class World:
    """All that a snapshot is made of."""

    pods: dict[str, Pod] = field(default_factory=dict)
    applications: tuple[Application, ...] = ()
    machine: Node = NODE
    spec: Any = ALL
    hooks: tuple[Hook, ...] = SETS[0]
    kernel: Kernel = field(default_factory=lambda: kernel(8))
    synced: bool = True
    now: float = 0.0

    def take(self) -> Snapshot:
        """As at the next tick."""
        self.now += 10
        # A kernel of its own for each snapshot, as a view has.
        frozen = Kernel(
            dict(self.kernel.values), set(self.kernel.cgroups), dict(self.kernel.originals)
        )
        taken = snapshot(
            self.machine,
            pods=[self.pods[uid] for uid in sorted(self.pods)],
            apps=self.applications,
            in_force=frozen,
            now=self.now,
            sources_synced=self.synced,
        )
        return msgspec.structs.replace(taken, slo=self.spec)


files = st.sampled_from(list(FILES)).flatmap(
    lambda resource: st.tuples(
        st.sampled_from(CGROUPS), st.just(resource), st.sampled_from(FILES[resource])
    )
)
steps = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.integers(0, len(PODS["a"]) - 1)),
    st.tuples(st.just("gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("applications"), st.lists(st.sampled_from(APPLICATIONS), unique=True)),
    st.tuples(st.just("machine"), st.sampled_from(NODES)),
    st.tuples(st.just("spec"), st.sampled_from(SPECS)),
    st.tuples(st.just("hooks"), st.sampled_from(SETS)),
    st.tuples(st.just("file"), files),
    st.tuples(st.just("original"), files),
    st.tuples(st.just("child"), st.sampled_from(CGROUPS), st.sampled_from(("broken", "z"))),
    st.tuples(st.just("synced"), st.booleans()),
)


def change(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case "pod", uid, variant:
            world.pods[uid] = PODS[uid][variant]
        case "gone", uid:
            world.pods.pop(uid, None)
        case "applications", found:
            world.applications = tuple(found)
        case "file", (cgroup, resource, value):
            world.kernel.values[cgroup, resource] = value
        case "original", (cgroup, resource, value):
            world.kernel.originals[cgroup, resource] = value
        case "child", cgroup, name:
            world.kernel.cgroups ^= {f"{cgroup}/{name}"}
        case name, value:
            setattr(world, name, value)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(steps, max_size=3), min_size=1, max_size=8))
def test_a_pass_finds_what_one_from_scratch_finds(rounds: list[list[tuple[Any, ...]]]) -> None:
    world = World({uid: PODS[uid][number] for number, uid in enumerate(NAMES)})
    done: Pass | None = None
    for changes in ([], *rounds):
        for step in changes:
            change(world, step)
        taken = world.take()
        done = run(world.hooks, taken, done)
        assert done.decisions == reconcile(world.hooks, taken)


def counting(asked: list[str]) -> Hook:
    def note(subject: Subject, snap: Snapshot) -> Adjustment:
        asked.append(subject.cgroup)
        return Adjustment(((Resource.CPU_IDLE, 1, Why("note", "")),))

    return made("note", (Level.POD, Level.CONTAINER), note, writes=(Resource.CPU_IDLE,))


@pytest.fixture
def world() -> World:
    return World({uid: PODS[uid][0] for uid in NAMES})


def test_only_a_changed_pod_is_asked_about(world: World) -> None:
    asked: list[str] = []
    every = (counting(asked), *HOOKS.values())
    done = run(every, world.take())
    assert len(asked) == 6
    asked.clear()
    again = run(every, world.take(), done)
    assert asked == []
    assert all(new is old for new, old in zip(again.decisions, done.decisions, strict=True))
    world.pods["b"] = PODS["b"][9]
    run(every, world.take(), again)
    assert asked == ["kubepods/burstable/podb", "kubepods/burstable/podb/x"]


def test_what_others_hold_is_asked_about_by_whom_it_concerns(world: World) -> None:
    asked: list[str] = []
    every = (counting(asked), *HOOKS.values())
    done = run(every, world.take())
    asked.clear()
    world.pods["c"] = PODS["c"][2]  # takes a CPU out of the shared pool
    done = run(every, world.take(), done)
    assert len(asked) == 7
    asked.clear()
    # Shared CPUs are bounded by those of the cgroups above, which somebody narrows here.
    world.kernel.values["kubepods/burstable/poda", Resource.CPUSET_CPUS] = "0-1"
    done = run(every, world.take(), done)
    assert asked == ["kubepods/burstable/poda", "kubepods/burstable/poda/x"]
    asked.clear()
    world.machine = NODES[1]
    run(every, world.take(), done)
    assert len(asked) == 7


def test_a_hook_whose_shared_facts_cannot_be_had_fails_alone(world: World) -> None:
    asked: list[str] = []

    def broken(snap: Snapshot) -> object:
        raise RuntimeError("broken")

    every = (replace(counting(asked), shared=broken), *HOOKS.values())
    done = run(every, world.take())
    asked.clear()
    again = run(every, world.take(), done)
    assert len(asked) == 6
    assert again.decisions == done.decisions
