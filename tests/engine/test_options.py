"""What two rooms say about the same thing agrees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.collectors.standard import INTERVALS_S
from koordlet.config import rules
from koordlet.config.schema import (
    CollectorsTable,
    CollectorTable,
    Config,
    DaemonTable,
    MetricsTable,
)
from koordlet.engine import options
from koordlet.hooks import hooks
from koordlet.qos import STRATEGIES
from koordlet.qos.evict import cpu_evict, memory_evict
from koordlet.report.http import parse_address


def test_the_usual_intervals_are_those_of_the_configuration() -> None:
    assert options.collector_intervals(Config()) == dict(INTERVALS_S)


def test_the_usual_limits_of_evictions_are_those_of_the_configuration() -> None:
    tables = Config().strategies
    assert options.evict_limits(tables.cpu_evict) == cpu_evict.LIMITS
    assert options.evict_limits(tables.memory_evict) == memory_evict.LIMITS


def test_every_strategy_and_hook_is_on_by_default_and_has_a_switch() -> None:
    config = Config()
    assert [s.name for s in options.enabled_strategies(config)] == list(STRATEGIES)
    assert [h.name for h in options.enabled_hooks(config)] == [h.name for h in hooks()]


parts = st.sampled_from(
    ["", "off", "unix:", "remote:", "localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::]", ":",
     "9316", "0", "65535", "65536", "/run/x", "x", "-1", " ", "99999999999999999999"]
)  # fmt: skip


@given(st.one_of(st.lists(parts, max_size=4).map("".join), st.text(max_size=12)))
def test_the_configuration_takes_the_addresses_that_can_be_served(text: str) -> None:
    found = [
        problem
        for problem in rules.problems(Config(metrics=MetricsTable(listen=text)))
        if problem.path == "metrics.listen"
    ]
    try:
        parse_address(text)
        served = True
    except ValueError:
        served = False
    # A unix socket has rules of the configuration's own besides (length, no dots).
    if not text.startswith("unix:"):
        assert served == (not found), (text, found)
    elif not served:
        assert found


def test_remote_is_named_where_it_is_missing() -> None:
    (problem,) = rules.problems(Config(metrics=MetricsTable(listen="0.0.0.0:9316")))
    assert 'or "remote:0.0.0.0:9316" if that is meant' in problem.message


@pytest.mark.parametrize(
    ("tick_seconds", "node_seconds", "expected"),
    [(0.1, 1.0, 1.0), (1.0, 5.0, 5.0), (2.0, 1.0, 2.0)],
)
def test_samples_may_be_as_old_as_they_are_made(
    tick_seconds: float, node_seconds: float, expected: float
) -> None:
    config = Config(
        daemon=DaemonTable(tick_seconds=tick_seconds),
        collectors=CollectorsTable(node=CollectorTable(interval_seconds=node_seconds)),
    )
    assert options.collect_interval_s(config) == expected
