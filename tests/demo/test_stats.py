from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.demo.stats import (
    be_share_of_left,
    disturbance,
    goals,
    percentile,
    three_that_mattered,
)
from koordlet.protocol.intervals import Verdict
from tests.demo.build import demo, each_slice, moment, result

_IDLE = {"resource": "cpu.idle", "owner": "cpu-qos"}


@pytest.mark.parametrize(
    ("count", "fraction", "expected"),
    [(100, 0.50, 50), (100, 0.99, 99), (100, 0.999, 100), (1, 0.99, 1), (1000, 0.999, 999)],
)
def test_nearest_rank(count: int, fraction: float, expected: float) -> None:
    assert percentile(range(1, count + 1), fraction) == expected


def test_no_requests_have_no_percentile() -> None:
    assert percentile([], 0.99) == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1.0))
def test_enough_values_are_at_or_below_the_percentile(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    assert sum(value <= found for value in values) >= len(values) * share - 1e-6
    assert sum(value < found for value in values) < len(values) * share


def test_share_of_what_is_left() -> None:
    assert be_share_of_left(2.0, 0.6, 0.4, 0.8) == pytest.approx(0.8)
    assert be_share_of_left(1.0, 0.9, 0.2, 0.0) == 1.0


def test_goals_are_judged_by_their_intervals() -> None:
    ratio, utilisation, share = goals(demo(result(), result("managed", slow=1.05)))
    assert ratio.value == pytest.approx(1.05)
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low <= 1.05 <= ratio.high <= 1.10
    assert [each.verdict for each in (ratio, utilisation, share)] == [Verdict.REACHED] * 3


@pytest.mark.parametrize(
    ("fields", "missed"),
    [
        ({"slow": 1.12}, "p99_ratio"),
        ({"node_cores": 1.68}, "node_utilisation_ratio"),
        ({"be_cores": 1.02}, "be_share_of_left_ratio"),
    ],
)
def test_a_missed_goal_says_so(fields: dict[str, float], missed: str) -> None:
    found = goals(demo(result(), result("managed", **fields)))
    assert [goal.key for goal in found if goal.verdict is Verdict.MISSED] == [missed]


def test_slices_that_differ_leave_a_goal_undecided() -> None:
    slows = (0.9, 1.0, 1.3, 0.95)
    mixed = tuple(each_slice("managed", number, slow) for number, slow in enumerate(slows))
    ratio = goals(demo(result(), result("managed", slices=mixed)))[0]
    assert ratio.verdict is Verdict.UNDECIDED
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low < 1.10 < ratio.high


def test_few_slices_have_no_interval() -> None:
    few = [tuple(each_slice(arm, number) for number in range(2)) for arm in ("alone", "managed")]
    found = goals(demo(result(slices=few[0]), result("managed", slices=few[1])))
    assert [(goal.verdict, goal.low, goal.high) for goal in found] == [
        (Verdict.UNDECIDED, None, None)
    ] * 3
    assert found[0].value == 1.0


def test_goals_without_their_arms_are_not_judged() -> None:
    reached = Verdict.REACHED
    assert [goal.verdict for goal in goals(demo(result("managed")))] == [None, reached, reached]
    assert [goal.verdict for goal in goals(demo(result()))] == [None, None, None]


def test_one_of_each_kind_in_order_of_time() -> None:
    idle = moment(-1.4, "0", "1", **_IDLE)
    first = moment(-0.5, "unlimited", "190000")
    cut = moment(1.0, "190000", "120000")
    run = result(
        "managed",
        idle,
        first,
        cut,
        moment(2.0, "120000", "110000"),
        moment(3.0, "110000", "120000"),
        moment(4.1, "120000", "unlimited", result="restored"),
    )
    assert three_that_mattered(run) == [idle, first, cut]


def test_never_two_of_a_kind() -> None:
    run = result("managed", *(moment(float(t), "100", str(90 - t)) for t in range(9)))
    assert three_that_mattered(run) == [run.moments[8]]


def test_what_was_refused_matters_more_than_a_correction() -> None:
    refused = moment(3.0, "0", "1", result="refused", **_IDLE)
    run = result(
        "managed",
        moment(0.0, "unlimited", "100"),
        moment(1.0, "100", "10"),
        moment(2.0, "10", "100"),
        refused,
    )
    found = three_that_mattered(run)
    assert len(found) == 3
    assert refused in found


def test_a_busy_machine_is_told() -> None:
    assert disturbance(demo(result(), result("managed", other_cores=0.19))) == ""
    assert "0.45 cores" in disturbance(demo(result(other_cores=0.3), result(other_cores=0.45)))


def test_alarms_are_no_decisions() -> None:
    assert three_that_mattered(result("managed", moment(resource="", result="alarm"))) == []
