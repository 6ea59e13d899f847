from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.protocol.colocation import COLOCATION_DEFAULTS, ColocationStrategy
from koordlet.protocol.configmap import CONFIG_KEYS, load_config, load_slo
from koordlet.protocol.decode import decode
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.selector import (
    LabelSelector,
    Matcher,
    Requirement,
    matches,
    selector_problems,
)
from koordlet.protocol.slo import HostApplicationSpec, NodeSLOSpec, ResourceThresholdStrategy

THRESHOLD = json.dumps(
    {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65},
        "nodeStrategies": [
            {
                "name": "xl",
                "nodeSelector": {"matchLabels": {"pool": "xl"}},
                "cpuSuppressThresholdPercent": 50,
            },
            {"name": "rest", "nodeSelector": {}, "enable": False},
        ],
    }
)
DATA = {"resource-threshold-config": THRESHOLD}


def threshold(document: Any, labels: dict[str, str]) -> ResourceThresholdStrategy | None:
    return load_slo(document, labels).resource_used_threshold_with_be


def test_the_first_matching_entry_is_laid_over_the_cluster_strategy() -> None:
    xl = ResourceThresholdStrategy(enable=True, cpu_suppress_threshold_percent=50)
    rest = ResourceThresholdStrategy(enable=False, cpu_suppress_threshold_percent=65)
    assert threshold(DATA, {"pool": "xl"}) == xl
    assert threshold(DATA, {}) == rest


@pytest.mark.parametrize(
    "document",
    [
        DATA,
        {"data": DATA},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": DATA},
    ],
)
def test_a_config_map_in_every_wrapping(document: dict[str, Any]) -> None:
    assert threshold(document, {"pool": "xl"})


SPEC = {"resourceUsedThresholdWithBE": {"enable": True}}


@pytest.mark.parametrize(
    "document",
    [
        SPEC,
        {"spec": SPEC},
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeSLO",
            "metadata": {"name": "n1"},
            "spec": SPEC,
            "status": {},
        },
    ],
)
def test_a_node_slo_in_every_wrapping(document: dict[str, Any]) -> None:
    assert load_slo(document, {}) == NodeSLOSpec(
        resource_used_threshold_with_be=ResourceThresholdStrategy(enable=True)
    )


def test_no_entry_matches_leaves_the_cluster_strategy() -> None:
    data = {"cpu-burst-config": '{"clusterStrategy":{"policy":"auto"}}'}
    burst = load_slo(data, {"a": "b"}).cpu_burst_strategy
    assert burst is not None
    assert burst.policy == "auto"


def test_host_application_entries_replace_the_cluster_list() -> None:
    text = json.dumps(
        {
            "applications": [{"name": "a"}],
            "nodeConfigs": [
                {"nodeSelector": {"matchLabels": {"p": "b"}}, "applications": [{"name": "b"}]},
                {"nodeSelector": {"matchLabels": {"p": "none"}}},
            ],
        }
    )
    data = {"host-application-config": text}
    assert load_slo(data, {}).host_applications == (HostApplicationSpec("a"),)
    assert load_slo(data, {"p": "b"}).host_applications == (HostApplicationSpec("b"),)
    assert load_slo(data, {"p": "none"}).host_applications is None


def test_manager_strategies_get_their_defaults() -> None:
    found = load_config(
        {
            "colocation-config": "",
            "cpu-normalization-config": '{"ratioModel":{"CPU X":{"baseRatio":1.2}}}',
            "resource-amplification-config": '{"enable":true}',
        },
        {},
    )
    assert found["colocation-config"] == COLOCATION_DEFAULTS
    assert found["cpu-normalization-config"].enable is False  # type: ignore[attr-defined]
    assert found["resource-amplification-config"].enable is True  # type: ignore[attr-defined]
    text = '{"enable":true,"nodeConfigs":[{"nodeSelector":{},"degradeTimeMinutes":5}]}'
    colocation = load_config({"colocation-config": text}, {})["colocation-config"]
    assert isinstance(colocation, ColocationStrategy)
    assert (colocation.enable, colocation.degrade_time_minutes) == (True, 5)
    assert colocation.cpu_reclaim_threshold_percent == 60


BAD: list[tuple[Any, str, str]] = [
    ([], "$", ""),
    ({"kind": "NodeSLo", "spec": {}}, "$.kind", "NodeSLO"),
    ({"kind": "ConfigMap"}, "$.data", ""),
    ({"kind": "NodeSLO", "spec": []}, "$.spec", ""),
    ({"kind": "NodeSLO", "spec": {}, "specs": {}}, "$.specs", "spec"),
    ({"data": {"cpu-burst-cfg": "{}"}}, "$.data.cpu-burst-cfg", "cpu-burst-config"),
    ({"data": {"system-config": ""}}, "$.data.system-config", ""),
    ({"data": {"system-config": "[]"}}, "$.data.system-config", ""),
    ({"data": {"system-config": {}}}, "$.data.system-config", ""),
    (
        {"cpu-burst-config": '{"clusterStrateg":{}}'},
        "$.cpu-burst-config.clusterStrateg",
        "clusterStrategy",
    ),
    (
        {"cpu-burst-config": '{"nodeStrategies":[{"nodeSelector":{},"policy":"x"}]}'},
        "$.cpu-burst-config.nodeStrategies[0].policy",
        "",
    ),
    (
        {"cpu-burst-config": '{"nodeStrategies":[{"policy":"auto"}]}'},
        "$.cpu-burst-config.nodeStrategies[0].nodeSelector",
        "",
    ),
    (
        {"resourceUsedThresholdWithB": {}},
        "$.resourceUsedThresholdWithB",
        "resourceUsedThresholdWithBE",
    ),
    (
        {"colocation-config": '{"resourceDiffThreshold":0}'},
        "$.colocation-config.resourceDiffThreshold",
        "",
    ),
]


@pytest.mark.parametrize(("document", "path", "near"), BAD)
def test_faults_are_named(document: Any, path: str, near: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        load_slo(document, {})
    assert caught.value.path == path
    assert caught.value.problems[0].nearest == near


def test_faults_of_all_keys_are_found() -> None:
    with pytest.raises(ProtocolError) as caught:
        load_slo({"data": dict.fromkeys(CONFIG_KEYS, "{")}, {})
    assert len(caught.value.problems) == len(CONFIG_KEYS)


SELECTORS: list[tuple[dict[str, Any], dict[str, str], bool]] = [
    ({}, {}, True),
    ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
    ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
    ({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1"}, False),
    (
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]},
        {"a": "2"},
        True,
    ),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": "1"}, False),
    (
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
        {"a": "1"},
        False,
    ),
]


@pytest.mark.parametrize(("tree", "labels", "expected"), SELECTORS)
def test_selectors(tree: dict[str, Any], labels: dict[str, str], expected: bool) -> None:
    selector = decode(LabelSelector, tree, strict=True)
    assert matches(selector, labels) is expected
    assert not list(selector_problems(selector, "$"))


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"matchLabels": {"a b": "1"}}, '$.matchLabels["a b"]'),
        ({"matchLabels": {"a": "-"}}, "$.matchLabels.a"),
        ({"matchLabels": {"Bad_/a": ""}}, '$.matchLabels["Bad_/a"]'),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "$.matchExpressions[0].values"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]},
            "$.matchExpressions[0].values",
        ),
        ({"matchExpressions": [{"key": "/a", "operator": "Exists"}]}, "$.matchExpressions[0].key"),
    ],
)
def test_invalid_selectors(tree: dict[str, Any], path: str) -> None:
    selector = decode(LabelSelector, tree, strict=True)
    assert [problem.path for problem in selector_problems(selector, "$")] == [path]


@given(
    labels=st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4),
    equal=st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"), max_size=2),
    asked=st.lists(
        st.builds(
            Requirement,
            key=st.sampled_from("abc"),
            operator=st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
            values=st.lists(st.sampled_from("123"), max_size=3).map(tuple),
        ),
        max_size=5,
    ),
)
def test_a_selector_made_ready_matches_the_same(
    labels: dict[str, str], equal: dict[str, str], asked: list[Requirement]
) -> None:
    selector = LabelSelector(match_labels=equal, match_expressions=tuple(asked))
    assert Matcher(selector).matches(labels) is matches(selector, labels)
