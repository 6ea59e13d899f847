"""What is learned of whom, and what production can give up of its requests."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.snapshot import Application
from koordlet.prediction import part
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.reclaimable import Amounts
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
from tests.engine.prediction.rig import GIB, MIB, OPTIONS, MakeRig, pod


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
