"""Conditions that the scheduler wrote at pods, and what ``explain`` and ``queue`` say of the same
objects: the same, for every kind of reason."""

from __future__ import annotations

import ast
import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import koord_scheduler
from koord_scheduler.cli.main import main
from tests.companion.daemon.cluster import fake_here
from tests.companion.histories.hands import Hands
from tests.companion.plan.test_reservations import (
    CORE,
    HOST,
    KEY,
    LSR,
    OWNER,
    RATIO,
    Tree,
    apart,
    holding,
    machine,
    node,
    pod,
    reservation,
)
from tests.companion.running import kubeconfig
from tests.companion.scheduling.rig import Rig, scheduling
from tests.companion.scheduling.test_reservations import RESERVATIONS

PLURALS = {
    "Node": "nodes",
    "Pod": "pods",
    "Reservation": "reservations",
    "Device": "devices",
    "NodeResourceTopology": "noderesourcetopologies",
    "ElasticQuota": "elasticquotas",
}
PORT = [{"hostPort": 80, "containerPort": 80}]
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
FULL = {f"{KEY}resource-spec": '{"requiredCPUBindPolicy": "FullPCPUs"}'}


def said(**annotations: Any) -> Tree:
    texts = {f"{KEY}{key.replace('_', '-')}": json.dumps(v) for key, v in annotations.items()}
    return {"metadata": {"annotations": texts}}


def gpus(many: str, **more: Any) -> Tree:
    return pod("p", amounts={"cpu": "1", CORE: many, RATIO: many}, **more)


def bound(cpu: str, **more: Any) -> Tree:
    return pod("p", {**LSR, **more.pop("labels", {})}, amounts={"cpu": cpu}, priority=9500, **more)


def with_node(found: tuple[Tree, ...], **labels: str) -> tuple[Tree, ...]:
    for key, text in labels.items():
        found[0]["metadata"]["labels"][f"node.koordinator.sh/{key.replace('_', '-')}"] = text
    return found


def near(app: str) -> Tree:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str) -> Tree:
    wanted = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    labels = {"matchLabels": {"app": "s"}}
    return {"topologySpreadConstraints": [{**wanted, "labelSelector": labels}]}


def kept(name: str, **more: Any) -> Tree:
    return reservation(name, node="a", allocatePolicy="Restricted", **more)


def without_places(found: tuple[Tree, ...]) -> tuple[Tree, ...]:
    for device in found[1]["spec"]["devices"]:
        del device["topology"]
    return found


def with_zones(found: tuple[Tree, ...]) -> tuple[Tree, ...]:
    cpu = {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"}
    zones = [{"name": f"node-{n}", "type": "Node", "resources": [cpu]} for n in (0, 1)]
    found[2]["zones"] = zones
    return found


def amplified(item: Tree) -> Tree:
    item["metadata"]["annotations"] = {
        "node.koordinator.sh/resource-amplification-ratio": '{"cpu": 1.5}'
    }
    return item


def scoped(**more: Any) -> Tree:
    return {**more, **said(device_allocate_hint={"gpu": {"requiredTopologyScope": "PCIe"}})}


SHARED, RDMA = "koordinator.sh/gpu.shared", "koordinator.sh/rdma"
HALF = {"cpu": "1", CORE: "50", RATIO: "50"}
ON_ONE = said(numa_topology_spec={"numaTopologyPolicy": "SingleNUMANode"})
NAMED = said(reservation_affinity={"name": "named"})
QUOTA = {
    "kind": "ElasticQuota",
    "metadata": {"name": "team"},
    "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1"}},
}
CLAIM = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
CASES: dict[str, tuple[str, list[Tree], Tree]] = {
    "cpu": ("Insufficient cpu", [node("a", "1")], pod("p", amounts={"cpu": "2"})),
    "no-such-resource": ("Insufficient x/y", [node("a")], pod("p", amounts={"x/y": "1"})),
    "pods": ("Too many pods", [node("a", pods="0")], pod("p")),
    "ports": ("free ports", [node("a"), pod("q", nodeName="a", ports=PORT)], pod("p", ports=PORT)),
    "taint": ("untolerated taint {k: v}", [{**node("a"), "spec": {"taints": [TAINT]}}], pod("p")),
    "cordon": ("were unschedulable", [{**node("a"), "spec": {"unschedulable": True}}], pod("p")),
    "near": ("match pod affinity rules", [node("a")], pod("p", affinity=near("x"))),
    "apart": (
        "match pod anti-affinity rules",
        [node("a"), pod("q", {"app": "f"}, nodeName="a")],
        pod("p", affinity=apart("f")),
    ),
    "kept-apart": (
        "existing pods anti-affinity rules",
        [node("a"), pod("q", nodeName="a", affinity=apart("z"))],
        pod("p", {"app": "z"}),
    ),
    "no-domain": ("(missing required label)", [node("a")], pod("p", **spread("no-such-label"))),
    "no-topology": ("invalid CPU Topology", [node("a")], bound("2")),
    "no-integer": ("CPUs must be integer", [*machine("a")], bound("1500m")),
    "half-a-core": (
        "not multiple cpus per core",
        [*machine("a")],
        bound("3", metadata={"annotations": FULL}),
    ),
    "cpus-taken": (
        "not enough cpus available",
        [*machine("a", "32"), holding("q", [], "0-13", {})],
        bound("4"),
    ),
    "bind-policy": (
        "cpu bind policy conflicts",
        [*with_node(machine("a"), cpu_bind_policy="SpreadByPCPUs")],
        bound("2", metadata={"annotations": FULL}),
    ),
    "numa-policy": (
        "NUMA Topology policy not match",
        [*with_node(machine("a"), numa_topology_policy="Restricted")],
        pod("p", **ON_ONE),
    ),
    "no-zones": (
        "missing NUMA resources",
        [*machine("a")],
        pod("p", **ON_ONE),
    ),
    "gpus-taken": (
        "Insufficient GPU",
        [*machine("a"), holding("q", list(range(8)), "0", {}, 50)],
        gpus("100"),
    ),
    "gpu-amounts": (
        "invalid resource device requests",
        [*machine("a")],
        pod("p", amounts={CORE: "50"}),
    ),
    "gpu-functions": (
        "VirtualFunctions",
        [*machine("a")],
        gpus("100", **said(device_allocate_hint={"gpu": {"vfSelector": {}}})),
    ),
    "gpu-table": (
        "missing GPU Partition Table",
        [*with_node(machine("a"), gpu_partition_policy="Honor")],
        gpus("100"),
    ),
    "gpu-number": (
        "Unsupported number of GPU requests",
        [*with_node(machine("a"), gpu_partition_policy="Honor", gpu_model="H100")],
        gpus("300"),
    ),
    "gpu-scope": (
        "Topology Scoped GPU Devices",
        [*machine("a")],
        gpus("300", **said(device_allocate_hint={"gpu": {"requiredTopologyScope": "PCIe"}})),
    ),
    "gpu-partitions": (
        "Insufficient Partitioned GPU Devices",
        [
            *with_node(machine("a"), gpu_partition_policy="Honor", gpu_model="H100"),
            holding("q", [0, 2, 4, 6], "0", {}, 50),
        ],
        gpus("200"),
    ),
    "gpu-places": (
        "missing GPU Device Topology Tree",
        [*without_places(machine("a"))],
        gpus("200", **scoped()),
    ),
    "gpu-parts": (
        "Unsupported Multi-Shared GPU",
        [*machine("a", **{SHARED: "800"})],
        pod("p", amounts={"cpu": "1", CORE: "100", RATIO: "100", SHARED: "2"}, **scoped()),
    ),
    "gpu-provider": (
        "GPU isolation provider is not the one of the pod",
        [*machine("a")],
        pod("p", {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}, amounts=HALF),
    ),
    "gpu-alone": (
        "Insufficient rdma devices",
        [*machine("a", **{RDMA: "100"})],
        pod("p", amounts={RDMA: "100"}),
    ),
    "amplified": (
        "Insufficient amplified cpu",
        [amplified(machine("a", "12")[0]), *machine("a")[1:], holding("q", [], "0-3", {})],
        pod("p", amounts={"cpu": "7"}),
    ),
    "one-numa-node": (
        "NUMA",
        [*with_zones(machine("a"))],
        pod(
            "p",
            amounts={"cpu": "9"},
            **said(numa_topology_spec={"numaTopologyPolicy": "SingleNUMANode"}),
        ),
    ),
    "skewed": (
        "match pod topology spread constraints",
        [
            node("a"),
            {**node("other"), "spec": {"taints": [TAINT]}},
            pod("q", {"app": "s"}, nodeName="a"),
        ],
        pod("p", {"app": "s"}, **spread(HOST)),
    ),
    "kept-in-parts": (
        "Insufficient memory by node",
        [
            node("a", "10"),
            reservation("r1", node="a", amounts={"cpu": "8", "memory": "1Gi"}),
            reservation("r2", node="a", amounts={"cpu": "1", "memory": "60Gi"}),
        ],
        pod("p", OWNER, amounts={"cpu": "8", "memory": "40Gi"}, **said(reservation_affinity={})),
    ),
    "another-node": (
        "match the nodeName specified by reservation",
        [node("a")],
        reservation("p", pod_spec={"nodeName": "no-such-node"}),
    ),
    "no-reservation": (
        "match reservation affinity",
        [node("a")],
        pod("p", **said(reservation_affinity={})),
    ),
    "reserved-too-little": (
        "Reservation(s) Insufficient cpu, requested: 4000, used: 0, capacity: 2000",
        [node("a"), kept("named")],
        pod("p", OWNER, amounts={"cpu": "4"}, **NAMED),
    ),
    "reserved-for-others": (
        "1 Reservation(s) is unschedulable, 1 Reservation(s) matched owner total.",
        [node("a", "2"), kept("shut", unschedulable=True)],
        pod("p", OWNER, amounts={"cpu": "2"}),
    ),
    "hint": (
        "not among those of the scheduling hint",
        [node("a")],
        pod("p", **said(scheduling_hint={"nodeNames": ["x"]})),
    ),
    "claims": ("not supported by koord-scheduler", [node("a")], pod("p", **CLAIM)),
    "quota": (
        "team",
        [node("a"), QUOTA],
        pod("p", {"quota.scheduling.koordinator.sh/name": "team"}, amounts={"cpu": "2"}),
    ),
    "policies": (
        "reservation allocate policy conflict",
        [node("a"), kept("restricted")],
        reservation("p"),
    ),
    "no-lender": (
        "no pod(s) to meet the pre-allocation requirements",
        [node("a")],
        reservation(
            "p",
            {f"{KEY}pre-allocation-required": "true"},
            allocatePolicy="Restricted",
            preAllocation=True,
        ),
    ),
}


ELSEWHERE = {
    "no matched GPU shared resource template": "its templates are in a ConfigMap",
    "node(s) Device Joint-Allocate rules violation": "of an allocator, which asks node by node",
    "node(s) are under strain: ": "it comes and goes with the load",
    "node(s) refused a pod a moment ago": "only who saw it knows",
    "node(s) had room for too few members of the gang": "of gangs with a network topology",
    "Too many pods by node": "the plugin for resources says it first",
}
"""Texts of reasons that no case has, and why."""


def texts_of_reasons() -> Iterator[str]:
    """The longest literal part of each text that stands in a call of ``reason``."""
    root = Path(koord_scheduler.__file__).parent
    for path in (*root.glob("place/**/*.py"), *root.glob("plan/*.py")):
        tree = ast.parse(path.read_text())
        for call in ast.walk(tree):
            named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            if named and call.func.id == "reason" and len(call.args) > 1:
                parts = ast.walk(call.args[1])
                literals = [e.value for e in parts if isinstance(e, ast.Constant)]
                yield from [max(filter(str.strip, literals), key=len)] if literals else []


def placed_in(case: str, item: Tree) -> Tree:
    """The same under names that no other case has, for the nodes of this case."""
    item = json.loads(json.dumps(item).replace('"nodeName": "a"', f'"nodeName": "{case}"'))
    meta, spec = item["metadata"], item.get("spec", {})
    if item["kind"] in ("Node", "Device", "NodeResourceTopology"):
        meta["name"] = case if meta["name"] == "a" else f"{case}-{meta['name']}"
        if item["kind"] == "Node":
            meta["labels"] |= {"case": case, HOST: meta["name"]}
    elif item["kind"] in ("Pod", "Reservation") and meta["name"] in ("p", "q"):
        meta["name"] = f"{case}-{meta['name']}"
    if meta["name"].endswith("-p"):
        inner = spec["template"]["spec"] if item["kind"] == "Reservation" else spec
        inner["nodeSelector"] = {"case": case}
    meta.pop("uid", None)
    return item


def key_of(case: str, asks: Tree) -> str:
    return f"{'default' if asks['kind'] == 'Pod' else '(reservation)'}/{case}-p"


async def until_all_are_told(rig: Rig) -> dict[str, str]:
    """Return what stands at those who ask, by key."""
    async with asyncio.timeout(60):
        while True:
            found = {}
            for case, (_, _, asks) in CASES.items():
                if asks["kind"] == "Pod":
                    found[key_of(case, asks)] = (await rig.said(f"{case}-p")).get("message", "")
                    continue
                item = await rig.client.get(RESERVATIONS, f"{case}-p")
                conditions = item.status.get("conditions") or ({},)
                found[key_of(case, asks)] = conditions[0].get("message", "")
            if all(found.values()):
                return found
            await asyncio.sleep(0.1)


def test_explain_and_queue_say_what_the_scheduler_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def ask(*argv: str) -> Any:
        capsys.readouterr()
        assert await asyncio.to_thread(main, [*argv, "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    async def story() -> None:
        async with fake_here() as (here, fake):
            rig, hands = Rig(here, fake), Hands(fake, random.Random(1), time.time)
            for case, (_, there, asks) in CASES.items():
                for item in (*there, asks):
                    hands.create(PLURALS[item["kind"]], placed_in(case, item))
            async with scheduling(here):
                live = await until_all_are_told(rig)
            for case, (words, _, asks) in CASES.items():
                assert words in live[key_of(case, asks)], (case, live[key_of(case, asks)])
            everything = "\n".join(live.values())
            missing = {text for text in texts_of_reasons() if text not in everything}
            assert missing == ELSEWHERE.keys()
            config = kubeconfig(tmp_path / "kc", fake.url)
            queue = await ask("queue", "--kubeconfig", config)
            found = {each["unit"]: each for each in queue["waiting"]}
            assert found.keys() == live.keys()
            for key, message in live.items():
                why = await ask("explain", "pod", key, "--kubeconfig", config)
                assert (why["fits"], why["condition"], why["says"]) == (0, message, message), key
                assert found[key]["state"] == "waits" and found[key]["condition"] == message, key
                # What preemption says beside is the scheduler's alone.
                assert message.partition(" preemption: ")[0] == found[key]["why"], key

    asyncio.run(story())
