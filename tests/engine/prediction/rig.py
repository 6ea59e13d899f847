"""A store that somebody fills, and predictions that learn from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from koordlet.decision import metrics as k
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.decision.snapshot import Application, Node, Pod, Resources, Topology
from koordlet.engine.prediction.predictions import Predictions
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.reclaimable import Amounts
from koordlet.protocol.qos import KubeQoS, PriorityClass
from koordlet.tsdb import Store

MIB, GIB = 1 << 20, 1 << 30
START_MS = 1_800_000_000_000 // 300_000 * 300_000
NODE = Node("n", Topology(()), capacity_milli=8000, memory_bytes=16 * GIB)
OPTIONS = PredictionOptions(cold_start_s=0)
Used = tuple[float, float]
"""Cores and bytes."""


def pod(uid: str, **fields: object) -> Pod:
    values: dict[str, object] = {
        "kube_qos": KubeQoS.BURSTABLE,
        "priority_class": PriorityClass.PROD,
        "resources": Resources(request_cpu_milli=2000, request_memory_bytes=4 * GIB),
    }
    return Pod(uid, f"kubepods/{uid}", **(values | fields))  # type: ignore[arg-type]


class Rig:
    """A store that somebody fills, and ticks a second apart."""

    def __init__(self, directory: Path, options: PredictionOptions = OPTIONS) -> None:
        self.store = Store(None)
        self.directory = directory
        self.predictions = Predictions(self.store, options, str(directory))
        self.time_ms = START_MS
        self.now_s = 5000.0
        self.tick_s = 1.0
        self.pods: tuple[Pod, ...] = ()
        self.applications: tuple[Application, ...] = ()
        self.load()

    def load(self) -> None:
        time_s = self.time_ms / 1000
        self.predictions.took(self.predictions.load(time_s)(), time_s, self.now_s)

    def restart(self, options: PredictionOptions = OPTIONS) -> None:
        self.predictions.close()
        self.predictions = Predictions(self.store, options, str(self.directory))
        self.load()

    def tick(
        self,
        used: Mapping[str, Used],
        node: Used | None = (4.0, 8.0 * GIB),
        *,
        seconds: float = 1.0,
    ) -> bool:
        """``used`` by uid, applications as ``app:name``. Whether a round has ended."""
        self.time_ms += int(seconds * 1000)
        self.now_s += seconds
        ids: list[int] = []
        values: list[float] = []

        def add(metric: Metric, labels: Sequence[str], value: float) -> None:
            pairs = tuple(zip(metric.labels, labels, strict=True))
            ids.append(self.store.series(metric.kind, pairs))
            values.append(value)

        for uid, (cores, size) in used.items():
            if uid.startswith("app:"):
                add(k.HOST_APPLICATION_CPU_USAGE, (uid[4:],), cores)
                add(k.HOST_APPLICATION_MEMORY_USAGE, (uid[4:],), size)
            else:
                add(k.POD_CPU_USAGE, (uid,), cores)
                add(k.POD_MEMORY_USAGE, (uid,), size)
        if node is not None:
            add(k.NODE_CPU_USAGE, (), node[0])
            add(k.NODE_MEMORY_USAGE, (), node[1])
        self.store.append(self.time_ms, ids, values)
        if self.time_ms % 60_000 == 0:
            self.store.maintain(self.time_ms)
        return self.predictions.turn(
            self.time_ms, self.now_s, self.tick_s, NODE, self.pods, self.applications
        )

    def minutes(
        self, count: int, used: Mapping[str, Used], node: Used | None = (4.0, 8.0 * GIB)
    ) -> int:
        """How many rounds ended."""
        return sum(self.tick(used, node) for _ in range(60 * count))

    def percentiles(self, uid: str) -> Amounts:
        return self.predictions.models[uid].subject.percentiles()

    def peak(self, uid: str) -> Amounts | None:
        return self.predictions.models[uid].peak

    def last(self, metric: Metric, *labels: str) -> float | None:
        pairs = tuple(zip(metric.labels, labels, strict=True))
        series = self.store.known(metric.kind, pairs)
        assert series is not None
        found = self.store.aggregate([series], START_MS, self.time_ms, Aggregate.LAST)
        return None if found is None else found.value


MakeRig = Callable[..., Rig]
