"""Loading of slo-controller-config (docs/reference/central.md 1.2, 1.8,
docs/reference/protocol.md 5.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.overcommit.configuration import (
    COLOCATION,
    COLOCATION_REFUSED,
    DEFAULTS,
    KEY_OF_FIELD,
    SECTION_REFUSED,
    Configuration,
    load,
    select,
)
from koordlet.protocol.colocation import COLOCATION_DEFAULTS, ColocationStrategy
from koordlet.protocol.configmap import CONFIG_KEYS

THRESHOLD = "resource-threshold-config"


def data(**fields: Any) -> dict[str, str]:
    return {COLOCATION: json.dumps(fields)}


def colocation(of: Configuration, labels: dict[str, str] | None = None) -> ColocationStrategy:
    assert of.colocation is not None
    return select(of.colocation, labels or {})


def test_every_key_is_loaded() -> None:
    assert set(KEY_OF_FIELD.values()) == set(CONFIG_KEYS) == set(DEFAULTS)


def test_no_config_map_gives_defaults_and_the_error_flag() -> None:
    found = load(None, None)
    assert found.error
    assert colocation(found) == COLOCATION_DEFAULTS
    assert found.outcomes == ()


@pytest.mark.parametrize("texts", [{}, {COLOCATION: ""}, {COLOCATION: "{}"}, {COLOCATION: "null"}])
def test_no_colocation_key_gives_defaults_without_the_error_flag(texts: dict[str, str]) -> None:
    found = load(texts, None)
    assert not found.error
    assert colocation(found) == COLOCATION_DEFAULTS


BAD = (
    "{",
    "[]",
    '{"enable":1}',
    '{"cpuReclaimThresholdPercent":-1}',
    '{"memoryReclaimThresholdPercent":"65"}',
    '{"degradeTimeMinutes":0}',
    '{"updateTimeThresholdSeconds":0}',
    '{"metricAggregateDurationSeconds":0}',
    '{"metricReportIntervalSeconds":-5}',
    '{"resourceDiffThreshold":0}',
    '{"resourceDiffThreshold":1.5}',
    '{"midCPUThresholdPercent":101}',
    '{"midUnallocatedPercent":-1}',
    '{"batchCPUThresholdPercent":-1}',
    '{"memoryCalculatePolicy":"maxUsageReqest"}',
)


@pytest.mark.parametrize("text", BAD)
def test_a_bad_cluster_strategy_keeps_what_was_there(text: str) -> None:
    before = load(data(enable=True, cpuReclaimThresholdPercent=70), None)
    found = load({COLOCATION: text}, before)
    assert found.colocation == before.colocation
    assert found.error
    (outcome,) = found.outcomes
    assert (outcome.key, outcome.reason) == (COLOCATION, COLOCATION_REFUSED)
    assert outcome.refused
    assert outcome.message
    again = load(data(enable=True), found)
    assert not again.error
    assert again.outcomes == ()


@pytest.mark.parametrize("text", BAD)
def test_nothing_is_known_before_the_first_good_text(text: str) -> None:
    found = load({COLOCATION: text, THRESHOLD: '{"clusterStrategy":{"enable":true}}'}, None)
    assert found.colocation is None
    assert found.error
    assert found.threshold.cluster.enable
    later = load(None, found)
    assert later.colocation is not None


@pytest.mark.parametrize("field", ["cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent"])
def test_more_than_all_may_be_reclaimed(field: str) -> None:
    assert not load(data(**{field: 150}), None).error


def test_an_entry_is_laid_over_the_cluster_and_the_first_match_wins() -> None:
    text = data(
        enable=True,
        cpuReclaimThresholdPercent=70,
        nodeConfigs=[
            {"name": "none", "enable": False},
            {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "enable": False},
            {
                "name": "b",
                "nodeSelector": {
                    "matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]
                },
                "memoryReclaimThresholdPercent": 0,
            },
        ],
    )
    found = load(text, None)
    assert not found.error
    assert colocation(found, {"pool": "a"}).enable is False
    assert colocation(found, {"pool": "a"}).cpu_reclaim_threshold_percent == 70
    assert colocation(found, {"pool": "b"}).memory_reclaim_threshold_percent == 0
    assert colocation(found, {"pool": "b"}).enable is True
    assert colocation(found).memory_reclaim_threshold_percent == 65
    (remark,) = found.outcomes
    assert not remark.refused
    assert "nodeConfigs[0].nodeSelector" in remark.message


def test_an_empty_selector_matches_every_node() -> None:
    found = load(data(nodeConfigs=[{"nodeSelector": {}, "degradeTimeMinutes": 3}]), None)
    assert colocation(found, {"a": "b"}).degrade_time_minutes == 3


def test_a_bad_entry_becomes_a_copy_of_the_cluster() -> None:
    text = data(
        enable=True,
        cpuReclaimThresholdPercent=70,
        nodeConfigs=[
            {
                "nodeSelector": {"matchLabels": {"pool": "a"}},
                "cpuReclaimThresholdPercent": -1,
                "degradeTimeMinutes": 3,
            },
            {"nodeSelector": {}, "degradeTimeMinutes": 4},
        ],
    )
    found = load(text, None)
    assert not found.error
    assert found.colocation is not None
    assert colocation(found, {"pool": "a"}) == found.colocation.cluster
    assert colocation(found).degrade_time_minutes == 4
    (remark,) = found.outcomes
    assert not remark.refused
    assert "nodeConfigs[0].cpuReclaimThresholdPercent" in remark.message


def test_keys_match_in_any_case_and_unknown_ones_are_remarked() -> None:
    found = load({COLOCATION: '{"ENABLE": true, "cpuReclaimTresholdPercent": 70}'}, None)
    assert colocation(found).enable
    (remark,) = found.outcomes
    assert 'did you mean "cpuReclaimThresholdPercent"?' in remark.message
    assert not remark.refused


SECTIONS = {
    "threshold": {"clusterStrategy": {"cpuSuppressThresholdPercent": "x"}},
    "qos": {"clusterStrategy": {"lsClass": {"cpuQOS": {"groupIdentity": 7}}}},
    "cpu_burst": {"nodeStrategies": [{"nodeSelector": {}, "policy": "sometimes"}]},
    "system": {"clusterStrategy": {"totalNetworkBandwidth": "fast"}},
    "applications": {"applications": [{"name": "a", "qos": "best"}]},
    "normalization": {"ratioModel": {"x": {"baseRatio": "1"}}},
    "amplification": {"resourceAmplificationRatio": {"cpu": 0.5}},
}


@pytest.mark.parametrize("field", SECTIONS)
@pytest.mark.parametrize("bad", ["", "{", "bad"])
def test_a_bad_section_keeps_its_own_old_value_alone(field: str, bad: str) -> None:
    key = KEY_OF_FIELD[field]
    good = data(enable=True)
    before = load(good, None)
    text = json.dumps(SECTIONS[field]) if bad == "bad" else bad
    found = load(good | {key: text, THRESHOLD: "{}"} | {key: text}, before)
    assert getattr(found, field) == getattr(before, field)
    assert not found.error
    (outcome,) = found.outcomes
    assert (outcome.key, outcome.reason, outcome.refused) == (key, SECTION_REFUSED, True)


def test_a_section_that_is_taken_away_goes_back_to_defaults() -> None:
    before = load({THRESHOLD: '{"clusterStrategy":{"enable":true}}'}, None)
    assert before.threshold.from_config
    found = load({}, before)
    assert found.threshold.cluster == DEFAULTS[THRESHOLD]
    assert not found.threshold.from_config


def test_rules_between_fields_hold_for_the_merged_values() -> None:
    """koordlet would refuse such a NodeSLO: better nobody writes one."""
    strategy = {"memoryEvictLowerPercent": 72}
    found = load({THRESHOLD: json.dumps({"clusterStrategy": strategy})}, None)
    assert found.outcomes[0].refused
    assert "memoryEvictLowerPercent" in found.outcomes[0].message


def test_remarks_alone_are_no_effective_change() -> None:
    found = load(data(enable=True), None)
    again = load(data(enable=True, unknown=1), found)
    assert again.outcomes
    assert again == found
    assert load(data(enable=False), found) != found


def test_messages_are_bounded() -> None:
    many = {f"unknown{number}" * 40: 1 for number in range(100)}
    (outcome,) = load({COLOCATION: json.dumps(many)}, None).outcomes
    assert len(outcome.message) < 4000
    assert "92 more" in outcome.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("enable", "nodeConfigs", "nodeSelector", "matchLabels", "clusterStrategy"),
                    *("nodeStrategies", "applications", "cpuReclaimThresholdPercent", "policy"),
                    *("ratioModel", "resourceAmplificationRatio", "cpu", "lsClass", "cpuQOS"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from([*CONFIG_KEYS, "other"]), json_values.map(json.dumps) | st.text(max_size=20)
    )
)
def test_no_text_makes_loading_fail(texts: dict[str, str]) -> None:
    found = load(texts, None)
    assert found.error == (found.colocation is None)
    assert load(texts, found).error == found.error
