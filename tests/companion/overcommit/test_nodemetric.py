"""The spec of a NodeMetric (docs/reference/central.md 1.7)."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.overcommit.configuration import load
from koord_scheduler.overcommit.nodemetric import go_duration, metric_spec
from koordlet.protocol.duration import parse_duration
from tests.companion.overcommit.build import colocation, node

POLICY = "metricCollectPolicy"
DEFAULTS = {
    POLICY: {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }
}
OTHER = {
    "metricAggregateDurationSeconds": 60,
    "metricReportIntervalSeconds": 30,
    "metricAggregatePolicy": {"durations": ["90s", "1h"]},
    "metricMemoryCollectPolicy": "usageWithPageCache",
}


def test_defaults_without_a_configuration() -> None:
    assert metric_spec(load(None, None), node(), None) == DEFAULTS
    assert metric_spec(load({"colocation-config": "{"}, None), node(), None) == DEFAULTS
    assert metric_spec(load({}, None), node(), {}) == DEFAULTS


def test_the_strategy_of_the_node() -> None:
    configuration = load(colocation(**OTHER), None)
    found = metric_spec(configuration, node(), DEFAULTS)
    assert found == {
        POLICY: {
            "aggregateDurationSeconds": 60,
            "reportIntervalSeconds": 30,
            "nodeAggregatePolicy": {"durations": ["1m30s", "1h0m0s"]},
            "nodeMemoryCollectPolicy": "usageWithPageCache",
        }
    }
    assert metric_spec(configuration, node(), found) is None


def test_reporting_goes_on_where_colocation_is_off() -> None:
    configuration = load(colocation(**OTHER, enable=False), None)
    assert metric_spec(configuration, node(), DEFAULTS) is None
    annotations = {"node.koordinator.sh/colocation-strategy": '{"enable":false}'}
    of = node(annotations=annotations)
    assert metric_spec(load(colocation(**OTHER), None), of, {}) == DEFAULTS


@pytest.mark.parametrize("data", [None, {"colocation-config": "{"}])
def test_a_config_map_that_cannot_be_read_leaves_the_spec(data: Any) -> None:
    before = load(colocation(**OTHER), None)
    assert metric_spec(load(data, before), node(), DEFAULTS) is None
    assert metric_spec(load(data, before), node(), {}) is not None


def test_one_length_of_time_has_several_texts() -> None:
    present = {
        POLICY: {**DEFAULTS[POLICY], "nodeAggregatePolicy": {"durations": ["300s", "10m", "0.5h"]}}
    }
    assert metric_spec(load({}, None), node(), present) is None


@pytest.mark.parametrize(
    "present",
    [
        {POLICY: None},
        {POLICY: {"nodeAggregatePolicy": None}},
        {POLICY: {"nodeAggregatePolicy": {"durations": ["soon"]}}},
        {POLICY: {"nodeAggregatePolicy": {"durations": None}}},
    ],
)
def test_any_other_spec_is_replaced_and_what_others_wrote_beside_it_stays(present: Any) -> None:
    found = metric_spec(load({}, None), node(), {**present, "other": 1})
    assert found == {**DEFAULTS, "other": 1}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0, "0s"), (1, "1s"), (1.5, "1.5s"), (60, "1m0s"), (90, "1m30s"), (3600, "1h0m0s")),
        *((86400, "24h0m0s"), (3661.25, "1h1m1.25s"), (0.25, "250ms"), (0.0015, "1.5ms")),
        *((2e-6, "2µs"), (3e-9, "3ns"), (60.05, "1m0.05s")),
    ],
)
def test_durations_as_go_writes_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
    assert parse_duration(text) == seconds
