"""The strategy of one node: ConfigMap, annotation, labels (docs/reference/central.md 1.2)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.overcommit.configuration import load
from koord_scheduler.overcommit.strategy import (
    FIELD_OF_LABEL,
    STRATEGY_ANNOTATION,
    node_strategy,
)
from koordlet.protocol.colocation import ColocationStrategy
from tests.companion.overcommit.build import colocation

RATIO = "node.koordinator.sh/cpu-reclaim-ratio"


def strategy(
    labels: dict[str, str] | None = None, annotation: str | None = None, **fields: object
) -> tuple[ColocationStrategy, tuple[str, ...]]:
    layers = load(colocation(**fields), None).colocation
    assert layers is not None
    annotations = {} if annotation is None else {STRATEGY_ANNOTATION: annotation}
    return node_strategy(layers, labels or {}, annotations)


def test_the_annotation_lies_over_the_config_map_and_labels_over_both() -> None:
    text = json.dumps({"cpuReclaimThresholdPercent": 50, "memoryReclaimThresholdPercent": 40})
    found, problems = strategy({RATIO: "0.7"}, text, degradeTimeMinutes=3)
    assert problems == ()
    assert found.cpu_reclaim_threshold_percent == 70
    assert found.memory_reclaim_threshold_percent == 40
    assert found.degrade_time_minutes == 3


@pytest.mark.parametrize("label", FIELD_OF_LABEL)
def test_each_label_has_its_field(label: str) -> None:
    found, problems = strategy({label: "0.5"})
    assert getattr(found, FIELD_OF_LABEL[label]) == 50
    assert problems == ()


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        *(("0", 0), ("0.29", 28), ("1.5", 150), ("1e0", 100), (".5", 50), ("0.999", 99)),
        *(("-0.1", 60), ("x", 60), ("", 60), ("nan", 60), ("inf", 60), ("1e400", 60), ("1_0", 60)),
    ],
)
def test_ratios_are_cut_off_and_bad_ones_do_not_count(text: str, percent: int) -> None:
    found, problems = strategy({RATIO: text})
    assert found.cpu_reclaim_threshold_percent == percent
    assert bool(problems) == (percent == 60)


def test_the_part_of_static_mid_ends_at_all() -> None:
    _, problems = strategy({"node.koordinator.sh/mid-static-cpu-reserved-ratio": "1.01"})
    assert problems


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cpuReclaimThresholdPercent":-1}', '{"enable":"yes"}', "x" * 30_000]
)
def test_an_annotation_that_cannot_be_read_does_not_count(text: str) -> None:
    found, problems = strategy({}, text)
    assert found.enable
    assert found.cpu_reclaim_threshold_percent == 60
    assert STRATEGY_ANNOTATION in problems[0]


def test_a_node_can_be_switched_off_but_not_on_alone() -> None:
    assert strategy({}, '{"enable":false}')[0].enable is False
    assert strategy({}, '{"enable":true}', enable=False)[0].enable is False
    entries = [{"nodeSelector": {}, "enable": True}]
    assert strategy({}, None, enable=False, nodeConfigs=entries)[0].enable is False


@given(st.text(max_size=40), st.dictionaries(st.sampled_from(list(FIELD_OF_LABEL)), st.text()))
def test_no_text_makes_it_fail(annotation: str, labels: dict[str, str]) -> None:
    found, _ = strategy(labels, annotation)
    assert (found.cpu_reclaim_threshold_percent or 0) >= 0
