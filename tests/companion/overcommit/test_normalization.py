"""CPU normalisation and amplification (docs/reference/central.md 1.6,
docs/reference/protocol.md 5.8, 5.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.overcommit.noderesource import Plan
from koord_scheduler.overcommit.normalization import amplify
from tests.companion.overcommit.build import colocation, metric, node, planned, topology

NORMAL = "node.koordinator.sh/cpu-normalization-ratio"
AMPLIFY = "node.koordinator.sh/resource-amplification-ratio"
ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
MODEL = {
    "baseRatio": 1.1,
    "hyperThreadEnabledRatio": 1.2,
    "turboEnabledRatio": 1.3,
    "hyperThreadTurboEnabledRatio": 1.4,
}
INFO = {"cpuModel": "X", "hyperThreadEnabled": True, "turboEnabled": True}


def found(
    normal: Any = None,
    amplification: Any = None,
    info: Any = None,
    labels: dict[str, str] | None = None,
    **annotations: Any,
) -> Plan:
    data = colocation()
    if normal is not None:
        data["cpu-normalization-config"] = json.dumps(normal)
    if amplification is not None:
        data["resource-amplification-config"] = json.dumps(amplification)
    names = {"present": NORMAL, "amplified": AMPLIFY}
    of = node(labels=labels, annotations={names[key]: v for key, v in annotations.items()})
    return planned(data, of, metric(), topology=topology((50, "60G"), cpu_info=info))


@pytest.mark.parametrize(
    ("hyper_thread", "turbo", "text"),
    [(False, False, "1.10"), (True, False, "1.20"), (False, True, "1.30"), (True, True, "1.40")],
)
def test_one_of_four_ratios(hyper_thread: bool, turbo: bool, text: str) -> None:
    info = {"cpuModel": "X", "hyperThreadEnabled": hyper_thread, "turboEnabled": turbo}
    strategy = {"enable": True, "ratioModel": {"X": MODEL}}
    assert found(strategy, None, info).annotations[NORMAL] == text


@pytest.mark.parametrize(
    ("strategy", "labels", "text"),
    [
        ({"enable": False, "ratioModel": {"X": MODEL}}, {}, "1.00"),
        ({"ratioModel": {"X": MODEL}}, {}, "1.00"),
        ({"ratioModel": {"X": MODEL}}, {ENABLED: "true"}, "1.40"),
        (
            {"enable": True, "ratioModel": {"X": MODEL}},
            *({ENABLED: "false"}, "1.00"),
        ),
        ({"enable": True, "defaultRatio": 2.5, "ratioModel": {"Y": MODEL}}, {}, "2.50"),
        ({"enable": True, "defaultRatio": 2.5, "ratioModel": {"X": {"baseRatio": 2}}}, {}, "2.50"),
        (
            {
                "enable": True,
                "defaultRatio": 2,
                "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "defaultRatio": 3}],
            },
            *({"a": "b"}, "3.00"),
        ),
        ({"enable": True, "defaultRatio": 5}, {}, "5.00"),
    ],
)
def test_which_ratio(strategy: Any, labels: dict[str, str], text: str) -> None:
    assert found(strategy, None, INFO, labels).annotations[NORMAL] == text


@pytest.mark.parametrize(
    ("strategy", "info", "labels", "why"),
    [
        ({"enable": True, "defaultRatio": 2}, None, {}, "cpu-basic-info"),
        ({"enable": True}, INFO, {}, "defaultRatio"),
        ({"enable": True, "defaultRatio": 5.01}, INFO, {}, "5.01"),
        ({"enable": True, "defaultRatio": 0.9}, INFO, {}, "0.9"),
        ({}, INFO, {ENABLED: "on"}, "neither true nor"),
    ],
)
def test_an_unknown_ratio_leaves_what_stands_there(
    strategy: Any, info: Any, labels: dict[str, str], why: str
) -> None:
    plan = found(strategy, None, info, labels, present="1.25")
    assert NORMAL not in plan.annotations
    assert why in plan.problems[0]
    assert plan.normalization_ratio == 1.25


@pytest.mark.parametrize(
    ("present", "text"), [("1.39", "1.39"), ("1.41", "1.41"), ("1.38", "1.40"), ("x", "1.40")]
)
def test_it_is_rewritten_when_it_differs_by_more_than_a_hundredth(present: str, text: str) -> None:
    strategy = {"enable": True, "ratioModel": {"X": MODEL}}
    assert found(strategy, None, INFO, present=present).annotations[NORMAL] == text


@pytest.mark.parametrize(
    ("normal", "amplification", "text"),
    [
        (None, None, None),
        (None, {"enable": False, "resourceAmplificationRatio": {"cpu": 2}}, None),
        (None, {"enable": True, "resourceAmplificationRatio": {}}, None),
        (
            *(None, {"enable": True, "resourceAmplificationRatio": {"memory": 1.2, "cpu": 1.5}}),
            '{"cpu":1.50,"memory":1.20}',
        ),
        (None, {"enable": True, "resourceAmplificationRatio": {"cpu": 1}}, '{"cpu":1.00}'),
        (1.2, None, '{"cpu":1.20}'),
        (1.2, {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}, '{"cpu":1.80}'),
        (
            *(1.2, {"enable": True, "resourceAmplificationRatio": {"memory": 2}}),
            '{"cpu":1.20,"memory":2.00}',
        ),
    ],
)
def test_amplification(normal: float | None, amplification: Any, text: str | None) -> None:
    strategy = {"enable": True, "defaultRatio": normal} if normal else None
    plan = found(strategy, amplification, INFO, amplified='{"cpu":9.00}')
    assert plan.annotations[AMPLIFY] == text


@pytest.mark.parametrize(
    ("amount", "ratio", "result"),
    [(100, 1.5, 150), (101, 1.5, 152), (100, 1, 100), (100, 0.5, 100)],
)
def test_amplify(amount: int, ratio: float, result: int) -> None:
    assert amplify(amount, ratio) == result
