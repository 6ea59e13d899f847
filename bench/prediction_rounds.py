"""What training costs the daemon's loop: rounds on a store of 300 pods with 600 containers."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator

from bench.figures import Figure, quantile
from koordlet.decision import metrics as k
from koordlet.decision.snapshot import Node, Pod, Resources, Topology
from koordlet.engine.prediction.predictions import Predictions
from koordlet.prediction.part import PredictionOptions
from koordlet.protocol.qos import KubeQoS, PriorityClass
from koordlet.tsdb import Store

_GIB = 1 << 30
_START_MS = 1_790_000_000_000
_GOAL_CORE_PERCENT = 0.1
_CONTAINERS = 2


def rounds(pods: int, minutes: int) -> list[Figure]:
    """CPU of a round and of its longest tick, with the reference's model and the seasonal one."""
    figures: list[Figure] = []
    for model in ("reference", "seasonal"):
        directory = tempfile.mkdtemp(prefix="koordlet-bench-prediction-")
        try:
            figures += _rounds(model, pods, minutes, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return figures


def _rounds(model: str, pods: int, minutes: int, directory: str) -> Iterator[Figure]:
    options = PredictionOptions(model=model)  # type: ignore[arg-type]
    store, rng = Store(None), random.Random(1)
    predictions = Predictions(store, options, directory)
    predictions.took(predictions.load(_START_MS / 1000)(), _START_MS / 1000, 0.0)
    node = Node("bench", Topology(()), capacity_milli=64_000, memory_bytes=256 * _GIB)
    here = tuple(_pod(number) for number in range(pods))
    ids = _series(store, here)
    ticks, spent = [], []
    for second in range(60 * minutes):
        time_ms = _START_MS + 1000 * second
        store.append(time_ms, ids, [rng.random() * 1e8 for _ in ids])
        started = time.thread_time()
        ended = predictions.turn(time_ms, float(second), 1.0, node, here, ())
        ticks.append(1000 * (time.thread_time() - started))
        if ended:
            spent.append(1000 * predictions.round_s)
    work = predictions.upkeep(60.0 * minutes)
    work()
    cpu_ms = quantile(spent, 0.5)
    what = f"{model}, {pods} pods: "
    yield Figure(f"{what}CPU of a round, p50", cpu_ms, "ms")
    yield Figure(f"{what}of a core", cpu_ms / 600, "%", _GOAL_CORE_PERCENT)
    yield Figure(f"{what}CPU of a tick, p99", quantile(ticks, 0.99), "ms")
    yield Figure(f"{what}CPU of a tick, worst", max(ticks), "ms")


def _pod(number: int) -> Pod:
    return Pod(
        f"{number:08x}-0000-4000-8000-000000000000",
        f"kubepods/pod{number}",
        KubeQoS.BURSTABLE,
        priority_class=PriorityClass.PROD,
        resources=Resources(request_cpu_milli=500, request_memory_bytes=_GIB),
    )


def _series(store: Store, pods: tuple[Pod, ...]) -> list[int]:
    """Also those of containers, among which pods must be found."""
    ids = [store.series(each.kind, ()) for each in (k.NODE_CPU_USAGE, k.NODE_MEMORY_USAGE)]
    for pod in pods:
        ids += [
            store.series(each.kind, (("pod_uid", pod.uid),))
            for each in (k.POD_CPU_USAGE, k.POD_MEMORY_USAGE)
        ]
        for container in range(_CONTAINERS):
            ids += [
                store.series(each.kind, (("container_id", f"{pod.uid}{container}"),))
                for each in (k.CONTAINER_CPU_USAGE, k.CONTAINER_MEMORY_USAGE)
            ]
    return ids
