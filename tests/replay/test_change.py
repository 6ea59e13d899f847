from __future__ import annotations

import re
from typing import Any

import pytest

from koordlet.inputs.model import Configured
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy
from koordlet.replay.change import change_of, parsed, value_of
from koordlet.replay.parameters import NAMES, parameter, slo_keys

THRESHOLDS = "slo.resourceUsedThresholdWithBE"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80", 80),
        ("0.5", 0.5),
        ("true", True),
        ("cfsQuota", "cfsQuota"),
        ('"cfsQuota"', "cfsQuota"),
        ("[1, 2]", [1, 2]),
        ("1\ny = 2", "1\ny = 2"),
        ("", ""),
    ],
)
def test_values_are_as_in_the_configuration(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_key_and_value() -> None:
    assert parsed("slo.a.b = 80") == ("slo.a.b", 80)
    for text in ("slo.a.b", "=80"):
        with pytest.raises(ProtocolError, match="is not KEY=VALUE"):
            parsed(text)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ([(f"{THRESHOLDS}.cpuSuppressThresholdPercent", 101)], "cpuSuppressThresholdPercent: must"),
        ([(f"{THRESHOLDS}.cpuSupress", 1)], "unknown key"),
        ([("slo.nothing.there", 1)], "slo.nothing: unknown key"),
        ([("strategies.cpu-supress.enable", True)], 'there is no part .*"cpu-suppress"'),
        ([("strategies.cpu-evict.cool_down", 1)], "strategies.cpu-evict.cool_down: unknown key"),
        ([("strategies.cpu-evict.cool_down_seconds", "x")], "cool_down_seconds: must be"),
        ([("daemon.tick_seconds", 2)], "is no key that a decision goes by"),
        ([("strategies", 2)], "is no key that a decision goes by"),
        ([("slo", 2)], "is no key that a decision goes by"),
        ([(f"{THRESHOLDS}.enable", 1), (f"{THRESHOLDS}.enable.a", 1)], "contradict each other"),
        (
            [
                (f"{THRESHOLDS}.memoryEvictThresholdPercent", 50),
                (f"{THRESHOLDS}.memoryEvictLowerPercent", 60),
            ],
            "memoryEvict",
        ),
    ],
)
def test_what_is_refused(settings: list[tuple[str, Any]], text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        change_of(settings)


def test_it_is_laid_over_what_was_in_force() -> None:
    change = change_of([(f"{THRESHOLDS}.cpuSuppressThresholdPercent", 80)])
    recorded = NodeSLOSpec(
        resource_used_threshold_with_be=ResourceThresholdStrategy(
            enable=True, cpu_suppress_threshold_percent=65
        )
    )
    found = change.of_slo(recorded)
    assert found is not None
    assert found.resource_used_threshold_with_be == ResourceThresholdStrategy(
        enable=True, cpu_suppress_threshold_percent=80
    )
    # Where there was none, it is all of it: a key that is set is never without effect.
    assert change.of_slo(None) == change.slo


def test_a_value_has_to_go_with_those_in_force() -> None:
    """Not with the defaults, of which the lower bound is 65."""
    change = change_of([(f"{THRESHOLDS}.memoryEvictThresholdPercent", 60)])

    def recorded(lower: int) -> NodeSLOSpec:
        thresholds = ResourceThresholdStrategy(
            memory_evict_threshold_percent=70, memory_evict_lower_percent=lower
        )
        return NodeSLOSpec(resource_used_threshold_with_be=thresholds)

    assert change.of_slo(recorded(55)) is not None
    with pytest.raises(ProtocolError, match="memoryEvict"):
        change.of_slo(recorded(65))
    assert change_of([]).of_slo(recorded(80)) == recorded(80)


def test_parts_keep_their_order() -> None:
    recorded = (
        Configured("cpu-suppress", {"enable": True}),
        Configured("cpu-evict", {"enable": True, "cool_down_seconds": 20.0}),
        Configured("theirs", {"enable": True, "shares": 1}),
    )
    change = change_of(
        [
            ("strategies.cpu-burst.enable", True),
            ("strategies.cpu-suppress.enable", False),
            ("strategies.cpu-evict.cool_down_seconds", 5),
            ("plugins.theirs.shares", 2),
        ]
    )
    found = change.of_parts("strategies", recorded)
    assert [each.name for each in found] == ["cpu-burst", "cpu-evict", "theirs"]
    assert found[1].options == {"enable": True, "cool_down_seconds": 5}
    assert found[2].options == {"enable": True, "shares": 2}
    assert change.of_parts("hooks", ()) == ()


# Parameters


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cpu-suppress.cpuSuppressThresholdPercent", f"{THRESHOLDS}.cpuSuppressThresholdPercent"),
        ("cpu-evict.cool_down_seconds", "strategies.cpu-evict.cool_down_seconds"),
        (
            "memory-qos.beClass.memoryQOS.wmarkRatio",
            "slo.resourceQOSStrategy.beClass.memoryQOS.wmarkRatio",
        ),
        (f"memory-evict.{THRESHOLDS}.enable", f"{THRESHOLDS}.enable"),
    ],
)
def test_a_parameter_by_as_much_of_its_key_as_it_takes(name: str, key: str) -> None:
    found, part = parameter(name)
    assert (found, part.name) == (key, name.partition(".")[0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu-suppress", "is not STRATEGY.PARAM; strategies and hooks are cpu-means, cpu-suppr"),
        ("cpu-supress.enable", 'did you mean "cpu-suppress"'),
        ("memory-qos.wmarkRatio", "may be one of slo.resourceQOSStrategy.lsrClass.memoryQOS.wmark"),
        ("cpu-suppress.cpuSuppresPolicy", 'no parameter .*did you mean "cpuSuppressPolicy"'),
    ],
)
def test_a_parameter_that_is_none(name: str, text: str) -> None:
    with pytest.raises(ProtocolError) as found:
        parameter(name)
    assert re.search(text, str(found.value))


def test_each_offered_name_is_a_parameter() -> None:
    keys = [parameter(name) for name in NAMES]
    assert len(keys) > 100
    assert "cpu-suppress.cpuSuppressMinPercent" in NAMES
    assert set(slo_keys()) >= {key for key, _ in keys if key.startswith("slo.")}
