"""The scheduler's figures with all plugins of the built-in profile, without an API server.

Restart: objects as a server would list them are decoded and fed in a process of its own, and the
same process then decides. The day: pods of services and batch jobs come and go on the loop's clock.
"""

from __future__ import annotations

import gc
import hashlib
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from bench.figures import Figure
from koord_scheduler.kube.scheduling.loading import LOADED, World
from koord_scheduler.kube.scheduling.shapes import NODES, PODS
from koord_scheduler.plan.course import Decision
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.profile import built_in
from koord_scheduler.plan.run import Run
from koordlet.kube.answers import decoded
from koordlet.protocol.objects.times import instant

_GIB, _MIB = 1 << 30, 1 << 20
_BEGAN_S = 1_795_651_200.0
_DAY_S = 86_400.0
_WORKLOADS = 400
_CHILD = """
import sys
sys.modules["rich"] = None  # `koord-scheduler run` does not load it either (`cli/lean.py`)
from bench.central import scheduler
import msgspec
print(msgspec.json.encode(scheduler.restart(*map(int, sys.argv[1:]))).decode())
"""
_LOADED = {each.kind.name: each for each in LOADED}


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    nodes, pods, decisions = (100, 2_800, 100) if smoke else (5_000, 140_000, 3_000)
    size = [str(each) for each in (nodes, pods, decisions)]
    say(f"restart: {nodes} nodes, {pods} pods")
    child = subprocess.run([sys.executable, "-c", _CHILD, *size], check=True, capture_output=True)
    figures = msgspec.json.decode(child.stdout.splitlines()[-1], type=list[Figure])
    day_nodes, day_pods = (20, 1_200) if smoke else (1_000, 60_000)
    say(f"a day: {day_pods} pods on {day_nodes} nodes, twice")
    first, second = _day(day_nodes, day_pods), _day(day_nodes, day_pods)
    cpu_s = max(first[0], second[0])
    figures += [
        Figure(f"a day of {day_pods} pods on {day_nodes} nodes: CPU", cpu_s, "s", 30),
        Figure("the day again: the same placements", float(first[1] == second[1]), "", 1, False),
        Figure("pods of the day that got a node", 100.0 * first[2] / day_pods, "%"),
    ]
    return figures


# Restart, memory, decisions: in a process of their own.


def restart(nodes: int, pods: int, decisions: int) -> list[Figure]:
    world = World((built_in(),))
    begun_s = time.process_time()
    making_s = 0.0
    for kind, raw, made_s in _listed(nodes, pods):
        making_s += made_s
        loaded = _LOADED[kind]
        world.take(loaded, decoded(loaded.kind, raw))
    world.settle()
    fed_s = time.process_time() - begun_s - making_s
    gc.collect()
    held = _memory("VmRSS")
    world.newest_s = _BEGAN_S
    loop = Run(world)
    spent_s: list[float] = []
    spent_cpu_s: list[float] = []
    warm = _WORKLOADS
    for at in range(warm + decisions):
        key = f"team/new-{at}"
        raw = _pod(f"new-{at}", at % _WORKLOADS, "", namespace="team")
        world.take(_LOADED["Pod"], decoded(PODS, raw))
        loop.changed(world.waiting[key], _BEGAN_S)
        begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
        loop.step(_BEGAN_S, most=1)
        if at >= warm:  # each class was judged on all nodes once
            spent_cpu_s.append(time.process_time() - begun_cpu_s)
            spent_s.append(time.perf_counter() - begun_s)
        if key not in world.cluster.claims:
            raise AssertionError(f"{key} found no node")
    mean_ms = sum(spent_s) / len(spent_s) * 1e3
    return [
        Figure(f"a decision of the loop, {nodes} nodes, {_WORKLOADS} classes", mean_ms, "ms", 0.5),
        Figure("the same: CPU, median", statistics.median(spent_cpu_s) * 1e3, "ms", 0.4),
        Figure("placements of one core", 1e3 / mean_ms, "/s", 1500, at_most=False),
        Figure(f"memory at {nodes} nodes, {pods} pods", held / _MIB, "MiB", 150),
        Figure("the same after its decisions", _memory("VmRSS") / _MIB, "MiB", 150),
        Figure("restart: all decoded and fed, CPU", fed_s, "s", 20),
    ]


def _listed(nodes: int, pods: int) -> Iterator[tuple[str, bytes, float]]:
    """Kind, the object as JSON, and the CPU seconds that it took to make."""
    chance = random.Random(1)
    begun_s = time.process_time()
    for i in range(nodes):
        for kind, raw in (("Node", _node(i)), ("NodeMetric", _report(i, chance))):
            yield kind, raw, time.process_time() - begun_s
            begun_s = time.process_time()
    for i in range(pods):
        raw = _pod(f"old-{i}", chance.randrange(_WORKLOADS), f"n{i % nodes}", namespace="team")
        yield "Pod", raw, time.process_time() - begun_s
        begun_s = time.process_time()


def _node(i: int, cpu: int = 64, gib: int = 256) -> bytes:
    labels = {"kubernetes.io/hostname": f"n{i}", "topology.kubernetes.io/zone": f"z{i % 3}"}
    amounts = {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "110"}
    return _json("v1", "Node", {"name": f"n{i}", "labels": labels}, allocatable=amounts)


def _report(i: int, chance: random.Random) -> bytes:
    used = {"cpu": f"{chance.randrange(8_000, 30_000)}m", "memory": f"{chance.randrange(20, 90)}Gi"}
    return _json(
        "slo.koordinator.sh/v1alpha1",
        "NodeMetric",
        {"name": f"n{i}"},
        updateTime=instant(_BEGAN_S - 30),
        nodeMetric={"nodeUsage": {"resources": used}},
    )


def _pod(
    name: str, workload: int, node: str, *, namespace: str, cpu: int = 0, mib: int = 0
) -> bytes:
    amounts = {
        "cpu": f"{cpu or 100 + workload * 37 % 900}m",
        "memory": f"{mib or 256 + workload * 61 % 3000}Mi",
    }
    labels = {"app": f"service-{workload}", "koordinator.sh/qosClass": "LS"}
    spec = {
        "schedulerName": "koord-scheduler",
        "priority": 9500,
        "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
    }
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": labels,
        "creationTimestamp": instant(_BEGAN_S - 60),
    }
    where = {"nodeName": node} if node else {}
    phase = {"phase": "Running" if node else "Pending"}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec | where}
    return msgspec.json.encode(tree | {"status": phase})


def _json(version: str, kind: str, meta: dict[str, object], **status: object) -> bytes:
    tree = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": {}, "status": status}
    return msgspec.json.encode(tree)


def _memory(key: str) -> int:
    """Bytes, of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return 0


# A day.


def _day(nodes: int, pods: int) -> tuple[float, str, int]:
    """CPU seconds of the loop, a hash of all placements in their order, how many there were.

    Facts of published traces: sizes by Zipf's law, a daily cycle, memory the tighter resource, few
    long services and many short jobs (v2018: 71,000 services, 4 million jobs in eight days).
    """
    chance = random.Random(7)
    world = World((built_in(),))
    for i in range(nodes):
        world.take(_LOADED["Node"], decoded(NODES, _node(i, 96, 256)))
        world.take(_LOADED["NodeMetric"], decoded(_LOADED["NodeMetric"].kind, _report(i, chance)))
    came = [(second, _job(at, chance)) for at, second in enumerate(_arrivals(pods, chance))]
    total, ends, placed = hashlib.sha256(), list[tuple[float, str]](), 0
    lasts: dict[str, float] = {}
    now_s = _BEGAN_S

    def heard(decision: Decision) -> None:
        nonlocal placed
        if decision.node:
            placed += 1
            total.update(f"{decision.pod} {decision.node}\n".encode())
            heappush(ends, (now_s + lasts[decision.pod], decision.pod))

    loop = Run(world, heard)
    begun_s = time.process_time()
    for second, (key, raw, lasting_s) in came:
        now_s = _BEGAN_S + second
        gone = False
        while ends and ends[0][0] <= now_s:
            world.drop(heappop(ends)[1])
            gone = True
        if gone:
            loop.happened(Event.POD_GONE, now_s)
        lasts[key] = lasting_s
        world.take(_LOADED["Pod"], decoded(PODS, raw))
        loop.changed(world.waiting[key], now_s)
        loop.step(now_s)
    return time.process_time() - begun_s, total.hexdigest(), placed


def _arrivals(pods: int, chance: random.Random) -> list[float]:
    """Seconds of the day, twice as many at its height as at its low."""
    found: list[float] = []
    while len(found) < pods:
        second = chance.uniform(0, _DAY_S)
        if chance.random() < (3 - math.cos(2 * math.pi * second / _DAY_S)) / 4:
            found.append(second)
    return sorted(found)


def _job(at: int, chance: random.Random) -> tuple[str, bytes, float]:
    """Key, the pod as JSON, the seconds that it runs: one in six stays for hours."""
    rank = min(int(chance.paretovariate(1.1)), 64)
    workload = rank * 4 + chance.randrange(4)
    lasting_s = chance.uniform(4, 20) * 3600 if at % 6 == 0 else chance.expovariate(1 / 900)
    raw = _pod(f"p{at}", workload, "", namespace="day", cpu=250 * min(rank, 32), mib=768 * rank)
    return f"day/p{at}", raw, max(lasting_s, 1.0)


if __name__ == "__main__":
    print(msgspec.json.encode(restart(*map(int, sys.argv[1:]))).decode())
