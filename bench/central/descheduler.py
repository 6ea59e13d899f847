"""What a round of the descheduler costs on a large cluster with a tenth of its nodes too hot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from bench.figures import Figure
from koord_scheduler.balance.configuration import Made, make, read_configuration
from koord_scheduler.balance.ledger import Ledger
from koord_scheduler.balance.round import Outcome, run_round
from koord_scheduler.balance.simulation import simulation
from koord_scheduler.balance.world import Details, NodeUsage, Resident, Workload, World
from koord_scheduler.daemon.descheduler.desk import LedgerBook
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Owner, Pod, PodClass
from koordlet.protocol.qos import PriorityClass, QoSClass

GIB = 1 << 30
PODS_PER_NODE = 28
_REPLICAS = 100
_NOW_S = 1_700_000_000.0
_TURN_S = 0.005


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    count = 1000 if smoke else 5000
    figures = []
    for share, mode, what in (
        (0.1, "ReservationFirst", "a tenth of them hot"),
        (0.1, "EvictDirectly", "the same, each eviction simulated"),
        (0.95, "ReservationFirst", "nearly all of them hot"),
    ):
        made = world(count, share)
        say(f"{count} nodes, {len(made.by_key)} pods, {what}")
        cpu_s, longest_s, outcome = asyncio.run(_round(made, configuration(mode)))
        say(f"{len(outcome.requests)} evictions, {len(outcome.refused)} refused")
        assert outcome.requests and not outcome.error, outcome.error
        name = f"a round at {count} nodes, {len(made.by_key)} pods, {what}"
        figures.append(Figure(f"{name}: CPU", cpu_s, "s", 3.0))
        figures.append(
            Figure(f"{name}: longest wait of the event loop", longest_s * 1e3, "ms", 250)
        )
    return figures


async def _round(made: World, configured: Made) -> tuple[float, float, Outcome]:
    """CPU of the round, the longest time for which the event loop did not run, and what came of
    it. The world is as new as each round finds it."""
    ledger = Ledger(simulation(made))
    longest_s, over = 0.0, asyncio.Event()

    async def turns() -> None:
        nonlocal longest_s
        while not over.is_set():
            begun_s = time.perf_counter()
            await asyncio.sleep(_TURN_S)
            longest_s = max(longest_s, time.perf_counter() - begun_s - _TURN_S)

    def work() -> tuple[float, Outcome]:
        begun_s = time.thread_time()
        outcome = run_round(
            made,
            configured.profiles,
            configured.configuration.limits,
            ledger=LedgerBook(ledger, "bench"),
        )
        return time.thread_time() - begun_s, outcome

    task = asyncio.create_task(turns())
    cpu_s, outcome = await asyncio.to_thread(work)
    over.set()
    await task
    return cpu_s, longest_s, outcome


def configuration(mode: str) -> Made:
    """As the sample of the reference, at its first detection."""
    low, high = {"cpu": 45, "memory": 55}, {"cpu": 75, "memory": 80}
    document = {
        "deschedulingInterval": "10s",
        "profiles": [
            {
                "name": "bench",
                "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
                "pluginConfig": [
                    {"name": "MigrationController", "args": {"defaultJobMode": mode}},
                    {
                        "name": "LowNodeLoad",
                        "args": {
                            "lowThresholds": low,
                            "highThresholds": high,
                            "evictableNamespaces": {"exclude": ["kube-system"]},
                            "anomalyCondition": {"consecutiveAbnormalities": 1},
                        },
                    },
                ],
            }
        ],
    }
    return make(read_configuration(document))


def world(count: int, hot: float) -> World:
    """``hot``: the share of nodes that use 90 % of their CPUs; of the others each third one uses
    20 %, the rest 60 %."""
    draw = random.Random(1)
    pods = count * PODS_PER_NODE
    classes = [
        PodClass(
            number=number,
            namespace=f"team-{number % 50}",
            labels={"app": f"app-{number}"},
            requests={"cpu": draw.choice((250, 500, 1000)), "memory": GIB},
            priority_class=PriorityClass.PROD if number % 3 else PriorityClass.BATCH,
            qos=QoSClass.LS if number % 3 else QoSClass.BE,
        )
        for number in range(pods // _REPLICAS)
    ]
    amounts = {"cpu": 32_000, "memory": 128 * GIB, "pods": 110}
    nodes = {
        name: Node(name=name, allocatable=amounts, labels={"kubernetes.io/hostname": name})
        for name in (f"node-{number:05d}" for number in range(count))
    }
    residents: dict[str, tuple[Resident, ...]] = {}
    usage: dict[str, NodeUsage] = {}
    order = list(range(pods))
    draw.shuffle(order)
    for number, name in enumerate(nodes):
        here = order[number * PODS_PER_NODE : (number + 1) * PODS_PER_NODE]
        residents[name] = tuple(_resident(classes[i % len(classes)], i, name) for i in here)
        share = 0.9 if draw.random() < hot else (0.2 if number % 3 == 0 else 0.6)
        each = int(amounts["cpu"] * share / PODS_PER_NODE)
        usage[name] = NodeUsage(
            _NOW_S - 10,
            {"cpu": 100, "memory": GIB},
            {r.pod.key: {"cpu": each, "memory": GIB} for r in residents[name]},
        )
    workloads = {
        f"uid-{cls.number}": Workload(
            f"uid-{cls.number}",
            "ReplicaSet",
            f"app-{cls.number}",
            _REPLICAS,
            frozenset((f"uid-{cls.number}",)),
        )
        for cls in classes
    }
    return World(_NOW_S, nodes, residents, usage, lambda _ns, owner: workloads.get(owner.uid))


def _resident(cls: PodClass, number: int, node: str) -> Resident:
    pod = Pod(
        key=f"{cls.namespace}/app-{cls.number}-{number}",
        uid=f"pod-{number}",
        cls=cls,
        node=node,
        owner=Owner("ReplicaSet", f"app-{cls.number}", f"uid-{cls.number}", "apps/v1"),
        phase="Running",
        ready=True,
        scheduler="koord-scheduler",
        created_s=_NOW_S - 10_000 - number % 5000,
        scheduled_s=_NOW_S - 9_000 - number % 5000,
    )
    return Resident(pod, Details())
