"""What is stored and shown of the predictions, and when it is out of date."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.metrics import Metric
from koordlet.engine.prediction.figures import Held
from koordlet.prediction import part
from tests.engine.prediction.rig import GIB, OPTIONS, START_MS, MakeRig, pod


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
