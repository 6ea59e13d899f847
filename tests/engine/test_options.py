"""What two rooms say about the same thing agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.collectors import COLLECTORS
from koordlet.collectors.base import CollectorOptions
from koordlet.config import rules
from koordlet.config.load import load
from koordlet.config.origins import structure
from koordlet.config.part_tables import configured, table_of
from koordlet.config.schema import (
    CollectorsTable,
    Config,
    DaemonTable,
    MetricsTable,
)
from koordlet.config.show import toml_text
from koordlet.decision.part import Part
from koordlet.engine import options
from koordlet.hooks import HOOKS
from koordlet.qos import STRATEGIES
from koordlet.report.http import parse_address


@pytest.mark.parametrize("part", [p for _, p in configured(Config())], ids=table_of)
def test_options_in_the_file_reach_the_part(part: Part[Any], tmp_path: Path) -> None:
    """Each option at another value than its default."""
    defaults = part.options
    for field in msgspec.structs.fields(defaults):
        value = another(getattr(defaults, field.name))
        file = tmp_path / "koordlet.toml"
        text = toml_text(
            next(f.type for f in structure(type(defaults)).fields if f.name == field.name), value
        )
        file.write_text(f"[{table_of(part)}]\n{field.encode_name} = {text}\n")
        loaded = load(str(file)).config
        found = dict(configured(loaded))[table_of(part)]
        assert getattr(found.options, field.name) == value
        assert found.options == msgspec.structs.replace(defaults, **{field.name: value})


def another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, tuple):
        return ("eth7",)
    others = {"tell": "evict", "kidled": "auto", "reference": "seasonal"}
    return others.get(str(value), "/another")


OPT_IN = {"resctrl-monitor", "kidled"}
"""Strategies that no NodeSLO asks for."""


def test_what_something_else_asks_for_is_on_by_default() -> None:
    config = Config()
    assert [s.name for s in options.enabled_strategies(config)] == [
        name for name in STRATEGIES if name not in OPT_IN
    ]
    assert [c.name for c in options.enabled_collectors(config)] == [
        name for name in COLLECTORS if name != "cpi"
    ]
    assert [h.name for h in options.enabled_hooks(config)] == list(HOOKS)


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
        collectors=CollectorsTable(node=CollectorOptions(interval_seconds=node_seconds)),
    )
    assert options.collect_interval_s(config) == expected
