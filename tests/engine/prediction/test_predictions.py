"""Rounds of training on a store: what is learned from what, in which slices, and what is kept."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from koordlet.decision import metrics as k
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.decision.snapshot import Application, Node, Pod, Resources, Topology
from koordlet.engine.prediction import files, kept
from koordlet.engine.prediction.figures import Held
from koordlet.engine.prediction.keeper import UnsavedError
from koordlet.engine.prediction.predictions import Predictions
from koordlet.engine.prediction.trainer import AT_ONCE
from koordlet.prediction import part
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.reclaimable import Amounts
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
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


@pytest.fixture
def make_rig(tmp_path: Path) -> MakeRig:
    return lambda options=OPTIONS: Rig(tmp_path / "prediction", options)


def test_nothing_is_learned_before_the_files_are_read(tmp_path: Path) -> None:
    predictions = Predictions(Store(None), OPTIONS, str(tmp_path))
    assert predictions.is_waiting
    assert not predictions.turn(START_MS, 5000.0, 1.0, NODE, (pod("a"),), ())
    assert predictions.models == {}


def test_a_round_learns_pods_classes_and_the_system(make_rig: MakeRig) -> None:
    """By hand: prod a and b use 1 + 0.5 cores, batch c 1, of 4; so the system uses 1.5."""
    rig = make_rig()
    batch = pod("c", kube_qos=KubeQoS.BEST_EFFORT, priority_class=PriorityClass.BATCH)
    rig.pods = (pod("a"), pod("b", priority_class=None, raw_qos=QoSClass.LS), batch)
    used = {"a": (1.0, 1.0 * GIB), "b": (0.5, 0.5 * GIB), "c": (1.0, 1.0 * GIB)}
    assert rig.minutes(3, used) == 3
    models = rig.predictions.models
    assert set(models) == {
        "a", "b", "c", "__node__", "__node-koord-prod__", "__node-koord-mid__",
        "__node-koord-batch__", "__node-koord-free__", "__node-__", "__node-sys__",
    }  # fmt: skip
    assert rig.percentiles("a") == Amounts(1035, 1097586419)
    for uid, cores in {
        "__node__": 4.0,
        "__node-koord-prod__": 1.5,
        "__node-koord-batch__": 1.0,
        "__node-sys__": 1.5,
        "__node-koord-mid__": 0.0,
        "__node-__": 0.0,
    }.items():
        buckets = models[uid].subject.cpu.kind.buckets
        assert models[uid].subject.cpu.histogram.percentile(0.5) == buckets.end(buckets.find(cores))


def test_a_sample_is_the_90th_percentile_of_the_interval(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(1, {"a": (0.1, 100.0 * MIB)})
    for second in range(60):  # six seconds of sixty are a tenth: just not seen
        rig.tick({"a": (3.0 if second < 6 else 0.1, 100.0 * MIB)})
    assert rig.predictions.models["a"].subject.cpu.histogram.percentile(1.0) < 0.2
    for second in range(60):
        rig.tick({"a": (3.0 if second < 12 else 0.1, 100.0 * MIB)})
    rig.minutes(1, {"a": (0.1, 100.0 * MIB)})
    assert rig.predictions.models["a"].subject.cpu.histogram.percentile(1.0) > 3.0


def test_what_production_can_give_up(make_rig: MakeRig) -> None:
    """By hand. Pods: a needs 1035 * 1.1 = 1138 of 2000, so 862 are free. Classes: of production, of
    none, and of the system, (1035 + 25 + 3019) * 1.1, more than the 2000 that are requested."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)}, node=(4.0, 4.0 * GIB))
    found = rig.predictions.figures.reclaimable
    assert found is not None
    assert found.by_pod.peak == Amounts(1138, 1207345060)
    assert found.by_pod.reclaimable == Amounts(2000 - 1138, 4 * GIB - 1207345060)
    classes = [rig.percentiles(f"__node-{each}__") for each in ("sys", "koord-prod", "")]
    assert classes[0].cpu_milli == 3019
    assert classes[2] == Amounts(25, 5242880)
    cpu = int((3019 + 1035 + 25) * 1.1)
    memory = int(sum(each.memory_bytes for each in classes) * 1.1)
    assert found.by_priority.peak == Amounts(cpu, memory)
    assert found.by_priority.reclaimable == Amounts(0, max(4 * GIB - memory, 0))
    assert found.combined.reclaimable.cpu_milli == 0
    assert rig.last(part.RECLAIMABLE_CPU) == 0.0
    assert rig.last(part.PROD_CPU_PEAK) == pytest.approx(cpu / 1000, rel=1e-4)
    assert rig.last(part.MID_CPU) == 0.0


def test_cold_ended_and_unmeasured_pods(make_rig: MakeRig) -> None:
    rig = make_rig(PredictionOptions(cold_start_s=86_400))
    rig.pods = (pod("a"), pod("ended", phase="Succeeded"), pod("silent"))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB), "ended": (1.0, 1.0 * GIB)})
    found = rig.predictions.figures.reclaimable
    assert found is not None
    # a is cold, of silent nobody knows anything: both keep all of their request.
    assert found.by_pod.peak == Amounts(4000, 8 * GIB)
    assert found.by_pod.reclaimable == Amounts()
    assert "silent" not in rig.predictions.models


def test_an_unmeasured_node_teaches_nothing_about_the_system(make_rig: MakeRig) -> None:
    """The reference learns that it uses nothing (D-17)."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)}, node=None)
    assert set(rig.predictions.models) == {"a"}
    assert rig.predictions.figures.reclaimable is None
    assert rig.predictions.figures.why == "__node-sys__ has not been measured yet"
    assert rig.peak("a") is not None


def test_applications_are_predicted_and_belong_to_the_system(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.applications = (
        Application("nginx", "nginx", QoSClass.LS),
        Application("gone", "gone", QoSClass.LS, present=False),
    )
    rig.minutes(2, {"app:nginx": (1.0, 1.0 * GIB), "app:gone": (1.0, 1.0 * GIB)})
    assert rig.percentiles("app:nginx") == Amounts(1035, 1097586419)
    assert "app:gone" not in rig.predictions.models
    assert rig.percentiles("__node-sys__").cpu_milli == 4217
    assert rig.last(part.APPLICATION_CPU_PEAK, "nginx") == pytest.approx(1.138, rel=1e-4)


def test_a_pod_that_calls_itself_the_node_teaches_nobody(make_rig: MakeRig) -> None:
    rig = make_rig()
    liars = ("__node__", "__node-sys__", "app:nginx")
    rig.pods = tuple(pod(uid) for uid in liars)
    rig.minutes(2, {"__node__": (7.9, 1.0 * GIB), "__node-sys__": (7.9, 1.0 * GIB)})
    assert "app:nginx" not in rig.predictions.models
    assert rig.percentiles("__node__").cpu_milli == 4217
    assert rig.percentiles("__node-sys__").cpu_milli == 4217


def test_a_tick_does_a_bounded_part_of_a_round(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number}") for number in range(3 * AT_ONCE + 1))
    used = {each.uid: (1.0, 1.0 * GIB) for each in rig.pods}
    learned = []
    ended = 0
    while not ended:
        ended = rig.tick(used)
        learned.append(len(rig.predictions.models))
    growth = [after - before for before, after in zip([0, *learned], learned, strict=False)]
    assert growth[:5] == [AT_ONCE, AT_ONCE, AT_ONCE, 1, 7]  # the node and its classes
    assert max(growth) == AT_ONCE
    assert len(growth) < 10


def test_a_round_is_of_one_moment_however_long_it_takes(make_rig: MakeRig) -> None:
    """What changes after it has begun is in the next one, also of the pods that come last."""
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number:02}") for number in range(3 * AT_ONCE))
    rig.minutes(1, {each.uid: (0.1, 100.0 * MIB) for each in rig.pods}, node=(6.0, 8.0 * GIB))
    busy = {each.uid: (8.0, 8.0 * GIB) for each in rig.pods}
    while not rig.tick(busy, node=(6.0, 8.0 * GIB)):
        pass
    last = rig.predictions.models["pod-47"].subject.cpu.histogram.percentile(1.0)
    assert last < 0.2
    total = rig.predictions.models["__node-koord-prod__"].subject.cpu.histogram.percentile(1.0)
    assert 48 * 0.1 <= total < 48 * 0.1 * 1.06


def test_a_round_that_stood_still_too_long_is_dropped(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number:02}") for number in range(2 * AT_ONCE))
    used = {each.uid: (1.0, 1.0 * GIB) for each in rig.pods}
    assert not rig.tick(used)
    assert not rig.tick(used, seconds=400)  # begins another
    assert len(rig.predictions.models) == AT_ONCE


def cadence(
    rig: Rig, pods: int, tick_s: float, minutes: int, interval_s: float = 60.0
) -> tuple[list[float], int]:
    """Seconds between the beginnings of rounds, after the first, and models that have learned."""
    rig.predictions.adapt(msgspec.structs.replace(OPTIONS, training_interval_s=interval_s))
    rig.pods = tuple(pod(f"pod-{number:04}") for number in range(pods))
    used = {each.uid: (0.1, 1.0 * MIB) for each in rig.pods}
    rig.tick_s = tick_s
    begun = [
        rig.predictions.figures.time_s
        for _ in range(int(minutes * 60 / tick_s))
        if rig.tick(used, seconds=tick_s)
    ]
    learned = sum(each.subject.cpu.histogram.total > 0 for each in rig.predictions.models.values())
    return [after - before for before, after in pairwise(begun)], learned


@pytest.mark.parametrize(
    ("pods", "tick_s", "interval_s", "gaps"),
    [
        (300, 1.0, 60.0, {60.0}),
        (1000, 1.0, 60.0, {60.0}),
        (300, 1.0, 10.0, {10.0}),
        (1000, 1.0, 10.0, {10.0}),
        (20, 0.1, 10.0, {10.0}),
        (200, 10.0, 60.0, {60.0}),
        (300, 10.0, 60.0, {60.0}),
        (20, 60.0, 60.0, {60.0}),
        (300, 60.0, 60.0, {60.0}),
        (300, 7.0, 60.0, {56.0, 63.0}),
    ],
)
def test_a_round_ends_before_the_next_one_is_due(
    make_rig: MakeRig, pods: int, tick_s: float, interval_s: float, gaps: set[float]
) -> None:
    """With any tick, so that each minute is in a window."""
    minutes = 2 if tick_s < 1 else 3 if tick_s < 5 else 8
    found, learned = cadence(make_rig(), pods, tick_s, minutes, interval_s)
    assert {round(each, 1) for each in found} <= gaps
    assert len(found) >= minutes * 60 / interval_s - 3
    assert learned == pods + 7


def test_a_full_node_with_the_longest_tick_takes_three_ticks_and_says_so(make_rig: MakeRig) -> None:
    """No tick does more than so many steps."""
    rig = make_rig()
    found, learned = cadence(rig, 1000, 60.0, 12)
    assert set(found) == {180.0}
    assert rig.predictions.every_s == 180.0
    assert learned == 1007


def test_ticks_that_come_a_little_early_cost_no_round(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.tick_s = 60.0
    ends = [rig.tick({"a": (1.0, GIB)}, seconds=60 + late) for late in (0.004, -0.003, 0.002) * 4]
    assert all(ends)


def test_no_more_models_than_there_may_be(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MOST", 10)
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number:02}") for number in range(20))
    rig.minutes(2, {each.uid: (1.0, 1.0 * GIB) for each in rig.pods})
    assert len(rig.predictions.models) == 10


def test_peaks_of_workloads_are_stored_each_five_minutes(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(14, {"a": (1.0, 1.0 * GIB)})

    def count(metric: Metric, label: str) -> int:
        match = {metric.labels[0]: label}
        (points,) = rig.store.history(metric.kind, match, START_MS, rig.time_ms).values()
        return len(points.times)

    assert count(part.POD_CPU_PEAK, "a") == 3
    assert count(part.POD_MEMORY_PEAK, "a") == 3
    assert count(part.NODE_CPU_PEAK, "node") == 14
    assert count(part.NODE_CPU_PEAK, "none") == 14
    # No row of its own in the store: the hot window is as long as it was.
    assert rig.store.status().lost_rounds == 0


def test_scores_are_published_after_two_hours(make_rig: MakeRig) -> None:
    rig = make_rig(msgspec.structs.replace(OPTIONS, training_interval_s=240.0))
    rig.pods = (pod("a"),)
    for _ in range(40):  # of four minutes
        for _ in range(8):
            rig.tick({"a": (1.0, 1.0 * GIB)}, seconds=30.0)
    scores = rig.predictions.figures.scores
    assert {key[1:] for key in scores} == {
        ("cpu", "workloads"), ("memory", "workloads"), ("cpu", "node"), ("memory", "node"),
    }  # fmt: skip
    assert rig.last(part.MISS_RATIO, "reference", "cpu", "workloads") == 0.0
    over = rig.last(part.OVER_RATIO, "reference", "cpu", "workloads")
    assert over == pytest.approx((1138 - 1000) / 1138, abs=1e-5)


def test_models_that_nobody_feeds_are_forgotten_with_their_files(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"), pod("b"))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB), "b": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert {"a", "b", "__node__"} <= set(os.listdir(rig.directory))
    rig.pods = (pod("a"),)
    rig.minutes(29, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "b" in rig.predictions.models
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "b" not in rig.predictions.models
    assert "b" not in os.listdir(rig.directory)
    assert rig.peak("a") is not None


def test_while_no_round_ends_no_model_is_forgotten(make_rig: MakeRig) -> None:
    """The daemon over its budget, a source that is away, a process that was stopped."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    rig.now_s += 1801
    rig.time_ms += 1_801_000
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models
    assert {"a", "__node__"} <= set(os.listdir(rig.directory))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models


def test_a_stall_ages_no_model_that_the_first_round_after_it_cannot_measure(
    make_rig: MakeRig,
) -> None:
    """Rates need a second reading, and a pod may be seen late."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.now_s += 3600
    rig.time_ms += 3_600_000
    rig.minutes(2, {})
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models
    rig.minutes(31, {})  # but a pod that is gone for good is forgotten
    rig.predictions.upkeep(rig.now_s)()
    assert "a" not in rig.predictions.models


def test_figures_that_are_out_of_date_are_gone_with_the_reason(make_rig: MakeRig) -> None:
    rig = make_rig()
    assert rig.predictions.current(rig.now_s).why == "no round has ended yet"
    assert rig.predictions.age_s(rig.now_s) is None
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    begun_s = rig.now_s - 59  # the first second of the minute
    assert rig.predictions.age_s(rig.now_s) == 59
    assert rig.predictions.current(begun_s + 300) is rig.predictions.figures
    rig.predictions.held = Held.BUDGET
    found = rig.predictions.current(begun_s + 420)
    assert found.reclaimable is None
    assert found.time_s == rig.predictions.figures.time_s
    assert found.why == "no round has ended for 7 min (the daemon is over its budget)"
    rig.minutes(1, {"a": (1.0, 1.0 * GIB)})
    assert rig.predictions.held is None
    assert rig.predictions.current(rig.now_s).reclaimable is not None


def test_a_file_that_cannot_be_written_keeps_no_other_from_being_saved(make_rig: MakeRig) -> None:
    rig = make_rig(msgspec.structs.replace(OPTIONS, checkpoint_max_per_step=4))
    rig.pods = (pod("a"), pod("b"))
    rig.minutes(1, dict.fromkeys("ab", (1.0, 1.0 * GIB)))
    rig.directory.mkdir()
    (rig.directory / "__node-__.tmp").mkdir()  # the first by name, in the way of the new file
    for _ in range(3):
        rig.now_s += 60
        with pytest.raises(UnsavedError, match=r"prediction/__node-__: Is a directory$"):
            rig.predictions.upkeep(rig.now_s)()
    assert {"a", "b", "__node__"} <= set(os.listdir(rig.directory))
    with pytest.raises(UnsavedError, match="Is a directory"):
        rig.predictions.close()
    (rig.directory / "__node-__.tmp").rmdir()
    rig.now_s += 600  # its next turn
    rig.predictions.upkeep(rig.now_s)()
    assert "__node-__" in os.listdir(rig.directory)


def test_what_cannot_be_read_is_left_and_read_again(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is learned meanwhile neither overwrites the file nor takes its place."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions.close()
    before = (rig.directory / "a").read_bytes()
    really_read = files._read

    def read(path: str) -> bytes:
        if path.endswith("/a"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really_read(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_read", read)
        rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
        rig.load()
        assert rig.predictions.is_waiting
        (fault,) = rig.predictions.faults()
        assert fault.path == str(rig.directory / "a")
        assert fault.message == (
            "Too many open files; it is left as it is, and read again each minute"
        )
        rig.minutes(2, {"a": (0.1, 1.0 * GIB)})
        assert rig.predictions.models["a"].subject.since_s > rig.time_ms / 1000 - 121
        rig.predictions.upkeep(rig.now_s)()
        rig.predictions.close()
        assert (rig.directory / "a").read_bytes() == before
    rig.load()
    assert not rig.predictions.is_waiting
    assert rig.predictions.faults() == ()
    assert rig.predictions.models["a"].subject.since_s < rig.time_ms / 1000 - 180
    assert rig.percentiles("a").cpu_milli == 3019
    assert rig.peak("a") == Amounts(int(3019 * 1.1), 1207345060)


def test_a_directory_that_cannot_be_listed_is_not_written_to(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions.close()
    before = {each.name: each.read_bytes() for each in rig.directory.iterdir()}

    def listdir(path: str) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("koordlet.engine.prediction.files.os.listdir", listdir)
        rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
        rig.load()
        rig.minutes(2, {"a": (0.1, 1.0 * GIB)})  # learning goes on in memory
        rig.predictions.upkeep(rig.now_s)()
        rig.predictions.close()
    assert {each.name: each.read_bytes() for each in rig.directory.iterdir()} == before
    rig.load()
    assert rig.percentiles("a").cpu_milli == 3019
    rig.now_s += 600
    rig.predictions.upkeep(rig.now_s)()


def test_a_wall_clock_that_jumps_forgets_no_model(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.time_ms += 7 * 86_400_000
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models


def test_so_many_models_are_saved_in_a_step_and_the_oldest_first(make_rig: MakeRig) -> None:
    rig = make_rig(msgspec.structs.replace(OPTIONS, checkpoint_max_per_step=4))
    rig.pods = (pod("a"), pod("b"), pod("c"))
    rig.minutes(1, dict.fromkeys("abc", (1.0, 1.0 * GIB)))

    def saved() -> set[str]:
        before = {each.name: each.stat().st_mtime_ns for each in rig.directory.glob("*")}
        rig.now_s += 60
        rig.predictions.upkeep(rig.now_s)()
        after = {each.name: each.stat().st_mtime_ns for each in rig.directory.glob("*")}
        return {name for name, time in after.items() if before.get(name) != time}

    assert [len(saved()) for _ in range(4)] == [4, 4, 2, 0]
    assert len(os.listdir(rig.directory)) == 10
    rig.now_s += 480  # ten minutes after the first
    assert [len(saved()) for _ in range(3)] == [4, 4, 2]


def test_a_restart_keeps_what_was_learned(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(5, {"a": (3.0, 1.0 * GIB)})
    before = rig.predictions.models["a"].subject
    rig.restart()
    after = rig.predictions.models["a"].subject
    assert after.percentiles() == before.percentiles()
    assert after.since_s == before.since_s
    assert rig.peak("a") == Amounts(int(3019 * 1.1), 1207345060)  # also before its next sample
    rig.minutes(1, {"a": (0.1, 1.0 * GIB)})
    assert rig.peak("a") == Amounts(int(3019 * 1.1), 1207345060)


def test_a_killed_daemon_loses_what_was_not_saved_and_no_more(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
    rig.load()
    assert rig.predictions.models["a"].subject.updated_s < rig.time_ms / 1000 - 60
    assert rig.percentiles("a").cpu_milli == 3019


def test_old_files_are_forgotten_once_a_round_has_seen_who_is_there(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"), pod("b"))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB), "b": (1.0, 1.0 * GIB)})
    rig.predictions.close()
    rig.time_ms += 3_600_000  # the machine was down for an hour
    rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
    rig.load()
    rig.predictions.upkeep(rig.now_s)()
    assert {"a", "b"} <= set(rig.predictions.models)
    rig.pods = (pod("a"),)
    rig.minutes(1, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models
    assert "b" not in rig.predictions.models
    assert "b" not in os.listdir(rig.directory)


def test_damaged_files_are_counted_told_and_learned_anew(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"), pod("b"))
    used = {"a": (3.0, 1.0 * GIB), "b": (3.0, 1.0 * GIB)}
    rig.minutes(2, used)
    rig.predictions.close()
    (rig.directory / "a").write_bytes(b'{"UID": "a", "CPU": 7}')
    rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
    rig.load()
    assert rig.predictions.refused_count == 1
    (fault,) = rig.predictions.faults()
    assert fault.path == str(rig.directory / "a")
    assert fault.message.startswith("Expected `object`, got `int` - at `$.CPU`; ")
    assert set(rig.predictions.models) >= {"b"}
    assert "a" not in rig.predictions.models
    rig.minutes(1, used)
    subjects = {uid: model.subject for uid, model in rig.predictions.models.items()}
    assert subjects["a"].since_s > subjects["b"].since_s


def test_switched_off_it_forgets_and_switched_on_it_reads_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    rig.predictions.adapt(msgspec.structs.replace(OPTIONS, enable=False))
    assert rig.predictions.models == {}
    assert not rig.predictions.is_waiting
    assert rig.minutes(2, {"a": (1.0, 1.0 * GIB)}) == 0
    rig.predictions.adapt(OPTIONS)
    assert rig.predictions.is_waiting
    rig.load()
    assert rig.percentiles("a").cpu_milli == 1035


def test_the_seasonal_model_counts_where_it_is_chosen(make_rig: MakeRig) -> None:
    rig = make_rig(msgspec.structs.replace(OPTIONS, model="seasonal"))
    rig.pods = (pod("a"),)
    rig.minutes(12, {"a": (1.0, 1.0 * GIB)})
    subject = rig.predictions.models["a"].subject
    assert subject.cpu.season is not None
    assert rig.peak("a") == Amounts(1138, int(1097586419 * 1.1))
    found = rig.predictions.figures.reclaimable
    assert found is not None
    needed = [rig.predictions.models[f"__node-{each}__"].peak for each in ("sys", "koord-prod", "")]
    assert found.by_priority.peak.cpu_milli == sum(each.cpu_milli for each in needed if each)
    rig.restart(msgspec.structs.replace(OPTIONS, model="seasonal"))
    restored = rig.predictions.models["a"].subject.cpu.season
    assert restored is not None
    assert restored.counts == subject.cpu.season.counts
