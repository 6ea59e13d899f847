"""When a NodeMetric is reported."""

from __future__ import annotations

from koordlet.cluster.reporting.trigger import BURST, PER_SECOND, Level, Pace, Trigger

CAPACITY = Level(4000.0, 1000.0)
CALM = Level(1000.0, 500.0)


def begun() -> Trigger:
    trigger = Trigger(Pace(PER_SECOND, BURST, 0.0))
    assert trigger.due(0.0, 60.0, CALM, CAPACITY) == "first report"
    trigger.done(0.0, CALM)
    return trigger


def test_the_first_report_waits_for_figures_alone() -> None:
    """D-22: the reference waits for a whole period."""
    trigger = Trigger(Pace(PER_SECOND, BURST, 0.0))
    assert trigger.due(0.0, 60.0, Level(None, 1.0), CAPACITY) == ""
    assert trigger.due(0.1, 60.0, CALM, CAPACITY) == "first report"


def test_each_period() -> None:
    trigger = begun()
    assert trigger.due(59.9, 60.0, CALM, CAPACITY) == ""
    assert trigger.due(60.0, 60.0, CALM, CAPACITY) == "period"
    trigger.done(60.0, CALM)
    assert trigger.due(61.0, 60.0, CALM, CAPACITY) == ""
    assert trigger.due(95.0, 30.0, CALM, CAPACITY) == "period"


def test_at_once_where_usage_moves() -> None:
    trigger = begun()
    assert trigger.due(1.0, 60.0, Level(1199.0, 451.0), CAPACITY) == ""
    assert trigger.due(2.0, 60.0, Level(1200.0, 500.0), CAPACITY) == "CPU moved by 5 % of the node"
    trigger.done(2.0, Level(1200.0, 500.0))
    assert trigger.due(30.0, 60.0, Level(1200.0, 440.0), CAPACITY).startswith("memory moved by 6 %")


def test_what_is_not_measured_has_not_moved() -> None:
    trigger = begun()
    assert trigger.due(1.0, 60.0, Level(None, None), CAPACITY) == ""
    assert trigger.due(1.0, 60.0, Level(4000.0, 500.0), Level(None, None)) == ""
    trigger.done(60.0, Level(None, 500.0))
    assert trigger.due(61.0, 60.0, CALM, CAPACITY).startswith("CPU moved")


def test_usage_that_jumps_all_the_time_is_reported_ten_seconds_apart() -> None:
    trigger, told = begun(), 0
    for second in range(1, 601):
        level = Level(4000.0 * (second % 2), 500.0)
        if trigger.due(float(second), 60.0, level, CAPACITY):
            trigger.done(float(second), level)
            told += 1
    assert 55 <= told <= 61
